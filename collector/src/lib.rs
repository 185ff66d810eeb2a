//! The collector: takes agents' streams, runs the analysis, keeps and shows incidents, and tells whoever is to be woken.
//! A library so that its parts can be tested; `main` is wiring and exit codes.
//!
//! The rooms stand along the way of a window: `ingest` takes it, `run` hands it to the analysis and what comes out to `live`, `store`,
//! `alert`, `export` and `sizing`; `traces` takes the spans of others; `serve` shows it all, `client`, `draw` and `tui` are the other end of that. Which room may know which is in
//! `tests/tests/arrows/table.rs`.

pub mod access;
pub mod alert;
mod aside;
pub mod authority;
pub mod client;
pub mod clock;
pub mod columns;
pub mod counters;
pub mod draw;
pub mod export;
pub mod failure;
pub mod fault;
#[cfg(test)]
mod fixture;
pub mod ingest;
pub mod kept;
pub mod live;
mod lock;
pub mod log;
pub mod moments;
pub mod pem;
pub mod prevent;
mod raw;
pub mod run;
pub mod send;
pub mod serve;
pub mod sizing;
pub mod sla;
pub mod store;
pub mod text;
pub mod traces;
pub mod tui;
pub mod verdict;

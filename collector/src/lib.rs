//! The collector: takes agents' streams, runs the analysis, keeps and shows incidents, and tells whoever is to be woken.
//! A library so that its parts can be tested; `main` is wiring and exit codes.

pub mod alert;
pub mod cli;
pub mod client;
pub mod config;
pub mod convert;
pub mod doctor;
pub mod driver;
mod drop_packets;
pub mod endpoint;
pub mod explain;
pub mod export;
pub mod failure;
mod fields;
#[cfg(test)]
mod fixture;
pub mod ingest;
pub mod listen;
pub mod local;
pub mod log;
pub mod metrics;
pub mod offset;
pub mod outlet;
pub mod plot;
pub mod provisional;
pub mod recording;
pub mod registry;
pub mod replay;
pub mod rpc;
pub mod sanity;
pub mod series;
pub mod serve;
pub mod server;
pub mod session;
pub mod store;
pub mod text;
pub mod timeline;
pub mod tls;
pub mod top;
pub mod up;
mod waiting;
mod watchdog;

//! Tailwater's agent: measures 50 ms windows of this machine in the kernel and streams them to a collector. Knows no detection
//! and no other host.
//!
//! A window's way: `attach` (programs that this kernel takes, and their memory) → `sample` (one thread drains closed windows) →
//! `name` (who they are about) → `stream` (batches, what waits, all of tonic); `run` wires it, and `enrol` joins a collector before all that. Which room
//! may use which is the table in `tests/tests/arrows/table.rs`; what all may use are the files `clock`, `config`, `fence`, `identity`, `signal` and `window`.

pub mod attach;
pub mod clock;
pub mod config;
pub mod enrol;
pub mod fence;
pub mod identity;
pub mod name;
pub mod run;
pub mod sample;
pub mod signal;
pub mod stream;
pub mod window;

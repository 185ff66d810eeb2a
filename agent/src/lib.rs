//! Tailwater's agent: measures 50 ms windows of this machine in the kernel and streams them to a collector. Knows no detection
//! and no other host.
//!
//! `run` wires it: `attach` (signals that this kernel takes) → `sampler` (one thread: which window is drained when) → `pipeline`
//! (scope, names, batches) → `outbox` (what waits to be sent) → `stream` (all of tonic).

pub mod attach;
pub mod btf_names;
pub mod cgroup;
pub mod cli;
pub mod clock;
pub mod config;
pub mod doctor;
pub mod dump;
pub mod encode;
pub mod failure;
pub mod loader;
pub mod mapping;
pub mod naming;
pub mod outbox;
pub mod pipeline;
pub mod privilege;
pub mod probe;
pub mod ring;
pub mod run;
pub mod sampler;
pub mod scope;
pub mod self_stats;
pub mod servers;
pub mod signal;
pub mod slots;
pub mod stream;
pub mod support;
pub mod throttle;
pub mod window;
pub mod workload;

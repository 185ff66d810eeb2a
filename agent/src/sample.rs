//! Windows out of kernel memory: one file for each signal, and the one thread that drains them (`sampler`). Knows no network
//! stream.

pub mod block;
pub mod memory;
pub mod net;
pub mod sampler;
pub mod sched;
pub mod self_stats;
pub mod slots;
pub mod throttle;

//! Windows out of kernel memory: one file for each signal, and the one thread that drains them (`sampler`). `polled` stands in where
//! the kernel takes no programs. Knows no network stream.

mod beside;
pub mod block;
pub mod counters;
pub mod futexes;
pub mod locks;
pub mod memory;
pub mod namespaces;
pub mod net;
mod netlink;
pub mod polled;
mod qdiscs;
pub mod repeated;
pub mod sampler;
pub mod sched;
mod schedstat;
pub mod self_stats;
pub mod shares;
pub mod slots;
pub mod stacks;
mod tasks;
pub mod throttle;

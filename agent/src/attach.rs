//! The kernel's side as user space sees it: which programs this kernel takes, loading them, and the memory shared with them. Knows
//! no signal's meaning.
//!
//! `support` has the one table of hooks, `probe` asks this machine, `loader` loads objects, `iterator` runs programs over
//! what the kernel holds, `mapping`, `ring` and `window_log` read what they share, `price` times the programs, `rest` lets them
//! rest, `skipped` asks what the kernel left out, `storage` whether it keeps what it is given, `privilege` gives up what is needed no longer, `filter` the system calls among that.

mod bpf;
pub mod btf_names;
pub mod filter;
pub mod iterator;
pub mod loader;
pub mod mapping;
pub mod price;
pub mod privilege;
pub mod probe;
pub mod rest;
pub mod ring;
mod skipped;
pub mod storage;
pub mod support;
pub mod window_log;

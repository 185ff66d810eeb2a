//! What the kernel offers, as the rest of this crate uses it: control groups, network namespaces, processes, CPUs, the clock. Knows
//! nothing of what runs in them or on them, and nothing else of this crate.

pub mod cgroup;
pub mod clock;
pub mod cpus;
pub mod netns;
pub mod process;

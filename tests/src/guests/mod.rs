//! Systems that are not this machine's own, for the programs to be tried on: other kernels in QEMU, a Debian of its own in namespaces. Knows
//! nothing of the lab.

pub mod clean_system;
pub mod kernels;

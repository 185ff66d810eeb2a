//! Who is measured: cgroups, processes and sockets get the names that people know them by, and ids for the wire. Knows no kernel
//! program and no window's values.

pub mod addresses;
pub mod aside;
pub mod cgroup;
pub mod naming;
pub mod pool;
pub mod scope;
pub mod servers;
pub mod started;
pub mod unseen;
pub mod workload;

//! Two databases that share one "VM", as in Li et al.: whose the CPU is by how many connections each has, what Tailwater says of it, and what
//! each remedy does. The truth is the kernel's account of both processes, and shares no code with agent or collector.
//!
//! From below: [`setting`] → [`experiment`] → [`results`].

pub mod experiment;
pub mod results;
pub mod setting;

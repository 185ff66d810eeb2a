//! Service graphs made from a seed: real processes on hosts of their own that call each other, watched by an agent on each host and a
//! collector, with causes injected, and what is told of them held against the truth.
//!
//! `plan`, `injections`, `benign` and `judge` are pure; `node` is the one configurable service, `servers` are those as others run them, and `wire` what they are asked in; `world` starts and stops, `run` has the rhythm.

pub mod benign;
pub mod golden;
pub mod injections;
pub mod judge;
pub mod node;
pub mod part;
pub mod plan;
pub mod results;
pub mod run;
mod servers;
mod wire;
pub mod world;

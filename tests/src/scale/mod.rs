//! Many agents on one collector, measured: simulated agents that speak the real protocol over real sockets and mutual TLS to a collector
//! in a cgroup of its own. What they tell was told by real agents: the laboratory's golden recordings, given other names.
//!
//! A recording becomes a [`script`] of windows, scripts become applications and hosts ([`fleet`]), each host an [`agent`] on the [`wire`];
//! [`run`] starts collector, agents and [`readers`] and measures a row, [`results`] keeps rows.

pub mod agent;
pub mod certificates;
pub mod clock;
pub mod collector;
pub mod counted;
pub mod fleet;
pub mod heard;
pub mod readers;
pub mod results;
pub mod run;
pub mod script;
pub mod size;
pub mod wire;

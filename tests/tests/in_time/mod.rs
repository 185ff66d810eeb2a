//! What a history in time is made of: chance, connections, machines with their agents, a collector, and the truth about all of them.

pub(crate) mod agent;
pub(crate) mod chance;
pub(crate) mod collector;
pub(crate) mod network;
pub(crate) mod truth;

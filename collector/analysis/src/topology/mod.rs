//! What was seen of who serves and who calls: tiers, and the graph of connections between them. Knows names and addresses; no values.

pub(crate) mod graph;
mod groups;
mod meetings;
pub(crate) mod tier;

//! Who calls whom, as people and pages see it. Owns the JSON shape; knows nothing of how a caller is matched to a listener.

use crate::window::Host;
use serde::{Deserialize, Serialize};

/// The graph of what was seen, for people and pages.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TopologyView {
    /// Workloads that listen or call.
    pub nodes: Vec<NodeView>,
    /// Connections between them.
    pub edges: Vec<EdgeView>,
}

/// A workload that listens or calls.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NodeView {
    /// Host.
    pub host: Host,
    /// Name of the workload.
    pub workload: String,
    /// Name of its tier.
    pub tier: String,
    /// `address:port` of each listener.
    pub listeners: Vec<String>,
    /// Configured, or learned from a plateau; `null`: not known, or event-driven.
    #[serde(default)]
    pub workers_limit: Option<u32>,
}

/// Connections of one workload to one address and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct EdgeView {
    /// Caller's host.
    pub from_host: Host,
    /// Caller's workload.
    pub from_workload: String,
    /// `address:port` as the caller dials it.
    pub remote: String,
    /// Who listens there; `null`: not observed.
    pub to_host: Option<Host>,
    /// Its workload.
    pub to_workload: Option<String>,
}

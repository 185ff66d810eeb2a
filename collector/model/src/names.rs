//! What things are called: names behind the ids of a host, and what was seen by name.

use crate::window::{DeviceInfo, EdgeInfo, EntityId, ListenerInfo, WorkloadInfo};
use std::collections::BTreeMap;

/// Entities of one kind that are kept per host: an agent has half as many at a time. Rows of more are left out and counted.
pub const ENTITIES_PER_HOST_MAX: usize = 8_192;

/// Names behind a host's ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Names {
    /// By id.
    pub workloads: BTreeMap<EntityId, WorkloadInfo>,
    /// By id.
    pub listeners: BTreeMap<EntityId, ListenerInfo>,
    /// By id.
    pub edges: BTreeMap<EntityId, EdgeInfo>,
    /// By id.
    pub devices: BTreeMap<EntityId, DeviceInfo>,
}

/// Something seen: a host, workload, listener or tier.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Seen {
    /// "host", "workload", "listener" or "tier".
    pub kind: String,
    /// Its host; empty for a tier.
    pub host: String,
    /// Workload name, `address:port`, or the host's or tier's name.
    pub name: String,
    /// More about it: for a listener its workload, for a workload its cgroup.
    pub detail: String,
    /// When first, Unix ns.
    pub first_unix_ns: u64,
    /// When last.
    pub last_unix_ns: u64,
}

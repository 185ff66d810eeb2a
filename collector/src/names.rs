//! What things are called: names behind ids, what was seen by name, and the JSON names of kinds. Plain data.

use std::collections::BTreeMap;
use tailwater_analysis::incident::{Kind, Severity};
use tailwater_analysis::model::{DeviceInfo, EdgeInfo, EntityId, ListenerInfo, WorkloadInfo};

/// Entities of one kind that are kept per host; rows of more are left out and counted.
pub const ENTITIES_PER_HOST_MAX: usize = 65_536;

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

/// Its JSON name.
#[must_use]
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::UpstreamCtqo => "upstream_ctqo",
        Kind::DownstreamCtqo => "downstream_ctqo",
        Kind::LocalOverflow => "local_overflow",
        Kind::Millibottleneck => "millibottleneck",
        Kind::PersistentBottleneck => "persistent_bottleneck",
        Kind::SynFlood => "syn_flood",
        Kind::NearOverflow => "near_overflow",
    }
}

/// The lower-case name that receivers know.
#[must_use]
pub fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

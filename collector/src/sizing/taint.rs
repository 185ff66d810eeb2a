//! Why a second of a listener says nothing of its own curve. Owns the reasons and their names; knows no rule.

use serde::{Deserialize, Serialize};

/// A reason to leave a second out. Garbage collection that concurrency causes is none: it is part of what concurrency costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Taint {
    /// The hypervisor took more than a twentieth of the host's CPUs.
    Steal,
    /// Tasks of the workload were blocked on block I/O.
    Io,
    /// They were held up by reclaim, dirty pages or swap.
    Memory,
    /// A quota that the workload did not use up itself held it up.
    Throttled,
    /// A signal or a tracer stopped threads.
    Stopped,
    /// Others had the CPU.
    Neighbour,
    /// Most of what was in flight waited for tiers below that were full or held up.
    Downstream,
    /// An incident of this tier or of one below it was open.
    Incident,
    /// A signal or a window that would say so is missing.
    NotMeasured,
    /// CPU time is told of several servers, or listeners, together.
    SharedCpu,
    /// Connections carry several requests at a time, which are not told apart.
    Multiplexed,
}

impl Taint {
    /// All of them.
    pub(super) const ALL: [Self; 11] = [
        Self::Steal,
        Self::Io,
        Self::Memory,
        Self::Throttled,
        Self::Stopped,
        Self::Neighbour,
        Self::Downstream,
        Self::Incident,
        Self::NotMeasured,
        Self::SharedCpu,
        Self::Multiplexed,
    ];

    /// The JSON name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Steal => "steal",
            Self::Io => "io",
            Self::Memory => "memory",
            Self::Throttled => "throttled",
            Self::Stopped => "stopped",
            Self::Neighbour => "neighbour",
            Self::Downstream => "downstream",
            Self::Incident => "incident",
            Self::NotMeasured => "not_measured",
            Self::SharedCpu => "shared_cpu",
            Self::Multiplexed => "multiplexed",
        }
    }
}

//! A place that a walk came to, and how it came there. Plain data, for whoever walks, ranks or tells; knows no windows.

use crate::topology::tier::TierKey;
use std::net::IpAddr;

/// Tiers in a chain at most.
pub(crate) const PATH_MAX: usize = 8;

/// A place in a chain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Tier(TierKey),
    /// Dialled, and nobody observed listens there.
    Unobserved(IpAddr, u16),
    /// Observed, but its windows are missing.
    Missing(TierKey),
}

/// What of a caller calls account for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartOf {
    /// By how much its queue grew.
    Growth,
    /// All that it had read and not answered.
    Requests,
}

impl std::fmt::Display for PartOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Growth => "growth",
            Self::Requests => "requests",
        })
    }
}

/// One place on the way down, and how the walk came there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) place: Place,
    /// When its queue began to grow.
    pub(crate) onset: u64,
    /// Part of the caller's growth that its calls account for, 0 to 1; 1 for the first.
    pub(crate) explains: f64,
    /// Or of what else of it.
    pub(crate) part_of: PartOf,
    pub(crate) why: String,
}

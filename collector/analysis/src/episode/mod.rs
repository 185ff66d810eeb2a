//! What happened to one resource or queue, from when to when. One rule per file; a rule sees series, never a chain.

pub(crate) mod cpu;
pub(crate) mod culprits;
pub(crate) mod drop;
pub(crate) mod event_loop;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod io;
pub(crate) mod lookups;
pub(crate) mod memory;
pub(crate) mod quality;
pub(crate) mod stall;
pub(crate) mod stopped;

use crate::config::Thresholds;
use crate::frame::history::History;
use crate::series::Series;
use crate::series::sample::UseSample;
use crate::topology::tier::TierKey;
use tailwater_model::incident::{Culprit, EventLoop, Lookups, Resource};
use tailwater_model::window::EntityId;

/// Tasks that wait for a disk or for memory are an episode from this many times their usual level on. For the CPU it is configured.
pub(crate) const GROWTH: f64 = 3.0;
/// What has or holds at least this part of something has most of it.
pub(crate) const MOST: f64 = 0.5;

/// A resource of a tier's host that was short for a time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Episode {
    pub(crate) resource: Resource,
    /// First and last window.
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) peak: f64,
    pub(crate) unit: &'static str,
    /// How sure the rule is, 0 to 1.
    pub(crate) quality: f64,
    /// Brought by the tier's own requests: an effect of more arrivals, where there were more.
    pub(crate) by_load: bool,
    /// All of its host was short of it: the quota was the host's, or the hypervisor took the CPU.
    pub(crate) of_host: bool,
    pub(crate) culprits: Vec<Culprit>,
    /// Of an event loop that was blocked: which, and what it did.
    pub(crate) event_loop: Option<EventLoop>,
    /// Of lookups of names that had no answer: whom they waited for.
    pub(crate) lookups: Option<Lookups>,
    /// Of calls whose packets were lost: how many, and on their way to whom.
    pub(crate) lost: Option<Lost>,
    /// A clause for the evidence.
    pub(crate) why: String,
}

/// Calls whose packets were lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Who was called.
    pub(crate) to: TierKey,
    /// Most of them at once, beyond the usual ones.
    pub(crate) calls: u32,
    /// Segments that were sent again.
    pub(crate) resent: u64,
}

/// What a workload was short of, by the rules that ask its use of resources; `around` ends the windows that show its usual level, `alone`: one
/// thread serves all of its requests.
pub(crate) fn of_resources(
    history: &History,
    host: &str,
    workload: EntityId,
    used: &Series<UseSample>,
    alone: bool,
    around: u64,
    thresholds: &Thresholds,
) -> Vec<Episode> {
    let mut all = cpu::episodes(history, host, workload, used, alone, around, thresholds);
    for rule in [io::episodes, memory::episodes] {
        all.extend(rule(history, host, workload, used, around, thresholds));
    }
    all
}

//! What a walk may look at: history, topology and curves as they are in a window, and a tier's values around a drop. Owns how far around
//! it one looks; knows no way and no cause.

use crate::baseline::QUEUE_MIN;
use crate::baseline::congestion::Congestion;
use crate::config::Thresholds;
use crate::episode::stall::RATE_MIN;
use crate::frame::history::History;
use crate::series::Series;
use crate::series::growth::{Growth, growth};
use crate::series::sample::{CallSample, TierSample, UseSample, call_series, tier_series, use_series};
use crate::topology::graph::{Link, Topology};
use crate::topology::tier::{Tier, TierKey};

/// Windows before the drop that are looked at: 5 s.
pub(crate) const BEFORE_WINDOWS: u64 = 100;
/// Windows after it: 3 s.
pub(crate) const AFTER_WINDOWS: u64 = 60;
/// A queue peaks within this many windows before the drop (600 ms).
pub(crate) const PEAK_BEFORE: u64 = 12;
/// Or up to this many after it: the drops of a window may precede its mean.
pub(crate) const PEAK_AFTER: u64 = 2;

/// A millibottleneck lasts for up to 2 s: so long before a queue grew may have begun what filled it, or what a batch was stored behind.
pub(crate) const LONGEST_WINDOWS: u64 = 40;
/// A tier stands that answers less than this part of its usual rate, and requests are held back while less than this part of them comes.
pub(crate) const STANDS_RATIO: f64 = 0.5;
/// With this part of its windows missing a tier cannot be judged.
pub(crate) const MISSING_PART: f64 = 0.5;

/// Everything a walk may look at.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) history: &'a History,
    pub(crate) topology: &'a Topology,
    pub(crate) congestion: &'a Congestion,
    pub(crate) thresholds: &'a Thresholds,
}

/// A tier's values around a drop.
pub(crate) struct Node {
    pub(crate) tier: Series<TierSample>,
    pub(crate) used: Series<UseSample>,
    pub(crate) growth: Option<Growth>,
    pub(crate) onset: u64,
}

/// Whether a tier stands: it answers less than half as much as usual, where there is a usual rate to fall from.
pub(crate) fn stands(answered: f64, usual: f64) -> bool {
    usual >= RATE_MIN && answered <= STANDS_RATIO * usual
}

impl<'a> View<'a> {
    /// All of it, as it is now.
    pub(crate) fn of(
        history: &'a History,
        topology: &'a Topology,
        congestion: &'a Congestion,
        thresholds: &'a Thresholds,
    ) -> Self {
        Self { history, topology, congestion, thresholds }
    }

    /// The values of a tier around window `at`, its peak searched in `[from, to]`.
    pub(crate) fn node(&self, key: &TierKey, tier: &Tier, at: u64, from: u64, to: u64) -> Node {
        let (first, last) = (at.saturating_sub(BEFORE_WINDOWS), at.saturating_add(AFTER_WINDOWS));
        let tier = tier_series(self.history, &key.host, tier, first, last);
        let used = use_series(self.history, &key.host, key.workload, first, last);
        // Of connections that carry several exchanges a few pieces are unanswered at all times: their number says nothing.
        let few =
            |grown: &Growth| grown.peak < QUEUE_MIN && tier.get(grown.at).is_some_and(|s| s.connections_only);
        let growth = growth(&tier.map(TierSample::queued), from, to).filter(|grown| !few(grown));
        let onset = growth.map_or(at, |g| g.onset.min(at));
        Node { tier, used, growth, onset }
    }

    /// The same around window `at`, in which its queue overflowed.
    pub(crate) fn around(&self, key: &TierKey, at: u64) -> Option<Node> {
        let tier = self.topology.tiers.get(key)?;
        Some(self.node(key, tier, at, at.saturating_sub(PEAK_BEFORE), at.saturating_add(PEAK_AFTER)))
    }

    /// The calls along a link around window `at`.
    pub(crate) fn calls(&self, link: &Link, at: u64) -> Series<CallSample> {
        let (first, last) = (at.saturating_sub(BEFORE_WINDOWS), at.saturating_add(AFTER_WINDOWS));
        call_series(self.history, &link.from.host, &link.edges, first, last)
    }
}

//! What a walk may look at: history, topology and curves as they are in a window, and a tier's values around a drop. Owns how far around
//! it one looks; knows no way and no cause.

use crate::baseline::QUEUE_MIN;
use crate::baseline::congestion::Congestion;
use crate::config::Thresholds;
use crate::episode::stall::RATE_MIN;
use crate::frame::history::History;
use crate::series::Series;
use crate::series::drawn::Drawn;
use crate::series::growth::{DIPS, Growth, RISE_MIN, growth, usual};
use crate::series::sample::{
    CallSample, TierSample, UseSample, call_sample, call_series, tier_sample, tier_series, use_series,
};
use crate::topology::graph::{Link, Topology};
use crate::topology::tier::{Tier, TierKey};
use tailwater_model::window::EntityId;

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
/// Windows before one in which a tier must have stood as well, for its stand to count.
const STANDS_WINDOWS: u64 = 2;
/// With this part of its windows missing a tier cannot be judged.
pub(crate) const MISSING_PART: f64 = 0.5;

/// Everything a walk may look at.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) history: &'a History,
    pub(crate) topology: &'a Topology,
    pub(crate) congestion: &'a Congestion,
    pub(crate) thresholds: &'a Thresholds,
    /// What was drawn before; `None`: everything is drawn anew.
    drawn: Option<&'a Drawn>,
    /// What was there before is left out: see [`View::of_late`].
    late: bool,
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

/// Since when a tier stands in window `at`, whose queue grew from `grew` on; `None`: it does not, or not for long.
fn stands_since(tier: &Series<TierSample>, grew: u64, at: u64) -> Option<u64> {
    let rate = usual(&tier.map(|s| s.answered), grew);
    let is_standing = |index: &u64| tier.get(*index).is_some_and(|s| stands(s.answered, rate));
    let since = (grew..=at).rev().take_while(is_standing).last()?;
    (at - since >= STANDS_WINDOWS).then_some(since)
}

impl<'a> View<'a> {
    /// All of it, as it is now.
    pub(crate) fn of(
        history: &'a History,
        topology: &'a Topology,
        congestion: &'a Congestion,
        thresholds: &'a Thresholds,
    ) -> Self {
        Self { history, topology, congestion, thresholds, drawn: None, late: false }
    }

    /// The same, which looks at no window again of which `drawn` has what is asked.
    pub(crate) fn with(self, drawn: &'a Drawn) -> Self {
        Self { drawn: Some(drawn), ..self }
    }

    /// For a second look: a rise that was gone for one window already is two, and the onset of a tier that stands is when it came to a stand.
    pub(super) fn of_late(self) -> Self {
        Self { late: true, ..self }
    }

    /// See [`growth`].
    pub(super) fn dips(&self) -> usize {
        if self.late { 0 } else { DIPS }
    }

    /// What a tier was in `[first, last]`.
    pub(crate) fn tier_series(&self, host: &str, tier: &Tier, first: u64, last: u64) -> Series<TierSample> {
        match self.drawn {
            Some(drawn) => drawn.tier(self.history, host, tier, (first, last)),
            None => tier_series(self.history, host, tier, first, last),
        }
    }

    /// A workload's use of its host in `[first, last]`.
    pub(crate) fn use_series(
        &self,
        host: &str,
        workload: EntityId,
        first: u64,
        last: u64,
    ) -> Series<UseSample> {
        match self.drawn {
            Some(drawn) => drawn.uses(self.history, host, workload, (first, last)),
            None => use_series(self.history, host, workload, first, last),
        }
    }

    /// Calls by these edges of a host in `[first, last]`.
    pub(crate) fn call_series(
        &self,
        host: &str,
        edges: &[EntityId],
        first: u64,
        last: u64,
    ) -> Series<CallSample> {
        match self.drawn {
            Some(drawn) => drawn.calls(self.history, host, edges, (first, last)),
            None => call_series(self.history, host, edges, first, last),
        }
    }

    /// The values of a tier around window `at`, its peak searched in `[from, to]`.
    pub(crate) fn node(&self, key: &TierKey, tier: &Tier, at: u64, from: u64, to: u64) -> Node {
        let (tier, growth) = self.queue(key, tier, at, from, to);
        self.with_use(key, at, tier, growth)
    }

    /// The same, if its queue grew there. Of a tier that holds hardly a request no more is looked at than that: where all tiers are asked,
    /// most are such.
    pub(crate) fn grown(&self, key: &TierKey, tier: &Tier, at: u64, from: u64, to: u64) -> Option<Node> {
        let windows = self.history.windows_of(&key.host);
        let mut queued = (from..=to).filter_map(|i| windows.at(i)).map(|w| tier_sample(w, tier).queued());
        // A queue that rose by so much is at least that long.
        if !queued.any(|queued| queued >= RISE_MIN) {
            return None;
        }
        let (tier, growth) = self.queue(key, tier, at, from, to);
        growth.is_some().then(|| self.with_use(key, at, tier, growth))
    }

    /// What a tier served around window `at`, and how its queue grew to a peak in `[from, to]`.
    fn queue(
        &self,
        key: &TierKey,
        tier: &Tier,
        at: u64,
        from: u64,
        to: u64,
    ) -> (Series<TierSample>, Option<Growth>) {
        let (first, last) = looked_at(at);
        let tier = self.tier_series(&key.host, tier, first, last);
        // Of connections that carry several exchanges a few pieces are unanswered at all times: their number says nothing.
        let few =
            |grown: &Growth| grown.peak < QUEUE_MIN && tier.get(grown.at).is_some_and(|s| s.connections_only);
        let growth = growth(&tier.map(TierSample::queued), from, to, self.dips()).filter(|grown| !few(grown));
        (tier, growth)
    }

    fn with_use(&self, key: &TierKey, at: u64, tier: Series<TierSample>, growth: Option<Growth>) -> Node {
        let (first, last) = looked_at(at);
        let used = self.use_series(&key.host, key.workload, first, last);
        let grew = growth.map_or(at, |g| g.onset.min(at));
        let stood = if self.late { stands_since(&tier, grew, at) } else { None };
        Node { tier, used, growth, onset: stood.unwrap_or(grew) }
    }

    /// The same around window `at`, in which its queue overflowed.
    pub(crate) fn around(&self, key: &TierKey, at: u64) -> Option<Node> {
        let tier = self.topology.tiers.get(key)?;
        Some(self.node(key, tier, at, at.saturating_sub(PEAK_BEFORE), at.saturating_add(PEAK_AFTER)))
    }

    /// The calls along a link around window `at`.
    pub(crate) fn calls(&self, link: &Link, at: u64) -> Series<CallSample> {
        let (first, last) = looked_at(at);
        self.call_series(&link.from.host, &link.edges, first, last)
    }

    /// Whether so many of them were in flight at once in a window of `[from, to]`.
    pub(crate) fn reaches(&self, link: &Link, most: f64, from: u64, to: u64) -> bool {
        let windows = self.history.windows_of(&link.from.host);
        let mut there = (from..=to).filter_map(|i| windows.at(i));
        there.any(|window| call_sample(window, &link.edges).in_flight >= most)
    }
}

/// The windows around `at` that are looked at.
fn looked_at(at: u64) -> (u64, u64) {
    (at.saturating_sub(BEFORE_WINDOWS), at.saturating_add(AFTER_WINDOWS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::align::Frame;
    use crate::topology::tier::ListenerName;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::net::IpAddr;
    use std::sync::Arc;
    use tailwater_model::window::{EdgeWindow, HostWindow, ListenerWindow, WINDOW_NS, WindowIndex};

    const FIRST: u64 = 1000;

    /// Window by window so many halves of a request in a listener, and in calls along an edge; `None`: the window is missing.
    fn history(halves: &[Option<u64>]) -> History {
        let mut history = History::default();
        for (n, halves) in halves.iter().enumerate() {
            let index = WindowIndex(FIRST + n as u64);
            let mut hosts = BTreeMap::new();
            if let Some(halves) = halves {
                let in_flight_ns = halves * WINDOW_NS / 2;
                let mut window = HostWindow { host: "a".into(), index, ..HostWindow::default() };
                *window.listeners.entry(1).or_default() =
                    ListenerWindow { in_flight_ns, ..ListenerWindow::default() };
                *window.edges.entry(1).or_default() = EdgeWindow { in_flight_ns, ..EdgeWindow::default() };
                hosts.insert("a".to_owned(), Arc::new(window));
            }
            history.push(Frame { index, hosts });
        }
        history
    }

    proptest! {
        /// Looking at the peak first leaves out no queue that grew, and no calls that rose.
        #[test]
        fn a_queue_that_grew_is_found_as_by_looking_at_all_of_it(
            halves in prop::collection::vec(prop::option::weighted(0.9, 0u64..6), 120..160),
            back in 0u64..30,
        ) {
            let (topology, congestion, thresholds) = <(Topology, Congestion, Thresholds)>::default();
            let history = history(&halves);
            let view = View::of(&history, &topology, &congestion, &thresholds);
            let address: IpAddr = [10, 0, 0, 1].into();
            let key = TierKey { host: "a".into(), workload: 1, listener: 0 };
            let tier = Tier {
                workload: String::new(),
                comm: String::new(),
                name: String::new(),
                listeners: vec![ListenerName { id: 1, address, port: 80, path: None, pool: None }],
                workers_limit: None,
            };
            let at = history.next - 1 - back;
            let (from, to) = (at - PEAK_BEFORE, at + PEAK_AFTER);
            let node = view.node(&key, &tier, at, from, to);
            let grown = view.grown(&key, &tier, at, from, to);
            prop_assert_eq!(
                grown.as_ref().map(|grown| (grown.growth, grown.onset)),
                node.growth.map(|growth| (Some(growth), node.onset))
            );
            let link = Link { from: key, edges: vec![1], remote: (address, 80), path: None, to: None, met: false };
            let most = view.calls(&link, at).range(from, to).map(|(_, s)| s.in_flight).fold(0.0, f64::max);
            for least in [1.0, 2.0, 2.5] {
                prop_assert_eq!(view.reaches(&link, least, from, to), most >= least);
            }
        }
    }
}

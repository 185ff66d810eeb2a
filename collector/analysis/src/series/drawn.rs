//! Samples that were drawn before. While the windows around an onset come in, a case's root is looked for in each frame, and each time by the
//! same eight seconds of the same tiers, whose windows lie all over memory. A window does not change, so each is looked at once. Owns what is
//! kept and for how long; what it says is the same as without it.

use super::sample::{
    CallSample, TierSample, UseSample, call_sample, limits_stay, measured_use, quota_of, tier_sample,
    with_quota,
};
use super::{Series, remembered};
use crate::frame::history::{HISTORY_WINDOWS, History};
use crate::topology::tier::Tier;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use tailwater_model::window::{EntityId, Host, HostWindow};

/// Spans of one kind of sample that are kept, each of at most [`HISTORY_WINDOWS`] windows: some 60 kB. What finds no place
/// is drawn anew each time.
const SPANS_MAX: usize = 256;
/// What nobody asked for in so many windows goes (2 s).
const UNUSED_WINDOWS: u64 = 40;

/// Samples by whose they are.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    tiers: Spans<TierSample>,
    calls: Spans<CallSample>,
    uses: Spans<UseSample>,
}

impl Drawn {
    /// A frame was added to the history. `cut`: windows of before are not in it any more, or a host is not.
    pub(crate) fn frame(&self, next: u64, cut: bool) {
        self.tiers.frame(next, cut);
        self.calls.frame(next, cut);
        self.uses.frame(next, cut);
    }

    /// As [`super::sample::tier_series`].
    pub(crate) fn tier(
        &self,
        history: &History,
        host: &str,
        tier: &Tier,
        span: (u64, u64),
    ) -> Series<TierSample> {
        let ids = tier.listeners.iter().map(|l| l.id);
        limits_stay(self.tiers.series(history, host, ids, span, |window| tier_sample(window, tier)))
    }

    /// As [`super::sample::call_series`].
    pub(crate) fn calls(
        &self,
        history: &History,
        host: &str,
        edges: &[EntityId],
        span: (u64, u64),
    ) -> Series<CallSample> {
        self.calls.series(history, host, edges.iter().copied(), span, |window| call_sample(window, edges))
    }

    /// As [`super::sample::use_series`].
    pub(crate) fn uses(
        &self,
        history: &History,
        host: &str,
        workload: EntityId,
        span: (u64, u64),
    ) -> Series<UseSample> {
        let measured = history.measured_under(host, workload);
        let ids = [workload, measured].into_iter();
        let drawn = self.uses.series(history, host, ids, span, |w| measured_use(w, workload, measured));
        with_quota(drawn, quota_of(history, host, workload))
    }
}

/// Of each host the entities whose samples are kept.
#[derive(Debug)]
struct Spans<T> {
    hosts: RefCell<BTreeMap<Host, Vec<Span<T>>>>,
}

impl<T> Default for Spans<T> {
    fn default() -> Self {
        Self { hosts: RefCell::default() }
    }
}

/// Neighbouring windows of some entities together.
#[derive(Debug)]
struct Span<T> {
    ids: Vec<EntityId>,
    first: u64,
    values: VecDeque<Option<T>>,
    /// `History::next` when it was asked for last.
    used: u64,
}

impl<T: Copy> Spans<T> {
    fn frame(&self, next: u64, cut: bool) {
        let mut hosts = self.hosts.borrow_mut();
        if cut {
            hosts.clear();
        } else if next.is_multiple_of(UNUSED_WINDOWS) {
            hosts.retain(|_, spans| {
                spans.retain(|span| span.used.saturating_add(UNUSED_WINDOWS) > next);
                !spans.is_empty()
            });
        }
    }

    /// As [`Series::draw`]; `sample` is the same function of the window and these ids each time.
    fn series(
        &self,
        history: &History,
        host: &str,
        ids: impl Iterator<Item = EntityId> + Clone,
        (first, last): (u64, u64),
        sample: impl Fn(&HostWindow) -> T,
    ) -> Series<T> {
        let next = history.next;
        // What is not remembered any more is not told from here, either.
        let (from, to) = remembered(history, first, last);
        let mut hosts = self.hosts.borrow_mut();
        if from > to || !make_place(&mut hosts, host, ids.clone()) {
            return Series::draw(history, host, first, last, sample);
        }
        let spans = hosts.get_mut(host).into_iter().flatten();
        let Some(span) = spans.into_iter().find(|span| span.ids.iter().copied().eq(ids.clone())) else {
            return Series::draw(history, host, first, last, sample);
        };
        span.used = next;
        span.forget(next.saturating_sub(HISTORY_WINDOWS as u64));
        span.fill(from, to, |index| history.windows_of(host).at(index).map(&sample));
        let values = span.values.range((from - span.first) as usize..=(to - span.first) as usize);
        Series { first: from, values: values.copied().collect() }
    }
}

/// A span of these ids is there, if it need be a new one. False: there is no place for one more.
fn make_place<T>(
    hosts: &mut BTreeMap<Host, Vec<Span<T>>>,
    host: &str,
    ids: impl Iterator<Item = EntityId> + Clone,
) -> bool {
    let known = |spans: &Vec<Span<T>>| spans.iter().any(|span| span.ids.iter().copied().eq(ids.clone()));
    if hosts.get(host).is_some_and(known) {
        return true;
    }
    if hosts.values().map(Vec::len).sum::<usize>() >= SPANS_MAX {
        return false;
    }
    let span = Span { ids: ids.collect(), first: 0, values: VecDeque::new(), used: 0 };
    hosts.entry(host.to_owned()).or_default().push(span);
    true
}

impl<T> Span<T> {
    fn end(&self) -> u64 {
        self.first + self.values.len() as u64
    }

    /// What is not remembered any more is not kept, either.
    fn forget(&mut self, before: u64) {
        while self.first < before && self.values.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// Has all of `[from, to]`, and of what is older only what follows on to it.
    fn fill(&mut self, from: u64, to: u64, at: impl Fn(u64) -> Option<T>) {
        let apart = from > self.end() || to.saturating_add(1) < self.first;
        if self.values.is_empty() || apart {
            self.values.clear();
            self.first = from;
        }
        while self.first > from {
            self.first -= 1;
            self.values.push_front(at(self.first));
        }
        while self.end() <= to {
            self.values.push_back(at(self.end()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::align::Frame;
    use crate::series::sample::{call_series, tier_series, use_series};
    use crate::topology::tier::ListenerName;
    use proptest::prelude::*;
    use std::sync::Arc;
    use tailwater_model::window::{
        EdgeWindow, ListenerWindow, WINDOW_NS, WindowIndex, WorkloadInfo, WorkloadWindow,
    };

    const FIRST: u64 = 1000;

    /// A window in which everything is a number of its own, or none: the host's is missing.
    fn frame(index: u64, n: Option<u32>) -> Frame {
        let mut hosts = BTreeMap::new();
        if let Some(n) = n {
            let mut window =
                HostWindow { host: "a".into(), index: WindowIndex(index), ..HostWindow::default() };
            for id in [1, 2] {
                let many = u64::from(n * id);
                *window.listeners.entry(id).or_default() = ListenerWindow {
                    received: many,
                    limit: if n.is_multiple_of(3) { 128 } else { 0 },
                    ..ListenerWindow::default()
                };
                *window.edges.entry(id).or_default() = EdgeWindow { started: many, ..EdgeWindow::default() };
                *window.workloads.entry(id).or_default() =
                    WorkloadWindow { busy_ns: many, ..WorkloadWindow::default() };
            }
            hosts.insert("a".to_owned(), Arc::new(window));
        }
        Frame { index: WindowIndex(index), hosts }
    }

    fn tier(ids: &[EntityId]) -> Tier {
        let name = |id: &EntityId| ListenerName {
            id: *id,
            address: [0; 4].into(),
            port: 80,
            path: None,
            pool: None,
        };
        Tier {
            workload: String::new(),
            comm: String::new(),
            name: String::new(),
            listeners: ids.iter().map(name).collect(),
            workers_limit: None,
        }
    }

    proptest! {
        /// Frames come, some without the host and some after a gap in time; in between series of all spans are asked for, also such that
        /// reach beyond what is remembered, and of other ids.
        #[test]
        fn what_is_kept_says_what_is_drawn_anew(
            steps in prop::collection::vec(
                (1u64..90, 0u8..12, 0u64..520, 0u64..200, any::<bool>()), 1..24,
            ),
        ) {
            let (mut history, drawn) = (History::default(), Drawn::default());
            history.hosts.entry("a".to_owned()).or_default().workloads.insert(1, WorkloadInfo {
                cpu_quota_ns: WINDOW_NS, ..WorkloadInfo::default()
            });
            let mut index = FIRST;
            for (frames, luck, back, long, both) in steps {
                for n in 0..frames {
                    let jumped = luck == 11 && n == 0;
                    index += if jumped { 77 } else { 1 };
                    let there = (!(index + u64::from(luck)).is_multiple_of(7)).then_some(index as u32 % 50);
                    history.push(frame(index, there));
                    drawn.frame(history.next, jumped);
                }
                let ids: &[EntityId] = if both { &[1, 2] } else { &[1] };
                let first = history.next.saturating_sub(back);
                let last = first + long;
                let tier = tier(ids);
                prop_assert_eq!(
                    drawn.tier(&history, "a", &tier, (first, last)),
                    tier_series(&history, "a", &tier, first, last)
                );
                prop_assert_eq!(
                    drawn.calls(&history, "a", ids, (first, last)),
                    call_series(&history, "a", ids, first, last)
                );
                prop_assert_eq!(
                    drawn.uses(&history, "a", 1, (first, last)),
                    use_series(&history, "a", 1, first, last)
                );
                prop_assert_eq!(drawn.calls(&history, "nobody", ids, (first, last)),
                    call_series(&history, "nobody", ids, first, last));
            }
        }
    }

    #[test]
    fn a_window_is_looked_at_once_and_what_nobody_asks_for_goes() {
        let mut history = History::default();
        for index in FIRST..FIRST + 100 {
            history.push(frame(index, Some(1)));
        }
        let looked = std::cell::Cell::new(0);
        let count = |_: &HostWindow| looked.set(looked.get() + 1);
        let spans = Spans::<()>::default();
        let ask = |history: &History| {
            spans.series(history, "a", [1].into_iter(), (FIRST + 20, FIRST + 200), count);
        };
        ask(&history);
        assert_eq!(looked.get(), 80);
        ask(&history);
        assert_eq!(looked.get(), 80, "none of them twice");
        history.push(frame(FIRST + 100, Some(1)));
        ask(&history);
        assert_eq!(looked.get(), 81, "the new one");
        spans.frame(FIRST + 5 * UNUSED_WINDOWS, false);
        assert!(spans.hosts.borrow().is_empty());
    }

    /// Fails where a span that reaches back beyond what is remembered ends before the windows that it was asked for.
    #[test]
    fn of_a_span_that_is_too_long_the_newest_windows_are_there() {
        let (mut history, spans) = (History::default(), Spans::<u64>::default());
        let last = FIRST + 2 * HISTORY_WINDOWS as u64;
        for index in FIRST..=last {
            history.push(frame(index, Some(1)));
        }
        for back in [0, 1, HISTORY_WINDOWS as u64, 2 * HISTORY_WINDOWS as u64, last] {
            let drawn = Series::draw(&history, "a", last - back, last + 2, |w| w.index.0);
            assert_eq!(drawn.get(last), Some(&last), "{back} windows back");
            assert_eq!(
                drawn,
                spans.series(&history, "a", [1].into_iter(), (last - back, last + 2), |w| w.index.0)
            );
        }
    }

    #[test]
    fn no_more_windows_are_kept_than_are_remembered() {
        let (mut history, spans) = (History::default(), Spans::<u64>::default());
        for index in FIRST..FIRST + 3 * HISTORY_WINDOWS as u64 {
            history.push(frame(index, Some(1)));
            let span = (index.saturating_sub(160), index);
            let series = spans.series(&history, "a", [1].into_iter(), span, |w| w.index.0);
            assert_eq!(series.values.last(), Some(&Some(index)));
            let kept = spans.hosts.borrow().values().flatten().map(|span| span.values.len()).max();
            assert!(kept <= Some(HISTORY_WINDOWS), "{kept:?}");
        }
    }

    #[test]
    fn where_there_is_no_place_for_more_they_are_drawn_anew() {
        let (mut history, spans) = (History::default(), Spans::<u64>::default());
        for index in FIRST..FIRST + 10 {
            history.push(frame(index, Some(1)));
        }
        for id in 0..2 * SPANS_MAX as EntityId {
            let series = spans.series(&history, "a", [id].into_iter(), (FIRST, FIRST + 9), |w| w.index.0);
            assert_eq!(series.values.len(), 10);
        }
        let kept: usize = spans.hosts.borrow().values().map(Vec::len).sum();
        assert_eq!(kept, SPANS_MAX);
    }
}

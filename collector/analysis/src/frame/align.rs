//! Windows of many hosts in, frames in order out. Owns the watermark, lateness, duplicates and windows from the future; knows no
//! value inside a window.
//!
//! What a frame holds depends only on which windows arrived within the lateness bound, never on their order: until the first
//! frame left by the bound none leaves early, and after that one leaves early only when no host that spoke lately can add to it. Of a host
//! that comes back after a silence the first window may find its frame gone.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use tailwater_model::window::{Host, HostWindow, WINDOW_NS, WindowIndex};

/// Hosts that a pipeline keeps apart: those of [`FORGET_WINDOWS`], as many as the collector knows by name at all.
const HOSTS_MAX: usize = 4096;
/// Window indices that may wait, 12.8 s.
const PENDING_MAX: usize = 256;
/// A window this far ahead of the collector's clock is not believed, ns. Clock errors that can be worked with are far smaller.
const FUTURE_NS: u64 = 2_000_000_000;
/// Frames do not wait for a host of which no window came for so long by the collector's clock, ns (2 s): whoever is down, or cut off, would delay
/// what is told of all others to the bound of lateness. With its next window they wait for it again. How old that is does not matter: after an
/// absence hosts catch up one after the other.
const SILENT_NS: u64 = 2_000_000_000;
/// A host is not known any more after this long without a window, in windows (60 s).
pub(crate) const FORGET_WINDOWS: u64 = 1200;
/// Frames without a single window that are emitted one by one; a longer silence is jumped over (20 s).
const SILENCE_WINDOWS: u64 = 400;

/// The windows of all hosts for one index. A host that is not in it was not heard in time.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Frame {
    pub(crate) index: WindowIndex,
    pub(crate) hosts: BTreeMap<Host, Arc<HostWindow>>,
}

/// What became of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Kept,
    /// Already there.
    Duplicate,
    /// Its frame has left.
    Late,
    /// Beyond [`FUTURE_NS`], or more waiting than [`PENDING_MAX`].
    Future,
    /// More than [`HOSTS_MAX`] hosts.
    TooManyHosts,
}

#[derive(Debug)]
pub(crate) struct Aligner {
    lateness_ns: u64,
    clock_unix_ns: Option<u64>,
    /// Index of the next frame, once the first has left.
    next: Option<u64>,
    pending: BTreeMap<u64, BTreeMap<Host, Arc<HostWindow>>>,
    hosts: BTreeMap<Host, Known>,
    /// How many of them are waited for.
    awaited: usize,
}

#[derive(Debug)]
struct Known {
    /// Frames wait for it.
    awaited: bool,
    /// When a window of it came last, by the collector's clock; before the first, when it was announced. `None`: there was no clock yet.
    heard_unix_ns: Option<u64>,
    /// Index of the frame from which its silence counts.
    since: Option<u64>,
    /// Highest index of a window that it sent.
    newest: Option<u64>,
}

impl Aligner {
    pub(crate) fn new(lateness_ns: u64) -> Self {
        Self {
            lateness_ns,
            clock_unix_ns: None,
            next: None,
            pending: BTreeMap::new(),
            hosts: BTreeMap::new(),
            awaited: 0,
        }
    }

    /// A host said hello: frames wait for it.
    pub(crate) fn announce(&mut self, host: &str) -> Taken {
        if self.hosts.contains_key(host) {
            return Taken::Duplicate;
        }
        if self.hosts.len() >= HOSTS_MAX {
            return Taken::TooManyHosts;
        }
        self.meet(host.to_owned(), None);
        Taken::Kept
    }

    fn meet(&mut self, host: Host, newest: Option<u64>) {
        let heard_unix_ns = self.clock_unix_ns;
        self.hosts.insert(host, Known { awaited: true, heard_unix_ns, since: None, newest });
        self.awaited += 1;
    }

    /// The collector's clock; it never goes back.
    pub(crate) fn tick(&mut self, unix_ns: u64) {
        if self.clock_unix_ns.is_none() {
            let limit = future_limit(unix_ns);
            self.pending.retain(|index, _| *index <= limit);
        }
        self.clock_unix_ns = Some(self.clock_unix_ns.map_or(unix_ns, |now| now.max(unix_ns)));
    }

    pub(crate) fn take(&mut self, window: Arc<HostWindow>) -> Taken {
        let index = window.index.0;
        if self.next.is_some_and(|next| index < next) {
            // Nobody had waited for it, and so its frame is gone; where it came within the bound, the next one finds its own.
            let in_time = |now: u64| window.index.end_unix_ns() > now.saturating_sub(self.lateness_ns);
            let heard = !self.clock_unix_ns.is_some_and(in_time) || self.hear(&window.host, index);
            return if heard { Taken::Late } else { Taken::TooManyHosts };
        }
        if self.clock_unix_ns.is_some_and(|now| index > future_limit(now)) {
            return Taken::Future;
        }
        if !self.pending.contains_key(&index) && self.pending.len() >= PENDING_MAX {
            return Taken::Future;
        }
        if !self.hear(&window.host, index) {
            return Taken::TooManyHosts;
        }
        match self.pending.entry(index).or_default().entry(window.host.clone()) {
            Entry::Occupied(_) => Taken::Duplicate,
            Entry::Vacant(place) => {
                place.insert(window);
                Taken::Kept
            }
        }
    }

    /// A host sent this window: frames wait for it. `false`: it is one too many.
    fn hear(&mut self, host: &str, index: u64) -> bool {
        if let Some(known) = self.hosts.get_mut(host) {
            known.newest = known.newest.max(Some(index));
            known.heard_unix_ns = self.clock_unix_ns;
            self.awaited += usize::from(!std::mem::replace(&mut known.awaited, true));
        } else if self.hosts.len() < HOSTS_MAX {
            self.meet(host.to_owned(), Some(index));
        } else {
            return false;
        }
        true
    }

    /// The highest index of a window that a host sent.
    pub(crate) fn newest(&self, host: &str) -> Option<u64> {
        self.hosts.get(host)?.newest
    }

    /// The next frame, if it is complete or its time is over. Call until `None`.
    pub(crate) fn ready(&mut self) -> Option<Frame> {
        let watermark = self.clock_unix_ns?.saturating_sub(self.lateness_ns);
        let Some(next) = self.next else {
            let first = *self.pending.keys().next()?;
            return (WindowIndex(first).end_unix_ns() <= watermark).then(|| self.emit(first));
        };
        if self.hosts.is_empty() {
            return None;
        }
        let complete = self.pending.get(&next).is_some_and(|have| have.len() >= self.awaited);
        if complete {
            return Some(self.emit(next));
        }
        if WindowIndex(next).end_unix_ns() > watermark {
            return None;
        }
        let over = (watermark / WINDOW_NS).saturating_sub(1);
        let until = self.pending.keys().next().map_or(over, |first| (*first).min(over));
        let silent = until.saturating_sub(next) > SILENCE_WINDOWS;
        Some(self.emit(if silent { until } else { next }))
    }

    /// Every frame that still waits, whatever the clock says.
    pub(crate) fn flush(&mut self) -> Option<Frame> {
        let first = *self.pending.keys().next()?;
        let next = self.next.unwrap_or(first);
        Some(self.emit(if first.saturating_sub(next) > SILENCE_WINDOWS { first } else { next }))
    }

    fn emit(&mut self, index: u64) -> Frame {
        self.next = Some(index.saturating_add(1));
        self.awaited = 0;
        let now = self.clock_unix_ns.unwrap_or(0);
        self.hosts.retain(|_, known| {
            let since = known.newest.max(known.since).unwrap_or(index);
            known.since = Some(since);
            let heard = *known.heard_unix_ns.get_or_insert(now);
            // What waits of it is of frames to come: it is in them, whenever it came.
            known.awaited = now.saturating_sub(heard) <= SILENT_NS || known.newest > Some(index);
            let stays = index.saturating_sub(since) <= FORGET_WINDOWS;
            self.awaited += usize::from(known.awaited && stays);
            stays
        });
        Frame { index: WindowIndex(index), hosts: self.pending.remove(&index).unwrap_or_default() }
    }
}

fn future_limit(now_unix_ns: u64) -> u64 {
    now_unix_ns.saturating_add(FUTURE_NS) / WINDOW_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = 1000;

    fn window(host: &str, index: u64) -> Arc<HostWindow> {
        Arc::new(HostWindow { host: host.to_owned(), index: WindowIndex(index), ..HostWindow::default() })
    }

    /// Two hosts, started: frame `FIRST` has left.
    fn started() -> Aligner {
        let mut aligner = Aligner::new(400_000_000);
        aligner.announce("a");
        aligner.announce("b");
        aligner.tick(FIRST * WINDOW_NS);
        assert_eq!(aligner.take(window("a", FIRST)), Taken::Kept);
        assert_eq!(aligner.take(window("b", FIRST)), Taken::Kept);
        assert_eq!(aligner.ready(), None, "the first frame leaves by the bound only");
        aligner.tick((FIRST + 9) * WINDOW_NS);
        assert_eq!(aligner.ready().unwrap().index.0, FIRST);
        aligner
    }

    #[test]
    fn a_frame_leaves_when_every_host_reported() {
        let mut aligner = started();
        aligner.take(window("b", FIRST + 1));
        assert_eq!(aligner.ready(), None);
        aligner.take(window("a", FIRST + 1));
        assert_eq!(aligner.ready().unwrap().hosts.len(), 2);
    }

    #[test]
    fn hosts_that_come_and_go_take_no_place_for_ever() {
        let mut aligner = Aligner::new(0);
        for n in 0..3 * HOSTS_MAX as u64 {
            // Each lives for two minutes, and two begin every second.
            let index = FIRST + n * 10;
            aligner.tick((index + 1) * WINDOW_NS);
            assert_eq!(aligner.take(window(&format!("host-{n}"), index)), Taken::Kept, "host {n}");
            while aligner.ready().is_some() {}
            assert!(aligner.hosts.len() <= 1 + FORGET_WINDOWS as usize / 10 + 1, "{}", aligner.hosts.len());
        }
    }

    #[test]
    fn a_missing_host_is_waited_for_until_the_bound() {
        let mut aligner = started();
        aligner.take(window("a", FIRST + 1));
        aligner.tick((FIRST + 10) * WINDOW_NS - 1);
        assert_eq!(aligner.ready(), None);
        aligner.tick((FIRST + 10) * WINDOW_NS);
        let frame = aligner.ready().unwrap();
        assert_eq!(frame.hosts.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(aligner.take(window("b", FIRST + 1)), Taken::Late);
    }

    #[test]
    fn the_first_of_two_equal_windows_counts() {
        let mut aligner = started();
        assert_eq!(aligner.take(window("a", FIRST + 1)), Taken::Kept);
        assert_eq!(aligner.take(window("a", FIRST + 1)), Taken::Duplicate);
    }

    #[test]
    fn windows_from_the_future_are_not_believed() {
        let mut aligner = started();
        assert_eq!(aligner.take(window("a", u64::MAX)), Taken::Future);
        assert_eq!(aligner.take(window("a", FIRST + 9 + 41)), Taken::Future);
        assert_eq!(aligner.take(window("a", FIRST + 9 + 39)), Taken::Kept);
        let mut early = Aligner::new(0);
        early.take(window("a", u64::MAX));
        early.tick(WINDOW_NS * FIRST);
        assert_eq!(early.ready(), None);
        assert_eq!(early.flush(), None, "a window ahead of the first clock is dropped by it");
    }

    #[test]
    fn a_long_silence_is_jumped_over() {
        let mut aligner = started();
        aligner.tick((FIRST + 100_000) * WINDOW_NS);
        let mut frames = 0;
        while aligner.ready().is_some() {
            frames += 1;
        }
        assert!(frames < 20, "{frames}");
    }

    #[test]
    fn without_a_clock_windows_wait_in_bounds() {
        let mut aligner = Aligner::new(0);
        for index in 0..10_000 {
            aligner.take(window("a", index));
        }
        assert!(aligner.pending.len() <= PENDING_MAX);
        assert_eq!(aligner.ready(), None);
        assert_eq!(aligner.flush().unwrap().index.0, 0);
    }

    /// `a` alone speaks, in so many windows that leave by the bound; then one more of it. `b` says nothing, or its window of that time comes first.
    fn after_silence(windows: u64, b_returns: bool) -> Aligner {
        let mut aligner = started();
        for index in FIRST + 1..=FIRST + windows {
            assert_eq!(aligner.take(window("a", index)), Taken::Kept);
            aligner.tick((index + 9) * WINDOW_NS);
            while aligner.ready().is_some() {}
        }
        if b_returns {
            assert_eq!(aligner.take(window("b", FIRST + windows + 2)), Taken::Kept);
        }
        aligner.take(window("a", FIRST + windows + 1));
        aligner
    }

    #[test]
    fn a_host_is_waited_for_two_seconds_after_its_last_window() {
        assert_eq!(after_silence(30, false).ready(), None, "1.5 s");
        let frame = after_silence(50, false).ready().expect("nobody else is to speak");
        assert_eq!(frame.hosts.len(), 1, "2.5 s");
    }

    #[test]
    fn a_host_that_comes_back_and_always_speaks_last_is_waited_for_again() {
        let mut aligner = after_silence(50, false);
        while aligner.ready().is_some() {}
        // Its first window finds its frame gone, as `a` alone had completed it.
        let returned = FIRST + 51;
        assert_eq!(aligner.take(window("b", returned)), Taken::Late);
        assert_eq!(aligner.take(window("a", returned + 1)), Taken::Kept);
        assert_eq!(aligner.ready(), None, "b is waited for");
        assert_eq!(aligner.take(window("b", returned + 1)), Taken::Kept);
        assert_eq!(aligner.ready().expect("both are there").hosts.len(), 2);
    }

    #[test]
    fn windows_that_come_far_too_late_make_nobody_wait() {
        let mut aligner = after_silence(50, false);
        while aligner.ready().is_some() {}
        assert_eq!(aligner.take(window("b", FIRST + 20)), Taken::Late);
        assert_eq!(aligner.take(window("a", FIRST + 52)), Taken::Kept);
        assert_eq!(aligner.ready().expect("a alone completes it").hosts.len(), 1);
    }

    #[test]
    fn a_host_is_known_for_a_minute_after_its_last_window() {
        assert!(after_silence(50 * 20, false).newest("b").is_some(), "50 s");
        assert!(after_silence(70 * 20, false).newest("b").is_none(), "70 s");
    }

    #[test]
    fn hosts_that_catch_up_one_after_the_other_are_in_one_frame() {
        let aligner = started();
        // Five seconds of `a`, within the bound, and then those of `b`.
        let mut aligner = Aligner { lateness_ns: 10_000_000_000, ..aligner };
        aligner.tick((FIRST + 101) * WINDOW_NS);
        (1..=100).for_each(|n| assert_eq!(aligner.take(window("a", FIRST + n)), Taken::Kept));
        assert_eq!(aligner.ready(), None);
        for n in 1..=100 {
            assert_eq!(aligner.take(window("b", FIRST + n)), Taken::Kept);
            assert_eq!(aligner.ready().unwrap().hosts.len(), 2);
        }
    }

    #[test]
    fn a_host_that_comes_back_is_waited_for_again() {
        for seconds in [3, 30, 90] {
            let windows = seconds * 20;
            let mut aligner = after_silence(windows, true);
            assert_eq!(aligner.ready(), None, "after {seconds} s");
            assert_eq!(aligner.take(window("b", FIRST + windows + 1)), Taken::Kept);
            assert_eq!(aligner.ready().unwrap().hosts.len(), 2);
            assert_eq!(aligner.ready(), None, "the next one has that of `b` alone");
            aligner.take(window("a", FIRST + windows + 2));
            assert_eq!(aligner.ready().unwrap().hosts.len(), 2);
        }
    }

    #[test]
    fn a_silence_of_fifteen_seconds_is_told_frame_by_frame_and_one_of_half_a_minute_is_not() {
        let frames = |seconds: u64| {
            let mut aligner = started();
            aligner.tick((FIRST + 9 + seconds * 20) * WINDOW_NS);
            std::iter::from_fn(|| aligner.ready()).count()
        };
        assert_eq!(frames(15), 15 * 20);
        assert_eq!(frames(30), 1);
    }
}

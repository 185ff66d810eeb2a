//! What keeps drops alive when their trigger is over: clients that were dropped come again a second later, all of them together with those
//! who come for the first time are more than the tier takes, and so as many are dropped again. A metastable failure (Bronson et al.,
//! "Metastable Failures in Distributed Systems", HotOS '21; Huang et al., OSDI '22). Owns the account of first attempts and retries of one
//! listener, and the judgement; knows nothing of what the trigger was.

use crate::config::RETRY_WINDOWS;
use crate::series::quantile;
use std::collections::VecDeque;
use tailwater_model::window::WINDOW_NS;

/// As an index into windows.
const RETRY: usize = RETRY_WINDOWS as usize;
/// Windows that are judged: the last ten seconds, so that an overload that changes is told as it is now.
pub(crate) const SPAN_WINDOWS: usize = 200;
/// Drops must go on for this long after the trigger (4 s): the retries of a single stall come after 1, 2, 3 and 4 s (Linux 6.5 and later);
/// what they overflow is its echo, and passes.
const OVER_WINDOWS: u64 = 80;
/// No drop for this long is the end of it (2.5 s), as for an incident.
pub(crate) const QUIET_WINDOWS: u64 = 50;
/// Windows that are kept for that.
const KEPT_WINDOWS: usize = SPAN_WINDOWS + RETRY + 1 + QUIET_WINDOWS as usize;
/// Part of the seconds in question in which something must have been dropped.
const DROPPING_PART: f64 = 0.7;
/// Part of the attempts that must be retries: with fewer, those who come for the first time overflow the queue by themselves.
pub(crate) const SHARE_MIN: f64 = 0.2;
/// First attempts may exceed what was served, before or meanwhile, by this much: rates over some seconds vary.
const WITHIN: f64 = 1.15;
/// The way out is told for at least this long, s.
const RELIEF_MIN_S: f64 = 5.0;
const WINDOWS_PER_SECOND: f64 = 1e9 / WINDOW_NS as f64;

/// One listener's attempts in one window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Attempts {
    /// Completed handshakes, or requests on kept connections, whichever is more.
    pub(crate) arrivals: f64,
    /// Dropped SYNs.
    pub(crate) syns: f64,
    /// Dropped last ACKs.
    pub(crate) acks: f64,
    /// Of those, of a connection that was dropped before.
    pub(crate) repeated: f64,
    pub(crate) answered: f64,
}

impl Attempts {
    fn all(&self) -> f64 {
        self.arrivals + self.syns + self.acks
    }

    fn dropped(&self) -> f64 {
        self.syns + self.acks
    }

    /// Connections that wait for their next try.
    fn waiting(&self) -> f64 {
        self.syns + (self.acks - self.repeated).max(0.0)
    }
}

/// Attempts at one listener, window by window.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    /// Index after the newest.
    next: u64,
    /// `None`: the window did not come.
    windows: VecDeque<Option<Attempts>>,
}

/// That drops are kept alive, in numbers. Rates are per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Kept {
    pub(crate) share: f64,
    pub(crate) attempts: f64,
    pub(crate) first: f64,
    pub(crate) capacity: f64,
    /// Attempts that were dropped and come again, at the worst.
    pub(crate) waiting: f64,
    /// Last window with a drop.
    pub(crate) last: u64,
}

/// What first attempts are held against, a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Served {
    /// What came before it began, and was served.
    Before(f64),
    /// What is answered while it lasts.
    Meanwhile,
    /// Whichever is more.
    Either(f64),
}

/// What ends it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WayOut {
    pub(crate) below: f64,
    pub(crate) for_s: u64,
    pub(crate) queue: u64,
}

impl Account {
    /// Takes window `now`; a window that was left out did not come.
    pub(crate) fn take(&mut self, now: u64, attempts: Option<Attempts>) {
        if self.windows.is_empty() || now > self.next.saturating_add(SPAN_WINDOWS as u64) {
            self.windows.clear();
            self.next = now;
        }
        while self.next < now {
            self.push(None);
        }
        if self.next == now {
            self.push(attempts);
        }
    }

    fn push(&mut self, attempts: Option<Attempts>) {
        self.windows.push_back(attempts);
        self.next = self.next.saturating_add(1);
        // Those of the second before are asked for what comes again, and the last drop may be some seconds ago.
        while self.windows.len() > KEPT_WINDOWS {
            self.windows.pop_front();
        }
    }

    fn get(&self, index: usize) -> Option<&Attempts> {
        self.windows.get(index)?.as_ref()
    }

    /// Of the attempts of the window at `index`, those that were dropped before: as many as were dropped a second earlier. A last ACK
    /// comes again sooner and more often, which makes no difference over some seconds.
    fn again(&self, index: usize) -> f64 {
        let dropped =
            |back: usize| index.checked_sub(back).and_then(|i| self.get(i)).map_or(0.0, Attempts::dropped);
        let Some(here) = self.get(index) else { return 0.0 };
        f64::midpoint(dropped(RETRY), dropped(RETRY + 1)).min(here.all())
    }

    /// Whether retries keep it dropping, when what triggered that was over with window `over`.
    pub(crate) fn judge(&self, over: u64, served: Served) -> Option<Kept> {
        let first_kept = self.next.saturating_sub(self.windows.len() as u64);
        let newest = self.next.checked_sub(1)?;
        if newest < over.saturating_add(OVER_WINDOWS) {
            return None;
        }
        let dropped = |i: &usize| self.get(*i).is_some_and(|a| a.dropped() > 0.0);
        let last = (0..self.windows.len()).rev().find(dropped)?;
        let last = first_kept.saturating_add(last as u64);
        if last < over.saturating_add(OVER_WINDOWS) || newest.saturating_sub(last) > QUIET_WINDOWS {
            return None;
        }
        // To the last drop: the calm after it is no part of it.
        let from = over.max(last.saturating_sub(SPAN_WINDOWS as u64)).saturating_add(1).max(first_kept);
        let span = (from..=last).map(|w| w.saturating_sub(first_kept) as usize);
        let seen: Vec<usize> = span.filter(|i| self.get(*i).is_some()).collect();
        let here =
            |f: &dyn Fn(&Attempts) -> f64| -> f64 { seen.iter().filter_map(|i| self.get(*i)).map(f).sum() };
        let windows = seen.len() as f64;
        // So many windows are asked for, and not only so much time: those that are missing are no evidence.
        if (seen.len() as u64) < OVER_WINDOWS {
            return None;
        }
        let seconds: Vec<&[usize]> = seen.chunks(RETRY).collect();
        let dropping = seconds.iter().filter(|s| s.iter().any(dropped)).count();
        let all = here(&Attempts::all);
        let again: f64 = seen.iter().map(|i| self.again(*i)).sum();
        let share = again / all.max(1.0);
        // Of the seconds, the one in the middle: those whom the trigger held back come in the first of them.
        let fresh = |second: &&[usize]| {
            let of = |i: &usize| self.get(*i).map_or(0.0, Attempts::all) - self.again(*i);
            second.iter().map(of).sum::<f64>() / second.len().max(1) as f64
        };
        let first = quantile(seconds.iter().map(fresh), 0.5);
        let capacity = here(&|a| a.answered) / windows;
        let served = match served {
            Served::Before(usual) => usual,
            Served::Meanwhile => capacity,
            Served::Either(usual) => capacity.max(usual),
        };
        let keeps = (dropping as f64) >= DROPPING_PART * seconds.len() as f64
            && share >= SHARE_MIN
            && first <= WITHIN * served;
        let waiting = seconds
            .iter()
            .map(|s| s.iter().filter_map(|i| self.get(*i)).map(Attempts::waiting).sum::<f64>())
            .fold(0.0, f64::max);
        keeps.then_some(Kept {
            share,
            attempts: all / windows * WINDOWS_PER_SECOND,
            first: first * WINDOWS_PER_SECOND,
            capacity: capacity * WINDOWS_PER_SECOND,
            waiting,
            last,
        })
    }
}

impl Kept {
    /// Those who wait to come again are served beside those who come: so much less must come, for so long. Or they all find room.
    pub(crate) fn way_out(&self, queue_limit: u32) -> WayOut {
        // Half of the capacity for those who wait, at most: less is asked for longer.
        let for_s = (2.0 * self.waiting / self.capacity.max(1.0)).max(RELIEF_MIN_S).ceil();
        WayOut {
            below: (self.capacity.min(self.first) - self.waiting / for_s).max(0.0).floor(),
            for_s: for_s as u64,
            queue: u64::from(queue_limit).saturating_add(self.waiting.ceil() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows from 1000 on; what `of` says of each, and the judgement at the end, the trigger over at 1020.
    fn judge(windows: u64, usual: f64, of: impl Fn(u64) -> Attempts) -> Option<Kept> {
        let mut account = Account::default();
        (0..windows).for_each(|w| account.take(1000 + w, Some(of(w))));
        account.judge(1020, Served::Either(usual))
    }

    /// 30 come a window for the first time and 30 are served; 20 of those that come again are dropped once more.
    fn kept(_: u64) -> Attempts {
        Attempts { arrivals: 30.0, syns: 20.0, answered: 30.0, ..Attempts::default() }
    }

    #[test]
    fn retries_keep_a_queue_full_that_first_attempts_would_not() {
        let found = judge(300, 30.0, kept).unwrap();
        assert!((found.share - 0.4).abs() < 0.01, "{found:?}");
        assert!((found.first - 600.0).abs() < 10.0 && (found.capacity - 600.0).abs() < 1.0, "{found:?}");
        assert_eq!((found.last, found.waiting), (1299, 400.0));
        let out = found.way_out(128);
        // 400 wait: in 5 s they are served if 80 a second fewer come.
        assert_eq!((out.below, out.for_s, out.queue), (520.0, 5, 528));
    }

    #[test]
    fn more_first_attempts_than_are_served_is_an_overload_of_another_kind() {
        // 60 come a window for the first time where 30 are served: each second 30 more of them come again.
        let more = |w: u64| Attempts {
            arrivals: 30.0,
            syns: 30.0 * (w / 20 + 1) as f64,
            answered: 30.0,
            ..Attempts::default()
        };
        assert_eq!(judge(300, 30.0, more), None);
        assert!(judge(300, 60.0, more).is_some(), "it served as many before");
    }

    #[test]
    fn an_echo_and_what_is_over_are_not_kept_alive() {
        assert_eq!(judge(75, 30.0, kept), None, "the trigger is hardly over");
        let quiet = |w: u64| if w < 200 { kept(w) } else { Attempts { syns: 0.0, ..kept(w) } };
        assert_eq!(judge(300, 30.0, quiet), None);
        let few = |w: u64| Attempts { syns: if w.is_multiple_of(20) { 1.0 } else { 0.0 }, ..kept(w) };
        assert_eq!(judge(300, 30.0, few), None, "hardly anybody comes again");
    }

    #[test]
    fn missing_windows_are_not_zeros_and_memory_is_bounded() {
        let mut account = Account::default();
        for w in (0..5000).filter(|w| w % 10 != 0) {
            account.take(1000 + w, Some(kept(w)));
        }
        let found = account.judge(1020, Served::Meanwhile).unwrap();
        assert!((found.capacity - 600.0).abs() < 1.0, "{found:?}");
        assert!(account.windows.len() <= KEPT_WINDOWS);
        account.take(9_000_000, Some(kept(0)));
        assert_eq!(account.windows.len(), 1);
    }

    #[test]
    fn windows_that_did_not_come_are_no_evidence_for_four_seconds_of_it() {
        let judged = |every: u64| {
            let mut account = Account::default();
            (0..110).filter(|w| w % every != 0).for_each(|w| account.take(1000 + w, Some(kept(w))));
            account.judge(1020, Served::Either(30.0)).is_some()
        };
        assert!(judged(1000));
        assert!(!judged(3), "60 of 89 came");
    }
}

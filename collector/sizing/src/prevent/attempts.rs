//! First attempts to connect, window by window: what came, less what had been dropped before and came again. Owns what comes again and when; knows no
//! tier and no replay.

use super::chain::{Retries, WINDOW_S};
use std::collections::{BTreeMap, VecDeque};

/// What is tried again and did not come in its window comes within so many.
const RETRY_SPREAD: usize = 3;
/// Windows from one time to the next that data comes whose connection's last ACK was dropped: 0.2 s, doubling.
const LAST_ACK_AGAIN: [usize; 3] = [4, 8, 16];

/// What came to an accept queue in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Came {
    /// Connections that were let in.
    pub arrivals: u64,
    /// SYNs that were dropped.
    pub drops_syn: u64,
    /// Last ACKs of handshakes that were dropped.
    pub drops_final_ack: u64,
    /// Of those, the ones that had been dropped before.
    pub drops_repeated: u64,
}

impl Came {
    /// Attempts that were dropped: SYNs, and last ACKs, of which one that comes again and again is one.
    fn dropped(&self) -> u64 {
        self.drops_syn.saturating_add(self.drops_final_ack.saturating_sub(self.drops_repeated))
    }
}

/// Tells first attempts from those that come again as [`Retries`] says.
#[derive(Debug)]
pub struct FirstAttempts {
    syns: Syns,
    acks: LastAcks,
}

impl FirstAttempts {
    /// Nothing came yet.
    #[must_use]
    pub fn new(retries: Retries) -> Self {
        Self { syns: Syns::new(retries), acks: LastAcks::default() }
    }

    /// What it takes in memory, bytes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let times = self.syns.after.len() * size_of::<u64>() + size_of::<Vec<u64>>();
        (self.syns.due.len() + self.syns.late.len()) * (times + size_of::<usize>())
            + self.acks.due.len() * size_of::<[u64; LAST_ACK_AGAIN.len() + 1]>()
            + size_of::<Self>()
    }

    /// How many came for the first time in this window, which is later than all before.
    pub fn next(&mut self, window: usize, came: &Came) -> u64 {
        let all = came.arrivals.saturating_add(came.dropped());
        let all = all.saturating_sub(self.acks.let_in(window, came));
        self.syns.first_of(window, all, came.drops_syn)
    }
}

/// Clients whose SYN was dropped: it comes again, and may be dropped again.
#[derive(Debug)]
struct Syns {
    /// Windows from each time that a SYN is sent to the next.
    after: Vec<usize>,
    /// By the window in which they come: how many for the first, second … further time.
    due: BTreeMap<usize, Vec<u64>>,
    /// Those that were due in this window and the last ones, and did not come yet.
    late: VecDeque<Vec<u64>>,
    /// The window before this one that was told of.
    last: Option<usize>,
}

impl Syns {
    fn new(retries: Retries) -> Self {
        let windows = |s: &f64| (s / WINDOW_S).round() as usize;
        let mut before = 0;
        let after = retries.times_s().iter().map(windows).map(|at| at - std::mem::replace(&mut before, at));
        Self { after: after.collect(), due: BTreeMap::new(), late: VecDeque::new(), last: None }
    }

    /// How many of those that `came` in this window came for the first time; `dropped`: SYNs of all of them.
    fn first_of(&mut self, window: usize, came: u64, dropped: u64) -> u64 {
        let none = vec![0; self.after.len()];
        // In a window that nobody told of nothing came: who was due in it is late, as far as anybody is waited for.
        let oldest = window.saturating_sub(RETRY_SPREAD - 1);
        let from = self.last.map_or(window, |last| oldest.max(last.saturating_add(1)));
        for at in from..=window {
            self.late.push_front(self.due.remove(&at).unwrap_or_else(|| none.clone()));
        }
        self.late.truncate(RETRY_SPREAD);
        self.due = self.due.split_off(&window);
        self.last = Some(window);
        let (mut first, mut again) = (came, none);
        for late in self.late.iter_mut().rev() {
            for (waits, again) in late.iter_mut().zip(&mut again) {
                let these = first.min(*waits);
                first -= these;
                *waits -= these;
                *again = again.saturating_add(these);
            }
        }
        // Whoever comes to a full queue is dropped, for whichever time it comes.
        let mut dropped = dropped.min(came);
        for (time, n) in again.iter().enumerate().rev() {
            let these =
                share(dropped, *n, again[..=time].iter().fold(first, |sum, n| sum.saturating_add(*n)));
            dropped -= these;
            self.comes_again(window, time + 1, these);
        }
        self.comes_again(window, 0, dropped);
        first
    }

    fn comes_again(&mut self, window: usize, time: usize, n: u64) {
        if let Some(after) = self.after.get(time).filter(|_| n > 0) {
            let times =
                self.due.entry(window.saturating_add(*after)).or_insert_with(|| vec![0; self.after.len()]);
            times[time] = times[time].saturating_add(n);
        }
    }
}

/// Of `dropped` out of `all`, how many were of these `n`.
fn share(dropped: u64, n: u64, all: u64) -> u64 {
    let of = u128::from(dropped) * u128::from(n) / u128::from(all.max(1));
    u64::try_from(of).unwrap_or(u64::MAX)
}

/// Clients whose last ACK was dropped: they believe that they are connected, and their data comes again after 0.2, 0.6 and 1.4 s.
#[derive(Debug, Default)]
struct LastAcks {
    /// By the window in which it comes: how many, and how often it was dropped.
    due: BTreeMap<usize, [u64; LAST_ACK_AGAIN.len()]>,
}

impl LastAcks {
    /// How many of them this window let in.
    fn let_in(&mut self, window: usize, came: &Came) -> u64 {
        self.due = self.due.split_off(&window);
        let mut due = self.due.remove(&window).unwrap_or_default();
        let in_all = due.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
        let mut again = came.drops_repeated.min(in_all);
        let dropped_again = again;
        for (times, waits) in due.iter_mut().enumerate() {
            let these = again.min(*waits);
            again -= these;
            self.comes_again(window, times + 1, these);
        }
        let new = came.drops_final_ack.saturating_sub(came.drops_repeated);
        self.comes_again(window, 0, new);
        in_all - dropped_again
    }

    fn comes_again(&mut self, window: usize, time: usize, n: u64) {
        if let Some(after) = LAST_ACK_AGAIN.get(time).filter(|_| n > 0) {
            let times = self.due.entry(window.saturating_add(*after)).or_default();
            times[time] = times[time].saturating_add(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First attempts of windows in which so many came, of whom so many were dropped.
    fn first(retries: Retries, came_and_dropped: impl Fn(usize) -> (u64, u64)) -> Vec<u64> {
        let mut syns = Syns::new(retries);
        (0..200)
            .map(|n| {
                let (came, dropped) = came_and_dropped(n);
                syns.first_of(n, came, dropped)
            })
            .collect()
    }

    #[test]
    fn what_was_dropped_once_comes_again_a_second_later_by_either_schedule() {
        for retries in Retries::ALL {
            let came = |n| match n {
                5 => (10, 4),
                25 => (14, 0),
                _ => (10, 0),
            };
            assert_eq!(first(retries, came), vec![10; 200], "{retries:?}");
        }
    }

    #[test]
    fn what_was_dropped_twice_comes_after_one_second_more_or_two() {
        // All of the windows 5 and 25 are dropped, so 10 of them twice; those that were dropped once come in window 45.
        let came = |again: [usize; 2]| {
            move |n: usize| match n {
                5 => (10, 10),
                25 => (20, 20),
                _ => (10 + 10 * again.iter().filter(|at| **at == n).count() as u64, 0),
            }
        };
        let (doubling, linear) = (came([45, 65]), came([45, 45]));
        assert_eq!(first(Retries::Doubling, doubling), vec![10; 200]);
        assert_eq!(first(Retries::Linear, linear), vec![10; 200]);
        assert_ne!(first(Retries::Linear, doubling), vec![10; 200]);
        assert_ne!(first(Retries::Doubling, linear), vec![10; 200]);
    }

    #[test]
    fn windows_that_nobody_told_of_are_windows_in_which_nobody_came() {
        // All of window 5 is dropped, and comes again in window 25 or in one after it; the windows between are told of, or not.
        let told = |all: bool, late: usize| {
            let mut syns = Syns::new(Retries::Linear);
            let first = (0..60).filter(|n| all || [5, 25 + late].contains(n)).map(|n| {
                let came = if n == 5 || n == 25 + late { 10 } else { 0 };
                syns.first_of(n, came, if n == 5 { 10 } else { 0 })
            });
            first.sum::<u64>()
        };
        for late in 0..6 {
            assert_eq!(told(false, late), told(true, late), "{late} windows late");
        }
        assert_eq!((told(false, 2), told(false, 3)), (10, 20));
        // What did not come for an hour is waited for no more.
        let mut syns = Syns::new(Retries::Linear);
        syns.first_of(5, 10, 10);
        assert_eq!((syns.first_of(25, 0, 0), syns.first_of(72_000, 10, 0)), (0, 10));
        assert_eq!(syns.first_of(usize::MAX, u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn who_is_late_is_known_for_three_windows() {
        let came = |late: usize| {
            move |n: usize| {
                if n == 5 {
                    (10, 10)
                } else if n == late {
                    (20, 0)
                } else {
                    (10, 0)
                }
            }
        };
        // In windows 25 and on nobody but the first comes, so they count as those that came again.
        let told = first(Retries::Linear, came(26));
        assert_eq!(told[25..27].iter().sum::<u64>(), 20);
        assert_eq!(told.iter().sum::<u64>(), 200 * 10);
        let none = |n: usize| match n {
            5 => (10, 10),
            25..28 => (0, 0),
            28 => (10, 0),
            _ => (0, 0),
        };
        assert_eq!(first(Retries::Linear, none)[28], 10, "too late: nobody waits for them any more");
    }
}

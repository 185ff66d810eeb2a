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
}

impl Syns {
    fn new(retries: Retries) -> Self {
        let windows = |s: &f64| (s / WINDOW_S).round() as usize;
        let mut before = 0;
        let after = retries.times_s().iter().map(windows).map(|at| at - std::mem::replace(&mut before, at));
        Self { after: after.collect(), due: BTreeMap::new(), late: VecDeque::new() }
    }

    /// How many of those that `came` in this window came for the first time; `dropped`: SYNs of all of them.
    fn first_of(&mut self, window: usize, came: u64, dropped: u64) -> u64 {
        let none = vec![0; self.after.len()];
        // Of windows that nobody told of.
        self.due = self.due.split_off(&window);
        self.late.push_front(self.due.remove(&window).unwrap_or_else(|| none.clone()));
        self.late.truncate(RETRY_SPREAD);
        let (mut first, mut again) = (came, none);
        for late in self.late.iter_mut().rev() {
            for (waits, again) in late.iter_mut().zip(&mut again) {
                let these = first.min(*waits);
                first -= these;
                *waits -= these;
                *again += these;
            }
        }
        // Whoever comes to a full queue is dropped, for whichever time it comes.
        let mut dropped = dropped.min(came);
        for (time, n) in again.iter().enumerate().rev() {
            let these = share(dropped, *n, first + again[..=time].iter().sum::<u64>());
            dropped -= these;
            self.comes_again(window, time + 1, these);
        }
        self.comes_again(window, 0, dropped);
        first
    }

    fn comes_again(&mut self, window: usize, time: usize, n: u64) {
        if let Some(after) = self.after.get(time).filter(|_| n > 0) {
            self.due.entry(window + after).or_insert_with(|| vec![0; self.after.len()])[time] += n;
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
        let in_all: u64 = due.iter().sum();
        let mut again = came.drops_repeated.min(in_all);
        let dropped_again = again;
        for (times, waits) in due.iter_mut().enumerate() {
            let these = again.min(*waits);
            again -= these;
            if let Some(after) = LAST_ACK_AGAIN.get(times + 1) {
                self.due.entry(window + after).or_default()[times + 1] += these;
            }
        }
        let new = came.drops_final_ack.saturating_sub(came.drops_repeated);
        self.due.entry(window + LAST_ACK_AGAIN[0]).or_default()[0] += new;
        in_all - dropped_again
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

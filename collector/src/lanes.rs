//! Work that waits for one thread, in two lanes: what is urgent is taken before what is not. Owns the bound of both together, and that
//! neither lane starves the other; knows nothing of the work.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// After so much urgent work in a row one piece of the other is taken: a flood of it must not stop everything else.
const URGENT_IN_A_ROW: u32 = 64;

/// Why work is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// As much as may wait does.
    Full,
    /// Nobody takes it any more.
    Ended,
}

/// What [`Lanes::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<T> {
    Work(T),
    /// Nothing came in time.
    Nothing,
    /// Nothing will come any more.
    Closed,
}

#[derive(Debug)]
struct Waiting<T> {
    urgent: VecDeque<T>,
    usual: VecDeque<T>,
    urgent_in_a_row: u32,
    closed: bool,
    ended: bool,
}

/// See above.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    waiting: Mutex<Waiting<T>>,
    wake: Condvar,
    max: usize,
}

impl<T> Lanes<T> {
    /// For so much work.
    pub(crate) fn new(max: usize) -> Self {
        let waiting = Waiting {
            urgent: VecDeque::new(),
            usual: VecDeque::new(),
            urgent_in_a_row: 0,
            closed: false,
            ended: false,
        };
        Self { waiting: Mutex::new(waiting), wake: Condvar::new(), max }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        // The queues are whole at every instant.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts work at the end of its lane.
    pub(crate) fn put(&self, work: T, urgent: bool) -> Result<(), Refused> {
        let mut waiting = self.lock();
        if waiting.ended || waiting.closed {
            return Err(Refused::Ended);
        }
        if waiting.urgent.len() + waiting.usual.len() >= self.max {
            return Err(Refused::Full);
        }
        let lane = if urgent { &mut waiting.urgent } else { &mut waiting.usual };
        lane.push_back(work);
        drop(waiting);
        self.wake.notify_one();
        Ok(())
    }

    /// The next piece of work; waits for one, but not longer than this.
    pub(crate) fn take(&self, longest: Duration) -> Taken<T> {
        let mut waiting = self.lock();
        if waiting.urgent.is_empty() && waiting.usual.is_empty() && !waiting.closed {
            let idle = |w: &mut Waiting<T>| w.urgent.is_empty() && w.usual.is_empty() && !w.closed;
            let woken = self.wake.wait_timeout_while(waiting, longest, idle);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let enough = waiting.urgent_in_a_row >= URGENT_IN_A_ROW && !waiting.usual.is_empty();
        if !enough && let Some(work) = waiting.urgent.pop_front() {
            waiting.urgent_in_a_row += 1;
            return Taken::Work(work);
        }
        waiting.urgent_in_a_row = 0;
        match waiting.usual.pop_front() {
            Some(work) => Taken::Work(work),
            None if waiting.closed => Taken::Closed,
            None => Taken::Nothing,
        }
    }

    /// No more work comes; what waits is still taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Nobody takes work any more; what waits is given up.
    pub(crate) fn end(&self) {
        let mut waiting = self.lock();
        waiting.ended = true;
        let given_up = (std::mem::take(&mut waiting.urgent), std::mem::take(&mut waiting.usual));
        drop(waiting);
        drop(given_up);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lanes: &Lanes<u32>) -> Vec<u32> {
        std::iter::from_fn(|| match lanes.take(Duration::ZERO) {
            Taken::Work(work) => Some(work),
            _ => None,
        })
        .collect()
    }

    #[test]
    fn what_is_urgent_comes_first_and_each_lane_keeps_its_order() {
        let lanes = Lanes::new(10);
        for (work, urgent) in [(1, false), (2, false), (3, true), (4, false), (5, true)] {
            lanes.put(work, urgent).unwrap();
        }
        assert_eq!(all(&lanes), [3, 5, 1, 2, 4]);
        assert_eq!(lanes.take(Duration::ZERO), Taken::Nothing);
    }

    #[test]
    fn a_flood_of_urgent_work_does_not_stop_the_other() {
        let lanes = Lanes::new(1000);
        (0..200).for_each(|n| lanes.put(n, true).unwrap());
        (1000..1002).for_each(|n| lanes.put(n, false).unwrap());
        let order = all(&lanes);
        let at = |n: u32| order.iter().position(|o| *o == n);
        assert_eq!((at(1000), at(1001), order.len()), (Some(64), Some(129), 202));
    }

    #[test]
    fn both_lanes_have_one_bound_and_a_closed_one_is_worked_off() {
        let lanes = Lanes::new(2);
        lanes.put(1, false).unwrap();
        lanes.put(2, true).unwrap();
        assert_eq!((lanes.put(3, true), lanes.put(3, false)), (Err(Refused::Full), Err(Refused::Full)));
        lanes.close();
        assert_eq!(lanes.put(4, true), Err(Refused::Ended));
        assert_eq!(all(&lanes), [2, 1]);
        assert_eq!(lanes.take(Duration::from_secs(60)), Taken::Closed, "at once");
        let left = Lanes::new(2);
        left.put(1, false).unwrap();
        left.end();
        assert_eq!((left.put(2, false), all(&left)), (Err(Refused::Ended), vec![]));
    }
}

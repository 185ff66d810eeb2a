//! When the code of what runs and waits is looked at: while something stands, is short of CPU, or has its queue fill up. Pure: windows in, looks out.

use crate::window::{CgroupId, WINDOW_NS, Window};
use std::collections::HashMap;

/// A server stands with so many requests in flight of which none is answered.
const IN_FLIGHT_LEAST: u32 = 3;
/// A workload is short of CPU when so many of its tasks wait for one, in the mean of a window …
const WAITING_LEAST: u64 = 2;
/// … or when its quota has it stand for half of one.
const THROTTLED_NS: u64 = WINDOW_NS / 2;
/// A queue fills up from half of its limit on, of one that holds so many at least.
const LIMIT_LEAST: u32 = 8;
/// Trouble has to last for so many windows (100 ms), …
const LASTS: u64 = 2;
/// … and from one look to the next so many go by at least (200 ms), twice as many each time, also where trouble comes and goes …
const APART: u64 = 4;
/// … up to a second. A second without trouble begins anew …
const EACH: u64 = 20;
/// … and of what lasts for ten seconds, which is no millibottleneck, every ten are looked at.
const LONG: u64 = 200;
/// Servers whose threads are looked at in one look.
const SERVERS_MAX: usize = 4;

/// What to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    /// The first window that no look has seen yet, and the last one.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Processes that listen and stand, and whose they are.
    pub(super) standing: Vec<(u32, CgroupId)>,
}

/// What the windows so far say.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Windows in a row in which a server answered nothing, by the process that listens.
    silent: HashMap<(u32, CgroupId), u64>,
    /// Windows of trouble in a row until now; 0: there is none.
    lasts: u64,
    /// The last one of trouble.
    last: u64,
    /// The first one that no look has seen.
    unseen_from: Option<u64>,
    /// When there may be a look again, and how long after that one the next.
    rests_until: u64,
    apart: u64,
}

impl Trouble {
    /// Takes a window in which the other signals stand already. What is due stays so until somebody [`Self::looked`].
    pub(super) fn step(&mut self, window: &Window) -> Option<Look> {
        let now = window.index.0;
        let before = std::mem::take(&mut self.silent);
        for (key, sample) in window.requests.iter().flatten() {
            if sample.in_flight_last >= IN_FLIGHT_LEAST && sample.answered == 0 && key.pid > 1 {
                let server = (key.pid, key.owner);
                self.silent.insert(server, before.get(&server).map_or(1, |windows| windows + 1));
            }
        }
        if self.silent.is_empty() && !is_short(window) {
            // One window is no trouble.
            self.unseen_from =
                self.unseen_from.filter(|from| self.lasts >= LASTS || *from < self.last || self.lasts == 0);
            self.lasts = 0;
            if now.saturating_sub(self.last) >= EACH {
                self.apart = 0;
            }
        } else {
            self.lasts += 1;
            self.last = now;
            self.unseen_from = self.unseen_from.or(Some(now));
        }
        let is_due = now >= self.rests_until && (self.lasts >= LASTS || self.lasts == 0);
        let first = self.unseen_from.filter(|first| is_due && *first <= self.last)?;
        // What is drained late is of threads that do something else by now.
        let long = self.silent.iter().filter(|(_, windows)| **windows >= LASTS && !window.late);
        let mut standing: Vec<_> =
            long.map(|(server, windows)| (std::cmp::Reverse(*windows), *server)).collect();
        standing.sort_unstable();
        standing.truncate(SERVERS_MAX);
        let standing = standing.into_iter().map(|(_, server)| server).collect();
        Some(Look { first, last: self.last, standing })
    }

    /// Somebody looks, after window `now`, at all until `last`.
    pub(super) fn looked(&mut self, now: u64, last: u64) {
        self.unseen_from = (self.lasts > 0).then_some(last + 1);
        self.apart = match self.lasts {
            windows if windows >= LONG => LONG,
            _ => (2 * self.apart).clamp(APART, EACH),
        };
        self.rests_until = now + self.apart;
    }
}

fn is_short(window: &Window) -> bool {
    let waits = window.tasks.iter().flatten().any(|(_, task)| task.wait_ns >= WAITING_LEAST * WINDOW_NS);
    let throttled = window.throttled.iter().flatten().any(|(_, ns)| *ns >= THROTTLED_NS);
    let fills = window.accept_queues.iter().flatten().any(|(_, queue)| {
        let is_half_full = queue.limit >= LIMIT_LEAST && queue.depth_max >= queue.limit / 2;
        queue.drops > 0 || is_half_full
    });
    waits || throttled || fills
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{AcceptQueueSample, CgroupId, ListenerKey, RequestSample, TaskSample, WindowIndex};
    use std::net::Ipv6Addr;

    fn key(pid: u32) -> ListenerKey {
        ListenerKey { netns: 1, address: Ipv6Addr::LOCALHOST, port: 80, owner: CgroupId(2), pid }
    }

    fn quiet(index: u64) -> Window {
        Window { index: WindowIndex(index), ..Window::default() }
    }

    fn standing(index: u64, pid: u32) -> Window {
        let sample = RequestSample { in_flight_last: 5, ..RequestSample::default() };
        Window { requests: Some(vec![(key(pid), sample)]), ..quiet(index) }
    }

    /// The window after which it is looked, and those that the look is of.
    fn looks(windows: impl Iterator<Item = Window>) -> Vec<(u64, u64, u64)> {
        let mut trouble = Trouble::default();
        let mut looked = Vec::new();
        for window in windows {
            if let Some(look) = trouble.step(&window) {
                looked.push((window.index.0, look.first, look.last));
                trouble.looked(window.index.0, look.last);
            }
        }
        looked
    }

    #[test]
    fn what_stands_is_looked_at_soon_then_seldom_and_once_more_when_it_is_over() {
        let windows = (0..100).map(|n| if (10..18).contains(&n) { standing(n, 7) } else { quiet(n) });
        assert_eq!(looks(windows), [(11, 10, 11), (15, 12, 15), (23, 16, 17)]);
        let lasting: Vec<u64> =
            looks((1..=700).map(|n| standing(n, 7))).into_iter().map(|(n, ..)| n).collect();
        assert_eq!(lasting[..6], [2, 6, 14, 30, 50, 70]);
        assert_eq!(lasting[lasting.len() - 2..], [410, 610]);
    }

    #[test]
    fn one_window_is_no_trouble() {
        assert_eq!(looks((0..20).map(|n| if n == 5 || n == 9 { standing(n, 7) } else { quiet(n) })), []);
    }

    /// Fails where there is a look at windows that a look has seen, which are none.
    #[test]
    fn what_is_over_when_it_is_looked_at_is_not_looked_at_again() {
        assert_eq!(looks((0..200).map(|n| if n < 2 { standing(n, 7) } else { quiet(n) })), [(1, 0, 1)]);
        for lasts in 2..100 {
            let looked = looks((0..200).map(|n| if n < lasts { standing(n, 7) } else { quiet(n) }));
            assert!(looked.iter().all(|(now, first, last)| first <= last && last <= now), "{looked:?}");
            let seen: u64 = looked.iter().map(|(_, first, last)| last - first + 1).sum();
            assert_eq!(seen, lasts, "each once: {looked:?}");
        }
    }

    /// Fails where trouble that comes and goes is looked at each time anew: a batch of windows would hold more than a collector takes.
    #[test]
    fn trouble_that_comes_and_goes_is_looked_at_no_more_often_than_trouble_that_lasts() {
        let flapping = |n: u64| if n.is_multiple_of(3) { quiet(n) } else { standing(n, 7) };
        let looked = looks((0..640).map(flapping));
        let most = (0..576).map(|from| looked.iter().filter(|(n, ..)| (from..from + 64).contains(n)).count());
        assert!(most.max().unwrap() <= 6, "{looked:?}");
        assert!(
            looked.windows(2).all(|pair| pair[0].2 + 2 >= pair[1].1),
            "each window of it is seen: {looked:?}"
        );
    }

    /// Fails where the windows of a look that nobody had time for are seen by none.
    #[test]
    fn what_nobody_had_time_to_look_at_is_seen_by_the_next_look() {
        let mut trouble = Trouble::default();
        let mut of = |window: Window| trouble.step(&window).map(|look| (look.first, look.last));
        assert_eq!(of(standing(1, 7)), None);
        assert_eq!(of(standing(2, 7)), Some((1, 2)));
        assert_eq!(of(standing(3, 7)), Some((1, 3)));
        assert_eq!(of(quiet(4)), Some((1, 3)));
        assert_eq!(of(standing(5, 7)), None);
        assert_eq!(of(quiet(6)), Some((1, 5)), "until somebody looks");
        trouble.looked(6, 5);
        assert_eq!(trouble.step(&quiet(7)), None);
    }

    #[test]
    fn whoever_listens_and_stands_is_named_unless_its_threads_are_somewhere_else_by_now() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.step(&standing(1, 7)), None);
        assert_eq!(trouble.step(&standing(2, 7)).unwrap().standing, [(7, CgroupId(2))]);
        let late = Window { late: true, ..standing(3, 7) };
        assert!(trouble.step(&late).unwrap().standing.is_empty());
    }

    #[test]
    fn a_workload_that_is_short_of_cpu_and_a_queue_that_fills_up_are_trouble() {
        let task = |wait_ns| TaskSample { wait_ns, ..TaskSample::default() };
        let queue = |depth_max| AcceptQueueSample { depth_max, limit: 128, ..AcceptQueueSample::default() };
        let short = |ns| Window { tasks: Some(vec![(CgroupId(2), task(ns))]), ..quiet(1) };
        let throttled = |ns| Window { throttled: Some(vec![(CgroupId(2), ns)]), ..quiet(1) };
        let queued = |depth| Window { accept_queues: Some(vec![(key(7), queue(depth))]), ..quiet(1) };
        assert!(is_short(&short(2 * WINDOW_NS)) && !is_short(&short(WINDOW_NS)));
        assert!(is_short(&throttled(WINDOW_NS)) && !is_short(&throttled(WINDOW_NS / 4)));
        assert!(is_short(&queued(64)) && !is_short(&queued(63)));
        let dropped = AcceptQueueSample { drops: 1, ..queue(0) };
        assert!(is_short(&Window { accept_queues: Some(vec![(key(7), dropped)]), ..quiet(1) }));
    }
}

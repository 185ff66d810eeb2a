//! What a server is set up for as far as it is seen (its pool by its own configuration, its accept queue, how many servers its tier has), when that
//! changed, and what was seen before and since. Owns when a change is one; the comparison is `tailwater_sizing::compare`, the words are in `sentence`.

use super::second::Joined;
use super::taint::Taint;
use serde::{Deserialize, Serialize};
use tailwater_model::window::WINDOW_NS;
use tailwater_sizing::compare::{Compared, Seen, Stretch, compare};

/// A set-up has to last so long before it counts as another (a minute): a server that starts anew and a topology that is being learnt show others
/// for a moment.
const LASTS_NS: u64 = 60_000_000_000;

/// See above; what is not known differs from nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SetUp {
    /// Requests at a time, by its own configuration.
    pub(super) pool: Option<u32>,
    /// Limit of its accept queue.
    pub(super) backlog: Option<u32>,
    /// Servers of its tier on this port.
    pub(super) servers: Option<u32>,
}

/// One size that was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Changed {
    /// `pool`, `backlog` or `servers`.
    pub(super) what: &'static str,
    pub(super) from: u32,
    pub(super) to: u32,
}

/// A server under its set-up of now and, if it changed, under the one before.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SetUps {
    now: SetUp,
    seen: Seen,
    before: Option<Before>,
    /// Another one, and since when.
    coming: Option<(SetUp, u64)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Before {
    set_up: SetUp,
    seen: Seen,
    changed_unix_ns: u64,
}

/// Before against after.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub(super) at_unix_ns: u64,
    pub(super) sizes: Vec<Changed>,
    pub(super) compared: Compared,
    /// Seconds that were seen, before and since, and packets that were dropped in them.
    pub(super) seconds: (f64, f64),
    pub(super) drops: (f64, f64),
}

impl SetUp {
    fn of(second: &Joined) -> Self {
        Self {
            pool: second.owned.pool.as_ref().map(|pool| pool.size),
            backlog: second.backlog,
            servers: (second.servers > 0).then_some(second.servers),
        }
    }

    /// What of it is known here, and otherwise what was known.
    fn or(self, known: Self) -> Self {
        Self {
            pool: self.pool.or(known.pool),
            backlog: self.backlog.or(known.backlog),
            servers: self.servers.or(known.servers),
        }
    }

    /// What differs, of what both know.
    fn changes(self, to: Self) -> Vec<Changed> {
        let sizes = [
            ("pool", self.pool, to.pool),
            ("backlog", self.backlog, to.backlog),
            ("servers", self.servers, to.servers),
        ];
        let changed =
            sizes.into_iter().filter_map(|(what, from, to)| Some(Changed { what, from: from?, to: to? }));
        changed.filter(|of| of.from != of.to).collect()
    }
}

impl SetUps {
    /// Takes the next second. While a change may be coming up, it counts for neither.
    pub(super) fn take(&mut self, second: &Joined) {
        let then = SetUp::of(second).or(self.now);
        if self.now.changes(then).is_empty() {
            (self.now, self.coming) = (then, None);
        } else {
            let since = match self.coming {
                Some((coming, since)) if coming.changes(then).is_empty() => since,
                _ => second.end_unix_ns,
            };
            self.coming = Some((then, since));
            if second.end_unix_ns.saturating_sub(since) < LASTS_NS {
                return;
            }
            self.change(then, since);
        }
        // CPU that others of its cgroup took is in no response time; everything else that taints is.
        if second.taints.iter().all(|taint| *taint == Taint::SharedCpu) {
            self.seen.take(Stretch {
                seconds: (u64::from(second.windows) * WINDOW_NS) as f64 / 1e9,
                answered: second.answered as f64,
                of_tier: second.answered as f64 * f64::from(second.servers.max(1)),
                in_system_s: second.in_flight_s + second.waiting_s,
                drops: second.drops as f64,
            });
        }
    }

    fn change(&mut self, to: SetUp, since_unix_ns: u64) {
        let seen = std::mem::take(&mut self.seen);
        // What was hardly seen is nothing to compare with: then the one before it stays, and is held against what comes now.
        if seen.is_enough() {
            self.before = Some(Before { set_up: self.now, seen, changed_unix_ns: since_unix_ns });
        } else if let Some(before) = &mut self.before {
            before.changed_unix_ns = since_unix_ns;
        }
        (self.now, self.coming) = (to, None);
        // Changed and changed back, and nothing was seen between: there was no change.
        if self.before.as_ref().is_some_and(|before| before.set_up.changes(to).is_empty())
            && let Some(before) = self.before.take()
        {
            self.seen = before.seen;
        }
    }

    /// The last change, if there is one to compare.
    pub(super) fn last_change(&self) -> Option<Change> {
        let before = self.before.as_ref()?;
        Some(Change {
            at_unix_ns: before.changed_unix_ns,
            sizes: before.set_up.changes(self.now),
            compared: compare(&before.seen, &self.seen),
            seconds: (before.seen.seconds(), self.seen.seconds()),
            drops: (before.seen.drops(), self.seen.drops()),
        })
    }

    /// Memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.seen.bytes() + self.before.as_ref().map_or(0, |before| before.seen.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::super::learners::tests::second;
    use super::super::who::tests::server;
    use super::*;
    use std::collections::BTreeSet;
    use tailwater_model::window::PoolSize;
    use tailwater_sizing::compare::Verdict;

    const SECOND_NS: u64 = 1_000_000_000;

    /// So many seconds of 400 answers that take so long, with this pool.
    fn takes(set_ups: &mut SetUps, from_s: u64, seconds: u64, pool: Option<u32>, took_s: f64) -> u64 {
        for n in from_s..from_s + seconds {
            let mut of = second(&server("app", "tomcat10.service"), 8080, 400, n * SECOND_NS);
            of.owned.pool = pool.map(|size| PoolSize { size, set_by: "x".into(), ..PoolSize::default() });
            of.in_flight_s = 400.0 * took_s * 0.5 * (1.0 + 0.02 * ((n / 10) % 3) as f64);
            of.waiting_s = 400.0 * took_s * 0.5;
            set_ups.take(&of);
        }
        from_s + seconds
    }

    #[test]
    fn a_change_that_lasts_is_compared_at_the_same_load() {
        let mut set_ups = SetUps::default();
        let mut at = takes(&mut set_ups, 0, 300, Some(200), 0.020);
        assert_eq!(set_ups.last_change(), None);
        at = takes(&mut set_ups, at, 50, Some(26), 0.010);
        assert_eq!(set_ups.last_change(), None, "it has to last for a minute");
        at = takes(&mut set_ups, at, 40, Some(26), 0.010);
        let change = set_ups.last_change().unwrap();
        assert_eq!(change.sizes, [Changed { what: "pool", from: 200, to: 26 }]);
        assert_eq!((change.at_unix_ns, change.compared.verdict), (300 * SECOND_NS, Verdict::TooLittle));
        takes(&mut set_ups, at, 200, Some(26), 0.010);
        let change = set_ups.last_change().unwrap();
        assert_eq!(change.compared.verdict, Verdict::Better);
        assert!((change.compared.ratio.unwrap().0 - 0.5).abs() < 0.02, "{change:?}");
        assert_eq!(change.seconds.0, 300.0);
    }

    #[test]
    fn what_is_not_known_for_a_while_and_what_is_there_for_a_moment_is_no_change() {
        let mut set_ups = SetUps::default();
        let mut at = takes(&mut set_ups, 0, 200, None, 0.020);
        at = takes(&mut set_ups, at, 200, Some(200), 0.020);
        at = takes(&mut set_ups, at, 100, None, 0.020);
        at = takes(&mut set_ups, at, 30, Some(50), 0.020);
        takes(&mut set_ups, at, 100, Some(200), 0.020);
        assert_eq!(set_ups.last_change(), None);
    }

    #[test]
    fn what_is_taken_back_before_anything_was_seen_of_it_goes_on_as_it_was() {
        let mut set_ups = SetUps::default();
        let mut at = takes(&mut set_ups, 0, 300, Some(200), 0.020);
        at = takes(&mut set_ups, at, 100, Some(26), 0.010);
        assert!(set_ups.last_change().is_some());
        at = takes(&mut set_ups, at, 300, Some(200), 0.020);
        assert_eq!(set_ups.last_change(), None);
        // And further on, the whole of both is compared with what comes.
        takes(&mut set_ups, at, 300, Some(400), 0.040);
        let change = set_ups.last_change().unwrap();
        assert_eq!((change.compared.verdict, change.sizes[0].from), (Verdict::Worse, 200));
        assert!(change.seconds.0 > 500.0, "{change:?}");
    }

    #[test]
    fn a_second_that_was_not_its_own_is_not_compared() {
        let mut set_ups = SetUps::default();
        for (n, taint) in [Taint::Incident, Taint::SharedCpu].into_iter().enumerate() {
            let of = second(&server("app", "x"), 80, 400, n as u64 * SECOND_NS);
            set_ups.take(&Joined { taints: BTreeSet::from([taint]), ..of });
        }
        assert_eq!(set_ups.seen.seconds(), 1.0);
    }

    #[test]
    fn what_is_kept_comes_back_and_is_small() {
        let mut set_ups = SetUps::default();
        let at = takes(&mut set_ups, 0, 300, Some(200), 0.020);
        takes(&mut set_ups, at, 300, Some(26), 0.010);
        let text = serde_json::to_string(&set_ups).unwrap();
        let again: SetUps = serde_json::from_str(&text).unwrap();
        assert_eq!(again.last_change().unwrap().sizes, set_ups.last_change().unwrap().sizes);
        assert_eq!(again.last_change().unwrap().compared.verdict, Verdict::Better);
        assert!(text.len() < 2000 && set_ups.bytes() < 2000, "{}", text.len());
    }
}

//! What is given up when the agent costs too much, and when it is taken back. Pure: owns the rule; knows no signal beyond its source's
//! name, and no clock.

use std::collections::BTreeMap;

/// Measurements in a row above the budget after which something is shed. They are five seconds apart.
const ABOVE_FOR: u32 = 3;
/// Measurements in a row that would have had room for a shed source after which it is taken back: a minute.
const CALM_FOR: u32 = 12;
/// Room: with what it cost when it was shed the agent would stay below this part of its budget.
const ROOM: f64 = 0.8;
/// A source that is shed again so soon after it was taken back waits twice as long the next time: ten minutes.
const SOON: u32 = 120;
/// But never longer than this: an hour.
const CALM_FOR_MAX: u32 = 720;

/// What a source tells, in what the least important one does: a cause is named from the accept queues, their drops, and CPU.
#[derive(Debug)]
struct Worth {
    source: &'static str,
    worth: f64,
}

const WORTHS: [Worth; 5] = [
    Worth { source: "stacks", worth: 0.5 },
    Worth { source: "throttling", worth: 1.0 },
    Worth { source: "memory", worth: 1.0 },
    Worth { source: "block", worth: 2.0 },
    Worth { source: "polled", worth: 3.0 },
];
/// Shed when nothing else is left to be, and for good: its levels cannot be known again without the privileges that the agent gave up.
const LAST: &str = "net";
/// Never shed: an agent that does not even tell of CPU has no reason to run.
const BASE: &str = "sched";
/// Tells of CPU where [`BASE`] is not attached.
const BASE_POLLED: &str = "polled";

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Give this source up.
    Shed(&'static str),
    /// And work with it again.
    TakeBack(&'static str),
}

/// Whether a source that is shed stays so until the agent is started again.
pub fn is_for_good(source: &str) -> bool {
    source == LAST
}

#[derive(Debug)]
struct Shed {
    source: &'static str,
    /// What it cost then.
    ratio: f64,
    calm_for: u32,
}

/// Decides what to shed and what to take back.
#[derive(Debug)]
pub struct Budget {
    ratio_max: f64,
    measured: u32,
    above: u32,
    calm: u32,
    shed: Vec<Shed>,
    /// When a source was taken back, by number of measurement, and how long it had waited.
    taken_back: BTreeMap<&'static str, (u32, u32)>,
}

impl Budget {
    /// `ratio_max` of one core.
    pub fn new(ratio_max: f64) -> Self {
        Self { ratio_max, measured: 0, above: 0, calm: 0, shed: Vec::new(), taken_back: BTreeMap::new() }
    }

    /// Takes one measurement: what the agent costs in all, and what each attached source does, as far as it is known; what is shed costs
    /// nothing. Returns the one thing to change now, if any: after each the agent gets time to calm down.
    pub fn measured(&mut self, ratio: f64, sources: &BTreeMap<&'static str, f64>) -> Option<Change> {
        self.measured = self.measured.saturating_add(1);
        if ratio <= self.ratio_max {
            self.above = 0;
            return self.take_back(ratio);
        }
        (self.calm, self.above) = (0, self.above + 1);
        if self.above < ABOVE_FOR {
            return None;
        }
        self.above = 0;
        let source = self.next_to_shed(sources)?;
        let again = self.taken_back.get(source).filter(|(at, _)| self.measured - at <= SOON);
        let calm_for = again.map_or(CALM_FOR, |(_, waited)| (2 * waited).min(CALM_FOR_MAX));
        let ratio = sources.get(source).copied().unwrap_or(0.0);
        self.shed.push(Shed { source, ratio, calm_for });
        Some(Change::Shed(source))
    }

    /// What was shed last comes back first: it was worth the most.
    fn take_back(&mut self, ratio: f64) -> Option<Change> {
        let last = self.shed.iter().rposition(|shed| shed.source != LAST)?;
        let Shed { source, ratio: its, calm_for } = self.shed[last];
        self.calm = if ratio + its <= ROOM * self.ratio_max { self.calm + 1 } else { 0 };
        if self.calm < calm_for {
            return None;
        }
        self.calm = 0;
        self.shed.remove(last);
        self.taken_back.insert(source, (self.measured, calm_for));
        Some(Change::TakeBack(source))
    }

    /// First what costs most for what it tells; what costs nothing that is known of, in the order of its worth.
    fn next_to_shed(&self, sources: &BTreeMap<&'static str, f64>) -> Option<&'static str> {
        let may = |source: &str| {
            let base = if sources.contains_key(BASE) { BASE } else { BASE_POLLED };
            source != base && sources.contains_key(source) && !self.shed.iter().any(|s| s.source == source)
        };
        let price = |w: &Worth| sources.get(w.source).copied().unwrap_or(0.0) / w.worth;
        let most = WORTHS.iter().filter(|w| may(w.source)).rev().max_by(|a, b| price(a).total_cmp(&price(b)));
        most.map(|w| w.source).or_else(|| may(LAST).then_some(LAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(of: &[(&'static str, f64)]) -> BTreeMap<&'static str, f64> {
        of.iter().copied().collect()
    }

    /// What changes in so many measurements, with the number of each.
    fn run(
        budget: &mut Budget,
        times: u32,
        ratio: f64,
        of: &BTreeMap<&'static str, f64>,
    ) -> Vec<(u32, Change)> {
        (1..=times).filter_map(|n| Some((n, budget.measured(ratio, of)?))).collect()
    }

    #[test]
    fn three_measurements_in_a_row_shed_what_costs_most_for_what_it_tells_and_never_the_base() {
        let of =
            costs(&[("throttling", 0.01), ("memory", 0.0), ("block", 0.03), ("net", 0.05), ("sched", 0.05)]);
        let mut budget = Budget::new(0.05);
        for ratio in [0.06, 0.07, 0.01, 0.06, 0.06] {
            assert_eq!(budget.measured(ratio, &of), None, "never three in a row");
        }
        budget.measured(0.01, &of);
        let order = ["block", "throttling", "memory", "net"];
        let expected: Vec<_> =
            order.iter().zip(1..).map(|(source, n)| (3 * n, Change::Shed(source))).collect();
        assert_eq!(run(&mut budget, 60, 0.2, &of), expected);
    }

    #[test]
    fn where_cpu_is_polled_that_stays() {
        let mut budget = Budget::new(0.05);
        let of = costs(&[("throttling", 0.0), ("polled", 0.3)]);
        assert_eq!(run(&mut budget, 60, 0.2, &of), [(3, Change::Shed("throttling"))]);
        let mut budget = Budget::new(0.05);
        let of = costs(&[("sched", 0.01), ("polled", 0.3)]);
        assert_eq!(run(&mut budget, 60, 0.2, &of), [(3, Change::Shed("polled"))]);
    }

    #[test]
    fn what_was_shed_comes_back_when_there_was_room_for_it_for_a_minute() {
        let of = costs(&[("throttling", 0.02), ("memory", 0.0), ("sched", 0.01)]);
        let mut budget = Budget::new(0.05);
        assert_eq!(run(&mut budget, 3, 0.06, &of), [(3, Change::Shed("throttling"))]);
        // Below the budget, but with what it cost it would be near it again.
        assert_eq!(run(&mut budget, 100, 0.03, &of), []);
        assert_eq!(run(&mut budget, CALM_FOR - 1, 0.015, &of), []);
        assert_eq!(run(&mut budget, 1, 0.03, &of), [], "the row is broken");
        assert_eq!(run(&mut budget, 100, 0.015, &of), [(CALM_FOR, Change::TakeBack("throttling"))]);
    }

    #[test]
    fn what_is_shed_again_soon_waits_twice_as_long_each_time_and_an_hour_at_most() {
        let of = costs(&[("block", 0.02), ("sched", 0.01)]);
        let mut budget = Budget::new(0.05);
        let mut waits = CALM_FOR;
        for _ in 0..10 {
            assert_eq!(run(&mut budget, 3, 0.06, &of), [(3, Change::Shed("block"))]);
            assert_eq!(run(&mut budget, waits, 0.01, &of), [(waits, Change::TakeBack("block"))]);
            waits = (2 * waits).min(CALM_FOR_MAX);
        }
        // Long after it came back it is as new.
        assert_eq!(run(&mut budget, SOON, 0.03, &of), []);
        assert_eq!(run(&mut budget, 3, 0.06, &of), [(3, Change::Shed("block"))]);
        assert_eq!(run(&mut budget, 100, 0.01, &of), [(CALM_FOR, Change::TakeBack("block"))]);
    }

    #[test]
    fn they_come_back_one_by_one_the_last_first_and_connections_never() {
        let of = costs(&[("throttling", 0.001), ("memory", 0.0), ("net", 0.02), ("sched", 0.01)]);
        let mut budget = Budget::new(0.05);
        let shed = run(&mut budget, 12, 0.2, &of);
        assert_eq!(shed.last(), Some(&(9, Change::Shed("net"))));
        let back = run(&mut budget, 1_000, 0.01, &of);
        assert_eq!(
            back,
            [(CALM_FOR, Change::TakeBack("memory")), (2 * CALM_FOR, Change::TakeBack("throttling"))]
        );
    }
}

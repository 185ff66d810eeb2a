//! What is done to a graph, where it matters, for how long, and what must be told of it. Pure: durations follow from what queues hold
//! and how fast they fill.

use crate::graph::plan::{Call, Graph};
use crate::load::Random;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// A stall lasts as much longer than queues take to fill …
const BEYOND: f64 = 1.35;
/// … and so much more, ms …
const MORE_MS: f64 = 200.0;
/// … within these bounds, ms: one that would have to last longer is not made there.
const DURATION_MS: std::ops::RangeInclusive<u64> = 500..=1_800;
/// Work that grows fills queues more slowly than a stall.
const HEAVIER_MS: std::ops::RangeInclusive<u64> = 800..=3_500;
/// What the heavier work of a service is to ask for, of its host's quota.
const HEAVIER_ASKS: f64 = 2.2;
/// What a squeeze leaves of a quota.
const SQUEEZED: f64 = 0.06;
/// A burst is so many times what the fullest queue on its way holds, and so many requests more.
const BURST_TIMES: f64 = 1.6;
const BURST_MORE: f64 = 60.0;
const BURST_MAX: f64 = 1_500.0;

/// A cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A neighbour takes the host's CPU.
    Neighbour,
    /// The host's quota shrinks.
    Squeeze,
    /// A service stands still.
    Pause,
    /// Somebody inside a service holds a lock that its requests need.
    Lock,
    /// A handler sleeps on the thread of a service's event loop.
    Loop,
    /// Many requests arrive at the entry at once.
    Burst,
    /// A request of a service takes several times its CPU, as after a bad deploy.
    Heavier,
    /// All connections of a service's pool for one of its calls are in use by nobody, as where its code does not give them back: whoever makes that
    /// call waits.
    PoolExhausted,
    /// The garbage of a service is collected on the thread of its event loop.
    GcPause,
    /// The server of names on a host does not answer.
    SlowDns,
    /// Nothing that a service sends for one of its calls arrives at the other host.
    Loss,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 11] = [
        Cause::Neighbour,
        Cause::Squeeze,
        Cause::Pause,
        Cause::Lock,
        Cause::Loop,
        Cause::Burst,
        Cause::Heavier,
        Cause::PoolExhausted,
        Cause::GcPause,
        Cause::SlowDns,
        Cause::Loss,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::Neighbour => "neighbour",
            Cause::Squeeze => "squeeze",
            Cause::Pause => "pause",
            Cause::Lock => "lock",
            Cause::Loop => "loop",
            Cause::Burst => "burst",
            Cause::Heavier => "heavier",
            Cause::PoolExhausted => "pool_exhausted",
            Cause::GcPause => "gc_pause",
            Cause::SlowDns => "slow_dns",
            Cause::Loss => "loss",
        }
    }

    /// What an incident's `root.resource` may be.
    #[must_use]
    pub fn resources(self) -> &'static [&'static str] {
        match self {
            Cause::Neighbour => &["cpu_neighbour"],
            Cause::Squeeze => &["cpu_throttled"],
            Cause::Pause => &["pause"],
            // Of a pool without a connection everybody waits for whoever has one, as for a lock.
            Cause::Lock | Cause::PoolExhausted => &["lock"],
            Cause::Loop => &["event_loop"],
            Cause::Burst => &["burst"],
            // It uses up its quota by its own work, which is one thing under two names.
            Cause::Heavier => &["cpu", "cpu_throttled"],
            // Its thread does not come back to its wait for events as it has work of its own to do; what that work uses up is one more name.
            Cause::GcPause => &["event_loop", "cpu", "cpu_throttled"],
            Cause::SlowDns => &["dns"],
            Cause::Loss => &["network"],
        }
    }

    /// Whether it is done to a host, with all services on it.
    #[must_use]
    pub fn is_of_host(self) -> bool {
        matches!(self, Cause::Neighbour | Cause::Squeeze)
    }
}

/// An injection that is planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// What.
    pub cause: Cause,
    /// Index of the service; where a host is hit, of the one that stands out first.
    pub service: usize,
    /// For how long, ms; a burst is at one moment.
    pub duration_ms: u64,
    /// Of a squeeze the cores that are left, of heavier work the percentage of the usual CPU, of a burst the requests, of an exhausted pool and of lost packets the index
    /// of the call; else 0.
    pub amount: f64,
}

impl Planned {
    /// The call that an exhausted pool or lost packets are about.
    #[must_use]
    pub fn call<'a>(&self, graph: &'a Graph) -> Option<&'a Call> {
        graph.services[self.service].calls.get(self.amount as usize)
    }

    /// Indices of the services that may be named as its root.
    #[must_use]
    pub fn roots(&self, graph: &Graph) -> Vec<usize> {
        let on_its_host = || graph.on(graph.services[self.service].host);
        match self.cause {
            // Whoever has no name resolved there does not notice.
            Cause::SlowDns => on_its_host().filter(|service| graph.services[*service].resolves).collect(),
            // It is lost whoever on that host sends it.
            Cause::Loss => {
                let to = self.call(graph).map(|call| call.to);
                let calls = |of: &usize| graph.services[*of].calls.iter().any(|call| Some(call.to) == to);
                on_its_host().filter(calls).collect()
            }
            cause if cause.is_of_host() => on_its_host().collect(),
            _ => vec![self.service],
        }
    }
}

/// Requests that a service holds before it refuses the next, if it has ever to refuse any: some runtimes take every connection while they
/// run, and in the pools of those that call a service there may be no more than it has room for.
fn holds(graph: &Graph, service: usize, runs: bool) -> Option<f64> {
    let of = &graph.services[service];
    let takes_all = of.runtime.takes_all();
    if takes_all && runs {
        return None;
    }
    let room = if takes_all { of.backlog } else { of.workers + of.backlog };
    // Connections that may be opened to it at once. Of a pool they are open already where they are kept; a caller with a worker for each of its
    // own requests opens no more than it has workers.
    let calls = graph.services.iter().flat_map(|from| from.calls.iter().map(move |call| (from, call)));
    let opened = calls.filter(|(_, call)| call.to == service).map(|(from, call)| match call.pool {
        _ if from.runtime.opens_all() => u32::MAX,
        0 => from.workers,
        _ if of.runtime.keeps_connections() => 0,
        pool => pool.min(from.workers),
    });
    let opens_more = service == 0 || opened.fold(0, u32::saturating_add) > room;
    opens_more.then(|| f64::from(room))
}

/// For how long requests of a service wait that come to another one, ms: as long as the least patient call on the way there, of several ways on the most
/// patient one.
fn waits_for_ms(graph: &Graph, from: usize, to: usize) -> f64 {
    let ways = graph.services[from].calls.iter().filter(|call| graph.reaches(call.to, to));
    let waits = ways.map(|call| match call.to == to {
        true => f64::from(call.timeout_ms),
        false => f64::from(call.timeout_ms).min(waits_for_ms(graph, call.to, to)),
    });
    waits.max_by(f64::total_cmp).unwrap_or(f64::INFINITY)
}

/// How long `stalled` has to answer nothing before somebody refuses requests, ms; `runs`: it goes on to run meanwhile. Who gives up before that
/// on the way there has room again.
fn fills_after_ms(graph: &Graph, rates: &[f64], stalled: usize, runs: bool) -> Option<f64> {
    let rate = rates[stalled].min(graph.rate_per_second);
    (0..graph.services.len())
        .filter(|service| graph.reaches(*service, stalled))
        .filter_map(|service| {
            let ms = 1_000.0 * holds(graph, service, runs || service != stalled)? / rate.max(1.0);
            (ms * BEYOND <= waits_for_ms(graph, service, stalled)).then_some(ms)
        })
        .min_by(f64::total_cmp)
}

fn stall(cause: Cause, service: usize, fills_ms: f64, amount: f64) -> Option<Planned> {
    let ms = (fills_ms * BEYOND + MORE_MS).round() as u64;
    (ms <= *DURATION_MS.end()).then(|| Planned {
        cause,
        service,
        duration_ms: ms.max(*DURATION_MS.start()),
        amount,
    })
}

fn heavier(graph: &Graph, rates: &[f64], service: usize, fills_ms: f64) -> Option<Planned> {
    let (of, host) = (&graph.services[service], graph.services[service].host);
    let here: f64 = {
        let offered = graph.offered();
        graph.on(host).map(|service| offered[service]).sum()
    };
    let own = rates[service] * f64::from(of.cpu_us) / 1e6;
    let more = HEAVIER_ASKS * graph.hosts[host].cores - here;
    let percent = (100.0 * (1.0 + more / own.max(1e-9))).round();
    // What is not served queues up.
    let ms = (fills_ms / (1.0 - 1.0 / HEAVIER_ASKS) * BEYOND + MORE_MS).round() as u64;
    // A request that takes hundreds of times its CPU is another cause.
    (percent <= 2_000.0 && ms <= *HEAVIER_MS.end()).then(|| Planned {
        cause: Cause::Heavier,
        service,
        duration_ms: ms.max(*HEAVIER_MS.start()),
        amount: percent,
    })
}

/// Those calls whose pool bounds how many are made at a time: whoever makes one waits when the pool is exhausted.
fn pool_exhausted(graph: &Graph, service: usize, fills_ms: f64) -> Option<Planned> {
    let bounded = graph.services[service].runtime.has_bounded_pools();
    of_a_call(Cause::PoolExhausted, graph, service, fills_ms, |call| bounded && call.pool > 0)
}

/// Those to other hosts: on the way to its own nothing is lost.
fn loss(graph: &Graph, service: usize, fills_ms: f64) -> Option<Planned> {
    let host = graph.services[service].host;
    // Of one whose other end no agent sees nobody knows whether packets were lost or its machine stood.
    let is_seen = |call: &Call| graph.services[call.to].host != host && !graph.is_outside(call.to);
    of_a_call(Cause::Loss, graph, service, fills_ms, is_seen)
}

/// A stall of whoever makes a call: of such calls of a service that one which most of its requests make.
fn of_a_call(
    cause: Cause,
    graph: &Graph,
    service: usize,
    fills_ms: f64,
    is_such: impl Fn(&Call) -> bool,
) -> Option<Planned> {
    let calls = graph.services[service].calls.iter().enumerate().filter(|(_, call)| is_such(call));
    let (index, call) = calls.max_by_key(|(_, call)| call.share_percent)?;
    let ms = fills_ms / (f64::from(call.share_percent) / 100.0).max(0.01);
    let waits = ms * BEYOND <= f64::from(call.timeout_ms);
    waits.then(|| stall(cause, service, ms, index as f64)).flatten()
}

fn burst(graph: &Graph) -> Planned {
    let most =
        (0..graph.services.len()).filter_map(|service| holds(graph, service, true)).fold(0.0, f64::max);
    let amount = (BURST_TIMES * most + BURST_MORE).min(BURST_MAX).round();
    Planned { cause: Cause::Burst, service: 0, duration_ms: 0, amount }
}

/// Every injection that is expected to have requests refused.
#[must_use]
pub fn candidates(graph: &Graph) -> Vec<Planned> {
    let rates = graph.rates();
    let all = |runs| -> Vec<Option<f64>> {
        (0..graph.services.len()).map(|service| fills_after_ms(graph, &rates, service, runs)).collect()
    };
    let (fills, fills_though_it_runs) = (all(false), all(true));
    let mut found = vec![burst(graph)];
    for (host, of) in graph.hosts.iter().enumerate() {
        let soonest = graph
            .on(host)
            .filter_map(|service| fills[service].map(|ms| (service, ms)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b));
        if let Some((service, ms)) = soonest.filter(|_| !of.is_outside) {
            // Something still runs, so that it takes a little longer.
            found.extend(stall(Cause::Neighbour, service, 1.15 * ms, 0.0));
            found.extend(stall(Cause::Squeeze, service, 1.15 * ms, SQUEEZED * of.cores));
        }
    }
    for (service, of) in graph.services.iter().enumerate() {
        if let Some(ms) = fills[service] {
            found.extend(stall(Cause::Pause, service, ms, 0.0));
            if of.runtime.can_be_blocked() {
                found.extend(stall(Cause::Loop, service, ms, 0.0));
            }
            if of.runtime.collects_garbage() {
                found.extend(stall(Cause::GcPause, service, ms, 0.0));
            }
        }
        if let Some(ms) = fills_though_it_runs[service] {
            if of.locks {
                found.extend(stall(Cause::Lock, service, ms, 0.0));
            }
            found.extend(pool_exhausted(graph, service, ms));
            found.extend(loss(graph, service, ms));
            if of.resolves && !graph.is_outside(service) {
                found.extend(stall(Cause::SlowDns, service, ms, 0.0));
            }
            if of.runtime.takes_orders() {
                found.extend(heavier(graph, &rates, service, ms));
            }
        }
    }
    found
}

/// So many of them, in the order in which they are made: causes take turns, and of each cause the places do.
#[must_use]
pub fn sequence(graph: &Graph, count: usize) -> Vec<Planned> {
    let mut random = Random::new(graph.seed ^ 0x0e11_a5ed);
    let mut turns: Vec<Vec<Planned>> = Vec::new();
    let all = candidates(graph);
    for cause in Cause::ALL {
        let mut of: Vec<Planned> = all.iter().filter(|planned| planned.cause == cause).cloned().collect();
        shuffle(&mut of, &mut random);
        if !of.is_empty() {
            turns.push(of);
        }
    }
    let mut sequence = Vec::new();
    let mut round = 0;
    while sequence.len() < count {
        let mut of_round: Vec<Planned> = turns.iter().map(|of| of[round % of.len()].clone()).collect();
        shuffle(&mut of_round, &mut random);
        sequence.extend(of_round);
        round += 1;
    }
    sequence.truncate(count);
    sequence
}

/// The same in groups of up to so many that are made at once, each on other hosts, and no burst beside another. Of what is left at the end some groups
/// are smaller.
#[must_use]
pub fn groups(graph: &Graph, sequence: Vec<Planned>, together: usize) -> Vec<Vec<Planned>> {
    let mut left = VecDeque::from(sequence);
    let mut groups = Vec::new();
    while let Some(first) = left.pop_front() {
        let mut group = vec![first];
        let mut at = 0;
        while group.len() < together && at < left.len() {
            let host = |planned: &Planned| graph.services[planned.service].host;
            let apart = |with: &Planned| host(with) != host(&left[at]) && with.cause != left[at].cause;
            if group.iter().all(apart) {
                group.extend(left.remove(at));
            } else {
                at += 1;
            }
        }
        groups.push(group);
    }
    groups
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, (random.bits() % (last as u64 + 1)) as usize);
    }
}

/// The causes in a sequence.
#[must_use]
pub fn causes(sequence: &[Planned]) -> BTreeSet<Cause> {
    sequence.iter().map(|planned| planned.cause).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::part::Runtime;

    #[test]
    fn every_graph_has_enough_to_be_done_to_and_each_is_within_its_bounds() {
        for seed in 0..300 {
            let graph = Graph::of(seed, 2);
            let all = candidates(&graph);
            let places: BTreeSet<(Cause, usize)> =
                all.iter().map(|planned| (planned.cause, planned.service)).collect();
            assert_eq!(places.len(), all.len(), "seed {seed}: each once");
            assert!(causes(&all).len() >= 4 && all.len() >= 7, "seed {seed}: {all:?}");
            for planned in &all {
                assert!(planned.roots(&graph).contains(&planned.service), "seed {seed}");
                match planned.cause {
                    Cause::Burst => assert!(planned.amount >= 80.0 && planned.amount <= BURST_MAX),
                    Cause::Heavier => {
                        assert!(HEAVIER_MS.contains(&planned.duration_ms) && planned.amount > 100.0)
                    }
                    _ => assert!(DURATION_MS.contains(&planned.duration_ms), "seed {seed}: {planned:?}"),
                }
                if planned.cause == Cause::Loop {
                    assert!(graph.services[planned.service].runtime.can_be_blocked());
                }
                let of = &graph.services[planned.service];
                match planned.cause {
                    Cause::Lock => assert!(of.locks),
                    Cause::PoolExhausted => {
                        assert!(of.calls[planned.amount as usize].pool > 0, "seed {seed}")
                    }
                    Cause::Loss => {
                        let to = planned.call(&graph).map(|call| graph.services[call.to].host);
                        assert!(to.is_some_and(|to| to != of.host), "seed {seed}: nothing is lost on a host");
                        assert!(to.is_some_and(|to| !graph.hosts[to].is_outside), "seed {seed}");
                    }
                    Cause::GcPause => assert_eq!(of.runtime, Runtime::Node),
                    Cause::SlowDns => assert!(of.resolves),
                    _ => {}
                }
            }
        }
    }

    /// Fails where a cause is written down and made nowhere.
    #[test]
    fn each_cause_is_made_in_some_of_a_few_graphs() {
        for cause in Cause::ALL {
            let has = |seed: &u64| causes(&candidates(&Graph::of(*seed, 2))).contains(&cause);
            let made = (0..30).filter(has).count();
            assert!(made >= 5, "{}: in {made} of 30", cause.name());
        }
    }

    #[test]
    fn a_sequence_repeats_with_its_seed_and_causes_take_turns() {
        for seed in 0..50 {
            let graph = Graph::of(seed, 2);
            let sequence = sequence(&graph, 20);
            assert_eq!((sequence.len(), &sequence), (20, &super::sequence(&graph, 20)));
            let there = causes(&candidates(&graph)).len();
            assert_eq!(causes(&sequence[..there]).len(), there, "seed {seed}");
        }
    }

    #[test]
    fn what_is_done_at_once_is_done_to_other_hosts_and_nothing_is_left_out() {
        for seed in 0..50 {
            let graph = Graph::of(seed, 2);
            let all = sequence(&graph, 20);
            assert_eq!(
                groups(&graph, all.clone(), 1),
                all.iter().map(|p| vec![p.clone()]).collect::<Vec<_>>()
            );
            let groups = groups(&graph, all.clone(), 3);
            assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), 20, "seed {seed}");
            assert!(groups.iter().any(|group| group.len() == 3), "seed {seed}");
            for group in &groups {
                let hosts: BTreeSet<usize> = group.iter().map(|p| graph.services[p.service].host).collect();
                assert_eq!((hosts.len(), causes(group).len()), (group.len(), group.len()), "seed {seed}");
            }
        }
    }

    #[test]
    fn where_a_pool_holds_everybody_back_it_is_the_caller_that_fills_up() {
        let mut graph = Graph::of(1, 2);
        for service in &mut graph.services {
            service.runtime = Runtime::Threads;
            for call in &mut service.calls {
                call.pool = 4;
            }
        }
        let last = graph.services.len() - 1;
        assert_eq!(holds(&graph, last, false), None);
        let entry = &graph.services[0];
        assert_eq!(holds(&graph, 0, true), Some(f64::from(entry.workers + entry.backlog)));
        // A connection for each call: now it is refused there, too.
        let caller =
            graph.services.iter().position(|of| of.calls.iter().any(|call| call.to == last)).unwrap();
        graph.services[caller].calls.iter_mut().for_each(|call| call.pool = 0);
        graph.services[caller].workers = 1;
        assert_eq!(holds(&graph, last, true), None, "a caller with one worker makes one call at a time");
        graph.services[caller].workers = 1_000;
        assert!(holds(&graph, last, true).is_some());
        // An event loop that runs takes all of them, and one that stands what its queue holds.
        graph.services[0].runtime = Runtime::EventLoop;
        assert_eq!(holds(&graph, 0, true), None);
        assert_eq!(holds(&graph, 0, false), Some(f64::from(graph.services[0].backlog)));
    }

    #[test]
    fn who_gives_up_before_the_queues_are_full_has_none_of_them_fill() {
        let mut graph = Graph::of(1, 2);
        let last = graph.services.len() - 1;
        for service in &mut graph.services {
            service.runtime = Runtime::Threads;
            for call in &mut service.calls {
                (call.pool, call.timeout_ms) = (4, 60_000);
            }
        }
        let rates = graph.rates();
        let fills = |graph: &Graph| fills_after_ms(graph, &rates, last, true);
        let ms = fills(&graph).expect("everybody is patient");
        let calls = graph.services.iter_mut().flat_map(|from| &mut from.calls);
        calls.filter(|call| call.to == last).for_each(|call| call.timeout_ms = ms as u32);
        assert_eq!(fills(&graph), None);
    }
}

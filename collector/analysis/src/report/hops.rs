//! The tiers between drop and root with their worst values. Owns their order and roles; decides nothing about the root.

use super::Report;
use crate::baseline::congestion::{Knee, Serving, tenth};
use crate::case::settled::Settled;
use crate::path::candidate::Candidate;
use crate::path::order::order;
use crate::path::step::{PartOf, Place, Step};
use crate::path::view::{PEAK_AFTER, PEAK_BEFORE};
use crate::series::{EDGE_WINDOWS, average};
use crate::topology::graph::Link;
use crate::topology::tier::{Tier, TierKey};
use tailwater_model::incident::{Hop, HopCongestion, Role};
use tailwater_model::window::EntityId;

/// Hops that are listed.
const HOPS_MAX: usize = 16;

impl<'a> Report<'a> {
    /// The path from drop to root; other droppers with their own way to the root; the root itself.
    pub(super) fn hops(&self, best: &Candidate, settled: &mut Settled) -> Vec<Hop> {
        let mut places: Vec<Step> = Vec::new();
        let upto = self.diagnosis.path.iter().position(|s| s.place == best.place);
        let path = &self.diagnosis.path;
        // What was settled is not asked for again: its windows are gone.
        let onset_of = |key: &TierKey| match settled.hops.get(&Place::Tier(key.clone())) {
            Some(_) => 0,
            None => self.onset(key),
        };
        let mut add = |place: Place, onset: u64| {
            if places.len() < HOPS_MAX && !places.iter().any(|p| p.place == place) {
                places.push(Step {
                    place,
                    onset,
                    explains: 1.0,
                    part_of: PartOf::Growth,
                    why: String::new(),
                });
            }
        };
        let mut others: Vec<&TierKey> =
            self.case.drops.keys().map(|(k, _)| k).filter(|k| **k != self.case.start).collect();
        others.dedup();
        if let Place::Tier(root) = &best.place {
            for dropper in &others {
                for key in self.view.topology.path(dropper, root).unwrap_or_default() {
                    let onset = onset_of(&key);
                    add(Place::Tier(key), onset);
                }
            }
        }
        match (upto, &best.place) {
            // Up to the tier that stored a batch, and from there down to what held it back.
            (None, Place::Tier(root)) if best.before_batch.is_some() => {
                if let Some(stored) = &best.before_batch {
                    let way = |to| self.view.topology.path(stored, to).unwrap_or_default();
                    for key in way(&self.case.start).into_iter().skip(1).rev() {
                        let onset = onset_of(&key);
                        add(Place::Tier(key), onset);
                    }
                    // These were full while it was held back, before anything overflowed.
                    way(root).into_iter().for_each(|key| add(Place::Tier(key), best.episode.first));
                }
            }
            (Some(upto), _) => path.iter().take(upto + 1).for_each(|s| add(s.place.clone(), s.onset)),
            (None, Place::Tier(root)) => {
                // The root lies upstream, or behind a tier that nobody observes.
                let way = self.view.topology.path(root, &self.case.start);
                if let Some(way) = way {
                    way.iter().rev().for_each(|key| add(Place::Tier(key.clone()), onset_of(key)));
                } else {
                    path.iter().for_each(|s| add(s.place.clone(), s.onset));
                }
            }
            (None, _) => path.iter().for_each(|s| add(s.place.clone(), s.onset)),
        }
        add(best.place.clone(), best.episode.first);
        for dropper in others {
            add(Place::Tier(dropper.clone()), onset_of(dropper));
        }
        let order: Vec<Place> = places.iter().map(|p| p.place.clone()).collect();
        let mut hops = Vec::with_capacity(places.len());
        for (i, step) in places.iter().enumerate() {
            let mut hop = match settled.hops.get(&step.place) {
                Some(hop) => {
                    let mut hop = hop.clone();
                    // One that only waited may drop later.
                    let dropped = self.case.drops.keys().any(|(k, _)| Place::Tier(k.clone()) == step.place);
                    if dropped && hop.role == Role::Pushback {
                        hop.role = Role::Drop;
                    }
                    hop
                }
                None => self.hop(step, order.get(i + 1), best),
            };
            if self.now > self.measured_to(&step.place).saturating_add(1) && self.case.is_settled(self.now) {
                settled.hops.entry(step.place.clone()).or_insert_with(|| hop.clone());
            }
            if let Place::Tier(key) = &step.place {
                hop.life = self.case.ledger.life(self.view, key);
                hop.slowest = self.case.ledger.slowest(self.view, key);
            }
            hops.push(hop);
        }
        hops
    }

    /// Until which window a tier's worst values are taken: the first wave, also of one that began to drop later.
    fn measured_to(&self, place: &Place) -> u64 {
        let first = match place {
            Place::Tier(key) if *key != self.case.start => {
                self.case.drops.iter().filter(|((k, _), _)| k == key).map(|(_, d)| d.first).min()
            }
            _ => None,
        };
        first.map_or_else(|| self.case.measured_to(), |first| self.case.measured_from(first))
    }

    fn onset(&self, key: &TierKey) -> u64 {
        let at = self
            .case
            .drops
            .iter()
            .filter(|((k, _), _)| k == key)
            .map(|(_, d)| d.first)
            .min()
            .unwrap_or(self.case.at);
        self.tier(key).map_or(at, |tier| {
            self.view.node(key, tier, at, at.saturating_sub(PEAK_BEFORE), at.saturating_add(PEAK_AFTER)).onset
        })
    }

    fn hop(&self, step: &Step, next: Option<&Place>, best: &Candidate) -> Hop {
        let (host, workload, tier_name) = self.place(&step.place);
        let mut hop = Hop {
            host,
            workload,
            tier: tier_name.clone(),
            listener: String::new(),
            role: Role::Root,
            observed: true,
            requests_unknown: false,
            connections_only: false,
            onset_unix_ns: self.start_ns(self.clock_host(&step.place), step.onset),
            order_to_root: None,
            queued_max: 0,
            workers_busy_max: 0,
            workers_limit: None,
            accept_queue_max: 0,
            accept_queue_limit: None,
            pool_in_flight_max: None,
            pool_open: None,
            congestion: None,
            life: None,
            slowest: Vec::new(),
        };
        if step.place != best.place
            && matches!(step.place, Place::Tier(_))
            && matches!(best.place, Place::Tier(_))
        {
            let root = self.start_ns(self.clock_host(&best.place), best.episode.first);
            let between = self.between(&best.place, &step.place);
            hop.order_to_root = Some(order(root, hop.onset_unix_ns, between));
        }
        if let Place::Unobserved(..) = step.place {
            hop.listener = tier_name;
            self.fill_from_outside(&mut hop, step, best);
        }
        let (Place::Tier(key) | Place::Missing(key)) = &step.place else { return hop };
        let Some(tier) = self.tier(key) else { return hop };
        hop.requests_unknown = !self.view.history.measures_requests(&key.host);
        let (from, to) = (step.onset.saturating_sub(EDGE_WINDOWS), self.measured_to(&step.place));
        let series = self.view.tier_series(&key.host, tier, from, to);
        for (_, s) in series.range(from, to) {
            hop.queued_max = hop.queued_max.max(s.queued_max.round() as u64);
            hop.workers_busy_max = hop.workers_busy_max.max(s.workers_busy_max);
            hop.connections_only |= s.connections_only;
        }
        if let Some(baseline) = self.baselines.get(key) {
            hop.workers_limit = baseline.workers_limit(tier.workers_limit);
            // A quiet queue's limit is not in every window; with one listener the tier's is its own.
            if tier.listeners.len() == 1 {
                hop.accept_queue_limit = baseline.accept_queue_limit();
            }
        }
        if let Some(id) = self.busiest_listener(key, tier, from, to) {
            hop.listener = self.listener(key, id);
            // Of the listener that is named, not of the tier: another one's limit says nothing of this queue.
            let windows = self.view.history.windows_of(&key.host);
            for window in (from..=to).filter_map(|i| windows.at(i)) {
                let Some(l) = window.listeners.get(&id) else { continue };
                hop.accept_queue_max = hop.accept_queue_max.max(l.depth_max);
                if l.limit > 0 {
                    hop.accept_queue_limit = Some(l.limit);
                }
            }
        }
        hop.congestion = self.congestion(key, tier, step.onset, (from, to));
        let link = self.link(key, next, from, to);
        if let Some(link) = link.filter(|_| self.view.history.measures_calls(&key.host)) {
            let calls = self.view.call_series(&key.host, &link.edges, from, to);
            let known = calls.range(from, to).filter(|(_, s)| !s.connections_only);
            hop.pool_in_flight_max = known.map(|(_, s)| s.in_flight_max).max();
            hop.pool_open = calls.range(from, to).map(|(_, s)| s.open_max).max();
        }
        let dropped = self.case.drops.keys().any(|(k, _)| k == key);
        hop.role = match &best.place {
            place if *place == step.place => Role::Root,
            _ if dropped => Role::Drop,
            Place::Tier(root) if self.view.topology.leads(root, key) => Role::Batch,
            _ if best.before_batch.as_ref() == Some(key) => Role::Batch,
            _ => Role::Pushback,
        };
        hop
    }

    /// An unobserved tier by what its observed caller sees of it: the calls in flight are the least that it holds.
    fn fill_from_outside(&self, hop: &mut Hop, step: &Step, best: &Candidate) {
        hop.observed = false;
        let upstream = self.diagnosis.above.as_ref() == Some(&step.place);
        hop.role = match () {
            () if best.place == step.place => Role::Root,
            () if upstream => Role::Batch,
            () => Role::Pushback,
        };
        let Place::Unobserved(address, port) = step.place else { return };
        let (from, to) = (step.onset.saturating_sub(EDGE_WINDOWS), self.case.measured_to());
        let links = self.view.topology.links().filter(|l| l.remote == (address, port) && l.to.is_none());
        hop.queued_max = links
            .map(|link| {
                let calls = self.view.call_series(&link.from.host, &link.edges, from, to);
                calls.range(from, to).map(|(_, s)| u64::from(s.in_flight_max)).max().unwrap_or(0)
            })
            .sum();
    }

    fn congestion(
        &self,
        key: &TierKey,
        tier: &Tier,
        onset: u64,
        (from, to): (u64, u64),
    ) -> Option<HopCongestion> {
        let judged = self.view.congestion.judge(self.view.history, key, tier, from, to)?;
        let (estimate, windows) = (&judged.estimate, &judged.windows);
        let knee = estimate.knee;
        let count = |is: &dyn Fn(&Knee, &Serving) -> bool| {
            knee.map(|k| windows.range(from, to).filter(|(_, s)| is(&k, s)).count() as u32)
        };
        let filling = windows.range(onset, self.case.at.max(onset)).map(|(_, s)| s.answered);
        Some(HopCongestion {
            state: estimate.state,
            congestion_point: knee.map(|k| tenth(k.load)),
            throughput_usual: knee.map(|k| tenth(k.answered)),
            coverage: estimate.coverage,
            load_max: tenth(windows.range(from, to).map(|(_, s)| s.load).fold(0.0, f64::max)),
            throughput: tenth(average(filling)),
            windows_beyond: count(&|k, s| s.load > k.load),
            windows_frozen: count(&Knee::is_frozen),
        })
    }

    fn busiest_listener(&self, key: &TierKey, tier: &Tier, from: u64, to: u64) -> Option<EntityId> {
        let of_tier = self.case.drops.iter().filter(|((k, _), _)| k == key);
        if let Some(((_, listener), _)) = of_tier.max_by_key(|(_, d)| d.count) {
            return Some(*listener);
        }
        let all = self.view.history.windows_of(&key.host);
        let load = |id: EntityId| -> u64 {
            let windows = (from..=to).filter_map(|i| all.at(i));
            windows.filter_map(|w| w.listeners.get(&id)).fold(0, |sum, l| {
                sum.saturating_add(l.in_flight_ns).saturating_add(l.unanswered_ns).saturating_add(l.depth_ns)
            })
        };
        tier.listeners
            .iter()
            .map(|l| (load(l.id), l))
            .max_by_key(|(load, l)| (*load, l.id))
            .map(|(_, l)| l.id)
    }

    fn link(&self, key: &TierKey, next: Option<&Place>, from: u64, to: u64) -> Option<&'a Link> {
        let leads = |link: &&Link| match (next, &link.to) {
            (Some(Place::Tier(next) | Place::Missing(next)), Some(at)) => next == at,
            (Some(Place::Unobserved(address, port)), None) => link.remote == (*address, *port),
            _ => false,
        };
        let topology = self.view.topology;
        let down = || topology.down(key);
        down().find(leads).or_else(|| {
            down().max_by_key(|link| {
                let calls = self.view.call_series(&key.host, &link.edges, from, to);
                calls.range(from, to).map(|(_, s)| s.in_flight_max).max().unwrap_or(0)
            })
        })
    }
}

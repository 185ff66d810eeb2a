//! The incident as a whole, put together of its parts: what kind it is, how bad, from when to when, and what of it is said for good.
//! Owns the kinds; decides nothing about the root.

use super::Report;
use super::now::do_now;
use super::title::{Called, title};
use crate::case::settled::Settled;
use crate::episode::{Episode, quality};
use crate::path::candidate::Candidate;
use crate::path::step::Place;
use crate::path::view::{AFTER_WINDOWS, PEAK_AFTER, PEAK_BEFORE};
use crate::series::growth::usual;
use crate::topology::tier::TierKey;
use std::collections::BTreeSet;
use tailwater_model::incident::{Incident, Kind, Resource, Root, Severity, State};

impl Report<'_> {
    /// The incident, without `version`, and what of it is said for good.
    pub(super) fn incident(&self, id: &str, closed: bool) -> Option<(Incident, Settled)> {
        let best = self.diagnosis.candidates.first()?;
        let mut settled = self.case.settled.clone();
        self.settle(&mut settled);
        let drops = self.drops(&settled);
        let flooded = self.is_flood(&settled).then(|| self.flooded());
        let flood = flooded.is_some();
        let best = flooded.as_ref().unwrap_or(best);
        let hops = self.hops(best, &mut settled);
        let findings = settled.findings.clone().unwrap_or_else(|| self.findings(best));
        let mut root = findings.root.clone();
        if let Some(last) = self.case.root_last().filter(|last| *last > best.episode.last) {
            root.end_unix_ns = root.end_unix_ns.max(self.end_ns(self.clock_host(&best.place), last));
        }
        if flood {
            // Nothing on the way to another tier is evidence for it.
            root.evidence = format!("{}. Confidence {:.2} by rule", best.episode.why, best.score);
            root.saturated = None;
        } else {
            root.code = settled.code.clone().unwrap_or_else(|| self.code(best));
            root.evidence.push_str(&self.in_code(best, &root.code));
            root.evidence.push_str(&findings.rule);
        }
        let kind = self.kind(best, &root, flood);
        let last = self.case.last_active.max(self.case.drops.values().map(|d| d.last).max().unwrap_or(0));
        let hosts: BTreeSet<&str> =
            hops.iter().map(|h| h.host.as_str()).chain(drops.iter().map(|d| d.host.as_str())).collect();
        let opened = self.start_ns(&self.case.start.host, self.case.at);
        let start = hops.iter().map(|h| h.onset_unix_ns).chain([root.start_unix_ns, opened]).min()?;
        let start = settled.start_ns.unwrap_or(start);
        let clock_error_ns = hosts.iter().map(|h| self.view.clock_error(h, self.case.at)).max().unwrap_or(0);
        // Of windows that are gone it would be none.
        settled.clock_error_ns = match settled.findings {
            Some(_) => settled.clock_error_ns.max(clock_error_ns),
            None => clock_error_ns,
        };
        if self.case.is_settled(self.now) {
            settled.findings = Some(findings.clone());
            settled.start_ns = Some(start);
            if settled.code.is_none() && self.code_is_complete(best) {
                settled.code = Some(root.code.clone());
            }
        }
        let mut incident = Incident {
            id: id.to_owned(),
            version: 0,
            state: if closed { State::Closed } else { State::Open },
            kind,
            severity: match kind {
                _ if !drops.is_empty() => Severity::Critical,
                Kind::NearOverflow => Severity::Warning,
                _ => Severity::Info,
            },
            confidence: if flood { best.score } else { findings.confidence },
            title: String::new(),
            start_unix_ns: start,
            end_unix_ns: self.end_ns(&self.case.start.host, last).max(root.end_unix_ns),
            clock_error_ns: settled.clock_error_ns,
            order_unknown: !flood && findings.order_unknown,
            root,
            vlrt: self.vlrt(flood, &best.place),
            sustained: self.sustained(&drops),
            hops,
            drops,
            alternatives: if flood { Vec::new() } else { findings.alternatives },
            also: if flood { Vec::new() } else { findings.also },
            do_now: None,
            against: if flood { Vec::new() } else { findings.against },
            context: findings.context,
            numbers: if flood { Vec::new() } else { findings.numbers },
        };
        let called = |host: &str, workload: &str| self.view.topology.called(host, workload);
        let called = Called(&called);
        incident.title = title(&incident, &called);
        incident.do_now = do_now(&incident, &called);
        Some((incident, settled))
    }

    /// The root of a flood: it came from outside to the tier that dropped, whatever else was short of something then.
    fn flooded(&self) -> Candidate {
        let counts = || self.case.drops.values();
        let packets = counts().fold(0u64, |sum, d| sum.saturating_add(d.count));
        let completed = counts().fold(0u64, |sum, d| sum.saturating_add(d.arrivals)).max(1);
        let episode = Episode {
            resource: Resource::Burst,
            first: self.case.at,
            last: counts().map(|d| d.last).max().unwrap_or(self.case.at).max(self.case.at),
            peak: (10.0 * packets as f64 / completed as f64).round() / 10.0,
            unit: "ratio",
            quality: quality::FLOOD,
            by_load: false,
            of_host: false,
            event_loop: None,
            lookups: None,
            lost: None,
            culprits: Vec::new(),
            why: "drops outnumber completed handshakes, the accept queue had room and no more requests were taken on: SYNs that nobody means to complete"
                .to_owned(),
        };
        Candidate {
            place: Place::Tier(self.case.start.clone()),
            episode,
            score: quality::FLOOD,
            rule: "by rule".to_owned(),
            against: Vec::new(),
            carried: false,
            before_batch: None,
        }
    }

    /// What is read from windows before each listener's first drop, while they are there.
    fn settle(&self, settled: &mut Settled) {
        for ((key, listener), count) in &self.case.drops {
            let at = if *key == self.case.start { self.case.at } else { count.first };
            settled
                .first_ns
                .entry((key.clone(), *listener))
                .or_insert_with(|| self.start_ns(&key.host, count.first));
            let Some(tier) = self.tier(key) else { continue };
            let node = || {
                self.view.node(key, tier, at, at.saturating_sub(PEAK_BEFORE), at.saturating_add(PEAK_AFTER))
            };
            if !settled.usual.contains_key(key) {
                let node = node();
                settled.usual.insert(key.clone(), usual(&node.tier.map(|s| s.arrivals), node.onset));
            }
            // Its peak may come up to two windows later.
            if self.now <= at.saturating_add(AFTER_WINDOWS) || !settled.grew.contains_key(key) {
                settled.grew.insert(key.clone(), node().growth.map_or(0.0, |g| g.rise()));
            }
        }
    }

    fn kind(&self, best: &Candidate, root: &Root, flood: bool) -> Kind {
        if flood {
            return Kind::SynFlood;
        }
        let persistent = root.resource != Resource::Unexplained
            && root.end_unix_ns.saturating_sub(root.start_unix_ns) > self.view.thresholds.persistent_ns;
        if self.case.drops.is_empty() {
            return match (self.case.near, persistent) {
                (true, _) => Kind::NearOverflow,
                (false, true) => Kind::PersistentBottleneck,
                (false, false) => Kind::Millibottleneck,
            };
        }
        if persistent {
            return Kind::PersistentBottleneck;
        }
        let Place::Tier(at) = &best.place else {
            // Unobserved, or its windows are missing: it is upstream of the drop if the chain goes up to it.
            return if self.diagnosis.above.as_ref() == Some(&best.place) {
                Kind::DownstreamCtqo
            } else {
                Kind::UpstreamCtqo
            };
        };
        let topology = self.view.topology;
        // What it wanted for, so did all of its host: who dropped there as well and has no part in its calls dropped beside it.
        let beside = |d: &TierKey| d.host == at.host && !topology.leads(d, at) && !topology.leads(at, d);
        let droppers: BTreeSet<&TierKey> =
            self.case.drops.keys().map(|(tier, _)| tier).filter(|d| *d != at && !beside(d)).collect();
        if droppers.iter().any(|d| topology.leads(d, at)) {
            Kind::UpstreamCtqo
        } else if droppers.iter().any(|d| topology.leads(at, d)) {
            Kind::DownstreamCtqo
        } else if best.before_batch.is_some() {
            // Neither calls the other: what it held back came down on them from above.
            Kind::DownstreamCtqo
        } else if !droppers.is_empty() {
            // Reached over a tier that nobody observes.
            Kind::UpstreamCtqo
        } else if topology.has_upstream(at) {
            Kind::DownstreamCtqo
        } else {
            Kind::LocalOverflow
        }
    }
}

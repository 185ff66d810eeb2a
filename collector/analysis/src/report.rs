//! From a case and its diagnosis to the incident that users read: kind, hops, drops, confidence and evidence.
//! Owns how findings are said; decides nothing about the root.

use crate::baseline::Baseline;
use crate::candidate::Candidate;
use crate::cases::Case;
use crate::chain::{Diagnosis, Place, View};
use crate::episode::drop::DropCount;
use crate::incident::{
    Alternative, Client, DropReason, Drops, Incident, Kind, Resource, Root, Severity, State, Vlrt, socket,
};
use crate::model::{EntityId, Host, WINDOW_NS, WindowIndex};
use crate::title::title;
use crate::topology::{Tier, TierKey};
use std::collections::{BTreeMap, BTreeSet};

/// Alternatives that are kept.
const ALTERNATIVES_MAX: usize = 4;
/// Observed clients that are listed.
const CLIENTS_MAX: usize = 16;
/// Fewer drops than this are no flood.
const FLOOD_DROPS: u64 = 50;

pub(crate) fn start_ns(window: u64) -> u64 {
    WindowIndex(window).start_unix_ns()
}

fn end_ns(window: u64) -> u64 {
    WindowIndex(window).end_unix_ns()
}

/// Everything needed to say what a case is.
pub(crate) struct Report<'a> {
    pub(crate) view: View<'a>,
    pub(crate) baselines: &'a BTreeMap<TierKey, Baseline>,
    pub(crate) case: &'a Case,
    pub(crate) diagnosis: &'a Diagnosis,
}

impl Report<'_> {
    /// The incident, without `version`.
    pub(crate) fn incident(&self, id: &str, closed: bool) -> Option<Incident> {
        let best = self.diagnosis.candidates.first()?;
        let drops = self.drops();
        let hops = self.hops(best);
        let flood = self.is_flood();
        let mut root = self.root(best);
        let mut confidence = best.score;
        if flood {
            root.resource = Resource::Burst;
            root.culprits.clear();
            root.evidence = "drops outnumber completed handshakes, the accept queue had room and no more requests were taken on: SYNs that nobody \
                             means to complete. Confidence 0.85 by rule"
                .to_owned();
            confidence = 0.85;
        }
        let kind = self.kind(best, &root, flood);
        let last = self.case.last_active.max(self.case.drops.values().map(|d| d.last).max().unwrap_or(0));
        let hosts: BTreeSet<&str> =
            hops.iter().map(|h| h.host.as_str()).chain(drops.iter().map(|d| d.host.as_str())).collect();
        let start =
            hops.iter().map(|h| h.onset_unix_ns).chain([root.start_unix_ns, start_ns(self.case.at)]).min()?;
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
            confidence,
            title: String::new(),
            start_unix_ns: start,
            end_unix_ns: end_ns(last).max(root.end_unix_ns),
            clock_error_ns: hosts.iter().map(|h| self.clock_error(h)).max().unwrap_or(0),
            root,
            vlrt: self.vlrt(flood),
            hops,
            drops,
            alternatives: self
                .diagnosis
                .candidates
                .iter()
                .skip(1)
                .filter(|c| !flood && c.score < confidence)
                .take(ALTERNATIVES_MAX)
                .map(|c| Alternative { root: self.root(c), confidence: c.score })
                .collect(),
        };
        incident.title = title(&incident, &self.names());
        Some(incident)
    }

    /// Command and host of each `host`, `workload` for people.
    fn names(&self) -> BTreeMap<(Host, String), String> {
        let short = |t: &Tier| if t.comm.is_empty() { t.name.clone() } else { t.comm.clone() };
        self.view
            .topology
            .tiers
            .iter()
            .map(|(k, t)| ((k.host.clone(), t.workload.clone()), short(t)))
            .collect()
    }

    fn clock_error(&self, host: &str) -> u64 {
        (self.case.at.saturating_sub(20)..=self.case.at)
            .filter_map(|i| self.view.history.window(host, i))
            .map(|w| w.clock_error_ns)
            .max()
            .unwrap_or(0)
    }

    pub(crate) fn tier(&self, key: &TierKey) -> Option<&Tier> {
        self.view.topology.tiers.get(key)
    }

    pub(crate) fn place(&self, place: &Place) -> (Host, String, String) {
        match place {
            Place::Tier(key) | Place::Missing(key) => {
                let tier = self.tier(key);
                (
                    key.host.clone(),
                    tier.map(|t| t.workload.clone()).unwrap_or_default(),
                    tier.map(|t| t.name.clone()).unwrap_or_default(),
                )
            }
            Place::Unobserved(address, port) => {
                (address.to_canonical().to_string(), String::new(), socket(*address, *port))
            }
        }
    }

    fn root(&self, candidate: &Candidate) -> Root {
        let (host, workload, tier) = self.place(&candidate.place);
        let episode = &candidate.episode;
        let mut evidence = episode.why.clone();
        let steps = self
            .diagnosis
            .path
            .iter()
            .skip(1)
            .map(|s| format!("; {} ({:.0} % of its caller's growth)", s.why, 100.0 * s.explains));
        evidence.extend(steps);
        if let (Place::Tier(key), Some(first)) = (&candidate.place, self.diagnosis.path.first()) {
            let apart = first.onset.abs_diff(episode.first).saturating_mul(WINDOW_NS);
            let start_host = self.case.start.host.as_str();
            let unknown = self
                .clock_error(&key.host)
                .saturating_add(self.clock_error(start_host))
                .saturating_add(WINDOW_NS);
            if key.host != start_host && apart <= unknown {
                evidence.push_str("; order unknown by the clocks, the flow of requests decides");
            }
        }
        evidence.push_str(&format!(". Confidence {:.2} = {}", candidate.score, candidate.rule));
        Root {
            host,
            workload,
            tier,
            resource: episode.resource,
            start_unix_ns: start_ns(episode.first),
            end_unix_ns: end_ns(episode.last),
            peak: (episode.peak * 1000.0).round() / 1000.0,
            unit: episode.unit.to_owned(),
            culprits: episode.culprits.clone(),
            evidence,
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
        let Place::Tier(at) = &best.place else { return Kind::UpstreamCtqo };
        let topology = self.view.topology;
        let droppers: BTreeSet<&TierKey> =
            self.case.drops.keys().map(|(tier, _)| tier).filter(|d| *d != at).collect();
        if droppers.iter().any(|d| topology.path(d, at).is_some()) {
            Kind::UpstreamCtqo
        } else if droppers.iter().any(|d| topology.path(at, d).is_some()) {
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

    /// More drops than completed handshakes, an accept queue with room and no growth of what was taken on.
    fn is_flood(&self) -> bool {
        let count: u64 = self.case.drops.values().fold(0, |sum, d| sum.saturating_add(d.count));
        let arrivals: u64 = self.case.drops.values().fold(0, |sum, d| sum.saturating_add(d.arrivals));
        count >= FLOOD_DROPS
            && arrivals < count
            && self.case.drops.values().all(|d| d.reason() == DropReason::SynQueueFull)
            && self.case.drops.keys().all(|(key, _)| self.grew_by(key) < 20.0)
    }

    fn grew_by(&self, key: &TierKey) -> f64 {
        let Some(tier) = self.tier(key) else { return 0.0 };
        let node = self.view.node(
            key,
            tier,
            self.case.at,
            self.case.at.saturating_sub(12),
            self.case.at.saturating_add(2),
        );
        node.growth.map_or(0.0, |g| g.rise())
    }

    fn drops(&self) -> Vec<Drops> {
        let mut drops: Vec<Drops> = self
            .case
            .drops
            .iter()
            .map(|((key, listener), count)| {
                let tier = self.tier(key);
                Drops {
                    host: key.host.clone(),
                    workload: tier.map(|t| t.workload.clone()).unwrap_or_default(),
                    tier: tier.map(|t| t.name.clone()).unwrap_or_default(),
                    listener: self.listener(key, *listener),
                    count: count.count,
                    connections: count.connections,
                    reason: count.reason(),
                    first_unix_ns: start_ns(count.first),
                    last_unix_ns: end_ns(count.last),
                }
            })
            .collect();
        drops.sort_by(|a, b| {
            (a.first_unix_ns, &a.host, &a.listener).cmp(&(b.first_unix_ns, &b.host, &b.listener))
        });
        drops
    }

    pub(crate) fn listener(&self, key: &TierKey, id: EntityId) -> String {
        let listener = self.view.history.hosts.get(&key.host).and_then(|h| h.listeners.get(&id));
        listener.map_or_else(String::new, |l| socket(l.address, l.port))
    }

    fn vlrt(&self, flood: bool) -> Vlrt {
        let connections = self.case.drops.values().fold(0u64, |sum, d| sum.saturating_add(d.connections));
        let mut clients: BTreeMap<String, u64> = BTreeMap::new();
        for (client, count) in &self.case.retransmits {
            let info = self.view.history.hosts.get(client).map(|h| &h.info);
            let address = info
                .and_then(|i| i.addresses.iter().find(|a| !a.is_loopback()))
                .map(|a| a.to_canonical().to_string());
            *clients.entry(address.unwrap_or_else(|| client.clone())).or_default() += count;
        }
        let mut clients: Vec<Client> =
            clients.into_iter().map(|(address, count)| Client { address, count }).collect();
        clients.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.address.cmp(&b.address)));
        Vlrt {
            syn_retransmits: (!self.case.retransmits.is_empty())
                .then(|| clients.iter().fold(0u64, |sum, c| sum.saturating_add(c.count))),
            // A flood's sources do not wait for an answer.
            expected: if flood { 0 } else { connections },
            clients: clients.into_iter().filter(|c| c.count > 0).take(CLIENTS_MAX).collect(),
        }
    }
}

/// Of all listeners, the count of one.
pub(crate) type DropCounts = BTreeMap<(TierKey, EntityId), DropCount>;

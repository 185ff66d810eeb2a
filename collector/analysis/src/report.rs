//! From a case and its diagnosis to the incident that users read: kind, hops, drops, confidence and evidence.
//! Owns how findings are said; decides nothing about the root.

use crate::baseline::Baseline;
use crate::candidate::Candidate;
use crate::cases::Case;
use crate::chain::{Diagnosis, Place, View};
use crate::episode::drop::DropCount;
use crate::incident::{
    Alternative, Client, DropReason, Drops, Incident, Kind, Order, Resource, Root, Severity, State, Vlrt,
    socket,
};
use crate::model::{EntityId, Host, WINDOW_NS};
use crate::order::{Between, order};
use crate::title::title;
use crate::topology::{Tier, TierKey};
use std::collections::{BTreeMap, BTreeSet};

/// Alternatives that are kept.
const ALTERNATIVES_MAX: usize = 4;
/// Observed clients that are listed.
const CLIENTS_MAX: usize = 16;
/// Fewer drops than this are no flood.
const FLOOD_DROPS: u64 = 50;

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
        let opened = self.start_ns(&self.case.start.host, self.case.at);
        let start = hops.iter().map(|h| h.onset_unix_ns).chain([root.start_unix_ns, opened]).min()?;
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
            end_unix_ns: self.end_ns(&self.case.start.host, last).max(root.end_unix_ns),
            clock_error_ns: hosts.iter().map(|h| self.view.clock_error(h, self.case.at)).max().unwrap_or(0),
            order_unknown: !flood && self.order_unknown(&best.place, root.start_unix_ns),
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

    /// When a host's window began, by the collector's clock.
    pub(crate) fn start_ns(&self, host: &str, window: u64) -> u64 {
        self.view.history.start_unix_ns(host, window)
    }

    fn end_ns(&self, host: &str, window: u64) -> u64 {
        self.start_ns(host, window).saturating_add(WINDOW_NS)
    }

    /// Whose windows a place's times are in: an unobserved one's are those of its caller.
    pub(crate) fn clock_host<'b>(&'b self, place: &'b Place) -> &'b str {
        match place {
            Place::Tier(key) | Place::Missing(key) => key.host.as_str(),
            Place::Unobserved(..) => {
                let path = &self.diagnosis.path;
                let above =
                    path.iter().position(|s| s.place == *place).and_then(|p| path.get(p.checked_sub(1)?));
                match above.map(|s| &s.place) {
                    Some(Place::Tier(key) | Place::Missing(key)) => key.host.as_str(),
                    _ => self.case.start.host.as_str(),
                }
            }
        }
    }

    /// How the clocks at two places stand to each other.
    pub(crate) fn between(&self, first: &Place, second: &Place) -> Between {
        self.view.between(self.clock_host(first), self.clock_host(second), self.case.at)
    }

    /// Whether clocks leave open if the root or the first tier of the chain was first.
    fn order_unknown(&self, root: &Place, root_start_ns: u64) -> bool {
        let Some(first) = self.diagnosis.path.first().filter(|s| s.place != *root) else { return false };
        if !matches!(root, Place::Tier(_)) || self.clock_host(root) == self.clock_host(&first.place) {
            return false;
        }
        let onset = self.start_ns(self.clock_host(&first.place), first.onset);
        order(root_start_ns, onset, self.between(root, &first.place)) == Order::Unknown
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
        let host_of = self.clock_host(&candidate.place).to_owned();
        let start_unix_ns = self.start_ns(&host_of, episode.first);
        if let Some(first) =
            self.diagnosis.path.first().filter(|_| self.order_unknown(&candidate.place, start_unix_ns))
        {
            let between = self.between(&candidate.place, &first.place);
            let how = if between.by_flow { "requests that both saw" } else { "round trips" };
            evidence.push_str(&format!(
                "; order unknown by the clocks, which agree within {:.1} ms by {how}, and windows of 50 ms: the flow of requests decides",
                between.error_ns as f64 / 1e6
            ));
        }
        evidence.push_str(&format!(". Confidence {:.2} = {}", candidate.score, candidate.rule));
        Root {
            host,
            workload,
            tier,
            resource: episode.resource,
            start_unix_ns,
            end_unix_ns: self.end_ns(&host_of, episode.last),
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
        let Place::Tier(at) = &best.place else {
            // Unobserved, or its windows are missing: it is upstream of the drop if the chain goes up to it.
            return if self.diagnosis.above.as_ref() == Some(&best.place) {
                Kind::DownstreamCtqo
            } else {
                Kind::UpstreamCtqo
            };
        };
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
                    sk_drops: Some(count.sk_drops),
                    connections: count.connections(),
                    reason: count.reason(),
                    first_unix_ns: self.start_ns(&key.host, count.first),
                    last_unix_ns: self.end_ns(&key.host, count.last),
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
        let very_long = self.case.drops.values().fold(0u64, |sum, d| sum.saturating_add(d.very_long()));
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
            expected: if flood { 0 } else { very_long },
            clients: clients.into_iter().filter(|c| c.count > 0).take(CLIENTS_MAX).collect(),
        }
    }
}

/// Of all listeners, the count of one.
pub(crate) type DropCounts = BTreeMap<(TierKey, EntityId), DropCount>;

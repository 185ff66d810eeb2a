//! From a case and its diagnosis to the incident that users read: kind, hops, drops, confidence and evidence.
//! Owns how findings are said; decides nothing about the root.

use crate::baseline::Baseline;
use crate::candidate::Candidate;
use crate::cases::Case;
use crate::chain::Diagnosis;
use crate::episode::drop::DropCount;
use crate::episode::queue::usual;
use crate::order::{Between, order};
use crate::step::Place;
use crate::title::title;
use crate::topology::{Tier, TierKey};
use crate::view::{AFTER_WINDOWS, View};
use std::collections::{BTreeMap, BTreeSet};
use tailwater_model::incident::{
    Alternative, Client, DropReason, Drops, Hop, Incident, Kind, Order, Resource, Root, Severity, State,
    Sustained, SustainedBy, Vlrt, socket,
};
use tailwater_model::window::{EntityId, Host, WINDOW_NS};

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
    pub(crate) now: u64,
}

/// What was said of a case while its windows were there, and is said for as long as it lives. Bounded by the hops that are listed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settled {
    /// Root, alternatives, and whether their order is open.
    findings: Option<Findings>,
    /// Tiers as they were in the first wave.
    pub(crate) hops: BTreeMap<Place, Hop>,
    /// Growth of the queues of tiers that dropped.
    grew: BTreeMap<TierKey, f64>,
    /// When listeners dropped first, ns.
    first_ns: BTreeMap<(TierKey, EntityId), u64>,
    /// First attempts a window before it began, of tiers that dropped.
    pub(crate) usual: BTreeMap<TierKey, f64>,
    clock_error_ns: u64,
    start_ns: Option<u64>,
    /// Whether the root was asked if it goes on.
    pub(crate) root_watched: bool,
    /// Whether the drops that retries kept alive have ceased: any that come now are waves of those who are left.
    pub(crate) waves_only: bool,
}

#[derive(Debug, Clone)]
struct Findings {
    root: Root,
    alternatives: Vec<Alternative>,
    order_unknown: bool,
}

impl Report<'_> {
    /// The incident, without `version`, and what of it is said for good.
    pub(crate) fn incident(&self, id: &str, closed: bool) -> Option<(Incident, Settled)> {
        let best = self.diagnosis.candidates.first()?;
        let mut settled = self.case.settled.clone();
        self.settle(&mut settled);
        let drops = self.drops(&settled);
        let hops = self.hops(best, &mut settled);
        let flood = self.is_flood(&settled);
        let findings = settled.findings.clone().unwrap_or_else(|| self.findings(best));
        let mut root = findings.root.clone();
        if let Some(last) = self.case.root_last().filter(|last| *last > best.episode.last) {
            root.end_unix_ns = root.end_unix_ns.max(self.end_ns(self.clock_host(&best.place), last));
        }
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
            confidence,
            title: String::new(),
            start_unix_ns: start,
            end_unix_ns: self.end_ns(&self.case.start.host, last).max(root.end_unix_ns),
            clock_error_ns: settled.clock_error_ns,
            order_unknown: !flood && findings.order_unknown,
            root,
            vlrt: self.vlrt(flood),
            sustained: self.sustained(&drops),
            hops,
            drops,
            alternatives: if flood { Vec::new() } else { findings.alternatives },
        };
        incident.title = title(&incident, &self.names());
        Some((incident, settled))
    }

    fn findings(&self, best: &Candidate) -> Findings {
        let root = self.root(best);
        let others = self.diagnosis.candidates.iter().skip(1).filter(|c| c.score < best.score);
        Findings {
            order_unknown: self.order_unknown(&best.place, root.start_unix_ns),
            alternatives: others
                .take(ALTERNATIVES_MAX)
                .map(|c| Alternative { root: self.root(c), confidence: c.score })
                .collect(),
            root,
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
            let node = || self.view.node(key, tier, at, at.saturating_sub(12), at.saturating_add(2));
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

    fn sustained(&self, drops: &[Drops]) -> Option<Sustained> {
        let (key, since, kept) = self.case.sustained.as_ref()?;
        let most = self.case.drops.iter().filter(|((k, _), _)| k == key).max_by_key(|(_, d)| d.count);
        let ((_, listener), count) = most?;
        let listener = self.listener(key, *listener);
        let workload = self.tier(key).map(|t| t.workload.clone()).unwrap_or_default();
        let out = kept.way_out(count.limit);
        let rate = |value: f64| (value * 10.0).round() / 10.0;
        let usual = self.case.settled.usual.get(key).map(|u| rate(u * 1e9 / WINDOW_NS as f64));
        let share = (kept.share * 100.0).round() / 100.0;
        let packets = drops.iter().fold(0u64, |sum, d| sum.saturating_add(d.count));
        let way_out = format!(
            "below {:.0} requests/s for {} s, or with an accept queue of {} (it is {})",
            out.below, out.for_s, out.queue, count.limit
        );
        let before = usual.map_or_else(String::new, |u| format!(" ({u:.0} before it began)"));
        let evidence = format!(
            "the root is over, and {packets} packets are dropped by now: of {:.0} connection attempts a second {:.0} % had been dropped before \
             and came again; first attempts alone are {:.0} a second{before}, {:.0} a second are answered, and up to {:.0} wait to come again",
            kept.attempts,
            100.0 * share,
            kept.first,
            kept.capacity,
            kept.waiting
        );
        Some(Sustained {
            by: SustainedBy::Retries,
            since_unix_ns: self.start_ns(&key.host, *since),
            until_unix_ns: self.end_ns(&key.host, kept.last),
            retry_share: share,
            attempts_per_second: rate(kept.attempts),
            first_attempts_per_second: rate(kept.first),
            capacity_per_second: rate(kept.capacity),
            usual_per_second: usual,
            host: key.host.clone(),
            workload,
            listener,
            queue_needed: out.queue,
            load_below_per_second: out.below,
            load_below_for_s: out.for_s,
            way_out,
            evidence,
        })
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
        let steps = self.diagnosis.path.iter().skip(1).map(|s| match s.explains {
            explained if explained > 0.0 => {
                format!("; {} ({:.0} % of its caller's {})", s.why, 100.0 * explained, s.part_of)
            }
            // Where calls are not measured nothing of it is explained by them.
            _ => format!("; {}", s.why),
        });
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
    fn is_flood(&self, settled: &Settled) -> bool {
        let count: u64 = self.case.drops.values().fold(0, |sum, d| sum.saturating_add(d.count));
        let arrivals: u64 = self.case.drops.values().fold(0, |sum, d| sum.saturating_add(d.arrivals));
        count >= FLOOD_DROPS
            && arrivals < count
            && self.case.drops.values().all(|d| d.reason() == DropReason::SynQueueFull)
            && self.case.drops.keys().all(|(key, _)| settled.grew.get(key).is_none_or(|grew| *grew < 20.0))
    }

    fn drops(&self, settled: &Settled) -> Vec<Drops> {
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
                    // Each had a packet dropped; before the last window is whole, the estimate may be ahead of the count.
                    connections: count.connections().min(count.count),
                    reason: count.reason(),
                    first_unix_ns: settled.first_ns.get(&(key.clone(), *listener)).copied().unwrap_or(0),
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

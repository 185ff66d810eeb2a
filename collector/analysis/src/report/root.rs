//! Root and alternatives of an incident as they are told, with the evidence for each. Owns their words; decides nothing about which is the
//! root.

use super::Report;
use super::confidence::{confidence, numbers, what_is_left};
use super::title::Called;
use crate::case::settled::Findings;
use crate::episode::Lost;
use crate::path::candidate::Candidate;
use crate::path::order::order;
use crate::path::step::Place;
use crate::series::EDGE_WINDOWS;
use crate::series::growth::LEAD_WINDOWS;
use crate::topology::graph::Link;
use crate::topology::tier::{Tier, TierKey};
use std::collections::BTreeSet;
use tailwater_model::incident::{
    Also, Alternative, LockHolder, LockThread, Locks, LostPackets, Order, Replicas, Resource, Root,
    Saturated, ThreadLock,
};
use tailwater_model::window::{Blocking, EntityId, HostWindow, LockedThreads};

/// Alternatives that are kept.
const ALTERNATIVES_MAX: usize = 4;

impl Report<'_> {
    /// What is told of the candidates, `best` being the root.
    pub(super) fn findings(&self, best: &Candidate) -> Findings {
        // The evidence is of the first candidate. A flood of SYNs is told in its place, and knows none of it.
        let of_root = self.diagnosis.candidates.first().is_some_and(|first| std::ptr::eq(first, best));
        let known = self.diagnosis.evidence.as_ref().filter(|_| of_root);
        let learnt = known.and_then(confidence);
        let sure = learnt.unwrap_or(best.score);
        let mut root = self.root(best);
        root.replicas = self.replicas(&best.place);
        if let Some(locks) = &root.locks {
            root.evidence.push_str(&format!("; {}", locks.told()));
        }
        if let Some(lock) = &root.lock {
            root.evidence.push_str(&format!("; {}", lock.told()));
        }
        let rule = match learnt {
            Some(_) => {
                format!(". Score {:.2} = {}. Confidence {sure:.2} by recordings", best.score, best.rule)
            }
            None => format!(". Confidence {sure:.2} = {}", best.rule),
        };
        let others = self.diagnosis.candidates.iter().skip(1).filter(|c| c.score < best.score);
        let other = |c: &Candidate| {
            let mut root = self.root(c);
            let (called, confidence) = match learnt {
                Some(_) => ("Score", what_is_left(sure, c.score / best.score)),
                None => ("Confidence", c.score),
            };
            root.evidence.push_str(&format!(". {called} {:.2} = {}", c.score, c.rule));
            Alternative { root, confidence }
        };
        Findings {
            order_unknown: self.order_unknown(&best.place, root.start_unix_ns),
            also: if of_root { self.also() } else { Vec::new() },
            alternatives: others.take(ALTERNATIVES_MAX).map(other).collect(),
            confidence: sure,
            against: best.against.clone(),
            context: self
                .context(&best.place, &Called(&|host, workload| self.view.topology.called(host, workload))),
            numbers: known.map(numbers).unwrap_or_default(),
            root,
            rule,
        }
    }

    /// Further causes of the same overflow.
    fn also(&self) -> Vec<Also> {
        let told = |also: &crate::path::candidate::Also| Also {
            root: Root { evidence: also.candidate.episode.why.clone(), ..self.root(&also.candidate) },
            share: (also.share * 100.0).round() / 100.0,
        };
        self.diagnosis.also.iter().map(told).collect()
    }

    /// Who does the same as a tier for the same callers: servers behind the same address, or of the same name and port, that one of its callers has
    /// connections to. Hit is whose queue grew about as much.
    fn replicas(&self, place: &Place) -> Option<Replicas> {
        let Place::Tier(key) = place else { return None };
        let topology = self.view.topology;
        let tier = self.tier(key).filter(|tier| !tier.name.is_empty())?;
        let ports = |of: &Tier| of.listeners.iter().map(|listener| listener.port).collect::<BTreeSet<u16>>();
        let is_named_so = |of: &Tier| of.name == tier.name && !ports(of).is_disjoint(&ports(tier));
        let dials: BTreeSet<_> = topology.up(key).map(|link| (&link.from, link.remote)).collect();
        let is_alike = |link: &&Link| {
            let Some(other) = &link.to else { return false };
            let is_seen = self.view.history.window(&other.host, self.at(&other.host)).is_some();
            let is_behind_it = dials.contains(&(&link.from, link.remote));
            is_seen && (is_behind_it || self.tier(other).is_some_and(is_named_so))
        };
        let has_connections = |link: &&Link| {
            let now = self.at(&link.from.host);
            self.view
                .calls(link, now)
                .range(now.saturating_sub(LEAD_WINDOWS), now)
                .any(|(_, s)| s.open_max > 0)
        };
        let callers: BTreeSet<&TierKey> = topology.up(key).map(|link| &link.from).collect();
        let called = callers.into_iter().flat_map(|from| topology.down(from));
        let links = called.filter(is_alike).filter(has_connections);
        let mut members: BTreeSet<&TierKey> = links.filter_map(|link| link.to.as_ref()).collect();
        members.insert(key);
        if members.len() == 1 {
            return None;
        }
        let rise = |of: &TierKey| {
            self.view.around(of, self.at(&of.host)).and_then(|node| node.growth).map_or(0.0, |g| g.rise())
        };
        let own = rise(key);
        let hit = members.iter().filter(|of| **of == key || 2.0 * rise(of) >= own.max(1.0)).count();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Some(Replicas { members: count(members.len()), hit: count(hit) })
    }

    /// What was told of locks at a tier that stood, of the time in which it did: with its host, and with the window in which it was asked. `at`: its
    /// listener, and how many windows later it was told.
    fn of_locks<'c, T>(
        &self,
        candidate: &'c Candidate,
        all: impl Fn(&HostWindow) -> &[T],
        at: impl Fn(&T) -> (EntityId, u32),
    ) -> Option<(&'c str, Vec<(u64, &T)>)> {
        let Place::Tier(key) = &candidate.place else { return None };
        let stands = [Resource::Lock, Resource::Unexplained].contains(&candidate.episode.resource);
        let tier = self.tier(key).filter(|_| stands)?;
        let (first, last) = (candidate.episode.first, candidate.episode.last.saturating_add(EDGE_WINDOWS));
        let windows = self.view.history.windows_of(&key.host);
        let mut found = Vec::new();
        for window in (first..=self.now).filter_map(|index| windows.at(index)) {
            for of in all(window) {
                let (listener, ago) = at(of);
                let asked = window.index.0.saturating_sub(ago.into());
                if (first..=last).contains(&asked) && tier.listeners.iter().any(|l| l.id == listener) {
                    found.push((asked, of));
                }
            }
        }
        Some((key.host.as_str(), found))
    }

    /// The lock inside of a server that its threads waited for while it stood: of several looks the one that found most of them.
    fn lock(&self, candidate: &Candidate) -> Option<ThreadLock> {
        let at = |of: &LockedThreads| (of.listener, of.windows_ago);
        let (host, all) = self.of_locks(candidate, |window| &window.locked_threads, at)?;
        let (looked, most) = all.into_iter().max_by_key(|(_, of)| (of.waiting, of.holder.is_some()))?;
        let holder = most.holder.as_ref().map(|by| LockThread {
            thread: by.thread,
            comm: by.comm.clone(),
            ran: by.runs,
            slept_in: by.slept_in.clone(),
        });
        let (waiting, threads) = (most.waiting, most.threads);
        Some(ThreadLock { looked_unix_ns: self.start_ns(host, looked), waiting, threads, holder })
    }

    /// What a database said of its locks while it stood: of several answers the one that names whoever most waited for.
    fn locks(&self, candidate: &Candidate) -> Option<Locks> {
        let at = |of: &Blocking| (of.listener, of.windows_ago);
        let (host, all) = self.of_locks(candidate, |window| &window.blockings, at)?;
        let most = |(_, of): &(u64, &Blocking)| (of.blockers.first().map_or(0, |by| by.waiting), of.waiting);
        let (asked, most) = all.into_iter().max_by_key(most)?;
        let holder = most.blockers.first().map(|by| LockHolder {
            connection: by.connection,
            waiting: by.waiting,
            idle: by.idle,
            held_ms: by.held_ms,
            statement: by.statement.clone(),
        });
        Some(Locks { asked_unix_ns: self.start_ns(host, asked), waiting: most.waiting, holder })
    }

    /// What a burst used up first: of the tiers whose own load took all of their CPU as it had come, the one that was full first.
    fn saturated(&self, burst: &Candidate) -> Option<Saturated> {
        let is_cpu = |of: Resource| matches!(of, Resource::Cpu | Resource::CpuThrottled);
        let carried = |c: &&Candidate| c.carried && c.episode.by_load && is_cpu(c.episode.resource);
        if burst.episode.resource != Resource::Burst {
            return None;
        }
        let all = self.diagnosis.candidates.iter().filter(carried);
        let first = all.min_by_key(|c| self.start_ns(self.clock_host(&c.place), c.episode.first))?;
        let (host, workload, tier) = self.place(&first.place);
        let start_unix_ns = self.start_ns(self.clock_host(&first.place), first.episode.first);
        Some(Saturated { host, workload, tier, resource: first.episode.resource, start_unix_ns })
    }

    /// With the names of the other end.
    fn lost_packets(&self, lost: &Lost) -> LostPackets {
        let (host, workload, tier) = self.place(&Place::Tier(lost.to.clone()));
        LostPackets { host, workload, tier, calls: lost.calls, resent: lost.resent }
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
            event_loop: episode.event_loop.clone(),
            lookups: episode.lookups.clone(),
            lost: episode.lost.as_ref().map(|lost| self.lost_packets(lost)),
            locks: self.locks(candidate),
            lock: self.lock(candidate),
            replicas: None,
            saturated: self.saturated(candidate),
            // It goes on coming when all else is settled.
            code: Vec::new(),
            evidence,
        }
    }
}

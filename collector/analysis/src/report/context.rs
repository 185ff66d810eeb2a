//! What else happened on an incident's way around its onset, told beside the root because it may have had a part in it: packets that were lost
//! between two tiers, servers that were started anew, accept queues and CPU quotas that were set to another limit, what the kernel counted of its network
//! and its memory, and machines that stood or whose clock was set. Owns what is worth a clause; decides nothing about the root.

use super::Report;
use super::title::Called;
use crate::path::step::{Place, Step};
use crate::series::growth::PAST_WINDOWS;
use crate::series::mean;
use crate::topology::graph::Link;
use crate::topology::tier::TierKey;
use tailwater_model::civil::Civil;
use tailwater_model::window::{KernelCounter, WINDOW_NS};

/// Segments of calls that are sent again before and while a queue grows: looked at from this many windows before its onset (1 s) …
const LOST_BEFORE: u64 = 20;
/// … of an end that no agent sees until so many after the drop (400 ms), as what is lost is sent again after half of that …
const LOST_AFTER: u64 = 8;
/// … and worth telling from so many on, …
const LOST_LEAST: u64 = 5;
/// … if they are so many times what was usual in the seconds before.
const LOST_TIMES: f64 = 4.0;
/// What the kernel counts is told with the second in which it rose: of one that the onset fell into, or that came right before it.
const COUNTED_BEFORE: u64 = 40;
/// What was usual of it is asked of so many windows (10 s) before, …
const COUNTED_USUAL: u64 = 200;
/// … of which so many must be known: an agent that has just begun has read nothing yet.
const COUNTED_PAST: u64 = 60;
/// Worth telling is so many times as much.
const COUNTED_TIMES: f64 = 4.0;
/// A machine that stood so many windows (2 s) before an onset, or meanwhile, may have to do with it.
const CLOCK_BEFORE: u64 = 40;
/// A limit that was changed so many windows (5 s) before the onset may have to do with it.
const CHANGED_BEFORE: u64 = 100;
/// It may become known so much later (1 s): agents look once a second at quotas that there are, and every ten seconds for new ones.
const KNOWN_AFTER: u64 = 20;
/// A server that was started so many windows (30 s) before the onset may still be compiling, filling its caches and its pools.
const STARTED_BEFORE: u64 = 600;

/// A count of the kernel that may matter to those who wait.
struct Worth {
    counter: KernelCounter,
    /// Worth telling from so many on.
    least: u64,
    /// What it means, of a `HOST`.
    words: &'static str,
}

/// All of them. A queue of received packets that is served late, and a receiver that tells its sender to stop, happen a few times wherever much is sent.
const WORTH: [Worth; 9] = [
    Worth {
        counter: KernelCounter::ConntrackDropped,
        least: 5,
        words: "connection tracking of HOST dropped packets, as where its table is full (nf_conntrack_max)",
    },
    Worth {
        counter: KernelCounter::BacklogDropped,
        least: 5,
        words: "HOST dropped packets before it looked at them, as its queue of received ones was full (netdev_max_backlog)",
    },
    Worth {
        counter: KernelCounter::BacklogSqueezed,
        least: 20,
        words: "a CPU of HOST had more received packets than it could look at in one turn (netdev_budget)",
    },
    Worth {
        counter: KernelCounter::ZeroWindow,
        least: 10,
        words: "receivers on HOST told their senders to stop, because nobody read what had come (zero window)",
    },
    Worth {
        counter: KernelCounter::ReceiveBufferFull,
        least: 5,
        words: "HOST dropped segments whose sockets had no room left in their receive buffers (tcp_rmem)",
    },
    Worth {
        counter: KernelCounter::TcpMemoryShort,
        least: 1,
        words: "TCP on HOST was short of memory (tcp_mem)",
    },
    Worth {
        counter: KernelCounter::DeviceDropped,
        least: 5,
        words: "network devices of HOST did not send packets that they were given",
    },
    Worth {
        counter: KernelCounter::QdiscDropped,
        least: 5,
        words: "HOST dropped packets that were to be sent, as a queue for them was full or sends no faster (tc -s qdisc)",
    },
    Worth {
        counter: KernelCounter::CompactionStalled,
        least: 5,
        words: "tasks on HOST had to compact memory before they got any",
    },
];

impl Report<'_> {
    /// In clauses, along the way from whoever called the first tier down to the root.
    pub(super) fn context(&self, root: &Place, called: &Called<'_>) -> Vec<String> {
        let mut clauses = Vec::new();
        let Some(end) = self.diagnosis.path.iter().position(|step| step.place == *root) else {
            return clauses;
        };
        let way = || self.diagnosis.path.iter().take(end + 1);
        for step in way() {
            let Place::Tier(key) = &step.place else { continue };
            clauses.extend(self.begun_anew(key, step.onset, called));
            clauses.extend(self.changed(key, step.onset, called));
            clauses.extend(self.quota_changed(key, step.onset, called));
        }
        if let Some(Step { place: Place::Tier(first), onset, .. }) = way().next() {
            clauses.extend(self.view.topology.up(first).filter_map(|link| self.lost(link, *onset, called)));
        }
        for (from, to) in way().zip(way().skip(1)) {
            let Place::Tier(caller) = &from.place else { continue };
            // Of an end that no agent sees this is all that is known.
            let leads_there = |link: &&Link| match &to.place {
                Place::Tier(key) | Place::Missing(key) => link.to.as_ref() == Some(key),
                Place::Unobserved(address, port) => link.to.is_none() && link.remote == (*address, *port),
            };
            let links = self.view.topology.down(caller).filter(leads_there);
            clauses.extend(links.filter_map(|link| self.lost(link, from.onset, called)));
        }
        let mut hosts: Vec<(&str, u64)> = Vec::new();
        for step in way() {
            let Place::Tier(key) = &step.place else { continue };
            match hosts.iter_mut().find(|(host, _)| *host == key.host) {
                Some((_, onset)) => *onset = step.onset.min(*onset),
                None => hosts.push((&key.host, step.onset)),
            }
        }
        clauses.extend(hosts.iter().flat_map(|(host, onset)| self.counted(host, *onset)));
        clauses.extend(hosts.iter().flat_map(|(host, onset)| self.stood(host, *onset)));
        clauses
    }

    /// What the kernel of a host counted around an onset, where that is more than ever.
    fn counted(&self, host: &str, onset: u64) -> Vec<String> {
        let (from, to) = (onset.saturating_sub(COUNTED_BEFORE), self.at(host).max(onset));
        let windows = self.view.history.windows_of(host);
        let all = (from.saturating_sub(COUNTED_USUAL)..=self.now).filter_map(|index| windows.at(index));
        let (mut told, mut past) = (Vec::new(), 0);
        for window in all {
            past += u64::from(window.index.0 < from);
            told.extend(window.kernel_counts.iter().map(|count| (count.span(window.index), count)));
        }
        // Of whom little is remembered nobody knows what is usual.
        if past < COUNTED_PAST {
            return Vec::new();
        }
        let clause = |worth: &Worth| {
            let counter = worth.counter;
            let own = || told.iter().filter(move |(_, of)| of.counter == counter);
            let during = || own().filter(move |((first, last), _)| *last >= from && *first <= to);
            let count = during().fold(0_u64, |sum, (_, of)| sum.saturating_add(of.count));
            let begun = during().map(|((first, _), _)| *first).min()?;
            let ended = during().map(|((_, last), _)| *last).max()?;
            let before = own().filter(move |((_, last), _)| *last < from);
            let usually = before.fold(0_u64, |sum, (_, of)| sum.saturating_add(of.count));
            // Nothing is told of seconds in which it did not rise: they count here as there.
            let windows = ended.saturating_sub(begun).max(to.saturating_sub(from)).saturating_add(1);
            let rate = |sum: u64, windows: u64| sum as f64 / windows as f64;
            if count < worth.least || rate(count, windows) < COUNTED_TIMES * rate(usually, past) {
                return None;
            }
            let when = self.when(host, begun, ended);
            Some(format!("{}: {count} {when}", worth.words.replace("HOST", host)))
        };
        WORTH.iter().filter_map(clause).collect()
    }

    /// Whether a host's clock was set around an onset, or its agent could not read windows for so long that they are gone: what a machine that was paused
    /// finds when it goes on.
    fn stood(&self, host: &str, onset: u64) -> Vec<String> {
        let windows = self.view.history.windows_of(host);
        let around = || {
            let last = self.at(host).max(onset).saturating_add(KNOWN_AFTER).min(self.now);
            (onset.saturating_sub(CLOCK_BEFORE)..=last).filter_map(|index| windows.at(index))
        };
        let time = |at: u64| Civil::of(self.start_ns(host, at)).time_ms();
        let set = around().find(|window| window.clock_corrected).map(|window| {
            let at = time(window.index.0);
            format!("the clock of {host} was set at about {at}, as after a pause of its machine")
        });
        let lost = around().find(|window| window.lost_before > 0).map(|window| {
            let (at, ms) = (time(window.index.0), window.lost_before.saturating_mul(WINDOW_NS / 1_000_000));
            format!("the agent of {host} did not run for {ms} ms and more before {at}, as where its machine was paused or its CPUs were taken")
        });
        set.into_iter().chain(lost).collect()
    }

    /// Whether segments of the calls along a link were lost. What a full accept queue drops is sent again as well, and is told as drops.
    fn lost(&self, link: &Link, onset: u64, called: &Called<'_>) -> Option<String> {
        let dropped = |to: &TierKey| self.case.drops.keys().any(|(tier, _)| tier == to);
        // Behind one address there may be several, and it is not told to whom what was sent again went.
        let mut alike = self.view.topology.to_same_address(link);
        if alike.any(|other| other.to.as_ref().is_some_and(dropped)) {
            return None;
        }
        let host = &link.from.host;
        let at = self.at(host);
        let calls = self.view.calls(link, at);
        let after = if link.to.is_none() { LOST_AFTER } else { 0 };
        let (from, to) =
            (onset.saturating_sub(LOST_BEFORE), at.max(onset).saturating_add(after).min(self.now));
        let sum = |from, to| {
            let all = calls.range(from, to);
            all.fold((0_u64, 0_usize), |(sum, count), (_, s)| {
                (sum.saturating_add(s.data_retransmits), count + 1)
            })
        };
        let (lost, windows) = sum(from, to);
        let (usually, before) = sum(calls.first, from.saturating_sub(1));
        let rate = |sum: u64, count: usize| sum as f64 / count.max(1) as f64;
        // Of whom little is remembered nobody knows what is usual.
        if lost < LOST_LEAST
            || before < PAST_WINDOWS
            || rate(lost, windows) < LOST_TIMES * rate(usually, before)
        {
            return None;
        }
        let when = self.when(host, from, to);
        Some(format!(
            "{lost} segments from {} to {} were sent again {when}, as where packets are lost on the way",
            self.name(&link.from, called),
            link.to.as_ref().map_or_else(|| link.remote.0.to_string(), |to| self.name(to, called))
        ))
    }

    /// Whether a tier was started anew: another process listens than did, by what its agent says of the owners of sockets.
    fn begun_anew(&self, key: &TierKey, onset: u64, called: &Called<'_>) -> Option<String> {
        let host = self.view.history.hosts.get(&key.host)?;
        let listeners = self.tier(key)?.listeners.iter();
        let begun = listeners.filter_map(|listener| host.begun_anew(listener.id)).max()?;
        let may_matter = onset.saturating_sub(STARTED_BEFORE)..=self.case.at.max(onset);
        may_matter.contains(&begun.at).then(|| {
            let time = Civil::of(self.end_ns(&key.host, begun.at)).time_ms();
            let name = self.name(key, called);
            let how = if begun.with_another {
                "of another program, with other arguments or in another folder, as after a deploy"
            } else {
                "as after a restart"
            };
            format!("another process began to listen as {name} before {time}, {how}")
        })
    }

    /// Whether the limit of a tier's accept queue was changed. Of several listeners the quiet ones are in no window, so that nothing is known there.
    fn changed(&self, key: &TierKey, onset: u64, called: &Called<'_>) -> Option<String> {
        let tier = self.tier(key).filter(|tier| tier.listeners.len() == 1)?;
        let last = self.case.at.max(onset);
        let series = self.view.tier_series(&key.host, tier, onset.saturating_sub(CHANGED_BEFORE), last);
        let mut limits = series.range(series.first, last).filter(|(_, s)| s.limit > 0);
        let (_, before) = limits.next()?;
        let (at, after) = limits.find(|(_, s)| s.limit != before.limit)?;
        Some(format!(
            "the accept queue of {} was set from {} to {} before {}",
            self.name(key, called),
            before.limit,
            after.limit,
            Civil::of(self.end_ns(&key.host, at)).time_ms()
        ))
    }

    /// Whether the CPU quota of a tier was changed: the newest change that was known by the onset, else the first one after it.
    fn quota_changed(&self, key: &TierKey, onset: u64, called: &Called<'_>) -> Option<String> {
        let host = self.view.history.hosts.get(&key.host)?;
        let last = self.case.at.max(onset).saturating_add(KNOWN_AFTER);
        let known = onset.saturating_sub(CHANGED_BEFORE)..=last;
        let changes = host.quota_changes(key.workload).filter(|change| known.contains(&change.at));
        let (before, after): (Vec<_>, Vec<_>) = changes.partition(|change| change.at <= onset);
        let change = before.last().or_else(|| after.first())?;
        let cpus = |ns: u64| if ns == 0 { "none".to_owned() } else { format!("{:.2} CPUs", mean(ns)) };
        Some(format!(
            "the CPU quota of {} was set from {} to {} before {}",
            self.name(key, called),
            cpus(change.before_ns),
            cpus(change.after_ns),
            Civil::of(self.end_ns(&key.host, change.at)).time_ms()
        ))
    }

    /// From the begin of one window to the end of another.
    fn when(&self, host: &str, first: u64, last: u64) -> String {
        let [first, last] =
            [self.start_ns(host, first), self.end_ns(host, last)].map(|at| Civil::of(at).time_ms());
        format!("from {first} to {last}")
    }

    fn name(&self, key: &TierKey, called: &Called<'_>) -> String {
        let (host, workload, tier) = self.place(&Place::Tier(key.clone()));
        called.name(&host, &workload, &tier)
    }
}

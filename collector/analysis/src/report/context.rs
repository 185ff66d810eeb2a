//! What else happened on an incident's way around its onset, told beside the root because it may have had a part in it: packets that were lost
//! between two tiers, servers that were started anew, and accept queues whose limit was changed. Owns what is worth a clause; decides nothing about the root.

use super::Report;
use super::title::Called;
use crate::path::step::{Place, Step};
use crate::series::growth::PAST_WINDOWS;
use crate::topology::graph::Link;
use crate::topology::tier::TierKey;
use tailwater_model::civil::Civil;

/// Segments of calls that are sent again before and while a queue grows: looked at from this many windows before its onset (1 s) …
const LOST_BEFORE: u64 = 20;
/// … and worth telling from so many on, …
const LOST_LEAST: u64 = 5;
/// … if they are so many times what was usual in the seconds before.
const LOST_TIMES: f64 = 4.0;
/// A limit that was changed so many windows (5 s) before the onset may have to do with it.
const CHANGED_BEFORE: u64 = 100;
/// A server that was started so many windows (30 s) before the onset may still be compiling, filling its caches and its pools.
const STARTED_BEFORE: u64 = 600;

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
        }
        if let Some(Step { place: Place::Tier(first), onset, .. }) = way().next() {
            clauses.extend(self.view.topology.up(first).filter_map(|link| self.lost(link, *onset, called)));
        }
        for (from, to) in way().zip(way().skip(1)) {
            let (Place::Tier(caller), Place::Tier(to)) = (&from.place, &to.place) else { continue };
            let links = self.view.topology.down(caller).filter(|link| link.to.as_ref() == Some(to));
            clauses.extend(links.filter_map(|link| self.lost(link, from.onset, called)));
        }
        clauses
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
        let (from, to) = (onset.saturating_sub(LOST_BEFORE), at.max(onset));
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
        let when = [self.start_ns(host, from), self.end_ns(host, to)];
        let [first, last] = when.map(|unix_ns| Civil::of(unix_ns).time_ms());
        Some(format!(
            "{lost} segments from {} to {} were sent again from {first} to {last}, as where packets are lost on the way",
            self.name(&link.from, called),
            link.to.as_ref().map_or_else(|| link.remote.0.to_string(), |to| self.name(to, called))
        ))
    }

    /// Whether a tier was started anew: another process listens than did, by what its agent says of the owners of sockets.
    fn begun_anew(&self, key: &TierKey, onset: u64, called: &Called<'_>) -> Option<String> {
        let host = self.view.history.hosts.get(&key.host)?;
        let listeners = self.tier(key)?.listeners.iter();
        let at = listeners.filter_map(|listener| host.begun_anew(listener.id)).max()?;
        let may_matter = onset.saturating_sub(STARTED_BEFORE)..=self.case.at.max(onset);
        may_matter.contains(&at).then(|| {
            let time = Civil::of(self.end_ns(&key.host, at)).time_ms();
            let name = self.name(key, called);
            format!("another process began to listen as {name} before {time}, as after a restart")
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

    fn name(&self, key: &TierKey, called: &Called<'_>) -> String {
        let (host, workload, tier) = self.place(&Place::Tier(key.clone()));
        called.name(&host, &workload, &tier)
    }
}

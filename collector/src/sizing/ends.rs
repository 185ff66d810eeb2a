//! Where throughput ends: which hardware of a front's tiers was full in the seconds in which something always was. Owns which seconds those
//! are, what is remembered of them and its words; which resource is critical is decided by `tailwater_sizing::allocation`.

use super::hosts::Hosts;
use super::moment::Moment;
use super::names::needed;
use super::second::own_taints;
use super::taint::Taint;
use super::who::{Server, Who};
use crate::text::span;
use std::collections::{BTreeMap, BTreeSet};
use tailwater_model::advice::{ResourceUse, SystemAdvice};
use tailwater_sizing::allocation::{Resource, critical_resource};
use tailwater_sizing::evidence::Refusal;

/// Part of a second's windows in which something must be full. Throughput then ends there, be it at one resource or at several by turns; a
/// millibottleneck in traffic that is carried is shorter.
const ENDED_PART: f64 = 0.75;
/// What was seen weighs half after so many such seconds: another version or mix of requests is told within minutes of full load.
const HALVED_S: f64 = 300.0;
/// Such seconds that are needed before anything is said: shares of the time by turns are then known to some percent.
const NEEDED_S: f64 = 10.0;
/// Part of the time from which a resource is named where none is critical.
const OFTEN_PART: f64 = 0.1;
/// Fronts that are remembered.
const FRONTS_MAX: usize = 300;
/// Servers behind one front.
const SERVERS_MAX: usize = 64;
/// A front that answered nothing at its end for a day is forgotten, windows.
const FORGET_WINDOWS: u64 = 1_728_000;

/// What can be full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hardware {
    Cpu,
    Disk,
}

/// What is remembered of one resource, over seconds that weigh the less the older they are.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    seconds: f64,
    used: f64,
    full: f64,
}

/// One front.
#[derive(Debug, Default)]
struct End {
    /// Last window that was judged: several listeners of a front have the same seconds.
    judged: u64,
    seconds: f64,
    /// By tier: servers that are alike share the load.
    of: BTreeMap<(String, Hardware), Sums>,
}

/// All fronts.
#[derive(Debug, Default)]
pub(super) struct Ends {
    by_front: BTreeMap<Server, End>,
}

impl Hardware {
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Disk => "disk",
        }
    }
}

impl Ends {
    /// Takes the windows from `first` to `last` of all that is behind `front`, if it is one and throughput was at its end in them.
    pub(super) fn take(&mut self, hosts: &Hosts, who: &Who, front: &Server, first: u64, last: u64) {
        if !who.is_front(front) {
            return;
        }
        if self.by_front.len() >= FRONTS_MAX && !self.by_front.contains_key(front) {
            return;
        }
        let end = self.by_front.entry(front.clone()).or_default();
        if last <= end.judged {
            return;
        }
        end.judged = last;
        if let Some(used) = used(hosts, who, front, first, last) {
            end.add(&used);
        }
    }

    /// Forgets fronts that are gone, or whose throughput was not seen at its end for long.
    pub(super) fn forget(&mut self, newest: u64) {
        self.by_front.retain(|_, end| newest.saturating_sub(end.judged) < FORGET_WINDOWS);
    }

    /// Of each front whose throughput was at its end.
    pub(super) fn told(&self, who: &Who) -> Vec<(&Server, SystemAdvice)> {
        let known = self.by_front.iter().filter(|(_, end)| end.seconds >= NEEDED_S);
        known.map(|(front, end)| (front, end.told(format!("{}@{}", who.tier(front), front.0)))).collect()
    }

    /// Why no single size is right for this server: it takes turns with others, or is full with them at once.
    pub(super) fn several(&self, who: &Who, server: &Server) -> Option<Refusal> {
        let tier = who.tier(server);
        who.fronts(server).iter().find_map(|front| {
            let end = self.by_front.get(front).filter(|end| end.seconds >= NEEDED_S)?;
            let several = critical_resource(&end.resources().1).err()?;
            let Refusal::SeveralCritical { resources } = &several else { return None };
            let takes_part = end
                .of
                .keys()
                .any(|key| key.0 == tier && resources.iter().any(|share| share.resource == named(key)));
            takes_part.then_some(several)
        })
    }
}

impl End {
    fn add(&mut self, used: &BTreeMap<(String, Hardware), (f64, f64)>) {
        let less = 0.5_f64.powf(1.0 / HALVED_S);
        self.seconds = self.seconds * less + 1.0;
        for sums in self.of.values_mut() {
            *sums = Sums { seconds: sums.seconds * less, used: sums.used * less, full: sums.full * less };
        }
        for (key, (used, full)) in used {
            let sums = self.of.entry(key.clone()).or_default();
            *sums = Sums { seconds: sums.seconds + 1.0, used: sums.used + used, full: sums.full + full };
        }
        // What is gone weighs nothing after a while, and makes room.
        self.of.retain(|_, sums| sums.seconds > 0.1);
    }

    /// As the model takes them, the one that is full most often first.
    fn resources(&self) -> (Vec<&(String, Hardware)>, Vec<Resource>) {
        let one = |(key, sums): (&(String, Hardware), &Sums)| Resource {
            name: named(key),
            used_ratio: (sums.used / sums.seconds).clamp(0.0, 1.0),
            full_ratio: (sums.full / sums.seconds).clamp(0.0, 1.0),
        };
        let mut all: Vec<_> = self.of.iter().map(|of| (of.0, one(of))).collect();
        all.sort_by(|a, b| b.1.full_ratio.total_cmp(&a.1.full_ratio));
        all.into_iter().unzip()
    }

    fn told(&self, front: String) -> SystemAdvice {
        let (keys, resources) = self.resources();
        let found = critical_resource(&resources);
        let one = |(key, of): (&&(String, Hardware), &Resource)| ResourceUse {
            tier: key.0.clone(),
            what: key.1.name().to_owned(),
            used_ratio: of.used_ratio,
            full_ratio: of.full_ratio,
        };
        let told: Vec<ResourceUse> = keys.iter().zip(&resources).map(one).collect();
        let seen = format!("{} in which something was full", span(self.seconds));
        let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
        let sentence = match &found {
            Ok(at) => {
                let of = &resources[*at];
                format!(
                    "{front}: throughput ends at the {}, full in {} of {seen}",
                    of.name,
                    percent(of.full_ratio)
                )
            }
            Err(why @ Refusal::SeveralCritical { .. }) => {
                format!("{front}: no single size is right: {why}, of {seen}")
            }
            Err(_) => {
                let often = resources.iter().filter(|of| of.full_ratio >= OFTEN_PART);
                let often: Vec<_> =
                    often.map(|of| format!("the {} in {}", of.name, percent(of.full_ratio))).collect();
                format!("{front}: nothing is critical by itself, of {seen}; full was {}", often.join(", "))
            }
        };
        SystemAdvice {
            front,
            seconds: self.seconds,
            critical: found.ok().map(|at| resources[at].name.clone()),
            resources: told,
            short: None,
            sentence,
        }
    }
}

/// As people call it.
fn named((tier, hardware): &(String, Hardware)) -> String {
    match hardware {
        Hardware::Cpu => format!("CPU of {tier}"),
        Hardware::Disk => format!("disk of {tier}"),
    }
}

/// How much of each resource behind `front` was in use, and in what part of the windows it was full. `None`: throughput was not at its end,
/// or not by what is behind it alone, or not all is known.
fn used(
    hosts: &Hosts,
    who: &Who,
    front: &Server,
    first: u64,
    last: u64,
) -> Option<BTreeMap<(String, Hardware), (f64, f64)>> {
    let span = (last + 1).saturating_sub(first) as usize;
    let servers = who.below(front, SERVERS_MAX)?;
    let mut full_windows = vec![false; span];
    let mut of: BTreeMap<(String, Hardware), Vec<(f64, f64)>> = BTreeMap::new();
    for server in &servers {
        let host = hosts.get(&server.0)?;
        let (id, measured) = host.names.workload(&server.1)?;
        let mut moments = Vec::with_capacity(span);
        for window in host.windows(first, last) {
            if window.lost_before > 0 || window.uncovered.with(window.sampled).meets(needed()) {
                return None;
            }
            moments.push(Moment::of(window, &host.names, id, measured));
        }
        // Of a cgroup with several servers nobody knows whose the CPU time was.
        let is_known = id == measured && moments.len() == span && moments.iter().all(|m| m.may_use_ns > 0);
        let mut taints: BTreeSet<Taint> = own_taints(&moments);
        // The disk and a quota are hardware as the tier has it.
        taints.remove(&Taint::Io);
        taints.remove(&Taint::Throttled);
        if !is_known || !taints.is_empty() {
            return None;
        }
        let mut add = |hardware, used: &dyn Fn(&Moment) -> f64, full: &dyn Fn(&Moment) -> bool| {
            moments.iter().zip(&mut full_windows).for_each(|(moment, any)| *any |= full(moment));
            let used = moments.iter().map(used).sum::<f64>() / span as f64;
            let full = moments.iter().filter(|m| full(m)).count() as f64 / span as f64;
            of.entry((who.tier(server).to_owned(), hardware)).or_default().push((used, full));
        };
        // At its quota it is throttled in one window for what it used in the one before.
        add(Hardware::Cpu, &|m| m.used_ratio().unwrap_or(0.0), &|m| m.is_full() || m.is_throttled());
        add(Hardware::Disk, &|m| f64::from(u8::from(m.is_at_the_disk())), &Moment::is_at_the_disk);
    }
    let ended = full_windows.iter().filter(|full| **full).count() as f64 >= ENDED_PART * span as f64;
    let mean = |of: Vec<(f64, f64)>| {
        let n = of.len() as f64;
        of.iter().fold((0.0, 0.0), |sum, of| (sum.0 + of.0 / n, sum.1 + of.1 / n))
    };
    ended.then(|| of.into_iter().map(|(key, of)| (key, mean(of))).collect())
}

#[cfg(test)]
#[path = "ends_tests.rs"]
mod tests;

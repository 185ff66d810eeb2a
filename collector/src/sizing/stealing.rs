//! Servers that the scheduler has in one group, of which one has more of the CPU than its part, because more of its threads want to run. Owns which
//! seconds count, what is remembered, whether a change helped, and the words; judged by `tailwater_sizing::stealing`.

use super::hosts::{Host, Hosts};
use super::moment::{FULL_PART, Moment, mean};
use crate::text::span;
use std::collections::BTreeMap;
use std::net::IpAddr;
use tailwater_model::advice::StealingAdvice;
use tailwater_model::window::{CpuShare, HostShares, HostWindow, WINDOW_NS, WindowIndex};
use tailwater_sizing::stealing::{AfterFix, Level, Neighbour, Standing, Verdict, after_fix, stand, verdict};

/// Part of the windows between two looks in which the CPU must have been full: elsewhere nobody lacks any.
const FULL_WINDOWS_PART: f64 = 0.75;
/// What was seen weighs half after so many such seconds: in each are hundreds of turns, and a change is to be told within a minute.
const HALVED_S: f64 = 15.0;
/// Such seconds that are needed before anything is said.
const NEEDED_S: f64 = 10.0;
/// Part of the seconds in which somebody must have wanted more to lack any in their mean.
const WANTED_PART: f64 = 0.5;
/// Cgroups of one host that are remembered, and of all hosts; of more, those go first of which nothing was found, the oldest first.
const CGROUPS_OF_HOST_MAX: usize = 8;
/// See above.
const CGROUPS_MAX: usize = 512;
/// What was not so for a day is forgotten, windows; a cgroup of which nothing was found, after ten minutes.
const FORGET_WINDOWS: u64 = 1_728_000;
/// See above.
const FORGET_NOTHING_WINDOWS: u64 = 12_000;
/// Windows that are looked at together once neighbours are apart: a second.
const APART_WINDOWS: u64 = 20;
/// What an agent calls what it does not tell apart.
const OTHERS: &str = "~other";

/// Host, and path of the cgroup that the scheduler has.
type Place = (String, String);

/// Where somebody stood, over seconds that weigh the less the older they are: in all of them together.
#[derive(Debug, Clone, Copy, Default)]
struct Stood {
    share: f64,
    entitled: f64,
    by_threads: f64,
    runnable: f64,
    wanted: f64,
}

/// Seconds in which the CPU was full and two or more wanted more of it.
#[derive(Debug, Clone, Default)]
struct Sums {
    /// As they were.
    seconds: f64,
    weight: f64,
    cpus: f64,
    of: BTreeMap<String, Stood>,
}

/// The same of two that have cgroups of their own: their use.
#[derive(Debug, Clone, Default)]
struct Apart {
    seconds: f64,
    weight: f64,
    ran_s: [f64; 2],
    waited_s: [f64; 2],
    /// The last window that is in it.
    to: u64,
}

/// What was found.
#[derive(Debug, Clone)]
struct Stolen {
    /// When it was worst.
    told: StealingAdvice,
    /// The last window in which it was so.
    seen: u64,
    /// Where thief and victim listen: by that they are known in other cgroups.
    listen: [Vec<(IpAddr, u16)>; 2],
    after: Option<AfterFix>,
    apart: Apart,
}

#[derive(Debug, Default)]
struct Cgroup {
    sums: Sums,
    newest: u64,
    stolen: Option<Stolen>,
}

/// All cgroups whose servers were seen to wait for the CPU.
#[derive(Debug, Default)]
pub(super) struct Stealing {
    by_place: BTreeMap<Place, Cgroup>,
}

/// What is left of a second's weight after so many others.
fn keeps(seconds: f64) -> f64 {
    0.5_f64.powf(seconds / HALVED_S)
}

impl Sums {
    fn add(&mut self, seconds: f64, cpus: f64, standings: &[Standing]) {
        let keep = keeps(seconds);
        self.seconds += seconds;
        self.weight = self.weight * keep + seconds;
        self.cpus = self.cpus * keep + cpus * seconds;
        for of in self.of.values_mut() {
            let Stood { share, entitled, by_threads, runnable, wanted } = of;
            [share, entitled, by_threads, runnable, wanted].into_iter().for_each(|sum| *sum *= keep);
        }
        for of in standings {
            let sum = self.of.entry(of.name.clone()).or_default();
            sum.share += of.share_ratio * seconds;
            sum.entitled += of.entitled_ratio * seconds;
            sum.by_threads += of.runnable_ratio * seconds;
            sum.runnable += of.runnable * seconds;
            sum.wanted += f64::from(u8::from(of.wants_more)) * seconds;
        }
        // What is gone makes room.
        self.of.retain(|_, of| of.runnable > 1e-3);
    }

    /// In the mean, with the CPUs that all had together; `None`: too little was seen.
    fn stood(&self) -> Option<(f64, Vec<Standing>)> {
        if self.seconds < NEEDED_S {
            return None;
        }
        let one = |(name, of): (&String, &Stood)| Standing {
            name: name.clone(),
            share_ratio: of.share / self.weight,
            entitled_ratio: of.entitled / self.weight,
            runnable_ratio: of.by_threads / self.weight,
            runnable: of.runnable / self.weight,
            wants_more: of.wanted >= WANTED_PART * self.weight,
        };
        Some((self.cpus / self.weight, self.of.iter().map(one).collect()))
    }
}

impl Stealing {
    /// Takes what an agent saw of a cgroup, whose windows came before. `false`: it was not used, because those are not known.
    pub(super) fn take(&mut self, hosts: &Hosts, shares: &HostShares) -> bool {
        let Some(host) = hosts.get(&shares.host) else { return false };
        let Some((path, _)) = host.names.called(shares.workload) else { return false };
        let place = (shares.host.clone(), path.to_owned());
        let seconds = shares.span_ns as f64 / 1e9;
        let neighbours: Vec<Neighbour> =
            shares.neighbours.iter().map(|of| neighbour(host, shares, of, seconds)).collect();
        let Some((is_full, cpus)) = cpus(host, shares, &neighbours) else { return false };
        let cgroup = self.by_place.entry(place.clone()).or_default();
        cgroup.newest = cgroup.newest.max(shares.last.0);
        if is_full && let Ok(standings) = stand(Level::OneCgroup, cpus, &neighbours) {
            cgroup.sums.add(seconds, cpus, &standings);
            cgroup.judge(&place, host, shares.last.0);
        }
        self.make_room(&place);
        true
    }

    /// Without this place, which came just now.
    fn make_room(&mut self, but: &Place) {
        let of_host = self.by_place.keys().filter(|place| place.0 == but.0).count();
        if self.by_place.len() <= CGROUPS_MAX && of_host <= CGROUPS_OF_HOST_MAX {
            return;
        }
        let goes = self.by_place.iter().filter(|(place, _)| *place != but);
        let goes = goes.filter(|(place, _)| of_host <= CGROUPS_OF_HOST_MAX || place.0 == but.0);
        let goes = goes.min_by_key(|(_, cgroup)| (cgroup.stolen.is_some(), cgroup.newest));
        if let Some(place) = goes.map(|(place, _)| place.clone()) {
            self.by_place.remove(&place);
        }
    }

    /// Whether what was stolen is so still, of those who have cgroups of their own by now.
    pub(super) fn check(&mut self, hosts: &Hosts) {
        for ((host, _), cgroup) in &mut self.by_place {
            if let Some((stolen, host)) = cgroup.stolen.as_mut().zip(hosts.get(host)) {
                stolen.check(host);
            }
        }
    }

    /// Forgets what was not so for long.
    pub(super) fn forget(&mut self, newest: u64) {
        self.by_place.retain(|_, cgroup| match &cgroup.stolen {
            Some(stolen) => newest.saturating_sub(stolen.seen) < FORGET_WINDOWS,
            None => newest.saturating_sub(cgroup.newest) < FORGET_NOTHING_WINDOWS,
        });
    }

    /// What was found, by host and cgroup.
    pub(super) fn told(&self) -> Vec<StealingAdvice> {
        self.by_place.values().filter_map(|cgroup| cgroup.stolen.as_ref()).map(Stolen::told).collect()
    }
}

impl Cgroup {
    fn judge(&mut self, place: &Place, host: &Host, now: u64) {
        let Some((cpus, standings)) = self.sums.stood() else { return };
        let lacks = |name: &str| {
            standings.iter().find(|of| of.name == name).map_or(0.0, |of| of.entitled_ratio - of.share_ratio)
        };
        let before =
            self.stolen.as_ref().map(|of| (of.told.thief.clone(), of.ratio(), lacks(&of.told.victim)));
        let Ok(Verdict::Stealing { thief, victim, stolen_ratio, remedy }) = verdict(cpus, standings) else {
            if let Some((stolen, (_, ratio, lacks))) = self.stolen.as_mut().zip(before) {
                stolen.after = Some(AfterFix::of(ratio, lacks));
            }
            return;
        };
        if let Some((stolen, (was, ratio, lacks))) = self.stolen.as_mut().zip(before)
            && was == thief.name
            && stolen.told.victim == victim.name
            && lacks <= ratio
        {
            // What it was when it was worst is what the remedy is for.
            let after = AfterFix::of(ratio, lacks);
            let is_so_still = matches!(after, AfterFix::Unchanged(_));
            stolen.after = (!is_so_still).then_some(after);
            stolen.seen = if is_so_still { now } else { stolen.seen };
            return;
        }
        debug_assert!(stolen_ratio > 0.0);
        let listen = [&thief.name, &victim.name].map(|name| host.names.listens(name));
        let told = StealingAdvice {
            host: place.0.clone(),
            cgroup: place.1.clone(),
            thief: thief.name,
            victim: victim.name,
            seen_unix_ns: 0,
            seconds: self.sums.seconds,
            cpus,
            thief_ratio: thief.share_ratio,
            victim_ratio: victim.share_ratio,
            due_ratio: victim.entitled_ratio,
            thief_runnable: thief.runnable,
            victim_runnable: victim.runnable,
            thief_runnable_max: remedy.thief_runnable_max,
            after: None,
            sentence: String::new(),
        };
        let apart = Apart { to: now, ..Apart::default() };
        self.stolen = Some(Stolen { told, seen: now, listen, after: None, apart });
    }
}

impl Stolen {
    /// Part of the CPUs that the victim lacked.
    fn ratio(&self) -> f64 {
        self.told.due_ratio - self.told.victim_ratio
    }

    /// Thief and victim may have cgroups of their own since: then windows tell what each has.
    fn check(&mut self, host: &Host) {
        let newest = host.newest();
        if newest < self.apart.to + APART_WINDOWS {
            return;
        }
        self.apart.to = newest;
        let ids = self.listen.each_ref().map(|listen| host.names.who_listens(listen));
        let [Some(thief), Some(victim)] = ids else { return };
        if thief == victim {
            return;
        }
        let windows: Vec<&HostWindow> = host.windows(newest + 1 - APART_WINDOWS, newest).collect();
        if (windows.len() as u64) < APART_WINDOWS {
            return;
        }
        let used = [thief, victim].map(|id| {
            let moments: Vec<Moment> =
                windows.iter().map(|window| Moment::of(window, &host.names, id, id)).collect();
            let seconds = |of: fn(&Moment) -> u64| moments.iter().map(of).sum::<u64>() as f64 / 1e9;
            (seconds(|m| m.busy_ns), seconds(|m| m.wait_ns))
        });
        let seconds = (APART_WINDOWS * WINDOW_NS) as f64 / 1e9;
        // Only where both together have what they had can it be told whose part is whose.
        let cpu_s = used[0].0 + used[1].0;
        let both = self.told.thief_ratio + self.told.victim_ratio;
        if cpu_s < FULL_PART * both * self.told.cpus * seconds {
            return;
        }
        let (keep, apart) = (keeps(seconds), &mut self.apart);
        apart.seconds += seconds;
        apart.weight = apart.weight * keep + seconds;
        for (at, (ran_s, waited_s)) in used.into_iter().enumerate() {
            apart.ran_s[at] = apart.ran_s[at] * keep + ran_s;
            apart.waited_s[at] = apart.waited_s[at] * keep + waited_s;
        }
        if apart.seconds < NEEDED_S {
            return;
        }
        let names = [&self.told.thief, &self.told.victim];
        let one = |at: usize| Neighbour {
            name: names[at].clone(),
            weight: 1.0,
            running: apart.ran_s[at] / apart.weight,
            waiting: apart.waited_s[at] / apart.weight,
        };
        let both = [one(0), one(1)];
        let cpus = both.iter().map(|of| of.running).sum();
        if let Ok(after) = after_fix(&self.told.victim, self.ratio(), cpus, &both) {
            self.after = Some(after);
        }
    }

    fn told(&self) -> StealingAdvice {
        let name = |after| match after {
            AfterFix::Fixed => "fixed",
            AfterFix::Better(_) => "better",
            AfterFix::Unchanged(_) => "unchanged",
        };
        StealingAdvice {
            seen_unix_ns: WindowIndex(self.seen).end_unix_ns(),
            after: self.after.map(|after| name(after).to_owned()),
            sentence: sentence(&self.told, self.after),
            ..self.told.clone()
        }
    }
}

fn sentence(of: &StealingAdvice, after: Option<AfterFix>) -> String {
    let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
    let StealingAdvice { host, cgroup, thief, victim, thief_runnable_max: most, .. } = of;
    let lacks = of.due_ratio - of.victim_ratio;
    let cpus = if of.cpus < 1.0 { format!("{:.2} CPUs", of.cpus) } else { format!("{:.1} CPUs", of.cpus) };
    let since = match after {
        None => String::new(),
        Some(AfterFix::Fixed) => format!("; since then {victim} has what is due to it"),
        Some(AfterFix::Better(lacks)) => {
            format!("; since then {victim} lacks less, {} of the CPU", percent(lacks))
        }
        Some(AfterFix::Unchanged(lacks)) => {
            format!("; since then nothing is better, {victim} lacks {} of the CPU", percent(lacks))
        }
    };
    format!(
        "{thief}@{host} takes CPU from {victim}, which the scheduler has in the same group ({cgroup}): {victim} has {} of {cpus} where {} are due, and lacks {}, \
         because {:.1} threads of {thief} want to run, and {:.1} of its own; a cgroup for each, with equal weights, has it shared by those and not by threads, or no more \
         than {most} {} of {thief} at a time (measured, {} of full CPUs){since}",
        percent(of.victim_ratio),
        percent(of.due_ratio),
        percent(lacks),
        of.thief_runnable,
        of.victim_runnable,
        if *most == 1 { "thread" } else { "threads" },
        span(of.seconds),
    )
}

/// What one of those who share had in this span.
fn neighbour(host: &Host, shares: &HostShares, of: &CpuShare, seconds: f64) -> Neighbour {
    let name = match host.names.called(of.workload) {
        _ if of.workload == shares.workload => of.comm.clone(),
        Some((_, name)) if of.comm.is_empty() => name.to_owned(),
        Some((_, name)) => format!("{name}/{}", of.comm),
        None => of.comm.clone(),
    };
    // Of many together nobody knows who wants more.
    let waited_ns = if of.comm == OTHERS { 0 } else { of.waited_ns };
    let cpus = |ns: u64| ns as f64 / 1e9 / seconds;
    Neighbour { name, weight: 1.0, running: cpus(of.ran_ns), waiting: cpus(waited_ns) }
}

/// Whether all was used that they could have between the two looks, and how many CPUs that was. `None`: their windows are not known.
fn cpus(host: &Host, shares: &HostShares, neighbours: &[Neighbour]) -> Option<(bool, f64)> {
    let windows = (shares.span_ns / WINDOW_NS).max(1);
    let first = (shares.last.0 + 1).checked_sub(windows)?;
    let ran: f64 = neighbours.iter().map(|of| of.running).sum();
    let of = |window: &HostWindow| {
        let moment = Moment::of(window, &host.names, shares.workload, shares.workload);
        let all_busy =
            moment.capacity_ns > 0 && moment.host_busy_ns as f64 >= FULL_PART * moment.capacity_ns as f64;
        // Of a group of several cgroups no window has the use.
        let at_quota = moment.may_use_ns > 0 && ran >= FULL_PART * mean(moment.may_use_ns);
        (moment.busy_ns, all_busy || at_quota || moment.is_full() || moment.is_throttled())
    };
    let moments: Vec<(u64, bool)> = host.windows(first, shares.last.0).map(of).collect();
    if moments.is_empty() || (moments.len() as f64) < FULL_WINDOWS_PART * windows as f64 {
        return None;
    }
    let full = moments.iter().filter(|(_, full)| *full).count() as f64;
    let busy_ns: u64 = moments.iter().map(|(busy_ns, _)| busy_ns).sum();
    let cpus = mean(busy_ns / moments.len() as u64).max(ran);
    Some((full >= FULL_WINDOWS_PART * moments.len() as f64 && cpus > 0.0, cpus))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tailwater_model::window::{EntityId, HostCpu, Input, ListenerInfo, WorkloadInfo, WorkloadWindow};

    const CGROUP: EntityId = 3;
    const FIRST: u64 = 1000;

    /// Two servers at ports 81 and 82 of one host with one CPU.
    struct World {
        hosts: Hosts,
        stealing: Stealing,
        second: u64,
    }

    fn entities(workloads: [(EntityId, &str, EntityId); 2]) -> Input {
        let shared = WorkloadInfo {
            id: CGROUP,
            name: "shop".into(),
            cgroup: "/shop".into(),
            ..WorkloadInfo::default()
        };
        let own = workloads.map(|(id, name, shares)| WorkloadInfo {
            id,
            name: name.into(),
            cgroup: name.into(),
            shares,
            ..WorkloadInfo::default()
        });
        let listener = |(n, (workload, ..)): (u16, (EntityId, &str, EntityId))| ListenerInfo {
            id: u32::from(n),
            workload,
            address: "::".parse().unwrap(),
            port: 80 + n,
            path: None,
            comm: String::new(),
            pool: None,
        };
        Input::Entities {
            host: "app".into(),
            workloads: std::iter::once(shared).chain(own).collect(),
            listeners: (1..).zip(workloads).map(listener).collect(),
            edges: Vec::new(),
            devices: Vec::new(),
        }
    }

    impl World {
        fn new() -> Self {
            let mut hosts = Hosts::default();
            hosts.said(entities([(11, "a", CGROUP), (12, "b", CGROUP)]));
            Self { hosts, stealing: Stealing::default(), second: 0 }
        }

        /// A second in which these workloads ran and waited for so many CPUs, of which the host has one.
        fn windows(&mut self, of: &[(EntityId, f64, f64)]) -> u64 {
            let first = FIRST + self.second * 20;
            self.second += 1;
            for index in first..first + 20 {
                let ns = |part: f64| (part * WINDOW_NS as f64) as u64;
                let busy_ns = of.iter().map(|(_, ran, _)| ns(*ran)).sum();
                let cpu = HostCpu { capacity_ns: WINDOW_NS, busy_ns, ..HostCpu::default() };
                let mut window = HostWindow {
                    host: "app".into(),
                    index: WindowIndex(index),
                    cpu: Some(cpu),
                    ..HostWindow::default()
                };
                for (id, ran, waited) in of {
                    let own = WorkloadWindow {
                        busy_ns: ns(*ran),
                        wait_ns: ns(*waited),
                        ..WorkloadWindow::default()
                    };
                    window.workloads.insert(*id, own);
                }
                self.hosts.window(Arc::new(window));
            }
            first + 19
        }

        /// Seconds in which both share the cgroup, each with its part of the CPU and threads that wait.
        fn shared(&mut self, seconds: u64, a: (f64, f64), b: (f64, f64)) {
            for _ in 0..seconds {
                let last = self.windows(&[(CGROUP, a.0 + b.0, a.1 + b.1)]);
                let one = |workload, (ran, waited): (f64, f64)| CpuShare {
                    workload,
                    comm: String::new(),
                    ran_ns: (ran * 1e9) as u64,
                    waited_ns: (waited * 1e9) as u64,
                    threads: 20,
                };
                let shares = HostShares {
                    host: "app".into(),
                    last: WindowIndex(last),
                    span_ns: 1_000_000_000,
                    workload: CGROUP,
                    neighbours: vec![one(11, a), one(12, b)],
                };
                assert!(self.stealing.take(&self.hosts, &shares));
            }
        }

        fn told(&self) -> Option<StealingAdvice> {
            let told = self.stealing.told();
            assert!(told.len() < 2, "{told:?}");
            told.into_iter().next()
        }
    }

    #[test]
    fn who_has_more_threads_takes_cpu_and_the_line_says_what_to_do() {
        let mut world = World::new();
        world.shared(9, (0.2, 3.8), (0.8, 15.2));
        assert_eq!(world.told(), None, "nine seconds are too few");
        world.shared(1, (0.2, 3.8), (0.8, 15.2));
        let told = world.told().unwrap();
        assert_eq!((told.thief.as_str(), told.victim.as_str(), told.thief_runnable_max), ("b", "a", 4));
        assert_eq!(
            told.sentence,
            "b@app takes CPU from a, which the scheduler has in the same group (/shop): a has 20 % of 1.0 CPUs where 50 % are due, and lacks 30 %, because \
             16.0 threads of b want to run, and 4.0 of its own; a cgroup for each, with equal weights, has it shared by those and not by threads, or no more than 4 \
             threads of b at a time (measured, 10 s of full CPUs)"
        );
        assert_eq!(told.after, None);
    }

    #[test]
    fn equals_take_nothing_and_where_cpus_are_left_nobody_lacks_any() {
        let mut world = World::new();
        world.shared(60, (0.5, 8.0), (0.5, 8.0));
        assert_eq!(world.told(), None);
        let mut world = World::new();
        world.shared(60, (0.1, 3.8), (0.6, 15.2));
        assert_eq!(world.told(), None, "0.3 CPUs are left");
        // A program that is content is no victim.
        let mut world = World::new();
        world.shared(60, (0.1, 0.1), (0.9, 15.2));
        assert_eq!(world.told(), None);
    }

    #[test]
    fn a_smaller_pool_is_seen_to_help() {
        let mut world = World::new();
        world.shared(30, (0.2, 3.8), (0.8, 15.2));
        world.shared(120, (0.5, 3.5), (0.5, 3.5));
        let told = world.told().unwrap();
        assert_eq!(told.after.as_deref(), Some("fixed"));
        assert!(told.sentence.ends_with("; since then a has what is due to it"), "{}", told.sentence);
        // It comes back: what is so now is told.
        world.shared(120, (0.2, 3.8), (0.8, 15.2));
        assert_eq!(world.told().unwrap().after, None);
    }

    #[test]
    fn cgroups_of_their_own_are_seen_to_help_though_nobody_tells_threads_apart_any_more() {
        let mut world = World::new();
        world.shared(30, (0.2, 3.8), (0.8, 15.2));
        world.hosts.said(entities([(21, "a.service", 0), (22, "b.service", 0)]));
        let mut check = |seconds, a: (f64, f64), b: (f64, f64)| {
            for _ in 0..seconds {
                world.windows(&[(21, a.0, a.1), (22, b.0, b.1)]);
                world.stealing.check(&world.hosts);
            }
            world.told().unwrap().after
        };
        assert_eq!(check(30, (0.2, 0.0), (0.4, 0.0)), None, "where CPUs are left nothing is known");
        assert_eq!(check(8, (0.5, 3.5), (0.5, 15.5)), None, "too short");
        assert_eq!(check(20, (0.5, 3.5), (0.5, 15.5)).as_deref(), Some("fixed"));
        assert_eq!(check(200, (0.3, 3.5), (0.7, 15.5)).as_deref(), Some("better"), "with other weights");
        assert_eq!(check(200, (0.15, 3.5), (0.85, 15.5)).as_deref(), Some("unchanged"));
    }

    #[test]
    fn who_is_idle_while_the_other_waits_lacks_nothing() {
        let mut world = World::new();
        world.shared(30, (0.5, 9.5), (0.5, 9.5));
        // One stops, or both take turns.
        world.shared(60, (0.0, 0.0), (1.0, 19.0));
        for _ in 0..60 {
            world.shared(1, (1.0, 3.0), (0.0, 0.0));
            world.shared(1, (0.0, 0.0), (1.0, 15.0));
        }
        assert_eq!(world.told(), None);
        // One that was found holds while nothing says otherwise.
        world.shared(30, (0.2, 3.8), (0.8, 15.2));
        world.shared(60, (0.0, 0.0), (1.0, 15.0));
        let told = world.told().unwrap();
        assert_eq!((told.thief.as_str(), told.after), ("b", None));
    }

    #[test]
    fn what_is_told_is_the_worst_of_it_and_what_came_since() {
        let mut world = World::new();
        world.shared(30, (0.2, 3.8), (0.8, 15.2));
        world.shared(10, (0.4, 3.6), (0.6, 5.4));
        let told = world.told().unwrap();
        assert_eq!(told.after.as_deref(), Some("better"));
        assert!(told.victim_ratio < 0.21 && told.thief_runnable_max == 4, "{told:?}");
        world.shared(60, (0.2, 3.8), (0.8, 15.2));
        assert_eq!(world.told().unwrap().after, None, "it is so again");
        // Who has less now is another one.
        world.shared(60, (0.8, 15.2), (0.2, 3.8));
        let told = world.told().unwrap();
        assert_eq!((told.thief.as_str(), told.after), ("a", None));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten() {
        let mut world = World::new();
        world.shared(30, (0.2, 3.8), (0.8, 15.2));
        world.stealing.forget(FIRST + 600);
        assert!(world.told().is_some());
        let mut fair = World::new();
        fair.shared(30, (0.5, 3.5), (0.5, 3.5));
        assert_eq!(fair.stealing.by_place.len(), 1);
        fair.stealing.forget(FIRST + 600 + FORGET_NOTHING_WINDOWS);
        assert_eq!(fair.stealing.by_place.len(), 0);
        world.stealing.forget(FIRST + 600 + FORGET_WINDOWS);
        assert_eq!(world.told(), None);

        let mut many = Stealing::default();
        for host in 0..CGROUPS_MAX {
            for cgroup in 0..CGROUPS_OF_HOST_MAX + 3 {
                let place = (host.to_string(), cgroup.to_string());
                let newest = (host * 100 + cgroup) as u64;
                many.by_place.insert(place.clone(), Cgroup { newest, ..Cgroup::default() });
                many.make_room(&place);
            }
        }
        assert_eq!(many.by_place.len(), CGROUPS_MAX);
        let newest = (CGROUPS_MAX - 1).to_string();
        assert_eq!(many.by_place.keys().filter(|place| place.0 == newest).count(), CGROUPS_OF_HOST_MAX);
    }
}

//! Servers that the scheduler has in one group, of which one has more of the CPU than its part, because more of its threads want to run. Owns which
//! seconds count, what is remembered, whether a change helped, and the words; judged by `tailwater_sizing::stealing`.

use super::hosts::{Host, Hosts};
use super::moment::{FULL_PART, Moment, TAKEN_CPUS, mean};
use super::who::Who;
use crate::text::span;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use tailwater_model::advice::StealingAdvice;
use tailwater_model::window::{CpuShare, EntityId, HostShares, HostWindow, WINDOW_NS, WindowIndex};
use tailwater_sizing::stealing::{
    AfterFix, Level, Neighbour, Standing, Verdict, WAITING_MIN, lacks, stand, verdict,
};

/// Part of the windows between two looks in which the CPU must have been full: elsewhere nobody lacks any.
const FULL_WINDOWS_PART: f64 = 0.75;
/// What was seen weighs half after so many such seconds: in each are hundreds of turns, and a change is to be told within a minute.
const HALVED_S: f64 = 15.0;
/// Such seconds of somebody that are needed before anything is said of it.
const NEEDED_S: f64 = 10.0;
/// Weight below which somebody is forgotten, s: who was seen for one second, after 15 of others.
const FORGOTTEN_S: f64 = 0.5;
/// Part of the seconds in which somebody must have wanted more to lack any in their mean.
const WANTED_PART: f64 = 0.5;
/// Neighbours of one group that are remembered: an agent tells of half as many at a time.
const NEIGHBOURS_MAX: usize = 64;
/// Cgroups of one host that are remembered, and of all hosts; of more, those go first of which nothing was found, the oldest first.
const CGROUPS_OF_HOST_MAX: usize = 8;
/// See above.
const CGROUPS_MAX: usize = 512;
/// Windows without such a second after which what was seen says nothing of now: five minutes.
const STALE_WINDOWS: u64 = 6_000;
/// What was not so for a day is forgotten, windows; a cgroup of which nothing was found, after ten minutes.
const FORGET_WINDOWS: u64 = 1_728_000;
/// See above.
const FORGET_NOTHING_WINDOWS: u64 = 12_000;
/// What was not so for half a minute makes room for another pair, windows.
const GIVES_WAY_WINDOWS: u64 = 600;
/// Windows that are looked at together once neighbours are apart: a second.
const APART_WINDOWS: u64 = 20;
/// Windows without a look at both after which they may be apart: ten seconds.
const APART_AFTER_WINDOWS: u64 = 200;
/// What an agent calls what it does not tell apart.
const OTHERS: &str = "~other";

/// Host, and path of the cgroup that the scheduler has.
type Place = (String, String);

/// Where somebody stood, over the seconds in which it was there, which weigh the less the older they are: in all of them together.
#[derive(Debug, Clone, Copy, Default)]
struct Stood {
    /// As they were.
    seconds: f64,
    weight: f64,
    share: f64,
    entitled: f64,
    by_threads: f64,
    runnable: f64,
    wanted: f64,
}

/// Seconds in which the CPU was full and two or more wanted more of it.
#[derive(Debug, Clone, Default)]
struct Sums {
    seconds: f64,
    weight: f64,
    cpus: f64,
    of: BTreeMap<String, Stood>,
    /// The last window that is in it.
    to: u64,
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
    /// The last one in which both were in one group.
    together: u64,
    /// Both are cgroups, and need no other ones.
    are_cgroups: bool,
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
            let Stood { seconds: _, weight, share, entitled, by_threads, runnable, wanted } = of;
            let all = [weight, share, entitled, by_threads, runnable, wanted];
            all.into_iter().for_each(|sum| *sum *= keep);
        }
        self.of.retain(|_, of| of.weight >= FORGOTTEN_S);
        for of in standings.iter().filter(|of| of.runnable > 0.0) {
            if self.of.len() >= NEIGHBOURS_MAX && !self.of.contains_key(&of.name) {
                continue;
            }
            let sum = self.of.entry(of.name.clone()).or_default();
            sum.seconds += seconds;
            sum.weight += seconds;
            sum.share += of.share_ratio * seconds;
            sum.entitled += of.entitled_ratio * seconds;
            sum.by_threads += of.runnable_ratio * seconds;
            sum.runnable += of.runnable * seconds;
            sum.wanted += f64::from(u8::from(of.wants_more)) * seconds;
        }
    }

    fn cpus(&self) -> f64 {
        self.cpus / self.weight
    }

    /// Those who are there now, each in the mean of the seconds in which it was.
    fn stood(&self, now: &[Standing]) -> Vec<Standing> {
        let one = |is: &Standing| {
            let of = self.of.get(&is.name).filter(|of| of.seconds >= NEEDED_S)?;
            Some(Standing {
                name: is.name.clone(),
                share_ratio: of.share / of.weight,
                entitled_ratio: of.entitled / of.weight,
                runnable_ratio: of.by_threads / of.weight,
                runnable: of.runnable / of.weight,
                wants_more: is.wants_more && of.wanted >= WANTED_PART * of.weight,
            })
        };
        now.iter().filter_map(one).collect()
    }
}

impl Stealing {
    /// Takes what an agent saw of a cgroup, whose windows came before. `false`: it was not used, because those are not known.
    pub(super) fn take(&mut self, hosts: &Hosts, who: &Who, shares: &HostShares) -> bool {
        let Some(host) = hosts.get(&shares.host) else { return false };
        let Some((path, _)) = host.names.called(shares.workload) else { return false };
        let place = (shares.host.clone(), path.to_owned());
        let seconds = shares.span_ns as f64 / 1e9;
        let neighbours: Vec<Neighbour> =
            shares.neighbours.iter().map(|of| neighbour(host, shares, of, seconds)).collect();
        let Some((is_full, cpus)) = cpus(host, shares, &neighbours) else { return false };
        let (cgroup, now) = (self.by_place.entry(place.clone()).or_default(), shares.last.0);
        cgroup.newest = cgroup.newest.max(now);
        let is_there = |name: &String| neighbours.iter().any(|of| of.name == *name && of.running > 0.0);
        if let Some(stolen) = &mut cgroup.stolen
            && [&stolen.told.thief, &stolen.told.victim].into_iter().all(is_there)
        {
            stolen.together = stolen.together.max(now);
        }
        if is_full && let Ok(standings) = stand(Level::OneCgroup, cpus, &neighbours) {
            if now > cgroup.sums.to.saturating_add(STALE_WINDOWS) {
                cgroup.sums = Sums::default();
            }
            cgroup.sums.to = now;
            cgroup.sums.add(seconds, cpus, &standings);
            let of = |of: &CpuShare| (neighbour(host, shares, of, seconds).name, of.workload);
            let ids = shares.neighbours.iter().map(of).collect();
            cgroup.judge(&place, &Callers { host, who, name: &place.0, ids }, &standings);
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
    /// Of a second with these.
    fn judge(&mut self, place: &Place, callers: &Callers<'_>, now: &[Standing]) {
        let host = callers.host;
        // Who calls whom may be learnt after it was told.
        if self.stolen.as_ref().is_some_and(|of| callers.are_one_chain([&of.told.thief, &of.told.victim])) {
            self.stolen = None;
        }
        let (cpus, standings, at) = (self.sums.cpus(), self.sums.stood(now), self.sums.to);
        if let Some(stolen) = &mut self.stolen {
            stolen.is_now(&standings, at);
        }
        let Ok(Verdict::Stealing { thief, victim, stolen_ratio, remedy }) = verdict(cpus, standings) else {
            return;
        };
        let listen = [&thief.name, &victim.name].map(|name| host.names.listens(name));
        // What lacks CPU must be a server, and none of one chain: there both have as much as the requests need of each.
        if listen[1].is_empty() || callers.are_one_chain([&thief.name, &victim.name]) {
            return;
        }
        let gives_way = |stolen: &Stolen| {
            let is_other = stolen.told.thief != thief.name || stolen.told.victim != victim.name;
            let is_over = stolen.seen.saturating_add(GIVES_WAY_WINDOWS) <= at;
            stolen_ratio > stolen.ratio() || (is_other && is_over)
        };
        if self.stolen.as_ref().is_some_and(|stolen| !gives_way(stolen)) {
            return;
        }
        let is_cgroup = |name: &&String| host.names.caller(name) == Some(name.as_str());
        let are_cgroups = [&thief.name, &victim.name].iter().all(is_cgroup);
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
        let apart = Apart::default();
        self.stolen = Some(Stolen { told, seen: at, together: at, are_cgroups, listen, after: None, apart });
    }
}

impl Stolen {
    /// Part of the CPUs that the victim lacked.
    fn ratio(&self) -> f64 {
        self.told.due_ratio - self.told.victim_ratio
    }

    /// What came of it, where the victim wants more now; who does not, lacks nothing and says nothing.
    fn is_now(&mut self, standings: &[Standing], at: u64) {
        let victim = standings.iter().find(|of| of.name == self.told.victim && of.wants_more);
        let Some(lacks) = victim.map(|of| of.entitled_ratio - of.share_ratio) else { return };
        let after = AfterFix::of(self.ratio(), lacks);
        if !matches!(after, AfterFix::Unchanged(_)) {
            self.after = Some(after);
        } else if standings.iter().any(|of| of.name == self.told.thief && of.share_ratio > of.entitled_ratio)
        {
            // Else another one has it.
            (self.after, self.seen) = (None, at);
        }
    }

    /// Thief and victim may have cgroups of their own since: then windows tell what each has.
    fn check(&mut self, host: &Host) {
        let newest = host.newest();
        // Of two cgroups it is not known when they have groups of their own.
        if self.are_cgroups || newest < self.together.saturating_add(APART_AFTER_WINDOWS) {
            self.apart = Apart::default();
            return;
        }
        if newest < self.apart.to.saturating_add(APART_WINDOWS) {
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
        let had = (self.told.thief_ratio + self.told.victim_ratio) * self.told.cpus;
        if used[0].0 + used[1].0 < FULL_PART * had * seconds {
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
        let one = |at: usize, name: &str| Neighbour {
            name: name.to_owned(),
            weight: 1.0,
            running: apart.ran_s[at] / apart.weight,
            waiting: apart.waited_s[at] / apart.weight,
        };
        let both = [one(0, &self.told.thief), one(1, &self.told.victim)];
        let cpus: f64 = both.iter().map(|of| of.running).sum();
        // Who does not want more lacks nothing, and says nothing.
        if both[1].waiting < WAITING_MIN {
            return;
        }
        if let Ok(lacks) = lacks(&self.told.victim, cpus, &both) {
            // In parts of the CPUs of then, as what was lacked.
            self.after = Some(AfterFix::of(self.ratio(), lacks * cpus / self.told.cpus));
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
            sentence: sentence(&self.told, self.are_cgroups, self.after),
            ..self.told.clone()
        }
    }
}

fn sentence(of: &StealingAdvice, are_cgroups: bool, after: Option<AfterFix>) -> String {
    let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
    let StealingAdvice { host, cgroup, thief, victim, thief_runnable_max: most, .. } = of;
    let lacks = of.due_ratio - of.victim_ratio;
    let cpus = if of.cpus < 1.0 { format!("{:.2} CPUs", of.cpus) } else { format!("{:.1} CPUs", of.cpus) };
    let own = if are_cgroups {
        "give each a weight of its own (CPUWeight=100)"
    } else {
        "give each a cgroup, with equal weights,"
    };
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
        "{thief}@{host} takes CPU from {victim}, which the scheduler has in the same group ({cgroup}): {victim} has {} of {cpus} where {} are due, and lacks up to {}, \
         because {:.1} threads of {thief} want to run, and {:.1} of its own; let no more than {most} {} of {thief} run at a time, or {own} so that it is not \
         shared by threads (measured, {} of full CPUs){since}",
        percent(of.victim_ratio),
        percent(of.due_ratio),
        percent(lacks),
        of.thief_runnable,
        of.victim_runnable,
        if *most == 1 { "thread" } else { "threads" },
        span(of.seconds),
    )
}

/// Who calls whom, of those who share on one host.
struct Callers<'a> {
    host: &'a Host,
    who: &'a Who,
    /// The host's.
    name: &'a str,
    /// Whose a neighbour is, by its name.
    ids: BTreeMap<String, EntityId>,
}

impl Callers<'_> {
    /// Whether requests of one of two reach the other one. Of servers and programs that share a cgroup nobody knows whose its calls are.
    fn are_one_chain(&self, [one, other]: [&String; 2]) -> bool {
        self.reaches(one, other) || self.reaches(other, one)
    }

    fn reaches(&self, from: &String, to: &str) -> bool {
        let names = &self.host.names;
        let cgroup = self.ids.get(from).and_then(|id| names.called(names.measured(*id)?));
        let callers = [Some(from.as_str()), names.caller(from), cgroup.map(|(_, name)| name)];
        let server = |workload: &str| (self.name.to_owned(), workload.to_owned());
        callers.into_iter().flatten().any(|caller| self.who.reaches(&server(caller), &[server(to)]))
    }
}

/// What one of those who share had in this span.
fn neighbour(host: &Host, shares: &HostShares, of: &CpuShare, seconds: f64) -> Neighbour {
    let name = match host.names.called(of.workload) {
        _ if of.workload == shares.workload => of.comm.as_str().to_owned(),
        Some((_, name)) if of.comm.is_empty() => name.to_owned(),
        Some((_, name)) => format!("{name}/{}", of.comm),
        None => String::new(),
    };
    // Of many together, and of whom nobody knows, it is not known who wants more.
    let is_told = of.comm != OTHERS && !name.is_empty();
    let name = if is_told { name } else { OTHERS.to_owned() };
    let cpus = |ns: u64| ns as f64 / 1e9 / seconds;
    let waiting = if is_told { cpus(of.waited_ns) } else { 0.0 };
    Neighbour { name, weight: 1.0, running: cpus(of.ran_ns), waiting }
}

/// Whether all was used that they could have between the two looks, and how many CPUs that was. `None`: their windows are not known.
fn cpus(host: &Host, shares: &HostShares, neighbours: &[Neighbour]) -> Option<(bool, f64)> {
    let windows = (shares.span_ns / WINDOW_NS).max(1);
    let first = (shares.last.0 + 1).checked_sub(windows)?;
    let ran: f64 = neighbours.iter().map(|of| of.running).sum();
    // Whoever ended between the looks is in the windows of its cgroup, and in no look.
    let cgroups: BTreeSet<EntityId> = std::iter::once(shares.workload)
        .chain(shares.neighbours.iter().filter_map(|of| host.names.measured(of.workload)))
        .collect();
    let mut may_use_ns = 0_u64;
    let of = |window: &HostWindow| {
        let moment = Moment::of(window, &host.names, shares.workload, shares.workload);
        let all_busy =
            moment.capacity_ns > 0 && moment.host_busy_ns as f64 >= FULL_PART * moment.capacity_ns as f64;
        let rows = || cgroups.iter().filter_map(|id| window.workloads.get(id));
        let busy_ns = rows().fold(0_u64, |sum, of| sum.saturating_add(of.busy_ns));
        // A quota throttles in one window for what was used in the one before, and is told of each cgroup that it binds.
        let is_throttled = rows().any(|of| mean(of.throttled_ns.unwrap_or(0)) >= TAKEN_CPUS);
        may_use_ns = may_use_ns.saturating_add(moment.may_use_ns);
        (busy_ns, all_busy || is_throttled)
    };
    let moments: Vec<(u64, bool)> = host.windows(first, shares.last.0).map(of).collect();
    if moments.is_empty() || (moments.len() as f64) < FULL_WINDOWS_PART * windows as f64 {
        return None;
    }
    let full = moments.iter().filter(|(_, full)| *full).count() as f64;
    let busy_ns = moments.iter().fold(0_u64, |sum, (busy_ns, _)| sum.saturating_add(*busy_ns));
    let used_up = may_use_ns > 0 && busy_ns as f64 >= FULL_PART * may_use_ns as f64;
    let cpus = mean(busy_ns / moments.len() as u64).max(ran);
    Some(((used_up || full >= FULL_WINDOWS_PART * moments.len() as f64) && cpus > 0.0, cpus))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizing::who::tests::calls;
    use std::sync::Arc;
    use tailwater_model::window::{HostCpu, Input, ListenerInfo, WorkloadInfo, WorkloadWindow};

    const CGROUP: EntityId = 3;
    const FIRST: u64 = 1000;

    /// Two servers at ports 81 and 82 of one host with one CPU.
    struct World {
        hosts: Hosts,
        who: Who,
        stealing: Stealing,
        second: u64,
        /// CPUs of the host, if they are not one, and whether each workload is throttled.
        quota: Option<(u64, bool)>,
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
            Self { hosts, who: Who::default(), stealing: Stealing::default(), second: 0, quota: None }
        }

        /// A second in which these workloads ran and waited for so many CPUs, of which the host has one unless `quota` says otherwise.
        fn windows(&mut self, of: &[(EntityId, f64, f64)]) -> u64 {
            let first = FIRST + self.second * 20;
            self.second += 1;
            for index in first..first + 20 {
                let ns = |part: f64| (part * WINDOW_NS as f64) as u64;
                let busy_ns = of.iter().map(|(_, ran, _)| ns(*ran)).sum();
                let (cpus, throttled) = self.quota.unwrap_or((1, false));
                let cpu = HostCpu { capacity_ns: cpus * WINDOW_NS, busy_ns, ..HostCpu::default() };
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
                        throttled_ns: Some(if throttled { ns(0.5) } else { 0 }),
                        ..WorkloadWindow::default()
                    };
                    window.workloads.insert(*id, own);
                }
                self.hosts.window(Arc::new(window));
            }
            first + 19
        }

        /// A second in which the windows have these rows, and a look says what each of those who share had of the CPU and how long it waited.
        fn looked(&mut self, rows: &[(EntityId, f64, f64)], of: &[(EntityId, &str, (f64, f64))]) {
            let last = self.windows(rows);
            let one = |(workload, comm, (ran, waited)): &(EntityId, &str, (f64, f64))| CpuShare {
                workload: *workload,
                comm: (*comm).to_owned(),
                ran_ns: (ran * 1e9) as u64,
                waited_ns: (waited * 1e9) as u64,
                threads: 20,
            };
            let shares = HostShares {
                host: "app".into(),
                last: WindowIndex(last),
                span_ns: 1_000_000_000,
                workload: CGROUP,
                neighbours: of.iter().map(one).collect(),
            };
            assert!(self.stealing.take(&self.hosts, &self.who, &shares));
            self.stealing.check(&self.hosts);
        }

        /// Seconds in which both share the cgroup, each with its part of the CPU and threads that wait.
        fn shared(&mut self, seconds: u64, a: (f64, f64), b: (f64, f64)) {
            for _ in 0..seconds {
                self.looked(&[(CGROUP, a.0 + b.0, a.1 + b.1)], &[(11, "", a), (12, "", b)]);
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
            "b@app takes CPU from a, which the scheduler has in the same group (/shop): a has 20 % of 1.0 CPUs where 50 % are due, and lacks up to 30 %, because \
             16.0 threads of b want to run, and 4.0 of its own; let no more than 4 threads of b run at a time, or give each a cgroup, with equal weights, so that it is \
             not shared by threads (measured, 10 s of full CPUs)"
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
    fn services_in_one_group_are_told_of_and_what_goes_on_is_no_failed_remedy() {
        let mut world = World::new();
        world.hosts.said(entities([(21, "a.service", 0), (22, "b.service", 0)]));
        for _ in 0..60 {
            world.looked(&[(21, 0.2, 3.8), (22, 0.8, 15.2)], &[(21, "", (0.2, 3.8)), (22, "", (0.8, 15.2))]);
        }
        let told = world.told().unwrap();
        assert_eq!((told.thief.as_str(), told.victim.as_str(), told.after), ("b.service", "a.service", None));
        assert!(
            told.sentence.contains("or give each a weight of its own (CPUWeight=100) so that"),
            "{}",
            told.sentence
        );
        // What ended between two looks had the rest: then it is not known whose the CPU was.
        let mut world = World::new();
        world.hosts.said(entities([(21, "a.service", 0), (22, "b.service", 0)]));
        for _ in 0..60 {
            world.looked(&[(21, 0.1, 3.8), (22, 0.9, 15.2)], &[(21, "", (0.1, 3.8)), (22, "", (0.4, 15.2))]);
        }
        assert_eq!(world.told(), None);
    }

    #[test]
    fn a_quota_of_the_whole_group_is_used_up_by_all_of_it() {
        // Of two CPUs the slice may use one; a window in which it is throttled follows one in which it used twice its part.
        let told = |used: f64, throttled: bool| {
            let mut world = World::new();
            world.hosts.said(entities([(21, "a.service", 0), (22, "b.service", 0)]));
            let quota = WorkloadInfo {
                id: CGROUP,
                name: "shop".into(),
                cgroup: "/shop".into(),
                cpu_quota_ns: WINDOW_NS,
                ..WorkloadInfo::default()
            };
            world.hosts.said(Input::Entities {
                host: "app".into(),
                workloads: vec![quota],
                listeners: Vec::new(),
                edges: Vec::new(),
                devices: Vec::new(),
            });
            for _ in 0..30 {
                let (a, b) = (0.2 * used, 0.8 * used);
                world.quota = Some((2, throttled));
                world.looked(&[(21, a, 3.8), (22, b, 15.2)], &[(21, "", (a, 3.8)), (22, "", (b, 15.2))]);
            }
            world.told().is_some()
        };
        assert_eq!([told(1.0, false), told(0.8, false), told(0.8, true)], [true, false, true]);
    }

    #[test]
    fn neither_a_program_that_is_no_server_nor_one_of_a_chain_is_a_victim() {
        let mut world = World::new();
        for _ in 0..60 {
            let (few, many) = ((0.2, 3.8), (0.8, 15.2));
            world.looked(&[(CGROUP, 1.0, 19.0)], &[(CGROUP, "gzip", few), (12, "", many)]);
        }
        assert_eq!(world.told(), None, "a batch job");
        for _ in 0..60 {
            let (few, many) = ((0.2, 3.8), (0.8, 15.2));
            world.looked(&[(CGROUP, 1.0, 19.0)], &[(11, "", few), (CGROUP, "gzip", many)]);
        }
        assert_eq!(world.told().map(|of| of.thief).as_deref(), Some("gzip"), "it takes from a server");

        // Of servers that share a cgroup calls are told of that.
        for from in ["b", "shop"] {
            let mut world = World::new();
            world.who = calls(("app", from), ("app", "a"));
            world.shared(60, (0.2, 3.8), (0.8, 15.2));
            assert_eq!(world.told(), None, "requests need so much of each");
        }
        let mut world = World::new();
        world.who = calls(("app", "shop"), ("app", "elsewhere"));
        world.shared(60, (0.2, 3.8), (0.8, 15.2));
        assert!(world.told().is_some());
    }

    #[test]
    fn of_a_victim_that_is_gone_or_idle_nothing_is_said_since() {
        let mut world = World::new();
        world.shared(30, (0.2, 3.8), (0.8, 15.2));
        for a in [None, Some((0.01, 0.0))] {
            for _ in 0..60 {
                let mut of = vec![(12, "", (0.5, 9.0)), (CGROUP, "third", (0.5, 9.0))];
                of.extend(a.map(|a| (11, "", a)));
                world.looked(&[(CGROUP, 1.0, 18.0)], &of);
            }
            let told = world.told().unwrap();
            assert_eq!((told.victim.as_str(), told.after), ("a", None));
            assert!(told.seen_unix_ns < WindowIndex(FIRST + 700).end_unix_ns(), "it was so long ago");
        }
    }

    #[test]
    fn who_takes_it_now_is_told_in_place_of_who_is_gone() {
        let mut world = World::new();
        world.shared(30, (0.2, 3.8), (0.8, 15.2));
        for _ in 0..90 {
            world.looked(&[(CGROUP, 1.0, 19.0)], &[(11, "", (0.23, 3.8)), (CGROUP, "third", (0.77, 15.2))]);
        }
        assert_eq!(world.told().unwrap().thief, "third");
        // It turns out to ask the other one for what it does.
        world.who = calls(("app", "shop"), ("app", "a"));
        world.looked(&[(CGROUP, 1.0, 19.0)], &[(11, "", (0.23, 3.8)), (CGROUP, "third", (0.77, 15.2))]);
        assert_eq!(world.told(), None);
    }

    #[test]
    fn what_was_seen_long_ago_says_nothing_of_now_and_names_are_bounded() {
        let mut world = World::new();
        world.shared(9, (0.2, 3.8), (0.8, 15.2));
        world.second += STALE_WINDOWS / 20 + 1;
        world.shared(9, (0.2, 3.8), (0.8, 15.2));
        assert_eq!(world.told(), None);
        let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let of: Vec<_> = names.iter().map(|name| (CGROUP, name.as_str(), (0.01, 1.0))).collect();
        for _ in 0..20 {
            world.looked(&[(CGROUP, 1.0, 100.0)], &of);
        }
        let sums = &world.stealing.by_place.values().next().unwrap().sums;
        assert_eq!(sums.of.len(), NEIGHBOURS_MAX);
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

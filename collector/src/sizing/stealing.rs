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
            let of = |(of, share): (&Neighbour, &CpuShare)| (of.name.clone(), share.workload);
            let ids = neighbours.iter().zip(&shares.neighbours).map(of).collect();
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
#[path = "stealing_tests.rs"]
mod tests;

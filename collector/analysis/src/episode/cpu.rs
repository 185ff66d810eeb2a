//! CPU episode: the CPUs that a workload may use are taken and its tasks wait for them. Owns the sub-kinds: own load,
//! neighbour, quota, steal. Full CPU with nobody waiting is busy, not saturated.

use super::culprits::{self, NAMED_MAX};
use super::{Episode, MOST, quality};
use crate::config::Thresholds;
use crate::frame::history::History;
use crate::series::growth::{LEAD_WINDOWS, quiet};
use crate::series::sample::{TierSample, UseSample};
use crate::series::{Series, average, mean, runs};
use crate::topology::tier::TierKey;
use std::collections::BTreeMap;
use tailwater_model::incident::{Culprit, Resource};
use tailwater_model::window::{CulpritResource, EntityId, WINDOW_NS};

/// A workload that took at least this part of the capacity more than usual can be the neighbour that took it.
const NEIGHBOUR_SHARE: f64 = 0.2;
/// Mean waiting tasks, as a multiple of the threshold, from which waiting alone (no full CPU, no quota seen) counts.
const WAIT_ALONE: f64 = 4.0;
/// CPUs that the only thread of a server used and waited for, together, from which it had work all the time …
const ALONE_FULL: f64 = 0.95;
/// … and beyond which it is not one thread that works, whoever reads the requests; a collector of garbage helps it at times.
const ALONE_MOST: f64 = 1.5;
/// Windows before the moment in question from which a usual CPU use is taken (3 s).
const USUAL_WINDOWS: u64 = 60;
/// A mean over a span is full at this part of what a window has to reach: the span has edges.
const SPAN_FULL: f64 = 0.9;
/// Windows at the start of a span from which its sub-kind is told (400 ms).
const JUDGED_WINDOWS: u64 = 8;
/// Part of the CPUs in question that a hypervisor or a quota must have taken, besides `cpu_taken_ratio` CPUs: on a machine of 64 a fifth of
/// one CPU is noise. A tenth, as that fifth is of two CPUs: up to there nothing is asked but the CPUs.
const TAKEN_PART: f64 = 0.1;

/// Whether one thread serves all requests of a tier, as an event loop does, and what is measured is that tier's alone.
pub(crate) fn served_alone(history: &History, of: &TierKey, tier: &Series<TierSample>) -> bool {
    history.measured_under(&of.host, of.workload) == of.workload
        && tier.values.iter().flatten().map(|s| s.workers_seen).max() == Some(1)
}

/// Whether that thread had work all the time: one thread never waits for a CPU more than it is without one, so few tasks wait.
pub(crate) fn never_idle(s: &UseSample) -> bool {
    (ALONE_FULL..=ALONE_MOST).contains(&(s.busy + s.wait))
}

/// Episodes of `workload` in the series, whose usual level is that before `around`. `alone`: one thread serves all of its requests.
pub(crate) fn episodes(
    history: &History,
    host: &str,
    workload: EntityId,
    series: &Series<UseSample>,
    alone: bool,
    around: u64,
    thresholds: &Thresholds,
) -> Vec<Episode> {
    let usual_wait = quiet(&series.map(|s| s.wait), around);
    let least = thresholds.cpu_wait_tasks.max(thresholds.cpu_wait_growth * usual_wait);
    let waiting = |s: &UseSample| {
        s.wait >= least && (taken(s, thresholds) || s.wait >= WAIT_ALONE * least) || alone && never_idle(s)
    };
    let usual = (around.saturating_sub(USUAL_WINDOWS), around.saturating_sub(LEAD_WINDOWS));
    let span = |(first, last)| Span {
        history,
        host,
        workload,
        series,
        alone,
        first,
        last,
        usual,
        usual_wait,
        least,
        thresholds,
    };
    let told = runs(series, waiting).into_iter().map(|run| span(run).episode());
    // Waits that are polled are told when they end, and those of one window may look as if nothing had taken the CPU.
    let polled = history.polls_run_queue(host);
    told.filter(|e| !polled || e.resource != Resource::CpuSteal).collect()
}

/// The CPUs that the workload may use are in use, or were taken away.
pub(crate) fn taken(s: &UseSample, t: &Thresholds) -> bool {
    let full = |busy: f64, capacity: f64| capacity > 0.0 && busy >= t.cpu_full_ratio * capacity;
    full(s.host_busy, s.capacity)
        || full(s.busy, s.quota)
        || is_withheld(s, t)
        || s.host_steal >= least_taken(s.capacity, t)
}

/// A quota withholds CPUs from the workload, its own one or that of the host (or scope).
pub(crate) fn is_withheld(s: &UseSample, t: &Thresholds) -> bool {
    s.host_throttled >= least_taken(s.capacity, t)
        || s.throttled >= least_taken(may_use(s.capacity, s.quota), t)
}

/// CPUs that must be taken away of so many to count.
fn least_taken(of: f64, t: &Thresholds) -> f64 {
    t.cpu_taken_ratio.max(TAKEN_PART * of)
}

/// CPUs that a workload with this quota (0: none) may use on a host that has so many (0: not known).
fn may_use(capacity: f64, quota: f64) -> f64 {
    if quota > 0.0 && (capacity <= 0.0 || quota < capacity) { quota } else { capacity }
}

/// CPUs that a quota withholds.
fn withheld(s: &UseSample) -> f64 {
    s.host_throttled.max(s.throttled)
}

/// One saturated span of one workload, and what is needed to tell why.
struct Span<'a> {
    history: &'a History,
    host: &'a str,
    workload: EntityId,
    series: &'a Series<UseSample>,
    /// One thread serves all requests of the workload.
    alone: bool,
    first: u64,
    last: u64,
    /// The windows that show what was usual.
    usual: (u64, u64),
    usual_wait: f64,
    /// So many tasks wait at least.
    least: f64,
    thresholds: &'a Thresholds,
}

/// Throttled to less than this part of the CPU it usually uses, a workload is not throttled by its own load.
pub(crate) const LESS_THAN_USUAL: f64 = 0.85;
/// Nor with a capacity of less than this part of the usual one.
pub(crate) const LESS_CAPACITY: f64 = 0.8;

/// Agents look at quotas once a second: where so many times the capacity is used, it is what was allowed before. A window may see a whole period
/// of a quota, which is two windows long.
const OLD_CAPACITY: f64 = 2.5;

/// A workload that always uses so much of what it may, and hardly more now, is no less short than before.
const ALWAYS_FULL: f64 = 0.75;
const ALWAYS_MORE: f64 = 1.2;

/// A sub-kind with how sure it is.
struct Verdict {
    resource: Resource,
    quality: f64,
    by_load: bool,
    clause: String,
    neighbour: Option<EntityId>,
}

fn verdict(resource: Resource, quality: f64, by_load: bool, clause: String) -> Verdict {
    Verdict { resource, quality, by_load, clause, neighbour: None }
}

impl Span<'_> {
    fn episode(mut self) -> Episode {
        let verdict = self.verdict();
        self.trim(&verdict);
        let (first, last) = (self.first, self.last);
        let most = |f: &dyn Fn(&UseSample) -> f64| {
            self.series.range(first, last).map(|(_, s)| f(s)).fold(0.0, f64::max)
        };
        let wait = most(&|s| s.wait);
        let usual_wait = self.usual_wait;
        Episode {
            resource: verdict.resource,
            first,
            last,
            peak: most(&|s| part(s.host_busy, s.capacity).max(part(s.busy, s.quota)).min(1.0)),
            unit: "ratio",
            quality: verdict.quality,
            by_load: verdict.by_load,
            of_host: self.is_of_host(&verdict),
            event_loop: None,
            lookups: None,
            lost: None,
            culprits: self.who(&verdict),
            why: format!(
                "up to {wait:.1} tasks waited for a CPU (usually {usual_wait:.1}); {}",
                verdict.clause
            ),
        }
    }

    /// The windows that tell what took the CPU. The catch-up that follows, in which the tier's own load fills it, is not asked.
    fn judged(&self) -> (u64, u64) {
        (self.first, self.last.min(self.first.saturating_add(JUDGED_WINDOWS - 1)))
    }

    fn mean_of(&self, f: fn(&UseSample) -> f64, (from, to): (u64, u64)) -> f64 {
        average(self.series.range(from, to).map(|(_, s)| f(s)))
    }

    /// CPUs that it got, but for windows in which nobody waited and less than `usual` was used: there it did not want for more. Where waits are
    /// polled they are told when they end, and a window without one says nothing.
    fn got_while_short(&self, usual: f64) -> f64 {
        let (from, to) = self.judged();
        let polled = self.history.polls_run_queue(self.host);
        let wanted = |s: &UseSample| polled || s.wait >= self.least || s.busy >= usual;
        let all = || self.series.range(from, to).map(|(_, s)| s);
        let is_short = all().any(wanted);
        average(all().filter(|s| !is_short || wanted(s)).map(|s| s.busy))
    }

    /// Whether all of the host got less: nobody's own quota is the reason.
    fn is_of_host(&self, verdict: &Verdict) -> bool {
        let during = |f: fn(&UseSample) -> f64| self.mean_of(f, self.judged());
        match verdict.resource {
            Resource::CpuThrottled => {
                !verdict.by_load && during(|s| s.host_throttled) >= during(|s| s.throttled)
            }
            Resource::CpuSteal => true,
            _ => false,
        }
    }

    fn verdict(&self) -> Verdict {
        let t = self.thresholds;
        let judged = self.judged();
        let during = |f: fn(&UseSample) -> f64| self.mean_of(f, judged);
        let (capacity, nominal) = (during(|s| s.capacity), self.mean_of(|s| s.capacity, self.usual));
        let (own, own_usual) = (during(|s| s.busy), self.mean_of(|s| s.busy, self.usual));
        let rises = rises(self.history, self.host, judged, self.usual);
        let most = rises.iter().filter(|(id, _)| **id != self.workload).max_by(|a, b| a.1.total_cmp(b.1));
        if let Some((id, rise)) = most
            && *rise >= NEIGHBOUR_SHARE * capacity.max(0.01)
            && *rise > own - own_usual
        {
            let name =
                self.history.hosts.get(self.host).and_then(|h| h.workloads.get(id)).map(|w| w.name.as_str());
            let clause = format!(
                "{} took {rise:.2} CPUs more than usual while this one got {own:.2} ({own_usual:.2} before)",
                name.unwrap_or("another workload")
            );
            return Verdict {
                neighbour: Some(*id),
                ..verdict(Resource::CpuNeighbour, quality::NEIGHBOUR, false, clause)
            };
        }
        let steal = during(|s| s.host_steal);
        if steal >= least_taken(capacity, t) {
            let clause = format!("{steal:.2} CPUs were stolen by the hypervisor");
            return verdict(Resource::CpuSteal, quality::STOLEN, false, clause);
        }
        let throttled = during(withheld);
        let by_own_quota = during(|s| s.throttled) > during(|s| s.host_throttled);
        let quota = during(|s| s.quota);
        let of = if by_own_quota { may_use(capacity, quota) } else { capacity };
        let is_throttled = throttled >= least_taken(of, t);
        // A smaller quota shows as less CPU than usual, either against the same nominal capacity or with it.
        let got = self.got_while_short(own_usual);
        let less = is_throttled && got < LESS_THAN_USUAL * own_usual;
        if less || (nominal > 0.0 && capacity < LESS_CAPACITY * nominal) {
            let clause =
                format!("throttled {throttled:.2} CPUs, and used {got:.2} where {own_usual:.2} was usual");
            return verdict(Resource::CpuThrottled, quality::THROTTLED, false, clause);
        }
        let cpu_full = during(|s| part(s.host_busy, s.capacity)) >= SPAN_FULL * t.cpu_full_ratio;
        let quota_full = during(|s| part(s.busy, s.quota)) >= SPAN_FULL * t.cpu_full_ratio;
        let thread_full = self.alone && own >= SPAN_FULL * ALONE_FULL;
        // What was always there is not what changed.
        let allowed = if quota_full && !cpu_full {
            quota
        } else if thread_full && !cpu_full {
            1.0
        } else {
            capacity
        };
        let always = own_usual >= ALWAYS_FULL * allowed && own <= ALWAYS_MORE * own_usual;
        let (quality, as_ever) =
            if always { (quality::AS_EVER, ", hardly more than ever") } else { (quality::OWN_LOAD, "") };
        if quota_full && !cpu_full {
            let clause = format!("its own quota was full ({own:.2} CPUs{as_ever})");
            return verdict(Resource::CpuThrottled, quality, true, clause);
        }
        if cpu_full || is_throttled {
            let clause =
                format!("its own load used {own:.2} of {capacity:.2} CPUs ({own_usual:.2} before{as_ever})");
            return verdict(Resource::Cpu, quality, true, clause);
        }
        if thread_full {
            let clause = format!(
                "its only thread had work all the time and used {own:.2} CPUs ({own_usual:.2} before{as_ever})"
            );
            return verdict(Resource::Cpu, quality, true, clause);
        }
        let clause = format!(
            "it got {own:.2} CPUs with {capacity:.2} allowed: the CPU was taken outside of what is seen here"
        );
        verdict(Resource::CpuSteal, quality::TAKEN_UNSEEN, false, clause)
    }

    /// Ends the span where its cause ended: what follows is the catch-up.
    fn trim(&mut self, verdict: &Verdict) {
        let judged = self.judged();
        let windows = self.history.windows_of(self.host);
        let busy = |index: u64| -> f64 {
            let window = windows.at(index);
            let sample = verdict.neighbour.and_then(|id| window?.workloads.get(&id).copied());
            sample.map_or(0.0, |w| mean(w.busy_ns))
        };
        let level = average((judged.0..=judged.1).map(busy));
        let own_usual = self.mean_of(|s| s.busy, self.usual);
        let host_usual = self.mean_of(|s| s.host_busy, self.usual);
        let nominal = self.mean_of(|s| s.capacity, self.usual);
        let holds = |index: &u64| match verdict.resource {
            Resource::CpuNeighbour => busy(*index) >= MOST * level,
            // With its quota back it may well be throttled on, by what has piled up; but it gets what it usually does.
            // Where the quota is that of its host, so is what got less: beside others that catch up, too, it gets little.
            Resource::CpuThrottled if !verdict.by_load => self.series.get(*index).is_some_and(|s| {
                let of_host = s.host_throttled >= s.throttled;
                let less = s.busy < LESS_THAN_USUAL * own_usual
                    && (!of_host || s.host_busy < LESS_THAN_USUAL * host_usual);
                let told = s.capacity < LESS_CAPACITY * nominal && s.host_busy <= OLD_CAPACITY * s.capacity;
                is_withheld(s, self.thresholds) && (less || told)
            }),
            _ => true,
        };
        self.last = (self.first..=self.last).rev().find(holds).unwrap_or(self.last);
    }

    fn who(&self, verdict: &Verdict) -> Vec<Culprit> {
        let (history, host, span) = (self.history, self.host, (self.first, self.last));
        let is_neighbour = |w: EntityId| Some(w) == verdict.neighbour;
        let processes = |also: &dyn Fn(EntityId) -> bool| {
            culprits::processes(history, host, CulpritResource::Cpu, span, also)
        };
        match verdict.resource {
            Resource::CpuNeighbour => {
                // The neighbour that rose first, then whoever else used the CPU, the victim excepted.
                let mut first = processes(&is_neighbour);
                if first.is_empty() {
                    let sums = culprits::per_workload(history, host, span, |w| w.busy_ns);
                    first = culprits::workloads(history, host, &sums, is_neighbour);
                }
                first.extend(processes(&|w| w != self.workload && !is_neighbour(w)));
                first.truncate(NAMED_MAX);
                first
            }
            Resource::Cpu => processes(&|_| true),
            _ => Vec::new(),
        }
    }
}

fn part(used: f64, of: f64) -> f64 {
    if of > 0.0 { used / of } else { 0.0 }
}

/// By how much each workload's CPU use rose, in CPUs.
fn rises(history: &History, host: &str, span: (u64, u64), usual_span: (u64, u64)) -> BTreeMap<EntityId, f64> {
    let all = history.windows_of(host);
    let windows = |(from, to): (u64, u64)| (from..=to).filter(|i| all.at(*i).is_some()).count().max(1) as f64;
    let per_window = WINDOW_NS as f64;
    let mut rises = culprits::per_workload(history, host, span, |w| w.busy_ns);
    let count = windows(span);
    rises.values_mut().for_each(|sum| *sum /= count * per_window);
    let count = windows(usual_span);
    for (id, sum) in culprits::per_workload(history, host, usual_span, |w| w.busy_ns) {
        *rises.entry(id).or_insert(0.0) -= sum / (count * per_window);
    }
    rises
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::fixture::{MS, history};
    use crate::series::sample::use_series;
    use tailwater_model::window::{HostCpu, WorkloadWindow};

    /// 40 usual windows, then 10 of the case, then 10 usual. Workload 1 is the victim, 2 another, and a window of 50 ms has a
    /// capacity of 30 ms.
    fn check(
        case: impl Fn(&mut HostCpu, &mut WorkloadWindow, &mut WorkloadWindow),
        expect: Option<Resource>,
    ) {
        check_served(false, case, expect);
    }

    /// `alone`: by one thread.
    fn check_served(
        alone: bool,
        case: impl Fn(&mut HostCpu, &mut WorkloadWindow, &mut WorkloadWindow),
        expect: Option<Resource>,
    ) {
        let history = history(60, |i, window| {
            let mut cpu = HostCpu { capacity_ns: 30 * MS, ..HostCpu::default() };
            let mut victim =
                WorkloadWindow { busy_ns: 15 * MS, wait_ns: 5 * MS, ..WorkloadWindow::default() };
            let mut other = WorkloadWindow { busy_ns: MS, ..WorkloadWindow::default() };
            if (40..50).contains(&i) {
                case(&mut cpu, &mut victim, &mut other);
            }
            cpu.busy_ns = victim.busy_ns + other.busy_ns;
            window.cpu = Some(cpu);
            window.workloads = [(1, victim), (2, other)].into();
        });
        let series = use_series(&history, "h", 1, 0, 59);
        let found = episodes(&history, "h", 1, &series, alone, 40, &Thresholds::default());
        assert_eq!(
            found.iter().map(|e| e.resource).collect::<Vec<_>>(),
            expect.into_iter().collect::<Vec<_>>(),
            "{found:#?}"
        );
        assert!(found.iter().all(|e| (e.first, e.last) == (40, 49)), "{found:#?}");
    }

    #[test]
    fn of_a_server_with_one_thread_few_tasks_wait_however_short_the_cpu_is() {
        let throttled = |cpu: &mut HostCpu, v: &mut WorkloadWindow, _: &mut WorkloadWindow| {
            cpu.throttled_ns = Some(20 * MS);
            (v.busy_ns, v.wait_ns) = (29 * MS, 20 * MS);
        };
        check_served(true, throttled, Some(Resource::Cpu));
        check_served(false, throttled, None);
        // The machine has another CPU, which one thread cannot use.
        let all_the_time = |cpu: &mut HostCpu, v: &mut WorkloadWindow, _: &mut WorkloadWindow| {
            cpu.capacity_ns = 100 * MS;
            (v.busy_ns, v.wait_ns) = (49 * MS, MS / 2);
        };
        check_served(true, all_the_time, Some(Resource::Cpu));
        check_served(false, all_the_time, None);
        // One thread reads, and others work.
        let by_many = |cpu: &mut HostCpu, v: &mut WorkloadWindow, _: &mut WorkloadWindow| {
            cpu.capacity_ns = 400 * MS;
            (v.busy_ns, v.wait_ns) = (120 * MS, MS / 2);
        };
        check_served(true, by_many, None);
        let idle_at_times = |cpu: &mut HostCpu, v: &mut WorkloadWindow, _: &mut WorkloadWindow| {
            cpu.throttled_ns = Some(20 * MS);
            (v.busy_ns, v.wait_ns) = (29 * MS, 15 * MS);
        };
        check_served(true, idle_at_times, None);
        check_served(
            true,
            |_, v, o| (v.busy_ns, v.wait_ns, o.busy_ns) = (8 * MS, 41 * MS, 22 * MS),
            Some(Resource::CpuNeighbour),
        );
    }

    #[test]
    fn the_sub_kind_follows_who_took_the_cpu() {
        let waits = |w: &mut WorkloadWindow| w.wait_ns = 500 * MS;
        check(|_, _, _| {}, None);
        check(|_, v, _| v.busy_ns = 29 * MS, None);
        check(|_, v, _| (v.busy_ns, v.wait_ns) = (29 * MS, 500 * MS), Some(Resource::Cpu));
        check(
            |_, v, o| {
                waits(v);
                (v.busy_ns, o.busy_ns) = (8 * MS, 22 * MS)
            },
            Some(Resource::CpuNeighbour),
        );
        check(
            |_, v, o| {
                waits(v);
                (v.busy_ns, o.busy_ns) = (15 * MS, 15 * MS)
            },
            Some(Resource::CpuNeighbour),
        );
        check(
            |c, v, _| {
                waits(v);
                (v.busy_ns, c.throttled_ns) = (3 * MS, Some(40 * MS))
            },
            Some(Resource::CpuThrottled),
        );
        check(
            |c, v, _| {
                waits(v);
                (v.busy_ns, c.throttled_ns) = (29 * MS, Some(20 * MS))
            },
            Some(Resource::Cpu),
        );
        check(
            |c, v, _| {
                waits(v);
                (v.busy_ns, c.steal_ns) = (9 * MS, 20 * MS)
            },
            Some(Resource::CpuSteal),
        );
        check(
            |_, v, _| {
                waits(v);
                v.busy_ns = 5 * MS
            },
            Some(Resource::CpuSteal),
        );
        check(|_, v, _| (v.busy_ns, v.wait_ns) = (5 * MS, 20 * MS), None);
    }

    /// What is told of a workload on `cpus` CPUs that always uses half of what it may, and waits for a CPU in ten windows in which `case` says
    /// what else they were; `quota` CPUs are all that it may use, 0: all of them.
    fn of_many(
        cpus: u64,
        quota: u64,
        case: impl Fn(&mut HostCpu, &mut WorkloadWindow),
    ) -> Vec<Option<Resource>> {
        let may = if quota > 0 { quota } else { cpus };
        let mut history = history(60, |i, window| {
            let mut cpu = HostCpu { capacity_ns: cpus * WINDOW_NS, ..HostCpu::default() };
            let mut victim = WorkloadWindow { busy_ns: may * WINDOW_NS / 2, ..WorkloadWindow::default() };
            if (40..50).contains(&i) {
                victim.wait_ns = 20 * WINDOW_NS;
                case(&mut cpu, &mut victim);
            }
            cpu.busy_ns = victim.busy_ns;
            (window.cpu, window.workloads) = (Some(cpu), [(1, victim)].into());
        });
        let host = history.hosts.get_mut("h").unwrap();
        host.workloads.get_mut(&1).unwrap().cpu_quota_ns = quota * WINDOW_NS;
        let series = use_series(&history, "h", 1, 0, 59);
        let found = episodes(&history, "h", 1, &series, false, 40, &Thresholds::default());
        found.iter().map(|e| (!e.by_load).then_some(e.resource)).collect()
    }

    #[test]
    fn on_many_cpus_a_part_of_them_must_be_stolen_and_not_a_fifth_of_one() {
        for cpus in [64, 96] {
            let full = |steal: u64| {
                of_many(cpus, 0, |c, w| {
                    (c.steal_ns, w.busy_ns) = (steal, cpus * WINDOW_NS - steal);
                })
            };
            assert_eq!(full(WINDOW_NS * 3 / 10), [None], "its own load, at 0.3 of {cpus} CPUs");
            assert_eq!(full(cpus * WINDOW_NS / 100), [None], "at one hundredth");
            assert_eq!(full(cpus * WINDOW_NS * 7 / 100), [None], "at seven");
            assert_eq!(full(cpus * WINDOW_NS * 14 / 100), [Some(Resource::CpuSteal)], "at fourteen");
            assert_eq!(full(cpus * WINDOW_NS / 4), [Some(Resource::CpuSteal)], "at a quarter");
        }
        // Of two CPUs a fifth of one is a tenth of them.
        let of_two =
            |steal: u64| of_many(2, 0, |c, w| (c.steal_ns, w.busy_ns) = (steal, 2 * WINDOW_NS - steal));
        assert_eq!(of_two(WINDOW_NS * 19 / 100), [None]);
        assert_eq!(of_two(WINDOW_NS * 21 / 100), [Some(Resource::CpuSteal)]);
    }

    #[test]
    fn on_many_cpus_a_quota_is_held_against_what_it_allows() {
        for cpus in [64, 96] {
            // A squeeze leaves it a third of what it used.
            let squeezed = |quota: u64, throttled: u64| {
                of_many(cpus, quota, |_, w| {
                    (w.busy_ns, w.throttled_ns) = (w.busy_ns / 3, Some(throttled));
                })
            };
            assert_eq!(squeezed(1, WINDOW_NS * 3 / 10), [Some(Resource::CpuThrottled)], "of one CPU");
            assert_eq!(squeezed(32, 8 * WINDOW_NS), [Some(Resource::CpuThrottled)], "a quarter of 32");
            let unseen = squeezed(32, WINDOW_NS * 3 / 10);
            assert_eq!(
                unseen,
                [Some(Resource::CpuSteal)],
                "0.3 of 32 CPUs took nothing: it is not seen what did"
            );
            // That of a scope.
            let scope = |throttled: u64| {
                of_many(cpus, 0, |c, w| (w.busy_ns, c.throttled_ns) = (w.busy_ns / 3, Some(throttled)))
            };
            assert_eq!(scope(cpus * WINDOW_NS / 4), [Some(Resource::CpuThrottled)]);
            assert_eq!(scope(WINDOW_NS * 3 / 10), [Some(Resource::CpuSteal)]);
        }
    }

    #[test]
    fn a_squeeze_ends_when_its_host_gets_what_it_usually_does_also_for_who_gets_little_of_it() {
        // 500 ms of squeeze, then 500 ms in which two servers share what the quota allows, and an agent that looks at the quota once a second.
        let history = history(60, |i, window| {
            let (own, other, capacity, throttled) = match i {
                40..50 => (1, 1, 2, 90),
                50..54 => (9, 20, 2, 40),
                54..60 => (9, 20, 30, 40),
                _ => (15, 1, 30, 0),
            };
            window.cpu = Some(HostCpu {
                capacity_ns: capacity * MS,
                busy_ns: (own + other) * MS,
                throttled_ns: Some(throttled * MS),
                ..HostCpu::default()
            });
            let busy = |ms, wait| WorkloadWindow {
                busy_ns: ms * MS,
                wait_ns: wait * MS,
                throttled_ns: Some(throttled * MS),
                ..WorkloadWindow::default()
            };
            let wait = if i >= 40 { 900 } else { 5 };
            window.workloads = [(1, busy(own, wait)), (2, busy(other, 0))].into();
        });
        let series = use_series(&history, "h", 1, 0, 59);
        let found = episodes(&history, "h", 1, &series, false, 40, &Thresholds::default());
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((found[0].resource, found[0].first, found[0].last), (Resource::CpuThrottled, 40, 49));
    }

    /// Fails where a wave of clients that come again, in the calm after an overload in which all of a quota was used, looks like a smaller quota.
    #[test]
    fn a_window_in_which_nobody_waits_is_no_sign_of_a_quota_that_gives_less() {
        let told = |in_between: u64| {
            let history = history(60, |i, window| {
                let (busy, wait, throttled) = match i {
                    0..40 => (18, 5, 0),
                    41 | 43 => (in_between, 0, 0),
                    40..45 => (18, 600, 40),
                    _ => (9, 0, 0),
                };
                let capacity_ns = 30 * MS;
                let throttled_ns = Some(throttled * MS);
                window.cpu =
                    Some(HostCpu { capacity_ns, busy_ns: busy * MS, throttled_ns, ..HostCpu::default() });
                let busy_ns = busy * MS;
                let victim = WorkloadWindow { busy_ns, wait_ns: wait * MS, ..WorkloadWindow::default() };
                window.workloads = [(1, victim)].into();
            });
            let series = use_series(&history, "h", 1, 0, 59);
            let found = episodes(&history, "h", 1, &series, false, 40, &Thresholds::default());
            found.iter().map(|e| (e.resource, e.by_load)).collect::<Vec<_>>()
        };
        assert_eq!(told(18), [(Resource::Cpu, true)]);
        assert_eq!(told(3), [(Resource::Cpu, true)]);
    }

    /// A period of a quota is two windows: few threads run in the one, and wait in the next.
    #[test]
    fn a_quota_that_is_full_in_every_other_window_is_no_smaller_one() {
        let history = history(60, |i, window| {
            let (busy, wait, throttled) = match i {
                0..40 => (15, 5, 0),
                40..50 if i % 2 == 0 => (50, 5, 10),
                40..50 => (10, 600, 40),
                _ => (9, 0, 0),
            };
            let (capacity_ns, busy_ns) = (30 * MS, busy * MS);
            let throttled_ns = Some(throttled * MS);
            window.cpu = Some(HostCpu { capacity_ns, busy_ns, throttled_ns, ..HostCpu::default() });
            let victim = WorkloadWindow { busy_ns, wait_ns: wait * MS, ..WorkloadWindow::default() };
            window.workloads = [(1, victim)].into();
        });
        let series = use_series(&history, "h", 1, 0, 59);
        let found = episodes(&history, "h", 1, &series, false, 40, &Thresholds::default());
        let told: Vec<_> = found.iter().map(|e| (e.resource, e.by_load)).collect();
        assert_eq!(told, [(Resource::Cpu, true)], "{found:#?}");
    }

    #[test]
    fn the_catch_up_does_not_hide_the_neighbour() {
        // 300 ms of neighbour, then 700 ms of own catch-up, without a pause in between.
        let history = history(60, |i, window| {
            let (own, other, wait) = match i {
                40..46 => (3, 27, 900),
                46..60 => (29, 1, 600),
                _ => (15, 1, 5),
            };
            window.cpu =
                Some(HostCpu { capacity_ns: 30 * MS, busy_ns: (own + other) * MS, ..HostCpu::default() });
            let busy = |ms, wait| WorkloadWindow {
                busy_ns: ms * MS,
                wait_ns: wait * MS,
                ..WorkloadWindow::default()
            };
            window.workloads = [(1, busy(own, wait)), (2, busy(other, 0))].into();
        });
        let series = use_series(&history, "h", 1, 0, 59);
        let found = episodes(&history, "h", 1, &series, false, 40, &Thresholds::default());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].resource, found[0].first, found[0].last), (Resource::CpuNeighbour, 40, 45));
        assert_eq!(found[0].culprits[0].workload, "other");
    }
}

//! Loads a cell's lab: its capacity, and each pool of the grid under each load. Knows nothing of advice, and
//! judges nothing.

use crate::console::progress::step;
use crate::lab::{Lab, Observed};
use crate::load::{LoadPlan, LoadReport, Mode, Outcome, Random};
use crate::os::clock::unix_ns;
use crate::os::cpus;
use crate::sizing::cells::{Cell, LOADS};
use crate::sizing::goodput::{Run, blocks};
use crate::sizing::wang::{self, Step};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A request that is not answered by now is of no use to anybody: longer than each limit of goodput.
const TIMEOUT_MS: u64 = 4_000;
/// Users who measure the capacity, one number after the other: as many as keep the tier busy, fewer than the front holds. The most that any of
/// them got is the capacity: a database under a small quota answered 192 requests a second to 100 users, and was then full to 61 % at most
/// under 250 requests a second that did not come all at once.
const CAPACITY_USERS: [u32; 3] = [10, 30, 100];
/// Users of the staircase.
const STEP_USERS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Of the capacity, for what a request takes alone.
const LIGHT: f64 = 0.2;
/// What starting the servers anew and warming them up usually takes.
const RESTARTS_USUALLY: Duration = Duration::from_secs(14);

/// How long everything is loaded.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Pace {
    /// Before the measured seconds of each load, s.
    pub warm_s: u32,
    /// Measured seconds.
    pub measured_s: u32,
    /// How often each pool is tried: half of them choose the best, the others measure.
    pub repeats: u32,
}

impl Pace {
    /// What the staircase takes at most.
    #[must_use]
    pub fn staircase_takes(&self) -> Duration {
        Duration::from_secs(u64::from(self.warm_s + self.measured_s) + 1) * STEP_USERS.len() as u32
    }

    /// What a sweep of so many pools takes.
    #[must_use]
    pub fn sweep_takes(&self, pools: usize) -> Duration {
        let load = Duration::from_secs(u64::from(self.warm_s + self.measured_s) + 3);
        (RESTARTS_USUALLY + load * LOADS.len() as u32) * self.repeats * pools as u32
    }
}

/// What a cell can serve under the default pool, or under a larger one where that does not let its critical tier be full.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Capacity {
    /// Requests a second under saturation: 1.0 of all loads of the cell, pinned down once.
    pub per_second: f64,
    /// CPU seconds that a request takes of the critical tier.
    pub demand_s: f64,
    /// Mean time of a request under light load, by the clients, s: an upper bound of the time in the critical tier.
    pub light_s: f64,
    /// CPUs that the load generator took meanwhile.
    pub client_cores: f64,
    /// What the critical tier took of its quota under saturation, 0 to 1.
    pub critical_ratio: f64,
    /// What more and more users got; none where nobody asked, as in results of before.
    #[serde(default)]
    pub steps: Vec<Step>,
}

impl Capacity {
    /// The rule of thumb `cores · (1 + W / D)`, in total: W is what is left of a request's time alone, by the clients.
    #[must_use]
    pub fn rule_of_thumb(&self, cores: f64) -> u32 {
        let wait_s = (self.light_s - self.demand_s).max(0.0);
        (cores * (1.0 + wait_s / self.demand_s.max(1e-9))).ceil().clamp(1.0, 10_000.0) as u32
    }
}

/// Sends a plan from the last CPU, which the load generator keeps to, and says what was taken meanwhile.
fn send(lab: &Lab, plan: &LoadPlan) -> Result<(LoadReport, Observed)> {
    let result = lab.observed(|| {
        let load = lab.load(plan)?;
        cpus::pin_process(load.pid().cast_signed(), cpus::allowed()?.saturating_sub(1))?;
        load.wait()
    })?;
    // A sweep has hundreds of them.
    lab.forget_loads()?;
    Ok(result)
}

/// The plan of a cell's load.
#[must_use]
pub fn plan(cell: &Cell, mode: Mode, seconds: u32, seed: u64) -> LoadPlan {
    LoadPlan {
        timeout_ms: TIMEOUT_MS,
        comment_ratio: cell.comment_ratio,
        close_after_ms: cell.close_after_ms,
        seed,
        ..LoadPlan::new(mode, u64::from(seconds) * 1000)
    }
}

/// Measures the capacity of a lab that runs with the pool for that.
pub fn capacity(cell: &Cell, lab: &Lab, pace: Pace) -> Result<Capacity> {
    let (quota, seconds) = (lab.config().limits(cell.critical).cores, pace.warm_s + pace.measured_s);
    let usually = Duration::from_secs((u64::from(seconds) + 1) * (CAPACITY_USERS.len() as u64 + 1));
    step("the capacity is measured", usually, || {
        let mut most: Option<(f64, LoadReport, Observed)> = None;
        for users in CAPACITY_USERS {
            let (per_second, full, seen) = closed(cell, lab, users, pace)?;
            if most.as_ref().is_none_or(|(most, ..)| per_second > *most) {
                most = Some((per_second, full, seen));
            }
        }
        let (per_second, full, seen) = most.context("some users asked")?;
        ensure!(
            per_second >= 10.0,
            "{}: {per_second:.0} requests a second are no capacity: look into the servers' logs",
            cell.name
        );
        let cores = seen.cores(cell.critical).context("the critical tier is one of the stack")?;
        let light = Mode::Open { rate_per_second: LIGHT * per_second };
        let (light, _) = send(lab, &plan(cell, light, seconds, 2))?;
        let good = light.requests.iter().filter(|request| request.outcome == Outcome::Answered);
        let times: Vec<f64> = good.map(|request| request.time_ns() as f64 / 1e9).collect();
        ensure!(!times.is_empty(), "{}: nothing was answered under light load", cell.name);
        Ok(Capacity {
            per_second,
            demand_s: cores * f64::from(seconds) / full.summary.ok.max(1) as f64,
            light_s: times.iter().sum::<f64>() / times.len() as f64,
            client_cores: seen.client_cores,
            critical_ratio: cores / quota,
            steps: Vec::new(),
        })
    })
}

/// What so many users get who ask one request after the other: answers a second, and what was seen meanwhile.
fn closed(cell: &Cell, lab: &Lab, users: u32, pace: Pace) -> Result<(f64, LoadReport, Observed)> {
    let users = Mode::Closed { users, think_ms: 0 };
    let (report, seen) = send(lab, &plan(cell, users, pace.warm_s + pace.measured_s, 1))?;
    let first = report.requests.iter().map(|request| request.start_unix_ns).min().unwrap_or(0);
    let measured = blocks(&report.requests, first + u64::from(pace.warm_s) * 1_000_000_000, pace.measured_s);
    let answered: u64 = measured.iter().map(|block| u64::from(block.within[1])).sum();
    lab.drain()?;
    Ok((answered as f64 / f64::from(pace.measured_s.max(1)), report, seen))
}

/// What more and more users get of a lab that runs with the default pool, up to the first number that gets no more.
pub fn staircase(cell: &Cell, lab: &Lab, pace: Pace) -> Result<Vec<Step>> {
    step("more and more users ask", pace.staircase_takes(), || {
        let mut steps = Vec::new();
        for users in STEP_USERS {
            steps.push(Step { users, per_second: closed(cell, lab, users, pace)?.0 });
            if wang::min_jobs(&steps) != Some(users) {
                break;
            }
        }
        Ok(steps)
    })
}

/// The pools of a sweep, for each server: the grid, and what is to be held against it.
#[must_use]
pub fn pools(grid: &[u32], more: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut pools: Vec<u32> = grid.iter().copied().chain(more).collect();
    pools.sort_unstable();
    pools.dedup();
    pools
}

/// Tries each of these pools under each load, so often, each time in another order: what drifts with the hour drifts for all of them.
pub fn sweep(cell: &Cell, lab: &mut Lab, pools: &[u32], capacity: &Capacity, pace: Pace) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for repeat in 1..=pace.repeats {
        for (number, pool) in shuffled(pools, u64::from(repeat)).into_iter().enumerate() {
            let what = format!(
                "{}: repeat {repeat} of {}, pool {pool} ({} of {})",
                cell.name,
                pace.repeats,
                number + 1,
                pools.len()
            );
            let usually = pace.sweep_takes(1) / pace.repeats.max(1);
            step(&what, usually, || -> Result<()> {
                lab.restart_with(cell.lab(pool))?;
                for (index, load) in LOADS.into_iter().enumerate() {
                    if index > 0 {
                        lab.drain()?;
                    }
                    let seed = u64::from(repeat) * 10 + index as u64;
                    runs.push(run(cell, lab, (pool, load, repeat), capacity.per_second, pace, seed)?);
                }
                Ok(())
            })?;
        }
    }
    Ok(runs)
}

fn run(
    cell: &Cell,
    lab: &Lab,
    (pool, load, repeat): (u32, f64, u32),
    capacity: f64,
    pace: Pace,
    seed: u64,
) -> Result<Run> {
    let mode = Mode::Open { rate_per_second: load * capacity };
    let begun_unix_ns = unix_ns();
    let (report, seen) = send(lab, &plan(cell, mode, pace.warm_s + pace.measured_s, seed))?;
    // The plan's clock begins with its first arrival, some milliseconds after the generator was started.
    let first = report.requests.iter().map(|request| request.start_unix_ns).min().unwrap_or(begun_unix_ns);
    let from = first + u64::from(pace.warm_s) * 1_000_000_000;
    let quota = lab.config().limits(cell.critical).cores;
    let cores = seen.cores(cell.critical).context("the critical tier is one of the stack")?;
    Ok(Run {
        pool,
        load,
        repeat,
        blocks: blocks(&report.requests, from, pace.measured_s),
        client_cores: seen.client_cores,
        lateness_p99_us: report.summary.lateness_p99_us,
        steal_ratio: seen.machine.steal_ratio,
        other_cores: seen.machine.other_cores,
        critical_ratio: cores / quota,
    })
}

fn shuffled(pools: &[u32], seed: u64) -> Vec<u32> {
    let (mut pools, mut random) = (pools.to_vec(), Random::new(seed));
    for last in (1..pools.len()).rev() {
        pools.swap(last, (random.bits() % (last as u64 + 1)) as usize);
    }
    pools
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pool_is_tried_once_in_each_repeat_and_in_another_order() {
        let pools = pools(&[2, 8, 32], [26, 8, 200]);
        assert_eq!(pools, [2, 8, 26, 32, 200]);
        let (one, two) = (shuffled(&pools, 1), shuffled(&pools, 2));
        assert_ne!(one, two);
        for mut order in [one, two] {
            order.sort_unstable();
            assert_eq!(order, pools);
        }
    }

    #[test]
    fn the_rule_of_thumb_counts_what_a_request_waits() {
        let capacity = |light_s| Capacity {
            per_second: 1.0,
            demand_s: 0.001,
            light_s,
            client_cores: 0.1,
            critical_ratio: 1.0,
            steps: Vec::new(),
        };
        assert_eq!(capacity(0.010).rule_of_thumb(0.5), 5);
        assert_eq!(capacity(0.0).rule_of_thumb(0.5), 1, "less than its own CPU is noise");
    }
}

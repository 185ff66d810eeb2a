//! Algorithm 1, steps 1 and 2: raising the load until throughput stops rising. Owns when that is and how often pools
//! are doubled; knows no tier's pools and not how an experiment is run.
//!
//! What differs from the pseudo-code, and why:
//! * `TP_curr` is never assigned in its step 1, so its loop ends at once: here it is the run's throughput;
//! * `WL_min = i − 1` is the first run that brought *nothing* more: here it is the smallest load whose throughput is
//!   within [`GAIN_MIN`] of the most;
//! * "throughput rises" has no tolerance, so noise ends or prolongs the search. A tolerance for each step, as the
//!   digest proposes, ends it as well: with fifty small steps a step is 2 % of the load and may bring no more than
//!   that. So a run is compared with one at a load that was less by [`LOAD_STEP`] at least, over which a system that
//!   is not full gains several times the tolerance;
//! * line 33 gives the critical server's connections minJobs, which contradicts Table 2: see `pools`;
//! * doubling and raising have limits.

use super::equations;
use crate::evidence::{Refusal, Share, positive};

/// Part of the throughput that counts as a gain: runs differ by 1 % by chance.
pub const GAIN_MIN: f64 = 0.02;
/// Part of the load over which a gain is looked for.
pub const LOAD_STEP: f64 = 0.1;
/// Doublings of all pools: from 8 to 8,192.
const DOUBLINGS_MAX: u32 = 10;
/// Runs of one search: at 10 minutes each, a day.
const RUNS_MAX: usize = 144;

/// One run at a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// TP, requests per second.
    pub throughput: f64,
    /// Hardware that was full, by name.
    pub hardware: Vec<String>,
    /// Whether a pool was full.
    pub is_pool_full: bool,
}

/// What step 1 found.
#[derive(Debug, Clone, PartialEq)]
pub struct CriticalFound {
    /// The hardware that was full first, by name.
    pub resource: String,
    /// Times S0 that the pools are then.
    pub pool_factor: u32,
    /// The load.
    pub workload: f64,
    /// Runs that it took.
    pub runs: usize,
}

/// What the critical server did at one load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The load, in any unit.
    pub workload: f64,
    /// TP of the critical tier, requests per second.
    pub throughput: f64,
    /// RTT of the critical tier, s.
    pub response_s: f64,
}

/// The fewest requests in the critical tier that keep its hardware full.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MinJobs {
    /// The smallest load that did.
    pub at: Step,
    /// minJobs = RTT · TP there, requests, all servers of the tier together.
    pub jobs: f64,
    /// Runs that it took.
    pub runs: usize,
}

/// Step 1: raises the load by `step` from `step` on until hardware is full. Where only a pool is, all pools are
/// doubled and the load begins anew. `run` takes the factor of the pools and the load.
///
/// # Errors
/// [`Refusal::SeveralCritical`] if two are full at once, [`Refusal::NothingSaturates`] if throughput ends and nothing
/// is full, [`Refusal::PoolsNeverSuffice`] and [`Refusal::StillRising`] at the search's limits, [`Refusal::Input`]
/// for no step.
pub fn find_critical(
    mut run: impl FnMut(u32, f64) -> Experiment,
    step: f64,
) -> Result<CriticalFound, Refusal> {
    positive("the step of the load", step)?;
    let (mut pool_factor, mut seen) = (1, Vec::new());
    for runs in 1..=RUNS_MAX {
        let workload = step * (seen.len() + 1) as f64;
        let Experiment { throughput, mut hardware, is_pool_full } = run(pool_factor, workload);
        positive("throughput, 1/s,", throughput)?;
        match (hardware.pop(), is_pool_full) {
            (Some(resource), _) if hardware.is_empty() => {
                return Ok(CriticalFound { resource, pool_factor, workload, runs });
            }
            (Some(last), _) => {
                hardware.push(last);
                let share = |resource| Share { resource, full_ratio: 1.0 };
                return Err(Refusal::SeveralCritical {
                    resources: hardware.into_iter().map(share).collect(),
                });
            }
            (None, true) if pool_factor >> DOUBLINGS_MAX > 0 => {
                return Err(Refusal::PoolsNeverSuffice { factor: pool_factor });
            }
            (None, true) => {
                pool_factor *= 2;
                seen.clear();
            }
            (None, false) => {
                seen.push((workload, throughput));
                if has_ended(&seen) {
                    return Err(Refusal::NothingSaturates { workload });
                }
            }
        }
    }
    Err(Refusal::StillRising { workload: step * seen.len() as f64 })
}

/// Step 2: with the pools of step 1, raises the load by `small_step` until throughput stops rising.
///
/// # Errors
/// [`Refusal::StillRising`] at the search's limit, [`Refusal::Input`] for what cannot be.
pub fn infer_min_jobs(mut run: impl FnMut(f64) -> Step, small_step: f64) -> Result<MinJobs, Refusal> {
    positive("the step of the load", small_step)?;
    let mut steps: Vec<Step> = Vec::new();
    while steps.len() < RUNS_MAX {
        let workload = small_step * (steps.len() + 1) as f64;
        steps.push(Step { workload, ..run(workload) });
        if let Ok(found) = least_saturating(&steps) {
            return Ok(found);
        }
        check(&steps)?;
    }
    Err(Refusal::StillRising { workload: small_step * RUNS_MAX as f64 })
}

/// minJobs of loads that were seen, whatever brought them, in any order: RTT · TP at the smallest load that is within
/// [`GAIN_MIN`] of the most throughput.
///
/// # Errors
/// [`Refusal::StillRising`] if the greatest loads still bring more, [`Refusal::Input`] for what cannot be or if there
/// is none.
pub fn least_saturating(steps: &[Step]) -> Result<MinJobs, Refusal> {
    check(steps)?;
    let mut sorted = steps.to_vec();
    sorted.sort_by(|a, b| a.workload.total_cmp(&b.workload));
    let seen: Vec<(f64, f64)> = sorted.iter().map(|step| (step.workload, step.throughput)).collect();
    let workload = seen.last().map_or(0.0, |(workload, _)| *workload);
    if !has_ended(&seen) {
        return Err(Refusal::StillRising { workload });
    }
    let most = seen.iter().map(|(_, throughput)| *throughput).fold(0.0, f64::max);
    let at = sorted.into_iter().find(|step| step.throughput >= (1.0 - GAIN_MIN) * most);
    let at = at.ok_or(Refusal::StillRising { workload })?;
    Ok(MinJobs { at, jobs: equations::queued(at.throughput, at.response_s), runs: steps.len() })
}

fn check(steps: &[Step]) -> Result<(), Refusal> {
    positive("the number of runs", steps.len() as f64)?;
    for step in steps {
        positive("the load", step.workload)?;
        positive("throughput, 1/s,", step.throughput)?;
        positive("response time, s,", step.response_s)?;
    }
    Ok(())
}

/// Whether the greatest load brings no more than one that is less by [`LOAD_STEP`]. By load, rising.
fn has_ended(seen: &[(f64, f64)]) -> bool {
    let Some((workload, throughput)) = seen.last() else { return false };
    let before = seen.iter().rev().find(|(load, _)| *load <= workload / (1.0 + LOAD_STEP));
    before.is_some_and(|(_, before)| *throughput < (1.0 + GAIN_MIN) * before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(workload: f64, full_at: f64) -> f64 {
        workload.min(full_at)
    }

    #[test]
    fn pools_are_doubled_until_hardware_is_full() {
        let mut loads = Vec::new();
        let found = find_critical(
            |factor, workload| {
                loads.push((factor, workload));
                let allowed = 300.0 * f64::from(factor);
                Experiment {
                    throughput: at(workload, allowed.min(1000.0)),
                    hardware: if workload >= 1000.0 && allowed >= 1000.0 {
                        vec!["app CPU".into()]
                    } else {
                        Vec::new()
                    },
                    is_pool_full: workload > allowed,
                }
            },
            100.0,
        )
        .unwrap();
        assert_eq!((found.resource.as_str(), found.pool_factor, found.workload), ("app CPU", 4, 1000.0));
        assert_eq!(found.runs, loads.len());
        assert_eq!(loads[4], (2, 100.0), "the load began anew");
    }

    #[test]
    fn a_search_that_finds_nothing_says_what_ended_it() {
        let run = |throughput, hardware: &[&str], is_pool_full| Experiment {
            throughput,
            hardware: hardware.iter().map(ToString::to_string).collect(),
            is_pool_full,
        };
        let ended = find_critical(|_, load| run(at(load, 500.0), &[], false), 100.0);
        assert_eq!(ended, Err(Refusal::NothingSaturates { workload: 600.0 }));
        let pools = find_critical(|_, load| run(at(load, 500.0), &[], true), 100.0);
        assert_eq!(pools, Err(Refusal::PoolsNeverSuffice { factor: 1024 }));
        let rising = find_critical(|_, load| run(load, &[], false), 1.0);
        assert_eq!(rising, Err(Refusal::StillRising { workload: RUNS_MAX as f64 }));
        let both = find_critical(|_, load| run(load, &["a", "b"], false), 1.0);
        assert!(matches!(both, Err(Refusal::SeveralCritical { resources }) if resources.len() == 2));
        assert!(matches!(find_critical(|_, _| run(f64::NAN, &[], false), 1.0), Err(Refusal::Input { .. })));
        assert!(matches!(find_critical(|_, load| run(load, &[], false), 0.0), Err(Refusal::Input { .. })));
    }

    /// A closed loop of users who think 7 s, before a tier that does 1,000 requests per second, with 1 % of noise.
    fn closed(users: f64) -> Step {
        let wobble = 1.0 + 0.01 * (users * 12.9898).sin();
        let throughput = (users / 7.02).min(1000.0);
        Step { workload: users, throughput: throughput * wobble, response_s: users / throughput - 7.0 }
    }

    #[test]
    fn the_smallest_load_that_saturates_is_found_with_small_steps_and_noise() {
        for small_step in [60.0, 100.0, 500.0] {
            let found = infer_min_jobs(closed, small_step).unwrap();
            // 7,020 users just saturate it; 2 % of them are the tolerance, one step the grid.
            let load = found.at.workload;
            assert!((0.96 * 7020.0..=7020.0 * 1.02 + small_step).contains(&load), "{small_step}: {found:?}");
            assert!((found.jobs - found.at.throughput * found.at.response_s).abs() < 1e-9);
        }
        assert!(
            matches!(infer_min_jobs(closed, 10.0), Err(Refusal::StillRising { .. })),
            "1,440 users at the most"
        );
    }

    #[test]
    fn loads_that_were_seen_need_no_order() {
        let mut steps: Vec<Step> = (1..30).map(|i| closed(f64::from(i) * 400.0)).collect();
        let found = least_saturating(&steps).unwrap();
        steps.reverse();
        assert_eq!(least_saturating(&steps).unwrap(), found);
        assert!(matches!(least_saturating(&steps[20..]), Err(Refusal::StillRising { .. })));
        assert!(matches!(least_saturating(&[]), Err(Refusal::Input { .. })));
    }
}

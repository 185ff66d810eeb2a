//! CPU stealing between neighbours under one scheduler. Owns entitlement, verdict, remedy and the check after a fix;
//! knows no cgroup by name and claims nothing of caches.
//!
//! C: within one level the scheduler shares by runnable thread, so whoever has more threads runnable gets more than
//! its part. That needs one cgroup: siblings with cgroups of their own share by weight whatever their threads are,
//! and in the root cgroup autogroup shares by session.

use crate::evidence::{Refusal, not_negative, positive};
use serde::{Deserialize, Serialize};

/// Part of the CPUs that must be in use for shares to matter.
const FULL_PART: f64 = 0.95;
/// Mean threads waiting for a CPU from which a neighbour wants more than it has: as `cpu_wait_tasks` of the analysis.
const WAITING_MIN: f64 = 0.75;
/// Part of the CPUs that a neighbour must lack. C's least case, 43.66 against 55.9 %, is 6 %; equal pools share within 1 %.
const STOLEN_MIN: f64 = 0.03;

/// Where neighbours stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Threads of one cgroup that is not the root.
    OneCgroup,
    /// A cgroup for each.
    OwnCgroups,
    /// The root cgroup.
    Root,
}

/// One of those that share the CPUs, over a span in which they were full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Name.
    pub name: String,
    /// What it should have in proportion to the others' weights; 1 for each if they are equals.
    pub weight: f64,
    /// Mean threads on a CPU, that is CPUs used.
    pub running: f64,
    /// Mean threads waiting for one.
    pub waiting: f64,
}

impl Neighbour {
    fn runnable(&self) -> f64 {
        self.running + self.waiting
    }
}

/// A neighbour's part of the CPUs. Each ratio is of all CPUs, 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    /// Name.
    pub name: String,
    /// What it got.
    pub share_ratio: f64,
    /// What it is entitled to: its weight's part, or less if it wants less; what others leave goes to those who want more.
    pub entitled_ratio: f64,
    /// What its runnable threads would give it.
    pub runnable_ratio: f64,
    /// Mean runnable threads.
    pub runnable: f64,
}

/// What to change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Remedy {
    /// A cgroup of its own for each, with this weight: that holds whatever the pools are.
    pub cgroup_weights: Vec<(String, f64)>,
    /// Or at the most so many runnable threads of the thief at a time.
    pub thief_runnable_max: u32,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// Everybody has what it is entitled to.
    Fair {
        /// All, as given.
        standings: Vec<Standing>,
    },
    /// Somebody has more because it has more threads, and another less.
    Stealing {
        /// Who has most beyond its part.
        thief: Standing,
        /// Who lacks most.
        victim: Standing,
        /// What the victim lacks, part of all CPUs.
        stolen_ratio: f64,
        /// What to change.
        remedy: Remedy,
    },
    /// Shares are off, and not as runnable threads would have them: another cause.
    Unexplained {
        /// All, as given.
        standings: Vec<Standing>,
    },
}

/// Judges neighbours that share `cpus` (a quota counts as a fraction).
///
/// # Errors
/// [`Refusal::SeparateCgroups`] and [`Refusal::RootLevel`] where threads do not decide, [`Refusal::NotSaturated`] if
/// CPUs were left, [`Refusal::NoNeighbour`] if fewer than two wanted more, [`Refusal::Input`] for what cannot be.
pub fn judge(level: Level, cpus: f64, neighbours: &[Neighbour]) -> Result<Verdict, Refusal> {
    match level {
        Level::OneCgroup => {}
        Level::OwnCgroups => return Err(Refusal::SeparateCgroups),
        Level::Root => return Err(Refusal::RootLevel),
    }
    are_full(cpus, neighbours)?;
    if neighbours.iter().filter(|of| of.waiting >= WAITING_MIN).count() < 2 {
        return Err(Refusal::NoNeighbour);
    }
    let standings = standings(cpus, neighbours);
    let beyond = |of: &Standing| of.share_ratio - of.entitled_ratio;
    let wants = |at: usize| neighbours[at].waiting >= WAITING_MIN;
    let by = |a: &usize, b: &usize| beyond(&standings[*a]).total_cmp(&beyond(&standings[*b]));
    let thief = (0..standings.len()).max_by(by);
    let victim = (0..standings.len()).filter(|at| wants(*at)).min_by(by);
    let (Some(thief), Some(victim)) = (thief, victim) else { return Err(Refusal::NoNeighbour) };
    let stolen_ratio = -beyond(&standings[victim]);
    if stolen_ratio < STOLEN_MIN || beyond(&standings[thief]) <= 0.0 {
        return Ok(Verdict::Fair { standings });
    }
    // By its threads the thief should have more too, and the victim less.
    let by_threads = |of: &Standing| of.runnable_ratio - of.entitled_ratio;
    if by_threads(&standings[thief]) <= 0.0 || by_threads(&standings[victim]) >= 0.0 {
        return Ok(Verdict::Unexplained { standings });
    }
    let fair_runnable = standings[victim].runnable * neighbours[thief].weight / neighbours[victim].weight;
    let remedy = Remedy {
        cgroup_weights: neighbours.iter().map(|of| (of.name.clone(), of.weight)).collect(),
        thief_runnable_max: (fair_runnable.ceil() as u32).max(1),
    };
    let [thief, victim] = [thief, victim].map(|at| standings[at].clone());
    Ok(Verdict::Stealing { thief, victim, stolen_ratio, remedy })
}

/// Whether all numbers can be, and the CPUs were full.
fn are_full(cpus: f64, neighbours: &[Neighbour]) -> Result<(), Refusal> {
    positive("the number of CPUs", cpus)?;
    for neighbour in neighbours {
        positive("a weight", neighbour.weight)?;
        not_negative("the number of running threads", neighbour.running)?;
        not_negative("the number of waiting threads", neighbour.waiting)?;
    }
    let used_ratio = neighbours.iter().map(|of| of.running).sum::<f64>() / cpus;
    if used_ratio < FULL_PART { Err(Refusal::NotSaturated { used_ratio }) } else { Ok(()) }
}

/// Shares of what was used, entitlements by water-filling: who wants no more than its part has what it wants, and the
/// rest is shared again.
fn standings(cpus: f64, neighbours: &[Neighbour]) -> Vec<Standing> {
    let used: f64 = neighbours.iter().map(|of| of.running).sum();
    let runnable: f64 = neighbours.iter().map(Neighbour::runnable).sum();
    let mut entitled: Vec<Option<f64>> = vec![None; neighbours.len()];
    loop {
        let left = used - entitled.iter().flatten().sum::<f64>();
        let open = || neighbours.iter().zip(&entitled).enumerate().filter(|(_, (_, has))| has.is_none());
        let weights: f64 = open().map(|(_, (of, _))| of.weight).sum();
        let content: Vec<(usize, f64)> = open()
            .filter(|(_, (of, _))| of.waiting < WAITING_MIN && of.running <= left * of.weight / weights)
            .map(|(at, (of, _))| (at, of.running))
            .collect();
        if content.is_empty() {
            let rest: Vec<(usize, f64)> =
                open().map(|(at, (of, _))| (at, left * of.weight / weights)).collect();
            rest.into_iter().for_each(|(at, has)| entitled[at] = Some(has));
            break;
        }
        content.into_iter().for_each(|(at, has)| entitled[at] = Some(has));
    }
    let standing = |(of, entitled): (&Neighbour, Option<f64>)| Standing {
        name: of.name.clone(),
        share_ratio: of.running / cpus,
        entitled_ratio: entitled.unwrap_or(0.0) / cpus,
        runnable_ratio: of.runnable() / runnable * used / cpus,
        runnable: of.runnable(),
    };
    neighbours.iter().zip(entitled).map(standing).collect()
}

/// What a fix did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterFix {
    /// The victim has what it is entitled to.
    Fixed,
    /// It lacks less than before: so much, part of all CPUs.
    Better(f64),
    /// It lacks as much or more: so much, part of all CPUs.
    Unchanged(f64),
}

/// Judges the victim of before by its neighbours of now. With cgroups of their own no judgement by threads is due, so
/// this takes shares alone.
///
/// # Errors
/// [`Refusal::NotSaturated`] and [`Refusal::Input`] as [`judge`]; [`Refusal::NoNeighbour`] if the victim is not among
/// them.
pub fn after_fix(victim: &str, stolen_ratio: f64, cpus: f64, now: &[Neighbour]) -> Result<AfterFix, Refusal> {
    are_full(cpus, now)?;
    let standings = standings(cpus, now);
    let is = standings.iter().find(|of| of.name == victim).ok_or(Refusal::NoNeighbour)?;
    let lacks = is.entitled_ratio - is.share_ratio;
    Ok(if lacks < STOLEN_MIN {
        AfterFix::Fixed
    } else if lacks < stolen_ratio {
        AfterFix::Better(lacks)
    } else {
        AfterFix::Unchanged(lacks)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(name: &str, running: f64, waiting: f64) -> Neighbour {
        Neighbour { name: name.into(), weight: 1.0, running, waiting }
    }

    #[test]
    fn what_a_neighbour_leaves_goes_to_those_who_want_more() {
        let all = [neighbour("idle", 0.1, 0.0), neighbour("a", 0.45, 1.0), neighbour("b", 0.45, 1.0)];
        let entitled: Vec<f64> = standings(1.0, &all).iter().map(|of| of.entitled_ratio).collect();
        assert!(
            entitled.iter().zip([0.1, 0.45, 0.45]).all(|(is, due)| (is - due).abs() < 1e-12),
            "{entitled:?}"
        );
        assert!(matches!(judge(Level::OneCgroup, 1.0, &all), Ok(Verdict::Fair { .. })));
    }

    #[test]
    fn weights_are_what_equals_are_measured_by() {
        let heavy = Neighbour { weight: 3.0, ..neighbour("heavy", 0.75, 3.0) };
        let light = neighbour("light", 0.25, 1.0);
        assert!(matches!(judge(Level::OneCgroup, 1.0, &[heavy, light]), Ok(Verdict::Fair { .. })));
    }

    #[test]
    fn fewer_threads_that_got_more_are_another_cause() {
        let few = neighbour("few", 0.6, 0.8);
        let many = neighbour("many", 0.4, 8.0);
        assert!(matches!(judge(Level::OneCgroup, 1.0, &[few, many]), Ok(Verdict::Unexplained { .. })));
    }

    #[test]
    fn where_threads_do_not_decide_nothing_is_judged() {
        let two = [neighbour("a", 0.3, 1.0), neighbour("b", 0.7, 4.0)];
        assert_eq!(judge(Level::Root, 1.0, &two), Err(Refusal::RootLevel));
        assert_eq!(judge(Level::OwnCgroups, 1.0, &two), Err(Refusal::SeparateCgroups));
        assert_eq!(judge(Level::OneCgroup, 2.0, &two), Err(Refusal::NotSaturated { used_ratio: 0.5 }));
        let content = [neighbour("a", 0.3, 0.1), neighbour("b", 0.7, 4.0)];
        assert_eq!(judge(Level::OneCgroup, 1.0, &content), Err(Refusal::NoNeighbour));
        assert!(matches!(judge(Level::OneCgroup, 0.0, &two), Err(Refusal::Input { .. })));
        assert!(matches!(
            judge(Level::OneCgroup, 1.0, &[neighbour("a", f64::NAN, 1.0)]),
            Err(Refusal::Input { .. })
        ));
        assert_eq!(judge(Level::OneCgroup, 1.0, &[]), Err(Refusal::NotSaturated { used_ratio: 0.0 }));
    }
}

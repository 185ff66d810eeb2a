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
pub const WAITING_MIN: f64 = 0.75;
/// Part of the CPUs that a neighbour must lack. C's least case, 43.66 against 55.9 %, is 6 %; under a quota of a quarter of a CPU, equal pools were seen
/// 4 % apart in the mean of ten seconds.
const STOLEN_MIN: f64 = 0.05;
/// What is less than this is nothing: equal pools share so in the mean of a minute.
const FIXED_MAX: f64 = 0.03;
/// Times its part that the threads of who has more must be of all, and those of who has less below it: equal pools differ by some percent.
const THREADS_APART: f64 = 1.05;

/// Part of what was lacked before from which nothing is better: two spans differ by some percent.
const STILL_PART: f64 = 0.8;

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

    /// CPUs that it can use: a thread uses one.
    fn most(&self) -> f64 {
        if self.waiting < WAITING_MIN { self.running } else { self.runnable() }
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
    /// Whether it wants more than it has.
    pub wants_more: bool,
}

/// What to change, if not a cgroup of its own is given to each, with its weight: then threads decide nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Remedy {
    /// At the most so many runnable threads of the thief at a time.
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

/// Where neighbours stand who share `cpus` (a quota counts as a fraction), and of whom two or more want more.
///
/// # Errors
/// [`Refusal::SeparateCgroups`] and [`Refusal::RootLevel`] where threads do not decide, [`Refusal::NotSaturated`] if
/// CPUs were left, [`Refusal::NoNeighbour`] if fewer than two wanted more, [`Refusal::Input`] for what cannot be.
pub fn stand(level: Level, cpus: f64, neighbours: &[Neighbour]) -> Result<Vec<Standing>, Refusal> {
    match level {
        Level::OneCgroup => {}
        Level::OwnCgroups => return Err(Refusal::SeparateCgroups),
        Level::Root => return Err(Refusal::RootLevel),
    }
    are_full(cpus, neighbours)?;
    let standings = standings(cpus, neighbours);
    if standings.iter().filter(|of| of.wants_more).count() < 2 {
        return Err(Refusal::NoNeighbour);
    }
    Ok(standings)
}

/// Judges neighbours that share `cpus`. Of neighbours who do not always want more at the same time, the mean of what [`stand`] says of each
/// span is judged ([`verdict`]), never their mean use: who is idle while others wait lacks nothing.
///
/// # Errors
/// As [`stand`].
pub fn judge(level: Level, cpus: f64, neighbours: &[Neighbour]) -> Result<Verdict, Refusal> {
    stand(level, cpus, neighbours).and_then(|standings| verdict(cpus, standings))
}

/// Judges where neighbours stood, in the mean of spans in which `cpus` were full.
///
/// # Errors
/// [`Refusal::NoNeighbour`] if nobody wanted more.
pub fn verdict(cpus: f64, standings: Vec<Standing>) -> Result<Verdict, Refusal> {
    let beyond = |of: &Standing| of.share_ratio - of.entitled_ratio;
    let by = |a: &&Standing, b: &&Standing| beyond(a).total_cmp(&beyond(b));
    let thief = standings.iter().max_by(by);
    let victim = standings.iter().filter(|of| of.wants_more).min_by(by);
    let Some((thief, victim)) = thief.zip(victim) else { return Err(Refusal::NoNeighbour) };
    let stolen_ratio = -beyond(victim);
    if stolen_ratio < STOLEN_MIN || beyond(thief) <= 0.0 {
        return Ok(Verdict::Fair { standings });
    }
    // By its threads the thief should have more too, and the victim less.
    let by_threads = |of: &Standing| of.runnable_ratio / of.entitled_ratio.max(1e-9);
    if by_threads(thief) < THREADS_APART || by_threads(victim) * THREADS_APART > 1.0 {
        return Ok(Verdict::Unexplained { standings });
    }
    // As many for each part as the victim has for its own, but no fewer than use the CPUs that are due to it.
    let parts = if victim.entitled_ratio > 0.0 { thief.entitled_ratio / victim.entitled_ratio } else { 1.0 };
    // What a mean has of one thread more is no thread: one too many takes a tenth of nine.
    let fair = (victim.runnable * parts + 1e-6).floor().max((thief.entitled_ratio * cpus).ceil());
    let remedy = Remedy { thief_runnable_max: (fair as u32).max(1) };
    let (thief, victim) = (thief.clone(), victim.clone());
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
            .map(|(at, (of, _))| (at, of.most(), left * of.weight / weights))
            .filter(|(_, most, part)| most <= part)
            .map(|(at, most, _)| (at, most))
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
        wants_more: of.waiting >= WAITING_MIN,
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
    /// It lacks about as much, or more: so much, part of all CPUs.
    Unchanged(f64),
}

impl AfterFix {
    /// Of a victim that lacked so much before, and lacks so much now, parts of all CPUs.
    #[must_use]
    pub fn of(before: f64, now: f64) -> Self {
        if now < FIXED_MAX {
            Self::Fixed
        } else if now < STILL_PART * before {
            Self::Better(now)
        } else {
            Self::Unchanged(now)
        }
    }
}

/// What somebody lacks of what is due to it, part of all CPUs; below zero: it has more. Takes shares alone, so that it holds for cgroups of their own
/// with equal weights, too, of which no judgement by threads is due.
///
/// # Errors
/// [`Refusal::NotSaturated`] and [`Refusal::Input`] as [`judge`]; [`Refusal::NoNeighbour`] if it is not among them.
pub fn lacks(name: &str, cpus: f64, now: &[Neighbour]) -> Result<f64, Refusal> {
    are_full(cpus, now)?;
    let standings = standings(cpus, now);
    let is = standings.iter().find(|of| of.name == name).ok_or(Refusal::NoNeighbour)?;
    Ok(is.entitled_ratio - is.share_ratio)
}

/// Judges the victim of before by its neighbours of now.
///
/// # Errors
/// As [`lacks`].
pub fn after_fix(victim: &str, stolen_ratio: f64, cpus: f64, now: &[Neighbour]) -> Result<AfterFix, Refusal> {
    lacks(victim, cpus, now).map(|lacks| AfterFix::of(stolen_ratio, lacks))
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
    fn a_thread_uses_one_cpu_and_no_more_is_due_to_it_and_the_remedy_leaves_no_cpu_idle() {
        // Of eight CPUs two threads use two at the most, though half of the CPUs would be an equal part.
        let few = neighbour("few", 1.0, 1.0);
        let many = neighbour("many", 7.0, 21.0);
        let Ok(Verdict::Stealing { victim, stolen_ratio, remedy, .. }) =
            judge(Level::OneCgroup, 8.0, &[few, many])
        else {
            panic!("one of two threads never ran");
        };
        assert_eq!((victim.name.as_str(), victim.entitled_ratio), ("few", 0.25));
        assert!((stolen_ratio - 0.125).abs() < 1e-12);
        assert_eq!(remedy.thief_runnable_max, 6, "the CPUs that are left");
    }

    #[test]
    fn means_are_judged_of_spans_in_which_both_wanted_more() {
        // By turns: each has all while the other is idle.
        let turn = |running, waiting, others| {
            [neighbour("a", running, waiting), neighbour("b", 1.0 - running, others)]
        };
        assert_eq!(stand(Level::OneCgroup, 1.0, &turn(1.0, 9.0, 0.0)), Err(Refusal::NoNeighbour));
        let once = stand(Level::OneCgroup, 1.0, &turn(0.2, 3.8, 15.2)).unwrap();
        let Ok(Verdict::Stealing { thief, remedy, .. }) = verdict(1.0, once) else { panic!("b has 0.8") };
        assert_eq!((thief.name.as_str(), remedy.thief_runnable_max), ("b", 4));
        assert_eq!(verdict(1.0, Vec::new()), Err(Refusal::NoNeighbour));
        assert_eq!(
            [0.02, 0.1, 0.25, 0.4].map(|now| AfterFix::of(0.3, now)),
            [AfterFix::Fixed, AfterFix::Better(0.1), AfterFix::Unchanged(0.25), AfterFix::Unchanged(0.4)]
        );
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

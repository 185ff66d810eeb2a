//! Judges a sweep and what was advised before it. Pure: runs and advice in, readings and a verdict out.
//!
//! The best pool is chosen on odd repeats and each ratio taken on even ones: whoever is best of many by luck is not so a second time. The
//! interval is a bootstrap in two steps, repeats and then the seconds within each, because a server that was started anew differs
//! from itself by more than its seconds do.

use crate::load::Random;
use crate::sizing::advice::{Advice, Class, Pool};
use crate::sizing::goodput::{Run, SLA_MS};
use serde::Serialize;

/// Samples of a bootstrap.
const SAMPLES: usize = 2_000;
/// From this share of the best on, the worst pool says that pools do not matter here.
const UNINFORMATIVE_MIN: f64 = 0.9;
/// Of the best, what advice of these classes has to reach: the goals.
const GOAL: f64 = 0.97;
const GOAL_EXTRAPOLATED: f64 = 0.90;
/// Inside the advised interval no pool may be worse than this.
const INSIDE_MIN: f64 = 0.98;
/// Times a pool that is as good as the best under every load and limit from which a lower bound is too high.
const BOUND_TOO_HIGH: f64 = 1.5;
/// Of its quota: a tier that takes less is not what the others wait for. With periods of 10 ms no server takes all of it: 0.90 to 0.93 were
/// seen with 140 requests waiting, over whole loads that begin and end slower.
const CRITICAL_MIN: f64 = 0.85;

/// A ratio of two goodputs on even repeats, with the interval that holds 95 % of the bootstrap's samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Of all seconds.
    pub value: f64,
    /// 2.5 % are lower.
    pub low: f64,
    /// 2.5 % are higher.
    pub high: f64,
}

/// A pool that somebody would set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// Who says so.
    pub name: &'static str,
    /// The pool of each server.
    pub pool: u32,
    /// Its goodput in terms of the best; none where that is zero, or where the pool was not tried.
    pub ratio: Option<Ratio>,
}

/// A point of the curve: answers a second within the limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// The pool of each server.
    pub pool: u32,
    /// On odd repeats, by which the best is chosen.
    pub odd: f64,
    /// On even ones.
    pub even: f64,
}

/// The sweep under one load, by one limit of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reading {
    /// Load, of the capacity.
    pub load: f64,
    /// Limit, ms.
    pub sla_ms: u64,
    /// By pool.
    pub curve: Vec<Point>,
    /// The best pool.
    pub best: u32,
    /// Whether pools matter here.
    pub informative: bool,
    /// Goodput of those who advise.
    pub candidates: Vec<Candidate>,
    /// Whether the advised interval holds the best pool; none without an interval.
    pub interval_holds_best: Option<bool>,
    /// Pools inside the advised interval that are worse than 0.98 of the best, for sure.
    pub worse_inside: Vec<u32>,
    /// Pools below the advised least that are as good as 0.98 of the best, for sure.
    pub good_below: Vec<u32>,
}

/// What becomes of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "why", rename_all = "snake_case")]
pub enum Verdict {
    /// All goals of its class are met.
    Right,
    /// A goal is missed, for sure.
    Wrong(String),
    /// A goal is missed, by less than chance allows.
    Open(String),
    /// It could be answered and was not.
    Unanswered(String),
    /// It could not be answered, and no more than a lower bound was told.
    RightlySilent,
    /// It could not be answered, and was.
    FalselyAnswered(String),
    /// No pool is worse than another: counts for nobody.
    Uninformative,
    /// The experiment was not what its cell is about: counts for nobody.
    Void(String),
}

impl Verdict {
    /// For a table.
    #[must_use]
    pub fn text(&self) -> String {
        let (name, why) = match self {
            Verdict::Right => ("right", None),
            Verdict::Wrong(why) => ("**wrong**", Some(why)),
            Verdict::Open(why) => ("open", Some(why)),
            Verdict::Unanswered(why) => ("unanswered", Some(why)),
            Verdict::RightlySilent => ("right: no more than a lower bound", None),
            Verdict::FalselyAnswered(why) => ("**answered, and could not be**", Some(why)),
            Verdict::Uninformative => ("uninformative", None),
            Verdict::Void(why) => ("void", Some(why)),
        };
        why.map_or_else(|| name.to_owned(), |why| format!("{name}: {why}"))
    }
}

/// Reads the runs of one load by limit `sla` (index of [`SLA_MS`]). `interval` is the advised one, for each server. None without an odd
/// and an even repeat.
#[must_use]
pub fn read(
    runs: &[Run],
    load: f64,
    sla: usize,
    candidates: &[(&'static str, u32)],
    interval: Option<(u32, Option<u32>)>,
) -> Option<Reading> {
    let runs: Vec<&Run> = runs.iter().filter(|run| run.load.total_cmp(&load).is_eq()).collect();
    let of = |pool: u32, odd: bool| -> Vec<&Run> {
        runs.iter().copied().filter(|run| run.pool == pool && (run.repeat % 2 == 1) == odd).collect()
    };
    let mut pools: Vec<u32> = runs.iter().map(|run| run.pool).collect();
    pools.sort_unstable();
    pools.dedup();
    // A pool without both, as the last one of a run that was broken off, cannot be held against others.
    pools.retain(|pool| !of(*pool, true).is_empty() && !of(*pool, false).is_empty());
    let curve: Vec<Point> = pools
        .iter()
        .map(|pool| Point {
            pool: *pool,
            odd: goodput(&of(*pool, true), sla),
            even: goodput(&of(*pool, false), sla),
        })
        .collect();
    // Where several serve every request, the smallest is the best: a tie says nothing for a large pool.
    let best = curve.iter().max_by(|a, b| a.odd.total_cmp(&b.odd).then(b.pool.cmp(&a.pool)))?;
    let worst = curve.iter().min_by(|a, b| a.odd.total_cmp(&b.odd))?;
    let against_best = |pool: u32| {
        if pool == best.pool {
            return (best.even > 0.0).then_some(Ratio { value: 1.0, low: 1.0, high: 1.0 });
        }
        let tried = pools.contains(&pool);
        tried.then(|| ratio(&of(pool, false), &of(best.pool, false), sla)).flatten()
    };
    let inside = |pool: u32| {
        interval.is_some_and(|(least, most)| pool >= least && most.is_none_or(|most| pool <= most))
    };
    let bounded = interval.and_then(|(least, most)| Some((least, most?)));
    // An open interval says nothing of what is above it.
    let worse = |pool: &u32| {
        bounded.is_some() && inside(*pool) && against_best(*pool).is_some_and(|ratio| ratio.high < INSIDE_MIN)
    };
    let good = |pool: &u32| {
        interval.is_some_and(|(least, _)| *pool < least)
            && against_best(*pool).is_some_and(|ratio| ratio.low >= INSIDE_MIN)
    };
    Some(Reading {
        load,
        sla_ms: SLA_MS[sla],
        best: best.pool,
        informative: best.even > 0.0 && worst.even < UNINFORMATIVE_MIN * best.even,
        candidates: candidates
            .iter()
            .map(|(name, pool)| Candidate { name, pool: *pool, ratio: against_best(*pool) })
            .collect(),
        interval_holds_best: bounded.map(|(least, most)| (least..=most).contains(&best.pool)),
        worse_inside: pools.iter().copied().filter(worse).collect(),
        good_below: pools.iter().copied().filter(good).collect(),
        curve: curve.clone(),
    })
}

fn goodput(runs: &[&Run], sla: usize) -> f64 {
    runs.iter().map(|run| run.goodput(sla)).sum::<f64>() / runs.len().max(1) as f64
}

/// Goodput of these runs in terms of those.
fn ratio(these: &[&Run], those: &[&Run], sla: usize) -> Option<Ratio> {
    let value = goodput(these, sla) / goodput(those, sla);
    if !value.is_finite() {
        return None;
    }
    // Seeded: the same runs have the same interval.
    let mut random = Random::new(0x51_2e);
    let mut samples: Vec<f64> = (0..SAMPLES)
        .map(|_| resampled(these, sla, &mut random) / resampled(those, sla, &mut random))
        .filter(|sample| sample.is_finite())
        .collect();
    if samples.len() < SAMPLES / 2 {
        return None;
    }
    samples.sort_by(f64::total_cmp);
    let at = |share: f64| samples[((samples.len() - 1) as f64 * share).round() as usize];
    Some(Ratio { value, low: at(0.025), high: at(0.975) })
}

fn resampled(runs: &[&Run], sla: usize, random: &mut Random) -> f64 {
    let (mut good, mut seconds) = (0.0, 0.0_f64);
    for _ in runs {
        let blocks = &runs[below(runs.len(), random)].blocks;
        for _ in blocks {
            good += f64::from(blocks[below(blocks.len(), random)].within[sla]);
            seconds += 1.0;
        }
    }
    good / seconds.max(1.0)
}

fn below(count: usize, random: &mut Random) -> usize {
    ((random.ratio() * count as f64) as usize).min(count - 1)
}

/// Judges a cell. `critical_ratio`: what the tier took of its quota when the capacity was measured; `default`: the pool as shipped, in
/// total; `servers`: how many share what is advised in total, while `readings`, of all loads and limits, are of the pool of each.
#[must_use]
pub fn verdict(
    answerable: bool,
    advice: &Advice,
    critical_ratio: f64,
    (default, servers): (u32, u32),
    readings: &[Reading],
) -> Verdict {
    if critical_ratio < CRITICAL_MIN {
        return Verdict::Void(format!(
            "saturated, the tier took {:.0} % of its quota: something else is critical",
            100.0 * critical_ratio
        ));
    }
    if !answerable {
        return unanswerable(advice, default, readings);
    }
    if !readings.iter().any(|reading| reading.informative) {
        return Verdict::Uninformative;
    }
    match advice {
        Advice::Told(pool) => answered(pool, servers, readings),
        Advice::Refused(why) | Advice::Absent(why) => Verdict::Unanswered(why.clone()),
    }
}

/// A lower bound is allowed, if it is one: what is advised is what is raised to, or that bound and no more, which lets a larger pool stay.
fn unanswerable(advice: &Advice, default: u32, readings: &[Reading]) -> Verdict {
    let pool = match advice {
        Advice::Told(pool) => pool,
        Advice::Refused(_) => return Verdict::RightlySilent,
        Advice::Absent(why) => return Verdict::Unanswered(why.clone()),
    };
    let lowers = pool.advised < default && pool.advised != pool.at_least;
    if pool.class != Class::Extrapolated || pool.at_most.is_some() || lowers {
        return Verdict::FalselyAnswered(format!("{:?}, {} instead of {default}", pool.class, pool.advised));
    }
    match readings.iter().find(|reading| reading.informative && !reading.good_below.is_empty()) {
        Some(reading) => {
            Verdict::Wrong(format!("at least {}, but {:?} suffices", pool.at_least, reading.good_below))
        }
        None => Verdict::RightlySilent,
    }
}

fn answered(pool: &Pool, servers: u32, readings: &[Reading]) -> Verdict {
    let goal = if pool.class == Class::Extrapolated { GOAL_EXTRAPOLATED } else { GOAL };
    let (mut wrong, mut open) = (Vec::new(), Vec::new());
    for reading in readings.iter().filter(|reading| reading.informative) {
        let place = format!("at {} of the capacity within {} ms", reading.load, reading.sla_ms);
        let advised = reading.candidates.iter().find(|candidate| candidate.name == ADVICE);
        match advised.and_then(|candidate| candidate.ratio) {
            None => open.push(format!("{place} it was not tried")),
            Some(ratio) if ratio.high < goal => wrong.push(format!("{place} {:.2} of the best", ratio.value)),
            Some(ratio) if ratio.value < goal => open.push(format!("{place} {:.2} of the best", ratio.value)),
            Some(_) => {}
        }
        if !reading.worse_inside.is_empty() {
            wrong.push(format!("{place} {:?} inside its interval are worse", reading.worse_inside));
        }
    }
    if pool.class == Class::Extrapolated
        && let Some(enough) = good_everywhere(readings)
        && f64::from(pool.at_least) > BOUND_TOO_HIGH * f64::from(enough) * f64::from(servers)
    {
        wrong.push(format!("at least {}, but {enough} in each suffice", pool.at_least));
    }
    if !wrong.is_empty() {
        return Verdict::Wrong(wrong.join("; "));
    }
    if open.is_empty() { Verdict::Right } else { Verdict::Open(open.join("; ")) }
}

/// The smallest pool below the advised least that is as good as the best under every load and limit that tells pools apart.
fn good_everywhere(readings: &[Reading]) -> Option<u32> {
    let mut informative = readings.iter().filter(|reading| reading.informative);
    let first = informative.next()?.good_below.clone();
    let good = informative
        .fold(first, |good, of| good.into_iter().filter(|pool| of.good_below.contains(pool)).collect());
    good.into_iter().min()
}

/// Name of the candidate that is judged.
pub const ADVICE: &str = "advice";

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;

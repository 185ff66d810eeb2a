//! The fit of equation 7 to what was seen, and its bootstrap. Owns weights, replicates and the check on data that
//! were held out; knows not what may be said of the result.
//!
//! N/X is linear in (1, N−1, N(N−1)), so with weights given the fit is one solution of three equations. The weight of
//! a point is the inverse variance of N/X, X⁴/(N² var X). For time in state, var X = C/T², that is C/(N/X)², and the
//! equations' sums become
//!
//! ```text
//! left  Σ C/y² · f fᵀ        right  Σ N·T/y² · f        y = S*(N), f = (1, N−1, N(N−1))
//! ```
//!
//! which are sums over time: each block of traffic has its own, and a replicate of the bootstrap adds those that it
//! drew. Of a block the curve keeps answers and time by groups of bins; its sums are those parts of the groups' exact ones. y is taken from the fit before, twice: with the observed N/X in it, points that are high by chance would
//! weigh less.

use super::law::Law;
use crate::curve::{Curve, GROUPS, KNOWN_COMPLETIONS, Kept, Level, Point, bins, group_of};
use crate::evidence::{Estimate, Refusal, positive};
use crate::numeric::least_squares::Normal;
use crate::numeric::quantile::quantiles;
use crate::numeric::sequence::Sequence;
use serde::Serialize;

/// Loads that the law needs: as many as it has parameters.
const LOADS_MIN: usize = 3;
/// Fits whose result gives the next one's weights.
const REWEIGHTED: usize = 2;
/// Blocks without which an interval says nothing.
const BLOCKS_MIN: usize = 20;
/// Answers without which a level says nothing: below that the observed N/X is off by a quarter.
const COMPLETIONS_MIN: f64 = 20.0;
/// Replicates of the bootstrap: ten beyond each end of a 95 % interval.
const REPLICATES: usize = 400;

fn columns(in_flight: f64) -> [f64; 3] {
    [1.0, in_flight - 1.0, in_flight * (in_flight - 1.0)]
}

/// Fits the law of *one* server to pairs of its requests in flight and its throughput. Where the pairs are of
/// `servers` together, divide both by their number; where throughput is the system's, multiply it by V.
///
/// # Errors
/// [`Refusal::TooFewLoads`] with fewer than three different numbers in flight, [`Refusal::NoSpread`] if they are too
/// alike, [`Refusal::NoGain`] if the fitted S0 is not above 0, [`Refusal::Input`] for what cannot be.
pub fn fit(points: &[Point]) -> Result<Law, Refusal> {
    let mut loads = Vec::new();
    for point in points {
        positive("the number in flight", point.in_flight)?;
        positive("throughput, 1/s,", point.throughput)?;
        positive("the error of throughput, 1/s,", point.error)?;
        loads.push(point.in_flight);
    }
    enough_loads(loads)?;
    reweighted(points.iter().map(|point| {
        let time_s = point.in_flight / point.throughput;
        // C = T·X has this relative variance, 1/C.
        let completions = (point.throughput / point.error).powi(2);
        (point.in_flight, completions, completions * time_s)
    }))
}

/// Different numbers in flight, if they are enough.
fn enough_loads(mut loads: Vec<f64>) -> Result<usize, Refusal> {
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    if loads.len() < LOADS_MIN {
        Err(Refusal::TooFewLoads { seen: loads.len(), needed: LOADS_MIN })
    } else {
        Ok(loads.len())
    }
}

/// A fit to (N, C, N·T), first with the observed N·T/C in the weights and then with the fitted one.
fn reweighted(observed: impl Iterator<Item = (f64, f64, f64)> + Clone) -> Result<Law, Refusal> {
    let mut time_s: Box<dyn Fn(f64, f64, f64) -> f64> = Box::new(|_, completions, time| time / completions);
    let mut law = Err(Refusal::NoSpread);
    for _ in 0..=REWEIGHTED {
        let mut sums = Normal::new();
        for (in_flight, completions, time) in observed.clone() {
            let weight = time_s(in_flight, completions, time).powi(-2);
            sums.add(columns(in_flight), weight * completions, weight * time);
        }
        law = solved(&sums);
        let Ok(found) = law else { break };
        // A law that is not positive at a load that was seen is no law; weights stay those that gave it.
        if observed.clone().any(|(in_flight, ..)| found.response_s(in_flight) <= 0.0) {
            break;
        }
        time_s = Box::new(move |in_flight, _, _| found.response_s(in_flight));
    }
    law
}

fn solved(sums: &Normal<3>) -> Result<Law, Refusal> {
    let [service_s, contention_s, coherency_s] = sums.solve().ok_or(Refusal::NoSpread)?.parameters;
    if service_s <= 0.0 {
        return Err(Refusal::NoGain { service_s, contention_s });
    }
    Law::new(service_s, contention_s, coherency_s)
}

/// A law that was fitted to a curve, and how sure it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CurveFit {
    /// Fitted to all blocks.
    pub law: Law,
    /// β with its interval, s.
    pub coherency_s: Estimate,
    /// N_b with its interval; none if the law has no optimum.
    pub in_flight: Option<Estimate>,
    /// X_max of one server with its interval, 1/s; none if the law has no optimum.
    pub throughput_max: Option<Estimate>,
    /// Part of the replicates that have no optimum, 0 to 1.
    pub failed_ratio: f64,
    /// R² of odd blocks under the law of even ones; none if they cannot be compared.
    pub holdout_r2: Option<f64>,
    /// Levels with [`KNOWN_COMPLETIONS`] each.
    pub known_levels: usize,
    /// The greatest of those, requests in flight; 0 without one.
    pub known_to: f64,
    /// Laws of the replicates that have an optimum.
    #[serde(skip)]
    pub replicates: Vec<Law>,
}

/// Fits the law to a curve, with intervals from a bootstrap of its blocks. What is drawn is a function of the curve alone.
///
/// # Errors
/// As [`fit`]; [`Refusal::TooFewBlocks`] with fewer than 20.
pub fn fit_curve(curve: &Curve) -> Result<CurveFit, Refusal> {
    let blocks = curve.blocks();
    if blocks.len() < BLOCKS_MIN {
        return Err(Refusal::TooFewBlocks { seen: blocks.len(), needed: BLOCKS_MIN });
    }
    let levels: Vec<Level> =
        curve.levels().into_iter().filter(|level| level.completions >= COMPLETIONS_MIN).collect();
    enough_loads(levels.iter().map(|level| level.in_flight).collect())?;
    let law = reweighted(levels.iter().map(|of| (of.in_flight, of.completions, of.in_flight * of.seconds)))?;
    let sums = sums_of(blocks, &levels, &law);

    let bits =
        blocks.iter().flat_map(|block| block.completions.into_iter().chain(block.time_s)).map(f64::from);
    let mut sequence = Sequence::seeded(bits);
    let (mut coherency, mut replicates, mut optima) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPLICATES {
        let mut drawn = Normal::new();
        (0..sums.len()).for_each(|_| drawn.merge(&sums[sequence.below(sums.len())]));
        let Ok(law) = solved(&drawn) else { continue };
        coherency.push(law.coherency_s);
        if let Ok(optimum) = law.optimum() {
            replicates.push(law);
            optima.push(optimum);
        }
    }
    let estimate =
        |value, of: Vec<f64>| quantiles(of, [0.025, 0.975]).map(|[low, high]| Estimate { value, low, high });
    let best = law.optimum().ok();
    let known = || levels.iter().filter(|level| level.is_known());
    Ok(CurveFit {
        law,
        coherency_s: estimate(law.coherency_s, coherency).ok_or(Refusal::NoSpread)?,
        in_flight: best
            .and_then(|best| estimate(best.in_flight, optima.iter().map(|of| of.in_flight).collect())),
        throughput_max: best
            .and_then(|best| estimate(best.throughput, optima.iter().map(|of| of.throughput).collect())),
        failed_ratio: 1.0 - optima.len() as f64 / REPLICATES as f64,
        holdout_r2: holdout_r2(curve, &levels, &law),
        known_levels: known().count(),
        known_to: known().next_back().map_or(0.0, |level| level.in_flight),
        replicates,
    })
}

/// Sums of each block, with the weights of the law that all gave: of each group the part that its answers are of all blocks' in that
/// group on the left, and the part that its time is on the right.
fn sums_of(blocks: &[Kept], levels: &[Level], law: &Law) -> Vec<Normal<3>> {
    let (mut left, mut right) = ([Normal::<3>::new(); GROUPS], [Normal::<3>::new(); GROUPS]);
    for level in levels {
        if let Some((group, weight)) = group_and_weight(level, law) {
            left[group].add(columns(level.in_flight), weight * level.completions, 0.0);
            right[group].add(columns(level.in_flight), 0.0, weight * level.in_flight * level.seconds);
        }
    }
    let (mut completions, mut time_s) = ([0.0; GROUPS], [0.0; GROUPS]);
    for block in blocks {
        for group in 0..GROUPS {
            completions[group] += f64::from(block.completions[group]);
            time_s[group] += f64::from(block.time_s[group]);
        }
    }
    let part = |of: f32, all: f64| if all > 0.0 { f64::from(of) / all } else { 0.0 };
    let sums = |block: &Kept| {
        let mut sums = Normal::new();
        for group in 0..GROUPS {
            sums.merge_part(&left[group], part(block.completions[group], completions[group]));
            sums.merge_part(&right[group], part(block.time_s[group], time_s[group]));
        }
        sums
    };
    blocks.iter().map(sums).collect()
}

/// The group of a level's bin, and its weight; none where the law is not positive.
fn group_and_weight(level: &Level, law: &Law) -> Option<(usize, f64)> {
    // A bin's middle is within it, rounded down too.
    let group = group_of(bins::bin_of(level.in_flight as u32))?;
    let time_s = law.response_s(level.in_flight);
    (time_s > 0.0).then(|| (group, time_s.powi(-2)))
}

/// R² of the throughput of odd stretches' levels, weighted by their inverse variances, under the law of even ones at the same weights.
fn holdout_r2(curve: &Curve, fitted: &[Level], of_all: &Law) -> Option<f64> {
    let mut even = Normal::new();
    let is_fitted =
        |level: &&Level| fitted.binary_search_by(|of| of.in_flight.total_cmp(&level.in_flight)).is_ok();
    for level in curve.half(0).iter().filter(is_fitted) {
        if let Some((_, weight)) = group_and_weight(level, of_all) {
            let right = weight * level.in_flight * level.seconds;
            even.add(columns(level.in_flight), weight * level.completions, right);
        }
    }
    let law = solved(&even).ok()?;
    let odd = curve.half(1);
    let known: Vec<&Level> =
        odd.iter().filter(|level| level.completions >= KNOWN_COMPLETIONS / 2.0).collect();
    let weight = |level: &Level| level.error().powi(-2);
    let sum = |of: &dyn Fn(&Level) -> f64| known.iter().map(|level| weight(level) * of(level)).sum::<f64>();
    let mean = sum(&Level::throughput) / sum(&|_| 1.0);
    let spread = sum(&|level| (level.throughput() - mean).powi(2));
    let missed = sum(&|level| (level.throughput() - law.throughput(level.in_flight)).powi(2));
    (known.len() >= LOADS_MIN && spread > 0.0).then(|| 1.0 - missed / spread)
}

//! The congestion point N* of a curve. Owns the estimate and what it needs; knows no listener and no time.
//!
//! The method is that of Wang et al., "Detecting Transient Bottlenecks in n-Tier Applications through Fine-Grained Analysis",
//! ICDCS'13, the section on determining the congestion point: the range of load is divided into intervals N_1 .. N_k, the windows
//! of each give its mean throughput TP_i, and the slopes of this curve are
//!
//! ```text
//! d_1 = TP_1 / N_1        d_i = (TP_i - TP_{i-1}) / (N_i - N_{i-1})
//! ```
//!
//! Below the congestion point the slopes stay near d_1 (by Little's law 1 / response time); beyond it they fall towards zero or
//! below. N* is the load from which on they are, at the 95 % level of a one-sided t interval, below a tolerance of 0.2 d_1.
//!
//! The paper does this once over a recorded experiment; this runs online, on minutes of production load that rarely comes near
//! congestion. Hence these differences:
//! * intervals are even in the logarithm of load and hold at least 20 windows each, so that a few windows at 300 requests do not
//!   cost the resolution at 3;
//! * d_1 is taken over the lightest quarter of windows (the ratio of answers to load, or the rise of one with the other, whichever
//!   is less), not over the first interval, which holds only the shortest requests of a mix;
//! * noise between neighbours is taken out by the concavity of the curve up to N* (its least concave majorant) before slopes are
//!   compared, and the t interval is that of the slope fitted to all intervals from N* on. If even that may be as steep as the tolerance, N*
//!   is not known yet, rather than the last load seen;
//! * throughput is in answers, not normalised to units of work: the classes of requests that would need are in payloads, which
//!   nobody reads.

use super::curve::{ANSWERS_MIN, Bin, Curve};
use tailwater_model::congestion::{CongestionInterval, CongestionState};

/// Windows an interval must hold.
const INTERVAL_WINDOWS: f64 = 20.0;
/// Windows that the last one must hold: full queues are rare.
const LAST_WINDOWS: f64 = 5.0;
/// Intervals from which a curve can have a bend.
const INTERVALS_MIN: usize = 4;
/// Windows before anything is said (10 s under load).
const WINDOWS_MIN: f64 = 200.0;
/// Windows from which there is as much as is ever needed (one minute under load).
const WINDOWS_FULL: f64 = 1200.0;
/// Slope, as a part of the first, below which load brings no throughput.
const TOLERANCE: f64 = 0.2;
/// Part of the windows, the lightest, that show the first slope.
const LIGHT_PART: f64 = 0.25;
/// One-sided 95 % quantiles of Student's t distribution for 1 to 30 degrees of freedom; the last is above all that follow, by 3 % at most.
const T_95: [f64; 30] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
    1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
];

/// The bend of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Knee {
    /// N*, queued requests.
    pub(crate) load: f64,
    /// Answers per window there.
    pub(crate) answered: f64,
}

/// What a curve says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) state: CongestionState,
    /// Only if known.
    pub(crate) knee: Option<Knee>,
    /// How much there is to go by, 0 to 1.
    pub(crate) coverage: f64,
    pub(crate) intervals: Vec<CongestionInterval>,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    load: f64,
    answered: f64,
    windows: f64,
    /// Variance of `answered` as a mean.
    variance: f64,
}

impl Point {
    fn of(bin: &Bin) -> Self {
        let (load, answered) = (bin.load / bin.windows, bin.answered / bin.windows);
        let spread = bin.answered_squared / bin.windows - answered * answered;
        // Never below chance: few windows may agree by it.
        Self { load, answered, windows: bin.windows, variance: spread.max(answered).max(0.1) / bin.windows }
    }

    fn slope_to(&self, next: &Self) -> f64 {
        (next.answered - self.answered) / (next.load - self.load).max(1e-9)
    }
}

/// Estimates the congestion point.
pub(crate) fn estimate(curve: &Curve) -> Estimate {
    let points = intervals(curve);
    let sum = curve.sum();
    let mut result = Estimate {
        state: CongestionState::TooFewWindows,
        knee: None,
        coverage: ((sum.windows / WINDOWS_FULL).min(1.0) * 100.0).round() / 100.0,
        intervals: points
            .iter()
            .map(|p| CongestionInterval {
                load: (p.load * 100.0).round() / 100.0,
                answered: (p.answered * 100.0).round() / 100.0,
                windows: (p.windows * 10.0).round() / 10.0,
            })
            .collect(),
    };
    if points.len() < INTERVALS_MIN || sum.windows < WINDOWS_MIN {
        return result;
    }
    let least = TOLERANCE * first_slope(&points);
    let hull = majorant(&points);
    let Some((knee, _)) = bend(&points, &hull, least).filter(|(_, from)| is_flat(&points, *from, least))
    else {
        result.state = CongestionState::StillRising;
        if points.iter().all(|p| p.answered < ANSWERS_MIN) {
            result.state = CongestionState::TooFewAnswers;
        }
        return result;
    };
    if knee.answered < ANSWERS_MIN {
        result.state = CongestionState::TooFewAnswers;
        return result;
    }
    result.state = CongestionState::Known;
    result.knee = Some(knee);
    result
}

fn intervals(curve: &Curve) -> Vec<Point> {
    let mut points = Vec::new();
    let mut open = Bin::default();
    for bin in curve.bins() {
        open.add(bin);
        if open.windows >= INTERVAL_WINDOWS {
            points.push(Point::of(&open));
            open = Bin::default();
        }
    }
    if open.windows >= LAST_WINDOWS {
        points.push(Point::of(&open));
    }
    points
}

/// The slope at light load: the ratio of answers to load, or the rise of one with the other, whichever is less. The ratio alone
/// is too steep where many short requests are answered whatever waits; the rise alone where even light load is congested.
fn first_slope(points: &[Point]) -> f64 {
    let part = LIGHT_PART * points.iter().map(|p| p.windows).sum::<f64>();
    let mut before = 0.0;
    let light: Vec<&Point> = points
        .iter()
        .take_while(|p| {
            let more = before < part;
            before += p.windows;
            more
        })
        .collect();
    let sum = |f: &dyn Fn(&Point) -> f64| light.iter().map(|p| p.windows * f(p)).sum::<f64>();
    let (windows, load, answered) = (sum(&|_| 1.0), sum(&|p| p.load), sum(&|p| p.answered));
    let (x, y) = (load / windows, answered / windows);
    let spread = sum(&|p| (p.load - x) * (p.load - x));
    let common = sum(&|p| (p.load - x) * (p.answered - y));
    let ratio = if load > 0.0 { answered / load } else { 0.0 };
    if spread > 0.0 { ratio.min(common / spread) } else { ratio }
}

/// The least concave curve above origin and points: slopes only fall along it.
fn majorant(points: &[Point]) -> Vec<Point> {
    let mut hull = vec![Point { load: 0.0, answered: 0.0, windows: 0.0, variance: 0.0 }];
    for next in points {
        while let [.., before, last] = hull.as_slice()
            && before.slope_to(last) <= last.slope_to(next)
        {
            hull.pop();
        }
        hull.push(*next);
    }
    hull
}

/// Where the slope falls below `least`, and the last load before.
fn bend(points: &[Point], hull: &[Point], least: f64) -> Option<(Knee, f64)> {
    let slopes: Vec<f64> = hull.windows(2).map(|w| w[0].slope_to(&w[1])).collect();
    let at = slopes.iter().position(|s| *s < least).filter(|at| *at > 0)?;
    let (left, right) = (hull.get(at)?, hull.get(at + 1)?);
    let rising = *slopes.get(at - 1)?;
    let seen = Knee { load: left.load, answered: left.answered };
    if points.iter().any(|p| p.load > left.load && p.load < right.load) {
        return Some((seen, left.load));
    }
    let after = slopes.get(at + 1).copied().unwrap_or(0.0);
    // Between the two lies nothing that was seen: the bend is where the lines before and after meet.
    let meet = (right.answered - after * right.load - left.answered + rising * left.load) / (rising - after);
    let load = meet.clamp(left.load, right.load);
    let answered = (left.answered + rising * (load - left.load)).min(left.answered.max(right.answered));
    Some((Knee { load, answered }, left.load))
}

/// Whether the slope from `load` on is below `least` at the 95 % level.
fn is_flat(points: &[Point], load: f64, least: f64) -> bool {
    let beyond = || points.iter().filter(|p| p.load >= load);
    let weight: f64 = beyond().map(|p| 1.0 / p.variance).sum();
    let mean = |f: fn(&Point) -> f64| beyond().map(|p| f(p) / p.variance).sum::<f64>() / weight;
    let (x, y) = (mean(|p| p.load), mean(|p| p.answered));
    let spread: f64 = beyond().map(|p| (p.load - x) * (p.load - x) / p.variance).sum();
    let common: f64 = beyond().map(|p| (p.load - x) * (p.answered - y) / p.variance).sum();
    let windows: f64 = beyond().map(|p| p.windows).sum();
    if beyond().count() < 2 || spread <= 0.0 {
        return false;
    }
    let degrees = (windows as usize).saturating_sub(2).max(1);
    let t = T_95[degrees.min(T_95.len()) - 1];
    common / spread + t / spread.sqrt() < least
}

#[cfg(test)]
#[path = "knee_tests.rs"]
mod tests;

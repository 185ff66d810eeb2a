//! What Gradient2 would set, the limiter of Netflix's `concurrency-limits` (`Gradient2Limit` of 0.2.2 and later, with what it is shipped with), **emulated**: nobody asks through it;
//! how long a request takes with so many in flight is what a sweep tells of a pool of that size, by Little's law. Pure.

use crate::sizing::goodput::{Run, nearest, training};
use serde::Serialize;

/// What the limit begins with, and never goes below.
const LIMIT_MIN: f64 = 20.0;
/// It never goes above.
const LIMIT_MAX: f64 = 200.0;
/// What it may grow by in one window, before smoothing.
const QUEUE: f64 = 4.0;
/// Part of a new limit that is taken at once.
const SMOOTHING: f64 = 0.2;
/// Windows of the long mean: an exponential one, whose factor is 2 / (n + 1).
const LONG_WINDOWS: f64 = 600.0;
/// Its first windows are a plain mean.
const PLAIN_WINDOWS: u32 = 10;
/// Times the long mean that a window may take before the limit is lowered.
const TOLERANCE: f64 = 1.5;
/// A long mean that is twice what a window took is too old, and is lowered to this part of it.
const LONG_TOO_OLD: f64 = 2.0;
const LONG_KEPT: f64 = 0.95;
/// No window lowers it by more than this part.
const GRADIENT_MIN: f64 = 0.5;
/// How long the limit is always used up, in windows of a second. It never comes to rest: while it is used up the long mean follows, and it goes on.
const WINDOWS: [u32; 2] = [600, 3_600];

/// Where the limit is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gradient2 {
    /// After ten minutes of overload.
    pub limit: f64,
    /// After an hour of it.
    pub hour: f64,
    /// Of the pools that were tried, the nearest to the first by their ratio.
    pub nearest: u32,
}

impl Gradient2 {
    /// By what the best pool of a sweep is chosen by. `None` without an answer in it.
    #[must_use]
    pub fn emulated(runs: &[Run]) -> Option<Self> {
        let training = training(runs);
        let times = times(&training);
        let [limit, hour] = WINDOWS.map(|windows| limit_after(windows, |limit| at(&times, limit)));
        let (limit, hour) = (limit?, hour?);
        Some(Self { limit, hour, nearest: nearest(&training, limit)? })
    }
}

/// Seconds that a request takes with so many in flight, by pool, ascending.
fn times(training: &[(u32, f64)]) -> Vec<(f64, f64)> {
    let mut pools: Vec<u32> = training.iter().map(|(pool, _)| *pool).collect();
    pools.sort_unstable();
    pools.dedup();
    let time = |pool: u32| {
        let of = || training.iter().filter(|(other, _)| *other == pool).map(|(_, goodput)| *goodput);
        (f64::from(pool), f64::from(pool) * of().count() as f64 / of().sum::<f64>())
    };
    pools.into_iter().map(time).collect()
}

/// Between two pools it is on a line; below the least and above the largest their throughput holds.
fn at(times: &[(f64, f64)], in_flight: f64) -> Option<f64> {
    let above = times.partition_point(|(pool, _)| *pool < in_flight);
    match (above.checked_sub(1).and_then(|below| times.get(below)), times.get(above)) {
        (Some((low, low_s)), Some((high, high_s))) => {
            Some(low_s + (high_s - low_s) * (in_flight - low) / (high - low))
        }
        (Some((pool, time_s)), None) | (None, Some((pool, time_s))) => Some(time_s * in_flight / pool),
        (None, None) => None,
    }
}

/// The limit after so many windows in each of which it was used up.
fn limit_after(windows: u32, time_s: impl Fn(f64) -> Option<f64>) -> Option<f64> {
    let (mut limit, mut long_s) = (LIMIT_MIN, 0.0);
    for window in 1..=windows {
        let short_s = time_s(limit)?;
        let part = if window <= PLAIN_WINDOWS { 1.0 / f64::from(window) } else { 2.0 / (LONG_WINDOWS + 1.0) };
        long_s += (short_s - long_s) * part;
        let gradient = (TOLERANCE * long_s / short_s).clamp(GRADIENT_MIN, 1.0);
        if long_s / short_s > LONG_TOO_OLD {
            long_s *= LONG_KEPT;
        }
        limit += SMOOTHING * (limit * gradient + QUEUE - limit);
        limit = limit.clamp(LIMIT_MIN, LIMIT_MAX);
    }
    Some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_does_not_grow_lets_it_grow_to_the_end() {
        assert_eq!(limit_after(600, |_| Some(0.01)), Some(LIMIT_MAX));
        let after = limit_after(10, |_| Some(0.01)).unwrap();
        assert!((after - 28.0).abs() < 1e-9, "four a window, a fifth of it at once: {after}");
    }

    #[test]
    fn where_throughput_stands_it_goes_on_as_the_long_mean_follows() {
        // By another program with the same constants.
        let of = |windows| limit_after(windows, |limit| Some(limit / 900.0)).unwrap();
        assert!((of(100) - 46.0).abs() < 0.1 && (of(600) - 114.0).abs() < 0.1, "{} {}", of(100), of(600));
        assert_eq!(of(3_600), LIMIT_MAX);
    }

    #[test]
    fn between_two_pools_is_a_line_and_beyond_them_their_throughput() {
        let times = times(&[(8, 400.0), (2, 150.0), (2, 250.0)]);
        assert_eq!(times, vec![(2.0, 0.01), (8.0, 0.02)]);
        let close = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-12;
        assert!(
            close(at(&times, 5.0), 0.015) && close(at(&times, 2.0), 0.01) && close(at(&times, 8.0), 0.02)
        );
        assert!(close(at(&times, 1.0), 0.005) && close(at(&times, 16.0), 0.04));
        assert_eq!(at(&[], 1.0), None);
        assert_eq!(Gradient2::emulated(&[]), None);
    }
}

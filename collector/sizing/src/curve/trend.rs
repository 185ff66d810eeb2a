//! Whether throughput falls with what is in flight, by the curve alone. Owns the slope and its error; knows no law.

use super::Level;
use crate::numeric::least_squares::Normal;

/// Known levels that a trend needs.
const LEVELS_MIN: usize = 3;
/// Standard errors of the slope that a fall is more than: 97.5 %, one-sided.
const ERRORS: f64 = 1.96;

/// Whether the known levels with `from` or more in flight answer less, the more there are: the slope of throughput
/// versus N, weighted by inverse variances, is below 0 at the 97.5 % level.
///
/// A law alone does not say so. A server that rises in a straight line and then stays level has none of B's penalty,
/// yet the law that fits it best has β > 0, because its bend is sharper than that of any law with β = 0.
pub fn falls(levels: &[Level], from: f64) -> bool {
    let mut sums = Normal::new();
    let beyond = || levels.iter().filter(|level| level.is_known() && level.in_flight >= from);
    for level in beyond() {
        let weight = level.error().powi(-2);
        sums.add([1.0, level.in_flight], weight, weight * level.throughput());
    }
    let slope = sums.solve().filter(|_| beyond().count() >= LEVELS_MIN);
    slope.is_some_and(|of| of.parameters[1] < -ERRORS * of.errors[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(of: impl Fn(f64) -> f64) -> Vec<Level> {
        let level = |n: u32| Level {
            in_flight: f64::from(n),
            seconds: 10.0,
            completions: 10.0 * of(f64::from(n)),
            dispersion: 1.0,
        };
        (1..=40).map(level).collect()
    }

    #[test]
    fn only_what_is_beyond_the_load_counts() {
        let peak = levels(|n| 1000.0 - 10.0 * (n - 20.0).abs());
        assert!(
            falls(&peak, 20.0) && !falls(&peak[..39], 1.0) && !falls(&peak, 39.0),
            "two levels are no trend"
        );
        assert!(!falls(&levels(|n| 100.0 * n.min(10.0)), 10.0), "level is no fall");
        assert!(!falls(&levels(|n| 10.0 - 0.1 * n), 1.0), "and neither is what few answers show");
        assert!(!falls(&[], 1.0));
    }
}

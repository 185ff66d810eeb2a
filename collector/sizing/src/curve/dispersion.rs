//! How much more than chance a curve varies. Owns that one number; knows no law.
//!
//! Answers in a state are counted, so by chance alone their variance is their number. What a request costs drifts besides: code is being
//! compiled, garbage collected, another program takes the caches. Levels that were seen in different minutes then differ by more than
//! chance, and a plateau looks like hills. The variance is taken to be φ times the number (quasi-likelihood; Wedderburn, Biometrika 61,
//! 1974), with φ from two comparisons, the larger of them: of the even with the odd stretches of each level, for what varies from second
//! to second; and of each level with what its neighbours say of it, for what varies over minutes.

use super::KNOWN_COMPLETIONS;
use super::bins::{Bins, middle_of};

/// Comparisons from which their median says something.
const COMPARED_MIN: usize = 4;
/// Below this it is chance: a median of twenty squared differences is right within some 40 %.
const SEEN: f64 = 2.0;
/// Median of χ² with one degree of freedom: of a squared difference in units of its variance.
const CHI_SQUARE_MEDIAN: f64 = 0.4549;

/// φ of a curve, by bin, of which even and odd stretches are kept apart; 1 where too little was seen to compare.
pub(super) fn dispersion(halves: &[Bins; 2]) -> f64 {
    let [even, odd] = halves;
    let between = even.iter().zip(odd).skip(1).filter(|((_, a), (_, b))| a.min(*b) >= KNOWN_COMPLETIONS);
    let between = between.map(|((seconds_a, a), (seconds_b, b))| {
        let variance = (a + b) / (seconds_a + seconds_b) * (1.0 / seconds_a + 1.0 / seconds_b);
        (a / seconds_a - b / seconds_b).powi(2) / variance
    });
    let last = even.len() - 1;
    let known: Vec<Known> = (1..last)
        .map(|bin| (bin, even[bin].0 + odd[bin].0, even[bin].1 + odd[bin].1))
        .filter(|(_, _, completions)| *completions >= KNOWN_COMPLETIONS)
        .map(|(bin, seconds, completions)| Known {
            at: middle_of(bin).ln(),
            throughput: completions / seconds,
            variance: completions / seconds.powi(2),
        })
        .collect();
    let all = typical(between.collect()).max(typical(known.windows(5).map(beside).collect()));
    if all < SEEN { 1.0 } else { all }
}

struct Known {
    /// Logarithm of the number in flight, in which curves are smooth.
    at: f64,
    throughput: f64,
    variance: f64,
}

/// Squared distance of the middle one from the cubic through two neighbours on each side, in units of its variance.
fn beside(five: &[Known]) -> f64 {
    let (middle, others) = (&five[2], [0, 1, 3, 4].map(|n| &five[n]));
    let (mut expected, mut variance) = (0.0, middle.variance);
    for (n, one) in others.iter().enumerate() {
        let rest = others.iter().enumerate().filter(|(m, _)| *m != n);
        let weight: f64 = rest.map(|(_, other)| (middle.at - other.at) / (one.at - other.at)).product();
        expected += weight * one.throughput;
        variance += weight.powi(2) * one.variance;
    }
    (middle.throughput - expected).powi(2) / variance
}

/// By the median, since a level that was only passed through says nothing of the others.
fn typical(mut squares: Vec<f64>) -> f64 {
    if squares.len() < COMPARED_MIN {
        return 1.0;
    }
    squares.sort_by(f64::total_cmp);
    squares[squares.len() / 2] / CHI_SQUARE_MEDIAN
}

#[cfg(test)]
mod tests {
    use super::super::bins::{BINS, bin_of};
    use super::super::{Block, Cell, Curve};
    use super::*;

    /// 1,000 answers per second whatever is in flight, times what `drift` says of that level.
    fn flat(drift: impl Fn(u32) -> f64) -> f64 {
        let mut curve = Curve::default();
        let mut random = 1_u64;
        for second in 0..400 {
            let n = 10 + second % 40;
            // In place of chance, with its variance: √N more or √N less (Knuth's multiplier, TAOCP 3.3.4).
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let sign = if random >> 63 == 0 { 1.0 } else { -1.0 };
            let mean = 1000.0 * drift(n);
            let completions = mean + sign * mean.sqrt();
            let cell = Cell { bin: bin_of(n) as u8, seconds: 1.0, completions };
            curve.push(&Block::new([cell]).unwrap());
        }
        curve.dispersion()
    }

    #[test]
    fn chance_is_one_and_a_drift_over_minutes_is_seen_between_levels() {
        let chance = flat(|_| 1.0);
        assert!((chance - 1.0).abs() < 1e-12, "{chance}");
        // Levels of one minute 5 % slower than those of the next.
        let drifting = flat(|n| if n % 6 < 3 { 1.05 } else { 0.95 });
        assert!(drifting > 5.0, "{drifting}");
        // What rises, bends and falls smoothly does not vary.
        let law = flat(|n| f64::from(n) / (10.0 + 0.5 * f64::from(n) + 0.005 * f64::from(n).powi(2)));
        assert!((law - 1.0).abs() < 1e-12, "{law}");
    }

    #[test]
    fn little_is_no_reason_for_more() {
        let nothing = [[(0.0, 0.0); BINS]; 2];
        assert!((dispersion(&nothing) - 1.0).abs() < 1e-12);
    }
}

//! A logistic regression with a ridge penalty, by iteratively reweighted least squares. Pure, and the same bytes for the same rows.
//!
//! Sources: J. Platt, "Probabilistic outputs for support vector machines", 1999 (a logistic model makes a score a frequency); T. Hastie,
//! R. Tibshirani, J. Friedman, "The Elements of Statistical Learning", 2009, 4.4.1 and 3.4.1 (the iteration, and the penalty on standardised inputs).

/// Newton steps at most; a dozen are usual.
const STEPS_MAX: usize = 100;
/// A step that changes no weight by more than this is the last.
const STEP_SMALL: f64 = 1e-9;
/// Of a number that hardly varies nothing can be learnt.
const SPREAD_MIN: f64 = 1e-6;
/// Numbers are 0 to 1. None is scaled up by more than this allows.
const SPREAD_LEAST: f64 = 0.1;

/// A model: log-odds = `of_none` + Σ `weights` × (value − `usual`).
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Log-odds where all numbers are as usual.
    pub of_none: f64,
    /// The mean of each number where it was learnt; 0 of one that was known.
    pub usual: Vec<f64>,
    /// Weight of each number, in log-odds for 1.
    pub weights: Vec<f64>,
}

impl Model {
    /// Learns from rows of equally many numbers and whether each is right. `ridge`: the penalty on the square of each weight, in units of the
    /// number's standard deviation or of 0.1 if that is more; the constant is not penalised. `never_for`: places of numbers that cannot speak for
    /// a verdict, whatever a few rows say; one whose weight would be above 0 is left out, until there is none. `None` without rows, or where the
    /// equations have no solution.
    #[must_use]
    pub fn learn(rows: &[(&[f64], bool)], ridge: f64, never_for: &[usize]) -> Option<Self> {
        let mut left_out = Vec::new();
        loop {
            let model = Self::fit(rows, ridge, &left_out, &[])?;
            let speaks_for = |n: &&usize| model.weights.get(**n).is_some_and(|weight| *weight > 0.0);
            let before = left_out.len();
            left_out.extend(never_for.iter().filter(speaks_for));
            if left_out.len() == before {
                return Some(model);
            }
        }
    }

    /// Learns as [`Self::learn`] does, where some numbers are known to have these weights: place, log-odds for 1. They add nothing where they are 0.
    #[must_use]
    pub fn learn_beside(rows: &[(&[f64], bool)], ridge: f64, known: &[(usize, f64)]) -> Option<Self> {
        let places: Vec<usize> = known.iter().map(|(place, _)| *place).collect();
        let mut model = Self::fit(rows, ridge, &places, known)?;
        for (place, weight) in known {
            *model.usual.get_mut(*place)? = 0.0;
            *model.weights.get_mut(*place)? = *weight;
        }
        Some(model)
    }

    /// Learns from all numbers but those at the places that are left out, whose weights are 0, or known.
    fn fit(rows: &[(&[f64], bool)], ridge: f64, left_out: &[usize], known: &[(usize, f64)]) -> Option<Self> {
        let adds = |x: &[f64]| -> f64 {
            known.iter().map(|(place, weight)| weight * x.get(*place).copied().unwrap_or(0.0)).sum()
        };
        let added: Vec<f64> = rows.iter().map(|(x, _)| adds(x)).collect();
        let width = rows.first()?.0.len();
        let count = rows.len() as f64;
        let mean = |n: usize| rows.iter().filter_map(|(x, _)| x.get(n)).sum::<f64>() / count;
        let usual: Vec<f64> = (0..width).map(mean).collect();
        let spread: Vec<f64> = usual
            .iter()
            .enumerate()
            .map(|(n, mean)| {
                let squares = rows.iter().filter_map(|(x, _)| x.get(n)).map(|v| (v - mean) * (v - mean));
                let spread = (squares.sum::<f64>() / count).sqrt();
                // What hardly varies where one learns may vary much elsewhere: a small step here must not decide all there.
                if spread > SPREAD_MIN && !left_out.contains(&n) { spread.max(SPREAD_LEAST) } else { 0.0 }
            })
            .collect();
        // One first, for the constant.
        let inputs: Vec<Vec<f64>> =
            rows.iter()
                .map(|(x, _)| {
                    let scaled = x.iter().zip(&usual).zip(&spread).map(|((v, mean), spread)| {
                        if *spread > SPREAD_MIN { (v - mean) / spread } else { 0.0 }
                    });
                    std::iter::once(1.0).chain(scaled).collect()
                })
                .collect();
        let mut weights = vec![0.0; width + 1];
        for _ in 0..STEPS_MAX {
            let mut slope = vec![0.0; width + 1];
            let mut bend = vec![vec![0.0; width + 1]; width + 1];
            for ((x, (_, right)), added) in inputs.iter().zip(rows).zip(&added) {
                let p = chance(added + dot(x, &weights));
                let (miss, weight) = (f64::from(u8::from(*right)) - p, (p * (1.0 - p)).max(1e-9));
                for ((slope, bend), a) in slope.iter_mut().zip(&mut bend).zip(x) {
                    *slope += miss * a;
                    bend.iter_mut().zip(x).for_each(|(bend, b)| *bend += weight * a * b);
                }
            }
            for (n, ((slope, bend), weight)) in slope.iter_mut().zip(&mut bend).zip(&weights).enumerate() {
                // The constant's is only there so that the equations have a solution where all rows are right.
                let ridge = if n == 0 { 1e-6 } else { ridge };
                *slope -= ridge * weight;
                if let Some(own) = bend.get_mut(n) {
                    *own += ridge;
                }
            }
            let step = solve(bend, slope)?;
            // No weight jumps by more than this at once: far from the solution Newton's steps are too long.
            let longest = step.iter().fold(0.0_f64, |most, s| most.max(s.abs()));
            let part = if longest > 2.0 { 2.0 / longest } else { 1.0 };
            weights.iter_mut().zip(&step).for_each(|(weight, step)| *weight += part * step);
            if longest < STEP_SMALL {
                break;
            }
        }
        let of_none = *weights.first()?;
        let weights = weights.iter().skip(1).zip(&spread);
        let weights =
            weights.map(|(w, spread)| if *spread > SPREAD_MIN { w / spread } else { 0.0 }).collect();
        Some(Self { of_none, usual, weights })
    }

    /// The chance that a verdict with these numbers is right, 0 to 1.
    #[must_use]
    pub fn chance(&self, numbers: &[f64]) -> f64 {
        let adds = self.weights.iter().zip(&self.usual).zip(numbers).map(|((w, usual), v)| w * (v - usual));
        chance(self.of_none + adds.sum::<f64>())
    }
}

fn chance(odds: f64) -> f64 {
    1.0 / (1.0 + (-odds).exp())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Gauss' elimination with the largest pivot of each column.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Option<Vec<f64>> {
    let n = b.len();
    for column in 0..n {
        let size = |row: &usize| a.get(*row).and_then(|r| r.get(column)).map_or(0.0, |v| v.abs());
        let pivot = (column..n).max_by(|x, y| size(x).total_cmp(&size(y)))?;
        a.swap(column, pivot);
        b.swap(column, pivot);
        let (top, below) = a.split_at_mut(column + 1);
        let row = top.last()?;
        let (own, value) = (*row.get(column)?, *b.get(column)?);
        if own.abs() < 1e-12 {
            return None;
        }
        for (other, b) in below.iter_mut().zip(b.iter_mut().skip(column + 1)) {
            let times = *other.get(column)? / own;
            other.iter_mut().zip(row).skip(column).for_each(|(x, y)| *x -= times * y);
            *b -= times * value;
        }
    }
    let mut solution = vec![0.0; n];
    for (index, row) in a.iter().enumerate().rev() {
        let known = dot(row.get(index + 1..)?, solution.get(index + 1..)?);
        let value = (b.get(index)? - known) / row.get(index)?;
        *solution.get_mut(index)? = value;
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two numbers: the first decides the odds, the second is noise.
    fn rows() -> Vec<([f64; 2], bool)> {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        (0..4000)
            .map(|_| {
                let (x, noise, draw) = (random(), random(), random());
                ([x, noise], draw < chance(-1.0 + 4.0 * x))
            })
            .collect()
    }

    fn learnt(rows: &[([f64; 2], bool)], ridge: f64) -> Model {
        let rows: Vec<(&[f64], bool)> = rows.iter().map(|(x, right)| (x.as_slice(), *right)).collect();
        Model::learn(&rows, ridge, &[]).unwrap()
    }

    #[test]
    fn the_odds_that_made_the_rows_are_found_again() {
        let model = learnt(&rows(), 1e-3);
        assert!((model.weights[0] - 4.0).abs() < 0.5 && model.weights[1].abs() < 0.4, "{model:?}");
        for (x, odds) in [(0.1, -0.6), (0.5, 1.0), (0.9, 2.6)] {
            assert!((model.chance(&[x, 0.5]) - chance(odds)).abs() < 0.04, "{x}: {model:?}");
        }
    }

    #[test]
    fn a_penalty_pulls_weights_to_nothing_and_leaves_the_share_of_right_ones() {
        let rows = rows();
        let model = learnt(&rows, 1e9);
        let right = rows.iter().filter(|(_, right)| *right).count() as f64 / rows.len() as f64;
        assert!(model.weights.iter().all(|w| w.abs() < 1e-3), "{model:?}");
        assert!((model.chance(&[0.5, 0.5]) - right).abs() < 1e-3);
    }

    /// Two numbers speak for the verdict where it is learnt, and one of them may not.
    #[test]
    fn what_cannot_speak_for_a_verdict_has_no_weight_above_nothing() {
        let rows: Vec<([f64; 2], bool)> =
            (0..400_u32).map(|n| ([f64::from(n % 2), f64::from(n % 3)], n % 2 == 1 || n % 3 == 2)).collect();
        let rows: Vec<(&[f64], bool)> = rows.iter().map(|(x, right)| (x.as_slice(), *right)).collect();
        let free = Model::learn(&rows, 1.0, &[]).unwrap();
        assert!(free.weights.iter().all(|weight| *weight > 0.5), "{free:?}");
        let bound = Model::learn(&rows, 1.0, &[0]).unwrap();
        assert_eq!(bound.weights[0].to_bits(), 0.0_f64.to_bits());
        assert!(bound.weights[1] > 0.5, "{bound:?}");
        let against: Vec<(&[f64], bool)> = rows.iter().map(|(x, right)| (*x, !right)).collect();
        assert!(Model::learn(&against, 1.0, &[0]).unwrap().weights[0] < -0.5);
    }

    /// The second number takes 3 off the log-odds where it is known, and is hardly ever there in the rows.
    #[test]
    fn what_is_known_of_a_number_is_kept_and_the_rest_is_learnt_beside_it() {
        let rows: Vec<([f64; 2], bool)> = (0..1_000_u32)
            .map(|n| ([f64::from(n % 2), f64::from(u8::from(n < 4))], n % 2 == 1 || n % 10 < 5))
            .collect();
        let rows: Vec<(&[f64], bool)> = rows.iter().map(|(x, right)| (x.as_slice(), *right)).collect();
        let alone = Model::learn(&rows, 1.0, &[]).unwrap();
        let beside = Model::learn_beside(&rows, 1.0, &[(1, -3.0)]).unwrap();
        assert_eq!((beside.weights[1], beside.usual[1]), (-3.0, 0.0));
        for usual in [[0.0, 0.0], [1.0, 0.0]] {
            assert!((alone.chance(&usual) - beside.chance(&usual)).abs() < 0.01, "{alone:?} {beside:?}");
        }
        let odds = |numbers: [f64; 2]| {
            let p = beside.chance(&numbers);
            (p / (1.0 - p)).ln()
        };
        assert!((odds([0.0, 1.0]) - odds([0.0, 0.0]) + 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_number_that_hardly_varies_does_not_decide_where_it_is_large_once() {
        // Two thousandths in four rows, all of them wrong; of the others nine in ten are right.
        let rows: Vec<([f64; 2], bool)> = (0..200_u32)
            .map(|n| if n < 4 { ([0.002, 0.5], false) } else { ([0.0, 0.5], !n.is_multiple_of(10)) })
            .collect();
        let model = learnt(&rows, 1.0);
        assert!(model.weights[0].abs() < 5.0, "{model:?}");
        assert!(model.chance(&[1.0, 0.5]) > 0.5, "{model:?}");
    }

    #[test]
    fn rows_that_one_number_separates_or_that_are_all_right_have_a_finite_model() {
        let separated: Vec<([f64; 2], bool)> =
            (0..40).map(|n| ([f64::from(n % 2), 0.5], n % 2 == 1)).collect();
        let model = learnt(&separated, 1.0);
        assert!(model.weights[0].is_finite() && model.chance(&[1.0, 0.5]) > 0.8, "{model:?}");
        assert_eq!(model.weights[1].to_bits(), 0.0_f64.to_bits(), "it never varies");
        let all_right: Vec<([f64; 2], bool)> = (0..40).map(|n| ([f64::from(n % 3), 0.5], true)).collect();
        assert!(learnt(&all_right, 1.0).chance(&[1.0, 0.5]) > 0.95);
        assert_eq!(Model::learn(&[], 1.0, &[]), None);
    }
}

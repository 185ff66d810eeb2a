//! How sure a root is, as a share of such verdicts that were right: a logistic model over the numbers of `path/evidence.rs`. Owns that sum and
//! how its parts are told; the weights are learnt (`calibrated.rs`, written by `make calibrate`).
//!
//! A logistic model on a few numbers of a decision, so that its output is a frequency, is Platt's: J. Platt, "Probabilistic outputs for support
//! vector machines", 1999.

use super::calibrated::{LEARNT, WEIGHT_OF_NONE};
use crate::path::evidence::{Evidence, NAMES};
use tailwater_model::incident::Number;

/// Never told surer or less sure than this: the recordings are some hundred, and what happens once in more than that is not in them.
const SUREST: f64 = 0.99;
const LEAST: f64 = 0.01;

/// Confidence in a root with these numbers, 0.01 to 0.99, in hundredths.
pub(super) fn confidence(of: &Evidence) -> f64 {
    let odds = WEIGHT_OF_NONE + adds(of).sum::<f64>();
    hundredths(((1.0 / (1.0 + (-odds).exp())).clamp(LEAST, SUREST) * 100.0).round())
}

/// What another candidate gets of confidence where the root has `sure`: its share by score, `ratio`, below 1, and no more than what is left, for it
/// can be right only where the root is wrong. Always less than `sure`, in hundredths.
pub(super) fn what_is_left(sure: f64, ratio: f64) -> f64 {
    let share = (sure * ratio * 100.0).floor().min((sure * 100.0).round() - 1.0);
    hundredths(share.min(((1.0 - sure) * 100.0).round()).max(0.0))
}

fn hundredths(n: f64) -> f64 {
    n / 100.0
}

/// What each number adds to the logarithm of the odds, against one that is as usual.
fn adds(of: &Evidence) -> impl Iterator<Item = f64> {
    LEARNT.iter().zip(of).map(|((_, usual, weight), value)| weight * (value - usual))
}

/// The numbers that are not 0, with what each adds.
pub(super) fn numbers(of: &Evidence) -> Vec<Number> {
    let all = NAMES.iter().zip(of).zip(adds(of));
    all.filter(|((_, value), _)| **value > 0.0)
        .map(|((name, value), adds)| Number {
            name: (*name).to_owned(),
            value: *value,
            adds: (adds * 100.0).round() / 100.0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_that_were_learnt_are_of_the_numbers_that_are_taken_in_this_order() {
        let learnt: Vec<&str> = LEARNT.iter().map(|(name, ..)| *name).collect();
        assert_eq!(learnt, NAMES, "make calibrate");
    }

    #[test]
    fn a_verdict_as_usual_is_as_sure_as_verdicts_usually_are() {
        let usual = LEARNT.map(|(_, usual, _)| usual);
        let wanted = 1.0 / (1.0 + (-WEIGHT_OF_NONE).exp());
        assert!((confidence(&usual) - wanted.clamp(LEAST, SUREST)).abs() <= 0.005 + 1e-9);
    }

    #[test]
    fn another_root_gets_what_is_left_and_always_less() {
        assert!((what_is_left(0.97, 0.9) - 0.03).abs() < 1e-9);
        assert!((what_is_left(0.4, 0.5) - 0.2).abs() < 1e-9);
        for percent in 1..100 {
            let sure = f64::from(percent) / 100.0;
            assert!(what_is_left(sure, 0.999) < sure, "{sure}");
        }
    }
}

//! How sure a root is, as a share of such verdicts that were right: a logistic model over the numbers of `path/evidence.rs`. Owns that sum and
//! how its parts are told; the weights are learnt (`calibrated.rs`, written by `make calibrate`).
//!
//! A logistic model on a few numbers of a decision, so that its output is a frequency, is Platt's: J. Platt, "Probabilistic outputs for support
//! vector machines", 1999.

use super::calibrated::{LEARNT, Learnt};
use crate::path::evidence::{COUNT, Evidence, NAMES};
use tailwater_model::incident::Number;

/// Never told surer or less sure than this: the recordings are some hundred, and what happens once in more than that is not in them.
const SUREST: f64 = 0.99;
const LEAST: f64 = 0.01;

/// Confidence in a root with these numbers, 0.01 to 0.99, in hundredths. `None` while no weights are learnt.
pub(super) fn confidence(of: &Evidence) -> Option<f64> {
    LEARNT.map(|learnt| weighed(of, &learnt))
}

/// The numbers that are not 0, with what each adds; 0 while no weights are learnt.
pub(super) fn numbers(of: &Evidence) -> Vec<Number> {
    told(of, LEARNT.as_ref())
}

fn weighed(of: &Evidence, learnt: &Learnt) -> f64 {
    let odds = learnt.0 + adds(of, Some(learnt)).iter().sum::<f64>();
    ((1.0 / (1.0 + (-odds).exp())).clamp(LEAST, SUREST) * 100.0).round() / 100.0
}

fn told(of: &Evidence, learnt: Option<&Learnt>) -> Vec<Number> {
    let all = NAMES.iter().zip(of).zip(adds(of, learnt));
    all.filter(|((_, value), _)| **value > 0.0)
        .map(|((name, value), adds)| Number {
            name: (*name).to_owned(),
            value: *value,
            adds: (adds * 100.0).round() / 100.0,
        })
        .collect()
}

/// What each number adds to the logarithm of the odds, against one that is as usual.
fn adds(of: &Evidence, learnt: Option<&Learnt>) -> [f64; COUNT] {
    let mut all = [0.0; COUNT];
    if let Some((_, weights)) = learnt {
        for ((adds, (_, usual, weight)), value) in all.iter_mut().zip(weights).zip(of) {
            *adds = weight * (value - usual);
        }
    }
    all
}

/// What another candidate gets of confidence where the root has `sure`: its share by score, `ratio`, below 1, and no more than what is left, for it
/// can be right only where the root is wrong. Always less than `sure`, in hundredths.
pub(super) fn what_is_left(sure: f64, ratio: f64) -> f64 {
    let share = (sure * ratio * 100.0).floor().min((sure * 100.0).round() - 1.0);
    share.min(((1.0 - sure) * 100.0).round()).max(0.0) / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As usual a half of everything; the first number speaks for a root, the second against it.
    fn learnt() -> Learnt {
        let mut weights = NAMES.map(|name| (name, 0.5, 0.0));
        (weights[0].2, weights[1].2) = (4.0, -2.0);
        (1.0, weights)
    }

    #[test]
    fn the_weights_that_were_learnt_are_of_the_numbers_that_are_taken_in_this_order() {
        if let Some((_, weights)) = LEARNT {
            assert_eq!(weights.map(|(name, ..)| name), NAMES, "make calibrate");
        }
    }

    #[test]
    fn a_root_is_surer_by_what_speaks_for_it_and_less_sure_by_what_speaks_against_it() {
        let mut of = [0.5; COUNT];
        assert!((weighed(&of, &learnt()) - 0.73).abs() < 1e-9, "as usual: the odds of 1.0");
        of[0] = 1.0;
        assert!((weighed(&of, &learnt()) - 0.95).abs() < 1e-9, "odds of 3.0");
        of[1] = 1.0;
        assert!((weighed(&of, &learnt()) - 0.88).abs() < 1e-9, "odds of 2.0");
        let mut sure = learnt();
        sure.0 = 50.0;
        assert!((weighed(&of, &sure) - SUREST).abs() < 1e-9, "never surer");
    }

    #[test]
    fn what_is_told_of_a_root_is_what_is_not_0_with_what_it_adds() {
        let mut of = [0.0; COUNT];
        (of[0], of[1]) = (1.0, 0.75);
        let all = told(&of, Some(&learnt()));
        let all: Vec<_> = all.iter().map(|n| (n.name.as_str(), n.value, n.adds)).collect();
        assert_eq!(all, [(NAMES[0], 1.0, 2.0), (NAMES[1], 0.75, -0.5)]);
        assert!(told(&of, None).iter().all(|n| n.adds.abs() < 1e-9), "nothing is learnt");
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

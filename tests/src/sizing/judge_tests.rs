//! Made-up sweeps, judged.

use super::*;
use crate::sizing::goodput::Block;

/// Two repeats of ten seconds each, with this goodput a second.
fn sweep(curve: &[(u32, u32)]) -> Vec<Run> {
    let mut runs = Vec::new();
    for repeat in 1..=4 {
        for (pool, good) in curve {
            // Seconds differ, and their mean is what is asked for.
            let block = |second: u32| Block { arrived: 1000, within: [good + 10 - 20 * (second % 2), *good] };
            runs.push(Run {
                pool: *pool,
                load: 1.3,
                repeat,
                blocks: (0..10).map(block).collect(),
                client_cores: 0.1,
                lateness_p99_us: 1,
                steal_ratio: 0.0,
                other_cores: 0.0,
                critical_ratio: 0.99,
            });
        }
    }
    runs
}

fn told(class: Class, advised: u32, at_least: u32, at_most: Option<u32>) -> Advice {
    Advice::Told(Pool { class, advised, at_least, at_most, seen_to: None })
}

fn judged(answerable: bool, advice: &Advice, runs: &[Run]) -> (Verdict, Vec<Reading>) {
    let pool = advice.pool();
    let candidates: Vec<_> =
        pool.map(|pool| (ADVICE, pool.advised)).into_iter().chain([("default", 200)]).collect();
    let interval = pool.map(|pool| (pool.at_least, pool.at_most));
    let readings: Vec<Reading> =
        (0..SLA_MS.len()).filter_map(|sla| read(runs, 1.3, sla, &candidates, interval)).collect();
    (verdict(answerable, advice, 0.97, (200, 1), &readings), readings)
}

const KNEE: &[(u32, u32)] = &[(2, 300), (8, 700), (16, 1000), (32, 990), (64, 850), (200, 600)];

#[test]
fn advice_at_the_best_point_is_right_and_the_default_is_told_beside_it() {
    let (verdict, readings) = judged(true, &told(Class::Measured, 16, 16, Some(32)), &sweep(KNEE));
    assert_eq!(verdict, Verdict::Right);
    let reading = &readings[0];
    assert_eq!((reading.best, reading.informative, reading.interval_holds_best), (16, true, Some(true)));
    let default = reading.candidates[1].ratio.unwrap();
    assert!((default.value - 0.6).abs() < 0.01 && default.low < 0.6 && 0.6 < default.high, "{default:?}");
    assert!(default.high - default.low < 0.03, "{default:?}");
}

#[test]
fn advice_that_costs_a_seventh_is_wrong_and_its_ratio_says_so() {
    let (verdict, _) = judged(true, &told(Class::Measured, 64, 60, Some(70)), &sweep(KNEE));
    let Verdict::Wrong(why) = verdict else { panic!("{verdict:?}") };
    assert!(why.contains("0.85 of the best"), "{why}");
    // The same is within what an extrapolation may cost only where that is a tenth.
    let (verdict, _) = judged(true, &told(Class::Extrapolated, 32, 20, None), &sweep(KNEE));
    assert_eq!(verdict, Verdict::Right);
    let (verdict, _) = judged(true, &told(Class::Extrapolated, 64, 20, None), &sweep(KNEE));
    assert!(matches!(verdict, Verdict::Wrong(_)), "{verdict:?}");
    // 16 are enough under every load and limit.
    let (verdict, _) = judged(true, &told(Class::Extrapolated, 32, 25, None), &sweep(KNEE));
    assert_eq!(verdict, Verdict::Wrong("at least 25, but 16 in each suffice".to_owned()));
}

#[test]
fn an_interval_with_a_worse_pool_inside_is_wrong_though_the_advice_is_good() {
    let (verdict, readings) = judged(true, &told(Class::Measured, 32, 16, Some(64)), &sweep(KNEE));
    assert_eq!(readings[0].worse_inside, [64]);
    assert!(matches!(verdict, Verdict::Wrong(_)), "{verdict:?}");
    let (_, readings) = judged(true, &told(Class::Plateau, 32, 20, None), &sweep(KNEE));
    assert_eq!((readings[0].interval_holds_best, readings[0].worse_inside.len()), (None, 0));
    let (_, readings) = judged(true, &told(Class::Measured, 32, 20, Some(40)), &sweep(KNEE));
    assert_eq!(readings[0].interval_holds_best, Some(false));
}

#[test]
fn a_flat_sweep_counts_for_nobody() {
    let flat = sweep(&[(2, 950), (16, 1000), (200, 960)]);
    let (verdict, readings) = judged(true, &told(Class::Measured, 2, 2, Some(3)), &flat);
    assert_eq!((verdict, readings[0].informative), (Verdict::Uninformative, false));
}

#[test]
fn a_tier_that_was_not_short_of_cpu_makes_the_cell_void() {
    let advice = told(Class::Measured, 16, 16, Some(32));
    let (_, readings) = judged(true, &advice, &sweep(KNEE));
    let verdict = verdict(true, &advice, 0.7, (200, 1), &readings);
    assert!(matches!(&verdict, Verdict::Void(why) if why.contains("70 %")), "{verdict:?}");
}

#[test]
fn what_cannot_be_answered_may_have_a_lower_bound_and_nothing_else() {
    let runs = sweep(KNEE);
    let of = |advice: Advice| judged(false, &advice, &runs).0;
    assert_eq!(of(Advice::Refused("light load".to_owned())), Verdict::RightlySilent);
    // "At least 8: 200 may stay" is told as 8, or as what is raised to.
    assert_eq!(of(told(Class::Extrapolated, 200, 8, None)), Verdict::RightlySilent);
    assert_eq!(of(told(Class::Extrapolated, 8, 8, None)), Verdict::RightlySilent);
    for answered in [
        told(Class::Measured, 16, 16, Some(32)),
        told(Class::Extrapolated, 16, 8, None),
        told(Class::Extrapolated, 200, 8, Some(300)),
    ] {
        assert!(matches!(of(answered), Verdict::FalselyAnswered(_)));
    }
    assert!(matches!(of(told(Class::Extrapolated, 200, 64, None)), Verdict::Wrong(_)), "16 suffices");
    assert!(matches!(of(Advice::Absent("no such page".to_owned())), Verdict::Unanswered(_)));
}

#[test]
fn the_best_is_chosen_on_odd_repeats_and_held_against_even_ones() {
    // 64 was lucky on odd repeats.
    let mut runs = sweep(KNEE);
    for run in runs.iter_mut().filter(|run| run.pool == 64 && run.repeat % 2 == 1) {
        run.blocks.iter_mut().for_each(|block| block.within = [1100, 1100]);
    }
    let reading = read(&runs, 1.3, 0, &[(ADVICE, 16)], None).unwrap();
    assert_eq!(reading.best, 64);
    assert!(reading.candidates[0].ratio.unwrap().value > 1.1);
    runs.retain(|run| run.repeat == 1);
    assert_eq!(read(&runs, 1.3, 0, &[(ADVICE, 16)], None), None, "one repeat cannot judge itself");
}

#[test]
fn of_pools_that_serve_the_same_the_smallest_is_the_best() {
    let reading = read(&sweep(&[(2, 500), (8, 1000), (200, 1000)]), 1.3, 0, &[], None).unwrap();
    assert_eq!(reading.best, 8);
}

#[test]
fn nothing_served_has_no_ratio() {
    let mut runs = sweep(&[(2, 10), (16, 10)]);
    runs.iter_mut().flat_map(|run| &mut run.blocks).for_each(|block| block.within = [0, 0]);
    let reading = read(&runs, 1.3, 0, &[(ADVICE, 2), ("other", 5)], None).unwrap();
    assert!(!reading.informative);
    assert!(reading.candidates.iter().all(|candidate| candidate.ratio.is_none()));
}

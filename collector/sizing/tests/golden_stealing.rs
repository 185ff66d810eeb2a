//! Li et al.: two database machines that share a core, by the figures that the paper prints. Its numbers of runnable
//! threads are read from no table: 2.5 is the most that equal pools had, and the larger pool here has as many as its
//! share of the core says.

mod support;

use support::near;
use tailwater_sizing::stealing::{AfterFix, Level, Neighbour, Verdict, after_fix, judge};

fn pair(constant: f64, increasing: f64, threads: (f64, f64)) -> [Neighbour; 2] {
    let of = |name: &str, running: f64, runnable: f64| Neighbour {
        name: name.into(),
        weight: 1.0,
        running,
        waiting: runnable - running,
    };
    [of("constant", constant, threads.0), of("increasing", increasing, threads.1)]
}

#[test]
fn a_larger_pool_steals_what_the_paper_measured() {
    let neighbours = pair(0.4366, 0.559, (2.5, 3.2));
    let Ok(Verdict::Stealing { thief, victim, stolen_ratio, remedy }) =
        judge(Level::OneCgroup, 1.0, &neighbours)
    else {
        panic!("{neighbours:?}");
    };
    assert_eq!((thief.name.as_str(), victim.name.as_str()), ("increasing", "constant"));
    near("share", victim.share_ratio, 0.4366, 1e-9);
    near("entitlement", victim.entitled_ratio, 0.4978, 1e-3);
    assert!(stolen_ratio > 0.05 && stolen_ratio < 0.08, "up to 8 %: {stolen_ratio}");
    assert_eq!(remedy.thief_runnable_max, 2, "the paper took 4 for 2.5");
}

#[test]
fn equal_pools_steal_nothing_and_the_fix_is_seen() {
    let equal = pair(0.499, 0.497, (2.5, 2.5));
    assert!(matches!(judge(Level::OneCgroup, 1.0, &equal), Ok(Verdict::Fair { .. })));
    assert_eq!(after_fix("constant", 0.061, 1.0, &equal), Ok(AfterFix::Fixed));
    let half = pair(0.458, 0.538, (2.5, 3.0));
    assert!(matches!(after_fix("constant", 0.061, 1.0, &half), Ok(AfterFix::Better(_))));
    let as_before = pair(0.4366, 0.559, (2.5, 3.2));
    assert!(matches!(after_fix("constant", 0.061, 1.0, &as_before), Ok(AfterFix::Unchanged(_))));
    assert!(after_fix("nobody", 0.061, 1.0, &equal).is_err());
}

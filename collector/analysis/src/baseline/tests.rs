//! What is learned of a tier's workers and queues, and what speaks against it.

use super::*;

fn busy(workers: u32, backlog: u32, answered: f64) -> TierSample {
    TierSample {
        active: f64::from(workers),
        queued_max: f64::from(workers + backlog),
        backlog: f64::from(backlog),
        depth_max: backlog,
        limit: 128,
        workers_busy_max: workers,
        workers_seen: 150,
        answered,
        response_ns: answered * 5e6,
        ..TierSample::default()
    }
}

fn learn(samples: &[(usize, TierSample)]) -> Baseline {
    let mut baseline = Baseline::default();
    for (times, sample) in samples {
        for _ in 0..*times {
            baseline.observe(sample, None, &Thresholds::default());
        }
    }
    baseline
}

#[test]
fn a_plateau_that_was_risen_to_is_the_limit() {
    let baseline = learn(&[(100, busy(5, 0, 50.0)), (2, busy(90, 0, 10.0)), (4, busy(150, 60, 0.0))]);
    assert_eq!(baseline.workers_limit(None), Some(150));
    assert_eq!(baseline.workers_limit(Some(200)), Some(200), "configuration wins");
}

#[test]
fn a_tier_that_stands_still_teaches_no_limit() {
    assert_eq!(learn(&[(100, busy(5, 0, 50.0)), (10, busy(5, 60, 0.0))]).workers_limit(None), None);
    assert_eq!(learn(&[(100, busy(5, 0, 50.0)), (10, busy(5, 60, 10.0))]).workers_limit(None), None);
}

#[test]
fn a_limit_that_is_passed_was_none() {
    let stood = [(100, busy(5, 0, 50.0)), (2, busy(90, 0, 10.0)), (4, busy(150, 60, 0.0))];
    let passed = |most| [&stood[..], &[(1, busy(most, 0, 50.0))]].concat();
    assert_eq!(learn(&passed(151)).workers_limit(None), Some(150), "seen a moment too early or too late");
    assert_eq!(learn(&passed(160)).workers_limit(None), None);
    let full = [passed(160), vec![(4, busy(200, 60, 0.0))]].concat();
    assert_eq!(learn(&full).workers_limit(None), Some(200));
}

#[test]
fn a_saturated_server_that_answers_shows_its_limit() {
    assert_eq!(learn(&[(20, busy(150, 60, 40.0))]).workers_limit(None), Some(150));
}

#[test]
fn threads_with_several_requests_mean_event_driven() {
    let shared = TierSample { worker_shared_max: 4, ..busy(4, 0, 50.0) };
    let baseline = learn(&[(5, shared), (4, busy(150, 60, 0.0))]);
    assert!(baseline.event_driven());
    assert_eq!(baseline.workers_limit(None), None);
}

/// A window in which one thread held several requests, and one in which several held one each.
fn shared() -> TierSample {
    TierSample { worker_shared_max: 4, ..busy(4, 0, 50.0) }
}

fn alone() -> TierSample {
    TierSample { worker_shared_max: 1, ..busy(4, 0, 50.0) }
}

#[test]
fn a_request_that_a_client_leaves_behind_now_and_then_makes_no_tier_event_driven() {
    let after =
        |apart| learn(&[(1, shared()), (apart, alone()), (1, shared()), (apart, alone()), (1, shared())]);
    assert!(after(900).event_driven(), "three within 90 s in which it would have shown");
    assert!(!after(1500).event_driven(), "75 s apart");
    let idle = TierSample { worker_shared_max: 1, ..busy(1, 0, 1.0) };
    assert!(learn(&[(1, shared()), (5000, idle), (2, shared())]).event_driven(), "one request shows nothing");
}

#[test]
fn a_tier_whose_threads_hold_one_request_each_for_ten_minutes_is_event_driven_no_more() {
    let full = (4, busy(150, 60, 0.0));
    let after = |windows| learn(&[(5, shared()), (windows, alone()), full]).workers_limit(None);
    assert_eq!(after(9000), None, "seven and a half minutes");
    assert_eq!(after(15_000), Some(150));
    // One that holds several again is known again after three windows.
    assert!(learn(&[(5, shared()), (15_000, alone()), (3, shared())]).event_driven());
}

#[test]
fn what_shares_now_and_then_is_not_event_driven_by_turns() {
    for apart in [10, 300, 1100, 1300, 5000, 11_000, 13_000] {
        let mut baseline = learn(&[(3, shared())]);
        let mut turns = 0;
        for window in 1..200_000 {
            let was = baseline.event_driven();
            let sample = if window % apart == 0 { shared() } else { alone() };
            baseline.observe(&sample, None, &Thresholds::default());
            turns += usize::from(baseline.event_driven() != was);
        }
        assert_eq!(turns, usize::from(apart > 12_000), "at one in {apart} windows");
    }
}

/// So many busy workers of so many that live, with requests waiting that are answered.
fn waited(workers: u32, seen: u32) -> TierSample {
    TierSample { workers_seen: seen, ..busy(workers, 60, 40.0) }
}

#[test]
fn a_pool_that_was_made_smaller_has_another_limit() {
    let learned = (20, waited(150, 150));
    let calm = (2000, TierSample { workers_seen: 50, ..busy(5, 0, 50.0) });
    let after = |windows| learn(&[learned, calm, (windows, waited(50, 50))]).workers_limit(None);
    assert_eq!(after(0), Some(150), "that few threads live while nothing waits says nothing of how many may");
    assert_eq!(after(150), Some(150));
    assert_eq!(after(300), Some(50));
    // In pieces, too: overloads are short.
    let piece = [(10, waited(50, 50)), (100, TierSample { workers_seen: 50, ..busy(5, 0, 50.0) })];
    let pieces = [&[learned][..], &piece.repeat(30)[..]].concat();
    assert_eq!(learn(&pieces).workers_limit(None), Some(50));
}

#[test]
fn a_pool_that_grows_while_requests_wait_keeps_its_limit() {
    let learned = (20, waited(150, 150));
    // 32 more every second, of 20; twenty times, and shrinks in between.
    let grow: Vec<(usize, TierSample)> =
        [20, 52, 84, 116, 148].into_iter().map(|threads| (20, waited(threads, threads))).collect();
    let full = [(40, waited(150, 150)), (400, TierSample { workers_seen: 20, ..busy(5, 0, 50.0) })];
    let again = [grow, full.to_vec()].concat().repeat(20);
    assert_eq!(learn(&[vec![learned], again].concat()).workers_limit(None), Some(150));
    // Nor does one that stands still, whatever lives.
    let stands = (1000, TierSample { answered: 0.0, ..waited(50, 50) });
    assert_eq!(learn(&[learned, stands]).workers_limit(None), Some(150));
    // One of which it is not told how many there are.
    assert_eq!(learn(&[learned, (1000, waited(50, 0))]).workers_limit(None), Some(150));
}

#[test]
fn a_limit_does_not_change_by_turns() {
    let mut baseline = learn(&[(20, waited(150, 150))]);
    let mut limits = Vec::new();
    for window in 0..50_000 {
        // Overloads of half a second every five, of a pool of 50 with threads that are replaced.
        let threads = 50 + window / 200 % 4;
        let sample = if window % 100 < 10 {
            waited(50, threads)
        } else {
            TierSample { workers_seen: threads, ..busy(5, 0, 50.0) }
        };
        baseline.observe(&sample, None, &Thresholds::default());
        let limit = baseline.workers_limit(None);
        if limits.last() != Some(&limit) {
            limits.push(limit);
        }
    }
    limits.retain(Option::is_some);
    assert_eq!(limits, [Some(150), Some(50)]);
}

#[test]
fn a_tier_of_which_only_connections_are_known_feels_a_silence_and_nothing_else() {
    let spoke = TierSample {
        waiting: 2.0,
        queued_max: 6.0,
        received: 300.0,
        answered: 300.0,
        connections_only: true,
        ..TierSample::default()
    };
    let level = |sample: TierSample| {
        let mut baseline = learn(&[(120, spoke)]);
        baseline.observe(&sample, None, &Thresholds::default()).map(|(level, _)| level)
    };
    let silent = TierSample { waiting: 200.0, queued_max: 300.0, answered: 0.0, ..spoke };
    assert_eq!(level(silent), Some(Level::Felt));
    assert_eq!(level(TierSample { answered: 250.0, ..silent }), None, "it goes on to speak");
    assert_eq!(level(TierSample { waiting: 1.0, queued_max: 2.0, ..silent }), None, "nobody asks");
    let few = TierSample { connections: 4, waiting: 4.0, queued_max: 4.0, answered: 0.0, ..spoke };
    assert_eq!(level(TierSample { unread: 3.6, ..few }), Some(Level::Felt), "nobody reads");
    assert_eq!(level(TierSample { unread: 1.0, ..few }), None, "it reads from most of them");
    assert_eq!(level(TierSample { unread: 3.6, answered: 200.0, ..few }), None, "it goes on to speak");
    assert_eq!(level(TierSample { drops: 1, ..spoke }), Some(Level::Drop));
    assert_eq!(learn(&[(120, spoke), (4, TierSample { backlog: 60.0, ..silent })]).workers_limit(None), None);
}

#[test]
fn levels_follow_the_fill() {
    let level = |sample: TierSample| {
        let mut baseline = learn(&[(120, busy(5, 0, 50.0))]);
        baseline.observe(&sample, Some(150), &Thresholds::default()).map(|(level, _)| level)
    };
    assert_eq!(level(busy(20, 0, 50.0)), None);
    assert_eq!(level(busy(140, 0, 50.0)), Some(Level::Felt));
    assert_eq!(level(busy(150, 90, 5.0)), Some(Level::Near));
    assert_eq!(level(busy(2, 110, 5.0)), Some(Level::Near), "an accept queue alone can be near its limit");
    assert_eq!(level(TierSample { drops: 1, ..busy(5, 0, 50.0) }), Some(Level::Drop));
    assert_eq!(
        level(TierSample { response_ns: 50.0 * 60e6, ..busy(40, 0, 50.0) }),
        Some(Level::Felt),
        "ten times slower"
    );
    assert_eq!(
        level(TierSample { response_ns: 60e6, ..busy(1, 0, 1.0) }),
        None,
        "one slow request is no queue"
    );
}

#[test]
fn what_was_usual_for_a_second_and_a_half_is_no_rise() {
    // It works with 80 for so many windows before it stands with 90.
    let stood_after = |windows| {
        learn(&[(100, busy(5, 0, 50.0)), (windows, busy(80, 0, 50.0)), (4, busy(90, 60, 0.0))])
            .workers_limit(None)
    };
    assert_eq!(stood_after(18), Some(90), "900 ms at 80 are not usual yet");
    assert_eq!(stood_after(30), None, "1.5 s are");
}

#[test]
fn a_rise_is_half_more_and_more_than_a_few_workers() {
    let stood =
        |usual, with| learn(&[(200, busy(usual, 0, 50.0)), (4, busy(with, 60, 0.0))]).workers_limit(None);
    assert_eq!(stood(20, 40), Some(40));
    assert_eq!(stood(20, 30), None, "a half more is within what a tier does at times");
    assert_eq!(stood(2, 12), Some(12));
    assert_eq!(stood(2, 7), None, "of few workers some more are no rise");
}

#[test]
fn an_accept_queue_of_a_few_places_is_too_small_to_be_judged_by_its_fill() {
    let level = |limit: u32| {
        let sample = TierSample { limit, depth_max: limit, ..busy(5, limit, 50.0) };
        let mut baseline = learn(&[(120, TierSample { limit, ..busy(5, 0, 50.0) })]);
        baseline.observe(&sample, None, &Thresholds::default()).map(|(level, _)| level)
    };
    assert_eq!(level(5), None, "http.server's");
    assert_eq!(level(12), Some(Level::Near));
}

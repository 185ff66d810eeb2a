//! The replay of a chain against what can be worked out by hand, and the search over it.
#![allow(clippy::unwrap_used, reason = "what breaks here breaks the test, at this line")]

use proptest::prelude::*;
use std::ops::Range;
use tailwater_sizing::evidence::Refusal;
use tailwater_sizing::prevent::{
    Chain, Change, EVENTS_MAX, Effect, Entry, Knob, Outcome, Prevention, Retries, Sought, Tier, Wanted,
    prevention, replay, what_if,
};

const WITHIN_S: [f64; 2] = [0.5, 3.0];

/// A tier of one server with more CPUs than requests and 1 ms of work.
fn tier(name: &str, backlog: Option<u32>, workers: Option<u32>) -> Tier {
    Tier {
        name: name.into(),
        entry: backlog.map_or(Entry::Open, |backlog| Entry::AcceptQueue { backlog }),
        workers,
        seen_to: None,
        pool: None,
        calls: 1.0,
        cpus: 1000.0,
        cpu_s: 0.001,
        wait_s: 0.0,
        accepts_nothing_when_held: false,
        speed: vec![Vec::new()],
    }
}

/// Stands in these windows.
fn stands(windows: Range<usize>) -> Vec<f64> {
    (0..windows.end).map(|n| if windows.contains(&n) { 0.0 } else { 1.0 }).collect()
}

/// So many first attempts in each of 200 windows (10 s); those of the windows 20 to 60 are judged.
fn chain(per_window: u32, tiers: Vec<Tier>) -> Chain {
    let retries_s = Retries::Doubling.times_s().to_vec();
    Chain { tiers, first_attempts: vec![per_window; 200], judged: 20..60, retries_s }
}

fn run(chain: &Chain) -> Outcome {
    replay(chain, &WITHIN_S, EVENTS_MAX).unwrap().0
}

fn near(got: u64, expect: f64, by: f64) {
    assert!((got as f64 - expect).abs() <= by, "{got} is not {expect} within {by}");
}

#[test]
fn a_chain_without_a_stall_answers_in_its_service_time() {
    let mut app = tier("app", Some(128), Some(60));
    (app.cpu_s, app.wait_s) = (0.004, 0.010);
    let outcome = run(&chain(50, vec![tier("web", Some(128), Some(150)), app]));
    assert_eq!((outcome.dropped(), outcome.first_overflow, outcome.given_up), (0, None, 0));
    assert!((outcome.p50_s.unwrap() - 0.015).abs() < 1e-6, "{outcome:?}");
    assert!((outcome.max_s.unwrap() - 0.015).abs() < 1e-6, "evenly spread, below capacity: nobody waits");
    assert!((outcome.goodput[0].per_second - 1000.0).abs() < 1e-6);
    assert_eq!(outcome.goodput[0].ratio, 1.0);
}

#[test]
fn a_stall_drops_what_comes_less_what_workers_and_queue_hold() {
    // λ·d − (P + B + 1): 1000/s for 500 ms, 150 workers, and 129 of a backlog of 128.
    let mut web = tier("web", Some(128), Some(150));
    web.speed = vec![stands(20..30)];
    let outcome = run(&chain(50, vec![web.clone()]));
    near(outcome.dropped(), 500.0 - 150.0 - 129.0, 1.0);
    assert_eq!(outcome.deepest, [129]);
    let (overflowed, at_s) = outcome.first_overflow.unwrap();
    assert!(overflowed == 0 && (at_s - 1.279).abs() < 0.002, "after 279 of 1000/s: {at_s}");
    // Those that were dropped come again a second later, when it is over.
    let max_s = outcome.max_s.unwrap();
    assert!((1.0..1.01).contains(&max_s), "{max_s}");
    // Who came first waited for the whole stall.
    near((outcome.goodput[0].ratio * 2000.0) as u64, 2000.0 - 221.0, 3.0);
    assert_eq!(outcome.goodput[1].ratio, 1.0);
    // A server that is stopped accepts nothing: its workers hold nobody.
    web.accepts_nothing_when_held = true;
    near(run(&chain(50, vec![web])).dropped(), 500.0 - 129.0, 1.0);
}

#[test]
fn who_comes_again_during_a_stall_is_dropped_again() {
    // 1.5 s: the first 279 are held; of the retries of a second later those come in time to be dropped that were dropped in the first
    // 500 ms of it.
    let mut web = tier("web", Some(128), Some(150));
    web.speed = vec![stands(20..50)];
    let outcome = run(&chain(50, vec![web]));
    near(outcome.dropped(), (1500.0 - 279.0) + (500.0 - 279.0), 3.0);
    let max_s = outcome.max_s.unwrap();
    assert!((3.0..3.01).contains(&max_s), "dropped twice: after 3 s, {max_s}");
}

#[test]
fn who_is_dropped_twice_comes_again_by_either_schedule_and_what_was_seen_tells_which() {
    let mut web = tier("web", Some(128), Some(150));
    web.speed = vec![stands(20..65)];
    let doubling = chain(50, vec![web]);
    let linear = Chain { retries_s: Retries::Linear.times_s().to_vec(), ..doubling.clone() };
    // 2250 ms of 1000/s, 279 of which are held. What was dropped in the first 1250 ms comes again and is dropped again; of these, by
    // seconds apart, what was dropped in the first 250 ms (none: those are held) comes a third time.
    let (of_doubling, of_linear) = (run(&doubling), run(&linear));
    near(of_doubling.dropped(), (2250.0 - 279.0) + (1250.0 - 279.0), 4.0);
    assert_eq!(of_doubling.dropped(), of_linear.dropped());
    assert!((3.0..3.5).contains(&of_doubling.max_s.unwrap()), "{of_doubling:?}");
    assert!((2.0..2.5).contains(&of_linear.max_s.unwrap()), "{of_linear:?}");
    // A stall of 2.6 s: those of the first 600 ms less 279 come a third time while it lasts by seconds, and after it by doubling.
    let longer = |of: &Chain| {
        let mut of = of.clone();
        of.tiers[0].speed = vec![stands(20..72)];
        of
    };
    let chains = [longer(&linear), longer(&doubling)];
    let (more, fewer) = (run(&chains[0]).dropped(), run(&chains[1]).dropped());
    near(more - fewer, 600.0 - 279.0, 4.0);
    let wanted = Wanted { within_s: WITHIN_S.to_vec(), p99_s: 0.5 };
    for (which, seen) in [(0, [more]), (1, [fewer])] {
        let of = prevention(Sought { chains: &chains, seen: &seen, wanted: &wanted }).unwrap();
        assert_eq!((of.chain, of.by_chain.as_slice()), (which, [more, fewer].as_slice()));
        assert!((of.reproduction.ratio - 1.0).abs() < 1e-9 && of.attempts_factor == 1.0);
    }
    let none = Sought { chains: &[], seen: &[1], wanted: &wanted };
    assert!(matches!(prevention(none), Err(Refusal::Input { .. })));
}

#[test]
fn who_is_dropped_each_time_is_given_up() {
    let mut web = tier("web", Some(4), Some(1));
    web.speed = vec![stands(0..200)];
    let mut chain = chain(1, vec![web]);
    chain.judged = 20..40;
    let outcome = run(&chain);
    assert_eq!((outcome.judged, outcome.given_up, outcome.p50_s, outcome.max_s), (20, 20, None, None));
    assert_eq!(outcome.goodput[1].ratio, 0.0);
}

#[test]
fn half_the_cpus_do_half_the_work() {
    // 1 CPU of work comes (1000/s of 1 ms) to a tier with one CPU; for a second it has half of it, so half a second of work is left.
    let mut web = tier("web", Some(1000), Some(1));
    web.cpus = 1.0;
    web.speed = vec![(0..40).map(|n| if n < 20 { 1.0 } else { 0.5 }).collect()];
    let outcome = run(&chain(50, vec![web]));
    assert_eq!(outcome.dropped(), 0);
    near(outcome.deepest[0].into(), 500.0, 2.0);
}

#[test]
fn workers_of_a_caller_are_held_while_it_waits_below() {
    // Upstream overflow: the database stands, and the web server, which has all it needs, drops.
    let web = tier("web", Some(128), Some(150));
    let app = tier("app", Some(1000), Some(400));
    let mut db = tier("db", Some(1000), Some(1000));
    db.speed = vec![stands(20..30)];
    let outcome = run(&chain(50, vec![web, app, db]));
    near(outcome.drops[0], 500.0 - 279.0, 4.0);
    assert_eq!(outcome.drops[1..], [0, 0]);
}

#[test]
fn an_event_driven_front_drops_nothing_and_what_it_calls_does() {
    let web = tier("web", Some(128), None);
    let mut app = tier("app", Some(128), Some(150));
    app.speed = vec![stands(20..30)];
    let outcome = run(&chain(50, vec![web, app]));
    assert_eq!(outcome.drops[0], 0);
    near(outcome.drops[1], 500.0 - 279.0, 2.0);
}

#[test]
fn a_pool_keeps_its_callers_waiting_and_not_what_is_below() {
    // 50 calls at a time of 100 ms are 500/s: of 1000/s half find no connection, and hold a worker each until there are none.
    let mut web = tier("web", Some(128), Some(150));
    web.pool = Some(50);
    let mut db = tier("db", None, None);
    db.wait_s = 0.099;
    let outcome = run(&chain(50, vec![web, db]));
    assert!(outcome.drops[0] > 0 && outcome.deepest[1] == 0, "{outcome:?}");
    // Of 10 s all but what was let in: 500/s, and 279 in hand.
    let first_drops = 10_000.0 - 5000.0 - 279.0;
    assert!(outcome.drops[0] as f64 > first_drops, "{} with retries", outcome.drops[0]);
}

#[test]
fn of_two_servers_the_one_that_works_goes_on() {
    let mut app = tier("app", Some(128), Some(150));
    app.speed = vec![stands(20..30), Vec::new()];
    let outcome = run(&chain(100, vec![app]));
    // Each gets 1000/s.
    near(outcome.dropped(), 500.0 - 279.0, 2.0);
}

#[test]
fn part_of_the_requests_calls() {
    let mut web = tier("web", Some(128), Some(150));
    web.calls = 0.25;
    let mut app = tier("app", Some(2000), None);
    app.wait_s = 0.1;
    let outcome = run(&chain(50, vec![web, app]));
    let slow = 1.0 - run(&chain(50, vec![tier("web", Some(128), Some(150))])).goodput[0].ratio;
    assert_eq!((outcome.dropped(), slow), (0, 0.0));
    assert!(outcome.p50_s.unwrap() < 0.01 && outcome.p99_s.unwrap() > 0.1, "{outcome:?}");
}

fn ask(chain: &Chain, seen: &[u64]) -> Result<Prevention, Refusal> {
    let wanted = Wanted { within_s: WITHIN_S.to_vec(), p99_s: 0.5 };
    prevention(Sought { chains: std::slice::from_ref(chain), seen, wanted: &wanted })
}

fn found(of: &Prevention, knob: Knob, tier: usize) -> (Option<u32>, Effect) {
    let is = |c: &&tailwater_sizing::prevent::Candidate| {
        c.changes.len() == 1 && c.changes[0].knob == knob && c.changes[0].tier == tier
    };
    let candidate = of.candidates.iter().find(is).unwrap();
    (candidate.changes[0].to, candidate.effect)
}

/// The database stands for so many windows.
fn three_tiers(windows: usize) -> Chain {
    let web = tier("web", Some(128), Some(150));
    let app = tier("app", Some(100), Some(200));
    let mut db = tier("db", Some(2000), Some(2000));
    db.speed = vec![stands(20..20 + windows)];
    chain(50, vec![web, app, db])
}

#[test]
fn a_backlog_that_is_long_enough_drops_nothing_and_is_slow() {
    let chain = three_tiers(14);
    // 700 come; 150 + 1 are held beside the backlog, which is 128.
    let of = ask(&chain, &[421, 0, 0]).unwrap();
    assert!((of.reproduction.ratio - 1.0).abs() < 0.02, "{:?}", of.reproduction);
    assert_eq!(of.overflowed, 0);
    let (size, effect) = found(&of, Knob::Backlog, 0);
    assert_eq!(effect, Effect::Slow, "who waits 700 ms is not served in 500");
    // 549 would do for these; 840 come with the margin.
    assert!((689..=760).contains(&size.unwrap()), "{size:?}");
    let slow = of.candidates.iter().find(|c| c.changes[0].knob == Knob::Backlog).unwrap();
    assert!((0.6..0.72).contains(&slow.outcome.p99_s.unwrap()), "{slow:?}");
    let with_margin = slow.with_margin.as_ref().unwrap();
    assert_eq!(with_margin.dropped(), 0);
    assert!((0.75..0.86).contains(&with_margin.p99_s.unwrap()), "a stall of 840 ms: {with_margin:?}");
    // Threads of the web server alone push it to the application, which has 200 and 101.
    let (size, effect) = found(&of, Knob::Workers, 0);
    assert_eq!(effect, Effect::Moves { to: 1 }, "{size:?}");
    let both = of.candidates.iter().find(|c| c.changes.len() == 2).unwrap();
    assert_eq!((both.effect, both.changes[1].knob, both.changes[1].tier), (Effect::Slow, Knob::Backlog, 1));
    // Nobody is served while the database stands: its caller's threads change nothing.
    assert_eq!(found(&of, Knob::Workers, 1).1, Effect::Nothing);
    assert_eq!(found(&of, Knob::EventDriven, 0).1, Effect::Moves { to: 1 });
    assert!(of.untried.is_empty(), "{:?}", of.untried);
    // The best comes first.
    assert!(of.candidates[0].outcome.dropped() == 0);
}

#[test]
fn what_is_asked_about_is_tried_and_nothing_else() {
    let chain = three_tiers(14);
    let wanted = Wanted { within_s: WITHIN_S.to_vec(), p99_s: 0.5 };
    let sought = Sought { chains: std::slice::from_ref(&chain), seen: &[421, 0, 0], wanted: &wanted };
    let change = |knob, tier, from, to| Change { knob, tier, from: Some(from), to: Some(to) };
    let of = what_if(sought, &[change(Knob::Backlog, 0, 128, 350)]).unwrap();
    assert_eq!((of.candidates.len(), of.reproduction.seen), (1, 421));
    // 700 come; 150 and 351 are held.
    near(of.candidates[0].outcome.dropped(), 199.0, 6.0);
    near(of.candidates[0].with_margin.as_ref().unwrap().dropped(), 840.0 - 501.0, 8.0);
    let two = [change(Knob::Backlog, 0, 128, 350), change(Knob::Backlog, 0, 350, 128)];
    let of = what_if(sought, &two).unwrap();
    assert_eq!(of.candidates[0].outcome, of.unchanged);
    let nothing = Sought { seen: &[0, 0, 0], ..sought };
    assert_eq!(what_if(nothing, &two), Err(Refusal::NothingDropped));
}

#[test]
fn what_holds_just_what_came_has_nothing_to_spare_and_is_no_prevention() {
    let chain = three_tiers(14);
    let wanted = Wanted { within_s: WITHIN_S.to_vec(), p99_s: 2.0 };
    let sought = Sought { chains: std::slice::from_ref(&chain), seen: &[421, 0, 0], wanted: &wanted };
    let with = |to| {
        let change = Change { knob: Knob::Backlog, tier: 0, from: Some(128), to: Some(to) };
        what_if(sought, &[change]).unwrap().candidates.remove(0)
    };
    // 700 come, and 150 and 601 have a place; of 840 89 have none.
    let tight = with(600);
    assert_eq!((tight.effect, tight.outcome.dropped()), (Effect::Tight { at: 0 }, 0));
    near(tight.with_margin.unwrap().dropped(), 89.0, 6.0);
    assert_eq!(with(700).effect, Effect::Prevents);
    // In time for what came, and not for a stall that lasts a fifth longer.
    let wanted = Wanted { p99_s: 0.75, ..wanted.clone() };
    let sought = Sought { wanted: &wanted, ..sought };
    let change = Change { knob: Knob::Backlog, tier: 0, from: Some(128), to: Some(700) };
    let slow = what_if(sought, &[change]).unwrap().candidates.remove(0);
    assert!(slow.outcome.p99_s.unwrap() < 0.75 && slow.effect == Effect::Slow, "{slow:?}");
}

#[test]
fn a_pool_that_is_too_small_is_found() {
    // A burst of 100 ms that the database could serve, through a pool that cannot.
    let mut app = tier("app", Some(96), Some(64));
    app.pool = Some(4);
    let mut db = tier("db", None, None);
    db.wait_s = 0.039;
    let mut chain = chain(4, vec![app, db]);
    chain.first_attempts[20] = 100;
    chain.first_attempts[21] = 100;
    let seen = run(&chain).drops;
    assert!(seen[0] > 0);
    let of = ask(&chain, &seen).unwrap();
    let (size, effect) = found(&of, Knob::Pool, 0);
    assert_eq!(effect, Effect::Prevents);
    assert!((20..=80).contains(&size.unwrap()), "{size:?}");
    assert_eq!(of.candidates[0].effect, Effect::Prevents);
}

#[test]
fn a_tier_without_a_known_limit_is_not_said_to_take_more_than_it_was_seen_to() {
    let mut chain = three_tiers(14);
    (chain.tiers[1].entry, chain.tiers[1].workers, chain.tiers[1].seen_to) = (Entry::Open, None, Some(150));
    let of = ask(&chain, &[421, 0, 0]).unwrap();
    assert_eq!(found(&of, Knob::Workers, 0).1, Effect::BeyondSeen { at: 1 });
    assert_eq!(found(&of, Knob::EventDriven, 0).1, Effect::BeyondSeen { at: 1 });
    assert_eq!(found(&of, Knob::Backlog, 0).1, Effect::Slow, "those wait in front of it");
}

#[test]
fn what_the_model_sees_too_little_of_is_made_harder() {
    // The model drops 421; what is told has to stand 600.
    let chain = three_tiers(14);
    let of = ask(&chain, &[600, 0, 0]).unwrap();
    assert!((of.reproduction.ratio - 0.7).abs() < 0.02, "{:?}", of.reproduction);
    // 879 come, by steps of a twentieth of 700.
    assert!((1.25..=1.301).contains(&of.attempts_factor), "{}", of.attempts_factor);
    let (size, _) = found(&of, Knob::Backlog, 0);
    // And a fifth more than those: 1055, less 151.
    assert!((895..=1000).contains(&size.unwrap()), "{size:?}");
    assert_eq!(ask(&chain, &[421, 0, 0]).unwrap().attempts_factor, 1.0);
}

#[test]
fn what_cannot_be_said_is_refused_with_its_reason() {
    let chain = three_tiers(14);
    assert_eq!(ask(&chain, &[0, 0, 0]), Err(Refusal::NothingDropped));
    let Err(Refusal::NotReproduced { predicted, seen: 2000 }) = ask(&chain, &[2000, 0, 0]) else { panic!() };
    near(predicted, 421.0, 4.0);
    assert!(matches!(ask(&chain, &[200, 0, 0]), Err(Refusal::NotReproduced { .. })));
    let mut many = chain.clone();
    many.first_attempts = vec![400; 200];
    assert!(matches!(ask(&many, &[1, 0, 0]), Err(Refusal::TooManyRequests { requests: 80_000, .. })));
    for wrong in [
        |c: &mut Chain| c.tiers.clear(),
        |c: &mut Chain| c.tiers[0].cpus = 0.0,
        |c: &mut Chain| c.tiers[0].cpu_s = f64::NAN,
        |c: &mut Chain| c.tiers[1].wait_s = -1.0,
        |c: &mut Chain| c.tiers[1].calls = 1.5,
        |c: &mut Chain| c.tiers[1].workers = Some(0),
        |c: &mut Chain| c.tiers[2].speed = Vec::new(),
        |c: &mut Chain| c.tiers[2].speed[0][0] = 2.0,
        |c: &mut Chain| c.retries_s = vec![3.0, 1.0],
        |c: &mut Chain| c.judged = 60..60,
        |c: &mut Chain| c.judged = 0..201,
    ] {
        let mut chain = chain.clone();
        wrong(&mut chain);
        assert!(matches!(replay(&chain, &WITHIN_S, EVENTS_MAX), Err(Refusal::Input { .. })));
    }
    let few = replay(&chain, &WITHIN_S, 1000);
    assert_eq!(few.unwrap_err(), Refusal::TooManyEvents { most: 1000 });
}

#[test]
fn the_same_chain_gives_the_same_answer() {
    let chain = three_tiers(14);
    assert_eq!(ask(&chain, &[421, 0, 0]), ask(&chain, &[421, 0, 0]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn of_one_tier_more_backlog_never_drops_more(
        // One worker serves 50 of a millisecond in a window: with more than that it would drop also where nothing stands.
        per_window in 1u32..60, workers in 2u32..100, backlog in 0u32..300, more in 1u32..300, windows in 1usize..30,
    ) {
        let of = |backlog| {
            let mut web = tier("web", Some(backlog), Some(workers));
            web.speed = vec![stands(20..20 + windows)];
            // Without retries: those of a second later meet another queue.
            let mut chain = chain(per_window, vec![web]);
            chain.retries_s = Vec::new();
            run(&chain)
        };
        let (few, many) = (of(backlog), of(backlog + more));
        prop_assert!(many.dropped() <= few.dropped(), "{} then {}", few.dropped(), many.dropped());
        let held = f64::from(per_window) * windows as f64 - f64::from(workers + backlog + 1);
        prop_assert!((few.dropped() as f64 - held.max(0.0)).abs() <= 2.0, "{} is not {held}", few.dropped());
    }

    #[test]
    fn what_is_called_free_of_drops_stands_a_fifth_more_of_either(
        per_window in 20u32..40, workers in 1u32..100, backlog in 20u32..100, windows in 8usize..20,
    ) {
        let mut web = tier("web", Some(backlog), Some(workers));
        web.speed = vec![stands(20..20 + windows)];
        let mut as_it_was = chain(per_window, vec![web]);
        as_it_was.judged = 20..20 + windows;
        let seen = run(&as_it_was).drops;
        prop_assume!(seen[0] > 0);
        let of = ask(&as_it_was, &seen).unwrap();
        let (Some(size), Effect::Slow | Effect::Prevents) = found(&of, Knob::Backlog, 0) else { panic!("{of:?}") };
        let held = f64::from(workers) + f64::from(size) + 1.0;
        let came = f64::from(per_window) * windows as f64;
        prop_assert!(held + 1.0 >= 1.2 * came, "{held} places for {came}");
        let mut more = as_it_was.clone();
        more.tiers[0].entry = Entry::AcceptQueue { backlog: size };
        let mut longer = more.clone();
        more.first_attempts[as_it_was.judged.clone()].iter_mut().for_each(|n| *n = (f64::from(*n) * 1.2) as u32);
        prop_assert_eq!(run(&more).dropped(), 0);
        longer.tiers[0].speed = vec![stands(20..20 + (windows as f64 * 1.2) as usize)];
        prop_assert_eq!(run(&longer).dropped(), 0);
    }

    #[test]
    fn every_first_attempt_is_answered_or_given_up(
        per_window in 1u32..60, workers in 1u32..100, backlog in 0u32..100, pool in 1u32..50, windows in 1usize..60,
    ) {
        let mut web = tier("web", Some(backlog), Some(workers));
        web.pool = Some(pool);
        let mut db = tier("db", Some(backlog), Some(pool));
        db.speed = vec![stands(20..20 + windows)];
        let chain = chain(per_window, vec![web, db]);
        let outcome = run(&chain);
        prop_assert_eq!(outcome.judged, u64::from(per_window) * 40);
        prop_assert!(outcome.given_up <= outcome.judged);
        prop_assert!(outcome.p50_s.is_none() || outcome.p50_s <= outcome.p99_s.or(Some(f64::INFINITY)));
        prop_assert!(outcome.goodput[0].ratio <= outcome.goodput[1].ratio);
    }
}

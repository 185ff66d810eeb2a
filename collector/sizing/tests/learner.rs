//! The learner on simulated traffic: a server under a CFS quota, with and without a penalty of its own; another version; taints, ageing
//! and what is refused.

mod support;

use std::collections::BTreeMap;
use support::{Noise, near};
use tailwater_sizing::concurrency::{Conditions, Deployment, Model, advise};
use tailwater_sizing::curve::{Block, Cell, Curve, bins, falls, overhead};
use tailwater_sizing::evidence::{Class, Decision};
use tailwater_sizing::learn::{Learner, Second, Serving, Taint};

/// Xorshift64 (Marsaglia), above 0 and at the most 1.
struct Xorshift(u64);

impl Xorshift {
    fn even(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) as f64 + 1.0) / 9_007_199_254_740_992.0
    }
}

const STEP_S: f64 = 0.0005;
const PERIOD_S: f64 = 0.1;

/// One CPU of which a request needs `cpu_s` (a second of CPU work is stretched by `stretch(N)`), after a wait of `wait_s` in the mean elsewhere.
/// CFS gives `quota` of each period of 100 ms. Times with few arrivals, in bursts of up to ten, alternate with times of some seconds in
/// which arrivals are more than it can do, and so many at a time are admitted.
struct Server<'a> {
    cpu_s: f64,
    wait_s: f64,
    quota: f64,
    stretch: &'a dyn Fn(f64) -> f64,
}

impl Server<'_> {
    fn run(&self, seconds: u32, seed: u64) -> Vec<Second> {
        let mut random = Xorshift(seed);
        let mut waiting = Vec::<f64>::new();
        let mut ready = Vec::<f64>::new();
        let (mut budget_s, mut period_left_s) = (self.quota * PERIOD_S, PERIOD_S);
        let (mut rate, mut admitted, mut phase_s) = (50.0, 60_usize, 0.0);
        let mut told = Vec::new();
        for at in 0..seconds {
            let mut cells = BTreeMap::<u8, (f64, f64)>::new();
            let (mut in_flight_s, mut answered, mut used_s, mut throttled_s) = (0.0, 0.0, 0.0, 0.0);
            for _ in 0..(1.0 / STEP_S) as u32 {
                phase_s -= STEP_S;
                if phase_s <= 0.0 {
                    let is_full = random.even() < 0.6;
                    rate = if is_full { 1500.0 } else { 20.0 + 60.0 * random.even() };
                    admitted = if is_full { 60_f64.powf(random.even()) as usize + 1 } else { 60 };
                    phase_s = 3.0 + 3.0 * random.even();
                }
                period_left_s -= STEP_S;
                if period_left_s < STEP_S / 2.0 {
                    (period_left_s, budget_s) = (PERIOD_S, self.quota * PERIOD_S);
                }
                let burst = if rate > 100.0 { 1.0 } else { 10.0 };
                if random.even() < rate * STEP_S / burst {
                    let room = admitted.saturating_sub(waiting.len() + ready.len());
                    for _ in 0..room.min(burst as usize) {
                        waiting.push(-self.wait_s * random.even().ln());
                    }
                }
                let n = waiting.len() + ready.len();
                let cell = cells.entry(bins::bin_of(n as u32) as u8).or_default();
                cell.0 += STEP_S;
                in_flight_s += n as f64 * STEP_S;
                if !ready.is_empty() {
                    if budget_s < STEP_S / 2.0 {
                        throttled_s += STEP_S;
                    } else {
                        budget_s -= STEP_S;
                        used_s += STEP_S;
                        ready[0] -= STEP_S / (self.stretch)(n as f64);
                        if ready[0] <= 0.0 {
                            // What is left of the step was not used.
                            let over_s = -ready.remove(0) * (self.stretch)(n as f64);
                            budget_s += over_s;
                            used_s -= over_s;
                            answered += 1.0;
                            cell.1 += 1.0;
                        }
                    }
                }
                waiting.iter_mut().for_each(|left| *left -= STEP_S);
                ready.extend(waiting.extract_if(.., |left| *left <= 0.0).map(|_| self.cpu_s));
            }
            let cell = |(bin, (seconds, completions)): (u8, (f64, f64))| Cell { bin, seconds, completions };
            told.push(Second {
                start_unix_s: u64::from(at),
                cells: cells.into_iter().map(cell).collect(),
                in_flight_s,
                answered,
                cpu_s: Some(used_s),
                cpus: Some(self.quota),
                is_quota: self.quota < 1.0,
                throttled_s: Some(throttled_s),
                ..Second::default()
            });
        }
        told
    }
}

fn learnt(seconds: &[Second]) -> Learner {
    let mut learner = Learner::default();
    seconds.iter().for_each(|second| learner.push(second));
    learner
}

#[test]
fn a_quota_is_no_penalty_though_the_naive_curve_falls() {
    for (seed, wait_s) in [(1, 0.01), (2, 0.01), (3, 0.01), (4, 0.0005)] {
        let server = Server { cpu_s: 0.002, wait_s, quota: 0.5, stretch: &|_| 1.0 };
        let seconds = server.run(1200, seed);
        let mut naive = Curve::default();
        seconds.iter().for_each(|of| naive.push(&Block::new(of.cells.iter().copied()).unwrap()));
        let best = naive.levels().into_iter().filter(|of| of.is_known());
        let best = best.max_by(|a, b| a.throughput().total_cmp(&b.throughput())).unwrap();
        println!("naive: {:.0}/s at {}", best.throughput(), best.in_flight);
        assert!(falls(&naive.levels(), best.in_flight), "the naive curve claims a penalty");
        assert!(best.throughput() > 1.1 * 250.0, "and more than quota/D");
        let conditions = Conditions { saturated_windows: 100, used_ratio: 1.0, ..Conditions::default() };
        let told = advise(&naive, &conditions, &Deployment::default());
        println!("naive: {:?} {:?}", told.pool, told.throughput_max);

        let learner = learnt(&seconds);
        let advice = learner.advise(Some(60), &Deployment::default());
        println!("{advice:?}\n{:?}", learner.left_out().collect::<Vec<_>>());
        assert_eq!(
            (advice.model, advice.pool.class()),
            (Model::Utilisation, Some(Class::Plateau)),
            "{advice:?}"
        );
        let pool = advice.pool.value().unwrap();
        assert_eq!(pool.at_most, None, "no penalty");
        assert!(pool.at_least <= 12, "3 keep half a CPU busy in the mean: {pool:?}");
        near("throughput_max", advice.throughput_max.value().unwrap().value, 0.5 / 0.002, 0.03);
        near("D", learner.cpu_s_per_request().unwrap().value, 0.002, 0.02);
        assert!(learner.left_out().any(|(taint, seconds)| taint == Taint::Throttled && seconds > 0.0));
    }
}

#[test]
fn a_penalty_under_a_quota_is_found() {
    for seed in 1..=3 {
        let stretch = |n: f64| 1.0 + n / 40.0;
        let server = Server { cpu_s: 0.002, wait_s: 0.02, quota: 0.5, stretch: &stretch };
        let learner = learnt(&server.run(2400, seed));
        let advice = learner.advise(Some(200), &Deployment::default());
        println!("{advice:?}");
        let demands = learner.demands();
        let slope = overhead(&demands).unwrap();
        println!("{slope:?} {demands:?}");
        assert!(slope.is_seen(), "{demands:?}");
        near("slope of D", slope.slope_s, 0.002 / 40.0, 0.15);
        assert!(falls(&learner.curve().levels(), 10.0));
        assert_eq!((advice.model, advice.pool.class()), (Model::Law, Some(Class::Measured)), "{advice:?}");
        assert!(advice.pool.value().unwrap().at_most.is_some_and(|most| most < 20), "{advice:?}");
    }
}

#[test]
fn without_a_quota_time_in_state_is_the_curve() {
    let server = Server { cpu_s: 0.002, wait_s: 0.01, quota: 1.0, stretch: &|_| 1.0 };
    let seconds = server.run(600, 1);
    let mut naive = Curve::default();
    seconds.iter().for_each(|of| naive.push(&Block::new(of.cells.iter().copied()).unwrap()));
    let (learner, naive) = (learnt(&seconds), naive.levels());
    for (a, b) in learner.curve().levels().iter().zip(&naive) {
        assert!(a.completions < 1.0 || (a.throughput() / b.throughput() - 1.0).abs() < 0.02, "{a:?} {b:?}");
    }
    let advice = learner.advise(None, &Deployment::default());
    assert_eq!(advice.pool.class(), Some(Class::Plateau), "{advice:?}");
    near("throughput_max", advice.throughput_max.value().unwrap().value, 500.0, 0.03);
}

/// A second of `answered` in the mean, each with `cpu_s` and `calls` calls, both as noisy as requests of several kinds make them.
fn second(random: &mut Noise, at: u32, cpu_s: f64, calls: f64) -> Second {
    // Load of a day in an hour, and bursts.
    let rate = 60.0 * (1.0 + 0.6 * (f64::from(at) / 573.0).sin()) * (1.0 + 0.3 * random.normal()).max(0.1);
    let answered = (rate + rate.sqrt() * random.normal()).round().max(1.0);
    let used = cpu_s * (answered + 1.5 * answered.sqrt() * random.normal()).max(0.0) + 0.02;
    let in_flight = answered * 0.02;
    let busy = in_flight.min(0.9);
    Second {
        start_unix_s: u64::from(at),
        cells: vec![
            Cell { bin: 0, seconds: 1.0 - busy, completions: 0.0 },
            Cell {
                bin: bins::bin_of((in_flight / busy).round() as u32) as u8,
                seconds: busy,
                completions: answered,
            },
        ],
        in_flight_s: in_flight,
        answered,
        cpu_s: Some(used),
        cpus: Some(4.0),
        calls: Some((calls * (answered + 0.8 * answered.sqrt() * random.normal())).max(0.0)),
        ..Second::default()
    }
}

#[test]
fn another_version_begins_anew_and_the_same_one_hardly_ever_does() {
    let (hours, mut false_alarms) = (200, 0);
    for seed in 1..=20 {
        let mut random = Noise(seed);
        let mut learner = Learner::default();
        for at in 0..hours * 3600 / 20 {
            learner.push(&second(&mut random, at, 2e-3, 1.5));
        }
        false_alarms += learner.begun_anew();
    }
    println!("{false_alarms} false alarms in {hours} h of traffic");
    assert_eq!(false_alarms, 0);
    for (cpu_s, calls, name) in
        [(2.6e-3, 1.5, "D + 30 %"), (1.4e-3, 1.5, "D - 30 %"), (2e-3, 2.0, "calls + 33 %")]
    {
        let (mut found, mut latest) = (0, 0);
        for seed in 1..=50 {
            let mut random = Noise(1000 + seed);
            let mut learner = Learner::default();
            (0..1800).for_each(|at| learner.push(&second(&mut random, at, 2e-3, 1.5)));
            let at = (1800..2400).find(|at| {
                learner.push(&second(&mut random, *at, cpu_s, calls));
                learner.begun_anew() > 0
            });
            if let Some(at) = at {
                found += 1;
                latest = latest.max(at - 1800);
                assert!(learner.since_unix_s() == Some(u64::from(at)) && learner.seconds_learnt() < 2.0);
            }
        }
        println!("{name}: {found} of 50 within 600 s, the latest after {latest} s");
        assert!(found >= 48, "{name}: {found}");
    }
}

#[test]
fn what_was_never_full_lowers_nothing_whatever_its_curve() {
    // Locks: throughput falls with N while the CPU idles.
    let law = tailwater_sizing::concurrency::Law::new(2e-3, 5e-4, 6e-6).unwrap();
    let mut learner = Learner::default();
    for _ in 0..300 {
        let cell = |n: u32| {
            let bin = bins::bin_of(n);
            Cell {
                bin: bin as u8,
                seconds: 1.0 / 60.0,
                completions: law.throughput(bins::middle_of(bin)) / 60.0,
            }
        };
        let cells: Vec<Cell> = (1..=60).map(cell).collect();
        let answered = cells.iter().map(|of| of.completions).sum();
        learner.push(&Second {
            cells,
            in_flight_s: 30.5,
            answered,
            cpu_s: Some(0.3),
            cpus: Some(1.0),
            ..Second::default()
        });
    }
    let advice = learner.advise(Some(500), &Deployment::default());
    assert_eq!(advice.pool.class(), Some(Class::Extrapolated), "{advice:?}");
    assert_eq!(advice.pool.decide(Some(500)), Decision::Keep);
    assert!(advice.in_flight.class().is_none_or(|of| !of.may_lower()), "{advice:?}");
}

#[test]
fn what_is_left_out_is_counted_by_reason_and_refused_by_name() {
    let mut random = Noise(1);
    let mut learner = Learner::default();
    for at in 0..100 {
        learner.push(&Second { taint: Some(Taint::Steal), ..second(&mut random, at, 2e-3, 1.0) });
    }
    learner.push(&Second { in_flight_s: f64::NAN, ..second(&mut random, 0, 2e-3, 1.0) });
    let quota = Second { is_quota: true, cpus: Some(0.5), ..second(&mut random, 0, 2e-3, 1.0) };
    learner.push(&Second { throttled_s: Some(0.1), ..quota.clone() });
    learner.push(&Second { cpu_s: None, ..quota });
    let left: BTreeMap<Taint, f64> = learner.left_out().collect();
    assert_eq!(
        left.keys().copied().collect::<Vec<_>>(),
        [Taint::Steal, Taint::CoverageGap, Taint::Throttled, Taint::Impossible]
    );
    assert!((left[&Taint::Steal] - 100.0).abs() < 1e-6 && learner.seconds_learnt() == 0.0);
    let why = |learner: &Learner| {
        learner.advise(None, &Deployment::default()).pool.refusal().map(ToString::to_string)
    };
    assert!(why(&learner).unwrap().contains("stolen CPUs in 100 s"));
    (0..30).for_each(|at| learner.push(&second(&mut random, at, 2e-3, 1.0)));
    assert!(why(&learner).unwrap().starts_with("30 s of clean traffic"), "{:?}", why(&learner));
    let mut last = second(&mut random, 31, 2e-3, 1.0);
    for (serving, says) in [(Serving::EventDriven, "event-driven"), (Serving::Multiplexed, "one connection")]
    {
        last.serving = serving;
        learner.push(&last);
        assert!(why(&learner).unwrap().contains(says), "{:?}", why(&learner));
    }
}

#[test]
fn what_a_request_waits_is_known_of_a_server_that_its_quota_always_throttles_a_little() {
    // 50 requests a second of 2 ms each in the mean, 10 ms from first byte to last, and 0.5 of a CPU.
    let low = |throttled_s: f64, answered: f64| Second {
        cells: vec![
            Cell { bin: 0, seconds: 0.5, completions: 0.0 },
            Cell { bin: 1, seconds: 0.5, completions: answered },
        ],
        in_flight_s: answered * 0.01,
        answered,
        cpu_s: Some(answered * 0.002),
        cpus: Some(0.5),
        is_quota: true,
        throttled_s: Some(throttled_s),
        ..Second::default()
    };
    let after = |throttled_s: f64| {
        let mut learner = Learner::default();
        (0..60).for_each(|at| learner.push(&low(throttled_s, 50.0 + f64::from(at % 5))));
        assert_eq!(learner.seconds_learnt(), 0.0, "the curve has no use for them");
        learner.wait_s()
    };
    near("W", after(0.02).unwrap(), 0.008, 1e-6);
    assert_eq!(after(0.2), None, "then it is the quota that they wait for");
}

/// A second of 100 answers of 4 ms each, on one CPU of which so much was used.
fn hundred(used: f64) -> Second {
    Second {
        cells: vec![
            Cell { bin: 0, seconds: 0.6, completions: 0.0 },
            Cell { bin: 1, seconds: 0.4, completions: 100.0 },
        ],
        in_flight_s: 0.4,
        answered: 100.0,
        cpu_s: Some(used),
        cpus: Some(1.0),
        ..Second::default()
    }
}

#[test]
fn what_callers_do_between_their_calls_is_read_where_nobody_waits() {
    // Of requests that are with the caller for 7 ms for each of its calls.
    let of = |used: f64, own_s: f64| Second { callers: Some((own_s, 0.4)), ..hundred(used) };
    let after = |calm: f64| {
        let mut learner = Learner::default();
        for _ in 0..60 {
            learner.push(&of(0.2, calm));
            // Among many they wait for a connection, too, which is not to hold one.
            learner.push(&of(0.9, 30.0));
        }
        let back: Learner = serde_json::from_str(&serde_json::to_string(&learner).unwrap()).unwrap();
        assert_eq!(back.between_calls_s().is_some(), learner.between_calls_s().is_some());
        learner.between_calls_s()
    };
    near("between calls", after(0.7).unwrap(), 7e-3, 1e-4);
    near("with a call after the answer", after(0.3).unwrap(), 3e-3, 1e-4);
    assert_eq!(after(0.1), None, "it does more than it is asked for");
    let unknown = Second { callers: None, ..of(0.2, 0.0) };
    assert_eq!(learnt(&vec![unknown; 60]).between_calls_s(), None);
    let mut damaged = Learner::default();
    damaged.push(&Second { callers: Some((f64::NAN, 0.4)), ..of(0.2, 0.7) });
    assert!(damaged.left_out().any(|(taint, _)| taint == Taint::Impossible));
}

#[test]
fn what_a_connection_is_open_without_a_request_is_read_where_nobody_waits() {
    // A connection is open for half a second more than for its answer.
    let of = |used: f64, open_s: f64| Second { offered: Some(100.0), open_s: Some(open_s), ..hundred(used) };
    let mut learner = Learner::default();
    for n in 0..100 {
        learner.push(&of(0.2, 50.4));
        learner.push(&of(0.9, 9.0));
        // What an incident held up came all the same.
        let (taint, start_unix_s) = (Some(Taint::Incident), 6_000 + n);
        learner.push(&Second { offered: Some(150.0), taint, start_unix_s, ..of(0.2, 1e3) });
        if n < 2 {
            learner.push(&Second { offered: Some(1e6), taint, ..of(0.2, 1e3) });
        }
        let (offered, answered) = (None, 1e9);
        learner.push(&Second { offered, answered, taint: Some(Taint::CoverageGap), ..of(0.2, 1e3) });
    }
    let back: Learner = serde_json::from_str(&serde_json::to_string(&learner).unwrap()).unwrap();
    for learner in [&learner, &back] {
        near("unused", learner.open_s().unwrap().0, 0.5, 1e-3);
        near("offered", learner.offered_most().unwrap(), 150.0, 0.06);
    }
    assert_eq!(learnt(&vec![Second { open_s: None, ..of(0.2, 0.0) }; 60]).open_s(), None);
    let (unused_s, open_s) = learnt(&vec![of(0.2, 0.4); 60]).open_s().unwrap();
    assert!(unused_s == 0.0 && (open_s - 4e-3).abs() < 1e-9, "{unused_s} {open_s}");
    let noisy: Vec<Second> = (0..60).map(|n| of(0.2, if n % 2 == 0 { 0.0 } else { 0.8 })).collect();
    near("noise is no rest", 1.0 + learnt(&noisy).open_s().unwrap().0, 1.0, 1e-6);
}

#[test]
fn a_load_that_lasts_is_told_by_whole_minutes() {
    let mut learner = Learner::default();
    for n in 0..300 {
        let offered = if n % 60 == 7 { 5_000.0 } else { 100.0 };
        learner.push(&Second {
            start_unix_s: 60_000 + n,
            cells: vec![Cell { bin: 1, seconds: 1.0, completions: 100.0 }],
            in_flight_s: 1.0,
            answered: 100.0,
            offered: Some(offered),
            ..Second::default()
        });
    }
    near("twice what is answered", learner.offered_most().unwrap(), 200.0, 0.05);
    near("the busiest minute", learner.offered_in_a_minute().unwrap(), (59.0 * 100.0 + 5_000.0) / 60.0, 0.05);
}

#[test]
fn a_learner_is_stored_in_20_kb_and_a_damaged_one_is_refused() {
    let mut random = Noise(5);
    let mut learner = Learner::default();
    for at in 0..20_000_u32 {
        let whole = 1.0 + random.even() / 7.0;
        let n = 4000_f64.powf(random.even());
        let cells = (0..80).map(|bin| Cell { bin, seconds: whole / 80.0, completions: 13.7 * random.even() });
        let cells: Vec<Cell> = cells.collect();
        let answered = cells.iter().map(|of| of.completions).sum();
        learner.push(&Second {
            start_unix_s: 1_764_000_000 + u64::from(at),
            cells,
            in_flight_s: n * whole,
            answered,
            cpu_s: Some(answered * 1e-3 * (1.0 + 0.1 * random.even())),
            cpus: Some(if at % 2 == 0 { 0.61 } else { 3.3 }),
            is_quota: true,
            throttled_s: Some(0.0),
            calls: Some(answered * 1.7),
            // As uneven as a listener of no other server is.
            offered: Some(20_000_f64.powf(random.even())),
            open_s: Some(n * whole * 3.1),
            callers: Some((n * whole, n * whole / 2.0)),
            ..Second::default()
        });
    }
    let stored = serde_json::to_string(&learner).unwrap();
    println!(
        "{} bytes stored, {} in memory, {} blocks",
        stored.len(),
        learner.bytes(),
        learner.curve().block_count()
    );
    assert!(stored.len() <= 20_000 && learner.bytes() <= 20_000);
    let back: Learner = serde_json::from_str(&stored).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), stored);
    let (a, b) = (learner.cpu_s_per_request().unwrap(), back.cpu_s_per_request().unwrap());
    near("D, stored", b.value, a.value, 1e-4);
    for (from, to) in [
        ("\"used_ratio\":", "\"used_ratio\":-"),
        ("\"full_s\":", "\"fuller_s\":"),
        ("\"low\":[", "\"low\":[-"),
    ] {
        assert!(stored.contains(from), "{from}");
        let why = serde_json::from_str::<Learner>(&stored.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(why.contains("stored") || why.contains("fuller_s"), "{why}");
    }
}

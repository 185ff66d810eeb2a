//! Curves whose congestion point is known: simulated M/M/c queues, and drawn ones.

use super::*;
use proptest::prelude::*;

/// SplitMix64, as numbers in (0, 1].
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }
}

/// An M/M/c queue; its requests take `service_ms` in the mean.
struct Server {
    workers: u32,
    service_ms: f64,
    queued: u32,
    random: Random,
}

impl Server {
    fn new(workers: u32, service_ms: f64, seed: u64) -> Self {
        Self { workers, service_ms, queued: 0, random: Random(seed) }
    }

    /// `windows` windows of 50 ms at `use_of` of its capacity into the curve.
    fn run(&mut self, curve: &mut Curve, windows: u32, use_of: f64) {
        let arrivals = use_of * f64::from(self.workers) / self.service_ms;
        for _ in 0..windows {
            let (mut left, mut load, mut answered) = (50.0, 0.0, 0.0);
            loop {
                let departures = f64::from(self.queued.min(self.workers)) / self.service_ms;
                let step = -self.random.next().ln() / (arrivals + departures);
                load += f64::from(self.queued) * step.min(left) / 50.0;
                left -= step;
                if left <= 0.0 {
                    break;
                }
                if self.random.next() * (arrivals + departures) <= arrivals {
                    self.queued += 1;
                } else {
                    self.queued -= 1;
                    answered += 1.0;
                }
            }
            curve.observe(load, answered);
        }
    }
}

/// Two minutes of a load that swings, now and then over what the server can do.
fn swinging(server: &mut Server, curve: &mut Curve) {
    for cycle in 0..12 {
        for use_of in [0.3, 0.6, 0.8, 0.5, 0.9] {
            server.run(curve, 32, use_of);
        }
        server.run(curve, 10, if cycle % 2 == 0 { 2.0 } else { 1.2 });
        server.run(curve, 30, 0.2);
    }
}

fn check_known(curve: &Curve, least: f64, most: f64) {
    let got = estimate(curve);
    let knee = got.knee.unwrap_or_else(|| panic!("{got:#?}"));
    assert_eq!(got.state, CongestionState::Known);
    assert!((least..=most).contains(&knee.load), "N* {} of {least} to {most}: {got:#?}", knee.load);
}

#[test]
fn the_congestion_point_of_a_queue_with_c_servers_is_c() {
    // With few servers the mean load of a window lies on both sides of the bend, which rounds it off.
    for (workers, service_ms, most) in [(4, 2.0, 1.8), (16, 5.0, 1.4), (64, 20.0, 1.4), (150, 30.0, 1.4)] {
        for seed in 1..=5 {
            let mut curve = Curve::default();
            swinging(&mut Server::new(workers, service_ms, seed), &mut curve);
            let c = f64::from(workers);
            check_known(&curve, 0.75 * c, most * c);
        }
    }
}

#[test]
fn throughput_at_the_point_is_the_capacity() {
    let mut curve = Curve::default();
    swinging(&mut Server::new(16, 5.0, 7), &mut curve);
    let knee = estimate(&curve).knee.unwrap();
    // 16 workers of 5 ms: 160 answers per 50 ms.
    assert!((135.0..=170.0).contains(&knee.answered), "{knee:?}");
}

#[test]
fn a_server_that_never_was_congested_has_no_point() {
    let mut curve = Curve::default();
    let mut server = Server::new(64, 20.0, 3);
    for _ in 0..20 {
        server.run(&mut curve, 60, 0.3);
        server.run(&mut curve, 60, 0.5);
    }
    let got = estimate(&curve);
    assert_eq!((got.state, got.knee), (CongestionState::StillRising, None), "{got:#?}");
    assert!(got.coverage > 0.99 && got.intervals.len() > 3);
}

#[test]
fn too_little_is_said_to_be_too_little() {
    assert_eq!(estimate(&Curve::default()).state, CongestionState::TooFewWindows);
    let mut curve = Curve::default();
    Server::new(16, 5.0, 1).run(&mut curve, 150, 0.9);
    let got = estimate(&curve);
    assert_eq!((got.state, got.knee), (CongestionState::TooFewWindows, None));
    assert!((0.1..0.15).contains(&got.coverage), "{}", got.coverage);
    // Seconds per request: 50 ms hold no rate.
    let mut slow = Curve::default();
    swinging(&mut Server::new(8, 400.0, 1), &mut slow);
    let got = estimate(&slow);
    assert_eq!((got.state, got.knee), (CongestionState::TooFewAnswers, None), "{got:#?}");
}

/// Windows on a drawn curve, with the chance of Poisson arrivals left out.
fn drawn(throughput: impl Fn(f64) -> f64, loads: impl Iterator<Item = f64>) -> Curve {
    let mut curve = Curve::default();
    loads.for_each(|load| curve.observe(load, throughput(load)));
    curve
}

fn sweep(most: u32) -> impl Iterator<Item = f64> {
    (0..40).flat_map(move |_| (1..=most).map(f64::from))
}

#[test]
fn thrashing_beyond_the_point_does_not_move_it() {
    let bent = |load: f64| if load <= 20.0 { 3.0 * load } else { (60.0 - 0.8 * (load - 20.0)).max(20.0) };
    check_known(&drawn(bent, sweep(60)), 18.0, 22.0);
}

#[test]
fn short_requests_at_low_load_are_not_the_initial_slope() {
    // A tenth of the windows hold static files only: a hundred times the answers per queued request.
    let mixed = |load: f64| if load < 0.2 { 250.0 * load } else { 25.0 + 3.0 * load.min(30.0) };
    let loads = (0..400).map(|i| 0.01 * f64::from(i % 20 + 1)).chain(sweep(60));
    check_known(&drawn(mixed, loads), 26.0, 34.0);
}

#[test]
fn a_freeze_does_not_move_the_point_and_changed_capacity_does() {
    let mut curve = Curve::default();
    swinging(&mut Server::new(32, 10.0, 5), &mut curve);
    let before = estimate(&curve);
    for _ in 0..5 {
        (1..14).for_each(|i| curve.observe(20.0 * f64::from(i), 0.0));
    }
    let (before, after) = (before.knee.unwrap(), estimate(&curve).knee.unwrap());
    assert!((after.load / before.load - 1.0).abs() < 0.1, "{before:?} {after:?}");
    // A quarter of the workers is left: N* follows as what was before fades.
    let mut less = Server::new(8, 10.0, 6);
    for _ in 0..20 {
        swinging(&mut less, &mut curve);
    }
    check_known(&curve, 6.0, 14.0);
}

proptest! {
    #[test]
    fn any_windows_give_a_point_inside_what_was_seen_or_none(
        windows in prop::collection::vec((0.0f64..3000.0, 0u32..500), 0..600),
        repeat in 1usize..4,
    ) {
        let mut curve = Curve::default();
        for _ in 0..repeat {
            windows.iter().for_each(|(load, answered)| curve.observe(*load, f64::from(*answered)));
        }
        let got = estimate(&curve);
        prop_assert_eq!(got.state == CongestionState::Known, got.knee.is_some());
        prop_assert!((0.0..=1.0).contains(&got.coverage));
        prop_assert!(got.intervals.len() <= super::super::curve::BINS_MAX);
        if let Some(knee) = got.knee {
            prop_assert!(knee.load > 0.0 && knee.load <= 3000.0 && knee.answered >= ANSWERS_MIN, "{knee:?}");
        }
    }
}

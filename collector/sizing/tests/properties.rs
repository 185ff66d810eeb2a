//! Whatever is put in: an answer with a class and finite numbers, or a refusal with a sentence.

use proptest::prelude::*;
use tailwater_sizing::allocation::{Chain, Tier, Workers, allocate};
use tailwater_sizing::concurrency::{Advice, Conditions, Deployment, Law, Unsaturated, advise, fit};
use tailwater_sizing::curve::{Block, Cell, Curve, Point, bins};
use tailwater_sizing::evidence::Class;

/// Times and counts from nothing to a day at full speed.
fn cell() -> impl Strategy<Value = Cell> {
    (0_u8..bins::BINS as u8, -6.0_f64..5.0, 0.0_f64..9.0).prop_map(|(bin, seconds, completions)| Cell {
        bin,
        seconds: 10_f64.powf(seconds),
        completions: 10_f64.powf(completions).floor(),
    })
}

fn check(advice: &Advice) {
    if let (Some(class), Some(pool)) = (advice.pool.class(), advice.pool.value()) {
        assert!(pool.at_least >= 1 && pool.advised >= pool.at_least, "{advice:?}");
        assert!(pool.at_most.is_none_or(|most| pool.advised <= most), "{advice:?}");
        assert!(pool.at_most.is_none() || class == Class::Measured, "{advice:?}");
    }
    for told in [&advice.in_flight, &advice.throughput_max] {
        let value = told.value();
        assert!(
            value.is_none_or(|of| [of.value, of.low, of.high].iter().all(|of| of.is_finite())),
            "{advice:?}"
        );
    }
    assert!(advice.expected_loss.value().is_none_or(|loss| (0.0..=1.0).contains(loss)), "{advice:?}");
    assert!(advice.pool.refusal().is_none_or(|why| why.to_string().len() > 10), "{advice:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn advice_is_a_number_with_a_class_or_a_sentence(
        blocks in prop::collection::vec(prop::collection::vec(cell(), 0..12), 0..60),
        saturated_windows in 0_u32..40,
        pool_limit in prop::option::of(0_u32..5000),
        needs in prop::option::of((prop::num::f64::ANY, prop::num::f64::ANY, prop::num::f64::ANY)),
        visits in prop::num::f64::ANY,
        servers in 0_u32..5,
    ) {
        let mut curve = Curve::default();
        blocks.into_iter().filter_map(|cells| Block::new(cells).ok()).for_each(|block| curve.push(&block));
        let unsaturated = needs.map(|(cpus, cpu_s, wait_s)| Unsaturated { cpus, cpu_s, wait_s });
        let conditions = Conditions { saturated_windows, pool_limit, unsaturated, ..Conditions::default() };
        check(&advise(&curve, &conditions, &Deployment::default()));
        check(&advise(&curve, &conditions, &Deployment { servers, visits, gamma: 1.0 }));
    }

    #[test]
    fn a_fit_of_whatever_points_is_a_law_of_finite_times_or_refused(
        points in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY, prop::num::f64::ANY), 0..9),
        sane in prop::collection::vec((1.0_f64..1e4, 1e-3_f64..1e6, 1e-3_f64..1e3), 0..40),
    ) {
        for of in [points, sane] {
            let point = |(in_flight, throughput, error): &(f64, f64, f64)| Point {
                in_flight: *in_flight,
                throughput: *throughput,
                error: *error,
            };
            let Ok(law) = fit(&of.iter().map(point).collect::<Vec<_>>()) else { continue };
            prop_assert!([law.service_s, law.contention_s, law.coherency_s].iter().all(|time_s| time_s.is_finite()));
            if let Ok(best) = law.optimum() {
                prop_assert!(best.in_flight > 0.0 && best.throughput > 0.0 && best.throughput.is_finite());
                let span = law.within(0.02).unwrap();
                prop_assert!(span.low <= best.in_flight * (1.0 + 1e-9) && best.in_flight <= span.high * (1.0 + 1e-9));
            }
        }
    }

    /// Points without noise, of any law and any scale of time.
    #[test]
    fn a_law_comes_back_from_its_points(
        service in -5.0_f64..0.0,
        contention in 0.0_f64..0.9,
        best in 3.0_f64..300.0,
    ) {
        let service_s = 10_f64.powf(service);
        let law = Law::new(service_s, contention * service_s, (1.0 - contention) * service_s / (best * best)).unwrap();
        let point = |n: u32| {
            let in_flight = f64::from(n * n);
            let throughput = law.throughput(in_flight);
            Point { in_flight, throughput, error: 0.01 * throughput }
        };
        let found = fit(&(1..=25).map(point).collect::<Vec<_>>()).unwrap().optimum().unwrap();
        prop_assert!((found.in_flight / best - 1.0).abs() < 1e-6, "{} for {}", found.in_flight, best);
    }

    #[test]
    fn pools_of_whatever_chain_are_whole_and_enough(
        tiers in prop::collection::vec((1_u32..9, 1.0_f64..1e5, 1e-4_f64..10.0, prop::option::of(1e-4_f64..10.0)), 1..6),
        critical in 0_usize..6,
        critical_most in prop::option::of(0.1_f64..1e6),
    ) {
        let tier = |(servers, throughput, response_s, hold_s): &(u32, f64, f64, Option<f64>)| Tier {
            name: String::new(),
            servers: *servers,
            workers: Workers::Threads,
            throughput: *throughput,
            response_s: Some(*response_s),
            hold_s: *hold_s,
        };
        let chain = Chain { tiers: tiers.iter().map(tier).collect(), critical, class: Class::Measured, critical_most };
        let Ok(found) = allocate(&chain) else { return Ok(()) };
        for (at, tier) in found.tiers.iter().enumerate() {
            for pool in tier.threads.value().into_iter().chain(tier.connections.iter().filter_map(|of| of.value())) {
                let together = f64::from(pool.per_server) * f64::from(tier.servers);
                prop_assert!(together >= pool.total * (1.0 - 1e-9) && together < pool.total + f64::from(tier.servers) + 1e-6);
            }
            let entry = tier.connections.as_ref().and_then(|of| of.value()).filter(|_| at + 1 == critical);
            let most = critical_most.unwrap_or(f64::INFINITY);
            prop_assert!(entry.is_none_or(|of| f64::from(of.per_server * tier.servers) <= most && of.total >= found.min_jobs));
        }
    }
}

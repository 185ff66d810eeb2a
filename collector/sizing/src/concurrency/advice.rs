//! What may be said of one server's pool. Owns the conditions of each evidence class and which model answers; knows
//! no configuration key and no other tier.

use super::cost::{self, Best};
use super::fit::{CurveFit, fit_curve};
use super::law::{Deployment, Law};
use super::needs::{LOSS_MAX, Unsaturated};
use crate::curve::{Curve, Demand, Level, Plateau, bins, falls, plateau};
use crate::evidence::{Claim, Class, Estimate, PoolRange, Refusal, positive};
use crate::mva::least_pool;
use serde::Serialize;

/// Expected loss of the pool that is advised: half of what the interval allows, because where it lies is not certain.
const LOSS_ADVISED: f64 = 0.01;
/// Times N_b that must have been seen for both sides of it to be measured.
const SEEN_BEYOND: f64 = 2.0;
/// Known levels that a measured law rests on.
const LEVELS_MIN: usize = 8;
/// R² of held-out blocks from which the law is the server's.
const HOLDOUT_MIN: f64 = 0.9;
/// Part of the replicates that may have no optimum: what a 95 % interval leaves out below.
const FAILED_MAX: f64 = 0.025;
/// Clean windows with full hardware without which a plateau may be chance.
const SATURATED_MIN: u32 = 20;

/// What was seen beside the curve.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conditions {
    /// Clean windows in which the server's CPU used 95 % of its quota or more.
    pub saturated_windows: u32,
    /// The most of its quota that it used in a clean window, 0 to 1.
    pub used_ratio: f64,
    /// The pool's size, if it was read.
    pub pool_limit: Option<u32>,
    /// What a request needs, for a server that was never full; none if not known.
    pub unsaturated: Option<Unsaturated>,
    /// D(N), what a request costs at each load, of a server under a quota; empty if not known, and of one without, whose curve shows all loads.
    pub demands: Vec<Demand>,
    /// Why nothing may be said, if that is known already: another mix, tainted windows, several resources.
    pub refused: Option<Refusal>,
}

/// Which model answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Equation 7.
    Law,
    /// The utilisation law, by what a request costs at each load.
    Utilisation,
    /// The plateau of the curve itself.
    Plateau,
    /// Mean value analysis.
    Mva,
    /// None.
    None,
}

impl Model {
    /// Why this one, in a sentence.
    pub fn why(self) -> &'static str {
        match self {
            Self::Law => {
                "throughput was seen to rise, to bend and to fall: the concurrency law was fitted to it"
            }
            Self::Utilisation => {
                "the hardware was full: what a request costs of it at each load says where throughput is best"
            }
            Self::Plateau => {
                "the hardware was full and more in flight brought nothing: the plateau itself was read"
            }
            Self::Mva => "the hardware was never full: mean value analysis says what would fill it",
            Self::None => "nothing that was seen allows a number",
        }
    }
}

/// The answer for one server's pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// Which model gave it.
    pub model: Model,
    /// Sizes of the pool of each server.
    pub pool: Claim<PoolRange>,
    /// N_b, requests in flight in each server.
    pub in_flight: Claim<Estimate>,
    /// The most requests of the *system* per second that this tier allows.
    pub throughput_max: Claim<Estimate>,
    /// Part of the best throughput that the advised size costs in the mean of what may be true, 0 to 1.
    pub expected_loss: Claim<f64>,
    /// Part of the best throughput that the pool as it is set costs when all of it is in use, 0 to 1, as far as was seen; none: no penalty
    /// is known, or no size.
    pub limit_loss: Option<f64>,
    /// Most requests in flight that were seen with enough answers; 0: none.
    pub seen_to: f64,
}

impl Advice {
    /// Takes every number from it, for this reason.
    pub fn refuse(&mut self, why: &Refusal) {
        self.pool = why.clone().into();
        self.in_flight = why.clone().into();
        self.throughput_max = why.clone().into();
        self.expected_loss = why.clone().into();
        self.limit_loss = None;
    }

    /// Makes sizes of connections of sizes in flight: who holds a connection between calls, for up to `between_s` for each of them, has so many more of
    /// them (equation 6 of A, with that and the call as RTconn). Fewer than are to be in flight are too few all the same; from the upper end on, with those
    /// that may be held, more are in flight. Returns how many of the advised ones are for that; `None`: there is nothing that may lower a
    /// pool, and nothing was done.
    pub fn for_connections(&mut self, between_s: f64, deployment: &Deployment) -> Option<u32> {
        let factor = deployment.factor().ok()?;
        // Calls a second of each server.
        let each = self.throughput_max.value()?.value / factor;
        let Claim::Told { class, value: pool } = &mut self.pool else { return None };
        let held = (each * between_s).ceil();
        if !class.may_lower() || !held.is_finite() || held < 0.0 {
            return None;
        }
        // `as` saturates.
        let held = held as u32;
        pool.advised = pool.advised.saturating_add(held);
        pool.at_most = pool.at_most.map(|most| most.saturating_add(held));
        // What is held is a bound, and not measured.
        *class = class.weaker(Class::Plateau);
        Some(held)
    }

    /// Makes workers of sizes in flight where a worker is a connection's: each answer's connection holds one for `unused_s` more without a request, so by Little's
    /// law so many more are needed as that times the rate (A's λ · hold). At least those for `offered` requests a second, as far as the hardware answers
    /// them; more workers are all in use at the most that it answers. Returns how many of the advised ones are for that; `None`: no size was told, or what is
    /// given is no time or no rate, and nothing was done.
    pub fn for_held_workers(&mut self, unused_s: f64, offered: f64, deployment: &Deployment) -> Option<u32> {
        let factor = deployment.factor().ok()?;
        let each = self.throughput_max.value()?.value / factor;
        let Claim::Told { class, value: pool } = &mut self.pool else { return None };
        if ![unused_s, offered, each].iter().all(|of| of.is_finite() && *of >= 0.0) {
            return None;
        }
        let (least, most) = ((offered.min(each) * unused_s).ceil(), (each * unused_s).ceil());
        // `as` saturates.
        let (least, most) = (least as u32, most as u32);
        pool.at_least = pool.at_least.saturating_add(least);
        pool.advised = pool.advised.saturating_add(least);
        pool.at_most = pool.at_most.map(|at_most| at_most.saturating_add(most));
        // So many workers were all in use when as many requests as that were seen in flight.
        pool.seen_to += f64::from(most);
        // What is held is seen from outside, and not all of it.
        *class = class.weaker(Class::Plateau);
        Some(least)
    }

    /// Tells how many workers are needed at the least where no curve says what should be in flight, because too little was seen that is the server's own: by
    /// Little's law `offered` requests a second have a connection open for `open_s` each, `unused_s` of it without a request. Returns as
    /// [`Advice::for_held_workers`] does.
    pub fn by_open_connections(&mut self, unused_s: f64, open_s: f64, offered: f64) -> Option<u32> {
        let Claim::Refused { refused: Refusal::LittleTraffic { .. } | Refusal::Tainted { .. } } = &self.pool
        else {
            return None;
        };
        let (held, all) = ((offered * unused_s).ceil(), (offered * open_s).ceil());
        if ![unused_s, open_s, offered, held, all].iter().all(|of| of.is_finite() && *of >= 0.0) || all < 1.0
        {
            return None;
        }
        // `as` saturates.
        let least = all as u32;
        let value = PoolRange { advised: least, at_least: least, at_most: None, seen_to: self.seen_to };
        self.pool = Claim::Told { class: Class::Extrapolated, value };
        Some((held as u32).min(least))
    }

    /// Takes from it what would lower a pool: hardware was not seen full, or the pool is not the one that the curve is of.
    pub fn only_raises(&mut self) {
        if let Claim::Told { class, value } = &mut self.pool {
            *class = Class::Extrapolated;
            value.at_most = None;
        }
        for claim in [&mut self.in_flight, &mut self.throughput_max] {
            if let Claim::Told { class, .. } = claim {
                *class = Class::Extrapolated;
            }
        }
        if let Claim::Told { class, .. } = &mut self.expected_loss {
            *class = Class::Extrapolated;
        }
    }
}

/// What may be said of a server's pool, from its own curve. `deployment` is how many such servers there are and how
/// often each request of the system visits them; the pool is that of each server.
///
/// Conditions of the classes (digest of A and B, "Coverage"):
/// * measured: loads up to 2 N_b, 8 known levels, β > 0 at the 97.5 % level, R² of held-out blocks ≥ 0.9. And, which
///   the digest does not ask, throughput falls beyond N_b by the curve itself ([`falls`]): the law has β > 0 for a
///   sharp bend too;
/// * plateau: 20 clean windows with full hardware and a plateau, and no such penalty; or 20 such windows under a quota and what requests
///   cost at three loads or more (the module `cost`: full hardware answers what it has divided by what a request takes of it, which is no
///   less seen than a height);
/// * extrapolated: hardware was never full (a lower bound by MVA), or it was but neither of the above holds (the
///   lower end of a plateau). The digest's table leaves the latter out; it says what is too little, so it may raise;
/// * refused: the reason in `conditions`, a pool that ends the curve, or too little to go by.
pub fn advise(curve: &Curve, conditions: &Conditions, deployment: &Deployment) -> Advice {
    let levels = curve.levels();
    let seen_to =
        levels.iter().filter(|level| level.is_known()).map(|level| level.in_flight).fold(0.0, f64::max);
    if let Some(refused) = &conditions.refused {
        return refusal(refused, seen_to);
    }
    let factor = match deployment.factor() {
        Ok(factor) => factor,
        Err(refused) => return refusal(&refused, seen_to),
    };
    let fit = fit_curve(curve);
    // Without a fit nothing is known to fall.
    let has_penalty = fit.as_ref().is_ok_and(|fit| has_penalty(fit, &levels));
    let limit = conditions.pool_limit;
    let by_law = fit.as_ref().ok().filter(|_| has_penalty).and_then(|fit| measured(fit, limit, factor));
    if let Some(advice) = by_law {
        return advice;
    }
    let is_full = conditions.saturated_windows >= SATURATED_MIN;
    let needs = conditions.unsaturated.as_ref().filter(|_| is_full);
    if let Some(best) = needs.and_then(|needs| cost::best(&conditions.demands, needs, seen_to)) {
        return by_costs(&best, limit, no_best(&fit, has_penalty), factor);
    }
    let flat = plateau(&levels);
    if let (true, Ok(flat)) = (is_full, &flat) {
        let class = if has_penalty { Class::Extrapolated } else { Class::Plateau };
        let best = no_best(&fit, has_penalty);
        return flat_advice(flat, class, best, factor);
    }
    // Full hardware ends the curve, not the pool.
    let reached = |limit: &u32| !is_full && seen_to >= bins::middle_of(bins::bin_of(*limit));
    if let Some(limit) = conditions.pool_limit.filter(reached) {
        return refusal(&Refusal::PoolCapped { limit, seen: seen_to }, seen_to);
    }
    match &conditions.unsaturated {
        Some(needs) if !is_full => unsaturated(needs, conditions.used_ratio, &levels, factor),
        _ if is_full => refusal(&fit.err().or(flat.err()).unwrap_or(Refusal::NoPlateau), seen_to),
        _ => refusal(&Refusal::NotSaturated { used_ratio: conditions.used_ratio }, seen_to),
    }
}

fn refusal(refused: &Refusal, seen_to: f64) -> Advice {
    Advice {
        model: Model::None,
        pool: refused.clone().into(),
        in_flight: refused.clone().into(),
        throughput_max: refused.clone().into(),
        expected_loss: refused.clone().into(),
        limit_loss: None,
        seen_to,
    }
}

/// Whether more in flight costs throughput, by the law and by the curve itself.
fn has_penalty(fit: &CurveFit, levels: &[Level]) -> bool {
    // A law that falls from the first request on has no optimum.
    let best = fit.law.optimum().map_or(1.0, |best| best.in_flight);
    fit.coherency_s.low > 0.0 && falls(levels, best)
}

/// Advice by the law, if there is a penalty and all else that the class asks is there.
fn measured(fit: &CurveFit, limit: Option<u32>, factor: f64) -> Option<Advice> {
    let (in_flight, throughput) = (fit.in_flight?, fit.throughput_max?);
    let holds = fit.known_to >= SEEN_BEYOND * in_flight.value
        && fit.known_levels >= LEVELS_MIN
        && fit.failed_ratio <= FAILED_MAX
        && fit.holdout_r2.is_some_and(|r2| r2 >= HOLDOUT_MIN);
    let span = fit.law.within(LOSS_MAX).ok().filter(|_| holds)?;
    let (at_least, at_most) = span.whole();
    let expected = |size: u32| expected_loss(&fit.replicates, size);
    let best = (in_flight.value.round() as u32).clamp(at_least, at_most);
    let advised = (at_least..best).find(|size| expected(*size) <= LOSS_ADVISED).unwrap_or(best);
    Some(Advice {
        model: Model::Law,
        pool: Claim::Told {
            class: Class::Measured,
            value: PoolRange { advised, at_least, at_most: Some(at_most), seen_to: fit.known_to },
        },
        in_flight: Claim::Told { class: Class::Measured, value: in_flight },
        throughput_max: of_system(Class::Measured, throughput, factor),
        expected_loss: Claim::Told { class: Class::Measured, value: expected(advised) },
        limit_loss: limit.and_then(|limit| fit.law.loss(f64::from(limit).min(fit.known_to)).ok()),
        seen_to: fit.known_to,
    })
}

/// Mean loss over the laws that may be true.
fn expected_loss(laws: &[Law], size: u32) -> f64 {
    let losses = laws.iter().filter_map(|law| law.loss(f64::from(size)).ok());
    let (sum, count) = losses.fold((0.0, 0_u32), |(sum, count), loss| (sum + loss, count + 1));
    if count == 0 { 1.0 } else { sum / f64::from(count) }
}

/// Advice by what requests cost. Which number is best is not told: the range is where costs are about the same.
fn by_costs(best: &Best, limit: Option<u32>, no_best: Refusal, factor: f64) -> Advice {
    let class = Class::Plateau;
    let used = |limit: u32| f64::from(limit).min(best.pool.seen_to);
    Advice {
        model: Model::Utilisation,
        pool: Claim::Told { class, value: best.pool },
        in_flight: no_best.into(),
        throughput_max: of_system(class, best.throughput, factor),
        expected_loss: Claim::Told { class, value: best.loss },
        limit_loss: limit.and_then(|limit| best.loss_at(used(limit))),
        seen_to: best.pool.seen_to,
    }
}

/// Why no number in flight is told as the best where a plateau is.
fn no_best(fit: &Result<CurveFit, Refusal>, has_penalty: bool) -> Refusal {
    match fit {
        Err(refused) => refused.clone(),
        Ok(fit) if has_penalty => Refusal::LawNotHeld {
            known_levels: fit.known_levels,
            known_to: fit.known_to,
            holdout_r2: fit.holdout_r2.unwrap_or(0.0),
        },
        Ok(fit) => Refusal::NoPenalty { beta_s: fit.law.coherency_s },
    }
}

fn flat_advice(flat: &Plateau, class: Class, no_best: Refusal, factor: f64) -> Advice {
    let (value, error) = (flat.throughput, 1.96 * flat.error);
    let throughput = Estimate { value, low: value - error, high: value + error };
    Advice {
        model: Model::Plateau,
        pool: Claim::Told { class, value: PoolRange::from_least(flat.from, flat.to) },
        in_flight: no_best.into(),
        throughput_max: of_system(class, throughput, factor),
        expected_loss: Claim::Told { class, value: LOSS_MAX + flat.from_error },
        limit_loss: None,
        seen_to: flat.to,
    }
}

/// Advice by mean value analysis: quota/D is the most that the tier can do, and what it was seen to do the least.
fn unsaturated(needs: &Unsaturated, used_ratio: f64, levels: &[Level], factor: f64) -> Advice {
    let class = Class::Extrapolated;
    let known = || levels.iter().filter(|level| level.is_known());
    let seen_to = known().map(|level| level.in_flight).fold(0.0, f64::max);
    let pool = match least_pool(needs.cpus, needs.cpu_s, needs.wait_s, seen_to) {
        Err(refused) => return refusal(&refused, seen_to),
        Ok(pool) => pool,
    };
    let value = needs.cpus / needs.cpu_s;
    let low = known().map(Level::throughput).fold(0.0, f64::max).min(value);
    let not_seen = Refusal::NotSaturated { used_ratio };
    Advice {
        model: Model::Mva,
        pool: Claim::Told { class, value: pool },
        in_flight: not_seen.clone().into(),
        throughput_max: of_system(class, Estimate { value, low, high: value }, factor),
        expected_loss: not_seen.into(),
        limit_loss: None,
        seen_to,
    }
}

/// What one server does, as requests of the system.
fn of_system(class: Class, each: Estimate, factor: f64) -> Claim<Estimate> {
    let [value, low, high] = [each.value, each.low, each.high].map(|of| of * factor);
    Claim::of(class, positive("throughput, 1/s,", high).map(|high| Estimate { value, low, high }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::{Block, Cell};
    use crate::evidence::Decision;

    /// Blocks in which every load up to `most` had a second, with the answers that `of` gives; no noise.
    fn curve(of: impl Fn(f64) -> f64, most: u32) -> Curve {
        curve_of(of, most, 60)
    }

    /// The same with so many blocks.
    fn curve_of(of: impl Fn(f64) -> f64, most: u32, blocks: u32) -> Curve {
        let mut curve = Curve::default();
        for _ in 0..blocks {
            let cell = |n: u32| {
                let bin = bins::bin_of(n);
                Cell { bin: bin as u8, seconds: 1.0, completions: of(bins::middle_of(bin)) }
            };
            curve.push(&Block::new((1..=most).map(cell)).unwrap());
        }
        curve
    }

    fn full() -> Conditions {
        Conditions { saturated_windows: 100, used_ratio: 1.0, ..Conditions::default() }
    }

    #[test]
    fn connections_are_as_many_as_are_in_flight_and_what_is_held_between_calls() {
        let range = PoolRange { advised: 15, at_least: 13, at_most: Some(33), seen_to: 60.0 };
        let of = |class, at_most| {
            let throughput = Estimate { value: 500.0, low: 490.0, high: 510.0 };
            Advice {
                pool: Claim::Told { class, value: PoolRange { at_most, ..range } },
                throughput_max: Claim::Told { class, value: throughput },
                ..refusal(&Refusal::MixDrift, 60.0)
            }
        };
        // Two servers with four calls for each request: each answers 1,000 calls a second, and 2.4 connections are held.
        let deployment = Deployment { servers: 2, visits: 4.0, ..Deployment::default() };
        let mut advice = of(Class::Measured, Some(33));
        assert_eq!(advice.for_connections(2.4e-3, &deployment), Some(3));
        let told = Claim::Told {
            class: Class::Plateau,
            value: PoolRange { advised: 18, at_most: Some(36), ..range },
        };
        assert_eq!(advice.pool, told);
        let mut advice = of(Class::Plateau, None);
        assert_eq!(advice.for_connections(0.0, &deployment), Some(0));
        assert_eq!(advice, of(Class::Plateau, None));
        for mut nothing in [of(Class::Extrapolated, None), refusal(&Refusal::MixDrift, 60.0)] {
            let before = nothing.clone();
            assert_eq!(nothing.for_connections(1e-3, &deployment), None);
            assert_eq!(nothing, before);
        }
        assert_eq!(of(Class::Plateau, None).for_connections(f64::NAN, &deployment), None);
    }

    #[test]
    fn workers_that_connections_hold_are_as_many_more_as_arrive_while_one_is_held() {
        let range = PoolRange { advised: 15, at_least: 13, at_most: Some(33), seen_to: 60.0 };
        let throughput = Estimate { value: 500.0, low: 490.0, high: 510.0 };
        let of = |class| Advice {
            pool: Claim::Told { class, value: range },
            throughput_max: Claim::Told { class, value: throughput },
            ..refusal(&Refusal::MixDrift, 60.0)
        };
        let one = Deployment::default();
        for class in [Class::Measured, Class::Plateau, Class::Extrapolated] {
            let mut advice = of(class);
            assert_eq!(advice.for_held_workers(0.4, 300.0, &one), Some(120));
            let value = PoolRange { advised: 135, at_least: 133, at_most: Some(233), seen_to: 260.0 };
            assert_eq!(advice.pool, Claim::Told { class: class.weaker(Class::Plateau), value });
        }
        // Nothing was seen to cost more up to 60 in flight, which hold 260 workers.
        let mut open = of(Class::Plateau);
        open.pool = Claim::Told { class: Class::Plateau, value: PoolRange { at_most: None, ..range } };
        open.for_held_workers(0.4, 300.0, &one);
        assert_eq!(open.pool.decide(Some(250)), Decision::Keep);
        assert_eq!(open.pool.decide(Some(100)), Decision::Raise(135));
        // More than it answers nobody can hold; and without a rest nobody holds one.
        assert_eq!(of(Class::Plateau).for_held_workers(0.4, 9e9, &one), Some(200));
        let mut none = of(Class::Plateau);
        let as_before = none.clone();
        assert_eq!(none.for_held_workers(0.0, 300.0, &one), Some(0));
        assert_eq!(none, as_before);
        for (unused_s, offered) in [(f64::NAN, 1.0), (1.0, f64::NAN), (-1.0, 1.0), (1.0, -1.0)] {
            let mut advice = of(Class::Plateau);
            let told = advice.for_held_workers(unused_s, offered, &one);
            assert!(told.is_none() && advice == of(Class::Plateau), "{unused_s} {offered} {told:?}");
        }
    }

    #[test]
    fn where_no_curve_is_known_open_connections_say_how_many_workers_there_are_at_the_least() {
        let little = Refusal::LittleTraffic { seconds: 20.0, answered: 9e3, needed_s: 60.0, needed: 1e3 };
        let mut advice = refusal(&little, 30.0);
        assert_eq!(advice.by_open_connections(0.2, 0.21, 1_000.0), Some(200));
        let value = PoolRange { advised: 210, at_least: 210, at_most: None, seen_to: 30.0 };
        assert_eq!(advice.pool, Claim::Told { class: Class::Extrapolated, value });
        assert_eq!(
            (advice.pool.decide(Some(150)), advice.pool.decide(Some(400))),
            (Decision::Raise(210), Decision::Keep)
        );
        // What is refused for another reason stays so, and so does everything without a number.
        let event = Refusal::EventDriven { tier: "x".into() };
        assert_eq!(refusal(&event, 30.0).by_open_connections(0.2, 0.21, 1_000.0), None);
        for (unused_s, open_s, offered) in [(f64::NAN, 0.2, 1.0), (0.1, 0.2, f64::INFINITY), (0.0, 0.0, 9.0)]
        {
            assert_eq!(refusal(&little, 30.0).by_open_connections(unused_s, open_s, offered), None);
        }
    }

    const LAW: Law = Law { service_s: 2e-3, contention_s: 5e-4, coherency_s: 6e-6 };

    #[test]
    fn a_curve_that_bends_and_falls_is_measured() {
        let advice = advise(&curve(|n| LAW.throughput(n), 60), &full(), &Deployment::default());
        let best = LAW.optimum().unwrap();
        assert_eq!(advice.model, Model::Law);
        let pool = advice.pool.value().unwrap();
        let (low, high) = LAW.within(LOSS_MAX).unwrap().whole();
        assert_eq!(
            (advice.pool.class(), pool.at_least, pool.at_most),
            (Some(Class::Measured), low, Some(high))
        );
        assert!(pool.advised >= low && f64::from(pool.advised) < best.in_flight, "{pool:?}");
        assert!((advice.in_flight.value().unwrap().value / best.in_flight - 1.0).abs() < 1e-6);
        assert!(*advice.expected_loss.value().unwrap() <= LOSS_ADVISED);
        // Two servers, visited three times.
        let two = Deployment { servers: 2, visits: 3.0, gamma: 1.0 };
        let advice = advise(&curve(|n| LAW.throughput(n), 60), &full(), &two);
        assert!(
            (advice.throughput_max.value().unwrap().value / (best.throughput * 2.0 / 3.0) - 1.0).abs() < 1e-6
        );
        assert_eq!(advice.pool.value(), Some(pool), "of each server, as before");
    }

    #[test]
    fn a_flat_curve_is_a_plateau_if_hardware_was_full() {
        let flat = curve(|n| 100.0 * (n / 10.0).min(1.0), 40);
        let advice = advise(&flat, &full(), &Deployment::default());
        assert_eq!((advice.model, advice.pool.class()), (Model::Plateau, Some(Class::Plateau)), "{advice:?}");
        let pool = advice.pool.value().unwrap();
        assert_eq!((pool.advised, pool.at_most), (10, None), "no penalty was seen");
        assert!(matches!(advice.in_flight.refusal(), Some(Refusal::NoPenalty { .. })));
        // The same by a pool's doing says nothing of what lies beyond.
        // Nor does a pool that is used up where hardware is: too little was seen yet, and that is said.
        let short = curve_of(|n| 100.0 * (n / 10.0).min(1.0), 40, 1);
        let refused = advise(&short, &Conditions { pool_limit: Some(40), ..full() }, &Deployment::default());
        assert!(!matches!(refused.pool.refusal(), None | Some(Refusal::PoolCapped { .. })), "{refused:?}");
        let capped = Conditions { pool_limit: Some(40), used_ratio: 0.5, ..Conditions::default() };
        let refused = advise(&flat, &capped, &Deployment::default());
        assert!(matches!(refused.pool.refusal(), Some(Refusal::PoolCapped { limit: 40, .. })), "{refused:?}");
    }

    #[test]
    fn what_was_never_full_is_a_lower_bound() {
        let rising = curve(|n| 80.0 * n, 4);
        let needs = Unsaturated { cpus: 1.0, cpu_s: 0.952e-3, wait_s: 0.013 };
        let conditions = Conditions { used_ratio: 0.4, unsaturated: Some(needs), ..Conditions::default() };
        let advice = advise(&rising, &conditions, &Deployment::default());
        assert_eq!((advice.model, advice.pool.class()), (Model::Mva, Some(Class::Extrapolated)));
        assert_eq!(advice.pool.value().unwrap().at_least, 19);
        let throughput = advice.throughput_max.value().unwrap();
        assert!((throughput.low - 320.0).abs() < 1e-9 && (throughput.high - 1.0 / 0.952e-3).abs() < 1e-9);
        let unknown = Conditions { unsaturated: None, ..conditions };
        let refused = advise(&rising, &unknown, &Deployment::default());
        assert_eq!(refused.pool.refusal(), Some(&Refusal::NotSaturated { used_ratio: 0.4 }));
    }

    #[test]
    fn a_bend_without_the_loads_beyond_only_raises() {
        let best = LAW.optimum().unwrap().in_flight;
        let advice =
            advise(&curve(|n| LAW.throughput(n), (1.5 * best) as u32), &full(), &Deployment::default());
        assert_eq!(advice.pool.class(), Some(Class::Extrapolated), "{advice:?}");
        assert!(matches!(advice.in_flight.refusal(), Some(Refusal::LawNotHeld { .. })), "{advice:?}");
    }

    #[test]
    fn a_reason_from_outside_refuses_every_number() {
        let conditions = Conditions { refused: Some(Refusal::MixDrift), ..full() };
        let advice = advise(&curve(|n| LAW.throughput(n), 60), &conditions, &Deployment::default());
        assert_eq!(advice.model, Model::None);
        assert_eq!(advice.pool.refusal(), Some(&Refusal::MixDrift));
        assert_eq!(advice.throughput_max.refusal(), Some(&Refusal::MixDrift));
        let no_server = Deployment { servers: 0, ..Deployment::default() };
        let advice = advise(&curve(|n| LAW.throughput(n), 60), &full(), &no_server);
        assert!(matches!(advice.pool.refusal(), Some(Refusal::Input { .. })));
        let nothing = advise(&Curve::default(), &full(), &Deployment::default());
        assert!(matches!(nothing.pool.refusal(), Some(Refusal::TooFewBlocks { .. })), "{nothing:?}");
    }
}

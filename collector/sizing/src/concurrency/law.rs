//! Equation 7: throughput of a server against requests in flight. Owns the law, its optimum and the span around it;
//! knows no measurement.

use crate::evidence::{Refusal, positive};
use serde::{Deserialize, Serialize};

/// S*(N) = S0 + α(N−1) + βN(N−1) (B, equation 5) of one server, with N its own requests in flight. Throughput is
/// N/S*(N): Gunther's universal scalability law with λ = 1/S0, σ = α/S0, κ = β/S0.
///
/// γ is no parameter of it. (γ, S0, α, β) have a free common factor, so no fit at one number of servers can tell γ;
/// B's printed γ of 11.03 and 4.45 are that factor ([`Law::printed`]). What a second server adds is in
/// [`Deployment::gamma`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Law {
    /// S0, time of a request that is alone, s.
    pub service_s: f64,
    /// α, what each other request in flight adds, s.
    pub contention_s: f64,
    /// β, what each pair adds, s.
    pub coherency_s: f64,
}

/// The best number in flight and what it brings, of one server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Optimum {
    /// N_b.
    pub in_flight: f64,
    /// N_b/S*(N_b), answers of this server per second.
    pub throughput: f64,
}

/// Numbers in flight from which little is missing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

impl Span {
    /// Whole numbers inside, or the nearest to its middle if there is none; 1 or more.
    pub fn whole(&self) -> (u32, u32) {
        let (low, high) = (self.low.ceil(), self.high.floor());
        let middle = (self.low * self.high).sqrt().round();
        let (low, high) = if low <= high { (low, high) } else { (middle, middle) };
        // `as` saturates: what is beyond u32 is no pool.
        ((low as u32).max(1), (high as u32).max(1))
    }
}

impl Law {
    /// A law of these times.
    ///
    /// # Errors
    /// [`Refusal::Input`] if S0 is not above 0 or another is not finite. β ≤ 0 and S0 ≤ α are laws without an optimum.
    pub fn new(service_s: f64, contention_s: f64, coherency_s: f64) -> Result<Self, Refusal> {
        positive("S0, s,", service_s)?;
        for (what, value) in [("α, s,", contention_s), ("β, s,", coherency_s)] {
            if !value.is_finite() {
                return Err(Refusal::Input { what, value });
            }
        }
        Ok(Self { service_s, contention_s, coherency_s })
    }

    /// The law that B's Table I prints: its γ divides all three times.
    ///
    /// # Errors
    /// As [`Law::new`], and if γ is not above 0.
    pub fn printed(service_s: f64, contention_s: f64, coherency_s: f64, gamma: f64) -> Result<Self, Refusal> {
        let gamma = positive("γ", gamma)?;
        Self::new(service_s / gamma, contention_s / gamma, coherency_s / gamma)
    }

    /// S*(N), time of a request with N in flight, s (equation 5).
    pub fn response_s(&self, in_flight: f64) -> f64 {
        let others = in_flight - 1.0;
        self.service_s + self.contention_s * others + self.coherency_s * in_flight * others
    }

    /// N/S*(N), answers of one server per second (equations 6 and 7 with K = V = γ = 1).
    pub fn throughput(&self, in_flight: f64) -> f64 {
        in_flight / self.response_s(in_flight)
    }

    /// N_b = √((S0 − α)/β) and equation 8.
    ///
    /// # Errors
    /// [`Refusal::NoPenalty`] if β ≤ 0, [`Refusal::NoGain`] if S0 ≤ α, [`Refusal::NoMaximum`] if a negative α makes
    /// throughput unbounded.
    pub fn optimum(&self) -> Result<Optimum, Refusal> {
        let Self { service_s, contention_s, coherency_s } = *self;
        if coherency_s <= 0.0 {
            return Err(Refusal::NoPenalty { beta_s: coherency_s });
        }
        if service_s <= contention_s {
            return Err(Refusal::NoGain { service_s, contention_s });
        }
        let in_flight = ((service_s - contention_s) / coherency_s).sqrt();
        let time_s = self.least_time_s();
        if time_s <= 0.0 || !in_flight.is_finite() {
            return Err(Refusal::NoMaximum);
        }
        Ok(Optimum { in_flight, throughput: 1.0 / time_s })
    }

    /// The numbers in flight from which at most `loss` (0 to 1) of the best throughput is missing: the roots of
    /// βN² + (α − β − 1/((1 − loss)X))N + S0 − α.
    ///
    /// # Errors
    /// As [`Law::optimum`]; [`Refusal::Input`] if `loss` is none.
    pub fn within(&self, loss: f64) -> Result<Span, Refusal> {
        if !(0.0..1.0).contains(&loss) {
            return Err(Refusal::Input { what: "a loss", value: loss });
        }
        let best = self.optimum()?.in_flight;
        let half = (self.least_time_s() / (1.0 - loss) - self.contention_s + self.coherency_s)
            / self.coherency_s
            / 2.0;
        let high = half + (half * half - best * best).max(0.0).sqrt();
        Ok(Span { low: best * best / high, high })
    }

    /// Part of the best throughput that is missing with so many in flight, 0 to 1.
    ///
    /// # Errors
    /// As [`Law::optimum`].
    pub fn loss(&self, in_flight: f64) -> Result<f64, Refusal> {
        Ok((1.0 - self.throughput(in_flight) / self.optimum()?.throughput).max(0.0))
    }

    /// The least S*(N)/N, s.
    fn least_time_s(&self) -> f64 {
        2.0 * ((self.service_s - self.contention_s) * self.coherency_s).sqrt() + self.contention_s
            - self.coherency_s
    }
}

/// How many servers of one kind there are and what a request of the system asks of them.
///
/// The paper's equation 7 has no V_b, its equations 4 and 8 have: it is here in both.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Deployment {
    /// K.
    pub servers: u32,
    /// V, visits of the tier for each request of the system.
    pub visits: f64,
    /// γ, what K servers do together as a part of K times what one does; 1 unless two numbers of servers were
    /// compared ([`super::gamma`]).
    pub gamma: f64,
}

impl Default for Deployment {
    fn default() -> Self {
        Self { servers: 1, visits: 1.0, gamma: 1.0 }
    }
}

impl Deployment {
    /// γK/V: requests of the system for each answer of one server.
    ///
    /// # Errors
    /// [`Refusal::Input`] if one of the three is not above 0.
    pub fn factor(&self) -> Result<f64, Refusal> {
        let servers = positive("the number of servers", f64::from(self.servers))?;
        let visits = positive("the visit ratio", self.visits)?;
        positive("γK/V", positive("γ", self.gamma)? * servers / visits)
    }

    /// Requests of the system per second with so many in flight in *each* server (equation 7).
    ///
    /// # Errors
    /// As [`Deployment::factor`].
    pub fn throughput(&self, law: &Law, in_flight: f64) -> Result<f64, Refusal> {
        Ok(self.factor()? * law.throughput(in_flight))
    }

    /// The most requests of the system per second (equation 8).
    ///
    /// # Errors
    /// As [`Deployment::factor`] and [`Law::optimum`].
    pub fn throughput_max(&self, law: &Law) -> Result<f64, Refusal> {
        Ok(self.factor()? * law.optimum()?.throughput)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Law = Law { service_s: 2e-3, contention_s: 5e-4, coherency_s: 2e-6 };

    #[test]
    fn nothing_is_better_than_the_optimum() {
        let best = LAW.optimum().unwrap();
        assert!((LAW.throughput(best.in_flight) / best.throughput - 1.0).abs() < 1e-12);
        for n in 1..300 {
            assert!(LAW.throughput(f64::from(n)) <= best.throughput * (1.0 + 1e-12), "{n}");
        }
    }

    #[test]
    fn the_ends_of_a_span_lose_what_they_may() {
        for loss in [0.001, 0.02, 0.05, 0.5] {
            let span = LAW.within(loss).unwrap();
            for end in [span.low, span.high] {
                assert!((LAW.loss(end).unwrap() - loss).abs() < 1e-9, "{loss}: {span:?}");
            }
        }
        let point = LAW.within(0.0).unwrap();
        assert!((point.low - point.high).abs() < 1e-3);
        assert_eq!(Span { low: 4.2, high: 4.8 }.whole(), (4, 4), "no whole number inside");
        assert_eq!(Span { low: 0.1, high: 0.3 }.whole(), (1, 1));
    }

    #[test]
    fn doubled_times_halve_throughput_and_move_nothing() {
        let slow = Law::new(4e-3, 1e-3, 4e-6).unwrap();
        let (before, after) = (LAW.optimum().unwrap(), slow.optimum().unwrap());
        assert!((before.in_flight / after.in_flight - 1.0).abs() < 1e-12);
        assert!((before.throughput / after.throughput - 2.0).abs() < 1e-12);
        // Work that shares nothing and takes twice as long wants more of it side by side.
        let more = Law { service_s: 4e-3, ..LAW }.optimum().unwrap();
        assert!((more.in_flight - (3.5e-3_f64 / 2e-6).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn a_law_without_an_optimum_says_why() {
        let flat = Law { coherency_s: 0.0, ..LAW };
        assert_eq!(flat.optimum(), Err(Refusal::NoPenalty { beta_s: 0.0 }));
        assert_eq!(flat.within(0.02), Err(Refusal::NoPenalty { beta_s: 0.0 }));
        let serial = Law { contention_s: 2e-3, ..LAW };
        assert_eq!(serial.optimum(), Err(Refusal::NoGain { service_s: 2e-3, contention_s: 2e-3 }));
        let unbounded = Law { contention_s: -1.0, ..LAW };
        assert_eq!(unbounded.optimum(), Err(Refusal::NoMaximum));
        assert!(Law::new(0.0, 0.0, 0.0).is_err() && Law::new(1.0, f64::NAN, 0.0).is_err());
        assert!(Law::printed(1.0, 0.0, 0.0, 0.0).is_err());
        assert!(matches!(LAW.within(1.0), Err(Refusal::Input { .. })));
        for wrong in [
            Deployment { servers: 0, ..Deployment::default() },
            Deployment { visits: 0.0, ..Deployment::default() },
            Deployment { gamma: f64::NAN, ..Deployment::default() },
        ] {
            assert!(wrong.throughput_max(&LAW).is_err(), "{wrong:?}");
        }
    }
}

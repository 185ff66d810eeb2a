//! The load generator: plan, report, and the engine between them. A plan fixes every arrival before the first request is sent,
//! and a request's time counts from its planned arrival, so that a slow server cannot make the load go easy on it.

pub mod engine;
mod report;

pub use report::{LoadReport, Outcome, Request, Summary};

use crate::stack::{Stack, Tier};
use std::net::SocketAddrV4;

/// Requests a second of the default load, open loop, a new connection for each.
pub const RATE_PER_SECOND: f64 = 1000.0;
/// Share of requests that write a comment and wait for the disk: 200 a second, so a stalled disk takes all 50 connections of
/// the pool within a quarter of a second, and everybody else then waits for the pool.
pub const COMMENT_RATIO: f64 = 0.2;

/// What to send.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct LoadPlan {
    /// Server.
    pub target: SocketAddrV4,
    /// How requests come to be.
    pub mode: Mode,
    /// How the rate of an open loop changes.
    #[serde(default)]
    pub shape: Shape,
    /// Begin no request after this.
    pub duration_ms: u64,
    /// Begin no more than these.
    pub requests_max: Option<u64>,
    /// Requests on top of the mode's, many at one moment.
    pub bursts: Vec<Burst>,
    /// Use connections again instead of a new one for each request.
    pub keep_alive: bool,
    /// Keep a connection for so long after its answer, and close it then: a client that is slow to close, to a server that would take another request. 0: the server
    /// closes. Nothing where connections are used again.
    #[serde(default)]
    pub close_after_ms: u64,
    /// Share of requests (0 to 1) that also write to the database.
    pub comment_ratio: f64,
    /// Give up on a request after this.
    pub timeout_ms: u64,
    /// Of everything random in it.
    pub seed: u64,
}

/// How requests come to be.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Arrivals that do not care for answers: a Poisson process.
    Open {
        /// Mean rate.
        rate_per_second: f64,
    },
    /// Users who wait for each answer, think, and ask again.
    Closed {
        /// How many.
        users: u32,
        /// Mean of the exponential think time.
        think_ms: u64,
    },
}

/// How the rate of an open loop changes around its mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Not at all.
    #[default]
    Steady,
    /// As a day does, in two minutes: a sine, 30 % up and down.
    Diurnal,
    /// Between 30 % less and 30 % more, for times of an exponential distribution with a mean of two seconds each: a Markov-modulated
    /// Poisson process.
    Modulated,
}

/// How far a shape goes up and down.
const SHAPE_SWING: f64 = 0.3;
/// A day.
const DAY_NS: f64 = 120e9;
/// Mean time of a swing's state.
const SWING_NS: f64 = 2e9;
/// Swings are drawn by themselves.
const SWINGS_STREAM: u64 = 0x5717_4e65;

impl Shape {
    /// The highest rate, as a multiple of the mean.
    #[must_use]
    pub fn highest(self) -> f64 {
        if self == Shape::Steady { 1.0 } else { 1.0 + SHAPE_SWING }
    }

    /// Behind a rate, for people.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Shape::Steady => "",
            Shape::Diurnal => " in the mean of a day of two minutes",
            Shape::Modulated => " in the mean of states of two seconds (MMPP)",
        }
    }

    /// The arrivals that stay, of those of a steady process at the shape's highest rate (P. Lewis, G. Shedler, "Simulation of nonhomogeneous
    /// Poisson processes by thinning", 1979).
    fn thin(self, arrivals: &mut Vec<u64>, seed: u64) {
        let mut random = Random::new(seed ^ SWINGS_STREAM);
        let (mut is_high, mut until_ns) = (random.ratio() < 0.5, 0.0);
        arrivals.retain(|at_ns| {
            let at_ns = *at_ns as f64;
            let ratio = match self {
                Shape::Steady => return true,
                Shape::Diurnal => (at_ns / DAY_NS * std::f64::consts::TAU).sin(),
                Shape::Modulated => {
                    while at_ns >= until_ns {
                        is_high = !is_high;
                        until_ns += random.exponential() * SWING_NS;
                    }
                    if is_high { 1.0 } else { -1.0 }
                }
            };
            random.ratio() * self.highest() < 1.0 + SHAPE_SWING * ratio
        });
    }
}

/// Requests at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Burst {
    /// After the start.
    pub at_ms: u64,
    /// How many.
    pub requests: u32,
}

impl Default for LoadPlan {
    /// The default load: one minute.
    fn default() -> Self {
        Self::new(Mode::Open { rate_per_second: RATE_PER_SECOND }, 60_000)
    }
}

impl LoadPlan {
    /// The default server and mix of requests, with this mode and duration.
    #[must_use]
    pub fn new(mode: Mode, duration_ms: u64) -> Self {
        Self { mode, duration_ms, ..Self::base(Stack::Nx0.listener(Tier::Web)) }
    }

    pub(crate) fn base(target: SocketAddrV4) -> Self {
        Self {
            target,
            mode: Mode::Open { rate_per_second: 0.0 },
            shape: Shape::Steady,
            duration_ms: 0,
            requests_max: None,
            bursts: Vec::new(),
            keep_alive: false,
            close_after_ms: 0,
            comment_ratio: COMMENT_RATIO,
            timeout_ms: 20_000,
            seed: 1,
        }
    }

    /// Every planned arrival, ns after the start, in order. Empty for a closed loop without bursts.
    #[must_use]
    pub fn arrivals_ns(&self) -> Vec<u64> {
        let mut random = Random::new(self.seed);
        let end_ns = self.duration_ms as f64 * 1e6;
        let mut arrivals = Vec::new();
        if let Mode::Open { rate_per_second } = self.mode
            && rate_per_second > 0.0
        {
            let mean_ns = 1e9 / (rate_per_second * self.shape.highest());
            let mut at_ns = random.exponential() * mean_ns;
            while at_ns < end_ns {
                arrivals.push(at_ns as u64);
                at_ns += random.exponential() * mean_ns;
            }
            self.shape.thin(&mut arrivals, self.seed);
        }
        for burst in &self.bursts {
            let at_ns = burst.at_ms * 1_000_000;
            arrivals.extend(std::iter::repeat_n(at_ns, burst.requests as usize));
        }
        arrivals.sort_unstable();
        if let Some(most) = self.requests_max {
            arrivals.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        }
        arrivals
    }
}

/// A small seeded generator (splitmix64): the same plan is the same load.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub fn ratio(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.ratio()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(rate_per_second: f64, duration_ms: u64) -> LoadPlan {
        LoadPlan::new(Mode::Open { rate_per_second }, duration_ms)
    }

    #[test]
    fn arrivals_have_the_planned_rate_and_order_and_repeat() {
        let plan = open(1000.0, 20_000);
        let arrivals = plan.arrivals_ns();
        assert!((19_500..20_500).contains(&arrivals.len()), "{}", arrivals.len());
        assert!(arrivals.is_sorted());
        assert!(arrivals.last().is_some_and(|last| *last < 20_000_000_000));
        assert_eq!(arrivals, plan.arrivals_ns());
        assert_ne!(arrivals, LoadPlan { seed: 2, ..plan }.arrivals_ns());
    }

    #[test]
    fn a_shape_keeps_the_mean_and_changes_the_rate_as_it_says() {
        for shape in [Shape::Diurnal, Shape::Modulated] {
            let plan = LoadPlan { shape, ..open(200.0, 1_200_000) };
            let arrivals = plan.arrivals_ns();
            assert!((228_000..252_000).contains(&arrivals.len()), "{shape:?}: {}", arrivals.len());
            assert_eq!(arrivals, plan.arrivals_ns());
            // In half a second: of a steady load hardly one of ten is further than a fifth from the mean.
            let mut of_half = vec![0_u32; 2_400];
            arrivals.iter().for_each(|at| of_half[(at / 500_000_000) as usize] += 1);
            let far = of_half.iter().filter(|count| !(80..=120).contains(*count)).count();
            assert!(far > 900, "{shape:?}: {far}");
        }
        // A day begins as it ends, is high in its first half, and low in its second.
        let arrivals = LoadPlan { shape: Shape::Diurnal, ..open(1000.0, 120_000) }.arrivals_ns();
        let first = arrivals.iter().filter(|at| **at < 60_000_000_000).count();
        let ratio = first as f64 / arrivals.len() as f64;
        assert!((0.58..0.61).contains(&ratio), "{ratio}");
    }

    #[test]
    fn bursts_come_on_top() {
        let mut plan = open(100.0, 1_000);
        let without = plan.arrivals_ns().len();
        plan.bursts = vec![Burst { at_ms: 500, requests: 300 }];
        let with = plan.arrivals_ns();
        assert_eq!(with.len(), without + 300);
        assert_eq!(with.iter().filter(|at| **at == 500_000_000).count(), 300);
    }
}

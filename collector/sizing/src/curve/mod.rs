//! The learnt curve of one listener as plain data: how long it had each number of requests in flight, and how many it
//! answered meanwhile. Owns bins, blocks, their merging and what a level's throughput and error are; knows no law,
//! and not whose curve it is.
//!
//! Condensed (`condensed`): what a bootstrap needs of blocks takes less than 20 kB.
//!
//! Time in state, not means of windows: a mean over 50 ms puts the knee 20 to 45 % too high (`tests/learnt.rs`),
//! because a window that passes through low numbers in flight answers what higher ones brought.

pub mod bins;
mod block;
mod condensed;
mod demand;
mod dispersion;
mod plateau;
mod trend;

pub use block::{Block, Cell};
pub use condensed::{BLOCK_MIN_S, BLOCKS_MAX, Curve, GROUPS};
pub(crate) use condensed::{Kept, group_of};
pub use demand::{Demand, Overhead, overhead};
pub use plateau::{PLATEAU_PART, Plateau, plateau};
pub use trend::falls;

use serde::{Deserialize, Serialize};

/// Completions from which a level counts as known: its throughput is then within 7 % (one standard error).
pub const KNOWN_COMPLETIONS: f64 = 200.0;

/// One number in flight with all that was seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Requests in flight, N.
    pub in_flight: f64,
    /// Time with that many, T(N), s.
    pub seconds: f64,
    /// Answers meanwhile, C(N).
    pub completions: f64,
    /// How many times more than chance they vary, φ ≥ 1 ([`Curve::dispersion`]).
    pub dispersion: f64,
}

impl Level {
    /// μ(N) = C/T, answers per second.
    pub fn throughput(&self) -> f64 {
        self.completions / self.seconds
    }

    /// Its standard error, √(φC)/T, answers per second: completions in a state are counted, so their variance is their number, and what
    /// the curve varies by beyond that.
    pub fn error(&self) -> f64 {
        (self.dispersion * self.completions).sqrt() / self.seconds
    }

    /// Whether enough was answered there for its throughput to be known ([`KNOWN_COMPLETIONS`]).
    pub fn is_known(&self) -> bool {
        self.completions >= KNOWN_COMPLETIONS
    }
}

/// One measured pair of a curve: what a training run gives, or a level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests in flight, N.
    pub in_flight: f64,
    /// Answers per second, X.
    pub throughput: f64,
    /// Standard error of `throughput`, answers per second.
    pub error: f64,
}

impl From<&Level> for Point {
    fn from(level: &Level) -> Self {
        Self { in_flight: level.in_flight, throughput: level.throughput(), error: level.error() }
    }
}

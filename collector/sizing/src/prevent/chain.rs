//! The chain that is replayed: its tiers, the first attempts at its front, and what held its servers up. Owns what such a chain can be;
//! knows no replay.

use crate::evidence::{Refusal, not_negative, positive};
use std::ops::Range;

/// Length of a window of arrivals and of capacity, s.
pub const WINDOW_S: f64 = 0.05;

/// How the kernel of whoever connects tries again when its SYN was dropped. Of a client nobody knows which one does; what was dropped twice
/// or more often came again sooner or later by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retries {
    /// Linux since 6.5: the wait of 1 s is doubled from the sixth time on only (`tcp_syn_linear_timeouts`, 4 unless it was set).
    Linear,
    /// Linux before, and whoever keeps to RFC 6298: 1 s, and twice as long each time.
    Doubling,
}

impl Retries {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Linear, Self::Doubling];

    /// When it tries, s after the first attempt. After the last it is given up here: kernels go on for a minute, and those who wait do not.
    #[must_use]
    pub const fn times_s(self) -> &'static [f64] {
        match self {
            Self::Linear => &[1.0, 2.0, 3.0, 4.0, 5.0, 7.0],
            Self::Doubling => &[1.0, 3.0, 7.0],
        }
    }
}

/// Most tiers of a chain: no request of a real one waits in more at a time.
const TIERS_MAX: usize = 8;
/// Most servers of a tier that are worth telling apart.
const SERVERS_MAX: usize = 64;

/// How requests come into a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Each on a connection of its own, through an accept queue that holds one more than `backlog` (Linux compares with `>`).
    AcceptQueue {
        /// `min(backlog, somaxconn)` of each server.
        backlog: u32,
    },
    /// On connections that are open already, or that are accepted before a worker is free: they wait without a limit.
    Open,
}

/// One tier: servers that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// As it is told.
    pub name: String,
    /// How requests come in.
    pub entry: Entry,
    /// Requests at a time of each server; `None`: event-driven.
    pub workers: Option<u32>,
    /// Most requests that one server was seen to have at a time, where its limit is not known; `None`: what limits it is modelled.
    pub seen_to: Option<u32>,
    /// Connections of each server to the next tier; `None`: no limit.
    pub pool: Option<u32>,
    /// Part of its requests that call the next tier, 0 to 1.
    pub calls: f64,
    /// CPUs of each server.
    pub cpus: f64,
    /// CPU time of a request, s.
    pub cpu_s: f64,
    /// What else a request takes here without the next tier, s.
    pub wait_s: f64,
    /// What holds a server up altogether also keeps it from accepting connections.
    pub accepts_nothing_when_held: bool,
    /// For each server, how fast it works in each window: 1 as usual, 0 not at all. Beyond its end: 1.
    pub speed: Vec<Vec<f64>>,
}

/// Tiers from the front on, and what comes to the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// Each calls the next.
    pub tiers: Vec<Tier>,
    /// Attempts of clients that come for the first time, for each window.
    pub first_attempts: Vec<u32>,
    /// The windows whose first attempts are judged: those that the overflow was about.
    pub judged: Range<usize>,
    /// When a dropped attempt is made again, s after the first; then it is given up.
    pub retries_s: Vec<f64>,
}

impl Chain {
    /// Whether it can be replayed.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.tiers.is_empty() || self.tiers.len() > TIERS_MAX {
            return Err(Refusal::Input { what: "the number of tiers", value: self.tiers.len() as f64 });
        }
        for tier in &self.tiers {
            positive("CPUs of a server", tier.cpus)?;
            not_negative("CPU time of a request", tier.cpu_s)?;
            not_negative("waiting time of a request", tier.wait_s)?;
            if !(0.0..=1.0).contains(&tier.calls) {
                return Err(Refusal::Input { what: "the part of requests that call", value: tier.calls });
            }
            if tier.workers == Some(0) || tier.pool == Some(0) {
                return Err(Refusal::Input { what: "a pool", value: 0.0 });
            }
            if tier.speed.is_empty() || tier.speed.len() > SERVERS_MAX {
                return Err(Refusal::Input { what: "servers of a tier", value: tier.speed.len() as f64 });
            }
            for speed in tier.speed.iter().flatten() {
                if !(0.0..=1.0).contains(speed) {
                    return Err(Refusal::Input { what: "the speed of a server", value: *speed });
                }
            }
        }
        let rising = self.retries_s.iter().try_fold(0.0, |before, at| (*at > before).then_some(*at));
        if rising.is_none() || self.retries_s.iter().any(|at| !at.is_finite()) {
            return Err(Refusal::Input { what: "the time of a retry", value: f64::NAN });
        }
        if self.judged.is_empty() || self.judged.end > self.first_attempts.len() {
            let value = self.judged.end as f64;
            return Err(Refusal::Input { what: "the end of the windows that are judged", value });
        }
        Ok(())
    }

    /// First attempts in all windows.
    pub(super) fn requests(&self) -> u64 {
        self.first_attempts.iter().map(|n| u64::from(*n)).sum()
    }

    /// How long arrivals are known, s.
    pub(super) fn span_s(&self) -> f64 {
        self.first_attempts.len() as f64 * WINDOW_S
    }
}

//! What one listener did in about a second, as plain data. Owns its fields, their units and what cannot be; knows no listener, no window
//! and nothing of what is learnt.

use crate::concurrency::QUOTA_USED;
use crate::curve::{Cell, bins::middle_of};
use crate::evidence::{Refusal, not_negative, positive};
use serde::{Deserialize, Serialize};

/// Part of its CPUs in use from which a second is full.
const FULL_PART: f64 = 0.95;
/// Part of a second in which a quota throttled, from which [`QUOTA_USED`] of it is full too.
const THROTTLED_PART: f64 = 0.25;

/// Whether CPUs of which so much was used limited who used them, whom a quota held up for that part of the time: a server with 140 requests
/// waiting was throttled in 0.35 to 0.45 of it.
pub fn is_full(used_ratio: f64, throttled_part: f64) -> bool {
    used_ratio >= FULL_PART || (used_ratio >= QUOTA_USED && throttled_part >= THROTTLED_PART)
}

/// Why a second says nothing of the server itself. Whoever makes seconds decides that, by its episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Taint {
    /// The hypervisor took CPUs away.
    Steal,
    /// A neighbour took CPUs away.
    Neighbour,
    /// A disk was short.
    Io,
    /// Memory was short.
    Memory,
    /// The process stood still.
    Stall,
    /// A tier below was the bottleneck.
    Downstream,
    /// Another incident was open.
    Incident,
    /// Part of it was not seen.
    CoverageGap,
    /// Throttled by a quota, though not busy all of it: neither its own speed nor its sustained one. [`super::Learner`] finds these.
    Throttled,
    /// It cannot have been: a time or a number that no server has. [`super::Learner`] finds these.
    Impossible,
}

impl Taint {
    /// Whether what requests cost is the server's own all the same: what they wait for below, or for their turn in a quota, takes no CPU time.
    pub fn keeps_costs(self) -> bool {
        matches!(self, Self::Downstream | Self::Throttled)
    }

    /// As a sentence has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Steal => "stolen CPUs",
            Self::Neighbour => "a neighbour",
            Self::Io => "io",
            Self::Memory => "memory",
            Self::Stall => "stalls",
            Self::Downstream => "a tier below",
            Self::Incident => "an incident",
            Self::CoverageGap => "something that was not measured",
            Self::Throttled => "a quota",
            Self::Impossible => "impossible numbers",
        }
    }
}

/// How a server takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Serving {
    /// A thread or process has one request at a time.
    #[default]
    Workers,
    /// One worker has many at a time: no pool of workers limits it.
    EventDriven,
    /// A connection carries many at a time: what is in flight cannot be counted by connections.
    Multiplexed,
}

/// What one listener did in about a second.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Second {
    /// When it began, Unix s: to say since when there is evidence, and which seconds are of one minute.
    pub start_unix_s: u64,
    /// Time and answers by requests in flight, idle time (bin 0) included. Together they are the second's length.
    pub cells: Vec<Cell>,
    /// ∫N dt, requests · s.
    pub in_flight_s: f64,
    /// Requests answered.
    pub answered: f64,
    /// Requests that were to be served: answers, and attempts that were dropped for the first time, less those that were let in after that, which may be more;
    /// none if not known.
    pub offered: Option<f64>,
    /// ∫N dt of the connections that are open, connections · s; none if not measured.
    pub open_s: Option<f64>,
    /// CPU time of its workload, s; none if not measured.
    pub cpu_s: Option<f64>,
    /// CPUs that it may use, a quota as a fraction; none if not known.
    pub cpus: Option<f64>,
    /// Whether `cpus` is a quota, which throttles, and not what the machine has.
    pub is_quota: bool,
    /// Time for which it was throttled, s; none if not measured.
    pub throttled_s: Option<f64>,
    /// Calls to other tiers that were answered; none if not measured.
    pub calls: Option<f64>,
    /// What its calls took below, as those below count it, s; none if not measured.
    pub below_s: Option<f64>,
    /// ∫N dt of those who call it, requests · s: of the requests that they have themselves, and of their calls to it; none if not measured.
    pub callers: Option<(f64, f64)>,
    /// How it takes requests.
    pub serving: Serving,
    /// Why it is to be left out, if it is.
    pub taint: Option<Taint>,
}

impl Second {
    /// How long it is, s.
    pub fn seconds(&self) -> f64 {
        self.cells.iter().map(|cell| cell.seconds).sum()
    }

    /// Mean requests in flight; 0 in no time.
    pub fn in_flight(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { self.in_flight_s / seconds } else { 0.0 }
    }

    /// Requests in flight as those that were answered had it: a second that is idle but for one burst has a low mean, and all of its work was
    /// done among many. Its mean, if nothing was answered.
    pub(super) fn in_flight_at_work(&self) -> f64 {
        let answered: f64 = self.cells.iter().map(|cell| cell.completions).sum();
        let met = |cell: &Cell| cell.completions * middle_of(usize::from(cell.bin));
        let met: f64 = self.cells.iter().map(met).sum();
        if answered > 0.0 { met / answered } else { self.in_flight() }
    }

    /// Part of its CPUs that it used, if both are known.
    pub fn used_ratio(&self) -> Option<f64> {
        let seconds = self.seconds();
        self.cpu_s.zip(self.cpus).filter(|_| seconds > 0.0).map(|(used, cpus)| used / cpus / seconds)
    }

    /// Whether its CPUs were what limited it ([`is_full`]); `None`: not known.
    pub fn is_full(&self) -> Option<bool> {
        let throttled_s = self.throttled_s.filter(|_| self.is_quota).unwrap_or(0.0);
        Some(is_full(self.used_ratio()?, throttled_s / self.seconds()))
    }

    /// # Errors
    /// [`Refusal::Input`] for the first figure that no server has.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        positive("the length of a second, s,", self.seconds())?;
        not_negative("∫N dt, s,", self.in_flight_s)?;
        not_negative("the number of answers", self.answered)?;
        if let Some(value) = self.offered.filter(|of| !of.is_finite()) {
            return Err(Refusal::Input { what: "the number of requests that were to be served", value });
        }
        self.cpus.map_or(Ok(1.0), |of| positive("the number of CPUs", of))?;
        for (what, value) in [
            ("CPU time, s,", self.cpu_s),
            ("∫N dt of open connections, s,", self.open_s),
            ("throttled time, s,", self.throttled_s),
            ("the number of calls", self.calls),
            ("time below, s,", self.below_s),
            ("∫N dt of callers, s,", self.callers.map(|of| of.0)),
            ("∫N dt of calls, s,", self.callers.map(|of| of.1)),
        ] {
            value.map_or(Ok(0.0), |of| not_negative(what, of))?;
        }
        Ok(())
    }
}

//! What the score is made of: the expectation of a cell, what was told of it, and the verdict on each injection. These shapes, and
//! [`Reported`], are the format of `lab-score.json` (version [`FORMAT`]); fields may be added, never renamed or removed.

use crate::programs::reported::Reported;
use crate::truth::TruthRecord;
use serde::{Deserialize, Serialize};

/// Version of the results' format.
pub const FORMAT: u32 = 1;

/// What a cell must lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// The incident's `kind`.
    pub kind: String,
    /// Host of the root.
    pub host: String,
    /// Workload of the root.
    pub workload: String,
    /// The root's `resource`.
    pub resource: String,
    /// `comm` of the process to blame.
    pub culprit: Option<String>,
    /// Tier whose listener drops; `None`: nothing is dropped.
    pub drops_at: Option<String>,
    /// Drops go on, kept alive by retries, when the root is over.
    #[serde(default)]
    pub sustained: bool,
}

/// A webhook as it came.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// When it had come, Unix ns.
    pub received_unix_ns: u64,
    /// What it said.
    pub reported: Reported,
    /// Ids that it takes the place of.
    pub replaces: Vec<String>,
}

/// An injection with its truth.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Injection {
    /// The cell's name.
    pub cell: String,
    /// The stack's name.
    pub stack: String,
    /// The cause's name.
    pub cause: String,
    /// What the cell must lead to.
    pub expected: Expectation,
    /// What really happened.
    pub truth: TruthRecord,
}

/// Whether the injection did to the servers what its cell plans. Only what went as planned is held against the diagnosis; the rest
/// is listed and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plan {
    /// It did.
    AsPlanned,
    /// Drops were expected and the kernel counted none.
    NotInduced,
    /// Another tier dropped most, or alone.
    DroppedElsewhere,
    /// No drops were expected and the kernel counted some.
    DroppedUnexpectedly,
}

/// The verdict on one injection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `cell#number`.
    pub id: String,
    /// The cell's name.
    pub cell: String,
    /// The stack's name.
    pub stack: String,
    /// The cause's name.
    pub cause: String,
    /// Whether truth and plan agree.
    pub plan: Plan,
    /// What it had to lead to.
    pub expected: Expectation,
    /// The incident that was matched to it.
    pub reported: Option<Reported>,
    /// Ids of further alarming incidents in its time: false alarms, also when they are the same cause told twice.
    pub extra: Vec<String>,
    /// Kind as expected; and told to be kept alive by retries, where it had to be.
    pub kind_right: bool,
    /// Host and workload of the root as expected.
    pub root_right: bool,
    /// Resource of the root as expected.
    pub resource_right: bool,
    /// Culprit as expected, of those that have one.
    pub culprit_right: Option<bool>,
    /// Drops reported at the tier that the truth names, or none if there were none.
    pub drops_right: bool,
    /// Packets dropped, as reported and as the kernel counted.
    pub dropped: [u64; 2],
    /// Connections lost at first, as reported and as the taps saw.
    pub connections: [u64; 2],
    /// Very long requests, as reported and as the load generator saw.
    pub vlrt: [u64; 2],
    /// Onset of the root less begin of the injection, ms.
    pub onset_error_ms: Option<f64>,
    /// First dropped packet to first webhook, ms.
    pub alert_ms: Option<f64>,
    /// First dropped packet to the first webhook with the final root and kind, ms.
    pub verdict_ms: Option<f64>,
    /// The truth behind it.
    pub truth: TruthRecord,
}

/// An alarming incident that belongs to no injection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stray {
    /// The stack's name.
    pub stack: String,
    /// What was said.
    pub reported: Reported,
    /// Packets that the kernel did drop in its time: above zero the machine itself stalled, and the alarm is right.
    pub dropped: u64,
}

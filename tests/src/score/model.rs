//! What the score is made of: the expectation of a cell, what was reported, and the verdict on each injection. These shapes are the
//! format of `lab-score.json` (version [`FORMAT`]); fields may be added, never renamed or removed.

use crate::truth::TruthRecord;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// What an incident says, as far as it is scored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    /// Its id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// `critical`, `warning` or `info`.
    pub severity: String,
    /// Its confidence, 0 to 1.
    pub confidence: f64,
    /// First sign, Unix ns.
    pub start_unix_ns: u64,
    /// End of what belongs to it, Unix ns.
    pub end_unix_ns: u64,
    /// Host of the root.
    pub host: String,
    /// Workload of the root.
    pub workload: String,
    /// Resource of the root.
    pub resource: String,
    /// Onset of the root, Unix ns.
    pub root_start_unix_ns: u64,
    /// End of the root, Unix ns.
    pub root_end_unix_ns: u64,
    /// First culprit's `comm`.
    pub culprit: Option<String>,
    /// Hosts whose listeners dropped, in its order.
    pub drop_hosts: Vec<String>,
    /// Packets dropped, all listeners.
    pub dropped: u64,
    /// Connections behind them.
    pub connections: u64,
    /// When the first drop was, Unix ns.
    pub first_drop_unix_ns: Option<u64>,
    /// Requests that it says became very long.
    pub vlrt: u64,
    /// Whether it says that retries keep it alive.
    #[serde(default)]
    pub sustained: bool,
    /// Its sentence.
    pub title: String,
}

impl Reported {
    /// From the JSON of `tailwater incidents --json`, the API, a webhook or a replay. Unknown fields do not matter; of a missing one
    /// the value is empty, and the verdict will say so.
    #[must_use]
    pub fn of(incident: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let root = &incident["root"];
        let drops: Vec<&Value> = incident["drops"].as_array().into_iter().flatten().collect();
        let sum = |key: &str| drops.iter().map(|drop| number(&drop[key])).sum();
        Self {
            id: text(&incident["id"]),
            kind: text(&incident["kind"]),
            severity: text(&incident["severity"]),
            confidence: incident["confidence"].as_f64().unwrap_or(0.0),
            start_unix_ns: number(&incident["start_unix_ns"]),
            end_unix_ns: number(&incident["end_unix_ns"]),
            host: text(&root["host"]),
            workload: text(&root["workload"]),
            resource: text(&root["resource"]),
            root_start_unix_ns: number(&root["start_unix_ns"]),
            root_end_unix_ns: number(&root["end_unix_ns"]),
            culprit: root["culprits"][0]["comm"].as_str().map(str::to_owned),
            drop_hosts: drops.iter().map(|drop| text(&drop["host"])).collect(),
            dropped: sum("count"),
            connections: sum("connections"),
            first_drop_unix_ns: drops.iter().map(|drop| number(&drop["first_unix_ns"])).min(),
            vlrt: number(&incident["vlrt"]["expected"]),
            sustained: incident["sustained"]["by"] == "retries",
            title: text(&incident["title"]),
        }
    }

    /// Whether it would wake somebody.
    #[must_use]
    pub fn is_alarming(&self) -> bool {
        self.severity == "critical" || self.severity == "warning"
    }
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

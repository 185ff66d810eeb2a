//! What would have prevented an incident, as people, pages and programs hold it: field names are stable within v1, fields may be added.
//! Owns the JSON shape; knows nothing of how it is found.

use crate::advice::Reason;
use crate::window::Host;
use serde::{Deserialize, Serialize};

/// The answer for one incident, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreventionView {
    /// The incident.
    pub id: String,
    /// Its version that this is about.
    pub version: u64,
    /// Why there is no answer, for programs; `null`: there is one.
    pub refused: Option<Reason>,
    /// Why, as a sentence; `null`: there is one.
    pub why: Option<String>,
    /// Where there is no answer: the accept queue that would have held all that came. `null`: there is an answer, or that is not known either.
    #[serde(default)]
    pub queue: Option<HoldingQueue>,
    /// `null`: there is none.
    pub answer: Option<PreventionAnswer>,
}

/// An accept queue that would have dropped nobody, by what came and what was accepted, window by window. No model: how long they would have
/// waited in it, and what would have come of the tiers behind it, is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingQueue {
    /// `tomcat@app-1`.
    pub tier: String,
    /// Host.
    pub host: Host,
    /// Name of the workload.
    pub workload: String,
    /// `address:port`.
    pub listener: String,
    /// Its limit as it is.
    pub backlog: u32,
    /// Most connections that would have waited at a time.
    pub held: u64,
    /// A limit that holds a fifth more.
    pub enough: u32,
    /// All of it as a line.
    pub sentence: String,
}

/// The incident's first attempts, replayed with other sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreventionAnswer {
    /// Begin of the windows that are replayed.
    pub start_unix_ns: u64,
    /// Their end.
    pub end_unix_ns: u64,
    /// Begin of the windows whose first attempts the response times and goodput are of.
    pub judged_start_unix_ns: u64,
    /// Their end.
    pub judged_end_unix_ns: u64,
    /// First attempts in those.
    pub first_attempts: u64,
    /// Nothing is called prevention whose p99 is longer, s.
    pub p99_wanted_s: f64,
    /// The tiers of the model, from the one that dropped to the last that is known below it.
    pub tiers: Vec<ModelTier>,
    /// Which of them dropped most, by its place in `tiers`.
    pub overflowed: usize,
    /// How well the model with nothing changed gives what was seen.
    pub reproduction: Reproduction,
    /// With nothing changed.
    pub unchanged: Replayed,
    /// So many times the first attempts are what the candidates have to stand: more than 1 where the model with nothing changed drops less
    /// than was seen, so that it drops as much.
    pub attempts_factor: f64,
    /// With nothing changed, under so many: what the candidates are held against.
    pub harder: Replayed,
    /// How clients try a dropped connection again, of the two ways the one whose drops are nearer to those that were seen: `linear` (1, 2, 3, 4,
    /// 5 and 7 s after the first attempt: Linux since 6.5) or `doubling` (1, 3 and 7 s: RFC 6298). `null`: both drop the same.
    #[serde(default)]
    pub retries: Option<String>,
    /// What is called prevention stands so many times the first attempts on top of that, and a stall so many times as long.
    #[serde(default)]
    pub margin: f64,
    /// What was tried, the most helpful first.
    pub candidates: Vec<Candidate>,
    /// What was not tried, because the time for an answer was up.
    pub untried: Vec<String>,
    /// What the model takes for granted of this incident, in sentences.
    pub assumed: Vec<String>,
}

/// A tier as it is modelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelTier {
    /// `tomcat@app-1`.
    pub tier: String,
    /// Host.
    pub host: Host,
    /// Name of the workload.
    pub workload: String,
    /// `address:port`.
    pub listener: String,
    /// Limit of its accept queue; `null`: requests come on connections that are open already.
    pub backlog: Option<u32>,
    /// Requests at a time; `null`: none is modelled.
    pub workers: Option<u32>,
    /// Most requests that it was seen to have at a time, where its limit is not known; `null`: it is.
    pub seen_to: Option<u32>,
    /// Connections to the next tier; `null`: no limit is modelled.
    pub pool: Option<u32>,
    /// CPUs that it may use.
    pub cpus: f64,
    /// CPU time of a request, s.
    pub cpu_s: f64,
    /// What else a request takes in it, without the next tier, s.
    pub wait_s: f64,
    /// Part of its requests that call the next tier.
    pub calls: f64,
    /// Packets that it dropped in the windows that are replayed.
    pub dropped: u64,
}

/// Predicted against seen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// Packets that the model drops.
    pub predicted: u64,
    /// Packets that were dropped.
    pub seen: u64,
    /// Predicted for each one seen: 1 is exact. Below a half or above two there is no answer.
    pub ratio: f64,
}

/// What came of one replay. Times are from a client's first SYN to the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// Packets dropped, by the order of `tiers`.
    pub drops: Vec<u64>,
    /// First attempts that were never answered.
    pub given_up: u64,
    /// Median, s; `null`: those are never answered.
    pub p50_s: Option<f64>,
    /// 99 % quantile, s; `null`: more are never answered.
    pub p99_s: Option<f64>,
    /// The longest, s; `null`: one is never answered.
    pub max_s: Option<f64>,
    /// Answers in time.
    pub goodput: Vec<Goodput>,
    /// Most requests that waited for a worker, by the order of `tiers`.
    pub deepest: Vec<u32>,
    /// Most requests at a time, waiting or not, by the order of `tiers`.
    pub fullest: Vec<u32>,
    /// Which tier dropped first, by its place in `tiers`; `null`: none did.
    pub first_overflow: Option<usize>,
}

impl Replayed {
    /// Packets that all tiers dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}

/// Answers within a bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Goodput {
    /// What is in time, s.
    pub within_s: f64,
    /// Answers in time per second.
    pub per_second: f64,
    /// Part of the first attempts, 0 to 1.
    pub ratio: f64,
}

/// Changes, and what comes of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// All at once.
    pub changes: Vec<Change>,
    /// The same in words.
    pub change: String,
    /// `prevents`, `slow` (no drops, and not in time), `beyond_seen` (a tier of which no limit is known would have more at a time than it was
    /// ever seen to have), `tight` (no drops, but drops with the margin), `moves` (the queue only overflows elsewhere), `lessens` or `nothing`.
    pub effect: String,
    /// The tier that overflows in its place, by its place in `tiers`.
    pub moves_to: Option<usize>,
    /// The tier that would have more than it was seen to have, by its place in `tiers`.
    pub beyond_at: Option<usize>,
    /// The tier that drops most with the margin, by its place in `tiers`, where none does without.
    #[serde(default)]
    pub tight_at: Option<usize>,
    /// In numbers.
    pub replayed: Replayed,
    /// With the margin, the worse of more attempts and a longer stall; `null`: not worked out.
    #[serde(default)]
    pub with_margin: Option<Replayed>,
    /// All of it as a line.
    pub sentence: String,
}

/// One size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// `backlog`, `workers`, `pool`, `servers` or `event_driven`.
    pub what: String,
    /// Whose, by its place in `tiers`.
    pub tier: usize,
    /// As it is; `null`: not a number.
    pub from: Option<u32>,
    /// As it would be; `null`: not a number.
    pub to: Option<u32>,
}

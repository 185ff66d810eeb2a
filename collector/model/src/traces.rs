//! The slowest traces that others' exporters told of while an incident lasted, as people, pages and programs hold them: field names are stable
//! within v1, fields may be added. Owns the JSON shape; knows nothing of how they are received or chosen.

use serde::{Deserialize, Serialize};

/// A span that was slow or failed, as a way to its trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowTrace {
    /// 32 hexadecimal digits, as Jaeger and Tempo show them.
    pub trace_id: String,
    /// 16 hexadecimal digits: the span of this service in that trace.
    pub span_id: String,
    /// Its name, such as `GET /cart`.
    pub name: String,
    /// `host.name` of whoever sent it, as it says; empty: it does not.
    pub host: String,
    /// Begin, by that host's own clock.
    pub start_unix_ns: u64,
    /// End, by the same clock.
    pub end_unix_ns: u64,
    /// The span says that it failed.
    pub error: bool,
    /// Where it can be opened, by the template `traces.link`; `null`: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl SlowTrace {
    /// How long the span took.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_unix_ns.saturating_sub(self.start_unix_ns)
    }
}

/// Those of one service, the slowest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTraces {
    /// `service.name`.
    pub service: String,
    /// The same name, where a tier or workload on the incident's way is called exactly so; `null`: none is, and nothing is guessed.
    pub tier: Option<String>,
    /// One row for each trace.
    pub traces: Vec<SlowTrace>,
}

/// Those of an incident as they are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentTraces {
    /// The incident's id.
    pub incident: String,
    /// It was looked for them once more after exporters had the time to send what they held back.
    pub settled: bool,
    /// By service: those of the incident's way first, in its order, then the others, the slowest first.
    pub services: Vec<ServiceTraces>,
}

/// Whether there are traces, and whether more may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TracesState {
    /// Nobody may send spans: `[traces]` is not configured.
    Off,
    /// The incident is open, or ended a moment ago: more may come.
    Gathering,
    /// These are all.
    Settled,
    /// Nobody looked: spans were not taken at that time, or the collector ended before it could.
    Missed,
}

/// The answer for one incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracesView {
    /// The incident.
    pub id: String,
    /// Whether these are all.
    pub state: TracesState,
    /// Shorter spans without an error are not kept, ms; `null`: `[traces]` is not configured.
    pub slower_than_ms: Option<u64>,
    /// By service.
    pub services: Vec<ServiceTraces>,
}

//! What the collector answers, as far as the terminal view reads it. Fields may be added within v1, so whatever is not needed is not
//! named; what an older collector leaves out has a default.

use serde::Deserialize;
use std::collections::BTreeMap;
use tailwater_model::Incident;

/// One metric over the last windows. `None`: missing or not covered, which is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
pub(crate) struct Recent {
    pub(crate) max: Option<f64>,
    pub(crate) sum: Option<f64>,
}

/// A workload in the last moments.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct Now {
    pub(crate) host: String,
    /// Its name; `None` would be the host itself.
    pub(crate) workload: Option<String>,
    pub(crate) metrics: BTreeMap<String, Recent>,
    /// Per window: tasks that waited for CPU, disk or memory.
    #[serde(default)]
    pub(crate) saturation: Vec<Option<f64>>,
}

impl Now {
    /// Worst window; `None`: not known.
    pub(crate) fn worst(&self, metric: &str) -> Option<f64> {
        self.metrics.get(metric)?.max
    }
}

/// `GET /api/v1/now`
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct NowAnswer {
    pub(crate) now_unix_ns: u64,
    /// It is the end of a recording.
    #[serde(default)]
    pub(crate) recorded: bool,
    pub(crate) workloads: Vec<Now>,
}

/// One signal of a host.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct Coverage {
    pub(crate) signal: String,
    pub(crate) covered: bool,
    /// It is polled: what only hooks tell is not there.
    #[serde(default)]
    pub(crate) sampled: bool,
    pub(crate) reason: String,
}

/// Of `GET /api/v1/agents`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct Agent {
    pub(crate) host: String,
    pub(crate) connected: bool,
    /// When it connected or went.
    pub(crate) since_unix_ns: u64,
    #[serde(default)]
    pub(crate) cpus: u32,
    #[serde(default)]
    pub(crate) coverage: Vec<Coverage>,
    #[serde(default)]
    pub(crate) newest_window_end_unix_ns: u64,
    #[serde(default)]
    pub(crate) shed_signals: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct Agents {
    pub(crate) agents: Vec<Agent>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Incidents {
    pub(crate) incidents: Vec<Incident>,
}

/// Several windows as one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
pub(crate) struct Point {
    pub(crate) start_unix_ns: u64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    pub(crate) windows: u32,
}

/// `GET /api/v1/series`
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct SeriesAnswer {
    pub(crate) points: Vec<Point>,
}

/// Where a part of the answers ends, ms.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
pub(crate) struct Quantile {
    pub(crate) ms: Option<f64>,
    /// It is this or longer, and how much was not counted. With neither there was no answer.
    pub(crate) at_least_ms: Option<f64>,
}

/// Response times in some windows.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
pub(crate) struct Answered {
    pub(crate) start_unix_ns: u64,
    pub(crate) windows: u32,
    pub(crate) p99: Quantile,
}

impl Answered {
    /// The 99th percentile as a value; where only its bound is known, a hair above that.
    pub(crate) fn p99(&self) -> Option<Point> {
        let ms = self.p99.ms.or_else(|| self.p99.at_least_ms.map(f64::next_up))?;
        Some(Point { start_unix_ns: self.start_unix_ns, max: ms, mean: ms, windows: self.windows })
    }
}

/// `GET /api/v1/responses`
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct ResponsesAnswer {
    pub(crate) points: Vec<Answered>,
}

/// A workload of a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Key {
    pub(crate) host: String,
    /// Its name; empty: not known whose.
    pub(crate) workload: String,
}

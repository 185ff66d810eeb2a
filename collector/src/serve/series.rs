//! `/api/v1/series`: metrics of a host over time, from memory or from disk. Owns how much of that one answer holds, and writes it on the thread that
//! reads it: everything at once is half a million points, which are some dozens of megabytes of JSON and hundreds as values of one.

use super::{App, Problem};
use crate::live::metric::{self, METRICS};
use crate::live::series::{Point, Series};
use crate::live::view::Query as SeriesQuery;
use crate::lock::lock;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tailwater_model::window::{WINDOW_NS, WindowIndex};

/// Windows of one question about the past: a day.
const PAST_WINDOWS_MAX: u64 = 24 * 3600 * 20;
/// Points of a metric without a wish.
const POINTS: usize = 2000;
/// And at most.
const POINTS_MAX: usize = 20_000;

/// Points of each metric that an answer to this wish may have.
pub(super) fn points_max(wished: Option<usize>) -> usize {
    wished.unwrap_or(POINTS).clamp(1, POINTS_MAX)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    host: String,
    workload: Option<String>,
    listener: Option<String>,
    /// One, or several with commas between them.
    metric: String,
    start: Option<u64>,
    end: Option<u64>,
    max_points: Option<usize>,
}

/// A question that can be answered.
struct Asked {
    q: Parameters,
    /// As the table names them.
    metrics: Vec<&'static str>,
    /// The oldest and the newest window that there is.
    there: (WindowIndex, WindowIndex),
}

#[derive(Serialize)]
struct Answer<'a> {
    host: &'a str,
    workload: Option<&'a str>,
    metric: &'a str,
    window_ns: u64,
    oldest_unix_ns: u64,
    newest_unix_ns: u64,
    /// Of the one metric that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    points: Option<&'a [Point]>,
    /// Of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<BTreeMap<&'static str, &'a [Point]>>,
}

/// An answer as JSON.
struct Written {
    json: Bytes,
    /// There is no point in it.
    empty: bool,
}

impl Asked {
    fn queries(&self) -> Vec<SeriesQuery<'_>> {
        let (workload, listener) = (self.q.workload.as_deref(), self.q.listener.as_deref());
        let of = |metric| SeriesQuery { host: &self.q.host, workload, listener, metric };
        self.metrics.iter().copied().map(of).collect()
    }

    /// `points` has those of each metric.
    fn written(&self, points: &[Vec<Point>]) -> Result<Written, Problem> {
        let (one, several) = match points {
            [one] => (Some(one.as_slice()), None),
            several => {
                let named = self.metrics.iter().copied().zip(several.iter().map(Vec::as_slice));
                (None, Some(named.collect()))
            }
        };
        let answer = Answer {
            host: &self.q.host,
            workload: self.q.workload.as_deref(),
            metric: &self.q.metric,
            window_ns: WINDOW_NS,
            oldest_unix_ns: self.there.0.start_unix_ns(),
            newest_unix_ns: self.there.1.start_unix_ns().saturating_add(WINDOW_NS),
            points: one,
            series: several,
        };
        let json = serde_json::to_vec(&answer).map_err(|e| {
            Problem(StatusCode::INTERNAL_SERVER_ERROR, format!("these series cannot be written as JSON: {e}"))
        })?;
        // Without the room that it grew into: it is kept for as long as somebody takes to read it.
        let json = Bytes::from(json.into_boxed_slice());
        Ok(Written { json, empty: points.iter().all(Vec::is_empty) })
    }
}

/// The metrics that are asked for, as the table names them: those names live as long as an answer takes.
fn known(names: &str) -> Result<Vec<&'static str>, Problem> {
    let mut metrics: Vec<&'static str> = Vec::new();
    for asked in names.split(',') {
        let Some(metric) = metric::find(asked) else {
            let known: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
            let text = format!("metric \"{asked}\" is not one of {}", known.join(", "));
            return Err(Problem(StatusCode::BAD_REQUEST, text));
        };
        if !metrics.contains(&metric.name) {
            metrics.push(metric.name);
        }
    }
    Ok(metrics)
}

pub(super) async fn series(State(app): State<App>, Query(q): Query<Parameters>) -> Result<Response, Problem> {
    let metrics = known(&q.metric)?;
    let memory = lock(&app.shown.series).span(&q.host);
    let disk = app.shown.past.span();
    let host = q.host.clone();
    let none =
        || Problem(StatusCode::NOT_FOUND, format!("no windows of host \"{host}\"; see /api/v1/inventory"));
    // Moments, not windows, from the outside; what is not there is left out. Without a start: what is in memory.
    let there = match (disk, memory) {
        (Some(disk), Some(memory)) => (disk.0.min(memory.0), disk.1.max(memory.1)),
        (one, other) => one.or(other).ok_or_else(none)?,
    };
    let first = q.start.map_or(memory.unwrap_or(there).0, WindowIndex::at).max(there.0);
    let last = q.end.map_or(there.1, WindowIndex::at).min(there.1);
    let max_points = points_max(q.max_points);
    let on_disk = memory.is_none_or(|(oldest, _)| first < oldest) && app.shown.past.reaches(first, last);
    let asked = Asked { q, metrics, there };
    let answer = if first > last {
        asked.written(&vec![Vec::new(); asked.metrics.len()])?
    } else if on_disk {
        if last.0 - first.0 > PAST_WINDOWS_MAX {
            return Err(Problem(StatusCode::BAD_REQUEST, "start to end must be a day at most".into()));
        }
        app.past(move |past| asked.written(&past.points(&asked.queries(), first, last, max_points))).await??
    } else {
        let read = move |series: &std::sync::Mutex<Series>| {
            asked.written(&Series::points(series, &asked.queries(), first, last, max_points))
        };
        app.memory(read).await??
    };
    if memory.is_none() && answer.empty {
        let host = host.clone();
        if !app.past(move |past| past.knows(&host)).await? {
            return Err(none());
        }
    }
    Ok(([(CONTENT_TYPE, "application/json")], answer.json).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asked(metric: &str) -> Asked {
        let q = Parameters {
            host: "web-1".into(),
            workload: None,
            listener: Some("10.0.0.1:80".into()),
            metric: metric.into(),
            start: None,
            end: None,
            max_points: None,
        };
        let metrics = known(metric).unwrap_or_default();
        Asked { q, metrics, there: (WindowIndex(100), WindowIndex(199)) }
    }

    #[test]
    fn an_answer_has_the_points_of_one_metric_or_of_several_by_name() {
        let point = |max| Point { start_unix_ns: 7, min: 0.0, max, mean: f64::NAN, windows: 2 };
        let told = |max: f64| json!({"start_unix_ns": 7, "min": 0.0, "max": max, "mean": null, "windows": 2});
        let written = |metric: &str, points: &[Vec<Point>]| {
            let Ok(written) = asked(metric).written(points) else { panic!("it is written") };
            (serde_json::from_slice::<Value>(&written.json).unwrap(), written.empty)
        };
        let head = json!({
            "host": "web-1", "workload": null, "window_ns": WINDOW_NS,
            "oldest_unix_ns": 100 * WINDOW_NS, "newest_unix_ns": 200 * WINDOW_NS,
        });
        let with = |more: Value| {
            let mut all = head.clone();
            for (name, value) in more.as_object().unwrap() {
                all[name] = value.clone();
            }
            all
        };
        let one = with(json!({ "metric": "drops", "points": [told(5.0)] }));
        assert_eq!(written("drops", &[vec![point(5.0)]]), (one, false));
        // A metric that was asked for twice is there once.
        let (names, points) = ("drops,cpu_busy_ratio,drops", [vec![point(5.0), point(6.0)], vec![]]);
        let series = json!({ "drops": [told(5.0), told(6.0)], "cpu_busy_ratio": [] });
        assert_eq!(written(names, &points), (with(json!({ "metric": names, "series": series })), false));
        assert!(written(names, &[vec![], vec![]]).1);
    }
}

//! What the page asks beside incidents and series: a host by name, and what every tier does right now.

use super::{App, Problem, lock};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use tailwater_analysis::model::WINDOW_NS;

/// Longest look back, seconds.
const SECONDS_MAX: u64 = 60;
/// Without a wish: what an eye takes in.
const SECONDS: u64 = 5;
/// What agents and the way take before a window is here; the look back ends this long before now.
const ARRIVES_WITHIN_NS: u64 = 250_000_000;

pub(super) async fn host(
    State(app): State<App>,
    Path(host): Path<String>,
) -> Result<Json<crate::series::inventory::HostInventory>, Problem> {
    lock(&app.shown.series).inventory(&host).map(Json).ok_or_else(|| {
        Problem(StatusCode::NOT_FOUND, format!("no windows of host \"{host}\"; see /api/v1/agents"))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NowQuery {
    seconds: Option<u64>,
    /// Unix ns; without: now.
    at: Option<u64>,
}

#[derive(Serialize)]
struct NowAnswer {
    now_unix_ns: u64,
    window_ns: u64,
    windows: u64,
    hosts: Vec<crate::series::inventory::Now>,
    workloads: Vec<crate::series::inventory::Now>,
}

/// Hosts, and the workloads of the topology.
pub(super) async fn now(State(app): State<App>, Query(q): Query<NowQuery>) -> Response {
    let windows = q.seconds.unwrap_or(SECONDS).clamp(1, SECONDS_MAX) * 1_000_000_000 / WINDOW_NS;
    let now_unix_ns = app.clock.unix_ns();
    let until = q.at.unwrap_or_else(|| now_unix_ns.saturating_sub(ARRIVES_WITHIN_NS));
    let topology = Arc::clone(&lock(&app.shown.topology));
    let tiers: BTreeSet<(&str, &str)> =
        topology.nodes.iter().map(|n| (n.host.as_str(), n.workload.as_str())).collect();
    let series = lock(&app.shown.series);
    let answer = NowAnswer {
        now_unix_ns,
        window_ns: WINDOW_NS,
        windows,
        hosts: series.hosts().map(|host| series.now(host, None, until, windows)).collect(),
        workloads: tiers
            .into_iter()
            .map(|(host, workload)| series.now(host, Some(workload), until, windows))
            .collect(),
    };
    drop(series);
    Json(answer).into_response()
}

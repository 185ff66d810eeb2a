//! What there is beside incidents and series: a host by name, what was there in a span of time (`/api/v1/inventory`), and what every tier does right now.

use super::{App, Problem, Source, lock};
use crate::live::inventory::{HostInventory, Now};
use crate::live::series::Series;
use crate::store::Past;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tailwater_model::window::{WINDOW_NS, WindowIndex};

/// Longest look back, seconds.
const SECONDS_MAX: u64 = 60;
/// Without a wish: what an eye takes in.
const SECONDS: u64 = 5;
/// What agents and the way take before a window is here; the look back ends this long before now.
const ARRIVES_WITHIN_NS: u64 = 250_000_000;

pub(super) async fn host(
    State(app): State<App>,
    Path(host): Path<String>,
) -> Result<Json<HostInventory>, Problem> {
    let in_memory = {
        let outline = lock(&app.shown.series).outline(&host);
        outline.inventory(&host)
    };
    if let Some(inventory) = in_memory {
        return Ok(Json(inventory));
    }
    // A host that is gone: what was seen of it is on disk.
    let wanted = host.clone();
    app.past(move |past| past.host(&wanted)).await?.map(Json).ok_or_else(|| {
        Problem(StatusCode::NOT_FOUND, format!("no windows of host \"{host}\"; see /api/v1/agents"))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InventoryQuery {
    start: Option<u64>,
    end: Option<u64>,
    /// "host", "workload", "listener" or "tier"; without: all of them.
    kind: Option<String>,
}

/// What was there in a span of time, by name.
pub(super) async fn seen(
    State(app): State<App>,
    Query(q): Query<InventoryQuery>,
) -> Result<Json<serde_json::Value>, Problem> {
    let (start, end) = (q.start.unwrap_or(0), q.end.unwrap_or(u64::MAX));
    let seen = app.past(move |past| past.inventory((start, end), q.kind.as_deref(), None)).await?;
    Ok(Json(json!({ "inventory": seen })))
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
    /// It is the end of a recording, where time stands still.
    recorded: bool,
    window_ns: u64,
    windows: u64,
    hosts: Vec<Now>,
    workloads: Vec<Now>,
}

/// Hosts, and the workloads of the topology; of a past moment also those that listened then.
pub(super) async fn now(State(app): State<App>, Query(q): Query<NowQuery>) -> Result<Response, Problem> {
    let windows = q.seconds.unwrap_or(SECONDS).clamp(1, SECONDS_MAX) * 1_000_000_000 / WINDOW_NS;
    let now_unix_ns = app.clock.unix_ns();
    let arrives_within_ns = match app.source {
        Source::Agents(_) => ARRIVES_WITHIN_NS,
        // All of it is here.
        Source::Recording(_) => 0,
    };
    let until = q.at.unwrap_or_else(|| now_unix_ns.saturating_sub(arrives_within_ns));
    let topology = Arc::clone(&lock(&app.shown.topology));
    let tiers: BTreeSet<(String, String)> =
        topology.nodes.iter().map(|n| (n.host.clone(), n.workload.clone())).collect();
    let mut answer = NowAnswer {
        now_unix_ns,
        recorded: app.recording().is_some(),
        window_ns: WINDOW_NS,
        windows,
        hosts: vec![],
        workloads: vec![],
    };
    if q.at.is_some() && !in_memory(&lock(&app.shown.series), until, windows) {
        let hosts = lock(&app.shown.series).hosts().map(str::to_owned).collect();
        (answer.hosts, answer.workloads) =
            app.past(move |past| then(past, hosts, tiers, until, windows)).await?;
        return Ok(Json(answer).into_response());
    }
    let asked = app.clone();
    let worked_out = async move {
        (answer.hosts, answer.workloads) =
            asked.memory(move |series| right_now(series, &tiers, until, windows)).await?;
        serde_json::to_vec(&answer).map(Bytes::from).map_err(|e| {
            Problem(StatusCode::INTERNAL_SERVER_ERROR, format!("what is now cannot be written as JSON: {e}"))
        })
    };
    // Of one moment everybody asks the same.
    let body = match q.at {
        None => app.fresh.answer(app.clock, windows, worked_out).await?,
        Some(_) => worked_out.await?,
    };
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// From memory. The analysis waits for this lock with every window, so it is held for no longer than taking a host's windows out takes.
fn right_now(
    series: &Mutex<Series>,
    tiers: &BTreeSet<(String, String)>,
    until: u64,
    windows: u64,
) -> (Vec<Now>, Vec<Now>) {
    let known: BTreeSet<String> = lock(series).hosts().map(str::to_owned).collect();
    let (mut of_hosts, mut of_workloads) = (Vec::new(), Vec::new());
    for host in known.iter().chain(tiers.iter().map(|(host, _)| host)).collect::<BTreeSet<_>>() {
        let part = lock(series).moment(host, until, windows);
        if known.contains(host) {
            of_hosts.push(part.now(host, None, until, windows));
        }
        let own = tiers.range((host.clone(), String::new())..).take_while(|(of, _)| of == host);
        of_workloads.extend(own.map(|(_, workload)| part.now(host, Some(workload), until, windows)));
    }
    (of_hosts, of_workloads)
}

/// Whether the windows before `until` are in memory of every host that was there at all.
fn in_memory(series: &Series, until: u64, windows: u64) -> bool {
    let first = WindowIndex(WindowIndex::at(until).0.saturating_sub(windows));
    let mut spans = series.hosts().map(|host| series.span(host)).peekable();
    spans.peek().is_some() && spans.all(|span| span.is_some_and(|(oldest, _)| oldest <= first))
}

/// A past moment, with the hosts and listening workloads that were seen then beside those of today.
fn then(
    past: &Past,
    mut hosts: BTreeSet<String>,
    mut tiers: BTreeSet<(String, String)>,
    until: u64,
    windows: u64,
) -> (Vec<Now>, Vec<Now>) {
    let span = (until.saturating_sub(windows * WINDOW_NS), until);
    hosts.extend(past.inventory(span, Some("host"), None).into_iter().map(|seen| seen.host));
    let listened = past.inventory(span, Some("listener"), None).into_iter();
    tiers.extend(listened.filter(|l| !l.detail.is_empty()).map(|l| (l.host, l.detail)));
    hosts.extend(tiers.iter().map(|(host, _)| host.clone()));
    let (mut of_hosts, mut of_workloads) = (Vec::new(), Vec::new());
    for host in &hosts {
        let own = tiers.iter().filter(|(h, _)| h == host).map(|(_, workload)| Some(workload.as_str()));
        let of: Vec<Option<&str>> = std::iter::once(None).chain(own).collect();
        // One question for all of a host: each part of the past is read once.
        let mut all = past.now(host, &of, until, windows).into_iter();
        of_hosts.extend(all.next());
        of_workloads.extend(all);
    }
    (of_hosts, of_workloads)
}

//! `/api/v1/incidents`: the list, one of them, and its timeline; from memory as far as that holds them, else from the disk.

use super::{App, Problem, lock};
use crate::store::Past;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Serialize};
use tailwater_model::Incident;
use tailwater_model::incident::{Kind, Resource, State as IncidentState, Which};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IncidentsQuery {
    /// Unix ns: those that end then or later.
    since: Option<u64>,
    /// Unix ns: those that begin then or earlier.
    until: Option<u64>,
    state: Option<IncidentState>,
    /// Kept alive after their root was over, or not.
    sustained: Option<bool>,
    kind: Option<Kind>,
    /// Of the root.
    resource: Option<Resource>,
    /// Tier, workload or host of the root.
    root: Option<String>,
    /// The same of the root, a tier on the way, or a listener that dropped.
    service: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Incidents {
    incidents: Vec<Incident>,
}

pub(super) async fn incidents(
    State(app): State<App>,
    Query(q): Query<IncidentsQuery>,
) -> Result<Response, Problem> {
    let (span, limit) =
        ((q.since.unwrap_or(0), q.until.unwrap_or(u64::MAX)), q.limit.unwrap_or(100).min(10_000));
    let wanted = Which {
        state: q.state,
        sustained: q.sustained,
        kind: q.kind,
        resource: q.resource,
        root: q.root,
        service: q.service,
    };
    let (list, oldest) = {
        let store = lock(&app.shown.store);
        (store.list(span, wanted.clone(), limit), store.oldest())
    };
    let left = limit - list.len();
    // Memory holds the newest; what is asked for beyond them is on disk.
    let older = match left {
        0 => Vec::new(),
        _ => app.past(move |past| past.incidents(oldest.as_deref(), span, wanted, left)).await?,
    };
    let incidents = list.iter().map(AsRef::as_ref).chain(&older).map(Incident::brief).collect();
    Ok(Json(Incidents { incidents }).into_response())
}

pub(super) fn not_found(id: &str) -> Problem {
    Problem(
        StatusCode::NOT_FOUND,
        format!("no incident {id}; GET /api/v1/incidents lists those that are kept"),
    )
}

pub(super) async fn incident(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let found = lock(&app.shown.store).get(&id);
    if let Some((incident, _)) = found {
        return Ok(Json(incident.as_ref()).into_response());
    }
    let wanted = id.clone();
    let (incident, _) = app.past(move |past| past.incident(&wanted)).await?.ok_or_else(|| not_found(&id))?;
    Ok(Json(incident).into_response())
}

pub(super) async fn timeline(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let found = lock(&app.shown.store).get(&id);
    if let Some((_, Some(kept))) = &found {
        return Ok(Json(kept.as_ref()).into_response());
    }
    let wanted = id.clone();
    let read = move |past: &Past| {
        let (incident, kept) = match found {
            Some((incident, _)) => (incident.as_ref().clone(), None),
            None => past.incident(&wanted)?,
        };
        Some(kept.unwrap_or_else(|| past.timeline(&incident)))
    };
    Ok(Json(app.past(read).await?.ok_or_else(|| not_found(&id))?).into_response())
}

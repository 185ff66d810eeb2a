//! `/api/v1/incidents/{id}/traces`: the slowest traces that passed while an incident lasted, from the disk, or from memory while they are gathered.

use super::incidents::not_found;
use super::{App, Problem, lock};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json, Response};
use std::sync::Arc;

pub(super) async fn of_incident(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let found = lock(&app.shown.store).get(&id).map(|(incident, _)| incident);
    let wanted = id.clone();
    let read = app.past(move |past| {
        let incident = match found {
            Some(incident) => incident,
            None => Arc::new(past.incident(&wanted)?.0),
        };
        // The id of an early alert gives the incident that replaced it.
        let kept = past.traces(&incident.id);
        Some((incident, kept))
    });
    let (incident, kept) = read.await?.ok_or_else(|| not_found(&id))?;
    Ok(Json(app.traces.view(&incident, kept)).into_response())
}

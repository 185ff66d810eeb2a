//! `/api/v1/incidents/{id}/prevention`: what would have prevented an incident. Owns that it is worked out once, and by few threads at a time;
//! knows no model.

use super::{App, Problem, lock, not_found};
use crate::prevent;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json, Response};
use std::sync::Arc;

pub(super) async fn of_incident(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let found = lock(&app.shown.store).get(&id).map(|(incident, _)| incident);
    if let Some(view) = found.as_ref().and_then(|incident| app.preventions.known(incident)) {
        return Ok(Json(view.as_ref()).into_response());
    }
    let (preventions, topology) = (Arc::clone(&app.preventions), Arc::clone(&lock(&app.shown.topology)));
    let wanted = id.clone();
    let view = app
        .past(move |past| {
            let incident = match found {
                Some(incident) => incident,
                None => Arc::new(past.incident(&wanted)?.0),
            };
            // Somebody else may have asked meanwhile.
            let known = preventions.known(&incident);
            Some(known.unwrap_or_else(|| {
                let read = |host: &str, first, last| past.parts(host, first, last);
                preventions.remember(prevent::prevention(&incident, &topology, read))
            }))
        })
        .await?
        .ok_or_else(|| not_found(&id))?;
    Ok(Json(view.as_ref()).into_response())
}

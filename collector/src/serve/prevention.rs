//! `/api/v1/incidents/{id}/prevention`: what would have prevented an incident, or, `?with=backlog@web-1=640`, what had come of that. Owns that
//! the first is worked out once, and both by few threads at a time; knows no model.

use super::incidents::not_found;
use super::{App, Problem, lock};
use crate::prevent;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use std::sync::Arc;

#[derive(serde::Deserialize)]
pub(super) struct PreventionQuery {
    with: Option<String>,
}

pub(super) async fn of_incident(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(q): Query<PreventionQuery>,
) -> Result<Response, Problem> {
    let asked = q.with.as_deref().map(prevent::Asked::parse).transpose();
    let asked = asked.map_err(|why| Problem(StatusCode::BAD_REQUEST, why))?;
    let found = lock(&app.shown.store).get(&id).map(|(incident, _)| incident);
    let known =
        found.as_ref().filter(|_| asked.is_none()).and_then(|incident| app.preventions.known(incident));
    if let Some(view) = known {
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
            let read = |host: &str, first, last| past.parts(host, first, last);
            if let Some(asked) = &asked {
                return Some(Arc::new(prevent::what_if(&incident, &topology, read, asked)));
            }
            // Somebody else may have asked meanwhile.
            let known = preventions.known(&incident);
            let found = || preventions.remember(prevent::prevention(&incident, &topology, read));
            Some(known.unwrap_or_else(found))
        })
        .await?
        .ok_or_else(|| not_found(&id))?;
    Ok(Json(view.as_ref()).into_response())
}

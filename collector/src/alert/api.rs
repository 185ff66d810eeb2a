//! Alerting over HTTP: what was sent, what waits, dead letters, and sending those again; silences, making and ending them. Whatever changes
//! something takes JSON only, which a page of another origin cannot send without being asked first.

use super::Handle;
use super::silences::{Asked, SilenceError, Silences};
use axum::extract::{Query, State};
use axum::http::{Extensions, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use tailwater_model::Incident;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default)]
    dead: bool,
}

/// Which dead letters to send again.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resend {
    /// The beginning of a message's or incident's id; `null`: all.
    pub id: Option<String>,
}

/// Which silence is to end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Its name.
    pub id: String,
}

/// Which incident is asked about.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    incident: Option<String>,
}

/// The incident of an id, if it is in memory.
pub type Find = Arc<dyn Fn(&str) -> Option<Arc<Incident>> + Send + Sync>;

/// Who asks, by what has been found out of a request.
pub type Asker = fn(&Extensions) -> String;

/// The routes.
pub fn routes(handle: Handle, asker: Asker, find: Find) -> axum::Router {
    let silencing = Silencing { silences: handle.silences.clone(), asker, find };
    let alerts = axum::Router::new()
        .route("/api/v1/alerts", get(list))
        .route("/api/v1/alerts/resend", post(resend))
        .with_state(handle);
    let silences = axum::Router::new()
        .route("/api/v1/silences", get(silences_now).post(silence))
        .route("/api/v1/silences/end", post(end))
        .with_state(silencing);
    alerts.merge(silences)
}

fn busy(why: String) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": why }))).into_response()
}

async fn list(State(handle): State<Handle>, Query(q): Query<ListQuery>) -> Response {
    match handle.list(q.dead).await {
        Ok(alerts) => Json(json!({ "alerts": alerts })).into_response(),
        Err(why) => busy(why),
    }
}

async fn resend(State(handle): State<Handle>, Json(which): Json<Resend>) -> Response {
    match handle.resend(which.id).await {
        Ok(n) => Json(json!({ "resent": n })).into_response(),
        Err(why) => busy(why),
    }
}

#[derive(Clone)]
struct Silencing {
    silences: Option<Arc<Silences>>,
    asker: Asker,
    find: Find,
}

async fn silences_now(State(of): State<Silencing>, Query(about): Query<About>) -> Response {
    let incident = about.incident.and_then(|id| (of.find)(&id));
    let all = of.silences.map(|silences| silences.list_about(incident.as_deref())).unwrap_or_default();
    Json(json!({ "silences": all })).into_response()
}

fn recording() -> Response {
    let why = "this shows a recording: nobody is told of what is in it";
    (StatusCode::CONFLICT, Json(json!({ "error": why }))).into_response()
}

async fn silence(
    State(Silencing { silences, asker, .. }): State<Silencing>,
    extensions: Extensions,
    Json(asked): Json<Asked>,
) -> Response {
    let Some(silences) = silences else { return recording() };
    let by = asker(&extensions);
    changed(tokio::task::spawn_blocking(move || silences.make(asked, &by)).await)
}

async fn end(State(of): State<Silencing>, Json(End { id }): Json<End>) -> Response {
    let Some(silences) = of.silences else { return recording() };
    let named = id.clone();
    match tokio::task::spawn_blocking(move || silences.end(&named)).await {
        Ok(Ok(false)) => {
            let why = format!(
                "no silence that was made is called \"{id}\"\n  remedy: `tailwater silences` lists them; those of the configuration are ended there"
            );
            (StatusCode::NOT_FOUND, Json(json!({ "error": why }))).into_response()
        }
        done => changed(done.map(|done| done.map(|ended| json!({ "ended": ended })))),
    }
}

/// What came of a change that was made by a thread of its own.
fn changed<T: Serialize>(done: Result<Result<T, SilenceError>, tokio::task::JoinError>) -> Response {
    match done {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(e @ SilenceError::Asked(_))) => {
            (StatusCode::BAD_REQUEST, Json(json!({ "error": e.to_string() }))).into_response()
        }
        Ok(Err(e @ SilenceError::File(_))) => busy(e.to_string()),
        Err(_) => busy("the collector is stopping".to_owned()),
    }
}

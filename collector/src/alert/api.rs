//! The outbox over HTTP: what was sent, what waits, dead letters, and sending those again. The latter takes JSON only, which a page of another
//! origin cannot send without being asked first.

use super::Handle;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::json;

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

/// The routes.
pub fn routes(handle: Handle) -> axum::Router {
    axum::Router::new()
        .route("/api/v1/alerts", get(list))
        .route("/api/v1/alerts/resend", post(resend))
        .with_state(handle)
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

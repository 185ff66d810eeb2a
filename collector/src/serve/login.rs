//! How a browser gets in and out, and what an admin sees: the session's begin and end, who one is, which tokens there are, what was changed.

use super::Problem;
use super::gate::{Gate, Peer};
use crate::access::attempts::plain;
use crate::access::audit::Change;
use crate::access::role::{Role, Way, Who};
use crate::access::sessions::set_cookie;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The routes.
pub(super) fn routes(gate: Arc<Gate>) -> axum::Router {
    axum::Router::new()
        .route("/api/v1/me", get(me))
        .route("/api/v1/login", post(login))
        .route("/api/v1/logout", post(logout))
        .route("/api/v1/tokens", get(tokens))
        .route("/api/v1/audit", get(audit))
        .with_state(gate)
}

/// Whether tokens are wanted here, and who asks; `null`: nobody known.
async fn me(State(gate): State<Arc<Gate>>, who: Option<Extension<Who>>) -> Json<Value> {
    Json(json!({ "wanted": gate.wanted(), "who": who.map(|Extension(who)| who) }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

fn told(gate: &Gate, what: &str, who: Who, from: IpAddr) {
    let (unix_ns, what) = (gate.clock.unix_ns(), what.to_owned());
    let status = StatusCode::NO_CONTENT.as_u16();
    gate.audit.note(Change { unix_ns, who: Some(who), from, what, detail: String::new(), status });
}

fn with_cookie(gate: &Gate, value: &str) -> Response {
    let cookie = set_cookie(&gate.cookie, value, gate.tls);
    match HeaderValue::from_str(&cookie) {
        Ok(cookie) => (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response(),
        Err(e) => Problem(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

fn from(peer: Option<Extension<Peer>>) -> IpAddr {
    plain(peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Extension(peer)| peer.0.ip()))
}

async fn login(
    State(gate): State<Arc<Gate>>,
    peer: Option<Extension<Peer>>,
    Json(shown): Json<Login>,
) -> Response {
    if !gate.wanted() {
        return Problem(StatusCode::CONFLICT, "this collector wants no token".into()).into_response();
    }
    let from = from(peer);
    let Some(entry) = gate.good(shown.token.trim()) else { return gate.wrong_in_form(from) };
    if entry.role == Role::Send {
        let why = "this token sends spans and shows nothing: show one of the role read or higher";
        return Problem(StatusCode::FORBIDDEN, why.into()).into_response();
    }
    match gate.sessions.begin(entry.sha256, gate.clock.monotonic()) {
        Ok(session) => {
            let who = Who { name: entry.name, role: entry.role, way: Way::Session };
            told(&gate, "session begun", who, from);
            with_cookie(&gate, &session)
        }
        Err(e) => Problem(StatusCode::SERVICE_UNAVAILABLE, e.to_string()).into_response(),
    }
}

async fn logout(
    State(gate): State<Arc<Gate>>,
    peer: Option<Extension<Peer>>,
    who: Option<Extension<Who>>,
    headers: HeaderMap,
) -> Response {
    if let Some(session) = gate.session(&headers) {
        gate.sessions.end(session);
        if let Some(Extension(who)) = who {
            told(&gate, "session ended", who, from(peer));
        }
    }
    with_cookie(&gate, "")
}

/// Without their hashes.
async fn tokens(State(gate): State<Arc<Gate>>) -> Json<Value> {
    let (list, _) = gate.list();
    let all = list.iter().map(|of| {
        json!({ "name": of.name, "role": of.role, "made_unix_s": of.made_unix_s, "expires_unix_s": of.expires_unix_s })
    });
    Json(json!({ "tokens": all.collect::<Vec<_>>() }))
}

async fn audit(State(gate): State<Arc<Gate>>) -> Json<Value> {
    Json(json!({ "changes": gate.audit.newest() }))
}

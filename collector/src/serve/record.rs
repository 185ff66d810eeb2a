//! `/api/v1/record`: what agents send from now on, as a recording, while the client reads it. Owns how many at once, and how long.

use super::{App, Problem, Source};
use crate::ingest::feed::TAP_RECORDS_MAX;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::wrappers::ReceiverStream;

/// Recordings over HTTP at once.
pub(super) const RECORDINGS_MAX: usize = 2;
/// Longest recording over HTTP.
const RECORDING_SECONDS_MAX: u64 = 3600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    seconds: u64,
}

/// A POST, and JSON: it takes one of few places, so no link and no picture of another page may begin one.
pub(super) async fn record(State(app): State<App>, Json(q): Json<Record>) -> Result<Response, Problem> {
    if !(1..=RECORDING_SECONDS_MAX).contains(&q.seconds) {
        return Err(Problem(
            StatusCode::BAD_REQUEST,
            format!("seconds must be 1 to {RECORDING_SECONDS_MAX}"),
        ));
    }
    let Source::Agents(feed) = &app.source else {
        let text = "this shows a recording already: copy its file".into();
        return Err(Problem(StatusCode::CONFLICT, text));
    };
    let busy = |text: &str| Problem(StatusCode::SERVICE_UNAVAILABLE, text.to_owned());
    let permit = Arc::clone(&app.recordings)
        .try_acquire_owned()
        .map_err(|_| busy("two recordings are running, the limit"))?;
    let (tap, records) = std::sync::mpsc::sync_channel::<Vec<u8>>(TAP_RECORDS_MAX);
    if !feed.tap(tap) {
        return Err(busy("the analysis is behind; try again later"));
    }
    let (out, body) = tokio::sync::mpsc::channel::<Result<Vec<u8>, Infallible>>(64);
    tokio::task::spawn_blocking(move || {
        let end = app.clock.monotonic() + Duration::from_secs(q.seconds);
        while let Some(left) = end.checked_duration_since(app.clock.monotonic()) {
            if app.shutdown.is_cancelled() {
                break;
            }
            match records.recv_timeout(left.min(Duration::from_millis(200))) {
                Ok(record) => {
                    if out.blocking_send(Ok(record)).is_err() {
                        break; // the client went away
                    }
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        drop(permit);
    });
    let headers = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((headers, Body::from_stream(ReceiverStream::new(body))).into_response())
}

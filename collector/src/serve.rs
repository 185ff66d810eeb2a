//! The HTTP side: API, live events, metrics and the page. Reads what others keep; changes nothing. Knows no agent protocol.

use crate::driver::{Clock, Driver};
use crate::metrics::{Metrics, gauge, host_label};
use crate::outlet::Shown;
use crate::recording::TAP_RECORDS_MAX;
use crate::registry::Registry;
use crate::series::{METRICS, Query as SeriesQuery};
use crate::timeline;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tailwater_analysis::incident::State as IncidentState;
use tailwater_analysis::model::WindowIndex;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::{BroadcastStream, ReceiverStream};
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;

/// Recordings over HTTP at once.
const RECORDINGS_MAX: usize = 2;
/// Longest recording over HTTP.
const RECORDING_SECONDS_MAX: u64 = 3600;
/// Live subscribers at once.
const SUBSCRIBERS_MAX: usize = 64;

/// What the handlers read.
#[derive(Debug, Clone)]
pub struct App {
    /// Incidents, windows, topology, events.
    pub shown: Shown,
    /// Agents.
    pub registry: Arc<Registry>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// For recordings.
    pub driver: Driver,
    /// Time.
    pub clock: Clock,
    /// The analysis runs.
    pub alive: Arc<AtomicBool>,
    /// Ends live streams.
    pub shutdown: CancellationToken,
    recordings: Arc<Semaphore>,
    subscribers: Arc<Semaphore>,
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> MutexGuard<'_, T> {
    // Values only: after a panic elsewhere they are still the best there is.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl App {
    /// Over these.
    #[must_use]
    pub fn new(
        shown: Shown,
        registry: Arc<Registry>,
        metrics: Arc<Metrics>,
        driver: Driver,
        alive: Arc<AtomicBool>,
        shutdown: CancellationToken,
    ) -> Self {
        let (recordings, subscribers) =
            (Arc::new(Semaphore::new(RECORDINGS_MAX)), Arc::new(Semaphore::new(SUBSCRIBERS_MAX)));
        Self {
            shown,
            registry,
            metrics,
            driver,
            clock: Clock::default(),
            alive,
            shutdown,
            recordings,
            subscribers,
        }
    }

    /// All routes.
    pub fn routes(self) -> axum::Router {
        axum::Router::new()
            .route("/", get(page))
            .route("/api/v1/incidents", get(incidents))
            .route("/api/v1/incidents/{id}", get(incident))
            .route("/api/v1/incidents/{id}/timeline", get(incident_timeline))
            .route("/api/v1/topology", get(topology))
            .route("/api/v1/congestion", get(congestion))
            .route("/api/v1/series", get(series))
            .route("/api/v1/agents", get(agents))
            .route("/api/v1/live", get(live))
            .route("/api/v1/record", get(record))
            .route("/metrics", get(metrics))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .fallback(|| async { Problem(StatusCode::NOT_FOUND, "no such path; see / for the page".into()) })
            .with_state(self)
    }
}

/// An error as JSON.
struct Problem(StatusCode, String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

async fn page() -> Html<&'static str> {
    Html(include_str!("../web/index.html"))
}

async fn ready(State(app): State<App>) -> Result<&'static str, Problem> {
    if app.alive.load(Ordering::Relaxed) && !app.shutdown.is_cancelled() {
        return Ok("ready\n");
    }
    Err(Problem(StatusCode::SERVICE_UNAVAILABLE, "the analysis is not running".into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IncidentsQuery {
    since: Option<u64>,
    state: Option<IncidentState>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Incidents<'a> {
    incidents: Vec<&'a tailwater_analysis::Incident>,
}

async fn incidents(State(app): State<App>, Query(q): Query<IncidentsQuery>) -> Response {
    let list = lock(&app.shown.store).list(q.since.unwrap_or(0), q.state, q.limit.unwrap_or(100).min(10_000));
    Json(Incidents { incidents: list.iter().map(AsRef::as_ref).collect() }).into_response()
}

fn not_found(id: &str) -> Problem {
    Problem(
        StatusCode::NOT_FOUND,
        format!("no incident {id}; GET /api/v1/incidents lists those that are kept"),
    )
}

async fn incident(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let found = lock(&app.shown.store).get(&id);
    let (incident, _) = found.ok_or_else(|| not_found(&id))?;
    Ok(Json(incident.as_ref()).into_response())
}

async fn incident_timeline(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let found = lock(&app.shown.store).get(&id);
    let (incident, kept) = found.ok_or_else(|| not_found(&id))?;
    if let Some(kept) = kept {
        return Ok(Json(kept.as_ref()).into_response());
    }
    let now = timeline::of(&incident, &lock(&app.shown.series));
    Ok(Json(now).into_response())
}

async fn topology(State(app): State<App>) -> Response {
    let view = Arc::clone(&lock(&app.shown.topology));
    Json(view.as_ref()).into_response()
}

async fn congestion(State(app): State<App>) -> Response {
    let view = Arc::clone(&lock(&app.shown.congestion));
    Json(view.as_ref()).into_response()
}

async fn agents(State(app): State<App>) -> Json<serde_json::Value> {
    Json(json!({ "agents": app.registry.view() }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeriesParameters {
    host: String,
    workload: Option<String>,
    listener: Option<String>,
    metric: String,
    start: Option<u64>,
    end: Option<u64>,
    max_points: Option<usize>,
}

async fn series(
    State(app): State<App>,
    Query(q): Query<SeriesParameters>,
) -> Result<Json<serde_json::Value>, Problem> {
    if !METRICS.iter().any(|(name, _)| *name == q.metric) {
        let known: Vec<_> = METRICS.iter().map(|(name, _)| *name).collect();
        let text = format!("metric \"{}\" is not one of {}", q.metric, known.join(", "));
        return Err(Problem(StatusCode::BAD_REQUEST, text));
    }
    let series = lock(&app.shown.series);
    let Some((oldest, newest)) = series.span(&q.host) else {
        return Err(Problem(
            StatusCode::NOT_FOUND,
            format!("no windows of host \"{}\"; see /api/v1/agents", q.host),
        ));
    };
    // Moments, not windows, from the outside; what is not there is left out.
    let first = q.start.map_or(oldest, WindowIndex::at).max(oldest);
    let last = q.end.map_or(newest, WindowIndex::at).min(newest);
    let (workload, listener) = (q.workload.as_deref(), q.listener.as_deref());
    let query = SeriesQuery { host: &q.host, workload, listener, metric: &q.metric };
    let points = if first > last {
        Vec::new()
    } else {
        series.points(query, first, last, q.max_points.unwrap_or(2000).clamp(1, 20_000))
    };
    let window_ns = tailwater_analysis::model::WINDOW_NS;
    Ok(Json(
        json!({ "host": q.host, "workload": q.workload, "metric": q.metric, "window_ns": window_ns, "points": points }),
    ))
}

async fn live(State(app): State<App>) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let permit = Arc::clone(&app.subscribers).try_acquire_owned().map_err(|_| {
        Problem(StatusCode::SERVICE_UNAVAILABLE, format!("{SUBSCRIBERS_MAX} subscribers, the limit"))
    })?;
    let metrics = Arc::clone(&app.metrics);
    let events = BroadcastStream::new(app.shown.live.subscribe()).map(move |next| {
        let _held = &permit;
        Ok(match next {
            Ok(incident) => Event::default()
                .event("incident")
                .json_data(incident.as_ref())
                .unwrap_or_else(|_| Event::default().comment("not serialisable")),
            Err(tokio_stream::wrappers::errors::BroadcastStreamRecvError::Lagged(n)) => {
                metrics.live_lagged.add(n);
                Event::default().event("lagged").data(n.to_string())
            }
        })
    });
    let (out, ended) = tokio::sync::mpsc::channel(16);
    let shutdown = app.shutdown.clone();
    tokio::spawn(async move {
        let mut events = std::pin::pin!(events);
        loop {
            let next = tokio::select! {
                next = events.next() => next,
                () = shutdown.cancelled() => return,
                () = out.closed() => return,
            };
            let Some(event) = next else { return };
            if out.send(event).await.is_err() {
                return;
            }
        }
    });
    Ok(Sse::new(ReceiverStream::new(ended)).keep_alive(KeepAlive::default()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordQuery {
    seconds: u64,
}

async fn record(State(app): State<App>, Query(q): Query<RecordQuery>) -> Result<Response, Problem> {
    if !(1..=RECORDING_SECONDS_MAX).contains(&q.seconds) {
        return Err(Problem(
            StatusCode::BAD_REQUEST,
            format!("seconds must be 1 to {RECORDING_SECONDS_MAX}"),
        ));
    }
    let busy = |text: &str| Problem(StatusCode::SERVICE_UNAVAILABLE, text.to_owned());
    let permit = Arc::clone(&app.recordings)
        .try_acquire_owned()
        .map_err(|_| busy("two recordings are running, the limit"))?;
    let (tap, records) = std::sync::mpsc::sync_channel::<Vec<u8>>(TAP_RECORDS_MAX);
    if !app.driver.tap(tap) {
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

async fn metrics(State(app): State<App>) -> Response {
    let mut out = app.metrics.render();
    let agents = app.registry.view();
    let per_host = |value: &dyn Fn(&crate::registry::AgentView) -> f64| -> Vec<(String, f64)> {
        agents.iter().map(|a| (host_label(&a.host), value(a))).collect()
    };
    let now = app.clock.unix_ns();
    gauge(
        &mut out,
        "agent_connected",
        "1: its stream is open.",
        &per_host(&|a| f64::from(u8::from(a.connected))),
    );
    gauge(
        &mut out,
        "agent_clock_offset_seconds",
        "The collector's clock less the agent's.",
        &per_host(&|a| a.clock.offset_ns as f64 / 1e9),
    );
    gauge(
        &mut out,
        "agent_clock_error_seconds",
        "Bound of the clock error.",
        &per_host(&|a| a.clock.error_ns as f64 / 1e9),
    );
    gauge(
        &mut out,
        "agent_windows_lost",
        "Windows lapped in the kernel.",
        &per_host(&|a| a.windows_lost as f64),
    );
    gauge(
        &mut out,
        "agent_window_age_seconds",
        "Age of the newest window.",
        &per_host(&|a| now.saturating_sub(a.newest_window_end_unix_ns) as f64 / 1e9),
    );
    let open = lock(&app.shown.store).list(0, Some(IncidentState::Open), usize::MAX).len();
    gauge(&mut out, "incidents_open", "Incidents open now.", &[(String::new(), open as f64)]);
    let bytes = lock(&app.shown.series).bytes();
    gauge(&mut out, "series_bytes", "Memory of kept windows, about.", &[(String::new(), bytes as f64)]);
    out.push_str("# EOF\n");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], out).into_response()
}

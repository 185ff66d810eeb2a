//! The HTTP side: API, live events, metrics and the page. Reads what others keep; changes nothing. Knows no agent protocol.

mod events;
mod exposition;
mod fresh;
pub mod front;
pub mod gate;
pub mod hosts;
mod inventory;
mod login;
mod page;
mod prevention;
mod readers;
mod recording;
mod responses;
pub mod rights;
mod series;
mod shown;
pub mod sla;
mod turns;
mod untaken;
pub(crate) mod watchdog;

pub use readers::Readers;
pub use recording::Recording;
pub use shown::Shown;

use crate::alert::stats::Stats;
use crate::clock::Clock;
use crate::counters::Metrics;
use crate::export::Export;
use crate::ingest::feed::{Feed, TAP_RECORDS_MAX};
use crate::ingest::registry::Registry;
use crate::live::series::Series;
use crate::lock::lock;
use crate::prevent::Preventions;
use crate::sizing::Sizing;
use crate::store::{Past, Which};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tailwater_model::AdviceView;
use tailwater_model::incident::State as IncidentState;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// Recordings over HTTP at once.
const RECORDINGS_MAX: usize = 2;
/// Longest recording over HTTP.
const RECORDING_SECONDS_MAX: u64 = 3600;
/// Questions about the past at once: each reads files and unpacks them.
const PAST_MAX: usize = 2;
/// Questions about windows in memory at once.
const MEMORY_MAX: usize = 2;

/// Where windows come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// From agents, through this.
    Agents(Feed),
    /// From a file that has been read to its end.
    Recording(Arc<Recording>),
}

impl From<Feed> for Source {
    fn from(feed: Feed) -> Self {
        Self::Agents(feed)
    }
}

/// What the handlers read.
#[derive(Debug, Clone)]
pub struct App {
    /// Incidents, windows, topology, events.
    pub shown: Shown,
    /// Agents.
    pub registry: Arc<Registry>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// What alerting counts.
    pub alerts: Arc<Stats>,
    /// What goes to others' monitoring.
    pub export: Arc<Export>,
    /// Sizes of pools.
    pub sizing: Arc<Sizing>,
    /// Where windows come from.
    pub source: Source,
    /// Time.
    pub clock: Clock,
    /// The analysis runs.
    pub alive: Arc<AtomicBool>,
    /// Ends live streams.
    pub shutdown: CancellationToken,
    recordings: Arc<Semaphore>,
    subscribers: Arc<Semaphore>,
    past: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    fresh: fresh::Fresh,
    asking: Arc<tokio::sync::Mutex<()>>,
    preventions: Arc<Preventions>,
    sla: Arc<[sla::Sla]>,
    pulse: Arc<std::sync::Mutex<watchdog::Pulse>>,
}

impl App {
    /// Over these.
    #[must_use]
    pub fn new(
        shown: Shown,
        registry: Arc<Registry>,
        metrics: Arc<Metrics>,
        source: impl Into<Source>,
        alive: Arc<AtomicBool>,
        shutdown: CancellationToken,
    ) -> Self {
        let (recordings, subscribers) =
            (Arc::new(Semaphore::new(RECORDINGS_MAX)), Arc::new(Semaphore::new(events::LISTENERS_MAX)));
        Self {
            shown,
            registry,
            metrics,
            alerts: Arc::default(),
            export: Arc::default(),
            sizing: Arc::default(),
            source: source.into(),
            clock: Clock::default(),
            alive,
            shutdown,
            recordings,
            subscribers,
            past: Arc::new(Semaphore::new(PAST_MAX)),
            memory: Arc::new(Semaphore::new(MEMORY_MAX)),
            fresh: fresh::Fresh::default(),
            asking: Arc::default(),
            preventions: Arc::default(),
            sla: Arc::default(),
            pulse: Arc::default(),
        }
    }

    /// With what these say on `/metrics`.
    #[must_use]
    pub fn telling(self, alerts: Arc<Stats>, export: Arc<Export>) -> Self {
        Self { alerts, export, ..self }
    }

    /// With what this learns.
    #[must_use]
    pub fn advising(self, sizing: Arc<Sizing>) -> Self {
        Self { sizing, ..self }
    }

    /// With what tiers are to keep.
    #[must_use]
    pub fn promising(self, sla: &[sla::Sla]) -> Self {
        Self { sla: sla.into(), ..self }
    }

    /// By another clock: what is shown happened then.
    #[must_use]
    pub fn at(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// The recording that is shown, if it is one.
    fn recording(&self) -> Option<&Recording> {
        match &self.source {
            Source::Agents(_) => None,
            Source::Recording(recording) => Some(recording),
        }
    }

    /// Reads files, on a thread that may wait for them.
    async fn past<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Past) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let ended = |_| Problem(StatusCode::SERVICE_UNAVAILABLE, "the collector is stopping".into());
        let permit = Arc::clone(&self.past).acquire_owned().await.map_err(|_| ended(()))?;
        let past = self.shown.past.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _held = permit;
            read(&past)
        });
        work.await.map_err(|_| ended(()))
    }

    /// Reads windows in memory, on a thread that the agents' streams and the hooks do not need. A few questions at a time: those who ask
    /// wait for each other, and nobody else for them.
    async fn memory<T: Send + 'static>(
        &self,
        read: impl FnOnce(&std::sync::Mutex<Series>) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let ended = |_| Problem(StatusCode::SERVICE_UNAVAILABLE, "the collector is stopping".into());
        let permit = Arc::clone(&self.memory).acquire_owned().await.map_err(|_| ended(()))?;
        let series = Arc::clone(&self.shown.series);
        let work = tokio::task::spawn_blocking(move || {
            let _held = permit;
            read(&series)
        });
        work.await.map_err(|_| ended(()))
    }

    /// All routes.
    pub fn routes(self) -> axum::Router {
        axum::Router::new()
            .merge(page::routes())
            .route("/api/v1/incidents", get(incidents))
            .route("/api/v1/incidents/{id}", get(incident))
            .route("/api/v1/incidents/{id}/timeline", get(incident_timeline))
            .route("/api/v1/incidents/{id}/prevention", get(prevention::of_incident))
            .route("/api/v1/topology", get(topology))
            .route("/api/v1/congestion", get(congestion))
            .route("/api/v1/advice", get(advice))
            .route("/api/v1/hosts/{host}", get(inventory::host))
            .route("/api/v1/now", get(inventory::now))
            .route("/api/v1/series", get(series::series))
            .route("/api/v1/responses", get(responses::responses))
            .route("/api/v1/agents", get(agents))
            .route("/api/v1/status", get(status))
            .route("/api/v1/inventory", get(seen))
            .route("/api/v1/live", get(events::live))
            .route("/api/v1/record", post(record))
            .route("/metrics", get(exposition::metrics))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .route("/livez", get(live_still))
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

/// A disk that refuses, or a limit that bites, is no reason to send agents elsewhere: the collector works, and says so to those who may see more.
async fn ready(
    State(app): State<App>,
    nobody: Option<Extension<gate::Anonymous>>,
) -> Result<String, Problem> {
    if app.alive.load(Ordering::Relaxed) && !app.shutdown.is_cancelled() {
        if nobody.is_some() {
            return Ok("ready\n".to_owned());
        }
        let reach = lock(&app.shown.series).reach();
        let details = [
            app.shown.past.health.problem().map(|why| format!("store degraded: {why}")),
            reach.short.then(|| {
                let seconds = reach.span_ns / 1_000_000_000;
                format!("windows in memory reach back {seconds} s, less than a minute: raise series_mib_max")
            }),
            limits_that_bite(&app.metrics.limits.bite(app.clock.unix_ns())),
            app.registry.names(app.clock.unix_ns()).crowded.then(|| {
                let most = crate::ingest::registry::HOSTS_MAX;
                format!("{most} host names are known, the limit: of those that are gone the oldest are forgotten within a day")
            }),
        ];
        let lines = details.into_iter().flatten().map(|line| line + "\n");
        return Ok(std::iter::once("ready\n".to_owned()).chain(lines).collect());
    }
    Err(Problem(StatusCode::SERVICE_UNAVAILABLE, "the analysis is not running".into()))
}

fn limits_that_bite(limits: &[&str]) -> Option<String> {
    let named = limits.join(", ");
    (!limits.is_empty()).then(|| {
        format!("limits reached within ten minutes: {named}; tailwater_limits_reached_total counts what was left out, the log and /api/v1/agents say of whom")
    })
}

/// For those that start again what hangs: no disk and no lock of a reader is on this way.
async fn live_still(State(app): State<App>) -> Result<&'static str, Problem> {
    // A recording has been analysed: nothing can hang.
    let Source::Agents(feed) = &app.source else { return Ok("alive\n") };
    let now = app.clock.monotonic();
    let stood_ms = lock(&app.pulse).stood(feed.ticks(), now).as_millis();
    if stood_ms < watchdog::HANGS_MS {
        return Ok("alive\n");
    }
    let text = format!("the analysis has not worked off a tick for {} s", stood_ms / 1000);
    Err(Problem(StatusCode::SERVICE_UNAVAILABLE, text))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IncidentsQuery {
    /// Unix ns: those that end then or later.
    since: Option<u64>,
    /// Unix ns: those that begin then or earlier.
    until: Option<u64>,
    state: Option<IncidentState>,
    /// Kept alive after their root was over, or not.
    sustained: Option<bool>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Incidents<'a> {
    incidents: Vec<&'a tailwater_model::Incident>,
}

async fn incidents(State(app): State<App>, Query(q): Query<IncidentsQuery>) -> Result<Response, Problem> {
    let (span, limit) =
        ((q.since.unwrap_or(0), q.until.unwrap_or(u64::MAX)), q.limit.unwrap_or(100).min(10_000));
    let wanted = Which { state: q.state, sustained: q.sustained };
    let (list, oldest) = {
        let store = lock(&app.shown.store);
        (store.list(span, wanted, limit), store.oldest())
    };
    let left = limit - list.len();
    // Memory holds the newest; what is asked for beyond them is on disk.
    let older = match left {
        0 => Vec::new(),
        _ => app.past(move |past| past.incidents(oldest.as_deref(), span, wanted, left)).await?,
    };
    let incidents = list.iter().map(AsRef::as_ref).chain(&older).collect();
    Ok(Json(Incidents { incidents }).into_response())
}

fn not_found(id: &str) -> Problem {
    Problem(
        StatusCode::NOT_FOUND,
        format!("no incident {id}; GET /api/v1/incidents lists those that are kept"),
    )
}

async fn incident(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let found = lock(&app.shown.store).get(&id);
    if let Some((incident, _)) = found {
        return Ok(Json(incident.as_ref()).into_response());
    }
    let wanted = id.clone();
    let (incident, _) = app.past(move |past| past.incident(&wanted)).await?.ok_or_else(|| not_found(&id))?;
    Ok(Json(incident).into_response())
}

async fn incident_timeline(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
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

async fn topology(State(app): State<App>) -> Response {
    let view = Arc::clone(&lock(&app.shown.topology));
    Json(view.as_ref()).into_response()
}

async fn congestion(State(app): State<App>) -> Response {
    let view = Arc::clone(&lock(&app.shown.congestion));
    Json(view.as_ref()).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdviceQuery {
    /// Only listeners of this host.
    host: Option<String>,
}

async fn advice(State(app): State<App>, Query(q): Query<AdviceQuery>) -> Result<Response, Problem> {
    let sizing = Arc::clone(&app.sizing);
    // It may have to be worked out first. Who asks meanwhile waits without a thread, and takes what the first one got.
    let _one = app.asking.lock().await;
    let work = tokio::task::spawn_blocking(move || sizing.advice());
    let ended = |_| Problem(StatusCode::SERVICE_UNAVAILABLE, "the collector is stopping".into());
    let view = work.await.map_err(ended)?;
    let Some(host) = q.host else { return Ok(Json(view.as_ref()).into_response()) };
    let of_host = AdviceView {
        tiers: view.tiers.iter().filter(|of| of.host == host).cloned().collect(),
        ..view.as_ref().clone()
    };
    Ok(Json(of_host).into_response())
}

async fn agents(State(app): State<App>) -> Json<serde_json::Value> {
    Json(json!({ "agents": app.registry.view() }))
}

/// What the collector itself suffers from, and the recording that is shown in place of agents; `null`: nothing, none.
async fn status(State(app): State<App>) -> Json<serde_json::Value> {
    Json(json!({ "store_degraded": app.shown.past.health.problem(), "recording": app.recording() }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InventoryQuery {
    start: Option<u64>,
    end: Option<u64>,
    /// "host", "workload", "listener" or "tier"; without: all of them.
    kind: Option<String>,
}

async fn seen(
    State(app): State<App>,
    Query(q): Query<InventoryQuery>,
) -> Result<Json<serde_json::Value>, Problem> {
    let (start, end) = (q.start.unwrap_or(0), q.end.unwrap_or(u64::MAX));
    let seen = app.past(move |past| past.inventory((start, end), q.kind.as_deref(), None)).await?;
    Ok(Json(json!({ "inventory": seen })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    seconds: u64,
}

/// A POST, and JSON: it takes one of few places, so no link and no picture of another page may begin one.
async fn record(State(app): State<App>, Json(q): Json<Record>) -> Result<Response, Problem> {
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

//! The HTTP side: API, live events, metrics and the page. Reads what others keep; changes nothing. Knows no agent protocol. This file owns the routes, what
//! all handlers read, and those handlers that are no more than one answer.

mod events;
mod exposition;
mod fresh;
pub mod front;
pub mod gate;
pub mod hosts;
mod incidents;
mod inventory;
mod login;
mod page;
mod prevention;
mod probes;
mod readers;
mod record;
mod replayed;
mod responses;
pub mod rights;
mod series;
mod shown;
mod traces;
mod turns;
mod untaken;
pub(crate) mod watchdog;

pub use readers::Readers;
pub use replayed::Recording;
pub use shown::Shown;

use crate::alert::stats::Stats;
use crate::clock::Clock;
use crate::counters::Metrics;
use crate::export::Export;
use crate::ingest::feed::Feed;
use crate::ingest::registry::Registry;
use crate::live::series::Series;
use crate::lock::lock;
use crate::prevent::Preventions;
use crate::sizing::Sizing;
use crate::sla::Sla;
use crate::store::Past;
use crate::traces::Traces;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tailwater_model::AdviceView;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

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
    sla: Arc<[Sla]>,
    traces: Arc<Traces>,
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
        let (recordings, subscribers) = (
            Arc::new(Semaphore::new(record::RECORDINGS_MAX)),
            Arc::new(Semaphore::new(events::LISTENERS_MAX)),
        );
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
            traces: Arc::default(),
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
    pub fn promising(self, sla: &[Sla]) -> Self {
        Self { sla: sla.into(), ..self }
    }

    /// With the spans that this holds.
    #[must_use]
    pub fn tracing(self, traces: Arc<Traces>) -> Self {
        Self { traces, ..self }
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
            .route("/api/v1/incidents", get(incidents::incidents))
            .route("/api/v1/incidents/{id}", get(incidents::incident))
            .route("/api/v1/incidents/{id}/timeline", get(incidents::timeline))
            .route("/api/v1/incidents/{id}/prevention", get(prevention::of_incident))
            .route("/api/v1/incidents/{id}/traces", get(traces::of_incident))
            .route("/api/v1/topology", get(topology))
            .route("/api/v1/congestion", get(congestion))
            .route("/api/v1/advice", get(advice))
            .route("/api/v1/hosts/{host}", get(inventory::host))
            .route("/api/v1/now", get(inventory::now))
            .route("/api/v1/series", get(series::series))
            .route("/api/v1/responses", get(responses::responses))
            .route("/api/v1/agents", get(agents))
            .route("/api/v1/status", get(status))
            .route("/api/v1/inventory", get(inventory::seen))
            .route("/api/v1/live", get(events::live))
            .route("/api/v1/record", post(record::record))
            .route("/metrics", get(exposition::metrics))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(probes::ready))
            .route("/livez", get(probes::live_still))
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
        stealing: view.stealing.iter().filter(|of| of.host == host).cloned().collect(),
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

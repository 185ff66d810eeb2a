//! `tailwater serve`: builds the parts, connects them, and takes them down in order on SIGTERM. Owns the grace periods, which
//! add up to less than 5 s, and to less than half a minute where windows that agents need not send again are not on the disk yet; knows
//! none of the parts' insides.

use super::driver;
use super::machine;
use super::recording;
use crate::access::attempts::{Attempts, Fruitless};
use crate::access::role::Who;
use crate::access::tokens::Tokens;
use crate::alert;
use crate::alert::silences::Silences;
use crate::alert::stats::Stats;
use crate::authority::signer::Authority;
use crate::clock::Clock;
use crate::counters::Metrics;
use crate::export::{self, Export};
use crate::ingest::delivery_log::{InMemory, Offset, Reader};
use crate::ingest::feed::QUEUE_MAX;
use crate::ingest::listen::{self, Listener};
use crate::ingest::local::Local;
use crate::ingest::registry::Registry;
use crate::ingest::service::Ingest;
use crate::ingest::tls::{AgentsTls, HostIdentity, TlsFiles};
use crate::live::events::Events;
use crate::live::series::Series;
use crate::lock::lock;
use crate::run::config::Config;
use crate::run::endpoint::Endpoint;
use crate::run::outlet::{self, Outlet};
use crate::run::provisional::Provisionals;
use crate::serve::front::{Front, HttpTlsFiles};
use crate::serve::gate::{Gate, Rules};
use crate::serve::{App, Readers, Shown, watchdog};
use crate::sizing::Sizing;
use crate::store;
use crate::traces::{self, Traces};
use anyhow::{Context, Result, anyhow};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tailwater_analysis::Pipeline;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Streams end and HTTP answers finish within this.
const STREAMS_WITHIN: Duration = Duration::from_millis(1000);
/// The analysis works off its queue within this, or is waited for ([`OWED_WITHIN`]).
const ANALYSIS_WITHIN: Duration = Duration::from_millis(700);
/// Alerts that are being sent get this long.
const ALERTS_WITHIN: Duration = Duration::from_millis(1000);
/// The disk has taken what the last minute brought within this, or is waited for ([`OWED_WITHIN`]).
const DISK_WITHIN: Duration = Duration::from_millis(1000);
/// Longer than the two above is each waited for where it still holds windows that were acknowledged: nobody else has them. A disk beside a
/// backup takes seconds for each sync; one that hangs is left after this, before systemd (`TimeoutStopSec`) or Kubernetes end the process.
const OWED_WITHIN: Duration = Duration::from_secs(10);
/// Metrics and records that wait to be sent get this long.
const SENDERS_WITHIN: Duration = Duration::from_millis(800);

/// Open files that a collector needs beside one for each agent: readers' connections and its own.
const FILES_BESIDE: usize = crate::serve::front::CONNECTIONS_MAX + 200;

pub(crate) async fn bind(what: &str, address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("listen on {address} for {what}\n  remedy: stop what listens there, or choose another address with --{what}")
    })
}

/// How agents of other machines prove who they are.
fn agents_tls(config: &Config, clock: Clock) -> Result<Option<AgentsTls>> {
    let files = config.tls.as_ref().map(TlsFiles::load).transpose()?;
    let open = |authority| Authority::open(authority, &config.data, clock);
    let authority = config.authority.as_ref().map(open).transpose()?;
    if files.is_some() && authority.is_some() {
        tracing::warn!(
            "[tls] is taken beside [authority], for a time: agents with its certificates are let in, but for hosts that have joined. Who has not joined yet is in \
             /api/v1/agents (identity) and tailwater_agent_identity; when nobody is left, remove [tls]"
        );
    } else if config.tls.as_ref().is_some_and(|tls| tls.host_identity == HostIdentity::Any) {
        tracing::warn!(
            "any agent that [tls] ca lets in may speak for any host: let each join ([authority]), or, where each has a certificate of its own, set host_identity = \"certificate\""
        );
    }
    Ok(AgentsTls::of(files, authority))
}

/// The HTTP side as configured: who may come in, by which names, with which certificate.
fn front(config: &Config, metrics: &Arc<Metrics>, clock: Clock) -> Result<Front> {
    let tls = config.http_tls.as_ref().map(HttpTlsFiles::load).transpose()?;
    let tokens = Tokens::load(config.token_file())?;
    let rules = Rules {
        tokens: Some(tokens),
        always: config.tokens_always(),
        proxy: config.access.proxy.clone(),
        tls: tls.is_some(),
        port: config.http.port(),
    };
    let gate = Arc::new(Gate::new(rules, Arc::clone(metrics), clock));
    let elsewhere = !config.http.ip().is_loopback();
    if elsewhere && !gate.wanted() {
        tracing::warn!(
            "whoever reaches {} sees everything, and may silence alerts and send them again: make tokens (`tailwater token create NAME`) unless something before it asks who they are",
            config.http
        );
    } else if elsewhere && tls.is_none() {
        tracing::warn!(
            "tokens come to {} in the clear: add [http_tls], unless a proxy on the way ends TLS",
            config.http
        );
    }
    Ok(Front { gate, names: config.http_hosts.clone(), tls, metrics: Arc::clone(metrics) })
}

/// The name of whoever asks over HTTP; empty where no token is wanted.
fn asker(of: &axum::http::Extensions) -> String {
    of.get::<Who>().map(|who| who.name.clone()).unwrap_or_default()
}

/// Runs until `stop` is cancelled.
pub async fn run(config: Config, stop: CancellationToken) -> Result<()> {
    let clock = Clock::default();
    let metrics = Arc::new(Metrics::default());
    outlet::begin(&metrics);
    let grpc = match &config.grpc {
        Endpoint::Tcp(address) => Listener::Tcp(bind("grpc", *address).await?),
        Endpoint::Unix(path) => Listener::Local(Local::bind(path)?),
    };
    let http = bind("http", config.http).await?;
    let front = front(&config, &metrics, clock)?;
    let tls = agents_tls(&config, clock)?;
    if !config.agents.is_empty() && tls.is_none() && matches!(config.grpc, Endpoint::Tcp(_)) {
        tracing::warn!(
            "[[agents]] is sent and not taken: an agent does what it is asked by a collector that proves who it is. Let grpc be a socket (unix://), or add [authority] or [tls]"
        );
    }
    // Files, sockets of readers and receivers stand beside the agents' connections.
    let files = machine::raise_file_limit();
    if let Some(files) =
        files.filter(|files| (*files as usize) < config.agents_max.saturating_add(FILES_BESIDE))
    {
        let (agents, beside) = (config.agents_max, FILES_BESIDE);
        tracing::warn!(
            "{files} open files are allowed, too few for agents_max = {agents} and {beside} others: raise the limit (LimitNOFILE of its unit, ulimit -n)"
        );
    }
    let minute_mib_max = match config.series_minute_mib_max {
        0 => machine::memory_bytes().map_or(0, |bytes| usize::try_from(bytes >> 22).unwrap_or(0)),
        set => set,
    };
    let series = Series::new(config.series_minutes, config.series_mib_max << 20);
    let series = Arc::new(Mutex::new(series.with_minute(minute_mib_max << 20)));
    let topology = Arc::default();
    let live = Events::default();
    let opened = store::open(
        config.store_settings(),
        Arc::clone(&series),
        Arc::clone(&topology),
        live.clone(),
        Arc::clone(&metrics),
        clock,
    )?;
    let store_thread = opened.thread;
    let shown =
        Shown { store: opened.store, past: opened.past, series, topology, congestion: Arc::default(), live };
    let (alerts_stats, export) = (Arc::<Stats>::default(), Arc::<Export>::default());
    let sizing = Arc::new(Sizing::new(Arc::clone(&shown.topology), clock));
    let traces = Traces::new(config.traces.clone(), clock);
    let hooks = alert::config::names(&config.hook);
    let silences = Arc::new(Silences::open(&config.silence, hooks, &config.data, clock)?);
    let (alerts, alerts_handle, alerts_task) = alert::start(
        &config.hook,
        &silences,
        config.outbox,
        &config.data,
        &opened.open_before,
        &alerts_stats,
        clock,
    )?;
    let outlet = Outlet {
        shown: shown.clone(),
        metrics: Arc::clone(&metrics),
        export: Arc::clone(&export),
        sizing: Arc::clone(&sizing),
        traces: Arc::clone(&traces),
        alerts,
        provisionals: Provisionals::default(),
    };
    let pipeline = config.pipeline();
    let pipeline_toml = toml::to_string(&pipeline).context("configuration for recordings")?;
    let shutdown = CancellationToken::new();
    let tasks = TaskTracker::new();
    let (telling, stats) = (Arc::clone(&export), &export.writes);
    // Senders end last: until the analysis and the export thread are done there is something to tell.
    let (senders, senders_stop) = (TaskTracker::new(), CancellationToken::new());
    let write =
        export::write::start(&config.remote_write, stats, shown.live.subscribe(), &senders, &senders_stop)?;
    let start_otlp =
        |table| export::otlp::start(table, &telling, shown.live.subscribe(), &senders, &senders_stop, clock);
    let otlp = config.otlp.as_ref().map(start_otlp).transpose()?.unwrap_or_default();
    let sinks = export::Sinks { write, otlp: otlp.sink };
    let reads = export::Reads {
        series: Arc::clone(&shown.series),
        topology: Arc::clone(&shown.topology),
        sla: config.sla.as_slice().into(),
    };
    let export_thread = telling.start(&config.metrics, reads, sinks, clock)?;
    let sizing_thread = sizing.start(config.data.clone())?;
    let log = Reader::new(Arc::new(InMemory::new(QUEUE_MAX)), Offset::default());
    let (feed, analysis) = driver::start(log, Pipeline::new(pipeline), pipeline_toml, outlet, clock)?;
    let mut record_thread = None;
    if let Some(path) = &config.record {
        let (tap, thread) = recording::to_file(path)?;
        feed.tap(tap);
        record_thread = Some(thread);
    }

    let registry = Arc::new(Registry::new(config.agents_max));
    let ingest = Arc::new(Ingest {
        registry: Arc::clone(&registry),
        feed: feed.clone(),
        metrics: Arc::clone(&metrics),
        clock,
        agent_queue: config.agent_queue,
        agents: config.agents.clone(),
        attempts: Attempts::default(),
        fruitless: Fruitless::default(),
        shutdown: shutdown.clone(),
        tasks: tasks.clone(),
    });
    tasks.spawn(listen::serve(grpc, tls, ingest, config.agents_max));
    let alive = Arc::new(AtomicBool::new(true));
    let app = App::new(shown.clone(), registry, metrics, feed.clone(), Arc::clone(&alive), shutdown.clone())
        .telling(alerts_stats, export)
        .advising(Arc::clone(&sizing))
        .tracing(Arc::clone(&traces))
        .promising(&config.sla);
    if let Some(own) = otlp.own {
        let of = app.clone();
        senders.spawn(own.run(move || of.own_metrics()));
    }
    let kept = Arc::clone(&shown.store);
    let find: alert::api::Find = Arc::new(move |id: &str| Some(lock(&kept).get(id)?.0));
    let routes = app.routes().merge(alert::api::routes(alerts_handle, asker, find));
    let routes = routes.merge(traces::routes(Arc::clone(&traces)));
    let tokens = if front.gate.wanted() { "wanted" } else { "none wanted" };
    // Until the end of this function: what a reader has begun ends with its grace period.
    let readers = Readers::start().context("threads of readers")?;
    let answered = readers.spawn(front.serve(http, routes, shutdown.clone()));
    // Beside the readers: looking for traces may take some milliseconds, for which no stream of an agent is to wait.
    let queue = Arc::clone(&shown.past.queue);
    let looked = readers.spawn(traces::keep(traces, shutdown.clone(), move |kept| queue.traces(kept)));
    tasks.spawn(async move {
        if let Err(e) = looked.await {
            tracing::error!("the task that looks for traces ended by itself: {e}");
        }
    });
    tasks.spawn(async move {
        if let Err(e) = answered.await {
            tracing::error!("the HTTP side ended by itself: {e}");
        }
    });
    tracing::info!(grpc = %config.grpc, http = %config.http, tokens, data = %config.data.display(), "ready");
    // Not started by systemd: nobody to notify.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tasks.spawn(watchdog::keep_telling(feed.clone(), shutdown.clone()));

    let mut analysis = tokio::task::spawn_blocking(move || analysis.join());
    let died = tokio::select! {
        () = stop.cancelled() => None,
        ended = &mut analysis => Some(ended),
    };
    alive.store(false, Ordering::Relaxed);
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    tracing::info!("stopping");
    shutdown.cancel();
    tasks.close();
    late("streams", tokio::time::timeout(STREAMS_WITHIN, tasks.wait()).await.is_err());
    if died.is_none() {
        let stopper = feed.clone();
        let stopped = tokio::task::spawn_blocking(move || stopper.stop());
        let ended = async {
            stopped.await.ok();
            analysis.await.ok();
        };
        owed("analysis", ANALYSIS_WITHIN, ended).await;
    }
    late("alerts", tokio::time::timeout(ALERTS_WITHIN, alerts_task).await.is_err());
    shown.store.lock().unwrap_or_else(PoisonError::into_inner).close();
    telling.close();
    sizing.close();
    let written = tokio::task::spawn_blocking(move || {
        store_thread.join().ok();
        export_thread.join().ok();
        sizing_thread.join().ok();
        if let Some(thread) = record_thread {
            thread.join().ok();
        }
    });
    owed("disk", DISK_WITHIN, written).await;
    senders_stop.cancel();
    senders.close();
    late("metrics sent elsewhere", tokio::time::timeout(SENDERS_WITHIN, senders.wait()).await.is_err());
    match died {
        Some(_) => Err(anyhow!("the analysis ended by itself: this is a bug; the log above says where")),
        None => Ok(()),
    }
}

/// Waits for what still has windows that agents need not send again: `usual` without a word, [`OWED_WITHIN`] with one.
async fn owed<W: Future>(what: &str, usual: Duration, work: W) {
    let mut work = std::pin::pin!(work);
    if tokio::time::timeout(usual, &mut work).await.is_ok() {
        return;
    }
    let most = OWED_WITHIN.as_secs();
    tracing::warn!("the {what} is slow: what it has not taken yet is waited for, {most} s at the most");
    if tokio::time::timeout(OWED_WITHIN, work).await.is_err() {
        tracing::error!(
            "the {what} did not end: windows of up to the last minute were acknowledged and may be lost"
        );
    }
}

fn late(what: &str, late: bool) {
    if late {
        tracing::warn!("{what} not done within the grace period");
    }
}

//! One row: a collector, a fleet of agents and readers, measured for some seconds after they have settled. Owns the order of things and
//! what is measured between which moments; knows no table.

use super::agent::{Away, Shared, live};
use super::certificates::Authority;
use super::clock::SimClock;
use super::collector::{Measured, own_cpu};
use super::counted::Counted;
use super::fleet::Fleet;
use super::heard::{Heard, judge};
use super::readers::{Read, Readers};
use super::script::{Script, WINDOW_NS};
use super::size::Size;
use crate::bench::steal::Steal;
use crate::os::process::raise_file_limit;
use crate::programs::webhook_receiver::WebhookReceiver;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Recordings that applications tell in turn: a neighbour takes the database's CPU, its disk is busy, the application server's quota is cut. Before
/// their episodes few requests are in flight: a burst among what is told again every two seconds would be an incident each time.
const CELLS: [&str; 3] = ["nx0-db-cpu", "nx0-db-io", "nx0-app-squeeze"];
/// Agents connect one after the other, this many a second.
const CONNECTS_A_SECOND: u64 = 200;
/// After what is measured the fleet lives on, so that the last episodes are told.
const TOLD_WITHIN: Duration = Duration::from_secs(6);

/// An agent that is not back by then is not waited for.
const BACK_WITHIN: Duration = Duration::from_secs(40);
/// A collector that is told to end has ended by then.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// What a row is of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Simulated agents.
    pub agents: usize,
    /// How large their hosts are.
    pub size: Size,
    /// Windows of one of their batches.
    pub per_batch: u64,
    /// Who reads meanwhile.
    pub readers: Readers,
    /// How many times slower than the machine's the fleet's time runs.
    pub slower: u32,
    /// Seconds of the fleet's time before anything is measured.
    pub warm_s: u64,
    /// Measured seconds of the fleet's time.
    pub seconds: u64,
    /// Further arguments of the collector.
    pub collector: Vec<String>,
    /// Where logs stay.
    pub folder: PathBuf,
}

/// What was measured. Ratios are of one CPU, and per second of the fleet's time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it, with their units; results.rs says it in words")]
pub struct Row {
    pub agents: usize,
    #[serde(default)]
    pub size: Size,
    #[serde(default = "per_batch_before")]
    pub per_batch: u64,
    pub pages: u32,
    #[serde(default)]
    pub readers: Option<Readers>,
    pub slower: u32,
    pub seconds: u64,
    pub collector_cpu_ratio: f64,
    pub in_cgroup: bool,
    pub generator_cpu_ratio: f64,
    pub stolen_ratio: f64,
    pub resident_bytes: u64,
    pub resident_before_bytes: u64,
    pub series_bytes: Option<f64>,
    pub connected: u64,
    pub refused: u64,
    pub batches: u64,
    pub batches_refused: u64,
    pub batches_lost: u64,
    pub unacknowledged: u64,
    pub reasons: BTreeMap<String, u64>,
    pub late_p99_ms: Option<f64>,
    pub acknowledged_p50_ms: Option<f64>,
    pub acknowledged_p99_ms: Option<f64>,
    pub frame_p50_ms: Option<f64>,
    pub frame_p99_ms: Option<f64>,
    pub read_p50_ms: Option<f64>,
    pub read_p99_ms: Option<f64>,
    pub read_failed: u64,
    pub read_asked: u64,
    #[serde(default)]
    pub others_failed: u64,
    #[serde(default)]
    pub greedy_answered: u64,
    pub heard: Heard,
    /// All connections at once, by the agents' own doing.
    #[serde(default)]
    pub storm: Option<Return>,
    /// All connections at once, for the collector ended and another took its place.
    #[serde(default)]
    pub restart: Option<Return>,
}

/// Of rows that were made before it was told.
fn per_batch_before() -> u64 {
    2
}

/// How agents came back whose connections all went at once. An agent is back when a batch that it measured after that is acknowledged, and so
/// all before it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it, with their units; results.rs says it in words")]
pub struct Return {
    pub back: u64,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub refused: u64,
    pub batches_refused: u64,
    pub batches_lost: u64,
    /// Since the collector was told to end until the one after it was ready.
    pub ready_ms: Option<f64>,
}

impl Row {
    /// CPU of the collector for each agent, of one core.
    #[must_use]
    pub fn cpu_per_agent(&self) -> f64 {
        self.collector_cpu_ratio / self.agents as f64
    }

    /// Memory for each agent, without what an idle collector has, bytes.
    #[must_use]
    pub fn bytes_per_agent(&self) -> f64 {
        self.resident_bytes.saturating_sub(self.resident_before_bytes) as f64 / self.agents as f64
    }
}

/// Measures a row.
pub fn measure(plan: &Plan) -> Result<Row> {
    // Each agent has a connection, at both ends.
    let files = raise_file_limit()?;
    anyhow::ensure!(
        files >= 2 * plan.agents + 200,
        "{files} open files are too few for {} agents: raise the limit (ulimit -n)",
        plan.agents
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let row = runtime.block_on(measured(plan));
    runtime.shutdown_timeout(Duration::from_secs(2));
    row
}

fn scripts(size: Size) -> Result<Vec<Arc<Script>>> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    CELLS.iter().map(|cell| Ok(Arc::new(Script::load(&golden, cell, size)?))).collect()
}

async fn measured(plan: &Plan) -> Result<Row> {
    std::fs::create_dir_all(&plan.folder)?;
    let authority = Authority::new(&plan.folder)?;
    let receiver = WebhookReceiver::start()?;
    let clock = SimClock::new(plan.slower);
    let collector = Measured::start(&plan.folder, clock, &receiver.url(), &plan.collector)?;
    let resident_before_bytes = collector.resident()?;

    let scripts = scripts(plan.size)?;
    let fleet =
        Fleet::new(plan.agents, plan.size, &scripts, clock.unix_ns() / WINDOW_NS + 20, plan.per_batch);
    let (first_window, second) = (fleet.first_window(), 1_000_000_000 / WINDOW_NS);
    let (stop, stopped) = watch::channel(false);
    let (storm, storms) = watch::channel(0);
    let keys: Vec<_> = fleet.hosts.iter().map(|host| authority.agent(&host.name)).collect::<Result<_>>()?;
    let shared = Arc::new(Shared {
        fleet,
        clock,
        collector: collector.grpc,
        counted: Counted::default(),
        stop: stopped,
        storm: storms,
        away: Away::default(),
    });
    let mut tasks = tokio::task::JoinSet::new();
    for (number, tls) in keys.into_iter().enumerate() {
        let shared = Arc::clone(&shared);
        tasks.spawn(async move {
            let begins = Duration::from_nanos(number as u64 * 1_000_000_000 / CONNECTS_A_SECOND);
            tokio::time::sleep(clock.long(begins)).await;
            live(shared, number, tls).await;
        });
    }
    let read = Arc::new(Read::default());
    let hosts: Vec<String> = shared.fleet.hosts.iter().map(|host| host.name.clone()).collect();
    let mut readers = plan.readers.begin(collector.http, clock, &hosts, &read);
    let connecting = plan.agents as u64 / CONNECTS_A_SECOND + 1;
    tokio::time::sleep(clock.long(Duration::from_secs(plan.warm_s + connecting))).await;

    shared.counted.begin();
    read.answers.clear();
    let frames_before = frames(&collector.metrics()?);
    let (steal, began) = (Steal::begin()?, clock.unix_ns());
    let (cpu, own) = (collector.cpu()?, own_cpu()?);
    tokio::time::sleep(clock.long(Duration::from_secs(plan.seconds))).await;
    let (cpu, own) = (collector.cpu()?.saturating_sub(cpu), own_cpu()?.saturating_sub(own));
    let took = Duration::from_nanos(clock.unix_ns() - began);
    let stolen_ratio = steal.ratio()?;
    let resident_bytes = collector.resident()?;
    let counted = &shared.counted;
    let (late, acknowledged) = (&counted.late, &counted.acknowledgement);
    let (late_p99_ms, acknowledged_p50_ms, acknowledged_p99_ms) =
        (late.ms(0.99), acknowledged.ms(0.5), acknowledged.ms(0.99));
    let (read_p50_ms, read_p99_ms) = (read.answers.ms(0.5), read.answers.ms(0.99));
    let metrics = collector.metrics()?;
    let frames = since(&frames_before, &frames(&metrics));
    let series_bytes = value(&metrics, "tailwater_series_bytes");

    // An episode whose drops are over when the measurement ends is told soon after.
    let ended = clock.unix_ns() / WINDOW_NS;
    let longest = scripts.iter().map(|script| script.episode_windows()).max().unwrap_or(0);
    if shared.fleet.episodes(first_window..ended.saturating_sub(longest)).is_empty() {
        // A short run waits for its first one.
        let first = shared.fleet.episodes(first_window..first_window + 60 * second);
        let first = first.first().context("a fleet has episodes in its first minute")?;
        let left = Duration::from_nanos((first.window + longest).saturating_sub(ended) * WINDOW_NS);
        tokio::time::sleep(clock.long(left)).await;
    }
    let ended = clock.unix_ns() / WINDOW_NS;
    let episodes = shared.fleet.episodes(first_window..ended.saturating_sub(longest) + 1);
    tokio::time::sleep(clock.long(TOLD_WITHIN)).await;
    let incidents = collector.json("/api/v1/incidents?limit=10000")?;
    let incidents = incidents.get("incidents").unwrap_or(&incidents).as_array().cloned().unwrap_or_default();
    let heard = judge(&shared.fleet, clock, &episodes, &receiver.deliveries(), &incidents);
    let (connected, refused) = (Counted::get(&counted.connected), Counted::get(&counted.refused));
    let unacknowledged = || {
        // In this order: what is sent between the two is on its way.
        let done = [&counted.acknowledged, &counted.batches_refused, &counted.lost].map(Counted::get);
        Counted::get(&counted.batches).saturating_sub(done.iter().sum())
    };
    // Each agent sends ten times a second, and is answered up to 200 ms later: of each, two are always on their way.
    let until = after(clock, TOLD_WITHIN);
    let mut left = unacknowledged();
    while left > 2 * plan.agents as u64 && clock.unix_ns() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
        left = unacknowledged();
    }
    let batches = Counted::get(&counted.batches);
    let (batches_refused, lost) = (Counted::get(&counted.batches_refused), Counted::get(&counted.lost));
    let (reasons, in_cgroup) = (counted.reasons(), collector.in_group());
    readers.shutdown().await;
    let stormed = returned(&shared, plan, || {
        shared.away.begin(clock.unix_ns());
        storm.send_modify(|number| *number += 1);
        Ok(None)
    });
    let stormed = stormed.await?;
    let mut again = None;
    let restarted = returned(&shared, plan, || {
        let told = clock.unix_ns();
        let ports = collector.end(clock.long(ENDS_WITHIN))?;
        // Now that the old one acknowledges nothing any more.
        shared.away.begin(told);
        again = Some(Measured::start_at(&plan.folder, clock, &receiver.url(), &plan.collector, ports)?);
        Ok(Some((clock.unix_ns() - told) as f64 / 1e6))
    });
    let restarted = restarted.await?;
    // Nobody may have waited any more: then all are gone.
    let _ = stop.send(true);
    while tasks.join_next().await.is_some() {}
    let seconds = took.as_secs_f64();
    Ok(Row {
        agents: plan.agents,
        size: plan.size,
        per_batch: plan.per_batch,
        pages: plan.readers.pages,
        readers: Some(plan.readers),
        slower: plan.slower,
        seconds: plan.seconds,
        collector_cpu_ratio: cpu.as_secs_f64() / seconds,
        in_cgroup,
        generator_cpu_ratio: own.as_secs_f64() / seconds,
        stolen_ratio,
        resident_bytes,
        resident_before_bytes,
        series_bytes,
        connected,
        refused,
        batches,
        batches_refused,
        batches_lost: lost,
        unacknowledged: left,
        reasons,
        late_p99_ms,
        acknowledged_p50_ms,
        acknowledged_p99_ms,
        frame_p50_ms: bucket(&frames, 0.5),
        frame_p99_ms: bucket(&frames, 0.99),
        read_p50_ms,
        read_p99_ms,
        read_failed: Counted::get(&read.failed),
        read_asked: Counted::get(&read.asked),
        others_failed: Counted::get(&read.others_failed),
        greedy_answered: Counted::get(&read.greedy),
        heard,
        storm: Some(stormed),
        restart: Some(restarted),
    })
}

/// The moment after so long from now, Unix ns.
fn after(clock: SimClock, long: Duration) -> u64 {
    clock.unix_ns().saturating_add(u64::try_from(long.as_nanos()).unwrap_or(u64::MAX))
}

/// All connections go with `begin`, which says how long a collector was away; waits until all agents are back, or for no longer than that
/// may last.
async fn returned(
    shared: &Shared,
    plan: &Plan,
    begin: impl FnOnce() -> Result<Option<f64>>,
) -> Result<Return> {
    let counted = &shared.counted;
    let values = || [&counted.refused, &counted.batches_refused, &counted.lost].map(Counted::get);
    let before = values();
    counted.back.store(0, std::sync::atomic::Ordering::Relaxed);
    counted.back_after.clear();
    let ready_ms = begin()?;
    let give_up = after(shared.clock, BACK_WITHIN);
    while Counted::get(&counted.back) < plan.agents as u64 && shared.clock.unix_ns() < give_up {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let [refused, batches_refused, batches_lost] =
        std::array::from_fn(|n| values()[n].saturating_sub(before[n]));
    Ok(Return {
        back: Counted::get(&counted.back),
        p50_ms: counted.back_after.ms(0.5),
        p99_ms: counted.back_after.ms(0.99),
        refused,
        batches_refused,
        batches_lost,
        ready_ms,
    })
}

/// A value on `/metrics` that has no labels.
fn value(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Buckets of the time from a window's end to its frame: upper bound in ms, and how many are not beyond it.
fn frames(metrics: &str) -> Vec<(f64, f64)> {
    let bucket = |line: &str| {
        let rest = line.strip_prefix("tailwater_frame_seconds_bucket{le=\"")?;
        let (bound, count) = rest.split_once("\"} ")?;
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse::<f64>().ok()? * 1e3 };
        Some((bound, count.trim().parse().ok()?))
    };
    metrics.lines().filter_map(bucket).collect()
}

fn since(before: &[(f64, f64)], after: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let known = |bound: f64| before.iter().find(|(b, _)| *b == bound).map_or(0.0, |(_, count)| *count);
    after.iter().map(|(bound, count)| (*bound, count - known(*bound))).collect()
}

/// The upper bound of the bucket that a part of all lies in; `None` without any.
fn bucket(buckets: &[(f64, f64)], part: f64) -> Option<f64> {
    let all = buckets.last()?.1;
    (all > 0.0).then(|| buckets.iter().find(|(_, count)| *count >= all * part).map(|(bound, _)| *bound))?
}

//! What others' monitoring gets of the 50 ms windows: roll-ups on `/metrics`, remote write and OTLP. A thread of its own takes windows from
//! a bounded queue, so neither a scraper nor a receiver is ever on the ingest path. This file owns the queue, the thread and the last half
//! minute of windows; `signals` says what there is, `rows` which labels, `rollup` how windows become a second, `responses` what tiers answered by
//! response time, `write` and `otlp` how they are sent, `queue` what waits for a receiver, and `receiver` what is counted of one.

pub mod otlp;
pub mod queue;
pub mod receiver;
mod responses;
pub mod rollup;
pub mod rows;
pub mod signals;
pub mod write;

use crate::clock::Clock;
use crate::counters::Counter;
use crate::live::series::Series;
use crate::live::waiting::WindowQueue;
use crate::live::windows::size_of;
use crate::lock::lock;
use crate::sla::{self, Sla};
use rows::{Labels, Room, Rows, Tier};
use serde::{Deserialize, Serialize};
use signals::Level;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tailwater_model::TopologyView;
use tailwater_model::window::{Coverage, HostWindow, Input, WINDOW_NS, WindowIndex};

/// Windows in a second.
pub const PER_SECOND: u64 = 1_000_000_000 / WINDOW_NS;
/// Memory of windows that wait for the thread, about; they mostly are those that the series hold too.
const QUEUE_BYTES_MAX: usize = 32 << 20;
/// Windows of a host that are held: 30 s before an incident, and the time until it is known.
const HISTORY_WINDOWS: u64 = 45 * PER_SECOND;
/// And their memory, all hosts, about; beyond it each host keeps `FLOOR_WINDOWS`. They mostly are those that the series hold too.
const HISTORY_BYTES_MAX: usize = 256 << 20;
/// What roll-ups and remote write need at least.
const FLOOR_WINDOWS: usize = 4 * PER_SECOND as usize;
/// Hosts that went away are looked for once a minute.
const SWEEP_WINDOWS: u64 = 60 * PER_SECOND;
/// A host whose newest window is older says nothing about now.
const STALE_NS: u64 = 5_000_000_000;
/// Most seconds of one roll-up.
pub const SECONDS_MAX: u64 = 30;
/// Windows after which it is looked whether an interval is complete.
const TELL_EVERY: usize = 10 * PER_SECOND as usize;
/// How often the thread looks into its queue.
const TAKE_EVERY: Duration = Duration::from_millis(100);

/// Bounds of what `/metrics` and remote write tell apart: the `[metrics]` table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bounds {
    /// Workloads, listeners, called addresses and devices of one host, of each that many; the rest is one `~other`.
    pub per_host_max: usize,
    /// All of them, all hosts.
    pub rows_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { per_host_max: 64, rows_max: 8192 }
    }
}

/// Where names and tiers of what is told come from, and what is asked of them.
#[derive(Debug, Clone)]
pub struct Reads {
    /// Windows in memory.
    pub series: Arc<Mutex<Series>>,
    /// Who calls whom.
    pub topology: Arc<Mutex<Arc<TopologyView>>>,
    /// Within how long tiers are to answer.
    pub sla: Arc<[Sla]>,
}

#[derive(Debug, Default)]
struct Queue {
    windows: WindowQueue,
    coverage: BTreeMap<String, Coverage>,
    open: bool,
}

/// One host as it is told.
#[derive(Debug, Default)]
pub struct HostState {
    /// What its agent measures.
    pub coverage: Coverage,
    /// The newest windows, in order.
    pub history: VecDeque<Arc<HostWindow>>,
    /// Its rows.
    pub rows: Rows,
}

/// All hosts as they are told.
#[derive(Debug)]
pub struct State {
    /// By name.
    pub hosts: BTreeMap<String, HostState>,
    /// Tier of a workload of a host.
    pub tiers: BTreeMap<(String, String), String>,
    history_bytes: usize,
    history_bytes_max: usize,
    room: Room,
    responses: responses::Tiers,
    sla: Arc<[Sla]>,
    swept: u64,
    topology: Option<Arc<TopologyView>>,
}

impl State {
    /// Empty.
    #[must_use]
    pub fn new(bounds: &Bounds) -> Self {
        let room = Room { per_host_max: bounds.per_host_max, rows_max: bounds.rows_max, rows: 0 };
        Self {
            hosts: BTreeMap::new(),
            tiers: BTreeMap::new(),
            history_bytes: 0,
            history_bytes_max: HISTORY_BYTES_MAX,
            room,
            responses: responses::Tiers::default(),
            sla: Arc::default(),
            swept: 0,
            topology: None,
        }
    }

    /// Held against these rules.
    #[must_use]
    pub fn promising(self, sla: &Arc<[Sla]>) -> Self {
        Self { sla: Arc::clone(sla), ..self }
    }

    /// Takes the next window of a host. Says whether it came in order: one that is late moves counters only.
    pub fn window(&mut self, window: &Arc<HostWindow>, labels: impl FnOnce() -> Labels) -> bool {
        self.sweep(window.index.0);
        let host = self.hosts.entry(window.host.clone()).or_default();
        host.rows.window(window, &mut self.room, labels);
        for (id, listener) in &window.listeners {
            let counts = window.responses.of(*id);
            // Of an answer that was counted before, the end may come in a window without another.
            if counts.is_empty()
                && [listener.late, listener.very_late].iter().all(|n| n.is_none_or(|n| n == 0))
            {
                continue;
            }
            // As `requests_answered` has them: of a listener that has a row, and whose requests are known. Where nothing was answered, what is left
            // is the late end of an answer of before, and what came meanwhile on connections with several exchanges says nothing of that.
            let Some(turns) = listener.turns().or_else(|| counts.is_empty().then_some(listener)) else {
                continue;
            };
            let Some(row) = host.rows.row_mut(Level::Listener, *id) else { continue };
            let (tiers, sla) = (&self.tiers, &self.sla);
            let (_, workload, listener) = &row.key;
            let tier = row.tier.get_or_insert_with(|| {
                let name = tier_of(tiers, &window.host, workload);
                let within_ns = within_ns(sla, &name, listener);
                Tier { name, within_ns }
            });
            let longer = window.longer_than(turns, tier.within_ns);
            self.responses.add(tier, (counts, longer), turns.response_ns, window.index.0);
        }
        if host.history.back().is_some_and(|newest| newest.index >= window.index) {
            return false;
        }
        host.history.push_back(Arc::clone(window));
        self.history_bytes += size_of(window);
        let oldest = window.index.0.saturating_sub(HISTORY_WINDOWS);
        while let Some(first) = host.history.front() {
            let too_much = self.history_bytes > self.history_bytes_max && host.history.len() > FLOOR_WINDOWS;
            if first.index.0 >= oldest && !too_much {
                break;
            }
            self.history_bytes = self.history_bytes.saturating_sub(size_of(first));
            host.history.pop_front();
        }
        true
    }

    /// A host that has been silent for as long as a row may be idle makes room as a whole.
    fn sweep(&mut self, now: u64) {
        if now.saturating_sub(self.swept) < SWEEP_WINDOWS {
            return;
        }
        self.swept = now;
        let (room, bytes) = (&mut self.room, &mut self.history_bytes);
        self.hosts.retain(|_, host| {
            // One without windows has just said who it is.
            let stays =
                host.history.back().is_none_or(|w| now.saturating_sub(w.index.0) < rows::IDLE_WINDOWS);
            if !stays {
                room.rows = room.rows.saturating_sub(host.rows.own());
                *bytes = bytes.saturating_sub(host.history.iter().map(|w| size_of(w)).sum());
            }
            stays
        });
    }

    /// Takes over who is in which tier.
    pub fn topology(&mut self, view: &Arc<TopologyView>) {
        if self.topology.as_ref().is_some_and(|known| Arc::ptr_eq(known, view)) {
            return;
        }
        self.tiers =
            view.nodes.iter().map(|n| ((n.host.clone(), n.workload.clone()), n.tier.clone())).collect();
        for host in self.hosts.values_mut() {
            host.rows.by_number.values_mut().for_each(|row| row.tier = None);
        }
        self.topology = Some(Arc::clone(view));
    }

    /// Rows, and entities without one of their own.
    #[must_use]
    pub fn cardinality(&self) -> (usize, usize) {
        (self.room.rows, self.hosts.values().map(|h| h.rows.folded.len()).sum())
    }
}

/// The way in, and what is told. One per collector, in its metrics.
#[derive(Debug)]
pub struct Export {
    queue: Mutex<Queue>,
    wake: Condvar,
    state: Mutex<State>,
    /// Windows that were not told because the thread was behind.
    pub windows_dropped: Counter,
    /// Windows that came after later ones of their host: in counters, in no roll-up.
    pub windows_late: Counter,
    /// What remote write counts.
    pub writes: write::stats::Stats,
    /// What OTLP counts.
    pub otlp: otlp::stats::Stats,
}

/// Where windows are sent.
#[derive(Debug)]
pub struct Sinks {
    /// By remote write.
    pub write: write::Sinks,
    /// By OTLP.
    pub otlp: Option<otlp::hosts::Sink>,
}

impl Default for Export {
    fn default() -> Self {
        Self {
            queue: Mutex::default(),
            wake: Condvar::new(),
            state: Mutex::new(State::new(&Bounds::default())),
            windows_dropped: Counter::default(),
            windows_late: Counter::default(),
            writes: write::stats::Stats::default(),
            otlp: otlp::stats::Stats::default(),
        }
    }
}

impl Export {
    /// On the ingest path: never waits. When the thread is behind, the oldest windows go, with a counter.
    pub fn saw(&self, input: &Input, kept: Option<&Arc<HostWindow>>) {
        match (input, kept) {
            (Input::Host(info), _) => {
                lock(&self.queue).coverage.insert(info.host.clone(), info.coverage);
            }
            (_, Some(window)) => {
                let mut queue = lock(&self.queue);
                if queue.open {
                    queue.windows.push(Arc::clone(window), QUEUE_BYTES_MAX, &self.windows_dropped);
                }
            }
            _ => {}
        }
    }

    /// Starts the thread, which ends after [`Export::close`].
    pub fn start(
        self: &Arc<Self>,
        bounds: &Bounds,
        reads: Reads,
        mut sinks: Sinks,
        clock: Clock,
    ) -> std::io::Result<std::thread::JoinHandle<()>> {
        *lock(&self.state) = State::new(bounds).promising(&reads.sla);
        lock(&self.queue).open = true;
        let export = Arc::clone(self);
        std::thread::Builder::new()
            .name("export".into())
            .spawn(move || while export.turn(&reads, &mut sinks, clock.unix_ns()) {})
    }

    /// Nothing more comes.
    pub fn close(&self) {
        lock(&self.queue).open = false;
        self.wake.notify_all();
    }

    /// Bytes that wait for the thread, and at most may.
    #[must_use]
    pub fn fill(&self) -> (usize, usize) {
        (lock(&self.queue).windows.bytes(), QUEUE_BYTES_MAX)
    }

    fn turn(&self, reads: &Reads, sinks: &mut Sinks, now_unix_ns: u64) -> bool {
        let (windows, coverage, open) = {
            let queue = lock(&self.queue);
            let (mut queue, _) = self
                .wake
                .wait_timeout_while(queue, TAKE_EVERY, |q| q.open)
                .unwrap_or_else(PoisonError::into_inner);
            (queue.windows.take(), std::mem::take(&mut queue.coverage), queue.open)
        };
        let topology = Arc::clone(&lock(&reads.topology));
        // Never with the queue's lock: a scrape holds this one while it works.
        let mut state = lock(&self.state);
        state.topology(&topology);
        for (host, coverage) in coverage {
            state.hosts.entry(host).or_default().coverage = coverage;
        }
        for (n, (window, _)) in windows.into_iter().enumerate() {
            let labels = || labels(&reads.series, &window);
            if state.window(&window, labels) {
                sinks.write.window(&state, &window.host, now_unix_ns);
            } else {
                self.windows_late.inc();
            }
            // What an agent kept while it was away may be more than is remembered here.
            if n % TELL_EVERY == TELL_EVERY - 1
                && let Some(otlp) = &mut sinks.otlp
            {
                otlp.turn(&state, now_unix_ns, false);
            }
        }
        sinks.write.turn(&state, open, now_unix_ns);
        if let Some(otlp) = &mut sinks.otlp {
            otlp.turn(&state, now_unix_ns, !open);
        }
        open
    }

    /// Appends the roll-up of the last `seconds` of every host that speaks, as OpenMetrics text.
    pub fn render(&self, out: &mut String, seconds: u64, now_unix_ns: u64) {
        let state = lock(&self.state);
        rollup::render(&state, out, seconds.clamp(1, SECONDS_MAX), now_unix_ns);
    }

    /// Appends response times by tier since the start, as OpenMetrics text.
    pub fn render_responses(&self, out: &mut String) {
        lock(&self.state).responses.render(out);
    }

    /// See [`State::cardinality`].
    #[must_use]
    pub fn cardinality(&self) -> (usize, usize) {
        lock(&self.state).cardinality()
    }
}

/// The tier of a host's workload, or what stands for it.
fn tier_of(tiers: &BTreeMap<(String, String), String>, host: &str, workload: &str) -> Arc<str> {
    if workload == rows::OTHER {
        return Arc::from(rows::OTHER);
    }
    let known = tiers.get(&(host.to_owned(), workload.to_owned()));
    Arc::from(known.map_or(responses::UNKNOWN, String::as_str))
}

/// Within how long a listener of a tier is to answer, ns. What is told together as `~other` has no port, so only rules without one hold for it.
fn within_ns(sla: &[Sla], tier: &str, listener: &str) -> u64 {
    let ports: Vec<u16> = sla::port(listener).into_iter().collect();
    sla::within_ms(sla, &[tier], &ports).saturating_mul(1_000_000)
}

/// Labels of a window's entities: the lock is held for look-ups only.
fn labels(series: &Mutex<Series>, window: &HostWindow) -> Labels {
    lock(series).with_names(&window.host, |names| Labels::read(window, names)).unwrap_or_default()
}

/// Whether a host's newest window says anything about now.
fn fresh(host: &HostState, now_unix_ns: u64) -> Option<WindowIndex> {
    let newest = host.history.back()?.index;
    (now_unix_ns.saturating_sub(newest.end_unix_ns()) < STALE_NS).then_some(newest)
}

#[cfg(test)]
mod tests;

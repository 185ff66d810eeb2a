//! Remote write: which samples go to which receiver, gathered into requests. Runs on the export thread; sending is `sender`'s, each in a
//! task of its own behind a bounded queue, so that a receiver that hangs costs its own samples and nobody else's time.

pub mod config;
pub mod message;
pub mod queue;
pub mod sender;
pub mod stats;

use super::rollup::{self, labels};
use super::signals::{Form, SIGNALS, Signal};
use super::{HostState, PER_SECOND, State};
use crate::alert::config::Hook;
use crate::alert::http::{HookError, Http};
use config::{RemoteWrite, Resolution};
use message::{Label, Sample, TimeSeries, WriteRequest, encode};
use queue::{Queue, Request};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tailwater_analysis::Incident;
use tailwater_analysis::model::{HostWindow, WindowIndex};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A request has at most about this many samples.
const REQUEST_SAMPLES_MAX: usize = 10_000;
/// Windows sent before and after an incident.
const MARGIN_WINDOWS: u64 = 30 * PER_SECOND;
/// Incidents whose windows are being sent at once; beyond it the oldest are cut short.
const SPANS_MAX: usize = 64;

/// Prometheus' marker of a series' end: this NaN, bit for bit.
const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Why remote write cannot start.
#[derive(Debug, thiserror::Error)]
#[error("[[remote_write]] \"{name}\": {source}")]
pub struct WriteError {
    name: String,
    source: HookError,
}

/// Series of a request in the making: host, row, signal and `agg`.
type SeriesKey = (Arc<str>, u32, usize, &'static str);

#[derive(Debug, Default)]
struct Batch {
    series: HashMap<SeriesKey, TimeSeries>,
    samples: usize,
}

/// The windows that an incident asks for.
#[derive(Debug, Clone)]
struct Span {
    id: String,
    hosts: BTreeSet<String>,
    first: WindowIndex,
    last: WindowIndex,
}

#[derive(Debug)]
struct Sink {
    resolution: Resolution,
    batch: Batch,
    queue: Arc<Queue>,
    spans: Vec<Span>,
    /// Per host, the newest window (or second) that was sent.
    sent: BTreeMap<String, u64>,
}

/// All receivers.
#[derive(Debug)]
pub struct Sinks {
    each: Vec<Sink>,
    incidents: broadcast::Receiver<Arc<Incident>>,
}

/// Builds the receivers and starts their senders.
pub fn start(
    all: &[RemoteWrite],
    stats: &stats::Stats,
    incidents: broadcast::Receiver<Arc<Incident>>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Sinks, WriteError> {
    let mut each = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let name = one.name(index);
        let hook = Hook {
            authorization_file: one.authorization_file.clone(),
            ca: one.ca.clone(),
            timeout_s: one.timeout_s,
            ..Hook::webhook(&one.url)
        };
        let http = Http::new(&hook, "").map_err(|source| WriteError { name: name.clone(), source })?;
        let stats = stats.of(&name);
        let queue = Arc::new(Queue::new(one.queue_mib_max << 20, Arc::clone(&stats)));
        tasks.spawn(sender::run(name, http, Arc::clone(&queue), stats, stop.clone()));
        each.push(Sink {
            resolution: one.resolution,
            batch: Batch::default(),
            queue,
            spans: Vec::new(),
            sent: BTreeMap::new(),
        });
    }
    Ok(Sinks { each, incidents })
}

impl Sinks {
    /// A host's next window, which is in `state` by now.
    pub fn window(&mut self, state: &State, window: &HostWindow) {
        for sink in &mut self.each {
            match sink.resolution {
                Resolution::Second => sink.second(state, window),
                Resolution::Window => sink.batch.window(state, window),
                Resolution::Incidents => {}
            }
            sink.flush(REQUEST_SAMPLES_MAX);
        }
    }

    /// The thread has no further window at the moment. Not `open`: there will be none.
    pub fn turn(&mut self, state: &State, open: bool) {
        loop {
            match self.incidents.try_recv() {
                Ok(incident) => self.each.iter_mut().for_each(|sink| sink.incident(&incident)),
                // Versions that were missed are followed by newer ones.
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        for sink in &mut self.each {
            sink.spans(state);
            // A turn is 100 ms: few samples a second wait for the end of their second.
            let enough = if open { REQUEST_SAMPLES_MAX / 10 } else { 1 };
            sink.flush(enough);
            sink.ripen();
        }
    }
}

impl Sink {
    /// Sends a second of a host when its next one begins.
    fn second(&mut self, state: &State, window: &HostWindow) {
        let now = window.index.0 / PER_SECOND;
        let Some(before) = self.sent.insert(window.host.clone(), now) else { return };
        let Some(host) = state.hosts.get(&window.host).filter(|_| before < now) else { return };
        let of_it = host.history.iter().map(AsRef::as_ref).filter(|w| w.index.0 / PER_SECOND == before);
        self.batch.second(state, &window.host, host, of_it, before + 1);
    }

    fn incident(&mut self, incident: &Incident) {
        if self.resolution != Resolution::Incidents {
            return;
        }
        let mut begin = incident.start_unix_ns;
        if incident.root.start_unix_ns > 0 {
            begin = begin.min(incident.root.start_unix_ns);
        }
        let end = incident.end_unix_ns.max(begin);
        let mut hosts: BTreeSet<String> = incident.hops.iter().map(|h| h.host.clone()).collect();
        hosts.extend(incident.drops.iter().map(|d| d.host.clone()));
        hosts.insert(incident.root.host.clone());
        let span = Span {
            id: incident.id.clone(),
            hosts,
            first: WindowIndex(WindowIndex::at(begin).0.saturating_sub(MARGIN_WINDOWS)),
            last: WindowIndex(WindowIndex::at(end).0.saturating_add(MARGIN_WINDOWS)),
        };
        match self.spans.iter_mut().find(|s| s.id == span.id) {
            Some(known) => *known = span,
            None => self.spans.push(span),
        }
        if self.spans.len() > SPANS_MAX {
            self.spans.remove(0);
        }
    }

    fn spans(&mut self, state: &State) {
        let newest = state.hosts.values().filter_map(|h| Some(h.history.back()?.index)).max();
        let mut ended = Vec::new();
        for span in std::mem::take(&mut self.spans) {
            for name in &span.hosts {
                let Some(host) = state.hosts.get(name) else { continue };
                let sent = self.sent.get(name).copied().unwrap_or(0);
                let first = span.first.0.max(sent + 1);
                let last = span.last.0;
                for window in host.history.iter().filter(|w| (first..=last).contains(&w.index.0)) {
                    self.batch.window(state, window);
                    self.sent.insert(name.clone(), window.index.0);
                    self.flush(REQUEST_SAMPLES_MAX);
                }
            }
            if newest.is_none_or(|newest| newest <= span.last) {
                self.spans.push(span);
            } else {
                ended.push(span);
            }
        }
        for span in ended {
            let goes_on =
                |host: &String| self.spans.iter().any(|s| s.last > span.last && s.hosts.contains(host));
            let over = WindowIndex(span.last.0.saturating_add(1));
            for host in span.hosts.iter().filter(|host| !goes_on(host)) {
                if self.sent.get(host).is_some_and(|sent| *sent < over.0) {
                    self.sent.insert(host.clone(), over.0);
                    self.batch.stale(state, host, over);
                }
            }
        }
    }

    /// Sends what is gathered if it is `enough`.
    fn flush(&mut self, enough: usize) {
        if self.batch.samples < enough.max(1) {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        let request = WriteRequest { timeseries: batch.series.into_values().collect() };
        self.queue.push(Request { body: encode(&request).into(), samples: batch.samples as u64 });
    }

    /// Sends what is gathered as soon as the receiver has nothing else to do: under load requests grow, at rest they are prompt.
    fn ripen(&mut self) {
        if self.queue.is_empty() {
            self.flush(1);
        }
    }
}

impl Batch {
    fn add(
        &mut self,
        (state, name, host): (&State, &Arc<str>, &HostState),
        (row, at): (u32, usize),
        agg: &'static str,
        sample: Sample,
    ) {
        let series = self.series.entry((Arc::clone(name), row, at, agg)).or_insert_with(|| TimeSeries {
            labels: host
                .rows
                .by_number
                .get(&row)
                .map(|row| series_labels(&SIGNALS[at], agg, labels(state, name, row)))
                .unwrap_or_default(),
            samples: Vec::new(),
        });
        series.samples.push(sample);
        self.samples += 1;
    }

    /// One window's values, at its start.
    fn window(&mut self, state: &State, window: &HostWindow) {
        let Some(host) = state.hosts.get(&window.host) else { return };
        let name: Arc<str> = window.host.as_str().into();
        let timestamp = ms(window.index.start_unix_ns());
        for (key, value) in rollup::of_window(host, window) {
            self.add((state, &name, host), key, "window", Sample { value, timestamp });
        }
    }

    /// Says that a host's windows end here for now, as the specification asks: else the last value is shown for minutes.
    fn stale(&mut self, state: &State, name: &str, at: WindowIndex) {
        let Some(host) = state.hosts.get(name) else { return };
        let name: Arc<str> = name.into();
        let sample = Sample { value: STALE, timestamp: ms(at.start_unix_ns()) };
        for (number, row) in &host.rows.by_number {
            for (at, signal) in SIGNALS.iter().enumerate() {
                let of_it = signal.read.level() == row.key.0 && (signal.covered)(&host.coverage);
                if of_it && signal.form != Form::Limit {
                    self.add((state, &name, host), (*number, at), "window", sample);
                }
            }
        }
    }

    /// A second's roll-up, and counters and limits as they are, at its end.
    fn second<'a>(
        &mut self,
        state: &State,
        name: &str,
        host: &HostState,
        windows: impl Iterator<Item = &'a HostWindow>,
        end_unix_s: u64,
    ) {
        let name: Arc<str> = name.into();
        let timestamp = ms(end_unix_s.saturating_mul(1_000_000_000));
        for (key, rolled) in rollup::roll(host, windows) {
            for (agg, value) in [("max", rolled.max), ("mean", rolled.mean), ("p90", rolled.p90)] {
                self.add((state, &name, host), key, agg, Sample { value, timestamp });
            }
        }
        for (number, row) in &host.rows.by_number {
            for (at, signal) in SIGNALS.iter().enumerate() {
                let told = match signal.form {
                    Form::Level => false,
                    Form::Counter => true,
                    Form::Limit => row.kept[at] > 0.0,
                };
                if told && signal.read.level() == row.key.0 && (signal.covered)(&host.coverage) {
                    let sample = Sample { value: row.kept[at], timestamp };
                    self.add((state, &name, host), (*number, at), "", sample);
                }
            }
        }
    }
}

fn ms(unix_ns: u64) -> i64 {
    i64::try_from(unix_ns / 1_000_000).unwrap_or(i64::MAX)
}

/// Sorted, with the name, as the specification asks.
fn series_labels(signal: &Signal, agg: &str, own: Vec<(&'static str, String)>) -> Vec<Label> {
    let name = match (signal.form, agg) {
        (Form::Counter, "window") => format!("tailwater_{}_delta", signal.name),
        _ => signal.exposed_name(),
    };
    let label = |name: &str, value: String| Label { name: name.to_owned(), value };
    let mut labels: Vec<Label> = own.into_iter().map(|(name, value)| label(name, value)).collect();
    labels.push(label("__name__", name));
    labels.extend(signal.label.map(|(name, value)| label(name, value.to_owned())));
    if !agg.is_empty() && signal.form == Form::Level {
        labels.push(label("agg", agg.to_owned()));
    }
    // No label is empty: an empty one is none.
    labels.retain(|l| !l.value.is_empty());
    labels.sort();
    labels
}

#[cfg(test)]
mod tests;

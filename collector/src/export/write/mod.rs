//! Remote write: which windows go to which receiver, and when; `batch` makes samples of them. Runs on the export thread; sending is
//! `sender`'s, each in a task of its own behind a bounded queue, so that a receiver that hangs costs its own samples and nobody else's
//! time.

mod batch;
pub mod config;
pub mod message;
pub mod sender;
pub mod stats;

use super::queue::Queue;
use super::{PER_SECOND, STALE_NS, State};
use crate::send::http::{Address, HookError, Http};
use batch::Batch;
use config::{RemoteWrite, Resolution};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tailwater_model::Incident;
use tailwater_model::window::{HostWindow, WindowIndex};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A request has at most about this many samples.
const REQUEST_SAMPLES_MAX: usize = 10_000;
/// Windows sent before and after an incident.
const MARGIN_WINDOWS: u64 = 30 * PER_SECOND;
/// Incidents whose windows are being sent at once; beyond it the oldest are cut short.
const SPANS_MAX: usize = 64;

/// Windows are sent this long after their end: by then the tier of a workload that is new is known, and no series changes its labels.
const DELAY_NS: u64 = 2_000_000_000;

/// Why remote write cannot start.
#[derive(Debug, thiserror::Error)]
#[error("[[remote_write]] \"{name}\": {source}")]
pub struct WriteError {
    name: String,
    source: HookError,
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
    /// Hosts whose series were ended because nothing more came.
    silent: BTreeSet<String>,
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
        let to = Address {
            url: Some(one.url.clone()),
            url_file: None,
            authorization_file: one.authorization_file.clone(),
            ca: one.ca.clone(),
            timeout: Duration::from_secs(one.timeout_s),
        };
        let http = Http::new(&to, "").map_err(|source| WriteError { name: name.clone(), source })?;
        let stats = stats.of(&name);
        let queue = Arc::new(Queue::new(one.queue_mib_max << 20, Arc::clone(&stats)));
        tasks.spawn(sender::run(name, http, Arc::clone(&queue), stats, stop.clone()));
        each.push(Sink {
            resolution: one.resolution,
            batch: Batch::default(),
            queue,
            spans: Vec::new(),
            sent: BTreeMap::new(),
            silent: BTreeSet::new(),
        });
    }
    Ok(Sinks { each, incidents })
}

impl Sinks {
    /// A host's next window, which is in `state` by now: sends what of the host is due.
    pub fn window(&mut self, state: &State, host: &str, now_unix_ns: u64) {
        self.each.iter_mut().for_each(|sink| sink.due(state, host, now_unix_ns));
    }

    /// The thread has no further window at the moment. Not `open`: there will be none.
    pub fn turn(&mut self, state: &State, open: bool, now_unix_ns: u64) {
        loop {
            match self.incidents.try_recv() {
                Ok(incident) => self.each.iter_mut().for_each(|sink| sink.incident(&incident)),
                // Versions that were missed are followed by newer ones.
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        for sink in &mut self.each {
            state.hosts.keys().for_each(|host| sink.due(state, host, now_unix_ns));
            sink.spans(state);
            // A turn is 100 ms: few samples a second wait for the end of their second.
            let enough = if open { REQUEST_SAMPLES_MAX / 10 } else { 1 };
            sink.flush(enough);
            sink.ripen();
        }
    }
}

impl Sink {
    /// Sends what of a host ended [`DELAY_NS`] ago, or came later than that, and was not sent. Where windows are missing, or the host is
    /// silent, its series end until they go on.
    fn due(&mut self, state: &State, name: &str, now_unix_ns: u64) {
        let Some(host) = state.hosts.get(name) else { return };
        let due = WindowIndex::at(now_unix_ns.saturating_sub(DELAY_NS)).0;
        let per = match self.resolution {
            Resolution::Second => PER_SECOND,
            Resolution::Window => 1,
            Resolution::Incidents => return,
        };
        let mut sent = self.sent.get(name).copied();
        let mut at = host.history.partition_point(|w| sent.is_some_and(|sent| w.index.0 / per <= sent));
        while let Some(step) = host.history.get(at).map(|w| w.index.0 / per) {
            if step.saturating_add(1).saturating_mul(per) > due {
                break;
            }
            let silent = self.silent.remove(name);
            if let Some(sent) = sent.filter(|sent| step > sent + 1 && !silent) {
                self.batch.stale(state, name, self.resolution, sent + 1);
            }
            let count = host.history.range(at..).take_while(|w| w.index.0 / per == step).count();
            let windows = host.history.range(at..at + count).map(AsRef::as_ref);
            match self.resolution {
                Resolution::Second => self.batch.second(state, name, host, windows, step),
                _ => windows.for_each(|window| self.batch.window(state, window)),
            }
            at += count;
            sent = Some(step);
            self.flush(REQUEST_SAMPLES_MAX);
        }
        let gone = |w: &Arc<HostWindow>| now_unix_ns.saturating_sub(w.index.end_unix_ns()) > STALE_NS;
        if let Some(last) = sent.filter(|_| at == host.history.len() && host.history.back().is_some_and(gone))
            && self.silent.insert(name.to_owned())
        {
            self.batch.stale(state, name, self.resolution, last + 1);
            sent = Some(last + 1);
        }
        if let Some(sent) = sent {
            self.sent.insert(name.to_owned(), sent);
        }
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
                    self.batch.stale(state, host, self.resolution, over.0);
                }
            }
        }
    }

    /// Sends what is gathered if it is `enough`.
    fn flush(&mut self, enough: usize) {
        if self.batch.samples() < enough.max(1) {
            return;
        }
        self.queue.push(std::mem::take(&mut self.batch).request());
    }

    /// Sends what is gathered as soon as the receiver has nothing else to do: under load requests grow, at rest they are prompt.
    fn ripen(&mut self) {
        if self.queue.is_empty() {
            self.flush(1);
        }
    }
}

#[cfg(test)]
mod tests;

//! What waits for the disk: windows and incidents, bounded. The ingest path puts in and never waits; when the disk is behind, the
//! oldest windows go, with a counter. Knows no disk.

use super::{Line, supersede};
use crate::counters::Metrics;
use crate::live::waiting::WindowQueue;
use crate::lock::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tailwater_model::traces::IncidentTraces;
use tailwater_model::window::HostWindow;

/// Memory of windows that may wait, about. They mostly are the windows that the series hold too.
const WINDOW_BYTES_MAX: usize = 64 << 20;
/// Incidents that may wait, each with its newest version.
const INCIDENTS_MAX: usize = 4096;

#[derive(Debug, Default)]
struct Waiting {
    windows: WindowQueue,
    incidents: BTreeMap<String, Line>,
    traces: BTreeMap<String, IncidentTraces>,
    closed: bool,
}

/// Incidents whose traces may wait: some hundred kilobytes each at the most.
pub(super) const TRACES_MAX: usize = 64;

/// See above.
#[derive(Debug)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    metrics: Arc<Metrics>,
    /// Nothing is kept on disk.
    nowhere: bool,
}

/// What the writer takes at once.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) windows: Vec<(Arc<HostWindow>, usize)>,
    pub(super) incidents: Vec<Line>,
    pub(super) traces: Vec<IncidentTraces>,
    /// Nothing more will come.
    pub(super) closed: bool,
}

impl Queue {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { waiting: Mutex::default(), wake: Condvar::new(), metrics, nowhere: false }
    }

    /// One that takes nothing, without a complaint: what it is given is kept in memory only.
    pub(super) fn nowhere(metrics: Arc<Metrics>) -> Self {
        Self { nowhere: true, ..Self::new(metrics) }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    /// A window for the open segment.
    pub fn window(&self, window: Arc<HostWindow>) {
        if self.nowhere {
            return;
        }
        let mut waiting = self.lock();
        if !waiting.closed {
            waiting.windows.push(window, WINDOW_BYTES_MAX, &self.metrics.store_windows_dropped);
        }
    }

    /// Bytes of windows that wait, and at most may.
    #[must_use]
    pub fn fill(&self) -> (usize, usize) {
        (self.lock().windows.bytes(), WINDOW_BYTES_MAX)
    }

    /// A version of an incident; an older one that still waits need not be written. Says whether it will be written at all.
    pub(super) fn incident(&self, line: Line) -> bool {
        if self.nowhere {
            return false;
        }
        let mut waiting = self.lock();
        let full =
            waiting.incidents.len() >= INCIDENTS_MAX && !waiting.incidents.contains_key(&line.incident.id);
        if waiting.closed || full {
            self.metrics.store_updates_dropped.inc();
            return false;
        }
        supersede(&mut waiting.incidents, line);
        self.wake.notify_one();
        true
    }

    /// Traces of an incident, in place of those of the same one that still wait. They are written with what comes next, or soon.
    pub fn traces(&self, of: IncidentTraces) {
        if self.nowhere {
            return;
        }
        let mut waiting = self.lock();
        let full = waiting.traces.len() >= TRACES_MAX && !waiting.traces.contains_key(&of.incident);
        if waiting.closed || full {
            self.metrics.store_traces_dropped.inc();
            return;
        }
        waiting.traces.insert(of.incident.clone(), of);
    }

    /// Nothing more comes: the writer writes what waits and ends.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Takes everything; waits up to `longest` for an incident or the end. Windows wake nobody.
    pub(super) fn take(&self, longest: Duration) -> Taken {
        let waiting = self.lock();
        let nothing = |w: &mut Waiting| w.incidents.is_empty() && !w.closed;
        let (mut waiting, _) =
            self.wake.wait_timeout_while(waiting, longest, nothing).unwrap_or_else(PoisonError::into_inner);
        Taken {
            windows: waiting.windows.take(),
            incidents: std::mem::take(&mut waiting.incidents).into_values().collect(),
            traces: std::mem::take(&mut waiting.traces).into_values().collect(),
            closed: waiting.closed,
        }
    }
}

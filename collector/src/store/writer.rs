//! The thread that writes: incidents at once and in batches, windows as a segment per minute, then what retention says. Owns when,
//! and what happens when the disk says no: it goes on trying, and nobody waits for it.

use super::db::{Db, DbError};
use super::health::{Health, Part};
use super::inventory;
use super::queue::{Queue, TRACES_MAX};
use super::segment::SegmentError;
use super::shelf::{Limits, Shelf, Span};
use super::{Line, Settings, Store, supersede};
use crate::clock::Clock;
use crate::counters::Metrics;
use crate::live::series::{Departed, Series};
use crate::lock::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tailwater_model::TopologyView;
use tailwater_model::names::Names;
use tailwater_model::traces::IncidentTraces;
use tailwater_model::window::HostWindow;

/// Windows are looked at this often.
const PERIOD: Duration = Duration::from_millis(250);
/// After a failure.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Memory of the open segment, about: beyond it the segment is written early, or, when it cannot be, loses its oldest windows.
pub(super) const OPEN_BYTES_MAX: usize = 96 << 20;
/// Incidents on disk for each one in memory.
pub(super) const ON_DISK_TIMES: usize = 20;

/// See above.
pub(super) struct Writer {
    pub(super) settings: Settings,
    pub(super) queue: Arc<Queue>,
    pub(super) store: Arc<Mutex<Store>>,
    pub(super) series: Arc<Mutex<Series>>,
    pub(super) topology: Arc<Mutex<Arc<TopologyView>>>,
    pub(super) shelf: Arc<Shelf>,
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
    pub(super) db: Option<Db>,
    /// Not on disk yet, by id.
    pub(super) unwritten: BTreeMap<String, Line>,
    /// Traces that are not on disk yet, by incident.
    pub(super) traces: BTreeMap<String, IncidentTraces>,
    /// The open segment.
    pub(super) open: Vec<(Arc<HostWindow>, usize)>,
    pub(super) open_bytes: usize,
    /// [`OPEN_BYTES_MAX`], or less in a simulation.
    pub(super) open_bytes_max: usize,
    /// Of segments, as the settings say.
    pub(super) limits: Limits,
    pub(super) opened: Option<Instant>,
    pub(super) scanned: bool,
    pub(super) incidents_retry: Option<Instant>,
    pub(super) windows_retry: Option<Instant>,
    pub(super) traces_retry: Option<Instant>,
}

impl Writer {
    pub(super) fn run(mut self) {
        self.scan();
        while self.turn(PERIOD) {}
    }

    /// Writes what has arrived, after a wait of at most `longest` for an incident or the end. Says whether more may come.
    pub(super) fn turn(&mut self, longest: Duration) -> bool {
        let taken = self.queue.take(longest);
        self.incidents(taken.incidents, taken.closed);
        self.traces(taken.traces, taken.closed);
        self.windows(taken.windows, taken.closed);
        if taken.closed {
            self.ended();
        }
        !taken.closed
    }

    /// What the disk did not take until the end goes with the process.
    fn ended(&self) {
        let (windows, incidents) = (self.open.len(), self.unwritten.len());
        self.metrics.store_windows_dropped.add(windows as u64);
        self.metrics.store_updates_dropped.add(incidents as u64);
        self.metrics.store_traces_dropped.add(self.traces.len() as u64);
        if windows + incidents > 0 {
            tracing::error!("{windows} windows and {incidents} incidents were not written before the end");
        }
    }

    /// Looks at the segments that are there.
    pub(super) fn scan(&mut self) {
        match self.shelf.scan() {
            Ok(()) => {
                self.scanned = true;
                self.windows_retry = None;
                self.health.works(Part::Windows);
            }
            Err(e) => self.windows_failed(&format!("{}: {e}", self.settings.folder.display())),
        }
    }

    fn due(&self, retry: Option<Instant>, closing: bool) -> bool {
        closing || retry.is_none_or(|at| self.clock.monotonic() >= at)
    }

    fn incidents(&mut self, lines: Vec<Line>, closing: bool) {
        if lines.is_empty() && self.unwritten.is_empty() && self.db.is_some() {
            return;
        }
        for line in lines {
            supersede(&mut self.unwritten, line);
        }
        if !self.due(self.incidents_retry, closing) {
            self.told();
            return;
        }
        match self.write_incidents() {
            Ok(()) => {
                self.incidents_retry = None;
                self.told();
                self.unwritten.clear();
                self.health.works(Part::Incidents);
            }
            Err(e) => {
                self.metrics.store_failures.inc();
                // The next attempt opens it anew: what was wrong with the file may be over.
                let was_open = self.db.take().is_some();
                // A file with a damaged page can be opened, and would be for ever. Once may be this connection's fault: this one was opened
                // after a failure. And who ends begins none anew.
                if was_open && e.is_damage() && self.incidents_retry.is_some() && !closing {
                    self.begin_anew(&e);
                }
                self.incidents_retry = Some(self.clock.monotonic() + RETRY_EVERY);
                self.health.failed(Part::Incidents, &e.to_string());
                self.told();
                while self.unwritten.len() > self.settings.incidents_max {
                    self.unwritten.pop_first();
                    self.metrics.store_updates_dropped.inc();
                }
            }
        }
    }

    /// Writes traces once the incidents that came before them are on disk. A disk that refuses them refuses the next incident too, which tells of it.
    fn traces(&mut self, taken: Vec<IncidentTraces>, closing: bool) {
        for of in taken {
            self.traces.insert(of.incident.clone(), of);
        }
        let ready = self.unwritten.is_empty() && self.due(self.traces_retry, closing);
        let (true, Some(db)) = (!self.traces.is_empty() && ready, &mut self.db) else {
            return self.bound_traces();
        };
        match db.put_traces(self.traces.values()) {
            Ok(()) => {
                self.traces_retry = None;
                self.traces.clear();
            }
            Err(e) => {
                self.traces_retry = Some(self.clock.monotonic() + RETRY_EVERY);
                self.metrics.store_failures.inc();
                tracing::debug!("traces: {e}");
                self.bound_traces();
            }
        }
    }

    /// The oldest ones go where too many wait.
    fn bound_traces(&mut self) {
        while self.traces.len() > TRACES_MAX {
            self.traces.pop_first();
            self.metrics.store_traces_dropped.inc();
        }
    }

    /// What waits is shown from now on: it is on disk, or it cannot be.
    fn told(&mut self) {
        for line in self.unwritten.values() {
            lock(&self.store).shown(&line.incident.id, line.incident.version);
        }
    }

    /// Out of the way with the file, which nobody has open: what is in memory is to be in the next one. Says whether it could be moved.
    fn begin_anew(&mut self, why: &DbError) -> bool {
        if !super::set_aside(&self.settings.folder, why, &self.metrics) {
            return false;
        }
        let all = lock(&self.store).lines();
        for line in all {
            // Never older than what waits of the same incident, and memory may have its timeline from before.
            supersede(&mut self.unwritten, line);
        }
        true
    }

    fn write_incidents(&mut self) -> Result<(), DbError> {
        let folder = self.settings.folder.clone();
        if self.db.is_some() {
            return self.put_incidents();
        }
        self.db = Some(match Db::open(&folder) {
            Err(e) if e.is_damage() => {
                if !self.begin_anew(&e) {
                    return Err(e);
                }
                Db::open(&folder)?
            }
            other => other?,
        });
        // Before memory takes over what is on disk: what waits may have left memory, and is newer.
        self.put_incidents()?;
        let Some(db) = &self.db else { return Ok(()) };
        let known = db.incidents(None, 0, None, self.settings.incidents_max)?;
        for line in lock(&self.store).load(known) {
            self.unwritten.insert(line.incident.id.clone(), line);
        }
        self.put_incidents()
    }

    fn put_incidents(&mut self) -> Result<(), DbError> {
        let Some(db) = &mut self.db else { return Ok(()) };
        let (store, mut renumbered) = (&self.store, Vec::new());
        let written = db.put(self.unwritten.values(), |line, on_disk| {
            let newest = lock(store).go_on(line, on_disk)?;
            renumbered.push(newest.clone());
            Some(newest)
        });
        // Also where nothing was written: memory counts on from there in any case, and shows no version but its own.
        for line in renumbered {
            supersede(&mut self.unwritten, line);
        }
        written
    }

    fn windows_failed(&mut self, why: &str) {
        self.metrics.store_failures.inc();
        self.windows_retry = Some(self.clock.monotonic() + RETRY_EVERY);
        self.health.failed(Part::Windows, why);
    }

    fn windows(&mut self, windows: Vec<(Arc<HostWindow>, usize)>, closing: bool) {
        if self.opened.is_none() && !windows.is_empty() {
            self.opened = Some(self.clock.monotonic());
        }
        self.open_bytes += windows.iter().map(|(_, size)| size).sum::<usize>();
        self.open.extend(windows);
        let full = self.open_bytes > self.open_bytes_max;
        let length = Duration::from_secs(self.settings.segment_seconds);
        let over = self.opened.is_some_and(|at| self.clock.monotonic().duration_since(at) >= length);
        if !self.scanned && self.due(self.windows_retry, closing) {
            self.scan();
        }
        if (full || over || closing) && self.scanned && self.due(self.windows_retry, closing) {
            match self.write_segment() {
                Ok(()) => {
                    self.windows_retry = None;
                    self.health.works(Part::Windows);
                }
                Err(e) => self.windows_failed(&e.to_string()),
            }
        }
        if self.open_bytes > self.open_bytes_max {
            let mut given_up = 0;
            let mut dropped = 0;
            while self.open_bytes - dropped > self.open_bytes_max / 4 * 3 {
                let Some((_, size)) = self.open.get(given_up) else { break };
                dropped += size;
                given_up += 1;
            }
            self.open.drain(..given_up);
            self.open_bytes -= dropped;
            self.metrics.store_windows_dropped.add(given_up as u64);
        }
    }

    fn write_segment(&mut self) -> Result<(), SegmentError> {
        let windows: Vec<Arc<HostWindow>> = self.open.iter().map(|(w, _)| Arc::clone(w)).collect();
        let hosts: BTreeSet<&str> = windows.iter().map(|w| w.host.as_str()).collect();
        let known = hosts.iter().map(|host| {
            let series = lock(&self.series);
            let of = |host: &&str| (*host).to_owned();
            ((of(host), series.names(host)), (of(host), series.gone(host)))
        });
        let (names, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = known.unzip();
        let written = self.shelf.add(&windows, &names)?;
        self.metrics.store_segments_written.inc();
        self.metrics.store_bytes_written.add(written.bytes);
        self.metrics.store_values_written.add(written.values);
        self.metrics.store_nonzero_values_written.add(written.nonzero);
        let (open, _) = (std::mem::take(&mut self.open), std::mem::take(&mut self.open_bytes));
        self.opened = None;
        self.inventory(&open, &names, &gone);
        self.retain()
    }

    /// Hosts, their workloads and listeners, and tiers.
    fn inventory(
        &mut self,
        windows: &[(Arc<HostWindow>, usize)],
        names: &BTreeMap<String, Arc<Names>>,
        gone: &BTreeMap<String, Departed>,
    ) {
        let mut spans: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (w, _) in windows {
            let span = spans.entry(w.host.clone()).or_insert((u64::MAX, 0));
            *span = (span.0.min(w.index.start_unix_ns()), span.1.max(w.index.end_unix_ns()));
        }
        let view = Arc::clone(&lock(&self.topology));
        let seen = inventory::seen(&spans, names, gone, &view);
        let Some(db) = &mut self.db else { return };
        if let Err(e) = db.saw(&seen) {
            // They are seen again with the next segment.
            self.metrics.store_failures.inc();
            tracing::debug!("inventory: {e}");
        }
    }

    fn retain(&mut self) -> Result<(), SegmentError> {
        let (db, store) = (&self.db, &self.store);
        // While the database does not answer, the incidents in memory say what to keep.
        let keep = |span: Span| {
            let known = db.as_ref().and_then(|db| db.spans(span).ok());
            known.unwrap_or_else(|| lock(store).spans(span))
        };
        self.shelf.retain(&self.limits, self.clock.unix_ns(), keep)?;
        if let Some(db) = &mut self.db
            && let Err(e) = db.prune(self.settings.incidents_max.saturating_mul(ON_DISK_TIMES))
        {
            self.metrics.store_failures.inc();
            tracing::warn!("old incidents are not removed: {e}");
        }
        Ok(())
    }
}

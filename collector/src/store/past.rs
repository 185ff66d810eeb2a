//! Reading what is kept: windows that are no longer in memory, incidents older than those in memory, inventory. Everything here
//! reads files, so it is for threads that may wait.

use super::db::Db;
use super::health::Health;
use super::inventory::{self, Remembered};
use super::queue::Queue;
use super::segment::Wanted;
use super::shelf::{Entry, Shelf};
use crate::columns::Kind;
use crate::live::inventory::{HostInventory, Now};
use crate::live::limits::LIMIT;
use crate::live::metric;
use crate::live::recent::Recent;
use crate::live::series::{Decimator, Departed, Point, Series};
use crate::live::timeline::{self, Timeline};
use crate::live::view::Query;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tailwater_model::Incident;
use tailwater_model::TopologyView;
use tailwater_model::incident::Which;
use tailwater_model::names::{Names, Seen};
use tailwater_model::traces::IncidentTraces;
use tailwater_model::window::WindowIndex;

/// Threads that read segments for one question, at most: the analysis needs a CPU too.
const READERS_MAX: usize = 4;

/// What of a segment some queries need.
struct Wished<'a> {
    columns: Vec<(Kind, Vec<&'a str>)>,
    /// All of them ask of the host as a whole.
    whole: bool,
}

impl<'a> Wished<'a> {
    fn of(queries: &[Query<'a>]) -> Self {
        let mut columns: BTreeMap<Kind, Vec<&str>> = BTreeMap::new();
        let metrics = queries.iter().filter_map(|query| metric::find(query.metric));
        for (kind, names) in metrics.flat_map(|metric| metric.columns) {
            columns.entry(*kind).or_default().extend(*names);
        }
        let whole = queries.iter().all(|query| query.workload.is_none() && query.listener.is_none());
        Self { columns: columns.into_iter().collect(), whole }
    }

    /// Hands `take` what `entry` holds of a host from one window to another. Ids are those of one segment, so each gets a memory of
    /// its own.
    fn read(
        &self,
        shelf: &Shelf,
        entry: &Entry,
        (host, first, last): (&str, WindowIndex, WindowIndex),
        take: impl FnOnce(&Series),
    ) {
        let columns: Vec<(Kind, &[&str])> =
            self.columns.iter().map(|(kind, names)| (*kind, &names[..])).collect();
        let wanted = if self.whole { Wanted::Whole(&columns) } else { Wanted::Columns(&columns) };
        let Some(inputs) = shelf.read(entry, host, first, last, wanted) else { return };
        let mut segment = Series::new(u64::MAX, usize::MAX);
        inputs.into_iter().for_each(|input| segment.add(input));
        take(&segment);
    }
}

/// The way to everything that is kept.
#[derive(Debug, Clone)]
pub struct Past {
    pub(super) folder: PathBuf,
    pub(super) shelf: Arc<Shelf>,
    pub(super) series: Arc<Mutex<Series>>,
    /// Whether the disk takes what is written.
    pub health: Arc<Health>,
    /// Where windows go in.
    pub queue: Arc<Queue>,
    /// Without a disk: what was there by name.
    pub(super) remembered: Arc<Remembered>,
}

impl Past {
    /// Whether any segment may hold windows from `first` to `last` that are not in memory.
    #[must_use]
    pub fn reaches(&self, first: WindowIndex, last: WindowIndex) -> bool {
        self.shelf.span().is_some_and(|(oldest, newest)| oldest <= last && first <= newest)
    }

    /// First and last window on disk.
    #[must_use]
    pub fn span(&self) -> Option<(WindowIndex, WindowIndex)> {
        self.shelf.span()
    }

    /// Oldest window on disk, bytes of recent and of kept segments.
    #[must_use]
    pub fn totals(&self) -> (Option<WindowIndex>, u64, u64) {
        self.shelf.totals()
    }

    /// What is in memory of `host` from `first` to `last`, and where what is only on disk ends, if there is any.
    fn memory(&self, host: &str, first: WindowIndex, last: WindowIndex) -> (Series, Option<WindowIndex>) {
        let memory = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = memory.span(host).map(|(oldest, _)| oldest);
        let before = oldest.map_or(Some(last.0), |o| o.0.checked_sub(1)).map(|n| n.min(last.0));
        (memory.part(host, first, last), before.filter(|before| *before >= first.0).map(WindowIndex))
    }

    /// Each value of each of `queries`, all of one host, from `first` to `last` that is there: from memory as far as it reaches, before
    /// that from segments, each of which is read once for all of them.
    fn each(
        &self,
        queries: &[Query<'_>],
        first: WindowIndex,
        last: WindowIndex,
        mut take: impl FnMut(usize, WindowIndex, f64),
    ) {
        let Some(host) = queries.first().map(|query| query.host) else { return };
        let (memory, before) = self.memory(host, first, last);
        memory.present(queries, first, last, &mut take);
        let Some(before) = before else { return };
        let wished = Wished::of(queries);
        for entry in self.shelf.over(first, before) {
            wished.read(&self.shelf, &entry, (host, first, before), |segment| {
                segment.present(queries, first, last, &mut take);
            });
        }
    }

    /// As [`Series::points`], over everything that is kept, for each of several queries of one host. Segments are read side by side.
    #[must_use]
    pub fn points(
        &self,
        queries: &[Query<'_>],
        first: WindowIndex,
        last: WindowIndex,
        max_points: usize,
    ) -> Vec<Vec<Point>> {
        let fresh = || vec![Decimator::new(first, last, max_points); queries.len()];
        let mut decimators = fresh();
        let Some(host) = queries.first().map(|query| query.host) else { return Vec::new() };
        let (memory, before) = self.memory(host, first, last);
        memory.present(queries, first, last, |n, index, value| decimators[n].add(index, value));
        if let Some(before) = before {
            let entries = self.shelf.over(first, before);
            let wished = Wished::of(queries);
            let next = AtomicUsize::new(0);
            let work = || {
                let mut own = fresh();
                while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    wished.read(&self.shelf, entry, (host, first, before), |segment| {
                        segment.present(queries, first, last, |n, index, value| own[n].add(index, value));
                    });
                }
                own
            };
            let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(READERS_MAX);
            let parts = std::thread::scope(|scope| {
                let others: Vec<_> = (1..threads.min(entries.len())).map(|_| scope.spawn(work)).collect();
                let mut parts = vec![work()];
                for thread in others {
                    match thread.join() {
                        Ok(part) => parts.push(part),
                        // Half an answer would look like a whole one.
                        Err(panic) => std::panic::resume_unwind(panic),
                    }
                }
                parts
            });
            for part in &parts {
                decimators.iter_mut().zip(part).for_each(|(to, from)| to.merge(from));
            }
        }
        decimators.into_iter().map(Decimator::points).collect()
    }

    /// All that is kept of a host from one window to another, in parts with names of their own; of several parts with the same window
    /// the first is the best.
    #[must_use]
    pub fn parts(&self, host: &str, first: WindowIndex, last: WindowIndex) -> Vec<Series> {
        let (memory, before) = self.memory(host, first, last);
        let mut parts = vec![memory];
        let Some(before) = before else { return parts };
        for entry in self.shelf.over(first, before) {
            let Some(inputs) = self.shelf.read(&entry, host, first, before, Wanted::All) else { continue };
            let mut segment = Series::new(u64::MAX, usize::MAX);
            inputs.into_iter().for_each(|input| segment.add(input));
            parts.push(segment);
        }
        parts
    }

    /// The timeline of an incident that has none yet.
    #[must_use]
    pub fn timeline(&self, incident: &Incident) -> Timeline {
        timeline::read(incident, |queries, first, last| self.rows(queries, first, last))
    }

    /// One value per window from `first` to `last` for each of `queries`, all of one host; `None`: the window is not there, or not covered.
    fn rows(&self, queries: &[Query<'_>], first: WindowIndex, last: WindowIndex) -> Vec<Vec<Option<f64>>> {
        let count = usize::try_from(last.0.saturating_sub(first.0)).unwrap_or(0).saturating_add(1);
        let mut rows = vec![vec![None; count]; queries.len()];
        self.each(queries, first, last, |n, index, value| {
            let place = index.0.checked_sub(first.0).and_then(|n| usize::try_from(n).ok());
            if let Some(slot) = rows.get_mut(n).zip(place).and_then(|(row, place)| row.get_mut(place)) {
                *slot = Some(value);
            }
        });
        rows
    }

    /// An incident that is no longer in memory.
    #[must_use]
    pub fn incident(&self, id: &str) -> Option<(Incident, Option<Timeline>)> {
        let line = Db::reader(&self.folder)?.incident(id).ok()??;
        Some((line.incident, line.timeline))
    }

    /// The traces that were kept of an incident.
    #[must_use]
    pub fn traces(&self, incident: &str) -> Option<IncidentTraces> {
        Db::reader(&self.folder)?.traces(incident).ok()?
    }

    /// Incidents with an id below `before` that touch `span` (Unix ns, both ends in it), newest first.
    #[must_use]
    pub fn incidents(
        &self,
        before: Option<&str>,
        span: (u64, u64),
        wanted: impl Into<Which>,
        limit: usize,
    ) -> Vec<Incident> {
        let found = Db::reader(&self.folder).map(|db| db.within(before, span, wanted, limit));
        let lines = found.and_then(Result::ok).unwrap_or_default();
        lines.into_iter().map(|line| line.incident).collect()
    }

    /// Whether there is evidence of this host, of whatever time.
    #[must_use]
    pub fn knows(&self, host: &str) -> bool {
        match Db::reader(&self.folder) {
            Some(db) => db.knows(host).unwrap_or(false),
            None => !self.remembered.inventory((0, u64::MAX), None, Some(host)).is_empty(),
        }
    }

    /// Hosts, workloads, listeners and tiers seen at some moment of `span` (Unix ns, both ends in it): of this kind, of this host.
    #[must_use]
    pub fn inventory(&self, span: (u64, u64), kind: Option<&str>, host: Option<&str>) -> Vec<Seen> {
        match Db::reader(&self.folder) {
            Some(db) => db.inventory(span, kind, host).unwrap_or_default(),
            None => self.remembered.inventory(span, kind, host),
        }
    }

    /// Tells, where there is no disk, what was there by name, of the hosts of `spans` (first and last moment, Unix ns). Once.
    pub fn remember(
        &self,
        spans: &BTreeMap<String, (u64, u64)>,
        names: &BTreeMap<String, Arc<Names>>,
        gone: &BTreeMap<String, Departed>,
        view: &TopologyView,
    ) {
        self.remembered.tell(inventory::seen(spans, names, gone, view));
    }

    /// What was seen of `host` at whatever time, by name. `None`: nothing.
    #[must_use]
    pub fn host(&self, host: &str) -> Option<HostInventory> {
        HostInventory::of(host, &self.inventory((0, u64::MAX), None, Some(host)))
    }

    /// As [`Series::now`], over everything that is kept, for `host` and each of `workloads` of it.
    #[must_use]
    pub fn now(&self, host: &str, workloads: &[Option<&str>], until_unix_ns: u64, windows: u64) -> Vec<Now> {
        let (first, last) = Now::reads(until_unix_ns, windows);
        let metrics = |workload: Option<&str>| Now::metrics(workload.is_some());
        let queries: Vec<Query<'_>> = workloads
            .iter()
            .flat_map(|workload| {
                let of = |metric| Query { host, workload: *workload, listener: None, metric };
                metrics(*workload).map(of)
            })
            .collect();
        let rows = self.rows(&queries, first, last);
        let read = |workload: Option<&str>, metric: &str, from: WindowIndex| {
            let found = queries.iter().position(|q| q.workload == workload && q.metric == metric);
            let skip = usize::try_from(from.0.saturating_sub(first.0)).unwrap_or(0);
            found.and_then(|n| rows[n].get(skip..)).map(<[_]>::to_vec).unwrap_or_default()
        };
        let of = |workload: &Option<&str>| {
            let (near, _) = Now::shows(until_unix_ns, windows);
            let limit = |back| Recent::of(&read(*workload, LIMIT, back));
            Now::of(host, *workload, (until_unix_ns, windows), limit, |metric| read(*workload, metric, near))
        };
        workloads.iter().map(of).collect()
    }
}

//! What is kept: incidents and inventory in SQLite (`db`), windows in Parquet segments (`segment*`, `shelf`), written by a thread of
//! their own (`writer`) behind a bounded queue (`queue`), read back by `past`. This file owns the newest incidents in memory: their
//! bound, the numbering of their versions across restarts, and that an incident is shown once it is on disk.

mod db;
mod disk;
mod health;
mod inventory;
mod memory;
mod pages;
mod parquet_file;
mod past;
mod queue;
mod segment;
mod segment_read;
mod segment_write;
mod shelf;
mod thrift;
mod writer;

pub use db::{Db, DbError, FILE, MARGIN_NS};
pub use health::Health;
pub use memory::in_memory;
pub use past::Past;
pub use queue::Queue;
pub use segment::{SegmentError, Wanted, Written, documentation};
pub use segment_read::{check as check_segment, of_all_hosts as read_segment};
pub use shelf::Shelf;

use crate::aside;
use crate::clock::Clock;
use crate::counters::Metrics;
use crate::live::events::Events;
use crate::live::series::Series;
use crate::live::timeline::Timeline;
use disk::{Disk, RealDisk};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tailwater_model::incident::{State, Which};
use tailwater_model::window::WindowIndex;
use tailwater_model::{Incident, TopologyView};

/// What to keep, and where.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The data folder.
    pub folder: PathBuf,
    /// Incidents in memory; on disk twenty times as many.
    pub incidents_max: usize,
    /// Length of a segment.
    pub segment_seconds: u64,
    /// Age at which windows go.
    pub windows_hours: u64,
    /// Bytes of windows, MiB.
    pub windows_mib_max: u64,
    /// Bytes of the windows around incidents, MiB.
    pub kept_mib_max: u64,
}

/// An incident as it is written, and its timeline once it is closed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    incident: Incident,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeline: Option<Timeline>,
}

/// What waits to be written, by id, with one more version: it takes the place of the one before it. A timeline that was told with that one,
/// and is not told again, goes along.
fn supersede(waiting: &mut BTreeMap<String, Line>, mut line: Line) {
    let before = waiting.remove(&line.incident.id);
    line.timeline = line.timeline.or_else(|| before.and_then(|before| before.timeline));
    waiting.insert(line.incident.id.clone(), line);
}

#[derive(Debug, Clone)]
struct Version {
    incident: Arc<Incident>,
    timeline: Option<Arc<Timeline>>,
}

impl Version {
    fn line(&self) -> Line {
        Line { incident: self.incident.as_ref().clone(), timeline: self.timeline.as_deref().cloned() }
    }
}

#[derive(Debug, Clone)]
struct Kept {
    newest: Version,
    /// What others see: on disk, or the disk does not work. `None`: not yet.
    shown: Option<Version>,
    /// Added to the pipeline's versions: after a restart it counts the same incident from the start.
    versions_before: u64,
}

/// Incidents in memory, by id; ids sort by time.
#[derive(Debug)]
pub struct Store {
    by_id: BTreeMap<String, Kept>,
    /// Ids of early alerts, and the incidents that replaced them.
    replaced: BTreeMap<String, String>,
    incidents_max: usize,
    queue: Arc<Queue>,
    live: Events,
}

/// An open store.
#[derive(Debug)]
pub struct Opened {
    /// Incidents.
    pub store: Arc<Mutex<Store>>,
    /// Everything that is kept.
    pub past: Past,
    /// Incidents that were open when the collector died, as they were; they are closed here.
    pub open_before: Vec<Arc<Incident>>,
    /// Ends after [`Store::close`], when all that waited is written.
    pub thread: JoinHandle<()>,
}

/// A store whose writes nobody makes yet.
struct Prepared {
    store: Arc<Mutex<Store>>,
    past: Past,
    open_before: Vec<Arc<Incident>>,
    writer: writer::Writer,
}

/// Puts a damaged database out of the way, for a person to judge. Says whether it could be: each is counted once, however often it is tried.
fn set_aside(folder: &Path, why: &DbError, metrics: &Metrics) -> bool {
    let path = folder.join(FILE);
    match aside::put(folder, &path, &["-wal", "-shm"]) {
        Ok(to) => tracing::error!("{why}: moved to {}; a new one is begun", to.display()),
        Err(e) => tracing::error!("{why}; and it cannot be put aside: {e}"),
    }
    // Also where only what stands beside it stayed: SQLite takes no log for that of a file that is new.
    let is_away = !path.exists();
    metrics.store_segments_torn.add(u64::from(is_away));
    is_away
}

/// Opens the folder and starts the writer. A folder that cannot be used is no error: incidents are then kept in memory, `/readyz`
/// says why, and the writer goes on trying. Incidents that were open when the collector died are closed: nobody watched them since.
pub fn open(
    settings: Settings,
    series: Arc<Mutex<Series>>,
    topology: Arc<Mutex<Arc<TopologyView>>>,
    live: Events,
    metrics: Arc<Metrics>,
    clock: Clock,
) -> std::io::Result<Opened> {
    let Prepared { store, past, open_before, writer } =
        prepare(settings, series, topology, live, metrics, clock, Arc::new(RealDisk));
    let thread = std::thread::Builder::new().name("store".into()).spawn(move || writer.run())?;
    Ok(Opened { store, past, open_before, thread })
}

/// As [`open`], with a writer that a thread, or a simulation, steps.
fn prepare(
    settings: Settings,
    series: Arc<Mutex<Series>>,
    topology: Arc<Mutex<Arc<TopologyView>>>,
    live: Events,
    metrics: Arc<Metrics>,
    clock: Clock,
    disk: Arc<dyn Disk>,
) -> Prepared {
    let queue = Arc::new(Queue::new(Arc::clone(&metrics)));
    let health = Arc::new(Health::default());
    let shelf = Arc::new(Shelf::new(&settings.folder, Arc::clone(&metrics), disk));
    let mut store = Store {
        by_id: BTreeMap::new(),
        replaced: BTreeMap::new(),
        incidents_max: settings.incidents_max,
        queue: Arc::clone(&queue),
        live,
    };
    let opened = Db::open(&settings.folder).or_else(|e| {
        if !e.is_damage() || !set_aside(&settings.folder, &e, &metrics) {
            return Err(e);
        }
        Db::open(&settings.folder)
    });
    let known = |db: &Db| db.incidents(None, 0, None, settings.incidents_max);
    let (db, lines) = match opened.and_then(|db| known(&db).map(|lines| (db, lines))) {
        Ok((db, lines)) => (Some(db), lines),
        Err(e) => {
            metrics.store_failures.inc();
            health.failed(health::Part::Incidents, &e.to_string());
            // What cannot be written may be readable all the same.
            (None, Db::reader(&settings.folder).and_then(|db| known(&db).ok()).unwrap_or_default())
        }
    };
    let open = |line: &&Line| line.incident.state == State::Open;
    let open_before = lines.iter().filter(open).map(|line| Arc::new(line.incident.clone())).collect();
    let unwritten = store.load(lines).into_iter().map(|line| (line.incident.id.clone(), line)).collect();
    let past = Past {
        folder: settings.folder.clone(),
        shelf: Arc::clone(&shelf),
        series: Arc::clone(&series),
        health: Arc::clone(&health),
        queue: Arc::clone(&queue),
        remembered: Arc::default(),
    };
    let store = Arc::new(Mutex::new(store));
    let limits = shelf::Limits::of(&settings);
    let writer = writer::Writer {
        settings,
        queue,
        store: Arc::clone(&store),
        series,
        topology,
        shelf,
        health,
        metrics,
        clock,
        db,
        unwritten,
        traces: BTreeMap::new(),
        open: Vec::new(),
        open_bytes: 0,
        open_bytes_max: writer::OPEN_BYTES_MAX,
        limits,
        opened: None,
        scanned: false,
        incidents_retry: None,
        windows_retry: None,
        traces_retry: None,
    };
    Prepared { store, past, open_before, writer }
}

impl Store {
    /// Takes over what is on disk and not in memory. What was open when the collector died is closed; those are returned, to be
    /// written, now or once the disk works.
    fn load(&mut self, lines: Vec<Line>) -> Vec<Line> {
        let mut closed = Vec::new();
        for mut line in lines {
            if self.by_id.contains_key(&line.incident.id) {
                continue;
            }
            if line.incident.state == State::Open {
                line.incident.state = State::Closed;
                line.incident.version += 1;
                closed.push(line.clone());
            }
            let Line { incident, timeline } = line;
            let versions_before = incident.version + 1;
            let id = incident.id.clone();
            let version = Version { incident: Arc::new(incident), timeline: timeline.map(Arc::new) };
            self.by_id.insert(id, Kept { newest: version.clone(), shown: Some(version), versions_before });
        }
        self.bound();
        closed
    }

    /// Takes a version. Returns it as it is kept, or `None` when it is not newer than what is there. Others see it, and
    /// subscribers get it, once it is on disk.
    pub fn put(&mut self, mut incident: Incident, timeline: Option<Timeline>) -> Option<Arc<Incident>> {
        let before = self.by_id.get(&incident.id);
        let versions_before = before.map_or(0, |kept| kept.versions_before);
        incident.version = incident.version.saturating_add(versions_before);
        if before.is_some_and(|kept| kept.newest.incident.version >= incident.version) {
            return None;
        }
        let shown = before.and_then(|kept| kept.shown.clone());
        // An early alert is not kept on disk: its windows come again after a crash, or it comes again as unconfirmed.
        let written = incident.version > 0
            && self.queue.incident(Line { incident: incident.clone(), timeline: timeline.clone() });
        // The timeline of a long incident is made while the windows of its onset are in memory.
        let timeline =
            timeline.map(Arc::new).or_else(|| before.and_then(|kept| kept.newest.timeline.clone()));
        let newest = Version { incident: Arc::new(incident), timeline };
        let incident = Arc::clone(&newest.incident);
        self.by_id.insert(incident.id.clone(), Kept { newest, shown, versions_before });
        if !written {
            self.shown(&incident.id, incident.version);
        }
        self.bound();
        Some(incident)
    }

    fn bound(&mut self) {
        while self.by_id.len() > self.incidents_max {
            let closed = self.by_id.iter().find(|(_, k)| k.newest.incident.state == State::Closed);
            let closed = closed.map(|(id, _)| id.clone());
            let Some(oldest) = closed.or_else(|| self.by_id.keys().next().cloned()) else { break };
            self.by_id.remove(&oldest);
        }
    }

    /// This version of the incident is what others see, unless they see a newer one; subscribers get it.
    fn shown(&mut self, id: &str, version: u64) {
        let Some(kept) = self.by_id.get_mut(id) else { return };
        let (newest, seen) = (kept.newest.incident.version, kept.shown.as_ref().map(|v| v.incident.version));
        // A newer one waits already and is shown in its turn.
        if newest != version || seen.is_some_and(|seen| seen >= version) {
            return;
        }
        kept.shown = Some(kept.newest.clone());
        self.live.tell(&kept.newest.incident);
        let replaced: Vec<&String> =
            self.replaced.iter().filter(|(_, by)| by.as_str() == id).map(|(alert, _)| alert).collect();
        replaced.into_iter().for_each(|alert| drop(self.by_id.remove(alert)));
    }

    /// An early alert turned out to be part of `by`: once that is shown, only that is listed.
    pub fn replace(&mut self, alert: &str, by: &str) {
        if self.by_id.get(by).is_some_and(|kept| kept.shown.is_some()) {
            self.by_id.remove(alert);
        }
        self.replaced.insert(alert.to_owned(), by.to_owned());
        while self.replaced.len() > self.incidents_max {
            self.replaced.pop_first();
        }
    }

    /// Nothing more will be written: the writer ends once it has written what waits.
    pub fn close(&mut self) {
        self.queue.close();
    }

    /// The incident and, once closed, its timeline. The id of an early alert gives the incident that replaced it.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<(Arc<Incident>, Option<Arc<Timeline>>)> {
        let seen = |id: &str| self.by_id.get(id)?.shown.as_ref();
        let version = self.replaced.get(id).and_then(|by| seen(by)).or_else(|| seen(id))?;
        Some((Arc::clone(&version.incident), version.timeline.clone()))
    }

    /// Whether there is a timeline of it, also of one that others do not see yet.
    #[must_use]
    pub fn has_timeline(&self, id: &str) -> bool {
        self.by_id.get(id).is_some_and(|kept| kept.newest.timeline.is_some())
    }

    /// Incidents that touch `span` (Unix ns, both ends in it) and are wanted, newest first, at most `limit`.
    #[must_use]
    pub fn list(&self, span: (u64, u64), wanted: impl Into<Which>, limit: usize) -> Vec<Arc<Incident>> {
        let wanted = wanted.into();
        self.by_id
            .values()
            .rev()
            .filter_map(|kept| kept.shown.as_ref().map(|version| &version.incident))
            .filter(|i| i.end_unix_ns >= span.0 && i.start_unix_ns <= span.1)
            .filter(|i| wanted.fits(i))
            .take(limit)
            .cloned()
            .collect()
    }

    /// The oldest id in memory; older ones may be on disk.
    #[must_use]
    pub fn oldest(&self) -> Option<String> {
        self.by_id.keys().next().cloned()
    }

    fn lines(&self) -> Vec<Line> {
        let confirmed = self.by_id.values().map(|kept| &kept.newest).filter(|v| v.incident.version > 0);
        confirmed.map(Version::line).collect()
    }

    /// `line` is older than the disk's version of its incident: memory did not know that it was there, so its versions began anew. They go
    /// on from there. Returns what is to be written of it, unless that is newer and waits already, or is written.
    fn go_on(&mut self, line: &Line, on_disk: u64) -> Option<Line> {
        let before = on_disk.saturating_add(1);
        let Some(kept) = self.by_id.get_mut(&line.incident.id) else {
            let mut line = line.clone();
            line.incident.version = line.incident.version.saturating_add(before);
            return Some(line);
        };
        if kept.newest.incident.version < on_disk {
            kept.versions_before = kept.versions_before.saturating_add(before);
            let newest = Arc::make_mut(&mut kept.newest.incident);
            newest.version = newest.version.saturating_add(before);
        }
        let mut newest = (kept.newest.incident.version > on_disk).then(|| kept.newest.line())?;
        newest.timeline = newest.timeline.or_else(|| line.timeline.clone());
        Some(newest)
    }

    /// Stretches around incidents that touch `span`.
    fn spans(&self, span: shelf::Span) -> Vec<shelf::Span> {
        let around = |i: &Incident| {
            let first = WindowIndex::at(i.start_unix_ns.saturating_sub(MARGIN_NS));
            (first, WindowIndex::at(i.end_unix_ns.saturating_add(MARGIN_NS)))
        };
        let all = self.by_id.values().map(|kept| around(&kept.newest.incident));
        all.filter(|s| s.0 <= span.1 && span.0 <= s.1).collect()
    }
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

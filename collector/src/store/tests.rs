//! Tests of what is kept, and of what a crash, a full disk or a damaged file leaves.

use super::db::Db;
use super::disk::{Disk, Output, RealDisk};
use super::segment;
use super::shelf::Entry;
use super::shelf::{Limits, Shelf};
use super::*;
use crate::fixture::incident;
use proptest::prelude::*;
use std::sync::Arc;
use tailwater_model::incident::{Kind, Resource};
use tailwater_model::names::Names;
use tailwater_model::window::*;

#[path = "traces_tests.rs"]
mod traces;

const ALWAYS: (u64, u64) = (0, u64::MAX);

fn settings(folder: &Path) -> Settings {
    Settings {
        folder: folder.to_owned(),
        incidents_max: 3,
        segment_seconds: 60,
        // Windows of the tests are of a fixed day.
        windows_hours: 10_000_000,
        windows_mib_max: 100,
        kept_mib_max: 100,
    }
}

struct Running {
    opened: Opened,
    series: Arc<Mutex<Series>>,
    metrics: Arc<Metrics>,
}

impl Running {
    fn put(&self, incident: Incident) -> Option<Arc<Incident>> {
        self.opened.store.lock().unwrap().put(incident, None)
    }
    fn window(&self, window: HostWindow) {
        let kept = self.series.lock().unwrap().saw(&Input::Window(Arc::new(window))).unwrap();
        self.opened.past.queue.window(kept);
    }
    fn get(&self, id: &str) -> Option<Arc<Incident>> {
        self.opened.store.lock().unwrap().get(id).map(|(incident, _)| incident)
    }
    fn ids(&self) -> Vec<String> {
        self.opened.store.lock().unwrap().list(ALWAYS, None, 10).iter().map(|i| i.id.clone()).collect()
    }
    /// Writes what waits and ends the writer; memory stays to be looked at.
    fn close(self) -> (Arc<Mutex<Store>>, Past, Arc<Metrics>) {
        self.opened.store.lock().unwrap().close();
        self.opened.thread.join().unwrap();
        (self.opened.store, self.opened.past, self.metrics)
    }
}

fn start(folder: &Path) -> Running {
    start_with(settings(folder))
}

fn start_with(settings: Settings) -> Running {
    let series = Arc::new(Mutex::new(Series::new(10, 1 << 24)));
    let metrics = Arc::new(Metrics::default());
    let live = Events::default();
    let opened =
        open(settings, Arc::clone(&series), Arc::default(), live, Arc::clone(&metrics), Clock::default())
            .unwrap();
    Running { opened, series, metrics }
}

fn rows(folder: &Path) -> Vec<Line> {
    Db::reader(folder).unwrap().incidents(None, 0, None, 100).unwrap()
}

#[test]
fn a_restart_keeps_incidents_closes_open_ones_and_goes_on_counting_versions() {
    let folder = tempfile::tempdir().unwrap();
    let a = start(folder.path());
    for version in 0..4 {
        assert!(a.put(incident("01A", version)).is_some());
    }
    assert!(a.put(incident("01A", 3)).is_none(), "told already");
    a.close();
    let b = start(folder.path());
    let kept = b.get("01A").unwrap();
    assert_eq!((kept.version, kept.state), (4, State::Closed));
    // The agents send again what was not acknowledged: the same incident from version 0.
    let again = b.put(incident("01A", 0)).unwrap();
    assert_eq!((again.version, again.state), (5, State::Open));
    assert_eq!(b.put(incident("01A", 1)).unwrap().version, 6);
    let (store, ..) = b.close();
    assert_eq!(store.lock().unwrap().get("01A").unwrap().0.version, 6, "written, so it is shown");
    assert_eq!(rows(folder.path())[0].incident.version, 6);
}

/// Fails where versions of an incident that memory had forgotten begin anew: all of them are older than what is on disk, and none is written.
#[test]
fn an_incident_that_left_memory_and_comes_again_is_written_and_goes_on_counting() {
    let folder = tempfile::tempdir().unwrap();
    let a = start(folder.path());
    let closed = |id: &str, version| Incident { state: State::Closed, ..incident(id, version) };
    (0..5).for_each(|version| drop(a.put(closed("01A", version))));
    ["01B", "01C", "01D"].into_iter().for_each(|id| drop(a.put(closed(id, 1))));
    a.close();
    let on_disk = || rows(folder.path()).into_iter().find(|line| line.incident.id == "01A").unwrap().incident;
    let before = on_disk().version;
    let b = start(folder.path());
    assert!(b.get("01A").is_none(), "three are in memory");
    for version in 1..4 {
        b.put(Incident { title: format!("again, {version}"), ..incident("01A", version) });
        wait(|| b.get("01A").is_some_and(|i| i.title == format!("again, {version}") && i.version > before));
        let (there, shown) = (on_disk(), b.get("01A").unwrap());
        assert_eq!((there.version, &there.title), (shown.version, &shown.title));
    }
    b.close();
    assert_eq!(on_disk().title, "again, 3");
}

#[test]
fn the_json_lines_of_earlier_versions_are_taken_over_but_for_damaged_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (id, version) in [("01A", 1), ("01A", 2), ("01B", 1)] {
        text.push_str(&serde_json::to_string(&incident(id, version)).unwrap());
        text.push('\n');
    }
    text.push_str("{\"id\": garbage}\n");
    text.push_str(&serde_json::to_string(&incident("01C", 1)).unwrap()[..100]);
    let lines = folder.path().join("incidents.jsonl");
    std::fs::write(&lines, &text).unwrap();
    let a = start(folder.path());
    assert_eq!(a.ids(), ["01B", "01A"]);
    assert_eq!(a.get("01A").unwrap().version, 3, "version 2, closed by the restart");
    a.close();
    assert!(!lines.exists());
    assert_eq!(std::fs::read_to_string(folder.path().join("incidents.jsonl.imported")).unwrap(), text);
    assert_eq!(start(folder.path()).ids(), ["01B", "01A"]);
}

#[test]
fn the_oldest_closed_incident_leaves_memory_first_and_stays_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let a = start(folder.path());
    for id in ["01A", "01B", "01C", "01D"] {
        let mut i = incident(id, 1);
        i.state = if id == "01A" { State::Open } else { State::Closed };
        a.put(i);
    }
    let (store, past, _) = a.close();
    let ids: Vec<_> = store.lock().unwrap().list(ALWAYS, None, 10).iter().map(|i| i.id.clone()).collect();
    assert_eq!(ids, ["01D", "01C", "01A"]);
    assert_eq!(store.lock().unwrap().list(ALWAYS, Some(State::Open), 10).len(), 1);
    assert!(store.lock().unwrap().list((u64::MAX, u64::MAX), None, 10).is_empty());
    assert_eq!(past.incident("01B").unwrap().0.id, "01B");
    let older: Vec<_> =
        past.incidents(Some("01C"), ALWAYS, Some(State::Closed), 10).into_iter().map(|i| i.id).collect();
    assert_eq!(older, ["01B"]);
}

#[test]
fn incidents_that_retries_kept_alive_are_found_as_such_in_memory_and_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let a = start(folder.path());
    for id in ["01A", "01B", "01C"] {
        let mut i = incident(id, 1);
        i.state = State::Closed;
        i.sustained = (id == "01B").then(crate::fixture::sustained);
        a.put(i);
    }
    let (store, past, _) = a.close();
    for (sustained, expect) in
        [(Some(true), vec!["01B"]), (Some(false), vec!["01C", "01A"]), (None, vec!["01C", "01B", "01A"])]
    {
        let wanted = Which { state: Some(State::Closed), sustained, ..Which::default() };
        let listed = store.lock().unwrap().list(ALWAYS, wanted.clone(), 10);
        assert_eq!(
            listed.iter().map(|i| i.id.as_str()).collect::<Vec<_>>(),
            expect,
            "{sustained:?} in memory"
        );
        let read = past.incidents(None, ALWAYS, wanted, 10);
        assert_eq!(read.iter().map(|i| i.id.as_str()).collect::<Vec<_>>(), expect, "{sustained:?} on disk");
    }
}

#[test]
fn incidents_are_found_by_what_is_in_them_in_memory_and_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let a = start(folder.path());
    for id in ["01A", "01B", "01C"] {
        let mut i = incident(id, 1);
        i.state = State::Closed;
        if id == "01B" {
            (i.root.resource, i.root.tier, i.root.host) = (Resource::Io, "db".into(), "db-1".into());
            i.root.workload = "mariadb.service".into();
            i.kind = Kind::DownstreamCtqo;
        }
        a.put(i);
    }
    let (store, past, _) = a.close();
    let (any, all) = (Which::default(), vec!["01C", "01B", "01A"]);
    let named = |name: &str| Some(name.to_owned());
    for (wanted, expect) in [
        (Which { kind: Some(Kind::DownstreamCtqo), ..any.clone() }, vec!["01B"]),
        (Which { resource: Some(Resource::CpuNeighbour), ..any.clone() }, vec!["01C", "01A"]),
        (Which { root: named("db"), ..any.clone() }, vec!["01B"]),
        (Which { root: named("db-1"), ..any.clone() }, vec!["01B"]),
        (Which { root: named("mariadb"), ..any.clone() }, vec!["01B"]),
        (Which { root: named("mariadb.service"), ..any.clone() }, vec!["01B"]),
        (Which { root: named("web"), ..any.clone() }, vec![]),
        (Which { service: named("web"), ..any.clone() }, all.clone()),
        (Which { service: named("mariadb"), ..any.clone() }, vec!["01B"]),
        (Which { service: named("apache2"), resource: Some(Resource::Io), ..any.clone() }, vec!["01B"]),
        (any.clone(), all),
    ] {
        let listed = store.lock().unwrap().list(ALWAYS, wanted.clone(), 10);
        let listed: Vec<_> = listed.iter().map(|i| i.id.clone()).collect();
        assert_eq!(listed, expect, "{wanted:?} in memory");
        let read = past.incidents(None, ALWAYS, wanted.clone(), 10);
        assert_eq!(read.iter().map(|i| i.id.as_str()).collect::<Vec<_>>(), expect, "{wanted:?} on disk");
        let two = past.incidents(None, ALWAYS, wanted.clone(), 2);
        assert_eq!(
            two.iter().map(|i| i.id.as_str()).collect::<Vec<_>>(),
            expect[..expect.len().min(2)],
            "{wanted:?}"
        );
    }
}

#[test]
fn a_span_of_time_finds_the_incidents_that_touch_it_in_memory_and_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let a = start(folder.path());
    let hour = 3_600_000_000_000;
    let first = incident("01A", 1).start_unix_ns;
    for (n, id) in ["01A", "01B", "01C", "01D", "01E"].into_iter().enumerate() {
        let (mut i, later) = (incident(id, 1), n as u64 * hour);
        i.state = State::Closed;
        (i.start_unix_ns, i.end_unix_ns) = (i.start_unix_ns + later, i.end_unix_ns + later);
        a.put(i);
    }
    let (store, past, _) = a.close();
    let found = |span: (u64, u64)| -> Vec<String> {
        let store = store.lock().unwrap();
        let oldest = store.oldest();
        let newest = store.list(span, None, 10).into_iter().map(|i| i.id.clone());
        let older = past.incidents(oldest.as_deref(), span, None, 10).into_iter().map(|i| i.id);
        newest.chain(older).collect()
    };
    assert!(store.lock().unwrap().oldest().unwrap().as_str() > "01A", "the oldest are on disk only");
    assert_eq!(found(ALWAYS), ["01E", "01D", "01C", "01B", "01A"]);
    assert_eq!(found((first + hour, first + 3 * hour)), ["01D", "01C", "01B"], "both ends are in it");
    assert_eq!(found((0, first)), ["01A"]);
    assert!(found((0, first - 1)).is_empty());
    assert_eq!(found((first + 4 * hour, u64::MAX)), ["01E"]);
}

#[test]
fn a_replaced_alert_is_listed_no_more_but_its_id_still_leads_somewhere() {
    let folder = tempfile::tempdir().unwrap();
    let a = start(folder.path());
    a.put(incident("01B", 0));
    assert_eq!(a.ids(), ["01B"], "an early alert is shown at once");
    a.opened.store.lock().unwrap().replace("01B", "01A");
    assert!(a.get("01B").is_some(), "until what replaces it is shown");
    a.put(incident("01A", 1));
    let (store, ..) = a.close();
    assert_eq!(store.lock().unwrap().list(ALWAYS, None, 10).len(), 1);
    assert_eq!(store.lock().unwrap().get("01B").unwrap().0.id, "01A");
    assert_eq!(rows(folder.path()).len(), 1, "an early alert is not kept");
}

#[test]
fn a_folder_that_cannot_be_used_leaves_a_store_in_memory_that_says_so_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    // A file where the folder should be: nobody can write there, not even root.
    let data = folder.path().join("data");
    std::fs::write(&data, "in the way").unwrap();
    let a = start(&data);
    a.put(incident("01A", 1));
    wait(|| a.get("01A").is_some());
    assert!(a.opened.past.health.problem().unwrap().contains("data"));
    std::fs::remove_file(&data).unwrap();
    wait(|| a.opened.past.health.problem().is_none());
    let (_, _, metrics) = a.close();
    assert!(metrics.store_failures.get() > 0);
    assert_eq!(rows(&data)[0].incident.id, "01A", "what was told meanwhile is written");
}

fn wait(mut done: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("waited 20 s");
}

#[test]
fn a_damaged_database_is_set_aside_and_a_later_one_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(FILE), vec![b'x'; 8192]).unwrap();
    let a = start(folder.path());
    a.put(incident("01A", 1));
    let (_, _, metrics) = a.close();
    assert_eq!(metrics.store_segments_torn.get(), 1);
    assert_eq!(rows(folder.path()).len(), 1);
    assert!(folder.path().join("aside").join(format!("{FILE}.0")).exists());
    let later = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    later.pragma_update(None, "user_version", 99).unwrap();
    drop(later);
    let text = Db::open(folder.path()).unwrap_err().to_string();
    assert!(text.contains("version 99") && text.contains("remedy"), "{text}");
}

/// Fails where only a file that cannot be opened is set aside: this one can be, and no incident would be written any more.
#[test]
fn a_database_with_a_damaged_page_is_set_aside_and_incidents_are_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let a = start_with(Settings { incidents_max: 100, ..settings(folder.path()) });
    for n in 0..100 {
        a.put(incident(&format!("01{n:03}"), 1));
    }
    a.close();
    let path = folder.path().join(FILE);
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 100_000, "it is all in the one file");
    bytes[4096..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let b = start(folder.path());
    b.put(incident("02A", 1));
    wait(|| b.opened.past.health.problem().is_none() && b.opened.past.incident("02A").is_some());
    let (_, _, metrics) = b.close();
    assert!(folder.path().join("aside").join(format!("{FILE}.0")).exists());
    assert_eq!((metrics.store_segments_torn.get(), rows(folder.path()).len()), (1, 1));
}

/// Fails where it is counted as moved each time that it is tried: it is where it was, and the count grows by one a second.
#[test]
fn a_damaged_database_that_cannot_be_put_aside_is_not_counted_as_if_it_were() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (folder.path().join(FILE), folder.path().join("aside"));
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    // A file where the folder should be: nobody puts anything there, not even root.
    std::fs::write(&aside, "in the way").unwrap();
    let Prepared { store, mut writer, .. } = prepared(folder.path());
    store.lock().unwrap().put(incident("01A", 1), None);
    for _ in 0..3 {
        writer.incidents_retry = None;
        writer.turn(std::time::Duration::ZERO);
    }
    assert_eq!((writer.metrics.store_segments_torn.get(), writer.unwritten.len()), (0, 1));
    std::fs::remove_file(&aside).unwrap();
    writer.incidents_retry = None;
    writer.turn(std::time::Duration::ZERO);
    assert_eq!((writer.metrics.store_segments_torn.get(), rows(folder.path()).len()), (1, 1));
}

/// A writer that the test steps, and the store before it.
fn prepared(folder: &Path) -> Prepared {
    let (series, metrics) = (Arc::new(Mutex::new(Series::new(10, 1 << 24))), Arc::default());
    let disk = Arc::new(RealDisk);
    prepare(settings(folder), series, Arc::default(), Events::default(), metrics, Clock::default(), disk)
}

fn timeline() -> Timeline {
    let (start_unix_ns, window_ns) = (1_794_000_000_000_000_000, 50_000_000);
    Timeline { start_unix_ns, window_ns, tiers: Vec::new(), resource: None }
}

/// Fails where the first answer of a damaged page puts a whole database aside, or one that nobody would write into any more is begun.
#[test]
fn a_database_with_a_damaged_page_is_set_aside_when_it_was_opened_anew_and_not_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let a = start_with(Settings { incidents_max: 100, ..settings(folder.path()) });
    for n in 0..100 {
        a.put(incident(&format!("01{n:03}"), 1));
    }
    a.close();
    let (path, aside) = (folder.path().join(FILE), folder.path().join("aside"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let Prepared { store, mut writer, .. } = prepared(folder.path());
    store.lock().unwrap().put(incident("02A", 1), None);
    writer.turn(std::time::Duration::ZERO);
    assert!(writer.incidents_retry.is_some() && !aside.exists(), "once");
    store.lock().unwrap().close();
    writer.turn(std::time::Duration::ZERO);
    assert!(path.exists() && !aside.exists(), "the end");
    let Prepared { store, mut writer, .. } = prepared(folder.path());
    store.lock().unwrap().put(incident("02A", 1), None);
    writer.turn(std::time::Duration::ZERO);
    // The second that it waits is over.
    writer.incidents_retry = Some(writer.clock.monotonic());
    writer.turn(std::time::Duration::ZERO);
    assert!(!path.exists() && aside.exists(), "twice");
}

/// Fails where what is newer than the row on disk and what goes on counting behind it are two transactions: the disk then takes the one, and
/// not the other, and nobody knows which.
#[test]
fn a_disk_that_is_full_takes_all_of_what_waits_or_none_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let line = |id: &str, version, title: &str| Line {
        incident: Incident { title: title.to_owned(), ..incident(id, version) },
        timeline: None,
    };
    let mut db = Db::open(folder.path()).unwrap();
    db.put([line("01A", 5, "before"), line("01B", 1, "before")].iter(), |_, _| None).unwrap();
    db.set_full(true).unwrap();
    let mut asked = Vec::new();
    let waiting = [line("01A", 1, "after"), line("01B", 2, "after")];
    let long = "x".repeat(100_000);
    let written = db.put(waiting.iter(), |older, on_disk| {
        asked.push((older.incident.id.clone(), on_disk));
        Some(line("01A", 6, &long))
    });
    assert!(written.is_err());
    db.set_full(false).unwrap();
    assert!(rows(folder.path()).iter().all(|row| row.incident.title == "before"));
    let newer = line("01A", 6, "after");
    db.put(waiting.iter(), |_, _| Some(newer.clone())).unwrap();
    let of = |row: Line| (row.incident.id, row.incident.version, row.incident.title);
    let there: Vec<_> = rows(folder.path()).into_iter().map(of).collect();
    let after = |id: &str, version: u64| (id.to_owned(), version, "after".to_owned());
    assert_eq!(there, [after("01B", 2), after("01A", 6)]);
    assert_eq!(asked, [("01A".to_owned(), 5_u64)]);
}

/// Fails where a version takes the place of the one that waits with all that came with that one: the timeline is told once and in no row.
#[test]
fn a_timeline_is_written_with_the_next_version_if_that_one_is_faster_than_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let Prepared { store, mut writer, .. } = prepared(folder.path());
    let put = |version, timeline| store.lock().unwrap().put(incident("01A", version), timeline).is_some();
    assert!(put(1, Some(timeline())) && put(2, None), "both wait in the queue");
    // While the database is not to be tried, what was taken waits in the writer.
    writer.incidents_retry = Some(writer.clock.monotonic() + std::time::Duration::from_secs(3600));
    writer.turn(std::time::Duration::ZERO);
    assert!(put(3, None) && rows(folder.path()).is_empty());
    writer.turn(std::time::Duration::ZERO);
    writer.incidents_retry = None;
    writer.turn(std::time::Duration::ZERO);
    let row = rows(folder.path()).remove(0);
    assert_eq!((row.incident.version, row.timeline), (3, Some(timeline())));
}

/// Fails where what waits is left as it is when a new database is begun: its timeline was in the old one, and only memory has it now.
#[test]
fn a_new_database_has_the_timeline_of_an_incident_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    let Prepared { store, mut writer, .. } = prepared(folder.path());
    let put = |version, timeline| store.lock().unwrap().put(incident("01A", version), timeline).is_some();
    assert!(put(1, Some(timeline())));
    writer.turn(std::time::Duration::ZERO);
    // What stands there now is opened anew, and is no database.
    writer.db = None;
    std::fs::write(folder.path().join(FILE), vec![b'x'; 8192]).unwrap();
    assert!(put(2, None));
    writer.turn(std::time::Duration::ZERO);
    let row = rows(folder.path()).remove(0);
    assert_eq!((row.incident.version, row.timeline), (2, Some(timeline())));
}

/// Fails where the end counts nothing: what was never written is then missed by nobody.
#[test]
fn what_no_disk_took_until_the_end_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::write(&data, "in the way").unwrap();
    let a = start(&data);
    a.put(incident("01A", 1));
    (0..5).for_each(|n| a.window(some_window("web-1", 35_880_000_000 + n, n)));
    let (_, _, metrics) = a.close();
    assert_eq!((metrics.store_windows_dropped.get(), metrics.store_updates_dropped.get()), (5, 1));
}

fn some_window(host: &str, index: u64, seed: u64) -> HostWindow {
    // Whole microseconds, as they are kept.
    let n = |k: u64| (seed.wrapping_mul(2_654_435_761).wrapping_add(k * 7919) % 50_000) * 1_000;
    let mut w = HostWindow {
        host: host.to_owned(),
        index: WindowIndex(index),
        clock_error_ns: n(1),
        clock_corrected: seed.is_multiple_of(2),
        lost_before: seed % 3,
        uncovered: SignalSet::of(["memory", "calls"].into_iter().take((seed % 40 / 38) as usize)),
        sampled: SignalSet::of(["cpu", "accept_queue"].into_iter().take((seed % 30 / 14) as usize)),
        cpu: (!seed.is_multiple_of(5)).then(|| HostCpu {
            capacity_ns: 100_000_000,
            busy_ns: n(2),
            throttled_ns: seed.is_multiple_of(2).then(|| n(3)),
            ..HostCpu::default()
        }),
        ..HostWindow::default()
    };
    for id in 1..=seed % 4 {
        let id = u32::try_from(id).unwrap();
        let throttled_ns = seed.is_multiple_of(7).then(|| n(4));
        let stopped_ns = seed.is_multiple_of(5).then(|| n(5));
        w.workloads.insert(
            id,
            WorkloadWindow { busy_ns: n(5), throttled_ns, stopped_ns, ..WorkloadWindow::default() },
        );
        w.listeners.insert(
            id,
            ListenerWindow {
                drops: seed % 11,
                limit: 128,
                depth_max: u32::MAX,
                answered: 3,
                response_ns: n(6),
                ..ListenerWindow::default()
            },
        );
        w.edges.insert(id, EdgeWindow { in_flight_max: 9, first_try_unix_ns: n(7), ..EdgeWindow::default() });
        w.devices.insert(id, DeviceWindow { latency_ns: n(8), ..DeviceWindow::default() });
        w.culprits.push(CulpritSample {
            resource: CulpritResource::IoBytes,
            pid: 7,
            comm: "burner".into(),
            workload: id,
            amount: n(9),
        });
    }
    w
}

fn names() -> Names {
    let mut names = Names::default();
    for id in 1..4 {
        names.workloads.insert(
            id,
            WorkloadInfo {
                id,
                cgroup: format!("/system.slice/w{id}"),
                name: format!("w{id}.service"),
                comm: "java".into(),
                cpu_quota_ns: 25_000_000,
                shares: if id % 2 == 0 { id - 1 } else { 0 },
            },
        );
        let port = 8080 + u16::try_from(id).unwrap();
        names.listeners.insert(
            id,
            ListenerInfo {
                id,
                workload: id,
                address: [10, 0, 0, 1].into(),
                port,
                path: None,
                comm: "j".into(),
                pool: None,
                started_with: 0,
                pid: 0,
            },
        );
        names.edges.insert(
            id,
            EdgeInfo {
                id,
                workload: id,
                remote_address: "fd00::1".parse().unwrap(),
                remote_port: 3306,
                path: None,
            },
        );
        names.devices.insert(id, DeviceInfo { id, name: "vda".into() });
    }
    names
}

fn names_of<'a>(hosts: impl Iterator<Item = &'a str>) -> BTreeMap<String, Arc<Names>> {
    hosts.map(|host| (host.to_owned(), Arc::new(names()))).collect()
}

fn shelf(folder: &Path) -> (Shelf, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    let shelf = Shelf::new(folder, Arc::clone(&metrics), Arc::new(RealDisk));
    shelf.scan().unwrap();
    (shelf, metrics)
}

fn read_all(shelf: &Shelf, host: &str) -> Vec<HostWindow> {
    let all = (WindowIndex(0), WindowIndex(u64::MAX));
    let read = |entry: &Entry| shelf.read(entry, host, all.0, all.1, Wanted::All);
    let inputs = shelf.over(all.0, all.1).iter().filter_map(read).flatten().collect::<Vec<_>>();
    let window = |input| match input {
        Input::Window(w) => Arc::into_inner(w),
        _ => None,
    };
    inputs.into_iter().filter_map(window).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_segment_gives_back_every_value_of_every_window(
        seeds in proptest::collection::btree_map((0_u64..3, 35_880_000_000_u64..35_880_000_050), 0_u64..1000, 1..60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (shelf, metrics) = shelf(folder.path());
        let windows: Vec<_> =
            seeds.iter().map(|((h, index), seed)| Arc::new(some_window(&format!("host-{h}"), *index, *seed))).collect();
        shelf.add(&windows, &names_of(windows.iter().map(|w| w.host.as_str()))).unwrap();
        for host in ["host-0", "host-1", "host-2"] {
            let sent: Vec<HostWindow> =
                windows.iter().filter(|w| w.host == host).map(|w| w.as_ref().clone()).collect();
            prop_assert_eq!(read_all(&shelf, host), sent);
        }
        prop_assert_eq!(metrics.store_segments_torn.get(), 0);
    }
}

#[test]
fn each_metric_is_the_same_from_memory_and_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let base = 35_880_000_000;
    let running = start(folder.path());
    let all = names();
    let entities = Input::Entities {
        host: "web-1".into(),
        workloads: all.workloads.into_values().collect(),
        listeners: all.listeners.into_values().collect(),
        edges: all.edges.into_values().collect(),
        devices: all.devices.into_values().collect(),
    };
    running.series.lock().unwrap().saw(&entities);
    for n in (0..200).filter(|n| n % 17 != 0) {
        running.window(some_window("web-1", base + n, n));
    }
    let memory = Arc::clone(&running.series);
    running.close();
    // A new process: nothing in memory.
    let after = start(folder.path());
    wait(|| after.opened.past.span().is_some());
    let (first, last) = (WindowIndex(base), WindowIndex(base + 199));
    for (workload, listener) in
        [(None, None), (Some("w1.service"), None), (Some("w2.service"), Some("10.0.0.1:8082"))]
    {
        let of = |metric| crate::live::view::Query { host: "web-1", workload, listener, metric };
        let queries: Vec<_> = crate::live::metric::METRICS.iter().map(|metric| of(metric.name)).collect();
        let together = after.opened.past.points(&queries, first, last, 70);
        for (query, together) in queries.iter().zip(together) {
            let expected = Series::points(&memory, &[*query], first, last, 70).remove(0);
            let alone = after.opened.past.points(&[*query], first, last, 70).remove(0);
            assert_eq!(alone, expected, "{} of {workload:?}", query.metric);
            assert_eq!(together, expected, "{} of {workload:?}, with the others", query.metric);
        }
    }
    // A moment long gone, as it was told when it was now: in the middle of the windows and at a quiet queue's limit.
    for n in [60, 199, 400] {
        let until = WindowIndex(base + n).start_unix_ns();
        let workloads = [None, Some("w1.service"), Some("nobody.service")];
        let expected = workloads.map(|of| memory.lock().unwrap().now("web-1", of, until, 100));
        let found = after.opened.past.now("web-1", &workloads, until, 100);
        assert_eq!(found, expected, "the {n}th window");
        assert_eq!(found[1].metrics["cpu_busy_ratio"].last.is_some(), n < 300, "{found:?}");
    }
    let known = after.opened.past.host("web-1").unwrap();
    let names: Vec<&str> = known.workloads.iter().map(|w| w.name.as_str()).collect();
    assert!(names.contains(&"w1.service") && names.contains(&"w2.service"), "{names:?}");
    let w2 = known.workloads.iter().find(|w| w.name == "w2.service").unwrap();
    assert_eq!((&w2.listeners[..], &w2.remotes), (&["10.0.0.1:8082".to_owned()][..], &None));
    assert_eq!(known.newest_unix_ns, WindowIndex(base + 199).end_unix_ns());
    assert_eq!(after.opened.past.host("nobody"), None);
    let seen = after.opened.past.inventory(ALWAYS, None, None);
    let hosts = after.opened.past.inventory(ALWAYS, Some("host"), None);
    assert_eq!(hosts, seen.iter().filter(|s| s.kind == "host").cloned().collect::<Vec<_>>());
    let listener = seen.iter().find(|s| s.name == "10.0.0.1:8082").unwrap();
    assert_eq!((listener.kind.as_str(), listener.detail.as_str()), ("listener", "w2.service"));
    assert_eq!(listener.last_unix_ns, WindowIndex(base + 199).end_unix_ns());
    after.close();
}

fn minute(shelf: &Shelf, first: u64) {
    let windows: Vec<_> = (0..1200).map(|n| Arc::new(some_window("web-1", first + n, n))).collect();
    shelf.add(&windows, &names_of(["web-1"].into_iter())).unwrap();
}

#[test]
fn windows_go_by_age_and_those_around_an_incident_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, metrics) = shelf(folder.path());
    let base = 35_880_000_000;
    (0..4).for_each(|n| minute(&shelf, base + n * 1200));
    let now = WindowIndex(base + 4 * 1200 + 10).start_unix_ns();
    let limits = Limits { age_ns: 60_000_000_000, bytes: u64::MAX, kept_bytes: u64::MAX };
    // Kept: the last second of the first minute and the first of the second.
    let around = (WindowIndex(base + 1180), WindowIndex(base + 1219));
    shelf
        .retain(
            &limits,
            now,
            |span| if around.0 <= span.1 && span.0 <= around.1 { vec![around] } else { vec![] },
        )
        .unwrap();
    let left: Vec<u64> = read_all(&shelf, "web-1").iter().map(|w| w.index.0 - base).collect();
    let expected: Vec<u64> = (1180..1220).chain(3600..4800).collect();
    assert_eq!(left, expected);
    assert_eq!(metrics.store_segments_expired.get(), 3);
    assert_eq!(read_all(&shelf, "web-1")[0], some_window("web-1", base + 1180, 1180), "kept in full");
    // After a restart the same.
    let again = self::shelf(folder.path()).0;
    assert_eq!(read_all(&again, "web-1").len(), expected.len());
    let none = Limits { kept_bytes: 0, ..limits };
    again.retain(&none, now, |_| vec![]).unwrap();
    assert_eq!(read_all(&again, "web-1").len(), 1200, "what is kept has a limit too");
}

/// Three minutes of windows, an hour ago, with an incident from 80.01 s to 80.99 s. What is left of them, in windows from their begin.
fn left_around_an_incident(folder: &Path, limits: impl Fn(Settings) -> Settings, segments: u64) -> Vec<u64> {
    let base = WindowIndex::at(Clock::default().unix_ns()).0 - 72_000;
    let begin = WindowIndex(base).start_unix_ns();
    let mut i = incident("01A", 1);
    i.state = State::Closed;
    (i.start_unix_ns, i.end_unix_ns) = (begin + 80_010_000_000, begin + 80_990_000_000);
    let put = |running: &Running, from: u64, to: u64| {
        (from..to).for_each(|n| running.window(some_window("web-1", base + n, n)));
    };
    // Each life ends with a segment; the last one is over what may be kept.
    for n in 0..segments {
        let last = n + 1 == segments;
        let running = start_with(if last { limits(settings(folder)) } else { settings(folder) });
        if n == 0 {
            running.put(i.clone());
        }
        put(&running, 3600 / segments * n, 3600 / segments * (n + 1));
        running.close();
    }
    let shelf = shelf(folder).0;
    assert_eq!(shelf.totals().1, 0, "what is not around an incident is gone");
    read_all(&shelf, "web-1").iter().map(|w| w.index.0 - base).collect()
}

/// From the window in which 30 s before its start lies to that of 30 s after its end.
const AROUND: std::ops::RangeInclusive<u64> = 50 * 20..=110 * 20 + 19;

#[test]
fn the_writer_keeps_the_windows_from_30_s_before_to_30_s_after_an_incident_and_no_other() {
    for segments in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let old = left_around_an_incident(folder.path(), |s| Settings { windows_hours: 0, ..s }, segments);
        assert_eq!(old, AROUND.collect::<Vec<_>>(), "by age, of {segments} segments");
        let folder = tempfile::tempdir().unwrap();
        let many = left_around_an_incident(folder.path(), |s| Settings { windows_mib_max: 0, ..s }, segments);
        assert_eq!(many, AROUND.collect::<Vec<_>>(), "by bytes, of {segments} segments");
    }
}

#[test]
fn the_writer_keeps_them_too_while_the_database_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody can open that, not even root; the windows beside it can be written.
    std::fs::create_dir(folder.path().join(FILE)).unwrap();
    let left = left_around_an_incident(folder.path(), |s| Settings { windows_hours: 0, ..s }, 1);
    assert_eq!(left, AROUND.collect::<Vec<_>>());
}

#[test]
fn the_oldest_windows_go_when_there_are_too_many_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, _) = shelf(folder.path());
    let base = 35_880_000_000;
    minute(&shelf, base);
    let one = shelf.totals().1;
    (1..5).for_each(|n| minute(&shelf, base + n * 1200));
    let limits = Limits { age_ns: u64::MAX, bytes: one * 5 / 2, kept_bytes: 0 };
    shelf.retain(&limits, u64::MAX, |_| vec![]).unwrap();
    assert_eq!(read_all(&shelf, "web-1").first().unwrap().index.0, base + 3 * 1200);
    assert!(shelf.totals().1 <= limits.bytes);
}

#[test]
fn torn_foreign_and_half_written_files_are_out_of_the_way_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, _) = shelf(folder.path());
    let base = 35_880_000_000;
    (0..3).for_each(|n| minute(&shelf, base + n * 1200));
    let windows = folder.path().join("windows");
    let mut segments: Vec<_> = std::fs::read_dir(&windows).unwrap().map(|f| f.unwrap().path()).collect();
    segments.sort();
    let torn = segments[0].join("listener.parquet");
    let bytes = std::fs::read(&torn).unwrap();
    std::fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    // The footer is whole, a page is not: found when it is read.
    let rotten = segments[1].join("workload.parquet");
    let mut bytes = std::fs::read(&rotten).unwrap();
    let half = bytes.len() / 2;
    bytes[4..half].fill(0xff);
    std::fs::write(&rotten, bytes).unwrap();
    std::fs::create_dir(windows.join("20261121T000000.000Z-20261121T000100.000Z-0000.tmp")).unwrap();
    std::fs::write(windows.join("notes.txt"), "mine").unwrap();
    let (again, metrics) = self::shelf(folder.path());
    assert_eq!(metrics.store_segments_torn.get(), 3);
    let left = read_all(&again, "web-1");
    assert_eq!(left.len(), 1200);
    assert_eq!(left[0].index.0, base + 2400);
    assert_eq!(metrics.store_segments_torn.get(), 4);
    let aside = std::fs::read_dir(folder.path().join("aside")).unwrap().count();
    assert_eq!(aside, 3, "two segments and the notes, none of them deleted");
}

/// A disk that refuses one sort of work: `create`, `remove`, `sync` of the folder of segments, or the `way back` after that; or has no more
/// files to `open`.
#[derive(Debug, Default)]
struct Refusing(Mutex<&'static str>);

impl Refusing {
    fn may(&self, what: &str) -> std::io::Result<()> {
        if *self.0.lock().unwrap() == what { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
    fn refuses(&self, what: &'static str) {
        *self.0.lock().unwrap() = what;
    }
}

impl Disk for Refusing {
    fn create(&self, path: &Path) -> std::io::Result<Box<dyn Output>> {
        self.may("create")?;
        if *self.0.lock().unwrap() == "open" {
            return Err(std::io::Error::from_raw_os_error(libc::EMFILE));
        }
        RealDisk.create(path)
    }
    fn create_folder(&self, path: &Path) -> std::io::Result<()> {
        RealDisk.create_folder(path)
    }
    fn create_folders(&self, path: &Path) -> std::io::Result<()> {
        RealDisk.create_folders(path)
    }
    fn sync_folder(&self, path: &Path) -> std::io::Result<()> {
        if path.ends_with("windows") {
            self.may("sync")?;
            self.may("way back")?;
        }
        RealDisk.sync_folder(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        if to.extension().is_some_and(|end| end == "tmp") {
            self.may("way back")?;
        }
        RealDisk.rename(from, to)
    }
    fn remove_folder(&self, path: &Path) -> std::io::Result<()> {
        self.may("remove")?;
        RealDisk.remove_folder(path)
    }
}

fn refusing(folder: &Path) -> (Shelf, Arc<Refusing>) {
    let disk = Arc::new(Refusing::default());
    let shelf = Shelf::new(folder, Arc::default(), Arc::<Refusing>::clone(&disk));
    shelf.scan().unwrap();
    (shelf, disk)
}

fn names_in(folder: &Path) -> Vec<String> {
    let items = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        items.map(|item| item.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

const A_SECOND: u64 = 20;

fn a_second(shelf: &Shelf, first: u64) -> Result<Written, SegmentError> {
    let windows: Vec<_> = (0..A_SECOND).map(|n| Arc::new(some_window("web-1", first + n, n))).collect();
    shelf.add(&windows, &names_of(["web-1"].into_iter()))
}

/// Fails where a segment whose name was refused to be synced is left where it is: its windows, written again, are there twice.
#[test]
fn a_segment_that_was_not_synced_and_is_written_again_is_there_once() {
    for refused in ["sync", "way back"] {
        let folder = tempfile::tempdir().unwrap();
        let (shelf, disk) = refusing(folder.path());
        let base = 35_880_000_000;
        disk.refuses(refused);
        assert!(a_second(&shelf, base).is_err());
        disk.refuses("");
        a_second(&shelf, base).unwrap();
        assert_eq!(names_in(&folder.path().join("windows")).len(), 1, "{refused}");
        assert_eq!(read_all(&self::shelf(folder.path()).0, "web-1").len() as u64, A_SECOND, "{refused}");
    }
}

/// Fails where a segment that has its other name already is taken for one that is gone: it takes space that nobody counts.
#[test]
fn a_segment_that_could_not_be_removed_is_removed_later() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, disk) = refusing(folder.path());
    a_second(&shelf, 35_880_000_000).unwrap();
    let limits = Limits { age_ns: 0, bytes: u64::MAX, kept_bytes: u64::MAX };
    disk.refuses("remove");
    assert!(shelf.retain(&limits, u64::MAX, |_| vec![]).is_err());
    disk.refuses("");
    shelf.retain(&limits, u64::MAX, |_| vec![]).unwrap();
    assert_eq!(names_in(&folder.path().join("windows")), Vec::<String>::new());
    assert_eq!(shelf.totals(), (None, 0, 0));
}

/// Fails where the first segment that cannot be removed ends the pass: those behind it are never removed, and the disk fills.
#[test]
fn a_segment_that_cannot_be_removed_keeps_no_other_from_going_and_is_kept_once() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, _) = shelf(folder.path());
    let base = 35_880_000_000;
    for n in 0..3 {
        a_second(&shelf, base + n * A_SECOND).unwrap();
    }
    let (windows, kept) = (folder.path().join("windows"), folder.path().join("kept"));
    let first = names_in(&windows).remove(0);
    // Something under the name that it is to have while it goes: nobody, not even root, renames it to that.
    let in_the_way = windows.join(format!("{first}.tmp"));
    std::fs::create_dir(&in_the_way).unwrap();
    std::fs::write(in_the_way.join("notes"), "mine").unwrap();
    let around = |(from, to): (WindowIndex, WindowIndex)| {
        if from.0 == base { vec![(from, to)] } else { Vec::new() }
    };
    let by_age = Limits { age_ns: 0, bytes: u64::MAX, kept_bytes: u64::MAX };
    for _ in 0..3 {
        assert!(shelf.retain(&by_age, u64::MAX, around).is_err(), "it is told");
        assert_eq!(names_in(&windows), [first.clone(), format!("{first}.tmp")]);
        assert_eq!(names_in(&kept).len(), 1, "its copy is there once");
    }
    let by_bytes = Limits { age_ns: u64::MAX, bytes: 0, kept_bytes: 0 };
    a_second(&shelf, base + 10 * A_SECOND).unwrap();
    assert!(shelf.retain(&by_bytes, u64::MAX, |_| vec![]).is_err());
    assert_eq!((names_in(&windows).len(), names_in(&kept).len()), (2, 0));
    std::fs::remove_dir_all(&in_the_way).unwrap();
    shelf.retain(&by_bytes, u64::MAX, |_| vec![]).unwrap();
    assert_eq!((names_in(&windows).len(), shelf.totals()), (0, (None, 0, 0)));
}

/// Fails where the rest of a crash that cannot be removed ends the look at the segments: then no window is written until it can be.
#[test]
fn what_a_crash_left_and_nobody_can_remove_keeps_no_segment_from_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, disk) = refusing(folder.path());
    let windows = folder.path().join("windows");
    std::fs::create_dir(windows.join("20261121T000000.000Z-20261121T000100.000Z-0000.tmp")).unwrap();
    disk.refuses("remove");
    shelf.scan().unwrap();
    a_second(&shelf, 35_880_000_000).unwrap();
    assert_eq!(names_in(&windows).len(), 2);
}

/// Fails where a segment that is kept whole takes its name along: retention then ends there while the disk is full, which it stays.
#[test]
fn a_segment_that_is_kept_whole_finds_a_name_beside_what_a_crash_left_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, disk) = refusing(folder.path());
    a_second(&shelf, 35_880_000_000).unwrap();
    let limits = Limits { age_ns: 0, bytes: u64::MAX, kept_bytes: u64::MAX };
    let (windows, kept) = (folder.path().join("windows"), folder.path().join("kept"));
    let name = names_in(&windows).remove(0);
    std::fs::create_dir(kept.join(&name)).unwrap();
    for kind in crate::columns::Kind::ALL {
        std::fs::copy(windows.join(&name).join(kind.file()), kept.join(&name).join(kind.file())).unwrap();
    }
    disk.refuses("create");
    shelf.retain(&limits, u64::MAX, |span| vec![span]).unwrap();
    assert_eq!((names_in(&windows).len(), names_in(&kept).len()), (0, 2));
}

/// Fails where it is kept as a whole: the bound of what is kept is then used up by windows around no incident.
#[test]
fn a_segment_that_cannot_be_trimmed_for_want_of_open_files_is_trimmed_later() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, disk) = refusing(folder.path());
    let base = 35_880_000_000;
    a_second(&shelf, base).unwrap();
    let limits = Limits { age_ns: 0, bytes: u64::MAX, kept_bytes: u64::MAX };
    let around = |_: (WindowIndex, WindowIndex)| vec![(WindowIndex(base), WindowIndex(base + 4))];
    disk.refuses("open");
    assert!(shelf.retain(&limits, u64::MAX, around).is_err());
    assert_eq!(read_all(&shelf, "web-1").len() as u64, A_SECOND, "all is there, where it was");
    assert_eq!(shelf.totals().2, 0);
    disk.refuses("");
    shelf.retain(&limits, u64::MAX, around).unwrap();
    assert_eq!(read_all(&shelf, "web-1").len(), 5);
}

/// Fails where only the first segment is looked at: the one that was open when the clock was set is in the way of all others.
#[test]
fn a_segment_from_before_the_clock_was_set_until_after_it_hides_no_age_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, _) = shelf(folder.path());
    let (base, day) = (35_880_000_000, 1_728_000);
    let across = [base, base + 10 * day].map(|n| Arc::new(some_window("web-1", n, 1)));
    shelf.add(&across, &names_of(["web-1"].into_iter())).unwrap();
    a_second(&shelf, base + A_SECOND).unwrap();
    let limits = Limits { age_ns: 60_000_000_000, bytes: u64::MAX, kept_bytes: u64::MAX };
    shelf.retain(&limits, WindowIndex(base + day).start_unix_ns(), |_| vec![]).unwrap();
    let left: Vec<u64> = read_all(&shelf, "web-1").iter().map(|w| w.index.0).collect();
    assert_eq!(left, [base, base + 10 * day]);
}

/// Fails where it is removed like a folder: that is refused, and no segment is written any more.
#[test]
fn a_file_with_the_name_of_a_half_written_segment_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("windows")).unwrap();
    std::fs::write(folder.path().join("windows/notes.tmp"), "mine").unwrap();
    let (shelf, metrics) = shelf(folder.path());
    assert_eq!(metrics.store_segments_torn.get(), 1);
    assert_eq!(names_in(&folder.path().join("aside")), ["notes.tmp.0"]);
    a_second(&shelf, 35_880_000_000).unwrap();
}

/// Fails where an error of the process counts as one of the file: whole segments were then set aside when too many files were open.
#[test]
fn no_more_open_files_say_nothing_of_a_segment() {
    let of = |code| {
        let source = std::io::Error::from_raw_os_error(code).into();
        SegmentError::File { path: "host.parquet".into(), source }
    };
    for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
        assert_eq!(of(code).lacking().and_then(|e| e.raw_os_error()), Some(code));
    }
    for code in [libc::ENOENT, libc::EIO, libc::ENOTDIR] {
        assert!(of(code).lacking().is_none());
    }
}

#[test]
fn a_file_with_a_wrong_bit_or_without_its_end_is_read_or_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, _) = shelf(folder.path());
    let windows: Vec<_> = (0..40).map(|n| Arc::new(some_window("web-1", 35_880_000_000 + n, n))).collect();
    shelf.add(&windows, &names_of(["web-1"].into_iter())).unwrap();
    let segment = std::fs::read_dir(folder.path().join("windows")).unwrap().next().unwrap().unwrap().path();
    let ever = (WindowIndex(0), WindowIndex(u64::MAX));
    let (mut refused, mut read) = (0, 0);
    for kind in crate::columns::Kind::ALL {
        let path = segment.join(kind.file());
        let whole = std::fs::read(&path).unwrap();
        let tried = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let whole = read_segment(&segment, ever, Wanted::All, drop);
            if let Err(told) = &whole {
                assert!(told.to_string().contains(kind.file()), "{told}");
            }
            whole.is_ok()
        };
        for at in (0..whole.len()).step_by(89) {
            assert!(!tried(&whole[..at]), "{} without what is behind byte {at}", kind.file());
            let mut wrong = whole.clone();
            wrong[at] ^= 1 << (at % 8);
            *(if tried(&wrong) { &mut read } else { &mut refused }) += 1;
        }
        assert!(tried(&whole));
    }
    assert!(refused > 0 && read > 0, "{refused} refused, {read} read");
}

#[test]
fn the_documentation_lists_every_column() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/evidence.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mark = "<!-- columns -->\n\n";
    let (before, _) = text.split_once(mark).unwrap();
    let right = format!("{before}{mark}{}", documentation().trim_end()) + "\n";
    if std::env::var_os("TAILWATER_WRITE_DOCS").is_some() {
        std::fs::write(path, &right).unwrap();
    }
    assert!(text == right, "{path} is behind: run this test with TAILWATER_WRITE_DOCS=1");
}

#[test]
fn the_name_of_a_segment_says_what_it_is_over() {
    // 2026-11-21 14:30:00.050, a minute long.
    let first = 1_795_271_400_050 / 50;
    let span = (WindowIndex(first), WindowIndex(first + 1199));
    let name = segment::name(span.0, span.1, 7);
    assert_eq!(name, "20261121T143000.050Z-20261121T143100.050Z-0007");
    assert_eq!(segment::span_of(&name), Some(span));
    for other in [
        "",
        "a-b-c",
        "20261121T143000.000Z-20261121T143100.000Z",
        "20261121T143100.000Z-20261121T143000.000Z-0001",
    ] {
        assert_eq!(segment::span_of(other), None, "{other}");
    }
}

/// `cargo test -p tailwater --lib hour_from_disk -- --ignored --nocapture`: how much longer an hour of every metric of one host with 20
/// workloads takes to read from disk than from memory.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods, reason = "a measurement")]
fn hour_from_disk_against_memory() {
    let folder = tempfile::tempdir().unwrap();
    let base = 35_880_000_000;
    let running = start(folder.path());
    let mut memory = Series::new(61, 1 << 30);
    let busy = |n: u64| {
        let mut w = some_window("web-1", base + n, n);
        let one = w.workloads.values().next().cloned().unwrap_or_default();
        w.workloads.extend((100..120).map(|id| (id, one)));
        w
    };
    let names = names_of(["web-1"].into_iter());
    for minute in 0..60 {
        let windows: Vec<_> = (0..1200).map(|n| Arc::new(busy(minute * 1200 + n))).collect();
        running.opened.past.shelf.add(&windows, &names).unwrap();
        windows.iter().for_each(|w| drop(memory.saw(&Input::Window(Arc::new((**w).clone())))));
    }
    let memory = std::sync::Mutex::new(memory);
    let (first, last) = (WindowIndex(base), WindowIndex(base + 71_999));
    let of = |metric| crate::live::view::Query { host: "web-1", workload: None, listener: None, metric };
    let queries: Vec<_> = crate::live::metric::METRICS.iter().map(|metric| of(metric.name)).collect();
    for _ in 0..3 {
        let begun = std::time::Instant::now();
        assert_eq!(Series::points(&memory, &queries, first, last, 900)[0].len(), 900);
        let from_memory = begun.elapsed();
        let begun = std::time::Instant::now();
        let points = running.opened.past.points(&queries, first, last, 900);
        let from_disk = begun.elapsed();
        assert_eq!(points[0].len(), 900);
        let ratio = from_disk.as_secs_f64() / from_memory.as_secs_f64();
        println!("memory {from_memory:?}, disk {from_disk:?}: {ratio:.1} times as long");
    }
    running.close();
}

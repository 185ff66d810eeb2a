//! What must be true in a history: what the store said is kept is read, or is lost by a bound and counted; an incident is there once, as it
//! was told last, and a power cut leaves the database as of one moment; a segment is whole, or is set aside and counted, and no row of it is
//! wrong; windows around an incident stay; files and memory are within their bounds. Knows how a history went; changes nothing in it but
//! what is known of the disk.

use super::{HOSTS, IN_MEMORY, Key, LIMITS, OPEN_BYTES, Titles, World, key, window};
use crate::counters::Metrics;
use crate::lock::lock;
use crate::store::db::Db;
use crate::store::writer::ON_DISK_TIMES;
use crate::store::{MARGIN_NS, Wanted};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tailwater_model::window::{Input, WindowIndex};

/// What was counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    segments_written: u64,
    segments_expired: u64,
    kept_dropped: u64,
    windows_dropped: u64,
    updates_dropped: u64,
}

impl Counts {
    pub(super) fn of(metrics: &Metrics) -> Self {
        Self {
            segments_written: metrics.store_segments_written.get(),
            segments_expired: metrics.store_segments_expired.get(),
            kept_dropped: metrics.store_kept_dropped.get(),
            windows_dropped: metrics.store_windows_dropped.get(),
            updates_dropped: metrics.store_updates_dropped.get(),
        }
    }

    /// What was counted since `before`.
    fn since(self, before: Self) -> Self {
        Self {
            segments_written: self.segments_written - before.segments_written,
            segments_expired: self.segments_expired - before.segments_expired,
            kept_dropped: self.kept_dropped - before.kept_dropped,
            windows_dropped: self.windows_dropped - before.windows_dropped,
            updates_dropped: self.updates_dropped - before.updates_dropped,
        }
    }
}

/// Bytes of all files in the folders below `folder`.
fn bytes_below(folder: &Path) -> u64 {
    let folders = std::fs::read_dir(folder).unwrap().map(|item| item.unwrap().path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

/// Whether the window lies in one of these stretches, both ends included.
fn is_within(stretches: &[(u64, u64)], key: &Key) -> bool {
    stretches.iter().any(|(first, last)| (*first..=*last).contains(&key.1))
}

impl World {
    /// All windows that are read from segments; panics where one is not as it was sent.
    fn readable(&self) -> BTreeSet<Key> {
        let (first, last) = (WindowIndex(0), WindowIndex(u64::MAX));
        let shelf = &self.running.past.shelf;
        let mut there = BTreeSet::new();
        for entry in shelf.over(first, last) {
            for host in HOSTS {
                let read = shelf.read(&entry, host, first, last, Wanted::All);
                let Some(inputs) = read else { panic!("{}{entry:?} is not read", self.again()) };
                for input in inputs {
                    let Input::Window(read) = input else { continue };
                    let key = key(&read);
                    assert!(self.sent.contains(&key), "{}nobody sent {key:?}", self.again());
                    assert_eq!(*read, window(&key.0, key.1), "{}a wrong row", self.again());
                    there.insert(key);
                }
            }
        }
        there
    }

    /// After a turn of the writer; `waited`: incidents that were to be written.
    pub(super) fn turned(&mut self, before: Counts, waited: &BTreeSet<String>) {
        let counted = Counts::of(&self.running.metrics).since(before);
        let around = self.incidents_turned(counted, waited);
        self.windows_turned(counted, &around);
    }

    /// Returns the stretches around the incidents on disk.
    fn incidents_turned(&mut self, counted: Counts, waited: &BTreeSet<String>) -> Vec<(u64, u64)> {
        let again = self.again();
        let writer = &self.running.writer;
        let Some(db) = &writer.db else {
            // Nothing of it is on the disk, and what does not wait any more is counted.
            let lost: Vec<&String> = waited.iter().filter(|id| !writer.unwritten.contains_key(*id)).collect();
            assert_eq!(lost.len() as u64, counted.updates_dropped, "{again}lost and not counted: {lost:?}");
            // Those of the second between two attempts come on top.
            let waits = writer.unwritten.len();
            assert!(waits <= IN_MEMORY + 8, "{again}{waits} incidents wait");
            for id in lost {
                self.unwritten.remove(id);
                self.last.remove(id);
            }
            return self.around();
        };
        assert!(writer.unwritten.is_empty() && counted.updates_dropped == 0, "{again}written, and waits");
        self.rows.append(&mut self.unwritten);
        let there = db.titles().unwrap();
        for (id, (title, _)) in &there {
            assert_eq!(self.rows.get(id), Some(title), "{again}{id} is another one on the disk");
        }
        let around = self.around();
        let gone: Vec<String> = self.rows.keys().filter(|id| !there.contains_key(*id)).cloned().collect();
        if !gone.is_empty() {
            let oldest = there.iter().find(|(_, (_, state))| state == "closed").map(|(id, _)| id);
            let by_policy = there.len() >= IN_MEMORY * ON_DISK_TIMES
                && gone.iter().all(|id| oldest.is_none_or(|oldest| id < oldest));
            assert!(
                by_policy,
                "{again}{gone:?} are gone, of the {} on disk {oldest:?} is the oldest",
                there.len()
            );
        }
        self.rows.retain(|id, _| there.contains_key(id));
        if self.commits.last() != Some(&self.rows) {
            self.commits.push(self.rows.clone());
        }
        let store = lock(&self.running.store);
        for (id, title) in &self.last {
            if let Some((shown, _)) = store.get(id) {
                assert_eq!(&shown.title, title, "{again}an older version of {id} is shown");
            }
        }
        around
    }

    /// The first and last window around each incident on disk.
    fn around(&self) -> Vec<(u64, u64)> {
        let moments = self.rows.values().map(|title| self.moments[title]);
        let indexes = moments
            .map(|(start, end)| (WindowIndex::at(start - MARGIN_NS).0, WindowIndex::at(end + MARGIN_NS).0));
        indexes.collect()
    }

    fn windows_turned(&mut self, counted: Counts, around: &[(u64, u64)]) {
        let again = self.again();
        let dropped = usize::try_from(counted.windows_dropped).unwrap();
        if counted.segments_written > 0 {
            assert_eq!(dropped, 0, "{again}written, and dropped");
            self.kept.extend(self.waiting.drain(..));
        } else {
            self.waiting.drain(..dropped);
        }
        let writer = &self.running.writer;
        let open: Vec<Key> = writer.open.iter().map(|(window, _)| key(window)).collect();
        assert_eq!(open, self.waiting, "{again}windows wait that should not, or are lost and not counted");
        assert!(writer.open_bytes <= OPEN_BYTES, "{again}{} bytes of windows wait", writer.open_bytes);
        if self.disk.has_ended() {
            self.died_removing = counted.segments_written > 0;
            self.around_may_go = counted.kept_dropped > 0 || writer.db.is_none();
            return;
        }
        if counted.segments_written > 0 && writer.windows_retry.is_none() {
            let (_, recent, kept) = self.running.past.totals();
            let is_bounded = recent <= LIMITS.bytes && kept <= LIMITS.kept_bytes;
            assert!(is_bounded, "{again}{recent} and {kept} bytes of segments");
            let on_disk = ["windows", "kept"].map(|below| bytes_below(&self.folder.path().join(below)));
            assert_eq!(on_disk, [recent, kept], "{again}bytes on the disk, and those that are counted");
        }
        if counted.segments_expired + counted.kept_dropped > 0 {
            let there = self.readable();
            // Without the database only the incidents in memory say what to keep.
            let some_may_go = counted.kept_dropped > 0 || writer.db.is_none();
            let lost = self.kept.difference(&there).find(|&key| !some_may_go && is_within(around, key));
            assert_eq!(lost, None, "{again}gone, and around an incident");
            self.kept = there;
        }
    }

    /// After a start: the database is as it was, or, after a power cut, as it was at some moment before.
    pub(super) fn database_began(&mut self, is_cut: bool) {
        let reader = Db::reader(self.folder.path()).unwrap();
        let rows: Titles = reader.titles().unwrap().into_iter().map(|(id, (title, _))| (id, title)).collect();
        let again = self.again();
        if is_cut {
            // A turn makes several commits: then each row is as before or as after it.
            let is_between = |before: &Titles, after: &Titles| {
                let mut ids = rows.keys().chain(before.keys()).chain(after.keys());
                ids.all(|id| [before.get(id), after.get(id)].contains(&rows.get(id)))
            };
            let last = self.commits.len() - 1;
            let fits = (0..=last).any(|n| is_between(&self.commits[n], &self.commits[last.min(n + 1)]));
            assert!(fits, "{again}the power cut left rows of several moments: {rows:?}");
            self.commits = vec![rows.clone()];
            self.rows = rows;
        } else {
            assert_eq!(rows, self.rows, "{again}the rows before and after a start");
        }
        let lines = reader.incidents(None, 0, None, usize::MAX).unwrap();
        assert_eq!(lines.len(), self.rows.len(), "{again}a row cannot be read");
    }

    /// After a look at the segments: `half` of them were begun or half removed, of `rotten` the medium lost something.
    pub(super) fn segments_began(&mut self, half: u64, rotten: Option<(PathBuf, BTreeSet<Key>)>) {
        let again = self.again();
        let damaged = u64::from(rotten.is_some());
        let torn = self.running.metrics.store_segments_torn.get();
        assert_eq!(torn, half + damaged, "{again}segments begun, half removed and damaged");
        let there = self.readable();
        let in_rotten = |key: &Key| rotten.as_ref().is_some_and(|(_, windows)| windows.contains(key));
        let around = self.around();
        let may_go = |key: &Key| self.died_removing && (self.around_may_go || !is_within(&around, key));
        let lost = self.kept.difference(&there).find(|&key| !may_go(key) && !in_rotten(key));
        assert_eq!(lost, None, "{again}written, and gone after a start");
        if let Some((segment, _)) = &rotten {
            let aside = std::fs::read_dir(self.folder.path().join("aside"));
            let aside = aside.unwrap().map(|item| item.unwrap().file_name().to_string_lossy().into_owned());
            let moved = aside.filter(|name| name.ends_with(".0")).count();
            assert_eq!((moved, segment.exists()), (1, false), "{again}it is not set aside");
            self.disk.forget(segment);
        }
        self.kept = there;
        (self.died_removing, self.around_may_go) = (false, false);
    }

    /// Where all is well again, all is on the disk.
    pub(super) fn nothing_waits(&self) {
        let again = self.again();
        assert_eq!(self.running.past.health.problem(), None, "{again}");
        assert!(self.waiting.is_empty(), "{again}{} windows wait", self.waiting.len());
        assert!(self.unwritten.is_empty(), "{again}{:?} wait", self.unwritten);
        assert_eq!(self.kept, self.readable(), "{again}what was written is read");
    }
}

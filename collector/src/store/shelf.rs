//! The segments on disk: which there are, which answer a question about the past, which must go. Owns retention by age and by
//! bytes, the evidence kept around incidents, and what is set aside because it cannot be read. Knows no thread and no HTTP.

use super::disk::Disk;
use super::segment::{self, SegmentError, TEMPORARY, Wanted, Written};
use super::{Settings, segment_read, segment_write};
use crate::aside;
use crate::counters::Metrics;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tailwater_model::names::Names;
use tailwater_model::window::{HostWindow, Input, WindowIndex};

/// What there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Age at which a segment goes.
    pub(super) age_ns: u64,
    /// Bytes of all segments beside the kept ones.
    pub(super) bytes: u64,
    /// Bytes of the kept ones.
    pub(super) kept_bytes: u64,
}

impl Limits {
    /// What the operator wants.
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            age_ns: settings.windows_hours.saturating_mul(3_600_000_000_000),
            bytes: settings.windows_mib_max << 20,
            kept_bytes: settings.kept_mib_max << 20,
        }
    }
}

/// A segment on disk.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    path: PathBuf,
    first: WindowIndex,
    last: WindowIndex,
    bytes: u64,
    /// Spans whose windows are in a kept segment already, while this one cannot be removed.
    copied: Vec<Span>,
}

#[derive(Debug, Default)]
struct Index {
    /// By name, which is by time.
    recent: BTreeMap<String, Entry>,
    kept: BTreeMap<String, Entry>,
}

/// All segments below one folder: `windows/` with those of the last days, `kept/` with those around incidents, `aside/` with what
/// could not be read.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    index: Mutex<Index>,
    metrics: Arc<Metrics>,
    disk: Arc<dyn Disk>,
}

/// Windows and the names of their hosts' things.
type Named = (Vec<Arc<HostWindow>>, BTreeMap<String, Arc<Names>>);

/// A stretch of time in windows, both ends included.
pub(super) type Span = (WindowIndex, WindowIndex);

fn overlaps(a: Span, b: Span) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

impl Shelf {
    /// Over `folder`, which need not exist yet.
    pub(super) fn new(folder: &Path, metrics: Arc<Metrics>, disk: Arc<dyn Disk>) -> Self {
        Self { folder: folder.to_owned(), index: Mutex::default(), metrics, disk }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // Names and numbers only: after a panic elsewhere they are still the best there is.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent(&self) -> PathBuf {
        self.folder.join("windows")
    }

    fn kept(&self) -> PathBuf {
        self.folder.join("kept")
    }

    /// Makes the folders and looks at what is in them: removes what a crash left half-written, sets aside what is no segment.
    pub(super) fn scan(&self) -> std::io::Result<()> {
        for (folder, kept) in [(self.recent(), false), (self.kept(), true)] {
            self.disk.create_folders(&folder)?;
            let mut found = BTreeMap::new();
            for item in std::fs::read_dir(&folder)? {
                let path = item?.path();
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                if name.ends_with(TEMPORARY) && path.is_dir() {
                    self.metrics.store_segments_torn.inc();
                    let what = format!("{}: half-written, as after a crash", path.display());
                    match self.disk.remove_folder(&path) {
                        Ok(()) => tracing::warn!("{what}: removed"),
                        // It takes space, and is no reason to write no segment beside it.
                        Err(e) => tracing::warn!("{what}; and it cannot be removed: {e}"),
                    }
                    continue;
                }
                let Some((first, last)) = segment::span_of(&name) else {
                    self.aside(&path, "its name is none of a segment");
                    continue;
                };
                match segment_read::check(&path).map_err(|e| (e.lacking(), e)) {
                    Ok(()) => {
                        let bytes = bytes_of(&path);
                        found.insert(name, Entry { path, first, last, bytes, copied: Vec::new() });
                    }
                    // Of this segment nothing is known, and it is looked at again.
                    Err((Some(lacking), _)) => return Err(lacking),
                    Err((None, e)) => self.aside(&path, &e.to_string()),
                }
            }
            let mut index = self.index();
            *(if kept { &mut index.kept } else { &mut index.recent }) = found;
        }
        Ok(())
    }

    /// Out of the way and never looked at again, for a person to judge.
    fn aside(&self, path: &Path, why: &str) {
        self.metrics.store_segments_torn.inc();
        let folder = aside::folder(&self.folder);
        match aside::put(&self.folder, path, &[]) {
            Ok(_) => tracing::error!("{}: {why}: moved to {}", path.display(), folder.display()),
            Err(e) => {
                tracing::error!("{}: {why}; and it cannot be moved aside: {}", path.display(), e.source)
            }
        }
        let mut index = self.index();
        index.recent.retain(|_, entry| entry.path != path);
        index.kept.retain(|_, entry| entry.path != path);
    }

    /// Writes a segment of these windows.
    pub(super) fn add(
        &self,
        windows: &[Arc<HostWindow>],
        names: &BTreeMap<String, Arc<Names>>,
    ) -> Result<Written, SegmentError> {
        self.write(&self.recent(), false, windows, names)
    }

    fn write(
        &self,
        folder: &Path,
        kept: bool,
        windows: &[Arc<HostWindow>],
        names: &BTreeMap<String, Arc<Names>>,
    ) -> Result<Written, SegmentError> {
        let (Some(first), Some(last)) =
            (windows.iter().map(|w| w.index).min(), windows.iter().map(|w| w.index).max())
        else {
            return Ok(Written::default());
        };
        let io = |source| SegmentError::Folder { path: folder.to_owned(), source };
        self.disk.create_folders(folder).map_err(io)?;
        let name = free_name(folder, (first, last))?;
        let written = segment_write::write(self.disk.as_ref(), folder, &name, windows, names)?;
        let (path, bytes) = (folder.join(&name), written.bytes);
        let entry = Entry { path, first, last, bytes, copied: Vec::new() };
        let mut index = self.index();
        let map = if kept { &mut index.kept } else { &mut index.recent };
        map.insert(name, entry);
        Ok(written)
    }

    /// Removes what is too old or too much. Of a segment that goes, the windows in a span that `keep` names are kept.
    ///
    /// # Errors
    /// The first segment that should have gone and stays. It is passed over, without its bytes: all others go as if it were not there, or one
    /// that nobody can remove would let the disk fill.
    pub(super) fn retain(
        &self,
        limits: &Limits,
        now_unix_ns: u64,
        mut keep: impl FnMut(Span) -> Vec<Span>,
    ) -> Result<(), SegmentError> {
        let oldest = WindowIndex::at(now_unix_ns.saturating_sub(limits.age_ns));
        let mut stay: BTreeMap<String, SegmentError> = BTreeMap::new();
        loop {
            let next = {
                let index = self.index();
                let may_go = || index.recent.iter().filter(|(name, _)| !stay.contains_key(*name));
                let bytes: u64 = may_go().map(|(_, e)| e.bytes).sum();
                // One that was open while somebody set the clock may be the first and not be over for days.
                let aged = may_go().find(|(_, e)| e.last < oldest);
                let first = aged.or_else(|| may_go().next().filter(|_| bytes > limits.bytes));
                first.map(|(name, entry)| (name.clone(), entry.clone()))
            };
            let Some((name, entry)) = next else { break };
            let spans = keep((entry.first, entry.last));
            match self.expire(&name, &entry, spans) {
                Ok(()) => {
                    self.index().recent.remove(&name);
                    self.metrics.store_segments_expired.inc();
                }
                Err(e) => drop(stay.insert(name, e)),
            }
        }
        let mut kept_stay: BTreeMap<String, SegmentError> = BTreeMap::new();
        loop {
            let next = {
                let index = self.index();
                let may_go = || index.kept.iter().filter(|(name, _)| !kept_stay.contains_key(*name));
                let bytes: u64 = may_go().map(|(_, e)| e.bytes).sum();
                let first = may_go().next().filter(|_| bytes > limits.kept_bytes);
                first.map(|(name, entry)| (name.clone(), entry.clone()))
            };
            let Some((name, entry)) = next else { break };
            match self.remove(&entry) {
                Ok(()) => {
                    self.index().kept.remove(&name);
                    self.metrics.store_kept_dropped.inc();
                }
                Err(e) => drop(kept_stay.insert(name, e)),
            }
        }
        stay.into_values().chain(kept_stay.into_values()).next().map_or(Ok(()), Err)
    }

    /// Keeps the windows of `spans` and removes the rest of a segment of the last days.
    fn expire(&self, name: &str, entry: &Entry, spans: Vec<Span>) -> Result<(), SegmentError> {
        if !spans.is_empty() && spans != entry.copied {
            self.keep(entry, &spans)?;
        }
        let removed = self.remove(entry);
        if removed.is_err()
            && let Some(entry) = self.index().recent.get_mut(name)
        {
            // It is tried again with each segment: a copy each time would push out what else is kept.
            entry.copied = spans;
        }
        removed
    }

    /// Copies the windows of `spans` to a kept segment; where that is not possible, for want of space, keeps all of it.
    fn keep(&self, entry: &Entry, spans: &[Span]) -> Result<(), SegmentError> {
        let trimmed = self
            .trimmed(entry, spans)
            .and_then(|(windows, names)| self.write(&self.kept(), true, &windows, &names).map(|_| ()));
        let Err(why) = trimmed else { return Ok(()) };
        if !entry.path.exists() {
            return Ok(());
        }
        if why.lacking().is_some() {
            // That says nothing of the segment or of the space that is left: it is trimmed when it can be opened.
            return Err(why);
        }
        tracing::warn!("{}: kept whole: {why}", entry.path.display());
        // The name that it has may be taken: by what was kept of it before a crash, all of which is around an incident.
        let name = free_name(&self.kept(), (entry.first, entry.last))?;
        let to = self.kept().join(&name);
        self.disk
            .rename(&entry.path, &to)
            .map_err(|source| SegmentError::Folder { path: to.clone(), source })?;
        self.index().kept.insert(name, Entry { path: to, ..entry.clone() });
        Ok(())
    }

    fn trimmed(&self, entry: &Entry, spans: &[Span]) -> Result<Named, SegmentError> {
        let (mut windows, mut names) = (Vec::new(), BTreeMap::new());
        let span = (entry.first, entry.last);
        segment_read::of_all_hosts(&entry.path, span, Wanted::All, |input| match input {
            Input::Window(w) if spans.iter().any(|s| (s.0..=s.1).contains(&w.index)) => windows.push(w),
            Input::Entities { host, workloads, listeners, edges, devices } => {
                let known = Names {
                    workloads: workloads.into_iter().map(|w| (w.id, w)).collect(),
                    listeners: listeners.into_iter().map(|l| (l.id, l)).collect(),
                    edges: edges.into_iter().map(|e| (e.id, e)).collect(),
                    devices: devices.into_iter().map(|d| (d.id, d)).collect(),
                };
                names.insert(host, Arc::new(known));
            }
            _ => {}
        })?;
        Ok((windows, names))
    }

    fn remove(&self, entry: &Entry) -> Result<(), SegmentError> {
        // First under another name, so that a crash in between leaves nothing that looks like a segment.
        let mut going = entry.path.clone().into_os_string();
        going.push(TEMPORARY);
        let going = PathBuf::from(going);
        let absent = |e: std::io::Error| {
            if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) }
        };
        // An attempt before this one may have left it under that name, or a part of it.
        let removed = self.disk.rename(&entry.path, &going).or_else(absent);
        removed
            .and_then(|()| self.disk.remove_folder(&going).or_else(absent))
            .map_err(|source| SegmentError::Folder { path: entry.path.clone(), source })
    }

    /// The segments that may hold windows from `first` to `last`, oldest first.
    pub(super) fn over(&self, first: WindowIndex, last: WindowIndex) -> Vec<Entry> {
        let index = self.index();
        let all = index.kept.values().chain(index.recent.values());
        all.filter(|e| overlaps((e.first, e.last), (first, last))).cloned().collect()
    }

    /// What a segment holds of `host` from `first` to `last`; `None`: it is gone, or cannot be read: now, or ever, and was set aside. Ids
    /// are those of one segment.
    pub(super) fn read(
        &self,
        entry: &Entry,
        host: &str,
        first: WindowIndex,
        last: WindowIndex,
        wanted: Wanted<'_>,
    ) -> Option<Vec<Input>> {
        match segment_read::read(&entry.path, host, first, last, wanted) {
            Ok(inputs) => Some(inputs),
            // Retention was faster, or moved it.
            Err(_) if !entry.path.exists() => None,
            Err(e) if e.lacking().is_some() => {
                tracing::warn!("left out of an answer: {e}");
                None
            }
            Err(e) => {
                self.aside(&entry.path, &e.to_string());
                None
            }
        }
    }

    /// The oldest window on disk, the bytes of the recent segments and of the kept ones.
    #[must_use]
    pub fn totals(&self) -> (Option<WindowIndex>, u64, u64) {
        let index = self.index();
        let sum = |map: &BTreeMap<String, Entry>| map.values().map(|e| e.bytes).sum();
        let oldest = index.recent.values().chain(index.kept.values()).map(|e| e.first).min();
        (oldest, sum(&index.recent), sum(&index.kept))
    }

    /// The first and last window of any host on disk.
    #[must_use]
    pub fn span(&self) -> Option<(WindowIndex, WindowIndex)> {
        let index = self.index();
        let all = || index.recent.values().chain(index.kept.values());
        Some((all().map(|e| e.first).min()?, all().map(|e| e.last).max()?))
    }
}

/// A name for a segment of these windows that none in `folder` has.
fn free_name(folder: &Path, (first, last): Span) -> Result<String, SegmentError> {
    let free = (0..10_000).map(|n| segment::name(first, last, n)).find(|name| !folder.join(name).exists());
    let taken = || SegmentError::Folder { path: folder.to_owned(), source: ErrorKind::AlreadyExists.into() };
    free.ok_or_else(taken)
}

fn bytes_of(folder: &Path) -> u64 {
    let Ok(files) = std::fs::read_dir(folder) else { return 0 };
    files.flatten().filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum()
}

//! The incidents that are kept: the newest version of each in memory, every version appended to `DATA/incidents.jsonl` by a
//! thread of its own. Owns bounds, what survives a crash, and the numbering of versions across restarts. Knows no network.

use crate::metrics::Metrics;
use crate::timeline::Timeline;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use tailwater_analysis::Incident;
use tailwater_analysis::incident::State;

/// Versions that may wait for the disk.
const WRITES_MAX: usize = 1024;
/// The file is written anew from memory when it has grown beyond this.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}\n  remedy: give --data a folder that this user may write", path.display())]
pub struct StoreError {
    path: PathBuf,
    source: std::io::Error,
}

/// One line of the file: the incident as everywhere, and its timeline once it is closed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    incident: Incident,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeline: Option<Timeline>,
}

#[derive(Debug, Clone)]
struct Kept {
    incident: Arc<Incident>,
    timeline: Option<Arc<Timeline>>,
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
    writer: Option<SyncSender<Vec<u8>>>,
    metrics: Arc<Metrics>,
}

impl Store {
    /// Reads `folder`/incidents.jsonl, tolerating a torn tail, writes it anew, and starts the writer thread, which ends with the
    /// store. Incidents that were open when the collector died are closed: nobody watched them since.
    pub fn open(
        folder: &Path,
        incidents_max: usize,
        metrics: Arc<Metrics>,
    ) -> Result<(Self, std::thread::JoinHandle<()>), StoreError> {
        let path = folder.join("incidents.jsonl");
        let failed = |source| StoreError { path: path.clone(), source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut lines = read(&path).map_err(failed)?;
        while lines.len() > incidents_max {
            lines.pop_first();
        }
        for line in lines.values_mut().filter(|line| line.incident.state == State::Open) {
            line.incident.state = State::Closed;
            line.incident.version += 1;
        }
        let file = rewrite(&path, &lines).map_err(failed)?;
        let by_id = lines
            .iter()
            .map(|(id, line)| {
                let kept = Kept {
                    incident: Arc::new(line.incident.clone()),
                    timeline: line.timeline.clone().map(Arc::new),
                    versions_before: line.incident.version + 1,
                };
                (id.clone(), kept)
            })
            .collect();
        let (writer, writes) = sync_channel(WRITES_MAX);
        let counters = Arc::clone(&metrics);
        let target = path.clone();
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || {
                Writer { path: target, file, lines_max: incidents_max, metrics: counters }.run(&writes)
            })
            .map_err(failed)?;
        Ok((Self { by_id, replaced: BTreeMap::new(), incidents_max, writer: Some(writer), metrics }, thread))
    }

    /// Takes a version. Returns it as it is kept, or `None` when it is not newer than what is there.
    pub fn put(&mut self, mut incident: Incident, timeline: Option<Timeline>) -> Option<Arc<Incident>> {
        let before = self.by_id.get(&incident.id);
        let versions_before = before.map_or(0, |kept| kept.versions_before);
        incident.version = incident.version.saturating_add(versions_before);
        if before.is_some_and(|kept| kept.incident.version >= incident.version) {
            return None;
        }
        // An early alert is not kept on disk: its windows come again after a crash, or it comes again as unconfirmed.
        let provisional = incident.version == 0;
        let line = Line { incident, timeline };
        if !provisional {
            self.write(&line);
        }
        let incident = Arc::new(line.incident);
        let kept =
            Kept { incident: Arc::clone(&incident), timeline: line.timeline.map(Arc::new), versions_before };
        self.by_id.insert(incident.id.clone(), kept);
        while self.by_id.len() > self.incidents_max {
            let closed =
                self.by_id.iter().find(|(_, k)| k.incident.state == State::Closed).map(|(id, _)| id.clone());
            let Some(oldest) = closed.or_else(|| self.by_id.keys().next().cloned()) else { break };
            self.by_id.remove(&oldest);
        }
        Some(incident)
    }

    fn write(&self, line: &Line) {
        let Ok(mut bytes) = serde_json::to_vec(line) else { return };
        bytes.push(b'\n');
        let Some(writer) = &self.writer else { return };
        match writer.try_send(bytes) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.metrics.store_updates_dropped.inc(),
            Err(TrySendError::Disconnected(_)) => self.metrics.store_failures.inc(),
        }
    }

    /// An early alert turned out to be part of `by`: only that is listed from now on.
    pub fn replace(&mut self, alert: &str, by: &str) {
        self.by_id.remove(alert);
        self.replaced.insert(alert.to_owned(), by.to_owned());
        while self.replaced.len() > self.incidents_max {
            self.replaced.pop_first();
        }
    }

    /// Nothing more will be written: the writer thread ends once it has written what waits.
    pub fn close(&mut self) {
        self.writer = None;
    }

    /// The incident and, once closed, its timeline. The id of an early alert gives the incident that replaced it.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<(Arc<Incident>, Option<Arc<Timeline>>)> {
        let id = self.replaced.get(id).map_or(id, String::as_str);
        self.by_id.get(id).map(|kept| (Arc::clone(&kept.incident), kept.timeline.clone()))
    }

    /// Incidents that end at `since_unix_ns` or later and have `state` (any: `None`), newest first, at most `limit`.
    #[must_use]
    pub fn list(&self, since_unix_ns: u64, state: Option<State>, limit: usize) -> Vec<Arc<Incident>> {
        self.by_id
            .values()
            .rev()
            .map(|kept| &kept.incident)
            .filter(|i| i.end_unix_ns >= since_unix_ns && state.is_none_or(|state| i.state == state))
            .take(limit)
            .cloned()
            .collect()
    }
}

fn read(path: &Path) -> std::io::Result<BTreeMap<String, Line>> {
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(lines),
        Err(e) => return Err(e),
    };
    let mut reader = BufReader::new(file);
    let mut bytes = Vec::new();
    let mut bad = 0_u64;
    while reader.read_until(b'\n', &mut bytes)? > 0 {
        match serde_json::from_slice::<Line>(&bytes) {
            Ok(line) => {
                let newer = lines
                    .get(&line.incident.id)
                    .is_none_or(|old| old.incident.version <= line.incident.version);
                if newer {
                    lines.insert(line.incident.id.clone(), line);
                }
            }
            Err(_) => bad += 1,
        }
        bytes.clear();
    }
    if bad > 0 {
        tracing::warn!("{}: {bad} damaged line(s) left out, as after a crash", path.display());
    }
    Ok(lines)
}

/// Replaces the file by the newest versions in one step: whole before, or whole after.
fn rewrite(path: &Path, lines: &BTreeMap<String, Line>) -> std::io::Result<File> {
    let new = path.with_extension("jsonl.new");
    let mut file = File::create(&new)?;
    let mut bytes = Vec::new();
    for line in lines.values() {
        serde_json::to_writer(&mut bytes, line)?;
        bytes.push(b'\n');
    }
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    OpenOptions::new().append(true).open(path)
}

struct Writer {
    path: PathBuf,
    file: File,
    lines_max: usize,
    metrics: Arc<Metrics>,
}

impl Writer {
    fn run(mut self, writes: &Receiver<Vec<u8>>) {
        let mut complained = false;
        while let Ok(mut bytes) = writes.recv() {
            // Whatever else waits shares the one sync.
            while let Ok(more) = writes.try_recv() {
                bytes.extend(more);
            }
            let written =
                self.file.write_all(&bytes).and_then(|()| self.file.sync_data()).and_then(|()| self.shrink());
            match written {
                Ok(()) => complained = false,
                Err(e) => {
                    self.metrics.store_failures.inc();
                    if !std::mem::replace(&mut complained, true) {
                        tracing::error!(
                            "{}: {e}: incidents are kept in memory only until this works again",
                            self.path.display()
                        );
                    }
                }
            }
        }
    }

    fn shrink(&mut self) -> std::io::Result<()> {
        if self.file.metadata()?.len() < FILE_BYTES_MAX {
            return Ok(());
        }
        let mut lines = read(&self.path)?;
        while lines.len() > self.lines_max {
            lines.pop_first();
        }
        self.file = rewrite(&self.path, &lines)?;
        Ok(())
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;

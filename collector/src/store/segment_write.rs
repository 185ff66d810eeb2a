//! Writing a segment: under a temporary name, synced and renamed, so that it is there as a whole or not at all. Owns the order of
//! rows, which makes neighbours resemble each other. Knows no retention.

use super::disk::Disk;
use super::parquet_file::{Cells, Field, Writer};
use super::segment::{SegmentError, TEMPORARY, Written, fields, keys};
use crate::columns::{self, Column, Kind};
use parquet::errors::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tailwater_model::names::Names;
use tailwater_model::rows::Rows;
use tailwater_model::window::{EntityId, HostWindow, SignalSet, WindowIndex, WorkloadInfo};

fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Times are kept in microseconds.
fn micros(ns: u64) -> u64 {
    ns.saturating_add(500) / 1_000
}

fn moment(index: WindowIndex) -> i64 {
    int(index.start_unix_ns() / 1_000)
}

/// Appends the keys and names of a row.
fn row(to: &mut [Cells], keys: &[Key<'_>]) {
    for (cells, key) in to.iter_mut().zip(keys) {
        match (cells, key) {
            (Cells::Int(values), Key::Int(v)) => values.push(*v),
            (Cells::Text(values), Key::Text(v)) => values.push(Arc::clone(v)),
            _ => debug_assert!(false, "a key of another shape than its column"),
        }
    }
}

/// Appends its values, to the columns behind those.
fn values<R>(to: &mut [Cells], columns: &[Column<R>], row: Option<&R>, count: &mut Written) {
    count.rows += 1;
    for (cells, column) in to.iter_mut().zip(columns) {
        let value = row.and_then(column.get);
        if let Some(v) = value {
            count.values += 1;
            count.nonzero += u64::from(v != 0);
        }
        match cells {
            Cells::Int(values) => values.push(int(value.unwrap_or(0))),
            Cells::MaybeInt(values) => values.push(value.map(int)),
            Cells::Text(_) => debug_assert!(false, "values are numbers"),
        }
    }
}

enum Key<'a> {
    Int(i64),
    Text(&'a Arc<str>),
}

type ByHost<'a> = BTreeMap<&'a str, BTreeMap<WindowIndex, &'a HostWindow>>;

/// Rows of one kind: sorted by entity, then time, so that neighbours resemble each other.
fn entity_rows<R>(
    kind: Kind,
    columns: &[Column<R>],
    begin: impl FnOnce(&[Field]) -> Result<Writer>,
    hosts: &ByHost<'_>,
    rows_of: impl Fn(&HostWindow) -> &Rows<R>,
    name: impl Fn(&str, EntityId) -> Vec<Name>,
    count: &mut Written,
) -> Result<u64> {
    let after = keys(kind).len();
    let mut file = begin(&fields(kind, columns, false))?;
    for (host, windows) in hosts {
        let ids: BTreeSet<EntityId> = windows.values().flat_map(|w| rows_of(w).keys().copied()).collect();
        let cells = file.host(windows.values().map(|w| rows_of(w).len()).sum())?;
        let host_text: Arc<str> = (*host).into();
        for id in ids {
            let names = name(host, id);
            // Of its rows only the moment differs.
            let mut key = vec![Key::Text(&host_text), Key::Int(0), Key::Int(id.into())];
            key.extend(names.iter().map(|name| match name {
                Name::Int(v) => Key::Int(*v),
                Name::Text(v) => Key::Text(v),
            }));
            for (index, window) in windows {
                let Some(values_of) = rows_of(window).get(&id) else { continue };
                key[1] = Key::Int(moment(*index));
                let (before, behind) = cells.split_at_mut(after);
                row(before, &key);
                values(behind, columns, Some(values_of), count);
            }
        }
    }
    file.finish()
}

enum Name {
    Int(i64),
    Text(Arc<str>),
}

fn text(value: &str) -> Name {
    Name::Text(value.into())
}

/// Writes the segment `folder`/`name` of these windows. Of several for the same host and moment the last counts.
pub(super) fn write(
    disk: &dyn Disk,
    folder: &Path,
    name: &str,
    windows: &[Arc<HostWindow>],
    names: &BTreeMap<String, Arc<Names>>,
) -> std::result::Result<Written, SegmentError> {
    let target = folder.join(name);
    let temporary = folder.join(format!("{name}{TEMPORARY}"));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SegmentError::Folder { path, source }
    };
    let written = fill(disk, &temporary, windows, names).and_then(|written| {
        disk.sync_folder(&temporary).map_err(failed(&temporary))?;
        disk.rename(&temporary, &target).map_err(failed(&target))?;
        if let Err(source) = disk.sync_folder(folder) {
            // Whether its name stays nobody knows, and its windows will be written again: they must not be there twice.
            if disk.rename(&target, &temporary).is_err() {
                let _ = disk.remove_folder(&target);
            }
            return Err(failed(folder)(source));
        }
        Ok(written)
    });
    if written.is_err() {
        // What was begun takes space that may be what is missing. If even that fails, the next start clears it.
        let _ = disk.remove_folder(&temporary);
    }
    written
}

fn fill(
    disk: &dyn Disk,
    folder: &Path,
    windows: &[Arc<HostWindow>],
    names: &BTreeMap<String, Arc<Names>>,
) -> std::result::Result<Written, SegmentError> {
    let io = |source| SegmentError::Folder { path: folder.to_owned(), source };
    if folder.exists() {
        disk.remove_folder(folder).map_err(io)?;
    }
    disk.create_folder(folder).map_err(io)?;
    let mut hosts: ByHost<'_> = BTreeMap::new();
    for window in windows {
        hosts.entry(&window.host).or_default().insert(window.index, window);
    }
    let none = Names::default();
    let named = |host: &str| names.get(host).map_or(&none, AsRef::as_ref);
    let workload = |host: &str, id| named(host).workloads.get(&id).map_or("", |w| w.name.as_str());
    let mut count = Written::default();
    for kind in Kind::ALL {
        let path = folder.join(kind.file());
        let begin = |fields: &[Field]| Writer::begin(disk, &path, fields);
        let bytes = match kind {
            Kind::Workload => entity_rows(
                kind,
                &columns::workload(),
                begin,
                &hosts,
                |w| &w.workloads,
                |host, id| {
                    let unknown = WorkloadInfo::default();
                    let w = named(host).workloads.get(&id).unwrap_or(&unknown);
                    vec![
                        text(&w.name),
                        text(&w.cgroup),
                        text(&w.comm),
                        Name::Int(int(micros(w.cpu_quota_ns))),
                        Name::Int(w.shares.into()),
                    ]
                },
                &mut count,
            ),
            Kind::Listener => entity_rows(
                kind,
                &columns::listener(),
                begin,
                &hosts,
                |w| &w.listeners,
                |host, id| match named(host).listeners.get(&id) {
                    Some(l) => vec![
                        Name::Int(l.workload.into()),
                        text(workload(host, l.workload)),
                        text(&l.path.clone().unwrap_or_else(|| l.address.to_string())),
                        Name::Int(l.port.into()),
                        text(&l.comm),
                    ],
                    None => vec![Name::Int(0), text(""), text(""), Name::Int(0), text("")],
                },
                &mut count,
            ),
            Kind::Edge => entity_rows(
                kind,
                &columns::edge(),
                begin,
                &hosts,
                |w| &w.edges,
                |host, id| match named(host).edges.get(&id) {
                    Some(e) => vec![
                        Name::Int(e.workload.into()),
                        text(workload(host, e.workload)),
                        text(&e.path.clone().unwrap_or_else(|| e.remote_address.to_string())),
                        Name::Int(e.remote_port.into()),
                    ],
                    None => vec![Name::Int(0), text(""), text(""), Name::Int(0)],
                },
                &mut count,
            ),
            Kind::Device => entity_rows(
                kind,
                &columns::device(),
                begin,
                &hosts,
                |w| &w.devices,
                |host, id| vec![text(named(host).devices.get(&id).map_or("", |d| d.name.as_str()))],
                &mut count,
            ),
            Kind::Culprit => culprits(begin, &hosts, workload, &mut count),
            Kind::Host => host_rows(begin, &hosts, &mut count),
        };
        count.bytes += bytes.map_err(|source| SegmentError::File { path, source })?;
    }
    Ok(count)
}

/// The names of a set of signals as one text, which mostly is the one of the window before.
#[derive(Default)]
struct SignalNames(SignalSet, Arc<str>);

impl SignalNames {
    fn of(&mut self, signals: SignalSet) -> &Arc<str> {
        if signals != self.0 {
            let names: Vec<_> = signals.names().collect();
            *self = Self(signals, names.join(" ").into());
        }
        &self.1
    }
}

fn host_rows(
    begin: impl FnOnce(&[Field]) -> Result<Writer>,
    hosts: &ByHost<'_>,
    count: &mut Written,
) -> Result<u64> {
    let columns = columns::cpu();
    let after = keys(Kind::Host).len();
    let mut file = begin(&fields(Kind::Host, &columns, true))?;
    for (host, windows) in hosts {
        let host: Arc<str> = (*host).into();
        let mut uncovered = SignalNames::default();
        let mut sampled = SignalNames::default();
        let (before, behind) = file.host(windows.len())?.split_at_mut(after);
        for (index, w) in windows {
            let key = [
                Key::Text(&host),
                Key::Int(moment(*index)),
                Key::Int(int(micros(w.clock_error_ns))),
                Key::Int(w.clock_corrected.into()),
                Key::Int(int(w.lost_before)),
                Key::Text(uncovered.of(w.uncovered)),
                Key::Text(sampled.of(w.sampled)),
            ];
            row(before, &key);
            values(behind, &columns, w.cpu.as_ref(), count);
        }
    }
    file.finish()
}

fn culprits<'a>(
    begin: impl FnOnce(&[Field]) -> Result<Writer>,
    hosts: &ByHost<'_>,
    workload: impl Fn(&str, EntityId) -> &'a str,
    count: &mut Written,
) -> Result<u64> {
    let mut file = begin(&keys(Kind::Culprit))?;
    for (host, windows) in hosts {
        let host_text: Arc<str> = (*host).into();
        let cells = file.host(windows.values().map(|w| w.culprits.len()).sum())?;
        for (index, w) in windows {
            for c in &w.culprits {
                count.rows += 1;
                count.values += 1;
                count.nonzero += u64::from(c.amount != 0);
                let (resource, comm, name): (Arc<str>, Arc<str>, Arc<str>) = (
                    columns::resource_name(c.resource).into(),
                    c.comm.as_str().into(),
                    workload(host, c.workload).into(),
                );
                let key = [
                    Key::Text(&host_text),
                    Key::Int(moment(*index)),
                    Key::Text(&resource),
                    Key::Int(c.pid.into()),
                    Key::Text(&comm),
                    Key::Int(c.workload.into()),
                    Key::Text(&name),
                    Key::Int(int(c.amount / columns::resource_per(c.resource))),
                ];
                row(cells, &key);
            }
        }
    }
    file.finish()
}

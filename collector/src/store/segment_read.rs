//! Reading a segment: the windows of one host, with the columns that are asked for. What it returns is what the pipeline was fed,
//! so that whoever reads windows in memory reads these too.

use super::parquet_file::{Cells, Reader, Rows};
use super::segment::{SegmentError, Wanted, keys};
use crate::columns::{self, Column, Kind};
use crate::live::fold;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use tailwater_model::address;
use tailwater_model::names::Names;
use tailwater_model::rows::Rows as ById;
use tailwater_model::window::{
    CulpritSample, DeviceInfo, EdgeInfo, EntityId, HostCpu, HostWindow, Input, ListenerInfo, SignalSet,
    WINDOW_NS, WindowIndex, WorkloadInfo,
};

/// Hands `take` what is `wanted` of the segment at `path` from window `first` to window `last`, of one host after the other: its names,
/// then its windows.
///
/// # Errors
/// The first file that cannot be read; what was taken until then is not all.
pub fn of_all_hosts(
    path: &Path,
    (first, last): (WindowIndex, WindowIndex),
    wanted: Wanted<'_>,
    mut take: impl FnMut(Input),
) -> Result<(), SegmentError> {
    let mut files = Files::new();
    let hosts = opened(&mut files, path, Kind::Host)?.hosts();
    let hosts = hosts.map_err(|source| SegmentError::File { path: path.join(Kind::Host.file()), source })?;
    for host in hosts {
        read_from(&mut files, path, &host, (first, last), wanted)?.into_iter().for_each(&mut take);
    }
    Ok(())
}

/// Files of a segment whose ends have been read.
type Files = BTreeMap<Kind, Reader>;

fn opened<'a>(files: &'a mut Files, path: &Path, kind: Kind) -> Result<&'a Reader, SegmentError> {
    Ok(match files.entry(kind) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => place.insert(open(path, kind)?),
    })
}

/// Reads the ends of all files.
///
/// # Errors
/// The first file that is none of a segment.
pub fn check(path: &Path) -> Result<(), SegmentError> {
    Kind::ALL.iter().try_for_each(|kind| open(path, *kind).map(drop))
}

fn open(path: &Path, kind: Kind) -> Result<Reader, SegmentError> {
    let path = path.join(kind.file());
    Reader::open(&path).map_err(|source| SegmentError::File { path, source })
}

/// The windows of `host` from `first` to `last`, after the names behind their ids.
pub(super) fn read(
    path: &Path,
    host: &str,
    first: WindowIndex,
    last: WindowIndex,
    wanted: Wanted<'_>,
) -> Result<Vec<Input>, SegmentError> {
    read_from(&mut Files::new(), path, host, (first, last), wanted)
}

fn read_from(
    files: &mut Files,
    path: &Path,
    host: &str,
    (first, last): (WindowIndex, WindowIndex),
    wanted: Wanted<'_>,
) -> Result<Vec<Input>, SegmentError> {
    let mut reading = Reading { files, path, host, first, last, wanted, windows: BTreeMap::new() };
    reading.host()?;
    if reading.windows.is_empty() {
        return Ok(Vec::new());
    }
    let mut names = Names::default();
    reading.entities(
        Kind::Workload,
        &columns::workload(),
        |w| &mut w.workloads,
        fold::workload,
        |id, n| {
            let cpu_quota_ns = unsigned(n.int(3)).saturating_mul(1_000);
            let (name, cgroup, comm, shares) = (n.text(0), n.text(1), n.text(2), n.id(4));
            names.workloads.insert(id, WorkloadInfo { id, cgroup, name, comm, cpu_quota_ns, shares });
        },
    )?;
    reading.entities(
        Kind::Listener,
        &columns::listener(),
        |w| &mut w.listeners,
        fold::listener,
        |id, n| {
            let (Some((address, path)), port) = (n.place(2), n.port(3)) else { return };
            let (workload, comm) = (n.id(0), n.text(4));
            owner(&mut names, workload, n.text(1));
            names.listeners.insert(
                id,
                ListenerInfo { id, workload, address, port, path, comm, pool: None, started_with: 0, pid: 0 },
            );
        },
    )?;
    reading.entities(
        Kind::Edge,
        &columns::edge(),
        |w| &mut w.edges,
        fold::edge,
        |id, n| {
            let (Some((remote_address, path)), remote_port) = (n.place(2), n.port(3)) else { return };
            owner(&mut names, n.id(0), n.text(1));
            names.edges.insert(id, EdgeInfo { id, workload: n.id(0), remote_address, remote_port, path });
        },
    )?;
    reading.entities(
        Kind::Device,
        &columns::device(),
        |w| &mut w.devices,
        fold::device,
        |id, n| {
            names.devices.insert(id, DeviceInfo { id, name: n.text(0) });
        },
    )?;
    reading.culprits()?;
    let mut inputs = vec![Input::Entities {
        host: host.to_owned(),
        workloads: names.workloads.into_values().collect(),
        listeners: names.listeners.into_values().collect(),
        edges: names.edges.into_values().collect(),
        devices: names.devices.into_values().collect(),
    }];
    inputs.extend(reading.windows.into_values().map(|w| Input::Window(Arc::new(w))));
    Ok(inputs)
}

/// A query by workload needs the names of those whose listeners and edges it reads, also when it reads no value of theirs.
fn owner(names: &mut Names, id: EntityId, name: String) {
    if id != 0 {
        names.workloads.entry(id).or_insert_with(|| WorkloadInfo { id, name, ..WorkloadInfo::default() });
    }
}

fn unsigned(value: Option<i64>) -> u64 {
    value.and_then(|v| u64::try_from(v).ok()).unwrap_or(0)
}

/// The names in one row: the columns between `id` and the values.
struct NameRow<'a> {
    cells: &'a [Option<Cells>],
    row: usize,
}

impl NameRow<'_> {
    fn int(&self, n: usize) -> Option<i64> {
        self.cells.get(n)?.as_ref()?.int(self.row)
    }
    fn text(&self, n: usize) -> String {
        self.cells.get(n).and_then(Option::as_ref).map_or_else(String::new, |c| c.text(self.row).to_owned())
    }
    fn id(&self, n: usize) -> EntityId {
        EntityId::try_from(unsigned(self.int(n))).unwrap_or(0)
    }
    fn port(&self, n: usize) -> u16 {
        u16::try_from(unsigned(self.int(n))).unwrap_or(0)
    }
    /// An address, or the path of a Unix socket with the address that stands for it.
    fn place(&self, n: usize) -> Option<(IpAddr, Option<String>)> {
        let text = self.text(n);
        if address::is_path(&text) {
            return Some((address::of_path(&text), Some(text)));
        }
        text.parse().ok().map(|address| (address, None))
    }
}

struct Reading<'a> {
    files: &'a mut Files,
    path: &'a Path,
    host: &'a str,
    first: WindowIndex,
    last: WindowIndex,
    wanted: Wanted<'a>,
    windows: BTreeMap<WindowIndex, HostWindow>,
}

impl Reading<'_> {
    fn columns(&mut self, kind: Kind, names: &[&str]) -> Result<Option<Rows>, SegmentError> {
        let found = opened(self.files, self.path, kind)?.read(self.host, names);
        found.map_err(|source| SegmentError::File { path: self.path.join(kind.file()), source })
    }

    /// The window of a row's `start`, if it is asked for.
    fn index(&self, cells: Option<&Option<Cells>>, row: usize) -> Option<WindowIndex> {
        let start_us = unsigned(cells?.as_ref()?.int(row));
        let index = WindowIndex(start_us / (WINDOW_NS / 1_000));
        (self.first..=self.last).contains(&index).then_some(index)
    }

    fn host(&mut self) -> Result<(), SegmentError> {
        let columns = columns::cpu();
        let values = self.wanted.of(Kind::Host, &columns).unwrap_or_default();
        let mut names =
            vec!["start", "clock_error_us", "clock_corrected", "lost_before", "uncovered", "sampled"];
        let keys = names.len();
        names.extend(&values);
        let Some((rows, cells)) = self.columns(Kind::Host, &names)? else { return Ok(()) };
        let chosen: Vec<_> = columns.iter().filter(|c| values.contains(&c.name)).collect();
        let key = |n: usize, row| unsigned(cells.get(n).and_then(Option::as_ref).and_then(|c| c.int(row)));
        let signals = |n: usize, row| {
            SignalSet::of(cells.get(n).and_then(Option::as_ref).map_or("", |c| c.text(row)).split(' '))
        };
        for row in 0..rows {
            let Some(index) = self.index(cells.first(), row) else { continue };
            let mut cpu: Option<HostCpu> = None;
            for (column, cells) in chosen.iter().zip(cells.iter().skip(keys)) {
                if let Some(v) = cells.as_ref().and_then(|c| c.int(row)) {
                    (column.set)(cpu.get_or_insert_default(), unsigned(Some(v)));
                }
            }
            let window = HostWindow {
                host: self.host.to_owned(),
                index,
                clock_error_ns: key(1, row).saturating_mul(1_000),
                clock_corrected: key(2, row) != 0,
                lost_before: key(3, row),
                uncovered: signals(4, row),
                sampled: signals(5, row),
                cpu,
                ..HostWindow::default()
            };
            self.windows.insert(index, window);
        }
        Ok(())
    }

    fn entities<R: Default>(
        &mut self,
        kind: Kind,
        columns: &[Column<R>],
        rows_of: impl Fn(&mut HostWindow) -> &mut ById<R>,
        fold: fn(&mut R, &R),
        mut name: impl FnMut(EntityId, NameRow<'_>),
    ) -> Result<(), SegmentError> {
        let Some(values) = self.wanted.of(kind, columns) else { return Ok(()) };
        let whole = matches!(self.wanted, Wanted::Whole(_));
        // host is known; start and id, then the names unless nobody is to be told apart, then the values.
        let key_names: Vec<&str> =
            keys(kind).iter().skip(1).map(|f| f.name).take(if whole { 2 } else { usize::MAX }).collect();
        let named = key_names.len();
        let wanted: Vec<&str> = key_names.into_iter().chain(values.iter().copied()).collect();
        let Some((rows, cells)) = self.columns(kind, &wanted)? else { return Ok(()) };
        let chosen: Vec<_> = columns.iter().filter(|c| values.contains(&c.name)).collect();
        let mut last_named = None;
        for row in 0..rows {
            let Some(index) = self.index(cells.first(), row) else { continue };
            let Some(Some(ids)) = cells.get(1) else { continue };
            let id = EntityId::try_from(unsigned(ids.int(row))).unwrap_or(0);
            if !whole && last_named != Some(id) {
                last_named = Some(id);
                name(id, NameRow { cells: cells.get(2..named).unwrap_or_default(), row });
            }
            let Some(window) = self.windows.get_mut(&index) else { continue };
            let mut value = R::default();
            for (column, cells) in chosen.iter().zip(cells.iter().skip(named)) {
                if let Some(v) = cells.as_ref().and_then(|c| c.int(row)) {
                    (column.set)(&mut value, unsigned(Some(v)));
                }
            }
            let rows = rows_of(window);
            if whole {
                fold(rows.entry(0).or_default(), &value);
            } else {
                rows.insert(id, value);
            }
        }
        Ok(())
    }

    fn culprits(&mut self) -> Result<(), SegmentError> {
        if !matches!(self.wanted, Wanted::All) {
            return Ok(());
        }
        let names = ["start", "resource", "pid", "comm", "workload_id", "amount"];
        let Some((rows, cells)) = self.columns(Kind::Culprit, &names)? else { return Ok(()) };
        for row in 0..rows {
            let key = NameRow { cells: &cells, row };
            let Some(index) = self.index(cells.first(), row) else { continue };
            let Some(resource) = columns::resource_named(&key.text(1)) else { continue };
            let (pid, comm, amount) = (key.id(2), key.text(3), unsigned(key.int(5)));
            let amount = amount.saturating_mul(columns::resource_per(resource));
            let sample = CulpritSample { resource, pid, comm, workload: key.id(4), amount };
            if let Some(window) = self.windows.get_mut(&index) {
                window.culprits.push(sample);
            }
        }
        Ok(())
    }
}

//! What the hosts of one application told, window by window: a golden recording of the laboratory, in which a millibottleneck of one tier
//! overflowed the queue of another. Owns which windows are quiet and which are the episode, and what else a host of that size would tell;
//! knows no fleet and no wire.

use super::size::{More, Size};
use crate::score::golden::Golden;
use anyhow::{Context, Result, ensure};
use prost::Message;
use prost::bytes::Bytes;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tailwater_proto::columnar::{TableBuilder, TableValues};
use tailwater_proto::trace::TraceReader;
use tailwater_proto::v1::{
    Culprit, DropEvent, Entities, EntityKind, Hello, InFlightStates, Metric, WindowBatch,
    agent_message::Body as Said, trace_record::Body,
};

/// Length of a window.
pub const WINDOW_NS: u64 = 50_000_000;
/// The quiet seconds before an injection that are told again and again.
const QUIET_WINDOWS: u64 = 44;
/// They end this long before it.
const BEFORE_NS: u64 = 200_000_000;

/// The first id of what the recording does not have.
pub const MORE_FROM: u32 = 101;

/// The hosts of a recording; whoever is beyond them tells what the last one does while it is quiet.
pub const ROLES: [&str; 3] = ["web-1", "app-1", "db-1"];
/// Whose quiet windows fill the rest of every host: it listens and calls.
const MORE_AS: usize = 1;

#[derive(Debug, Clone, Default)]
struct Window {
    tables: BTreeMap<i32, (Arc<TableValues>, usize)>,
    culprits: Vec<Culprit>,
    states: Vec<InFlightStates>,
    flags: u32,
}

/// One host of a recording.
#[derive(Debug, Default)]
pub struct Role {
    /// Who it is.
    pub hello: Hello,
    /// Everything that it named.
    pub entities: Entities,
    /// Drop events, each by its distance from the begin of the episode.
    pub drops: Vec<(u64, DropEvent)>,
    windows: Vec<Window>,
}

/// What an injection must lead to.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The incident's `kind`.
    pub kind: String,
    /// Role of the root's host.
    pub role: usize,
    /// The root's `resource`.
    pub resource: String,
}

/// A recording as a script.
#[derive(Debug)]
pub struct Script {
    /// Its cell.
    pub name: String,
    /// By [`ROLES`].
    pub roles: Vec<Role>,
    /// What is to be found.
    pub expected: Expected,
    more: More,
    made: Mutex<HashMap<(usize, Vec<usize>), Bytes>>,
}

impl Script {
    /// From a golden recording of `folder`, for hosts of a size.
    pub fn load(folder: &Path, cell: &str, size: Size) -> Result<Self> {
        let golden = Golden::of(folder, cell);
        let injection = golden.injection()?;
        let role_of = |host: &str| ROLES.iter().position(|role| *role == host);
        let expected = Expected {
            role: role_of(&injection.expected.host).context("the root is one of the three hosts")?,
            kind: injection.expected.kind.clone(),
            resource: injection.expected.resource.clone(),
        };
        let mut roles: Vec<Role> = ROLES.iter().map(|_| Role::default()).collect();
        let mut windows: Vec<BTreeMap<u64, Window>> = vec![BTreeMap::new(); ROLES.len()];
        for record in TraceReader::new(golden.read()?.as_slice())? {
            let Some(Body::Arrival(arrival)) = record?.body else { continue };
            let Some(n) = role_of(&arrival.host) else { continue };
            let shift = arrival.window_shift.unwrap_or(0);
            match arrival.message.and_then(|message| message.body) {
                Some(Said::Hello(hello)) => roles[n].hello = hello,
                Some(Said::Entities(entities)) => add(&mut roles[n].entities, entities),
                Some(Said::Drop(drop)) => roles[n].drops.push((drop.unix_ns, drop)),
                Some(Said::Batch(batch)) => take(&mut windows[n], &batch, shift)?,
                _ => {}
            }
        }
        let begin = (injection.truth.start_unix_ns - BEFORE_NS) / WINDOW_NS - QUIET_WINDOWS;
        let end = windows.iter().filter_map(|w| w.keys().next_back()).min().copied().unwrap_or(0);
        ensure!(end > begin + QUIET_WINDOWS, "{cell}: the recording is too short");
        for (role, windows) in roles.iter_mut().zip(&mut windows) {
            let length = end - begin;
            let window =
                |index| windows.remove(&index).with_context(|| format!("{cell}: a window is missing"));
            role.windows = (begin..begin + length).map(window).collect::<Result<_>>()?;
            let from = begin * WINDOW_NS;
            role.drops.retain(|(at, _)| (from..from + length * WINDOW_NS).contains(at));
            role.drops.iter_mut().for_each(|(at, _)| *at -= from);
        }
        Ok(Self { name: cell.to_owned(), roles, expected, more: size.more(), made: Mutex::default() })
    }

    /// How many windows an episode has; its first are quiet.
    #[must_use]
    pub fn episode_windows(&self) -> u64 {
        self.roles[0].windows.len() as u64
    }

    /// The quiet window that is told at an index of time.
    #[must_use]
    pub fn quiet_at(index: u64) -> usize {
        (index % QUIET_WINDOWS) as usize
    }

    /// A batch of windows of a role, by their places in the script, as far as it does not depend on host and time. Made once.
    pub fn batch(&self, role: usize, places: Vec<usize>) -> Bytes {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match made.entry((role, places)) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => {
                let batch = self.make(role, &new.key().1).into();
                new.insert(batch).clone()
            }
        }
    }

    fn make(&self, role: usize, places: &[usize]) -> Vec<u8> {
        let windows: Vec<&Window> = places.iter().map(|place| &self.roles[role].windows[*place]).collect();
        let count = windows.len();
        let kinds = [
            EntityKind::Host,
            EntityKind::Workload,
            EntityKind::Listener,
            EntityKind::Edge,
            EntityKind::Device,
        ];
        let mut tables = Vec::new();
        for kind in kinds {
            let mut table = TableBuilder::new(kind, count);
            for (n, window) in windows.iter().enumerate() {
                if let Some((values, at)) = window.tables.get(&(kind as i32)) {
                    rows(&mut table, n, values, *at, Some);
                }
                self.more(&mut table, kind, n, places[n]);
            }
            if !table.is_empty() {
                tables.push(table.build());
            }
        }
        let mut batch = WindowBatch { window_count: count as u32, tables, ..WindowBatch::default() };
        for (offset, window) in (0..).zip(&windows) {
            batch.flags.push(window.flags);
            batch.culprits.extend(window.culprits.iter().cloned().map(|mut c| {
                c.window_offset = offset;
                c
            }));
            batch.in_flight_states.extend(window.states.iter().cloned().map(|mut s| {
                s.window_offset = offset;
                // The other servers of the host spend their time as the recorded one does.
                if let Some(own) = s.listeners.first().cloned() {
                    let more = (0..self.more.listeners.1).map(|n| {
                        let mut other = own.clone();
                        other.listener = MORE_FROM + n;
                        other
                    });
                    s.listeners.extend(more);
                }
                s
            }));
        }
        batch.encode_to_vec()
    }

    /// What else the host tells: the application server's quiet windows, each entity at another moment of them.
    fn more(&self, table: &mut TableBuilder, kind: EntityKind, at: usize, place: usize) {
        let count = match kind {
            EntityKind::Workload => self.more.workloads.1,
            EntityKind::Listener => self.more.listeners.1,
            EntityKind::Edge => self.more.edges.1,
            _ => return,
        };
        for n in 0..count {
            let from = (place as u64 + 5 + 7 * u64::from(n)) % QUIET_WINDOWS;
            let window = &self.roles[MORE_AS].windows[from as usize];
            let Some((values, offset)) = window.tables.get(&(kind as i32)) else { continue };
            let Some(own) = values.entities().next() else { continue };
            rows(table, at, values, *offset, |id| (id == own).then_some(MORE_FROM + n));
        }
    }
}

/// Puts rows into a table, each under the id that `named` gives it.
fn rows(
    table: &mut TableBuilder,
    at: usize,
    values: &TableValues,
    offset: usize,
    named: impl Fn(u32) -> Option<u32>,
) {
    for (metric, bucket, column) in values.columns() {
        let Ok(metric) = Metric::try_from(metric) else { continue };
        table.cover(metric);
        for (id, row) in values.rows() {
            let Some(id) = named(id) else { continue };
            table.set(id, at, metric, bucket, column[row * values.windows() + offset]);
        }
    }
}

fn add(known: &mut Entities, new: Entities) {
    let ids = |e: &Entities| -> BTreeSet<(u8, u32)> {
        let mut all: BTreeSet<_> = e.workloads.iter().map(|w| (0, w.id)).collect();
        all.extend(e.listeners.iter().map(|l| (1, l.id)));
        all.extend(e.edges.iter().map(|l| (2, l.id)));
        all.extend(e.devices.iter().map(|l| (3, l.id)));
        all
    };
    let told = ids(&new);
    known.workloads.retain(|w| !told.contains(&(0, w.id)));
    known.listeners.retain(|l| !told.contains(&(1, l.id)));
    known.edges.retain(|e| !told.contains(&(2, e.id)));
    known.devices.retain(|d| !told.contains(&(3, d.id)));
    known.workloads.extend(new.workloads);
    known.listeners.extend(new.listeners);
    known.edges.extend(new.edges);
    known.devices.extend(new.devices);
}

fn take(windows: &mut BTreeMap<u64, Window>, batch: &WindowBatch, shift: i64) -> Result<()> {
    let mut tables = BTreeMap::new();
    for table in &batch.tables {
        tables.insert(table.kind, Arc::new(TableValues::decode(table, batch.window_count)?));
    }
    for n in 0..batch.window_count {
        let own = |offset: u32| offset == n;
        let window = Window {
            tables: tables.iter().map(|(kind, values)| (*kind, (Arc::clone(values), n as usize))).collect(),
            culprits: batch.culprits.iter().filter(|c| own(c.window_offset)).cloned().collect(),
            states: batch.in_flight_states.iter().filter(|s| own(s.window_offset)).cloned().collect(),
            flags: batch.flags.get(n as usize).copied().unwrap_or(0),
        };
        windows.insert(batch.first_window.saturating_add_signed(shift) + u64::from(n), window);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_tells_what_a_host_of_ten_workloads_tells() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
        let script = Script::load(&folder, "nx0-db-cpu", Size::Realistic).unwrap();
        assert_eq!((script.expected.kind.as_str(), script.expected.role), ("upstream_ctqo", 2));
        assert!(script.roles[0].drops.len() > 10, "the front dropped: {:?}", script.roles[0].drops.len());
        let batch = WindowBatch::decode(script.batch(1, vec![0, 1])).unwrap();
        assert_eq!(counts(&batch), [5, 3, 6], "half of 10, 6 and 12");
        let table = batch.tables.iter().find(|t| t.kind == EntityKind::Listener as i32).unwrap();
        let values = TableValues::decode(table, 2).unwrap();
        assert!(values.get(MORE_FROM, 0, Metric::RequestsAnswered).unwrap() > 5, "they are busy");
    }

    #[test]
    fn a_small_host_tells_what_the_recording_has() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
        let script = Script::load(&folder, "nx0-db-cpu", Size::Small).unwrap();
        assert_eq!(counts(&WindowBatch::decode(script.batch(1, vec![0, 1])).unwrap()), [1, 1, 1]);
    }

    /// How many workloads, listeners and edges are in a batch.
    fn counts(batch: &WindowBatch) -> [usize; 3] {
        [EntityKind::Workload, EntityKind::Listener, EntityKind::Edge].map(|kind| {
            let table = batch.tables.iter().find(|t| t.kind == kind as i32);
            table.map_or(0, |t| t.entities.len())
        })
    }
}

//! What one server did around an incident, a row for each window. Owns how rows are read from windows and their names; knows no incident and
//! no model.

use crate::live::fold;
use crate::live::series::Series;
use crate::live::view::is_listener;
use tailwater_model::names::Names;
use tailwater_model::window::{
    EdgeWindow, EntityId, HostWindow, ListenerWindow, SignalSet, WindowIndex, WorkloadWindow,
};

/// Signals without any of which a row would be half known. What is polled knows no requests, or only their peaks.
const NEEDED: [&str; 4] = ["cpu", "accept_queue", "requests", "calls"];

/// A server by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) workload: String,
    /// `address:port`.
    pub(super) listener: String,
}

/// One window of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Row {
    /// Of the listener.
    pub(super) listen: ListenerWindow,
    /// Answers of all listeners of the workload: CPU time is told of all of them together.
    pub(super) answered_by_all: u64,
    pub(super) busy_ns: u64,
    /// CPU time that it may use: its quota, or all of the host's.
    pub(super) may_use_ns: u64,
    /// Some of its threads were stopped.
    pub(super) stopped: bool,
    /// Calls to the next tier of the chain.
    pub(super) calls: EdgeWindow,
    /// All calls in flight, wherever to.
    pub(super) calls_in_flight_ns: u64,
}

/// The ids of a server under the names of one part.
struct Ids {
    workloads: Vec<EntityId>,
    measured: Vec<EntityId>,
    listeners: Vec<EntityId>,
    all_listeners: Vec<EntityId>,
    edges: Vec<EntityId>,
    all_edges: Vec<EntityId>,
    quota_ns: u64,
}

impl Ids {
    fn of(names: &Names, server: &Server, remotes: &[String]) -> Self {
        let own = || names.workloads.values().filter(|w| w.name == server.workload);
        let workloads: Vec<EntityId> = own().map(|w| w.id).collect();
        let measured: Vec<EntityId> = own().map(|w| if w.shares == 0 { w.id } else { w.shares }).collect();
        let listeners = || names.listeners.values().filter(|l| workloads.contains(&l.workload));
        let calls = |id: EntityId| workloads.contains(&id) || measured.contains(&id);
        let edges = || names.edges.values().filter(|e| calls(e.workload));
        let there = |e: &EntityId| {
            let edge = names.edges.get(e);
            edge.is_some_and(|e| remotes.contains(&e.socket()))
        };
        Self {
            listeners: listeners().filter(|l| is_listener(l, &server.listener)).map(|l| l.id).collect(),
            all_listeners: listeners().map(|l| l.id).collect(),
            edges: edges().map(|e| e.id).filter(there).collect(),
            all_edges: edges().map(|e| e.id).collect(),
            quota_ns: own().map(|w| w.cpu_quota_ns).max().unwrap_or(0),
            measured,
            workloads,
        }
    }

    /// `None`: not measured.
    fn row(&self, window: &HostWindow) -> Option<Row> {
        let needed = SignalSet::of(NEEDED);
        if window.uncovered.meets(needed) || window.sampled.meets(needed) {
            return None;
        }
        let capacity_ns = window.cpu?.capacity_ns;
        let may_use_ns = if self.quota_ns > 0 { self.quota_ns.min(capacity_ns) } else { capacity_ns };
        let mut row = Row { may_use_ns, ..Row::default() };
        let mut all = ListenerWindow::default();
        let listens = |ids: &[EntityId], to: &mut ListenerWindow| {
            ids.iter().filter_map(|id| window.listeners.get(id)).for_each(|l| fold::listener(to, l));
        };
        listens(&self.listeners, &mut row.listen);
        listens(&self.all_listeners, &mut all);
        row.answered_by_all = all.answered;
        let mut work = WorkloadWindow::default();
        let of = |ids: &[EntityId], to: &mut WorkloadWindow| {
            ids.iter().filter_map(|id| window.workloads.get(id)).for_each(|w| fold::workload(to, w));
        };
        of(&self.measured, &mut work);
        row.busy_ns = work.busy_ns;
        let mut own = WorkloadWindow::default();
        of(&self.workloads, &mut own);
        row.stopped = own.stopped_max > 0;
        for edge in self.edges.iter().filter_map(|id| window.edges.get(id)) {
            fold::edge(&mut row.calls, edge);
        }
        row.calls_in_flight_ns = self
            .all_edges
            .iter()
            .filter_map(|id| window.edges.get(id))
            .fold(0, |sum: u64, e| sum.saturating_add(e.in_flight_ns));
        Some(row)
    }
}

/// A row for each window from `first` to `last`; `None`: the window is missing or not measured. `parts`: of the server's host; `remotes`:
/// `address:port` of the next tier as this one dials it.
pub(super) fn rows(
    parts: &[Series],
    server: &Server,
    remotes: &[String],
    first: WindowIndex,
    last: WindowIndex,
) -> Vec<Option<Row>> {
    let count = usize::try_from(last.0.saturating_sub(first.0)).unwrap_or(0).saturating_add(1);
    let mut rows = vec![None; count];
    for part in parts {
        let Some(ids) = part.with_names(&server.host, |names| Ids::of(names, server, remotes)) else {
            continue;
        };
        part.windows(&server.host, |window| {
            let place = window.index.0.checked_sub(first.0).and_then(|n| usize::try_from(n).ok());
            if let Some(slot @ None) = place.and_then(|n| rows.get_mut(n)) {
                *slot = ids.row(window);
            }
        });
    }
    rows
}

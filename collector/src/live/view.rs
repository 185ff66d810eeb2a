//! What of a host is asked for, and a window as that: one row of each kind. Knows names, no metric and no time.

use super::fold;
use crate::columns::Kind;
use std::collections::BTreeSet;
use std::net::IpAddr;
use tailwater_model::names::Names;
use tailwater_model::rows::Rows;
use tailwater_model::window::{
    DeviceWindow, EdgeWindow, EntityId, HostWindow, ListenerInfo, ListenerWindow, WorkloadWindow,
};

/// What to read.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// Host.
    pub host: &'a str,
    /// Name of a workload; `None`: the host.
    pub workload: Option<&'a str>,
    /// `address:port`; `None`: all listeners of the workload together.
    pub listener: Option<&'a str>,
    /// Of [`METRICS`](super::metric::METRICS).
    pub metric: &'a str,
}

impl Query<'_> {
    /// Whether both ask of the same thing.
    pub(super) fn same_thing(&self, other: &Self) -> bool {
        (self.host, self.workload, self.listener) == (other.host, other.workload, other.listener)
    }
}

/// What of a host is asked for.
pub(super) struct Selected {
    pub(super) whole_host: bool,
    pub(super) quota_ns: u64,
    /// `None`: all.
    pub(super) ids: Option<Ids>,
}

pub(super) struct Ids {
    pub(super) workloads: Vec<EntityId>,
    /// Under which their CPU, I/O and memory are told: of a server that shares its cgroup, the cgroup's.
    pub(super) measured: BTreeSet<EntityId>,
    pub(super) listeners: Vec<EntityId>,
    pub(super) edges: Vec<EntityId>,
}

/// A window, with what is asked for of it as one row of each kind. Devices serve the host: which part of them a workload had, they do
/// not know.
pub(super) struct View<'a> {
    pub(super) of: &'a Selected,
    pub(super) window: &'a HostWindow,
    pub(super) work: WorkloadWindow,
    pub(super) listen: ListenerWindow,
    pub(super) edge: EdgeWindow,
    pub(super) device: DeviceWindow,
}

/// The rows of `ids`, or all, as one.
fn folded<'a, R: Default>(
    rows: &Rows<R>,
    ids: Option<impl IntoIterator<Item = &'a EntityId>>,
    fold: fn(&mut R, &R),
) -> R {
    let mut sum = R::default();
    match ids {
        None => rows.values().for_each(|row| fold(&mut sum, row)),
        Some(ids) => ids.into_iter().filter_map(|id| rows.get(id)).for_each(|row| fold(&mut sum, row)),
    }
    sum
}

impl Selected {
    /// Of a host with these names.
    pub(super) fn of(names: &Names, query: Query<'_>) -> Self {
        let workloads: Vec<EntityId> = names
            .workloads
            .values()
            .filter(|w| query.workload.is_some_and(|name| w.name == name))
            .map(|w| w.id)
            .collect();
        let owned = |id: &EntityId| query.workload.is_none() || workloads.contains(id);
        let listens = |l: &&ListenerInfo| match query.listener {
            None => owned(&l.workload),
            Some(text) => (workloads.is_empty() || owned(&l.workload)) && is_listener(l, text),
        };
        if query.workload.is_none() && query.listener.is_none() {
            return Self { whole_host: true, quota_ns: 0, ids: None };
        }
        Self {
            whole_host: query.workload.is_none(),
            quota_ns: names
                .workloads
                .values()
                .filter(|w| workloads.contains(&w.id))
                .map(|w| w.cpu_quota_ns)
                .max()
                .unwrap_or(0),
            ids: Some(Ids {
                listeners: names.listeners.values().filter(listens).map(|l| l.id).collect(),
                edges: names.edges.values().filter(|e| owned(&e.workload)).map(|e| e.id).collect(),
                measured: names
                    .workloads
                    .values()
                    .filter(|w| workloads.contains(&w.id))
                    .map(|w| if w.shares == 0 { w.id } else { w.shares })
                    .collect(),
                workloads,
            }),
        }
    }

    /// A window as it, as far as `kinds` are asked for.
    pub(super) fn view<'a>(&'a self, window: &'a HostWindow, kinds: &[Kind]) -> View<'a> {
        let ids = self.ids.as_ref();
        // Of the whole host, also when one of its listeners is asked for.
        let some = ids.filter(|_| !self.whole_host);
        let mut view = View {
            of: self,
            window,
            work: WorkloadWindow::default(),
            listen: ListenerWindow::default(),
            edge: EdgeWindow::default(),
            device: DeviceWindow::default(),
        };
        if kinds.contains(&Kind::Workload) {
            view.work = folded(&window.workloads, some.map(|ids| &ids.measured), fold::workload);
            let own = folded(&window.workloads, some.map(|ids| &ids.workloads), fold::workload);
            (view.work.stopped_ns, view.work.stopped_max) = (own.stopped_ns, own.stopped_max);
        }
        if kinds.contains(&Kind::Listener) {
            view.listen = folded(&window.listeners, ids.map(|ids| &ids.listeners), fold::listener);
        }
        if kinds.contains(&Kind::Edge) {
            view.edge = folded(&window.edges, ids.map(|ids| &ids.edges), fold::edge);
        }
        if kinds.contains(&Kind::Device) {
            view.device = folded(&window.devices, None::<&Vec<EntityId>>, fold::device);
        }
        view
    }
}

/// A wildcard listener is shown under its host's address or as it listens: the port decides then.
pub(crate) fn is_listener(listener: &ListenerInfo, text: &str) -> bool {
    if listener.path.is_some() {
        return listener.path.as_deref() == Some(text);
    }
    let Some((address, port)) = text.rsplit_once(':') else { return false };
    if port.parse() != Ok(listener.port) {
        return false;
    }
    let address = address.trim_matches(['[', ']']);
    listener.address.is_unspecified()
        || address
            .parse()
            .is_ok_and(|a: IpAddr| a.to_canonical() == listener.address.to_canonical() || a.is_unspecified())
}

//! The last minutes of windows in memory, and one metric of them over time. Owns the bound of bytes; what the name of
//! a metric means is in `metric`. Knows no incident and no HTTP.

pub(crate) mod fold;
pub mod inventory;
pub mod metric;

pub use metric::METRICS;

use crate::store::Names;
use metric::Metric;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tailwater_analysis::model::{
    DeviceWindow, EdgeInfo, EdgeWindow, EntityId, HostWindow, Input, ListenerInfo, ListenerWindow, SignalSet,
    WINDOW_NS, WindowIndex, WorkloadWindow,
};

/// One host's windows and names.
#[derive(Debug, Default)]
struct HostSeries {
    windows: BTreeMap<u64, Arc<HostWindow>>,
    names: Names,
    addresses: Vec<IpAddr>,
}

/// Windows of all hosts.
#[derive(Debug)]
pub struct Series {
    hosts: BTreeMap<String, HostSeries>,
    /// In order of arrival: what is forgotten first.
    order: VecDeque<(String, u64, usize)>,
    bytes: usize,
    bytes_max: usize,
    windows_max: u64,
}

/// What to read.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// Host.
    pub host: &'a str,
    /// Name of a workload; `None`: the host.
    pub workload: Option<&'a str>,
    /// `address:port`; `None`: all listeners of the workload together.
    pub listener: Option<&'a str>,
    /// Of [`METRICS`].
    pub metric: &'a str,
}

/// Several windows as one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Point {
    pub start_unix_ns: u64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// Windows behind it; fewer than asked for: the others are missing, not zero.
    pub windows: u32,
}

impl Query<'_> {
    /// Whether both ask of the same thing.
    fn same_thing(&self, other: &Self) -> bool {
        (self.host, self.workload, self.listener) == (other.host, other.workload, other.listener)
    }
}

/// Windows as at most so many points, each with the extremes and the mean of its windows.
#[derive(Debug, Clone)]
pub struct Decimator {
    first: u64,
    step: u64,
    points: Vec<Option<Point>>,
}

impl Decimator {
    /// Over `[first, last]`.
    #[must_use]
    pub fn new(first: WindowIndex, last: WindowIndex, max_points: usize) -> Self {
        let windows = last.0.saturating_sub(first.0).saturating_add(1);
        let step = windows.div_ceil(max_points.max(1) as u64).max(1);
        let count = usize::try_from(windows.div_ceil(step)).unwrap_or(usize::MAX).min(max_points.max(1));
        Self { first: first.0, step, points: vec![None; count] }
    }

    /// One window's value.
    pub fn add(&mut self, index: WindowIndex, value: f64) {
        let Some(place) = index.0.checked_sub(self.first).map(|n| n / self.step) else { return };
        let start_unix_ns = WindowIndex(self.first + place * self.step).start_unix_ns();
        let Some(point) = usize::try_from(place).ok().and_then(|n| self.points.get_mut(n)) else { return };
        let p = point.get_or_insert(Point { start_unix_ns, min: value, max: value, mean: 0.0, windows: 0 });
        p.windows = p.windows.saturating_add(1);
        p.min = p.min.min(value);
        p.max = p.max.max(value);
        // The sum until `points`.
        p.mean += value;
    }

    /// Takes over another's of the same span: windows that this one does not have.
    pub fn merge(&mut self, other: &Self) {
        for (to, from) in self.points.iter_mut().zip(&other.points) {
            match (to, from) {
                (Some(to), Some(from)) => {
                    to.windows = to.windows.saturating_add(from.windows);
                    to.min = to.min.min(from.min);
                    to.max = to.max.max(from.max);
                    to.mean += from.mean;
                }
                (to @ None, from) => *to = *from,
                (Some(_), None) => {}
            }
        }
    }

    /// Those that have a window.
    #[must_use]
    pub fn points(self) -> Vec<Point> {
        let there = self.points.into_iter().flatten();
        there.map(|p| Point { mean: p.mean / f64::from(p.windows), ..p }).collect()
    }
}

/// Memory of a window, about.
pub(crate) fn size_of(w: &HostWindow) -> usize {
    // Values, plus what a map takes per entry beside them.
    let entries =
        w.workloads.len() * 150 + w.listeners.len() * 230 + w.edges.len() * 170 + w.devices.len() * 100;
    400 + entries + w.culprits.len() * 80
}

impl Series {
    /// Keeps at most `minutes` and `bytes_max`.
    #[must_use]
    pub fn new(minutes: u64, bytes_max: usize) -> Self {
        let windows_max = minutes.saturating_mul(60_000_000_000) / WINDOW_NS;
        Self { hosts: BTreeMap::new(), order: VecDeque::new(), bytes: 0, bytes_max, windows_max }
    }

    /// Takes what the pipeline is about to get. Returns a window as it is kept, for others to keep too.
    pub fn saw(&mut self, input: &Input) -> Option<Arc<HostWindow>> {
        match input {
            Input::Window(window) => return Some(self.window(Arc::new((**window).clone()))),
            Input::Entities { host, workloads, listeners, edges, devices } => {
                let series = self.hosts.entry(host.clone()).or_default();
                let names = &mut series.names;
                names.workloads.extend(workloads.iter().map(|w| (w.id, w.clone())));
                names.listeners.extend(listeners.iter().map(|l| (l.id, l.clone())));
                names.edges.extend(edges.iter().map(|e| (e.id, e.clone())));
                names.devices.extend(devices.iter().map(|d| (d.id, d.clone())));
                series.forget();
            }
            Input::Host(info) => {
                self.hosts.entry(info.host.clone()).or_default().addresses.clone_from(&info.addresses);
            }
            // The windows that are kept are of a time when it was there.
            Input::Gone { .. } => {}
            Input::Drop(_) | Input::Tick { .. } => {}
        }
        None
    }

    /// The same, of what nobody else needs.
    pub(crate) fn add(&mut self, input: Input) {
        match input {
            Input::Window(window) => drop(self.window(Arc::from(window))),
            other => drop(self.saw(&other)),
        }
    }

    fn window(&mut self, kept: Arc<HostWindow>) -> Arc<HostWindow> {
        let (size, index) = (size_of(&kept), kept.index.0);
        let host = self.hosts.entry(kept.host.clone()).or_default();
        if host.windows.insert(index, Arc::clone(&kept)).is_none() {
            self.order.push_back((kept.host.clone(), index, size));
            self.bytes += size;
        }
        while let Some((host, oldest, size)) = self.order.front() {
            if self.bytes <= self.bytes_max && index.saturating_sub(*oldest) <= self.windows_max {
                break;
            }
            self.bytes -= size;
            if let Some(series) = self.hosts.get_mut(host) {
                series.windows.remove(oldest);
            }
            self.order.pop_front();
        }
        kept
    }

    /// What is known of one host from `first` to `last`, to be read without the lock that the analysis waits for. Windows are shared.
    #[must_use]
    pub fn part(&self, host: &str, first: WindowIndex, last: WindowIndex) -> Self {
        let mut part = Self::new(u64::MAX, usize::MAX);
        if let Some(all) = self.hosts.get(host).filter(|_| first <= last) {
            let windows =
                all.windows.range(first.0..=last.0).map(|(index, w)| (*index, Arc::clone(w))).collect();
            let kept = HostSeries { windows, names: all.names.clone(), addresses: all.addresses.clone() };
            part.hosts.insert(host.to_owned(), kept);
        }
        part
    }

    /// Names behind a host's ids.
    #[must_use]
    pub fn names(&self, host: &str) -> Names {
        self.hosts.get(host).map(|series| series.names.clone()).unwrap_or_default()
    }

    /// Reads names behind a host's ids, in place: `read` runs under whatever lock the caller holds.
    pub fn with_names<T>(&self, host: &str, read: impl FnOnce(&Names) -> T) -> Option<T> {
        self.hosts.get(host).map(|series| read(&series.names))
    }

    /// Hands `take` each value of each of `queries`, all of one host, that is there in `[first, last]`, with its query's place. Window
    /// by window: what is in a window is looked at once for all queries of the same thing.
    pub fn present(
        &self,
        queries: &[Query<'_>],
        first: WindowIndex,
        last: WindowIndex,
        mut take: impl FnMut(usize, WindowIndex, f64),
    ) {
        let Some(host) =
            queries.first().and_then(|query| self.hosts.get(query.host)).filter(|_| first <= last)
        else {
            return;
        };
        let mut things: Vec<Asked<'_>> = Vec::new();
        for (n, query) in queries.iter().enumerate() {
            let Some(metric) = metric::find(query.metric) else { continue };
            let asked = (n, metric, metric.needs(), metric.needs_hooks());
            match things.iter_mut().find(|known| known.first.same_thing(query)) {
                Some(thing) => thing.metrics.push(asked),
                None => {
                    things.push(Asked { first: query, selected: host.select(*query), metrics: vec![asked] })
                }
            }
        }
        for (index, w) in host.windows.range(first.0..=last.0) {
            for thing in &things {
                let view = thing.selected.view(w);
                for (n, metric, needs, hooks) in &thing.metrics {
                    let unknown = w.uncovered.meets(*needs) || w.sampled.meets(*hooks);
                    if let Some(value) = metric.value(&view).filter(|_| !unknown) {
                        take(*n, WindowIndex(*index), value);
                    }
                }
            }
        }
    }

    /// Bytes that the windows take, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// One value per window of `[first, last]`; `None`: the window is not there, or not covered.
    #[must_use]
    pub fn values(&self, query: Query<'_>, first: WindowIndex, last: WindowIndex) -> Vec<Option<f64>> {
        let count = last.0.saturating_sub(first.0).saturating_add(1).min(self.windows_max.saturating_add(1));
        let mut values = vec![None; usize::try_from(count).unwrap_or(0)];
        self.present(
            &[query],
            first,
            WindowIndex(first.0.saturating_add(count.saturating_sub(1))),
            |_, index, value| {
                let place = index.0.checked_sub(first.0).and_then(|n| usize::try_from(n).ok());
                if let Some(cell) = place.and_then(|n| values.get_mut(n)) {
                    *cell = Some(value);
                }
            },
        );
        values
    }

    /// The same, at most `max_points` many, for each of several queries of one host.
    #[must_use]
    pub fn points(
        &self,
        queries: &[Query<'_>],
        first: WindowIndex,
        last: WindowIndex,
        max_points: usize,
    ) -> Vec<Vec<Point>> {
        let mut decimators = vec![Decimator::new(first, last, max_points); queries.len()];
        self.present(queries, first, last, |n, index, value| decimators[n].add(index, value));
        decimators.into_iter().map(Decimator::points).collect()
    }

    /// Connections to a listener by the window of their first SYN, if that had to be sent again: of the clients that are observed.
    /// `None`: none is. A value is `None` where a client's window is missing.
    #[must_use]
    pub fn retried(
        &self,
        host: &str,
        listener: &str,
        first: WindowIndex,
        last: WindowIndex,
    ) -> Option<Vec<Option<f64>>> {
        let (address, port) = listener.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
        let own = &self.hosts.get(host)?.addresses;
        let leads = |e: &&EdgeInfo| {
            let remote = e.remote_address.to_canonical();
            let there = remote == address.to_canonical()
                || (address.is_unspecified() && own.iter().any(|a| a.to_canonical() == remote));
            e.remote_port == port && there
        };
        let count = usize::try_from(last.0.saturating_sub(first.0).saturating_add(1)).ok()?;
        let mut values =
            vec![Some(0.0); count.min(usize::try_from(self.windows_max).ok()?.saturating_add(1))];
        let mut observed = false;
        for client in self.hosts.values() {
            let edges: Vec<EntityId> = client.names.edges.values().filter(leads).map(|e| e.id).collect();
            if edges.is_empty() {
                continue;
            }
            observed = true;
            for (index, value) in (first.0..).zip(&mut values) {
                if !client.windows.contains_key(&index) {
                    *value = None;
                }
            }
            for window in client.windows.range(first.0..).map(|(_, w)| w) {
                for e in edges.iter().filter_map(|id| window.edges.get(id)).filter(|e| e.syn_retransmits > 0)
                {
                    let begun = WindowIndex::at(e.first_try_unix_ns).0.checked_sub(first.0);
                    let at = begun.and_then(|i| values.get_mut(usize::try_from(i).ok()?));
                    if let Some(Some(value)) = at {
                        *value += e.syn_retransmits as f64;
                    }
                }
            }
        }
        observed.then_some(values)
    }

    /// The oldest and newest window of a host.
    #[must_use]
    pub fn span(&self, host: &str) -> Option<(WindowIndex, WindowIndex)> {
        let windows = &self.hosts.get(host)?.windows;
        Some((WindowIndex(*windows.keys().next()?), WindowIndex(*windows.keys().next_back()?)))
    }
}

impl HostSeries {
    /// Names of ids that no kept window can hold any more go first: ids only rise.
    fn forget(&mut self) {
        fn trim<T>(map: &mut BTreeMap<EntityId, T>) {
            while map.len() > 2 * crate::convert::ENTITIES_PER_HOST_MAX {
                map.pop_first();
            }
        }
        trim(&mut self.names.workloads);
        trim(&mut self.names.listeners);
        trim(&mut self.names.edges);
        trim(&mut self.names.devices);
    }

    fn select(&self, query: Query<'_>) -> Selected {
        let workloads: Vec<EntityId> = self
            .names
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
            return Selected { whole_host: true, quota_ns: 0, ids: None };
        }
        Selected {
            whole_host: query.workload.is_none(),
            quota_ns: self
                .names
                .workloads
                .values()
                .filter(|w| workloads.contains(&w.id))
                .map(|w| w.cpu_quota_ns)
                .max()
                .unwrap_or(0),
            ids: Some(Ids {
                listeners: self.names.listeners.values().filter(listens).map(|l| l.id).collect(),
                edges: self.names.edges.values().filter(|e| owned(&e.workload)).map(|e| e.id).collect(),
                measured: self
                    .names
                    .workloads
                    .values()
                    .filter(|w| workloads.contains(&w.id))
                    .map(|w| if w.shares == 0 { w.id } else { w.shares })
                    .collect(),
                workloads,
            }),
        }
    }
}

/// A wildcard listener is shown under its host's address or as it listens: the port decides then.
fn is_listener(listener: &ListenerInfo, text: &str) -> bool {
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

/// Queries of the same thing: places, metrics and what those need.
struct Asked<'a> {
    first: &'a Query<'a>,
    selected: Selected,
    metrics: Vec<(usize, &'static Metric, SignalSet, SignalSet)>,
}

/// What of a host is asked for.
struct Selected {
    whole_host: bool,
    quota_ns: u64,
    /// `None`: all.
    ids: Option<Ids>,
}

struct Ids {
    workloads: Vec<EntityId>,
    /// Under which their CPU, I/O and memory are told: of a server that shares its cgroup, the cgroup's.
    measured: BTreeSet<EntityId>,
    listeners: Vec<EntityId>,
    edges: Vec<EntityId>,
}

/// A window, with what is asked for of it as one row of each kind. Devices serve the host: which part of them a workload had, they do
/// not know.
struct View<'a> {
    of: &'a Selected,
    window: &'a HostWindow,
    work: WorkloadWindow,
    listen: ListenerWindow,
    edge: EdgeWindow,
    device: DeviceWindow,
}

/// The rows of `ids`, or all, as one.
fn folded<'a, R: Default>(
    rows: &BTreeMap<EntityId, R>,
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
    fn view<'a>(&'a self, window: &'a HostWindow) -> View<'a> {
        let ids = self.ids.as_ref();
        // Of the whole host, also when one of its listeners is asked for.
        let some = ids.filter(|_| !self.whole_host);
        let mut work = folded(&window.workloads, some.map(|ids| &ids.measured), fold::workload);
        let own = folded(&window.workloads, some.map(|ids| &ids.workloads), fold::workload);
        (work.stopped_ns, work.stopped_max) = (own.stopped_ns, own.stopped_max);
        View {
            of: self,
            window,
            work,
            listen: folded(&window.listeners, ids.map(|ids| &ids.listeners), fold::listener),
            edge: folded(&window.edges, ids.map(|ids| &ids.edges), fold::edge),
            device: folded(&window.devices, None::<&Vec<EntityId>>, fold::device),
        }
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;

//! The last minutes of windows in memory, and one metric of them over time. Owns the bound of bytes; what the name of
//! a metric means is in `metric`. Knows no incident and no HTTP.

use super::limits::Limits;
use super::metric::{self, Metric};
use super::view::{Query, Selected};
use super::windows::Windows;
use crate::columns::Kind;
use crate::lock::lock;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tailwater_model::names::Names;
use tailwater_model::window::{EdgeInfo, EntityId, HostWindow, Input, SignalSet, WINDOW_NS, WindowIndex};

/// One host's windows and names.
#[derive(Debug, Default)]
pub(super) struct HostSeries {
    pub(super) windows: Windows,
    pub(super) limits: Limits,
    /// Shared with those who read: it is copied when names change while somebody does.
    pub(super) names: Arc<Names>,
    gone: Departed,
    addresses: Vec<IpAddr>,
    /// Index of the newest window of any host when something was heard of this one last.
    heard: u64,
}

/// Ids behind which there is nothing any more, with the index of the newest window when that was heard.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Departed {
    /// By id.
    pub workloads: BTreeMap<EntityId, WindowIndex>,
    /// By id.
    pub listeners: BTreeMap<EntityId, WindowIndex>,
}

/// A host without windows of which nothing was heard for so long was decommissioned (a day), windows.
const GONE_WINDOWS: u64 = 24 * 3600 * 20;
/// Less than this is too little to look back at, ns: an incident's timeline alone shows so much.
pub const REACH_WANTED_NS: u64 = 60_000_000_000;

/// Windows of a host that are taken out while the lock is held once, which takes some dozens of microseconds.
pub(super) const PIECE_WINDOWS: usize = 1200;

/// How far back windows in memory reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// From the oldest window to the newest one, ns.
    pub span_ns: u64,
    /// Windows that had to go for their bytes before they were as old as they may get.
    pub cut: u64,
    /// The bytes are what limits it, and it is less than [`REACH_WANTED_NS`].
    pub short: bool,
}

/// Windows of all hosts.
#[derive(Debug)]
pub struct Series {
    pub(super) hosts: BTreeMap<String, HostSeries>,
    /// In order of arrival: what is forgotten first.
    order: VecDeque<(String, u64)>,
    bytes: usize,
    bytes_max: usize,
    /// What the last minute may take: more than `bytes_max`, which it shares with what is older.
    minute_bytes_max: usize,
    windows_max: u64,
    newest: u64,
    cut: u64,
    /// Index of the newest window when one had to go for its bytes.
    cut_at: Option<u64>,
    /// For packing windows.
    room: Vec<u64>,
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

impl Series {
    /// Keeps at most `minutes` and `bytes_max`.
    #[must_use]
    pub fn new(minutes: u64, bytes_max: usize) -> Self {
        let windows_max = minutes.saturating_mul(60_000_000_000) / WINDOW_NS;
        Self {
            hosts: BTreeMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            bytes_max,
            minute_bytes_max: bytes_max,
            windows_max,
            newest: 0,
            cut: 0,
            cut_at: None,
            room: Vec::new(),
        }
    }

    /// The same, which keeps the last minute of all hosts in more memory if it must.
    #[must_use]
    pub fn with_minute(mut self, bytes_max: usize) -> Self {
        self.minute_bytes_max = bytes_max.max(self.bytes_max);
        self
    }

    /// Takes what the pipeline is about to get. Returns a window as it is kept, for others to keep too.
    pub fn saw(&mut self, input: &Input) -> Option<Arc<HostWindow>> {
        match input {
            Input::Window(window) => return Some(self.window(Arc::clone(window))),
            Input::Entities { host, workloads, listeners, edges, devices } => {
                let series = self.heard(host);
                let names = Arc::make_mut(&mut series.names);
                names.workloads.extend(workloads.iter().map(|w| (w.id, w.clone())));
                names.listeners.extend(listeners.iter().map(|l| (l.id, l.clone())));
                names.edges.extend(edges.iter().map(|e| (e.id, e.clone())));
                names.devices.extend(devices.iter().map(|d| (d.id, d.clone())));
                series.forget();
            }
            Input::Host(info) => {
                self.heard(&info.host).addresses.clone_from(&info.addresses);
            }
            // Names stay: the windows that are kept are of a time when it was there.
            Input::Gone { host, gone } => {
                let newest = WindowIndex(self.newest);
                let series = self.heard(host);
                // An agent tells it again on each connection, and it went when that was heard first.
                for id in &gone.workloads {
                    series.gone.workloads.entry(*id).or_insert(newest);
                }
                for id in &gone.listeners {
                    series.gone.listeners.entry(*id).or_insert(newest);
                }
                trim(&mut series.gone.workloads);
                trim(&mut series.gone.listeners);
            }
            Input::States(_) | Input::Shares(_) | Input::Drop(_) | Input::Tick { .. } => {}
        }
        None
    }

    /// The same, of what nobody else needs.
    pub(crate) fn add(&mut self, input: Input) {
        match input {
            Input::Window(window) => drop(self.window(window)),
            other => drop(self.saw(&other)),
        }
    }

    /// The host, of which something came. A new one is the moment at which those that are long gone leave.
    fn heard(&mut self, host: &str) -> &mut HostSeries {
        let newest = self.newest;
        if !self.hosts.contains_key(host) {
            self.hosts.retain(|_, of| {
                // What was heard before the first window of all is as new as that.
                of.heard = if of.heard == 0 { newest } else { of.heard };
                !of.windows.is_empty() || newest.saturating_sub(of.heard) < GONE_WINDOWS
            });
        }
        let of = self.hosts.entry(host.to_owned()).or_default();
        of.heard = newest;
        of
    }

    fn window(&mut self, kept: Arc<HostWindow>) -> Arc<HostWindow> {
        let index = kept.index.0;
        self.newest = self.newest.max(index);
        let mut room = std::mem::take(&mut self.room);
        let host = self.heard(&kept.host);
        host.limits.add(&kept);
        let before = host.windows.bytes();
        let new = host.windows.insert(Arc::clone(&kept), &mut room);
        let after = host.windows.bytes();
        self.room = room;
        self.bytes = self.bytes + after - before;
        if new {
            self.order.push_back((kept.host.clone(), index));
        }
        while let Some((host, oldest)) = self.order.front() {
            let age = index.saturating_sub(*oldest);
            let bytes_max =
                if age <= REACH_WANTED_NS / WINDOW_NS { self.minute_bytes_max } else { self.bytes_max };
            if self.bytes <= bytes_max && age <= self.windows_max {
                break;
            }
            if age <= self.windows_max {
                self.cut += 1;
                self.cut_at = Some(self.newest);
            }
            if let Some(series) = self.hosts.get_mut(host) {
                let before = series.windows.bytes();
                series.windows.remove(*oldest);
                self.bytes -= before - series.windows.bytes();
                series.limits.remove(*oldest);
            }
            self.order.pop_front();
        }
        kept
    }

    /// What is known of one host from `first` to `last`, to be read without the lock that the analysis waits for. Windows are shared.
    #[must_use]
    pub fn part(&self, host: &str, first: WindowIndex, last: WindowIndex) -> Self {
        self.cut(host, (first, last), (first, last))
    }

    /// What is known of several hosts from `first` on, and of whoever calls one of these listeners, each with its host, in the same way.
    #[must_use]
    pub fn since<'a>(
        &'a self,
        hosts: impl IntoIterator<Item = &'a str>,
        called: impl IntoIterator<Item = (&'a str, &'a str)>,
        first: WindowIndex,
    ) -> Self {
        let clients = called.into_iter().filter_map(|(host, listener)| self.clients(host, listener));
        let clients = clients.flatten().map(|(name, ..)| name);
        let mut parts = Self::new(u64::MAX, usize::MAX);
        for host in hosts.into_iter().chain(clients) {
            if !parts.hosts.contains_key(host) {
                parts.hosts.extend(self.part(host, first, WindowIndex(u64::MAX)).hosts);
            }
        }
        parts
    }

    /// The same, of which limits may reach further than windows.
    pub(super) fn cut(
        &self,
        host: &str,
        (first, last): (WindowIndex, WindowIndex),
        limits: (WindowIndex, WindowIndex),
    ) -> Self {
        let mut part = Self::new(u64::MAX, usize::MAX);
        if let Some(all) = self.hosts.get(host).filter(|_| first <= last) {
            let kept = HostSeries {
                windows: all.windows.part(first.0, last.0),
                limits: all.limits.part(limits.0, limits.1),
                names: Arc::clone(&all.names),
                gone: Departed::default(),
                addresses: all.addresses.clone(),
                heard: all.heard,
            };
            part.hosts.insert(host.to_owned(), kept);
        }
        part
    }

    /// What is known of one host by name, and its oldest and newest window: no more than that is taken while the lock is held.
    #[must_use]
    pub fn outline(&self, host: &str) -> Self {
        self.taken(host, Windows::ends)
    }

    /// One host's names, with those of its windows that `take` gives.
    fn taken(&self, host: &str, take: impl FnOnce(&Windows) -> Windows) -> Self {
        let mut taken = Self::new(u64::MAX, usize::MAX);
        if let Some(all) = self.hosts.get(host) {
            let (windows, names) = (take(&all.windows), Arc::clone(&all.names));
            taken.hosts.insert(host.to_owned(), HostSeries { windows, names, ..HostSeries::default() });
        }
        taken
    }

    /// Whether there is anything of a host, be it names alone.
    #[must_use]
    pub fn knows(&self, host: &str) -> bool {
        self.hosts.contains_key(host)
    }

    /// Names behind a host's ids.
    #[must_use]
    pub fn names(&self, host: &str) -> Arc<Names> {
        self.hosts.get(host).map(|series| Arc::clone(&series.names)).unwrap_or_default()
    }

    /// What has gone of a host's ids, and since when.
    #[must_use]
    pub fn gone(&self, host: &str) -> Departed {
        self.hosts.get(host).map(|series| series.gone.clone()).unwrap_or_default()
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
                Some(thing) => {
                    thing.kinds.extend(metric.kinds());
                    thing.metrics.push(asked);
                }
                None => things.push(Asked {
                    first: query,
                    selected: Selected::of(&host.names, *query),
                    kinds: metric.kinds().collect(),
                    metrics: vec![asked],
                }),
            }
        }
        host.windows.each(first.0, last.0, |w| {
            for thing in &things {
                let view = thing.selected.view(w, &thing.kinds);
                for (n, metric, needs, hooks) in &thing.metrics {
                    let unknown = w.uncovered.meets(*needs) || w.sampled.meets(*hooks);
                    if let Some(value) = metric.value(&view).filter(|_| !unknown) {
                        take(*n, w.index, value);
                    }
                }
            }
        });
    }

    /// How far back they reach.
    #[must_use]
    pub fn reach(&self) -> Reach {
        let oldest = self.order.front().map_or(self.newest, |(_, index)| *index);
        let span_ns = self.newest.saturating_sub(oldest).saturating_mul(WINDOW_NS);
        // What was cut long ago limits nothing now.
        let lately =
            self.cut_at.is_some_and(|at| self.newest.saturating_sub(at) < REACH_WANTED_NS / WINDOW_NS);
        Reach { span_ns, cut: self.cut, short: lately && span_ns < REACH_WANTED_NS }
    }

    /// Bytes that the windows take, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// One value per window of `[first, last]`; `None`: the window is not there, or not covered.
    #[must_use]
    pub fn values(&self, query: Query<'_>, first: WindowIndex, last: WindowIndex) -> Vec<Option<f64>> {
        self.several(&[query], first, last).pop().unwrap_or_default()
    }

    /// The same for each of several queries of one host, whose windows are looked at once.
    #[must_use]
    pub fn several(
        &self,
        queries: &[Query<'_>],
        first: WindowIndex,
        last: WindowIndex,
    ) -> Vec<Vec<Option<f64>>> {
        let count = last.0.saturating_sub(first.0).saturating_add(1).min(self.windows_max.saturating_add(1));
        let mut values = vec![vec![None; usize::try_from(count).unwrap_or(0)]; queries.len()];
        let last = WindowIndex(first.0.saturating_add(count.saturating_sub(1)));
        self.present(queries, first, last, |query, index, value| {
            let place = index.0.checked_sub(first.0).and_then(|n| usize::try_from(n).ok());
            if let Some(cell) = place.and_then(|n| values[query].get_mut(n)) {
                *cell = Some(value);
            }
        });
        values
    }

    /// The same, at most `max_points` many, for each of several queries of one host, of what others fill meanwhile: the lock is held for a piece at a
    /// time, the oldest first as that goes first.
    #[must_use]
    pub fn points(
        series: &Mutex<Self>,
        queries: &[Query<'_>],
        first: WindowIndex,
        last: WindowIndex,
        max_points: usize,
    ) -> Vec<Vec<Point>> {
        Self::points_by(PIECE_WINDOWS, series, queries, (first, last), max_points)
    }

    fn points_by(
        piece_windows: usize,
        series: &Mutex<Self>,
        queries: &[Query<'_>],
        (first, last): (WindowIndex, WindowIndex),
        max_points: usize,
    ) -> Vec<Vec<Point>> {
        let mut decimators = vec![Decimator::new(first, last, max_points); queries.len()];
        let Some(host) = queries.first().map(|query| query.host) else { return Vec::new() };
        Self::pieces(piece_windows, series, host, (first, last), |part| {
            part.present(queries, first, last, |n, index, value| decimators[n].add(index, value));
        });
        decimators.into_iter().map(Decimator::points).collect()
    }

    /// Hands `read` what is there of a host in `[first, last]`, with its names, so many windows at a time. What it reads, nobody waits for.
    pub(super) fn pieces(
        piece_windows: usize,
        series: &Mutex<Self>,
        host: &str,
        (first, last): (WindowIndex, WindowIndex),
        mut read: impl FnMut(&Self),
    ) {
        let mut from = first.0;
        while from <= last.0 {
            let part = lock(series).taken(host, |all| all.piece(from, last.0, piece_windows));
            let Some((_, newest)) = part.span(host) else { break };
            read(&part);
            let Some(next) = newest.0.checked_add(1) else { break };
            from = next;
        }
    }

    /// Hosts that call a listener of a host, by their names, with the edges that lead there. `None`: it is no listener's address.
    fn clients(&self, host: &str, listener: &str) -> Option<Vec<(&str, &HostSeries, Vec<EntityId>)>> {
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
        Some(
            self.hosts
                .iter()
                .filter_map(|(name, client)| {
                    let edges: Vec<EntityId> =
                        client.names.edges.values().filter(leads).map(|e| e.id).collect();
                    (!edges.is_empty()).then_some((name.as_str(), client, edges))
                })
                .collect(),
        )
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
        let clients = self.clients(host, listener)?;
        let count = usize::try_from(last.0.saturating_sub(first.0).saturating_add(1)).ok()?;
        let mut values =
            vec![Some(0.0); count.min(usize::try_from(self.windows_max).ok()?.saturating_add(1))];
        for (_, client, edges) in &clients {
            for (index, value) in (first.0..).zip(&mut values) {
                if !client.windows.has(WindowIndex(index)) {
                    *value = None;
                }
            }
            client.windows.each(first.0, u64::MAX, |window| {
                for e in edges.iter().filter_map(|id| window.edges.get(id)).filter(|e| e.syn_retransmits > 0)
                {
                    let begun = WindowIndex::at(e.first_try_unix_ns).0.checked_sub(first.0);
                    let at = begun.and_then(|i| values.get_mut(usize::try_from(i).ok()?));
                    if let Some(Some(value)) = at {
                        *value += e.syn_retransmits as f64;
                    }
                }
            });
        }
        (!clients.is_empty()).then_some(values)
    }

    /// Hands `take` a host's windows, in their order.
    pub fn windows(&self, host: &str, take: impl FnMut(&HostWindow)) {
        if let Some(of) = self.hosts.get(host) {
            of.windows.each(0, u64::MAX, take);
        }
    }

    /// The oldest and newest window of a host.
    #[must_use]
    pub fn span(&self, host: &str) -> Option<(WindowIndex, WindowIndex)> {
        let (oldest, newest) = self.hosts.get(host)?.windows.span()?;
        Some((WindowIndex(oldest), WindowIndex(newest)))
    }
}

impl HostSeries {
    fn forget(&mut self) {
        let names = Arc::make_mut(&mut self.names);
        trim(&mut names.workloads);
        trim(&mut names.listeners);
        trim(&mut names.edges);
        trim(&mut names.devices);
    }
}

/// What is known of ids that no kept window can hold any more goes first: ids only rise, and none comes again.
fn trim<T>(map: &mut BTreeMap<EntityId, T>) {
    while map.len() > 2 * tailwater_model::names::ENTITIES_PER_HOST_MAX {
        map.pop_first();
    }
}

/// Queries of the same thing: places, metrics and what those need.
struct Asked<'a> {
    first: &'a Query<'a>,
    selected: Selected,
    /// What of a window they are computed from.
    kinds: Vec<Kind>,
    metrics: Vec<(usize, &'static Metric, SignalSet, SignalSet)>,
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;

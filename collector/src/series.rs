//! The last minutes of windows in memory, and one metric of them over time. Owns the bound of bytes and what each metric name
//! means; knows no incident and no HTTP.

use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tailwater_analysis::model::{
    EdgeInfo, EntityId, HostWindow, Input, ListenerInfo, ListenerWindow, WINDOW_NS, WindowIndex,
    WorkloadInfo, WorkloadWindow,
};

/// One host's windows and names.
#[derive(Debug, Default)]
struct HostSeries {
    windows: BTreeMap<u64, Arc<HostWindow>>,
    workloads: BTreeMap<EntityId, WorkloadInfo>,
    listeners: BTreeMap<EntityId, ListenerInfo>,
    edges: BTreeMap<EntityId, EdgeInfo>,
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

/// Metrics that can be asked for, with what they are.
pub const METRICS: &[(&str, &str)] = &[
    ("cpu_busy_ratio", "CPU used, of what the workload (its quota) or the host may use"),
    ("cpu_steal_ratio", "CPU taken by the hypervisor, of the host's capacity"),
    ("cpu_throttled_ratio", "part of the window throttled by a quota"),
    ("run_queue_wait_tasks", "mean tasks that waited for a CPU"),
    ("blocked_io_tasks", "mean tasks blocked on block I/O"),
    ("memory_stall_tasks", "mean tasks in reclaim or dirty throttling"),
    ("io_bytes", "bytes submitted to block devices"),
    ("queued_requests", "requests in flight, unread, and connections in the accept queue, at the most"),
    ("accept_queue_depth", "connections in the accept queue, at the most"),
    ("accept_queue_limit", "the accept queue's limit"),
    ("workers_busy", "threads with a request, at the most"),
    ("drops", "dropped packets, the kernel's count"),
    ("requests_received", "requests received"),
    ("requests_answered", "requests answered"),
    ("response_time_ms", "mean response time of the requests answered"),
    ("calls_in_flight", "outbound calls in flight, at the most"),
    ("connections_open", "outbound connections, at the most"),
    ("syn_retransmits", "SYNs sent again"),
];

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

fn size_of(w: &HostWindow) -> usize {
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

    /// Takes what the pipeline is about to get.
    pub fn saw(&mut self, input: &Input) {
        match input {
            Input::Window(window) => self.window(window),
            Input::Entities { host, workloads, listeners, edges, .. } => {
                let names = self.hosts.entry(host.clone()).or_default();
                names.workloads.extend(workloads.iter().map(|w| (w.id, w.clone())));
                names.listeners.extend(listeners.iter().map(|l| (l.id, l.clone())));
                names.edges.extend(edges.iter().map(|e| (e.id, e.clone())));
                names.forget();
            }
            Input::Host(info) => {
                self.hosts.entry(info.host.clone()).or_default().addresses.clone_from(&info.addresses);
            }
            Input::Drop(_) | Input::Tick { .. } => {}
        }
    }

    fn window(&mut self, window: &HostWindow) {
        let (size, index) = (size_of(window), window.index.0);
        let host = self.hosts.entry(window.host.clone()).or_default();
        if host.windows.insert(index, Arc::new(window.clone())).is_none() {
            self.order.push_back((window.host.clone(), index, size));
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
        let Some(host) = self.hosts.get(query.host) else {
            return vec![None; usize::try_from(count).unwrap_or(0)];
        };
        let selected = host.select(query);
        (first.0..first.0.saturating_add(count))
            .map(|index| host.windows.get(&index).and_then(|window| selected.value(query.metric, window)))
            .collect()
    }

    /// The same, at most `max_points` many.
    #[must_use]
    pub fn points(
        &self,
        query: Query<'_>,
        first: WindowIndex,
        last: WindowIndex,
        max_points: usize,
    ) -> Vec<Point> {
        let values = self.values(query, first, last);
        let step = values.len().div_ceil(max_points.max(1)).max(1);
        let mut points = Vec::new();
        for (n, chunk) in values.chunks(step).enumerate() {
            let there: Vec<f64> = chunk.iter().flatten().copied().collect();
            if there.is_empty() {
                continue;
            }
            points.push(Point {
                start_unix_ns: WindowIndex(first.0 + (n * step) as u64).start_unix_ns(),
                min: there.iter().copied().fold(f64::INFINITY, f64::min),
                max: there.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                mean: there.iter().sum::<f64>() / there.len() as f64,
                windows: u32::try_from(there.len()).unwrap_or(u32::MAX),
            });
        }
        points
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
            let edges: Vec<EntityId> = client.edges.values().filter(leads).map(|e| e.id).collect();
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
        trim(&mut self.workloads);
        trim(&mut self.listeners);
        trim(&mut self.edges);
    }

    fn select(&self, query: Query<'_>) -> Selected {
        let workloads: Vec<EntityId> = self
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
        Selected {
            whole_host: query.workload.is_none(),
            quota_ns: self
                .workloads
                .values()
                .filter(|w| workloads.contains(&w.id))
                .map(|w| w.cpu_quota_ns)
                .max()
                .unwrap_or(0),
            listeners: self.listeners.values().filter(listens).map(|l| l.id).collect(),
            edges: self.edges.values().filter(|e| owned(&e.workload)).map(|e| e.id).collect(),
            workloads,
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

struct Selected {
    whole_host: bool,
    quota_ns: u64,
    workloads: Vec<EntityId>,
    listeners: Vec<EntityId>,
    edges: Vec<EntityId>,
}

impl Selected {
    fn value(&self, metric: &str, w: &HostWindow) -> Option<f64> {
        let window_ns = WINDOW_NS as f64;
        let work = |f: fn(&WorkloadWindow) -> u64| -> f64 {
            if self.whole_host {
                return w.workloads.values().map(f).sum::<u64>() as f64;
            }
            self.workloads.iter().filter_map(|id| w.workloads.get(id)).map(f).sum::<u64>() as f64
        };
        let listen = |f: fn(&ListenerWindow) -> u64| -> f64 {
            self.listeners.iter().filter_map(|id| w.listeners.get(id)).map(f).sum::<u64>() as f64
        };
        let edge = |f: fn(&tailwater_analysis::model::EdgeWindow) -> u64| -> f64 {
            self.edges.iter().filter_map(|id| w.edges.get(id)).map(f).sum::<u64>() as f64
        };
        let value = match metric {
            "cpu_busy_ratio" => {
                let cpu = w.cpu?;
                let host = cpu.capacity_ns.max(1);
                if self.whole_host {
                    cpu.busy_ns as f64 / host as f64
                } else {
                    let capacity = if self.quota_ns > 0 { self.quota_ns.min(host) } else { host };
                    work(|w| w.busy_ns) / capacity as f64
                }
            }
            "cpu_steal_ratio" => w.cpu.map(|cpu| cpu.steal_ns as f64 / cpu.capacity_ns.max(1) as f64)?,
            "cpu_throttled_ratio" if self.whole_host => w.cpu?.throttled_ns? as f64 / window_ns,
            "cpu_throttled_ratio" => {
                let known = self.workloads.iter().filter_map(|id| w.workloads.get(id)?.throttled_ns).max()?;
                known as f64 / window_ns
            }
            "run_queue_wait_tasks" => work(|w| w.wait_ns) / window_ns,
            "blocked_io_tasks" => work(|w| w.blocked_io_ns) / window_ns,
            "memory_stall_tasks" => work(|w| w.reclaim_ns + w.dirty_throttle_ns) / window_ns,
            "io_bytes" => work(|w| w.io_bytes),
            "queued_requests" => {
                listen(|l| u64::from(l.in_flight_max) + u64::from(l.unread_max) + u64::from(l.depth_max))
            }
            "accept_queue_depth" => listen(|l| l.depth_max.into()),
            "accept_queue_limit" => listen(|l| l.limit.into()),
            "workers_busy" => listen(|l| l.workers_busy_max.into()),
            "drops" => listen(|l| l.drops),
            "requests_received" => listen(|l| l.received),
            "requests_answered" => listen(|l| l.answered),
            "response_time_ms" => {
                let answered = listen(|l| l.answered);
                if answered == 0.0 {
                    return None;
                }
                listen(|l| l.response_ns) / answered / 1e6
            }
            "calls_in_flight" => edge(|e| e.in_flight_max.into()),
            "connections_open" => edge(|e| e.open_max.into()),
            "syn_retransmits" => edge(|e| e.syn_retransmits),
            _ => return None,
        };
        Some(value)
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;

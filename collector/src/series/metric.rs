//! What the name of each metric means: in words, in columns of a segment, in signals without which it is unknown, and as a value of a
//! window. One table, so that what is read from disk is what was in memory.

use super::Selected;
use crate::store::Kind;
use tailwater_analysis::model::{
    DeviceWindow, EdgeWindow, HostWindow, ListenerWindow, Uncovered, WINDOW_NS, WorkloadWindow,
};

/// A metric of a host, a workload or a listener.
#[derive(Debug)]
pub struct Metric {
    /// In the API.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Signals without any of which it is unknown.
    signals: &'static [&'static str],
    /// The columns of a segment's files that it is computed from.
    pub columns: &'static [(Kind, &'static [&'static str])],
    value: fn(&Selected, &HostWindow) -> Option<f64>,
}

const fn metric(
    name: &'static str,
    about: &'static str,
    signals: &'static [&'static str],
    columns: &'static [(Kind, &'static [&'static str])],
    value: fn(&Selected, &HostWindow) -> Option<f64>,
) -> Metric {
    Metric { name, about, signals, columns, value }
}

/// Tasks at a time, from the time of all of them.
const WINDOW: f64 = WINDOW_NS as f64;

/// Metrics that can be asked for.
pub static METRICS: &[Metric] = &[
    metric(
        "cpu_busy_ratio",
        "CPU used, of what the workload (its quota) or the host may use",
        &["cpu"],
        &[(Kind::Host, &["capacity_us", "busy_us"]), (Kind::Workload, &["busy_us"])],
        |s, w| {
            let cpu = w.cpu?;
            let host = cpu.capacity_ns.max(1);
            if s.whole_host {
                return Some(cpu.busy_ns as f64 / host as f64);
            }
            let capacity = if s.quota_ns > 0 { s.quota_ns.min(host) } else { host };
            Some(s.work(w, |w| w.busy_ns) / capacity as f64)
        },
    ),
    metric(
        "cpu_steal_ratio",
        "CPU taken by the hypervisor, of the host's capacity",
        &["cpu"],
        &[(Kind::Host, &["capacity_us", "steal_us"])],
        |_, w| w.cpu.map(|cpu| cpu.steal_ns as f64 / cpu.capacity_ns.max(1) as f64),
    ),
    metric(
        "cpu_iowait_ratio",
        "CPU idle while a task waited for I/O, of the host's capacity",
        &["cpu"],
        &[(Kind::Host, &["capacity_us", "iowait_us"])],
        |s, w| w.cpu.filter(|_| s.whole_host).map(|c| c.iowait_ns as f64 / c.capacity_ns.max(1) as f64),
    ),
    metric(
        "cpu_throttled_ratio",
        "part of the window throttled by a quota",
        &["throttling"],
        &[(Kind::Host, &["throttled_us"]), (Kind::Workload, &["throttled_us"])],
        |s, w| {
            let known = if s.whole_host {
                w.cpu?.throttled_ns?
            } else {
                s.workloads.iter().filter_map(|id| w.workloads.get(id)?.throttled_ns).max()?
            };
            Some(known as f64 / WINDOW)
        },
    ),
    metric(
        "run_queue_wait_tasks",
        "mean tasks that waited for a CPU",
        &["run_queue"],
        &[(Kind::Workload, &["wait_us"])],
        |s, w| Some(s.work(w, |w| w.wait_ns) / WINDOW),
    ),
    metric(
        "run_queue_wait_max_ms",
        "longest wait for a CPU that ended",
        &["run_queue"],
        &[(Kind::Workload, &["wait_max_us"])],
        |s, w| Some(s.work_max(w, |w| w.wait_max_ns) / 1e6),
    ),
    metric(
        "blocked_io_tasks",
        "mean tasks blocked on block I/O",
        &["block_io"],
        &[(Kind::Workload, &["blocked_io_us"])],
        |s, w| Some(s.work(w, |w| w.blocked_io_ns) / WINDOW),
    ),
    metric(
        "memory_stall_tasks",
        "mean tasks in reclaim or dirty throttling",
        &["memory"],
        &[(Kind::Workload, &["reclaim_us", "dirty_throttle_us"])],
        |s, w| Some(s.work(w, |w| w.reclaim_ns + w.dirty_throttle_ns) / WINDOW),
    ),
    metric(
        "swap_ins",
        "pages read back from swap",
        &["memory"],
        &[(Kind::Workload, &["swap_ins"])],
        |s, w| Some(s.work(w, |w| w.swap_ins)),
    ),
    metric(
        "io_bytes",
        "bytes submitted to block devices",
        &["block_io"],
        &[(Kind::Workload, &["io_bytes"])],
        |s, w| Some(s.work(w, |w| w.io_bytes)),
    ),
    metric(
        "io_flushes",
        "flushes submitted to block devices",
        &["block_io"],
        &[(Kind::Workload, &["io_flushes"])],
        |s, w| Some(s.work(w, |w| w.io_flushes)),
    ),
    metric(
        "device_in_flight",
        "mean requests at the host's block devices",
        &["block_io"],
        &[(Kind::Device, &["in_flight_us"])],
        |s, w| s.device(w, |d| d.in_flight_ns).map(|ns| ns / WINDOW),
    ),
    metric(
        "device_latency_ms",
        "mean latency of the requests that the host's block devices completed",
        &["block_io"],
        &[(Kind::Device, &["completed", "latency_us"])],
        |s, w| ratio(s.device(w, |d| d.latency_ns)?, s.device(w, |d| d.completed)?).map(|ns| ns / 1e6),
    ),
    metric(
        "device_latency_max_ms",
        "longest of them",
        &["block_io"],
        &[(Kind::Device, &["completed", "latency_max_us"])],
        |s, w| {
            let longest = w.devices.values().filter(|d| d.completed > 0).map(|d| d.latency_max_ns).max();
            longest.filter(|_| s.whole_host).map(|ns| ns as f64 / 1e6)
        },
    ),
    metric(
        "queued_requests",
        "requests in flight, unread, and connections in the accept queue, at the most",
        &["accept_queue", "requests"],
        &[(Kind::Listener, &["in_flight_max", "unread_max", "depth_max"])],
        |s, w| {
            let queued = |l: &ListenerWindow| {
                u64::from(l.in_flight_max) + u64::from(l.unread_max) + u64::from(l.depth_max)
            };
            Some(s.listen(w, queued))
        },
    ),
    metric(
        "accept_queue_depth",
        "connections in the accept queue, at the most",
        &["accept_queue"],
        &[(Kind::Listener, &["depth_max"])],
        |s, w| Some(s.listen(w, |l| l.depth_max.into())),
    ),
    metric(
        "accept_queue_limit",
        "the accept queue's limit",
        &["accept_queue"],
        &[(Kind::Listener, &["limit"])],
        |s, w| Some(s.listen(w, |l| l.limit.into())),
    ),
    metric(
        "accept_queue_wait_ms",
        "longest wait in the accept queue that ended",
        &["accept_queue"],
        &[(Kind::Listener, &["queue_wait_max_us"])],
        |s, w| Some(s.listen_max(w, |l| l.queue_wait_max_ns) / 1e6),
    ),
    metric(
        "connections_arrived",
        "connections that entered the accept queue",
        &["accept_queue"],
        &[(Kind::Listener, &["arrivals"])],
        |s, w| Some(s.listen(w, |l| l.arrivals)),
    ),
    metric(
        "connections_accepted",
        "connections accepted",
        &["accept_queue"],
        &[(Kind::Listener, &["accepts"])],
        |s, w| Some(s.listen(w, |l| l.accepts)),
    ),
    metric(
        "workers_busy",
        "threads with a request, at the most",
        &["requests"],
        &[(Kind::Listener, &["workers_busy_max"])],
        |s, w| Some(s.listen(w, |l| l.workers_busy_max.into())),
    ),
    metric(
        "drops",
        "dropped packets, the kernel's count",
        &["accept_queue"],
        &[(Kind::Listener, &["drops"])],
        |s, w| Some(s.listen(w, |l| l.drops)),
    ),
    metric(
        "syn_ack_retransmits",
        "SYN-ACKs sent again",
        &["accept_queue"],
        &[(Kind::Listener, &["syn_ack_retransmits"])],
        |s, w| Some(s.listen(w, |l| l.syn_ack_retransmits)),
    ),
    metric(
        "requests_received",
        "requests received",
        &["requests"],
        &[(Kind::Listener, &["received"])],
        |s, w| Some(s.listen(w, |l| l.received)),
    ),
    metric(
        "requests_answered",
        "requests answered",
        &["requests"],
        &[(Kind::Listener, &["answered"])],
        |s, w| Some(s.listen(w, |l| l.answered)),
    ),
    metric(
        "requests_aborted",
        "requests whose connection ended without an answer",
        &["requests"],
        &[(Kind::Listener, &["aborted"])],
        |s, w| Some(s.listen(w, |l| l.aborted)),
    ),
    metric(
        "response_time_ms",
        "mean response time of the requests answered",
        &["requests"],
        &[(Kind::Listener, &["answered", "response_us"])],
        |s, w| ratio(s.listen(w, |l| l.response_ns), s.listen(w, |l| l.answered)).map(|ns| ns / 1e6),
    ),
    metric(
        "response_time_max_ms",
        "longest of them",
        &["requests"],
        &[(Kind::Listener, &["answered", "response_max_us"])],
        |s, w| {
            let answered = s.listen(w, |l| l.answered);
            (answered > 0.0).then(|| s.listen_max(w, |l| l.response_max_ns) / 1e6)
        },
    ),
    metric(
        "calls_in_flight",
        "outbound calls in flight, at the most",
        &["calls"],
        &[(Kind::Edge, &["in_flight_max"])],
        |s, w| Some(s.edge(w, |e| e.in_flight_max.into())),
    ),
    metric(
        "connections_open",
        "outbound connections, at the most",
        &["calls"],
        &[(Kind::Edge, &["open_max"])],
        |s, w| Some(s.edge(w, |e| e.open_max.into())),
    ),
    metric(
        "calls_answered",
        "outbound calls answered",
        &["calls"],
        &[(Kind::Edge, &["answered"])],
        |s, w| Some(s.edge(w, |e| e.answered)),
    ),
    metric(
        "call_time_ms",
        "mean response time of the outbound calls answered",
        &["calls"],
        &[(Kind::Edge, &["answered", "response_us"])],
        |s, w| ratio(s.edge(w, |e| e.response_ns), s.edge(w, |e| e.answered)).map(|ns| ns / 1e6),
    ),
    metric(
        "call_time_max_ms",
        "longest of them",
        &["calls"],
        &[(Kind::Edge, &["answered", "response_max_us"])],
        |s, w| {
            let answered = s.edge(w, |e| e.answered);
            (answered > 0.0).then(|| s.edge_max(w, |e| e.response_max_ns) / 1e6)
        },
    ),
    metric(
        "syn_retransmits",
        "SYNs sent again",
        &["retransmits"],
        &[(Kind::Edge, &["syn_retransmits"])],
        |s, w| Some(s.edge(w, |e| e.syn_retransmits)),
    ),
    metric(
        "data_retransmits",
        "segments of outbound connections sent again",
        &["retransmits"],
        &[(Kind::Edge, &["data_retransmits"])],
        |s, w| Some(s.edge(w, |e| e.data_retransmits)),
    ),
];

/// The metric of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

fn ratio(sum: f64, count: f64) -> Option<f64> {
    (count > 0.0).then_some(sum / count)
}

impl Metric {
    /// Signals without any of which it is unknown.
    pub(super) fn needs(&self) -> Uncovered {
        Uncovered::of(self.signals.iter().copied())
    }

    /// `None`: not covered, or there is nothing that it could be of.
    pub(super) fn value(&self, of: &Selected, w: &HostWindow) -> Option<f64> {
        (self.value)(of, w)
    }
}

impl Selected {
    fn work(&self, w: &HostWindow, f: fn(&WorkloadWindow) -> u64) -> f64 {
        if self.whole_host {
            return w.workloads.values().map(f).sum::<u64>() as f64;
        }
        self.workloads.iter().filter_map(|id| w.workloads.get(id)).map(f).sum::<u64>() as f64
    }

    fn work_max(&self, w: &HostWindow, f: fn(&WorkloadWindow) -> u64) -> f64 {
        let longest = if self.whole_host {
            w.workloads.values().map(f).max()
        } else {
            self.workloads.iter().filter_map(|id| w.workloads.get(id)).map(f).max()
        };
        longest.unwrap_or(0) as f64
    }

    fn listeners<'a>(&'a self, w: &'a HostWindow) -> impl Iterator<Item = &'a ListenerWindow> {
        self.listeners.iter().filter_map(|id| w.listeners.get(id))
    }

    fn listen(&self, w: &HostWindow, f: fn(&ListenerWindow) -> u64) -> f64 {
        self.listeners(w).map(f).sum::<u64>() as f64
    }

    fn listen_max(&self, w: &HostWindow, f: fn(&ListenerWindow) -> u64) -> f64 {
        self.listeners(w).map(f).max().unwrap_or(0) as f64
    }

    fn edge(&self, w: &HostWindow, f: fn(&EdgeWindow) -> u64) -> f64 {
        self.edges.iter().filter_map(|id| w.edges.get(id)).map(f).sum::<u64>() as f64
    }

    fn edge_max(&self, w: &HostWindow, f: fn(&EdgeWindow) -> u64) -> f64 {
        self.edges.iter().filter_map(|id| w.edges.get(id)).map(f).max().unwrap_or(0) as f64
    }

    /// Devices serve the host; which part of them a workload had, they do not know.
    fn device(&self, w: &HostWindow, f: fn(&DeviceWindow) -> u64) -> Option<f64> {
        self.whole_host.then(|| w.devices.values().map(f).sum::<u64>() as f64)
    }
}

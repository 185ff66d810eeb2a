//! What the name of each metric means: in words, in columns of a segment, in signals without which it is unknown, and as a value of a
//! window. One table, so that what is read from disk is what was in memory. Those who show metrics ask it what each needs; the page has
//! its names and needs in `web/src/metrics.ts`, which is written from here (`tests/metric_homes.rs`).

use super::view::View;
use crate::columns::Kind;
use tailwater_model::window::{SignalSet, WINDOW_NS};

/// A metric of a host, a workload or a listener.
#[derive(Debug)]
pub struct Metric {
    /// In the API.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Signals without any of which it is unknown.
    pub signals: &'static [&'static str],
    /// Polling does not tell it: where one of its signals is polled, it is unknown, too.
    pub only_hooks: bool,
    /// The columns of a segment's files that it is computed from.
    pub columns: &'static [(Kind, &'static [&'static str])],
    value: fn(&View<'_>) -> Option<f64>,
}

const fn metric(
    name: &'static str,
    about: &'static str,
    signals: &'static [&'static str],
    columns: &'static [(Kind, &'static [&'static str])],
    value: fn(&View<'_>) -> Option<f64>,
) -> Metric {
    Metric { name, about, signals, only_hooks: false, columns, value }
}

impl Metric {
    /// What polling does not tell.
    const fn by_hooks(mut self) -> Self {
        self.only_hooks = true;
        self
    }
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
        |v| {
            let cpu = v.window.cpu?;
            let host = cpu.capacity_ns.max(1);
            if v.of.whole_host {
                return Some(cpu.busy_ns as f64 / host as f64);
            }
            let capacity = if v.of.quota_ns > 0 { v.of.quota_ns.min(host) } else { host };
            Some(v.work.busy_ns as f64 / capacity as f64)
        },
    ),
    metric(
        "cpu_steal_ratio",
        "CPU taken by the hypervisor, of the host's capacity",
        &["cpu"],
        &[(Kind::Host, &["capacity_us", "steal_us"])],
        |v| v.window.cpu.map(|cpu| cpu.steal_ns as f64 / cpu.capacity_ns.max(1) as f64),
    ),
    metric(
        "cpu_iowait_ratio",
        "CPU idle while a task waited for I/O, of the host's capacity",
        &["cpu"],
        &[(Kind::Host, &["capacity_us", "iowait_us"])],
        |v| {
            let cpu = v.window.cpu.filter(|_| v.of.whole_host)?;
            Some(cpu.iowait_ns as f64 / cpu.capacity_ns.max(1) as f64)
        },
    ),
    metric(
        "cpu_throttled_ratio",
        "part of the window throttled by a quota",
        &["throttling"],
        &[(Kind::Host, &["throttled_us"]), (Kind::Workload, &["throttled_us"])],
        |v| {
            let known = if v.of.whole_host { v.window.cpu?.throttled_ns? } else { v.work.throttled_ns? };
            Some(known as f64 / WINDOW)
        },
    ),
    metric(
        "run_queue_wait_tasks",
        "mean tasks that waited for a CPU",
        &["run_queue"],
        &[(Kind::Workload, &["wait_us"])],
        |v| Some(v.work.wait_ns as f64 / WINDOW),
    ),
    metric(
        "run_queue_wait_max_ms",
        "longest wait for a CPU that ended",
        &["run_queue"],
        &[(Kind::Workload, &["wait_max_us"])],
        |v| Some(v.work.wait_max_ns as f64 / 1e6),
    )
    .by_hooks(),
    metric(
        "blocked_io_tasks",
        "mean tasks blocked on block I/O",
        &["block_io"],
        &[(Kind::Workload, &["blocked_io_us"])],
        |v| Some(v.work.blocked_io_ns as f64 / WINDOW),
    ),
    metric(
        "stopped_threads",
        "mean threads that a signal or a tracer stopped",
        &["cpu"],
        &[(Kind::Workload, &["stopped_us"])],
        |v| {
            // Who has a row in a window is told of whether its threads stood; agents of before tell nobody.
            let told = v.window.workloads.values().any(|w| w.stopped_ns.is_some());
            told.then(|| v.work.stopped_ns.unwrap_or(0) as f64 / WINDOW)
        },
    )
    .by_hooks(),
    metric(
        "memory_stall_tasks",
        "mean tasks in reclaim or dirty throttling",
        &["memory"],
        &[(Kind::Workload, &["reclaim_us", "dirty_throttle_us"])],
        |v| Some(v.work.reclaim_ns.saturating_add(v.work.dirty_throttle_ns) as f64 / WINDOW),
    ),
    metric("swap_ins", "pages read back from swap", &["memory"], &[(Kind::Workload, &["swap_ins"])], |v| {
        Some(v.work.swap_ins as f64)
    })
    .by_hooks(),
    metric(
        "io_bytes",
        "bytes submitted to block devices",
        &["block_io"],
        &[(Kind::Workload, &["io_bytes"])],
        |v| Some(v.work.io_bytes as f64),
    )
    .by_hooks(),
    metric(
        "io_flushes",
        "flushes submitted to block devices",
        &["block_io"],
        &[(Kind::Workload, &["io_flushes"])],
        |v| Some(v.work.io_flushes as f64),
    )
    .by_hooks(),
    metric(
        "device_in_flight",
        "mean requests at the host's block devices",
        &["block_io"],
        &[(Kind::Device, &["in_flight_us"])],
        |v| v.of.whole_host.then_some(v.device.in_flight_ns as f64 / WINDOW),
    ),
    metric(
        "device_latency_ms",
        "mean latency of the requests that the host's block devices completed",
        &["block_io"],
        &[(Kind::Device, &["completed", "latency_us"])],
        |v| mean_ms(v.device.latency_ns, v.device.completed).filter(|_| v.of.whole_host),
    ),
    metric(
        "device_latency_max_ms",
        "longest of them",
        &["block_io"],
        &[(Kind::Device, &["completed", "latency_max_us"])],
        |v| {
            let any = v.of.whole_host && v.device.completed > 0;
            any.then_some(v.device.latency_max_ns as f64 / 1e6)
        },
    )
    .by_hooks(),
    metric(
        "queued_requests",
        "requests in flight, unread, and connections in the accept queue, at the most",
        &["accept_queue", "requests"],
        &[(
            Kind::Listener,
            &["in_flight_max", "unread_max", "depth_max", "received", "pieces_in", "multiplexed_connections"],
        )],
        |v| {
            let of = v.listen.turns()?;
            Some(f64::from(of.in_flight_max) + f64::from(of.unread_max) + f64::from(of.depth_max))
        },
    ),
    metric(
        "accept_queue_depth",
        "connections in the accept queue, at the most",
        &["accept_queue"],
        &[(Kind::Listener, &["depth_max"])],
        |v| Some(v.listen.depth_max.into()),
    ),
    metric(
        "accept_queue_limit",
        "the accept queue's limit",
        &["accept_queue"],
        &[(Kind::Listener, &["limit"])],
        |v| Some(v.listen.limit.into()),
    ),
    metric(
        "accept_queue_wait_ms",
        "longest wait in the accept queue that ended",
        &["accept_queue"],
        &[(Kind::Listener, &["queue_wait_max_us"])],
        |v| Some(v.listen.queue_wait_max_ns as f64 / 1e6),
    )
    .by_hooks(),
    metric(
        "connections_arrived",
        "connections that entered the accept queue",
        &["accept_queue"],
        &[(Kind::Listener, &["arrivals"])],
        |v| Some(v.listen.arrivals as f64),
    )
    .by_hooks(),
    metric(
        "connections_accepted",
        "connections accepted",
        &["accept_queue"],
        &[(Kind::Listener, &["accepts"])],
        |v| Some(v.listen.accepts as f64),
    )
    .by_hooks(),
    metric(
        "workers_busy",
        "threads with a request, at the most",
        &["requests"],
        &[(Kind::Listener, &["workers_busy_max", "received", "pieces_in", "multiplexed_connections"])],
        |v| Some(v.listen.turns()?.workers_busy_max.into()),
    ),
    metric(
        "drops",
        "dropped packets, the kernel's count",
        &["accept_queue"],
        &[(Kind::Listener, &["drops"])],
        |v| Some(v.listen.drops as f64),
    ),
    metric(
        "syn_ack_retransmits",
        "SYN-ACKs sent again",
        &["accept_queue"],
        &[(Kind::Listener, &["syn_ack_retransmits"])],
        |v| Some(v.listen.syn_ack_retransmits as f64),
    )
    .by_hooks(),
    metric(
        "requests_received",
        "requests received",
        &["requests"],
        &[(Kind::Listener, &["received", "pieces_in", "multiplexed_connections"])],
        |v| Some(v.listen.turns()?.received as f64),
    ),
    metric(
        "requests_answered",
        "requests answered",
        &["requests"],
        &[(Kind::Listener, &["answered", "received", "pieces_in", "multiplexed_connections"])],
        |v| Some(v.listen.turns()?.answered as f64),
    ),
    metric(
        "requests_aborted",
        "requests whose connection ended without an answer",
        &["requests"],
        &[(Kind::Listener, &["aborted", "received", "pieces_in", "multiplexed_connections"])],
        |v| Some(v.listen.turns()?.aborted as f64),
    ),
    metric(
        "requests_in_time",
        "requests answered in time: from their first byte to the last one of the answer within the agent's `late_ms`; below zero where an answer that began before ends late",
        &["requests"],
        &[(Kind::Listener, &["answered", "late", "received", "pieces_in", "multiplexed_connections"])],
        |v| {
            let of = v.listen.turns()?;
            // Signed, so that the sum over windows is that of the answers in time.
            Some(of.answered as f64 - of.late? as f64)
        },
    ),
    metric(
        "requests_late",
        "requests whose answer took longer than that",
        &["requests"],
        &[(Kind::Listener, &["late", "received", "pieces_in", "multiplexed_connections"])],
        |v| Some(v.listen.turns()?.late? as f64),
    ),
    metric(
        "requests_very_late",
        "of those, longer than `very_late_ms`",
        &["requests"],
        &[(Kind::Listener, &["very_late", "received", "pieces_in", "multiplexed_connections"])],
        |v| Some(v.listen.turns()?.very_late? as f64),
    ),
    metric(
        "response_time_ms",
        "mean response time of the requests answered",
        &["requests"],
        &[(Kind::Listener, &["answered", "response_us", "received", "pieces_in", "multiplexed_connections"])],
        |v| v.listen.turns().and_then(|l| mean_ms(l.response_ns, l.answered)),
    ),
    metric(
        "response_time_max_ms",
        "longest of them",
        &["requests"],
        &[(
            Kind::Listener,
            &["answered", "response_max_us", "received", "pieces_in", "multiplexed_connections"],
        )],
        |v| v.listen.turns().filter(|l| l.answered > 0).map(|l| l.response_max_ns as f64 / 1e6),
    ),
    metric(
        "multiplexed_connections",
        "connections with several exchanges at once: requests on them are not known",
        &["requests"],
        &[(Kind::Listener, &["multiplexed_connections"])],
        |v| Some(v.listen.multiplexed_connections.into()),
    ),
    metric(
        "multiplexed_bytes_in",
        "bytes that came on such connections",
        &["requests"],
        &[(Kind::Listener, &["multiplexed_bytes_in"])],
        |v| Some(v.listen.multiplexed_bytes_in as f64),
    ),
    metric(
        "multiplexed_bytes_out",
        "bytes written to them",
        &["requests"],
        &[(Kind::Listener, &["multiplexed_bytes_out"])],
        |v| Some(v.listen.multiplexed_bytes_out as f64),
    ),
    metric(
        "unanswered_pieces",
        "segments that came on them since there was an answer of any kind on their connection, at the most",
        &["requests"],
        &[(Kind::Listener, &["unanswered_max"])],
        |v| Some(v.listen.unanswered_max.into()),
    ),
    metric(
        "calls_in_flight",
        "outbound calls in flight, at the most",
        &["calls"],
        &[(Kind::Edge, &["in_flight_max", "started", "pieces_out", "multiplexed_connections"])],
        |v| Some(v.edge.turns()?.in_flight_max.into()),
    ),
    metric(
        "connections_open",
        "outbound connections, at the most",
        &["calls"],
        &[(Kind::Edge, &["open_max"])],
        |v| Some(v.edge.open_max.into()),
    ),
    metric(
        "calls_answered",
        "outbound calls answered",
        &["calls"],
        &[(Kind::Edge, &["answered", "started", "pieces_out", "multiplexed_connections"])],
        |v| Some(v.edge.turns()?.answered as f64),
    ),
    metric(
        "call_time_ms",
        "mean response time of the outbound calls answered",
        &["calls"],
        &[(Kind::Edge, &["answered", "response_us", "started", "pieces_out", "multiplexed_connections"])],
        |v| v.edge.turns().and_then(|e| mean_ms(e.response_ns, e.answered)),
    ),
    metric(
        "call_time_max_ms",
        "longest of them",
        &["calls"],
        &[(Kind::Edge, &["answered", "response_max_us", "started", "pieces_out", "multiplexed_connections"])],
        |v| v.edge.turns().filter(|e| e.answered > 0).map(|e| e.response_max_ns as f64 / 1e6),
    ),
    metric(
        "syn_retransmits",
        "SYNs sent again",
        &["retransmits"],
        &[(Kind::Edge, &["syn_retransmits"])],
        |v| Some(v.edge.syn_retransmits as f64),
    ),
    metric(
        "data_retransmits",
        "segments of outbound connections sent again",
        &["retransmits"],
        &[(Kind::Edge, &["data_retransmits"])],
        |v| Some(v.edge.data_retransmits as f64),
    ),
];

/// The metric of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

fn mean_ms(sum_ns: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum_ns as f64 / count as f64 / 1e6)
}

impl Metric {
    /// What of a window it is computed from.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> + use<> {
        self.columns.iter().map(|(kind, _)| *kind)
    }

    /// Signals without any of which it is unknown.
    pub(super) fn needs(&self) -> SignalSet {
        SignalSet::of(self.signals.iter().copied())
    }

    /// Signals that must not be polled.
    pub(super) fn needs_hooks(&self) -> SignalSet {
        if self.only_hooks { self.needs() } else { SignalSet::default() }
    }

    /// `None`: there is nothing that it could be of.
    pub(super) fn value(&self, of: &View<'_>) -> Option<f64> {
        (self.value)(of)
    }
}

//! The signals, as data. collector/docs/metrics.md is generated from this table.

use super::{Combine, Form, Parts, Read, Signal};
use tailwater_model::window::{Coverage, WINDOW_NS};

fn some(value: impl Into<f64>) -> Parts {
    Some((value.into(), 1.0))
}
fn sum(value: u64) -> Parts {
    Some((value as f64, 1.0))
}
/// An integral over a window as its time-weighted mean.
fn time_mean(ns: u64) -> Parts {
    Some((ns as f64 / WINDOW_NS as f64, 1.0))
}
fn part(ns: u64, of_ns: f64) -> Parts {
    (of_ns > 0.0).then(|| (ns as f64 / of_ns, 1.0))
}
fn mean_s(sum_ns: u64, count: u64) -> Parts {
    (count > 0).then(|| (sum_ns as f64 / 1e9, count as f64))
}

const fn signal(
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    source: &'static str,
    read: Read,
    covered: fn(&Coverage) -> bool,
) -> Signal {
    Signal {
        name,
        unit,
        about,
        source,
        form: Form::Level,
        read,
        mean: None,
        combine: Combine::Sum,
        label: None,
        covered,
    }
}

impl Signal {
    const fn counter(mut self) -> Self {
        self.form = Form::Counter;
        self
    }
    const fn limit(mut self) -> Self {
        self.form = Form::Limit;
        self
    }
    const fn mean(mut self, read: Read) -> Self {
        self.mean = Some(read);
        self
    }
    const fn quotient(mut self) -> Self {
        self.combine = Combine::Quotient;
        self
    }
    const fn highest(mut self) -> Self {
        self.combine = Combine::Highest;
        self
    }
    const fn label(mut self, name: &'static str, value: &'static str) -> Self {
        self.label = Some((name, value));
        self
    }
}

/// All signals; those of one name stand together.
pub static SIGNALS: &[Signal] = &[
    signal(
        "cpu_busy_ratio",
        "ratio",
        "CPU used, of what the host or scope may use.",
        "sched_switch",
        Read::Host(|w| part(w.busy_ns, w.capacity_ns as f64)),
        |c| c.cpu,
    ),
    signal(
        "cpu_steal_ratio",
        "ratio",
        "CPU taken by the hypervisor, of the host's capacity.",
        "run queue's steal time",
        Read::Host(|w| part(w.steal_ns, w.capacity_ns as f64)),
        |c| c.cpu,
    ),
    signal(
        "cpu_throttled_ratio",
        "ratio",
        "Part of the time that the host's scope was throttled by its quota.",
        "cpu.stat",
        Read::Host(|w| part(w.throttled_ns?, WINDOW_NS as f64)),
        |c| c.throttling,
    ),
    signal(
        "run_queue_wait_tasks",
        "tasks",
        "Mean tasks that waited for a CPU, all workloads.",
        "sched_wakeup, sched_switch",
        Read::Host(|w| time_mean(w.wait_ns)),
        |c| c.run_queue,
    ),
    signal(
        "workload_cpu_busy_ratio",
        "ratio",
        "CPU used, of what the workload's quota, else its host, allows.",
        "sched_switch",
        Read::Workload(|w, capacity_ns| part(w.busy_ns, capacity_ns)),
        |c| c.cpu,
    ),
    signal(
        "workload_cpu_throttled_ratio",
        "ratio",
        "Part of the time that the workload was throttled by its quota.",
        "cpu.stat",
        Read::Workload(|w, _| part(w.throttled_ns?, WINDOW_NS as f64)),
        |c| c.throttling,
    ),
    signal(
        "workload_run_queue_wait_tasks",
        "tasks",
        "Mean tasks of the workload that waited for a CPU.",
        "sched_wakeup, sched_switch",
        Read::Workload(|w, _| time_mean(w.wait_ns)),
        |c| c.run_queue,
    ),
    signal(
        "workload_blocked_io_tasks",
        "tasks",
        "Mean tasks of the workload blocked on block I/O.",
        "sched_switch out of D state",
        Read::Workload(|w, _| time_mean(w.blocked_io_ns)),
        |c| c.block_io,
    ),
    signal(
        "workload_stopped_threads",
        "threads",
        "Mean threads of the workload that a signal (SIGSTOP) or a tracer stopped.",
        "sched_switch out of a stopped state",
        Read::Server(|w| time_mean(w.stopped_ns?)),
        |c| c.cpu && !c.sampled.has("cpu"),
    ),
    signal(
        "workload_memory_stall_tasks",
        "tasks",
        "Mean tasks of the workload in direct reclaim or dirty throttling.",
        "vmscan, writeback",
        Read::Workload(|w, _| time_mean(w.reclaim_ns + w.dirty_throttle_ns)),
        |c| c.memory,
    ),
    signal(
        "workload_io_bytes",
        "bytes",
        "Bytes that the workload submitted to block devices.",
        "block_rq_issue",
        Read::Workload(|w, _| sum(w.io_bytes)),
        |c| c.block_io && !c.sampled.has("block_io"),
    )
    .counter(),
    signal(
        "accept_queue_depth",
        "connections",
        "Connections in the accept queue.",
        "the listener's sk_ack_backlog",
        Read::Listener(|w| some(w.depth_max)),
        |c| c.accept_queue,
    )
    .mean(Read::Listener(|w| time_mean(w.depth_ns))),
    signal(
        "accept_queue_limit",
        "connections",
        "Limit of the accept queue; the kernel holds one more.",
        "the listener's sk_max_ack_backlog",
        Read::Listener(|w| some(w.limit)),
        |c| c.accept_queue,
    )
    .limit(),
    // Of a listener that is polled all are told as SYNs: its counters do not tell them apart.
    signal(
        "listen_drops",
        "packets",
        "Packets that the listener dropped: connections that must try again.",
        "the listener's sk_drops, each packet once",
        Read::Listener(|w| sum(w.drops_syn)),
        |c| c.accept_queue,
    )
    .counter()
    .label("reason", "syn"),
    signal(
        "listen_drops",
        "packets",
        "Packets that the listener dropped: connections that must try again.",
        "the listener's sk_drops, each packet once",
        Read::Listener(|w| sum(w.drops.saturating_sub(w.drops_syn))),
        |c| c.accept_queue && !c.sampled.has("accept_queue"),
    )
    .counter()
    .label("reason", "final_ack"),
    signal(
        "queued_requests",
        "requests",
        "Requests in the tier: in flight, unread, and connections in the accept queue.",
        "socket receive and send, accept queue",
        Read::Listener(|w| {
            let w = w.turns()?;
            some(w.in_flight_max.saturating_add(w.unread_max).saturating_add(w.depth_max))
        }),
        // A part of a sum is not the sum.
        |c| c.requests && c.accept_queue,
    )
    .mean(Read::Listener(|w| {
        let w = w.turns()?;
        time_mean(w.in_flight_ns.saturating_add(w.unread_ns).saturating_add(w.depth_ns))
    })),
    signal(
        "workers_busy",
        "threads",
        "Threads with a request.",
        "socket receive and send",
        Read::Listener(|w| some(w.turns()?.workers_busy_max)),
        |c| c.requests,
    )
    .mean(Read::Listener(|w| time_mean(w.turns()?.workers_busy_ns))),
    signal(
        "workers_seen",
        "threads",
        "Distinct threads that ever read a request of the listener.",
        "socket receive",
        Read::Listener(|w| some(w.workers_seen)),
        |c| c.requests,
    )
    .limit(),
    signal(
        "requests_received",
        "requests",
        "Requests received.",
        "socket receive",
        Read::Listener(|w| sum(w.turns()?.received)),
        |c| c.requests,
    )
    .counter(),
    signal(
        "requests_answered",
        "requests",
        "Requests answered.",
        "socket send",
        Read::Listener(|w| sum(w.turns()?.answered)),
        |c| c.requests,
    )
    .counter(),
    signal(
        "requests_aborted",
        "requests",
        "Requests whose connection ended before they were answered, whoever ended it.",
        "inet_sock_set_state",
        Read::Listener(|w| sum(w.turns()?.aborted)),
        |c| c.requests,
    )
    .counter(),
    signal(
        "requests_late",
        "requests",
        "Requests that took longer than the agent's late_ms, from their first byte to the last one of the answer; absent: not counted.",
        "socket receive to send",
        Read::Listener(|w| sum(w.turns()?.late?)),
        |c| c.requests,
    )
    .counter(),
    signal(
        "requests_very_late",
        "requests",
        "Of those, longer than the agent's very_late_ms.",
        "socket receive to send",
        Read::Listener(|w| sum(w.turns()?.very_late?)),
        |c| c.requests,
    )
    .counter(),
    signal(
        "response_time_seconds",
        "s",
        "Mean response time of the requests answered in a window.",
        "socket receive to send",
        Read::Listener(|w| w.turns().and_then(|w| mean_s(w.response_ns, w.answered))),
        |c| c.requests,
    )
    .quotient(),
    signal(
        "response_time_longest_seconds",
        "s",
        "Longest response time of the requests answered in a window.",
        "socket receive to send",
        Read::Listener(|w| w.turns().filter(|w| w.answered > 0).map(|w| (w.response_max_ns as f64 / 1e9, 1.0))),
        |c| c.requests,
    )
    .highest(),
    signal(
        "multiplexed_connections",
        "connections",
        "Connections with several exchanges at once (HTTP/2, gRPC, WebSocket). Where most of what comes is on such ones, requests, workers and response times are absent.",
        "socket receive and send",
        Read::Listener(|w| some(w.multiplexed_connections)),
        |c| c.requests,
    ),
    signal(
        "multiplexed_received_bytes",
        "bytes",
        "Bytes that came on multiplexed connections.",
        "sk_data_ready",
        Read::Listener(|w| sum(w.multiplexed_bytes_in)),
        |c| c.requests,
    )
    .counter(),
    signal(
        "multiplexed_sent_bytes",
        "bytes",
        "Bytes written to multiplexed connections.",
        "socket send",
        Read::Listener(|w| sum(w.multiplexed_bytes_out)),
        |c| c.requests,
    )
    .counter(),
    signal(
        "unanswered_pieces",
        "segments",
        "Segments that came on multiplexed connections since there was an answer of any kind on their connection.",
        "sk_data_ready, socket send",
        Read::Listener(|w| some(w.unanswered_max)),
        |c| c.requests,
    )
    .mean(Read::Listener(|w| time_mean(w.unanswered_ns))),
    signal(
        "calls_in_flight",
        "calls",
        "Outbound calls in flight.",
        "socket send and receive",
        Read::Call(|w| some(w.turns()?.in_flight_max)),
        |c| c.calls,
    )
    .mean(Read::Call(|w| time_mean(w.turns()?.in_flight_ns))),
    signal(
        "call_connections_open",
        "connections",
        "Outbound connections open.",
        "inet_sock_set_state",
        Read::Call(|w| some(w.open_max)),
        |c| c.calls,
    ),
    signal(
        "calls_answered",
        "calls",
        "Outbound calls answered.",
        "socket receive",
        Read::Call(|w| sum(w.turns()?.answered)),
        |c| c.calls,
    )
    .counter(),
    signal(
        "call_response_time_seconds",
        "s",
        "Mean time of the outbound calls answered in a window.",
        "socket send to receive",
        Read::Call(|w| w.turns().and_then(|w| mean_s(w.response_ns, w.answered))),
        |c| c.calls,
    )
    .quotient(),
    signal(
        "syn_retransmits",
        "packets",
        "SYNs sent again to the remote: connections that wait a second or more.",
        "tcp_retransmit_skb",
        Read::Call(|w| sum(w.syn_retransmits)),
        |c| c.retransmits,
    )
    .counter(),
    signal(
        "device_in_flight",
        "requests",
        "Requests in flight at the block device.",
        "block_rq_issue, block_rq_complete",
        Read::Device(|w| some(w.in_flight_max)),
        |c| c.block_io,
    )
    .mean(Read::Device(|w| time_mean(w.in_flight_ns))),
    signal(
        "device_bytes",
        "bytes",
        "Bytes moved by the block device.",
        "block_rq_complete",
        Read::Device(|w| sum(w.bytes)),
        |c| c.block_io,
    )
    .counter(),
];

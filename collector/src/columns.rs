//! The columns of the Parquet files: for each kind of thing one file of a segment, for each value of the model one column whose
//! name ends in its unit. Owns names, meaning and the way between a row and its numbers; knows no file and no Parquet.

use tailwater_model::window::{
    CulpritResource, DeviceWindow, EdgeWindow, HostCpu, ListenerWindow, WorkloadWindow,
};

/// One file of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One row per window that came: which windows are there, and the host's CPUs.
    Host,
    /// One row per workload and window.
    Workload,
    /// One row per listener and window.
    Listener,
    /// One row per edge (workload and the address it calls) and window.
    Edge,
    /// One row per block device and window.
    Device,
    /// Who used the most of a resource in a window.
    Culprit,
}

impl Kind {
    /// All of them; `Host` last, so that its file's end is the segment's.
    pub const ALL: [Self; 6] =
        [Self::Workload, Self::Listener, Self::Edge, Self::Device, Self::Culprit, Self::Host];

    /// Its file in a segment's folder.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::Host => "host.parquet",
            Self::Workload => "workload.parquet",
            Self::Listener => "listener.parquet",
            Self::Edge => "edge.parquet",
            Self::Device => "device.parquet",
            Self::Culprit => "culprit.parquet",
        }
    }
}

impl Kind {
    /// For the documentation.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Host => {
                "One row per window that came. A window without a row here is missing: nothing is known of it"
            }
            Self::Workload => "One row per workload and window in which something happened",
            Self::Listener => "One row per listener and window in which something happened",
            Self::Edge => {
                "One row per workload, address that it calls, and window in which something happened"
            }
            Self::Device => "One row per block device and window in which something happened",
            Self::Culprit => {
                "Processes that used the most of a resource, in the windows in which it was short"
            }
        }
    }
}

/// What a key or a name is, for the documentation.
pub(crate) fn key_about(name: &str) -> &'static str {
    match name {
        "host" => "the host's name",
        "start" => "start of the window of 50 ms, on the collector's clock",
        "clock_error_us" => "bound of this host's clock error",
        "clock_corrected" => "1: its clock was stepped in this window",
        "uncovered" => {
            "signals that the agent did not measure in this window, separated by spaces; what they would have said is 0 in all files, and unknown"
        }
        "sampled" => {
            "signals that were polled in this window, separated by spaces: peaks between two looks are missed"
        }
        "lost_before" => "windows just before this one that the agent could not read in time",
        "id" => "tells rows of one host apart; holds within one segment only",
        "workload_id" => "`id` of its workload; 0: unknown",
        "workload" => "the workload's name",
        "cgroup" => "its control group",
        "comm" => "the command's name",
        "shares_id" => {
            "a server in a cgroup of several: `id` of that cgroup, whose row has the CPU, I/O and memory of all of them; 0: none"
        }
        "cpu_quota_us" => "CPU time per window that its quota allows; 0: no quota",
        "address" => {
            "listens here; unspecified: on every address; of a Unix socket its path, `@` before an abstract name"
        }
        "port" => "and on this port; 0: a Unix socket",
        "remote_address" => "calls this address, or the Unix socket of this path",
        "remote_port" => "on this port",
        "device" => "the device's name",
        "resource" => "`cpu_us`, `io_blocked_us` or `io_bytes`",
        "pid" => "the process",
        "amount" => "what it used, in the unit that `resource` ends in",
        _ => "",
    }
}

/// A value of a row of the model.
#[derive(Debug)]
pub struct Column<R: 'static> {
    /// Ends in the unit: `_us` for times, which are rounded to microseconds: the nanoseconds below are noise that does not compress.
    /// Sizes are bytes; counts have no unit.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// May be null: not covered.
    pub optional: bool,
    /// Out of the row; `None`: not covered.
    pub get: fn(&R) -> Option<u64>,
    /// Into the row.
    pub set: fn(&mut R, u64),
    /// As the row has it, in the model's own unit.
    pub exact: fn(&R) -> Option<u64>,
    /// The way back.
    pub set_exact: fn(&mut R, u64),
}

/// A field of the model as a number.
trait Cell: Copy {
    const OPTIONAL: bool;
    fn out(self) -> Option<u64>;
    fn of(value: u64) -> Self;
}

impl Cell for u64 {
    const OPTIONAL: bool = false;
    fn out(self) -> Option<u64> {
        Some(self)
    }
    fn of(value: u64) -> Self {
        value
    }
}

impl Cell for u32 {
    const OPTIONAL: bool = false;
    fn out(self) -> Option<u64> {
        Some(self.into())
    }
    fn of(value: u64) -> Self {
        Self::try_from(value).unwrap_or(Self::MAX)
    }
}

impl Cell for Option<u64> {
    const OPTIONAL: bool = true;
    fn out(self) -> Option<u64> {
        self
    }
    fn of(value: u64) -> Self {
        Some(value)
    }
}

fn optional<R, C: Cell>(_: fn(&R) -> C) -> bool {
    C::OPTIONAL
}

macro_rules! columns {
    ($visibility:vis $table:ident: $row:ty { $($field:ident => $name:literal / $per:literal, $about:literal,)* }) => {
        $visibility fn $table() -> Vec<Column<$row>> {
            vec![$(Column {
                name: $name,
                about: $about,
                optional: optional(|r: &$row| r.$field),
                get: |r| Cell::out(r.$field).map(|v| v.saturating_add($per / 2) / $per),
                set: |r, v| r.$field = Cell::of(v.saturating_mul($per)),
                exact: |r| Cell::out(r.$field),
                set_exact: |r, v| r.$field = Cell::of(v),
            },)*]
        }
    };
}

columns! { pub(crate) cpu: HostCpu {
    capacity_ns => "capacity_us" / 1_000, "CPU time that the host, or the quota it stands for, had",
    busy_ns => "busy_us" / 1_000, "CPU time used",
    idle_ns => "idle_us" / 1_000, "CPU time idle",
    iowait_ns => "iowait_us" / 1_000, "CPU time idle while a task waited for I/O",
    steal_ns => "steal_us" / 1_000, "CPU time taken by the hypervisor",
    throttled_ns => "throttled_us" / 1_000, "part of the window throttled by the quota; null: not covered",
    wait_ns => "wait_us" / 1_000, "time tasks waited for a CPU, summed over tasks",
    waiting_max => "waiting_max" / 1, "tasks that waited for a CPU, at the most",
} }

columns! { pub(crate) workload: WorkloadWindow {
    busy_ns => "busy_us" / 1_000, "CPU time used",
    wait_ns => "wait_us" / 1_000, "time its tasks waited for a CPU, summed",
    waiting_max => "waiting_max" / 1, "tasks that waited for a CPU, at the most",
    wait_max_ns => "wait_max_us" / 1_000, "longest single wait for a CPU that ended",
    throttled_ns => "throttled_us" / 1_000, "part of the window throttled by its quota; null: not covered",
    blocked_io_ns => "blocked_io_us" / 1_000, "time its tasks slept uninterruptibly, summed",
    blocked_io_max => "blocked_io_max" / 1, "tasks in uninterruptible sleep, at the most",
    io_bytes => "io_bytes" / 1, "submitted to block devices",
    io_requests => "io_requests" / 1, "requests submitted to block devices",
    io_flushes => "io_flushes" / 1, "of those, flushes",
    reclaim_ns => "reclaim_us" / 1_000, "time in direct reclaim, summed over tasks",
    swap_ins => "swap_ins" / 1, "pages read back from swap",
    dirty_throttle_ns => "dirty_throttle_us" / 1_000, "time its writers were held back for dirty pages, summed",
    stopped_ns => "stopped_us" / 1_000, "time its threads were stopped by a signal or a tracer, summed; null: not covered",
    stopped_max => "stopped_max" / 1, "threads stopped by a signal or a tracer, at the most",
} }

columns! { pub(crate) listener: ListenerWindow {
    depth_last => "depth_last" / 1, "accept queue at the window's end, connections",
    depth_max => "depth_max" / 1, "accept queue, at the most",
    depth_ns => "depth_us" / 1_000, "integral of the accept queue over time, connections x us",
    limit => "limit" / 1, "the accept queue's limit: it overflows beyond it",
    arrivals => "arrivals" / 1, "connections that entered the accept queue",
    accepts => "accepts" / 1, "connections accepted",
    queue_wait_max_ns => "queue_wait_max_us" / 1_000, "longest wait in the accept queue that ended",
    drops => "drops" / 1, "packets dropped at this listener, each once: its part of the network namespace's `ListenDrops`. In files without the column `sk_drops`, which are older, what is in that one now",
    drops_syn => "drops_syn" / 1, "of those, SYNs; the rest are last ACKs of handshakes",
    sk_drops => "sk_drops" / 1, "the same as the socket counts it (`sk_drops` less what a listener discards in good health): dropped last ACKs twice, answers to SYN cookies once",
    drops_final_ack => "drops_final_ack" / 1, "last ACKs of handshakes dropped, in the window in which they came; `drops` may have them a window later",
    drops_cookie => "drops_cookie" / 1, "of those, answers to a SYN cookie",
    drops_repeated => "drops_repeated" / 1, "of those at the last step, of connections that were dropped there before",
    drops_slow => "drops_slow" / 1, "connections dropped there for so long that they wait a second or more",
    syn_ack_retransmits => "syn_ack_retransmits" / 1, "SYN-ACKs sent again",
    received => "received" / 1, "requests received",
    answered => "answered" / 1, "requests answered",
    aborted => "aborted" / 1, "requests whose connection ended without an answer",
    late => "late" / 1, "of the answered, also before, those of which something was written for the first time later than the agent's `late_ms` after the first byte of the request; null: not counted",
    very_late => "very_late" / 1, "the same of `very_late_ms`; null: not counted",
    very_long_retried => "very_long_retried" / 1, "the same of a second, where most of it went by before the connection was there, as its last ACK was dropped; null: not counted",
    very_long_queued => "very_long_queued" / 1, "the same of a second, where most of it was spent unread since before the connection was accepted; null: not counted",
    very_long_unread => "very_long_unread" / 1, "the same of a second, where most of it was spent unread on an accepted connection; null: not counted",
    very_long_inside => "very_long_inside" / 1, "the same of a second, where most of it was spent after it was read; null: not counted",
    in_flight_last => "in_flight_last" / 1, "requests in flight at the window's end",
    in_flight_max => "in_flight_max" / 1, "requests in flight, at the most",
    in_flight_ns => "in_flight_us" / 1_000, "integral of requests in flight, requests x us",
    unread_max => "unread_max" / 1, "connections with data that nobody reads yet, at the most; multiplexed ones too; where streams are counted, requests",
    unread_ns => "unread_us" / 1_000, "integral of those, connections x us",
    workers_busy_max => "workers_busy_max" / 1, "threads with a request, at the most",
    workers_busy_ns => "workers_busy_us" / 1_000, "integral of those, threads x us",
    workers_seen => "workers_seen" / 1, "threads that ever served a request here",
    worker_shared_max => "worker_shared_max" / 1, "connections served by one thread at once, at the most",
    response_ns => "response_us" / 1_000, "response times of the requests answered, summed",
    response_max_ns => "response_max_us" / 1_000, "longest of them",
    open_last => "open_last" / 1, "connections open at the window's end",
    open_max => "open_max" / 1, "connections open, at the most",
    multiplexed_connections => "multiplexed_connections" / 1, "connections with several exchanges at once (HTTP/2, gRPC, WebSocket); what is told of requests and calls is of the other connections",
    pieces_in => "pieces_in" / 1, "of multiplexed connections: segments that came",
    pieces_read => "pieces_read" / 1, "of multiplexed connections: reads by the server",
    pieces_out => "pieces_out" / 1, "of multiplexed connections: writes",
    multiplexed_bytes_in => "multiplexed_bytes_in" / 1, "of multiplexed connections: bytes that came",
    multiplexed_bytes_out => "multiplexed_bytes_out" / 1, "of multiplexed connections: bytes written",
    unanswered_max => "unanswered_max" / 1, "of multiplexed connections: segments that came since there was an answer of any kind on their connection, at the most",
    unanswered_ns => "unanswered_us" / 1_000, "integral of those, pieces x us",
} }

columns! { pub(crate) edge: EdgeWindow {
    started => "started" / 1, "calls started",
    answered => "answered" / 1, "calls answered",
    aborted => "aborted" / 1, "calls whose connection ended without an answer",
    in_flight_last => "in_flight_last" / 1, "calls in flight at the window's end",
    in_flight_max => "in_flight_max" / 1, "calls in flight, at the most",
    in_flight_ns => "in_flight_us" / 1_000, "integral of calls in flight, calls x us",
    open_last => "open_last" / 1, "connections open at the window's end",
    open_max => "open_max" / 1, "connections open, at the most",
    connects => "connects" / 1, "connections begun",
    established => "established" / 1, "connections established",
    response_ns => "response_us" / 1_000, "response times of the calls answered, summed",
    response_max_ns => "response_max_us" / 1_000, "longest of them",
    syn_retransmits => "syn_retransmits" / 1, "SYNs sent again",
    data_retransmits => "data_retransmits" / 1, "segments sent again",
    first_try_unix_ns => "first_try_unix_us" / 1_000, "first SYN of a connection that retried in this window, Unix time; 0: none",
    multiplexed_connections => "multiplexed_connections" / 1, "connections with several exchanges at once (HTTP/2, gRPC, WebSocket); what is told of requests and calls is of the other connections",
    pieces_in => "pieces_in" / 1, "of multiplexed connections: segments that came",
    pieces_out => "pieces_out" / 1, "of multiplexed connections: writes",
    multiplexed_bytes_in => "multiplexed_bytes_in" / 1, "of multiplexed connections: bytes that came",
    multiplexed_bytes_out => "multiplexed_bytes_out" / 1, "of multiplexed connections: bytes written",
    unanswered_max => "unanswered_max" / 1, "of multiplexed connections: writes since there was an answer of any kind on their connection, at the most",
    unanswered_ns => "unanswered_us" / 1_000, "integral of those, pieces x us",
} }

columns! { pub(crate) device: DeviceWindow {
    in_flight_ns => "in_flight_us" / 1_000, "integral of requests at the device, requests x us",
    in_flight_max => "in_flight_max" / 1, "requests at the device, at the most",
    issued => "issued" / 1, "requests issued",
    completed => "completed" / 1, "requests completed",
    bytes => "bytes" / 1, "bytes of the requests completed",
    latency_ns => "latency_us" / 1_000, "latencies of the requests completed, summed",
    latency_max_ns => "latency_max_us" / 1_000, "longest of them",
    flushes => "flushes" / 1, "flushes issued, and writes with a flush before them; where the device is polled, flushes completed",
} }

/// Names of [`CulpritResource`] in the files; the unit of `amount` follows from it.
#[must_use]
pub(crate) fn resource_name(resource: CulpritResource) -> &'static str {
    match resource {
        CulpritResource::Cpu => "cpu_us",
        CulpritResource::IoBlocked => "io_blocked_us",
        CulpritResource::IoBytes => "io_bytes",
    }
}

/// What `amount` is divided by.
#[must_use]
pub(crate) fn resource_per(resource: CulpritResource) -> u64 {
    match resource {
        CulpritResource::Cpu | CulpritResource::IoBlocked => 1_000,
        CulpritResource::IoBytes => 1,
    }
}

/// The way back.
#[must_use]
pub(crate) fn resource_named(name: &str) -> Option<CulpritResource> {
    [CulpritResource::Cpu, CulpritResource::IoBlocked, CulpritResource::IoBytes]
        .into_iter()
        .find(|resource| resource_name(*resource) == name)
}

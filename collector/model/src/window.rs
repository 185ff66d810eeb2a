//! The values the pipeline works on: hosts, windows, entities. Plain data, no behaviour beyond look-ups.
//! Filled by the collector's `convert` from the wire; must know nothing of protobuf, clocks, files, or incidents.

use crate::responses::Counts;
use crate::rows::Rows;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;

/// Length of a window.
pub const WINDOW_NS: u64 = 50_000_000;

/// `unix_ns / WINDOW_NS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct WindowIndex(pub u64);

impl WindowIndex {
    /// First nanosecond of the window.
    #[must_use]
    pub fn start_unix_ns(self) -> u64 {
        self.0.saturating_mul(WINDOW_NS)
    }
    /// One past its last nanosecond.
    #[must_use]
    pub fn end_unix_ns(self) -> u64 {
        self.0.saturating_add(1).saturating_mul(WINDOW_NS)
    }
    /// The window that holds `unix_ns`.
    #[must_use]
    pub fn at(unix_ns: u64) -> Self {
        Self(unix_ns / WINDOW_NS)
    }
}

/// Host name as its agent says it; unique per collector.
pub type Host = String;

/// Entity ids are unique per kind within one host and agent instance. `convert` maps instances to fresh ids.
pub type EntityId = u32;

/// What the pipeline is fed, in arrival order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// Identity and coverage; again whenever they change.
    Host(HostInfo),
    /// Names behind ids.
    Entities {
        host: Host,
        workloads: Vec<WorkloadInfo>,
        listeners: Vec<ListenerInfo>,
        edges: Vec<EdgeInfo>,
        devices: Vec<DeviceInfo>,
    },
    /// Ids that no later window uses.
    Gone { host: Host, gone: Gone },
    /// One closed window of one host. The analysis, the series and whoever else keeps it keep the same.
    Window(#[serde(with = "shared")] Arc<HostWindow>),
    /// What listeners did at each number of requests in flight, over some of those windows.
    States(Box<HostStates>),
    /// Whose the CPU of a cgroup was that several servers share.
    Shares(Box<HostShares>),
    /// Drop seen, ahead of its window. Only speeds the first alert; the windows are the truth.
    Drop(DropNotice),
    /// The collector's clock. Moves the watermark.
    Tick { unix_ns: u64 },
}

/// Ids of a host behind which there is nothing any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gone {
    pub workloads: Vec<EntityId>,
    pub listeners: Vec<EntityId>,
    pub edges: Vec<EntityId>,
    pub devices: Vec<EntityId>,
}

/// A host, or a scope that stands for one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostInfo {
    pub host: Host,
    /// The boot id of its kernel, which scopes of one machine have in common. Empty: not known.
    #[serde(default)]
    pub machine: String,
    pub agent_instance: String,
    pub cpus: u32,
    pub addresses: Vec<IpAddr>,
    pub coverage: Coverage,
}

/// Which signals this host's agent has at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Coverage {
    pub cpu: bool,
    pub run_queue: bool,
    pub block_io: bool,
    pub memory: bool,
    pub accept_queue: bool,
    pub requests: bool,
    pub calls: bool,
    pub retransmits: bool,
    pub throttling: bool,
    /// Of those, the ones that are polled.
    pub sampled: SignalSet,
}

/// Signals by their names, in the order of [`Coverage`]'s fields.
pub const SIGNALS: [&str; 9] = [
    "cpu",
    "run_queue",
    "block_io",
    "memory",
    "accept_queue",
    "requests",
    "calls",
    "retransmits",
    "throttling",
];

/// Some of [`SIGNALS`]. Empty by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SignalSet(u16);

impl SignalSet {
    /// Those that an agent with this coverage does not measure.
    #[must_use]
    pub fn uncovered(c: Coverage) -> Self {
        let covered = [
            c.cpu,
            c.run_queue,
            c.block_io,
            c.memory,
            c.accept_queue,
            c.requests,
            c.calls,
            c.retransmits,
            c.throttling,
        ];
        Self::of(SIGNALS.into_iter().zip(covered).filter(|(_, covered)| !covered).map(|(name, _)| name))
    }

    /// These signals; a name that is none adds nothing.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let place = |name: &str| SIGNALS.iter().position(|s| *s == name);
        Self(names.into_iter().filter_map(place).fold(0, |set, n| set | 1 << n))
    }

    /// As a number: bit n is that of the n-th of [`SIGNALS`].
    #[must_use]
    pub fn bits(self) -> u16 {
        self.0
    }

    /// The way back.
    #[must_use]
    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Their names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        SIGNALS.into_iter().enumerate().filter(move |(n, _)| self.0 & 1 << n != 0).map(|(_, name)| name)
    }

    /// Whether a signal of this name is among them.
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        self.meets(Self::of([name]))
    }

    /// These and those.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether both have one in common.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkloadInfo {
    pub id: EntityId,
    pub cgroup: String,
    pub name: String,
    pub comm: String,
    /// CPU ns per window that its quota allows; 0: none.
    pub cpu_quota_ns: u64,
    /// A server in a cgroup of several: the workload under which CPU, I/O and memory of all of them are told; 0: it is its cgroup.
    pub shares: EntityId,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenerInfo {
    pub id: EntityId,
    /// 0: owner unknown.
    pub workload: EntityId,
    /// Unspecified address: wildcard. Of a Unix socket one that stands for its path, see [`crate::address`].
    pub address: IpAddr,
    pub port: u16,
    /// What a Unix socket is bound to.
    #[serde(default)]
    pub path: Option<String>,
    pub comm: String,
    /// Read from the server's own configuration; `None`: not read, or not set.
    #[serde(default)]
    pub pool: Option<PoolSize>,
    /// The process that called listen(2) last; of a socket that is older than its agent, one that read there. 0: not known.
    #[serde(default)]
    pub pid: u32,
    /// One number for what that process was started with: the file of its program, its arguments, its folder. 0: not known.
    #[serde(default)]
    pub started_with: u64,
}

impl ListenerInfo {
    /// As it is written: `address:port`, or the path of a Unix socket.
    #[must_use]
    pub fn socket(&self) -> String {
        crate::address::place(self.path.as_deref(), self.address, self.port)
    }
}

impl EdgeInfo {
    /// Whom it dials, as [`ListenerInfo::socket`] writes it.
    #[must_use]
    pub fn socket(&self) -> String {
        crate::address::place(self.path.as_deref(), self.remote_address, self.remote_port)
    }
}

/// How many requests at a time a server is set up for, and what bounds it beside; of a database, connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSize {
    pub size: u32,
    /// The key and where it is set.
    pub set_by: String,
    /// Files that the server's process may have open; `None`: not limited, or not known.
    #[serde(default)]
    pub open_files: Option<u64>,
    /// Memory that its cgroup may use, or one above it, bytes; `None`: not limited, or not known.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
    /// Memory in its cgroup that belongs to no file, bytes, to four binary digits; `None`: not known.
    #[serde(default)]
    pub memory_used_bytes: Option<u64>,
    /// Processes of its cgroup; `None`: not known.
    #[serde(default)]
    pub processes: Option<u32>,
    /// Whether a worker is a connection's for as long as that is open, and not only while it has a request; `None`: not known.
    #[serde(default)]
    pub held_by_connection: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EdgeInfo {
    pub id: EntityId,
    pub workload: EntityId,
    pub remote_address: IpAddr,
    pub remote_port: u16,
    /// What the Unix socket there is bound to.
    #[serde(default)]
    pub path: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeviceInfo {
    pub id: EntityId,
    pub name: String,
}

/// All values of one host in one window. `None`: not covered. An entity missing from a map: nothing happened there.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostWindow {
    pub host: Host,
    pub index: WindowIndex,
    /// What the whole windows of `index` leave of the host's clock offset: by the collector's clock the window began this much after
    /// the index says.
    pub phase_ns: i64,
    /// Bound of the error of index and phase together.
    pub clock_error_ns: u64,
    pub clock_corrected: bool,
    /// Windows lapped in the kernel just before this one.
    pub lost_before: u64,
    /// Not measured: what they would have said is unknown, not zero.
    pub uncovered: SignalSet,
    /// Polled once in the window: peaks in between are missed, and what happened may have happened a window before.
    pub sampled: SignalSet,
    pub cpu: Option<HostCpu>,
    pub workloads: Rows<WorkloadWindow>,
    pub listeners: Rows<ListenerWindow>,
    pub edges: Rows<EdgeWindow>,
    pub devices: Rows<DeviceWindow>,
    /// Answers of listeners by response time. What is counted here adds up to `answered`, and its times to `response_ns`.
    #[serde(default)]
    pub responses: Counts,
    /// The agent's `late_ms` and `very_late_ms`: what a listener's `late` and `very_late` are held against. 0: it told none.
    #[serde(default)]
    pub late_ms: [u32; 2],
    /// Event loops that read nothing in it although requests waited.
    #[serde(default)]
    pub blocked_loops: Vec<BlockedLoop>,
    /// Ends of connections that this host's agent told with it. For the analysis alone: windows that are read again have none.
    #[serde(default)]
    pub meetings: Vec<Meeting>,
    /// What the kernel counted of its network and its memory that no hook tells, where it rose; told once a second.
    #[serde(default)]
    pub kernel_counts: Vec<KernelCount>,
    /// What databases told of their locks. For the analysis alone, as `meetings`.
    #[serde(default)]
    pub blockings: Vec<Blocking>,
    /// Locks inside of servers that their threads waited for. For the analysis alone, as `meetings`.
    #[serde(default)]
    pub locked_threads: Vec<LockedThreads>,
    /// Who waited for servers of names when it ended. For the analysis alone, as `meetings`.
    #[serde(default)]
    pub waiting_lookups: Vec<WaitingLookups>,
    /// Requests that took 200 ms or longer and ended in it, or a little before. For the analysis alone, as `meetings`.
    #[serde(default)]
    pub slow_requests: Vec<SlowRequest>,
    /// Where in their code processes ran or waited, in windows before it. For the analysis alone, as `meetings`.
    #[serde(default)]
    pub code_paths: Vec<CodePath>,
    pub culprits: Vec<CulpritSample>,
}

/// A request that took 200 ms or longer, and where it was. One after the other: without a connection, unread, inside of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRequest {
    pub listener: EntityId,
    /// Of its connection, see [`Meeting::pair`]; 0: not known. Of a Unix socket the other end has it on the same host alone.
    pub pair: u64,
    /// From its end to that of the window.
    pub ended_ago_ns: u64,
    /// Before its connection was there: its last ACK was dropped.
    pub retried_ns: u64,
    /// Until it was read, …
    pub unread_ns: u64,
    /// … since before its connection was accepted.
    pub queued: bool,
    /// From then to the beginning of its answer.
    pub inside_ns: u64,
    /// There was none.
    pub aborted: bool,
    /// What its thread waited for meanwhile; `None`: its thread had others at the same time, and whose calls those were is not known.
    pub calls: Option<Vec<SlowCall>>,
    /// Such calls that are not among them.
    pub calls_left_out: u32,
}

impl SlowRequest {
    /// From its first byte, or its client's first try, to its end.
    #[must_use]
    pub fn took_ns(&self) -> u64 {
        self.retried_ns.saturating_add(self.unread_ns).saturating_add(self.inside_ns)
    }
}

/// A call of 200 ms or longer, or a connection that took so long to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCall {
    pub edge: EntityId,
    /// Of its connection, as of a request.
    pub pair: u64,
    /// From when the request was read to when it was sent.
    pub after_ns: u64,
    /// Until its answer began.
    pub took_ns: u64,
    /// No call: the opening of its connection.
    pub connecting: bool,
    /// There was no answer.
    pub aborted: bool,
}

/// What such requests take in memory.
#[must_use]
pub fn slow_bytes(all: &[SlowRequest]) -> usize {
    let calls = |of: &SlowRequest| of.calls.as_ref().map_or(0, Vec::len) * size_of::<SlowCall>();
    all.iter().map(|of| size_of::<SlowRequest>() + calls(of)).sum()
}

/// What a process did where it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// Samples are moments at which one of its threads was on a CPU, some 50 a second of each CPU.
    Running,
    /// Samples are its threads that were off the CPU soon after the last of the windows had ended.
    Waiting,
}

/// Where in its code a process ran or waited: of some windows those samples that have the same calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodePath {
    /// From the last window that it is of to the one that tells it.
    pub windows_ago: u32,
    /// Windows that it is of, at least one.
    pub windows: u32,
    /// 0: not known.
    pub workload: EntityId,
    pub pid: u32,
    pub comm: String,
    pub doing: Doing,
    /// With these calls, …
    pub samples: u32,
    /// … of so many of the process in these windows, with those that are not told.
    pub of: u32,
    /// Functions, the innermost first: a name, or a file and the offset in it; none: it ran in the kernel for itself.
    pub frames: Vec<String>,
    /// Who called the last of them could not be found.
    pub cut: bool,
}

impl CodePath {
    /// The first and the last of its windows, if `told` tells it.
    #[must_use]
    pub fn span(&self, told: WindowIndex) -> (u64, u64) {
        let last = told.0.saturating_sub(self.windows_ago.into());
        (last.saturating_sub(u64::from(self.windows).saturating_sub(1)), last)
    }
}

/// What such paths take in memory.
#[must_use]
pub fn code_bytes(all: &[CodePath]) -> usize {
    let of_frame = |frame: &String| size_of::<String>() + frame.len();
    let frames = |of: &CodePath| of.frames.iter().map(of_frame).sum::<usize>();
    all.iter().map(|of| size_of::<CodePath>() + of.comm.len() + frames(of)).sum()
}

/// A workload's lookups of names that had no answer for 50 ms or longer, of one server of names (DNS over UDP).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingLookups {
    pub workload: EntityId,
    /// Its port is 53.
    pub server: IpAddr,
    pub lookups: u32,
    /// For which the longest of them had waited.
    pub longest_ns: u64,
}

/// One end of a connection; whoever has the other end tells the same number of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meeting {
    /// A hash of the sequence numbers that it began with.
    pub pair: u64,
    pub end: ConnectionEnd,
}

/// Whose one end of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConnectionEnd {
    /// This listener accepted it.
    Accepted(EntityId),
    /// It is one of this edge.
    Connected(EntityId),
}

/// What a database told of its locks, when none of its requests was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocking {
    pub listener: EntityId,
    /// From the window in which it was asked to the one that tells it.
    pub windows_ago: u32,
    /// Sessions that wait for a lock; 0: it was asked too late, or they wait for something else.
    pub waiting: u32,
    /// Who holds them, whoever most wait for first; none: it does not say.
    pub blockers: Vec<Blocker>,
}

/// A session of a database that holds a lock and waits for none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// Its number, as the database has it.
    pub connection: u64,
    /// Sessions that wait for it.
    pub waiting: u32,
    /// It has a transaction open and asks nothing.
    pub idle: bool,
    /// For how long that has been open; `None`: the database does not say.
    pub held_ms: Option<u64>,
    /// What it asks, or asked last, without values; empty: the database does not say.
    pub statement: String,
}

/// What such answers take in memory.
#[must_use]
pub fn blockings_bytes(all: &[Blocking]) -> usize {
    let of = |by: &Blocker| size_of::<Blocker>() + by.statement.len();
    all.iter().map(|b| size_of::<Blocking>() + b.blockers.iter().map(of).sum::<usize>()).sum()
}

/// Threads of a server that waited for one lock inside of it, while none of its requests was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockedThreads {
    pub listener: EntityId,
    /// From the window in which it was looked at to the one that tells it.
    pub windows_ago: u32,
    /// So many waited for the lock, …
    pub waiting: u32,
    /// … of so many that the process has.
    pub threads: u32,
    /// Which of them held it; `None`: the lock does not say, or not one of them.
    pub holder: Option<LockingThread>,
}

/// A thread that held a lock, as it was seen then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockingThread {
    /// Its id.
    pub thread: u32,
    /// Its name.
    pub comm: String,
    /// It ran, or wanted to.
    pub runs: bool,
    /// The function of the kernel that it slept in; empty: it ran, or that may not be known.
    pub slept_in: String,
}

/// What such locks take in memory.
#[must_use]
pub fn locked_bytes(all: &[LockedThreads]) -> usize {
    let names = |of: &LockedThreads| of.holder.as_ref().map_or(0, |by| by.comm.len() + by.slept_in.len());
    all.iter().map(|of| size_of::<LockedThreads>() + names(of)).sum()
}

/// What the kernel counts in the network namespaces of a host's listeners, or on its whole machine (`telemetry.proto`: `KernelCounter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelCounter {
    ConntrackDropped,
    BacklogDropped,
    BacklogSqueezed,
    ZeroWindow,
    ReceiveBufferFull,
    TcpMemoryShort,
    DeviceDropped,
    CompactionStalled,
    QdiscDropped,
}

/// By how much one of them rose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCount {
    pub counter: KernelCounter,
    pub count: u64,
    /// Windows in which it did, …
    pub windows: u32,
    /// … of which the last is so many before the one that tells it.
    pub windows_ago: u32,
}

impl KernelCount {
    /// The first and the last of those windows, if `told` tells it.
    #[must_use]
    pub fn span(&self, told: WindowIndex) -> (u64, u64) {
        let last = told.0.saturating_sub(self.windows_ago.into());
        (last.saturating_sub(u64::from(self.windows).saturating_sub(1)), last)
    }
}

impl HostWindow {
    /// Its first nanosecond by the collector's clock, to `clock_error_ns`.
    #[must_use]
    pub fn start_unix_ns(&self) -> u64 {
        self.index.start_unix_ns().saturating_add_signed(self.phase_ns)
    }

    /// How many answers of a listener, or of several as one, took longer than `ns`, where its agent counts by that very threshold: from the first
    /// byte of the request to the last one of the answer.
    #[must_use]
    pub fn longer_than(&self, of: &ListenerWindow, ns: u64) -> Option<u64> {
        let is = |ms: u32| ms > 0 && u64::from(ms) * 1_000_000 == ns;
        match self.late_ms {
            [late, _] if is(late) => of.late,
            [_, very_late] if is(very_late) => of.very_late,
            _ => None,
        }
    }
}

/// The host's (or scope's) CPUs. With a scope under a quota, capacity is the quota.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct HostCpu {
    pub capacity_ns: u64,
    pub busy_ns: u64,
    pub idle_ns: u64,
    pub iowait_ns: u64,
    pub steal_ns: u64,
    pub throttled_ns: Option<u64>,
    pub wait_ns: u64,
    pub waiting_max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkloadWindow {
    pub busy_ns: u64,
    pub wait_ns: u64,
    pub waiting_max: u32,
    pub wait_max_ns: u64,
    pub throttled_ns: Option<u64>,
    pub blocked_io_ns: u64,
    pub blocked_io_max: u32,
    pub io_bytes: u64,
    pub io_requests: u64,
    pub io_flushes: u64,
    pub reclaim_ns: u64,
    pub swap_ins: u64,
    pub dirty_throttle_ns: u64,
    /// Integral of threads that a signal or a tracer stopped; `None`: not covered.
    pub stopped_ns: Option<u64>,
    pub stopped_max: u32,
}

/// Fewer connections, or calls in flight, than this say nothing of a pool.
pub const POOL_LEAST: u32 = 4;
/// All but a few: a pool is used up with this part of its connections, and a tier that stands holds this part of what its caller waits for.
pub const NEARLY_ALL: f64 = 0.95;

/// Whether all of the connections that were `open` at the most had a call in flight: then they are what limits the caller.
#[must_use]
pub fn is_pool_used_up(in_flight_max: u32, open_max: u32) -> bool {
    open_max >= POOL_LEAST
        && f64::from(in_flight_max) >= NEARLY_ALL * f64::from(open_max)
        && !carries_several(in_flight_max, open_max)
}

/// Whether there were more calls in flight than connections, by more than a few: then each carries several at once (streams of HTTP/2 that are counted), and
/// how many there are limits nobody.
#[must_use]
pub fn carries_several(in_flight_max: u32, open_max: u32) -> bool {
    open_max > 0 && NEARLY_ALL * f64::from(in_flight_max) > f64::from(open_max)
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ListenerWindow {
    pub depth_last: u32,
    pub depth_max: u32,
    pub depth_ns: u64,
    pub limit: u32,
    pub arrivals: u64,
    pub accepts: u64,
    pub queue_wait_max_ns: u64,
    /// Packets that the kernel dropped here, each once: what the network namespace's `ListenDrops` counts of this listener.
    pub drops: u64,
    /// Of those, SYNs; the rest are last ACKs of handshakes.
    pub drops_syn: u64,
    /// `sk_drops` less what the listener discards in good health: a dropped last ACK is twice in it unless it answered a SYN cookie.
    pub sk_drops: u64,
    /// Last ACKs dropped, in the window in which they came; the socket's counter may show them a window later.
    pub drops_final_ack: u64,
    pub drops_cookie: u64,
    pub drops_repeated: u64,
    pub drops_slow: u64,
    pub syn_ack_retransmits: u64,
    pub received: u64,
    pub answered: u64,
    pub aborted: u64,
    /// Of the answered, in this window or before it, those of which something was written later than the agent's `late_ms` after the first byte of
    /// the request, for the first time in this window; of agents of before, those that began later. `None`: not counted.
    pub late: Option<u64>,
    /// Of those, later than `very_late_ms`.
    pub very_late: Option<u64>,
    /// The same of a second, by where most of the time went: before the connection was there, whose last ACK was dropped; unread since before it
    /// was accepted; unread on an accepted one; read. `None`: not counted.
    pub very_long_retried: Option<u64>,
    pub very_long_queued: Option<u64>,
    pub very_long_unread: Option<u64>,
    pub very_long_inside: Option<u64>,
    pub in_flight_last: u32,
    pub in_flight_max: u32,
    pub in_flight_ns: u64,
    pub unread_max: u32,
    pub unread_ns: u64,
    pub workers_busy_max: u32,
    pub workers_busy_ns: u64,
    pub workers_seen: u32,
    pub worker_shared_max: u32,
    pub response_ns: u64,
    pub response_max_ns: u64,
    pub open_last: u32,
    pub open_max: u32,
    /// Connections with several exchanges at once: what is below is of these alone, and all that is above of the others, but what is unread.
    pub multiplexed_connections: u32,
    pub pieces_in: u64,
    pub pieces_read: u64,
    pub pieces_out: u64,
    pub multiplexed_bytes_in: u64,
    pub multiplexed_bytes_out: u64,
    /// Pieces that asked since there was an answer of any kind on their connection.
    pub unanswered_max: u32,
    pub unanswered_ns: u64,
}

/// Whether more of what is seen is on connections with several exchanges at once than on others: by what came on both, and where nothing came, as
/// while a tier stands still, by how many there are of each. A request that is in flight is one that is seen, whenever it came.
#[must_use]
pub fn mostly_multiplexed(multiplexed: u32, open: u32, pieces: u64, turns: u64, in_flight_ns: u64) -> bool {
    multiplexed > 0
        && match (pieces, turns.saturating_add(in_flight_ns.div_ceil(WINDOW_NS))) {
            (0, 0) => multiplexed >= open.saturating_sub(multiplexed),
            (pieces, turns) => pieces >= turns,
        }
}

impl ListenerWindow {
    /// Whether most of what came here came on multiplexed connections: then requests, answers, their times and those who work at them are
    /// not known, and only of connections, bytes and silence anything can be said.
    #[must_use]
    pub fn connections_only(&self) -> bool {
        let (multiplexed, open) = (self.multiplexed_connections, self.open_max);
        mostly_multiplexed(multiplexed, open, self.pieces_in, self.received, self.in_flight_ns)
    }

    /// It, where requests are known.
    #[must_use]
    pub fn turns(&self) -> Option<&Self> {
        (!self.connections_only()).then_some(self)
    }
}

/// Time in state: how long each listener had each number of requests in flight since it was told before, and how many it answered
/// meanwhile. A listener that is not among them had none, or is not measured by hooks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostStates {
    pub host: Host,
    /// The last window that it is about; the agent read it some milliseconds after that one's end.
    pub last: WindowIndex,
    /// How many windows it is about.
    pub windows: u32,
    pub listeners: Vec<ListenerStates>,
}

/// One listener's time in each state.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ListenerStates {
    pub listener: EntityId,
    /// By bin, rising.
    pub cells: Vec<StateCell>,
}

/// Time and answers at the numbers in flight of one bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StateCell {
    /// Numbers below 16 have a bin each; above there are eight to a doubling, up to 4,095, and what is more is in the last.
    pub bin: u8,
    pub time_ns: u64,
    /// Answers that ended such a state: the request that was answered is counted in its number.
    pub answered: u64,
}

/// What the servers and other programs of one group of the scheduler had of the CPU between two looks at their threads, of which more than one waited
/// for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostShares {
    pub host: Host,
    /// The window in which it was looked last.
    pub last: WindowIndex,
    /// Time between the two looks.
    pub span_ns: u64,
    /// The cgroup that the scheduler has as a group.
    pub workload: EntityId,
    pub neighbours: Vec<CpuShare>,
}

/// What one of them had, and how long its threads waited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuShare {
    /// The server, or the cgroup.
    pub workload: EntityId,
    /// Of a program that is no server, in a cgroup that holds several; empty: all of the workload.
    pub comm: String,
    pub ran_ns: u64,
    /// Sum over its threads.
    pub waited_ns: u64,
    pub threads: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct EdgeWindow {
    pub started: u64,
    pub answered: u64,
    pub aborted: u64,
    pub in_flight_last: u32,
    pub in_flight_max: u32,
    pub in_flight_ns: u64,
    pub open_last: u32,
    pub open_max: u32,
    pub connects: u64,
    pub established: u64,
    pub response_ns: u64,
    pub response_max_ns: u64,
    pub syn_retransmits: u64,
    pub data_retransmits: u64,
    /// Unix ns of the first SYN of a connection that retried in this window; 0: none.
    pub first_try_unix_ns: u64,
    /// Connections with several exchanges at once: what is below is of these alone, and all that is above of the others.
    pub multiplexed_connections: u32,
    pub pieces_in: u64,
    pub pieces_out: u64,
    pub multiplexed_bytes_in: u64,
    pub multiplexed_bytes_out: u64,
    /// Pieces that asked since there was an answer of any kind on their connection.
    pub unanswered_max: u32,
    pub unanswered_ns: u64,
}

impl EdgeWindow {
    /// As that of a listener: most of what was sent was sent on multiplexed connections, and calls are not known.
    #[must_use]
    pub fn connections_only(&self) -> bool {
        let (multiplexed, open) = (self.multiplexed_connections, self.open_max);
        mostly_multiplexed(multiplexed, open, self.pieces_out, self.started, self.in_flight_ns)
    }

    /// It, where calls are known.
    #[must_use]
    pub fn turns(&self) -> Option<&Self> {
        (!self.connections_only()).then_some(self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DeviceWindow {
    pub in_flight_ns: u64,
    pub in_flight_max: u32,
    pub issued: u64,
    pub completed: u64,
    pub bytes: u64,
    pub latency_ns: u64,
    pub latency_max_ns: u64,
    pub flushes: u64,
}

/// A thread that serves several connections of a listener and read nothing in a whole window, although requests waited there. It was
/// looked at after the window's end, and at the end of one before it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BlockedLoop {
    pub listener: EntityId,
    /// Its id, as its host has it.
    pub thread: u32,
    pub comm: String,
    /// At the window's end, since it last read a request.
    pub silent_ns: u64,
    /// Time between the two looks; what is neither of the next two it slept.
    pub span_ns: u64,
    pub ran_ns: u64,
    /// Runnable, without a CPU.
    pub waited_ns: u64,
    /// It sleeps so that no signal wakes it: mostly for a disk.
    pub uninterruptible: bool,
    /// The kernel's function that it sleeps in; empty: it runs, or wants to.
    pub slept_in: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CulpritResource {
    /// ns on CPU
    Cpu,
    /// ns blocked on block I/O
    IoBlocked,
    /// bytes submitted
    IoBytes,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CulpritSample {
    pub resource: CulpritResource,
    pub pid: u32,
    pub comm: String,
    pub workload: EntityId,
    pub amount: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DropNotice {
    pub host: Host,
    pub listener: EntityId,
    /// In the host's windows: [`WindowIndex::at`] of it is the window that will show the drop.
    pub unix_ns: u64,
    /// To add for the collector's clock, as [`HostWindow::phase_ns`].
    pub phase_ns: i64,
    /// Packets; of an agent that does not tell them, `sk_drops`.
    pub count: u64,
    /// As [`ListenerWindow::sk_drops`].
    pub sk_drops: u64,
    pub depth: u32,
    pub limit: u32,
}

/// A shared window is written as the window itself.
mod shared {
    use super::{Arc, HostWindow};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(window: &Arc<HostWindow>, to: S) -> Result<S::Ok, S::Error> {
        window.as_ref().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<HostWindow>, D::Error> {
        HostWindow::deserialize(from).map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_connections_that_are_all_in_use_are_no_pool_that_is_used_up() {
        assert!(!is_pool_used_up(3, 3));
        assert!(is_pool_used_up(6, 6));
        assert!(!is_pool_used_up(90, 100) && is_pool_used_up(96, 100));
    }

    #[test]
    fn connections_with_more_calls_than_they_are_limit_nobody() {
        assert!(is_pool_used_up(101, 100), "maxima of two moments");
        assert!(!is_pool_used_up(120, 100) && !is_pool_used_up(40, 4));
        assert!(carries_several(40, 4) && !carries_several(4, 4) && !carries_several(9, 0));
    }

    #[test]
    fn multiplexed_is_what_most_came_on_and_in_a_silence_what_most_connections_are() {
        let of = |multiplexed_connections, open_max, pieces_in, received, in_flight_ns| {
            let of = ListenerWindow {
                multiplexed_connections,
                open_max,
                pieces_in,
                received,
                in_flight_ns,
                ..<_>::default()
            };
            of.connections_only()
        };
        assert!(of(4, 4, 300, 0, 0) && of(4, 4, 0, 0, 0) && of(4, 8, 0, 0, 0));
        assert!(!of(1, 50, 2, 300, 0), "a WebSocket beside requests");
        assert!(!of(1, 50, 0, 0, 0), "and while nothing comes, as in a stall");
        assert!(!of(1, 1, 0, 0, WINDOW_NS), "a request is in flight");
        assert!(!of(0, 9, 0, 0, 0));
        let calls =
            |started| EdgeWindow { multiplexed_connections: 1, open_max: 20, started, ..<_>::default() };
        assert!(!calls(0).connections_only() && !calls(9).connections_only());
    }
}

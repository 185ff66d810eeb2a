//! What one 50 ms window of this host holds: plain values, every unit in its name.
//! Owns the shape between the kernel logs (`sample` fills it) and the wire (`stream` encodes it). Knows no kernel map,
//! no clock and no network.

/// Length of a window.
pub const WINDOW_NS: u64 = 50_000_000;

/// `unix_ns / WINDOW_NS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WindowIndex(pub u64);

/// Identity of a workload as the kernel sees it: the cgroup's id (the inode of its directory).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CgroupId(pub u64);

/// Buckets of a log2 histogram of waits: bucket `i` counts values in `[2^i, 2^(i+1))` microseconds, the last one everything above.
pub const HIST_BUCKETS: usize = 20;
/// The same of response times.
pub const RESPONSE_BUCKETS: usize = 24;

/// One closed window. An entity that is not listed had no activity; a section that is `None` was not covered.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// Which window.
    pub index: WindowIndex,
    /// The epoch phase was corrected inside it.
    pub clock_corrected: bool,
    /// Drained more than one window late; values that come from files are absent.
    pub late: bool,
    /// CPU of the machine, not of the scope.
    pub machine_cpu: Option<MachineCpu>,
    /// Per-cgroup CPU, run queue and blocked time.
    pub tasks: Option<Vec<(CgroupId, TaskSample)>>,
    /// Per process, its threads that a signal or a tracer stopped.
    pub stopped: Option<Vec<(ProcessKey, StoppedSample)>>,
    /// Per-cgroup throttling, from `cpu.stat`.
    pub throttled: Option<Vec<(CgroupId, u64)>>,
    /// Per-cgroup submitted block I/O.
    pub io: Option<Vec<(CgroupId, IoSample)>>,
    /// Per-cgroup memory stalls.
    pub memory: Option<Vec<(CgroupId, MemorySample)>>,
    /// Block devices, by name.
    pub devices: Option<Vec<(String, DeviceSample)>>,
    /// Accept queues.
    pub accept_queues: Option<Vec<(ListenerKey, AcceptQueueSample)>>,
    /// Requests on accepted connections.
    pub requests: Option<Vec<(ListenerKey, RequestSample)>>,
    /// Calls on connected sockets.
    pub calls: Option<Vec<(EdgeKey, CallSample)>>,
    /// Retransmits on connected sockets.
    pub retransmits: Option<Vec<(EdgeKey, RetransmitSample)>>,
    /// Open connections to others, where calls are not covered.
    pub connections: Option<Vec<(EdgeKey, ConnectionSample)>>,
    /// What the Unix sockets among the listeners are bound to.
    pub unix_paths: Vec<(std::net::Ipv6Addr, std::sync::Arc<str>)>,
    /// Connections that began, or were there before and became known, of which another agent may tell as well: some, in one window of a second.
    pub meetings: Vec<Meeting>,
    /// Time in state of listeners, in one window of a second.
    pub states: Option<States>,
    /// Event loops that read nothing in it although requests waited.
    pub blocked_loops: Vec<BlockedLoop>,
    /// What the processes of groups with several servers had of the CPU, where threads waited for it.
    pub cpu_shares: Vec<CpuShares>,
    /// What the kernel counted that no hook tells, where it rose: in one window of a second.
    pub kernel_counts: Vec<KernelCount>,
    /// Who held locks in databases that were asked.
    pub blockings: Vec<Blocking>,
    /// Locks inside of servers that their threads waited for.
    pub locked_threads: Vec<LockedThreads>,
    /// Who waited for servers of names when it ended.
    pub lookups: Vec<(LookupsKey, WaitingLookups)>,
    /// Requests that took long and ended in it, or a little before it, slowest first.
    pub slow_requests: Vec<SlowRequest>,
    /// Which code ran and which waited, in windows before it.
    pub code_paths: Vec<CodePath>,
    /// The processes that used most of a saturated resource.
    pub culprits: Vec<CulpritSample>,
    /// Which sections were polled and so hold less.
    pub polled: Polled,
}

/// Sections that were taken from files and sockets, once in the window: what only hooks can tell is left out of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Polled {
    /// Of [`TaskSample`] there are `busy_ns`, `wait_ns` and `waiting_max`; of [`MachineCpu`] all but `switches`.
    pub tasks: bool,
    /// Of [`TaskSample`] there is `blocked_io_ns`, too.
    pub blocked_io: bool,
    /// Of [`MemorySample`] there is `reclaim_ns`.
    pub memory: bool,
    /// Of [`DeviceSample`] there is all but `issued` and `latency_max_ns`.
    pub devices: bool,
    /// Of [`AcceptQueueSample`] there are depth, limit and `drops`, which are packets.
    pub accept_queues: bool,
}

impl Polled {
    /// As bits: windows of one batch must agree.
    pub fn bits(self) -> u16 {
        let all = [self.tasks, self.blocked_io, self.memory, self.devices, self.accept_queues];
        all.iter().enumerate().fold(0, |bits, (i, polled)| bits | (u16::from(*polled) << i))
    }
}

/// What is read of the kernel's own counts: in the network namespaces of listeners, or of the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelCounter {
    /// Packets that connection tracking dropped: its table is full (`drop`), or two packets of one connection raced (`insert_failed`).
    ConntrackDropped,
    /// Packets that came while a CPU's queue of them was full (softnet_stat, second column).
    BacklogDropped,
    /// Times that a CPU left its turn at received packets with more of them waiting (third column).
    BacklogSqueezed,
    /// Times that a receiver told its sender to stop, because nobody read what had come (`TCPToZeroWindowAdv`).
    ZeroWindow,
    /// Segments that came while their socket's receive buffer was full (`TCPRcvQDrop`).
    ReceiveBufferFull,
    /// Times that TCP began to be short of memory, or gave a connection up for that (`TCPMemoryPressures`, `TCPAbortOnMemory`).
    TcpMemoryShort,
    /// Packets that a device did not send (/proc/net/dev).
    DeviceDropped,
    /// Times that a task had to compact memory itself before it got any (`compact_stall`).
    CompactionStalled,
    /// Packets that queueing disciplines dropped of what was to be sent (rtnetlink), in the agent's own network namespace.
    QdiscDropped,
}

impl KernelCounter {
    /// All of them, in their order.
    pub const ALL: [Self; 9] = [
        Self::ConntrackDropped,
        Self::BacklogDropped,
        Self::BacklogSqueezed,
        Self::ZeroWindow,
        Self::ReceiveBufferFull,
        Self::TcpMemoryShort,
        Self::DeviceDropped,
        Self::CompactionStalled,
        Self::QdiscDropped,
    ];
}

/// By how much one of them rose between two reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelCount {
    /// What was counted.
    pub counter: KernelCounter,
    /// Sum over the namespaces that were read.
    pub count: u64,
    /// Windows between both reads.
    pub windows: u32,
    /// From the window of the second read to the one that tells it.
    pub windows_ago: u32,
}

/// Threads of a server that waited for one lock inside of it, while none of its requests was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedThreads {
    /// Its listener.
    pub listener: ListenerKey,
    /// From the window in which it was looked at to the one that tells it.
    pub windows_ago: u32,
    /// So many wait for the lock, …
    pub waiting: u32,
    /// … of so many that the process has.
    pub threads: u32,
    /// Which of them holds it; `None`: the lock does not say, or not one of them.
    pub holder: Option<LockingThread>,
}

/// A thread that holds a lock, as it was seen then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockingThread {
    /// Its id.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// It ran, or wanted to.
    pub runs: bool,
    /// The function of the kernel that it slept in; empty: it ran, or that may not be known.
    pub slept_in: String,
}

/// A process that asks a server of names (DNS) by datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookupsKey {
    /// Its cgroup.
    pub workload: CgroupId,
    /// Its id.
    pub pid: u32,
    /// Inode of the network namespace.
    pub netns: u32,
    /// Whom it asks, at port 53; IPv4 as v4-mapped.
    pub server: std::net::Ipv6Addr,
}

/// Lookups of names that had no answer for a window or longer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingLookups {
    /// How many. A lookup of both families is one; on a socket that asks for many names at once half as many as queries.
    pub lookups: u32,
    /// For how long the longest of them.
    pub longest_ns: u64,
}

/// What a process's threads did in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// One of them was on a CPU.
    Running,
    /// It was off the CPU.
    Waiting,
}

/// A path through the code of a process: samples with the same calls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct CodePath {
    /// From the last window that it is of to that one which tells it, and how many it is of.
    pub windows_ago: u32,
    pub windows: u32,
    /// Whose.
    pub workload: CgroupId,
    pub pid: u32,
    pub comm: String,
    pub doing: Doing,
    /// Samples with these calls, and all that there are of the process.
    pub samples: u32,
    pub of: u32,
    /// Functions, innermost first.
    pub frames: Vec<String>,
    /// Who called the last one could not be found, or is not told.
    pub cut: bool,
}

/// A request that took 200 ms or longer, and where it was. One after the other: without a connection, unread, and inside of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowRequest {
    /// Who was asked.
    pub listener: ListenerKey,
    /// Of its connection, see [`Meeting::pair`]; 0: not known. Of a Unix socket it is the same on this machine alone.
    pub pair: u64,
    /// From its end to the end of the window that tells it.
    pub ended_ago_ns: u64,
    /// Before its connection was there: its client's last ACK was dropped.
    pub retried_ns: u64,
    /// Until it was read, …
    pub unread_ns: u64,
    /// … since before its connection was accepted.
    pub queued: bool,
    /// From when it was read to when its answer began.
    pub inside_ns: u64,
    /// It was not answered.
    pub aborted: bool,
    /// What its thread waited for meanwhile; `None`: its thread had others at the same time, and whose calls those were is not known.
    pub calls: Option<Vec<SlowCall>>,
    /// Such calls that are not among them.
    pub calls_left_out: u32,
}

/// A call of 200 ms or longer, or a connection that took so long to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowCall {
    /// Who was called.
    pub edge: EdgeKey,
    /// Of its connection, as of a request.
    pub pair: u64,
    /// From when the request was read to when the call was sent.
    pub after_ns: u64,
    /// Until its answer began.
    pub took_ns: u64,
    /// No call: the opening of its connection.
    pub connecting: bool,
    /// There was no answer.
    pub aborted: bool,
}

/// What a database told of its locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocking {
    /// Its listener.
    pub listener: ListenerKey,
    /// From the window in which it was asked to the one that tells it.
    pub windows_ago: u32,
    /// Sessions that wait for a lock.
    pub waiting: u32,
    /// Who holds them, whoever most wait for first.
    pub blockers: Vec<Blocker>,
}

/// A session of a database that holds a lock, and waits for none.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

/// Connections to one remote address and port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionSample {
    /// Open, or being opened, when they were last looked at.
    pub open: u32,
}

/// Sums over the machine's CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it: nanoseconds summed over all CPUs, or tasks")]
pub struct MachineCpu {
    pub cpus: u32,
    pub busy_ns: u64,
    pub idle_ns: u64,
    pub iowait_ns: u64,
    pub steal_ns: u64,
    pub switches: u64,
}

/// What the tasks of one cgroup did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Metric")]
pub struct TaskSample {
    pub busy_ns: u64,
    pub wait_ns: u64,
    pub waiting_max: u32,
    pub wait_max_ns: u64,
    pub wait_hist: [u32; HIST_BUCKETS],
    pub switches: u64,
    pub blocked_io_ns: u64,
    pub blocked_io_max: u32,
}

/// A process: the workload that it belongs to is its cgroup's, or its own where servers share a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ProcessKey {
    /// Its cgroup.
    pub cgroup: CgroupId,
    /// Its process id.
    pub pid: u32,
}

/// Threads of a process that a signal or a tracer stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Metric")]
pub struct StoppedSample {
    pub stopped_ns: u64,
    pub stopped_max: u32,
}

/// Block I/O that a cgroup submitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Metric")]
pub struct IoSample {
    pub bytes: u64,
    pub requests: u64,
    pub flushes: u64,
}

/// Memory stalls of a cgroup's tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Metric")]
pub struct MemorySample {
    pub reclaim_ns: u64,
    pub swap_ins: u64,
    pub dirty_throttle_ns: u64,
}

/// One block device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Metric")]
pub struct DeviceSample {
    pub in_flight_ns: u64,
    pub in_flight_max: u32,
    pub issued: u64,
    pub completed: u64,
    pub bytes: u64,
    pub latency_ns: u64,
    pub latency_max_ns: u64,
    pub flushes: u64,
}

/// A listening address. IPv4 is kept as a v4-mapped IPv6 address; all zero (`::`) is the wildcard of both families; that of a Unix socket
/// is one of [`tailwater_proto::is_unix`], with port 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerKey {
    /// Inode of the network namespace.
    pub netns: u32,
    /// Address listened on.
    pub address: std::net::Ipv6Addr,
    /// Host byte order.
    pub port: u16,
    /// The cgroup of the process that called listen(2), else of the first task seen reading from a child.
    pub owner: CgroupId,
    /// Its process id, 0 if not known.
    pub pid: u32,
}

/// A workload's connections to one remote address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeKey {
    /// Who calls.
    pub workload: CgroupId,
    /// Inode of the network namespace.
    pub netns: u32,
    /// IPv4 as v4-mapped.
    pub remote_address: std::net::Ipv6Addr,
    /// Host byte order.
    pub remote_port: u16,
}

/// One end of a connection; the agent that sees the other end tells the same number of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meeting {
    /// 47 bits of a hash of the sequence numbers that it began with.
    pub pair: u64,
    /// Whose this end is.
    pub end: ConnectionEnd,
}

/// Whose one end of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// It was accepted here.
    Accepted(ListenerKey),
    /// It was begun here.
    Connected(EdgeKey),
}

/// A listener's accept queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Metric")]
pub struct AcceptQueueSample {
    pub depth_last: u32,
    pub depth_max: u32,
    pub depth_ns: u64,
    pub limit: u32,
    pub arrivals: u64,
    pub accepts: u64,
    pub wait_max_ns: u64,
    pub drops: u64,
    pub drops_final_ack: u64,
    pub drops_cookie: u64,
    pub drops_repeated: u64,
    pub drops_slow: u64,
    pub syn_ack_retransmits: u64,
}

/// Turns on accepted connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Metric")]
pub struct RequestSample {
    pub received: u64,
    pub answered: u64,
    pub aborted: u64,
    pub late: u64,
    pub very_late: u64,
    pub very_long_retried: u64,
    pub very_long_queued: u64,
    pub very_long_unread: u64,
    pub very_long_inside: u64,
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
    pub response_hist: [u32; RESPONSE_BUCKETS],
    pub multiplexed: MultiplexedSample,
    pub open_last: u32,
    pub open_max: u32,
}

/// What is said of connections with several exchanges at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Metric")]
pub struct MultiplexedSample {
    pub connections: u32,
    pub pieces_in: u64,
    pub pieces_read: u64,
    pub pieces_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub unanswered_max: u32,
    pub unanswered_ns: u64,
}

/// How long listeners had how many requests in flight, over some windows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct States {
    /// Over how many: this one and those before it.
    pub windows: u32,
    /// Those that had a request in flight.
    pub listeners: Vec<(ListenerKey, Vec<StateCell>)>,
}

/// Time and answers in one bin of requests in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: ListenerStates")]
pub struct StateCell {
    pub bin: u8,
    pub time_ns: u64,
    pub answered: u64,
}

/// Turns on connected sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Metric")]
pub struct CallSample {
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
    pub response_hist: [u32; RESPONSE_BUCKETS],
    pub multiplexed: MultiplexedSample,
}

/// Retransmitted segments of connected sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: Metric")]
pub struct RetransmitSample {
    pub syn: u64,
    pub data: u64,
    /// When the retrying connection sent its first SYN, Unix ns; 0: none retried.
    pub first_try_unix_ns: u64,
}

/// A thread that serves several connections of a listener, and read no request in the whole window although some waited: it was
/// outside of its wait for events. What it did instead is told of `span_ns` until some milliseconds after the window's end; what is
/// neither `ran_ns` nor `waited_ns` of it, it slept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: BlockedLoop")]
pub struct BlockedLoop {
    pub listener: ListenerKey,
    pub thread: u32,
    pub comm: String,
    pub silent_ns: u64,
    pub span_ns: u64,
    pub ran_ns: u64,
    pub waited_ns: u64,
    pub uninterruptible: bool,
    pub slept_in: String,
}

/// What the processes of one group of the scheduler had of the CPU between two looks at their threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuShares {
    /// The cgroup that the scheduler has as a group.
    pub cgroup: CgroupId,
    /// Windows from the one in which it was looked last to the one that tells it.
    pub windows_ago: u32,
    /// Time between the two looks.
    pub span_ns: u64,
    /// Those that ran or waited, most first.
    pub processes: Vec<ProcessShare>,
}

/// What one process had of the CPU, and how long its threads waited for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: CpuShare")]
pub struct ProcessShare {
    /// Its own cgroup, which may be one below.
    pub cgroup: CgroupId,
    /// 0: several that are not told apart.
    pub pid: u32,
    pub comm: String,
    pub ran_ns: u64,
    pub waited_ns: u64,
    pub threads: u32,
}

impl ProcessShare {
    /// Time in which its threads ran or wanted to.
    pub fn spent_ns(&self) -> u64 {
        self.ran_ns.saturating_add(self.waited_ns)
    }
}

/// Which resource a culprit used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CulpritResource {
    /// `amount` is ns on CPU.
    Cpu,
    /// `amount` is ns blocked on block I/O.
    IoBlocked,
    /// `amount` is bytes submitted.
    IoBytes,
}

/// A process and what it used in this window.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct CulpritSample {
    pub resource: CulpritResource,
    pub pid: u32,
    pub comm: String,
    pub workload: CgroupId,
    pub amount: u64,
}

/// A listener's drop counter rose; sent ahead of its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "see telemetry.proto: DropEvent")]
pub struct ListenDrop {
    pub listener: ListenerKey,
    pub unix_ns: u64,
    pub count: u64,
    pub packets: u64,
    pub depth: u32,
    pub limit: u32,
    /// When the sampler had it.
    pub read_unix_ns: u64,
}

//! Windows as wire messages: tables of entities, columns of metrics. Owns which value of a window is which metric and that a
//! section which is `None` leaves its metrics out; knows no stream.

mod held;
mod metrics;
mod table;

use crate::config::SignalName;
use crate::name::pool::{Bounds, Pool};
use crate::name::workload::{Edge, Entities, Kind, Listener, Named, Workload};
use crate::signal::{Coverage, SignalKind};
use crate::window::{
    ConnectionEnd, CulpritResource, Doing, EdgeKey, KernelCounter, ListenDrop, ListenerKey, MachineCpu,
    Polled, ProcessKey, States, WINDOW_NS, WaitingLookups, Window,
};
use held::Held;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use table::TableBuilder;
use tailwater_proto::v1::{self, EntityKind, Metric, WindowFlag};

/// Waiters for servers of names that are told of one window.
const LOOKUPS_TOLD_MAX: usize = 64;

/// Which sections a window has, as bits: windows in one batch must agree, because a metric is in all of them or in none.
pub fn sections(window: &Window) -> u32 {
    let there = [
        window.machine_cpu.is_some(),
        window.tasks.is_some(),
        window.stopped.is_some(),
        window.throttled.is_some(),
        window.io.is_some(),
        window.memory.is_some(),
        window.devices.is_some(),
        window.accept_queues.is_some(),
        window.requests.is_some(),
        window.calls.is_some(),
        window.retransmits.is_some(),
        window.connections.is_some(),
    ];
    let bits = there.iter().enumerate().fold(0, |bits, (i, there)| bits | (u32::from(*there) << i));
    bits | (u32::from(window.polled.bits()) << there.len())
}

/// What the host's own row needs beside the windows.
#[derive(Debug, Clone, Copy)]
pub struct HostView<'a> {
    /// CPUs of the machine that were online when the agent began.
    pub cpus: u32,
    /// The scope's path, if the agent speaks for a scope.
    pub scope: Option<&'a str>,
}

/// Encodes batches; remembers limits that the signals tell only when they see them.
#[derive(Debug, Default)]
pub struct Encoder {
    held: Held,
}

impl Encoder {
    /// What is gone has no limits any more.
    pub fn forget(&mut self, named: &[Named]) {
        let gone = named.iter().filter_map(|n| match n {
            Named::Gone(kind, id) => Some((entity_kind(*kind), *id)),
            _ => None,
        });
        self.held.forget(&gone.collect());
    }

    /// `windows` are consecutive, at most 64, and have the same sections. Sequence and losses are for the caller to fill in.
    pub fn batch(
        &mut self,
        windows: &[Window],
        entities: &mut Entities,
        host: HostView<'_>,
        coverage: &[Coverage],
    ) -> v1::WindowBatch {
        let count = windows.len();
        // CPUs come and go while the agent runs; where they are not measured, those that it began with count.
        let online = windows.iter().rev().find_map(|w| w.machine_cpu.as_ref().map(|c| c.cpus));
        let host = HostView { cpus: online.unwrap_or(host.cpus), ..host };
        let mut tables = vec![host_table(windows, entities, host)];
        tables.push(self.workload_table(windows, entities, host));
        tables.push(self.listener_table(windows, entities));
        tables.push(edge_table(windows, entities));
        tables.push(device_table(windows, entities));
        tables.retain(|t| !t.columns.is_empty());
        v1::WindowBatch {
            sequence: 0,
            first_window: windows.first().map_or(0, |w| w.index.0),
            window_count: u32::try_from(count).unwrap_or(0),
            flags: windows.iter().map(flags).collect(),
            tables,
            culprits: culprits(windows, entities),
            in_flight_states: states(windows, entities),
            blocked_loops: blocked_loops(windows, entities),
            cpu_shares: cpu_shares(windows, entities),
            meetings: meetings(windows, entities),
            kernel_counts: kernel_counts(windows),
            blockings: blockings(windows, entities),
            locked_threads: locked_threads(windows, entities),
            waiting_lookups: waiting_lookups(windows, entities),
            slow_requests: slow_requests(windows, entities),
            code_paths: code_paths(windows, entities),
            windows_lost: 0,
            uncovered: uncovered(windows.first(), coverage),
        }
    }

    fn workload_table(&self, windows: &[Window], entities: &mut Entities, host: HostView<'_>) -> v1::Table {
        let mut b = TableBuilder::new(EntityKind::Workload, windows.len());
        let tasks = b.section(windows, |w| w.tasks.as_deref(), |c| entities.row(*c));
        let stopped = b.section(windows, |w| w.stopped.as_deref(), |p| entities.process(*p));
        let io = b.section(windows, |w| w.io.as_deref(), |c| entities.row(*c));
        let memory = b.section(windows, |w| w.memory.as_deref(), |c| entities.row(*c));
        let polled = polled(windows);
        if polled.tasks {
            b.columns(tasks.as_deref(), metrics::TASK_POLLED);
            if polled.blocked_io {
                b.columns(tasks.as_deref(), metrics::BLOCKED_POLLED);
            }
        } else {
            b.columns(tasks.as_deref(), metrics::TASK);
            b.histogram(tasks.as_deref(), Metric::RunQueueWaitHist, |s| &s.wait_hist);
        }
        b.columns(stopped.as_deref(), metrics::STOPPED);
        b.columns(io.as_deref(), metrics::IO);
        b.columns(memory.as_deref(), if polled.memory { metrics::MEMORY_POLLED } else { metrics::MEMORY });
        let per_cgroup: Vec<(u32, u64)> =
            b.ids().map(|id| (id, capacity_ns(entities.quota_ns(id), host.cpus))).collect();
        if tasks.is_some() {
            b.constant(Metric::CpuCapacityNs, &per_cgroup);
        }
        if windows.first().is_some_and(|w| w.throttled.is_some()) {
            let ids: Vec<u32> = b.ids().collect();
            let value = |id: u32, window: &Window| entities.throttled_ns(id, window);
            b.computed(Metric::CpuThrottledNs, windows, &ids, value);
        }
        b.build()
    }

    fn listener_table(&mut self, windows: &[Window], entities: &mut Entities) -> v1::Table {
        let mut b = TableBuilder::new(EntityKind::Listener, windows.len());
        let queues = b.section(windows, |w| w.accept_queues.as_deref(), |k| entities.listener(*k));
        let requests = b.section(windows, |w| w.requests.as_deref(), |k| entities.listener(*k));
        let polled = polled(windows).accept_queues;
        b.columns(
            queues.as_deref(),
            if polled { metrics::ACCEPT_QUEUE_POLLED } else { metrics::ACCEPT_QUEUE },
        );
        b.columns(requests.as_deref(), metrics::REQUESTS);
        b.histogram(requests.as_deref(), Metric::ResponseTimeHist, |s| &s.response_hist);
        // Limits, not counts: a window that does not tell them has the one before's.
        b.hold(Metric::AcceptQueueLimit, &mut self.held);
        b.hold(Metric::WorkersSeen, &mut self.held);
        b.build()
    }
}

/// Which sections of a batch hold less, the same in each of its windows.
fn polled(windows: &[Window]) -> Polled {
    windows.first().map(|w| w.polled).unwrap_or_default()
}

fn flags(window: &Window) -> u32 {
    let mut bits = WindowFlag::None as u32;
    if window.clock_corrected {
        bits |= WindowFlag::ClockCorrected as u32;
    }
    if window.late {
        bits |= WindowFlag::Late as u32;
    }
    bits
}

/// CPU time that one window offers: the quota, if it binds, else all CPUs.
fn capacity_ns(quota_ns: u64, cpus: u32) -> u64 {
    let machine = u64::from(cpus) * WINDOW_NS;
    if quota_ns == 0 { machine } else { quota_ns.min(machine) }
}

fn host_table(windows: &[Window], entities: &Entities, host: HostView<'_>) -> v1::Table {
    let mut b = TableBuilder::new(EntityKind::Host, windows.len());
    b.row(0);
    let quota = host.scope.and_then(|s| entities.tree().nearest_quota(s));
    let capacity = capacity_ns(quota.map_or(0, |q| q.per_window_ns), host.cpus);
    let has = |f: fn(&Window) -> bool| windows.first().is_some_and(f);
    let mut each = |metric, f: &dyn Fn(&Window) -> u64| {
        b.computed(metric, windows, &[0], |_, w| f(w));
    };
    if has(|w| w.tasks.is_some()) {
        let sum = |f: fn(&crate::window::TaskSample) -> u64| {
            move |w: &Window| w.tasks.iter().flatten().map(|(_, t)| f(t)).sum::<u64>()
        };
        let wait_ns = sum(|t| t.wait_ns);
        each(Metric::RunQueueWaitNs, &wait_ns);
        // Workloads do not peak together for certain. The largest of them, and the average of all, surely were waiting.
        each(Metric::RunQueueWaitingMax, &|w| {
            let largest = w.tasks.iter().flatten().map(|(_, t)| t.waiting_max).max();
            u64::from(largest.unwrap_or(0)).max(wait_ns(w).div_ceil(WINDOW_NS))
        });
        let polled = polled(windows);
        if !polled.tasks {
            each(Metric::RunQueueSwitches, &sum(|t| t.switches));
        }
        if !polled.tasks || polled.blocked_io {
            each(Metric::BlockedIoNs, &sum(|t| t.blocked_io_ns));
        }
        if host.scope.is_some() {
            let busy_ns = sum(|t| t.busy_ns);
            each(Metric::CpuBusyNs, &busy_ns);
            each(Metric::CpuIdleNs, &|w| capacity.saturating_sub(busy_ns(w)));
            each(Metric::CpuCapacityNs, &|_| capacity);
        }
    }
    if host.scope.is_none() && has(|w| w.machine_cpu.is_some()) {
        let of = |f: fn(&MachineCpu) -> u64| move |w: &Window| w.machine_cpu.as_ref().map_or(0, f);
        each(Metric::CpuBusyNs, &of(|c| c.busy_ns));
        each(Metric::CpuIdleNs, &of(|c| c.idle_ns));
        each(Metric::CpuIowaitNs, &of(|c| c.iowait_ns));
        each(Metric::CpuStealNs, &of(|c| c.steal_ns));
        each(Metric::CpuCapacityNs, &of(|c| u64::from(c.cpus) * WINDOW_NS));
    }
    if has(|w| w.throttled.is_some())
        && let Some(quota) = quota
    {
        let id = quota.cgroup;
        each(Metric::CpuThrottledNs, &|w| {
            let rows = w.throttled.iter().flatten();
            rows.filter(|(c, _)| *c == id).map(|(_, ns)| ns).sum()
        });
    }
    b.build()
}

fn edge_table(windows: &[Window], entities: &mut Entities) -> v1::Table {
    let mut b = TableBuilder::new(EntityKind::Edge, windows.len());
    let calls = b.section(windows, |w| w.calls.as_deref(), |k| entities.edge(*k));
    let resent = b.section(windows, |w| w.retransmits.as_deref(), |k| entities.edge(*k));
    let open = b.section(windows, |w| w.connections.as_deref(), |k| entities.edge(*k));
    b.columns(open.as_deref(), metrics::CONNECTIONS);
    b.columns(calls.as_deref(), metrics::CALLS);
    b.histogram(calls.as_deref(), Metric::ResponseTimeHist, |s| &s.response_hist);
    b.columns(resent.as_deref(), metrics::RETRANSMITS);
    b.build()
}

fn device_table(windows: &[Window], entities: &mut Entities) -> v1::Table {
    let mut b = TableBuilder::new(EntityKind::Device, windows.len());
    let devices = b.section(windows, |w| w.devices.as_deref(), |name| entities.device(name));
    let polled = polled(windows).devices;
    b.columns(devices.as_deref(), if polled { metrics::DEVICE_POLLED } else { metrics::DEVICE });
    b.build()
}

fn culprits(windows: &[Window], entities: &mut Entities) -> Vec<v1::Culprit> {
    use v1::culprit::{Resource, Unit};
    let mut found = Vec::new();
    for (offset, window) in (0_u32..).zip(windows) {
        for c in &window.culprits {
            let (resource, unit) = match c.resource {
                CulpritResource::Cpu => (Resource::Cpu, Unit::Ns),
                CulpritResource::IoBlocked => (Resource::Io, Unit::Ns),
                CulpritResource::IoBytes => (Resource::Io, Unit::Bytes),
            };
            found.push(v1::Culprit {
                resource: resource as i32,
                window_offset: offset,
                pid: c.pid,
                comm: c.comm.clone(),
                workload: entities.process(ProcessKey { cgroup: c.workload, pid: c.pid }),
                amount: c.amount,
                unit: unit as i32,
            });
        }
    }
    found
}

fn blocked_loops(windows: &[Window], entities: &mut Entities) -> Vec<v1::BlockedLoop> {
    let all = (0_u32..).zip(windows).flat_map(|(offset, w)| w.blocked_loops.iter().map(move |l| (offset, l)));
    all.map(|(window_offset, l)| v1::BlockedLoop {
        window_offset,
        listener: entities.listener(l.listener),
        thread: l.thread,
        comm: l.comm.clone(),
        silent_ns: l.silent_ns,
        span_ns: l.span_ns,
        ran_ns: l.ran_ns,
        waited_ns: l.waited_ns,
        uninterruptible: l.uninterruptible,
        slept_in: l.slept_in.clone(),
    })
    .collect()
}

fn meetings(windows: &[Window], entities: &mut Entities) -> Vec<v1::Meeting> {
    let all = (0_u32..).zip(windows).flat_map(|(offset, w)| w.meetings.iter().map(move |m| (offset, m)));
    all.map(|(window_offset, meeting)| {
        let end = match meeting.end {
            ConnectionEnd::Accepted(key) => v1::meeting::End::Listener(entities.listener(key)),
            ConnectionEnd::Connected(key) => v1::meeting::End::Edge(entities.edge(key)),
        };
        v1::Meeting { window_offset, pair: meeting.pair, end: Some(end) }
    })
    .collect()
}

fn blockings(windows: &[Window], entities: &mut Entities) -> Vec<v1::Blocking> {
    let all = (0_u32..).zip(windows).flat_map(|(offset, w)| w.blockings.iter().map(move |b| (offset, b)));
    all.map(|(window_offset, of)| v1::Blocking {
        window_offset,
        windows_ago: of.windows_ago,
        listener: entities.listener(of.listener),
        waiting: of.waiting,
        blockers: of
            .blockers
            .iter()
            .map(|by| v1::Blocker {
                connection: by.connection,
                waiting: by.waiting,
                idle: by.idle,
                held_ms: by.held_ms,
                statement: by.statement.clone(),
            })
            .collect(),
    })
    .collect()
}

fn locked_threads(windows: &[Window], entities: &mut Entities) -> Vec<v1::LockedThreads> {
    let all =
        (0_u32..).zip(windows).flat_map(|(offset, w)| w.locked_threads.iter().map(move |t| (offset, t)));
    all.map(|(window_offset, of)| v1::LockedThreads {
        window_offset,
        windows_ago: of.windows_ago,
        listener: entities.listener(of.listener),
        waiting: of.waiting,
        threads: of.threads,
        holder: of.holder.as_ref().map(|by| v1::LockingThread {
            tid: by.tid,
            comm: by.comm.clone(),
            runs: by.runs,
            slept_in: by.slept_in.clone(),
        }),
    })
    .collect()
}

/// Of each window those of whom most lookups wait: processes of one workload that ask the same server are told together.
fn waiting_lookups(windows: &[Window], entities: &mut Entities) -> Vec<v1::WaitingLookups> {
    let mut all = Vec::new();
    for (window_offset, window) in (0_u32..).zip(windows) {
        let mut by_whom: BTreeMap<(u32, Ipv6Addr), WaitingLookups> = BTreeMap::new();
        for (key, of) in &window.lookups {
            let workload = entities.process(ProcessKey { cgroup: key.workload, pid: key.pid });
            let sum = by_whom.entry((workload, key.server)).or_default();
            sum.lookups = sum.lookups.saturating_add(of.lookups);
            sum.longest_ns = sum.longest_ns.max(of.longest_ns);
        }
        let mut told: Vec<_> = by_whom.into_iter().filter(|((workload, _), _)| *workload != 0).collect();
        told.sort_by_key(|(_, of)| std::cmp::Reverse(of.lookups));
        told.truncate(LOOKUPS_TOLD_MAX);
        all.extend(told.into_iter().map(|((workload, server), of)| v1::WaitingLookups {
            window_offset,
            workload,
            server: address(server),
            lookups: of.lookups,
            longest_ns: of.longest_ns,
        }));
    }
    all
}

fn slow_requests(windows: &[Window], entities: &mut Entities) -> Vec<v1::SlowRequest> {
    let all = (0_u32..).zip(windows).flat_map(|(offset, w)| w.slow_requests.iter().map(move |r| (offset, r)));
    let mut told = Vec::new();
    for (window_offset, request) in all {
        let calls = request.calls.iter().flatten().map(|call| v1::SlowCall {
            edge: entities.edge(call.edge),
            pair: call.pair,
            after_ns: call.after_ns,
            took_ns: call.took_ns,
            connecting: call.connecting,
            aborted: call.aborted,
        });
        let calls = calls.collect();
        told.push(v1::SlowRequest {
            window_offset,
            listener: entities.listener(request.listener),
            pair: request.pair,
            ended_ago_ns: request.ended_ago_ns,
            retried_ns: request.retried_ns,
            unread_ns: request.unread_ns,
            queued: request.queued,
            inside_ns: request.inside_ns,
            aborted: request.aborted,
            calls_known: request.calls.is_some(),
            calls,
            calls_left_out: request.calls_left_out,
        });
    }
    told
}

fn code_paths(windows: &[Window], entities: &mut Entities) -> Vec<v1::CodePath> {
    let all = (0_u32..).zip(windows).flat_map(|(offset, w)| w.code_paths.iter().map(move |p| (offset, p)));
    let doing = |doing| match doing {
        Doing::Running => v1::code_path::Doing::Running,
        Doing::Waiting => v1::code_path::Doing::Waiting,
    };
    all.map(|(window_offset, path)| v1::CodePath {
        window_offset,
        windows_ago: path.windows_ago,
        windows: path.windows,
        workload: entities.process(ProcessKey { cgroup: path.workload, pid: path.pid }),
        pid: path.pid,
        comm: path.comm.clone(),
        doing: doing(path.doing).into(),
        samples: path.samples,
        of: path.of,
        frames: path.frames.clone(),
        cut: path.cut,
    })
    .collect()
}

fn kernel_counts(windows: &[Window]) -> Vec<v1::KernelCount> {
    let all = (0_u32..).zip(windows).flat_map(|(offset, w)| w.kernel_counts.iter().map(move |c| (offset, c)));
    all.map(|(window_offset, of)| v1::KernelCount {
        window_offset,
        windows_ago: of.windows_ago,
        windows: of.windows,
        counter: kernel_counter(of.counter).into(),
        count: of.count,
    })
    .collect()
}

fn kernel_counter(counter: KernelCounter) -> v1::KernelCounter {
    match counter {
        KernelCounter::ConntrackDropped => v1::KernelCounter::ConntrackDropped,
        KernelCounter::BacklogDropped => v1::KernelCounter::BacklogDropped,
        KernelCounter::BacklogSqueezed => v1::KernelCounter::BacklogSqueezed,
        KernelCounter::ZeroWindow => v1::KernelCounter::ZeroWindow,
        KernelCounter::ReceiveBufferFull => v1::KernelCounter::ReceiveBufferFull,
        KernelCounter::TcpMemoryShort => v1::KernelCounter::TcpMemoryShort,
        KernelCounter::DeviceDropped => v1::KernelCounter::DeviceDropped,
        KernelCounter::CompactionStalled => v1::KernelCounter::CompactionStalled,
        KernelCounter::QdiscDropped => v1::KernelCounter::QdiscDropped,
    }
}

/// By server, or by command where a cgroup holds several and a process belongs to none; servers first, then who spent most.
fn cpu_shares(windows: &[Window], entities: &mut Entities) -> Vec<v1::CpuShares> {
    let all = (0_u32..).zip(windows).flat_map(|(offset, w)| w.cpu_shares.iter().map(move |s| (offset, s)));
    all.map(|(window_offset, of)| {
        let mut neighbours: BTreeMap<(u32, &str), v1::CpuShare> = BTreeMap::new();
        for process in &of.processes {
            let own = entities.workload(process.cgroup);
            let server = entities.process(ProcessKey { cgroup: process.cgroup, pid: process.pid });
            let is_mixed = process.cgroup == of.cgroup || entities.told_apart(process.cgroup);
            let comm = if server == own && is_mixed { process.comm.as_str() } else { "" };
            let sum = neighbours.entry((server, comm)).or_insert_with(|| v1::CpuShare {
                workload: server,
                comm: comm.to_owned(),
                ..v1::CpuShare::default()
            });
            sum.ran_ns = sum.ran_ns.saturating_add(process.ran_ns);
            sum.waited_ns = sum.waited_ns.saturating_add(process.waited_ns);
            sum.threads = sum.threads.saturating_add(process.threads);
        }
        let mut neighbours: Vec<v1::CpuShare> = neighbours.into_values().collect();
        neighbours.sort_by_key(|of| {
            (!of.comm.is_empty(), std::cmp::Reverse(of.ran_ns.saturating_add(of.waited_ns)))
        });
        v1::CpuShares {
            window_offset,
            workload: entities.workload(of.cgroup),
            windows_ago: of.windows_ago,
            span_ns: of.span_ns,
            neighbours,
        }
    })
    .collect()
}

fn states(windows: &[Window], entities: &mut Entities) -> Vec<v1::InFlightStates> {
    let told = (0_u32..).zip(windows).filter_map(|(offset, window)| Some((offset, window.states.as_ref()?)));
    let of = |(offset, states): (u32, &States)| v1::InFlightStates {
        window_offset: offset,
        windows: states.windows,
        listeners: states
            .listeners
            .iter()
            .map(|(key, cells)| v1::ListenerStates {
                listener: entities.listener(*key),
                bins: cells.iter().map(|cell| u32::from(cell.bin)).collect(),
                time_ns: cells.iter().map(|cell| cell.time_ns).collect(),
                answered: cells.iter().map(|cell| cell.answered).collect(),
            })
            .collect(),
    };
    told.map(of).collect()
}

/// Signals that the Hello covers and this window has no section of.
fn uncovered(window: Option<&Window>, coverage: &[Coverage]) -> Vec<i32> {
    let Some(w) = window else {
        return Vec::new();
    };
    let there = |signal| match signal {
        SignalKind::Cpu | SignalKind::RunQueue => w.tasks.is_some(),
        SignalKind::BlockIo => w.io.is_some() || w.devices.is_some(),
        SignalKind::Memory => w.memory.is_some(),
        SignalKind::AcceptQueue => w.accept_queues.is_some(),
        SignalKind::Requests => w.requests.is_some(),
        SignalKind::Calls => w.calls.is_some(),
        SignalKind::Retransmits => w.retransmits.is_some(),
        SignalKind::Throttling => w.throttled.is_some(),
    };
    coverage.iter().filter(|c| c.covered && !there(c.signal)).map(|c| signal(c.signal) as i32).collect()
}

/// The wire's number of a signal.
pub fn signal(kind: SignalKind) -> v1::Signal {
    match kind {
        SignalKind::Cpu => v1::Signal::Cpu,
        SignalKind::RunQueue => v1::Signal::RunQueue,
        SignalKind::BlockIo => v1::Signal::BlockIo,
        SignalKind::Memory => v1::Signal::Memory,
        SignalKind::AcceptQueue => v1::Signal::AcceptQueue,
        SignalKind::Requests => v1::Signal::Requests,
        SignalKind::Calls => v1::Signal::Calls,
        SignalKind::Retransmits => v1::Signal::Retransmits,
        SignalKind::Throttling => v1::Signal::Throttling,
    }
}

/// The signal of a number on the wire; `None`: a later version's.
pub fn signal_kind(number: i32) -> Option<SignalKind> {
    SignalName::all().map(|s| s.0).find(|kind| signal(*kind) as i32 == number)
}

/// Coverage as the Hello tells it.
pub fn coverage(coverage: &[Coverage]) -> Vec<v1::SignalCoverage> {
    coverage
        .iter()
        .map(|c| v1::SignalCoverage {
            signal: signal(c.signal) as i32,
            covered: c.covered,
            sampled: c.sampled,
            hook: c.hook.clone(),
            reason: c.reason.clone(),
        })
        .collect()
}

/// Four bytes for a v4-mapped address, else sixteen.
pub fn address(address: Ipv6Addr) -> Vec<u8> {
    address.to_ipv4_mapped().map_or_else(|| address.octets().to_vec(), |v4| v4.octets().to_vec())
}

/// Puts what was named into one message.
pub fn entities<'a>(named: impl Iterator<Item = &'a Named>) -> v1::Entities {
    let mut out = v1::Entities::default();
    for item in named {
        match item {
            Named::Workload(w) => out.workloads.push(workload(w)),
            Named::Listener(l) => out.listeners.push(listener(l)),
            Named::Edge(e) => out.edges.push(edge(e)),
            Named::Device(d) => out.devices.push(v1::Device { id: d.id, name: d.name.clone() }),
            Named::Gone(kind, id) => gone_of(&mut out, *kind).push(*id),
        }
    }
    out
}

/// Puts ids that are gone into one message.
pub fn gone<'a>(ids: impl Iterator<Item = &'a (Kind, u32)>) -> v1::Entities {
    let mut out = v1::Entities::default();
    for (kind, id) in ids {
        gone_of(&mut out, *kind).push(*id);
    }
    out
}

fn gone_of(out: &mut v1::Entities, kind: Kind) -> &mut Vec<u32> {
    match kind {
        Kind::Workload => &mut out.gone_workloads,
        Kind::Listener => &mut out.gone_listeners,
        Kind::Edge => &mut out.gone_edges,
        Kind::Device => &mut out.gone_devices,
    }
}

/// As the wire calls it.
pub fn entity_kind(kind: Kind) -> EntityKind {
    match kind {
        Kind::Workload => EntityKind::Workload,
        Kind::Listener => EntityKind::Listener,
        Kind::Edge => EntityKind::Edge,
        Kind::Device => EntityKind::Device,
    }
}

fn workload(w: &Workload) -> v1::Workload {
    v1::Workload {
        id: w.id,
        cgroup: w.cgroup.to_string(),
        name: w.names.name.clone(),
        unit: w.names.unit.clone(),
        container: w.names.container.clone(),
        comm: w.comm.clone(),
        cpu_quota_ns: w.cpu_quota_ns,
        shares: w.shares,
    }
}

/// Of what has no path, the empty one.
fn text(path: Option<&str>) -> String {
    path.unwrap_or_default().to_owned()
}

fn listener(l: &Listener) -> v1::Listener {
    let ListenerKey { netns, port, pid, .. } = l.key;
    v1::Listener {
        id: l.id,
        workload: l.workload,
        address: address(l.key.address),
        port: u32::from(port),
        netns: u64::from(netns),
        comm: l.comm.clone(),
        pid,
        path: text(l.path.as_deref()),
        pool: l.pool.as_ref().map(pool),
        started_with: l.started_with,
    }
}

fn pool(of: &Pool) -> v1::Pool {
    let Bounds { open_files, memory_limit_bytes, memory_used_bytes, processes } = of.bounds;
    v1::Pool {
        size: of.size,
        set_by: of.set_by.clone(),
        open_files,
        memory_limit_bytes,
        memory_used_bytes,
        processes,
        held_by_connection: of.held_by_connection,
    }
}

fn edge(e: &Edge) -> v1::Edge {
    let EdgeKey { netns, remote_port, .. } = e.key;
    v1::Edge {
        id: e.id,
        workload: e.workload,
        remote_address: address(e.key.remote_address),
        remote_port: u32::from(remote_port),
        netns: u64::from(netns),
        path: text(e.path.as_deref()),
    }
}

/// A drop event; `sequence` is for the stream to fill in.
pub fn drop_event(drop: &ListenDrop, entities: &mut Entities) -> v1::DropEvent {
    v1::DropEvent {
        listener: entities.listener(drop.listener),
        unix_ns: drop.unix_ns,
        count: drop.count,
        depth: drop.depth,
        limit: drop.limit,
        sequence: 0,
        read_unix_ns: drop.read_unix_ns,
        sent_unix_ns: 0,
        packets: Some(drop.packets),
    }
}

#[cfg(test)]
mod tests;

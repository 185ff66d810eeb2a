//! What one tier, one workload or the calls between two were in a window. Owns what "queued requests" means; knows no threshold.

use super::{Series, mean};
use crate::frame::history::History;
use crate::topology::tier::Tier;
use tailwater_model::window::{EntityId, HostWindow, mostly_multiplexed};

/// A tier in one window: its listeners together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TierSample {
    /// Requests read and not answered, mean.
    pub(crate) active: f64,
    /// Requests that nobody read yet: unread bytes and unaccepted connections, mean.
    pub(crate) waiting: f64,
    /// Unaccepted connections alone, mean.
    pub(crate) backlog: f64,
    /// Most queued requests.
    pub(crate) queued_max: f64,
    pub(crate) depth_max: u32,
    pub(crate) limit: u32,
    pub(crate) workers_busy_max: u32,
    pub(crate) workers_seen: u32,
    pub(crate) worker_shared_max: u32,
    pub(crate) received: f64,
    pub(crate) answered: f64,
    /// Requests that came: read, or entered the accept queue, whichever is more.
    pub(crate) arrivals: f64,
    /// Connections that were accepted; 0 where that is not seen.
    pub(crate) accepts: f64,
    /// Connections that entered the accept queue.
    pub(crate) connected: f64,
    pub(crate) drops: u64,
    pub(crate) response_ns: f64,
    /// Its connections carry several exchanges at once. Requests, those who work at them and their times are not known then: `received` and
    /// `answered` count reads and writes, `waiting` has the pieces of data that came since their connection last spoke.
    pub(crate) connections_only: bool,
    /// Of those connections: how many there are, and of how many data came that nobody reads, mean.
    pub(crate) connections: u32,
    pub(crate) unread: f64,
}

impl TierSample {
    /// Of most of its connections, each of which carries several exchanges, data came that nobody reads. A client that waits for answers before
    /// it asks anew sends little more, so how much came says nothing.
    pub(crate) fn is_deaf(&self) -> bool {
        self.connections_only && self.connections > 0 && 2.0 * self.unread >= f64::from(self.connections)
    }

    pub(crate) fn queued(&self) -> f64 {
        self.active + self.waiting
    }

    /// Requests that came, also those that it dropped.
    pub(crate) fn came(&self) -> f64 {
        self.arrivals + self.drops as f64
    }

    /// Connections that came, also those that it dropped.
    pub(crate) fn connections_came(&self) -> f64 {
        self.connected + self.drops as f64
    }
}

/// Calls of one workload to one remote in one window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CallSample {
    pub(crate) in_flight: f64,
    pub(crate) in_flight_max: u32,
    pub(crate) open_max: u32,
    pub(crate) started: f64,
    /// Answers; where calls are not known, pieces of data that came.
    pub(crate) answered: f64,
    /// Connection attempts.
    pub(crate) connects: f64,
    /// The same minus established ones.
    pub(crate) connecting: f64,
    pub(crate) syn_retransmits: u64,
    /// Segments with data that were sent again.
    pub(crate) data_retransmits: u64,
    /// Calls are not known: `in_flight` are pieces of data that were sent since their connection last spoke.
    pub(crate) connections_only: bool,
}

/// A tier's listeners in one window, together.
pub(crate) fn tier_sample(window: &HostWindow, tier: &Tier) -> TierSample {
    let mut sum = TierSample::default();
    let (mut pieces, mut turns, mut in_flight_ns, mut open) = (0_u64, 0_u64, 0_u64, 0_u32);
    for l in tier.listeners.iter().filter_map(|l| window.listeners.get(&l.id)) {
        sum.backlog += mean(l.depth_ns);
        sum.depth_max = sum.depth_max.saturating_add(l.depth_max);
        sum.limit = sum.limit.max(l.limit);
        sum.drops = sum.drops.saturating_add(l.drops);
        sum.connected += l.arrivals as f64;
        open = open.saturating_add(l.open_max);
        if l.connections_only() {
            pieces = pieces.saturating_add(l.pieces_in);
            sum.connections = sum.connections.saturating_add(l.multiplexed_connections);
            sum.unread += mean(l.unread_ns);
            sum.waiting += mean(l.unanswered_ns) + mean(l.depth_ns);
            sum.queued_max += f64::from(l.unanswered_max) + f64::from(l.depth_max);
            sum.received += l.pieces_read as f64;
            sum.answered += l.pieces_out as f64;
            sum.arrivals += l.pieces_in.max(l.arrivals) as f64;
            continue;
        }
        turns = turns.saturating_add(l.received);
        in_flight_ns = in_flight_ns.saturating_add(l.in_flight_ns);
        sum.active += mean(l.in_flight_ns);
        sum.waiting += mean(l.unread_ns) + mean(l.depth_ns);
        sum.queued_max += f64::from(l.in_flight_max) + mean(l.unread_ns) + f64::from(l.depth_max);
        sum.workers_busy_max = sum.workers_busy_max.saturating_add(l.workers_busy_max);
        sum.workers_seen = sum.workers_seen.saturating_add(l.workers_seen);
        sum.worker_shared_max = sum.worker_shared_max.max(l.worker_shared_max);
        sum.received += l.received as f64;
        sum.answered += l.answered as f64;
        sum.accepts += l.accepts as f64;
        sum.arrivals += l.received.max(l.arrivals) as f64;
        sum.response_ns += l.response_ns as f64;
    }
    // One listener with a few such connections beside one whose requests are known does not make these unknown.
    sum.connections_only = mostly_multiplexed(sum.connections, open, pieces, turns, in_flight_ns);
    sum
}

pub(crate) fn tier_series(
    history: &History,
    host: &str,
    tier: &Tier,
    first: u64,
    last: u64,
) -> Series<TierSample> {
    limits_stay(Series::draw(history, host, first, last, |window| tier_sample(window, tier)))
}

/// A limit that did not change need not be sent again.
pub(super) fn limits_stay(mut series: Series<TierSample>) -> Series<TierSample> {
    let mut limit = 0;
    for sample in series.values.iter_mut().flatten() {
        limit = if sample.limit == 0 { limit } else { sample.limit };
        sample.limit = limit;
    }
    series
}

/// Calls by these edges of a host in one window, together.
pub(crate) fn call_sample(window: &HostWindow, edges: &[EntityId]) -> CallSample {
    let mut sum = CallSample::default();
    for e in edges.iter().filter_map(|e| window.edges.get(e)) {
        sum.open_max = sum.open_max.saturating_add(e.open_max);
        sum.connects += e.connects as f64;
        sum.connecting += e.connects as f64 - e.established as f64;
        sum.syn_retransmits = sum.syn_retransmits.saturating_add(e.syn_retransmits);
        sum.data_retransmits = sum.data_retransmits.saturating_add(e.data_retransmits);
        if e.connections_only() {
            sum.connections_only = true;
            sum.in_flight += mean(e.unanswered_ns);
            sum.started += e.pieces_out as f64;
            sum.answered += e.pieces_in as f64;
            continue;
        }
        sum.in_flight += mean(e.in_flight_ns);
        sum.in_flight_max = sum.in_flight_max.saturating_add(e.in_flight_max);
        sum.started += e.started as f64;
        sum.answered += e.answered as f64;
    }
    sum
}

pub(crate) fn call_series(
    history: &History,
    host: &str,
    edges: &[EntityId],
    first: u64,
    last: u64,
) -> Series<CallSample> {
    Series::draw(history, host, first, last, |window| call_sample(window, edges))
}

/// A workload's use of its host, with what the host had.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct UseSample {
    /// All of the host's (or scope's) CPU in the window, in windows of one CPU; 0: not covered.
    pub(crate) capacity: f64,
    pub(crate) host_busy: f64,
    pub(crate) host_throttled: f64,
    pub(crate) host_steal: f64,
    /// The workload's own quota; 0: none.
    pub(crate) quota: f64,
    pub(crate) busy: f64,
    /// Tasks waiting for a CPU, mean.
    pub(crate) wait: f64,
    pub(crate) throttled: f64,
    /// Tasks blocked on block I/O, mean.
    pub(crate) blocked_io: f64,
    pub(crate) stalled_memory: f64,
    pub(crate) swap_ins: u64,
    /// Requests in flight at the busiest device, mean.
    pub(crate) device_in_flight: f64,
    /// Threads that a signal or a tracer stopped, mean; of the server alone, also where it shares its cgroup.
    pub(crate) stopped: f64,
    pub(crate) stopped_max: u32,
}

pub(crate) fn use_series(
    history: &History,
    host: &str,
    workload: EntityId,
    first: u64,
    last: u64,
) -> Series<UseSample> {
    let measured = history.measured_under(host, workload);
    let drawn = Series::draw(history, host, first, last, |window| measured_use(window, workload, measured));
    with_quota(drawn, quota_of(history, host, workload))
}

/// A workload's quota as its host names it, in windows of one CPU; 0: none.
pub(super) fn quota_of(history: &History, host: &str, workload: EntityId) -> f64 {
    let info = history.hosts.get(host).and_then(|h| h.workloads.get(&workload));
    info.map_or(0.0, |w| mean(w.cpu_quota_ns))
}

pub(super) fn with_quota(mut series: Series<UseSample>, quota: f64) -> Series<UseSample> {
    series.values.iter_mut().flatten().for_each(|sample| sample.quota = quota);
    series
}

/// What one window says of a workload that is measured under another one or itself. Its quota is in no window.
pub(super) fn measured_use(window: &HostWindow, workload: EntityId, measured: EntityId) -> UseSample {
    let own = window.workloads.get(&measured).copied().unwrap_or_default();
    let server = window.workloads.get(&workload).copied().unwrap_or_default();
    let cpu = window.cpu.unwrap_or_default();
    UseSample {
        capacity: mean(cpu.capacity_ns),
        host_busy: mean(cpu.busy_ns),
        host_throttled: mean(cpu.throttled_ns.unwrap_or(0)),
        host_steal: mean(cpu.steal_ns),
        quota: 0.0,
        busy: mean(own.busy_ns),
        wait: mean(own.wait_ns),
        throttled: mean(own.throttled_ns.unwrap_or(0)),
        blocked_io: mean(own.blocked_io_ns),
        stalled_memory: mean(own.reclaim_ns.saturating_add(own.dirty_throttle_ns)),
        swap_ins: own.swap_ins,
        device_in_flight: window.devices.values().map(|d| mean(d.in_flight_ns)).fold(0.0, f64::max),
        stopped: mean(server.stopped_ns.unwrap_or(0)),
        stopped_max: server.stopped_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tier::ListenerName;
    use tailwater_model::window::{ListenerWindow, WINDOW_NS};

    #[test]
    fn a_listener_with_one_quiet_multiplexed_connection_makes_the_requests_of_another_not_unknown() {
        let name = |id| ListenerName { id, address: [0; 4].into(), port: 80, path: None, pool: None };
        let tier = Tier {
            workload: String::new(),
            comm: String::new(),
            name: String::new(),
            listeners: vec![name(1), name(2)],
            workers_limit: None,
        };
        let of = |received, in_flight, pieces_in| {
            let mut window = HostWindow::default();
            let in_flight_ns = in_flight * WINDOW_NS;
            *window.listeners.entry(1).or_default() =
                ListenerWindow { open_max: 40, received, in_flight_ns, ..ListenerWindow::default() };
            *window.listeners.entry(2).or_default() = ListenerWindow {
                open_max: 1,
                multiplexed_connections: 1,
                pieces_in,
                ..ListenerWindow::default()
            };
            tier_sample(&window, &tier).connections_only
        };
        assert!(!of(300, 2, 3) && !of(0, 0, 0) && !of(0, 30, 3), "also while it stands");
        assert!(of(3, 0, 300), "most is on the other");
    }
}

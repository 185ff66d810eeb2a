//! What one workload did in one window, beside its host: the numbers from which it is decided whether a second was its own. Owns how they
//! are read from a window, and which of them mean that hardware was full or that something else held the workload up; knows no second.

use super::names::HostNames;
use super::taint::Taint;
use std::collections::BTreeMap;
use tailwater_model::window::{EntityId, HostWindow, WINDOW_NS, is_pool_used_up};

/// Part of the CPUs that a workload may use from which they are full, as `cpu_full_ratio` of the analysis: the highest level that 10 ms
/// quota periods still show as full when they straddle a window.
pub(super) const FULL_PART: f64 = 0.95;
/// CPUs taken away by a quota that count, as `cpu_taken_ratio` of the analysis.
pub(super) const TAKEN_CPUS: f64 = 0.2;
/// Part of its quota that a workload used around a window in which it was throttled, if its own load used the quota up: periods of
/// 100 ms lie across three windows.
const OWN_QUOTA_PART: f64 = 0.75;
/// Tasks blocked on block I/O, or held up by memory, that count: `io_blocked_tasks` and `memory_stalled_tasks` of the analysis.
const BLOCKED_TASKS: f64 = 0.5;
/// Part of the requests in flight that must be blocked on block I/O before the disk is what they wait for.
const AT_THE_DISK_PART: f64 = 0.5;
/// Swap-ins that count, as `memory_swap_ins` of the analysis.
const SWAP_INS: u64 = 64;
/// Tasks that wait for a CPU and count: `cpu_wait_tasks` of the analysis.
const WAITING_TASKS: f64 = 0.75;
/// Part of the host's CPUs that others use from which they may have taken them, as the analysis has it of a neighbour.
const OTHERS_PART: f64 = 0.2;

/// A workload in one window. Times are ns of tasks or CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Moment {
    /// The CPUs that it may use: its quota, or all of the host (or scope).
    pub(super) may_use_ns: u64,
    pub(super) capacity_ns: u64,
    pub(super) host_busy_ns: u64,
    pub(super) steal_ns: u64,
    pub(super) busy_ns: u64,
    pub(super) wait_ns: u64,
    pub(super) throttled_ns: u64,
    blocked_io_ns: u64,
    stalled_memory_ns: u64,
    swap_ins: u64,
    stopped_max: u32,
    /// Of all listeners of the workload.
    pub(super) in_flight_ns: u64,
    pub(super) answered: u64,
    pub(super) multiplexed: u32,
}

/// Calls of a workload to one remote in one window.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Calls {
    pub(super) in_flight_ns: u64,
    pub(super) answered: u64,
    pub(super) response_ns: u64,
    in_flight_max: u32,
    open_max: u32,
    /// Some of its connections carry several calls at a time, which are in none of the numbers.
    pub(super) is_multiplexed: bool,
}

impl Moment {
    /// Of the workload `of` in a window.
    pub(super) fn of(window: &HostWindow, names: &HostNames, workload: EntityId, measured: EntityId) -> Self {
        let own = window.workloads.get(&measured).copied().unwrap_or_default();
        let server = window.workloads.get(&workload).copied().unwrap_or_default();
        let cpu = window.cpu.unwrap_or_default();
        let quota = names.quota_ns(workload);
        let mut moment = Self {
            may_use_ns: quota.map_or(cpu.capacity_ns, |quota| quota.min(cpu.capacity_ns)),
            capacity_ns: cpu.capacity_ns,
            host_busy_ns: cpu.busy_ns,
            steal_ns: cpu.steal_ns,
            busy_ns: own.busy_ns,
            wait_ns: own.wait_ns,
            throttled_ns: own.throttled_ns.unwrap_or(0).max(cpu.throttled_ns.unwrap_or(0)),
            blocked_io_ns: own.blocked_io_ns,
            stalled_memory_ns: own.reclaim_ns.saturating_add(own.dirty_throttle_ns),
            swap_ins: own.swap_ins,
            stopped_max: server.stopped_max,
            ..Self::default()
        };
        for l in names.listeners(workload).filter_map(|id| window.listeners.get(&id)) {
            moment.in_flight_ns = moment.in_flight_ns.saturating_add(l.in_flight_ns);
            moment.answered = moment.answered.saturating_add(l.answered);
            moment.multiplexed = moment.multiplexed.max(l.multiplexed_connections);
        }
        moment
    }

    /// Part of the CPUs that it may use in use; `None`: not measured.
    pub(super) fn used_ratio(&self) -> Option<f64> {
        (self.may_use_ns > 0).then(|| self.busy_ns as f64 / self.may_use_ns as f64)
    }

    /// Whether all CPUs that it may use were.
    pub(super) fn is_full(&self) -> bool {
        self.used_ratio().is_some_and(|used| used >= FULL_PART)
    }

    /// Whether the disk is what its requests wait for: tasks are blocked on block I/O, at least half as many as it has requests. What a server
    /// writes in the background blocks a task at any load, and ends no throughput.
    pub(super) fn is_at_the_disk(&self) -> bool {
        let blocked = mean(self.blocked_io_ns);
        blocked >= BLOCKED_TASKS
            && self.in_flight_ns > 0
            && blocked >= AT_THE_DISK_PART * mean(self.in_flight_ns)
    }

    /// Whether a quota held it up.
    pub(super) fn is_throttled(&self) -> bool {
        mean(self.throttled_ns) >= TAKEN_CPUS
    }

    /// What held it up, judged by this window alone.
    fn held_by(&self) -> impl Iterator<Item = Taint> {
        let others_ns = self.host_busy_ns.saturating_sub(self.busy_ns) as f64;
        let (capacity, host_busy) = (self.capacity_ns as f64, self.host_busy_ns as f64);
        // At its own quota it lacks nothing that others have.
        let neighbour = host_busy >= FULL_PART * capacity
            && others_ns >= OTHERS_PART * capacity
            && mean(self.wait_ns) >= WAITING_TASKS
            && !self.is_full();
        let memory = mean(self.stalled_memory_ns) >= BLOCKED_TASKS || self.swap_ins >= SWAP_INS;
        [
            (mean(self.blocked_io_ns) >= BLOCKED_TASKS, Taint::Io),
            (memory, Taint::Memory),
            (self.stopped_max > 0, Taint::Stopped),
            (capacity > 0.0 && neighbour, Taint::Neighbour),
        ]
        .into_iter()
        .filter_map(|(is, by)| is.then_some(by))
    }
}

/// In how many of these windows, which follow each other, something held the workload up.
pub(super) fn held_up(moments: &[Moment]) -> BTreeMap<Taint, usize> {
    let mut windows = BTreeMap::new();
    for by in moments.iter().flat_map(Moment::held_by) {
        *windows.entry(by).or_default() += 1;
    }
    for (at, _) in moments.iter().enumerate().filter(|(_, moment)| moment.is_throttled()) {
        // A quota is a limit to learn where the workload's own load used it up, in this window or beside it.
        let around = &moments[at.saturating_sub(1)..(at + 2).min(moments.len())];
        let used = around.windows(2).map(|pair| {
            let used: u64 = pair.iter().map(|m| m.busy_ns).sum();
            let may: u64 = pair.iter().map(|m| m.may_use_ns).sum();
            if may > 0 { used as f64 / may as f64 } else { 0.0 }
        });
        if used.fold(0.0, f64::max) < OWN_QUOTA_PART {
            *windows.entry(Taint::Throttled).or_default() += 1;
        }
    }
    windows
}

impl Calls {
    /// Adds what an edge says in a window.
    pub(super) fn add(&mut self, window: &HostWindow, edge: EntityId) {
        let Some(e) = window.edges.get(&edge) else { return };
        self.in_flight_ns = self.in_flight_ns.saturating_add(e.in_flight_ns);
        self.answered = self.answered.saturating_add(e.answered);
        self.response_ns = self.response_ns.saturating_add(e.response_ns);
        self.in_flight_max = self.in_flight_max.saturating_add(e.in_flight_max);
        self.open_max = self.open_max.saturating_add(e.open_max);
        self.is_multiplexed |= e.multiplexed_connections > 0;
    }

    /// Whether all connections had a call in flight: then they are what limits the caller.
    pub(super) fn is_pool_used_up(&self) -> bool {
        is_pool_used_up(self.in_flight_max, self.open_max)
    }
}

/// Tasks or CPUs, of ns in a window.
pub(super) fn mean(ns: u64) -> f64 {
    ns as f64 / WINDOW_NS as f64
}

//! One second of one listener: its time in state joined with the windows of the same second, and what of it was not the tier's own. Owns the
//! rules by which a second is left out; knows no learner and no file.

use super::hosts::{Host, Hosts};
use super::moment::{Calls, Moment, held_up, mean};
use super::names::{Owned, needed};
use super::queue::Span;
use super::taint::Taint;
use super::who::{Server, Who};
use std::collections::{BTreeMap, BTreeSet};
use tailwater_model::incident::Resource;
use tailwater_model::window::{
    EntityId, HostStates, ListenerStates, ListenerWindow, SignalSet, StateCell, WINDOW_NS, WindowIndex,
};
use tailwater_sizing::learn::is_full;
use tailwater_sizing::prevent::Came;

/// Part of the host's CPUs stolen over the second from which it is left out.
const STOLEN_PART: f64 = 0.05;
/// Windows of the second that must be held up before it counts, a tenth of it: a single window is the noise of 50 ms.
const HELD_WINDOWS: usize = 2;
/// Part of what is in flight that must be calls to tiers that were held up or full before those below decide, not the tier itself.
const BELOW_PART: f64 = 0.5;
/// Part of the windows in which that must be so: random arrivals fill a CPU for a window or two of a second at any load.
const BELOW_WINDOWS_PART: f64 = 0.25;
/// Part of a workload's answers that another of its listeners may have: CPU is told of the workload.
const ELSEWHERE_PART: f64 = 0.05;
/// What is around an incident belongs to it (1 s).
const AROUND_NS: u64 = 1_000_000_000;

/// A second of one listener.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Joined {
    pub(super) server: Server,
    pub(super) owned: Owned,
    pub(super) cells: Vec<StateCell>,
    /// When it ended.
    pub(super) end_unix_ns: u64,
    /// Answers of the listener, by its windows.
    pub(super) answered: u64,
    /// Integral of its requests in flight, s.
    pub(super) in_flight_s: f64,
    /// The same of those that wait: in the accept queue, and of requests that were received and not read.
    pub(super) waiting_s: f64,
    /// Packets that its accept queue dropped.
    pub(super) drops: u64,
    /// What came to its accept queue, by the windows in which anything did.
    pub(super) came: Vec<(u64, Came)>,
    /// Integral of its accepted connections that are open, s.
    pub(super) open_s: f64,
    /// CPU time of the workload, s.
    pub(super) cpu_s: f64,
    /// CPUs that it may use.
    pub(super) cpus: f64,
    /// Windows that came.
    pub(super) windows: u32,
    /// Servers of its tier that listen on its port, itself among them.
    pub(super) servers: u32,
    /// Limit of its accept queue; `None`: not told.
    pub(super) backlog: Option<u32>,
    /// What its calls took below, as those below count it, s. A caller that waits for a CPU itself reads its answers late, and would count that.
    /// `None`: not all that it calls is observed.
    pub(super) below_s: Option<f64>,
    /// By those who call it. `None`: not all who call it are observed, or nobody is.
    pub(super) by_callers: Option<ByCallers>,
    /// Calls that were answered.
    pub(super) calls: u64,
    /// Time for which a quota throttled it, s.
    pub(super) throttled_s: f64,
    /// Most requests that one of its threads had at once; above 1 it is event-driven.
    pub(super) worker_shared_max: u32,
    pub(super) taints: BTreeSet<Taint>,
}

/// What the observed callers of a server's port counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ByCallers {
    /// Calls that were answered.
    pub(super) answered: u64,
    /// The time that they took, s.
    pub(super) time_s: f64,
    /// ∫N dt of the requests that the callers have themselves, s; `None`: of one that called none was seen.
    pub(super) own_s: Option<f64>,
}

/// What a second is judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) hosts: &'a Hosts,
    pub(super) who: &'a Who,
    pub(super) incidents: &'a BTreeMap<String, Span>,
}

/// Why a listener's second cannot be joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unjoined {
    /// Nobody said whose the listener is.
    NoName,
    /// None of its windows came.
    NoWindows,
}

impl Unjoined {
    /// All of them.
    pub(super) const ALL: [Self; 2] = [Self::NoName, Self::NoWindows];

    /// As it is counted.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NoName => "no_name",
            Self::NoWindows => "no_windows",
        }
    }
}

impl Seen<'_> {
    /// Joins a listener's second.
    pub(super) fn join(self, states: &HostStates, of: &ListenerStates) -> Result<Joined, Unjoined> {
        let host = self.hosts.get(&states.host).ok_or(Unjoined::NoWindows)?;
        let owned = host.names.owned(of.listener).ok_or(Unjoined::NoName)?;
        let server = (states.host.clone(), owned.name.clone());
        let (first, last) = (states.last.0.saturating_sub(u64::from(states.windows) - 1), states.last.0);
        let mut moments = Vec::with_capacity(states.windows as usize);
        let (mut unknown, mut lost) = (SignalSet::default(), false);
        let (mut answered, mut in_flight_ns, mut worker_shared_max, mut backlog) = (0, 0, 0, 0);
        let (mut waiting_ns, mut drops, mut open, mut came) = (0_u64, 0_u64, 0_u64, Vec::new());
        for window in host.windows(first, last) {
            lost |= window.lost_before > 0;
            unknown = unknown.with(window.uncovered).with(window.sampled);
            moments.push(Moment::of(window, &host.names, owned.workload, owned.measured));
            if let Some(l) = window.listeners.get(&of.listener) {
                answered += l.answered;
                in_flight_ns += l.in_flight_ns;
                worker_shared_max = worker_shared_max.max(l.worker_shared_max);
                backlog = backlog.max(l.limit);
                waiting_ns = waiting_ns.saturating_add(l.depth_ns).saturating_add(l.unread_ns);
                drops = drops.saturating_add(l.drops);
                came.push((window.index.0, came_to(l)));
                // Each window's end stands for it: connections that hold a worker are open for longer than a window.
                open = open.saturating_add(u64::from(l.open_last));
            }
        }
        if moments.is_empty() {
            return Err(Unjoined::NoWindows);
        }
        let mut taints: BTreeSet<Taint> = own_taints(&moments);
        let is_known = !unknown.meets(needed()) && moments.iter().all(|m| m.may_use_ns > 0);
        if !is_known || lost || moments.len() < states.windows as usize {
            taints.insert(Taint::NotMeasured);
        }
        // Of a cgroup with several servers nobody knows whose the CPU time was; of several listeners, neither.
        let all: u64 = moments.iter().map(|m| m.answered).sum();
        let elsewhere = all.saturating_sub(answered) as f64 > ELSEWHERE_PART * all as f64;
        if owned.measured != owned.workload || elsewhere {
            taints.insert(Taint::SharedCpu);
        }
        if moments.iter().any(|m| m.multiplexed > 0) {
            taints.insert(Taint::Multiplexed);
        }
        let below = self.below(host, &server, &owned, &moments, (first, last));
        if below.held_windows as f64 >= (BELOW_WINDOWS_PART * moments.len() as f64).max(1.0) {
            taints.insert(Taint::Downstream);
        }
        let sum = |f: fn(&Moment) -> u64| moments.iter().map(f).sum::<u64>() as f64;
        if below.is_multiplexed {
            taints.insert(Taint::Multiplexed);
        }
        let (used_ns, may_use_ns) = (sum(|m| m.busy_ns), sum(|m| m.may_use_ns));
        let throttled_ns: u64 = moments.iter().filter(|m| m.is_throttled()).map(|m| m.throttled_ns).sum();
        let length_ns = moments.len() as f64 * WINDOW_NS as f64;
        let is_full = is_full(used_ns / may_use_ns.max(1.0), throttled_ns as f64 / length_ns);
        if self.in_incident(&server, first, last, is_full) {
            taints.insert(Taint::Incident);
        }
        Ok(Joined {
            by_callers: self.by_callers(&server, owned.port, first, last),
            servers: u32::try_from(self.who.alike(&server, owned.port).len()).unwrap_or(u32::MAX),
            server,
            cells: of.cells.clone(),
            end_unix_ns: states.last.end_unix_ns(),
            answered,
            in_flight_s: in_flight_ns as f64 / 1e9,
            waiting_s: waiting_ns as f64 / 1e9,
            drops,
            came,
            open_s: open as f64 * WINDOW_NS as f64 / 1e9,
            cpu_s: used_ns / 1e9,
            cpus: may_use_ns / length_ns,
            windows: moments.len() as u32,
            backlog: (backlog > 0).then_some(backlog),
            below_s: below.took_s,
            calls: below.calls,
            throttled_s: throttled_ns as f64 / 1e9,
            worker_shared_max,
            owned,
            taints,
        })
    }

    /// Calls of the server, and in how many windows most of what it had in flight waited for tiers below that were full or held up.
    /// `moments` are the server's own, of the windows from `first` to `last` that came.
    fn below(
        self,
        host: &Host,
        server: &Server,
        owned: &Owned,
        moments: &[Moment],
        (first, last): (u64, u64),
    ) -> Below {
        let mut edges: BTreeMap<String, Vec<EntityId>> = BTreeMap::new();
        for (edge, remote) in host.names.calls(owned.measured) {
            edges.entry(remote).or_default().push(edge);
        }
        let mut callees: Vec<(Vec<EntityId>, Callee, u64)> = edges
            .into_iter()
            .map(|(remote, edges)| {
                let callee = self.who.callee(server, &remote);
                (edges, callee.map(|callee| self.callee(callee, first, last)).unwrap_or_default(), 0)
            })
            .collect();
        let mut below = Below::default();
        for (window, moment) in host.windows(first, last).zip(moments) {
            let mut waits_ns = 0;
            for (edges, callee, answered) in &mut callees {
                let mut calls = Calls::default();
                edges.iter().for_each(|edge| calls.add(window, *edge));
                below.is_multiplexed |= calls.is_multiplexed;
                *answered = answered.saturating_add(calls.answered);
                if calls.is_pool_used_up() || callee.busy.get(&window.index.0) == Some(&true) {
                    waits_ns += calls.in_flight_ns;
                }
            }
            if waits_ns as f64 > BELOW_PART * moment.in_flight_ns as f64 {
                below.held_windows += 1;
            }
        }
        below.calls = callees.iter().map(|of| of.2).sum();
        let took = callees.iter().filter(|of| of.2 > 0).map(|(_, callee, calls)| callee.took_s(*calls));
        below.took_s = took.sum();
        below
    }

    /// What a server that is called did.
    fn callee(self, (host, workload): &Server, first: u64, last: u64) -> Callee {
        let Some(host) = self.hosts.get(host) else { return Callee::default() };
        let Some((id, measured)) = host.names.workload(workload) else { return Callee::default() };
        let mut callee = Callee { is_all_seen: true, ..Callee::default() };
        for window in host.windows(first, last) {
            let moment = Moment::of(window, &host.names, id, measured);
            callee.in_flight_ns = callee.in_flight_ns.saturating_add(moment.in_flight_ns);
            callee.answered = callee.answered.saturating_add(moment.answered);
            let is_known = window.lost_before == 0 && !window.uncovered.with(window.sampled).meets(needed());
            callee.is_all_seen &= is_known && moment.multiplexed == 0;
            callee.busy.insert(window.index.0, moment.is_full() || !held_up(&[moment]).is_empty());
        }
        callee
    }

    /// What the observed callers of a server's port counted.
    fn by_callers(self, server: &Server, port: u16, first: u64, last: u64) -> Option<ByCallers> {
        let mut calls: BTreeMap<&Server, Calls> = BTreeMap::new();
        for (caller, remote) in self.who.callers(server) {
            if !remote.ends_with(&format!(":{port}")) {
                continue;
            }
            let host = self.hosts.get(&caller.0)?;
            let (_, measured) = host.names.workload(&caller.1)?;
            let edges: Vec<EntityId> =
                host.names.calls(measured).filter(|(_, to)| to == remote).map(|(edge, _)| edge).collect();
            for window in host.windows(first, last) {
                let of_caller = calls.entry(caller).or_default();
                edges.iter().for_each(|edge| of_caller.add(window, *edge));
            }
        }
        if calls.is_empty() || calls.values().any(|of| of.is_multiplexed) {
            return None;
        }
        let asked = calls.iter().filter(|(_, of)| of.answered > 0);
        let own = asked.map(|(caller, _)| self.callee(caller, first, last));
        // Who calls without being asked holds connections for reasons of its own; of whom not all is seen, too little would be.
        let own_ns =
            own.map(|of| Some(of.in_flight_ns).filter(|ns| *ns > 0 && of.is_all_seen)).sum::<Option<u64>>();
        Some(ByCallers {
            answered: calls.values().map(|of| of.answered).sum(),
            time_s: calls.values().map(|of| of.response_ns).sum::<u64>() as f64 / 1e9,
            own_s: own_ns.map(|ns| ns as f64 / 1e9),
        })
    }

    /// Whether an incident of this server, or of one below it, was open around then. One whose root is this server's own load is what is
    /// to be learnt: the hardware was full of it. So it is where no cause was found and the server's own CPUs were full (`is_full`).
    fn in_incident(self, server: &Server, first: u64, last: u64, is_full: bool) -> bool {
        let start = WindowIndex(first).start_unix_ns().saturating_sub(AROUND_NS);
        let end = WindowIndex(last).end_unix_ns().saturating_add(AROUND_NS);
        self.incidents.values().any(|span| {
            let own_load = matches!(span.resource, Resource::Cpu | Resource::Burst)
                && (span.root == *server || !self.who.reaches(server, std::slice::from_ref(&span.root)));
            let then = span.start_unix_ns <= end && (span.open || span.end_unix_ns >= start);
            let unexplained = is_full && span.resource == Resource::Unexplained;
            then && !own_load && !unexplained && self.who.reaches(server, &span.tiers)
        })
    }
}

fn came_to(l: &ListenerWindow) -> Came {
    Came {
        arrivals: l.arrivals,
        drops_syn: l.drops_syn,
        drops_final_ack: l.drops_final_ack,
        drops_repeated: l.drops_repeated,
    }
}

/// What a server waited for below.
#[derive(Debug, Default)]
struct Below {
    took_s: Option<f64>,
    calls: u64,
    held_windows: usize,
    /// Calls that nobody counted wait below, too.
    is_multiplexed: bool,
}

/// A server that is called, in the windows of a second.
#[derive(Debug, Default)]
struct Callee {
    /// Whether it was full or held up, by window.
    busy: BTreeMap<u64, bool>,
    in_flight_ns: u64,
    answered: u64,
    /// No window was lost before any of these, all is measured in them, and no connection carries several requests at a time.
    is_all_seen: bool,
}

impl Callee {
    /// What so many of its answers took in the mean (Little's law), s; `None`: it is not observed.
    fn took_s(&self, calls: u64) -> Option<f64> {
        (self.answered > 0).then(|| self.in_flight_ns as f64 / 1e9 / self.answered as f64 * calls as f64)
    }
}

/// What of a second its own windows say against it.
pub(super) fn own_taints(moments: &[Moment]) -> BTreeSet<Taint> {
    let mut taints = BTreeSet::new();
    let steal: f64 = moments.iter().map(|m| mean(m.steal_ns)).sum();
    let capacity: f64 = moments.iter().map(|m| mean(m.capacity_ns)).sum();
    if steal > STOLEN_PART * capacity {
        taints.insert(Taint::Steal);
    }
    for (taint, windows) in held_up(moments) {
        let least = if matches!(taint, Taint::Throttled | Taint::Stopped) { 1 } else { HELD_WINDOWS };
        if windows >= least {
            taints.insert(taint);
        }
    }
    taints
}

#[cfg(test)]
#[path = "second_tests.rs"]
mod tests;

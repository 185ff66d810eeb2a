//! The last windows of every host, and the names behind their ids. Owns how much is remembered; knows no rule.
//!
//! An update of names takes effect with the first window that its host sends after it, so that a frame means the same
//! however early or late it leaves.

use super::align::{FORGET_WINDOWS, Frame};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tailwater_model::window::{
    EdgeInfo, EntityId, Gone, Host, HostInfo, HostWindow, ListenerInfo, WindowIndex, WorkloadInfo,
};

/// Windows remembered per host: 20 s, which holds the two seconds before a drop, the longest millibottleneck and the recent rates.
pub(crate) const HISTORY_WINDOWS: usize = 400;
/// Entities remembered per host and kind. An agent has no more at a time and tells what is gone; what else there is stems from agents of
/// before, whose ids are lower: what is gone goes first, then the lowest.
const ENTITIES_MAX: usize = 4096;
/// Hosts remembered; beyond, silent ones are forgotten.
const HOSTS_MAX: usize = 4096;
/// A host that was silent for so long was decommissioned (a day): its names would stand in the topology for ever.
const GONE_WINDOWS: u64 = 24 * 3600 * 20;
/// How often it is looked for what nobody speaks of any more (a minute): to look costs as much as there is.
pub(crate) const LOOK_WINDOWS: u64 = 1200;
/// What a host's clock was in so many windows before a moment holds for it (1 s).
pub(crate) const CLOCK_WINDOWS: u64 = 20;
/// Updates of names that may wait for their window, per host.
const UPDATES_MAX: usize = 1024;

/// Names in all of those; one update is always taken, however many it tells. An agent tells all that it has in less when it connects.
const WAITING_MAX: usize = 4 * ENTITIES_MAX;

/// Processes of a listener that are remembered: where several listen, they are told in turn.
const PROCESSES_MAX: usize = 16;

/// Who listened.
#[derive(Debug, Default)]
struct Processes {
    /// The newest last, each with what it was started with.
    known: VecDeque<(u32, u64)>,
    /// With which one became known beside others.
    begun_anew: Option<BegunAnew>,
}

/// A process that listens where others did before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BegunAnew {
    /// The window with which it became known.
    pub(crate) at: u64,
    /// It was started with another program, other arguments or in another folder than those that are known.
    pub(crate) with_another: bool,
}

impl Processes {
    /// `started_with`: 0, not known.
    fn listens(&mut self, pid: u32, started_with: u64, index: u64) {
        if let Some((_, known)) = self.known.iter_mut().find(|(known, _)| *known == pid) {
            *known = if started_with == 0 { *known } else { started_with };
            return;
        }
        if !self.known.is_empty() {
            // Workers that listen themselves may each have arguments of their own.
            let others = || self.known.iter().map(|(_, with)| *with).filter(|with| *with != 0);
            let with_another =
                started_with != 0 && others().next().is_some() && others().all(|with| with != started_with);
            self.begun_anew = Some(BegunAnew { at: index, with_another });
        }
        self.known.push_back((pid, started_with));
        if self.known.len() > PROCESSES_MAX {
            self.known.pop_front();
        }
    }
}

/// Changes of a workload's quota that are remembered: what shrinks for a moment is set back.
const QUOTAS_MAX: usize = 4;

/// A workload's CPU quota that was set to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaChange {
    /// The window with which it became known: agents look at quotas once a second.
    pub(crate) at: u64,
    /// CPU time in a window, ns; 0: none.
    pub(crate) before_ns: u64,
    pub(crate) after_ns: u64,
}

/// Names that arrived and are not in effect yet.
#[derive(Debug, Clone)]
pub(crate) enum Update {
    Host(HostInfo),
    Entities { workloads: Vec<WorkloadInfo>, listeners: Vec<ListenerInfo>, edges: Vec<EdgeInfo> },
    Gone(Gone),
}

impl Update {
    /// How many names it is about.
    fn names(&self) -> usize {
        match self {
            Self::Host(_) => 1,
            Self::Entities { workloads, listeners, edges } => workloads.len() + listeners.len() + edges.len(),
            Self::Gone(gone) => gone.workloads.len() + gone.listeners.len() + gone.edges.len(),
        }
    }
}

/// One host's names and recent windows.
#[derive(Debug, Default)]
pub(crate) struct HostHistory {
    pub(crate) info: HostInfo,
    pub(crate) workloads: BTreeMap<EntityId, WorkloadInfo>,
    pub(crate) listeners: BTreeMap<EntityId, ListenerInfo>,
    pub(crate) edges: BTreeMap<EntityId, EdgeInfo>,
    /// Of these names, those behind which there is nothing any more.
    gone_workloads: BTreeSet<EntityId>,
    gone_listeners: BTreeSet<EntityId>,
    gone_edges: BTreeSet<EntityId>,
    /// By listener.
    processes: BTreeMap<EntityId, Processes>,
    /// By workload, oldest first; of those whose quota was changed.
    quotas: BTreeMap<EntityId, VecDeque<QuotaChange>>,
    /// Oldest first; the last is that of frame `History::next - 1`. `None`: a gap.
    windows: VecDeque<Option<Arc<HostWindow>>>,
    updates: VecDeque<(u64, Update)>,
    /// Names in these.
    waiting: usize,
    /// Index of its newest window; before the first, of the frame since which it is known.
    heard: u64,
    /// No frame waits for it any more.
    pub(crate) away: bool,
}

/// Windows of one index. What is asked of the same host again, as of all tiers of one after the other, is not looked up again.
#[derive(Debug)]
pub(crate) struct InOrder<'a> {
    history: &'a History,
    index: u64,
    newest: Option<(&'a str, Option<Heard<'a>>)>,
}

/// A host, and its window.
type Heard<'a> = (&'a HostHistory, &'a HostWindow);

impl<'a> InOrder<'a> {
    /// The host and its window; see [`History::window`].
    pub(crate) fn of(&mut self, host: &'a str) -> Option<Heard<'a>> {
        match self.newest {
            Some((same, heard)) if same == host => heard,
            _ => {
                let windows = self.history.windows_of(host);
                let heard = windows.host.zip(windows.at(self.index));
                self.newest = Some((host, heard));
                heard
            }
        }
    }
}

/// One host's windows, the host looked up by its name once: who draws a series asks for a hundred of them and more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windows<'a> {
    /// `None`: it is not known.
    host: Option<&'a HostHistory>,
    /// As that of the history.
    next: u64,
}

impl<'a> Windows<'a> {
    /// That of an index; `None` if it is not remembered, not yet there, or a gap.
    pub(crate) fn at(self, index: u64) -> Option<&'a HostWindow> {
        let windows = &self.host?.windows;
        let back = usize::try_from(self.next.checked_sub(index)?).ok()?;
        windows.get(windows.len().checked_sub(back)?)?.as_deref()
    }
}

/// All hosts, aligned.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) hosts: BTreeMap<Host, HostHistory>,
    /// Index after the newest frame.
    pub(crate) next: u64,
}

impl History {
    /// Whether a host's agent measures requests; so does one that is not known.
    pub(crate) fn measures_requests(&self, host: &str) -> bool {
        !self.newest(host).is_some_and(|w| w.uncovered.has("requests"))
    }

    /// Whether it measures calls.
    pub(crate) fn measures_calls(&self, host: &str) -> bool {
        !self.newest(host).is_some_and(|w| w.uncovered.has("calls"))
    }

    /// Whether it polls its accept queues, and so cannot tell what came from what was dropped.
    pub(crate) fn polls_queues(&self, host: &str) -> bool {
        self.newest(host).is_some_and(|w| w.sampled.has("accept_queue"))
    }

    /// Whether it polls who waits for a CPU.
    pub(crate) fn polls_run_queue(&self, host: &str) -> bool {
        self.newest(host).is_some_and(|w| w.sampled.has("run_queue"))
    }

    fn newest(&self, host: &str) -> Option<&HostWindow> {
        self.hosts.get(host)?.windows.iter().rev().flatten().map(Arc::as_ref).next()
    }

    /// Keeps an update until the host's window `from`.
    pub(crate) fn update(&mut self, host: &str, from: u64, update: Update) -> bool {
        let entry = self.hosts.entry(host.to_owned()).or_default();
        let waiting = entry.waiting.saturating_add(update.names());
        if entry.updates.len() >= UPDATES_MAX || (!entry.updates.is_empty() && waiting > WAITING_MAX) {
            return false;
        }
        entry.waiting = waiting;
        entry.updates.push_back((from, update));
        true
    }

    /// Adds a frame; the hosts whose names changed, and which came, went, or are away or back.
    pub(crate) fn push(&mut self, frame: Frame) -> BTreeSet<Host> {
        let index = frame.index.0;
        let contiguous = index == self.next;
        self.next = index.saturating_add(1);
        let new: Vec<Host> = absent(frame.hosts.keys(), self.hosts.keys()).cloned().collect();
        let mut changed = BTreeSet::new();
        for host in new {
            self.hosts.insert(host.clone(), HostHistory::default());
            changed.insert(host);
        }
        // All of them are known now, and both stand in one order.
        let mut windows = frame.hosts.into_iter().peekable();
        for (name, host) in &mut self.hosts {
            if !contiguous {
                host.windows.clear();
            }
            if host.apply(index) {
                changed.insert(name.clone());
            }
            if host.info.host.is_empty() {
                host.info.host.clone_from(name);
            }
            let window = windows.next_if(|(of, _)| of == name).map(|(_, window)| window);
            if window.is_some() || host.heard == 0 {
                host.heard = index;
            }
            let away = index.saturating_sub(host.heard) > FORGET_WINDOWS;
            if away != host.away {
                host.away = away;
                changed.insert(name.clone());
            }
            host.windows.push_back(window);
            if host.windows.len() > HISTORY_WINDOWS {
                host.windows.pop_front();
            }
        }
        // A host that is only away keeps its place; its agent sends its names again when it connects again.
        let (full, look) = (self.hosts.len() > HOSTS_MAX, index.is_multiple_of(LOOK_WINDOWS) || !contiguous);
        if full || look {
            self.hosts.retain(|name, host| {
                let silent = !host.windows.iter().any(Option::is_some);
                let gone = index.saturating_sub(host.heard) >= GONE_WINDOWS;
                let stays = !host.updates.is_empty() || !silent || !(full || gone);
                if !stays {
                    changed.insert(name.clone());
                }
                stays
            });
        }
        changed
    }

    /// A host's window; `None` if it is not remembered, not yet there, or a gap.
    pub(crate) fn window(&self, host: &str, index: u64) -> Option<&HostWindow> {
        self.windows_of(host).at(index)
    }

    /// All windows of a host, for whoever asks for several.
    pub(crate) fn windows_of(&self, host: &str) -> Windows<'_> {
        Windows { host: self.hosts.get(host), next: self.next }
    }

    /// Windows of one index, for whoever asks for them host by host.
    pub(crate) fn windows_in_order(&self, index: u64) -> InOrder<'_> {
        InOrder { history: self, index, newest: None }
    }

    /// The workload under which a workload's CPU, I/O and memory are told: its own, or that of the cgroup that it shares.
    pub(crate) fn measured_under(&self, host: &str, workload: EntityId) -> EntityId {
        let info = self.hosts.get(host).and_then(|h| h.workloads.get(&workload));
        info.map_or(workload, |w| if w.shares == 0 { workload } else { w.shares })
    }

    /// When a host's window began by the collector's clock; of one that is missing or forgotten, by the
    /// phase of the newest window before it, else of the newest.
    pub(crate) fn start_unix_ns(&self, host: &str, index: u64) -> u64 {
        let windows = self.windows_of(host);
        let newest = || windows.host?.windows.iter().rev().find_map(Option::as_deref);
        let near = (index.saturating_sub(CLOCK_WINDOWS)..=index).rev().find_map(|i| windows.at(i));
        let near = near.or_else(newest);
        WindowIndex(index).start_unix_ns().saturating_add_signed(near.map_or(0, |w| w.phase_ns))
    }

    /// Whether a window of the host is remembered from before `index`.
    pub(crate) fn heard_lately(&self, host: &str, index: u64) -> bool {
        let from = index.saturating_sub(HISTORY_WINDOWS as u64);
        let windows = self.windows_of(host);
        (from..index).any(|i| windows.at(i).is_some())
    }
}

impl HostHistory {
    /// A listener, also when its name came a moment ago and no window with it has. For what cannot wait for the windows.
    pub(crate) fn listener_heard_of(&self, id: EntityId) -> Option<&ListenerInfo> {
        let waiting = self.names_waiting().flat_map(|(_, listeners)| listeners).filter(|l| l.id == id);
        waiting.last().or_else(|| self.listeners.get(&id))
    }

    /// The same of a workload.
    pub(crate) fn workload_heard_of(&self, id: EntityId) -> Option<&WorkloadInfo> {
        let waiting = self.names_waiting().flat_map(|(workloads, _)| workloads).filter(|w| w.id == id);
        waiting.last().or_else(|| self.workloads.get(&id))
    }

    /// A listener that is there, as far as its agent has said.
    pub(crate) fn listener(&self, id: EntityId) -> Option<&ListenerInfo> {
        self.listeners.get(&id).filter(|_| !self.gone_listeners.contains(&id))
    }

    /// That another process listens there than before.
    pub(crate) fn begun_anew(&self, listener: EntityId) -> Option<BegunAnew> {
        self.processes.get(&listener)?.begun_anew
    }

    /// How a workload's CPU quota was changed lately, oldest first.
    pub(crate) fn quota_changes(&self, workload: EntityId) -> impl Iterator<Item = QuotaChange> {
        self.quotas.get(&workload).into_iter().flatten().copied()
    }

    fn names_waiting(&self) -> impl Iterator<Item = (&Vec<WorkloadInfo>, &Vec<ListenerInfo>)> {
        self.updates.iter().filter_map(|(_, update)| match update {
            Update::Entities { workloads, listeners, .. } => Some((workloads, listeners)),
            Update::Host(_) | Update::Gone(_) => None,
        })
    }

    fn note_quota(&mut self, told: &WorkloadInfo, at: u64) {
        let Some(before_ns) = self.workloads.get(&told.id).map(|known| known.cpu_quota_ns) else { return };
        if before_ns == told.cpu_quota_ns {
            return;
        }
        let changes = self.quotas.entry(told.id).or_default();
        changes.push_back(QuotaChange { at, before_ns, after_ns: told.cpu_quota_ns });
        if changes.len() > QUOTAS_MAX {
            changes.pop_front();
        }
    }

    /// Takes the names of a window over; whether any is another than before. An agent that connects again tells all of them once more.
    fn apply(&mut self, index: u64) -> bool {
        let mut changed = false;
        while self.updates.front().is_some_and(|(from, _)| *from <= index) {
            let Some((_, update)) = self.updates.pop_front() else { break };
            self.waiting = self.waiting.saturating_sub(update.names());
            match update {
                Update::Host(info) => {
                    changed |= self.info != info;
                    self.info = info;
                }
                Update::Entities { workloads, listeners, edges } => {
                    workloads.iter().for_each(|workload| self.note_quota(workload, index));
                    let workloads = workloads.into_iter().map(|w| (w.id, w));
                    changed |= learn(&mut self.workloads, &mut self.gone_workloads, workloads);
                    self.quotas.retain(|id, _| self.workloads.contains_key(id));
                    for l in listeners.iter().filter(|l| l.pid != 0) {
                        self.processes.entry(l.id).or_default().listens(l.pid, l.started_with, index);
                    }
                    // Whoever listens has the same names.
                    let listeners =
                        listeners.into_iter().map(|l| (l.id, ListenerInfo { pid: 0, started_with: 0, ..l }));
                    changed |= learn(&mut self.listeners, &mut self.gone_listeners, listeners);
                    self.processes.retain(|id, _| self.listeners.contains_key(id));
                    let edges = edges.into_iter().map(|e| (e.id, e));
                    changed |= learn(&mut self.edges, &mut self.gone_edges, edges);
                }
                Update::Gone(gone) => {
                    // A case may still speak of them: their names stay while there is room.
                    self.gone_workloads.extend(gone.workloads);
                    self.gone_listeners.extend(gone.listeners);
                    self.gone_edges.extend(gone.edges);
                }
            }
        }
        changed
    }
}

/// Of some names those that are not among others, both in order: walked side by side, none is searched for.
pub(crate) fn absent<'a>(
    these: impl Iterator<Item = &'a Host>,
    those: impl Iterator<Item = &'a Host>,
) -> impl Iterator<Item = &'a Host> {
    let mut those = those.peekable();
    these.filter(move |name| {
        while those.next_if(|other| other < name).is_some() {}
        those.next_if(|other| other == name).is_none()
    })
}

/// Takes names over; whether any is new or another than before.
fn learn<T: PartialEq>(
    known: &mut BTreeMap<EntityId, T>,
    gone: &mut BTreeSet<EntityId>,
    told: impl Iterator<Item = (EntityId, T)>,
) -> bool {
    let mut changed = false;
    for (id, name) in told {
        changed |= known.get(&id) != Some(&name);
        known.insert(id, name);
    }
    bound(known, gone);
    changed
}

fn bound<T>(map: &mut BTreeMap<EntityId, T>, gone: &mut BTreeSet<EntityId>) {
    while map.len() > ENTITIES_MAX {
        match gone.pop_first() {
            Some(id) => drop(map.remove(&id)),
            None => drop(map.pop_first()),
        }
    }
    // What was told of names that are not here, or not any more.
    while gone.len() > ENTITIES_MAX {
        gone.pop_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(index: u64, hosts: &[&str]) -> Frame {
        Frame {
            index: WindowIndex(index),
            hosts: hosts
                .iter()
                .map(|h| {
                    let w = HostWindow {
                        host: (*h).to_owned(),
                        index: WindowIndex(index),
                        ..HostWindow::default()
                    };
                    ((*h).to_owned(), Arc::new(w))
                })
                .collect(),
        }
    }

    proptest! {
        #[test]
        fn names_that_are_not_among_others_are_those_that_are_not_found_there(
            these in prop::collection::btree_set(0u32..20, 0..12),
            those in prop::collection::btree_set(0u32..20, 0..12),
        ) {
            let names = |of: &BTreeSet<u32>| -> BTreeSet<Host> { of.iter().map(|n| n.to_string()).collect() };
            let (these, those) = (names(&these), names(&those));
            prop_assert!(absent(these.iter(), those.iter()).eq(these.difference(&those)));
        }

        /// Hosts come, fall silent and come back: what a frame brings of a host is found under its name.
        #[test]
        fn a_frame_leaves_each_of_its_windows_with_its_host(
            frames in prop::collection::vec(prop::collection::btree_set(0usize..5, 0..5), 1..20),
        ) {
            const NAMES: [&str; 5] = ["a", "b", "b-1", "b-10", "c"];
            let mut history = History::default();
            for (n, hosts) in frames.iter().enumerate() {
                let names: Vec<&str> = hosts.iter().map(|host| NAMES[*host]).collect();
                history.push(frame(10 + n as u64, &names));
            }
            for (n, hosts) in frames.iter().enumerate() {
                for (host, name) in NAMES.iter().enumerate() {
                    let window = history.window(name, 10 + n as u64);
                    prop_assert_eq!(window.map(|w| w.host.as_str()), hosts.contains(&host).then_some(*name));
                }
            }
        }
    }

    #[test]
    fn windows_are_found_by_index_and_gaps_are_not_zero() {
        let mut history = History::default();
        history.push(frame(10, &["a"]));
        history.push(frame(11, &["a", "b"]));
        history.push(frame(12, &["b"]));
        assert!(history.window("a", 11).is_some());
        assert!(history.window("a", 12).is_none());
        assert!(history.window("b", 10).is_none());
        assert!(history.window("b", 12).is_some());
        assert!(history.window("b", 13).is_none());
        assert!(history.window("c", 11).is_none());
        let remembered = HISTORY_WINDOWS as u64;
        assert!(history.heard_lately("a", 13) && history.heard_lately("a", 11 + remembered));
        assert!(!history.heard_lately("a", 12 + remembered) && !history.heard_lately("c", 13));
    }

    #[test]
    fn names_take_effect_with_the_window_that_follows_them() {
        let mut history = History::default();
        let names = Update::Entities {
            workloads: vec![WorkloadInfo { id: 1, ..WorkloadInfo::default() }],
            listeners: vec![],
            edges: vec![],
        };
        history.update("a", 11, names);
        history.push(frame(10, &["a"]));
        assert!(history.hosts["a"].workloads.is_empty());
        assert_eq!(history.push(frame(11, &["a"])).into_iter().collect::<Vec<_>>(), ["a"]);
        assert_eq!(history.hosts["a"].workloads.len(), 1);
    }

    #[test]
    fn a_quota_that_is_changed_is_remembered_with_what_it_was() {
        let mut history = History::default();
        let told = |quotas: &[(EntityId, u64)]| {
            let workload = |(id, cpu_quota_ns): &(EntityId, u64)| WorkloadInfo {
                id: *id,
                cpu_quota_ns: *cpu_quota_ns,
                ..WorkloadInfo::default()
            };
            let workloads = quotas.iter().map(workload).collect();
            Update::Entities { workloads, listeners: Vec::new(), edges: Vec::new() }
        };
        let set = [[(1, 0), (2, 9)], [(1, 0), (2, 5)], [(1, 7), (2, 5)], [(1, 7), (2, 5)]];
        for (index, quotas) in (10..).zip(&set) {
            history.update("a", index, told(quotas));
            history.push(frame(index, &["a"]));
        }
        let host = &history.hosts["a"];
        let changes = |id| host.quota_changes(id).collect::<Vec<_>>();
        assert_eq!(changes(1), [QuotaChange { at: 12, before_ns: 0, after_ns: 7 }]);
        assert_eq!(changes(2), [QuotaChange { at: 11, before_ns: 9, after_ns: 5 }]);
        assert_eq!(changes(3), []);
        for index in 14..30 {
            history.update("a", index, told(&[(1, index)]));
            history.push(frame(index, &["a"]));
        }
        let kept: Vec<u64> = history.hosts["a"].quota_changes(1).map(|change| change.at).collect();
        assert_eq!(kept, [26, 27, 28, 29]);
    }

    #[test]
    fn names_that_are_told_again_as_they_were_change_nothing() {
        let mut history = History::default();
        history.push(frame(10, &["a"]));
        let names = |name: &str| Update::Entities {
            workloads: vec![WorkloadInfo { id: 1, name: name.to_owned(), ..WorkloadInfo::default() }],
            listeners: vec![],
            edges: vec![],
        };
        let info = |cpus| Update::Host(HostInfo { host: "a".to_owned(), cpus, ..HostInfo::default() });
        let mut then = |index, updates: Vec<Update>| {
            updates.into_iter().for_each(|update| assert!(history.update("a", index, update)));
            !history.push(frame(index, &["a"])).is_empty()
        };
        assert!(then(11, vec![info(2), names("db")]));
        // As an agent that connects again does, and of what is gone the names stay.
        let gone = Gone { workloads: vec![1], ..Gone::default() };
        assert!(!then(12, vec![info(2), names("db"), Update::Gone(gone)]));
        assert!(then(13, vec![names("web")]));
        assert!(then(14, vec![names("web"), info(4)]));
    }

    #[test]
    fn of_many_names_those_that_are_gone_make_room_and_old_ones_in_use_stay() {
        let mut history = History::default();
        history.push(frame(10, &["a"]));
        let names = |ids: std::ops::Range<u32>| Update::Entities {
            workloads: ids.map(|id| WorkloadInfo { id, ..WorkloadInfo::default() }).collect(),
            listeners: vec![],
            edges: vec![],
        };
        let last = ENTITIES_MAX as u32;
        history.update("a", 11, names(1..last + 1));
        let gone = Gone { workloads: vec![7, 9], ..Gone::default() };
        history.update("a", 11, Update::Gone(gone));
        history.push(frame(11, &["a"]));
        assert!(history.hosts["a"].workloads.contains_key(&7), "a case may still speak of it");
        history.update("a", 12, names(last + 1..last + 4));
        history.push(frame(12, &["a"]));
        let left = &history.hosts["a"].workloads;
        let missing: Vec<u32> = (1..last + 4).filter(|id| !left.contains_key(id)).collect();
        assert_eq!(missing, [1, 7, 9], "first what is gone, then what is oldest");
    }

    #[test]
    fn a_host_that_is_silent_for_a_day_is_forgotten_and_one_that_is_away_is_not() {
        let mut history = History::default();
        history.push(frame(1200, &["a", "b"]));
        assert!(history.push(frame(GONE_WINDOWS, &["a"])).contains("b"), "it is away");
        assert!(history.push(frame(GONE_WINDOWS + 1, &["a"])).is_empty());
        assert!(history.hosts.contains_key("b"), "not yet");
        assert!(history.push(frame(GONE_WINDOWS + 1200, &["a"])).contains("b"), "the topology is another");
        assert_eq!(history.hosts.keys().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn memory_is_bounded_and_a_jump_forgets() {
        let mut history = History::default();
        for index in 0..1000 {
            history.push(frame(index, &["a"]));
        }
        assert_eq!(history.hosts["a"].windows.len(), HISTORY_WINDOWS);
        history.push(frame(5000, &["a"]));
        assert!(history.window("a", 999).is_none() && history.window("a", 5000).is_some());
        for index in 5001..5010 {
            let many: Vec<String> = (0..500).map(|h| format!("{index}-{h}")).collect();
            history.push(frame(index, &many.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        for index in 5010..5500 {
            history.push(frame(index, &["a"]));
        }
        assert!(history.hosts.len() <= HOSTS_MAX);
    }

    #[test]
    fn a_host_that_is_away_for_most_of_a_day_keeps_its_names_and_one_that_is_away_for_longer_does_not() {
        let away = |hours: u64| {
            let mut history = History::default();
            history.push(frame(10, &["a", "b"]));
            history.push(frame(10 + hours * 3600 * 20, &["b"]));
            history.hosts.contains_key("a")
        };
        assert!(away(20));
        assert!(!away(28));
    }
}

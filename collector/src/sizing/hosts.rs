//! The last seconds of every host, until it is known what decided them: windows, and time in state that waits for those of its second
//! and for incidents that are told late. Owns how long that is and what is kept meanwhile; knows no learner.

use super::names::HostNames;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tailwater_model::window::{HostStates, HostWindow, Input};

/// A second is judged when windows of so much later have come (5 s): an incident is told within about 2 s of the drop that it is about, and
/// its root may have begun a while before. Windows of other hosts have come by then, too.
const JUDGED_AFTER_WINDOWS: u64 = 100;
/// Windows that are kept of a host: those, and the longest span of time in state that is taken.
const KEPT_WINDOWS: u64 = JUDGED_AFTER_WINDOWS + 2 * SPAN_WINDOWS_MAX;
/// Longest span of one message with time in state (2 s): what is about more was held up, and its windows may be gone.
const SPAN_WINDOWS_MAX: u64 = 40;
/// Messages of a host that wait, which are one a second: as many as an agent keeps while the collector is away.
const WAITING_MAX: usize = 128;
/// A host of which nothing was heard for ten minutes is forgotten.
const IDLE_WINDOWS: u64 = 12_000;
/// Hosts whose windows are kept.
const HOSTS_MAX: usize = 4096;

/// One host.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) names: HostNames,
    windows: BTreeMap<u64, Arc<HostWindow>>,
    waiting: VecDeque<HostStates>,
    heard: u64,
}

/// All of them, by name.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    by_name: BTreeMap<String, Host>,
    newest: u64,
}

impl Host {
    /// The newest window that came.
    pub(super) fn newest(&self) -> u64 {
        self.windows.last_key_value().map_or(0, |(at, _)| *at)
    }

    /// The windows from `first` to `last` that came, in order.
    pub(super) fn windows(&self, first: u64, last: u64) -> impl Iterator<Item = &HostWindow> {
        let span = (first <= last).then(|| self.windows.range(first..=last));
        span.into_iter().flatten().map(|(_, window)| window.as_ref())
    }
}

impl Hosts {
    fn entry(&mut self, host: &str) -> Option<&mut Host> {
        if !self.by_name.contains_key(host) {
            if self.by_name.len() >= HOSTS_MAX {
                return None;
            }
            self.by_name.insert(host.to_owned(), Host { heard: self.newest, ..Host::default() });
        }
        self.by_name.get_mut(host)
    }

    /// Names of a host; `false`: there are too many hosts.
    pub(super) fn said(&mut self, input: Input) -> bool {
        let of = match &input {
            Input::Host(info) => &info.host,
            Input::Entities { host, .. } | Input::Gone { host, .. } => host,
            _ => return true,
        };
        let host = self.entry(&of.clone());
        host.map(|host| host.names.said(input)).is_some()
    }

    /// A window of a host; `false`: there are too many hosts.
    pub(super) fn window(&mut self, window: Arc<HostWindow>) -> bool {
        let at = window.index.0;
        self.newest = self.newest.max(at);
        let Some(host) = self.entry(&window.host.clone()) else { return false };
        host.heard = host.heard.max(at);
        host.windows.insert(at, window);
        let oldest = host.heard.saturating_sub(KEPT_WINDOWS);
        while host.windows.first_key_value().is_some_and(|(first, _)| *first < oldest) {
            host.windows.pop_first();
        }
        true
    }

    /// Time in state of a host. `false`: there is no room, or it is about too much or too little.
    pub(super) fn states(&mut self, states: HostStates) -> bool {
        let span = u64::from(states.windows);
        let Some(host) = self.entry(&states.host.clone()) else { return false };
        if span == 0 || span > SPAN_WINDOWS_MAX || host.waiting.len() >= WAITING_MAX {
            return false;
        }
        host.waiting.push_back(states);
        true
    }

    /// Takes what can be judged now: of each host what windows of `JUDGED_AFTER_WINDOWS` later came of; `all`: everything, because
    /// nothing more comes.
    pub(super) fn due(&mut self, all: bool) -> Vec<HostStates> {
        let mut due = Vec::new();
        for host in self.by_name.values_mut() {
            while host.waiting.front().is_some_and(|of| all || of.last.0 + JUDGED_AFTER_WINDOWS <= host.heard)
            {
                due.extend(host.waiting.pop_front());
            }
        }
        due
    }

    /// Forgets hosts that are silent.
    pub(super) fn sweep(&mut self) {
        let oldest = self.newest.saturating_sub(IDLE_WINDOWS);
        self.by_name.retain(|_, host| host.heard >= oldest);
    }

    /// One host.
    pub(super) fn get(&self, host: &str) -> Option<&Host> {
        self.by_name.get(host)
    }

    /// The newest window of any host.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_model::window::WindowIndex;

    fn window(host: &str, index: u64) -> Arc<HostWindow> {
        Arc::new(HostWindow { host: host.into(), index: WindowIndex(index), ..HostWindow::default() })
    }

    fn states(last: u64, windows: u32) -> HostStates {
        HostStates { host: "a".into(), last: WindowIndex(last), windows, ..HostStates::default() }
    }

    #[test]
    fn a_second_waits_until_what_decided_it_can_be_known() {
        let mut hosts = Hosts::default();
        assert!(hosts.states(states(1019, 20)) && hosts.states(states(1039, 20)));
        (1000..1119).for_each(|index| assert!(hosts.window(window("a", index))));
        assert!(hosts.due(false).is_empty(), "1118 is 99 windows later");
        hosts.window(window("a", 1119));
        assert_eq!(hosts.due(false).len(), 1);
        assert_eq!(hosts.get("a").unwrap().windows(1000, 1019).count(), 20, "its windows are there");
        assert_eq!(hosts.due(true).len(), 1);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut hosts = Hosts::default();
        (0..2000).for_each(|index| _ = hosts.window(window("a", index)));
        assert_eq!(hosts.get("a").unwrap().windows(0, 2000).count() as u64, KEPT_WINDOWS + 1);
        assert!(!hosts.states(states(1, 0)) && !hosts.states(states(1, 41)));
        let taken = (0..200).filter(|n| hosts.states(states(*n, 20))).count();
        assert_eq!(taken, WAITING_MAX);
        hosts.window(window("b", 20_000));
        hosts.sweep();
        assert!(hosts.get("a").is_none() && hosts.get("b").is_some());
        let more = (0..2 * HOSTS_MAX).filter(|n| hosts.window(window(&n.to_string(), 20_000))).count();
        assert_eq!(more, HOSTS_MAX - 1);
    }
}

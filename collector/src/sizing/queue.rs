//! What waits for the thread that learns: windows, time in state, names and incidents, each bounded. The analysis' thread puts in and
//! never waits; when the learning is behind, the oldest go, with a counter. Knows no learner.

use crate::counters::Counter;
use crate::live::waiting::WindowQueue;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tailwater_model::Incident;
use tailwater_model::incident::{Resource, State};
use tailwater_model::window::{HostShares, HostStates, HostWindow, Input};

/// Memory of windows that wait, about; they mostly are those that the series hold too.
const WINDOW_BYTES_MAX: usize = 16 << 20;
/// Seconds of hosts that wait.
const STATES_MAX: usize = 4096;
/// Looks at cgroups whose servers share the CPU that wait.
const SHARES_MAX: usize = 1024;
/// Names that wait, entities of all hosts.
const NAMES_MAX: usize = 65_536;
/// Incidents that wait, each with its newest version.
const INCIDENTS_MAX: usize = 1024;

/// Of an incident what says which seconds were not a tier's own.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    /// The first sign.
    pub(super) start_unix_ns: u64,
    /// The end of the last window that belongs to it. Of one that retries keep alive: when its root was over, since from then on what is
    /// too much is load, and who serves it does so on its own account.
    pub(super) end_unix_ns: u64,
    /// It may still grow.
    pub(super) open: bool,
    /// What was short.
    pub(super) resource: Resource,
    /// Host and workload of the root.
    pub(super) root: (String, String),
    /// Hosts and workloads of all that take part, the root among them.
    pub(super) tiers: Vec<(String, String)>,
}

impl Span {
    fn of(incident: &Incident) -> Self {
        let root = (incident.root.host.clone(), incident.root.workload.clone());
        let hops = incident.hops.iter().map(|hop| (hop.host.clone(), hop.workload.clone()));
        let drops = incident.drops.iter().map(|drop| (drop.host.clone(), drop.workload.clone()));
        let mut tiers: Vec<_> = hops.chain(drops).chain([root.clone()]).collect();
        tiers.sort();
        tiers.dedup();
        let root_over = incident.sustained.as_ref().map(|sustained| sustained.since_unix_ns);
        Self {
            start_unix_ns: incident.start_unix_ns,
            end_unix_ns: root_over.unwrap_or(incident.end_unix_ns),
            open: incident.state == State::Open && root_over.is_none(),
            resource: incident.root.resource,
            root,
            tiers,
        }
    }
}

/// What was lost because the thread was behind.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    /// Windows of a host.
    pub(super) windows: Counter,
    /// Seconds of a host's time in state.
    pub(super) states: Counter,
    /// Looks at cgroups whose servers share the CPU.
    pub(super) shares: Counter,
    /// Messages with names.
    pub(super) names: Counter,
    /// Incidents.
    pub(super) incidents: Counter,
}

/// Everything that waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    windows: WindowQueue,
    states: VecDeque<HostStates>,
    shares: VecDeque<HostShares>,
    names: VecDeque<Input>,
    names_count: usize,
    incidents: BTreeMap<String, Span>,
}

/// The same, for whoever learns; names come first.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) names: VecDeque<Input>,
    pub(super) windows: Vec<Arc<HostWindow>>,
    pub(super) states: VecDeque<HostStates>,
    pub(super) shares: VecDeque<HostShares>,
    pub(super) incidents: BTreeMap<String, Span>,
}

impl Waiting {
    /// What the pipeline is about to get; of a window, as it is kept.
    pub(super) fn saw(&mut self, input: &Input, kept: Option<&Arc<HostWindow>>, dropped: &Dropped) {
        match (input, kept) {
            (_, Some(window)) => self.windows.push(Arc::clone(window), WINDOW_BYTES_MAX, &dropped.windows),
            (Input::States(states), None) => {
                self.states.push_back((**states).clone());
                if self.states.len() > STATES_MAX {
                    self.states.pop_front();
                    dropped.states.inc();
                }
            }
            (Input::Shares(shares), None) => {
                self.shares.push_back((**shares).clone());
                if self.shares.len() > SHARES_MAX {
                    self.shares.pop_front();
                    dropped.shares.inc();
                }
            }
            (Input::Host(_) | Input::Entities { .. } | Input::Gone { .. }, None) => {
                let count = entities(input);
                // The newest is refused: those before it say what it builds on.
                if self.names_count + count > NAMES_MAX {
                    dropped.names.inc();
                } else {
                    self.names_count += count;
                    self.names.push_back(input.clone());
                }
            }
            (Input::Window(_) | Input::Drop(_) | Input::Tick { .. }, None) => {}
        }
    }

    /// A version of an incident; only the newest counts.
    pub(super) fn incident(&mut self, incident: &Incident, dropped: &Dropped) {
        if self.incidents.len() >= INCIDENTS_MAX && !self.incidents.contains_key(&incident.id) {
            dropped.incidents.inc();
        } else {
            self.incidents.insert(incident.id.clone(), Span::of(incident));
        }
    }

    /// Bytes of windows that wait, and at most may.
    pub(super) fn fill(&self) -> (usize, usize) {
        (self.windows.bytes(), WINDOW_BYTES_MAX)
    }

    /// Everything.
    pub(super) fn take(&mut self) -> Taken {
        self.names_count = 0;
        Taken {
            names: std::mem::take(&mut self.names),
            windows: self.windows.take().into_iter().map(|(window, _)| window).collect(),
            states: std::mem::take(&mut self.states),
            shares: std::mem::take(&mut self.shares),
            incidents: std::mem::take(&mut self.incidents),
        }
    }
}

/// How much room a message with names takes.
fn entities(input: &Input) -> usize {
    match input {
        Input::Entities { workloads, listeners, edges, .. } => {
            1 + workloads.len() + listeners.len() + edges.len()
        }
        Input::Gone { gone, .. } => 1 + gone.workloads.len() + gone.listeners.len() + gone.edges.len(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_goes_and_is_counted() {
        let (mut waiting, dropped) = (Waiting::default(), Dropped::default());
        for n in 0..STATES_MAX + 3 {
            let states = HostStates { windows: n as u32, ..HostStates::default() };
            waiting.saw(&Input::States(Box::new(states)), None, &dropped);
        }
        for n in 0..SHARES_MAX as u64 + 4 {
            let shares = HostShares { span_ns: n, ..HostShares::default() };
            waiting.saw(&Input::Shares(Box::new(shares)), None, &dropped);
        }
        let window = Arc::new(HostWindow { culprits: Vec::new(), ..HostWindow::default() });
        let input = Input::Window(Arc::new(window.as_ref().clone()));
        let fits = WINDOW_BYTES_MAX / crate::live::windows::size_of(&window);
        (0..fits + 2).for_each(|_| waiting.saw(&input, Some(&window), &dropped));
        for n in 0..INCIDENTS_MAX + 1 {
            waiting.incident(&crate::fixture::incident(&n.to_string(), 1), &dropped);
        }
        // A new version of one that is there needs no room.
        waiting.incident(&crate::fixture::incident("0", 2), &dropped);
        let host = Input::Host(tailwater_model::window::HostInfo::default());
        (0..NAMES_MAX + 5).for_each(|_| waiting.saw(&host, None, &dropped));
        let Dropped { windows, states, shares, names, incidents } = &dropped;
        assert_eq!([windows, states, shares, names, incidents].map(Counter::get), [2, 3, 4, 5, 1]);
        let taken = waiting.take();
        assert_eq!(taken.states.front().map(|s| s.windows), Some(3), "the oldest went");
        assert_eq!(taken.shares.front().map(|s| s.span_ns), Some(4));
        assert_eq!((taken.windows.len(), taken.names.len()), (fits, NAMES_MAX));
        assert_eq!(waiting.fill().0, 0);
    }

    #[test]
    fn an_incident_names_all_that_take_part_once() {
        let span = Span::of(&crate::fixture::incident("x", 1));
        assert!(span.open && span.resource == Resource::CpuNeighbour);
        let names: Vec<&str> = span.tiers.iter().map(|(_, workload)| workload.as_str()).collect();
        assert_eq!(names, ["tomcat10.service", "apache2.service"]);
    }

    #[test]
    fn what_retries_keep_alive_ends_with_its_root() {
        let mut incident = crate::fixture::incident("x", 1);
        let since_unix_ns = incident.start_unix_ns + 700_000_000;
        let sustained = serde_json::json!({
            "by": "retries", "since_unix_ns": since_unix_ns, "until_unix_ns": since_unix_ns + 9_000_000_000, "retry_share": 0.8,
            "attempts_per_second": 3000.0, "first_attempts_per_second": 600.0, "capacity_per_second": 700.0,
            "usual_per_second": 600.0, "host": "web-1", "workload": "apache2.service", "listener": "10.0.0.1:80",
            "queue_needed": 4092, "load_below_per_second": 250.0, "load_below_for_s": 12, "way_out": "", "evidence": "",
        });
        incident.sustained = Some(serde_json::from_value(sustained).unwrap());
        let span = Span::of(&incident);
        assert_eq!((span.open, span.end_unix_ns), (false, since_unix_ns));
    }
}

//! Inputs in, outputs out: the one entry to the analysis. Owns the order of its stages and the list of recent incidents;
//! every rule is elsewhere.

use crate::baseline::Baseline;
use crate::baseline::congestion::Congestion;
use crate::case::cases::Cases;
use crate::case::trigger::felt;
use crate::config::Config;
use crate::frame::align::{Aligner, Frame, Taken};
use crate::frame::history::{History, LOOK_WINDOWS, Update, absent};
use crate::path::view::View;
use crate::report::early_alert::Alerts;
use crate::report::version;
use crate::series::drawn::Drawn;
use crate::topology::graph::{Topology, span};
use crate::topology::tier::TierKey;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailwater_model::congestion::CongestionView;
use tailwater_model::incident::{Incident, State};
use tailwater_model::topology::TopologyView;
use tailwater_model::window::{DropNotice, Host, HostWindow, Input, WINDOW_NS, WindowIndex};

/// Incidents kept for [`Pipeline::incidents`]; the oldest closed ones go first.
const INCIDENTS_MAX: usize = 256;
/// Findings of a host and kind that are told, each once until it is forgotten: each minute limits, and those of a host of which no window was
/// taken for a minute. One that lives and whose windows are never taken, late or ahead as they are, is so told each minute.
const COMPLAINTS_MAX: usize = 4096;
/// A drop notice this far from the clock is not believed, ns.
const NOTICE_AWAY_NS: u64 = 10_000_000_000;

/// What the pipeline has to say.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// A drop was noticed and belongs to no open incident; its cause is being determined. The incident that the windows open
    /// carries the same id.
    Alert(Box<Incident>),
    /// A new version of an incident.
    Incident(Box<Incident>),
    /// Something about the inputs that an operator should know.
    Note(Finding),
}

/// Something about the inputs that an operator should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// Whose inputs.
    pub host: String,
    /// Start of the window it is about, Unix ns; 0: none.
    pub unix_ns: u64,
    /// A sentence.
    pub detail: String,
}

/// Kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A host's windows begin to be missing from frames.
    GapBegins,
    /// They are there again.
    GapEnds,
    /// Windows came after their frame; told once until one comes in time.
    LateWindow,
    /// A window, or a drop notice, lies far from the collector's clock; told once until one does not.
    FutureWindow,
    /// An agent lost windows in the kernel.
    LostWindows,
    /// More entities, hosts or open incidents than the pipeline keeps; told again after a minute in which it was so.
    LimitReached,
    /// A drop notice that no window confirmed.
    UnconfirmedDrop,
}

/// The analysis: feed it inputs in arrival order. The incidents it reports are a function of the windows alone, whatever their
/// order within the lateness bound.
#[derive(Debug)]
pub struct Pipeline {
    config: Config,
    aligner: Aligner,
    history: History,
    topology: Topology,
    congestion: Congestion,
    baselines: BTreeMap<TierKey, Baseline>,
    drawn: Drawn,
    cases: Cases,
    alerts: Alerts,
    recent: BTreeMap<String, Incident>,
    missing: BTreeSet<Host>,
    complained: BTreeSet<(Host, FindingKind)>,
    clock_unix_ns: u64,
}

impl Pipeline {
    /// An empty pipeline.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            aligner: Aligner::new(config.lateness_ns),
            config,
            history: History::default(),
            topology: Topology::default(),
            congestion: Congestion::default(),
            baselines: BTreeMap::new(),
            drawn: Drawn::default(),
            cases: Cases::default(),
            alerts: Alerts::default(),
            recent: BTreeMap::new(),
            missing: BTreeSet::new(),
            complained: BTreeSet::new(),
            clock_unix_ns: 0,
        }
    }

    /// Takes one input; returns what followed from it.
    pub fn feed(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Host(info) => {
                let host = info.host.clone();
                if self.aligner.announce(&host) == Taken::TooManyHosts {
                    self.complain(
                        &mut out,
                        FindingKind::LimitReached,
                        &host,
                        0,
                        "more hosts than the pipeline keeps; this one is ignored",
                    );
                } else {
                    self.rename(&mut out, &host, Update::Host(info));
                }
            }
            Input::Entities { host, workloads, listeners, edges, devices: _ } => {
                self.rename(&mut out, &host, Update::Entities { workloads, listeners, edges });
            }
            Input::Gone { host, gone } => self.rename(&mut out, &host, Update::Gone(gone)),
            Input::Window(window) => self.window(&mut out, window),
            Input::Drop(notice) => self.notice(&mut out, &notice),
            // What sizing learns from: no rule reads it.
            Input::States(_) | Input::Shares(_) => {}
            Input::Tick { unix_ns } => {
                self.aligner.tick(unix_ns);
                self.clock_unix_ns = self.clock_unix_ns.max(unix_ns);
            }
        }
        while let Some(frame) = self.aligner.ready() {
            self.frame(&mut out, frame);
        }
        out
    }

    /// The first window whose frame has not left yet; 0 before the first one. Frames leave in order.
    #[must_use]
    pub fn frames_to(&self) -> WindowIndex {
        WindowIndex(self.history.next)
    }

    /// Open and recently closed incidents, by time of their first drop.
    #[must_use]
    pub fn incidents(&self) -> Vec<Incident> {
        self.recent.values().cloned().collect()
    }

    /// Who calls whom.
    #[must_use]
    pub fn topology(&self) -> TopologyView {
        self.topology.view(|key, tier| {
            self.baselines.get(key).map_or(tier.workers_limit, |b| b.workers_limit(tier.workers_limit))
        })
    }

    /// Load against throughput of every listener, and where it bends.
    #[must_use]
    pub fn congestion(&self) -> CongestionView {
        self.congestion.view()
    }

    /// No more inputs: emits the waiting frames and closes what is open.
    pub fn finish(&mut self) -> Vec<Output> {
        let mut out = Vec::new();
        while let Some(frame) = self.aligner.flush() {
            self.frame(&mut out, frame);
        }
        let view = View::of(&self.history, &self.topology, &self.congestion, &self.config.thresholds);
        let now = self.history.next.saturating_sub(1);
        let closed = version::close(&mut self.cases, view, &self.baselines, now);
        self.keep(&mut out, closed);
        out
    }

    fn rename(&mut self, out: &mut Vec<Output>, host: &str, update: Update) {
        let from = self.aligner.newest(host).map_or(0, |newest| newest.saturating_add(1));
        if !self.history.update(host, from, update) {
            self.complain(
                out,
                FindingKind::LimitReached,
                host,
                0,
                "more changes of names than windows; the newest are ignored",
            );
        }
    }

    fn window(&mut self, out: &mut Vec<Output>, window: Arc<HostWindow>) {
        let (told, at, lost) = (Arc::clone(&window), window.index.start_unix_ns(), window.lost_before);
        let host = &told.host;
        match self.aligner.take(window) {
            Taken::Kept => {
                // Mostly nobody complained, and never is it looked through for each window of each host.
                if !self.complained.is_empty() {
                    for kind in [FindingKind::LateWindow, FindingKind::FutureWindow] {
                        self.complained.remove(&(host.clone(), kind));
                    }
                }
                if lost > 0 {
                    out.push(note(
                        FindingKind::LostWindows,
                        host,
                        at,
                        format!("the agent lost {lost} windows before this one: it got no CPU for too long"),
                    ));
                }
            }
            Taken::Duplicate => {}
            Taken::Late => {
                self.complain(
                    out,
                    FindingKind::LateWindow,
                    host,
                    at,
                    "its windows come after their frames have left; they count as missing",
                );
            }
            Taken::Future => {
                self.complain(
                    out,
                    FindingKind::FutureWindow,
                    host,
                    at,
                    "its windows lie ahead of the collector's clock; check both clocks",
                );
            }
            Taken::TooManyHosts => {
                self.complain(
                    out,
                    FindingKind::LimitReached,
                    host,
                    at,
                    "more hosts than the pipeline keeps; this one is ignored",
                );
            }
        }
    }

    fn notice(&mut self, out: &mut Vec<Output>, notice: &DropNotice) {
        if self.clock_unix_ns > 0 && notice.unix_ns.abs_diff(self.clock_unix_ns) > NOTICE_AWAY_NS {
            let what = "a drop notice lies far from the collector's clock and is ignored";
            self.complain(out, FindingKind::FutureWindow, &notice.host, notice.unix_ns, what);
            return;
        }
        let view = View::of(&self.history, &self.topology, &self.congestion, &self.config.thresholds);
        if let Some(alert) = self.alerts.notice(view, &self.config, &self.cases.open, notice) {
            out.push(Output::Alert(Box::new(alert)));
        }
    }

    fn frame(&mut self, out: &mut Vec<Output>, frame: Frame) {
        let (now, before) = (frame.index.0, self.history.next);
        // Where a silence was jumped over no frame may be that of the minute.
        if before.checked_sub(1).is_some_and(|last| last / LOOK_WINDOWS != now / LOOK_WINDOWS) {
            self.forget_complaints();
        }
        self.gaps(out, &frame);
        let met = self.topology.meet(&frame);
        let changed = self.history.push(frame);
        let left = |host: &Host| !self.history.hosts.contains_key(host);
        self.drawn.frame(self.history.next, now != before || changed.iter().any(left));
        if !changed.is_empty() || !met.is_empty() {
            self.topology.update(&self.history, &self.config.tiers, &changed, &met);
        }
        for host in &changed {
            let gone = |key: &&TierKey| !self.topology.tiers.contains_key(*key);
            let gone: Vec<TierKey> =
                self.baselines.range(span(host)).map(|(key, _)| key).filter(gone).cloned().collect();
            gone.iter().for_each(|key| _ = self.baselines.remove(key));
        }
        self.congestion.observe(&self.history, &self.topology, &changed, now);
        let view = View::of(&self.history, &self.topology, &self.congestion, &self.config.thresholds)
            .with(&self.drawn);
        let (triggers, drops) = felt(view, &mut self.baselines, now);
        for dropped in &drops {
            self.alerts.confirm(view, &dropped.tier, now);
        }
        for refused in self.cases.take(view, &self.config, now, &triggers, &drops) {
            let at = WindowIndex(now).start_unix_ns();
            out.push(note(FindingKind::LimitReached, &refused.host, at, refused.detail()));
        }
        let told = version::tell(&mut self.cases, view, &self.baselines, &self.config, now);
        for (window, tier) in self.alerts.settle(now, self.config.quiet_ns / WINDOW_NS) {
            let detail = "a drop was noticed that the windows do not show".to_owned();
            out.push(note(
                FindingKind::UnconfirmedDrop,
                &tier.host,
                WindowIndex(window).start_unix_ns(),
                detail,
            ));
        }
        self.keep(out, told);
    }

    fn gaps(&mut self, out: &mut Vec<Output>, frame: &Frame) {
        let (now, at) = (frame.index.0, frame.index.start_unix_ns());
        for host in frame.hosts.keys().filter(|h| self.missing.contains(*h)) {
            out.push(note(FindingKind::GapEnds, host, at, "its windows are there again".to_owned()));
        }
        self.missing.retain(|host| !frame.hosts.contains_key(host) && self.history.hosts.contains_key(host));
        let silent = absent(self.history.hosts.keys(), frame.hosts.keys());
        let silent = silent.filter(|h| !self.missing.contains(*h) && self.history.heard_lately(h, now));
        let silent: Vec<Host> = silent.cloned().collect();
        for host in silent {
            out.push(note(
                FindingKind::GapBegins,
                &host,
                at,
                "its windows are missing; what happens there is not seen".to_owned(),
            ));
            self.missing.insert(host);
        }
    }

    fn keep(&mut self, out: &mut Vec<Output>, told: Vec<Incident>) {
        for incident in told {
            self.recent.insert(incident.id.clone(), incident.clone());
            out.push(Output::Incident(Box::new(incident)));
        }
        while self.recent.len() > INCIDENTS_MAX {
            let oldest = self
                .recent
                .iter()
                .find(|(_, i)| i.state == State::Closed)
                .or(self.recent.iter().next())
                .map(|(id, _)| id.clone());
            oldest.and_then(|id| self.recent.remove(&id));
        }
    }

    /// A limit that goes on to bite is told again, and a host that is gone takes no place from those that come: else nothing more would be told
    /// once as many had been there as are remembered.
    fn forget_complaints(&mut self) {
        self.complained
            .retain(|(host, kind)| *kind != FindingKind::LimitReached && self.aligner.newest(host).is_some());
    }

    fn complain(&mut self, out: &mut Vec<Output>, kind: FindingKind, host: &str, unix_ns: u64, detail: &str) {
        if self.complained.len() < COMPLAINTS_MAX && self.complained.insert((host.to_owned(), kind)) {
            out.push(note(kind, host, unix_ns, detail.to_owned()));
        }
    }
}

fn note(kind: FindingKind, host: &str, unix_ns: u64, detail: String) -> Output {
    Output::Note(Finding { kind, host: host.to_owned(), unix_ns, detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window after one in which it is looked for what nobody speaks of any more.
    const FIRST: u64 = 40 * LOOK_WINDOWS + 1;

    fn window(host: &str, index: u64) -> Input {
        let window = HostWindow { host: host.to_owned(), index: WindowIndex(index), ..HostWindow::default() };
        Input::Window(Arc::new(window))
    }

    /// Windows of the host "a" alone, each with its frame.
    fn frames(pipeline: &mut Pipeline, indices: std::ops::Range<u64>) {
        for index in indices {
            pipeline.feed(window("a", index));
            let unix_ns = WindowIndex(index).end_unix_ns() + pipeline.config.lateness_ns;
            pipeline.feed(Input::Tick { unix_ns });
        }
    }

    /// How often a limit is told while so many names change between two windows.
    fn told_of_names(pipeline: &mut Pipeline, changes: usize) -> usize {
        let change = || Input::Entities {
            host: "a".to_owned(),
            workloads: vec![],
            listeners: vec![],
            edges: vec![],
            devices: vec![],
        };
        let out = (0..changes).flat_map(|_| pipeline.feed(change()));
        out.filter(|o| matches!(o, Output::Note(f) if f.kind == FindingKind::LimitReached)).count()
    }

    #[test]
    fn a_limit_that_goes_on_to_bite_is_told_once_a_minute() {
        let mut pipeline = Pipeline::new(Config::default());
        frames(&mut pipeline, FIRST..FIRST + 10);
        assert_eq!(told_of_names(&mut pipeline, 2000), 1);
        frames(&mut pipeline, FIRST + 10..FIRST + 20);
        assert_eq!(told_of_names(&mut pipeline, 2000), 0, "it was told just now");
        frames(&mut pipeline, FIRST + 20..FIRST + LOOK_WINDOWS + 20);
        assert_eq!(told_of_names(&mut pipeline, 2000), 1);
    }

    #[test]
    fn a_minute_is_over_also_where_its_frame_was_jumped_over() {
        let mut pipeline = Pipeline::new(Config::default());
        frames(&mut pipeline, FIRST + 800..FIRST + 810);
        assert_eq!(told_of_names(&mut pipeline, 2000), 1);
        let unix_ns = WindowIndex(FIRST + 1310).end_unix_ns() + pipeline.config.lateness_ns;
        pipeline.feed(Input::Tick { unix_ns });
        assert_eq!(pipeline.frames_to().0, FIRST + 1311, "one frame after a long silence");
        assert_eq!(told_of_names(&mut pipeline, 2000), 1);
    }

    #[test]
    fn what_was_told_of_hosts_that_are_gone_is_forgotten() {
        let mut pipeline = Pipeline::new(Config::default());
        frames(&mut pipeline, FIRST..FIRST + 10);
        for n in 0..100 {
            pipeline.feed(window(&format!("gone-{n}"), FIRST));
        }
        assert_eq!(pipeline.complained.len(), 100, "their window came late");
        frames(&mut pipeline, FIRST + 10..FIRST + LOOK_WINDOWS + 10);
        assert!(pipeline.complained.is_empty(), "{:?}", pipeline.complained);
    }
}

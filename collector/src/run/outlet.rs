//! Where the pipeline's outputs go: the store, alerts, live subscribers, counters; and its inputs, to the windows kept in memory.
//! Called on the pipeline's thread, so nothing here waits.

use crate::alert::Alerts;
use crate::clock::Clock;
use crate::counters::Metrics;
use crate::export::Export;
use crate::ingest::limits;
use crate::live::timeline;
use crate::moments::Moments;
use crate::run::provisional::Provisionals;
use crate::serve::Shown;
use crate::sizing::Sizing;
use crate::traces::Traces;
use std::sync::{Arc, PoisonError};
use tailwater_analysis::{FindingKind, Output};
use tailwater_model::incident::{Kind, State};
use tailwater_model::window::Input;
use tailwater_model::{CongestionView, Incident, TopologyView};

/// The pipeline thread's side.
#[derive(Debug)]
pub struct Outlet {
    /// What others read.
    pub shown: Shown,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Others' monitoring.
    pub export: Arc<Export>,
    /// Sizes of pools.
    pub sizing: Arc<Sizing>,
    /// Hooks.
    pub alerts: Alerts,
    /// Slow traces of others, which are looked for when an incident is over.
    pub traces: Arc<Traces>,
    /// Early alerts that wait for their windows.
    pub provisionals: Provisionals,
}

impl Outlet {
    /// The pipeline is about to get this.
    pub fn saw(&mut self, input: &Input) {
        if let Input::Window(_) = input {
            self.metrics.windows.inc();
        }
        let kept = match input {
            Input::Window(_) | Input::Entities { .. } | Input::Gone { .. } | Input::Host(_) => {
                self.shown.series.lock().unwrap_or_else(PoisonError::into_inner).saw(input)
            }
            // Nothing is kept of these. A drop is on its way to an alert, and readers may have the lock.
            Input::States(_) | Input::Shares(_) | Input::Drop(_) | Input::Tick { .. } => None,
        };
        self.export.saw(input, kept.as_ref());
        self.sizing.saw(input, kept.as_ref());
        if let Some(window) = kept {
            self.shown.past.queue.window(window);
        }
    }

    /// The pipeline said this; of what a drop event brought about, how that came here.
    pub fn output(&mut self, output: Output, moments: Option<Moments>) {
        match output {
            Output::Alert(alert) => {
                self.provisionals.alert(&alert);
                self.incident(*alert, &[], moments);
            }
            Output::Incident(incident) => {
                let replaced = self.provisionals.replaced_by(&incident);
                self.incident(*incident, &replaced, None);
            }
            Output::Note(finding) => {
                self.metrics.findings.inc(finding_name(finding.kind));
                if finding.kind == FindingKind::LimitReached {
                    self.metrics.limits.reached("analysis", 1, Clock::default().unix_ns());
                    // `/readyz` says that the log names whom it concerns.
                    tracing::warn!(host = %finding.host, "{}", finding.detail);
                    return;
                }
                tracing::debug!(host = %finding.host, kind = finding_name(finding.kind), "{}", finding.detail);
            }
        }
    }

    /// Time went on.
    pub fn tick(&mut self, unix_ns: u64) {
        for closed in self.provisionals.unconfirmed(unix_ns) {
            self.incident(closed, &[], None);
        }
    }

    fn incident(&mut self, incident: Incident, replaces: &[String], early: Option<Moments>) {
        self.sizing.incident(&incident);
        let closed = incident.state == State::Closed;
        // Of one that lives longer than a timeline shows, it is made while the windows of its onset are in memory.
        let long = incident.end_unix_ns.saturating_sub(incident.start_unix_ns) > timeline::SPAN_NS;
        let known =
            || self.shown.store.lock().unwrap_or_else(PoisonError::into_inner).has_timeline(&incident.id);
        let wanted = (closed || long) && !(long && known());
        let cut =
            || timeline::cut(&incident, &self.shown.series.lock().unwrap_or_else(PoisonError::into_inner));
        let kept = wanted.then(cut).flatten().map(|windows| timeline::of(&incident, &windows));
        let incident = {
            let mut store = self.shown.store.lock().unwrap_or_else(PoisonError::into_inner);
            replaces.iter().for_each(|alert| store.replace(alert, &incident.id));
            store.put(incident, kept)
        };
        let Some(incident) = incident else { return };
        if closed {
            self.metrics.incidents.inc(incident.kind.name());
            tracing::info!(id = %incident.id, kind = incident.kind.name(), "{}", incident.title);
        } else if incident.version <= 1 {
            tracing::info!(id = %incident.id, version = incident.version, "{}", incident.title);
        }
        let early = early.map(|m| Moments { decided: Clock::default().unix_ns(), ..m });
        self.alerts.incident(&incident, replaces, early);
        self.traces.incident(&incident);
    }

    /// Shows the topology as it is now.
    pub fn topology(&mut self, view: TopologyView) {
        *self.shown.topology.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
    }

    /// Shows the congestion points as they are now.
    pub fn congestion(&mut self, view: CongestionView) {
        *self.shown.congestion.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
    }

    /// The pipeline has ended.
    pub fn close(self) {
        tracing::debug!("the analysis has ended");
    }
}

/// Every kind of finding, so that its counters begin at zero and a first one is an increase; as [`Kind::ALL`] of incidents.
const FINDINGS: [FindingKind; 7] = [
    FindingKind::GapBegins,
    FindingKind::GapEnds,
    FindingKind::LateWindow,
    FindingKind::FutureWindow,
    FindingKind::LostWindows,
    FindingKind::LimitReached,
    FindingKind::UnconfirmedDrop,
];

/// The label values that `/metrics` begins with.
pub(crate) fn begin(metrics: &Metrics) {
    Kind::ALL.iter().for_each(|kind| metrics.incidents.add(kind.name(), 0));
    limits::NAMES.iter().for_each(|limit| metrics.limits.reached.add(limit, 0));
    FINDINGS.iter().for_each(|kind| metrics.findings.add(finding_name(*kind), 0));
}

fn finding_name(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::GapBegins => "gap_begins",
        FindingKind::GapEnds => "gap_ends",
        FindingKind::LateWindow => "late_window",
        FindingKind::FutureWindow => "future_window",
        FindingKind::LostWindows => "lost_windows",
        FindingKind::LimitReached => "limit_reached",
        FindingKind::UnconfirmedDrop => "unconfirmed_drop",
    }
}

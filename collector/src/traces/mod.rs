//! Spans of others' exporters: those that were slow or failed are held for some minutes, and of an incident the slowest of each service that overlap it
//! are kept with it, so that whoever reads it can open their traces. Owns what may be in memory of them, and when an incident is looked at. No verdict
//! is made of them, and nothing of this stands on the way of a window or an alert. Knows an incident and the wire of OTLP; neither windows nor the store.

mod chosen;
pub mod config;
mod http;
mod message;
mod slow;
mod stats;
mod watch;

pub use http::routes;
pub use watch::keep;

use crate::clock::Clock;
use crate::lock::lock;
use chosen::Way;
use config::Traces as Settings;
use slow::Ring;
use stats::Stats;
use std::sync::{Arc, Mutex};
use tailwater_model::Incident;
use tailwater_model::incident::State;
use tailwater_model::traces::{IncidentTraces, TracesState, TracesView};
use watch::Watch;

/// What is in memory of spans, and the incidents that are looked at.
#[derive(Debug, Default)]
pub struct Traces {
    /// `None`: spans are not taken.
    settings: Option<Settings>,
    ring: Mutex<Ring>,
    watch: Mutex<Watch>,
    stats: Stats,
    clock: Clock,
}

impl Traces {
    /// As configured; without settings spans are not taken.
    #[must_use]
    pub fn new(settings: Option<Settings>, clock: Clock) -> Arc<Self> {
        Arc::new(Self { settings, clock, ..Self::default() })
    }

    /// A version of an incident: called on the analysis' thread once its alert is on its way, so it only notes the time and the names.
    pub fn incident(&self, incident: &Incident) {
        // Of an early alert nobody knows yet what it is of, nor its end.
        if self.settings.is_some() && incident.version > 0 {
            let noted = lock(&self.watch).incident(incident, self.clock.monotonic());
            self.stats.incidents_missed.add(u64::from(!noted));
        }
    }

    /// What is told of an incident: what was kept of it, or, while it is open and as long as it is looked at, what is in memory.
    #[must_use]
    pub fn view(&self, incident: &Incident, kept: Option<IncidentTraces>) -> TracesView {
        let on = self.settings.as_ref();
        let gathering =
            on.is_some() && (incident.state == State::Open || lock(&self.watch).has(&incident.id));
        let state = match &kept {
            Some(kept) if kept.settled => TracesState::Settled,
            _ if gathering => TracesState::Gathering,
            Some(_) => TracesState::Settled,
            None if on.is_none() => TracesState::Off,
            None => TracesState::Missed,
        };
        let mut services = match kept {
            Some(kept) => kept.services,
            None if gathering => {
                let way = Way::of(incident);
                chosen::told(chosen::of(&lock(&self.ring), way.span), &way)
            }
            None => Vec::new(),
        };
        let link = on.and_then(|on| on.link.as_deref());
        for trace in services.iter_mut().flat_map(|of| &mut of.traces) {
            trace.link = link.map(|link| config::link(link, &trace.trace_id));
        }
        let slower_than_ms = on.map(|on| on.slower_than_ms);
        TracesView { id: incident.id.clone(), state, slower_than_ms, services }
    }

    /// Appends OpenMetrics text.
    pub fn render(&self, out: &mut String) {
        let held = {
            let mut ring = lock(&self.ring);
            ring.forget(self.clock.unix_ns());
            ring.len()
        };
        self.stats.render(out, held);
    }
}

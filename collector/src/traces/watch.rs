//! When it is looked for the traces of an incident: every minute while it is open, as spans stay for five; when it is over; and once more when exporters
//! have sent what they held back. Owns these times, and how many incidents are looked at.

use super::Traces;
use super::chosen::{self, Found, Way};
use crate::lock::lock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailwater_model::Incident;
use tailwater_model::incident::State;
use tailwater_model::traces::IncidentTraces;
use tokio_util::sync::CancellationToken;

/// While it is open.
const EVERY: Duration = Duration::from_secs(60);
/// After it is over. A span is sent once it has ended, and the slowest ones of an overflow are those whose SYN was dropped twice: 3 s later (1 and 2 s,
/// RFC 6298), if their span counts that at all. SDKs then hold it for up to 5 s (`OTEL_BSP_SCHEDULE_DELAY`), and a collector of OpenTelemetry in between
/// for some more (its `batch` processor: 0.2 s by default, 5 to 10 s in many set-ups).
const AGAIN_AFTER: Duration = Duration::from_secs(20);
/// Between two looks at what is due.
const PERIOD: Duration = Duration::from_secs(1);
/// Incidents at once: some megabytes.
const WATCHED_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Over, and not looked at since.
    Over,
    /// And looked at.
    Again,
}

#[derive(Debug)]
struct Watched {
    way: Way,
    phase: Phase,
    due: Instant,
    found: Found,
}

/// The incidents that are looked at.
#[derive(Debug, Default)]
pub(super) struct Watch {
    by_id: BTreeMap<String, Watched>,
}

/// A look that is due.
#[derive(Debug)]
struct Due {
    id: String,
    span: (u64, u64),
    phase: Phase,
}

impl Watch {
    /// Notes a version; false: too many are looked at already.
    pub(super) fn incident(&mut self, incident: &Incident, now: Instant) -> bool {
        let (phase, due) = match incident.state {
            State::Open => (Phase::Open, now + EVERY),
            State::Closed => (Phase::Over, now),
        };
        let (way, full) = (Way::of(incident), self.by_id.len() >= WATCHED_MAX);
        match self.by_id.get_mut(&incident.id) {
            Some(watched) if watched.phase == phase => watched.way = way,
            Some(watched) => (watched.way, watched.phase, watched.due) = (way, phase, due),
            None if full => return false,
            None => {
                let watched = Watched { way, phase, due, found: Found::new() };
                self.by_id.insert(incident.id.clone(), watched);
            }
        }
        true
    }

    /// Whether it is looked at.
    pub(super) fn has(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    fn due(&self, by: impl Fn(&Watched) -> bool) -> Vec<Due> {
        let all = self.by_id.iter().filter(|(_, watched)| by(watched));
        all.map(|(id, of)| Due { id: id.clone(), span: of.way.span, phase: of.phase }).collect()
    }

    /// Takes what was found. Says what is to be kept, if it is over.
    fn looked(&mut self, due: &Due, found: Found, now: Instant) -> Option<IncidentTraces> {
        let watched = self.by_id.get_mut(&due.id)?;
        chosen::merge(&mut watched.found, found, &watched.way);
        if watched.phase != due.phase {
            // A version came meanwhile, whose own look is due.
            return None;
        }
        let settled = match due.phase {
            Phase::Open => {
                watched.due = now + EVERY;
                return None;
            }
            Phase::Over => {
                (watched.phase, watched.due) = (Phase::Again, now + AGAIN_AFTER);
                false
            }
            Phase::Again => true,
        };
        let services = chosen::told(watched.found.clone(), &watched.way);
        if settled {
            self.by_id.remove(&due.id);
        }
        Some(IncidentTraces { incident: due.id.clone(), settled, services })
    }
}

impl Traces {
    /// Looks for what is due at this time.
    fn look(&self, now: Instant, keep: &impl Fn(IncidentTraces)) {
        let due = lock(&self.watch).due(|watched| watched.due <= now);
        for due in due {
            // Without the watch, which the analysis' thread needs for a moment now and then.
            let found = chosen::of(&lock(&self.ring), due.span);
            let kept = lock(&self.watch).looked(&due, found, now);
            if let Some(kept) = kept {
                keep(kept);
            }
        }
    }

    /// Looks a last time at whatever is looked at: nobody will later.
    fn last_look(&self, keep: &impl Fn(IncidentTraces)) {
        let all = lock(&self.watch).due(|_| true);
        for due in all {
            let found = chosen::of(&lock(&self.ring), due.span);
            let Some(mut watched) = lock(&self.watch).by_id.remove(&due.id) else { continue };
            chosen::merge(&mut watched.found, found, &watched.way);
            let services = chosen::told(watched.found, &watched.way);
            keep(IncidentTraces { incident: due.id, settled: watched.phase == Phase::Again, services });
        }
    }
}

/// Looks for traces as they are due until `ended`, and hands `keep` those of incidents that are over.
pub async fn keep(traces: Arc<Traces>, ended: CancellationToken, keep: impl Fn(IncidentTraces) + Send) {
    if traces.settings.is_none() {
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => traces.look(traces.clock.monotonic(), &keep),
            () = ended.cancelled() => return traces.last_look(&keep),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Traces as Settings;
    use super::super::slow::Slow;
    use super::*;
    use crate::clock::{Clock, Hands};
    use crate::fixture;
    use std::cell::RefCell;
    use tailwater_model::traces::TracesState;

    const MS: u64 = 1_000_000;

    /// Traces whose clock stands at the end of the fixture's incident.
    fn traces() -> (Arc<Traces>, &'static Hands) {
        let hands: &'static Hands = Box::leak(Box::new(Hands::at(incident(State::Open, 1).end_unix_ns)));
        let settings = Settings {
            slower_than_ms: 200,
            link: Some("https://jaeger.example/trace/{trace_id}".to_owned()),
        };
        (Traces::new(Some(settings), Clock::moved(hands)), hands)
    }

    fn incident(state: State, version: u64) -> Incident {
        Incident { state, ..fixture::incident("01", version) }
    }

    /// A span of `web` that ends now.
    fn sent(traces: &Traces, n: u8, ms: u64) {
        let end_unix_ns = traces.clock.unix_ns();
        let slow = Slow {
            trace_id: [n; 16],
            span_id: [n; 8],
            service: "web".into(),
            host: "".into(),
            name: "GET /".into(),
            start_unix_ns: end_unix_ns - ms * MS,
            end_unix_ns,
            error: false,
        };
        lock(&traces.ring).put(slow, end_unix_ns);
    }

    /// What is kept at this time: settled, and the first byte of each trace's id.
    fn looked(traces: &Traces) -> Vec<(bool, Vec<String>)> {
        let kept = RefCell::new(Vec::new());
        traces.look(traces.clock.monotonic(), &|of: IncidentTraces| kept.borrow_mut().push(of));
        kept.into_inner().into_iter().map(|of| (of.settled, ids(&of))).collect()
    }

    fn ids(of: &IncidentTraces) -> Vec<String> {
        of.services.iter().flat_map(|s| &s.traces).map(|t| t.trace_id[..2].to_owned()).collect()
    }

    #[test]
    fn traces_are_kept_when_an_incident_is_over_and_once_more_when_exporters_have_sent_the_rest() {
        let (traces, hands) = traces();
        traces.incident(&incident(State::Open, 1));
        sent(&traces, 1, 300);
        assert_eq!(looked(&traces), [], "it is open");
        traces.incident(&incident(State::Closed, 2));
        assert_eq!(looked(&traces), [(false, vec!["01".to_owned()])]);
        // It began while the incident lasted and comes 4 s later.
        hands.pass(Duration::from_secs(4));
        sent(&traces, 2, 4500);
        assert_eq!(looked(&traces), []);
        hands.pass(AGAIN_AFTER - Duration::from_secs(4));
        sent(&traces, 3, 300);
        assert_eq!(looked(&traces), [(true, vec!["02".to_owned(), "01".to_owned()])]);
        assert!(!lock(&traces.watch).has("01"));
    }

    #[test]
    fn what_a_long_incident_saw_minutes_ago_is_not_forgotten_with_its_spans() {
        let (traces, hands) = traces();
        let long = |state, version, until: u64| Incident { end_unix_ns: until, ..incident(state, version) };
        traces.incident(&long(State::Open, 1, hands_now(&traces)));
        sent(&traces, 1, 300);
        for minute in 1..=9 {
            hands.pass(EVERY);
            assert_eq!(looked(&traces), [], "{minute}");
        }
        traces.incident(&long(State::Closed, 2, hands_now(&traces)));
        sent(&traces, 2, 400);
        assert_eq!(looked(&traces), [(false, vec!["02".to_owned(), "01".to_owned()])]);
    }

    fn hands_now(traces: &Traces) -> u64 {
        traces.clock.unix_ns()
    }

    #[test]
    fn an_end_keeps_what_is_there_and_what_is_told_says_whether_more_may_come() {
        let (traces, _) = traces();
        let open = incident(State::Open, 1);
        traces.incident(&open);
        sent(&traces, 1, 300);
        let view = traces.view(&open, None);
        assert_eq!((view.state, view.services.len()), (TracesState::Gathering, 1), "from memory");
        let link = view.services[0].traces[0].link.as_deref().unwrap();
        assert_eq!(link, format!("https://jaeger.example/trace/{}", "01".repeat(16)));
        let kept = RefCell::new(Vec::new());
        traces.last_look(&|of| kept.borrow_mut().push(of));
        let kept = kept.into_inner().remove(0);
        assert_eq!((kept.settled, ids(&kept)), (false, vec!["01".to_owned()]));
        let closed = incident(State::Closed, 2);
        assert_eq!(
            traces.view(&closed, Some(kept.clone())).state,
            TracesState::Settled,
            "nobody looks any more"
        );
        assert_eq!(traces.view(&closed, None).state, TracesState::Missed);
        let off = Traces::default();
        assert_eq!(off.view(&open, None).state, TracesState::Off);
        let view = off.view(&closed, Some(kept));
        assert_eq!((view.state, &view.services[0].traces[0].link), (TracesState::Settled, &None));
    }

    #[test]
    fn no_more_incidents_are_looked_at_than_may_be_and_the_others_are_counted() {
        let (traces, _) = traces();
        for n in 0..=WATCHED_MAX {
            traces.incident(&fixture::incident(&format!("{n:02}"), 1));
        }
        assert_eq!(lock(&traces.watch).by_id.len(), WATCHED_MAX);
        assert_eq!(traces.stats.incidents_missed.get(), 1);
        traces.incident(&fixture::incident("99", 0));
        assert_eq!(traces.stats.incidents_missed.get(), 1, "of an early alert nobody asks");
    }
}

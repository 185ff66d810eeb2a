//! What would have prevented an incident: its first attempts once more through a model of its tiers, with other sizes. Worked out when somebody
//! asks, from the windows around it, in memory or on disk; nothing of it is on the way of an alert. This file owns the order of that and
//! what is remembered of answers; `asked` reads sizes that somebody asks about, `places` says which tiers call which, `seen` reads their
//! windows, `costs`, `attempts` and `modelled` make chains of them, `told` says the answer; where there is none, `holding` counts what a queue
//! would have had to hold. The model itself is `tailwater_sizing::prevent`. Knows no store and no HTTP.

mod asked;
mod attempts;
mod costs;
mod holding;
mod modelled;
mod places;
mod seen;
mod told;

#[cfg(test)]
mod tests;

use crate::live::series::Series;
use crate::lock::lock;
pub use asked::Asked;
use modelled::{Modelled, Span, WITHIN_S, modelled};
use places::{Place, places};
use seen::{Row, Server, rows};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tailwater_model::window::WindowIndex;
use tailwater_model::{Incident, PreventionView, TopologyView};
use tailwater_sizing::evidence::Refusal;
use tailwater_sizing::prevent::{Prevention, Sought, Wanted, prevention as sought, what_if as tried};

/// Answers that are remembered: of the newest incidents.
const REMEMBERED_MAX: usize = 256;
/// Refusals after which a later question may have an answer.
const LATER: [&str; 2] = ["not_over", "not_seen"];

/// What would have prevented `incident`, or why that cannot be said. `read` gives what is kept of a host from one window to another, in
/// parts with names of their own.
#[must_use]
pub fn prevention(
    incident: &Incident,
    topology: &TopologyView,
    read: impl Fn(&str, WindowIndex, WindowIndex) -> Vec<Series>,
) -> PreventionView {
    let answer = modelled_of(incident, topology, &read).and_then(|(places, modelled)| {
        let found = with_wanted(&modelled, sought)?;
        Ok(told::answer(&places, &modelled, &found))
    });
    let is_asked = answer.as_ref().err().is_some_and(holding::is_asked);
    let queue = is_asked.then(|| holding::holding(incident, &read)).flatten();
    PreventionView { queue, ..told::view(incident, answer) }
}

/// What had come of `incident` with these sizes, or why that cannot be said; otherwise as [`prevention`].
#[must_use]
pub fn what_if(
    incident: &Incident,
    topology: &TopologyView,
    read: impl Fn(&str, WindowIndex, WindowIndex) -> Vec<Series>,
    asked: &[Asked],
) -> PreventionView {
    let answer = modelled_of(incident, topology, read).and_then(|(places, modelled)| {
        let changes = asked
            .iter()
            .map(|of| of.of(&places, &modelled.chains[0].tiers))
            .collect::<Result<Vec<_>, _>>()?;
        let found = with_wanted(&modelled, |sought| tried(sought, &changes))?;
        Ok(told::answer(&places, &modelled, &found))
    });
    told::view(incident, answer)
}

fn with_wanted(
    modelled: &Modelled,
    find: impl FnOnce(Sought<'_>) -> Result<Prevention, Refusal>,
) -> Result<Prevention, Refusal> {
    let wanted = Wanted { within_s: WITHIN_S.to_vec(), p99_s: WITHIN_S[0] };
    find(Sought { chains: &modelled.chains, seen: &modelled.seen, wanted: &wanted })
}

fn modelled_of(
    incident: &Incident,
    topology: &TopologyView,
    read: impl Fn(&str, WindowIndex, WindowIndex) -> Vec<Series>,
) -> Result<(Vec<Place>, Modelled), Refusal> {
    let span = Span::of(incident)?;
    // Only hosts that a tier is on are read, and each once.
    let hosts: RefCell<BTreeMap<String, Vec<Series>>> = RefCell::default();
    let of = |server: &Server, remotes: &[String]| -> Vec<Option<Row>> {
        let mut hosts = hosts.borrow_mut();
        let parts =
            hosts.entry(server.host.clone()).or_insert_with(|| read(&server.host, span.first, span.last));
        rows(parts, server, remotes, span.first, span.last)
    };
    let calls = |server: &Server, remotes: &[String]| {
        of(server, remotes).iter().flatten().fold(0, |sum: u64, row| sum.saturating_add(row.calls.answered))
    };
    let places = places(incident, topology, calls)?;
    let rows: Vec<_> = places.iter().map(|place| of(&place.server, &place.remotes)).collect();
    let modelled = modelled(incident, &places, &rows, span)?;
    Ok((places, modelled))
}

/// Answers that were given, by incident: each is worked out once for a version of it.
#[derive(Debug, Default)]
pub struct Preventions {
    answers: Mutex<BTreeMap<String, Arc<PreventionView>>>,
}

impl Preventions {
    /// What was worked out for this version of the incident.
    #[must_use]
    pub fn known(&self, incident: &Incident) -> Option<Arc<PreventionView>> {
        lock(&self.answers).get(&incident.id).filter(|view| view.version == incident.version).cloned()
    }

    /// Remembers an answer; that of the oldest incident goes when there are too many. Ids rise with time. What may be known later is not
    /// remembered: an incident that is open, windows that have not come.
    pub fn remember(&self, view: PreventionView) -> Arc<PreventionView> {
        let view = Arc::new(view);
        if view.refused.as_ref().is_some_and(|why| LATER.contains(&why.reason.as_str())) {
            return view;
        }
        let mut answers = lock(&self.answers);
        answers.insert(view.id.clone(), Arc::clone(&view));
        while answers.len() > REMEMBERED_MAX {
            answers.pop_first();
        }
        view
    }
}

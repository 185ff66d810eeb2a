//! What would have prevented an incident: its first attempts once more through a model of its tiers, with other sizes. Worked out when somebody
//! asks, from the windows around it, in memory or on disk; nothing of it is on the way of an alert. This file owns the order of that and
//! what is remembered of answers; `places` says which tiers call which, `seen` reads their windows, `costs` and `modelled` make a chain of
//! them, `told` says the answer. The model itself is `tailwater_sizing::prevent`. Knows no store and no HTTP.

mod costs;
mod modelled;
mod places;
mod seen;
mod told;

#[cfg(test)]
mod tests;

use crate::live::series::Series;
use crate::lock::lock;
use modelled::{Modelled, Span, modelled};
use places::{Place, places};
use seen::{Row, Server, rows};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tailwater_model::window::WindowIndex;
use tailwater_model::{Incident, PreventionView, TopologyView};
use tailwater_sizing::evidence::Refusal;
use tailwater_sizing::prevent::{Prevention, Sought, Wanted, prevention as sought};

/// Answers that are remembered: of the newest incidents.
const REMEMBERED_MAX: usize = 256;
/// Bounds for which goodput is told, s: those of the papers, as the agent counts late answers.
const WITHIN_S: [f64; 2] = [0.5, 3.0];

/// What would have prevented `incident`, or why that cannot be said. `read` gives what is kept of a host from one window to another, in
/// parts with names of their own.
#[must_use]
pub fn prevention(
    incident: &Incident,
    topology: &TopologyView,
    read: impl Fn(&str, WindowIndex, WindowIndex) -> Vec<Series>,
) -> PreventionView {
    let answer = modelled_of(incident, topology, read).and_then(|(places, modelled)| {
        let found = search(&modelled)?;
        Ok(told::answer(&places, &modelled, &found))
    });
    told::view(incident, answer)
}

fn search(modelled: &Modelled) -> Result<Prevention, Refusal> {
    let wanted = Wanted { within_s: WITHIN_S.to_vec(), p99_s: WITHIN_S[0] };
    sought(Sought { chain: &modelled.chain, seen: &modelled.seen, wanted: &wanted })
}

fn modelled_of(
    incident: &Incident,
    topology: &TopologyView,
    read: impl Fn(&str, WindowIndex, WindowIndex) -> Vec<Series>,
) -> Result<(Vec<Place>, Modelled), Refusal> {
    let span = Span::of(incident)?;
    let mut hosts: BTreeMap<String, Vec<Series>> = BTreeMap::new();
    for host in topology.nodes.iter().map(|n| &n.host).chain(incident.hops.iter().map(|h| &h.host)) {
        if !hosts.contains_key(host) {
            hosts.insert(host.clone(), read(host, span.first, span.last));
        }
    }
    let of = |server: &Server, remotes: &[String]| -> Vec<Option<Row>> {
        let parts = hosts.get(&server.host).map(Vec::as_slice).unwrap_or_default();
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

    /// Remembers an answer; that of the oldest incident goes when there are too many. Ids rise with time.
    pub fn remember(&self, view: PreventionView) -> Arc<PreventionView> {
        let view = Arc::new(view);
        let mut answers = lock(&self.answers);
        answers.insert(view.id.clone(), Arc::clone(&view));
        while answers.len() > REMEMBERED_MAX {
            answers.pop_first();
        }
        view
    }
}

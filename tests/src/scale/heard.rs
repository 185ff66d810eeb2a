//! What was told of each episode: when the first alert came, whether its chain was found, and whether anything was told across applications.
//! Reads what receivers and readers get; knows no insides of the collector.

use super::clock::SimClock;
use super::fleet::{Episode, Fleet};
use super::script::{ROLES, WINDOW_NS};
use crate::programs::webhook_receiver::Delivery;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What came of a fleet's episodes.
#[derive(Debug, Default, Clone, serde::Serialize, serde::Deserialize)]
pub struct Heard {
    /// Episodes that were over in time.
    pub episodes: usize,
    /// Those of which a webhook came.
    pub alerted: usize,
    /// Those whose root was told as the recording's.
    pub found: usize,
    /// Incidents in which hosts of two applications stand.
    pub across: usize,
    /// From the first drop event to the first webhook, ms, ascending.
    pub drop_to_alert_ms: Vec<f64>,
    /// From the first drop event to the first webhook that names the root, ms, ascending.
    pub drop_to_verdict_ms: Vec<f64>,
    /// What was not found, in words; a few.
    pub missed: Vec<String>,
}

/// Sentences about what was missed that are kept.
const MISSED_MAX: usize = 8;

/// Hosts of the fleet that an incident speaks of.
fn hosts(incident: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut add = |value: &Value| {
        if let Some(host) = value["host"].as_str() {
            all.insert(host.to_owned());
        }
    };
    add(&incident["root"]);
    for list in ["hops", "drops"] {
        incident[list].as_array().into_iter().flatten().for_each(&mut add);
    }
    all
}

fn applications(incident: &Value) -> BTreeSet<String> {
    hosts(incident).iter().filter_map(|host| Some(host.split_once('-')?.0.to_owned())).collect()
}

/// What of `episodes` was told, by webhooks and by the API's incidents.
#[must_use]
pub fn judge(
    fleet: &Fleet,
    clock: SimClock,
    episodes: &[Episode],
    deliveries: &[Delivery],
    incidents: &[Value],
) -> Heard {
    let mut heard = Heard { episodes: episodes.len(), ..Heard::default() };
    heard.across = incidents.iter().filter(|incident| applications(incident).len() > 1).count();
    let mut by_application: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    let names: Vec<String> = (0..fleet.applications.len()).map(|n| format!("a{n:03}")).collect();
    for incident in incidents {
        for name in applications(incident) {
            if let Some(known) = names.iter().find(|n| **n == name) {
                by_application.entry(known).or_default().push(incident);
            }
        }
    }
    for episode in episodes {
        let of = &fleet.applications[episode.application];
        let from = episode.window * WINDOW_NS;
        let to = from + of.script.episode_windows() * WINDOW_NS;
        let first_drop =
            of.script.roles.iter().flat_map(|role| role.drops.iter()).map(|(at, _)| from + at).min();
        let Some(first_drop) = first_drop else { continue };
        let root = format!("{}-{}", names[episode.application], ROLES[of.script.expected.role]);
        let mark = format!("\"{}-", names[episode.application]);
        let own = deliveries.iter().filter(|d| {
            let at = clock.of(d.received_unix_ns);
            (first_drop..to + 10_000_000_000).contains(&at) && d.body.to_string().contains(&mark)
        });
        let own: Vec<&Delivery> = own.collect();
        let after = |d: &&Delivery| clock.of(d.received_unix_ns).saturating_sub(first_drop) as f64 / 1e6;
        if let Some(first) = own.first() {
            heard.alerted += 1;
            heard.drop_to_alert_ms.push(after(first));
        }
        let named = own.iter().find(|d| {
            let incident = d.body.get("data").unwrap_or(&d.body);
            incident["root"]["host"] == root.as_str()
                && incident["root"]["resource"] == of.script.expected.resource.as_str()
        });
        heard.drop_to_verdict_ms.extend(named.map(after));
        let inside = |incident: &&&Value| {
            let start = incident["start_unix_ns"].as_u64().unwrap_or(0);
            (from..to).contains(&start)
        };
        let told: Vec<_> = by_application
            .get(names[episode.application].as_str())
            .into_iter()
            .flatten()
            .filter(inside)
            .collect();
        let found = told.iter().any(|incident| {
            incident["kind"] == of.script.expected.kind.as_str()
                && incident["root"]["host"] == root.as_str()
                && incident["root"]["resource"] == of.script.expected.resource.as_str()
        });
        heard.found += usize::from(found);
        if !found && heard.missed.len() < MISSED_MAX {
            let titles: Vec<String> = told.iter().map(|i| format!("{}: {}", i["kind"], i["title"])).collect();
            heard.missed.push(format!("{root} ({}), episode at {from}: told {titles:?}", of.script.name));
        }
    }
    heard.drop_to_alert_ms.sort_by(f64::total_cmp);
    heard.drop_to_verdict_ms.sort_by(f64::total_cmp);
    heard
}

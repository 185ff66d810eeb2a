//! Agents that can load no kernel program poll: no requests, no calls, no arrivals. The root is named where a resource was short, wherever
//! that was, and nobody is blamed where nothing was.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::diagnose;
use support::sim::{At, Do, Sim};
use tailwater_model::Incident;
use tailwater_model::incident::{Resource, Role};

fn polled() -> Sim {
    Sim { polled: true, ..Sim::default() }
}

/// The single incident of a run.
fn only(sim: Sim) -> Incident {
    let incidents = diagnose(sim);
    let said: Vec<String> = incidents.iter().map(|i| format!("{}\n  {}", i.title, i.root.evidence)).collect();
    println!("{}", said.join("\n"));
    assert_eq!(incidents.len(), 1, "{}", said.join("\n"));
    incidents.into_iter().next().unwrap()
}

fn root(incident: &Incident) -> (&str, Resource) {
    (incident.root.host.as_str(), incident.root.resource)
}

#[test]
fn a_neighbour_in_the_middle_is_found_without_calls() {
    let sim = polled().act(At::App, 6000..6700, Do::Neighbour(0.95));
    let dropped = sim.run().dropped[0];
    let incident = only(sim);
    assert_eq!(root(&incident), ("app-1", Resource::CpuNeighbour), "{incident:#?}");
    assert_eq!(incident.root.culprits[0].comm, "burner");
    assert_eq!(incident.drops.iter().map(|d| d.count).sum::<u64>(), dropped);
    let hops: Vec<(&str, Role)> = incident.hops.iter().map(|h| (h.host.as_str(), h.role)).collect();
    assert_eq!(hops, [("web-1", Role::Drop), ("app-1", Role::Root)]);
    assert!(incident.hops.iter().all(|h| h.requests_unknown && h.pool_in_flight_max.is_none()));
    assert!(incident.title.contains("requests not measured"), "no zero for unknown: {}", incident.title);
    let seen = only(Sim::default().act(At::App, 6000..6700, Do::Neighbour(0.95)));
    assert!(incident.confidence < seen.confidence, "{} {}", incident.confidence, seen.confidence);
}

#[test]
fn a_flush_at_the_database_is_found_two_tiers_down() {
    let incident = only(polled().act(At::Db, 6000..6700, Do::Disk));
    assert_eq!(root(&incident), ("db-1", Resource::Io), "{incident:#?}");
    assert_eq!(incident.hops.first().map(|h| h.host.as_str()), Some("web-1"));
}

#[test]
fn a_neighbour_at_the_front_is_found_there() {
    let incident = only(polled().act(At::Web, 6000..6700, Do::Neighbour(0.98)));
    assert_eq!(root(&incident), ("web-1", Resource::CpuNeighbour), "{incident:#?}");
}

#[test]
fn what_polling_cannot_see_is_not_determined() {
    for (at, act) in [(At::App, Do::Pause), (At::Db, Do::Pause), (At::Db, Do::Lock)] {
        let incident = only(polled().act(at, 6000..6700, act));
        assert_eq!(incident.root.resource, Resource::Unexplained, "{at:?} {act:?}: {}", incident.title);
        assert!(incident.confidence < 0.5, "{}", incident.confidence);
    }
}

#[test]
fn a_burst_is_never_told_from_drops_alone() {
    let sim = Sim { bursts: vec![(6000..6300, 4.0)], ..polled() };
    let incident = only(sim);
    assert_ne!(incident.root.resource, Resource::Burst, "{}", incident.title);
}

#[test]
fn what_a_tiers_own_load_used_up_may_be_a_burst_and_is_not_determined() {
    let incident = only(polled().act(At::App, 6000..6700, Do::Costly(20.0)));
    assert_eq!(incident.root.resource, Resource::Unexplained, "{}", incident.title);
}

#[test]
fn of_two_shortages_below_the_likelier_is_named_and_of_two_as_likely_none() {
    let both = |disk: std::ops::Range<u64>| {
        only(polled().act(At::App, 6000..6700, Do::Neighbour(0.95)).act(At::Db, disk, Do::Disk))
    };
    let incident = both(5950..6650);
    assert_eq!(incident.root.resource, Resource::Unexplained, "{}", incident.title);
    // A flush that was over while the queue still grew.
    let incident = both(5900..6000);
    assert_eq!(root(&incident), ("app-1", Resource::CpuNeighbour), "{}", incident.title);
}

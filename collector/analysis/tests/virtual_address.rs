//! Two applications behind one virtual address, which nobody has: that their connections were seen at both ends is all that says who was dialled.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{At, Do, Sim, Trace};
use support::{inputs, last_versions, outputs};
use tailwater_analysis::{Config, Pipeline};
use tailwater_model::Incident;
use tailwater_model::incident::{Kind, Resource};
use tailwater_model::window::{ConnectionEnd, EntityId, Input, Meeting};

/// Its address in place of both applications'. Of connections both ends are told in the second second, if `met`.
fn behind_one_address(at: At, act: Do, met: bool) -> Trace {
    let mut trace = Sim { two_apps: true, ..Sim::default() }.act(at, 6000..6900, act).run();
    for input in &mut trace.names {
        if let Input::Entities { host, edges, .. } = input
            && host == "web-1"
        {
            for edge in edges {
                (edge.remote_address, edge.remote_port) = ("10.96.0.1".parse().unwrap(), 80);
            }
        }
    }
    let from = trace.windows.first().unwrap().index.0 + 20;
    for window in trace.windows.iter_mut().filter(|window| met && window.index.0 == from) {
        let connected = |edge: EntityId| Meeting { pair: edge.into(), end: ConnectionEnd::Connected(edge) };
        let accepted = |pair| vec![Meeting { pair, end: ConnectionEnd::Accepted(1) }];
        window.meetings = match window.host.as_str() {
            "web-1" => vec![connected(1), connected(2)],
            "app-1" => accepted(1),
            "app-2" => accepted(2),
            _ => Vec::new(),
        };
    }
    trace
}

fn told(trace: &Trace) -> Incident {
    let all = last_versions(&outputs(&Config::default(), inputs(trace)));
    let [incident] = <[Incident; 1]>::try_from(all).unwrap_or_else(|all| panic!("{all:#?}"));
    incident
}

#[test]
fn of_two_behind_one_address_the_sick_one_is_named() {
    for (at, act, host, resource) in [
        (At::App, Do::Neighbour(0.95), "app-1", Resource::CpuNeighbour),
        (At::App2, Do::Neighbour(0.95), "app-2", Resource::CpuNeighbour),
        (At::App2, Do::Pause, "app-2", Resource::Pause),
    ] {
        let incident = told(&behind_one_address(at, act, true));
        let root = (incident.kind, incident.root.host.as_str(), incident.root.resource);
        assert_eq!(root, (Kind::UpstreamCtqo, host, resource), "{incident:#?}");
        assert!(incident.title.contains("(1 of 2 replicas)"), "{}", incident.title);
        assert!(incident.confidence >= 0.8, "{incident:#?}");
    }
}

#[test]
fn what_both_wait_for_is_found_behind_them() {
    let incident = told(&behind_one_address(At::Db, Do::Pause, true));
    assert_eq!((incident.root.host.as_str(), incident.root.resource), ("db-1", Resource::Pause));
    assert_eq!(incident.also, []);
}

/// What the others are held against: the front's queue ends at an address that nobody sees, and the server that stands is an incident of its own.
#[test]
fn without_both_ends_it_is_said_that_nobody_sees_who_is_there() {
    let trace = behind_one_address(At::App2, Do::Pause, false);
    let all = last_versions(&outputs(&Config::default(), inputs(&trace)));
    let fronts = all.iter().find(|incident| incident.hops.iter().any(|hop| hop.host == "10.96.0.1"));
    assert!(all.len() > 1 && fronts.is_some_and(|incident| incident.confidence < 0.8), "{all:#?}");
}

#[test]
fn calls_to_the_address_are_drawn_to_each_that_is_behind_it() {
    let trace = behind_one_address(At::Db, Do::Pause, true);
    let mut pipeline = Pipeline::new(Config::default());
    inputs(&trace).into_iter().for_each(|input| drop(pipeline.feed(input)));
    let edges = pipeline.topology().edges;
    let ends: Vec<_> = edges.iter().filter(|edge| edge.from_host == "web-1").collect();
    let to: Vec<_> = ends.iter().map(|edge| edge.to_host.as_deref()).collect();
    assert_eq!(to, [Some("app-1"), Some("app-2")]);
    assert!(ends.iter().all(|edge| edge.remote == "10.96.0.1:80"));
}

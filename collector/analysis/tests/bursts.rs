//! More requests than usual before a database that uses most of its CPU all the time: what of it is told as the burst, as what held requests
//! back, and as the database's own.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{At, Do, Sim, Trace};
use support::{diagnose, inputs, last_versions, outputs};
use tailwater_analysis::Config;
use tailwater_model::Incident;
use tailwater_model::incident::Resource;
use tailwater_model::window::{EdgeInfo, EdgeWindow, Input, ListenerInfo, ListenerWindow};

/// Event-driven tiers before a database that reads some calls at a time from a pool's connections, as in the laboratory's `nx3`; each costs it
/// so many times the CPU of the simulation's other tests (3.75 times are all of its CPU).
fn near_its_limit(cost: f64, pool: usize) -> Sim {
    Sim {
        seconds: 12,
        web_workers: None,
        app_workers: None,
        db_threads: Some(32),
        pool,
        backlogs: [4096; 3],
        app_work_ms: 0.02,
        ..Sim::default()
    }
    .act(At::Db, 0..12_000, Do::Costly(cost))
}

fn roots(incidents: &[Incident]) -> Vec<(&str, Resource)> {
    incidents.iter().map(|i| (i.root.host.as_str(), i.root.resource)).collect()
}

#[test]
fn a_burst_is_measured_where_it_came_in_and_not_by_what_a_full_database_takes() {
    for pool in [50, 400] {
        for cost in [2.9, 3.2] {
            for (ms, times) in [(25, 17.0), (300, 4.0)] {
                let bursts = vec![(8000..8000 + ms, times)];
                let incidents = diagnose(Sim { bursts, ..near_its_limit(cost, pool) });
                let case = format!("{pool} connections, {cost} times the CPU, {times} times for {ms} ms");
                assert_eq!(roots(&incidents), [("web-1", Resource::Burst)], "{case}: {incidents:#?}");
                let title = &incidents[0].title;
                assert!(title.contains("times the usual requests came to apache2@web-1"), "{title}");
                // What gave way is the database, which is near its limit.
                let first = incidents[0].root.saturated.as_ref().map(|first| first.host.as_str());
                assert_eq!(first, Some("db-1"), "{case}");
                assert!(title.contains(", and used up mariadbd@db-1's CPU"), "{title}");
            }
        }
    }
}

#[test]
fn less_than_a_burst_is_the_load_of_the_database_itself() {
    for pool in [50, 400] {
        let bursts = vec![(8000..8200, 2.0)];
        let incidents = diagnose(Sim { bursts, ..near_its_limit(2.9, pool) });
        assert_eq!(roots(&incidents), [("db-1", Resource::Cpu)], "{incidents:#?}");
    }
}

#[test]
fn requests_that_cost_the_database_more_are_its_own_cpu_also_under_a_burst() {
    for (bursts, more) in [(vec![], 2.0), (vec![], 4.0), (vec![(8000..8300, 4.0)], 4.0)] {
        let mut sim = Sim { bursts, ..near_its_limit(2.6, 400) };
        sim.acts.push((At::Db, 8000..8600, Do::Costly(2.6 * more)));
        let incidents = diagnose(sim);
        assert_eq!(roots(&incidents), [("db-1", Resource::Cpu)], "{more}: {incidents:#?}");
    }
}

#[test]
fn what_held_requests_back_is_named_where_the_batch_is_less_than_a_burst() {
    let held = [
        (Do::Pause, Resource::Pause),
        (Do::Squeeze(0.03), Resource::CpuThrottled),
        (Do::Neighbour(0.97), Resource::CpuNeighbour),
    ];
    for (what, resource) in held {
        // What a squeezed application had stored it sends on more slowly the more each request costs it.
        let app_work_ms = if what == Do::Pause { 0.02 } else { 0.08 };
        let sim = Sim { app_work_ms, ..near_its_limit(2.6, 400) };
        let incidents = diagnose(sim.act(At::App, 8000..8300, what));
        assert_eq!(roots(&incidents), [("app-1", resource)], "{incidents:#?}");
    }
}

/// The application's host by its name and address, the workload that serves there, and the neighbour, in the simulation.
const APP: (&str, [u8; 4], u32, u32) = ("app-1", [10, 0, 0, 2], 1, 2);

/// The neighbour on the application's host is a server that the application calls; to it comes what `came` makes of what came to the
/// application.
fn neighbour_serves(trace: &mut Trace, came: impl Fn(u64) -> u64) {
    const ID: u32 = 9;
    let (host, address, server, neighbour) = APP;
    for name in &mut trace.names {
        let Input::Entities { host: of, listeners, edges, .. } = name else { continue };
        if of != host {
            continue;
        }
        listeners.push(ListenerInfo {
            id: ID,
            workload: neighbour,
            address: address.into(),
            port: 9_000,
            path: None,
            comm: "burner".into(),
            pool: None,
            started_with: 0,
            pid: 0,
        });
        edges.push(EdgeInfo {
            id: ID,
            workload: server,
            remote_address: address.into(),
            remote_port: 9_000,
            path: None,
        });
    }
    for window in trace.windows.iter_mut().filter(|window| window.host == host) {
        let received = came(window.listeners[&1].arrivals);
        let listener = ListenerWindow {
            arrivals: received,
            received,
            answered: received,
            limit: 128,
            workers_seen: 2,
            ..ListenerWindow::default()
        };
        let edge = EdgeWindow { started: received, answered: received, ..EdgeWindow::default() };
        *window.listeners.entry(ID).or_default() = listener;
        *window.edges.entry(ID).or_default() = edge;
    }
}

#[test]
fn a_neighbour_that_works_for_the_same_burst_is_no_cause_of_its_own() {
    let sim = Sim { bursts: vec![(6000..6300, 6.0)], ..Sim::default() };
    let trace = || sim.clone().act(At::App, 6000..6600, Do::Neighbour(0.6)).run();
    let told = |trace: &Trace| last_versions(&outputs(&Config::default(), inputs(trace)));
    let no_server = told(&trace());
    assert_eq!(roots(&no_server), [("app-1", Resource::CpuNeighbour)], "{no_server:#?}");
    let mut serves = trace();
    neighbour_serves(&mut serves, |came| came);
    let carried = told(&serves);
    assert_eq!(roots(&carried), [("web-1", Resource::Burst)], "{carried:#?}");
    let mut beside = trace();
    neighbour_serves(&mut beside, |_| 20);
    let as_ever = told(&beside);
    assert_eq!(
        roots(&as_ever),
        [("app-1", Resource::CpuNeighbour)],
        "to it came as many as ever: {as_ever:#?}"
    );
}

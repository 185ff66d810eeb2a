//! A tier whose requests wait for a server of names: told as that where its agent saw its lookups wait while it stood, and not where those of a tier above
//! the one that stood did.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{At, Do, Sim, Trace};
use support::{inputs, last_versions, outputs};
use tailwater_analysis::Config;
use tailwater_model::Incident;
use tailwater_model::incident::Resource;
use tailwater_model::window::{WINDOW_NS, WaitingLookups};

/// The server's workload on each host of the simulation.
const SERVER: u32 = 1;

/// The last tier stands from 6 s on for 700 ms, and the agent of a host tells so many lookups of its server that wait meanwhile.
fn standing(host: &str, lookups: u32) -> Trace {
    let mut trace = Sim::default().act(At::Db, 6000..6700, Do::Lock).run();
    let first = trace.windows.iter().map(|w| w.index.0).min().unwrap();
    for window in trace.windows.iter_mut().filter(|w| w.host == host && lookups > 0) {
        let end_ms = (window.index.0 - first + 1) * 50;
        if (6050..=6700).contains(&end_ms) {
            let (server, longest_ns) = ("10.0.0.53".parse().unwrap(), (end_ms - 6000) * WINDOW_NS / 50);
            window.waiting_lookups.push(WaitingLookups { workload: SERVER, server, lookups, longest_ns });
        }
    }
    trace
}

fn told(trace: &Trace) -> Incident {
    let all = last_versions(&outputs(&Config::default(), inputs(trace)));
    all.into_iter().find(|incident| !incident.drops.is_empty()).unwrap()
}

#[test]
fn a_tier_whose_requests_all_wait_for_a_name_is_told_with_the_server_that_does_not_answer() {
    let incident = told(&standing("db-1", 45));
    let root = &incident.root;
    assert_eq!((root.host.as_str(), root.resource), ("db-1", Resource::Dns), "{incident:#?}");
    let lookups = root.lookups.as_ref().unwrap();
    assert_eq!((lookups.server.as_str(), lookups.lookups, lookups.longest_ms), ("10.0.0.53", 45, 700));
    let words = ": 45 lookups waited up to 700 ms for the server of names 10.0.0.53";
    assert!(incident.title.contains(words), "{}", incident.title);
    assert!(incident.do_now.as_ref().is_some_and(|now| now.contains("the server of names 10.0.0.53")));
    assert!(incident.alternatives.iter().any(|a| a.root.resource == Resource::Lock), "{incident:#?}");
}

#[test]
fn without_lookups_it_is_the_lock_that_it_was_and_one_name_may_hold_up_all() {
    let incident = told(&standing("db-1", 0));
    assert_eq!((incident.root.resource, incident.root.lookups), (Resource::Lock, None));
    let incident = told(&standing("db-1", 1));
    assert_eq!(incident.root.resource, Resource::Dns, "{incident:#?}");
    assert!(incident.root.evidence.contains("fewer than half of the requests"), "{}", incident.root.evidence);
}

/// The application waits for its database; that some of its lookups wait as well is no cause of that.
#[test]
fn lookups_beside_a_lock_of_the_tier_below_are_not_the_root() {
    let incident = told(&standing("app-1", 3));
    assert_eq!(
        (incident.root.host.as_str(), incident.root.resource),
        ("db-1", Resource::Lock),
        "{incident:#?}"
    );
}

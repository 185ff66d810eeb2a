//! A tier whose calls do not reach the one below: told as that, where segments of theirs were sent again, and not where nobody knows who had them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{At, Do, Sim, Trace};
use support::{inputs, last_versions, outputs};
use tailwater_analysis::Config;
use tailwater_model::Incident;
use tailwater_model::incident::Resource;

/// From 6 s on for 700 ms nothing arrives at the database.
fn unreached() -> Trace {
    Sim::default().act(At::Db, 6000..6700, Do::Unreached).run()
}

fn told(trace: &Trace) -> Incident {
    let all = last_versions(&outputs(&Config::default(), inputs(trace)));
    let dropped: Vec<Incident> = all.into_iter().filter(|incident| !incident.drops.is_empty()).collect();
    assert_eq!(dropped.len(), 1, "{dropped:#?}");
    dropped.into_iter().next().unwrap()
}

/// Fails where calls that nobody has are told as a lock of whoever makes them.
#[test]
fn a_tier_whose_calls_get_nowhere_is_told_with_whom_it_called() {
    let incident = told(&unreached());
    let root = &incident.root;
    assert_eq!((root.host.as_str(), root.resource), ("app-1", Resource::Network), "{incident:#?}");
    let lost = root.lost.as_ref().unwrap();
    assert_eq!((lost.host.as_str(), lost.workload.as_str()), ("db-1", "mariadb.service"));
    assert!((40..=50).contains(&lost.calls), "the pool has 50: {lost:?}");
    assert!((100..=250).contains(&lost.resent), "each of them three times: {lost:?}");
    let words = "waited for packets that were lost between it and mariadbd@db-1";
    assert!(incident.title.contains(words), "{}", incident.title);
    assert!(incident.do_now.as_ref().is_some_and(|now| now.contains("app-1 and db-1")), "{incident:#?}");
    assert!(incident.alternatives.iter().any(|a| a.root.resource == Resource::Lock), "{incident:#?}");
}

/// The same without a word of what was sent again is what it was: a tier that takes requests on and answers none.
#[test]
fn calls_that_nobody_sends_again_are_not_lost() {
    let mut trace = unreached();
    for window in &mut trace.windows {
        window.edges.values_mut().for_each(|edge| edge.data_retransmits = 0);
    }
    let incident = told(&trace);
    assert_eq!((incident.root.resource, &incident.root.lost), (Resource::Lock, &None), "{incident:#?}");
}

/// Where packets are lost at all times, as many that are sent again are no news.
#[test]
fn what_is_sent_again_at_all_times_is_no_cause() {
    let mut trace = unreached();
    for window in trace.windows.iter_mut().filter(|window| window.host == "app-1") {
        window.edges.values_mut().for_each(|edge| edge.data_retransmits += 5);
    }
    assert_eq!(told(&trace).root.resource, Resource::Lock);
}

/// A stand of the database holds the calls, and a few that are sent again meanwhile are none of its cause.
#[test]
fn calls_that_a_lock_below_holds_are_not_lost_though_some_are_sent_again() {
    let mut trace = Sim::default().act(At::Db, 6000..6700, Do::Lock).run();
    for window in trace.windows.iter_mut().filter(|window| window.host == "app-1") {
        window.edges.values_mut().filter(|edge| edge.in_flight_max > 40).for_each(|edge| edge.data_retransmits = 9);
    }
    let incident = told(&trace);
    assert_eq!((incident.root.host.as_str(), incident.root.resource), ("db-1", Resource::Lock));
}

/// A machine that stands has no windows, and is sent to again as well: nobody knows where the calls were.
#[test]
fn of_a_host_without_windows_nothing_is_said_to_be_lost() {
    let mut trace = unreached();
    let first = trace.windows.iter().map(|w| w.index.0).min().unwrap();
    trace.windows.retain(|w| w.host != "db-1" || !(5900..7000).contains(&(50 * (w.index.0 - first))));
    let incident = told(&trace);
    assert_ne!(incident.root.resource, Resource::Network, "{incident:#?}");
}

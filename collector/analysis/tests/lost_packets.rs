//! A tier whose calls do not reach the one below: told as that, where segments of theirs were sent again, and not where nobody knows who had them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{At, Do, Sim, Trace};
use support::{inputs, last_versions, outputs};
use tailwater_analysis::Config;
use tailwater_model::Incident;
use tailwater_model::incident::Resource;
use tailwater_model::window::{EdgeWindow, HostWindow, SignalSet};

/// From 6 s on for 700 ms nothing arrives at the database.
fn unreached() -> Trace {
    Sim::default().act(At::Db, 6000..6700, Do::Unreached).run()
}

/// The same with windows of a host changed, each with the milliseconds after the first one.
fn changed(host: &str, change: impl Fn(u64, &mut HostWindow)) -> Incident {
    let mut trace = unreached();
    let first = trace.windows.iter().map(|w| w.index.0).min().unwrap();
    for window in trace.windows.iter_mut().filter(|w| w.host == host) {
        change(50 * (window.index.0 - first), window);
    }
    told(&trace)
}

/// The same with edges of the application changed.
fn edges(change: impl Fn(u64, &mut EdgeWindow)) -> Incident {
    changed("app-1", |ms, window| window.edges.values_mut().for_each(|edge| change(ms, edge)))
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
    assert!((120..=200).contains(&lost.resent), "each of them three times: {lost:?}");
    let words = "waited for packets that were lost between it and mariadbd@db-1";
    assert!(incident.title.contains(words), "{}", incident.title);
    assert!(incident.do_now.as_ref().is_some_and(|now| now.contains("app-1 and db-1")), "{incident:#?}");
    assert!(incident.alternatives.iter().any(|a| a.root.resource == Resource::Lock), "{incident:#?}");
}

/// A SYN that is lost comes again after a second, by when packets pass.
#[test]
fn connections_that_get_nowhere_are_lost_calls_too() {
    let sim = Sim { db_workers: Some(60), ..Sim::default() };
    let incident = told(&sim.act(At::Db, 6000..6700, Do::Unreached).run());
    assert_eq!(
        (incident.root.host.as_str(), incident.root.resource),
        ("app-1", Resource::Network),
        "{incident:#?}"
    );
}

#[test]
fn calls_that_nobody_sends_again_are_not_lost() {
    let incident = edges(|_, edge| edge.data_retransmits = 0);
    assert_eq!((incident.root.resource, &incident.root.lost), (Resource::Lock, &None), "{incident:#?}");
    let few = edges(|_, edge| edge.data_retransmits = edge.data_retransmits.min(1));
    assert_eq!(few.root.resource, Resource::Lock, "of fifty calls each is sent again: {few:#?}");
}

/// Where packets are lost at all times, as many that are sent again are no news; that they were lost two seconds ago as well is none against it.
#[test]
fn what_is_sent_again_at_all_times_is_no_cause_and_what_was_a_moment_ago_is_one() {
    let always = edges(|_, edge| edge.data_retransmits += 5);
    assert_eq!(always.root.resource, Resource::Lock, "{always:#?}");
    let sim = Sim::default().act(At::Db, 4000..4500, Do::Unreached).act(At::Db, 6000..6700, Do::Unreached);
    let all = last_versions(&outputs(&Config::default(), inputs(&sim.run())));
    let roots: Vec<Resource> = all
        .iter()
        .filter(|incident| !incident.drops.is_empty())
        .map(|incident| incident.root.resource)
        .collect();
    assert!(!roots.is_empty() && roots.iter().all(|root| *root == Resource::Network), "{roots:?}");
}

/// Answers that go on come to whoever has no time to read them.
#[test]
fn calls_that_are_answered_on_are_not_lost() {
    let on = edges(|_, edge| edge.answered = edge.answered.max(80));
    assert_ne!(on.root.resource, Resource::Network, "{on:#?}");
}

/// A stand of the database holds the calls, and what is sent again meanwhile is none of its cause.
#[test]
fn calls_that_a_lock_below_holds_are_not_lost_though_some_are_sent_again() {
    let mut trace = Sim::default().act(At::Db, 6000..6700, Do::Lock).run();
    for window in trace.windows.iter_mut().filter(|window| window.host == "app-1") {
        let edges = window.edges.values_mut().filter(|edge| edge.in_flight_max > 40);
        edges.for_each(|edge| edge.data_retransmits = 9);
    }
    let incident = told(&trace);
    assert_eq!((incident.root.host.as_str(), incident.root.resource), ("db-1", Resource::Lock));
}

/// Fails where a machine that stood, an agent that sees no requests, or a queue that overflowed is taken for a link.
#[test]
fn of_whom_it_is_not_known_what_it_had_nothing_is_said_to_be_lost() {
    let stood = |ms| (6000..6600).contains(&ms);
    let is_told = |incident: &Incident| incident.root.resource == Resource::Network;
    let unlike = |change: &dyn Fn(u64, &mut HostWindow)| !is_told(&changed("db-1", change));
    assert!(is_told(&changed("db-1", |_, _| {})));
    assert!(unlike(&|ms, window| window.lost_before = u64::from(ms == 6_350) * 4), "its agent did not run");
    assert!(unlike(&|ms, window| window.clock_corrected = ms == 6_350), "its clock was set");
    assert!(unlike(&|_, window| window.uncovered = SignalSet::of(["requests"])), "nobody sees its requests");
    assert!(
        unlike(&|ms, window| window.listeners.values_mut().for_each(|l| l.drops += u64::from(ms == 5_900))),
        "its queue overflowed"
    );
    assert!(
        unlike(&|ms, window| {
            let cpu = window.cpu.get_or_insert_default();
            if stood(ms) {
                cpu.steal_ns = cpu.capacity_ns;
                window.workloads.entry(1).or_default().wait_ns = 100_000_000;
            }
        }),
        "its CPU was taken"
    );
    let mut trace = unreached();
    let first = trace.windows.iter().map(|w| w.index.0).min().unwrap();
    trace.windows.retain(|w| w.host != "db-1" || 50 * (w.index.0 - first) != 6_200);
    assert!(!is_told(&told(&trace)), "a window of it is missing");
}

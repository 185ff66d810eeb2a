//! Hosts whose clocks are wrong, and tiers that no agent sees: what is said must stay true, stamps within what is stated, and where
//! clocks or sight do not suffice the incident must say so.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use proptest::prelude::*;
use support::diagnose;
use support::sim::{At, Do, FIRST_WINDOW, Sim, SimClock};
use tailwater_model::Incident;
use tailwater_model::incident::{Hop, Kind, Order, Resource, Role};
use tailwater_model::window::WINDOW_NS;

const MS: u64 = 1_000_000;
const ORIGIN: u64 = FIRST_WINDOW * WINDOW_NS;

fn only(incidents: Vec<Incident>) -> Incident {
    let said: Vec<String> =
        incidents.iter().map(|i| format!("{:?} {}\n  {}", i.kind, i.title, i.root.evidence)).collect();
    println!("{}", said.join("\n"));
    assert_eq!(incidents.len(), 1, "{}", said.join("\n"));
    incidents.into_iter().next().unwrap()
}

fn hops(incident: &Incident) -> Vec<(&str, Role)> {
    incident.hops.iter().map(|h| (h.host.as_str(), h.role)).collect()
}

fn hop<'a>(incident: &'a Incident, host: &str) -> &'a Hop {
    incident.hops.iter().find(|h| h.host == host).unwrap()
}

fn clocks(ahead: [i64; 3]) -> [SimClock; 3] {
    ahead.map(|ahead_ms| SimClock { ahead_ms, ..SimClock::default() })
}

/// A disk flush at the database from 6.0 to 6.7 s, and what must be said of it whatever the clocks.
fn disk_flush(clocks: [SimClock; 3]) -> Incident {
    let incident = only(diagnose(Sim { clocks, ..Sim::default() }.act(At::Db, 6000..6700, Do::Disk)));
    let path = [("web-1", Role::Drop), ("app-1", Role::Pushback), ("db-1", Role::Root)];
    assert_eq!((incident.kind, hops(&incident)), (Kind::UpstreamCtqo, path.to_vec()), "{incident:#?}");
    assert_eq!((incident.root.host.as_str(), incident.root.resource), ("db-1", Resource::Io));
    assert_eq!(incident.root.culprits[0].comm, "flusher");
    incident
}

fn near(what: &str, unix_ns: u64, true_ms: u64, within_ms: u64) {
    let off = unix_ns.abs_diff(ORIGIN + true_ms * MS) / MS;
    assert!(off <= within_ms, "{what}: {off} ms from the truth");
}

#[test]
fn wrong_clocks_that_are_known_change_neither_chain_nor_times() {
    let right = disk_flush(clocks([0, 0, 0]));
    for ahead in [[-200, 35, 200], [200, -70, -35], [24, -25, 26], [0, 0, -13]] {
        let incident = disk_flush(clocks(ahead));
        // Onsets are stamped with their window's start: up to a window early, however the clocks stand.
        near("root", incident.root.start_unix_ns, 6000, 52);
        near("root's end", incident.root.end_unix_ns, 6700, 52);
        for (was, is) in right.hops.iter().zip(&incident.hops) {
            let apart = was.onset_unix_ns.abs_diff(is.onset_unix_ns) / MS;
            assert!(apart <= 75, "{ahead:?} {}: {apart} ms apart", is.host);
        }
        let first = |i: &Incident| i.drops[0].first_unix_ns;
        assert!(first(&right).abs_diff(first(&incident)) / MS <= 52, "{ahead:?}");
        assert_eq!(right.drops[0].count, incident.drops[0].count, "{ahead:?}");
        assert_eq!(incident.clock_error_ns, 2_000_000, "what whole windows leave is no error");
        assert!(incident.hops.iter().all(|h| h.order_to_root != Some(Order::Before)), "{incident:#?}");
        assert!(!incident.title.contains("Order unknown"), "{}", incident.title);
    }
}

#[test]
fn inside_the_bound_the_order_is_unknown_and_the_flow_decides() {
    // Every clock may be wrong by 120 ms, and the database's is: its episode seems to begin after the web tier's queue grew.
    let wrong = |wrong_ms| SimClock { wrong_ms, bound_ns: 120 * MS, ..SimClock::default() };
    let incident = disk_flush([wrong(0), wrong(0), wrong(110)]);
    assert!(incident.order_unknown, "{incident:#?}");
    assert!(incident.title.contains("Order unknown"), "{}", incident.title);
    assert!(incident.root.evidence.contains("order unknown by the clocks"), "{}", incident.root.evidence);
    assert_eq!(hop(&incident, "web-1").order_to_root, Some(Order::Unknown));
    assert_eq!(hop(&incident, "db-1").order_to_root, None, "the root is not ordered to itself");
    assert_eq!(incident.clock_error_ns, 120 * MS);
    let json = serde_json::to_value(&incident).unwrap();
    assert_eq!(json["order_unknown"], true);
    assert_eq!(json["hops"][0]["order_to_root"], "unknown");
}

#[test]
fn requests_that_both_ends_saw_narrow_a_wide_bound() {
    // Round trips know the clocks to 25 ms only; calls between web and app tell more.
    let wide = |wrong_ms| SimClock { wrong_ms, bound_ns: 25 * MS, ..SimClock::default() };
    let sim = Sim { clocks: [wide(0), wide(18), wide(0)], ..Sim::default() };
    let incident = only(diagnose(sim.act(At::App, 6000..6700, Do::Pause)));
    assert_eq!((incident.root.host.as_str(), incident.root.resource), ("app-1", Resource::Pause));
    let evidence = &incident.root.evidence;
    if incident.order_unknown {
        assert!(evidence.contains("by requests that both saw"), "{evidence}");
    }
}

#[test]
fn an_unobserved_tier_between_drop_and_cause_is_crossed_and_named() {
    for what in [Do::Disk, Do::Lock, Do::Neighbour(0.97)] {
        let sim = Sim { observed: [true, false, true], ..Sim::default() }.act(At::Db, 6000..6700, what);
        let incident = only(diagnose(sim));
        let path = [("web-1", Role::Drop), ("10.0.0.2", Role::Pushback), ("db-1", Role::Root)];
        assert_eq!((incident.kind, hops(&incident)), (Kind::UpstreamCtqo, path.to_vec()), "{incident:#?}");
        let dark = hop(&incident, "10.0.0.2");
        assert!(!dark.observed && dark.workload.is_empty(), "{dark:?}");
        assert_eq!(dark.listener, "10.0.0.2:8080");
        assert!(dark.queued_max >= 100, "what its caller saw in flight: {dark:?}");
        assert!(hop(&incident, "web-1").observed && hop(&incident, "db-1").observed);
        assert!(incident.title.contains("10.0.0.2:8080 (unpaired"), "{}", incident.title);
        assert!(incident.root.evidence.contains("no agent sees"), "{}", incident.root.evidence);
        assert!((0.4..0.75).contains(&incident.confidence), "{}", incident.confidence);
        assert!(incident.alternatives.iter().any(|a| a.root.host == "10.0.0.2"), "{incident:#?}");
    }
}

#[test]
fn an_unobserved_root_is_unexplained_at_its_address() {
    // In the middle, with an innocent observed tier behind it; and last.
    for (observed, at, address) in
        [([true, false, true], At::App, "10.0.0.2"), ([true, true, false], At::Db, "10.0.0.3")]
    {
        for what in [Do::Pause, Do::Neighbour(0.95), Do::Squeeze(0.05)] {
            let sim = Sim { observed, ..Sim::default() }.act(at, 6000..6700, what);
            let incident = only(diagnose(sim));
            let root = &incident.root;
            assert_eq!(
                (root.host.as_str(), root.resource),
                (address, Resource::Unexplained),
                "{what:?} {incident:#?}"
            );
            assert!(root.culprits.is_empty() && incident.confidence <= 0.5, "{incident:#?}");
            assert!(!incident.hops.last().unwrap().observed);
            assert!(incident.title.contains("no agent observes it"), "{}", incident.title);
        }
    }
}

#[test]
fn a_batch_that_an_unobserved_tier_had_stored_is_not_blamed_on_the_clients() {
    let sim = Sim {
        web_workers: None,
        app_workers: None,
        db_workers: Some(60),
        rate: 900.0,
        app_work_ms: 0.02,
        observed: [true, false, true],
        ..Sim::default()
    }
    .act(At::App, 6000..6700, Do::Neighbour(0.99));
    let incident = only(diagnose(sim));
    assert_eq!(
        (incident.root.host.as_str(), incident.root.resource),
        ("10.0.0.2", Resource::Unexplained),
        "{incident:#?}"
    );
    assert_eq!(
        (incident.kind, hops(&incident)),
        (Kind::DownstreamCtqo, vec![("db-1", Role::Drop), ("10.0.0.2", Role::Root)])
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_clocks_within_their_bounds_give_the_same_chain(
        ahead in prop::array::uniform3(-200i64..200),
        wrong in prop::array::uniform3(-5i64..=5),
        bound in 5u64..40,
    ) {
        let clocks = std::array::from_fn(|h| SimClock { ahead_ms: ahead[h], wrong_ms: wrong[h], bound_ns: bound * MS });
        let incident = disk_flush(clocks);
        near("root", incident.root.start_unix_ns, 6000, 50 + 5);
        prop_assert_eq!(incident.clock_error_ns, bound * MS);
        // What the clocks say they know must be true: the database was first.
        prop_assert!(incident.hops.iter().all(|h| h.order_to_root != Some(Order::Before)), "{incident:#?}");
    }
}

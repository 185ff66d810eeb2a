//! Simulated three-tier systems, one thing done to each, and what the analysis must say: who dropped, where the root is, which
//! resource, who did it; and when it must say nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeSet;
use support::sim::{At, Do, Sim};
use support::{diagnose, diagnose_with, inputs, last_versions, outputs, told};
use tailwater_analysis::{Config, TierRule};
use tailwater_model::Incident;
use tailwater_model::incident::{DropReason, Kind, Resource, Role, Severity, State};

/// The single incident of a run.
fn only(incidents: Vec<Incident>) -> Incident {
    let said: Vec<String> =
        incidents.iter().map(|i| format!("{:?} {}\n  {}", i.kind, i.title, i.root.evidence)).collect();
    assert_eq!(incidents.len(), 1, "{}", said.join("\n"));
    println!("{}", said.join("\n"));
    incidents.into_iter().next().unwrap()
}

fn check(incident: &Incident, kind: Kind, root: &str, resource: Resource, hops: &[(&str, Role)]) {
    let text = serde_json::to_string_pretty(incident).unwrap();
    assert_eq!(incident.kind, kind, "{text}");
    assert_eq!((incident.root.host.as_str(), incident.root.resource), (root, resource), "{text}");
    assert_eq!(incident.hops.iter().map(|h| (h.host.as_str(), h.role)).collect::<Vec<_>>(), hops, "{text}");
    assert_eq!(incident.state, State::Closed);
    assert!(incident.alternatives.iter().all(|a| a.confidence < incident.confidence));
}

#[test]
fn a_neighbour_takes_the_cpu_of_the_middle_tier() {
    let sim = Sim::default().act(At::App, 6000..6700, Do::Neighbour(0.95));
    let dropped = sim.run().dropped;
    let incident = only(diagnose(sim));
    check(
        &incident,
        Kind::UpstreamCtqo,
        "app-1",
        Resource::CpuNeighbour,
        &[("web-1", Role::Drop), ("app-1", Role::Root)],
    );
    assert_eq!(incident.root.culprits[0].comm, "burner");
    assert_eq!(incident.root.culprits[0].pid, 4242);
    assert_eq!(incident.severity, Severity::Critical);
    assert_eq!(incident.drops.len(), 1);
    assert_eq!(incident.drops[0].count, dropped[0]);
    assert_eq!(incident.drops[0].reason, DropReason::AcceptQueueFull);
    let (web, app) = (&incident.hops[0], &incident.hops[1]);
    assert_eq!(
        (web.workers_busy_max, web.workers_limit, web.accept_queue_max, web.queued_max),
        (150, Some(150), 129, 279)
    );
    assert_eq!(web.listener, "0.0.0.0:80");
    assert!(app.workers_busy_max >= 140, "{app:?}");
    assert!(incident.confidence >= 0.9, "{}", incident.confidence);
    let onset_ms = (incident.root.start_unix_ns / 1_000_000) % 1_700_000_000_000;
    assert!((5950..=6050).contains(&(onset_ms)), "{onset_ms}");
}

#[test]
fn a_disk_flush_at_the_database() {
    let incident = only(diagnose(Sim::default().act(At::Db, 6000..6700, Do::Disk)));
    let hops = [("web-1", Role::Drop), ("app-1", Role::Pushback), ("db-1", Role::Root)];
    check(&incident, Kind::UpstreamCtqo, "db-1", Resource::Io, &hops);
    assert_eq!(incident.root.culprits[0].comm, "flusher");
    assert!(incident.root.culprits[0].share > 0.9);
    assert_eq!((incident.hops[1].pool_in_flight_max, incident.hops[1].pool_open), (Some(50), Some(50)));
}

#[test]
fn a_paused_middle_tier() {
    let incident = only(diagnose(Sim::default().act(At::App, 6000..6700, Do::Pause)));
    assert_eq!(incident.hops[0].host, "web-1");
    check(
        &incident,
        Kind::UpstreamCtqo,
        "app-1",
        Resource::Pause,
        &[("web-1", Role::Drop), ("app-1", Role::Root)],
    );
}

#[test]
fn a_paused_database() {
    let incident = only(diagnose(Sim::default().act(At::Db, 6000..6700, Do::Pause)));
    let hops = [("web-1", Role::Drop), ("app-1", Role::Pushback), ("db-1", Role::Root)];
    check(&incident, Kind::UpstreamCtqo, "db-1", Resource::Pause, &hops);
}

#[test]
fn a_table_lock_at_the_database() {
    let incident = only(diagnose(Sim::default().act(At::Db, 6000..6700, Do::Lock)));
    let hops = [("web-1", Role::Drop), ("app-1", Role::Pushback), ("db-1", Role::Root)];
    check(&incident, Kind::UpstreamCtqo, "db-1", Resource::Lock, &hops);
}

#[test]
fn a_squeezed_quota_at_the_middle_tier() {
    let incident = only(diagnose(Sim::default().act(At::App, 6000..6700, Do::Squeeze(0.05))));
    check(
        &incident,
        Kind::UpstreamCtqo,
        "app-1",
        Resource::CpuThrottled,
        &[("web-1", Role::Drop), ("app-1", Role::Root)],
    );
}

#[test]
fn requests_that_cost_more_use_up_the_cpu_themselves() {
    let incident = only(diagnose(Sim::default().act(At::App, 6000..6700, Do::Costly(20.0))));
    let hops = [("web-1", Role::Drop), ("app-1", Role::Root)];
    check(&incident, Kind::UpstreamCtqo, "app-1", Resource::Cpu, &hops);
    assert_eq!(incident.root.culprits[0].comm, "java");
}

#[test]
fn a_neighbour_at_the_front_overflows_it_locally() {
    let incident = only(diagnose(Sim::default().act(At::Web, 6000..6700, Do::Neighbour(0.98))));
    check(&incident, Kind::LocalOverflow, "web-1", Resource::CpuNeighbour, &[("web-1", Role::Root)]);
}

#[test]
fn a_burst_of_requests() {
    let sim = Sim { bursts: vec![(6000..6300, 8.0)], ..Sim::default() };
    let incident = only(diagnose(sim));
    assert_eq!(incident.root.resource, Resource::Burst, "{incident:#?}");
    assert_eq!((incident.kind, incident.root.host.as_str()), (Kind::LocalOverflow, "web-1"), "{incident:#?}");
}

#[test]
fn an_event_driven_front_moves_the_drops_down() {
    let sim = Sim { web_workers: None, ..Sim::default() }.act(At::App, 6000..6700, Do::Neighbour(0.95));
    let incident = only(diagnose(sim));
    check(&incident, Kind::DownstreamCtqo, "app-1", Resource::CpuNeighbour, &[("app-1", Role::Root)]);
    assert_eq!(incident.drops[0].host, "app-1");
    assert!(incident.vlrt.syn_retransmits.unwrap() > 0, "the observed front sent them again");
    assert_eq!(incident.vlrt.clients[0].address, "10.0.0.1");
}

#[test]
fn a_stored_batch_overflows_the_database() {
    let sim = Sim {
        web_workers: None,
        app_workers: None,
        db_workers: Some(60),
        rate: 900.0,
        app_work_ms: 0.02,
        ..Sim::default()
    }
    .act(At::App, 6000..6700, Do::Neighbour(0.99));
    let incident = only(diagnose(sim));
    check(
        &incident,
        Kind::DownstreamCtqo,
        "app-1",
        Resource::CpuNeighbour,
        &[("db-1", Role::Drop), ("app-1", Role::Root)],
    );
}

#[test]
fn a_syn_flood_is_no_ctqo() {
    let sim = Sim { flood: Some((6000..7000, 5)), ..Sim::default() };
    let incident = only(diagnose(sim));
    assert_eq!(incident.kind, Kind::SynFlood, "{incident:#?}");
    assert_eq!(incident.drops[0].count, 5000);
    assert_eq!(incident.vlrt.expected, 0);
}

#[test]
fn a_steady_load_is_silent() {
    for app_work_ms in [0.1, 0.13, 0.16] {
        let incidents = diagnose(Sim { app_work_ms, seconds: 30, ..Sim::default() });
        assert!(incidents.is_empty(), "{app_work_ms}: {incidents:#?}");
    }
}

#[test]
fn a_cold_cache_that_no_queue_felt_is_silent() {
    let sim = Sim { seconds: 20, ..Sim::default() }.act(At::App, 0..3000, Do::Costly(1.8)).act(
        At::App,
        9000..11_000,
        Do::Costly(1.7),
    );
    assert!(diagnose(sim).is_empty());
}

#[test]
fn retries_a_second_later_are_the_same_incident() {
    // The second wave meets a server that is still short.
    let sim = Sim::default().act(At::App, 6000..6750, Do::Neighbour(0.95)).act(
        At::App,
        6750..8600,
        Do::Neighbour(0.45),
    );
    let trace = sim.run();
    let said = outputs(&Config::default(), inputs(&trace));
    let incident = only(last_versions(&said));
    let drops = &incident.drops[0];
    assert!(drops.last_unix_ns - drops.first_unix_ns > 900_000_000, "{drops:?}");
    assert_eq!(drops.count, trace.dropped[0]);
    assert!(drops.connections < drops.count, "{drops:?}");
    assert!(told(&said).windows(2).all(|pair| pair[0].version + 1 == pair[1].version));
}

#[test]
fn an_unobserved_database_is_named_as_such() {
    let sim = Sim { observed: [true, true, false], ..Sim::default() }.act(At::Db, 6000..6700, Do::Disk);
    let incident = only(diagnose(sim));
    let hops = [("web-1", Role::Drop), ("app-1", Role::Pushback), ("10.0.0.3", Role::Root)];
    check(&incident, Kind::UpstreamCtqo, "10.0.0.3", Resource::Unexplained, &hops);
    assert!(incident.confidence <= 0.5);
}

#[test]
fn an_unobserved_middle_tier_is_bridged() {
    let sim = Sim { observed: [true, false, true], ..Sim::default() }.act(At::Db, 6000..6700, Do::Disk);
    let incident = only(diagnose(sim));
    assert_eq!(
        (incident.root.host.as_str(), incident.root.resource),
        ("db-1", Resource::Io),
        "{incident:#?}"
    );
    assert_eq!(incident.kind, Kind::UpstreamCtqo);
    assert!(incident.confidence <= 0.6);
    assert!(incident.alternatives.iter().any(|a| a.root.host == "10.0.0.2"));
}

#[test]
fn missing_windows_are_said_and_not_guessed() {
    let sim = Sim { gaps: vec![(At::App, 5500..8000)], ..Sim::default() }.act(
        At::App,
        6000..6700,
        Do::Neighbour(0.95),
    );
    let incident = only(diagnose(sim));
    check(
        &incident,
        Kind::UpstreamCtqo,
        "app-1",
        Resource::Unexplained,
        &[("web-1", Role::Drop), ("app-1", Role::Root)],
    );
    assert!(incident.confidence <= 0.4);
    assert!(incident.root.evidence.contains("windows are missing"), "{}", incident.root.evidence);
}

#[test]
fn of_two_servers_the_sick_one_is_named() {
    let sim = Sim { two_apps: true, ..Sim::default() }.act(At::App, 6000..6900, Do::Neighbour(0.95));
    let incident = only(diagnose(sim));
    check(
        &incident,
        Kind::UpstreamCtqo,
        "app-1",
        Resource::CpuNeighbour,
        &[("web-1", Role::Drop), ("app-1", Role::Root)],
    );
}

/// Both application servers stand, each for a cause of its own: fails where the one that holds fewer of the requests is not told.
#[test]
fn two_causes_that_fill_one_queue_are_one_incident_with_both() {
    let both = Sim { two_apps: true, ..Sim::default() }.act(At::App, 6000..6900, Do::Neighbour(0.95)).act(
        At::App2,
        6000..6900,
        Do::Pause,
    );
    let incident = only(diagnose(both));
    let roots = [&incident.root].into_iter().chain(incident.also.iter().map(|also| &also.root));
    let told: BTreeSet<_> = roots.map(|root| (root.host.as_str(), root.resource.name())).collect();
    assert_eq!(told, [("app-1", "cpu_neighbour"), ("app-2", "pause")].into(), "{incident:#?}");
    assert!(incident.title.contains("% of what waited "), "{}", incident.title);
    assert!(incident.title.contains(" (all 2 replicas) "), "{}", incident.title);
    assert!(incident.also.iter().all(|a| (0.25..=0.75).contains(&a.share)), "{:?}", incident.also);
    // What waits for the root is no further cause of it.
    let shared = Sim { two_apps: true, ..Sim::default() }.act(At::Db, 6000..6900, Do::Pause);
    let incident = only(diagnose(shared));
    assert_eq!((incident.root.host.as_str(), incident.also.len()), ("db-1", 0), "{incident:#?}");
    // One alone is told alone.
    let sim = Sim { two_apps: true, ..Sim::default() }.act(At::App2, 6000..6900, Do::Pause);
    let alone = only(diagnose(sim));
    assert_eq!((alone.root.host.as_str(), alone.also.len()), ("app-2", 0), "{alone:#?}");
    assert!(alone.title.contains("@app-2 (1 of 2 replicas) stood still"), "{}", alone.title);
}

#[test]
fn two_causes_are_two_incidents() {
    let sim = Sim { seconds: 20, ..Sim::default() }.act(At::App, 6000..6700, Do::Neighbour(0.95)).act(
        At::Db,
        12_000..12_700,
        Do::Disk,
    );
    let incidents = diagnose(sim);
    let roots: Vec<_> = incidents.iter().map(|i| (i.root.host.as_str(), i.root.resource)).collect();
    assert_eq!(roots, [("app-1", Resource::CpuNeighbour), ("db-1", Resource::Io)]);
}

#[test]
fn two_causes_close_together_are_two_incidents() {
    let sim = Sim { seconds: 20, ..Sim::default() }.act(At::App, 6000..6500, Do::Neighbour(0.95)).act(
        At::Db,
        8300..9000,
        Do::Disk,
    );
    let incidents = diagnose(sim);
    let roots: Vec<_> = incidents.iter().map(|i| (i.root.host.as_str(), i.root.resource)).collect();
    assert_eq!(roots, [("app-1", Resource::CpuNeighbour), ("db-1", Resource::Io)]);
}

#[test]
fn a_queue_near_its_limit_is_a_warning_with_its_root() {
    let sim = Sim::default().act(At::App, 6000..6240, Do::Neighbour(0.99));
    assert_eq!(sim.run().dropped, [0; 4]);
    let incident = only(diagnose(sim));
    assert_eq!((incident.kind, incident.severity), (Kind::NearOverflow, Severity::Warning), "{incident:#?}");
    assert_eq!((incident.root.host.as_str(), incident.root.resource), ("app-1", Resource::CpuNeighbour));
}

#[test]
fn a_felt_millibottleneck_is_information() {
    let incident = only(diagnose(Sim::default().act(At::App, 6000..6120, Do::Neighbour(0.95))));
    assert_eq!((incident.kind, incident.severity), (Kind::Millibottleneck, Severity::Info), "{incident:#?}");
    assert_eq!((incident.root.host.as_str(), incident.root.resource), ("app-1", Resource::CpuNeighbour));
}

#[test]
fn a_long_bottleneck_is_persistent() {
    let incidents = diagnose(Sim::default().act(At::App, 5000..8000, Do::Neighbour(0.9)));
    let incident = only(incidents);
    assert_eq!(incident.kind, Kind::PersistentBottleneck, "{incident:#?}");
    assert_eq!(incident.severity, Severity::Critical);
}

#[test]
fn configured_tiers_are_named_and_limited() {
    let config = Config {
        tiers: vec![TierRule {
            port: Some(8080),
            name: Some("app".into()),
            workers_limit: Some(160),
            ..TierRule::default()
        }],
        ..Config::default()
    };
    let incident = only(diagnose_with(&config, Sim::default().act(At::App, 6000..6700, Do::Neighbour(0.95))));
    assert_eq!(incident.root.tier, "app");
    assert_eq!(incident.hops[1].workers_limit, Some(160));
    assert_eq!(incident.hops[0].tier, "apache2");
}

#[test]
fn what_the_stored_requests_then_use_up_below_is_not_what_stored_them() {
    // The neighbour leaves enough for the front not to drop; what had piled up then costs the database its CPU for half a second.
    let incidents = diagnose(Sim::default().act(At::App, 6000..6700, Do::Neighbour(0.6)).act(
        At::Db,
        6650..7100,
        Do::Costly(6.0),
    ));
    let said: Vec<_> = incidents.iter().map(|i| format!("{:?} {}", i.kind, i.title)).collect();
    let first = &incidents[0];
    assert_eq!(
        (first.root.host.as_str(), first.root.resource),
        ("app-1", Resource::CpuNeighbour),
        "{said:#?}"
    );
}

#[test]
fn a_queue_that_was_gone_before_is_not_the_root() {
    // The database hiccups and is done; then the application gets no CPU, and its calls' answers wait unread.
    let incidents = diagnose(Sim::default().act(At::Db, 5750..5900, Do::Lock).act(
        At::App,
        5950..6850,
        Do::Neighbour(0.95),
    ));
    let said: Vec<_> = incidents.iter().map(|i| format!("{:?} {}", i.kind, i.title)).collect();
    let dropped = incidents.iter().find(|i| !i.drops.is_empty()).unwrap();
    assert_eq!(
        (dropped.root.host.as_str(), dropped.root.resource),
        ("app-1", Resource::CpuNeighbour),
        "{said:#?}"
    );
}

#[test]
fn a_lock_after_a_moment_of_another_shortage_is_still_the_lock() {
    // Whoever takes the lock costs some CPU first.
    let incidents = diagnose(Sim::default().act(At::Db, 5900..5960, Do::Neighbour(0.9)).act(
        At::Db,
        5960..6700,
        Do::Lock,
    ));
    let dropped = incidents.iter().find(|i| !i.drops.is_empty()).unwrap();
    assert_eq!(
        (dropped.root.host.as_str(), dropped.root.resource),
        ("db-1", Resource::Lock),
        "{:#?} {:#?}",
        dropped.root,
        dropped.alternatives
    );
}

#[test]
fn what_stands_with_all_calls_that_were_waiting_already_is_the_root() {
    // A burst has filled the front's workers, and the application, near the end of its CPU, does not get rid of it: when that one
    // stops, neither its caller's calls nor its own queue can grow.
    let sim = Sim { bursts: vec![(500..750, 1.9)], ..Sim::default() }
        .act(At::App, 500..12_000, Do::Costly(1.95))
        .act(At::App, 6000..6700, Do::Pause);
    let incidents = diagnose(sim);
    let said: Vec<_> =
        incidents.iter().map(|i| format!("{:?} {} {}", i.kind, i.title, i.root.evidence)).collect();
    let dropped = incidents.iter().rfind(|i| !i.drops.is_empty()).unwrap();
    assert!(dropped.root.evidence.contains("it held all "), "{}", dropped.root.evidence);
    assert!(dropped.root.evidence.contains("of its caller's requests)"), "{}", dropped.root.evidence);
    assert_eq!(
        (dropped.root.host.as_str(), dropped.root.resource),
        ("app-1", Resource::Pause),
        "{said:#?} {:#?}",
        dropped.alternatives
    );
}

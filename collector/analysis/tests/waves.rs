//! Waves of drops that come while an earlier incident is open: which of them is an incident of its own, also where its first window does
//! not show that yet, and that each drop is told once.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use support::sim::{At, Do, Sim, Trace};
use support::{inputs, last_versions, outputs, told};
use tailwater_analysis::{Config, Output};
use tailwater_model::Incident;
use tailwater_model::incident::{Kind, Resource, State};
use tailwater_model::window::{DropNotice, HostWindow, Input, WINDOW_NS};

/// An event-driven front and application before a database that takes a connection per call, as in the laboratory's `nx2`.
fn event_driven() -> Sim {
    Sim {
        seconds: 13,
        rate: 700.0,
        web_workers: None,
        app_workers: None,
        db_workers: Some(40),
        backlogs: [4096, 4096, 24],
        app_work_ms: 0.02,
        ..Sim::default()
    }
    .act(At::Db, 0..13_000, Do::Costly(2.5))
}

/// The application stands twice. What it had stored by the end of the second time overflows the database some ms before a window ends: too
/// little of it to tell it from the retries of the first time, of which the last were dropped 1.2 s before.
fn twice() -> Sim {
    event_driven().act(At::App, 6000..6250, Do::Pause).act(At::App, 8590..9246, Do::Pause)
}

fn packets(incident: &Incident) -> u64 {
    incident.drops.iter().map(|d| d.count).sum()
}

fn said(incidents: &[Incident]) -> Vec<String> {
    incidents
        .iter()
        .map(|i| format!("{} {} v{} {:?} {}", i.id, i.title, i.version, i.state, packets(i)))
        .collect()
}

#[test]
fn a_wave_whose_cause_shows_later_becomes_an_incident_of_its_own() {
    let trace = twice().run();
    let versions = told(&outputs(&Config::default(), inputs(&trace)));
    let incidents = last_versions(&outputs(&Config::default(), inputs(&trace)));
    assert_eq!(incidents.len(), 2, "{:#?}", said(&versions));
    for incident in &incidents {
        assert_eq!(
            (incident.kind, incident.root.host.as_str(), incident.root.resource, incident.state),
            (Kind::DownstreamCtqo, "app-1", Resource::Pause, State::Closed),
            "{:#?}",
            said(&versions)
        );
    }
    let (first, second) = (&incidents[0], &incidents[1]);
    assert!(second.root.start_unix_ns - first.root.start_unix_ns > 2_500_000_000);
    assert!(
        first.drops.iter().map(|d| d.last_unix_ns).max() < second.drops.iter().map(|d| d.first_unix_ns).min()
    );
    assert_eq!(packets(first) + packets(second), trace.dropped[2], "{:#?}", said(&versions));
    assert!(packets(first) > 0 && packets(second) > packets(first));
    // Both tell of the drops of their own time what the kernel counted in it.
    let split = second.drops[0].first_unix_ns;
    let before: u64 = trace
        .windows
        .iter()
        .filter(|w| w.index.start_unix_ns() < split)
        .filter_map(|w| w.listeners.get(&1))
        .map(|l| l.drops)
        .sum();
    assert_eq!(packets(first), before);
}

#[test]
fn what_was_told_of_the_wave_is_taken_back_when_it_gets_its_own_incident() {
    let trace = twice().run();
    let versions = told(&outputs(&Config::default(), inputs(&trace)));
    let mut newest: BTreeMap<&str, &Incident> = BTreeMap::new();
    let mut taken_back = 0;
    for (at, version) in versions.iter().enumerate() {
        let before = newest.insert(&version.id, version);
        assert_eq!(version.version, before.map_or(0, |b| b.version) + 1, "{:#?}", said(&versions));
        if before.is_some_and(|b| packets(b) > packets(version)) {
            taken_back += 1;
            let next = &versions[at + 1];
            assert_eq!((next.version, next.root.resource), (1, Resource::Pause), "{:#?}", said(&versions));
            assert!(!newest.contains_key(next.id.as_str()), "told of for the first time");
        }
        // At no time is more told than was dropped.
        assert!(newest.values().map(|i| packets(i)).sum::<u64>() <= trace.dropped[2]);
    }
    assert_eq!(taken_back, 1, "{:#?}", said(&versions));
}

/// A notice for each window in which the database dropped, fed when the kernel would tell.
fn with_notices(trace: &Trace) -> Vec<Input> {
    let dropping =
        trace.windows.iter().filter(|w| w.host == "db-1" && w.listeners.get(&1).is_some_and(|l| l.drops > 0));
    let notices: Vec<DropNotice> = dropping
        .map(|w| DropNotice {
            phase_ns: 0,
            host: "db-1".into(),
            listener: 1,
            unix_ns: w.index.start_unix_ns() + 48_000_000,
            count: 3,
            sk_drops: 3,
            depth: 25,
            limit: 24,
        })
        .collect();
    let mut all = Vec::new();
    for input in inputs(trace) {
        if let Input::Tick { unix_ns } = input {
            let now = |n: &&DropNotice| (unix_ns - WINDOW_NS..unix_ns).contains(&n.unix_ns);
            all.extend(notices.iter().filter(now).cloned().map(Input::Drop));
        }
        all.push(input);
    }
    all
}

#[test]
fn a_wave_that_an_open_incident_took_has_no_alert_of_its_own() {
    let trace = twice().run();
    let plain = outputs(&Config::default(), inputs(&trace));
    let noticed = outputs(&Config::default(), with_notices(&trace));
    let alerts: Vec<&str> = noticed
        .iter()
        .filter_map(|o| if let Output::Alert(a) = o { Some(a.id.as_str()) } else { None })
        .collect();
    assert_eq!(
        alerts,
        [last_versions(&plain)[0].id.as_str()],
        "the first drop of all, by the id that it keeps"
    );
    assert_eq!(said(&told(&plain)), said(&told(&noticed)), "notices change nothing of what windows say");
    assert!(!noticed.iter().any(|o| matches!(o, Output::Note(_))), "each alert was confirmed");
}

#[test]
fn a_wave_is_judged_the_same_in_another_order_of_arrival() {
    let trace = twice().run();
    let plain = outputs(&Config::default(), inputs(&trace));
    let mut backwards = trace.names.clone();
    for index in trace.windows.chunk_by(|a, b| a.index == b.index) {
        backwards.push(Input::Tick { unix_ns: (index[0].index.0 + 3) * WINDOW_NS });
        backwards.extend(index.iter().rev().map(|w| Input::Window(Arc::new(w.clone()))));
    }
    assert_eq!(told(&plain), told(&outputs(&Config::default(), backwards)));
}

#[test]
fn retries_that_overflow_again_stay_with_the_incident_that_dropped_them() {
    for pause in [250, 350, 500] {
        let trace = Sim { seconds: 18, ..event_driven() }.act(At::App, 6000..6000 + pause, Do::Pause).run();
        let incidents = last_versions(&outputs(&Config::default(), inputs(&trace)));
        let dropped = |w: &&HostWindow| w.host == "db-1" && w.listeners.get(&1).is_some_and(|l| l.drops > 0);
        let windows: Vec<u64> = trace.windows.iter().filter(dropped).map(|w| w.index.0).collect();
        let waves = 1 + windows.windows(2).filter(|pair| pair[1] - pair[0] >= 10).count();
        assert!(waves >= 3, "retries were dropped again, and once more: {windows:?}");
        assert_eq!(incidents.len(), 1, "{pause} ms, {waves} waves: {:#?}", said(&incidents));
        assert_eq!(packets(&incidents[0]), trace.dropped[2]);
    }
}

/// A burst overflows a small pool, and a second later those who were dropped do so again. In that very window the database is short of CPU, which
/// another workload takes for the time of the wave alone: it opens no incident.
#[test]
fn what_shows_in_the_window_of_a_retried_wave_alone_is_no_cause_of_it() {
    for from in (9000..9025).step_by(5) {
        let sim = Sim {
            seconds: 13,
            web_workers: Some(40),
            backlogs: [24, 4096, 4096],
            bursts: vec![(8010..8020, 60.0)],
            ..Sim::default()
        };
        let trace = sim.act(At::Db, from..from + 25, Do::Neighbour(0.95)).run();
        let incidents = last_versions(&outputs(&Config::default(), inputs(&trace)));
        let critical: Vec<_> = incidents.iter().filter(|i| !i.drops.is_empty()).collect();
        assert_eq!(critical.len(), 1, "{from}: {:#?}", said(&incidents));
        assert_eq!(critical[0].root.resource, Resource::Burst, "{from}: {:#?}", said(&incidents));
    }
}

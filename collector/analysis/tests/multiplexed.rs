//! A tier whose connections carry several exchanges at once: nothing is known of its requests, so nothing is concluded from them; its
//! silence is told all the same.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{FIRST_WINDOW, Trace};
use support::{inputs, last_versions, outputs};
use tailwater_analysis::{Config, Output, Pipeline};
use tailwater_model::Incident;
use tailwater_model::incident::Resource;
use tailwater_model::window::{
    Coverage, HostCpu, HostInfo, HostWindow, Input, ListenerInfo, ListenerWindow, WINDOW_NS, WindowIndex,
    WorkloadInfo, WorkloadWindow,
};

const HOST: &str = "front-1";

fn names() -> Vec<Input> {
    vec![
        Input::Host(HostInfo {
            host: HOST.into(),
            machine: String::new(),
            agent_instance: "instance".into(),
            cpus: 2,
            addresses: vec!["10.0.0.1".parse().unwrap()],
            coverage: Coverage {
                cpu: true,
                run_queue: true,
                block_io: true,
                accept_queue: true,
                requests: true,
                calls: true,
                ..Coverage::default()
            },
        }),
        Input::Entities {
            host: HOST.into(),
            workloads: vec![WorkloadInfo {
                id: 1,
                cgroup: "/system.slice/gateway.service".into(),
                name: "gateway.service".into(),
                comm: "gateway".into(),
                ..WorkloadInfo::default()
            }],
            listeners: vec![ListenerInfo {
                id: 1,
                workload: 1,
                address: "0.0.0.0".parse().unwrap(),
                port: 443,
                comm: "gateway".into(),
                pool: None,
                path: None,
                started_with: 0,
                pid: 0,
            }],
            edges: vec![],
            devices: vec![],
        },
    ]
}

/// What the tier did in a window.
#[derive(Clone, Copy)]
struct Did {
    came: u64,
    read: u64,
    wrote: u64,
    /// Unanswered at the window's begin and end.
    unanswered: (u64, u64),
    busy_ns: u64,
    /// Of its four connections, those with data that nobody reads.
    unread: u64,
    /// Its one thread.
    stopped: bool,
}

fn window(number: u64, did: Did) -> HostWindow {
    let mut window =
        HostWindow { host: HOST.into(), index: WindowIndex(FIRST_WINDOW + number), ..HostWindow::default() };
    window.cpu = Some(HostCpu {
        capacity_ns: 2 * WINDOW_NS,
        busy_ns: did.busy_ns,
        idle_ns: 2 * WINDOW_NS - did.busy_ns,
        ..HostCpu::default()
    });
    *window.workloads.entry(1).or_default() = WorkloadWindow {
        busy_ns: did.busy_ns,
        stopped_ns: Some(u64::from(did.stopped) * WINDOW_NS),
        stopped_max: u32::from(did.stopped),
        ..WorkloadWindow::default()
    };
    let (from, to) = did.unanswered;
    *window.listeners.entry(1).or_default() = ListenerWindow {
        limit: 511,
        open_last: 4,
        open_max: 4,
        multiplexed_connections: 4,
        pieces_in: did.came,
        pieces_read: did.read,
        pieces_out: did.wrote,
        multiplexed_bytes_in: 60 * did.came,
        multiplexed_bytes_out: 900 * did.wrote,
        unanswered_max: to.max(6) as u32,
        unread_max: did.unread as u32,
        unread_ns: did.unread * WINDOW_NS,
        unanswered_ns: (from + to) / 2 * WINDOW_NS,
        ..ListenerWindow::default()
    };
    window
}

/// 15 s at some 300 pieces a window; what `case` says of the tier in the ten windows from the 200th on.
fn run(case: impl Fn(Did) -> Did) -> Vec<Output> {
    let mut windows = Vec::new();
    let mut unanswered = 3;
    for number in 0..300 {
        let came = 270 + number * 7_919 % 61;
        let usual = Did {
            came,
            read: came,
            wrote: came,
            unanswered: (3, 3),
            busy_ns: WINDOW_NS / 3,
            unread: 0,
            stopped: false,
        };
        let mut did = if (200..210).contains(&number) { case(usual) } else { usual };
        let before = unanswered;
        unanswered = if did.wrote == 0 { before + did.came } else { 3 };
        // Two to seven are unanswered at all times, as of HTTP/2 in closed loops.
        let few = 2 + number * 5 % 6;
        did.unanswered = if did.wrote == 0 { (before, unanswered) } else { (few, few) };
        windows.push(window(number, did));
    }
    outputs(&Config::default(), inputs(&Trace { names: names(), windows, dropped: [0; 4] }))
}

fn only(outputs: &[Output]) -> Incident {
    let incidents = last_versions(outputs);
    let said: Vec<String> = incidents.iter().map(|i| format!("{}\n  {}", i.title, i.root.evidence)).collect();
    println!("{}", said.join("\n"));
    assert_eq!(incidents.len(), 1, "{}", said.join("\n"));
    incidents.into_iter().next().unwrap()
}

fn says_nothing_of_requests(incident: &Incident) {
    let hop = &incident.hops[0];
    assert!(
        hop.connections_only
            && hop.workers_limit.is_none()
            && hop.congestion.is_none_or(|c| c.congestion_point.is_none())
    );
    for said in [&incident.title, &incident.root.evidence] {
        assert!(!said.contains("request") && !said.contains("answers per window"), "{said}");
    }
    assert!(incident.title.contains("connections only"), "{}", incident.title);
}

fn paused_for_ten_windows(incident: &Incident) {
    assert_eq!(
        (incident.root.resource, incident.root.host.as_str()),
        (Resource::Pause, HOST),
        "{incident:#?}"
    );
    let (from, to) = (incident.root.start_unix_ns / WINDOW_NS, incident.root.end_unix_ns / WINDOW_NS);
    assert!(from.abs_diff(FIRST_WINDOW + 200) <= 1 && to.abs_diff(FIRST_WINDOW + 210) <= 1, "{incident:#?}");
}

#[test]
fn a_pause_is_told_by_what_came_and_was_not_read() {
    let incident = only(&run(|usual| Did { read: 0, wrote: 0, busy_ns: 0, unread: 4, ..usual }));
    paused_for_ten_windows(&incident);
    assert!(incident.drops.is_empty());
    says_nothing_of_requests(&incident);
}

/// Clients that ask anew only when they were answered: a last batch comes on each connection, and no more while the tier stands.
#[test]
fn a_pause_is_told_where_clients_wait_for_answers_and_send_no_more() {
    let incident = only(&run(|usual| Did { came: 0, read: 0, wrote: 0, busy_ns: 0, unread: 4, ..usual }));
    paused_for_ten_windows(&incident);
    says_nothing_of_requests(&incident);
}

/// All that was asked had been read when it was stopped, so nothing lies unread, and nothing more is asked.
#[test]
fn a_stop_is_told_where_clients_wait_for_answers_and_nothing_lies_unread() {
    let incident = only(&run(|usual| Did { came: 0, read: 0, wrote: 0, busy_ns: 0, stopped: true, ..usual }));
    assert_eq!(
        (incident.root.resource, incident.root.unit.as_str()),
        (Resource::Pause, "threads"),
        "{incident:#?}"
    );
    says_nothing_of_requests(&incident);
}

#[test]
fn a_lock_is_told_by_what_was_read_and_not_spoken_to() {
    let incident = only(&run(|usual| Did { wrote: 0, busy_ns: WINDOW_NS / 100, ..usual }));
    assert_eq!(
        (incident.root.resource, incident.root.host.as_str()),
        (Resource::Lock, HOST),
        "{incident:#?}"
    );
    says_nothing_of_requests(&incident);
}

#[test]
fn what_goes_on_to_speak_and_what_nobody_asks_is_no_incident() {
    for told in [
        run(|usual| usual),
        run(|usual| Did { came: 0, read: 0, wrote: 0, busy_ns: 0, ..usual }),
        // The last words of its clients have no answer, but were read.
        run(|usual| Did { came: 0, read: 0, wrote: 0, unread: 1, ..usual }),
        run(|usual| Did { came: 3 * usual.came, read: 3 * usual.came, wrote: 2 * usual.came, ..usual }),
    ] {
        assert_eq!(last_versions(&told).len(), 0, "{:#?}", last_versions(&told));
    }
}

#[test]
fn no_congestion_point_is_learnt_of_it() {
    let mut pipeline = Pipeline::new(Config::default());
    for number in 0..400 {
        let usual = Did {
            came: 300,
            read: 300,
            wrote: 300,
            unanswered: (number % 40, number % 40),
            busy_ns: WINDOW_NS / 3,
            unread: 0,
            stopped: false,
        };
        let trace = Trace { names: names(), windows: vec![window(number, usual)], dropped: [0; 4] };
        for input in inputs(&trace) {
            pipeline.feed(input);
        }
    }
    let known = pipeline.congestion().listeners;
    assert!(known.iter().all(|l| l.intervals.is_empty() && l.congestion_point.is_none()), "{known:#?}");
}

/// An hour without a request, in short: then somebody stops the server that nobody asks.
#[test]
fn a_tier_that_has_nothing_to_do_is_not_told_when_it_is_stopped() {
    let idle =
        |stopped| Did { came: 0, read: 0, wrote: 0, unanswered: (0, 0), busy_ns: 0, unread: 0, stopped };
    let busy =
        Did { came: 300, read: 300, wrote: 300, unanswered: (3, 3), busy_ns: WINDOW_NS / 3, ..idle(false) };
    let told = |quiet: u64| {
        let did = |number: u64| match number {
            0..200 => busy,
            _ => idle(number >= 200 + quiet && number < 230 + quiet),
        };
        let windows = (0..400 + quiet).map(|number| window(number, did(number))).collect();
        let outputs =
            outputs(&Config::default(), inputs(&Trace { names: names(), windows, dropped: [0; 4] }));
        last_versions(&outputs).len()
    };
    assert_eq!((told(0), told(100)), (1, 0));
}

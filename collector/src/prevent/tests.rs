//! An incident that windows are made of, and what is said of it.

use super::*;
use std::sync::Arc;
use tailwater_model::incident::{DropReason, Drops, Hop, Kind, Resource, Role, Root, Severity, State, Vlrt};
use tailwater_model::topology::{EdgeView, NodeView};
use tailwater_model::window::{
    EdgeInfo, EdgeWindow, HostCpu, HostWindow, Input, ListenerInfo, ListenerWindow, WINDOW_NS, WorkloadInfo,
    WorkloadWindow,
};

const FIRST: u64 = 1000;
/// The application stops in the windows 300 to 310.
const STOPS: std::ops::Range<u64> = 300..310;
const LAST: u64 = 420;
/// Requests of a window.
const PER_WINDOW: u64 = 50;

fn hop(host: &str, workload: &str, listener: &str, workers: Option<u32>, backlog: Option<u32>) -> Hop {
    Hop {
        host: host.into(),
        workload: workload.into(),
        tier: workload.into(),
        listener: listener.into(),
        role: Role::Drop,
        observed: true,
        requests_unknown: false,
        connections_only: false,
        onset_unix_ns: 0,
        order_to_root: None,
        queued_max: 279,
        workers_busy_max: 150,
        workers_limit: workers,
        accept_queue_max: 129,
        accept_queue_limit: backlog,
        pool_in_flight_max: None,
        pool_open: None,
        congestion: None,
        life: None,
        slowest: Vec::new(),
    }
}

fn at(window: u64) -> u64 {
    WindowIndex(FIRST + window).start_unix_ns()
}

/// The web server dropped while the application stood.
fn incident() -> Incident {
    Incident {
        id: "01".into(),
        version: 3,
        state: State::Closed,
        kind: Kind::UpstreamCtqo,
        severity: Severity::Critical,
        confidence: 0.9,
        title: String::new(),
        start_unix_ns: at(STOPS.start),
        end_unix_ns: at(STOPS.end + 1),
        clock_error_ns: 0,
        order_unknown: false,
        root: Root {
            host: "app-1".into(),
            workload: "tomcat".into(),
            tier: "tomcat".into(),
            resource: Resource::Pause,
            start_unix_ns: at(STOPS.start),
            end_unix_ns: at(STOPS.end),
            peak: 1.0,
            unit: "ratio".into(),
            culprits: Vec::new(),
            event_loop: None,
            lookups: None,
            lost: None,
            locks: None,
            lock: None,
            replicas: None,
            saturated: None,
            code: Vec::new(),
            evidence: String::new(),
        },
        hops: vec![
            hop("web-1", "apache2", "10.0.0.1:80", Some(150), Some(128)),
            hop("app-1", "tomcat", "10.0.0.2:8080", Some(200), None),
        ],
        drops: vec![Drops {
            host: "web-1".into(),
            workload: "apache2".into(),
            tier: "apache2".into(),
            listener: "10.0.0.1:80".into(),
            count: 221,
            sk_drops: Some(221),
            connections: 221,
            reason: DropReason::AcceptQueueFull,
            first_unix_ns: at(305),
            last_unix_ns: at(310),
        }],
        vlrt: Vlrt::default(),
        sustained: None,
        alternatives: Vec::new(),
        against: Vec::new(),
        context: Vec::new(),
        also: Vec::new(),
        do_now: None,
        numbers: Vec::new(),
    }
}

fn topology() -> TopologyView {
    let node = |host: &str, workload: &str| NodeView {
        host: host.into(),
        workload: workload.into(),
        tier: workload.into(),
        listeners: Vec::new(),
        workers_limit: None,
    };
    TopologyView {
        nodes: vec![node("web-1", "apache2"), node("app-1", "tomcat")],
        edges: vec![EdgeView {
            from_host: "web-1".into(),
            from_workload: "apache2".into(),
            remote: "10.0.0.2:8080".into(),
            to_host: Some("app-1".into()),
            to_workload: Some("tomcat".into()),
        }],
    }
}

/// Requests that are in the system at the begin of a window after the stop began, and what was dropped in it.
fn held(window: u64) -> (u64, u64) {
    let came = window.saturating_sub(STOPS.start) * PER_WINDOW;
    let held = came.min(279);
    let dropped = (came + PER_WINDOW).min(PER_WINDOW * (STOPS.end - STOPS.start)).saturating_sub(279);
    (held, dropped.min(PER_WINDOW).min(came + PER_WINDOW - held))
}

/// A window of each host: 2 ms in the application, of which 0.2 ms on a CPU, and 0.2 ms in the web server.
fn windows(series: &mut Series, window: u64, change: &impl Fn(&str, &mut HostWindow)) {
    let stops = STOPS.contains(&window);
    let (in_system, dropped) = if stops { held(window) } else { (0, 0) };
    let answered = if stops { 0 } else { PER_WINDOW };
    // On average of a window in which half of what comes is there.
    let in_flight_ns = if stops { (in_system + PER_WINDOW / 2).min(150) * WINDOW_NS } else { 0 };
    let of = |host: &str| {
        let cpu = HostCpu { capacity_ns: 2 * WINDOW_NS, ..HostCpu::default() };
        let index = WindowIndex(FIRST + window);
        let mut w = HostWindow { host: host.into(), index, cpu: Some(cpu), ..HostWindow::default() };
        let busy_ns = answered * 200_000;
        w.workloads.insert(1, WorkloadWindow { busy_ns, ..WorkloadWindow::default() });
        w
    };
    let mut web = of("web-1");
    web.listeners.insert(
        5,
        ListenerWindow {
            limit: 128,
            arrivals: PER_WINDOW - dropped
                + if (321..=330).contains(&window) { held(window - 20).1 } else { 0 },
            received: answered,
            answered,
            drops: dropped,
            drops_syn: dropped,
            depth_max: in_system.saturating_sub(150) as u32,
            depth_last: if stops { held(window + 1).0.saturating_sub(150) as u32 } else { 0 },
            accepts: if stops { 150_u64.saturating_sub(in_system).min(PER_WINDOW) } else { PER_WINDOW },
            response_ns: answered * 2_200_000,
            in_flight_ns,
            in_flight_max: in_system.min(150) as u32,
            ..ListenerWindow::default()
        },
    );
    web.edges.insert(
        7,
        EdgeWindow {
            started: answered,
            answered,
            connects: answered,
            response_ns: answered * 2_000_000,
            in_flight_ns,
            ..EdgeWindow::default()
        },
    );
    let mut app = of("app-1");
    app.listeners.insert(
        5,
        ListenerWindow {
            limit: 100,
            received: answered,
            answered,
            response_ns: answered * 2_000_000,
            in_flight_ns,
            in_flight_max: in_system.min(150) as u32,
            ..ListenerWindow::default()
        },
    );
    for (host, mut w) in [("web-1", web), ("app-1", app)] {
        change(host, &mut w);
        series.saw(&Input::Window(Arc::new(w)));
    }
}

fn series(change: impl Fn(&str, &mut HostWindow)) -> Series {
    let mut series = Series::new(10, 1 << 26);
    for (host, name, address, port) in
        [("web-1", "apache2", [10, 0, 0, 1], 80), ("app-1", "tomcat", [10, 0, 0, 2], 8080)]
    {
        let calls = EdgeInfo {
            id: 7,
            workload: 1,
            remote_address: [10, 0, 0, 2].into(),
            remote_port: 8080,
            path: None,
        };
        series.saw(&Input::Entities {
            host: host.into(),
            workloads: vec![WorkloadInfo { id: 1, name: name.into(), ..WorkloadInfo::default() }],
            listeners: vec![ListenerInfo {
                id: 5,
                workload: 1,
                address: address.into(),
                port,
                path: None,
                comm: String::new(),
                pool: None,
                started_with: 0,
                pid: 0,
            }],
            edges: if port == 80 { vec![calls] } else { Vec::new() },
            devices: Vec::new(),
        });
    }
    for window in 100..LAST {
        windows(&mut series, window, &change);
    }
    series
}

fn asked(incident: &Incident, change: impl Fn(&str, &mut HostWindow)) -> PreventionView {
    let series = series(change);
    prevention(incident, &topology(), |host, first, last| vec![series.part(host, first, last)])
}

fn refused(incident: &Incident, change: impl Fn(&str, &mut HostWindow)) -> String {
    let view = asked(incident, change);
    assert!(view.answer.is_none() && view.why.is_some(), "{view:?}");
    view.refused.unwrap().reason
}

#[test]
fn what_windows_show_is_reproduced_and_answered() {
    let view = asked(&incident(), |_, _| {});
    let answer = view.answer.unwrap_or_else(|| panic!("{:?}", view.why));
    let of = answer.reproduction;
    assert_eq!(of.seen, 221);
    assert!((0.9..=1.1).contains(&of.ratio), "{of:?}");
    let web = &answer.tiers[0];
    assert_eq!((web.backlog, web.workers, web.pool), (Some(128), Some(150), None));
    assert!((web.cpu_s - 0.0002).abs() < 1e-9 && web.wait_s < 1e-9 && (web.cpus - 2.0).abs() < 1e-9);
    let app = &answer.tiers[1];
    assert!((app.cpu_s - 0.0002).abs() < 1e-9 && (app.wait_s - 0.0018).abs() < 1e-9, "{app:?}");
    let of = |what: &str, tier: usize| {
        let is = |c: &&tailwater_model::prevention::Candidate| {
            c.changes.len() == 1 && c.changes[0].what == what && c.changes[0].tier == tier
        };
        answer.candidates.iter().find(is).unwrap()
    };
    let backlog = of("backlog", 0);
    // 600 come with the margin, 151 of which need no queue.
    assert!(backlog.effect == "slow" || backlog.effect == "prevents", "{backlog:?}");
    assert!((430..=540).contains(&backlog.changes[0].to.unwrap()), "{backlog:?}");
    assert_eq!(backlog.replayed.dropped(), 0);
    assert_eq!(backlog.with_margin.as_ref().map(|with| with.dropped()), Some(0));
    assert!(backlog.sentence.contains("with 20 % to spare"), "{}", backlog.sentence);
    // The application takes 200 and, with connections of their own, 101 more wait there.
    assert_eq!(of("workers", 0).effect, "moves");
    assert_eq!(of("workers", 0).moves_to, Some(1));
    assert!(backlog.sentence.starts_with("accept queue of apache2@web-1 128 → "), "{}", backlog.sentence);
}

#[test]
fn what_cannot_be_said_has_a_reason() {
    let quiet = Incident { drops: Vec::new(), ..incident() };
    assert_eq!(refused(&quiet, |_, _| {}), "nothing_dropped");
    assert_eq!(refused(&Incident { state: State::Open, ..incident() }, |_, _| {}), "not_over");
    assert_eq!(refused(&Incident { kind: Kind::SynFlood, ..incident() }, |_, _| {}), "tainted");
    let mut unobserved = incident();
    unobserved.hops[1].observed = false;
    assert_eq!(refused(&unobserved, |_, _| {}), "not_seen");
    // As a host is told that no agent observes: its address, and no workload.
    (unobserved.hops[1].host, unobserved.hops[1].workload) = ("10.77.0.3".into(), String::new());
    let why = asked(&unobserved, |_, _| {}).why.unwrap();
    assert!(why.contains("what 10.77.0.3 did") && !why.contains('@'), "{why}");
    let mut elsewhere = incident();
    elsewhere.root.workload = "cron".into();
    assert_eq!(refused(&elsewhere, |_, _| {}), "not_seen");
    let kept = |_: &str, w: &mut HostWindow| w.listeners.values_mut().for_each(|l| l.received *= 3);
    assert_eq!(refused(&incident(), kept), "kept_connections");
    // 500 come, 150 of whom are accepted; the margin is on those who wait.
    let queue = asked(&incident(), kept).queue.unwrap();
    let told = (queue.tier.as_str(), queue.backlog, queue.held, queue.enough);
    assert_eq!(told, ("apache2@web-1", 128, 350, 420), "{queue:?}");
    assert_eq!(asked(&Incident { kind: Kind::SynFlood, ..incident() }, kept).queue, None);
    let kept_and_lost = |host: &str, w: &mut HostWindow| {
        kept(host, w);
        if w.index.0 == FIRST + 304 {
            w.uncovered = tailwater_model::window::SignalSet::of(["requests"]);
        }
    };
    assert_eq!(asked(&incident(), kept_and_lost).queue, None, "a window that is missing is not guessed");
    let lost = |host: &str, w: &mut HostWindow| {
        if host == "web-1" && w.index.0 == FIRST + 304 {
            w.uncovered = tailwater_model::window::SignalSet::of(["requests"]);
        }
    };
    assert_eq!(refused(&incident(), lost), "not_seen");
    // As if nobody had waited in the application.
    let idle = |host: &str, w: &mut HostWindow| {
        let listeners = w.listeners.values_mut().filter(|_| host == "app-1");
        listeners.for_each(|l| (l.in_flight_ns, l.unread_ns) = (0, 0));
    };
    assert_eq!(refused(&incident(), idle), "not_reproduced");
}

#[test]
fn an_answer_is_worked_out_once_for_a_version() {
    let (preventions, incident) = (Preventions::default(), incident());
    assert_eq!(preventions.known(&incident), None);
    let view = preventions.remember(asked(&incident, |_, _| {}));
    assert_eq!(preventions.known(&incident), Some(view));
    assert_eq!(preventions.known(&Incident { version: 4, ..incident.clone() }), None);
    let open = Incident { id: "02".into(), state: State::Open, ..incident };
    preventions.remember(asked(&open, |_, _| {}));
    assert_eq!(preventions.known(&open), None, "it may be known when it is over");
}

//! The page's *Topology* with a real browser, of a fleet of 100 hosts: 20 tiers of five hosts each, one address that no agent observes, and an incident.
//! The server is the real one, in this process. What the browser does is in `tests/page/fleet.mjs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::browser::browse;
use common::{WINDOW_NS, shows};
use std::net::SocketAddr;
use std::sync::Arc;
use tailwater::alert::{Handle, api};
use tailwater::clock::Clock;
use tailwater::counters::Metrics;
use tailwater::live::events::Events;
use tailwater::live::series::Series;
use tailwater::serve::front::Front;
use tailwater::serve::gate::{Gate, Rules};
use tailwater_model::Incident;
use tailwater_model::topology::{EdgeView, NodeView, TopologyView};
use tailwater_model::window::{
    HostCpu, HostWindow, Input, ListenerInfo, ListenerWindow, WindowIndex, WorkloadInfo, WorkloadWindow,
};
use tokio_util::sync::CancellationToken;

/// Any moment in 2026, as a window.
const FIRST: u64 = 35_880_000_000;
/// Ten seconds of windows.
const WINDOWS: u64 = 200;
const REPLICAS: u8 = 5;
/// Each tier, and whom it calls.
const TIERS: [(&str, &[&str]); 20] = [
    ("edge", &["gateway"]),
    ("gateway", &["basket", "orders", "search", "accounts"]),
    ("basket", &["basket-cache", "offers", "prices"]),
    ("basket-cache", &[]),
    ("offers", &["offers-db"]),
    ("offers-db", &[]),
    ("prices", &["prices-cache", "prices-db"]),
    ("prices-cache", &[]),
    ("prices-db", &[]),
    ("orders", &["orders-db", "payments", "shipping", "mail"]),
    ("orders-db", &[]),
    ("payments", &["payments-db"]),
    ("payments-db", &[]),
    ("shipping", &["stock"]),
    ("stock", &["stock-db"]),
    ("stock-db", &[]),
    ("mail", &[]),
    ("search", &["stock"]),
    ("accounts", &["accounts-db"]),
    ("accounts-db", &[]),
];

fn host(tier: &str, replica: u8) -> String {
    format!("{tier}-{replica}")
}

fn listener(tier: usize, replica: u8) -> (std::net::Ipv4Addr, u16) {
    ([10, 1, u8::try_from(tier).unwrap(), replica].into(), 8000 + u16::try_from(tier).unwrap())
}

fn topology() -> TopologyView {
    let (mut nodes, mut edges) = (Vec::new(), Vec::new());
    for (n, (tier, calls)) in TIERS.iter().enumerate() {
        for replica in 1..=REPLICAS {
            let (address, port) = listener(n, replica);
            nodes.push(NodeView {
                host: host(tier, replica),
                workload: (*tier).to_owned(),
                tier: (*tier).to_owned(),
                listeners: vec![format!("{address}:{port}")],
                workers_limit: None,
            });
            let mut calls_to = |remote: String, to: Option<(String, String)>| {
                let (to_host, to_workload) = to.unzip();
                let (from_host, from_workload) = (host(tier, replica), (*tier).to_owned());
                edges.push(EdgeView { from_host, from_workload, remote, to_host, to_workload });
            };
            for to in *calls {
                if let Some(at) = TIERS.iter().position(|(name, _)| name == to) {
                    let (address, port) = listener(at, replica);
                    calls_to(format!("{address}:{port}"), Some((host(to, replica), (*to).to_owned())));
                }
            }
            // A service that somebody else runs.
            if *tier == "payments" {
                calls_to("198.51.100.7:443".to_owned(), None);
            }
        }
    }
    TopologyView { nodes, edges }
}

/// Ten seconds of each host.
fn fill(series: &mut Series) {
    for (n, (tier, _)) in TIERS.iter().enumerate() {
        for replica in 1..=REPLICAS {
            let ((address, port), host) = (listener(n, replica), host(tier, replica));
            series.saw(&Input::Entities {
                host: host.as_str().into(),
                workloads: vec![WorkloadInfo { id: 3, name: (*tier).to_owned(), ..WorkloadInfo::default() }],
                listeners: vec![ListenerInfo {
                    id: 1,
                    workload: 3,
                    address: address.into(),
                    port,
                    path: None,
                    comm: (*tier).to_owned(),
                    pool: None,
                    started_with: 0,
                    pid: 0,
                }],
                edges: vec![],
                devices: vec![],
            });
            let busy = 5 + (n as u64 * 7 + u64::from(replica) * 3) % 40;
            for window in 0..WINDOWS {
                let mut w = HostWindow {
                    host: host.as_str().into(),
                    index: WindowIndex(FIRST + window),
                    ..HostWindow::default()
                };
                let busy_ns = busy * WINDOW_NS / 100;
                w.cpu = Some(HostCpu { capacity_ns: WINDOW_NS, busy_ns, ..HostCpu::default() });
                w.workloads.insert(3, WorkloadWindow { busy_ns, ..WorkloadWindow::default() });
                let of = ListenerWindow {
                    depth_max: u32::try_from(busy / 10).unwrap(),
                    limit: 128,
                    in_flight_max: u32::try_from(busy).unwrap(),
                    received: busy,
                    answered: busy,
                    response_ns: busy * 3_000_000,
                    ..ListenerWindow::default()
                };
                w.listeners.insert(1, of);
                series.saw(&Input::Window(Arc::new(w)));
            }
        }
    }
}

/// The disk of one database, which had another tier drop.
fn incident() -> Incident {
    let at = |window: u64| WindowIndex(FIRST + window).start_unix_ns();
    let hop = |host: &str, workload: &str, listener: &str, role: &str| {
        serde_json::json!({
            "host": host, "workload": workload, "tier": workload, "listener": listener, "role": role, "onset_unix_ns": at(150),
            "queued_max": 90, "workers_busy_max": 90, "workers_limit": null, "accept_queue_max": 129, "accept_queue_limit": 128,
            "pool_in_flight_max": null, "pool_open": null, "observed": true, "order_to_root": null, "congestion": null,
        })
    };
    serde_json::from_value(serde_json::json!({
        "id": "01MA000000000000000000000A", "version": 2, "state": "open", "kind": "upstream_ctqo", "severity": "critical", "confidence": 0.9,
        "title": "orders@orders-3 dropped 40 connections.", "start_unix_ns": at(150), "end_unix_ns": at(198), "clock_error_ns": 60_000,
        "root": {
            "host": "orders-db-3", "workload": "orders-db", "tier": "orders-db", "resource": "io", "start_unix_ns": at(150), "end_unix_ns": at(160),
            "peak": 8.0, "unit": "tasks", "culprits": [], "evidence": "its disk",
        },
        "hops": [hop("orders-3", "orders", "10.1.9.3:8009", "drop"), hop("orders-db-3", "orders-db", "10.1.10.3:8010", "root")],
        "drops": [{
            "host": "orders-3", "workload": "orders", "tier": "orders", "listener": "10.1.9.3:8009", "count": 40,
            "connections": 40, "reason": "accept_queue_full", "first_unix_ns": at(155), "last_unix_ns": at(158),
        }],
        "vlrt": { "syn_retransmits": null, "expected": 40, "clients": [] }, "alternatives": [],
    }))
    .unwrap()
}

#[test]
fn privileged_a_fleet_of_100_hosts_stays_legible() {
    let metrics = Arc::new(Metrics::default());
    let mut shown = shows::shown(256 << 20, Events::default(), &metrics);
    shown.topology = Arc::new(std::sync::Mutex::new(Arc::new(topology())));
    fill(&mut shown.series.lock().unwrap());
    shown.store.lock().unwrap().put(incident(), None);
    let time = WindowIndex(FIRST).start_unix_ns()..WindowIndex(FIRST + WINDOWS).start_unix_ns();
    let ends = Clock::standing(time.end);
    let app = shows::app(shown, metrics, time, CancellationToken::new()).at(ends);
    let runtime = common::runtime();
    let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let alerting = api::routes(Handle::default(), |_| String::new(), Arc::new(|_: &str| None));
    let routes = app.routes().merge(alerting);
    let gate = Arc::new(Gate::new(Rules::open(address.port(), false), Arc::default(), Clock::default()));
    let front = Front { gate, names: Vec::new(), tls: None, metrics: Arc::default() };
    runtime.spawn(front.serve(listener, routes, CancellationToken::new()));
    browse("fleet.mjs", address, FIRST, |_| {});
}

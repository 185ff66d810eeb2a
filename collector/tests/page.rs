//! The page's API and states with a real browser, on an hour of 50 ms windows that is made here: agents would need an hour to
//! measure it. The server is the real one, in this process. What the browser does is in `tests/page/hour.mjs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]
#![allow(clippy::disallowed_methods, reason = "the test needs the time of day")]

mod common;

use common::browser::browse;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tailwater::alert::silences::Silences;
use tailwater::alert::{self, config};
use tailwater::clock::Clock;
use tailwater::counters::Metrics;
use tailwater::ingest::delivery_log::{InMemory, Offset, Reader};
use tailwater::ingest::feed::QUEUE_MAX;
use tailwater::ingest::registry::Registry;
use tailwater::live::events::Events;
use tailwater::live::series::Series;
use tailwater::live::timeline::{TierRow, Timeline};
use tailwater::run::driver;
use tailwater::run::outlet::Outlet;
use tailwater::run::provisional::Provisionals;
use tailwater::serve::front::Front;
use tailwater::serve::gate::{Gate, Rules};
use tailwater::serve::{App, Shown};
use tailwater::store;
use tailwater_analysis::Pipeline;
use tailwater_model::Incident;
use tailwater_model::window::{
    HostCpu, HostWindow, Input, ListenerInfo, ListenerWindow, WINDOW_NS, WindowIndex, WorkloadInfo,
    WorkloadWindow,
};
use tailwater_proto::v1;
use tokio_util::sync::CancellationToken;

const HOST: &str = "web-1";
const HOUR_WINDOWS: u64 = 72_000;
/// Ten seconds without windows, half an hour in.
const GAP: std::ops::Range<u64> = 36_000..36_200;
/// Workloads of the host beside the one that listens: a machine has some.
const OTHERS: std::ops::Range<u32> = 10..30;
/// One window in which 40 packets are dropped.
const DROPS_AT: u64 = 50_003;
/// A host that was there in the first minute only, on disk.
const GONE: &str = "gone-1";
const GONE_WINDOWS: u64 = 1200;
/// Incidents of the last ten minutes: more than the page's list holds.
const SMALL_ONES: u64 = 1001;
const SMALL_FROM: u64 = 60_000;

/// The n-th window of the hour: a slow wave, with one short stall that a mean of four seconds would hide.
fn window(index: u64, n: u64) -> HostWindow {
    let wave = (n % 1200) / 12;
    let stalled = (DROPS_AT - 5..=DROPS_AT).contains(&n);
    let mut w = HostWindow { host: HOST.into(), index: WindowIndex(index), ..HostWindow::default() };
    w.cpu =
        Some(HostCpu { capacity_ns: 2 * WINDOW_NS, busy_ns: (wave + 40) * 500_000, ..HostCpu::default() });
    w.workloads.insert(3, WorkloadWindow { busy_ns: wave * 400_000, ..WorkloadWindow::default() });
    for id in OTHERS.filter(|id| !(n + u64::from(*id)).is_multiple_of(3)) {
        let busy_ns = (n * u64::from(id)) % 7 * 300_000;
        w.workloads.insert(id, WorkloadWindow { busy_ns, ..WorkloadWindow::default() });
    }
    let listener = ListenerWindow {
        depth_max: if stalled { 129 } else { 2 },
        limit: 128,
        in_flight_max: if stalled { 150 } else { 5 },
        workers_busy_max: if stalled { 150 } else { 5 },
        received: 50,
        answered: 50,
        response_ns: 50 * 3_000_000,
        drops: if n == DROPS_AT { 40 } else { 0 },
        ..ListenerWindow::default()
    };
    w.listeners.insert(1, listener);
    // Nearly all within 2 ms to 4 ms; one in 16 ms to 33 ms, or in 8.4 s and more.
    w.responses.add(1, 11, 49);
    w.responses.add(1, if stalled { 23 } else { 14 }, 1);
    w
}

fn hour(first: u64) -> Series {
    let mut series = Series::new(61, 1 << 30);
    let others = OTHERS.map(|id| WorkloadInfo { id, name: format!("job-{id}"), ..WorkloadInfo::default() });
    let apache = WorkloadInfo { id: 3, name: "apache2.service".into(), ..WorkloadInfo::default() };
    series.saw(&Input::Entities {
        host: HOST.into(),
        workloads: others.chain([apache]).collect(),
        listeners: vec![ListenerInfo {
            id: 1,
            workload: 3,
            address: [10, 0, 0, 1].into(),
            port: 80,
            path: None,
            comm: "apache2".into(),
            pool: None,
            started_with: 0,
            pid: 0,
        }],
        edges: vec![],
        devices: vec![],
    });
    for n in (0..HOUR_WINDOWS).filter(|n| !GAP.contains(n)) {
        series.saw(&Input::Window(Arc::new(window(first + n, n))));
    }
    series
}

/// One incident of the hour: `n` is the window of its drops; the root is a database that no agent watches.
fn incident(first: u64, n: u64, id: &str, changes: serde_json::Value) -> Incident {
    let at = |window: u64| WindowIndex(first + window).start_unix_ns();
    let root = serde_json::json!({
        "host": "10.0.0.7", "workload": "", "tier": "db", "resource": "unexplained", "start_unix_ns": at(n - 8),
        "end_unix_ns": at(n + 1), "peak": 37.0, "unit": "requests", "culprits": [], "evidence": "its caller waited",
    });
    let hop = |host: &str, workload: &str, listener: &str, role: &str| {
        serde_json::json!({
            "host": host, "workload": workload, "tier": role, "listener": listener, "role": role, "onset_unix_ns": at(n - 6),
            "queued_max": 279, "workers_busy_max": 150, "workers_limit": 150, "accept_queue_max": 129, "accept_queue_limit": 128,
            "pool_in_flight_max": 37, "pool_open": 50, "observed": true, "order_to_root": null, "congestion": null,
        })
    };
    let mut web = hop(HOST, "apache2.service", "10.0.0.1:80", "drop");
    web["order_to_root"] = "unknown".into();
    web["congestion"] = serde_json::json!({
        "state": "known", "congestion_point": 120.4, "throughput_usual": 50.0, "coverage": 1.0, "load_max": 279.0,
        "throughput": 3.0, "windows_beyond": 6, "windows_frozen": 2,
    });
    let mut db = hop("10.0.0.7", "", "10.0.0.7:3306", "root");
    for (name, value) in
        [("observed", false.into()), ("queued_max", 37.into()), ("workers_busy_max", 0.into())]
    {
        db[name] = value;
    }
    for name in ["workers_limit", "accept_queue_limit", "pool_in_flight_max", "pool_open"] {
        db[name] = serde_json::Value::Null;
    }
    db["accept_queue_max"] = 0.into();
    let mut all = serde_json::json!({
        "id": id, "version": 2, "state": "closed", "kind": "upstream_ctqo", "severity": "critical", "confidence": 0.6,
        "title": "apache2.service@web-1 dropped 40 connections while 10.0.0.7 stood still.", "start_unix_ns": at(n - 8),
        "end_unix_ns": at(n + 1), "clock_error_ns": 60_000_000, "root": root, "hops": [web, db],
        "drops": [{
            "host": HOST, "workload": "apache2.service", "tier": "web", "listener": "10.0.0.1:80", "count": 40,
            "connections": 40, "reason": "accept_queue_full", "first_unix_ns": at(n), "last_unix_ns": at(n + 1),
        }],
        "vlrt": { "syn_retransmits": null, "expected": 40, "clients": [] }, "alternatives": [],
    });
    for (name, value) in changes.as_object().unwrap() {
        all[name] = value.clone();
    }
    serde_json::from_value(all).unwrap()
}

/// What an observed client adds: the windows in which connections began that had to be tried again.
fn tried_again(incident: &Incident) -> Timeline {
    let start = WindowIndex::at(incident.start_unix_ns).0 - 4;
    let rows = incident.hops.iter().map(|hop| {
        let unknown = vec![None; 20];
        let mut retried = vec![Some(0.0); 20];
        // Two windows side by side, and one on its own.
        for (n, count) in [(12, 7.0), (13, 30.0), (15, 3.0)] {
            retried[n] = Some(count);
        }
        TierRow {
            host: hop.host.clone(),
            workload: hop.workload.clone(),
            tier: hop.tier.clone(),
            listener: hop.listener.clone(),
            queued_requests: unknown.clone(),
            accept_queue_depth: unknown.clone(),
            workers_busy: unknown.clone(),
            drops: unknown.clone(),
            calls_in_flight: unknown,
            resource: Vec::new(),
            retried: if hop.host == HOST { retried } else { Vec::new() },
        }
    });
    let start_unix_ns = WindowIndex(start).start_unix_ns();
    Timeline { start_unix_ns, window_ns: WINDOW_NS, tiers: rows.collect(), resource: None }
}

/// Two incidents that dropped, and after them more small ones than the page's list holds.
fn happened(store: &Mutex<store::Store>, first: u64) {
    let mut store = store.lock().unwrap();
    let seen = incident(first, DROPS_AT, "01MA000000000000000000000A", serde_json::json!({}));
    let timeline = tried_again(&seen);
    store.put(seen, Some(timeline));
    store.put(incident(first, 50_500, "01MA000000000000000000000B", serde_json::json!({})), None);
    for n in 0..SMALL_ONES {
        let changes = serde_json::json!({
            "severity": if n.is_multiple_of(10) { "warning" } else { "info" },
            "kind": if n.is_multiple_of(7) { "millibottleneck" } else { "near_overflow" },
            "state": if n == SMALL_ONES - 1 { "open" } else { "closed" }, "drops": [], "hops": [],
            "vlrt": { "syn_retransmits": null, "expected": 0, "clients": [] },
        });
        store.put(incident(first, SMALL_FROM + n, &format!("01MB{n:022}"), changes), None);
    }
}

/// A host with a database that was stopped after a minute.
fn gone(series: &mut Series, first: u64) -> Vec<Arc<HostWindow>> {
    series.saw(&Input::Entities {
        host: GONE.into(),
        workloads: vec![WorkloadInfo { id: 5, name: "mariadb.service".into(), ..WorkloadInfo::default() }],
        listeners: vec![ListenerInfo {
            id: 1,
            workload: 5,
            address: [10, 0, 0, 9].into(),
            port: 3306,
            path: None,
            comm: "mariadbd".into(),
            pool: None,
            started_with: 0,
            pid: 0,
        }],
        edges: vec![],
        devices: vec![],
    });
    let windows = (0..GONE_WINDOWS).filter_map(|n| {
        let window = HostWindow { host: GONE.into(), ..window(first + n, n) };
        series.saw(&Input::Window(Arc::new(window)))
    });
    windows.collect()
}

fn opened(folder: &std::path::Path, series: Series, metrics: &Arc<Metrics>) -> (store::Opened, Shown) {
    let settings = store::Settings {
        folder: folder.to_owned(),
        incidents_max: 100,
        segment_seconds: 60,
        windows_hours: 2,
        windows_mib_max: 64,
        kept_mib_max: 64,
    };
    let (series, topology) = (Arc::new(Mutex::new(series)), Arc::default());
    let live = Events::default();
    let of = (Arc::clone(&series), Arc::clone(&topology), live.clone(), Arc::clone(metrics));
    let opened = store::open(settings, of.0, of.1, of.2, of.3, Clock::default()).unwrap();
    let (store, past) = (Arc::clone(&opened.store), opened.past.clone());
    (opened, Shown { store, past, series, topology, congestion: Arc::default(), live })
}

/// The hour as a collector that ran through it left it on disk.
fn write(folder: &std::path::Path, first: u64) {
    let mut series = hour(first);
    let mut windows = gone(&mut series, first);
    windows.extend(
        (0..HOUR_WINDOWS)
            .filter(|n| !GAP.contains(n))
            .filter_map(|n| series.saw(&Input::Window(Arc::new(window(first + n, n))))),
    );
    let metrics = Arc::new(Metrics::default());
    let (opened, shown) = opened(folder, series, &metrics);
    for some in windows.chunks(1200) {
        some.iter().for_each(|window| shown.past.queue.window(Arc::clone(window)));
        while shown.past.queue.fill().0 > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    opened.store.lock().unwrap().close();
    opened.thread.join().unwrap();
    assert_eq!(metrics.store_windows_dropped.get(), 0);
}

fn routes(folder: &std::path::Path, series: Series) -> (axum::Router, Arc<Mutex<store::Store>>) {
    let metrics = Arc::new(Metrics::default());
    let (_, shown) = opened(folder, series, &metrics);
    let store = Arc::clone(&shown.store);
    let clock = Clock::default();
    let silences = Arc::new(Silences::open(&[], Vec::new(), folder, clock).unwrap());
    let (alerts, handle, _task) =
        alert::start(&[], &silences, config::Outbox::default(), folder, &[], &Arc::default(), clock).unwrap();
    let outlet = Outlet {
        sizing: Arc::default(),
        traces: Arc::default(),
        shown: shown.clone(),
        metrics: Arc::clone(&metrics),
        export: Arc::default(),
        alerts,
        provisionals: Provisionals::default(),
    };
    let pipeline = Pipeline::new(tailwater_analysis::config::Config::default());
    let log = Reader::new(Arc::new(InMemory::new(QUEUE_MAX)), Offset::default());
    let (driver, _analysis) = driver::start(log, pipeline, String::new(), outlet, Clock::default()).unwrap();
    let registry = Arc::new(Registry::new(4));
    let covered = [v1::Signal::Cpu, v1::Signal::RunQueue, v1::Signal::AcceptQueue, v1::Signal::Requests];
    let mut coverage: Vec<v1::SignalCoverage> = covered
        .iter()
        .map(|s| v1::SignalCoverage { signal: *s as i32, covered: true, ..v1::SignalCoverage::default() })
        .collect();
    coverage.push(v1::SignalCoverage {
        signal: v1::Signal::BlockIo as i32,
        reason: "this kernel has no block_io_start".into(),
        ..v1::SignalCoverage::default()
    });
    let (agent_version, kernel_release) = ("0.1.0".into(), "6.1.0-44-amd64".into());
    let hello = v1::Hello {
        host: HOST.into(),
        cpus: 2,
        agent_version,
        kernel_release,
        coverage,
        ..v1::Hello::default()
    };
    registry.take(&hello, "10.0.0.1:1", 1).unwrap();
    let alive = Arc::new(AtomicBool::new(true));
    let app = App::new(shown, registry, metrics, driver, alive, CancellationToken::new());
    let alerting = alert::api::routes(handle, |_| String::new(), Arc::new(|_: &str| None));
    (app.routes().merge(alerting), store)
}

/// What serves, where, and its incidents.
type Served = (tokio::runtime::Runtime, SocketAddr, Arc<Mutex<store::Store>>);

/// A server of its own runtime, so that all of it, open streams too, goes when that does.
fn serve(address: SocketAddr, folder: &std::path::Path, series: Series) -> Served {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (bound, store) = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let bound = listener.local_addr().unwrap();
        let (routes, store) = routes(folder, series);
        let (gate, metrics) = (Rules::open(bound.port(), false), Arc::<Metrics>::default());
        let gate = Arc::new(Gate::new(gate, Arc::clone(&metrics), Clock::default()));
        let front = Front { gate, names: Vec::new(), tls: None, metrics };
        tokio::spawn(front.serve(listener, routes, CancellationToken::new()));
        (bound, store)
    });
    (runtime, bound, store)
}

/// The first window of the hour that ends now.
fn an_hour_ago() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    u64::try_from(now).unwrap() / WINDOW_NS - HOUR_WINDOWS
}

const ANY_PORT: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

#[test]
fn privileged_an_hour_of_one_host_is_drawn_with_its_extremes_and_every_state_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let first = an_hour_ago();
    let (server, address, store) = serve(ANY_PORT.into(), folder.path(), hour(first));
    let mut server = Some(server);
    let in_the_way = folder.path().join("in-the-way");
    browse("hour.mjs", address, first, |said| match said {
        "happen" => happened(&store, first),
        "stop" => server.take().unwrap().shutdown_background(),
        "start" => {
            // A file where the data folder should be: nobody can write there, not even root.
            std::fs::write(&in_the_way, "").unwrap();
            server = Some(serve(address, &in_the_way, Series::new(1, 1 << 20)).0);
        }
        "free" => std::fs::remove_file(&in_the_way).unwrap(),
        _ => {}
    });
    server.unwrap().shutdown_background();
}

#[test]
fn privileged_the_same_hour_is_drawn_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let first = an_hour_ago();
    write(folder.path(), first);
    let (server, address, _store) = serve(ANY_PORT.into(), folder.path(), Series::new(1, 1 << 20));
    browse("hour_on_disk.mjs", address, first, |_| ());
    server.shutdown_background();
}

//! Advice from end to end: a host's windows and time in state of a server whose law is known go through the outlet, as the analysis'
//! thread hands them over, and are read at the API and by the command.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;
mod monitoring;

use common::{free_address, get, shows, tailwater, unix_ns, wait_for};
use monitoring::Server as Monitoring;
use monitoring::panels::{ask, dashboards, panels};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tailwater::alert::Alerts;
use tailwater::clock::Clock;
use tailwater::counters::Metrics;
use tailwater::live::events::Events;
use tailwater::run::outlet::Outlet;
use tailwater::run::provisional::Provisionals;
use tailwater::serve::Shown;
use tailwater::sizing::Sizing;
use tailwater_model::AdviceView;
use tailwater_model::advice::TierAdvice;
use tailwater_model::topology::{NodeView, TopologyView};
use tailwater_model::window::{
    HostCpu, HostStates, HostWindow, Input, ListenerInfo, ListenerStates, ListenerWindow, PoolSize,
    StateCell, WINDOW_NS, WindowIndex, WorkloadInfo, WorkloadWindow,
};
use tailwater_sizing::concurrency::Law;
use tailwater_sizing::curve::bins;
use tokio_util::sync::CancellationToken;

/// N_b = 15.8: 946 answers a second at the most.
const LAW: Law = Law { service_s: 2e-3, contention_s: 5e-4, coherency_s: 6e-6 };
const MOST_IN_FLIGHT: u64 = 60;
const WINDOWS_PER_S: u64 = 20;
/// States in a second, and how long each lasts.
const STATES_PER_S: u64 = 10;
const STATE_S: f64 = 0.1;
/// Any moment in 2026.
const BEGIN: u64 = 1_794_000_000 * WINDOWS_PER_S;

struct Collector {
    outlet: Outlet,
    sizing: Arc<Sizing>,
    thread: Option<std::thread::JoinHandle<()>>,
    http: SocketAddr,
    runtime: tokio::runtime::Runtime,
}

impl Collector {
    /// Where what is said of sizes can be scraped: of a recording, which this one shows, `/metrics` says nothing.
    fn scraped(&self) -> SocketAddr {
        let sizing = Arc::clone(&self.sizing);
        let text = move || {
            let mut text = String::new();
            sizing.render(&mut text);
            std::future::ready(text)
        };
        let routes = axum::Router::new().route("/metrics", axum::routing::get(text));
        let listener = self.runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let at = listener.local_addr().unwrap();
        self.runtime.spawn(async move { axum::serve(listener, routes).await });
        at
    }

    /// One that keeps what it learns in `folder`.
    fn start(folder: &Path) -> Self {
        let metrics = Arc::new(Metrics::default());
        let node = NodeView {
            host: "app".into(),
            workload: "tomcat10.service".into(),
            tier: "tomcat10".into(),
            listeners: vec!["[::]:8080".into()],
            workers_limit: None,
        };
        let topology = Arc::new(Mutex::new(Arc::new(TopologyView { nodes: vec![node], edges: Vec::new() })));
        let shown = Shown { topology, ..shows::shown(64 << 20, Events::default(), &metrics) };
        let sizing = Arc::new(Sizing::new(Arc::clone(&shown.topology), Clock::default()));
        let thread = sizing.start(folder.to_owned()).unwrap();
        let outlet = Outlet {
            shown: shown.clone(),
            metrics: Arc::clone(&metrics),
            export: Arc::default(),
            sizing: Arc::clone(&sizing),
            traces: Arc::default(),
            alerts: Alerts::nobody(&Arc::default()),
            provisionals: Provisionals::default(),
        };
        let app = shows::app(shown, metrics, 0..0, CancellationToken::new());
        let routes = app.advising(Arc::clone(&sizing)).routes();
        let runtime = common::runtime();
        let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let http = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Self { outlet, sizing, thread: Some(thread), http, runtime }
    }

    fn advice(&self) -> AdviceView {
        let (code, body) = get(self.http, "/api/v1/advice").unwrap();
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The advice once it is about so many clean seconds and left out ones.
    fn learnt(&self, clean_s: f64, left_out_s: f64) -> TierAdvice {
        let left_out = |of: &TierAdvice| of.left_out.iter().map(|of| of.seconds).sum::<f64>();
        wait_for("the traffic to be learnt", || {
            let tiers = self.advice().tiers;
            tiers.into_iter().find(|of| of.learnt_s >= clean_s && left_out(of) >= left_out_s)
        })
    }

    /// What the thread counted under this name.
    fn count(&self, name: &str) -> u64 {
        let mut text = String::new();
        self.sizing.render(&mut text);
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        found.unwrap_or_else(|| panic!("{name} in {text}")) as u64
    }

    fn end(mut self) {
        self.sizing.close();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// About a Poisson variate: the sum of twelve uniform ones is about a normal one.
    fn count(&mut self, mean: f64) -> u64 {
        let uniform: f64 = (0..12).map(|_| self.below(1 << 20) as f64 / f64::from(1 << 20)).sum();
        (mean + mean.sqrt() * (uniform - 6.0)).round().max(0.0) as u64
    }
}

/// A server on one CPU that does what the law says, and how it is told.
struct Server {
    random: Random,
    second: u64,
    /// What it is set up for.
    pool: u32,
    /// Whether a worker is a connection's.
    is_held: Option<bool>,
}

impl Server {
    fn new() -> Self {
        Self { random: Random(7), second: 0, pool: 200, is_held: None }
    }

    fn names(&self) -> Input {
        Input::Entities {
            host: "app".into(),
            workloads: vec![WorkloadInfo {
                id: 3,
                name: "tomcat10.service".into(),
                comm: "java".into(),
                ..WorkloadInfo::default()
            }],
            listeners: vec![ListenerInfo {
                id: 9,
                workload: 3,
                address: "::".parse().unwrap(),
                port: 8080,
                path: None,
                comm: "java".into(),
                pool: Some(PoolSize {
                    size: self.pool,
                    set_by: "maxThreads in /srv/conf/server.xml".into(),
                    held_by_connection: self.is_held,
                    ..PoolSize::default()
                }),
                started_with: 0,
                pid: 0,
            }],
            edges: Vec::new(),
            devices: Vec::new(),
        }
    }

    /// The next second: its windows, which `with` may change, and its time in state.
    fn second(&mut self, with: impl Fn(&mut HostWindow)) -> Vec<Input> {
        // A third of the time there is little to do.
        let most = if self.second.is_multiple_of(3) { 4 } else { MOST_IN_FLIGHT };
        let mut by_bin: std::collections::BTreeMap<u8, (u64, u64)> = std::collections::BTreeMap::new();
        let (mut answered, mut in_flight_s) = (0, 0.0);
        for _ in 0..STATES_PER_S {
            let n = 1 + self.random.below(most) as u32;
            let done = self.random.count(LAW.throughput(f64::from(n)) * STATE_S);
            let bin = by_bin.entry(bins::bin_of(n) as u8).or_default();
            *bin = (bin.0 + (STATE_S * 1e9) as u64, bin.1 + done);
            answered += done;
            in_flight_s += f64::from(n) * STATE_S;
        }
        let busy = if most < MOST_IN_FLIGHT { (answered as f64 * 0.8e-3).min(0.9) } else { 0.98 };
        let first = BEGIN + self.second * WINDOWS_PER_S;
        let mut inputs: Vec<Input> = (0..WINDOWS_PER_S)
            .map(|n| {
                let mut window = HostWindow {
                    host: "app".into(),
                    index: WindowIndex(first + n),
                    cpu: Some(HostCpu {
                        capacity_ns: WINDOW_NS,
                        busy_ns: (busy * WINDOW_NS as f64) as u64,
                        ..HostCpu::default()
                    }),
                    ..HostWindow::default()
                };
                let workload =
                    WorkloadWindow { busy_ns: (busy * WINDOW_NS as f64) as u64, ..WorkloadWindow::default() };
                window.workloads.insert(3, workload);
                let listener = ListenerWindow {
                    answered: answered / WINDOWS_PER_S,
                    in_flight_ns: (in_flight_s * 1e9) as u64 / WINDOWS_PER_S,
                    ..ListenerWindow::default()
                };
                window.listeners.insert(9, listener);
                with(&mut window);
                Input::Window(Arc::new(window))
            })
            .collect();
        let cell = |(bin, (time_ns, answered)): (u8, (u64, u64))| StateCell { bin, time_ns, answered };
        inputs.push(Input::States(Box::new(HostStates {
            host: "app".into(),
            last: WindowIndex(first + WINDOWS_PER_S - 1),
            windows: WINDOWS_PER_S as u32,
            listeners: vec![ListenerStates { listener: 9, cells: by_bin.into_iter().map(cell).collect() }],
        })));
        self.second += 1;
        inputs
    }

    /// So many seconds through the outlet; the thread gets time to take them.
    fn run(&mut self, collector: &mut Collector, seconds: u64, with: impl Fn(&mut HostWindow)) {
        collector.outlet.saw(&self.names());
        let judged = |of: &Collector| {
            ["clean", "io"]
                .map(|name| of.count(&format!("tailwater_sizing_listener_seconds_total{{of=\"{name}\"}}")))
        };
        let before: u64 = judged(collector).iter().sum();
        for n in 0..seconds {
            self.second(&with).iter().for_each(|input| collector.outlet.saw(input));
            if n % 100 == 99 || n == seconds - 1 {
                // All but the last, which wait for what may still be told of them.
                wait_for("the thread", || {
                    (judged(collector).iter().sum::<u64>() + 6 >= before + n).then_some(())
                });
            }
        }
    }
}

#[test]
fn a_server_whose_law_is_known_is_advised_its_best_size_which_a_restart_and_the_command_know() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Collector::start(folder.path());
    let none = collector.advice();
    assert!(none.tiers.is_empty() && none.learning_since_unix_ns.is_none(), "{none:?}");
    let mut server = Server::new();
    server.run(&mut collector, 400, |_| ());
    let told = collector.learnt(380.0, 0.0);
    let best = LAW.optimum().unwrap();
    let pool = *told.pool.value().unwrap_or_else(|| panic!("{}", told.sentence));
    assert_eq!((told.pool.class(), told.model.as_str()), ("measured", "law"), "{}", told.sentence);
    assert!(
        f64::from(pool.at_least) < best.in_flight && f64::from(pool.at_most.unwrap()) > best.in_flight,
        "{pool:?} around {}",
        best.in_flight
    );
    // What the whole interval costs by the law that the server really has: 2 % and the error of 400 s.
    for size in [pool.at_least, pool.advised, pool.at_most.unwrap()] {
        assert!(LAW.loss(f64::from(size)).unwrap() < 0.03, "{size} in {pool:?}");
    }
    let most = told.throughput_max.value().unwrap();
    assert!((most.value / best.throughput - 1.0).abs() < 0.03, "{most:?} for {}", best.throughput);
    assert_eq!((told.tier.as_str(), told.critical.as_deref()), ("tomcat10@app", Some("cpu")));
    assert_eq!(told.limit, Some(200));
    assert!(told.sentence.contains(&format!(" 200 → {};", pool.advised)), "{}", told.sentence);
    let now = "it is 200 now, by maxThreads in /srv/conf/server.xml; all of it in use costs ";
    assert!(told.sentence.contains(now), "{}", told.sentence);
    // As far as was seen, by the law that the server really has.
    let seen = LAW.loss(told.seen_to).unwrap();
    assert!((told.limit_loss.unwrap() / seen - 1.0).abs() < 0.15, "{:?} for {seen}", told.limit_loss);
    assert!(told.sentence.starts_with("tomcat10@app:8080: "), "{}", told.sentence);
    assert!(told.sentence.contains("maxThreads"), "{}", told.sentence);
    assert!(told.points.len() > 20, "{:?}", told.points);

    // A restart goes on where it was.
    collector.end();
    let collector = Collector::start(folder.path());
    let again = wait_for("what was kept", || collector.advice().tiers.pop());
    assert_eq!(again.pool, told.pool);
    assert!(again.learnt_s >= told.learnt_s);

    let url = format!("http://{}", collector.http);
    let printed = tailwater().args(["advise", "--collector", &url]).output().unwrap();
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.status.success() && text.contains("RESTS ON"), "{text}");
    assert!(text.contains(&again.sentence), "{text}");
    let printed =
        tailwater().args(["advise", "--json", "--host", "app", "--collector", &url]).output().unwrap();
    let one: TierAdvice = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(one, again);
    let printed = tailwater().args(["advise", "--host", "elsewhere", "--collector", &url]).output().unwrap();
    let complaint = String::from_utf8(printed.stderr).unwrap();
    assert!(printed.stdout.is_empty() && complaint.contains("\"elsewhere\""), "{complaint}");
    let (code, _) = get(collector.http, "/api/v1/advice?host=app").unwrap();
    assert_eq!((code, get(collector.http, "/api/v1/advice?hots=app").unwrap().0), (200, 400));
    collector.end();
}

/// Clients keep each connection for 0.4 s after the answer. Where the CPU is not full, half as much of it is used.
fn kept(window: &mut HostWindow) {
    let workload = window.workloads.get_mut(&3).unwrap();
    if workload.busy_ns < WINDOW_NS * 95 / 100 {
        workload.busy_ns /= 2;
        window.cpu.get_or_insert_default().busy_ns /= 2;
    }
    let listener = window.listeners.get_mut(&9).unwrap();
    let in_flight = listener.in_flight_ns as f64 / WINDOW_NS as f64;
    listener.open_last = (in_flight + listener.answered as f64 * WINDOWS_PER_S as f64 * 0.4).round() as u32;
}

#[test]
fn workers_that_connections_hold_without_a_request_are_added_to_what_should_be_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Collector::start(folder.path());
    let mut server = Server { is_held: Some(false), ..Server::new() };
    server.run(&mut collector, 400, kept);
    let free = collector.learnt(380.0, 0.0);
    assert_eq!(free.held_between_calls, None, "{}", free.sentence);
    server.is_held = Some(true);
    server.run(&mut collector, 20, kept);
    let held = wait_for("what is held", || {
        collector.advice().tiers.into_iter().find(|of| of.held_between_calls.is_some())
    });
    let (free, pool) = (*free.pool.value().unwrap(), *held.pool.value().unwrap());
    // By Little's law, at the most that it answers, and at the most that came in a second.
    let most = LAW.optimum().unwrap().throughput * 0.4;
    let extra = f64::from(held.held_between_calls.unwrap());
    assert!((0.85..1.05).contains(&(extra / most)), "{extra} of {most}: {}", held.sentence);
    let more = |now: u32, before: u32| f64::from(now) - f64::from(before);
    assert!((more(pool.at_least, free.at_least) - extra).abs() < 5.0, "{pool:?} {free:?}");
    assert!(
        (more(pool.at_most.unwrap(), free.at_most.unwrap()) / most - 1.0).abs() < 0.1,
        "{pool:?} {free:?}"
    );
    let told =
        format!(": {} at a time are enough, {extra} of them for connections that are kept", pool.advised);
    assert!(held.sentence.contains(&told), "{}", held.sentence);
    collector.end();
}

#[test]
fn a_pool_that_was_changed_is_held_against_what_was_before_at_the_same_loads() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Collector::start(folder.path());
    let mut server = Server::new();
    server.run(&mut collector, 300, |_| ());
    assert_eq!(collector.advice().tiers[0].change, None);
    // As many answers, and each takes half as long.
    server.pool = 30;
    server.run(&mut collector, 400, halved);
    let change =
        wait_for("the change", || collector.advice().tiers.pop()?.change.filter(|of| of.verdict == "better"));
    let size = &change.sizes[0];
    assert_eq!((size.what.as_str(), size.from, size.to, change.sizes.len()), ("pool", 200, 30, 1));
    let ratio = change.ratio.unwrap();
    assert!((0.45..0.55).contains(&ratio.value) && ratio.low < ratio.value && ratio.high < 1.0, "{change:?}");
    assert!(
        change.sentence.contains("server.xml 200 → 30 since ") && change.sentence.contains(": better: "),
        "{}",
        change.sentence
    );
    let mut text = String::new();
    collector.sizing.render(&mut text);
    assert!(
        text.contains("tailwater_advice_change_response_ratio{") && text.contains("verdict=\"better\""),
        "{text}"
    );
    // A restart knows both.
    collector.end();
    let collector = Collector::start(folder.path());
    let again = wait_for("what was kept", || collector.advice().tiers.pop());
    assert_eq!(again.change.as_ref().map(|of| of.verdict.as_str()), Some("better"));
    let url = format!("http://{}", collector.http);
    let printed = tailwater().args(["advise", "--collector", &url]).output().unwrap();
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(text.contains(&format!("\n  {}\n", again.change.unwrap().sentence)), "{text}");
    collector.end();
}

/// As it halves what a request takes.
fn halved(window: &mut HostWindow) {
    if let Some(l) = window.listeners.get_mut(&9) {
        l.in_flight_ns /= 2;
    }
}

#[test]
fn every_panel_of_the_dashboard_of_sizes_has_series() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Collector::start(folder.path());
    let rules = monitoring::root().join("dashboards/prometheus/tailwater.advice.rules.yml");
    let start_s = unix_ns() as f64 / 1e9;
    // Nobody listens to alerts: the rule waits for a day.
    let scraped = collector.scraped();
    let prometheus = Monitoring::prometheus(folder.path(), scraped, free_address(), &rules);
    let victoria = Monitoring::victoria_metrics(folder.path(), scraped);
    let mut server = Server::new();
    server.run(&mut collector, 300, |_| ());
    server.pool = 30;
    server.run(&mut collector, 300, halved);
    wait_for("the change", || collector.advice().tiers.pop()?.change.filter(|of| of.verdict == "better"));
    let all = dashboards();
    let (file, dashboard) = all.iter().find(|(_, d)| d["uid"] == "tailwater-sizes").unwrap();
    let mut failed = Vec::new();
    for of in [&prometheus, &victoria] {
        let has = |expr: &str| {
            wait_for(&format!("{expr} in {}", of.name), || {
                (!of.query(expr).unwrap().is_empty()).then_some(())
            });
        };
        // Of what was scraped twice, a rate is known; traffic that came before the first time shows in none.
        let seconds = "rate(tailwater_sizing_listener_seconds_total{of=\"clean\"}[4s])";
        has(seconds);
        has("tailwater_advice_change_response_ratio{verdict=\"better\"}");
        server.run(&mut collector, 100, halved);
        // A range has a point each second, so its last one may lie before what an instant already knows.
        wait_for(&format!("a point of {seconds} > 0 in {}", of.name), || {
            let now_s = unix_ns() as f64 / 1e9;
            (!of.range(&format!("{seconds} > 0"), start_s, now_s, "1s").unwrap().is_empty()).then_some(())
        });
        failed.extend(ask(of, file, dashboard, panels(dashboard), start_s, unix_ns() as f64 / 1e9));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    collector.end();
}

#[test]
fn what_the_disk_decided_is_left_out_and_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("sizing.json"), "{\"version\":1,\"listeners\":[[").unwrap();
    let mut collector = Collector::start(folder.path());
    let blocked = |window: &mut HostWindow| {
        if let Some(w) = window.workloads.get_mut(&3) {
            w.blocked_io_ns = 2 * WINDOW_NS;
        }
    };
    Server::new().run(&mut collector, 100, blocked);
    let told = collector.learnt(0.0, 90.0);
    assert_eq!(told.pool.class(), "refused", "{}", told.sentence);
    assert_eq!((told.left_out[0].taint.as_str(), told.left_out.len()), ("io", 1));
    assert!(told.sentence.contains("not the tier's own: io"), "{}", told.sentence);
    collector.end();
    assert!(folder.path().join("aside").join("sizing.json.0").exists(), "the damaged file is put aside");
    assert!(folder.path().join("sizing.json").exists(), "and a new one is begun");
}

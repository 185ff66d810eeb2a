//! What a metric is stands in one table, `src/live/metric.rs`. This holds those to it that name metrics, or say for themselves what they
//! are: the page, `top`, an incident's text and picture, and what monitoring gets. A failure names the file, and the line if there is one.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tailwater::export::signals::{Level, SIGNALS, Seen, Signal};
use tailwater::live::inventory::Now;
use tailwater::live::metric::{METRICS, Metric, find};
use tailwater::live::series::Series;
use tailwater::live::view::Query;
use tailwater_model::window::{
    self, Coverage, DeviceWindow, EdgeInfo, EdgeWindow, HostCpu, HostWindow, Input, ListenerInfo,
    ListenerWindow, SignalSet, WindowIndex, WorkloadInfo, WorkloadWindow,
};

/// Lines of a source in which names of metrics stand.
struct Home {
    file: &'static str,
    /// From the first line that holds this to the next that begins with that; `None`: all.
    part: Option<(&'static str, &'static str)>,
    /// A name begins after one of these and ends before the next quotation mark.
    marks: &'static [&'static str],
}

const fn home(
    file: &'static str,
    part: Option<(&'static str, &'static str)>,
    marks: &'static [&'static str],
) -> Home {
    Home { file, part, marks }
}

const CHARTS: Home = home("web/src/panels.ts", Some(("export const PANELS", "];")), &["metric: \""]);
const RESOURCES: Home = home("src/live/timeline.rs", Some(("pub fn metric(", "}")), &["Some(\""]);
const DRAWN: Home = home("src/draw/resource.rs", Some(("static SHOWN", "];")), &["of(\""]);
const LIST: &[&str] = &["[\"", ", \""];

const HOMES: [Home; 11] = [
    CHARTS,
    home("web/src/pages/timeline.tsx", Some(("const TIER_METRICS", "type TierMetric")), LIST),
    home("web/src/pages/topology.tsx", None, &["m[\""]),
    home("web/src/pages/hosts.tsx", None, &["metrics[\""]),
    home("src/live/timeline.rs", Some(("const QUEUES", "/// All rows")), LIST),
    RESOURCES,
    home("src/tui/signals.rs", Some(("const SIGNALS", "];")), &["\", \""]),
    home("src/tui/tiers.rs", Some(("const WAITS", "/// One line")), &["(\""]),
    home("src/tui/tiers.rs", Some(("fn row(", "}")), &["read(\"", "told(\""]),
    home("src/tui/view/tier.rs", Some(("fn limit(", "}")), &["        \""]),
    DRAWN,
];

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Lines of a file, or of a part of it, with their numbers.
fn lines(file: &str, part: Option<(&str, &str)>) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(path(file)).unwrap_or_else(|e| panic!("collector/{file}: {e}"));
    let all = text.lines().enumerate().map(|(n, line)| (n + 1, line.to_owned()));
    let Some((begin, end)) = part else { return all.collect() };
    let mut rest = all.skip_while(|(_, line)| !line.contains(begin));
    let first = rest.next().unwrap_or_else(|| {
        panic!("collector/{file}: no line holds {begin:?}; tests/metric_homes.rs must find its metrics anew")
    });
    std::iter::once(first).chain(rest.take_while(|(_, line)| !line.starts_with(end))).collect()
}

impl Home {
    /// Names with the line on which each stands.
    fn names(&self) -> Vec<(usize, String)> {
        let mut names = Vec::new();
        for (n, line) in lines(self.file, self.part) {
            for mark in self.marks {
                let found = line.split(*mark).skip(1).filter_map(|rest| rest.split('"').next());
                names.extend(found.map(|name| (n, name.to_owned())));
            }
        }
        assert!(
            !names.is_empty(),
            "collector/{}: no metric after any of {:?}; tests/metric_homes.rs must find them anew",
            self.file,
            self.marks
        );
        names
    }

    /// The same without their lines.
    fn set(&self) -> BTreeSet<String> {
        self.names().into_iter().map(|(_, name)| name).collect()
    }
}

/// The page's words of metrics, with their lines.
fn words() -> Vec<(usize, String)> {
    lines("web/src/words.ts", Some(("export const METRICS", "}")))
        .into_iter()
        .skip(1)
        .filter_map(|(n, line)| Some((n, line.trim_start().split_once(':')?.0.to_owned())))
        .collect()
}

fn all_right(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Fails when a metric is renamed or removed in the table and one of those who show it is forgotten, or when somebody writes a name that
/// there is not.
#[test]
fn nobody_names_a_metric_that_there_is_not() {
    let of_home = |home: &Home| {
        let named = |(line, name): (usize, String)| (home.file, line, name);
        home.names().into_iter().map(named).collect::<Vec<_>>()
    };
    let of_page = words().into_iter().map(|(line, name)| ("web/src/words.ts", line, name));
    let mut faults: Vec<String> = HOMES
        .iter()
        .flat_map(of_home)
        .chain(of_page)
        .filter(|(.., name)| find(name).is_none())
        .map(|(file, line, name)| {
            format!("collector/{file}:{line}: src/live/metric.rs has no metric \"{name}\"")
        })
        .collect();
    for name in Now::metrics(true).chain(Now::metrics(false)).filter(|name| find(name).is_none()) {
        faults.push(format!("collector/src/live/inventory.rs: src/live/metric.rs has no metric \"{name}\""));
    }
    all_right(&faults);
}

/// Fails when a metric is added to the table alone.
#[test]
fn every_metric_has_a_word_and_a_chart_on_the_page() {
    let words: BTreeSet<String> = words().into_iter().map(|(_, name)| name).collect();
    let charts = CHARTS.set();
    let mut faults = Vec::new();
    for Metric { name, about, .. } in METRICS {
        if !words.contains(*name) {
            faults.push(format!("collector/web/src/words.ts: METRICS has no line for {name} ({about})"));
        }
        if !charts.contains(*name) {
            faults.push(format!("collector/web/src/panels.ts: no chart of PANELS shows {name} ({about})"));
        }
    }
    all_right(&faults);
}

/// Fails when `timeline::metric` shows a resource by a metric for which the text and the picture have no word: they would show its bare
/// name, or none.
#[test]
fn what_shows_a_resource_has_a_name_in_text_and_picture() {
    let known = DRAWN.set();
    let missing = RESOURCES.names().into_iter().filter(|(_, name)| !known.contains(name));
    let fault = |(line, name): (usize, String)| {
        format!(
            "collector/src/draw/resource.rs has no line for {name}, which src/live/timeline.rs:{line} shows"
        )
    };
    all_right(&missing.map(fault).collect::<Vec<_>>());
}

/// Fails when a need is added to a metric, or taken away, and the page is not told; and when one is misspelt, which the set of signals
/// would pass over in silence.
#[test]
fn the_page_has_what_each_metric_needs_of_an_agent() {
    let mut needs = String::new();
    for metric in METRICS {
        for signal in metric.signals {
            assert!(
                window::SIGNALS.contains(signal),
                "collector/src/live/metric.rs: {} needs \"{signal}\", which is no signal of {:?}",
                metric.name,
                window::SIGNALS
            );
        }
        let signals: Vec<String> = metric.signals.iter().map(|signal| format!("\"{signal}\"")).collect();
        let hooks = if metric.only_hooks { ", hooks: true" } else { "" };
        writeln!(needs, "  {}: {{ signals: [{}]{hooks} }},", metric.name, signals.join(", ")).unwrap();
    }
    let path = path("web/src/metrics.ts");
    let now = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("const needs = {\n", "} satisfies");
    let (before, rest) = now.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let right = format!("{before}{begin}{needs}{end}{after}");
    if std::env::var_os("TAILWATER_WRITE_DOCS").is_some() {
        std::fs::write(&path, &right).unwrap();
    }
    assert!(
        now == right,
        "{} is behind: run this test with TAILWATER_WRITE_DOCS=1, then make page",
        path.display()
    );
}

/// The metric of the API that says the same as a signal for monitoring, and how much of its unit one of the signal's is.
fn same_thing(signal: &Signal) -> Option<(&'static Metric, f64)> {
    /// Monitoring has base units and names a level; where names differ beyond that.
    const RENAMED: [(&str, &str); 6] = [
        ("response_time_seconds", "response_time_ms"),
        ("response_time_longest_seconds", "response_time_max_ms"),
        ("call_response_time_seconds", "call_time_ms"),
        ("call_connections_open", "connections_open"),
        ("multiplexed_received_bytes", "multiplexed_bytes_in"),
        ("multiplexed_sent_bytes", "multiplexed_bytes_out"),
    ];
    let renamed = RENAMED.iter().find(|(name, _)| *name == signal.name).map(|(_, metric)| *metric);
    let of_level = signal.name.strip_prefix("workload_");
    let metric = [renamed, Some(signal.name), of_level].into_iter().flatten().find_map(find)?;
    Some((metric, if signal.unit == "s" { 1e3 } else { 1.0 }))
}

/// Fails when a need of `export/signals/table.rs` is not that of the API: monitoring would be told of what nobody knows.
#[test]
fn monitoring_is_told_of_a_metric_where_the_api_knows_it() {
    let covered = |without: &str| -> Coverage {
        let signals = window::SIGNALS.iter().map(|name| ((*name).to_owned(), Value::Bool(*name != without)));
        let mut json: Map<String, Value> = signals.collect();
        json.insert("sampled".to_owned(), Value::from(0));
        serde_json::from_value(Value::Object(json)).unwrap()
    };
    let polled = Coverage { sampled: SignalSet::of(window::SIGNALS), ..covered("none of them") };
    let mut faults = Vec::new();
    let mut fault = |signal: &Signal, metric: &Metric, where_: &str, told: bool| {
        let (is, should) = if told { ("is", "is not") } else { ("is not", "is") };
        faults.push(format!(
            "collector/src/export/signals/table.rs: {} {is} told {where_}, and {} of src/live/metric.rs {should}",
            signal.name, metric.name
        ));
    };
    for (signal, metric) in SIGNALS.iter().filter_map(|signal| Some((signal, same_thing(signal)?.0))) {
        for without in window::SIGNALS {
            let told = (signal.covered)(&covered(without));
            if told == metric.signals.contains(&without) {
                fault(signal, metric, &format!("without {without}"), told);
            }
        }
        let told = (signal.covered)(&polled);
        if told == metric.only_hooks {
            fault(signal, metric, "where all is polled", told);
        }
    }
    all_right(&faults);
}

/// One window in which every value is another.
fn busy_window() -> HostWindow {
    let mut w = HostWindow { host: "web-1".into(), index: WindowIndex(1_000), ..HostWindow::default() };
    w.cpu = Some(HostCpu {
        capacity_ns: 100_000_000,
        busy_ns: 37_000_000,
        steal_ns: 3_000_000,
        throttled_ns: Some(11_000_000),
        // The only workload's.
        wait_ns: 70_000_000,
        ..HostCpu::default()
    });
    let workload = WorkloadWindow {
        busy_ns: 29_000_000,
        wait_ns: 70_000_000,
        throttled_ns: Some(13_000_000),
        blocked_io_ns: 21_000_000,
        io_bytes: 4_096,
        reclaim_ns: 5_000_000,
        dirty_throttle_ns: 9_000_000,
        stopped_ns: Some(45_000_000),
        ..WorkloadWindow::default()
    };
    let listener = ListenerWindow {
        depth_max: 17,
        limit: 128,
        received: 41,
        answered: 23,
        aborted: 12,
        late: Some(7),
        very_late: Some(2),
        in_flight_max: 19,
        unread_max: 3,
        workers_busy_max: 11,
        response_ns: 460_000_000,
        response_max_ns: 90_000_000,
        open_max: 50,
        multiplexed_connections: 1,
        pieces_in: 6,
        multiplexed_bytes_in: 700,
        multiplexed_bytes_out: 800,
        unanswered_max: 4,
        ..ListenerWindow::default()
    };
    let edge = EdgeWindow {
        started: 31,
        answered: 27,
        in_flight_max: 8,
        open_max: 9,
        response_ns: 270_000_000,
        syn_retransmits: 5,
        ..EdgeWindow::default()
    };
    let device = DeviceWindow { in_flight_max: 6, in_flight_ns: 125_000_000, ..DeviceWindow::default() };
    w.workloads.insert(1, workload);
    w.listeners.insert(2, listener);
    w.edges.insert(3, edge);
    w.devices.insert(4, device);
    w
}

/// Fails when one of two formulas for the same thing is changed alone.
#[test]
fn monitoring_and_the_api_read_the_same_value_from_a_window() {
    let w = busy_window();
    let mut series = Series::new(1, 1 << 20);
    series.saw(&Input::Entities {
        host: "web-1".into(),
        workloads: vec![WorkloadInfo { id: 1, name: "apache2.service".into(), ..WorkloadInfo::default() }],
        listeners: vec![ListenerInfo {
            id: 2,
            workload: 1,
            address: [10, 0, 0, 1].into(),
            port: 80,
            path: None,
            comm: String::new(),
            pool: None,
            started_with: 0,
            pid: 0,
        }],
        edges: vec![EdgeInfo {
            id: 3,
            workload: 1,
            remote_address: [10, 0, 0, 2].into(),
            remote_port: 8080,
            path: None,
        }],
        devices: vec![],
    });
    series.saw(&Input::Window(Arc::new(w.clone())));
    let cpu = w.cpu.unwrap();
    let mut compared = 0;
    let mut faults = Vec::new();
    for signal in SIGNALS {
        let Some((metric, factor)) = same_thing(signal) else { continue };
        let level = signal.read.level();
        let seen = match level {
            Level::Host => Seen::Host(&cpu),
            Level::Workload => Seen::Workload(&w.workloads[&1], cpu.capacity_ns as f64),
            Level::Listener => Seen::Listener(&w.listeners[&2]),
            Level::Call => Seen::Call(&w.edges[&3]),
            Level::Device => Seen::Device(&w.devices[&4]),
        };
        let of_host = matches!(level, Level::Host | Level::Device);
        let workload = (!of_host).then_some("apache2.service");
        let query = Query { host: "web-1", workload, listener: None, metric: metric.name };
        let shown = series.values(query, w.index, w.index)[0].unwrap_or(f64::NAN);
        // Of some the API has the highest, of some the mean.
        let read = [Some(&signal.read), signal.mean.as_ref()].into_iter().flatten();
        let told: Vec<f64> =
            read.filter_map(|read| read.of(seen)).map(|(over, under)| over / under * factor).collect();
        if !told.iter().any(|value| (value - shown).abs() <= 1e-9 * shown.abs()) || shown == 0.0 {
            faults.push(format!(
                "{} of src/live/metric.rs is {shown}, and {} of src/export/signals/table.rs {told:?}",
                metric.name, signal.name
            ));
        }
        compared += 1;
    }
    all_right(&faults);
    assert!(compared >= 30, "{compared} signals are compared: same_thing finds fewer than there were");
}

//! Roll-ups, rows and their bounds.

use super::*;
use std::sync::Arc;
use tailwater_model::names::Names;
use tailwater_model::topology::NodeView;
use tailwater_model::window::{HostCpu, ListenerInfo, ListenerWindow, WorkloadInfo, WorkloadWindow};

const NOW: u64 = 34_000_000_000;

/// `count` listeners of one workload, on ports from 1.
fn names(count: u32) -> Names {
    let mut names = Names::default();
    names.workloads.insert(
        1,
        WorkloadInfo {
            id: 1,
            name: "apache2.service".into(),
            cpu_quota_ns: 25_000_000,
            ..WorkloadInfo::default()
        },
    );
    for id in 1..=count {
        let port = u16::try_from(id).unwrap();
        names.listeners.insert(
            id,
            ListenerInfo {
                id,
                workload: 1,
                address: [10, 0, 0, 1].into(),
                port,
                path: None,
                comm: String::new(),
                pool: None,
                started_with: 0,
                pid: 0,
            },
        );
    }
    names
}

fn window(n: u64) -> HostWindow {
    let cpu = HostCpu { capacity_ns: 100_000_000, busy_ns: 50_000_000, ..HostCpu::default() };
    HostWindow { host: "web-1".into(), index: WindowIndex(NOW + n), cpu: Some(cpu), ..HostWindow::default() }
}

fn state(bounds: &Bounds) -> State {
    let mut state = State::new(bounds);
    let coverage = Coverage { cpu: true, accept_queue: true, requests: true, ..Coverage::default() };
    state.hosts.entry("web-1".into()).or_default().coverage = coverage;
    state
}

fn take(state: &mut State, window: HostWindow, names: &Names) -> bool {
    let window = Arc::new(window);
    state.window(&window, || Labels::read(&window, names))
}

fn text(state: &State, seconds: u64, n: u64) -> String {
    let mut out = String::new();
    rollup::render(state, &mut out, seconds, WindowIndex(NOW + n).start_unix_ns());
    out
}

#[track_caller]
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

#[test]
fn a_second_has_its_highest_window_its_time_mean_and_its_ninth_decile() {
    let (mut state, names) = (state(&Bounds::default()), names(1));
    for n in 0..20 {
        let mut w = window(n);
        w.workloads.insert(1, WorkloadWindow { busy_ns: 5_000_000, ..WorkloadWindow::default() });
        // Two windows of 20 with a full queue; in ten nothing happened at all, which is zero.
        if n < 10 {
            let depth_max = if n < 2 { 129 } else { 1 };
            let depth_ns = if n == 0 { 129 * WINDOW_NS } else { 0 };
            let answered = if n == 4 { 2 } else { 0 };
            let listener = ListenerWindow {
                depth_max,
                depth_ns,
                limit: 128,
                drops: 3,
                drops_syn: 2,
                sk_drops: 4,
                answered,
                aborted: 1,
                response_ns: 30_000_000,
                ..ListenerWindow::default()
            };
            w.listeners.insert(1, listener);
        }
        assert!(take(&mut state, w, &names));
    }
    let text = text(&state, 1, 20);
    let labels = r#"host="web-1",workload="apache2.service",listener="10.0.0.1:1""#;
    let depth = |agg: &str| value(&text, &format!("tailwater_accept_queue_depth{{{labels},agg=\"{agg}\"}}"));
    assert_eq!((depth("max"), depth("p90"), depth("mean")), (129.0, 1.0, 129.0 / 20.0));
    assert_eq!(value(&text, &format!("tailwater_accept_queue_limit{{{labels}}}")), 128.0);
    let drops =
        |reason: &str| value(&text, &format!("tailwater_listen_drops_total{{{labels},reason=\"{reason}\"}}"));
    assert_eq!((drops("syn"), drops("final_ack")), (20.0, 10.0));
    assert_eq!(value(&text, &format!("tailwater_requests_aborted_total{{{labels}}}")), 10.0);
    // A mean response time is over answers: windows without one are no zeros.
    let response =
        |agg: &str| value(&text, &format!("tailwater_response_time_seconds{{{labels},agg=\"{agg}\"}}"));
    assert_eq!((response("mean"), response("max")), (0.015, 0.015));
    assert_eq!(value(&text, r#"tailwater_cpu_busy_ratio{host="web-1",agg="mean"}"#), 0.5);
    let busy = r#"tailwater_workload_cpu_busy_ratio{host="web-1",workload="apache2.service",agg="max"}"#;
    assert!((value(&text, busy) - 0.2).abs() < 1e-9, "of its quota");
    assert_eq!(value(&text, r#"tailwater_windows_present_ratio{host="web-1"}"#), 1.0);
    assert!(!text.contains("tailwater_calls_in_flight{"), "what is not covered is not told");
    assert_eq!(text.matches("# TYPE tailwater_listen_drops counter").count(), 1);
}

#[test]
fn what_polling_cannot_tell_and_a_sum_without_one_of_its_parts_are_not_told_as_zero() {
    let told = |coverage: Coverage| {
        let mut state = State::new(&Bounds::default());
        state.hosts.entry("web-1".into()).or_default().coverage = coverage;
        let mut w = window(0);
        w.workloads.insert(1, WorkloadWindow { busy_ns: 5_000_000, ..WorkloadWindow::default() });
        w.listeners.insert(1, ListenerWindow { in_flight_max: 3, ..ListenerWindow::default() });
        assert!(take(&mut state, w, &names(1)));
        text(&state, 1, 1)
    };
    let (stopped, queued) = ("tailwater_workload_stopped_threads{", "tailwater_queued_requests{");
    let whole = Coverage { cpu: true, accept_queue: true, requests: true, ..Coverage::default() };
    let all = told(whole);
    assert!(all.contains(stopped) && all.contains(queued), "{all}");
    let sampled = tailwater_model::window::SignalSet::of(["cpu"]);
    let polled = told(Coverage { sampled, ..whole });
    assert!(!polled.contains(stopped) && polled.contains("tailwater_workload_cpu_busy_ratio{"), "{polled}");
    let part = told(Coverage { accept_queue: false, ..whole });
    assert!(!part.contains(queued) && part.contains("tailwater_workers_busy{"), "{part}");
}

#[test]
fn a_listener_that_was_opened_again_is_one_row_whose_values_are_joined_as_they_mean() {
    let (mut state, mut names) = (state(&Bounds::default()), names(2));
    names.listeners.get_mut(&2).unwrap().port = 1;
    let mut w = window(0);
    for (id, answered, longest_ms) in [(1, 3, 900), (2, 1, 100)] {
        let listener = ListenerWindow {
            depth_max: 4,
            answered,
            response_ns: 100_000_000,
            response_max_ns: longest_ms * 1_000_000,
            ..ListenerWindow::default()
        };
        w.listeners.insert(id, listener);
    }
    take(&mut state, w, &names);
    let text = text(&state, 1, 1);
    let max = |name: &str| {
        let labels = r#"host="web-1",workload="apache2.service",listener="10.0.0.1:1""#;
        value(&text, &format!("tailwater_{name}{{{labels},agg=\"max\"}}"))
    };
    assert_eq!(max("accept_queue_depth"), 8.0, "added");
    assert_eq!(max("response_time_seconds"), 0.05, "200 ms over four answers");
    assert_eq!(max("response_time_longest_seconds"), 0.9, "the longest");
}

#[test]
fn a_peak_between_two_scrapes_is_in_a_roll_up_of_their_interval() {
    let (mut state, names) = (state(&Bounds::default()), names(1));
    for n in 0..200 {
        let mut w = window(n);
        let depth_max = if n == 60 { 77 } else { 1 };
        w.listeners.insert(1, ListenerWindow { depth_max, ..ListenerWindow::default() });
        take(&mut state, w, &names);
    }
    let series = r#"tailwater_accept_queue_depth{host="web-1",workload="apache2.service",listener="10.0.0.1:1",agg="max"}"#;
    assert_eq!(value(&text(&state, 1, 200), series), 1.0);
    assert_eq!(value(&text(&state, 10, 200), series), 77.0);
}

#[test]
fn missing_windows_are_missing_and_a_silent_host_says_nothing_about_now() {
    let (mut state, names) = (state(&Bounds::default()), names(1));
    for n in (0..20).filter(|n| n % 2 == 0).chain([19]) {
        let mut w = window(n);
        w.listeners.insert(1, ListenerWindow { drops: 1, drops_syn: 1, ..ListenerWindow::default() });
        take(&mut state, w, &names);
    }
    let now = text(&state, 1, 20);
    assert_eq!(value(&now, r#"tailwater_windows_present_ratio{host="web-1"}"#), 11.0 / 20.0);
    assert_eq!(value(&now, r#"tailwater_cpu_busy_ratio{host="web-1",agg="mean"}"#), 0.5, "no zeros for them");
    let mut late = window(3);
    late.listeners.insert(1, ListenerWindow { drops: 5, drops_syn: 5, ..ListenerWindow::default() });
    assert!(!take(&mut state, late, &names), "too late for a roll-up");
    let later = text(&state, 1, 20 + 6 * PER_SECOND);
    assert!(!later.contains("tailwater_cpu_busy_ratio{"), "{later}");
    let drops = r#"tailwater_listen_drops_total{host="web-1",workload="apache2.service",listener="10.0.0.1:1",reason="syn"}"#;
    assert_eq!(value(&later, drops), 16.0, "counters stay, and count what is late");
}

#[test]
fn labels_are_bounded_and_what_is_beyond_is_summed_and_counted() {
    let bounds = Bounds { per_host_max: 3, rows_max: 100 };
    let (mut state, names) = (state(&bounds), names(500));
    for n in 0..2 {
        let mut w = window(n);
        for id in 1..=500 {
            w.listeners.insert(
                id,
                ListenerWindow { drops: 1, drops_syn: 1, depth_max: 2, ..ListenerWindow::default() },
            );
        }
        take(&mut state, w, &names);
    }
    let text = text(&state, 1, 2);
    let series = text.lines().filter(|l| l.starts_with("tailwater_listen_drops_total{") && l.contains("syn"));
    let sum: f64 = series.clone().map(|l| l.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    assert_eq!((series.count(), sum), (4, 1000.0), "three and the others, and no drop is lost");
    let other = r#"host="web-1",workload="~other",listener="~other""#;
    assert_eq!(value(&text, &format!("tailwater_accept_queue_depth{{{other},agg=\"max\"}}")), 2.0 * 497.0);
    // The host itself is a row too.
    assert_eq!(state.cardinality(), (4, 497));
    // All hosts together have a bound too.
    let mut state = State::new(&Bounds { per_host_max: 3, rows_max: 5 });
    for host in ["a", "b", "c"] {
        let mut w = window(0);
        w.host = host.into();
        w.listeners.extend((1..=3).map(|id| (id, ListenerWindow::default())));
        take(&mut state, w, &names);
    }
    let (rows, folded) = state.cardinality();
    assert!(rows <= 5 + 3 && folded >= 4, "{rows} {folded}: the hosts themselves are always told");
}

#[test]
fn answers_count_in_the_tier_that_their_listener_had_when_they_came() {
    let (mut state, names) = (state(&Bounds { per_host_max: 1, rows_max: 100 }), names(2));
    let with = |n: u64, id: u32| {
        let mut w = window(n);
        let listener = ListenerWindow { answered: 2, response_ns: 8_000_000, ..ListenerWindow::default() };
        w.listeners.insert(id, listener);
        w.responses.add(id, 11, 2);
        w
    };
    take(&mut state, with(0, 1), &names);
    let (host, workload, tier) = ("web-1".into(), "apache2.service".into(), "apache".into());
    let nodes = vec![NodeView { host, workload, tier, ..NodeView::default() }];
    state.topology(&Arc::new(TopologyView { nodes, ..TopologyView::default() }));
    take(&mut state, with(2, 1), &names);
    assert!(!take(&mut state, with(1, 1), &names), "too late for a roll-up");
    // Beyond the bound of listeners it has no name, hence no tier.
    take(&mut state, with(3, 2), &names);
    let mut http2 = with(4, 1);
    let connections = ListenerWindow { multiplexed_connections: 4, open_max: 4, ..ListenerWindow::default() };
    http2.listeners.insert(1, connections);
    take(&mut state, http2, &names);
    let mut text = String::new();
    state.responses.render(&mut text);
    let of =
        |end: &str, tier: &str| value(&text, &format!("tailwater_response_seconds_{end}{{tier=\"{tier}\"}}"));
    let count = |tier: &str| of("count", tier);
    assert_eq!((count("~unknown"), count("apache"), count("~other")), (2.0, 4.0, 2.0));
    assert_eq!(of("sum", "apache"), 0.016, "of the same answers");
}

#[test]
fn each_listener_is_held_against_the_first_rule_of_its_tier_and_port() {
    let names = names(2);
    let rule = |tier: Option<&str>, port, within_ms| Sla { tier: tier.map(str::to_owned), port, within_ms };
    let sla: Arc<[Sla]> = [rule(Some("apache"), Some(1), 3_000), rule(Some("apa*"), None, 100)].into();
    let mut state = state(&Bounds::default()).promising(&sla);
    // 262 ms to 524 ms: about the 500 ms that hold where no rule does, within 3 s, and not within 100 ms.
    let with = |n: u64| {
        let mut w = window(n);
        for id in 1..=2 {
            w.listeners.insert(id, ListenerWindow { answered: 5, ..ListenerWindow::default() });
            w.responses.add(id, 18, 5);
        }
        w
    };
    take(&mut state, with(0), &names);
    let (host, workload, tier) = ("web-1".into(), "apache2.service".into(), "apache".into());
    let nodes = vec![NodeView { host, workload, tier, ..NodeView::default() }];
    state.topology(&Arc::new(TopologyView { nodes, ..TopologyView::default() }));
    take(&mut state, with(1), &names);
    let mut text = String::new();
    state.responses.render(&mut text);
    let of = |tier: &str| {
        ["surely", "perhaps", "not"].map(|within| {
            value(&text, &format!("tailwater_sla_answers_total{{tier=\"{tier}\",within=\"{within}\"}}"))
        })
    };
    assert_eq!(of("~unknown"), [0.0, 10.0, 0.0], "no tier yet: no rule of one");
    assert_eq!(of("apache"), [5.0, 0.0, 5.0], "port 1 has a rule of its own");
}

#[test]
fn an_answer_ends_late_also_while_there_are_exchanges_on_other_connections_alone() {
    let (mut state, names) = (state(&Bounds::default()), names(1));
    let with = |n, listener| {
        let mut w = window(n);
        w.late_ms = [500, 3_000];
        w.listeners.insert(1, listener);
        w
    };
    let mut answered = with(0, ListenerWindow { answered: 1, late: Some(0), ..ListenerWindow::default() });
    answered.responses.add(1, 12, 1);
    take(&mut state, answered, &names);
    let ended = ListenerWindow {
        late: Some(1),
        multiplexed_connections: 1,
        pieces_in: 5,
        open_max: 2,
        ..ListenerWindow::default()
    };
    assert!(ended.connections_only());
    take(&mut state, with(12, ended), &names);
    let mut text = String::new();
    state.responses.render(&mut text);
    assert_eq!(value(&text, r#"tailwater_sla_answers_total{tier="~unknown",within="not"}"#), 1.0);
    assert_eq!(value(&text, r#"tailwater_response_seconds_count{tier="~unknown"}"#), 1.0);
}

#[test]
fn rows_that_nobody_speaks_of_make_room() {
    let bounds = Bounds { per_host_max: 1, rows_max: 100 };
    let (mut state, names) = (state(&bounds), names(2));
    let with = |n, id| {
        let mut w = window(n);
        w.listeners.insert(id, ListenerWindow { drops: 1, drops_syn: 1, ..ListenerWindow::default() });
        w
    };
    take(&mut state, with(0, 1), &names);
    take(&mut state, with(1, 2), &names);
    assert_eq!(state.cardinality().1, 1);
    for n in (1200..=13_200).step_by(600) {
        take(&mut state, with(n, 2), &names);
    }
    assert_eq!(state.cardinality().1, 0);
    assert!(text(&state, 1, 13_201).contains(r#"listener="10.0.0.1:2",reason="syn"} "#));
}

#[test]
fn a_host_that_went_away_makes_room_as_a_whole() {
    let (mut state, names) = (state(&Bounds::default()), names(1));
    let of = |host: &str, n| {
        let mut w = window(n);
        w.host = host.into();
        w.listeners.insert(1, ListenerWindow::default());
        w
    };
    take(&mut state, of("gone", 0), &names);
    take(&mut state, of("stays", 0), &names);
    assert_eq!(state.cardinality().0, 4, "two hosts, each with a listener");
    for n in (1000..=14_000).step_by(1000) {
        take(&mut state, of("stays", n), &names);
    }
    assert_eq!((state.cardinality().0, state.hosts.contains_key("gone")), (2, false));
    assert!(take(&mut state, of("gone", 14_001), &names), "and it may come back");
}

#[test]
fn memory_that_runs_short_costs_history_and_no_roll_up() {
    let (mut state, names) = (state(&Bounds::default()), names(1));
    state.history_bytes_max = 10 * size_of(&window(0));
    for n in 0..500 {
        take(&mut state, window(n), &names);
    }
    assert_eq!(state.hosts["web-1"].history.len(), FLOOR_WINDOWS);
    assert_eq!(value(&text(&state, 1, 500), r#"tailwater_windows_present_ratio{host="web-1"}"#), 1.0);
    let held: usize = state.hosts["web-1"].history.iter().map(|w| size_of(w)).sum();
    assert_eq!(state.history_bytes, held);
}

#[test]
fn a_thread_that_is_behind_loses_the_oldest_windows_and_counts_them() {
    let export = Export::default();
    let window = Arc::new(window(0));
    let input = Input::Window(Arc::new((*window).clone()));
    export.saw(&input, Some(&window));
    assert_eq!(export.fill().0, 0, "nobody listens yet");
    lock(&export.queue).open = true;
    let most = QUEUE_BYTES_MAX / size_of(&window);
    for _ in 0..most + 10 {
        export.saw(&input, Some(&window));
    }
    assert_eq!(export.windows_dropped.get(), 10);
    let (bytes, limit) = export.fill();
    assert!(bytes <= limit && bytes > limit / 2);
}

//! Tests of the windows in memory.

use super::*;
use crate::live::metric::METRICS;
use crate::live::windows::size_of;
use std::sync::Arc;
use tailwater_model::window::{
    EdgeInfo, EdgeWindow, Gone, HostInfo, ListenerInfo, ListenerWindow, WorkloadInfo,
};

fn window(index: u64, drops: u64) -> Input {
    let mut w = HostWindow { host: "web-1".into(), index: WindowIndex(index), ..HostWindow::default() };
    w.listeners.insert(1, ListenerWindow { drops, depth_max: 129, limit: 128, ..ListenerWindow::default() });
    Input::Window(Arc::new(w))
}

fn series() -> Series {
    let mut s = Series::new(10, 1 << 20);
    s.saw(&Input::Entities {
        host: "web-1".into(),
        workloads: vec![WorkloadInfo { id: 3, name: "apache2.service".into(), ..WorkloadInfo::default() }],
        listeners: vec![ListenerInfo {
            id: 1,
            workload: 3,
            address: [0, 0, 0, 0].into(),
            port: 80,
            path: None,
            comm: String::new(),
            pool: None,
            started_with: 0,
            pid: 0,
        }],
        edges: vec![],
        devices: vec![],
    });
    s
}

const DROPS: Query<'_> = Query {
    host: "web-1",
    workload: Some("apache2.service"),
    listener: Some("10.0.0.1:80"),
    metric: "drops",
};

#[test]
fn missing_windows_are_missing_and_not_zero() {
    let mut s = series();
    s.saw(&window(100, 5));
    s.saw(&window(102, 0));
    let got = s.values(DROPS, WindowIndex(100), WindowIndex(102));
    assert_eq!(got, [Some(5.0), None, Some(0.0)]);
    let other = Query { listener: Some("10.0.0.1:81"), ..DROPS };
    assert_eq!(
        s.values(other, WindowIndex(100), WindowIndex(100)),
        [Some(0.0)],
        "a listener that is not there dropped nothing"
    );
    assert_eq!(
        s.values(Query { metric: "cpu_busy_ratio", ..DROPS }, WindowIndex(100), WindowIndex(100)),
        [None],
        "not covered"
    );
}

#[test]
fn what_is_gone_went_when_that_was_heard_first() {
    let mut s = series();
    let gone = Gone { workloads: vec![3], listeners: vec![1], ..Gone::default() };
    let gone = Input::Gone { host: "web-1".into(), gone };
    s.saw(&window(100, 0));
    s.saw(&gone);
    s.saw(&window(140, 0));
    s.saw(&gone);
    let departed = s.gone("web-1");
    let went = (departed.workloads.get(&3), departed.listeners.get(&1));
    assert_eq!(went, (Some(&WindowIndex(100)), Some(&WindowIndex(100))), "not when the agent came back");
}

#[test]
fn points_keep_the_extremes() {
    let mut s = series();
    for index in 0..100 {
        s.saw(&window(index, if index == 57 { 40 } else { 0 }));
    }
    let s = Mutex::new(s);
    let points = Series::points(&s, &[DROPS], WindowIndex(0), WindowIndex(99), 10).remove(0);
    assert_eq!(points.len(), 10);
    assert_eq!((points[5].max, points[5].min, points[5].mean, points[5].windows), (40.0, 0.0, 4.0, 10));
    assert_eq!(points[5].start_unix_ns, 50 * WINDOW_NS);
}

#[test]
fn points_that_are_read_piece_by_piece_are_those_of_one_look() {
    let mut s = Series { bytes_max: 1 << 24, minute_bytes_max: 1 << 24, ..series() };
    let piece = PIECE_WINDOWS as u64;
    let count = 2 * piece + 400;
    for index in (0..count).filter(|index| !index.is_multiple_of(17)) {
        s.saw(&window(1_000 + index, index % 5));
    }
    assert_eq!(s.reach().cut, 0);
    let s = Mutex::new(s);
    let calls = Query { metric: "calls_in_flight", ..DROPS };
    // Beyond what there is at either end, within it, and beside it.
    for (first, last) in [(0, u64::MAX), (1_050, 1_050 + piece), (1_001, 1_001), (0, 900), (7, 6)] {
        let (first, last) = (WindowIndex(first), WindowIndex(last));
        for max_points in [1, 900, 20_000] {
            let of = |piece| Series::points_by(piece, &s, &[DROPS, calls], (first, last), max_points);
            let (whole, pieces) = (of(usize::MAX), of(PIECE_WINDOWS));
            assert_eq!(pieces, whole, "{first:?} to {last:?}, {max_points}");
        }
    }
}

#[test]
fn an_outline_has_the_names_and_the_ends_of_a_host_and_no_more_windows() {
    let mut s = series();
    assert_eq!(s.outline("web-1").inventory("web-1"), None, "no windows yet");
    (100..200).for_each(|index| drop(s.saw(&window(index, 0))));
    let outline = s.outline("web-1");
    assert_eq!(outline.inventory("web-1"), s.inventory("web-1"));
    assert!(outline.inventory("web-1").is_some_and(|of| of.workloads.len() == 1));
    let mut ends = Vec::new();
    outline.windows("web-1", |w| ends.push(w.index.0));
    assert_eq!(ends, [100, 199]);
    assert_eq!(s.outline("nobody").inventory("nobody"), None);
}

#[test]
fn memory_is_bounded_and_the_oldest_windows_go_first() {
    let mut s = Series::new(10, 10_000);
    for index in 0..1000 {
        s.saw(&window(index, 0));
    }
    assert!(s.bytes() <= 10_000);
    let (first, last) = s.span("web-1").unwrap();
    assert_eq!(last.0, 999);
    assert!(first.0 > 980);
    let mut s = Series::new(1, 1 << 30);
    (0..3000).for_each(|index| drop(s.saw(&window(index, 0))));
    assert_eq!(s.span("web-1").unwrap().0, WindowIndex(2999 - 1200));
}

#[test]
fn what_was_not_measured_in_a_window_is_unknown_there_and_not_zero() {
    let mut s = series();
    for n in 0..4 {
        let Input::Window(mut w) = window(1_000 + n, n) else { panic!() };
        Arc::make_mut(&mut w).uncovered = SignalSet::of(
            if n < 2 { ["accept_queue"].as_slice() } else { &["calls", "memory"] }.iter().copied(),
        );
        s.saw(&Input::Window(w));
    }
    let of = |metric| s.values(Query { metric, ..DROPS }, WindowIndex(1_000), WindowIndex(1_003));
    assert_eq!(of("drops"), [None, None, Some(2.0), Some(3.0)]);
    assert_eq!(of("calls_in_flight"), [Some(0.0), Some(0.0), None, None]);
    assert_eq!(
        of("queued_requests"),
        [None, None, Some(129.0), Some(129.0)],
        "a part of a sum is not the sum"
    );
    assert_eq!(of("workers_busy"), [Some(0.0); 4]);
}

#[test]
fn an_answer_that_ends_late_in_a_later_window_is_no_answer_in_time_in_their_sum() {
    let mut s = series();
    for (index, answered, late) in [(100, 1, 0), (101, 0, 0), (102, 0, 1)] {
        let Input::Window(mut w) = window(index, 0) else { panic!() };
        let row = ListenerWindow { answered, late: Some(late), ..ListenerWindow::default() };
        Arc::make_mut(&mut w).listeners.insert(1, row);
        s.saw(&Input::Window(w));
    }
    let got = s.values(Query { metric: "requests_in_time", ..DROPS }, WindowIndex(100), WindowIndex(102));
    assert_eq!(got, [Some(1.0), Some(0.0), Some(-1.0)]);
}

#[test]
fn every_metric_has_columns_signals_that_there_are_and_a_name_of_its_own() {
    let mut names: Vec<_> = METRICS.iter().map(|m| m.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), METRICS.len());
    for metric in METRICS {
        assert!(metric.needs().names().count() > 0 && !metric.columns.is_empty(), "{}", metric.name);
    }
}

#[test]
fn the_last_minute_stays_in_more_memory_and_what_goes_early_is_counted() {
    let Input::Window(one) = window(0, 1) else { panic!() };
    let size = size_of(&one);
    let fill = |mut s: Series, count: u64| {
        (0..count).for_each(|n| drop(s.saw(&window(1_000 + n, n))));
        s.reach()
    };
    let minute = REACH_WANTED_NS / WINDOW_NS;
    let small = || Series::new(10, 100 * size);
    let reach = fill(small(), 2_000);
    assert!(reach.short && reach.cut == 1_900, "{reach:?}");
    let reach = fill(small().with_minute(800 * size), 2_000);
    assert_eq!((reach.span_ns, reach.short), (minute * WINDOW_NS, false), "{reach:?}");
    assert!(reach.cut > 0, "what was older did not fit");
    let reach = fill(small().with_minute(300 * size), 2_000);
    assert!(reach.short && reach.span_ns == 299 * WINDOW_NS, "that has an end, too: {reach:?}");
    assert_eq!(fill(small(), 90).cut, 0);
}

#[test]
fn a_host_that_is_silent_for_a_day_is_forgotten_when_a_new_one_comes() {
    let of = |host: &str, index: u64| {
        let w = HostWindow { host: host.into(), index: WindowIndex(index), ..HostWindow::default() };
        Input::Window(Arc::new(w))
    };
    let mut s = Series::new(10, 1 << 20);
    s.saw(&of("old", 1_000));
    s.saw(&of("web", 1_000 + GONE_WINDOWS / 2));
    s.saw(&of("new", 1_000 + GONE_WINDOWS / 2));
    assert_eq!(s.hosts().collect::<Vec<_>>(), ["new", "old", "web"], "its names stay for a day");
    s.saw(&of("web", 1_001 + GONE_WINDOWS));
    s.saw(&of("newest", 1_001 + GONE_WINDOWS));
    assert!(!s.hosts().any(|host| host == "old"), "{:?}", s.hosts().collect::<Vec<_>>());
}

#[test]
fn connections_that_were_tried_again_are_told_of_the_clients_that_are_seen_also_of_what_was_cut_out() {
    let mut s = series();
    s.saw(&Input::Host(HostInfo {
        host: "web-1".into(),
        addresses: vec![[10, 0, 0, 1].into()],
        ..HostInfo::default()
    }));
    s.saw(&window(101, 3));
    let (first, last) = (WindowIndex(100), WindowIndex(103));
    assert_eq!(s.retried("web-1", "0.0.0.0:80", first, last), None, "nobody who calls it is seen");
    let to = |id, port| EdgeInfo {
        id,
        workload: 1,
        remote_address: [10, 0, 0, 1].into(),
        remote_port: port,
        path: None,
    };
    s.saw(&Input::Entities {
        host: "client-1".into(),
        workloads: vec![],
        listeners: vec![],
        edges: vec![to(7, 80), to(8, 81)],
        devices: vec![],
    });
    for index in [100, 101, 102, 121] {
        let mut w =
            HostWindow { host: "client-1".into(), index: WindowIndex(index), ..HostWindow::default() };
        if index == 121 {
            let tried = EdgeWindow {
                syn_retransmits: 2,
                first_try_unix_ns: WindowIndex(101).start_unix_ns() + 1,
                ..EdgeWindow::default()
            };
            w.edges.insert(7, tried);
            w.edges.insert(8, tried);
        }
        s.saw(&Input::Window(Arc::new(w)));
    }
    let told = Some(vec![Some(0.0), Some(2.0), Some(0.0), None]);
    assert_eq!(s.retried("web-1", "0.0.0.0:80", first, last), told);
    let cut = s.since(["web-1"], [("web-1", "0.0.0.0:80")], first);
    assert_eq!(cut.retried("web-1", "0.0.0.0:80", first, last), told);
    assert_eq!(cut.values(DROPS, first, last), s.values(DROPS, first, last));
}

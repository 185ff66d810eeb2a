//! What must hold for any inputs: the order of arrival within the lateness bound, duplicates and a shift in time change nothing
//! that is said; early alerts carry the id of the incident that follows; absurd values disturb nobody.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::LazyLock;
use support::sim::{At, Do, FIRST_WINDOW, Sim, Trace};
use support::{inputs, last_versions, outputs, told};
use tailwater_analysis::{Config, FindingKind, Output, Pipeline};
use tailwater_model::window::{
    CulpritResource, CulpritSample, DeviceWindow, DropNotice, EdgeWindow, HostCpu, HostWindow, Input,
    ListenerInfo, ListenerWindow, WINDOW_NS, WindowIndex, WorkloadInfo, WorkloadWindow,
};

fn overflow() -> Sim {
    Sim { seconds: 10, ..Sim::default() }.act(At::App, 4000..4700, Do::Neighbour(0.95))
}

static TRACE: LazyLock<Trace> = LazyLock::new(|| overflow().run());

fn json(outputs: &[Output]) -> Vec<String> {
    told(outputs).iter().map(|i| serde_json::to_string(i).unwrap()).collect()
}

/// Windows with an arrival delay each, and ticks every 50 ms, in order of arrival.
fn delayed(trace: &Trace, delay_ms: impl Fn(usize) -> u64) -> Vec<Input> {
    let mut arrivals: Vec<(u64, Input)> = trace.names.iter().map(|n| (0, n.clone())).collect();
    let first = trace.windows[0].index.0;
    let last = trace.windows.last().unwrap().index.0;
    arrivals.extend((first..last + 20).map(|i| (i * WINDOW_NS, Input::Tick { unix_ns: i * WINDOW_NS })));
    arrivals.extend(
        trace.windows.iter().enumerate().map(|(i, w)| {
            (w.index.end_unix_ns() + delay_ms(i) * 1_000_000, Input::Window(Arc::new(w.clone())))
        }),
    );
    arrivals.sort_by_key(|(at, _)| *at);
    arrivals.into_iter().map(|(_, input)| input).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arrival_order_within_the_bound_changes_nothing(delays in prop::collection::vec(0u64..349, 64), duplicate in 0usize..64) {
        let plain = json(&outputs(&Config::default(), delayed(&TRACE, |_| 100)));
        prop_assert!(!plain.is_empty());
        let mut shuffled = delayed(&TRACE, |i| delays[i % delays.len()]);
        let again: Vec<Input> = shuffled.iter().skip(duplicate).step_by(64).filter(|i| matches!(i, Input::Window(_))).cloned().collect();
        for (i, window) in again.into_iter().enumerate() {
            let at = (i * 64 + duplicate + 40).min(shuffled.len());
            shuffled.insert(at, window);
        }
        prop_assert_eq!(plain, json(&outputs(&Config::default(), shuffled)));
    }

    #[test]
    fn a_shift_in_time_only_shifts(windows in 1u64..1_000_000_000) {
        let moved = Trace {
            names: TRACE.names.clone(),
            windows: TRACE.windows.iter().cloned().map(|mut w| { w.index = WindowIndex(w.index.0 + windows); w }).collect(),
            dropped: TRACE.dropped,
        };
        let mut before = told(&outputs(&Config::default(), inputs(&TRACE)));
        let after = told(&outputs(&Config::default(), inputs(&moved)));
        let by = windows * WINDOW_NS;
        prop_assert_eq!(before.len(), after.len());
        for (b, a) in before.iter_mut().zip(&after) {
            b.start_unix_ns += by;
            b.end_unix_ns += by;
            b.root.start_unix_ns += by;
            b.root.end_unix_ns += by;
            for hop in &mut b.hops {
                hop.onset_unix_ns += by;
                let Some(life) = &mut hop.life else { continue };
                life.start_unix_ns += by;
                life.end_unix_ns += by;
                life.now.iter_mut().for_each(|now| now.start_unix_ns += by);
            }
            b.drops.iter_mut().for_each(|d| { d.first_unix_ns += by; d.last_unix_ns += by; });
            for alternative in &mut b.alternatives {
                alternative.root.start_unix_ns += by;
                alternative.root.end_unix_ns += by;
            }
            b.id.clone_from(&a.id);
            b.title.clone_from(&a.title);
            prop_assert_eq!(&*b, a);
        }
    }

    #[test]
    fn absurd_windows_neither_panic_nor_hide_a_real_incident(windows in prop::collection::vec(absurd(), 1..40)) {
        let honest = inputs(&TRACE);
        let mut mixed = Vec::new();
        for (i, input) in honest.into_iter().enumerate() {
            if i > 10 && i % 20 == 0 {
                mixed.push(Input::Window(Arc::new(windows[i / 20 % windows.len()].clone())));
            }
            mixed.push(input);
        }
        let incidents = last_versions(&outputs(&Config::default(), mixed));
        prop_assert!(incidents.iter().any(|i| i.root.host == "app-1" && !i.drops.is_empty()), "{incidents:#?}");
        prop_assert!(incidents.iter().all(|i| (0.0..=1.0).contains(&i.confidence) && serde_json::to_string(i).is_ok()));
    }

    #[test]
    fn absurd_windows_of_known_hosts_do_not_panic(windows in prop::collection::vec((0usize..3, absurd()), 200)) {
        let mut all = TRACE.names.clone();
        all.push(Input::Tick { unix_ns: FIRST_WINDOW * WINDOW_NS });
        for (i, (host, mut window)) in windows.into_iter().enumerate() {
            window.host = ["web-1", "app-1", "db-1"][host].into();
            window.index = WindowIndex(FIRST_WINDOW + i as u64 / 3);
            all.push(Input::Tick { unix_ns: window.index.end_unix_ns() });
            all.push(Input::Window(Arc::new(window)));
        }
        outputs(&Config::default(), all);
    }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(1_000_000_000_000_000_000),
        any::<u64>(),
        0u64..200_000_000
    ]
}

fn absurd() -> impl Strategy<Value = HostWindow> {
    let index = prop_oneof![Just(u64::MAX), Just(0), FIRST_WINDOW..FIRST_WINDOW + 300, any::<u64>()];
    (index, prop::collection::vec(number(), 24), prop::collection::vec(any::<u32>(), 8)).prop_map(
        |(index, n, m)| {
            let listener = ListenerWindow {
                depth_last: m[0],
                depth_max: m[1],
                depth_ns: n[0],
                limit: m[2],
                arrivals: n[1],
                accepts: n[2],
                drops: n[3],
                sk_drops: n[13],
                drops_final_ack: n[4],
                drops_cookie: n[12],
                drops_repeated: n[10],
                drops_slow: n[11],
                received: n[5],
                answered: n[6],
                in_flight_max: m[3],
                in_flight_ns: n[7],
                unread_ns: n[8],
                workers_busy_max: m[4],
                workers_seen: m[5],
                worker_shared_max: m[6] % 3,
                response_ns: n[9],
                ..ListenerWindow::default()
            };
            let edge = EdgeWindow {
                started: n[10],
                in_flight_max: m[7],
                in_flight_ns: n[11],
                open_max: m[0],
                connects: n[12],
                established: n[13],
                syn_retransmits: n[14],
                ..EdgeWindow::default()
            };
            let workload = WorkloadWindow {
                busy_ns: n[15],
                wait_ns: n[16],
                blocked_io_ns: n[17],
                io_bytes: n[18],
                reclaim_ns: n[19],
                swap_ins: n[20],
                ..WorkloadWindow::default()
            };
            HostWindow {
                host: "absurd".into(),
                index: WindowIndex(index),
                clock_error_ns: n[21],
                lost_before: n[22],
                cpu: Some(HostCpu {
                    capacity_ns: n[23],
                    busy_ns: n[15],
                    steal_ns: n[16],
                    throttled_ns: Some(n[17]),
                    ..HostCpu::default()
                }),
                workloads: [(1, workload), (2, workload)].into(),
                listeners: [(1, listener), (9, listener)].into(),
                edges: [(1, edge)].into(),
                devices: [(1, DeviceWindow { in_flight_ns: n[18], ..DeviceWindow::default() })].into(),
                culprits: vec![CulpritSample {
                    resource: CulpritResource::Cpu,
                    pid: 1,
                    comm: "x".into(),
                    workload: 1,
                    amount: n[0],
                }],
                ..HostWindow::default()
            }
        },
    )
}

/// A drop notice at the first dropping window of the web tier, fed as soon as the kernel saw it.
fn with_notice(notices: &[DropNotice]) -> Vec<Output> {
    let mut all = Vec::new();
    for input in inputs(&TRACE) {
        if let Input::Tick { unix_ns } = input {
            for notice in notices.iter().filter(|n| (unix_ns - WINDOW_NS..unix_ns).contains(&n.unix_ns)) {
                all.push(Input::Drop(notice.clone()));
            }
        }
        all.push(input);
    }
    // Three windows share a tick, so a notice may be there three times, as repeated notices are.
    outputs(&Config::default(), all)
}

fn web_drops() -> Vec<DropNotice> {
    let drops = |w: &&HostWindow| w.host == "web-1" && w.listeners.get(&1).is_some_and(|l| l.drops > 0);
    let notice = |w: &HostWindow| DropNotice {
        phase_ns: 0,
        host: "web-1".into(),
        listener: 1,
        unix_ns: w.index.start_unix_ns() + 30_000_000,
        count: 3,
        sk_drops: 4,
        depth: 129,
        limit: 128,
    };
    TRACE.windows.iter().filter(drops).map(notice).collect()
}

#[test]
fn an_early_alert_carries_the_id_of_the_incident_that_follows() {
    let said = with_notice(&web_drops());
    let alerts: Vec<_> =
        said.iter().filter_map(|o| if let Output::Alert(a) = o { Some(a.clone()) } else { None }).collect();
    let incidents = last_versions(&said);
    assert_eq!(alerts.len(), 1, "one alert for one incident");
    assert_eq!((incidents.len(), &incidents[0].id), (1, &alerts[0].id));
    let first = said.iter().position(|o| matches!(o, Output::Alert(_))).unwrap();
    let then = said.iter().position(|o| matches!(o, Output::Incident(_))).unwrap();
    assert!(first < then, "ahead of the windows");
    assert_eq!(alerts[0].version, 0);
    let silent = json(&outputs(&Config::default(), inputs(&TRACE)));
    assert_eq!(silent, json(&said), "notices change nothing of what the windows say");
}

#[test]
fn a_listener_that_overflows_in_its_first_window_is_told_of_at_once() {
    let mut all = Vec::new();
    let at = (FIRST_WINDOW + 40) * WINDOW_NS + 30_000_000;
    for input in inputs(&TRACE) {
        let now = matches!(input, Input::Tick { unix_ns } if (unix_ns - WINDOW_NS..unix_ns).contains(&at));
        all.push(input);
        if now {
            // The names go right before the notice; windows with them come later.
            all.push(Input::Entities {
                host: "web-1".into(),
                workloads: vec![WorkloadInfo { id: 70, name: "new".into(), ..WorkloadInfo::default() }],
                listeners: vec![ListenerInfo {
                    id: 71,
                    workload: 70,
                    address: std::net::Ipv4Addr::UNSPECIFIED.into(),
                    port: 8090,
                    path: None,
                    comm: String::new(),
                    pool: None,
                    started_with: 0,
                    pid: 0,
                }],
                edges: Vec::new(),
                devices: Vec::new(),
            });
            let listener = 71;
            all.push(Input::Drop(DropNotice { listener, unix_ns: at, ..web_drops().swap_remove(0) }));
            break;
        }
    }
    let said = outputs(&Config::default(), all);
    let alerts = said.iter().filter_map(|o| if let Output::Alert(a) = o { Some(a) } else { None });
    let places: Vec<_> = alerts.map(|a| (a.root.workload.as_str(), a.root.tier.as_str())).collect();
    assert_eq!(places, [("new", "new")]);
}

#[test]
fn a_notice_that_no_window_confirms_is_taken_back() {
    let quiet = DropNotice {
        phase_ns: 0,
        host: "web-1".into(),
        listener: 1,
        unix_ns: (FIRST_WINDOW + 40) * WINDOW_NS + 1,
        count: 1,
        sk_drops: 1,
        depth: 1,
        limit: 128,
    };
    let said = with_notice(&[quiet]);
    let notes = said
        .iter()
        .filter(|o| matches!(o, Output::Note(f) if f.kind == FindingKind::UnconfirmedDrop))
        .count();
    assert_eq!(notes, 1);
}

#[test]
fn the_root_is_named_in_the_first_version_and_versions_are_few() {
    let versions = told(&outputs(&Config::default(), inputs(&TRACE)));
    assert_eq!(versions[0].root.host, "app-1");
    assert_eq!(versions[0].version, 1);
    assert!(versions.len() <= 12, "{}", versions.len());
}

#[test]
fn the_api_lists_what_was_told_and_who_calls_whom() {
    let mut pipeline = Pipeline::new(Config::default());
    let mut said: Vec<Output> = inputs(&TRACE).into_iter().flat_map(|i| pipeline.feed(i)).collect();
    said.extend(pipeline.finish());
    assert_eq!(pipeline.incidents(), last_versions(&said));
    let topology = pipeline.topology();
    assert_eq!(
        topology.nodes.iter().map(|n| n.host.as_str()).collect::<std::collections::BTreeSet<_>>().len(),
        3
    );
    assert!(topology.edges.iter().any(|e| e.from_host == "web-1" && e.to_host.as_deref() == Some("app-1")));
    assert!(topology.edges.iter().any(|e| e.from_host == "app-1" && e.to_host.as_deref() == Some("db-1")));
}

#[test]
fn a_host_that_goes_silent_is_said_once() {
    let sim = Sim { seconds: 6, gaps: vec![(At::Db, 2000..4000)], ..Sim::default() };
    let said = outputs(&Config::default(), inputs(&sim.run()));
    let count = |kind| {
        said.iter().filter(|o| matches!(o, Output::Note(f) if f.kind == kind && f.host == "db-1")).count()
    };
    assert_eq!((count(FindingKind::GapBegins), count(FindingKind::GapEnds)), (1, 1));
}

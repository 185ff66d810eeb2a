//! Seconds that are the tier's own, and those that are left out: by limits, neighbours, tiers below, pools of others and incidents.

use super::*;
use crate::sizing::who::tests::{server, three_tiers};
use std::sync::Arc;
use tailwater_model::window::{
    EdgeInfo, EdgeWindow, HostCpu, HostWindow, Input, ListenerInfo, ListenerWindow, WorkloadInfo,
    WorkloadWindow,
};

const FIRST: u64 = 1000;
const LAST: u64 = 1019;
const APP: EntityId = 3;
const DB: EntityId = 4;

/// app-1 and db of the three tiers, on two CPUs each, app with a quota of one.
struct World {
    hosts: Hosts,
    who: Who,
    incidents: BTreeMap<String, Span>,
}

fn named(
    host: &str,
    id: EntityId,
    workload: &str,
    port: u16,
    edges: Vec<EdgeInfo>,
    cpu_quota_ns: u64,
) -> Input {
    Input::Entities {
        host: host.into(),
        workloads: vec![WorkloadInfo {
            id,
            name: workload.into(),
            comm: "java".into(),
            cpu_quota_ns,
            ..WorkloadInfo::default()
        }],
        listeners: vec![
            ListenerInfo {
                id: 1,
                workload: id,
                address: "::".parse().unwrap(),
                port,
                path: None,
                comm: String::new(),
                pool: None,
                started_with: 0,
                pid: 0,
            },
            ListenerInfo {
                id: 2,
                workload: id,
                address: "::".parse().unwrap(),
                port: port + 1,
                path: None,
                comm: String::new(),
                pool: None,
                started_with: 0,
                pid: 0,
            },
        ],
        edges,
        devices: Vec::new(),
    }
}

/// A quiet window of a host whose workload answered 5 requests in 2 in flight and used half of a CPU.
fn window(host: &str, workload: EntityId, index: u64) -> HostWindow {
    let cpu = HostCpu { capacity_ns: 2 * WINDOW_NS, busy_ns: WINDOW_NS / 2, ..HostCpu::default() };
    let mut window =
        HostWindow { host: host.into(), index: WindowIndex(index), cpu: Some(cpu), ..HostWindow::default() };
    let own = WorkloadWindow { busy_ns: WINDOW_NS / 2, ..WorkloadWindow::default() };
    window.workloads.insert(workload, own);
    let listener = ListenerWindow { answered: 5, in_flight_ns: 2 * WINDOW_NS, ..ListenerWindow::default() };
    window.listeners.insert(1, listener);
    window
}

/// The world in which `change` was made to each window, told by its host and its place in the second.
fn world(change: impl Fn(&str, u64, &mut HostWindow)) -> World {
    let mut world = World { hosts: Hosts::default(), who: Who::default(), incidents: BTreeMap::new() };
    world.who.update(&three_tiers());
    let edge = EdgeInfo {
        id: 7,
        workload: APP,
        remote_address: "10.0.0.9".parse().unwrap(),
        remote_port: 3306,
        path: None,
    };
    world.hosts.said(named("app-1", APP, "tomcat10.service", 8080, vec![edge], WINDOW_NS));
    world.hosts.said(named("db", DB, "mariadb.service", 3306, Vec::new(), 0));
    for index in FIRST..=LAST {
        for (host, workload) in [("app-1", APP), ("db", DB)] {
            let mut window = window(host, workload, index);
            change(host, index - FIRST, &mut window);
            world.hosts.window(Arc::new(window));
        }
    }
    world
}

fn joined(world: &World, host: &str) -> Result<Joined, Unjoined> {
    let cells = vec![StateCell { bin: 2, time_ns: 1_000_000_000, answered: 100 }];
    let of = ListenerStates { listener: 1, cells };
    let states =
        HostStates { host: host.into(), last: WindowIndex(LAST), windows: 20, listeners: vec![of.clone()] };
    Seen { hosts: &world.hosts, who: &world.who, incidents: &world.incidents }.join(&states, &of)
}

/// The taints of app's second after a change to its windows alone.
fn taints(change: impl Fn(u64, &mut HostWindow)) -> Vec<Taint> {
    let world = world(|host, n, window| {
        if host == "app-1" {
            change(n, window);
        }
    });
    joined(&world, "app-1").unwrap().taints.into_iter().collect()
}

fn own(window: &mut HostWindow) -> &mut WorkloadWindow {
    window.workloads.entry(APP).or_default()
}

fn cpu(window: &mut HostWindow) -> &mut HostCpu {
    window.cpu.get_or_insert_default()
}

#[test]
fn a_quiet_second_is_the_tiers_own_and_adds_up() {
    let second = joined(&world(|_, _, _| ()), "app-1").unwrap();
    assert!(second.taints.is_empty(), "{:?}", second.taints);
    assert_eq!((second.answered, second.windows), (100, 20));
    let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(close(second.in_flight_s, 2.0) && close(second.cpu_s, 0.5), "{second:?}");
    assert!(close(second.cpus, 1.0), "its quota, not its host: {second:?}");
    assert_eq!(second.server, server("app-1", "tomcat10.service"));
}

#[test]
fn open_connections_and_what_came_to_the_queue_are_those_of_its_windows() {
    let world = world(|host, n, window| {
        if host == "app-1" && n == 3 {
            window.listeners.clear();
        } else if host == "app-1" {
            let of = window.listeners.get_mut(&1).unwrap();
            (of.open_last, of.arrivals, of.drops_syn, of.drops_final_ack, of.drops_repeated) =
                (40, 5, n, 3, 1);
        }
    });
    let second = joined(&world, "app-1").unwrap();
    assert!((second.open_s - 19.0 * 40.0 * 0.05).abs() < 1e-9, "{second:?}");
    assert_eq!(second.came.len(), 19);
    let came = Came { arrivals: 5, drops_syn: 7, drops_final_ack: 3, drops_repeated: 1 };
    assert_eq!(second.came[6], (FIRST + 7, came));
}

#[test]
fn what_its_own_windows_say_is_named() {
    let from = |least: u64, change: fn(&mut HostWindow)| {
        taints(move |n, w| {
            if n < least {
                change(w);
            }
        })
    };
    let io = |w: &mut HostWindow| own(w).blocked_io_ns = WINDOW_NS;
    assert_eq!((from(1, io), from(2, io)), (vec![], vec![Taint::Io]), "one window is noise");
    assert_eq!(from(2, |w| own(w).dirty_throttle_ns = WINDOW_NS), [Taint::Memory]);
    assert_eq!(from(2, |w| own(w).swap_ins = 64), [Taint::Memory]);
    assert_eq!(from(1, |w| own(w).stopped_max = 1), [Taint::Stopped]);
    let steal = |w: &mut HostWindow| cpu(w).steal_ns = WINDOW_NS;
    assert_eq!((from(2, steal), from(3, steal)), (vec![], vec![Taint::Steal]), "a twentieth of 40, and more");
    assert_eq!(from(1, |w| w.uncovered = SignalSet::of(["block_io"])), [Taint::NotMeasured]);
    assert_eq!(from(1, |w| w.sampled = SignalSet::of(["cpu"])), [Taint::NotMeasured]);
    assert_eq!(from(1, |w| w.lost_before = 3), [Taint::NotMeasured]);
    assert_eq!(from(20, |w| w.cpu = None), [Taint::NotMeasured]);
    assert!(from(20, |w| w.uncovered = SignalSet::of(["retransmits"])).is_empty());
    let many = |w: &mut HostWindow| {
        w.listeners.entry(1).or_default().multiplexed_connections = 1;
    };
    assert_eq!(from(1, many), [Taint::Multiplexed]);
    let many_below = |w: &mut HostWindow| {
        w.edges.entry(7).or_default().multiplexed_connections = 1;
    };
    assert_eq!(from(1, many_below), [Taint::Multiplexed], "what waits below is not known");
}

#[test]
fn a_quota_that_its_own_load_used_up_is_a_limit_to_learn() {
    let throttled = |busy: u64| {
        move |n: u64, w: &mut HostWindow| {
            // Periods of two windows: the quota is used in the first, and it waits in the second.
            let is_first = n.is_multiple_of(2);
            own(w).busy_ns = if is_first { busy } else { 0 };
            own(w).throttled_ns = Some(if is_first { 0 } else { WINDOW_NS });
        }
    };
    assert!(taints(throttled(2 * WINDOW_NS)).is_empty());
    assert_eq!(taints(throttled(WINDOW_NS)), [Taint::Throttled], "half of its quota: somebody else's limit");
}

#[test]
fn a_neighbour_takes_what_the_workload_waits_for() {
    let busy = |own_busy: u64, wait: u64| {
        move |n: u64, w: &mut HostWindow| {
            if n < 2 {
                cpu(w).busy_ns = 2 * WINDOW_NS;
                own(w).busy_ns = own_busy;
                own(w).wait_ns = wait;
            }
        }
    };
    assert_eq!(taints(busy(WINDOW_NS / 2, WINDOW_NS)), [Taint::Neighbour]);
    assert!(taints(busy(WINDOW_NS / 2, WINDOW_NS / 2)).is_empty(), "nobody waited");
    assert!(taints(busy(WINDOW_NS, 4 * WINDOW_NS)).is_empty(), "it had all that its quota allows");
}

#[test]
fn cpu_time_of_several_is_nobodys() {
    let elsewhere = |answered: u64| {
        move |_: u64, w: &mut HostWindow| {
            w.listeners.insert(2, ListenerWindow { answered, ..ListenerWindow::default() });
        }
    };
    assert_eq!(taints(elsewhere(1)), [Taint::SharedCpu], "a sixth went through the other port");
    assert!(taints(elsewhere(0)).is_empty());
}

#[test]
fn a_tier_below_decides_where_it_is_full_and_most_of_the_requests_wait_for_it() {
    let below = |windows: u64, db_busy: u64, calls: u64| {
        let world = world(move |host, n, w| {
            if n >= windows {
                return;
            }
            match host {
                "db" => {
                    cpu(w).busy_ns = db_busy;
                    if let Some(w) = w.workloads.get_mut(&DB) {
                        w.busy_ns = db_busy;
                    }
                }
                _ => {
                    w.edges
                        .insert(7, EdgeWindow { in_flight_ns: calls, open_max: 9, ..EdgeWindow::default() });
                }
            }
        });
        let second = joined(&world, "app-1").unwrap();
        second.taints.into_iter().collect::<Vec<_>>()
    };
    let full = 2 * WINDOW_NS;
    assert_eq!(below(5, full, 3 * WINDOW_NS / 2), [Taint::Downstream]);
    assert!(below(4, full, 3 * WINDOW_NS / 2).is_empty(), "a fifth of the second is any load's");
    assert!(below(20, WINDOW_NS, 3 * WINDOW_NS / 2).is_empty(), "it had a CPU left");
    assert!(below(20, full, WINDOW_NS).is_empty(), "half of them were its own");
}

#[test]
fn what_calls_took_below_is_what_those_below_count() {
    let below_s = |calls: u64, named: bool| {
        let mut world = world(move |host, _, w| {
            if host == "app-1" {
                // Read late: by the caller's own count they took five times as long.
                let edge =
                    EdgeWindow { answered: calls, in_flight_ns: 20 * WINDOW_NS, ..EdgeWindow::default() };
                w.edges.insert(7, edge);
            }
        });
        if !named {
            world.who = Who::default();
        }
        joined(&world, "app-1").unwrap().below_s
    };
    // 20 ms for each of the database's answers.
    assert!((below_s(10, true).unwrap() - 4.0).abs() < 1e-9);
    assert_eq!(below_s(0, true), Some(0.0), "it called nobody");
    assert_eq!(below_s(10, false), None, "who answers is not observed");
}

#[test]
fn all_connections_in_use_are_a_limit_of_another_pool() {
    let pool = |open_max: u32| {
        taints(move |_, w| {
            let calls = EdgeWindow {
                in_flight_ns: 2 * WINDOW_NS,
                in_flight_max: 8,
                open_max,
                ..EdgeWindow::default()
            };
            w.edges.insert(7, calls);
        })
    };
    assert_eq!(pool(8), [Taint::Downstream]);
    assert!(pool(10).is_empty());
}

#[test]
fn an_incident_of_a_tier_or_of_one_below_it_leaves_its_time_out() {
    let mut world = world(|_, _, _| ());
    let (db, app) = (server("db", "mariadb.service"), server("app-1", "tomcat10.service"));
    let second_ns = 1_000_000_000;
    let start = WindowIndex(FIRST).start_unix_ns();
    let mut with = |root: &Server, resource: Resource, start_unix_ns: u64, open: bool| {
        let span = Span {
            start_unix_ns,
            end_unix_ns: start_unix_ns + 10_000_000,
            open,
            resource,
            root: root.clone(),
            tiers: vec![root.clone()],
        };
        world.incidents = BTreeMap::from([("x".to_owned(), span)]);
        [("app-1", &app), ("db", &db)].map(|(host, _)| !joined(&world, host).unwrap().taints.is_empty())
    };
    assert_eq!(with(&db, Resource::Io, start, false), [true, true]);
    assert_eq!(
        with(&app, Resource::Pause, start, false),
        [true, false],
        "what is above decides nothing below"
    );
    assert_eq!(with(&db, Resource::Io, start - 5 * second_ns, false), [false, false], "over for long");
    assert_eq!(with(&db, Resource::Io, start - 5 * second_ns, true), [true, true], "still open");
    assert_eq!(with(&db, Resource::Io, start + 3 * second_ns, false), [false, false], "not yet");
    assert_eq!(with(&app, Resource::Cpu, start, false), [false, false], "its own load is to be learnt");
    assert_eq!(
        with(&db, Resource::Cpu, start, false),
        [true, false],
        "that of the tier below is not its own"
    );
}

#[test]
fn where_no_cause_was_found_a_second_that_was_full_of_its_own_load_is_learnt() {
    let with = |full_windows: u64| {
        let mut world = world(move |host, n, w| {
            if host == "app-1" && n < full_windows {
                own(w).busy_ns = WINDOW_NS;
            }
        });
        let app = server("app-1", "tomcat10.service");
        let span = Span {
            start_unix_ns: WindowIndex(FIRST).start_unix_ns(),
            end_unix_ns: WindowIndex(FIRST).end_unix_ns(),
            open: true,
            resource: Resource::Unexplained,
            root: app.clone(),
            tiers: vec![app],
        };
        world.incidents = BTreeMap::from([("x".to_owned(), span)]);
        joined(&world, "app-1").unwrap().taints.contains(&Taint::Incident)
    };
    assert_eq!((with(17), with(18)), (true, false), "95 % of its quota, of which other windows use half");
}

#[test]
fn what_nobody_named_or_saw_is_not_joined() {
    let mut world = world(|_, _, _| ());
    assert_eq!(joined(&world, "elsewhere"), Err(Unjoined::NoWindows));
    world.hosts.said(Input::Gone {
        host: "app-1".into(),
        gone: tailwater_model::window::Gone { listeners: vec![1], ..Default::default() },
    });
    assert_eq!(joined(&world, "app-1"), Err(Unjoined::NoName));
    let empty = World { hosts: Hosts::default(), who: Who::default(), incidents: BTreeMap::new() };
    assert_eq!(joined(&empty, "app-1"), Err(Unjoined::NoWindows));
}

#[test]
fn callers_count_the_same_requests_from_their_side() {
    let mut world = world(|host, _, w| {
        if host == "app-1" {
            let calls = EdgeWindow { answered: 5, response_ns: 2 * WINDOW_NS, ..EdgeWindow::default() };
            w.edges.insert(7, calls);
        }
    });
    // app-2 calls the database, too, and its host is not seen: nobody knows all of them.
    assert_eq!(joined(&world, "db").unwrap().by_callers, None);
    let mut view = three_tiers();
    view.edges.retain(|edge| edge.from_host != "app-2");
    world.who.update(&view);
    let of = joined(&world, "db").unwrap().by_callers.unwrap();
    assert_eq!((of.answered, of.own_s), (100, Some(2.0)), "{of:?}");
    assert!((of.time_s - 2.0).abs() < 1e-9);
    // One that calls and was asked for nothing.
    let idle = |host: &str, _, w: &mut HostWindow| {
        if host == "app-1" {
            w.edges.insert(7, EdgeWindow { answered: 5, response_ns: WINDOW_NS, ..EdgeWindow::default() });
            w.listeners.clear();
        }
    };
    let mut batch = self::world(idle);
    batch.who.update(&view);
    assert_eq!(joined(&batch, "db").unwrap().by_callers.unwrap().own_s, None);
}

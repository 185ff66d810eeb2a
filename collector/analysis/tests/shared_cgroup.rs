//! Two servers in one cgroup, whose CPU is told together: each is a tier of its own, and the one that a signal stopped is the root.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use support::{inputs, last_versions, outputs, sim::Trace};
use tailwater_analysis::Config;
use tailwater_model::Incident;
use tailwater_model::incident::Resource;
use tailwater_model::window::{
    Coverage, HostCpu, HostInfo, HostWindow, Input, ListenerInfo, ListenerWindow, WINDOW_NS, WindowIndex,
    WorkloadInfo, WorkloadWindow,
};

const MS: u64 = 1_000_000;
/// The cgroup, and the servers in it.
const ALL: u32 = 1;
const STOPPED: u32 = 2;
const BESIDE: u32 = 3;
const FIRST: u64 = 36_000_000_000;
/// Windows of the stop, from the first one.
const STOP: std::ops::Range<u64> = 200..210;

fn names() -> Vec<Input> {
    let workload = |id, name: &str, shares| WorkloadInfo {
        id,
        cgroup: "/".into(),
        name: name.into(),
        comm: if shares == 0 { String::new() } else { name.into() },
        shares,
        ..WorkloadInfo::default()
    };
    let listener = |id, workload, port, comm: &str| ListenerInfo {
        id,
        workload,
        address: [127, 0, 0, 1].into(),
        port,
        path: None,
        comm: comm.into(),
        pool: None,
        started_with: 0,
        pid: 0,
    };
    let coverage = Coverage {
        cpu: true,
        run_queue: true,
        block_io: true,
        memory: true,
        accept_queue: true,
        requests: true,
        calls: true,
        retransmits: true,
        throttling: true,
        ..Coverage::default()
    };
    vec![
        Input::Host(HostInfo {
            host: "vm".into(),
            agent_instance: "a".into(),
            cpus: 2,
            coverage,
            ..HostInfo::default()
        }),
        Input::Entities {
            host: "vm".into(),
            workloads: vec![
                workload(ALL, "/", 0),
                workload(STOPPED, "http.server", ALL),
                workload(BESIDE, "redis-server", ALL),
            ],
            listeners: vec![
                listener(1, STOPPED, 8099, "http.server"),
                listener(2, BESIDE, 6379, "redis-server"),
            ],
            edges: vec![],
            devices: vec![],
        },
    ]
}

/// A request now and then at the one, fifty a window at the other; in the stop forty clients come to the first at once, while what
/// starts them fills the CPUs.
fn window(n: u64, stopped_ns: Option<u64>) -> HostWindow {
    let stop = STOP.contains(&n);
    let queue = if stop { 6 } else { 0 };
    let one = ListenerWindow {
        limit: 5,
        depth_last: queue,
        depth_max: queue,
        depth_ns: u64::from(queue) * WINDOW_NS,
        arrivals: if n == STOP.start + 1 { 6 } else { u64::from(!stop && n.is_multiple_of(4)) },
        drops: if (STOP.start + 1..STOP.start + 6).contains(&n) { 7 } else { 0 },
        received: u64::from(!stop && n.is_multiple_of(4)),
        answered: u64::from(!stop && n.is_multiple_of(4)),
        ..ListenerWindow::default()
    };
    let other =
        ListenerWindow { limit: 511, received: 50, answered: 50, arrivals: 5, ..ListenerWindow::default() };
    let busy = if stop { 95 * MS } else { 5 * MS };
    let all = WorkloadWindow {
        busy_ns: busy,
        wait_ns: if stop { 100 * MS } else { 0 },
        stopped_ns: Some(0),
        ..WorkloadWindow::default()
    };
    let mut workloads = BTreeMap::from([(ALL, all)]);
    if stop {
        let stopped_max = u32::from(stopped_ns.is_some());
        workloads.insert(STOPPED, WorkloadWindow { stopped_ns, stopped_max, ..WorkloadWindow::default() });
    }
    let capacity_ns = 2 * WINDOW_NS;
    HostWindow {
        host: "vm".into(),
        index: WindowIndex(FIRST + n),
        cpu: Some(HostCpu { capacity_ns, busy_ns: busy, idle_ns: capacity_ns - busy, ..HostCpu::default() }),
        workloads: workloads.into(),
        listeners: [(1, one), (2, other)].into(),
        ..HostWindow::default()
    }
}

fn told(stopped_ns: Option<u64>) -> Incident {
    let trace =
        Trace { names: names(), windows: (0..400).map(|n| window(n, stopped_ns)).collect(), dropped: [0; 4] };
    let incidents = last_versions(&outputs(&Config::default(), inputs(&trace)));
    let [incident] = &incidents[..] else { panic!("one incident: {incidents:#?}") };
    incident.clone()
}

#[test]
fn the_server_that_was_stopped_is_the_root_and_its_neighbour_is_not_in_it() {
    let incident = told(Some(WINDOW_NS));
    let root = &incident.root;
    assert_eq!((root.resource, root.workload.as_str()), (Resource::Pause, "http.server"), "{incident:#?}");
    assert_eq!((root.peak, root.unit.as_str()), (1.0, "threads"));
    assert!(incident.title.contains("http.server@vm:8099 dropped"), "{}", incident.title);
    assert!(incident.title.contains("its thread was stopped by a signal (SIGSTOP)"), "{}", incident.title);
    assert!(incident.hops.iter().all(|h| h.workload == "http.server"), "{:#?}", incident.hops);
}

#[test]
fn an_agent_that_does_not_tell_stops_names_no_signal() {
    let incident = told(None);
    assert_ne!(incident.root.unit, "threads", "{incident:#?}");
    assert!(!incident.title.contains("SIGSTOP"), "{}", incident.title);
}

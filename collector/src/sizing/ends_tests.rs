//! Seconds in which something was always full, and what is said of it: hardware, quotas, and what is neither.

use super::*;
use crate::sizing::who::tests::{server, three_tiers};
use std::sync::Arc;
use tailwater_model::window::{
    HostCpu, HostWindow, Input, ListenerInfo, ListenerWindow, WINDOW_NS, WindowIndex, WorkloadInfo,
    WorkloadWindow,
};

const TIERS: [(&str, &str); 4] = [
    ("web", "apache2.service"),
    ("app-1", "tomcat10.service"),
    ("app-2", "tomcat10.service"),
    ("db", "mariadb.service"),
];

/// Web, two of app and db on two CPUs each, half a CPU in use and 4 requests in flight in each, and `change` made to each window, told
/// by its host and its number.
fn after(seconds: u64, change: impl Fn(&str, u64, &mut HostWindow)) -> (Ends, Who) {
    let (mut hosts, mut who, mut ends) = (Hosts::default(), Who::default(), Ends::default());
    who.update(&three_tiers());
    let web = server(TIERS[0].0, TIERS[0].1);
    for (host, workload) in TIERS {
        let workloads = vec![WorkloadInfo { id: 3, name: workload.into(), ..WorkloadInfo::default() }];
        let listener = ListenerInfo {
            id: 1,
            workload: 3,
            address: "::".parse().unwrap(),
            port: 80,
            path: None,
            comm: String::new(),
            pool: None,
            started_with: 0,
            pid: 0,
        };
        let (edges, devices) = (Vec::new(), Vec::new());
        hosts.said(Input::Entities {
            host: host.into(),
            workloads,
            listeners: vec![listener],
            edges,
            devices,
        });
    }
    for second in 0..seconds {
        let first = 1000 + second * 20;
        for index in first..first + 20 {
            for (host, _) in TIERS {
                let cpu =
                    HostCpu { capacity_ns: 2 * WINDOW_NS, busy_ns: WINDOW_NS / 2, ..HostCpu::default() };
                let index = WindowIndex(index);
                let mut window =
                    HostWindow { host: host.into(), index, cpu: Some(cpu), ..HostWindow::default() };
                let own = WorkloadWindow { busy_ns: WINDOW_NS / 2, ..WorkloadWindow::default() };
                window.workloads.insert(3, own);
                let listener = ListenerWindow { in_flight_ns: 4 * WINDOW_NS, ..ListenerWindow::default() };
                window.listeners.insert(1, listener);
                change(host, index.0 - 1000, &mut window);
                hosts.window(Arc::new(window));
            }
        }
        ends.take(&hosts, &who, &web, first, first + 19);
        ends.take(&hosts, &who, &web, first, first + 19);
    }
    (ends, who)
}

fn full(window: &mut HostWindow) {
    window.workloads.get_mut(&3).unwrap().busy_ns = 2 * WINDOW_NS;
    window.cpu.as_mut().unwrap().busy_ns = 2 * WINDOW_NS;
}

fn blocked(window: &mut HostWindow, tasks: u64) {
    window.workloads.get_mut(&3).unwrap().blocked_io_ns = tasks * WINDOW_NS;
}

#[test]
fn the_hardware_that_is_always_full_is_critical_in_all_servers_of_its_tier() {
    let (ends, who) = after(12, |host, n, window| {
        if host.starts_with("app") && n % 20 != 7 {
            full(window);
        }
    });
    let told = ends.told(&who);
    assert_eq!(told.len(), 1);
    let told = &told[0].1;
    assert_eq!((told.front.as_str(), told.critical.as_deref()), ("apache2@web", Some("CPU of tomcat10")));
    assert!((told.seconds - 12.0).abs() < 0.2, "each second once: {}", told.seconds);
    assert_eq!(
        told.sentence,
        "apache2@web: throughput ends at the CPU of tomcat10, full in 95 % of 12 s in which something was full"
    );
    assert_eq!(ends.several(&who, &server("app-1", "tomcat10.service")), None, "its size is its own");
}

#[test]
fn tiers_that_are_full_by_turns_are_named_and_get_no_size() {
    let (ends, who) = after(20, |host, n, window| match host {
        "app-1" | "app-2" if n % 20 < 9 => full(window),
        "db" if n % 20 >= 12 => blocked(window, 3),
        _ => {}
    });
    let told = &ends.told(&who)[0].1;
    assert_eq!(told.critical, None);
    assert!(told.sentence.contains("no single size is right"), "{}", told.sentence);
    assert!(
        told.sentence.contains("CPU of tomcat10 (45 % of the time), disk of mariadb (40 % of the time)"),
        "{}",
        told.sentence
    );
    for (host, workload) in &TIERS[1..] {
        let several = ends.several(&who, &server(host, workload));
        assert!(matches!(several, Some(Refusal::SeveralCritical { .. })), "{host}: {several:?}");
    }
    assert_eq!(ends.several(&who, &server("web", "apache2.service")), None, "it takes no part");
}

#[test]
fn a_quota_ends_throughput_as_a_cpu_does() {
    // Of 100 ms the quota of half a CPU is used up in the first half, by two CPUs.
    let (ends, who) = after(12, |host, n, window| {
        if host == "db" {
            let own = window.workloads.get_mut(&3).unwrap();
            own.busy_ns = if n % 2 == 0 { WINDOW_NS } else { 0 };
            own.throttled_ns = Some(if n % 2 == 0 { 0 } else { WINDOW_NS });
            own.wait_ns = 2 * WINDOW_NS;
        }
    });
    assert!(ends.told(&who).is_empty(), "a quota that is not known is no capacity: {:?}", ends.told(&who));
}

#[test]
fn a_millibottleneck_ends_no_throughput_and_nothing_from_outside_does() {
    let nothing = |change: &dyn Fn(&str, u64, &mut HostWindow)| {
        let (ends, who) = after(20, change);
        assert!(ends.told(&who).is_empty(), "{:?}", ends.told(&who));
    };
    nothing(&|host, n, window| {
        if host == "app-1" && n % 20 < 10 {
            full(window);
        }
    });
    // A neighbour has the CPUs that the application waits for.
    nothing(&|host, _, window| {
        if host == "app-1" {
            window.cpu.as_mut().unwrap().busy_ns = 2 * WINDOW_NS;
            window.workloads.get_mut(&3).unwrap().wait_ns = 2 * WINDOW_NS;
        }
        if host == "db" {
            full(window);
        }
    });
    // What writes in the background holds no request.
    nothing(&|host, _, window| {
        if host == "db" {
            blocked(window, 1);
        }
    });
    // Windows were lost before one of them: what was full then is not known.
    nothing(&|host, n, window| {
        if host == "app-1" {
            full(window);
        }
        if host == "db" && n % 20 == 3 {
            window.lost_before = 1;
        }
    });
}

#[test]
fn what_was_long_ago_gives_way_to_what_is() {
    let (ends, who) = after(900, |host, n, window| match host {
        "app-1" | "app-2" if n < 300 * 20 => full(window),
        "db" if n >= 300 * 20 => full(window),
        _ => {}
    });
    let told = &ends.told(&who)[0].1;
    assert_eq!(told.critical, None, "an eighth of what counts is still the application's: {}", told.sentence);
    let (ends, who) = after(1500, |host, n, window| match host {
        "app-1" | "app-2" if n < 300 * 20 => full(window),
        "db" if n >= 300 * 20 => full(window),
        _ => {}
    });
    assert_eq!(ends.told(&who)[0].1.critical.as_deref(), Some("CPU of mariadb"));
}

#[test]
fn where_two_are_nearly_full_both_are_named_and_neither_is_critical() {
    // As in the demo's system under more than it can serve.
    let (ends, who) = after(20, |host, n, window| match host {
        "app-1" | "app-2" if n % 20 < 18 => full(window),
        "db" if n % 20 >= 7 => full(window),
        _ => {}
    });
    let told = &ends.told(&who)[0].1;
    let expect = "apache2@web: nothing is critical by itself, of 20 s in which something was full; full was the CPU of tomcat10 in 90 %, the CPU of mariadb in 65 %";
    assert_eq!((told.critical.as_deref(), told.sentence.as_str()), (None, expect));
}

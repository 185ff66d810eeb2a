//! Who takes CPU from whom in seconds that were made up: what is told, what is not, and what came of a change.

use super::*;
use crate::sizing::who::tests::calls;
use std::sync::Arc;
use tailwater_model::window::{HostCpu, Input, ListenerInfo, WorkloadInfo, WorkloadWindow};

const CGROUP: EntityId = 3;
const FIRST: u64 = 1000;

/// Two servers at ports 81 and 82 of one host with one CPU.
struct World {
    hosts: Hosts,
    who: Who,
    stealing: Stealing,
    second: u64,
    /// CPUs of the host, if they are not one, and whether each workload is throttled.
    quota: Option<(u64, bool)>,
}

fn entities(workloads: [(EntityId, &str, EntityId); 2]) -> Input {
    let shared =
        WorkloadInfo { id: CGROUP, name: "shop".into(), cgroup: "/shop".into(), ..WorkloadInfo::default() };
    let own = workloads.map(|(id, name, shares)| WorkloadInfo {
        id,
        name: name.into(),
        cgroup: name.into(),
        shares,
        ..WorkloadInfo::default()
    });
    let listener = |(n, (workload, ..)): (u16, (EntityId, &str, EntityId))| ListenerInfo {
        id: u32::from(n),
        workload,
        address: "::".parse().unwrap(),
        port: 80 + n,
        path: None,
        comm: String::new(),
        pool: None,
        started_with: 0,
        pid: 0,
    };
    Input::Entities {
        host: "app".into(),
        workloads: std::iter::once(shared).chain(own).collect(),
        listeners: (1..).zip(workloads).map(listener).collect(),
        edges: Vec::new(),
        devices: Vec::new(),
    }
}

impl World {
    fn new() -> Self {
        let mut hosts = Hosts::default();
        hosts.said(entities([(11, "a", CGROUP), (12, "b", CGROUP)]));
        Self { hosts, who: Who::default(), stealing: Stealing::default(), second: 0, quota: None }
    }

    /// A second in which these workloads ran and waited for so many CPUs, of which the host has one unless `quota` says otherwise.
    fn windows(&mut self, of: &[(EntityId, f64, f64)]) -> u64 {
        let first = FIRST + self.second * 20;
        self.second += 1;
        for index in first..first + 20 {
            let ns = |part: f64| (part * WINDOW_NS as f64) as u64;
            let busy_ns = of.iter().map(|(_, ran, _)| ns(*ran)).sum();
            let (cpus, throttled) = self.quota.unwrap_or((1, false));
            let cpu = HostCpu { capacity_ns: cpus * WINDOW_NS, busy_ns, ..HostCpu::default() };
            let mut window = HostWindow {
                host: "app".into(),
                index: WindowIndex(index),
                cpu: Some(cpu),
                ..HostWindow::default()
            };
            for (id, ran, waited) in of {
                let own = WorkloadWindow {
                    busy_ns: ns(*ran),
                    wait_ns: ns(*waited),
                    throttled_ns: Some(if throttled { ns(0.5) } else { 0 }),
                    ..WorkloadWindow::default()
                };
                window.workloads.insert(*id, own);
            }
            self.hosts.window(Arc::new(window));
        }
        first + 19
    }

    /// A second in which the windows have these rows, and a look says what each of those who share had of the CPU and how long it waited.
    fn looked(&mut self, rows: &[(EntityId, f64, f64)], of: &[(EntityId, &str, (f64, f64))]) {
        let last = self.windows(rows);
        let one = |(workload, comm, (ran, waited)): &(EntityId, &str, (f64, f64))| CpuShare {
            workload: *workload,
            comm: (*comm).to_owned(),
            ran_ns: (ran * 1e9) as u64,
            waited_ns: (waited * 1e9) as u64,
            threads: 20,
        };
        let shares = HostShares {
            host: "app".into(),
            last: WindowIndex(last),
            span_ns: 1_000_000_000,
            workload: CGROUP,
            neighbours: of.iter().map(one).collect(),
        };
        assert!(self.stealing.take(&self.hosts, &self.who, &shares));
        self.stealing.check(&self.hosts);
    }

    /// Seconds in which both share the cgroup, each with its part of the CPU and threads that wait.
    fn shared(&mut self, seconds: u64, a: (f64, f64), b: (f64, f64)) {
        for _ in 0..seconds {
            self.looked(&[(CGROUP, a.0 + b.0, a.1 + b.1)], &[(11, "", a), (12, "", b)]);
        }
    }

    fn told(&self) -> Option<StealingAdvice> {
        let told = self.stealing.told();
        assert!(told.len() < 2, "{told:?}");
        told.into_iter().next()
    }
}

#[test]
fn who_has_more_threads_takes_cpu_and_the_line_says_what_to_do() {
    let mut world = World::new();
    world.shared(9, (0.2, 3.8), (0.8, 15.2));
    assert_eq!(world.told(), None, "nine seconds are too few");
    world.shared(1, (0.2, 3.8), (0.8, 15.2));
    let told = world.told().unwrap();
    assert_eq!((told.thief.as_str(), told.victim.as_str(), told.thief_runnable_max), ("b", "a", 4));
    assert_eq!(
        told.sentence,
        "b@app takes CPU from a, which the scheduler has in the same group (/shop): a has 20 % of 1.0 CPUs where 50 % are due, and lacks up to 30 %, because \
         16.0 threads of b want to run, and 4.0 of its own; let no more than 4 threads of b run at a time, or give each a cgroup, with equal weights, so that it is \
         not shared by threads (measured, 10 s of full CPUs)"
    );
    assert_eq!(told.after, None);
}

#[test]
fn equals_take_nothing_and_where_cpus_are_left_nobody_lacks_any() {
    let mut world = World::new();
    world.shared(60, (0.5, 8.0), (0.5, 8.0));
    assert_eq!(world.told(), None);
    let mut world = World::new();
    world.shared(60, (0.1, 3.8), (0.6, 15.2));
    assert_eq!(world.told(), None, "0.3 CPUs are left");
    // A program that is content is no victim.
    let mut world = World::new();
    world.shared(60, (0.1, 0.1), (0.9, 15.2));
    assert_eq!(world.told(), None);
}

#[test]
fn a_smaller_pool_is_seen_to_help() {
    let mut world = World::new();
    world.shared(30, (0.2, 3.8), (0.8, 15.2));
    world.shared(120, (0.5, 3.5), (0.5, 3.5));
    let told = world.told().unwrap();
    assert_eq!(told.after.as_deref(), Some("fixed"));
    assert!(told.sentence.ends_with("; since then a has what is due to it"), "{}", told.sentence);
    // It comes back: what is so now is told.
    world.shared(120, (0.2, 3.8), (0.8, 15.2));
    assert_eq!(world.told().unwrap().after, None);
}

#[test]
fn cgroups_of_their_own_are_seen_to_help_though_nobody_tells_threads_apart_any_more() {
    let mut world = World::new();
    world.shared(30, (0.2, 3.8), (0.8, 15.2));
    world.hosts.said(entities([(21, "a.service", 0), (22, "b.service", 0)]));
    let mut check = |seconds, a: (f64, f64), b: (f64, f64)| {
        for _ in 0..seconds {
            world.windows(&[(21, a.0, a.1), (22, b.0, b.1)]);
            world.stealing.check(&world.hosts);
        }
        world.told().unwrap().after
    };
    assert_eq!(check(30, (0.2, 0.0), (0.4, 0.0)), None, "where CPUs are left nothing is known");
    assert_eq!(check(8, (0.5, 3.5), (0.5, 15.5)), None, "too short");
    assert_eq!(check(20, (0.5, 3.5), (0.5, 15.5)).as_deref(), Some("fixed"));
    assert_eq!(check(200, (0.3, 3.5), (0.7, 15.5)).as_deref(), Some("better"), "with other weights");
    assert_eq!(check(200, (0.15, 3.5), (0.85, 15.5)).as_deref(), Some("unchanged"));
}

#[test]
fn who_is_idle_while_the_other_waits_lacks_nothing() {
    let mut world = World::new();
    world.shared(30, (0.5, 9.5), (0.5, 9.5));
    // One stops, or both take turns.
    world.shared(60, (0.0, 0.0), (1.0, 19.0));
    for _ in 0..60 {
        world.shared(1, (1.0, 3.0), (0.0, 0.0));
        world.shared(1, (0.0, 0.0), (1.0, 15.0));
    }
    assert_eq!(world.told(), None);
    // One that was found holds while nothing says otherwise.
    world.shared(30, (0.2, 3.8), (0.8, 15.2));
    world.shared(60, (0.0, 0.0), (1.0, 15.0));
    let told = world.told().unwrap();
    assert_eq!((told.thief.as_str(), told.after), ("b", None));
}

#[test]
fn what_is_told_is_the_worst_of_it_and_what_came_since() {
    let mut world = World::new();
    world.shared(30, (0.2, 3.8), (0.8, 15.2));
    world.shared(10, (0.4, 3.6), (0.6, 5.4));
    let told = world.told().unwrap();
    assert_eq!(told.after.as_deref(), Some("better"));
    assert!(told.victim_ratio < 0.21 && told.thief_runnable_max == 4, "{told:?}");
    world.shared(60, (0.2, 3.8), (0.8, 15.2));
    assert_eq!(world.told().unwrap().after, None, "it is so again");
    // Who has less now is another one.
    world.shared(60, (0.8, 15.2), (0.2, 3.8));
    let told = world.told().unwrap();
    assert_eq!((told.thief.as_str(), told.after), ("a", None));
}

#[test]
fn services_in_one_group_are_told_of_and_what_goes_on_is_no_failed_remedy() {
    let mut world = World::new();
    world.hosts.said(entities([(21, "a.service", 0), (22, "b.service", 0)]));
    for _ in 0..60 {
        world.looked(&[(21, 0.2, 3.8), (22, 0.8, 15.2)], &[(21, "", (0.2, 3.8)), (22, "", (0.8, 15.2))]);
    }
    let told = world.told().unwrap();
    assert_eq!((told.thief.as_str(), told.victim.as_str(), told.after), ("b.service", "a.service", None));
    assert!(
        told.sentence.contains("or give each a weight of its own (CPUWeight=100) so that"),
        "{}",
        told.sentence
    );
    // What ended between two looks had the rest: then it is not known whose the CPU was.
    let mut world = World::new();
    world.hosts.said(entities([(21, "a.service", 0), (22, "b.service", 0)]));
    for _ in 0..60 {
        world.looked(&[(21, 0.1, 3.8), (22, 0.9, 15.2)], &[(21, "", (0.1, 3.8)), (22, "", (0.4, 15.2))]);
    }
    assert_eq!(world.told(), None);
}

#[test]
fn a_quota_of_the_whole_group_is_used_up_by_all_of_it() {
    // Of two CPUs the slice may use one; a window in which it is throttled follows one in which it used twice its part.
    let told = |used: f64, throttled: bool| {
        let mut world = World::new();
        world.hosts.said(entities([(21, "a.service", 0), (22, "b.service", 0)]));
        let quota = WorkloadInfo {
            id: CGROUP,
            name: "shop".into(),
            cgroup: "/shop".into(),
            cpu_quota_ns: WINDOW_NS,
            ..WorkloadInfo::default()
        };
        world.hosts.said(Input::Entities {
            host: "app".into(),
            workloads: vec![quota],
            listeners: Vec::new(),
            edges: Vec::new(),
            devices: Vec::new(),
        });
        for _ in 0..30 {
            let (a, b) = (0.2 * used, 0.8 * used);
            world.quota = Some((2, throttled));
            world.looked(&[(21, a, 3.8), (22, b, 15.2)], &[(21, "", (a, 3.8)), (22, "", (b, 15.2))]);
        }
        world.told().is_some()
    };
    assert_eq!([told(1.0, false), told(0.8, false), told(0.8, true)], [true, false, true]);
}

#[test]
fn neither_a_program_that_is_no_server_nor_one_of_a_chain_is_a_victim() {
    let mut world = World::new();
    for _ in 0..60 {
        let (few, many) = ((0.2, 3.8), (0.8, 15.2));
        world.looked(&[(CGROUP, 1.0, 19.0)], &[(CGROUP, "gzip", few), (12, "", many)]);
    }
    assert_eq!(world.told(), None, "a batch job");
    for _ in 0..60 {
        let (few, many) = ((0.2, 3.8), (0.8, 15.2));
        world.looked(&[(CGROUP, 1.0, 19.0)], &[(11, "", few), (CGROUP, "gzip", many)]);
    }
    assert_eq!(world.told().map(|of| of.thief).as_deref(), Some("gzip"), "it takes from a server");

    // Of servers that share a cgroup calls are told of that.
    for from in ["b", "shop"] {
        let mut world = World::new();
        world.who = calls(("app", from), ("app", "a"));
        world.shared(60, (0.2, 3.8), (0.8, 15.2));
        assert_eq!(world.told(), None, "requests need so much of each");
    }
    let mut world = World::new();
    world.who = calls(("app", "shop"), ("app", "elsewhere"));
    world.shared(60, (0.2, 3.8), (0.8, 15.2));
    assert!(world.told().is_some());
}

#[test]
fn of_a_victim_that_is_gone_or_idle_nothing_is_said_since() {
    let mut world = World::new();
    world.shared(30, (0.2, 3.8), (0.8, 15.2));
    for a in [None, Some((0.01, 0.0))] {
        for _ in 0..60 {
            let mut of = vec![(12, "", (0.5, 9.0)), (CGROUP, "third", (0.5, 9.0))];
            of.extend(a.map(|a| (11, "", a)));
            world.looked(&[(CGROUP, 1.0, 18.0)], &of);
        }
        let told = world.told().unwrap();
        assert_eq!((told.victim.as_str(), told.after), ("a", None));
        assert!(told.seen_unix_ns < WindowIndex(FIRST + 700).end_unix_ns(), "it was so long ago");
    }
}

#[test]
fn who_takes_it_now_is_told_in_place_of_who_is_gone() {
    let mut world = World::new();
    world.shared(30, (0.2, 3.8), (0.8, 15.2));
    for _ in 0..90 {
        world.looked(&[(CGROUP, 1.0, 19.0)], &[(11, "", (0.23, 3.8)), (CGROUP, "third", (0.77, 15.2))]);
    }
    assert_eq!(world.told().unwrap().thief, "third");
    // It turns out to ask the other one for what it does.
    world.who = calls(("app", "shop"), ("app", "a"));
    world.looked(&[(CGROUP, 1.0, 19.0)], &[(11, "", (0.23, 3.8)), (CGROUP, "third", (0.77, 15.2))]);
    assert_eq!(world.told(), None);
}

#[test]
fn what_was_seen_long_ago_says_nothing_of_now_and_names_are_bounded() {
    let mut world = World::new();
    world.shared(9, (0.2, 3.8), (0.8, 15.2));
    world.second += STALE_WINDOWS / 20 + 1;
    world.shared(9, (0.2, 3.8), (0.8, 15.2));
    assert_eq!(world.told(), None);
    let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let of: Vec<_> = names.iter().map(|name| (CGROUP, name.as_str(), (0.01, 1.0))).collect();
    for _ in 0..20 {
        world.looked(&[(CGROUP, 1.0, 100.0)], &of);
    }
    let sums = &world.stealing.by_place.values().next().unwrap().sums;
    assert_eq!(sums.of.len(), NEIGHBOURS_MAX);
}

#[test]
fn what_is_remembered_is_bounded_and_forgotten() {
    let mut world = World::new();
    world.shared(30, (0.2, 3.8), (0.8, 15.2));
    world.stealing.forget(FIRST + 600);
    assert!(world.told().is_some());
    let mut fair = World::new();
    fair.shared(30, (0.5, 3.5), (0.5, 3.5));
    assert_eq!(fair.stealing.by_place.len(), 1);
    fair.stealing.forget(FIRST + 600 + FORGET_NOTHING_WINDOWS);
    assert_eq!(fair.stealing.by_place.len(), 0);
    world.stealing.forget(FIRST + 600 + FORGET_WINDOWS);
    assert_eq!(world.told(), None);

    let mut many = Stealing::default();
    for host in 0..CGROUPS_MAX {
        for cgroup in 0..CGROUPS_OF_HOST_MAX + 3 {
            let place = (host.to_string(), cgroup.to_string());
            let newest = (host * 100 + cgroup) as u64;
            many.by_place.insert(place.clone(), Cgroup { newest, ..Cgroup::default() });
            many.make_room(&place);
        }
    }
    assert_eq!(many.by_place.len(), CGROUPS_MAX);
    let newest = (CGROUPS_MAX - 1).to_string();
    assert_eq!(many.by_place.keys().filter(|place| place.0 == newest).count(), CGROUPS_OF_HOST_MAX);
}

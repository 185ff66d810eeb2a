//! What is told beside a root: packets that were lost on its way, servers that were started anew, accept queues and CPU quotas whose limit was
//! changed, and what the kernel counted; and nothing where none of that was.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{At, Do, Sim, Trace};
use support::{inputs, last_versions, outputs};
use tailwater_analysis::Config;
use tailwater_model::Incident;
use tailwater_model::civil::Civil;
use tailwater_model::incident::Resource;
use tailwater_model::window::{
    Blocker, Blocking, Input, KernelCount, KernelCounter, ListenerInfo, LockedThreads, LockingThread,
    WorkloadInfo,
};

/// A database that stands still for 600 ms, which has the web tier drop.
fn paused() -> Trace {
    Sim::default().act(At::Db, 6000..6600, Do::Pause).run()
}

fn told(trace: &Trace) -> Incident {
    let all = last_versions(&outputs(&Config::default(), inputs(trace)));
    all.into_iter().find(|incident| !incident.drops.is_empty()).unwrap()
}

/// Milliseconds after the first window at which a window begins.
fn ms(trace: &Trace, index: u64) -> u64 {
    50 * (index - trace.windows.first().unwrap().index.0)
}

/// The database's names, changed.
fn db_names(trace: &Trace, change: impl FnOnce(&mut [WorkloadInfo], &mut [ListenerInfo])) -> Input {
    let of_db = |input: &&Input| matches!(input, Input::Entities { host, .. } if host == "db-1");
    let mut names = trace.names.iter().find(of_db).unwrap().clone();
    if let Input::Entities { workloads, listeners, .. } = &mut names {
        change(workloads, listeners);
    }
    names
}

/// What is told beside the root where the database's agent tells each of these names before its window at that many milliseconds.
fn told_with_names(trace: &Trace, told: &[(u64, Input)]) -> Vec<String> {
    let mut all = Vec::new();
    for input in inputs(trace) {
        if let Input::Window(window) = &input
            && window.host == "db-1"
        {
            let now = ms(trace, window.index.0);
            all.extend(told.iter().filter(|(at, _)| *at == now).map(|(_, names)| names.clone()));
        }
        all.push(input);
    }
    let incidents = last_versions(&outputs(&Config::default(), all));
    incidents.into_iter().find(|incident| !incident.drops.is_empty()).unwrap().context
}

#[test]
fn segments_that_are_lost_between_two_tiers_are_told_once_and_those_that_a_full_queue_dropped_are_not() {
    let first = paused().windows.first().unwrap().index.0;
    let lossy = |host: &str, every: bool| {
        let mut trace = paused();
        let windows: Vec<u64> = trace.windows.iter().map(|w| ms(&trace, w.index.0)).collect();
        for (window, ms) in trace.windows.iter_mut().zip(windows) {
            if window.host == host && (every || (5_900..6_600).contains(&ms)) {
                window.edges.values_mut().for_each(|edge| edge.data_retransmits = 3);
            }
        }
        told(&trace)
    };
    assert_eq!(told(&paused()).context, [""; 0]);
    let lost = lossy("app-1", false);
    let [clause] = lost.context.as_slice() else { panic!("{:#?}", lost.context) };
    assert!(clause.contains("from java@app-1 to mariadbd@db-1 were sent again"), "{clause}");
    assert_eq!(lost.root.host, "db-1");
    assert_eq!(lossy("app-1", true).context, [""; 0], "as many as ever");
    // Nor is more known of a database that no agent sees.
    let sim = Sim { observed: [true, true, false], ..Sim::default() };
    let trace = sim.act(At::Db, 6000..6600, Do::Unreached).run();
    let unseen = told(&trace);
    assert_eq!((unseen.root.host.as_str(), unseen.root.resource), ("10.0.0.3", Resource::Unexplained));
    let [clause] = unseen.context.as_slice() else { panic!("{:#?}", unseen.context) };
    assert!(clause.contains("from java@app-1 to 10.0.0.3 were sent again"), "{clause}");
    // What an event-driven front sends to an application that drops it is told as drops.
    let sim = Sim { web_workers: None, ..Sim::default() }.act(At::App, 6000..6900, Do::Pause);
    let mut trace = sim.run();
    trace.windows.iter_mut().filter(|window| window.host == "web-1").for_each(|window| {
        let late = window.index.0 >= first + 118;
        window.edges.values_mut().for_each(|edge| edge.data_retransmits = if late { 3 } else { 0 });
    });
    let dropped = told(&trace);
    assert!(dropped.drops.iter().any(|drops| drops.host == "app-1"), "{dropped:#?}");
    assert_eq!(dropped.context, [""; 0]);
}

#[test]
fn a_limit_that_was_changed_before_a_drop_is_told() {
    let mut trace = paused();
    let windows: Vec<u64> = trace.windows.iter().map(|w| ms(&trace, w.index.0)).collect();
    for (window, ms) in trace.windows.iter_mut().zip(windows) {
        if window.host == "web-1" && ms >= 4_000 {
            window.listeners.values_mut().filter(|l| l.limit > 0).for_each(|l| l.limit /= 2);
        }
    }
    let incident = told(&trace);
    let [clause] = incident.context.as_slice() else { panic!("{:#?}", incident.context) };
    assert!(clause.starts_with("the accept queue of apache2@web-1 was set from"), "{clause}");
    // By the end of the window in which it was first seen.
    let seen = trace.windows.first().unwrap().index.0 * 50_000_000 + 4_050_000_000;
    assert!(clause.ends_with(&Civil::of(seen).time_ms()), "{clause}");
}

#[test]
fn a_server_that_was_started_anew_before_a_drop_is_told_and_one_whose_process_becomes_known_is_not() {
    let trace = paused();
    let told_as = |before: (u32, u64), after: (u32, u64)| {
        let names = |of: (u32, u64)| {
            db_names(&trace, |_, listeners| {
                listeners.iter_mut().for_each(|listener| (listener.pid, listener.started_with) = of);
            })
        };
        told_with_names(&trace, &[(1_000, names(before)), (4_000, names(after))])
    };
    let told = |before, after| told_as((before, 0), (after, 0));
    let anew = told(102, 77);
    let [clause] = anew.as_slice() else { panic!("{anew:#?}") };
    assert!(clause.starts_with("another process began to listen as mariadbd@db-1 before "), "{clause}");
    assert_eq!(told(102, 102), [""; 0]);
    assert_eq!(told(0, 77).len(), 1, "which one it is was not known for a while");
    let ends = |before, after, end: &str| {
        let told = told_as((102, before), (77, after));
        assert!(told[0].ends_with(end), "{told:?}");
    };
    ends(5, 6, ", of another program, with other arguments or in another folder, as after a deploy");
    ends(5, 5, ", as after a restart");
    ends(0, 6, ", as after a restart");
}

#[test]
fn what_the_kernel_counted_around_an_onset_is_told_and_what_it_always_counts_is_not() {
    let told = |host: &str, counter: KernelCounter, count: u64, at: &dyn Fn(u64) -> bool| {
        let mut trace = paused();
        let windows: Vec<u64> = trace.windows.iter().map(|w| ms(&trace, w.index.0)).collect();
        for (window, ms) in trace.windows.iter_mut().zip(windows) {
            if window.host == host && at(ms) {
                window.kernel_counts = vec![KernelCount { counter, count, windows: 20, windows_ago: 1 }];
            }
        }
        told(&trace).context
    };
    let once = |ms: u64| ms == 6_500;
    for host in ["web-1", "app-1", "db-1"] {
        let clauses = told(host, KernelCounter::ConntrackDropped, 30, &once);
        let [clause] = clauses.as_slice() else { panic!("{host}: {clauses:#?}") };
        let begins = format!("connection tracking of {host} dropped packets, ");
        // The second that ended with the window before.
        let first = paused().windows.first().unwrap().index.0;
        let [from, to] = [first + 110, first + 130].map(|index| Civil::of(index * 50_000_000).time_ms());
        let ends = format!(": 30 from {from} to {to}");
        assert!(clause.starts_with(&begins) && clause.ends_with(&ends), "{clause}: {begins}… {ends}");
    }
    let nothing = |count: u64, at: &dyn Fn(u64) -> bool| {
        assert_eq!(told("db-1", KernelCounter::ConntrackDropped, count, at), [""; 0], "{count}");
    };
    nothing(3, &once);
    nothing(30, &|ms| ms == 2_500);
    nothing(30, &|ms| ms % 1_000 == 500);
    // Of some of them a few are no news.
    assert_eq!(told("db-1", KernelCounter::BacklogSqueezed, 15, &once), [""; 0]);
    assert_eq!(told("db-1", KernelCounter::TcpMemoryShort, 1, &once).len(), 1);
    assert_eq!(told("elsewhere", KernelCounter::TcpMemoryShort, 1, &once), [""; 0]);
}

#[test]
fn a_machine_that_stood_or_whose_clock_was_set_is_told() {
    let told = |host: &str, at: u64, set: bool| {
        let mut trace = paused();
        let windows: Vec<u64> = trace.windows.iter().map(|w| ms(&trace, w.index.0)).collect();
        for (window, ms) in trace.windows.iter_mut().zip(windows) {
            if window.host == host && ms == at {
                (window.clock_corrected, window.lost_before) = (set, if set { 0 } else { 70 });
            }
        }
        told(&trace).context
    };
    let first = paused().windows.first().unwrap().index.0;
    let time = Civil::of((first + 110) * 50_000_000).time_ms();
    let set = format!("the clock of db-1 was set at about {time}, as after a pause of its machine");
    assert_eq!(told("db-1", 5_500, true), [set]);
    let lost = told("web-1", 5_500, false);
    let [clause] = lost.as_slice() else { panic!("{lost:#?}") };
    let begins = format!("the agent of web-1 did not run for 3500 ms and more before {time}, ");
    assert!(clause.starts_with(&begins), "{clause}");
    assert_eq!(told("db-1", 3_500, true), [""; 0], "long before");
    assert_eq!(told("db-1", 9_500, false), [""; 0], "after it all");
}

/// A database in which all wait for a lock, asked while they do; and one that was asked when they did not any more.
#[test]
fn what_a_database_said_of_its_locks_is_told_with_the_root() {
    let told = |blocking: Option<Blocking>, at: u64| {
        let mut trace = Sim::default().act(At::Db, 6000..6600, Do::Lock).run();
        let windows: Vec<u64> = trace.windows.iter().map(|w| ms(&trace, w.index.0)).collect();
        for (window, ms) in trace.windows.iter_mut().zip(windows) {
            if window.host == "db-1" && ms == at {
                let listener = *window.listeners.keys().next().unwrap();
                window.blockings =
                    blocking.clone().map(|of| Blocking { listener, ..of }).into_iter().collect();
            }
        }
        told(&trace)
    };
    let by = Blocker {
        connection: 4242,
        waiting: 13,
        idle: true,
        held_ms: Some(640),
        statement: "UPDATE a SET b = ?".to_owned(),
    };
    let of = Blocking { listener: 0, windows_ago: 1, waiting: 14, blockers: vec![by] };
    let plain = told(None, 0);
    assert_eq!((plain.root.resource, plain.root.locks.as_ref()), (Resource::Lock, None), "{plain:#?}");
    let incident = told(Some(of.clone()), 6_300);
    let locks = incident.root.locks.as_ref().unwrap();
    assert_eq!((locks.waiting, locks.holder.as_ref().unwrap().connection), (14, 4242));
    let clause = "; 13 of its sessions waited for connection 4242, which, in a transaction of 640 ms, asked nothing after `UPDATE a SET b = ?`. ";
    assert!(incident.root.evidence.contains(clause), "{}", incident.root.evidence);
    assert!(incident.do_now.as_ref().is_some_and(|now| now.starts_with("end connection 4242 of ")));
    let late = told(Some(Blocking { waiting: 0, blockers: Vec::new(), ..of.clone() }), 6_300);
    assert!(late.root.evidence.contains("it said that nobody waited"), "{}", late.root.evidence);
    assert_eq!(late.do_now, plain.do_now);
    let later = told(Some(of), 7_500);
    assert_eq!(later.root.locks, None, "of another time");
}

/// A server whose threads wait for a mutex, which was looked at while they did, and at another time.
#[test]
fn which_thread_held_a_mutex_is_told_with_the_root() {
    let told = |locked: Option<LockedThreads>, at: u64| {
        let mut trace = Sim::default().act(At::Db, 6000..6600, Do::Lock).run();
        let windows: Vec<u64> = trace.windows.iter().map(|w| ms(&trace, w.index.0)).collect();
        for (window, ms) in trace.windows.iter_mut().zip(windows) {
            if window.host == "db-1" && ms == at {
                let listener = *window.listeners.keys().next().unwrap();
                let locked = locked.clone().map(|of| LockedThreads { listener, ..of });
                window.locked_threads.extend(locked);
            }
        }
        told(&trace)
    };
    let by = LockingThread {
        thread: 4242,
        comm: "flush".to_owned(),
        runs: false,
        slept_in: "do_fsync".to_owned(),
    };
    let of = LockedThreads { listener: 0, windows_ago: 1, waiting: 14, threads: 16, holder: Some(by) };
    let plain = told(None, 0);
    assert_eq!((plain.root.resource, plain.root.lock.as_ref()), (Resource::Lock, None), "{plain:#?}");
    let incident = told(Some(of.clone()), 6_300);
    let clause = "; 14 of its 16 threads waited for one mutex; thread `flush` (4242) held it and slept in `do_fsync`. ";
    assert!(incident.root.evidence.contains(clause), "{}", incident.root.evidence);
    assert!(incident.do_now.as_ref().is_some_and(|now| now.contains("thread 4242 (`flush`) of ")));
    let unknown = told(Some(LockedThreads { holder: None, ..of.clone() }), 6_300);
    assert!(unknown.root.evidence.contains("who held it is not known"), "{}", unknown.root.evidence);
    assert_eq!(unknown.do_now, plain.do_now);
    assert_eq!(told(Some(of), 7_500).root.lock, None, "of another time");
}

#[test]
fn a_quota_that_was_changed_around_an_onset_is_told_and_one_that_was_changed_long_before_is_not() {
    let trace = paused();
    let told = |before: u64, after: u64, at: u64| {
        let names = |ns| {
            db_names(&trace, |workloads, _| {
                workloads.iter_mut().for_each(|workload| workload.cpu_quota_ns = ns);
            })
        };
        told_with_names(&trace, &[(50, names(before)), (at, names(after))])
    };
    let changed = told(0, 15_000_000, 5_500);
    let [clause] = changed.as_slice() else { panic!("{changed:#?}") };
    assert!(
        clause.starts_with("the CPU quota of mariadbd@db-1 was set from none to 0.30 CPUs before "),
        "{clause}"
    );
    assert_eq!(told(0, 15_000_000, 6_800).len(), 1, "agents look at it once a second");
    assert_eq!(told(15_000_000, 15_000_000, 5_500), [""; 0]);
    assert_eq!(told(0, 15_000_000, 700), [""; 0], "more than five seconds before");
    assert_eq!(told(0, 15_000_000, 9_000), [""; 0], "after it all");
}

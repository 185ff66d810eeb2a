//! The scheduler signal against the kernel's own accounts: real processes in real cgroups, as root.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod kernel;

use kernel::{Cgroup, Drained, Spinner, attach_config, epoch_offset_ns, proc_stat_busy_ns, unix_ns};
use std::path::Path;
use std::time::Duration;
use tailwater_agent::attach::loader::{AttachConfig, KernelBtf};
use tailwater_agent::name::cgroup::Mounts;
use tailwater_agent::name::workload::Entities;
use tailwater_agent::sample::sched::SchedSignal;
use tailwater_agent::sample::shares::Shares;
use tailwater_agent::signal::SignalSource;
use tailwater_agent::window::{CgroupId, CulpritResource, ListenerKey, TaskSample, WINDOW_NS, Window};

/// At 250 Hz; a faster tick errs less.
const TICK_NS: u64 = 4_000_000;
const WINDOW: Duration = Duration::from_nanos(WINDOW_NS);

fn attach(btf: &KernelBtf, workloads_max: u32) -> SchedSignal {
    SchedSignal::attach(&attach_config(btf, workloads_max)).expect("the scheduler signal attaches as root")
}

fn tasks_of(windows: &[Window], id: CgroupId) -> Vec<TaskSample> {
    let of = |w: &Window| w.tasks.as_ref().unwrap().iter().find(|(c, _)| *c == id).map(|(_, t)| *t);
    windows.iter().map(|w| of(w).unwrap_or_default()).collect()
}

fn within(what: &str, measured: u64, expected: u64, ratio: f64, floor_ns: u64) {
    let error = measured.abs_diff(expected);
    assert!(
        error <= (expected as f64 * ratio) as u64 + floor_ns,
        "{what}: measured {measured}, expected {expected}, off by {error}"
    );
}

/// All of `tasks` were runnable all the time: on CPU or waiting. A little is neither: what the hypervisor stole, which the
/// kernel tells at the next switch, and what the scheduler spent between two tasks.
fn all_runnable(windows: &[Window], id: CgroupId, tasks: u64) {
    let samples = tasks_of(windows, id);
    for (i, sample) in samples.iter().enumerate() {
        let around = &windows[i.saturating_sub(1)..windows.len().min(i + 2)];
        let steal_ns: u64 = around.iter().map(|w| w.machine_cpu.unwrap().steal_ns).sum();
        let (sum, all) = (sample.busy_ns + sample.wait_ns, tasks * WINDOW_NS);
        assert!(
            sum <= all + all / 200 && sum + WINDOW_NS / 8 + steal_ns >= all,
            "window {i} of {}: busy {} and waiting {} of {all}, stolen {steal_ns}",
            samples.len(),
            sample.busy_ns,
            sample.wait_ns
        );
    }
}

#[test]
fn privileged_busy_time_equals_the_kernels_accounts() {
    kernel::experiment("busy time", busy_time);
}

fn busy_time() {
    let btf = KernelBtf::read().unwrap();
    let group = Cgroup::new("busy");
    let mut signal = attach(&btf, 64);
    let mut drained = Drained::from_now();
    std::thread::sleep(WINDOW);
    let before = (proc_stat_busy_ns(), unix_ns());
    // Spins, and sleeps now and then: long intervals without a switch, and short ones.
    let script = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.02; done";
    let spinner = Spinner::start(&group, script, &[0]);
    let mut windows = Vec::new();
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(100));
        windows.extend(drained.until_now(&mut signal));
    }
    spinner.stop();
    let usage = group.cpu_usage_ns();
    let after = (proc_stat_busy_ns(), unix_ns());
    std::thread::sleep(WINDOW * 2);
    windows.extend(drained.until_now(&mut signal));
    // The cgroup's whole life lies inside the windows.
    let busy: u64 = tasks_of(&windows, group.id()).iter().map(|t| t.busy_ns).sum();
    assert!(usage > 200_000_000, "the burner ran: {usage}");
    // What the hypervisor stole meanwhile the kernel takes off its accounts at moments of its own.
    let stolen: u64 = windows.iter().map(|w| w.machine_cpu.unwrap().steal_ns).sum();
    println!("busy {busy}, the kernel's account {usage}, stolen {stolen}");
    within("busy of the workload", busy, usage, 0.01, stolen);
    // The kernel's user and system times of a CPU are sampled at its tick, and its accounts were read inside a window: they lie
    // between the windows that are wholly inside the interval and those that touch it.
    let host = |first: u64, end: u64| -> u64 {
        let inside = windows.iter().filter(|w| w.index.0 >= first && w.index.0 < end);
        inside.map(|w| w.machine_cpu.unwrap().busy_ns).sum()
    };
    let inner = host(before.1.div_ceil(WINDOW_NS), after.1 / WINDOW_NS);
    let outer = host(before.1 / WINDOW_NS, after.1.div_ceil(WINDOW_NS));
    let told = after.0 - before.0;
    // A tick samples what runs: over n ticks of all CPUs that is off by half their root (one sigma) at most; three are taken.
    let ticks = (after.1 - before.1) / TICK_NS * u64::from(windows[0].machine_cpu.unwrap().cpus);
    let tick_error = 3 * ticks.isqrt() * TICK_NS / 2;
    assert!(
        inner <= told + tick_error && told <= outer + tick_error,
        "busy of the host: windows {inner} to {outer}, /proc/stat {told}"
    );
    for w in &windows {
        let m = w.machine_cpu.unwrap();
        let sum = m.busy_ns + m.idle_ns + m.iowait_ns + m.steal_ns;
        within("a window's CPU time", sum, u64::from(m.cpus) * WINDOW_NS, 0.02, 0);
    }
}

#[test]
fn privileged_run_queue_shape_of_pinned_spinners() {
    // What was stolen for long is booked later, and a reader that is away is late.
    kernel::experiment("pinned spinners", run_queue_shape_of_pinned_spinners);
}

fn run_queue_shape_of_pinned_spinners() {
    let btf = KernelBtf::read().unwrap();
    let group = Cgroup::new("spinners");
    let other = Cgroup::new("neighbour");
    let mut signal = attach(&btf, 64);
    let neighbour = Spinner::start(&other, "while :; do :; done", &[1]);
    let spinners: Vec<Spinner> =
        (0..4).map(|_| Spinner::start(&group, "while :; do :; done", &[0])).collect();
    std::thread::sleep(WINDOW * 4);
    let mut drained = Drained::from_now();
    std::thread::sleep(Duration::from_secs(2));
    let windows = drained.until_now(&mut signal);
    let tasks = tasks_of(&windows, group.id());
    assert!(tasks.len() >= 38, "two seconds of windows, got {}", tasks.len());
    // Whatever else the machine runs on CPU 0, all four are either on it or waiting for it.
    all_runnable(&windows, group.id(), 4);
    for t in &tasks {
        assert!(t.busy_ns <= WINDOW_NS + 500_000, "one CPU: {}", t.busy_ns);
        assert!((3..=4).contains(&t.waiting_max), "3 of 4 wait, 4 under a stranger: {}", t.waiting_max);
    }
    let histogram: u64 = tasks.iter().flat_map(|t| t.wait_hist).map(u64::from).sum();
    assert!(
        histogram > 0 && tasks.iter().any(|t| t.wait_max_ns > 3_000_000),
        "waits ended and were measured"
    );
    let culprits: Vec<_> =
        windows.iter().flat_map(|w| &w.culprits).filter(|c| c.resource == CulpritResource::Cpu).collect();
    for pid in spinners.iter().map(Spinner::pid) {
        let of: Vec<_> = culprits.iter().filter(|c| c.pid == pid).collect();
        assert!(!of.is_empty(), "spinner {pid} is among the culprits");
        assert!(of.iter().all(|c| c.workload == group.id() && c.comm == "sh"), "{of:?}");
        let sum: u64 = of.iter().map(|c| c.amount).sum();
        let all: u64 = tasks.iter().map(|t| t.busy_ns).sum();
        // Strangers may keep it from the top five in some windows: never more than its share, and it was seen.
        assert!(sum <= all / 4 + all / 8, "a quarter each: {sum} of {all}");
    }
    neighbour.stop();
    for s in spinners {
        s.stop();
    }
}

#[test]
fn privileged_the_cpu_of_a_group_is_told_by_process_as_its_threads_had_it() {
    kernel::experiment("shares of a group", shares_of_a_group);
}

/// One spinner is a server, and four others on the same CPU, of which one is another server: each has a fifth and waits for four.
fn shares_of_a_group() {
    let btf = KernelBtf::read().unwrap();
    let group = Cgroup::new("shares");
    let mut signal = attach(&btf, 64);
    let all: Vec<Spinner> = (0..5).map(|_| Spinner::start(&group, "while :; do :; done", &[0])).collect();
    let mut entities = Entities::new(Mounts::read().unwrap(), Path::new("/"));
    for (port, server) in (81..).zip(&all[..2]) {
        let (address, owner, pid) = (std::net::Ipv6Addr::UNSPECIFIED, group.id(), server.pid());
        entities.listener(ListenerKey { netns: 1, address, port, owner, pid });
    }
    assert!(entities.told_apart(group.id()), "two servers are in it");
    let (mut shares, mut drained) = (Shares::new(Path::new("/")), Drained::from_now());
    let mut told = Vec::new();
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(50));
        for mut window in drained.until_now(&mut signal) {
            shares.step(&mut window, &entities);
            told.append(&mut window.cpu_shares);
        }
        if told.len() >= 2 {
            break;
        }
    }
    assert!(told.len() >= 2, "two looks after the first one");
    for of in &told {
        println!("{of:?}");
        assert_eq!(of.cgroup, group.id());
        assert!((1..=60).contains(&of.windows_ago), "it is told a second later");
        let mut pids: Vec<u32> = of.processes.iter().map(|p| p.pid).collect();
        pids.sort_unstable();
        let mut expected: Vec<u32> = all.iter().map(Spinner::pid).collect();
        expected.sort_unstable();
        assert_eq!(pids, expected);
        for process in &of.processes {
            within("of the CPU", process.ran_ns, of.span_ns / 5, 0.25, 0);
            within("of the wait", process.waited_ns, of.span_ns * 4 / 5, 0.1, 0);
            assert_eq!((process.threads, process.cgroup), (1, group.id()));
        }
    }
}

/// The parts of a window that two instances must agree on.
fn totals(windows: &[Window], id: CgroupId) -> [u64; 5] {
    let tasks = tasks_of(windows, id);
    let sum = |f: fn(&TaskSample) -> u64| tasks.iter().map(f).sum();
    [
        sum(|t| t.busy_ns),
        sum(|t| t.wait_ns),
        sum(|t| t.switches),
        sum(|t| t.wait_hist.iter().map(|b| u64::from(*b)).sum()),
        windows.iter().map(|w| w.machine_cpu.unwrap().busy_ns).sum(),
    ]
}

#[test]
fn privileged_late_drain_equals_prompt_drain() {
    // What was stolen for long is booked later, and a reader that is away is late.
    kernel::experiment("a late drain", late_drain_equals_prompt_drain);
}

fn late_drain_equals_prompt_drain() {
    let btf = KernelBtf::read().unwrap();
    let group = Cgroup::new("lag");
    let spinners: Vec<Spinner> =
        (0..3).map(|_| Spinner::start(&group, "while :; do :; done", &[0])).collect();
    let mut prompt = attach(&btf, 64);
    let mut late = attach(&btf, 64);
    let first = Drained::from_now();
    let (mut prompt_drained, mut late_drained) = (first.clone(), first);
    let mut by_prompt = Vec::new();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        by_prompt.extend(prompt_drained.until_now(&mut prompt));
    }
    let mut by_late = late_drained.until_now(&mut late);
    by_late.truncate(by_prompt.len());
    assert!(by_prompt.len() >= 38 && by_late.len() == by_prompt.len());
    assert_eq!(late.lapped(), 0, "two seconds fit the ring");
    for (p, l) in by_prompt.iter().zip(&by_late) {
        assert_eq!(p.index, l.index);
        for (p, l) in totals(std::slice::from_ref(p), group.id())
            .into_iter()
            .zip(totals(std::slice::from_ref(l), group.id()))
            .take(2)
        {
            within("a value of one window, late against prompt", l, p, 0.01, 200_000);
        }
    }
    for (p, l) in totals(&by_prompt, group.id()).into_iter().zip(totals(&by_late, group.id())) {
        within("a total, late against prompt", l, p, 0.01, 2);
    }
    // Longer than the ring: the late one starts again at the first window that is there.
    std::thread::sleep(WINDOW * 80);
    let lost = late_drained.skip_lapped(&mut late);
    assert!((16..30).contains(&lost), "80 windows are 16 more than the ring and some slack, got {lost}");
    let by_late = late_drained.until_now(&mut late);
    assert_eq!(late.lapped(), 0, "what was skipped is not read");
    all_runnable(&by_late, group.id(), 3);
    for t in tasks_of(&by_late, group.id()) {
        assert!(t.busy_ns <= WINDOW_NS + 1_000_000, "one CPU at most: {}", t.busy_ns);
    }
    for s in spinners {
        s.stop();
    }
    std::thread::sleep(WINDOW * 5);
    let rest = late_drained.until_now(&mut late);
    let tasks = tasks_of(&rest, group.id());
    let end = tasks.last().unwrap();
    let left = (end.busy_ns, end.wait_ns, end.waiting_max);
    assert_eq!(left, (0, 0, 0), "no level is left behind");
}

#[test]
fn privileged_unskipped_laps_are_counted_and_repaired() {
    // What was stolen for long is booked later, and a reader that is away is late.
    kernel::experiment("laps", unskipped_laps_are_counted_and_repaired);
}

fn unskipped_laps_are_counted_and_repaired() {
    let btf = KernelBtf::read().unwrap();
    let group = Cgroup::new("lapped");
    let spinners: Vec<Spinner> =
        (0..2).map(|_| Spinner::start(&group, "while :; do :; done", &[0])).collect();
    let mut signal = attach(&btf, 64);
    let mut drained = Drained::from_now();
    std::thread::sleep(WINDOW * 70);
    let windows = drained.until_now(&mut signal);
    assert!(signal.lapped() > 0, "windows that were overwritten are counted");
    all_runnable(&windows[10..], group.id(), 2);
    for s in spinners {
        s.stop();
    }
}

#[test]
fn privileged_windows_of_which_records_were_overwritten_are_not_told() {
    // What was stolen for long is booked later, and a reader that is away is late.
    kernel::experiment("overwritten records", windows_of_which_records_were_overwritten_are_not_told);
}

fn windows_of_which_records_were_overwritten_are_not_told() {
    let btf = KernelBtf::read().unwrap();
    let groups: Vec<Cgroup> = (0..12).map(|i| Cgroup::new(&format!("overwritten{i}"))).collect();
    // So many possible CPUs leave each the shortest log: a dozen cgroups fill it in five windows.
    let mut signal = SchedSignal::attach(&AttachConfig { cpus: 1_024, ..attach_config(&btf, 64) }).unwrap();
    let script = "while :; do sleep 0.01; done";
    let spinners: Vec<Spinner> = groups.iter().map(|g| Spinner::start(g, script, &[0])).collect();
    let always = Cgroup::new("overwritten");
    let spinner = Spinner::start(&always, "while :; do :; done", &[1]);
    let mut drained = Drained::from_now();
    std::thread::sleep(WINDOW * 20);
    let mut windows = drained.until_now(&mut signal);
    assert!(signal.lapped() > 0);
    for _ in 0..20 {
        std::thread::sleep(WINDOW);
        windows.extend(drained.until_now(&mut signal));
    }
    let told: Vec<bool> = windows.iter().map(|w| w.tasks.is_some()).collect();
    assert!(told.iter().take(10).all(|told| !told), "nobody knows what was in them: {told:?}");
    assert!(told.iter().rev().take(15).all(|told| *told), "they were read in time: {told:?}");
    // Nor is anything of today told of them: one that runs all the time has 50 ms in each window that is told.
    let late: Vec<Window> = windows.iter().filter(|w| w.tasks.is_some()).cloned().collect();
    all_runnable(&late, always.id(), 1);
    drop((spinner, spinners));
}

#[test]
fn privileged_cgroups_beyond_the_slots_are_counted_together() {
    let btf = KernelBtf::read().unwrap();
    let mut signal = attach(&btf, 2);
    let groups: Vec<Cgroup> = (0..4).map(|i| Cgroup::new(&format!("beyond{i}"))).collect();
    let mut drained = Drained::from_now();
    let script = "while :; do sleep 0.01; done";
    let spinners: Vec<Spinner> = groups.iter().map(|g| Spinner::start(g, script, &[0, 1])).collect();
    std::thread::sleep(WINDOW * 6);
    let windows = drained.until_now(&mut signal);
    assert!(signal.slot_overflows() > 0, "the machine has more cgroups than two slots");
    let other = tasks_of(&windows, tailwater_agent::sample::slots::OTHER);
    assert!(other.iter().map(|t| t.switches).sum::<u64>() > 0, "the rest is counted under one id");
    assert!(windows.iter().all(|w| w.tasks.as_ref().unwrap().len() <= 3), "two slots and the shared one");
    drop(spinners);
}

#[test]
fn privileged_slots_of_removed_cgroups_return() {
    let btf = KernelBtf::read().unwrap();
    let mut signal = attach(&btf, 64);
    let groups: Vec<Cgroup> = (0..6).map(|i| Cgroup::new(&format!("removed{i}"))).collect();
    let mut drained = Drained::from_now();
    let script = "while :; do sleep 0.01; done";
    let spinners: Vec<Spinner> = groups.iter().map(|g| Spinner::start(g, script, &[0, 1])).collect();
    std::thread::sleep(WINDOW * 4);
    let windows = drained.until_now(&mut signal);
    for group in &groups {
        let switches: u64 = tasks_of(&windows, group.id()).iter().map(|t| t.switches).sum();
        assert!(switches > 0, "every cgroup has a slot of its own");
    }
    assert_eq!(signal.slot_overflows(), 0);
    drop(spinners);
    drop(groups);
    // Given back when they have been quiet for a whole ring; looked at once per ring.
    let mut rounds = 0;
    while signal.slots_released() < 6 {
        rounds += 1;
        assert!(rounds < 50, "slots of removed cgroups come back; got {}", signal.slots_released());
        std::thread::sleep(WINDOW * 4);
        drained.until_now(&mut signal);
    }
    let fresh = Cgroup::new("fresh");
    let spinner = Spinner::start(&fresh, script, &[0, 1]);
    std::thread::sleep(WINDOW * 4);
    let windows = drained.until_now(&mut signal);
    spinner.stop();
    assert!(tasks_of(&windows, fresh.id()).iter().any(|t| t.switches > 0), "a new cgroup is served");
}

#[test]
fn privileged_epoch_correction_keeps_levels() {
    // What was stolen for long is booked later, and a reader that is away is late.
    kernel::experiment("epoch correction", epoch_correction_keeps_levels);
}

fn epoch_correction_keeps_levels() {
    let btf = KernelBtf::read().unwrap();
    let group = Cgroup::new("epoch");
    let spinners: Vec<Spinner> =
        (0..2).map(|_| Spinner::start(&group, "while :; do :; done", &[0])).collect();
    let mut signal = attach(&btf, 64);
    let mut drained = Drained::from_now();
    for step in [-2_000_000_i64, 2_000_000, -30_000_000, 30_000_000] {
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(17));
            signal.set_epoch_offset_ns(epoch_offset_ns() + step);
            std::thread::sleep(Duration::from_millis(17));
            signal.set_epoch_offset_ns(epoch_offset_ns());
        }
    }
    std::thread::sleep(WINDOW * 2);
    drained.until_now(&mut signal);
    std::thread::sleep(WINDOW * 10);
    all_runnable(&drained.until_now(&mut signal), group.id(), 2);
    for s in spinners {
        s.stop();
    }
}

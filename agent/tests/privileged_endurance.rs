//! A long life in real maps, as root: `make endurance`, some ten minutes. What is told of a million processes and of a hundred thousand
//! cgroups that come and go is held against what the machine says, and nothing is used up at the end.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod kernel;

use kernel::{Cgroup, Drained, Spinner, attach_config};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tailwater_agent::attach::loader::KernelBtf;
use tailwater_agent::sample::sched::SchedSignal;
use tailwater_agent::signal::SignalSource;
use tailwater_agent::window::{CgroupId, WINDOW_NS};

const PROCESSES: u64 = 1_000_000;
const CGROUPS: u32 = 100_000;

fn lost(signal: &SchedSignal, what: &str) -> u64 {
    signal.losses().iter().find(|loss| loss.what == what).unwrap().count
}

#[test]
#[ignore = "minutes; make endurance"]
fn privileged_a_million_short_processes_are_counted() {
    let btf = KernelBtf::read().unwrap();
    let mut signal = SchedSignal::attach(&attach_config(&btf, 1_024)).unwrap();
    let group = Cgroup::new("short-lived");
    let mut drained = Drained::from_now();
    let began = Instant::now();
    // A subshell is a process that ends at once.
    let half = PROCESSES / 2;
    let script = format!("read go; i=0; while [ $i -lt {half} ]; do (:); i=$((i+1)); done; echo done");
    let mut shells: Vec<_> = (0..2)
        .map(|_| {
            let mut command = group.command(&script);
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    // Who enters a cgroup is counted there from its next switch on.
    std::thread::sleep(Duration::from_millis(200));
    let before = group.cpu_usage_ns();
    drained.until_now(&mut signal);
    shells.iter_mut().for_each(|shell| drop(shell.stdin.take()));
    let (mut busy_ns, mut switches) = (0, 0);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let ended = shells.iter_mut().all(|shell| shell.try_wait().unwrap().is_some());
        for window in drained.until_now(&mut signal) {
            for (_, tasks) in window.tasks.unwrap().iter().filter(|(id, _)| *id == group.id()) {
                busy_ns += tasks.busy_ns;
                switches += tasks.switches;
            }
        }
        if ended {
            break;
        }
    }
    let truth = group.cpu_usage_ns() - before;
    let off = busy_ns.abs_diff(truth) as f64 / truth as f64;
    eprintln!(
        "{PROCESSES} processes in {:?}: {busy_ns} ns on CPU told of {truth} ({:.2} %), {switches} switches, {:?}",
        began.elapsed(),
        off * 100.0,
        signal.losses()
    );
    assert!(off < 0.03, "{busy_ns} ns told of {truth}");
    assert!(switches >= PROCESSES);
    for what in ["sched_tasks_untracked", "sched_cgroups_folded", "sched_records_lapped"] {
        assert_eq!(lost(&signal, what), 0, "{what}");
    }
}

#[test]
#[ignore = "minutes; make endurance"]
fn privileged_a_hundred_thousand_cgroups_come_and_go() {
    let btf = KernelBtf::read().unwrap();
    let mut signal = SchedSignal::attach(&attach_config(&btf, 1_024)).unwrap();
    let mut drained = Drained::from_now();
    let began = Instant::now();
    let (mut of_rows, mut of_machine) = (0, 0);
    let mut met = BTreeSet::new();
    let mut see = |signal: &mut SchedSignal, drained: &mut Drained| -> BTreeSet<CgroupId> {
        let mut seen = BTreeSet::new();
        for window in drained.until_now(signal) {
            of_machine += window.machine_cpu.unwrap().busy_ns;
            for (id, tasks) in window.tasks.unwrap() {
                of_rows += tasks.busy_ns;
                if tasks.busy_ns > 0 {
                    seen.insert(id);
                }
            }
        }
        seen
    };
    for n in 0..CGROUPS {
        let group = Cgroup::new(&format!("endurance-{n}"));
        assert!(group.command("/bin/true; exit 0").status().unwrap().success());
        drop(group);
        met.extend(see(&mut signal, &mut drained));
    }
    // Slots come back when they were quiet for as long as the logs reach back.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_nanos(5 * WINDOW_NS));
        met.extend(see(&mut signal, &mut drained));
    }
    let folded = lost(&signal, "sched_cgroups_folded");
    let late: Vec<Cgroup> = (0..20).map(|n| Cgroup::new(&format!("endurance-late-{n}"))).collect();
    let spinners: Vec<Spinner> =
        late.iter().map(|group| Spinner::start(group, "while sleep 0.01; do :; done", &[0, 1])).collect();
    std::thread::sleep(Duration::from_nanos(10 * WINDOW_NS));
    let seen = see(&mut signal, &mut drained);
    let unseen = late.iter().filter(|group| !seen.contains(&group.id())).count();
    drop(spinners);
    eprintln!(
        "{CGROUPS} cgroups in {:?}: {} told apart, {} slots given back, {of_rows} ns in all rows of {of_machine} of the machine, {:?}",
        began.elapsed(),
        met.len(),
        signal.slots_released(),
        signal.losses()
    );
    assert_eq!(unseen, 0, "a new one has its own row");
    assert_eq!(lost(&signal, "sched_cgroups_folded"), folded, "there is room again");
    assert_eq!(lost(&signal, "sched_records_lapped"), 0);
    let off = of_rows.abs_diff(of_machine) as f64 / of_machine as f64;
    assert!(off < 0.01, "what is folded is in the shared row: {of_rows} ns of {of_machine}");
}

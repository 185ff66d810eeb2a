//! Threads that a signal stopped, against the clock of whoever sent it: real processes, as root.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod kernel;

use kernel::{Cgroup, Drained, Spinner, attach_config, unix_ns};
use std::time::Duration;
use tailwater_agent::attach::loader::KernelBtf;
use tailwater_agent::sample::sched::SchedSignal;
use tailwater_agent::window::{ProcessKey, StoppedSample, WINDOW_NS, Window};

const WINDOW: Duration = Duration::from_nanos(WINDOW_NS);
/// From the signal to the last thread's stop, and from SIGCONT to the last thread's wakeup, on a machine that is not idle: as much as an
/// experiment may be late without being made again.
const TOLD_LATE_NS: u64 = 50_000_000;

fn signal_process(pid: u32, signal: i32) {
    // SAFETY: kill takes plain integers; the process is a child that is not reaped.
    assert_eq!(unsafe { libc::kill(i32::try_from(pid).unwrap(), signal) }, 0);
}

/// Its state as the kernel tells it: the letter after the command.
fn state_of(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

fn threads_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

fn until(what: &str, is: impl Fn() -> bool) {
    // Two dozen interpreters start at once: on a slow machine that takes seconds, and no claim is about it.
    for _ in 0..60_000 {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited for {what}");
}

fn stopped_of(windows: &[Window], process: ProcessKey) -> Vec<StoppedSample> {
    let of = |w: &Window| w.stopped.as_ref().unwrap().iter().find(|(p, _)| *p == process).map(|(_, s)| *s);
    windows.iter().map(|w| of(w).unwrap_or_default()).collect()
}

#[test]
fn privileged_stopped_threads_are_told_of_their_process_for_as_long_as_they_stand() {
    kernel::experiment("stopped threads", stopped_threads_are_told);
}

fn stopped_threads_are_told() {
    let btf = KernelBtf::read().unwrap();
    let group = Cgroup::new("stopped");
    let mut signal = SchedSignal::attach(&attach_config(&btf, 64)).unwrap();
    // One thread spins, one wakes up all the time, two sleep for good.
    let script = "exec python3 -c '
import threading, time
def spin():
    while True: sum(range(1000))
def tick():
    while True: time.sleep(0.001)
threading.Thread(target=spin, daemon=True).start()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
threading.Thread(target=tick, daemon=True).start()
time.sleep(600)'";
    let server = Spinner::start(&group, script, &[0, 1]);
    let other = Spinner::start(&group, "exec sleep 600", &[0]);
    until("four threads", || threads_of(server.pid()) == 4);
    let process = ProcessKey { cgroup: group.id(), pid: server.pid() };
    let mut drained = Drained::from_now();
    std::thread::sleep(WINDOW * 3);

    let begun_ns = unix_ns();
    signal_process(server.pid(), libc::SIGSTOP);
    until("the stop", || state_of(server.pid()) == 'T');
    std::thread::sleep(Duration::from_millis(430));
    // As long as it stands it needs no event.
    let during = drained.until_now(&mut signal);
    signal_process(server.pid(), libc::SIGCONT);
    let ended_ns = unix_ns();
    until("the end of the stop", || state_of(server.pid()) != 'T');
    std::thread::sleep(WINDOW * 4);
    let mut windows = during.clone();
    windows.extend(drained.until_now(&mut signal));

    let samples = stopped_of(&windows, process);
    let sum: u64 = samples.iter().map(|s| s.stopped_ns).sum();
    let stood = 4 * (ended_ns - begun_ns);
    println!("stopped for {} of {stood} ns", sum);
    assert!(
        sum <= stood + 4 * TOLD_LATE_NS && sum + 4 * TOLD_LATE_NS >= stood,
        "{sum} of {stood}: {samples:?}"
    );
    assert_eq!(samples.iter().map(|s| s.stopped_max).max(), Some(4), "{samples:?}");
    let whole = stopped_of(&during, process);
    assert!(whole.iter().any(|s| s.stopped_ns == 4 * WINDOW_NS), "a window in which all stood: {whole:?}");
    assert_eq!(samples.last(), Some(&StoppedSample::default()), "it goes on: {samples:?}");
    assert_eq!(samples[0], StoppedSample::default(), "it had not begun: {samples:?}");
    let neighbour = ProcessKey { cgroup: group.id(), pid: other.pid() };
    assert!(
        stopped_of(&windows, neighbour).iter().all(|s| *s == StoppedSample::default()),
        "nobody stopped it"
    );
    // A stopped task is neither runnable nor blocked.
    let tasks = during.last().unwrap().tasks.as_ref().unwrap();
    let (_, task) = tasks.iter().find(|(c, _)| *c == group.id()).copied().unwrap_or_default();
    assert_eq!((task.busy_ns, task.wait_ns, task.blocked_io_ns), (0, 0, 0), "{task:?}");
}

#[test]
fn privileged_a_stopped_process_that_is_killed_stands_no_more_and_many_are_told_apart() {
    let btf = KernelBtf::read().unwrap();
    let group = Cgroup::new("stopped-many");
    let mut signal = SchedSignal::attach(&attach_config(&btf, 64)).unwrap();
    // The threads of each stop on two CPUs at once, and all of them belong to one slot.
    let script = "exec python3 -c '
import threading, time
for _ in range(3): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
time.sleep(600)'";
    let all: Vec<Spinner> = (0..24).map(|_| Spinner::start(&group, script, &[0, 1])).collect();
    for process in &all {
        until("four threads", || threads_of(process.pid()) == 4);
    }
    let mut drained = Drained::from_now();
    for process in &all {
        signal_process(process.pid(), libc::SIGSTOP);
    }
    for process in &all {
        until("the stop", || state_of(process.pid()) == 'T');
    }
    std::thread::sleep(WINDOW * 4);
    let windows = drained.until_now(&mut signal);
    let last = windows.last().unwrap().stopped.clone().unwrap();
    for process in &all {
        let key = ProcessKey { cgroup: group.id(), pid: process.pid() };
        let sample = last.iter().find(|(p, _)| *p == key).map(|(_, s)| *s);
        assert_eq!(sample, Some(StoppedSample { stopped_ns: 4 * WINDOW_NS, stopped_max: 4 }), "{last:?}");
    }
    drop(all);
    std::thread::sleep(WINDOW * 4);
    let windows = drained.until_now(&mut signal);
    let left: Vec<_> =
        windows.last().unwrap().stopped.iter().flatten().filter(|(p, _)| p.cgroup == group.id()).collect();
    assert!(left.is_empty(), "dead, and not stopped: {left:?}");
    assert_eq!(signal.lapped(), 0);
}

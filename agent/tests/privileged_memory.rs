//! The memory signal: a process that reads more than its cgroup may hold stalls in reclaim, as root.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod kernel;

use kernel::{Cgroup, Drained, attach_config};
use std::time::Duration;
use tailwater_agent::attach::loader::KernelBtf;
use tailwater_agent::sample::memory::MemorySignal;
use tailwater_agent::signal::{SignalKind, SignalSource};
use tailwater_agent::window::{MemorySample, WINDOW_NS, Window};

fn of_group(windows: &[Window], group: &Cgroup) -> Vec<MemorySample> {
    let all = windows.iter().flat_map(|w| w.memory.as_ref().unwrap());
    all.filter(|(id, _)| *id == group.id()).map(|(_, m)| *m).collect()
}

#[test]
fn privileged_reclaim_of_a_limited_cgroup_is_its_own() {
    let btf = KernelBtf::read().unwrap();
    let limited = Cgroup::new("limited");
    let free = Cgroup::new("unlimited");
    limited.limit_memory(16 << 20);
    let mut signal =
        MemorySignal::attach(&attach_config(&btf, 64)).expect("the memory signal attaches as root");
    assert_eq!(signal.coverage()[0].signal, SignalKind::Memory);
    let mut drained = Drained::from_the_open();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let script = |name: &str| format!("exec dd if=/dev/zero of={} bs=1M count=96", file(name));
    let run = |group: &Cgroup, name: &str| {
        let mut command = group.command(&script(name));
        assert!(command.stderr(std::process::Stdio::null()).status().unwrap().success());
    };
    let mut windows = Vec::new();
    run(&limited, "limited");
    windows.extend(drained.until_now(&mut signal));
    run(&free, "free");
    std::thread::sleep(Duration::from_nanos(3 * WINDOW_NS));
    windows.extend(drained.until_now(&mut signal));
    let reclaim_ns: u64 = of_group(&windows, &limited).iter().map(|m| m.reclaim_ns).sum();
    assert!(reclaim_ns > 1_000_000, "96 MiB through 16 MiB is reclaimed along the way: {reclaim_ns}");
    let free_ns: u64 = of_group(&windows, &free).iter().map(|m| m.reclaim_ns).sum();
    assert!(free_ns < reclaim_ns, "a cgroup without a limit does not pay for it: {free_ns}");
    for m in of_group(&windows, &limited) {
        assert!(m.reclaim_ns <= WINDOW_NS + 1_000_000, "one task at most: {}", m.reclaim_ns);
        assert!(m.dirty_throttle_ns <= WINDOW_NS + 8_000_000, "one task at most: {}", m.dirty_throttle_ns);
    }
    let last = windows.last().unwrap();
    assert!(of_group(std::slice::from_ref(last), &limited).is_empty(), "no stall is left behind");
}

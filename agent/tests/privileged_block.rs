//! The block signal against the device's own counters: a process that writes and syncs to a loop device, as root.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod kernel;

use kernel::{Cgroup, Drained, LoopDevice, attach_config};
use std::time::Duration;
use tailwater_agent::attach::loader::KernelBtf;
use tailwater_agent::sample::block::BlockSignal;
use tailwater_agent::sample::sched::SchedSignal;
use tailwater_agent::signal::SignalSource;
use tailwater_agent::window::{CulpritResource, CulpritSample, DeviceSample, WINDOW_NS, Window};

const WRITES: u64 = 300;
const WRITE_BYTES: u64 = 65_536;

fn device_of(windows: &[Window], name: &str) -> Vec<DeviceSample> {
    let of = |w: &Window| w.devices.as_ref().unwrap().iter().find(|(n, _)| n == name).map(|(_, d)| *d);
    windows.iter().filter_map(of).collect()
}

/// The bytes that the process is named with for this cgroup.
fn named_in<'a>(windows: &'a [Window], pid: u32, group: &Cgroup) -> Vec<&'a CulpritSample> {
    let of_it = |c: &&CulpritSample| c.pid == pid && c.workload == group.id();
    let all = windows.iter().flat_map(|w| &w.culprits).filter(|c| c.resource == CulpritResource::IoBytes);
    all.filter(of_it).collect()
}

/// The bytes that were submitted for this cgroup.
fn bytes_of(windows: &[Window], group: &Cgroup) -> u64 {
    let io = windows.iter().flat_map(|w| w.io.as_ref().unwrap());
    io.filter(|(id, _)| *id == group.id()).map(|(_, io)| io.bytes).sum()
}

/// Every request of `writer` is synced before the next: `WRITES` writes and as many flushes.
fn synced_writes(group: &Cgroup, device: &LoopDevice) -> std::process::Child {
    writes_of(group, device, WRITE_BYTES, WRITES)
}

fn writes_of(group: &Cgroup, device: &LoopDevice, bytes: u64, count: u64) -> std::process::Child {
    let path = device.path();
    // The program's own pages would be read from the disk by this cgroup, and counted for it as they should be.
    let warm = std::process::Command::new("dd").arg("--version").stdout(std::process::Stdio::null()).status();
    assert!(warm.unwrap().success());
    let script = format!("exec dd if=/dev/zero of={path} bs={bytes} count={count} oflag=direct,dsync");
    group.command(&script).stderr(std::process::Stdio::null()).spawn().unwrap()
}

#[test]
fn privileged_synced_writes_are_counted_and_their_author_named() {
    let btf = KernelBtf::read().unwrap();
    let group = Cgroup::new("fsync");
    let device = LoopDevice::new(32 << 20);
    let mut block = BlockSignal::attach(&attach_config(&btf, 64)).expect("the block signal attaches as root");
    let mut sched =
        SchedSignal::attach(&attach_config(&btf, 64)).expect("the scheduler signal attaches as root");
    let (mut drained, mut sched_drained) = (Drained::from_now(), Drained::from_now());
    std::thread::sleep(Duration::from_nanos(WINDOW_NS));
    let before = device.completed();
    let mut writer = synced_writes(&group, &device);
    let pid = writer.id();
    let (mut windows, mut tasks) = (Vec::new(), Vec::new());
    while writer.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
        windows.extend(drained.until_now(&mut block));
        tasks.extend(sched_drained.until_now(&mut sched));
    }
    let after = device.completed();
    std::thread::sleep(Duration::from_nanos(3 * WINDOW_NS));
    windows.extend(drained.until_now(&mut block));
    tasks.extend(sched_drained.until_now(&mut sched));

    let samples = device_of(&windows, device.name());
    let sum = |f: fn(&DeviceSample) -> u64| -> u64 { samples.iter().map(f).sum() };
    // The device counts a flush as a request of its own kind.
    let (writes, bytes, flushes) =
        (after.writes - before.writes, after.bytes - before.bytes, after.flushes - before.flushes);
    assert!(writes >= WRITES && bytes >= WRITES * WRITE_BYTES, "dd wrote: {writes} requests, {bytes} bytes");
    assert_eq!(sum(|d| d.bytes), bytes, "bytes as the device counts them; {:?}", block.losses());
    assert!(sum(|d| d.completed) >= writes, "completed {} of {writes}", sum(|d| d.completed));
    assert!(flushes == 0 || sum(|d| d.flushes) >= flushes, "flushes {} of {flushes}", sum(|d| d.flushes));
    let busy_ns = sum(|d| d.in_flight_ns);
    let latency_ns = sum(|d| d.latency_ns);
    assert!(busy_ns > 0 && samples.iter().all(|d| d.latency_max_ns <= latency_ns));
    assert!(
        busy_ns.abs_diff(latency_ns) <= latency_ns / 50,
        "the integral of requests in flight is the sum of their times: {busy_ns} {latency_ns}"
    );
    assert!(samples.iter().any(|d| d.in_flight_max >= 1));
    let end = samples.last().unwrap();
    assert!(end.completed > 0, "the last window with this device is the one in which it became idle");

    assert_eq!(bytes_of(&windows, &group), bytes, "all of it was submitted by the writer's cgroup");
    // Before it entered the cgroup it was a shell, whose own pages may have been read from the disk for another one.
    let named = named_in(&windows, pid, &group);
    assert!(named.iter().all(|c| c.comm == "dd"), "{named:?}");
    assert!(named.iter().map(|c| c.amount).sum::<u64>() > bytes / 2, "the author of most windows is named");
    assert_eq!((block.untracked(), block.lapped()), (0, 0));

    // The scheduler's half: the writer slept for I/O about as long as its requests took.
    let blocked: Vec<_> = tasks
        .iter()
        .flat_map(|w| w.tasks.as_ref().unwrap())
        .filter(|(id, _)| *id == group.id())
        .map(|(_, t)| *t)
        .collect();
    let blocked_ns: u64 = blocked.iter().map(|t| t.blocked_io_ns).sum();
    assert!(
        blocked_ns > busy_ns / 4 && blocked.iter().any(|t| t.blocked_io_max >= 1),
        "blocked for {blocked_ns} of {busy_ns}"
    );
    assert_eq!(
        blocked.last().unwrap().blocked_io_max.min(1),
        blocked.last().unwrap().blocked_io_max,
        "one task"
    );
}

#[test]
fn privileged_a_process_that_changes_its_cgroup_is_named_with_what_it_wrote_in_each() {
    let btf = KernelBtf::read().unwrap();
    let (first, second) = (Cgroup::new("before"), Cgroup::new("after"));
    let device = LoopDevice::new(32 << 20);
    let mut block = BlockSignal::attach(&attach_config(&btf, 64)).unwrap();
    let mut drained = Drained::from_now();
    let before = device.completed();
    // Small ones, of which it makes some thousand a second.
    let (bytes, count) = (4096, 4_000);
    let mut writer = writes_of(&first, &device, bytes, count);
    let pid = writer.id();
    let mut windows = Vec::new();
    while device.completed().writes - before.writes < count / 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // In the middle of a window, mostly: that one has both.
    second.enter(pid);
    while writer.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
        windows.extend(drained.until_now(&mut block));
    }
    std::thread::sleep(Duration::from_nanos(3 * WINDOW_NS));
    windows.extend(drained.until_now(&mut block));
    for group in [&first, &second] {
        let named: u64 = named_in(&windows, pid, group).iter().map(|c| c.amount).sum();
        let written = bytes_of(&windows, group);
        assert!(written >= count / 8 * bytes, "{written} bytes");
        // Of eight submitters a CPU's record has the least that each can have written: never more, and less where others come and go.
        assert!(named <= written && named * 10 >= written * 9, "named {named} of {written} bytes");
    }
}

#[test]
fn privileged_in_flight_returns_to_zero_and_late_drain_agrees() {
    let btf = KernelBtf::read().unwrap();
    let group = Cgroup::new("inflight");
    let device = LoopDevice::new(32 << 20);
    let mut prompt = BlockSignal::attach(&attach_config(&btf, 64)).unwrap();
    let mut late = BlockSignal::attach(&attach_config(&btf, 64)).unwrap();
    let first = Drained::from_now();
    let (mut prompt_drained, mut late_drained) = (first.clone(), first);
    let mut writer = synced_writes(&group, &device);
    let mut by_prompt = Vec::new();
    while writer.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(60));
        by_prompt.extend(prompt_drained.until_now(&mut prompt));
    }
    std::thread::sleep(Duration::from_nanos(4 * WINDOW_NS));
    by_prompt.extend(prompt_drained.until_now(&mut prompt));
    late_drained.skip_lapped(&mut late);
    let by_late = late_drained.until_now(&mut late);
    let from = by_late[0].index;
    by_prompt.retain(|w| w.index >= from);
    let total = |windows: &[Window]| {
        let samples = device_of(windows, device.name());
        let sum = |f: fn(&DeviceSample) -> u64| -> u64 { samples.iter().map(f).sum() };
        [sum(|d| d.bytes), sum(|d| d.issued), sum(|d| d.completed), sum(|d| d.flushes)]
    };
    assert_eq!(total(&by_prompt[..by_late.len().min(by_prompt.len())]), total(&by_late));
    let end = by_late.last().unwrap();
    assert!(
        device_of(std::slice::from_ref(end), device.name()).iter().all(|d| d.in_flight_ns == 0),
        "nothing is left in flight"
    );
}

#[test]
fn privileged_while_it_rests_nothing_is_counted_and_afterwards_no_request_is_left_standing() {
    let btf = KernelBtf::read().unwrap();
    let group = Cgroup::new("resting");
    let device = LoopDevice::new(32 << 20);
    let mut block = BlockSignal::attach(&attach_config(&btf, 64)).unwrap();
    let mut drained = Drained::from_now();
    let drain = |block: &mut BlockSignal, drained: &mut Drained| {
        std::thread::sleep(Duration::from_nanos(3 * WINDOW_NS));
        device_of(&drained.until_now(block), device.name())
    };

    assert!(block.rest(true));
    assert!(synced_writes(&group, &device).wait().unwrap().success());
    let rested = drain(&mut block, &mut drained);
    assert!(rested.iter().all(|d| (d.issued, d.completed, d.bytes) == (0, 0, 0)), "{rested:?}");

    // Requests begin in one turn and end in another.
    let mut writer = synced_writes(&group, &device);
    let mut rests = true;
    while writer.try_wait().unwrap().is_none() {
        rests = !rests;
        assert!(block.rest(rests));
        std::thread::sleep(Duration::from_millis(3));
        drained.until_now(&mut block);
    }
    assert!(block.rest(false));
    drain(&mut block, &mut drained);

    let before = device.completed();
    assert!(synced_writes(&group, &device).wait().unwrap().success());
    let after = device.completed();
    let worked = drain(&mut block, &mut drained);
    let sum = |f: fn(&DeviceSample) -> u64| -> u64 { worked.iter().map(f).sum() };
    assert_eq!(sum(|d| d.bytes), after.bytes - before.bytes, "bytes as the device counts them");
    let (busy_ns, latency_ns) = (sum(|d| d.in_flight_ns), sum(|d| d.latency_ns));
    assert!(
        busy_ns.abs_diff(latency_ns) <= latency_ns / 50,
        "no request of before is still in flight: {busy_ns} {latency_ns}"
    );
}

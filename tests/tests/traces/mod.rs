//! Everything on this machine that carries the mark of a lab or of a demonstration, found without their own code.
#![allow(clippy::unwrap_used, reason = "what breaks here breaks the test, at this line")]
#![allow(unreachable_pub, reason = "a module of test binaries")]

use std::collections::BTreeSet;
use std::fs;

/// Everything on this machine that carries the lab's mark, found without the lab's own code.
pub fn traces() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut note = |kind: &str, what: &str| {
        found.insert(format!("{kind} {what}"));
    };
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("tw-") {
            note("netns", &name);
        }
    }
    for mount in fs::read_to_string("/proc/self/mountinfo").unwrap().lines() {
        let point = mount.split(' ').nth(4).unwrap();
        if point.contains("tailwater-lab") {
            note("mount", point);
        }
        if mount.contains(" - cgroup") && fs::exists(format!("{point}/tailwater-lab")).unwrap() {
            note("cgroup in", point);
        }
    }
    for entry in fs::read_dir("/sys/block").unwrap().flatten() {
        if let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) {
            note("loop on", backing.trim());
        }
    }
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        if let Ok(command) = fs::read_to_string(entry.path().join("cmdline")) {
            let servers = command.contains("/run/tailwater-lab");
            let own = command.contains("/lab\0guard") || command.contains("/lab\0up");
            // Agent, collector and what follows them, of whatever build; this process has another name.
            let programs = ["/tailwater\0", "/tailwater-agent\0", "/demo\0", "/loadgen\0"];
            if servers || own || programs.iter().any(|program| command.contains(program)) {
                note("process", &command.replace('\0', " "));
            }
        }
    }
    let limits =
        fs::read_to_string("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device").unwrap_or_default();
    for limit in limits.lines() {
        note("write limit", limit);
    }
    if fs::exists("/run/tailwater-lab").unwrap() {
        note("folder", "/run/tailwater-lab");
    }
    found
}

pub fn nothing_left(before: &BTreeSet<String>) {
    let left: Vec<_> = traces().difference(before).cloned().collect();
    assert!(left.is_empty(), "left behind: {left:#?}");
}

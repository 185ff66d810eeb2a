//! The threads and processes of a server by their files in `/proc`: which there are, what their files say, and how they are called. Owns these names; knows
//! no listener.

use std::path::Path;

/// Processes of one server: whoever listens, and its children.
pub(super) const PROCESSES_MAX: usize = 64;

/// A file of a thread, as text. `None`: there is none, or this process may not read it.
pub(super) fn read(proc: &Path, process: u32, tid: u32, file: &str) -> Option<String> {
    let bytes = std::fs::read(proc.join(format!("{process}/task/{tid}/{file}"))).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A command as the kernel keeps it: up to 15 bytes and a zero.
pub(super) fn comm(bytes: &[u8; 16]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The id that a thread has in its own namespace: in a container another one than here (`NSpid` of proc_pid_status(5)).
pub(super) fn own_id(proc: &Path, process: u32, tid: u32) -> Option<u32> {
    let status = read(proc, process, tid, "status")?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().last()?.parse().ok()
}

/// A process and its children in the same cgroup: those of a supervisor that listens for others are none of its own.
pub(super) fn processes(proc: &Path, pid: u32) -> Vec<u32> {
    let cgroup = |of: u32| std::fs::read(proc.join(format!("{of}/cgroup"))).ok();
    let own = cgroup(pid);
    let mut all = vec![pid];
    for tid in threads(proc, pid).into_iter().take(PROCESSES_MAX) {
        let children = read(proc, pid, tid, "children").unwrap_or_default();
        let children = children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok());
        all.extend(children.filter(|child| cgroup(*child) == own).take(PROCESSES_MAX));
    }
    all.truncate(PROCESSES_MAX);
    all
}

/// The threads of a process.
pub(super) fn threads(proc: &Path, process: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(proc.join(format!("{process}/task"))).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

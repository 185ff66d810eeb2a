//! The threads of a cgroup: how long each waited for a CPU and was on one, from its schedstat. Owns which are known; read only while the
//! cgroup is short of CPU, and once a second so that there is something to subtract.

use super::files::read_again;
use crate::sample::schedstat;
use crate::window::WINDOW_NS;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// Threads of all cgroups together; those beyond are not read, and counted.
pub(super) const THREADS_MAX: usize = 4096;

#[derive(Debug)]
struct Thread {
    file: File,
    process: u32,
    run_ns: u64,
    wait_ns: u64,
    /// The window in which these were read.
    read: u64,
}

/// The threads of one cgroup.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<u32, Thread>);

/// What a cgroup's threads did since they were read before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) wait_ns: u64,
    /// On CPU, by process; only of threads that were read in the window before.
    pub(super) on_cpu_ns: HashMap<u32, u64>,
}

impl Threads {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Looks which threads there are: `folder` is the cgroup's. Returns how many had no room.
    pub(super) fn list(&mut self, folder: &Path, room: usize, buffer: &mut Vec<u8>) -> u64 {
        let text = std::fs::read_to_string(folder.join("cgroup.threads"))
            .or_else(|_| std::fs::read_to_string(folder.join("tasks")))
            .unwrap_or_default();
        let there: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        self.0.retain(|tid, _| there.contains(tid));
        let mut left_out = 0;
        for tid in there {
            if self.0.contains_key(&tid) {
                continue;
            }
            if self.0.len() >= room {
                left_out += 1;
                continue;
            }
            // Gone since, or not ours to look at.
            let Some(thread) = Thread::open(tid, buffer) else { continue };
            self.0.insert(tid, thread);
        }
        left_out
    }

    /// Reads all of them in `window`.
    pub(super) fn read(&mut self, window: u64, buffer: &mut Vec<u8>) -> Spent {
        let mut spent = Spent::default();
        self.0.retain(|_, thread| {
            let Some((run_ns, wait_ns)) = thread.totals(buffer) else { return false };
            let windows = window.saturating_sub(thread.read).max(1);
            let ran = run_ns.saturating_sub(thread.run_ns);
            if windows == 1 && ran > 0 {
                *spent.on_cpu_ns.entry(thread.process).or_default() += ran;
            }
            if thread.read != 0 {
                // The kernel adds a wait at its end: a long one would be told of one window.
                let waited = wait_ns.saturating_sub(thread.wait_ns);
                spent.wait_ns += waited.min(windows.saturating_mul(WINDOW_NS));
            }
            (thread.run_ns, thread.wait_ns, thread.read) = (run_ns, wait_ns, window);
            true
        });
        spent
    }
}

impl Thread {
    fn open(tid: u32, buffer: &mut Vec<u8>) -> Option<Self> {
        let file = File::open(format!("/proc/{tid}/schedstat")).ok()?;
        let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
        let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
        let mut thread = Self { file, process, run_ns: 0, wait_ns: 0, read: 0 };
        (thread.run_ns, thread.wait_ns) = thread.totals(buffer)?;
        Some(thread)
    }

    fn totals(&self, buffer: &mut Vec<u8>) -> Option<(u64, u64)> {
        read_again(&self.file, buffer).ok()?;
        schedstat::totals(std::str::from_utf8(buffer).ok()?)
    }
}

//! The ground that a laboratory stands on: a run's lock and guard, its folder in memory, its network namespaces, the cgroup around all of
//! it, and the thread that starts its processes. Whoever drops it leaves nothing behind. Knows nothing of what stands on it.

use super::machine;
use crate::console::failure::sentence;
use crate::console::progress::complain;
use crate::lab::reaper::{self, Guard, RunLock};
use crate::lab::spawner::Spawner;
use crate::os::cgroup::{self, Cgroup};
use crate::os::clock::unix_ns;
use crate::os::is_root;
use crate::os::netns;
use crate::os::process::{self, run};
use anyhow::{Result, bail};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Share of CPU against the machine's other cgroups, as a multiple of an ordinary one's: the lab's own neighbours are inside it, and
/// the machine's are no part of its experiments. At full contention two CPUs leave a fifth of each to everybody else.
const CPU_WEIGHT: f64 = 4.0;

/// What a laboratory needs before it has a server.
#[derive(Debug)]
pub struct Ground {
    run: String,
    folder: PathBuf,
    top: Cgroup,
    // Dropped in this order, after `Drop::drop` has reaped: the guard finds nothing left to do.
    guard: Guard,
    spawner: Spawner,
    _lock: RunLock,
}

/// What exists before the ground does: removes it again if laying it fails half way.
struct Scaffold<'a>(&'a str, bool);

impl Drop for Scaffold<'_> {
    fn drop(&mut self) {
        if !self.1 {
            remove(self.0);
        }
    }
}

fn remove(run: &str) {
    if let Err(error) = reaper::reap(run) {
        complain(&format!("lab: {}", sentence(&error)));
    }
}

impl Ground {
    /// Lays it, with a network namespace for each part. Needs root, and so much memory to be available. Removes the remains of labs that
    /// died first.
    pub fn lay(parts: &[(&str, Ipv4Addr)], memory_mib: u64) -> Result<Self> {
        if !is_root() {
            bail!(
                "the lab needs root: it makes network namespaces, cgroups and loop devices\n  remedy: run it with sudo"
            );
        }
        for run in reaper::reap_stale()? {
            complain(&format!("lab: removed the remains of run {run}"));
        }
        machine::check_memory(memory_mib)?;
        // Inherited by the servers: an event-driven one needs two files for each request.
        process::raise_file_limit()?;
        let run_id = format!("{:x}{:02x}", std::process::id(), unix_ns() / 1_000_000 % 256);
        let lock = RunLock::take(&run_id)?;
        let guard = Guard::start(&run_id)?;
        let mut scaffold = Scaffold(&run_id, false);

        let folder = reaper::run_folder(&run_id);
        std::fs::create_dir_all(&folder)?;
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1200m,mode=755", "tailwater-lab"])
            .arg(&folder))?;
        netns::create(&run_id, parts)?;
        let hierarchies = cgroup::hierarchies()?;
        Cgroup::create(&hierarchies, reaper::CGROUP_ROOT)?.set_cpu_weight(CPU_WEIGHT)?;
        let top = Cgroup::create(&hierarchies, &format!("{}/{run_id}", reaper::CGROUP_ROOT))?;
        let spawner = Spawner::start()?;
        // From here on its own Drop cleans up.
        scaffold.1 = true;
        drop(scaffold);
        Ok(Self { run: run_id, folder, top, guard, spawner, _lock: lock })
    }

    /// Id of this run: part of every name it put on the machine.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// A folder in memory that goes with it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The cgroup around all of it.
    #[must_use]
    pub fn top(&self) -> &Cgroup {
        &self.top
    }

    /// Starts processes that die with it.
    #[must_use]
    pub fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    /// Pid of the process that cleans up if this one dies.
    #[must_use]
    pub fn guard_pid(&self) -> u32 {
        self.guard.pid()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        remove(&self.run);
    }
}

//! Removes what a lab leaves on the machine, by what is found there and not by what the lab remembers: it must work after a
//! crash at any point. Also keeps the guard, a process that does this at once when its lab dies.

use crate::lab::disk;
use crate::os::{cgroup, netns, process};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// Parent of the run folders. A run's folder is a file system in memory of its own.
pub const RUN_ROOT: &str = "/run/tailwater-lab";
/// Parent of every lab's cgroups.
pub const CGROUP_ROOT: &str = "/tailwater-lab";

/// So often the folder of all runs is made where another run takes it away just then.
const FOLDER_TRIES: usize = 10;

/// First argument of the guard's command line.
pub const GUARD: &str = "guard";

/// Folder of a run.
#[must_use]
pub fn run_folder(run: &str) -> PathBuf {
    Path::new(RUN_ROOT).join(run)
}

fn lock_path(run: &str) -> PathBuf {
    Path::new(RUN_ROOT).join(format!("{run}.lock"))
}

/// Held as long as a run lives; the kernel releases it when the process dies, however it dies.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl RunLock {
    /// Takes the lock of a run and writes the owner's pid into it.
    pub fn take(run: &str) -> Result<Self> {
        let path = lock_path(run);
        let file = lock_file(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("a lab with run id {run} is running already"),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("lock {}", path.display()));
            }
        }
        std::fs::write(&path, std::process::id().to_string())?;
        Ok(Self { _file: file })
    }
}

/// Makes a lock's file in the folder of all runs. Whoever removes the last run removes the folder, too, maybe just before the file is made.
fn lock_file(path: &Path) -> Result<File> {
    let mut made = Err(std::io::ErrorKind::NotFound.into());
    for _ in 0..FOLDER_TRIES {
        std::fs::create_dir_all(RUN_ROOT).with_context(|| format!("create {RUN_ROOT}"))?;
        made = File::create(path);
        if !made.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            break;
        }
    }
    made.with_context(|| format!("create {}", path.display()))
}

/// The pid of a run's owner, if the run is alive.
#[must_use]
pub fn owner(run: &str) -> Option<i32> {
    let file = OpenOptions::new().read(true).open(lock_path(run)).ok()?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => std::fs::read_to_string(lock_path(run)).ok()?.parse().ok(),
        _ => None,
    }
}

/// Every run that left a trace: lock, folder, cgroup or namespace.
pub fn runs() -> Result<BTreeSet<String>> {
    let mut found = runs_with_more_than_a_lock()?;
    for entry in std::fs::read_dir(RUN_ROOT).into_iter().flatten().flatten() {
        if let Some(run) = entry.file_name().to_string_lossy().strip_suffix(".lock") {
            found.insert(run.to_owned());
        }
    }
    Ok(found)
}

fn runs_with_more_than_a_lock() -> Result<BTreeSet<String>> {
    let mut found: BTreeSet<String> = netns::existing().into_iter().map(|(_, run)| run).collect();
    let mut folders = vec![PathBuf::from(RUN_ROOT)];
    for hierarchy in cgroup::hierarchies()?.iter() {
        folders.push(hierarchy.mount.join(&CGROUP_ROOT[1..]));
    }
    for folder in folders {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.insert(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    Ok(found)
}

/// Removes all runs whose owner is gone. Returns their ids.
pub fn reap_stale() -> Result<Vec<String>> {
    let mut reaped = Vec::new();
    for run in runs()? {
        if owner(&run).is_none() && reap_dead(&run)? {
            reaped.push(run);
        }
    }
    // One that was ended before it had a lock left the folder alone. It stays while another run is in it.
    let _ = std::fs::remove_dir(RUN_ROOT);
    Ok(reaped)
}

/// Removes what a run without an owner left; whether there was anything. Its guard or another cleaner may be at it: then it waits and
/// looks again.
pub fn reap_dead(run: &str) -> Result<bool> {
    let path = lock_path(run);
    let file = lock_file(&path)?;
    file.lock().with_context(|| format!("lock {}", path.display()))?;
    // The one that had the lock may have removed everything, the lock's file included; this one's is then the only trace.
    let others = runs_with_more_than_a_lock()?.contains(run);
    reap(run)?;
    Ok(others)
}

/// Removes everything that belongs to a run. Goes on after a failure and reports the first one at the end. The caller holds its lock.
pub fn reap(run: &str) -> Result<()> {
    let hierarchies = cgroup::hierarchies()?;
    let folder = run_folder(run);
    let mut result = kill_all(&hierarchies, run);
    let mut note = |outcome: Result<()>| {
        if result.is_ok() {
            result = outcome;
        }
    };
    let devices = disk::loops_under(&folder);
    for device in &devices {
        // Lifted first: unmounting writes back, and a limited device would make that take seconds.
        note(cgroup::set_v1_root_write_limit(&hierarchies, &device.number, None));
    }
    for mount in mounts_under(&folder).into_iter().filter(|mount| *mount != folder) {
        note(unmount(&mount));
    }
    for device in &devices {
        note(disk::detach(device));
    }
    for mount in mounts_under(&folder) {
        note(unmount(&mount));
    }
    for (name, owner) in netns::existing() {
        if owner == run {
            note(netns::delete(&name));
        }
    }
    note(cgroup::remove(&hierarchies, &format!("{CGROUP_ROOT}/{run}")));
    for hierarchy in hierarchies.iter() {
        // The common parent goes with the last run; it is busy while another one lives.
        let _ = std::fs::remove_dir(hierarchy.mount.join(&CGROUP_ROOT[1..]));
    }
    if folder.exists() {
        note(std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display())));
    }
    if result.is_ok() {
        let _ = std::fs::remove_file(lock_path(run));
        let _ = std::fs::remove_dir(RUN_ROOT);
    }
    result.with_context(|| format!("clean up after lab {run}"))
}

/// Ends every process of the run, by pid, until none is left: a server may fork while it is being ended.
fn kill_all(hierarchies: &[cgroup::Hierarchy], run: &str) -> Result<()> {
    let path = format!("{CGROUP_ROOT}/{run}");
    process::wait_for(&format!("the processes of lab {run} to end"), Duration::from_secs(20), || {
        let pids = cgroup::pids_below(hierarchies, &path);
        for pid in &pids {
            process::signal(*pid, libc::SIGKILL)?;
        }
        Ok(pids.is_empty().then_some(()))
    })
}

/// Mount points at and under a folder, the deepest first.
fn mounts_under(folder: &Path) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<PathBuf> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4).map(PathBuf::from))
        .filter(|point| point.starts_with(folder))
        .collect();
    found.reverse();
    found
}

fn unmount(point: &Path) -> Result<()> {
    // A process that was just ended may hold files for a moment longer.
    process::wait_for(&format!("{} to be unmounted", point.display()), Duration::from_secs(10), || {
        Ok(process::run(Command::new("umount").arg(point)).is_ok().then_some(()))
    })
}

/// A process that outlives a crash of the lab and cleans up after it.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    line: Option<ChildStdin>,
}

impl Guard {
    /// Starts the guard of a run.
    pub fn start(run: &str) -> Result<Self> {
        let mut command = Command::new(process::sibling_binary("lab")?);
        command.args([GUARD, run]).stdin(Stdio::piped()).stdout(Stdio::null());
        // Not in the terminal's process group: Ctrl-C must not end it before the lab.
        // SAFETY: setsid takes nothing and is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        let mut child = command.spawn().context("start the lab's guard")?;
        let line = child.stdin.take();
        Ok(Self { child, line })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.line.take();
        // By now the lab has cleaned up, so the guard finds nothing to do and exits.
        let _ = self.child.wait();
    }
}

/// What the guard does: waits for the lab's end of the pipe to close, then removes what is left.
pub fn guard(run: &str) -> Result<()> {
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).context("wait for the lab to end")?;
    if runs()?.contains(run) {
        reap_dead(run)?;
    }
    Ok(())
}

//! What the privileged tests of the kernel signals share: cgroups, processes in them, the clock, and a prompt or late reader.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
#![allow(unreachable_pub, reason = "a module of test binaries")]

#[path = "../../../tests/src/disturbed.rs"]
mod disturbed;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tailwater_agent::attach::loader::{AttachConfig, KernelBtf, possible_cpus};
use tailwater_agent::sample::slots::cgroup_hierarchy;
use tailwater_agent::signal::SignalSource;
use tailwater_agent::window::{CgroupId, WINDOW_NS, Window, WindowIndex};

fn clock_ns(clock: i32) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut t) }, 0);
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

pub fn unix_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

pub fn epoch_offset_ns() -> i64 {
    unix_ns().wrapping_sub(clock_ns(libc::CLOCK_MONOTONIC)).cast_signed()
}

pub fn attach_config(btf: &KernelBtf, workloads_max: u32) -> AttachConfig<'_> {
    AttachConfig {
        btf,
        cgroup_hierarchy: cgroup_hierarchy(),
        cpus: possible_cpus(),
        workloads_max,
        epoch_offset_ns: epoch_offset_ns(),
    }
}

/// The trees that a cgroup must exist in: the one that is the identity, then those with accounts.
fn trees() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut v2 = Vec::new();
    let mut v1 = Vec::new();
    for line in mounts.lines() {
        let f: Vec<&str> = line.split(' ').collect();
        let wanted = f[3].split(',').any(|o| ["cpuacct", "cpu", "memory", "blkio"].contains(&o));
        match f[2] {
            "cgroup2" => v2.push(PathBuf::from(f[1])),
            "cgroup" if wanted => v1.push(PathBuf::from(f[1])),
            _ => {}
        }
    }
    v2.into_iter().chain(v1).collect()
}

/// A cgroup of this test, at the same path in every tree; removed on drop.
pub struct Cgroup {
    directories: Vec<PathBuf>,
}

impl Cgroup {
    pub fn new(name: &str) -> Self {
        let name = format!("tailwater-test-{}-{name}", std::process::id());
        let directories: Vec<PathBuf> = trees().into_iter().map(|t| t.join(&name)).collect();
        for d in &directories {
            fs::create_dir(d).unwrap_or_else(|e| panic!("{}: {e}", d.display()));
        }
        Self { directories }
    }

    pub fn id(&self) -> CgroupId {
        CgroupId(fs::metadata(&self.directories[0]).unwrap().ino())
    }

    pub fn cpu_usage_ns(&self) -> u64 {
        let read = |d: &PathBuf| fs::read_to_string(d.join("cpuacct.usage")).ok()?.trim().parse().ok();
        if let Some(ns) = self.directories.iter().find_map(read) {
            return ns;
        }
        let stat = fs::read_to_string(self.directories[0].join("cpu.stat")).unwrap();
        let usec = stat.lines().find_map(|l| l.strip_prefix("usage_usec ")).unwrap();
        usec.parse::<u64>().unwrap() * 1000
    }

    pub fn write(&self, file: &str, value: &str) {
        let path = self.directories.iter().map(|d| d.join(file)).find(|p| p.exists());
        let path = path.unwrap_or_else(|| panic!("no {file} in any tree"));
        fs::write(&path, value).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// What a process that writes "0" to each of them enters it by.
    pub fn procs(&self) -> Vec<fs::File> {
        let open = |d: &PathBuf| fs::OpenOptions::new().write(true).open(d.join("cgroup.procs")).unwrap();
        self.directories.iter().map(open).collect()
    }

    /// Puts a process into it.
    pub fn enter(&self, pid: u32) {
        for procs in self.directories.iter().map(|d| d.join("cgroup.procs")) {
            fs::write(&procs, pid.to_string()).unwrap_or_else(|e| panic!("{}: {e}", procs.display()));
        }
    }

    /// `sh -c script`, which enters the cgroup before it runs the script.
    pub fn command(&self, script: &str) -> Command {
        let enter: String =
            self.directories.iter().map(|d| format!("echo $$ > {}/cgroup.procs; ", d.display())).collect();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{enter}{script}")]).stdin(Stdio::null());
        command
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for d in &self.directories {
            // Tasks that were just killed take a moment to leave.
            for _ in 0..200 {
                if fs::remove_dir(d).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// A shell that runs a script in a cgroup, on the given CPUs, until dropped.
pub struct Spinner {
    child: Child,
}

impl Spinner {
    pub fn start(group: &Cgroup, script: &str, cpus: &[usize]) -> Self {
        let list: Vec<String> = cpus.iter().map(ToString::to_string).collect();
        let ready = format!("taskset -pc {} $$ >/dev/null; echo ready; {script}", list.join(","));
        let mut child = group.command(&ready).stdout(Stdio::piped()).spawn().unwrap();
        let mut byte = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        Self { child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn stop(self) {}
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User, nice, system, irq and softirq time of the machine.
pub fn proc_stat_busy_ns() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let v: Vec<u64> =
        stat.lines().next().unwrap().split_whitespace().skip(1).map(|v| v.parse().unwrap()).collect();
    // SAFETY: no arguments that could be wrong.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.unsigned_abs();
    (v[0] + v[1] + v[2] + v[5] + v[6]) * (1_000_000_000 / per_second)
}

/// Drains a signal window by window, as the sampler does.
#[derive(Clone)]
pub struct Drained {
    next: u64,
}

impl Drained {
    /// From the first whole window that comes.
    pub fn from_now() -> Self {
        Self { next: unix_ns() / WINDOW_NS + 1 }
    }

    /// From the window that is open: whatever comes from now on is in one that is read, and some of what came before it.
    pub fn from_the_open() -> Self {
        Self { next: unix_ns() / WINDOW_NS }
    }

    /// Every window that is closed by now.
    pub fn until_now(&mut self, signal: &mut dyn SignalSource) -> Vec<Window> {
        let mut windows = Vec::new();
        // A hook that took its timestamp just before the end may still be writing.
        while (self.next + 1) * WINDOW_NS + 5_000_000 < unix_ns() {
            let mut window = Window { index: WindowIndex(self.next), ..Window::default() };
            signal.drain(&mut window);
            windows.push(window);
            self.next += 1;
        }
        windows
    }

    /// Skips what the ring cannot hold any more; returns how many windows that were.
    pub fn skip_lapped(&mut self, signal: &mut dyn SignalSource) -> u64 {
        let first = unix_ns() / WINDOW_NS - 61;
        let lost = first.saturating_sub(self.next);
        if lost > 0 {
            signal.skip_to(WindowIndex(first));
            self.next = first;
        }
        lost
    }
}

impl Cgroup {
    /// Sets the memory limit, of whichever version the controller is.
    pub fn limit_memory(&self, bytes: u64) {
        let file = |name: &str| self.directories.iter().map(|d| d.join(name)).find(|p| p.exists());
        let path = file("memory.limit_in_bytes").or_else(|| file("memory.max")).expect("a memory controller");
        fs::write(&path, bytes.to_string()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

/// What a device says that it completed.
#[derive(Debug, Clone, Copy)]
pub struct Completed {
    pub writes: u64,
    pub bytes: u64,
    pub flushes: u64,
}

/// A loop device over a file of this test; detached on drop.
pub struct LoopDevice {
    name: String,
    _file: tempfile::NamedTempFile,
}

impl LoopDevice {
    pub fn new(bytes: u64) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        let output = Command::new("losetup").args(["-f", "--show"]).arg(file.path()).output().unwrap();
        assert!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr));
        let path = String::from_utf8(output.stdout).unwrap();
        let name = path.trim().trim_start_matches("/dev/").to_owned();
        Self { name, _file: file }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Documentation/block/stat.rst: writes are the fifth value, their sectors the seventh, flushes the sixteenth.
    pub fn completed(&self) -> Completed {
        let stat = fs::read_to_string(format!("/sys/block/{}/stat", self.name)).unwrap();
        let v: Vec<u64> = stat.split_whitespace().map(|v| v.parse().unwrap()).collect();
        Completed { writes: v[4], bytes: (v[2] + v[6]) * 512, flushes: v.get(15).copied().unwrap_or(0) }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.path()]).status();
    }
}

/// Makes an experiment; again if it panics and the machine was measured to be taken away meanwhile.
pub fn experiment(name: &str, make: impl Fn()) {
    let made = disturbed::experiment(name, || {
        make();
        Ok(())
    });
    made.unwrap();
}

//! The agent's own CPU and memory while it names 50 workloads and 100 listeners and edges that are all active in every window.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Cgroups with a task that wakes 40 times a second.
#[derive(Debug)]
pub struct Workloads {
    children: Vec<Child>,
    folders: Vec<PathBuf>,
}

fn hierarchies() -> Vec<PathBuf> {
    ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"]
        .iter()
        .map(PathBuf::from)
        .filter(|p| p.join("cgroup.procs").exists())
        .collect()
}

impl Workloads {
    /// Makes `count` of them in every mounted hierarchy.
    pub fn start(count: usize) -> Result<Self> {
        let mut made = Self { children: Vec::new(), folders: Vec::new() };
        for number in 0..count {
            let child = Command::new("sh")
                .args(["-c", "while :; do sleep 0.025; done"])
                .stdin(Stdio::null())
                .spawn()?;
            for root in hierarchies() {
                let folder = root.join(format!("tailwater-bench-{}-{number}", std::process::id()));
                std::fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
                std::fs::write(folder.join("cgroup.procs"), child.id().to_string())?;
                made.folders.push(folder);
            }
            made.children.push(child);
        }
        Ok(made)
    }
}

impl Drop for Workloads {
    fn drop(&mut self) {
        for child in &mut self.children {
            // A child that is gone already is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
        for folder in &self.folders {
            let until = Instant::now() + Duration::from_secs(1);
            // A last `sleep` may live some milliseconds longer than its shell.
            while std::fs::remove_dir(folder).is_err() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// `pairs` listeners, each called once per 25 ms over a connection of its own: `pairs` listeners and `pairs` edges.
pub fn start_pairs(pairs: usize) -> Result<()> {
    for _ in 0..pairs {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || -> Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut byte = [0; 1];
            loop {
                stream.read_exact(&mut byte)?;
                stream.write_all(&byte)?;
            }
        });
        std::thread::spawn(move || -> Result<()> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            let mut byte = [0; 1];
            loop {
                stream.write_all(&byte)?;
                stream.read_exact(&mut byte)?;
                std::thread::sleep(Duration::from_millis(25));
            }
        });
    }
    Ok(())
}

/// What a process used.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Share of one core.
    pub cpu_ratio: f64,
    /// Resident set, bytes.
    pub resident_bytes: u64,
}

/// CPU ns of `pid` since it started, from the scheduler's exact counter.
fn cpu_ns(pid: u32) -> Result<u64> {
    let mut total = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path().join("schedstat");
        // A thread may end between the listing and the read.
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        total += text
            .split_whitespace()
            .next()
            .and_then(|f| f.parse::<u64>().ok())
            .with_context(|| format!("{} has three numbers", path.display()))?;
    }
    Ok(total)
}

/// Watches `pid` for `length`.
pub fn watch(pid: u32, length: Duration) -> Result<Usage> {
    let before = cpu_ns(pid)?;
    let begun = Instant::now();
    std::thread::sleep(length);
    let used = cpu_ns(pid)?.saturating_sub(before);
    let took = begun.elapsed();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident_kb: u64 = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .and_then(|l| l.split_whitespace().next())
        .and_then(|n| n.parse().ok())
        .context("VmRSS in /proc/PID/status")?;
    Ok(Usage {
        cpu_ratio: Duration::from_nanos(used).as_secs_f64() / took.as_secs_f64(),
        resident_bytes: resident_kb * 1024,
    })
}

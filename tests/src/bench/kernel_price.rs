//! Mean run time of each kernel program, by the kernel's own statistics (`kernel.bpf_stats_enabled`), under a load of
//! context switches and of small TCP messages.

use super::throughput::{self, Shape};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

const STATS_SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Turns the kernel's statistics on, and back to what they were when dropped. They cost some 20 ns per event themselves, which the
/// figures include.
#[derive(Debug)]
pub struct StatsOn {
    before: String,
}

impl StatsOn {
    /// Needs root.
    pub fn new() -> Result<Self> {
        let before = std::fs::read_to_string(STATS_SWITCH).context(STATS_SWITCH)?;
        std::fs::write(STATS_SWITCH, "1").context(STATS_SWITCH)?;
        Ok(Self { before })
    }
}

impl Drop for StatsOn {
    fn drop(&mut self) {
        // Leaving the statistics on is harmless; there is nobody to tell.
        let _ = std::fs::write(STATS_SWITCH, self.before.trim());
    }
}

/// Runs and nanoseconds of one program so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Price {
    /// Times it ran.
    pub runs: u64,
    /// Nanoseconds in all.
    pub ns: u64,
}

/// Ids of the programs that process `pid` has open. bpftool tells holders only where it was built with a BPF skeleton.
fn held_by(pid: u32) -> Result<BTreeSet<u64>> {
    let folder = format!("/proc/{pid}/fdinfo");
    let mut ids = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.clone())? {
        // A descriptor may be closed between the listing and the read.
        let text = std::fs::read_to_string(entry?.path()).unwrap_or_default();
        let id = text.lines().find_map(|line| line.strip_prefix("prog_id:"));
        ids.extend(id.and_then(|id| id.trim().parse::<u64>().ok()));
    }
    Ok(ids)
}

/// The programs that process `pid` holds, by name.
pub fn programs_of(pid: u32) -> Result<BTreeMap<String, Price>> {
    let out = Command::new("bpftool").args(["-j", "prog", "show"]).output().context("bpftool prog show")?;
    let list: serde_json::Value = serde_json::from_slice(&out.stdout).context("bpftool prints JSON")?;
    let held = held_by(pid)?;
    let mut prices: BTreeMap<String, Price> = BTreeMap::new();
    for program in list.as_array().into_iter().flatten() {
        if !program["id"].as_u64().is_some_and(|id| held.contains(&id)) {
            continue;
        }
        let name = program["name"].as_str().unwrap_or("?").to_owned();
        let price = prices.entry(name).or_default();
        price.runs += program["run_cnt"].as_u64().unwrap_or(0);
        price.ns += program["run_time_ns"].as_u64().unwrap_or(0);
    }
    Ok(prices)
}

/// Two processes on one CPU pass a byte back and forth: two switches and two wakeups a round.
pub fn context_switches(length: Duration) -> Result<u64> {
    let (mut here, mut there) = std::os::unix::net::UnixStream::pair()?;
    let echo = std::thread::spawn(move || {
        let mut byte = [0; 1];
        while there.read(&mut byte).is_ok_and(|n| n == 1) {
            if there.write_all(&byte).is_err() {
                break;
            }
        }
    });
    let until = Instant::now() + length;
    let mut rounds = 0;
    let mut byte = [0; 1];
    while Instant::now() < until {
        here.write_all(&byte)?;
        here.read_exact(&mut byte)?;
        rounds += 1;
    }
    drop(here);
    // The echo thread ends with the socket; a panic in it would show as a broken round above.
    let _ = echo.join();
    Ok(rounds)
}

/// Runs both loads for `length` each while `pid` watches, and says what each program cost per run.
pub fn measure(pid: u32, length: Duration) -> Result<BTreeMap<String, Price>> {
    let _stats = StatsOn::new()?;
    let before = programs_of(pid)?;
    context_switches(length)?;
    throughput::smallest(Shape::KeepAlive, length)?;
    throughput::smallest(Shape::ConnectionPerRequest, length)?;
    let after = programs_of(pid)?;
    Ok(after
        .into_iter()
        .map(|(name, now)| {
            let was = before.get(&name).copied().unwrap_or_default();
            let price = Price { runs: now.runs.saturating_sub(was.runs), ns: now.ns.saturating_sub(was.ns) };
            (name, price)
        })
        .collect())
}

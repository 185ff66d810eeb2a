//! What the hypervisor took of the CPUs while something was measured: printed beside the figure.

use crate::os::ticks_per_second;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// What the hypervisor took from all CPUs since the machine started.
fn stolen() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    // user nice system idle iowait irq softirq steal
    let ticks = stat.lines().next().and_then(|line| line.split_whitespace().nth(8));
    let ticks: u64 = ticks.context("/proc/stat tells steal")?.parse()?;
    Ok(Duration::from_secs_f64(ticks as f64 / ticks_per_second()))
}

/// From its begin on.
#[derive(Debug)]
pub struct Steal {
    begun: Instant,
    before: Duration,
}

impl Steal {
    /// Now.
    pub fn begin() -> Result<Self> {
        Ok(Self { begun: Instant::now(), before: stolen()? })
    }

    /// Part of all CPU time since, 0 to 1.
    pub fn ratio(&self) -> Result<f64> {
        let cpus = std::thread::available_parallelism()?.get() as f64;
        let stolen = stolen()?.saturating_sub(self.before);
        Ok(stolen.as_secs_f64() / self.begun.elapsed().as_secs_f64() / cpus)
    }
}

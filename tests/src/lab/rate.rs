//! How much load a lab bears on this machine: measured by what a request takes of each tier. Owns the choice of the default load; knows
//! no cell and no server.

use super::{Lab, TierHandle};
use crate::load::{LoadPlan, Mode};
use crate::scenario;
use anyhow::{Result, bail};

/// Length of the measurement of [`Lab::capacity`], at half the tuned load, so that nothing queues.
const CAPACITY_MS: u64 = 2_000;
/// It is measured this often at most before the machine is said to be too slow.
const MEASURED_MAX: u32 = 3;
/// The most that the default load takes of the busiest tier's CPU. On a machine on which it would take more it is made smaller: a tier
/// that is nearly full never recovers from a stall.
const UTILISATION_MAX: f64 = 0.7;
/// A default load smaller than this share of the tuned one overflows no queue.
const RATE_SHARE_MIN: f64 = 0.55;

impl Lab {
    pub(super) fn choose_rate(&mut self) -> Result<()> {
        if self.config.warm_up_requests == 0 {
            return Ok(());
        }
        let tuned = self.rate_per_second;
        let mut capacity = self.capacity()?;
        // A machine that others use too may stall in the very seconds of one measurement.
        for _ in 1..MEASURED_MAX {
            if UTILISATION_MAX * capacity >= RATE_SHARE_MIN * tuned {
                break;
            }
            capacity = capacity.max(self.capacity()?);
        }
        self.rate_per_second = tuned.min(UTILISATION_MAX * capacity);
        if self.rate_per_second < RATE_SHARE_MIN * tuned {
            bail!(
                "the busiest tier can serve {capacity:.0} requests a second here, the lab needs {:.0}: is something else running?",
                RATE_SHARE_MIN * tuned / UTILISATION_MAX
            );
        }
        if self.rate_per_second < tuned {
            let rate = self.rate_per_second;
            eprintln!(
                "lab: the busiest tier can serve {capacity:.0} requests a second here: load {rate:.0} instead of {tuned:.0}"
            );
        }
        Ok(())
    }

    /// Requests a second at which the busiest tier would use all of its CPU, measured now by what a request takes of each.
    pub fn capacity(&self) -> Result<f64> {
        let before = self.truth()?;
        let mode = Mode::Open { rate_per_second: scenario::rate_per_second(self.stack()) / 2.0 };
        let sent = self.load(&LoadPlan::new(mode, CAPACITY_MS))?.wait()?.summary.sent as f64;
        let used = self.truth()?.since(&before);
        let of = |handle: &TierHandle| {
            let seconds = used.tier(handle.tier).cpu_usage_ns as f64 / 1e9;
            self.config.limits(handle.tier).cores * sent / seconds.max(1e-3)
        };
        Ok(self.homes().map(of).fold(f64::INFINITY, f64::min))
    }

    /// Requests a second of the default load: [`scenario::rate_per_second`], less where the machine is slow.
    #[must_use]
    pub fn rate_per_second(&self) -> f64 {
        self.rate_per_second
    }

    /// The default load, for so long.
    #[must_use]
    pub fn default_load(&self, duration_ms: u64) -> LoadPlan {
        LoadPlan::new(Mode::Open { rate_per_second: self.rate_per_second }, duration_ms)
    }
}

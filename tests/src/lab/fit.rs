//! How a lab was made to fit its machine, and that in a sentence. Plain values; knows nothing of how they are found.

use super::Scale;
use super::machine::Spell;
use crate::stack::Tier;
use std::time::Duration;

/// How a lab was made to fit its machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Requests a second of the default load where the lab was tuned.
    pub tuned_per_second: f64,
    /// And here.
    pub rate_per_second: f64,
    /// What the lab's limits are of the tuned ones.
    pub scale: Scale,
    /// Requests a second at which the busiest tier would use all of its quota.
    pub capacity_per_second: f64,
    /// Which tier that is.
    pub busiest: Tier,
    /// How long 99 of 100 requests of the last measurement took at most.
    pub p99: Duration,
    /// What the machine did in it.
    pub machine: Spell,
    /// What was tried before and was too much, a sentence each.
    pub tried: Vec<String>,
}

impl Fit {
    /// Whether the machine bears the tuned load and keeps more than half of its CPUs for those who watch.
    pub(super) fn has_room(&self) -> bool {
        let Spell { cpus, steal_ratio, lab_cores, other_cores, .. } = self.machine;
        let left = cpus as f64 * (1.0 - steal_ratio) - other_cores;
        self.rate_per_second >= 0.95 * self.tuned_per_second && lab_cores <= 0.55 * left
    }
}

impl std::fmt::Display for Fit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rate, tuned) = (self.rate_per_second, self.tuned_per_second);
        if rate < tuned {
            write!(f, "load {rate:.0} instead of {tuned:.0} requests a second")?;
            if self.scale.requests < 1.0 {
                write!(f, ", workers, queues and bursts at {:.0} %", 100.0 * self.scale.requests)?;
            }
        } else {
            write!(f, "load {rate:.0} requests a second")?;
        }
        write!(
            f,
            ": the {} tier could serve {:.0}, p99 {} ms, {:.1} CPUs used, {}",
            self.busiest.name(),
            self.capacity_per_second,
            self.p99.as_millis(),
            self.machine.lab_cores,
            self.machine
        )
    }
}

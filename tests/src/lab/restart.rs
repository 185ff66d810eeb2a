//! A lab whose servers are started anew with other limits, and what everybody took of the machine while something ran in it: for
//! whoever compares limits. Knows no server and judges nothing.

use super::{Lab, LabConfig, Spell};
use crate::stack::Tier;
use anyhow::Result;
use std::time::Instant;

/// What was taken of the machine's CPUs for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// All of it, and the hypervisor's share.
    pub machine: Spell,
    /// CPUs that the load generator took.
    pub client_cores: f64,
    /// CPUs that each "VM" took, as the kernel counts them for its cgroup.
    pub tiers_cores: Vec<(Tier, f64)>,
}

impl Observed {
    /// CPUs that the "VM" of a tier took; none of a tier that the stack does not have.
    #[must_use]
    pub fn cores(&self, tier: Tier) -> Option<f64> {
        self.tiers_cores.iter().find(|(known, _)| *known == tier.home()).map(|(_, cores)| *cores)
    }
}

impl Lab {
    /// Ends the servers and starts them with these limits, of the same stack, warmed up. What the machine bears is not asked: the
    /// limits are taken as they are.
    pub fn restart_with(&mut self, config: LabConfig) -> Result<()> {
        anyhow::ensure!(
            config.stack == self.stack(),
            "a lab of {} cannot go on as {}: start another one",
            self.stack(),
            config.stack
        );
        self.tuned = config.clone();
        self.fit = None;
        self.start_anew(config)
    }

    /// Does `work`, and says what was taken of the machine meanwhile.
    pub fn observed<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Observed)> {
        let taken = || -> Result<(u64, Vec<(Tier, u64)>)> {
            let tiers = self.homes().map(|handle| Ok((handle.tier, handle.cgroup.cpu_usage_ns()?)));
            Ok((self.client.0.cpu_usage_ns()?, tiers.collect::<Result<_>>()?))
        };
        let (begun, moment, before) = (Instant::now(), self.moment()?, taken()?);
        let result = work()?;
        let (machine, after) = (moment.until(&self.moment()?), taken()?);
        let ns = begun.elapsed().as_nanos().max(1) as f64;
        let cores = |before: u64, after: u64| after.saturating_sub(before) as f64 / ns;
        let tiers_cores =
            before.1.iter().zip(&after.1).map(|((tier, b), (_, a))| (*tier, cores(*b, *a))).collect();
        Ok((result, Observed { machine, client_cores: cores(before.0, after.0), tiers_cores }))
    }
}

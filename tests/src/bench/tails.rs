//! What a request of the laboratory takes while Tailwater watches it, against what it takes without: percentiles from planned arrival to last
//! byte at half of what the tiers can serve, over runs that alternate. Knows the lab and the programs; judges nothing.

use super::steal::Steal;
use crate::lab::{Lab, LabConfig};
use crate::load::{LoadPlan, LoadReport, Mode, Outcome};
use crate::os::cgroup::{self, Cgroup, Hierarchy};
use crate::programs::daemons::{Collector, Daemon, http_get, start_agent, wait_for};
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The percentiles that are told.
pub const PERCENTILES: [f64; 3] = [0.5, 0.99, 0.999];
/// After the agents stream: their first walk over sockets and cgroups is over by then.
const SETTLED: Duration = Duration::from_secs(3);
const GROUP: &str = "/tailwater-bench";

/// Who watches the lab. The programs of each agent run at every event of the machine, whatever its scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agents {
    /// One, of the whole machine: as on a VM.
    One,
    /// One for each tier, as the lab pretends to have a VM for each.
    OnePerTier,
}

/// Two runs of the same load.
#[derive(Debug, Clone)]
pub struct Pair {
    /// ms, at each of [`PERCENTILES`].
    pub without_ms: [f64; 3],
    /// The same beside agents and collector.
    pub with_ms: [f64; 3],
    /// CPUs that the collector took meanwhile, and all agents together.
    pub collector_cores: f64,
    /// See above.
    pub agents_cores: f64,
    /// Requests that were not answered in both runs.
    pub failed: usize,
    /// Part of all CPU time that the hypervisor took in both runs, 0 to 1.
    pub stolen_ratio: f64,
}

/// All pairs, and the load that they were.
#[derive(Debug)]
pub struct Measured {
    /// Requests a second, open loop.
    pub rate_per_second: f64,
    /// In their order.
    pub pairs: Vec<Pair>,
}

/// The programs under test, collector and agents in a cgroup of their own each.
struct Watching {
    collector: Collector,
    agents: Vec<Daemon>,
    groups: [Cgroup; 2],
    hierarchies: Arc<Vec<Hierarchy>>,
}

fn join(group: &Cgroup, pid: u32) -> Result<()> {
    for file in group.procs_files()? {
        let file = file.to_str().context("a path in UTF-8")?;
        std::fs::write(file, pid.to_string()).with_context(|| format!("move {pid} into {file}"))?;
    }
    Ok(())
}

impl Watching {
    fn start(lab: &Lab, agents: Agents, folder: &Path) -> Result<Self> {
        let hierarchies = cgroup::hierarchies()?;
        let group = |name: &str| Cgroup::create(&hierarchies, &format!("{GROUP}/{name}"));
        let groups = [group("collector")?, group("agents")?];
        let collector = Collector::start(folder, &[])?;
        join(&groups[0], collector.daemon.pid())?;
        let mut watching = Self { collector, agents: Vec::new(), groups, hierarchies };
        let hosts: Vec<(&str, Option<&str>)> = match agents {
            Agents::One => vec![("vm", None)],
            Agents::OnePerTier => {
                let homes = lab.stack().homes();
                homes.map(|tier| (tier.host(), Some(lab.tier(tier).cgroup_path()))).collect()
            }
        };
        for (host, scope) in &hosts {
            let agent = start_agent(folder, &watching.collector.grpc_url(), host, *scope, &[])?;
            join(&watching.groups[1], agent.pid())?;
            watching.agents.push(agent);
        }
        wait_for("every agent to stream", Duration::from_secs(30), || {
            let (_, body) = http_get(watching.collector.http, "/api/v1/agents")?;
            let all = hosts.iter().all(|(host, _)| body.contains(&format!("\"{host}\"")));
            Ok(all.then_some(()))
        })?;
        std::thread::sleep(SETTLED);
        Ok(watching)
    }

    fn cpu_ns(&self) -> Result<[u64; 2]> {
        Ok([self.groups[0].cpu_usage_ns()?, self.groups[1].cpu_usage_ns()?])
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.agents.clear();
        // The cgroups can go when nobody is in them any more.
        let _ = self.collector.daemon.kill();
        if let Err(error) = cgroup::remove(&self.hierarchies, GROUP) {
            eprintln!("remove {GROUP}: {error:#}");
        }
    }
}

fn percentiles(report: &LoadReport) -> ([f64; 3], usize) {
    let answered = report.requests.iter().filter(|r| r.outcome == Outcome::Answered);
    let mut times: Vec<u64> = answered.map(|r| r.time_ns()).collect();
    times.sort_unstable();
    let at = |p: f64| times.get(((times.len() as f64 * p) as usize).min(times.len().saturating_sub(1)));
    let failed = report.requests.len() - times.len();
    (PERCENTILES.map(|p| at(p).map_or(f64::NAN, |ns| *ns as f64 / 1e6)), failed)
}

/// So many pairs of runs of `length`; which of the two comes first alternates.
pub fn measure(pairs: usize, length: Duration, agents: Agents, folder: &Path) -> Result<Measured> {
    let lab = Lab::start_logging(LabConfig::default(), Some(folder.join("servers")))?;
    let rate_per_second = lab.capacity()? / 2.0;
    let plan = LoadPlan::new(
        Mode::Open { rate_per_second },
        u64::try_from(length.as_millis()).context("a length in ms")?,
    );
    let run = || -> Result<([f64; 3], usize)> { Ok(percentiles(&lab.load(&plan)?.wait()?)) };
    let mut measured = Measured { rate_per_second, pairs: Vec::new() };
    for n in 0..pairs {
        let steal = Steal::begin()?;
        let mut without = if n % 2 == 0 { Some(run()?) } else { None };
        let watching = Watching::start(&lab, agents, folder)?;
        let (since, before) = (Instant::now(), watching.cpu_ns()?);
        let with = run()?;
        let (seconds, after) = (since.elapsed().as_secs_f64(), watching.cpu_ns()?);
        drop(watching);
        if without.is_none() {
            std::thread::sleep(SETTLED);
            without = Some(run()?);
        }
        let without = without.context("a run without")?;
        let cores = |at: usize| after[at].saturating_sub(before[at]) as f64 / 1e9 / seconds;
        measured.pairs.push(Pair {
            without_ms: without.0,
            with_ms: with.0,
            collector_cores: cores(0),
            agents_cores: cores(1),
            failed: without.1 + with.1,
            stolen_ratio: steal.ratio()?,
        });
    }
    Ok(measured)
}

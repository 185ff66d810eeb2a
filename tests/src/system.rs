//! The whole of it: a lab, one scoped agent per tier and a collector, as separate processes. Knows both the lab and the
//! daemons; judges nothing.

use crate::console::progress::{complain, step};
use crate::lab::{CALM_MAX, Injected, Injection, Lab, LabConfig, Load, Truth, scenario};
use crate::load::{LoadPlan, Mode};
use crate::os::clock::unix_ns;
use crate::programs::daemons::{Collector, Daemon, http_get, start_agent, wait_for};
use crate::programs::reported::{self, Reported};
use crate::programs::webhook_receiver::WebhookReceiver;
use crate::stack::Tier;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the "VM" that a tier lives in.
#[must_use]
pub fn host(tier: Tier) -> &'static str {
    tier.host()
}

/// Loads that are tried before the machine is given up, and how much smaller each is than the one before.
const SERVED_TRIES: u32 = 3;
const LOWER: f64 = 0.85;

/// Injections that are tried until one hurts somebody, and when what it did is counted.
const HURT_TRIES: u32 = 3;
const COUNTED_AFTER: Duration = Duration::from_millis(500);

/// A lab that is watched.
#[derive(Debug)]
pub struct System {
    /// One per watched "VM", in the order of [`Stack::homes`](crate::stack::Stack::homes).
    pub agents: Vec<Daemon>,
    /// The "VMs" that have an agent.
    watched: Vec<Tier>,
    /// The collector.
    pub collector: Collector,
    /// Takes its webhooks.
    pub receiver: WebhookReceiver,
    /// The servers.
    pub lab: Lab,
    folder: PathBuf,
}

impl System {
    /// Starts everything; logs and the collector's data go under `folder`.
    pub fn start(config: LabConfig, folder: &Path, collector_arguments: &[String]) -> Result<Self> {
        let lab = Lab::start_logging(config, Some(folder.join("servers")))?;
        Self::around(lab, folder, collector_arguments)
    }

    /// Starts collector and agents around a lab that runs.
    pub fn around(lab: Lab, folder: &Path, collector_arguments: &[String]) -> Result<Self> {
        Self::around_with(lab, folder, collector_arguments, |_| Some(Vec::new()))
    }

    /// As [`System::around`], with these arguments for the agent of a tier, or none there.
    pub fn around_with(
        lab: Lab,
        folder: &Path,
        collector_arguments: &[String],
        agent_arguments: impl Fn(Tier) -> Option<Vec<String>>,
    ) -> Result<Self> {
        let receiver = WebhookReceiver::start()?;
        let mut arguments = vec!["--webhook".to_owned(), receiver.url()];
        arguments.extend_from_slice(collector_arguments);
        let collector =
            step("the collector starts", Duration::from_secs(1), || Collector::start(folder, &arguments))?;
        let (agents, watched) = (Vec::new(), Vec::new());
        let mut system = Self { agents, watched, collector, receiver, lab, folder: folder.to_owned() };
        for tier in system.lab.stack().homes() {
            let Some(arguments) = agent_arguments(tier) else { continue };
            system.agents.push(system.start_agent(tier, &arguments)?);
            system.watched.push(tier);
        }
        step("the agents load their kernel programs", Duration::from_secs(3), || system.wait_for_agents())?;
        system.lab.fit_beside_observers()?;
        Ok(system)
    }

    /// Another agent for `tier`'s scope.
    pub fn start_agent(&self, tier: Tier, extra: &[String]) -> Result<Daemon> {
        let scope = self.lab.tier(tier).cgroup_path();
        start_agent(&self.folder, &self.collector.grpc_url(), host(tier), Some(scope), extra)
    }

    /// Waits until each agent streams to the collector.
    pub fn wait_for_agents(&mut self) -> Result<()> {
        wait_for("every agent to stream", Duration::from_secs(30), || {
            for agent in &mut self.agents {
                if let Some(status) = agent.exited()? {
                    bail!(agent.told_end(status));
                }
            }
            let (_, body) = http_get(self.collector.http, "/api/v1/agents")?;
            let mut hosts = self.watched.iter().map(|tier| host(*tier));
            Ok(hosts.all(|host| body.contains(&format!("\"{host}\""))).then_some(()))
        })
    }

    /// Injects a cell's millibottleneck `settled` after a load of `load_ms` began, waits for what is reported of it to close, and returns
    /// the one alarm there must be.
    pub fn provoke(&self, cell: &str, load_ms: u64, settled: Duration) -> Result<Provoked> {
        let cell = scenario::find(cell).context("a cell of the table")?;
        let (before, load) = self.served_load(load_ms, settled)?;
        let from = unix_ns();
        let injected = self.lab.inject(&cell.injection)?;
        let found =
            self.closed_incidents(from, injected.end_unix_ns + 3_000_000_000, Duration::from_secs(30))?;
        println!("{}: {:?}\n  {} incident(s)", cell.name, load.wait()?.summary, found.len());
        // What was dropped when the incident was over is told in another one.
        let all = self.closed_incidents(from, u64::MAX, Duration::from_secs(30))?;
        let truth = self.lab.truth()?.since(&before);
        let told_packets = all.iter().map(front_packets).sum();
        for incident in all.iter().filter(|incident| front_packets(incident) > 0) {
            let after_ms = |key: &str| {
                let at = incident[key].as_u64().unwrap_or(0);
                (i128::from(at) - i128::from(injected.start_unix_ns)) / 1_000_000
            };
            println!(
                "  {} packets at the front told from {} to {} ms after the injection began",
                front_packets(incident),
                after_ms("start_unix_ns"),
                after_ms("end_unix_ns")
            );
        }
        for incident in &found {
            let (title, evidence) = (&incident["title"], &incident["root"]["evidence"]);
            println!("  {} {} {title}\n    {evidence}", incident["severity"], incident["kind"]);
        }
        let alarming: Vec<&Value> = found.iter().filter(|incident| is_alarming(incident)).collect();
        assert_eq!(alarming.len(), 1, "one cause, one incident, not: {}", briefly(&found));
        Ok(Provoked { injected, truth, incident: Incident(alarming[0].clone()), told_packets })
    }

    /// Sends the default load until it was served for `settled` without a drop, and returns what the kernel had counted before it. Drops
    /// before anything is injected say that the machine gives less than when the lab was fitted to it: then it is a smaller load.
    pub fn served_load(&self, load_ms: u64, settled: Duration) -> Result<(Truth, Load)> {
        let mut rate_per_second = self.lab.rate_per_second();
        for _ in 0..SERVED_TRIES {
            let plan = LoadPlan::new(Mode::Open { rate_per_second }, load_ms);
            let before = self.lab.truth()?;
            let load = self.lab.load(&plan)?;
            std::thread::sleep(settled);
            let dropped = self.lab.truth()?.since(&before).web.dropped();
            if dropped == 0 {
                return Ok((before, load));
            }
            load.stop()?;
            load.wait()?;
            complain(&format!(
                "lab: {dropped} packets were dropped before anything was injected: a smaller load"
            ));
            self.lab.drain()?;
            // An incident that is still open would take what is dropped next as its own.
            self.all_closed(Duration::from_secs(30))?;
            rate_per_second *= LOWER;
        }
        bail!("no load was served for {} s, {SERVED_TRIES} times over", settled.as_secs())
    }

    /// Injects until the kernel counts a dropped packet at the front, and says when the time of that injection begins: a fast disk takes a
    /// flush that would stall another one, and then there is nothing to be told.
    pub fn hurt(&self, injection: &Injection) -> Result<(u64, Injected)> {
        for _ in 0..HURT_TRIES {
            let (before, from) = (self.lab.truth()?, unix_ns());
            let injected = self.lab.inject(injection)?;
            std::thread::sleep(COUNTED_AFTER);
            if self.lab.truth()?.since(&before).web.dropped() > 0 {
                return Ok((from, injected));
            }
            complain(&format!("lab: nothing was dropped by {}: once more", injected.kind));
            self.lab.wait_until_served(CALM_MAX)?;
        }
        bail!("{HURT_TRIES} injections, and nothing was dropped");
    }

    /// Incidents that overlap `[from, to]` (Unix ns).
    pub fn incidents_between(&self, from: u64, to: u64) -> Result<Vec<Value>> {
        let overlaps = |incident: &Value| {
            let start = incident["start_unix_ns"].as_u64().unwrap_or(0);
            let end = incident["end_unix_ns"].as_u64().filter(|end| *end > 0).unwrap_or(u64::MAX);
            start <= to && end >= from
        };
        Ok(self.collector.incidents()?.into_iter().filter(overlaps).collect())
    }

    /// Waits until no incident is open.
    fn all_closed(&self, longest: Duration) -> Result<()> {
        wait_for("each incident to close", longest, || {
            let all = self.collector.incidents()?;
            Ok(all.iter().all(|incident| incident["state"] == "closed").then_some(()))
        })
    }

    /// Waits until exactly the incidents of `[from, to]` are closed, and returns them.
    pub fn closed_incidents(&self, from: u64, to: u64, longest: Duration) -> Result<Vec<Value>> {
        wait_for("an incident to close", longest, || {
            let found = self.incidents_between(from, to)?;
            let closed = !found.is_empty() && found.iter().all(|incident| incident["state"] == "closed");
            Ok(closed.then_some(found))
        })
        .with_context(|| {
            let now = self.incidents_between(from, to).unwrap_or_default();
            if now.is_empty() { "no incident was reported".to_owned() } else { briefly(&now) }
        })
    }
}

/// A millibottleneck, and what came of it.
#[derive(Debug)]
pub struct Provoked {
    /// What was done.
    pub injected: Injected,
    /// What the kernel counted since before the load.
    pub truth: Truth,
    /// What was reported.
    pub incident: Incident,
    /// Packets dropped at the front, as all incidents of that time tell them.
    pub told_packets: u64,
}

fn front_packets(incident: &Value) -> u64 {
    let drops = incident["drops"].as_array().into_iter().flatten();
    drops.filter(|d| d["host"] == host(Tier::Web)).filter_map(|d| d["count"].as_u64()).sum()
}

/// An incident that says what it is in a line where a test prints it, not in a page of JSON.
#[derive(Debug, Clone)]
pub struct Incident(Value);

impl std::ops::Deref for Incident {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl std::fmt::Display for Incident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&briefly(std::slice::from_ref(&self.0)))
    }
}

/// Incidents for a message: one line each, as an operator would tell of them.
#[must_use]
pub fn briefly(incidents: &[Value]) -> String {
    let told: Vec<String> = incidents
        .iter()
        .map(|incident| {
            let state = incident["state"].as_str().unwrap_or("of no state");
            format!("{} ({state})", reported::brief(&Reported::of(incident)))
        })
        .collect();
    told.join("; ")
}

/// Whether it would wake somebody.
#[must_use]
pub fn is_alarming(incident: &Value) -> bool {
    incident["severity"] == "critical" || incident["severity"] == "warning"
}

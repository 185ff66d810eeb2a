//! Controls: things that happen to servers every day and are no cross-tier queue overflow. Each must leave Tailwater silent, but for the
//! SYN flood, which it must name. Owns the list, the running and the judging; the single actions are in the files beside.

pub(crate) mod clients;
mod flood;
pub(crate) mod scan;

use crate::lab::{Injection, Lab};
use crate::load::{LoadPlan, Mode, Summary};
use crate::os::clock::unix_ns;
use crate::os::process;
use crate::programs::daemons::wait_for;
use crate::programs::reported::Reported;
use crate::score::session::places;
use crate::stack::{Software, Stack, Tier};
use crate::system::System;
use crate::truth::Recorder;
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

/// Something that must not be mistaken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Load at 80 % of what the busiest tier can do.
    Steady,
    /// The front's workers are replaced one generation by the next, as in a deploy.
    Restart,
    /// The database's cache is emptied, the tables are closed.
    ColdCache,
    /// Every port of every host is tried.
    PortScan,
    /// Clients that ask and never read the answers.
    NeverRead,
    /// SYNs from addresses that never answer. The only one that must be reported, as `syn_flood`.
    SynFlood,
    /// A batch job takes all CPU that is left, at the lowest weight.
    Batch,
    /// Clients that send and read a few bytes at a time.
    SlowClients,
}

impl Control {
    /// All of them.
    pub const ALL: [Control; 8] = [
        Control::Steady,
        Control::Restart,
        Control::ColdCache,
        Control::PortScan,
        Control::NeverRead,
        Control::SynFlood,
        Control::Batch,
        Control::SlowClients,
    ];

    /// Name, as in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Control::Steady => "steady",
            Control::Restart => "restart",
            Control::ColdCache => "cold-cache",
            Control::PortScan => "port-scan",
            Control::NeverRead => "never-read",
            Control::SynFlood => "syn-flood",
            Control::Batch => "batch",
            Control::SlowClients => "slow-clients",
        }
    }

    /// The stack that it is done to: where servers of threads are the more sensitive, those; nginx alone can change generations without
    /// a gap.
    #[must_use]
    pub fn stack(self) -> Stack {
        if self == Control::Restart { Stack::Nx1 } else { Stack::Nx0 }
    }

    /// Requests a second meanwhile. A generation change or an empty cache is done at quiet hours; a batch job runs while nobody waits.
    fn rate_per_second(self, lab: &Lab) -> Result<f64> {
        Ok(match self {
            Control::Steady => lab.capacity()? * 0.8,
            Control::Restart | Control::ColdCache => lab.rate_per_second() * 0.3,
            Control::Batch => lab.rate_per_second() * 0.02,
            _ => lab.rate_per_second() * 0.5,
        })
    }
}

/// Clients that misbehave, at once, where the lab is as tuned: a quarter of Apache's workers. An event-driven front has room for thousands;
/// so many would be an overload and no everyday event.
const CLIENTS: u32 = 36;

/// What a control led to.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Which.
    pub control: String,
    /// How long, s.
    pub took_s: f64,
    /// Warnings and criticals that should not be: of kinds that the control does not allow, with no drop that the kernel counted in their
    /// time; for a SYN flood any other kind.
    pub false_alarms: Vec<Reported>,
    /// Alarms about drops that the kernel did count: the control was not as quiet as it should have been, and the alarm is right.
    pub real_alarms: Vec<Reported>,
    /// What must be reported was not.
    pub missing: Option<String>,
    /// Packets that the kernel dropped at the listeners.
    pub dropped: u64,
    /// What the load saw.
    pub load: Summary,
}

impl Outcome {
    /// Nothing false was said and nothing that had to be said is missing.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.false_alarms.is_empty() && self.missing.is_none()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:12} {:5.0} s, {} false alarms, {} alarms about real drops, {} packets dropped, p99 {} ms",
            self.control,
            self.took_s,
            self.false_alarms.len(),
            self.real_alarms.len(),
            self.dropped,
            self.load.p99_us / 1000
        )?;
        if let Some(why) = &self.missing {
            write!(f, ", {why}")?;
        }
        for alarm in self.false_alarms.iter().chain(&self.real_alarms) {
            write!(f, "\n    {} {} {}", alarm.severity, alarm.kind, alarm.title)?;
        }
        Ok(())
    }
}

/// Time for queues, retries and incidents of one control to end before the next.
const BETWEEN: Duration = Duration::from_millis(2500);

/// Runs one control for about `duration` on a system that runs.
pub fn run(system: &System, control: Control, duration: Duration) -> Result<Outcome> {
    let mode = Mode::Open { rate_per_second: control.rate_per_second(&system.lab)? };
    let recorder = Recorder::start(&places(system))?;
    let load = system.lab.load(&LoadPlan::new(mode, duration.as_millis() as u64))?;
    let from = unix_ns();
    act(system, control, duration)?;
    let load = load.wait()?.summary;
    wait_for("incidents of a control to end", Duration::from_secs(20), || {
        let quiet = unix_ns().saturating_sub(recorder.last_drop_unix_ns()) > BETWEEN.as_nanos() as u64;
        let open = system.incidents_between(from, u64::MAX)?.iter().any(|i| i["state"] != "closed");
        Ok((quiet && !open).then_some(()))
    })?;
    std::thread::sleep(BETWEEN);
    let to = unix_ns();
    let incidents = system.incidents_between(from, to)?;
    let log = recorder.stop()?;
    let alarms = incidents.iter().map(Reported::of).filter(Reported::is_alarming);
    let (mut false_alarms, mut real_alarms) = (Vec::new(), Vec::new());
    let mut named = false;
    for alarm in alarms {
        let dropped = log.dropped_between(
            alarm.start_unix_ns.saturating_sub(100_000_000),
            alarm.end_unix_ns.saturating_add(100_000_000),
        );
        match control {
            Control::SynFlood if alarm.kind == "syn_flood" => named = true,
            // Whom it shut out comes at its end, all at once: a queue may come near its limit by that.
            Control::SynFlood if alarm.severity == "critical" => false_alarms.push(alarm),
            Control::SynFlood => real_alarms.push(alarm),
            _ if dropped > 0 && alarm.kind != "syn_flood" => real_alarms.push(alarm),
            _ => false_alarms.push(alarm),
        }
    }
    let dropped = log.dropped_between(from, to);
    let missing = (control == Control::SynFlood && dropped > 0 && !named)
        .then(|| format!("no incident of kind syn_flood, though {dropped} packets were dropped"));
    Ok(Outcome {
        control: control.name().to_owned(),
        took_s: (to - from) as f64 / 1e9,
        false_alarms,
        real_alarms,
        missing,
        dropped,
        load,
    })
}

fn act(system: &System, control: Control, duration: Duration) -> Result<()> {
    let lab = &system.lab;
    let web = std::net::SocketAddr::from(lab.stack().listener(Tier::Web));
    let clients = lab.config().scale.count(CLIENTS) as usize;
    match control {
        Control::Steady => {}
        Control::Restart => {
            // Twice, at a third and at two thirds.
            let pid = lab.tier(Tier::Web).pid().map_or(0, u32::cast_signed);
            let graceful = match lab.stack().software(Tier::Web) {
                Software::Apache => libc::SIGUSR1,
                _ => libc::SIGHUP,
            };
            for _ in 0..2 {
                std::thread::sleep(duration / 3);
                process::signal(pid, graceful)?;
            }
        }
        Control::ColdCache => {
            std::thread::sleep(duration / 3);
            lab.sql("SET GLOBAL innodb_buffer_pool_size = 6291456; FLUSH TABLES")?;
            std::thread::sleep(duration / 3);
            lab.sql("SET GLOBAL innodb_buffer_pool_size = 100663296")?;
        }
        Control::PortScan => {
            let hosts: Vec<_> = lab.stack().homes().map(Tier::address).collect();
            lab.client_netns().inside(|| scan::scan(&hosts, duration))?;
        }
        Control::NeverRead => lab.client_netns().inside(|| clients::never_read(web, clients, duration))?,
        Control::SynFlood => {
            let netns = lab.tier(Tier::Web).netns();
            flood::open(netns)?;
            let flooded =
                lab.client_netns().inside(|| flood::flood(lab.stack().listener(Tier::Web), duration));
            flood::close(netns)?;
            flooded?;
        }
        Control::Batch => {
            let duration_ms = duration.as_millis() as u64;
            lab.inject(&Injection::CpuBurn { tier: Tier::App, threads: 2, weight: 0.002, duration_ms })?;
        }
        Control::SlowClients => lab.client_netns().inside(|| clients::slow(web, clients, duration))?,
    }
    Ok(())
}

//! Runs one setting: both applications are asked by as many users as keep their connections busy, the kernel's account of both databases is
//! read before and after, and then what the collector says. Judges nothing.

use crate::console::progress::step;
use crate::lab::Lab;
use crate::load::{LoadPlan, Mode};
use crate::os::clock::unix_ns;
use crate::os::{cpus, ticks_per_second};
use crate::programs::daemons::http_get;
use crate::stack::Tier;
use crate::stealing::setting::{Setting, USERS};
use crate::system::System;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Users who have no answer by then give up: a database with a fifth of a quarter of a CPU takes a second for 40 of them.
const TIMEOUT_MS: u64 = 10_000;
/// Connections are open, and statements planned.
const WARM: Duration = Duration::from_secs(4);
/// The last look at the cgroup is with the collector by then, and what it says is worked out anew if the last time is so long ago.
const SETTLED: Duration = Duration::from_secs(6);
/// What starting the servers anew and warming them up usually takes.
const RESTARTS_USUALLY: Duration = Duration::from_secs(20);

/// What was said of who takes CPU from whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// Who has more.
    pub thief: String,
    /// Who has less.
    pub victim: String,
    /// What the victim has of their CPUs, 0 to 1.
    pub victim_ratio: f64,
    /// What is due to it.
    pub due_ratio: f64,
    /// Threads of the thief that ran or wanted to.
    pub thief_runnable: f64,
    /// The same of the victim.
    pub victim_runnable: f64,
    /// The first remedy.
    pub thief_runnable_max: u32,
    /// When it was so last, Unix ns.
    pub seen_unix_ns: u64,
    /// What came of a remedy.
    pub after: Option<String>,
    /// All of it.
    pub sentence: String,
}

/// One setting, once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Trial {
    /// Its name.
    pub setting: String,
    /// Which repeat.
    pub repeat: u32,
    /// Measured seconds.
    pub seconds: f64,
    /// CPUs that each database took, as the kernel accounts for its process.
    pub cores: [f64; 2],
    /// Answers a second of each application.
    pub answered: [f64; 2],
    /// What the first has of the CPU if each thread has as much as another.
    pub by_threads: f64,
    /// CPUs that the load generators took.
    pub client_cores: f64,
    /// Share of all CPU time that the hypervisor gave to others.
    pub steal_ratio: f64,
    /// What was said afterwards; none: nothing.
    pub said: Option<Said>,
    /// What was said was not so any more in this setting.
    pub is_from_before: bool,
}

impl Trial {
    /// What the first database had of the CPU that both had.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.cores[0] / (self.cores[0] + self.cores[1]).max(1e-9)
    }
}

/// Starts collector and agents around the lab; logs go to this folder.
pub fn watched(lab: Lab, folder: &Path) -> Result<System> {
    let recording = folder.join("stealing.trace").display().to_string();
    System::around(lab, folder, &["--record".into(), recording])
}

/// Sets what is to be set, loads both for `seconds`, and asks.
pub fn run(system: &mut System, setting: Setting, repeat: u32, seconds: u64) -> Result<Trial> {
    let usually = RESTARTS_USUALLY + WARM + Duration::from_secs(seconds) + SETTLED;
    step(&format!("repeat {repeat}: {}", setting.name()), usually, || {
        system.lab.restart_with(setting.lab())?;
        let (lab, begun_unix_ns) = (&system.lab, unix_ns());
        let (taken, observed) = lab.observed(|| loaded(lab, seconds))?;
        std::thread::sleep(SETTLED);
        let (cores, answered, measured_s) = taken;
        let said = said(system.collector.http)?;
        Ok(Trial {
            setting: setting.name(),
            repeat,
            seconds: measured_s,
            cores,
            answered,
            by_threads: setting.by_threads(),
            client_cores: observed.client_cores,
            steal_ratio: observed.machine.steal_ratio,
            is_from_before: said.as_ref().is_some_and(|said| said.seen_unix_ns < begun_unix_ns),
            said,
        })
    })
}

/// CPUs of both databases, answers a second of both applications, and over how many seconds the former were read.
fn loaded(lab: &Lab, seconds: u64) -> Result<([f64; 2], [f64; 2], f64)> {
    let ms = (WARM.as_secs() + seconds) * 1000;
    let mut loads = Vec::new();
    for (number, tier) in [Tier::App, Tier::AppB].into_iter().enumerate() {
        let plan = LoadPlan {
            target: lab.stack().listener(tier),
            timeout_ms: TIMEOUT_MS,
            comment_ratio: 0.0,
            seed: number as u64 + 1,
            ..LoadPlan::new(Mode::Closed { users: USERS, think_ms: 0 }, ms)
        };
        let load = lab.load(&plan)?;
        cpus::pin_process(load.pid().cast_signed(), cpus::allowed()?.saturating_sub(1))?;
        loads.push(load);
    }
    std::thread::sleep(WARM);
    let before = taken(lab)?;
    std::thread::sleep(Duration::from_secs(seconds).saturating_sub(Duration::from_secs(1)));
    let after = taken(lab)?;
    let measured_s = after.1 - before.1;
    let cores = [0, 1].map(|at| (after.0[at] - before.0[at]) / measured_s.max(1e-3));
    let mut answered = [0.0; 2];
    for (load, per_second) in loads.into_iter().zip(&mut answered) {
        *per_second = load.wait()?.summary.ok as f64 / (ms as f64 / 1000.0);
    }
    lab.forget_loads()?;
    Ok((cores, answered, measured_s))
}

/// CPU seconds that both databases took since they began, and the moment, s.
fn taken(lab: &Lab) -> Result<([f64; 2], f64)> {
    let mut all = [0.0; 2];
    for (tier, taken) in [Tier::Db, Tier::DbB].into_iter().zip(&mut all) {
        let pid = lab.tier(tier).pid().with_context(|| format!("the {} tier runs", tier.name()))?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // utime and stime, of all threads of the process: proc(5).
        let ticks = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().skip(11).take(2));
        let ticks: Vec<f64> = ticks.into_iter().flatten().filter_map(|field| field.parse().ok()).collect();
        let [user, system] = ticks[..] else { bail!("/proc/{pid}/stat: {stat}") };
        *taken = (user + system) / ticks_per_second();
    }
    let uptime = std::fs::read_to_string("/proc/uptime")?;
    let now = uptime.split_whitespace().next().and_then(|text| text.parse().ok()).context("/proc/uptime")?;
    Ok((all, now))
}

fn said(collector: SocketAddr) -> Result<Option<Said>> {
    let (status, body) = http_get(collector, "/api/v1/advice")?;
    if status != 200 {
        bail!("GET /api/v1/advice: {status}: {}", body.lines().next().unwrap_or_default());
    }
    let answer: Value = serde_json::from_str(&body).context("GET /api/v1/advice answers with JSON")?;
    let all = answer["stealing"].as_array().context("/api/v1/advice has a list `stealing`")?;
    let mine = all.iter().find(|of| of["host"] == Tier::Db.host());
    mine.map(|of| serde_json::from_value(of.clone()).with_context(|| format!("what was said: {of}")))
        .transpose()
}

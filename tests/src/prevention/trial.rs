//! One injection into a watched lab: what it dropped by the kernel's count, how long its requests took by the clients, and what is said
//! would have prevented it; then the same into servers that were started anew with other limits. Starts and stops everything; judges nothing.

use crate::lab::cells::Cell;
use crate::lab::{LabConfig, scenario};
use crate::load::{LoadReport, Outcome};
use crate::prevention::answer::{Answer, Change, changed};
use crate::programs::daemons::http_get;
use crate::programs::reported::Reported;
use crate::score::session::places;
use crate::system::System;
use crate::truth::{Recorder, TruthRecord};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Load before the injection: the usual level has to be known.
const BEFORE: Duration = Duration::from_secs(14);
/// Load after it: whoever was dropped comes again after 1 to 7 s.
const AFTER: Duration = Duration::from_secs(9);
/// Incidents are closed so long after the load, at the latest.
const CLOSED: Duration = Duration::from_secs(25);
/// First attempts whose times are told: those that began up to so long after the injection's end.
const JUDGED_NS: u64 = 1_000_000_000;

/// What one injection did.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Packets dropped anywhere, by the kernel.
    pub dropped: u64,
    /// Tiers that dropped, most first.
    pub tiers: Vec<String>,
    /// 99 % quantile of the requests' times, s; none: more were never answered.
    pub p99_s: Option<f64>,
    /// Part of the time that the hypervisor took, 0 to 1.
    pub steal: f64,
}

/// A watched lab into which the same is injected again and again. On a machine that bears less it is smaller, as all labs are, and stays as it
/// is from the first injection on: sizes are changed in the very lab that they were told of, under the same load.
#[derive(Debug)]
pub struct Trials {
    cell: &'static Cell,
    system: System,
    at_first: LabConfig,
    folder: PathBuf,
}

impl Trials {
    /// Starts the cell's lab as it is; logs, recording and answer go under `folder`.
    pub fn start(cell: &'static Cell, folder: &Path) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
        }
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let recording = folder.join("trial.trace").display().to_string();
        let system = System::start(scenario::lab(cell.stack), folder, &["--record".to_owned(), recording])?;
        let at_first = system.lab.config().clone();
        Ok(Self { cell, system, at_first, folder: folder.to_owned() })
    }

    /// Injects, and asks what would have prevented what came of it; or why nothing is said. `ask`: further changes that are asked about, each
    /// after the first answer, which it is chosen by.
    pub fn unchanged(
        &self,
        ask: impl FnOnce(&Answer) -> Vec<Vec<Change>>,
    ) -> Result<(Trial, Result<Answer, String>, Vec<Answer>)> {
        let (trial, truth) = self.inject()?;
        let Some(id) = id_of(&self.system, &truth)? else {
            return Ok((trial, Err("no incident was told".to_owned()), Vec::new()));
        };
        let path = format!("/api/v1/incidents/{id}/prevention");
        let (status, body) = http_get(self.system.collector.http, &path)?;
        let file = self.folder.join("prevention.json");
        fs::write(&file, &body).with_context(|| format!("write {}", file.display()))?;
        let answer = Answer::read(status, &body)?;
        let asked = answer.as_ref().map(ask).unwrap_or_default();
        let further =
            asked.iter().map(|changes| what_if(&self.system, &path, changes)).collect::<Result<_>>()?;
        Ok((trial, answer, further))
    }

    /// Injects the same into servers that are started anew with these changes of how they were at first.
    pub fn with(&mut self, changes: &[Change]) -> Result<Trial> {
        self.system.lab.restart_with(changed(self.cell.stack, &self.at_first, changes)?)?;
        Ok(self.inject()?.0)
    }

    fn inject(&self) -> Result<(Trial, TruthRecord)> {
        let system = &self.system;
        let recorder = Recorder::start(&places(system))?;
        let longest = BEFORE + AFTER + Duration::from_secs(60);
        let ((report, mut truth), seen) = system.lab.observed(|| {
            let load = system.lab.load(&system.lab.default_load(longest.as_millis() as u64))?;
            std::thread::sleep(BEFORE);
            let injected = system.lab.inject(&self.cell.injection)?;
            std::thread::sleep(AFTER);
            load.stop()?;
            let to_unix_ns = injected.end_unix_ns + AFTER.as_nanos() as u64;
            let truth = injected.truth(self.cell.name.to_owned(), to_unix_ns);
            Ok((load.wait()?, truth))
        })?;
        truth.observe(&recorder.stop()?, &[]);
        let trial = Trial {
            dropped: truth.dropped(),
            tiers: truth.dropping_tiers().into_iter().map(str::to_owned).collect(),
            p99_s: p99_s(&report, truth.from_unix_ns, truth.end_unix_ns + JUDGED_NS),
            steal: seen.machine.steal_ratio,
        };
        Ok((trial, truth))
    }
}

/// The alarming incident of that time with the most drops.
fn id_of(system: &System, truth: &TruthRecord) -> Result<Option<String>> {
    let (from, to) = (truth.from_unix_ns, truth.to_unix_ns);
    if system.incidents_between(from, to)?.is_empty() {
        return Ok(None);
    }
    let found = system.closed_incidents(from, to, CLOSED)?;
    let mut alarming: Vec<Reported> = found.iter().map(Reported::of).filter(Reported::is_alarming).collect();
    alarming.sort_by_key(|said| std::cmp::Reverse(said.dropped));
    Ok(alarming.into_iter().next().map(|said| said.id))
}

/// What is said to come of these changes.
fn what_if(system: &System, path: &str, changes: &[Change]) -> Result<Answer> {
    let asked: Vec<String> = changes.iter().map(Change::asked).collect();
    let (status, body) = http_get(system.collector.http, &format!("{path}?with={}", asked.join(",")))?;
    Answer::read(status, &body)?.map_err(|why| anyhow::anyhow!("{}: no answer: {why}", asked.join(", ")))
}

/// Of requests whose planned arrival was then; one that was not answered took for ever.
fn p99_s(report: &LoadReport, from: u64, to: u64) -> Option<f64> {
    let mine = report.requests.iter().filter(|request| (from..to).contains(&request.start_unix_ns));
    let mut times: Vec<u64> = mine
        .map(|request| match request.outcome {
            Outcome::Answered => request.time_ns(),
            _ => u64::MAX,
        })
        .collect();
    times.sort_unstable();
    let at = (times.len() * 99).div_ceil(100).checked_sub(1)?;
    times.get(at).filter(|time| **time < u64::MAX).map(|time| *time as f64 / 1e9)
}

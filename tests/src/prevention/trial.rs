//! One injection into a watched lab: what it dropped by the kernel's count, how long its requests took by the clients, and what is said
//! would have prevented it. Starts and stops everything; judges nothing.

use crate::lab::cells::Cell;
use crate::lab::{LabConfig, Scale, scenario};
use crate::load::{LoadReport, Outcome};
use crate::prevention::answer::{Answer, Change, changed};
use crate::programs::daemons::http_get;
use crate::programs::reported::Reported;
use crate::score::session::places;
use crate::system::System;
use crate::truth::{Recorder, TruthRecord};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
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
    /// What is said would have prevented it, and of each change that was asked for; or why nothing is.
    pub answer: Result<Answer, String>,
}

/// Injects the cell's millibottleneck into its lab with these changes. `ask`: further changes that are asked about, each after the first
/// answer, which it is chosen by.
pub fn run(
    cell: &Cell,
    changes: &[Change],
    folder: &Path,
    ask: impl FnOnce(&Answer) -> Vec<Vec<Change>>,
) -> Result<(Trial, Vec<Answer>)> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let config: LabConfig = changed(cell.stack, &scenario::lab(cell.stack), changes)?;
    let recording = folder.join("trial.trace").display().to_string();
    let system = System::start(config, folder, &["--record".to_owned(), recording])?;
    ensure!(
        system.lab.config().scale == Scale::TUNED,
        "this machine bears {:.2} of the laboratory: a change of its sizes would not be the one that was asked about",
        system.lab.config().scale.requests
    );
    let recorder = Recorder::start(&places(&system))?;
    let longest = BEFORE + AFTER + Duration::from_secs(60);
    let ((report, mut truth), seen) = system.lab.observed(|| {
        let load = system.lab.load(&system.lab.default_load(longest.as_millis() as u64))?;
        std::thread::sleep(BEFORE);
        let injected = system.lab.inject(&cell.injection)?;
        std::thread::sleep(AFTER);
        load.stop()?;
        let to_unix_ns = injected.end_unix_ns + AFTER.as_nanos() as u64;
        let truth = injected.truth(cell.name.to_owned(), to_unix_ns);
        Ok((load.wait()?, truth))
    })?;
    truth.observe(&recorder.stop()?, &[]);
    let (answer, further) = match id_of(&system, &truth)? {
        None => (Err("no incident was told".to_owned()), Vec::new()),
        Some(id) => {
            let path = format!("/api/v1/incidents/{id}/prevention");
            let (status, body) = http_get(system.collector.http, &path)?;
            let file = folder.join("prevention.json");
            fs::write(&file, &body).with_context(|| format!("write {}", file.display()))?;
            let answer = Answer::read(status, &body)?;
            let asked = answer.as_ref().map(ask).unwrap_or_default();
            let further = asked.iter().map(|changes| what_if(&system, &path, changes));
            (answer, further.collect::<Result<Vec<_>>>()?)
        }
    };
    let trial = Trial {
        dropped: truth.dropped(),
        tiers: truth.dropping_tiers().into_iter().map(str::to_owned).collect(),
        p99_s: p99_s(&report, truth.from_unix_ns, truth.end_unix_ns + JUDGED_NS),
        steal: seen.machine.steal_ratio,
        answer,
    };
    Ok((trial, further))
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

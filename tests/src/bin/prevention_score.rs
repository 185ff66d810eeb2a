//! `make prevention-score`: injects into the laboratory as it is, then into one with the change that is said to have prevented it, and with
//! half of that change, and holds what was said against what the kernel dropped.

#![allow(clippy::disallowed_methods, reason = "a measurement is dated by its own clock")]

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tailwater_tests::console::failure::{self, REMEDY};
use tailwater_tests::console::measured::Measured;
use tailwater_tests::console::progress::{self, say};
use tailwater_tests::lab::cells::{Cell, cells, find};
use tailwater_tests::os::is_root;
use tailwater_tests::prevention::answer::{Candidate, Change};
use tailwater_tests::prevention::results::{Results, Row};
use tailwater_tests::prevention::trial::{Trial, Trials};
use tailwater_tests::supervise::supervise;

/// One of each kind of incident, in stacks of threads and behind an event-driven front.
const KINDS: [&str; 10] = [
    "nx0-app-cpu",
    "nx0-app-pause",
    "nx0-app-squeeze",
    "nx0-db-io",
    "nx0-db-lock",
    "nx0-web-burst",
    "nx0-web-pause",
    "nx1-app-pause",
    "nx1-db-cpu",
    "nx2-app-pause",
];

/// Proves what is said would have prevented an incident.
#[derive(Debug, Parser)]
struct Arguments {
    /// These cells instead of one of each kind.
    #[arg(long, value_delimiter = ',')]
    cell: Vec<String>,
    /// How often each is tried.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    repeats: u32,
    /// Where `prevention-score.json` and `prevention-score.md` go.
    #[arg(long, default_value = "tests/results")]
    out: PathBuf,
    /// Where logs, recordings and answers go.
    #[arg(long, default_value = ".lab/prevention")]
    folder: PathBuf,
    /// What is measured: a version or a commit.
    #[arg(long, default_value = concat!("version ", env!("CARGO_PKG_VERSION")))]
    label: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    supervise("prevention-score", || {
        progress::show();
        failure::run("prevention-score", Some(&arguments.folder), || execute(&arguments))
    })
}

fn execute(arguments: &Arguments) -> Result<()> {
    let asked: Vec<&str> = arguments.cell.iter().map(String::as_str).collect();
    let names: &[&str] = if asked.is_empty() { &KINDS } else { &asked };
    let known = || cells().iter().map(|cell| cell.name).collect::<Vec<_>>().join(", ");
    let cells: Vec<&'static Cell> = names
        .iter()
        .map(|name| find(name).with_context(|| format!("no cell {name}{REMEDY}there are {}", known())))
        .collect::<Result<_>>()?;
    if !is_root() {
        bail!("the laboratory needs root{REMEDY}run `make prevention-score`, which asks for it");
    }
    let begun = Instant::now();
    let mut results = Results { measured: Measured::begin(&arguments.label)?, ..Results::default() };
    let mut broken = Vec::new();
    for repeat in 1..=arguments.repeats {
        for cell in &cells {
            if let Err(error) = of_cell(arguments, cell, repeat, &mut results) {
                broken.push(format!("{} #{repeat}: {}", cell.name, failure::sentence(&error)));
            }
            results.measured.took_s = begun.elapsed().as_secs();
            // What was measured is kept if it is interrupted.
            results.write(&arguments.out)?;
        }
    }
    println!("{}", results.markdown()?);
    if !broken.is_empty() {
        bail!("not all trials were run: {}", broken.join("; "));
    }
    Ok(())
}

/// What is counted says nothing of a half.
fn half(of: &Candidate) -> Option<Vec<Change>> {
    if of.effect == "holds" {
        return None;
    }
    of.changes.iter().map(Change::halved).collect()
}

fn of_cell(arguments: &Arguments, cell: &'static Cell, repeat: u32, results: &mut Results) -> Result<()> {
    let begun = Instant::now();
    let folder = arguments.folder.join(format!("{}-{repeat}", cell.name));
    let mut trials = Trials::start(cell, &folder)?;
    let (base, answer, halves) =
        trials.unchanged(|answer| answer.preventing().and_then(half).into_iter().collect())?;
    let answer = match answer {
        Ok(answer) => answer,
        Err(why) => {
            say(&format!("{} #{repeat}: {} packets dropped, {why}", cell.name, base.dropped));
            results.without.push(format!("{} #{repeat}: {} packets dropped, {why}", cell.name, base.dropped));
            return Ok(());
        }
    };
    let Some(whole) = answer.preventing() else {
        let effects: Vec<&str> = answer.candidates.iter().map(|of| of.effect.as_str()).collect();
        results.without.push(format!(
            "{} #{repeat}: nothing that was tried prevents it ({})",
            cell.name,
            effects.join(", ")
        ));
        return Ok(());
    };
    let halves = halves.first().and_then(|answer| answer.candidates.first());
    for (said, is_half) in [(Some(whole), false), (halves, true)] {
        let Some(said) = said else { continue };
        let then = trials.with(&said.changes)?;
        let row = row(cell, repeat, &base, answer.predicted, &then, is_half).with(said);
        say(&format!(
            "{} #{repeat}: {}: {} of {} packets dropped, {} predicted ({} s)",
            cell.name,
            said.changes.iter().map(Change::asked).collect::<Vec<_>>().join(", "),
            row.seen,
            row.unchanged,
            row.predicted,
            begun.elapsed().max(Duration::from_secs(1)).as_secs()
        ));
        results.rows.push(row);
    }
    Ok(())
}

fn row(cell: &Cell, repeat: u32, base: &Trial, predicted: Option<u64>, then: &Trial, is_half: bool) -> Row {
    Row {
        cell: cell.name.to_owned(),
        repeat,
        is_half,
        changes: Vec::new(),
        effect: String::new(),
        unchanged: base.dropped,
        unchanged_predicted: predicted,
        predicted: 0,
        predicted_with_margin: None,
        seen: then.dropped,
        p99_s: [None, then.p99_s],
        steal: base.steal.max(then.steal),
    }
}

//! `make lab-score`: runs the matrix, scores what Tailwater says of it, and writes results that two versions can be compared by.

#![allow(clippy::disallowed_methods, reason = "a measurement is dated by its own clock")]

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailwater_tests::console::failure::{self, REMEDY};
use tailwater_tests::console::progress;
use tailwater_tests::controls::{self, Control};
use tailwater_tests::lab::LabConfig;
use tailwater_tests::lab::cells::{Cell, cells};
use tailwater_tests::os::{is_root, kernel_release};
use tailwater_tests::score::compare::compare;
use tailwater_tests::score::golden;
use tailwater_tests::score::plan::{self, Repeat};
use tailwater_tests::score::results::Results;
use tailwater_tests::score::session::{self, MATRIX, Session};
use tailwater_tests::stack::Stack;
use tailwater_tests::supervise::supervise;
use tailwater_tests::system::System;

/// Scores the diagnosis on the laboratory.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only these stacks.
    #[arg(long, value_delimiter = ',')]
    stack: Vec<Stack>,
    /// Only cells whose name begins so.
    #[arg(long, value_delimiter = ',')]
    cell: Vec<String>,
    /// Each cell so often that its cause has this many injections over the whole run.
    #[arg(long, default_value_t = 60)]
    per_cause: usize,
    /// Each cell exactly this often, instead.
    #[arg(long)]
    repeat: Option<usize>,
    /// Where `lab-score.json` and `lab-score.md` go.
    #[arg(long, default_value = "tests/results")]
    out: PathBuf,
    /// Where logs, recordings and the truth of each session go.
    #[arg(long, default_value = ".lab/score")]
    folder: PathBuf,
    /// What is measured: a version or a commit.
    #[arg(long, default_value = concat!("version ", env!("CARGO_PKG_VERSION")))]
    label: String,
    /// Runs the controls, which must stay silent, for this many seconds together, instead of a score.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "900")]
    controls: Option<u64>,
    /// Only these controls.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Cuts a golden trace of each cell out of the sessions in --folder into this folder, instead of a score.
    #[arg(long, value_name = "FOLDER")]
    golden: Option<PathBuf>,
    /// With --golden: of these injections instead, as nx0-app-retries#3.
    #[arg(long, requires = "golden")]
    injection: Vec<String>,
    /// Scores the sessions that earlier runs left in these folders by what this version says of their recordings, and runs nothing.
    #[arg(long, value_delimiter = ',', value_name = "FOLDERS")]
    replay: Vec<PathBuf>,
    /// Prints what differs between two results, and runs nothing.
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"])]
    compare: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    supervise("lab-score", || {
        progress::show();
        failure::run("lab-score", Some(&arguments.folder), || execute(&arguments))
    })
}

fn execute(arguments: &Arguments) -> Result<()> {
    if let [old, new] = arguments.compare.as_slice() {
        print!("{}", compare(&Results::read(old)?, &Results::read(new)?)?);
        return Ok(());
    }
    // Recordings can be judged by anybody.
    let needs_root = arguments.replay.is_empty() && arguments.golden.is_none();
    if needs_root && !is_root() {
        bail!("the laboratory needs root{REMEDY}run `make lab-score`, which asks for it");
    }
    match arguments.controls {
        Some(seconds) => silence(arguments, seconds),
        None => matrix(arguments),
    }
}

/// Runs the controls and writes `controls.json`; fails if anything false was said.
fn silence(arguments: &Arguments, seconds: u64) -> Result<()> {
    let chosen: Vec<Control> = Control::ALL
        .into_iter()
        .filter(|control| {
            arguments.only.is_empty() || arguments.only.iter().any(|name| name == control.name())
        })
        .collect();
    let each = Duration::from_secs(seconds) / u32::try_from(chosen.len())?.max(1);
    let mut outcomes = Vec::new();
    for stack in Stack::ALL {
        let mine: Vec<Control> = chosen.iter().copied().filter(|control| control.stack() == stack).collect();
        if mine.is_empty() {
            continue;
        }
        let folder = arguments.folder.join(format!("controls-{stack}"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let trace = folder.join("controls.trace").display().to_string();
        let system = System::start(LabConfig::of(stack), &folder, &["--record".into(), trace])?;
        for control in mine {
            let outcome = controls::run(&system, control, each)?;
            println!("{outcome}");
            outcomes.push(outcome);
        }
    }
    std::fs::create_dir_all(&arguments.out)?;
    let file = arguments.out.join("controls.json");
    std::fs::write(&file, serde_json::to_string_pretty(&outcomes)? + "\n")
        .with_context(|| format!("write {}", file.display()))?;
    let wrong: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| !outcome.is_right())
        .map(|outcome| outcome.control.as_str())
        .collect();
    if !wrong.is_empty() {
        bail!("controls that were not silent, or not named: {}", wrong.join(", "));
    }
    Ok(())
}

fn matrix(arguments: &Arguments) -> Result<()> {
    let chosen: Vec<&Cell> = cells()
        .iter()
        .filter(|cell| arguments.stack.is_empty() || arguments.stack.contains(&cell.stack))
        .filter(|cell| {
            arguments.cell.is_empty() || arguments.cell.iter().any(|name| cell.name.starts_with(name))
        })
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = cells().iter().map(|cell| cell.name).collect();
        bail!("no cell is left; there are {}", names.join(", "));
    }
    if let Some(folder) = &arguments.golden {
        let missing = golden::record(&chosen, folder, &arguments.folder, &arguments.injection)?;
        if !missing.is_empty() {
            bail!("no golden trace of {}", missing.join(", "));
        }
        return Ok(());
    }
    let repeat = arguments.repeat.map_or(Repeat::PerCause(arguments.per_cause), Repeat::Each);
    let begun = Instant::now();
    let begun_unix_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let (mut rows, mut strays, mut relieved, mut broken) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for stack in Stack::ALL {
        let sequence = plan::sequence(&chosen, stack, repeat);
        if sequence.is_empty() {
            continue;
        }
        println!("{stack}: {} injections", sequence.len());
        let sessions: Vec<Result<Session>> = if arguments.replay.is_empty() {
            vec![session::run(stack, &sequence, MATRIX, &arguments.folder)]
        } else {
            let kept = arguments.replay.iter().filter(|folder| folder.join(stack.name()).exists());
            kept.map(|folder| session::again(stack, folder)).collect()
        };
        for session in sessions {
            match session {
                Ok(session) => {
                    broken.extend(session.broken.map(|why| format!("{stack}: {why}")));
                    rows.extend(session.rows);
                    strays.extend(session.strays);
                    relieved.extend(session.relieved);
                }
                Err(error) => broken.push(format!("{stack}: {}", failure::sentence(&error))),
            }
        }
    }
    let mut results = Results::new(arguments.label.clone(), rows, strays);
    results.relieved = relieved;
    results.begun_unix_s = begun_unix_s;
    results.took_s = begun.elapsed().as_secs();
    results.kernel = kernel_release()?;
    results.cpus = std::thread::available_parallelism()?.get() as u64;
    results.write(&arguments.out)?;
    println!("{}", results.markdown()?);
    if !broken.is_empty() {
        bail!("not all of the matrix was run: {}", broken.join("; "));
    }
    Ok(())
}

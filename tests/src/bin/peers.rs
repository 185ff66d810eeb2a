//! `make peers`: what metric-only methods of root-cause analysis say about the golden recordings, given the same signals in windows of 50 ms and
//! of a second, beside what Tailwater says. The methods are other people's, from the package index of Python (`tests/peers`).

use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tailwater_tests::console::failure;
use tailwater_tests::peers::ours::ours;
use tailwater_tests::peers::results::{Answer, Case, Results};
use tailwater_tests::peers::signals::Signals;
use tailwater_tests::score::golden::Golden;

/// Compares with other methods.
#[derive(Debug, Parser)]
struct Arguments {
    /// The recordings.
    #[arg(long, default_value = "tests/golden")]
    golden: PathBuf,
    /// The Python that has the methods.
    #[arg(long, default_value = "target/peers/bin/python")]
    python: PathBuf,
    /// Where tables of signals go.
    #[arg(long, default_value = ".lab/peers")]
    folder: PathBuf,
    /// Where `peers.json` and `peers.md` go.
    #[arg(long, default_value = "tests/results")]
    out: PathBuf,
    /// What is measured: a version or a commit.
    #[arg(long)]
    label: String,
    /// Of the recordings, by name, only each so many: all take the better part of an hour.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    every: u16,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    ExitCode::from(failure::run("peers", None, || execute(&arguments)))
}

fn execute(arguments: &Arguments) -> Result<()> {
    std::fs::create_dir_all(&arguments.folder)
        .with_context(|| format!("create {}", arguments.folder.display()))?;
    let (mut cases, mut answers) = (Vec::new(), Vec::new());
    for golden in Golden::all(&arguments.golden)?.iter().step_by(usize::from(arguments.every)) {
        let injection = golden.injection()?;
        let trace = golden.read()?;
        let signals = Signals::read(trace.as_slice())?;
        let file = arguments.folder.join(format!("{}.csv", golden.cell));
        std::fs::write(&file, signals.csv()).with_context(|| format!("write {}", file.display()))?;
        answers.push(ours(&golden.cell, &trace, injection.truth.start_unix_ns)?);
        cases.push(Case {
            cell: golden.cell.clone(),
            host: injection.expected.host.clone(),
            hosts: signals.hosts(),
            injected_at: injection.truth.start_unix_ns as f64 / 1e9,
        });
    }
    println!("{} recordings, each as a table of signals below {}", cases.len(), arguments.folder.display());
    let wanted = arguments.folder.join("cases.json");
    std::fs::write(&wanted, serde_json::to_string_pretty(&cases)?)?;
    let theirs = arguments.folder.join("answers.json");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/rank.py");
    let status = Command::new(&arguments.python)
        .arg(script)
        .args([&wanted, &theirs])
        .status()
        .with_context(|| format!("start {}: `make peers` installs it", arguments.python.display()))?;
    ensure!(status.success(), "tests/peers/rank.py ended with {status}; what it said is above");
    let text = std::fs::read_to_string(&theirs).with_context(|| format!("read {}", theirs.display()))?;
    answers.extend(serde_json::from_str::<Vec<Answer>>(&text)?);
    let results = Results { label: arguments.label.clone(), cases, answers };
    std::fs::write(arguments.out.join("peers.json"), serde_json::to_string_pretty(&results)? + "\n")?;
    std::fs::write(arguments.out.join("peers.md"), results.table())?;
    print!("{}", results.table());
    Ok(())
}

//! `make calibrate`: learns of verdicts whose truth is known how often such a root is right, writes the weights into the analysis and how good
//! they are into the results. Runs nothing.

use anyhow::{Context, Result};
use clap::Parser;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;
use tailwater_tests::calibration::verdicts::Verdicts;
use tailwater_tests::calibration::written::Calibration;
use tailwater_tests::console::failure;

/// Calibrates confidence.
#[derive(Debug, Parser)]
struct Arguments {
    /// What the example `incidents` said of sessions of the laboratory, composed recordings and simulated systems.
    #[arg(long)]
    told: PathBuf,
    /// The folder of their inputs, with the truth of the simulated ones.
    #[arg(long)]
    inputs: PathBuf,
    /// The golden recordings, with their truth.
    #[arg(long, default_value = "tests/golden")]
    golden: PathBuf,
    /// The folder in which `lab-score` left the sessions, with their truth.
    #[arg(long, default_value = ".lab/score")]
    lab: PathBuf,
    /// The folder in which `graph-score` left the sessions of seeds of development, with their truth.
    #[arg(long, default_value = ".lab/graph")]
    graphs: PathBuf,
    /// Where `calibration.md` goes.
    #[arg(long, default_value = "tests/results")]
    out: PathBuf,
    /// Where the weights go.
    #[arg(long, default_value = "collector/analysis/src/report/calibrated.rs")]
    table: PathBuf,
    /// Of which commit the verdicts are.
    #[arg(long)]
    label: String,
    /// The day.
    #[arg(long)]
    date: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    ExitCode::from(failure::run("calibrate", None, || execute(&arguments)))
}

fn execute(arguments: &Arguments) -> Result<()> {
    let mut verdicts = Verdicts::default();
    let told = File::open(&arguments.told).with_context(|| format!("open {}", arguments.told.display()))?;
    let truth =
        [&arguments.inputs, &arguments.golden, &arguments.lab, &arguments.graphs].map(PathBuf::as_path);
    verdicts.told(BufReader::new(told), truth)?;
    let calibration = Calibration::of(&verdicts)?;
    let text = calibration.markdown(&arguments.label, &arguments.date)?;
    let results = arguments.out.join("calibration.md");
    std::fs::write(&results, &text).with_context(|| format!("write {}", results.display()))?;
    std::fs::write(&arguments.table, calibration.table(&arguments.label, &arguments.date)?)
        .with_context(|| format!("write {}", arguments.table.display()))?;
    print!("{text}");
    Ok(())
}

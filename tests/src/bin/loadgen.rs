//! Runs the plan in FOLDER/plan.json from the network namespace it is started in, and leaves requests.csv and summary.json there.

use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use tailwater_tests::console::failure;
use tailwater_tests::load::engine;

fn main() -> ExitCode {
    ExitCode::from(failure::run("loadgen", None, work))
}

fn work() -> Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).context("usage: loadgen FOLDER")?);
    let plan = std::fs::read(folder.join("plan.json")).context("plan.json")?;
    let plan = serde_json::from_slice(&plan).context("plan.json")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = tokio::task::LocalSet::new().block_on(&runtime, engine::run(plan))?;
    report.write(&folder)?;
    println!("{}", serde_json::to_string(&report.summary)?);
    Ok(())
}

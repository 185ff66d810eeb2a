//! `make stealing-score`: two databases in one cgroup, with few connections and with many, and what is said of who takes CPU from whom; then each
//! remedy.

#![allow(clippy::disallowed_methods, reason = "a measurement is dated by its own clock")]

use anyhow::{Result, bail};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use tailwater_tests::console::failure::{self, REMEDY};
use tailwater_tests::console::measured::Measured;
use tailwater_tests::console::progress::{self, say};
use tailwater_tests::lab::{Lab, LabConfig};
use tailwater_tests::os::is_root;
use tailwater_tests::stealing::experiment::{run, watched};
use tailwater_tests::stealing::results::Results;
use tailwater_tests::stealing::setting::{MANY, Setting};
use tailwater_tests::supervise::supervise;
use tailwater_tests::system::System;

/// Shows whose the CPU of a cgroup is that two databases share.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often each setting is tried.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    repeats: u32,
    /// Measured seconds of each.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(20..=600))]
    seconds: u64,
    /// Where `stealing-score.json` and `stealing-score.md` go.
    #[arg(long, default_value = "tests/results")]
    out: PathBuf,
    /// Where logs and recordings go.
    #[arg(long, default_value = ".lab/stealing")]
    folder: PathBuf,
    /// What is measured: a version or a commit.
    #[arg(long, default_value = concat!("version ", env!("CARGO_PKG_VERSION")))]
    label: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    supervise("stealing-score", || {
        progress::show();
        failure::run("stealing-score", Some(&arguments.folder), || execute(&arguments))
    })
}

fn execute(arguments: &Arguments) -> Result<()> {
    if !is_root() {
        bail!("the laboratory needs root{REMEDY}run `make stealing-score`, which asks for it");
    }
    let begun = Instant::now();
    let mut results = Results { measured: Measured::begin(&arguments.label)?, ..Results::default() };
    if arguments.folder.exists() {
        std::fs::remove_dir_all(&arguments.folder)?;
    }
    std::fs::create_dir_all(&arguments.folder)?;
    // Not warmed up, it is not fitted to the machine either.
    let unfitted = LabConfig { warm_up_requests: 0, ..Setting::BothFew.lab() };
    let mut lab = Some(Lab::start_logging(unfitted, Some(arguments.folder.join("servers")))?);
    for repeat in 1..=arguments.repeats {
        let Some(own) = lab.take() else { break };
        let folder = arguments.folder.join(repeat.to_string());
        std::fs::create_dir_all(&folder)?;
        let mut system = watched(own, &folder)?;
        let mut most = MANY;
        // What a remedy does is seen after what it is against.
        for number in 0..6 {
            let setting = match number {
                0 => Setting::BothFew,
                1 => Setting::BothMany,
                2 | 4 => Setting::FewAndMany,
                3 => Setting::Capped(most),
                _ => Setting::OwnCgroups,
            };
            let trial = run(&mut system, setting, repeat, arguments.seconds)?;
            let said = trial.said.clone().filter(|_| !trial.is_from_before);
            results.trials.push(trial);
            results.measured.took_s = begun.elapsed().as_secs();
            // What was measured is kept if it is interrupted.
            results.write(&arguments.out)?;
            if let Some(said) = said {
                most = said.thief_runnable_max;
            } else if setting == Setting::FewAndMany {
                bail!("nothing was said of {}: there is no remedy to try", setting.name());
            }
        }
        let System { lab: own, .. } = system;
        lab = Some(own);
    }
    say(&results.markdown()?);
    Ok(())
}

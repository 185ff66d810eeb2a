//! `make kernel-matrix`: the agent on other people's kernels, each booted in QEMU, each signal held against what that kernel says itself.

use anyhow::{Result, bail, ensure};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use tailwater_tests::console::failure::{self, REMEDY};
use tailwater_tests::console::progress::{self, say, step};
use tailwater_tests::guests::kernels::{GUESTS, Guest, Visit, find, table, visit};
use tailwater_tests::os::is_root;

#[derive(Debug, Parser)]
#[command(about = "The agent on other kernels, in QEMU")]
struct Arguments {
    /// Only these guests, by name.
    #[arg(long, value_delimiter = ';')]
    only: Vec<String>,
    /// Where their output goes.
    #[arg(long, default_value = ".lab/kernels")]
    folder: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    progress::show();
    ExitCode::from(failure::run("kernel-matrix", Some(&arguments.folder), || matrix(&arguments)))
}

fn matrix(arguments: &Arguments) -> Result<()> {
    ensure!(is_root(), "guests share this machine's root, which only root may{REMEDY}run it with sudo");
    let mut guests: Vec<&Guest> = Vec::new();
    for name in &arguments.only {
        let Some(guest) = find(name) else {
            let known: Vec<&str> = GUESTS.iter().map(|guest| guest.name).collect();
            bail!("no guest {name}; there are: {}", known.join("; "));
        };
        guests.push(guest);
    }
    if guests.is_empty() {
        guests = GUESTS.iter().collect();
    }
    let mut visits = Vec::new();
    for guest in guests {
        let folder = arguments.folder.join(guest.name.replace([' ', ','], "-"));
        // One that cannot be had is a row like the others.
        let visit = step(guest.name, std::time::Duration::from_secs(60), || visit(guest, &folder))
            .unwrap_or_else(|error| Visit::missing(guest, &error));
        for (signal, finding) in &visit.findings {
            say(&format!("    {signal:<13} {:<10} {}", finding.state, finding.said));
        }
        for fault in visit.faults() {
            say(&format!("  {}: {fault}", guest.name));
        }
        visits.push(visit);
    }
    say(&table(&visits));
    Ok(())
}

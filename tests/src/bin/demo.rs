//! `make demo`: three real tiers under load, one agent each, a collector; a CPU millibottleneck in the middle, then a disk
//! flush in the last; the incidents as they come, in the words of `tailwater incidents`.

#![allow(clippy::disallowed_methods, reason = "a demo tells how long it took by its own clock")]

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tailwater_tests::daemons::{binary, wait_for};
use tailwater_tests::lab::cells::{self, Cell};
use tailwater_tests::lab::{LabConfig, unix_ns};
use tailwater_tests::system::{System, is_alarming};

/// Shows Tailwater at work on this machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// Keeps everything up for this long after the last incident, to open the page.
    #[arg(long, default_value_t = 0)]
    stay_seconds: u64,
    /// Where logs and the collector's data go.
    #[arg(long, default_value = ".lab/demo")]
    folder: PathBuf,
    /// What to inject, in turn: cells of one stack, as `lab cells` lists them.
    #[arg(long, alias = "cell", value_delimiter = ',', default_value = "app-cpu,db-io")]
    scenario: Vec<String>,
}

/// The cells of those names; they must share their servers.
fn choose(names: &[String]) -> Result<Vec<&'static Cell>> {
    let find =
        |name: &String| cells::find(name).with_context(|| format!("no cell {name}: `lab cells` lists them"));
    let cells = names.iter().map(find).collect::<Result<Vec<_>>>()?;
    if cells.windows(2).any(|pair| pair[0].stack != pair[1].stack) {
        bail!("these cells are of different stacks; a demo shows one");
    }
    Ok(cells)
}

fn say(text: &str) {
    println!("\n\x1b[1m{text}\x1b[0m");
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        bail!(
            "the demo needs root: it makes network namespaces and cgroups and loads kernel programs; run `sudo make demo`"
        );
    }
    if arguments.folder.exists() {
        std::fs::remove_dir_all(&arguments.folder)
            .with_context(|| format!("remove {}", arguments.folder.display()))?;
    }
    std::fs::create_dir_all(&arguments.folder)?;
    let cells = choose(&arguments.scenario)?;
    let stack = cells.first().context("a cell to show")?.stack;
    let begun = Instant::now();
    say(&format!(
        "Starting {}, each in its own network namespace and cgroup, with one agent each …",
        stack.tiers().iter().map(|tier| stack.workload(*tier)).collect::<Vec<_>>().join(" → ")
    ));
    let trace = arguments.folder.join("demo.trace").display().to_string();
    let system = System::start(LabConfig::of(stack), &arguments.folder, &["--record".into(), trace])?;
    println!("up after {:.0} s; page: {}", begun.elapsed().as_secs_f64(), system.collector.http_url());

    let mut follow = Command::new(binary("tailwater")?)
        .args(["incidents", "--follow", "--collector", &system.collector.http_url()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("tailwater incidents --follow")?;
    let lines = follow.stdout.take().context("the follower's output")?;
    std::thread::spawn(move || {
        for line in BufReader::new(lines).lines().map_while(Result::ok) {
            println!("  {line}");
        }
    });

    let rate = system.lab.rate_per_second();
    say(&format!("{rate:.0} requests a second, one connection each; ten quiet seconds first …"));
    let load = system.lab.load(&system.lab.default_load(15_000 + 15_000 * cells.len() as u64))?;
    std::thread::sleep(Duration::from_secs(10));

    let mut named = Vec::new();
    for cell in cells {
        let (tier, cause) = (cell.tier, cell.cause);
        say(&format!("Injecting into {}: {} …", stack.workload(tier), cause.about()));
        let from = unix_ns();
        let injected = system.lab.inject(&cell.injection)?;
        println!(
            "  injected for {} ms in the {} tier",
            (injected.end_unix_ns - injected.start_unix_ns) / 1_000_000,
            injected.tier.name()
        );
        let found = system.closed_incidents(from, from + 5_000_000_000, Duration::from_secs(30))?;
        named.extend(found.into_iter().filter(is_alarming));
    }
    load.stop()?;
    let summary = load.wait()?.summary;
    // The follower prints within its polling period.
    wait_for("the follower to end", Duration::from_secs(2), || Ok(Some(())))?;
    std::thread::sleep(Duration::from_millis(500));
    // Ending the follower: it is our own child.
    let _ = follow.kill();
    let _ = follow.wait();

    say(&format!(
        "The clients saw {} of {} requests take more than a second. The reasons, by root cause:",
        summary.vlrt, summary.sent
    ));
    for incident in &named {
        println!("  {}", incident["title"].as_str().unwrap_or("(no title)"));
    }
    let Some(first) = named.first().and_then(|incident| incident["id"].as_str()) else {
        bail!("no incident was named; logs are in {}", arguments.folder.display());
    };
    say(&format!("tailwater explain {first}"));
    let status = Command::new(binary("tailwater")?)
        .args(["explain", first, "--collector", &system.collector.http_url()])
        .status()?;
    if !status.success() {
        bail!("tailwater explain: {status}");
    }
    say(&format!(
        "Page: {}   (kept up with `make demo DEMO_FLAGS=--stay-seconds=600`)\nData of this run: {}",
        system.collector.http_url(),
        arguments.folder.display()
    ));
    std::thread::sleep(Duration::from_secs(arguments.stay_seconds));
    Ok(())
}

//! The lab from the command line: keep one up, run scenarios, remove what an interrupted one left. Wiring only.

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tailwater_tests::lab::{Lab, LabConfig, Tier, process, reaper};
use tailwater_tests::load::{LoadPlan, Mode};
use tailwater_tests::scenario::{self, SCENARIOS};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(
    about = "Three tiers of real servers in network namespaces, with load and injected millibottlenecks"
)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Starts a lab and keeps it until Ctrl-C.
    Up {
        /// Requests a second to send meanwhile, open loop.
        #[arg(long)]
        load: Option<f64>,
    },
    /// Runs scenarios one after the other under load and says what the kernel counted for each.
    Run {
        /// Names, separated by commas; `all`; `none` for a minute of load without injection.
        #[arg(long, value_delimiter = ',', default_value = "all")]
        scenario: Vec<String>,
        /// How often each.
        #[arg(long, default_value_t = 1)]
        repeat: u32,
        /// Requests a second, open loop.
        #[arg(long, default_value_t = scenario::RATE_PER_SECOND)]
        rate: f64,
        /// Seconds of load without injection, for `none`.
        #[arg(long, default_value_t = 60)]
        quiet_seconds: u64,
    },
    /// Removes everything that dead labs left behind.
    Down {
        /// Also ends labs that are running.
        #[arg(long)]
        all: bool,
    },
    /// Lists the scenarios.
    Scenarios,
    /// Waits for its parent to die and cleans up after it.
    #[command(hide = true)]
    Guard {
        /// The run to clean up.
        run: String,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Action::Up { load } => up(load),
        Action::Run { scenario, repeat, rate, quiet_seconds } => run(&scenario, repeat, rate, quiet_seconds),
        Action::Down { all } => down(all),
        Action::Scenarios => {
            for scenario in SCENARIOS {
                println!("{:12} {}", scenario.name, scenario.about);
            }
            Ok(())
        }
        Action::Guard { run } => reaper::guard(&run),
    }
}

/// Yields once when the user wants to stop. A second Ctrl-C is ignored, so that cleaning up is not cut short.
fn interrupts() -> Result<Receiver<()>> {
    let (sender, receiver) = sync_channel(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::Builder::new().name("interrupts".into()).spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                // Full means that one is noted already.
                let _ = sender.try_send(());
            }
        });
    })?;
    Ok(receiver)
}

/// Waits, and fails if the user does not want to.
fn pause(interrupts: &Receiver<()>, duration: Duration) -> Result<()> {
    match interrupts.recv_timeout(duration) {
        Err(RecvTimeoutError::Timeout) => Ok(()),
        _ => bail!("interrupted"),
    }
}

fn up(rate: Option<f64>) -> Result<()> {
    let interrupts = interrupts()?;
    let lab = Lab::start(LabConfig::default())?;
    println!("lab {} is up", lab.run_id());
    for tier in Tier::ALL {
        let handle = lab.tier(tier);
        println!(
            "  {:4} {:16} netns {:16} cgroup {}",
            tier.name(),
            tier.listener().to_string(),
            handle.netns().name(),
            handle.cgroup_path()
        );
    }
    println!("  files in {}; Ctrl-C removes everything", lab.folder().display());
    let forever_ms = 365 * 24 * 3_600_000;
    loop {
        // A load's arrivals are planned ahead: minute by minute, not for ever.
        let Some(rate_per_second) = rate else {
            let _ = pause(&interrupts, Duration::from_millis(forever_ms));
            return Ok(());
        };
        let _load = lab.load(&LoadPlan::new(Mode::Open { rate_per_second }, 60_000))?;
        if pause(&interrupts, Duration::from_secs(60)).is_err() {
            return Ok(());
        }
    }
}

fn run(names: &[String], repeat: u32, rate_per_second: f64, quiet_seconds: u64) -> Result<()> {
    let mut chosen = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => chosen.extend(SCENARIOS.iter().map(Some)),
            "none" => chosen.push(None),
            name => chosen.push(Some(
                scenario::find(name)
                    .with_context(|| format!("no scenario {name}: `lab scenarios` lists them"))?,
            )),
        }
    }
    let interrupts = interrupts()?;
    let lab = Lab::start(LabConfig::default())?;
    println!(
        "scenario     stall ms overflows  dropped      app  syn rtx   sent failed    VLRT   p99 ms  CPU of web/app/db, % of quota"
    );
    for scenario in chosen.iter().flat_map(|scenario| std::iter::repeat_n(scenario, repeat as usize)) {
        let duration_ms = if scenario.is_some() { 6_000 } else { quiet_seconds * 1000 };
        let before = lab.truth()?;
        let load = lab.load(&LoadPlan::new(Mode::Open { rate_per_second }, duration_ms))?;
        let stall_ms = match scenario {
            Some(scenario) => {
                pause(&interrupts, Duration::from_secs(2))?;
                let injected = lab.inject(&scenario.injection)?;
                (injected.end_unix_ns - injected.start_unix_ns) / 1_000_000
            }
            None => {
                pause(&interrupts, Duration::from_millis(duration_ms))?;
                0
            }
        };
        let summary = load.wait()?.summary;
        let after = lab.truth()?;
        let truth = after.since(&before);
        let span_ns = (after.at_unix_ns - before.at_unix_ns) as f64;
        let cpu: Vec<String> = Tier::ALL
            .iter()
            .map(|tier| {
                let used = truth.tier(*tier).cpu_usage_ns as f64 / span_ns;
                format!("{:.0}", 100.0 * used / lab.config().quota_cores(*tier))
            })
            .collect();
        println!(
            "{:12} {:>8} {:>9} {:>8} {:>8} {:>8} {:>6} {:>6} {:>7} {:>8.1}  {}",
            scenario.map_or("none", |scenario| scenario.name),
            stall_ms,
            truth.web.listen_overflows,
            truth.web.dropped(),
            truth.app.listen_overflows,
            truth.client_syn_retransmits,
            summary.sent,
            summary.failed,
            summary.vlrt,
            summary.p99_us as f64 / 1000.0,
            cpu.join("/")
        );
    }
    Ok(())
}

fn down(all: bool) -> Result<()> {
    for run in reaper::runs()? {
        if let Some(pid) = reaper::owner(&run) {
            if !all {
                println!("lab {run} is running (pid {pid}): left alone; `lab down --all` ends it");
                continue;
            }
            process::signal(pid, libc::SIGTERM)?;
            process::wait_for(&format!("lab {run} to end"), Duration::from_secs(30), || {
                Ok(reaper::owner(&run).is_none().then_some(()))
            })?;
        }
        if reaper::runs()?.contains(&run) {
            reaper::reap(&run)?;
        }
        println!("lab {run} removed");
    }
    Ok(())
}

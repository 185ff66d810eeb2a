//! The lab from the command line: keep one up, run scenarios, remove what an interrupted one left. Wiring only.

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tailwater_tests::console::{failure, progress};
use tailwater_tests::lab::cells::{self, Cell};
use tailwater_tests::lab::{Lab, LabConfig, reaper};
use tailwater_tests::load::{LoadPlan, Mode};
use tailwater_tests::os::process;
use tailwater_tests::stack::{Stack, Tier};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(about = "Tiers of real servers in network namespaces, with load and injected millibottlenecks")]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Starts a lab and keeps it until Ctrl-C.
    Up {
        /// Which servers.
        #[arg(long, default_value = "nx0")]
        stack: Stack,
        /// Requests a second to send meanwhile, open loop.
        #[arg(long)]
        load: Option<f64>,
    },
    /// Runs cells one after the other under load and says what the kernel counted for each; fails if one dropped where it should not
    /// or not where it should.
    Run(RunArguments),
    /// Removes everything that dead labs left behind.
    Down {
        /// Also ends labs that are running.
        #[arg(long)]
        all: bool,
    },
    /// Lists the cells, and what each must lead to.
    Cells,
    /// Waits for its parent to die and cleans up after it.
    #[command(hide = true)]
    Guard {
        /// The run to clean up.
        run: String,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    progress::show();
    ExitCode::from(failure::run("lab", None, || execute(arguments.command)))
}

fn execute(command: Action) -> Result<()> {
    match command {
        Action::Up { stack, load } => up(stack, load),
        Action::Run(arguments) => run(&arguments),
        Action::Down { all } => down(all),
        Action::Cells => {
            for cell in cells::cells() {
                let expected = cell.expected;
                let drops = expected.drops.map_or("nobody drops", Tier::name);
                println!(
                    "{:18} {:16} root {:5} {:13} {:9} {drops}",
                    cell.name,
                    expected.class.kind(),
                    expected.root.name(),
                    cell.cause.resource(),
                    expected.culprit.unwrap_or("-"),
                );
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
    let (mut interrupt, mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new().name("interrupts".into()).spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
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

fn up(stack: Stack, rate: Option<f64>) -> Result<()> {
    let interrupts = interrupts()?;
    let lab = Lab::start(LabConfig::of(stack))?;
    println!("lab {} is up", lab.run_id());
    for tier in stack.tiers().iter().copied() {
        let handle = lab.tier(tier);
        println!(
            "  {:4} {:9} {:16} netns {:16} cgroup {}",
            tier.name(),
            stack.workload(tier),
            stack.listener(tier).to_string(),
            handle.netns().name(),
            handle.cgroup_path()
        );
    }
    if let Some(fit) = lab.fit() {
        println!("  {fit}");
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

/// The cells that the names stand for, by stack, so that each stack is started once; no cells are a quiet run.
fn choose(names: &[String], stacks: &[Stack]) -> Result<Vec<(Stack, Vec<&'static Cell>)>> {
    let mut chosen: Vec<(Stack, Vec<&Cell>)> = Vec::new();
    let mut note =
        |stack: Stack, cell: Option<&'static Cell>| match chosen.iter_mut().find(|(s, _)| *s == stack) {
            Some((_, cells)) => cells.extend(cell),
            None => chosen.push((stack, cell.into_iter().collect())),
        };
    for name in names {
        match name.as_str() {
            "none" => stacks.iter().for_each(|stack| note(*stack, None)),
            "all" => cells::cells()
                .iter()
                .filter(|cell| stacks.contains(&cell.stack))
                .for_each(|cell| note(cell.stack, Some(cell))),
            name => {
                let cell = cells::find(name);
                let cell = cell.with_context(|| format!("no cell {name}: `lab cells` lists them"))?;
                note(cell.stack, Some(cell));
            }
        }
    }
    Ok(chosen)
}

/// What to run, from the command line.
#[derive(clap::Args)]
struct RunArguments {
    /// Cells, separated by commas; `all` those of the stacks; `none` for load without injection.
    #[arg(long, alias = "scenario", value_delimiter = ',', default_value = "all")]
    cell: Vec<String>,
    /// Stacks that `all` and `none` mean.
    #[arg(long, value_delimiter = ',', default_value = "nx0")]
    stack: Vec<Stack>,
    /// How often each.
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Requests a second, open loop; otherwise the stack's own.
    #[arg(long)]
    rate: Option<f64>,
    /// Servers get this much less CPU than tuned, as on a machine so much slower.
    #[arg(long, default_value_t = 1.0)]
    slower: f64,
    /// Seconds of load without injection, for `none`.
    #[arg(long, default_value_t = 60)]
    quiet_seconds: u64,
}

fn run(arguments: &RunArguments) -> Result<()> {
    let interrupts = interrupts()?;
    let mut unexpected = 0;
    for (stack, cells) in choose(&arguments.cell, &arguments.stack)? {
        let lab = Lab::start(LabConfig::of(stack).slower(arguments.slower))?;
        if let Some(fit) = lab.fit() {
            println!("{fit}");
        }
        let names: Vec<&str> = stack.tiers().iter().map(|tier| tier.name()).collect();
        println!(
            "{:16} stall ms  sent failed   VLRT   p99 ms  dropped by {names}  SYN retries by client/{names}  CPU of {names}, % of quota",
            format!("{stack}"),
            names = names.join("/")
        );
        let cells: Vec<Option<&Cell>> =
            if cells.is_empty() { vec![None] } else { cells.into_iter().map(Some).collect() };
        for cell in cells.iter().flat_map(|cell| std::iter::repeat_n(cell, arguments.repeat as usize)) {
            unexpected += u32::from(!run_one(&lab, *cell, arguments, &interrupts)?);
        }
    }
    if unexpected > 0 {
        bail!("{unexpected} runs dropped where they should not, or not where they should");
    }
    Ok(())
}

/// One run; whether it dropped where it should and nowhere else.
fn run_one(
    lab: &Lab,
    cell: Option<&Cell>,
    arguments: &RunArguments,
    interrupts: &Receiver<()>,
) -> Result<bool> {
    let duration_ms = if cell.is_some() { 6_000 } else { arguments.quiet_seconds * 1000 };
    let rate_per_second = arguments.rate.unwrap_or_else(|| lab.rate_per_second());
    let before = lab.truth()?;
    let load = lab.load(&LoadPlan::new(Mode::Open { rate_per_second }, duration_ms))?;
    let stall_ms = match cell {
        Some(cell) => {
            pause(interrupts, Duration::from_secs(2))?;
            let injected = lab.inject(&cell.injection)?;
            (injected.end_unix_ns - injected.start_unix_ns) / 1_000_000
        }
        None => {
            pause(interrupts, Duration::from_millis(duration_ms))?;
            0
        }
    };
    let summary = load.wait()?.summary;
    let after = lab.truth()?;
    let truth = after.since(&before);
    let span_ns = (after.at_unix_ns - before.at_unix_ns) as f64;
    let tiers = lab.stack().tiers();
    let join = |value: &dyn Fn(Tier) -> u64| {
        tiers.iter().map(|tier| value(*tier).to_string()).collect::<Vec<_>>().join("/")
    };
    let cpu = |tier: Tier| {
        let used = truth.tier(tier).cpu_usage_ns as f64 / span_ns;
        (100.0 * used / lab.config().limits(tier).cores) as u64
    };
    let expected = cell.and_then(|cell| cell.expected.drops);
    let as_expected =
        lab.stack().homes().all(|tier| (truth.tier(tier).listen_overflows > 0) == (expected == Some(tier)));
    println!(
        "{:16} {:>8} {:>5} {:>6} {:>6} {:>8.1}  {}  {}/{}  {}{}",
        cell.map_or("none", |cell| cell.name),
        stall_ms,
        summary.sent,
        summary.failed,
        summary.vlrt,
        summary.p99_us as f64 / 1000.0,
        join(&|tier| truth.tier(tier).listen_overflows),
        truth.client_syn_retransmits,
        join(&|tier| truth.tier(tier).syn_retransmits),
        join(&cpu),
        if as_expected { "" } else { "  UNEXPECTED" }
    );
    Ok(as_expected)
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
            reaper::reap_dead(&run)?;
        }
        println!("lab {run} removed");
    }
    Ok(())
}

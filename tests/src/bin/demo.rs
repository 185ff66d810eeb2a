//! `make demo`: three real tiers under load, one agent each, a collector; a CPU millibottleneck in the middle, then a disk
//! flush in the last; the incidents as they come, in the words of `tailwater incidents`, and in the end what was named held against
//! what was injected: where they differ it says so and fails. With `--advise` the pools' sizes, learnt from two minutes of load.

#![allow(clippy::disallowed_methods, reason = "a demo tells how long it took by its own clock")]

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tailwater_tests::console::failure::{self, REMEDY, sentence};
use tailwater_tests::console::progress::{self, say, step, title};
use tailwater_tests::demo::{preflight, verdict};
use tailwater_tests::disturbed::{Taken, Watch};
use tailwater_tests::lab::cells::{self, Cell};
use tailwater_tests::lab::{CALM_MAX, LabConfig, Load};
use tailwater_tests::load::{LoadPlan, Mode};
use tailwater_tests::os::clock::unix_ns;
use tailwater_tests::os::process::{die_with_parent, wait_for};
use tailwater_tests::prevention::answer::{Answer, changed};
use tailwater_tests::programs::daemons::{Collector, binary, http_get};
use tailwater_tests::programs::reported::Reported;
use tailwater_tests::score::judge::judge;
use tailwater_tests::score::model::{Injection, Row};
use tailwater_tests::score::session::places;
use tailwater_tests::score::{plan::expectation, session};
use tailwater_tests::sizing;
use tailwater_tests::supervise::supervise;
use tailwater_tests::system::System;
use tailwater_tests::truth::Recorder;

/// Before the first injection: the usual level has to be known, which the collector looks for in the five seconds before a stall.
const QUIET: Duration = Duration::from_secs(5);
/// Retries of dropped connections come after 1 and 3 s; an incident of their own would come in this time.
const AFTER_NS: u64 = 4_000_000_000;
/// An incident closes 2.5 s after the last drop; a machine at its limits takes longer to get there.
const CLOSES_WITHIN: Duration = Duration::from_secs(45);
/// For retries of the one before to end, when one is shown again.
const CALM: Duration = Duration::from_secs(5);
/// Between two injections, after the load is served again: the five seconds before the second one begin after the retries of the first.
const BETWEEN: Duration = Duration::from_secs(1);
/// A load that dropped requests without an injection is followed by one of this share of it, so many times.
const LOWER: f64 = 0.8;
const LOWER_TIMES: u32 = 2;

/// Shows Tailwater at work on this machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// Keeps everything up for this long after the last incident, to open the page.
    #[arg(long, default_value_t = 0)]
    stay_seconds: u64,
    /// Then loads the system from low to high, for so long in all, and tells how large its pools should be (s).
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "120", value_parser = clap::value_parser!(u32).range(60..=3600))]
    advise: Option<u32>,
    /// Then starts the servers anew with the smallest change that is said to have prevented the first incident, injects the same again, and
    /// shows drops before and after.
    #[arg(long)]
    apply: bool,
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

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    supervise("demo", || {
        progress::show();
        failure::run("demo", Some(&arguments.folder), || demo(&arguments))
    })
}

fn demo(arguments: &Arguments) -> Result<()> {
    let cells = choose(&arguments.scenario)?;
    let stack = cells.first().context("a cell to show")?.stack;
    let folder = &arguments.folder;
    preflight::check(folder)?;
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let begun = Instant::now();
    title(&format!(
        "Starting {}, each in its own network namespace and cgroup, with one agent each …",
        stack.tiers().iter().map(|tier| stack.workload(*tier)).collect::<Vec<_>>().join(" → ")
    ));
    let trace = folder.join("demo.trace").display().to_string();
    let mut system = System::start(LabConfig::of(stack), folder, &["--record".into(), trace])?;
    let page = system.collector.http_url();
    say(&format!("up after {:.0} s; page: {page}", begun.elapsed().as_secs_f64()));
    let follow = Follow::start(&system.collector)?;

    // Twice as long as it takes: each may be shown again.
    let longest_ms = 30_000 + 120_000 * cells.len() as u64;
    let (mut load, mut rate) = quiet_load(&system, system.lab.rate_per_second(), longest_ms)?;
    let (mut slow, mut sent) = (0, 0);
    let mut shown = Vec::new();
    for (number, cell) in cells.iter().copied().enumerate() {
        if number > 0 {
            // What one leaves behind would be the next one's usual level.
            let served = step("the load is served again", BETWEEN, || system.lab.wait_until_served(CALM_MAX));
            let too_much = match served {
                Err(error) => Some(sentence(&error)),
                // Served again, but so near its limit that the next one's queues would not begin empty.
                Ok(()) if shown.last().is_some_and(Shown::outlived) => {
                    Some("retries kept the overload alive when the injection was long over".to_owned())
                }
                Ok(()) => None,
            };
            if let Some(why) = too_much {
                // Whoever was dropped comes again, and the load is too much for a machine that became slower: it stops, and less comes.
                say(&format!(
                    "  {why}: this machine bears less than was measured; it drains, and goes on with less"
                ));
                load.stop()?;
                let summary = load.wait()?.summary;
                (slow, sent) = (slow + summary.vlrt, sent + summary.sent);
                system.lab.drain()?;
                (load, rate) = quiet_load(&system, rate * LOWER, longest_ms)?;
            }
            std::thread::sleep(BETWEEN);
        }
        shown.push(show(&system, cell)?);
    }
    load.stop()?;
    let summary = step("the last requests are answered", Duration::from_secs(1), || load.wait())?.summary;
    // The follower prints what the collector tells it within some milliseconds.
    std::thread::sleep(Duration::from_millis(300));
    drop(follow);

    title(&format!(
        "The clients saw {} of {} requests take more than a second. The reasons, by root cause:",
        slow + summary.vlrt,
        sent + summary.sent
    ));
    for incident in shown.iter().filter_map(|shown| shown.row.reported.as_ref()) {
        say(&format!("  {}", incident.title));
    }
    if let Some(incident) = shown.iter().find_map(|shown| shown.row.reported.as_ref()) {
        explain(&page, &incident.id)?;
    }
    let wrong = hold(&shown);
    if let (true, Some(first), Some(cell)) = (arguments.apply, shown.first(), cells.first()) {
        apply(&mut system, cell, &first.row, rate)?;
    }
    match arguments.advise {
        Some(seconds) => advise(&system, seconds, &page)?,
        None => say(
            "\nHow large the pools should be takes two minutes of traffic more to say: make demo DEMO_FLAGS=--advise",
        ),
    }
    title(&format!(
        "Page: {page}   (kept up with `make demo DEMO_FLAGS=--stay-seconds=600`)\nData of this run: {}",
        folder.display()
    ));
    if wrong > 0 {
        bail!(
            "{wrong} of {} injections were not named as they were injected{REMEDY}{}",
            shown.len(),
            remedy(&shown)
        );
    }
    say(&format!(
        "Named as injected: {} of {}, after {}.",
        shown.len(),
        shown.len(),
        progress::seconds(begun.elapsed())
    ));
    if arguments.stay_seconds > 0 {
        let stay = Duration::from_secs(arguments.stay_seconds);
        step("everything stays up; Ctrl-C removes it", stay, || -> Result<()> {
            std::thread::sleep(stay);
            Ok(())
        })?;
    }
    Ok(())
}

/// Packets that all listeners dropped since they were started, by the kernel.
fn dropped(system: &System) -> Result<u64> {
    let truth = system.lab.truth()?;
    Ok(system.lab.stack().homes().map(|tier| truth.tier(tier).dropped()).sum())
}

/// A load that is served, and how many requests a second it is: `rate`, or less where five seconds of it were not quiet. A machine may
/// become slower after it was measured, and requests that come again would keep a load alive that is too much.
fn quiet_load(system: &System, mut rate: f64, duration_ms: u64) -> Result<(Load, f64)> {
    let mut left = LOWER_TIMES;
    loop {
        title(&format!("{rate:.0} requests a second, one connection each; five quiet seconds first …"));
        let (before, watch) = (dropped(system)?, Watch::start());
        let mode = Mode::Open { rate_per_second: rate };
        let load = system.lab.load(&LoadPlan::new(mode, duration_ms))?;
        step("the usual level is learnt", QUIET, || -> Result<()> {
            std::thread::sleep(QUIET);
            Ok(())
        })?;
        let (lost, taken) = (dropped(system)? - before, watch.stop());
        if lost == 0 {
            return Ok((load, rate));
        }
        load.stop()?;
        let said = format!("{lost} packets were dropped without an injection ({taken})");
        if left == 0 {
            bail!(
                "{rate:.0} requests a second are too many for this machine: {said}{REMEDY}end what else runs here, or use a machine with more CPU, and start again"
            );
        }
        (rate, left) = (rate * LOWER, left - 1);
        say(&format!(
            "  {said}: this machine bears less than was measured, going on with {rate:.0} requests a second"
        ));
        load.wait()?;
        system.lab.drain()?;
    }
}

/// An injection, and what was said of it.
struct Shown {
    row: Row,
    taken: Taken,
}

impl Shown {
    fn is_right(&self) -> bool {
        verdict::differences(&self.row).is_empty()
    }

    /// Whether what it began went on by itself when it was over.
    fn outlived(&self) -> bool {
        self.row.reported.as_ref().is_some_and(|incident| incident.sustained)
    }
}

/// Injects a cell; once more if it was not named as injected and the machine was taken away meanwhile.
fn show(system: &System, cell: &Cell) -> Result<Shown> {
    let first = inject(system, cell, 1)?;
    if first.is_right() || !first.taken.is_taken() {
        return Ok(first);
    }
    say(&format!(
        "  The machine was taken away meanwhile ({}), so that this proves nothing: once more.",
        first.taken
    ));
    std::thread::sleep(CALM);
    inject(system, cell, 2)
}

fn inject(system: &System, cell: &Cell, number: u32) -> Result<Shown> {
    title(&format!("Injecting into {}: {} …", cell.stack.workload(cell.tier), cell.cause.about()));
    let watch = Watch::start();
    let recorder = Recorder::start(&places(system))?;
    let injected = system.lab.inject(&cell.injection)?;
    let (start, end) = (injected.start_unix_ns, injected.end_unix_ns);
    say(&format!("  injected for {} ms in the {} tier", (end - start) / 1_000_000, injected.tier.name()));
    let mut truth = injected.truth(format!("{}#{number}", cell.name), end + AFTER_NS);
    let (from, to) = (truth.from_unix_ns, truth.to_unix_ns);
    let closed = || -> Result<Option<Vec<Reported>>> {
        let found = system.incidents_between(from, to)?;
        let over = !found.is_empty() && found.iter().all(|incident| incident["state"] == "closed");
        Ok((over && unix_ns() >= to).then(|| found.iter().map(Reported::of).collect()))
    };
    let told = step("the incident closes", Duration::from_secs(6), || {
        wait_for("an incident to close", CLOSES_WITHIN, closed)
    });
    // Nothing, or nothing that ended, is judged like everything else.
    let told = match told {
        Ok(told) => told,
        Err(_) => system.incidents_between(from, to)?.iter().map(Reported::of).collect(),
    };
    truth.observe(&recorder.stop()?, &[]);
    let taken = watch.stop();
    let injection = Injection {
        cell: cell.name.to_owned(),
        stack: cell.stack.name().to_owned(),
        cause: cell.cause.name().to_owned(),
        expected: expectation(cell),
        truth,
    };
    let mut rows = judge(&[injection], &told, &session::told(system)).rows;
    let row = rows.pop().context("a verdict for each injection")?;
    Ok(Shown { row, taken })
}

/// Prints what was injected and what was named, side by side; how many differ.
fn hold(shown: &[Shown]) -> usize {
    title("What was named, held against what was injected:");
    let mut wrong = 0;
    for Shown { row, taken } in shown {
        say(&format!("  injected  {}", verdict::injected(&row.expected)));
        let alert =
            row.alert_ms.map(|ms| format!(", alert {ms:.0} ms after the first drop")).unwrap_or_default();
        say(&format!("  named     {}{alert}", verdict::named(row)));
        let differences = verdict::differences(row);
        if differences.is_empty() {
            say("  the same");
        } else {
            wrong += 1;
            say(&format!("  DIFFERENT: {} ({taken})", differences.join("; ")));
        }
    }
    wrong
}

fn remedy(shown: &[Shown]) -> &'static str {
    if shown.iter().any(|shown| !shown.is_right() && shown.taken.is_taken()) {
        "the machine was taken away meanwhile, as said above: use one with less steal, or try again at a quieter time"
    } else {
        "run it again; if it says the same, report it with demo.trace from the folder of logs"
    }
}

/// Starts the servers anew with what is said to have prevented an incident, injects the same, and says what was dropped before and after.
fn apply(system: &mut System, cell: &Cell, row: &Row, rate: f64) -> Result<()> {
    title("What would have prevented it, tried …");
    let Some(incident) = &row.reported else {
        say("  no incident was named: there is nothing to prevent");
        return Ok(());
    };
    let path = format!("/api/v1/incidents/{}/prevention", incident.id);
    let (status, body) = http_get(system.collector.http, &path)?;
    let answer = match Answer::read(status, &body)? {
        Ok(answer) => answer,
        Err(why) => {
            say(&format!("  {why}"));
            return Ok(());
        }
    };
    let Some(chosen) = answer.preventing() else {
        say("  nothing that the laboratory can change would have prevented it");
        return Ok(());
    };
    say(&format!("  {}", chosen.sentence));
    let config = changed(cell.stack, system.lab.config(), &chosen.changes)?;
    step("the servers start anew with it", Duration::from_secs(15), || system.lab.restart_with(config))?;
    let (load, _) = quiet_load(system, rate, 60_000)?;
    let before = dropped(system)?;
    step("the same is injected again", Duration::from_secs(5), || -> Result<()> {
        system.lab.inject(&cell.injection)?;
        std::thread::sleep(Duration::from_nanos(AFTER_NS));
        Ok(())
    })?;
    let after = dropped(system)? - before;
    load.stop()?;
    load.wait()?;
    say(&format!("  dropped before: {} packets; after: {after}", row.truth.dropped()));
    Ok(())
}

/// Loads the system as the proof of sizes does ([`tailwater_tests::sizing`]), up to more than it can serve, and prints what was learnt.
fn advise(system: &System, seconds: u32, page: &str) -> Result<()> {
    title("How large should the pools be? The load goes from low to high, twice …");
    let cell = sizing::cells::find("demo").context("the demo's cell of the proof of sizes")?;
    system.lab.drain()?;
    let pace = sizing::sweep::Pace { warm_s: 2, measured_s: 5, repeats: 1 };
    let capacity = sizing::sweep::capacity(cell, &system.lab, pace)?;
    say(&format!("  {:.0} requests a second are served at most", capacity.per_second));
    sizing::learn::send(cell, &system.lab, &capacity, seconds)?;
    command(&["advise", "--collector", page])
}

fn explain(page: &str, id: &str) -> Result<()> {
    command(&["explain", id, "--collector", page])
}

/// Runs a command of the collector's program, and prints what it says.
fn command(arguments: &[&str]) -> Result<()> {
    let name = format!(
        "tailwater {}",
        arguments.iter().take_while(|a| !a.starts_with("--")).copied().collect::<Vec<_>>().join(" ")
    );
    title(&name);
    let out = Command::new(binary("tailwater")?)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {name}"))?;
    if !out.status.success() {
        bail!("{name}: {}: {}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    say(String::from_utf8_lossy(&out.stdout).trim_end());
    Ok(())
}

/// `tailwater incidents --follow`, whose lines are printed as they come.
struct Follow(Child);

impl Follow {
    fn start(collector: &Collector) -> Result<Self> {
        let mut command = Command::new(binary("tailwater")?);
        command
            .args(["incidents", "--follow", "--collector", &collector.http_url()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        die_with_parent(&mut command, libc::SIGKILL);
        let mut child = command.spawn().context("start tailwater incidents --follow")?;
        let lines = child.stdout.take().context("the follower's output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                say(&format!("  {line}"));
            }
        });
        Ok(Self(child))
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        // Ended from here on is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! One session: a stack under load, watched by Tailwater and by the truth, and a sequence of injections into it. Starts and stops
//! everything; judges nothing itself.

use crate::console::failure::sentence;
use crate::console::progress::complain;
use crate::lab::cells::{self, Cell};
use crate::lab::{BEFORE_NS, Injected, Injection as Action, scenario};
use crate::os::clock::unix_ns;
use crate::programs::daemons::{binary, wait_for};
use crate::programs::reported::Reported;
use crate::score::judge::{Judged, SUSTAINED_NS, judge};
use crate::score::model::{Injection, Row, Stray, Told};
use crate::score::plan::expectation;
use crate::stack::{Stack, Tier};
use crate::system::{System, host};
use crate::truth::{Place, Recorder, TruthRecord, slow_requests};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The rhythm of a session.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Load before the first injection: the usual level has to be known.
    pub first: Duration,
    /// From one injection's begin to the next's, at least.
    pub spacing: Duration,
}

/// As fast as injections stay apart: SYN retries come after 1, 2 and 3 s.
pub const MATRIX: Pace = Pace { first: Duration::from_secs(12), spacing: Duration::from_millis(4800) };

/// The recording of a session, in its folder.
pub const TRACE: &str = "session.trace";
const TRUTH: &str = "truth.jsonl";
const INCIDENTS: &str = "incidents.jsonl";
const TOLD: &str = "told.jsonl";

/// Nothing may have been dropped for this long before the next injection …
const CALM: Duration = Duration::from_millis(1300);
/// … nor may a tier use so much of its CPU: an event-driven one drops nothing while it catches up, which takes seconds where the machine is
/// slow, and what is injected then is not what the cell is about …
const CAUGHT_UP: f64 = 0.9;
const CAUGHT_UP_OVER: Duration = Duration::from_millis(400);
/// … and where it does not calm down for so long, the load is taken away until all queues are empty: several hundred requests at once can
/// cost a server so much more each that it never catches up, and whatever is injected then is injected into that.
const CALM_MAX: Duration = Duration::from_secs(15);
/// A machine that became slower while it was measured gets this part of the load from there on …
const RELIEVED: f64 = 0.92;
/// … and no smaller a part of the first one than this: limits were made for that one.
const RELIEVED_MIN: f64 = 0.85;
/// After an overload that retries kept alive for ten seconds and more: whoever was dropped four times comes again 8 s later, and until then
/// the system is not what the next injection is made into.
const WAVES: Duration = Duration::from_secs(16);
/// So long such an injection takes at most, with three tries to find a load that is calm before it.
const HELD_MAX: Duration = Duration::from_secs(170);
/// How long retries keep an overload alive depends on the machine's hour: one that ended by itself is tried again under more load, so often,
/// and what was too little stays known for the rest of the session.
const TRIES: u32 = 4;
/// By so much of what the busiest tier can serve, at most this in all.
const MORE: f64 = 0.04;
const MORE_MAX: f64 = 0.12;

/// What a session leaves.
#[derive(Debug, Default)]
pub struct Session {
    /// Every injection's verdict.
    pub rows: Vec<Row>,
    /// Alarms that belong to no injection.
    pub strays: Vec<Stray>,
    /// The injections after which the load had to be taken away.
    pub relieved: Vec<String>,
    /// Why it ended early; what came before is scored.
    pub broken: Option<String>,
}

impl Session {
    /// `dropped`: what the kernel counted in the time of an alarm that belongs to no injection.
    fn of(stack: Stack, judged: Judged, dropped: impl Fn(&Reported) -> u64) -> Self {
        let stray = |reported: Reported| Stray {
            stack: stack.name().to_owned(),
            dropped: dropped(&reported),
            reported,
        };
        let strays = judged.strays.into_iter().map(stray).collect();
        Self { rows: judged.rows, strays, ..Self::default() }
    }
}

/// The listening ports of a lab.
#[must_use]
pub fn places(system: &System) -> Vec<Place> {
    let stack = system.lab.stack();
    let place = |tier: &Tier| Place {
        tier: tier.name().to_owned(),
        host: host(*tier).to_owned(),
        netns: system.lab.tier(*tier).netns().clone(),
        port: stack.listener(*tier).port(),
    };
    stack.tiers().iter().map(place).collect()
}

/// Runs `sequence`, all of one stack; logs, truth and recording go below `folder`.
pub fn run(stack: Stack, sequence: &[&Cell], pace: Pace, folder: &Path) -> Result<Session> {
    let folder = folder.join(stack.name());
    // What an earlier session's collector kept would be read again.
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let trace = folder.join(TRACE);
    let system =
        System::start(scenario::lab(stack), &folder, &["--record".into(), trace.display().to_string()])?;
    let recorder = Recorder::start(&places(&system))?;
    // Longer than it can take; it is stopped at the end.
    let waves = sequence.iter().filter(|cell| cell.expected.sustained).count() as u32;
    let longest = pace.first
        + (pace.spacing + CALM_MAX) * (sequence.len() as u32 + 1)
        + (HELD_MAX + WAVES) * waves * TRIES;
    let longest_ms = longest.as_millis() as u64;
    let mut load = system.lab.load(&system.lab.default_load(longest_ms))?;
    std::thread::sleep(pace.first);

    let (mut injections, mut prepared_from) = (Vec::new(), Vec::new());
    let (mut relieved, mut broken, mut more, mut part) = (Vec::new(), None, 0.0, 1.0);
    for (number, cell) in sequence.iter().enumerate() {
        let (begun, begun_unix_ns) = (Instant::now(), unix_ns());
        let injected = if cell.expected.sustained {
            until_kept_alive(&system, &recorder, &cell.injection, &mut more)
        } else {
            system.lab.inject(&cell.injection)
        };
        match injected {
            Ok(injected) => {
                let number = 1 + injections.iter().filter(|i: &&Injection| i.cell == cell.name).count();
                // Its end is where the next one is prepared.
                let truth = injected.truth(format!("{}#{number}", cell.name), 0);
                // What is dropped while one is prepared belongs to none.
                prepared_from.push(begun_unix_ns.min(truth.from_unix_ns));
                injections.push(injection(cell, truth));
            }
            Err(error) => {
                // What the one that was not made drops is none of the last one's.
                prepared_from.push(begun_unix_ns);
                broken = Some(format!("injection {} of {}: {}", number + 1, cell.name, sentence(&error)));
                break;
            }
        }
        std::thread::sleep(pace.spacing.saturating_sub(begun.elapsed()));
        let calmed = || {
            let dropped = unix_ns().saturating_sub(recorder.last_drop_unix_ns()) < CALM.as_nanos() as u64;
            !dropped && system.lab.utilisation(CAUGHT_UP_OVER).is_ok_and(|used| used <= CAUGHT_UP)
        };
        let mut calm = calmed();
        while !calm && begun.elapsed() < pace.spacing + CALM_MAX {
            std::thread::sleep(Duration::from_millis(20));
            calm = calmed();
        }
        if !calm {
            part = f64::max(part * RELIEVED, RELIEVED_MIN);
            let name = injections.last().map_or_else(String::new, |last: &Injection| last.truth.id.clone());
            complain(&format!(
                "lab: {CALM_MAX:?} after {name} the load was not served again: it ends, and {:.0} % of it go on when queues are empty",
                part * 100.0
            ));
            relieved.push(name);
            load.stop()?;
            load.wait()?;
            system.lab.drain()?;
            load = system.lab.load(&system.lab.part_of_default_load(part, longest_ms))?;
            std::thread::sleep(pace.first);
        } else if cell.expected.sustained {
            std::thread::sleep(WAVES);
        }
    }
    let end_unix_ns = unix_ns();
    load.stop()?;
    load.wait()?;
    let incidents = wait_for("every incident to close", Duration::from_secs(20), || {
        let all = system.collector.incidents()?;
        Ok(all.iter().all(|incident| incident["state"] == "closed").then_some(all))
    })
    .or_else(|_| system.collector.incidents())?;
    let log = recorder.stop()?;
    let slow = slow_requests(system.lab.folder())?;
    ensure!(slow.unread.is_empty(), "loads whose log is not whole: {}", slow.unread.join("; "));
    for index in 0..injections.len() {
        let next = prepared_from.get(index + 1).copied().unwrap_or(end_unix_ns);
        if let Some(injection) = injections.get_mut(index) {
            injection.truth.to_unix_ns = next;
            injection.truth.observe(&log, &slow.starts);
        }
    }
    let told = told(&system);
    keep(&folder, &injections, &incidents, &told)?;
    let reported: Vec<Reported> = incidents.iter().map(Reported::of).collect();
    let judged = judge(&injections, &reported, &told);
    // The kernel's counts, in an alarm's time and a little around it.
    let dropped = |alarm: &Reported| {
        log.dropped_between(alarm.start_unix_ns.saturating_sub(BEFORE_NS), alarm.end_unix_ns + BEFORE_NS)
    };
    Ok(Session { relieved, broken, ..Session::of(stack, judged, dropped) })
}

/// Injects until drops go on after the end of what began them, as is said of such a cell; or as often as is tried. `more`: load beyond the
/// cell's own. What the tries before the last one drop belongs to no injection.
fn until_kept_alive(
    system: &System,
    recorder: &Recorder,
    injection: &Action,
    more: &mut f64,
) -> Result<Injected> {
    let mut tries = 1;
    loop {
        let injected = system.lab.inject(&injection.with_more_load(*more))?;
        let last = recorder.last_drop_unix_ns().max(injected.end_unix_ns);
        let went_on = last - injected.end_unix_ns;
        if went_on >= SUSTAINED_NS || tries == TRIES {
            return Ok(injected);
        }
        tries += 1;
        *more = (*more + MORE).min(MORE_MAX);
        complain(&format!(
            "lab: an overload ended by itself after {:.1} s: again, under {:.0} % more load than planned",
            went_on as f64 / 1e9,
            *more * 100.0
        ));
        std::thread::sleep(WAVES);
    }
}

fn injection(cell: &Cell, truth: TruthRecord) -> Injection {
    Injection {
        cell: cell.name.to_owned(),
        stack: cell.stack.name().to_owned(),
        cause: cell.cause.name().to_owned(),
        expected: expectation(cell),
        truth,
    }
}

/// What the webhook receiver got.
#[must_use]
pub fn told(system: &System) -> Vec<Told> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    system
        .receiver
        .deliveries()
        .iter()
        .map(|delivery| Told {
            received_unix_ns: delivery.received_unix_ns,
            reported: Reported::of(&delivery.body["data"]),
            replaces: delivery.body["replaces"].as_array().into_iter().flatten().filter_map(text).collect(),
        })
        .collect()
}

/// One truth record a line, one incident a line, one message a line.
fn keep(folder: &Path, injections: &[Injection], incidents: &[Value], told: &[Told]) -> Result<()> {
    let mut truth = std::fs::File::create(folder.join(TRUTH))?;
    for injection in injections {
        writeln!(truth, "{}", serde_json::to_string(&injection.truth)?)?;
    }
    let mut reported = std::fs::File::create(folder.join(INCIDENTS))?;
    for incident in incidents {
        writeln!(reported, "{incident}")?;
    }
    let mut messages = std::fs::File::create(folder.join(TOLD))?;
    for message in told {
        writeln!(messages, "{}", serde_json::to_string(message)?)?;
    }
    Ok(())
}

/// Judges an earlier session anew by what this version says of its recording. Times are those of the messages of then, where they said
/// the same. What the kernel dropped outside of injections is not known, so that an alarm there counts as false.
pub fn again(stack: Stack, folder: &Path) -> Result<Session> {
    let folder = folder.join(stack.name());
    let injections = kept(&folder)?;
    let reported: Vec<Reported> = replay(&folder.join(TRACE))?.iter().map(Reported::of).collect();
    let told = match std::fs::read_to_string(folder.join(TOLD)) {
        Ok(text) => text.lines().map(serde_json::from_str).collect::<Result<Vec<Told>, _>>()?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(e).with_context(|| format!("read the messages in {}", folder.display())),
    };
    let judged = judge(&injections, &reported, &told);
    Ok(Session::of(stack, judged, |_| 0))
}

/// The incidents of a recording, by `tailwater replay`, with this version's thresholds instead of the recorded ones.
pub fn replay(trace: &Path) -> Result<Vec<Value>> {
    let out = Command::new(binary("tailwater")?)
        .arg("replay")
        .arg(trace)
        .args(["--config", "/dev/null"])
        .output()?;
    if !out.status.success() {
        bail!("tailwater replay {}: {}", trace.display(), String::from_utf8_lossy(&out.stderr));
    }
    String::from_utf8(out.stdout)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The injections of an earlier session, with their truth, from its folder.
pub fn kept(folder: &Path) -> Result<Vec<Injection>> {
    let path = folder.join(TRUTH);
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    text.lines().map(|line| of_cell(serde_json::from_str(line)?)).collect()
}

/// The injection that a truth record is of.
pub fn of_cell(truth: TruthRecord) -> Result<Injection> {
    let name = truth.id.split('#').next().unwrap_or_default();
    let cell = cells::find(name).with_context(|| format!("no cell {name}"))?;
    Ok(injection(cell, truth))
}

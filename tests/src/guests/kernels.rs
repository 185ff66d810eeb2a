//! Other kernels, booted in QEMU: which there are, what the agent says of each, and the table of it. The guests' side is `tests/kernels`.

use crate::console::failure::sentence;
use crate::os::process::{die_with_parent, run};
use crate::programs::daemons::binary;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Kernels stay here: they are the same for every run.
pub const CACHE: &str = "/var/cache/tailwater-kernels";
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
/// A guest that is not done by then hangs. One without hardware's help needs a minute and a half.
const GUEST_MAX: Duration = Duration::from_secs(420);
/// An emulated machine that dies of itself does so in the first seconds of its kernel.
const DIES_WITHIN: Duration = Duration::from_secs(30);
/// Exit code of `boot.sh` for a guest that did not reach its command.
const NOT_REACHED: i32 = 90;

/// A kernel and the machine around it.
#[derive(Debug, Clone, Copy)]
pub struct Guest {
    /// How it is called in the table.
    pub name: &'static str,
    /// The Debian suite that has it.
    pub suite: &'static str,
    /// Its package, as a regular expression; the newest one counts.
    pub package: &'static str,
    /// CPUs that are online.
    pub cpus: u32,
    /// What boot.sh is told beside.
    pub environment: &'static [(&'static str, &'static str)],
}

const PLAIN: Guest = Guest { name: "", suite: "bookworm", package: "", cpus: 2, environment: &[] };
const CLOUD_6_1: &str = r"linux-image-6\.1\.0-[0-9]+-cloud-amd64-unsigned";

/// A tenth of what a kernel allows: older verifiers, and those of distributions, walk more for the same program.
pub const INSTRUCTIONS_MAX: u32 = 100_000;

/// What an agent may hold, its maps included, however many CPUs a machine may have.
pub const MEMORY_MAX: u64 = 120_000_000;

/// All that are looked at.
pub const GUESTS: [Guest; 12] = [
    Guest {
        name: "5.10",
        suite: "bullseye-security",
        package: r"linux-image-5\.10\.0-[0-9]+-cloud-amd64-unsigned",
        ..PLAIN
    },
    Guest { name: "6.1", package: CLOUD_6_1, ..PLAIN },
    Guest {
        name: "6.12",
        suite: "bookworm-backports",
        package: r"linux-image-6\.12\..*-cloud-amd64-unsigned",
        ..PLAIN
    },
    Guest { name: "6.16", suite: "trixie-backports", package: r"linux-image-6\.16\..*-cloud-amd64", ..PLAIN },
    Guest { name: "newest", suite: "trixie-backports", package: r"linux-binary-7\..*-cloud-amd64", ..PLAIN },
    Guest {
        name: "newest, no cmpxchg16b",
        suite: "trixie-backports",
        package: r"linux-binary-7\..*-cloud-amd64",
        environment: &[("PROCESSOR", "Haswell-noTSX,-cx16")],
        ..PLAIN
    },
    Guest { name: "6.1, PREEMPT_RT", package: r"linux-image-6\.1\.0-[0-9]+-rt-amd64-unsigned", ..PLAIN },
    Guest { name: "6.1, hybrid cgroups", package: CLOUD_6_1, environment: &[("CGROUPS", "hybrid")], ..PLAIN },
    Guest { name: "6.1, one CPU", package: CLOUD_6_1, cpus: 1, ..PLAIN },
    Guest { name: "6.1, 8 CPUs", package: CLOUD_6_1, cpus: 8, ..PLAIN },
    Guest {
        name: "6.1, 128 possible CPUs",
        package: CLOUD_6_1,
        environment: &[("APPEND", "possible_cpus=128"), ("MEMORY_MIB", "3072")],
        ..PLAIN
    },
    Guest {
        name: "6.1, lockdown",
        package: CLOUD_6_1,
        environment: &[("APPEND", "lockdown=confidentiality")],
        ..PLAIN
    },
];

/// The guest of that name.
pub fn find(name: &str) -> Option<&'static Guest> {
    GUESTS.iter().find(|guest| guest.name == name)
}

/// A line of the guest's program.
#[derive(Debug, Clone, Deserialize)]
struct Said {
    signal: Option<String>,
    state: Option<String>,
    said: Option<String>,
    kernel: Option<String>,
    attach_s: Option<f64>,
    verified: Option<BTreeMap<String, u32>>,
    lost: Option<u64>,
    resident_bytes: Option<u64>,
    map_bytes: Option<u64>,
    largest_maps: Option<String>,
    experiment: Option<String>,
    failed: Option<String>,
}

/// What is told of a signal.
#[derive(Debug, Clone)]
pub struct Finding {
    /// `right`, `wrong`, `sampled`, `uncovered` or `untried`.
    pub state: String,
    /// What was measured, or why not.
    pub said: String,
}

/// What `hrtimer_interrupt()` says where its timers took longer than they may: an emulated CPU that got none of the machine's for a while.
/// It says nothing of the agent.
const STOOD_STILL: &str = "hrtimer: interrupt took ";

/// What a kernel may refuse without a fault: nobody has it who does not ask for it, and the agent then goes on without.
const REFUSABLE: &str = "streams";

/// What came of a guest.
#[derive(Debug, Clone, Default)]
pub struct Visit {
    /// Name of the guest.
    pub name: String,
    /// `uname -r`; empty if its program said nothing.
    pub release: String,
    /// From the agent's start to its first window, emulated.
    pub attach_s: f64,
    /// Instructions that the verifier walked, by program; empty before Linux 5.16, which does not tell.
    pub verified: BTreeMap<String, u32>,
    /// Windows that were lost.
    pub lost: u64,
    /// Of the agent in memory and of its maps together, at the end of the experiments.
    pub memory_bytes: u64,
    /// What it consists of.
    pub memory: String,
    /// By signal.
    pub findings: BTreeMap<String, Finding>,
    /// Experiments that could not be made, and why.
    pub failed: Vec<String>,
    /// Warnings and errors of its kernel from the agent's time on.
    pub dmesg: Vec<String>,
    /// How long all of it took.
    pub took: Duration,
    /// What it said beside.
    pub rest: String,
}

/// Fetches a kernel, boots it, and has its signals held against what it says itself. What it said is left in `folder`.
pub fn visit(guest: &Guest, folder: &Path) -> Result<Visit> {
    let begun = Instant::now();
    run(&mut Command::new(format!("{SCRIPTS}/install.sh")))?;
    let fetched = run(Command::new(format!("{SCRIPTS}/fetch.sh")).args([CACHE, guest.suite, guest.package]))?;
    let kernel = PathBuf::from(fetched.trim());
    ensure!(kernel.is_dir(), "kernels/fetch said {fetched:?}");
    let agent = std::fs::canonicalize(binary("tailwater-agent")?)?;
    let check = std::fs::canonicalize(format!("{SCRIPTS}/check.py"))?;
    let command = format!("python3 {} {}", check.display(), agent.display());
    let mut boots = 0;
    loop {
        boots += 1;
        let since = Instant::now();
        let status = boot(guest, &kernel, folder, &command)?;
        let out = std::fs::read(folder.join("out")).unwrap_or_default();
        let out = String::from_utf8_lossy(&out).replace('\r', "");
        // The emulated machine may die in its kernel's first second, before anything of ours is there.
        let died = status == Some(NOT_REACHED) && since.elapsed() < DIES_WITHIN;
        if died && out.trim().is_empty() && boots < 3 {
            continue;
        }
        let mut visit = read(&out);
        guest.name.clone_into(&mut visit.name);
        visit.took = begun.elapsed();
        if visit.findings.is_empty() && visit.rest.is_empty() {
            let console = std::fs::read(folder.join("console")).unwrap_or_default();
            let lines: Vec<String> =
                String::from_utf8_lossy(&console).lines().rev().take(5).map(str::to_owned).collect();
            visit.rest = format!("it did not come up ({boots} times): {}", lines.join(" | "));
        }
        return Ok(visit);
    }
}

fn boot(guest: &Guest, kernel: &Path, folder: &Path, command: &str) -> Result<Option<i32>> {
    let mut boot = Command::new(format!("{SCRIPTS}/boot.sh"));
    boot.arg(kernel).arg(folder).arg(GUEST_MAX.as_secs().to_string()).arg(command);
    boot.env("CPUS", guest.cpus.to_string()).envs(guest.environment.iter().copied()).stdin(Stdio::null());
    die_with_parent(&mut boot, libc::SIGTERM);
    Ok(boot.status().context("start boot.sh")?.code())
}

fn read(out: &str) -> Visit {
    let mut visit = Visit::default();
    let mut in_dmesg = false;
    for line in out.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line {
            "dmesg begins" => in_dmesg = true,
            "dmesg ends" => in_dmesg = false,
            _ if in_dmesg => visit.dmesg.push(line.to_owned()),
            _ if line.starts_with("exit ") => {}
            _ => match serde_json::from_str::<Said>(line) {
                Ok(said) => take(&mut visit, said),
                Err(_) => {
                    let _ = writeln!(visit.rest, "{line}");
                }
            },
        }
    }
    visit
}

fn take(visit: &mut Visit, said: Said) {
    if let Some(release) = said.kernel {
        visit.release = release;
    }
    if let Some(attach_s) = said.attach_s {
        visit.attach_s = attach_s;
    }
    if let Some(verified) = said.verified {
        visit.verified = verified;
    }
    if let Some(lost) = said.lost {
        visit.lost = lost;
    }
    if let (Some(resident), Some(maps)) = (said.resident_bytes, said.map_bytes) {
        visit.memory_bytes = resident + maps;
        let largest = said.largest_maps.unwrap_or_default();
        visit.memory = format!("{resident} resident, {maps} in maps: {largest}");
    }
    if let (Some(experiment), Some(failed)) = (said.experiment, said.failed) {
        visit.failed.push(format!("{experiment}: {failed}"));
    }
    if let (Some(signal), Some(state)) = (said.signal, said.state) {
        visit.findings.insert(signal, Finding { state, said: said.said.unwrap_or_default() });
    }
}

impl Visit {
    /// A guest that could not be had, and why.
    #[must_use]
    pub fn missing(guest: &Guest, error: &anyhow::Error) -> Self {
        Self { name: guest.name.to_owned(), rest: sentence(error), ..Self::default() }
    }

    /// All that is not as it should be on a kernel that has everything, a sentence each.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = Vec::new();
        if self.findings.is_empty() {
            faults.push(format!("it told of no signal: {}", self.rest.trim()));
        }
        let bad = self.not_right().filter(|(signal, finding)| !is_refused(signal, finding));
        faults.extend(bad.map(|(signal, finding)| told(signal, finding)));
        faults.extend(self.failed.iter().map(|failed| format!("an experiment failed: {failed}")));
        let warns = self.dmesg.iter().filter(|line| !line.contains(STOOD_STILL));
        faults.extend(warns.map(|line| format!("its kernel warns: {line}")));
        let beyond = self.verified.iter().filter(|(_, walked)| **walked > INSTRUCTIONS_MAX);
        faults.extend(beyond.map(|(program, walked)| {
            format!("program {program}: the verifier walks {walked} instructions of {INSTRUCTIONS_MAX}")
        }));
        if self.memory_bytes > MEMORY_MAX {
            faults.push(format!(
                "the agent holds {} bytes of {MEMORY_MAX}: {}",
                self.memory_bytes, self.memory
            ));
        }
        if self.lost > 0 {
            faults.push(format!("{} windows were lost", self.lost));
        }
        faults
    }

    /// What its kernel refused, which is no fault, a sentence each.
    #[must_use]
    pub fn refused(&self) -> Vec<String> {
        let refused = self.not_right().filter(|(signal, finding)| is_refused(signal, finding));
        refused.map(|(signal, finding)| told(signal, finding)).collect()
    }

    fn not_right(&self) -> impl Iterator<Item = (&String, &Finding)> {
        self.findings.iter().filter(|(_, finding)| finding.state != "right")
    }

    /// The program that costs the verifier most, and how many instructions it walks.
    #[must_use]
    pub fn largest(&self) -> Option<(&str, u32)> {
        self.verified.iter().max_by_key(|(_, walked)| **walked).map(|(name, walked)| (name.as_str(), *walked))
    }

    fn right(&self) -> usize {
        self.findings.values().filter(|finding| finding.state == "right").count()
    }
}

fn is_refused(signal: &str, finding: &Finding) -> bool {
    signal == REFUSABLE && finding.state == "uncovered"
}

fn told(signal: &str, Finding { state, said }: &Finding) -> String {
    format!("{signal} is {state}: {said}")
}

/// Kernels against signals, as Markdown.
#[must_use]
pub fn table(visits: &[Visit]) -> String {
    let mut signals: Vec<&String> = visits.iter().flat_map(|visit| visit.findings.keys()).collect();
    signals.sort();
    signals.dedup();
    let mut text = String::from("| guest | kernel | right |");
    let mut line = String::from("|---|---|---|");
    for signal in &signals {
        let _ = write!(text, " {} |", signal.replace('_', " "));
        line.push_str("---|");
    }
    text = format!("{text} attached in | holds | most verified |\n{line}---|---|---|\n");
    let mut reasons = String::new();
    for visit in visits {
        let _ =
            write!(text, "| {} | {} | {} of {} |", visit.name, visit.release, visit.right(), signals.len());
        for signal in &signals {
            let state = visit.findings.get(*signal).map_or("–", |finding| finding.state.as_str());
            let shown = match state {
                "right" => "right",
                "uncovered" => "not covered",
                other => other,
            };
            let _ = write!(text, " {shown} |");
        }
        let largest = visit.largest().map_or("–".to_owned(), |(name, walked)| format!("{walked} ({name})"));
        let _ =
            writeln!(text, " {:.1} s | {} MB | {largest} |", visit.attach_s, visit.memory_bytes / 1_000_000);
        for fault in visit.faults().into_iter().chain(visit.refused()) {
            let _ = writeln!(reasons, "* {}: {fault}", visit.name);
        }
    }
    if reasons.is_empty() { text } else { format!("{text}\n{reasons}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: &str = r#"
module crc16.ko is refused
{"kernel": "6.1.0-50-cloud-amd64", "cpus": 2, "attach_s": 7.1}
{"experiment": "disk", "failed": "OSError()"}
{"windows": 300, "lost": 2}
{"resident_bytes": 30000000, "map_bytes": 91000000, "largest_maps": "a 1, b 2"}
{"verified": {"net_state": 9000, "on_switch": 100001}}
{"signal": "cpu", "state": "right", "said": "ns on CPU 10 of 10"}
{"signal": "calls", "state": "uncovered", "said": "no hook"}
{"signal": "streams", "state": "uncovered", "said": "refused"}
dmesg begins
<4>[    7.0] a warning
<4>[    7.5] hrtimer: interrupt took 79634509 ns
dmesg ends

exit 0
"#;

    /// Nothing but that its emulated CPU stood still for a moment.
    #[test]
    fn what_a_guest_says_is_read_and_nothing_is_passed_over() {
        let visit = read(OUT);
        assert_eq!((visit.release.as_str(), visit.lost), ("6.1.0-50-cloud-amd64", 2));
        assert_eq!(
            visit.faults(),
            [
                "calls is uncovered: no hook",
                "an experiment failed: disk: OSError()",
                "its kernel warns: <4>[    7.0] a warning",
                "program on_switch: the verifier walks 100001 instructions of 100000",
                "the agent holds 121000000 bytes of 120000000: 30000000 resident, 91000000 in maps: a 1, b 2",
                "2 windows were lost"
            ]
        );
        assert!(table(std::slice::from_ref(&visit)).contains(
            "|  | 6.1.0-50-cloud-amd64 | 1 of 3 | not covered | right | not covered | 7.1 s | 121 MB | 100001 (on_switch) |"
        ));
        assert_eq!(visit.refused(), ["streams is uncovered: refused"]);
        assert_eq!(read("a line\n").faults(), ["it told of no signal: a line"]);
    }
}

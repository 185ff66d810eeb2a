//! What the machine under a lab has to give: memory, CPUs, and who else takes of them. Reads `/proc`; knows no tier.

use crate::os::ticks_per_second;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The machine's first line of `/proc/stat`, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    idle: u64,
    steal: u64,
}

impl Ticks {
    /// `cpu user nice system idle iowait irq softirq steal …`. Time of guests is in user's.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = fields[..] else {
            return None;
        };
        Some(Self { busy: user + nice + system + irq + softirq, idle: idle + iowait, steal })
    }
}

/// A moment, to be compared with a later one.
#[derive(Debug)]
pub(super) struct Moment {
    ticks: Ticks,
    lab_ns: u64,
    /// CPU time of every process outside the lab, with its name.
    others: BTreeMap<i32, (String, u64)>,
}

impl Moment {
    /// Now. `lab_ns` and `lab_pids` are what belongs to the lab.
    pub(super) fn now(lab_ns: u64, lab_pids: &[i32]) -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let ticks = Ticks::parse(&text).context("/proc/stat has no line of all CPUs")?;
        Ok(Self { ticks, lab_ns, others: processes(&lab_pids.iter().copied().collect()) })
    }

    /// What happened between this and a later moment.
    pub(super) fn until(&self, later: &Moment) -> Spell {
        let ticks = |of: fn(&Ticks) -> u64| of(&later.ticks).saturating_sub(of(&self.ticks)) as f64;
        let (busy, steal) = (ticks(|ticks| ticks.busy), ticks(|ticks| ticks.steal));
        let all = (busy + steal + ticks(|ticks| ticks.idle)).max(1.0);
        let cpus = cpus();
        // All CPUs together count as many ticks as there are of them.
        let seconds = all / ticks_per_second() / cpus as f64;
        let lab_cores = later.lab_ns.saturating_sub(self.lab_ns) as f64 / 1e9 / seconds;
        let took = |(pid, (name, ticks)): (&i32, &(String, u64))| {
            let before =
                self.others.get(pid).filter(|(known, _)| known == name).map_or(0, |(_, ticks)| *ticks);
            (name.clone(), ticks.saturating_sub(before) as f64 / ticks_per_second() / seconds)
        };
        let busiest = later.others.iter().map(took).max_by(|a, b| a.1.total_cmp(&b.1));
        Spell {
            cpus,
            steal_ratio: steal / all,
            lab_cores,
            other_cores: (busy / all * cpus as f64 - lab_cores).max(0.0),
            busiest: busiest.filter(|(_, cores)| *cores >= NAMED_MIN_CORES),
        }
    }
}

/// A program that takes less is not worth a name.
const NAMED_MIN_CORES: f64 = 0.1;

/// What a machine's CPUs did for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct Spell {
    /// CPUs that are online.
    pub cpus: usize,
    /// Share of all CPU time that the hypervisor gave to others, 0 to 1.
    pub steal_ratio: f64,
    /// CPUs that the lab's servers and load took.
    pub lab_cores: f64,
    /// CPUs that all other programs took.
    pub other_cores: f64,
    /// The busiest of those programs, with the CPUs it took.
    pub busiest: Option<(String, f64)>,
}

impl std::fmt::Display for Spell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "steal {:.0} %, other programs {:.1} of {} CPUs",
            100.0 * self.steal_ratio,
            self.other_cores,
            self.cpus
        )?;
        match &self.busiest {
            Some((name, cores)) => write!(f, " (`{name}` {cores:.1})"),
            None => Ok(()),
        }
    }
}

/// From here on steal is what a machine lacks.
const STEAL_MIN_RATIO: f64 = 0.1;
/// From here on other programs are.
const OTHERS_MIN_CORES: f64 = 0.3;

impl Spell {
    /// In one half sentence: why there was not enough CPU, and what to do.
    #[must_use]
    pub fn shortage(&self) -> String {
        if self.steal_ratio >= STEAL_MIN_RATIO {
            return format!(
                "the hypervisor took {:.0} % of this machine's CPU for others: try again when they are quiet, or on another machine",
                100.0 * self.steal_ratio
            );
        }
        if self.other_cores >= OTHERS_MIN_CORES {
            let who = match &self.busiest {
                Some((name, cores)) => format!("`{name}` alone {cores:.1}"),
                None => "many small ones".to_owned(),
            };
            return format!(
                "other programs took {:.1} of this machine's {} CPUs ({who}): end them and try again",
                self.other_cores, self.cpus
            );
        }
        if self.cpus < 2 {
            return "this machine has one CPU: try on one with two".to_owned();
        }
        format!("this machine's {} CPUs are too slow for it: try on a faster one", self.cpus)
    }
}

/// CPUs that are online.
#[must_use]
pub fn cpus() -> usize {
    // SAFETY: a plain integer.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1).max(1)
}

fn processes(without: &BTreeSet<i32>) -> BTreeMap<i32, (String, u64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if without.contains(&pid) {
            continue;
        }
        // It may be gone by now.
        let text = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(process) = parse_process(&text) {
            found.insert(pid, process);
        }
    }
    found
}

/// `pid (name) state parent …`, where the name may hold anything; fields 14 and 15 are its CPU time. The kernel's own threads, children
/// of the second process, work for others (and for the lab's disk), under changing names.
fn parse_process(text: &str) -> Option<(String, u64)> {
    let (head, rest) = text.rsplit_once(") ")?;
    let (_, name) = head.split_once(" (")?;
    let mut fields = rest.split(' ').skip(1);
    if fields.next()? == "2" {
        return None;
    }
    let mut fields = fields.skip(9);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((name.to_owned(), user + system))
}

/// Memory that a lab's servers, their disk (in memory, too) and the programs that watch them take, MiB.
pub(super) fn check_memory(needed_mib: u64) -> Result<()> {
    let text = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    match available_mib(&text) {
        Some(available) if available < needed_mib => bail!(
            "the lab needs {needed_mib} MiB of memory and {available} MiB are available: end what uses it, or try on a larger machine"
        ),
        // A kernel that does not tell is not refused.
        _ => Ok(()),
    }
}

fn available_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(busy: u64, idle: u64, steal: u64, lab_ns: u64, others: &[(i32, &str, u64)]) -> Moment {
        let others = others.iter().map(|(pid, name, ticks)| (*pid, ((*name).to_owned(), *ticks))).collect();
        Moment { ticks: Ticks { busy, idle, steal }, lab_ns, others }
    }

    #[test]
    fn the_lines_of_proc_are_read() {
        let text = "cpu  10 1 5 100 4 2 3 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(Ticks::parse(text), Some(Ticks { busy: 21, idle: 104, steal: 7 }));
        assert_eq!(Ticks::parse("intr 1 2"), None);
        let text = "77 (a) b (c) S 1 77 77 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 1 0 5 6 7";
        assert_eq!(parse_process(text), Some(("a) b (c".to_owned(), 42)));
        assert_eq!(parse_process(&text.replace("S 1 77", "S 2 77")), None);
        assert_eq!(available_mib("MemTotal: 9 kB\nMemAvailable:    2097152 kB\n"), Some(2048));
        assert!(check_memory(1).is_ok());
        let refused = format!("{:#}", check_memory(1 << 40).unwrap_err());
        assert!(refused.contains("MiB are available: end what uses it"), "{refused}");
    }

    #[test]
    fn whoever_took_the_cpu_is_named_with_the_figure() {
        let cpus = cpus() as u64;
        let ticks = ticks_per_second() as u64;
        // One second: the lab half a CPU, a spinner a quarter, a tenth of all was stolen.
        let all = cpus * ticks;
        let before = moment(0, 0, 0, 0, &[(5, "spin", 1000), (6, "idle", 3)]);
        let after = moment(
            ticks * 3 / 4,
            all - ticks * 3 / 4 - all / 10,
            all / 10,
            500_000_000,
            &[(5, "spin", 1000 + ticks / 4), (6, "idle", 3)],
        );
        let spell = before.until(&after);
        assert!((spell.steal_ratio - 0.1).abs() < 0.01, "{spell:?}");
        assert!((spell.lab_cores - 0.5).abs() < 0.01, "{spell:?}");
        assert!((spell.other_cores - 0.25).abs() < 0.02, "{spell:?}");
        assert_eq!(spell.busiest.as_ref().unwrap().0, "spin");

        let of = |cpus, steal_ratio, other_cores| Spell {
            cpus,
            steal_ratio,
            lab_cores: 0.5,
            other_cores,
            busiest: Some(("cc1plus".to_owned(), 0.9)),
        };
        assert!(of(2, 0.31, 1.0).shortage().starts_with("the hypervisor took 31 %"));
        assert!(of(2, 0.02, 1.0).shortage().contains("(`cc1plus` alone 0.9): end them"));
        assert!(of(1, 0.0, 0.0).shortage().contains("one CPU"));
        assert!(of(2, 0.0, 0.0).shortage().contains("too slow"));
    }
}

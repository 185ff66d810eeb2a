//! What the agent itself costs, and when it costs too much. Owns the budget rule, pure, and the reading of its own counters;
//! knows no signal beyond a name and its rank.

use std::time::Duration;

/// A budget is exceeded "for long" after this many measurements in a row, 5 s apart each.
const ABOVE_FOR: u32 = 3;

/// What is shed before what: first what costs most for what it tells, which is a file read for each cgroup with a quota and window, then
/// the least important. Accept queues, drops and CPU are what a cause is named from.
pub const SHED_ORDER: [&str; 6] = ["throttling", "memory", "block", "polled", "net", "sched"];

/// CPU share of one core between two measurements.
pub fn cpu_ratio(cpu_ns: u64, elapsed: Duration) -> f64 {
    let elapsed_ns = elapsed.as_nanos() as f64;
    if elapsed_ns > 0.0 { cpu_ns as f64 / elapsed_ns } else { 0.0 }
}

/// Resident memory of this process; 0 if the kernel does not tell.
pub fn resident_bytes() -> u64 {
    // SAFETY: sysconf takes a plain integer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    resident_pages(&statm).unwrap_or(0) * u64::try_from(page).unwrap_or(4096)
}

fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_whitespace().nth(1)?.parse().ok()
}

/// `ListenOverflows` and `ListenDrops` of a process's network namespace.
pub fn listen_counters(pid: u32) -> Option<(u64, u64)> {
    parse_netstat(&std::fs::read_to_string(format!("/proc/{pid}/net/netstat")).ok()?)
}

/// Names in one line, values in the next, both behind `TcpExt:`.
pub(crate) fn parse_netstat(text: &str) -> Option<(u64, u64)> {
    let mut lines = text.lines().filter_map(|l| l.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let of = |wanted: &str| {
        let pairs = names.split_whitespace().zip(values.split_whitespace());
        pairs.into_iter().find(|(n, _)| *n == wanted)?.1.parse::<u64>().ok()
    };
    Some((of("ListenOverflows")?, of("ListenDrops")?))
}

/// Decides what to shed.
#[derive(Debug)]
pub struct Budget {
    ratio_max: f64,
    above: u32,
    shed: Vec<&'static str>,
}

impl Budget {
    /// `ratio_max` of one core.
    pub fn new(ratio_max: f64) -> Self {
        Self { ratio_max, above: 0, shed: Vec::new() }
    }

    /// Takes one measurement; returns the source to shed now, if any. After each the agent gets time to calm down. The last
    /// source of [`SHED_ORDER`] stays: an agent that measures nothing has no reason to run.
    pub fn measured(&mut self, ratio: f64, attached: impl Fn(&str) -> bool) -> Option<&'static str> {
        if ratio <= self.ratio_max {
            self.above = 0;
            return None;
        }
        self.above += 1;
        if self.above < ABOVE_FOR {
            return None;
        }
        self.above = 0;
        let (_, sheddable) = SHED_ORDER.split_last()?;
        let next = sheddable.iter().find(|s| !self.shed.contains(s) && attached(s))?;
        self.shed.push(next);
        Some(next)
    }

    /// Shed so far.
    pub fn shed(&self) -> &[&'static str] {
        &self.shed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sheds_after_a_while_the_least_important_first_and_never_the_last() {
        let mut budget = Budget::new(0.05);
        let all = |_: &str| true;
        let mut shed = Vec::new();
        for ratio in [0.06, 0.07, 0.01, 0.06, 0.06] {
            shed.extend(budget.measured(ratio, all));
        }
        assert_eq!(shed, [""; 0], "never three in a row");
        for _ in 0..20 {
            shed.extend(budget.measured(0.2, |s| s != "block"));
        }
        assert_eq!(shed, ["throttling", "memory", "polled", "net"]);
        assert_eq!(budget.shed(), ["throttling", "memory", "polled", "net"]);
    }

    #[test]
    fn reads_the_kernels_counters() {
        assert_eq!(resident_pages("3000 1234 9 1 0 80 0\n"), Some(1234));
        assert!(resident_bytes() > 100_000);
        let text =
            "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 12 15\nIpExt: A\nIpExt: 1\n";
        assert_eq!(parse_netstat(text), Some((12, 15)));
        assert_eq!(parse_netstat("TcpExt: A\nTcpExt: 1\n"), None);
        assert!(listen_counters(std::process::id()).is_some());
        assert!((cpu_ratio(50_000_000, Duration::from_secs(5)) - 0.01).abs() < 1e-9);
    }
}

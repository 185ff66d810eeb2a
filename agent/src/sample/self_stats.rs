//! What the agent itself costs, from the kernel's counters of its process and network namespace. Knows no signal and no budget.

use procfs::process::Process;
use std::time::Duration;

/// CPU share of one core between two measurements.
pub fn cpu_ratio(cpu_ns: u64, elapsed: Duration) -> f64 {
    let elapsed_ns = elapsed.as_nanos() as f64;
    if elapsed_ns > 0.0 { cpu_ns as f64 / elapsed_ns } else { 0.0 }
}

/// Resident memory of this process; 0 if the kernel does not tell.
pub fn resident_bytes() -> u64 {
    let pages = Process::myself().and_then(|own| own.statm()).map_or(0, |memory| memory.resident);
    pages.saturating_mul(procfs::page_size())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_counters() {
        assert!(resident_bytes() > 100_000);
        let text =
            "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 12 15\nIpExt: A\nIpExt: 1\n";
        assert_eq!(parse_netstat(text), Some((12, 15)));
        assert_eq!(parse_netstat("TcpExt: A\nTcpExt: 1\n"), None);
        assert!(listen_counters(std::process::id()).is_some());
        assert!((cpu_ratio(50_000_000, Duration::from_secs(5)) - 0.01).abs() < 1e-9);
    }
}

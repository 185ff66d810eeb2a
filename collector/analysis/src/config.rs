//! What an operator may set: times, tiers, thresholds, each with its unit and where the number comes from.
//! Owns the defaults; knows no rule that uses them.

use serde::{Deserialize, Serialize};

/// A dropped SYN comes again after this, windows (1 s): `TCP_TIMEOUT_INIT` (include/net/tcp.h; RFC 6298, 2.1) is every kernel's first retry, and
/// with linear timeouts (`tcp_syn_linear_timeouts`, 6.5 and later) that of the next three too. Timers are up to 64 ms late (the wheel's
/// granularity), so half of them come a window later.
pub(crate) const RETRY_WINDOWS: u64 = 20;

/// Settings of a pipeline. Every field has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How long a frame waits for a host's window after the window's end, ns. 400 ms: an agent sends a window within
    /// 150 ms; the rest is network and a busy machine, and 1.5 s from drop to named root leaves room for it.
    pub lateness_ns: u64,
    /// An incident with drops closes after this long without a drop or a full queue, ns. 2.5 s: SYN retries come after 1, 2, 3, 4,
    /// 5 and 7 s (kernels since 6.5), so a retry that is dropped again finds its incident open.
    pub quiet_ns: u64,
    /// An incident without drops closes after this long below its trigger, ns. 1 s: the first SYN retry would have come.
    pub quiet_without_drops_ns: u64,
    /// An incident closes at this age whatever goes on, ns; what follows is a new one. 24 h: it keeps its numbers in a few kB however
    /// long it lives, and who is on duty changes by then.
    pub max_incident_ns: u64,
    /// Names and limits of tiers; the first rule that matches holds.
    pub tiers: Vec<TierRule>,
    /// Numbers of the rules.
    pub thresholds: Thresholds,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lateness_ns: 400_000_000,
            quiet_ns: 2_500_000_000,
            quiet_without_drops_ns: 1_000_000_000,
            max_incident_ns: 86_400_000_000_000,
            tiers: Vec::new(),
            thresholds: Thresholds::default(),
        }
    }
}

/// Names a tier and states what is known of it. A condition that is absent matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TierRule {
    /// Exact host name.
    pub host: Option<String>,
    /// Exact workload name.
    pub workload: Option<String>,
    /// A port that the workload listens on.
    pub port: Option<u16>,
    /// The tier's name; absent: derived from the workload.
    pub name: Option<String>,
    /// Worker threads of one server of the tier.
    pub workers_limit: Option<u32>,
}

/// Numbers of the rules. Ratios are 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// Part of the CPU capacity in use that counts as full. 0.95: the highest level that 10 ms quota periods still show as
    /// full when they straddle a 50 ms window.
    pub cpu_full_ratio: f64,
    /// Mean number of a workload's tasks waiting for a CPU that counts as waiting. 0.75: the one thread of an event-driven server,
    /// for most of the window.
    pub cpu_wait_tasks: f64,
    /// And how many times the recent level it must be: servers near 70 % wait a little all the time.
    pub cpu_wait_growth: f64,
    /// CPUs that a quota withholds, or a hypervisor steals, that count as taken away: the mean over a window, so that 0.2 is a fifth of one
    /// CPU for all of it. Of more than two CPUs a tenth of them counts (`TAKEN_PART` in `episode/cpu.rs`).
    pub cpu_taken_ratio: f64,
    /// Mean number of tasks blocked on block I/O. Half a task: a database serialised behind one fsync blocks one thread.
    pub io_blocked_tasks: f64,
    /// Mean number of tasks in reclaim or dirty throttling.
    pub memory_stalled_tasks: f64,
    /// Swap-ins per window.
    pub memory_swap_ins: u64,
    /// Answers below this part of the recent rate are a stall.
    pub stall_rate_ratio: f64,
    /// Arrivals this many times the recent rate are a burst.
    pub burst_ratio: f64,
    /// Part of MaxSysQDepth, or of the accept queue, that is near overflow.
    pub near_overflow_ratio: f64,
    /// Part of MaxSysQDepth from which a queue "felt" a millibottleneck.
    pub felt_ratio: f64,
    /// Or mean response time this many times the recent one.
    pub felt_response_growth: f64,
    /// Part of the growth of a tier's requests that calls to one tier below must account for.
    pub explained_ratio: f64,
    /// Longer than this a bottleneck is persistent, ns (2 s: forty windows).
    pub persistent_ns: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            cpu_full_ratio: 0.95,
            cpu_wait_tasks: 0.75,
            cpu_wait_growth: 3.0,
            cpu_taken_ratio: 0.2,
            io_blocked_tasks: 0.5,
            memory_stalled_tasks: 0.5,
            memory_swap_ins: 64,
            stall_rate_ratio: 0.4,
            burst_ratio: 3.0,
            near_overflow_ratio: 0.85,
            felt_ratio: 0.5,
            felt_response_growth: 10.0,
            explained_ratio: 0.5,
            persistent_ns: 2_000_000_000,
        }
    }
}

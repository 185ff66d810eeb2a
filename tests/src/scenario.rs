//! One table of what the lab does by default: its limits, its load, and each scenario's injection. Every number that was found
//! by trying is here, with the reason; nothing here does anything.

use crate::lab::{Injection, LabConfig, Tier};
use crate::load::{LoadPlan, Mode};

/// The default lab. With the default load, on two cores that also ran compilers, the tiers use about 48 / 57 / 55 % of these
/// quotas and nothing is dropped in 60 s (p99 about 20 ms): together less than one core; agents and a collector have the other one.
/// The front tier holds 150 + 129 requests, 280 ms of arrivals: stalls of 600 to 850 ms overflow it with room to spare, the
/// catch-up after a quiet period's hiccups does not. The app tier has more workers and connections (160) than the front can
/// use, so it is always the front that overflows.
pub const LAB: LabConfig = LabConfig {
    quota_period_us: 10_000,
    web_quota_cores: 0.5,
    app_quota_cores: 0.6,
    db_quota_cores: 0.6,
    web_threads: 150,
    web_backlog: 128,
    web_defer_accept: true,
    app_threads: 160,
    app_backlog: 128,
    jdbc_pool: 50,
    db_backlog: 80,
    disk_bytes_per_second: 20 << 20,
    web_access_log: true,
    db_general_log: false,
    warm_up_requests: 6_000,
};

/// Requests a second of the default load, open loop, a new connection for each.
pub const RATE_PER_SECOND: f64 = 1000.0;
/// Share of requests that write a comment and wait for the disk: 200 a second, so a stalled disk takes all 50 connections of
/// the pool within a quarter of a second, and everybody else then waits for the pool.
pub const COMMENT_RATIO: f64 = 0.2;

/// The default load: one minute.
#[must_use]
pub fn load() -> LoadPlan {
    LoadPlan::new(Mode::Open { rate_per_second: RATE_PER_SECOND }, 60_000)
}

/// A named injection into the default lab under the default load.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// As on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// What is done.
    pub injection: Injection,
}

/// Every scenario. Each makes the web tier's listener drop, some 200 to 700 packets; each did in 10 of 10 runs, also while
/// compilers kept both cores busy. A burner has twenty times an ordinary cgroup's weight (sixty against MariaDB, which needs
/// less to keep going): against one process with dozens of runnable threads it stands for as many spinning neighbours. The
/// flood is one flush of 18 MiB: 0.7 to 0.85 s of the disk.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "app-cpu",
        about: "a process takes Tomcat's CPU",
        injection: Injection::CpuBurn { tier: Tier::App, threads: 2, weight: 60.0, duration_ms: 850 },
    },
    Scenario {
        name: "db-io",
        about: "a log flusher keeps MariaDB's disk busy",
        injection: Injection::DiskFlush { bytes: 18 << 20 },
    },
    Scenario {
        name: "app-pause",
        about: "Tomcat stands still, as in a long collection of garbage",
        injection: Injection::Pause { tier: Tier::App, duration_ms: 700 },
    },
    Scenario {
        name: "db-lock",
        about: "another client locks the table that every request reads",
        injection: Injection::TableLock { table: "stories", duration_ms: 700 },
    },
    Scenario {
        name: "burst",
        about: "requests arrive at the web tier at once",
        injection: Injection::Burst { requests: 600 },
    },
    Scenario {
        name: "app-squeeze",
        about: "the hypervisor leaves Tomcat a tenth of its CPU",
        injection: Injection::QuotaSqueeze { tier: Tier::App, cores: 0.1, duration_ms: 700 },
    },
    Scenario {
        name: "db-cpu",
        about: "a process takes MariaDB's CPU",
        injection: Injection::CpuBurn { tier: Tier::Db, threads: 2, weight: 60.0, duration_ms: 800 },
    },
];

/// A scenario by name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

//! What can be done to a lab, as plain data: the table of cells is made of it. Knows nothing of how it is done.

use crate::stack::Tier;

/// What to do to a lab.
#[derive(Debug, Clone, PartialEq)]
pub enum Injection {
    /// Spinning threads in a cgroup of their own inside the tier's: they compete with the server for the tier's quota.
    CpuBurn {
        /// Whose CPU.
        tier: Tier,
        /// Spinning threads; 0: one for each CPU.
        threads: u32,
        /// Share against the server, as a multiple of an ordinary cgroup's: 1 takes half.
        weight: f64,
        /// For how long.
        duration_ms: u64,
    },
    /// Further clients, so that the busiest tier is near its limit; then spinning threads as in `CpuBurn`, one for each CPU; and some
    /// time after that the further clients leave. What is told of it is the burn.
    Tip {
        /// Whose CPU.
        tier: Tier,
        /// Share against the server, as a multiple of an ordinary cgroup's.
        weight: f64,
        /// How long it burns.
        duration_ms: u64,
        /// Part of what the busiest tier can serve that all clients together ask for.
        load: f64,
        /// When they leave, after the burn's begin.
        hold_ms: u64,
    },
    /// A log flusher on the database's disk: writes without the page cache, then one fsync.
    DiskFlush {
        /// How much; divided by the disk's speed it is how long the disk is busy.
        bytes: u64,
    },
    /// SIGSTOP to every process of the server, then SIGCONT.
    Pause {
        /// Which server.
        tier: Tier,
        /// For how long.
        duration_ms: u64,
    },
    /// A lower quota for a while.
    QuotaSqueeze {
        /// Whose quota.
        tier: Tier,
        /// What is left of it, in cores of the tuned lab.
        cores: f64,
        /// For how long.
        duration_ms: u64,
    },
    /// An exclusive lock of a table by another client of the database.
    TableLock {
        /// Which table.
        table: &'static str,
        /// For how long.
        duration_ms: u64,
    },
    /// A lock inside the application: it rebuilds what every request reads.
    AppLock {
        /// For how long.
        duration_ms: u64,
    },
    /// A handler of an event-driven application sleeps on the thread that serves all others.
    BlockLoop {
        /// For how long.
        duration_ms: u64,
    },
    /// Many requests at once, each on a connection of its own.
    Burst {
        /// How many, in the tuned lab.
        requests: u32,
    },
    /// Many requests at once to the other application on the application server's "VM". It lasts until the last one is answered.
    GuestBurst {
        /// How many, in the tuned lab.
        requests: u32,
    },
}

impl Injection {
    /// The same, where it works under a load near what the tiers can serve, with this much more of it.
    #[must_use]
    pub fn with_more_load(&self, more: f64) -> Self {
        match *self {
            Injection::Tip { tier, weight, duration_ms, load, hold_ms } => {
                Injection::Tip { tier, weight, duration_ms, load: load + more, hold_ms }
            }
            ref other => other.clone(),
        }
    }

    /// Name of its kind, as in the log.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Injection::CpuBurn { .. } => "cpu_burn",
            Injection::Tip { .. } => "tip",
            Injection::DiskFlush { .. } => "disk_flush",
            Injection::Pause { .. } => "pause",
            Injection::QuotaSqueeze { .. } => "quota_squeeze",
            Injection::TableLock { .. } => "table_lock",
            Injection::AppLock { .. } => "app_lock",
            Injection::BlockLoop { .. } => "block_loop",
            Injection::Burst { .. } => "burst",
            Injection::GuestBurst { .. } => "guest_burst",
        }
    }

    /// The tier it hits; for a burst the one that the requests go to, for a guest's the one that suffers from it.
    #[must_use]
    pub fn tier(&self) -> Tier {
        match self {
            Injection::CpuBurn { tier, .. }
            | Injection::Tip { tier, .. }
            | Injection::Pause { tier, .. }
            | Injection::QuotaSqueeze { tier, .. } => *tier,
            Injection::DiskFlush { .. } | Injection::TableLock { .. } => Tier::Db,
            Injection::AppLock { .. } | Injection::BlockLoop { .. } | Injection::GuestBurst { .. } => {
                Tier::App
            }
            Injection::Burst { .. } => Tier::Web,
        }
    }
}

//! The matrix as one table: each cell is a stack, a millibottleneck in one of its tiers, and what the literature and the
//! mechanics of the servers say must come of it. Scoring, demo and tests take cells from here and from nowhere else.

use crate::lab::Injection;
use crate::stack::{Stack, Tier};

/// Kinds of cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A co-located neighbour takes the CPU.
    Cpu,
    /// A log flush keeps the disk busy.
    Io,
    /// The server stands still, as in a collection of garbage.
    Pause,
    /// The tier's quota shrinks.
    Squeeze,
    /// Somebody holds a lock that requests need.
    Lock,
    /// A handler waits on the thread of the event loop.
    Loop,
    /// More requests at once than fit.
    Burst,
    /// A neighbour takes the CPU for a moment, under a load near what the tiers can serve: retries keep the overload until the load is
    /// cut.
    Retries,
}

impl Cause {
    /// Name: the last part of a cell's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::Cpu => "cpu",
            Cause::Io => "io",
            Cause::Pause => "pause",
            Cause::Squeeze => "squeeze",
            Cause::Lock => "lock",
            Cause::Loop => "loop",
            Cause::Burst => "burst",
            Cause::Retries => "retries",
        }
    }

    /// What it is, for people.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Cause::Cpu => "a neighbour takes its CPU",
            Cause::Io => "a log flush keeps its disk busy",
            Cause::Pause => "it stands still, as in a long collection of garbage",
            Cause::Squeeze => "the hypervisor leaves it a tenth of its CPU",
            Cause::Lock => "somebody holds a lock that every request needs",
            Cause::Loop => "a handler sleeps on the thread of its event loop",
            Cause::Burst => "many requests arrive at once",
            Cause::Retries => {
                "a neighbour takes its CPU for a moment, and retries keep the overload until the load is cut"
            }
        }
    }

    /// What an incident's `root.resource` must be.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Cause::Cpu | Cause::Retries => "cpu_neighbour",
            Cause::Io => "io",
            Cause::Pause => "pause",
            Cause::Squeeze => "cpu_throttled",
            Cause::Lock => "lock",
            Cause::Loop => "event_loop",
            Cause::Burst => "burst",
        }
    }
}

/// What kind of incident it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// The dropping tier is upstream of the millibottleneck.
    UpstreamCtqo,
    /// The dropping tier has the millibottleneck, or lies behind it, and an event-driven tier upstream keeps sending.
    DownstreamCtqo,
    /// The dropping tier has the millibottleneck, and only clients are upstream of it.
    LocalOverflow,
    /// Nothing is dropped.
    Millibottleneck,
}

impl Class {
    /// An incident's `kind`.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Class::UpstreamCtqo => "upstream_ctqo",
            Class::DownstreamCtqo => "downstream_ctqo",
            Class::LocalOverflow => "local_overflow",
            Class::Millibottleneck => "millibottleneck",
        }
    }
}

/// What must be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The incident's `kind`.
    pub class: Class,
    /// Where its root is; for a burst, where the requests arrive.
    pub root: Tier,
    /// `comm` of the process to blame, if there is one.
    pub culprit: Option<&'static str>,
    /// Whose listener drops; nobody else's does.
    pub drops: Option<Tier>,
    /// The tier that stored requests while it stood and then overflowed the dropping one with them (role `batch`).
    pub batch: Option<Tier>,
    /// Whether drops go on, kept alive by retries, when what caused them is over.
    pub sustained: bool,
}

/// One experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// `STACK-TIER-CAUSE`.
    pub name: &'static str,
    /// On which servers.
    pub stack: Stack,
    /// Where the millibottleneck is.
    pub tier: Tier,
    /// What causes it.
    pub cause: Cause,
    /// What is done.
    pub injection: Injection,
    /// What must be reported.
    pub expected: Expected,
}

/// Every cell.
#[must_use]
pub fn cells() -> &'static [Cell] {
    CELLS
}

/// A cell by name. The cells of `nx0` also go by their name without it.
#[must_use]
pub fn find(name: &str) -> Option<&'static Cell> {
    CELLS.iter().find(|cell| cell.name == name || cell.name.strip_prefix("nx0-") == Some(name))
}

impl Cell {
    const fn new(name: &'static str, stack: Stack, tier: Tier, cause: Cause, injection: Injection) -> Self {
        let expected = Expected {
            class: Class::Millibottleneck,
            root: tier,
            culprit: None,
            drops: None,
            batch: None,
            sustained: false,
        };
        Cell { name, stack, tier, cause, injection, expected }
    }

    /// A neighbour in the tier's cgroup that spins on every CPU, with sixty times an ordinary cgroup's share: it stands for as many
    /// neighbours, against a process with dozens of runnable threads.
    const fn cpu(name: &'static str, stack: Stack, tier: Tier, duration_ms: u64) -> Self {
        let injection = Injection::CpuBurn { tier, threads: 0, weight: 60.0, duration_ms };
        Self::new(name, stack, tier, Cause::Cpu, injection).culprit("burner")
    }

    /// One flush of so many MiB: 18 are 0.7 to 0.85 s of the disk.
    const fn io(name: &'static str, stack: Stack, mebibytes: u64) -> Self {
        let injection = Injection::DiskFlush { bytes: mebibytes << 20 };
        Self::new(name, stack, Tier::Db, Cause::Io, injection).culprit("logflush")
    }

    const fn pause(name: &'static str, stack: Stack, tier: Tier, duration_ms: u64) -> Self {
        Self::new(name, stack, tier, Cause::Pause, Injection::Pause { tier, duration_ms })
    }

    const fn squeeze(name: &'static str, stack: Stack, tier: Tier, cores: f64, duration_ms: u64) -> Self {
        let injection = Injection::QuotaSqueeze { tier, cores, duration_ms };
        Self::new(name, stack, tier, Cause::Squeeze, injection)
    }

    const fn table_lock(name: &'static str, stack: Stack, duration_ms: u64) -> Self {
        let injection = Injection::TableLock { table: "stories", duration_ms };
        Self::new(name, stack, Tier::Db, Cause::Lock, injection)
    }

    const fn app_lock(name: &'static str, stack: Stack, duration_ms: u64) -> Self {
        Self::new(name, stack, Tier::App, Cause::Lock, Injection::AppLock { duration_ms })
    }

    const fn block_loop(name: &'static str, stack: Stack, duration_ms: u64) -> Self {
        Self::new(name, stack, Tier::App, Cause::Loop, Injection::BlockLoop { duration_ms })
    }

    /// The neighbour is another application's server, which its own clients keep busy.
    const fn guest(name: &'static str, stack: Stack, requests: u32) -> Self {
        Self::new(name, stack, Tier::App, Cause::Cpu, Injection::GuestBurst { requests }).culprit("gunicorn")
    }

    const fn burst(name: &'static str, stack: Stack, requests: u32) -> Self {
        Self::new(name, stack, Tier::Web, Cause::Burst, Injection::Burst { requests })
    }

    /// A neighbour as in [`Cell::cpu`], under so much of what the busiest tier can serve, which is cut after `hold_ms`.
    const fn retries(name: &'static str, stack: Stack, tier: Tier, load: f64, hold_ms: u64) -> Self {
        let injection = Injection::Tip { tier, weight: 60.0, duration_ms: 1700, load, hold_ms };
        let mut cell = Self::new(name, stack, tier, Cause::Retries, injection).culprit("burner");
        cell.expected.sustained = true;
        cell
    }

    const fn culprit(mut self, comm: &'static str) -> Self {
        self.expected.culprit = Some(comm);
        self
    }

    const fn batch(mut self, of: Tier) -> Self {
        self.expected.batch = Some(of);
        self
    }

    const fn drops(mut self, class: Class, at: Tier) -> Self {
        self.expected.class = class;
        self.expected.drops = Some(at);
        self
    }
}

use Class::{DownstreamCtqo, LocalOverflow, UpstreamCtqo};
use Stack::{Haproxy, Nx0, Nx0Kept, Nx1, Nx1Kept, Nx2, Nx3, Shared, Twins};
use Tier::{App, AppB, Cache, Db, Web};

const CELLS: &[Cell] = &[
    // Threads everywhere: whatever stands, the front overflows.
    Cell::cpu("nx0-app-cpu", Nx0, App, 650).drops(UpstreamCtqo, Web),
    Cell::pause("nx0-app-pause", Nx0, App, 700).drops(UpstreamCtqo, Web),
    Cell::squeeze("nx0-app-squeeze", Nx0, App, 0.1, 700).drops(UpstreamCtqo, Web),
    Cell::app_lock("nx0-app-lock", Nx0, 700).drops(UpstreamCtqo, Web),
    Cell::cpu("nx0-db-cpu", Nx0, Db, 800).drops(UpstreamCtqo, Web),
    Cell::io("nx0-db-io", Nx0, 18).drops(UpstreamCtqo, Web),
    Cell::pause("nx0-db-pause", Nx0, Db, 700).drops(UpstreamCtqo, Web),
    Cell::squeeze("nx0-db-squeeze", Nx0, Db, 0.1, 700).drops(UpstreamCtqo, Web),
    Cell::table_lock("nx0-db-lock", Nx0, 700).drops(UpstreamCtqo, Web),
    Cell::cpu("nx0-web-cpu", Nx0, Web, 850).drops(LocalOverflow, Web),
    Cell::pause("nx0-web-pause", Nx0, Web, 700).drops(LocalOverflow, Web),
    Cell::squeeze("nx0-web-squeeze", Nx0, Web, 0.1, 700).drops(LocalOverflow, Web),
    Cell::burst("nx0-web-burst", Nx0, 600).drops(LocalOverflow, Web),
    // Near the limit of the tiers what a moment of overflow leaves behind takes many seconds to be served, and is dropped again meanwhile.
    Cell::retries("nx0-app-retries", Nx0, App, 0.84, 9000).drops(UpstreamCtqo, Web),
    // nginx takes everything: the application overflows, for itself or for the database behind it.
    Cell::cpu("nx1-app-cpu", Nx1, App, 850).drops(DownstreamCtqo, App),
    Cell::pause("nx1-app-pause", Nx1, App, 700).drops(DownstreamCtqo, App),
    Cell::squeeze("nx1-app-squeeze", Nx1, App, 0.1, 700).drops(DownstreamCtqo, App),
    Cell::app_lock("nx1-app-lock", Nx1, 700).drops(DownstreamCtqo, App),
    Cell::cpu("nx1-db-cpu", Nx1, Db, 800).drops(UpstreamCtqo, App),
    Cell::io("nx1-db-io", Nx1, 18).drops(UpstreamCtqo, App),
    Cell::pause("nx1-db-pause", Nx1, Db, 700).drops(UpstreamCtqo, App),
    Cell::squeeze("nx1-db-squeeze", Nx1, Db, 0.1, 700).drops(UpstreamCtqo, App),
    Cell::table_lock("nx1-db-lock", Nx1, 700).drops(UpstreamCtqo, App),
    Cell::burst("nx1-web-burst", Nx1, 600).drops(DownstreamCtqo, App),
    // The application keeps asking: the database overflows, from what arrives while it stands or from what the application has
    // stored while that stood.
    Cell::cpu("nx2-app-cpu", Nx2, App, 700).drops(DownstreamCtqo, Db).batch(App),
    Cell::pause("nx2-app-pause", Nx2, App, 650).drops(DownstreamCtqo, Db).batch(App),
    Cell::squeeze("nx2-app-squeeze", Nx2, App, 0.02, 700).drops(DownstreamCtqo, Db).batch(App),
    Cell::app_lock("nx2-app-lock", Nx2, 600).drops(DownstreamCtqo, Db).batch(App),
    Cell::block_loop("nx2-app-loop", Nx2, 650).drops(DownstreamCtqo, Db).batch(App),
    Cell::cpu("nx2-db-cpu", Nx2, Db, 600).drops(DownstreamCtqo, Db),
    Cell::pause("nx2-db-pause", Nx2, Db, 600).drops(DownstreamCtqo, Db),
    Cell::squeeze("nx2-db-squeeze", Nx2, Db, 0.1, 700).drops(DownstreamCtqo, Db),
    Cell::io("nx2-db-io", Nx2, 18),
    Cell::table_lock("nx2-db-lock", Nx2, 500),
    Cell::burst("nx2-web-burst", Nx2, 300).drops(DownstreamCtqo, Db),
    // Room for everything everywhere: nobody drops.
    Cell::cpu("nx3-app-cpu", Nx3, App, 500),
    Cell::pause("nx3-app-pause", Nx3, App, 500),
    Cell::squeeze("nx3-app-squeeze", Nx3, App, 0.02, 500),
    Cell::app_lock("nx3-app-lock", Nx3, 500),
    Cell::block_loop("nx3-app-loop", Nx3, 500),
    Cell::cpu("nx3-db-cpu", Nx3, Db, 500),
    Cell::io("nx3-db-io", Nx3, 18),
    Cell::pause("nx3-db-pause", Nx3, Db, 500),
    Cell::squeeze("nx3-db-squeeze", Nx3, Db, 0.1, 500),
    Cell::table_lock("nx3-db-lock", Nx3, 500),
    Cell::burst("nx3-web-burst", Nx3, 600),
    // The same with connections that are kept.
    Cell::cpu("nx0kept-app-cpu", Nx0Kept, App, 850).drops(UpstreamCtqo, Web),
    Cell::io("nx0kept-db-io", Nx0Kept, 18).drops(UpstreamCtqo, Web),
    Cell::pause("nx0kept-app-pause", Nx0Kept, App, 700).drops(UpstreamCtqo, Web),
    Cell::cpu("nx1kept-app-cpu", Nx1Kept, App, 850).drops(DownstreamCtqo, App),
    Cell::pause("nx1kept-app-pause", Nx1Kept, App, 700).drops(DownstreamCtqo, App),
    Cell::table_lock("nx1kept-db-lock", Nx1Kept, 700).drops(UpstreamCtqo, App),
    // Other software, four tiers; a flush of 32 MiB takes 1.3 s of the disk, because fewer requests wait for it.
    Cell::cpu("haproxy-app-cpu", Haproxy, App, 900).drops(DownstreamCtqo, App),
    Cell::pause("haproxy-app-pause", Haproxy, App, 800).drops(DownstreamCtqo, App),
    Cell::squeeze("haproxy-app-squeeze", Haproxy, App, 0.1, 900).drops(DownstreamCtqo, App),
    Cell::cpu("haproxy-db-cpu", Haproxy, Db, 900).drops(UpstreamCtqo, App),
    Cell::io("haproxy-db-io", Haproxy, 32).drops(UpstreamCtqo, App),
    Cell::pause("haproxy-db-pause", Haproxy, Db, 800).drops(UpstreamCtqo, App),
    Cell::squeeze("haproxy-db-squeeze", Haproxy, Db, 0.01, 900).drops(UpstreamCtqo, App),
    Cell::table_lock("haproxy-db-lock", Haproxy, 800).drops(UpstreamCtqo, App),
    Cell::cpu("haproxy-cache-cpu", Haproxy, Cache, 900).drops(UpstreamCtqo, App),
    Cell::pause("haproxy-cache-pause", Haproxy, Cache, 800).drops(UpstreamCtqo, App),
    Cell::burst("haproxy-web-burst", Haproxy, 300).drops(DownstreamCtqo, App),
    // One of two application servers is sick; the front's workers are soon all waiting for it.
    Cell::cpu("twins-appb-cpu", Twins, AppB, 1000).drops(UpstreamCtqo, Web),
    Cell::pause("twins-appb-pause", Twins, AppB, 800).drops(UpstreamCtqo, Web),
    Cell::squeeze("twins-appb-squeeze", Twins, AppB, 0.03, 800).drops(UpstreamCtqo, Web),
    Cell::pause("twins-app-pause", Twins, App, 800).drops(UpstreamCtqo, Web),
    Cell::io("twins-db-io", Twins, 22).drops(UpstreamCtqo, Web),
    // The neighbour that takes the CPU is itself a server with clients.
    Cell::guest("shared-app-cpu", Shared, 120).drops(UpstreamCtqo, Web),
    Cell::pause("shared-app-pause", Shared, App, 700).drops(UpstreamCtqo, Web),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_cell_is_what_its_name_says_and_is_found_by_it() {
        let mut names = BTreeSet::new();
        for cell in cells() {
            let wanted = format!("{}-{}-{}", cell.stack, cell.tier.name(), cell.cause.name());
            assert_eq!(cell.name, wanted);
            assert!(names.insert(cell.name), "{wanted} is there twice");
            assert_eq!(find(cell.name), Some(cell));
            assert_eq!(cell.injection.tier(), cell.tier, "{wanted}");
            assert!(cell.stack.tiers().contains(&cell.tier), "{wanted}");
            let silent = cell.expected.class == Class::Millibottleneck;
            assert_eq!(cell.expected.drops.is_none(), silent, "{wanted}");
        }
        assert_eq!(find("app-cpu"), find("nx0-app-cpu"));
        assert!(find("nx0-app-nothing").is_none());
    }
}

//! The matrix as one table: each cell is a stack, a millibottleneck in one of its tiers, and what the literature and the
//! mechanics of the servers say must come of it. Scoring, demo and tests take cells from here and from nowhere else.

use crate::lab::{Injection, Stack, Tier};

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
    /// More requests at once than fit.
    Burst,
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
            Cause::Burst => "burst",
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
            Cause::Burst => "many requests arrive at once",
        }
    }

    /// What an incident's `root.resource` must be.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Cause::Cpu => "cpu_neighbour",
            Cause::Io => "io",
            Cause::Pause => "pause",
            Cause::Squeeze => "cpu_throttled",
            Cause::Lock => "lock",
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
        let expected =
            Expected { class: Class::Millibottleneck, root: tier, culprit: None, drops: None, batch: None };
        Cell { name, stack, tier, cause, injection, expected }
    }

    /// A neighbour in the tier's cgroup, with sixty times an ordinary cgroup's share: one process with dozens of runnable threads
    /// against two that spin, which stand for as many spinning neighbours.
    const fn cpu(name: &'static str, stack: Stack, tier: Tier, duration_ms: u64) -> Self {
        let injection = Injection::CpuBurn { tier, threads: 2, weight: 60.0, duration_ms };
        Self::new(name, stack, tier, Cause::Cpu, injection).culprit("burner")
    }

    /// One flush of so many MiB.
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

    const fn burst(name: &'static str, stack: Stack, requests: u32) -> Self {
        Self::new(name, stack, Tier::Web, Cause::Burst, Injection::Burst { requests })
    }

    const fn culprit(mut self, comm: &'static str) -> Self {
        self.expected.culprit = Some(comm);
        self
    }

    const fn drops(mut self, class: Class, at: Tier) -> Self {
        self.expected.class = class;
        self.expected.drops = Some(at);
        self
    }
}

use Class::{DownstreamCtqo, LocalOverflow, UpstreamCtqo};
use Stack::{Nx0, Nx1};
use Tier::{App, Db, Web};

const CELLS: &[Cell] = &[
    // Threads everywhere: whatever stands, the front overflows.
    Cell::cpu("nx0-app-cpu", Nx0, App, 850).drops(UpstreamCtqo, Web),
    Cell::pause("nx0-app-pause", Nx0, App, 700).drops(UpstreamCtqo, Web),
    Cell::squeeze("nx0-app-squeeze", Nx0, App, 0.1, 700).drops(UpstreamCtqo, Web),
    Cell::cpu("nx0-db-cpu", Nx0, Db, 800).drops(UpstreamCtqo, Web),
    // 0.7 to 0.85 s of the disk.
    Cell::io("nx0-db-io", Nx0, 18).drops(UpstreamCtqo, Web),
    Cell::pause("nx0-db-pause", Nx0, Db, 700).drops(UpstreamCtqo, Web),
    Cell::squeeze("nx0-db-squeeze", Nx0, Db, 0.1, 700).drops(UpstreamCtqo, Web),
    Cell::table_lock("nx0-db-lock", Nx0, 700).drops(UpstreamCtqo, Web),
    Cell::cpu("nx0-web-cpu", Nx0, Web, 850).drops(LocalOverflow, Web),
    Cell::pause("nx0-web-pause", Nx0, Web, 700).drops(LocalOverflow, Web),
    Cell::squeeze("nx0-web-squeeze", Nx0, Web, 0.1, 700).drops(LocalOverflow, Web),
    Cell::burst("nx0-web-burst", Nx0, 600).drops(LocalOverflow, Web),
    // nginx takes everything: the application overflows, for itself or for the database behind it.
    Cell::cpu("nx1-app-cpu", Nx1, App, 850).drops(DownstreamCtqo, App),
    Cell::pause("nx1-app-pause", Nx1, App, 700).drops(DownstreamCtqo, App),
    Cell::squeeze("nx1-app-squeeze", Nx1, App, 0.1, 700).drops(DownstreamCtqo, App),
    Cell::cpu("nx1-db-cpu", Nx1, Db, 800).drops(UpstreamCtqo, App),
    Cell::io("nx1-db-io", Nx1, 18).drops(UpstreamCtqo, App),
    Cell::pause("nx1-db-pause", Nx1, Db, 700).drops(UpstreamCtqo, App),
    Cell::squeeze("nx1-db-squeeze", Nx1, Db, 0.1, 700).drops(UpstreamCtqo, App),
    Cell::table_lock("nx1-db-lock", Nx1, 700).drops(UpstreamCtqo, App),
    Cell::burst("nx1-web-burst", Nx1, 600).drops(DownstreamCtqo, App),
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

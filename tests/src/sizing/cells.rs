//! The one table of sizing cells: a lab, the pool in it that is swept, what the advice is learnt from, and whether it can be answered at
//! all, written down before anything is measured. Plain values; runs nothing.

use crate::lab::{Databases, Heap, LabConfig, Limits, scenario};
use crate::stack::{Stack, Tier};

/// Pools that are tried, besides the cell's default.
pub const GRID: [u32; 8] = [2, 4, 8, 16, 32, 64, 128, SHIPPED_POOL];
/// The same of Apache's workers.
const FRONT_GRID: [u32; 6] = [32, 64, 128, 256, 384, FRONT_MOST];
const FRONT_MOST: u32 = 512;
/// `MaxRequestWorkers` of Apache as Debian ships it.
const SHIPPED_WORKERS: u32 = 150;
/// For how long a client that is slow to close keeps its connection after the answer, ms.
const CLOSES_AFTER_MS: u64 = 200;
/// `maxThreads` of Tomcat as shipped.
const SHIPPED_POOL: u32 = 200;
/// Loads that each is tried under, of the capacity.
pub const LOADS: [f64; 2] = [1.0, 1.3];

/// Tomcat's threads in the laboratory, as it is tuned: ten more than Apache before it has workers.
const DEMO_POOL: u32 = 160;

/// Requests that the front holds at a time: its workers and its queue. At the capacity of these cells it is less than half a second of
/// arrivals, so that who is let in under overload can still be answered in time, and goodput is not zero whatever the pool.
const FRONT: Limits = Limits { cores: 0.8, workers: 220, backlog: 64, pool: 220 };
/// More than the front ever has open.
const CONNECTIONS: u32 = 1_000;
/// Each start is warmed up with so many requests: the servlet compiled, the pools open. Java's second compiler takes 10,000 calls of a method;
/// after 3,000 requests it was still at work in the measured seconds, and two starts of the same pool differed by a tenth.
const WARM_UP_REQUESTS: u32 = 10_000;

/// A cell.
#[derive(Debug)]
pub struct Cell {
    /// Name.
    pub name: &'static str,
    /// In half a sentence.
    pub about: &'static str,
    /// Whether what is learnt from suffices for more than a lower bound.
    pub answerable: bool,
    /// Servers.
    pub stack: Stack,
    /// The tier that runs out of CPU.
    pub critical: Tier,
    /// The tier whose pool it is: the advice that is judged is the one for its listener.
    pub advised: Tier,
    /// Pools that are tried, besides the default.
    pub grid: &'static [u32],
    /// The pool that the capacity is measured with, where the default is less than the critical tier needs.
    pub capacity_pool: Option<u32>,
    /// For how long clients keep their connections after the answer, ms.
    pub close_after_ms: u64,
    /// How many servers share what is advised: connections to a database are advised in total and set for each application.
    pub shared_by: u32,
    /// The pool that the advice is learnt under, in each server.
    pub default_pool: u32,
    /// Loads that the advice is learnt from, of the capacity, each for as long as the others.
    pub learnt_from: &'static [f64],
    /// The cell whose servers and default pool these are: where it was swept, its capacity and its sweep are this one's too. Only what is learnt
    /// differs.
    pub swept_as: Option<&'static str>,
    /// Share of requests that wait for the disk.
    pub comment_ratio: f64,
    /// Limits of the lab apart from the pool.
    limits: fn(LabConfig) -> LabConfig,
    /// Sets the pool.
    set: fn(&mut LabConfig, u32),
}

/// Low, medium and saturating.
const RAMP: &[f64] = &[0.2, 0.5, 0.8, 1.0, 1.3];
/// Never more than a third.
const LIGHT: &[f64] = &[0.1, 0.2, 0.3];

const TOMCAT_CRITICAL: Cell = Cell {
    name: "tomcat-critical",
    about: "Tomcat has half a CPU; the pool is its maxThreads",
    answerable: true,
    stack: Stack::Nx0,
    critical: Tier::App,
    advised: Tier::App,
    grid: &GRID,
    capacity_pool: None,
    close_after_ms: 0,
    shared_by: 1,
    default_pool: SHIPPED_POOL,
    learnt_from: RAMP,
    swept_as: None,
    comment_ratio: 0.1,
    limits: tomcat_critical,
    set: max_threads,
};

const DB_CRITICAL: Cell = Cell {
    name: "db-critical",
    about: "MariaDB has a quarter of a CPU; the pool is the connections to it",
    critical: Tier::Db,
    advised: Tier::Db,
    limits: db_critical,
    set: connections,
    ..TOMCAT_CRITICAL
};

/// The cells, in the order in which they are run.
pub const CELLS: &[Cell] = &[
    TOMCAT_CRITICAL,
    Cell {
        name: "unsaturated",
        about: "as tomcat-critical, but no more than light load is ever seen: only a lower bound may be told",
        answerable: false,
        learnt_from: LIGHT,
        swept_as: Some(TOMCAT_CRITICAL.name),
        ..TOMCAT_CRITICAL
    },
    Cell {
        name: "small-heap",
        about: "as tomcat-critical in a heap of 96 MB, of which each request keeps 256 kB until it is answered; the pool is its maxThreads",
        limits: small_heap,
        ..TOMCAT_CRITICAL
    },
    DB_CRITICAL,
    Cell {
        name: "twins-db-critical",
        about: "as db-critical with two Tomcats: each may have half of the connections",
        stack: Stack::Twins,
        shared_by: 2,
        ..DB_CRITICAL
    },
    Cell {
        name: "two-databases",
        about: "as twins-db-critical, but each Tomcat has a database of its own, with an eighth of a CPU and a cgroup; the pool is the connections to each",
        stack: Stack::Databases,
        ..DB_CRITICAL
    },
    Cell {
        name: "two-databases-in-one",
        about: "as two-databases, but both in one cgroup, with a quarter of a CPU: which of them used the CPU is not told, so no size may be",
        answerable: false,
        stack: Stack::Databases,
        limits: databases_in_one,
        ..DB_CRITICAL
    },
    Cell {
        name: "slow-clients",
        about: "as tomcat-critical with a quarter of a CPU, but clients close a fifth of a second after the answer, and a connection holds a thread of Apache's mpm_worker until then; the pool is MaxRequestWorkers",
        advised: Tier::Web,
        grid: &FRONT_GRID,
        default_pool: SHIPPED_WORKERS,
        capacity_pool: Some(FRONT_MOST),
        close_after_ms: CLOSES_AFTER_MS,
        limits: slow_clients,
        set: request_workers,
        ..TOMCAT_CRITICAL
    },
    Cell {
        name: "demo",
        about: "the demo's system as it is, Tomcat with 0.6 of a CPU; the pool is its maxThreads",
        default_pool: DEMO_POOL,
        limits: demo,
        ..TOMCAT_CRITICAL
    },
];

fn tomcat_critical(lab: LabConfig) -> LabConfig {
    LabConfig {
        app: Limits { cores: 0.5, workers: SHIPPED_POOL, backlog: 512, pool: SHIPPED_POOL },
        db: Limits { cores: 0.9, workers: 500, backlog: 512, pool: 0 },
        ..lab
    }
}

fn small_heap(lab: LabConfig) -> LabConfig {
    LabConfig { app_heap: Heap { heap_mb: 96, young_mb: 24, kept_kb: 256 }, ..tomcat_critical(lab) }
}

fn slow_clients(lab: LabConfig) -> LabConfig {
    // A default that is far too small would be an overload of connections from the middle of the ramp on, and the rest of it would tell nothing.
    let lab = LabConfig { web_thread_per_connection: true, ..tomcat_critical(lab) };
    LabConfig { app: Limits { cores: 0.25, ..lab.app }, ..lab }
}

fn demo(lab: LabConfig) -> LabConfig {
    LabConfig { web: scenario::lab(Stack::Nx0).web, ..lab }
}

fn db_critical(lab: LabConfig) -> LabConfig {
    LabConfig {
        app: Limits { cores: 0.8, workers: SHIPPED_POOL + 50, backlog: 512, pool: SHIPPED_POOL },
        db: Limits { cores: 0.25, workers: 500, backlog: 512, pool: 0 },
        ..lab
    }
}

fn databases_in_one(lab: LabConfig) -> LabConfig {
    LabConfig { databases: Databases::OneCgroup, ..db_critical(lab) }
}

fn max_threads(lab: &mut LabConfig, pool: u32) {
    lab.app.workers = pool;
}

fn request_workers(lab: &mut LabConfig, pool: u32) {
    lab.web.workers = pool;
}

fn connections(lab: &mut LabConfig, pool: u32) {
    lab.app.pool = pool;
}

/// The cell of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Cell> {
    CELLS.iter().find(|cell| cell.name == name)
}

impl Cell {
    /// Its lab with this pool. The machine is not asked what it bears: the limits are the experiment.
    #[must_use]
    pub fn lab(&self, pool: u32) -> LabConfig {
        let base = LabConfig {
            web: FRONT,
            app_connections: Some(CONNECTIONS),
            web_access_log: false,
            warm_up_requests: WARM_UP_REQUESTS,
            ..scenario::lab(self.stack)
        };
        let mut lab = (self.limits)(base);
        (self.set)(&mut lab, pool);
        lab
    }

    /// CPUs of what is behind the pool that is advised: two databases on one "VM" that have a cgroup each have half of its CPUs each.
    #[must_use]
    pub fn advised_cores(&self) -> f64 {
        let lab = self.lab(self.default_pool);
        let is_half = self.stack == Stack::Databases && lab.databases != Databases::OneCgroup;
        lab.limits(self.critical).cores / if is_half { 2.0 } else { 1.0 }
    }

    /// The pool of each server, of what is advised in total: rounded up, at least one. More than the front lets in is the same.
    #[must_use]
    pub fn each(&self, total: u32) -> u32 {
        let most = if self.advised == Tier::Web { FRONT_MOST } else { self.lab(1).web.workers };
        total.div_ceil(self.shared_by.max(1)).clamp(1, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_sweeps_what_it_says_and_nothing_else_ends_first() {
        for cell in CELLS {
            let (small, large) = (cell.lab(2), cell.lab(cell.default_pool));
            assert_ne!(
                (small.web.workers, small.app.workers, small.app.pool),
                (large.web.workers, large.app.workers, large.app.pool),
                "{}",
                cell.name
            );
            let applications = cell.stack.applications().len() as u32;
            let is_asking = |tier: &&Tier| cell.stack.database_of(**tier) == Tier::Db;
            let sharing = cell.stack.applications().iter().filter(is_asking).count();
            assert_eq!(cell.shared_by > 1, sharing > 1, "{}", cell.name);
            let tried = cell.grid.iter().copied().chain(cell.capacity_pool).map(|pool| cell.lab(pool));
            for lab in &tried.chain([small, large]).collect::<Vec<_>>() {
                assert!(lab.db.workers >= applications * lab.app.pool, "{}: max_connections", cell.name);
                assert!(lab.app_connections.unwrap() > lab.web.workers, "{}: maxConnections", cell.name);
                assert!(
                    cell.advised == Tier::Web || lab.web.workers + 10 >= cell.default_pool,
                    "{}: the front lets the default pool be used",
                    cell.name
                );
            }
            if let Some(other) = cell.swept_as.map(|name| find(name).expect("a cell of the table")) {
                let same = |of: &Cell| {
                    format!("{:?} {} {:?}", of.lab(of.default_pool), of.comment_ratio, of.critical)
                };
                assert_eq!(same(cell), same(other), "{}", cell.name);
            }
            assert!(cell.grid.is_sorted() && cell.capacity_pool.is_none_or(|pool| pool >= cell.default_pool));
            let saturates = cell.learnt_from.iter().any(|load| *load >= 1.0);
            assert!(!cell.answerable || saturates, "{}: what never saturates cannot be answered", cell.name);
        }
        let each = |name, total| find(name).unwrap().each(total);
        assert_eq!(
            (
                each("tomcat-critical", 26),
                each("twins-db-critical", 27),
                each("twins-db-critical", 1),
                each("tomcat-critical", 9000)
            ),
            (26, 14, 1, 220)
        );
    }
}

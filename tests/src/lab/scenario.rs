//! What the lab does by default: the limits of each stack and its rate. Every number that was found by trying is here, in the table
//! of cells, or with the plan of a load, with the reason; nothing here does anything.

use crate::lab::{Databases, Heap, LabConfig, Limits, Scale, cells};
use crate::load::RATE_PER_SECOND;
use crate::stack::Stack;

/// The default lab. With the default load, on two cores that also ran compilers, the tiers use about 48 / 57 / 55 % of these
/// quotas and nothing is dropped in 60 s (p99 about 20 ms): together less than one core; agents and a collector have the other one.
/// On a machine that bears less, all of it is made smaller together: [`LabConfig::scaled`].
/// The front tier holds 150 + 129 requests, 280 ms of arrivals: stalls of 600 to 850 ms overflow it with room to spare, the
/// catch-up after a quiet period's hiccups does not. The app tier has more workers and connections (160) than the front can
/// use, so it is always the front that overflows.
pub const LAB: LabConfig = LabConfig {
    stack: Stack::Nx0,
    quota_period_us: 10_000,
    web: Limits { cores: 0.5, workers: 150, backlog: 128, pool: 150 },
    app: Limits { cores: 0.6, workers: 160, backlog: 128, pool: 50 },
    app_b: None,
    db: Limits { cores: 0.6, workers: 200, backlog: 80, pool: 0 },
    cache: Limits { cores: 0.2, workers: 1000, backlog: 128, pool: 0 },
    guest: Limits { cores: 0.6, workers: 4, backlog: 128, pool: 0 },
    guest_weight: 60.0,
    web_defer_accept: true,
    web_thread_per_connection: false,
    databases: Databases::OwnQuotas,
    clients_keep_alive: false,
    app_connections: None,
    // Room for every request that it can have: collections take no time that anybody notices.
    app_heap: Heap { heap_mb: 192, young_mb: 96, kept_kb: 0 },
    disk_bytes_per_second: 20 << 20,
    web_access_log: true,
    db_general_log: false,
    warm_up_requests: 6_000,
    scale: Scale::TUNED,
};

impl Default for LabConfig {
    fn default() -> Self {
        LAB
    }
}

impl LabConfig {
    /// The tuned limits of a stack.
    #[must_use]
    pub fn of(stack: Stack) -> Self {
        lab(stack)
    }
}

/// Room for all requests of a long stall: the queue of an event-driven server.
const LITE_Q_DEPTH: u32 = 4096;

/// The limits of a stack.
#[must_use]
pub fn lab(stack: Stack) -> LabConfig {
    // Workers that cannot run out, an accept queue that cannot overflow, a connection to the next tier for each request.
    let event_driven = |cores| Limits { cores, workers: 8_000, backlog: LITE_Q_DEPTH, pool: 0 };
    match stack {
        Stack::Nx0 => LAB,
        Stack::Nx1 => LabConfig { stack, web: event_driven(0.5), ..LAB },
        // The application keeps more connections than an ordinary second needs; a stall makes it open hundreds, and the database's
        // accept queue holds 25 of them. Its threads are not what ends first: it may have one for each. The database has CPU to
        // spare for opening them, or else the retries of one overflow would be the next, for many seconds.
        Stack::Nx2 => LabConfig {
            stack,
            web: event_driven(0.5),
            app: Limits { pool: 100, ..event_driven(0.6) },
            db: Limits { cores: 0.7, workers: 2000, backlog: 24, pool: 0 },
            ..LAB
        },
        Stack::Nx3 => LabConfig {
            stack,
            web: event_driven(0.5),
            app: Limits { pool: 100, ..event_driven(0.6) },
            db: event_driven(0.7),
            ..LAB
        },
        Stack::Nx0Kept => LabConfig { stack, clients_keep_alive: true, ..LAB },
        Stack::Nx1Kept => LabConfig {
            stack,
            clients_keep_alive: true,
            web: Limits { pool: 32, ..event_driven(0.5) },
            ..LAB
        },
        // Python: a request costs more, so there are fewer. 16 workers and a queue of 65 hold a third of a second of arrivals.
        Stack::Haproxy => LabConfig {
            stack,
            web: event_driven(0.3),
            app: Limits { cores: 0.5, workers: 16, backlog: 64, pool: 1 },
            db: Limits { cores: 0.3, workers: 50, backlog: 80, pool: 0 },
            warm_up_requests: 1_000,
            ..LAB
        },
        // Half the requests for each of the two; the front's workers are soon all with the sick one.
        Stack::Twins | Stack::Databases => LabConfig { stack, app: Limits { cores: 0.35, ..LAB.app }, ..LAB },
        Stack::Shared => LabConfig { stack, ..LAB },
    }
}

/// Requests a second that a stack serves at a comfortable utilisation.
#[must_use]
pub fn rate_per_second(stack: Stack) -> f64 {
    match stack {
        Stack::Nx0
        | Stack::Nx1
        | Stack::Nx0Kept
        | Stack::Nx1Kept
        | Stack::Twins
        | Stack::Shared
        | Stack::Databases => RATE_PER_SECOND,
        // So that the retries of one overflow are not the next: opening a connection costs the database more than a query.
        Stack::Nx2 => 500.0,
        Stack::Nx3 => 800.0,
        Stack::Haproxy => 250.0,
    }
}

/// The cells that the lab's own test runs on the default stack: each cause once, and CPU in both tiers behind the front. Each made the
/// web tier's listener drop some 200 to 700 packets in 10 of 10 runs, also while compilers kept both cores busy.
pub const SCENARIOS: [&str; 7] =
    ["app-cpu", "db-io", "app-pause", "db-lock", "web-burst", "app-squeeze", "db-cpu"];

/// A cell by name.
#[must_use]
pub fn find(name: &str) -> Option<&'static cells::Cell> {
    cells::find(name)
}

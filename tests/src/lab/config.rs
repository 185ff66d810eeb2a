//! What a lab looks like: its stack, limits and switches. Plain values, tuned for each stack by measurement; knows nothing of how
//! they are put in place.

use crate::lab::stack::{Stack, Tier};
use crate::scenario;
use std::net::Ipv4Addr;

/// Address of the load generator inside the lab's network.
pub const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 100);

/// Limits of one tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// CPU of its "VM", in cores.
    pub cores: f64,
    /// Requests it can have in service: worker threads or processes; for an event-driven server its connections, for a database
    /// its clients' connections.
    pub workers: u32,
    /// Its accept queue, also the namespace's `somaxconn`.
    pub backlog: u32,
    /// Connections to the next tier that it keeps open. A server of threads waits for one of these; an event-driven one opens
    /// more when it needs them (0: one for each request).
    pub pool: u32,
}

/// Limits and switches of one lab.
#[derive(Debug, Clone)]
pub struct LabConfig {
    /// Which software.
    pub stack: Stack,
    /// Period of the CPU quotas, µs.
    pub quota_period_us: u32,
    /// Limits of the front.
    pub web: Limits,
    /// Limits of the application tier: of each of its servers, where there are two.
    pub app: Limits,
    /// Limits of the database.
    pub db: Limits,
    /// Limits of a cache, in a stack that has one.
    pub cache: Limits,
    /// Limits of a guest, in a stack that has one; its CPU is its host's.
    pub guest: Limits,
    /// A guest's share of that CPU against the server it lives with, as a multiple of an ordinary cgroup's.
    pub guest_weight: f64,
    /// Apache asks for TCP_DEFER_ACCEPT, as it does by default: a connection enters the accept queue with its first data.
    pub web_defer_accept: bool,
    /// Clients use their connections again instead of a new one for each request.
    pub clients_keep_alive: bool,
    /// Speed of the disk under the database.
    pub disk_bytes_per_second: u64,
    /// The front writes an access log (to memory).
    pub web_access_log: bool,
    /// MariaDB writes its general log (to memory): one line for each statement.
    pub db_general_log: bool,
    /// Requests sent before the quotas are set, to load classes, compile them and open connections.
    pub warm_up_requests: u32,
}

impl Default for LabConfig {
    fn default() -> Self {
        scenario::LAB
    }
}

impl LabConfig {
    /// The tuned limits of a stack.
    #[must_use]
    pub fn of(stack: Stack) -> Self {
        scenario::lab(stack)
    }

    /// Limits of a tier.
    #[must_use]
    pub fn limits(&self, tier: Tier) -> &Limits {
        match tier {
            Tier::Web => &self.web,
            Tier::App | Tier::AppB => &self.app,
            Tier::Db => &self.db,
            Tier::Cache => &self.cache,
            Tier::Guest => &self.guest,
        }
    }
}

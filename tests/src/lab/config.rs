//! What a lab looks like: its stack, limits and switches. Plain values, tuned for each stack by measurement; knows nothing of how
//! they are put in place.

use crate::stack::{Stack, Tier};
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

/// How two databases on one "VM" share its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Databases {
    /// In one cgroup: by runnable thread.
    OneCgroup,
    /// A cgroup for each, with half of the CPU as a quota of its own.
    OwnQuotas,
    /// A cgroup for each, with equal weights and no quota of its own.
    OwnWeights,
}

/// Memory of an application's JVM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heap {
    /// The heap, MB.
    pub heap_mb: u32,
    /// Its young generation, MB.
    pub young_mb: u32,
    /// What each request keeps until it is answered, kB, in objects of 64 bytes: with many requests in service the collector has much to
    /// copy, and finds little to free.
    pub kept_kb: u32,
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
    /// Limits of the second server of the application tier, if they are others.
    pub app_b: Option<Limits>,
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
    /// How two databases on one "VM" share its CPU.
    pub databases: Databases,
    /// Apache serves with mpm_worker: a connection holds its thread until it is closed. Else with mpm_event.
    pub web_thread_per_connection: bool,
    /// Clients use their connections again instead of a new one for each request.
    pub clients_keep_alive: bool,
    /// Connections that Tomcat holds at a time; none: as many as it has workers. Where there are fewer workers than the front keeps
    /// connections open, one that nobody uses would keep out one that somebody waits on.
    pub app_connections: Option<u32>,
    /// Memory of Tomcat.
    pub app_heap: Heap,
    /// Speed of the disk under the database.
    pub disk_bytes_per_second: u64,
    /// The front writes an access log (to memory).
    pub web_access_log: bool,
    /// MariaDB writes its general log (to memory): one line for each statement.
    pub db_general_log: bool,
    /// Requests sent before the quotas are set, to load classes, compile them and open connections.
    pub warm_up_requests: u32,
    /// What it is of the tuned lab: 1, or less on a machine that bears less.
    pub scale: Scale,
}

/// What a lab on a smaller machine is of the tuned one. It has as much less of everything that is counted (requests a second, workers,
/// connections, places in queues, requests of a burst) as of requests that it can serve, so that the same injection fills the same
/// queue in the same time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Of requests, and of all that holds them.
    pub requests: f64,
    /// Of the quotas. Where the CPUs are as fast as ever but not to be had, quotas as large would leave a tier idle that is to be busy.
    pub cores: f64,
}

impl Scale {
    /// The tuned lab.
    pub const TUNED: Self = Self { requests: 1.0, cores: 1.0 };

    /// A count of the tuned lab in this one: at least one of what there is at all.
    #[must_use]
    pub fn count(self, tuned: u32) -> u32 {
        ((f64::from(tuned) * self.requests).round() as u32).max(u32::from(tuned > 0))
    }
}

impl LabConfig {
    /// As on a machine whose CPUs are so many times slower: less CPU for everybody, and nothing that knows of it.
    #[must_use]
    pub fn slower(mut self, times: f64) -> Self {
        let own = [&mut self.web, &mut self.app, &mut self.db, &mut self.cache, &mut self.guest];
        for limits in own.into_iter().chain(&mut self.app_b) {
            limits.cores /= times;
        }
        self
    }

    /// This tuned lab, made smaller. What does not hold waiting requests stays: how many clients a database lets in, how many
    /// processes of a guest run side by side, the cache.
    #[must_use]
    pub fn scaled(&self, scale: Scale) -> Self {
        let cores = |limits: Limits| Limits { cores: limits.cores * scale.cores, ..limits };
        let holding = |limits: Limits| Limits {
            workers: scale.count(limits.workers),
            backlog: scale.count(limits.backlog),
            pool: scale.count(limits.pool),
            ..cores(limits)
        };
        Self {
            web: holding(self.web),
            app: holding(self.app),
            app_b: self.app_b.map(holding),
            db: Limits { backlog: scale.count(self.db.backlog), ..cores(self.db) },
            cache: cores(self.cache),
            guest: cores(self.guest),
            warm_up_requests: scale.count(self.warm_up_requests),
            scale,
            ..self.clone()
        }
    }

    /// Limits of a tier.
    #[must_use]
    pub fn limits(&self, tier: Tier) -> &Limits {
        match tier {
            Tier::Web => &self.web,
            Tier::App => &self.app,
            Tier::AppB => self.app_b.as_ref().unwrap_or(&self.app),
            Tier::Db | Tier::DbB => &self.db,
            Tier::Cache => &self.cache,
            Tier::Guest => &self.guest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_lab_holds_arrivals_of_the_same_time() {
        for stack in Stack::ALL {
            let tuned = LabConfig::of(stack);
            assert_eq!(tuned.scaled(Scale::TUNED).web, tuned.web);
            let third = tuned.scaled(Scale { requests: 1.0 / 3.0, cores: 0.5 });
            for (small, large) in [(third.web, tuned.web), (third.app, tuned.app)] {
                // In units of the tuned rate; rounding makes a difference of one at most.
                let held = |limits: Limits| f64::from(limits.workers + limits.backlog);
                assert!((held(small) * 3.0 - held(large)).abs() <= 6.0, "{stack}: {small:?} of {large:?}");
                assert_eq!(small.cores, large.cores / 2.0);
                assert_eq!(small.pool == 0, large.pool == 0, "0 stands for something else than few");
            }
            // It is the same tier that overflows: the application still has more room than the front can use.
            assert_eq!(third.web.workers > third.app.workers, tuned.web.workers > tuned.app.workers);
            assert_eq!(third.db.workers, tuned.db.workers);
            assert_eq!(third.scale.count(600), 200);
            assert_eq!(third.scale.count(1), 1);
        }
    }
}

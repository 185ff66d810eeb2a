//! What a lab looks like: its tiers, limits and addresses. Plain values with defaults that were tuned by measurement; knows
//! nothing of how they are put in place.

use crate::scenario;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The three servers. The order is the way of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Apache httpd, the reverse proxy.
    Web,
    /// Tomcat with a servlet over a JDBC pool.
    App,
    /// MariaDB.
    Db,
}

impl Tier {
    /// All tiers, front to back.
    pub const ALL: [Tier; 3] = [Tier::Web, Tier::App, Tier::Db];

    /// Short name: part of cgroup paths, namespace names and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tier::Web => "web",
            Tier::App => "app",
            Tier::Db => "db",
        }
    }

    /// Name of the sub-cgroup that the server itself runs in.
    #[must_use]
    pub fn server(self) -> &'static str {
        match self {
            Tier::Web => "apache2",
            Tier::App => "tomcat",
            Tier::Db => "mariadb",
        }
    }

    /// Where the server listens, inside the lab's own network.
    #[must_use]
    pub fn listener(self) -> SocketAddrV4 {
        let (host, port) = match self {
            Tier::Web => (2, 80),
            Tier::App => (3, 8080),
            Tier::Db => (4, 3306),
        };
        SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, host), port)
    }
}

/// Address of the load generator inside the lab's network.
pub const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 100);

/// Limits and switches of one lab.
#[derive(Debug, Clone)]
pub struct LabConfig {
    /// Period of the CPU quotas, µs.
    pub quota_period_us: u32,
    /// CPU of the web tier, in cores.
    pub web_quota_cores: f64,
    /// CPU of the app tier, in cores.
    pub app_quota_cores: f64,
    /// CPU of the db tier, in cores.
    pub db_quota_cores: f64,
    /// Apache's workers.
    pub web_threads: u32,
    /// Apache's accept queue, also the namespace's `somaxconn`.
    pub web_backlog: u32,
    /// Apache asks for TCP_DEFER_ACCEPT, as it does by default: a connection enters the accept queue with its first data.
    pub web_defer_accept: bool,
    /// Tomcat's workers and connections.
    pub app_threads: u32,
    /// Tomcat's accept queue, also the namespace's `somaxconn`.
    pub app_backlog: u32,
    /// Connections from Tomcat to MariaDB.
    pub jdbc_pool: u32,
    /// MariaDB's accept queue, also the namespace's `somaxconn`.
    pub db_backlog: u32,
    /// Speed of the disk under MariaDB.
    pub disk_bytes_per_second: u64,
    /// Apache writes an access log (to memory).
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
    /// CPU of a tier, in cores.
    #[must_use]
    pub fn quota_cores(&self, tier: Tier) -> f64 {
        match tier {
            Tier::Web => self.web_quota_cores,
            Tier::App => self.app_quota_cores,
            Tier::Db => self.db_quota_cores,
        }
    }

    /// Limit of a tier's accept queue.
    #[must_use]
    pub fn backlog(&self, tier: Tier) -> u32 {
        match tier {
            Tier::Web => self.web_backlog,
            Tier::App => self.app_backlog,
            Tier::Db => self.db_backlog,
        }
    }
}

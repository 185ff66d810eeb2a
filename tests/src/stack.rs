//! Which software a lab runs: its stacks, their tiers, and who listens where. Plain descriptions; knows nothing of limits, of how a
//! server is configured, or of what is done to it.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

/// A place for a server. Every stack has the first three, in the way of a request; the others belong to some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// The front: takes the clients' requests and passes them on.
    Web,
    /// The application.
    App,
    /// The database.
    Db,
    /// A second server of the application tier, on a "VM" of its own.
    AppB,
    /// A cache beside the database.
    Cache,
    /// Another application, on the application server's "VM".
    Guest,
    /// The database of the application tier's second server, on the first one's "VM".
    DbB,
}

impl Tier {
    /// The three that every stack has, front to back.
    pub const ALL: [Tier; 3] = [Tier::Web, Tier::App, Tier::Db];

    /// Short name: part of cgroup paths, namespace names, cells and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tier::Web => "web",
            Tier::App => "app",
            Tier::Db => "db",
            Tier::AppB => "appb",
            Tier::Cache => "cache",
            Tier::Guest => "guest",
            Tier::DbB => "dbb",
        }
    }

    /// The tier whose "VM" (namespace, address, cgroup with the quota, agent) it lives in: itself, unless it is a guest or the second database.
    #[must_use]
    pub fn home(self) -> Tier {
        match self {
            Tier::Guest => Tier::App,
            Tier::DbB => Tier::Db,
            own => own,
        }
    }

    /// Name of that "VM", as its agent reports it.
    #[must_use]
    pub fn host(self) -> &'static str {
        match self.home() {
            Tier::Web => "web-1",
            Tier::App | Tier::Guest => "app-1",
            Tier::Db | Tier::DbB => "db-1",
            Tier::AppB => "app-2",
            Tier::Cache => "cache-1",
        }
    }

    /// Address of that "VM" inside the lab's own network.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        let last = match self.home() {
            Tier::Web => 2,
            Tier::App | Tier::Guest => 3,
            Tier::Db | Tier::DbB => 4,
            Tier::AppB => 5,
            Tier::Cache => 6,
        };
        Ipv4Addr::new(10, 77, 0, last)
    }
}

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Software {
    /// Apache httpd as a reverse proxy: one worker thread for each request.
    Apache,
    /// nginx as a reverse proxy: event-driven.
    Nginx,
    /// HAProxy: event-driven.
    Haproxy,
    /// Tomcat with a servlet over a JDBC pool: one worker thread for each request.
    Tomcat,
    /// The lab's own application server: hyper on one thread, an asynchronous database driver, a connection for each request.
    AsyncApp,
    /// gunicorn with its synchronous workers: one process for each request.
    Gunicorn,
    /// gunicorn with an application that has nothing to do with the others and needs CPU.
    Reports,
    /// MariaDB, one thread for each connection.
    MariaDb,
    /// MariaDB with its pool of threads: connections that ask nothing cost none.
    MariaDbPool,
    /// PostgreSQL: one process for each connection.
    Postgres,
    /// Redis: event-driven.
    Redis,
}

impl Software {
    /// Name of the sub-cgroup that the server runs in, which is the name of its workload.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Software::Apache => "apache2",
            Software::Nginx => "nginx",
            Software::Tomcat => "tomcat",
            Software::AsyncApp => "asyncapp",
            Software::Haproxy => "haproxy",
            Software::Gunicorn => "gunicorn",
            Software::Reports => "reports",
            Software::MariaDb | Software::MariaDbPool => "mariadb",
            Software::Postgres => "postgres",
            Software::Redis => "redis",
        }
    }

    /// Command name of the processes that serve.
    #[must_use]
    pub fn comm(self) -> &'static str {
        match self {
            Software::Apache => "apache2",
            Software::Nginx => "nginx",
            Software::Tomcat => "java",
            Software::AsyncApp => "asyncapp",
            Software::Haproxy => "haproxy",
            Software::Gunicorn | Software::Reports => "gunicorn",
            Software::MariaDb | Software::MariaDbPool => "mariadbd",
            Software::Postgres => "postgres",
            Software::Redis => "redis-server",
        }
    }

    /// Whether a request needs no worker of its own while it waits.
    #[must_use]
    pub fn is_event_driven(self) -> bool {
        matches!(
            self,
            Software::Nginx
                | Software::Haproxy
                | Software::AsyncApp
                | Software::MariaDbPool
                | Software::Redis
        )
    }
}

/// A whole set of servers. `NX` is the literature's number of event-driven ones, counted from the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stack {
    /// Apache → Tomcat → MariaDB.
    Nx0,
    /// nginx → Tomcat → MariaDB.
    Nx1,
    /// nginx → asynchronous application → MariaDB.
    Nx2,
    /// nginx → asynchronous application → MariaDB with its pool of threads.
    Nx3,
    /// `nx0`, whose clients keep their connections.
    Nx0Kept,
    /// `nx1`, whose clients keep their connections, and nginx some of those to Tomcat.
    Nx1Kept,
    /// HAProxy → gunicorn with synchronous workers → PostgreSQL and Redis.
    Haproxy,
    /// Apache as a balancer → two Tomcats → MariaDB.
    Twins,
    /// `nx0`, whose Tomcat shares its "VM" with another application's server.
    Shared,
    /// `twins`, of which each has a database of its own, on one "VM".
    Databases,
}

impl Stack {
    /// Every stack.
    pub const ALL: [Stack; 10] = [
        Stack::Nx0,
        Stack::Nx1,
        Stack::Nx2,
        Stack::Nx3,
        Stack::Nx0Kept,
        Stack::Nx1Kept,
        Stack::Haproxy,
        Stack::Twins,
        Stack::Shared,
        Stack::Databases,
    ];

    /// Name, as on the command line and at the beginning of a cell's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stack::Nx0 => "nx0",
            Stack::Nx1 => "nx1",
            Stack::Nx2 => "nx2",
            Stack::Nx3 => "nx3",
            Stack::Nx0Kept => "nx0kept",
            Stack::Nx1Kept => "nx1kept",
            Stack::Haproxy => "haproxy",
            Stack::Twins => "twins",
            Stack::Shared => "shared",
            Stack::Databases => "databases",
        }
    }

    /// Its tiers, front to back, then those beside the way.
    #[must_use]
    pub fn tiers(self) -> &'static [Tier] {
        use Tier::{App, AppB, Cache, Db, DbB, Guest, Web};
        match self {
            Stack::Nx0 | Stack::Nx1 | Stack::Nx2 | Stack::Nx3 | Stack::Nx0Kept | Stack::Nx1Kept => &Tier::ALL,
            Stack::Haproxy => &[Web, App, Db, Cache],
            Stack::Twins => &[Web, App, Db, AppB],
            Stack::Shared => &[Web, App, Db, Guest],
            Stack::Databases => &[Web, App, Db, AppB, DbB],
        }
    }

    /// The servers of the application tier.
    #[must_use]
    pub fn applications(self) -> &'static [Tier] {
        match self {
            Stack::Twins | Stack::Databases => &[Tier::App, Tier::AppB],
            _ => &[Tier::App],
        }
    }

    /// The database of one of these.
    #[must_use]
    pub fn database_of(self, application: Tier) -> Tier {
        if (self, application) == (Stack::Databases, Tier::AppB) { Tier::DbB } else { Tier::Db }
    }

    /// The tiers that are a "VM" of their own: one agent each, in this order.
    pub fn homes(self) -> impl Iterator<Item = Tier> {
        self.tiers().iter().copied().filter(|tier| tier.home() == *tier)
    }

    /// What runs in a tier.
    #[must_use]
    pub fn software(self, tier: Tier) -> Software {
        match (self, tier) {
            (Stack::Nx1 | Stack::Nx2 | Stack::Nx3 | Stack::Nx1Kept, Tier::Web) => Software::Nginx,
            (Stack::Haproxy, Tier::Web) => Software::Haproxy,
            (_, Tier::Web) => Software::Apache,
            (Stack::Nx2 | Stack::Nx3, Tier::App) => Software::AsyncApp,
            (Stack::Haproxy, Tier::App) => Software::Gunicorn,
            (_, Tier::App | Tier::AppB) => Software::Tomcat,
            (Stack::Nx3, Tier::Db) => Software::MariaDbPool,
            (Stack::Haproxy, Tier::Db) => Software::Postgres,
            (_, Tier::Db | Tier::DbB) => Software::MariaDb,
            (_, Tier::Cache) => Software::Redis,
            (_, Tier::Guest) => Software::Reports,
        }
    }

    /// Name of a tier's workload: the sub-cgroup that its server runs in.
    #[must_use]
    pub fn workload(self, tier: Tier) -> &'static str {
        self.software(tier).name()
    }

    /// Where a tier's server listens, inside the lab's own network.
    #[must_use]
    pub fn listener(self, tier: Tier) -> SocketAddrV4 {
        let port = match tier {
            Tier::Web => 80,
            Tier::App | Tier::AppB => 8080,
            Tier::Db if self == Stack::Haproxy => 5432,
            Tier::Db => 3306,
            Tier::DbB => 3307,
            Tier::Cache => 6379,
            Tier::Guest => 8090,
        };
        SocketAddrV4::new(tier.address(), port)
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Stack {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Stack::ALL.into_iter().find(|stack| stack.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Stack::ALL.iter().map(|stack| stack.name()).collect();
            format!("no stack {name}: there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_of_a_stack_differ_and_its_name_is_read_back() {
        for stack in Stack::ALL {
            assert_eq!(stack.name().parse(), Ok(stack));
            let mut listeners: Vec<_> = stack.tiers().iter().map(|tier| stack.listener(*tier)).collect();
            listeners.sort_unstable();
            listeners.dedup();
            assert_eq!(listeners.len(), stack.tiers().len(), "{stack}");
            assert!(stack.tiers().starts_with(&Tier::ALL), "{stack}");
        }
        assert!("nx9".parse::<Stack>().is_err());
    }
}

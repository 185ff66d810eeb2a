//! What one service of a graph is told: where it listens, how it works, whom it calls. The shape of the file that `graphnode` reads.

use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;

/// How a service has its requests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// A thread for each connection, as many as there are workers; further connections wait to be accepted.
    Threads,
    /// One thread that waits for events: it takes every connection.
    EventLoop,
    /// A goroutine for each connection, of which it takes every one, by the HTTP of Go's standard library.
    Goroutines,
    /// The event loop of Node, by its own HTTP.
    Node,
    /// nginx, which passes each request on to one service.
    Nginx,
    /// HAProxy, which does so, too.
    Haproxy,
    /// Apache, which does so with a worker for each connection; further connections wait to be accepted.
    Apache,
    /// Redis, of which one key is asked.
    Redis,
    /// Memcached, which has several event loops.
    Memcached,
    /// PostgreSQL, of which one row is asked: a process for each connection.
    Postgres,
    /// MariaDB, of which one row is asked: a thread for each connection.
    Mariadb,
    /// The configurable service in Python behind gunicorn, with a process for each worker; further connections wait to be accepted, and none is kept.
    Gunicorn,
    /// pgbouncer, through which PostgreSQL is asked: it takes every connection, and keeps a few to the database, which its callers' statements take
    /// turns on.
    Pgbouncer,
    /// The configurable service in PHP behind nginx, which takes every connection and passes each request on by a Unix socket, and php-fpm, which
    /// has a process for each worker; further requests wait to be accepted there.
    PhpFpm,
    /// The configurable service in Java as a servlet of Tomcat, with a thread for each request and as many connections as threads; further ones wait
    /// to be accepted.
    Tomcat,
}

impl Runtime {
    /// Name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Runtime::Threads => "threads",
            Runtime::EventLoop => "event loop",
            Runtime::Goroutines => "goroutines",
            Runtime::Node => "node",
            Runtime::Nginx => "nginx",
            Runtime::Haproxy => "haproxy",
            Runtime::Apache => "apache",
            Runtime::Redis => "redis",
            Runtime::Memcached => "memcached",
            Runtime::Postgres => "postgresql",
            Runtime::Mariadb => "mariadb",
            Runtime::Gunicorn => "gunicorn",
            Runtime::Pgbouncer => "pgbouncer",
            Runtime::PhpFpm => "php-fpm",
            Runtime::Tomcat => "tomcat",
        }
    }

    /// Whether a service that runs takes every connection at once.
    #[must_use]
    pub fn takes_all(self) -> bool {
        !matches!(self, Runtime::Threads | Runtime::Apache | Runtime::Gunicorn | Runtime::Tomcat)
    }

    /// Whether it opens as many connections as its calls need, however many it keeps; the others make no more calls at a time than they have
    /// workers, or connections that they keep.
    #[must_use]
    pub fn opens_all(self) -> bool {
        self.takes_all() && !matches!(self, Runtime::Pgbouncer | Runtime::PhpFpm)
    }

    /// What runs beside the server that listens, in a cgroup of its own, for its name.
    #[must_use]
    pub fn beside(self) -> Option<&'static str> {
        (self == Runtime::PhpFpm).then_some("php")
    }

    /// Whether a connection may be used again, which then takes a worker where it does not take all of them.
    #[must_use]
    pub fn keeps_connections(self) -> bool {
        self != Runtime::Gunicorn
    }

    /// Whether its part says what a request costs it; what one costs the others follows from what they are.
    #[must_use]
    pub fn does_work(self) -> bool {
        self.takes_orders() || matches!(self, Runtime::Gunicorn | Runtime::PhpFpm | Runtime::Tomcat)
    }

    /// Whether its requests may have names resolved, by the C library and on the threads that serve them.
    #[must_use]
    pub fn can_resolve(self) -> bool {
        self == Runtime::Threads
    }

    /// Whether it is a database, which has a process or a thread for each connection, and locks what all of its requests read.
    #[must_use]
    pub fn is_database(self) -> bool {
        matches!(self, Runtime::Postgres | Runtime::Mariadb)
    }

    /// Whether it passes each request on to one service, and does nothing else.
    #[must_use]
    pub fn is_proxy(self) -> bool {
        matches!(self, Runtime::Nginx | Runtime::Haproxy | Runtime::Apache | Runtime::Pgbouncer)
    }

    /// Whether it is the configurable service whose pools bound how many connections are open: who finds none free waits, and the pool can be exhausted.
    #[must_use]
    pub fn has_bounded_pools(self) -> bool {
        self == Runtime::Threads
    }

    /// Whether it is the configurable service, which takes orders, and not a server as others run it, too.
    #[must_use]
    pub fn takes_orders(self) -> bool {
        matches!(self, Runtime::Threads | Runtime::EventLoop | Runtime::Goroutines | Runtime::Node)
    }

    /// Whether one thread waits for all events, and can be made to sleep on it.
    #[must_use]
    pub fn can_be_blocked(self) -> bool {
        matches!(self, Runtime::EventLoop | Runtime::Node | Runtime::Redis)
    }

    /// Whether its calls may have a circuit breaker.
    #[must_use]
    pub fn can_break(self) -> bool {
        matches!(self, Runtime::Threads | Runtime::EventLoop)
    }

    /// Whether garbage is collected on the thread that serves.
    #[must_use]
    pub fn collects_garbage(self) -> bool {
        self == Runtime::Node
    }

    /// What it is asked in.
    #[must_use]
    pub fn protocol(self) -> Protocol {
        match self {
            Runtime::Redis => Protocol::Redis,
            Runtime::Memcached => Protocol::Memcached,
            Runtime::Postgres | Runtime::Pgbouncer => Protocol::Postgres,
            Runtime::Mariadb => Protocol::Mysql,
            _ => Protocol::Http,
        }
    }
}

/// How a service is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// RESP, one command at a time.
    Redis,
    /// Memcached's text, one command at a time.
    Memcached,
    /// Version 3.0, simple queries, one at a time.
    Postgres,
    /// Version 10, text queries, one at a time.
    Mysql,
}

impl Protocol {
    /// Whether whoever asks stays connected: a database closes no connection that idles, and nobody opens one to it without need.
    #[must_use]
    pub fn is_of_database(self) -> bool {
        matches!(self, Protocol::Postgres | Protocol::Mysql)
    }
}

/// A service's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Where it listens.
    pub listen: SocketAddrV4,
    /// How it works.
    pub runtime: Runtime,
    /// Threads or processes that serve; without meaning where an event loop does.
    pub workers: u32,
    /// Its accept queue.
    pub backlog: u32,
    /// CPU that a request takes by itself, µs.
    pub cpu_us: u32,
    /// Time that a request sleeps, µs.
    pub sleep_us: u32,
    /// Memory that a request allocates, writes and frees, bytes.
    pub allocate_bytes: u32,
    /// Whether each request reads what is under a lock.
    pub locks: bool,
    /// Whether each request has a name resolved, by the server of names on its host.
    #[serde(default)]
    pub resolves: bool,
    /// Whom it calls, one after the other.
    pub calls: Vec<CallPart>,
}

/// A call that requests make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallPart {
    /// Whom.
    pub to: SocketAddrV4,
    /// How.
    #[serde(default)]
    pub protocol: Protocol,
    /// Requests of a hundred that make it.
    pub share_percent: u32,
    /// Connections that are kept: with threads no more are open at a time, and whoever finds none waits; the others open more and
    /// close those after use. 0: a connection for each call.
    pub pool: u32,
    /// Given up after this, with the wait for a connection.
    pub timeout_ms: u32,
    /// Tried again so often.
    pub retries: u32,
    /// Retries of a hundred calls at most; none: as many as fail.
    pub budget_percent: Option<u32>,
    /// After some failures one after the other no call is made for a while: each fails at once (a circuit breaker).
    #[serde(default)]
    pub breaks: bool,
}

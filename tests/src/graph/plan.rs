//! A service graph from a seed: which services there are, on which hosts, who calls whom and how, what each costs, and how much load that
//! bears on so many CPUs. Pure: the same seed and CPUs are the same graph.

use crate::graph::part::{CallPart, Part, Protocol, Runtime};
use crate::load::{Random, Shape};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};

/// The entry first. The later ones are called by the earlier ones only.
const NAMES: [&str; SERVICES_MAX] = [
    "entry", "basket", "orders", "users", "search", "prices", "stock", "mail", "rates", "images", "archive",
    "reviews", "wishes", "offers", "returns", "parcels", "taxes", "points", "themes", "ledger",
];
const SERVICES_MIN: usize = 4;
const SERVICES_MAX: usize = 20;
const HOSTS_MIN: usize = 3;
const HOSTS_MAX: usize = 10;
/// Services in a chain, with the entry.
const CHAIN_MIN: usize = 3;
const CHAIN_MAX: usize = 5;
/// CPU that all services together are offered, of what the machine has: as much again take the kernel's side of it, clients, agents,
/// collector and the truth.
const OFFERED: f64 = 0.4;
/// What a host's quota is used to: an injection shows, and what it left behind is served within a second or two.
const UTILISATION: f64 = 0.5;
/// No service may be offered more than this of its host's quota, rounding and a lower bound of quotas included.
pub const UTILISATION_MAX: f64 = 0.6;
/// The least quota: below it the kernel's own work for a request is a good part of it.
const CORES_MIN: f64 = 0.15;
/// Requests a second at the entry: with fewer a stall of a second fills no queue, and more are of no use.
const RATE_MIN: f64 = 100.0;
const RATE_MAX: f64 = 300.0;
/// What a request costs a service beside its own work: reading, answering, a switch or two, µs …
const REQUEST_US: f64 = 120.0;
/// … a connection that is accepted for it …
const CONNECTION_US: f64 = 60.0;
/// … each name that it has resolved, with what its host's server of names takes …
const RESOLVE_US: f64 = 250.0;
/// … and each call; …
const CALL_US: f64 = 90.0;
/// … with goroutines so many times as much: Go's standard library is made for more than what these requests need; …
const GOROUTINES_TIMES: f64 = 2.0;
/// … and so is that of Node; …
const NODE_TIMES: f64 = 2.5;
/// … Apache is made for more as well; …
const APACHE_TIMES: f64 = 1.5;
/// … and so are gunicorn and Python; …
const GUNICORN_TIMES: f64 = 3.0;
/// … PHP has its code read anew for each request, and nginx before it; …
const PHP_TIMES: f64 = 2.0;
/// … and Tomcat is made for more, too; …
const TOMCAT_TIMES: f64 = 2.0;
/// … while Redis and memcached look up one key, …
const CACHE_TIMES: f64 = 0.4;
/// … and pgbouncer passes on what it does not read.
const POOLER_TIMES: f64 = 0.5;
/// Services of goroutines, of those that are none of an event loop.
const GOROUTINES: f64 = 0.25;
/// Which those are is drawn by itself, so that the rest of a graph stays as it was before there were any.
const GOROUTINES_STREAM: u64 = 0x60_60_60;
/// Services that pass each of their requests on to one other, and are nginx, HAProxy or Apache instead.
const PROXIES: f64 = 0.5;
/// Services that call nobody, and are Redis or memcached instead; …
const CACHES: f64 = 0.4;
/// … and those that are PostgreSQL, of those whose callers keep to a number of connections.
const DATABASES: f64 = 0.6;
/// Connections that one of them gets from a caller which would open one for each call: to a database nobody does.
const DATABASE_POOL: u32 = 8;
/// Databases that are MariaDB; …
const MARIADB: f64 = 0.5;
/// … services that work and are gunicorn's instead, of those with threads that ask others in HTTP alone; …
const GUNICORN: f64 = 0.3;
/// … of which a graph has few, for each worker is a process with memory of its own, and all that are idle wake up for a connection.
const GUNICORN_MOST: usize = 2;
const GUNICORN_WORKERS_MOST: u32 = 12;
/// Which those are is drawn by itself, so that the rest of a graph stays as it was before there were any.
const MORE_SERVERS_STREAM: u64 = 0x3a_81_9d;
/// Services with threads that ask others in HTTP alone and are PHP's instead, of those that are left: …
const PHP: f64 = 0.3;
/// … one in a graph, for each worker is a process there, too.
const PHP_MOST: usize = 1;
const PHP_WORKERS_MOST: u32 = 12;
/// Which that is is drawn by itself, when calls and names are drawn.
const PHP_STREAM: u64 = 0x9e_9b_fc;
/// The same of those that are Tomcat's, …
const TOMCATS: f64 = 0.3;
/// … one in a graph, for a machine of Java takes as much memory as ten of the others.
const TOMCATS_MOST: usize = 1;
/// Which that is is drawn by itself, too.
const TOMCATS_STREAM: u64 = 0x70_3c_a7;
/// Graphs in which one PostgreSQL is asked through a pgbouncer, of those that have one; …
const POOLERS: f64 = 0.7;
/// … which is a service more, of this name …
const POOLER: &str = "pooler";
/// … and keeps so many connections to it at least: a quarter to a half of those that its callers kept, or nothing would be pooled.
const POOLED_MIN: u32 = 3;
/// Which that is is drawn by itself, and it comes into a graph that is drawn, so that the rest of it stays as it was but for what it costs.
const POOLERS_STREAM: u64 = 0x9b_0c_e5;
/// Event loops that are Node's.
const NODES: f64 = 0.5;
/// Which those are is drawn by itself, too.
const SERVERS_STREAM: u64 = 0x5e_5e_5e;
/// Calls that are given up sooner than most stalls last, ms; and how many of them have a circuit breaker.
const IMPATIENT: f64 = 0.3;
const IMPATIENT_MS: (u32, u32) = (400, 900);
const BREAKERS: f64 = 0.5;
/// Which those are is drawn by itself, too.
const IMPATIENT_STREAM: u64 = 0x7e_4e_01;
/// Services that are dialled at a virtual address, as those of a cluster are, of those that are called.
const VIRTUAL: f64 = 0.4;
/// Which those are is drawn by itself, too.
const VIRTUAL_STREAM: u64 = 0x71_47_0a;
/// Graphs with a database or a cache that is somebody else's, of those in which one can be …
const OUTSIDE: f64 = 0.5;
/// … and which those are is drawn by itself, too.
const OUTSIDE_STREAM: u64 = 0x00_75_51;
/// How the load changes is drawn by itself.
const SHAPE_STREAM: u64 = 0x54_a9_e0;
/// … and which of the services that can have a name resolved for each request.
const RESOLVES_STREAM: u64 = 0xd0_52_53;
const RESOLVES: f64 = 0.4;
/// With more services than this each of them works less for a request, or a machine of two CPUs bears none of these graphs: CPU of a request,
/// µs, from and to.
const MANY: usize = 10;
const MANY_CPU_US: (u32, u32) = (80, 180);
/// Graphs that are drawn before the smallest one has to do.
const TRIES: u64 = 16;
/// The first service's port; the others' follow.
const PORT: u16 = 8_000;
/// The port of every virtual address.
const VIRTUAL_PORT: u16 = 80;

/// A service graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// What it was made from.
    pub seed: u64,
    /// "VMs", each with a quota of its own.
    pub hosts: Vec<Host>,
    /// The entry first; a service calls later ones only.
    pub services: Vec<Service>,
    /// Requests at the entry, a second, open loop.
    pub rate_per_second: f64,
    /// Clients use their connections again.
    pub clients_keep_alive: bool,
    /// How the rate changes.
    #[serde(default)]
    pub shape: Shape,
    /// Further clients, of one service inside.
    pub batch: Option<Batch>,
    /// Whoever calls waits twice as long before each further SYN (1, 3, 7, 15 s), as Linux before 6.5 does; later ones send the first four a
    /// second apart (`tcp_syn_linear_timeouts`).
    #[serde(default)]
    pub syns_back_off: bool,
}

/// A "VM".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Its name, also as its agent reports it.
    pub name: String,
    /// Its CPU quota.
    pub cores: f64,
    /// It is somebody else's, as that of a managed database: no agent is there.
    #[serde(default)]
    pub is_outside: bool,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Its name, which is that of its cgroup, and so of its workload.
    pub name: String,
    /// Index of its host.
    pub host: usize,
    /// Where it listens on it.
    pub port: u16,
    /// Its callers dial an address that nobody has, and their hosts translate it.
    #[serde(default)]
    pub is_virtual: bool,
    /// How it works.
    pub runtime: Runtime,
    /// Threads that serve.
    pub workers: u32,
    /// Its accept queue.
    pub backlog: u32,
    /// CPU of a request by itself, µs.
    pub cpu_us: u32,
    /// Sleep of a request, µs.
    pub sleep_us: u32,
    /// Memory that a request allocates, bytes.
    pub allocate_bytes: u32,
    /// Whether requests read under a lock.
    pub locks: bool,
    /// Whether requests have a name resolved.
    #[serde(default)]
    pub resolves: bool,
    /// Whom it calls, in this order.
    pub calls: Vec<Call>,
}

impl Service {
    /// Is of another runtime, and does what that one can.
    fn becomes(&mut self, runtime: Runtime) {
        self.runtime = runtime;
        // What a database locks, all of its requests read.
        self.locks =
            runtime.is_database() || self.locks && runtime != Runtime::Node && runtime.takes_orders();
        self.resolves &= runtime.can_resolve();
        if !runtime.does_work() {
            (self.cpu_us, self.sleep_us, self.allocate_bytes) = (0, 0, 0);
        }
        for call in &mut self.calls {
            call.breaks &= runtime.can_break();
            if !runtime.takes_orders() {
                (call.retries, call.budget_percent) = (0, None);
            }
        }
    }
}

/// Whether a service can ask servers that do not speak HTTP.
fn speaks_all(service: &Service) -> bool {
    matches!(service.runtime, Runtime::Threads | Runtime::EventLoop)
}

/// How many services are of a runtime.
fn count_of(services: &[Service], runtime: Runtime) -> usize {
    services.iter().filter(|of| of.runtime == runtime).count()
}

/// Whether a service has threads, and another server that works and asks in HTTP alone may take its place.
fn is_free(services: &[Service], index: usize) -> bool {
    let of = &services[index];
    // One that has workers stays: without any a burst is taken by everybody, and hurts nobody.
    index > 0
        && of.runtime == Runtime::Threads
        && count_of(services, Runtime::Threads) > 1
        && of.calls.iter().all(|call| services[call.to].runtime.protocol() == Protocol::Http)
}

/// A call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Index of the service that is called.
    pub to: usize,
    /// Requests of a hundred that make it.
    pub share_percent: u32,
    /// See [`CallPart::pool`].
    pub pool: u32,
    /// See [`CallPart::timeout_ms`].
    pub timeout_ms: u32,
    /// See [`CallPart::retries`].
    pub retries: u32,
    /// See [`CallPart::budget_percent`].
    pub budget_percent: Option<u32>,
    /// See [`CallPart::breaks`].
    #[serde(default)]
    pub breaks: bool,
}

/// A closed loop of clients of one service, past the entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Index of the service.
    pub to: usize,
    /// How many.
    pub users: u32,
    /// Mean time between an answer and the next request, ms.
    pub think_ms: u64,
}

impl Batch {
    /// Requests a second at most.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        f64::from(self.users) * 1_000.0 / self.think_ms.max(1) as f64
    }
}

impl Graph {
    /// The graph of a seed, for a machine of so many CPUs.
    #[must_use]
    pub fn of(seed: u64, cpus: usize) -> Self {
        let largest = |attempt: u64| SERVICES_MAX.saturating_sub(attempt as usize).max(SERVICES_MIN);
        let drawn = |attempt| Draw::new(seed, attempt).graph(seed, cpus, largest(attempt));
        // A smaller one costs less for each request, so that in the end there is one that bears the least rate.
        (0..TRIES).map(drawn).find(|graph| graph.rate_per_second >= RATE_MIN).unwrap_or_else(|| drawn(TRIES))
    }

    /// Where a service listens.
    #[must_use]
    pub fn listener(&self, service: usize) -> SocketAddrV4 {
        let of = &self.services[service];
        SocketAddrV4::new(address(of.host), of.port)
    }

    /// Where its callers dial it.
    #[must_use]
    pub fn dialled(&self, service: usize) -> SocketAddrV4 {
        if self.services[service].is_virtual {
            SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 1 + service as u8), VIRTUAL_PORT)
        } else {
            self.listener(service)
        }
    }

    /// Virtual addresses, each with where that service listens.
    #[must_use]
    pub fn translated(&self) -> Vec<(SocketAddrV4, SocketAddrV4)> {
        let of = (0..self.services.len()).filter(|service| self.services[*service].is_virtual);
        of.map(|service| (self.dialled(service), self.listener(service))).collect()
    }

    /// The services on a host.
    pub fn on(&self, host: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.services.len()).filter(move |service| self.services[*service].host == host)
    }

    /// What the process of a service is told.
    #[must_use]
    pub fn part(&self, service: usize) -> Part {
        let of = &self.services[service];
        let calls = of.calls.iter().map(|call| CallPart {
            to: self.dialled(call.to),
            protocol: self.services[call.to].runtime.protocol(),
            share_percent: call.share_percent,
            pool: call.pool,
            timeout_ms: call.timeout_ms,
            retries: call.retries,
            budget_percent: call.budget_percent,
            breaks: call.breaks,
        });
        Part {
            listen: self.listener(service),
            runtime: of.runtime,
            workers: of.workers,
            backlog: of.backlog,
            cpu_us: of.cpu_us,
            sleep_us: of.sleep_us,
            allocate_bytes: of.allocate_bytes,
            locks: of.locks,
            resolves: of.resolves,
            calls: calls.collect(),
        }
    }

    /// Requests a second of each service, without retries.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        let batch = self.batch.as_ref().map(|batch| (batch.to, batch.per_second()));
        visits(&self.services, [Some((0, self.rate_per_second)), batch])
    }

    /// CPU that each service is offered, in cores.
    #[must_use]
    pub fn offered(&self) -> Vec<f64> {
        offered(&self.services, &self.rates())
    }

    /// Whether no agent is where a service is.
    #[must_use]
    pub fn is_outside(&self, service: usize) -> bool {
        self.hosts[self.services[service].host].is_outside
    }

    /// Whether requests of `from` reach `to`, which may be itself.
    #[must_use]
    pub fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.services[from].calls.iter().any(|call| self.reaches(call.to, to))
    }

    /// What runs beside a service's server, in a cgroup of its own, by its workload.
    #[must_use]
    pub fn beside(&self, service: usize) -> Option<String> {
        let of = &self.services[service];
        of.runtime.beside().map(|what| format!("{}-{what}", of.name))
    }

    /// Workloads of a service: the one that has its name, and what runs beside that.
    #[must_use]
    pub fn workloads(&self, service: usize) -> Vec<String> {
        std::iter::once(self.services[service].name.clone()).chain(self.beside(service)).collect()
    }

    /// Index of a service by its name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.services.iter().position(|service| service.name == name)
    }

    /// Two lines for people: its size, and each service with its host and whom it calls.
    #[must_use]
    pub fn told(&self) -> String {
        let services = self.services.iter().map(|of| {
            let calls: Vec<&str> = of.calls.iter().map(|call| self.services[call.to].name.as_str()).collect();
            let calls = if calls.is_empty() { String::new() } else { format!(" → {}", calls.join(", ")) };
            let at = if of.is_virtual { ", at a virtual address" } else { "" };
            let names = if of.resolves { ", resolves names" } else { "" };
            let outside = if self.hosts[of.host].is_outside { ", outside" } else { "" };
            let (host, runtime) = (&self.hosts[of.host].name, of.runtime.name());
            format!("{} ({host}, {runtime}{at}{names}{outside}){calls}", of.name)
        });
        format!(
            "{} services on {} hosts, {:.0} requests a second{}, {:.2} CPUs offered, SYNs again after {}\n  {}",
            self.services.len(),
            self.hosts.len(),
            self.rate_per_second,
            self.shape.told(),
            self.offered().iter().sum::<f64>(),
            if self.syns_back_off { "1, 3 and 7 s" } else { "1, 2 and 3 s" },
            services.collect::<Vec<_>>().join("; ")
        )
    }
}

/// Address of a host in the lab's own network.
#[must_use]
pub fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 2 + host as u8)
}

/// Requests a second of each service that these sources lead to.
fn visits(services: &[Service], sources: [Option<(usize, f64)>; 2]) -> Vec<f64> {
    let mut rates = vec![0.0; services.len()];
    for (to, rate) in sources.into_iter().flatten() {
        rates[to] += rate;
    }
    // Callers come before those they call.
    for (index, service) in services.iter().enumerate() {
        for call in &service.calls {
            rates[call.to] += rates[index] * f64::from(call.share_percent) / 100.0;
        }
    }
    rates
}

fn offered(services: &[Service], rates: &[f64]) -> Vec<f64> {
    services.iter().zip(rates).map(|(service, rate)| rate * cost_us(service) / 1e6).collect()
}

/// CPU of a request in one service, µs.
fn cost_us(service: &Service) -> f64 {
    let calls: f64 = service.calls.iter().map(|call| f64::from(call.share_percent) / 100.0 * CALL_US).sum();
    let times = match service.runtime {
        Runtime::Goroutines => GOROUTINES_TIMES,
        Runtime::Node => NODE_TIMES,
        Runtime::Apache => APACHE_TIMES,
        Runtime::Gunicorn => GUNICORN_TIMES,
        Runtime::PhpFpm => PHP_TIMES,
        Runtime::Tomcat => TOMCAT_TIMES,
        Runtime::Redis | Runtime::Memcached => CACHE_TIMES,
        Runtime::Pgbouncer => POOLER_TIMES,
        _ => 1.0,
    };
    let resolves = if service.resolves { RESOLVE_US } else { 0.0 };
    f64::from(service.cpu_us) + resolves + times * (REQUEST_US + CONNECTION_US + calls)
}

/// Quota of a host whose services are offered so much, in cores.
fn quota(offered: f64) -> f64 {
    let cores = offered / UTILISATION;
    ((cores * 100.0).ceil() / 100.0).max(CORES_MIN)
}

/// What is drawn with.
struct Draw(Random);

impl Draw {
    fn new(seed: u64, attempt: u64) -> Self {
        let mut random = Random::new(seed ^ attempt.wrapping_mul(0x9e6c_63d0_876a_68ee));
        // Small seeds next to each other are not to begin alike.
        random.bits();
        Self(random)
    }

    /// From `low` to `high`, both included.
    fn between(&mut self, low: u32, high: u32) -> u32 {
        low + (self.0.bits() % u64::from(high - low + 1)) as u32
    }

    fn index(&mut self, below: usize) -> usize {
        (self.0.bits() % below.max(1) as u64) as usize
    }

    fn chance(&mut self, ratio: f64) -> bool {
        self.0.ratio() < ratio
    }

    fn graph(&mut self, seed: u64, cpus: usize, largest: usize) -> Graph {
        let count = self.between(SERVICES_MIN as u32, largest as u32) as usize;
        let levels = self.levels(count);
        let edges = self.edges(&levels);
        let mut services: Vec<Service> = (0..count).map(|index| self.service(index, &edges)).collect();
        let mut apart = Draw::new(seed, GOROUTINES_STREAM + count as u64);
        // One that has workers stays: without any a burst is taken by everybody, and hurts nobody.
        for of in services.iter_mut().filter(|of| of.runtime == Runtime::Threads).skip(1) {
            if apart.chance(GOROUTINES) {
                of.runtime = Runtime::Goroutines;
            }
        }
        let batch = self.chance(0.7).then(|| Batch {
            to: 1 + self.index(count - 1),
            users: 2,
            think_ms: u64::from(self.between(80, 160)),
        });
        Draw::new(seed, SERVERS_STREAM + count as u64).servers(&mut services, batch.as_ref());
        Draw::new(seed, MORE_SERVERS_STREAM + count as u64).more_servers(&mut services);
        Draw::new(seed, IMPATIENT_STREAM).impatience(&mut services);
        let mut apart = Draw::new(seed, VIRTUAL_STREAM);
        services.iter_mut().skip(1).for_each(|of| of.is_virtual = apart.chance(VIRTUAL));
        let mut apart = Draw::new(seed, RESOLVES_STREAM);
        for of in services.iter_mut().filter(|of| of.runtime.can_resolve()) {
            of.resolves = apart.chance(RESOLVES);
        }
        let mut apart = Draw::new(seed, PHP_STREAM + count as u64);
        apart.some_become(Runtime::PhpFpm, &mut services, PHP, PHP_MOST);
        let mut apart = Draw::new(seed, TOMCATS_STREAM + count as u64);
        apart.some_become(Runtime::Tomcat, &mut services, TOMCATS, TOMCATS_MOST);
        let mut apart = Draw::new(seed, POOLERS_STREAM + count as u64);
        let pooler = apart.pooler(&services);
        // Costs are known: the rate that the machine bears follows.
        let sum = |source| {
            let rates = visits(&services, [source, None]);
            // Whatever asks the database asks the pooler before.
            let of_pooler = pooler.as_ref().map_or(0.0, |(to, of)| rates[*to] * cost_us(of) / 1e6);
            offered(&services, &rates).iter().sum::<f64>() + of_pooler
        };
        let of_batch = sum(batch.as_ref().map(|batch| (batch.to, batch.per_second())));
        let of_entry = sum(Some((0, 1.0)));
        let rate_per_second = ((OFFERED * cpus as f64 - of_batch) / of_entry).clamp(0.0, RATE_MAX).floor();
        let rates = visits(
            &services,
            [Some((0, rate_per_second)), batch.as_ref().map(|batch| (batch.to, batch.per_second()))],
        );
        self.room(&mut services, &rates, batch.as_ref());
        let mut count = self.placed(&mut services);
        let outside = Draw::new(seed, OUTSIDE_STREAM).outside(&mut services, &mut count);
        let hosts = hosts(&services, &rates, count, outside);
        let clients_keep_alive = services[0].runtime.takes_all() && self.chance(0.3);
        // Every other seed, whatever else is drawn of it.
        let syns_back_off = seed.count_ones() % 2 == 1;
        let shape = match Draw::new(seed, SHAPE_STREAM).index(3) {
            0 => Shape::Steady,
            1 => Shape::Diurnal,
            _ => Shape::Modulated,
        };
        let mut graph =
            Graph { seed, hosts, services, rate_per_second, clients_keep_alive, shape, batch, syns_back_off };
        if let Some((database, pooler)) = pooler {
            apart.put_before(&mut graph, database, pooler);
        }
        graph
    }

    /// How far each service is from the entry, ascending: a chain, and others beside it, the first of them beside the entry's first call,
    /// so that it fans out.
    fn levels(&mut self, count: usize) -> Vec<usize> {
        let chain = self.between(CHAIN_MIN as u32, CHAIN_MAX.min(count - 1) as u32) as usize;
        let mut levels: Vec<usize> = (0..chain).chain([1]).collect();
        while levels.len() < count {
            levels.push(1 + self.index(chain - 1));
        }
        levels.sort_unstable();
        levels
    }

    /// For each service whom it calls, with the share: a tree by levels, and further callers of some, so that it fans in.
    fn edges(&mut self, levels: &[usize]) -> Vec<Vec<(usize, u32)>> {
        let mut edges: Vec<Vec<(usize, u32)>> = vec![Vec::new(); levels.len()];
        for to in 1..levels.len() {
            let above: Vec<usize> = (0..to).filter(|from| levels[*from] + 1 == levels[to]).collect();
            let from = above[self.index(above.len())];
            let share = if edges[from].is_empty() { 100 } else { self.between(50, 100) };
            edges[from].push((to, share));
        }
        // The last one is a database: it is called by two, as some others are.
        let more = 1 + self.index(levels.len() / 3 + 1);
        for number in 0..more {
            let to = if number == 0 { levels.len() - 1 } else { 2 + self.index(levels.len() - 2) };
            let callers: Vec<usize> = (0..to)
                .filter(|from| {
                    levels[*from] < levels[to] && !edges[*from].iter().any(|(called, _)| *called == to)
                })
                .collect();
            if !callers.is_empty() {
                let from = callers[self.index(callers.len())];
                let share = self.between(30, 60);
                edges[from].push((to, share));
            }
        }
        edges
    }

    /// A service without its host and its room.
    fn service(&mut self, index: usize, edges: &[Vec<(usize, u32)>]) -> Service {
        let is_leaf = edges[index].is_empty();
        let loops = if index == 0 {
            0.4
        } else if is_leaf {
            0.15
        } else {
            0.3
        };
        let calls = edges[index].iter().map(|(to, share)| {
            let (retries, budget_percent) = match self.between(0, 3) {
                0 => (1, None),
                1 => (2, Some(10)),
                2 => (1, Some(20)),
                _ => (0, None),
            };
            Call {
                to: *to,
                share_percent: *share,
                pool: 0,
                timeout_ms: self.between(2_000, 5_000),
                retries,
                budget_percent,
                breaks: false,
            }
        });
        let calls = calls.collect();
        let (least, most) = match (edges.len() > MANY, is_leaf) {
            (true, _) => MANY_CPU_US,
            (false, true) => (150, 600),
            (false, false) => (150, 350),
        };
        Service {
            name: NAMES[if is_leaf && index + 1 == edges.len() { SERVICES_MAX - 1 } else { index }]
                .to_owned(),
            host: 0,
            port: PORT + index as u16,
            is_virtual: false,
            runtime: if self.chance(loops) { Runtime::EventLoop } else { Runtime::Threads },
            workers: 0,
            backlog: 0,
            cpu_us: self.between(least, most),
            sleep_us: if self.chance(0.3) { self.between(500, 3_000) } else { 0 },
            allocate_bytes: if self.chance(0.4) { self.between(4, 128) << 10 } else { 0 },
            locks: self.chance(0.6),
            resolves: false,
            calls,
        }
    }

    /// Servers as others run them take the place of configurable services that do what they do.
    fn servers(&mut self, services: &mut [Service], batch: Option<&Batch>) {
        for index in 0..services.len() {
            let callers: Vec<&Service> =
                services.iter().filter(|from| from.calls.iter().any(|call| call.to == index)).collect();
            let asked_in_http =
                !callers.iter().all(|from| speaks_all(from)) || batch.is_some_and(|batch| batch.to == index);
            // Whoever opens connections without a bound would be refused by a database, which has one.
            let is_bounded = callers.iter().all(|from| from.runtime.has_bounded_pools());
            let threads = count_of(services, Runtime::Threads);
            let of = &services[index];
            // One that has workers stays: without any a burst is taken by everybody, and hurts nobody.
            let is_free = index > 0 && (of.runtime != Runtime::Threads || threads > 1);
            let passes_on = matches!(of.calls.as_slice(), [one] if one.share_percent == 100);
            let stores = is_free && of.calls.is_empty() && !asked_in_http;
            let kind = if is_free && passes_on && self.chance(PROXIES) {
                [Runtime::Nginx, Runtime::Haproxy, Runtime::Apache][self.index(3)]
            } else if stores && is_bounded && self.chance(DATABASES) {
                Runtime::Postgres
            } else if stores && self.chance(CACHES) {
                [Runtime::Redis, Runtime::Memcached][self.index(2)]
            } else if of.runtime == Runtime::EventLoop && self.chance(NODES) {
                Runtime::Node
            } else {
                continue;
            };
            services[index].becomes(kind);
        }
    }

    /// More of them, of what is left.
    fn more_servers(&mut self, services: &mut [Service]) {
        for index in 0..services.len() {
            let room = count_of(services, Runtime::Gunicorn) < GUNICORN_MOST;
            let kind = if services[index].runtime == Runtime::Postgres && self.chance(MARIADB) {
                Runtime::Mariadb
            } else if is_free(services, index) && room && self.chance(GUNICORN) {
                Runtime::Gunicorn
            } else {
                continue;
            };
            services[index].becomes(kind);
        }
    }

    /// Some that are free, and so many at most, become servers of this runtime.
    fn some_become(&mut self, runtime: Runtime, services: &mut [Service], chance: f64, most: usize) {
        for index in 0..services.len() {
            let has_room = count_of(services, runtime) < most;
            if has_room && is_free(services, index) && self.chance(chance) {
                services[index].becomes(runtime);
            }
        }
    }

    /// A pgbouncer, if there is to be one, without its host and its room, and which PostgreSQL is asked through it.
    fn pooler(&mut self, services: &[Service]) -> Option<(usize, Service)> {
        let is_one = |of: &usize| services[*of].runtime == Runtime::Postgres;
        let databases: Vec<usize> = (0..services.len()).filter(is_one).collect();
        if databases.is_empty() || services.len() == SERVICES_MAX || !self.chance(POOLERS) {
            return None;
        }
        let database = databases[self.index(databases.len())];
        let call = Call {
            to: database + 1,
            share_percent: 100,
            pool: 0,
            timeout_ms: self.between(2_000, 5_000),
            retries: 0,
            budget_percent: None,
            breaks: false,
        };
        let pooler = Service {
            name: POOLER.to_owned(),
            host: 0,
            port: PORT + services.len() as u16,
            is_virtual: self.chance(VIRTUAL),
            runtime: Runtime::Pgbouncer,
            workers: 1,
            backlog: 0,
            cpu_us: 0,
            sleep_us: 0,
            allocate_bytes: 0,
            locks: false,
            resolves: false,
            calls: vec![call],
        };
        Some((database, pooler))
    }

    /// Puts a pgbouncer in the place of a database, which stands behind it from here on, as do all that stood behind the database.
    fn put_before(&mut self, graph: &mut Graph, database: usize, mut pooler: Service) {
        // Somebody else's machine has nothing of ours.
        let own: Vec<usize> = (0..graph.hosts.len()).filter(|of| !graph.hosts[*of].is_outside).collect();
        let host = own[self.index(own.len())];
        pooler.host = host;
        pooler.backlog = self.held(graph.rates()[database], 20, 40, 32);
        let calls = graph.services.iter().flat_map(|from| &from.calls);
        let kept: u32 = calls.filter(|call| call.to == database).map(|call| call.pool).sum();
        let pool = self.between(kept.div_ceil(4), kept.div_ceil(2)).max(POOLED_MIN);
        pooler.calls[0].pool = pool;
        graph.services[database].workers = pool;
        // Whoever asked the database asks what stands in its place now.
        let calls = graph.services.iter_mut().flat_map(|from| &mut from.calls).map(|call| &mut call.to);
        for to in calls.chain(graph.batch.iter_mut().map(|batch| &mut batch.to)) {
            *to += usize::from(*to > database);
        }
        graph.services.insert(database, pooler);
        let offered = graph.offered();
        graph.hosts[host].cores = quota(graph.on(host).map(|service| offered[service]).sum());
    }

    /// As many requests as come in so many hundredths of a second, and so many at least.
    fn held(&mut self, rate: f64, low: u32, high: u32, least: u32) -> u32 {
        let seconds = f64::from(self.between(low, high)) / 100.0;
        ((rate * seconds).ceil() as u32).max(least)
    }

    /// Some callers give up soon, and some of them call nobody for a while then.
    fn impatience(&mut self, services: &mut [Service]) {
        for of in services {
            let breaks = of.runtime.can_break();
            for call in &mut of.calls {
                if self.chance(IMPATIENT) {
                    call.timeout_ms = self.between(IMPATIENT_MS.0, IMPATIENT_MS.1);
                    call.breaks = breaks && self.chance(BREAKERS);
                }
            }
        }
    }

    /// Workers, queues and pools, by how many requests come: they hold what arrives in a few tenths of a second.
    fn room(&mut self, services: &mut [Service], rates: &[f64], batch: Option<&Batch>) {
        let batch_users = |index| batch.filter(|batch| batch.to == index).map_or(0, |batch| batch.users);
        let mut kept = vec![0_u32; services.len()];
        let mut unkept = vec![false; services.len()];
        unkept[0] = true;
        for index in 0..services.len() {
            let rate = rates[index];
            let takes_all = services[index].runtime.takes_all();
            let opens_all = services[index].runtime.opens_all();
            // Each kept connection has its worker, or one that nobody uses would keep out one that somebody waits on.
            let passing = if unkept[index] { self.held(rate, 12, 20, 8) } else { 2 };
            // A database has a process, or a thread, for each connection that its callers keep.
            services[index].workers = match (takes_all, services[index].runtime) {
                (_, Runtime::Postgres | Runtime::Mariadb) => kept[index],
                // Connections are nginx's: a request has a worker while it is served.
                (_, Runtime::PhpFpm) => (kept[index] + batch_users(index) + passing).min(PHP_WORKERS_MOST),
                (true, _) => 1,
                // Where none is kept, whoever comes passes.
                (_, Runtime::Gunicorn) => {
                    (kept[index] + batch_users(index) + passing).min(GUNICORN_WORKERS_MOST)
                }
                (false, _) => kept[index] + batch_users(index) + passing,
            };
            let (low, high, least) = if takes_all { (20, 40, 32) } else { (12, 22, 12) };
            services[index].backlog = self.held(rate, low, high, least);
            let workers = services[index].workers;
            for number in 0..services[index].calls.len() {
                let pool = if opens_all {
                    self.between(8, 16)
                } else if self.chance(0.3) {
                    0
                } else {
                    self.between(workers.div_ceil(2), workers).clamp(4, 40)
                };
                let to = services[index].calls[number].to;
                let is_database = services[to].runtime.is_database();
                let pool = if pool == 0 && is_database { DATABASE_POOL.min(workers) } else { pool };
                let pool = match services[index].runtime {
                    // A process for each request has a connection of its own, …
                    Runtime::Gunicorn if pool > 0 => workers,
                    // … and of PHP none is left when the request is over.
                    Runtime::PhpFpm => 0,
                    _ => pool,
                };
                services[index].calls[number].pool = pool;
                kept[to] += pool;
                // Who opens as many as its calls need opens more than it keeps.
                unkept[to] |= pool == 0 || opens_all;
            }
        }
    }

    /// Puts services on hosts, none of which is empty; how many these are.
    fn placed(&mut self, services: &mut [Service]) -> usize {
        let count = self.between(HOSTS_MIN as u32, HOSTS_MAX.min(services.len()) as u32) as usize;
        let mut order: Vec<usize> = (0..services.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.index(last + 1));
        }
        for (number, service) in order.into_iter().enumerate() {
            services[service].host = if number < count { number } else { self.index(count) };
        }
        count
    }

    /// Some graphs have a database or a cache on a host that is somebody else's, and no service of theirs beside it. One to whom no more connections
    /// are opened than are kept: what its accept queue drops nobody would see but its callers, of whom each waits for a second then.
    fn outside(&mut self, services: &mut [Service], count: &mut usize) -> Option<usize> {
        let is_bounded = |of: usize| {
            let calls = services.iter().flat_map(|from| from.calls.iter().map(move |call| (from, call)));
            let mut own = calls.filter(|(_, call)| call.to == of);
            own.all(|(from, call)| call.pool > 0 && from.runtime.has_bounded_pools())
        };
        let can_be = |of: &usize| {
            let service = &services[*of];
            let stores = service.runtime.protocol() != Protocol::Http && service.calls.is_empty();
            stores && !service.is_virtual && is_bounded(*of)
        };
        let found = (1..services.len()).rev().find(can_be)?;
        let is_alone = services.iter().filter(|of| of.host == services[found].host).count() == 1;
        if !self.chance(OUTSIDE) || *count == HOSTS_MAX && !is_alone {
            return None;
        }
        if !is_alone {
            services[found].host = *count;
            *count += 1;
        }
        Some(services[found].host)
    }
}

/// Hosts with quotas for what is offered to their services.
fn hosts(services: &[Service], rates: &[f64], count: usize, outside: Option<usize>) -> Vec<Host> {
    let offered = offered(services, rates);
    let host = |host: usize| {
        let here = services.iter().zip(&offered).filter(|(service, _)| service.host == host);
        Host {
            name: format!("host{}", char::from(b'a' + host as u8)),
            cores: quota(here.map(|(_, cores)| cores).sum()),
            is_outside: outside == Some(host),
        }
    };
    (0..count).map(host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn graphs() -> impl Iterator<Item = (Graph, usize)> {
        (0..400_u64).flat_map(|seed| [2, 4, 16].map(|cpus| (Graph::of(seed, cpus), cpus)))
    }

    #[test]
    fn a_seed_is_one_graph_and_two_seeds_are_two() {
        let graphs: Vec<Graph> = (0..50).map(|seed| Graph::of(seed, 2)).collect();
        for graph in &graphs {
            assert_eq!(*graph, Graph::of(graph.seed, 2));
        }
        let shapes: BTreeSet<String> = graphs.iter().map(Graph::told).collect();
        assert_eq!(shapes.len(), graphs.len());
    }

    #[test]
    fn every_service_is_reached_from_the_entry_and_calls_go_one_way() {
        for (graph, _) in graphs() {
            let count = graph.services.len();
            assert!((SERVICES_MIN..=SERVICES_MAX).contains(&count), "seed {}: {count}", graph.seed);
            for index in 0..count {
                assert!(graph.reaches(0, index), "seed {}: {index}", graph.seed);
                let called: Vec<usize> = graph.services[index].calls.iter().map(|call| call.to).collect();
                assert!(called.iter().all(|to| *to > index), "seed {}: {index} calls {called:?}", graph.seed);
                assert_eq!(called.iter().collect::<BTreeSet<_>>().len(), called.len());
            }
            let names: BTreeSet<&str> = graph.services.iter().map(|of| of.name.as_str()).collect();
            assert_eq!(names.len(), count, "seed {}", graph.seed);
            assert!(graph.services[0].calls.len() >= 2, "seed {} fans out", graph.seed);
        }
    }

    #[test]
    fn hosts_are_within_bounds_and_none_is_empty() {
        for (graph, _) in graphs() {
            assert!((HOSTS_MIN..=HOSTS_MAX).contains(&graph.hosts.len()), "seed {}", graph.seed);
            for host in 0..graph.hosts.len() {
                assert!(graph.on(host).next().is_some(), "seed {}: host {host} is empty", graph.seed);
                assert!(graph.hosts[host].name.bytes().all(|byte| byte.is_ascii_lowercase()));
            }
        }
    }

    #[test]
    fn whoever_is_outside_is_asked_on_connections_that_are_kept_and_stands_alone() {
        for (graph, _) in graphs() {
            for of in (0..graph.services.len()).filter(|of| graph.is_outside(*of)) {
                assert_eq!(
                    graph.on(graph.services[of].host).collect::<Vec<_>>(),
                    [of],
                    "seed {}",
                    graph.seed
                );
                let calls = graph.services.iter().flat_map(|from| &from.calls);
                assert!(calls.filter(|call| call.to == of).all(|call| call.pool > 0), "seed {}", graph.seed);
                assert!(graph.services[of].calls.is_empty() && of > 0);
            }
        }
    }

    #[test]
    fn no_service_is_offered_more_than_it_bears_nor_all_of_them_more_than_the_machine_has() {
        for (graph, cpus) in graphs() {
            let offered = graph.offered();
            for (host, of) in graph.hosts.iter().enumerate() {
                let here: f64 = graph.on(host).map(|service| offered[service]).sum();
                assert!(here <= UTILISATION_MAX * of.cores, "seed {}: {here} of {}", graph.seed, of.cores);
            }
            let all: f64 = offered.iter().sum();
            assert!(all <= OFFERED * cpus as f64 + 1e-9, "seed {}: {all} on {cpus} CPUs", graph.seed);
            assert!(
                (RATE_MIN..=RATE_MAX).contains(&graph.rate_per_second),
                "seed {}: {} a second on {cpus} CPUs",
                graph.seed,
                graph.rate_per_second
            );
        }
    }

    #[test]
    fn a_kept_connection_always_has_a_worker() {
        for (graph, _) in graphs() {
            for (index, service) in graph.services.iter().enumerate() {
                let kept: u32 = graph
                    .services
                    .iter()
                    .flat_map(|from| from.calls.iter().filter(|call| call.to == index).map(|call| call.pool))
                    .sum();
                let takes_all = service.runtime.takes_all();
                let is_kept = service.runtime.keeps_connections();
                let has_room = takes_all || !is_kept || service.workers > kept;
                assert!(has_room, "seed {}: {}", graph.seed, service.name);
                assert!(service.backlog > 0);
                let opens_all = service.runtime.opens_all();
                let mut calls = service.calls.iter();
                assert!(!opens_all || calls.all(|call| call.pool > 0), "seed {}", graph.seed);
            }
        }
    }

    #[test]
    fn small_and_large_graphs_are_drawn_also_for_a_small_machine() {
        let sizes = |of: fn(&Graph) -> usize| (0..100).map(move |seed| of(&Graph::of(seed, 2)));
        let services: Vec<usize> = sizes(|graph| graph.services.len()).collect();
        let hosts: Vec<usize> = sizes(|graph| graph.hosts.len()).collect();
        for (sizes, smallest, largest) in
            [(services, SERVICES_MIN, SERVICES_MAX), (hosts, HOSTS_MIN, HOSTS_MAX)]
        {
            let middle = usize::midpoint(smallest, largest);
            assert!(sizes.contains(&smallest) && sizes.contains(&largest), "{sizes:?}");
            let large = sizes.iter().filter(|size| **size > middle).count();
            assert!((25..75).contains(&large), "{large} of {} are larger than {middle}", sizes.len());
        }
    }

    #[test]
    fn servers_as_others_run_them_are_in_most_graphs() {
        let all: Vec<Graph> = (0..100).map(|seed| Graph::of(seed, 2)).collect();
        let with = |runtime| {
            all.iter().filter(|graph| graph.services.iter().any(|of| of.runtime == runtime)).count()
        };
        for (runtime, least) in [
            (Runtime::Nginx, 15),
            (Runtime::Haproxy, 15),
            (Runtime::Apache, 15),
            (Runtime::Redis, 20),
            (Runtime::Memcached, 20),
            (Runtime::Postgres, 25),
            (Runtime::Mariadb, 20),
            (Runtime::Gunicorn, 30),
            (Runtime::Pgbouncer, 15),
            (Runtime::PhpFpm, 15),
            (Runtime::Tomcat, 12),
            (Runtime::Node, 40),
        ] {
            assert!(with(runtime) >= least, "{} in {}", runtime.name(), with(runtime));
        }
        for graph in &all {
            for of in &graph.services {
                let is_of = |call: &Call| graph.services[call.to].runtime;
                let is_pooler = of.runtime == Runtime::Pgbouncer;
                let asks_others = of.calls.iter().any(|call| is_of(call).protocol() != Protocol::Http);
                assert!(!asks_others || speaks_all(of) || is_pooler, "seed {}: {}", graph.seed, of.name);
                let mut databases = of.calls.iter().filter(|call| is_of(call).protocol().is_of_database());
                let is_bounded = of.runtime.has_bounded_pools() || is_pooler;
                assert!(databases.all(|call| is_bounded && call.pool > 0), "seed {}", graph.seed);
                let is_php = of.runtime == Runtime::PhpFpm;
                assert!(!is_php || of.workers <= PHP_WORKERS_MOST && of.calls.iter().all(|of| of.pool == 0));
                assert!(!of.resolves || of.runtime.can_resolve(), "seed {}: {}", graph.seed, of.name);
                assert!(
                    !of.runtime.is_proxy()
                        || matches!(of.calls.as_slice(), [one] if one.share_percent == 100)
                );
            }
            assert!(count_of(&graph.services, Runtime::PhpFpm) <= PHP_MOST, "seed {}", graph.seed);
            assert!(count_of(&graph.services, Runtime::Tomcat) <= TOMCATS_MOST, "seed {}", graph.seed);
            let batch = graph.batch.as_ref().map(|batch| graph.services[batch.to].runtime.protocol());
            assert!(batch.is_none_or(|protocol| protocol == Protocol::Http), "seed {}", graph.seed);
        }
    }

    #[test]
    fn a_pooler_stands_between_a_database_and_all_that_ask_it_and_keeps_fewer_connections_than_they() {
        let all: Vec<Graph> = graphs().map(|(graph, _)| graph).collect();
        let mut seen = 0;
        for graph in &all {
            for (at, pooler) in graph.services.iter().enumerate() {
                let [call] = pooler.calls.as_slice() else { continue };
                if pooler.runtime != Runtime::Pgbouncer {
                    continue;
                }
                seen += 1;
                let pools = |to: usize| {
                    let calls = graph.services.iter().flat_map(|from| &from.calls);
                    calls.filter(|call| call.to == to).map(|call| call.pool).collect::<Vec<_>>()
                };
                let database = &graph.services[call.to];
                assert_eq!((call.to, database.runtime), (at + 1, Runtime::Postgres), "seed {}", graph.seed);
                assert_eq!(pools(call.to), [database.workers], "seed {}", graph.seed);
                assert!(database.workers < pools(at).iter().sum::<u32>(), "seed {}", graph.seed);
                assert!(graph.batch.as_ref().is_none_or(|batch| batch.to != at), "seed {}", graph.seed);
            }
            let ports: BTreeSet<u16> = graph.services.iter().map(|of| of.port).collect();
            assert_eq!(ports.len(), graph.services.len(), "seed {}", graph.seed);
        }
        assert!(seen >= 100, "{seen} in {}", all.len());
    }

    #[test]
    fn what_runs_beside_a_server_is_a_workload_of_its_service() {
        let mut seen = 0;
        for graph in (0..50).map(|seed| Graph::of(seed, 2)) {
            for (index, of) in graph.services.iter().enumerate() {
                let mut workloads = vec![of.name.clone()];
                if of.runtime == Runtime::PhpFpm {
                    workloads.push(format!("{}-php", of.name));
                    seen += 1;
                }
                assert_eq!(graph.workloads(index), workloads, "seed {}", graph.seed);
            }
        }
        assert!(seen > 0);
    }

    #[test]
    fn what_graphs_are_to_have_is_in_some_of_a_few_seeds() {
        let few: Vec<Graph> = (1..=5).map(|seed| Graph::of(seed, 2)).collect();
        let callers = |graph: &Graph, to: usize| {
            graph.services.iter().filter(|of| of.calls.iter().any(|call| call.to == to)).count()
        };
        let fans_in = |graph: &&Graph| (1..graph.services.len()).any(|to| callers(graph, to) >= 2);
        assert!(few.iter().filter(fans_in).count() >= 4);
        assert!(few.iter().any(|graph| graph.batch.is_some()));
        let all = || few.iter().flat_map(|graph| &graph.services);
        for runtime in [Runtime::Threads, Runtime::EventLoop, Runtime::Goroutines] {
            assert!(all().filter(|of| of.runtime == runtime).count() >= 3, "{}", runtime.name());
        }
        assert!(all().flat_map(|of| &of.calls).any(|call| call.retries > 0 && call.budget_percent.is_none()));
        assert!(all().flat_map(|of| &of.calls).any(|call| call.budget_percent.is_some()));
        let is_virtual = |graph: &&Graph| !graph.translated().is_empty();
        assert!(few.iter().filter(is_virtual).count() >= 4);
        let outside = (0..100).filter(|seed| {
            let graph = Graph::of(*seed, 2);
            graph.hosts.iter().any(|host| host.is_outside)
        });
        assert!(outside.count() >= 15, "managed databases");
        let impatient = || all().flat_map(|of| &of.calls).filter(|call| call.timeout_ms < 1_000);
        assert!(impatient().count() >= 5 && impatient().any(|call| call.breaks));
        assert!(all().all(|of| of.runtime.can_break() || of.calls.iter().all(|call| !call.breaks)));
    }
}

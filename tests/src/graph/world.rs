//! A service graph on this machine: its hosts as network namespaces and cgroups with quotas, a process for each service, clients, and what
//! can be done to them. Dropping it removes everything. Knows nothing of Tailwater's programs.

use crate::console::failure::{one_line, sentence};
use crate::console::progress::complain;
use crate::controls::{clients, scan};
use crate::graph::benign::{self, Benign};
use crate::graph::injections::{Cause, Planned};
use crate::graph::part::Runtime;
use crate::graph::plan::{Graph, address};
use crate::graph::servers;
use crate::lab::{CLIENT_ADDRESS, Ground, Load, Span, scenario};
use crate::load::{Burst, LoadPlan, Mode, Shape};
use crate::os::cgroup::Cgroup;
use crate::os::clock::unix_ns;
use crate::os::netns::{Losing, NetNs};
use crate::os::process::{readable, sibling_binary, signal, wait_for};
use crate::truth::Place;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Memory of a graph's processes, and of what watches them, MiB.
const MEMORY_MIB: u64 = 1_100;
/// A neighbour's share against a host's services, as that of the laboratory's cells.
const NEIGHBOUR_WEIGHT: f64 = 60.0;
/// A job at the lowest weight, as that of the laboratory's controls, which gets so much of its host's quota, since a weight protects nobody from who
/// uses that up; …
const CRON_WEIGHT: f64 = 0.002;
const CRON_PART: f64 = 0.1;
const CRON_PERIOD_US: u32 = 100_000;
/// … a link that loses a packet now and then, which holds up who sent it, and fills no queue; …
const LOST_PERCENT: u32 = 2;
/// … clients who are slow, at once, where the entry may have no more than eight workers to spare; …
const SLOW_CLIENTS: usize = 2;
/// … and how often a service is asked for its health, which it says within a second.
const CHECKED_EVERY: Duration = Duration::from_secs(1);
const HEALTHY_WITHIN: Duration = Duration::from_secs(1);
/// Clients give up after this: four retries of a SYN are 15 s, and whoever waits longer is of no use to a score.
const TIMEOUT_MS: u64 = 15_000;
/// A service answers an order so long after it is carried out, at most, and says as soon that it is ready: else it hangs.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// Of what services print, so much is kept.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// A running graph.
#[derive(Debug)]
pub struct World {
    graph: Graph,
    hosts: Vec<(Cgroup, NetNs)>,
    nodes: Vec<Node>,
    /// Of each host the server of names, where services ask one.
    names: Vec<Option<Node>>,
    client: (Cgroup, NetNs),
    loads: AtomicU32,
    logs: PathBuf,
    // The last: dropping it removes everything.
    ground: Ground,
}

/// A service's process.
#[derive(Debug)]
struct Node {
    name: String,
    cgroup: Cgroup,
    child: Child,
    /// Of one that takes orders, one at a time.
    spoken: Option<Mutex<Spoken>>,
    log: PathBuf,
    /// What runs beside it, in a cgroup of its own.
    beside: Option<Box<Node>>,
}

/// What is said to a service, and what it says.
#[derive(Debug)]
struct Spoken {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Node {
    /// It, and what runs beside it.
    fn all(&self) -> impl Iterator<Item = &Node> {
        std::iter::once(self).chain(self.beside.as_deref())
    }

    /// Fails where it has ended.
    fn still_runs(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended, {status}: {}", self.name, one_line(&fs::read_to_string(&self.log)?));
        }
        self.beside.as_mut().map_or(Ok(()), |beside| beside.still_runs())
    }

    fn end(&mut self) {
        // It may be gone already; what matters is that no zombie stays.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(beside) = &mut self.beside {
            beside.end();
        }
    }

    fn spoken(&self) -> Result<MutexGuard<'_, Spoken>> {
        let spoken = self.spoken.as_ref().with_context(|| format!("{} takes no orders", self.name))?;
        Ok(spoken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The next line that it writes, which it does at once.
    fn line(&self, spoken: &mut Spoken, within: Duration) -> Result<String> {
        let mut line = String::new();
        if spoken.answers.buffer().is_empty() {
            let speaks = readable(spoken.answers.get_ref(), within);
            let speaks = speaks.with_context(|| format!("listen to {}", self.name))?;
            ensure!(speaks, "service {} said nothing for {} s", self.name, within.as_secs());
        }
        let read = spoken.answers.read_line(&mut line).with_context(|| format!("listen to {}", self.name))?;
        if read == 0 {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            let said = if said.trim().is_empty() { "it said nothing".to_owned() } else { one_line(&said) };
            bail!("service {} ended: {said}", self.name);
        }
        Ok(line)
    }

    /// Has an order carried out that takes so long, and waits until it is.
    fn order(&self, order: &str, ms: u64) -> Result<Span> {
        let mut spoken = self.spoken()?;
        writeln!(spoken.orders, "{order}").with_context(|| format!("tell {}: {order}", self.name))?;
        let line = self.line(&mut spoken, Duration::from_millis(ms) + ANSWERS_WITHIN)?;
        serde_json::from_str(&line)
            .with_context(|| format!("service {} said {line:?} to {order:?}", self.name))
    }
}

/// What starts a service that takes orders, without its part.
fn program(runtime: Runtime) -> Result<Command> {
    Ok(match runtime {
        Runtime::Goroutines => {
            let built = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/goroutines/graphnode"));
            ensure!(built.exists(), "{} is not built: run tests/graph/install.sh", built.display());
            Command::new(built)
        }
        Runtime::Node => {
            let mut command = Command::new("node");
            command.arg("--expose-gc").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/graph/node.js"));
            command
        }
        _ => Command::new(sibling_binary("graphnode")?),
    })
}

impl World {
    /// Starts every service of a graph. Needs root. What services complained of is kept in `logs` when it goes.
    pub fn start(graph: &Graph, logs: &Path) -> Result<Self> {
        let mut parts = vec![("client", CLIENT_ADDRESS)];
        let of_hosts = graph.hosts.iter().enumerate();
        parts.extend(of_hosts.map(|(host, of)| (of.name.as_str(), address(host))));
        let ground = Ground::lay(&parts, MEMORY_MIB)?;
        let mut hosts = Vec::new();
        for of in &graph.hosts {
            hosts.push((ground.top().child(&of.name)?, NetNs::of(&of.name, ground.run())));
        }
        let client = (ground.top().child("client")?, NetNs::of("client", ground.run()));
        let mut world = Self {
            graph: graph.clone(),
            hosts,
            nodes: Vec::new(),
            names: Vec::new(),
            client,
            loads: AtomicU32::new(0),
            logs: logs.to_owned(),
            ground,
        };
        world.set_limits()?;
        world.translate()?;
        for host in 0..graph.hosts.len() {
            let is_asked = graph.on(host).any(|service| graph.services[service].resolves);
            let names = is_asked.then(|| world.start_names(host)).transpose()?;
            world.names.push(names);
        }
        // Those that are called before those that call.
        for service in (0..graph.services.len()).rev() {
            let node = world.start_node(service)?;
            world.nodes.insert(0, node);
        }
        world.set_quotas()?;
        Ok(world)
    }

    /// When all services run: what a server does as it starts may be more than it ever does again, and nobody waits for it then.
    fn set_quotas(&self) -> Result<()> {
        let period_us = scenario::LAB.quota_period_us;
        let mut hosts = self.hosts.iter().zip(&self.graph.hosts);
        hosts.try_for_each(|((cgroup, _), of)| cgroup.set_cpu_quota(period_us, Some(of.cores)))
    }

    fn set_limits(&self) -> Result<()> {
        for (host, (_, netns)) in self.hosts.iter().enumerate() {
            let longest =
                self.graph.on(host).map(|service| servers::longest_queue(&self.graph.part(service))).max();
            netns.sysctl("net.core.somaxconn", &longest.unwrap_or(128).to_string())?;
            // Half-open connections have a limit of their own; only the accept queue's is to count.
            netns.sysctl("net.ipv4.tcp_max_syn_backlog", "1024")?;
        }
        // Thousands of short connections: a wide range of ports, and those in TIME_WAIT may be used again after a second.
        for (_, netns) in self.hosts.iter().chain([&self.client]) {
            netns.sysctl("net.ipv4.ip_local_port_range", "10000 65535")?;
            netns.sysctl("net.ipv4.tcp_tw_reuse", "1")?;
            // Where the kernel has no such setting they back off anyway.
            if self.graph.syns_back_off && Path::new("/proc/sys/net/ipv4/tcp_syn_linear_timeouts").exists() {
                netns.sysctl("net.ipv4.tcp_syn_linear_timeouts", "0")?;
            }
        }
        Ok(())
    }

    /// Each host translates for its own services, as kube-proxy does on each node.
    fn translate(&self) -> Result<()> {
        let addresses = self.graph.translated();
        if addresses.is_empty() {
            return Ok(());
        }
        self.hosts.iter().enumerate().try_for_each(|(host, (_, netns))| {
            netns.translate(address(host), &addresses)?;
            // Connections that are over stand in a table of limited size for two minutes.
            netns.sysctl("net.netfilter.nf_conntrack_tcp_timeout_time_wait", "1")
        })
    }

    fn start_node(&self, service: usize) -> Result<Node> {
        let of = &self.graph.services[service];
        let (host, netns) = &self.hosts[of.host];
        let folder = self.ground.folder().join(&of.name);
        fs::create_dir(&folder).with_context(|| format!("create {}", folder.display()))?;
        let (part, log) = (self.graph.part(service), folder.join("output.log"));
        if !of.runtime.takes_orders() {
            servers::check_compiled(of.runtime)?;
            let beside = servers::prepare_beside(&part, &folder)?.zip(self.graph.beside(service));
            let beside = beside
                .map(|(command, name)| self.start_server(of.host, &name, command, folder.join("beside.log")));
            let beside = beside.transpose()?.map(Box::new);
            let command = servers::prepare(&part, &folder)?;
            let mut node = Node { beside, ..self.start_server(of.host, &of.name, command, log)? };
            let what = format!("{} to serve as {}", of.runtime.name(), of.name);
            wait_for(&what, ANSWERS_WITHIN, || {
                node.still_runs().with_context(|| format!("start {what}"))?;
                let ready = netns.inside(|| servers::is_ready(&part))?;
                Ok(ready.then_some(()))
            })?;
            return Ok(node);
        }
        let cgroup = host.child(&of.name)?;
        let name = of.name.clone();
        let output = fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let file = folder.join("part.json");
        fs::write(&file, serde_json::to_vec_pretty(&part)?)
            .with_context(|| format!("write {}", file.display()))?;
        let mut command = program(of.runtime)?;
        command.arg(&file).stderr(output);
        self.start_obeying(command, netns, name, cgroup, log)
    }

    /// Starts a server that others made on a host, in a cgroup of its own, without waiting for it.
    fn start_server(&self, host: usize, name: &str, mut command: Command, log: PathBuf) -> Result<Node> {
        let (cgroup, netns) = &self.hosts[host];
        let output = fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
        command.env_clear().stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let cgroup = cgroup.child(name)?;
        let child = self.ground.spawner().spawn(command, &cgroup, Some(netns), libc::SIGKILL)?;
        Ok(Node { name: name.to_owned(), cgroup, child, spoken: None, log, beside: None })
    }

    fn start_names(&self, host: usize) -> Result<Node> {
        let (cgroup, netns) = &self.hosts[host];
        let log = self.ground.folder().join(format!("names-{}.log", self.graph.hosts[host].name));
        let output = fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut command = Command::new(sibling_binary("graphnode")?);
        command.arg("names").stderr(output);
        let name = format!("names of {}", self.graph.hosts[host].name);
        self.start_obeying(command, netns, name, cgroup.child("names")?, log)
    }

    /// Starts what takes orders, and waits until it is ready.
    fn start_obeying(
        &self,
        mut command: Command,
        netns: &NetNs,
        name: String,
        cgroup: Cgroup,
        log: PathBuf,
    ) -> Result<Node> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Found by the path of whoever starts it, and told nothing else.
        let path = std::env::var_os("PATH");
        command.env_clear().envs(path.map(|path| ("PATH", path)));
        let mut child = self.ground.spawner().spawn(command, &cgroup, Some(netns), libc::SIGKILL)?;
        let orders = child.stdin.take().context("a pipe to the service")?;
        let answers = BufReader::new(child.stdout.take().context("a pipe from the service")?);
        let spoken = Some(Mutex::new(Spoken { orders, answers }));
        let node = Node { name, cgroup, child, spoken, log, beside: None };
        let line = node.spoken().and_then(|mut spoken| node.line(&mut spoken, ANSWERS_WITHIN));
        let line = line.with_context(|| format!("start service {}", node.name))?;
        ensure!(line.trim() == "ready", "service {} said {line:?} when it was started", node.name);
        Ok(node)
    }

    /// What runs.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Path of a host's cgroup: what `--scope-cgroup` takes.
    #[must_use]
    pub fn cgroup_path(&self, host: usize) -> &str {
        self.hosts[host].0.path()
    }

    /// The folder in memory that goes with it; loads leave their logs there.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.ground.folder()
    }

    /// Every listening port.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        let place = |service: usize| {
            let of = &self.graph.services[service];
            Place {
                tier: of.name.clone(),
                host: self.graph.hosts[of.host].name.clone(),
                netns: self.hosts[of.host].1.clone(),
                port: of.port,
            }
        };
        (0..self.graph.services.len()).map(place).collect()
    }

    /// CPU that the busiest host uses now, as a part of its quota, measured for so long.
    pub fn utilisation(&self, over: Duration) -> Result<f64> {
        let used =
            || self.hosts.iter().map(|(cgroup, _)| cgroup.cpu_usage_ns()).collect::<Result<Vec<u64>>>();
        let before = used()?;
        std::thread::sleep(over);
        let parts = before.iter().zip(used()?).zip(&self.graph.hosts).map(|((before, after), of)| {
            after.saturating_sub(*before) as f64 / over.as_nanos() as f64 / of.cores
        });
        Ok(parts.fold(0.0, f64::max))
    }

    /// The clients' loads: open loop at the entry, in the graph's shape, and the batch's, for so long.
    pub fn load(&self, rate_per_second: f64, duration: Duration, seed: u64) -> Result<Loads> {
        self.load_in(self.graph.shape, rate_per_second, duration, seed)
    }

    /// The same at the highest rate that the graph's shape has around this one.
    pub fn highest_load(&self, rate_per_second: f64, duration: Duration, seed: u64) -> Result<Loads> {
        self.load_in(Shape::Steady, rate_per_second * self.graph.shape.highest(), duration, seed)
    }

    fn load_in(&self, shape: Shape, rate_per_second: f64, duration: Duration, seed: u64) -> Result<Loads> {
        let duration_ms = duration.as_millis() as u64;
        let plan = |mode, target, keep_alive| LoadPlan {
            target,
            comment_ratio: 0.0,
            timeout_ms: TIMEOUT_MS,
            keep_alive,
            seed,
            ..LoadPlan::new(mode, duration_ms)
        };
        let steady =
            plan(Mode::Open { rate_per_second }, self.graph.listener(0), self.graph.clients_keep_alive);
        let entry = LoadPlan { shape, ..steady };
        let batch = self.graph.batch.as_ref().map(|batch| {
            let mode = Mode::Closed { users: batch.users, think_ms: batch.think_ms };
            plan(mode, self.graph.listener(batch.to), true)
        });
        let batch = batch.map(|plan| self.send(&plan)).transpose()?;
        Ok(Loads { entry: self.send(&entry)?, batch })
    }

    fn send(&self, plan: &LoadPlan) -> Result<Load> {
        Load::start(&self.ground, &self.client, self.loads.fetch_add(1, Ordering::Relaxed), plan)
    }

    /// Does all that is planned at the same time, and waits until it is over; when each hurt.
    pub fn inject_together(&self, planned: &[Planned]) -> Result<Vec<(u64, u64)>> {
        let started = std::thread::scope(|scope| {
            let started: Vec<_> =
                planned.iter().map(|planned| scope.spawn(move || self.inject(planned))).collect();
            started.into_iter().map(ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        let ended = started.into_iter().map(|ended| match ended {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    }

    /// Does what is planned, and waits until it is over; when it hurt.
    pub fn inject(&self, planned: &Planned) -> Result<(u64, u64)> {
        let span = self.hurt(planned).with_context(|| {
            let of = &self.graph.services[planned.service];
            format!("inject {} into {}", planned.cause.name(), of.name)
        })?;
        Ok((span.start_unix_ns, span.end_unix_ns))
    }

    fn hurt(&self, planned: &Planned) -> Result<Span> {
        let (host, ms) = (self.graph.services[planned.service].host, planned.duration_ms);
        match planned.cause {
            Cause::Neighbour => self.burn(host, &self.hosts[host].0.child("burner")?, NEIGHBOUR_WEIGHT, ms),
            Cause::Squeeze => {
                let (cgroup, _) = &self.hosts[host];
                let period_us = scenario::LAB.quota_period_us;
                let start_unix_ns = unix_ns();
                cgroup.set_cpu_quota(period_us, Some(planned.amount))?;
                std::thread::sleep(Duration::from_millis(ms));
                cgroup.set_cpu_quota(period_us, Some(self.graph.hosts[host].cores))?;
                Ok(Span { start_unix_ns, end_unix_ns: unix_ns() })
            }
            Cause::Pause => {
                let pids: Vec<i32> =
                    self.nodes[planned.service].all().flat_map(|node| node.cgroup.pids()).collect();
                let start_unix_ns = unix_ns();
                let stopped = pids.iter().try_for_each(|pid| signal(*pid, libc::SIGSTOP));
                std::thread::sleep(Duration::from_millis(ms));
                // All go on, also when stopping one of them failed, or having another go on.
                let go_on: Vec<Result<()>> = pids.iter().map(|pid| signal(*pid, libc::SIGCONT)).collect();
                stopped?;
                go_on.into_iter().collect::<Result<()>>()?;
                Ok(Span { start_unix_ns, end_unix_ns: unix_ns() })
            }
            Cause::Lock | Cause::Loop if !self.graph.services[planned.service].runtime.takes_orders() => {
                let part = self.graph.part(planned.service);
                self.hosts[host].1.inside(|| servers::stall(&part, ms))
            }
            Cause::Lock => self.nodes[planned.service].order(&format!("lock {ms}"), ms),
            Cause::PoolExhausted => {
                self.nodes[planned.service].order(&format!("exhaust {:.0} {ms}", planned.amount), ms)
            }
            Cause::GcPause => self.nodes[planned.service].order(&format!("collect {ms}"), ms),
            Cause::Loop => self.nodes[planned.service].order(&format!("block {ms}"), ms),
            Cause::Heavier => {
                self.nodes[planned.service].order(&format!("heavier {:.0} {ms}", planned.amount), ms)
            }
            Cause::Burst => self.burst(planned.amount as u32),
            Cause::Loss => {
                let call = planned.call(&self.graph).context("it makes no such call")?;
                let start_unix_ns = unix_ns();
                let losing = self.lose(host, call.to, 100)?;
                std::thread::sleep(Duration::from_millis(ms));
                losing.end()?;
                Ok(Span { start_unix_ns, end_unix_ns: unix_ns() })
            }
            Cause::SlowDns => {
                let names = self.names[host].as_ref().context("nobody there has names resolved")?;
                names.order(&format!("lock {ms}"), ms)
            }
        }
    }

    /// Does what is no incident, for so long.
    pub fn go_on(&self, benign: Benign, duration: Duration) -> Result<()> {
        let (client, entry) = (&self.client.1, self.graph.listener(0));
        match benign {
            Benign::HealthChecks => {
                let checked: Vec<SocketAddr> =
                    benign::checked(&self.graph).map(|of| self.graph.listener(of).into()).collect();
                client.inside(|| check_health(&checked, duration))
            }
            Benign::Cron { host } => {
                let cgroup = self.hosts[host].0.child("cron")?;
                cgroup.set_cpu_quota(CRON_PERIOD_US, Some(CRON_PART * self.graph.hosts[host].cores))?;
                let burnt = self.burn(host, &cgroup, CRON_WEIGHT, duration.as_millis() as u64);
                // A quota that stayed could not be more than what a squeeze leaves of the host's: version 1 refuses that.
                cgroup.set_cpu_quota(CRON_PERIOD_US, None)?;
                burnt.map(drop)
            }
            Benign::Loss { service, call } => {
                let of = &self.graph.services[service];
                let losing = self.lose(of.host, of.calls[call].to, LOST_PERCENT)?;
                std::thread::sleep(duration);
                losing.end()
            }
            Benign::Scan => {
                let hosts: Vec<Ipv4Addr> = (0..self.graph.hosts.len()).map(address).collect();
                client.inside(|| scan::scan(&hosts, duration))
            }
            Benign::SlowClients => client.inside(|| clients::slow(entry.into(), SLOW_CLIENTS, duration)),
            Benign::Reload { service } => {
                signal(self.nodes[service].child.id().cast_signed(), libc::SIGHUP)?;
                std::thread::sleep(duration);
                Ok(())
            }
        }
    }

    /// Loses so many of a hundred packets from a host to a service.
    fn lose(&self, from: usize, to: usize, percent: u32) -> Result<Losing> {
        let of = &self.graph.services[to];
        self.hosts[of.host].1.lose(address(from), of.port, percent)
    }

    /// Spinning threads in a cgroup of a host, one for each CPU.
    fn burn(&self, host: usize, cgroup: &Cgroup, weight: f64, ms: u64) -> Result<Span> {
        cgroup.set_cpu_weight(weight)?;
        let mut command = Command::new(sibling_binary("burner")?);
        command.args(["0".to_owned(), ms.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.ground.spawner().spawn(command, cgroup, Some(&self.hosts[host].1), libc::SIGKILL)?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "burner: {}: {}", output.status, one_line(&said));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn burst(&self, requests: u32) -> Result<Span> {
        let load = self.send(&LoadPlan {
            target: self.graph.listener(0),
            bursts: vec![Burst { at_ms: 0, requests }],
            comment_ratio: 0.0,
            timeout_ms: TIMEOUT_MS,
            ..LoadPlan::new(Mode::Open { rate_per_second: 0.0 }, 0)
        })?;
        let requests = load.wait()?.requests;
        let issued = || requests.iter().map(|request| request.issued_unix_ns);
        let (Some(start_unix_ns), Some(end_unix_ns)) = (issued().min(), issued().max()) else {
            bail!("the burst sent nothing");
        };
        Ok(Span { start_unix_ns, end_unix_ns })
    }

    fn keep_logs(&self) -> Result<()> {
        for node in self.nodes.iter().flat_map(Node::all).chain(self.names.iter().flatten()) {
            let length = fs::metadata(&node.log).map_or(0, |file| file.len());
            if length > 0 && length <= LOG_BYTES_MAX {
                fs::create_dir_all(&self.logs).with_context(|| format!("create {}", self.logs.display()))?;
                fs::copy(&node.log, self.logs.join(format!("{}.log", node.name)))
                    .with_context(|| format!("keep what {} said", node.name))?;
            }
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Err(error) = self.keep_logs() {
            complain(&format!("graph: {}", sentence(&error)));
        }
        for node in self.nodes.iter_mut().chain(self.names.iter_mut().flatten()) {
            node.end();
        }
    }
}

/// Asks each of these services for its health, on a connection of its own. From a thread inside of whoever asks.
fn check_health(services: &[SocketAddr], duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        for at in services {
            // One that says nothing in time is not healthy, which is no fault of whoever asks.
            let asked = || -> std::io::Result<()> {
                let mut stream = TcpStream::connect_timeout(at, HEALTHY_WITHIN)?;
                stream.set_read_timeout(Some(HEALTHY_WITHIN))?;
                stream.write_all(b"GET /health HTTP/1.1\r\nHost: graph\r\nConnection: close\r\n\r\n")?;
                stream.read(&mut [0; 512]).map(drop)
            };
            drop(asked());
        }
        std::thread::sleep(CHECKED_EVERY);
    }
    Ok(())
}

/// The clients of a graph, while they ask.
#[derive(Debug)]
pub struct Loads {
    entry: Load,
    batch: Option<Load>,
}

impl Loads {
    /// Lets no new request begin, waits until every one has ended, and says what became of those at the entry.
    pub fn end(self) -> Result<crate::load::Summary> {
        self.entry.stop()?;
        if let Some(batch) = &self.batch {
            batch.stop()?;
        }
        self.wait()
    }

    /// Waits until they have ended by themselves.
    pub fn wait(self) -> Result<crate::load::Summary> {
        if let Some(batch) = self.batch {
            batch.wait()?;
        }
        Ok(self.entry.wait()?.summary)
    }
}

//! From the first drop in the kernel to the webhook in the receiver's hands: real listeners that overflow, the real agent and
//! collector, a real HTTP receiver. Owns the episodes and what was heard of each; what must hold is the caller's.

use super::steal::Steal;
use crate::os::cgroup::{self, Cgroup};
use crate::programs::daemons::{Collector, Daemon, binary, http_get, start_agent, wait_for};
use crate::programs::webhook_receiver::{Delivery, WebhookReceiver};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// So that an accept queue of three overflows with the fourth connection.
const BACKLOG: libc::c_int = 2;
/// An episode's connections are held this long: its retries would come after a second.
const HELD: Duration = Duration::from_millis(40);
/// From one episode to the next.
const BETWEEN: Duration = Duration::from_millis(60);
/// An incident closes after 2.5 s without drops; each listener then has its next one.
const ROUND: Duration = Duration::from_secs(9);
/// What is heard later was not heard of that drop.
const HEARD_WITHIN_NS: u64 = 5_000_000_000;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Listeners, each in a workload of its own.
    pub listeners: usize,
    /// Episodes of each.
    pub rounds: usize,
    /// Threads that spin all the time, in a cgroup of the same weight as the one of agent and collector; 0: none.
    pub spinners: usize,
}

/// One episode.
#[derive(Debug, Clone)]
pub struct Episode {
    /// Whose listener.
    pub port: u16,
    /// Right before the connection that was dropped, Unix ns.
    pub dropped_unix_ns: u64,
    /// When the receiver had read the first message about it, and that message's version of the incident.
    pub heard: Option<(u64, u64)>,
}

impl Episode {
    /// From the drop to the receiver.
    #[must_use]
    pub fn latency_ms(&self) -> Option<f64> {
        self.heard.map(|(at, _)| (at - self.dropped_unix_ns) as f64 / 1e6)
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Measured {
    /// In order.
    pub episodes: Vec<Episode>,
    /// How many early alerts the collector counted, and their seconds from drop to socket.
    pub told: (f64, f64),
    /// By stage: how many, and their seconds.
    pub stages: Vec<(String, f64, f64)>,
    /// Part of the CPUs' time that the hypervisor took meanwhile.
    pub stolen_ratio: f64,
    /// What the collector printed.
    pub collector: String,
}

impl Measured {
    /// From drop to receiver of those that were heard, ascending.
    #[must_use]
    pub fn latencies_ms(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.episodes.iter().filter_map(Episode::latency_ms).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// At most one in a hundred took longer. NaN if none was heard.
    #[must_use]
    pub fn p99_ms(&self) -> f64 {
        let all = self.latencies_ms();
        all.get((all.len() * 99 / 100).min(all.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }

    /// One line, and a line per stage.
    #[must_use]
    pub fn said(&self) -> String {
        use std::fmt::Write;
        let all = self.latencies_ms();
        let at = |part: usize| all.get(all.len() * part / 100).copied().unwrap_or(f64::NAN);
        let early = self.episodes.iter().filter(|e| e.heard.is_some_and(|(_, version)| version == 0)).count();
        let mut out = format!(
            "{} episodes: median {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, worst {:.1} ms; {early} told before their window, {} unheard; {:.1} % stolen\n",
            self.episodes.len(),
            at(50),
            at(90),
            self.p99_ms(),
            all.last().copied().unwrap_or(f64::NAN),
            self.episodes.len() - all.len(),
            self.stolen_ratio * 100.0,
        );
        for (stage, count, seconds) in &self.stages {
            let _ = writeln!(out, "  {stage:<10} {count:>4}  mean {:>7.2} ms", seconds / count * 1e3);
        }
        out
    }
}

fn sockaddr(address: SocketAddr) -> libc::sockaddr_in {
    let SocketAddr::V4(v4) = address else { unreachable!("all sockets here are IPv4") };
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: v4.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
        sin_zero: [0; 8],
    }
}

fn socket(nonblocking: bool) -> Result<OwnedFd> {
    let flags = if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: plain integers in, a new descriptor out.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags, 0) };
    anyhow::ensure!(fd >= 0, "socket: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Cgroups that this process visits in turn, each to open one listener in: the listeners then belong to as many workloads that have
/// nothing to do with one another. In one workload they would be one cause, and rightly one incident.
struct Homes {
    root: PathBuf,
    /// Where this process belongs, below `root`.
    own: String,
    made: Vec<PathBuf>,
}

impl Homes {
    fn new() -> Result<Self> {
        // The hierarchy by which workloads are told: the v2 tree where there is one.
        let (root, prefix) = [("/sys/fs/cgroup/unified", "0::"), ("/sys/fs/cgroup", "0::")]
            .into_iter()
            .find(|(root, _)| Path::new(root).join("cgroup.controllers").exists())
            .context("a cgroup v2 tree is mounted")?;
        let text = std::fs::read_to_string("/proc/self/cgroup")?;
        let own = text
            .lines()
            .find_map(|line| line.strip_prefix(prefix))
            .context("this process has a cgroup")?
            .to_owned();
        Ok(Self { root: root.into(), own, made: Vec::new() })
    }

    fn enter(&self, folder: &Path) -> Result<()> {
        let file = folder.join("cgroup.procs");
        std::fs::write(&file, std::process::id().to_string())
            .with_context(|| format!("move to {}", file.display()))
    }

    fn visit<T>(&mut self, action: impl FnOnce() -> Result<T>) -> Result<T> {
        let name = format!("tailwater-latency-{}-{}", std::process::id(), self.made.len());
        let folder = self.root.join(name);
        std::fs::create_dir(&folder)?;
        self.made.push(folder.clone());
        self.enter(&folder)?;
        let result = action();
        self.enter(&self.root.join(self.own.trim_start_matches('/')))?;
        result
    }
}

impl Drop for Homes {
    fn drop(&mut self) {
        for folder in &self.made {
            if let Err(error) = std::fs::remove_dir(folder) {
                eprintln!("remove {}: {error}", folder.display());
            }
        }
    }
}

/// A listener that nobody accepts from.
fn deaf_listener() -> Result<(OwnedFd, SocketAddr)> {
    let fd = socket(false)?;
    let any = sockaddr(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: the address outlives the calls and its size is given.
    unsafe {
        anyhow::ensure!(libc::bind(fd.as_raw_fd(), (&raw const any).cast(), size) == 0);
        anyhow::ensure!(libc::listen(fd.as_raw_fd(), BACKLOG) == 0);
    }
    let mut bound = any;
    let mut length = size;
    // SAFETY: as above; the kernel writes at most `length` bytes.
    let rc = unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut bound).cast(), &raw mut length) };
    anyhow::ensure!(rc == 0);
    let port = u16::from_be(bound.sin_port);
    Ok((fd, SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

/// Starts a connection and returns at once. On loopback the listener has taken or dropped the SYN when the call returns.
fn begin_connect(to: SocketAddr) -> Result<OwnedFd> {
    let fd = socket(true)?;
    let address = sockaddr(to);
    let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: the address outlives the call. EINPROGRESS is the expected answer.
    unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size) };
    Ok(fd)
}

fn accept_all(listener: &OwnedFd, connections: usize) {
    for _ in 0..connections {
        // SAFETY: accept with no address wanted.
        let fd = unsafe {
            libc::accept4(
                listener.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_CLOEXEC,
            )
        };
        if fd >= 0 {
            // SAFETY: a new descriptor, closed here.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

/// Threads that spin, and the cgroup of their own, of default weight like the one of the daemons.
struct Spinners {
    hierarchies: std::sync::Arc<Vec<cgroup::Hierarchy>>,
    path: String,
    /// Agent and collector.
    watchers: Vec<u32>,
    _running: Option<Daemon>,
}

impl Spinners {
    /// Moves `daemons` into one cgroup and starts the spinners in another.
    fn start(threads: usize, folder: &Path, daemons: &[u32]) -> Result<Option<Self>> {
        if threads == 0 {
            return Ok(None);
        }
        let hierarchies = cgroup::hierarchies()?;
        let path = format!("/tailwater-latency-{}", std::process::id());
        let mut spinners = Self {
            hierarchies: hierarchies.clone(),
            path: path.clone(),
            watchers: daemons.to_vec(),
            _running: None,
        };
        let watchers = Cgroup::create(&hierarchies, &format!("{path}/watchers"))?;
        for pid in daemons {
            enter(&watchers, *pid)?;
        }
        let group = Cgroup::create(&hierarchies, &format!("{path}/spinners"))?;
        let mut command = Command::new(binary("burner")?);
        // Longer than any measurement: it ends with this process, or with the daemon's drop.
        command.args([threads.to_string(), "3600000".to_owned()]);
        let running = Daemon::spawn("burner", command, folder.join("burner.log"))?;
        enter(&group, running.pid())?;
        spinners._running = Some(running);
        Ok(Some(spinners))
    }
}

fn enter(group: &Cgroup, pid: u32) -> Result<()> {
    for file in group.procs_files()? {
        let path = PathBuf::from(file.to_str().context("a cgroup's path")?);
        std::fs::write(&path, pid.to_string())
            .with_context(|| format!("move {pid} to {}", path.display()))?;
    }
    Ok(())
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self._running = None;
        // They go on where they were started; a cgroup that is not empty stays.
        let out = Cgroup::create(&self.hierarchies, "/")
            .and_then(|root| self.watchers.iter().try_for_each(|pid| enter(&root, *pid)));
        if let Err(error) = out {
            eprintln!("move agent and collector out of {}: {error:#}", self.path);
        }
        if let Err(error) = cgroup::remove(&self.hierarchies, &self.path) {
            eprintln!("remove {}: {error:#}", self.path);
        }
    }
}

/// Makes the episodes.
pub fn measure(plan: Plan) -> Result<Measured> {
    let folder = tempfile::tempdir()?;
    let receiver = WebhookReceiver::start()?;
    let collector = Collector::start(folder.path(), &["--webhook".into(), receiver.url()])?;
    let agent = start_agent(folder.path(), &collector.grpc_url(), "latency", None, &[])?;
    wait_for("the agent to stream", Duration::from_secs(20), || {
        let (_, body) = http_get(collector.http, "/api/v1/agents")?;
        Ok(body.contains("\"latency\"").then_some(()))
    })?;
    let mut homes = Homes::new()?;
    let listeners: Vec<_> = (0..plan.listeners).map(|_| homes.visit(deaf_listener)).collect::<Result<_>>()?;
    let spinners = Spinners::start(plan.spinners, folder.path(), &[agent.pid(), collector.daemon.pid()])?;
    let steal = Steal::begin()?;
    let mut episodes = Vec::new();
    for _ in 0..plan.rounds {
        let round = Instant::now();
        for (listener, address) in &listeners {
            episodes.push(overflow(listener, *address)?);
        }
        std::thread::sleep(ROUND.saturating_sub(round.elapsed()));
    }
    let stolen_ratio = steal.ratio()?;
    std::thread::sleep(Duration::from_secs(1));
    drop(spinners);
    hear(&mut episodes, &receiver.deliveries());
    let (_, metrics) = http_get(collector.http, "/metrics")?;
    let (told, stages) = stages(&metrics)?;
    anyhow::ensure!(agent.pid() > 0);
    Ok(Measured { episodes, told, stages, stolen_ratio, collector: collector.daemon.output() })
}

fn overflow(listener: &OwnedFd, address: SocketAddr) -> Result<Episode> {
    let mut clients = Vec::new();
    // The accept queue holds backlog + 1.
    for _ in 0..=BACKLOG {
        clients.push(begin_connect(address)?);
    }
    let dropped_unix_ns = crate::os::clock::unix_ns();
    clients.push(begin_connect(address)?);
    std::thread::sleep(HELD);
    // Closing ends the retries; accepting empties the queue: the next overflow is an episode of its own.
    let filled = clients.len() - 1;
    drop(clients);
    accept_all(listener, filled);
    std::thread::sleep(BETWEEN);
    Ok(Episode { port: address.port(), dropped_unix_ns, heard: None })
}

/// Each episode's first message: the earliest one that names the port and came after the drop, before the port's next drop.
fn hear(episodes: &mut [Episode], deliveries: &[Delivery]) {
    let mut by_port: BTreeMap<u16, Vec<(u64, u64)>> = BTreeMap::new();
    for delivery in deliveries {
        let text = delivery.body.to_string();
        let version = delivery.body["data"]["version"].as_u64().unwrap_or(u64::MAX);
        for port in episodes.iter().map(|e| e.port).collect::<std::collections::BTreeSet<_>>() {
            if text.contains(&format!(":{port}\"")) {
                by_port.entry(port).or_default().push((delivery.received_unix_ns, version));
            }
        }
    }
    for episode in episodes {
        let dropped = episode.dropped_unix_ns;
        let heard = by_port.get(&episode.port).into_iter().flatten();
        episode.heard =
            heard.filter(|(at, _)| *at >= dropped && at - dropped < HEARD_WITHIN_NS).min().copied();
    }
}

type Sums = ((f64, f64), Vec<(String, f64, f64)>);

fn stages(metrics: &str) -> Result<Sums> {
    let value = |series: &str| -> Result<f64> {
        let line = metrics.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("/metrics has no {series}"))?.trim().parse()?)
    };
    let name = "tailwater_early_alert_seconds";
    let told = (value(&format!("{name}_count"))?, value(&format!("{name}_sum"))?);
    let name = "tailwater_early_alert_stage_seconds";
    let names = metrics.lines().filter_map(|line| {
        line.strip_prefix(&format!("{name}_count{{stage=\""))?.split_once('"').map(|(stage, _)| stage)
    });
    let stages = names
        .map(|stage| {
            let label = format!("{{stage=\"{stage}\"}}");
            let of = |end: &str| value(&format!("{name}_{end}{label}"));
            Ok((stage.to_owned(), of("count")?, of("sum")?))
        })
        .collect::<Result<_>>()?;
    Ok((told, stages))
}

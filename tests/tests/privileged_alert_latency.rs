//! From the first drop in the kernel to the webhook in the receiver's hands: real listeners that overflow, the real agent and
//! collector, a real HTTP receiver.

#![allow(clippy::disallowed_methods, reason = "the test measures with its own clock")]

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailwater_tests::daemons::{Collector, http_get, start_agent, wait_for};
use tailwater_tests::webhook_receiver::WebhookReceiver;

const LISTENERS: usize = 40;
const ROUNDS: usize = 6;
const BACKLOG: libc::c_int = 2;

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_nanos()).expect("before 2554")
}

fn sockaddr(address: SocketAddr) -> libc::sockaddr_in {
    let SocketAddr::V4(v4) = address else { panic!("the test uses IPv4") };
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

#[test]
fn privileged_the_first_drop_reaches_the_webhook_within_250_ms_at_p99() -> Result<()> {
    tailwater_tests::disturbed::experiment("first drop to webhook", first_drop_to_webhook)
}

fn first_drop_to_webhook() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let receiver = WebhookReceiver::start()?;
    let collector = Collector::start(folder.path(), &["--webhook".into(), receiver.url()])?;
    let agent = start_agent(folder.path(), &collector.grpc_url(), "latency", None, &[])?;
    wait_for("the agent to stream", Duration::from_secs(20), || {
        let (_, body) = http_get(collector.http, "/api/v1/agents")?;
        Ok(body.contains("\"latency\"").then_some(()))
    })?;
    let mut homes = Homes::new()?;
    let listeners: Vec<_> = (0..LISTENERS).map(|_| homes.visit(deaf_listener)).collect::<Result<_>>()?;
    // A listener is named with the windows of its first second; one that overflows before is told of with them.
    std::thread::sleep(Duration::from_secs(1));
    // (port, first drop) of each episode.
    let mut episodes: Vec<(u16, u64)> = Vec::new();
    for _ in 0..ROUNDS {
        let round = Instant::now();
        for (listener, address) in &listeners {
            let mut clients = Vec::new();
            // The accept queue holds backlog + 1.
            for _ in 0..=BACKLOG {
                clients.push(begin_connect(*address)?);
            }
            let first_drop_unix_ns = unix_ns();
            clients.push(begin_connect(*address)?);
            episodes.push((address.port(), first_drop_unix_ns));
            std::thread::sleep(Duration::from_millis(40));
            // Closing ends the retries; accepting empties the queue: the next overflow is an episode of its own.
            let filled = clients.len() - 1;
            drop(clients);
            accept_all(listener, filled);
            std::thread::sleep(Duration::from_millis(60));
        }
        // An incident closes after 2.5 s without drops; each listener then has its next one.
        std::thread::sleep(Duration::from_secs(9).saturating_sub(round.elapsed()));
    }
    std::thread::sleep(Duration::from_secs(1));
    anyhow::ensure!(agent.pid() > 0);

    // First message per episode: the earliest one that names the port and came after the drop, before the port's next drop.
    let mut by_port: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for delivery in receiver.deliveries() {
        let text = delivery.body.to_string();
        for (_, address) in &listeners {
            if text.contains(&format!(":{}\"", address.port())) {
                by_port.entry(address.port()).or_default().push(delivery.received_unix_ns);
            }
        }
    }
    let mut latencies_ms: Vec<f64> = Vec::new();
    let mut silent = Vec::new();
    for (port, dropped) in &episodes {
        let heard = by_port
            .get(port)
            .into_iter()
            .flatten()
            .filter(|at| **at >= *dropped && **at - *dropped < 5_000_000_000)
            .min();
        match heard {
            Some(at) => {
                let latency_ms = (at - dropped) as f64 / 1e6;
                if latency_ms > 100.0 {
                    println!("slow: {latency_ms:.1} ms for the drop at {dropped} of port {port}");
                }
                latencies_ms.push(latency_ms);
            }
            None => silent.push(*port),
        }
    }
    latencies_ms.sort_by(f64::total_cmp);
    let p99 = *latencies_ms.get(latencies_ms.len() * 99 / 100).context("at least one alert arrived")?;
    println!(
        "{} episodes: median {:.1} ms, p99 {p99:.1} ms, max {:.1} ms, unheard {}",
        episodes.len(),
        latencies_ms[latencies_ms.len() / 2],
        latencies_ms.last().copied().unwrap_or(f64::NAN),
        silent.len(),
    );
    assert!(episodes.len() >= 200);
    assert!(silent.is_empty(), "no alert for drops at ports {silent:?}\n{}", collector.daemon.output());
    assert!(p99 <= 250.0, "p99 {p99} ms");
    Ok(())
}

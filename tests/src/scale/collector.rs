//! The collector under measurement: a real `tailwater serve` with mutual TLS, in a cgroup of its own where this process may make one. Owns
//! what it took of CPU and memory; knows no agent.

use super::clock::SimClock;
use crate::os::cgroup::{self, Cgroup, Hierarchy};
use crate::os::ticks_per_second;
use crate::programs::daemons::{Daemon, binary, http_get, two_free_ports, wait_for};
use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Who asks among many readers waits no longer than this for its turn.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// A collector that runs.
#[derive(Debug)]
pub struct Measured {
    /// The process.
    pub daemon: Daemon,
    /// Where agents connect.
    pub grpc: SocketAddr,
    /// API and page.
    pub http: SocketAddr,
    group: Option<Group>,
}

/// A cgroup that goes with this value, once nobody is in it.
#[derive(Debug)]
struct Group {
    hierarchies: Arc<Vec<Hierarchy>>,
    own: Cgroup,
}

impl Group {
    /// Around a process; `None` where this process may not make cgroups.
    fn around(pid: u32) -> Option<Self> {
        let hierarchies = cgroup::hierarchies().ok()?;
        let own = Cgroup::create(&hierarchies, &format!("/tailwater-scale-{}", std::process::id())).ok()?;
        let group = Self { hierarchies, own };
        let entered = group
            .own
            .procs_files()
            .ok()?
            .into_iter()
            .all(|file| file.to_str().is_ok_and(|file| std::fs::write(file, pid.to_string()).is_ok()));
        entered.then_some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = cgroup::remove(&self.hierarchies, self.own.path()) {
            eprintln!("remove {}: {error:#}", self.own.path());
        }
    }
}

impl Measured {
    /// Starts it with the certificates of `folder`, its data there, alerts to `webhook`, and waits until it is ready.
    pub fn start(folder: &Path, clock: SimClock, webhook: &str, more: &[String]) -> Result<Self> {
        let (grpc, http) = two_free_ports()?;
        let (grpc, http) =
            (SocketAddr::from(([127, 0, 0, 1], grpc)), SocketAddr::from(([127, 0, 0, 1], http)));
        Self::start_at(folder, clock, webhook, more, (grpc, http))
    }

    /// The same at these ports: one that takes the place of one that ended.
    pub fn start_at(
        folder: &Path,
        clock: SimClock,
        webhook: &str,
        more: &[String],
        (grpc, http): (SocketAddr, SocketAddr),
    ) -> Result<Self> {
        let mut command = Command::new(binary("tailwater")?);
        command
            .arg("serve")
            // No file of this machine's decides.
            .args(["--config", "/dev/null"])
            .args(["--grpc", &grpc.to_string(), "--http", &http.to_string(), "--webhook", webhook])
            .arg("--data")
            .arg(folder.join("data"))
            .arg("--tls-cert")
            .arg(folder.join("collector.pem"))
            .arg("--tls-key")
            .arg(folder.join("collector.key"))
            .arg("--tls-ca")
            .arg(folder.join("ca.pem"))
            .args(["--set", "tls.host_identity=\"certificate\""])
            .args(more)
            .envs(clock.environment(folder)?);
        let mut daemon = Daemon::spawn("tailwater serve", command, folder.join("collector.log"))?;
        let group = Group::around(daemon.pid());
        wait_for("the collector to be ready", clock.long(Duration::from_secs(20)), || {
            if let Some(status) = daemon.exited()? {
                bail!(daemon.told_end(status));
            }
            Ok(http_get(http, "/readyz").is_ok_and(|(code, _)| code == 200).then_some(()))
        })?;
        Ok(Self { daemon, grpc, http, group })
    }

    /// Tells it to end, as a package's upgrade does, and waits until it has.
    pub fn end(mut self, grace: Duration) -> Result<(SocketAddr, SocketAddr)> {
        self.daemon.terminate(grace)?;
        Ok((self.grpc, self.http))
    }

    /// Whether its CPU time is that of a cgroup; else it is its process's.
    #[must_use]
    pub fn in_group(&self) -> bool {
        self.group.is_some()
    }

    /// CPU time so far.
    pub fn cpu(&self) -> Result<Duration> {
        match &self.group {
            Some(group) => Ok(Duration::from_nanos(group.own.cpu_usage_ns()?)),
            None => process_cpu(self.daemon.pid()),
        }
    }

    /// Resident memory now, bytes.
    pub fn resident(&self) -> Result<u64> {
        let file = format!("/proc/{}/status", self.daemon.pid());
        let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).with_context(|| file.clone())?;
        Ok(kib.parse::<u64>()? * 1024)
    }

    /// An answer of its API.
    pub fn json(&self, path: &str) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.answer(path)?)?)
    }

    /// What it says on `/metrics`.
    pub fn metrics(&self) -> Result<String> {
        self.answer("/metrics")
    }

    /// An answer. Where readers fill their queue they are told to come again (503), and so is this program, which comes from where they come
    /// from; it asks until it has its answer.
    fn answer(&self, path: &str) -> Result<String> {
        wait_for(&format!("an answer to {path}"), ANSWERED_WITHIN, || match http_get(self.http, path)? {
            (200, body) => Ok(Some(body)),
            (503, _) => Ok(None),
            (code, _) => bail!("GET {path}: {code}"),
        })
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // Before its cgroup, which goes when it is empty. One that is gone already is what is wanted.
        let _ = self.daemon.kill();
    }
}

/// User and system time of a process, to the kernel's tick.
fn process_cpu(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command may hold anything; behind its parenthesis follow numbers.
    let rest = text.rsplit_once(") ").context("/proc/PID/stat has a command")?.1;
    let field = |n: usize| rest.split(' ').nth(n).and_then(|t| t.parse::<u64>().ok());
    let ticks = field(11).zip(field(12)).map(|(user, system)| user + system);
    Ok(Duration::from_secs_f64(ticks.context("/proc/PID/stat tells times")? as f64 / ticks_per_second()))
}

/// CPU time of this program so far.
pub fn own_cpu() -> Result<Duration> {
    process_cpu(std::process::id())
}

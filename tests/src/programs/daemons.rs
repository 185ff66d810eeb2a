//! Starts Tailwater's own programs as an operator would, as separate processes with their command lines, and stops them by
//! pid. Knows their command lines and nothing of the programs' insides.

use crate::console::failure;
use crate::os::process::die_with_parent;
pub use crate::os::process::{sibling_binary as binary, wait_for};

/// What a daemon may take from SIGTERM to its exit: a collector waits 10 s for its analysis and 10 s for its disk, where they are behind.
pub const ENDS_WITHIN: Duration = Duration::from_secs(30);

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A loopback port nobody listens on right now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Two of them.
pub fn two_free_ports() -> Result<(u16, u16)> {
    // Both at a time: the first would be free again for the second.
    let (one, other) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok((one.local_addr()?.port(), other.local_addr()?.port()))
}

/// A child process whose output goes to a file; killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command`; standard output and error go to `log`.
    pub fn spawn(name: &str, mut command: Command, log: PathBuf) -> Result<Self> {
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("log file {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        die_with_parent(&mut command, libc::SIGKILL);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(Self { child, name: name.to_owned(), log })
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it printed so far.
    #[must_use]
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// That it ended though it should not have, with the last thing it said and where its log is.
    #[must_use]
    pub fn told_end(&self, status: ExitStatus) -> String {
        let output = self.output();
        let last = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        format!("{} ended: {status}: {} (log: {})", self.name, last.trim(), self.log.display())
    }

    /// Sends a signal to it, and to nobody else.
    pub fn signal(&self, signal: libc::c_int) -> Result<()> {
        let pid = libc::pid_t::try_from(self.child.id())?;
        // SAFETY: kill takes plain integers; the child is not reaped, so the pid is still its own.
        if unsafe { libc::kill(pid, signal) } != 0 {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("signal {signal} to {}", self.name));
        }
        Ok(())
    }

    /// SIGTERM, then waits for the exit for at most `grace`; [`ENDS_WITHIN`] unless a test holds a promise about it.
    pub fn terminate(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.signal(libc::SIGTERM)?;
        let deadline = Instant::now() + grace;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("{} did not exit within {grace:?} of SIGTERM", self.name);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// SIGKILL, and reaps it.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Its exit status, if it is gone.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A child that is gone already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A collector of this build on loopback ports of its own.
#[derive(Debug)]
pub struct Collector {
    /// The process.
    pub daemon: Daemon,
    /// Where agents connect.
    pub grpc: SocketAddr,
    /// API and page.
    pub http: SocketAddr,
    folder: PathBuf,
    extra: Vec<String>,
}

impl Collector {
    /// Starts `tailwater serve` with its data under `folder` and waits until it is ready.
    pub fn start(folder: &Path, extra: &[String]) -> Result<Self> {
        let (grpc, http) = two_free_ports()?;
        let (grpc, http) =
            (SocketAddr::from(([127, 0, 0, 1], grpc)), SocketAddr::from(([127, 0, 0, 1], http)));
        Self::start_at(folder, grpc, http, extra)
    }

    /// As [`Collector::start`], on given addresses.
    pub fn start_at(folder: &Path, grpc: SocketAddr, http: SocketAddr, extra: &[String]) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut command = Command::new(binary("tailwater")?);
        command
            .arg("serve")
            .args(["--grpc", &grpc.to_string()])
            .args(["--http", &http.to_string()])
            .arg("--data")
            .arg(folder.join("data"))
            .args(extra);
        let daemon = Daemon::spawn("tailwater serve", command, folder.join("collector.log"))?;
        let mut collector = Self { daemon, grpc, http, folder: folder.to_owned(), extra: extra.to_vec() };
        collector.wait_ready(Duration::from_secs(20))?;
        Ok(collector)
    }

    /// Kills it if it runs, and starts it again on the same addresses and data, with `more` arguments.
    pub fn restart_with(&mut self, more: &[String]) -> Result<()> {
        self.daemon.kill()?;
        let extra: Vec<String> = self.extra.iter().chain(more).cloned().collect();
        *self = Self::start_at(&self.folder.clone(), self.grpc, self.http, &extra)?;
        Ok(())
    }

    fn wait_ready(&mut self, longest: Duration) -> Result<()> {
        wait_for("the collector to be ready", longest, || {
            if let Some(status) = self.daemon.exited()? {
                bail!(self.daemon.told_end(status));
            }
            Ok(http_get(self.http, "/readyz").is_ok_and(|(code, _)| code == 200).then_some(()))
        })
    }

    /// The incidents as the API lists them now.
    pub fn incidents(&self) -> Result<Vec<serde_json::Value>> {
        let (code, body) = http_get(self.http, "/api/v1/incidents?limit=1000")?;
        if code != 200 {
            bail!("GET /api/v1/incidents: {code}: {}", failure::one_line(&body));
        }
        let value: serde_json::Value = serde_json::from_str(&body)?;
        let list = value.get("incidents").unwrap_or(&value);
        Ok(list.as_array().context("the API answers with a list of incidents")?.clone())
    }

    /// URL for `--collector` of agents.
    #[must_use]
    pub fn grpc_url(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// URL for `--collector` of the command line.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}", self.http)
    }
}

/// Starts `tailwater-agent run` for one scope, or for the whole machine when `scope` is `None`.
pub fn start_agent(
    folder: &Path,
    collector_url: &str,
    host: &str,
    scope: Option<&str>,
    extra: &[String],
) -> Result<Daemon> {
    let mut command = Command::new(binary("tailwater-agent")?);
    command.arg("run").args(["--collector", collector_url]).args(["--host", host]);
    if let Some(scope) = scope {
        command.args(["--scope-cgroup", scope]);
    }
    command.args(extra);
    Daemon::spawn(&format!("tailwater-agent {host}"), command, folder.join(format!("agent-{host}.log")))
}

/// A plain HTTP/1.0 GET: status code and body.
pub fn http_get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("an HTTP answer has a head and a body")?;
    let code = head.split_whitespace().nth(1).context("an HTTP answer begins with a status line")?.parse()?;
    Ok((code, body.to_owned()))
}

//! Millibottlenecks on demand: each injection happens at a known place for a known time, and says to the nanosecond when it
//! began and ended. Knows nothing of what anybody concludes from it.

use crate::console::progress::complain;
use crate::lab::rate::CALM_MAX;
use crate::lab::{Injection, Lab, Load, servers};
use crate::load::{Burst, LoadPlan, Mode};
use crate::os::clock::unix_ns;
use crate::os::process::{run, sibling_binary, signal};
use crate::stack::{Software, Tier};
use crate::truth::TruthRecord;
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Further clients come so long before they tip a lab over: the usual level is that of four seconds.
const TIP_BEFORE: Duration = Duration::from_secs(6);
/// They have so long to be served without a drop …
const TIP_CALM_MAX: Duration = Duration::from_secs(10);
/// … and where they are not the next ones are so much fewer, as a part of what the busiest tier can serve.
const TIP_FEWER: [f64; 3] = [0.0, 0.02, 0.05];
/// Its utilisation is measured for so long.
const UTILISATION_OVER: Duration = Duration::from_secs(4);

/// What belongs to an injection begins this long before it at the earliest: two windows.
pub const BEFORE_NS: u64 = 100_000_000;

/// An injection that is over.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Injected {
    /// [`Injection::kind`].
    pub kind: String,
    /// Where.
    pub tier: Tier,
    /// When it began to hurt.
    pub start_unix_ns: u64,
    /// When it ceased to.
    pub end_unix_ns: u64,
    /// The process that did it; for a pause the one that it was done to; for a squeeze this process.
    pub pid: u32,
}

impl Injected {
    /// What belongs to it: from [`BEFORE_NS`] before it until then. Nothing is observed yet.
    #[must_use]
    pub fn truth(&self, id: String, to_unix_ns: u64) -> TruthRecord {
        TruthRecord {
            id,
            kind: self.kind.clone(),
            tier: self.tier.name().to_owned(),
            start_unix_ns: self.start_unix_ns,
            end_unix_ns: self.end_unix_ns,
            from_unix_ns: self.start_unix_ns.saturating_sub(BEFORE_NS),
            to_unix_ns,
            ..TruthRecord::default()
        }
    }
}

/// What the lab's own binaries print when they are done.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Span {
    /// Begin.
    pub(crate) start_unix_ns: u64,
    /// End.
    pub(crate) end_unix_ns: u64,
}

/// An injection under way.
#[derive(Debug)]
pub struct Running {
    thread: JoinHandle<Result<Injected>>,
}

impl Running {
    /// Waits until it is over.
    pub fn wait(self) -> Result<Injected> {
        self.thread.join().map_err(|_| anyhow::anyhow!("an injection's thread panicked"))?
    }
}

type Action = Box<dyn FnOnce() -> Result<(Span, u32)> + Send>;

impl Lab {
    /// Injects and waits until it is over.
    pub fn inject(&self, injection: &Injection) -> Result<Injected> {
        self.begin(injection)?.wait()
    }

    /// Begins an injection and returns at once.
    pub fn begin(&self, injection: &Injection) -> Result<Running> {
        let action = self.action(injection)?;
        let (kind, tier, log) = (injection.kind(), injection.tier(), self.injection_log());
        let thread = std::thread::Builder::new().name("injection".into()).spawn(move || {
            let (span, pid) = action().with_context(|| format!("inject {kind}"))?;
            let injected = Injected {
                kind: kind.to_owned(),
                tier,
                start_unix_ns: span.start_unix_ns,
                end_unix_ns: span.end_unix_ns,
                pid,
            };
            note(&log, &injected)?;
            Ok(injected)
        })?;
        Ok(Running { thread })
    }

    fn action(&self, injection: &Injection) -> Result<Action> {
        Ok(match *injection {
            Injection::CpuBurn { tier, threads, weight, duration_ms } => {
                let mut command = Command::new(sibling_binary("burner")?);
                command.args([threads.to_string(), duration_ms.to_string()]);
                self.spanned(tier, "burner", Some(weight), command)?
            }
            Injection::Tip { tier, weight, duration_ms, load, hold_ms } => {
                let clients = self.further_clients(load, Duration::from_millis(hold_ms))?;
                let begun = Instant::now();
                let mut command = Command::new(sibling_binary("burner")?);
                command.args(["0".to_owned(), duration_ms.to_string()]);
                let burn = self.spanned(tier, "burner", Some(weight), command)?;
                Box::new(move || {
                    let burned = burn();
                    std::thread::sleep(Duration::from_millis(hold_ms).saturating_sub(begun.elapsed()));
                    // They leave, also when the burn failed.
                    clients.stop()?;
                    clients.wait()?;
                    burned
                })
            }
            Injection::DiskFlush { bytes } => {
                let mut command = Command::new(sibling_binary("logflush")?);
                command.arg(self.disk().join("flushed.log")).arg(bytes.to_string());
                self.spanned(Tier::Db, "logflush", None, command)?
            }
            Injection::Pause { tier, duration_ms } => {
                let pids = self.tier(tier).server_cgroup().pids();
                let pid = self.tier(tier).pid().context("the tier is running")?;
                Box::new(move || {
                    let start_unix_ns = unix_ns();
                    let stopped = pids.iter().try_for_each(|pid| signal(*pid, libc::SIGSTOP));
                    std::thread::sleep(Duration::from_millis(duration_ms));
                    // All go on, also when stopping one of them failed.
                    for pid in &pids {
                        signal(*pid, libc::SIGCONT)?;
                    }
                    stopped?;
                    Ok((Span { start_unix_ns, end_unix_ns: unix_ns() }, pid))
                })
            }
            Injection::QuotaSqueeze { tier, cores, duration_ms } => {
                let cgroup = self.tier(tier).cgroup().clone();
                let (period_us, usual) = (self.config().quota_period_us, self.config().limits(tier).cores);
                let cores = cores * self.config().scale.cores;
                Box::new(move || {
                    let start_unix_ns = unix_ns();
                    cgroup.set_cpu_quota(period_us, Some(cores))?;
                    std::thread::sleep(Duration::from_millis(duration_ms));
                    cgroup.set_cpu_quota(period_us, Some(usual))?;
                    Ok((Span { start_unix_ns, end_unix_ns: unix_ns() }, std::process::id()))
                })
            }
            Injection::TableLock { table, duration_ms } => {
                let command = self.lock_client(table, Duration::from_millis(duration_ms))?;
                let child = self.place(Tier::Db, "locker", None, command)?;
                Box::new(move || {
                    let pid = child.id();
                    let output = finish(child)?;
                    // One of the two clients also prints what the sleep between them returned.
                    let times: Vec<u64> =
                        output.lines().filter_map(parse_seconds).filter(|at| *at > 0).collect();
                    let [start_unix_ns, end_unix_ns] = times[..] else {
                        bail!("the locking client said {output:?}");
                    };
                    Ok((Span { start_unix_ns, end_unix_ns }, pid))
                })
            }
            Injection::AppLock { duration_ms } => self.asked(format!("/story?rebuild={duration_ms}"))?,
            Injection::BlockLoop { duration_ms } => self.asked(format!("/story?block={duration_ms}"))?,
            Injection::Burst { requests } => {
                let load = self.burst(Tier::Web, self.config().scale.count(requests))?;
                Box::new(move || {
                    let pid = load.pid();
                    let requests = load.wait()?.requests;
                    let issued = || requests.iter().map(|request| request.issued_unix_ns);
                    span(issued().min(), issued().max(), pid)
                })
            }
            Injection::GuestBurst { requests } => {
                let load = self.burst(Tier::Guest, self.config().scale.count(requests))?;
                // What takes the CPU is the guest.
                let pid = self.tier(Tier::Guest).pid().context("the guest is running")?;
                Box::new(move || {
                    let requests = load.wait()?.requests;
                    let start = requests.iter().map(|request| request.issued_unix_ns).min();
                    span(start, requests.iter().map(|request| request.end_unix_ns).max(), pid)
                })
            }
        })
    }

    /// Further clients, so many that the busiest tier works at `load` of what it can, for at least `hold` from now on. A load that
    /// overflows by itself cannot be tipped over: then they leave, and fewer come.
    fn further_clients(&self, load: f64, hold: Duration) -> Result<Load> {
        let lasts = (TIP_BEFORE + TIP_CALM_MAX + hold + TIP_BEFORE).as_millis() as u64;
        for fewer in TIP_FEWER {
            let more = self.rate_per_second()
                * ((load - fewer) / self.utilisation(UTILISATION_OVER)? - 1.0).max(0.0);
            let mode = Mode::Open { rate_per_second: more };
            let clients = self.load(&LoadPlan { seed: 2, ..LoadPlan::new(mode, lasts) })?;
            // What is usual has to be known before it.
            std::thread::sleep(TIP_BEFORE);
            let Err(error) = self.wait_until_served(TIP_CALM_MAX) else { return Ok(clients) };
            clients.stop()?;
            clients.wait()?;
            complain(&format!("lab: {error:#} with {more:.0} requests a second more: fewer come"));
            self.wait_until_served(CALM_MAX)?;
        }
        bail!("no load near the limit of the tiers stayed calm before it was to be tipped over")
    }

    /// CPU that the busiest tier uses under the load of now, as a part of what it has, measured for so long.
    pub fn utilisation(&self, over: Duration) -> Result<f64> {
        let before = self.truth()?;
        std::thread::sleep(over);
        let used = self.truth()?.since(&before);
        let part = |tier: Tier| {
            let cores = self.config().limits(tier).cores;
            used.tier(tier).cpu_usage_ns as f64 / over.as_nanos() as f64 / cores
        };
        let tiers = self.stack().tiers().iter().copied().filter(|tier| *tier != Tier::Guest);
        Ok(tiers.map(part).fold(0.1, f64::max))
    }

    fn burst(&self, tier: Tier, requests: u32) -> Result<Load> {
        self.load(&LoadPlan {
            target: self.stack().listener(tier),
            mode: Mode::Open { rate_per_second: 0.0 },
            bursts: vec![Burst { at_ms: 0, requests }],
            duration_ms: 0,
            ..LoadPlan::default()
        })
    }

    /// A client that locks a table, and prints the time in seconds when it has the lock and when it is about to release it. That of
    /// PostgreSQL connects a second before: its start and the fork of its backend take so much of a small quota that the database would be
    /// short of CPU when the lock begins, which is another cause.
    fn lock_client(&self, table: &str, duration: Duration) -> Result<Command> {
        let (dir, seconds) = (self.tier(Tier::Db).dir(), duration.as_secs_f64());
        if self.stack().software(Tier::Db) == Software::Postgres {
            let now = "SELECT extract(epoch FROM clock_timestamp())";
            let mut command = Command::new(servers::postgres_program("psql")?);
            command.args(["-X", "-q", "-A", "-t", "-U", "postgres", "-d", "bulletin", "-h"]).arg(dir);
            for statement in [
                "DO $$ BEGIN PERFORM pg_sleep(1); END $$",
                "BEGIN",
                &format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"),
                now,
                &format!("SELECT pg_sleep({seconds})"),
                now,
                "COMMIT",
            ] {
                command.args(["-c", statement]);
            }
            return Ok(command);
        }
        let now = "SELECT UNIX_TIMESTAMP(SYSDATE(6));";
        let mut command = Command::new("mariadb");
        command
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names", "--unbuffered"])
            .arg(format!("--socket={}", dir.join("mariadb.sock").display()))
            .arg("--execute")
            .arg(format!("LOCK TABLES {table} WRITE; {now} SELECT SLEEP({seconds}); {now} UNLOCK TABLES"))
            .arg("bulletin");
        Ok(command)
    }

    fn place(&self, tier: Tier, name: &str, weight: Option<f64>, mut command: Command) -> Result<Child> {
        let handle = self.tier(tier);
        let cgroup = handle.cgroup().child(name)?;
        if let Some(weight) = weight {
            cgroup.set_cpu_weight(weight)?;
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.ground.spawner().spawn(command, &cgroup, Some(handle.netns()), libc::SIGKILL)
    }

    /// A request that the application answers with its [`Span`] when it is through with it.
    fn asked(&self, path: String) -> Result<Action> {
        let address = self.stack().listener(Tier::App).into();
        let (netns, pid) = (self.client_netns().clone(), self.tier(Tier::App).pid());
        let pid = pid.context("the tier is running")?;
        Ok(Box::new(move || {
            let (status, body) = netns.inside(|| servers::get(address, &path))?;
            if status != 200 {
                bail!("the application said {status}: {body}");
            }
            Ok((serde_json::from_str(&body).with_context(|| format!("{body:?}"))?, pid))
        }))
    }

    /// One of the lab's own binaries, which prints its [`Span`].
    fn spanned(&self, tier: Tier, name: &str, weight: Option<f64>, command: Command) -> Result<Action> {
        let child = self.place(tier, name, weight, command)?;
        Ok(Box::new(move || {
            let pid = child.id();
            let output = finish(child)?;
            Ok((serde_json::from_str(&output).with_context(|| format!("{output:?}"))?, pid))
        }))
    }

    /// Runs SQL on the database, as root, and returns what it printed.
    pub fn sql(&self, statements: &str) -> Result<String> {
        run(Command::new("mariadb")
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"])
            .arg(format!("--socket={}", self.tier(Tier::Db).dir().join("mariadb.sock").display()))
            .args(["--execute", statements, "bulletin"]))
    }
}

fn finish(child: Child) -> Result<String> {
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn span(start: Option<u64>, end: Option<u64>, pid: u32) -> Result<(Span, u32)> {
    let (Some(start_unix_ns), Some(end_unix_ns)) = (start, end) else {
        bail!("the burst sent nothing");
    };
    Ok((Span { start_unix_ns, end_unix_ns }, pid))
}

/// `1732181234.123456` in ns. Not by way of a float, which has no room for it.
fn parse_seconds(text: &str) -> Option<u64> {
    let (seconds, micros) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let micros: u64 = format!("{micros:0<6}").get(..6)?.parse().ok()?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + micros * 1000)
}

fn note(log: &Path, injected: &Injected) -> Result<()> {
    let mut line = serde_json::to_vec(injected)?;
    line.push(b'\n');
    let open = |path: &Path| std::fs::File::options().create(true).append(true).open(path);
    open(log).and_then(|mut file| file.write_all(&line)).with_context(|| format!("{}", log.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_of_the_database_keep_their_microseconds() {
        assert_eq!(parse_seconds("1732181234.123456"), Some(1_732_181_234_123_456_000));
        assert_eq!(parse_seconds("0"), Some(0));
        assert_eq!(parse_seconds("nonsense"), None);
    }
}

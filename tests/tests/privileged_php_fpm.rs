//! nginx before php-fpm over a Unix socket, both real: when the pool of php-fpm is full nginx answers 502 at once, and an incident says so,
//! with as many refused connections as nginx's own log has, and with what held the pool up.
#![allow(clippy::disallowed_methods, reason = "clients keep their pace by real time")]

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tailwater_tests::disturbed::experiment;
use tailwater_tests::os::cgroup::{self, Cgroup, Hierarchy};
use tailwater_tests::os::process;
use tailwater_tests::programs::daemons::{Collector, Daemon, free_port, http_get, start_agent, wait_for};

const HOST: &str = "php-1";
const CHILDREN: usize = 6;
const BACKLOG: u32 = 24;
/// Clients, each with a request every so often: 200 a second.
const CLIENTS: u32 = 60;
const EACH: Duration = Duration::from_millis(300);
/// Long enough for what is usual to be known.
const SETTLED: Duration = Duration::from_secs(8);
/// At 200 a second, so long fills a queue of 24 four times over.
const HELD_UP: Duration = Duration::from_millis(600);

/// Both servers and their folder; everything ends with this value.
struct Site {
    folder: tempfile::TempDir,
    hierarchies: Arc<Vec<Hierarchy>>,
    cgroup: Cgroup,
    php: Daemon,
    _nginx: Daemon,
    http: SocketAddr,
}

impl Site {
    fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name).display().to_string();
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let (lock, socket) = (at("lock"), at("shop.sock"));
        std::fs::write(&lock, "")?;
        let script = format!(
            "<?php $f = fopen('{lock}', 'r'); flock($f, LOCK_SH);\n\
             for ($s = 'x', $i = 0; $i < 400; $i++) {{ $s = sha1($s); }}\n\
             flock($f, LOCK_UN); usleep(5000); echo 'story ', $s;\n"
        );
        std::fs::write(at("index.php"), script)?;
        std::fs::write(
            at("php-fpm.conf"),
            format!(
                "[global]\nerror_log = {}\ndaemonize = no\n[shop]\nuser = root\ngroup = root\nlisten = {socket}\n\
                 listen.backlog = {BACKLOG}\npm = static\npm.max_children = {CHILDREN}\n",
                at("php-fpm.log")
            ),
        )?;
        std::fs::write(
            at("nginx.conf"),
            format!(
                "user root;\nworker_processes 1;\ndaemon off;\npid {};\nerror_log {};\nevents {{ worker_connections 4096; }}\n\
                 http {{\n  access_log off;\n  fastcgi_temp_path {};\n  client_body_temp_path {};\n  proxy_temp_path {};\n  \
                 uwsgi_temp_path {};\n  scgi_temp_path {};\n  server {{\n    listen {http} backlog=1024;\n    location / {{\n      \
                 fastcgi_pass unix:{socket};\n      fastcgi_param SCRIPT_FILENAME {};\n      fastcgi_param REQUEST_METHOD $request_method;\n    \
                 }}\n  }}\n}}\n",
                at("nginx.pid"),
                at("error.log"),
                at("t1"),
                at("t2"),
                at("t3"),
                at("t4"),
                at("t5"),
                at("index.php"),
            ),
        )?;
        let hierarchies = cgroup::hierarchies()?;
        let cgroup = Cgroup::create(&hierarchies, &format!("/tailwater-php-{}", std::process::id()))?;
        let start = |name: &str, program: &[&str]| -> Result<Daemon> {
            let own = cgroup.child(name)?;
            let mut enter = String::new();
            for file in own.procs_files()? {
                enter += &format!("echo $$ >{}; ", file.to_str()?);
            }
            let mut command = Command::new("sh");
            command.args(["-c", &format!("{enter}exec \"$@\""), "sh"]).args(program);
            Daemon::spawn(name, command, folder.path().join(format!("{name}.out")))
        };
        let php = start("php-fpm", &["/usr/sbin/php-fpm8.2", "-n", "-R", "-F", "-y", &at("php-fpm.conf")])?;
        let nginx = start("nginx", &["/usr/sbin/nginx", "-e", &at("start.log"), "-c", &at("nginx.conf")])?;
        wait_for("a page of the site", Duration::from_secs(20), || {
            Ok(http_get(http, "/").is_ok_and(|(status, _)| status == 200).then_some(()))
        })?;
        Ok(Self { folder, hierarchies, cgroup, php, _nginx: nginx, http })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The pool's processes, without their master.
    fn workers(&self) -> Result<Vec<i32>> {
        let all = self.cgroup.child("php-fpm")?.pids();
        Ok(all.into_iter().filter(|pid| *pid != self.php.pid() as i32).collect())
    }

    /// Connections that php-fpm's socket refused, as nginx wrote them down.
    fn refused(&self) -> Result<u64> {
        let log = std::fs::read_to_string(self.path("error.log"))?;
        Ok(log.lines().filter(|line| line.contains("connect() to unix:") && line.contains("(11: ")).count()
            as u64)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for pid in self.cgroup.pids() {
            let _ = process::signal(pid, libc::SIGKILL);
        }
        let gone = || Ok(self.cgroup.pids().is_empty().then_some(()));
        let _ = wait_for("the site to end", Duration::from_secs(5), gone);
        let _ = cgroup::remove(&self.hierarchies, self.cgroup.path());
    }
}

/// One request: its status.
fn get(http: SocketAddr) -> Result<u16> {
    let mut stream = TcpStream::connect_timeout(&http, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: shop\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split(' ').nth(1).context("a status")?.parse()?)
}

/// Answers that clients got: good ones, 502, others.
#[derive(Default)]
struct Answers {
    good: AtomicU64,
    bad_gateway: AtomicU64,
    other: AtomicU64,
}

fn ask_until(over: &AtomicBool, http: SocketAddr, nth: u32, answers: &Answers) {
    let begun = Instant::now() + EACH * nth / CLIENTS;
    let mut next = begun;
    while !over.load(Ordering::Acquire) {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += EACH;
        let counter = match get(http) {
            Ok(200) => &answers.good,
            Ok(502) => &answers.bad_gateway,
            _ => &answers.other,
        };
        counter.fetch_add(1, Ordering::AcqRel);
    }
}

/// The incidents that name php-fpm's socket, when all of them are closed.
fn told(collector: &Collector, socket: &Path) -> Result<Option<Vec<Value>>> {
    let socket = socket.display().to_string();
    let mut incidents = collector.incidents()?;
    incidents.retain(|incident| {
        incident["drops"].as_array().into_iter().flatten().any(|drop| drop["listener"] == socket.as_str())
    });
    let closed = incidents.iter().all(|incident| incident["state"] == "closed");
    Ok((!incidents.is_empty() && closed).then_some(incidents))
}

/// Holds the pool up by `hold`, which returns when it let go, and returns the one incident that there must be, with what it must say of
/// the listener.
fn provoke(hold: impl FnOnce(&Site) -> Result<()>) -> Result<Value> {
    let site = Site::start()?;
    let folder = tempfile::tempdir()?;
    let collector = Collector::start(folder.path(), &[])?;
    let scope = site.cgroup.path();
    let agent = start_agent(folder.path(), &collector.grpc_url(), HOST, Some(scope), &[])?;
    wait_for("the agent to stream", Duration::from_secs(30), || {
        Ok(http_get(collector.http, "/api/v1/agents")?.1.contains(HOST).then_some(()))
    })?;
    let (over, answers) = (AtomicBool::new(false), Answers::default());
    let held: Result<()> = std::thread::scope(|s| {
        for nth in 0..CLIENTS {
            let (over, answers) = (&over, &answers);
            s.spawn(move || ask_until(over, site.http, nth, answers));
        }
        std::thread::sleep(SETTLED);
        let before = (answers.bad_gateway.load(Ordering::Acquire), site.refused()?);
        let held = hold(&site);
        std::thread::sleep(Duration::from_secs(3));
        over.store(true, Ordering::Release);
        ensure!(before == (0, 0), "refused before anything was done: {before:?}");
        held
    });
    held?;
    let socket = site.path("shop.sock");
    let incidents = wait_for("the incident to close", Duration::from_secs(30), || told(&collector, &socket))
        .with_context(|| format!("{}\n{:?}", agent.output(), collector.incidents()))?;
    let count = |of: &AtomicU64| of.load(Ordering::Acquire);
    let (refused, bad) = (site.refused()?, count(&answers.bad_gateway));
    println!(
        "{} answers, {bad} of 502, {} others; nginx was refused {refused} times",
        count(&answers.good),
        count(&answers.other)
    );
    for incident in &incidents {
        println!("  {} {}\n    {}", incident["severity"], incident["title"], incident["root"]["evidence"]);
    }
    ensure!(refused > 20 && refused == bad, "the pool was full, and each refusal was answered 502");
    ensure!(incidents.len() == 1, "one cause, one incident, not {}", incidents.len());
    let incident = incidents.into_iter().next().context("an incident")?;
    let drop = &incident["drops"][0];
    ensure!(drop["reason"] == "refused" && drop["host"] == HOST, "{drop}");
    ensure!(drop["count"] == refused && drop["connections"] == refused, "{refused} refused, told: {drop}");
    ensure!(incident["vlrt"]["expected"] == 0, "nobody waits who was refused: {}", incident["vlrt"]);
    let hops = incident["hops"].as_array().context("hops")?;
    let hop = hops.iter().find(|hop| hop["listener"] == drop["listener"]).context("php-fpm as a hop")?;
    ensure!(hop["workload"] == "php-fpm", "{hop}");
    ensure!(hop["accept_queue_limit"] == BACKLOG && hop["accept_queue_max"] == BACKLOG + 1, "{hop}");
    ensure!(hop["workers_busy_max"] == CHILDREN && hop["workers_limit"] == CHILDREN, "{hop}");
    ensure!(incident["root"]["workload"] == "php-fpm", "{}", incident["root"]);
    // Who calls is known by the socket.
    let topology = http_get(collector.http, "/api/v1/topology")?.1;
    let topology: Value = serde_json::from_str(&topology)?;
    let edges = topology["edges"].as_array().context("edges")?;
    let calls = |edge: &&Value| edge["from_workload"] == "nginx" && edge["to_workload"] == "php-fpm";
    ensure!(edges.iter().any(|edge| calls(&edge)), "nginx calls php-fpm: {topology}");
    ensure!(
        incident["title"]
            .as_str()
            .is_some_and(|title| title.contains(&format!("refused {refused} connections")))
    );
    Ok(incident)
}

/// As [`provoke`], and the root is this; once more where the machine was taken away: then the children are not all at work at the same time.
fn is_told(resource: &str, hold: impl Fn(&Site) -> Result<()>) -> Result<()> {
    experiment(resource, || {
        let incident = provoke(&hold)?;
        ensure!(incident["root"]["resource"] == resource, "{}", incident["root"]);
        Ok(())
    })
}

#[test]
fn privileged_a_pool_of_php_that_was_stopped_is_told_with_every_502() -> Result<()> {
    is_told("pause", |site| {
        let workers = site.workers()?;
        ensure!(workers.len() == CHILDREN, "{workers:?}");
        workers.iter().try_for_each(|pid| process::signal(*pid, libc::SIGSTOP))?;
        std::thread::sleep(HELD_UP);
        workers.iter().try_for_each(|pid| process::signal(*pid, libc::SIGCONT))
    })
}

#[test]
fn privileged_a_pool_of_php_that_waits_for_a_lock_is_told_with_every_502() -> Result<()> {
    is_told("lock", |site| {
        let lock = std::fs::File::options().write(true).open(site.path("lock"))?;
        // SAFETY: a descriptor that lives here. What is locked is released with it.
        ensure!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } == 0, "flock");
        std::thread::sleep(HELD_UP);
        Ok(())
    })
}

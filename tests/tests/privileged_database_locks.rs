//! PostgreSQL and MariaDB, both real, with 32 sessions that wait for rows which another one has locked in a transaction that it leaves open: the
//! incident names that session, what it had asked last without its values, and how many wait for it, as a user of the database that may look and
//! nothing else tells the agent.
#![allow(clippy::disallowed_methods, reason = "sessions keep their pace by real time")]

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::programs::daemons::{Collector, Daemon, free_port, http_get, start_agent, wait_for};

const HOST: &str = "db-1";
const SESSIONS: usize = 32;
/// Long enough for what is usual to be known.
const SETTLED: Duration = Duration::from_secs(7);
const HELD: Duration = Duration::from_millis(900);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Postgresql,
    Mariadb,
}

/// A server on a port of its own; it ends with this value.
struct Server {
    kind: Kind,
    port: u16,
    _daemon: Daemon,
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A program of the newest PostgreSQL that is installed.
fn of_postgresql(name: &str) -> Result<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib/postgresql")?.flatten();
    let programs = folders.map(|folder| folder.path().join("bin").join(name));
    programs.filter(|path| path.exists()).max().with_context(|| format!("PostgreSQL has no {name}"))
}

impl Server {
    fn start(kind: Kind, folder: &Path) -> Result<Self> {
        let (port, data) = (free_port()?, folder.join("data"));
        let own = format!("--datadir={}", data.display());
        let command = match kind {
            Kind::Postgresql => {
                // It refuses to run as root.
                run(Command::new("chmod").arg("755").arg(folder))?;
                std::fs::create_dir(&data)?;
                run(Command::new("chown").arg("postgres:postgres").arg(&data))?;
                let user = ["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"];
                let by_user = || {
                    let mut command = Command::new("setpriv");
                    command.args(user).current_dir("/");
                    command
                };
                let how = ["--no-sync", "--no-locale", "--auth=trust", "--username=postgres", "-D"];
                run(by_user().arg(of_postgresql("initdb")?).args(how).arg(&data))?;
                let mut command = by_user();
                command.arg(of_postgresql("postgres")?).arg("-D").arg(&data);
                command.args(["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c"]);
                command.arg(format!("unix_socket_directories={}", data.display()));
                command.arg("-p").arg(port.to_string());
                command
            }
            Kind::Mariadb => {
                let how = ["--no-defaults", "--user=root", "--auth-root-authentication-method=normal"];
                run(Command::new("mariadb-install-db").args(how).arg("--skip-test-db").arg(&own))?;
                let mut command = Command::new("/usr/sbin/mariadbd");
                command.args(["--no-defaults", "--user=root", "--bind-address=127.0.0.1"]).arg(own);
                command.args(["--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"]);
                command.arg(format!("--socket={}", folder.join("own.sock").display()));
                command.arg(format!("--port={port}"));
                command
            }
        };
        let daemon = Daemon::spawn("database", command, folder.join("database.log"))?;
        let server = Self { kind, port, _daemon: daemon };
        wait_for("the database to answer", Duration::from_secs(60), || {
            Ok(server.session().and_then(|mut session| session.ask("SELECT 1;")).ok())
        })?;
        Ok(server)
    }

    /// As whom the agent asks, and how.
    fn client(&self) -> Vec<String> {
        let port = self.port;
        match self.kind {
            Kind::Postgresql => {
                vec!["psql".into(), format!("host=127.0.0.1 port={port} user=tailwater dbname=postgres")]
            }
            Kind::Mariadb => ["mariadb", "--no-defaults", "--user=tailwater", "--host=127.0.0.1"]
                .map(str::to_owned)
                .into_iter()
                .chain([format!("--port={port}")])
                .collect(),
        }
    }

    fn session(&self) -> Result<Session> {
        let port = self.port.to_string();
        let mut command = match self.kind {
            Kind::Postgresql => {
                let mut command = Command::new("psql");
                command.args(["-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-U", "postgres", "-p", &port]);
                command
            }
            Kind::Mariadb => {
                let mut command = Command::new("mariadb");
                command.args(["--no-defaults", "-uroot", "-h127.0.0.1", "--batch", "--skip-column-names"]);
                command.args(["--unbuffered", "-P", &port]);
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (to, from) = (child.stdin.take().context("input")?, child.stdout.take().context("output")?);
        Ok(Session { child, to, from: BufReader::new(from) })
    }
}

/// One session with a database.
struct Session {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Session {
    fn say(&mut self, statements: &str) -> Result<()> {
        Ok(writeln!(self.to, "{statements}")?)
    }

    /// Says something whose answer is one line.
    fn ask(&mut self, statements: &str) -> Result<String> {
        self.say(statements)?;
        let mut line = String::new();
        ensure!(self.from.read_line(&mut line)? > 0, "the session ended");
        Ok(line.trim().to_owned())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const TABLE: &str = "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT, note VARCHAR(40));";
const LOCKS: &str = "UPDATE accounts SET note = 'owed by Anna' WHERE id < 1000;";

fn prepare(server: &Server) -> Result<()> {
    let mut session = server.session()?;
    let own = match server.kind {
        Kind::Postgresql => "CREATE ROLE tailwater LOGIN IN ROLE pg_read_all_stats;",
        Kind::Mariadb => {
            "CREATE DATABASE shop; CREATE USER tailwater@'127.0.0.1'; GRANT PROCESS ON *.* TO tailwater@'127.0.0.1'; \
             CREATE USER tailwater@localhost; GRANT PROCESS ON *.* TO tailwater@localhost; USE shop;"
        }
    };
    session.say(own)?;
    session.say(TABLE)?;
    for id in 0..SESSIONS {
        session.say(&format!("INSERT INTO accounts VALUES ({id}, 0, '');"))?;
    }
    ensure!(session.ask("SELECT count(*) FROM accounts;")? == SESSIONS.to_string());
    Ok(())
}

/// A session at work until it is over.
fn work(server: &Server, id: usize, over: &AtomicBool) -> Result<()> {
    let mut session = server.session()?;
    if server.kind == Kind::Mariadb {
        session.say("USE shop;")?;
    }
    // Half of them want one row: of those the first alone waits for whoever holds it, and the others for the first.
    let row = if id.is_multiple_of(2) { 0 } else { id };
    while !over.load(Ordering::Acquire) {
        session.ask(&format!("UPDATE accounts SET balance = balance + 1 WHERE id = {row}; SELECT 1;"))?;
        // Each at a pace of its own, so that they do not come all together.
        std::thread::sleep(Duration::from_millis(41 + id as u64 * 37 % 40));
    }
    Ok(())
}

/// Locks all rows for a while: the number of the session.
fn lock(server: &Server) -> Result<u64> {
    let mut session = server.session()?;
    let number = match server.kind {
        Kind::Postgresql => "SELECT pg_backend_pid();",
        Kind::Mariadb => "USE shop; SELECT CONNECTION_ID();",
    };
    let number = session.ask(number)?.parse()?;
    session.say("BEGIN;")?;
    session.say(LOCKS)?;
    std::thread::sleep(HELD);
    session.say("COMMIT;")?;
    session.ask("SELECT 1;")?;
    Ok(number)
}

fn is_told(kind: Kind) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let server = Server::start(kind, folder.path())?;
    prepare(&server)?;
    let config = folder.path().join("agent.toml");
    let name = if kind == Kind::Postgresql { "postgresql" } else { "mariadb" };
    let text =
        format!("[[database]]\nport = {}\nkind = \"{name}\"\nclient = {:?}\n", server.port, server.client());
    std::fs::write(&config, text)?;
    let collector = Collector::start(&folder.path().join("collector"), &[])?;
    let extra = ["--config".to_owned(), config.display().to_string()];
    let agent = start_agent(folder.path(), &collector.grpc_url(), HOST, None, &extra)?;
    wait_for("the agent to stream", Duration::from_secs(30), || {
        Ok(http_get(collector.http, "/api/v1/agents")?.1.contains(HOST).then_some(()))
    })?;
    let over = AtomicBool::new(false);
    let holder: Result<u64> = std::thread::scope(|s| {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|id| {
                let (server, over) = (&server, &over);
                s.spawn(move || work(server, id, over))
            })
            .collect();
        std::thread::sleep(SETTLED);
        let held = lock(&server);
        std::thread::sleep(Duration::from_secs(2));
        over.store(true, Ordering::Release);
        for session in sessions {
            session.join().map_err(|_| anyhow::anyhow!("a session panicked"))??;
        }
        held
    });
    let holder = holder?;
    let incident = wait_for("the lock to be told", Duration::from_secs(30), || {
        let all = collector.incidents()?;
        Ok(all.into_iter().find(|i| i["root"]["resource"] == "lock" && i["state"] == "closed"))
    })
    .with_context(|| format!("{}\n{:?}", agent.output(), collector.incidents()))?;
    println!("{}\n  {}\n  {}", incident["title"], incident["root"]["evidence"], incident["do_now"]);
    println!("{}", agent.output());
    let locks = &incident["root"]["locks"];
    let by = &locks["holder"];
    ensure!(by["connection"] == holder && by["idle"] == true, "{holder} held it: {locks:#}");
    let waiting = by["waiting"].as_u64().context("waiting")?;
    ensure!((SESSIONS as u64 * 3 / 4..=SESSIONS as u64).contains(&waiting), "{SESSIONS} waited: {locks:#}");
    let told = by["statement"].as_str().context("statement")?;
    match kind {
        Kind::Postgresql => {
            ensure!(told == "UPDATE accounts SET note = ? WHERE id < ?", "{locks:#}");
            let held_ms = by["held_ms"].as_u64().context("held_ms")?;
            ensure!(held_ms <= HELD.as_millis() as u64 + 100, "{locks:#}");
        }
        // Of a session that asks nothing it keeps no statement.
        Kind::Mariadb => ensure!(told.is_empty() && by["held_ms"] == Value::Null, "{locks:#}"),
    }
    let text = incident.to_string();
    ensure!(!text.contains("Anna"), "a value was told: {text}");
    let do_now = incident["do_now"].as_str().context("do_now")?;
    ensure!(do_now.contains(&format!("connection {holder} ")), "{do_now}");
    Ok(())
}

#[test]
fn privileged_who_holds_rows_of_postgresql_is_told() -> Result<()> {
    experiment("rows of PostgreSQL", || is_told(Kind::Postgresql))
}

#[test]
fn privileged_who_holds_rows_of_mariadb_is_told() -> Result<()> {
    experiment("rows of MariaDB", || is_told(Kind::Mariadb))
}

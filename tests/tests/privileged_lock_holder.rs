//! A server with a thread for each of 16 connections, of which one keeps a mutex of glibc for 900 ms: an agent that may look says which thread it was
//! and where that slept.
#![allow(clippy::disallowed_methods, reason = "clients keep their pace by real time")]

use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::os::process::sibling_binary;
use tailwater_tests::programs::daemons::{Collector, Daemon, free_port, http_get, start_agent, wait_for};

const CLIENTS: usize = 16;
/// Long enough for what is usual to be known.
const SETTLED: Duration = Duration::from_secs(7);
const HELD_MS: u64 = 900;

/// One client, on one connection.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(to: SocketAddr) -> Result<Self> {
        Ok(Self(BufReader::new(TcpStream::connect(to)?)))
    }

    /// The body of the answer.
    fn get(&mut self, path: &str) -> Result<String> {
        self.0.get_mut().write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            ensure!(self.0.read_line(&mut line)? > 0, "the server ended");
            if let Some(given) = line.strip_prefix("Content-Length: ") {
                length = given.trim().parse()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(String::from_utf8(body)?)
    }
}

fn work(to: SocketAddr, id: usize, over: &AtomicBool) -> Result<()> {
    let mut client = Client::connect(to)?;
    while !over.load(Ordering::Acquire) {
        client.get("/")?;
        // Each at a pace of its own, so that they do not come all together.
        std::thread::sleep(Duration::from_millis(31 + id as u64 * 37 % 30));
    }
    Ok(())
}

/// The incident, and the thread that held the mutex.
fn told() -> Result<(serde_json::Value, u64)> {
    let folder = tempfile::tempdir()?;
    let to = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let mut command = Command::new(sibling_binary("mutexapp")?);
    command.arg(to.to_string());
    let _server = Daemon::spawn("mutexapp", command, folder.path().join("mutexapp.log"))?;
    wait_for("the server to answer", Duration::from_secs(30), || {
        Ok(Client::connect(to).and_then(|mut client| client.get("/")).ok())
    })?;
    let collector = Collector::start(&folder.path().join("collector"), &[])?;
    let agent =
        start_agent(folder.path(), &collector.grpc_url(), "app-1", None, &["--lock-holders".to_owned()])?;
    wait_for("the agent to stream", Duration::from_secs(30), || {
        Ok(http_get(collector.http, "/api/v1/agents")?.1.contains("app-1").then_some(()))
    })?;
    let over = AtomicBool::new(false);
    let holder: Result<String> = std::thread::scope(|s| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| {
                let over = &over;
                s.spawn(move || work(to, id, over))
            })
            .collect();
        std::thread::sleep(SETTLED);
        let held = Client::connect(to).and_then(|mut client| client.get(&format!("/hold?ms={HELD_MS}")));
        std::thread::sleep(Duration::from_secs(2));
        over.store(true, Ordering::Release);
        for client in clients {
            client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        held
    });
    let holder = holder?.parse()?;
    let incident = wait_for("the lock to be told", Duration::from_secs(30), || {
        let all = collector.incidents()?;
        Ok(all.into_iter().find(|i| i["root"]["resource"] == "lock" && i["state"] == "closed"))
    })
    .with_context(|| format!("{}\n{:?}", agent.output(), collector.incidents()))?;
    println!("{}\n  {}\n  {}", incident["title"], incident["root"]["evidence"], incident["do_now"]);
    Ok((incident, holder))
}

#[test]
fn privileged_which_thread_holds_a_mutex_is_told_where_the_agent_may_look() -> Result<()> {
    experiment("a mutex", || {
        let (incident, holder) = told()?;
        let lock = &incident["root"]["lock"];
        let by = &lock["holder"];
        ensure!(by["thread"] == holder && by["comm"] == "mutex-worker", "{holder} held it: {lock:#}");
        ensure!(
            by["ran"] == false && by["slept_in"].as_str().is_some_and(|of| of.contains("sleep")),
            "{lock:#}"
        );
        let waiting = lock["waiting"].as_u64().context("waiting")?;
        ensure!((CLIENTS as u64 / 2..=CLIENTS as u64).contains(&waiting), "{CLIENTS} waited: {lock:#}");
        let do_now = incident["do_now"].as_str().context("do_now")?;
        ensure!(do_now.contains(&format!("thread {holder} (`mutex-worker`)")), "{do_now}");
        Ok(())
    })
}

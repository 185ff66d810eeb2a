//! A server with a thread for each of 16 connections that all wait for one thing for 900 ms. Where one of them keeps a mutex of glibc an agent that may look
//! says which thread it was and where that slept; where a server of names answers none of them it is told as the root.
#![allow(clippy::disallowed_methods, reason = "clients keep their pace by real time")]

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::names;
use tailwater_tests::os::process::sibling_binary;
use tailwater_tests::programs::daemons::{Collector, Daemon, free_port, http_get, start_agent, wait_for};

const CLIENTS: usize = 16;
/// Long enough for what is usual to be known.
const SETTLED: Duration = Duration::from_secs(7);
const HELD_MS: u64 = 900;
/// A server of names of this test's own.
const SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 53, 1);

/// Why this machine refuses the program that sees lookups of names before it looks at it, as its policy may, by what an agent says of it; `None`: it takes
/// that one. The guests' kernels do.
fn lookups_refused() -> Result<Option<String>> {
    let doctor = Command::new(sibling_binary("tailwater-agent")?).args(["doctor", "--json"]).output()?;
    let report: Value = serde_json::from_slice(&doctor.stdout).context("what the doctor says")?;
    let calls = report["signals"].as_array().into_iter().flatten().find(|of| of["signal"] == "calls");
    let limits = calls.and_then(|calls| calls["limits"].as_array()).context("the limits of calls")?;
    let by_policy = |limit: &&str| {
        limit.contains("iter/bpf_sk_storage_map: refused before verification")
            && limit.contains("Operation not permitted")
    };
    Ok(limits.iter().filter_map(Value::as_str).find(by_policy).map(str::to_owned))
}

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

fn work(to: SocketAddr, path: &str, id: usize, over: &AtomicBool) -> Result<()> {
    let mut client = Client::connect(to)?;
    while !over.load(Ordering::Acquire) {
        client.get(path)?;
        // Each at a pace of its own, so that they do not come all together.
        std::thread::sleep(Duration::from_millis(31 + id as u64 * 37 % 30));
    }
    Ok(())
}

/// The incident of that cause which `hold_up` makes, and what came of that, where clients ask for `path` and the server is told `arguments`.
fn told<T>(
    resource: &str,
    path: &str,
    arguments: &[&str],
    hold_up: impl FnOnce(SocketAddr) -> Result<T>,
) -> Result<(serde_json::Value, T)> {
    let folder = tempfile::tempdir()?;
    let to = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let mut command = Command::new(sibling_binary("threadapp")?);
    command.arg(to.to_string()).args(arguments).current_dir(folder.path());
    let _server = Daemon::spawn("threadapp", command, folder.path().join("threadapp.log"))?;
    wait_for("the server to answer", Duration::from_secs(30), || {
        Ok(Client::connect(to).and_then(|mut client| client.get(path)).ok())
    })?;
    let collector = Collector::start(&folder.path().join("collector"), &[])?;
    let looks = ["--lock-holders", "--stacks"].map(str::to_owned);
    let agent = start_agent(folder.path(), &collector.grpc_url(), "app-1", None, &looks)?;
    wait_for("the agent to stream", Duration::from_secs(30), || {
        Ok(http_get(collector.http, "/api/v1/agents")?.1.contains("app-1").then_some(()))
    })?;
    let over = AtomicBool::new(false);
    let held: Result<T> = std::thread::scope(|s| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| {
                let over = &over;
                s.spawn(move || work(to, path, id, over))
            })
            .collect();
        std::thread::sleep(SETTLED);
        let held = hold_up(to);
        std::thread::sleep(Duration::from_secs(2));
        over.store(true, Ordering::Release);
        for client in clients {
            client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        held
    });
    let held = held?;
    let incident = wait_for("the stand to be told", Duration::from_secs(30), || {
        let all = collector.incidents()?;
        Ok(all.into_iter().find(|i| i["root"]["resource"] == resource && i["state"] == "closed"))
    })
    .with_context(|| format!("{}\n{:?}", agent.output(), collector.incidents()))?;
    println!("{}\n  {}\n  {}", incident["title"], incident["root"]["evidence"], incident["do_now"]);
    Ok((incident, held))
}

/// Most of its threads were in these functions, the first of which the others called.
fn has_code(incident: &serde_json::Value, doing: &str, functions: &[&str]) -> Result<()> {
    let code = &incident["root"]["code"][0];
    let frames: Vec<&str> =
        code["frames"].as_array().into_iter().flatten().filter_map(|f| f.as_str()).collect();
    println!("  {} of {} % in {}", code["doing"], code["percent"], frames.join(" < "));
    let mut left = frames.iter();
    let is_there = functions.iter().all(|function| left.any(|frame| frame.contains(function)));
    ensure!(code["doing"] == doing && is_there, "{functions:?}: {code:#}");
    ensure!(code["percent"].as_u64().is_some_and(|of| of >= 50), "{code:#}");
    Ok(())
}

#[test]
fn privileged_which_thread_holds_a_mutex_is_told_where_the_agent_may_look() -> Result<()> {
    experiment("a mutex", || {
        let (incident, holder) = told("lock", "/", &[], |to| {
            let held = Client::connect(to)?.get(&format!("/hold?ms={HELD_MS}"))?;
            Ok(held.parse::<u64>()?)
        })?;
        let lock = &incident["root"]["lock"];
        let by = &lock["holder"];
        ensure!(by["thread"] == holder && by["comm"] == "worker", "{holder} held it: {lock:#}");
        ensure!(
            by["ran"] == false && by["slept_in"].as_str().is_some_and(|of| of.contains("sleep")),
            "{lock:#}"
        );
        let waiting = lock["waiting"].as_u64().context("waiting")?;
        ensure!((CLIENTS as u64 / 2..=CLIENTS as u64).contains(&waiting), "{CLIENTS} waited: {lock:#}");
        has_code(&incident, "waiting", &["pthread_mutex_lock", "threadapp::serve"])?;
        let do_now = incident["do_now"].as_str().context("do_now")?;
        ensure!(do_now.contains(&format!("thread {holder} (`worker`)")), "{do_now}");
        Ok(())
    })
}

#[test]
fn privileged_a_server_of_names_that_does_not_answer_is_the_root_of_whom_all_requests_wait_for() -> Result<()>
{
    if let Some(why) = lookups_refused()? {
        println!("this machine lets nobody walk the sockets of a map, which this test is about: {why}");
        return Ok(());
    }
    let held = Arc::new(RwLock::new(()));
    let (socket, answered_under) = (names::open(SERVER)?, Arc::clone(&held));
    // It ends with the test.
    std::thread::spawn(move || names::serve(&socket, &answered_under));
    experiment("a server of names", || {
        let (incident, ()) = told("dns", "/name", &[&SERVER.to_string(), "."], |_| {
            let _held = held.write().unwrap_or_else(PoisonError::into_inner);
            std::thread::sleep(Duration::from_millis(HELD_MS));
            Ok(())
        })?;
        has_code(&incident, "waiting", &["getaddrinfo", "threadapp::serve"])?;
        let lookups = &incident["root"]["lookups"];
        ensure!(lookups["server"] == SERVER.to_string() && lookups["asked_on"].is_null(), "{lookups:#}");
        let (waiting, longest_ms) = (lookups["lookups"].as_u64(), lookups["longest_ms"].as_u64());
        let (waiting, longest_ms) = (waiting.context("lookups")?, longest_ms.context("longest_ms")?);
        ensure!((CLIENTS as u64 / 2..=CLIENTS as u64).contains(&waiting), "{CLIENTS} waited: {lookups:#}");
        // Its last window ends before the server answers again, and the first lookup begins after that stopped; windows that are drained late tell nothing.
        ensure!((HELD_MS - 300..=HELD_MS + 150).contains(&longest_ms), "{HELD_MS} ms: {lookups:#}");
        let do_now = incident["do_now"].as_str().context("do_now")?;
        ensure!(do_now.contains(&format!("the server of names {SERVER}")), "{do_now}");
        Ok(())
    })
}

//! A Node server whose event loop computes for 700 ms, on this machine beside `tailwater up`: what its clients lost is told with the loop as
//! the cause, and its thread by name. Agent-side detail is held in the agent's own tests.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::programs::daemons::{Daemon, ENDS_WITHIN, wait_for};
use tailwater_tests::programs::one_machine::{self, all};
use tailwater_tests::truth::netstat::Netstat;

const SERVER: ([u8; 4], u16) = ([127, 0, 0, 1], 8097);
const LISTENER: &str = "127.0.0.1:8097";
const BLOCKED_MS: u64 = 700;
/// Clients that ask all the time, and further ones that come while the loop is blocked: more than its queue of eight takes.
const CLIENTS: usize = 8;
const COME_MEANWHILE: usize = 40;
/// What is usual of it has to be known, and that its thread is a loop.
const KNOWN: Duration = Duration::from_secs(8);

const SCRIPT: &str = "
require('http').createServer((request, response) => {
  const spin = /spin=([0-9]+)/.exec(request.url);
  if (spin) { const end = Date.now() + Number(spin[1]); while (Date.now() < end) {} }
  response.end('done');
}).listen(8097, '127.0.0.1', 8);";

/// One request on a connection, and its answer, which comes in one piece.
fn ask(stream: &mut TcpStream, path: &str) -> Result<()> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    ensure!(stream.read(&mut [0; 4096])? > 0, "the server hung up");
    Ok(())
}

#[test]
fn privileged_a_node_server_that_computes_is_told_as_its_event_loop_with_the_thread() -> Result<()> {
    // How long the loop was away, and how much of that it computed, is the machine's doing as well.
    experiment("a loop that computes", computes_and_is_told)
}

fn computes_and_is_told() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (mut up, _) = one_machine::up(folder.path(), &[])?;
    let mut command = Command::new("node");
    command.args(["-e", SCRIPT]);
    let server = Daemon::spawn("node", command, folder.path().join("node.log"))?;
    wait_for("node to listen", Duration::from_secs(20), || {
        Ok(TcpStream::connect(SocketAddr::from(SERVER)).ok().map(drop))
    })?;
    let mut netstat = Netstat::open()?;
    let stop = AtomicBool::new(false);
    let before = std::thread::scope(|s| -> Result<u64> {
        for _ in 0..CLIENTS {
            s.spawn(|| -> Result<()> {
                let mut stream = TcpStream::connect(SocketAddr::from(SERVER))?;
                while !stop.load(Ordering::Relaxed) {
                    ask(&mut stream, "/")?;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            });
        }
        std::thread::sleep(KNOWN);
        let before = netstat.read()?.listen_drops;
        s.spawn(|| -> Result<()> {
            let mut stream = TcpStream::connect(SocketAddr::from(SERVER))?;
            ask(&mut stream, &format!("/?spin={BLOCKED_MS}"))
        });
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..COME_MEANWHILE {
            s.spawn(|| -> Result<()> {
                let mut stream = TcpStream::connect(SocketAddr::from(SERVER))?;
                ask(&mut stream, "/")
            });
        }
        std::thread::sleep(Duration::from_secs(4));
        stop.store(true, Ordering::Relaxed);
        Ok(before)
    })?;
    let dropped = netstat.read()?.listen_drops - before;
    let dropped_here = |i: &Value| all(i, "drops").iter().any(|d| d["listener"] == LISTENER);
    let found = one_machine::incidents(0, dropped_here)?;
    for incident in &found {
        println!("{}\n  {}", incident["title"], incident["root"]["evidence"]);
    }
    let [incident] = &found[..] else { panic!("one block, one incident: {found:#?}") };
    let root = &incident["root"];
    assert_eq!(root["resource"], "event_loop", "{root:#}");
    let told = &root["event_loop"];
    let pid = server.pid();
    assert_eq!((told["thread"].as_u64(), &told["comm"]), (Some(u64::from(pid)), &"node".into()), "{root:#}");
    let blocked_ms = told["blocked_ms"].as_u64().context("blocked_ms")?;
    assert!((BLOCKED_MS - 100..BLOCKED_MS + 300).contains(&blocked_ms), "{root:#}");
    // The agent and the clients share the two CPUs with it.
    assert!(told["ran_ratio"].as_f64().is_some_and(|r| r > 0.6), "{root:#}");
    let title = incident["title"].as_str().context("a title")?;
    for part in [
        "its event loop was blocked from ",
        &format!("thread `node` ({pid}) ran for {blocked_ms} ms without coming back to epoll_wait"),
    ] {
        assert!(title.contains(part), "{part:?} in {title}");
    }
    let [drops] = all(incident, "drops") else { panic!("one listener dropped: {incident:#}") };
    assert!(dropped > 0, "forty clients overflow a queue of eight");
    assert_eq!(drops["count"].as_u64(), Some(dropped), "what the kernel counted: {drops:#}");
    drop(server);
    up.terminate(ENDS_WITHIN)?;
    Ok(())
}

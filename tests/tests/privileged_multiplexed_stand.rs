//! An HTTP/2 server, four connections with many exchanges each, on this machine beside `tailwater up`: it is told as connections only, nothing
//! is said of its requests, and that it stood still is told all the same, whether its clients go on to ask meanwhile or wait.

#![allow(clippy::disallowed_methods, reason = "the test measures with its own clock")]

use anyhow::{Context, Result};
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tailwater_tests::disturbed::experiment;
use tailwater_tests::programs::daemons::{Daemon, ENDS_WITHIN, wait_for};
use tailwater_tests::programs::one_machine::{self, all, get};

const PORT: u16 = 8098;
const SERVER: ([u8; 4], u16) = ([127, 0, 0, 1], PORT);
const LISTENER: &str = "127.0.0.1:8098";
const CONNECTIONS: u32 = 4;
const STOPPED: Duration = Duration::from_millis(700);
/// What is usual of it has to be known.
const KNOWN: Duration = Duration::from_secs(9);

/// Answers after 10 to 30 ms.
const SERVE: &str = "
require('http2').createServer((request, response) => {
  setTimeout(() => response.end('done'), 10 + 20 * Math.random());
}).listen(8098, '127.0.0.1');";

/// What the server's clients are.
const ASK: &str = include_str!("../servers/http2-client.js");

fn node(folder: &Path, name: &str, script: &str, arguments: &[u32]) -> Result<Daemon> {
    let mut command = Command::new("node");
    command.args(["-e", script]).args(arguments.iter().map(u32::to_string));
    Daemon::spawn(name, command, folder.join(format!("{name}.log")))
}

/// The most and the least that a metric of the server's listener was lately, and in how many windows it had a value.
fn lately(host: &str, metric: &str) -> Result<Option<(f64, f64, usize)>> {
    let newest = get(&format!("/api/v1/series?host={host}&listener={LISTENER}&metric={metric}"))?;
    let newest = newest["newest_unix_ns"].as_u64().context("newest_unix_ns")?;
    let start = newest - 2_000_000_000;
    let path = format!("/api/v1/series?host={host}&listener={LISTENER}&metric={metric}&start={start}");
    let answer = get(&path)?;
    let points = all(&answer, "points");
    let values = |key: &str| points.iter().filter_map(|p| p[key].as_f64()).collect::<Vec<_>>();
    let (most, least) = (values("max"), values("min"));
    Ok((!points.is_empty()).then(|| {
        (
            most.iter().copied().fold(0.0, f64::max),
            least.iter().copied().fold(f64::MAX, f64::min),
            points.len(),
        )
    }))
}

#[test]
fn privileged_an_http2_server_that_stands_still_is_told_and_its_requests_are_not() -> Result<()> {
    // A machine that is taken away stands still itself, which is an incident more.
    experiment("an HTTP/2 server that stands still", stands_still_and_is_told)
}

fn stands_still_and_is_told() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (mut up, host) = one_machine::up(folder.path(), &[])?;
    let server = node(folder.path(), "server", SERVE, &[])?;
    wait_for("node to listen", Duration::from_secs(20), || {
        Ok(TcpStream::connect(SocketAddr::from(SERVER)).ok().map(drop))
    })?;
    for (told_before, load, [exchanges, rate]) in [(0, "open loop", [0, 1_000]), (1, "closed loop", [50, 0])]
    {
        let client = node(folder.path(), "client", ASK, &[u32::from(PORT), CONNECTIONS, exchanges, rate])?;
        std::thread::sleep(KNOWN);
        let connections = lately(&host, "multiplexed_connections")?;
        println!("{load}: {connections:?}");
        assert!(
            connections.is_some_and(|(most, least, _)| {
                least >= f64::from(CONNECTIONS) && most <= f64::from(2 * CONNECTIONS)
            }),
            "{load}: {connections:?}"
        );
        for metric in ["queued_requests", "requests_answered", "workers_busy", "response_time_ms"] {
            assert_eq!(lately(&host, metric)?, None, "{load}: {metric}");
        }
        let bytes = lately(&host, "multiplexed_bytes_in")?;
        assert!(bytes.is_some_and(|(most, ..)| most > 0.0), "{load}: {bytes:?}");

        let begun = Instant::now();
        server.signal(libc::SIGSTOP)?;
        std::thread::sleep(STOPPED);
        server.signal(libc::SIGCONT)?;
        // Where the machine is taken away it stands for longer than it was to.
        let stood_ms = begun.elapsed().as_millis() as u64;
        let here = |i: &Value| all(i, "hops").iter().any(|h| h["listener"] == LISTENER);
        let found = one_machine::incidents(told_before, here)?;
        for incident in &found {
            println!("{}\n  {}", incident["title"], incident["root"]["evidence"]);
        }
        assert_eq!(found.len(), told_before + 1, "one stand, one incident: {found:#?}");
        let told = |i: &&Value| i["start_unix_ns"].as_u64();
        let incident = found.iter().max_by_key(told).context("an incident")?;
        let (root, hops) = (&incident["root"], all(incident, "hops"));
        assert_eq!((&root["resource"], &root["unit"]), (&"pause".into(), &"threads".into()), "{incident:#}");
        let at = hops.iter().find(|h| h["role"] == "root").context("a root")?;
        assert_eq!(
            (&at["listener"], &at["connections_only"]),
            (&LISTENER.into(), &true.into()),
            "{incident:#}"
        );
        let ms = root["end_unix_ns"]
            .as_u64()
            .zip(root["start_unix_ns"].as_u64())
            .map(|(to, from)| (to - from) / 1_000_000);
        assert!(
            ms.is_some_and(|ms| (stood_ms.saturating_sub(100)..=stood_ms + 200).contains(&ms)),
            "it stood for {stood_ms} ms: {incident:#}"
        );
        let title = incident["title"].as_str().context("a title")?;
        for part in ["connections only", "stood still", "stopped by a signal (SIGSTOP)"] {
            assert!(title.contains(part), "{part:?} in {title}");
        }
        assert!(!title.contains("requests") && all(incident, "drops").is_empty(), "{incident:#}");
        drop(client);
    }
    drop(server);
    up.terminate(ENDS_WITHIN)?;
    Ok(())
}

//! An HTTP/2 server, four connections with many exchanges each, on this machine beside `tailwater up`: it is told as connections only, nothing
//! is said of its requests, and that it stood still is told all the same, whether its clients go on to ask meanwhile or wait.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tailwater_tests::programs::daemons::{Daemon, binary, http_get, wait_for};

/// Where `tailwater up` has its page when nothing is configured.
const HTTP: ([u8; 4], u16) = ([127, 0, 0, 1], 4780);
const SERVER: ([u8; 4], u16) = ([127, 0, 0, 1], 8098);
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

/// On each connection so many exchanges at a time, each followed by another one once it is answered, or so many a second at random.
const ASK: &str = "
const [exchanges, rate] = process.argv.slice(1).map(Number);
const sessions = [];
function ask(session, then) {
  const stream = session.request({ ':path': '/' });
  stream.on('error', () => {});
  stream.on('end', then);
  stream.resume();
  stream.end();
}
for (let n = 0; n < 4; n++) {
  const session = require('http2').connect('http://127.0.0.1:8098');
  session.on('error', () => {});
  sessions.push(session);
  const again = () => ask(session, again);
  for (let i = 0; i < exchanges; i++) again();
}
if (rate) {
  let next = performance.now();
  setInterval(() => {
    for (; next <= performance.now(); next -= 1000 / rate * Math.log(1 - Math.random())) {
      ask(sessions[Math.floor(4 * Math.random())], () => {});
    }
  }, 1);
}";

/// Ends with the test, however it ends.
struct Program(Child);

impl Program {
    fn start(script: &str, arguments: &[u32]) -> Result<Self> {
        let arguments = arguments.iter().map(u32::to_string);
        let child = Command::new("node").args(["-e", script]).args(arguments).stdin(Stdio::null()).spawn()?;
        Ok(Self(child))
    }

    fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: kill takes plain integers; the process is a child that is not reaped.
        let sent = unsafe { libc::kill(i32::try_from(self.0.id())?, signal) };
        ensure!(sent == 0, "kill: {}", std::io::Error::last_os_error());
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(path: &str) -> Result<Value> {
    let (code, body) = http_get(SocketAddr::from(HTTP), path)?;
    ensure!(code == 200, "GET {path}: {code} {body}");
    Ok(serde_json::from_str(&body)?)
}

fn all<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn up(folder: &Path) -> Result<(Daemon, String)> {
    let mut command = Command::new(binary("tailwater")?);
    command.args(["up", "--data", "./data"]).current_dir(folder);
    let mut daemon = Daemon::spawn("tailwater up", command, folder.join("up.log"))?;
    let host = wait_for("the agent of `tailwater up` to send windows", Duration::from_secs(60), || {
        if let Some(status) = daemon.exited()? {
            anyhow::bail!("tailwater up exited: {status}\n{}", daemon.output());
        }
        let topology = get("/api/v1/topology").unwrap_or_default();
        Ok(all(&topology, "nodes").first().and_then(|n| n["host"].as_str()).map(str::to_owned))
    })?;
    Ok((daemon, host))
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

/// Incidents whose chain has the server, once there are more than before and all of them are closed.
fn incidents(more_than: usize) -> Result<Vec<Value>> {
    wait_for("the stand to be told, and over", Duration::from_secs(60), || {
        let answer = get("/api/v1/incidents")?;
        let list = answer.as_array().map_or_else(|| all(&answer, "incidents"), Vec::as_slice);
        let here = |i: &&Value| all(i, "hops").iter().any(|h| h["listener"] == LISTENER);
        let found: Vec<Value> = list.iter().filter(here).cloned().collect();
        let over = found.len() > more_than && found.iter().all(|i| i["state"] == "closed");
        Ok(over.then_some(found))
    })
}

#[test]
fn privileged_an_http2_server_that_stands_still_is_told_and_its_requests_are_not() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (mut up, host) = up(folder.path())?;
    let server = Program::start(SERVE, &[])?;
    wait_for("node to listen", Duration::from_secs(20), || {
        Ok(TcpStream::connect(SocketAddr::from(SERVER)).ok().map(drop))
    })?;
    for (told_before, load, arguments) in [(0, "open loop", [0, 1_000]), (1, "closed loop", [50, 0])] {
        let client = Program::start(ASK, &arguments)?;
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

        server.signal(libc::SIGSTOP)?;
        std::thread::sleep(STOPPED);
        server.signal(libc::SIGCONT)?;
        let found = incidents(told_before)?;
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
        assert!(ms.is_some_and(|ms| (600..=900).contains(&ms)), "{incident:#}");
        let title = incident["title"].as_str().context("a title")?;
        for part in ["connections only", "stood still", "stopped by a signal (SIGSTOP)"] {
            assert!(title.contains(part), "{part:?} in {title}");
        }
        assert!(!title.contains("requests") && all(incident, "drops").is_empty(), "{incident:#}");
        drop(client);
    }
    drop(server);
    up.terminate(Duration::from_secs(5))?;
    Ok(())
}

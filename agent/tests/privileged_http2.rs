//! HTTP/2 as real servers and clients speak it on one machine: connections of Node and nginx are recognised on both sides, whatever the
//! load's shape, and real protocols that take turns never are. Each test has a network namespace of its own.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod kernel;
mod net_probe;

use net_probe::namespace::apart;
use net_probe::{Probe, namespace, until_it_listens};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tailwater_agent::window::{CallSample, RequestSample};

const PORT: u16 = 8_092;
const BACKEND: u16 = 8_093;
const CONNECTIONS: u32 = 4;

/// Ends with the test, however it ends.
struct Program(Child);

impl Program {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).unwrap();
        // SAFETY: signals the child that this value owns; it is reaped below, so the id is still its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

/// A server of HTTP/2 or HTTP/1.1 that answers after so many milliseconds, give or take a part of them. At a signal it computes for 700 ms.
const SERVER: &str = "
const [kind, port, ms, give] = process.argv.slice(1);
const answer = (request, response) => {
  const wait = Number(ms) * (1 + Number(give) * (2 * Math.random() - 1));
  if (wait > 0) setTimeout(() => response.end('done'), wait); else response.end('done');
};
process.on('SIGUSR2', () => { const end = Date.now() + 700; while (Date.now() < end) {} });
require(kind).createServer({ keepAliveTimeout: 60000 }, answer).listen(Number(port), '127.0.0.1');";

/// A client of HTTP/2.
const CLIENT: &str = include_str!("../../tests/servers/http2-client.js");

fn node(script: &str, arguments: &[&str]) -> Program {
    Program::start(Command::new("node").args(["-e", script]).args(arguments))
}

fn node_server(kind: &str, port: u16, ms: &str, give: &str) -> Program {
    let server = node(SERVER, &[kind, &port.to_string(), ms, give]);
    until_it_listens(port);
    server
}

/// nginx that answers itself, or asks a server behind it.
fn nginx(folder: &Path, location: &str) -> Program {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let at = folder.display();
    let file = folder.join("nginx.conf");
    let kept = "proxy_http_version 1.1; proxy_set_header Connection \"\";";
    std::fs::write(
        &file,
        format!(
            "worker_processes 1; daemon off; pid {at}/pid; error_log {at}/error.log; events {{}}\n\
             http {{ access_log off; client_body_temp_path {at}/t1; proxy_temp_path {at}/t2; fastcgi_temp_path {at}/t3;\n\
             uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5; keepalive_requests 1000000;\n\
             upstream behind {{ server 127.0.0.1:{BACKEND}; keepalive 256; }}\n\
             server {{ listen 127.0.0.1:{PORT} http2; location / {{ {kept} {location} }} }} }}\n"
        ),
    )
    .unwrap();
    let log = folder.join("start.log");
    let server = Program::start(Command::new("/usr/sbin/nginx").arg("-e").arg(log).arg("-c").arg(file));
    until_it_listens(PORT);
    server
}

/// What was told of the fourth and fifth second of such a load, at the server and at its client.
fn under_load(exchanges: u32, rate: u32) -> (RequestSample, CallSample) {
    let mut probe = Probe::attach();
    let arguments = [u32::from(PORT), CONNECTIONS, exchanges, rate].map(|n| n.to_string());
    let client = node(CLIENT, &arguments.each_ref().map(String::as_str));
    let drain = |probe: &mut Probe, ms: u64| {
        for _ in 0..ms / 10 {
            std::thread::sleep(Duration::from_millis(10));
            probe.drain();
        }
    };
    drain(&mut probe, 3_000);
    probe.windows.clear();
    drain(&mut probe, 2_000);
    let at = (namespace::inode(), PORT);
    let told = (probe.requests(at), probe.calls(at));
    drop(client);
    told
}

#[test]
fn privileged_http2_of_node_and_nginx_is_recognised_in_open_and_closed_loops() {
    let proxied = "proxy_pass http://behind;";
    let mut missed = Vec::new();
    // Under a few requests a millisecond a server that answers at once has one exchange at a time, and its turns are its requests: no case here.
    for (name, location, ms, give, exchanges, rate) in [
        ("node at once, closed loop", "", "0", "0", 50, 0),
        ("node after 20 ms, closed loop", "", "20", "0", 50, 0),
        ("node after 10 to 30 ms, closed loop", "", "20", "0.5", 50, 0),
        ("node after 10 to 30 ms, open loop", "", "20", "0.5", 0, 1_000),
        ("nginx at once, closed loop", "return 200 done;", "", "", 50, 0),
        ("nginx before node after 10 to 30 ms, closed loop", proxied, "20", "0.5", 50, 0),
        ("nginx before node after 10 to 30 ms, open loop", proxied, "20", "0.5", 0, 1_000),
    ] {
        let folder = tempfile::tempdir().unwrap();
        apart(|| {
            let _servers = match location {
                "" => vec![node_server("http2", PORT, ms, give)],
                "return 200 done;" => vec![nginx(folder.path(), location)],
                _ => {
                    vec![node_server("http", BACKEND, ms, give), nginx(folder.path(), location)]
                }
            };
            let (requests, calls) = under_load(exchanges, rate);
            let (came, went) = (requests.multiplexed, calls.multiplexed);
            println!(
                "{name}: server {} of {CONNECTIONS}, {} pieces in, {} out, {} turns, {} in flight; client {}, {} out, {} in, {} turns",
                came.connections,
                came.pieces_in,
                came.pieces_out,
                requests.received,
                requests.in_flight_max,
                went.connections,
                went.pieces_out,
                went.pieces_in,
                calls.started,
            );
            if (came.connections, went.connections) != (CONNECTIONS, CONNECTIONS) {
                missed.push(name);
            }
        });
    }
    assert_eq!(missed, [""; 0]);
}

#[test]
fn privileged_node_that_computes_while_http2_comes_in_did_not_come_back() {
    // A loop whose CPU somebody takes does not come back either.
    let test = || {
        let server = node_server("http2", PORT, "10", "0.5");
        let mut probe = Probe::attach();
        // Requests come in at their own rate as well: those that only follow answers may all have been read when the loop begins to compute,
        // and then nobody waits unread until it has ended.
        let arguments = [u32::from(PORT), CONNECTIONS, 20, 500].map(|n| n.to_string());
        let _client = node(CLIENT, &arguments.each_ref().map(String::as_str));
        let mut drain = |ms: u64| {
            for _ in 0..ms / 5 {
                std::thread::sleep(Duration::from_millis(5));
                probe.drain();
            }
            std::mem::take(&mut probe.windows)
        };
        let before = drain(3_500);
        let early: usize = before.iter().map(|w| w.blocked_loops.len()).sum();
        assert_eq!(early, 0, "told of a loop that turns");
        let came = before.last().unwrap().requests.iter().flatten().find(|(k, _)| k.port == PORT);
        assert_eq!(came.map(|(_, r)| r.multiplexed.connections), Some(CONNECTIONS));
        // SAFETY: kill takes plain integers; the process is a child that is not reaped.
        assert_eq!(unsafe { libc::kill(i32::try_from(server.0.id()).unwrap(), libc::SIGUSR2) }, 0);
        let told: Vec<_> = drain(1_500).into_iter().flat_map(|w| w.blocked_loops).collect();
        let (span, ran) = told.iter().fold((0, 0), |(span, ran), l| (span + l.span_ns, ran + l.ran_ns));
        assert!(told.iter().all(|l| l.thread == server.0.id() && l.comm == "node"), "{told:#?}");
        assert!((350_000_000..=700_000_000).contains(&span) && 10 * ran >= 6 * span, "{told:#?}");
    };
    kernel::experiment("a loop that computes behind HTTP/2", || apart(test));
}

fn done(command: &mut Command) {
    assert!(command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success(), "{command:?}");
}

#[test]
fn privileged_redis_and_postgresql_take_turns_with_pipelines_too() {
    let folder = tempfile::tempdir().unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    apart(|| {
        let port = PORT.to_string();
        let _redis = Program::start(
            Command::new("redis-server")
                .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
                .arg(folder.path()),
        );
        until_it_listens(PORT);
        let (binaries, data) = ("/usr/lib/postgresql/15/bin", folder.path().join("data"));
        let as_its_user = |program: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
            command.arg(format!("{binaries}/{program}")).current_dir(folder.path());
            command
        };
        done(as_its_user("initdb").args(["-A", "trust", "-N", "-D"]).arg(&data));
        let behind = BACKEND.to_string();
        let _postgres = Program::start(as_its_user("postgres").arg("-D").arg(&data).args([
            "-h",
            "127.0.0.1",
            "-p",
            &behind,
            "-k",
            "",
        ]));
        until_it_listens(BACKEND);
        let mut probe = Probe::attach();
        let multiplexed = |probe: &mut Probe, what: &str| {
            probe.drain_past_now();
            for port in [PORT, BACKEND] {
                let at = (namespace::inode(), port);
                let (requests, calls) = (probe.requests(at), probe.calls(at));
                println!("{what}, {port}: {} requests, {} calls", requests.answered, calls.answered);
                let found = (requests.multiplexed.connections, calls.multiplexed.connections);
                assert_eq!(found, (0, 0), "{what}, {port}: {requests:?}");
            }
            probe.windows.clear();
        };
        for (pipeline, bytes) in [("1", "100"), ("16", "100"), ("50", "2000")] {
            let many = ["-t", "set,get", "-n", "20000", "-c", "4", "-P", pipeline, "-d", bytes, "-q"];
            probe.until_done(
                Command::new("redis-benchmark").args(["-h", "127.0.0.1", "-p", &port]).args(many),
            );
            multiplexed(&mut probe, &format!("Redis, {pipeline} commands of {bytes} bytes at once"));
        }
        let mut fill = as_its_user("pgbench");
        fill.args(["-h", "127.0.0.1", "-p", &behind, "-q", "-i", "-s", "1", "postgres"]);
        probe.until_done(fill.stderr(Stdio::null()));
        multiplexed(&mut probe, "PostgreSQL, a table that is filled");
        for protocol in ["simple", "extended", "prepared"] {
            let mut command = as_its_user("pgbench");
            command.args(["-h", "127.0.0.1", "-p", &behind, "-c", "4", "-T", "1", "-n", "-M", protocol]);
            probe.until_done(command.arg("postgres").stderr(Stdio::null()));
            multiplexed(&mut probe, &format!("PostgreSQL, {protocol}"));
        }
    });
}

//! HTTP/2 as real servers and clients speak it on one machine: connections of Node and nginx are recognised on both sides, whatever the
//! load's shape, and real protocols that take turns never are; where the headers of frames are read (`frame_headers`), its streams are counted, by Node
//! and by sockets that part them as no program does. Each test has a network namespace of its own.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod kernel;
mod net_probe;

use net_probe::namespace::apart;
use net_probe::{Probe, namespace, until_it_listens};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
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

/// A client of HTTP/2 that asks so many times, once a millisecond, on each connection in turn, and ends when all are answered.
const COUNTING_CLIENT: &str = "
const [port, connections, exchanges] = process.argv.slice(1).map(Number);
const sessions = Array.from({ length: connections }, () => require('http2').connect('http://127.0.0.1:' + port));
let asked = 0, answered = 0;
const ask = () => {
  const stream = sessions[asked++ % connections].request({ ':path': '/' });
  stream.on('end', () => { if (++answered === exchanges) sessions.forEach((session) => session.close()); });
  stream.resume();
  stream.end();
};
let next = performance.now();
const timer = setInterval(() => {
  for (; asked < exchanges && next <= performance.now(); next++) ask();
  if (asked === exchanges) clearInterval(timer);
}, 1);";

/// Within two of a hundred.
fn nearly(what: &str, is: u64, expected: u64) {
    assert!(50 * is.abs_diff(expected) <= expected, "{what}: {is} of {expected}");
}

#[test]
fn privileged_streams_of_node_are_counted_by_the_headers_of_their_frames() {
    const EXCHANGES: u64 = 3_000;
    apart(|| {
        let mut probe = Probe::attach_with_frame_headers();
        let _server = node_server("http2", PORT, "20", "0");
        let arguments = [u64::from(PORT), u64::from(CONNECTIONS), EXCHANGES].map(|n| n.to_string());
        probe.until_done(Command::new("node").args(["-e", COUNTING_CLIENT]).args(&arguments));
        probe.drain_past_now();
        let at = (namespace::inode(), PORT);
        let (requests, calls) = (probe.requests(at), probe.calls(at));
        println!("{requests:?}\n{calls:?}\n{:?}", probe.net.kernel_losses());
        nearly("received", requests.received, EXCHANGES);
        nearly("answered", requests.answered, EXCHANGES);
        nearly("started", calls.started, EXCHANGES);
        nearly("calls answered", calls.answered, EXCHANGES);
        assert_eq!((requests.multiplexed.connections, calls.multiplexed.connections), (0, 0));
        assert_eq!((requests.in_flight_last, calls.in_flight_last), (0, 0));
        assert_eq!(requests.open_max, CONNECTIONS, "{requests:?}");
        // What the levels had in sum is what the answers took.
        nearly("in flight", requests.in_flight_ns + requests.unread_ns, requests.response_ns);
        nearly("calls in flight", calls.in_flight_ns, calls.response_ns);
        for took in [requests.response_ns / requests.answered, calls.response_ns / calls.answered] {
            assert!((19_000_000..=30_000_000).contains(&took), "{took} ns");
        }
    });
}

#[test]
fn privileged_requests_on_streams_lie_unread_while_their_server_stands() {
    let test = || {
        let mut probe = Probe::attach_with_frame_headers();
        let server = node_server("http2", PORT, "20", "0");
        let arguments = [u32::from(PORT), CONNECTIONS, 0, 1_000].map(|n| n.to_string());
        let _client = node(CLIENT, &arguments.each_ref().map(String::as_str));
        let drain = |probe: &mut Probe, ms: u64| {
            for _ in 0..ms / 10 {
                std::thread::sleep(Duration::from_millis(10));
                probe.drain();
            }
        };
        let at = (namespace::inode(), PORT);
        drain(&mut probe, 1_500);
        let (before, calls_before) = (probe.requests(at), probe.calls(at));
        assert!(before.unread_max < 200 && calls_before.in_flight_max < 300, "{before:?}\n{calls_before:?}");
        probe.windows.clear();
        // SAFETY: kill takes plain integers; the process is a child that is not reaped.
        assert_eq!(unsafe { libc::kill(i32::try_from(server.0.id()).unwrap(), libc::SIGUSR2) }, 0);
        drain(&mut probe, 1_500);
        let (requests, calls) = (probe.requests(at), probe.calls(at));
        println!("{requests:?}\n{calls:?}\n{:?}", probe.net.kernel_losses());
        // A thousand a second came for 0.7 s, and half of them waited on average.
        assert!((500..=1_000).contains(&requests.unread_max), "{requests:?}");
        assert!((120_000_000_000..=500_000_000_000).contains(&requests.unread_ns), "{requests:?}");
        assert!((500..=1_000).contains(&calls.in_flight_max), "{calls:?}");
        assert!(requests.response_max_ns > 500_000_000, "{requests:?}");
        assert_eq!((requests.multiplexed.connections, calls.multiplexed.connections), (0, 0));
    };
    kernel::experiment("a server of HTTP/2 that stands", || apart(test));
}

#[test]
fn privileged_http1_takes_turns_where_the_headers_of_frames_are_read() {
    const EACH: u64 = 100;
    apart(|| {
        let mut probe = Probe::attach_with_frame_headers();
        let _server = node_server("http", PORT, "1", "0");
        for _ in 0..2 {
            let mut stream = TcpStream::connect(("127.0.0.1", PORT)).unwrap();
            for _ in 0..EACH {
                stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").unwrap();
                let (mut answer, mut part) = (Vec::new(), [0; 4_096]);
                while !answer.windows(4).any(|end| end == b"done") {
                    let bytes = stream.read(&mut part).unwrap();
                    assert_ne!(bytes, 0, "no answer");
                    answer.extend_from_slice(&part[..bytes]);
                }
                probe.drain();
            }
        }
        probe.drain_past_now();
        let at = (namespace::inode(), PORT);
        let (requests, calls) = (probe.requests(at), probe.calls(at));
        assert_eq!((requests.answered, calls.answered), (2 * EACH, 2 * EACH), "{requests:?}\n{calls:?}");
        assert_eq!((requests.multiplexed.connections, calls.multiplexed.connections), (0, 0));
        assert_eq!(probe.net.kernel_losses().connections_unfollowed, 0);
    });
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

/// With what a client begins before its first frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame (RFC 9113, 4.1) that holds these bytes.
fn holding(kind: u8, stream: u32, bytes: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(bytes.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, 0]);
    frame.extend(stream.to_be_bytes());
    frame.extend(bytes);
    frame
}

/// One that holds so many.
fn frame(kind: u8, stream: u32, bytes: usize) -> Vec<u8> {
    holding(kind, stream, &vec![b'x'; bytes])
}

/// Both ends of a connection of HTTP/2 that the test speaks itself.
struct Ends {
    client: TcpStream,
    server: TcpStream,
}

/// Sends in pieces of so many bytes, each in a segment of its own, and has all of it read.
fn say(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8], piece: usize) {
    for part in bytes.chunks(piece) {
        from.write_all(part).unwrap();
    }
    to.read_exact(&mut vec![0; bytes.len()]).unwrap();
}

impl Ends {
    /// They have greeted each other; settings come in pieces, but for those that come first.
    fn greeted(listener: &TcpListener, server_first: bool) -> Self {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let mut ends = Self { client, server };
        if server_first {
            ends.answer(&frame(SETTINGS, 0, 6), 1_000);
        }
        ends.ask(PREFACE, 10);
        ends.ask(&frame(SETTINGS, 0, 12), 1);
        if !server_first {
            ends.answer(&frame(SETTINGS, 0, 6), 1_000);
        }
        ends
    }

    fn ask(&mut self, bytes: &[u8], piece: usize) {
        say(&mut self.client, &mut self.server, bytes, piece);
    }

    fn answer(&mut self, bytes: &[u8], piece: usize) {
        say(&mut self.server, &mut self.client, bytes, piece);
    }
}

#[test]
fn privileged_headers_of_frames_are_found_however_they_are_parted() {
    apart(|| {
        let mut probe = Probe::attach_with_frame_headers();
        let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
        let at = (namespace::inode(), PORT);
        for (server_first, of_each) in [(true, 1), (false, 2)] {
            let mut ends = Ends::greeted(&listener, server_first);
            for piece in 1..=5 {
                ends.ask(&frame(HEADERS, 2 * u32::try_from(piece).unwrap() - 1, 20), piece);
            }
            // What goes on with a stream, or is of none, begins none.
            ends.ask(&frame(CONTINUATION, 9, 7), 3);
            ends.ask(&frame(DATA, 9, 30), 4);
            ends.ask(&frame(HEADERS, 9, 5), 2);
            ends.ask(&[frame(PING, 0, 8), frame(HEADERS, 11, 20), frame(HEADERS, 13, 20)].concat(), 1_000);
            // A frame may hold what looks like others.
            let alike: Vec<u8> = (0..1_500).flat_map(|n| frame(HEADERS, 101 + 2 * n, 4)).collect();
            ends.ask(&[holding(DATA, 13, &alike), frame(HEADERS, 15, 20)].concat(), 40_000);
            // Eight are asked for. Three are answered, once each, and two reset, by the one side and the other.
            ends.answer(&frame(HEADERS, 1, 20), 2);
            ends.answer(&frame(DATA, 1, 100), 64);
            ends.answer(&frame(HEADERS, 1, 5), 1);
            let two = [frame(HEADERS, 13, 9), frame(HEADERS, 3, 9), holding(DATA, 3, &alike)];
            ends.answer(&two.concat(), 40_000);
            ends.answer(&frame(HEADERS, 2, 5), 5);
            ends.ask(&frame(RST_STREAM, 5, 4), 5);
            ends.answer(&frame(RST_STREAM, 7, 4), 3);
            ends.answer(&frame(RST_STREAM, 1, 4), 3);
            probe.drain_past_now();
            let (requests, calls) = (probe.requests(at), probe.calls(at));
            let told = (requests.received, requests.answered, requests.aborted, requests.in_flight_last);
            let before = 3 * (of_each - 1);
            assert_eq!(told, (8 * of_each, 3 * of_each, 2 * of_each + before, 3), "{requests:?}");
            let told = (calls.started, calls.answered, calls.aborted, calls.in_flight_last);
            assert_eq!(told, (8 * of_each, 3 * of_each, 2 * of_each + before, 3), "{calls:?}");
            drop(ends);
            probe.drain_until("what was open is aborted", |p| p.requests(at).aborted == 5 * of_each);
            probe.drain_until("calls as well", |p| p.calls(at).aborted == 5 * of_each);
            let (requests, calls) = (probe.requests(at), probe.calls(at));
            assert_eq!((requests.in_flight_last, calls.in_flight_last), (0, 0));
            assert_eq!((requests.multiplexed.connections, calls.multiplexed.connections), (0, 0));
        }
        assert_eq!(probe.net.kernel_losses().connections_unfollowed, 0);
    });
}

/// Has what comes to the port thrown away before the stack sees it, or no longer.
fn throw_away(on: bool) {
    let rules = if on {
        format!(
            "table inet lossy {{\n chain c {{\n type filter hook input priority 0\n tcp dport {PORT} drop\n }}\n}}\n"
        )
    } else {
        "delete table inet lossy\n".to_owned()
    };
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "nft: install the Debian package nftables");
}

#[test]
fn privileged_a_segment_that_comes_again_counts_once_and_a_missed_header_ends_it() {
    apart(|| {
        let mut probe = Probe::attach_with_frame_headers();
        let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
        let at = (namespace::inode(), PORT);
        let mut ends = Ends::greeted(&listener, true);
        ends.ask(&frame(HEADERS, 1, 20), 1_000);
        // Lost on the way, and sent again by the stack.
        throw_away(true);
        ends.client.write_all(&frame(HEADERS, 3, 20)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        throw_away(false);
        ends.server.read_exact(&mut [0; 29]).unwrap();
        probe.drain_past_now();
        let (requests, calls) = (probe.requests(at), probe.calls(at));
        assert_eq!((requests.received, requests.in_flight_last), (2, 2), "{requests:?}");
        assert_eq!((calls.started, calls.in_flight_last), (2, 2), "{calls:?}");
        assert_eq!(probe.net.kernel_losses().connections_unfollowed, 0);
        // Lost where another one comes before it is sent again (after 200 ms): who sent them knows of both, who gets them of none any more.
        throw_away(true);
        ends.client.write_all(&frame(HEADERS, 5, 20)).unwrap();
        throw_away(false);
        ends.client.write_all(&frame(HEADERS, 7, 20)).unwrap();
        ends.server.read_exact(&mut [0; 58]).unwrap();
        probe.drain_past_now();
        let (requests, calls) = (probe.requests(at), probe.calls(at));
        // What is not followed any more did not end without an answer.
        let told = (requests.received, requests.aborted, requests.in_flight_last);
        assert_eq!((told, requests.multiplexed.connections), ((2, 0, 0), 1), "{requests:?}");
        let told = (calls.started, calls.aborted, calls.in_flight_last);
        assert_eq!((told, calls.multiplexed.connections), ((4, 0, 4), 0), "{calls:?}");
        assert_eq!(probe.net.kernel_losses().connections_unfollowed, 1);
        // From there on it is as if nothing were read of it.
        ends.ask(&frame(HEADERS, 9, 20), 1_000);
        probe.drain_past_now();
        assert_eq!(probe.requests(at).received, 2);
        drop(ends);
        probe.drain_past_now();
        assert_eq!(probe.calls(at).in_flight_last, 0);
    });
}

#[test]
fn privileged_more_frames_in_a_packet_than_are_looked_at_end_the_following_of_both_ends() {
    apart(|| {
        let mut probe = Probe::attach_with_frame_headers();
        let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
        let at = (namespace::inode(), PORT);
        let mut ends = Ends::greeted(&listener, true);
        let many = |frames: u32| -> Vec<u8> { (0..frames).flat_map(|_| frame(DATA, 1, 0)).collect() };
        ends.ask(&[frame(HEADERS, 1, 20), many(500), frame(HEADERS, 3, 20)].concat(), 60_000);
        probe.drain_past_now();
        let (requests, calls) = (probe.requests(at), probe.calls(at));
        assert_eq!((requests.in_flight_last, calls.in_flight_last), (2, 2), "{requests:?}\n{calls:?}");
        ends.ask(&many(520), 60_000);
        probe.drain_past_now();
        let (requests, calls) = (probe.requests(at), probe.calls(at));
        assert_eq!((requests.in_flight_last, calls.in_flight_last), (0, 0), "{requests:?}\n{calls:?}");
        assert_eq!((requests.multiplexed.connections, calls.multiplexed.connections), (1, 1));
        assert_eq!(probe.net.kernel_losses().connections_unfollowed, 2);
    });
}

#[test]
fn privileged_more_open_streams_than_one_connection_may_have_end_the_following_of_both_ends() {
    const EACH: u32 = 450;
    apart(|| {
        let mut probe = Probe::attach_with_frame_headers();
        let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
        let at = (namespace::inode(), PORT);
        let mut ends = Ends::greeted(&listener, true);
        let opened = |batch: u32| -> Vec<u8> {
            (0..EACH).flat_map(|n| frame(HEADERS, 2 * (batch * EACH + n) + 1, 0)).collect()
        };
        (0..9).for_each(|batch| ends.ask(&opened(batch), 60_000));
        probe.drain_past_now();
        let (requests, calls) = (probe.requests(at), probe.calls(at));
        let open = (requests.in_flight_last, calls.in_flight_last);
        assert_eq!(open, (4_050, 4_050), "{requests:?}\n{calls:?}");
        ends.ask(&opened(9), 60_000);
        probe.drain_past_now();
        let (requests, calls) = (probe.requests(at), probe.calls(at));
        assert_eq!((requests.in_flight_last, calls.in_flight_last), (0, 0), "{requests:?}\n{calls:?}");
        assert_eq!((requests.aborted, calls.aborted), (0, 0), "{requests:?}\n{calls:?}");
        assert_eq!((requests.multiplexed.connections, calls.multiplexed.connections), (1, 1));
        let losses = probe.net.kernel_losses();
        assert_eq!((losses.connections_unfollowed, losses.streams_untracked), (2, 0), "{losses:?}");
    });
}

#[test]
fn privileged_a_connection_that_is_followed_tells_how_long_it_waited_to_be_accepted() {
    apart(|| {
        let mut probe = Probe::attach_with_frame_headers();
        let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
        let at = (namespace::inode(), PORT);
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let asked = [PREFACE.to_vec(), frame(SETTINGS, 0, 0), frame(HEADERS, 1, 20)].concat();
        client.write_all(&asked).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let (mut server, _) = listener.accept().unwrap();
        server.read_exact(&mut vec![0; asked.len()]).unwrap();
        probe.drain_past_now();
        let (queue, requests) = (probe.queue(at), probe.requests(at));
        assert_eq!((requests.received, requests.in_flight_last), (1, 1), "{requests:?}");
        assert!(queue.wait_max_ns >= 100_000_000, "{queue:?}");
    });
}

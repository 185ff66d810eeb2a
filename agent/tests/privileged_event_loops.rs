//! Real event loops that do not come back: Node, Redis and a tokio runtime, each in a network namespace of its own, beside servers
//! and loops that must not be told of.
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod kernel;
mod net_probe;

use kernel::{Cgroup, Spinner};
use net_probe::{Probe, StopAtEnd, namespace, until_it_listens};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tailwater_agent::window::BlockedLoop;

const PORT: u16 = 8_090;
/// How long the loops are blocked.
const BLOCKED: Duration = Duration::from_millis(700);
const BLOCKED_NS: u64 = 700_000_000;
/// Who asks all the time, each on a connection that is kept.
const CLIENTS: usize = 8;

/// In a network namespace of its own; once more where the machine was taken away, as a loop whose CPU somebody takes does not come back either.
fn apart(test: impl Fn() + Send + Sync) {
    kernel::experiment("blocked loops", || namespace::apart(&test));
}

/// Ends with the test, however it ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const NODE: &str = "
const http = require('http'), fs = require('fs'), url = require('url');
function spin(ms) { const end = Date.now() + ms; while (Date.now() < end) {} }
http.createServer((request, response) => {
  const query = url.parse(request.url, true).query;
  if (query.spin) spin(Number(query.spin));
  if (query.read) fs.readFileSync(query.read);
  response.end('done');
}).listen(Number(process.argv[2]), '127.0.0.1');";

fn node_command(folder: &Path) -> String {
    let script = folder.join("server.js");
    std::fs::write(&script, NODE).unwrap();
    format!("node {} {PORT}", script.display())
}

fn node(folder: &Path) -> Server {
    let command = node_command(folder);
    let (program, arguments) = command.split_once(' ').unwrap();
    let child = Command::new(program).args(arguments.split(' ')).stdin(Stdio::null()).spawn().unwrap();
    let server = Server(child);
    until_it_listens(PORT);
    server
}

/// One request over HTTP on a connection that is kept.
fn http(stream: &mut BufReader<TcpStream>, path: &str) {
    write!(stream.get_mut(), "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut length = 0;
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the server hung up");
        if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = n.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
}

/// One request that is a line, as is its answer: Redis, and the servers of this file.
fn line(stream: &mut BufReader<TcpStream>, request: &str) {
    write!(stream.get_mut(), "{request}\r\n").unwrap();
    let mut answer = String::new();
    assert!(stream.read_line(&mut answer).unwrap() > 0, "the server hung up");
}

fn connect() -> BufReader<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", PORT)).unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::new(stream)
}

type Ask = fn(&mut BufReader<TcpStream>, &str);

/// Clients ask `quick` every `pause`; after two seconds one asks `slow`, and `meanwhile` is done. What was told from then until a second
/// after the end of the block, and how many answers the clients had.
fn under_load(
    ask: Ask,
    quick: &str,
    pause: Duration,
    slow: &str,
    meanwhile: impl FnOnce() + Send,
) -> (Vec<BlockedLoop>, u64) {
    let mut probe = Probe::attach();
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let (told, early) = std::thread::scope(|s| {
        let _end = StopAtEnd(&stop);
        for _ in 0..CLIENTS {
            s.spawn(|| {
                let mut stream = connect();
                while !stop.load(Ordering::Relaxed) {
                    ask(&mut stream, quick);
                    answered.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(pause);
                }
            });
        }
        let drain = |probe: &mut Probe, time: Duration| {
            for _ in 0..time.as_millis() / 5 {
                std::thread::sleep(Duration::from_millis(5));
                probe.drain();
            }
        };
        drain(&mut probe, Duration::from_millis(2200));
        let before = probe.windows.len();
        let early: usize = probe.windows.iter().map(|w| w.blocked_loops.len()).sum();
        s.spawn(|| {
            if !slow.is_empty() {
                ask(&mut connect(), slow);
            }
        });
        s.spawn(meanwhile);
        drain(&mut probe, BLOCKED + Duration::from_millis(800));
        let told = probe.windows.split_off(before).into_iter().flat_map(|w| w.blocked_loops);
        (told.collect::<Vec<_>>(), early)
    });
    assert_eq!(early, 0, "told of a loop that turns");
    (told, answered.into_inner())
}

fn sums(told: &[BlockedLoop]) -> (u64, u64, u64) {
    let sum = |of: fn(&BlockedLoop) -> u64| told.iter().map(of).sum();
    (sum(|l| l.span_ns), sum(|l| l.ran_ns), sum(|l| l.waited_ns))
}

/// Of 700 ms the first and the last window are told of nobody, and the look at the first whole one is what the next is held against.
fn assert_blocked(told: &[BlockedLoop], thread: u32, comm: &str) {
    let (span, ..) = sums(told);
    assert!((BLOCKED_NS / 2..=BLOCKED_NS).contains(&span), "{span} ns: {told:#?}");
    assert!(told.iter().all(|l| l.thread == thread && l.comm == comm), "{told:#?}");
    assert!(told.iter().all(|l| l.listener.port == PORT && l.silent_ns >= 100_000_000), "{told:#?}");
    let longest = told.iter().map(|l| l.silent_ns).max().unwrap();
    assert!((BLOCKED_NS - 150_000_000..BLOCKED_NS + 100_000_000).contains(&longest), "{longest}");
}

const OFTEN: Duration = Duration::from_millis(5);

#[test]
fn privileged_node_that_computes_ran_and_did_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    apart(|| {
        let server = node(folder.path());
        let (told, _) = under_load(http, "/", OFTEN, "/?spin=700", || {});
        assert_blocked(&told, server.0.id(), "node");
        let (span, ran, waited) = sums(&told);
        assert!(10 * ran >= 7 * span && ran + waited >= span - span / 20, "{ran} of {span} ns: {told:#?}");
        assert!(told.iter().all(|l| l.slept_in.is_empty()), "{told:#?}");
    });
}

#[test]
fn privileged_node_that_opens_a_pipe_without_a_writer_sleeps_there() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    apart(|| {
        let server = node(folder.path());
        let slow = format!("/?read={}", pipe.display());
        let (told, _) = under_load(http, "/", OFTEN, &slow, || {
            std::thread::sleep(BLOCKED);
            // Whoever opens it lets the reader go on, and closes it.
            drop(std::fs::OpenOptions::new().write(true).open(&pipe).unwrap());
        });
        assert_blocked(&told, server.0.id(), "node");
        let (span, ran, waited) = sums(&told);
        assert!(ran + waited < span / 10, "{ran} and {waited} of {span} ns: {told:#?}");
        let places: Vec<&str> = told.iter().map(|l| l.slept_in.as_str()).collect();
        assert!(places.iter().all(|p| p.contains("partner") || p.contains("fifo")), "{places:?}");
    });
}

fn redis(folder: &Path) -> Server {
    let child = Command::new("redis-server")
        .args(["--port", &PORT.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--enable-debug-command", "yes", "--dir"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server(child);
    until_it_listens(PORT);
    server
}

#[test]
fn privileged_redis_that_sleeps_or_runs_a_script_is_blocked() {
    let folder = tempfile::tempdir().unwrap();
    apart(|| {
        let server = redis(folder.path());
        let (told, _) = under_load(line, "PING", OFTEN, "DEBUG SLEEP 0.7", || {});
        assert_blocked(&told, server.0.id(), "redis-server");
        let (span, ran, _) = sums(&told);
        assert!(ran < span / 10, "{told:#?}");
        assert!(told.iter().all(|l| l.slept_in.contains("nanosleep")), "{told:#?}");
        // So many rounds of a script as take 700 ms, by how long some of them take.
        let script =
            |rounds: u64| format!("EVAL \"local x = 0; for i = 1, {rounds} do x = x + i end; return 1\" 0");
        let begun = std::time::Instant::now();
        line(&mut connect(), &script(4_000_000));
        let rounds = 4_000_000 * BLOCKED_NS / u64::try_from(begun.elapsed().as_nanos()).unwrap();
        let (told, _) = under_load(line, "PING", OFTEN, &script(rounds), || {});
        let (span, ran, _) = sums(&told);
        assert!(span >= BLOCKED_NS / 4 && 10 * ran >= 7 * span, "{told:#?}");
    });
}

/// The same on a connection of its own, for a server that hangs up after each answer; the one that is kept is never used.
fn line_once(_kept: &mut BufReader<TcpStream>, request: &str) {
    line(&mut connect(), request);
}

/// A server of lines on one thread, on a runtime that waits for events; `block` sleeps in the handler. It hangs up after an answer unless
/// connections are `kept`.
async fn serve_lines(listener: tokio::net::TcpListener, kept: bool) {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        tokio::spawn(async move {
            let mut stream = tokio::io::BufReader::new(stream);
            let mut request = String::new();
            while stream.read_line(&mut request).await.is_ok_and(|n| n > 0) {
                if request.starts_with("block") {
                    std::thread::sleep(BLOCKED);
                }
                request.clear();
                if stream.get_mut().write_all(b"done\r\n").await.is_err() || !kept {
                    return;
                }
            }
        });
    }
}

#[test]
fn privileged_a_handler_of_tokio_that_sleeps_blocks_its_loop() {
    a_handler_sleeps(line, true);
}

/// It has read, answered and closed each connection before it reads the next: that it serves many shows in how it waits.
#[test]
fn privileged_a_loop_with_a_connection_for_each_request_is_blocked() {
    a_handler_sleeps(line_once, false);
}

fn a_handler_sleeps(ask: Ask, kept: bool) {
    apart(|| {
        let (thread, told_thread) = std::sync::mpsc::channel();
        let end = std::sync::Arc::new(tokio::sync::Notify::new());
        let ended = end.clone();
        let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let server = std::thread::Builder::new().name("loop".to_owned()).spawn(move || {
            // SAFETY: takes nothing.
            thread.send(unsafe { libc::gettid() }.cast_unsigned()).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = serve_lines(listener, kept) => {}
                    () = ended.notified() => {}
                }
            });
        });
        let (told, _) = under_load(ask, "quick", OFTEN, "block", || {});
        assert_blocked(&told, told_thread.recv().unwrap(), "loop");
        assert!(told.iter().all(|l| l.slept_in.contains("nanosleep")), "{told:#?}");
        end.notify_one();
        server.unwrap().join().unwrap();
    });
}

#[test]
fn privileged_a_loop_that_is_stopped_or_only_full_of_work_is_not_blocked() {
    let folder = tempfile::tempdir().unwrap();
    apart(|| {
        let server = node(folder.path());
        let pid = i32::try_from(server.0.id()).unwrap();
        // SAFETY: kill takes plain integers; the process is a child that is not reaped.
        let signal = |signal| assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        let (told, _) = under_load(http, "/", OFTEN, "", || {
            signal(libc::SIGSTOP);
            std::thread::sleep(BLOCKED);
            signal(libc::SIGCONT);
        });
        assert_eq!(told, [], "a signal stopped it");
        let (told, answered) = under_load(http, "/?spin=4", Duration::ZERO, "", || {});
        assert_eq!(told, [], "it comes back after each request");
        assert!(answered > 300, "it was not full of work: {answered} answers");
    });
}

#[test]
fn privileged_a_loop_whose_cpu_is_taken_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let group = Cgroup::new("loop");
    apart(|| {
        let server = format!("exec nice -n 19 {}", node_command(folder.path()));
        let server = Spinner::start(&group, &server, &[0]);
        until_it_listens(PORT);
        let (told, _) = under_load(http, "/?spin=2", OFTEN, "", || {
            // Of five thousand shares the loop has one.
            let busy = "exec nice -n -20 sh -c 'while :; do :; done'";
            let neighbour = Spinner::start(&group, busy, &[0]);
            std::thread::sleep(BLOCKED);
            neighbour.stop();
        });
        let pid = server.pid();
        assert!(told.iter().all(|l| l.thread == pid), "{told:#?}");
        let (span, ran, waited) = sums(&told);
        println!("without its CPU: {} looks, of {span} ns it ran {ran} and waited {waited}", told.len());
        assert!(2 * waited >= span, "{told:#?}");
    });
}

/// Threads that take turns at the connections: whoever is free reads from the next that has something.
fn serve_by_turns(connections: &Mutex<VecDeque<TcpStream>>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Some(mut stream) = connections.lock().unwrap().pop_front() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let mut request = [0; 64];
        match stream.read(&mut request) {
            Ok(0) => continue,
            Ok(n) => {
                if request[..n].starts_with(b"block") {
                    std::thread::sleep(BLOCKED);
                }
                let _ = stream.write_all(b"done\r\n");
            }
            Err(_) => {}
        }
        connections.lock().unwrap().push_back(stream);
    }
}

/// Whoever accepts waits for one more connection before it looks whether it is to end.
struct EndTurns<'a>(&'a AtomicBool);

impl Drop for EndTurns<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", PORT));
    }
}

#[test]
fn privileged_threads_that_take_turns_at_connections_are_no_loops() {
    apart(|| {
        let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
        let (connections, stop) = (Mutex::new(VecDeque::new()), AtomicBool::new(false));
        std::thread::scope(|s| {
            let _end = EndTurns(&stop);
            for _ in 0..3 {
                s.spawn(|| serve_by_turns(&connections, &stop));
            }
            s.spawn(|| {
                for stream in listener.incoming() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let stream = stream.unwrap();
                    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                    connections.lock().unwrap().push_back(stream);
                }
            });
            // All three threads at once, so that requests lie unread for as long.
            let (told, answered) = under_load(line, "quick", OFTEN, "block", || {
                std::thread::scope(|s| {
                    for _ in 0..2 {
                        s.spawn(|| line(&mut connect(), "block"));
                    }
                });
            });
            assert_eq!(told, [], "a pool");
            assert!(answered > 100, "{answered}");
        });
    });
}

//! Many who read at once, over real HTTP: nobody waits for who asks most, who waits too long is told so, and a reader of events that does not read is
//! ended with a cursor, behind which it gets what it missed.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]
#![allow(dead_code, reason = "the fixture has more than this needs")]

mod common;
#[path = "../src/fixture.rs"]
mod fixture;

use axum::Router;
use axum::routing::get;
use common::{Serve, answer, shows, wait_for};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tailwater::clock::Clock;
use tailwater::counters::Metrics;
use tailwater::live::events::{BEHIND_MAX, Events, KEPT_MAX};
use tailwater::serve::front::Front;
use tailwater::serve::gate::{Gate, Rules};
use tokio_util::sync::CancellationToken;

/// Bytes of an event: sockets on the way take some dozens of them.
const TITLE_BYTES: usize = 128 << 10;

/// The HTTP side with these routes at a port of its own.
struct Server {
    at: SocketAddr,
    metrics: Arc<Metrics>,
    _ended: tokio_util::sync::DropGuard,
    _runtime: tokio::runtime::Runtime,
}

fn server(metrics: &Arc<Metrics>, routes: Router, ended: CancellationToken) -> Server {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).unwrap();
    let at = listener.local_addr().unwrap();
    let gate = Gate::new(Rules::open(at.port(), false), Arc::clone(metrics), Clock::default());
    let front = Front { gate: Arc::new(gate), names: vec![], tls: None, metrics: Arc::clone(metrics) };
    runtime.spawn(front.serve(listener, routes, ended.clone()));
    Server { at, metrics: Arc::clone(metrics), _ended: ended.drop_guard(), _runtime: runtime }
}

/// A collector that shows nothing but these events.
fn telling(events: &Events) -> Server {
    let metrics = Arc::new(Metrics::default());
    let ended = CancellationToken::new();
    let app = shows::app(
        shows::shown(1 << 20, events.clone(), &metrics),
        Arc::clone(&metrics),
        0..0,
        ended.clone(),
    );
    server(&metrics, app.routes(), ended)
}

/// One event as it was told.
#[derive(Debug)]
struct Told {
    event: String,
    id: String,
    data: Value,
}

impl Told {
    fn version(&self) -> u64 {
        assert_eq!(self.event, "incident", "{} {}", self.id, self.data);
        self.data["version"].as_u64().unwrap()
    }
}

struct Reader(BufReader<TcpStream>);

impl Reader {
    /// Behind a cursor by header or by query.
    fn open(at: SocketAddr, header: Option<&str>, query: Option<&str>) -> Self {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let header = header.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let query = query.map(|id| format!("?after={id}")).unwrap_or_default();
        write!(&stream, "GET /api/v1/live{query} HTTP/1.0\r\nHost: {at}\r\n{header}\r\n").unwrap();
        let mut reader = Self(BufReader::new(stream));
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(reader.0.read_line(&mut line).unwrap() > 0, "an answer");
        }
        reader
    }

    /// `None`: the stream has ended.
    fn next(&mut self) -> Option<Told> {
        let mut told = Told { event: String::new(), id: String::new(), data: Value::Null };
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let (name, value) = line.trim_end().split_once(": ").unwrap_or_default();
            match name {
                "event" => told.event = value.to_owned(),
                "id" => told.id = value.to_owned(),
                "data" => told.data = serde_json::from_str(value).unwrap(),
                _ if line == "\n" && !(told.id.is_empty() && told.event.is_empty()) => return Some(told),
                _ => {}
            }
        }
    }

    /// The versions of the next incidents.
    fn versions(&mut self, count: u64) -> Vec<u64> {
        (0..count).map(|_| self.next().unwrap().version()).collect()
    }
}

fn tell(events: &Events, versions: std::ops::Range<u64>) {
    for version in versions {
        let mut incident = fixture::incident("01KAJX3S9R7V5S9C8H1Z4T0000", version);
        incident.title = "x".repeat(TITLE_BYTES);
        events.tell(&Arc::new(incident));
    }
}

#[test]
fn a_reader_of_events_that_does_not_read_is_ended_with_a_cursor_behind_which_it_misses_nothing() {
    let events = Events::default();
    let server = telling(&events);
    let mut slow = Reader::open(server.at, None, None);
    let begin = slow.next().unwrap();
    assert_eq!((begin.id, begin.event.as_str()), (events.end().to_string(), ""), "a cursor at once");
    let mut quick = Reader::open(server.at, None, None);
    quick.next().unwrap();
    // One keeps up.
    let all = 4 * (BEHIND_MAX / 2);
    for part in 0..4 {
        let of = part * BEHIND_MAX / 2..(part + 1) * BEHIND_MAX / 2;
        tell(&events, of.clone());
        assert_eq!(quick.versions(BEHIND_MAX / 2), of.collect::<Vec<_>>());
    }
    // The other one is given up, though it does not hear of that yet, and nobody else is.
    wait_for("it to be too slow", || (server.metrics.live_ended_slow.get() > 0).then_some(()));
    let mut heard: Vec<Told> = std::iter::from_fn(|| slow.next()).collect();
    let last = heard.pop().unwrap();
    assert_eq!(last.event, "slow", "the last that it hears");
    let got = heard.len() as u64;
    assert!(heard.iter().zip(0..).all(|(told, n)| told.version() == n), "in order, nothing left out");
    let cursor = last.id;
    assert!(
        heard.last().is_none_or(|told| told.id == cursor) && last.data["after"] == cursor.as_str(),
        "{}",
        last.data
    );
    assert!(last.data["waiting"].as_u64().unwrap() > BEHIND_MAX && got < all - BEHIND_MAX, "{}", last.data);
    let text = last.data["text"].as_str().unwrap();
    assert!(text.contains(&format!("Last-Event-ID: {cursor}")), "{text}");

    // However it asks, it gets the rest, though that is more than may wait for one that keeps up.
    for (header, query) in
        [(Some(cursor.as_str()), None), (None, Some(cursor.as_str())), (Some(&*cursor), Some("0-0"))]
    {
        let mut again = Reader::open(server.at, header, query);
        assert_eq!(again.next().unwrap().id, cursor);
        assert_eq!(again.versions(all - got), (got..all).collect::<Vec<_>>());
    }
    assert_eq!((server.metrics.live_ended_slow.get(), server.metrics.live_lagged.get()), (1, 0));

    // Once something is gone, it is told what, and gets what there is.
    let kept = KEPT_MAX as u64;
    (all..got + kept + 3)
        .for_each(|n| events.tell(&Arc::new(fixture::incident("01KAJX3S9R7V5S9C8H1Z4T0000", n))));
    let mut late = Reader::open(server.at, Some(&cursor), None);
    let lagged = late.next().unwrap();
    assert_eq!((lagged.event.as_str(), &lagged.data["missed"]), ("lagged", &3.into()), "{}", lagged.data);
    let run = cursor.split_once('-').unwrap().0;
    let (first, last) = (format!("{run}-{}", got + 1), format!("{run}-{}", got + 3));
    assert!(
        lagged.data["first"] == first.as_str() && lagged.data["last"] == last.as_str(),
        "{}",
        lagged.data
    );
    assert_eq!(lagged.id, last, "no newer cursor came before it was told");
    assert_eq!(late.next().unwrap().version(), got + 3);
    assert_eq!(server.metrics.live_lagged.get(), 3);
    // A cursor of before a restart, or of somewhere else.
    let mut other = Reader::open(server.at, Some("0000000000000000-7"), None);
    let lagged = other.next().unwrap();
    assert_eq!((lagged.event.as_str(), &lagged.data["missed"]), ("lagged", &Value::Null), "{}", lagged.data);
    assert_eq!(other.next().unwrap().version(), got + 3, "what is kept");
}

/// A request that has been sent; its answer is not read yet.
fn asked(at: SocketAddr, path: &str) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(&stream, "GET {path} HTTP/1.0\r\nHost: {at}\r\n\r\n").unwrap();
    stream
}

#[test]
fn one_that_asks_for_everything_at_once_keeps_nobody_else_waiting_and_is_told_so_in_time() {
    let metrics = Arc::new(Metrics::default());
    let (working, finish) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let long = {
        let (working, finish) = (Arc::clone(&working), Arc::clone(&finish));
        move || async move {
            working.fetch_add(1, Ordering::SeqCst);
            finish.acquire().await.unwrap().forget();
            working.fetch_sub(1, Ordering::SeqCst);
            "long"
        }
    };
    let routes = Router::new()
        .route("/api/v1/series", get(long))
        .route("/api/v1/agents", get(|| async { "short" }))
        .route("/metrics", get(|| async { "counters" }))
        .route("/healthz", get(|| async { "ok" }));
    let server = server(&metrics, routes, CancellationToken::new());
    let of = |path: &str| {
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", server.at);
        let (head, body) = answer(server.at, &request).unwrap();
        (head.split(' ').nth(1).unwrap().parse::<u16>().unwrap(), head, body)
    };
    // The first is the one that is worked on: of many that come at once any may be.
    let mut greedy = vec![asked(server.at, "/api/v1/series?host=a&metric=drops")];
    wait_for("one to be worked on", || (working.load(Ordering::SeqCst) == 1).then_some(()));
    greedy.extend((1..20).map(|_| asked(server.at, "/api/v1/series?host=a&metric=drops")));
    for _ in 0..10 {
        for path in ["/api/v1/agents", "/metrics", "/healthz"] {
            assert_eq!(of(path).0, 200, "{path}");
        }
        assert_eq!(working.load(Ordering::SeqCst), 1, "one long answer at a time");
    }
    // Whoever goes away lets nobody begin beside what is worked on for it.
    drop(greedy.remove(0));
    assert_eq!(of("/healthz").0, 200);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(working.load(Ordering::SeqCst), 1);

    let mut told = String::new();
    greedy.pop().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.0 503") && told.contains("retry-after: 2\r\n"), "{told}");
    assert!(told.contains("this request waited 10 s for its turn; ask again later, or for less"), "{told}");
    // All of them: one that still waited would take the turn of the next one, and its leave to end.
    wait_for("the others to be told", || (metrics.http_shed.get("late") == 19).then_some(()));
    assert_eq!(metrics.limits.bite(Clock::default().unix_ns()), ["readers"]);
    // The next one has its turn, and they are not all over.
    finish.add_permits(2);
    let (code, _, body) = of("/api/v1/series?host=a&metric=drops");
    assert_eq!((code, body.as_str()), (200, "long"));
    assert_eq!((of("/api/v1/agents").0, metrics.http_shed.get("too_many")), (200, 0));
}

#[test]
fn answers_that_are_not_taken_are_bounded_and_whoever_asks_for_more_is_told_so() {
    const BYTES: usize = 60 << 20;
    let metrics = Arc::new(Metrics::default());
    let routes = Router::new()
        .route("/api/v1/agents", get(|| async { vec![0_u8; BYTES] }))
        .route("/api/v1/status", get(|| async { "short" }));
    let server = server(&metrics, routes, CancellationToken::new());
    let of = |path: &str| {
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", server.at);
        answer(server.at, &request).unwrap()
    };
    let mut slow: Vec<_> = (0..2).map(|_| asked(server.at, "/api/v1/agents")).collect();
    // The answer to each is there, and it takes the first byte of it.
    slow.iter_mut().for_each(|stream| stream.read_exact(&mut [0]).unwrap());
    let (head, body) = of("/api/v1/agents");
    assert!(head.starts_with("HTTP/1.0 503") && head.contains("retry-after: 2"), "{head}");
    assert!(body.contains("read what you asked for"), "{body}");
    assert_eq!((of("/api/v1/status").1.as_str(), metrics.http_shed.get("untaken")), ("short", 1));
    assert_eq!(metrics.limits.bite(Clock::default().unix_ns()), ["readers"]);
    // As soon as one has taken all of its answer there is room again.
    let mut taken = Vec::new();
    slow.remove(0).read_to_end(&mut taken).unwrap();
    assert!(taken.len() > BYTES && taken.iter().rev().take(BYTES).all(|byte| *byte == 0));
    let (head, body) = of("/api/v1/agents");
    assert!(head.starts_with("HTTP/1.0 200") && body.len() == BYTES, "{head}");
}

#[test]
fn readers_are_served_by_threads_below_those_of_agents_and_alerts() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    // By it a file is looked for, on a thread that may wait.
    serve.json("/api/v1/inventory");
    // A thread has its name before it has lowered its priority.
    let (threads, own) = wait_for("two readers' threads below the others", || {
        let threads = serve.threads();
        let own = threads.first().unwrap().1;
        let of = threads.iter().filter(|(of, _)| of == "readers").map(|(_, nice)| *nice);
        let readers: Vec<_> = of.collect();
        let stand = readers.len() >= 2 && readers.iter().all(|nice| *nice == (own + 10).min(19));
        stand.then_some((threads, own))
    });
    let nice =
        |name: &str| threads.iter().filter(|(of, _)| of == name).map(|(_, nice)| *nice).collect::<Vec<_>>();
    for name in ["analysis", "tokio-rt-worker", "store"] {
        let of = nice(name);
        assert!(!of.is_empty() && of.iter().all(|nice| *nice == own), "{name}: {threads:?}");
    }
    let (code, _) = common::get(serve.http, "/metrics").unwrap();
    assert_eq!((code, serve.metric("tailwater_http_shed_total{reason=\"late\"}")), (200, 0));
    assert!(serve.metric("tailwater_http_wait_seconds_count") >= 1, "who asked before waited for a turn");
}

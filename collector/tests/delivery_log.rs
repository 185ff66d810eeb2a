//! What every log between agents and the analysis must do (`DeliveryLog`), as one suite that is held against the log in memory and against
//! one that keeps everything; and the analysis fed through both, which says the same to the byte, and says it again where a log is read again.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;
#[path = "../analysis/tests/support/sim/mod.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "used in part")]
mod sim;

use common::{runtime, shows};
use sim::{At, Do, FIRST_WINDOW, Sim};
use std::collections::VecDeque;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tailwater::alert::Alerts;
use tailwater::clock::{Clock, Hands};
use tailwater::counters::Metrics;
use tailwater::ingest::delivery_log::{
    DeliveryLog, Entry, InMemory, Most, NotTaken, NotThere, Offset, Read, Reader,
};
use tailwater::ingest::feed::Quota;
use tailwater::ingest::session::Delivery;
use tailwater::live::events::Events;
use tailwater::run::driver;
use tailwater::run::outlet::Outlet;
use tailwater::run::provisional::Provisionals;
use tailwater::serve::Shown;
use tailwater_analysis::{Config, Pipeline};
use tailwater_model::Incident;
use tailwater_model::incident::Resource;
use tailwater_model::window::{Input, WINDOW_NS};
use tailwater_proto::trace::TraceReader;
use tailwater_proto::v1::{Arrival, trace_record::Body};

type Log = Arc<dyn DeliveryLog>;

/// More than there is.
const ALL: Most = Most { entries: 1_000, bytes: 1 << 30 };
/// A guard against waiting for ever, no measure of speed.
const LONG: Duration = Duration::from_secs(60);
/// What the message of each small delivery takes.
const SMALL: usize = 10;

/// Keeps everything for as long as there is room, and gives copies of it to whoever asks, however often.
#[derive(Debug)]
struct KeepsAll {
    kept: Mutex<Everything>,
    more: Condvar,
    entries_max: usize,
}

#[derive(Debug, Default)]
struct Everything {
    deliveries: Vec<Delivery>,
    closed: bool,
}

impl KeepsAll {
    fn new(entries_max: usize) -> Self {
        Self { kept: Mutex::default(), more: Condvar::new(), entries_max }
    }
}

impl DeliveryLog for KeepsAll {
    fn append(&self, entry: Entry) -> Result<Offset, NotTaken> {
        let mut kept = self.kept.lock().unwrap();
        if kept.closed {
            return Err(NotTaken::Closed);
        }
        let at = kept.deliveries.len();
        if at >= self.entries_max {
            return Err(NotTaken::Full(entry));
        }
        kept.deliveries.push(*entry.delivery);
        self.more.notify_all();
        Ok(Offset::default().after(at))
    }

    fn fetch(
        &self,
        from: Offset,
        most: Most,
        within: Duration,
        into: &mut VecDeque<Entry>,
    ) -> Result<(), NotThere> {
        let from = usize::try_from(from.0).unwrap();
        let kept = self.kept.lock().unwrap();
        if from > kept.deliveries.len() {
            return Err(NotThere::Ahead { next: Offset::default().after(kept.deliveries.len()) });
        }
        let awaited = |kept: &mut Everything| kept.deliveries.len() == from && !kept.closed;
        let kept = self.more.wait_timeout_while(kept, within, awaited).unwrap().0;
        let mut bytes = 0;
        for (given, delivery) in kept.deliveries[from..].iter().enumerate() {
            bytes += delivery.bytes();
            if given > 0 && (given >= most.entries || bytes > most.bytes) {
                break;
            }
            into.push_back(Entry::of(delivery.clone()));
        }
        let ended = kept.closed && from == kept.deliveries.len();
        if ended { Err(NotThere::Closed) } else { Ok(()) }
    }

    fn offset_at(&self, unix_ns: u64) -> Result<Offset, NotThere> {
        let kept = self.kept.lock().unwrap();
        let at = kept.deliveries.iter().position(|of| of.arrival.arrival_unix_ns >= unix_ns);
        Ok(Offset::default().after(at.unwrap_or(kept.deliveries.len())))
    }

    fn close(&self) {
        self.kept.lock().unwrap().closed = true;
        self.more.notify_all();
    }
}

/// What a message of this host brought that came then.
fn delivery(host: &str, unix_ns: u64, inputs: Vec<Input>) -> Delivery {
    let arrival = Arrival { host: host.to_owned(), arrival_unix_ns: unix_ns, ..Arrival::default() };
    let raw = vec![0_u8; if inputs.is_empty() { SMALL } else { 0 }].into();
    Delivery { arrival, raw, names: None, inputs, moments: None }
}

/// Appends a small one.
fn append(log: &Log, host: &str, unix_ns: u64) -> Offset {
    log.append(Entry::of(delivery(host, unix_ns, Vec::new()))).unwrap()
}

/// Of which hosts those are that are fetched at once, without waiting.
fn fetch(log: &Log, from: u64, most: Most) -> Result<Vec<String>, NotThere> {
    let mut into = VecDeque::new();
    log.fetch(Offset(from), most, Duration::ZERO, &mut into)?;
    Ok(into.into_iter().map(|entry| entry.delivery.arrival.host).collect())
}

/// The same of all that follow: a log may give fewer at once than it is asked for.
fn all(log: &Log, mut from: u64) -> Vec<String> {
    let mut all = Vec::new();
    while let Ok(some) = fetch(log, from, ALL)
        && !some.is_empty()
    {
        from += some.len() as u64;
        all.extend(some);
    }
    all
}

/// The contract, for a log that is made with room for so many deliveries that nobody has fetched.
fn holds_the_contract(make: impl Fn(usize) -> Log) {
    appends_and_fetches_in_one_order(&make(100));
    begins_where_it_is_asked_to(&make(100));
    gives_no_more_than_it_is_asked_for_and_at_least_one(&make(100));
    says_when_it_is_full_and_gives_back_what_it_does_not_take(&make(2));
    finds_the_first_offset_of_a_time(&make(100));
    gives_again_or_tells_what_was_trimmed(&make(100));
    tells_that_it_has_not_come_as_far(&make(100));
    waits_for_as_long_as_it_is_told(&make(100));
    gives_what_it_has_when_it_is_closed(&make(100));
    wakes_who_waits_when_it_is_closed(&make(100));
}

fn appends_and_fetches_in_one_order(log: &Log) {
    for n in 0..5 {
        assert_eq!(append(log, &n.to_string(), n), Offset(n));
    }
    assert_eq!(all(log, 0), ["0", "1", "2", "3", "4"]);
    assert_eq!(append(log, "5", 5), Offset(5), "offsets go on, whatever was fetched");
    assert_eq!(all(log, 5), ["5"]);
    assert_eq!(fetch(log, 6, ALL), Ok(Vec::new()), "nothing yet is no error");
}

fn begins_where_it_is_asked_to(log: &Log) {
    for n in 0..4 {
        append(log, &n.to_string(), n);
    }
    assert_eq!(all(log, 2), ["2", "3"]);
}

fn gives_no_more_than_it_is_asked_for_and_at_least_one(log: &Log) {
    for n in 0..6 {
        append(log, &n.to_string(), n);
    }
    let mut from = 0;
    let small = Entry::of(delivery("", 0, Vec::new())).bytes();
    assert_eq!(small, SMALL);
    for (most, given) in [
        (Most { entries: 2, ..ALL }, 1..=2),
        (Most { bytes: 2 * small + 1, ..ALL }, 1..=2),
        (Most { bytes: 1, ..ALL }, 1..=1),
    ] {
        let some = fetch(log, from, most).unwrap();
        assert!(given.contains(&some.len()), "{some:?} of {most:?}");
        assert_eq!(some[0], from.to_string());
        from += some.len() as u64;
    }
}

fn says_when_it_is_full_and_gives_back_what_it_does_not_take(log: &Log) {
    append(log, "0", 0);
    append(log, "1", 1);
    match log.append(Entry::of(delivery("2", 7, Vec::new()))) {
        Err(NotTaken::Full(back)) => {
            assert_eq!((back.delivery.arrival.host.as_str(), back.unix_ns()), ("2", 7));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(all(log, 0), ["0", "1"], "what was refused does not stand in it");
}

fn finds_the_first_offset_of_a_time(log: &Log) {
    assert_eq!(log.offset_at(0), Ok(Offset(0)), "of an empty log what comes next");
    // One waited for room while another went by.
    for (n, unix_ns) in [100, 300, 200, 400].into_iter().enumerate() {
        append(log, &n.to_string(), unix_ns);
    }
    for (unix_ns, first) in [(0, 0), (100, 0), (101, 1), (250, 1), (300, 1), (301, 3), (400, 3), (401, 4)] {
        assert_eq!(log.offset_at(unix_ns), Ok(Offset(first)), "at {unix_ns}");
    }
    assert_eq!(all(log, 0).len(), 4);
    match log.offset_at(200) {
        Ok(first) => assert_eq!(fetch(log, first.0, ALL).unwrap()[0], "1", "it is there still"),
        Err(trimmed) => assert_eq!(trimmed, NotThere::Trimmed { first: Offset(4) }),
    }
    assert_eq!(log.offset_at(401), Ok(Offset(4)));
}

fn gives_again_or_tells_what_was_trimmed(log: &Log) {
    for n in 0..4 {
        append(log, &n.to_string(), n);
    }
    assert_eq!(all(log, 0).len(), 4);
    append(log, "4", 4);
    for from in 0..5_u64 {
        match fetch(log, from, Most { entries: 1, ..ALL }) {
            Ok(some) => assert_eq!(some, [from.to_string()]),
            Err(NotThere::Trimmed { first }) => assert!(first.0 > from && first.0 <= 4, "{first:?}"),
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn tells_that_it_has_not_come_as_far(log: &Log) {
    append(log, "0", 0);
    assert_eq!(fetch(log, 2, ALL), Err(NotThere::Ahead { next: Offset(1) }));
    assert_eq!(all(log, 0), ["0"]);
}

fn waits_for_as_long_as_it_is_told(log: &Log) {
    let (clock, wait) = (Clock::default(), Duration::from_millis(20));
    let begun = clock.monotonic();
    let mut into = VecDeque::new();
    assert_eq!(log.fetch(Offset(0), ALL, wait, &mut into), Ok(()));
    let waited = clock.monotonic() - begun;
    assert!(into.is_empty() && waited >= wait && waited < LONG, "{waited:?}");
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut into = VecDeque::new();
            log.fetch(Offset(0), ALL, LONG, &mut into).map(|()| into.len())
        });
        std::thread::sleep(wait);
        append(log, "0", 0);
        assert_eq!(reader.join().unwrap(), Ok(1));
    });
    assert!(clock.monotonic() - begun < LONG, "nobody woke who waited");
}

fn gives_what_it_has_when_it_is_closed(log: &Log) {
    append(log, "0", 0);
    append(log, "1", 1);
    log.close();
    let refused = log.append(Entry::of(delivery("2", 2, Vec::new())));
    assert!(matches!(refused, Err(NotTaken::Closed)), "{refused:?}");
    assert_eq!(all(log, 0), ["0", "1"]);
    assert_eq!(fetch(log, 2, ALL), Err(NotThere::Closed));
}

fn wakes_who_waits_when_it_is_closed(log: &Log) {
    let clock = Clock::default();
    let begun = clock.monotonic();
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| log.fetch(Offset(0), ALL, LONG, &mut VecDeque::new()));
        std::thread::sleep(Duration::from_millis(20));
        log.close();
        assert_eq!(reader.join().unwrap(), Err(NotThere::Closed));
    });
    assert!(clock.monotonic() - begun < LONG, "nobody woke who waited");
}

#[test]
fn the_log_in_memory_holds_the_contract() {
    holds_the_contract(|room| Arc::new(InMemory::new(room)));
}

#[test]
fn a_log_that_keeps_everything_holds_the_contract() {
    holds_the_contract(|room| Arc::new(KeepsAll::new(room)));
}

#[test]
fn memory_gives_each_delivery_once_and_has_room_again() {
    let log: Log = Arc::new(InMemory::new(2));
    append(&log, "0", 10);
    append(&log, "1", 20);
    assert_eq!(all(&log, 0), ["0", "1"]);
    assert_eq!(append(&log, "2", 30), Offset(2), "there is room again");
    assert_eq!(fetch(&log, 0, ALL), Err(NotThere::Trimmed { first: Offset(2) }));
    assert_eq!(log.offset_at(20), Err(NotThere::Trimmed { first: Offset(2) }));
    assert_eq!(log.offset_at(21), Ok(Offset(2)));
    assert_eq!(all(&log, 2), ["2"]);
}

#[test]
fn a_reader_tells_what_is_missing_and_goes_on_behind_it() {
    let log: Log = Arc::new(InMemory::new(10));
    append(&log, "0", 0);
    append(&log, "1", 1);
    assert_eq!(all(&log, 0).len(), 2);
    append(&log, "2", 2);
    let read = |reader: &mut Reader| match reader.read(Duration::ZERO) {
        Read::One(entry) => entry.delivery.arrival.host,
        other => format!("{other:?}"),
    };
    let mut late = Reader::new(Arc::clone(&log), Offset(0));
    assert_eq!([0; 3].map(|_| read(&mut late)), ["Missing(Some(2))", "2", "Nothing"]);
    let mut ahead = Reader::new(Arc::clone(&log), Offset(9));
    assert_eq!(read(&mut ahead), "Missing(None)");
    append(&log, "3", 3);
    assert_eq!([0; 2].map(|_| read(&mut ahead)), ["3", "Nothing"]);
    drop(late);
    assert_eq!(read(&mut ahead), "End", "who reads is gone, and with it the log");
}

/// A log whose reader lives when its deliveries came: one at a time, and the clock goes on to the moment of each.
#[derive(Debug)]
struct AsItCame {
    log: Log,
    hands: &'static Hands,
}

impl DeliveryLog for AsItCame {
    fn append(&self, entry: Entry) -> Result<Offset, NotTaken> {
        self.log.append(entry)
    }

    fn fetch(
        &self,
        from: Offset,
        most: Most,
        within: Duration,
        into: &mut VecDeque<Entry>,
    ) -> Result<(), NotThere> {
        self.log.fetch(from, Most { entries: 1, ..most }, within, into)?;
        let came = into.back().map_or(0, Entry::unix_ns);
        let now = Clock::moved(self.hands).unix_ns();
        self.hands.pass(Duration::from_nanos(came.saturating_sub(now)));
        Ok(())
    }

    fn offset_at(&self, unix_ns: u64) -> Result<Offset, NotThere> {
        self.log.offset_at(unix_ns)
    }

    fn close(&self) {
        self.log.close();
    }
}

/// Whoever takes what the analysis says, without anybody who is told.
fn outlet() -> (Outlet, Shown, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    let shown = shows::shown(64 << 20, Events::default(), &metrics);
    let outlet = Outlet {
        shown: shown.clone(),
        metrics: Arc::clone(&metrics),
        export: Arc::default(),
        sizing: Arc::default(),
        traces: Arc::default(),
        alerts: Alerts::nobody(&Arc::default()),
        provisionals: Provisionals::default(),
    };
    (outlet, shown, metrics)
}

/// What the analysis' thread says of what a closed log has from there on, and what it counts.
fn analysed(log: &Log, from: Offset) -> (Vec<Arc<Incident>>, Arc<Metrics>) {
    let hands: &'static Hands = Box::leak(Box::new(Hands::at(BEGIN_UNIX_NS - 1_000_000_000)));
    let log = Reader::new(Arc::new(AsItCame { log: Arc::clone(log), hands }), from);
    let (outlet, shown, metrics) = outlet();
    let pipeline = Pipeline::new(Config::default());
    let (_feed, thread) = driver::start(log, pipeline, String::new(), outlet, Clock::moved(hands)).unwrap();
    thread.join().unwrap();
    let incidents = shown.store.lock().unwrap().list((0, u64::MAX), None, 10);
    (incidents, metrics)
}

const BEGIN_UNIX_NS: u64 = FIRST_WINDOW * WINDOW_NS;

/// Three tiers of which the middle one loses its CPU, as their agents say it: names, then each window 100 ms after its end.
fn history() -> Vec<Delivery> {
    let trace = Sim::default().act(At::App, 6000..6700, Do::Neighbour(0.95)).run();
    let windows = trace.windows.into_iter().map(|window| {
        let (host, came) = (window.host.clone(), (window.index.0 + 3) * WINDOW_NS);
        delivery(&host, came, vec![Input::Window(Arc::new(window))])
    });
    std::iter::once(delivery("web-1", BEGIN_UNIX_NS, trace.names)).chain(windows).collect()
}

fn closed(log: Log, deliveries: Vec<Delivery>) -> Log {
    for delivery in deliveries {
        log.append(Entry::of(delivery)).unwrap();
    }
    log.close();
    log
}

fn text(incidents: &[Arc<Incident>]) -> String {
    let lines = incidents.iter().map(|incident| serde_json::to_string(incident.as_ref()).unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_analysis_says_the_same_of_any_log_and_again_of_one_that_is_read_again() {
    let history = history();
    let room = history.len() + 1;
    let memory = closed(Arc::new(InMemory::new(room)), history.clone());
    let (said, metrics) = analysed(&memory, Offset(0));
    let [incident] = said.as_slice() else { panic!("not one incident:\n{}", text(&said)) };
    let root = (incident.root.host.as_str(), incident.root.resource);
    assert_eq!(root, ("app-1", Resource::CpuNeighbour), "{}", text(&said));
    assert_eq!(metrics.windows.get(), history.len() as u64 - 1, "every window went through");

    // An hour before somebody else came.
    let before = delivery("old-1", BEGIN_UNIX_NS - 3_600_000_000_000, Vec::new());
    let everything = [vec![before], history].concat();
    let kept = closed(Arc::new(KeepsAll::new(room)), everything);
    assert_eq!(kept.offset_at(BEGIN_UNIX_NS), Ok(Offset(1)));
    for from in [Offset(0), Offset(1), Offset(1)] {
        assert_eq!(text(&analysed(&kept, from).0), text(&said), "from {from:?}");
    }
    // Of memory nothing is left to be read again, which is told.
    let (nothing, metrics) = analysed(&memory, Offset(0));
    assert!(nothing.is_empty() && metrics.windows.get() == 0);
    assert_eq!(metrics.limits.reached.get("agent_queue"), room as u64 - 1);
}

#[test]
fn what_was_trimmed_before_the_analysis_read_it_is_counted_and_the_rest_is_analysed() {
    let history = history();
    let log = closed(Arc::new(InMemory::new(history.len())), history.clone());
    let skipped = fetch(&log, 0, Most { entries: 31, ..ALL }).unwrap().len() as u64;
    let (_, metrics) = analysed(&log, Offset(0));
    assert_eq!(metrics.limits.reached.get("agent_queue"), skipped);
    assert_eq!(metrics.windows.get(), history.len() as u64 - skipped);
}

#[test]
fn whoever_listens_before_a_delivery_is_appended_hears_it() {
    let log = Reader::new(Arc::new(InMemory::new(100)), Offset::default());
    let (outlet, _, metrics) = outlet();
    let pipeline = Pipeline::new(Config::default());
    let (feed, thread) = driver::start(log, pipeline, String::new(), outlet, Clock::default()).unwrap();
    // It waits for something to read.
    std::thread::sleep(Duration::from_millis(5));
    let (tap, records) = sync_channel(1_000);
    assert!(feed.tap(tap));
    let (runtime, quota) = (runtime(), Quota::new(100));
    for n in 0..50 {
        let one = Delivery { raw: Default::default(), ..delivery("web-1", n, Vec::new()) };
        runtime.block_on(feed.deliver(one, &quota)).unwrap();
    }
    feed.stop();
    thread.join().unwrap();
    let recorded: Vec<u8> = records.try_iter().flatten().collect();
    let heard: Vec<u64> = TraceReader::new(recorded.as_slice())
        .unwrap()
        .filter_map(|record| match record.unwrap().body {
            Some(Body::Arrival(arrival)) => Some(arrival.arrival_unix_ns),
            _ => None,
        })
        .collect();
    assert_eq!(heard, (0..50).collect::<Vec<u64>>());
    assert_eq!(metrics.trace_records_dropped.get(), 0);
    assert!(!feed.tap(sync_channel(1).0), "the analysis has ended");
}

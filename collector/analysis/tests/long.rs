//! Incidents that live longer than the windows that showed how they began: what is said of their onset stays, what goes on is counted to
//! the end, and what keeps them alive is told apart from what began them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;
use support::sim::{At, Do, FIRST_WINDOW, Sim};
use support::{diagnose, told};
use tailwater_analysis::{Config, Output, Pipeline};
use tailwater_model::Incident;
use tailwater_model::incident::{Resource, Role, State, SustainedBy};
use tailwater_model::window::{HostWindow, Input, WINDOW_NS, WindowIndex};

/// The application stands still from 6.0 to 6.7 s; at 8.0 s it is long over.
const CALM: u64 = 100;
const OVER: u64 = 160;
/// Packets dropped a window while retries keep the queue full, where 50 come for the first time and 50 are served.
const DROPPED: u64 = 30;

/// A window of before, at another time.
fn again(trace: &[HostWindow], host: &str, at: u64) -> HostWindow {
    let of = FIRST_WINDOW + CALM - at % 20;
    let mut window = trace.iter().find(|w| w.host == host && w.index.0 == of).unwrap().clone();
    window.index = WindowIndex(FIRST_WINDOW + at);
    window
}

/// The front in a window in which retries keep it full.
fn full(window: &mut HostWindow, dropped: u64) {
    let l = window.listeners.get_mut(&1).unwrap();
    (l.arrivals, l.accepts, l.received, l.answered, l.drops) = (50, 50, 50, 50, dropped);
    (l.depth_last, l.depth_max, l.depth_ns, l.limit) = (128, 129, 128 * WINDOW_NS, 128);
    (l.in_flight_last, l.in_flight_max, l.in_flight_ns) = (150, 150, 150 * WINDOW_NS);
    (l.workers_busy_max, l.workers_seen) = (150, 150);
}

struct Ran {
    versions: Vec<Incident>,
    /// Packets dropped at the front, and at all tiers.
    dropped: [u64; 2],
}

impl Ran {
    fn last(&self) -> &Incident {
        self.versions.last().unwrap()
    }
}

/// A pause of the application, then `seconds` in which `dropped` packets are dropped in each window, then calm.
fn run(seconds: u64, dropped: u64) -> Ran {
    run_with_wave(seconds, dropped, 0..0)
}

/// The same, and so many windows after the last drop some more come at once, and are dropped.
fn run_with_wave(seconds: u64, dropped: u64, wave: std::ops::Range<u64>) -> Ran {
    let trace = Sim { seconds: 9, ..Sim::default() }.act(At::App, 6000..6700, Do::Pause).run();
    let mut pipeline = Pipeline::new(Config::default());
    let mut outputs: Vec<Output> = Vec::new();
    let mut sum = [0, 0];
    for input in trace.names.clone() {
        outputs.extend(pipeline.feed(input));
    }
    let mut feed = |window: HostWindow| {
        let drops = window.listeners.get(&1).map_or(0, |l| l.drops);
        sum = [sum[0] + if window.host == "web-1" { drops } else { 0 }, sum[1] + drops];
        outputs.extend(pipeline.feed(Input::Tick { unix_ns: (window.index.0 + 3) * WINDOW_NS }));
        outputs.extend(pipeline.feed(Input::Window(Arc::new(window))));
    };
    trace.windows.iter().filter(|w| w.index.0 < FIRST_WINDOW + OVER).cloned().for_each(&mut feed);
    let end = OVER + seconds * 20;
    for at in OVER..end + 100 + wave.end {
        for host in ["web-1", "app-1", "db-1"] {
            let mut window = again(&trace.windows, host, at);
            if host == "web-1" && at < end {
                full(&mut window, dropped);
            } else if host == "web-1" && wave.contains(&(at - end)) {
                full(&mut window, dropped);
                window.listeners.get_mut(&1).unwrap().arrivals = 300;
            }
            feed(window);
        }
    }
    outputs.extend(pipeline.finish());
    Ran { versions: told(&outputs), dropped: sum }
}

/// What must hold of the first wave, whenever it is asked.
fn check_onset(incident: &Incident) {
    assert_eq!((incident.root.host.as_str(), incident.root.resource), ("app-1", Resource::Pause));
    let web = incident.hops.iter().find(|h| h.role == Role::Drop).unwrap();
    assert_eq!(
        (
            web.workers_busy_max,
            web.workers_limit,
            web.accept_queue_max,
            web.accept_queue_limit,
            web.queued_max
        ),
        (150, Some(150), 129, Some(128), 279),
        "{}",
        incident.title
    );
    assert!(incident.title.contains("accept queue 129/128, 150/150 workers busy"), "{}", incident.title);
}

#[test]
fn three_hours_keep_the_numbers_of_their_first_second() {
    let ran = run(3 * 3600, DROPPED);
    let ids: std::collections::BTreeSet<&str> = ran.versions.iter().map(|i| i.id.as_str()).collect();
    assert_eq!(ids.len(), 1, "one cause, one incident");
    let last = ran.last();
    check_onset(last);
    assert_eq!(last.state, State::Closed);
    assert_eq!(last.drops.iter().map(|d| d.count).sum::<u64>(), ran.dropped[1], "every drop is counted");
    let hours = last.end_unix_ns - last.start_unix_ns;
    assert!((10_800..10_820).contains(&(hours / 1_000_000_000)), "{hours}");
    let settled = ran.versions.iter().find(|i| i.sustained.is_some()).unwrap();
    assert_eq!(settled.root, last.root, "the root is as it was told first");
    assert_eq!(settled.drops[0].first_unix_ns, last.drops[0].first_unix_ns);
    let life = last.hops.iter().find(|h| h.role == Role::Drop).unwrap().life.unwrap();
    assert_eq!((life.dropped, life.windows_missing), (ran.dropped[0], 0));
    assert!(life.answered > 50 * 20 * 10_800, "{life:?}");
    assert!(ran.versions.len() < 2000, "{} versions", ran.versions.len());
    assert!(serde_json::to_vec(last).unwrap().len() < 16 << 10);
}

#[test]
fn the_trigger_is_told_apart_from_what_keeps_it_alive() {
    let ran = run(60, DROPPED);
    let last = ran.last();
    check_onset(last);
    let s = last.sustained.as_ref().unwrap();
    assert_eq!((s.by, s.host.as_str(), s.listener.as_str()), (SustainedBy::Retries, "web-1", "0.0.0.0:80"));
    assert!((s.retry_share - 0.375).abs() < 0.02, "{s:?}");
    assert!((s.first_attempts_per_second - 1000.0).abs() < 20.0, "{s:?}");
    assert!((s.capacity_per_second - 1000.0).abs() < 20.0, "{s:?}");
    // 600 wait to come again: 120 a second fewer for 5 s, or a queue that holds them too.
    assert_eq!((s.queue_needed, s.load_below_for_s), (728, 5));
    assert!((870.0..=885.0).contains(&s.load_below_per_second), "{s:?}");
    assert_eq!(s.since_unix_ns, last.root.end_unix_ns);
    let age = |i: &Incident| i.end_unix_ns - i.start_unix_ns;
    let open = ran.versions.iter().find(|i| i.state == State::Open && age(i) > 20_000_000_000).unwrap();
    for part in [
        "kept alive by retries since ",
        "root was: java@app-1 stood still",
        "129/128 and 150/150 now",
        "It ends below ",
    ] {
        assert!(open.title.contains(part), "{part}: {}", open.title);
    }
    let first = ran.versions.iter().position(|i| i.sustained.is_some()).unwrap();
    assert!(ran.versions[first..].iter().all(|i| i.sustained.is_some()), "once told, it stays");
    assert!(first > 0, "not before it is known");
}

#[test]
fn an_echo_is_no_failure_of_its_own() {
    // Two more seconds of retries are the end of a stall, and nothing that needs a way out.
    let ran = run(2, DROPPED);
    assert!(ran.versions.iter().all(|i| i.sustained.is_none()));
    assert_eq!(ran.versions.iter().map(|i| &i.id).collect::<std::collections::BTreeSet<_>>().len(), 1);
    // A queue that drops now and then is not kept full by those few who come again.
    assert!(run(60, 1).versions.iter().all(|i| i.sustained.is_none()));
}

#[test]
fn whoever_backed_off_and_comes_again_belongs_to_the_overload_that_shut_them_out() {
    let ids =
        |ran: &Ran| ran.versions.iter().map(|i| i.id.clone()).collect::<std::collections::BTreeSet<_>>();
    // After 12 s of drops some come again only 8 s later.
    let ran = run_with_wave(12, DROPPED, 100..104);
    assert_eq!(ids(&ran).len(), 1, "{:?}", ran.versions.iter().map(|i| &i.title).collect::<Vec<_>>());
    let last = ran.last();
    assert_eq!(last.drops.iter().map(|d| d.count).sum::<u64>(), ran.dropped[1], "the wave is counted");
    let s = last.sustained.as_ref().unwrap();
    assert!((s.retry_share - 0.375).abs() < 0.02, "the calm is no part of the account: {s:?}");
    // Nobody waits longer again than they have waited: what comes half a minute later is news.
    assert_eq!(ids(&run_with_wave(12, DROPPED, 600..604)).len(), 2);
    // Nor was anybody who was dropped for two seconds.
    assert_eq!(ids(&run_with_wave(2, DROPPED, 100..104)).len(), 2);
}

#[test]
fn what_was_held_back_and_comes_at_once_is_no_burst() {
    // Nobody asks for five seconds, and then everybody who would have.
    let held =
        Sim { seconds: 16, bursts: vec![(6000..11_000, 0.0), (11_000..11_250, 21.0)], ..Sim::default() };
    let incidents = diagnose(held);
    assert!(!incidents.is_empty());
    for incident in &incidents {
        assert_ne!(incident.root.resource, Resource::Burst, "{}", incident.title);
    }
    // As many at once that nobody waited to send are one.
    let burst = Sim { seconds: 16, bursts: vec![(11_000..11_250, 21.0)], ..Sim::default() };
    let incidents = diagnose(burst);
    assert_eq!(incidents[0].root.resource, Resource::Burst, "{}", incidents[0].title);
}

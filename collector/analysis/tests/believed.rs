//! For how long something is believed, waited for or kept to itself, at times that are written out: a drop notice far from the clock, a host
//! that falls silent, a queue that is near its limit again and again, and waves of drops close to each other.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{At, Do, FIRST_WINDOW, Sim};
use support::{diagnose, inputs};
use tailwater_analysis::{Config, FindingKind, Output, Pipeline};
use tailwater_model::incident::Kind;
use tailwater_model::window::{DropNotice, Input, WINDOW_NS};

/// What is said of a notice whose time is so many seconds before the collector's clock.
fn noticed(seconds: u64) -> Vec<Output> {
    let trace = Sim { seconds: 2, ..Sim::default() }.run();
    let mut pipeline = Pipeline::new(Config::default());
    for input in inputs(&trace) {
        pipeline.feed(input);
    }
    let now = (FIRST_WINDOW + 10 * 60 * 20) * WINDOW_NS;
    pipeline.feed(Input::Tick { unix_ns: now });
    pipeline.feed(Input::Drop(DropNotice {
        phase_ns: 0,
        host: "web-1".into(),
        listener: 1,
        unix_ns: now - seconds * 1_000_000_000,
        count: 1,
        sk_drops: 1,
        depth: 129,
        limit: 128,
    }))
}

#[test]
fn a_notice_of_eight_seconds_ago_is_an_alert_and_one_of_twelve_is_a_wrong_clock() {
    assert!(matches!(noticed(8)[..], [Output::Alert(_)]), "{:?}", noticed(8));
    let said = noticed(12);
    assert!(matches!(&said[..], [Output::Note(n)] if n.kind == FindingKind::FutureWindow), "{said:?}");
}

#[test]
fn a_queue_that_is_near_its_limit_again_and_again_is_told_while_that_lasts() {
    // A neighbour of 240 ms, ten times in nine seconds: the front is near its limit again and again, and nothing is dropped.
    let pulses = (0..10).map(|n| 6000 + 900 * n);
    let sim = pulses.fold(Sim { seconds: 18, ..Sim::default() }, |sim, at| {
        sim.act(At::App, at..at + 240, Do::Neighbour(0.99))
    });
    assert_eq!(sim.run().dropped, [0; 4]);
    let mut pipeline = Pipeline::new(Config::default());
    let (mut now, mut told) = (0, None);
    for input in inputs(&sim.run()) {
        if let Input::Tick { unix_ns } = input {
            now = unix_ns;
        }
        for output in pipeline.feed(input) {
            if let Output::Incident(incident) = output {
                told = told.or(Some((now - incident.start_unix_ns, incident)));
            }
        }
    }
    let (after_ns, incident) = told.unwrap();
    assert_eq!(incident.kind, Kind::NearOverflow, "{}", incident.title);
    assert!((4_000_000_000..7_000_000_000).contains(&after_ns), "{after_ns}: {}", incident.title);
}

/// Incidents of two causes of which the second drops so long after the last drop of the first.
fn two_causes(gap_ms: u64) -> usize {
    let first = Sim { seconds: 14, ..Sim::default() }.act(At::App, 6000..6600, Do::Neighbour(0.95));
    let incidents = diagnose(first.act(At::Db, 6600 + gap_ms..7400 + gap_ms, Do::Disk));
    incidents.iter().filter(|i| !i.drops.is_empty()).count()
}

#[test]
fn drops_that_end_for_half_a_second_and_begin_again_are_another_wave() {
    // The last drop of the first cause comes 50 ms after its end, the first of the second one 200 ms after its beginning.
    assert_eq!(two_causes(250), 1, "400 ms between two drops");
    assert_eq!(two_causes(400), 2, "600 ms");
}

//! An event-driven tier that stops reading: the cause is its event loop where its agent saw the thread run on or sleep elsewhere, and not
//! where the thread had no CPU, or was told of another tier.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::sim::{At, Do, Sim, Trace};
use support::{inputs, last_versions, outputs};
use tailwater_analysis::Config;
use tailwater_model::Incident;
use tailwater_model::incident::{Kind, Resource};
use tailwater_model::window::{BlockedLoop, WINDOW_NS};

const MS: u64 = 1_000_000;
/// From when to when the application's loop stands, ms of the run.
const STANDS: std::ops::Range<u64> = 6000..6700;

/// An event-driven front and application before a database; the application stands for a while.
fn standing(what: Do) -> Trace {
    let sim = Sim {
        seconds: 13,
        rate: 700.0,
        web_workers: None,
        app_workers: None,
        db_workers: Some(40),
        backlogs: [4096, 4096, 24],
        app_work_ms: 0.02,
        ..Sim::default()
    };
    sim.act(At::Db, 0..13_000, Do::Costly(2.5)).act(At::App, STANDS, what).run()
}

/// What the application's agent tells of its thread, in the windows that it would tell it of: so much of each it ran, and waited for a CPU.
fn with_loop(mut trace: Trace, ran_ms: u64, waited_ms: u64, slept_in: &str) -> Trace {
    let first = trace.windows.iter().map(|w| w.index.0).min().unwrap();
    for window in trace.windows.iter_mut().filter(|w| w.host == "app-1") {
        let end_ms = (window.index.0 - first + 1) * WINDOW_NS / MS;
        // It looks from the second whole window without a read on.
        if !(STANDS.start + 100..=STANDS.end).contains(&end_ms) {
            continue;
        }
        window.blocked_loops.push(BlockedLoop {
            listener: 1,
            thread: 4711,
            comm: "node".into(),
            silent_ns: (end_ms - STANDS.start) * MS,
            span_ns: WINDOW_NS,
            ran_ns: ran_ms * MS,
            waited_ns: waited_ms * MS,
            uninterruptible: false,
            slept_in: slept_in.into(),
        });
    }
    trace
}

fn only(trace: &Trace) -> Incident {
    let mut incidents = last_versions(&outputs(&Config::default(), inputs(trace)));
    let said: Vec<&str> = incidents.iter().map(|i| i.title.as_str()).collect();
    assert_eq!(incidents.len(), 1, "{said:#?}");
    incidents.remove(0)
}

#[test]
fn a_loop_that_computes_is_the_cause_of_what_its_batch_overflows() {
    let incident = only(&with_loop(standing(Do::Pause), 49, 0, ""));
    let root = &incident.root;
    assert_eq!((incident.kind, root.resource), (Kind::DownstreamCtqo, Resource::EventLoop), "{incident:#?}");
    assert_eq!((root.host.as_str(), root.unit.as_str()), ("app-1", "ms"));
    let found = root.event_loop.as_ref().unwrap();
    assert_eq!((found.thread, found.comm.as_str(), found.slept_in.as_str()), (4711, "node", ""));
    assert!((600..=750).contains(&found.blocked_ms), "{found:?}");
    assert!((found.ran_ratio - 0.98).abs() < 0.001, "{found:?}");
    let words =
        format!("its event loop was blocked from {}", &incident.title.split("blocked from ").nth(1).unwrap());
    assert!(
        words.contains(&format!(
            ": thread `node` (4711) ran for {} ms without coming back to epoll_wait (98 % of one CPU)",
            found.blocked_ms
        )),
        "{}",
        incident.title
    );
    assert!(incident.alternatives.iter().any(|a| a.root.resource == Resource::Pause), "{incident:#?}");
}

#[test]
fn a_loop_that_sleeps_elsewhere_is_told_with_the_place() {
    let incident = only(&with_loop(standing(Do::Pause), 0, 0, "futex_wait_queue"));
    assert_eq!(incident.root.resource, Resource::EventLoop, "{incident:#?}");
    assert!(
        incident.title.contains("ms, in `futex_wait_queue` (a lock, or another thread)"),
        "{}",
        incident.title
    );
}

#[test]
fn a_loop_that_had_no_cpu_is_not_blocked() {
    let incident = only(&with_loop(standing(Do::Neighbour(0.98)), 1, 49, ""));
    assert_eq!(incident.root.resource, Resource::CpuNeighbour, "{incident:#?}");
    assert_eq!(incident.root.event_loop, None);
    let nothing_else = only(&with_loop(standing(Do::Pause), 1, 49, ""));
    assert_eq!(nothing_else.root.resource, Resource::Pause, "{nothing_else:#?}");
}

#[test]
fn where_no_agent_looks_at_threads_the_old_words_stay() {
    let incident = only(&standing(Do::Pause));
    assert_eq!(incident.root.resource, Resource::Pause, "{incident:#?}");
    assert!(incident.title.contains(" stood still from "), "{}", incident.title);
}

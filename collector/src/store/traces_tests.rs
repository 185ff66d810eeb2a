//! Tests of the traces that are kept with incidents: over a restart, from a database of before, on a disk that refuses them, and as long as the incident.

use super::*;
use crate::lock::lock;
use crate::store::queue::TRACES_MAX;
use std::time::Duration;
use tailwater_model::traces::{IncidentTraces, ServiceTraces, SlowTrace};

fn traces(incident: &str, settled: bool, ms: u64) -> IncidentTraces {
    let trace = SlowTrace {
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
        span_id: "00f067aa0ba902b7".into(),
        name: "GET /cart".into(),
        host: "web-1".into(),
        start_unix_ns: 1_794_000_000_000_000_000,
        end_unix_ns: 1_794_000_000_000_000_000 + ms * 1_000_000,
        error: true,
        link: None,
    };
    let service = ServiceTraces { service: "shop".into(), tier: Some("shop".into()), traces: vec![trace] };
    IncidentTraces { incident: incident.into(), settled, services: vec![service] }
}

fn closed(id: &str) -> Incident {
    Incident { state: State::Closed, ..incident(id, 1) }
}

#[test]
fn the_traces_of_an_incident_are_read_as_they_were_told_last_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    running.put(closed("01A")).unwrap();
    running.opened.past.queue.traces(traces("01A", false, 300));
    let past = running.opened.past.clone();
    wait(|| past.traces("01A").is_some());
    running.opened.past.queue.traces(traces("01A", true, 900));
    running.close();
    let (_, past, _) = start(folder.path()).close();
    assert_eq!(past.traces("01A"), Some(traces("01A", true, 900)));
    assert_eq!(past.traces("01B"), None);
}

#[test]
fn a_database_of_before_keeps_its_incidents_and_takes_traces() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    running.put(closed("01A")).unwrap();
    let (_, past, _) = running.close();
    // As the version before wrote it.
    let before = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    before.execute_batch("DROP TRIGGER traces_of_gone; DROP TABLE traces; PRAGMA user_version = 1").unwrap();
    assert_eq!(past.traces("01A"), None, "while it is as it was nobody is told of an error");
    drop(before);
    let running = start(folder.path());
    assert_eq!(running.ids(), ["01A"]);
    running.opened.past.queue.traces(traces("01A", true, 300));
    let (_, past, metrics) = running.close();
    assert_eq!((past.traces("01A"), metrics.store_failures.get()), (Some(traces("01A", true, 300)), 0));
}

#[test]
fn traces_go_with_their_incident() {
    let folder = tempfile::tempdir().unwrap();
    let mut db = Db::open(folder.path()).unwrap();
    let lines = ["01A", "01B"].map(|id| Line { incident: closed(id), timeline: None });
    db.put(lines.iter(), |_, _| None).unwrap();
    db.put_traces(["01A", "01B"].map(|id| traces(id, true, 300)).iter()).unwrap();
    db.prune(1).unwrap();
    assert_eq!((db.traces("01A").unwrap(), db.traces("01B").unwrap().is_some()), (None, true));
    db.put_traces([traces("01A", true, 300)].iter()).unwrap();
    assert_eq!(db.traces("01A").unwrap(), None, "nor do they come once it is gone");
}

#[test]
fn a_disk_that_refuses_traces_gets_them_later_and_what_is_too_much_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let Prepared { mut writer, past, store, .. } = prepared(folder.path());
    // Those of no incident that is there are not kept.
    lock(&store).put(closed("001"), None);
    writer.turn(Duration::ZERO);
    writer.db.as_ref().unwrap().set_full(true).unwrap();
    let long = |n: usize| IncidentTraces {
        services: (0..200).flat_map(|_| traces("", true, 300).services).collect(),
        ..traces(&format!("{n:03}"), true, 300)
    };
    for n in 0..=TRACES_MAX {
        past.queue.traces(long(n));
    }
    assert_eq!(writer.metrics.store_traces_dropped.get(), 1, "the queue has its bound");
    writer.turn(Duration::ZERO);
    assert_eq!((writer.metrics.store_failures.get(), past.traces("000")), (1, None));
    past.queue.traces(long(TRACES_MAX));
    writer.turn(Duration::ZERO);
    assert_eq!(writer.metrics.store_failures.get(), 1, "it is not tried again at once");
    assert_eq!(writer.metrics.store_traces_dropped.get(), 2, "and so has what waits for the disk");
    writer.db.as_ref().unwrap().set_full(false).unwrap();
    past.queue.close();
    writer.turn(Duration::ZERO);
    assert_eq!((past.traces("000"), past.traces("001").is_some()), (None, true));
    assert_eq!(writer.metrics.store_traces_dropped.get(), 2);
}

//! Tests of what is kept, and of what a crash leaves.

use super::*;
use crate::fixture::incident;

fn open(folder: &Path) -> (Store, std::thread::JoinHandle<()>) {
    Store::open(folder, 3, Arc::new(Metrics::default())).unwrap()
}

fn close((mut store, thread): (Store, std::thread::JoinHandle<()>)) {
    store.close();
    thread.join().unwrap();
}

#[test]
fn a_restart_keeps_incidents_closes_open_ones_and_goes_on_counting_versions() {
    let folder = tempfile::tempdir().unwrap();
    let mut a = open(folder.path());
    for version in 0..4 {
        assert!(a.0.put(incident("01A", version), None).is_some());
    }
    assert!(a.0.put(incident("01A", 3), None).is_none(), "told already");
    close(a);
    let mut b = open(folder.path());
    let (kept, _) = b.0.get("01A").unwrap();
    assert_eq!((kept.version, kept.state), (4, State::Closed));
    // The agents send again what was not acknowledged: the same incident from version 0.
    let again = b.0.put(incident("01A", 0), None).unwrap();
    assert_eq!((again.version, again.state), (5, State::Open));
    assert_eq!(b.0.put(incident("01A", 1), None).unwrap().version, 6);
    close(b);
}

#[test]
fn a_torn_tail_and_damaged_lines_cost_only_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let mut a = open(folder.path());
    a.0.put(incident("01A", 1), None);
    a.0.put(incident("01B", 1), None);
    close(a);
    let path = folder.path().join("incidents.jsonl");
    let mut bytes = std::fs::read(&path).unwrap();
    let first_end = bytes.iter().position(|b| *b == b'\n').unwrap();
    bytes.splice(first_end + 1..first_end + 1, b"{\"id\": garbage}\n".iter().copied());
    bytes.truncate(bytes.len() - 40);
    std::fs::write(&path, bytes).unwrap();
    let b = open(folder.path());
    assert!(b.0.get("01A").is_some());
    assert!(b.0.get("01B").is_none());
    close(b);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 1, "written anew without the damage");
}

#[test]
fn the_oldest_closed_incident_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut a = open(folder.path());
    for id in ["01A", "01B", "01C", "01D"] {
        let mut i = incident(id, 1);
        i.state = if id == "01A" { State::Open } else { State::Closed };
        a.0.put(i, None);
    }
    let ids: Vec<_> = a.0.list(0, None, 10).iter().map(|i| i.id.clone()).collect();
    assert_eq!(ids, ["01D", "01C", "01A"]);
    assert_eq!(a.0.list(0, Some(State::Open), 10).len(), 1);
    assert!(a.0.list(u64::MAX, None, 10).is_empty());
    close(a);
}

#[test]
fn a_replaced_alert_is_listed_no_more_but_its_id_still_leads_somewhere() {
    let folder = tempfile::tempdir().unwrap();
    let mut a = open(folder.path());
    a.0.put(incident("01B", 0), None);
    a.0.put(incident("01A", 1), None);
    a.0.replace("01B", "01A");
    assert_eq!(a.0.list(0, None, 10).len(), 1);
    assert_eq!(a.0.get("01B").unwrap().0.id, "01A");
    close(a);
    let text = std::fs::read_to_string(folder.path().join("incidents.jsonl")).unwrap();
    assert!(!text.contains("01B"));
}

#[test]
fn a_line_of_the_file_is_the_incident_as_the_api_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut a = open(folder.path());
    let shown = a.0.put(incident("01A", 1), None).unwrap();
    close(a);
    let line = std::fs::read_to_string(folder.path().join("incidents.jsonl")).unwrap();
    assert_eq!(line.trim_end(), serde_json::to_string(shown.as_ref()).unwrap());
}

//! The outbox on a real disk: restarts, bounds, damage.

use super::*;
use crate::alert::message::What;
use crate::alert::message::tests::message;

fn hook() -> Arc<str> {
    "h".into()
}

fn open(folder: &Path, rows_max: u64) -> (Outbox, Vec<Restored>, std::thread::JoinHandle<()>) {
    let bounds = config::Outbox { rows_max, mib_max: 64 };
    let opened = Outbox::open(folder, bounds, Arc::default(), &[]).unwrap();
    (opened.outbox, opened.restored, opened.thread)
}

fn put(outbox: &Outbox, incident: &str, version: u64, what: What, state: State) -> Arc<Message> {
    let m = Arc::new(message(incident, version, what));
    outbox.put(&hook(), &m, State::Waiting);
    if state != State::Waiting {
        outbox.mark(&hook(), &m, state, 1, "answered 410");
    }
    m
}

fn close(outbox: Outbox, thread: std::thread::JoinHandle<()>) {
    drop(outbox);
    thread.join().unwrap();
}

#[test]
fn a_restart_knows_what_waits_and_what_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, nothing, thread) = open(folder.path(), 100);
    assert!(nothing.is_empty());
    put(&outbox, "A", 0, What::Opened, State::Sent);
    put(&outbox, "A", 1, What::Updated, State::Sent);
    put(&outbox, "B", 0, What::Opened, State::Sent);
    put(&outbox, "B", 1, What::Closed, State::Sent);
    put(&outbox, "C", 0, What::Opened, State::Waiting);
    put(&outbox, "D", 0, What::Opened, State::Dead);
    // Refused from begin to end, and refused after the receiver had taken something.
    put(&outbox, "E", 0, What::Opened, State::Dead);
    put(&outbox, "E", 1, What::Closed, State::Dead);
    put(&outbox, "F", 0, What::Opened, State::Sent);
    put(&outbox, "F", 1, What::Updated, State::Dead);
    put(&outbox, "F", 2, What::Closed, State::Dead);
    put(&outbox, "A", 1, What::Updated, State::Sent); // again: nothing new
    close(outbox, thread);
    let (outbox, restored, thread) = open(folder.path(), 100);
    let known: Vec<_> = restored.iter().map(|r| (r.message.id.as_str(), r.waiting, r.refused)).collect();
    let open = [("A.1", false, false), ("C.0", true, false), ("D.0", false, true), ("F.0", false, false)];
    assert_eq!(known, open);
    let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dead = rt.block_on(outbox.list(true)).unwrap();
    assert!(dead.iter().all(|row| row.error == "answered 410"), "{dead:?}");
    let dead: Vec<_> = dead.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(dead, ["F.2", "F.1", "E.1", "E.0", "D.0"]);
    assert_eq!(rt.block_on(outbox.dead(Some("D".into()))).unwrap().len(), 1);
    assert!(rt.block_on(outbox.dead(Some("X".into()))).unwrap().is_empty());
    close(outbox, thread);
}

#[test]
fn the_file_is_bounded_and_resolved_incidents_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, _, thread) = open(folder.path(), 20);
    let stats = Arc::clone(&outbox.stats);
    put(&outbox, "OPEN", 0, What::Opened, State::Sent);
    put(&outbox, "DEAD", 0, What::Opened, State::Dead);
    for n in 0..100 {
        let id = format!("{n:03}");
        put(&outbox, &id, 0, What::Opened, State::Sent);
        put(&outbox, &id, 1, What::Closed, State::Sent);
    }
    close(outbox, thread);
    assert!(stats.outbox_rows.get() <= 20, "{}", stats.outbox_rows.get());
    assert_eq!(stats.outbox_lost.get(), 0);
    let (outbox, restored, thread) = open(folder.path(), 20);
    assert!(restored.iter().any(|r| r.message.id == "OPEN.0"), "{restored:?}");
    for n in 0..40 {
        put(&outbox, &format!("W{n:03}"), 0, What::Opened, State::Waiting);
    }
    let stats = Arc::clone(&outbox.stats);
    close(outbox, thread);
    assert!(stats.outbox_rows.get() <= 20 && stats.outbox_lost.get() >= 20, "lost and counted");
}

#[test]
fn a_file_that_is_no_database_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("outbox.db"), "not a database at all, whatever its name says").unwrap();
    let (outbox, _, thread) = open(folder.path(), 20);
    put(&outbox, "A", 0, What::Opened, State::Waiting);
    close(outbox, thread);
    assert!(folder.path().join("aside/outbox.db.0").exists());
    assert_eq!(open(folder.path(), 20).1.len(), 1);
}

/// It can be opened, and is found to be damaged by whoever reads that page.
#[test]
fn a_file_with_a_damaged_page_is_put_aside_and_alerts_are_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, _, thread) = open(folder.path(), 1000);
    for n in 0..200 {
        put(&outbox, &format!("{n:03}"), 0, What::Opened, State::Waiting);
    }
    close(outbox, thread);
    let path = folder.path().join("outbox.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let (outbox, restored, thread) = open(folder.path(), 1000);
    assert!(restored.is_empty());
    put(&outbox, "A", 0, What::Opened, State::Waiting);
    while outbox.stats.outbox_rows.get() != 1 {
        std::thread::sleep(Duration::from_millis(10));
    }
    close(outbox, thread);
    assert!(folder.path().join("aside/outbox.db.0").exists());
    assert_eq!(open(folder.path(), 20).1.len(), 1);
}

/// The change was superseded by an end that its receiver never took: what it was told is that it began.
#[test]
fn a_change_that_was_never_sent_hides_no_beginning_that_was() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, _, thread) = open(folder.path(), 100);
    put(&outbox, "A", 0, What::Opened, State::Sent);
    put(&outbox, "A", 1, What::Updated, State::Superseded);
    put(&outbox, "A", 2, What::Closed, State::Dead);
    close(outbox, thread);
    let (outbox, restored, thread) = open(folder.path(), 100);
    let known: Vec<_> = restored.iter().map(|r| (r.message.id.as_str(), r.waiting)).collect();
    assert_eq!(known, [("A.0", false)]);
    close(outbox, thread);
}

#[test]
fn a_folder_that_appears_later_gets_what_was_kept_for_it() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("not-yet");
    let (outbox, _, thread) = open(&folder, 20);
    put(&outbox, "A", 0, What::Opened, State::Waiting);
    while outbox.stats.write_failures.get() < 2 {
        std::thread::yield_now();
    }
    std::fs::create_dir(&folder).unwrap();
    while outbox.stats.outbox_rows.get() == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    close(outbox, thread);
    assert_eq!(open(&folder, 20).1.len(), 1);
}

#[test]
fn what_could_not_be_read_at_the_start_is_told_once_it_can_be_and_before_anything_is_written() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, away) = (parent.path().join("data"), parent.path().join("away"));
    std::fs::create_dir(&folder).unwrap();
    let (outbox, _, thread) = open(&folder, 100);
    put(&outbox, "A", 0, What::Opened, State::Waiting);
    put(&outbox, "B", 1, What::Updated, State::Sent);
    close(outbox, thread);
    std::fs::rename(&folder, &away).unwrap();
    std::fs::write(&folder, "in the way").unwrap();
    let opened = Outbox::open(&folder, config::Outbox::default(), Arc::default(), &[]).unwrap();
    assert!(opened.restored.is_empty());
    put(&opened.outbox, "C", 0, What::Opened, State::Waiting);
    while opened.outbox.stats.write_failures.get() < 2 {
        std::thread::yield_now();
    }
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    let rows = opened.late.unwrap().blocking_recv().unwrap();
    let known: Vec<_> = rows.iter().map(|r| (r.message.id.as_str(), r.waiting)).collect();
    assert_eq!(known, [("A.0", true), ("B.1", false)]);
    opened.outbox.outdated(&hook(), &Arc::new(message("A", 0, What::Opened)));
    opened.outbox.outdated(&hook(), &Arc::new(message("B", 1, What::Updated)));
    close(opened.outbox, opened.thread);
    let (outbox, restored, thread) = open(&folder, 100);
    let known: Vec<_> = restored.iter().map(|r| (r.message.id.as_str(), r.waiting)).collect();
    assert_eq!(known, [("B.1", false), ("C.0", true)], "what was sent stays sent");
    close(outbox, thread);
}

/// As it was when what is held back waited like all else, and an id named no run of the collector.
const SCHEMA_BEFORE: &str = "
CREATE TABLE IF NOT EXISTS message (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  hook TEXT NOT NULL,
  incident TEXT NOT NULL,
  id TEXT NOT NULL,
  type TEXT NOT NULL,
  state TEXT NOT NULL,
  tries INTEGER NOT NULL,
  created_unix_ns INTEGER NOT NULL,
  error TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (hook, incident, id, type)
) STRICT;
CREATE INDEX IF NOT EXISTS message_state ON message (state, seq);
";

#[test]
fn a_file_of_the_version_before_is_taken_over_and_the_newest_of_each_incident_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let db = rusqlite::Connection::open(folder.path().join("outbox.db")).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    db.execute_batch(SCHEMA_BEFORE).unwrap();
    let insert =
        "INSERT INTO message (hook, incident, id, type, state, tries, created_unix_ns, error, bytes, body)
        VALUES ('h', ?, ?, ?, ?, 0, 1, '', 400, ?)";
    for (incident, version, what, state) in
        [("A", 9, What::Opened, "sent"), ("A", 12, What::Updated, "waiting"), ("B", 7, What::Opened, "sent")]
    {
        let row = message(incident, version, what);
        let body = serde_json::to_string(&row).unwrap();
        db.execute(insert, rusqlite::params![incident, row.id, what.name(), state, body]).unwrap();
    }
    drop(db);
    let reopened = || Outbox::open(folder.path(), config::Outbox::default(), Arc::default(), &[]).unwrap();
    let opened = reopened();
    let known: Vec<_> = opened.restored.iter().map(|r| (r.message.id.as_str(), r.waiting, r.held)).collect();
    assert_eq!(known, [("A.12", true, false), ("B.7", false, false)]);
    let newest = |a: u64, b: u64| BTreeMap::from([("A".to_owned(), a), ("B".to_owned(), b)]);
    assert_eq!(opened.newest, newest(12, 7));
    let end = Message { id: "B.10.9e901234.restart".into(), ..message("B", 10, What::Closed) };
    opened.outbox.put(&hook(), &Arc::new(end), State::Sent);
    opened.outbox.mark(&hook(), &Arc::new(message("A", 12, What::Updated)), State::Held, 0, "");
    close(opened.outbox, opened.thread);
    let opened = reopened();
    let known: Vec<_> = opened.restored.iter().map(|r| (r.message.id.as_str(), r.waiting, r.held)).collect();
    assert_eq!(known, [("A.12", true, true)], "held back, and the other is over");
    assert_eq!(opened.newest, newest(12, 10));
    close(opened.outbox, opened.thread);
}

#[test]
fn an_incident_whose_last_message_was_a_reminder_is_open_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, _, thread) = open(folder.path(), 100);
    put(&outbox, "A", 0, What::Opened, State::Sent);
    put(&outbox, "A", 1, What::Reminded, State::Sent);
    close(outbox, thread);
    let (outbox, restored, thread) = open(folder.path(), 100);
    let known: Vec<_> = restored.iter().map(|r| (r.message.id.as_str(), r.waiting)).collect();
    assert_eq!(known, [("A.1", false)]);
    close(outbox, thread);
}

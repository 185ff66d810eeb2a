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
    put(&outbox, "A", 1, What::Updated, State::Sent); // again: nothing new
    close(outbox, thread);
    let (outbox, restored, thread) = open(folder.path(), 100);
    let known: Vec<_> = restored.iter().map(|r| (r.message.id.as_str(), r.waiting)).collect();
    assert_eq!(known, [("A.1", false), ("C.0", true)]);
    let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dead = rt.block_on(outbox.list(true)).unwrap();
    assert_eq!((dead.len(), dead[0].id.as_str(), dead[0].error.as_str()), (1, "D.0", "answered 410"));
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
    assert!(folder.path().join("outbox.db.damaged").exists());
    assert_eq!(open(folder.path(), 20).1.len(), 1);
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

//! The thread's side of the outbox: the SQL, and what happens when the disk refuses.

use super::{AGAIN_AFTER, BATCH_MAX, LIST_MAX, Listed, Op, Restored, WRITES_MAX};
use crate::alert::config;
use crate::alert::message::{Message, REPLACED};
use crate::alert::stats::Stats;
use crate::aside;
use rusqlite::{Connection, ErrorCode, params};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tokio::sync::oneshot;

const SCHEMA: &str = "
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

const INSERT: &str = "INSERT OR IGNORE INTO message
  (hook, incident, id, type, state, tries, created_unix_ns, error, bytes, body) VALUES (?, ?, ?, ?, ?, 0, ?, '', ?, ?)";
const UPDATE: &str = "UPDATE message SET state = ?, tries = ?, error = ? WHERE hook = ? AND incident = ? AND id = ? AND type = ?";
/// What [`restored`] reads of a row `m`.
const RESTORED: &str =
    "m.hook, m.body, m.state, m.tries, m.type <> 'closed' AND EXISTS (SELECT 1 FROM message r
  WHERE r.hook = m.hook AND r.incident = m.incident AND r.type = 'closed' AND r.seq > m.seq
    AND substr(r.id, -length(?1)) = ?1)";
const OUTDATED: &str = "UPDATE message SET state = 'superseded', error = 'told again after a restart'
  WHERE state IN ('waiting', 'held') AND hook = ? AND incident = ? AND id = ? AND type = ?";

/// Whether the file is no database any more, wholly or in a page.
fn is_damage(e: &rusqlite::Error) -> bool {
    matches!(e.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

/// The thread's side.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) db: Option<Connection>,
    /// Who has yet to hear what the file remembers of before the start.
    pub(super) late: Option<oneshot::Sender<Vec<Restored>>>,
    pub(super) bounds: config::Outbox,
    pub(super) stats: Arc<Stats>,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// What could not be written yet, in its order.
    pub(super) pending: VecDeque<Op>,
    pub(super) failing: bool,
}

type Sql<T> = Result<T, rusqlite::Error>;

impl File {
    pub(super) fn run(mut self, work: &Receiver<Op>) {
        loop {
            let next = if self.pending.is_empty() && self.late.is_none() {
                work.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                work.recv_timeout(AGAIN_AFTER)
            };
            let ended = matches!(next, Err(RecvTimeoutError::Disconnected));
            self.turn(next.ok(), work);
            if ended {
                return;
            }
        }
    }

    /// Writes what has arrived, `first` before all else, and then answers what was asked. Waits for the disk alone.
    pub(super) fn turn(&mut self, first: Option<Op>, work: &Receiver<Op>) {
        let mut questions = Vec::new();
        let arrived = first.into_iter().chain(std::iter::from_fn(|| work.try_recv().ok()));
        for op in arrived.take(BATCH_MAX) {
            match op {
                Op::List { .. } | Op::Dead { .. } | Op::Flush { .. } => questions.push(op),
                write => self.pending.push_back(write),
            }
        }
        while self.pending.len() > WRITES_MAX {
            self.pending.pop_front();
            self.stats.writes_dropped.inc();
        }
        let pending = std::mem::take(&mut self.pending);
        match self.restore_late().and_then(|()| self.write(&pending)) {
            Ok(()) => {
                // Whoever waits for these writes hears of them.
                drop(pending);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("{}: written again", self.path.display());
                }
            }
            Err(e) => {
                self.pending = pending;
                self.stats.write_failures.inc();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!("{}; alerts are delivered all the same", self.explain(&e));
                }
                // A handle to a file that was moved or damaged does not recover, nor does a file with a damaged page, which can be opened.
                self.db = None;
                if is_damage(&e) {
                    self.put_aside(&e);
                }
            }
        }
        // After the write, so that an answer knows what was said before the question.
        questions.into_iter().for_each(|question| self.answer(question));
    }

    fn answer(&mut self, question: Op) {
        // Nobody waits for it any more: fine.
        match question {
            Op::List { dead, reply } => drop(reply.send(self.list(dead).map_err(|e| self.explain(&e)))),
            Op::Dead { id, reply } => {
                drop(reply.send(self.dead(id.as_deref()).map_err(|e| self.explain(&e))))
            }
            Op::Flush { reply } => drop(reply.send(())),
            Op::Put { .. } | Op::Mark { .. } | Op::Outdated { .. } => {}
        }
    }

    fn explain(&self, e: &rusqlite::Error) -> String {
        format!("{}: {e}", self.path.display())
    }

    fn put_aside(&self, why: &rusqlite::Error) {
        let said = self.explain(why);
        match aside::put(self.path.parent().unwrap_or(Path::new(".")), &self.path, &["-wal", "-shm"]) {
            Ok(to) => tracing::error!("{said}: moved to {}; a new one is begun", to.display()),
            Err(e) => tracing::error!("{said}; and it cannot be put aside: {e}"),
        }
    }

    /// Opens the file; one that is no database is put aside.
    pub(super) fn connect(&mut self) -> Sql<()> {
        let db = match self.open() {
            Err(e) if is_damage(&e) => {
                self.put_aside(&e);
                self.open()?
            }
            other => other?,
        };
        (self.rows, self.bytes) =
            db.query_row("SELECT count(*), coalesce(sum(bytes), 0) FROM message", [], |r| {
                Ok((unsigned(r, 0)?, unsigned(r, 1)?))
            })?;
        self.stats.outbox_rows.set(self.rows);
        self.stats.outbox_bytes.set(self.bytes);
        self.db = Some(db);
        Ok(())
    }

    fn open(&self) -> Sql<Connection> {
        let db = Connection::open(&self.path)?;
        db.busy_timeout(Duration::from_secs(2))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "NORMAL")?;
        db.pragma_update(None, "journal_size_limit", 8 << 20)?;
        db.execute_batch(SCHEMA)?;
        Ok(db)
    }

    fn db(&mut self) -> Sql<&mut Connection> {
        if self.db.is_none() {
            self.connect()?;
        }
        self.db.as_mut().ok_or(rusqlite::Error::InvalidQuery)
    }

    fn write(&mut self, ops: &VecDeque<Op>) -> Sql<()> {
        if ops.is_empty() {
            return Ok(());
        }
        let (mut rows, mut bytes) = (0, 0);
        let transaction = self.db()?.transaction()?;
        let mut insert = transaction.prepare(INSERT)?;
        let mut update = transaction.prepare(UPDATE)?;
        let mut outdated = transaction.prepare(OUTDATED)?;
        for op in ops {
            match op {
                Op::Put { hook, message, state, .. } => {
                    let Ok(body) = serde_json::to_string(message.as_ref()) else { continue };
                    let size = body.len() as u64 + 200;
                    let new = insert.execute(params![
                        hook.as_ref(),
                        message.incident,
                        message.id,
                        message.what.name(),
                        state.name(),
                        message.at_unix_ns as i64,
                        size as i64,
                        body
                    ])?;
                    if new > 0 {
                        rows += 1;
                        bytes += size;
                    }
                }
                Op::Mark { hook, message, state, tries, error } => {
                    let (incident, id, what) = (&message.incident, &message.id, message.what.name());
                    update.execute(params![state.name(), tries, error, hook.as_ref(), incident, id, what])?;
                }
                Op::Outdated { hook, message } => {
                    let (incident, id, what) = (&message.incident, &message.id, message.what.name());
                    outdated.execute(params![hook.as_ref(), incident, id, what])?;
                }
                Op::List { .. } | Op::Dead { .. } | Op::Flush { .. } => {}
            }
        }
        drop((insert, update, outdated));
        transaction.commit()?;
        self.rows += rows;
        self.bytes += bytes;
        self.trim()?;
        self.stats.outbox_rows.set(self.rows);
        self.stats.outbox_bytes.set(self.bytes);
        Ok(())
    }

    /// Delivered messages of resolved incidents go first, then what was given up, then the oldest.
    fn trim(&mut self) -> Sql<()> {
        let bytes_max = self.bounds.mib_max << 20;
        let classes = [
            "state NOT IN ('waiting', 'held', 'dead') AND (type = 'summary' OR EXISTS (SELECT 1 FROM message c WHERE c.hook = message.hook AND c.incident = message.incident AND c.type = 'closed'))",
            "state = 'dead'",
            "true",
        ];
        for class in classes {
            while self.rows > self.bounds.rows_max || self.bytes > bytes_max {
                // A little more than needed, so that it is not done for every message.
                let n = (self.bounds.rows_max / 50 + 1).min(256);
                let sql = format!(
                    "DELETE FROM message WHERE seq IN (SELECT seq FROM message WHERE {class} ORDER BY seq LIMIT {n}) RETURNING bytes, state"
                );
                let mut gone = 0;
                let mut lost = 0;
                let mut freed = 0;
                {
                    let db = self.db()?;
                    let mut delete = db.prepare(&sql)?;
                    let mut rows = delete.query([])?;
                    while let Some(row) = rows.next()? {
                        gone += 1;
                        freed += unsigned(row, 0)?;
                        let state = row.get::<_, String>(1)?;
                        lost += u64::from(matches!(state.as_str(), "dead" | "waiting" | "held"));
                    }
                }
                if gone == 0 {
                    break;
                }
                self.rows = self.rows.saturating_sub(gone);
                self.bytes = self.bytes.saturating_sub(freed);
                self.stats.outbox_lost.add(lost);
            }
        }
        Ok(())
    }

    /// Before the first write after a start at which the file could not be read: what is in it then is all of before.
    fn restore_late(&mut self) -> Sql<()> {
        if self.late.is_some() {
            let rows = self.restore()?;
            if let Some(late) = self.late.take() {
                let _ = late.send(rows); // nobody waits any more: they stay where they are
            }
        }
        Ok(())
    }

    pub(super) fn restore(&mut self) -> Sql<Vec<Restored>> {
        // What waits, and the last that was told of incidents whose end was not. A change that a newer message made superfluous told nothing: it
        // must not hide what was sent before it, where that newer one was given up. And what a receiver refused, if it took nothing of the
        // incident and no end was tried: the end of another of its thread may have gone out that counts this one as open. Once only: who refuses
        // all is not told at each start of ends that are long past.
        let sql = format!(
            "SELECT {RESTORED} FROM message m WHERE state IN ('waiting', 'held')
             OR (state = 'sent' AND type IN ('opened', 'updated', 'reminded')
                 AND seq = (SELECT max(seq) FROM message l WHERE l.hook = m.hook AND l.incident = m.incident AND l.state IN ('sent', 'waiting', 'held', 'superseded')
                            AND NOT (l.state = 'superseded' AND l.type IN ('updated', 'reminded'))))
             OR (state = 'dead' AND type IN ('opened', 'updated', 'reminded')
                 AND NOT EXISTS (SELECT 1 FROM message l WHERE l.hook = m.hook AND l.incident = m.incident AND (l.seq > m.seq OR l.state = 'sent')))
             ORDER BY seq"
        );
        let db = self.db()?;
        let mut rows = db.prepare(&sql)?;
        let all = rows.query_map([REPLACED], restored)?;
        // A row that this version does not understand is left where it is.
        all.filter_map(|r| r.transpose()).collect::<Sql<_>>()
    }

    /// Which hooks have a row of which of these incidents, by their ids.
    pub(super) fn heard<'a>(
        &mut self,
        ids: impl Iterator<Item = &'a str>,
    ) -> Sql<BTreeSet<(String, String)>> {
        let ids: Vec<&str> = ids.collect();
        let sql =
            "SELECT DISTINCT hook, incident FROM message WHERE incident IN (SELECT value FROM json_each(?))";
        let mut rows = self.db()?.prepare(sql)?;
        rows.query_map([serde_json::json!(ids).to_string()], |r| Ok((r.get(0)?, r.get(1)?)))?.collect()
    }

    /// The newest version of each incident in any row. It stands in the id, behind the incident and a point (`message.rs`), and what
    /// follows it begins with another point; so it was in every version of the collector.
    pub(super) fn newest(&mut self) -> Sql<BTreeMap<String, u64>> {
        let sql = "SELECT incident, max(CAST(substr(id, length(incident) + 2) AS INTEGER)) FROM message
             WHERE type <> 'summary' GROUP BY incident";
        let mut rows = self.db()?.prepare(sql)?;
        rows.query_map([], |r| Ok((r.get::<_, String>(0)?, unsigned(r, 1)?)))?.collect()
    }

    fn dead(&mut self, id: Option<&str>) -> Sql<Vec<Restored>> {
        let db = self.db()?;
        let mut rows = db.prepare(&format!(
            "SELECT {RESTORED} FROM message m WHERE state = 'dead' AND (?2 IS NULL OR substr(id, 1, length(?2)) = ?2) ORDER BY seq LIMIT ?3"
        ))?;
        let all = rows.query_map(params![REPLACED, id, LIST_MAX], restored)?;
        all.filter_map(|r| r.transpose()).collect()
    }

    fn list(&mut self, dead: bool) -> Sql<Vec<Listed>> {
        let db = self.db()?;
        let mut rows = db.prepare(
            "SELECT hook, id, type, state, tries, created_unix_ns, error, body FROM message WHERE ?1 = 0 OR state = 'dead' ORDER BY seq DESC LIMIT ?2",
        )?;
        rows.query_map(params![dead, LIST_MAX], |r| {
            let body: String = r.get(7)?;
            Ok(Listed {
                hook: r.get(0)?,
                id: r.get(1)?,
                r#type: r.get(2)?,
                state: r.get(3)?,
                tries: r.get(4)?,
                created_unix_ns: unsigned(r, 5)?,
                error: r.get(6)?,
                title: serde_json::from_str::<Message>(&body).map(|m| m.title()).unwrap_or_default(),
            })
        })?
        .collect()
    }
}

#[cfg(test)]
impl File {
    /// Hooks, and the ids of the messages that each has a row of.
    pub(super) fn messages(&mut self) -> Sql<BTreeSet<(String, String)>> {
        let mut rows = self.db()?.prepare("SELECT hook, id FROM message")?;
        rows.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect()
    }

    /// Its files as they are now, while they are open.
    pub(super) fn copy_to(&self, folder: &Path, log_bytes_at_most: Option<u64>) -> std::io::Result<()> {
        for end in ["", "-wal"] {
            let from = format!("{}{end}", self.path.display());
            match std::fs::copy(&from, folder.join(format!("outbox.db{end}"))) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        let log = folder.join("outbox.db-wal");
        if let (Some(most), Ok(file)) =
            (log_bytes_at_most, std::fs::OpenOptions::new().write(true).open(&log))
        {
            let bytes = file.metadata()?.len();
            file.set_len(bytes.min(most))?;
        }
        Ok(())
    }
}

fn unsigned(row: &rusqlite::Row<'_>, column: usize) -> Sql<u64> {
    Ok(row.get::<_, i64>(column)?.unsigned_abs())
}

fn restored(row: &rusqlite::Row<'_>) -> Sql<Option<Restored>> {
    let body: String = row.get(1)?;
    let Ok(message) = serde_json::from_str(&body) else { return Ok(None) };
    let state: String = row.get(2)?;
    Ok(Some(Restored {
        hook: row.get(0)?,
        message,
        waiting: state == "waiting" || state == "held",
        held: state == "held",
        refused: state == "dead",
        replaced: row.get(4)?,
        tries: row.get(3)?,
    }))
}

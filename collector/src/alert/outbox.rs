//! The outbox on disk: every message of every hook in `DATA/outbox.db` (SQLite), written by a thread of its own behind the
//! deliveries. Owns the schema, the bounds, and what is known again after a restart.
//!
//! A message is written first and then goes out, but waits for the disk only 20 ms: a disk that stalls may be the very
//! thing that is told. A crash after the delivery and before its mark sends the message again, with the same id. An incident that the
//! collector knew and that is in no row of a hook is told after the crash by the hook's worker (`worker/restart.rs`). A row that waits may
//! have gone out before a crash; one that is held back has not, and is in no summary yet.
//! `synchronous = NORMAL` with a write-ahead log: a commit is one write to the page cache, which a killed process does
//! not lose; after a power cut the last seconds may be missing, never the file. An fsync per message would guard against that alone,
//! and would stand in line behind the very disk whose stall is being told.
//!
//! A disk that is full or read-only stops nothing: writes are kept, up to a bound, and tried again every second. What could not be read at
//! the start is read before anything is written, so that it is all of before.

mod file;
#[cfg(test)]
mod tests;

use super::config;
use super::message::Message;
use super::stats::Stats;
use file::File;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tailwater_model::Incident;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A message goes out when it is written, or after this. A commit is one write to the page cache, a fraction of a millisecond.
pub(super) const WRITTEN_WITHIN: Duration = Duration::from_millis(20);
/// Writes that may wait for the disk, in the channel and again in the thread.
const WRITES_MAX: usize = 8192;
/// Writes in one transaction.
const BATCH_MAX: usize = 512;
/// A disk that failed is tried again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Rows in an answer.
const LIST_MAX: u32 = 1000;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is being sent, or between tries.
    Waiting,
    /// The rate limit holds it back: no receiver has seen it, and the next summary is to name it.
    Held,
    /// Its receiver took it.
    Sent,
    /// Its receiver will not take it.
    Dead,
    /// Something newer said more, or a summary said it.
    Superseded,
    /// There was no room for it.
    Evicted,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Sent => "sent",
            Self::Dead => "dead",
            Self::Superseded => "superseded",
            Self::Evicted => "evicted",
        }
    }
}

/// One message as `tailwater alerts` lists it.
#[derive(Debug, Clone, Serialize, serde::Deserialize)]
pub struct Listed {
    /// Which hook.
    pub hook: String,
    /// The message's id.
    pub id: String,
    /// `opened`, `updated`, `closed`, `summary`.
    pub r#type: String,
    /// `waiting`, `held`, `sent`, `dead`, `superseded`, `evicted`.
    pub state: String,
    /// Failed tries.
    pub tries: u32,
    /// When it was made, Unix ns.
    pub created_unix_ns: u64,
    /// Why the last try failed.
    pub error: String,
    /// Its sentence.
    pub title: String,
}

/// A message that is known again after a restart.
#[derive(Debug)]
pub struct Restored {
    /// Which hook.
    pub hook: String,
    /// The message.
    pub message: Message,
    /// Whether it has yet to be delivered, or to be named in a summary.
    pub waiting: bool,
    /// Whether the rate limit holds it back, so that its receiver cannot have seen it.
    pub held: bool,
    /// Whether its receiver would not take it.
    pub refused: bool,
    /// Whether it is an early alert that became part of an incident since: nothing is open of it, and the incident's end is its own.
    pub replaced: bool,
    /// Failed tries.
    pub tries: u32,
}

enum Op {
    Put {
        hook: Arc<str>,
        message: Arc<Message>,
        state: State,
        /// Whoever waits for this write hears of it when it is dropped.
        _written: DropGuard,
    },
    Mark {
        hook: Arc<str>,
        message: Arc<Message>,
        state: State,
        tries: u32,
        error: String,
    },
    /// Superseded, if it still waits or is held back.
    Outdated {
        hook: Arc<str>,
        message: Arc<Message>,
    },
    List {
        dead: bool,
        reply: oneshot::Sender<Result<Vec<Listed>, String>>,
    },
    Dead {
        id: Option<String>,
        reply: oneshot::Sender<Result<Vec<Restored>, String>>,
    },
    Flush {
        reply: oneshot::Sender<()>,
    },
}

/// The way to the outbox.
#[derive(Debug, Clone)]
pub struct Outbox {
    ops: SyncSender<Op>,
    stats: Arc<Stats>,
}

/// An outbox, and what it remembers: messages that wait, and the last of each incident that is open.
#[derive(Debug)]
pub struct Opened {
    /// The way to it.
    pub outbox: Outbox,
    /// What it remembers; nothing if its file could not be read.
    pub restored: Vec<Restored>,
    /// Hooks, and those of the incidents asked for that each has a row of, whatever became of it. `None`: it could not be read.
    pub heard: Option<BTreeSet<(String, String)>>,
    /// Incidents that there is a row of, each with the newest version that any hook was told, or is to be told; none if it could not be read.
    pub newest: BTreeMap<String, u64>,
    /// What the file remembers, once it can be read, if it could not be.
    pub late: Option<oneshot::Receiver<Vec<Restored>>>,
    /// Ends when the last handle is dropped.
    pub thread: std::thread::JoinHandle<()>,
}

/// An outbox before its thread, or a simulation, writes what it is told.
pub(super) struct Prepared {
    pub(super) outbox: Outbox,
    file: File,
    work: Receiver<Op>,
    pub(super) restored: Vec<Restored>,
    pub(super) heard: Option<BTreeSet<(String, String)>>,
    pub(super) newest: BTreeMap<String, u64>,
    pub(super) late: Option<oneshot::Receiver<Vec<Restored>>>,
}

#[cfg(test)]
impl Prepared {
    /// As its thread does with what has arrived.
    pub(super) fn turn(&mut self) {
        self.file.turn(None, &self.work);
    }

    /// As [`File::heard`].
    pub(super) fn heard_of<'a>(&mut self, ids: impl Iterator<Item = &'a str>) -> BTreeSet<(String, String)> {
        self.file.heard(ids).expect("a file that can be read")
    }

    /// As [`File::messages`].
    pub(super) fn messages(&mut self) -> BTreeSet<(String, String)> {
        self.file.messages().expect("a file that can be read")
    }

    /// What a process that is killed now leaves, as files in `folder`: nothing that was not written, and of what a power cut may take
    /// the last part of the log, `log_bytes_at_most` of it stays.
    pub(super) fn killed(&self, folder: &Path, log_bytes_at_most: Option<u64>) -> std::io::Result<()> {
        self.file.copy_to(folder, log_bytes_at_most)
    }
}

impl Outbox {
    /// Opens `folder`/outbox.db and starts the thread. `open_before`: incidents that were open when the collector died.
    pub fn open(
        folder: &Path,
        bounds: config::Outbox,
        stats: Arc<Stats>,
        open_before: &[Arc<Incident>],
    ) -> std::io::Result<Opened> {
        let Prepared { outbox, file, work, restored, heard, newest, late } =
            Self::prepare(folder, bounds, stats, open_before);
        let thread = std::thread::Builder::new().name("outbox".into()).spawn(move || file.run(&work))?;
        Ok(Opened { outbox, restored, heard, newest, late, thread })
    }

    /// An outbox whose writes nobody makes yet.
    pub(super) fn prepare(
        folder: &Path,
        bounds: config::Outbox,
        stats: Arc<Stats>,
        open_before: &[Arc<Incident>],
    ) -> Prepared {
        let (ops, work) = sync_channel(WRITES_MAX);
        let mut file = File {
            path: folder.join("outbox.db"),
            db: None,
            late: None,
            bounds,
            stats: Arc::clone(&stats),
            rows: 0,
            bytes: 0,
            pending: VecDeque::new(),
            failing: false,
        };
        let ids = || open_before.iter().map(|incident| incident.id.as_str());
        let read = |file: &mut File| Ok((file.restore()?, file.heard(ids())?, file.newest()?));
        let (restored, heard, newest, late) = match file.connect().and_then(|()| read(&mut file)) {
            Ok((restored, heard, newest)) => (restored, Some(heard), newest, None),
            Err(e) => {
                stats.write_failures.inc();
                tracing::warn!(
                    "{}: {e}; alerts are delivered and not kept until it can be written",
                    file.path.display()
                );
                let (rows, late) = oneshot::channel();
                file.late = Some(rows);
                file.failing = true;
                (Vec::new(), None, BTreeMap::new(), Some(late))
            }
        };
        Prepared { outbox: Self { ops, stats }, file, work, restored, heard, newest, late }
    }

    /// A new message. What is returned is cancelled once it is written, or never will be.
    pub fn put(&self, hook: &Arc<str>, message: &Arc<Message>, state: State) -> CancellationToken {
        let (hook, message) = (Arc::clone(hook), Arc::clone(message));
        let written = CancellationToken::new();
        self.send(Op::Put { hook, message, state, _written: written.clone().drop_guard() });
        written
    }

    /// What became of it.
    pub fn mark(&self, hook: &Arc<str>, message: &Arc<Message>, state: State, tries: u32, error: &str) {
        let (hook, message) = (Arc::clone(hook), Arc::clone(message));
        self.send(Op::Mark { hook, message, state, tries, error: error.to_owned() });
    }

    /// What was told since says more: if it still waits or is held back in the file, it does and is no longer.
    pub fn outdated(&self, hook: &Arc<str>, message: &Arc<Message>) {
        self.send(Op::Outdated { hook: Arc::clone(hook), message: Arc::clone(message) });
    }

    fn send(&self, op: Op) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.ops.try_send(op) {
            self.stats.writes_dropped.inc();
        }
    }

    /// The newest messages, newest first.
    pub async fn list(&self, dead: bool) -> Result<Vec<Listed>, String> {
        let (reply, answer) = oneshot::channel();
        self.ask(Op::List { dead, reply }, answer).await
    }

    /// Dead letters: all of them, or those whose message or incident id begins with `id`.
    pub async fn dead(&self, id: Option<String>) -> Result<Vec<Restored>, String> {
        let (reply, answer) = oneshot::channel();
        self.ask(Op::Dead { id, reply }, answer).await
    }

    /// Waits until all that was handed over is written, or cannot be.
    pub async fn flush(&self) {
        let (reply, answer) = oneshot::channel();
        if self.ops.try_send(Op::Flush { reply }).is_ok() {
            // An ended thread has nothing to write.
            let _ = answer.await;
        }
    }

    async fn ask<T>(&self, op: Op, answer: oneshot::Receiver<Result<T, String>>) -> Result<T, String> {
        self.ops.try_send(op).map_err(|_| "the outbox is behind; try again later".to_owned())?;
        answer.await.map_err(|_| "the outbox has ended".to_owned())?
    }
}

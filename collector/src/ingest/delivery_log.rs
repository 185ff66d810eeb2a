//! What stands between agents' streams and the analysis, as a log: streams append deliveries, the analysis fetches them from an offset on.
//! Owns what a log must do, the place of a reader in one, and the log that there is today: in memory. Knows neither who may append how
//! much (`feed`) nor what the analysis does.
//!
//! The words are those of Kafka and Redpanda, for a log of one partition: the analysis needs one order of all hosts, and nothing overtakes
//! (a drop event that did came before the names of its listener). What is different here: a delivery is one message of an agent, whose
//! windows the agent made a batch of already, so that nothing is batched again; and it is moved in and out, never copied.

use super::session::Delivery;
use super::waiting::Permit;
use crate::lock::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What a [`Reader`] fetches at once: what came while it was busy, by one call. In memory it is bounded already, as what was fetched still
/// counts as waiting until it is worked off; a log elsewhere hands over no more than this.
const AT_ONCE: Most = Most { entries: 32, bytes: 8 << 20 };

/// After it got something a [`Reader`] of the log in memory is left asleep for so long, or until so many deliveries wait, unless one comes that
/// cannot wait. Of hundreds of agents one speaks each fraction of a millisecond, and to wake a thread costs as much as a tenth of working off
/// what it is woken for.
const GATHERS: Duration = Duration::from_millis(5);
const GATHERED: usize = AT_ONCE.entries;

/// A place in a log: how many deliveries were appended before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offset(pub u64);

impl Offset {
    /// So many further on.
    #[must_use]
    pub fn after(self, entries: usize) -> Self {
        Self(self.0.saturating_add(entries as u64))
    }
}

/// How much is fetched at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Deliveries.
    pub entries: usize,
    /// About what they take in memory, all together ([`Entry::bytes`]).
    pub bytes: usize,
}

/// A delivery as it stands in a log.
#[derive(Debug)]
pub struct Entry {
    /// What a message of an agent brought.
    pub delivery: Box<Delivery>,
    unix_ns: u64,
    bytes: usize,
    /// That it waits. A log that holds it elsewhere than in this process drops this.
    permit: Option<Permit>,
}

impl Entry {
    /// One that nobody counts as waiting.
    #[must_use]
    pub fn of(delivery: Delivery) -> Self {
        let (unix_ns, bytes) = (delivery.arrival.arrival_unix_ns, delivery.bytes());
        Self { delivery: Box::new(delivery), unix_ns, bytes, permit: None }
    }

    /// The same, counted as waiting until the permit is dropped.
    pub(super) fn counted(self, permit: Permit) -> Self {
        Self { permit: Some(permit), ..self }
    }

    /// Whether somebody waits for it: it tells of a drop.
    fn is_urgent(&self) -> bool {
        self.delivery.moments.is_some()
    }

    /// When its message came, Unix ns by the collector's clock.
    #[must_use]
    pub fn unix_ns(&self) -> u64 {
        self.unix_ns
    }

    /// About what it takes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The delivery, and what says that it waits: to be dropped once it is worked off.
    pub(crate) fn open(self) -> (Delivery, Option<Permit>) {
        (*self.delivery, self.permit)
    }
}

/// Why a delivery was not appended.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// There is no room now. Here it is again.
    #[error("the log is full")]
    Full(Entry),
    /// There never will be.
    #[error("the log is closed")]
    Closed,
}

/// Why there is nothing at an offset, nor will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotThere {
    /// What was there is not kept any more.
    #[error("what is kept begins at {first:?}")]
    Trimmed {
        /// Of what is kept, or comes next.
        first: Offset,
    },
    /// The log has not come as far: it is not the one that the offset is of.
    #[error("the log ends before {next:?}")]
    Ahead {
        /// Of what comes next.
        next: Offset,
    },
    /// All was fetched, and nothing comes any more.
    #[error("the log is closed")]
    Closed,
}

/// A log of deliveries. It is used as `dyn`: streams, routes and the watchdog hold the way to it, and would have to carry its type; it is called
/// once for a message, never for each window. `collector/tests/delivery_log.rs` has the tests that each must pass.
pub trait DeliveryLog: std::fmt::Debug + Send + Sync {
    /// Appends one delivery behind all others; says where it stands. Never waits: whether to wait for room is for whoever appends to say, and
    /// it is called while a host's slot is locked (`service`), so that what is appended and what that host's agent is told are one thing.
    ///
    /// An agent is told that a batch is taken once this has taken it, into the memory of this process, as ever. A log that says so only when
    /// other machines have it too must not do so in here: it has to take the delivery at once, and say later what the others have.
    fn append(&self, entry: Entry) -> Result<Offset, NotTaken>;

    /// Puts up to `most` behind what is in `into`, in their order without a gap, the first of them that at `from`; one is given however large.
    /// Where there is none yet, waits for it, for as long as `within`, and then gives none.
    ///
    /// Who fetches from an offset needs none of those before: they may be trimmed. So may be what is given, which an error tells whoever
    /// asks for it again.
    fn fetch(
        &self,
        from: Offset,
        most: Most,
        within: Duration,
        into: &mut VecDeque<Entry>,
    ) -> Result<(), NotThere>;

    /// The first delivery that came at `unix_ns` (Unix ns, [`Entry::unix_ns`]) or later, or what comes next if each is older; an error where
    /// one that came then is not kept any more. Streams wait for room each for itself, so what stands behind it may be some seconds older.
    fn offset_at(&self, unix_ns: u64) -> Result<Offset, NotThere>;

    /// Takes nothing any more. What is kept can still be fetched.
    fn close(&self);
}

/// What a [`Reader`] has to say.
#[derive(Debug)]
pub enum Read {
    /// The next delivery.
    One(Entry),
    /// None came in time.
    Nothing,
    /// So many were trimmed before they were read; `None`: the log is another one, and nobody knows. Reading goes on behind them.
    Missing(Option<u64>),
    /// Nothing comes any more.
    End,
}

/// Where the analysis is in a log. Where it goes, also by a panic, the log is closed: what nobody reads must not be taken.
#[derive(Debug)]
pub struct Reader {
    log: Arc<dyn DeliveryLog>,
    /// Of what is fetched next.
    next: Offset,
    fetched: VecDeque<Entry>,
}

impl Reader {
    /// One that begins at `from`.
    #[must_use]
    pub fn new(log: Arc<dyn DeliveryLog>, from: Offset) -> Self {
        Self { log, next: from, fetched: VecDeque::with_capacity(AT_ONCE.entries) }
    }

    /// What it reads.
    #[must_use]
    pub fn log(&self) -> Arc<dyn DeliveryLog> {
        Arc::clone(&self.log)
    }

    /// The next delivery; waits for it for as long as `within`.
    pub fn read(&mut self, within: Duration) -> Read {
        if self.fetched.is_empty() {
            match self.log.fetch(self.next, AT_ONCE, within, &mut self.fetched) {
                Ok(()) => self.next = self.next.after(self.fetched.len()),
                Err(NotThere::Trimmed { first }) => {
                    let missing = first.0.saturating_sub(self.next.0);
                    self.next = first;
                    return Read::Missing(Some(missing));
                }
                Err(NotThere::Ahead { next }) => {
                    self.next = next;
                    return Read::Missing(None);
                }
                Err(NotThere::Closed) => return Read::End,
            }
        }
        self.fetched.pop_front().map_or(Read::Nothing, Read::One)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.log.close();
    }
}

/// The log of one process, for one reader: what is fetched is handed over, and so trimmed. Its lock is held to move deliveries in or out, never
/// while one is made or worked off.
#[derive(Debug)]
pub struct InMemory {
    kept: Mutex<Kept>,
    more: Condvar,
    entries_max: usize,
}

#[derive(Debug)]
struct Kept {
    entries: VecDeque<Entry>,
    /// Of the first of them.
    first: Offset,
    /// The newest moment of those before it, if there were any.
    trimmed_to_unix_ns: u64,
    /// What the reader is to be woken for.
    reader: Asleep,
    /// The last fetch gave something.
    gave: bool,
    closed: bool,
}

/// What the reader waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asleep {
    /// It is busy, and need not be woken.
    No,
    /// What is urgent, or so many that it is worth it.
    Gathers,
    /// Anything.
    UntilAny,
}

impl InMemory {
    /// With room for so many deliveries, which is allocated here: the lock is never held for that.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        let kept = Kept {
            entries: VecDeque::with_capacity(entries_max),
            first: Offset::default(),
            trimmed_to_unix_ns: 0,
            reader: Asleep::No,
            gave: false,
            closed: false,
        };
        Self { kept: Mutex::new(kept), more: Condvar::new(), entries_max }
    }
}

impl Kept {
    fn next(&self) -> Offset {
        self.first.after(self.entries.len())
    }

    fn check(&self, from: Offset) -> Result<(), NotThere> {
        let (first, next) = (self.first, self.next());
        if from < first {
            Err(NotThere::Trimmed { first })
        } else if from > next {
            Err(NotThere::Ahead { next })
        } else {
            Ok(())
        }
    }

    /// Nothing is at `from`, and something may come.
    fn is_awaited(&self, from: Offset) -> bool {
        from >= self.next() && !self.closed
    }

    fn trim(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.first = self.first.after(1);
        self.trimmed_to_unix_ns = self.trimmed_to_unix_ns.max(entry.unix_ns);
        Some(entry)
    }
}

impl DeliveryLog for InMemory {
    fn append(&self, entry: Entry) -> Result<Offset, NotTaken> {
        let mut kept = lock(&self.kept);
        if kept.closed {
            return Err(NotTaken::Closed);
        }
        if kept.entries.len() >= self.entries_max {
            return Err(NotTaken::Full(entry));
        }
        let at = kept.next();
        let wakes = match kept.reader {
            Asleep::No => false,
            Asleep::Gathers => entry.is_urgent() || kept.entries.len() + 1 >= GATHERED,
            Asleep::UntilAny => true,
        };
        kept.entries.push_back(entry);
        if wakes {
            kept.reader = Asleep::No;
        }
        drop(kept);
        if wakes {
            self.more.notify_all();
        }
        Ok(at)
    }

    fn fetch(
        &self,
        from: Offset,
        most: Most,
        within: Duration,
        into: &mut VecDeque<Entry>,
    ) -> Result<(), NotThere> {
        let mut kept = lock(&self.kept);
        kept.check(from)?;
        if !within.is_zero() && kept.is_awaited(from) {
            let mut left = within;
            if std::mem::take(&mut kept.gave) {
                // Whoever ends the wait says so by `reader`; what it is woken for otherwise is nothing.
                kept.reader = Asleep::Gathers;
                let gathers = |kept: &mut Kept| kept.reader == Asleep::Gathers && !kept.closed;
                let gathered = self.more.wait_timeout_while(kept, within.min(GATHERS), gathers);
                kept = gathered.unwrap_or_else(PoisonError::into_inner).0;
                left = within.saturating_sub(GATHERS);
            }
            let awaited = |kept: &mut Kept| {
                let awaited = kept.is_awaited(from);
                kept.reader = if awaited { Asleep::UntilAny } else { Asleep::No };
                awaited
            };
            let waited = self.more.wait_timeout_while(kept, left, awaited);
            kept = waited.unwrap_or_else(PoisonError::into_inner).0;
            kept.reader = Asleep::No;
            kept.check(from)?;
        }
        while kept.first < from {
            kept.trim();
        }
        let (before, mut bytes) = (into.len(), 0_usize);
        while let Some(entry) = kept.entries.front() {
            bytes = bytes.saturating_add(entry.bytes);
            let given = into.len() - before;
            if given > 0 && (given >= most.entries || bytes > most.bytes) {
                break;
            }
            into.extend(kept.trim());
        }
        kept.gave = into.len() > before;
        if into.len() == before && kept.closed { Err(NotThere::Closed) } else { Ok(()) }
    }

    fn offset_at(&self, unix_ns: u64) -> Result<Offset, NotThere> {
        let kept = lock(&self.kept);
        if kept.first > Offset::default() && kept.trimmed_to_unix_ns >= unix_ns {
            return Err(NotThere::Trimmed { first: kept.first });
        }
        let at = kept.entries.iter().position(|entry| entry.unix_ns >= unix_ns);
        Ok(kept.first.after(at.unwrap_or(kept.entries.len())))
    }

    fn close(&self) {
        lock(&self.kept).closed = true;
        self.more.notify_all();
    }
}

//! The way from agents' streams into the log that the analysis reads (`delivery_log`): what may wait there, of one agent and of all, and
//! who may listen to what goes through. Owns the bounds; knows neither the pipeline nor what becomes of its findings.

use super::delivery_log::{DeliveryLog, Entry, NotTaken};
use super::session::Delivery;
use super::waiting::{Counted, Permit, Waiting};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tailwater_proto::v1::Refusal;

/// Work that may wait for the pipeline, all agents together.
pub const QUEUE_MAX: usize = 16_384;
/// Bytes that messages of one agent may take while they wait, decoded: little of a message's wire becomes much, where an agent means it to.
pub const AGENT_BYTES_MAX: usize = 128 << 20;
/// Bytes of all agents' messages that wait.
pub const BYTES_MAX: usize = 512 << 20;
/// Where there is no room for a message, its stream waits for some, and so the agent, whose outbox keeps what it measures. Agents that were
/// sent away instead would all connect again at once, to an analysis that is behind.
const ROOM_WITHIN: Duration = Duration::from_millis(if cfg!(test) { 400 } else { 10_000 });
const ROOM_LOOKED_FOR_EVERY: Duration = Duration::from_millis(20);
/// Records that may wait for a listener.
pub const TAP_RECORDS_MAX: usize = 8192;
/// Listeners that may wait until the analysis' thread takes them in: before its next delivery, within a tick.
const TAPS_MAX: usize = 8;

/// Who listens: where records go.
pub(crate) type Tap = SyncSender<Vec<u8>>;

/// How many messages of one agent may wait.
#[derive(Debug, Clone)]
pub struct Quota {
    waiting: Arc<Waiting>,
    limit: usize,
}

impl Quota {
    /// At most `limit`.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { waiting: Arc::default(), limit }
    }

    /// Counts one more message of so many bytes, unless that is more than may wait of its agent: then says what is full.
    fn room(&self, weight: usize) -> Result<Counted, String> {
        let (own, before) = self.waiting.count(weight);
        if before.messages >= self.limit {
            let limit = self.limit;
            return Err(format!(
                "{limit} messages of this agent wait for the analysis, the limit: it sends too fast"
            ));
        }
        // One message is always taken, however large.
        if before.messages > 0 && before.bytes.saturating_add(weight) > AGENT_BYTES_MAX {
            let mib = AGENT_BYTES_MAX >> 20;
            return Err(format!(
                "messages of this agent that take {mib} MiB wait for the analysis, the limit: it sends too much"
            ));
        }
        Ok(own)
    }
}

/// The end of a log that is appended to. Where nobody holds it any more nothing can come, and the log is closed.
#[derive(Debug)]
struct Appends(Arc<dyn DeliveryLog>);

impl Drop for Appends {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The way to the pipeline's thread.
#[derive(Debug, Clone)]
pub struct Feed {
    log: Arc<Appends>,
    taps: SyncSender<Tap>,
    waiting: Arc<Waiting>,
    /// Of hosts that have a stream, or of whose streams something waits still.
    hosts: Arc<Mutex<BTreeMap<String, Weak<Waiting>>>>,
    ticks: Arc<AtomicU64>,
    /// How long a message waits for room.
    room_within: Duration,
}

impl Feed {
    /// A way into `log`, and where the pipeline's thread, which reads that, hears of listeners. `ticks` is what it has worked off.
    pub(crate) fn new(log: Arc<dyn DeliveryLog>, ticks: Arc<AtomicU64>) -> (Self, Receiver<Tap>) {
        let (taps, tapped) = sync_channel(TAPS_MAX);
        let log = Arc::new(Appends(log));
        let (waiting, hosts) = (Arc::default(), Arc::default());
        (Self { log, taps, waiting, hosts, ticks, room_within: ROOM_WITHIN }, tapped)
    }

    /// A way into a log that is not read by the pipeline's thread, but by whoever steps it: a simulation. Nobody can listen, and nothing waits: what
    /// finds no room is refused, as where none comes in ten seconds.
    #[must_use]
    pub fn over(log: Arc<dyn DeliveryLog>) -> Self {
        Self { room_within: Duration::ZERO, ..Self::new(log, Arc::default()).0 }
    }

    /// What may wait of `host`, over all its streams: of whoever connects again, what it said before still waits.
    #[must_use]
    pub fn quota(&self, host: &str, limit: usize) -> Quota {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|_, waiting| waiting.strong_count() > 0);
        if let Some(waiting) = hosts.get(host).and_then(Weak::upgrade) {
            return Quota { waiting, limit };
        }
        let quota = Quota::new(limit);
        hosts.insert(host.to_owned(), Arc::downgrade(&quota.waiting));
        quota
    }

    /// Queues a message, and waits for room where there is none, in the log or among what may wait of this agent, so that it slows nobody else: who
    /// comes back after an absence sends all that it kept at once. One that finds no room in ten seconds is refused; at once where what waits takes
    /// all the memory that it may, as a message that waits for room takes some, too.
    pub async fn deliver(&self, delivery: Delivery, quota: &Quota) -> Result<(), Refusal> {
        self.deliver_by(delivery, quota, |log, entry| log.append(entry).map(|_| ())).await
    }

    /// The same, by whoever does more as the delivery is appended: `append` is called until it is, or there is no use in it.
    pub async fn deliver_by(
        &self,
        delivery: Delivery,
        quota: &Quota,
        mut append: impl FnMut(&dyn DeliveryLog, Entry) -> Result<(), NotTaken>,
    ) -> Result<(), Refusal> {
        let entry = Entry::of(delivery);
        let weight = entry.bytes();
        let busy = |reason: String| Refusal { reason, retry: true, join: false };
        let (all, before) = self.waiting.count(weight);
        if before.bytes.saturating_add(weight) > BYTES_MAX {
            return Err(busy("the analysis is behind; try again later".into()));
        }
        let mut waited = Duration::ZERO;
        let own = loop {
            match quota.room(weight) {
                Ok(own) => break own,
                Err(reason) if waited >= self.room_within => return Err(busy(reason)),
                Err(_) => {}
            }
            tokio::time::sleep(ROOM_LOOKED_FOR_EVERY).await;
            waited += ROOM_LOOKED_FOR_EVERY;
        };
        let permit = Permit { _own: own, _all: all };
        let mut entry = entry.counted(permit);
        loop {
            match append(&*self.log.0, entry) {
                Ok(()) => return Ok(()),
                Err(NotTaken::Full(_)) if waited >= self.room_within => {
                    return Err(busy("the analysis is behind; try again later".into()));
                }
                Err(NotTaken::Full(back)) => entry = back,
                Err(NotTaken::Closed) => return Err(busy("the collector is stopping".into())),
            }
            tokio::time::sleep(ROOM_LOOKED_FOR_EVERY).await;
            waited += ROOM_LOOKED_FOR_EVERY;
        }
    }

    /// Messages that wait for the analysis, of [`QUEUE_MAX`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.messages.load(Ordering::Relaxed)
    }

    /// Ticks that the thread has worked off. It stands still while the thread hangs.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Sends every input from now on, framed as trace records, to `tap`; first what is known by name. Records that it is too slow
    /// for are counted and left out.
    pub fn tap(&self, tap: SyncSender<Vec<u8>>) -> bool {
        self.taps.try_send(tap).is_ok()
    }

    /// Asks the thread to finish what is queued and end; nothing is taken any more.
    pub fn stop(&self) {
        self.log.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::delivery_log::{InMemory, Offset, Read, Reader};

    /// Into a log with room for so many messages, and who reads it.
    fn feed(room: usize) -> (Feed, Reader) {
        let log: Arc<dyn DeliveryLog> = Arc::new(InMemory::new(room));
        (Feed::new(Arc::clone(&log), Arc::default()).0, Reader::new(log, Offset::default()))
    }

    /// Whether one was there; it is worked off.
    fn work_off(reader: &mut Reader) -> bool {
        matches!(reader.read(Duration::ZERO), Read::One(_))
    }

    fn delivery() -> Delivery {
        Delivery {
            arrival: Default::default(),
            raw: Default::default(),
            names: None,
            inputs: Vec::new(),
            moments: None,
        }
    }

    #[tokio::test]
    async fn an_agent_beyond_its_quota_is_refused_and_others_are_not() {
        let (feed, mut reader) = feed(10);
        let (fast, calm) = (Quota::new(2), Quota::new(2));
        assert!(feed.deliver(delivery(), &fast).await.is_ok());
        assert!(feed.deliver(delivery(), &fast).await.is_ok());
        let refusal = feed.deliver(delivery(), &fast).await.unwrap_err();
        assert!(refusal.retry && refusal.reason.contains("2 messages"), "{refusal:?}");
        assert!(feed.deliver(delivery(), &calm).await.is_ok());
        assert_eq!(feed.waiting(), 3);
        assert!(work_off(&mut reader));
        assert_eq!(feed.waiting(), 2);
        assert!(feed.deliver(delivery(), &fast).await.is_ok(), "room again once one is taken");
    }

    #[tokio::test]
    async fn an_agent_that_sends_all_that_it_kept_at_once_is_slowed_down_and_not_sent_away() {
        let (feed, mut reader) = feed(1_000);
        let quota = Quota::new(20);
        let (sent, ()) = tokio::join!(
            async {
                for _ in 0..100 {
                    feed.deliver(delivery(), &quota).await?;
                    assert!(feed.waiting() <= 20);
                }
                Ok::<(), Refusal>(())
            },
            async {
                for _ in 0..100 {
                    while !work_off(&mut reader) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        );
        assert!(sent.is_ok(), "{sent:?}");
    }

    #[tokio::test]
    async fn where_there_is_no_room_a_stream_waits_for_some_and_is_sent_away_only_if_none_comes() {
        let (feed, mut reader) = feed(1);
        let quota = Quota::new(10);
        assert!(feed.deliver(delivery(), &quota).await.is_ok());
        let begun = tokio::time::Instant::now();
        let (waited, ()) = tokio::join!(feed.deliver(delivery(), &quota), async {
            tokio::time::sleep(ROOM_WITHIN / 2).await;
            assert!(work_off(&mut reader));
        });
        assert!(waited.is_ok() && begun.elapsed() >= ROOM_WITHIN / 2, "{waited:?}");
        let refusal = feed.deliver(delivery(), &quota).await.unwrap_err();
        assert!(refusal.retry && refusal.reason.contains("behind"), "{refusal:?}");
        assert_eq!(feed.waiting(), 1, "what was refused does not wait");
    }

    #[tokio::test]
    async fn whoever_connects_again_finds_its_place_as_full_as_it_left_it() {
        let (feed, mut reader) = feed(QUEUE_MAX);
        let first = feed.quota("web-1", 100);
        assert!(feed.deliver(large(100), &first).await.is_ok());
        drop(first);
        let again = feed.quota("web-1", 100);
        assert!(feed.deliver(large(100), &again).await.unwrap_err().reason.contains("128 MiB"));
        assert!(feed.deliver(large(100), &feed.quota("web-2", 100)).await.is_ok());
        drop(again);
        while work_off(&mut reader) {}
        let _new = feed.quota("web-3", 100);
        let hosts: Vec<String> = feed.hosts.lock().unwrap().keys().cloned().collect();
        assert_eq!(hosts, ["web-3"], "a host that has gone and of which nothing waits is forgotten");
    }

    #[tokio::test]
    async fn an_end_of_the_log_that_is_gone_ends_the_other() {
        let quota = Quota::new(10);
        let (unread, reader) = feed(10);
        drop(reader);
        let refusal = unread.deliver(delivery(), &quota).await.unwrap_err();
        assert!(refusal.retry && refusal.reason.contains("stopping"), "{refusal:?}");
        let (last, mut reader) = feed(10);
        assert!(last.deliver(delivery(), &quota).await.is_ok());
        drop(last);
        assert!(work_off(&mut reader), "what is queued is worked off");
        let read = reader.read(Duration::ZERO);
        assert!(matches!(read, Read::End), "{read:?}");
    }

    /// A delivery that takes this many MiB.
    fn large(mib: usize) -> Delivery {
        Delivery { raw: vec![0; mib << 20].into(), ..delivery() }
    }

    #[tokio::test]
    async fn what_waits_is_bounded_by_what_it_takes_of_one_agent_and_of_all() {
        let (feed, mut reader) = feed(100);
        let greedy = Quota::new(100);
        assert!(feed.deliver(large(100), &greedy).await.is_ok());
        let refusal = feed.deliver(large(100), &greedy).await.unwrap_err();
        assert!(refusal.retry && refusal.reason.contains("128 MiB"), "{refusal:?}");
        let others: Vec<Quota> = (0..5).map(|_| Quota::new(100)).collect();
        for other in &others[..4] {
            assert!(feed.deliver(large(100), other).await.is_ok());
        }
        let refusal = feed.deliver(large(100), &others[4]).await.unwrap_err();
        assert!(refusal.reason.contains("behind"), "{refusal:?}");
        assert!(feed.deliver(large(1), &others[4]).await.is_ok(), "there is room for that");
        while work_off(&mut reader) {}
        assert_eq!(feed.waiting.bytes.load(Ordering::Relaxed), 0, "who was refused takes nothing");
    }
}

//! The queue between agents' streams and the analysis: what may wait in it, of one agent and of all, and who may listen to what goes
//! through. Owns the bounds; knows neither the pipeline nor what becomes of its findings.

use super::session::Delivery;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
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

/// Work for the pipeline's thread.
pub(crate) enum Work {
    Delivery(Box<Delivery>, Permit),
    Tap(SyncSender<Vec<u8>>),
    Stop,
}

/// What waits of one agent, or of all.
#[derive(Debug, Default)]
struct Waiting {
    messages: AtomicUsize,
    bytes: AtomicUsize,
}

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
}

/// One message that waits: of its agent, and of all.
pub(crate) struct Permit([Arc<Waiting>; 2], usize);

impl Drop for Permit {
    fn drop(&mut self) {
        for waiting in &self.0 {
            waiting.messages.fetch_sub(1, Ordering::Relaxed);
            waiting.bytes.fetch_sub(self.1, Ordering::Relaxed);
        }
    }
}

/// The way to the pipeline's thread.
#[derive(Debug, Clone)]
pub struct Feed {
    queue: SyncSender<Work>,
    waiting: Arc<Waiting>,
    /// Of hosts that have a stream, or of whose streams something waits still.
    hosts: Arc<Mutex<BTreeMap<String, Weak<Waiting>>>>,
    ticks: Arc<AtomicU64>,
}

/// The other end of a feed, for who steps it in place of the analysis' thread: a simulation.
#[derive(Debug)]
pub struct Line(Receiver<Work>);

impl Line {
    /// What waits longest, if anything does.
    #[must_use]
    pub fn step(&self) -> Option<Delivery> {
        match self.0.try_recv() {
            Ok(Work::Delivery(delivery, _)) => Some(*delivery),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Delivery(..) => "Delivery",
            Self::Tap(_) => "Tap",
            Self::Stop => "Stop",
        })
    }
}

impl Feed {
    /// A feed, and where the pipeline's thread takes work from it. `ticks` is what that thread has worked off.
    pub(crate) fn new(ticks: Arc<AtomicU64>) -> (Self, Receiver<Work>) {
        let (queue, work) = sync_channel(QUEUE_MAX);
        (Self { queue, waiting: Arc::default(), hosts: Arc::default(), ticks }, work)
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

    /// A feed with its other end, and no thread.
    #[must_use]
    pub fn line() -> (Self, Line) {
        let (feed, work) = Self::new(Arc::default());
        (feed, Line(work))
    }

    /// Queues a message, and waits for room where there is none. An agent with too many of them waiting is refused, so that it slows nobody
    /// else; so is each where the analysis makes no room at all, and where what waits takes all the memory that it may.
    pub async fn deliver(&self, delivery: Delivery, quota: &Quota) -> Result<(), Refusal> {
        let weight = delivery.bytes();
        let permit = Permit([Arc::clone(&quota.waiting), Arc::clone(&self.waiting)], weight);
        let busy = |reason: String| Refusal { reason, retry: true };
        let [(messages, bytes), (_, all_bytes)] = [&quota.waiting, &self.waiting].map(|waiting| {
            let bytes = waiting.bytes.fetch_add(weight, Ordering::Relaxed);
            (waiting.messages.fetch_add(1, Ordering::Relaxed), bytes)
        });
        if messages >= quota.limit {
            let limit = quota.limit;
            return Err(busy(format!(
                "{limit} messages of this agent wait for the analysis, the limit: it sends too fast"
            )));
        }
        // One message is always taken, however large.
        if messages > 0 && bytes.saturating_add(weight) > AGENT_BYTES_MAX {
            let mib = AGENT_BYTES_MAX >> 20;
            return Err(busy(format!(
                "messages of this agent that take {mib} MiB wait for the analysis, the limit: it sends too much"
            )));
        }
        if all_bytes.saturating_add(weight) > BYTES_MAX {
            return Err(busy("the analysis is behind; try again later".into()));
        }
        let mut work = Work::Delivery(Box::new(delivery), permit);
        let mut waited = Duration::ZERO;
        loop {
            match self.queue.try_send(work) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(_)) if waited >= ROOM_WITHIN => {
                    return Err(busy("the analysis is behind; try again later".into()));
                }
                Err(TrySendError::Full(back)) => work = back,
                Err(TrySendError::Disconnected(_)) => return Err(busy("the collector is stopping".into())),
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
        self.queue.try_send(Work::Tap(tap)).is_ok()
    }

    /// Asks the thread to finish what is queued and end.
    pub fn stop(&self) {
        // A full queue: the thread is alive and takes work, so room comes.
        let _ = self.queue.send(Work::Stop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (queue, work) = sync_channel(10);
        let feed = Feed { queue, waiting: Arc::default(), hosts: Arc::default(), ticks: Arc::default() };
        let (fast, calm) = (Quota::new(2), Quota::new(2));
        assert!(feed.deliver(delivery(), &fast).await.is_ok());
        assert!(feed.deliver(delivery(), &fast).await.is_ok());
        let refusal = feed.deliver(delivery(), &fast).await.unwrap_err();
        assert!(refusal.retry && refusal.reason.contains("2 messages"), "{refusal:?}");
        assert!(feed.deliver(delivery(), &calm).await.is_ok());
        assert_eq!(feed.waiting(), 3);
        drop(work.recv().unwrap());
        assert_eq!(feed.waiting(), 2);
        assert!(feed.deliver(delivery(), &fast).await.is_ok(), "room again once one is taken");
    }

    #[tokio::test]
    async fn where_there_is_no_room_a_stream_waits_for_some_and_is_sent_away_only_if_none_comes() {
        let (queue, work) = sync_channel(1);
        let feed = Feed { queue, waiting: Arc::default(), hosts: Arc::default(), ticks: Arc::default() };
        let quota = Quota::new(10);
        assert!(feed.deliver(delivery(), &quota).await.is_ok());
        let begun = tokio::time::Instant::now();
        let (waited, ()) = tokio::join!(feed.deliver(delivery(), &quota), async {
            tokio::time::sleep(ROOM_WITHIN / 2).await;
            drop(work.recv());
        });
        assert!(waited.is_ok() && begun.elapsed() >= ROOM_WITHIN / 2, "{waited:?}");
        let refusal = feed.deliver(delivery(), &quota).await.unwrap_err();
        assert!(refusal.retry && refusal.reason.contains("behind"), "{refusal:?}");
        assert_eq!(feed.waiting(), 1, "what was refused does not wait");
    }

    #[tokio::test]
    async fn whoever_connects_again_finds_its_place_as_full_as_it_left_it() {
        let (feed, work) = Feed::new(Arc::default());
        let first = feed.quota("web-1", 100);
        assert!(feed.deliver(large(100), &first).await.is_ok());
        drop(first);
        let again = feed.quota("web-1", 100);
        assert!(feed.deliver(large(100), &again).await.unwrap_err().reason.contains("128 MiB"));
        assert!(feed.deliver(large(100), &feed.quota("web-2", 100)).await.is_ok());
        drop((again, work));
        let _new = feed.quota("web-3", 100);
        let hosts: Vec<String> = feed.hosts.lock().unwrap().keys().cloned().collect();
        assert_eq!(hosts, ["web-3"], "a host that has gone and of which nothing waits is forgotten");
    }

    /// A delivery that takes this many MiB.
    fn large(mib: usize) -> Delivery {
        Delivery { raw: vec![0; mib << 20].into(), ..delivery() }
    }

    #[tokio::test]
    async fn what_waits_is_bounded_by_what_it_takes_of_one_agent_and_of_all() {
        let (queue, work) = sync_channel(100);
        let feed = Feed { queue, waiting: Arc::default(), hosts: Arc::default(), ticks: Arc::default() };
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
        while let Ok(done) = work.try_recv() {
            drop(done);
        }
        assert_eq!(feed.waiting.bytes.load(Ordering::Relaxed), 0, "who was refused takes nothing");
    }
}

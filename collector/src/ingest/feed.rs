//! The queue between agents' streams and the analysis: what may wait in it, of one agent and of all, and who may listen to what goes
//! through. Owns the bounds; knows neither the pipeline nor what becomes of its findings.

use super::session::Delivery;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use tailwater_proto::v1::Refusal;

/// Work that may wait for the pipeline, all agents together.
pub const QUEUE_MAX: usize = 16_384;
/// Records that may wait for a listener.
pub const TAP_RECORDS_MAX: usize = 8192;

/// Work for the pipeline's thread.
pub(crate) enum Work {
    Delivery(Box<Delivery>, Permit),
    Tap(SyncSender<Vec<u8>>),
    Stop,
}

/// How many messages of one agent may wait.
#[derive(Debug, Clone)]
pub struct Quota {
    waiting: Arc<AtomicUsize>,
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
pub(crate) struct Permit([Arc<AtomicUsize>; 2]);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.iter().for_each(|waiting| _ = waiting.fetch_sub(1, Ordering::Relaxed));
    }
}

/// The way to the pipeline's thread.
#[derive(Debug, Clone)]
pub struct Feed {
    queue: SyncSender<Work>,
    waiting: Arc<AtomicUsize>,
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
        (Self { queue, waiting: Arc::default(), ticks }, work)
    }

    /// A feed with its other end, and no thread.
    #[must_use]
    pub fn line() -> (Self, Line) {
        let (feed, work) = Self::new(Arc::default());
        (feed, Line(work))
    }

    /// Queues a message. An agent with too many of them waiting is refused, so that it slows nobody else.
    pub fn deliver(&self, delivery: Delivery, quota: &Quota) -> Result<(), Refusal> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let permit = Permit([Arc::clone(&quota.waiting), Arc::clone(&self.waiting)]);
        let busy = |reason: String| Refusal { reason, retry: true };
        if quota.waiting.fetch_add(1, Ordering::Relaxed) >= quota.limit {
            let limit = quota.limit;
            return Err(busy(format!(
                "{limit} messages of this agent wait for the analysis, the limit: it sends too fast"
            )));
        }
        match self.queue.try_send(Work::Delivery(Box::new(delivery), permit)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(busy("the analysis is behind; try again later".into())),
            Err(TrySendError::Disconnected(_)) => Err(busy("the collector is stopping".into())),
        }
    }

    /// Messages that wait for the analysis, of [`QUEUE_MAX`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
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

    #[test]
    fn an_agent_beyond_its_quota_is_refused_and_others_are_not() {
        let (queue, work) = sync_channel(10);
        let feed = Feed { queue, waiting: Arc::default(), ticks: Arc::default() };
        let (fast, calm) = (Quota::new(2), Quota::new(2));
        assert!(feed.deliver(delivery(), &fast).is_ok());
        assert!(feed.deliver(delivery(), &fast).is_ok());
        let refusal = feed.deliver(delivery(), &fast).unwrap_err();
        assert!(refusal.retry && refusal.reason.contains("2 messages"), "{refusal:?}");
        assert!(feed.deliver(delivery(), &calm).is_ok());
        assert_eq!(feed.waiting(), 3);
        drop(work.recv().unwrap());
        assert_eq!(feed.waiting(), 2);
        assert!(feed.deliver(delivery(), &fast).is_ok(), "room again once one is taken");
    }
}

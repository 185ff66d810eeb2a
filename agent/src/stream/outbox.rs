//! What waits to be sent: the batches that the collector has not acknowledged, drop events, names, and the Hello. Owns every
//! bound of that queue, what is dropped when it is full, and the counts of it; knows no network.

use crate::name::workload::{Kind, Named};
use crate::stream::encode;
use crate::window::WINDOW_NS;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tailwater_proto::v1::{self, agent_message::Body};
use tokio::sync::Notify;

/// Drop events that wait at most; beyond it the oldest is dropped and counted.
pub const DROP_EVENTS_MAX: usize = 1_024;

/// Names in one message at most, so that it stays far below the largest message.
const NAMES_PER_MESSAGE: usize = 512;

/// Ids that are gone and were told, which are told again when a connection begins: the message may have been lost with the one before.
const GONE_MAX: usize = 8_192;

/// Totals since the agent started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Totals {
    pub batches_dropped: u64,
    pub windows_dropped: u64,
    pub batches_refused: u64,
    pub drop_events_dropped: u64,
    pub waiting_batches: u64,
}

#[derive(Debug)]
struct Queued {
    batch: v1::WindowBatch,
    sent: bool,
}

#[derive(Debug, Default)]
struct Inner {
    hello: Option<v1::Hello>,
    hello_sent: bool,
    batches: VecDeque<Queued>,
    sequence: u64,
    /// The highest sequence that was ever handed to a connection: no collector has more.
    sent_up_to: u64,
    lost: u64,
    drops: VecDeque<v1::DropEvent>,
    drop_sequence: u64,
    names: BTreeMap<(Kind, u32), Named>,
    unsent_names: BTreeSet<(Kind, u32)>,
    gone: VecDeque<(Kind, u32)>,
    /// The newest of `gone`, which were not told on this connection.
    gone_unsent: usize,
    totals: Totals,
    closed: bool,
}

/// The queue between the sampler's thread and the stream.
#[derive(Debug)]
pub struct Outbox {
    inner: Mutex<Inner>,
    wake: Notify,
    batches_max: usize,
}

impl Outbox {
    /// Keeps at most `batches_max` batches.
    pub fn new(batches_max: usize) -> Self {
        Self { inner: Mutex::default(), wake: Notify::new(), batches_max: batches_max.max(1) }
    }

    /// Each method leaves the queue whole, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The identity and coverage to introduce the agent with; sent again when it differs from the one before.
    pub fn set_hello(&self, hello: v1::Hello) {
        let mut inner = self.lock();
        if inner.hello.as_ref() != Some(&hello) {
            inner.hello = Some(hello);
            inner.hello_sent = false;
            drop(inner);
            self.wake.notify_one();
        }
    }

    /// The Hello to begin a connection with; counts as sent.
    pub fn hello(&self) -> Option<v1::Hello> {
        let mut inner = self.lock();
        inner.hello_sent = true;
        inner.hello.clone()
    }

    /// Appends a batch, with `lost` windows lapped before it. When the queue is full the oldest batch goes, and its windows
    /// are told as lost with this one.
    pub fn push(&self, mut batch: v1::WindowBatch, lost: u64) {
        let mut inner = self.lock();
        inner.lost += lost;
        while inner.batches.len() >= self.batches_max {
            let Some(oldest) = inner.batches.pop_front() else { break };
            let windows = u64::from(oldest.batch.window_count);
            inner.totals.batches_dropped += 1;
            inner.totals.windows_dropped += windows;
            inner.lost += windows + oldest.batch.windows_lost;
        }
        inner.sequence += 1;
        batch.sequence = inner.sequence;
        batch.windows_lost = std::mem::take(&mut inner.lost);
        inner.batches.push_back(Queued { batch, sent: false });
        drop(inner);
        self.wake.notify_one();
    }

    /// Adds names, ahead of the batches that use them.
    pub fn name(&self, named: Vec<Named>) {
        if named.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for item in named {
            let key = key(&item);
            if let Named::Gone(..) = item {
                inner.names.remove(&key);
                inner.unsent_names.remove(&key);
                if inner.gone.len() >= GONE_MAX {
                    inner.gone.pop_front();
                }
                inner.gone.push_back(key);
                inner.gone_unsent = (inner.gone_unsent + 1).min(inner.gone.len());
                continue;
            }
            inner.names.insert(key, item);
            inner.unsent_names.insert(key);
        }
        drop(inner);
        self.wake.notify_one();
    }

    /// Adds drop events; they overtake every batch.
    pub fn drops(&self, events: impl Iterator<Item = v1::DropEvent>) {
        let mut inner = self.lock();
        for mut event in events {
            if inner.drops.len() >= DROP_EVENTS_MAX {
                inner.drops.pop_front();
                inner.totals.drop_events_dropped += 1;
            }
            inner.drop_sequence += 1;
            event.sequence = inner.drop_sequence;
            inner.drops.push_back(event);
        }
        drop(inner);
        self.wake.notify_one();
    }

    /// A connection begins: of what was ever sent the collector has everything up to `last_sequence`; all names and the rest are sent again.
    /// Says up to which sequence there was something sent.
    pub fn resume(&self, last_sequence: u64) -> u64 {
        let mut inner = self.lock();
        inner.forget_up_to(last_sequence);
        let sent_up_to = inner.sent_up_to;
        for queued in &mut inner.batches {
            queued.sent = false;
        }
        inner.unsent_names = inner.names.keys().copied().collect();
        inner.gone_unsent = inner.gone.len();
        drop(inner);
        self.wake.notify_one();
        sent_up_to
    }

    /// Of what was ever sent the collector has everything up to `sequence`. Says up to which sequence there was something sent.
    pub fn acknowledged(&self, sequence: u64) -> u64 {
        let mut inner = self.lock();
        inner.forget_up_to(sequence);
        inner.sent_up_to
    }

    /// The collector will not take this batch: it is forgotten, and its windows are lost. False: on this connection it was not sent such a
    /// batch, or it does not wait any more.
    pub fn refused(&self, sequence: u64) -> bool {
        let mut inner = self.lock();
        let sent = |q: &Queued| q.sent && q.batch.sequence == sequence;
        let Some(refused) = inner.batches.iter().position(sent).and_then(|at| inner.batches.remove(at))
        else {
            return false;
        };
        inner.totals.batches_refused += 1;
        inner.lost += u64::from(refused.batch.window_count) + refused.batch.windows_lost;
        true
    }

    /// What is to be sent next, and marks it as sent: a changed Hello, names, drop events, then batches.
    pub fn next(&self) -> Option<Body> {
        let mut inner = self.lock();
        if !inner.hello_sent
            && let Some(hello) = inner.hello.clone()
        {
            inner.hello_sent = true;
            return Some(Body::Hello(hello));
        }
        if !inner.unsent_names.is_empty() {
            let keys: Vec<(Kind, u32)> = inner.unsent_names.iter().take(NAMES_PER_MESSAGE).copied().collect();
            for key in &keys {
                inner.unsent_names.remove(key);
            }
            let named = keys.iter().filter_map(|k| inner.names.get(k));
            return Some(Body::Entities(encode::entities(named)));
        }
        if inner.gone_unsent > 0 {
            let first = inner.gone.len() - inner.gone_unsent;
            let told = inner.gone_unsent.min(NAMES_PER_MESSAGE);
            inner.gone_unsent -= told;
            return Some(Body::Entities(encode::gone(inner.gone.range(first..first + told))));
        }
        if let Some(event) = inner.drops.pop_front() {
            return Some(Body::Drop(event));
        }
        let queued = inner.batches.iter_mut().find(|q| !q.sent)?;
        queued.sent = true;
        let batch = queued.batch.clone();
        inner.sent_up_to = inner.sent_up_to.max(batch.sequence);
        Some(Body::Batch(batch))
    }

    /// Whether [`next`](Self::next) has something.
    pub fn has_next(&self) -> bool {
        let inner = self.lock();
        (!inner.hello_sent && inner.hello.is_some())
            || !inner.unsent_names.is_empty()
            || inner.gone_unsent > 0
            || !inner.drops.is_empty()
            // Batches are sent in order: if one waits, the last one does.
            || inner.batches.back().is_some_and(|q| !q.sent)
    }

    /// Resolves when something was added since the call before.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Nothing will be added any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Closed, and all of it acknowledged.
    pub fn finished(&self) -> bool {
        let inner = self.lock();
        inner.closed && inner.batches.is_empty() && inner.drops.is_empty()
    }

    /// Counts for status messages.
    pub fn totals(&self) -> Totals {
        let inner = self.lock();
        Totals { waiting_batches: inner.batches.len() as u64, ..inner.totals }
    }

    /// How long the queue reaches back, for log lines.
    pub fn span_ms(&self) -> u64 {
        let inner = self.lock();
        let windows: u64 = inner.batches.iter().map(|q| u64::from(q.batch.window_count)).sum();
        windows * (WINDOW_NS / 1_000_000)
    }
}

impl Inner {
    fn forget_up_to(&mut self, sequence: u64) {
        // A collector's word counts for what it was sent.
        let taken = sequence.min(self.sent_up_to);
        while self.batches.front().is_some_and(|q| q.batch.sequence <= taken) {
            self.batches.pop_front();
        }
    }
}

/// Workloads sort first, because listeners and edges refer to them.
fn key(named: &Named) -> (Kind, u32) {
    match named {
        Named::Workload(w) => (Kind::Workload, w.id),
        Named::Device(d) => (Kind::Device, d.id),
        Named::Listener(l) => (Kind::Listener, l.id),
        Named::Edge(e) => (Kind::Edge, e.id),
        Named::Gone(kind, id) => (*kind, *id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::workload::Device;

    fn batch(windows: u32) -> v1::WindowBatch {
        v1::WindowBatch { window_count: windows, ..v1::WindowBatch::default() }
    }

    fn device(id: u32) -> Named {
        Named::Device(Device { id, name: format!("d{id}") })
    }

    /// Everything that can be sent now, in words.
    fn sent(outbox: &Outbox) -> Vec<String> {
        let mut out = Vec::new();
        while let Some(body) = outbox.next() {
            out.push(match body {
                Body::Hello(h) => format!("hello {}", h.host),
                Body::Entities(e) => format!("names {} gone {:?}", e.devices.len(), e.gone_devices),
                Body::Batch(b) => format!("batch {} lost {}", b.sequence, b.windows_lost),
                Body::Drop(d) => format!("drop {}", d.sequence),
                Body::ClockProbe(_) | Body::Status(_) => "other".to_owned(),
            });
        }
        assert!(!outbox.has_next());
        out
    }

    #[test]
    fn names_go_first_then_drops_then_batches() {
        let outbox = Outbox::new(10);
        outbox.push(batch(2), 0);
        outbox.name(vec![device(1), device(2)]);
        outbox.drops([v1::DropEvent::default()].into_iter());
        outbox.set_hello(v1::Hello { host: "web".to_owned(), ..v1::Hello::default() });
        assert_eq!(sent(&outbox), ["hello web", "names 2 gone []", "drop 1", "batch 1 lost 0"]);
        outbox.set_hello(v1::Hello { host: "web".to_owned(), ..v1::Hello::default() });
        assert_eq!(sent(&outbox), [""; 0], "the same Hello again is no news");
    }

    #[test]
    fn what_is_gone_is_told_and_told_again_and_is_no_name_any_more() {
        let outbox = Outbox::new(10);
        let gone = |id| Named::Gone(Kind::Device, id);
        outbox.name(vec![device(1), device(2), gone(1)]);
        assert_eq!(sent(&outbox), ["names 1 gone []", "names 0 gone [1]"]);
        outbox.name(vec![gone(2)]);
        assert_eq!(sent(&outbox), ["names 0 gone [2]"]);
        outbox.resume(0);
        assert_eq!(sent(&outbox), ["names 0 gone [1, 2]"]);
        outbox.name((3..4 + GONE_MAX as u32).map(gone).collect());
        let many = sent(&outbox);
        assert_eq!(many.len(), GONE_MAX / NAMES_PER_MESSAGE, "the oldest are left out");
        assert!(many[0].starts_with("names 0 gone [4, 5,"), "{}", &many[0][..40]);
    }

    #[test]
    fn a_new_connection_sends_again_what_was_not_acknowledged() {
        let outbox = Outbox::new(10);
        outbox.name(vec![device(1)]);
        for _ in 0..4 {
            outbox.push(batch(2), 0);
        }
        sent(&outbox);
        outbox.acknowledged(1);
        outbox.resume(2);
        assert_eq!(sent(&outbox), ["names 1 gone []", "batch 3 lost 0", "batch 4 lost 0"]);
        outbox.resume(0);
        assert_eq!(sent(&outbox), ["names 1 gone []", "batch 3 lost 0", "batch 4 lost 0"], "a new collector");
        outbox.acknowledged(4);
        outbox.close();
        assert!(outbox.finished());
    }

    #[test]
    fn a_full_queue_drops_the_oldest_and_tells_the_windows_as_lost() {
        let outbox = Outbox::new(3);
        outbox.push(batch(2), 5);
        for _ in 0..4 {
            outbox.push(batch(2), 0);
        }
        assert_eq!(outbox.totals().batches_dropped, 2);
        assert_eq!(outbox.totals().windows_dropped, 4);
        // Batch 1 was dropped for batch 4 (its two windows, and the five it told of), batch 2 for batch 5.
        assert_eq!(sent(&outbox), ["batch 3 lost 0", "batch 4 lost 7", "batch 5 lost 2"]);
    }

    #[test]
    fn a_refused_batch_is_not_sent_again() {
        let outbox = Outbox::new(3);
        outbox.push(batch(2), 0);
        sent(&outbox);
        outbox.refused(1);
        outbox.push(batch(2), 0);
        outbox.resume(0);
        assert_eq!(sent(&outbox), ["batch 2 lost 2"]);
        assert_eq!(outbox.totals().batches_refused, 1);
    }

    #[test]
    fn drop_events_are_bounded() {
        let outbox = Outbox::new(3);
        outbox.drops((0..DROP_EVENTS_MAX + 2).map(|_| v1::DropEvent::default()));
        assert_eq!(outbox.totals().drop_events_dropped, 2);
        outbox.set_hello(v1::Hello::default());
        assert_eq!(sent(&outbox)[1], "drop 3");
    }
}

//! What one hook has yet to be told. Messages of a thread go one at a time and in order; threads go side by side. Owns the bound, and
//! what is worth sending of an incident that waits: that it opened, the newest of what became known, and that it closed. Pure.

use super::message::{Message, What};
use crate::moments::Moments;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// A message and its fate so far.
#[derive(Debug, Clone)]
pub struct Item {
    /// The message.
    pub message: Arc<Message>,
    /// Failed tries.
    pub tries: u32,
    /// Since when it is tried: made, or sent again by hand.
    pub since_unix_ns: u64,
    /// How it came here, if it is an early alert.
    pub early: Option<Moments>,
    /// Cancelled once the outbox has it; its first try waits a little for that.
    pub written: Option<CancellationToken>,
    /// Its receiver may have taken it, in a run of the collector that was killed before it wrote so, or in tries that were given up.
    pub maybe_told: bool,
}

/// Why a message will not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// A newer one of the same incident says more.
    Superseded,
    /// There was no room.
    Evicted,
}

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Item>,
    busy: bool,
    /// Not before.
    due: Option<Instant>,
}

/// The queue of one hook.
#[derive(Debug)]
pub struct Queue {
    lanes: BTreeMap<String, Lane>,
    waiting: usize,
    waiting_max: usize,
}

impl Queue {
    /// For so many messages.
    #[must_use]
    pub fn new(waiting_max: usize) -> Self {
        Self { lanes: BTreeMap::new(), waiting: 0, waiting_max }
    }

    /// Messages that wait, not counting those being sent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Those that wait.
    pub fn messages(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.lanes.values().flat_map(|lane| &lane.waiting).map(|item| &item.message)
    }

    /// When the oldest of those that wait was made.
    #[must_use]
    pub fn oldest_unix_ns(&self) -> Option<u64> {
        self.messages().map(|message| message.at_unix_ns).min()
    }

    /// At the end of its thread. Returns what need not or cannot be sent any more.
    pub fn push(&mut self, item: Item) -> Vec<(Item, Gone)> {
        let mut gone = Vec::new();
        let lane = self.lanes.entry(item.message.thread.id.clone()).or_default();
        if item.message.what.is_news() || item.message.what == What::Closed {
            let older =
                |o: &Item| o.message.incident == item.message.incident && o.message.is_outdated_by_newer();
            while let Some(at) = lane.waiting.iter().position(older) {
                gone.extend(lane.waiting.remove(at).map(|o| (o, Gone::Superseded)));
            }
        }
        lane.waiting.push_back(item);
        self.waiting += 1;
        self.waiting -= gone.len();
        while self.waiting > self.waiting_max {
            let Some(victim) = self.evict() else { break };
            gone.push((victim, Gone::Evicted));
        }
        gone
    }

    /// The oldest of an incident that is over, or else the oldest.
    fn evict(&mut self) -> Option<Item> {
        let resolved = self.lanes.iter().find_map(|(id, lane)| {
            let closed = lane.waiting.iter().find(|o| o.message.what == What::Closed)?;
            let first = lane.waiting.iter().position(|o| o.message.incident == closed.message.incident)?;
            Some((id.clone(), first))
        });
        let any = || self.lanes.iter().find(|(_, l)| !l.waiting.is_empty()).map(|(id, _)| (id.clone(), 0));
        let (id, at) = resolved.or_else(any)?;
        let victim = self.lanes.get_mut(&id)?.waiting.remove(at)?;
        self.waiting -= 1;
        self.forget(&id);
        Some(victim)
    }

    /// The next message to send, oldest thread first. Its thread is busy until [`Queue::done`] or [`Queue::again`].
    pub fn take(&mut self, now: Instant) -> Option<Item> {
        let (_, lane) = self.lanes.iter_mut().find(|(_, lane)| {
            !lane.busy && !lane.waiting.is_empty() && lane.due.is_none_or(|due| due <= now)
        })?;
        lane.busy = true;
        lane.due = None;
        self.waiting -= 1;
        lane.waiting.pop_front()
    }

    /// The message that was taken is settled.
    pub fn done(&mut self, thread: &str) {
        if let Some(lane) = self.lanes.get_mut(thread) {
            lane.busy = false;
        }
        self.forget(thread);
    }

    /// The message that was taken is to be tried again, not before `due`, unless a newer one says more.
    pub fn again(&mut self, item: Item, due: Instant) -> Option<Item> {
        let lane = self.lanes.entry(item.message.thread.id.clone()).or_default();
        lane.busy = false;
        lane.due = Some(due);
        let newer = |o: &Item| o.message.incident == item.message.incident && o.message.what != What::Opened;
        if item.message.is_outdated_by_newer() && lane.waiting.iter().any(newer) {
            return Some(item);
        }
        lane.waiting.push_front(item);
        self.waiting += 1;
        None
    }

    /// Takes back all that waits for `incident`.
    pub fn withdraw(&mut self, thread: &str, incident: &str) -> Vec<Item> {
        let Some(lane) = self.lanes.get_mut(thread) else { return Vec::new() };
        let (taken, kept): (Vec<_>, Vec<_>) =
            lane.waiting.drain(..).partition(|o| o.message.incident == incident);
        lane.waiting = kept.into();
        self.waiting -= taken.len();
        self.forget(thread);
        taken
    }

    /// Whether this message, or one of the same incident that waits behind it, ends early alerts.
    #[must_use]
    pub fn ends_others(&self, message: &Message) -> bool {
        let behind = self.lanes.get(&message.thread.id).into_iter().flat_map(|lane| &lane.waiting);
        let of_it = behind.map(|o| o.message.as_ref()).filter(|o| o.incident == message.incident);
        of_it.chain([message]).any(Message::ends_others)
    }

    /// Whether a message waits in this thread that ends `incident` there.
    #[must_use]
    pub fn will_end(&self, thread: &str, incident: &str) -> bool {
        let lane = self.lanes.get(thread);
        lane.is_some_and(|lane| lane.waiting.iter().any(|o| o.message.ends(incident)))
    }

    /// When [`Queue::take`] may have something, if it has nothing now.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.lanes.values().filter(|l| !l.busy && !l.waiting.is_empty()).filter_map(|l| l.due).min()
    }

    /// Whether a thread has something waiting or being sent.
    #[must_use]
    pub fn is_active(&self, thread: &str) -> bool {
        self.lanes.contains_key(thread)
    }

    fn forget(&mut self, thread: &str) {
        if self.lanes.get(thread).is_some_and(|l| !l.busy && l.waiting.is_empty()) {
            self.lanes.remove(thread);
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests need some moment to count from")]
mod tests {
    use super::super::message::Content;
    use super::super::message::tests::message;
    use super::*;
    use std::time::Duration;

    fn item(incident: &str, version: u64, what: What) -> Item {
        let message = Arc::new(message(incident, version, what));
        Item { message, tries: 0, since_unix_ns: 0, early: None, written: None, maybe_told: false }
    }

    fn ids(queue: &mut Queue, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| {
            let item = queue.take(now)?;
            queue.done(&item.message.thread.id);
            Some(item.message.id.clone())
        })
        .collect()
    }

    #[test]
    fn a_thread_goes_in_order_one_at_a_time_and_others_beside_it() {
        let now = Instant::now();
        let mut queue = Queue::new(10);
        for (incident, version, what) in
            [("A", 0, What::Opened), ("A", 1, What::Closed), ("B", 0, What::Opened)]
        {
            assert!(queue.push(item(incident, version, what)).is_empty());
        }
        let first = queue.take(now).unwrap();
        assert_eq!(first.message.id, "A.0");
        assert_eq!(queue.take(now).unwrap().message.id, "B.0");
        assert!(queue.take(now).is_none(), "A is busy");
        let due = now + Duration::from_secs(1);
        assert!(queue.again(first, due).is_none());
        assert_eq!((queue.take(now).is_none(), queue.next_due()), (true, Some(due)));
        assert_eq!(queue.take(due).unwrap().message.id, "A.0");
        queue.done("A");
        assert_eq!(queue.take(due).unwrap().message.id, "A.1");
        queue.done("A");
        queue.done("B");
        assert!(queue.is_empty() && queue.lanes.is_empty());
    }

    #[test]
    fn of_what_waits_the_opening_the_newest_and_the_end_are_sent() {
        let now = Instant::now();
        let mut queue = Queue::new(10);
        queue.push(item("A", 0, What::Opened));
        queue.push(item("A", 1, What::Updated));
        let gone = queue.push(item("A", 2, What::Updated));
        assert_eq!((gone[0].0.message.id.as_str(), gone[0].1), ("A.1", Gone::Superseded));
        assert_eq!(queue.push(item("A", 3, What::Closed)).len(), 1);
        assert_eq!(ids(&mut queue, now), ["A.0", "A.3"]);
        queue.push(item("B", 1, What::Updated));
        let failed = queue.take(now).unwrap();
        queue.push(item("B", 2, What::Closed));
        assert_eq!(queue.again(failed, now).unwrap().message.id, "B.1", "what failed is old news now");
        assert_eq!(ids(&mut queue, now), ["B.2"]);
    }

    #[test]
    fn what_ends_early_alerts_is_sent_whatever_follows_it() {
        let now = Instant::now();
        let mut queue = Queue::new(10);
        let mut ends = item("A", 1, What::Updated);
        let mut changed = Message::clone(&ends.message);
        if let Content::Incident { replaces, .. } = &mut changed.content {
            replaces.push("EARLY".into());
        }
        ends.message = Arc::new(changed);
        queue.push(ends);
        assert!(queue.push(item("A", 2, What::Updated)).is_empty());
        let failed = queue.take(now).unwrap();
        assert!(queue.again(failed, now).is_none(), "nor when it failed");
        assert_eq!(ids(&mut queue, now), ["A.1", "A.2"]);
    }

    #[test]
    fn a_full_queue_gives_up_resolved_incidents_first() {
        let mut queue = Queue::new(3);
        queue.push(item("A", 0, What::Opened));
        queue.push(item("B", 0, What::Opened));
        queue.push(item("B", 1, What::Closed));
        let gone = queue.push(item("C", 0, What::Opened));
        assert_eq!((gone[0].0.message.id.as_str(), gone[0].1), ("B.0", Gone::Evicted));
        let gone = queue.push(item("D", 0, What::Opened));
        assert_eq!(gone[0].0.message.id, "B.1");
        let gone = queue.push(item("E", 0, What::Opened));
        assert_eq!(gone[0].0.message.id, "A.0");
        assert_eq!(queue.len(), 3);
    }
}

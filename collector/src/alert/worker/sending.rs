//! The sending half of a worker: takes from its queue what may go out, and settles what became of it; holds back what the rate limit has
//! no room for. Knows no incident's meaning, and no socket.

use super::{HELD_MAX, Outgoing, SUMMARY_LINES_MAX, WAITING_MAX, Worker};
use crate::alert::message::{Content, Line, Message, Thread, What};
use crate::alert::outbox::{Restored, State as Fate};
use crate::alert::queue::{Gone, Item};
use crate::send::http::DeliveryError;
use crate::send::limit::pause;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Worker {
    pub(super) fn enqueue(&mut self, item: Item) {
        for (gone, why) in self.queue.push(item) {
            let fate = match why {
                Gone::Superseded => {
                    self.stats.superseded.inc();
                    Fate::Superseded
                }
                Gone::Evicted => {
                    self.stats.evicted.inc();
                    tracing::warn!(hook = %self.name, id = %gone.message.id, "{WAITING_MAX} messages wait for this hook, the limit: this one is given up");
                    Fate::Evicted
                }
            };
            self.outbox.mark(&self.name, &gone.message, fate, gone.tries, "");
        }
    }

    pub(super) fn dispatch(&mut self) {
        while self.in_flight.len() < self.manners.at_once {
            let now = self.clock.monotonic();
            let Some(item) = self.queue.take(now) else { break };
            // A retry has its own pauses; a summary has paid already.
            if item.tries > 0 || item.message.what == What::Summary || self.bucket.take(now) {
                self.send(item);
            } else if self.may_be_held(&item) {
                self.hold(item);
            } else {
                let due = self.bucket.next(now);
                if let Some(old) = self.queue.again(item, due) {
                    self.superseded(&old);
                }
            }
        }
        if self.held_count > 0 && self.bucket.take(self.clock.monotonic()) {
            self.summarise();
        }
    }

    /// Whether a summary may say all that this hook hears of its incident. Not of one that its receiver may know: nobody else tells its end,
    /// for which the end of another of its thread may have waited.
    fn may_be_held(&self, item: &Item) -> bool {
        let message = &item.message;
        let known = item.maybe_told || self.threads.is_shown(&message.thread.id, &message.incident);
        message.what == What::Opened && !known && !self.queue.ends_others(message)
    }

    /// The message as it goes out now: with how many others of its thread its receiver holds to be open. Not with those that were when it was made:
    /// what stood before it may have been held back or refused since. Of each that is counted an end will go out in this thread, because what a
    /// receiver knows is never held back, and that end counts anew; so the last end that a receiver is told resolves the thread.
    fn counted(&mut self, message: &Arc<Message>) -> Arc<Message> {
        let (told, queue, of) = (&self.told, &self.queue, message.thread.id.as_str());
        let will_end = |id: &str| {
            told.get(id).is_some_and(|t| t.open && !t.muted && t.thread == of) || queue.will_end(of, id)
        };
        let others_open = self.threads.others_open(message, will_end);
        if message.thread.others_open == others_open {
            return Arc::clone(message);
        }
        let thread = Thread { others_open, ..message.thread.clone() };
        Arc::new(Message { thread, ..message.as_ref().clone() })
    }

    fn send(&mut self, mut item: Item) {
        let (number, written) = (self.next_try, item.written.take());
        self.next_try += 1;
        // A try after a failure says how the receiver was, not how quick the alert.
        let early = item.early.filter(|_| item.tries == 0);
        let message = self.counted(&item.message);
        self.outgoing.push(Outgoing { number, message, written, early });
        self.in_flight.insert(number, item);
    }

    /// What became of a try. Not `open`: the worker is about to end, and tries nothing again.
    pub fn ended(&mut self, number: u64, outcome: Result<(), DeliveryError>, open: bool) {
        let Some(mut item) = self.in_flight.remove(&number) else { return };
        let thread = item.message.thread.id.clone();
        let (why, after) = match outcome {
            Ok(()) => {
                self.stats.sent.inc();
                self.threads.took(&item.message);
                self.outbox.mark(&self.name, &item.message, Fate::Sent, item.tries, "");
                return self.queue.done(&thread);
            }
            Err(DeliveryError::Never(why)) => return self.dead(&item, &why),
            Err(DeliveryError::Later { why, after }) => (why, after),
        };
        item.tries += 1;
        let age_ns = self.clock.unix_ns().saturating_sub(item.since_unix_ns);
        if age_ns >= self.hook.retry_for_s.saturating_mul(1_000_000_000) {
            self.stats.failed.inc();
            return self.dead(&item, &format!("given up after {} tries: {why}", item.tries));
        }
        let pause = pause(item.tries, after, fastrand::f64());
        tracing::debug!(hook = %self.name, id = %item.message.id, "again in {pause:?}: {why}");
        self.outbox.mark(&self.name, &item.message, Fate::Waiting, item.tries, &why);
        // Whoever reads the count finds the reason.
        self.stats.failed.inc();
        if !open {
            return; // its thread stays busy: what comes after it must not overtake it, also over a restart
        }
        if let Some(old) = self.queue.again(item, self.clock.monotonic() + pause) {
            self.superseded(&old);
        }
    }

    fn superseded(&self, old: &Item) {
        self.stats.superseded.inc();
        self.outbox.mark(&self.name, &old.message, Fate::Superseded, old.tries, "");
    }

    fn dead(&mut self, item: &Item, why: &str) {
        tracing::warn!(hook = %self.name, id = %item.message.id, "dead letter: {why}\n  remedy: `tailwater alerts --dead` lists it, `tailwater alerts --resend {}` sends it again", item.message.id);
        // Without an answer it may have taken a beginning all the same. What ends by this message is told no other end.
        let ends = item.message.what == What::Closed || item.message.ends_others();
        if item.maybe_told || item.tries > 0 || ends {
            self.threads.took(&item.message);
        }
        self.outbox.mark(&self.name, &item.message, Fate::Dead, item.tries, why);
        // Once the outbox was told: who sees the count finds the letter.
        self.stats.dead.inc();
        self.queue.done(&item.message.thread.id);
    }

    /// The rate limit has no room for a new incident: it goes into the next summary, with all that is said of it until then.
    fn hold(&mut self, item: Item) {
        let (incident, thread) = (item.message.incident.clone(), item.message.thread.id.clone());
        let more = self.queue.withdraw(&thread, &incident);
        self.queue.done(&thread);
        if let Some(told) = self.told.get_mut(&incident) {
            told.muted = true;
            told.last = None;
        }
        for old in &more {
            self.superseded(old);
        }
        self.outbox.mark(&self.name, &item.message, Fate::Held, 0, "");
        self.hold_back(item.message);
    }

    /// The next summary names this message's incident.
    pub(super) fn hold_back(&mut self, message: Arc<Message>) {
        self.held_count += 1;
        self.stats.held.inc();
        if self.held.len() < HELD_MAX {
            self.held.push(message);
        } else {
            self.outbox.mark(&self.name, &message, Fate::Superseded, 0, "in a summary");
        }
    }

    fn summarise(&mut self) {
        let held = std::mem::take(&mut self.held);
        let count = std::mem::take(&mut self.held_count);
        let Some(first) = held.first() else { return };
        let at_unix_ns = self.clock.unix_ns();
        // After a kill the same message may be the first of another summary, which must not be taken for the one of before.
        let id = format!("summary.{}.{}", first.id, at_unix_ns / 1_000_000);
        let line =
            |m: &Arc<Message>| Line { id: m.incident.clone(), severity: m.severity(), title: m.title() };
        let content = Content::Summary {
            held: count,
            incidents: held.iter().take(SUMMARY_LINES_MAX).map(line).collect(),
        };
        let mut labels = BTreeMap::new();
        let worst = held.iter().map(|m| m.severity()).max().unwrap_or(self.hook.min_severity);
        labels.insert("severity".to_owned(), worst.name().to_owned());
        let thread = Thread { id: id.clone(), number: 1, others_open: 0, labels };
        let message =
            Arc::new(Message { incident: id.clone(), id, what: What::Summary, at_unix_ns, thread, content });
        // First the summary, then what it stands for: a crash in between tells twice, not never.
        let written = Some(self.outbox.put(&self.name, &message, Fate::Waiting));
        for one in &held {
            self.outbox.mark(&self.name, one, Fate::Superseded, 0, "in a summary");
        }
        let since_unix_ns = at_unix_ns;
        self.enqueue(Item { message, tries: 0, since_unix_ns, early: None, written, maybe_told: false });
        if let Some(item) = self.queue.take(self.clock.monotonic()) {
            self.send(item);
        }
    }

    pub(super) fn resend_letters(&mut self, letters: Vec<Restored>) {
        let since_unix_ns = self.clock.unix_ns();
        for letter in letters {
            let message = Arc::new(letter.message);
            self.outbox.mark(&self.name, &message, Fate::Waiting, 0, "");
            // A receiver that gave no answer may have taken it all the same, and newer ones of its incident were sent.
            let (early, written) = (None, None);
            let again = Arc::clone(&message);
            self.enqueue(Item { message: again, tries: 0, since_unix_ns, early, written, maybe_told: true });
            // Its end may have come to a receiver that knew of no beginning. Nobody else ends what begins there now.
            let goes_on = self.told.get(&message.incident).is_some_and(|told| told.open);
            let begins = !matches!(message.what, What::Closed | What::Summary);
            if begins && !goes_on && self.manners.needs_opening {
                self.end_in_its_thread(&message, ".resent");
            }
        }
    }

    /// What is open, to receivers that forget.
    pub(super) fn resend_open(&mut self) {
        if self.resending {
            return;
        }
        let mut threads: BTreeMap<&str, &Arc<Message>> = BTreeMap::new();
        for told in self.told.values().filter(|t| t.open && !self.queue.is_active(&t.thread)) {
            if let Some(last) = &told.last {
                let newest = threads.entry(&told.thread).or_insert(last);
                if last.at_unix_ns > newest.at_unix_ns {
                    *newest = last;
                }
            }
        }
        let messages: Vec<_> = threads.into_values().cloned().collect();
        if messages.is_empty() {
            return;
        }
        self.resending = true;
        self.again = Some(messages);
    }

    /// What became of [`Worker::again`].
    pub fn resent(&mut self, outcome: Result<(), DeliveryError>) {
        self.resending = false;
        if let Err(e) = outcome {
            self.stats.failed.inc();
            tracing::debug!(hook = %self.name, "open alerts were not sent again: {e}");
        }
    }
}

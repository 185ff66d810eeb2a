//! What a worker knows from before a restart: what has yet to be delivered, and incidents that were open, which end if nothing comes of
//! them. Usually that is read before the worker starts; from a disk that refused then, later.

use super::{Told, Worker};
use crate::alert::message::{Message, What};
use crate::alert::outbox::{Restored, State as Fate};
use crate::alert::queue::Item;
use crate::verdict::Verdict;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tailwater_model::Incident;

/// After a restart, an incident that was open before and of which nothing came within this is over: agents send what they kept, and early
/// alerts are settled, sooner.
const ORPHANS_AFTER: Duration = Duration::from_secs(10);

impl Worker {
    /// What the outbox remembers of this hook, oldest first.
    pub(super) fn restore(&mut self, restored: Vec<Restored>) {
        if !restored.is_empty() {
            self.orphans_at = Some(self.clock.monotonic() + ORPHANS_AFTER);
        }
        for one in restored {
            self.remember(one);
        }
    }

    /// The same, when this hook has been told things since the start.
    pub(super) fn restore_late(&mut self, restored: Vec<Restored>) {
        let (again, before): (Vec<_>, Vec<_>) =
            restored.into_iter().partition(|one| self.told.contains_key(&one.message.incident));
        self.restore(before);
        self.told_since(again);
    }

    /// Incidents that were open when the collector died and that no row of this hook names: the crash came before they were told, or the disk
    /// did not take it in time. They are told now, under an id of their own, because nobody knows whether the first try had gone out; then
    /// they are as those of the outbox.
    pub(super) fn tell_unheard(&mut self, unheard: &[Arc<Incident>]) {
        for incident in unheard {
            if !self.wanted(incident) {
                continue;
            }
            self.orphans_at.get_or_insert(self.clock.monotonic() + ORPHANS_AFTER);
            let thread = self.threads.join(incident, None, self.clock.unix_ns());
            let item = self.say(What::Opened, incident, Vec::new(), thread, ".again");
            self.enqueue(Item { maybe_told: true, ..item });
            if let Some(told) = self.told.get_mut(&incident.id) {
                told.orphan = true;
            }
        }
    }

    /// Of these incidents this hook was told again: what waited of them is old news.
    fn told_since(&mut self, rows: Vec<Restored>) {
        let mut last: BTreeMap<String, Arc<Message>> = BTreeMap::new();
        for one in rows {
            let message = Arc::new(one.message);
            if one.waiting {
                self.stats.superseded.inc();
                self.outbox.outdated(&self.name, &message);
            }
            // What was held back or refused has reached nobody, and what was replaced has ended in another's thread.
            if !one.held && !one.refused && !one.replaced {
                last.insert(message.incident.clone(), message);
            }
        }
        for message in last.into_values() {
            self.resolve_before(&message);
            self.unmute(&message);
        }
    }

    /// What this run put into a summary had been told before, as is known now: so its end is told, too.
    fn unmute(&mut self, last: &Arc<Message>) {
        let Some(told) = self.told.get_mut(&last.incident) else { return };
        let resolved = told.thread != last.thread.id && self.manners.needs_opening;
        if !told.muted || last.what == What::Closed || resolved {
            return;
        }
        told.muted = false;
        if told.open {
            told.last = Some(Arc::clone(last));
            let thread = told.thread.clone();
            // Its thread's end waits for it again.
            self.threads.shows(&thread, &last.incident);
            return;
        }
        let Some(closed) = last.ended() else { return };
        let thread = told.thread.clone();
        let thread = self.threads.told(&thread, &closed, self.clock.unix_ns());
        self.tell(What::Closed, &Arc::new(closed), Vec::new(), thread, ".restart");
    }

    /// A receiver that keeps alerts has one in the thread of before, which nothing of this incident goes to any more.
    fn resolve_before(&mut self, last: &Message) {
        let Some(told) = self.told.get(&last.incident) else { return };
        if told.thread != last.thread.id && self.manners.needs_opening {
            self.end_in_its_thread(last, ".restart");
        }
    }

    /// Ends what this message says to have begun, in the thread that it has.
    pub(super) fn end_in_its_thread(&mut self, last: &Message, suffix: &str) {
        let Some(closed) = last.ended() else { return };
        let now = self.clock.unix_ns();
        self.threads.restore(&last.thread, &closed, true, last.at_unix_ns);
        let thread = self.threads.told(&last.thread.id, &closed, now);
        let message = Arc::new(self.message(What::Closed, closed, Vec::new(), thread, suffix));
        let written = Some(self.outbox.put(&self.name, &message, Fate::Waiting));
        let item = Item { message, tries: 0, since_unix_ns: now, early: None, written, maybe_told: false };
        self.enqueue(item);
    }

    fn remember(&mut self, one: Restored) {
        let message = Arc::new(one.message);
        if let Some(incident) = message.about() {
            // What was replaced is part of another incident of its thread, whose end does not wait for it.
            let open = message.what != What::Closed && !one.replaced;
            // Not what was refused, nor a beginning that goes out once more: no end waits for what its receiver may not know.
            let shown = !(one.refused || one.waiting && message.what == What::Opened);
            self.threads.restore(&message.thread, incident, shown, message.at_unix_ns);
            let told = Told {
                verdict: Verdict::of(incident),
                open,
                thread: message.thread.id.clone(),
                muted: one.held,
                orphan: open,
                refused: one.refused,
                // Of what is held back a summary will say all: its end is not told.
                last: (open && !one.held).then(|| Arc::clone(&message)),
                said_at: self.clock.monotonic(),
                newer: None,
                reminders: 0,
            };
            self.told.insert(incident.id.clone(), told);
        }
        if one.held {
            // Not sent by itself: as long as it never is, its row says that no receiver can know it.
            self.hold_back(message);
        } else if one.waiting {
            let (tries, since_unix_ns) = (one.tries, message.at_unix_ns);
            self.enqueue(Item {
                message,
                tries,
                since_unix_ns,
                early: None,
                written: None,
                maybe_told: true,
            });
        }
    }

    pub(super) fn close_orphans(&mut self) {
        let orphans: Vec<_> = self
            .told
            .values()
            .filter(|t| t.open && t.orphan)
            .filter_map(|t| Some((t.thread.clone(), t.last.as_ref()?.ended()?)))
            .collect();
        for (thread, incident) in orphans {
            let thread = self.threads.told(&thread, &incident, self.clock.unix_ns());
            // Its id is not that of a version that may still come.
            self.tell(What::Closed, &Arc::new(incident), Vec::new(), thread, ".restart");
        }
    }
}

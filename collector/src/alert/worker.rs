//! One hook's worker: decides what of each incident this hook is told, keeps what it has yet to be told, and says what is to go out
//! (`sending`). Owns silences, threads, the rate limit, retries and dead letters of its hook; shares nothing with other hooks but the disk,
//! which it does not wait for. Never waits: a task (`running`) or a simulation steps it.

mod restart;
mod running;
mod sending;

use super::config::Hook;
use super::group::Threads;
use super::message::{self, Content, Message, Thread, What};
use super::outbox::{Outbox, Restored, State as Fate};
use super::queue::{Item, Queue};
use super::receiver::Manners;
use super::silences::Silences;
use super::stats::{HookStats, Stats};
use crate::clock::Clock;
use crate::moments::Moments;
use crate::send::limit::Bucket;
use crate::verdict::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailwater_model::Incident;
use tailwater_model::incident::State;
use tokio_util::sync::CancellationToken;

/// Messages that wait for one hook.
const WAITING_MAX: usize = 1024;
/// Incidents remembered for what was told of them last.
const TOLD_MAX: usize = 4096;
/// Incidents that a summary names; the others are counted.
const SUMMARY_LINES_MAX: usize = 20;
/// Held messages remembered one by one, for the outbox.
const HELD_MAX: usize = 4096;
/// A version of an incident, for every hook.
#[derive(Debug)]
pub struct Event {
    /// The incident.
    pub incident: Arc<Incident>,
    /// Ids of early alerts that turned out to be this incident.
    pub replaces: Vec<String>,
    /// How it came here, if it is an early alert.
    pub early: Option<Moments>,
}

/// What a worker is told.
#[derive(Debug)]
pub enum Input {
    /// Something happened.
    Event(Arc<Event>),
    /// Somebody wants these dead letters sent again.
    Resend(Vec<Restored>),
    /// What the outbox remembers of before the start, which it could not read then.
    Restored(Vec<Restored>),
}

#[derive(Debug)]
struct Told {
    verdict: Verdict,
    open: bool,
    thread: String,
    /// It was in a summary, which is all that is said of it.
    muted: bool,
    /// Known from before a restart, and nothing came since.
    orphan: bool,
    /// Its receiver refused what was said last, before a restart: it hears of it anew, or of its end.
    refused: bool,
    /// What was said last, while it is open.
    last: Option<Arc<Message>>,
    /// When that was.
    said_at: Instant,
    /// A newer version that means the same.
    newer: Option<Arc<Incident>>,
    reminders: u64,
}

/// A message that goes out now. Whoever runs the worker says what became of it.
#[derive(Debug)]
pub struct Outgoing {
    /// The number of this try.
    pub number: u64,
    /// The message.
    pub message: Arc<Message>,
    /// Cancelled once the outbox has it: a first try waits a little for that.
    pub written: Option<CancellationToken>,
    /// How it came here, if it is an early alert in its first try.
    pub early: Option<Moments>,
}

/// The worker.
pub struct Worker {
    name: Arc<str>,
    life: Arc<str>,
    hook: Hook,
    manners: Manners,
    silences: Arc<Silences>,
    threads: Threads,
    told: BTreeMap<String, Told>,
    silenced: BTreeSet<String>,
    queue: Queue,
    bucket: Bucket,
    held: Vec<Arc<Message>>,
    held_count: u64,
    /// What is to go out and was not fetched yet.
    outgoing: Vec<Outgoing>,
    /// By the number of the try.
    in_flight: BTreeMap<u64, Item>,
    next_try: u64,
    /// Open alerts that are to be sent once more and were not fetched yet.
    again: Option<Vec<Arc<Message>>>,
    /// They are under way.
    resending: bool,
    resend_at: Option<Instant>,
    orphans_at: Option<Instant>,
    outbox: Outbox,
    stats: Arc<HookStats>,
    all: Arc<Stats>,
    clock: Clock,
}

/// What a worker is made of.
pub struct Parts {
    /// Its name.
    pub name: Arc<str>,
    /// The run of the collector, for the ids of what it says ([`message::life`]).
    pub life: Arc<str>,
    /// Its configuration.
    pub hook: Hook,
    /// What its receiver is like.
    pub manners: Manners,
    /// All silences.
    pub silences: Arc<Silences>,
    /// The disk.
    pub outbox: Outbox,
    /// Its counters.
    pub stats: Arc<HookStats>,
    /// Those of alerting.
    pub all: Arc<Stats>,
    /// Time.
    pub clock: Clock,
}

impl Worker {
    /// With what the outbox remembers of this hook, oldest first, and the incidents that were open before and that it has nothing of.
    #[must_use]
    pub fn new(parts: Parts, restored: Vec<Restored>, unheard: &[Arc<Incident>]) -> Self {
        let now = parts.clock.monotonic();
        let resend_at = parts.manners.resend.map(|every| now + every);
        let mut worker = Self {
            threads: Threads::new(parts.hook.group_within_s),
            told: BTreeMap::new(),
            silenced: BTreeSet::new(),
            queue: Queue::new(WAITING_MAX),
            bucket: Bucket::new(parts.hook.rate(), parts.hook.burst, now),
            held: Vec::new(),
            held_count: 0,
            outgoing: Vec::new(),
            in_flight: BTreeMap::new(),
            next_try: 0,
            again: None,
            resending: false,
            resend_at,
            orphans_at: None,
            name: parts.name,
            life: parts.life,
            hook: parts.hook,
            manners: parts.manners,
            silences: parts.silences,
            outbox: parts.outbox,
            stats: parts.stats,
            all: parts.all,
            clock: parts.clock,
        };
        worker.restore(restored);
        worker.tell_unheard(unheard);
        worker
    }

    /// Something was told.
    pub fn input(&mut self, input: Input) {
        match input {
            Input::Event(event) => self.event(&event),
            Input::Resend(letters) => self.resend_letters(letters),
            Input::Restored(rows) => self.restore_late(rows),
        }
    }

    /// What goes out now: each is to be sent, and [`Worker::ended`] to be told what became of it.
    pub fn outgoing(&mut self) -> Vec<Outgoing> {
        self.dispatch();
        self.show();
        std::mem::take(&mut self.outgoing)
    }

    /// Open alerts that are to be sent once more, together; [`Worker::resent`] is to be told what became of that.
    pub fn again(&mut self) -> Option<Vec<Arc<Message>>> {
        self.again.take()
    }

    fn show(&self) {
        let in_flight = self.in_flight.values().map(|item| item.message.at_unix_ns).min();
        let oldest = self.queue.oldest_unix_ns().into_iter().chain(in_flight).min();
        self.stats.oldest_unix_ns.set(oldest.unwrap_or(0));
        self.stats.waiting.set((self.queue.len() + self.in_flight.len()) as u64);
    }

    /// When [`Worker::timers`] or [`Worker::outgoing`] has something to do, if nothing happens before.
    pub fn wake(&mut self) -> Option<Instant> {
        let now = self.clock.monotonic();
        let room = self.in_flight.len() < self.manners.at_once;
        let due = self.queue.next_due().filter(|_| room);
        let summary = (self.held_count > 0).then(|| self.bucket.next(now));
        [due, summary, self.resend_at, self.orphans_at, self.remind_at()].into_iter().flatten().min()
    }

    /// When the next incident that goes on is to be told again.
    fn remind_at(&self) -> Option<Instant> {
        // A receiver that is sent everything again needs no reminder.
        let every = Duration::from_secs(self.hook.remind_after_s);
        if every.is_zero() || self.manners.resend.is_some() {
            return None;
        }
        let open = self.told.values().filter(|t| t.open && !t.muted && !t.orphan);
        open.map(|t| t.said_at + every).min()
    }

    fn remind(&mut self, now: Instant) {
        let every = Duration::from_secs(self.hook.remind_after_s);
        let due: Vec<(Arc<Incident>, String, u64)> = self
            .told
            .values()
            .filter(|t| t.open && !t.muted && !t.orphan && t.said_at + every <= now)
            .filter_map(|t| {
                let said = || t.last.as_ref()?.about().cloned().map(Arc::new);
                Some((t.newer.clone().or_else(said)?, t.thread.clone(), t.reminders + 1))
            })
            .collect();
        for (incident, thread, number) in due {
            if self.silences.covers(&self.name, &incident, true).is_some() {
                // Its turn comes again after the same while: by then the silence may have ended.
                if let Some(told) = self.told.get_mut(&incident.id) {
                    told.said_at = now;
                }
                continue;
            }
            let thread = self.threads.told(&thread, &incident, self.clock.unix_ns());
            self.tell(What::Reminded, &incident, Vec::new(), thread, &format!(".reminder{number}"));
            if let Some(told) = self.told.get_mut(&incident.id) {
                told.reminders = number;
            }
        }
    }

    /// Does what is due.
    pub fn timers(&mut self) {
        let now = self.clock.monotonic();
        if self.orphans_at.is_some_and(|at| at <= now) {
            self.orphans_at = None;
            self.close_orphans();
        }
        if self.resend_at.is_some_and(|at| at <= now) {
            self.resend_at = self.manners.resend.map(|every| now + every);
            self.resend_open();
        }
        if self.remind_at().is_some_and(|at| at <= now) {
            self.remind(now);
        }
    }

    fn event(&mut self, event: &Event) {
        let i = event.incident.as_ref();
        let closed = i.state == State::Closed;
        let replaced: Vec<&String> =
            event.replaces.iter().filter(|r| self.told.get(*r).is_some_and(|t| t.open)).collect();
        let verdict = Verdict::of(i);
        let known = self.told.get_mut(&i.id).filter(|t| (t.open && !t.refused) || closed);
        let what = match known {
            Some(told) => {
                told.orphan = false;
                if told.open && told.verdict == verdict && replaced.is_empty() {
                    told.newer = Some(Arc::clone(&event.incident));
                    return;
                }
                // What was told is told to have ended, silence or not: whoever was woken may sleep. A change waits: the next version after
                // the silence differs from what was told, too.
                if told.open && !told.muted && !closed && replaced.is_empty() {
                    let counted = told.newer.as_ref().is_none_or(|newer| Verdict::of(newer) != verdict);
                    if self.silences.covers(&self.name, i, counted).is_some() {
                        told.newer = Some(Arc::clone(&event.incident));
                        return;
                    }
                }
                if !told.open {
                    return self.end_alerts(&replaced);
                }
                if told.muted {
                    told.open = !closed;
                    told.verdict = verdict;
                    let thread = told.thread.clone();
                    self.threads.told(&thread, i, self.clock.unix_ns());
                    self.stats.superseded.inc();
                    return self.end_alerts(&replaced);
                }
                if closed { What::Closed } else { What::Updated }
            }
            None => {
                if !self.wanted(i) {
                    return self.end_alerts(&replaced);
                }
                if closed { What::Closed } else { What::Opened }
            }
        };
        // Of what was refused before a restart a receiver that gave no answer at first may have taken something all the same.
        let maybe_told = self.told.get(&i.id).is_some_and(|told| told.refused);
        let first = known_thread(&self.told, &i.id);
        let now = self.clock.unix_ns();
        let joins = replaced.first().and_then(|r| known_thread(&self.told, r));
        let thread = match &first {
            Some(thread) => self.threads.told(thread, i, now),
            None => self.threads.join(i, joins.as_deref(), now),
        };
        let into = thread.id.clone();
        if first.is_none() && what == What::Closed && self.manners.needs_opening {
            // The end has the same version, and an id of its own.
            self.tell(What::Opened, &event.incident, Vec::new(), thread.clone(), ".opened");
        }
        let item = self.say(what, &event.incident, event.replaces.clone(), thread, "");
        self.enqueue(Item { early: event.early, maybe_told, ..item });
        // After what ends them, also in the outbox: a crash in between ends them twice, not never.
        for alert in &replaced {
            self.replace(alert, Some(&into));
        }
    }

    /// Whether this hook is to hear of an incident that it knows nothing of.
    fn wanted(&mut self, i: &Incident) -> bool {
        if i.severity < self.hook.min_severity
            || !(self.hook.kinds.is_empty() || self.hook.kinds.contains(&i.kind))
        {
            return false;
        }
        let first = !self.silenced.contains(&i.id);
        if let Some(why) = self.silences.covers(&self.name, i, first) {
            if first {
                tracing::info!(hook = %self.name, id = %i.id, "silenced: {why}");
                self.stats.silenced.inc();
                self.silenced.insert(i.id.clone());
            }
            while self.silenced.len() > TOLD_MAX {
                self.silenced.pop_first(); // ids sort by time
            }
            return false;
        }
        // Nobody needs to hear of the end of what was silenced all along.
        !(i.state == State::Closed && self.silenced.contains(&i.id))
    }

    /// Ends early alerts of an incident of which this hook is told nothing more: because of a silence or a filter, or because it was in a
    /// summary. They were told, and have nobody else to end them.
    fn end_alerts(&mut self, replaced: &[&String]) {
        for alert in replaced {
            self.replace(alert, None);
        }
    }

    /// An early alert is part of an incident in thread `into` now. `None`: of one that is not told.
    fn replace(&mut self, alert: &str, into: Option<&str>) {
        let Some(told) = self.told.get_mut(alert) else { return };
        told.open = false;
        let (thread, last) = (told.thread.clone(), told.last.take());
        let Some(last) = last else { return };
        let Some(closed) = last.ended() else { return };
        if into.is_none_or(|into| thread != into && self.manners.needs_opening) {
            // A thread of its own, in a receiver that keeps threads: it is resolved there.
            let thread = self.threads.told(&thread, &closed, self.clock.unix_ns());
            self.tell(What::Closed, &Arc::new(closed), Vec::new(), thread, message::REPLACED);
        } else {
            // Nothing to send: the other's message names it. The outbox must know, so that it is not open after a restart.
            let thread = last.thread.clone();
            let marker = self.message(What::Closed, closed, Vec::new(), thread, message::REPLACED);
            self.outbox.put(&self.name, &Arc::new(marker), Fate::Superseded);
        }
    }

    fn message(
        &self,
        what: What,
        incident: Incident,
        replaces: Vec<String>,
        thread: Thread,
        suffix: &str,
    ) -> Message {
        Message {
            id: message::id(&incident, &self.life, suffix),
            incident: incident.id.clone(),
            what,
            at_unix_ns: self.clock.unix_ns(),
            thread,
            content: Content::Incident { incident: Box::new(incident.brief()), replaces },
        }
    }

    fn tell(
        &mut self,
        what: What,
        incident: &Arc<Incident>,
        replaces: Vec<String>,
        thread: Thread,
        suffix: &str,
    ) {
        let item = self.say(what, incident, replaces, thread, suffix);
        self.enqueue(item);
    }

    /// Notes what is told, here and in the outbox. What is returned is to be put into the queue.
    fn say(
        &mut self,
        what: What,
        incident: &Arc<Incident>,
        replaces: Vec<String>,
        thread: Thread,
        suffix: &str,
    ) -> Item {
        let message = Arc::new(self.message(what, incident.as_ref().clone(), replaces, thread, suffix));
        let open = incident.state == State::Open;
        let told = Told {
            verdict: Verdict::of(incident),
            open,
            thread: message.thread.id.clone(),
            muted: false,
            orphan: false,
            refused: false,
            last: open.then(|| Arc::clone(&message)),
            said_at: self.clock.monotonic(),
            newer: None,
            reminders: 0,
        };
        self.told.insert(incident.id.clone(), told);
        while self.told.len() > TOLD_MAX {
            self.told.pop_first(); // ids sort by time
        }
        let written = Some(self.outbox.put(&self.name, &message, Fate::Waiting));
        let since_unix_ns = message.at_unix_ns;
        Item { message, tries: 0, since_unix_ns, early: None, written, maybe_told: false }
    }
}

fn known_thread(told: &BTreeMap<String, Told>, id: &str) -> Option<String> {
    told.get(id).map(|t| t.thread.clone())
}

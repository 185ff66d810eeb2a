//! What must be true at the end of a history: each incident was told, what was told to have begun was told to have ended (also to a receiver
//! that drops an id which it has seen, and whatever a summary says), nothing came twice without a reason or after its end, no id means
//! two things, and nothing waits. Knows how a history went; changes nothing in it.

use super::{Collector, Taken, World, folder, hooks};
use crate::alert::config;
use crate::alert::message::{Content, Message, REPLACED, What};
use crate::alert::outbox::Outbox;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailwater_model::incident::State;

/// What a receiver makes of all that it has taken, in its order.
struct Reader<'a> {
    world: &'a World,
    hook: usize,
    /// By id, the last that was taken of each message.
    messages: BTreeMap<&'a str, &'a Taken>,
    /// Incidents that a summary names.
    named: BTreeSet<&'a str>,
    /// Incidents that another one replaced.
    replaced: BTreeSet<&'a str>,
    /// Incidents that summaries count and do not name.
    unnamed: u64,
    /// By life and incident, the version that ended it.
    ended: BTreeMap<(u32, &'a str), u64>,
    /// Incidents whose end has not come, to a receiver that takes for new whatever comes again.
    open: BTreeSet<&'a str>,
    /// The same, to one that drops what has an id that it has seen.
    open_by_id: BTreeSet<&'a str>,
    /// The same, to one that shows a thread as one alert.
    threads: BTreeMap<&'a str, Shown<'a>>,
}

/// A thread as a receiver has it that shows it as one alert.
#[derive(Default)]
struct Shown<'a> {
    /// What belongs to it.
    of_it: BTreeSet<&'a str>,
    /// Whether the alert is open.
    is_shown: bool,
    /// What is open of it, each with the life in which that was told last.
    open: BTreeMap<&'a str, u32>,
}

/// What a receiver that takes this message holds to be open then.
fn shown<'a>(message: &'a Message, open: &mut BTreeSet<&'a str>) {
    if let Content::Incident { replaces, .. } = &message.content {
        for replaced in replaces {
            open.remove(replaced.as_str());
        }
    }
    match message.what {
        What::Opened | What::Updated | What::Reminded => {
            open.insert(&message.incident);
        }
        What::Closed => {
            open.remove(message.incident.as_str());
        }
        What::Summary => {}
    }
}

impl World {
    /// Panics, with the story of what is wrong, where something is.
    pub(super) fn hold(&mut self) {
        assert!(self.tries.is_empty(), "{}something is still under way", self.again());
        for (hook, taken) in self.taken.iter().enumerate() {
            let mut reader = Reader {
                world: self,
                hook,
                messages: BTreeMap::new(),
                named: BTreeSet::new(),
                replaced: BTreeSet::new(),
                unnamed: 0,
                ended: BTreeMap::new(),
                open: BTreeSet::new(),
                open_by_id: BTreeSet::new(),
                threads: BTreeMap::new(),
            };
            taken.iter().for_each(|taken| reader.takes(taken));
            reader.has_read_all();
            if hooks()[hook].1.needs_opening {
                reader.has_resolved_all();
            }
        }
        // A start after all that has nothing left to do.
        self.collector.outbox.turn();
        let left = folder();
        self.collector.outbox.killed(left.path(), None).unwrap();
        let opened = Outbox::prepare(left.path(), config::Outbox::default(), Arc::default(), &[]);
        let waiting: Vec<_> =
            opened.restored.iter().filter(|r| r.waiting).map(|r| (&r.hook, &r.message.id)).collect();
        assert!(waiting.is_empty(), "{}{waiting:?} wait for ever", self.again());
    }

    fn again(&self) -> String {
        format!("seed {0}: TAILWATER_SIM_SEED={0} repeats it\n", self.seed)
    }
}

impl<'a> Reader<'a> {
    fn takes(&mut self, taken: &'a Taken) {
        let message = taken.message.as_ref();
        match self.messages.insert(&message.id, taken) {
            Some(before) => self.came_twice(before, taken),
            None => {
                self.came(taken);
                shown(message, &mut self.open_by_id);
            }
        }
        shown(message, &mut self.open);
        if message.what != What::Summary {
            self.shows(taken);
        }
        if let Content::Incident { replaces, .. } = &message.content {
            self.replaced.extend(replaces.iter().map(String::as_str));
        }
    }

    /// What a receiver makes of a message that shows a thread as one alert.
    fn shows(&mut self, taken: &'a Taken) {
        let message = taken.message.as_ref();
        let thread = self.threads.entry(&message.thread.id).or_default();
        thread.of_it.insert(&message.incident);
        thread.open.retain(|id, _| !message.ends(id));
        match message.what {
            // That of one of several, which leaves the alert as it is.
            What::Closed if message.thread.others_open > 0 => return,
            What::Closed => thread.is_shown = false,
            _ => {
                thread.is_shown = true;
                thread.open.insert(&message.incident, taken.life);
                return;
            }
        }
        if !hooks()[self.hook].1.needs_opening {
            return;
        }
        // What was told before a kill may be known to no disk.
        let open = self.threads[message.thread.id.as_str()].open.iter();
        let early = open.filter(|(_, life)| **life == taken.life).find(|(id, _)| !self.is_pardoned(id));
        if let Some((id, _)) = early {
            panic!("{} resolves a thread of which {id} is open{}", message.id, self.story(id));
        }
    }

    fn came_twice(&self, before: &Taken, taken: &Taken) {
        let (message, id) = (taken.message.as_ref(), taken.message.incident.as_str());
        // That it was taken may not have been written when the collector was killed.
        let unanswered = self.world.unanswered.contains(&(self.hook, message.id.clone()));
        assert!(unanswered || before.life != taken.life, "{} came twice{}", message.id, self.story(id));
        let (said, says) = ((before.message.what, &before.message.content), (message.what, &message.content));
        assert_eq!(said, says, "one id, one message{}", self.story(id));
    }

    fn came(&mut self, taken: &'a Taken) {
        let (message, id) = (taken.message.as_ref(), taken.message.incident.as_str());
        match &message.content {
            Content::Summary { held, incidents } => {
                self.unnamed += held - incidents.len() as u64;
                self.named.extend(incidents.iter().map(|line| line.id.as_str()));
            }
            // What another one replaced may still become an incident of its own.
            Content::Incident { .. } if message.id.ends_with(REPLACED) => {}
            Content::Incident { incident, .. } => {
                // After a kill what was under way may be told again, and ended again.
                let before = match message.what {
                    What::Closed => self.ended.insert((taken.life, id), incident.version),
                    _ => self.ended.get(&(taken.life, id)).copied(),
                };
                let newer = before.is_none_or(|ended| ended < incident.version);
                assert!(newer, "told after its end{}", self.story(id));
            }
        }
    }

    fn has_read_all(&self) {
        let mut told: BTreeSet<&str> = self.messages.values().map(|t| t.message.incident.as_str()).collect();
        told.extend(&self.named);
        told.extend(&self.replaced);
        for said in &self.world.said {
            let id = said.incident.id.as_str();
            let counted = self.unnamed > 0 || self.world.refused_unnamed.contains(&self.hook);
            let known = told.contains(id) || counted || self.is_pardoned(id);
            assert!(known, "never told{}", self.story(id));
        }
        for (open, whom) in [(&self.open, "to anybody"), (&self.open_by_id, "under an id of its own")] {
            for id in open {
                let known = self.replaced.contains(id) || self.is_pardoned(id);
                assert!(known, "its end was never told {whom}{}", self.story(id));
            }
        }
    }

    /// A receiver that keeps alerts shows a thread until an end comes that counts no other of it as open.
    fn has_resolved_all(&self) {
        for (thread, Shown { of_it, is_shown, .. }) in &self.threads {
            let refused = self.world.refused_ends.contains(&(self.hook, (*thread).to_owned()));
            // A thread is called after its first incident, of which nothing may have been taken.
            let known = !is_shown || refused || of_it.iter().chain([thread]).any(|id| self.is_pardoned(id));
            let id = of_it.first().copied().unwrap_or_default();
            assert!(known, "thread {thread} is shown for ever{}", self.story(id));
        }
    }

    /// Whether the receiver has this incident in this thread.
    fn is_in(&self, thread: &str, id: &str) -> bool {
        self.threads.get(thread).is_some_and(|thread| thread.of_it.contains(id))
    }

    /// Whether nobody could have known better.
    fn is_pardoned(&self, id: &str) -> bool {
        let of = (self.hook, id.to_owned());
        self.world.forgotten.contains(&of) || self.world.refused.contains(&of)
    }

    /// What alerting was told of an incident, and what the receiver took.
    fn story(&self, id: &str) -> String {
        let mut story = format!("\n{}said of {id}:\n", self.world.again());
        for said in &self.world.said {
            let (incident, replaces, life) = (&said.incident, &said.replaces, said.life);
            if incident.id == id || replaces.iter().any(|replaced| replaced == id) {
                let state = if incident.state == State::Open { "open" } else { "closed" };
                let what = format!("{} {} {state}, replaces {replaces:?}", incident.id, incident.version);
                story += &format!("  life {life}: {what}\n");
            }
        }
        let Collector { running, .. } = &self.world.collector;
        story += &format!("{} took:\n", running[self.hook].name);
        for Taken { message, life } in &self.world.taken[self.hook] {
            let of_thread = message.thread.id == id || self.is_in(&message.thread.id, id);
            if message.incident == id || of_thread || message.what == What::Summary {
                let others = message.thread.others_open;
                story +=
                    &format!("  life {life}: {} {}, {others} others open\n", message.what.name(), message.id);
            }
        }
        story
    }
}

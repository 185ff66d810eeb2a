//! What must be true at the end of a history: each incident was told, what was told to have begun was told to have ended, nothing came twice
//! without a reason or after its end, no id means two things, and nothing waits. Knows how a history went; changes nothing in it.

use super::{Collector, Taken, World, folder, hooks, key};
use crate::alert::config;
use crate::alert::message::{Content, What};
use crate::alert::outbox::Outbox;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailwater_model::incident::State;

/// What a receiver makes of all that it has taken, in its order.
struct Reader<'a> {
    world: &'a World,
    hook: usize,
    /// The last that was taken of each message.
    messages: BTreeMap<String, &'a Taken>,
    /// Incidents that a summary names, or that another one replaced.
    named: BTreeSet<&'a str>,
    /// Incidents that summaries count and do not name.
    unnamed: u64,
    /// By life and incident, the version that ended it.
    ended: BTreeMap<(u32, &'a str), u64>,
    /// Incidents whose end has not come, with the life in which they were told last.
    open: BTreeMap<&'a str, u32>,
}

impl World {
    /// Panics, with the story of what is wrong, where something is.
    pub(super) fn hold(&mut self) {
        assert!(self.tries.is_empty(), "{}something is still under way", self.again());
        for (hook, taken) in self.taken.iter().enumerate() {
            let (messages, named, unnamed) = (BTreeMap::new(), BTreeSet::new(), 0);
            let (ended, open) = (BTreeMap::new(), BTreeMap::new());
            let mut reader = Reader { world: self, hook, messages, named, unnamed, ended, open };
            taken.iter().for_each(|taken| reader.takes(taken));
            reader.has_read_all();
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

    /// What is found again after a kill is counted anew where the store had not written what was told: its ids may mean another thing, and
    /// it may begin after what ended it.
    fn was_found_again(&self, id: &str) -> bool {
        let mut lives = self.said.iter().filter(|said| said.incident.id == id).map(|said| said.life);
        let first = lives.next();
        lives.any(|life| Some(life) != first)
    }
}

impl<'a> Reader<'a> {
    fn takes(&mut self, taken: &'a Taken) {
        let (message, id) = (taken.message.as_ref(), taken.message.incident.as_str());
        match self.messages.insert(key(message), taken) {
            Some(before) => self.came_twice(before, taken),
            None => self.came(taken),
        }
        if let Content::Incident { replaces, .. } = &message.content {
            for replaced in replaces {
                self.open.remove(replaced.as_str());
                self.named.insert(replaced);
            }
        }
        // A receiver that knows no ids takes for new whatever comes again.
        match message.what {
            What::Closed => {
                self.open.remove(id);
            }
            What::Summary => {}
            What::Opened | What::Updated | What::Reminded => {
                self.open.insert(id, taken.life);
            }
        }
    }

    fn came_twice(&self, before: &Taken, taken: &Taken) {
        let (message, id) = (taken.message.as_ref(), taken.message.incident.as_str());
        if self.world.was_found_again(id) {
            return;
        }
        // That it was taken may not have been written when the collector was killed.
        let unanswered = self.world.unanswered.contains(&(self.hook, key(message)));
        assert!(unanswered || before.life != taken.life, "{} came twice{}", message.id, self.story(id));
        assert_eq!(before.message.content, message.content, "one id, one message{}", self.story(id));
    }

    fn came(&mut self, taken: &'a Taken) {
        let (message, id) = (taken.message.as_ref(), taken.message.incident.as_str());
        match &message.content {
            Content::Summary { held, incidents } => {
                self.unnamed += held - incidents.len() as u64;
                self.named.extend(incidents.iter().map(|line| line.id.as_str()));
            }
            // What another one replaced may still become an incident of its own.
            Content::Incident { .. } if message.id.ends_with(".replaced") => {}
            Content::Incident { incident, .. } => {
                // After a kill what was under way may be told again, and ended again.
                let before = match message.what {
                    What::Closed => self.ended.insert((taken.life, id), incident.version),
                    _ => self.ended.get(&(taken.life, id)).copied(),
                };
                let newer = before.is_none_or(|ended| ended < incident.version);
                assert!(newer || self.world.was_found_again(id), "told after its end{}", self.story(id));
            }
        }
    }

    fn has_read_all(&self) {
        let mut told: BTreeSet<&str> = self.messages.values().map(|t| t.message.incident.as_str()).collect();
        told.extend(&self.named);
        for said in &self.world.said {
            let id = said.incident.id.as_str();
            let known = told.contains(id) || self.unnamed > 0 || self.is_pardoned(id);
            assert!(known, "never told{}", self.story(id));
        }
        for (id, life) in &self.open {
            // What was told and not yet marked as sent may go into a summary after a kill, which says no end.
            let summed_up = hooks()[self.hook].0.rate() > 0 && *life < self.world.life;
            let known = self.named.contains(id) || summed_up || self.is_pardoned(id);
            assert!(known, "its end was never told{}", self.story(id));
        }
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
            if message.incident == id || message.what == What::Summary {
                story += &format!("  life {life}: {} {}\n", message.what.name(), message.id);
            }
        }
        story
    }
}

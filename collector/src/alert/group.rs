//! Threads: incidents of one root or one dropping tier within a while belong together, so that receivers show them as one. Pure.

use super::message::{Message, Thread, What};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tailwater_model::Incident;
use tailwater_model::incident::Resource;

/// Threads remembered; the oldest that its receiver was told of no open incident of goes first.
const THREADS_MAX: usize = 1024;
/// Places remembered of one thread.
const PLACES_MAX: usize = 64;

#[derive(Debug, Clone)]
struct Record {
    id: String,
    labels: BTreeMap<String, String>,
    places: BTreeSet<String>,
    /// Incidents of it whose beginning its receiver took, or may have taken, and whose end it did not: what it is shown, not what is known.
    open: BTreeSet<String>,
    number: u64,
    last_unix_ns: u64,
}

/// The threads of one hook.
#[derive(Debug)]
pub struct Threads {
    window_ns: u64,
    records: VecDeque<Record>,
}

/// Names that stay with a thread, whatever becomes known later: where its first incident dropped, or else its root.
#[must_use]
pub fn labels(i: &Incident) -> BTreeMap<String, String> {
    let place = i.drops.first().map_or_else(
        || [i.root.host.clone(), i.root.workload.clone(), i.root.tier.clone(), String::new()],
        |d| [d.host.clone(), d.workload.clone(), d.tier.clone(), d.listener.clone()],
    );
    let severity = i.severity.name().to_owned();
    let names = ["host", "workload", "tier", "listener"].into_iter().zip(place);
    let mut labels: BTreeMap<_, _> =
        names.filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k.to_owned(), v)).collect();
    labels.insert("severity".into(), severity);
    labels
}

fn places(i: &Incident) -> BTreeSet<String> {
    let mut out: BTreeSet<String> =
        i.drops.iter().map(|d| format!("tier\n{}\n{}", d.host, d.workload)).collect();
    if i.root.resource != Resource::Unexplained {
        out.insert(format!("root\n{}\n{}\n{}", i.root.host, i.root.workload, i.root.resource.name()));
    }
    out
}

impl Threads {
    /// Incidents within `window_s` join; 0: none do.
    #[must_use]
    pub fn new(window_s: u64) -> Self {
        Self { window_ns: window_s.saturating_mul(1_000_000_000), records: VecDeque::new() }
    }

    /// The thread of an incident that is told for the first time, or that replaces an alert of thread `joins`.
    pub fn join(&mut self, i: &Incident, joins: Option<&str>, now_unix_ns: u64) -> Thread {
        let places = places(i);
        let near = |r: &Record| {
            self.window_ns > 0
                && now_unix_ns.saturating_sub(r.last_unix_ns) <= self.window_ns
                && !r.places.is_disjoint(&places)
        };
        let found = self.records.iter().rposition(|r| joins == Some(&r.id) || (joins.is_none() && near(r)));
        let index = found.unwrap_or_else(|| {
            self.make_room();
            self.records.push_back(Record {
                id: i.id.clone(),
                labels: labels(i),
                places: BTreeSet::new(),
                open: BTreeSet::new(),
                number: 0,
                last_unix_ns: now_unix_ns,
            });
            self.records.len() - 1
        });
        self.records[index].number += 1;
        let id = self.records[index].id.clone();
        self.told(&id, i, now_unix_ns)
    }

    /// Something is told of an incident that belongs to thread `id`. How many others are open is counted when it goes out.
    pub fn told(&mut self, id: &str, i: &Incident, now_unix_ns: u64) -> Thread {
        let Some(record) = self.records.iter_mut().find(|r| r.id == id) else {
            // Forgotten long since: it goes on by itself.
            return Thread { id: id.to_owned(), number: 1, others_open: 0, labels: labels(i) };
        };
        record.last_unix_ns = now_unix_ns;
        let room = PLACES_MAX.saturating_sub(record.places.len());
        record.places.extend(places(i).into_iter().take(room));
        Thread { id: id.to_owned(), number: record.number, others_open: 0, labels: record.labels.clone() }
    }

    /// The receiver took this message, or may have, or will not be told again what ends by it.
    pub fn took(&mut self, message: &Message) {
        let begins = !matches!(message.what, What::Closed | What::Summary);
        if let Some(record) = self.records.iter_mut().find(|r| r.id == message.thread.id) {
            record.open.retain(|o| !message.ends(o));
        }
        if begins {
            self.shows(&message.thread.id, &message.incident);
        }
    }

    /// The receiver holds this incident of thread `id` to be open.
    pub fn shows(&mut self, id: &str, incident: &str) {
        if let Some(record) = self.records.iter_mut().find(|r| r.id == id) {
            record.open.insert(incident.to_owned());
        }
    }

    /// Whether the receiver holds this incident of thread `id` to be open.
    #[must_use]
    pub fn is_shown(&self, id: &str, incident: &str) -> bool {
        self.records.iter().any(|r| r.id == id && r.open.contains(incident))
    }

    /// How many others of its thread the receiver of this message, which goes out now, will hold to be open. `will_end`: whether it will be
    /// told the end of one; of another nothing more comes in this thread, so that nobody may wait for it.
    pub fn others_open(&mut self, message: &Message, will_end: impl Fn(&str) -> bool) -> u64 {
        let record = self.records.iter_mut().find(|r| r.id == message.thread.id);
        record.map_or(0, |record| {
            record.open.retain(|o| will_end(o));
            let others = record.open.iter().filter(|o| **o != message.incident && !message.ends(o)).count();
            u64::try_from(others).unwrap_or(u64::MAX)
        })
    }

    /// A thread that the outbox remembers, with one incident of it. `shown`: its receiver may hold it to be open.
    pub fn restore(&mut self, thread: &Thread, i: &Incident, shown: bool, unix_ns: u64) {
        if !self.records.iter().any(|r| r.id == thread.id) {
            self.make_room();
            self.records.push_back(Record {
                id: thread.id.clone(),
                labels: thread.labels.clone(),
                places: BTreeSet::new(),
                open: BTreeSet::new(),
                number: 0,
                last_unix_ns: unix_ns,
            });
        }
        if let Some(record) = self.records.iter_mut().find(|r| r.id == thread.id) {
            record.number = record.number.max(thread.number);
        }
        self.told(&thread.id, i, unix_ns);
        if shown {
            self.shows(&thread.id, &i.id);
        }
    }

    fn make_room(&mut self) {
        if self.records.len() >= THREADS_MAX {
            let idle = self.records.iter().position(|r| r.open.is_empty()).unwrap_or(0);
            self.records.remove(idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Content;
    use super::super::message::tests::message;
    use super::*;
    use crate::fixture::incident;

    const S: u64 = 1_000_000_000;

    #[test]
    fn one_root_within_the_window_is_one_thread_and_another_is_not() {
        let mut threads = Threads::new(60);
        assert_eq!(threads.join(&incident("01A", 1), None, S).id, "01A");
        let second = threads.join(&incident("01B", 1), None, 50 * S);
        assert_eq!((second.id.as_str(), second.number), ("01A", 2));
        threads.told("01A", &incident("01B", 2), 56 * S);
        assert_eq!(
            threads.join(&incident("01C", 1), None, 117 * S).id,
            "01C",
            "a minute later it is another"
        );
        let mut elsewhere = incident("01D", 1);
        elsewhere.root.host = "db-1".into();
        assert_eq!(threads.join(&elsewhere, None, 118 * S).id, "01C", "it drops at the same tier");
        elsewhere.drops[0].host = "web-2".into();
        elsewhere.root.host = "db-2".into();
        assert_eq!(threads.join(&elsewhere, None, 118 * S).id, "01D");
        assert_eq!(Threads::new(0).join(&incident("01B", 1), None, S).id, "01B");
    }

    #[test]
    fn an_unknown_root_joins_nobody_and_a_replacing_incident_takes_the_alerts_thread() {
        let mut threads = Threads::new(60);
        let mut alert = incident("01B", 0);
        alert.root.resource = Resource::Unexplained;
        assert_eq!(threads.join(&alert, None, S).id, "01B");
        let mut other = alert.clone();
        other.id = "01C".into();
        other.drops[0].host = "web-2".into();
        assert_eq!(threads.join(&other, None, S).id, "01C");
        assert_eq!(threads.join(&incident("01A", 1), Some("01B"), S).id, "01B");
    }

    /// What its receiver was told is open until it was told that it is not; what it was not told never is, and what it will not be told the
    /// end of no longer.
    #[test]
    fn of_a_thread_is_open_what_its_receiver_took_the_beginning_of_and_will_take_the_end_of() {
        let mut threads = Threads::new(60);
        let of_thread = |id: &str, what| {
            let mut message = message(id, 1, what);
            message.thread.id = "01A".into();
            message
        };
        for id in ["01A", "01B", "01C"] {
            threads.join(&incident(id, 1), None, S);
        }
        let end = of_thread("01A", What::Closed);
        assert_eq!(threads.others_open(&end, |_| true), 0, "nothing went out");
        threads.took(&of_thread("01A", What::Opened));
        threads.took(&of_thread("01B", What::Opened));
        assert_eq!(threads.others_open(&end, |_| true), 1, "nobody took the beginning of 01C");
        threads.took(&of_thread("01B", What::Closed));
        assert_eq!(threads.others_open(&end, |_| true), 0);
        threads.took(&of_thread("01B", What::Opened));
        let mut becomes = of_thread("01C", What::Updated);
        if let Content::Incident { replaces, .. } = &mut becomes.content {
            replaces.push("01B".into());
        }
        assert_eq!(threads.others_open(&becomes, |_| true), 1, "01B ends by this message itself");
        threads.took(&becomes);
        assert!(!threads.is_shown("01A", "01B") && threads.is_shown("01A", "01C"));
        assert_eq!(threads.others_open(&end, |id| id != "01C"), 0, "01B became 01C, whose end will not come");
        assert_eq!(threads.others_open(&end, |_| true), 0, "nor is it waited for later");
    }

    #[test]
    fn threads_are_bounded() {
        let mut threads = Threads::new(0);
        for n in 0..2000 {
            threads.join(&incident(&format!("{n:026}"), 1), None, S);
        }
        assert_eq!(threads.records.len(), THREADS_MAX);
    }
}

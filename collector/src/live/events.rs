//! New versions of incidents in the order in which they were shown, for those who listen. The last of them are kept, each under a number, so that
//! whoever was away or too slow goes on where it was, or is told exactly what is gone. Owns the numbers and how many are kept; knows no HTTP.

use crate::lock::lock;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use tailwater_model::Incident;
use tokio::sync::{broadcast, watch};

/// Events that are kept: some megabytes at the most, and what many incidents say in some minutes.
pub const KEPT_MAX: usize = 512;
/// Events that may wait for a listener before it is too slow: of what is kept so much is left that it has time to come again.
pub const BEHIND_MAX: u64 = KEPT_MAX as u64 / 2;

/// A place behind an event: the collector's run, and the event's number in it. Listeners get it as text and give it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Numbers begin anew with each run of the collector; this tells them apart.
    run: u64,
    /// Events of this run up to there; 0: before the first.
    number: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.run, self.number)
    }
}

impl Cursor {
    /// As it was told; `None`: no cursor of any collector.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (run, number) = text.split_once('-')?;
        Some(Self { run: u64::from_str_radix(run, 16).ok()?, number: number.parse().ok()? })
    }
}

/// An event.
#[derive(Debug)]
pub struct Event {
    incident: Arc<Incident>,
    /// Written by the first listener that tells it, not by whoever shows it: that is the analysis, on its way to an alert.
    json: OnceLock<Option<Arc<str>>>,
}

impl Event {
    /// The incident as JSON; `None`: it cannot be written as such.
    pub fn json(&self) -> Option<Arc<str>> {
        self.json.get_or_init(|| serde_json::to_string(self.incident.as_ref()).ok().map(Arc::from)).clone()
    }
}

/// What a listener that comes again can no longer have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// These events of this run, both ends included.
    Events {
        /// The first one.
        first: Cursor,
        /// The last one.
        last: Cursor,
        /// How many that are.
        count: u64,
    },
    /// Its cursor is not of this run of the collector: what came between is not known.
    Unknown,
}

/// What a listener is told next.
#[derive(Debug)]
pub struct Next {
    /// Where it is before `events`: its cursor, or behind what is gone.
    pub at: Cursor,
    /// What of the events behind its cursor is no longer kept.
    pub gone: Option<Gone>,
    /// The events, each with its own cursor.
    pub events: Vec<(Cursor, Arc<Event>)>,
}

#[derive(Debug, Default)]
struct Log {
    /// Events so far: the number of the newest.
    newest: u64,
    kept: VecDeque<Arc<Event>>,
}

impl Log {
    /// The number before that of the oldest event that is kept.
    fn before_oldest(&self) -> u64 {
        self.newest - self.kept.len() as u64
    }
}

#[derive(Debug)]
struct Shared {
    run: u64,
    log: Mutex<Log>,
    /// The newest number, for those who wait for the next.
    newest: watch::Sender<u64>,
    /// For parts of this program, which take each version as it comes.
    inside: broadcast::Sender<Arc<Incident>>,
}

/// See above; clones are of the same events.
#[derive(Debug, Clone)]
pub struct Events(Arc<Shared>);

impl Default for Events {
    fn default() -> Self {
        Self(Arc::new(Shared {
            run: fastrand::u64(..),
            log: Mutex::default(),
            newest: watch::Sender::new(0),
            inside: broadcast::Sender::new(KEPT_MAX / 2),
        }))
    }
}

impl Events {
    /// A version is shown. Never waits for a listener.
    pub fn tell(&self, incident: &Arc<Incident>) {
        let newest = {
            let mut log = lock(&self.0.log);
            if log.kept.len() >= KEPT_MAX {
                log.kept.pop_front();
            }
            log.kept
                .push_back(Arc::new(Event { incident: Arc::new(incident.brief()), json: OnceLock::new() }));
            log.newest += 1;
            log.newest
        };
        self.0.newest.send_modify(|known| *known = newest.max(*known));
        // That nobody listens is no error.
        let _ = self.0.inside.send(Arc::clone(incident));
    }

    /// Versions from now on, for parts of this program.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Incident>> {
        self.0.inside.subscribe()
    }

    /// Changes with each event.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }

    /// Behind the newest event.
    #[must_use]
    pub fn end(&self) -> Cursor {
        Cursor { run: self.0.run, number: lock(&self.0.log).newest }
    }

    /// Where a listener goes on that was told everything up to `after`, and what of the events since is gone. `None` is a cursor that is none.
    #[must_use]
    pub fn resume(&self, after: Option<Cursor>) -> (Cursor, Option<Gone>) {
        self.place(&lock(&self.0.log), after)
    }

    fn place(&self, log: &Log, after: Option<Cursor>) -> (Cursor, Option<Gone>) {
        let oldest = log.before_oldest();
        let of = |number| Cursor { run: self.0.run, number };
        match after.filter(|after| after.run == self.0.run && after.number <= log.newest) {
            Some(after) if after.number >= oldest => (after, None),
            Some(after) => {
                let (first, last) = (of(after.number + 1), of(oldest));
                let count = oldest - after.number;
                (of(oldest), Some(Gone::Events { first, last, count }))
            }
            None => (of(oldest), Some(Gone::Unknown)),
        }
    }

    /// What comes behind a cursor: the next `most` events, fewer where there are no more. What is gone of them and what there is are of one look:
    /// an event that goes after a listener's place was found is not left out unsaid.
    #[must_use]
    pub fn after(&self, cursor: Cursor, most: usize) -> Next {
        let log = lock(&self.0.log);
        let (at, gone) = self.place(&log, Some(cursor));
        let oldest = log.before_oldest();
        let from = usize::try_from(at.number - oldest).unwrap_or(usize::MAX);
        let numbered = log.kept.iter().enumerate().skip(from).take(most);
        let of = |n: usize| Cursor { run: self.0.run, number: oldest + n as u64 + 1 };
        let events = numbered.map(|(n, event)| (of(n), Arc::clone(event))).collect();
        Next { at, gone, events }
    }

    /// Events behind a cursor.
    #[must_use]
    pub fn behind(&self, cursor: Cursor) -> u64 {
        lock(&self.0.log).newest.saturating_sub(cursor.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn told(events: &Events, count: u64) {
        (0..count).for_each(|n| events.tell(&Arc::new(fixture::incident("01", n))));
    }

    fn versions(of: &[(Cursor, Arc<Event>)]) -> Vec<u64> {
        of.iter().map(|(_, event)| event.incident.version).collect()
    }

    #[test]
    fn who_comes_again_gets_what_it_missed_in_order_and_nothing_twice() {
        let events = Events::default();
        told(&events, 3);
        let here = events.end();
        assert!(events.after(here, 10).events.is_empty());
        events.tell(&Arc::new(fixture::incident("01", 10)));
        events.tell(&Arc::new(fixture::incident("01", 11)));
        let again = Cursor::parse(&here.to_string());
        assert_eq!(events.resume(again), (here, None));
        let missed = events.after(here, 10).events;
        assert_eq!(versions(&missed), [10, 11]);
        assert_eq!(events.behind(here), 2);
        // Piece by piece.
        let first = events.after(here, 1).events;
        let second = events.after(first[0].0, 1).events;
        assert_eq!((versions(&first), versions(&second)), (vec![10], vec![11]));
        assert_eq!(missed[1].0, events.end());
    }

    #[test]
    fn what_is_gone_is_told_exactly_and_a_cursor_of_another_run_is_told_as_unknown() {
        let events = Events::default();
        told(&events, 4);
        let here = events.end();
        told(&events, KEPT_MAX as u64);
        assert_eq!(events.resume(Some(here)), (here, None), "all of them are kept");
        told(&events, 7);
        let (from, gone) = events.resume(Some(here));
        let of = |number| Cursor { number, ..here };
        assert_eq!(gone, Some(Gone::Events { first: of(5), last: of(11), count: 7 }));
        assert_eq!(from, of(11));
        let rest = events.after(from, usize::MAX).events;
        assert_eq!((rest.len(), rest[0].0), (KEPT_MAX, of(12)));

        let other = Events::default();
        told(&other, 2);
        for after in [Some(here), None, Some(Cursor { number: 3, ..other.end() })] {
            let (from, gone) = other.resume(after);
            assert_eq!((gone, other.after(from, 10).events.len()), (Some(Gone::Unknown), 2), "{after:?}");
        }
    }

    #[test]
    fn an_event_that_goes_after_a_listener_has_found_its_place_is_told_as_gone() {
        let events = Events::default();
        let here = events.end();
        told(&events, KEPT_MAX as u64);
        assert_eq!(events.resume(Some(here)), (here, None), "all of them are kept");
        told(&events, 1);
        let next = events.after(here, 2);
        let of = |number| Cursor { number, ..here };
        assert_eq!(next.gone, Some(Gone::Events { first: of(1), last: of(1), count: 1 }));
        assert_eq!((next.at, next.events[0].0, next.events.len()), (of(1), of(2), 2));
        let next = events.after(next.events[1].0, 1);
        assert_eq!((next.at, next.gone, next.events[0].0), (of(3), None, of(4)));
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is_one() {
        let cursor = Cursor { run: 0xab, number: 7 };
        assert_eq!(cursor.to_string(), "00000000000000ab-7");
        assert_eq!(Cursor::parse("00000000000000ab-7"), Some(cursor));
        for wrong in
            ["", "-", "7", "ab-", "-7", "xy-1", "ab-1-2", "ab-99999999999999999999", "fffffffffffffffff-1"]
        {
            assert_eq!(Cursor::parse(wrong), None, "{wrong}");
        }
    }
}

//! Who was reached: connections of which agents told both ends, by the number that both have. It is what an address says where nothing translates
//! it, and all that there is behind a virtual address, a published port or a redirection. Owns for how long one end waits for the other, and which ends an
//! edge has; knows no address.

use crate::frame::align::Frame;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use tailwater_model::window::{ConnectionEnd, EntityId, Host, Meeting};

/// An end waits so long for the other one, windows (10 s). Both are told within a second of the same round, and windows of two hosts are as far apart as
/// their clocks.
const WAITS_WINDOWS: u64 = 200;
/// Ends that wait, of all hosts; beyond, the oldest are forgotten. Agents tell each of them again.
const WAITING_MAX: usize = 1 << 17;
/// Listeners behind one edge.
const ENDS_MAX: usize = 64;
/// A listener that was not met any more while its edge was met so often elsewhere, for two minutes at least, is behind it no longer.
const STALE_MEETINGS: u64 = 64;
const STALE_WINDOWS: u64 = 2400;

/// What was told of connections' ends.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    /// By pair: the ends whose other end nobody told of yet, and since which window.
    waiting: HashMap<u64, (u64, Host, ConnectionEnd)>,
    /// The same by age.
    order: VecDeque<(u64, u64)>,
    /// By caller and its edge.
    reached: BTreeMap<Host, BTreeMap<EntityId, Reached>>,
    /// Hosts that reached others, by those; also where they do no longer.
    callers: BTreeMap<Host, BTreeSet<Host>>,
}

/// What connections of one edge reached.
#[derive(Debug, Default)]
struct Reached {
    /// How often both ends of one were told.
    met: u64,
    ends: Vec<End>,
}

/// A listener that was reached.
#[derive(Debug)]
struct End {
    host: Host,
    listener: EntityId,
    /// [`Reached::met`] when that was last, and the window.
    met: u64,
    at: u64,
}

impl Meetings {
    /// Takes what came with the windows of a frame; the hosts one of whose edges reaches others than before.
    pub(super) fn take(&mut self, frame: &Frame) -> BTreeSet<Host> {
        let now = frame.index.0;
        while self.order.front().is_some_and(|(at, _)| at.saturating_add(WAITS_WINDOWS) < now) {
            self.forget_oldest();
        }
        let mut changed = BTreeSet::new();
        for (host, window) in &frame.hosts {
            changed.extend(window.meetings.iter().filter_map(|meeting| self.met(host, *meeting, now)));
        }
        changed
    }

    /// The listeners that these edges of a host reach, with their hosts.
    pub(super) fn ends(&self, host: &str, edges: &[EntityId]) -> impl Iterator<Item = (&Host, EntityId)> {
        let of_host = self.reached.get(host);
        let reached = edges.iter().filter_map(move |edge| of_host?.get(edge));
        reached.flat_map(|reached| &reached.ends).map(|end| (&end.host, end.listener))
    }

    /// The hosts that reach this one, or did.
    pub(super) fn callers(&self, host: &str) -> impl Iterator<Item = &Host> {
        self.callers.get(host).into_iter().flatten()
    }

    /// Forgets what is no edge of this host any more.
    pub(super) fn keep(&mut self, host: &str, is_edge: impl Fn(EntityId) -> bool) {
        if let Some(of) = self.reached.get_mut(host) {
            of.retain(|edge, _| is_edge(*edge));
        }
    }

    /// A host is gone.
    pub(super) fn forget(&mut self, host: &str) {
        self.reached.remove(host);
        for reached in self.reached.values_mut().flat_map(BTreeMap::values_mut) {
            reached.ends.retain(|end| end.host != host);
        }
        self.waiting.retain(|_, (_, of, _)| of != host);
        self.callers.remove(host);
        self.callers.values_mut().for_each(|of| _ = of.remove(host));
    }

    /// One end was told; the caller's host, if that makes known what was not.
    fn met(&mut self, host: &str, meeting: Meeting, now: u64) -> Option<Host> {
        use ConnectionEnd::{Accepted, Connected};
        let (_, other, end) = match self.waiting.entry(meeting.pair) {
            Entry::Vacant(vacant) => {
                vacant.insert((now, host.to_owned(), meeting.end));
                self.wait(now, meeting.pair);
                return None;
            }
            Entry::Occupied(waiting) => match (waiting.get().2, meeting.end) {
                (Accepted(_), Connected(_)) | (Connected(_), Accepted(_)) => waiting.remove(),
                // Its own end again, told by another agent of that machine, or the next time.
                _ => {
                    waiting.into_mut().0 = now;
                    self.wait(now, meeting.pair);
                    return None;
                }
            },
        };
        let (caller, edge, server, listener) = match (meeting.end, end) {
            (Connected(edge), Accepted(listener)) => (host.to_owned(), edge, other, listener),
            (Accepted(listener), Connected(edge)) => (other, edge, host.to_owned(), listener),
            _ => return None,
        };
        let reached = self.reached.entry(caller.clone()).or_default().entry(edge).or_default();
        if !reached.reaches(&server, listener, now) {
            return None;
        }
        self.callers.entry(server).or_default().insert(caller.clone());
        Some(caller)
    }

    fn wait(&mut self, now: u64, pair: u64) {
        self.order.push_back((now, pair));
        while self.order.len() > WAITING_MAX {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((at, pair)) = self.order.pop_front() else { return };
        // It may have met its other end, and have been told again since.
        if self.waiting.get(&pair).is_some_and(|(since, _, _)| *since == at) {
            self.waiting.remove(&pair);
        }
    }
}

impl Reached {
    /// A connection reached a listener; whether others are reached than before.
    fn reaches(&mut self, host: &Host, listener: EntityId, at: u64) -> bool {
        self.met = self.met.saturating_add(1);
        let (met, has_room) = (self.met, self.ends.len() < ENDS_MAX);
        let known = self.ends.iter_mut().find(|end| end.host == *host && end.listener == listener);
        let is_new = known.is_none() && has_room;
        match known {
            Some(end) => (end.met, end.at) = (met, at),
            None if is_new => self.ends.push(End { host: host.clone(), listener, met, at }),
            None => {}
        }
        let before = self.ends.len();
        self.ends.retain(|end| {
            met.saturating_sub(end.met) < STALE_MEETINGS || at.saturating_sub(end.at) < STALE_WINDOWS
        });
        is_new || self.ends.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_model::window::WindowIndex;

    fn accepted(pair: u64, listener: EntityId) -> Meeting {
        Meeting { pair, end: ConnectionEnd::Accepted(listener) }
    }

    fn connected(pair: u64, edge: EntityId) -> Meeting {
        Meeting { pair, end: ConnectionEnd::Connected(edge) }
    }

    fn ends(meetings: &Meetings, edge: EntityId) -> Vec<(&str, EntityId)> {
        meetings.ends("web", &[edge]).map(|(host, listener)| (host.as_str(), listener)).collect()
    }

    #[test]
    fn both_ends_make_it_known_whichever_is_told_first() {
        let mut meetings = Meetings::default();
        assert_eq!(meetings.met("web", connected(7, 1), 100), None);
        assert_eq!(meetings.met("web", connected(7, 1), 101), None, "the same end again");
        assert_eq!(meetings.met("app", accepted(7, 5), 102), Some("web".into()));
        assert_eq!(ends(&meetings, 1), [("app", 5)]);
        assert_eq!(meetings.met("app-2", accepted(8, 6), 103), None);
        assert_eq!(meetings.met("web", connected(8, 1), 103), Some("web".into()));
        assert_eq!(ends(&meetings, 1), [("app", 5), ("app-2", 6)]);
        meetings.met("web", connected(7, 1), 740);
        assert_eq!(meetings.met("app", accepted(7, 5), 740), None, "that is known");
        assert!(meetings.waiting.is_empty());
        assert_eq!((meetings.callers("app").count(), meetings.callers("web").count()), (1, 0));
        meetings.forget("app");
        assert_eq!(ends(&meetings, 1), [("app-2", 6)]);
    }

    #[test]
    fn who_is_not_met_any_more_is_forgotten_while_others_are() {
        let mut meetings = Meetings::default();
        let mut meet = |pair, host: &str, listener, at| {
            meetings.met("web", connected(pair, 1), at);
            meetings.met(host, accepted(pair, listener), at).is_some()
        };
        assert!(meet(1, "old", 5, 100));
        assert!(meet(2, "new", 6, 101));
        assert!((3..200).all(|pair| !meet(pair, "new", 6, 102)), "a moment is not long enough");
        assert!(meet(200, "new", 6, 100 + STALE_WINDOWS));
        assert!(!meet(201, "new", 6, 100 + 9 * STALE_WINDOWS), "a pool that connects once stays");
        assert_eq!(ends(&meetings, 1), [("new", 6)]);
        meetings.keep("web", |edge| edge != 1);
        assert_eq!(ends(&meetings, 1), []);
    }

    #[test]
    fn what_waits_is_bounded_and_leaves() {
        let mut meetings = Meetings::default();
        (0..WAITING_MAX as u64 + 9).for_each(|pair| _ = meetings.met("web", connected(pair, 1), 100));
        assert_eq!((meetings.waiting.len(), meetings.order.len()), (WAITING_MAX, WAITING_MAX));
        assert_eq!(meetings.met("app", accepted(3, 5), 101), None, "that one was forgotten");
        assert_eq!(meetings.met("app", accepted(500, 5), 101), Some("web".into()));
        let index = WindowIndex(102 + WAITS_WINDOWS);
        meetings.take(&Frame { index, hosts: BTreeMap::new() });
        assert_eq!((meetings.waiting.len(), meetings.order.len()), (0, 0));
    }
}

//! Connections by the number that both of their ends have: which of them are told, and when again. Owns that; knows neither who a slot is nor who
//! has the other end.

use crate::attach::loader::{LoadError, LoadedObject};
use crate::attach::mapping::Mapping;
use crate::window::{self, ConnectionEnd, ListenerKey, WindowIndex};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;
use tailwater_ebpf::net::{MEETINGS, Meeting};

/// Windows between two looks: a second.
const EVERY_WINDOWS: u64 = 20;
/// All are told again in so many looks, for a collector that was not there, and for recordings that begin later. The places that are due go by
/// the window, so that both ends tell of one at once.
const ROUND: u64 = 32;
/// Connections that are told at a time, and of one listener or edge. Those whose numbers are the lowest: both ends choose the same ones where they have
/// more. What is left over is told the next time, if no other took its place.
const TOLD_MOST: usize = 256;
const SLOT_MOST: usize = 32;

/// What the kernel side notes, and what of it was told.
pub(super) struct Meetings {
    noted: Mapping,
    seen: Vec<Seen>,
}

/// What was seen in a place.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Without whether it was closed.
    word: u64,
    /// Whose its slot was, see [`identity`].
    whose: u64,
    told: bool,
}

impl Meetings {
    pub(super) fn open(object: &LoadedObject) -> Result<Self, LoadError> {
        Ok(Self::of(object.mapping("meetings", MEETINGS * 8)?))
    }

    fn of(noted: Mapping) -> Self {
        Self { noted, seen: vec![Seen::default(); MEETINGS] }
    }

    /// Those that are told with this window, lowest number first. `whose` says who a slot is: what was noted of one is not told of whoever has it
    /// later.
    pub(super) fn drain(
        &mut self,
        window: WindowIndex,
        mut whose: impl FnMut(Meeting) -> Option<ConnectionEnd>,
    ) -> Vec<window::Meeting> {
        let mut told = Vec::new();
        if !window.0.is_multiple_of(EVERY_WINDOWS) {
            return told;
        }
        let due = window.0 / EVERY_WINDOWS % ROUND;
        let mut of_slot: HashMap<(bool, u32), usize> = HashMap::new();
        // The place is the upper part of the number.
        for (place, seen) in (0_u64..).zip(&mut self.seen) {
            let Some(meeting) = Meeting::decode(self.noted.word(place as usize).load(Ordering::Relaxed))
            else {
                continue;
            };
            let word = meeting.word();
            let is_new = word != seen.word || !seen.told;
            if !is_new && (meeting.closed || place * ROUND / MEETINGS as u64 != due) {
                continue;
            }
            let Some(end) = whose(meeting) else { continue };
            let identity = identity(&end);
            if word != seen.word {
                *seen = Seen { word, whose: identity, told: false };
            }
            let count = of_slot.entry((meeting.accepted, meeting.slot)).or_default();
            if seen.whose == identity && told.len() < TOLD_MOST && *count < SLOT_MOST {
                *count += 1;
                seen.told = true;
                told.push(window::Meeting { pair: meeting.pair, end });
            }
        }
        told
    }
}

/// One number for whoever has a slot; who owns a listener may become known later, and is the same.
fn identity(end: &ConnectionEnd) -> u64 {
    let mut hasher = DefaultHasher::new();
    match end {
        ConnectionEnd::Accepted(ListenerKey { netns, address, port, .. }) => {
            (netns, address, port).hash(&mut hasher);
        }
        ConnectionEnd::Connected(edge) => edge.hash(&mut hasher),
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::EdgeKey;
    use std::net::Ipv6Addr;

    /// An edge to a port that has the number of its slot.
    fn edge(meeting: Meeting, netns: u32) -> Option<ConnectionEnd> {
        let remote_port = u16::try_from(meeting.slot).ok()?;
        let workload = window::CgroupId(1);
        let edge = EdgeKey { workload, netns, remote_address: Ipv6Addr::LOCALHOST, remote_port };
        Some(ConnectionEnd::Connected(edge))
    }

    fn whose(meeting: Meeting) -> Option<ConnectionEnd> {
        edge(meeting, 1)
    }

    fn slots(told: &[window::Meeting]) -> Vec<u16> {
        let slot = |meeting: &window::Meeting| match meeting.end {
            ConnectionEnd::Connected(edge) => edge.remote_port,
            ConnectionEnd::Accepted(listener) => listener.port,
        };
        told.iter().map(slot).collect()
    }

    fn note(meetings: &Meetings, place: u64, slot: u64) {
        meetings.noted.store(place as usize, place << 52 | 1 << 20 | slot);
    }

    /// The window of a look in which these places are not due again.
    const LATE: WindowIndex = WindowIndex((ROUND - 1) * EVERY_WINDOWS);

    #[test]
    fn each_is_told_at_once_and_once_more_in_a_round() {
        let mut meetings = Meetings::of(Mapping::anonymous(MEETINGS * 8));
        let tell = |m: &mut Meetings, window| slots(&m.drain(window, whose));
        note(&meetings, 7, 3);
        note(&meetings, 900, 4);
        assert!(tell(&mut meetings, WindowIndex(LATE.0 + 1)).is_empty(), "not its turn");
        assert_eq!(tell(&mut meetings, LATE), [3, 4]);
        assert!(tell(&mut meetings, LATE).is_empty());
        let round = (0..ROUND).flat_map(|n| tell(&mut meetings, WindowIndex(n * EVERY_WINDOWS)));
        assert_eq!(round.collect::<Vec<_>>(), [3, 4]);
        note(&meetings, 7, 5);
        assert_eq!(tell(&mut meetings, LATE), [5], "another one in its place");
        let closed = |meetings: &Meetings, place: usize| {
            meetings.noted.store(place, meetings.noted.word(place).load(Ordering::Relaxed) | Meeting::CLOSED);
        };
        closed(&meetings, 900);
        note(&meetings, 8, 6);
        closed(&meetings, 8);
        assert_eq!(tell(&mut meetings, LATE), [6], "over before it was told");
        let round = (0..ROUND).flat_map(|n| tell(&mut meetings, WindowIndex(n * EVERY_WINDOWS)));
        assert_eq!(round.collect::<Vec<_>>(), [5], "what is closed is told once");
        let others = |meeting| edge(meeting, 2);
        let mut round = (0..ROUND).flat_map(|n| meetings.drain(WindowIndex(n * EVERY_WINDOWS), others));
        assert_eq!(round.next(), None, "the slots are others' now");
    }

    #[test]
    fn what_is_too_much_waits_and_nobody_takes_the_room_of_others() {
        let mut meetings = Meetings::of(Mapping::anonymous(MEETINGS * 8));
        (100..150).for_each(|place| note(&meetings, place, 6));
        note(&meetings, 3000, 7);
        let told = slots(&meetings.drain(LATE, whose));
        assert_eq!((told.len(), told.last()), (SLOT_MOST + 1, Some(&7)));
        assert_eq!(slots(&meetings.drain(LATE, whose)).len(), 50 - SLOT_MOST);
        (0..MEETINGS as u64).for_each(|place| note(&meetings, place, 10 + place));
        let told = slots(&meetings.drain(LATE, whose));
        assert_eq!((told.len(), told.last().copied()), (TOLD_MOST, Some(9 + TOLD_MOST as u16)));
    }

    #[test]
    fn a_listener_whose_owner_becomes_known_is_the_same() {
        let mut meetings = Meetings::of(Mapping::anonymous(MEETINGS * 8));
        meetings.noted.store(0, 1 << 20 | 1 << 16 | 5);
        let by = |owner| {
            let key = ListenerKey { netns: 1, address: Ipv6Addr::LOCALHOST, port: 80, owner, pid: 0 };
            move |_| Some(ConnectionEnd::Accepted(key))
        };
        assert_eq!(slots(&meetings.drain(LATE, by(window::CgroupId(0)))), [80]);
        let again = meetings.drain(WindowIndex(0), by(window::CgroupId(7)));
        assert_eq!(slots(&again), [80]);
    }
}

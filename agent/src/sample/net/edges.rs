//! From edge records to call and retransmit samples. Knows no map but its own.

use super::multiplexed::{self, Held};
use super::slots::{Slots, may_leave};
use crate::attach::loader::{LoadError, LoadedObject, LogNames, log_names};
use crate::attach::mapping::Mapping;
use crate::attach::ring::Level;
use crate::attach::window_log::{Log, LogShape};
use crate::window::{CallSample, CgroupId, EdgeKey, RetransmitSample, WindowIndex};
use std::net::Ipv6Addr;
use std::sync::atomic::Ordering;
use tailwater_ebpf::net::{EdgeLevel, EdgeName, EdgeRecord, edge_edge as edge};

/// Windows without a connection after which the slot of an edge may be another's: five minutes.
const RELEASE_AFTER: u64 = 6_000;

type Samples<T> = Vec<(EdgeKey, T)>;

pub(super) const LOG: LogNames = log_names!("edge_log");

/// The edges' log.
pub(super) struct Edges {
    log: Log<EdgeRecord>,
    levels: Mapping,
    slots: Slots<EdgeName>,
    held: Vec<Held>,
    entities: u32,
}

impl Edges {
    pub(super) fn open(object: &mut LoadedObject, shape: LogShape) -> Result<Self, LoadError> {
        let entities = shape.entities;
        Ok(Self {
            log: object.log(&LOG, shape)?,
            levels: object.mapping("edge_levels", entities as usize * EdgeLevel::WORDS * 8)?,
            slots: Slots::open(object, ["edge_names", "edge_slots", "edge_free"], entities)?,
            held: vec![Held::default(); entities as usize],
            entities,
        })
    }

    /// Who a slot is; `None`: nobody, or nobody any more.
    pub(super) fn named(&mut self, slot: u32) -> Option<EdgeKey> {
        self.slots.name_in_use(slot).map(|name| key(&name))
    }

    pub(super) fn lapped(&self) -> u64 {
        self.log.lapped()
    }

    /// Whether nothing of the window was lost; it was drained.
    pub(super) fn is_whole(&self, window: WindowIndex) -> bool {
        !self.log.is_blind(window.0)
    }

    pub(super) fn skip_to(&mut self, first: WindowIndex) {
        self.log.skip_to(first.0);
    }

    pub(super) fn drain(&mut self, window: WindowIndex) -> (Samples<CallSample>, Samples<RetransmitSample>) {
        let (mut calls, mut retransmits) = (Vec::new(), Vec::new());
        for slot in 0..self.entities {
            let release = slot != 0 && may_leave(slot, window);
            if !release && self.log.quiet(slot, window.0) {
                continue;
            }
            let Some(name) = self.slots.name(slot) else { continue };
            let mut levels = [Level::default(); edge::COUNT];
            let mut call = CallSample::default();
            let mut resent = RetransmitSample::default();
            let any = self.log.drain(slot, window.0, &mut levels, |r| {
                add_calls(&mut call, r);
                add_retransmits(&mut resent, r);
            });
            if any || levels.iter().any(|l| l.start != 0 || l.end != 0) {
                let now = self.level(slot).multiplexed;
                let seen_max = call.multiplexed.connections;
                let connections = self.held[slot as usize].most(window.0, seen_max, now);
                settle(&mut call, &levels, connections);
                calls.push((key(&name), call));
            }
            if resent != RetransmitSample::default() {
                retransmits.push((key(&name), resent));
            }
            if release {
                let newest = self.idle(slot).then(|| self.log.newest(slot));
                self.slots.release(slot, window.0, newest, RELEASE_AFTER);
            }
        }
        (calls, retransmits)
    }

    fn idle(&self, slot: u32) -> bool {
        self.level(slot).levels.iter().all(|l| *l == 0)
    }

    fn level(&self, slot: u32) -> EdgeLevel {
        let first = slot as usize * EdgeLevel::WORDS;
        let words = std::array::from_fn(|i| self.levels.word(first + i).load(Ordering::Relaxed));
        EdgeLevel::decode(words)
    }
}

fn key(name: &EdgeName) -> EdgeKey {
    EdgeKey {
        workload: CgroupId(name.at.cgroup),
        netns: name.at.netns,
        remote_address: Ipv6Addr::from(name.at.address),
        remote_port: name.at.port,
    }
}

fn add_calls(call: &mut CallSample, r: &EdgeRecord) {
    call.started += u64::from(r.started);
    call.answered += u64::from(r.answered);
    call.aborted += u64::from(r.aborted);
    call.connects += u64::from(r.connects);
    call.established += u64::from(r.established);
    call.in_flight_max = call.in_flight_max.max(r.in_flight_max);
    call.open_max = call.open_max.max(r.open_max);
    call.multiplexed.pieces_in += u64::from(r.pieces_in);
    call.multiplexed.pieces_out += u64::from(r.pieces_out);
    call.multiplexed.bytes_in += r.bytes_in;
    call.multiplexed.bytes_out += r.bytes_out;
    call.multiplexed.connections = call.multiplexed.connections.max(r.multiplexed_max);
    call.multiplexed.unanswered_max = call.multiplexed.unanswered_max.max(r.unanswered_max);
    call.response_ns += r.response_ns;
    call.response_max_ns = call.response_max_ns.max(r.response_max_ns);
    for (sum, n) in call.response_hist.iter_mut().zip(r.response_hist) {
        *sum += n;
    }
}

fn add_retransmits(resent: &mut RetransmitSample, r: &EdgeRecord) {
    resent.syn += u64::from(r.syn_retransmits);
    resent.data += u64::from(r.data_retransmits);
    if r.first_try_unix_ns != 0
        && (resent.first_try_unix_ns == 0 || r.first_try_unix_ns < resent.first_try_unix_ns)
    {
        resent.first_try_unix_ns = r.first_try_unix_ns;
    }
}

fn settle(call: &mut CallSample, levels: &[Level; edge::COUNT], connections: u32) {
    let [in_flight, open, unanswered] = *levels;
    let count = |level: i64| u32::try_from(level.max(0)).unwrap_or(u32::MAX);
    call.in_flight_last = count(in_flight.end);
    call.in_flight_max = in_flight.max_with(call.in_flight_max);
    call.in_flight_ns = in_flight.ns();
    call.open_last = count(open.end);
    call.open_max = open.max_with(call.open_max);
    multiplexed::settle(&mut call.multiplexed, connections, &unanswered);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> EdgeRecord {
        // SAFETY: integers only: all zero is a value.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn the_earliest_first_try_of_all_copies_counts() {
        let mut resent = RetransmitSample::default();
        for (first_try_unix_ns, syn_retransmits) in [(0, 0), (900, 2), (700, 1), (800, 1)] {
            add_retransmits(&mut resent, &EdgeRecord { first_try_unix_ns, syn_retransmits, ..record() });
        }
        assert_eq!((resent.syn, resent.first_try_unix_ns), (4, 700));
    }

    #[test]
    fn a_window_without_events_keeps_its_level() {
        let mut call = CallSample::default();
        let quiet = Level { start: 50, end: 50, integral_ns: 50 * 50_000_000 };
        settle(&mut call, &[quiet, quiet, Level::default()], 0);
        assert_eq!((call.in_flight_last, call.in_flight_max, call.open_max), (50, 50, 50));
        assert_eq!(call.in_flight_ns, 2_500_000_000);
    }
}

//! Lookups of names that wait at the end of a window, from the iterator over the sockets that asked. Owns when it is worth reading, and what of it is a
//! lookup; knows no record of the logs.

use crate::attach::iterator::KernelIterator;
use crate::attach::loader::{KernelBtf, LoadError, LoadedObject};
use crate::attach::mapping::Mapping;
use crate::window::{CgroupId, LookupsKey, WINDOW_NS, WaitingLookups, WindowIndex};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::atomic::Ordering;
use tailwater_ebpf::net::{LOOKUP_COUNTS_WORDS, WaitingLookup};

/// Sockets that are looked at in one window.
const SOCKETS_MAX: usize = 4096;
const ENTRY_BYTES: usize = WaitingLookup::WORDS * 8;
/// What waits longer has been given up, whatever the socket says: as LOOKUP_OVER_NS of net_lookups.h.
const OVER_NS: u64 = 30_000_000_000;
/// A lookup asks for addresses of both families (A and AAAA), and tries once more.
const QUERIES_OF_ONE: u32 = 4;

/// The sockets that asked.
#[derive(Debug)]
pub(super) struct Lookups {
    /// Why they are not seen, if they are not.
    sockets: Result<KernelIterator, String>,
    counts: Mapping,
    /// How many more queries were asked than answered when nothing waited: those were lost.
    settled: Option<u64>,
    /// Unix time minus CLOCK_MONOTONIC.
    epoch_offset_ns: i64,
    read: Vec<u8>,
    left_out: u64,
}

impl Lookups {
    /// `asked`: whether queries are seen at all.
    pub(super) fn open(
        object: &mut LoadedObject,
        btf: &KernelBtf,
        asked: Result<(), String>,
        epoch_offset_ns: i64,
    ) -> Result<Self, LoadError> {
        let walk = |object: &mut LoadedObject| {
            let sockets = object.iterator_over("net_lookups", "lookups", btf);
            sockets.map_err(|error| error.to_string())
        };
        Ok(Self {
            sockets: asked.and_then(|()| walk(object)),
            counts: object.mapping("lookup_counts", LOOKUP_COUNTS_WORDS * 8)?,
            settled: None,
            epoch_offset_ns,
            read: Vec::new(),
            left_out: 0,
        })
    }

    /// Why lookups are not seen here.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.sockets.as_ref().err().map(String::as_str)
    }

    /// Sockets that no window had room for, so far.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(super) fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.epoch_offset_ns = offset_ns;
    }

    /// What waited for a window or longer when this one ended: call it some milliseconds later, as what was answered meanwhile is not told.
    pub(super) fn drain(&mut self, window: WindowIndex) -> Vec<(LookupsKey, WaitingLookups)> {
        let before = self.counted();
        let Ok(sockets) = &self.sockets else { return Vec::new() };
        if self.settled == Some(unanswered(before)) {
            return Vec::new();
        }
        self.read.clear();
        match sockets.read(&mut self.read, SOCKETS_MAX * ENTRY_BYTES) {
            Ok(true) => {}
            Ok(false) => self.left_out += 1,
            Err(error) => {
                tracing::warn!("lookups of names cannot be read any more, and are not told: {error}");
                self.sockets = Err(error.to_string());
                return Vec::new();
            }
        }
        let end_unix_ns = window.0.saturating_add(1).saturating_mul(WINDOW_NS);
        let end_ns = end_unix_ns.saturating_add_signed(self.epoch_offset_ns.saturating_neg());
        let open: Vec<WaitingLookup> = self.read.chunks_exact(ENTRY_BYTES).map(decoded).collect();
        let waits = open.iter().any(|of| end_ns.saturating_sub(of.since_ns) < OVER_NS);
        // A query that is asked while the sockets are walked may be seen by neither.
        self.settled = (!waits && self.counted() == before).then(|| unanswered(before));
        told(&open, end_ns)
    }

    /// Queries that were asked, and answered. The answered ones are read first: they may be too few, and what comes of that is one walk more.
    fn counted(&self) -> (u64, u64) {
        let answered = self.counts.word(1).load(Ordering::Acquire);
        (self.counts.word(0).load(Ordering::Acquire), answered)
    }
}

/// Of so many asked and answered those without an answer, with those that will never have one.
fn unanswered((asked, answered): (u64, u64)) -> u64 {
    asked.wrapping_sub(answered)
}

fn decoded(bytes: &[u8]) -> WaitingLookup {
    let mut words = [0_u64; WaitingLookup::WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
    }
    WaitingLookup::decode(words)
}

/// By who asks whom, those that have waited for a window or longer.
fn told(open: &[WaitingLookup], end_ns: u64) -> Vec<(LookupsKey, WaitingLookups)> {
    let mut by_whom: BTreeMap<LookupsKey, WaitingLookups> = BTreeMap::new();
    for of in open {
        let waited_ns = end_ns.saturating_sub(of.since_ns);
        if !(WINDOW_NS..OVER_NS).contains(&waited_ns) {
            continue;
        }
        let key = LookupsKey {
            workload: CgroupId(of.key.cgroup),
            pid: of.pid,
            netns: of.key.netns,
            server: Ipv6Addr::from(of.key.address),
        };
        let waiting = by_whom.entry(key).or_default();
        let lookups = if of.queries > QUERIES_OF_ONE { of.queries.div_ceil(2) } else { 1 };
        waiting.lookups = waiting.lookups.saturating_add(lookups);
        waiting.longest_ns = waiting.longest_ns.max(waited_ns);
    }
    by_whom.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_ebpf::net::EdgeAddress;

    const MS: u64 = 1_000_000;

    fn open(pid: u32, since_ms: u64, queries: u32) -> WaitingLookup {
        let address = Ipv6Addr::LOCALHOST.octets();
        let key = EdgeAddress { cgroup: 7, netns: 1, port: 53, reserved: 0, address };
        WaitingLookup { key, since_ns: since_ms * MS, pid, queries }
    }

    /// Fails where a lookup that just began is told to wait, or one that nobody waits for any more.
    #[test]
    fn what_waited_for_a_window_and_was_not_given_up_is_told_by_whom() {
        let all = [
            open(1, 60_000, 2),
            open(1, 59_900, 1),
            open(1, 59_960, 2),
            open(2, 59_000, 9),
            open(3, 20_000, 2),
            open(4, 60_400, 2),
        ];
        let found = told(&all, 60_050 * MS);
        let short: Vec<_> = found.iter().map(|(key, w)| (key.pid, w.lookups, w.longest_ns / MS)).collect();
        assert_eq!(short, [(1, 3, 150), (2, 5, 1_050)]);
    }

    #[test]
    fn an_entry_is_read_as_the_kernel_wrote_it() {
        let words: [u64; WaitingLookup::WORDS] = [7, 53 << 32 | 1, 0, 1_u64.to_be(), 5 * MS, 2 << 32 | 4242];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(decoded(&bytes), open(4242, 5, 2));
    }
}

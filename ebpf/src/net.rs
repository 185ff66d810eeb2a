//! Records of the socket signals: the mirror of `bpf/include/net_records.h`. Knows no hook and no unit of what it carries
//! beyond the names.

use crate::record::EdgeSum;

/// Buckets of a response-time histogram, `RESPONSE_BUCKETS`.
pub const RESPONSE_BUCKETS: usize = 24;
/// The slot of everything beyond the caps, `SLOT_OTHER`.
pub const SLOT_OTHER: u32 = 0;

/// Indices into [`ListenerRecord::edges`].
#[allow(missing_docs, reason = "explained in net_records.h")]
pub mod listener_edge {
    pub const DEPTH: usize = 0;
    pub const UNREAD_QUEUED: usize = 1;
    pub const OPEN: usize = 2;
    pub const UNANSWERED: usize = 3;
    pub const IN_FLIGHT: usize = 4;
    pub const UNREAD: usize = 5;
    pub const BUSY: usize = 6;
    /// How many there are.
    pub const COUNT: usize = 7;
}

/// Indices into [`EdgeRecord::edges`].
#[allow(missing_docs, reason = "explained in net_records.h")]
pub mod edge_edge {
    pub const IN_FLIGHT: usize = 0;
    pub const OPEN: usize = 1;
    pub const UNANSWERED: usize = 2;
    /// How many there are.
    pub const COUNT: usize = 3;
}

/// `struct listener_record`: one listener in one window, as one copy of the log saw it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "explained in net_records.h")]
pub struct ListenerRecord {
    pub window: u64,
    pub edges: [EdgeSum; listener_edge::COUNT],
    pub wait_max_ns: u64,
    pub response_ns: u64,
    pub response_max_ns: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub pieces_in: u32,
    pub pieces_read: u32,
    pub pieces_out: u32,
    pub unanswered_max: u32,
    pub multiplexed_max: u32,
    pub arrivals: u32,
    pub drops: u32,
    pub drops_final_ack: u32,
    pub drops_cookie: u32,
    pub drops_repeated: u32,
    pub drops_slow: u32,
    pub received: u32,
    pub answered: u32,
    pub depth_max: u32,
    pub in_flight_max: u32,
    pub unread_max: u32,
    pub busy_max: u32,
    pub shared_max: u32,
    pub open_max: u32,
    pub limit: u32,
    pub late: u16,
    pub very_late: u16,
    pub very_long_retried: u16,
    pub very_long_queued: u16,
    pub very_long_unread: u16,
    pub very_long_inside: u16,
    pub aborted: u16,
    pub syn_ack_retransmits: u16,
    pub response_hist: [u32; RESPONSE_BUCKETS],
}
crate::record!(ListenerRecord, edges: listener_edge::COUNT);

/// `struct edge_record`: one edge in one window, as one copy of the log saw it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "explained in net_records.h")]
pub struct EdgeRecord {
    pub window: u64,
    pub edges: [EdgeSum; edge_edge::COUNT],
    pub response_ns: u64,
    pub response_max_ns: u64,
    pub first_try_unix_ns: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub pieces_in: u32,
    pub pieces_out: u32,
    pub unanswered_max: u32,
    pub multiplexed_max: u32,
    pub started: u32,
    pub answered: u32,
    pub aborted: u32,
    pub connects: u32,
    pub established: u32,
    pub in_flight_max: u32,
    pub open_max: u32,
    pub syn_retransmits: u32,
    pub data_retransmits: u32,
    pub reserved: u32,
    pub response_hist: [u32; RESPONSE_BUCKETS],
}
crate::record!(EdgeRecord, edges: edge_edge::COUNT);

const _: () = assert!(size_of::<ListenerRecord>() == 352);
const _: () = assert!(size_of::<EdgeRecord>() == 248);

/// `struct listener_level`, one per slot: levels over all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenerLevel {
    /// By [`listener_edge`].
    pub levels: [i32; listener_edge::COUNT],
    /// Connections with several exchanges at once.
    pub multiplexed: i32,
    /// Sum of the backlogs of the listening sockets.
    pub limit: u32,
    /// Listening sockets now.
    pub sockets: u32,
    /// Threads that read requests, and live or died in the last seconds.
    pub workers_seen: u32,
    /// When the requests in flight last changed, on CLOCK_MONOTONIC; 0: never.
    pub changed_ns: u64,
}

/// Bins of requests in flight, `STATE_BINS`.
pub const STATE_BINS: usize = 80;
/// Size of a `struct listener_states` in 64-bit words: time and answers for each bin.
pub const STATES_WORDS: usize = 2 * STATE_BINS;

/// The bin of a number of requests in flight, as `state_bin` in net_maps.h has it.
pub fn state_bin(in_flight: u32) -> usize {
    const EXACT: u32 = 16;
    if in_flight < EXACT {
        return in_flight as usize;
    }
    let octave = in_flight.ilog2();
    let bin = EXACT + ((octave - 4) << 3) + ((in_flight >> (octave - 3)) & 7);
    (bin as usize).min(STATE_BINS - 1)
}

impl ListenerLevel {
    /// Size in 64-bit words.
    pub const WORDS: usize = 8;

    /// From the words of the map.
    pub fn decode(words: [u64; Self::WORDS]) -> Self {
        let at = |i: usize| (words[1 + i / 2] >> (32 * (i % 2))) as u32;
        let mut levels = [0; listener_edge::COUNT];
        for (i, level) in levels[..listener_edge::IN_FLIGHT].iter_mut().enumerate() {
            *level = at(i).cast_signed();
        }
        levels[listener_edge::IN_FLIGHT..].copy_from_slice(&turns(words[0]));
        let multiplexed = at(listener_edge::IN_FLIGHT).cast_signed();
        Self { levels, multiplexed, limit: at(5), sockets: at(6), workers_seen: at(8), changed_ns: words[6] }
    }

    /// The word whose lower half is `workers_seen` of this slot; the upper half is reserved.
    pub fn workers_seen_at(slot: u32) -> usize {
        slot as usize * Self::WORDS + 1 + 8 / 2
    }
}

/// The parts of `listener_level.turns`, by [`listener_edge`] from `IN_FLIGHT` on: a negative one has borrowed from the one above it.
fn turns(sum: u64) -> [i32; 3] {
    const BITS: u32 = 21;
    let mut rest = sum.cast_signed();
    [(); 3].map(|()| {
        let low = rest << (64 - BITS) >> (64 - BITS);
        rest = (rest - low) >> BITS;
        low as i32
    })
}

/// `struct edge_level`, one per slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EdgeLevel {
    /// By [`edge_edge`].
    pub levels: [i32; edge_edge::COUNT],
    /// Connections with several exchanges at once.
    pub multiplexed: i32,
}

impl EdgeLevel {
    /// Size in 64-bit words.
    pub const WORDS: usize = 8;

    /// From the words of the map.
    pub fn decode(words: [u64; Self::WORDS]) -> Self {
        let at = |i: usize| ((words[i / 2] >> (32 * (i % 2))) as u32).cast_signed();
        Self { levels: std::array::from_fn(at), multiplexed: at(edge_edge::COUNT) }
    }
}

/// `struct listener_key`, and the key of the map `listener_slots`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenerAddress {
    /// Inode of the network namespace.
    pub netns: u32,
    /// Host byte order.
    pub port: u16,
    /// Zero.
    pub reserved: u16,
    /// Network order.
    pub address: [u8; 16],
}

/// `struct listener_name`, one per slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenerName {
    /// Odd: being written; 0: never used.
    pub generation: u64,
    /// Cgroup of the owner, 0: not known.
    pub owner_cgroup: u64,
    /// Process of the owner, 0: not known.
    pub owner_pid: u32,
    /// Where it listens.
    pub at: ListenerAddress,
}

impl ListenerName {
    /// Size in 64-bit words.
    pub const WORDS: usize = 6;

    /// From the words of the map.
    pub fn decode(words: [u64; Self::WORDS]) -> Self {
        Self {
            generation: words[0],
            owner_cgroup: words[1],
            owner_pid: words[2] as u32,
            at: ListenerAddress {
                netns: words[3] as u32,
                port: (words[3] >> 32) as u16,
                reserved: 0,
                address: address([words[4], words[5]]),
            },
        }
    }
}

/// `struct edge_key`, and the key of the map `edge_slots`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EdgeAddress {
    /// The calling workload.
    pub cgroup: u64,
    /// Inode of the network namespace.
    pub netns: u32,
    /// Remote port, host byte order.
    pub port: u16,
    /// Zero.
    pub reserved: u16,
    /// Remote address, network order.
    pub address: [u8; 16],
}

/// `struct edge_name`, one per slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EdgeName {
    /// Odd: being written; 0: never used.
    pub generation: u64,
    /// Who calls whom.
    pub at: EdgeAddress,
}

impl EdgeName {
    /// Size in 64-bit words.
    pub const WORDS: usize = 5;

    /// From the words of the map.
    pub fn decode(words: [u64; Self::WORDS]) -> Self {
        Self { generation: words[0], at: edge_address([words[1], words[2], words[3], words[4]]) }
    }
}

/// `struct unix_path`, one per slot: what a Unix listener is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixPath {
    length: u32,
    bytes: [u8; UnixPath::BYTES],
}

impl UnixPath {
    /// Bytes of `sun_path`.
    const BYTES: usize = 108;
    /// Size in 64-bit words.
    pub const WORDS: usize = (4 + Self::BYTES) / 8;

    /// From the words of the map.
    pub fn decode(words: [u64; Self::WORDS]) -> Self {
        let mut all = [0; 4 + Self::BYTES];
        for (to, word) in all.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&all[4..]);
        Self { length: words[0] as u32, bytes }
    }

    /// As people write it: an abstract name with `@` in place of its zero. Bytes that are no text are replaced, control characters left
    /// out.
    pub fn text(&self) -> String {
        let bytes = &self.bytes[..(self.length as usize).min(Self::BYTES)];
        let (before, rest) = match bytes.split_first() {
            Some((0, rest)) => ("@", rest),
            _ => ("", bytes),
        };
        let text = String::from_utf8_lossy(rest);
        before.chars().chain(text.chars().filter(|c| !c.is_control())).collect()
    }
}

/// `struct lookup_counts` in 64-bit words: queries that were asked, and those that were answered.
pub const LOOKUP_COUNTS_WORDS: usize = 2;

/// `struct waiting_lookup`: an open socket of which queries for names have no answer yet, as `net_lookups` tells it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingLookup {
    /// Who asks whom; the port is that of the server.
    pub key: EdgeAddress,
    /// Since when, on CLOCK_MONOTONIC.
    pub since_ns: u64,
    /// The process that asked.
    pub pid: u32,
    /// Queries without an answer.
    pub queries: u32,
}

impl WaitingLookup {
    /// Size in 64-bit words.
    pub const WORDS: usize = 6;

    /// From what the iterator wrote.
    pub fn decode(words: [u64; Self::WORDS]) -> Self {
        Self {
            key: edge_address([words[0], words[1], words[2], words[3]]),
            since_ns: words[4],
            pid: words[5] as u32,
            queries: (words[5] >> 32) as u32,
        }
    }
}

/// `struct edge_key` from its words.
fn edge_address(words: [u64; 4]) -> EdgeAddress {
    EdgeAddress {
        cgroup: words[0],
        netns: words[1] as u32,
        port: (words[1] >> 32) as u16,
        reserved: 0,
        address: address([words[2], words[3]]),
    }
}

fn address(words: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&words[1].to_ne_bytes());
    bytes
}

/// Entries of the map `meetings`.
pub const MEETINGS: usize = 4096;

/// A connection that began, or was there before, as `net_meetings.h` notes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meeting {
    /// 47 bits of a hash of both initial sequence numbers, which the other end has, too.
    pub pair: u64,
    /// Whether this end accepted it.
    pub accepted: bool,
    /// Whether it is closed by now.
    pub closed: bool,
    /// Of its listener, if it was accepted, else of its edge.
    pub slot: u32,
}

impl Meeting {
    /// Bits below `pair`: whether it was accepted, above those of the slot.
    const PAIR_SHIFT: u32 = 17;
    /// What is added to the word when it is closed.
    pub const CLOSED: u64 = 1 << 15;

    /// The word of the map, while it was open.
    pub const fn word(&self) -> u64 {
        self.pair << Self::PAIR_SHIFT | (self.accepted as u64) << 16 | self.slot as u64
    }

    /// From the word of the map; `None`: nothing was noted there.
    pub fn decode(word: u64) -> Option<Self> {
        (word != 0).then_some(Self {
            pair: word >> Self::PAIR_SHIFT,
            accepted: word >> 16 & 1 == 1,
            closed: word & Self::CLOSED != 0,
            slot: (word & (Self::CLOSED - 1)) as u32,
        })
    }
}

/// Entries of the map `workers`.
pub const WORKERS: usize = 16_384;

/// `struct worker`: a thread that reads requests of a listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Worker {
    /// Its listener's slot.
    pub slot: u32,
    /// Thread id, as the first process-id namespace has it.
    pub tid: u32,
    /// Requests that it holds.
    pub held: i32,
    /// Open connections that it was the last to read from.
    pub connections: i32,
    /// The most of them at once.
    pub connections_max: u32,
    /// When it last read a request, CLOCK_MONOTONIC.
    pub read_ns: u64,
    /// How sure it is that it is an event loop: `LOOP_TAKEN` in net_records.h says how it is formed.
    pub loop_score: i32,
}

impl Worker {
    /// Size in 64-bit words.
    pub const WORDS: usize = 4;

    /// From the words of the map; `None`: a free entry.
    pub fn decode(words: [u64; Self::WORDS]) -> Option<Self> {
        (words[0] != 0).then_some(Self {
            slot: (words[0] >> 32) as u32,
            tid: words[0] as u32,
            held: (words[1] as u32).cast_signed(),
            connections: ((words[1] >> 32) as u32).cast_signed(),
            connections_max: (words[3] >> 32) as u32,
            read_ns: words[2],
            loop_score: (words[3] as u32).cast_signed(),
        })
    }

    /// What the kernel finds it by.
    pub const fn key(&self) -> u64 {
        (self.slot as u64) << 32 | self.tid as u64
    }
}

/// `struct drop_event`: a listener's drop counter rose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "explained in net_records.h")]
pub struct DropEvent {
    pub unix_ns: u64,
    pub slot: u32,
    pub count: u32,
    pub depth: u32,
    pub limit: u32,
    pub packets: u32,
    pub reserved: u32,
}

impl DropEvent {
    /// From an entry of the ring buffer; `None`: not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (unix_ns, rest) = bytes.split_first_chunk::<8>()?;
        let mut fields = rest.chunks_exact(4).map(|c| u32::from_ne_bytes([c[0], c[1], c[2], c[3]]));
        Some(Self {
            unix_ns: u64::from_ne_bytes(*unix_ns),
            slot: fields.next()?,
            count: fields.next()?,
            depth: fields.next()?,
            limit: fields.next()?,
            packets: fields.next()?,
            reserved: fields.next()?,
        })
    }
}

/// What `struct slow_turn` says that it is of.
pub mod slow {
    /// A request, since its first byte came.
    pub const REQUEST: u8 = 0;
    /// A call.
    pub const CALL: u8 = 1;
    /// A connection, until it was there.
    pub const CONNECT: u8 = 2;
}

/// `struct slow_turn`: a turn that took long, as it ended. Times are of CLOCK_MONOTONIC, in ns.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "explained in net_records.h")]
pub struct SlowTurn {
    pub cookie: u64,
    pub established_ns: u64,
    pub arrived_ns: u64,
    pub began_ns: u64,
    pub ended_ns: u64,
    pub slot: u32,
    pub began_by: u32,
    pub ended_by: u32,
    /// One of [`slow`].
    pub of: u8,
    /// 0: it was answered, or the connection came to be.
    pub aborted: u8,
    /// One of [`waited`].
    pub waited_as: u8,
    pub shared: u8,
}

/// How a request had been unread (`enum unread`).
pub mod waited {
    /// Since before its connection was accepted.
    pub const QUEUED: u8 = 2;
}

impl SlowTurn {
    const BYTES: usize = 56;

    /// From an entry of the ring buffer; `None`: not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.first_chunk()?;
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
        let short = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
        Some(Self {
            cookie: long(0),
            established_ns: long(8),
            arrived_ns: long(16),
            began_ns: long(24),
            ended_ns: long(32),
            slot: short(40),
            began_by: short(44),
            ended_by: short(48),
            of: bytes[52],
            aborted: bytes[53],
            waited_as: bytes[54],
            shared: bytes[55],
        })
    }

    /// The number that the other end of its connection has as well, as [`Meeting::pair`]; 0: not known.
    pub const fn pair(&self) -> u64 {
        self.cookie.wrapping_mul(PAIR_HASH) >> Meeting::PAIR_SHIFT
    }
}

/// 2^64 by the golden ratio, as meeting_noted() of net_meetings.h.
const PAIR_HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// `struct net_losses`: what could not be kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "explained in net_records.h")]
pub struct NetLosses {
    pub listeners_folded: u64,
    pub edges_folded: u64,
    pub listen_sockets_untracked: u64,
    pub drop_events: u64,
    pub workers_untracked: u64,
    pub connections_untracked: u64,
    pub connections_unknown: u64,
    pub ticks: u64,
    pub unix_refusals_unnamed: u64,
    pub lookups_untracked: u64,
    pub slow_turns: u64,
    pub connections_unfollowed: u64,
    pub streams_untracked: u64,
}

impl NetLosses {
    /// Size in 64-bit words.
    pub const WORDS: usize = 13;

    /// From the words of the map.
    pub fn decode(words: [u64; Self::WORDS]) -> Self {
        let [
            listeners_folded,
            edges_folded,
            listen_sockets_untracked,
            drop_events,
            workers_untracked,
            connections_untracked,
            connections_unknown,
            ticks,
            unix_refusals_unnamed,
            lookups_untracked,
            slow_turns,
            connections_unfollowed,
            streams_untracked,
        ] = words;
        Self {
            listeners_folded,
            edges_folded,
            listen_sockets_untracked,
            drop_events,
            workers_untracked,
            connections_untracked,
            connections_unknown,
            ticks,
            unix_refusals_unnamed,
            lookups_untracked,
            slow_turns,
            connections_unfollowed,
            streams_untracked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decode_as_the_kernel_lays_them_out() {
        let name = ListenerName::decode([
            4,
            77,
            (1 << 32) | 4242,
            (8080_u64 << 32) | 4_026_531_840,
            0,
            u64::from_ne_bytes([0, 0, 0xff, 0xff, 127, 0, 0, 1]),
        ]);
        assert_eq!((name.generation, name.owner_cgroup, name.owner_pid), (4, 77, 4242));
        assert_eq!((name.at.netns, name.at.port), (4_026_531_840, 8080));
        assert_eq!(
            std::net::Ipv6Addr::from(name.at.address).to_ipv4_mapped(),
            Some(std::net::Ipv4Addr::LOCALHOST)
        );
    }

    #[test]
    fn levels_decode_negative_parts() {
        let mut words = [0; 8];
        words[0] = (-3_i64 + (5 << 21) - (7 << 42)).cast_unsigned();
        words[1] = u64::from((-3_i32).cast_unsigned()) | (5 << 32);
        words[3] = 9 | (128 << 32);
        words[4] = 2;
        words[5] = 60;
        words[6] = 7_000;
        assert_eq!((ListenerLevel::workers_seen_at(0), ListenerLevel::workers_seen_at(2)), (5, 21));
        let level = ListenerLevel::decode(words);
        assert_eq!((level.levels, level.multiplexed), ([-3, 5, 0, 0, -3, 5, -7], 9));
        assert_eq!((level.limit, level.sockets, level.workers_seen, level.changed_ns), (128, 2, 60, 7_000));
    }

    #[test]
    fn paths_are_text_and_abstract_names_begin_with_an_at() {
        let check = |name: &[u8], expect: &str| {
            let mut all = [0; 112];
            all[..4].copy_from_slice(&(name.len() as u32).to_ne_bytes());
            all[4..4 + name.len()].copy_from_slice(name);
            let words =
                std::array::from_fn(|i| u64::from_ne_bytes(std::array::from_fn(|byte| all[8 * i + byte])));
            assert_eq!(UnixPath::decode(words).text(), expect);
        };
        check(b"/run/php/php8.2-fpm.sock", "/run/php/php8.2-fpm.sock");
        check(b"\0shop", "@shop");
        check(b"a\n\xffb", "a\u{fffd}b");
        check(&[b'x'; 108], &"x".repeat(108));
        check(b"", "");
    }

    #[test]
    fn bins_are_exact_first_and_then_eight_to_a_doubling() {
        let bins: Vec<usize> =
            [1, 15, 16, 17, 18, 31, 32, 35, 36, 128, 150, 3840, 4095, u32::MAX].map(state_bin).into();
        assert_eq!(bins, [1, 15, 16, 16, 17, 23, 24, 24, 25, 40, 41, 79, 79, 79]);
    }

    #[test]
    fn a_worker_knows_its_listener() {
        let held = u64::from((-1_i32).cast_unsigned());
        let score = u64::from((-4_i32).cast_unsigned());
        let worker = Worker::decode([(7 << 32) | 4242, (3 << 32) | held, 99, (5 << 32) | score]);
        let expected = Worker {
            slot: 7,
            tid: 4242,
            held: -1,
            connections: 3,
            connections_max: 5,
            read_ns: 99,
            loop_score: -4,
        };
        assert_eq!(worker, Some(expected));
        assert_eq!(Worker::decode([0, 3, 0, 0]), None);
    }

    #[test]
    fn a_meeting_is_one_word() {
        let word = 0x1234_5678_9abc << 17 | 1 << 16 | 4095;
        let expected = Meeting { pair: 0x1234_5678_9abc, accepted: true, closed: false, slot: 4095 };
        assert_eq!(Meeting::decode(word), Some(expected));
        let closed = Meeting { closed: true, ..expected };
        assert_eq!(Meeting::decode(word | Meeting::CLOSED), Some(closed));
        assert_eq!((expected.word(), closed.word()), (word, word));
        let edge = Meeting { accepted: false, ..expected };
        assert_eq!(Meeting::decode(word & !(1 << 16)), Some(edge));
        assert_eq!(Meeting::decode(0), None);
    }

    #[test]
    fn a_turn_that_took_long_is_read_as_it_was_written_and_a_part_of_one_is_none() {
        let expected = SlowTurn {
            cookie: 7,
            established_ns: 1,
            arrived_ns: 2,
            began_ns: 3,
            ended_ns: 4,
            slot: 5,
            began_by: 6,
            ended_by: 8,
            of: slow::CALL,
            aborted: 1,
            waited_as: waited::QUEUED,
            shared: 1,
        };
        let mut bytes: Vec<u8> = [7_u64, 1, 2, 3, 4].iter().flat_map(|n| n.to_ne_bytes()).collect();
        bytes.extend([5_u32, 6, 8].iter().flat_map(|n| n.to_ne_bytes()));
        bytes.extend([slow::CALL, 1, waited::QUEUED, 1]);
        assert_eq!(SlowTurn::decode(&bytes), Some(expected));
        (0..bytes.len()).for_each(|end| assert_eq!(SlowTurn::decode(&bytes[..end]), None));
        assert_eq!(SlowTurn::default().pair(), 0);
        assert_eq!(expected.pair(), 7_u64.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17);
    }

    #[test]
    fn short_drop_events_are_refused() {
        let mut bytes = 9_u64.to_ne_bytes().to_vec();
        for field in [1_u32, 2, 3, 4, 5, 0] {
            bytes.extend(field.to_ne_bytes());
        }
        assert_eq!(
            DropEvent::decode(&bytes),
            Some(DropEvent { unix_ns: 9, slot: 1, count: 2, depth: 3, limit: 4, packets: 5, reserved: 0 })
        );
        for end in 0..bytes.len() {
            assert_eq!(DropEvent::decode(&bytes[..end]), None);
        }
    }
}

//! Drops of a listener: how many connection attempts are behind the kernel's counts, and why they were dropped.
//! Owns the estimate of retries; knows no chain.

use crate::config::RETRY_WINDOWS;
use crate::topology::tier::TierKey;
use std::collections::BTreeMap;
use tailwater_model::incident::DropReason;
use tailwater_model::window::EntityId;

/// Drops and client retries of one listener in one frame.
#[derive(Debug, Clone)]
pub(crate) struct Dropped {
    pub(crate) tier: TierKey,
    pub(crate) listener: u32,
    pub(crate) drops: u64,
    pub(crate) sk_drops: u64,
    pub(crate) final_ack: u64,
    pub(crate) repeated: u64,
    pub(crate) slow: u64,
    /// The drops are connections that a Unix socket refused: nobody tries them again, and nobody waits.
    pub(crate) refused: bool,
    pub(crate) arrivals: u64,
    pub(crate) depth: u32,
    pub(crate) limit: u32,
}

/// What one listener dropped, window by window.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DropCount {
    /// Packets.
    pub(crate) count: u64,
    /// The same as the socket's counter has them.
    pub(crate) sk_drops: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Completed handshakes in the windows with drops.
    pub(crate) arrivals: u64,
    pub(crate) depth_max: u32,
    pub(crate) limit: u32,
    /// Of `count`, what was dropped in windows in which the queue was never half full.
    with_room: u64,
    /// Dropped SYNs.
    syn_packets: u64,
    /// Dropped last ACKs.
    last_acks: u64,
    /// Attempts whose SYN was dropped.
    syns: f64,
    /// Attempts whose last ACK was, and whose SYN had not been.
    acks: f64,
    /// Connections that a Unix socket refused.
    refused: u64,
    /// Dropped last ACKs of connections that had been asked for half a second before, or longer.
    slow: u64,
    /// Dropped last ACKs of attempts whose SYN had been dropped before.
    acks_again: f64,
    /// Dropped SYNs that did not come again yet, by the window in which they were dropped.
    waiting: BTreeMap<u64, Waiting>,
    /// The last ACKs that were dropped last.
    half_open: HalfOpen,
}

/// Connections whose last ACK was dropped: their clients take them for open, and both sides send again.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct HalfOpen {
    /// Since which window any were dropped, and when last.
    first: u64,
    last: u64,
    /// So many last.
    connections: u64,
}

/// SYNs by how often they had come before: never, once, twice, and so on; the last of it is that often or more.
type Waiting = [f64; TRIES];

/// With [`LINEAR`] waits of a second before those of [`BACKOFFS`] the eighth one is the longest of them.
const TRIES: usize = LINEAR + BACKOFFS.len();

/// So many waits of a second a client has more than in [`BACKOFFS`] before they double, five of them in all (Linux 6.5 and later:
/// `tcp_syn_linear_timeouts`).
const LINEAR: usize = 4;

/// So many windows after it was dropped a SYN comes again, by how often it had come before, where its time doubles (1, 3, 7 and 15 s after the
/// first one; Linux before 6.5, Windows, macOS), or began to double after [`LINEAR`].
pub(crate) const BACKOFFS: [u64; 4] =
    [RETRY_WINDOWS, 2 * RETRY_WINDOWS, 4 * RETRY_WINDOWS, 8 * RETRY_WINDOWS];

/// A timer of a second is up to 64 ms late: it comes then, or up to so many windows later.
pub(crate) const LATE_WINDOWS: u64 = 2;
/// One of any length by up to this part of it (`calc_wheel_index`: each level of the wheel is eight times as coarse as the one before).
const LATE_PART: u64 = 8;

/// Of those who would get through if they came one by one, so many do not as they come in bunches: the timers of who was dropped together run out
/// in the same tick of up to 64 ms, and a queue that is full most of the time has room for a few. Measured on 19 overloads of Apache that
/// retries kept alive: very long requests are told 1.02 times as many as the clients had, 0.95 to 1.09 (without it 1.15).
const BUNCHED: f64 = 0.3;
/// From this part of the attempts on that are dropped; where it is less the queue is full for moments, and proportionally fewer meet it full.
const BUNCHED_FROM: f64 = 0.2;

/// So many windows late a timer of so many may be.
pub(crate) fn late(after: u64) -> u64 {
    after / LATE_PART
}

impl DropCount {
    /// Adds a window's drops. The kernel side tells which of the last ACKs are of a connection that was dropped before. Of a SYN nobody sees
    /// whether it came before: as many come again as were dropped one second earlier, and of these as great a part is dropped again as of all
    /// attempts of the window, and more as they come in bunches ([`BUNCHED`]). Whose last ACK is dropped is accepted later: over an overload these
    /// are among those who are, and while nobody is they are all who got through.
    pub(crate) fn add(&mut self, window: u64, d: &Dropped) {
        if self.count == 0 {
            self.first = window;
        }
        self.last = window;
        self.count = self.count.saturating_add(d.drops);
        self.sk_drops = self.sk_drops.saturating_add(d.sk_drops);
        self.arrivals = self.arrivals.saturating_add(d.arrivals);
        self.depth_max = self.depth_max.max(d.depth);
        self.limit = self.limit.max(d.limit);
        if d.refused {
            self.refused = self.refused.saturating_add(d.drops);
            return;
        }
        if u64::from(d.depth) * 2 < u64::from(d.limit) {
            self.with_room = self.with_room.saturating_add(d.drops);
        }
        let acks = d.final_ack.saturating_sub(d.repeated);
        self.slow = self.slow.saturating_add(d.slow.min(d.final_ack));
        // Over all windows: the socket's counter is looked at some ms after a segment was dropped, maybe in the next one.
        self.last_acks = self.last_acks.saturating_add(d.final_ack);
        if d.final_ack > 0 {
            let first = if self.half_open.connections == 0 { window } else { self.half_open.first };
            self.half_open = HalfOpen { first, last: window, connections: d.final_ack };
        }
        let syns = [self.last_acks, self.syn_packets, self.refused]
            .into_iter()
            .fold(self.count, u64::saturating_sub);
        self.syn_packets = self.syn_packets.saturating_add(syns);
        let (syns, acks) = (syns as f64, acks as f64);
        let passed = acks.max(d.arrivals as f64);
        let attempts = (syns + passed).max(1.0);
        let come = self.come_again(window, attempts);
        let came: f64 = come.iter().sum();
        let part = syns / attempts;
        let bunched = BUNCHED * (part / BUNCHED_FROM).min(1.0);
        let lost = (came * (part + (1.0 - part) * bunched)).min(syns);
        let again = ((came - lost) / passed.max(1.0)).min(1.0);
        self.syns += syns - lost;
        self.acks += acks * (1.0 - again);
        self.acks_again += acks * again;
        let mut waits = Waiting::default();
        waits[0] = syns - lost;
        for (often, of) in come.iter().enumerate().filter(|(_, of)| **of > 0.0) {
            waits[(often + 1).min(TRIES - 1)] += of * lost / came;
        }
        self.waiting.insert(window, waits);
    }

    /// Takes those of dropped SYNs that come again in a window, of so many attempts in all.
    fn come_again(&mut self, window: u64, attempts: f64) -> Waiting {
        let longest = BACKOFFS[3].saturating_add(late(BACKOFFS[3]));
        self.waiting.retain(|at, _| at.saturating_add(longest) >= window);
        let (mut come, mut rest) = (Waiting::default(), attempts);
        // Who was dropped together comes together, and beside them few come for the first time: whoever may have come has, the oldest first.
        for (at, waits) in &mut self.waiting {
            for (often, left) in
                waits.iter_mut().enumerate().filter(|(often, _)| may_come(*at, *often, window))
            {
                let now = left.min(rest);
                *left -= now;
                rest -= now;
                come[often] += now;
            }
        }
        come
    }

    /// How many SYNs may come again in a window. Those that were dropped together come together, at some time of the late part of their wait: of each
    /// longer wait these are as many as were dropped in two windows next to each other.
    pub(crate) fn awaited(&self, window: u64) -> f64 {
        let left = |at: u64| -> f64 {
            let waits = self.waiting.get(&at).copied().unwrap_or_default();
            waits
                .iter()
                .enumerate()
                .filter(|(often, _)| may_come(at, *often, window))
                .map(|(_, left)| *left)
                .sum()
        };
        let of = |after: &u64| {
            let ago = (*after..=after + late(*after)).filter_map(|ago| window.checked_sub(ago));
            let each: Vec<f64> = ago.map(left).collect();
            if *after == RETRY_WINDOWS {
                return each.iter().sum();
            }
            each.windows(2).map(|two| two.iter().sum()).fold(0.0, f64::max)
        };
        BACKOFFS.iter().map(of).sum()
    }

    /// How many connections whose last ACK was dropped may be completed in a window. Both sides wait twice as long each time, a client for its
    /// first bytes to be acknowledged and a server for its SYN-ACK (`tcp_retransmit_timer`, `reqsk_timer_handler`), and so they come about as
    /// long after they were dropped last as that was after the first time.
    pub(crate) fn completes(&self, window: u64) -> u64 {
        let HalfOpen { first, last, connections } = self.half_open;
        let (tried, since) = (last.saturating_sub(first), window.saturating_sub(last));
        let early = tried.saturating_sub(tried / 4).max(1);
        let late = tried.saturating_add(RETRY_WINDOWS).saturating_add(LATE_WINDOWS);
        if (early..=late).contains(&since) { connections } else { 0 }
    }

    /// Dropped SYNs so far.
    pub(crate) fn syn_packets(&self) -> u64 {
        self.syn_packets
    }

    /// Estimate of the distinct connection attempts behind the packets.
    pub(crate) fn connections(&self) -> u64 {
        ((self.syns + self.acks).round() as u64).saturating_add(self.refused)
    }

    /// Estimate of those that had to wait for a second or longer: whose SYN was dropped, and the others that were asked for so long before.
    pub(crate) fn very_long(&self) -> u64 {
        (self.syns + (self.slow as f64 - self.acks_again).max(0.0)).round() as u64
    }

    /// What most of them were dropped for: those whom a flood shut out all come at its end, and fill the accept queue then.
    pub(crate) fn reason(&self) -> DropReason {
        if self.refused > 0 {
            DropReason::Refused
        } else if self.with_room > self.count / 2 {
            DropReason::SynQueueFull
        } else if self.limit > 0 && self.depth_max >= self.limit {
            DropReason::AcceptQueueFull
        } else {
            DropReason::Other
        }
    }
}

/// Whether a SYN that was dropped in window `at`, and had come so often before, may come again in `window`.
fn may_come(at: u64, often: usize, window: u64) -> bool {
    let due = |after: &u64| (*after..=after + late(*after)).contains(&window.saturating_sub(at));
    let linear = || often.checked_sub(LINEAR).and_then(|doubled| BACKOFFS.get(doubled)).is_some_and(due);
    due(&RETRY_WINDOWS) || BACKOFFS.get(often).is_some_and(due) || linear()
}

/// What each listener dropped.
pub(crate) type DropCounts = BTreeMap<(TierKey, EntityId), DropCount>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::fixture;

    fn of(drops: u64, final_ack: u64, repeated: u64, slow: u64, arrivals: u64) -> Dropped {
        Dropped { slow, arrivals, depth: 129, limit: 128, ..fixture::dropped(drops, final_ack, repeated) }
    }

    /// Windows with what was dropped in them; then what was dropped, how many connections that were, and how many waited for a second.
    fn check(windows: &[(u64, Dropped)], expect: (u64, u64, u64)) {
        let mut drops = DropCount::default();
        windows.iter().for_each(|(window, dropped)| drops.add(*window, dropped));
        assert_eq!((drops.count, drops.connections(), drops.very_long()), expect, "{windows:?}");
    }

    #[test]
    fn retries_are_not_new_connections() {
        let syns = |n| of(n, 0, 0, 0, 0);
        check(&[(100, syns(50)), (101, syns(72))], (122, 122, 122));
        check(&[(100, syns(50)), (110, syns(50))], (100, 100, 100));
        // All of them come again, in two windows, and nothing else does.
        check(&[(100, syns(50)), (120, syns(25)), (121, syns(25))], (100, 50, 50));
        // All of them come again, find room for their SYN, and none for their last ACK: once soon, and once half a second later.
        check(&[(100, syns(50)), (121, of(50, 50, 0, 0, 3)), (131, of(50, 50, 50, 50, 0))], (150, 50, 50));
        // The same ones after 1, 3, 7 and 15 s, where a client waits twice as long each time; nobody waits for three seconds at first.
        let back_off = [(100, syns(50)), (120, syns(50)), (160, syns(50)), (241, syns(50)), (402, syns(50))];
        check(&back_off, (250, 50, 50));
        check(&[(100, syns(50)), (160, syns(50))], (100, 100, 100));
        // Six times a second apart, then after 2 and 4 s, as a newer Linux sends them; who was dropped twice does not wait for 3 s.
        let linear = [100, 120, 140, 160, 181, 201, 242, 323].map(|window| (window, syns(50)));
        check(&linear, (400, 50, 50));
        check(&[(100, syns(50)), (120, syns(50)), (180, syns(50))], (150, 100, 100));
        // A steady overflow that lets half of what comes in: of 40 a window, half of them retries, 13 are dropped retries.
        let windows: Vec<_> = (100..130).map(|w| (w, of(20, 0, 0, 0, 20))).collect();
        check(&windows, (600, 600 - 10 * 13, 600 - 10 * 13));
    }

    #[test]
    fn whose_last_ack_was_dropped_completes_after_as_long_again() {
        let mut drops = DropCount::default();
        assert_eq!(drops.completes(100), 0);
        for (window, last_acks) in [(100, 304), (105, 158), (109, 102), (118, 67), (134, 32)] {
            drops.add(window, &of(last_acks, last_acks, last_acks, 0, 40));
        }
        drops.add(135, &of(9, 0, 0, 0, 40));
        let completes: Vec<u64> = (130..200).filter(|window| drops.completes(*window) == 32).collect();
        assert_eq!((completes[0], completes.last().copied()), (134 + 26, Some(134 + 34 + 22)));
        assert_eq!(drops.completes(159), 0);
    }

    #[test]
    fn last_acks_wait_only_if_it_goes_on() {
        check(&[(100, of(7, 3, 0, 0, 0))], (7, 7, 4));
        check(&[(100, of(4, 4, 0, 0, 0)), (104, of(4, 4, 4, 0, 0)), (112, of(1, 1, 1, 1, 9))], (9, 4, 1));
        // Counted a window later than they were dropped.
        check(&[(100, of(2, 4, 0, 0, 0)), (101, of(6, 2, 0, 0, 0))], (8, 8, 2));
        check(&[(100, of(10, 99, 99, 99, 0))], (10, 0, 99));
        let most = u64::MAX;
        let absurd = of(most, most, most, most, most);
        let mut drops = DropCount::default();
        drops.add(most, &absurd);
        drops.add(most, &of(most, 0, 0, 0, 0));
        assert_eq!(drops.count, most);
    }

    #[test]
    fn whoever_was_refused_neither_comes_again_nor_waits() {
        let refused = |n| Dropped { refused: true, ..of(n, 0, 0, 0, 40) };
        let windows: Vec<_> = (100..140).map(|w| (w, refused(10))).collect();
        check(&windows, (400, 400, 0));
        let mut drops = DropCount::default();
        drops.add(1, &Dropped { depth: 3, ..refused(7) });
        assert_eq!(drops.reason(), DropReason::Refused, "wherever the queue was seen");
        assert_eq!(drops.syn_packets(), 0);
        drops.add(2, &of(u64::MAX, 0, 0, 0, 0));
        assert_eq!(drops.syn_packets(), u64::MAX - 7, "what is refused is no SYN");
    }

    #[test]
    fn the_reason_follows_the_depth() {
        let reason = |depth, limit| {
            let mut drops = DropCount::default();
            drops.add(1, &Dropped { depth, limit, ..of(1, 0, 0, 0, 0) });
            drops.reason()
        };
        assert_eq!(reason(129, 128), DropReason::AcceptQueueFull);
        assert_eq!(reason(3, 128), DropReason::SynQueueFull);
        assert_eq!(reason(100, 128), DropReason::Other);
        assert_eq!(reason(0, 0), DropReason::Other);
        let after_a_flood = |room, full| {
            let mut drops = DropCount::default();
            drops.add(1, &Dropped { depth: 3, ..of(room, 0, 0, 0, 0) });
            drops.add(9, &of(full, 0, 0, 0, 0));
            drops.reason()
        };
        assert_eq!(after_a_flood(300, 200), DropReason::SynQueueFull);
        assert_eq!(after_a_flood(200, 300), DropReason::AcceptQueueFull);
    }
}

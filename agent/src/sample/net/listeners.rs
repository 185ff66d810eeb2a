//! From listener records to accept-queue and request samples. Owns the arithmetic that needs several records or levels; knows no
//! map but its own.

use super::multiplexed::{self, Held};
use super::slots::{Slots, may_leave};
use super::unix::Paths;
use crate::attach::loader::{LoadError, LoadedObject, LogNames, log_names};
use crate::attach::mapping::Mapping;
use crate::attach::ring::Level;
use crate::attach::window_log::{Log, LogShape};
use crate::window::{AcceptQueueSample, CgroupId, ListenerKey, RequestSample, WindowIndex};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tailwater_ebpf::net::{ListenerLevel, ListenerName, ListenerRecord, listener_edge as edge};

type Samples<T> = Vec<(ListenerKey, T)>;
/// What Unix sockets are bound to, by the address that stands for each.
type Named = Vec<(Ipv6Addr, Arc<str>)>;

pub(super) const LOG: LogNames = log_names!("listener_log");

/// The listeners' log.
pub(super) struct Listeners {
    log: Log<ListenerRecord>,
    levels: Levels,
    paths: Paths,
    slots: Slots<ListenerName>,
    entities: u32,
    /// Windows after which the slot of a listener that is closed may be another's.
    kept_windows: u64,
    /// Per slot: accepts that a window counted before their push was seen, see [`accepts`].
    ahead: Vec<u64>,
    held: Vec<Held>,
}

impl Listeners {
    pub(super) fn open(
        object: &mut LoadedObject,
        shape: LogShape,
        kept_windows: u64,
    ) -> Result<Self, LoadError> {
        let entities = shape.entities;
        Ok(Self {
            log: object.log(&LOG, shape)?,
            levels: Levels::open(object, entities)?,
            paths: Paths::open(object, entities)?,
            slots: Slots::open(object, ["listener_names", "listener_slots", "listener_free"], entities)?,
            entities,
            kept_windows,
            ahead: vec![0; entities as usize],
            held: vec![Held::default(); entities as usize],
        })
    }

    /// Size of the map of levels.
    pub(super) fn levels_bytes(&self) -> usize {
        levels_bytes(self.entities)
    }

    /// Who a slot is; the key of the rest for a slot that nobody has.
    pub(super) fn key(&mut self, slot: u32) -> ListenerKey {
        key(&self.slots.name(slot).unwrap_or_default())
    }

    /// The same; `None` for a slot that nobody has any more.
    pub(super) fn named(&mut self, slot: u32) -> Option<ListenerKey> {
        self.slots.name_in_use(slot).map(|name| key(&name))
    }

    /// How many threads were seen that read requests of a slot.
    pub(super) fn readers(&self, slot: u32) -> u32 {
        self.levels.of(slot).workers_seen
    }

    pub(super) fn known(&mut self) -> Vec<(ListenerKey, u32)> {
        (1..self.entities)
            .filter_map(|slot| {
                let sockets = self.levels.of(slot).sockets;
                Some((key(&self.slots.name(slot)?), sockets))
            })
            .filter(|(_, sockets)| *sockets > 0)
            .collect()
    }

    pub(super) fn lapped(&self) -> u64 {
        self.log.lapped()
    }

    /// Whether nothing of the window was lost; it was drained.
    pub(super) fn is_whole(&mut self, window: WindowIndex) -> bool {
        let whole = !self.log.is_blind(window.0);
        if !whole {
            self.ahead.fill(0);
        }
        whole
    }

    pub(super) fn skip_to(&mut self, first: WindowIndex) {
        self.log.skip_to(first.0);
        self.ahead.fill(0);
    }

    /// With what Unix sockets among them are bound to.
    pub(super) fn drain(
        &mut self,
        window: WindowIndex,
    ) -> (Samples<AcceptQueueSample>, Samples<RequestSample>, Named) {
        let (mut queues, mut requests, mut paths) = (Vec::new(), Vec::new(), Vec::new());
        for slot in 0..self.entities {
            let release = slot != 0 && may_leave(slot, window);
            if !release && self.log.quiet(slot, window.0) {
                continue;
            }
            let Some(name) = self.slots.name(slot) else { continue };
            let mut levels = [Level::default(); edge::COUNT];
            let mut sum = Sum::default();
            let any = self.log.drain(slot, window.0, &mut levels, |r| sum.add(r));
            let now = self.levels.of(slot);
            if any || levels.iter().any(|l| l.start != 0 || l.end != 0) {
                let ahead = &mut self.ahead[slot as usize];
                queues.push((key(&name), sum.accept_queue(&levels, &now, ahead)));
                let seen_max = sum.requests.multiplexed.connections;
                let connections = self.held[slot as usize].most(window.0, seen_max, now.multiplexed);
                requests.push((key(&name), sum.requests(&levels, &now, connections)));
                paths.extend(self.paths.of(slot, &name));
            }
            if release {
                let idle = now.sockets == 0 && now.levels.iter().all(|l| *l == 0);
                let newest = idle.then(|| self.log.newest(slot));
                self.slots.release(slot, window.0, newest, self.kept_windows);
            }
        }
        (queues, requests, paths)
    }
}

/// Levels over all CPUs, by slot.
pub(super) struct Levels(pub(super) Mapping);

impl Levels {
    pub(super) fn open(object: &mut LoadedObject, entities: u32) -> Result<Self, LoadError> {
        Ok(Self(object.mapping("listener_levels", levels_bytes(entities))?))
    }

    /// Before whatever is read after it: sums are added to after a level has changed.
    pub(super) fn of(&self, slot: u32) -> ListenerLevel {
        let first = slot as usize * ListenerLevel::WORDS;
        ListenerLevel::decode(std::array::from_fn(|i| self.0.word(first + i).load(Ordering::Acquire)))
    }
}

fn key(name: &ListenerName) -> ListenerKey {
    ListenerKey {
        netns: name.at.netns,
        address: Ipv6Addr::from(name.at.address),
        port: name.at.port,
        owner: CgroupId(name.owner_cgroup),
        pid: name.owner_pid,
    }
}

/// One listener's records of one window, over all copies.
#[derive(Debug, Default)]
struct Sum {
    queue: AcceptQueueSample,
    requests: RequestSample,
}

impl Sum {
    fn add(&mut self, r: &ListenerRecord) {
        let q = &mut self.queue;
        q.arrivals += u64::from(r.arrivals);
        q.drops += u64::from(r.drops);
        q.drops_final_ack += u64::from(r.drops_final_ack);
        q.drops_cookie += u64::from(r.drops_cookie);
        q.drops_repeated += u64::from(r.drops_repeated);
        q.drops_slow += u64::from(r.drops_slow);
        q.syn_ack_retransmits += u64::from(r.syn_ack_retransmits);
        q.depth_max = q.depth_max.max(r.depth_max);
        q.limit = q.limit.max(r.limit);
        q.wait_max_ns = q.wait_max_ns.max(r.wait_max_ns);
        let t = &mut self.requests;
        t.received += u64::from(r.received);
        t.answered += u64::from(r.answered);
        t.aborted += u64::from(r.aborted);
        t.late += u64::from(r.late);
        t.very_late += u64::from(r.very_late);
        t.very_long_retried += u64::from(r.very_long_retried);
        t.very_long_queued += u64::from(r.very_long_queued);
        t.very_long_unread += u64::from(r.very_long_unread);
        t.very_long_inside += u64::from(r.very_long_inside);
        t.in_flight_max = t.in_flight_max.max(r.in_flight_max);
        t.unread_max = t.unread_max.max(r.unread_max);
        t.workers_busy_max = t.workers_busy_max.max(r.busy_max);
        t.worker_shared_max = t.worker_shared_max.max(r.shared_max);
        t.open_max = t.open_max.max(r.open_max);
        t.multiplexed.pieces_in += u64::from(r.pieces_in);
        t.multiplexed.pieces_read += u64::from(r.pieces_read);
        t.multiplexed.pieces_out += u64::from(r.pieces_out);
        t.multiplexed.bytes_in += r.bytes_in;
        t.multiplexed.bytes_out += r.bytes_out;
        t.multiplexed.connections = t.multiplexed.connections.max(r.multiplexed_max);
        t.multiplexed.unanswered_max = t.multiplexed.unanswered_max.max(r.unanswered_max);
        t.response_ns += r.response_ns;
        t.response_max_ns = t.response_max_ns.max(r.response_max_ns);
        for (sum, n) in t.response_hist.iter_mut().zip(r.response_hist) {
            *sum += n;
        }
    }

    fn accept_queue(
        &self,
        levels: &[Level; edge::COUNT],
        now: &ListenerLevel,
        ahead: &mut u64,
    ) -> AcceptQueueSample {
        let depth = levels[edge::DEPTH];
        let mut sample = self.queue;
        sample.depth_last = count(depth.end);
        sample.depth_max = depth.max_with(sample.depth_max);
        sample.depth_ns = depth.ns();
        if sample.limit == 0 {
            sample.limit = now.limit;
        }
        sample.accepts = accepts(sample.arrivals, depth.end - depth.start, ahead);
        sample
    }

    fn requests(
        &self,
        levels: &[Level; edge::COUNT],
        now: &ListenerLevel,
        connections: u32,
    ) -> RequestSample {
        let [depth, queued, open, unanswered, in_flight, unread, busy] = *levels;
        // Bytes that came before accept(2), and nobody read: at most `depth` of those connections can still be in the queue.
        let waiting = |at: fn(&Level) -> i64| count(at(&unread) + (at(&queued) - at(&depth)).max(0));
        // A connection with streams may have many requests. How many are open of a Unix socket is not told.
        let in_use = |at: fn(&Level) -> i64| match at(&open) {
            0 => at(&in_flight),
            open => at(&in_flight).min(open),
        };
        // The depth was last seen up to a tick ago; a connection with a request was accepted for certain.
        let accepted = |at: fn(&Level) -> i64| count((at(&open) - at(&depth)).max(in_use(at)));
        let mut sample = self.requests;
        sample.in_flight_last = count(in_flight.end);
        sample.in_flight_max = in_flight.max_with(sample.in_flight_max);
        sample.in_flight_ns = in_flight.ns();
        sample.unread_max = sample.unread_max.max(waiting(|l| l.start));
        sample.unread_ns = unread.ns() + queued.ns().saturating_sub(depth.ns());
        sample.workers_busy_max = busy.max_with(sample.workers_busy_max);
        sample.workers_busy_ns = busy.ns();
        sample.workers_seen = now.workers_seen;
        multiplexed::settle(&mut sample.multiplexed, connections, &unanswered);
        sample.open_last = accepted(|l| l.end);
        sample.open_max = sample.open_max.max(accepted(|l| l.start)).max(sample.open_last);
        sample
    }
}

fn count(level: i64) -> u32 {
    u32::try_from(level.max(0)).unwrap_or(u32::MAX)
}

/// What left the queue is what came minus what stayed. A connection is counted as it arrives and the depth a moment later: where
/// a window ends between the two, it seems to be accepted at once, and the next window would owe it. `ahead` carries that over.
fn accepts(arrivals: u64, depth_change: i64, ahead: &mut u64) -> u64 {
    let arrivals = i64::try_from(arrivals).unwrap_or(i64::MAX);
    let left =
        arrivals.saturating_sub(depth_change).saturating_sub(i64::try_from(*ahead).unwrap_or(i64::MAX));
    *ahead = left.min(0).unsigned_abs();
    left.max(0).unsigned_abs()
}

fn levels_bytes(entities: u32) -> usize {
    entities as usize * ListenerLevel::WORDS * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_are_never_negative_and_never_lost() {
        let mut ahead = 0;
        let seen: Vec<u64> = [(3, 1), (1, 0), (0, 1), (0, 0), (5, -2)]
            .iter()
            .map(|(arrivals, change)| accepts(*arrivals, *change, &mut ahead))
            .collect();
        assert_eq!(seen, [2, 1, 0, 0, 6]);
        assert_eq!(seen.iter().sum::<u64>(), 9, "9 came and 0 stayed");
        assert_eq!(ahead, 0);
    }

    #[test]
    fn connections_in_the_accept_queue_are_neither_accepted_nor_unread() {
        let mut levels = [Level::default(); edge::COUNT];
        let of = |n: i64| Level { start: n, end: n, integral_ns: n * 50_000_000 };
        levels[edge::DEPTH] = of(3);
        levels[edge::OPEN] = of(10);
        levels[edge::UNREAD] = of(1);
        levels[edge::UNREAD_QUEUED] = of(5);
        let sample = Sum::default().requests(&levels, &ListenerLevel::default(), 0);
        assert_eq!((sample.open_last, sample.open_max), (7, 7));
        assert_eq!((sample.unread_max, sample.unread_ns), (3, 150_000_000));
    }

    #[test]
    fn connections_are_as_many_as_have_a_request_and_no_more_than_are_open() {
        let open_last = |open: i64, in_flight: i64| {
            let mut levels = [Level::default(); edge::COUNT];
            let of = |n: i64| Level { start: n, end: n, integral_ns: n * 50_000_000 };
            levels[edge::DEPTH] = of(3.min(open));
            levels[edge::OPEN] = of(open);
            levels[edge::IN_FLIGHT] = of(in_flight);
            Sum::default().requests(&levels, &ListenerLevel::default(), 0).open_last
        };
        assert_eq!([open_last(10, 0), open_last(10, 9)], [7, 9]);
        assert_eq!(open_last(10, 200), 10, "streams");
        assert_eq!(open_last(0, 5), 5, "a Unix socket");
    }
}

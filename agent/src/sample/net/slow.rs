//! Requests that took long, with the calls that their threads waited for meanwhile, from the turns that the kernel side tells of. Owns which calls are
//! whose and how many requests are told; knows neither who a slot is nor who has the other end of a connection.
//!
//! A thread that has one request at a time waits for nobody else's calls. One that has several (an event loop), or that others take turns on (goroutines, the
//! tasks of an async runtime: some request of that server was answered by another thread than had read it), shows whose a call is only where it was sent as
//! soon as the request had been read, by the thread that read it and with no other read in between, and where the answer went out as soon as that of the
//! call was there.

use crate::attach::loader::{LoadError, LoadedObject};
use crate::window::{EdgeKey, ListenerKey, SlowCall, SlowRequest, WINDOW_NS, WindowIndex};
use aya::maps::{MapData, RingBuf};
use std::collections::{HashMap, HashSet, VecDeque};
use tailwater_ebpf::net::{SLOT_OTHER, SlowTurn, slow, waited};

/// Calls that are kept until the request ends that they belong to, and requests that others are held against; …
const KEPT_MAX: usize = 4_096;
/// … for so long (two minutes): whoever waits longer has no client any more.
const KEPT_NS: u64 = 120_000_000_000;
/// Requests of a listener that are told at once. After that two more with each window: 40 a second.
const TOLD_AT_ONCE: u64 = 120;
const TOLD_AGAIN: u64 = 2;
/// Requests that are told of one window.
const TOLD_MAX: usize = 128;
/// Calls that are told of one request.
const CALLS_MAX: usize = 8;
/// What a thread with several requests sends so soon after it read one it sends for that one, …
const SENT_AT_ONCE_NS: u64 = 1_000_000;
/// … and what it answers so soon after the answer of a call it answers with that.
const ANSWERED_AT_ONCE_NS: u64 = 5_000_000;
/// By so much the end of a call may be after that of the request that it is of: an answer has the time of its segment, which is sent a moment before.
const MOMENT_NS: u64 = 1_000_000;

/// Turns that took long.
pub(super) struct Slow {
    turns: RingBuf<MapData>,
    requests: Requests,
    /// Turns that the kernel side had no room for, when it was looked last.
    lost: u64,
    /// Unix time minus CLOCK_MONOTONIC.
    epoch_offset_ns: i64,
}

impl Slow {
    pub(super) fn open(object: &mut LoadedObject, epoch_offset_ns: i64) -> Result<Self, LoadError> {
        const MAP: &str = "slow_turns";
        let turns = RingBuf::try_from(object.take_map(MAP)?).map_err(|e| object.map_error(MAP, e))?;
        Ok(Self { turns, requests: Requests::default(), lost: 0, epoch_offset_ns })
    }

    /// Requests that were left out, so far.
    pub(super) fn left_out(&self) -> u64 {
        self.requests.left_out
    }

    pub(super) fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.epoch_offset_ns = offset_ns;
    }

    /// Requests that ended in a window, or before, and were not told. `lost`: how many turns the kernel side had no room for, so far. `listener` and `edge` say
    /// who a slot is.
    pub(super) fn drain(
        &mut self,
        window: WindowIndex,
        lost: u64,
        listener: impl FnMut(u32) -> Option<ListenerKey>,
        edge: impl FnMut(u32) -> Option<EdgeKey>,
    ) -> Vec<SlowRequest> {
        while let Some(item) = self.turns.next() {
            if let Some(turn) = SlowTurn::decode(&item) {
                self.requests.take(turn);
            }
        }
        let end_unix_ns = window.0.saturating_add(1).saturating_mul(WINDOW_NS);
        let end_ns = end_unix_ns.saturating_add_signed(self.epoch_offset_ns.saturating_neg());
        if std::mem::replace(&mut self.lost, lost) != lost {
            self.requests.gone_until_ns = end_ns;
        }
        self.requests.told(end_ns, listener, edge)
    }
}

/// Requests and calls, until what they belong to is told.
#[derive(Debug, Default)]
struct Requests {
    /// Not told yet.
    ended: Vec<SlowTurn>,
    /// Told, for those that their threads had at the same time.
    before: VecDeque<SlowTurn>,
    calls: VecDeque<SlowTurn>,
    /// Of calls that ended until then some are not known any more.
    gone_until_ns: u64,
    /// Listeners of which a request was answered by another thread than had read it.
    moving: HashSet<u32>,
    budgets: Budgets,
    left_out: u64,
}

impl Requests {
    fn take(&mut self, turn: SlowTurn) {
        if turn.of != slow::REQUEST {
            self.calls.push_back(turn);
        } else if self.ended.len() < KEPT_MAX {
            self.ended.push(turn);
        } else {
            self.left_out += 1;
        }
    }

    fn told(
        &mut self,
        end_ns: u64,
        mut listener: impl FnMut(u32) -> Option<ListenerKey>,
        mut edge: impl FnMut(u32) -> Option<EdgeKey>,
    ) -> Vec<SlowRequest> {
        let (mut due, later): (Vec<SlowTurn>, _) =
            std::mem::take(&mut self.ended).into_iter().partition(|r| r.ended_ns < end_ns);
        self.ended = later;
        let mut told = Vec::new();
        let moved = due.iter().filter(|r| ended_by(r) != 0 && ended_by(r) != r.began_by);
        self.moving.extend(moved.map(|r| r.slot));
        due.sort_by_key(|r| std::cmp::Reverse(r.ended_ns.saturating_sub(r.arrived_ns)));
        if !due.is_empty() {
            let by: HashSet<u32> = due.iter().map(|r| r.began_by).filter(|thread| *thread != 0).collect();
            let requests = by_thread(due.iter().chain(&self.ended).chain(&self.before), &by);
            let calls = by_thread(&self.calls, &by);
            for request in &due {
                let has_room = told.len() < TOLD_MAX && self.budgets.may(request.slot, end_ns / WINDOW_NS);
                let of = if request.slot == SLOT_OTHER { None } else { listener(request.slot) };
                let Some(of) = of.filter(|_| has_room) else {
                    self.left_out += 1;
                    continue;
                };
                let of_thread = |all| of_thread(all, request.began_by);
                let is_known = request.began_by != 0 && request.began_ns >= self.gone_until_ns;
                let moves = self.moving.contains(&request.slot);
                let own = if is_known {
                    own_calls(request, moves, of_thread(&requests), of_thread(&calls))
                } else {
                    None
                };
                told.push(found(request, of, end_ns, own, &mut edge));
            }
        }
        self.before.extend(due);
        self.forget(end_ns);
        told
    }

    /// What is too old, or too much.
    fn forget(&mut self, now_ns: u64) {
        let is_old = |turn: &SlowTurn| turn.ended_ns.saturating_add(KEPT_NS) < now_ns;
        while self.before.len() > KEPT_MAX || self.before.front().is_some_and(is_old) {
            self.before.pop_front();
        }
        while self.calls.len() > KEPT_MAX || self.calls.front().is_some_and(is_old) {
            let gone_ns = self.calls.pop_front().map_or(0, |call| call.ended_ns);
            self.gone_until_ns = self.gone_until_ns.max(gone_ns);
        }
    }
}

/// How many may be told of each listener: by its slot a point in time that each of them moves on by a part of a window, and that may not be further ahead than
/// [`TOLD_AT_ONCE`] of them.
#[derive(Debug, Default)]
struct Budgets(HashMap<u32, u64>);

impl Budgets {
    /// Takes one.
    fn may(&mut self, slot: u32, window: u64) -> bool {
        let until = self.0.entry(slot).or_default();
        let now = window.saturating_mul(TOLD_AGAIN);
        let next = (*until).max(now) + 1;
        let may = next <= now + TOLD_AT_ONCE;
        if may {
            *until = next;
        }
        may
    }
}

/// Those of these threads.
fn by_thread<'a>(
    turns: impl IntoIterator<Item = &'a SlowTurn>,
    threads: &HashSet<u32>,
) -> HashMap<u32, Vec<SlowTurn>> {
    let mut by: HashMap<u32, Vec<SlowTurn>> = HashMap::new();
    for turn in turns.into_iter().filter(|turn| threads.contains(&turn.began_by)) {
        by.entry(turn.began_by).or_default().push(*turn);
    }
    by
}

fn of_thread(all: &HashMap<u32, Vec<SlowTurn>>, thread: u32) -> &[SlowTurn] {
    all.get(&thread).map_or(&[], Vec::as_slice)
}

/// Of the calls of its thread those that a request waited for, in order of time; `None`: that is not known. `moves`: requests of its listener move from thread
/// to thread. `requests`: those that its thread read.
fn own_calls(
    request: &SlowTurn,
    moves: bool,
    requests: &[SlowTurn],
    calls: &[SlowTurn],
) -> Option<Vec<SlowTurn>> {
    let others = || requests.iter().filter(|other| *other != request);
    let within = |call: &&SlowTurn| {
        call.began_ns.saturating_add(MOMENT_NS) >= request.began_ns
            && call.ended_ns <= request.ended_ns.saturating_add(MOMENT_NS)
    };
    let mut own: Vec<SlowTurn> = calls.iter().filter(within).copied().collect();
    own.sort_by_key(|call| call.began_ns);
    let overlaps = |other: &SlowTurn| other.began_ns < request.ended_ns && request.began_ns < other.ended_ns;
    if !moves && request.shared == 0 && !others().any(overlaps) {
        return Some(own);
    }
    let read_between = |call: &SlowTurn| {
        others().any(|other| other.began_ns > request.began_ns && other.began_ns <= call.began_ns)
    };
    own.retain(|call| {
        call.began_ns.saturating_sub(request.began_ns) <= SENT_AT_ONCE_NS
            && request.ended_ns.saturating_sub(call.ended_ns) <= ANSWERED_AT_ONCE_NS
            && !read_between(call)
            && (ended_by(call) == 0 || ended_by(request) == 0 || ended_by(call) == ended_by(request))
    });
    // Two at once may be of two requests that were read together.
    (own.len() == 1).then_some(own)
}

/// The thread that ended it. Whoever closes a connection may be anybody, and the opening of one ends in the network's interrupt.
fn ended_by(turn: &SlowTurn) -> u32 {
    if turn.aborted != 0 || turn.of == slow::CONNECT { 0 } else { turn.ended_by }
}

fn found(
    request: &SlowTurn,
    listener: ListenerKey,
    end_ns: u64,
    own: Option<Vec<SlowTurn>>,
    edge: &mut impl FnMut(u32) -> Option<EdgeKey>,
) -> SlowRequest {
    let retried_ns = match request.established_ns {
        0 => 0,
        // As very_long_into() of net_connection.h.
        at if at < request.began_ns => at.saturating_sub(request.arrived_ns),
        _ => 0,
    };
    let waited_ns = request.began_ns.saturating_sub(request.arrived_ns);
    let mut calls_left_out = 0;
    let calls = own.map(|own| {
        let mut calls: Vec<SlowCall> = Vec::new();
        for turn in own {
            let named = if turn.slot == SLOT_OTHER { None } else { edge(turn.slot) };
            match named.filter(|_| calls.len() < CALLS_MAX) {
                None => calls_left_out += 1,
                Some(edge) => calls.push(SlowCall {
                    edge,
                    pair: turn.pair(),
                    after_ns: turn.began_ns.saturating_sub(request.began_ns),
                    took_ns: turn.ended_ns.saturating_sub(turn.began_ns),
                    connecting: turn.of == slow::CONNECT,
                    aborted: turn.aborted != 0,
                }),
            }
        }
        calls
    });
    SlowRequest {
        listener,
        pair: request.pair(),
        ended_ago_ns: end_ns.saturating_sub(request.ended_ns),
        retried_ns,
        unread_ns: waited_ns.saturating_sub(retried_ns),
        queued: request.waited_as == waited::QUEUED,
        inside_ns: request.ended_ns.saturating_sub(request.began_ns),
        aborted: request.aborted != 0,
        calls,
        calls_left_out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::CgroupId;
    use std::net::Ipv6Addr;

    const MS: u64 = 1_000_000;

    /// A request of listener 1 that thread `by` read and answered.
    fn request(by: u32, [arrived, read, ended]: [u64; 3]) -> SlowTurn {
        SlowTurn {
            cookie: u64::from(by),
            arrived_ns: arrived * MS,
            began_ns: read * MS,
            ended_ns: ended * MS,
            slot: 1,
            began_by: by,
            ended_by: by,
            ..SlowTurn::default()
        }
    }

    /// A call of the edge to port `slot`.
    fn call(by: u32, slot: u32, [began, ended]: [u64; 2]) -> SlowTurn {
        let (began_ns, ended_ns) = (began * MS, ended * MS);
        SlowTurn {
            began_ns,
            ended_ns,
            slot,
            began_by: by,
            ended_by: by,
            of: slow::CALL,
            ..SlowTurn::default()
        }
    }

    fn listener(slot: u32) -> Option<ListenerKey> {
        let (netns, address, pid) = (1, Ipv6Addr::LOCALHOST, 1);
        let port = u16::try_from(slot).ok()?;
        Some(ListenerKey { netns, address, port, owner: CgroupId(1), pid })
    }

    fn edge(slot: u32) -> Option<EdgeKey> {
        let remote_port = u16::try_from(slot).ok()?;
        Some(EdgeKey { workload: CgroupId(1), netns: 1, remote_address: Ipv6Addr::LOCALHOST, remote_port })
    }

    fn told(turns: &[SlowTurn], end_ms: u64) -> Vec<SlowRequest> {
        let mut requests = Requests::default();
        turns.iter().for_each(|turn| requests.take(*turn));
        requests.told(end_ms * MS, listener, edge)
    }

    /// Of a request how long it took inside, and ports and times of its calls.
    type Short = (u64, Option<Vec<(u16, u64)>>);

    fn short(told: &[SlowRequest]) -> Vec<Short> {
        let call = |c: &SlowCall| (c.edge.remote_port, c.took_ns / MS);
        let calls = |r: &SlowRequest| r.calls.as_ref().map(|all| all.iter().map(call).collect());
        told.iter().map(|r| (r.inside_ns / MS, calls(r))).collect()
    }

    #[test]
    fn a_thread_with_one_request_at_a_time_waits_for_its_own_calls() {
        let all = [
            call(7, 90, [900, 1_200]), // of the request before
            call(7, 91, [2_010, 2_310]),
            call(8, 95, [2_010, 2_310]),
            call(7, 92, [2_320, 2_620]),
            request(7, [1_980, 2_000, 2_640]),
        ];
        let found = told(&all, 2_650);
        assert_eq!(short(&found), [(640, Some(vec![(91, 300), (92, 300)]))]);
        let first = &found[0];
        assert_eq!((first.unread_ns / MS, first.retried_ns, first.ended_ago_ns / MS), (20, 0, 10));
        assert_eq!(first.calls.as_ref().unwrap()[1].after_ns / MS, 320);
        assert_eq!(told(&all, 2_640), [], "it had not ended yet");
        let unknown = SlowTurn { began_by: 0, ..all[4] };
        assert_eq!(short(&told(&[unknown], 2_650)), [(640, None)]);
    }

    #[test]
    fn what_a_thread_with_several_requests_sent_at_once_is_of_the_one_that_it_read() {
        let loop_of = |second: u64| {
            [
                call(7, 91, [1_001, 1_500]),
                call(7, 92, [second + 1, second + 600]),
                request(7, [1_000, 1_000, 1_501]),
                request(7, [second, second, second + 601]),
            ]
        };
        let apart = [(601, Some(vec![(92, 599)])), (501, Some(vec![(91, 499)]))];
        assert_eq!(short(&told(&loop_of(1_100), 2_000)), apart);
        let mut together = loop_of(1_000);
        (together[1].ended_ns, together[3].ended_ns, together[3].cookie) = (1_500 * MS, 1_501 * MS, 8);
        assert_eq!(short(&told(&together, 2_000))[1], (501, None), "which of two is not known");
        let mut late = loop_of(1_100);
        late[0].began_ns += 20 * MS;
        assert_eq!(short(&told(&late, 2_000))[1], (501, None));
        let mut elsewhere = loop_of(1_100);
        elsewhere[0].ended_by = 9;
        assert_eq!(short(&told(&elsewhere, 2_000))[1], (501, None));
        elsewhere[0].of = slow::CONNECT;
        assert_eq!(
            short(&told(&elsewhere, 2_000))[1],
            (501, Some(vec![(91, 499)])),
            "it ends in an interrupt"
        );
        // Goroutines: thread 7 reads one request, and sends a call of another one that thread 8 had read.
        let moved = SlowTurn { ended_by: 7, ..request(8, [1_000, 1_000, 1_700]) };
        let taken = [call(7, 91, [1_050, 1_300]), request(7, [1_000, 1_000, 1_501]), moved];
        assert_eq!(short(&told(&taken, 2_000)), [(700, None), (501, None)]);
        assert_eq!(short(&told(&taken[..2], 2_000)), [(501, Some(vec![(91, 250)]))], "a pool of threads");
        // The other one is still under way, and its thread had both.
        let alone =
            [call(7, 91, [1_050, 1_300]), SlowTurn { shared: 1, ..request(7, [1_000, 1_000, 1_501]) }];
        assert_eq!(short(&told(&alone, 2_000)), [(501, None)]);
    }

    #[test]
    fn a_request_whose_last_ack_was_dropped_waited_before_its_connection_was_there() {
        let queued = SlowTurn {
            established_ns: 1_400 * MS,
            waited_as: waited::QUEUED,
            aborted: 1,
            ..request(7, [1_000, 1_650, 1_700])
        };
        let found = told(&[queued], 2_000);
        let first = &found[0];
        let times = [first.retried_ns, first.unread_ns, first.inside_ns].map(|ns| ns / MS);
        assert_eq!((times, first.queued, first.aborted), ([400, 250, 50], true, true));
        let used = SlowTurn { established_ns: 900 * MS, ..queued };
        assert_eq!(told(&[used], 2_000)[0].retried_ns, 0);
        let not_seen = SlowTurn { established_ns: 0, ..queued };
        assert_eq!(told(&[not_seen], 2_000)[0].retried_ns, 0);
    }

    /// Fails where a server whose answers all take long fills the wire, or where what is left out is not counted.
    #[test]
    fn the_slowest_are_told_and_the_rest_is_counted() {
        let mut requests = Requests::default();
        let mut tell = |window: u64, count: u64| {
            let end = window * WINDOW_NS;
            for n in 0..count {
                let by = u32::try_from(window * 1_000 + n).unwrap();
                let mut turn = request(by, [0, 0, 0]);
                (turn.began_ns, turn.ended_ns) = (end - (n + 300) * MS, end - MS);
                turn.arrived_ns = turn.began_ns;
                requests.take(turn);
            }
            let told = requests.told(end, listener, edge);
            let slowest = told.first().map_or(0, |r| r.inside_ns / MS);
            (told.len(), slowest, requests.left_out)
        };
        assert_eq!(tell(1_000, 100), (100, 398, 0));
        assert_eq!(tell(1_001, 100), (22, 398, 78));
        assert_eq!(tell(1_002, 100), (2, 398, 176));
        assert_eq!(tell(1_032, 100), (60, 398, 216));
        assert_eq!(tell(2_000, 0), (0, 0, 216));
        assert_eq!(tell(3_000, 200).0, 120);
        assert_eq!(told(&[SlowTurn { slot: SLOT_OTHER, ..request(7, [0, 0, 900]) }], 950), []);
    }

    /// Fails where a request whose calls are not kept any more is told to have waited for none.
    #[test]
    fn calls_that_nobody_ends_are_forgotten_and_what_they_were_of_is_not_known() {
        let mut requests = Requests::default();
        (0..KEPT_MAX as u32 + 9).for_each(|n| requests.take(call(n + 1, 90, [1_000, 1_300])));
        requests.told(1_400 * MS, listener, edge);
        assert_eq!((requests.calls.len(), requests.gone_until_ns), (KEPT_MAX, 1_300 * MS));
        [request(1, [900, 900, 1_450]), request(2, [1_310, 1_310, 1_550])]
            .into_iter()
            .for_each(|r| requests.take(r));
        assert_eq!(short(&requests.told(1_600 * MS, listener, edge)), [(550, None), (240, Some(Vec::new()))]);
        requests.told(1_400 * MS + KEPT_NS, listener, edge);
        assert_eq!((requests.calls.len(), requests.left_out), (0, 0));
    }

    #[test]
    fn of_one_request_some_calls_are_told_and_the_rest_is_counted() {
        let calls = (0..10).map(|n| call(7, 90, [1_000 + n * 210, 1_200 + n * 210]));
        let all: Vec<SlowTurn> = calls.chain([request(7, [1_000, 1_000, 4_000])]).collect();
        let found = told(&all, 5_000);
        assert_eq!((found[0].calls.as_ref().unwrap().len(), found[0].calls_left_out), (CALLS_MAX, 2));
    }
}

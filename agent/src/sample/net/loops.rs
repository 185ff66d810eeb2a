//! Event loops that do not come back: threads that serve several connections and read nothing while requests wait. Owns which threads
//! are loops, by the kernel side's table of readers, and when one is looked at; `thread` owns the look. Knows no map but its own.
//!
//! Nothing is asked of a loop that turns: a stamp in shared memory says when each last read a request. Only where a whole window went
//! by since, and requests waited through it, files of that thread are read, once in each such window.

mod thread;

use crate::attach::mapping::Mapping;
use crate::clock;
use crate::window::{AcceptQueueSample, BlockedLoop, ListenerKey, RequestSample, WINDOW_NS, WindowIndex};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use tailwater_ebpf::net::{WORKERS, Worker};
use thread::{Look, Spent, waits_for_many};

/// Loops that are watched at a time; those beyond are counted. A machine of 128 CPUs may have as many, and more say nothing new.
const LOOPS_MAX: usize = 128;
/// Windows between two looks through the table of readers: a second.
const FOUND_EVERY: u64 = 20;
/// Score from which a thread comes back to its connections for certain: as many requests, none of which another thread took over.
const SCORE_LEAST: i32 = 16;
/// Connections that make a loop of the only thread that reads: one that serves connection after connection has one. It is enough that so many
/// were accepted at once where that thread was seen to wait for events: a loop may have done with each before it reads the next.
const CONNECTIONS_LEAST: u32 = 2;
/// Threads that are looked at for how they wait, each time that loops are looked for; those beyond are counted.
const WAITS_LOOKED_AT: usize = 32;
/// A look that comes later than this after the end of its window tells of another one.
const LOOK_LATE_NS: u64 = WINDOW_NS;
/// Windows that may lie between two looks of which the second is told.
const LOOKS_APART: u64 = 2;

/// A thread that serves several connections of a listener.
#[derive(Debug)]
struct Watched {
    /// Place in the table of readers.
    place: usize,
    /// Its key there: another is another thread.
    key: u64,
    slot: u32,
    tid: u32,
    /// The look of an earlier window, while it stands.
    looked: Option<(u64, Look)>,
}

/// The event loops of this machine.
#[derive(Debug)]
pub(super) struct Loops {
    table: Mapping,
    watched: Vec<Watched>,
    /// Listeners of which several connections were open at once.
    several: HashSet<ListenerKey>,
    /// Threads by their key in the table that were seen to wait for events.
    polling: HashSet<u64>,
    left_out: u64,
    epoch_offset_ns: i64,
    /// Thread ids of the kernel are those of our `/proc`.
    ids_are_ours: bool,
}

impl Loops {
    /// `table` is the map `workers`.
    pub(super) fn new(table: Mapping, epoch_offset_ns: i64, ids_are_ours: bool) -> Self {
        Self {
            table,
            watched: Vec::new(),
            several: HashSet::new(),
            polling: HashSet::new(),
            left_out: 0,
            epoch_offset_ns,
            ids_are_ours,
        }
    }

    /// Loops that had no room, and threads that may be some and were not looked at, each counted whenever one was looked for.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(super) fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.epoch_offset_ns = offset_ns;
    }

    /// The loops that read nothing in `window` although requests waited in it. `of`: who a slot is, and how many threads were seen
    /// that read requests of it.
    pub(super) fn drain(
        &mut self,
        window: WindowIndex,
        queues: &[(ListenerKey, AcceptQueueSample)],
        requests: &[(ListenerKey, RequestSample)],
        mut of: impl FnMut(u32) -> (ListenerKey, u32),
    ) -> Vec<BlockedLoop> {
        if !self.ids_are_ours {
            return Vec::new();
        }
        let several = requests.iter().filter(|(_, r)| r.open_max >= CONNECTIONS_LEAST);
        self.several.extend(several.map(|(listener, _)| *listener));
        if window.0.is_multiple_of(FOUND_EVERY) {
            self.find(&mut of);
        }
        let Some(begun_ns) = (window.0 * WINDOW_NS).checked_add_signed(self.epoch_offset_ns.saturating_neg())
        else {
            return Vec::new();
        };
        let ended_ns = begun_ns + WINDOW_NS;
        let late = clock::monotonic_ns() > ended_ns + LOOK_LATE_NS;
        let read = self.last_reads();
        let waits = |listener: &ListenerKey| {
            let unread = requests.iter().find(|(k, _)| k == listener).map_or(0, |(_, r)| r.unread_ns);
            let queued = queues.iter().find(|(k, _)| k == listener).map_or(0, |(_, q)| q.depth_ns);
            unread + queued >= WINDOW_NS
        };
        let mut found = Vec::new();
        for l in &mut self.watched {
            let read_ns = read.get(&l.tid).copied().unwrap_or(u64::MAX);
            let (listener, readers) = of(l.slot);
            // Of a Unix socket (port 0) no hook tells that a connection closed: a worker of a pool, which has one after the other, looks
            // like a loop that has several. Its rows are here for when it read.
            let stands = read_ns < begun_ns && !late && listener.port != 0 && waits(&listener);
            let look = if stands { Look::at(l.tid) } else { None };
            // Idle threads of a runtime with several of them wait for one another, and one of them for events.
            let look = look.filter(|look| readers == 1 || !look.waits_for_a_thread());
            let before = l.looked.take();
            let Some(look) = look else { continue };
            let spent = before
                .filter(|(at, _)| window.0 - at <= LOOKS_APART)
                .and_then(|(_, before)| look.since(&before));
            if let Some(Spent { span_ns, ran_ns, waited_ns }) = spent {
                found.push(BlockedLoop {
                    listener,
                    thread: l.tid,
                    comm: look.comm.clone(),
                    silent_ns: ended_ns - read_ns,
                    span_ns,
                    ran_ns,
                    waited_ns,
                    uninterruptible: look.is_uninterruptible(),
                    slept_in: look.slept_in.clone(),
                });
            }
            l.looked = Some((window.0, look));
        }
        found
    }

    /// When each watched thread last read, of any listener.
    fn last_reads(&mut self) -> HashMap<u32, u64> {
        let mut read = HashMap::new();
        let table = &self.table;
        self.watched.retain(|l| {
            let Some(worker) = worker_at(table, l.place).filter(|w| w.key() == l.key) else { return false };
            let newest = read.entry(l.tid).or_insert(0);
            *newest = worker.read_ns.max(*newest);
            true
        });
        read
    }

    /// Looks through the table for loops, and keeps what is known of those that were watched.
    ///
    /// Readers of a Unix socket (port 0) are never told, so they take no room from loops that are: of a pool behind one each worker may look like
    /// a loop. Only where a loop serves such a socket beside another one is its row of that kept, for when it read.
    fn find(&mut self, mut of: impl FnMut(u32) -> (ListenerKey, u32)) {
        let known = (0..WORKERS).filter_map(|place| Some((place, worker_at(&self.table, place)?)));
        let known: Vec<(usize, Worker)> = known.collect();
        self.look_how_they_wait(&known, &mut of);
        let likely: Vec<(usize, Worker)> =
            known.into_iter().filter(|(_, w)| shows_it(w) || self.polling.contains(&w.key())).collect();
        let mut sure: HashMap<u32, u32> = HashMap::new();
        for (_, w) in likely.iter().filter(|(_, w)| w.loop_score >= SCORE_LEAST) {
            *sure.entry(w.slot).or_default() += 1;
        }
        let mut looked: HashMap<u64, (u64, Look)> =
            self.watched.drain(..).filter_map(|l| Some((l.key, l.looked?))).collect();
        let (mut told, mut untold) = (Vec::new(), Vec::new());
        for (place, w) in likely {
            let (listener, all) = of(w.slot);
            if listener.port == 0 { untold.push((place, w)) } else { told.push((place, w, all)) }
        }
        for (place, w, all) in told {
            let of_them = sure.get(&w.slot).copied().unwrap_or(0);
            // Of a pool one thread may look like a loop, because it was the one that was free each time.
            let among_loops = w.loop_score >= SCORE_LEAST && 2 * of_them >= all;
            if !among_loops && all != 1 {
                continue;
            }
            if self.watched.len() >= LOOPS_MAX {
                self.left_out += 1;
                continue;
            }
            let looked = looked.remove(&w.key());
            self.watched.push(Watched { place, key: w.key(), slot: w.slot, tid: w.tid, looked });
        }
        let loops: HashSet<u32> = self.watched.iter().map(|l| l.tid).collect();
        let beside = untold.into_iter().filter(|(_, w)| loops.contains(&w.tid));
        self.watched.extend(beside.map(|(place, w)| Watched {
            place,
            key: w.key(),
            slot: w.slot,
            tid: w.tid,
            looked: None,
        }));
    }

    /// Looks at the only readers of listeners that have several connections, but none of which they read before they had done with the one before,
    /// until one is seen to wait for events.
    fn look_how_they_wait(
        &mut self,
        known: &[(usize, Worker)],
        of: &mut impl FnMut(u32) -> (ListenerKey, u32),
    ) {
        if self.several.is_empty() {
            return;
        }
        let (mut there, mut polling) = (HashSet::new(), HashSet::new());
        let mut looks = 0;
        for (_, w) in known {
            let (listener, readers) = of(w.slot);
            if !self.several.contains(&listener) {
                continue;
            }
            there.insert(listener);
            if readers != 1 || listener.port == 0 || shows_it(w) {
                continue;
            }
            if !self.polling.contains(&w.key()) {
                if looks == WAITS_LOOKED_AT {
                    self.left_out += 1;
                    continue;
                }
                looks += 1;
                if !waits_for_many(w.tid) {
                    continue;
                }
            }
            polling.insert(w.key());
        }
        // Listeners and threads that are gone take no room.
        (self.several, self.polling) = (there, polling);
    }
}

/// Whether what a thread reads makes it a likely loop.
fn shows_it(w: &Worker) -> bool {
    w.loop_score >= SCORE_LEAST || w.connections_max >= CONNECTIONS_LEAST
}

fn worker_at(table: &Mapping, place: usize) -> Option<Worker> {
    let first = place * Worker::WORDS;
    if table.word(first).load(Ordering::Acquire) == 0 {
        return None;
    }
    Worker::decode(std::array::from_fn(|i| table.word(first + i).load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    /// A table with these threads, each with its slot, score and most connections.
    fn loops(threads: &[(u32, u32, i32, u32)]) -> Loops {
        let table = Mapping::anonymous(WORKERS * Worker::WORDS * 8);
        for (place, (slot, tid, score, connections)) in threads.iter().enumerate() {
            let first = place * Worker::WORDS;
            table.store(first, u64::from(*slot) << 32 | u64::from(*tid));
            table.store(first + 3, u64::from(*connections) << 32 | u64::from(score.cast_unsigned()));
        }
        Loops::new(table, 0, true)
    }

    /// A thread that waits for events until it is dropped.
    pub(super) struct Waiting {
        pub(super) tid: u32,
        end: Option<std::os::unix::net::UnixStream>,
        thread: Option<std::thread::JoinHandle<()>>,
    }

    impl Waiting {
        pub(super) fn new() -> Self {
            use rustix::event::epoll;
            let (read, write) = std::os::unix::net::UnixStream::pair().unwrap();
            let (tell, told) = std::sync::mpsc::sync_channel(1);
            let thread = std::thread::spawn(move || {
                let poll = epoll::create(epoll::CreateFlags::empty()).unwrap();
                // Its other end hangs up.
                epoll::add(&poll, &read, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
                tell.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
                let mut events = Vec::<epoll::Event>::with_capacity(1);
                epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
            });
            let tid = told.recv().unwrap();
            while !super::waits_for_many(tid) {
                std::thread::yield_now();
            }
            Self { tid, end: Some(write), thread: Some(thread) }
        }
    }

    impl Drop for Waiting {
        fn drop(&mut self) {
            drop(self.end.take());
            self.thread.take().map(std::thread::JoinHandle::join);
        }
    }

    fn at(port: u16) -> ListenerKey {
        ListenerKey {
            netns: 1,
            address: Ipv6Addr::UNSPECIFIED,
            port,
            owner: crate::window::CgroupId(1),
            pid: 1,
        }
    }

    fn found(threads: &[(u32, u32, i32, u32)], readers: u32) -> Vec<u32> {
        let mut loops = loops(threads);
        loops.find(|_| (at(80), readers));
        loops.watched.iter().map(|l| l.tid).collect()
    }

    #[test]
    fn a_loop_comes_back_to_its_connections_and_a_pool_takes_turns_at_them() {
        assert_eq!(found(&[(1, 11, 40, 9), (1, 12, 30, 8), (1, 13, 3, 2)], 3), [11, 12]);
        assert_eq!(found(&[(1, 11, 40, 9), (1, 12, -40, 8)], 25), [0; 0], "one of a pool");
        assert_eq!(found(&[(1, 11, -40, 9), (1, 12, -64, 8)], 2), [0; 0]);
        assert_eq!(found(&[(1, 11, 0, 2)], 1), [11], "the only reader, of connections for one request each");
        assert_eq!(found(&[(1, 11, 0, 1)], 1), [0; 0], "one connection after the other");
    }

    #[test]
    fn the_only_reader_that_waits_for_events_is_a_loop_where_several_connections_were_open() {
        let waiting = Waiting::new();
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let found = |tid: u32, open_max: u32, readers: u32| {
            let mut loops = loops(&[(1, tid, 0, 1)]);
            let requests = [(at(80), RequestSample { open_max, ..RequestSample::default() })];
            for window in [FOUND_EVERY, FOUND_EVERY + 1, 2 * FOUND_EVERY] {
                loops.drain(WindowIndex(window), &[], &requests, |_| (at(80), readers));
            }
            loops.watched.len()
        };
        assert_eq!(found(waiting.tid, 2, 1), 1);
        assert_eq!(found(waiting.tid, 1, 1), 0, "one connection after the other");
        assert_eq!(found(waiting.tid, 2, 2), 0, "there are others");
        assert_eq!(found(own, 2, 1), 0, "it was not seen to wait for events");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let many: Vec<_> = (0..LOOPS_MAX as u32 + 3).map(|n| (n + 1, 100 + n, 64, 4)).collect();
        let mut loops = loops(&many);
        loops.find(|_| (at(80), 1));
        assert_eq!((loops.watched.len(), loops.left_out()), (LOOPS_MAX, 3));
    }

    /// Slot 1 is a Unix socket's, with a pool that looks like loops; 2 and 3 are ports.
    #[test]
    fn readers_of_a_unix_socket_take_no_room_from_loops_that_can_be_told() {
        let pool = (0..LOOPS_MAX as u32).map(|n| (1, 100 + n, 64, 9));
        let threads: Vec<_> = pool.chain([(2, 11, 64, 4), (3, 12, 64, 4), (1, 12, 64, 2)]).collect();
        let mut loops = loops(&threads);
        loops.find(|slot| (at(if slot == 1 { 0 } else { 80 + slot as u16 }), 1));
        let watched: Vec<_> = loops.watched.iter().map(|l| (l.slot, l.tid)).collect();
        assert_eq!(watched, [(2, 11), (3, 12), (1, 12)], "the last for when that loop read");
        assert_eq!(loops.left_out(), 0);
    }

    #[test]
    fn a_loop_is_looked_at_only_where_requests_wait_and_nothing_was_read() {
        let listener = at(80);
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let now = clock::monotonic_ns() / WINDOW_NS;
        let drain = |read_ns: u64, unread_ns: u64| {
            let mut loops = loops(&[(1, own, 64, 4)]);
            loops.table.store(2, read_ns);
            loops.find(|_| (listener, 1));
            let waiting = [(listener, RequestSample { unread_ns, ..RequestSample::default() })];
            loops.drain(WindowIndex(now), &[], &waiting, |_| (listener, 1));
            loops.watched[0].looked.is_some()
        };
        assert!(drain((now - 3) * WINDOW_NS, 2 * WINDOW_NS));
        assert!(!drain((now - 3) * WINDOW_NS, WINDOW_NS / 2), "hardly anybody waits");
        assert!(!drain(now * WINDOW_NS + 1, 2 * WINDOW_NS), "it read in the window");
    }
}

//! The loop on a clock that is set by hand, over sources that only count what is asked of them.

use super::*;
use crate::window::{CgroupId, ListenerKey, MachineCpu};
use std::sync::atomic::AtomicI64;

#[derive(Default)]
struct Log {
    windows: Vec<(u64, bool, bool)>,
    lost: u64,
    /// Without the source's value.
    empty: Vec<u64>,
    /// How many windows were told before each drop.
    before_drops: Vec<usize>,
}

impl Sink for Log {
    fn window(&mut self, w: Window) {
        if let Some(cpu) = w.machine_cpu {
            assert_eq!(cpu.busy_ns, w.index.0, "the source's value");
        } else {
            self.empty.push(w.index.0);
        }
        self.windows.push((w.index.0, w.late, w.clock_corrected));
    }
    fn lost(&mut self, windows: u64) {
        self.lost += windows;
    }
    fn drops(&mut self, drops: &[ListenDrop]) {
        self.before_drops.extend(drops.iter().map(|_| self.windows.len()));
    }
    fn finish(&mut self) {}
}

/// Each window drained moves time on by `drain_ns`; one that is a multiple of `drops_every` leaves a drop behind.
struct Fake {
    drops_every: u64,
    waiting: Vec<ListenDrop>,
    rests: Option<Arc<Mutex<Vec<bool>>>>,
    skipped: Arc<Mutex<Vec<u64>>>,
    now: Arc<AtomicI64>,
    drain_ns: i64,
}

impl SignalSource for Fake {
    fn losses(&self) -> Vec<Loss> {
        vec![Loss { what: "fake_windows_drained", count: 7 }]
    }

    fn name(&self) -> &'static str {
        "fake"
    }
    fn coverage(&self) -> Vec<Coverage> {
        let one = |signal| Coverage {
            signal,
            covered: true,
            sampled: false,
            hook: "fake".to_owned(),
            reason: String::new(),
        };
        vec![one(SignalKind::Cpu), one(SignalKind::RunQueue)]
    }
    fn drain(&mut self, into: &mut Window) {
        self.now.fetch_add(self.drain_ns, Ordering::AcqRel);
        if self.drops_every != 0 && into.index.0.is_multiple_of(self.drops_every) {
            self.waiting.push(DROP);
        }
        into.machine_cpu = Some(MachineCpu { busy_ns: into.index.0, ..MachineCpu::default() });
    }
    fn skip_to(&mut self, first: WindowIndex) {
        self.skipped.lock().unwrap().push(first.0);
    }
    fn set_epoch_offset_ns(&mut self, _: i64) {}
    fn helper_cpu_ns(&self) -> u64 {
        7_000_000_000
    }
    fn take_drop_events(&mut self, into: &mut Vec<ListenDrop>) {
        into.append(&mut self.waiting);
    }
    fn rest(&mut self, rests: bool) -> bool {
        let can = self.rests.as_ref();
        can.map(|told| told.lock().unwrap().push(rests)).is_some()
    }
}

const DROP: ListenDrop = ListenDrop {
    listener: ListenerKey {
        netns: 1,
        address: std::net::Ipv6Addr::UNSPECIFIED,
        port: 80,
        owner: CgroupId(1),
        pid: 0,
    },
    unix_ns: 1,
    count: 1,
    packets: 1,
    depth: 2,
    limit: 1,
    read_unix_ns: 0,
};

struct Bench {
    sampler: Sampler<Log>,
    now: Arc<AtomicI64>,
    skipped: Arc<Mutex<Vec<u64>>>,
}

const WINDOW: i64 = WINDOW_NS as i64;

fn bench(drain_ns: i64) -> Bench {
    bench_of(drain_ns, 0, None)
}

fn bench_of(drain_ns: i64, drops_every: u64, rests: Option<Arc<Mutex<Vec<bool>>>>) -> Bench {
    let now = Arc::new(AtomicI64::new(1_000 * WINDOW + 20_000_000));
    let skipped = Arc::new(Mutex::new(Vec::new()));
    let (skips, moves) = (skipped.clone(), now.clone());
    let source = Fake { drops_every, waiting: Vec::new(), rests, skipped: skips, now: moves, drain_ns };
    let handle = Handle::new(BTreeSet::new()).unwrap();
    let clock = Clock::manual(now.clone());
    let sampler = Sampler::new(clock, vec![Box::new(source)], vec![], Log::default(), handle);
    let mut bench = Bench { sampler, now, skipped };
    bench.sampler.tick();
    bench
}

impl Bench {
    fn tick_at(&mut self, windows: i64, offset_ns: i64) -> Vec<(u64, bool)> {
        self.now.store((1_000 + windows) * WINDOW + offset_ns, Ordering::Release);
        self.sampler.tick();
        let drained = std::mem::take(&mut self.sampler.sink.windows);
        drained.into_iter().map(|(w, late, _)| (w, late)).collect()
    }
}

#[test]
fn drains_each_window_once_after_it_settled() {
    let mut b = bench(0);
    assert_eq!(b.tick_at(1, 7_000_000), [], "the first one was seen in part");
    assert_eq!(b.tick_at(2, 5_000_000), [], "not settled");
    assert_eq!(b.tick_at(2, 6_000_000), [(1_001, false)]);
    assert_eq!(b.tick_at(2, 30_000_000), []);
    assert_eq!(b.tick_at(3, 8_000_000), [(1_002, false)]);
    assert_eq!(b.sampler.handle.counters.ticks_missed.load(Ordering::Relaxed), 0);
}

#[test]
fn a_pause_within_the_ring_loses_nothing() {
    let mut b = bench(0);
    b.tick_at(2, 7_000_000);
    let drained = b.tick_at(42, 7_000_000);
    let expect: Vec<(u64, bool)> = (1_002..=1_041).map(|w| (w, w != 1_041)).collect();
    assert_eq!(drained, expect);
    assert_eq!(b.sampler.sink.lost, 0);
    assert_eq!(b.sampler.handle.counters.ticks_missed.load(Ordering::Relaxed), 39);
}

#[test]
fn lapped_windows_are_counted_and_skipped() {
    let mut b = bench(0);
    b.tick_at(2, 7_000_000);
    let drained = b.tick_at(102, 7_000_000);
    assert_eq!(b.sampler.sink.lost + drained.len() as u64, 100);
    assert_eq!(drained.len() as u64, RING_WINDOWS - 1 - RING_MARGIN);
    assert_eq!(drained.last(), Some(&(1_101, false)));
    assert_eq!(*b.skipped.lock().unwrap(), [drained[0].0]);
}

#[test]
fn windows_that_close_while_others_are_drained_are_drained_too() {
    // 20 ms of work per window: 30 windows behind, it takes 50 windows to catch up.
    let mut b = bench(20_000_000);
    b.tick_at(2, 7_000_000);
    let drained = b.tick_at(32, 7_000_000);
    assert!(drained.len() > 45, "{}", drained.len());
    assert!(drained.windows(2).all(|w| w[1].0 == w[0].0 + 1));
    assert_eq!(b.sampler.sink.lost, 0);
}

#[test]
fn a_drop_waits_for_no_window_that_there_is_to_catch_up_with() {
    let mut b = bench_of(20_000_000, 10, None);
    b.tick_at(2, 7_000_000);
    let drained = b.tick_at(32, 7_000_000);
    // Of windows 1010, 1020 and so on: each is told before the window after it.
    let told = std::mem::take(&mut b.sampler.sink.before_drops);
    let due: Vec<usize> = (1..=drained.len()).filter(|n| drained[n - 1].0.is_multiple_of(10)).collect();
    assert!(due.len() >= 4, "{drained:?}");
    assert_eq!(told, due);
}

#[test]
fn a_clock_set_back_stretches_a_window_and_repeats_none() {
    let mut b = bench(0);
    b.tick_at(10, 7_000_000);
    assert_eq!(b.tick_at(5, 7_000_000), []);
    assert_eq!(b.tick_at(11, 7_000_000), [(1_010, false)]);
    assert_eq!(b.tick_at(-500, 7_000_000), [], "a large step begins anew");
    assert_eq!(b.tick_at(-498, 7_000_000), [(501, false)]);
    assert_eq!(*b.skipped.lock().unwrap(), [501]);
}

#[test]
fn what_a_clock_that_was_put_forward_left_out_was_not_lost() {
    let mut b = bench(0);
    b.tick_at(10, 7_000_000);
    // An hour's sleep.
    let open = |windows: u64| WindowIndex(1_000 + windows);
    b.now.store((1_000 + 72_010) * WINDOW + 8_000_000, Ordering::Release);
    b.sampler.stepped(open(10), open(72_010));
    assert_eq!(b.tick_at(72_011, 7_000_000), [], "it was seen in part");
    assert_eq!(b.tick_at(72_012, 7_000_000), [(73_011, false)]);
    assert_eq!((b.sampler.sink.lost, b.skipped.lock().unwrap().clone()), (0, vec![73_011]));
    // Two had closed before it was put forward by three windows.
    b.sampler.stepped(open(72_014), open(72_017));
    assert_eq!(b.sampler.sink.lost, 2);
    assert_eq!(b.tick_at(72_019, 7_000_000), [(73_018, false)]);
    // Another one had, and is told before the boundaries move.
    b.sampler.tell_closed(open(72_020));
    b.sampler.stepped(open(72_020), open(72_023));
    assert_eq!(b.sampler.sink.lost, 2);
    assert_eq!(b.tick_at(72_025, 7_000_000), [(73_019, false), (73_024, false)]);
    // By less than a window: one is longer.
    b.sampler.stepped(open(72_025), open(72_026));
    assert_eq!((b.sampler.sink.lost, b.skipped.lock().unwrap().len()), (2, 3));
}

#[test]
fn shed_and_disabled_signals_lose_their_coverage() {
    let covered = |h: &Handle| -> Vec<bool> { h.coverage().iter().map(|c| c.covered).collect() };
    let mut b = bench(0);
    let handle = b.sampler.handle.clone();
    assert_eq!(covered(&handle), [true, true]);
    handle.disable(BTreeSet::from([SignalKind::RunQueue]));
    b.sampler.apply_commands();
    assert_eq!(covered(&handle), [false, false], "one section");
    assert_eq!(handle.shed_signals(), [], "disabled is not shed");
    handle.disable(BTreeSet::new());
    handle.shed("fake");
    b.sampler.apply_commands();
    assert_eq!(covered(&handle), [false, false]);
    assert!(handle.coverage()[0].reason.contains("cpu_budget_ratio"));
    assert_eq!(handle.shed_signals(), [handle.coverage()[0].signal, handle.coverage()[1].signal]);
    assert!(b.sampler.sources.is_empty());
}

#[test]
fn a_source_that_rests_is_left_out_and_begins_anew_a_second_after_it_was_taken_back() {
    let told = Arc::<Mutex<Vec<bool>>>::default();
    let mut b = bench_of(0, 0, Some(told.clone()));
    let handle = b.sampler.handle.clone();
    let covered = || handle.coverage().iter().all(|c| c.covered);
    b.tick_at(3, 7_000_000);
    handle.shed("fake");
    handle.shed("fake");
    b.sampler.apply_commands();
    assert_eq!((covered(), handle.shed_signals().len()), (false, 2));
    b.tick_at(5, 7_000_000);
    assert_eq!(std::mem::take(&mut b.sampler.sink.empty), [1_003, 1_004]);
    assert_eq!(*b.skipped.lock().unwrap(), [0; 0]);
    handle.take_back("fake");
    b.sampler.apply_commands();
    assert_eq!((covered(), handle.shed_signals().len()), (true, 0));
    b.tick_at(30, 7_000_000);
    assert_eq!(std::mem::take(&mut b.sampler.sink.empty), (1_005..1_025).collect::<Vec<_>>());
    assert_eq!(*b.skipped.lock().unwrap(), [1_025], "its levels begin anew");
    assert_eq!(*told.lock().unwrap(), [true, false]);
    assert!(handle.cpu_ns()["fake"] >= 7_000_000_000, "with its helper");
    assert_eq!(handle.counters.helpers_cpu_ns.load(Ordering::Relaxed), 7_000_000_000);
}

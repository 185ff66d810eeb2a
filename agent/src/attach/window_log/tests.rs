//! The reader against a writer that does what `LOG` of `window_log.h` does, and against sums made without any window.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use super::*;
use tailwater_ebpf::record::{EdgeSum, WINDOWS};
use tailwater_ebpf::sched::StoppedRecord;

type Entry = LogEntry<StoppedRecord>;
const ENTRY: usize = size_of::<Entry>() / 8;

/// The kernel's half, over the same memory.
struct Kernel {
    maps: LogMaps,
    shape: LogShape,
}

fn maps(shape: LogShape) -> LogMaps {
    let of = |words: usize| Mapping::anonymous(words * 8);
    LogMaps {
        entries: of(shape.entries() as usize * ENTRY),
        heads: of(shape.copies() as usize * Log::<StoppedRecord>::HEAD_WORDS),
        ends: of(shape.writers() as usize * 8),
    }
}

fn pair(shape: LogShape) -> (Kernel, Log<StoppedRecord>) {
    let ours = maps(shape);
    let theirs =
        LogMaps { entries: ours.entries.shared(), heads: ours.heads.shared(), ends: ours.ends.shared() };
    (Kernel { maps: theirs, shape }, Log::new(ours, shape))
}

impl Kernel {
    fn load(&self, at: u32) -> Entry {
        let word = |i: usize| self.maps.entries.word(at as usize * ENTRY + i).load(Ordering::Relaxed);
        let edges = [EdgeSum {
            integral_ns: word(3).cast_signed(),
            carry: word(4) as i32,
            level_start: (word(4) >> 32) as i32,
        }];
        let record = StoppedRecord { window: word(2), edges, stopped_max: word(5) as u32, reserved: 0 };
        Entry { position: word(0), copy: word(1) as u32, reserved: 0, record }
    }

    fn save(&self, at: u32, entry: &Entry) {
        let [edge] = entry.record.edges;
        let half = |low: i32, high: i32| u64::from(low as u32) | u64::from(high as u32) << 32;
        let words = [
            entry.position,
            u64::from(entry.copy),
            entry.record.window,
            edge.integral_ns.cast_unsigned(),
            half(edge.carry, edge.level_start),
            u64::from(entry.record.stopped_max),
        ];
        for (i, word) in words.into_iter().enumerate() {
            self.maps.entries.store(at as usize * ENTRY + i, word);
        }
    }

    fn head(&self, copy: u32) -> (u32, i32) {
        let word = self.maps.heads.word(copy as usize).load(Ordering::Relaxed);
        (word as u32, (word >> 32) as i32)
    }

    fn set_head(&self, copy: u32, entry: u32, level: i32) {
        self.maps.heads.store(copy as usize, u64::from(entry) | u64::from(level as u32) << 32);
    }

    fn take(&self, writer: u32, copy: u32, window: u64) -> u32 {
        let end = |entry: &Entry| entry.record.edges[0].level_start.wrapping_add(entry.record.edges[0].carry);
        let (newest, mut level) = self.head(copy);
        let own = self.load(newest);
        if own.copy == copy + 1 {
            if own.record.window == window {
                return newest;
            }
            level = end(&own);
            self.set_head(copy, newest, level);
        }
        let position = self.maps.ends.word(writer as usize * 8).load(Ordering::Relaxed) + 1;
        self.maps.ends.store(writer as usize * 8, position);
        let at = self.shape.first(writer) + (position % u64::from(self.shape.size(writer))) as u32;
        let old = self.load(at);
        if old.copy != 0 && old.copy != copy + 1 && self.head(old.copy - 1).0 == at {
            self.set_head(old.copy - 1, at, end(&old));
        }
        let edges = [EdgeSum { level_start: level, ..EdgeSum::default() }];
        let record = StoppedRecord { window, edges, stopped_max: 0, reserved: 0 };
        self.save(at, &Entry { position, copy: copy + 1, reserved: 0, record });
        self.set_head(copy, at, level);
        at
    }

    fn step(&self, writer: u32, entity: u32, now_ns: u64, step: i32) {
        let window = now_ns / WINDOW_NS;
        let at = self.take(writer, writer * self.shape.entities + entity, window);
        let mut entry = self.load(at);
        let edge = &mut entry.record.edges[0];
        edge.integral_ns += i64::from(step) * ((window + 1) * WINDOW_NS - now_ns) as i64;
        edge.carry += step;
        self.save(at, &entry);
    }
}

/// What each entity's level was worth in each window, summed event by event.
#[derive(Default)]
struct Truth {
    level: Vec<i64>,
    since_ns: Vec<u64>,
    integral: std::collections::HashMap<(u32, u64), i64>,
}

impl Truth {
    fn of(entities: u32, from_ns: u64) -> Self {
        let n = entities as usize;
        Self { level: vec![0; n], since_ns: vec![from_ns; n], ..Self::default() }
    }

    fn until(&mut self, entity: u32, now_ns: u64) {
        let since = &mut self.since_ns[entity as usize];
        while *since < now_ns {
            let window = *since / WINDOW_NS;
            let to = now_ns.min((window + 1) * WINDOW_NS);
            let ns = (to - *since) as i64;
            *self.integral.entry((entity, window)).or_default() += self.level[entity as usize] * ns;
            *since = to;
        }
    }

    fn step(&mut self, entity: u32, now_ns: u64, step: i32) {
        self.until(entity, now_ns);
        self.level[entity as usize] += i64::from(step);
    }
}

const FIRST: u64 = 1_000;

/// Random steps on random writers; each window is read once it is over, but those in `unread`: these never, or `late`, once all of them
/// are over. Returns how many records were lost, and how many windows could not be told because of it.
fn run(
    shape: LogShape,
    events_per_window: u64,
    (unread, late): (std::ops::Range<u64>, bool),
    windows: u64,
    seed: u64,
) -> (u64, u64) {
    let (kernel, mut log) = pair(shape);
    let mut random = Random(seed);
    let mut truth = Truth::of(shape.entities, FIRST * WINDOW_NS);
    let mut ends = std::collections::HashMap::new();
    let (mut waiting, mut blind) = (Vec::new(), 0);
    for window in FIRST..FIRST + windows {
        let mut times: Vec<u64> =
            (0..events_per_window).map(|_| window * WINDOW_NS + random.below(WINDOW_NS)).collect();
        times.sort_unstable();
        for now_ns in times {
            let entity = random.below(u64::from(shape.entities)) as u32;
            let writer = random.below(u64::from(shape.writers())) as u32;
            let step = if random.below(2) == 0 { 1 } else { -1 };
            kernel.step(writer, entity, now_ns, step);
            truth.step(entity, now_ns, step);
        }
        for entity in 0..shape.entities {
            truth.until(entity, (window + 1) * WINDOW_NS);
            ends.insert((entity, window), truth.level[entity as usize]);
        }
        if unread.contains(&(window - FIRST)) {
            waiting.extend(late.then_some(window));
            continue;
        }
        waiting.push(window);
        for window in waiting.drain(..) {
            for entity in 0..shape.entities {
                let mut levels = [Level::default()];
                log.drain(entity, window, &mut levels, |_| {});
                if log.is_blind(window) {
                    continue;
                }
                assert_eq!(levels[0].end, ends[&(entity, window)], "entity {entity}, window {window}");
                assert_eq!(
                    levels[0].integral_ns,
                    truth.integral.get(&(entity, window)).copied().unwrap_or(0),
                    "entity {entity}, window {window}"
                );
            }
            blind += u64::from(log.is_blind(window));
        }
    }
    (log.lapped(), blind)
}

/// A xorshift: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn integrals_are_exact_whoever_writes_and_however_rarely() {
    let shape = LogShape { cpus: 4, nest: 3, entities: 20, records: 128 };
    for seed in 1..20 {
        assert_eq!(run(shape, 1 + seed * 3, (0..0, false), 200, seed * 7_919), (0, 0));
    }
}

#[test]
fn entries_that_many_entities_share_forget_no_level() {
    // Far more entities than entries: whoever is quiet for some windows has none left, and its level lives in its head.
    let shape = LogShape { cpus: 2, nest: 1, entities: 500, records: 64 };
    for seed in 1..10 {
        assert_eq!(run(shape, 40, (0..0, false), 300, seed * 104_729), (0, 0));
    }
}

#[test]
fn windows_that_were_not_read_cost_nothing_while_the_log_holds_them() {
    let shape = LogShape { cpus: 2, nest: 1, entities: 10, records: 1_024 };
    assert_eq!(run(shape, 20, (50..50 + 45, false), 200, 42), (0, 0));
    assert_eq!(run(shape, 20, (50..50 + 45, true), 200, 42), (0, 0));
}

#[test]
fn after_a_reader_that_came_too_late_levels_are_right_again() {
    let shape = LogShape { cpus: 2, nest: 1, entities: 30, records: 64 };
    for seed in 1..10 {
        let (lost, blind) = run(shape, 25, (20..60, false), 120, seed * 15_485_863);
        assert!(lost > 0 && blind <= 1, "{lost}, {blind}");
    }
}

#[test]
fn a_late_reader_is_blind_where_records_were_lost_and_right_in_every_window_after() {
    let shape = LogShape { cpus: 2, nest: 1, entities: 30, records: 64 };
    for seed in 1..30 {
        let (lost, blind) = run(shape, 25, (20..60, true), 120, seed * 15_485_863);
        // 64 entries of each of two writers are the last six windows or so.
        assert!(lost > 0 && (30..41).contains(&blind), "{lost}, {blind}");
    }
}

#[test]
fn levels_of_past_windows_are_not_taken_from_today() {
    let shape = LogShape { cpus: 2, nest: 1, entities: 2, records: 64 };
    let (kernel, mut log) = pair(shape);
    let mut levels = [Level::default()];
    // One CPU begins what the other ends, so that their levels part for good.
    for window in FIRST..=FIRST + 60 {
        kernel.step(0, 0, window * WINDOW_NS + 1, 1);
        kernel.step(0, 1, window * WINDOW_NS + 2, 1);
        kernel.step(1, 0, window * WINDOW_NS + 3, -1);
        if window == FIRST {
            log.drain(0, FIRST, &mut levels, |_| {});
        }
    }
    let mut whole = 0;
    for window in FIRST + 1..=FIRST + 60 {
        log.drain(0, window, &mut levels, |_| {});
        if !log.is_blind(window) {
            whole += 1;
            assert_eq!((levels[0].end, levels[0].integral_ns), (0, 2), "window {}", window - FIRST);
        }
    }
    assert_eq!(whole, 31);
}

#[test]
fn a_level_that_one_cpu_raises_for_weeks_wraps_without_harm() {
    let shape = LogShape { cpus: 2, nest: 1, entities: 1, records: 64 };
    let (kernel, mut log) = pair(shape);
    let mut levels = [Level::default()];
    // What CPU 0 began CPU 1 ended, so often that the next of both passes the ends of 32 bits.
    kernel.set_head(0, 0, i32::MAX - 1);
    kernel.set_head(1, 0, i32::MIN + 1);
    for window in FIRST..FIRST + 6 {
        kernel.step(0, 0, window * WINDOW_NS, 1);
        kernel.step(1, 0, window * WINDOW_NS, -1);
        log.drain(0, window, &mut levels, |_| {});
        assert_eq!(levels[0].end, -1, "window {}", window - FIRST);
    }
}

#[test]
fn what_was_lost_is_counted() {
    let shape = LogShape { cpus: 1, nest: 1, entities: 1, records: 64 };
    let (kernel, mut log) = pair(shape);
    for window in FIRST..FIRST + 100 {
        kernel.step(0, 0, window * WINDOW_NS, 1);
    }
    let mut levels = [Level::default()];
    log.drain(0, FIRST + 99, &mut levels, |_| {});
    assert_eq!((log.lapped(), levels[0].end), (36, 100));
    // What was lost are older windows.
    assert!(!log.is_blind(FIRST + 99) && log.is_blind(FIRST + 36));
    assert_eq!(log.newest(0), FIRST + 99);
    kernel.step(0, 0, (FIRST + 100) * WINDOW_NS, 1);
    log.drain(0, FIRST + 100, &mut levels, |_| {});
    assert_eq!((log.is_blind(FIRST + 100), levels[0].start, levels[0].end), (false, 100, 101));
}

#[test]
fn an_edge_after_the_reading_changes_the_windows_after_it() {
    let shape = LogShape { cpus: 1, nest: 1, entities: 2, records: 64 };
    let (kernel, mut log) = pair(shape);
    let mut levels = [Level::default()];
    kernel.step(0, 1, FIRST * WINDOW_NS, 1);
    log.drain(1, FIRST, &mut levels, |_| {});
    assert_eq!(levels[0].end, 1);
    // A hook that was held up writes into the window that was read already.
    kernel.step(0, 1, FIRST * WINDOW_NS + 5, 1);
    log.drain(1, FIRST + 1, &mut levels, |_| {});
    assert_eq!((levels[0].start, levels[0].integral_ns), (2, 2 * WINDOW_NS as i64));
}

#[test]
fn a_record_that_comes_after_its_window_was_told_is_told_with_the_next() {
    let shape = LogShape { cpus: 2, nest: 1, entities: 2, records: 64 };
    let (kernel, mut log) = pair(shape);
    let mut levels = [Level::default()];
    kernel.step(0, 1, FIRST * WINDOW_NS, 1);
    assert!(log.drain(1, FIRST, &mut levels, |_| {}));
    // The hook read the clock in time, and its CPU was away before it wrote.
    kernel.step(1, 1, FIRST * WINDOW_NS + 5, 1);
    let mut told = Vec::new();
    assert!(log.drain(1, FIRST + 1, &mut levels, |record| told.push(record.window)));
    let level = levels[0];
    assert_eq!(told, [FIRST]);
    assert_eq!((level.start, level.end, level.integral_ns), (2, 2, 2 * WINDOW_NS as i64));
    assert!(!log.drain(1, FIRST + 2, &mut levels, |_| {}));
    // What was left out on purpose is not told later.
    kernel.step(1, 1, (FIRST + 3) * WINDOW_NS, 1);
    log.skip_to(FIRST + 5);
    assert!(!log.drain(1, FIRST + 5, &mut levels, |_| {}));
    assert_eq!(levels[0].end, 3);
}

#[test]
fn a_record_of_a_later_window_waits_for_it() {
    let shape = LogShape { cpus: 1, nest: 1, entities: 2, records: 64 };
    let (kernel, mut log) = pair(shape);
    let mut levels = [Level::default()];
    kernel.step(0, 0, (FIRST + 1) * WINDOW_NS, 1);
    assert!(!log.drain(0, FIRST, &mut levels, |_| {}));
    assert_eq!(levels[0].end, 0);
    assert!(log.quiet(0, FIRST) && log.quiet(1, FIRST + 1) && !log.quiet(0, FIRST + 1));
    assert!(log.drain(0, FIRST + 1, &mut levels, |_| {}));
    assert_eq!((levels[0].start, levels[0].end), (0, 1));
}

#[test]
fn a_clock_that_went_back_leaves_no_level_behind() {
    let shape = LogShape { cpus: 1, nest: 1, entities: 2, records: 64 };
    let (kernel, mut log) = pair(shape);
    let mut levels = [Level::default()];
    log.drain(0, FIRST + 10_000, &mut levels, |_| {});
    kernel.step(0, 0, (FIRST + 10_001) * WINDOW_NS, 1);
    log.skip_to(FIRST);
    kernel.step(0, 1, FIRST * WINDOW_NS, 1);
    assert!(!log.drain(0, FIRST, &mut levels, |_| {}));
    assert_eq!((levels[0].start, levels[0].end), (1, 1));
    assert!(log.drain(1, FIRST, &mut levels, |_| {}));
    assert_eq!((levels[0].start, levels[0].end), (0, 1));
    assert!(log.newest(0) <= FIRST + WINDOWS);
}

#[test]
fn logs_are_as_long_as_there_is_room() {
    let of = |cpus, nest| LogShape::within::<StoppedRecord>(1 << 20, cpus, nest, 1_000);
    let bytes = |shape: LogShape| shape.entries() as usize * Log::<StoppedRecord>::ENTRY_BYTES;
    assert_eq!(of(2, 1).records, 4_096);
    for (cpus, nest) in [(16, 1), (128, 1), (128, 3), (240, 3)] {
        let shape = of(cpus, nest);
        assert!(bytes(shape) <= 1 << 20, "{shape:?}: {}", bytes(shape));
        assert!(bytes(shape) > 1 << 18, "{shape:?}: {}", bytes(shape));
    }
    assert_eq!(of(100_000, 3).records, 64, "never shorter");
    // No entry belongs to two writers.
    let shape = of(128, 3);
    let mut next = 0;
    for writer in 0..shape.writers() {
        assert_eq!(shape.first(writer), next);
        next += shape.size(writer);
    }
    assert_eq!(next, shape.entries());
    assert!(WINDOWS <= u64::from(shape.records));
}

/// `make bench-sizes`. Every active entity writes on every CPU in every window, which is the most there can be.
#[test]
#[ignore = "a measurement"]
fn bench_what_reading_a_window_costs() {
    const WINDOWS_READ: u32 = 200;
    let cost = |cpus: u32, active: u32| {
        let shape = LogShape { cpus, nest: 1, entities: 1_024, records: 256 };
        let (kernel, mut log) = pair(shape);
        let mut took = std::time::Duration::ZERO;
        let mut told = 0_i64;
        for window in FIRST..FIRST + u64::from(WINDOWS_READ) {
            for cpu in 0..cpus {
                for entity in 0..active {
                    kernel.step(cpu, entity, window * WINDOW_NS + 5, 1);
                    kernel.step(cpu, entity, window * WINDOW_NS + 9, -1);
                }
            }
            let begun = thread_cpu_time();
            for entity in 0..shape.entities {
                let mut levels = [Level::default()];
                if log.drain(entity, window, &mut levels, |_| {}) {
                    told += levels[0].integral_ns;
                }
            }
            took += thread_cpu_time() - begun;
        }
        let each = i64::from(cpus) * i64::from(active) * 4 * i64::from(WINDOWS_READ);
        assert_eq!((told, log.lapped()), (each, 0));
        took / WINDOWS_READ
    };
    let of_two = cost(2, 100);
    for (cpus, active) in [(2, 0), (2, 100), (8, 100), (32, 100), (128, 0), (128, 100)] {
        let took = cost(cpus, active);
        let records = cpus * active;
        eprintln!(
            "{cpus:>3} CPUs, {active:>3} of 1024 entities active on each: {took:?} a window, {:.2} % of a core, {:.1} times that of 2 CPUs and 100, {} ns a record",
            took.as_secs_f64() / 0.05 * 100.0,
            took.as_secs_f64() / of_two.as_secs_f64(),
            if records == 0 { 0 } else { took.as_nanos() / u128::from(records) }
        );
    }
}

fn thread_cpu_time() -> std::time::Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) }, 0);
    std::time::Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec as u32)
}

//! Reads the window rings that kernel programs write, one per writer, by mmap and without system calls, and settles their edge sums
//! into exact integrals. Owns the reader's half of `ebpf/bpf/include/window.h`; knows no signal.

use crate::attach::mapping::Mapping;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use tailwater_ebpf::record::{Record, WINDOW_NS, WINDOWS};

/// Errors of opening a ring.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum RingError {
    /// The map could not be mapped.
    #[error(transparent)]
    Mapping(#[from] crate::attach::mapping::MappingError),
    /// The map's values are not copies of this record.
    #[error("map {map}: a value has {found} bytes, this agent expects {expected}")]
    ValueSize { map: String, found: u32, expected: usize },
}

/// How many copies a ring has and which is whose: `cpu * nest + level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Possible CPUs of the machine.
    pub cpus: u32,
    /// Copies per CPU: 1, or [`tailwater_ebpf::record::NEST`].
    pub nest: u32,
}

impl Shape {
    /// The map's `max_entries`.
    pub const fn copies(self) -> u32 {
        self.cpus * self.nest
    }
}

/// One step function of one entity in one window, summed over all copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Level {
    /// Level at the window's start.
    pub start: i64,
    /// Level at its end.
    pub end: i64,
    /// Integral over the window, level times ns.
    pub integral_ns: i64,
}

impl Level {
    /// The integral, never negative: a step that was written after its window was read can make it so for a moment.
    pub fn ns(&self) -> u64 {
        self.integral_ns.max(0).unsigned_abs()
    }

    /// The integral less a correction that may have either sign, never negative.
    pub fn ns_without(&self, excess_ns: i64) -> u64 {
        self.integral_ns.saturating_sub(excess_ns).max(0).unsigned_abs()
    }

    /// The largest of what was seen at steps inside the window and of the level that it began with.
    pub fn max_with(&self, seen: u32) -> u32 {
        seen.max(u32::try_from(self.start.max(0)).unwrap_or(u32::MAX))
    }
}

enum Read<R> {
    /// No edge in this window.
    Absent,
    Found(R),
    /// The record holds a later window already.
    Lapped,
}

/// The reader of one ring.
#[derive(Debug)]
pub struct Ring<R> {
    mapping: Mapping,
    copies: usize,
    /// `EDGES` levels per copy.
    levels: Vec<i32>,
    /// Per copy, the window at whose start those levels hold; 0: to be found again.
    valid_at: Vec<u64>,
    /// Per copy, its newest record when the levels were found.
    found_under: Vec<u64>,
    lapped: u64,
    record: std::marker::PhantomData<fn() -> R>,
}

impl<R: Record> Ring<R> {
    const COPY_BYTES: usize = 8 + WINDOWS as usize * size_of::<R>();

    /// Maps `map`, whose values must be copies of `R`.
    pub fn open(name: &str, map: &aya::maps::MapData, shape: Shape) -> Result<Self, RingError> {
        let value_size = map.info().map(|i| i.value_size()).unwrap_or(0);
        if value_size as usize != Self::COPY_BYTES {
            return Err(RingError::ValueSize {
                map: name.to_owned(),
                found: value_size,
                expected: Self::COPY_BYTES,
            });
        }
        let copies = shape.copies() as usize;
        Ok(Self {
            mapping: Mapping::read_only(name, map, Self::COPY_BYTES * copies)?,
            copies,
            levels: vec![0; copies * R::EDGES],
            valid_at: vec![0; copies],
            found_under: vec![0; copies],
            lapped: 0,
            record: std::marker::PhantomData,
        })
    }

    /// Settles window `window`: writes its step functions to `levels` (length `EDGES`) and hands every copy's record to `each`.
    /// Call in ascending order; windows may be left out.
    pub fn drain(&mut self, window: u64, levels: &mut [Level], mut each: impl FnMut(&R)) {
        levels.fill(Level::default());
        for copy in 0..self.copies {
            match self.read(copy, window) {
                Read::Found(record) => {
                    for (i, edge) in record.edges().iter().enumerate() {
                        let start = i64::from(edge.level_start);
                        levels[i].start += start;
                        levels[i].end += start + i64::from(edge.carry);
                        levels[i].integral_ns += start * WINDOW_NS as i64 + edge.integral_ns;
                    }
                    self.take_end(copy, &record);
                    // A hook may still be writing to it: its end is read again before it is relied on.
                    self.valid_at[copy] = 0;
                    each(&record);
                }
                Read::Absent => self.hold(copy, window, levels),
                Read::Lapped => {
                    self.lapped += 1;
                    self.hold(copy, window, levels);
                }
            }
        }
    }

    /// What one copy has of a window, for whoever joins it with something else of that writer; `None`: no edge, or a later window already.
    pub fn record(&self, copy: usize, window: u64) -> Option<R> {
        match self.read(copy, window) {
            Read::Found(record) => Some(record),
            Read::Absent | Read::Lapped => None,
        }
    }

    /// The copy had no edge in this window: it kept the level that it began with.
    fn hold(&mut self, copy: usize, window: u64, levels: &mut [Level]) {
        let newest = self.newest_of(copy);
        let written_late = newest < window && newest != self.found_under[copy];
        if self.valid_at[copy] != window || written_late {
            self.find_level(copy, window);
            self.found_under[copy] = newest;
        }
        self.valid_at[copy] = window + 1;
        for (i, level) in levels.iter_mut().enumerate().take(R::EDGES) {
            let held = i64::from(self.levels[copy * R::EDGES + i]);
            level.start += held;
            level.end += held;
            level.integral_ns += held * WINDOW_NS as i64;
        }
    }

    /// The level at the start of `window` is what the earliest record since then began with, else what the newest ended with.
    fn find_level(&mut self, copy: usize, window: u64) {
        let newest = self.newest_of(copy);
        if newest == 0 {
            return;
        }
        if newest < window
            && let Read::Found(record) = self.read(copy, newest)
        {
            self.take_end(copy, &record);
            return;
        }
        // The newest has changed since, or is recent enough.
        let newest = self.newest_of(copy);
        for later in window.max(newest.saturating_sub(WINDOWS - 1))..=newest {
            if let Read::Found(record) = self.read(copy, later) {
                for (i, edge) in record.edges().iter().enumerate() {
                    self.levels[copy * R::EDGES + i] = edge.level_start;
                }
                return;
            }
        }
    }

    fn take_end(&mut self, copy: usize, record: &R) {
        for (i, edge) in record.edges().iter().enumerate() {
            self.levels[copy * R::EDGES + i] = edge.level_start.wrapping_add(edge.carry);
        }
    }

    /// Windows before `first` were lapped. Records carry the level at their start, so nothing but forgetting is needed.
    pub fn skip_to(&mut self, _first: u64) {
        self.valid_at.fill(0);
    }

    /// Records that held a later window when they were read: each is one copy's share of one window, lost.
    pub fn lapped(&self) -> u64 {
        self.lapped
    }

    fn newest_of(&self, copy: usize) -> u64 {
        self.mapping.word(copy * Self::COPY_BYTES / 8).load(Ordering::Acquire)
    }

    fn record_word(copy: usize, window: u64) -> usize {
        (copy * Self::COPY_BYTES + 8 + (window % WINDOWS) as usize * size_of::<R>()) / 8
    }

    fn read(&self, copy: usize, window: u64) -> Read<R> {
        if self.newest_of(copy) < window {
            return Read::Absent;
        }
        let first = Self::record_word(copy, window);
        let tag: &AtomicU64 = self.mapping.word(first);
        let before = tag.load(Ordering::Acquire);
        if before < window {
            return Read::Absent;
        }
        if before > window {
            return Read::Lapped;
        }
        let mut record = std::mem::MaybeUninit::<R>::uninit();
        for i in 0..size_of::<R>() / 8 {
            let word = self.mapping.word(first + i).load(Ordering::Relaxed);
            // SAFETY: `i` stays inside R, whose size is a multiple of 8 (Record); writes may be unaligned to R, so unaligned.
            unsafe { record.as_mut_ptr().cast::<u64>().add(i).write_unaligned(word) };
        }
        fence(Ordering::Acquire);
        if tag.load(Ordering::Relaxed) != window {
            return Read::Lapped;
        }
        // SAFETY: every word was written, and every bit pattern is a value of R (Record).
        Read::Found(unsafe { record.assume_init() })
    }
}

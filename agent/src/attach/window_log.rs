//! Reads the logs of windows that kernel programs append to, by mmap and without system calls, and settles their edge sums into exact
//! integrals. Owns the reader's half of `ebpf/bpf/include/window_log.h`; knows no signal.

use crate::attach::mapping::Mapping;
use crate::attach::ring::{Level, RingError};
use std::sync::atomic::{Ordering, fence};
use tailwater_ebpf::record::{
    LOG_BEING_RESET, LOG_NESTED_PART, LogEnd, LogEntry, Record, WINDOW_NS, WINDOWS,
};

/// How long the logs are and what they tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogShape {
    /// Possible CPUs of the machine.
    pub cpus: u32,
    /// Writers per CPU: 1, or [`tailwater_ebpf::record::NEST`].
    pub nest: u32,
    /// Entities: slots of workloads, devices, listeners or edges.
    pub entities: u32,
    /// Entries of a writer that interrupts nobody; the others have an eighth.
    pub records: u32,
}

impl LogShape {
    /// Entries of a writer where there is room enough: more than an entity that is active in each of 64 windows needs, for 64 of them.
    const RECORDS_MAX: u32 = 4_096;
    /// However many CPUs: the shortest log has eight entries.
    const RECORDS_MIN: u32 = 8 * LOG_NESTED_PART;

    /// The longest logs of `R` that take up to `bytes` on this many CPUs.
    pub fn within<R: Record>(bytes: usize, cpus: u32, nest: u32, entities: u32) -> Self {
        let of_a_cpu = bytes / cpus.max(1) as usize / size_of::<LogEntry<R>>();
        let parts = LOG_NESTED_PART + nest - 1;
        let fit = u32::try_from(of_a_cpu).unwrap_or(u32::MAX) / parts * LOG_NESTED_PART;
        let records = fit.clamp(Self::RECORDS_MIN, Self::RECORDS_MAX);
        // A power of two: an entry is found by the remainder.
        Self { cpus, nest, entities, records: 1 << records.ilog2() }
    }

    /// `max_entries` of the map of entries.
    pub const fn entries(self) -> u32 {
        self.cpus * self.entries_of_a_cpu()
    }

    /// `max_entries` of the map of heads.
    pub const fn copies(self) -> u32 {
        self.writers() * self.entities
    }

    /// `max_entries` of the map of ends.
    pub const fn writers(self) -> u32 {
        self.cpus * self.nest
    }

    const fn few(self) -> u32 {
        self.records / LOG_NESTED_PART
    }

    const fn entries_of_a_cpu(self) -> u32 {
        self.records + (self.nest - 1) * self.few()
    }

    /// Entries of a writer.
    const fn size(self, writer: u32) -> u32 {
        if writer.is_multiple_of(self.nest) { self.records } else { self.few() }
    }

    /// Index of a writer's first entry.
    const fn first(self, writer: u32) -> u32 {
        let level = writer % self.nest;
        let before = if level == 0 { 0 } else { self.records + (level - 1) * self.few() };
        writer / self.nest * self.entries_of_a_cpu() + before
    }
}

/// The three maps of one log.
#[derive(Debug)]
pub struct LogMaps {
    /// `name_entries`.
    pub entries: Mapping,
    /// `name_heads`.
    pub heads: Mapping,
    /// `name_ends`.
    pub ends: Mapping,
}

/// An entry that was seen and may still be written to.
#[derive(Debug, Clone, Copy)]
struct Taken {
    writer: u32,
    position: u64,
    copy: u32,
    window: u64,
}

/// No record.
const NONE: u32 = u32::MAX;

/// A record of the settled window, in a list of its entity's: no order has to be made of what all CPUs wrote.
#[derive(Debug)]
struct Found<R> {
    entity: u32,
    /// Index of the entity's next one, or [`NONE`].
    next: u32,
    /// Of a window that was told before it was seen: its edges are in the level by now.
    late: bool,
    record: R,
}

/// The reader of one log.
#[derive(Debug)]
pub struct Log<R> {
    maps: LogMaps,
    shape: LogShape,
    /// The window that [`Log::drain`] tells of.
    settled: u64,
    /// Records of that window.
    found: Vec<Found<R>>,
    /// Per entity, the index in `found` of one of its records; [`NONE`] without any.
    first: Vec<u32>,
    /// Seen, of windows that come later.
    pending: Vec<Taken>,
    /// Settled with the last window: a hook may have been writing to them.
    fresh: Vec<Taken>,
    /// Per writer, how many entries were seen.
    seen: Vec<u64>,
    /// Writers of which entries were lost before they were read: their levels have to be found again.
    behind: Vec<u32>,
    /// `EDGES` levels per copy, after the settled window.
    levels: Vec<i32>,
    /// Per copy, the position whose end these are, shortened.
    levels_by: Vec<u32>,
    /// `EDGES` levels per entity, over all copies, after the settled window.
    totals: Vec<i64>,
    /// Per entity, the newest window of a record that was seen.
    newest: Vec<u64>,
    /// Records were lost of windows up to here.
    blind_until: u64,
    /// Writers of which the last that was seen is a loss: up to which window is known with their next record.
    gaps: Vec<u32>,
    lapped: u64,
}

const fn words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

impl<R: Record> Log<R> {
    /// Bytes of an entry: the value size of the map of entries.
    pub const ENTRY_BYTES: usize = size_of::<LogEntry<R>>();
    /// Words of a head in its array, whose elements begin at multiples of 8 bytes.
    pub const HEAD_WORDS: usize = words(4 + 4 * R::EDGES);
    const ENTRY_WORDS: usize = Self::ENTRY_BYTES / 8;
    const RECORD_WORD: usize = std::mem::offset_of!(LogEntry<R>, record) / 8;
    /// Words of an end.
    pub const END_WORDS: usize = size_of::<LogEnd>() / 8;

    /// Over maps of that shape.
    pub fn new(maps: LogMaps, shape: LogShape) -> Self {
        let (copies, entities) = (shape.copies() as usize, shape.entities as usize);
        Self {
            maps,
            shape,
            settled: 0,
            found: Vec::new(),
            first: vec![NONE; entities],
            pending: Vec::new(),
            fresh: Vec::new(),
            seen: vec![0; shape.writers() as usize],
            behind: Vec::new(),
            levels: vec![0; copies * R::EDGES],
            levels_by: vec![0; copies],
            totals: vec![0; entities * R::EDGES],
            newest: vec![0; entities],
            blind_until: 0,
            gaps: Vec::new(),
            lapped: 0,
        }
    }

    /// Whether the map's values are this log's entries.
    pub fn check(name: &str, map: &aya::maps::MapData) -> Result<(), RingError> {
        let found = map.info().map(|i| i.value_size()).unwrap_or(0);
        if found as usize == Self::ENTRY_BYTES {
            return Ok(());
        }
        Err(RingError::ValueSize { map: name.to_owned(), found, expected: Self::ENTRY_BYTES })
    }

    /// Window `window` of `entity`: writes its step functions to `levels` (length `EDGES`) and hands every copy's record to `each`. Call
    /// in ascending order; windows may be left out. Returns whether the entity had any record. A record that was not there yet when its
    /// window was told, because its CPU was away between the clock and the record, is told with the window that comes next.
    pub fn drain(
        &mut self,
        entity: u32,
        window: u64,
        levels: &mut [Level],
        mut each: impl FnMut(&R),
    ) -> bool {
        self.settle(window);
        let totals = &self.totals[entity as usize * R::EDGES..][..R::EDGES];
        for (level, end) in levels.iter_mut().zip(totals) {
            *level = Level { start: *end, end: *end, integral_ns: 0 };
        }
        let mut any = false;
        let mut at = self.first[entity as usize];
        while let Some(Found { next, late, record, .. }) = self.found.get(at as usize) {
            at = *next;
            any = true;
            for (level, edge) in levels.iter_mut().zip(record.edges()).filter(|_| !late) {
                level.start -= i64::from(edge.carry);
                level.integral_ns += edge.integral_ns;
            }
            each(record);
        }
        for level in levels {
            level.integral_ns += level.start * WINDOW_NS as i64;
        }
        any
    }

    /// Whether the entity has no record in `window` and all its levels are zero then.
    pub fn quiet(&mut self, entity: u32, window: u64) -> bool {
        self.settle(window);
        let totals = &self.totals[entity as usize * R::EDGES..][..R::EDGES];
        totals.iter().all(|level| *level == 0) && self.first[entity as usize] == NONE
    }

    /// The next window is `first`. What lies beyond any ring after it is of a clock that went back since: it changes levels, and belongs
    /// to no window that comes.
    pub fn skip_to(&mut self, first: u64) {
        self.look_at_all();
        let last = first + WINDOWS;
        for taken in std::mem::take(&mut self.pending) {
            if taken.window > last {
                self.take(taken, false);
            } else {
                self.pending.push(taken);
            }
        }
        for newest in &mut self.newest {
            *newest = last.min(*newest);
        }
        if self.blind_until > last {
            self.blind_until = 0;
        }
    }

    /// Whether records of `window`, or of what came before it, were lost: what is told of it may be anything. Asked once it was drained.
    pub fn is_blind(&self, window: u64) -> bool {
        window <= self.blind_until || !self.gaps.is_empty()
    }

    /// What is told of a window that was drained. What was overwritten before it was read is not known, which is not the same as nothing.
    pub fn if_known<T>(&self, window: u64, told: T) -> Option<T> {
        (!self.is_blind(window)).then_some(told)
    }

    /// Entries that were taken again before they were read: each is one copy's share of one window, lost.
    pub fn lapped(&self) -> u64 {
        self.lapped
    }

    /// The newest window in which the entity had an edge, also one that is not over; 0 if it never had.
    pub fn newest(&mut self, entity: u32) -> u64 {
        // Somebody may be given up for what is answered: whoever seems to be gone is looked for once more.
        if self.newest[entity as usize] + WINDOWS < self.settled {
            self.look_at_all();
        }
        self.newest[entity as usize]
    }

    /// Takes the records of `window` in, once.
    fn settle(&mut self, window: u64) {
        if self.settled == window {
            return;
        }
        let told = std::mem::replace(&mut self.settled, window);
        for found in self.found.drain(..) {
            self.first[found.entity as usize] = NONE;
        }
        self.look_again();
        self.look_at_all();
        for taken in std::mem::take(&mut self.pending) {
            if taken.window > window {
                self.pending.push(taken);
            } else {
                self.take(taken, taken.window <= told && told < window);
            }
        }
        let behind = std::mem::take(&mut self.behind);
        for writer in &behind {
            self.find_levels(*writer);
        }
        if !behind.is_empty() {
            self.find_levels_before_pending(&behind);
        }
    }

    fn look_at_all(&mut self) {
        for writer in 0..self.shape.writers() {
            self.look(writer);
        }
    }

    /// What a hook wrote to a record after it was read changes the level that it ended with.
    fn look_again(&mut self) {
        for taken in std::mem::take(&mut self.fresh) {
            if self.levels_by[taken.copy as usize] == taken.position as u32
                && let Some(record) = self.read(taken)
            {
                self.hold(taken.copy, &record);
            }
        }
    }

    /// Finds what a writer took since the last look.
    fn look(&mut self, writer: u32) {
        let taken = self.taken(writer);
        let size = u64::from(self.shape.size(writer));
        let seen = self.seen[writer as usize];
        if taken == seen {
            return;
        }
        let mut next = seen + 1;
        if taken > seen + size {
            next = taken - size + 1;
            self.lose(writer, next - 1 - seen);
        }
        while next <= taken {
            let first = self.entry_word(writer, next);
            let position = self.maps.entries.word(first).load(Ordering::Acquire);
            // Being taken right now: at the next look.
            if position == LOG_BEING_RESET && self.taken(writer) >= next + size {
                self.lose(writer, 1);
                next += 1;
                continue;
            }
            if position < next || position == LOG_BEING_RESET {
                break;
            }
            let copy = (self.maps.entries.word(first + 1).load(Ordering::Relaxed) as u32).wrapping_sub(1);
            let window = self.maps.entries.word(first + Self::RECORD_WORD).load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            let still = self.maps.entries.word(first).load(Ordering::Relaxed) == next;
            if position == next && still && copy < self.shape.copies() {
                self.pending.push(Taken { writer, position, copy, window });
                let newest = &mut self.newest[(copy % self.shape.entities) as usize];
                *newest = window.max(*newest);
                if let Some(gap) = self.gaps.iter().position(|w| *w == writer) {
                    self.gaps.swap_remove(gap);
                    self.blind_until = self.blind_until.max(window);
                }
            } else {
                self.lose(writer, 1);
            }
            next += 1;
        }
        self.seen[writer as usize] = next - 1;
    }

    /// How many entries a writer took so far.
    fn taken(&self, writer: u32) -> u64 {
        self.maps.ends.word(writer as usize * Self::END_WORDS).load(Ordering::Acquire)
    }

    fn take(&mut self, taken: Taken, late: bool) {
        let Some(record) = self.read(taken) else {
            self.blind_until = self.blind_until.max(taken.window);
            return self.lose(taken.writer, 1);
        };
        self.hold(taken.copy, &record);
        self.levels_by[taken.copy as usize] = taken.position as u32;
        self.fresh.push(taken);
        if taken.window == self.settled || late {
            let entity = taken.copy % self.shape.entities;
            let next = std::mem::replace(&mut self.first[entity as usize], self.found.len() as u32);
            self.found.push(Found { entity, next, late, record });
        }
    }

    /// A copy's levels are what its newest record ends with.
    fn hold(&mut self, copy: u32, record: &R) {
        for (i, edge) in record.edges().iter().enumerate() {
            self.hold_level(copy, i, edge.level_start.wrapping_add(edge.carry));
        }
    }

    /// Before a record its copy's levels were what it begins with.
    fn hold_start(&mut self, copy: u32, record: &R) {
        for (i, edge) in record.edges().iter().enumerate() {
            self.hold_level(copy, i, edge.level_start);
        }
    }

    fn hold_level(&mut self, copy: u32, edge: usize, level: i32) {
        let held = &mut self.levels[copy as usize * R::EDGES + edge];
        if *held != level {
            let entity = (copy % self.shape.entities) as usize;
            // A copy's level has no bounds: what one CPU begins another may end, for weeks. Only the sum is small, and its steps are.
            self.totals[entity * R::EDGES + edge] += i64::from(level.wrapping_sub(*held));
            *held = level;
        }
    }

    fn lose(&mut self, writer: u32, records: u64) {
        self.lapped += records;
        for list in [&mut self.behind, &mut self.gaps] {
            if !list.contains(&writer) {
                list.push(writer);
            }
        }
    }

    /// After the settled window a copy of a writer that is behind had the levels with which its next record begins.
    fn find_levels_before_pending(&mut self, behind: &[u32]) {
        // Backwards: the earliest record of a copy has the last word.
        for i in (0..self.pending.len()).rev() {
            let taken = self.pending[i];
            if behind.contains(&taken.writer)
                && let Some(record) = self.read(taken)
            {
                self.hold_start(taken.copy, &record);
            }
        }
    }

    /// The levels of all copies of a writer of which records were lost, after the last record that each wrote.
    fn find_levels(&mut self, writer: u32) {
        for copy in writer * self.shape.entities..(writer + 1) * self.shape.entities {
            let head = copy as usize * Self::HEAD_WORDS;
            let entry = self.maps.heads.word(head).load(Ordering::Acquire) as u32;
            let own = (entry < self.shape.entries()).then(|| self.read_of(copy, entry)).flatten();
            match own {
                // Begun since the last look.
                Some(record) if record.window() > self.settled => self.hold_start(copy, &record),
                Some(record) => self.hold(copy, &record),
                // Another copy has its entry: the head keeps the levels.
                None => {
                    for edge in 0..R::EDGES {
                        let word = self.maps.heads.word(head + edge.div_ceil(2)).load(Ordering::Acquire);
                        self.hold_level(copy, edge, (word >> (32 * ((edge + 1) % 2))) as u32 as i32);
                    }
                }
            }
            self.levels_by[copy as usize] = 0;
        }
    }

    fn entry_word(&self, writer: u32, position: u64) -> usize {
        let within = (position % u64::from(self.shape.size(writer))) as u32;
        (self.shape.first(writer) + within) as usize * Self::ENTRY_WORDS
    }

    /// The record of an entry, unless it was taken again.
    fn read(&self, taken: Taken) -> Option<R> {
        let first = self.entry_word(taken.writer, taken.position);
        self.read_at(first, taken.position)
    }

    /// The record at index `entry`, if it is the copy's.
    fn read_of(&self, copy: u32, entry: u32) -> Option<R> {
        let first = entry as usize * Self::ENTRY_WORDS;
        let position = self.maps.entries.word(first).load(Ordering::Acquire);
        // Before the head is asked for what its entry does not have any more.
        let own = self.maps.entries.word(first + 1).load(Ordering::Acquire) as u32 == copy + 1;
        if !own || position == LOG_BEING_RESET { None } else { self.read_at(first, position) }
    }

    fn read_at(&self, first: usize, position: u64) -> Option<R> {
        if self.maps.entries.word(first).load(Ordering::Acquire) != position {
            return None;
        }
        let mut record = std::mem::MaybeUninit::<R>::uninit();
        for i in 0..size_of::<R>() / 8 {
            let word = self.maps.entries.word(first + Self::RECORD_WORD + i).load(Ordering::Relaxed);
            // SAFETY: `i` stays inside R, whose size is a multiple of 8 (Record); writes may be unaligned to R, so unaligned.
            unsafe { record.as_mut_ptr().cast::<u64>().add(i).write_unaligned(word) };
        }
        fence(Ordering::Acquire);
        // SAFETY: every word was written, and every bit pattern is a value of R (Record).
        let record = unsafe { record.assume_init() };
        (self.maps.entries.word(first).load(Ordering::Relaxed) == position).then_some(record)
    }
}

#[cfg(test)]
mod tests;

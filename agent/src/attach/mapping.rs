//! Memory shared with kernel programs: mmap of BPF arrays made with BPF_F_MMAPABLE. Owns the unsafe part of it; knows neither
//! rings nor signals.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The kernel refused the mapping.
#[derive(Debug, thiserror::Error)]
#[error("map {map}: mmap of {bytes} bytes: {source}")]
pub struct MappingError {
    map: String,
    bytes: usize,
    source: std::io::Error,
}

/// A mapped BPF array, as 64-bit words.
#[derive(Debug)]
pub struct Mapping {
    start: *mut libc::c_void,
    bytes: usize,
    writable: bool,
}

// SAFETY: the mapping belongs to this value alone and is accessed by atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// For reading.
    pub fn read_only(name: &str, map: &aya::maps::MapData, bytes: usize) -> Result<Self, MappingError> {
        Self::new(name, map, bytes, libc::PROT_READ)
    }

    /// For reading, and for storing words that only user space writes at that time.
    pub fn read_write(name: &str, map: &aya::maps::MapData, bytes: usize) -> Result<Self, MappingError> {
        Self::new(name, map, bytes, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn new(
        name: &str,
        map: &aya::maps::MapData,
        bytes: usize,
        protection: i32,
    ) -> Result<Self, MappingError> {
        let fd = map.fd().as_fd().as_raw_fd();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours; the kernel checks the length
        // against the map. The mapping keeps the map alive, so the descriptor may close later.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            let source = std::io::Error::last_os_error();
            return Err(MappingError { map: name.to_owned(), bytes, source });
        }
        let writable = protection & libc::PROT_WRITE != 0;
        Ok(Self { start, bytes, writable })
    }

    /// Memory of its own in place of a map's.
    #[cfg(test)]
    pub fn anonymous(bytes: usize) -> Self {
        // SAFETY: a new anonymous mapping touches nothing of ours.
        let start = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { start, bytes, writable: true }
    }

    /// The same memory again, as the kernel's side has it.
    #[cfg(test)]
    pub fn shared(&self) -> Self {
        // SAFETY: with an old size of 0 the pages of a shared mapping are mapped a second time (mremap(2)).
        let start = unsafe { libc::mremap(self.start, 0, self.bytes, libc::MREMAP_MAYMOVE) };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { start, bytes: self.bytes, writable: true }
    }

    /// The word at `index`. Panics beyond the mapping.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(
            (index + 1) * 8 <= self.bytes,
            "word {index} lies outside the mapping of {} bytes",
            self.bytes
        );
        // SAFETY: inside the mapping (asserted), page-aligned start, and atomics tolerate the kernel's concurrent writes.
        // Stores go through `store`, which refuses a
        // mapping for reading.
        unsafe { &*self.start.cast::<AtomicU64>().add(index) }
    }

    /// Stores a word. Panics where the mapping is for reading.
    pub fn store(&self, index: usize, value: u64) {
        assert!(self.writable, "this mapping is for reading");
        self.word(index).store(value, Ordering::Release);
    }

    /// Stores `value` where `was` still stands, and tells whether it did: else the kernel has found another use for the word. Panics
    /// where the mapping is for reading.
    pub fn replace(&self, index: usize, was: u64, value: u64) -> bool {
        assert!(self.writable, "this mapping is for reading");
        self.word(index).compare_exchange(was, value, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes one off the count in the lower half of a word, which the kernel may be changing, and never below zero. Panics where the
    /// mapping is for reading.
    pub fn count_down(&self, index: usize) {
        assert!(self.writable, "this mapping is for reading");
        let less = |word: u64| (word as u32 > 0).then(|| word - 1);
        // Nothing to take off is no failure.
        let _ = self.word(index).fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping; no reference outlives it.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// The `clock_control` map of one object: how its programs turn CLOCK_MONOTONIC into Unix time.
#[derive(Debug)]
pub struct ClockControl {
    mapping: Mapping,
}

impl ClockControl {
    /// Maps it for writing.
    pub fn open(map: &aya::maps::MapData) -> Result<Self, MappingError> {
        let mapping = Mapping::new("clock_control", map, 8, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(Self { mapping })
    }

    /// Sets Unix time minus CLOCK_MONOTONIC; events from now on are cut by it.
    pub fn set_epoch_offset_ns(&self, offset_ns: i64) {
        self.mapping.store(0, offset_ns.cast_unsigned());
    }
}

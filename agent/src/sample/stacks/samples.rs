//! The ring of samples that `ebpf/bpf/stacks.bpf.c` writes: those of a time, read while the kernel goes on. Owns its layout and the places of registers;
//! knows no function's name.

use crate::attach::mapping::Mapping;
use crate::window::CgroupId;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use tailwater_ebpf::stacks::{REGISTERS_BYTES, STACK_FRAMES, StackCopy, StackSample};

/// Samples that are kept of a CPU at most: five seconds …
const SAMPLES_MAX: u32 = 256;
/// … within so many bytes for all that there can be.
const COPIES_BYTES: u32 = 64 << 20;

const SAMPLE_WORDS: usize = size_of::<StackSample>() / 8;
const COPY_WORDS: usize = size_of::<StackCopy>() / 8;

/// Where `struct pt_regs` of an architecture has what callers are found by, as words, and how many bytes it has.
pub(super) struct Layout {
    pub(super) bytes: u32,
    pc: usize,
    pub(super) sp: usize,
    fp: usize,
    /// The caller of a function that calls none, on architectures that keep it in a register.
    lr: Option<usize>,
}

/// Of the architecture that this program was built for (arch/x86/include/asm/ptrace.h, arch/arm64/include/asm/ptrace.h).
pub(super) const LAYOUT: Option<Layout> = if cfg!(target_arch = "x86_64") {
    Some(Layout { bytes: 168, pc: 16, sp: 19, fp: 4, lr: None })
} else if cfg!(target_arch = "aarch64") {
    Some(Layout { bytes: 272, pc: 32, sp: 31, fp: 29, lr: Some(30) })
} else {
    None
};

/// Where a thread was in user space.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
    pub(super) lr: u64,
    /// From the stack pointer on.
    pub(super) stack: Vec<u64>,
}

/// By the words of its registers, without its stack. `None`: of this architecture it is not known which word is which.
pub(super) fn place_of(word: impl Fn(usize) -> u64) -> Option<Place> {
    let layout = LAYOUT?;
    let (pc, sp, fp) = (word(layout.pc), word(layout.sp), word(layout.fp));
    Some(Place { pc, sp, fp, lr: layout.lr.map_or(0, word), stack: Vec::new() })
}

/// A moment at which a thread was on a CPU.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) cgroup: CgroupId,
    pub(super) pid: u32,
    pub(super) comm: [u8; 16],
    /// Who called whom, by frame pointers, innermost first.
    pub(super) calls: Vec<u64>,
    pub(super) place: Option<Place>,
}

/// How many samples are kept of each of so many CPUs: a power of two.
pub(super) fn kept(cpus: u32) -> u32 {
    let room = COPIES_BYTES / size_of::<StackCopy>() as u32 / cpus.max(1);
    room.checked_ilog2().map_or(1, |log| 1 << log).min(SAMPLES_MAX)
}

/// The ring.
#[derive(Debug)]
pub(super) struct Samples {
    samples: Mapping,
    copies: Mapping,
    entries: usize,
}

impl Samples {
    /// With room for so many samples; `mapped` maps a map's memory.
    pub(super) fn open<E>(
        entries: u32,
        mapped: impl Fn(&'static str, usize) -> Result<Mapping, E>,
    ) -> Result<Self, E> {
        let entries = entries as usize;
        let samples = mapped("stack_samples", entries * size_of::<StackSample>())?;
        let copies = mapped("stack_copies", entries * size_of::<StackCopy>())?;
        Ok(Self { samples, copies, entries })
    }

    /// Those of a time of CLOCK_MONOTONIC, in no order.
    pub(super) fn of(&self, time_ns: &Range<u64>) -> Vec<Sample> {
        (0..self.entries).filter_map(|entry| self.at(entry, time_ns)).collect()
    }

    fn at(&self, entry: usize, time_ns: &Range<u64>) -> Option<Sample> {
        const SEQUENCE: usize = offset_of!(StackSample, sequence) / 8;
        const TIME: usize = offset_of!(StackSample, mono_ns) / 8;
        const CGROUP: usize = offset_of!(StackSample, cgroup_id) / 8;
        const IDS: usize = offset_of!(StackSample, tgid) / 8;
        const COMM: usize = offset_of!(StackSample, comm) / 8;
        const COUNTS: usize = offset_of!(StackSample, frames) / 8;
        const CALLS: usize = offset_of!(StackSample, calls) / 8;
        let word = |at: usize| self.samples.word(entry * SAMPLE_WORDS + at).load(Ordering::Relaxed);
        let sequence = self.samples.word(entry * SAMPLE_WORDS + SEQUENCE).load(Ordering::Acquire);
        if sequence == 0 || !time_ns.contains(&word(TIME)) {
            return None;
        }
        let halves = |at: usize| {
            let [a, b, c, d, e, f, g, h] = word(at).to_ne_bytes();
            (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
        };
        let (pid, _) = halves(IDS);
        let (frames, copied) = halves(COUNTS);
        let mut comm = [0; 16];
        comm[..8].copy_from_slice(&word(COMM).to_ne_bytes());
        comm[8..].copy_from_slice(&word(COMM + 1).to_ne_bytes());
        let frames = (frames as usize).min(STACK_FRAMES);
        let sample = Sample {
            cgroup: CgroupId(word(CGROUP)),
            pid,
            comm,
            calls: (0..frames).map(|n| word(CALLS + n)).collect(),
            place: self.place(entry, copied as usize),
        };
        // The kernel may have begun to write the next one there meanwhile.
        fence(Ordering::Acquire);
        (word(SEQUENCE) == sequence).then_some(sample)
    }

    fn place(&self, entry: usize, copied: usize) -> Option<Place> {
        if copied == 0 {
            return None;
        }
        let word = |at: usize| self.copies.word(entry * COPY_WORDS + at).load(Ordering::Relaxed);
        let first = REGISTERS_BYTES / 8;
        let stack = (first..COPY_WORDS.min(first + copied / 8)).map(word).collect();
        place_of(word).map(|place| Place { stack, ..place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample that a CPU wrote at a time, with its calls and half a page of stack.
    fn written(samples: &Mapping, copies: &Mapping, entry: usize, sequence: u64, mono_ns: u64) {
        let at = |field: usize| entry * SAMPLE_WORDS + field / 8;
        samples.store(at(offset_of!(StackSample, mono_ns)), mono_ns);
        samples.store(at(offset_of!(StackSample, cgroup_id)), 11);
        samples.store(at(offset_of!(StackSample, tgid)), 7 | 8 << 32);
        samples.store(at(offset_of!(StackSample, comm)), u64::from_ne_bytes(*b"server\0\0"));
        samples.store(at(offset_of!(StackSample, frames)), 2 | 2048 << 32);
        samples.store(at(offset_of!(StackSample, calls)), 0x1000);
        samples.store(at(offset_of!(StackSample, calls)) + 1, 0x2000);
        let layout = LAYOUT.unwrap();
        copies.store(entry * COPY_WORDS + layout.sp, 0x7ff0);
        copies.store(entry * COPY_WORDS + layout.pc, 0x1000);
        copies.store(entry * COPY_WORDS + REGISTERS_BYTES / 8, 42);
        samples.store(at(offset_of!(StackSample, sequence)), sequence);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn samples_of_a_time_are_read_and_one_that_is_being_written_is_none() {
        let (samples, copies) = (
            Mapping::anonymous(4 * size_of::<StackSample>()),
            Mapping::anonymous(4 * size_of::<StackCopy>()),
        );
        let ring = Samples { samples: samples.shared(), copies: copies.shared(), entries: 4 };
        written(&samples, &copies, 0, 1, 100);
        written(&samples, &copies, 1, 2, 300);
        written(&samples, &copies, 2, 0, 150);
        let read = ring.of(&(100..200));
        assert_eq!(read.len(), 1);
        let sample = &read[0];
        assert_eq!((sample.cgroup, sample.pid, &sample.comm[..6]), (CgroupId(11), 7, b"server".as_slice()));
        assert_eq!(sample.calls, [0x1000, 0x2000]);
        let place = sample.place.as_ref().unwrap();
        assert_eq!((place.pc, place.sp, place.stack.len(), place.stack[0]), (0x1000, 0x7ff0, 256, 42));
    }

    #[test]
    fn what_is_kept_of_a_cpu_gets_less_with_more_of_them() {
        assert_eq!(
            [kept(1), kept(2), kept(58), kept(96), kept(512), kept(65_536)],
            [256, 256, 256, 128, 16, 1]
        );
    }
}

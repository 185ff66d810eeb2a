//! Records of the memory hooks: the mirror of `bpf/include/memory_records.h`.

use crate::record::EdgeSum;

/// `PAUSE_WINDOWS`.
pub const PAUSE_WINDOWS: usize = 5;
/// Index of a step function in [`MemoryRecord::edges`]: tasks in direct reclaim.
pub const MEMORY_RECLAIM: usize = 0;

/// `struct memory_record`: the tasks of one cgroup, on one CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "memory_records.h explains the fields")]
pub struct MemoryRecord {
    pub window: u64,
    pub edges: [EdgeSum; 1],
    pub pause_ns: [u64; PAUSE_WINDOWS],
}
crate::record!(MemoryRecord, edges: 1);

const _: () = assert!(size_of::<MemoryRecord>() == 64);

//! Records of the block hooks: the mirror of `bpf/include/block_records.h`.

use crate::record::EdgeSum;

/// `IO_SUBMITTERS`.
pub const IO_SUBMITTERS: usize = 8;
/// Index of a step function in [`DeviceRecord::edges`]: requests in flight.
pub const DEVICE_IN_FLIGHT: usize = 0;

/// `struct device_record`: one block device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "block_records.h explains the fields")]
pub struct DeviceRecord {
    pub window: u64,
    pub edges: [EdgeSum; 1],
    pub bytes: u64,
    pub latency_ns: u64,
    pub latency_max_ns: u64,
    pub in_flight_max: u32,
    pub issued: u32,
    pub completed: u32,
    pub flushes: u32,
}
crate::record!(DeviceRecord, edges: 1);

/// `struct io_record`: what one cgroup submitted.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "block_records.h explains the fields")]
pub struct IoRecord {
    pub window: u64,
    pub edges: [EdgeSum; 0],
    pub bytes: u64,
    pub requests: u32,
    pub flushes: u32,
}
crate::record!(IoRecord, edges: 0);

/// `struct submitter`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "block_records.h explains the fields")]
pub struct Submitter {
    pub bytes: u64,
    pub over_bytes: u64,
    pub tgid: u32,
    pub slot: u32,
    pub comm: [u8; 16],
}

/// `struct submitters_record`: who submitted.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "block_records.h explains the fields")]
pub struct SubmittersRecord {
    pub window: u64,
    pub edges: [EdgeSum; 0],
    pub submitters: [Submitter; IO_SUBMITTERS],
}
crate::record!(SubmittersRecord, edges: 0);

/// `struct device_state`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "block_records.h explains the fields")]
pub struct DeviceState {
    pub device: u32,
    pub in_flight: i32,
}

/// `struct block_losses`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "block_records.h explains the fields")]
pub struct BlockLosses {
    pub untracked: u64,
    pub stale: u64,
}

const _: () = assert!(size_of::<DeviceRecord>() == 64);
const _: () = assert!(size_of::<IoRecord>() == 24);
const _: () = assert!(size_of::<Submitter>() == 40);
const _: () = assert!(size_of::<SubmittersRecord>() == 8 + IO_SUBMITTERS * 40);
const _: () = assert!(size_of::<DeviceState>() == 8);
const _: () = assert!(size_of::<BlockLosses>() == 16);

//! Records of the scheduler hooks: the mirror of `bpf/include/sched_records.h` and `slot_state` of `bpf/include/cgroup.h`.

use crate::record::EdgeSum;

/// `HIST_BUCKETS`.
pub const HIST_BUCKETS: usize = 20;
/// `CPU_CULPRITS`.
pub const CPU_CULPRITS: usize = 8;
/// `IO_CULPRITS`.
pub const IO_CULPRITS: usize = 4;
/// `BLOCKED_NOW`.
pub const BLOCKED_NOW: usize = 32;

/// `STOPPED_PROCESSES`.
pub const STOPPED_PROCESSES: usize = 33;

/// Index of a step function in [`TaskRecord::edges`]: tasks on CPU.
pub const TASK_BUSY: usize = 0;
/// Tasks runnable and not running.
pub const TASK_WAITING: usize = 1;
/// Tasks asleep for I/O.
pub const TASK_BLOCKED: usize = 2;
/// Index of a step function in [`MachineRecord::edges`]: the CPU runs a task.
pub const MACHINE_BUSY: usize = 0;
/// The CPU is idle while a task that slept on it waits for I/O.
pub const MACHINE_IOWAIT: usize = 1;

/// `struct task_record`: the tasks of one cgroup, on one CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "sched_records.h explains the fields")]
pub struct TaskRecord {
    pub window: u64,
    pub edges: [EdgeSum; 3],
    pub uncharged_ns: i64,
    pub wait_max_ns: u64,
    pub waiting_max: u32,
    pub blocked_max: u32,
    pub switches: u32,
    pub reserved: u32,
    pub wait_hist: [u16; HIST_BUCKETS],
}
crate::record!(TaskRecord, edges: 3);

/// `struct culprit`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "sched_records.h explains the fields")]
pub struct Culprit {
    pub ns: u64,
    pub over_ns: u64,
    pub tgid: u32,
    pub slot: u32,
    pub comm: [u8; 16],
}

/// `struct machine_record`: one CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "sched_records.h explains the fields")]
pub struct MachineRecord {
    pub window: u64,
    pub edges: [EdgeSum; 2],
    pub uncharged_ns: i64,
    pub stolen_ns: u64,
    pub switches: u32,
    pub missed: u32,
    pub cpu: [Culprit; CPU_CULPRITS],
    pub io: [Culprit; IO_CULPRITS],
}
crate::record!(MachineRecord, edges: 2);

/// `struct cpu_state`: what a CPU runs now.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "sched_records.h explains the fields")]
pub struct CpuState {
    pub sequence: u64,
    pub since_ns: u64,
    pub steal_ns: u64,
    pub charged_ns: u64,
    pub slot: u32,
    pub tgid: u32,
    pub running: u32,
    pub iowait: u32,
    pub pid: u32,
    pub untracked: u32,
    pub window: u64,
    pub window_start_ns: u64,
    pub clock_offset_ns: i64,
    pub clock_checked_ns: u64,
}

/// `struct blocked_now`: a task that is asleep for I/O.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "sched_records.h explains the fields")]
pub struct BlockedNow {
    pub since_ns: u64,
    pub slot: u32,
    pub tgid: u32,
    pub comm: [u8; 16],
}

/// `struct stopped_record`: the stopped threads of one process, on one CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "sched_records.h explains the fields")]
pub struct StoppedRecord {
    pub window: u64,
    pub edges: [EdgeSum; 1],
    pub stopped_max: u32,
    pub reserved: u32,
}
crate::record!(StoppedRecord, edges: 1);

/// `struct stopped_process`: one slot of the processes with stopped threads.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "sched_records.h explains the fields")]
pub struct StoppedProcess {
    pub process: u64,
    pub stopped: i32,
    pub reserved: u32,
}

/// `struct slot_state`: one slot of a table of cgroups.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "cgroup.h explains the fields")]
pub struct SlotState {
    pub cgroup_id: u64,
    pub removed: u32,
    pub overflows: u32,
    pub waiting: i32,
    pub blocked: i32,
    pub reserved: [u64; 5],
}

const _: () = assert!(size_of::<TaskRecord>() == 128);
const _: () = assert!(size_of::<Culprit>() == 40);
const _: () = assert!(size_of::<MachineRecord>() == 64 + 12 * 40);
const _: () = assert!(size_of::<CpuState>() == 88);
const _: () = assert!(size_of::<BlockedNow>() == 32);
const _: () = assert!(size_of::<StoppedRecord>() == 32);
const _: () = assert!(size_of::<StoppedProcess>() == 16);
const _: () = assert!(size_of::<SlotState>() == 64);

//! Records of the sampler: the mirror of `bpf/include/stacks_records.h`.

/// `SAMPLED_NS`.
pub const SAMPLED_NS: u64 = 17_000_000;
/// `STACK_FRAMES`.
pub const STACK_FRAMES: usize = 24;
/// `REGISTERS_BYTES`.
pub const REGISTERS_BYTES: usize = 384;
/// `STACK_BYTES`.
pub const STACK_BYTES: usize = 4096;

/// `struct stack_sample`: a thread on a CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "stacks_records.h explains the fields")]
pub struct StackSample {
    pub sequence: u64,
    pub mono_ns: u64,
    pub cgroup_id: u64,
    pub tgid: u32,
    pub tid: u32,
    pub comm: [u8; 16],
    pub frames: u32,
    pub copied: u32,
    pub calls: [u64; STACK_FRAMES],
}

/// `struct stack_copy`: a thread's registers and the top of its stack.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "stacks_records.h explains the fields")]
pub struct StackCopy {
    pub registers: [u64; REGISTERS_BYTES / 8],
    pub stack: [u64; STACK_BYTES / 8],
}

/// `struct waiting_thread`: a thread that is off the CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "stacks_records.h explains the fields")]
pub struct WaitingThread {
    pub tgid: u32,
    pub tid: u32,
    pub registers: [u64; REGISTERS_BYTES / 8],
}

const _: () = assert!(size_of::<WaitingThread>() == 8 + REGISTERS_BYTES);
const _: () = assert!(size_of::<StackSample>() == 56 + STACK_FRAMES * 8);
const _: () = assert!(size_of::<StackCopy>() == REGISTERS_BYTES + STACK_BYTES);

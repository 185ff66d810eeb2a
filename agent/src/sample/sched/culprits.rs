//! The processes that used a saturated CPU, and those that waited for I/O. Owns joining the records' tables with the intervals
//! that are still open; knows no ring.

use crate::attach::loader::{LoadError, LoadedObject};
use crate::attach::mapping::Mapping;
use crate::name::workload::comm;
use crate::sample::slots::{OTHER, Slots};
use crate::window::{CulpritResource, CulpritSample, WINDOW_NS};
use std::collections::HashMap;
use std::sync::atomic::{Ordering, fence};
use tailwater_ebpf::sched::{BLOCKED_NOW, BlockedNow, CpuState, Culprit, MachineRecord};

/// Culprits are told when the tasks of some workload waited longer than this in one window: a tenth of a CPU.
pub(super) const SATURATED_NS: u64 = 5_000_000;
/// Told per resource and window.
const TOLD: usize = 5;

const CPU_WORDS: usize = size_of::<CpuState>() / 8;
/// Its upper half is [`CpuState::untracked`].
const UNTRACKED_WORD: usize = std::mem::offset_of!(CpuState, untracked) / 8;
const BLOCKED_WORDS: usize = size_of::<BlockedNow>() / 8;

#[derive(Debug)]
struct Used {
    slot: u32,
    comm: Option<String>,
    ns: u64,
}

/// Per-process use of one window.
#[derive(Debug)]
pub(super) struct Culprits {
    cpu_states: Mapping,
    blocked: Mapping,
    cpus: usize,
    epoch_offset_ns: i64,
    start_ns: u64,
    /// Per CPU, the sequence number under which an interval of this window was open at `begin`.
    open_at: Vec<Option<u64>>,
    on_cpu: HashMap<u32, Used>,
    on_io: HashMap<u32, Used>,
}

impl Culprits {
    pub(super) fn open(object: &LoadedObject, cpus: u32, epoch_offset_ns: i64) -> Result<Self, LoadError> {
        let cpus = cpus as usize;
        Ok(Self {
            cpu_states: object.mapping("cpu_states", cpus * size_of::<CpuState>())?,
            blocked: object.mapping("blocked_tables", cpus * BLOCKED_NOW * size_of::<BlockedNow>())?,
            cpus,
            epoch_offset_ns,
            start_ns: 0,
            open_at: vec![None; cpus],
            on_cpu: HashMap::new(),
            on_io: HashMap::new(),
        })
    }

    pub(super) fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.epoch_offset_ns = offset_ns;
    }

    /// Starts a window with the intervals that no event has ended.
    pub(super) fn begin(&mut self, window: u64) {
        self.start_ns = window * WINDOW_NS;
        self.on_cpu.clear();
        self.on_io.clear();
        for cpu in 0..self.cpus {
            let at = cpu * CPU_WORDS;
            let word = |i: usize| self.cpu_states.word(at + i).load(Ordering::Acquire);
            let sequence = word(0);
            let (since_ns, slot, tgid) = (word(1), word(4) as u32, (word(4) >> 32) as u32);
            let ns = if tgid == 0 { 0 } else { self.overlap(since_ns) };
            let torn = !sequence.is_multiple_of(2);
            self.open_at[cpu] = (ns > 0 || torn).then_some(sequence);
            use_more(&mut self.on_cpu, tgid, slot, None, ns);
        }
        for entry in 0..self.cpus * BLOCKED_NOW {
            let word = |i: usize| self.blocked.word(entry * BLOCKED_WORDS + i).load(Ordering::Acquire);
            let (slot, tgid) = (word(1) as u32, (word(1) >> 32) as u32);
            if tgid != 0 {
                let ns = self.overlap(word(0));
                let mut comm = [0; 16];
                comm[..8].copy_from_slice(&word(2).to_ne_bytes());
                comm[8..].copy_from_slice(&word(3).to_ne_bytes());
                use_more(&mut self.on_io, tgid, slot, Some(text(&comm)), ns);
            }
        }
    }

    /// Tasks that came on a CPU and could have no storage.
    pub(super) fn untracked(&self) -> u64 {
        let of = |cpu| self.cpu_states.word(cpu * CPU_WORDS + UNTRACKED_WORD).load(Ordering::Relaxed) >> 32;
        (0..self.cpus).map(of).sum()
    }

    /// How much of the window an interval covers that began at `since_ns` and goes on.
    fn overlap(&self, since_ns: u64) -> u64 {
        let since_unix_ns = since_ns.saturating_add_signed(self.epoch_offset_ns);
        (self.start_ns + WINDOW_NS).saturating_sub(since_unix_ns.max(self.start_ns))
    }

    /// Adds what one CPU's record says.
    pub(super) fn add(&mut self, record: &MachineRecord) {
        let known = |c: &&Culprit| c.tgid != 0;
        for c in record.cpu.iter().filter(known) {
            use_more(&mut self.on_cpu, c.tgid, c.slot, Some(text(&c.comm)), c.ns.saturating_sub(c.over_ns));
        }
        for c in record.io.iter().filter(known) {
            use_more(&mut self.on_io, c.tgid, c.slot, Some(text(&c.comm)), c.ns.saturating_sub(c.over_ns));
        }
    }

    /// Whether every interval that was open at `begin` still was when the records had been read.
    pub(super) fn settled(&self) -> bool {
        fence(Ordering::Acquire);
        self.open_at.iter().enumerate().all(|(cpu, open_at)| {
            let now = self.cpu_states.word(cpu * CPU_WORDS).load(Ordering::Relaxed);
            open_at.is_none_or(|sequence| sequence == now && sequence.is_multiple_of(2))
        })
    }

    /// The processes that used most.
    pub(super) fn report(&mut self, cpu: bool, io: bool, slots: &Slots, into: &mut Vec<CulpritSample>) {
        if cpu {
            top(&mut self.on_cpu, CulpritResource::Cpu, slots, into);
        }
        if io {
            top(&mut self.on_io, CulpritResource::IoBlocked, slots, into);
        }
    }
}

fn use_more(table: &mut HashMap<u32, Used>, pid: u32, slot: u32, comm: Option<String>, ns: u64) {
    if ns == 0 {
        return;
    }
    let used = table.entry(pid).or_insert(Used { slot, comm: None, ns: 0 });
    used.ns += ns;
    if used.comm.is_none() {
        used.comm = comm;
    }
}

fn top(
    table: &mut HashMap<u32, Used>,
    resource: CulpritResource,
    slots: &Slots,
    into: &mut Vec<CulpritSample>,
) {
    let mut all: Vec<(u32, Used)> = table.drain().collect();
    all.sort_by(|(a_pid, a), (b_pid, b)| b.ns.cmp(&a.ns).then(a_pid.cmp(b_pid)));
    all.truncate(TOLD);
    into.extend(all.into_iter().map(|(pid, used)| CulpritSample {
        resource,
        pid,
        // One without has been on CPU since before the window, and so is alive.
        comm: used.comm.unwrap_or_else(|| comm(pid)),
        workload: slots.owner(used.slot).unwrap_or(OTHER),
        amount: used.ns,
    }));
}

fn text(comm: &[u8; 16]) -> String {
    let end = comm.iter().position(|b| *b == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}

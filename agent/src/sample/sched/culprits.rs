//! The processes that used a saturated CPU, and those that waited for I/O. Owns joining the records' tables with the intervals
//! that are still open; knows no ring.

use crate::attach::loader::{LoadError, LoadedObject};
use crate::attach::mapping::Mapping;
use crate::name::workload::comm;
use crate::sample::slots::{OTHER, Slots};
use crate::sample::tasks;
use crate::window::{CulpritResource, CulpritSample, WINDOW_NS};
use std::collections::HashMap;
use std::sync::atomic::{Ordering, fence};
use tailwater_ebpf::sched::{BLOCKED_NOW, BlockedNow, CpuState, Culprit, MachineRecord};

/// Culprits are told when the tasks of some workload waited longer than this in one window: a tenth of a CPU.
pub(super) const SATURATED_NS: u64 = 5_000_000;
/// Told per resource and window.
const TOLD: usize = 5;
/// How often one CPU is looked at in which an interval of the window ends just then. It takes a CPU that is away in the midst of a switch to need
/// them all.
const LOOKS: usize = 8;

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
            on_cpu: HashMap::new(),
            on_io: HashMap::new(),
        })
    }

    pub(super) fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.epoch_offset_ns = offset_ns;
    }

    /// Who used how much of a window: by the record of each CPU, which `record` reads, and by intervals that no event has ended.
    pub(super) fn gather(&mut self, window: u64, record: impl Fn(usize) -> Option<MachineRecord>) {
        self.start_ns = window * WINDOW_NS;
        self.on_cpu.clear();
        self.on_io.clear();
        for entry in 0..self.cpus * BLOCKED_NOW {
            let word = |i: usize| self.blocked.word(entry * BLOCKED_WORDS + i).load(Ordering::Acquire);
            let (slot, tgid) = (word(1) as u32, (word(1) >> 32) as u32);
            if tgid != 0 {
                let ns = self.overlap(word(0));
                let mut comm = [0; 16];
                comm[..8].copy_from_slice(&word(2).to_ne_bytes());
                comm[8..].copy_from_slice(&word(3).to_ne_bytes());
                use_more(&mut self.on_io, tgid, slot, Some(tasks::comm(&comm)), ns);
            }
        }
        for cpu in 0..self.cpus {
            let (tgid, slot, ns, record) = self.look(cpu, &record);
            use_more(&mut self.on_cpu, tgid, slot, None, ns);
            if let Some(record) = record {
                self.add(&record);
            }
        }
    }

    /// Process, slot and ns of the interval that is open on a CPU, as far as it is of the window, and what its record says. A switch between
    /// reading the one and the other would count an interval twice, or not at all: then that CPU is looked at again, and no other.
    fn look(
        &self,
        cpu: usize,
        record: impl Fn(usize) -> Option<MachineRecord>,
    ) -> (u32, u32, u64, Option<MachineRecord>) {
        let word = |i: usize| self.cpu_states.word(cpu * CPU_WORDS + i).load(Ordering::Acquire);
        let mut looks = 0;
        loop {
            looks += 1;
            let sequence = word(0);
            let (since_ns, slot, tgid) = (word(1), word(4) as u32, (word(4) >> 32) as u32);
            let ns = if tgid == 0 { 0 } else { self.overlap(since_ns) };
            let told = record(cpu);
            fence(Ordering::Acquire);
            // What began after the window may end.
            let settled = sequence.is_multiple_of(2) && (ns == 0 || word(0) == sequence);
            if settled || looks >= LOOKS {
                return (tgid, slot, ns, told);
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
    fn add(&mut self, record: &MachineRecord) {
        let known = |c: &&Culprit| c.tgid != 0;
        for c in record.cpu.iter().filter(known) {
            use_more(
                &mut self.on_cpu,
                c.tgid,
                c.slot,
                Some(tasks::comm(&c.comm)),
                c.ns.saturating_sub(c.over_ns),
            );
        }
        for c in record.io.iter().filter(known) {
            use_more(
                &mut self.on_io,
                c.tgid,
                c.slot,
                Some(tasks::comm(&c.comm)),
                c.ns.saturating_sub(c.over_ns),
            );
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const WINDOW: u64 = 3;
    const START_NS: u64 = WINDOW * WINDOW_NS;

    /// Of machines with so many CPUs, on which nothing runs yet, and the kernel's side of what they run.
    fn culprits(cpus: usize) -> (Culprits, Mapping) {
        let cpu_states = Mapping::anonymous(cpus * size_of::<CpuState>());
        let kernel = cpu_states.shared();
        let blocked = Mapping::anonymous(cpus * BLOCKED_NOW * size_of::<BlockedNow>());
        let (on_cpu, on_io) = (HashMap::new(), HashMap::new());
        (Culprits { cpu_states, blocked, cpus, epoch_offset_ns: 0, start_ns: 0, on_cpu, on_io }, kernel)
    }

    /// A CPU runs this process since then.
    fn runs(kernel: &Mapping, cpu: usize, sequence: u64, tgid: u32, since_ns: u64) {
        let at = cpu * CPU_WORDS;
        kernel.store(at + 1, since_ns);
        kernel.store(at + 4, u64::from(tgid) << 32);
        kernel.store(at, sequence);
    }

    /// A record by which a process used so much.
    fn used(tgid: u32, ns: u64) -> MachineRecord {
        // SAFETY: every bit pattern is a value of it (`Record`).
        let mut record: MachineRecord = unsafe { std::mem::zeroed() };
        (record.cpu[0].tgid, record.cpu[0].ns) = (tgid, ns);
        record
    }

    fn told(culprits: &Culprits) -> Vec<(u32, u64)> {
        let mut told: Vec<_> = culprits.on_cpu.iter().map(|(tgid, used)| (*tgid, used.ns)).collect();
        told.sort_unstable();
        told
    }

    #[test]
    fn an_interval_that_ends_while_it_is_read_counts_once_and_no_other_cpu_is_read_again() {
        let (mut culprits, kernel) = culprits(3);
        runs(&kernel, 0, 2, 70, 0);
        runs(&kernel, 1, 2, 71, 0);
        // It began after the window.
        runs(&kernel, 2, 2, 72, START_NS + 2 * WINDOW_NS);
        let reads = RefCell::new([0; 3]);
        culprits.gather(WINDOW, |cpu| {
            reads.borrow_mut()[cpu] += 1;
            if cpu != 1 {
                // On CPU 2 somebody else comes each time it is looked at, and 72 used none of this window.
                let again = reads.borrow()[cpu];
                runs(&kernel, 2, 2 + 2 * again, 72, START_NS + 2 * WINDOW_NS);
                return None;
            }
            // It is over: from now on the record tells of it.
            runs(&kernel, 1, 4, 73, START_NS + 2 * WINDOW_NS);
            Some(used(71, WINDOW_NS))
        });
        assert_eq!(told(&culprits), [(70, WINDOW_NS), (71, WINDOW_NS)]);
        assert_eq!(reads.into_inner(), [1, 2, 1]);
    }

    #[test]
    fn a_cpu_that_is_away_in_the_midst_of_a_switch_is_not_waited_for() {
        let (mut culprits, kernel) = culprits(1);
        runs(&kernel, 0, 3, 70, 0);
        let reads = RefCell::new(0);
        culprits.gather(WINDOW, |_| {
            *reads.borrow_mut() += 1;
            None
        });
        assert_eq!((told(&culprits), reads.into_inner()), (vec![(70, WINDOW_NS)], LOOKS));
    }
}

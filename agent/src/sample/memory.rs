//! Memory stalls per cgroup, from `ebpf/bpf/memory.bpf.c`: direct reclaim and dirty-page pauses. Owns turning its records into
//! samples. Knows no limits and no cgroup names.

use crate::attach::loader::{
    AttachConfig, LoadError, LoadedObject, LogNames, ObjectPlan, log_names, programs_are_preempted,
};
use crate::attach::mapping::ClockControl;
use crate::attach::price::Price;
use crate::attach::rest::Rest;
use crate::attach::ring::Level;
use crate::attach::storage::Owner;
use crate::attach::window_log::{Log, LogShape};
use crate::sample::slots::{self, Slots};
use crate::signal::{Coverage, Loss, SignalKind, SignalSource};
use crate::window::{CgroupId, MemorySample, Window, WindowIndex};
use rustix::time::{ClockId, clock_getres};
use tailwater_ebpf::memory::{MEMORY_RECLAIM, MemoryRecord, PAUSE_WINDOWS};
use tailwater_ebpf::objects;
use tailwater_ebpf::record::{NEST, WINDOWS};

/// What the memory signal needs to attach.
pub type MemoryConfig<'a> = AttachConfig<'a>;

const LOG: LogNames = log_names!("memory_log");
/// Room for the records of all CPUs: stalls are rare.
const LOG_BYTES: usize = 4 << 20;

/// The memory hooks and their log.
#[derive(Debug)]
pub struct MemorySignal {
    log: Log<MemoryRecord>,
    slots: Slots,
    /// Per slot, what pauses of earlier windows sleep in the window that comes next, and in those after it.
    pauses_ns: Vec<[u64; PAUSE_WINDOWS]>,
    next: u64,
    clock: ClockControl,
    reason: String,
    rest: Rest,
    /// Keeps the programs attached.
    object: LoadedObject,
}

impl MemorySignal {
    /// Loads and attaches; from its return on every stall is counted.
    pub fn attach(config: &MemoryConfig<'_>) -> Result<Self, LoadError> {
        let cpus = config.cpus;
        let entities = config.entities();
        // MEMORY_NEST of the programs.
        let nest = if programs_are_preempted() { NEST } else { 1 };
        let shape = LogShape::within::<MemoryRecord>(LOG_BYTES, cpus, nest, entities);
        let plan = ObjectPlan::new("memory", objects::MEMORY)
            .log(&LOG, shape)
            .nested()
            .global("cfg_tick_ns", tick_ns());
        let mut object = slots::plan(plan, entities, config.cgroup_hierarchy).load(config.btf)?;
        object.keeps("stall_states", Owner::Task)?;
        let (clock, rest) = (object.clock()?, object.rest()?);
        clock.set_epoch_offset_ns(config.epoch_offset_ns);
        let log = object.log(&LOG, shape)?;
        let slots = Slots::open(&mut object, entities)?;
        for (program, tracepoint) in [
            ("on_direct_end", "mm_vmscan_direct_reclaim_end"),
            ("on_memcg_end", "mm_vmscan_memcg_reclaim_end"),
            ("on_direct_begin", "mm_vmscan_direct_reclaim_begin"),
        ] {
            object.attach_tp_btf(program, tracepoint, config.btf)?;
        }
        let mut missing = vec!["no tracepoint tells swap-ins".to_owned()];
        // The one with more arguments first: where the kernel gives fewer, its verifier refuses it.
        let pause = object
            .attach_tp_btf("on_pause_before_6_17", "balance_dirty_pages", config.btf)
            .or_else(|_| object.attach_tp_btf("on_pause", "balance_dirty_pages", config.btf));
        let optional = [
            object.attach_tp_btf("on_memcg_begin", "mm_vmscan_memcg_reclaim_begin", config.btf),
            pause,
            object.attach_tp_btf("on_cgroup_rmdir", "cgroup_rmdir", config.btf),
        ];
        missing.extend(optional.into_iter().filter_map(Result::err).map(|e| e.to_string()));
        Ok(Self {
            log,
            pauses_ns: vec![[0; PAUSE_WINDOWS]; entities as usize],
            slots,
            next: 0,
            clock,
            reason: missing.join("; "),
            rest,
            object,
        })
    }

    fn drain_slot(&mut self, slot: u32, window: u64) -> MemorySample {
        let mut levels = [Level::default(); 1];
        let pauses = &mut self.pauses_ns[slot as usize];
        self.log.drain(slot, window, &mut levels, |record| {
            for (sum, ns) in pauses.iter_mut().zip(record.pause_ns) {
                *sum += ns;
            }
        });
        let dirty_throttle_ns = pauses[0];
        pauses.rotate_left(1);
        pauses[PAUSE_WINDOWS - 1] = 0;
        MemorySample { reclaim_ns: levels[MEMORY_RECLAIM].ns(), swap_ins: 0, dirty_throttle_ns }
    }

    /// What its kernel programs cost. To be taken once.
    pub fn price(&mut self) -> Result<Price, LoadError> {
        self.object.price()
    }
}

/// The kernel's tick: what its coarse clock resolves.
fn tick_ns() -> u32 {
    const TICK_250_HZ_NS: u32 = 4_000_000;
    match u32::try_from(clock_getres(ClockId::MonotonicCoarse).tv_nsec) {
        Ok(ns) if ns > 0 => ns,
        _ => TICK_250_HZ_NS,
    }
}

impl SignalSource for MemorySignal {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn coverage(&self) -> Vec<Coverage> {
        vec![Coverage {
            signal: SignalKind::Memory,
            covered: true,
            sampled: false,
            hook: "tp_btf/mm_vmscan_direct_reclaim_begin".to_owned(),
            reason: self.reason.clone(),
        }]
    }

    fn losses(&self) -> Vec<Loss> {
        vec![
            Loss { what: "memory_cgroups_folded", count: self.slots.overflows().into() },
            Loss { what: "memory_records_lapped", count: self.log.lapped() },
            Loss { what: "memory_runs_skipped", count: self.object.skipped_runs() },
        ]
    }

    fn drain(&mut self, into: &mut Window) {
        let window = into.index.0;
        if self.next != window {
            // What pauses of windows that were never read sleep in this one is not known.
            self.pauses_ns.fill([0; PAUSE_WINDOWS]);
        }
        self.next = window + 1;
        let mut found: Vec<(CgroupId, MemorySample)> = Vec::new();
        for slot in 0..self.slots.entities() {
            let Some(owner) = self.slots.owner(slot) else { continue };
            let sample = self.drain_slot(slot, window);
            if sample != MemorySample::default() {
                found.push((owner, sample));
            }
        }
        into.memory = self.log.if_known(window, found);
        if window.is_multiple_of(WINDOWS) {
            let log = &mut self.log;
            self.slots.release_removed(window, |slot| log.newest(slot));
        }
    }

    fn skip_to(&mut self, first: WindowIndex) {
        self.log.skip_to(first.0);
    }

    fn rest(&mut self, rests: bool) -> bool {
        self.rest.set(rests)
    }

    fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.clock.set_epoch_offset_ns(offset_ns);
    }
}

//! CPU, run queue and tasks blocked on I/O, from `ebpf/bpf/sched.bpf.c`. Owns turning the scheduler's records into samples;
//! `culprits` owns the processes behind them, `stopped` those whose threads are stopped. Knows no cgroup names and no device.

use crate::attach::loader::{
    AttachConfig, LoadError, LoadedObject, LogNames, ObjectPlan, log_names, possible_cpus,
};
use crate::attach::mapping::ClockControl;
use crate::attach::price::Price;
use crate::attach::probe::online_cpus;
use crate::attach::ring::{Level, Ring, Shape};
use crate::attach::storage::Owner;
use crate::attach::window_log::{Log, LogShape};
use crate::sample::slots::{self, Slots};
use crate::signal::{Coverage, Loss, SignalKind, SignalSource};
use crate::window::{CgroupId, MachineCpu, TaskSample, WINDOW_NS, Window, WindowIndex};
use rustix::thread::{CpuSet, sched_setaffinity};
use tailwater_ebpf::objects;
use tailwater_ebpf::record::WINDOWS;
use tailwater_ebpf::sched::{
    MACHINE_BUSY, MACHINE_IOWAIT, MachineRecord, TASK_BLOCKED, TASK_BUSY, TASK_WAITING, TaskRecord,
};

mod culprits;
mod stopped;
use culprits::{Culprits, SATURATED_NS};
use stopped::Stopped;

/// What the scheduler signal needs to attach.
pub type SchedConfig<'a> = AttachConfig<'a>;

const HOOK: &str = "tp_btf/sched_switch";
const TASK_LOG: LogNames = log_names!("task_log");
/// Room for the records of all CPUs: of 128 CPUs each can hold those of 512 cgroups and windows.
const TASK_LOG_BYTES: usize = 16 << 20;
/// Windows between two looks at which CPUs are online: a second. They come and go with a machine's size.
const ONLINE_ASKED_WINDOWS: u64 = 20;

/// The scheduler's hooks and records.
#[derive(Debug)]
pub struct SchedSignal {
    tasks: Log<TaskRecord>,
    machine: Ring<MachineRecord>,
    slots: Slots,
    culprits: Culprits,
    stopped: Stopped,
    clock: ClockControl,
    cpus: u32,
    degraded: String,
    /// Keeps the programs attached.
    object: LoadedObject,
}

impl SchedSignal {
    /// Loads and attaches; from its return on every switch is counted.
    pub fn attach(config: &SchedConfig<'_>) -> Result<Self, LoadError> {
        let cpus = config.cpus;
        let entities = config.entities();
        let task_shape = LogShape::within::<TaskRecord>(TASK_LOG_BYTES, cpus, 1, entities);
        let machine_shape = Shape { cpus, nest: 1 };
        let plan = ObjectPlan::new("sched", objects::SCHED)
            .log(&TASK_LOG, task_shape)
            .max_entries("machine_ring", machine_shape.copies())
            .log(&stopped::LOG, Stopped::shape(cpus))
            .max_entries("cpu_states", cpus)
            .max_entries("blocked_tables", cpus);
        let mut object = slots::plan(plan, entities, config.cgroup_hierarchy).load(config.btf)?;
        object.keeps("task_states", Owner::Task)?;
        let clock = object.clock()?;
        clock.set_epoch_offset_ns(config.epoch_offset_ns);
        let tasks = object.log(&TASK_LOG, task_shape)?;
        let machine = object.ring("machine_ring", machine_shape)?;
        let slots = Slots::open(&mut object, entities)?;
        let culprits = Culprits::open(&object, cpus, config.epoch_offset_ns)?;
        let stopped = Stopped::open(&object, cpus)?;
        // What ends a wait comes before what begins one: a task that woke in between and was gone by the end would wait for ever.
        object.attach_tp_btf("on_switch", "sched_switch", config.btf)?;
        object.attach_tp_btf("on_wakeup", "sched_wakeup", config.btf)?;
        object.attach_tp_btf("on_wakeup_new", "sched_wakeup_new", config.btf)?;
        // Without it slots of removed cgroups are not reused; the signal itself is whole.
        let degraded = match object.attach_tp_btf("on_cgroup_rmdir", "cgroup_rmdir", config.btf) {
            Ok(()) => String::new(),
            Err(error) => format!("slots of removed cgroups are kept: {error}"),
        };
        visit_every_cpu();
        let online = online_cpus();
        Ok(Self { tasks, machine, slots, culprits, stopped, clock, cpus: online, degraded, object })
    }

    /// Events of cgroups that found no slot and were counted under [`slots::OTHER`].
    pub fn slot_overflows(&self) -> u32 {
        self.slots.overflows()
    }

    /// Slots of removed cgroups that were given back.
    pub fn slots_released(&self) -> u64 {
        self.slots.released()
    }

    /// What its kernel programs cost. To be taken once.
    pub fn price(&mut self) -> Result<Price, LoadError> {
        self.object.price()
    }

    /// Records that were overwritten before they were read.
    pub fn lapped(&self) -> u64 {
        self.tasks.lapped() + self.machine.lapped() + self.stopped.lapped()
    }

    fn drain_tasks(&mut self, window: u64) -> Vec<(CgroupId, TaskSample)> {
        let mut found = Vec::new();
        let mut levels = [Level::default(); 3];
        for slot in 0..self.slots.entities() {
            let Some(owner) = self.slots.owner(slot) else { continue };
            let mut sample = TaskSample::default();
            let mut uncharged_ns = 0;
            let any = self.tasks.drain(slot, window, &mut levels, |record| {
                sample.waiting_max = sample.waiting_max.max(record.waiting_max);
                sample.blocked_io_max = sample.blocked_io_max.max(record.blocked_max);
                sample.wait_max_ns = sample.wait_max_ns.max(record.wait_max_ns);
                sample.switches += u64::from(record.switches);
                uncharged_ns += record.uncharged_ns;
                for (sum, count) in sample.wait_hist.iter_mut().zip(record.wait_hist) {
                    *sum += u32::from(count);
                }
            });
            if !any && levels.iter().all(|l| l.start == 0) {
                continue;
            }
            sample.busy_ns = levels[TASK_BUSY].ns_without(uncharged_ns);
            sample.wait_ns = levels[TASK_WAITING].ns();
            sample.waiting_max = levels[TASK_WAITING].max_with(sample.waiting_max);
            sample.blocked_io_ns = levels[TASK_BLOCKED].ns();
            sample.blocked_io_max = levels[TASK_BLOCKED].max_with(sample.blocked_io_max);
            found.push((owner, sample));
        }
        found
    }

    fn drain_machine(&mut self, window: u64) -> MachineCpu {
        let mut sample = MachineCpu { cpus: self.cpus, ..MachineCpu::default() };
        let mut levels = [Level::default(); 2];
        let (mut uncharged_ns, mut stolen_ns) = (0, 0);
        self.machine.drain(window, &mut levels, |record| {
            sample.switches += u64::from(record.switches);
            uncharged_ns += record.uncharged_ns;
            stolen_ns += record.stolen_ns;
        });
        self.culprits.gather(window, |cpu| self.machine.record(cpu, window));
        sample.busy_ns = levels[MACHINE_BUSY].ns_without(uncharged_ns);
        sample.iowait_ns = levels[MACHINE_IOWAIT].ns();
        sample.steal_ns = stolen_ns;
        let told_ns = sample.busy_ns + sample.iowait_ns + sample.steal_ns;
        sample.idle_ns = (u64::from(self.cpus) * WINDOW_NS).saturating_sub(told_ns);
        sample
    }
}

impl SignalSource for SchedSignal {
    fn name(&self) -> &'static str {
        "sched"
    }

    fn coverage(&self) -> Vec<Coverage> {
        [SignalKind::Cpu, SignalKind::RunQueue]
            .map(|signal| Coverage {
                signal,
                covered: true,
                sampled: false,
                hook: HOOK.to_owned(),
                reason: self.degraded.clone(),
            })
            .to_vec()
    }

    fn losses(&self) -> Vec<Loss> {
        vec![
            Loss { what: "sched_tasks_untracked", count: self.culprits.untracked() },
            Loss { what: "sched_cgroups_folded", count: self.slot_overflows().into() },
            Loss { what: "sched_records_lapped", count: self.lapped() },
            Loss { what: "sched_runs_skipped", count: self.object.skipped_runs() },
        ]
    }

    fn drain(&mut self, into: &mut Window) {
        let window = into.index.0;
        if window.is_multiple_of(ONLINE_ASKED_WINDOWS) {
            self.cpus = online_cpus();
        }
        let machine = self.drain_machine(window);
        let tasks = self.drain_tasks(window);
        let cpu_saturated = tasks.iter().any(|(_, t)| t.wait_ns > SATURATED_NS);
        let io_saturated = tasks.iter().any(|(_, t)| t.blocked_io_ns > SATURATED_NS);
        self.culprits.report(cpu_saturated, io_saturated, &self.slots, &mut into.culprits);
        into.machine_cpu = Some(machine);
        into.tasks = self.tasks.if_known(window, tasks);
        into.stopped = self.stopped.drain(into.index, &self.slots);
        if window.is_multiple_of(WINDOWS) {
            let tasks = &mut self.tasks;
            self.slots.release_removed(window, |slot| tasks.newest(slot));
        }
    }

    fn skip_to(&mut self, first: WindowIndex) {
        self.tasks.skip_to(first.0);
        self.machine.skip_to(first.0);
        self.stopped.skip_to(first);
    }

    fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.clock.set_epoch_offset_ns(offset_ns);
        self.culprits.set_epoch_offset_ns(offset_ns);
    }
}

/// Makes every CPU switch once, so that one that runs a single task for seconds is counted from now on.
fn visit_every_cpu() {
    let visit = || {
        for cpu in 0..(possible_cpus() as usize).min(CpuSet::MAX_CPU) {
            let mut one = CpuSet::new();
            one.set(cpu);
            // An offline CPU, or one outside our cpuset, refuses: it is counted from its first own switch.
            let _ = sched_setaffinity(None, &one);
        }
    };
    // A thread of its own, because it ends up pinned.
    let _ = std::thread::Builder::new()
        .name("visit-cpus".to_owned())
        .spawn(visit)
        .map(std::thread::JoinHandle::join);
}

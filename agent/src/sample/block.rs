//! Block I/O per device and per cgroup, from `ebpf/bpf/block.bpf.c`. Owns turning the block layer's records into samples and
//! device numbers into names. Knows no cgroup names and no task states.

use crate::attach::loader::{
    AttachConfig, KernelBtf, LoadError, LoadedObject, LogNames, ObjectPlan, log_names,
};
use crate::attach::mapping::{ClockControl, Mapping};
use crate::attach::price::Price;
use crate::attach::rest::Rest;
use crate::attach::ring::{Level, Ring, Shape};
use crate::attach::window_log::{Log, LogShape};
use crate::sample::slots::{self, OTHER, Slots};
use crate::sample::tasks;
use crate::signal::{Coverage, Loss, SignalKind, SignalSource};
use crate::window::{CgroupId, CulpritResource, CulpritSample, DeviceSample, IoSample, Window, WindowIndex};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use tailwater_ebpf::block::{
    BlockLosses, DEVICE_IN_FLIGHT, DeviceRecord, DeviceState, IoRecord, SubmittersRecord,
};
use tailwater_ebpf::objects;
use tailwater_ebpf::record::{NEST, WINDOWS};

/// What the block signal needs to attach.
pub type BlockConfig<'a> = AttachConfig<'a>;

/// Devices told apart; the rest is counted under [`OTHER_DEVICE`].
const DEVICES: u32 = 32;
/// The name of what found no slot of its own.
pub const OTHER_DEVICE: &str = "~other";
/// Submitters are told when some device held requests for longer than this in one window: a tenth of it.
const BUSY_NS: u64 = 5_000_000;
/// Told per window.
const TOLD: usize = 5;

const DEVICE_LOG: LogNames = log_names!("device_log");
const IO_LOG: LogNames = log_names!("io_log");
/// Room for the records of all CPUs.
const DEVICE_LOG_BYTES: usize = 4 << 20;
/// The same for workloads. Only machines with many CPUs have shorter logs for it: up to eight of them have as many records as are of use.
const IO_LOG_BYTES: usize = 2 << 20;

/// The block layer's hooks and logs.
#[derive(Debug)]
pub struct BlockSignal {
    devices: Log<DeviceRecord>,
    io: Log<IoRecord>,
    submitters: Ring<SubmittersRecord>,
    slots: Slots,
    device_states: Mapping,
    losses: Mapping,
    names: HashMap<u32, String>,
    clock: ClockControl,
    hook: &'static str,
    reason: String,
    rest: Rest,
    /// Keeps the programs attached.
    object: LoadedObject,
}

impl BlockSignal {
    /// Loads and attaches; from its return on every request that begins is followed.
    pub fn attach(config: &BlockConfig<'_>) -> Result<Self, LoadError> {
        let cpus = config.cpus;
        let entities = config.entities();
        let of_devices = LogShape::within::<DeviceRecord>(DEVICE_LOG_BYTES, cpus, NEST, DEVICES);
        let of_io = LogShape::within::<IoRecord>(IO_LOG_BYTES, cpus, NEST, entities);
        let of_submitters = Shape { cpus, nest: NEST };
        let plan = ObjectPlan::new("block", objects::BLOCK)
            .log(&DEVICE_LOG, of_devices)
            .log(&IO_LOG, of_io)
            .nested()
            .max_entries("submitters_ring", of_submitters.copies())
            .max_entries("device_slots", DEVICES)
            .max_entries("device_states", DEVICES)
            .global("cfg_devices", DEVICES);
        let mut object = slots::plan(plan, entities, config.cgroup_hierarchy).load(config.btf)?;
        let (clock, rest) = (object.clock()?, object.rest()?);
        clock.set_epoch_offset_ns(config.epoch_offset_ns);
        let devices = object.log(&DEVICE_LOG, of_devices)?;
        let io = object.log(&IO_LOG, of_io)?;
        let submitters = object.ring("submitters_ring", of_submitters)?;
        let slots = Slots::open(&mut object, entities)?;
        let device_states = object.mapping("device_states", DEVICES as usize * size_of::<DeviceState>())?;
        let losses = object.mapping("losses", size_of::<BlockLosses>())?;
        let (hook, reason) = attach_programs(&mut object, config.btf)?;
        let names = HashMap::new();
        Ok(Self {
            devices,
            io,
            submitters,
            slots,
            device_states,
            losses,
            names,
            clock,
            hook,
            reason,
            rest,
            object,
        })
    }

    /// Requests that could not be followed because too many were in flight at once.
    pub fn untracked(&self) -> u64 {
        self.losses.word(0).load(Ordering::Relaxed)
    }

    /// Requests whose end was never told, found when their memory was used again.
    pub fn stale(&self) -> u64 {
        self.losses.word(1).load(Ordering::Relaxed)
    }

    /// What its kernel programs cost. To be taken once.
    pub fn price(&mut self) -> Result<Price, LoadError> {
        self.object.price()
    }

    /// Records that were overwritten before they were read.
    pub fn lapped(&self) -> u64 {
        self.devices.lapped() + self.io.lapped() + self.submitters.lapped()
    }

    fn drain_devices(&mut self, window: u64) -> Vec<(String, DeviceSample)> {
        let mut found = Vec::new();
        let mut levels = [Level::default(); 1];
        for slot in 0..DEVICES {
            let device = self.device_states.word(slot as usize).load(Ordering::Acquire) as u32;
            if slot > 0 && device == 0 {
                continue;
            }
            let mut sample = DeviceSample::default();
            let any = self.devices.drain(slot, window, &mut levels, |record| {
                sample.in_flight_max = sample.in_flight_max.max(record.in_flight_max);
                sample.issued += u64::from(record.issued);
                sample.completed += u64::from(record.completed);
                sample.bytes += record.bytes;
                sample.latency_ns += record.latency_ns;
                sample.latency_max_ns = sample.latency_max_ns.max(record.latency_max_ns);
                sample.flushes += u64::from(record.flushes);
            });
            let in_flight = levels[DEVICE_IN_FLIGHT];
            if !any && in_flight.start == 0 {
                continue;
            }
            sample.in_flight_ns = in_flight.ns();
            sample.in_flight_max = in_flight.max_with(sample.in_flight_max);
            let name = if slot == 0 { OTHER_DEVICE.to_owned() } else { self.name(device) };
            found.push((name, sample));
        }
        found
    }

    fn name(&mut self, device: u32) -> String {
        self.names.entry(device).or_insert_with(|| device_name(device)).clone()
    }

    fn drain_io(&mut self, window: u64) -> Vec<(CgroupId, IoSample)> {
        let mut found = Vec::new();
        for slot in 0..self.slots.entities() {
            let Some(owner) = self.slots.owner(slot) else { continue };
            let mut sample = IoSample::default();
            let any = self.io.drain(slot, window, &mut [], |record| {
                sample.bytes += record.bytes;
                sample.requests += u64::from(record.requests);
                sample.flushes += u64::from(record.flushes);
            });
            if any {
                found.push((owner, sample));
            }
        }
        found
    }

    fn drain_submitters(&mut self, window: u64, tell: bool, into: &mut Vec<CulpritSample>) {
        // By process and slot: name and bytes, and the bytes of the copy that the name is of.
        let mut bytes_of: HashMap<(u32, u32), ([u8; 16], u64, u64)> = HashMap::new();
        self.submitters.drain(window, &mut [], |record| {
            for s in record.submitters.iter().filter(|s| s.bytes > 0) {
                let (comm, bytes, most) = bytes_of.entry((s.tgid, s.slot)).or_insert((s.comm, 0, 0));
                *bytes += s.bytes.saturating_sub(s.over_bytes);
                if s.bytes > *most {
                    (*comm, *most) = (s.comm, s.bytes);
                }
            }
        });
        if !tell {
            return;
        }
        let mut all: Vec<_> = bytes_of.into_iter().filter(|(_, (_, bytes, _))| *bytes > 0).collect();
        all.sort_by(|(a_key, a), (b_key, b)| b.1.cmp(&a.1).then(a_key.cmp(b_key)));
        all.truncate(TOLD);
        into.extend(all.into_iter().map(|((pid, slot), (comm, amount, _))| CulpritSample {
            resource: CulpritResource::IoBytes,
            pid,
            comm: tasks::comm(&comm),
            workload: self.slots.owner(slot).unwrap_or(OTHER),
            amount,
        }));
    }
}

/// Attaches the pair of hooks that tells most. Returns the hook that begins a request, and what was refused.
fn attach_programs(object: &mut LoadedObject, btf: &KernelBtf) -> Result<(&'static str, String), LoadError> {
    let mut refused = Vec::new();
    let done = object.attach_tp_btf("on_io_done", "block_io_done", btf);
    let queued = done.and_then(|()| object.attach_tp_btf("on_io_start", "block_io_start", btf));
    if let Err(error) = &queued {
        refused.push(format!("time before a request is issued is not seen: {error}"));
    }
    object.attach_tp_btf("on_complete", "block_rq_complete", btf)?;
    object.attach_tp_btf("on_issue", "block_rq_issue", btf)?;
    for (program, tracepoint) in [("on_merge", "block_rq_merge"), ("on_cgroup_rmdir", "cgroup_rmdir")] {
        if let Err(error) = object.attach_tp_btf(program, tracepoint, btf) {
            refused.push(error.to_string());
        }
    }
    let hook = if queued.is_ok() { "tp_btf/block_io_start" } else { "tp_btf/block_rq_issue" };
    Ok((hook, refused.join("; ")))
}

/// The kernel's name of a device number `major << 20 | minor`; the numbers themselves where it has none any more.
fn device_name(device: u32) -> String {
    let (major, minor) = (device >> 20, device & 0xf_ffff);
    std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"))
        .ok()
        .and_then(|path| path.file_name().map(|n| n.to_string_lossy().into_owned()))
        .unwrap_or_else(|| format!("{major}:{minor}"))
}

impl SignalSource for BlockSignal {
    fn name(&self) -> &'static str {
        "block"
    }

    fn coverage(&self) -> Vec<Coverage> {
        vec![Coverage {
            signal: SignalKind::BlockIo,
            covered: true,
            sampled: false,
            hook: self.hook.to_owned(),
            reason: self.reason.clone(),
        }]
    }

    fn losses(&self) -> Vec<Loss> {
        vec![
            Loss { what: "block_requests_untracked", count: self.untracked() },
            Loss { what: "block_requests_stale", count: self.stale() },
            Loss { what: "block_records_lapped", count: self.lapped() },
            Loss { what: "block_runs_skipped", count: self.object.skipped_runs() },
        ]
    }

    fn drain(&mut self, into: &mut Window) {
        let window = into.index.0;
        let devices = self.drain_devices(window);
        let tell = devices.iter().any(|(_, d)| d.in_flight_ns > BUSY_NS);
        self.drain_submitters(window, tell, &mut into.culprits);
        let io = self.drain_io(window);
        into.io = self.io.if_known(window, io);
        into.devices = self.devices.if_known(window, devices);
        if window.is_multiple_of(WINDOWS) {
            let io = &mut self.io;
            self.slots.release_removed(window, |slot| io.newest(slot));
        }
    }

    fn skip_to(&mut self, first: WindowIndex) {
        self.devices.skip_to(first.0);
        self.io.skip_to(first.0);
        self.submitters.skip_to(first.0);
    }

    fn rest(&mut self, rests: bool) -> bool {
        self.rest.set(rests)
    }

    fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.clock.set_epoch_offset_ns(offset_ns);
    }
}

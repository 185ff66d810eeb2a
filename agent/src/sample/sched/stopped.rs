//! Which processes have threads that a signal or a tracer stopped, and for how long. Owns the table of such processes and gives
//! its slots back; knows no name and no server.

use crate::attach::loader::{LoadError, LoadedObject, LogNames, log_names};
use crate::attach::mapping::Mapping;
use crate::attach::ring::Level;
use crate::attach::window_log::{Log, LogShape};
use crate::sample::slots::Slots;
use crate::window::{ProcessKey, StoppedSample, WindowIndex};
use std::sync::atomic::Ordering;
use tailwater_ebpf::record::WINDOWS;
use tailwater_ebpf::sched::{STOPPED_PROCESSES, StoppedProcess, StoppedRecord};

const WORDS: usize = size_of::<StoppedProcess>() / 8;
pub(super) const LOG: LogNames = log_names!("stopped_log");
/// Room for the records of all CPUs: threads are stopped rarely.
const LOG_BYTES: usize = 1 << 20;
/// The kernel takes such a slot neither for a process nor for free.
const LEAVING: u64 = u64::MAX;

/// The log of stopped processes.
#[derive(Debug)]
pub(super) struct Stopped {
    log: Log<StoppedRecord>,
    table: Mapping,
    /// Since which window a slot is leaving; 0: it is not.
    leaving: [u64; STOPPED_PROCESSES],
}

impl Stopped {
    /// The shape of the log for so many CPUs.
    pub(super) fn shape(cpus: u32) -> LogShape {
        LogShape::within::<StoppedRecord>(LOG_BYTES, cpus, 1, STOPPED_PROCESSES as u32)
    }

    pub(super) fn open(object: &LoadedObject, cpus: u32) -> Result<Self, LoadError> {
        let bytes = STOPPED_PROCESSES * size_of::<StoppedProcess>();
        Ok(Self {
            log: object.log(&LOG, Self::shape(cpus))?,
            table: object.mapping_for_writing("stopped_processes", bytes)?,
            leaving: [0; STOPPED_PROCESSES],
        })
    }

    /// The processes with stopped threads in `window`. What found no slot belongs to nobody and is left out.
    pub(super) fn drain(
        &mut self,
        window: WindowIndex,
        cgroups: &Slots,
    ) -> Option<Vec<(ProcessKey, StoppedSample)>> {
        let mut found = Vec::new();
        for slot in 1..STOPPED_PROCESSES {
            let process = self.table.word(slot * WORDS).load(Ordering::Acquire);
            if process == 0 {
                continue;
            }
            let entity = slot as u32;
            let mut levels = [Level::default()];
            let mut most = 0;
            let any = self.log.drain(entity, window.0, &mut levels, |r| most = most.max(r.stopped_max));
            let [level] = levels;
            if process != LEAVING && (any || level.start > 0) {
                let cgroup = cgroups.owner((process >> 32) as u32).unwrap_or_default();
                let key = ProcessKey { cgroup, pid: process as u32 };
                found
                    .push((key, StoppedSample { stopped_ns: level.ns(), stopped_max: level.max_with(most) }));
            }
            if !any && level.end == 0 {
                self.give_back(slot, window.0, process);
            }
        }
        self.log.if_known(window.0, found)
    }

    pub(super) fn skip_to(&mut self, first: WindowIndex) {
        self.log.skip_to(first.0);
    }

    pub(super) fn lapped(&self) -> u64 {
        self.log.lapped()
    }

    /// In two steps, each once 64 windows have nothing of it any more: an event that found the slot just before the first may write a
    /// little later.
    fn give_back(&mut self, slot: usize, window: u64, process: u64) {
        let newest = self.log.newest(slot as u32);
        if newest.max(self.leaving[slot]) + WINDOWS >= window {
            return;
        }
        if self.leaving[slot] == 0 {
            if self.table.replace(slot * WORDS, process, LEAVING) {
                self.leaving[slot] = window;
            }
        } else {
            self.leaving[slot] = 0;
            self.table.store(slot * WORDS, 0);
        }
    }
}

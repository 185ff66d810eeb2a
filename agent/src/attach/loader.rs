//! Loads one signal's kernel object and attaches its programs: all that the agent uses aya for. Owns the errors of it, with
//! the kernel's and the verifier's words; knows no signal.

use crate::attach::iterator::KernelIterator;
use crate::attach::mapping::{ClockControl, Mapping, MappingError};
use crate::attach::price::{self, Price};
use crate::attach::rest::{self, Rest};
use crate::attach::ring::{Ring, RingError, Shape};
use crate::attach::skipped::skipped_runs;
use crate::attach::storage::{self, Owner};
use crate::attach::window_log::{Log, LogMaps, LogShape};
use aya::maps::{Array, Map, MapData};
use aya::programs::{
    BtfTracePoint, CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, FEntry, FExit, Iter, ProgramError,
    ProgramFd,
};
use aya::util::KernelVersion;
use aya::{Btf, Ebpf, EbpfLoader};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use tailwater_ebpf::record::Record;

/// What can go wrong from object bytes to attached programs.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum LoadError {
    /// The kernel offers no type information.
    #[error(
        "/sys/kernel/btf/vmlinux: {source}; without CONFIG_DEBUG_INFO_BTF in the kernel its programs cannot be placed"
    )]
    KernelBtf { source: Box<aya::BtfError> },
    /// The object's maps could not be made, or it does not fit this kernel.
    #[error("object {object}: {source}")]
    Object { object: &'static str, source: Box<aya::EbpfError> },
    /// The object lacks something that the agent was built to find.
    #[error("object {object} has no {kind} {name}; it was built from other sources than this agent")]
    Missing { object: &'static str, kind: &'static str, name: String },
    /// The kernel refused a program.
    #[error("object {object}, program {program} on {hook}: {reason}")]
    Program { object: &'static str, program: String, hook: String, reason: String },
    /// The kernel refused every program that could see a moment.
    #[error("{refused}")]
    NoWay { refused: String },
    /// A map could not be mapped.
    #[error("object {object}: {source}")]
    Mapping { object: &'static str, source: MappingError },
    /// A ring could not be opened.
    #[error("object {object}: {source}")]
    Ring { object: &'static str, source: RingError },
    /// The kernel has a kind of map, and no memory for what it is to keep.
    #[error(
        "object {object}, map {map}: this kernel keeps nothing with a {owner} ({source}); since Linux 7 it needs a processor with cmpxchg16b for that"
    )]
    Storage { object: &'static str, map: String, owner: Owner, source: std::io::Error },
    /// A map operation failed.
    #[error("object {object}, map {map}: {source}")]
    MapAccess { object: &'static str, map: String, source: Box<aya::maps::MapError> },
}

/// A moment in the kernel that a program can be attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A typed tracepoint.
    Tracepoint(&'static str),
    /// The entry of a function. Some kernels refuse these before they look at the program.
    Entry(&'static str),
    /// The return of a function. Refused where entries are.
    Exit(&'static str),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tracepoint(name) => write!(f, "tp_btf/{name}"),
            Self::Entry(function) => write!(f, "fentry/{function}"),
            Self::Exit(function) => write!(f, "fexit/{function}"),
        }
    }
}

/// The running kernel's type information; parsed once and shared by all signals.
#[derive(Debug)]
pub struct KernelBtf(Btf);

impl KernelBtf {
    /// Reads `/sys/kernel/btf/vmlinux`.
    pub fn read() -> Result<Self, LoadError> {
        Btf::from_sys_fs().map(Self).map_err(|source| LoadError::KernelBtf { source: Box::new(source) })
    }
}

/// What `LOG` of `ebpf/bpf/include/window_log.h` declares for one log.
#[derive(Debug, Clone, Copy)]
pub struct LogNames {
    entries: &'static str,
    heads: &'static str,
    ends: &'static str,
    records: &'static str,
}

/// The [`LogNames`] of a log.
macro_rules! log_names {
    ($log:literal) => {
        $crate::attach::loader::LogNames::of(
            concat!($log, "_entries"),
            concat!($log, "_heads"),
            concat!($log, "_ends"),
            concat!($log, "_records"),
        )
    };
}
pub(crate) use log_names;

impl LogNames {
    /// Use [`log_names`].
    pub(crate) const fn of(
        entries: &'static str,
        heads: &'static str,
        ends: &'static str,
        records: &'static str,
    ) -> Self {
        Self { entries, heads, ends, records }
    }
}

/// What to change in an object before it is loaded.
#[derive(Debug)]
pub struct ObjectPlan<'a> {
    object: &'static str,
    bytes: &'static [u8],
    max_entries: Vec<(&'a str, u32)>,
    globals: Vec<(&'a str, u32)>,
}

impl<'a> ObjectPlan<'a> {
    /// `object` is the name for messages.
    pub fn new(object: &'static str, bytes: &'static [u8]) -> Self {
        // Every object says what it costs.
        Self { object, bytes, max_entries: vec![(price::SUMS, possible_cpus())], globals: Vec::new() }
    }

    /// Sizes a map.
    #[must_use]
    pub fn max_entries(mut self, map: &'a str, entries: u32) -> Self {
        self.max_entries.push((map, entries));
        self
    }

    /// Sets a `const volatile __u32`.
    #[must_use]
    pub fn global(mut self, name: &'a str, value: u32) -> Self {
        self.globals.push((name, value));
        self
    }

    /// Sizes the maps of a log.
    #[must_use]
    pub fn log(self, names: &'a LogNames, shape: LogShape) -> Self {
        self.max_entries(names.entries, shape.entries())
            .max_entries(names.heads, shape.copies())
            .max_entries(names.ends, shape.writers())
            .global(names.records, shape.records)
    }

    /// Of programs that interrupt each other (`nest.h`): sets whether they may be preempted too.
    #[must_use]
    pub fn nested(self) -> Self {
        self.global("cfg_preempted", u32::from(programs_are_preempted()))
    }

    /// Makes the maps and relocates the programs; attaches nothing yet.
    pub fn load(self, btf: &KernelBtf) -> Result<LoadedObject, LoadError> {
        let mut loader = EbpfLoader::new();
        loader.btf(Some(&btf.0)).allow_unsupported_maps();
        for (map, entries) in &self.max_entries {
            loader.map_max_entries(map, *entries);
        }
        for (name, value) in &self.globals {
            loader.override_global(name, value, true);
        }
        let object = self.object;
        let ebpf = loader
            .load(self.bytes)
            .map_err(|source| LoadError::Object { object, source: Box::new(source) })?;
        Ok(LoadedObject { object, ebpf })
    }
}

/// An object whose maps exist. Dropping it detaches and unloads everything.
#[derive(Debug)]
pub struct LoadedObject {
    object: &'static str,
    ebpf: Ebpf,
}

impl LoadedObject {
    /// Loads `program` and attaches it to the kernel's typed tracepoint `tracepoint`.
    pub fn attach_tp_btf(
        &mut self,
        program: &str,
        tracepoint: &'static str,
        btf: &KernelBtf,
    ) -> Result<(), LoadError> {
        self.attach(program, Place::Tracepoint(tracepoint), btf)
    }

    /// Loads `program` and attaches it at `place`.
    pub fn attach(&mut self, program: &str, place: Place, btf: &KernelBtf) -> Result<(), LoadError> {
        let object = self.object;
        let found = self.ebpf.program_mut(program).ok_or_else(|| LoadError::Missing {
            object,
            kind: "program",
            name: program.to_owned(),
        })?;
        let attached = match place {
            Place::Tracepoint(name) => <&mut BtfTracePoint>::try_from(found).and_then(|p| {
                p.load(name, &btf.0)?;
                p.attach().map(drop)
            }),
            Place::Entry(function) => <&mut FEntry>::try_from(found).and_then(|p| {
                p.load(function, &btf.0)?;
                p.attach().map(drop)
            }),
            Place::Exit(function) => <&mut FExit>::try_from(found).and_then(|p| {
                p.load(function, &btf.0)?;
                p.attach().map(drop)
            }),
        };
        attached.map_err(|error| LoadError::Program {
            object,
            program: program.to_owned(),
            hook: place.to_string(),
            reason: reason(&error),
        })
    }

    /// Loads two programs that see the packets of a cgroup's sockets, those that come and those that go, and attaches both or none. Others' programs
    /// there stay.
    pub fn attach_to_packets(
        &mut self,
        incoming: &str,
        outgoing: &str,
        cgroup: &Path,
    ) -> Result<(), LoadError> {
        let both = [(incoming, CgroupSkbAttachType::Ingress), (outgoing, CgroupSkbAttachType::Egress)];
        let unopened = |error: std::io::Error| self.kept_from_packets(incoming, cgroup, error.to_string());
        let folder = File::open(cgroup).map_err(unopened)?;
        // First: what the kernel takes, it takes of both.
        for (program, _) in both {
            let loaded = self.packet_program(program)?.load();
            loaded.map_err(|error| self.kept_from_packets(program, cgroup, reason(&error)))?;
        }
        for (program, of) in both {
            // A link stands beside what others attached, whatever is said of it here; a kernel refuses one that says it (cgroup_bpf_link_attach).
            let attached = self.packet_program(program)?.attach(&folder, of, CgroupAttachMode::Single);
            if let Err(error) = attached {
                for (program, _) in both {
                    // What it takes back cannot be refused, and what is not there need not be.
                    let _ = self.packet_program(program)?.unload();
                }
                return Err(self.kept_from_packets(program, cgroup, reason(&error)));
            }
        }
        Ok(())
    }

    fn packet_program(&mut self, program: &str) -> Result<&mut CgroupSkb, LoadError> {
        let object = self.object;
        let missing = || LoadError::Missing { object, kind: "program of packets", name: program.to_owned() };
        self.ebpf.program_mut(program).and_then(|found| found.try_into().ok()).ok_or_else(missing)
    }

    fn kept_from_packets(&self, program: &str, cgroup: &Path, why: String) -> LoadError {
        let hook = format!("the packets of {}", cgroup.display());
        LoadError::Program { object: self.object, program: program.to_owned(), hook, reason: why }
    }

    /// Loads an iterator program over the kernel's objects of kind `target` and binds it to them.
    pub fn iterator(
        &mut self,
        program: &str,
        target: &str,
        btf: &KernelBtf,
    ) -> Result<KernelIterator, LoadError> {
        let loaded = self.load_iterator(program, target, btf)?;
        KernelIterator::new(&loaded).map_err(|error| self.unbound(program, target, error.to_string()))
    }

    fn load_iterator(
        &mut self,
        program: &str,
        target: &str,
        btf: &KernelBtf,
    ) -> Result<ProgramFd, LoadError> {
        let object = self.object;
        let found = self.ebpf.program_mut(program).ok_or_else(|| LoadError::Missing {
            object,
            kind: "program",
            name: program.to_owned(),
        })?;
        let loaded = <&mut Iter>::try_from(found).and_then(|p| {
            p.load(target, &btf.0).and_then(|()| p.fd()?.try_clone().map_err(ProgramError::from))
        });
        loaded.map_err(|error| self.unbound(program, target, reason(&error)))
    }

    fn unbound(&self, program: &str, target: &str, reason: String) -> LoadError {
        LoadError::Program {
            object: self.object,
            program: program.to_owned(),
            hook: format!("iter/{target}"),
            reason,
        }
    }

    /// Takes a map out of the object.
    pub fn take_map(&mut self, name: &str) -> Result<Map, LoadError> {
        self.ebpf.take_map(name).ok_or_else(|| LoadError::Missing {
            object: self.object,
            kind: "map",
            name: name.to_owned(),
        })
    }

    /// Binds an iterator program to a map of the object: over the elements of a hash map, or over the open sockets that storage is kept with.
    pub fn iterator_over(
        &mut self,
        program: &str,
        map: &str,
        btf: &KernelBtf,
    ) -> Result<KernelIterator, LoadError> {
        let target = match self.ebpf.map(map) {
            Some(Map::HashMap(_)) => "bpf_map_elem",
            _ => "bpf_sk_storage_map",
        };
        let loaded = self.load_iterator(program, target, btf)?;
        let data = match self.ebpf.map(map) {
            Some(Map::HashMap(data)) => data,
            _ => self.storage(map)?,
        };
        KernelIterator::over_map(&loaded, data.fd().as_fd())
            .map_err(|error| self.unbound(program, target, error.to_string()))
    }

    fn array(&self, name: &str) -> Result<&MapData, LoadError> {
        match self.ebpf.map(name) {
            Some(Map::Array(data)) => Ok(data),
            _ => Err(LoadError::Missing { object: self.object, kind: "array map", name: name.to_owned() }),
        }
    }

    /// What is kept with tasks or sockets.
    fn storage(&self, name: &str) -> Result<&MapData, LoadError> {
        match self.ebpf.map(name) {
            Some(Map::Unsupported(map) | Map::SkStorage(map)) => Ok(map),
            _ => Err(LoadError::Missing { object: self.object, kind: "storage map", name: name.to_owned() }),
        }
    }

    /// Whether the kernel really keeps what is put into a storage map. To be asked before anything is attached.
    pub fn keeps(&self, name: &str, owner: Owner) -> Result<(), LoadError> {
        let (map, object) = (self.storage(name)?, self.object);
        let bytes = map.info().map_err(|source| self.map_error(name, source))?.value_size();
        storage::try_out(map.fd().as_fd(), bytes as usize, owner).map_err(|source| LoadError::Storage {
            object,
            map: name.to_owned(),
            owner,
            source,
        })
    }

    /// Opens a window ring.
    pub fn ring<R: Record>(&self, name: &str, shape: Shape) -> Result<Ring<R>, LoadError> {
        Ring::open(name, self.array(name)?, shape)
            .map_err(|source| LoadError::Ring { object: self.object, source })
    }

    /// Opens a log.
    pub fn log<R: Record>(&self, names: &LogNames, shape: LogShape) -> Result<Log<R>, LoadError> {
        Log::<R>::check(names.entries, self.array(names.entries)?)
            .map_err(|source| LoadError::Ring { object: self.object, source })?;
        let words = |n: u32, of: usize| n as usize * of * 8;
        let maps = LogMaps {
            entries: self.mapping(names.entries, shape.entries() as usize * Log::<R>::ENTRY_BYTES)?,
            heads: self.mapping(names.heads, words(shape.copies(), Log::<R>::HEAD_WORDS))?,
            ends: self.mapping(names.ends, words(shape.writers(), Log::<R>::END_WORDS))?,
        };
        Ok(Log::new(maps, shape))
    }

    /// Maps any mmapable array for reading.
    pub fn mapping(&self, name: &str, bytes: usize) -> Result<Mapping, LoadError> {
        Mapping::read_only(name, self.array(name)?, bytes)
            .map_err(|source| LoadError::Mapping { object: self.object, source })
    }

    /// Maps an mmapable array for reading and writing.
    pub fn mapping_for_writing(&self, name: &str, bytes: usize) -> Result<Mapping, LoadError> {
        Mapping::read_write(name, self.array(name)?, bytes)
            .map_err(|source| LoadError::Mapping { object: self.object, source })
    }

    /// The object's clock. Set it before attaching, or early events land in windows of 1970.
    pub fn clock(&self) -> Result<ClockControl, LoadError> {
        ClockControl::open(self.array("clock_control")?)
            .map_err(|source| LoadError::Mapping { object: self.object, source })
    }

    /// What its programs cost. To be taken once.
    pub fn price(&mut self) -> Result<Price, LoadError> {
        let cpus = possible_cpus() as usize;
        let sums = self.mapping(price::SUMS, cpus * price::BYTES)?;
        let asked = Array::try_from(self.take_map(price::ASKED)?)
            .map_err(|source| self.map_error(price::ASKED, source))?;
        Ok(Price::new(asked, sums, cpus))
    }

    /// Lets its hooks rest, of an object that has `rest.h`. To be taken once.
    pub fn rest(&mut self) -> Result<Rest, LoadError> {
        let resting = Array::try_from(self.take_map(rest::RESTING)?)
            .map_err(|source| self.map_error(rest::RESTING, source))?;
        Ok(Rest::new(resting))
    }

    /// Runs of its programs that the kernel skipped, because they had interrupted themselves on their CPU. Zero where it does not count
    /// them, before Linux 5.12.
    pub fn skipped_runs(&self) -> u64 {
        let loaded = self.ebpf.programs().filter_map(|(_, program)| program.fd().ok());
        loaded.filter_map(|fd| skipped_runs(fd.as_fd())).sum()
    }

    /// Wraps an error of a map operation.
    pub fn map_error(&self, map: &str, source: aya::maps::MapError) -> LoadError {
        LoadError::MapAccess { object: self.object, map: map.to_owned(), source: Box::new(source) }
    }
}

/// The verifier's verdict: the last line of its log that is neither a statistic, nor a line of source, nor an instruction that it walked.
fn verdict(log: &str) -> Option<&str> {
    const STATISTICS: [&str; 3] = ["verification time ", "stack depth ", "processed "];
    let walked = |line: &str| line.split_once(": ").is_some_and(|(index, _)| index.parse::<u32>().is_ok());
    let says = |line: &&str| !line.is_empty() && !line.starts_with(';') && !walked(line);
    log.lines().rev().map(str::trim).filter(says).find(|line| !STATISTICS.iter().any(|s| line.starts_with(s)))
}

/// The kernel's words: the error with its causes, or the verifier's verdict. The end of the verifier's log is in the agent's, at debug.
fn reason(error: &ProgramError) -> String {
    const LOG_LINES: usize = 12;
    if let ProgramError::LoadError { io_error, verifier_log } = error {
        let log = verifier_log.to_string();
        let lines: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).collect();
        tracing::debug!("verifier: {}", lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"));
        return match verdict(&log) {
            Some(verdict) => format!("{io_error}; verifier: {verdict}"),
            None => format!("refused before verification: {io_error}"),
        };
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// Whether programs may be preempted: those of tracepoints since Linux 7.0 (`__DECLARE_TRACE` takes SRCU in place of disabling preemption),
/// iterators under PREEMPT_RT. A kernel that does not say its version may.
pub fn programs_are_preempted() -> bool {
    let real_time = std::fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1");
    real_time || KernelVersion::current().map_or(true, |version| version >= KernelVersion::new(7, 0, 0))
}

/// Possible CPUs of the machine: the highest number that programs may see is one less. More than there are where numbers are left out.
pub fn possible_cpus() -> u32 {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    possible_of(&list).unwrap_or_else(|| {
        // SAFETY: takes a plain integer and cannot fail for this name; it looks in other places too.
        u32::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1).max(1)
    })
}

/// One more than the last number of a list like `0-3,8-11` (`cpulist_parse` of the kernel's Documentation/core-api/printk-formats).
fn possible_of(list: &str) -> Option<u32> {
    let last = list.trim().rsplit([',', '-']).next()?;
    last.parse::<u32>().ok()?.checked_add(1)
}

/// What every cgroup-indexed signal needs to attach.
#[derive(Debug, Clone, Copy)]
pub struct AttachConfig<'a> {
    /// The kernel's type information.
    pub btf: &'a KernelBtf,
    /// `cgroup_hierarchy` of `sample::slots`.
    pub cgroup_hierarchy: u32,
    /// What logs and rings are sized by: [`possible_cpus`].
    pub cpus: u32,
    /// Cgroups told apart at a time; the rest is counted together.
    pub workloads_max: u32,
    /// Unix time minus CLOCK_MONOTONIC, now.
    pub epoch_offset_ns: i64,
}

impl AttachConfig<'_> {
    /// Slots of workloads, the shared slot 0 included.
    pub fn entities(&self) -> u32 {
        self.workloads_max + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_counted_to_the_last_number() {
        let of = |list| possible_of(list);
        assert_eq!(
            [of("0\n"), of("0-127\n"), of("0-3,8-11\n"), of("0,4\n")],
            [Some(1), Some(128), Some(12), Some(5)]
        );
        assert_eq!((of(""), of("none")), (None, None));
    }

    #[test]
    fn of_a_verifiers_log_its_verdict_is_told() {
        let log = "; if (bpf_timer_init(&tick->timer, &ticks, CLOCK_MONOTONIC) ||\n24: (b7) r3 = 1    ; R3_w=1\n\
                   26: (85) call bpf_timer_init#169\nbpf_timer cannot be used for PREEMPT_RT.\nverification time 2547 usec\n\
                   stack depth 80+0+0\nprocessed 25 insns (limit 1000000) max_states_per_insn 0\n";
        assert_eq!(verdict(log), Some("bpf_timer cannot be used for PREEMPT_RT."));
        assert_eq!(verdict("BPF_STX uses reserved fields\n"), Some("BPF_STX uses reserved fields"));
        assert_eq!(verdict("processed 25 insns\n"), None);
    }
}

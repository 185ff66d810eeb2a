//! Which code runs and which waits while something stands or is short of CPU (`stacks`; off by default). Owns the sampler, and what was found until a window
//! takes it; `trouble` says when it is looked, `image` which functions those are.
//!
//! An episode is half over before anybody could begin to sample: so the kernel keeps the last five seconds of all CPUs all the time
//! (`ebpf/bpf/stacks.bpf.c`), and a look reads what it has of the windows of trouble. Threads that wait are where they are, and are looked at then.

mod bounded;
mod executable;
mod image;
mod names;
mod paths;
mod samples;
mod trouble;
mod waits;

use crate::attach::loader::{AttachConfig, LoadError, LoadedObject, ObjectPlan};
use crate::attach::price::Price;
use crate::attach::rest::Rest;
use crate::clock::monotonic_ns;
use crate::fence::fenced;
use crate::name::cgroup::is_within;
use crate::name::workload::Entities;
use crate::sample::beside::{Beside, Found};
use crate::sample::tasks;
use crate::signal::{Coverage, Loss, SignalSource};
use crate::window::{CgroupId, CodePath, Doing, WINDOW_NS, Window, WindowIndex};
use image::{Files, Image};
use paths::Seen;
use samples::{LAYOUT, Place, Sample, Samples};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use tailwater_ebpf::objects;
use tailwater_ebpf::stacks::SAMPLED_NS;
use trouble::{Look, Trouble};
use waits::Waits;

/// The map with the processes whose threads are looked at.
const LOOKED_AT: &str = "looked_at";
/// Processes of which one look tells where they ran: those that did so most, of so many that are tried.
const RUNNING_TOLD: usize = 6;
const RUNNING_TRIED: usize = 24;
/// A process that ran in fewer samples than this, of those of a look, says nothing. Looks at one add up.
const SAMPLES_LEAST: usize = 2;
/// What is found more windows later than this (6 s) comes too late for an incident.
const LATE_WINDOWS: u64 = 120;
/// What was found and waits for a window.
const FOUND_MAX: usize = 128;
/// Threads that wait are looked at until so long after the windows in which they did.
const LATE_NS: u64 = 2 * WINDOW_NS;

/// What to look at, the time of it on CLOCK_MONOTONIC, and of whom nothing is told; `None`: of nobody.
type Question = (Look, Range<u64>, Option<Arc<HashSet<CgroupId>>>);

/// Paths of a look whose last window that was.
type Answer = (u64, CodePath);

/// The cgroups outside of the scope, told by who knows the cgroup tree: nothing of theirs is looked at. One that is newer than the last walk may be in
/// it; what is told of one that is not is left out with the rest of its window.
#[derive(Debug, Clone, Default)]
pub struct Outside(Arc<Mutex<Option<Arc<HashSet<CgroupId>>>>>);

impl Outside {
    /// Publishes the cgroups of the last walk that are not in the scope.
    pub fn publish(&self, entities: &Entities, scope: Option<&str>) {
        let Some(scope) = scope else { return };
        let all = entities.tree().all();
        let outside = all.filter(|(path, _)| !is_within(path, scope)).map(|(_, cgroup)| cgroup).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(outside));
    }

    fn now(&self) -> Option<Arc<HashSet<CgroupId>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a look reads of the kernel.
#[derive(Debug)]
struct Reads {
    samples: Samples,
    /// Used by one thread alone.
    waits: Mutex<Waits>,
}

/// The sampler, and who looks.
#[derive(Debug)]
pub struct StackSignal {
    reads: Arc<Reads>,
    outside: Outside,
    trouble: Trouble,
    looker: Beside<Question, Answer>,
    /// Windows that all samples are kept of.
    kept_windows: u64,
    epoch_offset_ns: i64,
    rest: Rest,
    /// Keeps the program attached.
    object: LoadedObject,
}

impl StackSignal {
    /// Loads the programs; from its return on every CPU that works is sampled.
    pub fn attach(config: &AttachConfig<'_>, outside: Outside) -> Result<Self, LoadError> {
        let kept = samples::kept(config.cpus);
        let entries = config.cpus.saturating_mul(kept);
        let (bytes, sp_at) = LAYOUT.map_or((0, 0), |layout| (layout.bytes, 8 * layout.sp as u32));
        let mut object = ObjectPlan::new("stacks", objects::STACKS)
            .max_entries("stack_samples", entries)
            .max_entries("stack_copies", entries)
            .max_entries("stack_heads", config.cpus)
            .global("cfg_samples", kept)
            .global("cfg_registers_bytes", bytes)
            .global("cfg_stack_pointer_at", sp_at)
            .global("cfg_cgroup_hierarchy", config.cgroup_hierarchy)
            .load(config.btf)?;
        let rest = object.rest()?;
        let samples = Samples::open(entries, |map, bytes| object.mapping(map, bytes))?;
        let looked_at = aya::maps::HashMap::try_from(object.take_map(LOOKED_AT)?)
            .map_err(|e| object.map_error(LOOKED_AT, e))?;
        let iterator = object.iterator("stack_waiting", "task", config.btf)?;
        let reads = Arc::new(Reads { samples, waits: Mutex::new(Waits::new(iterator, looked_at)) });
        object.attach_tp_btf("on_timer", "hrtimer_expire_entry", config.btf)?;
        Ok(Self {
            reads,
            outside,
            trouble: Trouble::default(),
            looker: Beside::default(),
            kept_windows: (u64::from(kept) * SAMPLED_NS / WINDOW_NS).max(1),
            epoch_offset_ns: config.epoch_offset_ns,
            rest,
            object,
        })
    }

    /// What its kernel program costs. To be taken once.
    pub fn price(&mut self) -> Result<Price, LoadError> {
        self.object.price()
    }

    /// The time of windows, on CLOCK_MONOTONIC.
    fn time_of(&self, first: u64, last: u64) -> Range<u64> {
        let at = |window: u64| {
            window.saturating_mul(WINDOW_NS).saturating_add_signed(self.epoch_offset_ns.saturating_neg())
        };
        at(first)..at(last.saturating_add(1))
    }
}

impl SignalSource for StackSignal {
    fn name(&self) -> &'static str {
        "stacks"
    }

    fn coverage(&self) -> Vec<Coverage> {
        Vec::new()
    }

    fn losses(&self) -> Vec<Loss> {
        vec![Loss { what: "stacks_runs_skipped", count: self.object.skipped_runs() }]
    }

    /// To be called after all other signals, by whose sections it is judged whether anything is wrong.
    fn drain(&mut self, into: &mut Window) {
        let now = into.index.0;
        let in_time = |(last, _): &Answer| now.saturating_sub(*last) <= LATE_WINDOWS;
        into.code_paths.extend(self.looker.take().into_iter().filter(in_time).map(|(last, path)| {
            let windows_ago = u32::try_from(now.saturating_sub(last)).unwrap_or(u32::MAX);
            CodePath { windows_ago, ..path }
        }));
        if let Some(mut look) = self.trouble.step(into) {
            look.first = look.first.max((look.last + 1).saturating_sub(self.kept_windows));
            let outside = self.outside.now();
            look.standing.retain(|(_, owner)| outside.as_ref().is_none_or(|all| !all.contains(owner)));
            let time = self.time_of(look.first, look.last);
            let reads = Arc::clone(&self.reads);
            let question = (look, time, outside);
            let last = question.0.last;
            let asked =
                self.looker.ask(question, "stacks", "which code runs and waits", move |asked, found| {
                    answer(asked, &reads, &found);
                });
            if asked {
                self.trouble.looked(now, last);
            }
        }
    }

    fn skip_to(&mut self, _: WindowIndex) {
        self.trouble = Trouble::default();
    }

    fn rest(&mut self, rests: bool) -> bool {
        self.rest.set(rests)
    }

    fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.epoch_offset_ns = offset_ns;
    }
}

fn answer(asked: Receiver<Question>, reads: &Reads, found: &Found<Answer>) {
    let proc = Path::new("/proc");
    let mut files = Files::default();
    for question in asked {
        let begun_ns = monotonic_ns();
        let last = question.0.last;
        let mut processes = 0;
        looked(proc, &question, reads, &mut files, &mut |paths| {
            processes += 1;
            found.keep(paths.into_iter().map(|path| (last, path)), FOUND_MAX);
        });
        files.shrink();
        let took_ms = monotonic_ns().saturating_sub(begun_ns) / 1_000_000;
        tracing::debug!(took_ms, processes, "stacks: looked");
    }
}

/// Tells the paths of each process as soon as they are known: files that were never read before may take seconds where the CPU is short.
fn looked(
    proc: &Path,
    (look, time, outside): &Question,
    reads: &Reads,
    files: &mut Files,
    tell: &mut dyn FnMut(Vec<CodePath>),
) {
    let windows = u32::try_from(look.last - look.first + 1).unwrap_or(u32::MAX);
    // Threads first: those go on.
    let mut waiting: Vec<((u32, CgroupId), Vec<waits::Waiting>)> = Vec::new();
    for server in &look.standing {
        // What came to its turn late, as behind a look at a large program, finds them somewhere else.
        if monotonic_ns() <= time.end.saturating_add(LATE_NS) {
            let mut waits = reads.waits.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push((*server, waits.of(proc, server.0)));
        }
    }
    let mut samples = reads.samples.of(time);
    samples.retain(|sample| outside.as_ref().is_none_or(|all| !all.contains(&sample.cgroup)));
    let running = by_process(samples);
    // What is read here others wrote: a file that trips a library up must not keep all others from being looked at.
    for (server, threads) in &waiting {
        if let Some(seen) = fenced(|| waits_of(proc, *server, threads, files)).flatten() {
            tell(paths::of(seen, windows));
        }
    }
    let mut left = RUNNING_TOLD;
    // Of those that have ended nothing can be told: others that ran less may be.
    for of in running.iter().take(RUNNING_TRIED) {
        let Some(seen) = fenced(|| runs_of(proc, of, files)).flatten() else { continue };
        tell(paths::of(seen, windows));
        left -= 1;
        if left == 0 {
            break;
        }
    }
}

/// The functions that a thread was in by a file with code, which begins at address 0, and a stack whose first word says where it was: as a look tells them.
/// Whoever makes up files tries this.
#[must_use]
pub fn walk(file: &[u8], stack: &[u64]) -> Vec<String> {
    let Some((pc, stack)) = stack.split_first() else { return Vec::new() };
    let walked = fenced(|| {
        let mut image = Image::of_one(file)?;
        let place =
            samples::Place { pc: *pc, sp: 8, fp: 8, stack: stack.to_vec(), ..samples::Place::default() };
        let (found, _) = image.callers(&place);
        Some(found.iter().map(|address| image.name(*address)).collect())
    });
    walked.flatten().unwrap_or_default()
}

/// Names in a `perf-PID.map` of these bytes, at an address. Whoever makes up files tries this, too.
#[must_use]
pub fn compiled(file: &[u8], address: u64) -> Option<String> {
    names::perf_map(&String::from_utf8_lossy(file)).at(address)
}

/// The samples of each process, of those that ran most first.
fn by_process(samples: Vec<Sample>) -> Vec<Vec<Sample>> {
    let mut processes: HashMap<u32, Vec<Sample>> = HashMap::new();
    for sample in samples {
        processes.entry(sample.pid).or_default().push(sample);
    }
    let mut all: Vec<(u32, Vec<Sample>)> =
        processes.into_iter().filter(|(_, of)| of.len() >= SAMPLES_LEAST).collect();
    all.sort_by_key(|(pid, of)| (Reverse(of.len()), *pid));
    all.into_iter().map(|(_, of)| of).collect()
}

fn runs_of(proc: &Path, samples: &[Sample], files: &mut Files) -> Option<Seen> {
    let last = samples.last()?;
    let is_in_kernel = |sample: &Sample| sample.calls.is_empty() && sample.place.is_none();
    let calls = if samples.iter().all(is_in_kernel) {
        vec![(Vec::new(), true); samples.len()]
    } else {
        let calls: Vec<u64> = samples.iter().flat_map(|sample| sample.calls.iter().copied()).collect();
        let addresses = image::addresses(samples.iter().filter_map(|sample| sample.place.as_ref()), &calls);
        let mut image = Image::of(proc, last.pid, files, &addresses)?;
        samples.iter().map(|sample| functions(&mut image, sample)).collect()
    };
    let comm = names::short(&tasks::comm(&last.comm));
    Some(Seen { workload: last.cgroup, pid: last.pid, comm, doing: Doing::Running, calls })
}

/// Where a thread ran, innermost first, and whether those are all.
fn functions(image: &mut Image, sample: &Sample) -> (Vec<String>, bool) {
    let by_pointers = image.real(&sample.calls);
    let (by_tables, is_whole) = sample.place.as_ref().map(|place| image.callers(place)).unwrap_or_default();
    // Tables are right where there are some; code without any keeps frame pointers, if anything.
    if is_whole || by_tables.len() >= by_pointers.len() {
        image.named(&by_tables, is_whole)
    } else {
        image.named(&by_pointers, false)
    }
}

fn waits_of(
    proc: &Path,
    (pid, workload): (u32, CgroupId),
    threads: &[waits::Waiting],
    files: &mut Files,
) -> Option<Seen> {
    let mut processes: BTreeMap<u32, Vec<&Place>> = BTreeMap::new();
    for thread in threads {
        processes.entry(thread.process).or_default().push(&thread.place);
    }
    let mut calls = Vec::new();
    for (process, places) in processes {
        let addresses = image::addresses(places.iter().copied(), &[]);
        let Some(mut image) = Image::of(proc, process, files, &addresses) else { continue };
        calls.extend(places.into_iter().map(|place| {
            let (found, is_whole) = image.callers(place);
            image.named(&found, is_whole)
        }));
    }
    let comm = tasks::read(proc, pid, pid, "comm").unwrap_or_default();
    let comm = names::short(comm.trim_end());
    (!calls.is_empty()).then_some(Seen { workload, pid, comm, doing: Doing::Waiting, calls })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_ran_nowhere_that_can_be_told() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let proc = Path::new("/proc");
        let stat = || std::fs::read_to_string(proc.join(format!("{}/stat", child.id()))).unwrap();
        while !stat().contains(") Z ") {
            std::thread::yield_now();
        }
        let place = Some(samples::Place { pc: 0x1000, sp: 0x2000, ..samples::Place::default() });
        let sample =
            Sample { cgroup: CgroupId(7), pid: child.id(), comm: [0; 16], calls: vec![0x1000], place };
        assert!(runs_of(proc, std::slice::from_ref(&sample), &mut Files::default()).is_none());
        // A thread of the kernel has no code of its own, and is told.
        let sample = Sample { calls: Vec::new(), place: None, ..sample };
        assert_eq!(runs_of(proc, &[sample], &mut Files::default()).unwrap().calls, [(Vec::new(), true)]);
        child.wait().unwrap();
    }

    #[test]
    fn processes_that_ran_most_come_first_and_those_that_hardly_did_not_at_all() {
        let of = |pid| Sample { cgroup: CgroupId(7), pid, comm: [0; 16], calls: Vec::new(), place: None };
        let samples = [7, 8, 8, 8, 9, 9, 9, 9].map(of).to_vec();
        let pids: Vec<u32> = by_process(samples).iter().map(|of| of[0].pid).collect();
        assert_eq!(pids, [9, 8]);
    }
}

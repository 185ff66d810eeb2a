//! CPU, waiting for it, block I/O and memory stalls from files: each cgroup's total of CPU time, its pressure stall information, its
//! threads' schedstat while it is short of CPU, and the machine's /proc/stat and /proc/diskstats. Owns turning totals into the samples
//! of a window.
//!
//! Pressure tells for how long at least one task waited, so it is a lower bound of the integral that the hooks measure. A thread's wait
//! is told when it ends. The machine's CPUs are counted in ticks of 10 ms.

use super::files::{Total, read_again};
use super::threads::{THREADS_MAX, Threads};
use super::{Watched, WatchedCgroup};
use crate::attach::probe::online_cpus;
use crate::name::cgroup::{Mounts, below};
use crate::name::workload::comm;
use crate::signal::{Coverage, Loss, SignalKind, SignalSource};
use crate::window::{
    CgroupId, CulpritResource, CulpritSample, DeviceSample, MachineCpu, MemorySample, TaskSample, WINDOW_NS,
    Window, WindowIndex,
};
use procfs::{CpuTime, CurrentSI, DiskStat, KernelStats};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Where tasks of a cgroup waited longer than this in a window, its threads are read: a tenth of a CPU.
const SHORT_NS: u64 = 5_000_000;
/// The same where the kernel keeps no pressure stall information: so much CPU was used.
const BUSY_NS: u64 = 10_000_000;
/// Windows between two looks at threads of a cgroup that is not short: a second.
const RENEW_WINDOWS: u64 = 20;
/// Culprits told per window.
const TOLD: usize = 5;
/// Unit of /proc/diskstats.
const SECTOR_BYTES: u64 = 512;

#[derive(Debug)]
struct Cgroup {
    folder: PathBuf,
    children: Vec<CgroupId>,
    cpu: Total,
    /// Of cgroups with nothing below them: pressure is told of all that lies there.
    waiting: Option<Total>,
    io: Option<Total>,
    memory: Option<Total>,
    threads: Threads,
    before: Totals,
}

/// Totals of a cgroup, or by how much they rose; CPU is that of all below it, too. `None`: not told.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    cpu_ns: Option<u64>,
    waiting_ns: Option<u64>,
    io_ns: Option<u64>,
    memory_ns: Option<u64>,
}

/// Files in place of the scheduler's, the block layer's and the memory management's hooks.
pub struct PolledResources {
    /// What is served, and why hooks do not.
    serves: BTreeMap<SignalKind, String>,
    mounts: Mounts,
    watched: Watched,
    cgroups: BTreeMap<CgroupId, Cgroup>,
    pressure: bool,
    cpus: u32,
    stat: Option<CpuTime>,
    disks: HashMap<String, DiskStat>,
    last: Option<WindowIndex>,
    left_out: u64,
    threads_left_out: u64,
    /// Counts the cgroups below the uppermost that is watched.
    stat_of_cgroups: Option<File>,
    descendants: Option<u64>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for PolledResources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolledResources").field("cgroups", &self.cgroups.len()).finish_non_exhaustive()
    }
}

impl PolledResources {
    /// Serves those of `wanted` that this machine's files tell; the rest is left in `wanted`. The strings say why no hook serves.
    pub fn start(
        wanted: &mut BTreeMap<SignalKind, String>,
        mounts: &Mounts,
        watched: Watched,
    ) -> Option<Self> {
        let root = mounts.identity()?;
        let totals = cpu_total(mounts, "/").is_some();
        let pressure = Path::new("/proc/pressure/cpu");
        let pressure = mounts.unified.is_some() && std::fs::read_to_string(pressure).is_ok();
        tracing::debug!(root = %root.display(), totals, pressure, "what can be polled");
        let tells = |signal: SignalKind| match signal {
            SignalKind::Cpu | SignalKind::RunQueue => totals && KernelStats::current().is_ok(),
            // Devices alone do not tell whose tasks wait for them.
            SignalKind::BlockIo => pressure && procfs::diskstats().is_ok(),
            SignalKind::Memory => pressure,
            _ => false,
        };
        let served: Vec<SignalKind> = wanted.keys().copied().filter(|s| tells(*s)).collect();
        let serves: BTreeMap<SignalKind, String> =
            served.into_iter().filter_map(|s| Some((s, wanted.remove(&s)?))).collect();
        watched.want();
        (!serves.is_empty()).then(|| Self {
            serves,
            mounts: mounts.clone(),
            watched,
            cgroups: BTreeMap::new(),
            pressure,
            cpus: online_cpus(),
            stat: None,
            disks: HashMap::new(),
            last: None,
            left_out: 0,
            threads_left_out: 0,
            stat_of_cgroups: None,
            descendants: None,
            buffer: Vec::new(),
        })
    }

    fn serves(&self, signal: SignalKind) -> bool {
        self.serves.contains_key(&signal)
    }

    fn hook(&self, signal: SignalKind) -> &'static str {
        match (signal, self.pressure) {
            (SignalKind::Cpu, _) if self.mounts.unified.is_some() => "cpu.stat and /proc/stat every 50 ms",
            (SignalKind::Cpu, _) => "cpuacct.usage and /proc/stat every 50 ms",
            (SignalKind::RunQueue, true) => "cpu.pressure and schedstat every 50 ms",
            (SignalKind::RunQueue, false) => "schedstat every 50 ms",
            (SignalKind::BlockIo, _) => "io.pressure and /proc/diskstats every 50 ms",
            _ => "memory.pressure every 50 ms",
        }
    }

    fn watch(&mut self, published: super::Published) {
        self.left_out = self.left_out.max(published.left_out as u64);
        let first = self.cgroups.is_empty();
        if first && let Some(top) = published.cgroups.first() {
            let folder = self.mounts.unified.as_deref().map(|root| below(root, &top.path));
            self.stat_of_cgroups = folder.and_then(|f| File::open(f.join("cgroup.stat")).ok());
        }
        let there: BTreeMap<CgroupId, WatchedCgroup> =
            published.cgroups.into_iter().map(|c| (c.id, c)).collect();
        self.cgroups.retain(|id, _| there.contains_key(id));
        for (id, watched) in there {
            if let Some(known) = self.cgroups.get_mut(&id) {
                // One that got children is told by them.
                if known.children.is_empty() && !watched.children.is_empty() {
                    (known.waiting, known.io, known.memory) = (None, None, None);
                }
                known.children = watched.children;
                continue;
            }
            // A cgroup that went away since the walk has nothing to read.
            if let Some(cgroup) = Cgroup::open(&self.mounts, watched) {
                self.cgroups.insert(id, cgroup);
            }
        }
    }

    /// Asks for a walk where cgroups were made or removed.
    fn look_for_new_cgroups(&mut self) {
        let Some(file) = &self.stat_of_cgroups else { return };
        let read = read_again(file, &mut self.buffer);
        let text = read.ok().and_then(|()| std::str::from_utf8(&self.buffer).ok());
        let now = text
            .and_then(|t| t.lines().find_map(|line| line.strip_prefix("nr_descendants ")))
            .and_then(|number| number.trim().parse().ok());
        if std::mem::replace(&mut self.descendants, now) != now {
            self.watched.ask_for_a_walk();
        }
    }

    fn drain_cgroups(&mut self, into: &mut Window, in_step: bool) {
        let window = into.index.0;
        let spent: BTreeMap<CgroupId, Totals> =
            self.cgroups.iter_mut().map(|(id, cgroup)| (*id, cgroup.spent(&mut self.buffer))).collect();
        let mut room = THREADS_MAX.saturating_sub(self.cgroups.values().map(|c| c.threads.count()).sum());
        let (mut tasks, mut memory) = (Vec::new(), Vec::new());
        let mut on_cpu: Vec<(u64, u32, CgroupId)> = Vec::new();
        for (place, (id, cgroup)) in (0_u64..).zip(&mut self.cgroups) {
            let all = spent.get(id).copied().unwrap_or_default();
            // A cgroup that is new has no window before it: what it did is told of the one above, as before it was known.
            let Some(with_children_ns) = all.cpu_ns else { continue };
            let below_ns: u64 = cgroup.children.iter().filter_map(|child| spent.get(child)?.cpu_ns).sum();
            let mut sample =
                TaskSample { busy_ns: with_children_ns.saturating_sub(below_ns), ..TaskSample::default() };
            let waited_ns = all.waiting_ns.unwrap_or(0).min(WINDOW_NS);
            let short = match all.waiting_ns {
                Some(ns) => ns >= SHORT_NS,
                None => sample.busy_ns >= BUSY_NS,
            };
            let unlisted = short && cgroup.threads.count() == 0;
            let renew = unlisted || (window + place).is_multiple_of(RENEW_WINDOWS);
            if renew {
                let had = cgroup.threads.count();
                self.threads_left_out += cgroup.threads.list(&cgroup.folder, had + room, &mut self.buffer);
                room = room.saturating_sub(cgroup.threads.count().saturating_sub(had));
            }
            if short || renew {
                let threads = cgroup.threads.read(window, &mut self.buffer);
                if short {
                    sample.wait_ns = threads.wait_ns;
                    on_cpu.extend(threads.on_cpu_ns.into_iter().map(|(pid, ns)| (ns, pid, *id)));
                }
            }
            sample.wait_ns = sample.wait_ns.max(waited_ns);
            sample.waiting_max = u32::try_from(sample.wait_ns.div_ceil(WINDOW_NS)).unwrap_or(u32::MAX);
            sample.blocked_io_ns = all.io_ns.unwrap_or(0).min(WINDOW_NS);
            if sample != TaskSample::default() {
                tasks.push((*id, sample));
            }
            if let Some(reclaim_ns) = all.memory_ns.filter(|ns| *ns > 0) {
                let sample =
                    MemorySample { reclaim_ns: reclaim_ns.min(WINDOW_NS), ..MemorySample::default() };
                memory.push((*id, sample));
            }
        }
        if !in_step {
            return;
        }
        if self.serves(SignalKind::Cpu) {
            on_cpu.sort_unstable_by(|a, b| b.cmp(a));
            into.culprits.extend(on_cpu.into_iter().take(TOLD).map(|(amount, pid, workload)| {
                CulpritSample { resource: CulpritResource::Cpu, pid, comm: comm(pid), workload, amount }
            }));
            into.tasks = Some(tasks);
        }
        if self.serves(SignalKind::Memory) {
            into.memory = Some(memory);
        }
    }

    fn drain_machine(&mut self, into: &mut Window, in_step: bool) {
        let now = KernelStats::current().ok().map(|s| s.total);
        let before = std::mem::replace(&mut self.stat, now);
        let (Some(now), Some(before), true) = (&self.stat, before, in_step) else { return };
        let tick_ns = 1_000_000_000 / procfs::ticks_per_second().max(1);
        let ns = |f: &dyn Fn(&CpuTime) -> u64| f(now).saturating_sub(f(&before)).saturating_mul(tick_ns);
        let busy = |c: &CpuTime| c.user + c.nice + c.system + c.irq.unwrap_or(0) + c.softirq.unwrap_or(0);
        if into.index.0.is_multiple_of(RENEW_WINDOWS) {
            self.cpus = online_cpus();
        }
        let whole_ns = u64::from(self.cpus) * WINDOW_NS;
        let mut sample = MachineCpu {
            cpus: self.cpus,
            // A tick that came late would make more of a window than there is.
            busy_ns: ns(&busy).min(whole_ns),
            iowait_ns: ns(&|c| c.iowait.unwrap_or(0)),
            steal_ns: ns(&|c| c.steal.unwrap_or(0)),
            ..MachineCpu::default()
        };
        let told_ns = sample.busy_ns + sample.iowait_ns + sample.steal_ns;
        sample.idle_ns = whole_ns.saturating_sub(told_ns);
        into.machine_cpu = Some(sample);
    }

    fn drain_disks(&mut self, into: &mut Window, in_step: bool) {
        let Ok(now) = procfs::diskstats() else { return };
        let mut told = Vec::new();
        let mut disks = HashMap::with_capacity(now.len());
        for disk in now {
            let before = self.disks.remove(&disk.name);
            // A partition's requests are its disk's; only disks have a folder of their own.
            let known = before.is_some() || Path::new("/sys/block").join(&disk.name).exists();
            if let Some(before) = &before
                && let Some(sample) = device(before, &disk)
            {
                told.push((disk.name.clone(), sample));
            }
            if known {
                disks.insert(disk.name.clone(), disk);
            }
        }
        self.disks = disks;
        if in_step {
            into.devices = Some(told);
        }
    }
}

/// What a device did between two looks; `None`: nothing.
fn device(before: &DiskStat, now: &DiskStat) -> Option<DeviceSample> {
    let rose = |f: fn(&DiskStat) -> u64| f(now).saturating_sub(f(before));
    let ms = |f: fn(&DiskStat) -> u64| rose(f).saturating_mul(1_000_000);
    let sample = DeviceSample {
        in_flight_ns: ms(|d| d.weighted_time_in_progress),
        in_flight_max: u32::try_from(now.in_progress.max(before.in_progress)).unwrap_or(u32::MAX),
        completed: rose(|d| d.reads + d.writes + d.discards.unwrap_or(0)),
        bytes: rose(|d| d.sectors_read + d.sectors_written).saturating_mul(SECTOR_BYTES),
        latency_ns: ms(|d| d.time_reading + d.time_writing),
        flushes: rose(|d| d.flushes.unwrap_or(0)),
        ..DeviceSample::default()
    };
    (sample != DeviceSample::default()).then_some(sample)
}

fn cpu_total(mounts: &Mounts, path: &str) -> Option<Total> {
    match &mounts.unified {
        Some(root) => Total::cpu_stat(&below(root, path)),
        None => Total::cpuacct(&below(mounts.cpu_v1.as_deref()?, path)),
    }
}

impl Cgroup {
    fn open(mounts: &Mounts, watched: WatchedCgroup) -> Option<Self> {
        let cpu = cpu_total(mounts, &watched.path)?;
        let folder = below(mounts.identity()?, &watched.path);
        let leaf = watched.children.is_empty() && mounts.unified.is_some();
        let pressure = |resource| if leaf { Total::pressure(&folder, resource) } else { None };
        let (waiting, io, memory) = (pressure("cpu"), pressure("io"), pressure("memory"));
        Some(Self {
            children: watched.children,
            cpu,
            waiting,
            io,
            memory,
            folder,
            threads: Threads::default(),
            before: Totals::default(),
        })
    }

    fn spent(&mut self, buffer: &mut Vec<u8>) -> Totals {
        let mut of = |total: Option<&Total>| total.and_then(|t| t.ns(buffer));
        let now = Totals {
            cpu_ns: of(Some(&self.cpu)),
            waiting_ns: of(self.waiting.as_ref()),
            io_ns: of(self.io.as_ref()),
            memory_ns: of(self.memory.as_ref()),
        };
        let before = std::mem::replace(&mut self.before, now);
        let rose = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        Totals {
            cpu_ns: rose(now.cpu_ns, before.cpu_ns),
            waiting_ns: rose(now.waiting_ns, before.waiting_ns),
            io_ns: rose(now.io_ns, before.io_ns),
            memory_ns: rose(now.memory_ns, before.memory_ns),
        }
    }
}

impl SignalSource for PolledResources {
    fn name(&self) -> &'static str {
        "polled"
    }

    fn coverage(&self) -> Vec<Coverage> {
        let of = |(signal, reason): (&SignalKind, &String)| Coverage {
            signal: *signal,
            covered: true,
            sampled: true,
            hook: self.hook(*signal).to_owned(),
            reason: reason.clone(),
        };
        self.serves.iter().map(of).collect()
    }

    fn losses(&self) -> Vec<Loss> {
        vec![
            Loss { what: "polled_cgroups_left_out", count: self.left_out },
            Loss { what: "polled_threads_left_out", count: self.threads_left_out },
        ]
    }

    fn drain(&mut self, into: &mut Window) {
        if let Some(published) = self.watched.take() {
            self.watch(published);
        }
        into.polled.tasks = self.serves(SignalKind::Cpu);
        into.polled.blocked_io = into.polled.tasks && self.pressure;
        into.polled.memory = self.serves(SignalKind::Memory);
        into.polled.devices = self.serves(SignalKind::BlockIo);
        if into.late {
            // What is read now belongs to several windows: to none of them.
            self.last = None;
            return;
        }
        let in_step = self.last.is_some_and(|last| last.0 + 1 == into.index.0);
        self.last = Some(into.index);
        if self.serves(SignalKind::Cpu) || self.serves(SignalKind::Memory) {
            self.look_for_new_cgroups();
            self.drain_cgroups(into, in_step);
        }
        if self.serves(SignalKind::Cpu) {
            self.drain_machine(into, in_step);
        }
        if self.serves(SignalKind::BlockIo) {
            self.drain_disks(into, in_step);
        }
    }

    fn skip_to(&mut self, _: WindowIndex) {
        self.last = None;
    }

    fn rest(&mut self, _: bool) -> bool {
        // It works only while it is drained.
        true
    }

    fn set_epoch_offset_ns(&mut self, _: i64) {}
}

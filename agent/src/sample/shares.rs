//! Who had the CPU where servers share one group of the scheduler, and who waited for it. Owns which groups are looked at, when, and the thread that
//! looks, beside the one that drains windows; knows no id of the wire.
//!
//! Within one group the scheduler shares by runnable thread, so that whoever has more of them gets more. A group is a cgroup with the `cpu`
//! controller, and those below it without (as services of systemd mostly are). No window tells threads of one cgroup apart; the kernel's own sums do
//! (`/proc/PID/task/TID/schedstat`, that is `sched_info_run_delay`). They are read only while threads wait there.

use crate::clock::{Pace, monotonic_ns, timed};
use crate::name::cgroup::{CpuVersion, parents};
use crate::name::workload::Entities;
use crate::sample::beside::{self, Beside};
use crate::sample::schedstat;
use crate::window::{CgroupId, CpuShares, ProcessShare, WINDOW_NS, Window};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Windows between two looks: a second. It is told what is so for minutes.
const EVERY_WINDOWS: u64 = 20;
/// Windows for which it is remembered whose group a cgroup is in: ten seconds, as between two walks of the tree.
const GROUPS_KEPT_WINDOWS: u64 = 200;
/// Threads that must wait for a CPU in a group, in the mean of a window, ns: two neighbours of whom each lacks most of one (`WAITING_MIN` of the
/// collector's `stealing`).
const WAITED_LEAST_NS: u64 = WINDOW_NS * 3 / 2;
/// And in one of its cgroups for that to be a neighbour's.
const WAITED_OF_ONE_NS: u64 = WINDOW_NS / 2;
/// Groups that may be looked at in one second: those in which most is waited.
const GROUPS_MAX: usize = 3;
/// And of those so many are, which have rested, those first that were looked at longest ago.
const LOOKS_MAX: usize = 2;
/// Cgroups of one group whose processes are read; of a group with more nothing is told.
const CGROUPS_MAX: usize = 256;
/// A look at a group comes no sooner after the one before than so many times what that one took of a CPU: a third of a percent.
const LOOK_RESTS: u64 = 300;
/// But not later than this: what took longer is as much dearer.
const REST_MAX_NS: u64 = 5_000_000_000;
/// Time between two looks that are told of together: a collector has the windows of the last nine seconds, and in less than half of one there are
/// few turns.
const SPAN_NS: std::ops::RangeInclusive<u64> = 500_000_000..=8_000_000_000;
/// Threads and processes of a group that are read; of one with more nothing is told. So many processes take some 20 ms.
const THREADS_MAX: usize = 2048;
/// See above.
const PROCESSES_MAX: usize = 512;
/// Processes that are told, those first that ran and waited most; the rest is told as one of no server.
const PROCESSES_TOLD: usize = 32;
/// Answers that wait for a window.
const FOUND_MAX: usize = 16;
/// The name of what is not told apart, or has another priority on purpose: what it uses counts, and nobody says what is due to it.
const OTHERS: &str = "~other";

/// A group to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Question {
    group: CgroupId,
    path: Arc<str>,
    /// Its cgroups, and where their processes are listed.
    folders: Vec<(CgroupId, PathBuf)>,
    /// Its processes may be in other cgroups of the `cpu` controller (version 1).
    may_differ: bool,
    /// The window that was closed when it was asked.
    window: u64,
}

/// What was found, and the window that was closed when it was asked for.
type Found = (u64, CpuShares);

/// Looks at groups in which servers wait for the CPU.
#[derive(Debug)]
pub struct Shares {
    root: PathBuf,
    /// The group of a cgroup; `None`: the scheduler shares otherwise there. Forgotten every ten seconds.
    groups: HashMap<CgroupId, Option<(CgroupId, Arc<str>)>>,
    /// ns of tasks since `windows` ago.
    waited_ns: HashMap<CgroupId, u64>,
    windows: u64,
    looker: Beside<Vec<Question>, Found>,
}

impl Shares {
    /// `root`: the file system whose `proc` is read. The thread begins with the first group that is looked at.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            groups: HashMap::new(),
            waited_ns: HashMap::new(),
            windows: 0,
            looker: Beside::default(),
        }
    }

    /// Call once for each window, before it is narrowed to a scope: asks for looks, and adds what came of those before.
    pub fn step(&mut self, window: &mut Window, entities: &Entities) {
        for (cgroup, task) in window.tasks.iter().flatten().filter(|(_, task)| task.wait_ns > 0) {
            let waited_ns = self.waited_ns.entry(*cgroup).or_default();
            *waited_ns = waited_ns.saturating_add(task.wait_ns);
        }
        self.windows += 1;
        // A window that was lost is none; whichever comes next ends the second.
        if self.windows < EVERY_WINDOWS && !window.index.0.is_multiple_of(EVERY_WINDOWS) {
            return;
        }
        let told = |(asked, shares): Found| CpuShares {
            windows_ago: u32::try_from(window.index.0.saturating_sub(asked)).unwrap_or(u32::MAX),
            ..shares
        };
        let told: Vec<CpuShares> = self.looker.take().into_iter().map(told).collect();
        window.cpu_shares.extend(told);
        let asked = self.asked(window.index.0, entities);
        if window.index.0.is_multiple_of(GROUPS_KEPT_WINDOWS) {
            self.groups.clear();
        }
        if asked.is_empty() {
            return;
        }
        let root = self.root.clone();
        // Whoever still looks is asked again in a second.
        self.looker.ask(asked, "cpu-shares", "which server takes CPU from another", move |asked, found| {
            answer(asked, &root, &found)
        });
    }

    /// The groups in which a server waits beside somebody, since this was asked before; those first in which most is waited.
    fn asked(&mut self, window: u64, entities: &Entities) -> Vec<Question> {
        let windows = std::mem::take(&mut self.windows);
        let mut by_group: HashMap<CgroupId, (u64, Vec<CgroupId>)> = HashMap::new();
        for (cgroup, ns) in std::mem::take(&mut self.waited_ns) {
            if ns < WAITED_OF_ONE_NS * windows {
                continue;
            }
            if let Some((group, _)) = self.group(cgroup, entities) {
                let (sum_ns, cgroups) = by_group.entry(group).or_default();
                *sum_ns = sum_ns.saturating_add(ns);
                cgroups.push(cgroup);
            }
        }
        let has_neighbours = |cgroups: &[CgroupId]| {
            cgroups.iter().any(|cgroup| entities.told_apart(*cgroup))
                || (cgroups.len() > 1 && cgroups.iter().any(|cgroup| entities.listens(*cgroup)))
        };
        by_group.retain(|_, (ns, cgroups)| *ns >= WAITED_LEAST_NS * windows && has_neighbours(cgroups));
        let mut short: Vec<(CgroupId, u64)> =
            by_group.into_iter().map(|(group, (ns, _))| (group, ns)).collect();
        short.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.0.cmp(&b.0.0)));
        short.truncate(GROUPS_MAX);
        short.iter().filter_map(|(group, _)| self.question(*group, window, entities)).collect()
    }

    fn group(&mut self, cgroup: CgroupId, entities: &Entities) -> Option<(CgroupId, Arc<str>)> {
        self.groups.entry(cgroup).or_insert_with(|| group_of(cgroup, entities)).clone()
    }

    /// With all cgroups of a group; `None`: it is gone, or has too many.
    fn question(&mut self, group: CgroupId, window: u64, entities: &Entities) -> Option<Question> {
        let tree = entities.tree();
        let path = tree.path(group)?;
        let mut folders = Vec::new();
        for below in tree.subtree(&path) {
            let Some(id) = tree.id(below) else { continue };
            if self.group(id, entities).is_none_or(|(of, _)| of != group) {
                continue;
            }
            if folders.len() == CGROUPS_MAX {
                tracing::debug!(cgroup = &*path, "too many cgroups in one group of the scheduler");
                return None;
            }
            folders.push((id, tree.folder(below)?));
        }
        let may_differ = tree.scheduled(&path)? == CpuVersion::V1;
        Some(Question { group, path, folders, may_differ, window })
    }
}

/// The nearest cgroup, itself or above it, that the scheduler has as a group. `None`: it is gone, or in the root, where the scheduler may share by
/// session (autogroup).
fn group_of(cgroup: CgroupId, entities: &Entities) -> Option<(CgroupId, Arc<str>)> {
    let tree = entities.tree();
    let path = tree.path(cgroup)?;
    let group = parents(&path).take_while(|path| *path != "/").find(|path| tree.scheduled(path).is_some())?;
    Some((tree.id(group)?, Arc::from(group)))
}

fn answer(asked: Receiver<Vec<Question>>, root: &Path, found: &beside::Found<Found>) {
    let mut looks: HashMap<CgroupId, (Look, Pace)> = HashMap::new();
    for questions in asked {
        let has_rested =
            |of: &&Question| looks.get(&of.group).is_none_or(|(_, pace)| pace.is_due(monotonic_ns()));
        let mut due: Vec<&Question> = questions.iter().filter(has_rested).collect();
        due.sort_by_key(|of| looks.get(&of.group).map(|(look, _)| look.at_ns));
        for of in due.into_iter().take(LOOKS_MAX) {
            let (look, cpu_ns) = timed(|| Look::at(root, of));
            let mut pace = Pace::default();
            pace.took(monotonic_ns(), cpu_ns.min(REST_MAX_NS / LOOK_RESTS), LOOK_RESTS);
            let before = looks.remove(&of.group);
            if let Some(shares) = before.and_then(|(before, _)| look.since(&before, of.group)) {
                found.keep([(of.window, shares)], FOUND_MAX);
            }
            looks.insert(of.group, (look, pace));
        }
        let now_ns = monotonic_ns();
        looks.retain(|_, (look, _)| now_ns.saturating_sub(look.at_ns) <= *SPAN_NS.end());
    }
}

/// What a thread did since it began.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    pid: u32,
    ran_ns: u64,
    waited_ns: u64,
}

/// A process of a group.
#[derive(Debug, Clone, Default)]
struct Process {
    cgroup: CgroupId,
    comm: String,
    /// It has the priority that processes have: what is due to one with another is for whoever set that to say.
    is_ordinary: bool,
}

/// All threads of a group.
#[derive(Debug, Default)]
struct Look {
    at_ns: u64,
    threads: HashMap<u32, Thread>,
    processes: HashMap<u32, Process>,
    /// There are too many, or some of its processes have another cgroup for their CPU: nothing is told.
    refused: bool,
}

impl Look {
    fn at(root: &Path, of: &Question) -> Self {
        let mut look = Self { at_ns: monotonic_ns(), ..Self::default() };
        for (cgroup, folder) in &of.folders {
            // Gone since.
            let Ok(listed) = std::fs::read_to_string(folder.join("cgroup.procs")) else { continue };
            for pid in listed.lines().filter_map(|line| line.parse::<u32>().ok()) {
                look.take(&root.join("proc").join(pid.to_string()), pid, *cgroup, of);
                if look.refused {
                    return Self { at_ns: look.at_ns, refused: true, ..Self::default() };
                }
            }
        }
        look
    }

    fn take(&mut self, folder: &Path, pid: u32, cgroup: CgroupId, of: &Question) {
        if self.processes.len() >= PROCESSES_MAX {
            tracing::debug!(cgroup = &*of.path, "too many processes: it is not told whose the CPU is");
            self.refused = true;
            return;
        }
        let Ok(tasks) = std::fs::read_dir(folder.join("task")) else { return };
        if of.may_differ && cpu_cgroup(folder).is_some_and(|path| path != *of.path) {
            tracing::debug!(cgroup = &*of.path, pid, "it has another cgroup for its CPU");
            self.refused = true;
            return;
        }
        for task in tasks.flatten() {
            if self.threads.len() >= THREADS_MAX {
                tracing::debug!(cgroup = &*of.path, "too many threads: it is not told whose the CPU is");
                self.refused = true;
                return;
            }
            let tid = task.file_name().to_str().and_then(|name| name.parse().ok());
            let sums = std::fs::read_to_string(task.path().join("schedstat")).ok();
            let totals = sums.as_deref().and_then(schedstat::totals);
            let Some((tid, (ran_ns, waited_ns))) = tid.zip(totals) else { continue };
            self.threads.insert(tid, Thread { pid, ran_ns, waited_ns });
        }
        let comm = std::fs::read(folder.join("comm")).unwrap_or_default();
        let comm = String::from_utf8_lossy(&comm).trim_end().to_owned();
        let is_ordinary = std::fs::read(folder.join("stat")).is_ok_and(|stat| is_ordinary(&stat));
        self.processes.insert(pid, Process { cgroup, comm, is_ordinary });
    }

    /// What its processes did since the look before. A thread that is new since then did all that it ever did; what a thread did that is gone
    /// by now is nobody's.
    fn since(&self, before: &Self, cgroup: CgroupId) -> Option<CpuShares> {
        let span_ns = self.at_ns.saturating_sub(before.at_ns);
        if self.refused || before.refused || !SPAN_NS.contains(&span_ns) {
            return None;
        }
        let mut by_pid: HashMap<u32, ProcessShare> = HashMap::new();
        for (tid, now) in &self.threads {
            let was = before.threads.get(tid).filter(|was| was.pid == now.pid).copied().unwrap_or_default();
            let of = by_pid.entry(now.pid).or_insert_with(|| {
                let Process { cgroup, comm, .. } = self.processes.get(&now.pid).cloned().unwrap_or_default();
                ProcessShare { cgroup, pid: now.pid, comm, ..ProcessShare::default() }
            });
            // One that came from another cgroup did most of it there, and a wait that ends now may have begun long ago.
            let since = |now_ns: u64, was_ns: u64| now_ns.saturating_sub(was_ns).min(span_ns);
            of.ran_ns = of.ran_ns.saturating_add(since(now.ran_ns, was.ran_ns));
            of.waited_ns = of.waited_ns.saturating_add(since(now.waited_ns, was.waited_ns));
            of.threads += 1;
        }
        let is_ordinary = |of: &ProcessShare| self.processes.get(&of.pid).is_some_and(|p| p.is_ordinary);
        let spent = by_pid.into_values().filter(|of| of.spent_ns() > 0);
        let (mut processes, mut rest): (Vec<ProcessShare>, Vec<ProcessShare>) = spent.partition(is_ordinary);
        processes.sort_by(|a, b| b.spent_ns().cmp(&a.spent_ns()).then(a.pid.cmp(&b.pid)));
        rest.extend(processes.drain(processes.len().min(PROCESSES_TOLD)..));
        if !rest.is_empty() {
            let none = ProcessShare { cgroup, comm: OTHERS.to_owned(), ..ProcessShare::default() };
            processes.push(rest.into_iter().fold(none, |sum, of| ProcessShare {
                ran_ns: sum.ran_ns.saturating_add(of.ran_ns),
                waited_ns: sum.waited_ns.saturating_add(of.waited_ns),
                threads: sum.threads + of.threads,
                ..sum
            }));
        }
        (!processes.is_empty()).then_some(CpuShares { cgroup, windows_ago: 0, span_ns, processes })
    }
}

/// Whether `/proc/PID/stat` says nice 0 and SCHED_OTHER: the 17th and the 39th field after the command, which is in brackets and may hold any character
/// (proc(5): fields 19 and 41).
fn is_ordinary(stat: &[u8]) -> bool {
    let stat = String::from_utf8_lossy(stat);
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let mut is_zero = |after| fields.nth(after) == Some("0");
    is_zero(16) && is_zero(21)
}

/// The cgroup of a process in the version 1 hierarchy of the `cpu` controller: `4:cpu,cpuacct:/lab/web`. `None`: it is in none.
fn cpu_cgroup(folder: &Path) -> Option<String> {
    let text = std::fs::read_to_string(folder.join("cgroup")).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|name| name == "cpu").then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::cgroup::Mounts;
    use crate::window::{ListenerKey, TaskSample, WindowIndex};
    use std::net::Ipv6Addr;

    struct Host(tempfile::TempDir);

    impl Host {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join("cgroup")).unwrap();
            Self(root)
        }

        fn has(&self, pids: &[u32]) {
            let text: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
            std::fs::write(self.0.path().join("cgroup/cgroup.procs"), text).unwrap();
        }

        fn thread(&self, pid: u32, tid: u32, ran_ns: u64, waited_ns: u64) {
            let folder = self.0.path().join(format!("proc/{pid}"));
            let task = folder.join(format!("task/{tid}"));
            std::fs::create_dir_all(&task).unwrap();
            std::fs::write(task.join("schedstat"), format!("{ran_ns} {waited_ns} 7\n")).unwrap();
            std::fs::write(folder.join("comm"), format!("server-{pid}\n")).unwrap();
            self.nice(pid, 0);
            std::fs::write(folder.join("cgroup"), "4:cpu,cpuacct:/shop\n1:name=systemd:/other\n0::/shop\n")
                .unwrap();
        }

        fn nice(&self, pid: u32, nice: i32) {
            let fields = (3..=52).map(|field| if field == 19 { nice.to_string() } else { "0".to_owned() });
            let stat = format!("{pid} (a) b) {}", fields.collect::<Vec<_>>().join(" "));
            std::fs::write(self.0.path().join(format!("proc/{pid}/stat")), stat).unwrap();
        }

        fn question(&self, path: &str) -> Question {
            Question {
                group: CgroupId(7),
                path: path.into(),
                folders: vec![(CgroupId(8), self.0.path().join("cgroup"))],
                may_differ: true,
                window: 0,
            }
        }

        fn look(&self, at_ns: u64) -> Look {
            Look { at_ns, ..Look::at(self.0.path(), &self.question("/shop")) }
        }
    }

    fn told(shares: &CpuShares) -> Vec<(u32, &str, u64, u64, u32)> {
        let of = |p: &ProcessShare| (p.pid, p.ran_ns, p.waited_ns, p.threads);
        let all = shares.processes.iter().map(|p| (of(p), p.comm.as_str()));
        all.map(|((pid, ran, waited, threads), comm)| (pid, comm, ran, waited, threads)).collect()
    }

    #[test]
    fn threads_are_told_by_process_since_the_look_before() {
        let host = Host::new();
        host.has(&[10, 20]);
        host.thread(10, 10, 1_000, 500);
        host.thread(20, 20, 9_000, 100);
        let before = host.look(1_000_000_000);
        host.thread(10, 10, 1_700, 800);
        // It began meanwhile.
        host.thread(10, 11, 200, 60);
        host.has(&[10, 20, 30]);
        host.thread(30, 30, 0, 0);
        let shares = host.look(2_000_000_000).since(&before, CgroupId(7)).unwrap();
        assert_eq!((shares.cgroup, shares.span_ns), (CgroupId(7), 1_000_000_000));
        assert_eq!(told(&shares), [(10, "server-10", 900, 360, 2)], "whoever did nothing is left out");
        assert_eq!(shares.processes[0].cgroup, CgroupId(8));
        let later = |ns: u64| host.look(1_000_000_000 + ns).since(&before, CgroupId(7)).is_some();
        assert_eq!(
            [SPAN_NS.start() - 1, *SPAN_NS.start(), *SPAN_NS.end(), SPAN_NS.end() + 1].map(later),
            [false, true, true, false]
        );
        assert_eq!(host.look(1_000_000_000).since(&before, CgroupId(7)), None);
    }

    #[test]
    fn an_id_that_another_process_has_by_now_is_another_thread() {
        let host = Host::new();
        host.has(&[10]);
        host.thread(10, 55, 1_000_000, 500);
        let before = host.look(1_000_000_000);
        std::fs::remove_dir_all(host.0.path().join("proc/10")).unwrap();
        host.has(&[12]);
        host.thread(12, 55, 3_000_000_000, 3);
        let shares = host.look(2_000_000_000).since(&before, CgroupId(7)).unwrap();
        assert_eq!(told(&shares), [(12, "server-12", 1_000_000_000, 3, 1)], "no more than there was time");
    }

    #[test]
    fn of_processes_with_another_cgroup_for_their_cpu_nothing_is_told() {
        let host = Host::new();
        host.has(&[10]);
        host.thread(10, 10, 1, 1);
        let refused = |path| Look::at(host.0.path(), &host.question(path)).refused;
        assert_eq!(["/shop", "/shop/inner"].map(refused), [false, true]);
        let not = Look { at_ns: 2_000_000_000, refused: true, ..Look::default() };
        let seen = host.look(1_000_000_000);
        assert_eq!((not.since(&seen, CgroupId(7)), seen.since(&not, CgroupId(7))), (None, None));
    }

    #[test]
    fn more_threads_than_the_bound_are_not_read() {
        let host = Host::new();
        host.has(&[10]);
        (0..=THREADS_MAX as u32).for_each(|n| host.thread(10, 10 + n, 1, 1));
        let look = host.look(1_000);
        assert!(look.refused && look.threads.is_empty());
    }

    /// A tree of version 2 in which `shop` and all above it have the `cpu` controller, and no other.
    fn tree(root: &Path, cgroups: &[&str]) -> Entities {
        for cgroup in cgroups {
            std::fs::create_dir_all(root.join("cgroup").join(cgroup)).unwrap();
            std::fs::write(root.join("cgroup").join(cgroup).join("cgroup.procs"), "").unwrap();
        }
        for with in ["system", "shop"].iter().filter(|with| cgroups.contains(*with)) {
            std::fs::write(root.join("cgroup").join(with).join("cpu.weight"), "100\n").unwrap();
        }
        let mounts = Mounts { unified: Some(root.join("cgroup")), ..Mounts::default() };
        Entities::new(mounts, root)
    }

    #[test]
    fn services_without_a_controller_of_their_own_are_one_group_of_the_scheduler() {
        let root = tempfile::tempdir().unwrap();
        let entities = tree(root.path(), &["system", "system/a", "system/b/inner", "shop", "other"]);
        let id = |path: &str| entities.tree().id(path).unwrap();
        let group = |path: &str| group_of(id(path), &entities).map(|(group, _)| group);
        let system = Some(id("/system"));
        assert_eq!(["/system", "/system/a", "/system/b/inner"].map(group), [system; 3]);
        assert_eq!((group("/shop"), group("/other"), group("/")), (Some(id("/shop")), None, None));
        let mut shares = Shares::new(root.path());
        let question = shares.question(id("/system"), 7, &entities).unwrap();
        assert_eq!((question.folders.len(), question.may_differ), (4, false), "b itself, too");
        assert_eq!(shares.question(id("/other"), 7, &entities), None);
    }

    #[test]
    fn a_group_is_looked_at_when_a_server_waits_there_beside_somebody() {
        let root = tempfile::tempdir().unwrap();
        let mut entities = tree(root.path(), &["system", "system/a", "system/b", "shop"]);
        let id = |entities: &Entities, path: &str| entities.tree().id(path).unwrap();
        let [a, b, shop] = ["/system/a", "/system/b", "/shop"].map(|path| id(&entities, path));
        let key = |owner| ListenerKey { netns: 1, address: Ipv6Addr::UNSPECIFIED, port: 80, owner, pid: 0 };
        entities.listener(key(a));
        let mut shares = Shares::new(root.path());
        let asks = |shares: &mut Shares, waits: &[(CgroupId, u64)]| {
            for index in 1..20 {
                let task = |wait_ns| TaskSample { wait_ns, ..TaskSample::default() };
                let tasks = waits.iter().map(|(cgroup, ns)| (*cgroup, task(*ns))).collect();
                let mut window =
                    Window { index: WindowIndex(index), tasks: Some(tasks), ..Window::default() };
                shares.step(&mut window, &entities);
            }
            shares.asked(19, &entities).len()
        };
        assert_eq!(asks(&mut shares, &[(a, 2 * WINDOW_NS)]), 0, "nobody is beside it");
        assert_eq!(asks(&mut shares, &[(a, 2 * WINDOW_NS), (b, 1)]), 0, "nobody who wants anything");
        assert_eq!(asks(&mut shares, &[(a, WINDOW_NS / 2), (b, WINDOW_NS / 2)]), 0, "hardly anybody waits");
        assert_eq!(asks(&mut shares, &[(a, WINDOW_NS), (b, WINDOW_NS)]), 1);
        assert_eq!(asks(&mut shares, &[(shop, 9 * WINDOW_NS), (b, 9 * WINDOW_NS)]), 0, "no server");
    }

    #[test]
    fn who_has_another_priority_uses_cpu_and_is_due_nothing() {
        let host = Host::new();
        host.has(&[10, 20]);
        host.thread(10, 10, 0, 0);
        host.thread(20, 20, 0, 0);
        let before = host.look(1_000_000_000);
        host.thread(10, 10, 600, 100);
        host.thread(20, 20, 400, 900);
        host.nice(20, 19);
        let shares = host.look(2_000_000_000).since(&before, CgroupId(7)).unwrap();
        assert_eq!(told(&shares), [(10, "server-10", 600, 100, 1), (0, OTHERS, 400, 900, 1)]);
        assert!(!is_ordinary(b"") && !is_ordinary(b"1 (x) S 1"));
    }

    #[test]
    fn what_is_beyond_the_bound_is_told_as_one() {
        let host = Host::new();
        let pids: Vec<u32> = (1..=PROCESSES_TOLD as u32 + 6).collect();
        host.has(&pids);
        pids.iter().for_each(|pid| host.thread(*pid, *pid, 0, 0));
        let before = host.look(1_000_000_000);
        pids.iter().for_each(|pid| host.thread(*pid, *pid, 1_000 - u64::from(*pid), 10));
        let shares = host.look(2_000_000_000).since(&before, CgroupId(7)).unwrap();
        assert_eq!(shares.processes.len(), PROCESSES_TOLD + 1);
        let ran: u64 = shares.processes.iter().map(|p| p.ran_ns).sum();
        assert_eq!(ran, pids.iter().map(|pid| 1_000 - u64::from(*pid)).sum::<u64>());
        let last = shares.processes.last().unwrap();
        assert_eq!((last.pid, last.comm.as_str(), last.threads, last.waited_ns), (0, OTHERS, 6, 60));
    }
}

//! What the kernel counts of its network and its memory that no hook of the agent sees, and by how much it rose. Owns which files tell what, which
//! network namespaces are read, and when, on a thread beside the one that drains windows; knows no id of the wire.
//!
//! Packets that connection tracking drops, receive buffers that are full and the like make requests late as a full accept queue does, and are none. They
//! are read once a second: what they are told for is that somebody looks there.

use crate::clock::{Pace, monotonic_ns, timed};
use crate::name::scope::netns_of;
use crate::sample::beside::{self, Beside};
use crate::sample::qdiscs;
use crate::window::{KernelCount, KernelCounter, ListenerKey, Window};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

/// Windows between two reads: a second.
const EVERY_WINDOWS: u64 = 20;
/// A namespace in which no listener had anything to do for so many windows (a minute) is not read any more.
const KEPT_WINDOWS: u64 = 1_200;
/// Namespaces that are read beside the host's own; of a machine with more those that were seen first.
const NAMESPACES_MAX: usize = 16;
/// The next read comes no sooner than so many times what the last one took of a CPU: a third of a percent, …
const READ_RESTS: u64 = 300;
/// … but not later than this.
const REST_MAX_NS: u64 = 5_000_000_000;
/// Windows between two reads that are told of together: a collector has the last nine seconds.
const SPAN_WINDOWS: u64 = 160;
/// Counts that wait for a window.
const FOUND_MAX: usize = 4 * KernelCounter::ALL.len();

/// A network namespace by its inode, and a process in it.
type Namespace = (u32, u32);

/// What to read.
#[derive(Debug)]
struct Question {
    /// The window that was closed when it was asked.
    window: u64,
    namespaces: Vec<Namespace>,
}

/// What was found, and the window that was closed when it was asked for.
type Found = (u64, KernelCount);

/// Reads the kernel's counts once a second.
#[derive(Debug)]
pub struct Counters {
    root: PathBuf,
    /// Where listeners are: a process of theirs, and the last window in which they had something to do.
    namespaces: HashMap<u32, (u32, u64)>,
    reader: Beside<Question, Found>,
}

impl Counters {
    /// `root`: the file system whose `proc` is read. The thread begins with the first read.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), namespaces: HashMap::new(), reader: Beside::default() }
    }

    /// Call once for each window, after it was narrowed to a scope: asks for a read, and adds what came of those before. `host` is a process in the
    /// network namespace of the host or scope; it is asked for when it is needed.
    pub fn step(&mut self, window: &mut Window, host: impl FnOnce() -> u32) {
        let now = window.index.0;
        let queues = window.accept_queues.iter().flatten().map(|(key, _)| key);
        let requests = window.requests.iter().flatten().map(|(key, _)| key);
        let mut last = None;
        for key in queues.chain(requests) {
            // Mostly they are all of one.
            let socket = Some((key.netns, key.pid));
            if socket != std::mem::replace(&mut last, socket) {
                self.meet(key, now);
            }
        }
        if !now.is_multiple_of(EVERY_WINDOWS) {
            return;
        }
        // After a pause of this machine: nobody has the windows that it is of.
        let is_new = |(asked, _): &Found| now.saturating_sub(*asked) <= SPAN_WINDOWS;
        let told = |(asked, count): Found| KernelCount {
            windows_ago: u32::try_from(now.saturating_sub(asked)).unwrap_or(u32::MAX),
            ..count
        };
        window.kernel_counts.extend(self.reader.take().into_iter().filter(is_new).map(told));
        // What is read now is not of a window that ended long ago.
        if window.late {
            return;
        }
        self.namespaces.retain(|_, (_, last)| now.saturating_sub(*last) <= KEPT_WINDOWS);
        let host = host();
        let own = netns_of(host);
        let others = self.namespaces.iter().map(|(netns, (process, _))| (*netns, *process));
        let namespaces = own.map(|netns| (netns, host)).into_iter();
        let namespaces = namespaces.chain(others.filter(|(netns, _)| Some(*netns) != own)).collect();
        let root = self.root.clone();
        // Whoever still reads is asked again in a second.
        self.reader.ask(
            Question { window: now, namespaces },
            "kernel-counts",
            "what the kernel counts of its network and memory",
            move |asked, found| answer(asked, &root, &found),
        );
    }

    fn meet(&mut self, key: &ListenerKey, now: u64) {
        if let Some((process, last)) = self.namespaces.get_mut(&key.netns) {
            *last = now;
            // Of a server that was started anew the new process.
            if key.pid > 0 {
                *process = key.pid;
            }
        } else if key.pid > 0 && self.namespaces.len() < NAMESPACES_MAX {
            self.namespaces.insert(key.netns, (key.pid, now));
        }
    }
}

fn answer(asked: Receiver<Question>, root: &Path, found: &beside::Found<Found>) {
    let (mut before, mut pace): (Option<Look>, Pace) = (None, Pace::default());
    for mut question in asked {
        if !pace.is_due(monotonic_ns()) {
            continue;
        }
        // Gone, or another process has its number by now: what it reads would be of another namespace.
        question.namespaces.retain(|(netns, process)| netns_of(*process) == Some(*netns));
        let (look, cpu_ns) = timed(|| Look::at(root, &question, qdiscs::dropped().ok()));
        pace.took(monotonic_ns(), cpu_ns.min(REST_MAX_NS / READ_RESTS), READ_RESTS);
        let risen = before.as_ref().map(|before| look.since(before)).unwrap_or_default();
        found.keep(risen.into_iter().map(|count| (look.window, count)), FOUND_MAX);
        before = Some(look);
    }
}

/// Values of one place; what a file does not hold, or a kernel does not count, is not there.
type Sums = HashMap<KernelCounter, u64>;

/// All places at one moment.
#[derive(Debug, Default)]
struct Look {
    window: u64,
    /// What is one for the whole machine, and what is asked in the namespace of the agent alone.
    machine: Sums,
    namespaces: HashMap<u32, Sums>,
}

impl Look {
    /// `queues`: what queueing disciplines dropped, where that is known.
    fn at(root: &Path, question: &Question, queues: Option<u64>) -> Self {
        let proc = root.join("proc");
        let of_process = |(netns, process): &Namespace| {
            let sums = of_namespace(&proc.join(process.to_string()).join("net"));
            (!sums.is_empty()).then_some((*netns, sums))
        };
        let mut machine = of_machine(&proc);
        machine.extend(queues.map(|dropped| (KernelCounter::QdiscDropped, dropped)));
        Self {
            window: question.window,
            machine,
            namespaces: question.namespaces.iter().filter_map(of_process).collect(),
        }
    }

    /// What rose since the look before, summed over the namespaces that are in both. A count that fell is another namespace's.
    fn since(&self, before: &Self) -> Vec<KernelCount> {
        let windows = self.window.saturating_sub(before.window);
        if windows == 0 || windows > SPAN_WINDOWS {
            return Vec::new();
        }
        let rise = |now: &Sums, was: &Sums, counter: KernelCounter| {
            let (now, was) = (now.get(&counter)?, was.get(&counter)?);
            now.checked_sub(*was)
        };
        let told = KernelCounter::ALL.into_iter().map(|counter| {
            let of_namespaces = self.namespaces.iter().filter_map(|(netns, now)| {
                before.namespaces.get(netns).and_then(|was| rise(now, was, counter))
            });
            let own = rise(&self.machine, &before.machine, counter).into_iter();
            let count = own.chain(of_namespaces).fold(0, u64::saturating_add);
            KernelCount {
                counter,
                count,
                windows: u32::try_from(windows).unwrap_or(u32::MAX),
                windows_ago: 0,
            }
        });
        told.filter(|told| told.count > 0).collect()
    }
}

/// What is one for the whole machine, whichever namespace is asked.
fn of_machine(proc: &Path) -> Sums {
    let read = |path: &str| std::fs::read_to_string(proc.join(path)).unwrap_or_default();
    let mut sums = Sums::new();
    let softnet = read("net/softnet_stat");
    let mut add = |counter, value: Option<u64>| sums.extend(value.map(|value| (counter, value)));
    add(KernelCounter::BacklogDropped, hexadecimal_column(&softnet, 0, 1));
    add(KernelCounter::BacklogSqueezed, hexadecimal_column(&softnet, 0, 2));
    add(KernelCounter::CompactionStalled, named_line(&read("vmstat"), "compact_stall"));
    sums
}

/// What each network namespace counts for itself.
fn of_namespace(net: &Path) -> Sums {
    let read = |path: &str| std::fs::read_to_string(net.join(path)).unwrap_or_default();
    let mut sums = Sums::new();
    let mut add = |counter, value: Option<u64>| sums.extend(value.map(|value| (counter, value)));
    let netstat = read("netstat");
    let tcp = |names: &[&str]| named_columns(&netstat, "TcpExt:", names);
    add(KernelCounter::ZeroWindow, tcp(&["TCPToZeroWindowAdv"]));
    add(KernelCounter::ReceiveBufferFull, tcp(&["TCPRcvQDrop"]));
    add(KernelCounter::TcpMemoryShort, tcp(&["TCPMemoryPressures", "TCPAbortOnMemory"]));
    add(KernelCounter::DeviceDropped, devices(&read("dev")));
    let conntrack = read("stat/nf_conntrack");
    let columns = conntrack.lines().next().unwrap_or_default();
    let column = |name: &str| columns.split_ascii_whitespace().position(|column| column == name);
    let of = |name| column(name).and_then(|at| hexadecimal_column(&conntrack, 1, at));
    add(
        KernelCounter::ConntrackDropped,
        of("drop").zip(of("insert_failed")).map(|(a, b)| a.saturating_add(b)),
    );
    sums
}

/// Sum of a column over the lines of all CPUs, after so many lines of names (`/proc/net/softnet_stat`, `/proc/net/stat/nf_conntrack`).
fn hexadecimal_column(text: &str, skip: usize, column: usize) -> Option<u64> {
    let of = |line: &str| u64::from_str_radix(line.split_ascii_whitespace().nth(column)?, 16).ok();
    text.lines().skip(skip).filter_map(of).reduce(u64::saturating_add)
}

/// Sum of these columns of `/proc/net/netstat`, where a line of names is followed by one of values. `None`: one of them is not there.
fn named_columns(text: &str, prefix: &str, names: &[&str]) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let (columns, values) = (lines.next()?, lines.next()?);
    let of = |name: &str| {
        let at = columns.split_ascii_whitespace().position(|column| column == name)?;
        values.split_ascii_whitespace().nth(at)?.parse::<u64>().ok()
    };
    names.iter().try_fold(0_u64, |sum, name| Some(sum.saturating_add(of(name)?)))
}

/// `NAME VALUE` of `/proc/vmstat`.
fn named_line(text: &str, name: &str) -> Option<u64> {
    let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next()?.trim().parse().ok()
}

/// Packets that no device sent, by `/proc/net/dev`: the twelfth number after a device's name.
fn devices(text: &str) -> Option<u64> {
    let of = |line: &str| line.rsplit_once(':')?.1.split_ascii_whitespace().nth(11)?.parse::<u64>().ok();
    text.lines().skip(2).filter_map(of).reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{AcceptQueueSample, CgroupId, WindowIndex};
    use std::net::Ipv6Addr;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            machine.write("vmstat", "nr_free_pages 7\ncompact_stall_x 9\ncompact_stall 3\n");
            machine.write("net/softnet_stat", "0000000a 00000001 00000002 0\n0000000b 0000000f 00000001 0\n");
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join("proc").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn namespace(&self, process: u32, zero: u64, short: u64) {
            let netstat = format!(
                "TcpExt: SyncookiesSent TCPAbortOnMemory TCPMemoryPressures TCPToZeroWindowAdv TCPRcvQDrop\n\
                 TcpExt: 5 {short} 1 {zero} 0\nIpExt: InNoRoutes\nIpExt: 4\n"
            );
            self.write(&format!("{process}/net/netstat"), &netstat);
        }

        fn look(&self, window: u64, namespaces: &[Namespace]) -> Look {
            Look::at(self.0.path(), &Question { window, namespaces: namespaces.to_vec() }, None)
        }
    }

    fn told(counts: &[KernelCount]) -> Vec<(KernelCounter, u64)> {
        counts.iter().map(|told| (told.counter, told.count)).collect()
    }

    #[test]
    fn what_rose_is_told_of_the_machine_and_of_all_namespaces_together() {
        let machine = Machine::new();
        machine.namespace(10, 5, 0);
        machine.namespace(20, 100, 7);
        let both = [(1, 10), (2, 20)];
        let before = machine.look(40, &both);
        assert_eq!(told(&before.since(&machine.look(20, &both))), []);
        machine.write("net/softnet_stat", "0000000a 00000001 00000012 0\n0000000b 0000000f 00000001 0\n");
        machine.namespace(10, 9, 0);
        machine.namespace(20, 130, 9);
        machine.namespace(30, 1_000, 1_000);
        let after = machine.look(61, &[(1, 10), (2, 20), (3, 30)]).since(&before);
        let expected = [
            (KernelCounter::BacklogSqueezed, 16),
            (KernelCounter::ZeroWindow, 34),
            (KernelCounter::TcpMemoryShort, 2),
        ];
        assert_eq!(told(&after), expected, "a namespace that is new tells nothing yet");
        assert!(after.iter().all(|count| (count.windows, count.windows_ago) == (21, 0)));
    }

    #[test]
    fn what_fell_is_gone_and_what_is_long_ago_is_not_told() {
        let machine = Machine::new();
        machine.namespace(10, 50, 0);
        let before = machine.look(0, &[(1, 10)]);
        machine.namespace(10, 3, 0);
        assert_eq!(told(&machine.look(20, &[(1, 10)]).since(&before)), [], "another namespace");
        machine.namespace(10, 60, 0);
        let zero = [(KernelCounter::ZeroWindow, 10)];
        assert_eq!(told(&machine.look(SPAN_WINDOWS, &[(1, 10)]).since(&before)), zero);
        assert_eq!(told(&machine.look(SPAN_WINDOWS + 1, &[(1, 10)]).since(&before)), []);
        assert_eq!(told(&machine.look(0, &[(1, 10)]).since(&before)), []);
    }

    #[test]
    fn files_are_read_as_kernels_write_them() {
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes\n    lo: 26 5 0 0 0 0 0 0 26 5 0 0 0 0 0 0\n  eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(devices(dev), Some(12));
        let conntrack = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new\n\
                         00000105  00000000 0 0 0 0 0 0 0 00000003 0000001f 0 0  0\n00000105  00000000 0 0 0 0 0 0 0 00000001 00000001 0 0  0\n";
        let machine = Machine::new();
        machine.write("10/net/stat/nf_conntrack", conntrack);
        let look = machine.look(0, &[(1, 10)]);
        assert_eq!(look.namespaces[&1], HashMap::from([(KernelCounter::ConntrackDropped, 36)]));
        let of_machine = [
            (KernelCounter::BacklogDropped, 16),
            (KernelCounter::BacklogSqueezed, 3),
            (KernelCounter::CompactionStalled, 3),
        ];
        assert_eq!(look.machine, HashMap::from(of_machine));
        assert_eq!(named_columns("TcpExt: A B\nTcpExt: 1\n", "TcpExt:", &["B"]), None, "a line that is cut");
        assert_eq!(hexadecimal_column("", 0, 1), None);
        assert_eq!(named_line("compact_stall x\n", "compact_stall"), None);
    }

    /// This machine's own files: fails where a kernel calls them otherwise, so that nothing would be told and nobody would know.
    #[test]
    fn this_kernel_has_them() {
        let process = std::process::id();
        let question = Question { window: 0, namespaces: vec![(1, process)] };
        let look = Look::at(Path::new("/"), &question, qdiscs::dropped().ok());
        let of = |sums: &Sums| {
            let mut all: Vec<KernelCounter> = sums.keys().copied().collect();
            all.sort_unstable();
            all
        };
        let machine = of(&look.machine);
        assert!(machine.contains(&KernelCounter::BacklogDropped), "{machine:?}");
        assert!(machine.contains(&KernelCounter::BacklogSqueezed), "{machine:?}");
        assert!(machine.contains(&KernelCounter::QdiscDropped), "{machine:?}");
        let own = look.namespaces.get(&1).map(of).unwrap_or_default();
        for counter in [
            KernelCounter::ZeroWindow,
            KernelCounter::ReceiveBufferFull,
            KernelCounter::TcpMemoryShort,
            KernelCounter::DeviceDropped,
        ] {
            assert!(own.contains(&counter), "{counter:?} in {own:?}");
        }
    }

    #[test]
    fn a_namespace_is_read_while_somebody_listens_there_and_there_is_room() {
        let root = tempfile::tempdir().unwrap();
        let mut counters = Counters::new(root.path());
        let key = |netns, pid| ListenerKey {
            netns,
            address: Ipv6Addr::UNSPECIFIED,
            port: 80,
            owner: CgroupId(1),
            pid,
        };
        let mut at = |index, keys: &[ListenerKey]| {
            let rows = keys.iter().map(|key| (*key, AcceptQueueSample::default())).collect();
            let mut window =
                Window { index: WindowIndex(index), accept_queues: Some(rows), ..Window::default() };
            counters.step(&mut window, std::process::id);
            counters.namespaces.get(&7).copied()
        };
        assert_eq!(at(1, &[key(7, 0)]), None, "nobody knows a process there");
        assert_eq!(at(2, &[key(7, 10)]), Some((10, 2)));
        assert_eq!(at(3, &[key(7, 0)]), Some((10, 3)));
        assert_eq!(at(4, &[key(7, 11)]), Some((11, 4)), "it was started anew");
        assert_eq!(at(1_200, &[]), Some((11, 4)));
        assert_eq!(at(1_220, &[]), None);
        let many: Vec<ListenerKey> = (100..100 + 2 * NAMESPACES_MAX as u32).map(|n| key(n, n)).collect();
        at(1_221, &many);
        assert_eq!(counters.namespaces.len(), NAMESPACES_MAX);
    }
}

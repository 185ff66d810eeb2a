//! What the threads of a process wait for, by their files in `/proc`: of those in futex(2) the mutex of glibc that most wait for, and its owner. Owns these
//! formats; knows no listener.
//!
//! A thread that waits for such a mutex is in `FUTEX_WAIT` for the value 2 without a timeout (`__lll_lock_wait`). So are others: waiters for a lock of
//! the allocator, of Go's runtime, for a counter of C++. A mutex alone looks like one in memory (`struct __pthread_mutex_s`); of all else nothing is told.

use crate::sample::tasks::{own_id, processes, read, threads};
use crate::window::LockingThread;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Threads of which one look reads what they wait for.
const THREADS_MAX: usize = 1_024;
/// So many threads wait for a mutex at least, for it to be told.
const WAITING_LEAST: usize = 2;
/// `FUTEX_WAIT` and the mask of its flags (futex(2)).
const FUTEX_WAIT: u64 = 0;
const FUTEX_FLAGS: u64 = 0x80 | 0x100;
/// A mutex that is taken, and that somebody waits for (lowlevellock of glibc).
const CONTENDED: u64 = 2;
/// Bytes of a mutex that say what it is and whose: `__lock`, `__count`, `__owner`, `__nusers`, `__kind`, of 4 each on 64 bits.
const MUTEX_BYTES: usize = 20;
/// Kinds are normal, recursive, error-checking and adaptive; two flags of theirs say how transactions elide it.
const RECURSIVE: u32 = 1;
const ADAPTIVE: u32 = 3;
const ELISION: u32 = 0x100 | 0x200;
/// Longest name of a kernel function that is told.
const FUNCTION_MAX: usize = 63;

/// What was seen of the mutex that most threads of a server wait for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) waiting: u32,
    pub(super) threads: u32,
    pub(super) holder: Option<LockingThread>,
}

/// Threads of one process that wait for one address.
struct Waiters {
    process: u32,
    address: u64,
    waiting: Vec<u32>,
    /// All that the process has.
    threads: Vec<u32>,
}

/// Of the process that listens and its children in the same cgroup: the mutex that most of the threads of one wait for. `None`: no two wait for one, or
/// none does any more.
pub(super) fn at(proc: &Path, pid: u32) -> Option<Seen> {
    let mut left = THREADS_MAX;
    let found = processes(proc, pid).into_iter().filter_map(|process| {
        let threads = threads(proc, process);
        let looked = threads.iter().take(left);
        let mut waits: HashMap<u64, Vec<u32>> = HashMap::new();
        for tid in looked {
            if let Some(address) = waits_for(proc, process, *tid) {
                waits.entry(address).or_default().push(*tid);
            }
        }
        left = left.saturating_sub(threads.len());
        let (address, waiting) = waits.into_iter().max_by_key(|(address, of)| (of.len(), *address))?;
        Some(Waiters { process, address, waiting, threads })
    });
    let most = found.max_by_key(|of| of.waiting.len()).filter(|of| of.waiting.len() >= WAITING_LEAST)?;
    let Waiters { process, address, waiting, threads } = most;
    let owner = owner(proc, process, address)?;
    let holder = thread_called(proc, process, &threads, owner).and_then(|tid| thread(proc, process, tid));
    // Whoever gave it back meanwhile may stand in line for it again, and what was read is of this mutex while somebody waits for it.
    let holder = holder.filter(|by| waits_for(proc, process, by.tid) != Some(address));
    if self::owner(proc, process, address) != Some(owner) {
        return None;
    }
    waiting.iter().find(|tid| waits_for(proc, process, **tid) == Some(address))?;
    let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
    Some(Seen { waiting: count(waiting.len()), threads: count(threads.len()), holder })
}

/// Whether this process may read what another one's threads wait for.
pub(super) fn is_refused(proc: &Path, pid: u32) -> bool {
    let read = std::fs::read(proc.join(format!("{pid}/task/{pid}/syscall")));
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// The address for which a thread waits as for a mutex.
fn waits_for(proc: &Path, process: u32, tid: u32) -> Option<u64> {
    waited_for(&read(proc, process, tid, "syscall")?)
}

/// From the text of `/proc/PID/task/TID/syscall`: the number of the system call and its arguments (proc_pid_syscall(5)).
fn waited_for(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    if words.next()?.parse() != Ok(libc::SYS_futex) {
        return None;
    }
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (address, operation, value, timeout) = (argument()?, argument()?, argument()?, argument()?);
    let is_lock = operation & !FUTEX_FLAGS == FUTEX_WAIT && value == CONTENDED && timeout == 0;
    is_lock.then_some(address)
}

/// Whom the mutex at this address of a process belongs to, as a thread's id that this process has of it. `None`: there is no mutex that somebody waits for.
fn owner(proc: &Path, process: u32, address: u64) -> Option<u32> {
    let mut bytes = [0; MUTEX_BYTES];
    let memory = File::open(proc.join(format!("{process}/mem"))).ok()?;
    memory.read_exact_at(&mut bytes, address).ok()?;
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let (lock, count, owner, users, kind) = (word(0)?, word(4)?, word(8)?, word(12)?, word(16)? & !ELISION);
    let is_mutex = kind <= ADAPTIVE && users > 0 && owner > 0 && (count == 0 || kind == RECURSIVE);
    (is_mutex && u64::from(lock) == CONTENDED).then_some(owner)
}

/// The thread that calls itself so.
fn thread_called(proc: &Path, process: u32, tids: &[u32], own: u32) -> Option<u32> {
    tids.iter().find(|tid| own_id(proc, process, **tid) == Some(own)).copied()
}

/// What a thread is called and does.
fn thread(proc: &Path, process: u32, tid: u32) -> Option<LockingThread> {
    let stat = read(proc, process, tid, "stat")?;
    let (before, after) = stat.rsplit_once(") ")?;
    let (_, comm) = before.split_once('(')?;
    let runs = after.starts_with('R');
    let wchan = if runs { String::new() } else { read(proc, process, tid, "wchan").unwrap_or_default() };
    // What the compiler made of a function is not its name; `0` is nothing that may be known.
    let function = wchan.trim().split('.').next().filter(|name| *name != "0" && name.len() <= FUNCTION_MAX);
    let slept_in = function.unwrap_or_default().to_owned();
    Some(LockingThread { tid, comm: comm.to_owned(), runs, slept_in })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const ADDRESS: u64 = 0x40;
    /// A normal mutex that somebody waits for, of thread 107.
    const MUTEX: [u32; 5] = [2, 0, 107, 1, 0];

    /// A process of which each thread has its files: one waits at the address, or for events; all have other ids in a namespace of their own, 100 higher.
    pub(in super::super) fn process(root: &Path, pid: u32, threads: &[(u32, bool)], memory: [u32; 5]) {
        let folder = root.join(format!("proc/{pid}"));
        for (tid, waits) in threads {
            let task = folder.join(format!("task/{tid}"));
            std::fs::create_dir_all(&task).unwrap();
            let call = if *waits {
                format!("{} {ADDRESS:#x} 0x80 0x2 0x0 0x0 0x0 0x7ff 0x7ff\n", libc::SYS_futex)
            } else {
                "230 0x0 0x0 0x7f 0x0 0x0 0x0 0x7ff 0x7ff\n".to_owned()
            };
            let files = [
                ("syscall", call.as_str()),
                ("children", ""),
                ("status", &format!("Name:\tworker\nNSpid:\t{tid}\t{}\n", tid + 100)),
                ("stat", &format!("{tid} (a (b) c) S 1 1")),
                ("wchan", "hrtimer_nanosleep.isra.0"),
            ];
            files.iter().for_each(|(name, text)| std::fs::write(task.join(name), text).unwrap());
        }
        let mut bytes = vec![0_u8; ADDRESS as usize];
        memory.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        std::fs::write(folder.join("mem"), bytes).unwrap();
        std::fs::write(folder.join("cgroup"), "0::/app\n").unwrap();
    }

    fn looked(threads: &[(u32, bool)], memory: [u32; 5]) -> Option<Seen> {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 7, threads, memory);
        at(&root.path().join("proc"), 7)
    }

    const FOUR: [(u32, bool); 4] = [(7, false), (8, true), (9, true), (10, true)];

    #[test]
    fn the_mutex_that_most_wait_for_is_told_with_its_owner() {
        let Seen { waiting, threads, holder } = looked(&FOUR, MUTEX).unwrap();
        let holder = holder.unwrap();
        assert_eq!((waiting, threads, holder.tid, holder.runs), (3, 4, 7, false));
        assert_eq!((holder.comm.as_str(), holder.slept_in.as_str()), ("a (b) c", "hrtimer_nanosleep"));
        let of_nobody = looked(&FOUR, [2, 0, 999, 1, 0]).unwrap();
        assert_eq!((of_nobody.waiting, of_nobody.holder), (3, None), "no thread of this process");
        let in_line = looked(&FOUR, [2, 0, 108, 1, 0]).unwrap();
        assert_eq!(in_line.holder, None, "it waits itself");
        assert_eq!(looked(&FOUR[..2], MUTEX), None, "one waits");
        assert_eq!(looked(&[(7, false), (8, false)], MUTEX), None);
        let nobody = tempfile::tempdir().unwrap();
        assert_eq!(at(nobody.path(), 7), None, "it is gone");
    }

    /// Fails where whatever else waits for the value 2 is told as a mutex, and what stands behind it in memory as its owner.
    #[test]
    fn what_does_not_look_like_a_mutex_is_none() {
        let is_told = |memory| looked(&FOUR, memory).is_some();
        assert!(is_told([2, 5, 107, 1, 1]), "a recursive one");
        assert!(is_told([2, 0, 107, 1, 0x103]), "an adaptive one, elided");
        assert!(!is_told([1, 0, 107, 1, 0]), "nobody waits for it");
        assert!(!is_told([2, 0, 0, 1, 0]), "it belongs to nobody");
        assert!(!is_told([2, 0, 1, 0, 0]), "an arena of the allocator");
        assert!(!is_told([2, 5, 107, 1, 0]), "a normal one is taken once");
        assert!(!is_told([2, 0, 107, 1, 77]), "of no kind");
    }

    #[test]
    fn children_of_a_supervisor_that_listens_for_others_are_none_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 7, &[(7, false)], MUTEX);
        process(root.path(), 20, &[(20, true), (21, true), (22, false)], [2, 0, 122, 1, 0]);
        let proc = root.path().join("proc");
        assert_eq!(at(&proc, 7), None);
        std::fs::write(proc.join("7/task/7/children"), "20 ").unwrap();
        assert_eq!(at(&proc, 7).unwrap().holder.unwrap().tid, 22);
        std::fs::write(proc.join("20/cgroup"), "0::/other\n").unwrap();
        assert_eq!(at(&proc, 7), None);
    }

    #[test]
    fn who_waits_for_a_condition_waits_for_no_mutex() {
        let futex = libc::SYS_futex;
        let of = |arguments: &str| waited_for(&format!("{futex} 0x7f00 {arguments} 0x0 0x0 0x7ff 0x7ff\n"));
        assert_eq!(of("0x80 0x2 0x0"), Some(0x7f00));
        assert_eq!(of("0x0 0x2 0x0"), Some(0x7f00), "of several processes");
        assert_eq!(of("0x189 0x2 0x0"), None, "pthread_cond_wait");
        assert_eq!(of("0x80 0x0 0x0"), None, "a semaphore");
        assert_eq!(of("0x80 0x2 0x7ffe"), None, "with a timeout, as of other libraries");
        for other in ["running\n", "-1 0x7ff 0x7ff\n", "0 0x7f00 0x80 0x2\n", "", "202", "202 7 8 9"] {
            assert_eq!(waited_for(other), None, "{other:?}");
        }
    }
}

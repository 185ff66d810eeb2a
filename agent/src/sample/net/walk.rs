//! The sockets that were there before the agent, network namespace by network namespace, and the threads that are gone. Owns one
//! thread that walks every ten seconds, or as rarely as that is dear; knows no window.
//!
//! A BPF iterator sees the sockets of the namespace of the thread that reads it, so a process of its own (`helper.rs`) moves through the
//! namespaces that processes live in. Where that is refused, only the agent's own is walked.

use super::helper::{Helper, Walked, walk_all};
use crate::attach::iterator::KernelIterator;
use crate::attach::loader::LoadError;
use crate::attach::mapping::Mapping;
use crate::attach::privilege::{self, PrivilegeError};
use crate::clock::{Pace, monotonic_ns};
use crate::sample::repeated::Repeated;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tailwater_ebpf::net::{ListenerLevel, WORKERS, Worker};

/// Time between walks: how long a listener without traffic, in a namespace that the hooks did not see it appear in, stays unknown.
const EVERY: Duration = Duration::from_secs(10);
/// But after a walk at least so many times what it took of a CPU: for each namespace the kernel goes through its table of all connections, and
/// that of a large machine is long. So walks take a hundredth of one CPU.
const RESTS: u64 = 100;
/// Such times between two looks for threads that are gone: so long a pool that was restarted is taken for one twice as large.
const TIMES_PER_SWEEP: u64 = 2;
/// Inode of the first process-id namespace, `PROC_PID_INIT_INO`.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// How the last walk went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalkReport {
    /// Namespaces walked.
    pub namespaces: u32,
    /// Walks so far.
    pub walks: u64,
    /// Why some sockets cannot be walked.
    pub trouble: Option<String>,
    /// CPU time that a process of its own used for it, all walks.
    pub helper_cpu_ns: u64,
}

/// The walking thread; ends with this value.
#[derive(Debug)]
pub(super) struct Walker {
    /// `None`: it could not be started, as the report says.
    _thread: Option<Repeated>,
    report: Arc<Mutex<WalkReport>>,
}

impl Walker {
    /// Walks once, and then again from its own thread; through other namespaces by a process of `program`, if there is one, else
    /// by that thread.
    pub(super) fn start(
        iterator: Result<KernelIterator, LoadError>,
        workers: Workers,
        program: Option<&Path>,
    ) -> Self {
        let report = Arc::new(Mutex::new(WalkReport::default()));
        let iterator = match iterator {
            Ok(iterator) => iterator,
            Err(error) => {
                set(&report, WalkReport { trouble: Some(error.to_string()), ..WalkReport::default() });
                return Self { _thread: None, report };
            }
        };
        let helper = program.map(|program| Helper::start(program, &iterator)).transpose();
        let (mut helper, no_helper) = match helper {
            Ok(helper) => (helper.flatten(), None),
            Err(error) => (None, Some(format!("no process to walk network namespaces: {error}"))),
        };
        let (walked, first_walk) = sync_channel(1);
        let reported = report.clone();
        let (mut pace, mut times) = (Pace::default(), 0_u64);
        let given_up: fn() -> Result<(), PrivilegeError> =
            if program.is_some() { privilege::drop_unneeded } else { privilege::drop_unneeded_of_walker };
        let started = Repeated::start("socket-walk", EVERY, move || {
            times += 1;
            let now_ns = monotonic_ns();
            if pace.is_due(now_ns) {
                let Walked { namespaces, trouble, cpu_ns } =
                    helper.as_mut().map_or_else(|| walk_all(&iterator), Helper::walk);
                pace.took(now_ns, cpu_ns, RESTS);
                let helpers_ns = if helper.is_some() { cpu_ns } else { 0 };
                let mut report = reported.lock().unwrap_or_else(PoisonError::into_inner);
                report.namespaces = namespaces;
                report.walks += 1;
                report.trouble = no_helper.clone().or(trouble);
                report.helper_cpu_ns = report.helper_cpu_ns.saturating_add(helpers_ns);
            }
            if times == 1
                && let Err(error) = given_up()
            {
                tracing::warn!("socket-walk: {error}");
            }
            let _ = walked.try_send(());
            if times.is_multiple_of(TIMES_PER_SWEEP) {
                workers.forget_dead_threads();
            }
        });
        match &started {
            // Listeners are known before the first event is asked for; a thread that died is in the report.
            Ok(_) => drop(first_walk.recv()),
            Err(error) => {
                let trouble = Some(format!("no thread to walk them: {error}"));
                set(&report, WalkReport { trouble, ..WalkReport::default() });
            }
        }
        Self { _thread: started.ok(), report }
    }

    pub(super) fn report(&self) -> WalkReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn set(report: &Mutex<WalkReport>, new: WalkReport) {
    *report.lock().unwrap_or_else(PoisonError::into_inner) = new;
}

/// The kernel's table of threads that read requests, and the levels of the listeners that count them.
#[derive(Debug)]
pub(super) struct Workers {
    pub(super) table: Mapping,
    pub(super) levels: Mapping,
}

impl Workers {
    /// A dead thread holds no request and cannot begin one; its listener has one worker less. Thread ids of the kernel mean nothing in a
    /// namespace of their own: there the table only fills, and says so (`workers_untracked`).
    fn forget_dead_threads(&self) {
        if !kernel_ids_are_ours() {
            return;
        }
        for first in (0..WORKERS).map(|place| place * Worker::WORDS) {
            let words = std::array::from_fn(|i| self.table.word(first + i).load(Ordering::Relaxed));
            let Some(worker) = Worker::decode(words) else { continue };
            let gone = worker.held == 0 && !std::path::Path::new(&format!("/proc/{}", worker.tid)).exists();
            if gone && self.table.replace(first, words[0], 0) {
                self.levels.count_down(ListenerLevel::workers_seen_at(worker.slot));
            }
        }
    }
}

/// Whether thread ids of the kernel are those of this process's `/proc`.
pub(super) fn kernel_ids_are_ours() -> bool {
    std::fs::metadata("/proc/self/ns/pid").map(|m| m.ino()).ok() == Some(FIRST_PID_NAMESPACE)
}

/// The sampling timer starts at the first socket that changes state: here is one. Nothing can connect to it before it is closed.
pub(super) fn provoke_a_state_change() {
    if std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).is_err() {
        // No loopback in this namespace: connecting changes a state as well, whatever comes of it.
        let _ = std::net::TcpStream::connect_timeout(
            &std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 9)),
            Duration::from_millis(1),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_come_as_rarely_as_they_are_dear() {
        const SECOND_NS: u64 = 1_000_000_000;
        let walks_in_an_hour = |cpu_ns: u64| {
            let mut pace = Pace::default();
            let walked = |second: &u64| {
                let now_ns = second * SECOND_NS;
                let due = pace.is_due(now_ns);
                if due {
                    pace.took(now_ns, cpu_ns, RESTS);
                }
                due
            };
            (0..3_600).step_by(10).filter(walked).count()
        };
        assert_eq!([0, SECOND_NS / 10].map(walks_in_an_hour), [360, 360], "every ten seconds");
        // 256 namespaces of a machine whose table has half a million chains.
        assert_eq!(walks_in_an_hour(5 * SECOND_NS / 2), 15);
        assert_eq!(walks_in_an_hour(u64::MAX), 1);
    }
}

//! Which lock inside of a server its threads wait for when none of its requests is answered, and which of them holds it, where the lock says so. Owns when
//! a server is looked at and what came of it until a window takes it; `look` reads its threads.
//!
//! Off by default (`lock_holders`): who holds a lock stands in the memory of the process, of which twenty bytes are read for each look.

mod look;

use crate::sample::beside::{Beside, Found};
use crate::window::{ListenerKey, LockedThreads, Window};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

/// A server is looked at when so many requests are in flight, and none is answered …
const IN_FLIGHT_LEAST: u32 = 3;
/// … in so many windows in a row (100 ms); then again after twice as many, each time.
const SILENT_LEAST: u64 = 2;
/// What is found more windows later than this is of a time of which nobody has windows any more.
const LATE_WINDOWS: u64 = 160;
/// What was found and waits for a window.
const FOUND_MAX: usize = 64;
/// Servers that are looked at after one window: those with most in flight.
const LOOKS_MAX: usize = 8;

/// Servers to look at, and the window that was closed when that was asked.
type Question = (u64, Vec<ListenerKey>);

/// Looks at the threads of servers that stand.
#[derive(Debug)]
pub struct Futexes {
    /// `None`: nobody is looked at.
    proc: Option<PathBuf>,
    /// Windows in a row in which a listener answered nothing.
    silent: HashMap<ListenerKey, u64>,
    looker: Beside<Question, (u64, LockedThreads)>,
}

impl Futexes {
    /// `root`: the file system whose `proc` is read, if anybody is looked at. The thread that reads begins with the first look.
    pub fn new(root: Option<&Path>) -> Self {
        let proc = root.map(|root| root.join("proc"));
        Self { proc, silent: HashMap::new(), looker: Beside::default() }
    }

    /// Call once for each window, after it was narrowed to a scope: asks for looks, and adds what came of those before.
    pub fn step(&mut self, window: &mut Window) {
        let Some(proc) = self.proc.clone() else { return };
        let now = window.index.0;
        let in_time = |(asked, _): &(u64, LockedThreads)| now.saturating_sub(*asked) <= LATE_WINDOWS;
        window.locked_threads.extend(self.looker.take().into_iter().filter(in_time).map(|(asked, found)| {
            let windows_ago = u32::try_from(now.saturating_sub(asked)).unwrap_or(u32::MAX);
            LockedThreads { windows_ago, ..found }
        }));
        let due = self.due(window);
        if !due.is_empty() {
            self.looker.ask((now, due), "lock-holders", "which thread holds a lock", move |asked, found| {
                answer(asked, &proc, &found)
            });
        }
    }

    /// Servers that are to be looked at after this window, one listener of each process.
    fn due(&mut self, window: &Window) -> Vec<ListenerKey> {
        let before = std::mem::take(&mut self.silent);
        let mut due = Vec::new();
        for (key, sample) in window.requests.iter().flatten() {
            if sample.in_flight_last < IN_FLIGHT_LEAST || sample.answered > 0 {
                continue;
            }
            let silent = before.get(key).map_or(1, |windows| windows.saturating_add(1));
            self.silent.insert(*key, silent);
            if silent >= SILENT_LEAST && silent.is_power_of_two() && !window.late && key.pid > 1 {
                due.push((sample.in_flight_last, *key));
            }
        }
        due.sort_by_key(|(in_flight, _)| std::cmp::Reverse(*in_flight));
        let mut processes = HashSet::new();
        let of_its_own = due.into_iter().map(|(_, key)| key).filter(|key| processes.insert(key.pid));
        of_its_own.take(LOOKS_MAX).collect()
    }
}

fn answer(asked: Receiver<Question>, proc: &Path, found: &Found<(u64, LockedThreads)>) {
    let mut warned = false;
    for (window, servers) in asked {
        for listener in servers {
            if !warned && look::is_refused(proc, listener.pid) {
                warned = true;
                tracing::warn!(
                    "lock_holders: what threads of process {} wait for may not be read; give the agent CAP_SYS_PTRACE, \
                     and leave kernel.yama.ptrace_scope below 3",
                    listener.pid
                );
            }
            let seen = look::at(proc, listener.pid).map(|seen| {
                let look::Seen { waiting, threads, holder } = seen;
                (window, LockedThreads { listener, windows_ago: 0, waiting, threads, holder })
            });
            found.keep(seen, FOUND_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{CgroupId, RequestSample, WindowIndex};
    use std::net::Ipv6Addr;

    fn key(port: u16, pid: u32) -> ListenerKey {
        ListenerKey { netns: 1, address: Ipv6Addr::LOCALHOST, port, owner: CgroupId(2), pid }
    }

    fn window(index: u64, requests: &[(ListenerKey, u32, u64)]) -> Window {
        let of = |(key, in_flight_last, answered): &(ListenerKey, u32, u64)| {
            let sample = RequestSample {
                in_flight_last: *in_flight_last,
                answered: *answered,
                ..RequestSample::default()
            };
            (*key, sample)
        };
        Window {
            index: WindowIndex(index),
            requests: Some(requests.iter().map(of).collect()),
            ..Window::default()
        }
    }

    /// Fails where a server is looked at that answers, or one that stands is looked at in each window.
    #[test]
    fn a_server_that_answers_nothing_is_looked_at_after_100_ms_and_ever_less_often() {
        let mut futexes = Futexes::new(Some(Path::new("/")));
        let looked = |futexes: &mut Futexes, requests: &[(ListenerKey, u32, u64)]| -> Vec<usize> {
            let due = |n: &usize| !futexes.due(&window(*n as u64, requests)).is_empty();
            (1..=20).filter(due).collect()
        };
        assert_eq!(looked(&mut futexes, &[(key(80, 7), 9, 0)]), [2, 4, 8, 16]);
        assert_eq!(looked(&mut futexes, &[(key(80, 7), 9, 1)]), [0; 0], "it answers");
        assert_eq!(looked(&mut futexes, &[(key(80, 7), 2, 0)]), [0; 0], "hardly anybody waits");
        assert_eq!(looked(&mut futexes, &[(key(80, 1), 9, 0)]), [0; 0], "who started it listens for it");
        let two = [(key(80, 7), 3, 0), (key(81, 7), 9, 0), (key(82, 8), 4, 0)];
        futexes.due(&window(30, &two));
        assert_eq!(futexes.due(&window(31, &two)), [key(81, 7), key(82, 8)], "each process once");
        assert_eq!(futexes.silent.len(), 3);
        futexes.due(&window(32, &[]));
        assert!(futexes.silent.is_empty(), "nothing is kept of those that are gone");
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "another thread takes its time")]
    fn what_was_found_is_told_with_how_long_ago_that_was_and_nothing_where_nobody_is_to_look() {
        let folder = tempfile::tempdir().unwrap();
        look::tests::process(folder.path(), 7, &[(7, false), (8, true), (9, true)], [2, 0, 107, 1, 0]);
        let mut futexes = Futexes::new(Some(folder.path()));
        let stands = [(key(80, 7), 9, 0)];
        futexes.step(&mut window(1, &stands));
        futexes.step(&mut window(2, &stands));
        let found = (0..5_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let mut window = window(3, &[]);
            futexes.step(&mut window);
            window.locked_threads.pop()
        });
        let found = found.unwrap();
        assert_eq!((found.listener, found.windows_ago, found.waiting), (key(80, 7), 1, 2));
        let mut off = Futexes::new(None);
        (1..9).for_each(|n| off.step(&mut window(n, &stands)));
        assert!(off.silent.is_empty() && off.looker.take().is_empty());
    }
}

//! Who holds what the requests of a database wait for: asked of the database itself, of those that the configuration names, by its own client and over a
//! connection that is open already. Owns when one is asked and what came of it until a window takes it; speaks to no database.
//!
//! A lock is over before anybody has logged in, so a client waits with an open connection. It is no child of the agent, which starts no programs once
//! its own are attached: a process beside it (`asker`), without any capability, has the clients and answers in text that was taken apart there.

pub mod asker;
mod dialect;
mod statement;

use crate::config::Database;
use crate::window::{Blocker, Blocking, ListenerKey, RequestSample, Window};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A database is asked when so many requests are in flight, and none is answered …
const IN_FLIGHT_LEAST: u32 = 3;
/// … in so many windows in a row (100 ms); then again after twice as many, each time.
const SILENT_LEAST: u64 = 2;
/// A question is a request of the database like any other, and its answer may be the one in a window that has none else for so many windows.
const OWN_ANSWER_WINDOWS: u64 = 4;
/// An agent that sees no requests for so many windows (5 s) will see none.
const UNSEEN_WINDOWS: u64 = 100;
/// An answer that comes more windows later than this is of a time of which nobody has windows any more.
const LATE_WINDOWS: u64 = 160;
/// Answers that wait for a window.
const FOUND_MAX: usize = 64;
/// The longest line between the two processes, bytes: three statements with their numbers.
const LINE_MAX: u64 = 16 * 1024;

/// An answer of the process beside the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    /// Which of the databases.
    database: usize,
    /// The window that was closed when it was asked.
    window: u64,
    /// Sessions that wait for a lock.
    waiting: u32,
    /// Who holds them, whoever most wait for first.
    blockers: Vec<Blocker>,
}

/// One database, as its windows show it.
#[derive(Debug)]
struct Watched {
    port: Option<u16>,
    socket: Option<String>,
    /// What its Unix socket is called in windows.
    address: Option<Ipv6Addr>,
    /// Its listener, once it was seen.
    listener: Option<ListenerKey>,
    /// Windows in a row in which it answered nothing.
    silent: u64,
    /// Windows since it was asked.
    asked: u64,
}

impl Watched {
    fn new(port: Option<u16>, socket: Option<&str>) -> Self {
        let socket = socket.map(str::to_owned);
        Self { port, socket, address: None, listener: None, silent: 0, asked: u64::MAX }
    }

    fn is_at(&self, key: &ListenerKey) -> bool {
        match self.port {
            Some(port) => key.port == port,
            None => key.port == 0 && self.address == Some(key.address),
        }
    }

    /// Takes a window; true: it is time to ask.
    fn step(&mut self, window: &Window) -> bool {
        if let Some(socket) = self.socket.as_deref() {
            let bound = window.unix_paths.iter().find(|(_, path)| path.as_ref() == socket);
            self.address = bound.map(|(address, _)| *address).or(self.address);
        }
        self.asked = self.asked.saturating_add(1);
        let own = u64::from(self.asked <= OWN_ANSWER_WINDOWS);
        let stands = |s: &RequestSample| s.in_flight_last >= IN_FLIGHT_LEAST && s.answered <= own;
        // Several may listen on one port, at other addresses or in other namespaces.
        let all = window.requests.iter().flatten().filter(|(key, _)| self.is_at(key));
        let found = all.max_by_key(|(key, s)| (stands(s), self.listener == Some(*key), s.in_flight_last));
        let is_silent = found.is_some_and(|(_, s)| stands(s));
        self.listener = found.map(|(key, _)| *key).or(self.listener);
        self.silent = if is_silent { self.silent.saturating_add(1) } else { 0 };
        let is_due = self.silent >= SILENT_LEAST && self.silent.is_power_of_two() && !window.late;
        if is_due {
            self.asked = 0;
        }
        is_due
    }
}

/// The process beside the agent, and what it told.
#[derive(Debug)]
struct Asker {
    socket: UnixStream,
    /// Until somebody listens to it.
    child: Option<Child>,
    told: Arc<Mutex<Vec<Told>>>,
    /// The agent ends.
    ends: Arc<AtomicBool>,
}

/// Asks databases.
#[derive(Debug, Default)]
pub struct Locks {
    databases: Vec<Watched>,
    asker: Option<Asker>,
    /// Windows without requests from the begin on.
    unseen: u64,
}

impl Locks {
    /// Starts `program`, which is this one, to ask these databases: to be called before the agent starts no programs any more. Where it cannot be started,
    /// that is said, and nobody is asked.
    pub fn of(databases: &[Database], program: &Path) -> Self {
        if databases.is_empty() {
            return Self::default();
        }
        let asker = Asker::start(databases, program)
            .inspect_err(|error| tracing::warn!("databases are not asked who holds locks: {error}"));
        let watched = databases.iter().map(|of| Watched::new(of.port, of.socket.as_deref()));
        Self { databases: watched.collect(), asker: asker.ok(), unseen: 0 }
    }

    /// Call once for each window, after it was narrowed to a scope: asks where it is time, and adds what came of questions before.
    pub fn step(&mut self, window: &mut Window) {
        let Some(asker) = &mut self.asker else { return };
        asker.listen();
        if window.requests.is_some() {
            self.unseen = UNSEEN_WINDOWS;
        }
        self.unseen = self.unseen.saturating_add(1);
        if self.unseen == UNSEEN_WINDOWS {
            tracing::warn!("databases are not asked who holds locks: this agent sees no requests");
        }
        for told in std::mem::take(&mut *asker.told()) {
            let listener = self.databases.get(told.database).and_then(|of| of.listener);
            let ago = window.index.0.saturating_sub(told.window);
            if let Some(listener) = listener.filter(|_| ago <= LATE_WINDOWS) {
                let windows_ago = u32::try_from(ago).unwrap_or(u32::MAX);
                let (waiting, blockers) = (told.waiting, told.blockers);
                window.blockings.push(Blocking { listener, windows_ago, waiting, blockers });
            }
        }
        for (n, database) in self.databases.iter_mut().enumerate() {
            if database.step(window) {
                asker.ask(n, window.index.0);
            }
        }
    }
}

impl Asker {
    fn start(databases: &[Database], program: &Path) -> std::io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program);
        command
            .arg0("tailwater-agent")
            .arg(asker::COMMAND)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null());
        // Ctrl-C in a terminal is for the agent.
        let child = Some(command.process_group(0).spawn()?);
        let configured = serde_json::to_string(databases).map_err(std::io::Error::other)?;
        writeln!(&socket, "{configured}")?;
        // The thread that drains windows waits for nobody who does not read.
        socket.set_write_timeout(Some(Duration::from_millis(1)))?;
        Ok(Self { socket, child, told: Arc::default(), ends: Arc::default() })
    }

    /// Begins to take its answers, on a thread that has no more rights than the one that calls.
    fn listen(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let (told, ends) = (Arc::clone(&self.told), Arc::clone(&self.ends));
        let thread = std::thread::Builder::new().name("database-locks".into());
        let heard = self.socket.try_clone().and_then(|socket| {
            thread.spawn(move || {
                lines(&socket, |line| take(&told, line));
                let _ = socket.shutdown(std::net::Shutdown::Both);
                let ended = child.wait();
                if !ends.load(Ordering::Acquire) {
                    let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                    tracing::warn!("the process that asks databases ended ({how}); restart the agent");
                }
            })
        });
        if let Err(error) = heard {
            tracing::warn!("databases are not asked who holds locks: {error}");
        }
    }

    fn told(&self) -> MutexGuard<'_, Vec<Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, database: usize, window: u64) {
        // Of a process that is gone its end was told; a question that does not fit follows many that were not read.
        let _ = writeln!(&self.socket, "{database} {window}");
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        // It ends when its socket does, and its clients when it does; nobody waits for a database that does not answer.
        self.ends.store(true, Ordering::Release);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// Keeps one answer; what is none is left out.
fn take(found: &Mutex<Vec<Told>>, line: &str) {
    let Ok(mut told) = serde_json::from_str::<Told>(line) else {
        tracing::warn!("the process that asks databases said something that is no answer");
        return;
    };
    told.blockers.truncate(dialect::BLOCKERS_MAX);
    for by in &mut told.blockers {
        let kept =
            by.statement.char_indices().nth(statement::KEPT_MAX + 1).map_or(by.statement.len(), |(at, _)| at);
        by.statement.truncate(kept);
    }
    let mut all = found.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() < FOUND_MAX {
        all.push(told);
    }
}

/// Each line that comes, until the other end is gone or sends one that is too long.
fn lines(from: impl Read, mut each: impl FnMut(&str)) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match (&mut from).take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(_) if line.pop() == Some(b'\n') => each(&String::from_utf8_lossy(&line)),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{CgroupId, WindowIndex};

    fn key(port: u16, address: Ipv6Addr) -> ListenerKey {
        ListenerKey { netns: 1, address, port, owner: CgroupId(2), pid: 9 }
    }

    fn window(index: u64, key: ListenerKey, in_flight_last: u32, answered: u64) -> Window {
        let sample = RequestSample { in_flight_last, answered, ..RequestSample::default() };
        Window { index: WindowIndex(index), requests: Some(vec![(key, sample)]), ..Window::default() }
    }

    /// The windows in which it was asked, of these requests in flight and answers.
    fn asked(mut of: Watched, at: ListenerKey, windows: &[(u32, u64)]) -> Vec<usize> {
        let step = |(n, (in_flight, answered)): (usize, &(u32, u64))| {
            of.step(&window(n as u64, at, *in_flight, *answered)).then_some(n)
        };
        windows.iter().enumerate().filter_map(step).collect()
    }

    #[test]
    fn a_database_that_answers_nothing_is_asked_after_100_ms_and_ever_less_often() {
        let at = key(5432, Ipv6Addr::LOCALHOST);
        let mut windows = vec![(9, 4), (9, 0), (2, 0)];
        windows.extend([(14, 0); 20]);
        assert_eq!(asked(Watched::new(Some(5432), None), at, &windows), [4, 6, 10, 18]);
        assert_eq!(asked(Watched::new(Some(5433), None), at, &windows), [0; 0]);
        assert_eq!(asked(Watched::new(Some(5432), None), at, &[(2, 0); 30]), [0; 0], "too few wait");
        assert_eq!(asked(Watched::new(Some(5432), None), at, &[(20, 1); 30]), [0; 0], "it answers");
        // The answer to the question itself.
        let mut windows = vec![(14, 0), (14, 0), (14, 1), (14, 0), (14, 1)];
        windows.extend([(14, 0); 5]);
        assert_eq!(asked(Watched::new(Some(5432), None), at, &windows), [1, 3, 7]);
    }

    #[test]
    fn one_behind_a_unix_socket_goes_by_its_path() {
        let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);
        let at = key(0, address);
        let mut of = Watched::new(None, Some("/run/mysqld/mysqld.sock"));
        assert!(!of.step(&window(0, at, 9, 0)) && !of.step(&window(1, at, 9, 0)), "not known yet");
        let mut named = window(2, at, 9, 0);
        named.unix_paths = vec![(address, "/run/mysqld/mysqld.sock".into())];
        assert!(!of.step(&named) && of.step(&window(3, at, 9, 0)));
        assert_eq!(of.listener, Some(at));
    }

    #[test]
    fn lines_end_with_one_that_is_too_long_or_has_no_end() {
        let read = |text: &str| {
            let mut all = Vec::new();
            lines(text.as_bytes(), |line| all.push(line.to_owned()));
            all
        };
        assert_eq!(read("a\n\nb\nc"), ["a", "", "b"]);
        let long = format!("a\n{}\nb\n", "x".repeat(20_000));
        assert_eq!(read(&long), ["a"]);
    }

    #[test]
    fn what_is_no_answer_is_left_out_and_more_than_fit_are() {
        let found = Mutex::new(Vec::new());
        let told = Told { database: 0, window: 7, waiting: 14, blockers: Vec::new() };
        let line = serde_json::to_string(&told).unwrap();
        take(&found, "{}");
        (0..FOUND_MAX + 3).for_each(|_| take(&found, &line));
        let found = found.into_inner().unwrap();
        assert_eq!((found.len(), &found[0]), (FOUND_MAX, &told));
    }
}

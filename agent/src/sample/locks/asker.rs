//! The process that asks databases in the agent's place: it has their clients, which the agent may not start, and none of its capabilities. Owns the clients
//! and their connections; knows no window beyond its number.
//!
//! It is this program again, its standard input the agent's socket: a line of JSON with the databases, then one with two numbers for each question, which
//! database and in which window. It answers each with a line of JSON, or not at all where the client does not. It ends when the socket does.

use super::dialect::{BLOCKERS_MAX, Line};
use super::{LINE_MAX, Told};
use crate::attach::privilege::{self, PrivilegeError};
use crate::clock::monotonic_ns;
use crate::config::Database;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Error, ErrorKind, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The command that makes this program the one that asks.
pub const COMMAND: &str = "ask-databases";
/// A connection is used so often at least, so that one that is gone is made anew before it is needed.
const IDLE_FOR: Duration = Duration::from_secs(30);
/// A client that ended is started again no sooner than this.
const AGAIN_AFTER_NS: u64 = 5_000_000_000;
/// A client that says nothing for so long is ended.
const ANSWERS_WITHIN_NS: u64 = 5_000_000_000;
/// A question that waited longer than this is of a time that is over.
const ASKED_WITHIN_NS: u64 = 300_000_000;
/// Lines of an answer, and of what a client says beside it.
const LINES_MAX: usize = 64;

/// It could not begin.
#[derive(Debug, thiserror::Error)]
pub enum AskerError {
    /// It was started by somebody else than an agent.
    #[error("{COMMAND} is for the agent's own use: its standard input is the agent's socket: {0}")]
    Socket(Error),
    /// The first line is no list of databases.
    #[error("{COMMAND} is for the agent's own use: {0}")]
    Databases(#[from] serde_json::Error),
    /// It would have kept more than it needs.
    #[error(transparent)]
    Privilege(#[from] PrivilegeError),
}

/// What all threads share.
#[derive(Debug)]
struct Shared {
    answers: Mutex<UnixStream>,
    /// Clients that run, which are process groups of their own.
    running: Mutex<BTreeSet<u32>>,
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers until the agent's end of the socket is gone.
pub fn serve() -> Result<(), AskerError> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map_err(AskerError::Socket)?;
    let socket = UnixStream::from(socket);
    socket.peer_addr().map_err(AskerError::Socket)?;
    privilege::drop_all()?;
    let answers = Mutex::new(socket.try_clone().map_err(AskerError::Socket)?);
    let shared = Arc::new(Shared { answers, running: Mutex::default() });
    let mut from = BufReader::new(socket);
    let mut first = String::new();
    (&mut from).take(LINE_MAX).read_line(&mut first).map_err(AskerError::Socket)?;
    let databases: Vec<Database> = serde_json::from_str(&first)?;
    let asked: Vec<SyncSender<Question>> = databases
        .into_iter()
        .enumerate()
        .map(|(n, database)| {
            let (ask, asked) = sync_channel(1);
            let asking =
                Asking { database, n, shared: Arc::clone(&shared), said: String::new(), not_before_ns: 0 };
            std::thread::spawn(move || asking.answer(&asked));
            ask
        })
        .collect();
    super::lines(from, |line| {
        let numbers = line.split_once(' ');
        let numbers = numbers.and_then(|(n, window)| Some((n.parse::<usize>().ok()?, window.parse().ok()?)));
        let Some((n, window)) = numbers else { return };
        // Whoever still waits for an answer is not asked again.
        if let Some(ask) = asked.get(n) {
            let _ = ask.try_send(Question { window, asked_ns: monotonic_ns() });
        }
    });
    // Their threads may wait for a database that does not answer.
    for client in shared.running().iter() {
        end_group(*client);
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Question {
    window: u64,
    asked_ns: u64,
}

/// One database.
#[derive(Debug)]
struct Asking {
    database: Database,
    n: usize,
    shared: Arc<Shared>,
    /// What was said of it last.
    said: String,
    /// No client is started before that.
    not_before_ns: u64,
}

impl Asking {
    fn answer(mut self, asked: &Receiver<Question>) {
        let mut client: Option<Client> = None;
        loop {
            if client.is_none() && monotonic_ns() >= self.not_before_ns {
                self.not_before_ns = monotonic_ns().saturating_add(AGAIN_AFTER_NS);
                // Its connection is open from now on.
                client = self.start().and_then(|client| self.ask(client, self.database.kind.idle()));
            }
            let wait = if client.is_some() { IDLE_FOR } else { Duration::from_nanos(AGAIN_AFTER_NS) };
            let question = match asked.recv_timeout(wait) {
                Ok(question) => Some(question),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(open) = client.take() else { continue };
            let is_new = |of: &Question| monotonic_ns().saturating_sub(of.asked_ns) <= ASKED_WITHIN_NS;
            match question {
                Some(question) if is_new(&question) => {
                    let Some((open, told)) = self.asked(open, self.database.kind.question()) else {
                        continue;
                    };
                    client = Some(open);
                    if !self.tell(&Told { database: self.n, window: question.window, ..told }) {
                        return;
                    }
                }
                Some(_) => client = Some(open),
                None => client = self.ask(open, self.database.kind.idle()),
            }
        }
    }

    /// False: nobody is there to be told.
    fn tell(&self, told: &Told) -> bool {
        let Ok(line) = serde_json::to_string(told) else { return true };
        let mut answers = self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(answers, "{line}").is_ok()
    }

    /// Says once what there is to say.
    fn complain(&mut self, text: &str) {
        if self.said != text {
            eprintln!("tailwater-agent: the database at {}: {text}", self.database.place());
            text.clone_into(&mut self.said);
        }
    }

    fn start(&mut self) -> Option<Client> {
        let program = self.database.client.first().cloned().unwrap_or_default();
        let started = Client::start(&self.database, &self.shared);
        started.inspect_err(|error| self.complain(&format!("{program}: {error}"))).ok()
    }

    fn ask(&mut self, client: Client, statement: &str) -> Option<Client> {
        self.asked(client, statement).map(|(client, _)| client)
    }

    /// Asks, and gives the client back with the answer; `None`: it has ended, or is ended.
    fn asked(&mut self, mut client: Client, statement: &str) -> Option<(Client, Told)> {
        let mut told = Told { database: 0, window: 0, waiting: 0, blockers: Vec::new() };
        let written = writeln!(client.statements, "{statement}").and_then(|()| client.statements.flush());
        let by_ns = monotonic_ns().saturating_add(ANSWERS_WITHIN_NS);
        let mut complaint = String::new();
        for _ in 0..LINES_MAX {
            let Some(line) = client.line(by_ns) else { break };
            match self.database.kind.read(&line) {
                Line::Waiting(waiting) => told.waiting = waiting,
                Line::Blocker(by) if told.blockers.len() < BLOCKERS_MAX => told.blockers.push(by),
                Line::Blocker(_) => {}
                Line::End if written.is_ok() => {
                    self.said.clear();
                    return Some((client, told));
                }
                Line::End => break,
                Line::Said if complaint.is_empty() => complaint = line,
                Line::Said => {}
            }
        }
        let ended = "its client ended, or said nothing for five seconds".to_owned();
        self.complain(if complaint.is_empty() { &ended } else { &complaint });
        None
    }
}

/// A database's own client, with a connection.
#[derive(Debug)]
struct Client {
    child: Child,
    statements: ChildStdin,
    rows: PipeReader,
    /// What came and was not looked at.
    came: Vec<u8>,
    shared: Arc<Shared>,
}

impl Client {
    fn start(database: &Database, shared: &Arc<Shared>) -> Result<Self, Error> {
        let [program, own @ ..] = database.client.as_slice() else {
            return Err(Error::new(ErrorKind::InvalidInput, "no client"));
        };
        // What it complains of comes between its rows, where it is read.
        let (rows, output) = std::io::pipe()?;
        let mut command = Command::new(program);
        command.args(own).args(database.kind.arguments());
        // Whoever started the agent may have had another home.
        command.env_remove("HOME").env("PGCLIENTENCODING", "UTF8").current_dir("/");
        command
            .stdin(Stdio::piped())
            .stdout(OwnedFd::from(output.try_clone()?))
            .stderr(OwnedFd::from(output));
        let mut child = command.process_group(0).spawn()?;
        let Some(statements) = child.stdin.take() else { return Err(Error::other("no input")) };
        shared.running().insert(child.id());
        Ok(Self { child, statements, rows, came: Vec::new(), shared: Arc::clone(shared) })
    }

    /// The next line; `None`: none came by then, or it has ended, or it is longer than any that is read.
    fn line(&mut self, by_ns: u64) -> Option<String> {
        loop {
            if let Some(end) = self.came.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.came.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.came.len() as u64 > LINE_MAX {
                return None;
            }
            let left = Duration::from_nanos(by_ns.saturating_sub(monotonic_ns()));
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.rows, PollFlags::IN)], Some(&left)) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return None,
            }
            let mut bytes = [0; 4096];
            let read = self.rows.read(&mut bytes).ok().filter(|read| *read > 0)?;
            self.came.extend_from_slice(&bytes[..read]);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.running().remove(&self.child.id());
        end_group(self.child.id());
        let _ = self.child.wait();
    }
}

/// Ends a client that nobody has waited for, and what it started.
fn end_group(client: u32) {
    if let Some(group) = i32::try_from(client).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

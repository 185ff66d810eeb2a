//! What may take long to read: the container engines' files and the servers' configurations, on a disk that may stall, and the addresses of a
//! network namespace, which stand in a table of all its routes. Owns the thread that reads them, beside the one that drains windows, and what it has found; that
//! one asks and takes what is known so far.

use crate::clock::{Pace, monotonic_ns, timed};
use crate::name::addresses;
use crate::name::naming::container_name;
use crate::name::pool::{self, Listen, Pool};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Addresses are read again no sooner than so many times what it took after: they stand among all routes of their namespace, of which a router
/// has a million. Where there are a hundred, they are read as often as somebody asks.
const ADDRESSES_REST: u64 = 500;

/// Questions that wait for their answer; whoever asks another asks again later.
const WAITING_MAX: usize = 256;
/// Containers whose names, and servers whose sizes are remembered; with more all are asked for anew.
const REMEMBERED_MAX: usize = tailwater_proto::columnar::ENTITIES_MAX;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Question {
    /// The name that an engine gave to this container id.
    Container(String),
    /// The addresses of this process's network namespace.
    Addresses(u32),
    /// What this process is set up for where it listens.
    Pool(u32, Listen),
}

#[derive(Debug, Default)]
struct Known {
    containers: HashMap<String, String>,
    /// `None`: they were never read.
    addresses: Option<Vec<IpAddr>>,
    /// On CLOCK_MONOTONIC.
    addresses_pace: Pace,
    pools: HashMap<(u32, Listen), Option<Pool>>,
    waiting: HashSet<Question>,
}

impl Known {
    fn has_read(&mut self, addresses: Vec<IpAddr>, took_ns: u64) {
        self.addresses = Some(addresses);
        self.addresses_pace.took(monotonic_ns(), took_ns, ADDRESSES_REST);
    }
}

/// The thread, for whoever asks it. It begins with the first question, so that it has no more privileges than who asks, and ends when this
/// is dropped and what it reads just then is read.
#[derive(Debug)]
pub struct Aside {
    root: PathBuf,
    /// `None` inside: the system has no room for a thread, and nothing is answered.
    questions: OnceLock<Option<SyncSender<Question>>>,
    known: Arc<Mutex<Known>>,
}

impl Aside {
    /// `root` is the root of the file system, for the engines' files.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), questions: OnceLock::new(), known: Arc::default() }
    }

    fn start(&self) -> Option<SyncSender<Question>> {
        let (questions, asked) = sync_channel(WAITING_MAX);
        let (root, known) = (self.root.clone(), Arc::clone(&self.known));
        let thread = std::thread::Builder::new().name("names-aside".into());
        match thread.spawn(move || answer(&asked, &root, &known)) {
            Ok(_) => Some(questions),
            Err(error) => {
                tracing::warn!(
                    "containers keep their ids for names, and neither new addresses of this host nor sizes of pools are seen: no thread: {error}"
                );
                None
            }
        }
    }

    /// The name of a container, if it is known; else it is asked for, and may be known a little later.
    pub fn container(&self, id: &str) -> Option<String> {
        let mut known = locked(&self.known);
        let name = known.containers.get(id).cloned();
        if name.is_none() {
            self.ask(&mut known, Question::Container(id.to_owned()));
        }
        name
    }

    /// The addresses as they were read last, and they are read again if that is not too dear. The first time they are waited for: that is when
    /// the agent starts.
    pub fn addresses(&self, process: u32) -> Vec<IpAddr> {
        let mut known = locked(&self.known);
        if let Some(addresses) = known.addresses.clone() {
            if known.addresses_pace.is_due(monotonic_ns()) {
                self.ask(&mut known, Question::Addresses(process));
            }
            return addresses;
        }
        let (addresses, took_ns) = timed(|| addresses::of(process));
        known.has_read(addresses.clone(), took_ns);
        addresses
    }

    /// What the server of a process is set up for where it listens, as it was read last. `again`: it is read anew, and known a little later; so it
    /// is where it was never asked for.
    pub fn pool(&self, process: u32, at: &Listen, again: bool) -> Option<Pool> {
        let mut known = locked(&self.known);
        let read = known.pools.get(&(process, at.clone())).cloned();
        if again || read.is_none() {
            self.ask(&mut known, Question::Pool(process, at.clone()));
        }
        read.flatten()
    }

    fn ask(&self, known: &mut Known, question: Question) {
        if known.waiting.contains(&question) {
            return;
        }
        let questions = self.questions.get_or_init(|| self.start());
        // The thread answers when this lock is free again. Where the queue is full it is asked again later.
        if questions.as_ref().is_some_and(|q| q.try_send(question.clone()).is_ok()) {
            known.waiting.insert(question);
        }
    }

    /// Waits until everything that was asked is answered.
    #[cfg(test)]
    pub fn settle(&self) {
        while !locked(&self.known).waiting.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

fn answer(asked: &Receiver<Question>, root: &Path, known: &Mutex<Known>) {
    for question in asked {
        match &question {
            Question::Container(id) => {
                let name = container_name(id, root);
                let mut known = locked(known);
                if known.containers.len() >= REMEMBERED_MAX {
                    known.containers.clear();
                }
                known.containers.extend(name.map(|name| (id.clone(), name)));
                known.waiting.remove(&question);
            }
            Question::Pool(process, at) => {
                let pool = pool::of(root, *process, at);
                let mut known = locked(known);
                if known.pools.len() >= REMEMBERED_MAX {
                    known.pools.clear();
                }
                known.pools.insert((*process, at.clone()), pool);
                known.waiting.remove(&question);
            }
            Question::Addresses(process) => {
                let (addresses, took_ns) = timed(|| addresses::of(*process));
                let mut known = locked(known);
                known.has_read(addresses, took_ns);
                known.waiting.remove(&question);
            }
        }
    }
}

fn locked(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_again_as_rarely_as_that_is_dear() {
        const SECOND_NS: u64 = 1_000_000_000;
        let aside = Aside::new(Path::new("/"));
        let ours = || {
            let told = aside.addresses(std::process::id());
            aside.settle();
            told
        };
        let read = ours();
        // As if others had been read, in a second of a CPU.
        let old = vec![IpAddr::from([192, 0, 2, 1])];
        locked(&aside.known).has_read(old.clone(), SECOND_NS);
        assert_eq!([ours(), ours()], [old.clone(), old.clone()]);
        let due_in = |seconds| {
            let pace = &locked(&aside.known).addresses_pace;
            pace.is_due(monotonic_ns() + seconds * SECOND_NS)
        };
        assert_eq!([due_in(490), due_in(500)], [false, true]);
        // And in no time: they are read anew, and told to whoever asks next.
        locked(&aside.known).has_read(old.clone(), 0);
        assert_eq!((ours(), locked(&aside.known).addresses.clone()), (old, Some(read)));
    }
}

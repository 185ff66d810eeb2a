//! Unix sockets among the listeners: what they are bound to, and the walk over the connections that they accepted, which ends those that
//! no hook saw closing. Knows no record.

use crate::attach::iterator::KernelIterator;
use crate::attach::loader::{LoadError, LoadedObject};
use crate::attach::mapping::Mapping;
use crate::attach::privilege;
use crate::sample::repeated::Repeated;
use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tailwater_ebpf::net::{ListenerName, UnixPath};
use tailwater_proto::is_unix;

/// So long what ended unseen stays in flight: a worker that was killed, a server that closed without an answer.
const WALK_EVERY: Duration = Duration::from_secs(1);

/// What slots of Unix listeners are bound to.
#[derive(Debug)]
pub(super) struct Paths {
    words: Mapping,
    /// By slot, with the generation of the name that it was read for.
    read: HashMap<u32, (u64, Arc<str>)>,
}

impl Paths {
    pub(super) fn open(object: &LoadedObject, entities: u32) -> Result<Self, LoadError> {
        let words = object.mapping("listener_paths", entities as usize * UnixPath::WORDS * 8)?;
        Ok(Self { words, read: HashMap::new() })
    }

    /// The path of a slot with its address; `None`: no Unix socket.
    pub(super) fn of(&mut self, slot: u32, name: &ListenerName) -> Option<(Ipv6Addr, Arc<str>)> {
        let address = Ipv6Addr::from(name.at.address);
        if !is_unix(address) {
            return None;
        }
        let known = self.read.get(&slot).filter(|(generation, _)| *generation == name.generation);
        let path = known.map(|(_, path)| Arc::clone(path)).unwrap_or_else(|| {
            let first = slot as usize * UnixPath::WORDS;
            let words = std::array::from_fn(|i| self.words.word(first + i).load(Ordering::Relaxed));
            let path: Arc<str> = UnixPath::decode(words).text().into();
            self.read.insert(slot, (name.generation, Arc::clone(&path)));
            path
        });
        Some((address, path))
    }
}

/// Walks the connections until the value is dropped. Once at the beginning, so that a walk that this kernel refuses is an error here.
pub(super) fn start_walk(connections: KernelIterator) -> std::io::Result<Repeated> {
    connections.run()?;
    let (mut begun, mut refused) = (false, false);
    Repeated::start("unix-walk", WALK_EVERY, move || {
        if !begun && let Err(error) = privilege::drop_unneeded() {
            tracing::warn!("unix-walk: {error}");
        }
        begun = true;
        let walked = connections.run();
        if let Err(error) = &walked
            && !refused
        {
            tracing::warn!(
                "connections of Unix sockets cannot be walked: {error}; those that end without an answer stay in flight meanwhile"
            );
        }
        refused = walked.is_err();
    })
}

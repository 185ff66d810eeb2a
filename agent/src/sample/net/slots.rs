//! Who a slot is, and when it may be somebody else: names as the kernel wrote them, and the return of slots whose listener or
//! edge is long gone. Owns the free queue; knows no record.

use crate::attach::loader::{LoadError, LoadedObject};
use crate::attach::mapping::Mapping;
use crate::window::WindowIndex;
use aya::maps::{HashMap, MapData, Queue};
use std::sync::atomic::{Ordering, fence};
use tailwater_ebpf::net::{EdgeAddress, EdgeName, ListenerAddress, ListenerName, SLOT_OTHER};
use tailwater_ebpf::record::WINDOWS;

/// Reads of one name before it is left for the next window; each fails only if the kernel wrote it meanwhile.
const TRIES: usize = 4;

/// Windows between two looks at whether a slot may leave: most have nothing to tell and are not even named.
const LEAVES_EVERY: u64 = 16;

/// Whether it is this slot's turn to be looked at.
pub(super) fn may_leave(slot: u32, window: WindowIndex) -> bool {
    (u64::from(slot) + window.0).is_multiple_of(LEAVES_EVERY)
}

/// The name of a slot, and the key that the kernel finds it by.
pub(super) trait Name: Copy + Default {
    type Address: aya::Pod;
    const WORDS: usize;
    fn read(words: &dyn Fn(usize) -> u64) -> Self;
    fn generation(&self) -> u64;
    fn address(&self) -> Self::Address;
}

/// Mirrors `ListenerAddress` for aya, which asks for its own marker.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenerPod(ListenerAddress);
// SAFETY: #[repr(C)] integers without padding.
unsafe impl aya::Pod for ListenerPod {}

/// Mirrors `EdgeAddress`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct EdgePod(EdgeAddress);
// SAFETY: #[repr(C)] integers without padding.
unsafe impl aya::Pod for EdgePod {}

const _: () = assert!(size_of::<ListenerAddress>() == 24 && size_of::<EdgeAddress>() == 32);

impl Name for ListenerName {
    type Address = ListenerPod;
    const WORDS: usize = ListenerName::WORDS;
    fn read(words: &dyn Fn(usize) -> u64) -> Self {
        Self::decode(std::array::from_fn(words))
    }
    fn generation(&self) -> u64 {
        self.generation
    }
    fn address(&self) -> ListenerPod {
        ListenerPod(self.at)
    }
}

impl Name for EdgeName {
    type Address = EdgePod;
    const WORDS: usize = EdgeName::WORDS;
    fn read(words: &dyn Fn(usize) -> u64) -> Self {
        Self::decode(std::array::from_fn(words))
    }
    fn generation(&self) -> u64 {
        self.generation
    }
    fn address(&self) -> EdgePod {
        EdgePod(self.at)
    }
}

#[derive(Debug, Clone, Copy)]
enum Use {
    Free,
    Taken,
    /// The kernel finds it no more; free once nothing wrote to it for 64 windows after this one.
    Leaving(u64),
}

/// The slots of listeners or of edges.
pub(super) struct Slots<N: Name> {
    names: Mapping,
    cached: Vec<N>,
    state: Vec<Use>,
    by_address: HashMap<MapData, N::Address, u32>,
    free: Queue<MapData, u32>,
}

impl<N: Name> Slots<N> {
    /// Takes the maps and fills the queue of free slots. Call before attaching.
    pub(super) fn open(
        object: &mut LoadedObject,
        [names, by_address, free]: [&str; 3],
        entities: u32,
    ) -> Result<Self, LoadError> {
        let names = object.mapping(names, entities as usize * N::WORDS * 8)?;
        let by_address =
            HashMap::try_from(object.take_map(by_address)?).map_err(|e| object.map_error(by_address, e))?;
        let mut queue: Queue<MapData, u32> =
            Queue::try_from(object.take_map(free)?).map_err(|e| object.map_error(free, e))?;
        for slot in 1..entities {
            queue.push(slot, 0).map_err(|e| object.map_error(free, e))?;
        }
        Ok(Self {
            names,
            cached: vec![N::default(); entities as usize],
            state: vec![Use::Free; entities as usize],
            by_address,
            free: queue,
        })
    }

    /// Who `slot` is; `None`: nobody yet. The slot of the rest has the default name.
    pub(super) fn name(&mut self, slot: u32) -> Option<N> {
        if slot == SLOT_OTHER {
            return Some(N::default());
        }
        let known = self.cached.get_mut(slot as usize)?;
        let first = slot as usize * N::WORDS;
        for _ in 0..TRIES {
            let generation = self.names.word(first).load(Ordering::Acquire);
            if generation == known.generation() {
                break;
            }
            if generation % 2 == 1 {
                continue;
            }
            let read = N::read(&|i| self.names.word(first + i).load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if self.names.word(first).load(Ordering::Relaxed) == generation {
                *known = read;
                if let Use::Free = self.state[slot as usize] {
                    self.state[slot as usize] = Use::Taken;
                }
            }
        }
        (known.generation() != 0).then_some(*known)
    }

    /// The same, of a slot that nobody else may get.
    pub(super) fn name_in_use(&mut self, slot: u32) -> Option<N> {
        let name = self.name(slot)?;
        matches!(self.state.get(slot as usize), Some(Use::Taken)).then_some(name)
    }

    /// `idle_since`: newest window in which the slot was used, if nothing hangs on it now.
    pub(super) fn release(&mut self, slot: u32, window: u64, idle_since: Option<u64>, after: u64) {
        let Some(state) = self.state.get_mut(slot as usize) else { return };
        let Some(newest) = idle_since else { return };
        match *state {
            // An error of either map operation leaves the slot in use: it is tried again later.
            Use::Taken
                if newest + after < window
                    && self.by_address.remove(&self.cached[slot as usize].address()).is_ok() =>
            {
                *state = Use::Leaving(window);
            }
            Use::Leaving(since)
                if since.max(newest) + WINDOWS < window && self.free.push(slot, 0).is_ok() =>
            {
                *state = Use::Free;
            }
            _ => {}
        }
    }
}

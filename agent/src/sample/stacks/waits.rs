//! Where the threads of a server are that wait: their registers by an iterator over the kernel's threads, as `/proc` has but two of them, and the top of
//! their stacks by `/proc/PID/mem`. Owns both; knows no function's name.

use super::samples::{self, Place};
use crate::attach::iterator::KernelIterator;
use crate::sample::tasks;
use aya::maps::{HashMap, MapData};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tailwater_ebpf::stacks::WaitingThread;

/// Threads of a server that are looked at.
const THREADS_MAX: usize = 256;
/// Of the stack of each, bytes: calls that wait are deeper than those that compute.
const STACK_BYTES: usize = 8192;
/// A thread, as the iterator writes it.
const BYTES: usize = size_of::<WaitingThread>();

/// A thread that is off the CPU, of a process.
pub(super) struct Waiting {
    pub(super) process: u32,
    pub(super) place: Place,
}

/// The iterator, and whom it walks.
#[derive(Debug)]
pub(super) struct Waits {
    iterator: KernelIterator,
    looked_at: HashMap<MapData, u32, u32>,
}

impl Waits {
    pub(super) fn new(iterator: KernelIterator, looked_at: HashMap<MapData, u32, u32>) -> Self {
        Self { iterator, looked_at }
    }

    /// Of the process that listens and its children in the same cgroup.
    pub(super) fn of(&mut self, proc: &Path, pid: u32) -> Vec<Waiting> {
        let processes = tasks::processes(proc, pid);
        let mut told = Vec::new();
        let walked = self.walk(&processes, &mut told);
        for process in &processes {
            // It is not there where it was not put.
            let _ = self.looked_at.remove(process);
        }
        if let Err(error) = walked {
            tracing::debug!("stacks: threads that wait: {error}");
            return Vec::new();
        }
        told.chunks_exact(BYTES).filter_map(|thread| waiting(proc, thread)).collect()
    }

    fn walk(&mut self, processes: &[u32], into: &mut Vec<u8>) -> std::io::Result<()> {
        for process in processes {
            self.looked_at.insert(process, 0, 0).map_err(std::io::Error::other)?;
        }
        self.iterator.read(into, THREADS_MAX * BYTES).map(drop)
    }
}

/// What the iterator wrote of a thread, with its stack.
fn waiting(proc: &Path, thread: &[u8]) -> Option<Waiting> {
    let (ids, registers) = thread.split_at_checked(8)?;
    let process = u32::from_ne_bytes(ids.get(..4)?.try_into().ok()?);
    let registers: Vec<u64> = words(registers).collect();
    let place = samples::place_of(|word| registers.get(word).copied().unwrap_or(0))?;
    let mut bytes = vec![0; STACK_BYTES];
    let memory = File::open(proc.join(format!("{process}/mem"))).ok()?;
    let read = memory.read_at(&mut bytes, place.sp).unwrap_or(0);
    let stack = words(bytes.get(..read)?).collect();
    Some(Waiting { process, place: Place { stack, ..place } })
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).filter_map(|word| word.try_into().ok()).map(u64::from_ne_bytes)
}

//! What an object's programs cost, by `price.h`: their runs are timed while it is asked for. Knows no budget, no schedule and no clock.

use crate::attach::mapping::Mapping;
use aya::maps::{Array, MapData, MapError};
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use tailwater_ebpf::record;

/// The section of `price_asked`, which is a map of its own.
pub(super) const ASKED: &str = ".data.price";
/// The sums, one for each possible CPU.
pub(super) const SUMS: &str = "prices";

pub(super) const BYTES: usize = size_of::<record::Price>();
const WORDS: usize = BYTES / 8;
const NS_WORD: usize = offset_of!(record::Price, ns) / 8;
const RUNS_WORD: usize = offset_of!(record::Price, runs) / 8;

/// One object's.
pub struct Price {
    asked: Array<MapData, u32>,
    sums: Mapping,
    cpus: usize,
    /// Of the time before.
    turn: u32,
}

impl std::fmt::Debug for Price {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Price").field("sum", &self.sum()).finish_non_exhaustive()
    }
}

impl Price {
    pub(super) fn new(asked: Array<MapData, u32>, sums: Mapping, cpus: usize) -> Self {
        Self { asked, sums, cpus, turn: 0 }
    }

    /// Runs that begin from now on are timed.
    pub fn ask(&mut self) -> Result<(), MapError> {
        self.turn = self.turn.checked_add(1).unwrap_or(1);
        self.set(self.turn)
    }

    /// They are no longer.
    pub fn rest(&mut self) -> Result<(), MapError> {
        self.set(0)
    }

    fn set(&mut self, turn: u32) -> Result<(), MapError> {
        self.asked.set(0, turn, 0)
    }

    /// CPU time of the runs that were timed, and how many these are, since the object was loaded.
    pub fn sum(&self) -> (u64, u64) {
        let of = |word: usize| {
            let cpus = (0..self.cpus).map(|cpu| self.sums.word(cpu * WORDS + word).load(Ordering::Relaxed));
            cpus.fold(0, u64::wrapping_add)
        };
        (of(NS_WORD), of(RUNS_WORD))
    }
}

//! Blocks of traffic, each with its time and answers per bin, and the curve that they make together. Owns what a
//! block may hold, how many are kept and how they merge; knows no law.

use super::bins::{BINS, middle_of};
use super::{Level, Point};
use crate::evidence::{Refusal, not_negative};
use serde::Serialize;

/// Blocks that a curve keeps: enough for a bootstrap's interval, and what its memory is bounded by.
pub const BLOCKS_MAX: usize = 200;
/// Least length of a block, s. States follow each other: what is drawn again must be longer than a burst lasts.
pub const BLOCK_MIN_S: f64 = 1.0;

/// Time and answers in one bin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// Which (`bins::bin_of`).
    pub bin: u8,
    /// Time with that many in flight, s.
    pub seconds: f64,
    /// Answers meanwhile; no integer, because what is old may count less.
    pub completions: f64,
}

/// A stretch of clean traffic: no throttling, steal, neighbour, I/O, stall or bottleneck below in it. Whoever makes
/// it leaves those out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Block {
    /// By bin, rising.
    cells: Vec<Cell>,
}

impl Block {
    /// A block of these cells, in any order; those of the same bin are added.
    ///
    /// # Errors
    /// [`Refusal::Input`] if a bin is none, a time is negative or not finite, or there are answers in no time.
    pub fn new(cells: impl IntoIterator<Item = Cell>) -> Result<Self, Refusal> {
        let mut block = Self { cells: Vec::new() };
        for cell in cells {
            if usize::from(cell.bin) >= BINS {
                return Err(Refusal::Input { what: "a bin", value: f64::from(cell.bin) });
            }
            let seconds = not_negative("time in a state, s,", cell.seconds)?;
            let completions = not_negative("the number of answers", cell.completions)?;
            if seconds == 0.0 && completions > 0.0 {
                return Err(Refusal::Input { what: "the number of answers in no time", value: completions });
            }
            block.add(cell);
        }
        Ok(block)
    }

    /// By bin, rising.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// How long it is, idle time included, s.
    pub fn seconds(&self) -> f64 {
        self.cells.iter().map(|cell| cell.seconds).sum()
    }

    fn add(&mut self, cell: Cell) {
        match self.cells.binary_search_by_key(&cell.bin, |there| there.bin) {
            Ok(at) => {
                self.cells[at].seconds += cell.seconds;
                self.cells[at].completions += cell.completions;
            }
            Err(at) => self.cells.insert(at, cell),
        }
    }

    fn merge(&mut self, other: &Self) {
        other.cells.iter().for_each(|cell| self.add(*cell));
    }
}

/// What one server was seen to do. When there is no room for another block, neighbours merge and blocks are twice as
/// long from then on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    blocks: Vec<Block>,
    block_s: f64,
}

impl Default for Curve {
    fn default() -> Self {
        Self { blocks: Vec::new(), block_s: BLOCK_MIN_S }
    }
}

impl Curve {
    /// Adds what was seen next. Stretches that are shorter than a block make one together.
    pub fn push(&mut self, next: &Block) {
        if let Some(open) = self.blocks.last_mut().filter(|last| last.seconds() < self.block_s) {
            open.merge(next);
            return;
        }
        if self.blocks.len() >= BLOCKS_MAX {
            self.halve();
        }
        self.blocks.push(next.clone());
    }

    /// In the order of time.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// All blocks together: one level for each bin with requests in flight and time in it, rising; without the last
    /// bin, which is open.
    pub fn levels(&self) -> Vec<Level> {
        levels_of(&self.blocks)
    }

    /// Levels with an answer at least, as pairs of a curve.
    pub fn points(&self) -> Vec<Point> {
        self.levels().iter().filter(|level| level.completions > 0.0).map(Point::from).collect()
    }

    fn halve(&mut self) {
        let pairs = self.blocks.chunks(2).map(|pair| {
            let mut merged = pair[0].clone();
            pair[1..].iter().for_each(|other| merged.merge(other));
            merged
        });
        self.blocks = pairs.collect();
        self.block_s *= 2.0;
    }
}

/// These blocks together, as [`Curve::levels`].
pub(crate) fn levels_of<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Vec<Level> {
    let mut sums = [(0.0, 0.0); BINS];
    for cell in blocks.into_iter().flat_map(Block::cells) {
        if let Some((seconds, completions)) = sums.get_mut(usize::from(cell.bin)) {
            *seconds += cell.seconds;
            *completions += cell.completions;
        }
    }
    let level = |(bin, (seconds, completions)): (usize, &(f64, f64))| Level {
        in_flight: middle_of(bin),
        seconds: *seconds,
        completions: *completions,
    };
    // No request in flight is no load, and the last bin has no upper end.
    let levels = sums.iter().enumerate().take(BINS - 1).skip(1);
    levels.filter(|(_, (seconds, _))| *seconds > 0.0).map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cell(bin: u8, seconds: f64, completions: f64) -> Cell {
        Cell { bin, seconds, completions }
    }

    #[test]
    fn cells_of_a_bin_add_up_and_idle_time_is_no_level() {
        let block = Block::new([cell(3, 0.5, 10.0), cell(0, 1.0, 0.0), cell(3, 0.5, 20.0)]).unwrap();
        assert_eq!(block.cells(), [cell(0, 1.0, 0.0), cell(3, 1.0, 30.0)]);
        let mut curve = Curve::default();
        curve.push(&block);
        let levels = curve.levels();
        assert_eq!(levels, [Level { in_flight: 3.0, seconds: 1.0, completions: 30.0 }]);
        assert!(
            (levels[0].throughput() - 30.0).abs() < 1e-12
                && (levels[0].error() - 30_f64.sqrt()).abs() < 1e-12
        );
    }

    #[test]
    fn what_no_server_can_have_done_is_refused() {
        for wrong in [
            cell(80, 1.0, 1.0),
            cell(1, -1.0, 1.0),
            cell(1, f64::NAN, 1.0),
            cell(1, 0.0, 1.0),
            cell(1, 1.0, -1.0),
        ] {
            assert!(matches!(Block::new([wrong]), Err(Refusal::Input { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn short_stretches_make_a_block_together() {
        let mut curve = Curve::default();
        (0..10).for_each(|_| curve.push(&Block::new([cell(1, 0.25, 2.0)]).unwrap()));
        assert_eq!(curve.blocks().iter().map(Block::seconds).collect::<Vec<_>>(), [1.0, 1.0, 0.5]);
    }

    proptest! {
        #[test]
        fn blocks_are_bounded_and_lose_nothing(pushes in 0_u16..3000) {
            let mut curve = Curve::default();
            for i in 0..pushes {
                curve.push(&Block::new([cell((i % 70) as u8 + 1, 1.0, 1.0)]).unwrap());
                prop_assert!(curve.blocks().len() <= BLOCKS_MAX);
            }
            let seconds: f64 = curve.levels().iter().map(|level| level.seconds).sum();
            prop_assert_eq!(seconds, f64::from(pushes));
            let lengths: Vec<f64> = curve.blocks().iter().map(Block::seconds).collect();
            let (open, whole) = lengths.split_last().map_or((0.0, &[][..]), |(open, whole)| (*open, whole));
            prop_assert!(whole.iter().all(|length| *length == whole[0] && *length >= open), "{:?}", lengths);
        }
    }
}

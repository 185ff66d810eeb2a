//! A stretch of traffic with its time and answers per bin. Owns what it may hold; knows no curve.

use super::bins::BINS;
use crate::evidence::{Refusal, not_negative};
use serde::Serialize;

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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(bin: u8, seconds: f64, completions: f64) -> Cell {
        Cell { bin, seconds, completions }
    }

    #[test]
    fn cells_of_a_bin_add_up_and_idle_time_is_no_level() {
        let block = Block::new([cell(3, 0.5, 10.0), cell(0, 1.0, 0.0), cell(3, 0.5, 20.0)]).unwrap();
        assert_eq!(block.cells(), [cell(0, 1.0, 0.0), cell(3, 1.0, 30.0)]);
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
}

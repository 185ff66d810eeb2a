//! The curve of one server in less than 20 kB. Owns what is kept of blocks, how they merge, age and are read back; knows no law.
//!
//! Time and answers per bin are kept once, exactly, for even and for odd stretches apart (the law of the one is checked on the other). Of
//! each block only answers and time in [`GROUPS`] groups of bins are kept, for the bootstrap. A block's part in a bin is then taken to be
//! its part in the bin's group, so that all blocks together are the exact curve and the fit itself loses nothing. What a group blurs is
//! where in it a block was, and of that the interval sees only what throughput differs by within a group (of ∫N dt, which differs with
//! N, an interval came out 34 % too wide; `tests/condensed.rs`). The other way would have been each block's sums of the normal equations:
//! eight numbers, but their weights, which are those of a law that is not known yet, would have been frozen in.

use super::bins::{BINS, Bins, middle_of};
use super::block::Block;
use super::dispersion::dispersion;
use super::{Level, Point};
use crate::evidence::{Refusal, not_negative, positive};
use serde::{Deserialize, Serialize};

/// Blocks that a curve keeps: enough for a bootstrap's interval, and what its memory is bounded by.
pub const BLOCKS_MAX: usize = 60;
/// Least length of a block, s. States follow each other: what is drawn again must be longer than a burst lasts.
pub const BLOCK_MIN_S: f64 = 1.0;
/// Groups of bins that a block keeps apart.
pub const GROUPS: usize = 15;
/// The first bin of each: 1, 2, 3, 5, 8, 12, and from 16 in flight on two to each doubling, from 128 on fewer.
const FIRST_BINS: [usize; GROUPS] = [1, 2, 3, 5, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 64];
/// Digits that are stored of a sum: far more than chance leaves of it.
const STORED_DIGITS: i32 = 7;
/// Digits that are stored of a block's sum, which says a hundredth part of a curve: half a thousandth is far below its chance.
const STORED_BLOCK_DIGITS: i32 = 3;

/// The group of a bin; none of idle time, and of the last bin, which is open.
pub(crate) fn group_of(bin: usize) -> Option<usize> {
    (bin < BINS - 1).then(|| FIRST_BINS.iter().rposition(|first| *first <= bin)).flatten()
}

/// A block as it is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Kept {
    /// How long it was, s; does not age.
    pub(crate) seconds: f64,
    /// Answers of each group.
    pub(crate) completions: [f32; GROUPS],
    /// Time in each group, s.
    pub(crate) time_s: [f32; GROUPS],
}

impl Kept {
    const EMPTY: Self = Self { seconds: 0.0, completions: [0.0; GROUPS], time_s: [0.0; GROUPS] };

    fn merge(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.completions.iter_mut().zip(other.completions).for_each(|(sum, more)| *sum += more);
        self.time_s.iter_mut().zip(other.time_s).for_each(|(sum, more)| *sum += more);
    }

    fn of(block: &Block) -> Self {
        let mut kept = Self { seconds: block.seconds(), ..Self::EMPTY };
        for cell in block.cells() {
            let bin = usize::from(cell.bin);
            if let Some(group) = group_of(bin) {
                kept.completions[group] += cell.completions as f32;
                kept.time_s[group] += cell.seconds as f32;
            }
        }
        kept
    }
}

/// What one server was seen to do. When there is no room for another block, neighbours merge and blocks are twice as
/// long from then on, up to a length at which the oldest is forgotten instead ([`Curve::push_aging`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Curve {
    /// Even stretches, and odd ones.
    halves: Box<[Bins; 2]>,
    is_odd: bool,
    stretch_s: f64,
    blocks: Vec<Kept>,
    block_s: f64,
}

impl Default for Curve {
    fn default() -> Self {
        Self {
            halves: Box::new([[(0.0, 0.0); BINS]; 2]),
            is_odd: false,
            stretch_s: 0.0,
            blocks: Vec::new(),
            block_s: BLOCK_MIN_S,
        }
    }
}

impl Curve {
    /// Adds what was seen next. Stretches that are shorter than a block make one together.
    pub fn push(&mut self, next: &Block) {
        self.add(next, f64::INFINITY);
    }

    /// As [`Curve::push`], and what was there before counts less: half after each `half_life_s` of traffic. Blocks are then no
    /// longer than a sixteenth of that, and the oldest, of which hardly anything is left, is forgotten.
    pub fn push_aging(&mut self, next: &Block, half_life_s: f64) {
        let keep = (-next.seconds() / half_life_s).exp2();
        if keep.is_finite() && keep < 1.0 {
            self.halves.iter_mut().flatten().for_each(|(seconds, completions)| {
                *seconds *= keep;
                *completions *= keep;
            });
            for block in &mut self.blocks {
                let sums = block.completions.iter_mut().chain(&mut block.time_s);
                sums.for_each(|sum| *sum *= keep as f32);
            }
        }
        self.add(next, half_life_s / 16.0);
    }

    fn add(&mut self, next: &Block, longest_s: f64) {
        if self.stretch_s >= self.block_s {
            self.is_odd = !self.is_odd;
            self.stretch_s = 0.0;
        }
        self.stretch_s += next.seconds();
        for cell in next.cells() {
            let (seconds, completions) = &mut self.halves[usize::from(self.is_odd)][usize::from(cell.bin)];
            *seconds += cell.seconds;
            *completions += cell.completions;
        }
        let kept = Kept::of(next);
        if let Some(open) = self.blocks.last_mut().filter(|last| last.seconds < self.block_s) {
            open.merge(&kept);
            return;
        }
        if self.blocks.len() >= BLOCKS_MAX {
            if self.block_s * 2.0 <= longest_s {
                self.halve();
            } else {
                self.blocks.remove(0);
            }
        }
        self.blocks.push(kept);
    }

    fn halve(&mut self) {
        let pairs = self.blocks.chunks(2).map(|pair| {
            let mut merged = pair[0];
            pair[1..].iter().for_each(|other| merged.merge(other));
            merged
        });
        self.blocks = pairs.collect();
        self.block_s *= 2.0;
    }

    /// In the order of time.
    pub(crate) fn blocks(&self) -> &[Kept] {
        &self.blocks
    }

    /// How many blocks there are.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// All together: one level for each bin with requests in flight and time in it, rising; without the last
    /// bin, which is open.
    pub fn levels(&self) -> Vec<Level> {
        self.levels_of(&[0, 1])
    }

    /// Even stretches (0) or odd ones (1), as [`Curve::levels`].
    pub(crate) fn half(&self, which: usize) -> Vec<Level> {
        self.levels_of(&[which])
    }

    fn levels_of(&self, halves: &[usize]) -> Vec<Level> {
        let sum = |bin: usize| {
            halves.iter().map(|half| self.halves[*half][bin]).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1))
        };
        let dispersion = self.dispersion();
        // No request in flight is no load, and the last bin has no upper end.
        let levels = (1..BINS - 1).map(|bin| {
            let (seconds, completions) = sum(bin);
            Level { in_flight: middle_of(bin), seconds, completions, dispersion }
        });
        levels.filter(|level| level.seconds > 0.0).collect()
    }

    /// How many times more than chance the answers of a level vary, φ ≥ 1.
    pub fn dispersion(&self) -> f64 {
        dispersion(&self.halves)
    }

    /// Levels with an answer at least, as pairs of a curve.
    pub fn points(&self) -> Vec<Point> {
        self.levels().iter().filter(|level| level.completions > 0.0).map(Point::from).collect()
    }

    /// What it takes in memory, bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<[Bins; 2]>() + self.blocks.capacity() * size_of::<Kept>()
    }
}

/// A curve as it is stored: bins (bin, s, answers) of even and of odd stretches, and of each block its length, answers and time of each
/// group up to the last that has any.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    bins: [Vec<(u8, f64, f64)>; 2],
    is_odd: bool,
    stretch_s: f64,
    block_s: f64,
    blocks: Vec<(f64, Vec<f32>, Vec<f32>)>,
}

/// A number of so many digits. Less than 1e-6 (s, requests · s, answers) is nothing; times and counts are far above.
fn rounded(value: f64, digits: i32) -> f64 {
    if value.abs() < 1e-6 {
        return 0.0;
    }
    let scale = 10_f64.powi(digits - 1 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

impl From<Curve> for Stored {
    fn from(of: Curve) -> Self {
        let round = |value| rounded(value, STORED_DIGITS);
        let bins = of.halves.map(|half| {
            let used = half.into_iter().enumerate().map(|(bin, (s, n))| (bin as u8, round(s), round(n)));
            used.filter(|(_, seconds, _)| *seconds > 0.0).collect()
        });
        let short = |sums: &[f32; GROUPS]| {
            let used = sums.iter().rposition(|sum| *sum > 0.0).map_or(0, |last| last + 1);
            let round = |sum: &f32| rounded(f64::from(*sum), STORED_BLOCK_DIGITS) as f32;
            sums[..used].iter().map(round).collect::<Vec<f32>>()
        };
        let block = |block: &Kept| (round(block.seconds), short(&block.completions), short(&block.time_s));
        let blocks = of.blocks.iter().map(block).collect();
        Self { bins, is_odd: of.is_odd, stretch_s: round(of.stretch_s), block_s: of.block_s, blocks }
    }
}

/// Sums of a stored block, with those that it leaves out.
fn groups_of(stored: &[f32]) -> Result<[f32; GROUPS], Refusal> {
    let mut groups = [0.0; GROUPS];
    if stored.len() > GROUPS {
        return Err(Refusal::Input {
            what: "the number of stored groups of bins",
            value: stored.len() as f64,
        });
    }
    for (group, sum) in groups.iter_mut().zip(stored) {
        if !sum.is_finite() || *sum < 0.0 {
            return Err(Refusal::Input { what: "a stored sum of a block", value: f64::from(*sum) });
        }
        *group = *sum;
    }
    Ok(groups)
}

impl TryFrom<Stored> for Curve {
    type Error = Refusal;

    fn try_from(stored: Stored) -> Result<Self, Refusal> {
        let mut curve = Self { is_odd: stored.is_odd, ..Self::default() };
        curve.block_s = positive("the length of a stored block, s,", stored.block_s)?;
        curve.stretch_s = not_negative("the length of a stored stretch, s,", stored.stretch_s)?;
        if stored.blocks.len() > BLOCKS_MAX {
            return Err(Refusal::Input {
                what: "the number of stored blocks",
                value: stored.blocks.len() as f64,
            });
        }
        for (half, cells) in curve.halves.iter_mut().zip(stored.bins) {
            for (bin, seconds, completions) in cells {
                let there = half.get_mut(usize::from(bin));
                let there = there.ok_or(Refusal::Input { what: "a stored bin", value: f64::from(bin) })?;
                *there = (
                    positive("stored time in a state, s,", seconds)?,
                    not_negative("a stored number of answers", completions)?,
                );
            }
        }
        for (seconds, completions, time_s) in stored.blocks {
            let seconds = not_negative("the length of a stored block, s,", seconds)?;
            curve.blocks.push(Kept {
                seconds,
                completions: groups_of(&completions)?,
                time_s: groups_of(&time_s)?,
            });
        }
        Ok(curve)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cell;
    use super::*;
    use proptest::prelude::*;

    fn cell(bin: u8, seconds: f64, completions: f64) -> Cell {
        Cell { bin, seconds, completions }
    }

    /// Thousands of seconds in which every bin was passed, with numbers of many digits: the worst that there is.
    fn full(aging: Option<f64>) -> Curve {
        let mut curve = Curve::default();
        for i in 0..5000_u32 {
            let part = 1.0 + f64::from(i % 97) / 97.0;
            let cells = (0..80).map(|bin| cell(bin, part / 113.0, f64::from(bin) * part * 3.7));
            let block = Block::new(cells).unwrap();
            match aging {
                None => curve.push(&block),
                Some(half_life_s) => curve.push_aging(&block, half_life_s),
            }
        }
        curve
    }

    #[test]
    fn a_curve_stays_below_20_kb_in_memory_and_stored() {
        for curve in [full(None), full(Some(1200.0))] {
            let stored = serde_json::to_string(&curve).unwrap();
            println!(
                "{} bytes in memory, {} stored, {} blocks",
                curve.bytes(),
                stored.len(),
                curve.block_count()
            );
            assert!(curve.bytes() <= 20_000 && stored.len() <= 20_000, "{} {}", curve.bytes(), stored.len());
            let back: Curve = serde_json::from_str(&stored).unwrap();
            for (a, b) in curve.levels().iter().zip(back.levels()) {
                assert!((a.throughput() / b.throughput() - 1.0).abs() < 1e-6, "{a:?} {b:?}");
            }
            assert_eq!(serde_json::to_string(&back).unwrap(), stored, "read and stored again it is the same");
        }
    }

    #[test]
    fn a_damaged_stored_curve_is_refused_by_name() {
        let mut curve = Curve::default();
        (0..3).for_each(|_| curve.push(&Block::new([cell(1, 1.0, 2.0)]).unwrap()));
        let stored = serde_json::to_string(&curve).unwrap();
        assert!(serde_json::from_str::<Curve>(&stored).is_ok());
        for (from, to, says) in [
            ("\"block_s\":1.0", "\"block_s\":-1.0", "length of a stored block"),
            ("[[1,2.0,4.0]]", "[[80,2.0,4.0]]", "stored bin cannot be 80"),
            ("[[1,2.0,4.0]]", "[[1,-2.0,4.0]]", "stored time in a state"),
            (
                "[1.0,[2.0],[1.0]]",
                "[1.0,[2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2],[1.0]]",
                "groups of bins cannot be 16",
            ),
            ("[1.0,[2.0],[1.0]]", "[1.0,[1e300],[1.0]]", ""),
            ("[1.0,[2.0],[1.0]]", "[1.0,[2.0],[-1.0]]", "sum of a block cannot be -1"),
            ("\"is_odd\"", "\"is_odder\"", "is_odder"),
        ] {
            assert!(stored.contains(from), "{stored}");
            let why = serde_json::from_str::<Curve>(&stored.replace(from, to)).unwrap_err().to_string();
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn short_stretches_make_a_block_together() {
        let mut curve = Curve::default();
        (0..10).for_each(|_| curve.push(&Block::new([cell(1, 0.25, 2.0)]).unwrap()));
        assert_eq!(curve.blocks().iter().map(|of| of.seconds).collect::<Vec<_>>(), [1.0, 1.0, 0.5]);
        assert_eq!(
            curve.levels(),
            [Level { in_flight: 1.0, seconds: 2.5, completions: 20.0, dispersion: 1.0 }]
        );
    }

    #[test]
    fn old_traffic_counts_half_after_a_half_life_and_blocks_stay_short() {
        let mut curve = Curve::default();
        (0..800).for_each(|_| curve.push_aging(&Block::new([cell(1, 1.0, 100.0)]).unwrap(), 800.0));
        (0..800).for_each(|_| curve.push_aging(&Block::new([cell(2, 1.0, 100.0)]).unwrap(), 800.0));
        let [old, new] = curve.levels()[..] else { panic!("two levels") };
        assert!((old.seconds / new.seconds - 0.5).abs() < 1e-3, "{old:?} {new:?}");
        assert!(curve.blocks().iter().all(|of| of.seconds <= 50.0) && curve.block_count() > 30);
    }

    #[test]
    fn every_bin_has_a_group_but_the_first_and_the_last() {
        assert_eq!(
            (group_of(0), group_of(1), group_of(BINS - 2), group_of(BINS - 1)),
            (None, Some(0), Some(14), None)
        );
        assert!((1..BINS - 1).all(|bin| group_of(bin).is_some_and(|of| of < GROUPS)));
    }

    proptest! {
        #[test]
        fn blocks_are_bounded_and_lose_nothing(pushes in 0_u16..3000) {
            let mut curve = Curve::default();
            for i in 0..pushes {
                curve.push(&Block::new([cell((i % 70) as u8 + 1, 1.0, 1.0)]).unwrap());
                prop_assert!(curve.block_count() <= BLOCKS_MAX);
            }
            let seconds: f64 = curve.levels().iter().map(|level| level.seconds).sum();
            prop_assert_eq!(seconds, f64::from(pushes));
            let lengths: Vec<f64> = curve.blocks().iter().map(|of| of.seconds).collect();
            let (open, whole) = lengths.split_last().map_or((0.0, &[][..]), |(open, whole)| (*open, whole));
            prop_assert!(whole.iter().all(|length| *length == whole[0] && *length >= open), "{:?}", lengths);
        }
    }
}

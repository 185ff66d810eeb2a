//! Which part of a second under a CPU quota is sustained capacity. Owns that rule and the speeds that it needs; knows no law.
//!
//! Under a quota a short burst runs at full speed and a long one is throttled: the same server shows more answers per second at few in
//! flight than it can keep up, and its curve seems to fall. So a second that used its whole quota is *one* state, at its mean in flight,
//! with all its time and answers. Of the others only states count whose CPU rate μ(N)·D is within the quota: what is faster lives on
//! what the period before left over.

use super::second::Second;
use crate::curve::{Cell, KNOWN_COMPLETIONS, bins};
use serde::{Deserialize, Serialize};

/// Time and answers by bin of seconds that were not full, throttling or not in them left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Speeds(Vec<(u8, f32, f32)>);

impl Speeds {
    pub(super) fn add(&mut self, cells: &[Cell]) {
        for cell in cells {
            let more = (cell.seconds as f32, cell.completions as f32);
            match self.0.binary_search_by_key(&cell.bin, |of| of.0) {
                Ok(at) => (self.0[at].1, self.0[at].2) = (self.0[at].1 + more.0, self.0[at].2 + more.1),
                Err(at) => self.0.insert(at, (cell.bin, more.0, more.1)),
            }
        }
    }

    pub(super) fn age(&mut self, keep: f64) {
        self.0.iter_mut().for_each(|of| (of.1, of.2) = (of.1 * keep as f32, of.2 * keep as f32));
    }

    pub(super) fn is_sane(&self) -> bool {
        let sums = |of: &(u8, f32, f32)| {
            usize::from(of.0) < bins::BINS && [of.1, of.2].iter().all(|of| of.is_finite() && *of >= 0.0)
        };
        self.0.iter().all(sums) && self.0.is_sorted_by(|a, b| a.0 < b.0)
    }

    /// Whether requests at that load use no more than the quota. What is not known yet is not told to.
    fn keeps_within(&self, bin: u8, cpus: f64, cpu_s: Option<f64>) -> bool {
        let seen = self.0.binary_search_by_key(&bin, |of| of.0).ok().map(|at| self.0[at]);
        let known = seen.filter(|(_, _, n)| f64::from(*n) >= KNOWN_COMPLETIONS).zip(cpu_s);
        bin == 0 || known.is_some_and(|((_, s, n), cpu_s)| f64::from(n / s) * cpu_s <= cpus)
    }

    /// What a second says of sustained capacity.
    pub(super) fn cells(&self, second: &Second, is_full: bool, cpu_s: Option<f64>) -> Vec<Cell> {
        let Some(cpus) = second.cpus.filter(|_| second.is_quota) else { return second.cells.clone() };
        if is_full {
            // `as` saturates: the last bin takes all that is more.
            let bin = bins::bin_of(second.in_flight().round() as u32) as u8;
            return vec![Cell { bin, seconds: second.seconds(), completions: second.answered }];
        }
        second.cells.iter().copied().filter(|cell| self.keeps_within(cell.bin, cpus, cpu_s)).collect()
    }
}

//! Where a server's throughput stops rising with what is in flight. Owns the level of the plateau and where it
//! begins; knows no law and not whether hardware was full.

use super::Level;
use crate::evidence::Refusal;
use serde::{Deserialize, Serialize};

/// Part of the plateau's throughput that counts as being on it.
pub const PLATEAU_PART: f64 = 0.98;
/// Standard errors within which a level may be on the plateau.
const ERRORS: f64 = 2.0;
/// Known levels that a plateau needs: two may agree by chance.
const PLATEAU_LEVELS: usize = 3;
/// Answers from which the height is known: within 1 % (one standard error), half of what [`PLATEAU_PART`] leaves out.
const HEIGHT_COMPLETIONS: f64 = 10_000.0;

/// The flat part of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plateau {
    /// Its throughput, answers per second.
    pub throughput: f64,
    /// Standard error of that, answers per second.
    pub error: f64,
    /// Fewest requests in flight that reach [`PLATEAU_PART`] of it: minJobs of a server whose hardware was full.
    pub from: f64,
    /// Most requests in flight that were seen on it.
    pub to: f64,
    /// Known levels on it.
    pub levels: usize,
}

/// Neighbouring levels that are taken as one.
#[derive(Debug, Clone, Copy)]
struct Run {
    from: f64,
    seconds: f64,
    completions: f64,
}

impl Run {
    fn throughput(&self) -> f64 {
        self.completions / self.seconds
    }

    fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.completions += other.completions;
    }
}

/// The plateau of the known levels, which rise in `in_flight`.
///
/// Source: digest of A, "smallest N with μ ≥ .98 plateau". Taken level by level that is a small N: of many levels one is high
/// by chance. So levels that do not rise are taken together with those before them (isotonic regression), up to the
/// greatest load that is within 2 % and two standard errors of the best; the height is that of the uppermost of them
/// with 10,000 answers together.
///
/// # Errors
/// [`Refusal::NoPlateau`] if the height is not known that well, or fewer than three known levels are on it: throughput may
/// rise still.
pub fn plateau(levels: &[Level]) -> Result<Plateau, Refusal> {
    let known = || levels.iter().filter(|level| level.is_known());
    let best = known().max_by(|a, b| a.throughput().total_cmp(&b.throughput())).ok_or(Refusal::NoPlateau)?;
    let enough = PLATEAU_PART * best.throughput();
    let is_on = |level: &&Level| level.throughput() + ERRORS * level.error() >= enough;
    let to = known().rfind(is_on).ok_or(Refusal::NoPlateau)?.in_flight;

    let mut runs: Vec<Run> = Vec::new();
    for level in known().filter(|level| level.in_flight <= to) {
        let mut next = Run { from: level.in_flight, seconds: level.seconds, completions: level.completions };
        while let Some(before) = runs.pop_if(|before| before.throughput() >= next.throughput()) {
            next.from = before.from;
            next.add(&before);
        }
        runs.push(next);
    }
    let mut height = Run { from: to, seconds: 0.0, completions: 0.0 };
    for run in runs.iter().rev() {
        if height.completions < HEIGHT_COMPLETIONS {
            height.add(run);
        }
    }
    if height.completions < HEIGHT_COMPLETIONS {
        return Err(Refusal::NoPlateau);
    }
    let throughput = height.throughput();
    let from = runs.iter().find(|run| run.throughput() >= PLATEAU_PART * throughput);
    let from = from.ok_or(Refusal::NoPlateau)?.from;
    let count = known().filter(|level| (from..=to).contains(&level.in_flight)).count();
    if count < PLATEAU_LEVELS {
        return Err(Refusal::NoPlateau);
    }
    let error = height.completions.sqrt() / height.seconds;
    Ok(Plateau { throughput, error, from, to, levels: count })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(of: impl Fn(f64) -> f64, most: u32) -> Vec<Level> {
        let level = |n: u32| {
            let (in_flight, seconds) = (f64::from(n), 100.0);
            Level { in_flight, seconds, completions: of(in_flight) * seconds }
        };
        (1..=most).map(level).collect()
    }

    #[test]
    fn the_plateau_begins_where_two_percent_are_missing() {
        let found = plateau(&levels(|n| 100.0 * (n / 10.0).min(1.0), 30)).unwrap();
        assert_eq!((found.from, found.to, found.levels), (10.0, 30.0, 21));
        assert!(
            (found.throughput - 100.0).abs() < 1e-9
                && (found.error - 100.0_f64.sqrt() / 2100_f64.sqrt()).abs() < 0.01
        );
    }

    #[test]
    fn a_curve_that_rises_or_is_hardly_known_has_none() {
        assert_eq!(plateau(&levels(|n| 10.0 * n, 30)), Err(Refusal::NoPlateau));
        assert_eq!(plateau(&levels(|_| 1.0, 30)), Err(Refusal::NoPlateau), "100 answers a level are too few");
        assert_eq!(plateau(&[]), Err(Refusal::NoPlateau));
    }
}

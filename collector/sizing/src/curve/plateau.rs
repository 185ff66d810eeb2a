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
/// Times what the curve varies by more than chance, from which it is known within 2 %: the least.
const VARYING_COMPLETIONS: f64 = 2_500.0;

/// The flat part of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plateau {
    /// Its throughput, answers per second.
    pub throughput: f64,
    /// Standard error of that, answers per second.
    pub error: f64,
    /// Fewest requests in flight that reach [`PLATEAU_PART`] of it: minJobs of a server whose hardware was full.
    pub from: f64,
    /// Standard error of the throughput there, as a part of the plateau's.
    pub from_error: f64,
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
/// greatest load that is within 2 % and two standard errors of the best, each less or more its error; the height is that of the uppermost of
/// them with 10,000 answers together, as many times more as the curve varies by more than chance, as far as they agree.
///
/// # Errors
/// [`Refusal::NoPlateau`] if the height is not known that well, or fewer than three known levels are on it: throughput may
/// rise still.
pub fn plateau(levels: &[Level]) -> Result<Plateau, Refusal> {
    let known = || levels.iter().filter(|level| level.is_known());
    let dispersion = levels.first().map_or(1.0, |level| level.dispersion);
    // What it surely reached: of many levels, of which some were short, one is high by chance.
    let sure = |level: &Level| level.throughput() - ERRORS * level.error();
    let best = known().map(sure).max_by(f64::total_cmp).ok_or(Refusal::NoPlateau)?;
    let enough = PLATEAU_PART * best;
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
    let error_of = |run: &Run| (dispersion * run.completions).sqrt() / run.seconds;
    // Whether a run may be on a plateau of this height, within so many errors of both.
    let reaches = |run: &Run, height: &Run, errors: f64| {
        let error = errors * error_of(run).hypot(error_of(height));
        run.throughput() + error >= PLATEAU_PART * height.throughput()
    };
    let mut down = runs.iter().rev();
    let mut height = *down.next().ok_or(Refusal::NoPlateau)?;
    for run in down {
        if height.completions >= dispersion * HEIGHT_COMPLETIONS || !reaches(run, &height, ERRORS) {
            break;
        }
        height.add(run);
    }
    if height.completions < HEIGHT_COMPLETIONS.max(dispersion * VARYING_COMPLETIONS) {
        return Err(Refusal::NoPlateau);
    }
    let throughput = height.throughput();
    // What may be below it is told as being on it only by one: a pool that is too small costs more than one that is too large.
    let first = runs.iter().find(|run| reaches(run, &height, 1.0)).ok_or(Refusal::NoPlateau)?;
    let (from, from_error) = (first.from, error_of(first) / throughput);
    let count = known().filter(|level| (from..=to).contains(&level.in_flight)).count();
    if count < PLATEAU_LEVELS {
        return Err(Refusal::NoPlateau);
    }
    Ok(Plateau { throughput, error: error_of(&height), from, from_error, to, levels: count })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(of: impl Fn(f64) -> f64, most: u32) -> Vec<Level> {
        let level = |n: u32| {
            let (in_flight, seconds) = (f64::from(n), 100.0);
            Level { in_flight, seconds, completions: of(in_flight) * seconds, dispersion: 1.0 }
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
    fn one_lucky_second_does_not_hide_a_plateau() {
        // Requests in flight, answers per second and answers, as full seconds of a Tomcat with half a CPU are: one second at 22.5.
        let seen: [(f64, f64, f64); 10] = [
            (22.5, 1592.0, 1592.0),
            (83.5, 1446.0, 1446.0),
            (99.5, 1475.0, 1475.0),
            (115.5, 1430.0, 1430.0),
            (123.5, 1459.0, 2918.0),
            (135.5, 1457.0, 1457.0),
            (151.5, 1482.2, 1482.2),
            (167.5, 1471.0, 20_594.0),
            (183.5, 1493.3, 17_919.0),
            (199.5, 1512.1, 40_826.0),
        ];
        let levels = |dispersion| {
            let level = |&(in_flight, each, completions): &(f64, f64, f64)| Level {
                in_flight,
                seconds: completions / each,
                completions,
                dispersion,
            };
            seen.iter().map(level).collect::<Vec<_>>()
        };
        let found = plateau(&levels(7.5)).unwrap();
        assert_eq!((found.from, found.to), (22.5, 199.5));
        assert!((found.throughput - 1490.0).abs() < 15.0, "{found:?}");
        assert!(found.error > 5.0, "what varies more is known less well: {found:?}");
    }

    #[test]
    fn a_curve_that_rises_or_is_hardly_known_has_none() {
        assert_eq!(plateau(&levels(|n| 10.0 * n, 30)), Err(Refusal::NoPlateau));
        assert_eq!(plateau(&levels(|_| 1.0, 30)), Err(Refusal::NoPlateau), "100 answers a level are too few");
        assert_eq!(plateau(&[]), Err(Refusal::NoPlateau));
    }
}

//! A server before a change of its set-up against after it: what a request took at the same loads. Owns bands of load, and when a difference may
//! be told; knows no setting and no server by name.
//!
//! Seconds that follow each other are alike, so ten of them are one observation. The time in the server is told by its logarithm: what
//! changes it changes it by a factor.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// From one band of load to the next: within a band a queue of a server at 70 % of its capacity grows by a quarter at the most.
const BAND: f64 = 1.15;
/// Bands beyond this, 10^9 requests a second, do not exist.
const BANDS_MAX: u8 = 148;
/// Seconds of one observation.
const BLOCK_S: f64 = 10.0;
/// Answers without which an observation says nothing of the time of a request.
const ANSWERS_MIN: f64 = 20.0;
/// Observations of a band on either side from which it is compared.
const OF_BAND_MIN: f64 = 3.0;
/// Observations in all bands that are compared, of the side that has fewer in each: two minutes.
const IN_ALL_MIN: f64 = 12.0;
/// What is told lies so many standard errors from no difference: the 99 % quantile of a normal error and a little, for observations of ten seconds
/// are not free of each other either.
const ERRORS: f64 = 2.6;
/// A difference below this part is none that anybody would change a setting for.
const MATTERS: f64 = 0.05;
/// Known to be within this part of before: no difference.
const ALIKE: f64 = 0.1;

/// A while of a server's traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// How long it was, s.
    pub seconds: f64,
    /// Requests that it answered.
    pub answered: f64,
    /// Requests of its whole tier meanwhile: the load that it is compared at.
    pub of_tier: f64,
    /// Integral of the requests in it, waiting to be accepted or in flight, s.
    pub in_system_s: f64,
    /// Packets that its accept queue dropped.
    pub drops: f64,
}

/// What was seen under one set-up, by band of load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    bands: BTreeMap<u8, Band>,
    seconds: f64,
    drops: f64,
    #[serde(default)]
    open: Block,
}

/// Observations at one load: the logarithm of a request's time, s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Band {
    count: f64,
    mean: f64,
    squares: f64,
}

/// An observation that is not whole yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Block {
    seconds: f64,
    answered: f64,
    of_tier: f64,
    in_system_s: f64,
}

/// What came of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A request takes less at the same loads.
    Better,
    /// It takes more.
    Worse,
    /// It takes as much, within a tenth.
    Alike,
    /// There is enough traffic at the same loads for nothing of that to be certain.
    Uncertain,
    /// There is not enough traffic at the same loads yet.
    TooLittle,
}

/// Before against after.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// What may be said.
    pub verdict: Verdict,
    /// What a request takes after, for what it took before, with its interval; none where nothing was at the same load.
    pub ratio: Option<(f64, f64, f64)>,
    /// What a request took at these loads, s, before and after.
    pub took_s: Option<(f64, f64)>,
    /// The loads that are compared, requests of the tier a second.
    pub loads: Option<(f64, f64)>,
    /// Seconds at the same loads, of the side that has fewer.
    pub common_s: f64,
    /// Of those, the least that an answer needs.
    pub needed_s: f64,
}

impl Seen {
    /// Takes the next while. What is not a whole observation when there is a gap goes on with what comes after it: loads are alike.
    pub fn take(&mut self, of: Stretch) {
        self.seconds += of.seconds;
        self.drops += of.drops;
        let open = &mut self.open;
        open.seconds += of.seconds;
        open.answered += of.answered;
        open.of_tier += of.of_tier;
        open.in_system_s += of.in_system_s;
        if open.seconds < BLOCK_S {
            return;
        }
        let whole = std::mem::take(open);
        let took_s = whole.in_system_s / whole.answered;
        if whole.answered >= ANSWERS_MIN && took_s > 0.0 && took_s.is_finite() {
            self.bands.entry(band(whole.of_tier / whole.seconds)).or_default().push(took_s.ln());
        }
    }

    /// Seconds of traffic.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Packets that were dropped in them.
    #[must_use]
    pub fn drops(&self) -> f64 {
        self.drops
    }

    /// Whether there is enough to compare with.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        let counts = self.bands.values().map(|band| band.count).filter(|n| *n >= OF_BAND_MIN);
        counts.sum::<f64>() >= IN_ALL_MIN
    }

    /// Memory, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.bands.len() * (size_of::<Band>() + 2)
    }
}

impl Band {
    fn push(&mut self, value: f64) {
        self.count += 1.0;
        let off = value - self.mean;
        self.mean += off / self.count;
        self.squares += off * (value - self.mean);
    }
}

/// Of requests a second.
fn band(per_second: f64) -> u8 {
    // `as` saturates, and so does a load of zero.
    ((per_second.ln() / BAND.ln()).floor().max(0.0) as u8).min(BANDS_MAX)
}

/// What one set-up made of the loads that were seen under both.
#[must_use]
pub fn compare(before: &Seen, after: &Seen) -> Compared {
    let both = before.bands.iter().filter_map(|(at, b)| Some((*at, *b, *after.bands.get(at)?)));
    let both: Vec<(u8, Band, Band)> =
        both.filter(|(_, b, a)| b.count >= OF_BAND_MIN && a.count >= OF_BAND_MIN).collect();
    // Each band weighs what is known of it.
    let weight = |(_, b, a): &(u8, Band, Band)| b.count.min(a.count);
    let all: f64 = both.iter().map(weight).sum();
    let mean =
        |of: fn(&(u8, Band, Band)) -> f64| both.iter().map(|band| weight(band) * of(band)).sum::<f64>() / all;
    let (common_s, needed_s) = (all * BLOCK_S, IN_ALL_MIN * BLOCK_S);
    let ends = both.first().zip(both.last());
    let loads = ends.map(|(first, last)| (BAND.powi(first.0.into()), BAND.powi(i32::from(last.0) + 1)));
    if both.is_empty() {
        return Compared {
            verdict: Verdict::TooLittle,
            ratio: None,
            took_s: None,
            loads,
            common_s,
            needed_s,
        };
    }
    let (b, a) = (mean(|band| band.1.mean), mean(|band| band.2.mean));
    // Of few observations a band's own spread says little: that of all bands of a side is taken.
    let spread = |side: fn(&(u8, Band, Band)) -> Band| {
        let free: f64 = both.iter().map(|band| side(band).count - 1.0).sum();
        both.iter().map(|band| side(band).squares).sum::<f64>() / free
    };
    let (of_before, of_after) = (spread(|band| band.1), spread(|band| band.2));
    let variance: f64 = both
        .iter()
        .map(|band| (weight(band) / all).powi(2) * (of_before / band.1.count + of_after / band.2.count))
        .sum();
    let (difference, error) = (a - b, ERRORS * variance.sqrt());
    let (low, high) = ((difference - error).exp(), (difference + error).exp());
    let ratio = difference.exp();
    let verdict = if all < IN_ALL_MIN {
        Verdict::TooLittle
    } else if high < 1.0 && ratio < 1.0 - MATTERS {
        Verdict::Better
    } else if low > 1.0 && ratio > 1.0 + MATTERS {
        Verdict::Worse
    } else if low > 1.0 - ALIKE && high < 1.0 + ALIKE {
        Verdict::Alike
    } else {
        Verdict::Uncertain
    };
    let took_s = Some((b.exp(), a.exp()));
    Compared { verdict, ratio: Some((ratio, low, high)), took_s, loads, common_s, needed_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many seconds at this load, with requests that take this long and vary by a tenth from one ten seconds to the next.
    fn seen(seconds: u32, per_second: f64, took_s: f64) -> Seen {
        let mut seen = Seen::default();
        more(&mut seen, seconds, per_second, took_s);
        seen
    }

    fn more(seen: &mut Seen, seconds: u32, per_second: f64, took_s: f64) {
        for second in 0..seconds {
            let varies = 1.0 + 0.1 * f64::from((second / 10) % 3) - 0.1;
            let in_system_s = per_second * took_s * varies;
            seen.take(Stretch {
                seconds: 1.0,
                answered: per_second,
                of_tier: per_second,
                in_system_s,
                drops: 0.0,
            });
        }
    }

    #[test]
    fn a_request_that_takes_less_or_more_at_the_same_load_is_told() {
        let before = seen(600, 800.0, 0.020);
        let of = |took_s| compare(&before, &seen(600, 800.0, took_s));
        let better = of(0.015);
        assert_eq!(better.verdict, Verdict::Better);
        let (ratio, low, high) = better.ratio.unwrap();
        assert!((ratio - 0.75).abs() < 0.01 && low < 0.75 && high > 0.75 && high < 0.85, "{better:?}");
        let (b, a) = better.took_s.unwrap();
        assert!((b - 0.020).abs() < 0.001 && (a - 0.015).abs() < 0.001, "{better:?}");
        let (from, to) = better.loads.unwrap();
        assert!(from <= 800.0 && to > 800.0 && to / from < 1.2);
        assert_eq!(of(0.026).verdict, Verdict::Worse);
        assert_eq!(of(0.020).verdict, Verdict::Alike);
        assert_eq!(of(0.0205).verdict, Verdict::Alike, "a fortieth is nothing");
    }

    #[test]
    fn another_load_is_no_comparison_and_little_traffic_is_said_to_be_little() {
        let before = seen(600, 800.0, 0.020);
        let elsewhere = compare(&before, &seen(600, 400.0, 0.010));
        assert_eq!((elsewhere.verdict, elsewhere.ratio, elsewhere.common_s), (Verdict::TooLittle, None, 0.0));
        let little = compare(&before, &seen(80, 800.0, 0.010));
        assert_eq!((little.verdict, little.common_s, little.needed_s), (Verdict::TooLittle, 80.0, 120.0));
        assert!(little.ratio.is_some());
        assert!(!seen(80, 800.0, 0.010).is_enough() && before.is_enough());
        // A load of both and one of after alone: only the first counts, though all is twice as slow there.
        let mut after = seen(200, 800.0, 0.020);
        more(&mut after, 600, 1600.0, 0.100);
        assert_eq!(compare(&before, &after).verdict, Verdict::Alike);
    }

    #[test]
    fn what_varies_too_much_is_uncertain() {
        let mut wild = Seen::default();
        (0..13).for_each(|n| more(&mut wild, 10, 800.0, if n % 2 == 0 { 0.005 } else { 0.050 }));
        assert_eq!(compare(&seen(600, 800.0, 0.020), &wild).verdict, Verdict::Uncertain);
    }

    #[test]
    fn hardly_any_answers_are_no_observation_and_nothing_breaks_a_band() {
        assert!(!seen(6000, 1.0, 0.020).is_enough(), "ten answers in ten seconds");
        assert_eq!((band(0.0), band(1.0), band(f64::INFINITY), band(f64::NAN)), (0, 0, BANDS_MAX, 0));
        let nothing = Stretch { seconds: 20.0, answered: 0.0, of_tier: 0.0, in_system_s: 5.0, drops: 3.0 };
        let mut seen = Seen::default();
        seen.take(nothing);
        assert_eq!((seen.bands.len(), seen.seconds(), seen.drops()), (0, 20.0, 3.0));
    }

    #[test]
    fn what_is_kept_comes_back() {
        let seen = seen(605, 800.0, 0.020);
        let again: Seen = serde_json::from_str(&serde_json::to_string(&seen).unwrap()).unwrap();
        assert_eq!(again.bands.len(), seen.bands.len());
        assert_eq!(compare(&again, &seen).verdict, Verdict::Alike);
        assert!(seen.bytes() < 20_000);
    }
}

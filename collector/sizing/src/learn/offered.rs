//! How many requests a second a listener was to serve, by seconds. Owns bins of rates and the busiest hundredth; knows no request and no pool.

use serde::{Deserialize, Serialize};

/// Bins to a doubling of the rate: each is within a twentieth of its middle.
const PARTS: f64 = 8.0;
/// Seconds without which nothing is told.
const SECONDS_MIN: f64 = 60.0;
/// Part of the seconds that may be busier than what is told.
const BUSIEST: f64 = 0.01;

/// Seconds by what was offered in them, in order of rates; less than one a second is none.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Offered(Vec<(u16, f32)>);

impl Offered {
    /// A second of this length, with so many requests. What was added before counts for `keep` of what it did.
    pub(super) fn add(&mut self, seconds: f64, requests: f64, keep: f64) {
        self.0.iter_mut().for_each(|of| of.1 *= keep as f32);
        // `as` saturates.
        let bin = (PARTS * (requests / seconds).max(1.0).log2()).round() as u16;
        match self.0.binary_search_by_key(&bin, |of| of.0) {
            Ok(at) => self.0[at].1 += seconds as f32,
            Err(at) => self.0.insert(at, (bin, seconds as f32)),
        }
    }

    /// Requests a second that no more than a hundredth of the seconds exceed; none before a minute.
    pub(super) fn most(&self) -> Option<f64> {
        let all: f64 = self.0.iter().map(|of| f64::from(of.1)).sum();
        let mut busier = 0.0;
        let found = self.0.iter().rev().find(|of| {
            busier += f64::from(of.1);
            busier > BUSIEST * all
        });
        found.filter(|_| all >= SECONDS_MIN).map(|of| (f64::from(of.0) / PARTS).exp2())
    }

    /// What it takes in memory beside itself, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u16, f32)>()
    }

    /// Whether these are seconds that there can be.
    pub(super) fn is_sane(&self) -> bool {
        self.0.iter().all(|of| of.1.is_finite() && of.1 >= 0.0) && self.0.is_sorted_by(|a, b| a.0 < b.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_hundredth_is_told_and_one_second_of_many_is_not() {
        let mut offered = Offered::default();
        assert_eq!(offered.most(), None);
        (0..59).for_each(|_| offered.add(1.0, 100.0, 1.0));
        assert_eq!(offered.most(), None, "59 s");
        (0..241).for_each(|_| offered.add(1.0, 100.0, 1.0));
        let near = |of: Option<f64>, expect: f64| (of.unwrap() / expect - 1.0).abs() < 0.05;
        offered.add(1.0, 9_000.0, 1.0);
        assert!(near(offered.most(), 100.0), "one burst: {:?}", offered.most());
        (0..5).for_each(|_| offered.add(0.5, 250.0, 1.0));
        assert!(near(offered.most(), 500.0), "{:?}", offered.most());
        assert!(offered.is_sane());
        let back: Offered = serde_json::from_str(&serde_json::to_string(&offered).unwrap()).unwrap();
        assert_eq!(back, offered);
        assert!(!Offered(vec![(3, 1.0), (3, 1.0)]).is_sane() && !Offered(vec![(3, f32::NAN)]).is_sane());
    }

    #[test]
    fn there_are_no_more_bins_than_rates_have_doublings() {
        let mut offered = Offered::default();
        for rate in [0.0, 0.3, 1e300] {
            offered.add(1.0, rate, 1.0);
        }
        (0..100_000).for_each(|n| offered.add(1.0, f64::from(n), 1.0));
        assert!(offered.0.len() < 200, "{}", offered.0.len());
    }
}

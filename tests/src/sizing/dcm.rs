//! What DCM would set (Chen et al., "DCM: Dynamic Concurrency Management for Scaling n-Tier Applications in Cloud", equations 5 and 7): its law of
//! concurrency, fitted to a sweep of its own. Pure, and shares no code with the collector, which has the same law and learns it from traffic.

use crate::sizing::goodput::{Run, nearest, training};
use serde::Serialize;

/// The law of one server: N requests in flight are answered at N / (S0 + α(N−1) + βN(N−1)) a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Dcm {
    /// S0, s.
    pub service_s: f64,
    /// α, s.
    pub contention_s: f64,
    /// β, s.
    pub coherency_s: f64,
    /// N_b, the best number in flight.
    pub in_flight: f64,
    /// Answers a second there.
    pub throughput: f64,
    /// Of the pools that were tried, the nearest to N_b by their ratio.
    pub nearest: u32,
}

impl Dcm {
    /// Trained by what the best pool of a sweep is chosen by. `None`: throughput was not seen to rise and to fall (S0 ≤ α or β ≤ 0), and the law has no best.
    #[must_use]
    pub fn trained(runs: &[Run]) -> Option<Self> {
        let training = training(runs);
        let points: Vec<(f64, f64)> =
            training.iter().map(|(pool, goodput)| (f64::from(*pool), *goodput)).collect();
        let [service_s, contention_s, coherency_s] = fitted(&points)?;
        let in_flight = ((service_s - contention_s) / coherency_s).sqrt();
        if !(in_flight.is_finite() && coherency_s > 0.0) {
            return None;
        }
        let time_s =
            service_s + contention_s * (in_flight - 1.0) + coherency_s * in_flight * (in_flight - 1.0);
        let nearest = nearest(&training, in_flight)?;
        Some(Self {
            service_s,
            contention_s,
            coherency_s,
            in_flight,
            throughput: in_flight / time_s,
            nearest,
        })
    }
}

/// (S0, α, β) by least squares on N/X with weights (X/N)², so that each point counts by its error in percent; `None`: the points do not tell them.
fn fitted(points: &[(f64, f64)]) -> Option<[f64; 3]> {
    let mut sums = [[0.0; 4]; 3];
    for (n, throughput) in points {
        let each_s = n / throughput;
        let row = [1.0, n - 1.0, n * (n - 1.0), each_s].map(|of| of / each_s);
        for i in 0..3 {
            for j in 0..4 {
                sums[i][j] += row[i] * row[j];
            }
        }
    }
    // Gauss and Jordan, the largest of a column first.
    for at in 0..3 {
        let largest = (at..3).max_by(|a, b| sums[*a][at].abs().total_cmp(&sums[*b][at].abs()))?;
        sums.swap(at, largest);
        if sums[at][at].abs() < 1e-300 {
            return None;
        }
        let pivot = sums[at];
        for (other, row) in sums.iter_mut().enumerate() {
            let times = if other == at { 1.0 - 1.0 / pivot[at] } else { row[at] / pivot[at] };
            for (value, by) in row.iter_mut().zip(pivot) {
                *value -= times * by;
            }
        }
    }
    let found = [sums[0][3], sums[1][3], sums[2][3]];
    found.iter().all(|of| of.is_finite()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizing::goodput::Block;

    fn runs(of: impl Fn(f64) -> f64) -> Vec<Run> {
        let run = |(pool, repeat, load): (u32, u32, f64)| Run {
            pool,
            load,
            repeat,
            // An even repeat and a small load say something else, and are not asked.
            blocks: vec![Block {
                arrived: 0,
                within: [0, if repeat == 1 && load > 1.0 { of(f64::from(pool)).round() as u32 } else { 7 }],
            }],
            client_cores: 0.0,
            lateness_p99_us: 0,
            steal_ratio: 0.0,
            other_cores: 0.0,
            critical_ratio: 1.0,
        };
        [2, 4, 8, 16, 32, 64, 128, 200]
            .into_iter()
            .flat_map(|pool| [(pool, 1, 1.3), (pool, 2, 1.3), (pool, 1, 1.0)])
            .map(run)
            .collect()
    }

    #[test]
    fn the_law_that_made_a_sweep_is_found_in_it() {
        let law = |n: f64| 1e3 * n / (2.0 + 0.5 * (n - 1.0) + 0.006 * n * (n - 1.0));
        let found = Dcm::trained(&runs(law)).unwrap();
        assert!((found.in_flight / 250_f64.sqrt() - 1.0).abs() < 0.02, "{found:?}");
        assert!((found.throughput / law(250_f64.sqrt()) - 1.0).abs() < 0.01, "{found:?}");
        assert!((found.service_s / 2e-3 - 1.0).abs() < 0.02 && found.nearest == 16, "{found:?}");
    }

    #[test]
    fn what_does_not_fall_has_no_best() {
        assert_eq!(
            Dcm::trained(&runs(|n| 1e3 * n / (2.0 + 0.5 * (n - 1.0)))).filter(|of| of.in_flight < 500.0),
            None
        );
        assert_eq!(Dcm::trained(&[]), None);
        assert_eq!(Dcm::trained(&runs(|_| 0.0)), None);
    }
}

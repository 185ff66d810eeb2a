//! CPU time of a request against what is in flight. Owns its slope, which shows the overhead of concurrency before
//! throughput bends; knows neither where CPU time comes from nor what makes it grow.

use crate::evidence::{Refusal, not_negative, positive};
use crate::numeric::least_squares::Normal;
use serde::{Deserialize, Serialize};

/// CPU time of a request at one number in flight, as a regression over windows gives it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Requests in flight, N.
    pub in_flight: f64,
    /// CPU time of a request, D(N), s.
    pub cpu_s: f64,
    /// Its standard error, s.
    pub error_s: f64,
}

/// D(N) = `idle_s` + `slope_s` · N.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// CPU time of a request that is alone, s.
    pub idle_s: f64,
    /// What one more in flight adds to each, s.
    pub slope_s: f64,
    /// Standard error of the slope, s.
    pub error_s: f64,
}

impl Overhead {
    /// Whether more in flight costs CPU at the 97.5 % level.
    pub fn is_seen(&self) -> bool {
        self.slope_s > 1.96 * self.error_s
    }
}

/// The slope of D versus N by least squares weighted with the inverse variances (digest of A: "overhead = slope of D versus N").
///
/// # Errors
/// [`Refusal::Input`] for what is no CPU time; [`Refusal::NoSpread`] if all are at one number in flight.
pub fn overhead(demands: &[Demand]) -> Result<Overhead, Refusal> {
    let mut sums = Normal::new();
    for demand in demands {
        let in_flight = not_negative("the number in flight", demand.in_flight)?;
        let cpu_s = not_negative("CPU time per request, s,", demand.cpu_s)?;
        let weight = positive("the error of CPU time, s,", demand.error_s)?.powi(-2);
        sums.add([1.0, in_flight], weight, weight * cpu_s);
    }
    let solution = sums.solve().ok_or(Refusal::NoSpread)?;
    let ([idle_s, slope_s], [_, error_s]) = (solution.parameters, solution.errors);
    Ok(Overhead { idle_s, slope_s, error_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_seen_beyond_its_error_only() {
        let demands = |slope: f64| {
            let of = |n: u32| Demand {
                in_flight: f64::from(n),
                cpu_s: 1e-3 + slope * f64::from(n) + if n.is_multiple_of(2) { 2e-5 } else { -2e-5 },
                error_s: 2e-5,
            };
            (1..=20).map(of).collect::<Vec<_>>()
        };
        let grows = overhead(&demands(1e-5)).unwrap();
        assert!(grows.is_seen() && (grows.slope_s - 1e-5).abs() < 2.0 * grows.error_s, "{grows:?}");
        assert!((grows.idle_s - 1e-3).abs() < 3e-5, "{grows:?}");
        assert!(!overhead(&demands(0.0)).unwrap().is_seen());
        assert_eq!(overhead(&demands(0.0)[..1]), Err(Refusal::NoSpread));
        let exact = Demand { error_s: 0.0, ..demands(0.0)[0] };
        assert!(matches!(overhead(&[exact]), Err(Refusal::Input { .. })));
    }
}

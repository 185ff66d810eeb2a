//! The front tier's buffer for bursts and stalls. Owns its size by what was seen and by the paper's rule of thumb;
//! knows no other tier.

use super::equations;
use crate::evidence::{Refusal, not_negative, positive};
use serde::Serialize;

/// Longest stall that a buffer is sized for, s. More than that no pool should hold back: clients' first retry came
/// after 1 s, and answers are late then whatever waits.
pub const STALL_MAX_S: f64 = 2.0;

/// What the front tier has to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrontLoad {
    /// λ, arrivals per second in the mean.
    pub rate: f64,
    /// λ(p99.9), arrivals per second in the busiest windows.
    pub rate_peak: f64,
    /// S, p99 of the stalls of what is behind it, s.
    pub stall_s: f64,
    /// How long a request holds a worker, until the client has closed where that counts, s.
    pub hold_s: f64,
    /// What the kernel's queue takes beside the workers, requests.
    pub backlog: u32,
    /// What Algorithm 1 gives the tier without a buffer, threads.
    pub least_threads: f64,
}

/// Workers of the front tier.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Buffer {
    /// λ(p99.9)·S + λ·hold − backlog, and no fewer than λ·hold and the least threads: workers that are needed without a stall.
    pub workers: f64,
    /// A's 3 and 4 times the least threads, which its authors found for a normally distributed rate; for comparison only.
    pub rule_of_thumb: (f64, f64),
    /// Whether stalls were longer than [`STALL_MAX_S`]: what is beyond is dropped whatever the size.
    pub is_stall_cut: bool,
}

/// Sizes the buffer. A stall holds back what arrives in it, above what is served at a time without one.
///
/// # Errors
/// [`Refusal::Input`] for what is no rate, time or number of threads.
pub fn front_buffer(load: &FrontLoad) -> Result<Buffer, Refusal> {
    let rate = not_negative("the rate of arrivals, 1/s,", load.rate)?;
    let rate_peak = not_negative("the peak rate of arrivals, 1/s,", load.rate_peak)?;
    let stall_s = not_negative("a stall, s,", load.stall_s)?;
    let hold_s = not_negative("hold time, s,", load.hold_s)?;
    let least = positive("the least number of threads", load.least_threads)?;
    let usual = equations::queued(rate, hold_s);
    let held_back = equations::queued(rate_peak, stall_s.min(STALL_MAX_S));
    let workers = (held_back + usual - f64::from(load.backlog)).max(usual).max(least);
    Ok(Buffer { workers, rule_of_thumb: (3.0 * least, 4.0 * least), is_stall_cut: stall_s > STALL_MAX_S })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: FrontLoad = FrontLoad {
        rate: 800.0,
        rate_peak: 1000.0,
        stall_s: 0.4,
        hold_s: 0.05,
        backlog: 128,
        least_threads: 60.0,
    };

    #[test]
    fn a_stall_holds_back_what_arrives_in_it() {
        let found = front_buffer(&LOAD).unwrap();
        assert!((found.workers - (400.0 + 40.0 - 128.0)).abs() < 1e-9, "{found:?}");
        assert_eq!((found.rule_of_thumb, found.is_stall_cut), ((180.0, 240.0), false));
    }

    #[test]
    fn a_large_backlog_takes_no_worker_that_is_needed_anyway() {
        let found = front_buffer(&FrontLoad { backlog: 4096, ..LOAD }).unwrap();
        assert!((found.workers - 60.0).abs() < 1e-9, "{found:?}");
        let busy = front_buffer(&FrontLoad { backlog: 4096, hold_s: 0.5, ..LOAD }).unwrap();
        assert!((busy.workers - 400.0).abs() < 1e-9, "{busy:?}");
    }

    #[test]
    fn no_buffer_is_for_a_stall_of_minutes() {
        let found = front_buffer(&FrontLoad { stall_s: 300.0, ..LOAD }).unwrap();
        assert!(found.is_stall_cut && (found.workers - (2000.0 + 40.0 - 128.0)).abs() < 1e-9, "{found:?}");
        for wrong in [
            FrontLoad { rate: -1.0, ..LOAD },
            FrontLoad { rate_peak: f64::NAN, ..LOAD },
            FrontLoad { stall_s: f64::INFINITY, ..LOAD },
            FrontLoad { least_threads: 0.0, ..LOAD },
        ] {
            assert!(matches!(front_buffer(&wrong), Err(Refusal::Input { .. })), "{wrong:?}");
        }
    }
}

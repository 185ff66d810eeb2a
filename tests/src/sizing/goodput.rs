//! Goodput: answers within a limit of time, second by second, from the clients' log and nothing else. Pure; knows no lab and no advice.

use crate::load::{Outcome, Request};
use serde::{Deserialize, Serialize};

/// A request answered later has not been served, ms: what a user puts up with, and the literature's agreement (TOMPECS'19 uses both).
pub const SLA_MS: [u64; 2] = [500, 3_000];
const SECOND_NS: u64 = 1_000_000_000;

/// One second of planned arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Requests that were to arrive in it.
    pub arrived: u32,
    /// Those of them that were answered with status 200 within each of [`SLA_MS`] of their planned arrival.
    pub within: [u32; 2],
}

/// One load on one pool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// The pool.
    pub pool: u32,
    /// Load, of the capacity.
    pub load: f64,
    /// From 1.
    pub repeat: u32,
    /// Its measured seconds.
    pub blocks: Vec<Block>,
    /// CPUs that the load generator took.
    pub client_cores: f64,
    /// How late the load generator sent the 99th of 100 requests, µs.
    pub lateness_p99_us: u64,
    /// Share of all CPU time that the hypervisor took, 0 to 1.
    pub steal_ratio: f64,
    /// CPUs that programs outside the lab took.
    pub other_cores: f64,
    /// What the critical tier took of its quota, 0 to 1, while the last answers were waited for, too: less than in the measured seconds.
    pub critical_ratio: f64,
}

impl Run {
    /// Answers a second within the limit `sla` (index of [`SLA_MS`]); 0 of a run without a measured second.
    #[must_use]
    pub fn goodput(&self, sla: usize) -> f64 {
        let good: u64 = self.blocks.iter().map(|block| u64::from(block.within[sla])).sum();
        good as f64 / self.blocks.len().max(1) as f64
    }
}

/// What the best pool of a sweep is chosen by, and others may be trained by: a point for each odd repeat under the largest load, of the pool and its answers
/// a second within the longest limit; those without an answer are left out.
#[must_use]
pub fn training(runs: &[Run]) -> Vec<(u32, f64)> {
    let most = runs.iter().map(|run| run.load).fold(0.0, f64::max);
    let trained = runs.iter().filter(|run| run.repeat % 2 == 1 && run.load >= most);
    trained
        .map(|run| (run.pool, run.goodput(SLA_MS.len() - 1)))
        .filter(|(_, goodput)| *goodput > 0.0)
        .collect()
}

/// Of the pools of a training the nearest to `in_flight`, by their ratio; none of none.
#[must_use]
pub fn nearest(training: &[(u32, f64)], in_flight: f64) -> Option<u32> {
    let apart = |pool: u32| (f64::from(pool).ln() - in_flight.ln()).abs();
    training.iter().map(|(pool, _)| *pool).min_by(|a, b| apart(*a).total_cmp(&apart(*b)))
}

/// The measured seconds of a load: requests whose planned arrival was in the `seconds` after `from_unix_ns`.
#[must_use]
pub fn blocks(requests: &[Request], from_unix_ns: u64, seconds: u32) -> Vec<Block> {
    let mut blocks = vec![Block { arrived: 0, within: [0; 2] }; seconds as usize];
    for request in requests {
        let Some(since) = request.start_unix_ns.checked_sub(from_unix_ns) else { continue };
        let Some(block) = blocks.get_mut(usize::try_from(since / SECOND_NS).unwrap_or(usize::MAX)) else {
            continue;
        };
        block.arrived += 1;
        let is_answered = request.outcome == Outcome::Answered && request.status == 200;
        for (within, limit_ms) in block.within.iter_mut().zip(SLA_MS) {
            *within += u32::from(is_answered && request.time_ns() <= limit_ms * 1_000_000);
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_answers_in_time_of_the_measured_seconds_count() {
        let request = |at_ms: u64, took_ms: u64, status, outcome| Request {
            start_unix_ns: (10_000 + at_ms) * 1_000_000,
            issued_unix_ns: 0,
            connected_unix_ns: 0,
            end_unix_ns: (10_000 + at_ms + took_ms) * 1_000_000,
            status,
            bytes: 1,
            outcome,
        };
        let requests = [
            request(900, 1, 200, Outcome::Answered), // in the warm-up
            request(1_000, 500, 200, Outcome::Answered),
            request(1_500, 501, 200, Outcome::Answered),
            request(1_600, 3_001, 200, Outcome::Answered),
            request(2_100, 1, 503, Outcome::Answered),
            request(2_200, 1, 200, Outcome::Broken),
            request(3_000, 1, 200, Outcome::Answered), // behind the last
        ];
        let blocks = blocks(&requests, 11_000_000_000, 2);
        assert_eq!(blocks, [Block { arrived: 3, within: [1, 2] }, Block { arrived: 2, within: [0, 0] }]);
    }
}

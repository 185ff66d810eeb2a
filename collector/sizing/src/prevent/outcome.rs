//! What came of a replay: drops of each tier, response times of the first attempts that are judged, goodput, and which queue was full first.
//! Owns how these are counted; knows no search.

use super::chain::{Chain, WINDOW_S};
use std::collections::BTreeMap;

/// Requests that were answered in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goodput {
    /// What is in time, s.
    pub within_s: f64,
    /// Answers in time per second of the windows that are judged.
    pub per_second: f64,
    /// Part of the first attempts, 0 to 1.
    pub ratio: f64,
}

/// See above. Times are those of the first attempts that are judged, from the first SYN to the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Packets that each tier dropped while arrivals are known.
    pub drops: Vec<u64>,
    /// First attempts that are judged.
    pub judged: u64,
    /// Of those, never answered: each retry was dropped, too.
    pub given_up: u64,
    /// Half of them took no longer; `None`: those are given up.
    pub p50_s: Option<f64>,
    /// 99 of 100 took no longer; `None`: more are given up.
    pub p99_s: Option<f64>,
    /// The longest; `None`: one is given up.
    pub max_s: Option<f64>,
    /// For each bound that was asked for.
    pub goodput: Vec<Goodput>,
    /// The tier that dropped first, and when, s.
    pub first_overflow: Option<(usize, f64)>,
    /// Most requests that waited for a worker in one server of each tier.
    pub deepest: Vec<u32>,
    /// Most requests that one server of each tier had, waiting or not.
    pub fullest: Vec<u32>,
}

impl Outcome {
    /// Packets that all tiers dropped.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}

/// What is counted while a replay goes on.
#[derive(Debug)]
pub(super) struct Tally {
    /// Drops of each tier by window.
    drops: Vec<BTreeMap<usize, u64>>,
    /// Of each request in its order; `None`: not answered.
    response_s: Vec<Option<f64>>,
    first_overflow: Option<(usize, f64)>,
    deepest: Vec<u32>,
    fullest: Vec<u32>,
}

impl Tally {
    pub(super) fn new(chain: &Chain, requests: usize) -> Self {
        let tiers = chain.tiers.len();
        Self {
            drops: vec![BTreeMap::new(); tiers],
            response_s: vec![None; requests],
            first_overflow: None,
            deepest: vec![0; tiers],
            fullest: vec![0; tiers],
        }
    }

    pub(super) fn dropped(&mut self, tier: usize, at_s: f64) {
        *self.drops[tier].entry((at_s / WINDOW_S) as usize).or_default() += 1;
        self.first_overflow.get_or_insert((tier, at_s));
    }

    pub(super) fn has(&mut self, tier: usize, requests: usize) {
        self.fullest[tier] = self.fullest[tier].max(u32::try_from(requests).unwrap_or(u32::MAX));
    }

    pub(super) fn waits(&mut self, tier: usize, depth: usize) {
        self.deepest[tier] = self.deepest[tier].max(u32::try_from(depth).unwrap_or(u32::MAX));
    }

    pub(super) fn answered(&mut self, request: u32, response_s: f64) {
        self.response_s[request as usize] = Some(response_s);
    }

    /// `within_s`: the bounds of goodput.
    pub(super) fn outcome(self, chain: &Chain, within_s: &[f64]) -> Outcome {
        let before: u64 = chain.first_attempts[..chain.judged.start].iter().map(|n| u64::from(*n)).sum();
        let judged: u64 = chain.first_attempts[chain.judged.clone()].iter().map(|n| u64::from(*n)).sum();
        let of = usize::try_from(before).unwrap_or(usize::MAX)..usize::try_from(before + judged).unwrap_or(0);
        let own = self.response_s.get(of).unwrap_or_default();
        let mut answered: Vec<f64> = own.iter().flatten().copied().collect();
        answered.sort_by(f64::total_cmp);
        // Those that are given up come after all others.
        let at = |part: f64| answered.get(((own.len() as f64 * part).ceil() as usize).max(1) - 1).copied();
        let span_s = chain.judged.len() as f64 * WINDOW_S;
        let goodput = within_s.iter().map(|within_s| {
            let n = answered.partition_point(|took| took <= within_s) as f64;
            let ratio = if own.is_empty() { 0.0 } else { n / own.len() as f64 };
            Goodput { within_s: *within_s, per_second: n / span_s, ratio }
        });
        let known = chain.first_attempts.len();
        let drops = self.drops.iter().map(|by| by.range(..known).map(|(_, n)| n).sum()).collect();
        Outcome {
            drops,
            judged,
            given_up: (own.len() - answered.len()) as u64,
            p50_s: at(0.5),
            p99_s: at(0.99),
            max_s: at(1.0),
            goodput: goodput.collect(),
            first_overflow: self.first_overflow.filter(|(_, at_s)| *at_s < chain.span_s()),
            deepest: self.deepest,
            fullest: self.fullest,
        }
    }
}

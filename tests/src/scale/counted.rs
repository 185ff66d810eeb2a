//! What the agents of a run saw, added up. Knows no agent.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Kinds of what went wrong that are kept.
const REASONS_MAX: usize = 32;

/// A spread of times.
#[derive(Debug)]
pub struct Spread(Mutex<Histogram<u64>>);

impl Default for Spread {
    fn default() -> Self {
        // Two digits of what ends within an hour.
        Self(Mutex::new(Histogram::new_with_bounds(1, 3_600_000_000, 2).expect("these bounds are valid")))
    }
}

impl Spread {
    /// One more, ns.
    pub fn add(&self, ns: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).saturating_record((ns / 1000).max(1));
    }

    /// Milliseconds at a part; `None` if nothing was added.
    #[must_use]
    pub fn ms(&self, part: f64) -> Option<f64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (!all.is_empty()).then(|| all.value_at_quantile(part) as f64 / 1e3)
    }

    /// Begins anew.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Of all agents.
#[derive(Debug, Default)]
pub struct Counted {
    /// Streams that were welcomed.
    pub connected: AtomicU64,
    /// Streams that ended though the agent had not gone, or never began.
    pub refused: AtomicU64,
    /// Batches sent for the first time.
    pub batches: AtomicU64,
    /// Batches that are acknowledged.
    pub acknowledged: AtomicU64,
    /// Batches that the collector did not want.
    pub batches_refused: AtomicU64,
    /// Batches that no longer fit the outbox: an agent would have lost them.
    pub lost: AtomicU64,
    /// From the end of a batch's last window to its acknowledgement.
    pub acknowledgement: Spread,
    /// How much later than due a batch was handed to its connection: this program was behind.
    pub late: Spread,
    /// Agents that are back after all connections went.
    pub back: AtomicU64,
    /// When each was.
    pub back_after: Spread,
    reasons: Mutex<BTreeMap<String, u64>>,
}

impl Counted {
    /// One is back, so long after its connection went.
    pub fn back(&self, ns: u64) {
        self.back_after.add(ns);
        self.back.fetch_add(1, Ordering::Relaxed);
    }

    /// Why something was refused.
    pub fn because(&self, reason: &str) {
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        if reasons.len() < REASONS_MAX || reasons.contains_key(reason) {
            *reasons.entry(reason.to_owned()).or_default() += 1;
        }
    }

    /// Each reason, how often.
    #[must_use]
    pub fn reasons(&self) -> BTreeMap<String, u64> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A counter's value.
    #[must_use]
    pub fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    /// The times begin anew: what was before is no part of the measurement.
    pub fn begin(&self) {
        self.acknowledgement.clear();
        self.late.clear();
    }
}

//! What is true of a history, whoever in it knows: which runs of agents there were, and which of their batches some life of the collector queued
//! for its analysis or refused. Owns no rule of what must be.

use std::collections::BTreeMap;

/// A run of an agent: host and instance.
pub(crate) type RunId = (String, String);

/// Of one host, what the present life of the collector took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) batches: u64,
    pub(crate) windows_lost: u64,
}

/// The truth.
#[derive(Default)]
pub(crate) struct Truth {
    /// Queued by some life of the collector: sequence, with the windows told as lost before it.
    accepted: BTreeMap<RunId, BTreeMap<u64, u64>>,
    /// Refused by some life of the collector.
    refused: BTreeMap<RunId, BTreeMap<u64, u64>>,
    taken: BTreeMap<String, Taken>,
    /// Runs of agents, by host.
    runs: BTreeMap<String, u64>,
    /// A clock was set in this history: honest batches may be refused for a while.
    pub(crate) clocks_were_set: bool,
    /// Messages that found the analysis behind.
    pub(crate) no_room: u64,
}

impl Truth {
    pub(crate) fn begins(&mut self, host: &str) {
        *self.runs.entry(host.to_owned()).or_default() += 1;
    }

    /// Runs of agents that spoke for this host so far.
    pub(crate) fn runs(&self, host: &str) -> u64 {
        self.runs.get(host).copied().unwrap_or(0)
    }

    pub(crate) fn accept(&mut self, run: &RunId, sequence: u64, windows_lost: u64) {
        self.accepted.entry(run.clone()).or_default().insert(sequence, windows_lost);
        let taken = self.taken.entry(run.0.clone()).or_default();
        taken.batches += 1;
        taken.windows_lost += windows_lost;
    }

    pub(crate) fn refuse(&mut self, run: &RunId, sequence: u64, windows_lost: u64) {
        self.refused.entry(run.clone()).or_default().insert(sequence, windows_lost);
    }

    /// All that the collector had in memory is gone.
    pub(crate) fn collector_died(&mut self) {
        self.taken.clear();
    }

    pub(crate) fn is_accepted(&self, run: &RunId, sequence: u64) -> bool {
        self.accepted.get(run).is_some_and(|of| of.contains_key(&sequence))
    }

    pub(crate) fn is_refused(&self, run: &RunId, sequence: u64) -> bool {
        self.refused.get(run).is_some_and(|of| of.contains_key(&sequence))
    }

    pub(crate) fn refused_anything(&self, run: &RunId) -> bool {
        self.refused.contains_key(run)
    }

    /// Windows that batches of this run told as lost.
    pub(crate) fn told_lost(&self, run: &RunId) -> u64 {
        self.accepted.get(run).map_or(0, |of| of.values().sum())
    }

    pub(crate) fn taken(&self, host: &str) -> Taken {
        self.taken.get(host).copied().unwrap_or_default()
    }

    pub(crate) fn batches_accepted(&self) -> usize {
        self.accepted.values().map(BTreeMap::len).sum()
    }
}

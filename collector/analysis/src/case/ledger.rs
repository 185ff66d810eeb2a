//! What the tiers of an incident went through from its onset on, window by window, for as long as it lives: the windows themselves leave
//! the history after 20 s. Owns worst values, sums and ends of each tier; a tier takes the same few bytes after hours as after a second.

use crate::frame::history::HISTORY_WINDOWS;
use crate::path::view::View;
use crate::series::sample::{TierSample, tier_sample};
use crate::topology::tier::TierKey;
use std::collections::BTreeMap;
use tailwater_model::incident::{HopLife, HopNow};

/// Tiers of one incident that are accounted for: as many as are listed.
const TIERS_MAX: usize = 16;

/// One tier of one incident.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Account {
    first: u64,
    last: u64,
    /// Windows of it that did not come: what happened in them is not in the sums.
    missing: u64,
    queued_max: f64,
    workers_busy_max: u32,
    accept_queue_max: u32,
    received: u64,
    answered: u64,
    dropped: u64,
    /// The newest window that came.
    now: Option<(u64, TierSample)>,
}

/// The tiers of one incident.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    accounts: BTreeMap<TierKey, Account>,
}

impl Ledger {
    /// Takes window `now` of a tier; if it is a new one, all from `from` on that is remembered.
    pub(crate) fn take(&mut self, view: View<'_>, key: &TierKey, from: u64, now: u64) {
        let from = match self.accounts.get(key) {
            Some(account) => account.last.saturating_add(1),
            None if self.accounts.len() < TIERS_MAX => from,
            None => return,
        };
        let Some(tier) = view.topology.tiers.get(key) else { return };
        // A jump of the clock leaves nothing to be read in between.
        let from = from.max(now.saturating_sub(HISTORY_WINDOWS as u64));
        let account =
            self.accounts.entry(key.clone()).or_insert_with(|| Account { first: from, ..Account::default() });
        let windows = view.history.windows_of(&key.host);
        for index in from..=now {
            let sample = windows.at(index).map(|window| tier_sample(window, tier));
            account.add(index, sample);
        }
    }

    /// What is told of a tier; `None`: it is not accounted for.
    pub(crate) fn life(&self, view: View<'_>, key: &TierKey) -> Option<HopLife> {
        let account = self.accounts.get(key)?;
        let start_ns = |window| view.history.start_unix_ns(&key.host, window);
        Some(HopLife {
            start_unix_ns: start_ns(account.first),
            end_unix_ns: start_ns(account.last.saturating_add(1)),
            windows_missing: account.missing,
            queued_max: account.queued_max.round() as u64,
            workers_busy_max: account.workers_busy_max,
            accept_queue_max: account.accept_queue_max,
            received: account.received,
            answered: account.answered,
            dropped: account.dropped,
            now: account.now.map(|(window, s)| HopNow {
                start_unix_ns: start_ns(window),
                queued: s.queued_max.round() as u64,
                workers_busy: s.workers_busy_max,
                accept_queue: s.depth_max,
            }),
        })
    }
}

impl Account {
    fn add(&mut self, index: u64, sample: Option<TierSample>) {
        self.last = index;
        let Some(s) = sample else {
            self.missing = self.missing.saturating_add(1);
            return;
        };
        self.queued_max = self.queued_max.max(s.queued_max);
        self.workers_busy_max = self.workers_busy_max.max(s.workers_busy_max);
        self.accept_queue_max = self.accept_queue_max.max(s.depth_max);
        if !s.connections_only {
            self.received = self.received.saturating_add(s.received as u64);
            self.answered = self.answered.saturating_add(s.answered as u64);
        }
        self.dropped = self.dropped.saturating_add(s.drops);
        self.now = Some((index, s));
    }
}

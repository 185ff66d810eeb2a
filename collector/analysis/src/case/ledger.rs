//! What the tiers of an incident went through from its onset on, window by window, for as long as it lives: the windows themselves leave
//! the history after 20 s. Owns worst values, sums and ends of each tier; a tier takes the same few bytes after hours as after a second, and beside them those of its slowest requests (`slowest.rs`).

use super::slowest::Slowest;
use super::very_long::{Beside, Usual};
use crate::frame::history::HISTORY_WINDOWS;
use crate::path::view::View;
use crate::series::sample::{TierSample, tier_sample};
use crate::topology::tier::{Tier, TierKey};
use std::collections::BTreeMap;
use tailwater_model::incident::{Exemplar, HopLife, HopNow, VeryLong};
use tailwater_model::window::HostWindow;

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
    very_long: Option<VeryLong>,
    /// As many as come anyway, and in how many windows they were counted.
    very_long_usual: Usual,
    very_long_windows: u64,
    /// The newest window that came.
    now: Option<(u64, TierSample)>,
}

/// The tiers of one incident.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    accounts: BTreeMap<TierKey, Account>,
    slowest: BTreeMap<TierKey, Slowest>,
}

impl Ledger {
    /// Takes window `now` of a tier; if it is a new one, all from `from` on that is remembered.
    pub(crate) fn take(&mut self, view: View<'_>, key: &TierKey, from: u64, now: u64, beside: Beside<'_>) {
        let from = match self.accounts.get(key) {
            Some(account) => account.last.saturating_add(1),
            None if self.accounts.len() < TIERS_MAX => from,
            None => return,
        };
        let Some(tier) = view.topology.tiers.get(key) else { return };
        // A jump of the clock leaves nothing to be read in between.
        let from = from.max(now.saturating_sub(HISTORY_WINDOWS as u64));
        let windows = view.history.windows_of(&key.host);
        let account = self.accounts.entry(key.clone()).or_insert_with(|| {
            let counted = |index| Some(very_long(windows.at(index)?, tier).unwrap_or_default());
            let usual = Usual::before(from, counted, |index| beside.is_of_another(key, index));
            Account { first: from, very_long_usual: usual, ..Account::default() }
        });
        let is_of_another = |index: u64| beside.is_of_another(key, index);
        let slowest = self
            .slowest
            .entry(key.clone())
            .or_insert_with(|| Slowest::before(windows, tier, account.first, is_of_another));
        for index in from..=now {
            let window = windows.at(index);
            account.add(index, window.map(|window| tier_sample(window, tier)));
            let Some(window) = window else { continue };
            let counted = very_long(window, tier);
            let is_own = !beside.is_none_of_this(key, account.first, index);
            // Nothing of it is known to be this one's, which is not the same as not counted.
            let counted = if is_own { counted } else { counted.map(|_| VeryLong::default()) };
            account.very_long = known_sum(account.very_long, counted);
            account.very_long_windows += u64::from(is_own);
            if is_own {
                slowest.take(index, window, tier);
            }
        }
        slowest.follow(view, key, now);
    }

    /// The slowest requests of a tier, slowest first.
    pub(crate) fn slowest(&self, view: View<'_>, key: &TierKey) -> Vec<Exemplar> {
        self.slowest.get(key).map_or_else(Vec::new, |slowest| slowest.told(view, &key.host))
    }

    /// Very long answers of a tier so far, beyond as many as were usual in the seconds before it began: long polls and reports take as long as ever.
    /// `None`: not counted.
    pub(crate) fn very_long(&self, key: &TierKey) -> Option<VeryLong> {
        let account = self.accounts.get(key)?;
        Some(account.very_long_usual.beyond(account.very_long?, account.very_long_windows))
    }

    /// The tiers that are accounted for.
    pub(crate) fn tiers(&self) -> impl Iterator<Item = &TierKey> + Clone {
        self.accounts.keys()
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
            very_long: account.very_long,
            now: account.now.map(|(window, s)| HopNow {
                start_unix_ns: start_ns(window),
                queued: s.queued_max.round() as u64,
                workers_busy: s.workers_busy_max,
                accept_queue: s.depth_max,
            }),
        })
    }
}

/// Very long answers of a tier's listeners in one window; `None`: not counted, or its requests are not known.
fn very_long(window: &HostWindow, tier: &Tier) -> Option<VeryLong> {
    let listeners = tier.listeners.iter().filter_map(|l| window.listeners.get(&l.id));
    let of = listeners.filter_map(|l| l.turns()).map(|l| {
        let (retried, queued) = (l.very_long_retried?, l.very_long_queued?);
        Some(VeryLong { retried, queued, unread: l.very_long_unread?, inside: l.very_long_inside? })
    });
    of.fold(None, known_sum)
}

/// What both have, or what one has.
fn known_sum(a: Option<VeryLong>, b: Option<VeryLong>) -> Option<VeryLong> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.and(b)),
        (a, b) => a.or(b),
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

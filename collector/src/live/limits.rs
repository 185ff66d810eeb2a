//! Limits of accept queues, window by window, apart from the windows: they are looked for a minute back where all else that is shown of the
//! present is seconds old, and reading twelve hundred whole windows of each host was most of what an open page cost. Owns no bound: what
//! leaves the windows leaves here.

use super::metric;
use super::recent::Recent;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use tailwater_model::window::{EntityId, HostWindow, SignalSet, WindowIndex};

/// The metric that this is of.
pub(crate) const LIMIT: &str = "accept_queue_limit";

/// Without which signals it is unknown, and which of them must not be polled.
static NEEDS: LazyLock<(SignalSet, SignalSet)> =
    LazyLock::new(|| metric::find(LIMIT).map(|m| (m.needs(), m.needs_hooks())).unwrap_or_default());

/// One host's, by window: limits by listener. A window in which they are unknown is not in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Limits(BTreeMap<u64, Arc<[(EntityId, u32)]>>);

impl Limits {
    /// Takes a window's; of one that was there already, the new ones count.
    pub(super) fn add(&mut self, window: &HostWindow) {
        let index = window.index.0;
        if window.uncovered.meets(NEEDS.0) || window.sampled.meets(NEEDS.1) {
            self.0.remove(&index);
            return;
        }
        let told = || window.listeners.iter().filter(|(_, l)| l.limit > 0).map(|(id, l)| (*id, l.limit));
        // Mostly they are those of the window before, and then kept once.
        let before = index.checked_sub(1).and_then(|before| self.0.get(&before));
        let rows = match before.filter(|rows| rows.iter().copied().eq(told())) {
            Some(same) => Arc::clone(same),
            None => told().collect(),
        };
        self.0.insert(index, rows);
    }

    /// Forgets a window's.
    pub(super) fn remove(&mut self, index: u64) {
        self.0.remove(&index);
    }

    /// Windows in which they are known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Those from `first` to `last`.
    pub(super) fn part(&self, first: WindowIndex, last: WindowIndex) -> Self {
        if first > last {
            return Self::default();
        }
        Self(self.0.range(first.0..=last.0).map(|(index, rows)| (*index, Arc::clone(rows))).collect())
    }

    /// Of these listeners together, from `first` to `last`: what the metric's values of these windows say.
    pub(super) fn of(&self, listeners: &[EntityId], first: WindowIndex, last: WindowIndex) -> Recent {
        if first > last {
            return Recent::default();
        }
        let mut known: Option<(&Arc<[_]>, f64)> = None;
        Recent::over(self.0.range(first.0..=last.0).map(|(_, rows)| match known {
            Some((same, value)) if Arc::ptr_eq(same, rows) => value,
            _ => {
                let own = rows.iter().filter(|(id, _)| listeners.contains(id));
                let value = f64::from(own.fold(0_u32, |sum, (_, limit)| sum.saturating_add(*limit)));
                known = Some((rows, value));
                value
            }
        }))
    }
}

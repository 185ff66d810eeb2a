//! Waves of drops that an open case took, for as long as they may turn out to be an incident of their own: how the case was before each of
//! them, and what was dropped since, so that both sides can be counted as if the wave had never been taken. Owns that; finds no cause.

use super::settled::Settled;
use super::sustain::Kept;
use super::trigger::Trigger;
use crate::episode::drop::{DropCounts, Dropped};
use crate::path::view::AFTER_WINDOWS;
use crate::topology::tier::TierKey;
use std::collections::{BTreeMap, VecDeque};
use tailwater_model::window::Host;

/// What a case had counted and said before a wave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Before {
    pub(super) drops: DropCounts,
    pub(super) retransmits: BTreeMap<Host, u64>,
    pub(super) last_active: u64,
    pub(super) settled: Settled,
    pub(super) sustained: Option<(TierKey, u64, Kept)>,
    pub(super) again: bool,
}

impl Before {
    /// Window of the newest drop.
    pub(super) fn last_drop(&self) -> Option<u64> {
        self.drops.values().map(|d| d.last).max()
    }
}

/// One wave that a case took.
#[derive(Debug, Clone)]
pub(crate) struct Wave {
    /// The window of its first drop.
    pub(super) first: u64,
    /// What would have opened an incident of its own, and the id that it would have.
    pub(super) trigger: Trigger,
    pub(super) id: String,
    pub(super) before: Before,
}

/// As many begin after half a second without drops, while one of them is looked at; more than that come from others who are dropped a moment after.
const WAVES_MOST: usize = 6;

/// The waves of one case that are still looked at, oldest first. A wave begins after half a second without drops, or after a moment while there are
/// less than [`WAVES_MOST`], and is looked at for 3 s, so they are few, and so are the windows of drops since the first of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waves {
    waves: VecDeque<Wave>,
    taken: VecDeque<(u64, Vec<Dropped>)>,
}

/// What leaves a case with a wave.
#[derive(Debug, Clone)]
pub(crate) struct Apart {
    pub(super) wave: Wave,
    /// Drops since it began, by window.
    pub(super) taken: Vec<(u64, Vec<Dropped>)>,
    /// Waves that came after it.
    pub(super) later: Vec<Wave>,
}

impl Waves {
    pub(super) fn begin(&mut self, wave: Wave) {
        self.waves.push_back(wave);
    }

    /// Whether one may begin after a moment.
    pub(super) fn have_room(&self) -> bool {
        self.waves.len() < WAVES_MOST
    }

    /// Whether one began in window `now`.
    pub(super) fn began(&self, now: u64) -> bool {
        self.waves.back().is_some_and(|wave| wave.first == now)
    }

    /// Keeps what was dropped in window `now`, while a wave is looked at.
    pub(super) fn take(&mut self, now: u64, dropped: &[&Dropped]) {
        if !self.waves.is_empty() {
            self.taken.push_back((now, dropped.iter().map(|d| (*d).clone()).collect()));
        }
    }

    /// Forgets the waves that are judged for good: 3 s after its first drop a wave belongs to whom it belongs.
    pub(super) fn forget(&mut self, now: u64) {
        self.waves.retain(|wave| now <= wave.first.saturating_add(AFTER_WINDOWS));
        let from = self.waves.front().map_or(u64::MAX, |wave| wave.first);
        self.taken.retain(|(window, _)| *window >= from);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Wave> {
        self.waves.iter()
    }

    /// Takes the wave at `index` out, and all that came since.
    pub(super) fn split_off(&mut self, index: usize) -> Option<Apart> {
        let mut later = self.waves.split_off(index.min(self.waves.len()));
        let wave = later.pop_front()?;
        let at = self.taken.partition_point(|(window, _)| *window < wave.first);
        let taken = self.taken.split_off(at).into();
        Some(Apart { wave, taken, later: later.into() })
    }
}

/// What was counted beyond `before`.
pub(super) fn beyond(counted: &BTreeMap<Host, u64>, before: &BTreeMap<Host, u64>) -> BTreeMap<Host, u64> {
    counted
        .iter()
        .map(|(host, count)| (host.clone(), count.saturating_sub(before.get(host).copied().unwrap_or(0))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Level;
    use crate::episode::fixture;

    fn dropped() -> Dropped {
        fixture::dropped(3, 0, 0)
    }

    /// Waves that began at these windows, each with drops in two windows.
    fn waves(firsts: &[u64]) -> Waves {
        let mut waves = Waves::default();
        for first in firsts {
            let trigger = Trigger { tier: dropped().tier, level: Level::Drop, ratio: 1.0 };
            waves.begin(Wave { first: *first, trigger, id: first.to_string(), before: Before::default() });
            waves.take(*first, &[&dropped()]);
            waves.take(first + 1, &[&dropped()]);
        }
        waves
    }

    fn firsts<'a>(of: impl IntoIterator<Item = &'a Wave>) -> Vec<u64> {
        of.into_iter().map(|wave| wave.first).collect()
    }

    #[test]
    fn a_wave_leaves_with_all_that_came_since() {
        let mut waves = waves(&[100, 120, 140]);
        let apart = waves.split_off(1).unwrap();
        assert_eq!((apart.wave.first, firsts(&apart.later)), (120, vec![140]));
        assert_eq!(apart.taken.iter().map(|(w, _)| *w).collect::<Vec<_>>(), [120, 121, 140, 141]);
        assert_eq!(firsts(waves.iter()), [100]);
        assert_eq!(waves.taken.iter().map(|(w, _)| *w).collect::<Vec<_>>(), [100, 101]);
        assert!(waves.split_off(1).is_none());
    }

    #[test]
    fn what_is_judged_for_good_is_forgotten() {
        let mut waves = waves(&[100, 120]);
        waves.forget(100 + AFTER_WINDOWS);
        assert_eq!(firsts(waves.iter()), [100, 120]);
        waves.forget(101 + AFTER_WINDOWS);
        assert_eq!((firsts(waves.iter()), waves.taken.len()), (vec![120], 2));
        waves.forget(121 + AFTER_WINDOWS);
        assert_eq!((waves.waves.len(), waves.taken.len()), (0, 0));
        waves.take(300, &[&dropped()]);
        assert!(waves.taken.is_empty(), "without a wave to judge nothing is kept");
    }
}

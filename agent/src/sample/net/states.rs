//! Time in state: how long each listener had each number of requests in flight since it was read before, and how many answers
//! ended it. Owns reading the kernel's sums while they grow, and their differences; knows neither windows' logs nor who a
//! slot is.

use super::listeners::Levels;
use crate::attach::loader::{LoadError, LoadedObject};
use crate::attach::mapping::Mapping;
use crate::window::{StateCell, WINDOW_NS, WindowIndex};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use tailwater_ebpf::net::{SLOT_OTHER, STATE_BINS, STATES_WORDS, listener_edge, state_bin};

/// Windows between two readings: a second. Sizing asks for stretches that are longer than a burst.
const EVERY_WINDOWS: u64 = 20;
/// Readings of a listener whose number changes meanwhile, before what has begun since its last change is left to the next second.
const TRIES: usize = 4;

/// What one slot did, by bin, rising.
pub(super) type OfSlot = (u32, Vec<StateCell>);

/// Sums of one listener, by bin.
type Sums = [StateSum; STATE_BINS];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct StateSum {
    /// Below zero for a moment where two CPUs' clocks differ by more than the state lasted.
    time_ns: i64,
    answered: u64,
}

/// What was told of a listener.
struct Told {
    sums: Box<Sums>,
    /// Time that was told and turned out to be another number's, ns.
    early_ns: u64,
}

impl Default for Told {
    fn default() -> Self {
        Self { sums: Box::new([StateSum::default(); STATE_BINS]), early_ns: 0 }
    }
}

/// The kernel's sums, and what of them was told.
pub(super) struct States {
    levels: Levels,
    sums: Mapping,
    entities: u32,
    /// By slot, of those that had a request.
    told: HashMap<u32, Told>,
    /// The last window that was told; none: nothing was read yet, or windows were skipped.
    last: Option<WindowIndex>,
    /// Unix time minus CLOCK_MONOTONIC.
    epoch_offset_ns: i64,
}

impl States {
    pub(super) fn open(
        object: &mut LoadedObject,
        entities: u32,
        epoch_offset_ns: i64,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            levels: Levels::open(object, entities)?,
            sums: object.mapping("listener_states", entities as usize * STATES_WORDS * 8)?,
            entities,
            told: HashMap::new(),
            last: None,
            epoch_offset_ns,
        })
    }

    pub(super) fn set_epoch_offset_ns(&mut self, offset_ns: i64) {
        self.epoch_offset_ns = offset_ns;
        // The windows are others now: the stretch that has begun has no length by them.
        self.last = None;
    }

    /// What is summed up by now belongs to windows that nobody is told of.
    pub(super) fn skip(&mut self) {
        self.last = None;
    }

    /// Each slot with what it did since the reading before, once a second; with the number of windows since then. None in the other
    /// windows, and where the reading only begins a stretch.
    pub(super) fn drain(&mut self, window: WindowIndex) -> Option<(u32, Vec<OfSlot>)> {
        if !window.0.is_multiple_of(EVERY_WINDOWS) && self.last.is_some() {
            return None;
        }
        let before = self.last.replace(window);
        let end_ns = ((window.0 + 1) * WINDOW_NS).saturating_add_signed(-self.epoch_offset_ns);
        let mut all = Vec::new();
        // What is beyond the caps shares a slot, and so a number in flight that is nobody's.
        for slot in SLOT_OTHER + 1..self.entities {
            if self.levels.of(slot).changed_ns == 0 {
                continue;
            }
            let now = self.read(slot, end_ns);
            let cells = since(self.told.entry(slot).or_default(), &now);
            if !cells.is_empty() {
                all.push((slot, cells));
            }
        }
        let windows = window.0.saturating_sub(before?.0);
        u32::try_from(windows).ok().filter(|n| *n > 0).map(|windows| (windows, all))
    }

    fn sums(&self, slot: u32) -> Sums {
        let word = |i| self.sums.word(slot as usize * STATES_WORDS + i).load(Ordering::Acquire);
        std::array::from_fn(|bin| StateSum {
            time_ns: word(2 * bin).cast_signed(),
            answered: word(2 * bin + 1),
        })
    }

    /// The sums up to `end_ns`, or to now where the number changed since: what lasts is only in them once it is over.
    fn read(&self, slot: u32, end_ns: u64) -> Sums {
        for _ in 0..TRIES {
            let level = self.levels.of(slot);
            let mut sums = self.sums(slot);
            if self.levels.of(slot).changed_ns != level.changed_ns {
                continue;
            }
            let in_flight = u32::try_from(level.levels[listener_edge::IN_FLIGHT]).unwrap_or(0);
            if in_flight > 0 {
                let lasts_ns = end_ns.saturating_sub(level.changed_ns).cast_signed();
                let sum = &mut sums[state_bin(in_flight)].time_ns;
                *sum = sum.saturating_add(lasts_ns);
            }
            return sums;
        }
        self.sums(slot)
    }
}

/// What came to the sums since they were told, which is told now. A sum that has shrunk was told too early: what lasted was told of the number
/// that there was, and when it ended two CPUs changed the number at once and booked it to the one beside it. So much is taken off what is
/// told next, from the largest: the time of all numbers together stays that of the clock.
fn since(told: &mut Told, now: &Sums) -> Vec<StateCell> {
    let mut cells = Vec::new();
    for (bin, (told_sum, now)) in (0_u8..).zip(told.sums.iter_mut().zip(now)) {
        let step_ns = now.time_ns.saturating_sub(told_sum.time_ns);
        let cell = StateCell {
            bin,
            time_ns: u64::try_from(step_ns).unwrap_or(0),
            answered: now.answered.saturating_sub(told_sum.answered),
        };
        told.early_ns = told.early_ns.saturating_add(u64::try_from(-step_ns).unwrap_or(0));
        *told_sum = *now;
        if bin > 0 && (cell.time_ns > 0 || cell.answered > 0) {
            cells.push(cell);
        }
    }
    while told.early_ns > 0 {
        let Some(largest) = cells.iter_mut().max_by_key(|cell| cell.time_ns).filter(|cell| cell.time_ns > 0)
        else {
            break;
        };
        let off_ns = told.early_ns.min(largest.time_ns);
        largest.time_ns -= off_ns;
        told.early_ns -= off_ns;
    }
    cells.retain(|cell| cell.time_ns > 0 || cell.answered > 0);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_ebpf::net::ListenerLevel;

    fn states(entities: u32) -> States {
        let slots = entities as usize;
        States {
            levels: Levels(Mapping::anonymous(slots * ListenerLevel::WORDS * 8)),
            sums: Mapping::anonymous(slots * STATES_WORDS * 8),
            entities,
            told: HashMap::new(),
            last: None,
            epoch_offset_ns: 0,
        }
    }

    fn set(states: &States, slot: usize, in_flight: u64, changed_ns: u64) {
        states.levels.0.store(slot * ListenerLevel::WORDS, in_flight);
        states.levels.0.store(slot * ListenerLevel::WORDS + 6, changed_ns);
    }

    #[test]
    fn what_lasts_is_told_second_by_second_and_never_twice() {
        let mut s = states(3);
        set(&s, 2, 128, 1_000_000_000);
        assert_eq!(s.drain(WindowIndex(20)), None, "a stretch begins");
        let second = |s: &mut States, window| s.drain(WindowIndex(window));
        assert_eq!(second(&mut s, 30), None, "not its turn");
        let cell = |bin, time_ns, answered| StateCell { bin, time_ns, answered };
        assert_eq!(second(&mut s, 40), Some((20, vec![(2, vec![cell(40, 1_000_000_000, 0)])])));
        // It ended after 2,600 ms, was idle, and 3 were in flight at the end for 100 ms.
        let base = 2 * STATES_WORDS;
        s.sums.store(base + 80, 1_600_000_000);
        s.sums.store(base + 81, 5);
        set(&s, 2, 3, 2_950_000_000);
        assert_eq!(
            second(&mut s, 60),
            Some((20, vec![(2, vec![cell(3, 100_000_000, 0), cell(40, 550_000_000, 5)])]))
        );
        set(&s, 2, 0, 3_000_000_000);
        assert_eq!(second(&mut s, 80), Some((20, Vec::new())), "told, and nothing was in flight");
    }

    #[test]
    fn what_was_told_too_early_is_taken_off_what_is_told_next() {
        let of = |one, two| {
            let mut sums = [StateSum::default(); STATE_BINS];
            sums[1] = StateSum { time_ns: one, answered: 0 };
            sums[2] = StateSum { time_ns: two, answered: 0 };
            sums
        };
        let mut told = Told::default();
        let mut total = |steps: &[(i64, i64)]| -> u64 {
            steps.iter().flat_map(|(one, two)| since(&mut told, &of(*one, *two))).map(|c| c.time_ns).sum()
        };
        // A sum may be below zero for a moment.
        assert_eq!(total(&[(-1, 0), (50, 0), (40, 0), (45, 0), (70, 0)]), 70);
        // 1,000 were told of two that lasted; both ended at once, and 2,400 were booked to one.
        assert_eq!(total(&[(70, 1_000), (2_470, 0)]), 2_400);
        assert_eq!(total(&[(2_480, 5)]), 15);
    }

    #[test]
    fn skipped_windows_are_in_no_stretch() {
        let mut s = states(2);
        set(&s, 1, 1, 50_000_000);
        s.drain(WindowIndex(20));
        s.skip();
        assert_eq!(s.drain(WindowIndex(33)), None, "a stretch begins again");
        assert_eq!(s.drain(WindowIndex(40)).map(|(windows, _)| windows), Some(7));
    }
}

//! From the wire's time in state to the model's, and what cannot be refused. Called by `convert` alone; knows no window.

use super::place::{PlaceError, in_batch};
use crate::ingest::sanity::{Absurd, EVENTS_MAX};
use tailwater_model::window::{EntityId, ListenerStates, StateCell, WINDOW_NS};
use tailwater_proto::v1::InFlightStates;

/// Bins of requests in flight.
const BINS: u32 = 80;
/// Windows that one message may be about: as old as a window may be.
const WINDOWS_MAX: u32 = 300 * 20;
/// Windows by which a reading may lie after the last of those that it is about: what an agent keeps of windows.
const LATE_WINDOWS: u64 = 64;

/// Why time in state is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatesError {
    /// In no window of its batch.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Of no window, or of more than an agent keeps.
    #[error("time in state of {windows} windows: it must be 1 to {WINDOWS_MAX}")]
    Windows {
        /// How many it says.
        windows: u32,
    },
    /// Bins that are none, or not one value for each.
    #[error(
        "time in state of listener {listener}: bins must rise below {BINS}, with a time and a number of answers each"
    )]
    Bins {
        /// Id on the wire.
        listener: u32,
    },
    /// More time than there was, or more answers than a machine gives.
    #[error(transparent)]
    Absurd(#[from] Absurd),
}

/// What each listener did. `known` gives the id of theirs; a listener without is left out.
pub(super) fn listeners(
    states: &InFlightStates,
    count: u32,
    mut known: impl FnMut(u32) -> Option<EntityId>,
) -> Result<Vec<ListenerStates>, StatesError> {
    in_batch("time in state", states.window_offset, count)?;
    let windows = states.windows;
    if windows == 0 || windows > WINDOWS_MAX {
        return Err(StatesError::Windows { windows });
    }
    let mut all = Vec::new();
    for of in &states.listeners {
        let entity = of.listener;
        let whole = of.time_ns.len() == of.bins.len() && of.answered.len() == of.bins.len();
        if !whole || of.bins.iter().any(|bin| *bin >= BINS) || !of.bins.is_sorted_by(|a, b| a < b) {
            return Err(StatesError::Bins { listener: entity });
        }
        let value = of.time_ns.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
        let bound = (u64::from(windows) + LATE_WINDOWS) * WINDOW_NS;
        if value > bound {
            return Err(Absurd::Value { metric: "ListenerStates.time_ns", entity, value, bound }.into());
        }
        let bound = EVENTS_MAX * u64::from(windows);
        if let Some(value) = of.answered.iter().copied().find(|n| *n > bound) {
            return Err(Absurd::Value { metric: "ListenerStates.answered", entity, value, bound }.into());
        }
        let Some(listener) = known(entity).filter(|id| *id != 0) else { continue };
        let values = of.bins.iter().zip(&of.time_ns).zip(&of.answered);
        // Below 80, as was looked at.
        let cells = values.map(|((bin, ns), n)| StateCell { bin: *bin as u8, time_ns: *ns, answered: *n });
        all.push(ListenerStates { listener, cells: cells.collect() });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_proto::v1;

    fn of(bins: &[u32], time_ns: &[u64], answered: &[u64]) -> InFlightStates {
        let (bins, time_ns, answered) = (bins.into(), time_ns.into(), answered.into());
        let listeners = vec![v1::ListenerStates { listener: 7, bins, time_ns, answered }];
        InFlightStates { window_offset: 1, windows: 20, listeners }
    }

    #[test]
    fn cells_come_in_the_order_of_their_bins() {
        let got = listeners(&of(&[1, 40], &[5, 6], &[2, 0]), 2, |id| Some(id + 1)).unwrap();
        let cell = |bin, time_ns, answered| StateCell { bin, time_ns, answered };
        assert_eq!(got, [ListenerStates { listener: 8, cells: vec![cell(1, 5, 2), cell(40, 6, 0)] }]);
        assert_eq!(listeners(&of(&[1], &[5], &[2]), 2, |_| None), Ok(Vec::new()), "too many names");
    }

    #[test]
    fn what_no_second_can_hold_is_refused_by_name() {
        let refused =
            |states: &InFlightStates, count| listeners(states, count, Some).unwrap_err().to_string();
        let good = of(&[1], &[5], &[2]);
        assert_eq!(refused(&good, 1), "time in state in window 1 of 1");
        let none = InFlightStates { windows: 0, ..good.clone() };
        assert_eq!(refused(&none, 2), "time in state of 0 windows: it must be 1 to 6000");
        for wrong in [
            of(&[80], &[5], &[2]),
            of(&[2, 2], &[5, 5], &[2, 2]),
            of(&[2, 1], &[5, 5], &[2, 2]),
            of(&[1], &[], &[2]),
            of(&[1], &[5], &[]),
        ] {
            assert!(refused(&wrong, 2).contains("listener 7: bins must rise below 80"), "{wrong:?}");
        }
        let long = of(&[1, 2], &[u64::MAX, 5], &[2, 2]);
        assert!(refused(&long, 2).contains("ListenerStates.time_ns = 18446744073709551615 in entity 7"));
        assert!(refused(&of(&[1], &[5], &[u64::MAX]), 2).contains("ListenerStates.answered"));
    }
}

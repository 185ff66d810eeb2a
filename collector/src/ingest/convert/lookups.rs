//! From the wire's lookups that wait for servers of names to the model's, and what cannot be refused. Called by `convert` alone; knows no window.

use super::place::{PlaceError, at_most, in_batch};
use super::{ConvertError, address};
use tailwater_model::window::{EntityId, WaitingLookups};
use tailwater_proto::v1;

/// Waiters in one batch: an agent tells 64 of a window, and the largest batch has 64 windows.
const WAITERS_MAX: usize = 64 * 64;
/// An agent takes what waits longer for given up after 30 s.
const LONGEST_MAX_NS: u64 = 60_000_000_000;

/// Why lookups are not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupsError {
    /// In no window of its batch, or more than an agent tells.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// None that waits, or for longer than anybody does.
    #[error("{lookups} lookups that waited {longest_ns} ns: at least one, and at most {LONGEST_MAX_NS} ns")]
    Absurd {
        /// How many.
        lookups: u32,
        /// For how long.
        longest_ns: u64,
    },
}

/// Each with its window in the batch. `known` gives the id of a workload; lookups of one that has none are left out.
pub(super) fn told(
    waiting: &[v1::WaitingLookups],
    count: u32,
    mut known: impl FnMut(u32) -> Option<EntityId>,
) -> Result<Vec<(u32, WaitingLookups)>, ConvertError> {
    at_most("waiters for servers of names in one batch", waiting.len(), WAITERS_MAX)
        .map_err(LookupsError::from)?;
    let mut found = Vec::new();
    for of in waiting {
        let offset = in_batch("lookups of names", of.window_offset, count).map_err(LookupsError::from)?;
        let (lookups, longest_ns) = (of.lookups, of.longest_ns);
        if lookups == 0 || longest_ns > LONGEST_MAX_NS {
            return Err(LookupsError::Absurd { lookups, longest_ns }.into());
        }
        let server = address("WaitingLookups.server", &of.server)?;
        let Some(workload) = known(of.workload) else { continue };
        found.push((offset, WaitingLookups { workload, server, lookups, longest_ns }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_are_taken_and_what_cannot_be_is_refused() {
        let whole = v1::WaitingLookups {
            window_offset: 1,
            workload: 3,
            server: vec![10, 0, 0, 53],
            lookups: 14,
            longest_ns: 1_200_000_000,
        };
        let read = |of: v1::WaitingLookups| told(&[of], 2, |id| (id == 3).then_some(9));
        let found = read(whole.clone()).unwrap();
        assert_eq!((found[0].0, found[0].1.workload, found[0].1.lookups), (1, 9, 14));
        assert_eq!(found[0].1.server.to_string(), "10.0.0.53");
        assert_eq!(read(v1::WaitingLookups { workload: 4, ..whole.clone() }).unwrap(), Vec::new());
        let refused = |of| read(of).unwrap_err().to_string();
        let outside = refused(v1::WaitingLookups { window_offset: 2, ..whole.clone() });
        assert_eq!(outside, "lookups of names in window 2 of 2");
        let none = refused(v1::WaitingLookups { lookups: 0, ..whole.clone() });
        assert!(none.contains("at least one"), "{none}");
        let long = refused(v1::WaitingLookups { longest_ns: LONGEST_MAX_NS + 1, ..whole.clone() });
        assert!(long.contains("at most"), "{long}");
        let nowhere = refused(v1::WaitingLookups { server: vec![1; 5], ..whole.clone() });
        assert!(nowhere.contains("WaitingLookups.server"), "{nowhere}");
        let many = told(&vec![whole; WAITERS_MAX + 1], 2, |_| None).unwrap_err();
        assert!(many.to_string().contains("at most"), "{many}");
    }
}

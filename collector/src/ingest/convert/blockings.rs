//! From the wire's answers of databases about their locks to the model's, and what cannot be refused. Called by `convert` alone; knows no window.

use super::place::{PlaceError, at_most, in_batch};
use tailwater_model::window::{Blocker, Blocking, EntityId};
use tailwater_proto::v1;

/// Answers of one batch: eight databases are asked at most, each no more than once in two windows, and the largest batch has 64.
const BLOCKINGS_MAX: usize = 8 * 32;
/// Holders of one answer.
const BLOCKERS_MAX: usize = 3;
/// Bytes of a statement: an agent keeps 241 characters.
const STATEMENT_MAX: usize = 1_024;
/// Windows that an answer may come later than it was asked for.
const AGO_MAX: u32 = 200;

/// Why answers about locks are not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockingsError {
    /// In no window of its batch, or more than an agent tells.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// It was asked for too long ago.
    #[error("an answer about locks {ago} windows after it was asked for: at most {AGO_MAX}")]
    Ago {
        /// How many windows.
        ago: u32,
    },
}

/// Each with its window in the batch. `known` gives the id of a listener; an answer of one that has none is left out.
pub(super) fn told(
    blockings: &[v1::Blocking],
    count: u32,
    mut known: impl FnMut(u32) -> Option<EntityId>,
) -> Result<Vec<(u32, Blocking)>, BlockingsError> {
    at_most("answers about locks in one batch", blockings.len(), BLOCKINGS_MAX)?;
    let mut found = Vec::new();
    for of in blockings {
        let offset = in_batch("an answer about locks", of.window_offset, count)?;
        let ago = of.windows_ago;
        if ago > AGO_MAX {
            return Err(BlockingsError::Ago { ago });
        }
        at_most("holders of locks in one answer", of.blockers.len(), BLOCKERS_MAX)?;
        for by in &of.blockers {
            at_most("bytes of a statement", by.statement.len(), STATEMENT_MAX)?;
        }
        let Some(listener) = known(of.listener) else { continue };
        let blockers = of.blockers.iter().map(|by| Blocker {
            connection: by.connection,
            waiting: by.waiting,
            idle: by.idle,
            held_ms: by.held_ms,
            statement: by.statement.clone(),
        });
        let blockers = blockers.collect();
        found.push((offset, Blocking { listener, windows_ago: ago, waiting: of.waiting, blockers }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_and_what_cannot_be_is_refused() {
        let by =
            v1::Blocker { connection: 7, waiting: 3, idle: true, held_ms: Some(5), statement: "A".into() };
        let whole = v1::Blocking {
            window_offset: 1,
            windows_ago: 2,
            listener: 3,
            waiting: 4,
            blockers: vec![by.clone()],
        };
        let read = |of: v1::Blocking| told(&[of], 2, |id| (id == 3).then_some(9));
        let found = read(whole.clone()).unwrap();
        assert_eq!((found[0].0, found[0].1.listener, found[0].1.blockers[0].held_ms), (1, 9, Some(5)));
        assert_eq!(read(v1::Blocking { listener: 4, ..whole.clone() }), Ok(Vec::new()));
        let outside = read(v1::Blocking { window_offset: 2, ..whole.clone() }).unwrap_err();
        assert_eq!(outside.to_string(), "an answer about locks in window 2 of 2");
        let ago = AGO_MAX + 1;
        assert_eq!(
            read(v1::Blocking { windows_ago: ago, ..whole.clone() }),
            Err(BlockingsError::Ago { ago })
        );
        for wrong in [
            v1::Blocking { blockers: vec![by.clone(); 4], ..whole.clone() },
            v1::Blocking {
                blockers: vec![v1::Blocker { statement: "x".repeat(1_025), ..by }],
                ..whole.clone()
            },
        ] {
            assert!(matches!(read(wrong), Err(BlockingsError::Place(PlaceError::Many { .. }))));
        }
        let many = told(&vec![whole; BLOCKINGS_MAX + 1], 2, |_| None);
        assert!(matches!(many, Err(BlockingsError::Place(PlaceError::Many { .. }))), "{many:?}");
    }
}

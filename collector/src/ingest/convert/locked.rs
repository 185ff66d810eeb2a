//! From the wire's locks inside of servers, whose threads waited for them, to the model's, and what cannot be refused. Called by `convert` alone; knows no
//! window.

use super::place::{PlaceError, at_most, in_batch};
use tailwater_model::window::{EntityId, LockedThreads, LockingThread};
use tailwater_proto::v1;

/// Locks of one batch: an agent looks at eight servers after a window, keeps 64 answers until one takes them, and the largest batch has 64.
const LOCKS_MAX: usize = 8 * 64 + 64;
/// Bytes of a thread's name and of a function's: the kernel gives a name 15.
const NAME_MAX: usize = 64;
/// Windows that one may be told later than it was looked at.
const AGO_MAX: u32 = 200;

/// Why locks are not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockedError {
    /// In no window of its batch, or more than an agent tells.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// It was looked at too long ago.
    #[error("a lock {ago} windows after it was looked at: at most {AGO_MAX}")]
    Ago {
        /// How many windows.
        ago: u32,
    },
}

/// Each with its window in the batch. `known` gives the id of a listener; a lock at one that has none is left out.
pub(super) fn told(
    locks: &[v1::LockedThreads],
    count: u32,
    mut known: impl FnMut(u32) -> Option<EntityId>,
) -> Result<Vec<(u32, LockedThreads)>, LockedError> {
    at_most("locks in one batch", locks.len(), LOCKS_MAX)?;
    let mut found = Vec::new();
    for of in locks {
        let offset = in_batch("a lock", of.window_offset, count)?;
        let ago = of.windows_ago;
        if ago > AGO_MAX {
            return Err(LockedError::Ago { ago });
        }
        if let Some(by) = &of.holder {
            at_most("bytes of a thread's name", by.comm.len(), NAME_MAX)?;
            at_most("bytes of a function's name", by.slept_in.len(), NAME_MAX)?;
        }
        let Some(listener) = known(of.listener) else { continue };
        let holder = of.holder.as_ref().map(|by| LockingThread {
            thread: by.tid,
            comm: by.comm.clone(),
            runs: by.runs,
            slept_in: by.slept_in.clone(),
        });
        let (waiting, threads) = (of.waiting, of.threads);
        found.push((offset, LockedThreads { listener, windows_ago: ago, waiting, threads, holder }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_and_what_cannot_be_is_refused() {
        let by =
            v1::LockingThread { tid: 8, comm: "worker".into(), runs: false, slept_in: "futex_wait".into() };
        let whole = v1::LockedThreads {
            window_offset: 1,
            windows_ago: 2,
            listener: 3,
            waiting: 14,
            threads: 16,
            holder: Some(by.clone()),
        };
        let read = |of: v1::LockedThreads| told(&[of], 2, |id| (id == 3).then_some(9));
        let found = read(whole.clone()).unwrap();
        assert_eq!((found[0].0, found[0].1.listener, found[0].1.waiting), (1, 9, 14));
        assert_eq!(found[0].1.holder.as_ref().unwrap().thread, 8);
        assert_eq!(read(v1::LockedThreads { listener: 4, ..whole.clone() }), Ok(Vec::new()));
        let outside = read(v1::LockedThreads { window_offset: 2, ..whole.clone() }).unwrap_err();
        assert_eq!(outside.to_string(), "a lock in window 2 of 2");
        let ago = AGO_MAX + 1;
        let late = v1::LockedThreads { windows_ago: ago, ..whole.clone() };
        assert_eq!(read(late), Err(LockedError::Ago { ago }));
        let long = v1::LockingThread { comm: "x".repeat(NAME_MAX + 1), ..by };
        let many = read(v1::LockedThreads { holder: Some(long), ..whole.clone() });
        assert!(matches!(many, Err(LockedError::Place(PlaceError::Many { .. }))), "{many:?}");
        let many = told(&vec![whole; LOCKS_MAX + 1], 2, |_| None);
        assert!(matches!(many, Err(LockedError::Place(PlaceError::Many { .. }))), "{many:?}");
    }
}

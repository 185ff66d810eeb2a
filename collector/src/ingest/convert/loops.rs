//! From the wire's blocked event loops to the model's, and what cannot be refused. Called by `convert` alone; knows no window.

use super::place::{PlaceError, at_most, in_batch};
use tailwater_model::window::{BlockedLoop, EntityId};
use tailwater_proto::v1;

/// Loops of one batch: as many as an agent watches, in each window of the largest batch.
const LOOPS_MAX: usize = 128 * 64;
/// A thread's name has 15 characters, a function of the kernel seldom more than 40.
const NAME_MAX: usize = 64;
/// The longest silence that is believed: a year.
const SILENT_MAX_NS: u64 = 366 * 86_400_000_000_000;

/// Why blocked event loops are not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoopsError {
    /// In no window of its batch, or more than an agent tells.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// More time than there was, or a name that is none.
    #[error(
        "event loop {thread}: times that do not fit into one another, or a name of more than {NAME_MAX} bytes"
    )]
    Absurd {
        /// Its thread.
        thread: u32,
    },
}

/// Each with its window in the batch. `known` gives the id of a listener; a loop of one that has none is left out.
pub(super) fn blocked(
    loops: &[v1::BlockedLoop],
    count: u32,
    mut known: impl FnMut(u32) -> Option<EntityId>,
) -> Result<Vec<(u32, BlockedLoop)>, LoopsError> {
    at_most("blocked event loops in one batch", loops.len(), LOOPS_MAX)?;
    let mut found = Vec::new();
    for l in loops {
        let offset = in_batch("a blocked event loop", l.window_offset, count)?;
        let thread = l.thread;
        let spent = l.ran_ns.checked_add(l.waited_ns);
        let fits = l.span_ns > 0 && spent.is_some_and(|ns| ns <= l.span_ns) && l.span_ns <= SILENT_MAX_NS;
        let named = l.comm.len() <= NAME_MAX && l.slept_in.len() <= NAME_MAX;
        if !fits || !named || l.silent_ns > SILENT_MAX_NS {
            return Err(LoopsError::Absurd { thread });
        }
        let Some(listener) = known(l.listener) else { continue };
        let blocked = BlockedLoop {
            listener,
            thread,
            comm: l.comm.clone(),
            silent_ns: l.silent_ns,
            span_ns: l.span_ns,
            ran_ns: l.ran_ns,
            waited_ns: l.waited_ns,
            uninterruptible: l.uninterruptible,
            slept_in: l.slept_in.clone(),
        };
        found.push((offset, blocked));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_with_its_thread() {
        let whole = v1::BlockedLoop {
            window_offset: 1,
            listener: 3,
            thread: 4711,
            comm: "node".into(),
            silent_ns: 150,
            span_ns: 50,
            ran_ns: 40,
            waited_ns: 10,
            uninterruptible: false,
            slept_in: String::new(),
        };
        let read = |l: v1::BlockedLoop| blocked(&[l], 2, |id| (id == 3).then_some(9));
        let found = read(whole.clone()).unwrap();
        assert_eq!((found[0].0, found[0].1.listener, found[0].1.ran_ns), (1, 9, 40));
        assert_eq!(read(v1::BlockedLoop { listener: 4, ..whole.clone() }), Ok(Vec::new()));
        let absurd = Err(LoopsError::Absurd { thread: 4711 });
        assert_eq!(read(v1::BlockedLoop { ran_ns: 41, ..whole.clone() }), absurd);
        assert_eq!(read(v1::BlockedLoop { ran_ns: u64::MAX, ..whole.clone() }), absurd);
        assert_eq!(read(v1::BlockedLoop { span_ns: 0, ran_ns: 0, waited_ns: 0, ..whole.clone() }), absurd);
        assert_eq!(read(v1::BlockedLoop { comm: "x".repeat(65), ..whole.clone() }), absurd);
        let outside = read(v1::BlockedLoop { window_offset: 2, ..whole }).unwrap_err();
        assert_eq!(outside.to_string(), "a blocked event loop in window 2 of 2");
    }
}

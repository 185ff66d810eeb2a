//! A fence around somebody else's code that works on bytes that nobody vouches for: what it panics upon are wrong bytes, and no error of this program. Knows
//! neither.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static FENCED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in [`fenced`]: what a panic hook asks.
#[must_use]
pub fn is_fenced() -> bool {
    FENCED.get()
}

/// What `work` returns; nothing where it panics. It must leave nothing half done behind that is used afterwards.
pub fn fenced<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = FENCED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    FENCED.set(before);
    done.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_panics_behind_a_fence_returns_nothing_and_the_fence_is_gone() {
        assert_eq!(fenced(|| 7), Some(7));
        assert_eq!(fenced(|| -> u8 { panic!("byte {}", 9) }), None);
        assert_eq!(fenced(|| fenced(is_fenced)), Some(Some(true)));
        assert!(!is_fenced());
    }
}

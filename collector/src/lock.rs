//! Locks whose values are whole at every instant. Owns what becomes of one after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. After a panic elsewhere the value is still the best there is: such locks hold plain values, and nobody leaves one half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

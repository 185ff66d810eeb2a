//! What waits for the analysis, of one agent and of all: counted from when a message is taken until it is worked off. `feed` owns the
//! bounds; knows no message.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What waits of one agent, or of all.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) messages: AtomicUsize,
    pub(super) bytes: AtomicUsize,
}

impl Waiting {
    /// Counts one more message; with what was there before it.
    pub(super) fn count(self: &Arc<Self>, bytes: usize) -> (Counted, Before) {
        let before = Before {
            bytes: self.bytes.fetch_add(bytes, Ordering::Relaxed),
            messages: self.messages.fetch_add(1, Ordering::Relaxed),
        };
        (Counted { among: Arc::clone(self), bytes }, before)
    }
}

/// What waited before a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// One message among those that wait, and its bytes. Whoever drops it does not hold the message any more.
#[derive(Debug)]
pub(super) struct Counted {
    among: Arc<Waiting>,
    bytes: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.among.messages.fetch_sub(1, Ordering::Relaxed);
        self.among.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One message among those of its agent, and among those of all.
#[derive(Debug)]
pub(crate) struct Permit {
    pub(super) _own: Counted,
    pub(super) _all: Counted,
}

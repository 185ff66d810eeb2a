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

/// One message that waits, of its agent and of all, and its bytes. Whoever drops it does not hold the message any more.
#[derive(Debug)]
pub(crate) struct Permit(pub(super) [Arc<Waiting>; 2], pub(super) usize);

impl Drop for Permit {
    fn drop(&mut self) {
        for waiting in &self.0 {
            waiting.messages.fetch_sub(1, Ordering::Relaxed);
            waiting.bytes.fetch_sub(self.1, Ordering::Relaxed);
        }
    }
}

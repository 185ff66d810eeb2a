//! The clock that everything is dated by. Knows nothing of what is dated.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in ns since the epoch.
#[must_use]
pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

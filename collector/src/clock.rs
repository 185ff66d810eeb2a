//! The collector's clock: the one place that asks the system for the time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The system's time, or that of a recording.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    stands_at_unix_ns: Option<u64>,
}

#[allow(clippy::disallowed_methods, reason = "this is the collector's clock")]
impl Clock {
    /// One whose Unix time stands still: the end of a recording.
    #[must_use]
    pub fn standing(at_unix_ns: u64) -> Self {
        Self { stands_at_unix_ns: Some(at_unix_ns) }
    }
    /// Unix time.
    #[must_use]
    pub fn unix_ns(self) -> u64 {
        if let Some(at) = self.stands_at_unix_ns {
            return at;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
    /// For measuring durations.
    #[must_use]
    pub fn monotonic(self) -> Instant {
        Instant::now()
    }
}

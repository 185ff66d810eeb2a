//! The collector's clock: the one place that asks the system for the time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The system's time, that of a recording, or that of a simulation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock(Time);

#[derive(Debug, Clone, Copy, Default)]
enum Time {
    #[default]
    System,
    StandsAt(u64),
    Moved(&'static Hands),
}

/// The hands of a clock that a simulation moves: nothing else does.
#[derive(Debug)]
pub struct Hands {
    begin: Instant,
    passed_ns: AtomicU64,
    unix_ns: AtomicU64,
}

#[allow(clippy::disallowed_methods, reason = "this is the collector's clock")]
impl Clock {
    /// One whose Unix time stands still: the end of a recording.
    #[must_use]
    pub fn standing(at_unix_ns: u64) -> Self {
        Self(Time::StandsAt(at_unix_ns))
    }
    /// One that goes as these hands do.
    #[must_use]
    pub fn moved(hands: &'static Hands) -> Self {
        Self(Time::Moved(hands))
    }
    /// Unix time.
    #[must_use]
    pub fn unix_ns(self) -> u64 {
        match self.0 {
            Time::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
            }
            Time::StandsAt(unix_ns) => unix_ns,
            Time::Moved(hands) => hands.unix_ns.load(Ordering::Relaxed),
        }
    }
    /// For measuring durations.
    #[must_use]
    pub fn monotonic(self) -> Instant {
        match self.0 {
            Time::System | Time::StandsAt(_) => Instant::now(),
            Time::Moved(hands) => hands.begin + Duration::from_nanos(hands.passed_ns.load(Ordering::Relaxed)),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the collector's clock")]
impl Hands {
    /// At this moment.
    #[must_use]
    pub fn at(unix_ns: u64) -> Self {
        Self { begin: Instant::now(), passed_ns: AtomicU64::new(0), unix_ns: AtomicU64::new(unix_ns) }
    }
    /// So much time passes.
    pub fn pass(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.passed_ns.fetch_add(ns, Ordering::Relaxed);
        self.unix_ns.fetch_add(ns, Ordering::Relaxed);
    }
    /// Somebody sets the clock; what is measured by durations does not notice.
    pub fn set(&self, unix_ns: u64) {
        self.unix_ns.store(unix_ns, Ordering::Relaxed);
    }
}

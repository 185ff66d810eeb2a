//! Tells systemd that the analysis still works, if its unit asks for that (`WatchdogSec=`), and others by `/livez`. Owns the rule that only work done
//! counts: a process whose analysis hangs answers requests and takes batches for a while, and is of no use.

use crate::ingest::feed::Feed;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Between two looks at least, whatever the unit asks for: more often than the analysis ticks there is nothing to see.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(100);

/// Until `stop`; returns at once where nobody asked for it.
pub(crate) async fn keep_telling(feed: Feed, stop: CancellationToken) {
    let Some(longest) = sd_notify::watchdog_enabled() else { return };
    let mut timer = tokio::time::interval((longest / 3).max(LOOK_EVERY_MIN));
    let mut progress = Progress::default();
    loop {
        tokio::select! {
            _ = timer.tick() => {}
            () = stop.cancelled() => return,
        }
        if progress.made(feed.ticks()) {
            // Nobody listens: then nobody restarts either.
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
        }
    }
}

#[derive(Debug, Default)]
struct Progress {
    ticks: u64,
}

impl Progress {
    /// Whether the count moved since it was asked last.
    fn made(&mut self, ticks: u64) -> bool {
        std::mem::replace(&mut self.ticks, ticks) != ticks
    }
}

/// An analysis that works off no tick for this long hangs.
pub(crate) const HANGS_MS: u128 = 30_000;

/// Ticks as they were seen last, and since when they stand.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    progress: Progress,
    since: Option<Instant>,
}

impl Pulse {
    /// For how long they have been seen to stand.
    pub(crate) fn stood(&mut self, ticks: u64, now: Instant) -> Duration {
        if self.progress.made(ticks) || self.since.is_none() {
            self.since = Some(now);
        }
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_since_it_was_first_seen_with_the_same_count() {
        let (mut pulse, begin) = (Pulse::default(), crate::clock::Clock::default().monotonic());
        let looks = [(0, 5, 0), (60, 5, 60), (70, 6, 0), (99, 6, 29), (101, 6, 31), (102, 7, 0)];
        for (second, ticks, stood) in looks {
            let now = begin + Duration::from_secs(second);
            assert_eq!(pulse.stood(ticks, now), Duration::from_secs(stood), "at {second}");
        }
    }

    #[test]
    fn only_ticks_worked_off_since_the_last_look_count() {
        let mut progress = Progress::default();
        let looks = [(0, false), (1, true), (400, true), (400, false), (400, false), (401, true)];
        for (ticks, expect) in looks {
            assert_eq!(progress.made(ticks), expect, "at {ticks}");
        }
    }
}

//! Drops of a listener: how many connection attempts are behind the kernel's counts, and why they were dropped.
//! Owns the estimate of retries; knows no chain.

use crate::incident::DropReason;
use std::collections::BTreeMap;

/// A dropped SYN comes again one second later, in windows: every kernel's first retry, and with linear timeouts (6.5 and later) the
/// next three too.
const RETRY_WINDOWS: u64 = 20;
/// By how much a retry may be early or late, windows: timer granularity and the window's edges.
const RETRY_SLACK: u64 = 2;

/// What one listener dropped, window by window.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DropCount {
    /// Σ `sk_drops`.
    pub(crate) count: u64,
    /// Distinct connection attempts; see [`DropCount::add`].
    pub(crate) connections: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Completed handshakes in the windows with drops.
    pub(crate) arrivals: u64,
    pub(crate) depth_max: u32,
    pub(crate) limit: u32,
    /// Dropped attempts whose retry did not come yet, by window.
    outstanding: BTreeMap<u64, u64>,
}

impl DropCount {
    /// Adds a window's drops. A final ACK that is dropped is counted twice by the kernel, so `final_ack` of `drops` are
    /// no packets. Of the packets, as many as were dropped one second (± two windows) before are taken for their retries.
    /// The estimate therefore lies between the most that one second dropped and the number of packets: under a steady
    /// overflow of fresh connections longer than a second it is too low, never too high.
    pub(crate) fn add(
        &mut self,
        window: u64,
        drops: u64,
        final_ack: u64,
        arrivals: u64,
        depth: u32,
        limit: u32,
    ) {
        if self.count == 0 {
            self.first = window;
        }
        self.last = window;
        self.count = self.count.saturating_add(drops);
        self.arrivals = self.arrivals.saturating_add(arrivals);
        self.depth_max = self.depth_max.max(depth);
        self.limit = self.limit.max(limit);
        let packets = drops.saturating_sub(final_ack.min(drops / 2));
        let mut retries = 0u64;
        let from = window.saturating_sub(RETRY_WINDOWS + RETRY_SLACK);
        let to = window.saturating_sub(RETRY_WINDOWS - RETRY_SLACK);
        self.outstanding.retain(|at, _| *at >= from);
        for (_, waiting) in self.outstanding.range_mut(from..=to) {
            let taken = (*waiting).min(packets - retries);
            *waiting -= taken;
            retries += taken;
        }
        self.connections = self.connections.saturating_add(packets - retries);
        self.outstanding.insert(window, packets);
    }

    pub(crate) fn reason(&self) -> DropReason {
        if self.limit > 0 && self.depth_max >= self.limit {
            DropReason::AcceptQueueFull
        } else if self.limit > 0 && u64::from(self.depth_max) * 2 < u64::from(self.limit) {
            DropReason::SynQueueFull
        } else {
            DropReason::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(windows: &[(u64, u64, u64)], count: u64, connections: u64) {
        let mut drops = DropCount::default();
        for (window, dropped, final_ack) in windows {
            drops.add(*window, *dropped, *final_ack, 0, 129, 128);
        }
        assert_eq!((drops.count, drops.connections), (count, connections), "{windows:?}");
    }

    #[test]
    fn retries_are_not_new_connections() {
        check(&[(100, 50, 0), (101, 72, 0)], 122, 122);
        check(&[(100, 50, 0), (120, 30, 0)], 80, 50);
        check(&[(100, 50, 0), (120, 80, 0)], 130, 80);
        check(&[(100, 50, 0), (121, 50, 0), (141, 50, 0)], 150, 50);
        check(&[(100, 50, 0), (110, 50, 0)], 100, 100);
    }

    #[test]
    fn final_acks_are_counted_twice_by_the_kernel() {
        check(&[(100, 10, 3)], 10, 7);
        check(&[(100, 10, 99)], 10, 5);
        check(&[(u64::MAX, u64::MAX, u64::MAX), (u64::MAX, u64::MAX, 0)], u64::MAX, u64::MAX);
    }

    #[test]
    fn the_reason_follows_the_depth() {
        let reason = |depth, limit| {
            let mut drops = DropCount::default();
            drops.add(1, 1, 0, 0, depth, limit);
            drops.reason()
        };
        assert_eq!(reason(129, 128), DropReason::AcceptQueueFull);
        assert_eq!(reason(3, 128), DropReason::SynQueueFull);
        assert_eq!(reason(100, 128), DropReason::Other);
        assert_eq!(reason(0, 0), DropReason::Other);
    }
}

//! What is said of connections with several exchanges at once, of listeners and edges alike. Owns what of it needs levels, and how many such
//! connections a window had where nothing happened to them.

use crate::attach::ring::Level;
use crate::window::MultiplexedSample;

/// How many such connections there are is read when a window is drained, which is some windows after its end. So those that were there then are
/// told for so long after the last of them closed (200 ms): a window in which they were is never one without.
const HELD_WINDOWS: u64 = 4;

/// How many connections of one slot carried several exchanges, and when they last did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    connections: u32,
    window: u64,
}

impl Held {
    /// Those of `window`: the most that its records saw, or there are `now`, or were a moment before.
    pub(super) fn most(&mut self, window: u64, seen_max: u32, now: i32) -> u32 {
        let there = seen_max.max(u32::try_from(now).unwrap_or(0));
        if there > 0 {
            *self = Self { connections: there, window };
        } else if window > self.window.saturating_add(HELD_WINDOWS) {
            self.connections = 0;
        }
        self.connections
    }
}

/// Completes what records summed up.
pub(super) fn settle(sample: &mut MultiplexedSample, connections: u32, unanswered: &Level) {
    sample.connections = connections;
    sample.unanswered_max = unanswered.max_with(sample.unanswered_max);
    sample.unanswered_ns = unanswered.ns();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_closed_are_told_until_no_window_of_theirs_can_come_any_more() {
        let mut held = Held::default();
        let told =
            [(7, 0, 0), (8, 0, 2), (9, 3, 2), (10, 0, 0), (13, 0, 0), (14, 0, 0), (15, 1, 0), (16, 0, -1)]
                .map(|(window, seen, now)| held.most(window, seen, now));
        assert_eq!(told, [0, 2, 3, 3, 3, 0, 1, 1]);
    }
}

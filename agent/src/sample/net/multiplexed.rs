//! What is said of connections with several exchanges at once, of listeners and edges alike. Owns what of it needs levels.

use crate::attach::ring::Level;
use crate::window::MultiplexedSample;

/// Completes what records summed up. A window in which the last of them closed still is one with such connections.
pub(super) fn settle(sample: &mut MultiplexedSample, connections: &Level, unanswered: &Level) {
    let most = connections.start.max(connections.end).max(0);
    sample.connections = u32::try_from(most).unwrap_or(u32::MAX);
    sample.unanswered_max = unanswered.max_with(sample.unanswered_max);
    sample.unanswered_ns = unanswered.ns();
}

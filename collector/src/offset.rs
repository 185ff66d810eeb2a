//! What is known of an agent's clock: the offset that it measured itself from probes and their replies (smallest round trip of
//! the last minute), checked against what one-way times allow. Pure: every time is a parameter.

use std::collections::VecDeque;

/// One-way times that are kept.
const WINDOW_NS: u64 = 60_000_000_000;
const SAMPLES_MAX: usize = 128;
/// Until the agent has measured: offsets below this may be transport alone, and count as error.
const UNMEASURED_NS: u64 = 25_000_000;

/// Collector minus agent, and how wrong that can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Offset {
    /// Add to the agent's time to get the collector's.
    pub offset_ns: i64,
    /// Bound of its error.
    pub error_ns: u64,
    /// Measured by round trips; else only bounded by one-way times.
    pub measured: bool,
}

/// Estimator for one agent.
#[derive(Debug, Default)]
pub struct OffsetEstimate {
    /// (collector's receive time, receive minus send): each is the offset plus a delay of at least 0.
    one_way: VecDeque<(u64, i64)>,
    reported: Option<(i64, u64)>,
}

impl OffsetEstimate {
    /// A probe that the agent sent at its `agent_unix_ns` arrived.
    pub fn probe(&mut self, agent_unix_ns: u64, received_unix_ns: u64) {
        let difference = i64::try_from(i128::from(received_unix_ns) - i128::from(agent_unix_ns));
        let Ok(difference) = difference else { return };
        while self.one_way.front().is_some_and(|(at, _)| received_unix_ns.saturating_sub(*at) > WINDOW_NS)
            || self.one_way.len() >= SAMPLES_MAX
        {
            self.one_way.pop_front();
        }
        self.one_way.push_back((received_unix_ns, difference));
    }

    /// The agent's own estimate, from round trips. An error of 0 means that it has none yet.
    pub fn report(&mut self, offset_ns: i64, error_ns: u64) {
        if error_ns > 0 {
            self.reported = Some((offset_ns, error_ns));
        }
    }

    /// The best estimate now.
    #[must_use]
    pub fn now(&self) -> Offset {
        let most = self.one_way.iter().map(|(_, d)| *d).min();
        match (self.reported, most) {
            (Some((offset_ns, error_ns)), most) => {
                // Nothing arrives before it was sent: an offset above the smallest one-way time is too large by the rest.
                let excess = most.map_or(0, |most| offset_ns.saturating_sub(most).max(0));
                let error_ns = error_ns.saturating_add(excess.unsigned_abs());
                Offset { offset_ns: offset_ns.saturating_sub(excess), error_ns, measured: true }
            }
            (None, Some(most)) if most.unsigned_abs() <= UNMEASURED_NS => {
                Offset { offset_ns: 0, error_ns: most.unsigned_abs(), measured: false }
            }
            (None, Some(most)) => Offset { offset_ns: most, error_ns: UNMEASURED_NS, measured: false },
            (None, None) => Offset { offset_ns: 0, error_ns: UNMEASURED_NS, measured: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn without_probes_nothing_is_claimed() {
        assert_eq!(
            OffsetEstimate::default().now(),
            Offset { offset_ns: 0, error_ns: UNMEASURED_NS, measured: false }
        );
    }

    #[test]
    fn a_slow_transport_is_not_taken_for_an_offset_but_a_wrong_clock_is() {
        let mut e = OffsetEstimate::default();
        e.probe(100 * S, 100 * S + 3_000_000);
        assert_eq!(e.now(), Offset { offset_ns: 0, error_ns: 3_000_000, measured: false });
        let mut e = OffsetEstimate::default();
        e.probe(100 * S, 40 * S);
        assert_eq!(e.now().offset_ns, -60 * S as i64);
    }

    #[test]
    fn the_agents_measurement_wins_and_cannot_beat_causality() {
        let mut e = OffsetEstimate::default();
        e.probe(100 * S, 100 * S + 1_000);
        e.report(400, 500);
        assert_eq!(e.now(), Offset { offset_ns: 400, error_ns: 500, measured: true });
        e.report(5_000, 500);
        assert_eq!(e.now(), Offset { offset_ns: 1_000, error_ns: 4_500, measured: true });
    }

    #[test]
    fn old_one_way_times_are_forgotten() {
        let mut e = OffsetEstimate::default();
        e.probe(100 * S, 50 * S);
        e.probe(200 * S, 200 * S);
        assert_eq!(e.now().offset_ns, 0);
    }
}

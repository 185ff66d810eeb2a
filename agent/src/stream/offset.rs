//! How far the collector's clock is from ours, from probes and their replies, for our own status: the collector makes its own
//! estimate from the times that the probes carry (its `offset.rs`). Pure.

use std::collections::VecDeque;
use tailwater_proto::v1::ClockReply;

/// Replies that are remembered: the best of the last 16 s.
const REMEMBERED: usize = 16;
/// Two clocks drift apart by no more than this: what the kernel lets adjtimex(2) slew, parts per million.
const DRIFT_PPM: u64 = 500;

/// A reply's estimate, for the moment when it came.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    offset_ns: i64,
    error_ns: u64,
    at_unix_ns: u64,
}

/// The estimate of the reply that travelled fastest, drift since then counted as error.
#[derive(Debug, Default)]
pub struct OffsetEstimate {
    seen: VecDeque<Estimate>,
    newest_reply: (u64, u64),
    /// Replies to probes up to this one are of a time that is over.
    forgotten_to: u64,
}

impl OffsetEstimate {
    /// Takes a reply that was received at `received_unix_ns` of our clock.
    pub fn add(&mut self, reply: &ClockReply, received_unix_ns: u64) {
        if reply.id <= self.forgotten_to {
            return;
        }
        let waited = received_unix_ns.saturating_sub(reply.agent_unix_ns);
        let inside = reply.collector_send_unix_ns.saturating_sub(reply.collector_receive_unix_ns);
        // A reply that claims to have been in the collector for longer than we waited says nothing.
        let Some(travelled) = waited.checked_sub(inside) else { return };
        self.newest_reply = (reply.id, received_unix_ns);
        let there = difference(reply.collector_receive_unix_ns, reply.agent_unix_ns);
        let back = difference(reply.collector_send_unix_ns, received_unix_ns);
        if self.seen.len() == REMEMBERED {
            self.seen.pop_front();
        }
        // One more for what the halves were rounded by.
        let (offset_ns, error_ns) = (there / 2 + back / 2, travelled / 2 + 1);
        self.seen.push_back(Estimate { offset_ns, error_ns, at_unix_ns: received_unix_ns });
    }

    /// Collector minus agent at the newest reply, and the bound of its error; `None` before the first.
    pub fn get(&self) -> Option<(i64, u64)> {
        let now = self.newest_reply.1;
        let aged = |e: &Estimate| {
            let age = now.abs_diff(e.at_unix_ns);
            (e.offset_ns, e.error_ns.saturating_add((age / 1_000_000).saturating_mul(DRIFT_PPM)))
        };
        self.seen.iter().map(aged).min_by_key(|(_, error)| *error)
    }

    /// Id of the newest reply and when it came; zeros before the first.
    pub fn newest_reply(&self) -> (u64, u64) {
        self.newest_reply
    }

    /// Our clock was set after probe `last_probe`: what was measured before says nothing any more, nor will replies to such probes.
    pub fn forget(&mut self, last_probe: u64) {
        *self = Self { forgotten_to: last_probe, ..Self::default() };
    }
}

fn difference(a: u64, b: u64) -> i64 {
    let wide = i128::from(a) - i128::from(b);
    i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(sent: u64, there: u64, back: u64) -> ClockReply {
        ClockReply {
            id: 1,
            agent_unix_ns: sent,
            collector_receive_unix_ns: there,
            collector_send_unix_ns: back,
        }
    }

    #[test]
    fn the_fastest_reply_wins() {
        let mut estimate = OffsetEstimate::default();
        assert_eq!(estimate.get(), None);
        // The collector is 1000 ahead; 100 there, 10 inside, 300 back: off by half the asymmetry, within the bound.
        estimate.add(&reply(5_000, 6_100, 6_110), 5_410);
        assert_eq!(estimate.get(), Some((900, 201)));
        estimate.add(&reply(7_000, 8_010, 8_010), 7_020);
        assert_eq!(estimate.get(), Some((1_000, 11)));
        estimate.add(&reply(9_000, 0, u64::MAX), 9_010);
        assert_eq!(estimate.get(), Some((1_000, 11)), "nonsense changes nothing");
        assert_eq!(estimate.newest_reply(), (1, 7_020));
    }

    #[test]
    fn an_old_fast_reply_gives_way_to_a_newer_one_as_clocks_drift() {
        let mut estimate = OffsetEstimate::default();
        let s = 1_000_000_000;
        estimate.add(&reply(s, s + 50, s + 50), s + 100);
        estimate.add(&reply(11 * s, 11 * s + 2_000_000, 11 * s + 2_000_000), 11 * s + 4_000_000);
        assert_eq!(estimate.get(), Some((0, 2_000_001)), "50 ns and ten seconds of 500 ppm are 5 ms");
        estimate.forget(1);
        estimate.add(&reply(12 * s, 12 * s, 12 * s), 12 * s);
        assert_eq!(estimate.get(), None, "nor does a reply that was on its way");
    }
}

//! How far the collector's clock is from ours, from probes and their replies. Pure.

use std::collections::VecDeque;
use tailwater_proto::v1::ClockReply;

/// Replies that are remembered: the best of the last 16 s.
const REMEMBERED: usize = 16;

/// The estimate of the reply that travelled fastest.
#[derive(Debug, Default)]
pub struct OffsetEstimate {
    seen: VecDeque<(i64, u64)>,
}

impl OffsetEstimate {
    /// Takes a reply that was received at `received_unix_ns` of our clock.
    pub fn add(&mut self, reply: &ClockReply, received_unix_ns: u64) {
        let waited = received_unix_ns.saturating_sub(reply.agent_unix_ns);
        let inside = reply.collector_send_unix_ns.saturating_sub(reply.collector_receive_unix_ns);
        // A reply that claims to have been in the collector for longer than we waited says nothing.
        let Some(travelled) = waited.checked_sub(inside) else { return };
        let there = difference(reply.collector_receive_unix_ns, reply.agent_unix_ns);
        let back = difference(reply.collector_send_unix_ns, received_unix_ns);
        if self.seen.len() == REMEMBERED {
            self.seen.pop_front();
        }
        // One more for what the halves were rounded by.
        self.seen.push_back((there / 2 + back / 2, travelled / 2 + 1));
    }

    /// Collector minus agent, and the bound of its error; `None` before the first reply.
    pub fn get(&self) -> Option<(i64, u64)> {
        self.seen.iter().min_by_key(|(_, error)| *error).copied()
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
    }
}

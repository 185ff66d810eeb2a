//! What became of each connection attempt, from the packets that arrived for a listening port: a SYN or first request segment
//! that comes again was dropped the time before. Pure.

use std::collections::BTreeMap;

/// A packet towards the listener that is a SYN or carries pushed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// When it arrived.
    pub at_unix_ns: u64,
    /// Sender.
    pub source: [u8; 4],
    /// Its port.
    pub port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// First packet of a handshake.
    pub syn: bool,
}

/// An attempt of which something was dropped.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Dropped {
    /// First SYN.
    pub first_unix_ns: u64,
    /// When each dropped packet had arrived, SYNs and request segments.
    pub dropped_unix_ns: Vec<u64>,
    /// Of those, SYNs.
    pub syns: u32,
}

#[derive(Debug)]
struct Flow {
    isn: u32,
    first_unix_ns: u64,
    last_unix_ns: u64,
    data_unix_ns: Option<u64>,
    dropped_unix_ns: Vec<u64>,
    syns: u32,
}

/// Flows under way and those that lost packets.
#[derive(Debug, Default)]
pub struct Flows {
    open: BTreeMap<([u8; 4], u16), Flow>,
    dropped: Vec<Dropped>,
    attempts: u64,
    /// How many were left by the last look for old ones.
    swept: usize,
}

/// A sender gives up, or its port is another connection's, well before this.
const FORGET_NS: u64 = 60_000_000_000;
/// New flows before old ones are looked for; at least as many again as were left, or else a flood would be one long search.
const SWEEP_AFTER: usize = 200_000;

impl Flows {
    /// A packet arrived.
    pub fn packet(&mut self, packet: &Packet) {
        let key = (packet.source, packet.port);
        if packet.syn {
            match self.open.get_mut(&key) {
                Some(flow) if flow.isn == packet.sequence => {
                    // The same SYN again: the last one was not answered.
                    flow.dropped_unix_ns.push(flow.last_unix_ns);
                    flow.syns += 1;
                    flow.last_unix_ns = packet.at_unix_ns;
                }
                _ => {
                    self.attempts += 1;
                    let flow = Flow {
                        isn: packet.sequence,
                        first_unix_ns: packet.at_unix_ns,
                        last_unix_ns: packet.at_unix_ns,
                        data_unix_ns: None,
                        dropped_unix_ns: Vec::new(),
                        syns: 0,
                    };
                    if let Some(old) = self.open.insert(key, flow) {
                        self.close(old);
                    }
                    if self.open.len() > self.swept + self.swept.max(SWEEP_AFTER) {
                        self.sweep(packet.at_unix_ns);
                    }
                }
            }
        } else if let Some(flow) = self.open.get_mut(&key)
            && packet.sequence == flow.isn.wrapping_add(1)
        {
            // The first segment of the first request. Accepted data is acknowledged at once and never comes again.
            if let Some(before) = flow.data_unix_ns.replace(packet.at_unix_ns) {
                flow.dropped_unix_ns.push(before);
            }
        }
    }

    fn close(&mut self, flow: Flow) {
        if !flow.dropped_unix_ns.is_empty() {
            self.dropped.push(Dropped {
                first_unix_ns: flow.first_unix_ns,
                dropped_unix_ns: flow.dropped_unix_ns,
                syns: flow.syns,
            });
        }
    }

    fn sweep(&mut self, now_unix_ns: u64) {
        let keep_from = now_unix_ns.saturating_sub(FORGET_NS);
        let all = std::mem::take(&mut self.open);
        for (key, flow) in all {
            if flow.last_unix_ns >= keep_from {
                self.open.insert(key, flow);
            } else {
                self.close(flow);
            }
        }
        self.swept = self.open.len();
    }

    /// Everything seen: attempts, and those that lost packets by time of their first SYN.
    #[must_use]
    pub fn finish(mut self) -> (u64, Vec<Dropped>) {
        for (_, flow) in std::mem::take(&mut self.open) {
            self.close(flow);
        }
        self.dropped.sort_by_key(|dropped| dropped.first_unix_ns);
        (self.attempts, self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(at: u64, port: u16, sequence: u32, syn: bool) -> Packet {
        Packet { at_unix_ns: at, source: [10, 0, 0, 1], port, sequence, syn }
    }

    fn fates(packets: &[Packet]) -> (u64, Vec<Dropped>) {
        let mut flows = Flows::default();
        packets.iter().for_each(|packet| flows.packet(packet));
        flows.finish()
    }

    #[test]
    fn a_healthy_connection_lost_nothing() {
        let (attempts, dropped) =
            fates(&[packet(1, 5, 100, true), packet(2, 5, 101, false), packet(3, 5, 300, false)]);
        assert_eq!((attempts, dropped.len()), (1, 0));
    }

    #[test]
    fn one_attempt_with_three_lost_syns_is_one_victim_and_three_packets() {
        let (attempts, dropped) = fates(&[
            packet(1, 5, u32::MAX, true),
            packet(2, 5, u32::MAX, true),
            packet(3, 5, u32::MAX, true),
            packet(4, 5, u32::MAX, true),
            packet(5, 5, 0, false),
        ]);
        assert_eq!(attempts, 1);
        assert_eq!(dropped, [Dropped { first_unix_ns: 1, dropped_unix_ns: vec![1, 2, 3], syns: 3 }]);
    }

    #[test]
    fn a_refused_request_segment_is_a_drop_after_a_good_handshake() {
        let (_, dropped) =
            fates(&[packet(1, 5, 100, true), packet(2, 5, 101, false), packet(200, 5, 101, false)]);
        assert_eq!(dropped, [Dropped { first_unix_ns: 1, dropped_unix_ns: vec![2], syns: 0 }]);
    }

    #[test]
    fn a_port_used_again_is_another_attempt() {
        let (attempts, dropped) = fates(&[
            packet(1, 5, 100, true),
            packet(2, 5, 100, true),
            packet(9, 5, 777, true),
            packet(9, 6, 100, true),
        ]);
        assert_eq!((attempts, dropped.len()), (3, 1));
    }
}

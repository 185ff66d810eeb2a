//! One record of the truth for each injection, as it is kept: a JSON object on a line. Pure arithmetic over the logs.

use crate::truth::{Sample, TruthLog};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What really happened at one listening port in an injection's time.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlaceTruth {
    /// Tier.
    pub tier: String,
    /// Host.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What the socket counted of dropped packets (`sk_drops` without deferred ACKs): last segments of handshakes twice.
    pub dropped: u64,
    /// `ListenOverflows` of the namespace.
    pub listen_overflows: u64,
    /// `ListenDrops` of the namespace.
    pub listen_drops: u64,
    /// Connection attempts behind the dropped packets, by the tap.
    pub connections: u64,
    /// SYNs that were dropped, by the tap: each was sent again.
    pub syns: u64,
    /// First request segments that were dropped, by the tap.
    pub segments: u64,
    /// Arrival of the first dropped packet, by the tap; 0: none.
    pub first_drop_unix_ns: u64,
    /// Arrival of the last one.
    pub last_drop_unix_ns: u64,
}

/// What really happened in an injection's time.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TruthRecord {
    /// `stack/cell#number`.
    pub id: String,
    /// Kind of the injection, by the injector's log.
    pub kind: String,
    /// Tier it was done to.
    pub tier: String,
    /// When it began to hurt, by the injector's own clock.
    pub start_unix_ns: u64,
    /// When it ceased to.
    pub end_unix_ns: u64,
    /// What belongs to this injection began from here on.
    pub from_unix_ns: u64,
    /// And before here.
    pub to_unix_ns: u64,
    /// Each listening port.
    pub places: Vec<PlaceTruth>,
    /// Requests that began in its time and took more than a second, by the load generator's log.
    pub vlrt: u64,
    /// Packets that the taps missed.
    pub tap_lost: u64,
}

impl TruthRecord {
    /// Fills in what the logs say of `[from, to)`; `slow` are the starts of requests that took more than a second, in order.
    pub fn observe(&mut self, log: &TruthLog, slow: &[u64]) {
        let (from, to) = (self.from_unix_ns, self.to_unix_ns);
        self.places = log
            .places
            .iter()
            .map(|place| {
                let (before, after): (Sample, Sample) = (place.at(from), place.at(to));
                let mut truth = PlaceTruth {
                    tier: place.place.tier.clone(),
                    host: place.place.host.clone(),
                    port: place.place.port,
                    dropped: after.dropped - before.dropped,
                    listen_overflows: after.listen_overflows - before.listen_overflows,
                    listen_drops: after.listen_drops - before.listen_drops,
                    ..PlaceTruth::default()
                };
                for attempt in &place.dropped {
                    let inside = |at: &&u64| (from..to).contains(*at);
                    let lost = attempt.dropped_unix_ns.iter().filter(inside).count() as u64;
                    if lost == 0 {
                        continue;
                    }
                    truth.connections += u64::from((from..to).contains(&attempt.first_unix_ns));
                    // SYNs come before segments.
                    let syns =
                        attempt.dropped_unix_ns.iter().take(attempt.syns as usize).filter(inside).count()
                            as u64;
                    truth.syns += syns;
                    truth.segments += lost - syns;
                    for at in attempt.dropped_unix_ns.iter().filter(inside) {
                        if truth.first_drop_unix_ns == 0 || *at < truth.first_drop_unix_ns {
                            truth.first_drop_unix_ns = *at;
                        }
                        truth.last_drop_unix_ns = truth.last_drop_unix_ns.max(*at);
                    }
                }
                truth
            })
            .collect();
        let before = |limit: u64| slow.partition_point(|start| *start < limit);
        self.vlrt = (before(to) - before(from)) as u64;
        self.tap_lost = log.places.iter().map(|place| place.tap_lost).sum();
    }

    /// Packets dropped, each once: `ListenDrops`, which counts by network namespace, that is by host, all its ports together.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let mut hosts: BTreeMap<&str, u64> = BTreeMap::new();
        for place in &self.places {
            let host = hosts.entry(&place.host).or_default();
            *host = (*host).max(place.listen_drops);
        }
        hosts.values().sum()
    }

    /// Connection attempts behind the dropped packets: at least and at most. The taps see each dropped SYN and request segment, because
    /// it comes again. A dropped bare ACK leaves no trace on the wire: it may be of an attempt that the tap knows, or of another.
    #[must_use]
    pub fn connections(&self) -> RangeInclusive<u64> {
        let sum = |of: fn(&PlaceTruth) -> u64| self.places.iter().map(of).sum::<u64>();
        let known = sum(|place| place.connections);
        let bare = self.dropped().saturating_sub(sum(|place| place.syns + place.segments));
        known..=known + bare
    }

    /// The tiers that dropped, most packets first.
    #[must_use]
    pub fn dropping_tiers(&self) -> Vec<&str> {
        let mut tiers: Vec<(&str, u64)> = Vec::new();
        for place in self.places.iter().filter(|place| place.dropped > 0) {
            match tiers.iter_mut().find(|(tier, _)| *tier == place.tier) {
                Some((_, sum)) => *sum += place.dropped,
                None => tiers.push((&place.tier, place.dropped)),
            }
        }
        tiers.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
        tiers.into_iter().map(|(tier, _)| tier).collect()
    }

    /// When the first dropped packet arrived anywhere.
    #[must_use]
    pub fn first_drop_unix_ns(&self) -> Option<u64> {
        self.places.iter().map(|place| place.first_drop_unix_ns).filter(|at| *at > 0).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::netns::NetNs;
    use crate::truth::flows::Dropped;
    use crate::truth::{Place, PlaceLog};

    #[test]
    fn a_record_counts_what_fell_into_its_time() {
        let place =
            Place { tier: "web".into(), host: "web-1".into(), netns: NetNs::of("web", "x"), port: 80 };
        let sample = |at_unix_ns, dropped: u64| Sample {
            at_unix_ns,
            dropped,
            listen_drops: dropped.saturating_sub(1),
            ..Sample::default()
        };
        let attempt = |first_unix_ns, dropped_unix_ns: &[u64], syns| Dropped {
            first_unix_ns,
            dropped_unix_ns: dropped_unix_ns.to_vec(),
            syns,
        };
        let log = TruthLog {
            places: vec![PlaceLog {
                place,
                samples: vec![sample(0, 0), sample(110, 3), sample(150, 5), sample(260, 6)],
                attempts: 9,
                dropped: vec![
                    attempt(90, &[90, 190], 2),
                    attempt(105, &[105, 120], 1),
                    attempt(140, &[140, 240], 2),
                ],
                tap_lost: 0,
            }],
        };
        let mut record = TruthRecord { from_unix_ns: 100, to_unix_ns: 200, ..TruthRecord::default() };
        record.observe(&log, &[50, 100, 199, 200]);
        let web = &record.places[0];
        assert_eq!((web.dropped, web.connections, web.syns, web.segments), (5, 2, 3, 1));
        assert_eq!((record.dropped(), record.connections()), (4, 2..=2));
        assert_eq!((web.first_drop_unix_ns, web.last_drop_unix_ns), (105, 190));
        assert_eq!((record.vlrt, record.dropping_tiers()), (2, vec!["web"]));
        // Another listener of the same namespace counts the same, and a bare ACK was dropped of nobody knows whom.
        record.places[0].listen_drops = 5;
        record.places.push(PlaceTruth { tier: "guest".into(), syns: 0, ..record.places[0].clone() });
        record.places[1] = PlaceTruth { connections: 0, segments: 0, ..record.places[1].clone() };
        assert_eq!((record.dropped(), record.connections()), (5, 2..=3));
    }
}

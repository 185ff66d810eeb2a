//! What was dropped, who waits for that, whether it was a flood, and what keeps it going, as it is told. Owns the words of that; knows no
//! root and no hops.

use super::Report;
use crate::baseline::QUEUE_MIN;
use crate::case::settled::Settled;
use crate::path::step::Place;
use crate::topology::tier::TierKey;
use std::collections::BTreeMap;
use tailwater_model::incident::{
    Client, DropReason, Drops, Sustained, SustainedBy, VeryLong, VeryLongKinds, Vlrt,
};
use tailwater_model::window::WINDOW_NS;

/// Observed clients that are listed.
const CLIENTS_MAX: usize = 16;
/// Fewer drops than this are no flood.
const FLOOD_DROPS: u64 = 50;

impl Report<'_> {
    pub(super) fn drops(&self, settled: &Settled) -> Vec<Drops> {
        let mut drops: Vec<Drops> = self
            .case
            .drops
            .iter()
            .map(|((key, listener), count)| {
                let tier = self.tier(key);
                Drops {
                    host: key.host.clone(),
                    workload: tier.map(|t| t.workload.clone()).unwrap_or_default(),
                    tier: tier.map(|t| t.name.clone()).unwrap_or_default(),
                    listener: self.listener(key, *listener),
                    count: count.count,
                    sk_drops: Some(count.sk_drops),
                    // Each had a packet dropped; before the last window is whole, the estimate may be ahead of the count.
                    connections: count.connections().min(count.count),
                    reason: count.reason(),
                    first_unix_ns: settled.first_ns.get(&(key.clone(), *listener)).copied().unwrap_or(0),
                    last_unix_ns: self.end_ns(&key.host, count.last),
                }
            })
            .collect();
        drops.sort_by(|a, b| {
            (a.first_unix_ns, &a.host, &a.listener).cmp(&(b.first_unix_ns, &b.host, &b.listener))
        });
        drops
    }

    /// More drops than completed handshakes, an accept queue with room and no growth of what was taken on.
    pub(super) fn is_flood(&self, settled: &Settled) -> bool {
        let count: u64 = self.case.drops.values().fold(0, |sum, d| sum.saturating_add(d.count));
        let arrivals: u64 = self.case.drops.values().fold(0, |sum, d| sum.saturating_add(d.arrivals));
        count >= FLOOD_DROPS
            && arrivals < count
            && self.case.drops.values().all(|d| d.reason() == DropReason::SynQueueFull)
            && self
                .case
                .drops
                .keys()
                .all(|(key, _)| settled.grew.get(key).is_none_or(|grew| *grew < QUEUE_MIN))
    }

    pub(super) fn vlrt(&self, flood: bool, root: &Place) -> Vlrt {
        let very_long = self.case.drops.values().fold(0u64, |sum, d| sum.saturating_add(d.very_long()));
        let mut clients: BTreeMap<String, u64> = BTreeMap::new();
        for (client, count) in &self.case.retransmits {
            let info = self.view.history.hosts.get(client).map(|h| &h.info);
            let address = info
                .and_then(|i| i.addresses.iter().find(|a| !a.is_loopback()))
                .map(|a| a.to_canonical().to_string());
            *clients.entry(address.unwrap_or_else(|| client.clone())).or_default() += count;
        }
        let mut clients: Vec<Client> =
            clients.into_iter().map(|(address, count)| Client { address, count }).collect();
        clients.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.address.cmp(&b.address)));
        Vlrt {
            syn_retransmits: (!self.case.retransmits.is_empty())
                .then(|| clients.iter().fold(0u64, |sum, c| sum.saturating_add(c.count))),
            // A flood's sources do not wait for an answer.
            expected: if flood { 0 } else { very_long },
            clients: clients.into_iter().filter(|c| c.count > 0).take(CLIENTS_MAX).collect(),
            by_kind: self.very_long(flood, root),
        }
    }

    /// Very long requests at the tiers that no other of the case calls. `None`: it has none, or what took so long is not counted there.
    fn very_long(&self, flood: bool, root: &Place) -> Option<VeryLongKinds> {
        let (topology, tiers) = (self.view.topology, self.case.ledger.tiers());
        // Whoever is called by a tier that no agent sees, and that a tier of the case calls, is none of the first either.
        let below = |key: &TierKey| {
            self.diagnosis.path.iter().skip(1).any(|step| matches!(&step.place, Place::Tier(at) if at == key))
        };
        let calls = |from: &TierKey, to: &TierKey| {
            from != to && topology.leads(from, to) && (from < to || !topology.leads(to, from))
        };
        let is_first = |key: &&TierKey| {
            let is_called = tiers.clone().any(|other| calls(other, key));
            !is_called && (!below(key) || *key == &self.case.start)
        };
        let mut kinds = None;
        for key in tiers.clone().filter(is_first) {
            let VeryLong { retried, queued, unread, inside } = self.case.ledger.very_long(key)?;
            let kinds = kinds.get_or_insert_with(VeryLongKinds::default);
            let dropped = self.case.drops.iter().filter(|((at, _), _)| at == key && !flood);
            let again = dropped.map(|(_, count)| count.very_long()).fold(0, u64::saturating_add);
            let is_before_root = match root {
                Place::Tier(root) => root != key && topology.leads(key, root),
                _ => true,
            };
            let of = if is_before_root { &mut kinds.behind } else { &mut kinds.inside };
            *of = of.saturating_add(inside);
            // The kernel counts those whose last ACK was dropped and who were answered; who lost a SYN is estimated.
            kinds.retransmitted = kinds.retransmitted.saturating_add(again.max(retried));
            kinds.queued = kinds.queued.saturating_add(queued);
            kinds.unread = kinds.unread.saturating_add(unread);
        }
        kinds
    }

    pub(super) fn sustained(&self, drops: &[Drops]) -> Option<Sustained> {
        let (key, since, kept) = self.case.sustained.as_ref()?;
        let most = self.case.drops.iter().filter(|((k, _), _)| k == key).max_by_key(|(_, d)| d.count);
        let ((_, listener), count) = most?;
        let listener = self.listener(key, *listener);
        let workload = self.tier(key).map(|t| t.workload.clone()).unwrap_or_default();
        let out = kept.way_out(count.limit);
        let rate = |value: f64| (value * 10.0).round() / 10.0;
        let usual = self.case.settled.usual.get(key).map(|u| rate(u * 1e9 / WINDOW_NS as f64));
        let share = (kept.share * 100.0).round() / 100.0;
        let packets = drops.iter().fold(0u64, |sum, d| sum.saturating_add(d.count));
        let way_out = format!(
            "below {:.0} requests/s for {} s, or with an accept queue of {} (it is {})",
            out.below, out.for_s, out.queue, count.limit
        );
        let before = usual.map_or_else(String::new, |u| format!(" ({u:.0} before it began)"));
        let evidence = format!(
            "the root is over, and {packets} packets are dropped by now: of {:.0} connection attempts a second {:.0} % had been dropped before \
             and came again; first attempts alone are {:.0} a second{before}, {:.0} a second are answered, and up to {:.0} wait to come again",
            kept.attempts,
            100.0 * share,
            kept.first,
            kept.capacity,
            kept.waiting
        );
        Some(Sustained {
            by: SustainedBy::Retries,
            since_unix_ns: self.start_ns(&key.host, *since),
            until_unix_ns: self.end_ns(&key.host, kept.last),
            retry_share: share,
            attempts_per_second: rate(kept.attempts),
            first_attempts_per_second: rate(kept.first),
            capacity_per_second: rate(kept.capacity),
            usual_per_second: usual,
            host: key.host.clone(),
            workload,
            listener,
            queue_needed: out.queue,
            load_below_per_second: out.below,
            load_below_for_s: out.for_s,
            way_out,
            evidence,
        })
    }
}

//! More requests than usual: followed upwards along arrivals to who sent them first, or had stored them. Owns how many more that are, and
//! what is no more than was held back or came again; ranks no cause.

use super::step::{PATH_MAX, Place, Step};
use super::view::{BEFORE_WINDOWS, LONGEST_WINDOWS, Node, STANDS_RATIO, View, stands};
use crate::baseline::QUEUE_MIN;
use crate::config::{RETRY_WINDOWS, Thresholds};
use crate::episode::Episode;
use crate::episode::drop::{BACKOFFS, LATE_WINDOWS, late};
use crate::frame::history::HISTORY_WINDOWS;
use crate::series::growth::{LEAD_WINDOWS, PAST_WINDOWS, usual};
use crate::series::sample::{CallSample, TierSample};
use crate::series::{EDGE_WINDOWS, Series, average, quantile};
use crate::topology::tier::{Tier, TierKey};
use tailwater_model::incident::Resource;

/// A tier that took on this many times the usual rate may have been sent many times more.
const SURGE_TAKEN: f64 = 1.8;
/// A tier had stored requests if less than this part of what it sent beyond the usual had come to it then.
const STORED_RATIO: f64 = 0.5;
/// A surge is looked at until so long after the drop (100 ms): the window of the first drop may hold little of it.
const SURGE_AFTER: u64 = 2;
/// And no longer after its own beginning than this (500 ms): what comes later may be retries.
const SURGE_WINDOWS: u64 = 10;

/// A request costs as usual up to this many times the CPU of a usual one, in CPU used by answers sent: a server that is full has some tens of
/// requests in progress that have used CPU and are not answered, a part of what it answers in the windows that are looked at.
const COST_MORE: f64 = 1.5;

/// Where requests came from that were more than usual.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Surge {
    /// The uppermost tier that got more, or the one that stored and sent them.
    pub(crate) at: TierKey,
    pub(crate) onset: u64,
    /// Times the usual rate.
    pub(crate) ratio: f64,
    /// An observed client that is no tier.
    pub(crate) client: Option<TierKey>,
    /// The tier that got the surge calls for it from here: `at` had stored requests.
    pub(crate) stored: bool,
    /// What was more than usual were connections, and not requests: see [`opened_at_once`].
    pub(crate) connections: bool,
}

/// Follows more arrivals than usual upwards; `None` if there were not more. `own_load`: the tier used up its CPU, or its quota,
/// itself.
pub(crate) fn surge(view: View<'_>, here: &TierKey, node: &Node, at: u64, own_load: bool) -> Option<Surge> {
    // Where arrivals are not seen, drops alone would be many times what is usual.
    if view.history.polls_queues(&here.host) {
        return None;
    }
    let full = own_load && costs_as_usual(node, at);
    let burst = view.thresholds.burst_ratio;
    let mut found: Option<Surge> = None;
    let mut key = here.clone();
    let mut onset = node.onset;
    let mut arrivals = node.tier.map(TierSample::came);
    for _ in 0..PATH_MAX {
        // A tier at its limit takes no more on than that: what its callers sent is asked, too. One that was near it before hardly takes more
        // at all, and is sent no more than a pool has connections: then what came to the tiers above says how much was asked for.
        let asked = full && found.is_none();
        let (taken, many) =
            if asked { (0.0, burst.min(SURGE_TAKEN)) } else { (burst.min(SURGE_TAKEN), burst) };
        let Some(ratio) = times_usual(&arrivals, onset, at, taken) else { break };
        if ratio >= burst {
            found = Some(Surge {
                at: key.clone(),
                onset,
                ratio,
                client: None,
                stored: false,
                connections: false,
            });
        }
        // Nor does a caller at its limit send as much as it was sent: whether that is many is asked there.
        let sent = |calls: &Series<CallSample>| calls.map(|s| s.started + s.connecting.max(0.0));
        let sender = sent_most(view, &key, onset, at, many, sent)
            .or_else(|| sent_most(view, &key, onset, at, taken, sent));
        let Some(Sender { ratio, caller, sent }) = sender else { break };
        let Some(tier) = view.topology.tiers.get(&caller) else { break };
        if tier.listeners.is_empty() {
            if let Some(surge) = &mut found {
                surge.client = Some(caller);
            }
            break;
        }
        let up = view.node(&caller, tier, at, onset.saturating_sub(LONGEST_WINDOWS), at);
        let since = onset.saturating_sub(EDGE_WINDOWS + view.slack(&key.host, &caller.host, at));
        let stored =
            had_stored(&up.tier, &sent, since, at.saturating_add(SURGE_AFTER)) || kept_waiting(&up, since);
        if ratio >= many && stored && !view.was_sent_many(&caller, &up, at) {
            let onset = up.onset.min(onset);
            found = Some(Surge { at: caller, onset, ratio, client: None, stored: true, connections: false });
            break;
        }
        onset = up.onset.min(onset);
        arrivals = up.tier.map(TierSample::came);
        key = caller;
    }
    found
        .filter(|surge| surge.stored || view.offered_more(&surge.at, surge.onset, at))
        .or_else(|| opened_at_once(view, here, node, at))
}

/// Connections that a caller opened all at once, though it sent hardly more requests than usual: while it was short of something itself it took what
/// waited for it in bits, each of them larger than what its pool had left. The accept queue below counts connections alone. `None` where the caller
/// was sent many more requests than usual itself, or where nothing waited in it before; and where the queue had grown before they came.
fn opened_at_once(view: View<'_>, here: &TierKey, node: &Node, at: u64) -> Option<Surge> {
    let burst = view.thresholds.burst_ratio;
    if node.tier.get(at).is_none_or(|s| s.drops == 0) || node.onset.saturating_add(EDGE_WINDOWS) < at {
        return None;
    }
    times_usual(&node.tier.map(TierSample::connections_came), at, at, burst)?;
    let opened = |calls: &Series<CallSample>| calls.map(|s| s.connects);
    let Sender { ratio, caller, .. } = sent_most(view, here, at, at, burst, opened)?;
    let tier = view.topology.tiers.get(&caller).filter(|tier| !tier.listeners.is_empty())?;
    let up = view.node(&caller, tier, at, at.saturating_sub(LONGEST_WINDOWS), at);
    let waited = up.growth.is_some_and(|grown| grown.peak >= QUEUE_MIN) && up.onset < at;
    let stored = waited && !view.was_sent_many(&caller, &up, at) && !held_up(node, &up, at, view.thresholds);
    stored.then_some(Surge {
        at: caller,
        onset: up.onset,
        ratio,
        client: None,
        stored: true,
        connections: true,
    })
}

/// Whether a tier held a good part of what was in progress in a caller of it, since the caller's queue grew and until right before window `at`: then the
/// caller waited for it, and is no cause of its queue. Answers that the caller did not read yet are not held there.
fn held_up(node: &Node, caller: &Node, at: u64, thresholds: &Thresholds) -> bool {
    let mean = |of: &Node, f: fn(&TierSample) -> f64| {
        average(of.tier.range(caller.onset, at.saturating_sub(1)).map(|(_, s)| f(s)))
    };
    let active = mean(caller, |s| s.active).max(1.0);
    mean(node, TierSample::queued) >= thresholds.explained_ratio * active
}

/// Whether the neighbour that took the CPU is itself a tier on the way of the requests that overflowed a queue of `path`, or below a tier to which
/// a burst came that is said to have overflowed it, and more of them than usual had come to it: then what it took is what these cost there, be
/// they a burst or retries.
pub(crate) fn is_under_the_same(
    view: View<'_>,
    victim: &Place,
    episode: &Episode,
    path: &[Step],
    bursts: &[Place],
    at: u64,
) -> bool {
    let Place::Tier(victim) = victim else { return false };
    let taker = episode.culprits.first().filter(|_| episode.resource == Resource::CpuNeighbour);
    let Some(taker) = taker.map(|taker| taker.workload.as_str()) else { return false };
    let leads = |from: &TierKey, to: &TierKey| from == to || view.topology.leads(from, to);
    let on_the_way = |key: &TierKey| {
        let from = |place: &Place| matches!(place, Place::Tier(from) if leads(from, key));
        let mut places = path.iter().map(|step| &step.place).chain(bursts);
        leads(key, victim) || leads(victim, key) || places.any(from)
    };
    let surged = |key: &TierKey, tier: &Tier| {
        let last = at.saturating_add(SURGE_AFTER);
        let series = view.tier_series(&key.host, tier, at.saturating_sub(BEFORE_WINDOWS), last);
        let came = series.map(TierSample::came);
        // They come before they cost anything, if only by the edge of a window.
        (episode.first.saturating_sub(EDGE_WINDOWS)..=episode.first)
            .any(|onset| times_usual(&came, onset, at, SURGE_TAKEN).is_some())
    };
    view.topology.tiers.iter().any(|(key, tier)| {
        key.host == victim.host
            && key.workload != victim.workload
            && tier.workload == taker
            && on_the_way(key)
            && surged(key, tier)
    })
}

/// Whether a tier answers no fewer requests than usual, and each costs as much CPU: what fills it is how many come, not that it is slower.
fn costs_as_usual(node: &Node, at: u64) -> bool {
    let busy = node.used.map(|s| s.busy);
    let answered = node.tier.map(|s| s.answered);
    let sum = |series: &Series<f64>, from, to| -> f64 { series.range(from, to).map(|(_, v)| *v).sum() };
    let before = (node.onset.saturating_sub(BEFORE_WINDOWS), node.onset.saturating_sub(LEAD_WINDOWS));
    let during = (node.onset, at.saturating_add(SURGE_AFTER));
    let cost = |(from, to)| sum(&busy, from, to) / sum(&answered, from, to).max(1.0);
    let rate = average(answered.range(during.0, during.1).map(|(_, v)| *v));
    rate >= usual(&answered, node.onset) && cost(during) <= COST_MORE * cost(before)
}

impl View<'_> {
    /// Whether a tier that stored requests was sent many more than usual itself: then it stored them because it cannot work off so many at once,
    /// as an event loop does that reads them all before it asks anybody else.
    fn was_sent_many(&self, tier: &TierKey, node: &Node, at: u64) -> bool {
        let came = node.tier.map(TierSample::came);
        times_usual(&came, node.onset, at, self.thresholds.burst_ratio).is_some()
            && self.offered_more(tier, node.onset, at)
    }

    /// Whether clients offered more than usual at a tier from `onset` on: what came, less what had been dropped and came again, and less what
    /// had been held back. The trough before a surge is no measure of it: after a stall everything comes at once that was asked meanwhile.
    fn offered_more(&self, key: &TierKey, onset: u64, at: u64) -> bool {
        let Some(tier) = self.topology.tiers.get(key) else { return true };
        let last = at.saturating_add(SURGE_AFTER);
        let first = onset.saturating_sub(HISTORY_WINDOWS as u64);
        let tier = self.tier_series(&key.host, tier, first, last);
        let waiting = |index: u64| tier.get(index).map_or(0.0, |s| s.waiting);
        let dropped = |index: u64| tier.get(index).map_or(0.0, |s| s.drops as f64);
        let offered = Series {
            first,
            values: (first..=last.min(self.history.next.saturating_sub(1)))
                .map(|i| {
                    let s = tier.get(i)?;
                    // Those who wait for a second come within two windows; of longer waits the most who may.
                    let due = |after: u64| {
                        let ago = |late: u64| dropped(i.saturating_sub(after + late));
                        match late(after) {
                            ..=LATE_WINDOWS => f64::midpoint(ago(0), ago(1)),
                            most => (0..=most).map(ago).fold(0.0, f64::max),
                        }
                    };
                    let again = BACKOFFS.map(|after| came_again(due, after));
                    let again = again.into_iter().fold(0.0, f64::max);
                    Some((s.came() - again).max(0.0))
                })
                .collect(),
        };
        // Whoever is seen for half a second only may have been sent as many all day.
        if offered.range(first, onset.saturating_sub(1)).count() < PAST_WINDOWS {
            return false;
        }
        // What is usual is asked of all that is remembered, not of a stall that may fill the last seconds.
        let before = quantile(offered.range(first, onset.saturating_sub(1)).map(|(_, v)| *v), 0.5);
        let rate = before.max(usual(&offered, onset)).max(1.0);
        // A queue grows a little after the first of them came.
        let came_before = |first: &u64| offered.get(*first).is_some_and(|v| *v >= SURGE_TAKEN * rate);
        let earlier = (onset.saturating_sub(EDGE_WINDOWS)..onset).rev().take_while(came_before).last();
        let onset = earlier.unwrap_or(onset);
        // Held back: what did not come in the trough right before, and what waited to be read when it ended.
        let trough =
            (first..onset).rev().take_while(|i| offered.get(*i).is_none_or(|v| *v < STANDS_RATIO * rate));
        let held: f64 = trough.filter_map(|i| offered.get(i)).map(|v| rate - v).sum();
        let held = held + waiting(onset.saturating_sub(1));
        let (mut sum, mut count, mut most) = (0.0, 0.0, 0.0_f64);
        for (_, value) in offered.range(onset, last.min(onset.saturating_add(SURGE_WINDOWS))) {
            sum += value;
            count += 1.0;
            most = most.max((sum - held) / count);
        }
        most >= self.thresholds.burst_ratio * rate
    }
}

/// How many may come now for the time after which a SYN waits so long: `due` says how many were dropped so many windows ago. Who waits twice as
/// long as the time before was dropped then, too.
fn came_again(due: impl Fn(u64) -> f64, after: u64) -> f64 {
    let mut least = due(after);
    let (mut ago, mut wait) = (after, after / 2);
    while wait >= RETRY_WINDOWS {
        ago += wait;
        // Each timer is late by itself.
        least = least.min((ago..=ago + late(ago)).map(&due).fold(0.0, f64::max));
        wait /= 2;
    }
    least
}

/// A caller, and how many times as much as usual it sent.
struct Sender {
    ratio: f64,
    caller: TierKey,
    /// Calls that were begun, and connections for them.
    sent: Series<f64>,
}

/// The caller of `key` that sent most, of those that sent at least `least` times as much as usual; `sent`: what of its calls is asked.
fn sent_most(
    view: View<'_>,
    key: &TierKey,
    onset: u64,
    at: u64,
    least: f64,
    sent: impl Fn(&Series<CallSample>) -> Series<f64>,
) -> Option<Sender> {
    let sending = view.topology.up(key).filter_map(|link| {
        // How much earlier the same moment can be in a caller's windows, beyond the one for their edges.
        let from = onset.saturating_sub(1 + view.slack(&key.host, &link.from.host, at));
        let sent = sent(&view.calls(link, at));
        let ratio = (from..=onset).find_map(|from| times_usual(&sent, from, at, least))?;
        let sum: f64 = sent.range(from, at).map(|(_, v)| *v).sum();
        Some((sum, Sender { ratio, caller: link.from.clone(), sent }))
    });
    sending.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, sender)| sender)
}

/// Whether a tier sent more in `[from, to]` than came to it then: it had stored requests, or makes them. What came is what it read, and by
/// how much more waits to be read; each side as a multiple of its usual rate, for a request may take several calls.
fn had_stored(tier: &Series<TierSample>, sent: &Series<f64>, from: u64, to: u64) -> bool {
    let received = tier.map(|s| s.received);
    let (got_usual, sent_usual) = (usual(&received, from).max(1.0), usual(sent, from).max(1.0));
    let windows = sent.range(from, to).count().max(1) as f64;
    let waiting = |index: u64| tier.get(index).map_or(0.0, |s| s.waiting);
    let end = tier.range(from, to).map(|(i, _)| i).last().unwrap_or(to);
    let read: f64 = received.range(from, to).map(|(_, v)| *v).sum();
    let got = (read + waiting(end) - waiting(from.saturating_sub(1))) / (windows * got_usual);
    let sent = sent.range(from, to).map(|(_, v)| *v).sum::<f64>() / (windows * sent_usual);
    got - 1.0 < STORED_RATIO * (sent - 1.0)
}

/// Whether a tier hardly read what came while its queue grew, until `from`, when it sent more than usual: then its callers had stored requests, too,
/// and what came to it from then on is no measure of what it had stored itself.
fn kept_waiting(node: &Node, from: u64) -> bool {
    let Some(last) = from.checked_sub(1).filter(|last| node.onset <= *last) else { return false };
    let received = node.tier.map(|s| s.received);
    let read = average(received.range(node.onset, last).map(|(_, v)| *v));
    let waiting = node.tier.get(last).map_or(0.0, |s| s.waiting);
    waiting >= QUEUE_MIN && stands(read, usual(&received, node.onset))
}

/// How many times the usual rate came from `onset` on, if at least `least`: over the first window, or the first two, or as many as show the
/// most. A surge begins anywhere in its first window, and may go on after the drop.
pub(crate) fn times_usual(rate: &Series<f64>, onset: u64, at: u64, least: f64) -> Option<f64> {
    let before = usual(rate, onset).max(1.0);
    let until = at.saturating_add(SURGE_AFTER).min(onset.saturating_add(SURGE_WINDOWS));
    let (mut sum, mut count, mut most) = (0.0, 0.0, 0.0_f64);
    for (_, value) in rate.range(onset, until) {
        sum += value;
        count += 1.0;
        most = most.max(sum / count);
    }
    let ratio = most / before;
    (ratio >= least && most >= QUEUE_MIN).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails where new clients are taken for old ones because something was dropped 2, 4 or 8 s ago, of which nothing had been dropped before.
    #[test]
    fn who_waits_longer_was_dropped_before() {
        let [one, two, four, eight] = BACKOFFS;
        let dropped = |at: &'static [u64]| move |ago: u64| if at.contains(&ago) { 100.0 } else { 0.0 };
        let again = |at, after| came_again(dropped(at), after) > 0.0;
        assert!(again(&[20], one));
        assert!(!again(&[40], two) && again(&[40, 60], two) && again(&[40, 62], two));
        assert!(!again(&[80], four) && !again(&[80, 120], four) && again(&[80, 120, 140], four));
        assert!(!again(&[160], eight) && !again(&[160, 240, 280], eight));
        assert!(again(&[160, 240, 280, 300], eight) && again(&[160, 241, 281, 302], eight));
    }
}

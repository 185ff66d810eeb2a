//! Calls that got nowhere: those that a tier's queue waits for and that the tier below does not have, while hardly an answer comes and segments of theirs are
//! sent again. Then packets were lost between the two: the caller's, or what acknowledges them. Owns that judgement; finds no way, and ranks nothing.
//!
//! Others make callers send again as well, and are not judged here: an accept queue that overflowed, a machine that stood (its windows are missing, or it is
//! short of something), and whoever no agent sees, or sees no requests of. Sources: RFC 6298 (the first time-out is 200 ms on Linux, and doubles; that of a SYN
//! is a second), RFC 8985 (a tail loss probe).

use super::calls::{ARRIVED_RATIO, POOL_EXPLAINS, Risen, held, risen};
use super::view::{Node, PEAK_AFTER, View, stands};
use crate::config::RETRY_WINDOWS;
use crate::episode::stall::RATE_MIN;
use crate::episode::{Episode, Lost, quality};
use crate::series::growth::{PAST_WINDOWS, quiet, usual};
use crate::series::sample::{CallSample, TierSample};
use crate::series::{EDGE_WINDOWS, Series, average};
use crate::topology::graph::Link;
use crate::topology::tier::TierKey;
use tailwater_model::incident::Resource;

/// Segments that are sent again, at least: one or two are lost anywhere. Of connections with several calls at once …
const LEAST: f64 = 3.0;
/// … one is sent again for all of them, and the next one is due after twice as long.
const LEAST_SHARED: f64 = 2.0;
/// The same as a part of the calls that wait: each is sent again 200 ms after its segment, so that of those which began last none is yet.
const PART: f64 = 0.2;
/// And they are so many times what was usual while nobody waited.
const TIMES: f64 = 4.0;
/// What is left of its quality where the caller was short of something itself: it may be why no answers were read.
const SHORT_TOO: f64 = 0.9;
/// What [`Episode::peak`] counts.
const SEGMENTS: &str = "segments";

/// The calls of a tier that got nowhere while its queue grew: of several whom it called the one to which most did. `is_short`: whether a tier was short of
/// something at a moment.
pub(super) fn episode(
    view: View<'_>,
    here: &TierKey,
    node: &Node,
    at: u64,
    is_short: &dyn Fn(&TierKey, &Node, u64) -> bool,
) -> Option<Episode> {
    if !view.history.measures_calls(&here.host) {
        return None;
    }
    // Of those behind one address it is not told whose the calls are: one of them stands for all.
    let one_of_each = |link: &&Link| {
        view.topology.to_same_address(link).next().is_some_and(|first| std::ptr::eq(first, *link))
    };
    let links = view.topology.down(here).filter(one_of_each);
    let found = links.filter_map(|link| of_link(view, link, node, at, is_short));
    let mut most = found.max_by_key(|episode| episode.lost.as_ref().map_or(0, |lost| lost.calls))?;
    if is_short(here, node, at) {
        most.quality *= SHORT_TOO;
        most.why.push_str("; it was short of something itself");
    }
    Some(most)
}

fn of_link(
    view: View<'_>,
    link: &Link,
    node: &Node,
    at: u64,
    is_short: &dyn Fn(&TierKey, &Node, u64) -> bool,
) -> Option<Episode> {
    link.to.as_ref()?;
    let calls = view.calls(link, at);
    // Before anything else is worked out: on most links nothing is ever sent again.
    if calls.range(calls.first, calls.end()).all(|(_, s)| sent_again(s) == 0) {
        return None;
    }
    // A pool may have no more connections than those that are dialled in vain: the others wait for one of them, unseen.
    let risen = risen(view, link, &calls, node, at, POOL_EXPLAINS)?;
    let (called, first) = (risen.called, risen.called.onset);
    // The window in which the first were lost still had answers.
    let answered = calls.map(|s| s.answered);
    let rate = usual(&answered, first);
    let silent = answered.range(first + 1, calls.end()).take_while(|(_, n)| stands(**n, rate));
    let silent = silent.map(|(index, _)| index).last()?;
    let to = whom(view, link, &risen, (first, silent), at, is_short)?;
    // When packets pass again each call goes on at its next time-out.
    let waits = risen.waiting.range(called.at, calls.end()).take_while(|(_, n)| !called.is_gone(**n));
    let gone = waits.map(|(index, _)| index).last().unwrap_or(called.at);
    let resent = calls.range(first, gone).fold(0_u64, |sum, (_, s)| sum.saturating_add(sent_again(s)));
    let usually = usually_sent_again(&calls, &risen, first)? * (gone + 1).saturating_sub(first) as f64;
    let shared = calls.range(first, silent).any(|(_, s)| s.connections_only);
    let least = match shared {
        true => LEAST_SHARED,
        false => LEAST.max(PART * called.rise()),
    };
    if (resent as f64) < least.max(TIMES * usually) {
        return None;
    }
    let again = calls.range(first, gone).filter(|(_, s)| sent_again(s) > 0);
    let last = again.map(|(index, _)| index).last().map_or(silent, |last| last.max(silent));
    let waited = called.rise().round();
    let name = view.topology.tiers.get(to).map_or("the tier below", |tier| tier.name.as_str());
    Some(Episode {
        resource: Resource::Network,
        first,
        last,
        peak: resent as f64,
        unit: SEGMENTS,
        quality: quality::NETWORK,
        by_load: false,
        of_host: false,
        culprits: Vec::new(),
        event_loop: None,
        lookups: None,
        lost: Some(Lost { to: to.clone(), calls: waited as u32, resent }),
        why: format!(
            "{waited:.0} more calls than usual to {name} on {} waited, which did not have them and had dropped no connection; {resent} segments were sent there again (usually {usually:.1} in that time)",
            to.host
        ),
    })
}

/// Who was called, and did not have the calls; behind one address there may be several, and then whoever was asked least. `None`: they had them, or may have
/// had them.
fn whom<'a>(
    view: View<'a>,
    link: &'a Link,
    risen: &Risen,
    (first, silent): (u64, u64),
    at: u64,
    is_short: &dyn Fn(&TierKey, &Node, u64) -> bool,
) -> Option<&'a TierKey> {
    let until = silent.min(at);
    let mut there = 0.0;
    let mut least: Option<(f64, &TierKey)> = None;
    for one in view.topology.to_same_address(link) {
        let key = one.to.as_ref()?;
        let slack = view.slack(&one.from.host, &key.host, at);
        let moment = at.saturating_add(slack);
        let node = view.around(key, moment)?;
        let is_seen =
            view.history.measures_requests(&key.host) && ran(view, &key.host, (first, until), moment);
        if !is_seen || is_short(key, &node, moment) {
            return None;
        }
        // Whoever was dropped sends again, a SYN after as long. What comes as a batch when packets pass again may be dropped, too.
        let from = first.saturating_sub(RETRY_WINDOWS + slack);
        if node.tier.range(from, silent.saturating_sub(EDGE_WINDOWS)).any(|(_, s)| s.drops > 0) {
            return None;
        }
        let queued = node.tier.map(TierSample::queued);
        let level = node.growth.map_or_else(|| quiet(&queued, first), |grown| grown.usual);
        let during = u64::midpoint(first, until)..=until;
        there += held(&risen.waiting, risen.called.usual, &queued, level, during, slack);
        let received = node.tier.map(|s| s.received);
        let part = average(received.range(first + 1, silent).map(|(_, n)| *n))
            / usual(&received, first).max(RATE_MIN);
        if least.is_none_or(|(fell, _)| part < fell) {
            least = Some((part, key));
        }
    }
    least.filter(|_| there < ARRIVED_RATIO).map(|(_, key)| key)
}

/// Whether a host ran and told of it: of one that stood nobody knows what it had.
fn ran(view: View<'_>, host: &str, (first, until): (u64, u64), moment: u64) -> bool {
    let windows = view.history.windows_of(host);
    let is_whole = (first..=until).all(|index| windows.at(index).is_some());
    let mut around = (first..=moment.saturating_add(PEAK_AFTER)).filter_map(|index| windows.at(index));
    is_whole && !around.any(|window| window.lost_before > 0 || window.clock_corrected)
}

fn sent_again(sample: &CallSample) -> u64 {
    sample.data_retransmits.saturating_add(sample.syn_retransmits)
}

/// In the mean of the windows before in which nobody waited, as a link that was lost a moment ago is not usual; `None`: too few are known.
fn usually_sent_again(calls: &Series<CallSample>, risen: &Risen, first: u64) -> Option<f64> {
    let nobody_waits = |index: u64| risen.waiting.get(index).is_some_and(|n| risen.called.is_gone(*n));
    let before =
        || calls.range(calls.first, first.saturating_sub(1)).filter(|(index, _)| nobody_waits(*index));
    (before().count() >= PAST_WINDOWS).then(|| average(before().map(|(_, s)| sent_again(s) as f64)))
}

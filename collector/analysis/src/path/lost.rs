//! Calls that got nowhere: those that a tier's queue waits for and that the tier below does not have, while segments of theirs are sent again. Then packets
//! were lost between the two, in whichever direction: what is acknowledged by nobody is sent again too. Owns that judgement; finds no way, and ranks
//! nothing.
//!
//! A full accept queue makes callers send again as well, and so does a machine that stands: whose listener dropped, or whose windows are missing, is not
//! judged here, nor is one that no agent sees. Sources: RFC 6298 (the first time-out is 200 ms on Linux, and doubles), RFC 8985 (a tail loss probe).

use super::below::{ARRIVED_RATIO, Risen, held, risen};
use super::candidate::{Candidate, fitting};
use super::step::Place;
use super::view::{MISSING_PART, Node, PEAK_AFTER, View};
use crate::config::RETRY_WINDOWS;
use crate::episode::{Episode, Lost, quality};
use crate::series::growth::{PAST_WINDOWS, quiet};
use crate::series::sample::{CallSample, TierSample};
use crate::series::{Series, average};
use crate::topology::graph::Link;
use crate::topology::tier::TierKey;
use tailwater_model::incident::Resource;

/// Segments that are sent again, at least: one or two are lost anywhere.
const LEAST: f64 = 3.0;
/// The same as a part of the calls that wait: each is sent again 200 ms after its first segment, so that of those which began last none is yet. Of
/// connections with several calls at once each sends one segment again for all of them.
const PART: f64 = 0.2;
/// And they are so many times what was usual in the seconds before.
const TIMES: f64 = 4.0;
/// What [`Episode::peak`] counts.
const SEGMENTS: &str = "segments";

/// The calls of a tier that got nowhere while its queue grew, if packets of theirs were lost: of several callees the one to which most did.
pub(super) fn on_the_way(view: View<'_>, here: &TierKey, node: &Node, at: u64) -> Option<Candidate> {
    if !view.history.measures_calls(&here.host) {
        return None;
    }
    let found = view.topology.down(here).filter_map(|link| episode(view, link, node, at));
    let most = found.max_by_key(|episode| episode.lost.as_ref().map_or(0, |lost| lost.calls))?;
    let fits = fitting(vec![most], node.onset, at).pop()?;
    Some(Candidate::new(Place::Tier(here.clone()), fits))
}

fn episode(view: View<'_>, link: &Link, node: &Node, at: u64) -> Option<Episode> {
    let to = link.to.as_ref()?;
    let calls = view.calls(link, at);
    let risen = risen(view, link, &calls, node, at, view.thresholds.explained_ratio)?;
    if are_held(view, link, &risen, node, at)? {
        return None;
    }
    // Until nobody waits any more: when packets pass again each call goes on at its next time-out.
    let called = risen.called;
    let waits = risen.waiting.range(called.at, calls.end()).take_while(|(_, n)| !called.is_gone(**n));
    let (first, last) = (called.onset, waits.map(|(index, _)| index).last().unwrap_or(called.at));
    let (resent, usually) = (resent(&calls, first, last), usually_resent(&calls, first)?);
    let windows = (last + 1).saturating_sub(first) as f64;
    let of = called.rise().min(f64::from(risen.open));
    if (resent as f64) < LEAST.max(PART * of).max(TIMES * usually * windows) {
        return None;
    }
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
            "{waited:.0} more calls than usual to {name} on {} waited, which did not have them and dropped no connection; {resent} segments to it were sent again (usually {:.1} in that time)",
            to.host,
            usually * windows
        ),
    })
}

/// Whether the calls are where they were sent to, or may be: behind one address there may be several. `None`: of one of those nobody knows, or its listener
/// dropped, whose callers send again, too.
fn are_held(view: View<'_>, link: &Link, risen: &Risen, node: &Node, at: u64) -> Option<bool> {
    let mut there = 0.0;
    for one in view.topology.to_same_address(link) {
        let key = one.to.as_ref()?;
        let slack = view.slack(&one.from.host, &key.host, at);
        let below = view.around(key, at.saturating_add(slack))?;
        // Whoever was dropped sends again after as long.
        let from = risen.called.onset.min(node.onset).saturating_sub(RETRY_WINDOWS + slack);
        let to = at.saturating_add(PEAK_AFTER + slack);
        let is_seen = below.tier.missing(node.onset, at) < MISSING_PART;
        if !is_seen || below.tier.range(from, to).any(|(_, s)| s.drops > 0) {
            return None;
        }
        let queued = below.tier.map(TierSample::queued);
        let usual = below.growth.map_or_else(|| quiet(&queued, node.onset), |grown| grown.usual);
        let during = u64::midpoint(node.onset, at)..=at;
        there += held(&risen.waiting, risen.called.usual, &queued, usual, during, slack);
    }
    Some(there >= ARRIVED_RATIO)
}

fn sent_again(sample: &CallSample) -> u64 {
    sample.data_retransmits.saturating_add(sample.syn_retransmits)
}

fn resent(calls: &Series<CallSample>, first: u64, last: u64) -> u64 {
    calls.range(first, last).fold(0, |sum, (_, s)| sum.saturating_add(sent_again(s)))
}

/// In the mean of the windows before; `None`: too few are known.
fn usually_resent(calls: &Series<CallSample>, first: u64) -> Option<f64> {
    let before = || calls.range(calls.first, first.saturating_sub(1)).map(|(_, s)| sent_again(s) as f64);
    (before().count() >= PAST_WINDOWS).then(|| average(before()))
}

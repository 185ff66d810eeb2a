//! Calls that rose with the queue of whoever makes them: who waits along a link, connections that nobody accepted or greeted among them, how much of the
//! caller's growth that is, and how much of it the tier below held. Owns what a call that waits is; takes no step and names no cause.

use super::view::{Node, PEAK_AFTER, PEAK_BEFORE, View};
use crate::series::growth::{Growth, RISE_MIN, growth, quiet};
use crate::series::sample::CallSample;
use crate::series::{EDGE_WINDOWS, Series};
use crate::topology::graph::Link;
use std::ops::RangeInclusive;
use tailwater_model::window::is_pool_used_up;

/// Part of the calls that rose, over the later half of the time in which their caller's queue grew, that must be queued in the tier below;
/// else the answers wait in the caller.
pub(super) const ARRIVED_RATIO: f64 = 0.3;
/// Calls that use up a pool account for their caller's growth with this part of it: the others wait for a connection, unseen.
pub(super) const POOL_EXPLAINS: f64 = 0.2;

/// Calls along a link that rose with the queue of their caller, and account for a part of it.
pub(super) struct Risen {
    /// Whoever waits, window by window: calls in flight, connections that are not established, and those that wait for a greeting.
    pub(super) waiting: Series<f64>,
    /// How these grew.
    pub(super) called: Growth,
    /// Most connections to it that were open.
    pub(super) open: u32,
    /// All of these connections had a call in flight.
    pub(super) exhausted: bool,
    /// Most that waited for a greeting.
    pub(super) ungreeted: f64,
    /// Part of the caller's growth, and more than 1 where it is more.
    pub(super) explains: f64,
}

/// Calls along a link that rose so that they account for `least` of their caller's growth, or used up its pool.
pub(super) fn risen(
    view: View<'_>,
    link: &Link,
    calls: &Series<CallSample>,
    node: &Node,
    at: u64,
    least: f64,
) -> Option<Risen> {
    let (from, to) = (node.onset.min(at.saturating_sub(PEAK_BEFORE)), at.saturating_add(PEAK_AFTER));
    let mut waiting = with_connecting(calls, node.onset);
    let mut ungreeted = 0.0_f64;
    // Behind an address of several it is not told whose queue they are in.
    if let Some(key) = &link.to
        && view.topology.ends(link) == 1
        && let Some(tier) = view.topology.tiers.get(key)
        && let Some(silent) = silent(calls, node.onset, to)
    {
        let slack = view.slack(&link.from.host, &key.host, at);
        let (first, last) = (calls.first.saturating_sub(slack), calls.end().saturating_add(slack));
        let backlog = view.tier_series(&key.host, tier, first, last).map(|s| s.backlog);
        let of = waiting_for_a_greeting(&silent, &backlog, slack);
        ungreeted = of.range(from, to).map(|(_, of)| *of).fold(0.0, f64::max);
        waiting = sum(&waiting, &of);
    }
    let called = growth(&waiting, from, to, view.dips())?;
    let active = node.tier.map(|s| s.active);
    let active_usual = quiet(&active, node.onset);
    let active_rise = active.range(node.onset, to).map(|(_, v)| *v - active_usual).fold(0.0, f64::max);
    let explains = called.rise() / active_rise.max(1.0);
    let (in_flight, open) =
        calls.range(from, to).fold((0, 0), |(f, o), (_, s)| (f.max(s.in_flight_max), o.max(s.open_max)));
    let exhausted = is_pool_used_up(in_flight, open);
    let accounts = explains >= least || (exhausted && explains >= POOL_EXPLAINS);
    accounts.then_some(Risen { waiting, called, open, exhausted, ungreeted, explains })
}

/// Part of the calls above `usual` that the tier below held, which `queued` more than `queued_usual`: window by window, the later the
/// more, for a queue that it had before and was rid of does not count. Its windows may be `slack` apart from the caller's.
pub(super) fn held(
    calls: &Series<f64>,
    usual: f64,
    queued: &Series<f64>,
    queued_usual: f64,
    during: RangeInclusive<u64>,
    slack: u64,
) -> f64 {
    let (mut all, mut there) = (0.0, 0.0);
    for (index, value) in calls.range(*during.start(), *during.end()) {
        let rose = (value - usual).max(0.0);
        let near = queued.range(index.saturating_sub(slack), index.saturating_add(slack));
        let most = near.map(|(_, v)| v - queued_usual).fold(0.0, f64::max);
        let weight = (index - during.start() + 1) as f64;
        all += weight * rose;
        there += weight * rose.min(most);
    }
    if all > 0.0 { there / all } else { 0.0 }
}

/// Calls in flight, and connections that were begun since `onset` and are not established.
fn with_connecting(calls: &Series<CallSample>, onset: u64) -> Series<f64> {
    let mut connecting: f64 = 0.0;
    let values = calls.values.iter().enumerate().map(|(i, sample)| {
        let sample = sample.as_ref()?;
        if calls.first.saturating_add(i as u64) >= onset {
            connecting = (connecting + sample.connecting).max(0.0);
        }
        Some(sample.in_flight + connecting)
    });
    Series { first: calls.first, values: values.collect() }
}

/// What may wait for a greeting in one window.
#[derive(Debug, Clone, Copy)]
struct Silent {
    /// Connections beyond the usual number on which no call is in flight; no more than were opened since.
    connections: f64,
    /// Calls in flight beyond the usual number: where the client speaks first, these are what lies in the queue of the tier below.
    asked: f64,
}

/// Of windows from `onset` on, up to `to`; `None`: hardly any connection was opened, as where a pool has all that it needs.
fn silent(calls: &Series<CallSample>, onset: u64, to: u64) -> Option<Series<Silent>> {
    let since = onset.saturating_sub(EDGE_WINDOWS);
    let opened = |s: &CallSample| (s.connects - s.connecting).max(0.0);
    if calls.range(since, to).map(|(_, s)| opened(s)).sum::<f64>() < RISE_MIN {
        return None;
    }
    let open = quiet(&calls.map(|s| f64::from(s.open_max)), onset);
    let in_flight = quiet(&calls.map(|s| s.in_flight), onset);
    let mut all = 0.0;
    let values = (calls.first..calls.end()).map(|at| {
        let s = calls.get(at)?;
        all += if at < since { 0.0 } else { opened(s) };
        let asked = s.in_flight - in_flight;
        let connections = (f64::from(s.open_max) - open - asked).min(all).max(0.0);
        Some(Silent { connections, asked: asked.max(0.0) })
    });
    let values = values.collect();
    Some(Series { first: calls.first, values })
}

/// As many of them as are in the accept queue of the tier below, within `slack` windows. Whoever is connected to a server that speaks first (MySQL, SMTP) waits
/// there for its greeting, and has sent nothing that could be a call.
fn waiting_for_a_greeting(silent: &Series<Silent>, backlog: &Series<f64>, slack: u64) -> Series<f64> {
    let values = (silent.first..silent.end()).map(|at| {
        let silent = silent.get(at)?;
        let near = backlog.range(at.saturating_sub(slack), at.saturating_add(slack));
        let queued = near.map(|(_, backlog)| *backlog).fold(0.0, f64::max);
        Some(silent.connections.min(queued - silent.asked).max(0.0))
    });
    Series { first: silent.first, values: values.collect() }
}

/// Both together, window by window.
fn sum(a: &Series<f64>, b: &Series<f64>) -> Series<f64> {
    let values = (a.first..a.end()).map(|at| Some(a.get(at)? + b.get(at).copied().unwrap_or(0.0)));
    Series { first: a.first, values: values.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40 usual windows in which 3 connections are open and one has a call in flight, then 10 of the case, in each of which so many connections are opened.
    fn calls(open_max: u32, in_flight: f64, connects: f64) -> Series<CallSample> {
        let of = |open_max, in_flight, connects| CallSample {
            open_max,
            in_flight,
            connects,
            ..CallSample::default()
        };
        let pick = |i| if i < 40 { of(3, 1.0, 0.0) } else { of(open_max, in_flight, connects) };
        Series { first: 100, values: (0..50).map(|i| Some(pick(i))).collect() }
    }

    /// So many wait for a greeting in the newest window, where so many are in the accept queue in the windows before it.
    fn waiting(open_max: u32, in_flight: f64, connects: f64, queued: f64, slack: u64) -> f64 {
        let calls = calls(open_max, in_flight, connects);
        let Some(silent) = silent(&calls, 140, 149) else { return 0.0 };
        let backlog = (0..49).map(|i| Some(if i > 46 { queued } else { 0.0 }));
        let backlog = Series { first: 100, values: backlog.collect() };
        let waiting = waiting_for_a_greeting(&silent, &backlog, slack);
        let all = sum(&calls.map(|s| s.in_flight), &waiting);
        assert_eq!(all.get(149), Some(&(in_flight + waiting.get(149).unwrap())));
        *waiting.get(149).unwrap()
    }

    /// A MariaDB that has no CPU: 20 of the 23 connections of its caller are in its accept queue, and nobody has said a word on them.
    #[test]
    fn who_is_connected_to_a_server_that_speaks_first_waits_for_it() {
        assert_eq!(waiting(23, 4.0, 2.0, 20.0, 1), 17.0);
        assert_eq!(waiting(23, 4.0, 2.0, 9.0, 1), 6.0, "the others are a pool that has grown");
        assert_eq!(waiting(23, 4.0, 0.5, 20.0, 1), 5.0, "or were there before");
        assert_eq!(waiting(23, 4.0, 0.0, 20.0, 1), 0.0, "nobody dials");
        assert_eq!(waiting(23, 4.0, 2.0, 20.0, 0), 0.0, "that window of it has not come");
        assert_eq!(waiting(23, 21.0, 2.0, 20.0, 1), 0.0, "they have asked");
        assert_eq!(waiting(40, 15.0, 4.0, 10.0, 1), 0.0, "those in the queue have, the others are idle");
        assert_eq!(waiting(3, 3.0, 2.0, 20.0, 1), 0.0, "others wait there");
    }
}

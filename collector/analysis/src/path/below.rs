//! One step down: which of the tiers that one calls accounts for what waits in it. Owns by how much and at what time calls must have
//! grown, or stood, for that; knows no way and ranks no cause.

use super::candidate;
use super::step::{PartOf, Place, Step};
use super::view::{MISSING_PART, Node, PEAK_AFTER, PEAK_BEFORE, View, stands};
use crate::episode::Episode;
use crate::series::growth::{Growth, RISE_MIN, growth, quiet, usual};
use crate::series::sample::{CallSample, TierSample};
use crate::series::{EDGE_WINDOWS, Series, average};
use crate::topology::graph::Link;
use crate::topology::tier::TierKey;
use std::ops::RangeInclusive;
use tailwater_model::window::{NEARLY_ALL, POOL_LEAST, is_pool_used_up};

/// Part of the calls that rose, over the later half of the time in which their caller's queue grew, that must be queued in the tier below;
/// else the answers wait in the caller.
pub(super) const ARRIVED_RATIO: f64 = 0.3;
/// Of two tiers that were short of something, the second is as likely the cause with this part of the first one's quality.
const AS_LIKELY: f64 = 0.85;
/// A queue that began to grow this much later than its caller's did not make that one grow (300 ms): it may be what the caller sent on
/// when its own millibottleneck was over.
const LATER_WINDOWS: u64 = 6;
/// Calls that use up a pool account for their caller's growth with this part of it: the others wait for a connection, unseen.
const POOL_EXPLAINS: f64 = 0.2;

/// What calls along a link account for.
pub(crate) struct Explained {
    /// So many calls.
    rise: f64,
    /// The part of them that is the tier's at the link's end: all, or where one address leads to several, what it holds.
    own: f64,
    /// The way there.
    pub(crate) step: Step,
}

impl Explained {
    /// The part of the caller's growth, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        self.step.explains * self.own
    }
}

/// The tier below whose calls explain this tier's growth best.
pub(crate) fn below(view: View<'_>, here: &TierKey, node: &Node, at: u64, path: &[Step]) -> Option<Step> {
    if !view.history.measures_calls(&here.host) {
        return short_below(view, here, node, at, path);
    }
    let least = view.thresholds.explained_ratio;
    let mut best: Option<Explained> = None;
    for found in explained(view, here, node, at, path, least) {
        if best.as_ref().is_none_or(|best| (found.rise, found.own) > (best.rise, best.own)) {
            best = Some(found);
        }
    }
    best.map(|found| found.step)
}

/// The tiers below, but for those of `path`, whose calls explain at least so large a part of this tier's growth each.
pub(crate) fn explained(
    view: View<'_>,
    here: &TierKey,
    node: &Node,
    at: u64,
    path: &[Step],
    least: f64,
) -> impl Iterator<Item = Explained> {
    let is_on_the_way = move |to: Option<&TierKey>| {
        path.iter().any(|step| matches!(&step.place, Place::Tier(on) if Some(on) == to))
    };
    let links = view.topology.down(here).filter(move |link| !is_on_the_way(link.to.as_ref()));
    links.filter_map(move |link| explained_by(view, link, node, at, least))
}

/// The way to a tier in which a resource was short when this one's queue overflowed, where nobody measures calls: of those that it calls, at
/// any depth, the one whose shortage fits best. `None` also where this tier was short of something itself, or where two are as likely.
fn short_below(view: View<'_>, here: &TierKey, node: &Node, at: u64, path: &[Step]) -> Option<Step> {
    if candidate::short(view, here, node, at).is_some() {
        return None;
    }
    let seen = |key: &TierKey| path.iter().any(|s| matches!(&s.place, Place::Tier(on) if on == key));
    let mut found: Vec<(Episode, TierKey)> = Vec::new();
    for key in view.topology.reachable(here).into_iter().filter(|key| !seen(key)) {
        let at = at.saturating_add(view.slack(&here.host, &key.host, at));
        let Some(there) = view.around(&key, at) else { continue };
        let short = candidate::short(view, &key, &there, at);
        // It fills the queues above it only after a while: what began right before the drop may be what the same burst did there.
        let before = short.filter(|episode| episode.first.saturating_add(EDGE_WINDOWS) <= at);
        found.extend(before.map(|episode| (episode, key)));
    }
    found.sort_by(|a, b| b.0.quality.total_cmp(&a.0.quality));
    let (best, key) = found.first()?;
    if found.get(1).is_some_and(|(second, _)| second.quality >= AS_LIKELY * best.quality) {
        return None;
    }
    let next = view.topology.path(here, key)?.into_iter().nth(1)?;
    let name = view.topology.tiers.get(key).map_or("a tier below", |tier| tier.name.as_str());
    Some(Step {
        place: Place::Tier(next),
        onset: best.first.min(at),
        explains: 0.0,
        part_of: PartOf::Growth,
        why: format!(
            "calls of {} are not measured, and {name}, which it depends on, was short of something",
            here.host
        ),
    })
}

/// Whether calls along a link account for what waits at their caller, for a part of `least` or more.
fn explained_by(view: View<'_>, link: &Link, node: &Node, at: u64, least: f64) -> Option<Explained> {
    let calls = view.calls(link, at);
    risen_below(view, link, &calls, node, at, least)
        .or_else(|| stands_below(view, link, &calls, node, at, least))
}

/// Calls that were in flight already, to a tier that came to a stand with all of them: under an overload that lasts, a caller's workers
/// all wait below at all times, so that neither its calls nor the queue below can grow when that tier stops.
fn stands_below(
    view: View<'_>,
    link: &Link,
    calls: &Series<CallSample>,
    node: &Node,
    at: u64,
    least: f64,
) -> Option<Explained> {
    let key = link.to.as_ref()?;
    // The window in which it came to a stand still had answers.
    let (from, to) = (node.onset.saturating_add(1).min(at.saturating_sub(1)), at);
    let mean = average(calls.range(from, to).map(|(_, s)| s.in_flight));
    let active = average(node.tier.range(from, to).map(|(_, s)| s.active));
    let (in_flight, open) =
        calls.range(from, to).fold((0, 0), |(f, o), (_, s)| (f.max(s.in_flight_max), o.max(s.open_max)));
    let part = mean / active.max(1.0);
    if mean < f64::from(POOL_LEAST) || !(part >= least || is_pool_used_up(in_flight, open)) {
        return None;
    }
    let slack = view.slack(&link.from.host, &key.host, at);
    let below = view.around(key, at.saturating_add(slack))?;
    let answered = below.tier.map(|s| s.answered);
    let rate = usual(&answered, node.onset);
    let now = average(answered.range(from, to).map(|(_, v)| *v));
    if !stands(now, rate) || below.tier.missing(from, to) >= MISSING_PART {
        return None;
    }
    let queued = below.tier.map(TierSample::queued);
    let in_flight = calls.map(|s| s.in_flight);
    let held = held(&in_flight, 0.0, &queued, 0.0, from..=to, slack);
    let ends = view.topology.ends(link);
    if held < NEARLY_ALL / ends as f64 {
        return None;
    }
    let whose = match ends {
        1 => format!("all {mean:.0} calls to it"),
        _ => format!("{:.0} % of the {mean:.0} calls to its address", 100.0 * held),
    };
    let why = format!("it held {whose} and sent {now:.1} answers per window where {rate:.1} are usual");
    let step = Step {
        place: Place::Tier(key.clone()),
        onset: node.onset,
        explains: part.min(1.0),
        part_of: PartOf::Requests,
        why,
    };
    Some(Explained { rise: mean, own: if ends > 1 { held } else { 1.0 }, step })
}

/// Calls along a link that rose with the queue of their caller, and account for a part of it.
pub(super) struct Risen {
    /// Whoever waits, window by window: calls in flight, connections that are not established, and those that wait for a greeting.
    pub(super) waiting: Series<f64>,
    /// How these grew.
    pub(super) called: Growth,
    /// Most connections to it that were open.
    pub(super) open: u32,
    /// All of them had a call in flight.
    exhausted: bool,
    /// Most that waited for a greeting.
    ungreeted: f64,
    /// Part of the caller's growth, and more than 1 where it is more.
    explains: f64,
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

/// Such calls, where the tier below holds them.
fn risen_below(
    view: View<'_>,
    link: &Link,
    calls: &Series<CallSample>,
    node: &Node,
    at: u64,
    least: f64,
) -> Option<Explained> {
    let to = at.saturating_add(PEAK_AFTER);
    let Risen { waiting, called, open, exhausted, ungreeted, explains } =
        risen(view, link, calls, node, at, least)?;
    let how = if exhausted {
        format!("all {open} connections to it had a call in flight")
    } else if ungreeted >= RISE_MIN {
        format!(
            "calls to it rose by {:.0}, of which {ungreeted:.0} were connections that it had neither accepted nor greeted",
            called.rise()
        )
    } else {
        format!("calls to it rose by {:.0}", called.rise())
    };
    let step = |place, onset| Step {
        place,
        onset,
        explains: explains.min(1.0),
        part_of: PartOf::Growth,
        why: how.clone(),
    };
    let found = |own, step| Some(Explained { rise: called.rise(), own, step });
    // Where one address leads to several, they have an even part each.
    let ends = view.topology.ends(link);
    let Some(key) = &link.to else {
        return found(1.0, step(Place::Unobserved(link.remote.0, link.remote.1), called.onset));
    };
    let slack = view.slack(&link.from.host, &key.host, at);
    let below = view.around(key, at.saturating_add(slack))?;
    let to = to.saturating_add(slack);
    if below.tier.missing(node.onset, at) >= MISSING_PART {
        return found(1.0 / ends as f64, step(Place::Missing(key.clone()), called.onset));
    }
    if below.onset > node.onset.saturating_add(LATER_WINDOWS + slack) {
        return None;
    }
    let held = below.growth.map_or(0.0, |grown| {
        let queued = below.tier.map(TierSample::queued);
        held(&waiting, called.usual, &queued, grown.usual, u64::midpoint(node.onset, at)..=at, slack)
    });
    let dropped = below.tier.range(node.onset, to).any(|(_, s)| s.drops > 0);
    // Calls that the tier below does not hold were answered, and the answers wait in the caller, unless it dropped them.
    if held < ARRIVED_RATIO / ends as f64 && !dropped {
        return None;
    }
    let mut step = step(Place::Tier(key.clone()), below.onset);
    if ends == 1 {
        return found(1.0, step);
    }
    step.why = format!("{how}, of which it holds {:.0} %", 100.0 * held);
    found(held, step)
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

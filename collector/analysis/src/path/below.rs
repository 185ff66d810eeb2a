//! One step down: which of the tiers that one calls accounts for what waits in it. Owns by how much and at what time calls must have
//! grown, or stood, for that; knows no way and ranks no cause.

use super::calls::{ARRIVED_RATIO, Risen, held, risen};
use super::candidate;
use super::step::{PartOf, Place, Step};
use super::view::{MISSING_PART, Node, PEAK_AFTER, View, stands};
use crate::episode::Episode;
use crate::series::growth::{RISE_MIN, usual};
use crate::series::sample::{CallSample, TierSample};
use crate::series::{EDGE_WINDOWS, Series, average};
use crate::topology::graph::Link;
use crate::topology::tier::TierKey;
use tailwater_model::window::{NEARLY_ALL, POOL_LEAST, is_pool_used_up};

/// Of two tiers that were short of something, the second is as likely the cause with this part of the first one's quality.
const AS_LIKELY: f64 = 0.85;
/// A queue that began to grow this much later than its caller's did not make that one grow (300 ms): it may be what the caller sent on
/// when its own millibottleneck was over.
const LATER_WINDOWS: u64 = 6;

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

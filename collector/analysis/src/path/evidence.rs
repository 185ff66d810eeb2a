//! What speaks for and against a root, as numbers from 0 to 1 with names. Owns the names and what each number is. Gives no weight to any: that is
//! learnt from recordings whose truth is known (`report/calibrated.rs`, written by `make calibrate`).

use super::candidate::Candidate;
use super::step::{PATH_MAX, Place, Step};
use super::view::{BEFORE_WINDOWS, LONGEST_WINDOWS, View};
use crate::episode::stall::RATE_MIN;
use crate::series::average;
use crate::series::growth::{LEAD_WINDOWS, usual};
use tailwater_model::incident::Resource;
use tailwater_model::window::WINDOW_NS;

/// How many numbers there are.
pub(crate) const COUNT: usize = 25;
/// What each of them is called; docs/incidents.md says the same in words for those who read them.
pub const NAMES: [&str; COUNT] = [
    "score",
    "quality",
    "lead",
    "lead_over_other_tiers",
    "rivals",
    "began_early",
    "began_late",
    "held",
    "over_before",
    "length",
    "queue_rise",
    "far",
    "calls_explain",
    "behind_unseen",
    "unseen_below",
    "below_explains",
    "windows_missing",
    "clock_error",
    "polled",
    "own_load",
    "more_requests",
    "stood",
    "culprit_share",
    "answers_fell",
    "busy_before",
];
/// Values in the order of [`NAMES`].
pub(crate) type Evidence = [f64; COUNT];

/// An onset so far before the queue's (1 s), or an end so far before the drop, is all of `began_early` and `over_before`.
const EARLY_WINDOWS: f64 = 20.0;
/// A queue that grew by so many requests is half of `queue_rise`.
const RISE_HALF: f64 = 50.0;
/// So many other candidates are all of `rivals`.
const RIVALS_MOST: f64 = 6.0;

/// The numbers of the best candidate. `None` if it names no resource or its tier cannot be looked into: how often "unexplained" is right is no
/// question. `at` is the window from which the walk along `path` started.
pub(crate) fn evidence(candidates: &[Candidate], path: &[Step], view: View<'_>, at: u64) -> Option<Evidence> {
    let (best, others) = candidates.split_first()?;
    let Place::Tier(key) = &best.place else { return None };
    let episode = &best.episode;
    if episode.resource == Resource::Unexplained {
        return None;
    }
    let node = view.around(key, at)?;
    let position = path.iter().position(|s| s.place == best.place);
    let way = path.get(..=position.unwrap_or(0)).unwrap_or(path);
    let best_of = |is: &dyn Fn(&Candidate) -> bool| {
        others.iter().filter(|c| is(c)).map(|c| c.score).fold(0.0, f64::max)
    };
    let named = |c: &Candidate| c.episode.resource != Resource::Unexplained;
    let onset = node.onset;
    let until = at.max(onset);
    let held = episode.last.min(until).saturating_add(1).saturating_sub(episode.first.max(onset));
    let rate = usual(&node.tier.map(|s| s.answered), onset);
    let answered = average(node.tier.range(episode.first, episode.last.min(until)).map(|(_, s)| s.answered));
    // Before: the seconds without the half second in which it may have begun.
    let (from, to) = (
        onset.min(episode.first).saturating_sub(BEFORE_WINDOWS),
        onset.min(episode.first).saturating_sub(LEAD_WINDOWS),
    );
    let busy = average(node.used.range(from, to).map(|(_, u)| {
        let all = if u.quota > 0.0 { u.quota } else { u.capacity };
        if all > 0.0 { u.busy / all } else { 0.0 }
    }));
    let is = |yes: bool| f64::from(u8::from(yes));
    let unseen = |place: &Place| match place {
        Place::Tier(key) => view
            .around(key, at)
            .map_or(1.0, |n| n.tier.missing(n.onset.saturating_sub(LEAD_WINDOWS), at.max(n.onset))),
        Place::Unobserved(..) | Place::Missing(_) => 1.0,
    };
    let unseen_below = elsewhere(path, position, others, &best.place).map(unseen).fold(0.0, f64::max);
    let numbers = [
        best.score,
        episode.quality,
        best.score - best_of(&named),
        best.score - best_of(&|c| c.place != best.place),
        others.iter().filter(|c| named(c)).count() as f64 / RIVALS_MOST,
        onset.saturating_sub(episode.first) as f64 / EARLY_WINDOWS,
        episode.first.saturating_sub(onset) as f64 / LEAD_WINDOWS as f64,
        held as f64 / until.saturating_add(1).saturating_sub(onset).max(1) as f64,
        at.saturating_sub(episode.last) as f64 / EARLY_WINDOWS,
        episode.last.saturating_add(1).saturating_sub(episode.first) as f64 / LONGEST_WINDOWS as f64,
        node.growth.map_or(0.0, |g| g.rise() / (g.rise() + RISE_HALF)),
        way.len().saturating_sub(1) as f64 / (PATH_MAX - 1) as f64,
        way.iter().map(|s| s.explains).product(),
        is(way.iter().any(|s| !matches!(s.place, Place::Tier(_)))),
        unseen_below,
        is(position.is_some_and(|p| p + 1 < path.len())),
        node.tier.missing(onset.saturating_sub(LEAD_WINDOWS), until),
        view.clock_error(&key.host, at) as f64 / WINDOW_NS as f64,
        is(view.history.polls_queues(&key.host)),
        is(episode.by_load),
        is(others.iter().any(|c| c.episode.resource == Resource::Burst)),
        is(matches!(episode.resource, Resource::Pause | Resource::Lock)),
        episode.culprits.first().map_or(0.0, |c| c.share),
        // Of a tier that answers hardly anything at any time nothing is seen to fall.
        if rate < RATE_MIN { 0.0 } else { 1.0 - answered / rate },
        busy,
    ];
    // Thousandths: what is told is what was weighed, and the last bits of a division are nobody's evidence.
    Some(numbers.map(|n| (n.clamp(0.0, 1.0) * 1000.0).round() / 1000.0))
}

/// The places that may as well be the root: what lies below the best candidate on the way, and whatever else is a candidate, but for the way to it.
fn elsewhere<'a>(
    path: &'a [Step],
    position: Option<usize>,
    others: &'a [Candidate],
    best: &'a Place,
) -> impl Iterator<Item = &'a Place> {
    let (way, below) = path.split_at_checked(position.map_or(0, |p| p + 1)).unwrap_or((path, &[]));
    let is_on_the_way = move |place: &Place| place == best || way.iter().any(|step| step.place == *place);
    let below = if position.is_some() { below } else { &[] };
    let others = others.iter().map(|other| &other.place).filter(move |place| !is_on_the_way(place));
    below.iter().map(|step| &step.place).chain(others)
}

//! From a tier whose queue overflowed to the root: down along calls whose growth explains the queue, up along arrivals, and the
//! episodes found at the places in between. Owns the walk; `below` and `surge` own a step, `candidate` which episode fits. Knows no
//! drops and no output.

use super::below::below;
use super::bridge;
use super::candidate::{self, Also, Candidate};
use super::evidence::{Evidence, evidence};
use super::step::{PATH_MAX, PartOf, Place, Step};
use super::view::View;
use crate::topology::tier::TierKey;

/// Why what is found behind an unobserved tier is less sure.
const CROSSED: &str = "as the way to it leads through a tier that no agent sees";

/// A walk that found nothing surer than this is made again …
const WEAK: f64 = 0.5;
/// … and what it finds then is believed if it is as sure as this.
const SURELY: f64 = 0.7;

/// A tier has caught up whose queue was gone in the window of the drop and in so many before it.
const CAUGHT_UP_WINDOWS: u64 = 1;

/// What a walk found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Diagnosis {
    pub(crate) path: Vec<Step>,
    /// Best first, never empty.
    pub(crate) candidates: Vec<Candidate>,
    /// What speaks for and against the best of them, in numbers; `None`: it names no resource, or a place that cannot be looked into.
    pub(crate) evidence: Option<Evidence>,
    /// An unobserved tier above `path`, which sent what overflowed it.
    pub(crate) above: Option<Place>,
    /// Further causes that filled the same queue, once they were asked for.
    pub(crate) also: Vec<Also>,
    /// It is what a second look found, see [`View::of_late`].
    pub(super) late: bool,
}

/// Walks from `start`, whose queue was fullest (or dropped) in window `at`. A tier near its limit has one wave after the other, and its queue may have begun
/// to grow with an earlier one that did no harm: what was short then explains little. So what a walk is not sure of, and what was short in a tier of which
/// nothing was left to wait for, is held once against what came later.
pub(crate) fn diagnose(view: View<'_>, start: &TierKey, at: u64) -> Diagnosis {
    let mut view = view;
    let mut found = walk(view, start, at, true);
    if found
        .candidates
        .first()
        .is_some_and(|best| best.score < WEAK || was_caught_up(view, &found, start, at))
    {
        let later = walk(view.of_late(), start, at, true);
        if later.candidates.first().is_some_and(|best| best.is_surely_from_outside(SURELY)) {
            (view, found) = (view.of_late(), later);
            found.late = true;
        }
    }
    found.evidence = evidence(&found.candidates, &found.path, view, at);
    found
}

/// Whether a cause below was over, and its tier had caught up, when the queue overflowed: nobody waited for it any more.
fn was_caught_up(view: View<'_>, found: &Diagnosis, start: &TierKey, at: u64) -> bool {
    let Some(best) = found.candidates.first() else { return false };
    // What a batch was stored behind is over before the batch comes.
    let is_below = found.path.iter().skip(1).any(|step| step.place == best.place);
    let Place::Tier(key) = &best.place else { return false };
    if !is_below || best.before_batch.is_some() {
        return false;
    }
    let slack = view.slack(&start.host, &key.host, at);
    let (from, to) = (at.saturating_sub(CAUGHT_UP_WINDOWS + slack), at.saturating_add(slack));
    if best.episode.last >= from {
        return false;
    }
    let Some(node) = view.around(key, to) else { return false };
    let Some(grown) = node.growth else { return false };
    let is_known = node.tier.range(from, to).count() as u64 > to - from;
    is_known && node.tier.range(from, to).all(|(_, s)| grown.is_gone(s.queued()))
}

/// The same without its evidence; `batches`: of a tier that had stored requests it is looked for what held them back, below it.
pub(super) fn walk(view: View<'_>, start: &TierKey, at: u64, batches: bool) -> Diagnosis {
    let mut path = Vec::new();
    let mut candidates = Vec::new();
    let mut above = None;
    let mut here = start.clone();
    let (mut explains, mut part_of) = (1.0, PartOf::Growth);
    let mut why = String::new();
    // What is left of confidence after the unobserved tiers that were crossed.
    let mut crossed: Option<f64> = None;
    let start_at = at;
    loop {
        // The same moment in this host's windows, as late as it can be.
        let at = start_at.saturating_add(view.slack(&start.host, &here.host, start_at));
        let Some(node) = view.around(&here, at) else { break };
        path.push(Step { place: Place::Tier(here.clone()), onset: node.onset, explains, part_of, why });
        let below = below(view, &here, &node, at, &path);
        let last = path.len() >= PATH_MAX || below.is_none();
        let (mut found, held) = candidate::at_tier(view, &here, &node, at, last);
        if let Some(surge) = held.filter(|_| batches) {
            // Its queue is looked at as it was before the batch left.
            let before = node.onset.saturating_add(view.slack(&here.host, &surge.at.host, at));
            let above = walk(view, &surge.at, before, false);
            found.extend(candidate::held_back_by(above.candidates, &surge, &node, &path));
        }
        if path.len() == 1
            && let Some(batch) = bridge::batch(view, &here, &node, at)
        {
            candidate::batch_from(&mut found, &batch, &node, at);
            above = Some(batch.from);
        }
        if let Some(factor) = crossed {
            found.iter_mut().for_each(|c| c.times(factor, CROSSED));
        }
        candidates.extend(found);
        let Some(step) = below.filter(|_| !last) else { break };
        match &step.place {
            Place::Tier(next) => {
                here = next.clone();
                (explains, part_of) = (step.explains, step.part_of);
                why = step.why;
            }
            Place::Unobserved(..) => {
                let bridges = bridge::across(view, &here, &step, at, &path);
                let mut unseen = candidate::beyond_sight(&step, at, !bridges.is_empty());
                if let Some(factor) = crossed {
                    unseen.times(factor, CROSSED);
                }
                candidates.push(unseen);
                path.push(step);
                let Some(first) = bridges.first() else { break };
                for other in bridges.iter().skip(1) {
                    candidates.extend(beside(view, other, at));
                }
                crossed = Some(crossed.unwrap_or(1.0) * first.factor);
                here = first.to.clone();
                (explains, part_of) = (1.0, PartOf::Growth);
                why = first.why.clone();
            }
            Place::Missing(_) => {
                candidates.push(candidate::beyond_sight(&step, at, false));
                path.push(step);
                break;
            }
        }
    }
    candidate::rank(&mut candidates, &path, view, start, at);
    Diagnosis { path, candidates, evidence: None, above, also: Vec::new(), late: false }
}

/// Roots at a tier that might be behind an unobserved one, less likely than another.
fn beside(view: View<'_>, bridge: &bridge::Bridge, at: u64) -> Vec<Candidate> {
    let Some(node) = view.around(&bridge.to, at) else { return Vec::new() };
    let (mut found, _) = candidate::at_tier(view, &bridge.to, &node, at, false);
    found.iter_mut().for_each(|c| {
        c.times(
            bridge.factor,
            "as another observed tier is likelier to be behind the one that no agent sees",
        );
    });
    found
}

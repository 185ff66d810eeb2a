//! From a tier whose queue overflowed to the root: down along calls whose growth explains the queue, up along arrivals, and the
//! episodes found at the places in between. Owns the walk; `below` and `surge` own a step, `candidate` which episode fits. Knows no
//! drops and no output.

use super::below::{below, explained};
use super::bridge;
use super::candidate::{self, Candidate};
use super::evidence::{Evidence, evidence};
use super::step::{PATH_MAX, PartOf, Place, Step};
use super::view::View;
use crate::series::growth::LEAD_WINDOWS;
use crate::topology::tier::TierKey;
use tailwater_model::incident::Resource;

/// Why what is found behind an unobserved tier is less sure.
const CROSSED: &str = "as the way to it leads through a tier that no agent sees";

/// Calls that account for this part of their caller's growth lead to a cause of their own, if there is one: without either of both the caller would
/// have had so many requests fewer when its queue overflowed.
const ALSO_EXPLAINS: f64 = 0.25;
/// Score by rule from which such a cause is told.
const ALSO_SCORE: f64 = 0.5;
/// Further causes at most.
const ALSO_MAX: usize = 3;

/// A further cause of the same overflow, in another branch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Also {
    /// It.
    pub(crate) candidate: Candidate,
    /// The part of the growth, at the tier where both branches part, that calls to it account for, 0 to 1.
    pub(crate) share: f64,
}

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
    /// Further causes that filled the same queue, the one with the largest part first.
    pub(crate) also: Vec<Also>,
}

/// Walks from `start`, whose queue was fullest (or dropped) in window `at`.
pub(crate) fn diagnose(view: View<'_>, start: &TierKey, at: u64) -> Diagnosis {
    let mut found = walk(view, start, at, true);
    found.also = also(view, &found, start, at);
    found
}

/// Further causes of the queue that the walk began with: what calls lead to, beside those of its way, from any tier in front of its root. Of a burst
/// there is none: all branches get more then.
fn also(view: View<'_>, found: &Diagnosis, start: &TierKey, at: u64) -> Vec<Also> {
    let mut others: Vec<Also> = Vec::new();
    let Some(root) = found.candidates.first() else { return others };
    let Some(end) = found.path.iter().position(|step| step.place == root.place) else { return others };
    if matches!(root.episode.resource, Resource::Burst | Resource::Unexplained) {
        return others;
    }
    for step in found.path.iter().take(end) {
        let Place::Tier(here) = &step.place else { continue };
        let at = at.saturating_add(view.slack(&start.host, &here.host, at));
        let Some(node) = view.around(here, at) else { continue };
        for (_, branch) in explained(view, here, &node, at, &found.path, ALSO_EXPLAINS) {
            let Place::Tier(to) = &branch.place else { continue };
            let there = at.saturating_add(view.slack(&here.host, &to.host, at));
            let mut walked = walk(view, to, there, false);
            if walked.candidates.is_empty() {
                continue;
            }
            let candidate = walked.candidates.swap_remove(0);
            let fills = candidate.episode.first <= there.saturating_add(LEAD_WINDOWS)
                && candidate.episode.last >= node.onset.saturating_sub(LEAD_WINDOWS);
            let named = !matches!(candidate.episode.resource, Resource::Burst | Resource::Unexplained);
            if named && fills && candidate.score >= ALSO_SCORE && !is_the_same(&candidate, root, &others) {
                others.push(Also { candidate, share: branch.explains });
            }
        }
    }
    others.sort_by(|a, b| b.share.total_cmp(&a.share));
    others.truncate(ALSO_MAX);
    others
}

/// Whether a cause is one that is known already: what happens to a host happens to all of its tiers.
fn is_the_same(candidate: &Candidate, root: &Candidate, others: &[Also]) -> bool {
    let host = |of: &Candidate| match &of.place {
        Place::Tier(key) | Place::Missing(key) => Some(key.host.clone()),
        Place::Unobserved(..) => None,
    };
    let known = std::iter::once(root).chain(others.iter().map(|other| &other.candidate));
    known.into_iter().any(|known| host(known) == host(candidate))
}

/// The same; `batches`: of a tier that had stored requests it is looked for what held them back, below it.
fn walk(view: View<'_>, start: &TierKey, at: u64, batches: bool) -> Diagnosis {
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
    let evidence = evidence(&candidates, &path, view, at);
    Diagnosis { path, candidates, evidence, above, also: Vec::new() }
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

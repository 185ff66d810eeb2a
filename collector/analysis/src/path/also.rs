//! Further causes of one overflow: tiers in other branches below the same callers that stood for a cause of their own, and held a good part of what
//! waited. Owns when such a cause is one, and no effect of the root; knows no drops.

use super::below::explained;
use super::candidate::{Also, Candidate, ONSET_TOLERANCE};
use super::chain::{Diagnosis, walk};
use super::step::Place;
use super::view::View;
use crate::topology::tier::TierKey;
use tailwater_model::incident::Resource;

/// Calls that account for this part of their caller's growth lead to a cause of their own, if there is one: without either of both the caller would
/// have had so many requests fewer when its queue overflowed.
const ALSO_EXPLAINS: f64 = 0.25;
/// Score by rule from which such a cause is told.
const ALSO_SCORE: f64 = 0.5;
/// Further causes at most.
const ALSO_MAX: usize = 3;

/// Further causes of the queue that a walk began with, the one with the largest part first: what calls lead to, beside those of its way, from any
/// tier in front of its root. Of a burst there is none: all branches get more then.
pub(crate) fn also(view: View<'_>, found: &Diagnosis, start: &TierKey, at: u64) -> Vec<Also> {
    let view = if found.late { view.of_late() } else { view };
    let mut others: Vec<Also> = Vec::new();
    let Some(root) = found.candidates.first() else { return others };
    let Some(end) = found.path.iter().position(|step| step.place == root.place) else { return others };
    let Place::Tier(root_key) = &root.place else { return others };
    if matches!(root.episode.resource, Resource::Burst | Resource::Unexplained) {
        return others;
    }
    for step in found.path.iter().take(end) {
        let Place::Tier(here) = &step.place else { continue };
        let at = at.saturating_add(view.slack(&start.host, &here.host, at));
        let Some(node) = view.around(here, at) else { continue };
        for explained in explained(view, here, &node, at, &found.path, ALSO_EXPLAINS) {
            let (share, branch) = (explained.share(), explained.step);
            let Place::Tier(to) = &branch.place else { continue };
            // What waits there for the root is an effect of it.
            if share < ALSO_EXPLAINS
                || others.len() == ALSO_MAX
                || to == root_key
                || view.topology.leads(to, root_key)
            {
                continue;
            }
            let slack = view.slack(&here.host, &to.host, at);
            let walked = walk(view, to, at.saturating_add(slack), false);
            let Some(candidate) = walked.candidates.into_iter().next() else { continue };
            let episode = &candidate.episode;
            let fills = episode.first <= branch.onset.saturating_add(ONSET_TOLERANCE + slack)
                && episode.last > episode.first
                && episode.last.saturating_add(slack) >= branch.onset;
            let named = !matches!(episode.resource, Resource::Burst | Resource::Unexplained);
            // What a tier's own load used up may be what another one was not sent.
            let own = candidate.carried || episode.by_load;
            let below =
                matches!(&candidate.place, Place::Tier(at) if at == to || view.topology.leads(to, at));
            let is_known = is_the_same(&candidate, root, &others);
            if named && fills && !own && below && candidate.score >= ALSO_SCORE && !is_known {
                others.push(Also { candidate, share });
            }
        }
    }
    others.sort_by(|a, b| b.share.total_cmp(&a.share));
    others
}

/// Whether a cause is one that is known already: what happens to a host happens to all of its tiers, and what is taken from outside may be taken from
/// several.
fn is_the_same(candidate: &Candidate, root: &Candidate, others: &[Also]) -> bool {
    let host = |of: &Candidate| match &of.place {
        Place::Tier(key) | Place::Missing(key) => Some(key.host.clone()),
        Place::Unobserved(..) => None,
    };
    let mut known = std::iter::once(root).chain(others.iter().map(|other| &other.candidate));
    known.any(|known| host(known) == host(candidate) || known.is_cause_of(candidate))
}

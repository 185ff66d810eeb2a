//! When a case is told, and when again: at once if what it means has changed, in rising intervals if only its counts have. Owns that, and
//! which cases are closed without a word; knows no rule by which a root is found.

use super::Report;
use crate::baseline::Baseline;
use crate::case::Case;
use crate::case::cases::Cases;
use crate::case::very_long::Life;
use crate::config::Config;
use crate::path::candidate::Candidate;
use crate::path::chain::Diagnosis;
use crate::path::step::{Place, Step};
use crate::path::view::View;
use crate::topology::tier::TierKey;
use std::cell::RefCell;
use std::collections::BTreeMap;
use tailwater_model::incident::{Code, Incident, Kind, Resource, Root, State};
use tailwater_model::window::Doing;

/// Windows between two versions that differ in counts only: at least, and at most (10 s). In between it is a twentieth of the incident's
/// age, so that hours of drops are some thousand versions.
const COUNTS_EVERY: u64 = 10;
const COUNTS_EVERY_MOST: u64 = 200;
const COUNTS_EVERY_AGE: u64 = 20;
/// A case without drops is told after this long even if it goes on (5 s).
const TELL_WITHOUT_DROPS: u64 = 100;
/// Score of its root, by rule, from which a felt millibottleneck is worth telling.
const TELL_INFO: f64 = 0.5;

/// New versions of what is open after a frame, in order. What is over is closed.
pub(crate) fn tell(
    cases: &mut Cases,
    view: View<'_>,
    baselines: &BTreeMap<TierKey, Baseline>,
    config: &Config,
    now: u64,
) -> Vec<Incident> {
    let mut told = Vec::new();
    let others = Others { roots: cases.roots_of_drops(), lives: cases.lives() };
    for case in &mut cases.open {
        let over = case.is_over(config, now);
        told.extend(version(case, view, baselines, now, over, &others));
    }
    cases.close(config, now);
    told
}

/// Closes everything.
pub(crate) fn close(
    cases: &mut Cases,
    view: View<'_>,
    baselines: &BTreeMap<TierKey, Baseline>,
    now: u64,
) -> Vec<Incident> {
    let others = Others { roots: cases.roots_of_drops(), lives: cases.lives() };
    std::mem::take(&mut cases.open)
        .iter_mut()
        .filter_map(|case| version(case, view, baselines, now, true, &others))
        .collect()
}

/// What is known of all cases, of which each is told by itself.
struct Others {
    /// Roots of what is dropped, or was of late.
    roots: Vec<Candidate>,
    lives: Vec<Life>,
}

/// A new version of a case's incident, if there is something new to tell.
fn version(
    case: &mut Case,
    view: View<'_>,
    baselines: &BTreeMap<TierKey, Baseline>,
    now: u64,
    over: bool,
    others: &Others,
) -> Option<Incident> {
    let drops = !case.drops.is_empty();
    if !drops && !over && now.saturating_sub(case.opened) < TELL_WITHOUT_DROPS {
        return None;
    }
    let searched = case.judge(view, now, &others.lives);
    // A queue that felt the very root of an incident with drops is a further symptom of it, and wakes nobody once more.
    if !drops
        && case.told.is_none()
        && (case.is_of_the_dropped() || others.roots.iter().any(|root| case.has_root(root)))
    {
        return None;
    }
    let waits = now.saturating_sub(case.told_at) < counts_every(case, now);
    if !searched && !over && case.told.is_some() && waits {
        return None;
    }
    let diagnosis = case.diagnosis.as_ref()?;
    let score = diagnosis.candidates.first().map_or(0.0, |best| best.score);
    let same = !drops && !searched && !over && case.told.is_none() && stays_untold(case, diagnosis);
    if same && !cfg!(debug_assertions) {
        return None;
    }
    let (mut incident, settled) =
        Report { view, baselines, case, diagnosis, now, clocks: RefCell::default() }
            .incident(&case.id, over)?;
    if same {
        // What tests are built of looks whether that is so.
        let before = format!("{:?}", case.settled);
        assert!(
            !worth_telling(&incident, score) && before == format!("{settled:?}"),
            "{before}\n{settled:?}"
        );
        return None;
    }
    case.settled = settled;
    if !drops && case.told.is_none() && !worth_telling(&incident, score) {
        return None;
    }
    let version = match &case.told {
        None => 1,
        Some(told) if !changed(told, &incident, !waits) => return None,
        Some(told) => told.version + 1,
    };
    incident.version = version;
    case.told = Some(incident.clone());
    case.told_at = now;
    Some(incident)
}

/// Windows until the counts of a case are told again.
fn counts_every(case: &Case, now: u64) -> u64 {
    (now.saturating_sub(case.opened) / COUNTS_EVERY_AGE).clamp(COUNTS_EVERY, COUNTS_EVERY_MOST)
}

/// A queue near its limit always; a felt millibottleneck only where its resource is known.
fn worth_telling(incident: &Incident, score: f64) -> bool {
    incident.kind == Kind::NearOverflow || is_known(incident.root.resource, score)
}

/// Whether putting together the incident of a case without drops, which was not worth telling, says the same again and leaves nothing behind:
/// its findings, the code of its root and all of its hops are settled, and of [`worth_telling`] only its queue can still say otherwise. What a queue
/// felt may go on for hours.
fn stays_untold(case: &Case, diagnosis: &Diagnosis) -> bool {
    let (Some(best), Some(findings)) = (diagnosis.candidates.first(), &case.settled.findings) else {
        return false;
    };
    let is_settled = |place: &Place| case.settled.hops.contains_key(place);
    !case.near
        && case.settled.code.is_some()
        && !is_known(findings.root.resource, best.score)
        && are_settled(&diagnosis.path, &best.place, is_settled)
}

/// Whether a resource is told without drops.
fn is_known(resource: Resource, score: f64) -> bool {
    resource != Resource::Unexplained && score >= TELL_INFO
}

/// Whether the hops of a case without drops are: those of the way that was walked, up to the root. Off that way they depend on who calls whom,
/// which may change.
fn are_settled(path: &[Step], root: &Place, is_settled: impl Fn(&Place) -> bool) -> bool {
    let upto = path.iter().position(|step| step.place == *root);
    upto.is_some_and(|upto| path.iter().take(upto + 1).all(|step| is_settled(&step.place)))
}

fn changed(told: &Incident, new: &Incident, counts: bool) -> bool {
    let hops = |i: &Incident| {
        i.hops.iter().map(|h| (h.host.clone(), h.workload.clone(), h.role)).collect::<Vec<_>>()
    };
    let drops =
        |i: &Incident| i.drops.iter().map(|d| (d.host.clone(), d.listener.clone())).collect::<Vec<_>>();
    let root = |r: &Root| (r.host.clone(), r.workload.clone(), r.resource);
    let roots = |i: &Incident| {
        std::iter::once(&i.root).chain(i.also.iter().map(|also| &also.root)).map(root).collect::<Vec<_>>()
    };
    if new.state == State::Closed
        || told.kind != new.kind
        || roots(told) != roots(new)
        || hops(told) != hops(new)
        || drops(told) != drops(new)
        || told.sustained.is_some() != new.sustained.is_some()
    {
        return true;
    }
    // What the kernel counted is known a second or two after the drop, and where the root was in its code up to six.
    let slow = |i: &Incident| i.hops.iter().map(|hop| hop.slowest.len()).sum::<usize>();
    fn place(code: &Code) -> (u32, Doing, &[String]) {
        (code.pid, code.doing, &code.frames)
    }
    let moved = told.root.code.iter().map(place).ne(new.root.code.iter().map(place));
    let more = told.context != new.context || slow(told) != slow(new) || moved;
    counts && (more || told.drops != new.drops || told.root.end_unix_ns != new.root.end_unix_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::step::PartOf;

    fn place(workload: u32) -> Place {
        Place::Tier(TierKey { host: "a".into(), workload, listener: 0 })
    }

    #[test]
    fn hops_are_settled_up_to_the_root_and_none_is_off_the_way() {
        let step = |workload| Step {
            place: place(workload),
            onset: 0,
            explains: 1.0,
            part_of: PartOf::Growth,
            why: String::new(),
        };
        let path = [step(1), step(2), step(3)];
        let settled = |root, hops: &[u32]| {
            are_settled(&path, &place(root), |at| hops.iter().any(|hop| *at == place(*hop)))
        };
        assert!(settled(1, &[1]) && settled(2, &[1, 2]) && settled(3, &[1, 2, 3]));
        assert!(!settled(1, &[]) && !settled(2, &[2]) && !settled(3, &[1, 2]));
        assert!(!settled(9, &[1, 2, 3, 9]), "a root that the walk did not come to");
    }

    #[test]
    fn a_felt_queue_is_told_where_its_resource_is_known() {
        assert!(is_known(Resource::Io, TELL_INFO) && !is_known(Resource::Io, TELL_INFO - 0.01));
        assert!(!is_known(Resource::Unexplained, 1.0));
    }
}

//! All open incidents: what opens one, what belongs to which, and which waves of drops are one of their own. Owns identity over time;
//! `chain` finds the cause, `report` says when and how it is told.

use super::ledger::Ledger;
use super::settled::Settled;
use super::trigger::Trigger;
use super::very_long::Life;
use super::wave::Wave;
use super::{Case, Lost};
use crate::baseline::Level;
use crate::config::Config;
use crate::episode::drop::Dropped;
use crate::frame::history::LOOK_WINDOWS;
use crate::path::candidate::{Candidate, ONSET_TOLERANCE};
use crate::path::chain::diagnose;
use crate::path::step::{Place, Step};
use crate::path::view::{LONGEST_WINDOWS, View};
use crate::series::EDGE_WINDOWS;
use crate::topology::tier::TierKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tailwater_model::incident::{Culprit, Resource, identity};
use tailwater_model::window::{EntityId, Host, WindowIndex};

/// Open cases at a time. For drops the oldest makes room that has none and was not told; what finds no place is [`Refused`].
const CASES_MAX: usize = 64;
/// Drops after this long without any are a new wave, windows (500 ms).
pub(super) const WAVE_WINDOWS: u64 = 10;
/// After this long without any, none of them is the retry of a SYN that was dropped before (1.2 s; timers are up to 64 ms late).
const FRESH_WINDOWS: u64 = 24;
/// What was felt of a root is told up to 5 s after that, and is asked for so long whose it was after a case is closed, windows (10 s).
const CLOSED_WINDOWS: u64 = 200;
/// A new wave with a cause of its own, this sure, is another incident.
const OWN_CAUSE: f64 = 0.7;

/// Something that is in no case, because as many as there may be were open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refused {
    pub(crate) host: Host,
    /// It was dropped; else a queue felt something.
    drops: bool,
}

impl Refused {
    /// In words.
    pub(crate) fn detail(&self) -> String {
        let what = if self.drops { "what was dropped there" } else { "a queue that grew there" };
        format!("{CASES_MAX} incidents are open, as many as there may be: {what} is in none of them")
    }
}

/// All open cases.
#[derive(Debug, Default)]
pub(crate) struct Cases {
    pub(crate) open: Vec<Case>,
    /// What found no place since it was forgotten last, each once.
    refused: BTreeSet<Refused>,
    /// Of it, what this frame added.
    newly_refused: Vec<Refused>,
    /// Roots of what was dropped, of cases that were closed lately, with the window in which they were.
    closed_roots: VecDeque<(u64, Candidate)>,
    /// When such cases had something dropped, and where.
    closed_lives: VecDeque<Life>,
}

impl Cases {
    /// Takes what one frame brought. What of it found no place is told: of each host once, and again after a minute.
    pub(crate) fn take(
        &mut self,
        view: View<'_>,
        config: &Config,
        now: u64,
        triggers: &[Trigger],
        drops: &[Dropped],
    ) -> Vec<Refused> {
        if now.is_multiple_of(LOOK_WINDOWS) {
            self.refused.clear();
        }
        for trigger in triggers.iter().filter(|t| t.level != Level::Drop) {
            self.feel(view, config, now, trigger);
        }
        let mut lost: BTreeMap<TierKey, Lost> = BTreeMap::new();
        for trigger in triggers.iter().filter(|t| t.level == Level::Drop) {
            let dropped: Vec<&Dropped> = drops.iter().filter(|d| d.tier == trigger.tier).collect();
            lost.insert(trigger.tier.clone(), self.overflow(view, config, now, trigger, &dropped));
        }
        self.count_retransmits(view, now);
        self.rejudge(view, now);
        for case in &mut self.open {
            case.count_attempts(view, now, &lost);
        }
        self.absorb(view);
        std::mem::take(&mut self.newly_refused)
    }

    /// Roots of all that is dropped, or was of late.
    pub(crate) fn roots_of_drops(&self) -> Vec<Candidate> {
        let open = self.open.iter().filter_map(Case::root_of_drops);
        open.chain(self.closed_roots.iter().map(|(_, root)| root)).cloned().collect()
    }

    /// Who had something dropped when, of late, where several cases may be of the same tiers.
    pub(crate) fn lives(&self) -> Vec<Life> {
        if self.open.len() + self.closed_lives.len() < 2 {
            return Vec::new();
        }
        self.open.iter().filter_map(Case::life).chain(self.closed_lives.iter().cloned()).collect()
    }

    /// Forgets the cases that are over.
    pub(crate) fn close(&mut self, config: &Config, now: u64) {
        let over: Vec<Case> = self.open.extract_if(.., |case| case.is_over(config, now)).collect();
        let roots = over.iter().filter_map(Case::root_of_drops);
        self.closed_roots.extend(roots.map(|root| (now, root.clone())));
        self.closed_roots.retain(|(at, _)| now <= at.saturating_add(CLOSED_WINDOWS));
        keep_newest(&mut self.closed_roots);
        self.closed_lives.extend(over.iter().filter_map(Case::life));
        self.closed_lives.retain(|life| life.is_remembered(now));
        keep_newest(&mut self.closed_lives);
    }

    fn refuse(&mut self, host: &str, drops: bool) {
        let refused = Refused { host: host.to_owned(), drops };
        if self.refused.insert(refused.clone()) {
            self.newly_refused.push(refused);
        }
    }

    /// Whether drops can be a case of their own. Of a queue that felt something and dropped nothing nobody knows yet, and most of them are
    /// never told.
    fn makes_room(&mut self) -> bool {
        if self.open.len() < CASES_MAX {
            return true;
        }
        let least = self.open.iter().enumerate().filter(|(_, c)| c.drops.is_empty() && c.told.is_none());
        let Some((oldest, _)) = least.min_by_key(|(_, case)| case.opened) else { return false };
        let felt = self.open.remove(oldest);
        self.refuse(&felt.start.host, false);
        true
    }

    /// A queue that grew without drops is part of an incident with drops whose chain leads to it, also over a tier that no agent
    /// sees: then it is not told for itself.
    fn absorb(&mut self, view: View<'_>) {
        let with_drops = self.open.iter().filter(|c| !c.drops.is_empty() && c.told.is_some());
        let mut explained: BTreeMap<TierKey, u64> = BTreeMap::new();
        for case in with_drops {
            for tier in &case.tiers {
                let until = explained.entry(tier.clone()).or_default();
                *until = (*until).max(case.last_active.saturating_add(FRESH_WINDOWS));
            }
        }
        // The queue of the very workload that takes what another lacks is the same cause, seen from its other side. It may have felt its own
        // load as much earlier as a millibottleneck lasts.
        let takers: Vec<(String, String, u64, u64)> = self
            .open
            .iter()
            .filter(|c| !c.drops.is_empty() && c.told.is_some())
            .filter_map(|c| {
                let root = c.root()?;
                let Place::Tier(at) = &root.place else { return None };
                let taker = root.episode.culprits.first()?;
                let from = root.episode.first.saturating_sub(LONGEST_WINDOWS);
                let until = c.last_active.saturating_add(FRESH_WINDOWS);
                Some((at.host.clone(), taker.workload.clone(), from, until))
            })
            .collect();
        let takes = |c: &Case| {
            let name = view.topology.tiers.get(&c.start).map(|t| t.workload.as_str());
            takers.iter().any(|(host, workload, from, until)| {
                *host == c.start.host
                    && Some(workload.as_str()) == name
                    && (*from..*until).contains(&c.opened)
            })
        };
        let is_part = |c: &Case| explained.get(&c.start).is_some_and(|until| c.opened < *until) || takes(c);
        self.open.retain(|c| !c.drops.is_empty() || c.told.is_some() || !is_part(c));
    }

    /// The place of the newest case that a tier belongs to.
    fn belongs(&self, view: View<'_>, config: &Config, tier: &TierKey, now: u64) -> Option<usize> {
        self.open.iter().rposition(|case| {
            now <= case.last_active.saturating_add(case.quiet_windows(config)) && case.is_of(view, tier)
        })
    }

    /// The place of the case that drops of a tier belong to; `None`: they are an incident of their own.
    fn dropping(
        &self,
        view: View<'_>,
        config: &Config,
        tier: &TierKey,
        now: u64,
        dropped: &[&Dropped],
    ) -> Option<usize> {
        // What goes on is of whom it was so far, also where a queue elsewhere has been felt since, in a case that leads here.
        let goes_on =
            |case: &Case| case.last_drop_of(tier).is_some_and(|last| now.saturating_sub(last) < WAVE_WINDOWS);
        if let Some(ongoing) = self.open.iter().rposition(goes_on) {
            return Some(ongoing);
        }
        if let Some(before) = self.open.iter().rposition(|case| case.knows(now, dropped)) {
            return Some(before);
        }
        let own = |i: &usize| {
            let own = |case: &Case| has_own_cause(case, view, tier, now) || is_apart(case, view, tier, now);
            self.open.get(*i).is_some_and(own)
        };
        let has_drops = |i: &usize| self.open.get(*i).is_some_and(|case| !case.drops.is_empty());
        let newest = self.belongs(view, config, tier, now);
        if let Some(newest) = newest.filter(has_drops)
            && !own(&newest)
        {
            return Some(newest);
        }
        // A wave may have been felt before it overflowed the queue: that is no incident of its own.
        let felt = newest.filter(|i| !has_drops(i));
        let wave = self.open.iter().rposition(|case| case.is_filled_by_those_left(view, tier, now));
        let wave = wave.filter(|i| felt.is_some() && !own(i));
        wave.or_else(|| self.of_one_cause(view, config, tier, now)).or(felt)
    }

    /// The place of the newest case that dropped for the very cause for which this tier drops now, though neither calls the other.
    fn of_one_cause(&self, view: View<'_>, config: &Config, tier: &TierKey, now: u64) -> Option<usize> {
        let going = |case: &&Case| !case.drops.is_empty() && !case.is_over(config, now);
        if !self.open.iter().any(|case| going(&case)) {
            return None;
        }
        let found = diagnose(view, tier, now);
        let found = found.candidates.first().filter(|found| found.score >= OWN_CAUSE && !found.carried)?;
        self.open.iter().rposition(|case| {
            // One that dropped in this very window has not been judged yet.
            let judged =
                || diagnose(view, &case.start, case.at).candidates.first().map(|c| c.is_cause_of(found));
            going(&case) && case.root().map(|root| root.is_cause_of(found)).or_else(judged) == Some(true)
        })
    }

    /// A queue felt something, without drops.
    fn feel(&mut self, view: View<'_>, config: &Config, now: u64, trigger: &Trigger) {
        let comes_again =
            |case: &Case| case.completes(view, &trigger.tier, now) || case.awaits_at(&trigger.tier, now);
        let again = self.open.iter().any(comes_again).then_some(now);
        // What is felt after the last retry can have come is not of the drops before.
        let part =
            |case: &&mut Case| case.drops.is_empty() || now.saturating_sub(case.last_active) < FRESH_WINDOWS;
        let case = self.belongs(view, config, &trigger.tier, now);
        if let Some(case) = case.and_then(|index| self.open.get_mut(index)).filter(part) {
            case.tiers.insert(trigger.tier.clone());
            if case.drops.is_empty() {
                case.last_active = now;
                case.filled_again = again.or(case.filled_again);
                case.near |= trigger.level == Level::Near;
                if trigger.ratio > case.ratio && case.told.is_none() {
                    (case.ratio, case.start, case.at) = (trigger.ratio, trigger.tier.clone(), now);
                    (case.diagnosis, case.settled) = (None, Settled::default());
                    case.ledger = Ledger::default();
                }
            } else if trigger.level == Level::Near {
                case.last_active = now;
            }
        } else if self.open.len() < CASES_MAX {
            let id = identify(view, &trigger.tier, None, now);
            self.open.push(Case { filled_again: again, ..Case::open(trigger, now, id) });
        } else {
            self.refuse(&trigger.tier.host, false);
        }
    }

    /// A tier dropped.
    fn overflow(
        &mut self,
        view: View<'_>,
        config: &Config,
        now: u64,
        trigger: &Trigger,
        dropped: &[&Dropped],
    ) -> Lost {
        let id = identify(view, &trigger.tier, dropped.iter().map(|d| d.listener).min(), now);
        let case = match self.dropping(view, config, &trigger.tier, now, dropped) {
            Some(index) => self.open.get_mut(index),
            None if self.makes_room() => {
                self.open.push(Case::open(trigger, now, id.clone()));
                self.open.last_mut()
            }
            None => {
                self.refuse(&trigger.tier.host, true);
                None
            }
        };
        let Some(case) = case else { return Lost::default() };
        if case.drops.is_empty() {
            (case.start, case.at, case.diagnosis) = (trigger.tier.clone(), now, None);
            (case.settled, case.ledger) = (Settled::default(), Ledger::default());
            if case.told.is_none() {
                case.id = id.clone();
                case.opened = now;
            }
        }
        if case.begins_wave(now, dropped) {
            let before = case.before_wave();
            case.waves.begin(Wave { first: now, trigger: trigger.clone(), id, before });
        }
        case.last_active = now;
        case.tiers.insert(trigger.tier.clone());
        case.take_drops(now, dropped)
    }

    /// Looks again at the waves that open cases took, as more of their windows have come: the first one hardly shows what stored a batch,
    /// or stood still, before the drop.
    fn rejudge(&mut self, view: View<'_>, now: u64) {
        let mut room = CASES_MAX.saturating_sub(self.open.len());
        let mut apart = Vec::new();
        for case in &mut self.open {
            case.waves.forget(now);
            let own = |wave: &Wave| wave.first < now && turned_out_own(case, wave, view);
            // Each of them is a walk, in each frame.
            let index = if room > 0 { case.waves.iter().position(own) } else { None };
            let Some(index) = index else { continue };
            apart.extend(case.split_off(index));
            room = room.saturating_sub(1);
        }
        self.open.extend(apart);
    }

    fn count_retransmits(&mut self, view: View<'_>, now: u64) {
        for case in self.open.iter_mut().filter(|c| !c.drops.is_empty()) {
            let droppers: BTreeSet<&TierKey> = case.drops.keys().map(|(tier, _)| tier).collect();
            let links = droppers.into_iter().flat_map(|to| view.topology.ending(to));
            // Several that drop may be behind one address: what was sent to it again is one number.
            let edges: BTreeSet<(&Host, EntityId)> =
                links.flat_map(|link| link.edges.iter().map(|edge| (&link.from.host, *edge))).collect();
            for (host, edge) in edges {
                let Some(window) = view.history.window(host, now) else { continue };
                let sent = window.edges.get(&edge).map_or(0, |e| e.syn_retransmits);
                let count = case.retransmits.entry(host.clone()).or_default();
                *count = count.saturating_add(sent);
            }
        }
    }
}

/// Of what is kept of closed cases, as many as may be open.
fn keep_newest<T>(kept: &mut VecDeque<T>) {
    kept.drain(..kept.len().saturating_sub(CASES_MAX));
}

/// The id of an incident that a tier opens: by the listener that dropped, else by its first one.
fn identify(view: View<'_>, tier: &TierKey, listener: Option<u32>, now: u64) -> String {
    let listeners = view.topology.tiers.get(tier).map(|t| t.listeners.as_slice()).unwrap_or_default();
    let of = listeners.iter().find(|l| Some(l.id) == listener).or(listeners.first());
    let (address, port) = of.map_or((std::net::Ipv4Addr::UNSPECIFIED.into(), 0), |l| (l.address, l.port));
    identity(WindowIndex(now), &tier.host, address, port)
}

/// Whether a new wave of drops has a cause that is not the case's: surely another resource, or the same one again. Where no retry is
/// left of the wave before, anything that began after it is another cause.
fn has_own_cause(case: &Case, view: View<'_>, tier: &TierKey, now: u64) -> bool {
    let Some(last_drop) = case.last_drop() else { return false };
    let since = now.saturating_sub(last_drop);
    if since < WAVE_WINDOWS {
        return false;
    }
    let Some(before) = case.root() else { return false };
    let now_found = diagnose(view, tier, now);
    let Some(found) = now_found.candidates.first() else { return false };
    // Nor is a wave without a cause a new one: dropped clients come again after 1, 2, 3, 5 and 7 s.
    if !began_after(found, case, last_drop) || found.episode.resource == Resource::Unexplained {
        return false;
    }
    // After an overload that retries kept alive more of them come for seconds; what a tier does under them is no cause either.
    if since >= FRESH_WINDOWS && case.sustained.is_none() {
        return true;
    }
    surely_another(view, found, before)
}

/// Whether a tier that drops for the first time while others do has a cause of its own: each of both is sure, neither lies on the other's way, and
/// the one is no effect of the other. A burst reaches every tier below it, so what is found there is none.
fn is_apart(case: &Case, view: View<'_>, tier: &TierKey, now: u64) -> bool {
    let Some(before) = case.root().filter(|before| before.score >= OWN_CAUSE) else { return false };
    if case.last_drop_of(tier).is_some() || !before.is_from_outside() {
        return false;
    }
    let now_found = diagnose(view, tier, now);
    let Some(found) = now_found.candidates.first() else { return false };
    let on = |path: &[Step], of: &Candidate| path.iter().any(|step| step.place == of.place);
    let its_way = case.diagnosis.as_ref().is_some_and(|d| on(&d.path, found));
    found.is_surely_from_outside(OWN_CAUSE)
        && !is_by_a_service(view, found)
        && found.place != before.place
        && !now_found.candidates.iter().any(|of| before.is_cause_of(of))
        && !on(&now_found.path, before)
        && !its_way
}

/// Whether what took the CPU is itself a tier: it may do so for those very requests.
fn is_by_a_service(view: View<'_>, found: &Candidate) -> bool {
    is_taken_by(view, found, |_| true)
}

/// Whether what took the CPU is such a tier of that host.
fn is_taken_by(view: View<'_>, found: &Candidate, is: impl Fn(&TierKey) -> bool) -> bool {
    let Place::Tier(at) = &found.place else { return false };
    let taker = found.episode.culprits.first().filter(|_| found.episode.resource == Resource::CpuNeighbour);
    let is = |taker: &Culprit| {
        let mut tiers = view.topology.tiers.iter();
        tiers.any(|(key, tier)| key.host == at.host && tier.workload == taker.workload && is(key))
    };
    taker.is_some_and(is)
}

/// The same of a wave that was taken into the case, by what its windows show by now. What drops do to a tier shows in the windows after
/// them, too: so it has to be surely another cause, however long ago the last drop was.
fn turned_out_own(case: &Case, wave: &Wave, view: View<'_>) -> bool {
    let Some(last_drop) = wave.before.last_drop() else { return false };
    let Some(before) = case.root() else { return false };
    let found = diagnose(view, &wave.trigger.tier, wave.first);
    found
        .candidates
        .first()
        .is_some_and(|found| began_after(found, case, last_drop) && surely_another(view, found, before))
}

/// What began while a wave was still being caught up is its effect, and so is what that load uses up, here or at a neighbour. What began before the
/// last drop, but in the calm before the wave that this one is of, is none: those who had been dropped came again meanwhile.
fn began_after(found: &Candidate, case: &Case, last_drop: u64) -> bool {
    let first = found.episode.first;
    let in_the_calm = |wave: &Wave| {
        let before = wave.before.last_drop();
        before.is_some_and(|last| first >= last.saturating_add(WAVE_WINDOWS)) && first <= wave.first
    };
    !found.episode.by_load
        && !found.carried
        && (first > last_drop.saturating_add(ONSET_TOLERANCE) || case.waves.iter().any(in_the_calm))
}

/// Whether what was found is sure, and is not what was found before. A burst comes again with those whom it dropped, and the tiers that serve it take the
/// CPU from each other where they share a host.
fn surely_another(view: View<'_>, found: &Candidate, before: &Candidate) -> bool {
    let serves = |key: &TierKey| match &before.place {
        Place::Tier(burst) => key == burst || view.topology.related(burst, key),
        _ => true,
    };
    if before.episode.resource == Resource::Burst && is_taken_by(view, found, serves) {
        return false;
    }
    let same = found.place == before.place && found.episode.resource == before.episode.resource;
    let later = found.episode.first
        > before.episode.last.saturating_add(if same { WAVE_WINDOWS } else { EDGE_WINDOWS });
    found.is_surely_from_outside(OWN_CAUSE) && later
}

#[cfg(test)]
mod tests {
    use super::super::LEFT_WINDOWS;
    use super::super::sustain::Kept;
    use super::*;
    use crate::baseline::congestion::Congestion;
    use crate::config::Thresholds;
    use crate::episode::fixture::{dropped, short_of};
    use crate::episode::{Episode, quality};
    use crate::frame::history::History;
    use crate::path::candidate::STOPPED_LATER;
    use crate::topology::graph::Topology;
    use crate::topology::tier::Tier;
    use tailwater_model::window::ListenerInfo;

    fn listener() -> ListenerInfo {
        ListenerInfo {
            id: 1,
            workload: 1,
            address: std::net::Ipv4Addr::UNSPECIFIED.into(),
            port: 80,
            path: None,
            comm: String::new(),
            pool: None,
            pid: 0,
            started_with: 0,
        }
    }

    /// Fails where a wave of clients that back off is told as another incident, or where whatever overflows while they are waited for is
    /// taken for one.
    #[test]
    fn after_the_quiet_only_what_was_dropped_before_belongs_to_an_incident() {
        let (history, topology, congestion, thresholds) =
            (History::default(), Topology::default(), Congestion::default(), Thresholds::default());
        let view = View::of(&history, &topology, &congestion, &thresholds);
        let config = Config::default();
        let key = dropped(1, 0, 0).tier;
        let mut case =
            Case::open(&Trigger { tier: key.clone(), level: Level::Drop, ratio: 1.0 }, 1000, "burst".into());
        case.take_drops(1000, &[&dropped(50, 0, 0)]);
        case.take_drops(1058, &[&dropped(40, 40, 40)]);
        case.last_active = 1058;
        let late = 1058 + config.quiet_ns / tailwater_model::window::WINDOW_NS + 1;
        assert!(!case.is_over(&config, late));
        let felt =
            Case::open(&Trigger { tier: key.clone(), level: Level::Near, ratio: 1.0 }, late, "felt".into());
        let again = dropped(40, 40, 40);
        for (open, other) in [(vec![case.clone()], None), (vec![case, felt], Some(1))] {
            let cases = Cases { open, ..Cases::default() };
            let of = |d: &Dropped| cases.dropping(view, &config, &key, late, &[d]);
            assert_eq!(of(&again), Some(0));
            assert_eq!(of(&dropped(40, 0, 0)), other, "they come for the first time");
            assert_eq!(of(&Dropped { listener: 8, ..again.clone() }), other, "another queue");
        }
    }

    // A neighbour that took the CPU while its tier stopped answering, somewhat after its queue began to grow, is sure enough to be told as another
    // incident, and so is a quota.
    const _: () = assert!(
        quality::NEIGHBOUR * STOPPED_LATER > OWN_CAUSE && quality::THROTTLED * STOPPED_LATER > OWN_CAUSE
    );

    /// Fails where whatever overflows while a few are left of an overload that retries kept alive is taken for them, or where others whose queue they
    /// fill begin an incident of their own.
    #[test]
    fn who_comes_long_after_an_overload_for_the_first_time_begins_another() {
        let (history, topology, congestion, thresholds) =
            (History::default(), Topology::default(), Congestion::default(), Thresholds::default());
        let view = View::of(&history, &topology, &congestion, &thresholds);
        let config = Config::default();
        let key = dropped(1, 0, 0).tier;
        let trigger = |level| Trigger { tier: key.clone(), level, ratio: 1.0 };
        let mut kept = Case::open(&trigger(Level::Drop), 500, "kept".into());
        for window in [500, 700, 1000] {
            kept.take_drops(window, &[&dropped(40, 40, 40)]);
        }
        kept.last_active = 1000;
        let rates = Kept { share: 0.5, attempts: 9.0, first: 4.0, capacity: 5.0, waiting: 3.0, last: 1000 };
        kept.sustained = Some((key.clone(), 600, rates));
        let felt = |at| Case::open(&trigger(Level::Near), at, "felt".into());
        let of = |now, felt: Option<Case>, d: &Dropped| {
            let cases =
                Cases { open: std::iter::once(kept.clone()).chain(felt).collect(), ..Cases::default() };
            cases.dropping(view, &config, &key, now, &[d])
        };
        let first = dropped(40, 0, 0);
        assert_eq!(of(1000 + LEFT_WINDOWS, None, &first), Some(0), "those who come again fill the queue");
        let later = 1000 + LEFT_WINDOWS + 1;
        assert_eq!(of(later, None, &first), None);
        assert_eq!(of(later, Some(felt(later)), &first), Some(1), "another queue felt it first");
        assert_eq!(of(later, None, &dropped(40, 40, 40)), Some(0), "they were dropped before");
    }

    /// Fails where clients that come again while something new stands make it an effect of what dropped them, or where what stands while a wave is
    /// being caught up is no effect of it.
    #[test]
    fn what_begins_in_the_calm_before_a_wave_is_no_effect_of_the_wave_before() {
        let tier = dropped(1, 0, 0).tier;
        let trigger = Trigger { tier: tier.clone(), level: Level::Drop, ratio: 1.0 };
        let mut case = Case::open(&trigger, 1000, "before".into());
        case.take_drops(1000, &[&dropped(50, 0, 0)]);
        for (first, drops) in [(1040, 5), (1051, 30)] {
            let before = case.before_wave();
            case.waves.begin(Wave { first, trigger: trigger.clone(), id: first.to_string(), before });
            case.take_drops(first, &[&dropped(drops, 0, 0)]);
        }
        let began =
            |first| Candidate::new(Place::Tier(tier.clone()), short_of(Resource::EventLoop, (first, 1050)));
        let own = |first| began_after(&began(first), &case, 1040);
        assert!(own(1037) && own(1040), "the clients came again meanwhile");
        assert!(own(1044), "after it");
        assert!(!own(1041), "while it is caught up");
        assert!(!own(1009) && own(1010), "half a second after the first one");
        let own_load = Candidate { carried: true, ..began(1037) };
        assert!(!began_after(&own_load, &case, 1040));
    }

    /// Fails where the clients of a burst that come again are told as a neighbour, because the tier that they come to takes the CPU from the one below on its
    /// host, or where a neighbour that serves nobody is no cause of its own.
    #[test]
    fn a_service_that_takes_the_cpu_while_a_burst_comes_again_is_no_other_cause() {
        let (history, mut topology, congestion, thresholds) =
            (History::default(), Topology::default(), Congestion::default(), Thresholds::default());
        let below = dropped(1, 0, 0).tier;
        let entry = TierKey { workload: 2, ..below.clone() };
        let serving = ListenerInfo { workload: 2, comm: "entry".into(), ..listener() };
        topology.tiers.insert(entry.clone(), Tier::heard_of(&entry, &serving, None, &[]));
        let beside = TierKey { workload: 3, ..below.clone() };
        let serving = ListenerInfo { workload: 3, comm: "beside".into(), ..listener() };
        topology.tiers.insert(beside.clone(), Tier::heard_of(&beside, &serving, None, &[]));
        let view = View::of(&history, &topology, &congestion, &thresholds);
        let own = |before: Resource, taker: &str| {
            let culprit = Culprit { pid: 1, comm: taker.into(), workload: taker.into(), share: 0.7 };
            let found = Episode { culprits: vec![culprit], ..short_of(Resource::CpuNeighbour, (1022, 1027)) };
            let before = Candidate::new(Place::Tier(entry.clone()), short_of(before, (1000, 1006)));
            surely_another(view, &Candidate::new(Place::Tier(below.clone()), found), &before)
        };
        assert!(!own(Resource::Burst, "entry"));
        assert!(own(Resource::Burst, "burner"));
        assert!(own(Resource::Burst, "beside"), "a tier that serves others");
        assert!(own(Resource::Pause, "entry"));
    }

    #[test]
    fn a_drop_that_goes_on_stays_in_its_case_though_a_newer_one_leads_to_its_tier() {
        let (history, topology, congestion, thresholds) =
            (History::default(), Topology::default(), Congestion::default(), Thresholds::default());
        let view = View::of(&history, &topology, &congestion, &thresholds);
        let key = |workload| TierKey { host: "h".into(), workload, listener: 0 };
        let trigger = |workload, level| Trigger { tier: key(workload), level, ratio: 1.0 };
        let dropped = dropped(44, 0, 0);
        let mut dropping = Case::open(&trigger(1, Level::Drop), 100, "dropping".into());
        dropping.take_drops(100, &[&dropped]);
        let mut felt = Case::open(&trigger(2, Level::Near), 101, "felt".into());
        felt.tiers.insert(key(1));
        let cases = Cases { open: vec![dropping, felt], ..Cases::default() };
        let config = Config::default();
        let of = |now| cases.dropping(view, &config, &key(1), now, &[]);
        assert_eq!(of(102), Some(0));
        assert_eq!(of(100 + WAVE_WINDOWS - 1), Some(0));
        assert_eq!(of(100 + WAVE_WINDOWS), Some(1), "a new wave is of whom it was felt by");
    }
}

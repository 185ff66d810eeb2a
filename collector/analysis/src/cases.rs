//! Open incidents: what opens one, what belongs to it, when it is told and when it closes. Owns identity over time;
//! `chain` finds the cause, `report` says it.

use crate::baseline::{Baseline, Level};
use crate::candidate::Candidate;
use crate::chain::{AFTER_WINDOWS, Diagnosis, Place, View, diagnose};
use crate::config::Config;
use crate::episode::drop::DropCount;
use crate::incident::{Incident, Kind, Resource, State, identity};
use crate::model::{Host, WINDOW_NS, WindowIndex};
use crate::report::{DropCounts, Report};
use crate::topology::TierKey;
use std::collections::{BTreeMap, BTreeSet};

/// Open cases at a time; more are not opened.
const CASES_MAX: usize = 64;
/// Windows between two versions that differ in counts only.
const COUNTS_EVERY: u64 = 10;
/// A case without drops is told after this long even if it goes on (5 s).
const TELL_WITHOUT_DROPS: u64 = 100;
/// Drops after this long without any are a new wave, windows (500 ms).
const WAVE_WINDOWS: u64 = 10;
/// After this long without any, none of them is the retry of a SYN that was dropped before (1.2 s; timers are up to 64 ms late).
const FRESH_WINDOWS: u64 = 24;
/// A new wave with a cause of its own, this sure, is another incident.
const OWN_CAUSE: f64 = 0.7;
/// Confidence from which a felt millibottleneck is worth telling.
const TELL_INFO: f64 = 0.5;

/// What a tier felt in one frame.
#[derive(Debug, Clone)]
pub(crate) struct Trigger {
    pub(crate) tier: TierKey,
    pub(crate) level: Level,
    pub(crate) ratio: f64,
}

/// One open incident.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    opened: u64,
    /// The tier from which the walk starts: the first that dropped, else the fullest.
    pub(crate) start: TierKey,
    /// The window from which it starts.
    pub(crate) at: u64,
    ratio: f64,
    /// Without drops: some queue was near its limit.
    pub(crate) near: bool,
    pub(crate) drops: DropCounts,
    /// SYNs sent again to the dropping listeners, by host of observed clients.
    pub(crate) retransmits: BTreeMap<Host, u64>,
    pub(crate) last_active: u64,
    pub(crate) tiers: BTreeSet<TierKey>,
    id: String,
    diagnosis: Option<Diagnosis>,
    told: Option<Incident>,
    told_at: u64,
}

impl Case {
    fn open(trigger: &Trigger, at: u64, id: String) -> Self {
        Self {
            opened: at,
            start: trigger.tier.clone(),
            at,
            ratio: trigger.ratio,
            near: trigger.level == Level::Near,
            drops: BTreeMap::new(),
            retransmits: BTreeMap::new(),
            last_active: at,
            tiers: BTreeSet::from([trigger.tier.clone()]),
            id,
            diagnosis: None,
            told: None,
            told_at: 0,
        }
    }

    /// Until which window worst values are taken: the first wave, not the retries.
    pub(crate) fn measured_to(&self) -> u64 {
        self.at.saturating_add(AFTER_WINDOWS).min(self.last_active.saturating_add(2))
    }

    /// Whether drops here would belong to it, and people know of it or will.
    pub(crate) fn covers(&self, view: View<'_>, tier: &TierKey, window: u64, quiet: u64) -> bool {
        (self.told.is_some() || !self.drops.is_empty())
            && window <= self.last_active.saturating_add(quiet)
            && self.tiers.iter().any(|t| t == tier || view.topology.related(t, tier))
    }

    fn quiet_windows(&self, config: &Config) -> u64 {
        let quiet = if self.drops.is_empty() { config.quiet_without_drops_ns } else { config.quiet_ns };
        quiet / WINDOW_NS
    }

    fn root(&self) -> Option<&Candidate> {
        self.diagnosis.as_ref()?.candidates.first()
    }
}

/// All open cases, and what is needed to judge them.
#[derive(Debug, Default)]
pub(crate) struct Cases {
    pub(crate) open: Vec<Case>,
}

/// Drops and client retries of one listener in one frame.
#[derive(Debug, Clone)]
pub(crate) struct Dropped {
    pub(crate) tier: TierKey,
    pub(crate) listener: u32,
    pub(crate) drops: u64,
    pub(crate) sk_drops: u64,
    pub(crate) final_ack: u64,
    pub(crate) repeated: u64,
    pub(crate) slow: u64,
    pub(crate) arrivals: u64,
    pub(crate) depth: u32,
    pub(crate) limit: u32,
}

impl Cases {
    /// Takes what one frame brought; returns new versions, in order.
    pub(crate) fn frame(
        &mut self,
        view: View<'_>,
        baselines: &BTreeMap<TierKey, Baseline>,
        config: &Config,
        now: u64,
        triggers: &[Trigger],
        drops: &[Dropped],
    ) -> Vec<Incident> {
        for trigger in triggers.iter().filter(|t| t.level != Level::Drop) {
            self.feel(view, config, now, trigger);
        }
        for trigger in triggers.iter().filter(|t| t.level == Level::Drop) {
            let dropped: Vec<&Dropped> = drops.iter().filter(|d| d.tier == trigger.tier).collect();
            self.overflow(view, config, now, trigger, &dropped);
        }
        self.count_retransmits(view, now);
        self.absorb();
        let mut told = Vec::new();
        for case in &mut self.open {
            let age = now.saturating_sub(case.opened);
            let over = now > case.last_active.saturating_add(case.quiet_windows(config))
                || age >= config.max_incident_ns / WINDOW_NS;
            told.extend(tell(case, view, baselines, now, over));
        }
        self.open.retain(|case| {
            let age = now.saturating_sub(case.opened);
            now <= case.last_active.saturating_add(case.quiet_windows(config))
                && age < config.max_incident_ns / WINDOW_NS
        });
        told
    }

    /// A queue that grew without drops is part of an incident with drops whose chain leads to it, also over a tier that no agent
    /// sees: then it is not told for itself.
    fn absorb(&mut self) {
        let with_drops = self.open.iter().filter(|c| !c.drops.is_empty() && c.told.is_some());
        let mut explained: BTreeMap<TierKey, u64> = BTreeMap::new();
        for case in with_drops {
            for tier in &case.tiers {
                let until = explained.entry(tier.clone()).or_default();
                *until = (*until).max(case.last_active.saturating_add(FRESH_WINDOWS));
            }
        }
        let is_part = |c: &Case| explained.get(&c.start).is_some_and(|until| c.opened < *until);
        self.open.retain(|c| !c.drops.is_empty() || c.told.is_some() || !is_part(c));
    }

    /// Closes everything.
    pub(crate) fn finish(
        &mut self,
        view: View<'_>,
        baselines: &BTreeMap<TierKey, Baseline>,
        now: u64,
    ) -> Vec<Incident> {
        std::mem::take(&mut self.open)
            .iter_mut()
            .filter_map(|case| tell(case, view, baselines, now, true))
            .collect()
    }

    /// The newest case that a tier belongs to.
    fn belongs(&mut self, view: View<'_>, config: &Config, tier: &TierKey, now: u64) -> Option<&mut Case> {
        self.open.iter_mut().rev().find(|case| {
            now <= case.last_active.saturating_add(case.quiet_windows(config))
                && case.tiers.iter().any(|t| t == tier || view.topology.related(t, tier))
        })
    }

    /// A queue felt something, without drops.
    fn feel(&mut self, view: View<'_>, config: &Config, now: u64, trigger: &Trigger) {
        let room = self.open.len() < CASES_MAX;
        // What is felt after the last retry can have come is not of the drops before.
        let part =
            |case: &&mut Case| case.drops.is_empty() || now.saturating_sub(case.last_active) < FRESH_WINDOWS;
        if let Some(case) = self.belongs(view, config, &trigger.tier, now).filter(part) {
            case.tiers.insert(trigger.tier.clone());
            if case.drops.is_empty() {
                case.last_active = now;
                case.near |= trigger.level == Level::Near;
                if trigger.ratio > case.ratio && case.told.is_none() {
                    (case.ratio, case.start, case.at) = (trigger.ratio, trigger.tier.clone(), now);
                    case.diagnosis = None;
                }
            } else if trigger.level == Level::Near {
                case.last_active = now;
            }
        } else if room {
            let id = identify(view, &trigger.tier, None, now);
            self.open.push(Case::open(trigger, now, id));
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
    ) {
        let room = self.open.len() < CASES_MAX;
        let id = identify(view, &trigger.tier, dropped.iter().map(|d| d.listener).min(), now);
        let case = self.belongs(view, config, &trigger.tier, now);
        let another = case.as_ref().is_some_and(|case| has_own_cause(case, view, &trigger.tier, now));
        let case = match case {
            Some(case) if !another => case,
            _ if room => {
                self.open.push(Case::open(trigger, now, id.clone()));
                let Some(case) = self.open.last_mut() else { return };
                case
            }
            _ => return,
        };
        if case.drops.is_empty() {
            (case.start, case.at, case.diagnosis) = (trigger.tier.clone(), now, None);
            if case.told.is_none() {
                case.id = id;
                case.opened = now;
            }
        }
        case.last_active = now;
        case.tiers.insert(trigger.tier.clone());
        for d in dropped {
            let count: &mut DropCount = case.drops.entry((d.tier.clone(), d.listener)).or_default();
            count.add(now, d);
        }
    }

    fn count_retransmits(&mut self, view: View<'_>, now: u64) {
        for case in self.open.iter_mut().filter(|c| !c.drops.is_empty()) {
            let droppers: BTreeSet<&TierKey> = case.drops.keys().map(|(tier, _)| tier).collect();
            for link in
                view.topology.links.iter().filter(|l| l.to.as_ref().is_some_and(|to| droppers.contains(to)))
            {
                let Some(window) = view.history.window(&link.from.host, now) else { continue };
                let sent = link
                    .edges
                    .iter()
                    .filter_map(|e| window.edges.get(e))
                    .fold(0u64, |sum, e| sum.saturating_add(e.syn_retransmits));
                let count = case.retransmits.entry(link.from.host.clone()).or_default();
                *count = count.saturating_add(sent);
            }
        }
    }
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
    let Some(last_drop) = case.drops.values().map(|d| d.last).max() else { return false };
    let since = now.saturating_sub(last_drop);
    if since < WAVE_WINDOWS {
        return false;
    }
    let Some(before) = case.root() else { return false };
    let now_found = diagnose(view, tier, now);
    let Some(found) = now_found.candidates.first() else { return false };
    // What began while the first wave was still being caught up is its effect, and so is what that load uses up.
    if found.episode.by_load || found.episode.first <= last_drop.saturating_add(3) {
        return false;
    }
    if since >= FRESH_WINDOWS {
        return true;
    }
    let outside = matches!(
        found.episode.resource,
        Resource::CpuNeighbour
            | Resource::CpuThrottled
            | Resource::Io
            | Resource::Memory
            | Resource::Pause
            | Resource::Lock
    );
    let same = found.place == before.place && found.episode.resource == before.episode.resource;
    let later = found.episode.first > before.episode.last.saturating_add(if same { WAVE_WINDOWS } else { 2 });
    outside && found.score >= OWN_CAUSE && later
}

/// A new version of a case's incident, if there is something new to tell.
fn tell(
    case: &mut Case,
    view: View<'_>,
    baselines: &BTreeMap<TierKey, Baseline>,
    now: u64,
    over: bool,
) -> Option<Incident> {
    let drops = !case.drops.is_empty();
    if !drops && !over && now.saturating_sub(case.opened) < TELL_WITHOUT_DROPS {
        return None;
    }
    if case.diagnosis.is_none() || now <= case.at.saturating_add(AFTER_WINDOWS) {
        let diagnosis = diagnose(view, &case.start, case.at);
        if let Some(Candidate { place: Place::Tier(root), .. }) = diagnosis.candidates.first() {
            case.tiers.insert(root.clone());
        }
        case.diagnosis = Some(diagnosis);
    } else if !over && case.told.is_some() && now.saturating_sub(case.told_at) < COUNTS_EVERY {
        return None;
    }
    let diagnosis = case.diagnosis.as_ref()?;
    let mut incident = Report { view, baselines, case, diagnosis }.incident(&case.id, over)?;
    if !drops && case.told.is_none() && !worth_telling(&incident) {
        return None;
    }
    let version = match &case.told {
        None => 1,
        Some(told) if !changed(told, &incident, now.saturating_sub(case.told_at)) => return None,
        Some(told) => told.version + 1,
    };
    incident.version = version;
    case.told = Some(incident.clone());
    case.told_at = now;
    Some(incident)
}

/// A queue near its limit always; a felt millibottleneck only where its resource is known.
fn worth_telling(incident: &Incident) -> bool {
    incident.kind == Kind::NearOverflow
        || (incident.root.resource != Resource::Unexplained && incident.confidence >= TELL_INFO)
}

fn changed(told: &Incident, new: &Incident, windows: u64) -> bool {
    let hops = |i: &Incident| {
        i.hops.iter().map(|h| (h.host.clone(), h.workload.clone(), h.role)).collect::<Vec<_>>()
    };
    let drops =
        |i: &Incident| i.drops.iter().map(|d| (d.host.clone(), d.listener.clone())).collect::<Vec<_>>();
    let root = |i: &Incident| (i.root.host.clone(), i.root.workload.clone(), i.root.resource);
    if new.state == State::Closed
        || told.kind != new.kind
        || root(told) != root(new)
        || hops(told) != hops(new)
        || drops(told) != drops(new)
    {
        return true;
    }
    windows >= COUNTS_EVERY && (told.drops != new.drops || told.root.end_unix_ns != new.root.end_unix_ns)
}

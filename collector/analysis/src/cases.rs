//! Open incidents: what opens one, what belongs to it, when it is told and when it closes. Owns identity over time;
//! `chain` finds the cause, `report` says it.

use crate::baseline::{Baseline, Level};
use crate::candidate::Candidate;
use crate::chain::{Diagnosis, diagnose};
use crate::config::Config;
use crate::episode::drop::DropCount;
use crate::ledger::Ledger;
use crate::report::{DropCounts, Report, Settled};
use crate::series::tier_sample;
use crate::step::Place;
use crate::sustain::{self, Attempts, Served};
use crate::topology::TierKey;
use crate::trigger::Trigger as Root;
use crate::view::{AFTER_WINDOWS, View};
use std::collections::{BTreeMap, BTreeSet};
use tailwater_model::incident::{Incident, Kind, Resource, State, identity};
use tailwater_model::window::{Host, WINDOW_NS, WindowIndex};

/// Open cases at a time; more are not opened.
const CASES_MAX: usize = 64;
/// Windows between two versions that differ in counts only: at least, and at most (10 s). In between it is a twentieth of the incident's
/// age, so that hours of drops are some thousand versions.
const COUNTS_EVERY: u64 = 10;
const COUNTS_EVERY_MAX: u64 = 200;
const COUNTS_EVERY_AGE: u64 = 20;
/// A case without drops is told after this long even if it goes on (5 s).
const TELL_WITHOUT_DROPS: u64 = 100;
/// Drops after this long without any are a new wave, windows (500 ms).
const WAVE_WINDOWS: u64 = 10;
/// After this long without any, none of them is the retry of a SYN that was dropped before (1.2 s; timers are up to 64 ms late).
const FRESH_WINDOWS: u64 = 24;
/// How long retries may keep away after an overload that they kept alive, windows (16 s). A client that was dropped again and again comes
/// next after at most as long as it has tried (`tcp_retransmit_timer` doubles), and what is left of them after this is little.
const BACKOFF_MAX: u64 = 320;
/// A workload that takes a resource from another may have felt its own queue this long before, windows (1 s).
const TAKER_BEFORE: u64 = 20;
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
    /// What is said of it for good, because the windows that show it leave the history.
    pub(crate) settled: Settled,
    /// Its tiers over its whole life.
    pub(crate) ledger: Ledger,
    /// Attempts at the tiers that drop.
    attempts: BTreeMap<TierKey, sustain::Account>,
    /// Its root, watched from when the diagnosis was final.
    root_watch: Option<Root>,
    /// What keeps its drops alive: which tier, since which window, and the numbers of when it was found last.
    pub(crate) sustained: Option<(TierKey, u64, sustain::Kept)>,
}

/// Dropped packets of a tier in one frame, by what they were.
#[derive(Debug, Clone, Copy, Default)]
struct Lost {
    syns: u64,
    acks: u64,
    repeated: u64,
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
            settled: Settled::default(),
            ledger: Ledger::default(),
            attempts: BTreeMap::new(),
            root_watch: None,
            sustained: None,
        }
    }

    /// Whether the diagnosis is as it stays.
    pub(crate) fn is_settled(&self, now: u64) -> bool {
        now > self.at.saturating_add(AFTER_WINDOWS)
    }

    /// Until which window the root held: its episode, or as long as it was seen to go on after that.
    pub(crate) fn root_last(&self) -> Option<u64> {
        let last = self.root()?.episode.last;
        Some(self.root_watch.as_ref().map_or(last, |watch| watch.last.max(last)))
    }

    /// Where the worst values of a tier end that began to drop in window `first`: with its first wave.
    pub(crate) fn measured_from(&self, first: u64) -> u64 {
        self.measured_to().max(first.saturating_add(AFTER_WINDOWS).min(self.last_active.saturating_add(2)))
    }

    /// Takes what a frame shows of its tiers into what is remembered for as long as it lives.
    fn remember(&mut self, view: View<'_>, now: u64) {
        if self.drops.is_empty() {
            return;
        }
        let droppers = self.drops.iter().map(|((key, _), d)| (key.clone(), d.first.saturating_sub(2)));
        let path = self.diagnosis.iter().flat_map(|d| &d.path).filter_map(|step| match &step.place {
            Place::Tier(key) => Some((key.clone(), step.onset.saturating_sub(2))),
            _ => None,
        });
        for (key, from) in path.chain(droppers).collect::<Vec<_>>() {
            self.ledger.take(view, &key, from, now);
        }
    }

    /// Counts the attempts at the tiers that drop; `lost` is what they dropped in this frame.
    fn count_attempts(&mut self, view: View<'_>, now: u64, lost: &BTreeMap<TierKey, Lost>) {
        let droppers: BTreeSet<&TierKey> = self.drops.keys().map(|(key, _)| key).collect();
        for key in droppers {
            let Some(tier) = view.topology.tiers.get(key) else { continue };
            let lost = lost.get(key).copied().unwrap_or_default();
            let attempts = view.history.window(&key.host, now).map(|window| {
                let s = tier_sample(window, tier);
                Attempts {
                    arrivals: s.arrivals,
                    syns: lost.syns as f64,
                    acks: lost.acks as f64,
                    repeated: lost.repeated as f64,
                    answered: s.answered,
                }
            });
            self.attempts.entry(key.clone()).or_default().take(now, attempts);
        }
    }

    /// Whether retries keep it alive, now that its root is over.
    fn judge_sustained(&mut self, view: View<'_>, now: u64) {
        // What comes after a calm are waves of those who are left: the account of what kept it alive ends before it.
        let last_drop = self.last_drop().unwrap_or(now);
        self.settled.waves_only |=
            self.sustained.is_some() && now > last_drop.saturating_add(sustain::QUIET_WINDOWS);
        // Twice a second is often enough for what goes on for seconds.
        let due = now.saturating_sub(self.at).is_multiple_of(COUNTS_EVERY);
        if !self.is_settled(now) || self.drops.is_empty() || !due || self.settled.waves_only {
            return;
        }
        if self.root_watch.is_none() && !self.settled.root_watched {
            self.settled.root_watched = true;
            // A root that ended inside of the windows that were looked at is over.
            let cut_off = |c: &&Candidate| c.episode.last.saturating_add(2) >= self.at + AFTER_WINDOWS;
            self.root_watch = self.root().filter(cut_off).and_then(|root| Root::of(view, root));
        }
        if let Some(watch) = &mut self.root_watch {
            watch.watch(view, now);
        }
        let Some(over) = self.root_last().map(|last| last.min(now)) else { return };
        let unexplained = self.root().is_none_or(|c| c.episode.resource == Resource::Unexplained);
        let over = if unexplained { self.at } else { over };
        let most = self.drops.iter().max_by_key(|(_, d)| d.count).map(|((key, _), _)| key.clone());
        let Some(key) = most else { return };
        let usual = self.settled.usual.get(&key).copied().unwrap_or(0.0);
        let served = match self.root().map(|c| &c.episode) {
            // A burst is over when no more come than before.
            Some(e) if e.resource == Resource::Burst => Served::Before(usual),
            // Where the tier's own load is the root, what it served before says nothing of what it can serve now.
            Some(e) if e.by_load => Served::Meanwhile,
            _ => Served::Either(usual),
        };
        if let Some(kept) = self.attempts.get(&key).and_then(|a| a.judge(over, served)) {
            self.sustained = Some((key, over.saturating_add(1), kept));
        }
    }

    /// Whether clients whose retries kept it alive may come to this tier again.
    fn is_backing_off(&self, view: View<'_>, tier: &TierKey, now: u64) -> bool {
        self.sustained.is_some()
            && now <= self.last_active.saturating_add(self.backoff_windows())
            && self.is_of(view, tier)
    }

    /// Until which window worst values are taken: the first wave, not the retries.
    pub(crate) fn measured_to(&self) -> u64 {
        self.at.saturating_add(AFTER_WINDOWS).min(self.last_active.saturating_add(2))
    }

    /// Whether a tier is one of its own, or calls or is called by one.
    fn is_of(&self, view: View<'_>, tier: &TierKey) -> bool {
        self.tiers.iter().any(|t| t == tier || view.topology.related(t, tier))
    }

    /// Window of its newest drop.
    fn last_drop(&self) -> Option<u64> {
        self.drops.values().map(|d| d.last).max()
    }

    /// Whether drops here would belong to it, and people know of it or will.
    pub(crate) fn covers(&self, view: View<'_>, config: &Config, tier: &TierKey, window: u64) -> bool {
        let quiet = (config.quiet_ns / WINDOW_NS).max(self.backoff_windows());
        (self.told.is_some() || !self.drops.is_empty())
            && window <= self.last_active.saturating_add(quiet)
            && self.is_of(view, tier)
    }

    fn quiet_windows(&self, config: &Config) -> u64 {
        let quiet = if self.drops.is_empty() { config.quiet_without_drops_ns } else { config.quiet_ns };
        (quiet / WINDOW_NS).max(self.backoff_windows())
    }

    /// How long the clients that retries kept alive may wait for their next one; 0 where that was not so.
    fn backoff_windows(&self) -> u64 {
        let first = self.drops.values().map(|d| d.first).min();
        match (&self.sustained, first.zip(self.last_drop())) {
            (Some(_), Some((first, last))) => last.saturating_sub(first).min(BACKOFF_MAX),
            _ => 0,
        }
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
        let mut lost: BTreeMap<TierKey, Lost> = BTreeMap::new();
        for trigger in triggers.iter().filter(|t| t.level == Level::Drop) {
            let dropped: Vec<&Dropped> = drops.iter().filter(|d| d.tier == trigger.tier).collect();
            lost.insert(trigger.tier.clone(), self.overflow(view, config, now, trigger, &dropped));
        }
        self.count_retransmits(view, now);
        for case in &mut self.open {
            case.count_attempts(view, now, &lost);
        }
        self.absorb(view);
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
    fn absorb(&mut self, view: View<'_>) {
        let with_drops = self.open.iter().filter(|c| !c.drops.is_empty() && c.told.is_some());
        let mut explained: BTreeMap<TierKey, u64> = BTreeMap::new();
        for case in with_drops {
            for tier in &case.tiers {
                let until = explained.entry(tier.clone()).or_default();
                *until = (*until).max(case.last_active.saturating_add(FRESH_WINDOWS));
            }
        }
        // The queue of the very workload that takes what another lacks is the same cause, seen from its other side.
        let takers: Vec<(String, String, u64, u64)> = self
            .open
            .iter()
            .filter(|c| !c.drops.is_empty() && c.told.is_some())
            .filter_map(|c| {
                let root = c.root()?;
                let Place::Tier(at) = &root.place else { return None };
                let taker = root.episode.culprits.first()?;
                let from = root.episode.first.saturating_sub(TAKER_BEFORE);
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

    /// The place of the newest case that a tier belongs to.
    fn belongs(&self, view: View<'_>, config: &Config, tier: &TierKey, now: u64) -> Option<usize> {
        self.open.iter().rposition(|case| {
            now <= case.last_active.saturating_add(case.quiet_windows(config)) && case.is_of(view, tier)
        })
    }

    /// The place of the case that drops of a tier belong to; `None`: they are an incident of their own.
    fn dropping(&self, view: View<'_>, config: &Config, tier: &TierKey, now: u64) -> Option<usize> {
        let own = |i: &usize| self.open.get(*i).is_some_and(|case| has_own_cause(case, view, tier, now));
        let newest = self.belongs(view, config, tier, now)?;
        if self.open.get(newest).is_some_and(|case| !case.drops.is_empty()) {
            return Some(newest).filter(|i| !own(i));
        }
        // A wave may have been felt before it overflowed the queue: that is no incident of its own.
        let wave = self.open.iter().rposition(|case| case.is_backing_off(view, tier, now));
        wave.filter(|i| !own(i)).or(Some(newest))
    }

    /// A queue felt something, without drops.
    fn feel(&mut self, view: View<'_>, config: &Config, now: u64, trigger: &Trigger) {
        let room = self.open.len() < CASES_MAX;
        // What is felt after the last retry can have come is not of the drops before.
        let part =
            |case: &&mut Case| case.drops.is_empty() || now.saturating_sub(case.last_active) < FRESH_WINDOWS;
        let case = self.belongs(view, config, &trigger.tier, now);
        if let Some(case) = case.and_then(|index| self.open.get_mut(index)).filter(part) {
            case.tiers.insert(trigger.tier.clone());
            if case.drops.is_empty() {
                case.last_active = now;
                case.near |= trigger.level == Level::Near;
                if trigger.ratio > case.ratio && case.told.is_none() {
                    (case.ratio, case.start, case.at) = (trigger.ratio, trigger.tier.clone(), now);
                    (case.diagnosis, case.settled) = (None, Settled::default());
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
    ) -> Lost {
        let room = self.open.len() < CASES_MAX;
        let id = identify(view, &trigger.tier, dropped.iter().map(|d| d.listener).min(), now);
        let case = match self.dropping(view, config, &trigger.tier, now) {
            Some(index) => self.open.get_mut(index),
            None if room => {
                self.open.push(Case::open(trigger, now, id.clone()));
                self.open.last_mut()
            }
            None => None,
        };
        let Some(case) = case else { return Lost::default() };
        if case.drops.is_empty() {
            (case.start, case.at, case.diagnosis) = (trigger.tier.clone(), now, None);
            case.settled = Settled::default();
            if case.told.is_none() {
                case.id = id;
                case.opened = now;
            }
        }
        case.last_active = now;
        case.tiers.insert(trigger.tier.clone());
        let mut lost = Lost::default();
        for d in dropped {
            let count: &mut DropCount = case.drops.entry((d.tier.clone(), d.listener)).or_default();
            let before = count.syn_packets();
            count.add(now, d);
            lost.syns = lost.syns.saturating_add(count.syn_packets().saturating_sub(before));
            lost.acks = lost.acks.saturating_add(d.final_ack);
            lost.repeated = lost.repeated.saturating_add(d.repeated.min(d.final_ack));
        }
        lost
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
    let Some(last_drop) = case.last_drop() else { return false };
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
    // Nor is a wave without a cause a new one: dropped clients come again after 1, 2, 3, 5 and 7 s.
    if found.episode.resource == Resource::Unexplained {
        return false;
    }
    // After an overload that retries kept alive more of them come for seconds; what a tier does under them is no cause either.
    if since >= FRESH_WINDOWS && case.sustained.is_none() {
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
        case.remember(view, now);
    } else {
        case.remember(view, now);
        case.judge_sustained(view, now);
        if !over && case.told.is_some() && now.saturating_sub(case.told_at) < counts_every(case, now) {
            return None;
        }
    }
    let diagnosis = case.diagnosis.as_ref()?;
    let (mut incident, settled) =
        Report { view, baselines, case, diagnosis, now }.incident(&case.id, over)?;
    case.settled = settled;
    if !drops && case.told.is_none() && !worth_telling(&incident) {
        return None;
    }
    let version = match &case.told {
        None => 1,
        Some(told)
            if !changed(told, &incident, now.saturating_sub(case.told_at) >= counts_every(case, now)) =>
        {
            return None;
        }
        Some(told) => told.version + 1,
    };
    incident.version = version;
    case.told = Some(incident.clone());
    case.told_at = now;
    Some(incident)
}

/// Windows until the counts of a case are told again.
fn counts_every(case: &Case, now: u64) -> u64 {
    (now.saturating_sub(case.opened) / COUNTS_EVERY_AGE).clamp(COUNTS_EVERY, COUNTS_EVERY_MAX)
}

/// A queue near its limit always; a felt millibottleneck only where its resource is known.
fn worth_telling(incident: &Incident) -> bool {
    incident.kind == Kind::NearOverflow
        || (incident.root.resource != Resource::Unexplained && incident.confidence >= TELL_INFO)
}

fn changed(told: &Incident, new: &Incident, counts: bool) -> bool {
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
        || told.sustained.is_some() != new.sustained.is_some()
    {
        return true;
    }
    counts && (told.drops != new.drops || told.root.end_unix_ns != new.root.end_unix_ns)
}

//! One incident while it is open: where it began, what it dropped, which root was found, and what is kept of it for as long as it lives,
//! because windows leave the history after 20 s. Owns that, and until when something belongs to it; `cases` owns what opens one, `report`
//! how it is told.

pub(crate) mod cases;
mod ledger;
pub(crate) mod settled;
mod slowest;
mod sustain;
pub(crate) mod trigger;
pub(crate) mod very_long;
mod watch;
mod wave;

use crate::baseline::Level;
use crate::config::{Config, RETRY_WINDOWS};
use crate::episode::drop::{DropCount, DropCounts, Dropped, LATE_WINDOWS, late};
use crate::path::also::also;
use crate::path::candidate::Candidate;
use crate::path::chain::{Diagnosis, diagnose};
use crate::path::step::Place;
use crate::path::view::{AFTER_WINDOWS, View};
use crate::series::EDGE_WINDOWS;
use crate::series::growth::RISE_MIN;
use crate::series::sample::tier_sample;
use crate::topology::tier::TierKey;
use cases::WAVE_WINDOWS;
use ledger::Ledger;
use settled::Settled;
use std::collections::{BTreeMap, BTreeSet};
use sustain::{Attempts, Served};
use tailwater_model::incident::{Incident, Resource};
use tailwater_model::window::{Host, WINDOW_NS};
use trigger::Trigger;
use very_long::{Beside, Life};
use watch::RootWatch;
use wave::{Before, Waves, beyond};

/// How long retries may keep away after an overload that they kept alive, or whose clients were dropped again and again, windows (16 s). Such a
/// client comes next after at most as long as it has tried and its first wait more ([`FIRST_WAIT`]; `tcp_retransmit_timer` doubles), an eighth late, and what is
/// left of them after this is little.
const BACKOFF_WINDOWS: u64 = 320;
/// Of what is left of them who comes so much later (10 s) is too few to fill a queue for others: only what was dropped before is theirs.
const LEFT_WINDOWS: u64 = 200;
/// The first wait of a dropped SYN, and how late its timer may be, windows.
const FIRST_WAIT: u64 = RETRY_WINDOWS + LATE_WINDOWS;
/// What comes beside those who are due varies: up to so many times as many are they.
const BEYOND_DUE: f64 = 1.5;
/// Those who come together are dropped without a pause of this length, windows (200 ms).
const MOMENT_WINDOWS: u64 = 4;
/// Windows between two looks whether retries keep a case alive: twice a second is often enough for what goes on for seconds.
const SUSTAINED_EVERY: u64 = 10;

/// One open incident.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// The window in which it was opened.
    pub(crate) opened: u64,
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
    pub(crate) id: String,
    pub(crate) diagnosis: Option<Diagnosis>,
    /// The newest version that was told, and in which window.
    pub(crate) told: Option<Incident>,
    pub(crate) told_at: u64,
    /// What is said of it for good, because the windows that show it leave the history.
    pub(crate) settled: Settled,
    /// Its tiers over its whole life.
    pub(crate) ledger: Ledger,
    /// Attempts at the tiers that drop.
    attempts: BTreeMap<TierKey, sustain::Account>,
    /// Its root, watched from when the diagnosis was final.
    root_watch: Option<RootWatch>,
    /// What keeps its drops alive: which tier, since which window, and the numbers of when it was found last.
    pub(crate) sustained: Option<(TierKey, u64, sustain::Kept)>,
    /// Waves of drops that it took and that may still turn out to be an incident of their own.
    waves: Waves,
    /// Those who were dropped last had been dropped before.
    again: bool,
    /// Without drops: the last window in which those whom another case dropped may have filled its queue, and found room.
    filled_again: Option<u64>,
    /// The newest frame in which it dropped, and how it was before that.
    frame: Frame,
}

/// How a case was before the frame that is taken.
#[derive(Debug, Clone, Copy, Default)]
struct Frame {
    at: u64,
    last_drop: Option<u64>,
    again: bool,
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
            waves: Waves::default(),
            again: false,
            filled_again: None,
            frame: Frame::default(),
        }
    }

    /// Counts what a tier dropped in a frame.
    fn take_drops(&mut self, now: u64, dropped: &[&Dropped]) -> Lost {
        let mut lost = Lost::default();
        self.enter(now);
        // Of several tiers that drop in one frame each has to know them.
        let goes_on = self.drops.values().any(|count| count.last == now);
        self.again = self.knows(now, dropped) && (self.again || !goes_on);
        for d in dropped {
            self.tiers.insert(d.tier.clone());
            let count: &mut DropCount = self.drops.entry((d.tier.clone(), d.listener)).or_default();
            let before = count.syn_packets();
            count.add(now, d);
            lost.syns = lost.syns.saturating_add(count.syn_packets().saturating_sub(before));
            lost.acks = lost.acks.saturating_add(d.final_ack);
            lost.repeated = lost.repeated.saturating_add(d.repeated.min(d.final_ack));
        }
        self.waves.take(now, dropped);
        lost
    }

    /// Whether most of what is dropped in a window was dropped before, in this case: last ACKs, which the kernel side knows again, and SYNs that
    /// are due, or found room and lost their last ACK. Whoever waited together comes together, after a time that doubles (`tcp_retransmit_timer`, `reqsk_timer_handler`).
    fn knows(&self, now: u64, dropped: &[&Dropped]) -> bool {
        let again = |d: &&Dropped| {
            let Some(before) = self.drops.get(&(d.tier.clone(), d.listener)) else { return 0.0 };
            let repeated = d.repeated.min(d.final_ack).min(d.drops);
            repeated as f64 + before.awaited(now).min((d.drops - repeated) as f64)
        };
        let again: f64 = dropped.iter().map(again).sum();
        let all = dropped.iter().map(|d| d.drops).fold(0, u64::saturating_add);
        again > 0.0 && 2.0 * again >= all as f64
    }

    /// Before anything of a frame is taken, whichever of its tiers comes first.
    fn enter(&mut self, now: u64) {
        if self.frame.at != now {
            self.frame = Frame { at: now, last_drop: self.last_drop(), again: self.again };
        }
    }

    /// Whether what is dropped now begins a wave: after a calm, or after a moment, if most of those before it had been dropped before and most of
    /// these had not.
    fn begins_wave(&mut self, now: u64, dropped: &[&Dropped]) -> bool {
        self.enter(now);
        let Some(last) = self.frame.last_drop else { return false };
        let since = now.saturating_sub(last);
        let others = || self.frame.again && self.waves.have_room() && !self.knows(now, dropped);
        !self.waves.began(now) && (since >= WAVE_WINDOWS || since >= MOMENT_WINDOWS && others())
    }

    /// How it is now, before a wave of drops.
    fn before_wave(&self) -> Before {
        Before {
            drops: self.drops.clone(),
            retransmits: self.retransmits.clone(),
            last_active: self.last_active,
            settled: self.settled.clone(),
            sustained: self.sustained.clone(),
            again: self.again,
        }
    }

    /// Takes the wave at `index` out of it, with all that was dropped since, as a case of its own; it is then as it was before that wave, and
    /// says so at once. What listeners were asked for, and what tiers went through, is no matter of whose drops they were and stays in both.
    fn split_off(&mut self, index: usize) -> Option<Self> {
        let apart = self.waves.split_off(index)?;
        let (wave, before) = (&apart.wave, apart.wave.before.clone());
        let mut own = Self::open(&wave.trigger, wave.first, wave.id.clone());
        let mut later = apart.later.into_iter().peekable();
        for (window, dropped) in &apart.taken {
            if let Some(mut next) = later.next_if(|next| next.first == *window) {
                let retransmits = beyond(&next.before.retransmits, &before.retransmits);
                let last_active = next.before.last_active;
                next.before = Before { retransmits, last_active, ..own.before_wave() };
                own.waves.begin(next);
            }
            own.take_drops(*window, &dropped.iter().collect::<Vec<_>>());
        }
        own.last_active = self.last_active;
        own.retransmits = beyond(&self.retransmits, &before.retransmits);
        own.attempts = self.attempts.clone();
        (self.drops, self.retransmits, self.last_active) =
            (before.drops, before.retransmits, before.last_active);
        (self.settled, self.sustained, self.again) = (before.settled, before.sustained, before.again);
        self.told_at = 0;
        Some(own)
    }

    /// Looks for its root while the windows around its start still come in; then at what became of the root, and of the drops. True if the
    /// root was looked for.
    pub(crate) fn judge(&mut self, view: View<'_>, now: u64, lives: &[Life]) -> bool {
        if self.diagnosis.is_some() && self.is_settled(now) {
            self.remember(view, now, lives);
            self.judge_sustained(view, now);
            return false;
        }
        let mut diagnosis = diagnose(view, &self.start, self.at);
        if !self.drops.is_empty() {
            diagnosis.also = also(view, &diagnosis, &self.start, self.at);
        }
        if let Some(Candidate { place: Place::Tier(root), .. }) = diagnosis.candidates.first() {
            self.tiers.insert(root.clone());
        }
        self.diagnosis = Some(diagnosis);
        self.remember(view, now, lives);
        true
    }

    /// From when to when it had something dropped; `None`: it had not.
    fn life(&self) -> Option<Life> {
        let first = self.drops.values().map(|d| d.first).min()?;
        // While the root stands nobody is answered, and who finds the queue full without being dropped waits as long.
        let last = self.last_drop()?.max(self.root_last().unwrap_or(0));
        let tiers = self.tiers.iter().chain(self.ledger.tiers()).cloned().collect();
        Some(Life { id: self.id.clone(), first, last, tiers })
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
        self.measured_to()
            .max(first.saturating_add(AFTER_WINDOWS).min(self.last_active.saturating_add(EDGE_WINDOWS)))
    }

    /// Takes what a frame shows of its tiers into what is remembered for as long as it lives.
    fn remember(&mut self, view: View<'_>, now: u64, lives: &[Life]) {
        // What a queue felt may go on for hours, and most of it is never told.
        if self.drops.is_empty() && !self.near && self.told.is_none() {
            return;
        }
        let droppers =
            self.drops.iter().map(|((key, _), d)| (key.clone(), d.first.saturating_sub(EDGE_WINDOWS)));
        let path = self.diagnosis.iter().flat_map(|d| &d.path).filter_map(|step| match &step.place {
            Place::Tier(key) => Some((key.clone(), step.onset.saturating_sub(EDGE_WINDOWS))),
            _ => None,
        });
        // Down from a root that is upstream, which stored or sent what overflowed.
        let root = self.root().map(|root| (&root.place, root.episode.first));
        let above = root.into_iter().flat_map(|(place, first)| {
            let Place::Tier(root) = place else { return Vec::new() };
            // In each frame of each case: a way is searched only where there is one.
            if *root == self.start || !view.topology.leads(root, &self.start) {
                return Vec::new();
            }
            let way = view.topology.path(root, &self.start).unwrap_or_default();
            way.into_iter().map(|key| (key, first.saturating_sub(EDGE_WINDOWS))).collect()
        });
        let beside = Beside::new(lives, &self.id);
        for (key, from) in path.chain(above).chain(droppers).collect::<Vec<_>>() {
            self.ledger.take(view, &key, from, now, beside);
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
        let due = now.saturating_sub(self.at).is_multiple_of(SUSTAINED_EVERY);
        if !self.is_settled(now) || self.drops.is_empty() || !due || self.settled.waves_only {
            return;
        }
        if self.root_watch.is_none() && !self.settled.root_watched {
            self.settled.root_watched = true;
            // A root that ended inside of the windows that were looked at is over.
            let cut_off =
                |c: &&Candidate| c.episode.last.saturating_add(EDGE_WINDOWS) >= self.at + AFTER_WINDOWS;
            self.root_watch = self.root().filter(cut_off).and_then(|root| RootWatch::of(view, root));
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

    /// Whether clients whose retries kept it alive may come to this tier again, or to one beside it.
    fn is_backing_off(&self, view: View<'_>, tier: &TierKey, now: u64) -> bool {
        self.is_awaiting(now) && self.is_of(view, tier)
    }

    /// Whether there may be so many of such clients that whoever is dropped there finds a queue that they fill.
    fn is_filled_by_those_left(&self, view: View<'_>, tier: &TierKey, now: u64) -> bool {
        now <= self.last_active.saturating_add(LEFT_WINDOWS) && self.is_backing_off(view, tier, now)
    }

    /// Whether such clients may come to this very tier, which dropped them.
    fn awaits_at(&self, tier: &TierKey, now: u64) -> bool {
        self.is_awaiting(now) && self.last_drop_of(tier).is_some()
    }

    fn is_awaiting(&self, now: u64) -> bool {
        self.sustained.is_some() && now <= self.last_active.saturating_add(self.backoff_windows())
    }

    /// Whether those whom it dropped last fill this tier's queue and find room: connections that are due to be completed come beyond what usually
    /// does, in this window and the one before, and no more of them than are due.
    fn completes(&self, view: View<'_>, tier: &TierKey, now: u64) -> bool {
        let of_tier = self.drops.iter().filter(|((at, _), _)| at == tier);
        let due = of_tier.map(|(_, count)| count.completes(now)).fold(0, u64::saturating_add) as f64;
        let Some(of) = view.topology.tiers.get(tier).filter(|_| due > 0.0) else { return false };
        let usual = self.settled.usual.get(tier).copied().unwrap_or(0.0);
        let windows = [now.saturating_sub(1), now].into_iter();
        let beyond: f64 = windows
            .filter_map(|at| view.history.window(&tier.host, at))
            .map(|window| tier_sample(window, of).arrivals - usual)
            .sum();
        beyond >= RISE_MIN && beyond <= BEYOND_DUE * due
    }

    /// Until which window worst values are taken: the first wave, not the retries.
    pub(crate) fn measured_to(&self) -> u64 {
        self.at.saturating_add(AFTER_WINDOWS).min(self.last_active.saturating_add(EDGE_WINDOWS))
    }

    /// Whether a tier is one of its own, or calls or is called by one.
    fn is_of(&self, view: View<'_>, tier: &TierKey) -> bool {
        self.tiers.contains(tier) || self.tiers.iter().any(|t| view.topology.related(t, tier))
    }

    /// Window of the newest drop of a tier.
    fn last_drop_of(&self, tier: &TierKey) -> Option<u64> {
        self.drops.iter().filter(|((at, _), _)| at == tier).map(|(_, count)| count.last).max()
    }

    /// Window of its newest drop.
    fn last_drop(&self) -> Option<u64> {
        self.drops.values().map(|d| d.last).max()
    }

    /// Whether drops here would belong to it, and people know of it or will.
    pub(crate) fn covers(&self, view: View<'_>, config: &Config, tier: &TierKey, window: u64) -> bool {
        let quiet = (config.quiet_ns / WINDOW_NS).max(self.open_windows(config));
        (self.told.is_some() || !self.drops.is_empty())
            && window <= self.last_active.saturating_add(quiet)
            && self.is_of(view, tier)
    }

    /// Whether nothing can belong to it any more, or it has reached the age at which a case is closed.
    pub(crate) fn is_over(&self, config: &Config, now: u64) -> bool {
        let age = now.saturating_sub(self.opened);
        now > self.last_active.saturating_add(self.open_windows(config))
            || age >= config.max_incident_ns / WINDOW_NS
    }

    /// For so long after its last activity whatever happens at its tiers belongs to it: longer where those who come again may fill their queues.
    fn quiet_windows(&self, config: &Config) -> u64 {
        let quiet = if self.drops.is_empty() { config.quiet_without_drops_ns } else { config.quiet_ns };
        (quiet / WINDOW_NS).max(self.backoff_windows().min(LEFT_WINDOWS))
    }

    /// For so long it is open: what is dropped after [`Case::quiet_windows`] belongs to it if it was dropped there before.
    fn open_windows(&self, config: &Config) -> u64 {
        let tried = self.tried_windows();
        let next = tried.saturating_add(late(tried)).saturating_add(FIRST_WAIT);
        let tried = if self.again { next } else { 0 };
        self.quiet_windows(config).max(self.backoff_windows()).max(tried.min(BACKOFF_WINDOWS))
    }

    /// How long the clients that retries kept alive may wait for their next one; 0 where that was not so.
    fn backoff_windows(&self) -> u64 {
        if self.sustained.is_some() { self.tried_windows().min(BACKOFF_WINDOWS) } else { 0 }
    }

    /// From its first drop to its last one.
    fn tried_windows(&self) -> u64 {
        let first = self.drops.values().map(|d| d.first).min();
        first.zip(self.last_drop()).map_or(0, |(first, last)| last.saturating_sub(first))
    }

    fn root(&self) -> Option<&Candidate> {
        self.diagnosis.as_ref()?.candidates.first()
    }

    /// The root of what it dropped, if it dropped something and the root is known.
    pub(crate) fn root_of_drops(&self) -> Option<&Candidate> {
        let known = |root: &&Candidate| root.episode.resource != Resource::Unexplained;
        self.root().filter(|_| !self.drops.is_empty()).filter(known)
    }

    /// Whether it is no more than the load of those whom another case dropped, and who found room this time. What goes on after them is not.
    pub(crate) fn is_of_the_dropped(&self) -> bool {
        let by_load = |root: &Candidate| root.episode.resource == Resource::Burst || root.episode.by_load;
        let is_over = |last: u64| self.last_active <= last.saturating_add(FIRST_WAIT);
        self.drops.is_empty() && self.filled_again.is_some_and(is_over) && self.root().is_some_and(by_load)
    }

    /// Whether its root is this one.
    pub(crate) fn has_root(&self, of: &Candidate) -> bool {
        self.root().is_some_and(|own| own.is_cause_of(of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::fixture::dropped;

    /// Fails where a case ends though those whom it dropped again and again have not come for the last time: the wave of theirs that comes
    /// next would wake somebody once more.
    #[test]
    fn whoever_was_dropped_again_and_again_is_waited_for_as_long_as_it_has_tried() {
        let config = Config::default();
        let quiet = config.quiet_ns / WINDOW_NS;
        let over_after = |newest: Dropped| {
            let trigger = Trigger { tier: newest.tier.clone(), level: Level::Drop, ratio: 1.0 };
            let mut case = Case::open(&trigger, 1000, "id".to_owned());
            case.take_drops(1000, &[&dropped(50, 0, 0)]);
            case.take_drops(1090, &[&newest]);
            case.last_active = 1090;
            (1090..2000).find(|now| case.is_over(&config, *now)).unwrap() - 1090
        };
        let tried = 90 + late(90) + FIRST_WAIT + 1;
        assert_eq!(over_after(dropped(40, 40, 40)), tried);
        assert_eq!(over_after(dropped(40, 20, 20)), tried);
        assert_eq!(over_after(dropped(40, 20, 19)), quiet + 1, "most came for the first time");
        assert_eq!(over_after(dropped(40, 40, 0)), quiet + 1);
        assert_eq!(over_after(dropped(0, 0, 0)), quiet + 1);
    }

    /// Fails where clients whose SYN was dropped, and whose last ACK is when they come again, are taken for others.
    #[test]
    fn whose_last_ack_is_dropped_after_its_syn_was_is_known() {
        let trigger = Trigger { tier: dropped(1, 0, 0).tier, level: Level::Drop, ratio: 1.0 };
        let mut case = Case::open(&trigger, 1000, "id".to_owned());
        case.take_drops(1000, &[&dropped(266, 0, 0)]);
        assert!(case.knows(1021, &[&dropped(442, 442, 211)]));
        assert!(!case.knows(1015, &[&dropped(442, 442, 211)]), "too soon for them");
        assert!(!case.knows(1021, &[&dropped(900, 442, 0)]), "most are others");
    }

    /// Fails where a second cause that overflows the queue while clients of the first one come again is told as these.
    #[test]
    fn others_who_come_a_moment_after_those_who_come_again_begin_a_wave() {
        let trigger = Trigger { tier: dropped(1, 0, 0).tier, level: Level::Drop, ratio: 1.0 };
        let mut case = Case::open(&trigger, 1000, "id".to_owned());
        assert!(!case.begins_wave(1000, &[&dropped(50, 0, 0)]), "its first");
        case.take_drops(1000, &[&dropped(50, 0, 0)]);
        assert!(!case.begins_wave(1004, &[&dropped(90, 0, 0)]), "it goes on");
        assert!(case.begins_wave(1020, &[&dropped(40, 0, 0)]), "after a calm");
        case.take_drops(1020, &[&dropped(40, 0, 0)]);
        assert!(!case.begins_wave(1023, &[&dropped(90, 0, 0)]), "without a pause");
        assert!(case.begins_wave(1025, &[&dropped(90, 0, 0)]), "others");
        assert!(!case.begins_wave(1025, &[&dropped(90, 90, 60)]), "the same ones");
    }

    #[test]
    fn whatever_goes_on_is_closed_when_it_is_a_day_old() {
        let trigger = Trigger {
            tier: TierKey { host: "web".into(), workload: 1, listener: 1 },
            level: Level::Drop,
            ratio: 1.0,
        };
        let over = |hours: u64| {
            let now = 1000 + hours * 3600 * 20;
            let case = Case { last_active: now, ..Case::open(&trigger, 1000, "id".to_owned()) };
            case.is_over(&Config::default(), now)
        };
        assert!(!over(20));
        assert!(over(25));
    }
}

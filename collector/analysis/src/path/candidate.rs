//! Possible roots along a chain and their ranking. Owns which episode fits an onset, and the rule of their order; knows no drops.
//!
//! Score = quality of the episode's rule x place on the path (a tier whose growth something below explains: 0.6) x strength
//! of every step to it (0.9 to 1) x 0.8 if windows are missing x 0.98 if clocks cannot order its onset and the queue's. It orders candidates and
//! decides what is told; how often the best of them is right is another number (`report/confidence.rs`).

use super::bridge::Batch;
use super::lost;
use super::order::{Between, order};
use super::step::{Place, Step};
use super::surge::{Surge, is_under_the_same, surge};
use super::view::{LONGEST_WINDOWS, Node, View, stands};
use crate::episode::culprits;
use crate::episode::{Episode, cpu, event_loop, lookups, of_resources, quality, stall, stopped};
use crate::series::growth::{LEAD_WINDOWS, usual};
use crate::series::{EDGE_WINDOWS, average};
use crate::topology::tier::{Tier, TierKey};
use tailwater_model::incident::{Culprit, Order, Resource};
use tailwater_model::window::{Host, WINDOW_NS};

/// An episode may be seen this long after the queue it filled began to grow, windows: 150 ms of window edges and clock errors.
pub(crate) const ONSET_TOLERANCE: u64 = 3;
/// An episode fits badly that began longer before the queue grew than a millibottleneck lasts.
const BADLY_TIMED: f64 = 0.7;
/// One that began after the queue's first rise fits less well, though its tier hardly answered from then on.
pub(crate) const STOPPED_LATER: f64 = 0.8;
/// An episode that ended this long before the drop (100 ms), and before half of the queue's growth, fits badly.
const OVER_SINCE: u64 = 2;
const WAS_OVER: f64 = 0.6;
/// What a tier's own load used up, or that of a neighbour on the way of the same requests, when more of them than usual had come.
const CARRIED_BY_SURGE: f64 = 0.8;
/// What something else explains can still be the root: a tier whose growth calls below explain, or more requests than usual at a tier that
/// stood still, which would have met the usual ones as still.
const EXPLAINED_OTHERWISE: f64 = 0.6;
/// What held a batch back in another branch.
const OTHER_BRANCH: f64 = 0.95;
/// An unobserved tier is this much less likely the root where an observed one behind it fits.
const BRIDGED: f64 = 0.7;

/// Windows are missing where the root would be.
const WINDOWS_MISSING: f64 = 0.8;
/// Clocks cannot order the onset of the root and of the queue; the flow of requests does.
const CLOCKS_UNSURE: f64 = 0.98;
/// A step that accounts for nothing of the queue above leaves this, one that accounts for all of it 1.
const STEP_LEAST: f64 = 0.9;
/// A product of steps from here on is not worth telling.
const STEPS_ALL: f64 = 0.995;
/// A burst is told to last until so long after the drop, windows (200 ms): what comes later may be retries.
const BURST_AFTER: u64 = 4;

/// A further cause of the same overflow, in another branch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Also {
    /// It.
    pub(crate) candidate: Candidate,
    /// The part of the growth, at the tier where both branches part, that calls to it account for, 0 to 1.
    pub(crate) share: f64,
}

/// A possible root.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) place: Place,
    pub(crate) episode: Episode,
    /// How well it fits by rule, 0 to 1.
    pub(crate) score: f64,
    /// How the score was formed.
    pub(crate) rule: String,
    /// What lowered it, in clauses.
    pub(crate) against: Vec<String>,
    /// The requests that came, which were more than usual, explain its episode: it is their effect.
    pub(crate) carried: bool,
    /// It held requests back, which this tier stored and sent on as a batch: whatever it used up was before that.
    pub(crate) before_batch: Option<TierKey>,
}

impl Candidate {
    pub(crate) fn new(place: Place, episode: Episode) -> Self {
        Self {
            place,
            score: episode.quality,
            rule: format!("{:.2} for the episode", episode.quality),
            against: Vec::new(),
            carried: false,
            before_batch: None,
            episode,
        }
    }

    /// Whether this one is the same cause as another, seen at two queues or at one: the same place at the same time, or two that wanted for the
    /// same thing on one host, because all of it did or because the same workload took it from both, or for the same server of names, or lost packets on the way
    /// from one host, or to one.
    pub(crate) fn is_cause_of(&self, other: &Self) -> bool {
        let (a, b) = (&self.episode, &other.episode);
        let at_once =
            a.first <= b.last.saturating_add(EDGE_WINDOWS) && b.first <= a.last.saturating_add(EDGE_WINDOWS);
        if a.resource != b.resource || a.resource == Resource::Unexplained || !at_once {
            return false;
        }
        let (Place::Tier(here), Place::Tier(there)) = (&self.place, &other.place) else {
            return self.place == other.place;
        };
        let taker = |e: &Episode| e.culprits.first().map(|c| c.workload.clone());
        let taken = matches!(a.resource, Resource::CpuNeighbour | Resource::Io)
            && taker(a).is_some()
            && taker(a) == taker(b);
        let asked = a.lookups.as_ref().zip(b.lookups.as_ref());
        let lost = a.lost.as_ref().zip(b.lost.as_ref());
        let same_host = here.host == there.host;
        let same_server = asked.is_some_and(|(a, b)| a.server == b.server && (same_host || !a.is_of_host()));
        // What is lost is so at one end, or on the way between the two.
        let same_end = lost.is_some_and(|(a, b)| same_host || a.to.host == b.to.host);
        here == there || same_server || same_end || same_host && (a.of_host && b.of_host || taken)
    }

    /// Whether it is something that no load of its tier makes.
    pub(crate) fn is_from_outside(&self) -> bool {
        matches!(
            self.episode.resource,
            Resource::CpuNeighbour
                | Resource::CpuThrottled
                | Resource::Io
                | Resource::Memory
                | Resource::Pause
                | Resource::EventLoop
                | Resource::Dns
                | Resource::Network
                | Resource::Lock
        )
    }

    /// Whether something from outside was found, with so much certainty, and is no effect of what its tier was sent. What fills a queue takes longer than a
    /// window: what shows in one alone, in which the clients of the wave before come again, may be what these do to the tiers below.
    pub(crate) fn is_surely_from_outside(&self, least: f64) -> bool {
        let own = self.carried || self.episode.by_load;
        self.is_from_outside() && !own && self.score >= least && self.episode.last > self.episode.first
    }

    pub(crate) fn times(&mut self, factor: f64, reason: &str) {
        self.score *= factor;
        self.rule = format!("{} x {factor:.2} {reason}", self.rule);
        self.against.push(reason.strip_prefix("as ").unwrap_or(reason).to_owned());
    }
}

/// Episodes at a tier that began with its queue, `last`: nothing below explains the queue. With them, where more requests came because a tier
/// above had stored them, and nothing was found there that held them back: that surge.
pub(crate) fn at_tier(
    view: View<'_>,
    key: &TierKey,
    node: &Node,
    at: u64,
    last: bool,
) -> (Vec<Candidate>, Option<Surge>) {
    let place = Place::Tier(key.clone());
    let short = resources(view, key, node);
    let later = if last { stopping_later(&short, node, at) } else { Vec::new() };
    let mut episodes = fitting(short, node.onset, at);
    episodes.extend(later);
    let own_load = episodes.iter().any(|e| e.by_load);
    if last {
        episodes.extend(fitting(stalls(view, key, node), node.onset, at));
        episodes.extend(fitting(lost_on_the_way(view, key, node, at), node.onset, at));
    }
    let mut found: Vec<Candidate> = episodes.into_iter().map(|e| Candidate::new(place.clone(), e)).collect();
    if !last {
        found
            .iter_mut()
            .for_each(|c| c.times(EXPLAINED_OTHERWISE, "as calls below explain this tier's queue"));
    }
    // Threads that are stopped wait for nothing below, and an event loop that is blocked leaves the answers from there unread.
    let stops = fitting(stood_still(view, key, node), node.onset, at);
    let stood = !stops.is_empty();
    found.extend(stops.into_iter().map(|e| Candidate::new(place.clone(), e)));
    found.iter_mut().for_each(|c| c.against.extend(badly_timed(&c.episode, node.onset, at)));
    let mut held = None;
    if let Some(surge) = surge(view, key, node, at, own_load) {
        let mut surged = from_surge(view, &surge, node, at);
        for burst in surged.iter_mut().filter(|c| stood && c.episode.resource == Resource::Burst) {
            burst.times(EXPLAINED_OTHERWISE, "as they came to a tier that stood still");
        }
        let known = surged.iter().any(|c| c.episode.resource != Resource::Burst);
        found.extend(surged);
        held = Some(surge).filter(|surge| surge.stored && !known);
    }
    if last {
        found.push(Candidate::new(place, unexplained(node, at)));
    }
    (found, held)
}

/// The best episode of a tier that was short of a resource, or whose threads stood still, when a queue overflowed.
pub(crate) fn short(view: View<'_>, key: &TierKey, node: &Node, at: u64) -> Option<Episode> {
    let mut episodes = resources(view, key, node);
    episodes.extend(stood_still(view, key, node));
    fitting(episodes, node.onset, at).into_iter().max_by(|a, b| a.quality.total_cmp(&b.quality))
}

/// Calls of a tier that got nowhere.
fn lost_on_the_way(view: View<'_>, key: &TierKey, node: &Node, at: u64) -> Vec<Episode> {
    let is_short = |key: &TierKey, node: &Node, at: u64| short(view, key, node, at).is_some();
    lost::episode(view, key, node, at, &is_short).into_iter().collect()
}

/// What was seen at a tier's threads themselves: stopped ones, and event loops that did not come back.
fn stood_still(view: View<'_>, key: &TierKey, node: &Node) -> Vec<Episode> {
    let mut episodes = stopped::episodes(&node.tier, &node.used, node.onset, view.thresholds);
    if let Some(tier) = view.topology.tiers.get(key) {
        let own = |id| tier.listeners.iter().any(|l| l.id == id);
        episodes.extend(event_loop::episodes(
            view.history,
            &key.host,
            own,
            (node.tier.first, node.tier.end()),
        ));
    }
    episodes
}

/// Stalls of a tier, held against its busiest listener's curve where one is kept.
fn stalls(view: View<'_>, key: &TierKey, node: &Node) -> Vec<Episode> {
    let tier = view.topology.tiers.get(key);
    let judged =
        tier.and_then(|t| view.congestion.judge(view.history, key, t, node.tier.first, node.tier.end()));
    let workers = tier.and_then(Tier::pool);
    stall::episodes(&node.tier, &node.used, judged.as_ref(), workers, node.onset, view.thresholds)
}

fn resources(view: View<'_>, key: &TierKey, node: &Node) -> Vec<Episode> {
    if key.workload == 0 {
        return Vec::new();
    }
    let (history, host, used, t) = (view.history, key.host.as_str(), &node.used, view.thresholds);
    let workload = history.measured_under(host, key.workload);
    let alone = cpu::served_alone(history, key, &node.tier);
    let mut episodes = of_resources(history, host, workload, used, alone, node.onset, t);
    if workload != key.workload {
        let name = culprits::workload_name(history.hosts.get(host), key.workload);
        episodes.iter_mut().for_each(|e| of_all_that_share(e, &name));
    }
    if history.polls_queues(host) {
        // Where nobody counts what comes, a burst that goes through all tiers looks like the own load of each of them.
        episodes.retain(|e| !e.by_load);
    }
    episodes.extend(lookups::episodes(history, host, key.workload, &node.tier, node.onset, t));
    episodes
}

/// CPU, I/O and memory of a cgroup with several servers are those of all of them: whose it was, the processes tell.
fn of_all_that_share(episode: &mut Episode, server: &str) {
    episode.why.push_str("; told of its cgroup as a whole, which other servers share");
    let Some(most) = episode.culprits.first() else { return };
    if most.workload == server {
        return;
    }
    episode.by_load = false;
    if episode.resource == Resource::Cpu {
        episode.resource = Resource::CpuNeighbour;
    }
}

/// Those that began before the queue grew (or could have, to the tolerance) and before the drop, and still held then.
fn fitting(mut episodes: Vec<Episode>, onset: u64, at: u64) -> Vec<Episode> {
    episodes.retain(|e| {
        e.first <= onset.saturating_add(ONSET_TOLERANCE)
            && e.first <= at
            && e.last.saturating_add(EDGE_WINDOWS) >= onset
    });
    for episode in &mut episodes {
        if began_long_before(episode, onset) {
            episode.quality *= BADLY_TIMED;
        }
        if was_over(episode, onset, at) {
            episode.quality *= WAS_OVER;
            episode.why = format!("{}; it was over while the queue still grew", episode.why);
        }
    }
    episodes
}

/// Longer before the queue than a millibottleneck lasts. What stands has stood for as long as it does.
fn began_long_before(episode: &Episode, onset: u64) -> bool {
    let stands = episode.unit == stopped::THREADS || episode.resource == Resource::EventLoop;
    episode.first.saturating_add(LONGEST_WINDOWS) < onset && !stands
}

fn was_over(episode: &Episode, onset: u64, at: u64) -> bool {
    let since = at.saturating_sub(episode.last);
    since > OVER_SINCE && 2 * since > at.saturating_sub(onset).saturating_add(1)
}

/// What speaks against an episode by its time alone, in clauses.
fn badly_timed(episode: &Episode, onset: u64, at: u64) -> Vec<String> {
    let flaws = [
        (began_long_before(episode, onset), "it began long before the queue grew"),
        (episode.first > onset.saturating_add(ONSET_TOLERANCE), "it began after the queue had begun to grow"),
        (was_over(episode, onset, at), "it was over while the queue still grew"),
    ];
    flaws.into_iter().filter(|(is, _)| *is).map(|(_, what)| what.to_owned()).collect()
}

/// Those that began too late for the first rise of the queue, but soon after it, and held at the drop, and whose tier hardly answered from then
/// on: a small wave, which the usual load has, came before them.
fn stopping_later(episodes: &[Episode], node: &Node, at: u64) -> Vec<Episode> {
    let latest = node.onset.saturating_add(ONSET_TOLERANCE);
    let later = episodes.iter().filter(|e| {
        let held = e.last.saturating_add(OVER_SINCE) >= at && e.first.saturating_add(OVER_SINCE) <= at;
        held && e.first > latest && e.first <= node.onset.saturating_add(LEAD_WINDOWS)
    });
    let stopped = later.filter_map(|e| {
        let rate = usual(&node.tier.map(|s| s.answered), node.onset);
        let answered = average(node.tier.range(e.first, at.min(e.last)).map(|(_, s)| s.answered));
        if !stands(answered, rate) {
            return None;
        }
        let ms = (e.first - node.onset) * WINDOW_NS / 1_000_000;
        let why = format!(
            "{}; it began {ms} ms after the queue, and from then on {answered:.1} answers came per window where {rate:.1} are usual",
            e.why
        );
        Some(Episode { quality: e.quality * STOPPED_LATER, why, ..e.clone() })
    });
    stopped.collect()
}

/// The root of a surge: what held the stored batch back, else the burst itself.
fn from_surge(view: View<'_>, surge: &Surge, node: &Node, at: u64) -> Vec<Candidate> {
    let place = Place::Tier(surge.at.clone());
    let mut found = Vec::new();
    if let Some(tier) = view.topology.tiers.get(&surge.at).filter(|_| surge.stored) {
        let up = view.node(&surge.at, tier, at, node.onset.saturating_sub(LONGEST_WINDOWS), node.onset);
        let mut episodes = resources(view, &surge.at, &up);
        episodes.extend(stalls(view, &surge.at, &up));
        episodes.extend(stood_still(view, &surge.at, &up));
        episodes.extend(lost_on_the_way(view, &surge.at, &up, node.onset));
        for mut episode in fitting(episodes, up.onset, at) {
            // A stored batch leaves soon after the episode that held it back.
            let over = episode.last.saturating_add(LEAD_WINDOWS) >= node.onset && episode.first < node.onset;
            if over && up.growth.is_some() && !episode.by_load {
                let went_on = if surge.connections {
                    "what waited there meanwhile went on in bits, and opened its connections at".to_owned()
                } else {
                    "when it was over the stored requests went on as a batch,".to_owned()
                };
                episode.why = format!("{}; {went_on} {:.1} times the usual rate", episode.why, surge.ratio);
                found.push(Candidate::new(place.clone(), episode));
            }
        }
    }
    // Connections that were opened at once are none of whom they were opened for.
    if surge.connections {
        return found;
    }
    let client = surge.client.as_ref().and_then(|c| view.topology.tiers.get(c));
    let last = node
        .tier
        .range(surge.onset, at.saturating_add(LONGEST_WINDOWS))
        .map(|(i, _)| i)
        .last()
        .unwrap_or(at)
        .min(at.saturating_add(BURST_AFTER));
    let burst = Episode {
        resource: Resource::Burst,
        first: surge.onset,
        last,
        peak: (surge.ratio * 10.0).round() / 10.0,
        unit: "ratio",
        quality: if surge.stored { quality::BURST_STORED } else { quality::BURST },
        by_load: false,
        of_host: false,
        event_loop: None,
        lookups: None,
        lost: None,
        culprits: client
            .map(|c| Culprit { pid: 0, comm: c.comm.clone(), workload: c.workload.clone(), share: 1.0 })
            .into_iter()
            .collect(),
        why: format!("requests came at {:.1} times the usual rate", surge.ratio),
    };
    found.push(Candidate::new(place, burst));
    found
}

/// What held requests back in a tier that then sent them on as a batch, if it was not that tier itself: of what explains its queue, before the
/// batch left, what lies in another branch below it.
pub(crate) fn held_back_by(
    mut found: Vec<Candidate>,
    surge: &Surge,
    node: &Node,
    path: &[Step],
) -> Vec<Candidate> {
    found.retain(|c| {
        let over = c.episode.last.saturating_add(LEAD_WINDOWS) >= node.onset && c.episode.first < node.onset;
        let known = !matches!(c.episode.resource, Resource::Burst | Resource::Unexplained);
        let elsewhere = !path.iter().any(|step| step.place == c.place);
        over && known && elsewhere && c.place != Place::Tier(surge.at.clone())
    });
    for candidate in &mut found {
        candidate.before_batch = Some(surge.at.clone());
        let went_on = if surge.connections {
            "and went on in bits, which opened their connections at"
        } else {
            "and went on as a batch when it was over,"
        };
        candidate.episode.why = format!(
            "{}; requests waited for it in a tier above, {went_on} {:.1} times the usual rate",
            candidate.episode.why, surge.ratio
        );
        candidate.times(OTHER_BRANCH, "as it is in another branch than the queue that overflowed");
    }
    found
}

/// More requests came from a tier that no agent sees, to which calls had piled up: the root is there, whatever it is. That a burst
/// came is no news then.
pub(crate) fn batch_from(found: &mut Vec<Candidate>, batch: &Batch, node: &Node, at: u64) {
    // Nor is what the batch then used up here.
    for candidate in found.iter_mut() {
        if candidate.episode.resource == Resource::Burst
            || candidate.episode.first.saturating_add(1) >= node.onset
        {
            candidate.times(BRIDGED, "as a tier that no agent sees stored these requests before");
        }
    }
    let episode = Episode {
        first: batch.onset,
        quality: quality::UNSEEN_BATCH,
        why: batch.why.clone(),
        ..unexplained(node, at)
    };
    found.push(Candidate::new(batch.from.clone(), episode));
}

fn unexplained(node: &Node, at: u64) -> Episode {
    Episode {
        resource: Resource::Unexplained,
        first: node.onset,
        last: at.max(node.onset),
        peak: 0.0,
        unit: "ratio",
        quality: quality::UNEXPLAINED,
        by_load: false,
        of_host: false,
        event_loop: None,
        lookups: None,
        lost: None,
        culprits: Vec::new(),
        why: "its queue grew, nothing below it explains that, and no resource measured there was short"
            .to_owned(),
    }
}

/// A tier that cannot be looked into; `bridged`: the chain goes on behind it.
pub(crate) fn beyond_sight(step: &Step, at: u64, bridged: bool) -> Candidate {
    let (quality, why) = match &step.place {
        Place::Unobserved(..) => (quality::UNOBSERVED, "no agent sees this tier"),
        _ => (quality::MISSING, "this tier's windows are missing"),
    };
    // What is found behind it explains it better than that it is dark.
    let quality = if bridged { quality * BRIDGED } else { quality };
    let episode = Episode {
        resource: Resource::Unexplained,
        first: step.onset,
        last: at,
        peak: 0.0,
        unit: "ratio",
        quality,
        by_load: false,
        of_host: false,
        event_loop: None,
        lookups: None,
        lost: None,
        culprits: Vec::new(),
        why: format!("{}, and {why}", step.why),
    };
    Candidate::new(step.place.clone(), episode)
}

/// Applies what holds for the whole path, orders best first, and keeps one of equal place and resource.
pub(crate) fn rank(candidates: &mut Vec<Candidate>, path: &[Step], view: View<'_>, start: &TierKey, at: u64) {
    let bursts = || candidates.iter().filter(|c| c.episode.resource == Resource::Burst);
    let surged = bursts().map(|c| c.episode.first).min();
    let surged_at: Vec<Place> = bursts().map(|c| c.place.clone()).collect();
    // Of a tier there are mostly several.
    let mut clocks: Vec<(Host, Between)> = Vec::new();
    for candidate in candidates.iter_mut() {
        if surged.is_some_and(|first| first <= candidate.episode.first.saturating_add(ONSET_TOLERANCE))
            && candidate.episode.by_load
            && candidate.before_batch.is_none()
        {
            candidate.carried = true;
            candidate.times(CARRIED_BY_SURGE, "as more requests than usual had come");
        }
        if is_under_the_same(view, &candidate.place, &candidate.episode, path, &surged_at, at) {
            candidate.carried = true;
            candidate.times(CARRIED_BY_SURGE, "as more requests than usual had come to that neighbour, too");
        }
        let position = path.iter().position(|s| s.place == candidate.place);
        let strength: f64 = path
            .iter()
            .take(position.unwrap_or(0) + 1)
            .map(|s| STEP_LEAST + (1.0 - STEP_LEAST) * s.explains)
            .product();
        if strength < STEPS_ALL {
            candidate.times(strength, "as the calls on the way account for a part of the queues only");
        }
        let Place::Tier(key) = candidate.place.clone() else { continue };
        let onset = position.and_then(|p| path.get(p)).map_or(at, |s| s.onset);
        let host = key.host.as_str();
        let windows = view.history.windows_of(host);
        let absent = (onset..=at).filter(|i| windows.at(*i).is_none()).count();
        if absent > 0 {
            candidate.times(WINDOWS_MISSING, "as windows are missing");
        }
        if key.host == start.host || candidate.episode.resource == Resource::Unexplained {
            continue;
        }
        let Some(first) = path.first() else { continue };
        let between = match clocks.iter().find(|(of, _)| of == host) {
            Some((_, between)) => *between,
            None => {
                let between = view.between(host, &start.host, at);
                clocks.push((host.to_owned(), between));
                between
            }
        };
        let root = view.history.start_unix_ns(host, candidate.episode.first);
        let queue = view.history.start_unix_ns(&start.host, first.onset);
        if order(root, queue, between) == Order::Unknown {
            candidate
                .times(CLOCKS_UNSURE, "as clocks cannot order the two onsets; the flow of requests does");
        }
    }
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut seen: Vec<(Place, Resource)> = Vec::new();
    candidates.retain(|c| {
        let kind = (c.place.clone(), c.episode.resource);
        let new = !seen.contains(&kind);
        if new {
            seen.push(kind);
        }
        new
    });
    for candidate in candidates.iter_mut() {
        candidate.score = (candidate.score.clamp(0.0, 1.0) * 100.0).round() / 100.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::fixture;

    fn short_of(resource: Resource, host: &str, workload: u32, span: (u64, u64)) -> Candidate {
        let key = TierKey { host: host.into(), workload, listener: 0 };
        Candidate::new(Place::Tier(key), fixture::short_of(resource, span))
    }

    fn by(taker: &str, mut of: Candidate) -> Candidate {
        of.episode.culprits =
            vec![Culprit { pid: 1, comm: "burn".into(), workload: taker.into(), share: 1.0 }];
        of
    }

    fn of_host(mut of: Candidate) -> Candidate {
        of.episode.of_host = true;
        of
    }

    #[test]
    fn two_tiers_have_one_cause_where_all_of_their_host_wanted_for_it_or_one_took_it_from_both() {
        use Resource::{CpuNeighbour, CpuThrottled, Io};
        let one = |a: &Candidate, b: &Candidate| {
            assert_eq!(a.is_cause_of(b), b.is_cause_of(a));
            a.is_cause_of(b)
        };
        let quota = |workload, host, span| of_host(short_of(CpuThrottled, host, workload, span));
        assert!(one(&quota(1, "a", (100, 110)), &quota(2, "a", (101, 112))));
        assert!(!one(&quota(1, "a", (100, 110)), &quota(2, "b", (100, 110))), "on another host");
        assert!(!one(&quota(1, "a", (100, 110)), &quota(2, "a", (120, 130))), "at another time");
        let own = short_of(CpuThrottled, "a", 2, (100, 110));
        assert!(!one(&quota(1, "a", (100, 110)), &own), "its own quota");
        assert!(one(&own, &own));
        for resource in [CpuNeighbour, Io] {
            let taken = |by_whom, workload| by(by_whom, short_of(resource, "a", workload, (100, 110)));
            assert!(one(&taken("backup", 1), &taken("backup", 2)));
            assert!(!one(&taken("backup", 1), &taken("cron", 2)), "{resource:?}");
            let unknown = |workload| short_of(resource, "a", workload, (100, 110));
            assert!(!one(&unknown(1), &unknown(2)), "nobody knows who took it: {resource:?}");
        }
        let unexplained = short_of(Resource::Unexplained, "a", 1, (100, 110));
        assert!(!one(&unexplained, &unexplained));
    }
}

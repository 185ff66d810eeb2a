//! From a tier whose queue overflowed to the root: down along calls whose growth explains the queue, up along arrivals, and the
//! episodes found at the places in between. Owns the walk; `candidate` owns which episode fits. Knows no drops and no output.

use crate::bridge;
use crate::candidate::{self, Candidate};
use crate::config::Thresholds;
use crate::congestion::Congestion;
use crate::episode::Episode;
use crate::episode::queue::{Growth, growth, quiet, usual};
use crate::history::{HISTORY_WINDOWS, History};
use crate::series::{
    CallSample, Series, TierSample, UseSample, average, call_series, quantile, tier_series, use_series,
};
use crate::topology::{Link, Tier, TierKey, Topology};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Windows before the drop that are looked at: 5 s.
pub(crate) const BEFORE_WINDOWS: u64 = 100;
/// Windows after it: 3 s.
pub(crate) const AFTER_WINDOWS: u64 = 60;
/// A queue peaks within this many windows before the drop (600 ms).
pub(crate) const PEAK_BEFORE: u64 = 12;
/// Or up to this many after it: the drops of a window may precede its mean.
const PEAK_AFTER: u64 = 2;
/// Tiers in a chain at most.
const PATH_MAX: usize = 8;
/// Part of the calls that rose, over the later half of the time in which their caller's queue grew, that must be queued in the tier below;
/// else the answers wait in the caller.
const ARRIVED_RATIO: f64 = 0.3;
/// A tier that took on this many times the usual rate may have been sent many times more.
const SURGE_TAKEN: f64 = 1.8;
/// A tier had stored requests if less than this part of what it sent beyond the usual had come to it then.
const STORED_RATIO: f64 = 0.5;
/// A surge is looked at until so long after the drop (100 ms): the window of the first drop may hold little of it.
const SURGE_AFTER: u64 = 2;
/// A dropped SYN comes again after this, windows (1 s).
const RETRY_WINDOWS: u64 = 20;
/// Windows with less than this part of the usual requests are a trough, in which requests are held back.
const TROUGH_RATIO: f64 = 0.5;
/// A tier below that was short of something fills the queues above it only after a while; what began less than this before the drop (200 ms)
/// may be what the same burst did there, which nobody counts.
const FILLS_WINDOWS: u64 = 4;
/// Of two tiers that were short of something, the second is as likely the cause with this part of the first one's quality.
const AS_LIKELY: f64 = 0.85;
/// A queue that began to grow this much later than its caller's did not make that one grow (300 ms): it may be what the caller sent on
/// when its own millibottleneck was over.
const LATER_WINDOWS: u64 = 6;
/// A tier stands that answers less than this part of its usual rate, where that is at least [`STANDS_RATE`] answers in a window.
const STANDS_RATIO: f64 = 0.5;
const STANDS_RATE: f64 = 0.5;
/// It holds what its caller waits for with this part of the calls in flight, of at least so many.
const HELD_ALL: f64 = 0.9;
const HELD_LEAST: f64 = 4.0;
/// A pool of connections is one from so many on, and used up with this part of them.
const POOL_LEAST: u32 = 4;
const POOL_USED: f64 = 0.95;

/// Why what is found behind an unobserved tier is less sure.
const CROSSED: &str = "as the way to it leads through a tier that no agent sees";

/// Everything a walk may look at.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) history: &'a History,
    pub(crate) topology: &'a Topology,
    pub(crate) congestion: &'a Congestion,
    pub(crate) thresholds: &'a Thresholds,
}

/// A place in a chain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Tier(TierKey),
    /// Dialled, and nobody observed listens there.
    Unobserved(IpAddr, u16),
    /// Observed, but its windows are missing.
    Missing(TierKey),
}

/// What of a caller calls account for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartOf {
    /// By how much its queue grew.
    Growth,
    /// All that it had read and not answered.
    Requests,
}

impl std::fmt::Display for PartOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Growth => "growth",
            Self::Requests => "requests",
        })
    }
}

/// One place on the way down, and how the walk came there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) place: Place,
    /// When its queue began to grow.
    pub(crate) onset: u64,
    /// Part of the caller's growth that its calls account for, 0 to 1; 1 for the first.
    pub(crate) explains: f64,
    /// Or of what else of it.
    pub(crate) part_of: PartOf,
    pub(crate) why: String,
}

/// What a walk found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Diagnosis {
    pub(crate) path: Vec<Step>,
    /// Best first, never empty.
    pub(crate) candidates: Vec<Candidate>,
    /// An unobserved tier above `path`, which sent what overflowed it.
    pub(crate) above: Option<Place>,
}

/// A tier's values around a drop.
pub(crate) struct Node {
    pub(crate) tier: Series<TierSample>,
    pub(crate) used: Series<UseSample>,
    pub(crate) growth: Option<Growth>,
    pub(crate) onset: u64,
}

impl<'a> View<'a> {
    pub(crate) fn of(
        history: &'a History,
        topology: &'a Topology,
        congestion: &'a Congestion,
        thresholds: &'a Thresholds,
    ) -> Self {
        Self { history, topology, congestion, thresholds }
    }

    /// The values of a tier around window `at`, its peak searched in `[from, to]`.
    pub(crate) fn node(&self, key: &TierKey, tier: &Tier, at: u64, from: u64, to: u64) -> Node {
        let (first, last) = (at.saturating_sub(BEFORE_WINDOWS), at.saturating_add(AFTER_WINDOWS));
        let tier = tier_series(self.history, &key.host, tier, first, last);
        let used = use_series(self.history, &key.host, key.workload, first, last);
        let growth = growth(&tier.map(TierSample::queued), from, to);
        let onset = growth.map_or(at, |g| g.onset.min(at));
        Node { tier, used, growth, onset }
    }

    fn around(&self, key: &TierKey, at: u64) -> Option<Node> {
        let tier = self.topology.tiers.get(key)?;
        Some(self.node(key, tier, at, at.saturating_sub(PEAK_BEFORE), at.saturating_add(PEAK_AFTER)))
    }

    pub(crate) fn calls(&self, link: &Link, at: u64) -> Series<CallSample> {
        let (first, last) = (at.saturating_sub(BEFORE_WINDOWS), at.saturating_add(AFTER_WINDOWS));
        call_series(self.history, &link.from.host, &link.edges, first, last)
    }
}

/// Walks from `start`, whose queue was fullest (or dropped) in window `at`.
pub(crate) fn diagnose(view: View<'_>, start: &TierKey, at: u64) -> Diagnosis {
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
        let mut found = candidate::at_tier(view, &here, &node, at, last);
        if let Some(batch) = bridge::batch(view, &here, &node, at).filter(|_| path.len() == 1) {
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
    Diagnosis { path, candidates, above }
}

/// Roots at a tier that might be behind an unobserved one, less likely than another.
fn beside(view: View<'_>, bridge: &bridge::Bridge, at: u64) -> Vec<Candidate> {
    let Some(node) = view.around(&bridge.to, at) else { return Vec::new() };
    let mut found = candidate::at_tier(view, &bridge.to, &node, at, false);
    found.iter_mut().for_each(|c| {
        c.times(
            bridge.factor,
            "as another observed tier is likelier to be behind the one that no agent sees",
        );
    });
    found
}

/// The tier below whose calls explain this tier's growth best.
fn below(view: View<'_>, here: &TierKey, node: &Node, at: u64, path: &[Step]) -> Option<Step> {
    if !view.history.measures_calls(&here.host) {
        return short_below(view, here, node, at, path);
    }
    let mut best: Option<(f64, Step)> = None;
    for link in view.topology.down(here) {
        let seen = link.to.as_ref().is_some_and(|to| path.iter().any(|s| s.place == Place::Tier(to.clone())));
        let Some((rise, step)) = explained_by(view, link, node, at).filter(|_| !seen) else { continue };
        if best.as_ref().is_none_or(|(most, _)| rise > *most) {
            best = Some((rise, step));
        }
    }
    best.map(|(_, step)| step)
}

/// The way to a tier in which a resource was short when this one's queue overflowed, where nobody measures calls: of those that it calls, at
/// any depth, the one whose shortage fits best. `None` also where this tier was short of something itself, or where two are as likely.
fn short_below(view: View<'_>, here: &TierKey, node: &Node, at: u64, path: &[Step]) -> Option<Step> {
    if candidate::short(view, here, node, at).is_some() {
        return None;
    }
    let seen = |key: &TierKey| path.iter().any(|s| s.place == Place::Tier(key.clone()));
    let mut found: Vec<(Episode, TierKey)> = Vec::new();
    for key in view.topology.reachable(here).into_iter().filter(|key| !seen(key)) {
        let at = at.saturating_add(view.slack(&here.host, &key.host, at));
        let Some(there) = view.around(&key, at) else { continue };
        let short = candidate::short(view, &key, &there, at);
        let before = short.filter(|episode| episode.first.saturating_add(FILLS_WINDOWS) <= at);
        found.extend(before.map(|episode| (episode, key)));
    }
    found.sort_by(|a, b| b.0.quality.total_cmp(&a.0.quality));
    let (best, key) = found.first()?;
    if found.get(1).is_some_and(|(second, _)| second.quality >= AS_LIKELY * best.quality) {
        return None;
    }
    let next = view.topology.path(here, key)?.into_iter().nth(1)?;
    let name = view.topology.tiers.get(key).map_or("a tier below", |tier| tier.name.as_str());
    Some(Step {
        place: Place::Tier(next),
        onset: best.first.min(at),
        explains: 0.0,
        part_of: PartOf::Growth,
        why: format!(
            "calls of {} are not measured, and {name}, which it depends on, was short of something",
            here.host
        ),
    })
}

/// Whether calls along a link account for what waits at their caller: how many of them do, and the step.
fn explained_by(view: View<'_>, link: &Link, node: &Node, at: u64) -> Option<(f64, Step)> {
    risen_below(view, link, node, at).or_else(|| stands_below(view, link, node, at))
}

/// Whether all connections of a pool had a call in flight.
fn exhausted(in_flight: u32, open: u32) -> bool {
    open >= POOL_LEAST && f64::from(in_flight) >= POOL_USED * f64::from(open)
}

/// Calls that were in flight already, to a tier that came to a stand with all of them: under an overload that lasts, a caller's workers
/// all wait below at all times, so that neither its calls nor the queue below can grow when that tier stops.
fn stands_below(view: View<'_>, link: &Link, node: &Node, at: u64) -> Option<(f64, Step)> {
    let key = link.to.as_ref()?;
    // The window in which it came to a stand still had answers.
    let (from, to) = (node.onset.saturating_add(1).min(at.saturating_sub(1)), at);
    let calls = view.calls(link, at);
    let mean = average(calls.range(from, to).map(|(_, s)| s.in_flight));
    let active = average(node.tier.range(from, to).map(|(_, s)| s.active));
    let (in_flight, open) =
        calls.range(from, to).fold((0, 0), |(f, o), (_, s)| (f.max(s.in_flight_max), o.max(s.open_max)));
    let part = mean / active.max(1.0);
    if mean < HELD_LEAST || !(part >= view.thresholds.explained_ratio || exhausted(in_flight, open)) {
        return None;
    }
    let slack = view.slack(&link.from.host, &key.host, at);
    let below = view.around(key, at.saturating_add(slack))?;
    let answered = below.tier.map(|s| s.answered);
    let rate = usual(&answered, node.onset);
    let now = average(answered.range(from, to).map(|(_, v)| *v));
    if rate < STANDS_RATE || now > STANDS_RATIO * rate || below.tier.missing(from, to) >= 0.5 {
        return None;
    }
    let queued = below.tier.map(TierSample::queued);
    let in_flight = calls.map(|s| s.in_flight);
    if held(&in_flight, 0.0, &queued, 0.0, from..=to, slack) < HELD_ALL {
        return None;
    }
    let why = format!(
        "it held all {mean:.0} calls to it and sent {now:.1} answers per window where {rate:.1} are usual"
    );
    let step = Step {
        place: Place::Tier(key.clone()),
        onset: node.onset,
        explains: part.min(1.0),
        part_of: PartOf::Requests,
        why,
    };
    Some((mean, step))
}

/// Calls that rose with the queue of their caller.
fn risen_below(view: View<'_>, link: &Link, node: &Node, at: u64) -> Option<(f64, Step)> {
    let (from, to) = (node.onset.min(at.saturating_sub(PEAK_BEFORE)), at.saturating_add(PEAK_AFTER));
    let calls = view.calls(link, at);
    let waiting = with_connecting(&calls, node.onset);
    let called = growth(&waiting, from, to)?;
    let active = node.tier.map(|s| s.active);
    let active_usual = quiet(&active, node.onset);
    let active_rise = active.range(node.onset, to).map(|(_, v)| *v - active_usual).fold(0.0, f64::max);
    let explains = called.rise() / active_rise.max(1.0);
    let (in_flight, open) =
        calls.range(from, to).fold((0, 0), |(f, o), (_, s)| (f.max(s.in_flight_max), o.max(s.open_max)));
    let exhausted = exhausted(in_flight, open);
    let accounts = explains >= view.thresholds.explained_ratio || (exhausted && explains >= 0.2);
    if !accounts {
        return None;
    }
    let how = if exhausted {
        format!("all {open} connections to it had a call in flight")
    } else {
        format!("calls to it rose by {:.0}", called.rise())
    };
    let step = |place, onset| Step {
        place,
        onset,
        explains: explains.min(1.0),
        part_of: PartOf::Growth,
        why: how.clone(),
    };
    let Some(key) = &link.to else {
        return Some((called.rise(), step(Place::Unobserved(link.remote.0, link.remote.1), called.onset)));
    };
    let slack = view.slack(&link.from.host, &key.host, at);
    let below = view.around(key, at.saturating_add(slack))?;
    let to = to.saturating_add(slack);
    if below.tier.missing(node.onset, at) >= 0.5 {
        return Some((called.rise(), step(Place::Missing(key.clone()), called.onset)));
    }
    if below.onset > node.onset.saturating_add(LATER_WINDOWS + slack) {
        return None;
    }
    let held = below.growth.map_or(0.0, |grown| {
        let queued = below.tier.map(TierSample::queued);
        held(&waiting, called.usual, &queued, grown.usual, u64::midpoint(node.onset, at)..=at, slack)
    });
    let dropped = below.tier.range(node.onset, to).any(|(_, s)| s.drops > 0);
    // Calls that the tier below does not hold were answered, and the answers wait in the caller, unless it dropped them.
    (held >= ARRIVED_RATIO || dropped).then(|| (called.rise(), step(Place::Tier(key.clone()), below.onset)))
}

/// Part of the calls above `usual` that the tier below held, which `queued` more than `queued_usual`: window by window, the later the
/// more, for a queue that it had before and was rid of does not count. Its windows may be `slack` apart from the caller's.
fn held(
    calls: &Series<f64>,
    usual: f64,
    queued: &Series<f64>,
    queued_usual: f64,
    during: RangeInclusive<u64>,
    slack: u64,
) -> f64 {
    let (mut all, mut there) = (0.0, 0.0);
    for (index, value) in calls.range(*during.start(), *during.end()) {
        let rose = (value - usual).max(0.0);
        let near = queued.range(index.saturating_sub(slack), index.saturating_add(slack));
        let most = near.map(|(_, v)| v - queued_usual).fold(0.0, f64::max);
        let weight = (index - during.start() + 1) as f64;
        all += weight * rose;
        there += weight * rose.min(most);
    }
    if all > 0.0 { there / all } else { 0.0 }
}

/// Calls in flight, and connections that were begun since `onset` and are not established.
fn with_connecting(calls: &Series<CallSample>, onset: u64) -> Series<f64> {
    let mut connecting: f64 = 0.0;
    let values = calls.values.iter().enumerate().map(|(i, sample)| {
        let sample = sample.as_ref()?;
        if calls.first.saturating_add(i as u64) >= onset {
            connecting = (connecting + sample.connecting).max(0.0);
        }
        Some(sample.in_flight + connecting)
    });
    Series { first: calls.first, values: values.collect() }
}

/// Where requests came from that were more than usual.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Surge {
    /// The uppermost tier that got more, or the one that stored and sent them.
    pub(crate) at: TierKey,
    pub(crate) onset: u64,
    /// Times the usual rate.
    pub(crate) ratio: f64,
    /// An observed client that is no tier.
    pub(crate) client: Option<TierKey>,
    /// The tier that got the surge calls for it from here: `at` had stored requests.
    pub(crate) stored: bool,
}

/// Follows more arrivals than usual upwards; `None` if there were not more.
pub(crate) fn surge(view: View<'_>, here: &TierKey, node: &Node, at: u64) -> Option<Surge> {
    // Where arrivals are not seen, drops alone would be many times what is usual.
    if view.history.polls_queues(&here.host) {
        return None;
    }
    let least = view.thresholds.burst_ratio;
    let mut found: Option<Surge> = None;
    let mut key = here.clone();
    let mut onset = node.onset;
    let mut arrivals = node.tier.map(TierSample::came);
    for _ in 0..PATH_MAX {
        // A tier at its limit takes no more on than that: what its callers sent is asked, too.
        let Some(ratio) = times_usual(&arrivals, onset, at, least.min(SURGE_TAKEN)) else { break };
        if ratio >= least {
            found = Some(Surge { at: key.clone(), onset, ratio, client: None, stored: false });
        }
        let Some(Sender { ratio, caller, sent }) = sent_most(view, &key, onset, at) else { break };
        let Some(tier) = view.topology.tiers.get(&caller) else { break };
        if tier.listeners.is_empty() {
            if let Some(surge) = &mut found {
                surge.client = Some(caller);
            }
            break;
        }
        let up = view.node(&caller, tier, at, onset.saturating_sub(40), at);
        let since = onset.saturating_sub(2 + view.slack(&key.host, &caller.host, at));
        if had_stored(&up.tier, &sent, since, at.saturating_add(SURGE_AFTER)) {
            let onset = up.onset.min(onset);
            found = Some(Surge { at: caller, onset, ratio, client: None, stored: true });
            break;
        }
        onset = up.onset.min(onset);
        arrivals = up.tier.map(TierSample::came);
        key = caller;
    }
    found.filter(|surge| surge.stored || view.offered_more(surge, at))
}

impl View<'_> {
    /// Whether clients offered more than usual at the tier of a surge: what came, less what had been dropped and came again, and less what
    /// had been held back. The trough before a surge is no measure of it: after a stall everything comes at once that was asked meanwhile.
    fn offered_more(&self, surge: &Surge, at: u64) -> bool {
        let Some(tier) = self.topology.tiers.get(&surge.at) else { return true };
        let last = at.saturating_add(SURGE_AFTER);
        let first = surge.onset.saturating_sub(HISTORY_WINDOWS as u64);
        let tier = tier_series(self.history, &surge.at.host, tier, first, last);
        let waiting = |index: u64| tier.get(index).map_or(0.0, |s| s.waiting);
        let dropped = |index: u64| tier.get(index).map_or(0.0, |s| s.drops as f64);
        let offered = Series {
            first,
            values: (first..=last.min(self.history.next.saturating_sub(1)))
                .map(|i| {
                    let s = tier.get(i)?;
                    let again = f64::midpoint(
                        dropped(i.saturating_sub(RETRY_WINDOWS)),
                        dropped(i.saturating_sub(RETRY_WINDOWS + 1)),
                    );
                    Some((s.came() - again).max(0.0))
                })
                .collect(),
        };
        // What is usual is asked of all that is remembered, not of a stall that may fill the last seconds.
        let before = quantile(offered.range(first, surge.onset.saturating_sub(1)).map(|(_, v)| *v), 0.5);
        let rate = before.max(usual(&offered, surge.onset)).max(1.0);
        // Held back: what did not come in the trough right before, and what waited to be read when it ended.
        let trough = (first..surge.onset)
            .rev()
            .take_while(|i| offered.get(*i).is_none_or(|v| *v < TROUGH_RATIO * rate));
        let held: f64 = trough.filter_map(|i| offered.get(i)).map(|v| rate - v).sum();
        let held = held + waiting(surge.onset.saturating_sub(1));
        let (mut sum, mut count, mut most) = (0.0, 0.0, 0.0_f64);
        for (_, value) in offered.range(surge.onset, last.min(surge.onset.saturating_add(10))) {
            sum += value;
            count += 1.0;
            most = most.max((sum - held) / count);
        }
        most >= self.thresholds.burst_ratio * rate
    }
}

/// A caller that sent many times as much as usual.
struct Sender {
    ratio: f64,
    caller: TierKey,
    /// Calls that were begun, and connections for them.
    sent: Series<f64>,
}

/// The caller of `key` that sent most, of those that sent many times as much as usual.
fn sent_most(view: View<'_>, key: &TierKey, onset: u64, at: u64) -> Option<Sender> {
    let sending = view.topology.up(key).filter_map(|link| {
        // How much earlier the same moment can be in a caller's windows, beyond the one for their edges.
        let from = onset.saturating_sub(1 + view.slack(&key.host, &link.from.host, at));
        let sent = view.calls(link, at).map(|s| s.started + s.connecting.max(0.0));
        let ratio =
            (from..=onset).find_map(|from| times_usual(&sent, from, at, view.thresholds.burst_ratio))?;
        let sum: f64 = sent.range(from, at).map(|(_, v)| *v).sum();
        Some((sum, Sender { ratio, caller: link.from.clone(), sent }))
    });
    sending.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, sender)| sender)
}

/// Whether a tier sent more in `[from, to]` than came to it then: it had stored requests, or makes them. What came is what it read, and by
/// how much more waits to be read; each side as a multiple of its usual rate, for a request may take several calls.
fn had_stored(tier: &Series<TierSample>, sent: &Series<f64>, from: u64, to: u64) -> bool {
    let received = tier.map(|s| s.received);
    let (got_usual, sent_usual) = (usual(&received, from).max(1.0), usual(sent, from).max(1.0));
    let windows = sent.range(from, to).count().max(1) as f64;
    let waiting = |index: u64| tier.get(index).map_or(0.0, |s| s.waiting);
    let end = tier.range(from, to).map(|(i, _)| i).last().unwrap_or(to);
    let read: f64 = received.range(from, to).map(|(_, v)| *v).sum();
    let got = (read + waiting(end) - waiting(from.saturating_sub(1))) / (windows * got_usual);
    let sent = sent.range(from, to).map(|(_, v)| *v).sum::<f64>() / (windows * sent_usual);
    got - 1.0 < STORED_RATIO * (sent - 1.0)
}

/// How many times the usual rate came from `onset` on, if at least `least`: over the first window, or the first two, or as many as show the
/// most. A surge begins anywhere in its first window, and may go on after the drop.
pub(crate) fn times_usual(rate: &Series<f64>, onset: u64, at: u64, least: f64) -> Option<f64> {
    let before = usual(rate, onset).max(1.0);
    // Half a second of it: what comes later may be retries.
    let until = at.saturating_add(SURGE_AFTER).min(onset.saturating_add(10));
    let (mut sum, mut count, mut most) = (0.0, 0.0, 0.0_f64);
    for (_, value) in rate.range(onset, until) {
        sum += value;
        count += 1.0;
        most = most.max(sum / count);
    }
    let ratio = most / before;
    (ratio >= least && most >= 10.0).then_some(ratio)
}

//! Across a tier that no agent sees: which observed tier is behind it, judged by what its neighbours see. The caller sees calls to
//! an address that nobody owns; behind it somebody gets requests that no observed tier sends. Owns that judgement; knows no drops.

use super::step::{Place, Step};
use super::surge::times_usual;
use super::view::{AFTER_WINDOWS, BEFORE_WINDOWS, LONGEST_WINDOWS, Node, PEAK_AFTER, PEAK_BEFORE, View};
use crate::series::growth::{RISE_MIN, RISE_RATIO, growth};
use crate::series::sample::TierSample;
use crate::series::{EDGE_WINDOWS, Series, average};
use crate::topology::graph::Link;
use crate::topology::tier::TierKey;
use tailwater_model::window::NEARLY_ALL;

/// Windows that make one value of a rate that is compared with another (200 ms): a request is in the same one at both.
const RATE_STEP: u64 = 4;
/// Fewer calls than this are no pile: as many wait for an unobserved tier now and then, and a burst that comes then is no batch of its.
const PILE_MIN: f64 = 20.0;
/// Correlation from which rates are said to go together.
const TOGETHER: f64 = 0.5;
/// Confidence that a step over an unobserved tier leaves, with and without rates that go together.
const SURER: f64 = 0.62;
const UNSURE: f64 = 0.55;

/// A tier behind an unobserved one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bridge {
    pub(crate) to: TierKey,
    /// What it leaves of the confidence.
    pub(crate) factor: f64,
    pub(crate) why: String,
}

/// The observed tiers that may be behind the unobserved tier of `step`, called by `caller`, likeliest first.
pub(crate) fn across(view: View<'_>, caller: &TierKey, step: &Step, at: u64, path: &[Step]) -> Vec<Bridge> {
    let Place::Unobserved(address, port) = &step.place else { return Vec::new() };
    let Some(link) = view.topology.down(caller).find(|l| l.remote == (*address, *port) && l.to.is_none())
    else {
        return Vec::new();
    };
    let calls = view.calls(link, at).map(|s| s.started);
    let mut found: Vec<(f64, Bridge)> = Vec::new();
    let mut near: Option<(&str, u64)> = None;
    for (key, tier) in &view.topology.servers {
        // Tiers of a host stand one after the other.
        let slack = match near {
            Some((host, slack)) if host == key.host.as_str() => slack,
            _ => view.slack(&caller.host, &key.host, at),
        };
        near = Some((key.host.as_str(), slack));
        let peak = (at.saturating_sub(PEAK_BEFORE + slack), at.saturating_add(PEAK_AFTER + slack));
        // Before anything else: few tiers of all have a queue that grew.
        let Some(node) = view.grown(key, tier, at, peak.0, peak.1) else { continue };
        let on_path = path.iter().any(|s| matches!(&s.place, Place::Tier(on) if on == key));
        // Whoever calls the caller is above the unobserved tier, and its own callers are clients: nobody calls in a circle.
        if on_path || view.topology.leads(key, caller) {
            continue;
        }
        let calm = step.onset.min(node.onset).saturating_sub(EDGE_WINDOWS);
        if !called_by_nobody_seen(view, key, &node, at, calm) {
            continue;
        }
        // Before the rest of the chain knew: what grows only once calls pile up above it got the pile.
        let first = node.onset <= step.onset.saturating_add(EDGE_WINDOWS + slack);
        if !first || !holds(&node, at) {
            continue;
        }
        let together = correlation(&calls, &node.tier.map(|s| s.received), calm);
        let sure = together.is_some_and(|r| r >= TOGETHER);
        let rates = match together {
            Some(r) => format!(
                "; its requests and the calls to that tier go together by {r:.2} (correlation of rates)"
            ),
            None => String::new(),
        };
        found.push((
            together.unwrap_or(0.0),
            Bridge {
                to: key.clone(),
                factor: if sure { SURER } else { UNSURE },
                why: format!(
                    "behind that tier, which no agent sees, requests queued that no observed tier sends{rates}"
                ),
            },
        ));
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.to.cmp(&b.1.to)));
    found.into_iter().map(|(_, bridge)| bridge).collect()
}

/// A batch that an unobserved tier had stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Batch {
    pub(crate) from: Place,
    /// When calls to it began to pile up, in its caller's windows.
    pub(crate) onset: u64,
    pub(crate) why: String,
}

/// The unobserved tier whose stored requests came to `here` at once: callers that are not seen sent far more than usual, right after
/// an observed tier's calls to an address that nobody owns had piled up.
pub(crate) fn batch(view: View<'_>, here: &TierKey, node: &Node, at: u64) -> Option<Batch> {
    let calm = node.onset.saturating_sub(EDGE_WINDOWS);
    let arrivals = node.tier.map(TierSample::came);
    let ratio = times_usual(&arrivals, node.onset, at, view.thresholds.burst_ratio)?;
    if !called_by_nobody_seen(view, here, node, at, calm) {
        return None;
    }
    let from = node.onset.saturating_sub(LONGEST_WINDOWS);
    let piled = |link: &Link| {
        // Calls that rose by so many are at least as many: most of what is dialled outside never has them.
        if !view.reaches(link, PILE_MIN, from, node.onset) {
            return None;
        }
        let calls = view.calls(link, at);
        let queued = calls.map(|s| s.in_flight);
        let risen = growth(&queued, from, node.onset, view.dips())?;
        (risen.onset < node.onset && risen.rise() >= PILE_MIN).then_some((risen.rise(), risen.onset))
    };
    let links = view.topology.links().filter(|l| l.to.is_none() && l.from != *here);
    let (rise, onset, link) = links
        .filter_map(|link| piled(link).map(|(rise, onset)| (rise, onset, link)))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Batch {
        from: Place::Unobserved(link.remote.0, link.remote.1),
        onset,
        why: format!(
            "requests came at {ratio:.1} times the usual rate from a tier that no agent sees, right after {rise:.0} calls to it had piled up"
        ),
    })
}

/// Whether a part of its requests comes from callers that no agent sees: those that are seen do not account for nearly all of them.
fn called_by_nobody_seen(view: View<'_>, key: &TierKey, node: &Node, at: u64, calm: u64) -> bool {
    let from = calm.saturating_sub(BEFORE_WINDOWS);
    let received: f64 = node.tier.range(from, calm).map(|(_, s)| s.received).sum();
    let sent: f64 = view
        .topology
        .up(key)
        .map(|link| {
            // Where one address leads to several, they have an even part each.
            let all = view.calls(link, at).range(from, calm).map(|(_, s)| s.started).sum::<f64>();
            all / view.topology.ends(link) as f64
        })
        .sum();
    received > 0.0 && sent <= NEARLY_ALL * received
}

/// Whether requests stay in it while the queue above grows: a burst that it serves is no cause.
fn holds(node: &Node, at: u64) -> bool {
    let until = at.min(node.onset.saturating_add(AFTER_WINDOWS)).max(node.onset);
    let before = average(
        node.tier
            .range(node.onset.saturating_sub(LONGEST_WINDOWS), node.onset.saturating_sub(EDGE_WINDOWS))
            .map(|(_, s)| s.queued()),
    );
    let during = average(node.tier.range(node.onset, until).map(|(_, s)| s.queued()));
    during >= RISE_RATIO * before + RISE_MIN
}

/// Pearson's correlation of two rates over [`BEFORE_WINDOWS`] before `calm`, in steps wide enough that a request is in the same step at
/// both; `None` if one of them does not vary or is not known.
fn correlation(a: &Series<f64>, b: &Series<f64>, calm: u64) -> Option<f64> {
    let from = calm.saturating_sub(BEFORE_WINDOWS);
    let pairs: Vec<(f64, f64)> = (0..BEFORE_WINDOWS / RATE_STEP)
        .filter_map(|n| {
            let (first, last) = (from + n * RATE_STEP, from + n * RATE_STEP + RATE_STEP - 1);
            let sum = |s: &Series<f64>| {
                let values: Vec<f64> = s.range(first, last).map(|(_, v)| *v).collect();
                (values.len() as u64 == RATE_STEP).then(|| values.iter().sum::<f64>())
            };
            Some((sum(a)?, sum(b)?))
        })
        .collect();
    if (pairs.len() as u64) < BEFORE_WINDOWS / RATE_STEP / 2 {
        return None;
    }
    let mean = |f: fn(&(f64, f64)) -> f64| average(pairs.iter().map(f));
    let (ma, mb) = (mean(|p| p.0), mean(|p| p.1));
    let (mut aa, mut bb, mut ab) = (0.0, 0.0, 0.0);
    for (x, y) in &pairs {
        aa += (x - ma) * (x - ma);
        bb += (y - mb) * (y - mb);
        ab += (x - ma) * (y - mb);
    }
    (aa > 0.0 && bb > 0.0).then(|| ab / (aa * bb).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_that_go_together_are_told_from_those_that_do_not() {
        let series =
            |f: &dyn Fn(u64) -> f64| Series { first: 0, values: (0..120).map(|i| Some(f(i))).collect() };
        let wave = |i: u64| 50.0 + (i * 7919 % 31) as f64;
        let other = |i: u64| 50.0 + (i * 104_729 % 29) as f64;
        let r = |b: &dyn Fn(u64) -> f64| correlation(&series(&wave), &series(b), 110);
        assert!(r(&|i| 2.0 * wave(i)).unwrap() > 0.99);
        assert!(r(&other).unwrap().abs() < 0.5);
        assert_eq!(r(&|_| 50.0), None, "what does not vary says nothing");
        assert_eq!(correlation(&series(&wave), &Series::default(), 110), None);
    }

    #[test]
    fn a_tier_that_serves_its_burst_holds_nothing() {
        let node = |during: f64| {
            let sample =
                |i: u64| TierSample { active: if i < 50 { 3.0 } else { during }, ..TierSample::default() };
            Node {
                tier: Series { first: 0, values: (0..60).map(|i| Some(sample(i))).collect() },
                used: Series::default(),
                growth: None,
                onset: 50,
            }
        };
        assert!(holds(&node(40.0), 58));
        assert!(!holds(&node(5.0), 58));
    }
}

//! How far the clocks of two hosts are apart, from requests that both saw: a call is started at its caller before it is received,
//! and answered by its server before the answer is read. Owns the estimate and its error; knows no chain and no round trip.
//!
//! Both ends count the same calls in windows of equal length, cut at different moments: of `y` calls received in a window of the
//! server, a part `1 - f` was started in the caller's window before the cut and a part `f` in the next. If calls come as
//! they like inside a window, `y = (1 - f) x(k) + f x(k+1)` on average, so least squares over a few hundred windows give `f`, and `f`
//! times 50 ms where the cut lies. Calls that come evenly say nothing of `f`; the error, taken from the residuals and how uneven the
//! counts were (White 1980, heteroskedasticity-consistent), then is large. A steep edge, as when a server stalls, says most.
//!
//! Transport takes time that no count shows: it only ever makes the starts look too early at the caller, and the answers too late.
//! Starts therefore bound the difference of the clocks from one side and answers from the other, as the two ways of a round trip do.

use super::view::View;
use std::collections::BTreeSet;
use tailwater_model::window::{EntityId, HostWindow, WINDOW_NS};

/// Windows that are compared (10 s), ending before the moment that matters: while a queue is full, arrivals wait to be received.
const SPAN: u64 = 200;
/// A second before the first onset.
const BEFORE: u64 = 20;
/// Fewer windows, or fewer calls, say too little.
const WINDOWS_MIN: usize = 60;
const CALLS_MIN: f64 = 300.0;
/// Both ends must have seen the same calls, to this part.
const SAME: f64 = 0.03;
/// Standard errors that the bound leaves room for.
const SIGMAS: f64 = 3.0;
/// A window's cut is looked for this many windows away.
const AWAY: i64 = 2;

/// A caller's window beside the server's of the same index.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Pair {
    started: f64,
    received: f64,
    answered: f64,
    heard: f64,
    /// The server's phase less the caller's, in windows.
    phase: f64,
}

/// What has to be added to the second host's times to compare them with the first's lies between these, ns; `None` if no calls
/// between the two tell.
pub(crate) fn between(view: View<'_>, first: &str, second: &str, at: u64) -> Option<(i64, i64)> {
    let down = calls(view, first, second, at).and_then(|pairs| interval(&pairs));
    let up = calls(view, second, first, at).and_then(|pairs| interval(&pairs)).map(|(l, h)| (-h, -l));
    match (down, up) {
        (Some(a), Some(b)) => Some((a.0.max(b.0), a.1.min(b.1))),
        (one, other) => one.or(other),
    }
}

/// The windows of a caller and its server, if nobody else calls that server.
fn calls(view: View<'_>, caller: &str, server: &str, at: u64) -> Option<Vec<Option<Pair>>> {
    let links =
        view.topology.calls_of(caller).iter().filter(|l| l.to.as_ref().is_some_and(|to| to.host == server));
    let mut edges: Vec<EntityId> = Vec::new();
    let mut listeners: BTreeSet<EntityId> = BTreeSet::new();
    for link in links {
        // Which of the calls to an address with several servers are whose is not told.
        if view.topology.ends(link) > 1 {
            return None;
        }
        let tier = link.to.as_ref().and_then(|to| view.topology.tiers.get(to))?;
        edges.extend(&link.edges);
        // A translated port is none of its own: then all of them are taken.
        let is_own = |port: u16| tier.listeners.iter().any(|l| l.port == port);
        let translated = link.met && !is_own(link.remote.1);
        let called = tier.listeners.iter().filter(|l| translated || l.port == link.remote.1);
        listeners.extend(called.map(|l| l.id));
    }
    if edges.is_empty() {
        return None;
    }
    let to = at.saturating_sub(BEFORE);
    let (callers, servers) = (view.history.windows_of(caller), view.history.windows_of(server));
    let pairs: Vec<Option<Pair>> = (to.saturating_sub(SPAN)..to)
        .map(|i| {
            let (here, there) = (callers.at(i)?, servers.at(i)?);
            Some(pair(here, there, &edges, &listeners))
        })
        .collect();
    Some(pairs)
}

fn pair(here: &HostWindow, there: &HostWindow, edges: &[EntityId], listeners: &BTreeSet<EntityId>) -> Pair {
    let phase = there.phase_ns.saturating_sub(here.phase_ns);
    let mut pair = Pair { phase: phase as f64 / WINDOW_NS as f64, ..Pair::default() };
    for e in edges.iter().filter_map(|id| here.edges.get(id)) {
        pair.started += e.started as f64;
        pair.heard += e.answered as f64;
    }
    for l in listeners.iter().filter_map(|id| there.listeners.get(id)) {
        pair.received += l.received as f64;
        pair.answered += l.answered as f64;
    }
    pair
}

fn interval(pairs: &[Option<Pair>]) -> Option<(i64, i64)> {
    let sum = |f: fn(&Pair) -> f64| pairs.iter().flatten().map(f).sum::<f64>();
    let (here, there) = (sum(|p| p.started), sum(|p| p.received));
    if here < CALLS_MIN || (here - there).abs() > SAME * here {
        return None;
    }
    let (started, started_error) = cut(pairs, |p| p.started, |p| p.received)?;
    let (heard, heard_error) = cut(pairs, |p| p.heard, |p| p.answered)?;
    let ns = |windows: f64| (windows * WINDOW_NS as f64) as i64;
    let (low, high) = (ns(started - SIGMAS * started_error), ns(heard + SIGMAS * heard_error));
    // More than a window apart is no transport: these are not the same calls.
    (low <= high && high - low <= 2 * WINDOW_NS as i64).then_some((low, high))
}

/// By how much the second series' windows are cut later than the first's and their phases say, and its standard error, in windows.
fn cut(pairs: &[Option<Pair>], x: impl Fn(&Pair) -> f64, y: impl Fn(&Pair) -> f64) -> Option<(f64, f64)> {
    let mean = {
        let phases: Vec<f64> = pairs.iter().flatten().map(|p| p.phase).collect();
        phases.iter().sum::<f64>() / phases.len().max(1) as f64
    };
    let get = |i: i64| pairs.get(usize::try_from(i).ok()?)?.as_ref();
    let mut best: Option<(f64, f64, f64)> = None;
    for whole in -AWAY..AWAY {
        // Response, and what one window more would change of it.
        let rows: Vec<(f64, f64)> = (0..pairs.len() as i64)
            .filter_map(|k| {
                let (server, before, after) = (get(k)?, get(k + whole)?, get(k + whole + 1)?);
                let step = x(after) - x(before);
                Some((y(server) - x(before) - step * (server.phase - mean), step))
            })
            .collect();
        let uneven: f64 = rows.iter().map(|(_, step)| step * step).sum();
        if rows.len() < WINDOWS_MIN || uneven <= 0.0 {
            continue;
        }
        let part = (rows.iter().map(|(r, step)| r * step).sum::<f64>() / uneven).clamp(0.0, 1.0);
        let left = |(r, step): &(f64, f64)| r - part * step;
        let missed = rows.iter().map(|row| left(row).powi(2)).sum::<f64>() / rows.len() as f64;
        let error = rows.iter().map(|row| (left(row) * row.1).powi(2)).sum::<f64>().sqrt() / uneven;
        if best.is_none_or(|(least, _, _)| missed < least) {
            best = Some((missed, whole as f64 + part - mean, error));
        }
    }
    best.map(|(_, cut, error)| (cut, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls at random moments; the server's clock is `skew_ms` behind what it is believed to be, so that its windows are cut
    /// that much later.
    fn seen(skew_ms: f64, transit_ms: f64, per_second: u64, even: bool) -> Vec<Option<Pair>> {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut pairs = vec![Pair::default(); SPAN as usize];
        let calls = per_second * SPAN / 20;
        for n in 0..calls {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = if even { n as f64 / calls as f64 } else { (random >> 11) as f64 / (1u64 << 53) as f64 };
            let started_ms = at * SPAN as f64 * 50.0;
            let mut count = |ms: f64, f: &dyn Fn(&mut Pair)| {
                if ms >= 0.0
                    && let Some(pair) = pairs.get_mut((ms / 50.0) as usize)
                {
                    f(pair);
                }
            };
            count(started_ms, &|p| p.started += 1.0);
            count(started_ms + transit_ms - skew_ms, &|p| p.received += 1.0);
            count(started_ms + transit_ms + 3.0 - skew_ms, &|p| p.answered += 1.0);
            count(started_ms + 2.0 * transit_ms + 3.0, &|p| p.heard += 1.0);
        }
        pairs.into_iter().map(Some).collect()
    }

    #[test]
    fn the_skew_lies_in_the_interval_and_the_interval_is_small() {
        for skew_ms in [-40.0, -17.0, -3.0, 0.0, 2.0, 25.0, 49.0] {
            for per_second in [200, 1000, 5000] {
                let (low, high) = interval(&seen(skew_ms, 0.5, per_second, false)).unwrap();
                let (low, high) = (low as f64 / 1e6, high as f64 / 1e6);
                assert!(low <= skew_ms && skew_ms <= high, "{skew_ms}: {low} to {high}");
                assert!(high - low <= 20.0, "{skew_ms} at {per_second}/s: {low} to {high}");
                assert!((f64::midpoint(low, high) - skew_ms).abs() < 5.0, "{skew_ms}: {low} to {high}");
            }
        }
    }

    #[test]
    fn slow_transport_widens_the_interval_and_does_not_move_it_away() {
        let (low, high) = interval(&seen(10.0, 12.0, 1000, false)).unwrap();
        assert!(low < 0 && high > 20_000_000, "{low} to {high}");
    }

    #[test]
    fn known_phases_are_no_skew() {
        let mut pairs = seen(20.0, 0.5, 1000, false);
        pairs.iter_mut().flatten().for_each(|p| p.phase = 0.4);
        let (low, high) = interval(&pairs).unwrap();
        assert!(low.abs() < 6_000_000 && high.abs() < 6_000_000, "{low} to {high}");
    }

    #[test]
    fn other_calls_and_too_few_calls_tell_nothing() {
        let mut pairs = seen(0.0, 0.5, 1000, false);
        pairs.iter_mut().flatten().for_each(|p| p.received *= 1.1);
        assert_eq!(interval(&pairs), None);
        assert_eq!(interval(&seen(0.0, 0.5, 20, false)), None);
    }

    #[test]
    fn a_few_calls_that_one_end_missed_are_the_same_calls_and_a_twentieth_more_are_not() {
        let of = |more: f64| {
            let mut pairs = seen(0.0, 0.5, 1000, false);
            pairs.iter_mut().flatten().for_each(|p| p.received *= more);
            interval(&pairs)
        };
        assert!(of(1.02).is_some());
        assert_eq!(of(1.05), None);
    }
}

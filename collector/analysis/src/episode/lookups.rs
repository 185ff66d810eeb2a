//! Lookup episode: a tier's requests waited for a server of names (DNS): lookups of its workload had no answer for 50 ms and longer, and it hardly answered
//! meanwhile. The lookups are seen by the agent at the sockets themselves; whose requests wait for them is not, so that the tier stands has to show it.

use super::{Episode, GROWTH, MOST, quality};
use crate::config::Thresholds;
use crate::frame::history::History;
use crate::series::growth::{quiet, usual};
use crate::series::sample::TierSample;
use crate::series::{EDGE_WINDOWS, Series, average, runs};
use std::collections::BTreeMap;
use std::net::IpAddr;
use tailwater_model::incident::{AskedOn, Lookups, Resource};
use tailwater_model::window::{EntityId, HostWindow, WINDOW_NS, WaitingLookups};

/// Lookups that must wait at once where the tier answers on: one alone may be what some task in the background asks, whom no request waits for.
const LEAST: f64 = 2.0;

/// What a tier's workload waited for servers of names; `around` ends the windows that show how many lookups of it always wait.
pub(crate) fn episodes(
    history: &History,
    host: &str,
    workload: EntityId,
    tier: &Series<TierSample>,
    around: u64,
    thresholds: &Thresholds,
) -> Vec<Episode> {
    let last = tier.end().saturating_sub(1);
    let waiting = Series::draw(history, host, tier.first, last, |window| in_window(window, workload));
    // Most hosts never have one.
    if waiting.range(waiting.first, last).all(|(_, n)| *n == 0.0) {
        return Vec::new();
    }
    let least = least(&waiting, around);
    let few = thresholds.stall_rate_ratio * usual(&tier.map(|s| s.answered), around);
    let found = runs(&waiting, |n| *n >= least);
    found.into_iter().filter_map(|run| episode(history, host, workload, tier, &waiting, few, run)).collect()
}

/// So many that wait are more than always do.
pub(crate) fn least(waiting: &Series<f64>, around: u64) -> f64 {
    (GROWTH * quiet(waiting, around)).max(1.0)
}

/// Lookups of a workload that waited at the end of a window.
pub(crate) fn in_window(window: &HostWindow, workload: EntityId) -> f64 {
    of(window, workload).map(|l| f64::from(l.lookups)).sum()
}

fn of(window: &HostWindow, workload: EntityId) -> impl Iterator<Item = &WaitingLookups> {
    window.waiting_lookups.iter().filter(move |l| l.workload == workload)
}

fn episode(
    history: &History,
    host: &str,
    workload: EntityId,
    tier: &Series<TierSample>,
    waiting: &Series<f64>,
    few: f64,
    (first, last): (u64, u64),
) -> Option<Episode> {
    let windows = history.windows_of(host);
    let all = || (first..=last).filter_map(|index| windows.at(index));
    let mut servers: BTreeMap<IpAddr, (f64, u32, u64)> = BTreeMap::new();
    for l in all().flat_map(|window| of(window, workload)) {
        let (sum, most, longest_ns) = servers.entry(l.server).or_default();
        *sum += f64::from(l.lookups);
        *most = (*most).max(l.lookups);
        *longest_ns = (*longest_ns).max(l.longest_ns);
    }
    let (server, (_, lookups, longest_ns)) =
        servers.into_iter().max_by(|(_, (a, ..)), (_, (b, ..))| a.total_cmp(b))?;
    // What is told first has waited for a window already, and at most for two.
    let begun = windows.at(first).and_then(|w| of(w, workload).map(|l| l.longest_ns).max()).unwrap_or(0);
    let began = first.saturating_sub((begun / WINDOW_NS).min(EDGE_WINDOWS));
    let told = Lookups {
        server: server.to_string(),
        lookups,
        longest_ms: longest_ns / 1_000_000,
        asked_on: server.is_loopback().then(|| asked_on(history, host, workload, all())).flatten(),
    };
    let held = average(waiting.range(first, last).map(|(_, n)| *n));
    let active = average(tier.range(first, last).map(|(_, s)| s.active));
    let by_events = tier.range(first, last).any(|(_, s)| s.worker_shared_max > 1);
    let most = held >= MOST * active;
    // The first and the last window hold a part of the time before and after.
    let inside = if last - first >= 2 { (first + 1, last - 1) } else { (first, last) };
    let stands = average(tier.range(inside.0, inside.1).map(|(_, s)| s.answered)) <= few;
    if !stands && f64::from(lookups) < LEAST {
        return None;
    }
    let part = match (stands, most) {
        (true, true) => "",
        (true, false) => ", fewer than half of the requests that it held, of which it answered hardly any",
        (false, _) => ", and it answered others",
    };
    Some(Episode {
        resource: Resource::Dns,
        first: began,
        last,
        peak: told.longest_ms as f64,
        unit: super::event_loop::MILLISECONDS,
        // An event loop leaves lookups to a few threads, for which its other requests wait.
        quality: match (stands, most || by_events) {
            (true, true) => quality::DNS,
            (true, false) => quality::DNS_ONE,
            (false, _) => quality::DNS_FEW,
        },
        by_load: false,
        of_host: false,
        event_loop: None,
        culprits: Vec::new(),
        why: format!("{}{part}", told.told()),
        lookups: Some(told),
        lost: None,
    })
}

/// Whom another workload of the host waited for meanwhile: of several the one of which most lookups did.
fn asked_on<'a>(
    history: &History,
    host: &str,
    workload: EntityId,
    windows: impl Iterator<Item = &'a HostWindow>,
) -> Option<AskedOn> {
    let mut others: BTreeMap<(EntityId, IpAddr), u64> = BTreeMap::new();
    for l in windows.flat_map(|window| &window.waiting_lookups) {
        if l.workload != workload && !l.server.is_loopback() {
            *others.entry((l.workload, l.server)).or_default() += u64::from(l.lookups);
        }
    }
    let ((other, server), _) = others.into_iter().max_by_key(|(_, sum)| *sum)?;
    let workload = super::culprits::workload_name(history.hosts.get(host), other);
    Some(AskedOn { workload, server: server.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::fixture::{MS, history};

    fn waits(workload: EntityId, server: &str, lookups: u32, longest_ms: u64) -> WaitingLookups {
        WaitingLookups { workload, server: server.parse().unwrap(), lookups, longest_ns: longest_ms * MS }
    }

    /// Episodes of workload 1, of which `always` lookups wait, and in windows 42 to 50 so many more, in a tier that holds so many requests and answers so
    /// many of 50 meanwhile.
    fn found(always: u32, more: u32, active: f64, shared: u32, answered: f64) -> Vec<Episode> {
        let history = history(60, |i, window| {
            let during = (42..=50).contains(&i);
            let lookups = always + if during { more } else { 0 };
            let longest_ms = if during { (i - 41) * 50 + 40 } else { 60 };
            if lookups > 0 {
                window.waiting_lookups =
                    vec![waits(1, "10.0.0.53", lookups, longest_ms), waits(2, "10.0.0.54", 9, 900)];
            }
        });
        let sample = |i| TierSample {
            active,
            worker_shared_max: shared,
            answered: if (42..=50).contains(&i) { answered } else { 50.0 },
            ..TierSample::default()
        };
        let tier = Series { first: 0, values: (0..60).map(|i| Some(sample(i))).collect() };
        episodes(&history, "h", 1, &tier, 41, &Thresholds::default())
    }

    /// Fails where one lookup in the background makes a cause, or those that always wait do, or whose lookups they are is not asked.
    #[test]
    fn lookups_that_wait_at_once_are_a_cause_and_those_that_always_do_are_none() {
        let held = found(0, 14, 16.0, 1, 0.0);
        assert_eq!(held.len(), 1);
        assert_eq!((held[0].first, held[0].last, held[0].peak), (41, 50, 490.0));
        assert_eq!(held[0].why, "14 lookups waited up to 490 ms for the server of names 10.0.0.53");
        assert!(held[0].quality > quality::PAUSE, "whatever a stall is told as");
        assert!(found(0, 1, 1.0, 1, 40.0).is_empty());
        assert!(found(5, 9, 16.0, 1, 0.0).is_empty(), "not three times as many as always");
        assert_eq!(found(5, 12, 16.0, 1, 0.0).len(), 1);
    }

    #[test]
    fn few_of_many_requests_are_less_sure_unless_an_event_loop_holds_them_and_of_a_tier_that_answers_on_weak()
    {
        let one = found(0, 1, 200.0, 1, 0.0);
        assert!(
            one[0].quality > quality::LOCK + quality::FROZEN && one[0].quality < quality::PAUSE,
            "{one:?}"
        );
        let of = "fewer than half of the requests that it held, of which it answered hardly any";
        assert!(one[0].why.ends_with(of), "{}", one[0].why);
        assert!(found(0, 4, 200.0, 150, 0.0)[0].quality > quality::PAUSE + quality::FROZEN);
        for shared in [1, 150] {
            let on = found(0, 14, 16.0, shared, 40.0);
            assert!(on[0].quality < quality::LOCK && on[0].why.ends_with("it answered others"), "{on:?}");
        }
    }

    #[test]
    fn a_resolver_on_the_host_is_told_with_whom_it_asks_itself() {
        let history = history(60, |i, window| {
            if (42..=50).contains(&i) {
                window.waiting_lookups = vec![
                    waits(1, "127.0.0.53", 8, 200),
                    waits(2, "10.0.0.2", 8, 200),
                    waits(2, "127.0.0.1", 99, 200),
                ];
            }
        });
        let tier = Series { first: 0, values: vec![Some(TierSample::default()); 60] };
        let found = episodes(&history, "h", 1, &tier, 41, &Thresholds::default());
        let told = found[0].lookups.as_ref().unwrap();
        let on = told.asked_on.as_ref().unwrap();
        assert_eq!((on.workload.as_str(), on.server.as_str()), ("other", "10.0.0.2"));
        assert!(told.told().ends_with("127.0.0.53, while other waited for 10.0.0.2"), "{}", told.told());
    }
}

//! Stop episode: a signal or a tracer stopped the tier's threads, and it answered nothing while they stood. Measured and not
//! concluded, so it needs no usual rate and outranks what a stall only suggests. A pool of which one worker is traced answers on, and
//! is none.

use super::{Episode, quality};
use crate::config::Thresholds;
use crate::series::growth::usual;
use crate::series::sample::{TierSample, UseSample};
use crate::series::{Series, average, runs};
use tailwater_model::incident::Resource;

/// Unit of such an episode's peak.
pub(crate) const THREADS: &str = "threads";

/// Mean stopped threads from which a window belongs to a stop: a tracer that only looks stops for microseconds.
const STOPPED_LEAST: f64 = 0.1;
/// One thread that stood for half of a window, at least.
pub(crate) const STOPPED_MOST: f64 = 0.5;

/// Stops of a tier's threads; `around` ends the windows that show its usual rate.
pub(crate) fn episodes(
    tier: &Series<TierSample>,
    used: &Series<UseSample>,
    around: u64,
    thresholds: &Thresholds,
) -> Vec<Episode> {
    let rate = usual(&tier.map(|s| s.answered), around);
    runs(used, |s| s.stopped >= STOPPED_LEAST)
        .into_iter()
        .filter_map(|(first, last)| {
            let within = |from, to| used.range(from, to).map(|(_, s)| s);
            let most = within(first, last).map(|s| s.stopped).fold(0.0, f64::max);
            let threads = within(first, last).map(|s| s.stopped_max).max().unwrap_or(0);
            // The first and the last window hold a part of the time before and after.
            let inside = if last - first >= 2 { (first + 1, last - 1) } else { (first, last) };
            let answered = average(tier.range(inside.0, inside.1).map(|(_, s)| s.answered));
            if most < STOPPED_MOST || answered > thresholds.stall_rate_ratio * rate {
                return None;
            }
            let stood_ms = 50.0 * within(first, last).map(|s| s.stopped).sum::<f64>() / most;
            let connections_only = tier.range(first, last).any(|(_, s)| s.connections_only);
            let did = if connections_only { ("wrote", "times") } else { ("answered", "requests") };
            let who = if threads == 1 { "its thread was".to_owned() } else { format!("{threads} threads of it were") };
            Some(Episode {
                resource: Resource::Pause,
                first,
                last,
                peak: f64::from(threads),
                unit: THREADS,
                quality: quality::STOPPED,
                by_load: false,
                of_host: false,
                event_loop: None,
                lookups: None,
                lost: None,
                culprits: Vec::new(),
                why: format!(
                    "{who} stopped by a signal (SIGSTOP and its kin, or a debugger) for {stood_ms:.0} ms, and it {} {answered:.1} {} per window meanwhile ({rate:.1} is usual)",
                    did.0, did.1
                ),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 60 windows; in 40 to 49 the threads of `stopped` stand and the tier answers `answered`.
    fn check(rate: f64, answered: f64, stopped: f64, expect: Option<(u64, u64, f64)>) {
        let case = |i: u64| (40..50).contains(&i);
        let sample =
            |i: u64| TierSample { answered: if case(i) { answered } else { rate }, ..TierSample::default() };
        let use_of = |i: u64| UseSample {
            stopped: if case(i) { stopped } else { 0.0 },
            stopped_max: if case(i) { stopped.ceil() as u32 } else { 0 },
            ..UseSample::default()
        };
        let tier = Series { first: 0, values: (0..60).map(|i| Some(sample(i))).collect() };
        let used = Series { first: 0, values: (0..60).map(|i| Some(use_of(i))).collect() };
        let found = episodes(&tier, &used, 40, &Thresholds::default());
        let kinds: Vec<(u64, u64, f64)> = found.iter().map(|e| (e.first, e.last, e.peak)).collect();
        assert_eq!(kinds, expect.into_iter().collect::<Vec<_>>(), "{found:#?}");
    }

    #[test]
    fn a_tier_whose_threads_stand_answers_nothing() {
        check(50.0, 0.0, 9.0, Some((40, 49, 9.0)));
        // No usual rate is needed: a server of a request now and then stands as still as another.
        check(0.0, 0.0, 1.0, Some((40, 49, 1.0)));
        check(50.0, 48.0, 1.0, None);
        check(50.0, 0.0, 0.0, None);
        check(50.0, 0.0, 0.01, None);
    }

    #[test]
    fn one_thread_must_stand_for_half_of_a_window() {
        check(50.0, 0.0, 0.4, None);
        check(50.0, 0.0, 0.7, Some((40, 49, 1.0)));
    }

    #[test]
    fn a_window_belongs_to_a_stop_of_which_it_holds_more_than_a_moment() {
        let use_of = |i: u64| UseSample {
            stopped: match i {
                40 => 0.15,
                41..=48 => 1.0,
                49 => 0.06,
                _ => 0.0,
            },
            stopped_max: u32::from((40..50).contains(&i)),
            ..UseSample::default()
        };
        let tier = Series { first: 0, values: (0..60).map(|_| Some(TierSample::default())).collect() };
        let used = Series { first: 0, values: (0..60).map(|i| Some(use_of(i))).collect() };
        let found = episodes(&tier, &used, 40, &Thresholds::default());
        assert_eq!(found.iter().map(|e| (e.first, e.last)).collect::<Vec<_>>(), [(40, 48)]);
    }
}

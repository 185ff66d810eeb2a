//! What is usual for a tier, learned frame by frame: its worker limit, whether it is event-driven, its response time and its
//! queue; in `congestion`, its load against its throughput. Owns when "a queue felt something"; knows no cause.

pub(crate) mod congestion;

use crate::config::Thresholds;
use crate::series::sample::TierSample;
use tailwater_model::window::WINDOW_NS;

/// Windows in a row with the same number of busy workers that make a plateau.
const PLATEAU_WINDOWS: u32 = 3;
/// Windows in which one thread held several requests, from which a tier is event-driven.
const SHARED_WINDOWS: u32 = 3;
/// After so many windows in which several threads held one request each (a minute of them), one in which a thread held several stands for
/// itself: a client that went away leaves its request with the thread, which then reads another's.
const SHARED_APART: u32 = 1200;
/// After so many (ten minutes) a tier is not event-driven any more: it was never, or was started again as another. Ten times as long as
/// what makes it so, so that what happens now and then does not do both by turns.
const SHARED_PAST: u32 = 12_000;
/// Windows in which requests waited while fewer threads lived than the limit says, and none was added, after which it is another (10 s).
/// A pool that may grow does so within seconds: Apache and php-fpm look every second, and start up to 32 at a time.
const FEWER_WINDOWS: u32 = 200;
/// Windows with answers before a response time is known (5 s).
const KNOWN_WINDOWS: u32 = 100;
/// Fewer queued requests than this are no queue.
pub(crate) const QUEUE_MIN: f64 = 10.0;
/// A listener whose accept queue is shorter is too small to judge by its fill.
const LIMIT_MIN: u32 = 8;

/// What one more window weighs in what is usual: at first, and when that is known.
const GAIN_AT_FIRST: f64 = 0.1;
const GAIN: f64 = 0.02;
/// What is this many times the usual is unusual, and weighs so many times less.
const UNUSUAL: f64 = 3.0;
const UNUSUAL_LESS: f64 = 10.0;
/// A queue that grew together with the response time has this many times its usual length.
const LONGER: f64 = 4.0;
/// What one more window without a backlog weighs in the usual number of busy workers.
const BUSY_GAIN: f64 = 0.05;
/// A tier rose to a plateau that is this many times its usual number of busy workers, and so many more: of few workers one or two more
/// are no rise, where two more of a queue are one.
const RISEN_RATIO: f64 = 1.5;
const RISEN_MORE: f64 = 5.0;

/// How strongly a queue felt something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Felt,
    Near,
    Drop,
}

/// What is usual for one tier.
#[derive(Debug, Clone, Default)]
pub(crate) struct Baseline {
    learned_workers: Option<u32>,
    plateau: u32,
    plateau_windows: u32,
    plateau_answered: bool,
    workers_busy_most: u32,
    workers_busy: f64,
    fewer: Fewer,
    /// Windows in which a thread held several requests, and those since the last of them in which several held one each.
    shared_windows: u32,
    alone_windows: u32,
    limit: u32,
    known_windows: u32,
    response_ns: f64,
    queued: f64,
    /// Answers in a window.
    answered: f64,
    /// Windows since there was one, but those in which the tier was held up.
    idle_windows: u64,
}

/// What speaks against a limit of workers that was learned: windows in which requests waited for one of fewer threads, and how many threads
/// those were at most.
#[derive(Debug, Clone, Copy, Default)]
struct Fewer {
    windows: u32,
    threads: u32,
}

impl Baseline {
    /// Adds a window; says what it felt, and how full the tier was (1: at its limit).
    pub(crate) fn observe(
        &mut self,
        s: &TierSample,
        configured: Option<u32>,
        t: &Thresholds,
    ) -> Option<(Level, f64)> {
        if s.limit > 0 {
            self.limit = s.limit;
        }
        if !s.connections_only {
            self.learn_shared(s);
            self.learn_workers(s);
        }
        let felt = self.level(s, configured, t);
        self.learn_usual(s);
        felt
    }

    /// Worker limit: configured, else learned; `None`: not known, or event-driven.
    pub(crate) fn workers_limit(&self, configured: Option<u32>) -> Option<u32> {
        configured.or(if self.event_driven() { None } else { self.learned_workers })
    }

    pub(crate) fn event_driven(&self) -> bool {
        self.shared_windows >= SHARED_WINDOWS
    }

    pub(crate) fn accept_queue_limit(&self) -> Option<u32> {
        (self.limit > 0).then_some(self.limit)
    }

    /// Threads that hold several requests are seen as soon as there are more requests than threads. The opposite is seen only while several
    /// threads are busy: one that is alone with one request says nothing.
    fn learn_shared(&mut self, s: &TierSample) {
        if s.worker_shared_max > 1 {
            self.shared_windows = self.shared_windows.saturating_add(1);
            self.alone_windows = 0;
        } else if s.workers_busy_max > 1 {
            self.alone_windows = self.alone_windows.saturating_add(1);
            let past = if self.event_driven() { SHARED_PAST } else { SHARED_APART };
            if self.alone_windows >= past {
                self.shared_windows = 0;
            }
        }
    }

    /// Forgets a limit that is one no more: requests wait and are answered, but there are fewer threads, and none is added. What is learned
    /// next is learned as if nothing were known.
    fn forget_workers(&mut self, s: &TierSample) {
        let Some(limit) = self.learned_workers else { return };
        // One thread more or less was seen a moment too early or too late.
        if s.workers_seen.saturating_add(1) >= limit {
            self.fewer = Fewer::default();
        } else if s.workers_seen > 0 && s.backlog >= 1.0 && s.answered > 0.0 {
            if s.workers_seen > self.fewer.threads {
                self.fewer = Fewer { windows: 0, threads: s.workers_seen };
            }
            self.fewer.windows = self.fewer.windows.saturating_add(1);
            if self.fewer.windows >= FEWER_WINDOWS {
                self.learned_workers = None;
                self.workers_busy_most = s.workers_busy_max;
                self.fewer = Fewer::default();
            }
        }
    }

    /// A plateau of busy workers beside a filled accept queue is the limit, if the tier rose to it, or if it kept answering while
    /// every thread ever seen was busy. A tier that stands still at its usual level is paused, not full.
    fn learn_workers(&mut self, s: &TierSample) {
        let busy = s.workers_busy_max;
        self.workers_busy_most = self.workers_busy_most.max(busy);
        // A server of one thread per connection stood still once, with as many as it had by then.
        if self.learned_workers.is_some_and(|limit| busy > limit.saturating_add(1)) {
            self.learned_workers = None;
        }
        self.forget_workers(s);
        if s.backlog < 1.0 {
            self.plateau_windows = 0;
            self.workers_busy += BUSY_GAIN * (f64::from(busy) - self.workers_busy);
            return;
        }
        if self.plateau_windows > 0 && busy.abs_diff(self.plateau) <= 1 {
            self.plateau_windows = self.plateau_windows.saturating_add(1);
            self.plateau_answered &= s.answered > 0.0;
        } else {
            self.plateau_windows = 1;
            self.plateau_answered = s.answered > 0.0;
        }
        self.plateau = if self.plateau_windows == 1 { busy } else { self.plateau.max(busy) };
        let risen = f64::from(busy) >= RISEN_RATIO * self.workers_busy + RISEN_MORE;
        let all_seen = self.plateau_answered && busy >= s.workers_seen.max(2);
        if self.plateau_windows >= PLATEAU_WINDOWS
            && self.plateau >= self.workers_busy_most
            && (risen || all_seen)
        {
            self.learned_workers = self.learned_workers.max(Some(self.plateau));
        }
    }

    fn level(&self, s: &TierSample, configured: Option<u32>, t: &Thresholds) -> Option<(Level, f64)> {
        let accept =
            if self.limit >= LIMIT_MIN { f64::from(s.depth_max) / f64::from(self.limit) } else { 0.0 };
        let whole = match self.workers_limit(configured).filter(|_| !s.connections_only) {
            // One more than the limit: the kernel's queue holds backlog + 1.
            Some(workers) => s.queued_max / (f64::from(workers) + f64::from(self.limit) + 1.0),
            None => 0.0,
        };
        let ratio = accept.max(whole);
        if s.drops > 0 {
            return Some((Level::Drop, ratio.max(1.0)));
        }
        // Nor does a queue grow by which a tier of few connections with many exchanges each could be seen to stand still.
        let stands = s.is_deaf() && self.is_silent(s, t);
        if s.queued_max < QUEUE_MIN {
            return stands.then_some((Level::Felt, ratio));
        }
        if ratio >= t.near_overflow_ratio {
            return Some((Level::Near, ratio));
        }
        let longer = self.known_windows >= KNOWN_WINDOWS && s.queued_max >= LONGER * self.queued;
        // How long an answer took is not known of connections that carry several exchanges, but that there was none.
        let slow = if s.connections_only {
            s.answered <= t.stall_rate_ratio * self.answered
        } else {
            s.answered > 0.0 && s.response_ns / s.answered >= t.felt_response_growth * self.response_ns
        };
        (ratio >= t.felt_ratio || (longer && slow) || stands).then_some((Level::Felt, ratio))
    }

    /// Whether a tier that usually answers, or of which only connections are known and that usually writes, hardly did.
    pub(crate) fn is_silent(&self, s: &TierSample, t: &Thresholds) -> bool {
        self.known_windows >= KNOWN_WINDOWS
            && self.answered >= QUEUE_MIN
            && s.answered <= t.stall_rate_ratio * self.answered
    }

    /// Whether a tier that writes nothing has stood for no longer than a millibottleneck lasts, besides the time in which it was `held` up in this and
    /// in earlier windows: one that had nothing to do before it was stopped missed nothing.
    pub(crate) fn wrote_lately(&mut self, s: &TierSample, held: bool, t: &Thresholds) -> bool {
        if s.answered > 0.0 {
            self.idle_windows = 0;
        } else if !held {
            self.idle_windows = self.idle_windows.saturating_add(1);
        }
        self.idle_windows <= t.persistent_ns / WINDOW_NS
    }

    /// Fast at first, then slow, and hardly at all while things are unusual: a deploy becomes usual, a millibottleneck does not.
    fn learn_usual(&mut self, s: &TierSample) {
        let gain = if self.known_windows < KNOWN_WINDOWS { GAIN_AT_FIRST } else { GAIN };
        let toward = |usual: &mut f64, value: f64| {
            let gain = if *usual > 0.0 && value > UNUSUAL * *usual { gain / UNUSUAL_LESS } else { gain };
            *usual = if *usual > 0.0 { *usual + gain * (value - *usual) } else { value };
        };
        toward(&mut self.queued, s.queued_max);
        if s.answered > 0.0 {
            if !s.connections_only {
                toward(&mut self.response_ns, s.response_ns / s.answered);
            }
            toward(&mut self.answered, s.answered);
            self.known_windows = self.known_windows.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(workers: u32, backlog: u32, answered: f64) -> TierSample {
        TierSample {
            active: f64::from(workers),
            queued_max: f64::from(workers + backlog),
            backlog: f64::from(backlog),
            depth_max: backlog,
            limit: 128,
            workers_busy_max: workers,
            workers_seen: 150,
            answered,
            response_ns: answered * 5e6,
            ..TierSample::default()
        }
    }

    fn learn(samples: &[(usize, TierSample)]) -> Baseline {
        let mut baseline = Baseline::default();
        for (times, sample) in samples {
            for _ in 0..*times {
                baseline.observe(sample, None, &Thresholds::default());
            }
        }
        baseline
    }

    #[test]
    fn a_plateau_that_was_risen_to_is_the_limit() {
        let baseline = learn(&[(100, busy(5, 0, 50.0)), (2, busy(90, 0, 10.0)), (4, busy(150, 60, 0.0))]);
        assert_eq!(baseline.workers_limit(None), Some(150));
        assert_eq!(baseline.workers_limit(Some(200)), Some(200), "configuration wins");
    }

    #[test]
    fn a_tier_that_stands_still_teaches_no_limit() {
        assert_eq!(learn(&[(100, busy(5, 0, 50.0)), (10, busy(5, 60, 0.0))]).workers_limit(None), None);
        assert_eq!(learn(&[(100, busy(5, 0, 50.0)), (10, busy(5, 60, 10.0))]).workers_limit(None), None);
    }

    #[test]
    fn a_limit_that_is_passed_was_none() {
        let stood = [(100, busy(5, 0, 50.0)), (2, busy(90, 0, 10.0)), (4, busy(150, 60, 0.0))];
        let passed = |most| [&stood[..], &[(1, busy(most, 0, 50.0))]].concat();
        assert_eq!(learn(&passed(151)).workers_limit(None), Some(150), "seen a moment too early or too late");
        assert_eq!(learn(&passed(160)).workers_limit(None), None);
        let full = [passed(160), vec![(4, busy(200, 60, 0.0))]].concat();
        assert_eq!(learn(&full).workers_limit(None), Some(200));
    }

    #[test]
    fn a_saturated_server_that_answers_shows_its_limit() {
        assert_eq!(learn(&[(20, busy(150, 60, 40.0))]).workers_limit(None), Some(150));
    }

    #[test]
    fn threads_with_several_requests_mean_event_driven() {
        let shared = TierSample { worker_shared_max: 4, ..busy(4, 0, 50.0) };
        let baseline = learn(&[(5, shared), (4, busy(150, 60, 0.0))]);
        assert!(baseline.event_driven());
        assert_eq!(baseline.workers_limit(None), None);
    }

    /// A window in which one thread held several requests, and one in which several held one each.
    fn shared() -> TierSample {
        TierSample { worker_shared_max: 4, ..busy(4, 0, 50.0) }
    }

    fn alone() -> TierSample {
        TierSample { worker_shared_max: 1, ..busy(4, 0, 50.0) }
    }

    #[test]
    fn a_request_that_a_client_leaves_behind_now_and_then_makes_no_tier_event_driven() {
        let after =
            |apart| learn(&[(1, shared()), (apart, alone()), (1, shared()), (apart, alone()), (1, shared())]);
        assert!(after(900).event_driven(), "three within 90 s in which it would have shown");
        assert!(!after(1500).event_driven(), "75 s apart");
        let idle = TierSample { worker_shared_max: 1, ..busy(1, 0, 1.0) };
        assert!(
            learn(&[(1, shared()), (5000, idle), (2, shared())]).event_driven(),
            "one request shows nothing"
        );
    }

    #[test]
    fn a_tier_whose_threads_hold_one_request_each_for_ten_minutes_is_event_driven_no_more() {
        let full = (4, busy(150, 60, 0.0));
        let after = |windows| learn(&[(5, shared()), (windows, alone()), full]).workers_limit(None);
        assert_eq!(after(9000), None, "seven and a half minutes");
        assert_eq!(after(15_000), Some(150));
        // One that holds several again is known again after three windows.
        assert!(learn(&[(5, shared()), (15_000, alone()), (3, shared())]).event_driven());
    }

    #[test]
    fn what_shares_now_and_then_is_not_event_driven_by_turns() {
        for apart in [10, 300, 1100, 1300, 5000, 11_000, 13_000] {
            let mut baseline = learn(&[(3, shared())]);
            let mut turns = 0;
            for window in 1..200_000 {
                let was = baseline.event_driven();
                let sample = if window % apart == 0 { shared() } else { alone() };
                baseline.observe(&sample, None, &Thresholds::default());
                turns += usize::from(baseline.event_driven() != was);
            }
            assert_eq!(turns, usize::from(apart > 12_000), "at one in {apart} windows");
        }
    }

    /// So many busy workers of so many that live, with requests waiting that are answered.
    fn waited(workers: u32, seen: u32) -> TierSample {
        TierSample { workers_seen: seen, ..busy(workers, 60, 40.0) }
    }

    #[test]
    fn a_pool_that_was_made_smaller_has_another_limit() {
        let learned = (20, waited(150, 150));
        let calm = (2000, TierSample { workers_seen: 50, ..busy(5, 0, 50.0) });
        let after = |windows| learn(&[learned, calm, (windows, waited(50, 50))]).workers_limit(None);
        assert_eq!(
            after(0),
            Some(150),
            "that few threads live while nothing waits says nothing of how many may"
        );
        assert_eq!(after(150), Some(150));
        assert_eq!(after(300), Some(50));
        // In pieces, too: overloads are short.
        let piece = [(10, waited(50, 50)), (100, TierSample { workers_seen: 50, ..busy(5, 0, 50.0) })];
        let pieces = [&[learned][..], &piece.repeat(30)[..]].concat();
        assert_eq!(learn(&pieces).workers_limit(None), Some(50));
    }

    #[test]
    fn a_pool_that_grows_while_requests_wait_keeps_its_limit() {
        let learned = (20, waited(150, 150));
        // 32 more every second, of 20; twenty times, and shrinks in between.
        let grow: Vec<(usize, TierSample)> =
            [20, 52, 84, 116, 148].into_iter().map(|threads| (20, waited(threads, threads))).collect();
        let full = [(40, waited(150, 150)), (400, TierSample { workers_seen: 20, ..busy(5, 0, 50.0) })];
        let again = [grow, full.to_vec()].concat().repeat(20);
        assert_eq!(learn(&[vec![learned], again].concat()).workers_limit(None), Some(150));
        // Nor does one that stands still, whatever lives.
        let stands = (1000, TierSample { answered: 0.0, ..waited(50, 50) });
        assert_eq!(learn(&[learned, stands]).workers_limit(None), Some(150));
        // One of which it is not told how many there are.
        assert_eq!(learn(&[learned, (1000, waited(50, 0))]).workers_limit(None), Some(150));
    }

    #[test]
    fn a_limit_does_not_change_by_turns() {
        let mut baseline = learn(&[(20, waited(150, 150))]);
        let mut limits = Vec::new();
        for window in 0..50_000 {
            // Overloads of half a second every five, of a pool of 50 with threads that are replaced.
            let threads = 50 + window / 200 % 4;
            let sample = if window % 100 < 10 {
                waited(50, threads)
            } else {
                TierSample { workers_seen: threads, ..busy(5, 0, 50.0) }
            };
            baseline.observe(&sample, None, &Thresholds::default());
            let limit = baseline.workers_limit(None);
            if limits.last() != Some(&limit) {
                limits.push(limit);
            }
        }
        limits.retain(Option::is_some);
        assert_eq!(limits, [Some(150), Some(50)]);
    }

    #[test]
    fn a_tier_of_which_only_connections_are_known_feels_a_silence_and_nothing_else() {
        let spoke = TierSample {
            waiting: 2.0,
            queued_max: 6.0,
            received: 300.0,
            answered: 300.0,
            connections_only: true,
            ..TierSample::default()
        };
        let level = |sample: TierSample| {
            let mut baseline = learn(&[(120, spoke)]);
            baseline.observe(&sample, None, &Thresholds::default()).map(|(level, _)| level)
        };
        let silent = TierSample { waiting: 200.0, queued_max: 300.0, answered: 0.0, ..spoke };
        assert_eq!(level(silent), Some(Level::Felt));
        assert_eq!(level(TierSample { answered: 250.0, ..silent }), None, "it goes on to speak");
        assert_eq!(level(TierSample { waiting: 1.0, queued_max: 2.0, ..silent }), None, "nobody asks");
        let few = TierSample { connections: 4, waiting: 4.0, queued_max: 4.0, answered: 0.0, ..spoke };
        assert_eq!(level(TierSample { unread: 3.6, ..few }), Some(Level::Felt), "nobody reads");
        assert_eq!(level(TierSample { unread: 1.0, ..few }), None, "it reads from most of them");
        assert_eq!(level(TierSample { unread: 3.6, answered: 200.0, ..few }), None, "it goes on to speak");
        assert_eq!(level(TierSample { drops: 1, ..spoke }), Some(Level::Drop));
        assert_eq!(
            learn(&[(120, spoke), (4, TierSample { backlog: 60.0, ..silent })]).workers_limit(None),
            None
        );
    }

    #[test]
    fn levels_follow_the_fill() {
        let level = |sample: TierSample| {
            let mut baseline = learn(&[(120, busy(5, 0, 50.0))]);
            baseline.observe(&sample, Some(150), &Thresholds::default()).map(|(level, _)| level)
        };
        assert_eq!(level(busy(20, 0, 50.0)), None);
        assert_eq!(level(busy(140, 0, 50.0)), Some(Level::Felt));
        assert_eq!(level(busy(150, 90, 5.0)), Some(Level::Near));
        assert_eq!(
            level(busy(2, 110, 5.0)),
            Some(Level::Near),
            "an accept queue alone can be near its limit"
        );
        assert_eq!(level(TierSample { drops: 1, ..busy(5, 0, 50.0) }), Some(Level::Drop));
        assert_eq!(
            level(TierSample { response_ns: 50.0 * 60e6, ..busy(40, 0, 50.0) }),
            Some(Level::Felt),
            "ten times slower"
        );
        assert_eq!(
            level(TierSample { response_ns: 60e6, ..busy(1, 0, 1.0) }),
            None,
            "one slow request is no queue"
        );
    }

    #[test]
    fn what_was_usual_for_a_second_and_a_half_is_no_rise() {
        // It works with 80 for so many windows before it stands with 90.
        let stood_after = |windows| {
            learn(&[(100, busy(5, 0, 50.0)), (windows, busy(80, 0, 50.0)), (4, busy(90, 60, 0.0))])
                .workers_limit(None)
        };
        assert_eq!(stood_after(18), Some(90), "900 ms at 80 are not usual yet");
        assert_eq!(stood_after(30), None, "1.5 s are");
    }

    #[test]
    fn a_rise_is_half_more_and_more_than_a_few_workers() {
        let stood =
            |usual, with| learn(&[(200, busy(usual, 0, 50.0)), (4, busy(with, 60, 0.0))]).workers_limit(None);
        assert_eq!(stood(20, 40), Some(40));
        assert_eq!(stood(20, 30), None, "a half more is within what a tier does at times");
        assert_eq!(stood(2, 12), Some(12));
        assert_eq!(stood(2, 7), None, "of few workers some more are no rise");
    }

    #[test]
    fn an_accept_queue_of_a_few_places_is_too_small_to_be_judged_by_its_fill() {
        let level = |limit: u32| {
            let sample = TierSample { limit, depth_max: limit, ..busy(5, limit, 50.0) };
            let mut baseline = learn(&[(120, TierSample { limit, ..busy(5, 0, 50.0) })]);
            baseline.observe(&sample, None, &Thresholds::default()).map(|(level, _)| level)
        };
        assert_eq!(level(5), None, "http.server's");
        assert_eq!(level(12), Some(Level::Near));
    }
}

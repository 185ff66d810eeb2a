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
mod tests;

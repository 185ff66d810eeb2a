//! Stall episode: requests are there, answers are not, and no resource was used that would explain it. Tells a lock, under which
//! the tier still takes requests on as long as it has workers, from a pause, under which it does nothing at all. Where the listener's congestion point N* is
//! known, windows with more requests than N* and hardly an answer (the points of interest of ICDCS'13) are evidence for both.

use super::{Episode, quality};
use crate::baseline::QUEUE_MIN;
use crate::baseline::congestion::{Judged, NEAR_ZERO, tenth};
use crate::config::Thresholds;
use crate::series::growth::{RISE_MIN, quiet, usual};
use crate::series::sample::{TierSample, UseSample};
use crate::series::{Series, average, runs};
use tailwater_model::incident::Resource;

/// Answers per window below which there is no rate to fall from.
pub(crate) const RATE_MIN: f64 = 0.5;
/// Requests that must be left unanswered, as a part of a window's usual answers. So many as make a queue are enough: a pool of
/// connections may not allow more.
const LEFT_RATIO: f64 = 0.25;
/// CPU use, as a part of the usual, at which a tier still counts as doing nothing.
const IDLE_RATIO: f64 = 0.15;

/// A new connection may be greeted before it is asked anything, as a database's is; such an answer helps nobody who waits. Windows hold no more than
/// greetings in which callers open at most so many connections for each usual answer, …
const GREETED_PER_ANSWER: f64 = 1.25;
/// … of which so large a part then waits for an answer, …
const GREETED_HELD: f64 = 0.75;
/// … and each was answered so often (authentication of PostgreSQL and MySQL takes 1 to 3 exchanges).
const GREETINGS_MOST: f64 = 3.0;
/// A server that is short of CPU greets late, and who connected in one window may be greeted, or ask, in the next ones: so many are held together (200 ms).
const GREETED_WITHIN: u64 = 4;
/// Where a tier does nothing but greet, for more windows than this, it stands, too.
const GREETS_FOR: u64 = 4;

/// A stand after which CPU or disk is short is one if it was idle for more windows than this (200 ms).
const IDLE_FOR: u64 = 3;

/// Fewer requests than this, read or unread, in the mean of a window, are none.
const NONE: f64 = 0.5;
/// Connections that came right before it stalled are of the stall, too.
const ACCEPTED_BEFORE: u64 = 2;
/// A tier that reads this many times its usual requests is not held up by a lock.
const READS_MORE: f64 = 2.0;

/// Stalls of a tier; `around` ends the windows that show its usual rate. `judged`: its busiest listener by its curve, if kept. `workers`: how
/// many it is set up for, if that is known.
pub(crate) fn episodes(
    tier: &Series<TierSample>,
    used: &Series<UseSample>,
    judged: Option<&Judged>,
    workers: Option<u32>,
    around: u64,
    thresholds: &Thresholds,
) -> Vec<Episode> {
    let rate = usual(&tier.map(|s| s.answered), around);
    let level = quiet(&tier.map(TierSample::queued), around);
    let reading = quiet(&tier.map(|s| s.active), around);
    let busy = usual(&used.map(|s| s.busy), around);
    let waiting_least =
        thresholds.cpu_wait_tasks.max(thresholds.cpu_wait_growth * quiet(&used.map(|s| s.wait), around));
    if rate < RATE_MIN {
        return Vec::new();
    }
    // A tier that is asked nothing answers nothing: of what it usually answers in a window, a part must be waiting.
    let left = (LEFT_RATIO * rate).clamp(RISE_MIN, QUEUE_MIN);
    let few = thresholds.stall_rate_ratio * rate;
    let short = |s: &UseSample| s.blocked_io >= thresholds.io_blocked_tasks || s.wait >= waiting_least;
    let lacks_cpu = |at: u64| used.get(at).is_some_and(|s| s.wait >= waiting_least);
    let greeted = greeted(tier, rate, lacks_cpu);
    let greets = |at: u64| greeted.get(at).is_some_and(|is| *is);
    let is_queued = |s: &TierSample| s.queued_max > level + left || s.is_deaf();
    let only_greets = |at: u64| tier.get(at).is_some_and(is_queued) && greets(at);
    let longer = |windows: Vec<(u64, u64)>, than: u64| {
        windows.into_iter().filter(move |(first, last)| last - first > than)
    };
    let stands: Vec<_> = longer(runs(tier, |s| is_queued(s) && s.answered <= few), 0).collect();
    // What is found of a stand; of one that was short of something else nothing is.
    let of_stand = |run: (u64, u64)| unless_short(used, run, short, IDLE_RATIO * busy);
    let apart = |(first, last): &(u64, u64)| {
        !stands.iter().filter(|run| of_stand(**run).is_some()).any(|(from, to)| first <= to && from <= last)
    };
    let greeting = Series {
        first: tier.first,
        values: (tier.first..tier.end()).map(|at| tier.get(at).map(|_| only_greets(at))).collect(),
    };
    let greeting: Vec<_> = longer(runs(&greeting, |is| *is), GREETS_FOR - 1).filter(apart).collect();
    stands
        .iter()
        .copied()
        .chain(greeting)
        // Tasks that wait for CPU or disk half of the time are another episode; but who catches up when a lock is free may want for both.
        .filter_map(of_stand)
        .filter(|(first, last)| !asked_nothing(tier, *first, *last, left))
        .filter(|(first, last)| {
            let received = average(tier.range(*first, *last).map(|(_, s)| s.received));
            let cpu = average(used.range(*first, *last).map(|(_, s)| s.busy));
            received < READS_MORE * rate || cpu <= busy
        })
        .map(|(first, last)| {
            let peak = |f: fn(&TierSample) -> f64| tier.range(first, last).map(|(_, s)| f(s)).fold(0.0, f64::max);
            let taken_on = (peak(|s| s.active) - reading).max(0.0);
            let left = peak(|s| s.waiting);
            // The first and the last window hold a part of the time before and after.
            let inside = if last - first >= 3 { (first + 1, last - 1) } else { (first, last) };
            let cpu = average(used.range(inside.0, inside.1).map(|(_, s)| s.busy));
            let received = average(tier.range(inside.0, inside.1).map(|(_, s)| s.received));
            let answered = tier.range(first, last).map(|(at, s)| if greets(at) { 0.0 } else { s.answered });
            let answered = average(answered);
            let idle = cpu <= IDLE_RATIO * busy || used.range(first, last).count() == 0;
            // Whose workers all hold a request reads no other, whatever holds them up.
            let all_held = workers.filter(|workers| {
                tier.range(inside.0, inside.1).all(|(_, s)| s.workers_busy_max >= *workers)
            });
            let pause = taken_on < left && received <= NEAR_ZERO * rate && all_held.is_none();
            let connections_only = tier.range(first, last).any(|(_, s)| s.connections_only);
            let (resource, quality) = match (pause, idle) {
                (true, true) => (Resource::Pause, quality::PAUSE),
                (true, false) => (Resource::Pause, quality::STALL_BUSY),
                (false, true) => (Resource::Lock, quality::LOCK),
                (false, false) => (Resource::Lock, quality::STALL_BUSY),
            };
            let clause = match (pause, connections_only) {
                (true, false) => format!("it read no requests and answered none; {left:.0} were left waiting"),
                (false, false) if all_held.is_some() => {
                    format!("all of its {} workers held a request, and it answered hardly any", all_held.unwrap_or(0))
                }
                (false, false) => format!("it took {taken_on:.0} more requests on and answered hardly any"),
                (true, true) => format!("it read nothing and wrote nothing; {left:.0} pieces of data came meanwhile on connections that carry several exchanges at once"),
                (false, true) => format!("it read on and wrote hardly anything; {left:.0} pieces of data came meanwhile on connections that carry several exchanges at once"),
            };
            let unit = if connections_only { "writes" } else { "answers" };
            let (more, beyond) = frozen(judged, first, last);
            Episode {
                resource,
                first,
                last,
                peak: (1.0 - answered / rate).clamp(0.0, 1.0),
                unit: "ratio",
                quality: quality + more,
                by_load: false,
                of_host: false,
                event_loop: None,
                lookups: None,
                lost: None,
                culprits: Vec::new(),
                why: format!("{clause}; {answered:.1} {unit} per window where {rate:.1} is usual, {cpu:.2} CPUs used where {busy:.2} is usual, hardly anybody waiting for CPU or disk{beyond}"),
            }
        })
        .map(|mut found| {
            // Whoever waits for a lock may have been greeted before.
            while found.resource == Resource::Lock && found.first > tier.first && only_greets(found.first - 1) {
                found.first -= 1;
            }
            found
        })
        .collect()
}

/// Of a run in which a tier stands: all of it, where its tasks were not short of CPU or disk for half of the time. Else what of it was idle
/// before they were, for as long as a stand is.
fn unless_short(
    used: &Series<UseSample>,
    (first, last): (u64, u64),
    short: impl Fn(&UseSample) -> bool,
    idle: f64,
) -> Option<(u64, u64)> {
    let all = used.range(first, last).count();
    if all == 0 || 2 * used.range(first, last).filter(|(_, s)| short(s)).count() < all {
        return Some((first, last));
    }
    let is_idle = |at: &u64| used.get(*at).is_some_and(|s| !short(s) && s.busy <= idle);
    let from = (first..=last).find(is_idle)?;
    let to = (from..=last).take_while(is_idle).last()?;
    (to - from >= IDLE_FOR).then_some((from, to))
}

/// Windows that hold no more than greetings: whether the connections that came are about as many as the requests that wait since. Of one by itself, or where
/// CPU is short with those before it.
fn greeted(tier: &Series<TierSample>, rate: f64, lacks_cpu: impl Fn(u64) -> bool) -> Series<bool> {
    let within = |at: u64, windows: u64| {
        let from = at.saturating_sub(windows - 1);
        let before = at.checked_sub(windows).and_then(|before| tier.get(before));
        let (mut accepts, mut answered, mut most, mut known) = (0.0, 0.0, 0.0_f64, 0);
        for (_, s) in tier.range(from, at) {
            (accepts, answered, most) = (accepts + s.accepts, answered + s.answered, most.max(s.accepts));
            known += 1;
        }
        let now = tier.get(at).map_or(0.0, |s| s.active);
        let holds = before.is_some_and(|before| now - before.active >= GREETED_HELD * accepts);
        let few = most <= GREETED_PER_ANSWER * rate && answered <= GREETINGS_MOST * accepts;
        known == windows && accepts > 0.0 && few && holds
    };
    let late = |at: u64| (at.saturating_sub(GREETED_WITHIN - 1)..=at).any(&lacks_cpu);
    let is = |at: u64| {
        tier.get(at)?;
        Some(within(at, 1) || (late(at) && within(at, GREETED_WITHIN)))
    };
    Series { first: tier.first, values: (tier.first..tier.end()).map(is).collect() }
}

/// Whether a tier has nothing to answer although a queue stands before it: it accepted `left` connections or more on which its callers asked
/// nothing, in at least half of the time of all that it has. Whose workers each have one connection then accepts no other.
fn asked_nothing(tier: &Series<TierSample>, first: u64, last: u64, left: f64) -> bool {
    let silent = |s: &TierSample| s.active < NONE && s.waiting - s.backlog < NONE;
    let (mut unasked, mut waits) = (0.0_f64, 0);
    for (_, s) in tier.range(first.saturating_sub(ACCEPTED_BEFORE), last) {
        unasked = (unasked + s.accepts - s.received).max(0.0);
        // What is accepted as a batch when a pause ends says nothing of the time before.
        waits += usize::from(unasked >= left && silent(s));
    }
    2 * waits >= tier.range(first, last).count()
}

/// What the windows beyond the congestion point add to a stall's quality, and to its evidence.
fn frozen(judged: Option<&Judged>, first: u64, last: u64) -> (f64, String) {
    let Some((judged, knee)) = judged.and_then(|j| Some((j, j.estimate.knee?))) else {
        return (0.0, String::new());
    };
    let all = judged.windows.range(first, last).count();
    let frozen = judged.windows.range(first, last).filter(|(_, s)| knee.is_frozen(s)).count();
    if frozen == 0 {
        return (0.0, String::new());
    }
    let clause = format!(
        ", and {frozen} of {all} windows with more requests than its congestion point of {} and hardly an answer",
        tenth(knee.load)
    );
    (if 2 * frozen >= all { quality::FROZEN } else { 0.0 }, clause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_usual() -> TierSample {
        TierSample { answered: 50.0, received: 50.0, active: 5.0, queued_max: 7.0, ..TierSample::default() }
    }

    /// 40 usual windows (50 answers, 5 in flight, 0.3 CPUs), then 10 of the case, then 10 usual.
    fn check(tier: impl Fn(u64) -> TierSample, used: UseSample, expect: Option<Resource>) {
        check_with(None, tier, used, expect);
    }

    fn check_with(
        workers: Option<u32>,
        tier: impl Fn(u64) -> TierSample,
        used: UseSample,
        expect: Option<Resource>,
    ) {
        let usual = as_usual();
        let busy = UseSample { busy: 0.3, wait: 0.1, ..UseSample::default() };
        let pick = |i: u64| if (40..50).contains(&i) { (tier(i - 40), used) } else { (usual, busy) };
        let tier = Series { first: 0, values: (0..60).map(|i| Some(pick(i).0)).collect() };
        let used = Series { first: 0, values: (0..60).map(|i| Some(pick(i).1)).collect() };
        let found = episodes(&tier, &used, None, workers, 40, &Thresholds::default());
        let kinds: Vec<Resource> = found.iter().map(|e| e.resource).collect();
        assert_eq!(kinds, expect.into_iter().collect::<Vec<_>>(), "{found:#?}");
    }

    fn frozen(i: u64) -> TierSample {
        let waiting = 50.0 * (i + 1) as f64;
        TierSample { active: 5.0, waiting, queued_max: 5.0 + waiting, ..TierSample::default() }
    }

    fn locked(i: u64) -> TierSample {
        let active = (50.0 * (i + 1) as f64).min(150.0);
        let received = if i < 3 { 50.0 } else { 0.0 };
        TierSample { active, received, queued_max: active, answered: 2.0, ..TierSample::default() }
    }

    #[test]
    fn a_pool_that_is_held_to_the_last_worker_is_no_pause() {
        let held = |workers: u32| move |i| TierSample { workers_busy_max: workers, ..frozen(i) };
        let idle = UseSample::default();
        check_with(Some(6), held(6), idle, Some(Resource::Lock));
        check_with(Some(6), held(5), idle, Some(Resource::Pause));
        check_with(None, held(6), idle, Some(Resource::Pause));
        check_with(
            Some(6),
            |i| TierSample { workers_busy_max: if i == 5 { 5 } else { 6 }, ..frozen(i) },
            idle,
            Some(Resource::Pause),
        );
    }

    #[test]
    fn a_pause_reads_nothing_and_a_lock_reads_on() {
        let idle = UseSample::default();
        check(frozen, idle, Some(Resource::Pause));
        check(locked, idle, Some(Resource::Lock));
        check(frozen, UseSample { blocked_io: 1.0, ..idle }, None);
        check(locked, UseSample { wait: 20.0, busy: 0.1, ..idle }, None);
        check(
            |_| TierSample { answered: 48.0, active: 30.0, queued_max: 30.0, ..TierSample::default() },
            idle,
            None,
        );
        check(|_| TierSample::default(), idle, None);
    }

    /// The episodes of a tier that keeps its connections, of which `come` come in these windows, are answered `each` times, and then wait or not.
    fn with_new_connections(
        come: f64,
        windows: std::ops::Range<u64>,
        each: f64,
        wait: bool,
    ) -> Vec<(Resource, u64, u64)> {
        let mut active = 5.0;
        let mut pick = |i: u64| {
            if !(40..50).contains(&i) {
                return as_usual();
            }
            let accepts = if windows.contains(&i) { come } else { 0.0 };
            active += if wait { accepts.max(1.0) } else { 1.0 };
            let (answered, received) = (each * accepts, (each + 1.0) * accepts);
            TierSample {
                active,
                received,
                answered,
                accepts,
                queued_max: active + 50.0,
                ..TierSample::default()
            }
        };
        let tier = Series { first: 0, values: (0..60).map(|i| Some(pick(i))).collect() };
        let used = Series { first: 0, values: (0..60).map(|_| Some(UseSample::default())).collect() };
        let found = episodes(&tier, &used, None, None, 40, &Thresholds::default());
        found.iter().map(|e| (e.resource, e.first, e.last)).collect()
    }

    /// Each request that waits has its caller open one more connection, which is greeted and then waits, too: fails where that hides a lock's begin,
    /// or the lock, or has a burst of short connections told as one.
    #[test]
    fn a_greeting_is_no_answer_and_whoever_is_served_was_not_greeted() {
        for each in [1.0, 3.0] {
            assert_eq!(with_new_connections(40.0, 40..44, each, true), [(Resource::Lock, 40, 49)]);
            assert_eq!(with_new_connections(40.0, 40..50, each, true), [(Resource::Lock, 40, 49)]);
            assert_eq!(with_new_connections(40.0, 40..44, each, false), [(Resource::Lock, 44, 49)]);
            assert_eq!(with_new_connections(40.0, 40..50, each, false), []);
        }
        // Some windows of it alone may be a pool that fills; and more than there are requests are a burst.
        assert_eq!(with_new_connections(40.0, 40..44, 1.0, true).len(), 1);
        assert_eq!(with_new_connections(80.0, 40..50, 1.0, true), []);
    }

    fn of(active: f64, accepts: f64, answered: f64) -> TierSample {
        let queued_max = active + 2.0;
        TierSample { active, received: answered, answered, accepts, queued_max, ..TierSample::default() }
    }

    /// A PostgreSQL of a graph whose table was locked: its callers dialled anew, and with a sixth of a CPU each of these connections took up to 100 ms until it was
    /// greeted and had asked. Fails where those late answers hide when the lock began.
    #[test]
    fn who_is_greeted_late_is_greeted() {
        let usual = of(0.1, 0.0, 5.0);
        let locked = [
            of(2.2, 2.0, 0.0),
            of(6.0, 3.0, 2.0),
            of(7.7, 3.0, 3.0),
            of(8.7, 3.0, 2.0),
            of(12.1, 3.0, 4.0),
            of(15.7, 0.0, 3.0),
        ];
        let stands = of(18.0, 0.0, 0.0);
        let busy = UseSample { busy: 0.02, ..UseSample::default() };
        let short = UseSample { busy: 0.12, wait: 7.4, ..busy };
        let pick = |i: u64| match i {
            40..46 => (locked[i as usize - 40], if i == 40 { busy } else { short }),
            46..58 => (stands, UseSample::default()),
            _ => (usual, busy),
        };
        let tier = Series { first: 0, values: (0..60).map(|i| Some(pick(i).0)).collect() };
        let used = Series { first: 0, values: (0..60).map(|i| Some(pick(i).1)).collect() };
        let found = episodes(&tier, &used, None, None, 40, &Thresholds::default());
        let found: Vec<_> = found.iter().map(|e| (e.resource, e.first, e.last)).collect();
        assert_eq!(found, [(Resource::Lock, 40, 57)]);
    }

    /// Fails where connections that are opened in batches, while the server answers most of what it usually does, make it stand.
    #[test]
    fn a_pool_that_grows_at_once_hides_no_answers() {
        let pick = |i: u64| match i {
            40..48 => {
                of(if i < 44 { 45.0 } else { 90.0 }, if i.is_multiple_of(4) { 40.0 } else { 0.0 }, 30.0)
            }
            _ => of(5.0, 0.0, 40.0),
        };
        let tier = Series { first: 0, values: (0..60).map(|i| Some(pick(i))).collect() };
        let used = Series { first: 0, values: (0..60).map(|_| Some(UseSample::default())).collect() };
        assert_eq!(episodes(&tier, &used, None, None, 40, &Thresholds::default()), []);
    }

    /// As an event loop does that has more to do than usual: it connects, and asks later.
    #[test]
    fn who_waits_for_what_its_callers_will_ask_is_not_stalled() {
        let full = TierSample { waiting: 25.0, backlog: 25.0, queued_max: 25.0, ..TierSample::default() };
        let silent = |i: u64| TierSample { accepts: if i < 2 { 15.0 } else { 0.0 }, ..full };
        check(silent, UseSample::default(), None);
        check(|_| full, UseSample::default(), Some(Resource::Pause));
        let batch = |i: u64| TierSample { accepts: if i == 9 { 300.0 } else { 0.0 }, ..full };
        check(batch, UseSample::default(), Some(Resource::Pause));
        let inside = |i: u64| TierSample { active: 3.0, ..silent(i) };
        check(inside, UseSample::default(), Some(Resource::Pause));
        let unread = |i: u64| TierSample { waiting: 28.0, ..silent(i) };
        check(unread, UseSample::default(), Some(Resource::Pause));
        // A request that is there for less than half of a window, in the mean, is on its way.
        let passing = |active: f64| move |i: u64| TierSample { active, ..silent(i) };
        check(passing(0.4), UseSample::default(), None);
        check(passing(0.6), UseSample::default(), Some(Resource::Pause));
    }

    #[test]
    fn connections_of_the_two_windows_before_it_stood_still_are_of_the_stall() {
        let full = TierSample { waiting: 25.0, backlog: 25.0, queued_max: 25.0, ..TierSample::default() };
        let usual = as_usual();
        // More than were asked on came in these two windows.
        let came_in = |windows: [u64; 2]| {
            let pick = |i: u64| match i {
                40..50 => full,
                _ if windows.contains(&i) => TierSample { accepts: 58.0, ..usual },
                _ => TierSample { accepts: 50.0, ..usual },
            };
            let tier = Series { first: 0, values: (0..60).map(|i| Some(pick(i))).collect() };
            let used = Series { first: 0, values: (0..60).map(|_| Some(UseSample::default())).collect() };
            episodes(&tier, &used, None, None, 40, &Thresholds::default()).len()
        };
        assert_eq!(came_in([38, 39]), 0, "nothing was asked on them: nothing stands still");
        assert_eq!(came_in([36, 37]), 1, "what came before is of another time");
    }

    /// Fails where what all that waited need when a lock is free hides the lock, or where a tier that is short of CPU from its first window on,
    /// or for all but three, is told to stand.
    #[test]
    fn a_lock_after_which_cpu_is_short_is_a_lock() {
        let found = |idle: std::ops::Range<u64>| {
            let usual = as_usual();
            let busy = UseSample { busy: 0.3, wait: 0.1, ..UseSample::default() };
            let short = UseSample { busy: 0.3, wait: 20.0, ..busy };
            let pick = |i: u64| match i {
                _ if !(40..80).contains(&i) => (usual, busy),
                _ if idle.contains(&i) => (locked(i - 40), UseSample::default()),
                _ => (locked(i - 40), short),
            };
            let tier = Series { first: 0, values: (0..90).map(|i| Some(pick(i).0)).collect() };
            let used = Series { first: 0, values: (0..90).map(|i| Some(pick(i).1)).collect() };
            let found = episodes(&tier, &used, None, None, 40, &Thresholds::default());
            found.iter().map(|e| (e.resource, e.first, e.last)).collect::<Vec<_>>()
        };
        assert_eq!(found(40..50), [(Resource::Lock, 40, 49)]);
        assert_eq!(found(42..46), [(Resource::Lock, 42, 45)]);
        assert_eq!(found(42..45), []);
        assert_eq!(found(40..40), []);
        assert_eq!(found(40..61), [(Resource::Lock, 40, 79)], "not short for half of it");
    }

    #[test]
    fn who_reads_many_more_requests_and_works_is_not_held_up() {
        let reads = |received: f64| {
            move |i| TierSample {
                received,
                active: 50.0 * (i + 1) as f64,
                queued_max: 50.0 * (i + 1) as f64,
                ..TierSample::default()
            }
        };
        let works = UseSample { busy: 0.5, ..UseSample::default() };
        check(reads(250.0), works, None);
        check(reads(130.0), works, None);
        check(reads(60.0), works, Some(Resource::Lock));
        check(reads(250.0), UseSample::default(), Some(Resource::Lock));
    }

    #[test]
    fn a_server_of_a_request_in_a_second_or_three_cannot_fall_silent() {
        // Windows with an answer of `n` each; the median needs one in every second of them to have a rate at all.
        let of = |rate: f64| {
            let usual = TierSample {
                answered: rate,
                received: rate,
                active: 1.0,
                queued_max: 1.0,
                ..TierSample::default()
            };
            let silent = TierSample { waiting: 20.0, queued_max: 21.0, ..TierSample::default() };
            let pick = |i: u64| if (40..50).contains(&i) { silent } else { usual };
            let tier = Series { first: 0, values: (0..60).map(|i| Some(pick(i))).collect() };
            let used = Series { first: 0, values: (0..60).map(|_| Some(UseSample::default())).collect() };
            episodes(&tier, &used, None, None, 40, &Thresholds::default()).len()
        };
        assert_eq!(of(0.4), 0, "8 a second");
        assert_eq!(of(0.75), 1, "15 a second");
    }
}

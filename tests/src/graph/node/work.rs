//! What a request costs a service, which of its calls it makes, whether one may be made at all, and whether one that failed may be tried again. Knows
//! no runtime.

use crate::graph::part::{CallPart, Part};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks at the thread's own clock, which is a system call.
const SPINS: u32 = 50;
/// One retry, in the unit of budgets.
const RETRY: u64 = 1_000;
/// Retries that a budget saves up at most.
const SAVED_MAX: u64 = 10 * RETRY;

/// So many failures one after the other open a circuit breaker, which lets no call through for so long.
const BREAKS_AFTER: u32 = 5;
const BROKEN_FOR: Duration = Duration::from_secs(1);

/// A circuit breaker of one call (M. Nygard, "Release It!", 2007). When its time is over it lets calls through again, and opens at the next failure.
#[derive(Debug, Default)]
struct Breaker {
    failed: u32,
    open_until: Option<Instant>,
}

/// The work of one service.
#[derive(Debug)]
pub(super) struct Work {
    /// Its part.
    pub(super) part: Part,
    percent: AtomicU32,
    begun: AtomicU64,
    budgets: Vec<AtomicU64>,
    breakers: Vec<Mutex<Breaker>>,
}

impl Work {
    pub(super) fn new(part: Part) -> Self {
        let budgets = part.calls.iter().map(|_| AtomicU64::new(RETRY)).collect();
        let breakers = part.calls.iter().map(|_| Mutex::default()).collect();
        Self { part, percent: AtomicU32::new(100), begun: AtomicU64::new(0), budgets, breakers }
    }

    /// From here on a request takes so much of its usual CPU.
    pub(super) fn set_percent(&self, percent: u32) {
        self.percent.store(percent, Ordering::Relaxed);
    }

    /// Takes CPU and memory for one request; which one it is, counted from 1.
    pub(super) fn request(&self) -> u64 {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        if self.part.allocate_bytes > 0 {
            black_box(vec![1_u8; self.part.allocate_bytes as usize]);
        }
        spin(u64::from(self.part.cpu_us) * u64::from(self.percent.load(Ordering::Relaxed)) / 100);
        number
    }

    /// Whether the request of this number makes that call.
    pub(super) fn makes(&self, index: usize, number: u64) -> bool {
        // Calls of the same share are not all made by the same requests.
        makes(&self.part.calls[index], number + 37 * index as u64)
    }

    /// Whether a call may be made now.
    pub(super) fn may_call(&self, index: usize) -> bool {
        !self.part.calls[index].breaks
            || self.breaker(index, |breaker| breaker.open_until.is_none_or(|until| until <= Instant::now()))
    }

    /// A call, or one more try of it, has ended.
    pub(super) fn ended(&self, index: usize, is_answered: bool) {
        if self.part.calls[index].breaks {
            self.breaker(index, |breaker| {
                breaker.failed = if is_answered { 0 } else { breaker.failed + 1 };
                breaker.open_until = (breaker.failed >= BREAKS_AFTER).then(|| Instant::now() + BROKEN_FOR);
            });
        }
    }

    fn breaker<T>(&self, index: usize, does: impl FnOnce(&mut Breaker) -> T) -> T {
        does(&mut self.breakers[index].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call begins: it adds to what may be tried again.
    pub(super) fn called(&self, index: usize) {
        if let Some(percent) = self.part.calls[index].budget_percent {
            let more = RETRY * u64::from(percent) / 100;
            let _ = self.budgets[index].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
                Some((saved + more).min(SAVED_MAX))
            });
        }
    }

    /// Whether a call that failed so often before may be tried once more; then that is taken from its budget.
    pub(super) fn may_retry(&self, index: usize, failed: u32) -> bool {
        let call = &self.part.calls[index];
        if failed > call.retries {
            return false;
        }
        call.budget_percent.is_none()
            || self.budgets[index]
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(RETRY))
                .is_ok()
    }
}

fn makes(call: &CallPart, number: u64) -> bool {
    let share = u64::from(call.share_percent);
    number * share / 100 != number.saturating_sub(1) * share / 100
}

/// CPU that this thread has used, ns.
fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one struct that lives here; this clock is there since 2.6.12.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Takes so much CPU of this thread, however long that takes.
fn spin(us: u64) {
    let end = thread_cpu_ns() + us * 1_000;
    while thread_cpu_ns() < end {
        for _ in 0..SPINS {
            spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::part::{Protocol, Runtime};

    fn work(share_percent: u32, retries: u32, budget_percent: Option<u32>) -> Work {
        let here = "127.0.0.1:1".parse().unwrap();
        let call = CallPart {
            to: here,
            protocol: Protocol::Http,
            share_percent,
            pool: 1,
            timeout_ms: 1,
            retries,
            budget_percent,
            breaks: false,
        };
        Work::new(Part {
            listen: here,
            runtime: Runtime::Threads,
            workers: 1,
            backlog: 1,
            cpu_us: 2_000,
            sleep_us: 0,
            allocate_bytes: 10,
            locks: false,
            resolves: false,
            calls: vec![call],
        })
    }

    #[test]
    fn a_share_of_requests_makes_a_call() {
        for share in [0, 1, 30, 50, 99, 100] {
            let work = work(share, 0, None);
            let made = (1..=1_000).filter(|number| work.makes(0, *number)).count();
            assert_eq!(made, 10 * share as usize);
        }
    }

    #[test]
    fn a_budget_bounds_what_is_tried_again_and_without_one_only_the_number_does() {
        let tried = |work: &Work| {
            (0..100)
                .filter(|_| {
                    work.called(0);
                    work.may_retry(0, 1)
                })
                .count()
        };
        assert_eq!(tried(&work(100, 2, None)), 100);
        assert_eq!(tried(&work(100, 2, Some(10))), 11, "ten of a hundred, and one to begin with");
        assert!(!work(100, 2, None).may_retry(0, 3));
        assert!(!work(100, 0, None).may_retry(0, 1));
    }

    #[test]
    fn a_breaker_opens_after_failures_in_a_row_and_an_answer_closes_it() {
        let mut work = work(100, 0, None);
        for _ in 0..2 * BREAKS_AFTER {
            work.ended(0, false);
        }
        assert!(work.may_call(0), "without one calls go on");
        work.part.calls[0].breaks = true;
        for n in 1..BREAKS_AFTER {
            work.ended(0, false);
            assert!(work.may_call(0), "after {n}");
        }
        work.ended(0, true);
        for _ in 0..BREAKS_AFTER {
            assert!(work.may_call(0));
            work.ended(0, false);
        }
        assert!(!work.may_call(0));
        // Its time is over: the next failure opens it again, and an answer closes it.
        let over = |work: &Work| work.breaker(0, |breaker| breaker.open_until = Some(Instant::now()));
        over(&work);
        assert!(work.may_call(0));
        work.ended(0, false);
        assert!(!work.may_call(0));
        over(&work);
        work.ended(0, true);
        work.ended(0, false);
        assert!(work.may_call(0));
    }

    #[test]
    fn a_request_takes_its_cpu_and_more_while_it_is_heavier() {
        let work = work(0, 0, None);
        let of = |percent| {
            work.set_percent(percent);
            let before = thread_cpu_ns();
            work.request();
            thread_cpu_ns() - before
        };
        // An interrupt's time is booked on whoever it interrupts: of many the quickest had none.
        let plain: Vec<u64> = (0..20).map(|_| of(100)).collect();
        assert!(plain.iter().all(|ns| *ns >= 2_000_000), "{plain:?}");
        assert!(plain.iter().any(|ns| *ns < 6_000_000), "{plain:?}");
        assert!(of(400) >= 8_000_000);
    }
}

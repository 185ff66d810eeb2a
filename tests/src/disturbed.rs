//! Experiments on a machine that others use too: it may be taken away in the very seconds of one, and then drops where nothing should.
//! Owns the measurement of that and how often an experiment is made; what it must show is its own. Uses anyhow and nothing of ours,
//! because the agent's tests include this file.

use anyhow::{Context, Result};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For queues, retries and incidents of the one before to end.
const BETWEEN: Duration = Duration::from_secs(5);
/// Between two looks at the clock. Short against what matters, long enough to cost nothing.
const TICK: Duration = Duration::from_millis(5);
/// Ticks between two looks at what was stolen.
const STEAL_TICKS: u32 = 100;
/// A timer that no load of this machine's own can hold back was so late: one window of the agent.
const LATE: Duration = Duration::from_millis(50);
/// The hypervisor gave so much of all CPUs to others, over the whole experiment …
const STOLEN_RATIO: f64 = 0.05;
/// … or in some second of it: the lab's queues hold 280 ms of arrivals.
const STOLEN_RATIO_OF_A_SECOND: f64 = 0.2;

/// How often an experiment is made at most: each time but the first because the machine was measured to be taken away in the one before. Such
/// spells last for minutes, and one that ends takes two with it.
const TIMES: u32 = 3;
/// The next time begins when the machine is given again, or after so long.
const BACK_WITHIN: Duration = Duration::from_secs(120);
/// It is asked by using all CPUs for so long: whoever wants no CPU is refused none.
const ASKED_FOR: Duration = Duration::from_secs(2);

/// What an experiment's time was like, by the measurement's own timers and the hypervisor's account.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Taken {
    /// Share of all CPU time that was stolen.
    pub stolen_ratio: f64,
    /// The same of the worst second.
    pub stolen_ratio_of_a_second: f64,
    /// How late the latest timer was; `None` where this process may not have a timer that its own load does not delay.
    pub late: Option<Duration>,
}

impl Taken {
    /// Whether the machine was taken away.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.stolen_ratio >= STOLEN_RATIO
            || self.stolen_ratio_of_a_second >= STOLEN_RATIO_OF_A_SECOND
            || self.late.is_some_and(|late| late >= LATE)
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, second) = (100.0 * self.stolen_ratio, 100.0 * self.stolen_ratio_of_a_second);
        write!(f, "{all:.1} % of the CPUs stolen, {second:.1} % in the worst second, ")?;
        match self.late {
            Some(late) => write!(f, "a timer {} ms late at most", late.as_millis()),
            None => write!(f, "no timer of its own"),
        }
    }
}

/// CPU time of the whole machine, in ticks of the kernel's account.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    all: u64,
    stolen: u64,
}

impl Account {
    fn read() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// proc(5): user, nice, system, idle, iowait, irq, softirq, steal; what guests used is in the first two.
    fn parse(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        let values: Vec<u64> =
            line.split_ascii_whitespace().skip(1).take(8).filter_map(|v| v.parse().ok()).collect();
        Self { all: values.iter().sum(), stolen: values.get(7).copied().unwrap_or(0) }
    }

    fn stolen_ratio_since(&self, earlier: &Self) -> f64 {
        let all = self.all.saturating_sub(earlier.all);
        self.stolen.saturating_sub(earlier.stolen) as f64 / all.max(1) as f64
    }
}

/// A measurement under way: one thread for each CPU, of real-time priority, so that only what takes the CPU itself away delays it.
#[derive(Debug)]
pub struct Watch {
    begun: Account,
    stop: Arc<AtomicBool>,
    late_ns: Arc<AtomicU64>,
    // Parts of a million, because there is no atomic float.
    stolen_ppm_of_a_second: Arc<AtomicU64>,
    timers: Vec<JoinHandle<bool>>,
}

impl Watch {
    /// Begins to measure.
    #[must_use]
    pub fn start() -> Self {
        let (stop, late_ns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let stolen_ppm_of_a_second = Arc::new(AtomicU64::new(0));
        let timers = own_cpus()
            .into_iter()
            .enumerate()
            .filter_map(|(nth, cpu)| {
                let (stop, late_ns) = (Arc::clone(&stop), Arc::clone(&late_ns));
                let stolen = (nth == 0).then(|| Arc::clone(&stolen_ppm_of_a_second));
                let run = move || timer(cpu, &stop, &late_ns, stolen.as_deref());
                // One timer less measures a little less.
                std::thread::Builder::new().name("late-timer".into()).spawn(run).ok()
            })
            .collect();
        Self { begun: Account::read(), stop, late_ns, stolen_ppm_of_a_second, timers }
    }

    /// What was measured since.
    #[must_use]
    pub fn stop(mut self) -> Taken {
        self.stop.store(true, Ordering::Relaxed);
        let stolen_ratio = Account::read().stolen_ratio_since(&self.begun);
        // Without the priority the experiment's own load makes a timer late, which says nothing.
        let timers: Vec<bool> = self.timers.drain(..).map(|timer| timer.join().unwrap_or(false)).collect();
        let real_time = timers.into_iter().all(|real_time| real_time);
        Taken {
            stolen_ratio,
            stolen_ratio_of_a_second: self.stolen_ppm_of_a_second.load(Ordering::Relaxed) as f64 / 1e6,
            late: real_time.then(|| Duration::from_nanos(self.late_ns.load(Ordering::Relaxed))),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Sleeps again and again, and notes the longest it slept too long; whether it had real-time priority.
fn timer(cpu: usize, stop: &AtomicBool, late_ns: &AtomicU64, stolen_ppm: Option<&AtomicU64>) -> bool {
    // SAFETY: an all-zero set is a valid one; both calls read plain structs that live through them and change this thread only.
    let real_time = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        let priority = libc::sched_param { sched_priority: 1 };
        // SCHED_RESET_ON_FORK is not needed: this thread starts nobody.
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) == 0
    };
    let (mut before, mut earlier, mut ticks) = (Account::read(), Account::read(), 0);
    while !stop.load(Ordering::Relaxed) {
        let slept = Instant::now();
        std::thread::sleep(TICK);
        let late = slept.elapsed().saturating_sub(TICK);
        late_ns.fetch_max(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        ticks += 1;
        if let Some(stolen_ppm) = stolen_ppm.filter(|_| ticks % STEAL_TICKS == 0) {
            // Over the last two periods: a second, whenever it began.
            let now = Account::read();
            let ratio = now.stolen_ratio_since(&earlier);
            if ticks > STEAL_TICKS {
                stolen_ppm.fetch_max((ratio * 1e6) as u64, Ordering::Relaxed);
            }
            (earlier, before) = (before, now);
        }
    }
    real_time
}

/// CPUs that this process may run on.
fn own_cpus() -> Vec<usize> {
    // SAFETY: an all-zero set is a valid one; the call writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// Makes an experiment; once more, and a third time, if it fails or panics and the machine was taken away meanwhile, by this measurement and
/// by nothing else.
pub fn experiment<T>(name: &str, make: impl FnMut() -> Result<T>) -> Result<T> {
    let between = || {
        std::thread::sleep(BETWEEN);
        let waited = wait_until_back();
        println!("{name}: the machine was asked for again for {:.1} s", waited.as_secs_f64());
    };
    measured(name, between, Watch::start, Watch::stop, make)
}

/// Waits until all CPUs are given when they are wanted, and timers come in time; how long that took.
fn wait_until_back() -> Duration {
    let begun = Instant::now();
    while begun.elapsed() < BACK_WITHIN {
        let watch = Watch::start();
        let until = Instant::now() + ASKED_FOR;
        std::thread::scope(|scope| {
            for _ in own_cpus() {
                scope.spawn(|| while Instant::now() < until {});
            }
        });
        if !watch.stop().is_taken() {
            break;
        }
        std::thread::sleep(BETWEEN);
    }
    begun.elapsed()
}

fn measured<T, W>(
    name: &str,
    mut between: impl FnMut(),
    start: impl Fn() -> W,
    stop: impl Fn(W) -> Taken,
    mut make: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut time = 1;
    loop {
        let watch = start();
        let outcome = catch_unwind(AssertUnwindSafe(&mut make));
        let taken = stop(watch);
        if let Ok(Ok(shown)) = outcome {
            return Ok(shown);
        }
        if time == TIMES || !taken.is_taken() {
            let was = if taken.is_taken() { "taken away each time" } else { "there all the time" };
            println!("{name} failed, time {time}, and the machine was {was}: {taken}");
            return match outcome {
                Ok(result) => result.with_context(|| format!("{name}, time {time} ({taken})")),
                Err(panic) => std::panic::resume_unwind(panic),
            };
        }
        if let Ok(Err(error)) = outcome {
            println!("{name} failed: {error:#}");
        }
        println!("{name}: the machine was taken away meanwhile ({taken}): once more");
        between();
        time += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::cell::Cell;

    const QUIET: Taken =
        Taken { stolen_ratio: 0.01, stolen_ratio_of_a_second: 0.1, late: Some(Duration::from_millis(20)) };

    /// How often an experiment that fails `failures` times is made, and whether it succeeded in the end.
    fn made(taken: Taken, failures: u32) -> (u32, bool) {
        let mut times = 0;
        let make = || {
            times += 1;
            if times <= failures { bail!("no") } else { Ok(()) }
        };
        let succeeded = measured("it", || (), || (), |()| taken, make).is_ok();
        (times, succeeded)
    }

    #[test]
    fn only_what_the_machine_was_taken_from_is_made_again_and_twice_at_most() {
        let stolen = Taken { stolen_ratio: 0.06, ..QUIET };
        assert_eq!(made(stolen, 0), (1, true));
        assert_eq!(made(stolen, 1), (2, true));
        assert_eq!(made(stolen, 2), (3, true));
        assert_eq!(made(stolen, 3), (3, false));
        assert_eq!(made(QUIET, 1), (1, false));
        assert_eq!(made(Taken { stolen_ratio_of_a_second: 0.25, ..QUIET }, 1), (2, true));
        assert_eq!(made(Taken { late: Some(Duration::from_millis(60)), ..QUIET }, 1), (2, true));
        assert_eq!(made(Taken { late: None, ..QUIET }, 1), (1, false));
    }

    #[test]
    fn a_later_time_is_measured_by_itself() {
        let (times, watches) = (Cell::new(0), Cell::new(0));
        let stolen = Taken { stolen_ratio: 0.06, ..QUIET };
        let stop = |()| {
            watches.set(watches.get() + 1);
            if watches.get() == 1 { stolen } else { QUIET }
        };
        let fails = || -> Result<()> {
            times.set(times.get() + 1);
            bail!("no")
        };
        assert!(measured("it", || (), || (), stop, fails).is_err());
        assert_eq!(times.get(), 2, "the second time the machine was there");
    }

    #[test]
    fn a_panic_on_a_quiet_machine_is_passed_on() {
        let panics = || -> Result<()> { panic!("as it was") };
        let passed = catch_unwind(|| measured("it", || (), || (), |()| QUIET, panics));
        assert_eq!(passed.unwrap_err().downcast_ref::<&str>(), Some(&"as it was"));
    }

    #[test]
    fn the_account_is_read_as_the_kernel_writes_it() {
        let before = Account::parse("cpu  100 0 50 800 10 0 5 35 0 0\ncpu0 1 2 3\n");
        let after = Account::parse("cpu  150 0 60 820 10 0 5 55 7 0\n");
        assert_eq!((before.all, before.stolen), (1000, 35));
        assert!((after.stolen_ratio_since(&before) - 0.2).abs() < 1e-9);
        assert!(Account::read().all > 0);
        assert!(Account::parse("").stolen_ratio_since(&Account::default()).abs() < 1e-9);
    }

    #[test]
    fn a_watch_measures_and_ends() {
        let watch = Watch::start();
        std::thread::sleep(Duration::from_millis(50));
        let taken = watch.stop();
        assert!((0.0..=1.0).contains(&taken.stolen_ratio), "{taken}");
    }
}

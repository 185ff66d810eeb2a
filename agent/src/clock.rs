//! The only clock of the agent: CLOCK_MONOTONIC, which the kernel programs stamp with, plus the epoch offset that cuts windows
//! at the same instants on every host. Owns the offset and its corrections; knows no window ring and no network.

use crate::window::{WINDOW_NS, WindowIndex};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The offset is corrected when it is off by more than this. Smaller differences are left alone, because each correction cuts
/// one window short or long on this host.
pub const CORRECTION_THRESHOLD_NS: u64 = 1_000_000;

/// Pairs of readings that one measurement takes. A preempted pair is off by the preemption; the median is not.
const PAIRS: usize = 7;

/// The threshold of a clock that drifts on purpose: small steps, so that they look like the smooth drift of an oscillator.
const DRIFTING_THRESHOLD_NS: u64 = 100_000;

/// Epoch time in ns by this host's clock. Copies share the offset.
#[derive(Debug, Clone)]
pub struct Clock {
    offset_ns: Arc<AtomicI64>,
    /// Of the offset, what the drift made on purpose added so far.
    drifted_ns: Arc<AtomicI64>,
    shift_ns: i64,
    drift_ppm: i64,
    since_ns: u64,
    /// Tests of the sampler move time by hand: then this is the epoch time itself.
    #[cfg(test)]
    manual_unix_ns: Option<Arc<AtomicI64>>,
}

/// What a look at the system clock found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Correction {
    /// New offset: epoch minus CLOCK_MONOTONIC.
    pub offset_ns: i64,
    /// How far it moved.
    pub moved_ns: i64,
}

impl Clock {
    /// Measures the offset. `shift_ns` moves this agent's epoch on purpose: for tests of clock estimation.
    pub fn new(shift_ns: i64) -> Self {
        Self {
            offset_ns: Arc::new(AtomicI64::new(measured_offset_ns().saturating_add(shift_ns))),
            drifted_ns: Arc::default(),
            shift_ns,
            drift_ppm: 0,
            since_ns: monotonic_ns(),
            #[cfg(test)]
            manual_unix_ns: None,
        }
    }

    /// The same clock running fast (or, below zero, slow) by this much from now on: for tests of clock estimation.
    #[must_use]
    pub fn drifting(self, drift_ppm: i64) -> Self {
        Self { drift_ppm, ..self }
    }

    /// A clock that stands still until the test moves it.
    #[cfg(test)]
    pub(crate) fn manual(unix_ns: Arc<AtomicI64>) -> Self {
        Self { manual_unix_ns: Some(unix_ns), ..Self::new(0) }
    }

    /// Epoch minus CLOCK_MONOTONIC.
    pub fn epoch_offset_ns(&self) -> i64 {
        self.offset_ns.load(Ordering::Acquire)
    }

    /// Epoch minus CLOCK_MONOTONIC, as somebody sees it who does not know of a drift made on purpose: a real drift is in both clocks.
    pub fn said_epoch_offset_ns(&self) -> i64 {
        self.epoch_offset_ns().saturating_sub(self.drifted_ns.load(Ordering::Acquire))
    }

    /// Now, in ns since the epoch.
    pub fn unix_ns(&self) -> u64 {
        #[cfg(test)]
        if let Some(manual) = &self.manual_unix_ns {
            return manual.load(Ordering::Acquire).unsigned_abs();
        }
        let now = i64::try_from(monotonic_ns()).unwrap_or(i64::MAX);
        now.saturating_add(self.epoch_offset_ns()).max(0).unsigned_abs()
    }

    /// The window that is open now.
    pub fn window(&self) -> WindowIndex {
        WindowIndex(self.unix_ns() / WINDOW_NS)
    }

    /// Measures again; moves the offset when it drifted by more than [`CORRECTION_THRESHOLD_NS`].
    pub fn correct(&self) -> Option<Correction> {
        let elapsed_us = (monotonic_ns().saturating_sub(self.since_ns) / 1000).cast_signed();
        let drifted_ns = elapsed_us.saturating_mul(self.drift_ppm) / 1000;
        let measured = measured_offset_ns().saturating_add(self.shift_ns).saturating_add(drifted_ns);
        let threshold = if self.drift_ppm == 0 { CORRECTION_THRESHOLD_NS } else { DRIFTING_THRESHOLD_NS };
        let correction = needed(self.epoch_offset_ns(), measured, threshold)?;
        self.drifted_ns.store(drifted_ns, Ordering::Release);
        self.offset_ns.store(correction.offset_ns, Ordering::Release);
        Some(correction)
    }
}

/// The correction from the offset in use to the one measured, if it is worth one.
fn needed(current_ns: i64, measured_ns: i64, threshold_ns: u64) -> Option<Correction> {
    let moved_ns = measured_ns.saturating_sub(current_ns);
    (moved_ns.unsigned_abs() > threshold_ns).then_some(Correction { offset_ns: measured_ns, moved_ns })
}

/// CLOCK_MONOTONIC, as `bpf_ktime_get_ns` reads it.
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    (t.tv_sec.max(0).unsigned_abs())
        .saturating_mul(1_000_000_000)
        .saturating_add(t.tv_nsec.max(0).unsigned_abs())
}

fn measured_offset_ns() -> i64 {
    let mut offsets = [0_i64; PAIRS];
    for offset in &mut offsets {
        let before = read(ClockId::Monotonic);
        let epoch = read(ClockId::Realtime);
        let after = read(ClockId::Monotonic);
        let middle = before + (after - before) / 2;
        *offset = i64::try_from(epoch)
            .unwrap_or(i64::MAX)
            .saturating_sub(i64::try_from(middle).unwrap_or(i64::MAX));
    }
    offsets.sort_unstable();
    offsets[PAIRS / 2]
}

/// CPU time that this process used so far, in ns.
pub fn process_cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// CPU time that the calling thread used so far, in ns.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// What comes of `work`, and the CPU time that it took of the calling thread, in ns.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before_ns = thread_cpu_ns();
    let result = work();
    (result, thread_cpu_ns().saturating_sub(before_ns))
}

/// When something dear may be done again: it rests so many times as long as it took of a CPU. Moments are of any one clock, in ns.
#[derive(Debug, Default)]
pub struct Pace {
    due_ns: u64,
}

impl Pace {
    /// Whether it has rested.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// It took `cpu_ns`, and rests `rests` times as long from `now_ns` on.
    pub fn took(&mut self, now_ns: u64, cpu_ns: u64, rests: u64) {
        self.due_ns = now_ns.saturating_add(cpu_ns.saturating_mul(rests));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dear_rests_so_many_times_as_long_as_it_took_in_whole_windows() {
        let rest = |cpu_ns| {
            let mut pace = Pace::default();
            pace.took(0, cpu_ns, 50);
            (0..).find(|window| pace.is_due(window * WINDOW_NS)).unwrap()
        };
        assert_eq!([0, 1_000_000, 1_000_001, 400_000_000].map(rest), [0, 1, 2, 400]);
    }

    #[test]
    fn corrects_above_one_millisecond_only() {
        let at = |measured| needed(1_000, measured, CORRECTION_THRESHOLD_NS).map(|c| c.moved_ns);
        assert_eq!(at(1_000), None);
        assert_eq!(at(1_001_000), None);
        assert_eq!(at(1_001_001), Some(1_000_001));
        assert_eq!(at(-999_001), Some(-1_000_001));
        assert_eq!(
            needed(5, i64::MIN, CORRECTION_THRESHOLD_NS).map(|c| c.offset_ns),
            Some(i64::MIN),
            "a step to nonsense does not overflow"
        );
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "compares with the system clock")]
    fn agrees_with_the_system_clock() {
        let clock = Clock::new(0);
        let system = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let system_ns = u64::try_from(system.as_nanos()).unwrap();
        assert!(clock.unix_ns().abs_diff(system_ns) < 50_000_000, "{} {system_ns}", clock.unix_ns());
        assert_eq!(clock.correct(), None, "nothing drifted meanwhile");
    }

    #[test]
    fn a_shift_moves_the_epoch_and_is_no_drift() {
        let plain = Clock::new(0);
        let shifted = Clock::new(-250_000_000);
        let ahead = plain.epoch_offset_ns() - shifted.epoch_offset_ns();
        assert!((249_000_000..251_000_000).contains(&ahead), "{ahead}");
        assert_eq!(shifted.correct(), None);
    }

    #[test]
    fn a_drift_on_purpose_is_not_said_to_be_a_clock_that_was_set() {
        // A million ppm: as fast again as time.
        let clock = Clock::new(0).drifting(1_000_000);
        let (began, said) = (clock.epoch_offset_ns(), clock.said_epoch_offset_ns());
        while clock.epoch_offset_ns() - began < 2_000_000 {
            clock.correct();
            std::thread::yield_now();
        }
        assert!((clock.said_epoch_offset_ns() - said).abs() < 1_000_000, "only the system clock's own steps");
    }
}

//! The one loop that drains the signals: a thread of its own, woken a few milliseconds after each window's end and whenever a
//! drop event waits. Owns which windows are drained, late or lost; knows neither names nor the wire.
//!
//! A paused or starved agent finds several closed windows when it runs again. It drains each of them, in order and once; what
//! the kernel logs have overwritten meanwhile is counted as lost. Normal priority on purpose: the watcher must not preempt what
//! it watches, and the logs are there so that it need not.

use crate::clock::{Clock, timed};
use crate::signal::{Coverage, Loss, SignalKind, SignalSource};
use crate::window::{ListenDrop, WINDOW_NS, Window, WindowIndex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// When a window is drained after its end: late enough for events that were stamped inside it to be written.
const SETTLE_NS: u64 = 6_000_000;

/// Windows that the kernel logs keep at most.
const RING_WINDOWS: u64 = 64;

/// Slots next to the open window that are left alone, since the open one may move on while an old one is read.
const RING_MARGIN: u64 = 2;

/// Windows between two looks at the system clock: 1 s.
const CLOCK_PERIOD_WINDOWS: u64 = 20;

/// Why a signal whose source rests or was detached is not covered.
const SHED: &str = "shed: the agent was above its CPU budget (cpu_budget_ratio)";

/// From a source's first window of work after a rest to its first one that is told, a second: what had begun before is over by then.
const REVIVED_WINDOWS: u64 = 20;

/// Windows between two looks at the counters of losses: a second.
const LOSSES_READ_WINDOWS: u64 = 20;

/// Where windows and drop events go.
pub trait Sink: Send {
    /// A closed window. Windows come in order.
    fn window(&mut self, window: Window);
    /// `windows` were lost right before the next one.
    fn lost(&mut self, windows: u64);
    /// Drops that were seen just now.
    fn drops(&mut self, drops: &[ListenDrop]);
    /// No window will come any more.
    fn finish(&mut self);
    /// Whether the sampler may stop by itself.
    fn done(&self) -> bool {
        false
    }
}

/// What the sampler counts, for status messages.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Counters {
    pub windows: AtomicU64,
    pub windows_lost: AtomicU64,
    pub windows_late: AtomicU64,
    pub ticks_missed: AtomicU64,
    pub clock_corrections: AtomicU64,
    /// Of processes beside the agent's own, those that are gone, too.
    pub helpers_cpu_ns: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
enum Command {
    Shed(&'static str),
    TakeBack(&'static str),
}

/// Asks a running sampler to stop or to give up signals; shared with other threads.
#[derive(Debug, Clone)]
pub struct Handle {
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    commands: Arc<Mutex<Vec<Command>>>,
    cpu_ns: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    disabled: Arc<Mutex<BTreeSet<SignalKind>>>,
    losses: Arc<Mutex<Vec<Loss>>>,
    coverage: Arc<Mutex<Vec<Coverage>>>,
    /// Counters of the sampler.
    pub counters: Arc<Counters>,
}

impl Handle {
    /// A handle for a sampler that is not made yet.
    pub fn new(disabled: BTreeSet<SignalKind>) -> std::io::Result<Self> {
        Ok(Self {
            wake: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            stop: Arc::default(),
            commands: Arc::default(),
            cpu_ns: Arc::default(),
            disabled: Arc::new(Mutex::new(whole_sections(disabled))),
            losses: Arc::default(),
            coverage: Arc::default(),
            counters: Arc::default(),
        })
    }

    /// The sampler drains what has closed, tells its sink to finish, and returns.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // It fails only when the counter is full, and then the sampler is awake anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Lets a source rest from the next tick on; one that cannot is detached, for good.
    pub fn shed(&self, source: &'static str) {
        locked(&self.commands).push(Command::Shed(source));
    }

    /// Lets a source that rests work again from the next tick on. Its windows begin a second later.
    pub fn take_back(&self, source: &'static str) {
        locked(&self.commands).push(Command::TakeBack(source));
    }

    /// CPU time that was spent in draining each source that is attached, and by its helper, since the agent began.
    pub fn cpu_ns(&self) -> BTreeMap<&'static str, u64> {
        locked(&self.cpu_ns).clone()
    }

    /// Signals that were measured until their source was shed.
    pub fn shed_signals(&self) -> Vec<SignalKind> {
        locked(&self.coverage).iter().filter(|c| c.reason == SHED).map(|c| c.signal).collect()
    }

    /// Leaves these signals out of the windows from the next tick on.
    pub fn disable(&self, signals: BTreeSet<SignalKind>) {
        *locked(&self.disabled) = whole_sections(signals);
    }

    /// What the sources could not keep, since the agent began.
    pub fn losses(&self) -> Vec<Loss> {
        locked(&self.losses).clone()
    }

    /// What the windows hold at present.
    pub fn coverage(&self) -> Vec<Coverage> {
        locked(&self.coverage).clone()
    }
}

/// Whether a source is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Works,
    /// From this window on.
    WorksFrom(WindowIndex),
    Rests,
}

struct Attached {
    source: Box<dyn SignalSource>,
    turn: Turn,
    /// Spent in draining it.
    cpu_ns: u64,
}

impl Attached {
    /// Whether it is drained for this window.
    fn serves(&mut self, window: WindowIndex) -> bool {
        if let Turn::WorksFrom(first) = self.turn
            && first <= window
        {
            self.source.skip_to(window);
            self.turn = Turn::Works;
        }
        self.turn == Turn::Works
    }

    fn coverage(&self) -> Vec<Coverage> {
        let coverage = self.source.coverage();
        if self.turn == Turn::Rests { shed(coverage) } else { coverage }
    }
}

/// The same signals, not covered.
fn shed(coverage: Vec<Coverage>) -> Vec<Coverage> {
    let not = |c| Coverage { covered: false, sampled: false, reason: SHED.to_owned(), ..c };
    coverage.into_iter().map(not).collect()
}

/// The loop and what it drains.
pub struct Sampler<S> {
    clock: Clock,
    sources: Vec<Attached>,
    unattached: Vec<Coverage>,
    sink: S,
    handle: Handle,
    next: Option<WindowIndex>,
    corrected: Option<(WindowIndex, WindowIndex)>,
    clock_read: WindowIndex,
}

impl<S> std::fmt::Debug for Sampler<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").field("next", &self.next).finish_non_exhaustive()
    }
}

impl<S: Sink> Sampler<S> {
    /// `unattached` is what is known of signals without a source.
    pub fn new(
        clock: Clock,
        sources: Vec<Box<dyn SignalSource>>,
        unattached: Vec<Coverage>,
        sink: S,
        handle: Handle,
    ) -> Self {
        let works = |source| Attached { source, turn: Turn::Works, cpu_ns: 0 };
        let sources = sources.into_iter().map(works).collect();
        let sampler = Self {
            clock_read: clock.window(),
            clock,
            sources,
            unattached,
            sink,
            handle,
            next: None,
            corrected: None,
        };
        sampler.publish_coverage();
        sampler
    }

    /// Runs until [`Handle::stop`], or until the sink is done. Returns the sink.
    pub fn run(mut self) -> S {
        loop {
            let now = self.clock.unix_ns();
            let due = self.next.map_or(now, |n| (n.0 + 1) * WINDOW_NS + SETTLE_NS);
            // Bounded, because the clock may be set back while we sleep.
            self.sleep(due.saturating_sub(now).min(2 * WINDOW_NS));
            self.tick();
            if self.handle.stop.load(Ordering::Acquire) || self.sink.done() {
                self.sink.finish();
                return self.sink;
            }
            self.apply_commands();
        }
    }

    /// Until something is told, a drop event waits, or the time is over.
    fn sleep(&self, longest_ns: u64) {
        let drop_events = self.sources.iter().filter_map(|s| s.source.drop_events_fd());
        let descriptors: Vec<BorrowedFd<'_>> =
            std::iter::once(self.handle.wake.as_fd()).chain(drop_events).collect();
        wait(&descriptors, longest_ns);
    }

    /// Tells drops, and drains every window that has closed and settled.
    pub fn tick(&mut self) {
        let open = self.clock.window().0;
        let mut next = self.begin_at(open);
        if open > next + 1 {
            let missed = open - next - 1;
            self.handle.counters.ticks_missed.fetch_add(missed, Ordering::Relaxed);
        }
        loop {
            // An alert does not wait for what there is to catch up with.
            self.drop_events();
            // Draining takes time, in which windows close or are overwritten: look at the clock before each.
            let now = self.clock.unix_ns();
            let open = now / WINDOW_NS;
            if now < (next + 1) * WINDOW_NS + SETTLE_NS {
                break;
            }
            let oldest = (open + RING_MARGIN).saturating_sub(RING_WINDOWS - 1);
            if next < oldest {
                self.skip(oldest - next, WindowIndex(oldest));
                next = oldest;
                continue;
            }
            self.drain(WindowIndex(next), open);
            next += 1;
        }
        self.next = Some(WindowIndex(next));
        // Last: what is over by the clock of before is told by it.
        self.correct_clock();
    }

    /// The first window to drain. At the start that is the one after the open one, which the signals saw only in part. When the
    /// clock went back by less than a ring, the kernel stretches its newest window until the time is reached again, and so
    /// does this loop; after a larger step it begins anew.
    fn begin_at(&mut self, open: u64) -> u64 {
        match self.next {
            Some(next) if next.0 <= open + RING_WINDOWS => next.0,
            Some(_) => {
                self.skip_to(WindowIndex(open + 1));
                open + 1
            }
            None => open + 1,
        }
    }

    fn skip(&mut self, lost: u64, first: WindowIndex) {
        tracing::warn!(
            lost,
            "windows were over before this agent got to run, and are not told; counted as lost"
        );
        self.skip_to(first);
        self.handle.counters.windows_lost.fetch_add(lost, Ordering::Relaxed);
        self.sink.lost(lost);
        self.next = Some(first);
    }

    fn skip_to(&mut self, first: WindowIndex) {
        for Attached { source, .. } in self.sources.iter_mut().filter(|s| s.turn == Turn::Works) {
            source.skip_to(first);
        }
    }

    fn drain(&mut self, index: WindowIndex, open: u64) {
        let late = open - index.0 > 1;
        let mut window = Window {
            index,
            late,
            clock_corrected: self.corrected.is_some_and(|(from, to)| (from..=to).contains(&index)),
            ..Window::default()
        };
        for attached in &mut self.sources {
            if attached.serves(index) {
                let ((), cpu_ns) = timed(|| attached.source.drain(&mut window));
                attached.cpu_ns += cpu_ns;
            }
        }
        let disabled = locked(&self.handle.disabled).clone();
        for signal in disabled {
            strip(&mut window, signal);
        }
        let counters = &self.handle.counters;
        counters.windows.fetch_add(1, Ordering::Relaxed);
        counters.windows_late.fetch_add(u64::from(late), Ordering::Relaxed);
        if index.0.is_multiple_of(LOSSES_READ_WINDOWS) {
            *locked(&self.handle.losses) = self.sources.iter().flat_map(|s| s.source.losses()).collect();
            let helpers_ns = self.sources.iter().map(|s| s.source.helper_cpu_ns()).sum::<u64>();
            // A source that was shed takes its helper along, and what that used was used.
            counters.helpers_cpu_ns.fetch_max(helpers_ns, Ordering::Relaxed);
            let spent = |s: &Attached| (s.source.name(), s.cpu_ns + s.source.helper_cpu_ns());
            *locked(&self.handle.cpu_ns) = self.sources.iter().map(spent).collect();
        }
        self.sink.window(window);
    }

    fn correct_clock(&mut self) {
        if self.clock.window().0.abs_diff(self.clock_read.0) < CLOCK_PERIOD_WINDOWS {
            return;
        }
        let before = self.clock.window();
        if let Some(correction) = self.clock.correct() {
            if self.clock.window().0 > before.0 + 1 {
                self.tell_closed(before);
            }
            for Attached { source, .. } in &mut self.sources {
                source.set_epoch_offset_ns(correction.offset_ns);
            }
            let after = self.clock.window();
            self.corrected = Some((before.min(after), before.max(after)));
            self.handle.counters.clock_corrections.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                moved_ns = correction.moved_ns,
                "the system clock moved against CLOCK_MONOTONIC; window boundaries follow it"
            );
            self.stepped(before, after);
        }
        self.clock_read = self.clock.window();
    }

    /// Windows that have closed since they were last looked for, by the boundaries of before: those that follow know nothing of them. A window that closed a
    /// moment ago may lack what a hook is just adding to it, which is less than all of it.
    fn tell_closed(&mut self, open: WindowIndex) {
        while let Some(next) = self.next.filter(|next| next.0 < open.0) {
            self.drain(next, open.0);
            self.next = Some(WindowIndex(next.0 + 1));
        }
    }

    /// The clock was put forward, or went on while the machine slept: the windows in between never were, and none of them was lost. What was
    /// closed before and not drained yet was.
    fn stepped(&mut self, before: WindowIndex, after: WindowIndex) {
        let Some(next) = self.next.filter(|_| after.0 > before.0 + 1) else { return };
        let first = WindowIndex(after.0 + 1);
        match before.0.saturating_sub(next.0) {
            0 => self.skip_to(first),
            lost => self.skip(lost, first),
        }
        self.next = Some(first);
    }

    fn drop_events(&mut self) {
        let mut drops = Vec::new();
        for Attached { source, .. } in &mut self.sources {
            source.take_drop_events(&mut drops);
        }
        if !drops.is_empty() {
            let read_unix_ns = self.clock.unix_ns();
            drops.iter_mut().for_each(|drop| drop.read_unix_ns = read_unix_ns);
            self.sink.drops(&drops);
        }
    }

    fn apply_commands(&mut self) {
        let commands = std::mem::take(&mut *locked(&self.handle.commands));
        for command in commands {
            let (Command::Shed(name) | Command::TakeBack(name)) = command;
            let Some(at) = self.sources.iter().position(|s| s.source.name() == name) else {
                continue;
            };
            let rests = matches!(command, Command::Shed(_));
            let attached = &mut self.sources[at];
            if rests == (attached.turn == Turn::Rests) {
                continue;
            }
            if attached.source.rest(rests) {
                let first = WindowIndex(self.clock.window().0 + REVIVED_WINDOWS);
                attached.turn = if rests { Turn::Rests } else { Turn::WorksFrom(first) };
            } else {
                self.detach(at);
            }
        }
        self.publish_coverage();
    }

    fn detach(&mut self, at: usize) {
        let Attached { source, .. } = self.sources.remove(at);
        self.unattached.extend(shed(source.coverage()));
    }

    fn publish_coverage(&self) {
        let disabled = locked(&self.handle.disabled);
        let mut coverage: Vec<Coverage> =
            self.sources.iter().flat_map(|s| s.coverage()).chain(self.unattached.iter().cloned()).collect();
        for c in &mut coverage {
            if disabled.contains(&c.signal) && c.covered {
                (c.covered, c.sampled) = (false, false);
                "disabled by configuration (disabled_signals)".clone_into(&mut c.reason);
            }
        }
        coverage.sort_by_key(|c| c.signal);
        *locked(&self.handle.coverage) = coverage;
    }
}

/// These values are plain data, whole at every instant: a thread that panicked while it held one does not spoil it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a signal's values out of a window.
fn strip(window: &mut Window, signal: SignalKind) {
    match signal {
        SignalKind::Cpu | SignalKind::RunQueue => {
            window.machine_cpu = None;
            window.tasks = None;
            window.stopped = None;
        }
        SignalKind::BlockIo => {
            window.io = None;
            window.devices = None;
        }
        SignalKind::Memory => window.memory = None,
        SignalKind::AcceptQueue => window.accept_queues = None,
        SignalKind::Requests => {
            window.requests = None;
            window.states = None;
            window.slow_requests.clear();
        }
        SignalKind::Calls => {
            window.calls = None;
            window.connections = None;
            window.lookups.clear();
            window.slow_requests.iter_mut().for_each(|request| request.calls = None);
        }
        SignalKind::Retransmits => window.retransmits = None,
        SignalKind::Throttling => window.throttled = None,
    }
}

/// CPU and run queue are one section of a window: without one of them there is neither.
fn whole_sections(mut signals: BTreeSet<SignalKind>) -> BTreeSet<SignalKind> {
    let pair = [SignalKind::Cpu, SignalKind::RunQueue];
    if pair.iter().any(|s| signals.contains(s)) {
        signals.extend(pair);
    }
    signals
}

/// Sleeps until a descriptor is readable, at most `longest_ns`. The first one is the wake-up eventfd, which is emptied.
fn wait(descriptors: &[BorrowedFd<'_>], longest_ns: u64) {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let longest = Timespec {
        tv_sec: i64::try_from(longest_ns / 1_000_000_000).unwrap_or(1),
        tv_nsec: i64::try_from(longest_ns % 1_000_000_000).unwrap_or(0),
    };
    // An error means an interruption, after which the caller looks at the clock and comes back.
    let _ = poll(&mut polled, Some(&longest));
    if let Some(wake) = polled.first().filter(|p| !p.revents().is_empty()) {
        // It does not block, and whatever it counted has been heard.
        let _ = rustix::io::read(wake, &mut [0_u8; 8]);
    }
}

#[cfg(test)]
mod tests;

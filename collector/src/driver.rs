//! The analysis at work: one thread that owns the pipeline, the only clock of the collector, and the queue between agents'
//! streams and the pipeline. Feeds inputs in arrival order and ticks, and hands what comes out to store, alerts and subscribers.
//! Knows no network and no file.

use crate::alert::latency::Moments;
use crate::outlet::Outlet;
use crate::recording::{Names, Taps};
use crate::session::Delivery;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailwater_analysis::Pipeline;
use tailwater_analysis::model::Input;
use tailwater_proto::v1::{Refusal, TraceRecord, trace_record};

/// Time between ticks.
pub const TICK: Duration = Duration::from_millis(25);
/// Work that may wait for the pipeline, all agents together.
pub const QUEUE_MAX: usize = 16_384;
/// How often topology and congestion points are shown anew.
const TOPOLOGY_EVERY_TICKS: u64 = 40;

/// The collector's clock: the one place that asks the system for the time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    stands_at_unix_ns: Option<u64>,
}

#[allow(clippy::disallowed_methods, reason = "this is the collector's clock")]
impl Clock {
    /// One whose Unix time stands still: the end of a recording.
    #[must_use]
    pub fn standing(at_unix_ns: u64) -> Self {
        Self { stands_at_unix_ns: Some(at_unix_ns) }
    }
    /// Unix time.
    #[must_use]
    pub fn unix_ns(self) -> u64 {
        if let Some(at) = self.stands_at_unix_ns {
            return at;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
    /// For measuring durations.
    #[must_use]
    pub fn monotonic(self) -> Instant {
        Instant::now()
    }
}

/// Work for the pipeline's thread.
enum Work {
    Delivery(Box<Delivery>, Permit),
    Tap(SyncSender<Vec<u8>>),
    Stop,
}

/// How many messages of one agent may wait.
#[derive(Debug, Clone)]
pub struct Quota {
    waiting: Arc<AtomicUsize>,
    limit: usize,
}

impl Quota {
    /// At most `limit`.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { waiting: Arc::default(), limit }
    }
}

/// One message that waits: of its agent, and of all.
struct Permit([Arc<AtomicUsize>; 2]);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.iter().for_each(|waiting| _ = waiting.fetch_sub(1, Ordering::Relaxed));
    }
}

/// The way to the pipeline's thread.
#[derive(Debug, Clone)]
pub struct Driver {
    queue: SyncSender<Work>,
    waiting: Arc<AtomicUsize>,
    ticks: Arc<AtomicU64>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Delivery(..) => "Delivery",
            Self::Tap(_) => "Tap",
            Self::Stop => "Stop",
        })
    }
}

impl Driver {
    /// Queues a message. An agent with too many of them waiting is refused, so that it slows nobody else.
    pub fn deliver(&self, delivery: Delivery, quota: &Quota) -> Result<(), Refusal> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let permit = Permit([Arc::clone(&quota.waiting), Arc::clone(&self.waiting)]);
        let busy = |reason: String| Refusal { reason, retry: true };
        if quota.waiting.fetch_add(1, Ordering::Relaxed) >= quota.limit {
            let limit = quota.limit;
            return Err(busy(format!(
                "{limit} messages of this agent wait for the analysis, the limit: it sends too fast"
            )));
        }
        match self.queue.try_send(Work::Delivery(Box::new(delivery), permit)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(busy("the analysis is behind; try again later".into())),
            Err(TrySendError::Disconnected(_)) => Err(busy("the collector is stopping".into())),
        }
    }

    /// Messages that wait for the analysis, of [`QUEUE_MAX`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Ticks that the thread has worked off. It stands still while the thread hangs.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Sends every input from now on, framed as trace records, to `tap`; first what is known by name. Records that it is too slow
    /// for are counted and left out.
    pub fn tap(&self, tap: SyncSender<Vec<u8>>) -> bool {
        self.queue.try_send(Work::Tap(tap)).is_ok()
    }

    /// Asks the thread to finish what is queued and end.
    pub fn stop(&self) {
        // A full queue: the thread is alive and takes work, so room comes.
        let _ = self.queue.send(Work::Stop);
    }
}

/// Starts the thread. It ends after [`Driver::stop`].
pub fn start(
    pipeline: Pipeline,
    configuration_toml: String,
    mut outlet: Outlet,
    clock: Clock,
) -> std::io::Result<(Driver, std::thread::JoinHandle<()>)> {
    let (queue, work) = sync_channel(QUEUE_MAX);
    let ticks = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&ticks);
    let thread = std::thread::Builder::new().name("analysis".into()).spawn(move || {
        Loop {
            pipeline,
            taps: Taps::new(configuration_toml, Arc::clone(&outlet.metrics)),
            names: Names::default(),
            clock,
            last_tick_unix_ns: 0,
            ticks: 0,
            told,
        }
        .run(&work, &mut outlet);
        outlet.close();
    })?;
    Ok((Driver { queue, waiting: Arc::default(), ticks }, thread))
}

struct Loop {
    pipeline: Pipeline,
    taps: Taps,
    names: Names,
    clock: Clock,
    last_tick_unix_ns: u64,
    ticks: u64,
    /// As `ticks`, for [`Driver::ticks`].
    told: Arc<AtomicU64>,
}

impl Loop {
    fn run(&mut self, work: &Receiver<Work>, outlet: &mut Outlet) {
        let mut due = self.clock.monotonic() + TICK;
        loop {
            let now = self.clock.monotonic();
            if now >= due {
                let late = (now - due).as_nanos() / TICK.as_nanos();
                outlet.metrics.ticks_missed.add(u64::try_from(late).unwrap_or(0));
                due = now + TICK;
                self.tick(outlet);
                continue;
            }
            match work.recv_timeout(due - now) {
                Ok(Work::Delivery(delivery, permit)) => {
                    self.delivery(*delivery, outlet);
                    drop(permit);
                }
                Ok(Work::Tap(tap)) => self.taps.add(tap, &self.names),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Work::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn delivery(&mut self, delivery: Delivery, outlet: &mut Outlet) {
        self.taps.arrival(&delivery.arrival, &delivery.raw);
        if let Some(said) = delivery.names {
            self.names.said(&delivery.arrival, said);
        }
        let taken = self.clock.unix_ns();
        for input in delivery.inputs {
            outlet.saw(&input);
            for output in self.pipeline.feed(input) {
                outlet.output(output, delivery.moments.map(|m| Moments { taken, ..m }));
            }
        }
    }

    fn tick(&mut self, outlet: &mut Outlet) {
        // The watermark must not go back when somebody sets the clock.
        let unix_ns = self.clock.unix_ns().max(self.last_tick_unix_ns);
        self.last_tick_unix_ns = unix_ns;
        self.taps.record(&TraceRecord { body: Some(trace_record::Body::TickUnixNs(unix_ns)) });
        for output in self.pipeline.feed(Input::Tick { unix_ns }) {
            outlet.output(output, None);
        }
        outlet.tick(unix_ns);
        self.ticks += 1;
        self.told.store(self.ticks, Ordering::Relaxed);
        if self.ticks % TOPOLOGY_EVERY_TICKS == 1 {
            outlet.topology(self.pipeline.topology());
            outlet.congestion(self.pipeline.congestion());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery() -> Delivery {
        Delivery {
            arrival: Default::default(),
            raw: Default::default(),
            names: None,
            inputs: Vec::new(),
            moments: None,
        }
    }

    #[test]
    fn an_agent_beyond_its_quota_is_refused_and_others_are_not() {
        let (queue, work) = sync_channel(10);
        let driver = Driver { queue, waiting: Arc::default(), ticks: Arc::default() };
        let (fast, calm) = (Quota::new(2), Quota::new(2));
        assert!(driver.deliver(delivery(), &fast).is_ok());
        assert!(driver.deliver(delivery(), &fast).is_ok());
        let refusal = driver.deliver(delivery(), &fast).unwrap_err();
        assert!(refusal.retry && refusal.reason.contains("2 messages"), "{refusal:?}");
        assert!(driver.deliver(delivery(), &calm).is_ok());
        assert_eq!(driver.waiting(), 3);
        drop(work.recv().unwrap());
        assert_eq!(driver.waiting(), 2);
        assert!(driver.deliver(delivery(), &fast).is_ok(), "room again once one is taken");
    }
}

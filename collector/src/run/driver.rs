//! The analysis at work: one thread that owns the pipeline. Feeds it what agents sent, in the order of the log that it reads, and ticks, and
//! hands what comes out to store, alerts and subscribers.
//! Knows no network and no file.

use super::outlet::Outlet;
use super::recording::{Names, Taps};
use crate::clock::Clock;
use crate::ingest::delivery_log::{Read, Reader};
use crate::ingest::feed::{Feed, Tap};
use crate::ingest::session::Delivery;
use crate::lock::lock;
use crate::moments::Moments;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tailwater_analysis::Pipeline;
use tailwater_model::window::{Input, WindowIndex};
use tailwater_proto::v1::{TraceRecord, trace_record};

/// Time between ticks.
pub const TICK: Duration = Duration::from_millis(25);
/// Frames worked off at once that are told apart in how old they were; of more, after a silence, only the newest.
const FRAMES_MAX: u64 = 64;
/// How often topology and congestion points are shown anew.
pub(super) const TOPOLOGY_EVERY_TICKS: u64 = 40;

/// Starts the thread, which reads this log. It ends after [`Feed::stop`].
pub fn start(
    mut log: Reader,
    pipeline: Pipeline,
    configuration_toml: String,
    mut outlet: Outlet,
    clock: Clock,
) -> std::io::Result<(Feed, std::thread::JoinHandle<()>)> {
    let ticks = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&ticks);
    let (feed, tapped) = Feed::new(log.log(), ticks);
    let thread = std::thread::Builder::new().name("analysis".into()).spawn(move || {
        Loop {
            pipeline,
            taps: Taps::new(configuration_toml, Arc::clone(&outlet.metrics)),
            names: Names::default(),
            clock,
            last_tick_unix_ns: 0,
            frames_to: 0,
            ticks: 0,
            told,
        }
        .run(&mut log, &tapped, &mut outlet);
        outlet.close();
    })?;
    Ok((feed, thread))
}

struct Loop {
    pipeline: Pipeline,
    taps: Taps,
    names: Names,
    clock: Clock,
    last_tick_unix_ns: u64,
    /// Index of the first window whose frame was not worked off when that was looked at last; 0: none was.
    frames_to: u64,
    ticks: u64,
    /// As `ticks`, for [`Feed::ticks`].
    told: Arc<AtomicU64>,
}

impl Loop {
    fn run(&mut self, log: &mut Reader, tapped: &Receiver<Tap>, outlet: &mut Outlet) {
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
            let read = log.read(due - now);
            // Only now: whoever listened before this was appended hears it.
            tapped.try_iter().for_each(|tap| self.taps.add(tap, &self.names));
            match read {
                Read::One(entry) => {
                    let (delivery, permit) = entry.open();
                    self.delivery(delivery, outlet);
                    drop(permit);
                }
                Read::Nothing => {}
                Read::Missing(count) => self.missing(count, outlet),
                Read::End => return,
            }
        }
    }

    /// A log that does not wait for who reads it has gone on. It is the same limit as where one does: the analysis is behind.
    fn missing(&self, count: Option<u64>, outlet: &Outlet) {
        outlet.metrics.limits.reached("agent_queue", count.unwrap_or(1), self.clock.unix_ns());
        let messages = count.map_or("an unknown number of".to_owned(), |count| count.to_string());
        tracing::error!(
            "{messages} messages of agents are not in the log any more: the analysis is behind, and never sees them"
        );
    }

    fn delivery(&mut self, delivery: Delivery, outlet: &mut Outlet) {
        self.taps.arrival(&delivery.arrival, &delivery.raw);
        if let Some(said) = delivery.names {
            // With each that comes those leave that are gone for a day, as they leave the windows in memory.
            if self.names.is_new(&delivery.arrival.host) {
                let series = lock(&outlet.shown.series);
                self.names.forget(|host| series.knows(host));
            }
            self.names.said(&delivery.arrival, said);
        }
        let taken = self.clock.unix_ns();
        for input in delivery.inputs {
            outlet.saw(&input);
            for output in self.pipeline.feed(input) {
                outlet.output(output, delivery.moments.map(|m| Moments { taken, ..m }));
            }
        }
        self.frames(outlet);
    }

    /// Notes how old the frames were that left since.
    fn frames(&mut self, outlet: &Outlet) {
        let to = self.pipeline.frames_to();
        if to.0 == self.frames_to {
            return;
        }
        let first =
            if self.frames_to == 0 { to.0 - 1 } else { self.frames_to.max(to.0.saturating_sub(FRAMES_MAX)) };
        self.frames_to = to.0;
        let now = self.clock.unix_ns();
        for index in first..to.0 {
            outlet.metrics.frame_age.observe(now.saturating_sub(WindowIndex(index).end_unix_ns()));
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
        self.frames(outlet);
        outlet.tick(unix_ns);
        self.ticks += 1;
        self.told.store(self.ticks, Ordering::Relaxed);
        if self.ticks % TOPOLOGY_EVERY_TICKS == 1 {
            outlet.topology(self.pipeline.topology());
            outlet.congestion(self.pipeline.congestion());
        }
    }
}

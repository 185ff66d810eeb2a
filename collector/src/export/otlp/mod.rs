//! OTLP: roll-ups and the collector's own metrics as OpenTelemetry metrics, and one log record per incident, to one receiver over gRPC or
//! HTTP. `hosts` and `own` make data points, `incident` log records, `message` the messages; each signal has a bounded queue and a sender
//! of its own, so that a receiver that hangs costs its own data and nobody else's time. This file owns the wiring.
//!
//! The messages are the generated types of the OpenTelemetry project's `opentelemetry-proto`. Its SDK is not used: an SDK aggregates what it
//! is told as it happens, on its own clock, while these values are rolled up from windows that say when they were.

pub mod config;
pub mod hosts;
mod incident;
mod message;
mod own;
mod sender;
pub mod stats;
mod transport;

use super::Export;
use super::queue::Queue;
use crate::clock::Clock;
use crate::send::http::HookError;
use crate::verdict::Verdict;
use config::{Otlp, Signal};
use message::Batch;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tailwater_model::Incident;
use tailwater_model::incident::State;
use tokio::sync::broadcast;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport::Transport;

/// Incidents remembered for what was told of them.
const TOLD_MAX: usize = 4096;

/// Why OTLP cannot start.
#[derive(Debug, thiserror::Error)]
#[error("[otlp]: {0}")]
pub struct OtlpError(#[from] HookError);

/// What of OTLP runs elsewhere.
#[derive(Debug, Default)]
pub struct Started {
    /// For the export thread.
    pub sink: Option<hosts::Sink>,
    /// For whoever knows the collector's own metrics.
    pub own: Option<Own>,
}

/// Starts the senders and, of `incidents`, the records.
pub fn start(
    table: &Otlp,
    export: &Arc<Export>,
    incidents: broadcast::Receiver<Arc<Incident>>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    clock: Clock,
) -> Result<Started, OtlpError> {
    let common = message::common(&table.resource);
    let mut queues = BTreeMap::new();
    for signal in &table.signals {
        let transport = Transport::new(table, *signal)?;
        let stats = export.otlp.of(*signal);
        let queue = Arc::new(Queue::new(table.queue_mib_max << 20, Arc::clone(&stats.receiver)));
        queues.insert(*signal, Arc::clone(&queue));
        let sender =
            sender::Sender { signal: *signal, transport, queue, stats, current: None, complained: false };
        tasks.spawn(sender.run(stop.clone()));
    }
    if let Some(queue) = queues.remove(&Signal::Logs) {
        let records = Records { common: common.clone(), queue, told: BTreeMap::new(), clock };
        tasks.spawn(records.run(incidents, Arc::clone(export), stop.clone()));
    }
    let metrics = queues.remove(&Signal::Metrics);
    let sink = metrics.clone().map(|queue| hosts::Sink::new(table.interval_seconds, common.clone(), queue));
    let own = metrics.map(|queue| Own {
        batch: Batch::new(common),
        queue,
        every: Duration::from_secs(table.interval_seconds),
        started_unix_ns: clock.unix_ns(),
        clock,
        stop: stop.clone(),
    });
    Ok(Started { sink, own })
}

/// Makes records of incidents.
struct Records {
    common: Vec<KeyValue>,
    queue: Arc<Queue>,
    told: BTreeMap<String, Verdict>,
    clock: Clock,
}

impl Records {
    async fn run(
        mut self,
        mut incidents: broadcast::Receiver<Arc<Incident>>,
        export: Arc<Export>,
        stop: CancellationToken,
    ) {
        loop {
            let next = tokio::select! {
                biased; // what was said before the stop is told
                next = incidents.recv() => next,
                () = stop.cancelled() => return,
            };
            match next {
                Ok(incident) => self.version(&incident),
                Err(broadcast::error::RecvError::Lagged(n)) => export.otlp.incidents_missed.add(n),
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    /// An incident is told when it is over: a record cannot be changed. Should late windows change what it means after that, it is told
    /// again with its higher version.
    fn version(&mut self, incident: &Incident) {
        if incident.state != State::Closed {
            return;
        }
        let verdict = Verdict::of(incident);
        if self.told.get(&incident.id) == Some(&verdict) {
            return;
        }
        self.told.insert(incident.id.clone(), verdict);
        while self.told.len() > TOLD_MAX {
            self.told.pop_first(); // ids sort by time
        }
        let record = incident::record(incident, self.clock.unix_ns());
        self.queue.push(incident::request(&self.common, record));
    }
}

/// The collector's own metrics, once every interval.
#[derive(Debug)]
pub struct Own {
    batch: Batch,
    queue: Arc<Queue>,
    every: Duration,
    started_unix_ns: u64,
    clock: Clock,
    stop: CancellationToken,
}

impl Own {
    /// Tells what `exposition` returns, OpenMetrics text, until shutdown.
    pub async fn run(mut self, exposition: impl Fn() -> String + Clone + Send + 'static) {
        let mut ticks = tokio::time::interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stop.cancelled() => return,
            }
            // It takes locks that others hold while they work.
            let Ok(text) = tokio::task::spawn_blocking(exposition.clone()).await else { return };
            let strange = own::add(&mut self.batch, &text, (self.started_unix_ns, self.clock.unix_ns()));
            if strange > 0 {
                tracing::debug!("OTLP: {strange} lines of the collector's own metrics were not understood");
            }
            for request in self.batch.requests() {
                self.queue.push(request);
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! One signal's requests, one at a time and in order. What may be taken later is tried again, with backoff and jitter and the pause that the
//! receiver asks for; what waits meanwhile is in the bounded queue. On shutdown what waits is sent once more, while the receiver takes it.

use super::config::Signal;
use super::stats::Lane;
use super::transport::{Outcome, Transport};
use crate::export::queue::{Queue, Request};
use crate::send::limit;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What waits on shutdown has this long; streams of agents end at the same time, within a second.
const LAST_WITHIN: Duration = Duration::from_millis(700);

/// The sender.
pub(super) struct Sender {
    pub(super) signal: Signal,
    pub(super) transport: Transport,
    pub(super) queue: Arc<Queue>,
    pub(super) stats: Arc<Lane>,
    /// What is being sent: it outlives a try that shutdown breaks off.
    pub(super) current: Option<Request>,
    /// The log says that something is wrong.
    pub(super) complained: bool,
}

impl Sender {
    /// Sends until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let work = async {
            loop {
                if self.current.is_none() {
                    self.current = Some(self.queue.next().await);
                }
                let mut failures = 0;
                while let Err(after) = self.attempt().await {
                    failures += 1;
                    tokio::time::sleep(limit::pause(failures, after, fastrand::f64())).await;
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
        let rest = async {
            loop {
                self.current = self.current.take().or_else(|| self.queue.take());
                if self.current.is_none() || self.attempt().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(LAST_WITHIN, rest).await.is_err() {
            tracing::debug!(signal = self.signal.name(), "OTLP: not all was sent before the end");
        }
    }

    /// Sends what is current once. An error: it is to be tried again, not before this.
    async fn attempt(&mut self) -> Result<(), Option<Duration>> {
        let Some(request) = &self.current else { return Ok(()) };
        let (signal, counts) = (self.signal.name(), &self.stats.receiver);
        match self.transport.send(request.body.clone()).await {
            Outcome::Taken { rejected, said } => {
                let rejected = rejected.min(request.samples);
                counts.samples_sent.add(request.samples - rejected);
                self.stats.rejected.add(rejected);
                if rejected > 0 {
                    if !std::mem::replace(&mut self.complained, true) {
                        tracing::warn!(
                            signal,
                            "OTLP: the receiver rejected {rejected} of {}: {said}",
                            request.samples
                        );
                    }
                } else {
                    if !said.is_empty() {
                        tracing::debug!(signal, "OTLP: the receiver says: {said}");
                    }
                    if std::mem::take(&mut self.complained) {
                        tracing::info!(signal, "OTLP: taken again");
                    }
                }
            }
            Outcome::Refused(why) => {
                counts.samples_refused.add(request.samples);
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::warn!(signal, "OTLP: {why}; {} are given up", request.samples);
                }
            }
            Outcome::Later { why, after } => {
                counts.failures.inc();
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::warn!(signal, "OTLP: {why}; it is tried again");
                }
                return Err(after);
            }
        }
        self.current = None;
        Ok(())
    }
}

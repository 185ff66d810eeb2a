//! What OTLP counts about itself, and its OpenMetrics text. Labels are from the code.

use super::config::Signal;
use crate::counters::{Counter, counter, gauge, labels};
use crate::export::receiver::Receiver;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Of one signal.
#[derive(Debug, Default)]
pub struct Lane {
    /// Samples are data points or log records.
    pub receiver: Arc<Receiver>,
    /// Data points or log records that the receiver did not want of a request that it took.
    pub rejected: Counter,
}

/// Of all.
#[derive(Debug, Default)]
pub struct Stats {
    lanes: Mutex<BTreeMap<Signal, Arc<Lane>>>,
    /// Versions of incidents that were not seen.
    pub incidents_missed: Counter,
}

impl Stats {
    /// Those of `signal`.
    #[must_use]
    pub fn of(&self, signal: Signal) -> Arc<Lane> {
        Arc::clone(self.lanes.lock().unwrap_or_else(PoisonError::into_inner).entry(signal).or_default())
    }

    /// Appends OpenMetrics text.
    pub fn render(&self, out: &mut String) {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let items: Vec<_> = lanes
            .iter()
            .flat_map(|(signal, lane)| {
                let of = &lane.receiver;
                [
                    ("sent", &of.samples_sent),
                    ("rejected", &lane.rejected),
                    ("refused", &of.samples_refused),
                    ("evicted", &of.samples_evicted),
                ]
                .map(|(result, n)| (labels(&[("signal", signal.name()), ("result", result)]), n.get() as f64))
            })
            .collect();
        counter(
            out,
            "otlp_items",
            "Data points and log records: sent; rejected by a receiver that took the rest of the request; refused with the whole request; evicted because too many waited.",
            &items,
        );
        let rows = |value: fn(&Receiver) -> u64| -> Vec<(String, f64)> {
            let of = |(signal, lane): (&Signal, &Arc<Lane>)| {
                (labels(&[("signal", signal.name())]), value(&lane.receiver) as f64)
            };
            lanes.iter().map(of).collect()
        };
        counter(
            out,
            "otlp_failures",
            "OTLP requests that failed and are tried again.",
            &rows(|of| of.failures.get()),
        );
        gauge(
            out,
            "otlp_queue_bytes",
            "OTLP requests that wait for the receiver, as sent.",
            &rows(|of| of.queue_bytes.get()),
        );
        gauge(
            out,
            "otlp_queue_limit_bytes",
            "What may wait; beyond it the oldest is evicted.",
            &rows(|of| of.queue_bytes_max.get()),
        );
        counter(
            out,
            "otlp_incidents_missed",
            "Versions of incidents that were not seen because too many came at once; a closing one among them has no log record.",
            &[(String::new(), self.incidents_missed.get() as f64)],
        );
    }
}

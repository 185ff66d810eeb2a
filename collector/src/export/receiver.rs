//! What is counted of one receiver, whatever the way there is. `write/stats.rs` and `otlp/stats.rs` say it, each in its own names.

use crate::counters::{Counter, Gauge};

/// Of one receiver. Samples are those of series, data points or log records.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "each is described by its help text, where it is said")]
pub struct Receiver {
    pub samples_sent: Counter,
    pub samples_evicted: Counter,
    pub samples_refused: Counter,
    pub failures: Counter,
    pub queue_bytes: Gauge,
    pub queue_bytes_max: Gauge,
}

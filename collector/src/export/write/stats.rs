//! What remote write counts about itself, and its OpenMetrics text. Labels are names from the configuration and reasons from the code.

use crate::counters::gauge;
use crate::export::receiver::Receiver;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Of all.
#[derive(Debug, Default)]
pub struct Stats(Mutex<BTreeMap<String, Arc<Receiver>>>);

impl Stats {
    /// Those of `name`.
    #[must_use]
    pub fn of(&self, name: &str) -> Arc<Receiver> {
        Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default())
    }

    /// Appends OpenMetrics text.
    pub fn render(&self, out: &mut String) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = "tailwater_remote_write_samples";
        let help = "Samples: sent; evicted because too many waited; refused by the receiver for good.";
        let _ = writeln!(out, "# TYPE {name} counter\n# HELP {name} {help}");
        for (to, stats) in all.iter() {
            for (result, counter) in [
                ("sent", &stats.samples_sent),
                ("evicted", &stats.samples_evicted),
                ("refused", &stats.samples_refused),
            ] {
                let _ = writeln!(out, "{name}_total{{to=\"{to}\",result=\"{result}\"}} {}", counter.get());
            }
        }
        let name = "tailwater_remote_write_failures";
        let _ =
            writeln!(out, "# TYPE {name} counter\n# HELP {name} Requests that failed and are tried again.");
        for (to, stats) in all.iter() {
            let _ = writeln!(out, "{name}_total{{to=\"{to}\"}} {}", stats.failures.get());
        }
        let rows = |value: fn(&Receiver) -> f64| -> Vec<(String, f64)> {
            all.iter().map(|(to, stats)| (format!("{{to=\"{to}\"}}"), value(stats))).collect()
        };
        gauge(
            out,
            "remote_write_queue_bytes",
            "Requests that wait for the receiver, as sent.",
            &rows(|s| s.queue_bytes.get() as f64),
        );
        gauge(
            out,
            "remote_write_queue_limit_bytes",
            "What may wait; beyond it the oldest is evicted.",
            &rows(|s| s.queue_bytes_max.get() as f64),
        );
    }
}

//! What alerting counts about itself, and its OpenMetrics text. The only labels are the names of hooks, from the configuration, and
//! results, from the code.

use super::latency::Latency;
use crate::counters::{Counter, Gauge, gauge};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Of one hook.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "each is described by its help text in `render`")]
pub struct HookStats {
    pub sent: Counter,
    pub failed: Counter,
    pub dead: Counter,
    pub superseded: Counter,
    pub silenced: Counter,
    pub held: Counter,
    pub evicted: Counter,
    pub waiting: Gauge,
    pub oldest_unix_ns: Gauge,
}

/// Of alerting.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "each is described by its help text in `render`")]
pub struct Stats {
    hooks: Mutex<BTreeMap<String, Arc<HookStats>>>,
    pub events_dropped: Counter,
    pub write_failures: Counter,
    pub writes_dropped: Counter,
    pub outbox_lost: Counter,
    pub outbox_rows: Gauge,
    pub outbox_bytes: Gauge,
    pub latency: Latency,
}

impl Stats {
    /// Those of `hook`.
    #[must_use]
    pub fn hook(&self, hook: &str) -> Arc<HookStats> {
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(hooks.entry(hook.to_owned()).or_default())
    }

    /// Appends OpenMetrics text.
    pub fn render(&self, out: &mut String) {
        self.latency.render(out);
        let hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        let name = "tailwater_alert_messages";
        let help = "Messages to hooks: sent; tries that failed; dead letters; superseded by a newer one; silenced; held back by the rate limit and summarised; evicted because too many waited.";
        let _ = writeln!(out, "# TYPE {name} counter\n# HELP {name} {help}");
        for (hook, stats) in hooks.iter() {
            for (result, counter) in [
                ("sent", &stats.sent),
                ("failed", &stats.failed),
                ("dead", &stats.dead),
                ("superseded", &stats.superseded),
                ("silenced", &stats.silenced),
                ("held", &stats.held),
                ("evicted", &stats.evicted),
            ] {
                let _ =
                    writeln!(out, "{name}_total{{hook=\"{hook}\",result=\"{result}\"}} {}", counter.get());
            }
        }
        let label = |hook: &str| format!("{{hook=\"{hook}\"}}");
        let waiting: Vec<_> = hooks.iter().map(|(h, s)| (label(h), s.waiting.get() as f64)).collect();
        gauge(out, "alert_outbox_waiting", "Messages that wait for a hook, or are being sent.", &waiting);
        let oldest: Vec<_> = hooks
            .iter()
            .filter(|(_, s)| s.oldest_unix_ns.get() > 0)
            .map(|(h, s)| (label(h), s.oldest_unix_ns.get() as f64 / 1e9))
            .collect();
        gauge(
            out,
            "alert_outbox_oldest_timestamp_seconds",
            "When the oldest message that waits was made, Unix time; its age is time() minus this.",
            &oldest,
        );
        for (name, help, value) in [
            ("alert_outbox_rows", "Messages in the outbox, delivered ones as well.", &self.outbox_rows),
            ("alert_outbox_bytes", "Their size.", &self.outbox_bytes),
        ] {
            gauge(out, name, help, &[(String::new(), value.get() as f64)]);
        }
        for (name, help, counter) in [
            (
                "alert_events_dropped",
                "Incident versions not told because a hook's worker was behind.",
                &self.events_dropped,
            ),
            (
                "alert_outbox_write_failures",
                "Writes of the outbox that failed and are tried again.",
                &self.write_failures,
            ),
            (
                "alert_outbox_writes_dropped",
                "Writes of the outbox given up because the disk was behind.",
                &self.writes_dropped,
            ),
            (
                "alert_outbox_lost",
                "Messages removed undelivered because the outbox was full.",
                &self.outbox_lost,
            ),
        ] {
            let _ = writeln!(out, "# TYPE tailwater_{name} counter\n# HELP tailwater_{name} {help}");
            let _ = writeln!(out, "tailwater_{name}_total {}", counter.get());
        }
    }
}

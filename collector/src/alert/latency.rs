//! How long an early alert takes from the drop in the kernel to the receiver's socket, stage by stage. Owns the stages; reads no clock and knows no receiver.

use crate::counters::Histogram;
use crate::moments::Moments;
use crate::send::http::Written;
use std::fmt::Write;

/// What a stage is called, in the order in which an alert goes through them.
pub const STAGES: [&str; 8] =
    ["agent_read", "agent_send", "network", "queue", "decide", "hook", "write", "answer"];
/// Those up to the receiver's socket; what the receiver then takes is its own.
const TO_SOCKET: usize = 7;

/// Of all hooks together.
#[derive(Debug, Default)]
pub struct Latency {
    total: Histogram,
    stages: [Histogram; STAGES.len()],
}

impl Latency {
    /// An early alert whose sending began at `begun` has been answered. The stages add up to the whole: where clocks disagree, the one
    /// before keeps what the one after would have had less than nothing of.
    pub fn told(&self, moments: &Moments, begun: u64, written: &Written, answered: u64) {
        let at = [
            moments.read,
            moments.sent,
            moments.received,
            moments.taken,
            moments.decided,
            begun,
            written.get(),
            answered,
        ];
        let mut before = moments.dropped;
        for (n, at) in at.into_iter().enumerate() {
            let now = at.max(before);
            self.stages[n].observe(now - before);
            if n + 1 == TO_SOCKET {
                self.total.observe(now - moments.dropped);
            }
            before = now;
        }
    }

    /// Appends OpenMetrics text.
    pub fn render(&self, out: &mut String) {
        let name = "tailwater_early_alert_seconds";
        let help = "From the drop, as the kernel's timer saw it, to the first hook message about it on the receiver's socket.";
        let _ = writeln!(out, "# TYPE {name} histogram\n# HELP {name} {help}");
        self.total.render(out, name, "");
        let name = "tailwater_early_alert_stage_seconds";
        let help = "Parts of it, by `stage`: until the agent read it (agent_read), handed it to its connection (agent_send), it reached the collector (network), the analysis took it (queue), decided (decide), the hook's worker began to send (hook), it was on the socket (write); and beyond, until the receiver answered (answer).";
        let _ = writeln!(out, "# TYPE {name} histogram\n# HELP {name} {help}");
        for (stage, histogram) in STAGES.iter().zip(&self.stages) {
            histogram.render(out, name, &format!("stage=\"{stage}\","));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn value(text: &str, series: &str) -> f64 {
        let line = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
    }

    #[test]
    fn stages_add_up_to_the_whole_also_where_clocks_disagree_and_an_old_agent_says_less() {
        let latency = Latency::default();
        let at = |ms: u64| (1000 + ms) * MS;
        let good = Moments {
            dropped: at(0),
            read: at(1),
            sent: at(3),
            received: at(6),
            taken: at(10),
            decided: at(15),
        };
        let written = Written::default();
        written.at(at(28));
        latency.told(&good, at(21), &written, at(36));
        // Received before it was sent, as it seems.
        latency.told(&Moments { received: at(2), ..good }, at(21), &written, at(36));
        latency.told(&Moments { read: 0, sent: 0, ..good }, at(21), &written, at(36));
        let mut text = String::new();
        latency.render(&mut text);
        let sum = |stage: &str| {
            value(&text, &format!("tailwater_early_alert_stage_seconds_sum{{stage=\"{stage}\"}}"))
        };
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        for (stage, s) in [("network", 0.009), ("queue", 0.015), ("hook", 0.018), ("answer", 0.024)] {
            assert!(close(sum(stage), s), "{stage}: {}", sum(stage));
        }
        let parts: f64 = STAGES[..TO_SOCKET].iter().map(|stage| sum(stage)).sum();
        assert!(close(parts, 0.084) && close(parts, value(&text, "tailwater_early_alert_seconds_sum")));
        assert!(close(value(&text, "tailwater_early_alert_seconds_bucket{le=\"0.02\"}"), 0.0));
        assert!(close(value(&text, "tailwater_early_alert_seconds_bucket{le=\"0.05\"}"), 3.0));
        assert!(close(value(&text, "tailwater_early_alert_seconds_bucket{le=\"+Inf\"}"), 3.0));
        assert!(close(value(&text, "tailwater_early_alert_seconds_count"), 3.0));
    }
}

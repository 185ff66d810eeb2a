//! What is counted of spans, and its OpenMetrics text. Labels are from the code.

use super::message::Counts;
use super::slow::{Fate, SPANS_MAX};
use crate::counters::{Counter, Labelled, counter, gauge, labels};

/// What becomes of a request, so that its counters begin at zero.
const RESULTS: [&str; 6] = ["taken", "malformed", "other_form", "too_large", "too_many", "late"];
/// What becomes of a span.
const FATES: [&str; 7] = ["kept", "fast", "inner", "again", "unusable", "untimely", "services"];

/// See above.
#[derive(Debug, Default)]
pub(super) struct Stats {
    requests: Labelled,
    spans: Labelled,
    /// Put out by slower ones, or by newer ones where there were too many.
    pub(super) evicted: Counter,
    /// Not looked at, because too many were.
    pub(super) incidents_missed: Counter,
}

impl Stats {
    /// A request, by one of [`RESULTS`].
    pub(super) fn request(&self, result: &'static str) {
        self.requests.inc(result);
    }

    /// A slow span.
    pub(super) fn span(&self, fate: Fate) {
        self.spans.inc(match fate {
            Fate::Kept => "kept",
            Fate::Again => "again",
            Fate::Untimely => "untimely",
            Fate::TooManyServices => "services",
        });
    }

    /// The other spans of a message.
    pub(super) fn left(&self, counts: Counts) {
        for (fate, n) in [("fast", counts.fast), ("inner", counts.inner), ("unusable", counts.unusable)] {
            self.spans.add(fate, n);
        }
    }

    pub(super) fn render(&self, out: &mut String, held: usize) {
        let rows = |label: &str, names: &[&'static str], of: &Labelled| -> Vec<(String, f64)> {
            names.iter().map(|name| (labels(&[(label, name)]), of.get(name) as f64)).collect()
        };
        counter(
            out,
            "traces_requests",
            "Requests with spans: taken; malformed (no message of OTLP, or no gzip); other_form (JSON, gRPC or another compression); too_large; too_many at once, whose senders try again; late (their body did not come in time).",
            &rows("result", &RESULTS, &self.requests),
        );
        counter(
            out,
            "traces_spans",
            "Spans received: kept for now; fast, without an error; inner (they neither take a request nor begin a trace); again (the same span); unusable (without ids or times); untimely (ended minutes ago or in the future); services (of too many in one second).",
            &rows("fate", &FATES, &self.spans),
        );
        counter(
            out,
            "traces_spans_evicted",
            "Kept spans that gave way to slower ones of their second, or to newer ones where there were too many in all.",
            &[(String::new(), self.evicted.get() as f64)],
        );
        gauge(
            out,
            "traces_spans_held",
            &format!("Slow spans in memory, of {SPANS_MAX}: those of the last five minutes."),
            &[(String::new(), held as f64)],
        );
        counter(
            out,
            "traces_incidents_missed",
            "Incidents for which nobody looked for traces, because too many were open or just over.",
            &[(String::new(), self.incidents_missed.get() as f64)],
        );
    }
}

//! The collector's counters about itself, and their OpenMetrics text. Knows names and nothing of who counts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn inc(&self) {
        self.add(1);
    }
    /// `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    /// So far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// It is this now.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
    /// Now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter with one label, whose values come from a fixed set in the code.
#[derive(Debug, Default)]
pub struct Labelled(Mutex<BTreeMap<&'static str, u64>>);

impl Labelled {
    /// One more under `label`.
    pub fn inc(&self, label: &'static str) {
        self.add(label, 1);
    }
    /// `n` more under `label`; with 0 it is there from now on.
    pub fn add(&self, label: &'static str, n: u64) {
        if let Ok(mut map) = self.0.lock() {
            *map.entry(label).or_default() += n;
        }
    }
    /// So far under `label`.
    pub fn get(&self, label: &str) -> u64 {
        self.0.lock().map_or(0, |map| map.get(label).copied().unwrap_or(0))
    }
}

/// For so long it is told that a limit bites: longer than the intervals at which `/readyz` is asked.
pub(crate) const TOLD_FOR_NS: u64 = 600_000_000_000;

/// What was refused or left out because of a limit, by the limit; and which of them bite now.
#[derive(Debug, Default)]
pub struct Limits {
    /// So far.
    pub reached: Labelled,
    last_unix_ns: Mutex<BTreeMap<&'static str, u64>>,
}

impl Limits {
    /// `n` more were beyond `limit`.
    pub fn reached(&self, limit: &'static str, n: u64, now_unix_ns: u64) {
        if n == 0 {
            return;
        }
        self.reached.add(limit, n);
        if let Ok(mut last) = self.last_unix_ns.lock() {
            last.insert(limit, now_unix_ns);
        }
    }

    /// Those that were reached within the last ten minutes.
    #[must_use]
    pub fn bite(&self, now_unix_ns: u64) -> Vec<&'static str> {
        let lately = |at: &u64| now_unix_ns.saturating_sub(*at) < TOLD_FOR_NS;
        let Ok(last) = self.last_unix_ns.lock() else { return Vec::new() };
        last.iter().filter(|(_, at)| lately(at)).map(|(limit, _)| *limit).collect()
    }
}

/// Upper bounds of a [`Histogram`]'s buckets, ms. What is measured is a wake-up or a short queue: most end within the first three, and one
/// that does not has waited for a CPU, a lock or a disk.
const BOUNDS_MS: [u64; 11] = [1, 2, 5, 10, 20, 50, 100, 250, 500, 1000, 5000];

/// A spread of times.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS_MS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// One more.
    pub fn observe(&self, ns: u64) {
        let at = BOUNDS_MS.iter().position(|bound| ns <= bound * 1_000_000).unwrap_or(BOUNDS_MS.len());
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Its samples, without a head. `label` is `stage="…",` or empty.
    pub fn render(&self, out: &mut String, name: &str, label: &str) {
        let mut below = 0;
        for (n, count) in self.counts.iter().enumerate() {
            below += count.load(Ordering::Relaxed);
            let bound = BOUNDS_MS.get(n).map_or("+Inf".to_owned(), |ms| format!("{:?}", *ms as f64 / 1e3));
            let _ = writeln!(out, "{name}_bucket{{{label}le=\"{bound}\"}} {below}");
        }
        let labels = label.trim_end_matches(',');
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(out, "{name}_count{labels} {below}");
        let _ = writeln!(out, "{name}_sum{labels} {:?}", self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9);
    }
}

/// All of them.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "each is described by its help text in `render`")]
pub struct Metrics {
    pub connections: Counter,
    pub connections_refused: Labelled,
    pub agents_refused: Labelled,
    pub messages: Counter,
    pub batches: Counter,
    pub duplicates: Counter,
    pub batches_refused: Labelled,
    pub limits: Limits,
    pub replies_dropped: Counter,
    pub windows: Counter,
    pub drop_events: Counter,
    pub ticks_missed: Counter,
    pub frame_age: Histogram,
    pub findings: Labelled,
    pub incidents: Labelled,
    pub store_failures: Counter,
    pub store_updates_dropped: Counter,
    pub store_traces_dropped: Counter,
    pub store_windows_dropped: Counter,
    pub store_segments_written: Counter,
    pub store_segments_expired: Counter,
    pub store_segments_torn: Counter,
    pub store_kept_dropped: Counter,
    pub store_bytes_written: Counter,
    pub store_values_written: Counter,
    pub store_nonzero_values_written: Counter,
    pub trace_records_dropped: Counter,
    pub live_lagged: Counter,
    pub live_ended_slow: Counter,
    pub http_connections: Counter,
    pub http_refused: Labelled,
    pub http_shed: Labelled,
    pub http_wait: Histogram,
    pub access_refused: Labelled,
    pub enrolments: Labelled,
}

impl Metrics {
    /// OpenMetrics text without the closing `# EOF`, which the caller writes after its gauges.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        let plain = [
            ("grpc_connections", "Connections accepted on the agents' port.", &self.connections),
            ("messages_received", "Messages from agents.", &self.messages),
            ("batches_received", "Batches of windows taken.", &self.batches),
            ("batches_duplicate", "Batches that were there already.", &self.duplicates),
            ("replies_dropped", "Replies that an agent did not take in time.", &self.replies_dropped),
            ("windows_received", "Windows of one host fed to the analysis.", &self.windows),
            ("drop_events_received", "Drop events ahead of their windows.", &self.drop_events),
            ("ticks_missed", "Ticks of the analysis that came later than their period.", &self.ticks_missed),
            ("store_failures", "Writes of incidents or windows that failed.", &self.store_failures),
            (
                "store_windows_dropped",
                "Windows of one host not written because the disk was behind or refused.",
                &self.store_windows_dropped,
            ),
            ("store_segments_written", "Segments of windows written.", &self.store_segments_written),
            ("store_segments_expired", "Segments removed for age or size.", &self.store_segments_expired),
            (
                "store_segments_torn",
                "Half-written or unreadable files found and removed or set aside.",
                &self.store_segments_torn,
            ),
            (
                "store_kept_dropped",
                "Segments around incidents removed because of their limit.",
                &self.store_kept_dropped,
            ),
            ("store_bytes_written", "Bytes of segments written.", &self.store_bytes_written),
            ("store_values_written", "Measured values in them.", &self.store_values_written),
            (
                "store_nonzero_values_written",
                "Those of the measured values that are not zero.",
                &self.store_nonzero_values_written,
            ),
            (
                "store_updates_dropped",
                "Incident versions not written because the disk was behind.",
                &self.store_updates_dropped,
            ),
            (
                "store_traces_dropped",
                "Incidents whose slowest traces were not written because the disk was behind or refused.",
                &self.store_traces_dropped,
            ),
            (
                "trace_records_dropped",
                "Inputs missing from a recording because its writer was behind.",
                &self.trace_records_dropped,
            ),
            (
                "live_lagged",
                "Events that a reader of events who came again with a cursor could no longer have.",
                &self.live_lagged,
            ),
            (
                "live_ended_slow",
                "Readers of events that were ended because they were too slow; they were told where to go on.",
                &self.live_ended_slow,
            ),
            ("http_connections", "Connections accepted on the HTTP port.", &self.http_connections),
        ];
        for (name, help, counter) in plain {
            head(&mut out, name, help);
            let _ = writeln!(out, "tailwater_{name}_total {}", counter.get());
        }
        let name = "tailwater_frame_seconds";
        let help =
            "From the end of a window to when the analysis had worked off its frame, of all hosts together.";
        let _ = writeln!(out, "# TYPE {name} histogram\n# HELP {name} {help}");
        self.frame_age.render(&mut out, name, "");
        let name = "tailwater_http_wait_seconds";
        let help = "How long a request on the HTTP port waited for its turn; those that got none are in tailwater_http_shed_total.";
        let _ = writeln!(out, "# TYPE {name} histogram\n# HELP {name} {help}");
        self.http_wait.render(&mut out, name, "");
        let labelled = [
            ("connections_refused", "side", "Refused transport handshakes.", &self.connections_refused),
            ("agents_refused", "reason", "Agents refused or ended by the collector.", &self.agents_refused),
            ("batches_refused", "reason", "Batches and drop events refused.", &self.batches_refused),
            (
                "limits_reached",
                "limit",
                "What was refused or left out because of a limit: of a message, of an agent, of names, of the analysis.",
                &self.limits.reached,
            ),
            ("findings", "kind", "What the analysis noticed about its inputs.", &self.findings),
            ("incidents", "kind", "Incidents closed.", &self.incidents),
            (
                "http_refused",
                "reason",
                "Connections to the HTTP port that were closed: too many, silent, or no TLS.",
                &self.http_refused,
            ),
            (
                "http_shed",
                "reason",
                "Requests on the HTTP port that were answered 503, as others were asked for: they waited too long for their turn (late), too many waited, in all or of one client, or too many bytes of answers were not taken yet (untaken).",
                &self.http_shed,
            ),
            (
                "access_refused",
                "reason",
                "Requests of those who showed no token or a wrong one, or whose role is too low.",
                &self.access_refused,
            ),
            (
                "enrolments",
                "result",
                "Agents that got a certificate (joined, renewed), or did not.",
                &self.enrolments,
            ),
        ];
        for (name, label, help, counter) in labelled {
            head(&mut out, name, help);
            let Ok(map) = counter.0.lock() else { continue };
            for (value, n) in map.iter() {
                let _ = writeln!(out, "tailwater_{name}_total{{{label}=\"{value}\"}} {n}");
            }
        }
        out
    }
}

fn head(out: &mut String, name: &str, help: &str) {
    let _ = writeln!(out, "# TYPE tailwater_{name} counter\n# HELP tailwater_{name} {help}");
}

/// Appends a gauge: its head, then one line per (labels, value).
pub fn gauge(out: &mut String, name: &str, help: &str, rows: &[(String, f64)]) {
    let _ = writeln!(out, "# TYPE tailwater_{name} gauge\n# HELP tailwater_{name} {help}");
    for (labels, value) in rows {
        let _ = writeln!(out, "tailwater_{name}{labels} {value}");
    }
}

/// Appends a counter: its head, then one line per (labels, value).
pub fn counter(out: &mut String, name: &str, help: &str, rows: &[(String, f64)]) {
    head(out, name, help);
    for (labels, value) in rows {
        let _ = writeln!(out, "tailwater_{name}_total{labels} {value}");
    }
}

/// `{host="web-1",signal="cpu"}`, escaped.
#[must_use]
pub fn labels(pairs: &[(&str, &str)]) -> String {
    let mut out = String::from("{");
    for (n, (name, value)) in pairs.iter().enumerate() {
        let comma = if n > 0 { "," } else { "" };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{comma}{name}=\"{value}\"");
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_one_type_line_per_name_and_escapes_labels() {
        let metrics = Metrics::default();
        metrics.batches.add(3);
        metrics.batches_refused.inc("absurd_value");
        let text = metrics.render();
        assert!(text.contains("\ntailwater_batches_received_total 3\n"), "{text}");
        assert!(text.contains("tailwater_batches_refused_total{reason=\"absurd_value\"} 1\n"));
        assert_eq!(text.matches("# TYPE tailwater_batches_refused counter").count(), 1);
        assert_eq!(labels(&[("host", "a\"b\\"), ("x", "\n")]), "{host=\"a\\\"b\\\\\",x=\"\\n\"}");
    }
}

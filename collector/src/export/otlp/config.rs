//! What can be said about OTLP: the `[otlp]` table, and the rules between its keys.

use crate::export::SECONDS_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How requests travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Protocol {
    /// gRPC over HTTP/2, usually port 4317.
    #[default]
    #[serde(rename = "grpc")]
    Grpc,
    /// Protobuf in POST requests, usually port 4318.
    #[serde(rename = "http/protobuf")]
    Http,
}

/// What is sent. Each has a queue and a sender of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Roll-ups, counters, limits, and the collector's own metrics.
    Metrics,
    /// One record per incident.
    Logs,
}

impl Signal {
    /// As in the configuration and in labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }
}

/// The receiver: the `[otlp]` table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Otlp {
    /// http:// or https://, without `/v1/metrics` and `/v1/logs`, which `http/protobuf` appends.
    pub endpoint: String,
    /// How requests travel.
    #[serde(default)]
    pub protocol: Protocol,
    /// What is sent.
    #[serde(default = "signals")]
    pub signals: Vec<Signal>,
    /// Length of a roll-up and pause between two of them, s.
    #[serde(default = "interval_seconds")]
    pub interval_seconds: u64,
    /// A file with headers for every request, one `name: value` a line, such as `authorization: Bearer abc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_file: Option<PathBuf>,
    /// PEM: the authorities to trust for https, instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// What one request may take, s.
    #[serde(default = "timeout_s")]
    pub timeout_s: u64,
    /// What may wait for the receiver, of each signal, MiB as sent; the oldest goes first.
    #[serde(default = "queue_mib_max")]
    pub queue_mib_max: usize,
    /// Further attributes of every resource, or others in place of `service.name` and `service.version`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource: BTreeMap<String, String>,
}

fn signals() -> Vec<Signal> {
    vec![Signal::Metrics, Signal::Logs]
}
fn interval_seconds() -> u64 {
    10
}
fn timeout_s() -> u64 {
    10
}
fn queue_mib_max() -> usize {
    16
}

impl Otlp {
    /// What one request may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }

    /// The first rule that is broken, with its key and a remedy.
    pub fn check(&self) -> Result<(), String> {
        let fault =
            |key: &str, what: &str, remedy: &str| Err(format!("otlp.{key}: {what}\n  remedy: {remedy}"));
        let of_signal = |path: &str| {
            let path = path.trim_end_matches('/');
            path.ends_with("/v1/metrics") || path.ends_with("/v1/logs")
        };
        match crate::send::http::address(&self.endpoint) {
            Err(why) => {
                return fault("endpoint", &why, "give it as http://host:4317 or https://host/path");
            }
            Ok(uri) if uri.query().is_some() => {
                return fault("endpoint", "must have no query", "put tokens into headers_file");
            }
            Ok(uri) if of_signal(uri.path()) => {
                let remedy = "leave out /v1/metrics and /v1/logs, which are appended";
                return fault("endpoint", "is the address of one signal", remedy);
            }
            Ok(_) => {}
        }
        if self.ca.is_some() && self.endpoint.starts_with("http://") {
            return fault("ca", "nothing is encrypted over http://", "leave it out, or use https://");
        }
        if self.signals.is_empty() {
            return fault("signals", "names nothing to send", "leave it out for metrics and logs");
        }
        if self.signals.iter().enumerate().any(|(n, s)| self.signals[..n].contains(s)) {
            return fault("signals", "names one twice", "leave it out for metrics and logs");
        }
        if !(1..=SECONDS_MAX).contains(&self.interval_seconds) {
            let what = format!("must be 1 to {SECONDS_MAX}, as long as windows are kept for roll-ups");
            return fault("interval_seconds", &what, "leave it out for 10");
        }
        if !(1..=300).contains(&self.timeout_s) {
            return fault("timeout_s", "must be 1 to 300", "leave it out for 10");
        }
        if !(1..=1024).contains(&self.queue_mib_max) {
            return fault("queue_mib_max", "must be 1 to 1024", "leave it out for 16");
        }
        if self.resource.keys().any(String::is_empty) {
            return fault("resource", "an attribute has no name", "such as deployment.environment.name");
        }
        if self.resource.contains_key("host.name") {
            return fault("resource", "host.name is the host that is told of", "leave it out");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_cannot_be_is_named_with_its_key() {
        let of = |text: &str| {
            let table: Otlp = toml::from_str(text).unwrap();
            table.check().map_err(|fault| {
                assert!(fault.contains("\n  remedy: "), "{fault}");
                fault.split(':').next().unwrap().to_owned()
            })
        };
        let fine = "endpoint = \"http://h:4317\"\n";
        let and = |more: &str| of(&format!("{fine}{more}\n"));
        assert_eq!(of(fine), Ok(()));
        assert_eq!(and("protocol = \"http/protobuf\"\nsignals = [\"logs\"]\ninterval_seconds = 30"), Ok(()));
        assert_eq!(and("resource = { \"deployment.environment.name\" = \"test\" }"), Ok(()));
        for (endpoint, what) in [
            ("h:4317", "without a scheme"),
            ("ftp://h", "another scheme"),
            ("http://h/v1/metrics", "of one signal"),
            ("http://h/otlp/v1/logs/", "of one signal"),
            ("http://h?token=x", "with a query"),
        ] {
            assert_eq!(of(&format!("endpoint = \"{endpoint}\"\n")), Err("otlp.endpoint".into()), "{what}");
        }
        for (more, key) in [
            ("ca = \"ca.crt\"", "ca"),
            ("signals = []", "signals"),
            ("signals = [\"logs\", \"logs\"]", "signals"),
            ("interval_seconds = 0", "interval_seconds"),
            ("interval_seconds = 31", "interval_seconds"),
            ("timeout_s = 0", "timeout_s"),
            ("queue_mib_max = 0", "queue_mib_max"),
            ("resource = { \"host.name\" = \"x\" }", "resource"),
            ("resource = { \"\" = \"x\" }", "resource"),
        ] {
            assert_eq!(and(more), Err(format!("otlp.{key}")), "{more}");
        }
        assert!(toml::from_str::<Otlp>(&format!("{fine}protocol = \"json\"\n")).is_err());
    }
}

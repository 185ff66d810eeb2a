//! An incident as a log record. Attributes of it have names of their own, below `tailwater.`; nothing is told as 0 that is not known.

use super::message::{SCHEMA_URL, attribute, resource, scope, text};
use crate::export::queue::Request;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use prost::Message;
use tailwater_model::Incident;
use tailwater_model::incident::Severity;

/// What the record is, for whoever routes by it.
pub(super) const EVENT_NAME: &str = "tailwater.incident";

fn int(name: &str, value: u64) -> KeyValue {
    attribute(name, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn double(name: &str, value: f64) -> KeyValue {
    attribute(name, Value::DoubleValue(value))
}

/// Connections were dropped: somebody waited. A queue that nearly overflowed or that was felt is none.
fn severity(of: Severity) -> SeverityNumber {
    match of {
        Severity::Critical => SeverityNumber::Error,
        Severity::Warning => SeverityNumber::Warn,
        Severity::Info => SeverityNumber::Info,
    }
}

/// The record of `incident`, as it was known at `now`, Unix ns.
pub(super) fn record(incident: &Incident, now_unix_ns: u64) -> LogRecord {
    let i = incident;
    let lasted_ns = i.end_unix_ns.saturating_sub(i.start_unix_ns);
    let mut attributes = vec![
        text("tailwater.incident.id", i.id.as_str()),
        int("tailwater.incident.version", i.version),
        text("tailwater.incident.kind", i.kind.name()),
        double("tailwater.incident.confidence", i.confidence),
        double("tailwater.incident.duration_seconds", lasted_ns as f64 / 1e9),
        double("tailwater.incident.clock_error_seconds", i.clock_error_ns as f64 / 1e9),
        text("tailwater.root.host", i.root.host.as_str()),
        text("tailwater.root.workload", i.root.workload.as_str()),
        text("tailwater.root.tier", i.root.tier.as_str()),
        text("tailwater.root.resource", i.root.resource.name()),
        int("tailwater.drops.packets", i.drops.iter().map(|d| d.count).sum()),
        int("tailwater.drops.connections", i.drops.iter().map(|d| d.connections).sum()),
        int("tailwater.vlrt.expected", i.vlrt.expected),
    ];
    if let Some(culprit) = i.root.culprits.first() {
        attributes.push(text("tailwater.root.culprit.command", culprit.comm.as_str()));
        attributes.push(text("tailwater.root.culprit.workload", culprit.workload.as_str()));
        attributes.push(double("tailwater.root.culprit.share", culprit.share));
    }
    if let Some(first) = i.drops.first() {
        attributes.push(text("tailwater.drops.host", first.host.as_str()));
        attributes.push(text("tailwater.drops.workload", first.workload.as_str()));
        attributes.push(text("tailwater.drops.tier", first.tier.as_str()));
        attributes.push(text("tailwater.drops.listener", first.listener.as_str()));
    }
    if let Some(sustained) = &i.sustained {
        attributes.push(text("tailwater.sustained.by", sustained.by.name()));
        attributes.push(double("tailwater.sustained.retry_share", sustained.retry_share));
        attributes.push(text("tailwater.sustained.way_out", sustained.way_out.as_str()));
    }
    if let Some(kinds) = i.vlrt.by_kind {
        attributes.push(int("tailwater.vlrt.retransmitted", kinds.retransmitted));
        attributes.push(int("tailwater.vlrt.queued", kinds.queued));
        attributes.push(int("tailwater.vlrt.unread", kinds.unread));
        attributes.push(int("tailwater.vlrt.inside", kinds.inside));
        attributes.push(int("tailwater.vlrt.behind", kinds.behind));
    }
    attributes.extend(i.vlrt.syn_retransmits.map(|n| int("tailwater.vlrt.syn_retransmits", n)));
    // An empty text: not known, as of an unobserved host.
    let empty = |a: &KeyValue| matches!(&a.value, Some(AnyValue { value: Some(Value::StringValue(s)) }) if s.is_empty());
    attributes.retain(|a| !empty(a));
    LogRecord {
        time_unix_nano: i.start_unix_ns,
        observed_time_unix_nano: now_unix_ns,
        severity_number: severity(i.severity) as i32,
        severity_text: i.severity.name().to_owned(),
        body: Some(AnyValue { value: Some(Value::StringValue(i.title.clone())) }),
        attributes,
        event_name: EVENT_NAME.to_owned(),
        ..LogRecord::default()
    }
}

/// A request with this one record; the collector is who tells it.
pub(super) fn request(common: &[KeyValue], record: LogRecord) -> Request {
    let scope_logs =
        vec![ScopeLogs { scope: Some(scope()), log_records: vec![record], ..ScopeLogs::default() }];
    let resource = Some(resource(common, ""));
    let of = ResourceLogs { resource, scope_logs, schema_url: SCHEMA_URL.to_owned() };
    let request = ExportLogsServiceRequest { resource_logs: vec![of] };
    Request { body: request.encode_to_vec().into(), samples: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::incident as fixture;

    fn of<'a>(record: &'a LogRecord, name: &str) -> Option<&'a Value> {
        let mut found = record.attributes.iter().filter(|a| a.key == name);
        let one = found.next()?.value.as_ref()?.value.as_ref();
        assert!(found.next().is_none(), "{name} twice");
        one
    }

    #[test]
    fn a_record_says_when_where_what_and_how_bad() {
        let incident = fixture("01A", 3);
        let record = record(&incident, 42);
        assert_eq!((record.time_unix_nano, record.observed_time_unix_nano), (incident.start_unix_ns, 42));
        assert_eq!((record.severity_number, record.severity_text.as_str()), (17, "critical"));
        let body = record.body.as_ref().unwrap().value.as_ref();
        assert_eq!(body, Some(&Value::StringValue(incident.title.clone())));
        assert_eq!(record.event_name, "tailwater.incident");
        let text = |s: &str| Value::StringValue(s.to_owned());
        for (name, right) in [
            ("tailwater.incident.id", text("01A")),
            ("tailwater.incident.version", Value::IntValue(3)),
            ("tailwater.incident.kind", text("upstream_ctqo")),
            ("tailwater.incident.confidence", Value::DoubleValue(0.97)),
            ("tailwater.incident.duration_seconds", Value::DoubleValue(0.9)),
            ("tailwater.root.host", text("app-1")),
            ("tailwater.root.tier", text("app")),
            ("tailwater.root.resource", text("cpu_neighbour")),
            ("tailwater.root.culprit.command", text("burner")),
            ("tailwater.root.culprit.share", Value::DoubleValue(0.96)),
            ("tailwater.drops.packets", Value::IntValue(122)),
            ("tailwater.drops.connections", Value::IntValue(118)),
            ("tailwater.drops.listener", text("10.0.0.1:80")),
            ("tailwater.vlrt.expected", Value::IntValue(118)),
            ("tailwater.vlrt.syn_retransmits", Value::IntValue(122)),
        ] {
            assert_eq!(of(&record, name), Some(&right), "{name}");
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut incident = fixture("01A", 1);
        incident.severity = Severity::Warning;
        incident.drops.clear();
        incident.root.culprits.clear();
        incident.root.workload.clear();
        incident.vlrt.syn_retransmits = None;
        let record = record(&incident, 42);
        assert_eq!((record.severity_number, record.severity_text.as_str()), (13, "warning"));
        assert_eq!(
            of(&record, "tailwater.drops.packets"),
            Some(&Value::IntValue(0)),
            "none, and that is known"
        );
        for name in [
            "tailwater.root.culprit.command",
            "tailwater.root.workload",
            "tailwater.drops.host",
            "tailwater.vlrt.syn_retransmits",
        ] {
            assert_eq!(of(&record, name), None, "{name}");
        }
    }
}

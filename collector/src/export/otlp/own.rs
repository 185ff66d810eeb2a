//! The collector's own metrics as data points. They are read from the OpenMetrics text that `/metrics` answers with, which is the one list
//! of them: what is told there is told here, under the same name and labels.

use super::message::{Batch, Head, Kind, point, text, ucum};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;

/// Adds what `exposition` says, as of `now`; counters count from `started`, both Unix ns. Returns how many lines it did not understand.
pub(super) fn add(batch: &mut Batch, exposition: &str, (started, now): (u64, u64)) -> usize {
    let mut head: Option<Head> = None;
    let mut strange = 0;
    let mut buckets = HistogramDataPoint::default();
    for line in exposition.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            head = Some(Head {
                name: name.to_owned(),
                about: String::new(),
                unit: unit(name),
                kind: match kind {
                    "counter" => Kind::Counter,
                    "histogram" => Kind::Histogram,
                    _ => Kind::Gauge,
                },
            });
        } else if let Some((name, about)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
        {
            if let Some(head) = head.as_mut().filter(|head| head.name == name) {
                about.clone_into(&mut head.about);
            }
        } else if line.is_empty() || line == "# EOF" {
            // Says nothing.
        } else if let Some((head, (end, attributes, value))) =
            head.as_ref().and_then(|h| Some((h, sample(h, line)?)))
        {
            if head.kind == Kind::Histogram {
                if let Some(point) = gathered(&mut buckets, end, attributes, value) {
                    let times = (started, now);
                    let point = HistogramDataPoint {
                        start_time_unix_nano: times.0,
                        time_unix_nano: times.1,
                        ..point
                    };
                    batch.add_histogram("", head, point);
                }
                continue;
            }
            let from = if head.kind == Kind::Counter { started } else { 0 };
            batch.add("", head, point(attributes, (from, now), Some(Value::AsDouble(value))));
        } else {
            strange += 1;
        }
    }
    strange
}

/// From the name's end: these names say it in base units.
fn unit(name: &str) -> String {
    let of = [("_seconds", "s"), ("_bytes", "bytes"), ("_ratio", "ratio")];
    of.into_iter().find_map(|(end, unit)| name.ends_with(end).then(|| ucum(unit))).unwrap_or_default()
}

/// Takes a line of a histogram, which come as its buckets, its count and its sum; with the last of them it is whole. OpenMetrics counts
/// what is below each bound, OTLP what is between two.
fn gathered(
    so_far: &mut HistogramDataPoint,
    end: &str,
    mut attributes: Vec<KeyValue>,
    value: f64,
) -> Option<HistogramDataPoint> {
    match end {
        "_bucket" => {
            // `le` is a bucket's last label.
            let bound = attributes.pop().and_then(|le| bound(&le))?;
            if bound.is_finite() {
                so_far.explicit_bounds.push(bound);
            }
            let below: u64 = so_far.bucket_counts.iter().sum();
            so_far.bucket_counts.push((value as u64).saturating_sub(below));
            None
        }
        "_count" => {
            so_far.count = value as u64;
            None
        }
        _ => Some(HistogramDataPoint { attributes, sum: Some(value), ..std::mem::take(so_far) }),
    }
}

fn bound(le: &KeyValue) -> Option<f64> {
    match le.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(bound) => bound.parse().ok(),
        _ => None,
    }
}

/// `name{label="value",…} value` of this metric: how the name ends, the labels and the value.
fn sample<'a>(head: &Head, line: &'a str) -> Option<(&'a str, Vec<KeyValue>, f64)> {
    let rest = line.strip_prefix(head.name.as_str())?;
    let ends: &[&str] = match head.kind {
        Kind::Gauge => &[""],
        Kind::Counter => &["_total"],
        Kind::Histogram => &["_bucket", "_count", "_sum"],
    };
    let end = ends.iter().find(|end| rest.starts_with(**end))?;
    let (end, mut rest) = rest.split_at(end.len());
    let mut attributes = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (name, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            attributes.push(text(name, value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = rest.strip_prefix('}')?;
    }
    Some((end, attributes, rest.strip_prefix(' ')?.parse().ok()?))
}

/// A label's value up to its closing quote, unescaped, and what follows.
fn quoted(from: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = from.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((value, from.get(at + 1..)?)),
            (_, '\\') => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            (_, other) => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::common;
    use super::*;
    use crate::alert::stats::Stats;
    use crate::counters::{Metrics, gauge, labels};
    use crate::moments::Moments;
    use crate::send::http::Written;
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    use prost::Message;
    use std::collections::BTreeMap;

    #[test]
    fn what_the_text_says_is_told_with_its_kind_labels_and_unit() {
        let metrics = Metrics::default();
        metrics.batches.add(3);
        metrics.batches_refused.inc("absurd_value");
        let mut exposition = metrics.render();
        let strange = labels(&[("host", "a\"b\\c,d}e"), ("line", "x\ny")]);
        gauge(
            &mut exposition,
            "some_seconds",
            "Seconds of something.",
            &[(strange, 1.5), ("{}".into(), 0.0)],
        );
        exposition.push_str("# EOF\n");
        let mut batch = Batch::new(common(&BTreeMap::new()));
        assert_eq!(add(&mut batch, &exposition, (7, 9)), 0, "every line of it:\n{exposition}");
        let body = batch.requests().remove(0).body;
        let resource = ExportMetricsServiceRequest::decode(body).unwrap().resource_metrics.remove(0);
        assert!(resource.resource.unwrap().attributes.iter().all(|a| a.key != "host.name"));
        let metrics = &resource.scope_metrics[0].metrics;
        let of = |name: &str| metrics.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("no {name}"));
        let received = of("tailwater_batches_received");
        assert_eq!(received.description, "Batches of windows taken.");
        let Some(Data::Sum(sum)) = &received.data else { panic!("{received:?}") };
        let one = &sum.data_points[0];
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        assert_eq!(
            (one.start_time_unix_nano, one.time_unix_nano, one.value),
            (7, 9, Some(Value::AsDouble(3.0)))
        );
        let Some(Data::Sum(sum)) = &of("tailwater_batches_refused").data else { panic!() };
        assert_eq!(sum.data_points[0].attributes, [text("reason", "absurd_value")]);
        let seconds = of("tailwater_some_seconds");
        let Some(Data::Gauge(gauge)) = &seconds.data else { panic!("{seconds:?}") };
        assert_eq!(seconds.unit, "s");
        assert_eq!(gauge.data_points[0].attributes, [text("host", "a\"b\\c,d}e"), text("line", "x\ny")]);
        assert!(gauge.data_points[1].attributes.is_empty());
    }

    #[test]
    fn a_histogram_counts_between_its_bounds() {
        let stats = Stats::default();
        let moments = Moments { dropped: 1, read: 3_000_001, ..Moments::default() };
        for answered in [3_000_001, 60_000_001] {
            stats.latency.told(&moments, 0, &Written::default(), answered);
        }
        let mut exposition = String::new();
        stats.render(&mut exposition);
        let mut batch = Batch::new(Vec::new());
        assert_eq!(add(&mut batch, &exposition, (7, 9)), 0);
        let body = batch.requests().remove(0).body;
        let resource = ExportMetricsServiceRequest::decode(body).unwrap().resource_metrics.remove(0);
        let stages = resource.scope_metrics[0]
            .metrics
            .iter()
            .find(|m| m.name == "tailwater_early_alert_stage_seconds")
            .unwrap();
        let Some(Data::Histogram(histogram)) = &stages.data else { panic!("{stages:?}") };
        assert_eq!((stages.unit.as_str(), histogram.aggregation_temporality), ("s", 2));
        let of = |stage: &str| {
            let mut all = histogram.data_points.iter();
            all.find(|p| p.attributes == [text("stage", stage)]).unwrap_or_else(|| panic!("no {stage}"))
        };
        let (read, answer) = (of("agent_read"), of("answer"));
        assert_eq!((read.count, read.start_time_unix_nano, read.time_unix_nano), (2, 7, 9));
        assert_eq!(read.explicit_bounds[..3], [0.001, 0.002, 0.005]);
        assert_eq!(read.bucket_counts.len(), read.explicit_bounds.len() + 1);
        assert_eq!((read.bucket_counts[2], read.bucket_counts.iter().sum::<u64>()), (2, 2));
        assert_eq!((answer.bucket_counts[0], answer.bucket_counts[6], answer.sum), (1, 1, Some(0.057)));
    }

    #[test]
    fn a_line_that_is_none_is_counted_and_no_other_is_lost() {
        let text = "# TYPE a gauge\n# HELP a A.\na{x=\"1\" 1\na{x=\"1\"}\nb 1\na 2\n";
        let mut batch = Batch::new(Vec::new());
        assert_eq!(add(&mut batch, text, (0, 1)), 3);
        assert_eq!(batch.requests()[0].samples, 1);
    }
}

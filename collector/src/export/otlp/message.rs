//! Messages of OTLP in the making: attributes, resources, and data points gathered into requests of bounded size. Knows no window, no
//! incident and no receiver.

use crate::export::queue::Request;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, DataPointFlags, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::collections::BTreeMap;

/// The semantic conventions that the resources' attributes are from.
pub(super) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.27.0";
/// A request is cut when it is about as long as this: servers of gRPC take 4 MiB unless told otherwise.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// What a message within a message takes besides itself, at most, in requests of this size.
const FRAME_BYTES: usize = 8;

/// An attribute.
pub(super) fn attribute(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// An attribute that is a text.
pub(super) fn text(name: &str, value: impl Into<String>) -> KeyValue {
    attribute(name, Value::StringValue(value.into()))
}

/// Attributes that every resource has, with what the configuration adds or puts in their place.
pub(super) fn common(configured: &BTreeMap<String, String>) -> Vec<KeyValue> {
    let mut all = BTreeMap::from([
        ("service.name".to_owned(), "tailwater".to_owned()),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        // Two collectors' streams must not be taken for one; a restarted one counts anew.
        ("service.instance.id".to_owned(), format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..))),
    ]);
    all.extend(configured.iter().map(|(name, value)| (name.clone(), value.clone())));
    all.into_iter().map(|(name, value)| text(&name, value)).collect()
}

/// The resource that is told of: a host, or with an empty name the collector itself.
pub(super) fn resource(common: &[KeyValue], host: &str) -> Resource {
    let mut attributes = common.to_vec();
    if !host.is_empty() {
        attributes.push(text("host.name", host));
    }
    Resource { attributes, ..Resource::default() }
}

/// Who measured.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "tailwater".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// What a metric is called, and how its points are to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// As in the OpenMetrics text, without `_total`, which receivers that speak Prometheus append.
    pub(super) name: String,
    /// Help text.
    pub(super) about: String,
    /// UCUM.
    pub(super) unit: String,
    /// Which of them it is.
    pub(super) kind: Kind,
}

/// What a metric's points are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    /// Cumulative and monotonic.
    Counter,
    /// Cumulative.
    Histogram,
}

impl Head {
    fn metric(&self) -> Metric {
        let aggregation_temporality = AggregationTemporality::Cumulative as i32;
        let data = match self.kind {
            Kind::Gauge => Data::Gauge(Gauge::default()),
            Kind::Counter => Data::Sum(Sum { aggregation_temporality, is_monotonic: true, ..Sum::default() }),
            Kind::Histogram => Data::Histogram(Histogram { aggregation_temporality, ..Histogram::default() }),
        };
        Metric {
            name: self.name.clone(),
            description: self.about.clone(),
            unit: self.unit.clone(),
            data: Some(data),
            ..Metric::default()
        }
    }
}

/// A unit of the documentation in UCUM: what is counted is an annotation, which has no dimension.
pub(super) fn ucum(unit: &str) -> String {
    match unit {
        "" => String::new(),
        "ratio" => "1".to_owned(),
        "s" => "s".to_owned(),
        "bytes" => "By".to_owned(),
        counted => format!("{{{counted}}}"),
    }
}

/// A data point from the first to the second Unix time, ns. Without a value: that the series ends here.
pub(super) fn point(
    attributes: Vec<KeyValue>,
    (from, to): (u64, u64),
    value: Option<number_data_point::Value>,
) -> NumberDataPoint {
    let flags = if value.is_none() { DataPointFlags::NoRecordedValueMask as u32 } else { 0 };
    NumberDataPoint {
        attributes,
        start_time_unix_nano: from,
        time_unix_nano: to,
        flags,
        value,
        ..NumberDataPoint::default()
    }
}

/// Data points on their way into requests.
#[derive(Debug)]
pub(super) struct Batch {
    common: Vec<KeyValue>,
    host: String,
    metrics: Vec<Metric>,
    resources: Vec<ResourceMetrics>,
    bytes: usize,
    points: u64,
    ready: Vec<Request>,
}

impl Batch {
    /// With these attributes of every resource.
    pub(super) fn new(common: Vec<KeyValue>) -> Self {
        Self {
            common,
            host: String::new(),
            metrics: Vec::new(),
            resources: Vec::new(),
            bytes: 0,
            points: 0,
            ready: Vec::new(),
        }
    }

    /// Adds a point of a host, or with an empty name of the collector. Those of one host come together.
    pub(super) fn add(&mut self, host: &str, head: &Head, point: NumberDataPoint) {
        let bytes = point.encoded_len();
        match self.data(host, head) {
            Some(Data::Sum(sum)) => sum.data_points.push(point),
            Some(Data::Gauge(gauge)) => gauge.data_points.push(point),
            // A histogram has points of its own, and `Head::metric` makes no others.
            _ => return,
        }
        self.added(bytes);
    }

    /// The same, of a histogram.
    pub(super) fn add_histogram(&mut self, host: &str, head: &Head, point: HistogramDataPoint) {
        let bytes = point.encoded_len();
        let Some(Data::Histogram(histogram)) = self.data(host, head) else { return };
        histogram.data_points.push(point);
        self.added(bytes);
    }

    fn data(&mut self, host: &str, head: &Head) -> &mut Option<Data> {
        if self.host != host {
            self.close_host();
            host.clone_into(&mut self.host);
        }
        let at = self.metrics.iter().position(|m| m.name == head.name).unwrap_or_else(|| {
            let metric = head.metric();
            self.bytes += metric.encoded_len() + FRAME_BYTES;
            self.metrics.push(metric);
            self.metrics.len() - 1
        });
        &mut self.metrics[at].data
    }

    fn added(&mut self, bytes: usize) {
        self.bytes += bytes + FRAME_BYTES;
        self.points += 1;
        if self.bytes >= REQUEST_BYTES_MAX {
            self.cut();
        }
    }

    fn close_host(&mut self) {
        if self.metrics.is_empty() {
            return;
        }
        let scope = ScopeMetrics {
            scope: Some(scope()),
            metrics: std::mem::take(&mut self.metrics),
            ..ScopeMetrics::default()
        };
        let resource = resource(&self.common, &self.host);
        self.bytes += resource.encoded_len() + SCHEMA_URL.len() + 8 * FRAME_BYTES;
        self.resources.push(ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![scope],
            schema_url: SCHEMA_URL.to_owned(),
        });
    }

    fn cut(&mut self) {
        self.close_host();
        if self.resources.is_empty() {
            return;
        }
        let request = ExportMetricsServiceRequest { resource_metrics: std::mem::take(&mut self.resources) };
        self.ready.push(Request { body: request.encode_to_vec().into(), samples: self.points });
        (self.bytes, self.points) = (0, 0);
    }

    /// All that was added, as it is sent.
    pub(super) fn requests(&mut self) -> Vec<Request> {
        self.cut();
        std::mem::take(&mut self.ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(name: &str) -> Head {
        Head { name: name.into(), about: "What.".into(), unit: "1".into(), kind: Kind::Gauge }
    }

    #[test]
    fn requests_are_cut_at_their_size_and_lose_nothing() {
        let mut batch = Batch::new(common(&BTreeMap::new()));
        let long = "x".repeat(200);
        for n in 0..20_000_u32 {
            let attributes = vec![text("workload", format!("{long}{n}"))];
            let value = Some(number_data_point::Value::AsDouble(f64::from(n)));
            batch.add(
                if n < 10_000 { "a" } else { "b" },
                &head("tailwater_x"),
                point(attributes, (1, 2), value),
            );
        }
        let requests = batch.requests();
        assert!(requests.len() > 3, "{}", requests.len());
        assert_eq!(requests.iter().map(|r| r.samples).sum::<u64>(), 20_000);
        let mut values = Vec::new();
        for request in &requests {
            assert!(request.body.len() <= REQUEST_BYTES_MAX + 4096, "{}", request.body.len());
            let request = ExportMetricsServiceRequest::decode(request.body.clone()).unwrap();
            for resource in request.resource_metrics {
                let host = resource.resource.unwrap().attributes.pop().unwrap();
                assert_eq!(host.key, "host.name");
                let metrics = &resource.scope_metrics[0].metrics;
                assert_eq!(metrics.len(), 1, "one of a name");
                let Some(Data::Gauge(gauge)) = &metrics[0].data else { panic!("{metrics:?}") };
                values.extend(gauge.data_points.iter().map(|p| p.value.unwrap()));
            }
        }
        let right: Vec<_> =
            (0..20_000_u32).map(|n| number_data_point::Value::AsDouble(f64::from(n))).collect();
        assert_eq!(values, right);
        assert!(batch.requests().is_empty(), "nothing twice, and no empty request");
    }

    #[test]
    fn the_configuration_adds_to_a_resource_and_may_name_the_service() {
        assert!(common(&BTreeMap::new()).iter().any(|a| a.key == "service.instance.id"));
        let configured =
            [("service.name", "edge"), ("service.instance.id", "1"), ("deployment.environment.name", "test")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let all = resource(&common(&configured.into()), "web-1").attributes;
        let version = text("service.version", env!("CARGO_PKG_VERSION"));
        let right = [
            text("deployment.environment.name", "test"),
            text("service.instance.id", "1"),
            text("service.name", "edge"),
            version,
            text("host.name", "web-1"),
        ];
        assert_eq!(all, right);
    }

    #[test]
    fn units_are_those_of_ucum() {
        let of = ["ratio", "s", "bytes", "connections", ""].map(ucum);
        assert_eq!(of, ["1", "s", "By", "{connections}", ""]);
    }
}

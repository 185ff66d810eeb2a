//! Roll-ups as data points: which, of when, and in what order.

use super::super::message::common;
use super::*;
use crate::export::Bounds;
use crate::export::receiver::Receiver;
use crate::export::rows::Labels;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use prost::Message;
use tailwater_model::names::Names;
use tailwater_model::window::{Coverage, HostCpu, HostWindow, ListenerInfo, ListenerWindow, WorkloadInfo};

/// The first window, at the beginning of an interval of 10 s.
const NOW: u64 = 34_000_000_000;
/// Windows in ten seconds.
const TEN: u64 = 10 * PER_SECOND;

struct Running {
    state: State,
    sink: Sink,
    queue: Arc<Queue>,
}

fn at(n: u64) -> u64 {
    WindowIndex(NOW + n).start_unix_ns()
}

impl Running {
    fn new() -> Self {
        Self::every(10)
    }

    fn every(seconds: u64) -> Self {
        let queue = Arc::new(Queue::new(1 << 20, Arc::new(Receiver::default())));
        let sink = Sink::new(seconds, common(&BTreeMap::new()), Arc::clone(&queue));
        Self { state: State::new(&Bounds::default()), sink, queue }
    }

    /// The nth window of `host`, with so many drops of a full queue.
    fn window(&mut self, host: &str, n: u64, drops: u64) {
        let mut names = Names::default();
        names.workloads.insert(1, WorkloadInfo { id: 1, name: "apache2".into(), ..WorkloadInfo::default() });
        let address = [10, 0, 0, 1].into();
        names.listeners.insert(
            1,
            ListenerInfo {
                id: 1,
                workload: 1,
                address,
                port: 80,
                path: None,
                comm: String::new(),
                pool: None,
                started_with: 0,
                pid: 0,
            },
        );
        let mut w = HostWindow { host: host.into(), index: WindowIndex(NOW + n), ..HostWindow::default() };
        w.cpu = Some(HostCpu { capacity_ns: 100_000_000, busy_ns: 50_000_000, ..HostCpu::default() });
        let depth_max = if drops > 0 { 129 } else { 1 };
        w.listeners.insert(
            1,
            ListenerWindow { drops, drops_syn: drops, depth_max, limit: 128, ..ListenerWindow::default() },
        );
        let w = Arc::new(w);
        let coverage = Coverage { cpu: true, accept_queue: true, ..Coverage::default() };
        self.state.hosts.entry(host.into()).or_default().coverage = coverage;
        self.state.window(&w, || Labels::read(&w, &names));
    }

    /// What a turn at the beginning of the nth window queues, by host.
    fn turn(&mut self, n: u64) -> BTreeMap<String, Vec<Metric>> {
        self.sink.turn(&self.state, at(n), false);
        let mut all: BTreeMap<String, Vec<Metric>> = BTreeMap::new();
        while let Some(request) = self.queue.take() {
            let request = ExportMetricsServiceRequest::decode(request.body).unwrap();
            for mut of in request.resource_metrics {
                assert!(of.schema_url.starts_with("https://opentelemetry.io/schemas/"));
                assert_eq!(of.scope_metrics[0].scope.as_ref().unwrap().name, "tailwater");
                let attributes = of.resource.unwrap().attributes;
                let host = value(&attributes, "host.name").unwrap();
                assert_eq!(value(&attributes, "service.name").as_deref(), Some("tailwater"));
                all.entry(host).or_default().append(&mut of.scope_metrics[0].metrics);
            }
        }
        all
    }
}

fn value(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|a| a.key == name)?;
    match found.value.as_ref()? {
        AnyValue { value: Some(any_value::Value::StringValue(text)) } => Some(text.clone()),
        other => panic!("{name} is no text: {other:?}"),
    }
}

fn points<'a>(metrics: &'a [Metric], name: &str) -> &'a [NumberDataPoint] {
    match metrics.iter().find(|m| m.name == name).and_then(|m| m.data.as_ref()) {
        None => &[],
        Some(Data::Gauge(gauge)) => &gauge.data_points,
        Some(Data::Sum(sum)) => {
            assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "{name}");
            &sum.data_points
        }
        Some(other) => panic!("{other:?}"),
    }
}

/// The points of one metric that have these attributes among theirs.
fn having<'a>(metrics: &'a [Metric], name: &str, with: &[(&str, &str)]) -> Vec<&'a NumberDataPoint> {
    let all = points(metrics, name).iter();
    let fits =
        |p: &&NumberDataPoint| with.iter().all(|(n, v)| value(&p.attributes, n).as_deref() == Some(*v));
    all.filter(fits).collect()
}

#[test]
fn an_interval_is_told_once_with_its_gauges_and_the_counters_so_far() {
    let mut running = Running::new();
    for n in 0..TEN + 45 {
        running.window("web-1", n, if n == 150 { 7 } else { 0 });
        if n == TEN + 30 {
            assert!(running.turn(n).is_empty(), "tiers are not known yet");
        }
    }
    let told = running.turn(TEN + 45).remove("web-1").unwrap();
    let depth = |agg| having(&told, "tailwater_accept_queue_depth", &[("agg", agg)]);
    let max = depth("max");
    assert_eq!((max.len(), depth("mean").len(), depth("p90").len()), (1, 1, 1));
    assert_eq!(max[0].value, Some(Value::AsDouble(129.0)), "a peak of one window");
    assert_eq!((max[0].start_time_unix_nano, max[0].time_unix_nano), (at(0), at(TEN)));
    let names: Vec<_> = max[0].attributes.iter().map(|a| a.key.as_str()).collect();
    assert_eq!(names, ["host", "workload", "listener", "agg"], "no tier yet");
    let drops = having(&told, "tailwater_listen_drops", &[("reason", "syn"), ("listener", "10.0.0.1:80")]);
    assert_eq!(drops.len(), 1);
    assert_eq!(drops[0].value, Some(Value::AsInt(7)));
    assert_eq!((drops[0].start_time_unix_nano, drops[0].time_unix_nano), (at(0), at(TEN + 45)));
    assert_eq!(points(&told, "tailwater_listen_drops").len(), 2, "by reason");
    assert_eq!(points(&told, "tailwater_accept_queue_limit")[0].value, Some(Value::AsDouble(128.0)));
    assert_eq!(points(&told, "tailwater_windows_present_ratio")[0].value, Some(Value::AsDouble(1.0)));
    assert!(points(&told, "tailwater_calls_in_flight").is_empty(), "what is not covered is not told");
    let of = |name: &str| told.iter().find(|m| m.name == name).unwrap();
    assert_eq!(of("tailwater_accept_queue_depth").unit, "{connections}");
    assert_eq!(of("tailwater_cpu_busy_ratio").unit, "1");
    assert!(of("tailwater_listen_drops").description.starts_with("Packets that the listener dropped"));
    assert!(running.turn(TEN + 46).is_empty(), "nothing twice");
}

#[test]
fn a_tier_that_is_known_is_an_attribute() {
    let mut running = Running::new();
    (0..TEN + 40).for_each(|n| running.window("web-1", n, 0));
    running.state.tiers.insert(("web-1".into(), "apache2".into()), "web".into());
    let told = running.turn(TEN + 40).remove("web-1").unwrap();
    assert_eq!(having(&told, "tailwater_accept_queue_depth", &[("tier", "web"), ("agg", "max")]).len(), 1);
}

#[test]
fn late_windows_are_waited_for_while_they_come_and_each_host_by_itself() {
    let mut running = Running::new();
    (0..TEN + 100).for_each(|n| running.window("web-1", n, 0));
    // An agent that was away sends what it kept, in portions, long after: its peak is in the last of them.
    (0..100).for_each(|n| running.window("db-1", n, 0));
    let told = running.turn(TEN + 100);
    assert_eq!(told.keys().collect::<Vec<_>>(), ["web-1"], "db-1 has not come to the interval's end");
    (100..TEN).for_each(|n| running.window("db-1", n, if n == TEN - 1 { 3 } else { 0 }));
    let told = running.turn(TEN + 102).remove("db-1").unwrap();
    let max = having(&told, "tailwater_accept_queue_depth", &[("agg", "max")]);
    assert_eq!(max[0].value, Some(Value::AsDouble(129.0)));
    assert_eq!(points(&told, "tailwater_windows_present_ratio")[0].value, Some(Value::AsDouble(1.0)));
}

#[test]
fn counters_are_told_once_as_of_a_window_though_two_intervals_end_with_it() {
    let mut running = Running::new();
    for n in 0..TEN + 50 {
        running.window("web-1", n, 1);
    }
    let drops = |told: BTreeMap<String, Vec<Metric>>| {
        let lasting = having(&told["web-1"], "tailwater_listen_drops", &[("reason", "syn")]);
        (
            told["web-1"].len(),
            lasting.iter().filter(|p| p.flags == 0).map(|p| p.time_unix_nano).collect::<Vec<_>>(),
        )
    };
    assert_eq!(drops(running.turn(TEN + 50)).1, [at(TEN + 50)]);
    // The rest of the second interval, once no more of it comes.
    let (metrics, again) = drops(running.turn(2 * TEN + 45));
    assert!(metrics > 0 && again.is_empty(), "{again:?}");
}

#[test]
fn a_host_that_falls_silent_ends_its_series_once_and_goes_on_when_it_is_back() {
    let mut running = Running::new();
    (0..TEN + 60).for_each(|n| running.window("web-1", n, 0));
    assert_eq!(running.turn(TEN + 60).len(), 1);
    // The rest of the interval does not come: once it is over, what there is of it is told, and that the series end.
    assert!(running.turn(2 * TEN).is_empty());
    let told = running.turn(2 * TEN + 41).remove("web-1").unwrap();
    let max = having(&told, "tailwater_accept_queue_depth", &[("agg", "max")]);
    assert_eq!(max.len(), 2);
    assert_eq!((max[0].time_unix_nano, max[0].flags), (at(2 * TEN), 0));
    assert_eq!((max[1].time_unix_nano, max[1].flags, max[1].value), (at(2 * TEN) + AFTER_NS, 1, None));
    assert_eq!(points(&told, "tailwater_windows_present_ratio")[0].value, Some(Value::AsDouble(0.3)));
    assert!(points(&told, "tailwater_listen_drops").iter().any(|p| p.flags == 1));
    assert!(running.turn(3 * TEN).is_empty(), "once");
    (4 * TEN..5 * TEN + 50).for_each(|n| running.window("web-1", n, 0));
    let told = running.turn(5 * TEN + 50).remove("web-1").unwrap();
    let max = having(&told, "tailwater_accept_queue_depth", &[("agg", "max")]);
    assert_eq!(max.len(), 1);
    assert_eq!((max[0].start_time_unix_nano, max[0].time_unix_nano), (at(4 * TEN), at(5 * TEN)));
}

#[test]
fn an_interval_without_a_window_is_a_gap() {
    let mut running = Running::new();
    (0..TEN + 40).for_each(|n| running.window("web-1", n, 0));
    running.turn(TEN + 40);
    // The windows between went missing on the way, unnoticed until the next ones come.
    (2 * TEN..3 * TEN + 40).for_each(|n| running.window("web-1", n, 0));
    let told = running.turn(3 * TEN + 40).remove("web-1").unwrap();
    let busy: Vec<_> = having(&told, "tailwater_cpu_busy_ratio", &[("agg", "mean")])
        .into_iter()
        .map(|p| (p.time_unix_nano, p.value))
        .collect();
    let half = Some(Value::AsDouble(0.5));
    // Of the second interval two seconds had come.
    assert_eq!(busy, [(at(2 * TEN), half), (at(3 * TEN), half)]);
    (5 * TEN..6 * TEN + 40).for_each(|n| running.window("web-1", n, 0));
    let told = running.turn(6 * TEN + 40).remove("web-1").unwrap();
    let busy: Vec<_> = having(&told, "tailwater_cpu_busy_ratio", &[("agg", "mean")])
        .into_iter()
        .map(|p| (p.time_unix_nano, p.value))
        .collect();
    assert_eq!(busy, [(at(4 * TEN), half), (at(5 * TEN), None), (at(6 * TEN), half)]);
}

#[test]
fn what_comes_after_a_silence_is_told_with_later_times_than_the_end() {
    let mut running = Running::every(1);
    let mut told: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut take = |all: BTreeMap<String, Vec<Metric>>| {
        for metric in all.values().flatten() {
            for p in points(std::slice::from_ref(metric), &metric.name) {
                let names: Vec<_> =
                    p.attributes.iter().filter_map(|a| value(&p.attributes, &a.key)).collect();
                told.entry(format!("{} {}", metric.name, names.join(" ")))
                    .or_default()
                    .push(p.time_unix_nano);
            }
        }
    };
    for n in 0..50 {
        running.window("web-1", n, 1);
    }
    take(running.turn(50));
    // The agent is away for 20 s, and sends what it kept; two seconds in the middle are lost.
    (55..450).step_by(5).for_each(|n| take(running.turn(n)));
    for n in (50..200).chain(240..460) {
        running.window("web-1", n, 1);
    }
    (460..520).step_by(5).for_each(|n| take(running.turn(n)));
    assert!(told.len() > 5 && told.values().any(|times| times.len() > 10), "{told:?}");
    for (series, times) in &told {
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{series}: {times:?}");
    }
}

#[test]
fn at_the_end_everything_is_due() {
    let mut running = Running::new();
    for n in 0..30 {
        running.window("web-1", n, 1);
    }
    assert!(running.turn(31).is_empty());
    running.sink.turn(&running.state, at(31), true);
    let request = ExportMetricsServiceRequest::decode(running.queue.take().unwrap().body).unwrap();
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    assert_eq!(
        having(metrics, "tailwater_listen_drops", &[("reason", "syn")])[0].value,
        Some(Value::AsInt(30))
    );
    assert_eq!(points(metrics, "tailwater_windows_present_ratio")[0].value, Some(Value::AsDouble(0.15)));
}

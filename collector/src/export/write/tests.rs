//! Remote write against real receivers on real sockets: good, failing, refusing and hanging ones.

#![allow(clippy::disallowed_methods, reason = "tests need deadlines")]

use super::super::{Bounds, rows::Labels};
use super::batch::STALE;
use super::message::WriteRequest;
use super::*;
use crate::alert::tests::receiver_server::{Answer, Got, Receiver};
use crate::export::queue::Request;
use crate::fixture::incident as fixture;
use prost::Message;
use std::time::Duration;
use tailwater_model::names::Names;
use tailwater_model::window::{Coverage, HostCpu};

fn table(url: &str, resolution: Resolution) -> RemoteWrite {
    RemoteWrite {
        url: url.into(),
        resolution,
        name: Some("test".into()),
        authorization_file: None,
        ca: None,
        timeout_s: 1,
        queue_mib_max: 1,
    }
}

struct Running {
    sinks: Sinks,
    state: State,
    stats: stats::Stats,
    stop: CancellationToken,
    incidents: broadcast::Sender<Arc<Incident>>,
    now_unix_ns: u64,
}

impl Running {
    fn start(url: &str, resolution: Resolution) -> Self {
        let (stats, stop, tasks) = (stats::Stats::default(), CancellationToken::new(), TaskTracker::new());
        let (incidents, heard) = broadcast::channel(8);
        let sinks = super::start(&[table(url, resolution)], &stats, heard, &tasks, &stop).unwrap();
        Self { sinks, state: State::new(&Bounds::default()), stats, stop, incidents, now_unix_ns: 0 }
    }

    /// A window of `host`, busy for `n` ms.
    fn window(&mut self, host: &str, index: u64, n: u64) {
        let mut window = HostWindow { host: host.into(), index: WindowIndex(index), ..HostWindow::default() };
        window.cpu = Some(HostCpu { capacity_ns: 100_000_000, busy_ns: n * 1_000_000, ..HostCpu::default() });
        let coverage = Coverage { cpu: true, ..Coverage::default() };
        self.state.hosts.entry(host.into()).or_default().coverage = coverage;
        let window = Arc::new(window);
        assert!(self.state.window(&window, || Labels::read(&window, &Names::default())));
        self.now_unix_ns = window.index.end_unix_ns() + DELAY_NS;
        self.sinks.window(&self.state, &window.host, self.now_unix_ns);
    }

    fn turn(&mut self) {
        self.sinks.turn(&self.state, true, self.now_unix_ns);
    }

    /// Turns, as the thread does: what is gathered goes when the receiver has nothing else to do.
    async fn until(&mut self, what: &str, enough: impl Fn(&crate::export::receiver::Receiver) -> bool) {
        let of = self.stats.of("test");
        for _ in 0..6000 {
            if enough(&of) {
                return;
            }
            self.turn();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited 60 s for {what}: {of:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// `name{label="value",…}` to (Unix ms, value).
fn samples(got: &[Got]) -> BTreeMap<String, Vec<(i64, f64)>> {
    let mut all: BTreeMap<String, Vec<(i64, f64)>> = BTreeMap::new();
    for one in got {
        let plain = snap::raw::Decoder::new().decompress_vec(&one.body).unwrap();
        for series in WriteRequest::decode(plain.as_slice()).unwrap().timeseries {
            assert!(series.labels.is_sorted(), "{:?}", series.labels);
            let labels: Vec<_> = series.labels.iter().map(|l| format!("{}={}", l.name, l.value)).collect();
            let samples = series.samples.iter().map(|s| (s.timestamp, s.value));
            all.entry(labels.join(" ")).or_default().extend(samples);
        }
    }
    all
}

const BUSY: &str = "__name__=tailwater_cpu_busy_ratio agg=window host=web-1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_failed_is_sent_again_unchanged_and_in_order_and_a_refusal_is_final() {
    let server = Receiver::start(|n| match n {
        0 => Answer::Status(500),
        1 => Answer::With(429, "Retry-After: 1"),
        2 => Answer::Close,
        4 => Answer::Status(400),
        _ => Answer::Status(204),
    });
    let mut running = Running::start(&server.url(), Resolution::Window);
    running.window("web-1", 100, 10);
    running.turn();
    server.wait("the first request", |got| !got.is_empty());
    running.window("web-1", 101, 20);
    running.turn();
    running.until("the first to be taken", |s| s.samples_sent.get() == 2).await;
    running.until("the second to be refused", |s| s.samples_refused.get() == 2).await;
    running.window("web-1", 102, 30);
    running.turn();
    running.until("the third to be taken", |s| s.samples_sent.get() == 4).await;
    let got = server.got();
    assert_eq!(got.len(), 6, "four tries of the first, one of the second, one of the third");
    assert!(got[1..4].iter().all(|g| g.body == got[0].body), "the same bytes");
    assert!(got[2].at.duration_since(got[1].at) >= Duration::from_secs(1), "as Retry-After asks");
    assert_eq!(running.stats.of("test").failures.get(), 3);
    for (name, value) in [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "snappy"),
        ("x-prometheus-remote-write-version", "0.1.0"),
    ] {
        assert_eq!(got[0].header(name), Some(value));
    }
    assert_eq!(got[0].headers.iter().filter(|(n, _)| n == "content-type").count(), 1);
    let taken = samples(&[got[3].clone(), got[5].clone()]);
    assert_eq!(taken[BUSY], [(5000, 0.1), (5100, 0.3)], "each at the begin of its window");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_hangs_costs_the_oldest_samples_and_no_memory() {
    let server = Receiver::start(|_| Answer::Hang);
    let mut running = Running::start(&server.url(), Resolution::Window);
    let queue = Arc::clone(&running.sinks.each[0].queue);
    running.window("web-1", 1, 1);
    running.turn();
    server.wait("the first", |got| !got.is_empty());
    for n in 0..30_u8 {
        queue.push(Request { body: vec![n; 100_000].into(), samples: 1 });
    }
    let stats = running.stats.of("test");
    assert!(stats.queue_bytes.get() <= 1 << 20, "{stats:?}");
    assert_eq!(stats.samples_evicted.get(), 20, "ten of 100 kB fit in 1 MiB");
    running.until("the try that hangs to end", |s| s.failures.get() >= 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_is_sent_when_it_is_over() {
    let server = Receiver::good();
    let mut running = Running::start(&server.url(), Resolution::Second);
    for n in 0..41 {
        running.window("web-1", 200 + n, n % 20);
    }
    running.turn();
    running.until("two seconds", |s| s.samples_sent.get() == 12).await;
    let all = samples(&server.got());
    let series = |agg: &str| all[&format!("__name__=tailwater_cpu_busy_ratio agg={agg} host=web-1")].clone();
    assert_eq!(series("max"), [(11_000, 0.19), (12_000, 0.19)]);
    assert_eq!(series("p90"), [(11_000, 0.17), (12_000, 0.17)]);
    assert!(series("mean").iter().all(|(_, mean)| (mean - 0.095).abs() < 1e-9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn around_an_incident_its_hosts_windows_are_sent_once() {
    let server = Receiver::good();
    let mut running = Running::start(&server.url(), Resolution::Incidents);
    let begin = WindowIndex::at(fixture("x", 1).start_unix_ns).0;
    let feed = |running: &mut Running, windows: std::ops::Range<u64>| {
        for index in windows {
            running.window("web-1", index, 1);
            running.window("elsewhere-1", index, 1);
        }
        running.turn();
    };
    // 40 s before, and the incident is told in two versions; then 40 s after it.
    feed(&mut running, begin - 800..begin + 4);
    for version in 1..=2 {
        running.incidents.send(Arc::new(fixture("x", version))).unwrap();
        running.turn();
    }
    feed(&mut running, begin + 4..begin + 800);
    let (first, last) = {
        let incident = fixture("x", 2);
        let first = incident.start_unix_ns.min(incident.root.start_unix_ns);
        (WindowIndex::at(first).0 - 600, WindowIndex::at(incident.end_unix_ns).0 + 600)
    };
    let count = last - first + 1;
    running.until("its windows", |s| s.samples_sent.get() >= 2 * count + 2).await;
    let all = samples(&server.got());
    let (end, windows) = all[BUSY].split_last().unwrap();
    assert_eq!(end.1.to_bits(), 0x7ff0_0000_0000_0002, "a stale marker");
    assert_eq!(end.0, i64::try_from((last + 1) * 50).unwrap());
    let times: Vec<i64> = windows.iter().map(|(at, _)| *at).collect();
    let right: Vec<i64> = (first..=last).map(|index| i64::try_from(index * 50).unwrap()).collect();
    assert_eq!(times, right, "from 30 s before the first sign to 30 s after the end, none twice");
    assert!(all.keys().all(|labels| labels.contains("web-1")), "only hosts of its chain: {:?}", all.keys());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_windows_are_missing_a_series_ends_until_it_goes_on() {
    let server = Receiver::good();
    let mut running = Running::start(&server.url(), Resolution::Window);
    for n in [100, 101, 105] {
        running.window("web-1", n, 10);
    }
    // Silent for six seconds, however often that is noticed, and back.
    running.now_unix_ns += 6_000_000_000;
    running.turn();
    running.turn();
    for n in [300, 301] {
        running.window("web-1", n, 10);
    }
    running.turn();
    running.until("all of it", |s| s.samples_sent.get() == 2 * (5 + 2)).await;
    let all = samples(&server.got());
    let line: Vec<_> =
        all[BUSY].iter().map(|(at_ms, v)| (at_ms / 50, v.to_bits() == STALE.to_bits())).collect();
    let right =
        [(100, false), (101, false), (102, true), (105, false), (106, true), (300, false), (301, false)];
    assert_eq!(line, right);
}

//! Senders against real receivers on real sockets: good, failing, refusing, hanging and missing ones, over gRPC and HTTP, plain and TLS.

#![allow(clippy::disallowed_methods, reason = "tests need deadlines")]

use super::stats::Lane;
use super::*;
use crate::alert::tests::receiver_server::{Answer as HttpAnswer, Receiver as HttpReceiver};
use crate::fixture::incident as fixture;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use otlp_receiver::{Answer, OtlpReceiver, attribute};
use prost::Message;
use std::path::PathBuf;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

#[path = "../../../tests/otlp_receiver/mod.rs"]
mod otlp_receiver;

fn table(endpoint: &str, protocol: &str) -> Otlp {
    let text = format!("endpoint = \"{endpoint}\"\nprotocol = \"{protocol}\"\ntimeout_s = 1\n");
    let table: Otlp = toml::from_str(&text).unwrap();
    table.check().unwrap();
    table
}

/// OTLP with nobody who makes metrics.
struct Running {
    export: Arc<Export>,
    incidents: broadcast::Sender<Arc<Incident>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    said: u32,
}

impl Running {
    fn start(table: &Otlp) -> Self {
        let (export, tasks, stop) =
            (Arc::new(Export::default()), TaskTracker::new(), CancellationToken::new());
        let (incidents, heard) = broadcast::channel(64);
        start(table, &export, heard, &tasks, &stop, Clock::default()).unwrap();
        Self { export, incidents, tasks, stop, said: 0 }
    }

    /// Another incident is over.
    fn say(&mut self) -> String {
        self.said += 1;
        let mut incident = fixture(&format!("01KAJX3S9R7V5S9C8H1Z4T{:04}", self.said), 3);
        incident.state = State::Closed;
        let id = incident.id.clone();
        self.incidents.send(Arc::new(incident)).unwrap();
        id
    }

    async fn until(&self, what: &str, enough: impl Fn(&Lane) -> bool) {
        let lane = self.export.otlp.of(Signal::Logs);
        for _ in 0..6000 {
            if enough(&lane) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited 60 s for {what}: {lane:?}");
    }

    /// As on SIGTERM.
    async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Ids of the incidents that were told, in their order.
fn ids(receiver: &OtlpReceiver) -> Vec<String> {
    let records = receiver.got().records();
    records.iter().map(|(_, r)| attribute(&r.attributes, "tailwater.incident.id").unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_taken_later_is_sent_again_in_order_and_what_is_refused_is_counted() {
    let quota = Status::new(Code::ResourceExhausted, "quota");
    let asks = ErrorDetails::with_retry_info(Some(Duration::from_millis(10)));
    let full = Status::with_error_details(Code::ResourceExhausted, "full", asks);
    let server = OtlpReceiver::start(move |n| match n {
        0 => Answer::Status(Status::new(Code::Unavailable, "starting")),
        1 => Answer::Status(full.clone()),
        3 => Answer::Status(quota.clone()),
        4 => Answer::Partial(1, "too old"),
        _ => Answer::Good,
    });
    let mut running = Running::start(&table(&server.url(), "grpc"));
    let first = running.say();
    running.until("the first", |l| l.receiver.samples_sent.get() == 1).await;
    // Refused; taken but for its record; taken.
    let (_, partial, last) = (running.say(), running.say(), running.say());
    running.until("the last", |l| l.receiver.samples_sent.get() == 2).await;
    assert_eq!(ids(&server), [first, partial, last]);
    let lane = running.export.otlp.of(Signal::Logs);
    let of = &lane.receiver;
    assert_eq!((of.failures.get(), of.samples_refused.get(), lane.rejected.get()), (2, 1, 1));
    assert_eq!(server.got().tries, 6);
    let mut text = String::new();
    running.export.otlp.render(&mut text);
    assert!(text.contains("tailwater_otlp_items_total{signal=\"logs\",result=\"rejected\"} 1\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_hangs_is_given_up_and_one_that_is_missing_is_waited_for() {
    let server = OtlpReceiver::start(|n| if n == 0 { Answer::Hang } else { Answer::Good });
    let mut running = Running::start(&table(&server.url(), "grpc"));
    running.say();
    running.until("it to be taken", |l| l.receiver.samples_sent.get() == 1).await;
    assert_eq!(running.export.otlp.of(Signal::Logs).receiver.failures.get(), 1);
    running.stop().await;
    // Nobody listens there yet.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut running = Running::start(&table(&format!("http://{address}"), "grpc"));
    let id = running.say();
    running.until("a failure", |l| l.receiver.failures.get() >= 1).await;
    let server = OtlpReceiver::good_at(address);
    server.wait("it", |got| got.tries == 1);
    assert_eq!(ids(&server), [id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http_requests_go_to_the_signals_path_and_only_four_statuses_are_tried_again() {
    let server = HttpReceiver::start(|n| match n {
        0 => HttpAnswer::With(503, "Retry-After: 1"),
        1 => HttpAnswer::Close,
        2 => HttpAnswer::Hang,
        4 => HttpAnswer::Status(500),
        _ => HttpAnswer::Status(200),
    });
    let url = format!("http://{}/otlp/", server.address);
    let mut running = Running::start(&table(&url, "http/protobuf"));
    let first = running.say();
    running.until("the first", |l| l.receiver.samples_sent.get() == 1).await;
    running.say();
    running.until("the refusal", |l| l.receiver.samples_refused.get() == 1).await;
    let last = running.say();
    running.until("the last", |l| l.receiver.samples_sent.get() == 2).await;
    let got = server.got();
    assert_eq!(got.len(), 6, "500 is final");
    assert!(got[1].at - got[0].at >= Duration::from_secs(1), "Retry-After");
    let of = |n: usize| {
        let request = ExportLogsServiceRequest::decode(got[n].body.as_slice()).unwrap();
        let record = &request.resource_logs[0].scope_logs[0].log_records[0];
        attribute(&record.attributes, "tailwater.incident.id").unwrap()
    };
    assert_eq!(([of(0), of(3)], of(5)), ([first.clone(), first], last));
    assert!(got.iter().all(|g| g.path == "/otlp/v1/logs"));
    assert!(got.iter().all(|g| g.header("content-type") == Some("application/x-protobuf")));
}

/// A folder with an authority, and a server's TLS that it vouches for.
fn vouched(folder: &std::path::Path) -> (PathBuf, rustls::ServerConfig) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let file = folder.join("ca.pem");
    std::fs::write(&file, parameters.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = rcgen::Issuer::new(parameters, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = parameters.signed_by(&key, &issuer).unwrap();
    let private = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    (file, tls)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_with_headers_from_a_file_that_may_change() {
    let folder = tempfile::tempdir().unwrap();
    let headers = folder.path().join("headers");
    let (ca, tls) = vouched(folder.path());
    let (grpc, http) = (OtlpReceiver::tls(tls.clone()), HttpReceiver::tls(tls));
    let of = |url: &str, protocol: &str| Otlp {
        ca: Some(ca.clone()),
        headers_file: Some(headers.clone()),
        ..table(url, protocol)
    };
    std::fs::write(&headers, "authorization: Bearer one\n").unwrap();
    let http_url = format!("https://{}", http.address);
    let mut running = [of(&grpc.url(), "grpc"), of(&http_url, "http/protobuf")].map(|t| Running::start(&t));
    for running in &mut running {
        running.say();
        running.until("the first", |l| l.receiver.samples_sent.get() == 1).await;
    }
    std::fs::write(&headers, "# rotated\nauthorization: Bearer another\nx-scope-orgid: 7\n").unwrap();
    for running in &mut running {
        running.say();
        running.until("the second", |l| l.receiver.samples_sent.get() == 2).await;
    }
    let seen = grpc.got().headers;
    let of = |n: usize, name: &str| seen[n].get(name).map(|v| v.to_str().unwrap().to_owned());
    assert_eq!(of(0, "authorization").as_deref(), Some("Bearer one"));
    assert_eq!(of(1, "authorization").as_deref(), Some("Bearer another"));
    assert_eq!(of(1, "x-scope-orgid").as_deref(), Some("7"));
    assert!(of(0, "user-agent").unwrap().starts_with("tailwater/"));
    let seen = http.got();
    assert_eq!(seen[0].header("authorization"), Some("Bearer one"));
    assert_eq!(seen[1].header("authorization"), Some("Bearer another"));
    // One whose authority is not trusted is nobody's receiver.
    let mut strict = Running::start(&table(&grpc.url(), "grpc"));
    strict.say();
    strict.until("the refusal to trust", |l| l.receiver.failures.get() >= 1).await;
    assert_eq!(grpc.got().tries, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_record_per_incident_when_it_is_over_and_again_only_if_its_meaning_changed() {
    let server = OtlpReceiver::good();
    let running = Running::start(&table(&server.url(), "grpc"));
    let told = |version, state, workload: &str| {
        let mut incident = fixture("01A", version);
        incident.state = state;
        incident.root.workload = workload.into();
        running.incidents.send(Arc::new(incident)).unwrap();
    };
    told(0, State::Open, "a");
    told(1, State::Open, "b");
    told(2, State::Closed, "b");
    told(3, State::Closed, "b");
    told(4, State::Closed, "c");
    running.until("both", |l| l.receiver.samples_sent.get() == 2).await;
    let records = server.got().records();
    let versions: Vec<_> = records
        .iter()
        .map(|(_, r)| attribute(&r.attributes, "tailwater.incident.version").unwrap())
        .collect();
    assert_eq!(versions, ["2", "4"]);
    let (resource, record) = &records[0];
    assert_eq!(attribute(resource, "service.name").as_deref(), Some("tailwater"));
    assert!(record.observed_time_unix_nano >= record.time_unix_nano);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_sent_before_the_end_while_a_receiver_takes_it() {
    let server = OtlpReceiver::start(|n| match n {
        // Tried again in an hour, as it asks; the end comes first.
        0 => {
            let asks = ErrorDetails::with_retry_info(Some(Duration::from_secs(3600)));
            Answer::Status(Status::with_error_details(Code::Unavailable, "later", asks))
        }
        _ => Answer::Good,
    });
    let mut running = Running::start(&table(&server.url(), "grpc"));
    let first = running.say();
    running.until("the failure", |l| l.receiver.failures.get() == 1).await;
    let second = running.say();
    running.until("the second to wait", |l| l.receiver.queue_bytes.get() > 0).await;
    running.stop().await;
    assert_eq!(ids(&server), [first, second]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_collectors_own_metrics_are_told_every_interval() {
    let server = OtlpReceiver::good();
    let (export, tasks, stop) = (Arc::new(Export::default()), TaskTracker::new(), CancellationToken::new());
    let heard = broadcast::channel(1).1;
    let table = Otlp { interval_seconds: 1, ..table(&server.url(), "grpc") };
    let started = start(&table, &export, heard, &tasks, &stop, Clock::default()).unwrap();
    let metrics = Arc::new(crate::counters::Metrics::default());
    metrics.batches.add(5);
    let text = Arc::clone(&metrics);
    tasks.spawn(started.own.unwrap().run(move || text.render()));
    server.wait("two of them", |got| got.points("tailwater_batches_received").len() >= 2);
    metrics.batches.add(2);
    let value = |got: &otlp_receiver::Got| got.points("tailwater_batches_received").last().unwrap().value();
    let got = server.wait("an increase", |got| value(got) > 5.0);
    let points = got.points("tailwater_batches_received");
    let (first, last) = (&points[0], points.last().unwrap());
    assert_eq!((first.value(), value(&got)), (5.0, 7.0));
    assert_eq!(first.point.start_time_unix_nano, last.point.start_time_unix_nano);
    assert!(first.point.time_unix_nano < last.point.time_unix_nano);
    assert_eq!((first.of("service.name").as_deref(), first.of("host.name")), (Some("tailwater"), None));
    stop.cancel();
}

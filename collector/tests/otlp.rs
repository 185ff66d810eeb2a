//! OTLP of a real collector: through Rotel, an OpenTelemetry collector of others (tests/python installs its program), to the generated
//! services of the OpenTelemetry project, over gRPC and HTTP; and receivers that hang or are missing.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;
mod otlp_receiver;

use common::{QUICK, Serve, free_address, get, overflow, wait_for};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use otlp_receiver::{Answer, Got, OtlpReceiver, Point, attribute};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Rotel between two addresses that it listens on and one that it sends to; killed when dropped.
struct Rotel {
    process: Child,
    grpc: SocketAddr,
    http: SocketAddr,
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program in Rotel's wheel.
fn program() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let installed = Command::new(root.join("tests/python/install.sh")).status().unwrap();
    assert!(installed.success());
    let versions = std::fs::read_dir(root.join("target/python/lib")).unwrap();
    let mut found = versions.map(|v| v.unwrap().path().join("site-packages/rotel/rotel-agent"));
    found.find(|file| file.is_file()).expect("rotel-agent in target/python")
}

impl Rotel {
    fn start(folder: &Path, to: &str) -> Self {
        let (grpc, http) = (free_address(), free_address());
        let log = folder.join("rotel.log");
        let file = std::fs::File::create(&log).unwrap();
        let process = Command::new(program())
            .arg("start")
            .args(["--otlp-grpc-endpoint", &grpc.to_string(), "--otlp-http-endpoint", &http.to_string()])
            .args(["--exporter", "otlp", "--otlp-exporter-endpoint", to, "--otlp-exporter-protocol", "grpc"])
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let mut rotel = Self { process, grpc, http };
        wait_for("Rotel to listen", || {
            if let Some(status) = rotel.process.try_wait().unwrap() {
                panic!("Rotel ended: {status}\n{}", std::fs::read_to_string(&log).unwrap());
            }
            [grpc, http].iter().all(|address| TcpStream::connect(address).is_ok()).then_some(())
        });
        rotel
    }
}

/// `tailwater serve` with an `[otlp]` table of these lines.
fn serve(folder: &Path, lines: &str) -> Serve {
    std::fs::create_dir_all(folder).unwrap();
    let file = folder.join("tailwater.toml");
    std::fs::write(&file, format!("[otlp]\ninterval_seconds = 1\n{lines}")).unwrap();
    Serve::start(folder, &["--config", file.to_str().unwrap(), QUICK[0], QUICK[1]])
}

/// Points of the dropping listener of the collector that calls itself `service`.
fn points(got: &Got, service: &str, name: &str, label: (&str, &str)) -> Vec<Point> {
    let mut all = got.points(name);
    all.retain(|p| p.of("service.name").as_deref() == Some(service));
    all.retain(|p| p.label(label.0).as_deref() == Some(label.1));
    // Not those that say that a series ended.
    all.retain(|p| p.point.flags == 0);
    all
}

fn check(serve: &Serve, receiver: &OtlpReceiver, service: &str) {
    overflow(serve, service);
    let incident = wait_for("the incident to close", || {
        let listed = serve.json("/api/v1/incidents?state=closed");
        Some(listed["incidents"][0].clone()).filter(serde_json::Value::is_object)
    });
    // Six windows with three drops each.
    let dropped = |got: &Got| points(got, service, "tailwater_listen_drops", ("reason", "syn"));
    let peak = |got: &Got| points(got, service, "tailwater_accept_queue_depth", ("agg", "max"));
    let records = |got: &Got| {
        let mut all = got.records();
        all.retain(|(of, _)| attribute(of, "service.name").as_deref() == Some(service));
        all
    };
    let got = receiver.wait(&format!("drops, depth and record of {service}"), |got| {
        dropped(got).last().is_some_and(|p| p.value() >= 18.0)
            && peak(got).iter().any(|p| p.value() >= 129.0)
            && !records(got).is_empty()
    });

    let drops = dropped(&got);
    let last = drops.last().unwrap();
    assert_eq!(last.value(), 18.0, "what agents sent");
    assert_eq!((last.of("host.name"), last.label("host")), (Some("web-1".into()), Some("web-1".into())));
    assert_eq!(last.label("listener").as_deref(), Some("0.0.0.0:80"));
    let Some(Data::Sum(sum)) = &last.metric.data else { panic!("{last:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "cumulative");
    for pair in drops.windows(2) {
        let (a, b) = (&pair[0].point, &pair[1].point);
        assert!(a.start_time_unix_nano == b.start_time_unix_nano && a.time_unix_nano < b.time_unix_nano);
        assert!(pair[0].value() <= pair[1].value());
    }

    let mut ends: Vec<_> = peak(&got).iter().map(|p| p.point.time_unix_nano).collect();
    assert!(ends.iter().all(|end| end % 1_000_000_000 == 0), "whole seconds");
    let all = ends.len();
    ends.sort_unstable();
    ends.dedup();
    assert_eq!(ends.len(), all, "each second once: {ends:?}");
    assert_eq!(peak(&got)[0].metric.unit, "{connections}");
    // Of itself, from the text of `/metrics`: what that says as well.
    let own = |got: &Got| {
        let mut all = got.points("tailwater_batches_received");
        all.retain(|p| p.of("service.name").as_deref() == Some(service) && p.of("host.name").is_none());
        all.last().map(Point::value)
    };
    let batches = serve.metric("tailwater_batches_received_total ") as f64;
    receiver.wait("the collector's own metrics", |got| own(got) == Some(batches));

    let told = records(&receiver.got());
    assert_eq!(told.len(), 1, "one record: {told:?}");
    let record = &told[0].1;
    assert_eq!(attribute(&record.attributes, "tailwater.incident.id").unwrap(), incident["id"]);
    let body = record.body.as_ref().unwrap().value.clone();
    assert_eq!(body, Some(Value::StringValue(incident["title"].as_str().unwrap().to_owned())));
    assert_eq!((record.severity_number, record.severity_text.as_str()), (17, "critical"));
    assert_eq!(record.time_unix_nano, incident["start_unix_ns"].as_u64().unwrap());
    assert_eq!(record.event_name, "tailwater.incident");
    let counted = incident["drops"].as_array().unwrap().iter().map(|d| d["count"].as_u64().unwrap());
    let packets: u64 = counted.sum();
    assert_eq!(attribute(&record.attributes, "tailwater.drops.packets").unwrap(), packets.to_string());
    assert_eq!(serve.metric("tailwater_otlp_items_total{signal=\"logs\",result=\"sent\"}"), 1);
    for result in ["rejected", "refused", "evicted"] {
        let name = format!("tailwater_otlp_items_total{{signal=\"metrics\",result=\"{result}\"}}");
        assert_eq!(serve.metric(&name), 0, "{name}");
    }
}

#[test]
fn an_incident_and_its_metrics_pass_through_a_collector_of_others_over_grpc_and_http() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = OtlpReceiver::good();
    let rotel = Rotel::start(folder.path(), &receiver.url());
    for (service, lines) in [
        ("by-grpc", format!("endpoint = \"http://{}\"\n", rotel.grpc)),
        ("by-http", format!("endpoint = \"http://{}\"\nprotocol = \"http/protobuf\"\n", rotel.http)),
    ] {
        let lines = format!("{lines}resource = {{ \"service.name\" = \"{service}\" }}\n");
        let serve = serve(&folder.path().join(service), &lines);
        check(&serve, &receiver, service);
    }
}

#[test]
fn a_receiver_that_hangs_or_is_missing_delays_neither_agents_nor_incidents_nor_the_end() {
    let folder = common::folder_in_memory();
    let hangs = OtlpReceiver::start(|_| Answer::Hang);
    let missing = format!("http://{}", free_address());
    for (name, url) in [("hangs", hangs.url()), ("missing", missing)] {
        let lines = format!("endpoint = \"{url}\"\ntimeout_s = 1\nqueue_mib_max = 1\n");
        let serve = serve(&folder.path().join(name), &lines);
        // Its windows are acknowledged one by one as they end.
        overflow(&serve, name);
        wait_for("the incident to close", || {
            let listed = serve.json("/api/v1/incidents?state=closed");
            (listed["incidents"].as_array().unwrap().len() == 1).then_some(())
        });
        wait_for("failures of both signals", || {
            let (_, text) = get(serve.http, "/metrics").unwrap();
            let failures = |signal: &str| {
                let name = format!("tailwater_otlp_failures_total{{signal=\"{signal}\"}} ");
                text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok()).unwrap()
            };
            (failures("metrics") > 0 && failures("logs") > 0).then_some(())
        });
        // The log has a thread of its own.
        wait_for("the log to say so", || serve.log().contains("it is tried again").then_some(()));
        let (status, took) = serve.terminate();
        assert!(status.success() && took < Duration::from_secs(5), "{status} {took:?}");
    }
}

//! Spans as applications send them, by the SDK of the OpenTelemetry project (tests/python installs it), to a real collector: those that were slow while an
//! incident lasted are told with it, by the API and by `explain`, also after a restart; and who may send what.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::application::Application;
use common::{QUICK, Serve, get, overflow, tailwater, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

fn configured(folder: &Path) -> Vec<String> {
    let file = folder.join("tailwater.toml");
    std::fs::write(&file, "[traces]\nlink = \"https://jaeger.example/trace/{trace_id}\"\n").unwrap();
    [&["--config", file.to_str().unwrap()], &QUICK[..]].concat().into_iter().map(str::to_owned).collect()
}

fn start(folder: &Path) -> Serve {
    let flags = configured(folder);
    Serve::start(folder, &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn the_slowest_traces_of_an_incident_are_told_with_it_and_can_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let serve = start(folder.path());
    let application = Application::start(serve.http, "gzip", &["apache2.service", "checkout"], "");
    wait_for("spans", || (serve.metric("tailwater_traces_spans_total{fate=\"kept\"}") > 0).then_some(()));
    overflow(&serve, "first");
    let incident = wait_for("the incident to close", || {
        let listed = serve.json("/api/v1/incidents?state=closed");
        Some(listed["incidents"][0].clone()).filter(serde_json::Value::is_object)
    });
    let path = format!("/api/v1/incidents/{}/traces", incident["id"].as_str().unwrap());
    assert_eq!(serve.json(&path)["state"], "gathering", "an exporter may hold some back");
    let (sent, complaints) = application.end();
    assert_eq!(complaints, "", "the SDK is content with what it was answered");
    let settled = wait_for("the last look", || {
        let told = serve.json(&path);
        (told["state"] == "settled").then_some(told)
    });
    let services = settled["services"].as_array().unwrap();
    let named: Vec<_> =
        services.iter().map(|of| (of["service"].as_str().unwrap(), of["tier"].as_str())).collect();
    assert_eq!(named, [("apache2.service", Some("apache2.service")), ("checkout", None)], "{settled:#}");
    let (start, end) =
        (incident["start_unix_ns"].as_u64().unwrap(), incident["end_unix_ns"].as_u64().unwrap());
    for of in services {
        let traces = of["traces"].as_array().unwrap();
        assert!((5..=20).contains(&traces.len()), "{of:#}");
        let mut before = u64::MAX;
        for trace in traces {
            let id = trace["trace_id"].as_str().unwrap();
            assert!(sent[of["service"].as_str().unwrap()].iter().any(|known| known == id), "{trace:#}");
            let (from, to) =
                (trace["start_unix_ns"].as_u64().unwrap(), trace["end_unix_ns"].as_u64().unwrap());
            assert!(from <= end && to >= start && to - from <= before, "{trace:#}");
            before = to - from;
            assert_eq!(trace["link"], format!("https://jaeger.example/trace/{id}"));
            assert_eq!((trace["name"].as_str(), trace["host"].as_str()), (Some("GET /cart"), Some("web-1")));
        }
    }
    assert!(serve.metric("tailwater_traces_spans_total{fate=\"fast\"}") > 0);
    assert!(serve.metric("tailwater_traces_spans_total{fate=\"inner\"}") > 0);
    assert_eq!(serve.metric("tailwater_traces_requests_total{result=\"malformed\"}"), 0);

    let explained = |serve: &Serve| {
        let out =
            tailwater().args(["explain", "--collector", &format!("http://{}", serve.http)]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let slowest = services[0]["traces"][0]["link"].as_str().unwrap();
    let told = explained(&serve);
    assert!(told.contains("\nTraces    the slowest meanwhile\n") && told.contains(slowest), "{told}");

    // What was kept outlives the collector, and what it says of it does not depend on the spans in memory.
    let (grpc, http) = (serve.grpc, serve.http);
    serve.kill();
    let flags = configured(folder.path());
    let serve =
        Serve::start_at(folder.path(), grpc, http, &flags.iter().map(String::as_str).collect::<Vec<_>>());
    // While the database is repaired after the kill a question may be told that it is busy.
    wait_for("what was told before", || {
        let (_, body) = get(serve.http, &path).ok().filter(|(code, _)| *code == 200)?;
        let told: serde_json::Value = serde_json::from_str(&body).ok()?;
        (told == settled).then_some(())
    });
    let without = Serve::start(tempfile::tempdir().unwrap().path(), &[]);
    let (status, _) = get(without.http, &path).unwrap();
    assert_eq!(status, 404, "no such incident");
}

#[test]
fn an_exporter_needs_a_token_that_may_send_and_that_token_shows_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let token = |role: &str| {
        let out = tailwater()
            .args(["token", "create", role, "--role", role, "--data"])
            .arg(folder.path().join("data"))
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    let (read, send) = (token("read"), token("send"));
    let serve = start(folder.path());
    let metric = |line: &str| {
        let head =
            format!("GET /metrics HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {read}\r\n\r\n", serve.http);
        let (_, body) = common::ask(serve.http, &head).unwrap();
        body.lines().find_map(|of| of.strip_prefix(line)?.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let of_role = |token: &str| {
        Application::start(serve.http, "none", &["shop"], &format!("authorization=Bearer%20{token}"))
    };
    let refused = of_role(&read);
    wait_for("a refusal", || (metric("tailwater_access_refused_total{reason=\"role\"}") > 0).then_some(()));
    let (_, complaints) = refused.end();
    assert!(complaints.contains("403"), "the SDK logs what it was answered: {complaints}");
    let body = "POST /v1/traces HTTP/1.0\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n";
    let (status, why) = common::ask(
        serve.http,
        &format!("{body}Host: {}\r\nAuthorization: Bearer {read}\r\n\r\n", serve.http),
    )
    .unwrap();
    assert!(status == 403 && why.contains("--role send"), "{why}");
    assert!(!serve.log().contains("/v1/traces"), "an exporter that is refused does not write the log full");
    assert_eq!(metric("tailwater_traces_spans_total{fate=\"kept\"}"), 0);
    let taken = of_role(&send);
    wait_for("spans", || (metric("tailwater_traces_spans_total{fate=\"kept\"}") > 0).then_some(()));
    assert_eq!(taken.end().1, "");
    let head = format!(
        "GET /api/v1/incidents HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {send}\r\n\r\n",
        serve.http
    );
    assert_eq!(common::ask(serve.http, &head).unwrap().0, 403);
    let (status, why) =
        common::post(serve.http, "/api/v1/login", &format!("{{\"token\":\"{send}\"}}")).unwrap();
    assert!(
        status == 403 && why.contains("shows nothing"),
        "no session for it, which would be of no use: {why}"
    );
}

#[test]
fn a_body_that_does_not_come_keeps_nobody_from_sending_and_reading() {
    let folder = tempfile::tempdir().unwrap();
    let serve = start(folder.path());
    let begin = |length: usize, more: &str| {
        let mut stream = TcpStream::connect(serve.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(
            stream,
            "POST /v1/traces HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {length}\r\n{more}\r\n",
            serve.http
        )
        .unwrap();
        stream
    };
    let status = |stream: &mut TcpStream| {
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[9..]).into_owned()
    };
    assert_eq!(status(&mut begin((4 << 20) + 1, "")), "413", "without a byte of it");
    // As many as may wait at once, of the largest size: each is told to go on once it has its place.
    let silent = || {
        let mut stream = begin(4 << 20, "Expect: 100-continue\r\n");
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    };
    let mut silent: Vec<TcpStream> = (0..4).map(|_| silent()).collect();
    assert_eq!(status(&mut begin(0, "")), "429");
    assert_eq!(get(serve.http, "/api/v1/incidents").unwrap().0, 200, "readers do not wait for them");
    overflow(&serve, "meanwhile");
    for stream in &mut silent {
        assert_eq!(status(stream), "408", "ten seconds are enough for a body");
    }
    assert_eq!(status(&mut begin(0, "")), "200");
}

#[test]
fn a_message_of_some_kilobytes_that_becomes_much_takes_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let serve = start(folder.path());
    let post = |packed: &[u8]| {
        let mut stream = TcpStream::connect(serve.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(
            stream,
            "POST /v1/traces HTTP/1.0\r\nHost: {}\r\nContent-Type: application/x-protobuf\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            serve.http,
            packed.len()
        )
        .unwrap();
        stream.write_all(packed).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[9..]).into_owned()
    };
    let gzip = |bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    let field = |number: u32, value: &[u8]| {
        let mut out = Vec::new();
        prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut out);
        prost::encoding::encode_varint(value.len() as u64, &mut out);
        [&out, value].concat()
    };
    // Eight million spans of two bytes each, of which the generated types make some gigabytes; and as many attributes of a resource.
    let twos = [0x12, 0].repeat(8_000_000);
    let spans = gzip(&field(1, &field(2, &twos)));
    let attributes = gzip(&field(1, &field(1, &[0x0a, 0].repeat(8_000_000))));
    let zeros = gzip(&vec![0; 64 << 20]);
    assert!([&spans, &attributes, &zeros].iter().all(|packed| packed.len() < 128 << 10));
    assert_eq!(post(&gzip(&[])), "200");
    let before = serve.resident_kib_most();
    for _ in 0..3 {
        assert_eq!(
            (post(&spans).as_str(), post(&attributes).as_str(), post(&zeros).as_str()),
            ("200", "200", "413")
        );
    }
    let more = serve.resident_kib_most() - before;
    // One is unpacked at a time, 16 MiB; an allocator keeps some for the next one.
    assert!(more < 64 << 10, "{more} KiB more than before");
    assert_eq!(serve.metric("tailwater_traces_spans_total{fate=\"unusable\"}"), 24_000_000);
}

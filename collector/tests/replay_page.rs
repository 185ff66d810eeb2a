//! `tailwater replay FILE --serve`: the page and the whole API on a recording, as a process.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::{free_address, get, post, tailwater, wait_for};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tailwater_proto::trace::{MAGIC, TraceReader, encode_record};
use tailwater_proto::v1::{agent_message::Body as Said, trace_record::Body};

/// A neighbour takes the CPU of Tomcat between Apache and MariaDB.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/nx0-app-cpu.trace.zst");
/// The one that is shipped.
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/recordings/first-incident.trace.zst");

/// `tailwater replay FILE --serve`; killed when dropped.
struct Page {
    child: Child,
    at: SocketAddr,
    log: PathBuf,
}

impl Page {
    fn open(file: &Path, folder: &Path, extra: &[&str]) -> Self {
        let (at, log) = (free_address(), folder.join("log"));
        let child = tailwater()
            .arg("replay")
            .arg(file)
            .args(["--serve", "--http", &at.to_string()])
            .args(extra)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut page = Self { child, at, log };
        wait_for("the page", || {
            if let Some(status) = page.child.try_wait().unwrap() {
                panic!("replay exited: {status}\n{}", page.log());
            }
            get(at, "/readyz").is_ok_and(|(code, _)| code == 200).then_some(())
        });
        page
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn json(&self, path: &str) -> serde_json::Value {
        let (code, body) = get(self.at, path).unwrap();
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn replayed(file: &Path) -> String {
    let out = tailwater().arg("replay").arg(file).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn number(value: &serde_json::Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn a_recording_is_shown_whole_at_its_own_time() {
    let folder = tempfile::tempdir().unwrap();
    let page = Page::open(Path::new(GOLDEN), folder.path(), &[]);

    // Byte by byte what a plain replay prints, newest first in the list.
    let lines = replayed(Path::new(GOLDEN));
    assert!(lines.lines().count() >= 1);
    let mut listed: Vec<String> = page.json("/api/v1/incidents?limit=10000")["incidents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["id"].as_str().unwrap().to_owned())
        .collect();
    listed.sort();
    let mut printed = Vec::new();
    for line in lines.lines() {
        let incident: serde_json::Value = serde_json::from_str(line).unwrap();
        let id = incident["id"].as_str().unwrap().to_owned();
        assert_eq!(get(page.at, &format!("/api/v1/incidents/{id}")).unwrap(), (200, line.to_owned()));
        printed.push(id);
    }
    printed.sort();
    assert_eq!(listed, printed);

    // It says what it is, and when.
    let recording = page.json("/api/v1/status")["recording"].clone();
    let (start, end) = (number(&recording["start_unix_ns"]), number(&recording["end_unix_ns"]));
    assert_eq!(recording["file"], "nx0-app-cpu.trace.zst");
    assert_eq!(recording["windows_from_unix_ns"], recording["start_unix_ns"], "all of it is in memory");
    assert_eq!((&recording["torn"], &recording["incidents_dropped"]), (&serde_json::Value::Null, &0.into()));
    let incident: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    for at in ["start_unix_ns", "end_unix_ns"] {
        assert!((start..=end).contains(&number(&incident[at])), "{at} of {incident}");
    }

    // Everybody reported until the end: nobody is away, and "now" has values.
    let agents = page.json("/api/v1/agents")["agents"].as_array().unwrap().clone();
    let hosts: Vec<&str> = agents.iter().map(|a| a["host"].as_str().unwrap()).collect();
    assert!(hosts.contains(&"web-1") && hosts.contains(&"app-1") && hosts.contains(&"db-1"), "{hosts:?}");
    for agent in &agents {
        assert_eq!(agent["connected"], true, "{agent}");
        assert!(end.abs_diff(number(&agent["newest_window_end_unix_ns"])) < 1_000_000_000, "{agent}");
        assert!(agent["coverage"].as_array().is_some_and(|c| !c.is_empty()), "{agent}");
    }
    let now = page.json("/api/v1/now?seconds=5");
    assert_eq!((&now["now_unix_ns"], &now["recorded"]), (&end.into(), &true.into()));
    for workload in now["workloads"].as_array().unwrap() {
        let trail = workload["trail"].as_array().unwrap();
        assert!(trail.iter().filter(|v| !v.is_null()).count() > 90, "of 100 windows: {workload}");
    }

    // The story's windows, the topology, hosts, workloads, charts and names.
    let id = &printed[0];
    let timeline = page.json(&format!("/api/v1/incidents/{id}/timeline"));
    let row = &timeline["tiers"][0]["queued_requests"];
    assert!(row.as_array().unwrap().iter().any(|v| v.as_f64().is_some_and(|v| v > 10.0)), "{row}");
    let topology = page.json("/api/v1/topology");
    assert!(
        topology["nodes"].as_array().unwrap().len() >= 3 && !topology["edges"].as_array().unwrap().is_empty()
    );
    assert!(!page.json("/api/v1/congestion").to_string().is_empty());
    let host = page.json("/api/v1/hosts/app-1");
    assert!(host["workloads"].as_array().unwrap().iter().any(|w| w["name"] == "tomcat"), "{host}");
    let points = |parameters: &str| {
        let answer =
            page.json(&format!("/api/v1/series?host=web-1&metric=drops{parameters}&max_points=20000"));
        let points = answer["points"].as_array().unwrap().clone();
        points.iter().map(|p| p["max"].as_f64().unwrap()).sum::<f64>()
    };
    let dropped: f64 =
        incident["drops"].as_array().unwrap().iter().map(|d| d["count"].as_f64().unwrap()).sum();
    assert!(points("") >= dropped && dropped > 0.0, "{dropped} packets in the chart of drops");
    assert_eq!(points(&format!("&start={start}&end={end}")), points(""), "all of it is held");
    let seen = page.json("/api/v1/inventory?kind=host")["inventory"].as_array().unwrap().clone();
    assert_eq!(seen.len(), agents.len());
    assert!(seen.iter().all(|s| number(&s["first_unix_ns"]) >= start && number(&s["last_unix_ns"]) <= end));
    assert!(page.json("/api/v1/inventory?kind=listener").to_string().contains(":3306"));
    assert_eq!(get(page.at, "/api/v1/hosts/nobody").unwrap().0, 404);
    assert_eq!(page.json("/api/v1/alerts")["alerts"], serde_json::json!([]));
    let (code, html) = get(page.at, "/").unwrap();
    assert!(code == 200 && html.contains("/page.js"));

    // What only a collector of running agents can do is refused with a reason.
    let silence = "{\"for_s\":60,\"silence\":{\"comment\":\"c\"}}";
    let asked = [
        get(page.at, "/metrics"),
        post(page.at, "/api/v1/record", "{\"seconds\":1}"),
        post(page.at, "/api/v1/silences", silence),
    ];
    for (code, text) in asked.map(Result::unwrap) {
        assert!(code == 409 && text.contains("this shows a recording"), "{code} {text}");
    }
    assert_eq!(get(page.at, "/livez").unwrap().0, 200);
}

#[test]
fn the_command_line_asks_a_recording_like_a_collector() {
    let folder = tempfile::tempdir().unwrap();
    let page = Page::open(Path::new(GOLDEN), folder.path(), &[]);
    let url = format!("http://{}", page.at);
    let said = |arguments: &[&str]| {
        let out = tailwater().args(arguments).args(["--collector", &url]).output().unwrap();
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let lines = replayed(Path::new(GOLDEN));
    // The last hour of the recording, not of today.
    let listed = said(&["incidents", "--json", "--since", "1h"]);
    assert_eq!(listed, lines);
    let incident: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let id = incident["id"].as_str().unwrap();
    let there = said(&["explain", id]);
    let plain = tailwater().args(["replay", GOLDEN, "--explain", id]).output().unwrap();
    assert_eq!(there, String::from_utf8(plain.stdout).unwrap());
}

#[test]
fn incidents_of_a_recording_are_held_against_each_other_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("again.trace");
    std::fs::write(&recording, again_and_again(3)).unwrap();
    let page = Page::open(&recording, folder.path(), &[]);
    let url = format!("http://{}", page.at);
    let said = |arguments: &[&str]| {
        let out = tailwater().args(arguments).args(["--collector", &url]).output().unwrap();
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let listed = said(&["incidents", "--json"]);
    let ids: Vec<String> = listed
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 3, "{listed}");
    let told = said(&["explain", &ids[2]]);
    let before = told.lines().find(|line| line.starts_with("Before ")).expect("the line");
    assert!(before.contains("2 times since") && before.contains("the last 1 min 0 s"), "{told}");
    let told = said(&["diff", &ids[0], &ids[2]]);
    assert!(told.contains("The same cause at the same tier, and the same chain."), "{told}");
}

/// The golden recording `times` times in a row: what follows is a minute later each time.
fn again_and_again(times: u64) -> Vec<u8> {
    const LATER_NS: u64 = 60_000_000_000;
    let input = tailwater::run::replay::open(Path::new(GOLDEN)).unwrap();
    let records: Vec<_> = TraceReader::new(input).unwrap().map(Result::unwrap).collect();
    let mut out = MAGIC.to_vec();
    for n in 0..times {
        for record in &records {
            let mut record = record.clone();
            match record.body.as_mut().unwrap() {
                Body::TickUnixNs(at) => *at += n * LATER_NS,
                Body::Header(_) if n > 0 => continue,
                Body::Header(_) => {}
                Body::Arrival(arrival) => {
                    arrival.arrival_unix_ns += n * LATER_NS;
                    match arrival.message.as_mut().unwrap().body.as_mut().unwrap() {
                        Said::Batch(batch) => batch.first_window += n * LATER_NS / common::WINDOW_NS,
                        Said::Drop(drop) => drop.unix_ns += n * LATER_NS,
                        _ => {}
                    }
                }
            }
            out.extend(encode_record(&record));
        }
    }
    out
}

#[test]
fn a_long_recording_keeps_its_end_and_its_incidents_and_says_what_went() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("small.toml");
    std::fs::write(&config, "series_mib_max = 1\n").unwrap();
    let long = folder.path().join("long.trace");
    std::fs::write(&long, again_and_again(6)).unwrap();
    let page = Page::open(&long, folder.path(), &["--config", config.to_str().unwrap()]);
    let recording = page.json("/api/v1/status")["recording"].clone();
    assert!(number(&recording["windows_from_unix_ns"]) > number(&recording["start_unix_ns"]), "{recording}");
    assert!(page.log().contains("do not fit into 1 MiB"), "{}", page.log());
    // The oldest incident's windows are gone, its story is not.
    let all = page.json("/api/v1/incidents?limit=10000")["incidents"].as_array().unwrap().clone();
    let oldest = all.iter().min_by_key(|i| number(&i["start_unix_ns"])).unwrap();
    assert!(all.len() >= 6 && number(&oldest["end_unix_ns"]) < number(&recording["windows_from_unix_ns"]));
    let timeline = page.json(&format!("/api/v1/incidents/{}/timeline", oldest["id"].as_str().unwrap()));
    assert!(timeline["tiers"][0]["queued_requests"].as_array().unwrap().iter().any(|v| !v.is_null()));
    assert!(
        number(&page.json("/api/v1/series?host=web-1&metric=cpu_busy_ratio")["newest_unix_ns"])
            <= number(&recording["end_unix_ns"])
    );
}

#[test]
fn ctrl_c_ends_it_with_0() {
    let folder = tempfile::tempdir().unwrap();
    let mut page = Page::open(Path::new(GOLDEN), folder.path(), &[]);
    let status = Command::new("sh").args(["-c", &format!("kill -INT {}", page.child.id())]).status().unwrap();
    assert!(status.success());
    assert_eq!(wait_for("its end", || page.child.try_wait().unwrap()).code(), Some(0));
}

#[test]
fn what_cannot_be_shown_is_said_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(GOLDEN).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let file = folder.path().join(name);
        std::fs::File::create(&file).unwrap().write_all(bytes).unwrap();
        file
    };
    let (free, port) = (free_address().to_string(), taken.local_addr().unwrap().to_string());
    for (file, at, expected) in [
        (folder.path().join("none"), &free, "No such file"),
        (write("empty", b""), &free, "the file is empty"),
        (
            write("foreign.trace", b"PAR1 and so on, long enough to hold a first line"),
            &free,
            "not a Tailwater trace",
        ),
        (write("foreign.zst", &whole[..4]), &free, "not unpacked by zstd"),
        (write("windowless", MAGIC), &free, "holds no windows"),
        (PathBuf::from(GOLDEN), &port, "choose another address with --http"),
    ] {
        let mut replay = tailwater();
        replay.arg("replay").arg(&file).args(["--serve", "--http", at]);
        let out = replay.output().unwrap();
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{}: {text}", file.display());
        assert!(text.starts_with("tailwater: ") && text.contains(expected), "{}: {text}", file.display());
        assert!(text.lines().count() <= 2 && !text.contains("Error {"), "{text}");
    }
    // A page for others has to be wished for.
    let out = tailwater().args(["replay", GOLDEN, "--serve", "--http", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(out.status.code(), Some(64));
}

#[test]
fn a_torn_recording_is_shown_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(GOLDEN).unwrap();
    let file = folder.path().join("torn");
    std::fs::write(&file, &whole[..whole.len() * 9 / 10]).unwrap();
    let page = Page::open(&file, folder.path(), &[]);
    let recording = page.json("/api/v1/status")["recording"].clone();
    assert!(
        recording["torn"].as_str().is_some_and(|text| text.contains("ends inside record")),
        "{recording}"
    );
    assert!(page.log().contains("ends inside record"), "{}", page.log());
    assert!(number(&recording["end_unix_ns"]) > number(&recording["start_unix_ns"]));
}

#[test]
fn the_shipped_recording_is_a_chain_with_drops_of_hosts_by_their_tiers() {
    let bytes = std::fs::metadata(SHIPPED).unwrap().len();
    assert!(bytes <= 500_000, "{bytes} bytes");
    let lines = replayed(Path::new(SHIPPED));
    let dropped = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let incident =
        dropped.filter(|i| i["severity"] == "critical").max_by_key(|i| i["hops"].as_array().unwrap().len());
    let incident = incident.expect("an incident with drops");
    assert_eq!(incident["kind"], "upstream_ctqo");
    assert!(incident["hops"].as_array().unwrap().len() == 3 && number(&incident["drops"][0]["count"]) > 0);
    assert_eq!((&incident["root"]["host"], &incident["drops"][0]["host"]), (&"db-1".into(), &"web-1".into()));
    // Nothing of the machine that recorded it.
    let page = Page::open(Path::new(SHIPPED), tempfile::tempdir().unwrap().path(), &[]);
    for host in page.json("/api/v1/agents")["agents"].as_array().unwrap() {
        let name = host["host"].as_str().unwrap();
        assert!(["web-1", "app-1", "db-1"].contains(&name), "{name}");
    }
}

#[test]
fn privileged_a_recording_is_drawn_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let page = Page::open(Path::new(SHIPPED), folder.path(), &[]);
    let start = number(&page.json("/api/v1/status")["recording"]["start_unix_ns"]);
    common::browser::browse("recording.mjs", page.at, start / common::WINDOW_NS, |_| ());
    let picture = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/page-screenshots/page.png");
    let bytes = packed(Path::new(picture));
    assert!((50_000..=300_000).contains(&bytes), "{picture}: {bytes} bytes");
}

/// The README's picture (`make picture`), the same pixels in fewer bytes: rows of equal pixels pack best as they are.
fn packed(picture: &Path) -> usize {
    let file = std::fs::File::open(picture).unwrap();
    let mut reader = png::Decoder::new(std::io::BufReader::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((frame.width, frame.bit_depth), (1280, png::BitDepth::Eight));
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, frame.width, frame.height);
    encoder.set_color(frame.color_type);
    encoder.set_depth(frame.bit_depth);
    encoder.set_compression(png::Compression::High);
    encoder.set_filter(png::Filter::NoFilter);
    encoder.write_header().unwrap().write_image_data(&pixels[..frame.buffer_size()]).unwrap();
    std::fs::write(picture, &out).unwrap();
    out.len()
}

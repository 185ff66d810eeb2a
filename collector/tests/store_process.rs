//! What is kept, over the life of real processes: killed under load, restarted, on a disk that is full or read-only, and read by
//! other people's tools.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]
#![allow(clippy::disallowed_methods, reason = "tests need the time of day and deadlines")]

mod common;
mod receiver;

use common::{
    Agent, QUICK, Serve, WINDOW_NS, batch, folder_in_memory, free_address, get, hello, names, overflow,
    runtime, unix_ns, until_ended, wait_for,
};
use receiver::{Answer, Receiver};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tailwater_proto::v1::agent_message::Body;

const SHORT_SEGMENTS: [&str; 4] = [QUICK[0], QUICK[1], "--segment-seconds", "1"];

fn incidents(serve: &Serve) -> Vec<serde_json::Value> {
    serve.json("/api/v1/incidents?limit=10000")["incidents"].as_array().unwrap().clone()
}

fn segments(data: &Path) -> BTreeSet<PathBuf> {
    let Ok(found) = std::fs::read_dir(data.join("windows")) else { return BTreeSet::new() };
    let whole = |p: &PathBuf| p.extension().is_none_or(|e| e != "tmp");
    found.map(|f| f.unwrap().path()).filter(whole).collect()
}

/// An agent that overflows for a quarter of a second every second and a half, until the collector is gone.
async fn trouble(address: std::net::SocketAddr, host: String) {
    let mut agent = Agent::connect(address, hello(&host, &format!("agent of {host}"))).await;
    let mut sequence = agent.welcome().await.last_sequence;
    agent.say(names()).await;
    loop {
        let window = unix_ns() / WINDOW_NS;
        until_ended(window).await;
        sequence += 1;
        let drops = if window % 30 < 5 { 3 } else { 0 };
        if !agent.try_say(Body::Batch(batch(sequence, window, drops))).await {
            return;
        }
    }
}

/// Every one of `incidents` was told, the end of each too, and what came more than once is the same message.
fn alerts_of<'a>(
    receiver: &Receiver,
    refused: impl Fn(usize) -> bool,
    incidents: impl Iterator<Item = &'a String>,
) {
    let ended = |id: &str, got: &[receiver::Got]| {
        got.iter().enumerate().any(|(n, g)| {
            let body = g.json();
            !refused(n) && body["data"]["id"] == id && body["type"] == "incident.closed"
        })
    };
    // One that was open when the collector died ends 10 s after its start, if nothing comes of it.
    for id in incidents {
        let got = receiver.wait(&format!("the end of {id}"), |got| ended(id, got));
        let first = got.iter().enumerate().find(|(n, g)| !refused(*n) && g.json()["data"]["id"] == **id);
        assert_eq!(first.unwrap().1.json()["type"], "incident.opened", "{id}");
    }
    let got = receiver.got();
    // How many others of its thread are open is counted anew each time that a message goes out (`alert/worker/sending.rs`).
    let said = |g: &receiver::Got| {
        let mut body = g.json();
        body["thread"]["others_open"] = 0.into();
        body
    };
    let mut bodies: BTreeMap<String, serde_json::Value> = BTreeMap::new();
    for g in &got {
        let body = bodies.entry(g.id()).or_insert_with(|| said(g));
        assert_eq!(*body, said(g), "the same id, another text");
    }
    println!("{} messages, {} of them once more", bodies.len(), got.len() - bodies.len());
    assert!(got.len() > bodies.len(), "what was refused came again");
}

/// Nothing waits in the outbox.
fn settled(serve: &Serve) -> bool {
    let alerts = get(serve.http, "/api/v1/alerts").ok().filter(|(code, _)| *code == 200);
    alerts.is_some_and(|(_, body)| {
        let all: serde_json::Value = serde_json::from_str(&body).unwrap();
        all["alerts"].as_array().unwrap().iter().all(|a| a["state"] != "waiting")
    })
}

#[test]
fn twenty_kills_under_load_lose_no_acknowledged_incident_no_alert_and_no_segment() {
    let folder = tempfile::tempdir().unwrap();
    // Refuses one in seven for now, so that some wait when the collector dies.
    let refused = |n: usize| n % 7 == 3;
    let receiver = Receiver::start(move |n| Answer::Status(if refused(n) { 503 } else { 204 }));
    let url = receiver.url();
    let arguments = [SHORT_SEGMENTS.as_slice(), &["--webhook", &url]].concat();
    let data = folder.path().join("data");
    let (grpc, http) = (free_address(), free_address());
    let mut random = unix_ns() | 1;
    println!("random moments from seed {random}");
    let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
    let mut whole: BTreeSet<PathBuf> = BTreeSet::new();
    // On a machine that is busy with something else some lives are too short for anything to happen in them.
    for life in 1.. {
        if life > 20 && acknowledged.len() > 3 && whole.len() > 5 {
            break;
        }
        assert!(life <= 200, "there is nothing to lose: {acknowledged:?}, {whole:?}");
        let serve = Serve::start_at(folder.path(), grpc, http, &arguments);
        for (id, version) in &acknowledged {
            let (code, body) = get(http, &format!("/api/v1/incidents/{id}")).unwrap();
            assert_eq!(code, 200, "incident {id} was acknowledged and is lost: {body}");
            let now = serde_json::from_str::<serde_json::Value>(&body).unwrap()["version"].as_u64().unwrap();
            assert!(now >= *version, "{id}: version {version} was acknowledged, {now} is left");
        }
        let lost: Vec<_> = whole.iter().filter(|path| !path.exists()).collect();
        assert!(lost.is_empty(), "segments that were whole are gone: {lost:?}");
        let rt = runtime();
        let agents: Vec<_> = (1..=4).map(|n| rt.spawn(trouble(grpc, format!("web-{n}")))).collect();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let end = Instant::now() + Duration::from_millis(300 + (random >> 33) % 2500);
        while Instant::now() < end {
            // Version 0 is an early alert: told at once, kept once its windows are there.
            for i in incidents(&serve).iter().filter(|i| i["version"].as_u64().unwrap() > 0) {
                acknowledged.insert(i["id"].as_str().unwrap().to_owned(), i["version"].as_u64().unwrap());
            }
            whole.extend(segments(&data));
        }
        serve.kill();
        agents.iter().for_each(tokio::task::JoinHandle::abort);
    }
    let serve = Serve::start_at(folder.path(), grpc, http, &arguments);
    wait_for("the outbox to be settled", || settled(&serve).then_some(()));
    let listed: BTreeSet<String> =
        incidents(&serve).iter().map(|i| i["id"].as_str().unwrap().to_owned()).collect();
    assert!(acknowledged.keys().all(|id| listed.contains(id)), "{acknowledged:?} of {listed:?}");
    wait_for("the segments to be looked at", || {
        (serve.metric("tailwater_store_bytes{part=\"recent\"}") > 0).then_some(())
    });
    alerts_of(&receiver, refused, acknowledged.keys());
    let path = format!("/api/v1/series?host=web-1&metric=requests_answered&start=0&end={}", u64::MAX / 2);
    let points = serve.json(&path)["points"].as_array().unwrap().clone();
    assert!(!points.is_empty());
    assert!(!data.join("aside").exists(), "a segment could not be read: {}", serve.log());
}

#[test]
fn a_past_time_is_answered_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &QUICK);
    let begin = unix_ns();
    overflow(&serve, "a");
    let closed = wait_for("it to close", || incidents(&serve).into_iter().find(|i| i["state"] == "closed"));
    let path = format!(
        "/api/v1/series?host=web-1&workload=apache2.service&metric=drops&start={begin}&end={}&max_points=20000",
        unix_ns()
    );
    // The last window is acknowledged when it is queued for the analysis, and shown when that takes it.
    let live = wait_for("all 60 windows", || {
        Some(serve.json(&path)).filter(|live| live["points"].as_array().unwrap().len() == 60)
    });
    let sum = |answer: &serde_json::Value| -> f64 {
        answer["points"].as_array().unwrap().iter().map(|p| p["max"].as_f64().unwrap()).sum()
    };
    assert!((sum(&live) - 18.0).abs() < 1e-9, "{live}");
    let (grpc, http) = (serve.grpc, serve.http);
    assert_eq!(serve.terminate().0.code(), Some(0));
    let serve = Serve::start_at(folder.path(), grpc, http, &[]);
    let again = wait_for("the segments", || {
        let (code, body) = get(http, &path).unwrap();
        (code == 200).then(|| serde_json::from_str::<serde_json::Value>(&body).unwrap())
    });
    assert_eq!(again["points"], live["points"], "the same points, window by window");
    let id = closed["id"].as_str().unwrap();
    assert_eq!(serve.json(&format!("/api/v1/incidents/{id}")), closed);
    let seen = serve.json(&format!("/api/v1/inventory?start={begin}&end={}", unix_ns()));
    let listener = seen["inventory"].as_array().unwrap().iter().find(|s| s["kind"] == "listener").unwrap();
    assert_eq!(
        (&listener["host"], &listener["detail"]),
        (&"web-1".into(), &"apache2.service".into()),
        "{seen}"
    );
    // Nobody was there before.
    let before = format!("/api/v1/series?host=web-1&metric=drops&start=1&end={}", begin - 60_000_000_000);
    assert_eq!(serve.json(&before)["points"], serde_json::json!([]));
    assert_eq!(get(http, "/api/v1/series?host=nobody&metric=drops").unwrap().0, 404);
}

/// The C library's `fsync` on a disk that has much else to do.
const SLOW_DISK: &str = r"
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int fsync(int fd) {
    const struct timespec busy = {0, 400000000};
    nanosleep(&busy, 0);
    return (int)syscall(SYS_fsync, fd);
}
";

/// Fails where the process ends before a slow disk has what the last minute brought: each restart beside a backup would lose it.
#[test]
fn a_slow_disk_is_waited_for_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("slow_disk.c"), folder.path().join("slow_disk.so"));
    std::fs::write(&source, SLOW_DISK).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(
        compile.status().unwrap().success(),
        "compile the slow disk (make build-deps installs a C compiler)"
    );
    // In memory, so that the disk is as slow as was said and no slower.
    let kept = folder_in_memory();
    let serve = Serve::start_in(kept.path(), &[("LD_PRELOAD", library.to_str().unwrap())], QUICK.as_slice());
    overflow(&serve, "a");
    let log = kept.path().join("log");
    assert_eq!(serve.terminate().0.code(), Some(0));
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(segments(&kept.path().join("data")).len(), 1, "{log}");
    assert!(log.contains("the disk is slow"), "whoever restarts it sees what it waits for: {log}");
}

/// Columns per file as the documentation lists them.
fn documented() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/evidence.md")).unwrap();
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut file = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### `").and_then(|l| l.split('`').next()) {
            file = name.to_owned();
        } else if line.starts_with('#') {
            file.clear(); // another chapter
        } else if !file.is_empty()
            && let Some(column) = line.strip_prefix("| `").and_then(|l| l.split('`').next())
        {
            files.entry(file.clone()).or_default().push(column.to_owned());
        }
    }
    files
}

#[test]
fn duckdb_and_pandas_open_the_segments_with_the_documented_columns() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python/bin/python");
    assert!(python.exists(), "{} is missing: make python-deps installs it", python.display());
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &QUICK);
    overflow(&serve, "a");
    assert_eq!(serve.terminate().0.code(), Some(0));
    let out = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/open_segments.py"))
        .arg(folder.path().join("data/windows"))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let told: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    println!("{told:#}");
    let documented = documented();
    assert_eq!(documented.len(), 6, "{documented:?}");
    for (file, columns) in &documented {
        for tool in ["duckdb", "pandas"] {
            let got: Vec<String> = serde_json::from_value(told[tool]["columns"][file].clone()).unwrap();
            assert_eq!(&got, columns, "{file} in {tool}");
        }
    }
    for tool in ["duckdb", "pandas"] {
        let told = &told[tool];
        assert_eq!(told["windows"], 60, "{tool}");
        assert_eq!(told["drops"], 18, "{tool}");
        assert_eq!(told["limit"], 128, "{tool}");
        assert_eq!(told["workload"], "apache2.service", "{tool}");
        assert_eq!(
            told["start_type"].as_str().map(|t| t.contains("UTC") || t.contains("TIME ZONE")),
            Some(true),
            "{tool}: {told}"
        );
    }
}

/// A file system of its own, small; gone with the value.
struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "tailwater-test"])
            .arg(&path)
            .status();
        assert!(done.unwrap().success(), "mount a tmpfs");
        Self(path)
    }
    fn remount(&self, mode: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{mode}")]).arg(&self.0).status();
        assert!(done.unwrap().success(), "remount {mode}");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn degraded(serve: &Serve, why: &str) {
    wait_for(&format!("/readyz to tell of \"{why}\""), || {
        let (code, body) = get(serve.http, "/readyz").unwrap();
        assert_eq!(code, 200, "the service goes on: {body}");
        body.contains("store degraded").then_some(())
    });
    assert_eq!(serve.metric("tailwater_store_degraded"), 1);
    assert!(serve.json("/api/v1/status")["store_degraded"].is_string(), "the page asks this");
    serve.wait_log(why);
}

fn recovered(serve: &Serve) {
    wait_for("the store to recover", || {
        get(serve.http, "/readyz").is_ok_and(|(_, body)| body == "ready\n").then_some(())
    });
    assert_eq!(serve.metric("tailwater_store_degraded"), 0);
    assert_eq!(serve.json("/api/v1/status")["store_degraded"], serde_json::Value::Null);
}

#[test]
fn privileged_a_full_and_a_read_only_disk_stop_nothing_and_it_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Small::mount(folder.path().join("data"));
    let receiver = Receiver::good();
    let url = receiver.url();
    let arguments = [SHORT_SEGMENTS.as_slice(), &["--webhook", &url]].concat();
    let serve = Serve::start(folder.path(), &arguments);
    // Full to the last byte.
    let filler = disk.0.join("filler");
    let full = std::fs::write(&filler, vec![1_u8; 16 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    overflow(&serve, "a");
    let closed = |serve: &Serve, n: usize| {
        wait_for("the incident in spite of the disk", || {
            let closed: Vec<_> = incidents(serve).into_iter().filter(|i| i["state"] == "closed").collect();
            (closed.len() >= n).then_some(closed)
        })
    };
    let first = closed(&serve, 1);
    degraded(&serve, "No space left");
    let told = |n: usize| {
        let ends =
            |got: &[receiver::Got]| got.iter().filter(|g| g.json()["type"] == "incident.closed").count();
        let got = receiver.wait("its alerts in spite of the disk", |got| ends(got) >= n);
        let opened = got.iter().filter(|g| g.json()["type"] == "incident.opened").count();
        assert_eq!((opened, ends(&got)), (n, n), "{:?}", receiver.ids());
        let ids: BTreeSet<String> = receiver.ids().into_iter().collect();
        assert_eq!(ids.len(), got.len(), "each once: {:?}", receiver.ids());
        ids
    };
    told(1);
    wait_for("the outbox to be refused", || {
        (serve.metric("tailwater_alert_outbox_write_failures_total") > 0).then_some(())
    });
    std::fs::remove_file(&filler).unwrap();
    recovered(&serve);
    // What is in the outbox as sent is not sent again, whatever happens next.
    let kept = |serve: &Serve| {
        wait_for("the outbox to know of all of it", || {
            let (code, body) = get(serve.http, "/api/v1/alerts").unwrap();
            let all: serde_json::Value = serde_json::from_str(&body).unwrap();
            let sent = |id: &String| {
                let mut rows = all["alerts"].as_array().unwrap().iter();
                rows.any(|a| a["id"] == **id && a["state"] == "sent")
            };
            (code == 200 && receiver.ids().iter().all(sent) && settled(serve)).then_some(())
        });
    };
    kept(&serve);
    wait_for("the windows that waited", || {
        (serve.metric("tailwater_store_segments_written_total") > 0).then_some(())
    });
    // Read-only, which takes nobody holding a file open for writing: once killed with the disk, once ended before it.
    let (grpc, http) = (serve.grpc, serve.http);
    serve.kill();
    disk.remount("ro");
    let serve = Serve::start_at(folder.path(), grpc, http, &arguments);
    degraded(&serve, "read-only");
    assert_eq!(incidents(&serve), first, "what is on it is shown");
    disk.remount("rw");
    recovered(&serve);
    assert_eq!(serve.terminate().0.code(), Some(0));
    disk.remount("ro");
    let serve = Serve::start_at(folder.path(), grpc, http, &arguments);
    degraded(&serve, "read-only");
    assert_eq!(incidents(&serve), first, "what is on it is shown");
    overflow(&serve, "b");
    assert_eq!(closed(&serve, 2).len(), 2);
    told(2);
    disk.remount("rw");
    recovered(&serve);
    kept(&serve);
    wait_for("the windows that waited", || {
        (serve.metric("tailwater_store_segments_written_total") > 0).then_some(())
    });
    serve.kill();
    let serve = Serve::start_at(folder.path(), grpc, http, &arguments);
    let ids: BTreeSet<_> = incidents(&serve).iter().map(|i| i["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 2, "both are on disk: {ids:?}");
    wait_for("the windows", || {
        let path =
            format!("/api/v1/series?host=web-1&metric=drops&start=0&end={}&max_points=20000", u64::MAX / 2);
        let (code, body) = get(http, &path).unwrap();
        let points = serde_json::from_str::<serde_json::Value>(&body).unwrap()["points"].clone();
        let dropped: f64 = points.as_array()?.iter().map(|p| p["max"].as_f64().unwrap()).sum();
        (code == 200 && (dropped - 36.0).abs() < 1e-9).then_some(())
    });
    // Longer than what was open before a restart is waited for.
    std::thread::sleep(Duration::from_secs(11));
    told(2);
}

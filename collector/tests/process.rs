//! The command as a process: exit codes, SIGTERM, kill -9, recordings and replays.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::{
    Agent, QUICK, Serve, WINDOW_NS, batch, hello, names, overflow, runtime, tailwater, unix_ns, wait_for,
};
use std::io::{Read, Write};
use std::time::Duration;
use tailwater_proto::v1::agent_message::Body;

fn incidents(serve: &Serve) -> Vec<serde_json::Value> {
    serve.json("/api/v1/incidents")["incidents"].as_array().unwrap().clone()
}

#[test]
fn kill_9_and_a_restart_keep_incidents_explainable() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &QUICK);
    overflow(&serve, "a");
    let closed = wait_for("it to close", || incidents(&serve).into_iter().find(|i| i["state"] == "closed"));
    let id = closed["id"].as_str().unwrap().to_owned();
    // What is shown is on disk.
    let (grpc, http) = (serve.grpc, serve.http);
    serve.kill();
    let serve = Serve::start_at(folder.path(), grpc, http, &[]);
    assert_eq!(serve.json(&format!("/api/v1/incidents/{id}")), closed);
    let url = format!("http://{http}");
    let told = tailwater().args(["explain", &id[..20], "--collector", &url]).output().unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success() && text.contains("accept q. 129/128"), "{text}");
    assert!(text.contains("Before    no earlier incident is kept"), "{text}");
    let listed = tailwater().args(["incidents", "--json", "--collector", &url]).output().unwrap();
    let line: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(line, closed);
    for (option, name, count) in [
        ("--service", "apache2", 1),
        ("--service", "nobody", 0),
        ("--kind", closed["kind"].as_str().unwrap(), 1),
        ("--kind", "syn_flood", 0),
    ] {
        let some =
            tailwater().args(["incidents", "--json", option, name, "--collector", &url]).output().unwrap();
        assert_eq!(String::from_utf8(some.stdout).unwrap().lines().count(), count, "{option} {name}");
        let (option, name) = (option.trim_start_matches('-'), name);
        let asked = serve.json(&format!("/api/v1/incidents?{option}={name}"));
        assert_eq!(asked["incidents"].as_array().unwrap().len(), count, "{option}={name}");
    }
    let odd = tailwater().args(["incidents", "--kind", "flood", "--collector", &url]).output().unwrap();
    assert!(String::from_utf8(odd.stderr).unwrap().contains("give one of upstream_ctqo, "));
    let itself = tailwater().args(["diff", &id, &id[..20], "--collector", &url]).output().unwrap();
    let said = String::from_utf8(itself.stderr).unwrap();
    assert!(!itself.status.success() && said.contains("remedy: give two incidents"), "{said}");
}

#[test]
fn sigterm_ends_with_0_within_5_seconds_whatever_is_connected() {
    let folder = common::folder_in_memory();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hook = format!("http://{}/never-answers", silent.local_addr().unwrap());
    let serve = Serve::start(folder.path(), &["--webhook", &hook]);
    overflow(&serve, "a");
    let rt = runtime();
    let mut agent = rt.block_on(Agent::connect(serve.grpc, hello("db-1", "b")));
    rt.block_on(agent.welcome());
    let url = format!("http://{}", serve.http);
    let mut follow = tailwater()
        .args(["incidents", "--follow", "--collector", &url])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let half_open = std::net::TcpStream::connect(serve.grpc).unwrap();
    let (status, took) = serve.terminate();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(rt.block_on(agent.refused()), "the collector is stopping");
    assert_eq!(follow.wait().unwrap().code(), Some(69));
    drop(half_open);
}

#[test]
fn a_recording_replays_to_the_same_bytes_and_to_what_was_live() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("run.trace");
    let path = trace.to_str().unwrap();
    let serve = Serve::start(folder.path(), &["--record", path, QUICK[0], QUICK[1]]);
    overflow(&serve, "a");
    let live = wait_for("it to close", || incidents(&serve).into_iter().find(|i| i["state"] == "closed"));
    assert_eq!(serve.terminate().0.code(), Some(0));
    let replay = |extra: &[&str]| {
        let out = tailwater().args(["replay", path]).args(extra).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    };
    let first = replay(&[]);
    let line: serde_json::Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(line, live, "the replay finds what was live");
    assert_eq!(replay(&[]), first);
    for seed in ["1", "2", "3"] {
        assert_eq!(replay(&["--shuffle", seed]), first, "seed {seed}");
    }
    // A recorder that crashed: whole records count, and it says so.
    let bytes = std::fs::read(&trace).unwrap();
    std::fs::write(&trace, &bytes[..bytes.len() - 1]).unwrap();
    let out = tailwater().args(["replay", path]).output().unwrap();
    assert!(out.status.success() && String::from_utf8_lossy(&out.stderr).contains("ends inside record"));
}

#[test]
fn a_recording_that_begins_late_knows_the_names() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    let rt = runtime();
    let mut agent = rt.block_on(Agent::connect(serve.grpc, hello("web-1", "a")));
    rt.block_on(async {
        agent.welcome().await;
        agent.say(names()).await;
        agent.say(Body::Batch(batch(1, unix_ns() / WINDOW_NS - 2, 0))).await;
        agent.acked().await;
    });
    let out = folder.path().join("late.trace");
    let url = format!("http://{}", serve.http);
    let status = tailwater()
        .args(["record", "--duration", "3s", "--collector", &url, "--out"])
        .arg(&out)
        .status()
        .unwrap();
    assert!(status.success());
    let trace = std::fs::read(&out).unwrap();
    assert!(trace.windows(15).any(|w| w == b"apache2.service"));
    let records = tailwater_proto::trace::TraceReader::new(trace.as_slice()).unwrap();
    assert!(records.map(Result::unwrap).count() > 20, "ticks of three seconds");
}

/// Twenty pages that ask as fast as they can: what is now is worked out four times a second, whoever asks.
#[test]
fn many_readers_of_now_cost_what_one_costs() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &QUICK);
    overflow(&serve, "a");
    let http = serve.http;
    let begun_ns = unix_ns();
    let took_ms = move || (unix_ns().saturating_sub(begun_ns) / 1_000_000) as usize;
    let reader = move || {
        let (mut moments, mut asked) = (std::collections::BTreeSet::new(), 0_u32);
        // Answers come from threads below all others: on a busy machine some readers would have none in two seconds.
        while took_ms() < 2_000 || asked < 3 {
            assert!(took_ms() < 60_000, "{asked} answers in a minute");
            let (code, body) = common::get(http, "/api/v1/now?seconds=5").unwrap();
            assert_eq!(code, 200, "{body}");
            let now: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert!(now["hosts"].as_array().is_some_and(|hosts| hosts.len() == 1), "{now}");
            moments.insert(now["now_unix_ns"].as_u64().unwrap());
            asked += 1;
        }
        (moments, asked)
    };
    let readers: Vec<_> = (0..20).map(|_| std::thread::spawn(reader)).collect();
    let told: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    let took_ms = took_ms();
    let moments: std::collections::BTreeSet<u64> =
        told.iter().flat_map(|(moments, _)| moments.clone()).collect();
    let asked: u32 = told.iter().map(|(_, asked)| asked).sum();
    println!("{asked} questions, {} answers were worked out", moments.len());
    assert!(moments.len() <= took_ms / 250 + 1, "{} in {took_ms} ms", moments.len());
    assert!(asked > 40, "{asked}");
}

#[test]
fn a_bad_configuration_is_64_and_names_file_line_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tailwater.toml");
    std::fs::write(&file, "log = \"info\"\nwebhok = 1\n").unwrap();
    for command in ["serve", "check-config", "doctor"] {
        let out = tailwater().args([command, "--config"]).arg(&file).output().unwrap();
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(64), "{command}");
        assert!(text.contains(&format!("{}:2: unknown field `webhok`", file.display())), "{text}");
        assert!(text.contains("remedy:"), "{text}");
    }
    let out = tailwater().args(["serve", "--grpc", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(out.status.code(), Some(64));
    assert_eq!(tailwater().args(["serve", "--nonsense"]).output().unwrap().status.code(), Some(64));
}

#[test]
fn a_port_that_is_taken_is_told_in_a_sentence_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (taken, free) = (holder.local_addr().unwrap().to_string(), common::free_address().to_string());
    for (what, grpc, http) in [("http", &free, &taken), ("grpc", &taken, &free)] {
        let mut command = tailwater();
        command.args(["serve", "--grpc", grpc, "--http", http, "--data"]).arg(folder.path());
        let out = command.env("RUST_BACKTRACE", "1").output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        let text = String::from_utf8(out.stderr).unwrap();
        let told = format!(
            "tailwater: listen on {taken} for {what}: Address already in use (os error 98)\n  remedy: stop what listens there, or choose another address with --{what}\n"
        );
        assert_eq!(text, told);
    }
}

#[test]
fn an_unreachable_collector_is_69_and_named() {
    let nobody = common::free_address();
    let url = format!("http://{nobody}");
    for arguments in [&["incidents", "--collector", &url][..], &["explain", "01A", "--collector", &url]] {
        let out = tailwater().args(arguments).output().unwrap();
        assert_eq!(out.status.code(), Some(69));
        assert!(String::from_utf8_lossy(&out.stderr).contains(&url));
    }
}

#[test]
fn completions_and_the_example_configuration_are_usable() {
    for shell in ["bash", "zsh", "fish"] {
        let out = tailwater().args(["completions", shell]).output().unwrap();
        assert!(String::from_utf8_lossy(&out.stdout).contains("check-config"));
    }
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/tailwater.toml");
    let out = tailwater().args(["check-config", "--config", example]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let defaults = tailwater().args(["check-config"]).output().unwrap();
    assert_eq!(out.stdout, defaults.stdout, "the example states the defaults");
}

#[test]
fn a_foreign_host_is_refused_on_every_path_and_configured_names_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &["--http-host", "tailwater.example,box"]);
    let ask = |version: &str, path: &str, head: &str| {
        let request = format!("GET {path} HTTP/{version}\r\n{head}Connection: close\r\n\r\n");
        common::exchange(serve.http, &request)
    };
    let port = serve.http.port();
    for path in [
        "/",
        "/page.js",
        "/api/v1/incidents",
        "/api/v1/alerts",
        "/metrics",
        "/readyz",
        "/livez",
        "/healthz",
        "/nowhere",
    ] {
        let here = if path == "/nowhere" { 404 } else { 200 };
        for host in [
            format!("127.0.0.1:{port}"),
            format!("localhost:{port}"),
            "localhost".to_owned(),
            format!("[::1]:{port}"),
            "192.0.2.7".to_owned(),
            "tailwater.example".to_owned(),
            format!("BOX:{port}"),
        ] {
            assert_eq!(ask("1.1", path, &format!("Host: {host}\r\n")), here, "{path} of {host}");
        }
        for host in ["evil.example", "evil.example:4780", "127.0.0.1.evil.example", "localhost.evil.example"]
        {
            assert_eq!(ask("1.1", path, &format!("Host: {host}\r\n")), 421, "{path} of {host}");
        }
        assert_eq!(ask("1.1", path, ""), 400, "{path} without Host");
        assert_eq!(ask("1.1", path, "Host: localhost\r\nHost: evil.example\r\n"), 400, "{path} with two");
        assert_eq!(ask("1.0", path, ""), here, "{path} of an old probe");
    }
    let foreign = format!("http://evil.example:{port}/api/v1/incidents");
    assert_eq!(ask("1.1", &foreign, &format!("Host: 127.0.0.1:{port}\r\n")), 421, "named in the first line");
    // One sentence, with what to do.
    let mut stream = std::net::TcpStream::connect(serve.http).unwrap();
    write!(stream, "GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 421 "), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let text = body["error"].as_str().unwrap();
    assert!(text.contains("--http-host evil.example") && !text.contains('\n'), "{text}");
    let out = tailwater().args(["check-config", "--http-host", "http://x"]).output().unwrap();
    assert_eq!(out.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&out.stderr).contains("without scheme and port"));
}

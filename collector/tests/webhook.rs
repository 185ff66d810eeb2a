//! Alerts against real receivers: good, failing, hanging and slow ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

mod receiver;

use common::{QUICK, Serve, overflow, post, tailwater, wait_for};
use receiver::{Answer, Got, Receiver};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

fn closed(receiver: &Receiver) -> Vec<Got> {
    receiver.wait("the closing message", |got| got.iter().any(|g| g.json()["type"] == "incident.closed"))
}

#[test]
fn the_first_drop_the_cause_and_the_end_are_told_once_each_and_signed() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let receiver = Receiver::good();
    let serve = Serve::start(
        folder.path(),
        &[
            "--webhook",
            &receiver.url(),
            "--webhook-secret-file",
            secret.to_str().unwrap(),
            QUICK[0],
            QUICK[1],
        ],
    );
    overflow(&serve, "a");
    let got = closed(&receiver);
    let first = got[0].json();
    assert_eq!(
        (&first["type"], &first["data"]["version"]),
        (&"incident.opened".into(), &0.into()),
        "before any window"
    );
    assert!(first["timestamp"].as_str().unwrap().ends_with('Z'));
    let mut ids = receiver.ids();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), got.len(), "no message twice: {ids:?}");
    assert!(got.len() <= 4, "changes of meaning only: {got:#?}");
    for g in &got {
        assert!(g.verified_by("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
        assert!(!g.verified_by("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"));
    }
}

#[test]
fn a_silence_says_whether_it_covers_an_incident_and_of_which_it_held_something_back() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::good();
    let serve = Serve::start(folder.path(), &["--webhook", &receiver.url(), QUICK[0], QUICK[1]]);
    overflow(&serve, "a");
    closed(&receiver);
    let of_it = wait_for("the first to be listed, and over", || {
        let listed = serve.json("/api/v1/incidents?state=closed");
        Some(listed["incidents"][0]["id"].as_str()?.to_owned())
    });
    let told = receiver.got().len();
    for host in ["web-*", "db-*"] {
        let asked = format!("{{\"for_s\":600,\"silence\":{{\"comment\":\"a test\",\"host\":\"{host}\"}}}}");
        assert_eq!(post(serve.http, "/api/v1/silences", &asked).unwrap().0, 200);
    }
    let silences = |about: &str| {
        let all = serve.json(&format!("/api/v1/silences{about}"));
        all["silences"].as_array().unwrap().clone()
    };
    let covers = |about: &str| -> Vec<_> { silences(about).iter().map(|s| s["covers"].as_bool()).collect() };
    assert_eq!(covers(&format!("?incident={of_it}")), [Some(true), Some(false)]);
    assert_eq!(
        covers("?incident=01KAJX3S9R7V5S9C8H1Z4T0000"),
        [None::<bool>, None],
        "of what is not known nothing is said"
    );
    assert_eq!(covers(""), [None::<bool>, None]);
    assert!(silences("").iter().all(|s| s["untold"] == 0 && s["incidents"].as_array().unwrap().is_empty()));

    overflow(&serve, "b");
    let kept = wait_for("a message that is held back", || {
        let first = silences("")[0].clone();
        (first["untold"].as_u64() > Some(0)).then(|| first["incidents"].as_array().unwrap().clone())
    });
    wait_for("the second to be listed, and over", || {
        let listed = serve.json("/api/v1/incidents?state=closed");
        (listed["incidents"].as_array().unwrap().len() == 2).then_some(())
    });
    let newest = serve.json("/api/v1/incidents")["incidents"][0]["id"].clone();
    assert!(newest != of_it.as_str() && kept.contains(&newest), "{newest} in {kept:?}");
    assert_eq!(receiver.got().len(), told, "{:?}", receiver.ids());
    assert_eq!(silences("")[1]["untold"], 0, "that of another host");
}

#[test]
fn an_alert_does_not_wait_for_whoever_takes_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    assert!(Command::new("mkfifo").arg(&log).status().unwrap().success());
    // A pipe that is full, and that nobody reads.
    let mut full = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&log).unwrap();
    while full.write(&[b'x'; 4096]).is_ok() {}
    let receiver = Receiver::good();
    let serve = Serve::start(folder.path(), &["--webhook", &receiver.url(), QUICK[0], QUICK[1]]);
    overflow(&serve, "a");
    closed(&receiver);
    assert_eq!(serve.metric("tailwater_early_alert_seconds_count "), 1);
    assert_eq!(serve.metric("tailwater_early_alert_stage_seconds_count{stage=\"write\"} "), 1);
}

#[test]
fn a_receiver_that_fails_gets_the_same_message_again_and_a_refusal_is_final() {
    let folder = tempfile::tempdir().unwrap();
    let fails = Receiver::start(|n| Answer::Status([500, 429][..].get(n).copied().unwrap_or(200)));
    let refuses = Receiver::start(|_| Answer::Status(410));
    let urls = format!("{},{}", fails.url(), refuses.url());
    let serve = Serve::start(folder.path(), &["--webhook", &urls, QUICK[0], QUICK[1]]);
    overflow(&serve, "a");
    let got = closed(&fails);
    assert_eq!(got[0].id(), got[1].id(), "the id tells a retry");
    assert!(serve.metric("tailwater_alert_messages_total{hook=\"webhook\",result=\"failed\"}") >= 2);
    let got = closed(&refuses);
    let mut ids = refuses.ids();
    ids.dedup();
    assert_eq!(ids.len(), got.len(), "410 is not tried again");
}

#[test]
fn a_receiver_that_hangs_delays_neither_another_receiver_nor_the_incident() {
    let folder = tempfile::tempdir().unwrap();
    let (hangs, works) = (Receiver::start(|_| Answer::Hang), Receiver::good());
    let urls = format!("{},{}", hangs.url(), works.url());
    let serve = Serve::start(folder.path(), &["--webhook", &urls, QUICK[0], QUICK[1]]);
    overflow(&serve, "a");
    let got = closed(&works);
    wait_for("the incident to be listed", || {
        let listed = serve.json("/api/v1/incidents?state=closed");
        (listed["incidents"].as_array().unwrap().len() == 1).then_some(())
    });
    let received_s: u64 = got[0].header("webhook-timestamp").unwrap().parse().unwrap();
    let dropped_s = got[0].json()["data"]["start_unix_ns"].as_u64().unwrap() / 1_000_000_000;
    // The one that hangs is given up after 5 s: whoever stands behind it hears of it later.
    assert!(received_s < dropped_s + 5, "{received_s} {dropped_s}");
    let mut ids = hangs.ids();
    ids.dedup();
    assert_eq!(ids.len(), 1, "what came later waits behind the one that hangs");
}

#[test]
fn alerts_that_kill_9_interrupted_arrive_after_a_restart_with_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody listens there yet.
    let address = common::free_address();
    let url = format!("http://{address}/hook");
    let serve = Serve::start(folder.path(), &["--webhook", &url, QUICK[0], QUICK[1]]);
    overflow(&serve, "a");
    let id = wait_for("the incident to close", || {
        let listed = serve.json("/api/v1/incidents?state=closed");
        Some(listed["incidents"][0]["id"].as_str()?.to_owned())
    });
    let waiting = |serve: &Serve| -> Vec<(String, String)> {
        let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
        let all = serve.json("/api/v1/alerts");
        all["alerts"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|a| a["state"] == "waiting")
            .map(|a| (text(&a["id"]), text(&a["type"])))
            .collect()
    };
    let before = wait_for("the end to be in the outbox", || {
        let all = waiting(&serve);
        all.iter().any(|(_, what)| what == "closed").then_some(all)
    });
    let (grpc, http) = (serve.grpc, serve.http);
    serve.kill();
    let receiver = Receiver::good_at(address);
    let serve = Serve::start_at(folder.path(), grpc, http, &["--webhook", &url]);
    let got = closed(&receiver);
    assert_eq!(got[0].told(), format!("{id}.0"), "first what happened first");
    for (waited, _) in &before {
        assert!(receiver.ids().contains(waited), "{waited} of {before:?} is lost: {:?}", receiver.ids());
    }
    wait_for("the outbox to know", || waiting(&serve).is_empty().then_some(()));
    serve.kill();
    let serve = Serve::start_at(folder.path(), grpc, http, &["--webhook", &url]);
    let of = serve.json("/api/v1/alerts");
    assert!(of["alerts"].as_array().unwrap().iter().all(|a| a["state"] != "waiting"), "{of}");
}

#[test]
fn dead_letters_are_listed_and_sent_again_from_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|n| Answer::Status(if n == 0 { 404 } else { 200 }));
    let serve = Serve::start(folder.path(), &["--webhook", &receiver.url(), QUICK[0], QUICK[1]]);
    overflow(&serve, "a");
    closed(&receiver);
    let url = format!("http://{}", serve.http);
    let alerts = |arguments: &[&str]| {
        let out = tailwater().arg("alerts").args(arguments).args(["--collector", &url]).output().unwrap();
        (
            out.status.code(),
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)),
        )
    };
    let text = wait_for("the dead letter", || {
        let (code, text) = alerts(&["--dead"]);
        (code == Some(0) && text.contains("answered 404")).then_some(text)
    });
    let first = receiver.ids()[0].clone();
    assert!(text.contains(&format!("dead       opened   webhook {first}")), "{text}");
    assert!(alerts(&["--resend", "nothing"]).1.contains("remedy: `tailwater alerts --dead` lists them"));
    assert!(alerts(&["--resend"]).1.contains("--resend needs an id, or --all"));
    assert_eq!(alerts(&["--resend", &first]).0, Some(0));
    receiver.wait("it again", |_| receiver.ids().iter().filter(|i| **i == first).count() == 2);
    wait_for("no dead letter", || alerts(&["--dead"]).1.is_empty().then_some(()));
    assert_eq!(
        alerts(&["--resend", "--all"]),
        (Some(0), "0 sent again; `tailwater alerts` shows what became of them\n".into())
    );
    let lines = alerts(&["--json"]).1;
    let states: Vec<serde_json::Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(states.iter().all(|s| s["state"] == "sent" || s["state"] == "superseded"), "{lines}");
    // A page of another origin can send a form, and not JSON.
    let post = |kind: &str| {
        let text = "{\"id\":null}";
        common::exchange(
            serve.http,
            &format!(
                "POST /api/v1/alerts/resend HTTP/1.0\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            ),
        )
    };
    assert_eq!((post("text/plain"), post("application/json")), (415, 200));
}

#[test]
fn a_hook_that_cannot_be_is_64_with_file_line_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tailwater.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let out = tailwater().args(["check-config", "--config"]).arg(&file).output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let (code, text) = check(
        "[[hook]]\nkind = \"slack\"\nurl = \"https://h/x\"\n\n[[hook]]\nkind = \"command\"\nargv = []\n",
    );
    assert_eq!(code, Some(64));
    assert!(
        text.contains(&format!("{}:7: [[hook]] 2 argv: command needs a program\n  remedy: ", file.display())),
        "{text}"
    );
    let (code, text) = check("[[hook]]\nkind = \"slack\"\nurl = \"https://h/x\"\ntimeout = 5\n");
    assert_eq!(code, Some(64));
    assert!(text.contains(&format!("{}:4: unknown field `timeout`", file.display())), "{text}");
}

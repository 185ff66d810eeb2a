//! Silences on the page with a real browser (`tests/page/silences.mjs`): the real command, a receiver that is told or is not, and overflows
//! of a host before, under and after a silence.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;
mod receiver;

use common::browser::converse;
use common::{QUICK, Serve, overflow, tailwater};
use receiver::{Got, Receiver};

#[test]
fn privileged_a_silence_is_made_seen_and_ended_on_the_page_and_holds_back_what_it_covers() {
    let folder = tempfile::tempdir().unwrap();
    let token = |name: &str, role: &str| {
        let data = folder.path().join("data");
        let out = tailwater().args(["token", "create", name, "--role", role, "--data"]).arg(data).output();
        let out = out.unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    let tokens = serde_json::json!({ "ann": token("ann", "operate"), "bob": token("bob", "read") });
    let receiver = Receiver::good();
    let serve = Serve::start(folder.path(), &["--webhook", &receiver.url(), QUICK[0], QUICK[1]]);
    let ended = |of: &Got| of.json()["type"] == "incident.closed";
    overflow(&serve, "before");
    receiver.wait("the end of the first", |got| got.iter().any(ended));
    let mut told = receiver.got().len();
    converse("silences.mjs", serve.http, &tokens.to_string(), |word| match word {
        "overflow" => {
            overflow(&serve, "under");
            Some("\"over\"".to_owned())
        }
        // Asked once the browser has seen that it is over, and that a message was held back.
        "told" => Some((receiver.got().len() - told).to_string()),
        "again" => {
            told = receiver.got().len();
            overflow(&serve, "after");
            receiver.wait("the end of the third", |got| got[told..].iter().any(ended));
            Some("\"told\"".to_owned())
        }
        _ => None,
    });
    let kept = std::fs::read_to_string(folder.path().join("data/silences.toml")).unwrap();
    assert!(kept.contains("newest = 2") && !kept.contains("[[silence]]"), "two were made, and ended: {kept}");
}

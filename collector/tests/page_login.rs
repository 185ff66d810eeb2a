//! The page of a collector that wants a token, with a real browser (`tests/page/login.mjs`) and the real command.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::browser::converse;
use common::{Serve, tailwater};

#[test]
fn privileged_a_browser_shows_a_token_once_and_its_session_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let token = |arguments: &[&str]| {
        let data = folder.path().join("data");
        let out = tailwater().arg("token").args(arguments).arg("--data").arg(data).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    let ann = token(&["create", "ann", "--role", "operate"]);
    let serve = Serve::start(folder.path(), &[]);
    converse("login.mjs", serve.http, &ann, |word| {
        (word == "revoke").then(|| {
            token(&["revoke", "ann"]);
            "\"revoked\"".to_owned()
        })
    });
    assert!(!serve.log().contains(&ann[10..]), "no token is told");
}

//! What a failed program may print: a sentence, what to do, where the logs are. No backtrace, no value as it looks inside.
#![allow(unreachable_pub, reason = "a module of test binaries")]

use std::process::Output;

/// What it said on standard error; fails if that is not for people.
pub fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it did not fail: {text}");
    for never in [
        "panicked at",
        "stack backtrace",
        "RUST_BACKTRACE",
        "Caused by",
        "Error: ",
        "{\n",
        "\": ",
        "Some(",
        "Os {",
    ] {
        assert!(!text.contains(never), "{never:?} in what it said:\n{text}");
    }
    assert!(!text.trim().is_empty(), "it said nothing");
    // A laboratory on a machine that bears less says for itself what it was fitted to.
    let lines = text.trim_end().lines().filter(|line| !line.starts_with("lab: ")).count();
    assert!(lines <= 6, "{lines} lines:\n{text}");
    text
}

/// As [`said`]; it must contain all of these.
pub fn said_all(output: &Output, wanted: &[&str]) -> String {
    let text = said(output);
    for part in wanted {
        assert!(text.contains(part), "{part:?} is not in what it said:\n{text}");
    }
    text
}

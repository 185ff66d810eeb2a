//! Ctrl-C, an operator's kill and a closed terminal, at any second of a demonstration: it ends soon, says so, and nothing is left.
#![allow(clippy::unwrap_used, reason = "what breaks here breaks the test, at this line")]
#![allow(clippy::disallowed_methods, reason = "a test's clock is the real one")]

mod said;
mod traces;

use anyhow::ensure;
use said::said_all;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::reaper;
use tailwater_tests::os::process::{signal, wait_for};
use traces::{nothing_left, traces};

/// When it is interrupted: so many seconds after it said this. What ends before it says anything has made nothing. While namespaces and
/// servers are made, while the lab is measured, in the quiet, in an injection and after one.
const MOMENTS: [(&str, f64); 8] = [
    ("Starting", 0.0),
    ("Starting", 0.7),
    ("Starting", 1.7),
    ("the servers are warmed up", 1.0),
    ("what this machine can do is measured", 0.5),
    ("the usual level is learnt", 1.0),
    ("Injecting into", 0.3),
    ("the incident closes", 0.5),
];
/// A slow machine takes this long to come there.
const SAID_WITHIN: Duration = Duration::from_secs(180);
/// Whoever presses Ctrl-C waits no longer than this, on a machine that is taken away; elsewhere it is a second or two.
const ENDS_WITHIN: Duration = Duration::from_secs(45);

/// Fails where a lab that was ended between making the folder of all runs and its lock in it leaves that folder.
#[test]
fn privileged_a_folder_in_which_no_run_is_goes() {
    assert!(reaper::runs().unwrap().is_empty(), "no lab is running");
    std::fs::create_dir_all(reaper::RUN_ROOT).unwrap();
    assert!(reaper::reap_stale().unwrap().is_empty());
    assert!(!std::fs::exists(reaper::RUN_ROOT).unwrap());
}

#[test]
fn privileged_a_demo_that_is_interrupted_leaves_nothing_whenever_it_is() {
    let before = traces();
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    for ((words, seconds), number) in MOMENTS.into_iter().zip(signals.into_iter().cycle()) {
        // On a machine that is taken away a demo gives up by itself.
        experiment(words, || {
            interrupted((words, seconds), number, signals);
            Ok(())
        })
        .unwrap();
        nothing_left(&before);
    }
}

/// A demo that is sent a signal so many seconds after it said these words says so, and ends.
fn interrupted((words, seconds): (&str, f64), number: i32, signals: [i32; 3]) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let file = File::create(&output).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.arg("--folder").arg(folder.path().join("demo")).env("RUST_BACKTRACE", "1");
    // Whoever runs the tests in the background may have them ignored.
    // SAFETY: signal is async-signal-safe and touches nothing of the parent.
    unsafe {
        command.pre_exec(move || {
            for number in signals {
                libc::signal(number, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    let mut demo = command.stdin(Stdio::null()).stdout(file).stderr(Stdio::piped()).spawn().unwrap();
    // Not a wait for an event: the moment is what is varied.
    let said = wait_for(words, SAID_WITHIN, || {
        let ended = demo.try_wait()?;
        ensure!(ended.is_none(), "the demo ended by itself before it said \"{words}\": {ended:?}");
        Ok(std::fs::read_to_string(&output)?.contains(words).then_some(()))
    });
    if said.is_err() {
        // It would go on beside the next one.
        let _ = signal(demo.id().cast_signed(), libc::SIGTERM);
        let _ = demo.wait();
    }
    said.unwrap();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    signal(demo.id().cast_signed(), number).unwrap();
    let told = Instant::now();
    let ended = demo.wait_with_output().unwrap();
    let took = told.elapsed();
    let so_far = std::fs::read_to_string(&output).unwrap_or_default();
    println!(
        "signal {number}, {seconds} s after \"{words}\": over in {:.1} s; it had said last: {}",
        took.as_secs_f64(),
        so_far.lines().rev().find(|line| !line.is_empty()).unwrap_or_default()
    );
    said_all(&ended, &["demo: interrupted after", "demo: interrupted; everything removed"]);
    assert_eq!(ended.status.code(), Some(128 + number));
    assert!(took < ENDS_WITHIN, "it took {took:?}");
}

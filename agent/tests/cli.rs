//! The command as a script sees it: exit codes, and what stands on which output. Needs no privileges.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::process::{Command, Output};

fn agent(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailwater-agent"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    command.output().unwrap()
}

fn refused(arguments: &[&str], variables: &[(&str, &str)], expect: &str) {
    let output = agent(arguments, variables);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains(expect), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn configuration_that_cannot_be_used_is_exit_64_with_file_line_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.toml");
    std::fs::write(&file, "host = \"a\"\nwindos_per_batch = 2\n").unwrap();
    let path = file.to_str().unwrap();
    for command in ["run", "dump", "doctor", "check-config"] {
        let expect = format!("{path}:2: unknown key `windos_per_batch`; remove it or use one of: ");
        refused(&[command, "--config", path], &[], &expect);
    }
    refused(
        &["run", "--windows-per-batch", "0"],
        &[],
        "--windows-per-batch (TAILWATER_AGENT_WINDOWS_PER_BATCH)",
    );
    refused(&["run", "--windows-per-batch", "two"], &[], "invalid value 'two'");
    refused(&["run", "--log", "a=b=c"], &[], "--log (TAILWATER_AGENT_LOG)");
    refused(&["check-config"], &[("TAILWATER_AGENT_HOTS", "x")], "environment variable TAILWATER_AGENT_HOTS");
    refused(&["walk"], &[], "unrecognized subcommand");
}

#[test]
fn check_config_prints_what_holds_flags_over_variables_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.toml");
    std::fs::write(&file, "host = \"file\"\nwindows_per_batch = 3\nbuffered_batches = 7\n").unwrap();
    let variables = [("TAILWATER_AGENT_HOST", "variable"), ("TAILWATER_AGENT_WINDOWS_PER_BATCH", "4")];
    let output = agent(&["check-config", "--config", file.to_str().unwrap(), "--host", "flag"], &variables);
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in ["host = \"flag\"", "windows_per_batch = 4", "buffered_batches = 7"] {
        assert!(printed.lines().any(|l| l == line), "{line} in\n{printed}");
    }
    // What it prints is a configuration again.
    std::fs::write(&file, &printed).unwrap();
    let again = agent(&["check-config", "--config", file.to_str().unwrap()], &[]);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), printed);
}

#[test]
fn help_version_and_completions() {
    let stdout = |arguments: &[&str]| {
        let output = agent(arguments, &[]);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let help = stdout(&["--help"]);
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    let run = stdout(&["run", "--help"]);
    assert!(run.contains("--scope-cgroup") && !run.contains("clock-shift"), "{run}");
    assert_eq!(stdout(&["--version"]), format!("tailwater-agent {}\n", env!("CARGO_PKG_VERSION")));
    assert!(stdout(&["completions", "bash"]).contains("--scope-cgroup"));
}

#[test]
fn privileged_doctor_says_when_the_collector_cannot_be_reached() {
    let output = agent(&["doctor", "--collector", "http://127.0.0.1:1"], &[]);
    assert_eq!(output.status.code(), Some(69));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("http://127.0.0.1:1 NOT REACHABLE"), "{said}");
    assert!(said.contains("Connection refused"), "{said}");
}

#[test]
fn privileged_doctor_measures_for_a_while_and_tells_every_counter_of_losses() {
    let output = agent(&["doctor", "--json", "--live", "1"], &[]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let live = &report["live"];
    assert!(live["windows"].as_u64().unwrap() + live["windows_lost"].as_u64().unwrap() >= 20, "{live}");
    for what in
        ["sched_runs_skipped", "net_connections_unknown", "block_requests_stale", "memory_records_lapped"]
    {
        assert!(live["losses"][what].is_u64(), "{what}: {live}");
    }
    let text = String::from_utf8(agent(&["doctor", "--live"], &[]).stdout).unwrap();
    assert!(text.contains("\nlive          ") && text.contains("\nnot kept      "), "{text}");
}

#[test]
fn privileged_doctor_tells_every_signal_its_hook_and_why_not_others() {
    let output = agent(&["doctor", "--json"], &[]);
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let signals = report["signals"].as_array().unwrap();
    assert_eq!(signals.len(), 9);
    for signal in signals {
        assert_eq!(signal["covered"], true, "{signal}");
        assert_ne!(signal["hook"], "", "{signal}");
        for alternative in signal["alternatives"].as_array().unwrap() {
            assert_ne!(alternative["reason"], "", "{alternative}");
        }
    }
    let text = String::from_utf8(agent(&["doctor"], &[]).stdout).unwrap();
    assert!(text.contains("signals       9 of 9 covered"), "{text}");
}

#[test]
fn privileged_dump_writes_as_many_windows_as_asked_in_order() {
    const WINDOWS: usize = 20;
    // A workload that nothing happened to in a window is not in it: this one is never idle.
    let done = std::sync::atomic::AtomicBool::new(false);
    let output = std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop()
            }
        });
        let output = agent(&["dump", "--json", "--windows", &WINDOWS.to_string()], &[]);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        output
    });
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let hosts: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .filter(|l: &serde_json::Value| l["kind"] == "host")
        .collect();
    // Of all windows together: what was stolen is booked later, in one of them.
    let sum = |what: &str| hosts.iter().map(|l| l["values"][what].as_u64().unwrap_or(0)).sum::<u64>();
    let all: u64 = ["cpu_busy_ns", "cpu_idle_ns", "cpu_iowait_ns", "cpu_steal_ns"].map(sum).iter().sum();
    let capacity = sum("cpu_capacity_ns");
    assert!(all.abs_diff(capacity) < capacity / 10, "{all} of {capacity} ns is all there is: {hosts:#?}");
    let starts: Vec<u64> = hosts.iter().map(|l| l["window_unix_ns"].as_u64().unwrap()).collect();
    assert_eq!(starts.len(), WINDOWS);
    assert!(starts.windows(2).all(|w| w[1] == w[0] + 50_000_000), "{starts:?}");
    let workloads = text.lines().filter(|l| l.contains("\"kind\":\"workload\"")).count();
    assert!(workloads >= WINDOWS, "each window has at least the workload of this test");
}

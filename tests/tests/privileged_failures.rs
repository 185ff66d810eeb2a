//! What goes wrong first on a machine that never saw the project, on real mounts and real servers: each failure is told in a sentence, with what
//! to do and where the logs are, and leaves nothing behind. Each machine is this one with something hidden, in a mount namespace.
#![allow(clippy::unwrap_used, reason = "what breaks here breaks the test, at this line")]

mod said;
mod traces;

use said::said_all;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tailwater_tests::programs::daemons::{binary, two_free_ports};
use traces::{nothing_left, traces};

/// A program in a mount namespace of its own, after `prepare` (a shell's commands).
fn in_namespace(prepare: &str, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-euc"])
        .arg(format!("{prepare}\nexec \"$@\""))
        .arg("sh")
        .arg(program)
        .args(arguments)
        .env("RUST_BACKTRACE", "1");
    command
}

fn demo(prepare: &str, folder: &Path) -> Output {
    in_namespace(prepare, Path::new(env!("CARGO_BIN_EXE_demo")), &["--folder", folder.to_str().unwrap()])
        .output()
        .unwrap()
}

#[test]
fn privileged_a_kernel_without_type_information_is_named_at_once() {
    let before = traces();
    let folder = tempfile::tempdir().unwrap();
    let hidden = "mount -t tmpfs none /sys/kernel/btf";
    let data = folder.path().join("demo");
    said_all(
        &demo(hidden, &data),
        &[
            "demo: this kernel has no type information",
            "/sys/kernel/btf/vmlinux",
            "remedy: ",
            "CONFIG_DEBUG_INFO_BTF=y",
        ],
    );
    assert!(!data.exists(), "nothing was begun");
    // The agent goes on without what it cannot see, and its own report says why.
    let report = in_namespace(hidden, &binary("tailwater-agent").unwrap(), &["doctor"]).output().unwrap();
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.status.success(), "{text}");
    assert!(text.contains("/sys/kernel/btf/vmlinux") && text.contains("what to do"), "{text}");
    nothing_left(&before);
}

#[test]
fn privileged_a_full_disk_is_named_with_its_folder() {
    let before = traces();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let small = format!("mount -t tmpfs -o size=3m none {path}");
    said_all(&demo(&small, &folder.path().join("demo")), &["MB are free in", path, "remedy: make room"]);

    // The collector itself, where not a byte is left: it goes on without the disk, and says so in a line.
    let full = format!(
        "mount -t tmpfs -o size=64k none {path}; dd if=/dev/zero of={path}/all bs=4k 2>/dev/null || true"
    );
    let (grpc, http) = two_free_ports().unwrap();
    let arguments = ["serve", "--grpc", &format!("127.0.0.1:{grpc}"), "--http", &format!("127.0.0.1:{http}")];
    let data = format!("{path}/data");
    let mut command =
        in_namespace(&full, &binary("tailwater").unwrap(), &[&arguments[..], &["--data", &data]].concat());
    // Every program of the chain becomes the next one: the child is the collector in the end.
    let mut collector = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(collector.stderr.take().unwrap());
    let told = log.lines().map_while(Result::ok).find(|line| line.contains("store degraded"));
    // SAFETY: a child that is not waited for keeps its number.
    assert_eq!(unsafe { libc::kill(collector.id().cast_signed(), libc::SIGTERM) }, 0);
    collector.wait().unwrap();
    let told = told.unwrap_or_default();
    assert!(
        told.contains(&data) && told.contains("disk is full") && told.contains("kept in memory"),
        "{told:?}"
    );
    nothing_left(&before);
}

#[test]
fn privileged_a_server_that_dies_at_its_start_is_named_with_its_last_words() {
    let before = traces();
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("apache2");
    std::fs::write(&broken, "#!/bin/sh\necho 'AH00526: Syntax error on line 3'\nexit 1\n").unwrap();
    std::fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let data = folder.path().join("demo");
    let output = demo(&format!("mount --bind {} /usr/sbin/apache2", broken.display()), &data);
    let logs = format!("logs:   {}", data.display());
    said_all(
        &output,
        &["demo: ", "apache2 ended while it was starting", "AH00526: Syntax error on line 3", &logs],
    );
    let kept = std::fs::read_to_string(data.join("servers/web-output.log")).unwrap();
    assert!(kept.contains("AH00526"), "{kept}");
    nothing_left(&before);
}

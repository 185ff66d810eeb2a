//! What goes wrong first on a machine that never saw the project, as far as it needs no privileges: each failure is told in a sentence,
//! with what to do. Always with RUST_BACKTRACE=1, which many have in their environment.
#![allow(clippy::unwrap_used, reason = "what breaks here breaks the test, at this line")]
#![allow(clippy::disallowed_methods, reason = "a test's clock is the real one")]

mod said;

use said::{said, said_all};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// `nobody`, as in every distribution.
const NOBODY: u32 = 65_534;

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.args(arguments).env("RUST_BACKTRACE", "1").output().unwrap()
}

#[test]
fn without_root_the_demo_says_that_it_needs_it() {
    // A copy that everybody may run: the build's folder may be closed to others.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("demo");
    std::fs::copy(env!("CARGO_BIN_EXE_demo"), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.env("RUST_BACKTRACE", "1").current_dir("/");
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    said_all(&command.output().unwrap(), &["demo: it needs root", "remedy: run it with sudo"]);
}

#[test]
fn a_name_that_is_wrong_is_named() {
    said_all(&demo(&["--scenario", "app-nothing"]), &["no cell app-nothing", "`lab cells` lists them"]);
    let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
    lab.args(["run", "--cell", "no-such"]).env("RUST_BACKTRACE", "1");
    said_all(&lab.output().unwrap(), &["lab: no cell no-such"]);
    let mut score = Command::new(env!("CARGO_BIN_EXE_lab-score"));
    score.args(["--compare", "/not/there", "/neither"]).env("RUST_BACKTRACE", "1");
    said_all(&score.output().unwrap(), &["lab-score: ", "/not/there"]);
    let mut loadgen = Command::new(env!("CARGO_BIN_EXE_loadgen"));
    said_all(&loadgen.arg("/not/there").env("RUST_BACKTRACE", "1").output().unwrap(), &["plan.json"]);
}

/// A folder of commands for a script that is to find nothing else.
fn only(commands: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for command in commands {
        let path = ["/usr/bin", "/bin"].iter().map(|f| Path::new(f).join(command)).find(|p| p.exists());
        symlink(path.unwrap(), folder.path().join(command)).unwrap();
    }
    folder
}

#[test]
fn without_apt_the_installers_name_what_is_missing() {
    let path = only(&["sh", "id", "dirname"]);
    for (script, missing) in [
        ("tests/lab/install.sh", ["iproute2", "e2fsprogs"]),
        ("deploy/install-build-deps.sh", ["clang-19", "gcc"]),
        ("tests/packages/install.sh", ["debootstrap", "util-linux"]),
    ] {
        let mut command = Command::new(path.path().join("sh"));
        command.arg(format!("{REPOSITORY}/{script}")).env_clear().env("PATH", path.path());
        let text = said_all(&command.output().unwrap(), &["no apt-get", "remedy: "]);
        for package in missing {
            assert_eq!(text.matches(&format!(" {package}")).count(), 1, "{script}: {text}");
        }
    }
}

/// `deploy/step.sh` in a folder of its own.
fn step(script: &str) -> (tempfile::TempDir, Command) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(format!("{REPOSITORY}/deploy/step.sh"));
    command.args(["it", "it is made", "3 s", "sh", "-c", script]).current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    (folder, command)
}

#[test]
fn a_step_that_takes_long_says_so_in_plain_lines_and_one_that_fails_says_why() {
    let (_folder, mut command) = step("echo part; sleep 6");
    let output = command.output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "it is made … (usually 3 s)");
    assert!(lines[1].starts_with("it is made: ") && lines.len() == 2, "{text}");
    assert!(!text.contains(['\r', '\x1b']), "{text:?}");

    let (folder, mut command) = step("echo first; echo 'no room' >&2; exit 7");
    let output = command.output().unwrap();
    said_all(&output, &["no room", "it is made: failed", "target/steps/it.log"]);
    assert_eq!(output.status.code(), Some(7));
    assert!(folder.path().join("target/steps/it.log").exists());
}

#[test]
fn a_step_that_is_interrupted_ends_all_that_it_started() {
    let (folder, mut command) = step("sleep 600 & echo $! > pid; wait");
    let child = command.spawn().unwrap();
    let file = folder.path().join("pid");
    let begun = Instant::now();
    let pid: libc::pid_t = loop {
        match std::fs::read_to_string(&file).unwrap_or_default().trim().parse() {
            Ok(pid) => break pid,
            Err(_) => assert!(begun.elapsed() < Duration::from_secs(10), "the step did not begin"),
        }
    };
    // SAFETY: a child that is not waited for keeps its number.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) }, 0);
    let output = child.wait_with_output().unwrap();
    assert!(said(&output).contains("it is made: interrupted"));
    assert_eq!(output.status.code(), Some(130));
    // It is a child of what the step started, which nobody who ends here waits for: the signal is sent, and it dies when it is scheduled.
    let begun = Instant::now();
    loop {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Gone, or a zombie that nobody waits for.
        if state.is_empty() || state.contains(") Z ") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{state}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

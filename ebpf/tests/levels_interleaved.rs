//! Levels stay right whatever other CPUs do meanwhile: the socket hooks, compiled for this machine, with the hooks of two others at each two of
//! their atomic steps (`interleaved/levels.c`).
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::Path;
use std::process::Command;

#[test]
fn no_level_is_left_standing_whatever_two_other_hooks_do_between_the_steps_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("levels");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new("cc")
        // What is for clang alone, and what programs of other hooks leave unused, are no faults here.
        .args(["-O1", "-std=gnu11", "-w", "-D__bpf__", "-Ibpf", "-Ibpf/include", "-Ibpf/vmlinux", "-o"])
        .arg(&program)
        .arg("tests/interleaved/levels.c")
        .current_dir(here)
        .output()
        .expect("cc runs; make build-deps installs a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let said = Command::new(&program).output().unwrap();
    let told = String::from_utf8_lossy(&said.stdout);
    println!("{told}");
    assert!(said.status.success(), "{told}{}", String::from_utf8_lossy(&said.stderr));
}

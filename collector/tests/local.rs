//! The agents' socket of one machine: who gets in, and what is there before and after a collector.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::{Agent, Serve, hello, runtime, wait_for};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use tonic::transport::Endpoint;

/// An agent that was welcomed over the socket.
async fn welcomed(socket: &Path) -> Agent {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut agent = Agent::over(channel, hello("web-1", "a")).await.unwrap();
    agent.welcome().await;
    agent
}

#[test]
fn an_agent_of_this_machine_is_heard_also_after_a_kill_and_the_socket_goes_with_its_collector() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("made/agents.sock");
    let rt = runtime();
    let serve = Serve::start_local(folder.path(), &socket);
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    rt.block_on(welcomed(&socket));
    let line = serve.wait_log("agent connected");
    assert!(line.contains(&format!("pid {} of uid ", std::process::id())), "{line}");
    // A killed collector leaves its socket, which is no reason not to start again.
    serve.kill();
    assert!(socket.exists());
    let serve = Serve::start_local(folder.path(), &socket);
    rt.block_on(welcomed(&socket));
    let (status, _) = serve.terminate();
    assert!(status.success() && !socket.exists(), "{status}");
}

#[test]
fn a_connection_without_a_word_is_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agents.sock");
    let serve = Serve::start_local(folder.path(), &socket);
    drop(std::os::unix::net::UnixStream::connect(&socket).unwrap());
    runtime().block_on(welcomed(&socket));
    serve.wait_log("agent connected");
    assert!(!serve.log().contains("does not speak"), "{}", serve.log());
}

/// What another user's connection comes to: the error's name, or what was read to its end.
fn tried_by_another_user(socket: &Path) -> String {
    let script = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX)\n\
        s.settimeout(10)\n\
        try:\n    s.connect(sys.argv[1])\n    print('connected', s.recv(1))\n\
        except OSError as e:\n    print(type(e).__name__)";
    let mut python = Command::new("python3");
    let out = python.args(["-c", script]).arg(socket).uid(65_534).gid(65_534).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[test]
fn privileged_another_user_is_refused_by_the_mode_and_without_it_by_credentials() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let socket = folder.path().join("agents.sock");
    let serve = Serve::start_local(folder.path(), &socket);
    assert_eq!(tried_by_another_user(&socket), "PermissionError");
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(["connected b''", "ConnectionResetError"].contains(&tried_by_another_user(&socket).as_str()));
    let line = serve.wait_log("connection refused");
    assert!(line.contains("of uid 65534"), "{line}");
    wait_for("the refusal to be counted", || {
        (serve.metric("tailwater_connections_refused_total{side=\"stranger\"}") == 1).then_some(())
    });
    runtime().block_on(welcomed(&socket));
}

//! API and page over TLS: certificates that change, commands and their authorities, and tokens for whoever comes from elsewhere.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::tailwater;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// An authority, and a collector's certificate of it, as files.
fn install(folder: &Path, name: &str) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let cert = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap().pem();
    for (file, text) in [("ca.crt", authority), ("h.crt", cert), ("h.key", key.serialize_pem())] {
        std::fs::write(folder.join("new"), text).unwrap();
        std::fs::rename(folder.join("new"), folder.join(file)).unwrap();
    }
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

/// A collector at an address that is reached from elsewhere.
struct Daemon {
    child: std::process::Child,
    http: SocketAddr,
    log: PathBuf,
}

impl Daemon {
    fn start(folder: &Path) -> Self {
        let (grpc, http) = (common::free_address(), common::free_address());
        let everywhere = format!("0.0.0.0:{}", http.port());
        let log = folder.join("log");
        let child = tailwater()
            .args(["serve", "--grpc", &grpc.to_string(), "--http", &everywhere])
            .args(["--data", &path(folder, "data")])
            .args(["--http-tls-cert", &path(folder, "h.crt"), "--http-tls-key", &path(folder, "h.key")])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut daemon = Self { child, http, log };
        common::wait_for("the collector to be ready", || {
            if let Some(status) = daemon.child.try_wait().unwrap() {
                panic!("serve exited: {status}\n{}", daemon.log());
            }
            daemon.log().contains(" ready ").then_some(())
        });
        daemon
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn asks(at: SocketAddr, arguments: &[&str]) -> Output {
    let mut command: Command = tailwater();
    command.args(arguments).args(["--collector", &format!("https://localhost:{}", at.port())]);
    command.output().unwrap()
}

fn told(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// GET over TLS as a browser would, trusting the authority in that file; head and body.
fn over_tls(at: SocketAddr, authority: &Path, request: &str) -> std::io::Result<String> {
    use rustls_pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls_pki_types::CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let mut session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut tls = rustls::Stream::new(&mut session, &mut stream);
    tls.write_all(request.as_bytes())?;
    let mut text = String::new();
    match tls.read_to_string(&mut text) {
        Err(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => Err(e),
        _ => Ok(text),
    }
}

#[test]
fn whoever_comes_from_elsewhere_shows_a_token_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    install(folder, "first");
    let serve = Daemon::start(folder);
    let ca = path(folder, "ca.crt");
    let out = asks(serve.http, &["incidents"]);
    assert!(told(&out).contains("not accepted") && told(&out).contains("--ca FILE"), "{}", told(&out));
    // Before the first token is made there is nobody whom it lets in.
    let out = asks(serve.http, &["incidents", "--ca", &ca]);
    assert!(told(&out).contains("wants a token: `tailwater token create"), "{}", told(&out));

    let file = path(folder, "ops.token");
    let made = tailwater()
        .args([
            "token",
            "create",
            "ops",
            "--role",
            "operate",
            "--out",
            &file,
            "--data",
            &path(folder, "data"),
        ])
        .output()
        .unwrap();
    assert!(made.status.success() && made.stdout.is_empty(), "{}", told(&made));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let with = |more: &[&str]| asks(serve.http, &[more, &["--ca", &ca, "--token-file", &file]].concat());
    common::wait_for("the token to be known", || with(&["incidents"]).status.success().then_some(()));
    // Every command that asks a collector.
    let trace = path(folder, "run.trace");
    for command in [
        &["incidents", "--json"][..],
        &["advise"],
        &["alerts"],
        &["alerts", "--resend", "--all"],
        &["record", "--duration", "1s", "--out", &trace],
    ] {
        let out = with(command);
        assert!(out.status.success(), "{command:?}: {}", told(&out));
    }
    assert!(std::fs::metadata(&trace).unwrap().len() > 0);
    let out = with(&["explain"]);
    assert!(told(&out).contains("no incident yet"), "{}", told(&out));
    // One who may read only.
    let reads = path(folder, "reads.token");
    let made = tailwater()
        .args(["token", "create", "reads", "--out", &reads, "--data", &path(folder, "data")])
        .status()
        .unwrap();
    assert!(made.success());
    let out = common::wait_for("the second token to be known", || {
        let out = asks(serve.http, &["alerts", "--resend", "--all", "--ca", &ca, "--token-file", &reads]);
        told(&out).contains("has the role read").then_some(out)
    });
    assert!(told(&out).contains("--role operate"), "{}", told(&out));

    // A cookie of TLS, and plain HTTP on this port.
    let secret = std::fs::read_to_string(&file).unwrap();
    let body = format!("{{\"token\":\"{}\"}}", secret.trim());
    let host = format!("localhost:{}", serve.http.port());
    let login = format!(
        "POST /api/v1/login HTTP/1.1\r\nHost: {host}\r\nOrigin: https://{host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = over_tls(serve.http, &folder.join("ca.crt"), &login).unwrap();
    assert!(answer.contains("set-cookie: __Host-tailwater-") && answer.contains("; Secure"), "{answer}");
    let (code, text) = common::get(serve.http, "/").unwrap();
    assert!(code == 400 && text.contains("https://"), "{code} {text}");
    // The tokens are in no log.
    assert!(!serve.log().contains(secret.trim().trim_start_matches("tailwater_")));
}

#[test]
fn files_that_change_are_in_use_at_the_next_connection() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "first");
    let first = std::fs::read(folder.path().join("ca.crt")).unwrap();
    std::fs::write(folder.path().join("first.crt"), first).unwrap();
    let serve = Daemon::start(folder.path());
    let asks = |authority: &str| {
        let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        over_tls(serve.http, &folder.path().join(authority), request).is_ok_and(|text| text.contains(" 200 "))
    };
    assert!(asks("first.crt"));
    install(folder.path(), "second");
    common::wait_for("the new certificate", || asks("ca.crt").then_some(()));
    assert!(!asks("first.crt"));
    std::fs::write(folder.path().join("h.crt"), "damaged").unwrap();
    assert!(asks("ca.crt"), "the last good one stays");
    common::wait_for("the log", || serve.log().contains("cannot be used, the old ones stay").then_some(()));
}

#[test]
fn an_address_that_is_reached_from_elsewhere_wants_tls_or_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let out = tailwater()
        .args(["serve", "--http", "0.0.0.0:0", "--data", &path(folder.path(), "data")])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(64));
    assert!(told(&out).contains("[http_tls]") && told(&out).contains("http_remote = true"), "{}", told(&out));
}

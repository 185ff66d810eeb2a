//! An application that is instrumented with the SDK of the OpenTelemetry project, which `tests/python` installs, and sends its spans to a collector.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// An application under load; ends when it is told to, or dropped.
pub struct Application(Child);

impl Application {
    pub fn start(collector: SocketAddr, compression: &str, services: &[&str], headers: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(Command::new(root.join("tests/python/install.sh")).status().unwrap().success());
        let child = Command::new(root.join("target/python/bin/python"))
            .arg(root.join("collector/tests/send_spans.py"))
            .args([&format!("http://{collector}/v1/traces"), compression])
            .args(services)
            .env("OTEL_EXPORTER_OTLP_HEADERS", headers)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Trace ids of its slow spans by service, and what its SDK complained of.
    pub fn end(mut self) -> (BTreeMap<String, Vec<String>>, String) {
        drop(self.0.stdin.take());
        let (mut out, mut complaints) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        let sent = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}\n{complaints}"));
        (sent, complaints)
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

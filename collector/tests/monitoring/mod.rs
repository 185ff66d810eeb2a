//! A real Prometheus, VictoriaMetrics and Alertmanager, from Debian's packages, each in a process of its own.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "helpers of tests: a failure is the test's")]
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod panels;

use super::common::{free_address, get, wait_for};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder that packages are unpacked in; fetches what is not there (`make unit` has done this).
fn servers(package: &str) -> PathBuf {
    let servers = root().join("target/servers");
    let fetched =
        Command::new(root().join("tests/servers/install.sh")).arg(&servers).arg(package).status().unwrap();
    assert!(fetched.success());
    servers
}

/// A program of a package, yet to be started.
pub fn program(package: &str, name: &str) -> Command {
    Command::new(servers(package).join("usr/bin").join(name))
}

/// A server; killed when dropped.
pub struct Server {
    process: Child,
    pub name: &'static str,
    pub address: SocketAddr,
    log: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(
        name: &'static str,
        address: SocketAddr,
        log: PathBuf,
        command: &mut Command,
        ready: &str,
    ) -> Self {
        let file = std::fs::File::create(&log).unwrap();
        let process = command.stdout(Stdio::null()).stderr(file).stdin(Stdio::null()).spawn().unwrap();
        let mut server = Self { process, name, address, log };
        wait_for(&format!("{name} to be ready"), || {
            if let Some(status) = server.process.try_wait().unwrap() {
                panic!("{name} ended: {status}\n{}", server.log());
            }
            get(address, ready).is_ok_and(|(code, _)| code == 200).then_some(())
        });
        server
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// With these rules, scraping `collector` each second and telling `alertmanager`.
    pub fn prometheus(folder: &Path, collector: SocketAddr, alertmanager: SocketAddr, rules: &Path) -> Self {
        let mut command = program("prometheus", "prometheus");
        let address = free_address();
        let file = folder.join("prometheus.yml");
        let rules = rules.display();
        let text = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: ['{rules}']\n\
             alerting: {{ alertmanagers: [{{ static_configs: [{{ targets: ['{alertmanager}'] }}] }}] }}\n\
             scrape_configs:\n- job_name: tailwater\n  params: {{ seconds: ['2'] }}\n  static_configs: [{{ targets: ['{collector}'] }}]\n"
        );
        std::fs::write(&file, text).unwrap();
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--web.enable-remote-write-receiver");
        Self::start("Prometheus", address, folder.join("prometheus.log"), &mut command, "/-/ready")
    }

    /// Scraping `collector` each second.
    pub fn victoria_metrics(folder: &Path, collector: SocketAddr) -> Self {
        let mut command = program("victoria-metrics", "victoria-metrics");
        let address = free_address();
        let file = folder.join("scrape.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: tailwater\n  params: {{ seconds: ['2'] }}\n  static_configs: [{{ targets: ['{collector}'] }}]\n"
        );
        std::fs::write(&file, text).unwrap();
        command
            .arg(format!("-storageDataPath={}", folder.join("victoria").display()))
            .arg(format!("-httpListenAddr={address}"))
            .arg(format!("-promscrape.config={}", file.display()))
            .arg("-memory.allowedBytes=256MiB")
            // What was written a moment ago is asked for.
            .arg("-search.latencyOffset=0s")
            .arg("-search.disableCache");
        Self::start("VictoriaMetrics", address, folder.join("victoria.log"), &mut command, "/health")
    }

    pub fn alertmanager(folder: &Path) -> Self {
        let package = "prometheus-alertmanager";
        // It finds its templates by an absolute path.
        let mut command = Command::new(root().join("tests/servers/run.sh"));
        command.arg(servers(package)).arg(package);
        let address = free_address();
        let file = folder.join("alertmanager.yml");
        std::fs::write(&file, "route: { receiver: none }\nreceivers: [{ name: none }]\n").unwrap();
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.path={}", folder.join("alertmanager").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--cluster.listen-address=");
        Self::start("Alertmanager", address, folder.join("alertmanager.log"), &mut command, "/-/ready")
    }

    pub fn json(&self, path: &str) -> Result<serde_json::Value, String> {
        let (code, body) = get(self.address, path).map_err(|e| e.to_string())?;
        // Chunked answers come to HTTP/1.0 without chunks.
        let json: serde_json::Value =
            serde_json::from_str(&body).map_err(|e| format!("{code} {e}: {body}"))?;
        if code == 200 { Ok(json) } else { Err(format!("{code}: {body}")) }
    }

    /// Result of an instant query.
    pub fn query(&self, expr: &str) -> Result<Vec<serde_json::Value>, String> {
        let json = self.json(&format!("/api/v1/query?query={}", escape(expr)))?;
        Ok(json["data"]["result"].as_array().cloned().unwrap_or_default())
    }

    /// Result of a range query.
    pub fn range(
        &self,
        expr: &str,
        start_s: f64,
        end_s: f64,
        step: &str,
    ) -> Result<Vec<serde_json::Value>, String> {
        let path = format!(
            "/api/v1/query_range?query={}&start={start_s:.3}&end={end_s:.3}&step={step}",
            escape(expr)
        );
        let json = self.json(&path)?;
        Ok(json["data"]["result"].as_array().cloned().unwrap_or_default())
    }

    /// Time in ms to value, exactly as it is stored. Several series that fit are one that got its `tier` once that was known.
    pub fn raw(&self, selector: &str, over: &str) -> BTreeMap<u64, f64> {
        let mut all = BTreeMap::new();
        for series in self.query(&format!("{selector}[{over}]")).unwrap() {
            for v in series["values"].as_array().unwrap() {
                let at_ms = (v[0].as_f64().unwrap() * 1000.0).round() as u64;
                let value: f64 = v[1].as_str().unwrap().parse().unwrap();
                if value.is_nan() {
                    continue; // the marker of its end
                }
                let before = all.insert(at_ms, value);
                assert!(before.is_none(), "{}: {selector} has two values at {at_ms}", self.name);
            }
        }
        all
    }
}

/// For a URL.
pub fn escape(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'~' => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect()
}

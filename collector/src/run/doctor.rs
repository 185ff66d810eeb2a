//! `tailwater doctor`: whether this machine lets the collector work. Tries each thing and says what to do about a refusal.

use crate::authority::signer::Authority;
use crate::clock::Clock;
use crate::ingest::tls::TlsFiles;
use crate::run::config::Config;
use crate::run::endpoint::Endpoint;
use crate::serve::front::HttpTlsFiles;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

/// One thing that was tried.
#[derive(Debug)]
pub struct Check {
    /// What.
    pub what: String,
    /// `Err`: why not, and the remedy.
    pub outcome: Result<String, String>,
}

/// Tries everything that `serve` needs.
#[must_use]
pub fn run(config: &Config) -> Vec<Check> {
    let mut checks = vec![
        Check { what: format!("grpc {}", config.grpc), outcome: agents(&config.grpc) },
        Check { what: format!("http {}", config.http), outcome: port(config.http, "http") },
        Check { what: format!("data {}", config.data.display()), outcome: data(config) },
    ];
    if let Some(tls) = &config.tls {
        let outcome = TlsFiles::load(tls)
            .map(|_| "certificate, key and authorities fit".into())
            .map_err(|e| e.to_string());
        checks.push(Check { what: "tls".into(), outcome });
    }
    if let Some(authority) = &config.authority {
        let outcome = Authority::open(authority, &config.data, Clock::default())
            .map(|_| "its key can be used".into())
            .map_err(|e| e.to_string());
        checks.push(Check { what: "authority".into(), outcome });
    }
    if let Some(files) = &config.http_tls {
        let outcome =
            HttpTlsFiles::load(files).map(|_| "certificate and key fit".into()).map_err(|e| e.to_string());
        checks.push(Check { what: "http_tls".into(), outcome });
    }
    checks.push(tokens(config));
    for (hook, name) in config.hook.iter().zip(crate::alert::config::names(&config.hook)) {
        let outcome = crate::alert::receiver::Receiver::new(hook)
            .map(|_| format!("{}, its files can be read", hook.kind.name()))
            .map_err(|e| e.to_string());
        checks.push(Check { what: format!("hook {name}"), outcome });
    }
    let agent =
        crate::run::up::find_agent().map(|path| path.display().to_string()).map_err(|e| e.to_string());
    checks.push(Check { what: "agent for `up`".into(), outcome: agent });
    checks
}

fn tokens(config: &Config) -> Check {
    let file = config.token_file();
    let what = format!("tokens {}", file.path().display());
    let outcome = match file.load() {
        Ok(None) if config.tokens_always() => {
            Err("none yet, and from elsewhere everybody needs one\n  remedy: tailwater token create NAME"
                .into())
        }
        Ok(None) => Ok("none: nobody is asked for one".into()),
        Ok(Some(all)) => Ok(format!("{}, and everybody needs one", all.len())),
        Err(e) => Err(e.to_string()),
    };
    Check { what, outcome }
}

fn agents(endpoint: &Endpoint) -> Result<String, String> {
    match endpoint {
        Endpoint::Tcp(address) => port(*address, "grpc"),
        Endpoint::Unix(path) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Ok("in use: by a running collector, or else choose another with --grpc".into()),
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Err(format!(
                "{e}\n  remedy: ask as root or as a member of its group, or choose another place with --grpc"
            )),
            Err(_) => place(path),
        },
    }
}

/// Whether a socket can be made there.
fn place(path: &Path) -> Result<String, String> {
    let there = path.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let probe = there.join(".tailwater-doctor");
    std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe)).map(|()| "free".into()).map_err(
        |e| {
            format!(
                "{}: {e}\n  remedy: run as root, or choose another place with --grpc unix:///PATH",
                there.display()
            )
        },
    )
}

fn port(address: SocketAddr, flag: &str) -> Result<String, String> {
    match TcpListener::bind(address) {
        Ok(_) => Ok("free".into()),
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
            Ok("in use: by a running collector, or else choose another with --".to_owned() + flag)
        }
        Err(e) => Err(format!("{e}\n  remedy: choose an address of this machine with --{flag}")),
    }
}

fn data(config: &Config) -> Result<String, String> {
    let remedy =
        |e: std::io::Error| format!("{e}\n  remedy: create it for this user, or choose another with --data");
    std::fs::create_dir_all(&config.data).map_err(remedy)?;
    let probe = config.data.join(".doctor");
    std::fs::write(&probe, b"x").map_err(remedy)?;
    std::fs::remove_file(&probe).map_err(remedy)?;
    Ok("writable".into())
}

//! Mutual TLS for the agents' port: certificate, key and authority, for which hosts an agent may speak, and in words which side refused a
//! handshake and why.

use crate::authority::signer::{Authority, REVOKED};
use crate::pem::{self, Reloaded, TlsError};
use rustls::client::verify_server_name;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// Where it is configured.
const TABLE: &str = "tls";

/// Certificate, key and authority, by file. Read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// PEM: this collector's certificate and its chain.
    pub cert: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
    /// PEM: the authorities that agents' certificates must come from.
    pub ca: PathBuf,
    /// For which hosts an agent's certificate may speak.
    #[serde(default)]
    pub host_identity: HostIdentity,
}

/// For which hosts an agent's certificate may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostIdentity {
    /// For any, as long as the authority signed it: fleets that share one certificate.
    #[default]
    Any,
    /// For those that it names in its subject alternative names (RFC 6125; `*.web.example.org` is one label).
    Certificate,
}

/// What the other side of a connection may say of itself.
#[derive(Debug, Clone, Default)]
pub enum Speaker {
    /// Anything: of this machine, or of a fleet that shares one certificate.
    #[default]
    Any,
    /// What its certificate names.
    Named(CertificateDer<'static>),
    /// The host that the authority gave its certificate to.
    Enrolled(Arc<Authority>, CertificateDer<'static>),
    /// Nothing: it showed no certificate. It may join.
    Nobody(Arc<Authority>),
}

impl Speaker {
    /// Whether it speaks for `host`; the text says why not, and goes back to the agent.
    pub fn may_speak_for(&self, host: &str) -> Result<(), String> {
        let not = |why: &dyn std::fmt::Display| {
            format!(
                "this certificate does not speak for host \"{host}\" ({why}): give its agent one with that name among its subject alternative names, \
                 or set host_identity = \"any\" in the collector's [tls]"
            )
        };
        match self {
            Self::Any => Ok(()),
            Self::Named(certificate) => {
                let name = ServerName::try_from(host)
                    .map_err(|_| not(&"no certificate can name it: it is no DNS name"))?;
                let parsed = ParsedCertificate::try_from(certificate).map_err(|e| not(&e))?;
                verify_server_name(&parsed, &name).map_err(|e| not(&e))
            }
            Self::Enrolled(authority, certificate) => match authority.host_of(certificate) {
                Some(own) if own.eq_ignore_ascii_case(host) => Ok(()),
                Some(own) => Err(format!(
                    "this certificate is host \"{own}\"'s and does not speak for \"{host}\": run its agent with --host {own}, or join as the other"
                )),
                None => Err(REVOKED.to_owned()),
            },
            Self::Nobody(_) => Err(
                "this agent shows no certificate: `tailwater enroll HOST` on the collector's host and `tailwater-agent join` get one".to_owned(),
            ),
        }
    }

    /// Whether its certificate is still somebody's. Asked from time to time while it speaks.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        matches!(self, Self::Enrolled(authority, certificate) if authority.host_of(certificate).is_none())
    }
}

/// How agents of other machines are told from others.
#[derive(Debug, Clone)]
pub enum AgentsTls {
    /// By certificates that somebody makes.
    Files(Arc<TlsFiles>),
    /// By those of the collector's own authority.
    Authority(Arc<Authority>),
}

impl AgentsTls {
    /// The configuration for the next handshake.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        match self {
            Self::Files(files) => files.current(),
            Self::Authority(authority) => authority.server_config(),
        }
    }

    /// Who has shown this chain in its handshake.
    #[must_use]
    pub fn speaker(&self, chain: Option<&[CertificateDer<'static>]>) -> Speaker {
        match self {
            Self::Files(files) => files.speaker(chain),
            Self::Authority(authority) => match chain.and_then(<[_]>::first) {
                Some(own) => Speaker::Enrolled(Arc::clone(authority), own.clone()),
                None => Speaker::Nobody(Arc::clone(authority)),
            },
        }
    }
}

/// The current server configuration.
#[derive(Debug)]
pub struct TlsFiles {
    files: Tls,
    loaded: Reloaded,
}

impl TlsFiles {
    /// Loads the files.
    pub fn load(files: &Tls) -> Result<Self, TlsError> {
        let watched = vec![files.cert.clone(), files.key.clone(), files.ca.clone()];
        Ok(Self { files: files.clone(), loaded: Reloaded::new(watched, || server_config(files))? })
    }

    fn speaker(&self, chain: Option<&[CertificateDer<'static>]>) -> Speaker {
        match self.files.host_identity {
            HostIdentity::Any => Speaker::Any,
            // No handshake ends without one; an empty one names nobody.
            HostIdentity::Certificate => {
                Speaker::Named(chain.and_then(<[_]>::first).cloned().unwrap_or_else(|| Vec::new().into()))
            }
        }
    }

    /// The configuration for the next handshake.
    fn current(&self) -> Arc<ServerConfig> {
        self.loaded.current(|| server_config(&self.files))
    }
}

fn server_config(files: &Tls) -> Result<ServerConfig, TlsError> {
    let unfit = |e: &dyn std::fmt::Display| TlsError::Unfit { table: TABLE, why: e.to_string() };
    let mut roots = RootCertStore::empty();
    for authority in pem::certificates(TABLE, "ca", &files.ca)? {
        roots.add(authority).map_err(|e| unfit(&e))?;
    }
    let key = pem::private_key(TABLE, &files.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|e| unfit(&e))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| unfit(&e))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(pem::certificates(TABLE, "cert", &files.cert)?, key)
        .map_err(|e| unfit(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Which side ended a handshake, and why.
#[must_use]
pub fn who_refused(error: &std::io::Error) -> (&'static str, String) {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::AlertReceived(alert)) => {
            ("agent", format!("it does not accept this collector's certificate (TLS alert {alert:?})"))
        }
        Some(rustls::Error::NoCertificatesPresented) => {
            ("collector", "the agent showed no certificate: set cert and key in its [tls]".into())
        }
        Some(rustls::Error::InvalidCertificate(why)) => {
            ("collector", format!("the agent's certificate is not accepted: {why:?}"))
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            ("collector", "what came is not TLS: the agent's collector URL must begin with https://".into())
        }
        Some(other) => ("collector", other.to_string()),
        None => ("agent", format!("the connection went away during the handshake: {error}")),
    }
}

//! Mutual TLS for the agents' port: certificate, key and authority, which of both where a fleet goes over from the one to the other, for which hosts an
//! agent may speak, and in words which side refused a handshake and why.

use crate::authority::signer::{Authority, REVOKED};
use crate::pem::{self, Reloaded, TlsError};
use rustls::client::verify_server_name;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use tailwater_proto::JOINED_ALPN;

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
    /// Anything: it is of this machine.
    #[default]
    Local,
    /// Anything: of a fleet that shares one certificate. Where there is an authority as well, for a time: but of hosts that have joined.
    Shared(Option<Arc<Authority>>),
    /// What its certificate names; the same beside an authority.
    Named(CertificateDer<'static>, Option<Arc<Authority>>),
    /// The host that the authority gave its certificate to.
    Enrolled(Arc<Authority>, CertificateDer<'static>),
    /// Nothing: it showed no certificate. It may join.
    Nobody(Arc<Authority>),
}

/// By what an agent proves whose it is, as `/api/v1/agents` and `tailwater_agent_identity` tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Being of this machine.
    #[default]
    Local,
    /// A certificate that lets it speak for any host.
    Shared,
    /// A certificate that names its host, of an authority that is somebody's.
    Named,
    /// The certificate that it got when it joined.
    Joined,
}

impl Proof {
    /// For labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Shared => "shared",
            Self::Named => "named",
            Self::Joined => "joined",
        }
    }
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
        // Whoever has another's shared certificate is kept from hosts that have left it.
        if let Self::Shared(Some(beside)) | Self::Named(_, Some(beside)) = self
            && beside.has_joined(host)
        {
            return Err(format!(
                "host \"{host}\" has joined, and speaks by the certificate that it got then: start its agent again without the files of [tls], \
                 or take that certificate away (`tailwater enrolled --revoke {host}`)"
            ));
        }
        match self {
            Self::Local | Self::Shared(_) => Ok(()),
            Self::Named(certificate, _) => {
                let name = ServerName::try_from(host)
                    .map_err(|_| not(&"no certificate can name it: it is no DNS name"))?;
                let parsed = ParsedCertificate::try_from(certificate).map_err(|e| not(&e))?;
                verify_server_name(&parsed, &name).map_err(|e| not(&e))
            }
            Self::Enrolled(authority, certificate) => match authority.host_of(certificate) {
                // To the letter: hosts are known by it, and one with many spellings would be many.
                Some(own) if own == host => Ok(()),
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

    /// By what it proves that.
    #[must_use]
    pub fn proof(&self) -> Proof {
        match self {
            // Of nobody no stream is taken.
            Self::Local | Self::Nobody(_) => Proof::Local,
            Self::Shared(_) => Proof::Shared,
            Self::Named(..) => Proof::Named,
            Self::Enrolled(..) => Proof::Joined,
        }
    }

    /// From when until when its certificate lasts, Unix seconds; `None`: nobody knows here.
    #[must_use]
    pub fn life_unix_s(&self) -> Option<(u64, u64)> {
        match self {
            Self::Enrolled(authority, certificate) => authority.life_of(certificate),
            _ => None,
        }
    }

    /// Whether it has to join before the files of `[tls]` can be taken away.
    #[must_use]
    pub fn has_to_join(&self) -> bool {
        matches!(self, Self::Shared(Some(_)) | Self::Named(_, Some(_)))
    }

    /// Whether its certificate is nobody's any more. Asked from time to time while it speaks.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        matches!(self, Self::Enrolled(authority, certificate) if authority.host_of(certificate).is_none())
    }

    /// Whether it may join and nothing else: it shows no certificate, or one that is nobody's any more. Such get none of the agents' places.
    #[must_use]
    pub fn is_stranger(&self) -> bool {
        matches!(self, Self::Nobody(_)) || self.is_revoked()
    }
}

/// How agents of other machines are told from others: by certificates that somebody makes, by those of the collector's own authority, or, while a
/// fleet goes over from the one to the other, by both.
#[derive(Debug, Clone)]
pub struct AgentsTls {
    files: Option<Arc<TlsFiles>>,
    authority: Option<Arc<Authority>>,
}

/// What of both a connection is about.
#[derive(Debug)]
pub enum Side {
    /// The files, and the authority that is there as well.
    Files(Arc<TlsFiles>, Option<Arc<Authority>>),
    /// The authority.
    Authority(Arc<Authority>),
}

impl AgentsTls {
    /// `None`: neither is configured.
    #[must_use]
    pub fn of(files: Option<TlsFiles>, authority: Option<Authority>) -> Option<Self> {
        let tls = Self { files: files.map(Arc::new), authority: authority.map(Arc::new) };
        (tls.files.is_some() || tls.authority.is_some()).then_some(tls)
    }

    /// What whoever offers these protocols in a handshake asks for. Agents of before there was an authority say nothing of it, and trust the files'.
    pub fn side<'a>(&self, offered: impl IntoIterator<Item = &'a [u8]>) -> Option<Side> {
        match (&self.files, &self.authority) {
            (Some(files), Some(_)) if !offered.into_iter().any(|of| of == JOINED_ALPN) => {
                Some(Side::Files(Arc::clone(files), self.authority.clone()))
            }
            (_, Some(authority)) => Some(Side::Authority(Arc::clone(authority))),
            (Some(files), None) => Some(Side::Files(Arc::clone(files), None)),
            (None, None) => None,
        }
    }
}

impl Side {
    /// The configuration for this handshake.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        match self {
            Self::Files(files, _) => files.current(),
            Self::Authority(authority) => authority.server_config(),
        }
    }

    /// Who has shown this chain in it.
    #[must_use]
    pub fn speaker(&self, chain: Option<&[CertificateDer<'static>]>) -> Speaker {
        let own = chain.and_then(<[_]>::first);
        match (self, own) {
            // Whoever has joined is that host on this side, too, where the authority's own certificate is of the files' authority: to leave out
            // what it should offer makes nobody free of its name, or of having been revoked.
            (Self::Files(_, Some(authority)), Some(own)) if authority.signed(own) => {
                Speaker::Enrolled(Arc::clone(authority), own.clone())
            }
            (Self::Files(files, beside), own) => match files.files.host_identity {
                HostIdentity::Any => Speaker::Shared(beside.clone()),
                // No handshake ends without one; an empty one names nobody.
                HostIdentity::Certificate => {
                    Speaker::Named(own.cloned().unwrap_or_else(|| Vec::new().into()), beside.clone())
                }
            },
            (Self::Authority(authority), Some(own)) => Speaker::Enrolled(Arc::clone(authority), own.clone()),
            (Self::Authority(authority), None) => Speaker::Nobody(Arc::clone(authority)),
        }
    }

    /// What a refusal by the other side means where this one was shown.
    #[must_use]
    pub fn if_refused(&self) -> &'static str {
        match self {
            Self::Files(..) => "",
            Self::Authority(_) => {
                "; if it has the certificate of a [tls] that is no longer configured, let it join: `tailwater enroll HOST`, then `tailwater-agent join` there"
            }
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

/// Which side ended a handshake, what kind of end it was, and why.
#[must_use]
pub fn who_refused(error: &std::io::Error) -> (&'static str, &'static str, String) {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::AlertReceived(alert)) => (
            "agent",
            "alert",
            format!("it does not accept this collector's certificate (TLS alert {alert:?})"),
        ),
        Some(rustls::Error::NoCertificatesPresented) => (
            "collector",
            "no_certificate",
            "the agent showed no certificate: set cert and key in its [tls]".into(),
        ),
        Some(rustls::Error::InvalidCertificate(why)) => {
            ("collector", "certificate", format!("the agent's certificate is not accepted: {why:?}"))
        }
        Some(rustls::Error::InvalidMessage(_)) => (
            "collector",
            "not_tls",
            "what came is not TLS: the agent's collector URL must begin with https://".into(),
        ),
        Some(other) => ("collector", "tls", other.to_string()),
        None => ("agent", "went_away", format!("the connection went away during the handshake: {error}")),
    }
}

//! Mutual TLS by files: reads them anew for each connection, and says which side refused a handshake and why. Knows no gRPC.

use crate::config::TlsFiles;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tailwater_proto::JOINED_ALPN;

/// Certificate files that cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum TlsError {
    #[error("tls.{key} = {path}: {reason}; it must hold {content} in PEM form")]
    File { key: &'static str, path: PathBuf, reason: String, content: &'static str },
    #[error("tls.cert = {cert} and tls.key = {path}: {source}; the key must belong to the certificate")]
    Pair { cert: PathBuf, path: PathBuf, source: rustls::Error },
}

/// The client side of mutual TLS as the files are now.
pub fn client_config(files: &TlsFiles) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates("ca", &files.ca, "the authority's certificate")? {
        roots.add(authority).map_err(|e| TlsError::File {
            key: "ca",
            path: files.ca.clone(),
            reason: e.to_string(),
            content: "the authority's certificate",
        })?;
    }
    let chain = certificates("cert", &files.cert, "this agent's certificate")?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| TlsError::File {
        key: "key",
        path: files.key.clone(),
        reason: pem_reason(&e),
        content: "this agent's private key",
    })?;
    let pair = |source| TlsError::Pair { cert: files.cert.clone(), path: files.key.clone(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(pair)?;
    config.alpn_protocols = if files.joined { joined_protocols() } else { vec![b"h2".to_vec()] };
    Ok(config)
}

/// Whether a certificate (X.509, DER) is one, and that of this key (PEM).
pub fn belong(certificate: &[u8], key: &str) -> Result<(), String> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| pem_reason(&e))?;
    let chain = vec![CertificateDer::from(certificate.to_vec())];
    let provider = rustls::crypto::ring::default_provider();
    let pair = rustls::sign::CertifiedKey::from_der(chain, key, &provider);
    pair.map(drop).map_err(|e| e.to_string())
}

/// What an agent offers that knows its collector by the collector's own authority.
pub fn joined_protocols() -> Vec<Vec<u8>> {
    // The first is for whoever takes both kinds; spoken is the second.
    vec![JOINED_ALPN.to_vec(), b"h2".to_vec()]
}

fn certificates(
    key: &'static str,
    path: &Path,
    content: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let error = |reason| TlsError::File { key, path: path.to_owned(), reason, content };
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|e| error(pem_reason(&e)))?.collect();
    let read = read.map_err(|e| error(pem_reason(&e)))?;
    if read.is_empty() { Err(error("no certificate in it".to_owned())) } else { Ok(read) }
}

fn pem_reason(error: &rustls::pki_types::pem::Error) -> String {
    match error {
        rustls::pki_types::pem::Error::Io(e) => e.to_string(),
        other => other.to_string(),
    }
}

/// When the files were last written; a change means that a connection should be made anew.
pub fn written(files: &TlsFiles) -> [Option<SystemTime>; 3] {
    [&files.cert, &files.key, &files.ca].map(|path| std::fs::metadata(path).and_then(|m| m.modified()).ok())
}

/// A handshake that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which side did, why, and what to do.
    pub reason: String,
    /// The certificate is good for nothing there, or the two ends know different authorities: another certificate may help, and asking again does not.
    pub of_certificate: bool,
}

/// Which side refused a handshake, and why; `None` if TLS had nothing to do with it.
pub fn refusal(error: &(dyn std::error::Error + 'static)) -> Option<Refusal> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Some(Refusal { reason: describe(tls), of_certificate: is_of_certificate(tls) });
        }
        // An io::Error hides its inner error from source() when it has no source of its own.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(found) = inner.and_then(|inner| refusal(inner)) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn is_of_certificate(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::AlertReceived(alert) => matches!(
            alert,
            AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                // Of an authority that has the name of the one before.
                | AlertDescription::DecryptError
        ),
        rustls::Error::InvalidCertificate(reason) => {
            matches!(reason, CertificateError::UnknownIssuer | CertificateError::BadSignature)
        }
        _ => false,
    }
}

fn describe(error: &rustls::Error) -> String {
    match error {
        rustls::Error::AlertReceived(alert) => {
            let remedy = match alert {
                AlertDescription::UnknownCA | AlertDescription::BadCertificate => {
                    "tls.cert must be signed by the authority that the collector trusts; a machine that joined gets one by `tailwater-agent join`"
                }
                AlertDescription::CertificateExpired => {
                    "it has expired: renew tls.cert; a machine that joined gets another by `tailwater-agent join`"
                }
                AlertDescription::CertificateRequired => "the collector wants a client certificate",
                AlertDescription::DecryptError => {
                    "tls.key must belong to tls.cert, and the authority's name be unique"
                }
                AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => {
                    "the two sides share no TLS version or cipher"
                }
                _ => "see the collector's log",
            };
            format!("the collector refused this agent (TLS alert {alert:?}): {remedy}")
        }
        rustls::Error::InvalidCertificate(reason) => {
            let remedy = match reason {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "it is not signed by the authority in tls.ca; if the collector has an authority of its own by now, \
                     `tailwater-agent join` gets this agent a certificate of it"
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "it has expired, or a clock is wrong"
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "it is not valid yet, or a clock is wrong"
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "it is not for the name in `collector`"
                }
                _ => "it cannot be used",
            };
            format!("this agent refused the collector's certificate: {remedy} ({error})")
        }
        rustls::Error::InvalidMessage(_) => {
            format!("the collector's port does not speak TLS ({error}): start it with its TLS files")
        }
        other => format!("this agent ended the TLS handshake: {other}"),
    }
}

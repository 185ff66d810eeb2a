//! The authority at work: who joins gets a certificate, who has one gets the next, and whose a certificate is. Wires keys, invitations and the
//! certificates that there are; owns no format.

use super::config::AuthorityConfig;
use super::invitations::{Invitations, Refused};
use super::issued::{Certificate, Issued};
use super::keys::{KeyError, Keys, OWN_DAYS, TABLE};
use crate::access::token::Hash;
use crate::clock::Clock;
use crate::kept::KeptError;
use crate::pem::TlsError;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Secrets of tokens are of this length; nothing else is one.
const SECRET_BYTES: usize = 32;

/// Where the authority is, in the collector's folder.
#[must_use]
pub fn folder(data: &Path) -> PathBuf {
    data.join("authority")
}

/// Those who may join, in the authority's folder.
#[must_use]
pub fn invitations(data: &Path) -> Invitations {
    Invitations::at(folder(data).join("invitations.toml"))
}

/// The certificates that there are, in the authority's folder.
#[must_use]
pub fn issued(data: &Path) -> Issued {
    Issued::at(folder(data).join("issued.toml"))
}

/// What an agent gets.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its certificate.
    pub cert: CertificateDer<'static>,
    /// When it was made, Unix seconds, by this collector's clock.
    pub issued_unix_s: u64,
    /// When it ends.
    pub expires_unix_s: u64,
}

/// Why an agent gets none; the text goes back to it.
#[derive(Debug, thiserror::Error)]
pub enum NotSigned {
    /// No token, or a wrong one.
    #[error(
        "this token lets nobody join: it was used, is over, or belongs to another collector; `tailwater enroll HOST` on the collector's host makes one"
    )]
    Unknown,
    /// Something else about it.
    #[error("{0}")]
    Refused(String),
    /// The collector's own trouble, which its log has.
    #[error("the collector cannot keep a certificate at this time; its log says why")]
    Kept(#[from] KeptError),
}

#[derive(Debug)]
struct Own {
    made: Instant,
    config: Arc<ServerConfig>,
}

/// The authority.
#[derive(Debug)]
pub struct Authority {
    keys: Keys,
    config: AuthorityConfig,
    invitations: Invitations,
    issued: Issued,
    clock: Clock,
    own: Mutex<Own>,
    /// One host joins at a time: between the look whether it has a certificate and the one that it gets nobody else takes its name.
    joining: Mutex<()>,
}

impl Authority {
    /// In the collector's folder; what is not there yet is made.
    pub fn open(config: &AuthorityConfig, data: &Path, clock: Clock) -> Result<Self, KeyError> {
        let keys = Keys::open(config, &folder(data), now(clock))?;
        let own = Mutex::new(Own { made: clock.monotonic(), config: server_config(&keys, config, clock)? });
        let (invitations, issued) = (invitations(data), issued(data));
        Ok(Self { keys, config: config.clone(), invitations, issued, clock, own, joining: Mutex::default() })
    }

    /// SHA-256 of its certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Hash {
        self.keys.fingerprint()
    }

    /// For the next handshake; its certificate is made anew in time. Who shows none is let in, too: they may join, and nothing else.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let at_most = Duration::from_secs(OWN_DAYS * 86_400 / 3 * 2);
        if self.clock.monotonic().saturating_duration_since(own.made) >= at_most {
            match server_config(&self.keys, &self.config, self.clock) {
                Ok(config) => *own = Own { made: self.clock.monotonic(), config },
                Err(e) => {
                    tracing::warn!("the collector's certificate cannot be made anew, the old one stays: {e}")
                }
            }
        }
        Arc::clone(&own.config)
    }

    /// Whose this certificate is; `None`: nobody's, as far as this collector knows.
    #[must_use]
    pub fn host_of(&self, der: &[u8]) -> Option<String> {
        self.issued.host_of(der, self.clock.monotonic(), now(self.clock))
    }

    /// The first certificate of a host, against the secret of a token. Writes to disk.
    pub fn join(&self, secret: &[u8], host: &str, request: &[u8]) -> Result<Identity, NotSigned> {
        named(host)?;
        let now_unix_s = now(self.clock);
        if secret.len() != SECRET_BYTES {
            return Err(NotSigned::Unknown);
        }
        let _one = self.joining.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.invitations.knows(secret, now_unix_s)? {
            return Err(NotSigned::Unknown);
        }
        // Before a place is taken: a wrong request must not use a token up.
        let signed = self.sign(host, request, now_unix_s)?;
        let has = self.issued.has(host, now_unix_s)?;
        let taken = self.invitations.take(secret, host, now_unix_s, |of| {
            if has && !of.replace {
                return Err(format!(
                    "host \"{host}\" has a certificate already: `tailwater enrolled --revoke {host}` on the collector's host takes it away, `tailwater enroll {host}` lets it join anew"
                ));
            }
            Ok(())
        })?;
        match taken {
            Ok(()) => {}
            Err(Refused::Unknown) => return Err(NotSigned::Unknown),
            Err(Refused::Other(why)) => return Err(NotSigned::Refused(why)),
        }
        self.issued.add(certificate(host, &signed), true, now_unix_s)?;
        Ok(signed)
    }

    /// The next certificate of whoever shows this one.
    pub fn renew(&self, shown: &[u8], request: &[u8]) -> Result<(String, Identity), NotSigned> {
        let now_unix_s = now(self.clock);
        let host = self.host_of(shown).ok_or_else(|| NotSigned::Refused(REVOKED.into()))?;
        let signed = self.sign(&host, request, now_unix_s)?;
        if !self.issued.renew(shown, certificate(&host, &signed), now_unix_s)? {
            return Err(NotSigned::Refused(REVOKED.into()));
        }
        Ok((host, signed))
    }

    fn sign(&self, host: &str, request: &[u8], now_unix_s: u64) -> Result<Identity, NotSigned> {
        let (cert, expires_unix_s) = self
            .keys
            .sign(host, request, self.config.certificate_days, now_unix_s)
            .map_err(NotSigned::Refused)?;
        Ok(Identity { cert, issued_unix_s: now_unix_s, expires_unix_s })
    }
}

/// What is said to whom a certificate helps no more.
pub const REVOKED: &str = "this certificate is nobody's: its host was revoked, or joined anew with another key; `tailwater enroll HOST` on the collector's host and `tailwater-agent join` get another";

fn certificate(host: &str, signed: &Identity) -> Certificate {
    Certificate {
        host: host.to_owned(),
        expires_unix_s: signed.expires_unix_s,
        sha256: Hash::of(&signed.cert),
    }
}

fn named(host: &str) -> Result<(), NotSigned> {
    match ServerName::try_from(host) {
        Ok(ServerName::DnsName(_)) if host.len() <= 253 => Ok(()),
        _ => Err(NotSigned::Refused(format!(
            "no certificate can name \"{}\": it is no DNS name; give the agent another with --host",
            host.chars().take(64).filter(|c| !c.is_control()).collect::<String>()
        ))),
    }
}

fn now(clock: Clock) -> u64 {
    clock.unix_ns() / 1_000_000_000
}

fn server_config(keys: &Keys, config: &AuthorityConfig, clock: Clock) -> Result<Arc<ServerConfig>, KeyError> {
    let unfit = |e: &dyn std::fmt::Display| TlsError::Unfit { table: TABLE, why: e.to_string() };
    let mut roots = RootCertStore::empty();
    roots.add(keys.cert.clone()).map_err(|e| unfit(&e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|e| unfit(&e))?;
    let (chain, key) = keys.own(&config.names, now(clock))?;
    let mut made = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| unfit(&e))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|e| unfit(&e))?;
    made.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(made))
}

#[cfg(test)]
mod tests {
    use super::super::keys::tests::config;
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    fn request() -> Vec<u8> {
        let params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn secret(token: &str) -> Vec<u8> {
        use base64::Engine;
        let all = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        all.decode(token.strip_prefix(tailwater_proto::JOIN_TOKEN_PREFIX).unwrap()).unwrap()[32..].to_vec()
    }

    #[test]
    fn who_joins_is_that_host_until_revoked_and_many_who_share_a_token_take_nobodys_name() {
        let folder = tempfile::tempdir().unwrap();
        let (config, clock) = (config(), Clock::default());
        let authority = Authority::open(&config, folder.path(), clock).unwrap();
        let invite = |hosts: &str, n: u32, replace: bool| {
            let end = now(clock) + 600;
            let open = invitations(folder.path());
            secret(&open.invite(authority.fingerprint(), (hosts, n, replace), now(clock), end).unwrap())
        };
        let one = invite("web-1", 1, true);
        assert!(matches!(authority.join(&[0; 32], "web-1", &request()), Err(NotSigned::Unknown)));
        assert!(authority.join(&one, "web-1", b"none").unwrap_err().to_string().contains("is none"));
        assert!(authority.join(&one, "no name/", &request()).unwrap_err().to_string().contains("--host"));
        let first = authority.join(&one, "web-1", &request()).unwrap();
        assert_eq!(authority.host_of(&first.cert).as_deref(), Some("web-1"));
        assert!(matches!(authority.join(&one, "web-1", &request()), Err(NotSigned::Unknown)), "one use");
        let fleet = invite("web-*", 9, false);
        let told = authority.join(&fleet, "web-1", &request()).unwrap_err().to_string();
        assert!(told.contains("enrolled --revoke web-1"), "{told}");
        assert!(authority.join(&fleet, "web-2", &request()).is_ok());
        let (host, next) = authority.renew(&first.cert, &request()).unwrap();
        assert_eq!((&*host, next.expires_unix_s >= first.expires_unix_s), ("web-1", true));
        assert!(authority.host_of(&first.cert).is_some(), "a stream may still show it");
        // Another key takes over: what was before is nobody's.
        let anew = authority.join(&invite("web-1", 1, true), "web-1", &request()).unwrap();
        assert!(authority.host_of(&next.cert).is_none() && authority.host_of(&anew.cert).is_some());
        assert!(authority.renew(&next.cert, &request()).unwrap_err().to_string().contains("nobody's"));
        // Revoked by a command, while the collector still believes what it read: whoever renews is not faster.
        assert!(authority.host_of(&anew.cert).is_some());
        issued(folder.path()).revoke("web-1").unwrap();
        assert!(authority.renew(&anew.cert, &request()).unwrap_err().to_string().contains("nobody's"));
        let anew = authority.join(&invite("web-1", 1, true), "web-1", &request()).unwrap();
        // A collector of this folder goes on with it.
        let again = Authority::open(&config, folder.path(), clock).unwrap();
        assert_eq!(again.fingerprint(), authority.fingerprint());
        assert_eq!(again.host_of(&anew.cert).as_deref(), Some("web-1"));
    }

    #[test]
    fn wrong_tokens_write_nothing_and_of_those_who_take_a_name_at_once_one_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let (config, clock) = (config(), Clock::default());
        let authority = Authority::open(&config, folder.path(), clock).unwrap();
        let open = invitations(folder.path());
        let fleet = open.invite(authority.fingerprint(), ("web-*", 8, false), now(clock), now(clock) + 600);
        let fleet = secret(&fleet.unwrap());
        let stamp =
            || crate::kept::Kept::at(super::folder(folder.path()).join("invitations.toml"), "").stamp();
        let before = stamp();
        // Not even a request is looked at.
        assert!(matches!(authority.join(&[0; 32], "web-1", b"none"), Err(NotSigned::Unknown)));
        assert_eq!(stamp(), before);
        let joined: usize = std::thread::scope(|s| {
            let tries: Vec<_> =
                (0..8).map(|_| s.spawn(|| authority.join(&fleet, "web-1", &request()).is_ok())).collect();
            tries.into_iter().map(|of| usize::from(of.join().unwrap())).sum()
        });
        assert_eq!(joined, 1);
        assert_eq!(open.open(now(clock)).unwrap()[0].left, 7, "who was refused used no place up");
    }
}

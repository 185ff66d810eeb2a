//! The authority at work: who joins gets a certificate, who has one gets the next, and whose a certificate is. Wires keys, invitations and the
//! certificates that there are; owns no format.

use super::config::AuthorityConfig;
use super::invitations::{Invitations, Refused};
use super::issued::{Certificate, Issued};
use super::keys::{BEFORE_S, DAY_S, KeyError, Keys, OWN_DAYS, TABLE};
use super::kubernetes::{NotVouched, Reviewer, Vouched};
use crate::access::token::Hash;
use crate::clock::Clock;
use crate::kept::KeptError;
use crate::pem::TlsError;
use rustls::client::verify_server_name;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::net::IpAddr;
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
    /// A token of a service account, which its cluster does not vouch for, or not enough.
    #[error(transparent)]
    Vouching(#[from] NotVouched),
    /// The collector's own trouble, which its log has.
    #[error("the collector cannot keep a certificate at this time; its log says why")]
    Kept(#[from] KeptError),
}

#[derive(Debug)]
struct Own {
    made: Instant,
    made_unix_s: u64,
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
    /// Of whom one of its certificates is, whoever shows it where.
    verifier: Arc<dyn ClientCertVerifier>,
    /// One host joins at a time: between the look whether it has a certificate and the one that it gets nobody else takes its name.
    joining: Mutex<()>,
    /// Who is asked about service accounts' tokens.
    cluster: Option<Reviewer>,
}

impl Authority {
    /// In the collector's folder; what is not there yet is made.
    pub fn open(config: &AuthorityConfig, data: &Path, clock: Clock) -> Result<Self, KeyError> {
        let keys = Keys::open(config, &folder(data), now(clock))?;
        let (made, made_unix_s, verifier) = (clock.monotonic(), now(clock), verifier(&keys)?);
        let made_config = server_config(&keys, config, &verifier, made_unix_s)?;
        let own = Mutex::new(Own { made, made_unix_s, config: made_config });
        let (invitations, issued) = (invitations(data), issued(data));
        let cluster = config.kubernetes.as_ref().map(Reviewer::new).transpose()?;
        let (config, joining) = (config.clone(), Mutex::default());
        Ok(Self { keys, config, invitations, issued, clock, own, verifier, joining, cluster })
    }

    /// SHA-256 of its certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Hash {
        self.keys.fingerprint()
    }

    /// For the next handshake; its certificate is made anew in time. Who shows none is let in, too: they may join, and nothing else.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let at_most_s = OWN_DAYS * DAY_S / 3 * 2;
        let (monotonic, now_unix_s) = (self.clock.monotonic(), now(self.clock));
        let old = monotonic.saturating_duration_since(own.made) >= Duration::from_secs(at_most_s);
        // The clock was set: by its new time that certificate is old, or begins later.
        let of_another_time = now_unix_s >= own.made_unix_s.saturating_add(at_most_s)
            || now_unix_s.saturating_add(BEFORE_S) < own.made_unix_s;
        if old || of_another_time {
            match server_config(&self.keys, &self.config, &self.verifier, now_unix_s) {
                Ok(config) => *own = Own { made: monotonic, made_unix_s: now_unix_s, config },
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
        let (monotonic, now_unix_s) = (self.clock.monotonic(), now(self.clock));
        let of = self.issued.of(der, monotonic, now_unix_s).or_else(|| {
            // Signed by this authority, as TLS has found, and not in the file: that may be of before the last renewal, out of a backup. The key is
            // still the host's own then, unless the host was revoked or has joined anew.
            let of = self.issued.with_key(&key_of(der)?, monotonic, now_unix_s)?;
            names(der, &of.host).then_some(of)
        });
        of.map(|of| of.host)
    }

    /// Whether this authority signed that certificate of an agent, and it lasts: also where TLS had another authority judge it.
    #[must_use]
    pub fn signed(&self, der: &CertificateDer<'_>) -> bool {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now(self.clock)));
        self.verifier.verify_client_cert(der, &[], now).is_ok()
    }

    /// Whether the file has this very certificate.
    #[must_use]
    pub fn keeps(&self, der: &[u8]) -> bool {
        self.issued.of(der, self.clock.monotonic(), now(self.clock)).is_some()
    }

    /// From when until when this certificate lasts, Unix seconds, where both are kept.
    #[must_use]
    pub fn life_of(&self, der: &[u8]) -> Option<(u64, u64)> {
        let of = self.issued.of(der, self.clock.monotonic(), now(self.clock))?;
        Some((of.issued_unix_s?, of.expires_unix_s))
    }

    /// Whether this host has joined, and has a certificate of its own.
    #[must_use]
    pub fn has_joined(&self, host: &str) -> bool {
        self.issued.knows(host, self.clock.monotonic(), now(self.clock))
    }

    /// Keeps a certificate that is its host's by its key alone, so that it is not forgotten with the older one. Writes to disk.
    pub fn adopt(&self, der: &[u8]) -> Result<(), KeptError> {
        let now_unix_s = now(self.clock);
        let Some(host) = self.host_of(der).filter(|_| !self.keeps(der)) else { return Ok(()) };
        let expires_unix_s = now_unix_s + self.config.certificate_days * DAY_S;
        // It was signed before now, so it ends before that; TLS knows when, this file does not.
        let one = Certificate {
            host,
            issued_unix_s: None,
            expires_unix_s,
            sha256: Hash::of(der),
            key_sha256: key_of(der),
        };
        // Not if its host was revoked meanwhile.
        self.issued.renew(der, key_of(der), one, now_unix_s).map(|_| ())
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
        let (has, revoked) = (self.issued.has(host, now_unix_s)?, self.issued.is_revoked(host)?);
        // Whoever made a token for one host meant that host, also where it was revoked before.
        let mut invited = false;
        let taken = self.invitations.take(secret, host, now_unix_s, |of| {
            invited = !of.hosts.contains('*');
            if revoked && !invited {
                Err(was_revoked(host))
            } else if has && !of.replace {
                Err(taken_already(host))
            } else {
                Ok(())
            }
        })?;
        match taken {
            Ok(()) => {}
            Err(Refused::Unknown) => return Err(NotSigned::Unknown),
            Err(Refused::Other(why)) => return Err(NotSigned::Refused(why)),
        }
        // One that was revoked since that was looked at stays out, also with a token for it alone.
        if !self.issued.join(certificate(host, &signed), invited && revoked, now_unix_s)? {
            return Err(NotSigned::Refused(was_revoked(host)));
        }
        Ok(signed)
    }

    /// Asks the cluster whether it vouches for whoever shows this token of a service account as `host`.
    pub async fn review(&self, token: &[u8], host: &str) -> Result<Vouched, NotSigned> {
        named(host)?;
        let Some(cluster) = &self.cluster else {
            return Err(NotSigned::Refused(
                "this collector asks no cluster about tokens of service accounts: [authority.kubernetes] of its configuration says which one and whose".into(),
            ));
        };
        Ok(cluster.review(token, host).await?)
    }

    /// The first certificate of a host that a cluster vouches for, unless it was revoked: the cluster goes on vouching for a pod whatever is known here.
    /// Writes to disk.
    pub fn join_vouched(&self, vouched: &Vouched, request: &[u8]) -> Result<Identity, NotSigned> {
        let host = &vouched.host;
        let now_unix_s = now(self.clock);
        let _one = self.joining.lock().unwrap_or_else(PoisonError::into_inner);
        // Where the cluster itself names the host, its pod was made anew, and its key with it: it takes the name over from whoever has it, also from a
        // machine that is no node of that cluster and is called the same. Which names that can be, `hosts` bounds.
        if !vouched.of_node && self.issued.has(host, now_unix_s)? {
            return Err(NotSigned::Refused(taken_already(host)));
        }
        if self.issued.is_revoked(host)? {
            return Err(NotSigned::Refused(was_revoked(host)));
        }
        let signed = self.sign(host, request, now_unix_s)?;
        if !self.issued.join(certificate(host, &signed), false, now_unix_s)? {
            return Err(NotSigned::Refused(was_revoked(host)));
        }
        Ok(signed)
    }

    /// The next certificate of whoever shows this one.
    pub fn renew(&self, shown: &[u8], request: &[u8]) -> Result<(String, Identity), NotSigned> {
        let now_unix_s = now(self.clock);
        let host = self.host_of(shown).ok_or_else(|| NotSigned::Refused(REVOKED.into()))?;
        let signed = self.sign(&host, request, now_unix_s)?;
        if !self.issued.renew(shown, key_of(shown), certificate(&host, &signed), now_unix_s)? {
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

/// Why somebody else does not get a host's name.
fn taken_already(host: &str) -> String {
    format!(
        "host \"{host}\" has a certificate already: `tailwater enrolled --revoke {host}` on the collector's host takes it away, `tailwater enroll {host}` lets it join anew"
    )
}

/// Why whoever was revoked does not come back by itself.
fn was_revoked(host: &str) -> String {
    format!(
        "host \"{host}\" was revoked: on the collector's host `tailwater enrolled --allow {host}` lets it join again, and so does a token for it alone \
         (`tailwater enroll {host}`)"
    )
}

fn certificate(host: &str, signed: &Identity) -> Certificate {
    Certificate {
        host: host.to_owned(),
        issued_unix_s: Some(signed.issued_unix_s),
        expires_unix_s: signed.expires_unix_s,
        sha256: Hash::of(&signed.cert),
        key_sha256: key_of(&signed.cert),
    }
}

/// Of a certificate's public key, as it stands there.
fn key_of(der: &[u8]) -> Option<Hash> {
    let der = CertificateDer::from(der);
    let parsed = ParsedCertificate::try_from(&der).ok()?;
    Some(Hash::of(&parsed.subject_public_key_info()))
}

/// Whether a certificate names this host.
fn names(der: &[u8], host: &str) -> bool {
    let der = CertificateDer::from(der);
    let (Ok(parsed), Ok(name)) = (ParsedCertificate::try_from(&der), ServerName::try_from(host)) else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

fn named(host: &str) -> Result<(), NotSigned> {
    let fits = match ServerName::try_from(host) {
        Ok(ServerName::DnsName(_)) => host.len() <= 253,
        // Some clusters call their nodes so. Of the ways to write one address only the usual one: a host is known to the letter, and one with many
        // spellings would be many.
        Ok(ServerName::IpAddress(_)) => host.parse::<IpAddr>().is_ok_and(|of| of.to_string() == host),
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(NotSigned::Refused(format!(
        "no certificate can name \"{}\": it is neither a DNS name nor an address as it is usually written; give the agent another with --host",
        host.chars().take(64).filter(|c| !c.is_control()).collect::<String>()
    )))
}

fn now(clock: Clock) -> u64 {
    clock.unix_ns() / 1_000_000_000
}

/// Of whoever shows a certificate, or none.
fn verifier(keys: &Keys) -> Result<Arc<dyn ClientCertVerifier>, KeyError> {
    let unfit = |e: &dyn std::fmt::Display| TlsError::Unfit { table: TABLE, why: e.to_string() };
    let mut roots = RootCertStore::empty();
    roots.add(keys.cert.clone()).map_err(|e| unfit(&e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|e| unfit(&e))?;
    Ok(verifier)
}

fn server_config(
    keys: &Keys,
    config: &AuthorityConfig,
    verifier: &Arc<dyn ClientCertVerifier>,
    now_unix_s: u64,
) -> Result<Arc<ServerConfig>, KeyError> {
    let unfit = |e: &dyn std::fmt::Display| TlsError::Unfit { table: TABLE, why: e.to_string() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (chain, key) = keys.own(&config.names, now_unix_s)?;
    let mut made = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| unfit(&e))?
        .with_client_cert_verifier(Arc::clone(verifier))
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
        let elsewhere = tempfile::tempdir().unwrap();
        let other = Authority::open(&config, elsewhere.path(), clock).unwrap();
        assert!(authority.signed(&first.cert) && !other.signed(&first.cert), "whatever else trusts it");
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
        issued(folder.path()).revoke("web-1", now(clock)).unwrap();
        assert!(authority.renew(&anew.cert, &request()).unwrap_err().to_string().contains("nobody's"));
        let anew = authority.join(&invite("web-1", 1, true), "web-1", &request()).unwrap();
        // A collector of this folder goes on with it.
        let again = Authority::open(&config, folder.path(), clock).unwrap();
        assert_eq!(again.fingerprint(), authority.fingerprint());
        assert_eq!(again.host_of(&anew.cert).as_deref(), Some("web-1"));
    }

    /// Fails if a fleet's token or a cluster's word undoes a revocation, or if a node that is called by its address gets no certificate that names it.
    #[test]
    fn who_was_revoked_joins_by_a_word_for_it_alone_also_where_it_is_called_by_an_address() {
        let folder = tempfile::tempdir().unwrap();
        let (config, clock) = (config(), Clock::default());
        let authority = Authority::open(&config, folder.path(), clock).unwrap();
        let (open, node) = (invitations(folder.path()), "10.0.0.7");
        let invite = |hosts: &str| {
            let of = (hosts, 9, true);
            secret(&open.invite(authority.fingerprint(), of, now(clock), now(clock) + 600).unwrap())
        };
        let vouched = Vouched { account: "tailwater:agent".into(), host: node.into(), of_node: true };
        let fleet = invite("10.*");
        let held = authority.join(&fleet, node, &request()).unwrap();
        assert!(names(&held.cert, node) && !names(&held.cert, "10.0.0.8"));
        assert_eq!(authority.host_of(&held.cert).as_deref(), Some(node));
        issued(folder.path()).revoke(node, now(clock)).unwrap();
        for by in [authority.join(&fleet, node, &request()), authority.join_vouched(&vouched, &request())] {
            let told = by.unwrap_err().to_string();
            assert!(told.contains("was revoked") && told.contains("enrolled --allow 10.0.0.7"), "{told}");
        }
        assert_eq!(open.open(now(clock)).unwrap()[0].left, 8, "who was refused used no place up");
        assert!(authority.join(&invite(node), node, &request()).is_ok());
        assert!(authority.join_vouched(&vouched, &request()).is_ok(), "it is revoked no more");
        issued(folder.path()).revoke(node, now(clock)).unwrap();
        issued(folder.path()).allow(node).unwrap();
        assert!(authority.join_vouched(&vouched, &request()).is_ok());
        assert!(named("fe80::1").is_ok() && named("node-1.internal").is_ok());
        for wrong in ["010.0.0.7", "fe80:0::1", "FE80::1", "a/b", ""] {
            let told = named(wrong).unwrap_err().to_string();
            assert!(told.contains("no certificate can name"), "{told}");
        }
    }

    #[test]
    fn a_file_of_before_the_renewal_still_knows_the_host_by_its_key_until_it_is_revoked_or_joins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (config, clock) = (config(), Clock::default());
        let authority = Authority::open(&config, folder.path(), clock).unwrap();
        let invite = |host: &str| {
            let open = invitations(folder.path());
            secret(
                &open.invite(authority.fingerprint(), (host, 1, true), now(clock), now(clock) + 600).unwrap(),
            )
        };
        let request_of = |key: &KeyPair| {
            let params = CertificateParams::new(Vec::<String>::new()).unwrap();
            params.serialize_request(key).unwrap().der().to_vec()
        };
        let (own, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let first = authority.join(&invite("web-1"), "web-1", &request_of(&own)).unwrap();
        assert_eq!(authority.life_of(&first.cert), Some((first.issued_unix_s, first.expires_unix_s)));
        let (_, renewed) = authority.renew(&first.cert, &request_of(&own)).unwrap();
        let (_, with_another_key) = authority.renew(&renewed.cert, &request_of(&other)).unwrap();
        let backup = |edit: &dyn Fn(&mut toml::Table)| {
            let path = super::folder(folder.path()).join("issued.toml");
            let mut all: toml::Table = toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            edit(&mut all);
            std::fs::write(&path, toml::to_string(&all).unwrap()).unwrap();
            // As it begins with it.
            Authority::open(&config, folder.path(), clock).unwrap()
        };
        let only = |cert: &CertificateDer<'_>| {
            let hash = Hash::of(cert).to_string();
            move |all: &mut toml::Table| {
                let kept = all["certificate"].as_array_mut().unwrap();
                kept.retain(|of| of["sha256"].as_str() == Some(&hash));
            }
        };
        // `renewed` is in the file still (a host has two); `first` is not, and has its key.
        let restored = backup(&only(&renewed.cert));
        assert_eq!(restored.host_of(&first.cert).as_deref(), Some("web-1"));
        assert_eq!(restored.host_of(&with_another_key.cert), None, "another key than the file knows");
        assert_eq!(restored.life_of(&first.cert), None, "it is not told what is not known");
        restored.adopt(&first.cert).unwrap();
        assert_eq!(issued(folder.path()).all().unwrap().len(), 2);
        restored.adopt(&first.cert).unwrap();
        assert_eq!(issued(folder.path()).all().unwrap().len(), 2, "once");
        assert!(restored.renew(&first.cert, &request_of(&own)).is_ok());
        // The same key under another name is nobody's.
        let as_db = backup(&|all| {
            for of in all["certificate"].as_array_mut().unwrap() {
                of.as_table_mut().unwrap().insert("host".into(), "db-1".into());
            }
        });
        assert_eq!(as_db.host_of(&renewed.cert).as_deref(), None);
        issued(folder.path()).revoke("db-1", now(clock)).unwrap();
        let revoked = Authority::open(&config, folder.path(), clock).unwrap();
        assert_eq!(revoked.host_of(&first.cert), None);
        revoked.adopt(&first.cert).unwrap();
        assert_eq!(issued(folder.path()).all().unwrap(), []);
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

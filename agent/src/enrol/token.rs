//! A token of enrolment, and whom it says to trust: the authority whose certificate has the fingerprint that the token carries; the token of a Kubernetes
//! service account, which carries none, comes with that certificate in a file. So whoever joins
//! knows the collector at the first contact, and shows the secret to nobody else. (kubeadm's --discovery-token-ca-cert-hash does the same.)

use crate::stream::tls::joined_protocols;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tailwater_proto::JOIN_TOKEN_PREFIX as PREFIX;

/// Of the fingerprint, and of the secret.
const BYTES: usize = 32;
/// A service account's token is shorter; a collector takes no longer one.
const ACCOUNT_TOKEN_BYTES_MAX: usize = 8 * 1024;

/// A file without a token.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum TokenError {
    #[error("{}: {source}; give --token-file a readable file", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error(
        "{}: no token of enrolment in it; `tailwater enroll HOST` on the collector's host prints one, which begins with {PREFIX}", path.display()
    )]
    Form { path: PathBuf },
    #[error("{}: {reason}; give the authority's certificate, PEM", path.display())]
    Authority { path: PathBuf, reason: String },
}

/// The token.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    fingerprint: [u8; BYTES],
    secret: Vec<u8>,
}

impl std::fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinToken(…)")
    }
}

/// The authority, once a handshake has proved that the collector is of it.
#[derive(Debug, Clone, Default)]
pub struct Trusted(Arc<Mutex<Option<CertificateDer<'static>>>>);

impl Trusted {
    /// Its certificate.
    pub fn take(&self) -> Option<CertificateDer<'static>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl JoinToken {
    /// As it is told.
    pub fn parse(text: &str) -> Option<Self> {
        let all = URL_SAFE_NO_PAD.decode(text.trim().strip_prefix(PREFIX)?).ok()?;
        let (fingerprint, secret) = all.split_at_checked(BYTES)?;
        let secret = Some(secret.to_vec()).filter(|of| of.len() == BYTES)?;
        Some(Self { fingerprint: fingerprint.try_into().ok()?, secret })
    }

    /// From a file. With `ca`, the authority's certificate (PEM, the first one there), it may be a service account's as well: a cluster knows what that is
    /// worth, and it does not say whom to trust.
    pub fn read(path: &Path, ca: Option<&Path>) -> Result<Self, TokenError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenError::File { path: path.to_owned(), source })?;
        if let Some(token) = Self::parse(&text) {
            return Ok(token);
        }
        let (Some(ca), token) = (ca, text.trim()) else {
            return Err(TokenError::Form { path: path.to_owned() });
        };
        if token.is_empty() || token.len() > ACCOUNT_TOKEN_BYTES_MAX || token.starts_with(PREFIX) {
            return Err(TokenError::Form { path: path.to_owned() });
        }
        let authority = CertificateDer::from_pem_file(ca)
            .map_err(|e| TokenError::Authority { path: ca.to_owned(), reason: e.to_string() })?;
        Ok(Self { fingerprint: Sha256::digest(&authority).into(), secret: token.as_bytes().to_vec() })
    }

    /// What the collector knows it by.
    pub fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// TLS with whoever proves to be of that authority, and the authority when that is proved.
    pub fn trust(&self) -> (ClientConfig, Trusted) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trusted = Trusted::default();
        let pinned = Pinned {
            fingerprint: self.fingerprint,
            provider: Arc::clone(&provider),
            trusted: trusted.clone(),
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has what the default versions of TLS need")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(pinned))
            .with_no_client_auth();
        config.alpn_protocols = joined_protocols();
        (config, trusted)
    }
}

/// Trusts one authority, which it knows by its fingerprint and finds in what the collector shows. All else is as always: the chain, the name,
/// the time.
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; BYTES],
    provider: Arc<CryptoProvider>,
    trusted: Trusted,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_it = |of: &&CertificateDer<'_>| Sha256::digest(of.as_ref())[..] == self.fingerprint;
        let authority = intermediates.iter().find(is_it).ok_or_else(|| {
            Error::General("the collector is not of the authority that the token names, or the file beside a service account's: that is another collector's, or somebody stands between".into())
        })?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|e| Error::General(e.to_string()))?;
        let verified =
            usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        *self.trusted.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(authority.clone().into_owned());
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    fn authority(name: &str) -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().der().clone(), Issuer::new(params, key))
    }

    fn token(of: &CertificateDer<'_>) -> String {
        let fingerprint: [u8; 32] = Sha256::digest(of).into();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode([fingerprint, [9; 32]].concat()))
    }

    #[test]
    fn only_who_is_of_the_tokens_authority_is_trusted_and_only_by_its_name() {
        let (ours, issuer) = authority("ours");
        let (theirs, their_issuer) = authority("theirs");
        let own = |issuer: &Issuer<'static, KeyPair>| {
            let params = CertificateParams::new(vec!["collector".to_owned()]).unwrap();
            params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
        };
        let token = JoinToken::parse(&token(&ours)).unwrap();
        assert_eq!(token.secret(), [9; 32]);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let pinned = Pinned { fingerprint: token.fingerprint, provider, trusted: Trusted::default() };
        let verify = |leaf: &CertificateDer<'_>, shown: &[CertificateDer<'_>], name: &'static str| {
            let name = ServerName::try_from(name).unwrap();
            pinned.verify_server_cert(leaf, shown, &name, &[], UnixTime::now())
        };
        let (leaf, their_leaf) = (own(&issuer), own(&their_issuer));
        let not_named =
            verify(&their_leaf, std::slice::from_ref(&theirs), "collector").unwrap_err().to_string();
        assert!(not_named.contains("somebody stands between"), "{not_named}");
        // Whoever shows our authority beside a certificate of their own.
        assert!(verify(&their_leaf, &[theirs.clone(), ours.clone()], "collector").is_err());
        assert!(verify(&leaf, std::slice::from_ref(&ours), "other").is_err());
        assert!(verify(&leaf, &[], "collector").is_err());
        assert!(pinned.trusted.take().is_none(), "nobody was");
        assert!(verify(&leaf, &[theirs, ours.clone()], "collector").is_ok());
        assert_eq!(pinned.trusted.take(), Some(ours));
    }

    #[test]
    fn what_is_no_token_is_told_with_where_to_get_one_and_none_is_ever_shown() {
        let (ours, _) = authority("ours");
        let good = token(&ours);
        for wrong in ["", "x", PREFIX, &good[..good.len() - 4], &format!("{good}AAAA")] {
            assert!(JoinToken::parse(wrong).is_none(), "{wrong}");
        }
        assert_eq!(format!("{:?}", JoinToken::parse(&format!("{good}\n")).unwrap()), "JoinToken(…)");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret").unwrap();
        let told = JoinToken::read(file.path(), None).unwrap_err().to_string();
        assert!(told.contains("tailwater enroll HOST") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn a_service_accounts_token_is_sent_to_who_is_of_the_authority_in_the_file_and_is_read_anew() {
        let (ours, _) = authority("ours");
        let folder = tempfile::tempdir().unwrap();
        let (token, ca) = (folder.path().join("token"), folder.path().join("ca.crt"));
        let body = base64::engine::general_purpose::STANDARD.encode(&ours);
        let pem = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        std::fs::write(&ca, pem).unwrap();
        let fingerprint: [u8; 32] = Sha256::digest(&ours).into();
        for written in ["eyJh.eyJi.c2ln\n", "eyJh.eyJj.c2lo\n"] {
            std::fs::write(&token, written).unwrap();
            let read = JoinToken::read(&token, Some(&ca)).unwrap();
            assert_eq!((read.secret(), read.fingerprint), (written.trim().as_bytes(), fingerprint));
        }
        assert!(JoinToken::read(&token, None).is_err(), "it does not say whom to trust");
        let told = JoinToken::read(&token, Some(&token)).unwrap_err().to_string();
        assert!(told.contains("the authority's certificate") && !told.contains("eyJj"), "{told}");
        for wrong in ["", " \n", PREFIX, &"a".repeat(ACCOUNT_TOKEN_BYTES_MAX + 1)] {
            std::fs::write(&token, wrong).unwrap();
            assert!(JoinToken::read(&token, Some(&ca)).is_err());
        }
        // One that says whom to trust is believed: what the file has is for others.
        std::fs::write(&token, self::token(&authority("theirs").0)).unwrap();
        assert_ne!(JoinToken::read(&token, Some(&ca)).unwrap().fingerprint, fingerprint);
    }
}

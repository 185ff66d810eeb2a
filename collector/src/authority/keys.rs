//! Keys and certificates: the authority's own, made once or given, the collector's, and those that it signs for agents. Owns how long each
//! lasts and what stands in it. An agent's key is never here: agents send requests that it has signed.

use super::config::AuthorityConfig;
use crate::access::token::{Hash, random};
use crate::kept;
use crate::pem::{self, TlsError};
use crate::send::http::HookError;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// Where it is configured.
pub(super) const TABLE: &str = "authority";
/// The authority lasts for ten years: longer than the machines.
const AUTHORITY_DAYS: u64 = 3650;
/// The collector's own certificate; it is made anew at two thirds of that, and at each start.
pub(super) const OWN_DAYS: u64 = 90;
pub(super) const DAY_S: u64 = 86_400;
/// Clocks of agents may be behind by so much.
pub(super) const BEFORE_S: u64 = 3600;

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Its folder.
    #[error("[authority] {}: {source}\n  remedy: run it as root or as the collector's user, and name the collector's folder with --data", path.display())]
    Folder {
        /// Which file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Its files.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// A certificate that cannot be made.
    #[error("[authority] {0}\n  remedy: check that key belongs to cert, and that cert is an authority's")]
    Certificate(String),
    /// What is needed to ask a cluster about its tokens.
    #[error("[authority.kubernetes] {0}")]
    Cluster(#[from] HookError),
}

fn unfit(e: impl std::fmt::Display) -> KeyError {
    KeyError::Certificate(e.to_string())
}

/// The authority's certificate and key.
pub(super) struct Keys {
    pub(super) cert: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(…)")
    }
}

fn moment(unix_s: u64) -> Result<OffsetDateTime, KeyError> {
    OffsetDateTime::from_unix_timestamp(i64::try_from(unix_s).map_err(unfit)?).map_err(unfit)
}

/// Parameters of a certificate that begins now.
fn lasting(days: u64, now_unix_s: u64) -> Result<(CertificateParams, u64), KeyError> {
    let mut params = CertificateParams::default();
    let ends = now_unix_s + days * DAY_S;
    params.not_before = moment(now_unix_s.saturating_sub(BEFORE_S))?;
    params.not_after = moment(ends)?;
    let mut serial = random::<16>().map_err(unfit)?;
    // Positive, and not empty (RFC 5280, 4.1.2.2).
    serial[0] = (serial[0] & 0x7f) | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok((params, ends))
}

impl Keys {
    /// Those that are configured; else those in `folder`, which are made if there are none.
    pub(super) fn open(config: &AuthorityConfig, folder: &Path, now_unix_s: u64) -> Result<Self, KeyError> {
        if let (Some(cert), Some(key)) = (&config.cert, &config.key) {
            return Self::load(cert, key);
        }
        let (cert, key) = (folder.join("ca.crt"), folder.join("ca.key"));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| KeyError::Folder { path, source }
        };
        if !folder.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
            // Root makes it for the collector, whose folder is around it.
            if rustix::process::geteuid().is_root()
                && let Some(around) = folder.parent()
            {
                let owner = std::fs::metadata(around).map_err(failed(around))?;
                // Of a link that was put there meanwhile, the link.
                lchown(folder, Some(owner.uid()), Some(owner.gid())).map_err(failed(folder))?;
            }
        }
        // One at a time: two that began at once would sign with two keys.
        let held = File::open(folder).map_err(failed(folder))?;
        held.lock().map_err(failed(folder))?;
        if !cert.exists() {
            let (made, made_key) = Self::make(now_unix_s)?;
            kept::write(&held, &key, &made_key).map_err(failed(&key))?;
            // Last: where it is, the key is, too.
            kept::write(&held, &cert, &made).map_err(failed(&cert))?;
        }
        Self::load(&cert, &key)
    }

    fn load(cert: &Path, key: &Path) -> Result<Self, KeyError> {
        let first = pem::certificates(TABLE, "cert", cert)?.swap_remove(0);
        let key = KeyPair::try_from(&pem::private_key(TABLE, key)?).map_err(unfit)?;
        let issuer = Issuer::from_ca_cert_der(&first, key).map_err(unfit)?;
        Ok(Self { cert: first, issuer })
    }

    /// Certificate and key, PEM.
    fn make(now_unix_s: u64) -> Result<(String, String), KeyError> {
        let key = KeyPair::generate().map_err(unfit)?;
        let (mut params, _) = lasting(AUTHORITY_DAYS, now_unix_s)?;
        // Two authorities of one name are mistaken for each other by those who look an issuer up.
        let number: String = random::<4>().map_err(unfit)?.iter().map(|b| format!("{b:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, format!("Tailwater authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok((params.self_signed(&key).map_err(unfit)?.pem(), key.serialize_pem()))
    }

    /// SHA-256 of the authority's certificate: what a token of enrolment carries, and `openssl x509 -fingerprint -sha256` prints.
    pub(super) fn fingerprint(&self) -> Hash {
        Hash::of(&self.cert)
    }

    /// The collector's own certificate with the authority's, and its key.
    pub(super) fn own(
        &self,
        names: &[String],
        now_unix_s: u64,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), KeyError> {
        let (lasts, _) = lasting(OWN_DAYS, now_unix_s)?;
        let mut params = CertificateParams::new(names.to_vec()).map_err(unfit)?;
        (params.not_before, params.not_after, params.serial_number) =
            (lasts.not_before, lasts.not_after, lasts.serial_number);
        params.distinguished_name.push(DnType::CommonName, "Tailwater collector");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(unfit)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(unfit)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        // Whoever joins knows the authority by its fingerprint alone, and finds it here.
        Ok((vec![cert.der().clone(), self.cert.clone()], key))
    }

    /// A certificate for `host`, and when it ends. Of the request nothing counts but the key that signed it.
    pub(super) fn sign(
        &self,
        host: &str,
        request: &[u8],
        days: u64,
        now_unix_s: u64,
    ) -> Result<(CertificateDer<'static>, u64), String> {
        let request = CertificateSigningRequestParams::from_der(&request.into())
            .map_err(|e| format!("the request for a certificate is none: {e}"))?;
        let signed = || -> Result<_, KeyError> {
            let (lasts, ends) = lasting(days, now_unix_s)?;
            let mut params = CertificateParams::new(vec![host.to_owned()]).map_err(unfit)?;
            (params.not_before, params.not_after, params.serial_number) =
                (lasts.not_before, lasts.not_after, lasts.serial_number);
            params.distinguished_name.push(DnType::CommonName, "Tailwater agent");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let cert = params.signed_by(&request.public_key, &self.issuer).map_err(unfit)?;
            Ok((cert.der().clone(), ends))
        };
        signed().map_err(|e| e.to_string())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn config() -> AuthorityConfig {
        AuthorityConfig {
            names: vec!["collector.internal".into(), "10.0.0.1".into()],
            certificate_days: 30,
            cert: None,
            key: None,
            kubernetes: None,
        }
    }

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn it_is_made_once_for_its_owner_alone_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("authority");
        let first = Keys::open(&config(), &at, NOW).unwrap();
        let again = Keys::open(&config(), &at, NOW + 1).unwrap();
        assert_eq!(first.fingerprint(), again.fingerprint());
        for (file, mode) in [("", 0o700), ("ca.key", 0o600), ("ca.crt", 0o600)] {
            assert_eq!(std::fs::metadata(at.join(file)).unwrap().mode() & 0o777, mode, "{file}");
        }
        let other = tempfile::tempdir().unwrap();
        assert_ne!(first.fingerprint(), Keys::open(&config(), other.path(), NOW).unwrap().fingerprint());
        // An authority of one's own.
        let own = AuthorityConfig { cert: Some(at.join("ca.crt")), key: Some(at.join("ca.key")), ..config() };
        let nowhere = folder.path().join("nowhere");
        assert_eq!(Keys::open(&own, &nowhere, NOW).unwrap().fingerprint(), first.fingerprint());
        assert!(!nowhere.exists());
    }

    #[test]
    fn a_request_has_its_key_signed_and_none_of_its_wishes() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::open(&config(), folder.path(), NOW).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut wishes = CertificateParams::new(vec!["db-1".to_owned()]).unwrap();
        wishes.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let request = wishes.serialize_request(&key).unwrap();
        let (cert, ends) = keys.sign("web-1", request.der(), 30, NOW).unwrap();
        assert_eq!(ends, NOW + 30 * DAY_S);
        let parsed = rustls::server::ParsedCertificate::try_from(&cert).unwrap();
        let is_for = |name: &str| {
            let name = rustls_pki_types::ServerName::try_from(name.to_owned()).unwrap();
            rustls::client::verify_server_name(&parsed, &name).is_ok()
        };
        assert!(is_for("web-1") && !is_for("db-1"));
        assert!(
            Issuer::from_ca_cert_der(&cert, KeyPair::generate().unwrap()).unwrap().key_usages().is_empty()
        );
        let mut torn = request.der().to_vec();
        let last = torn.len() - 1;
        torn[last] ^= 1;
        assert!(keys.sign("web-1", &torn, 30, NOW).unwrap_err().contains("is none"));
    }
}

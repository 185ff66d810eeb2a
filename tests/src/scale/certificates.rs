//! Certificates for one run: an authority, the collector's, and one for each host that names it. Written nowhere but where the collector
//! must read them.

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;

/// An authority that lives as long as a run.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    /// A new one; its certificate, and the collector's with its key, go into `folder`.
    pub fn new(folder: &Path) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, "Tailwater scale run");
        let certificate = parameters.self_signed(&key)?;
        std::fs::write(folder.join("ca.pem"), certificate.pem())?;
        let (der, issuer) = (certificate.der().clone(), Issuer::new(parameters, key));
        let key = KeyPair::generate()?;
        let own = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
        std::fs::write(folder.join("collector.pem"), own.pem())?;
        std::fs::write(folder.join("collector.key"), key.serialize_pem())?;
        Ok(Self { issuer, certificate: der })
    }

    /// What the agent of `host` connects with.
    pub fn agent(&self, host: &str) -> Result<Arc<ClientConfig>> {
        let key = KeyPair::generate()?;
        let own = CertificateParams::new(vec![host.to_owned()])?.signed_by(&key, &self.issuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![own.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

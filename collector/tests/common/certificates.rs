//! Authorities, certificates, and connections with them, of tests.

use base64::Engine;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

/// Somebody's authority.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Certificate and key, PEM.
    pub fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Writes one file in one step, as certificate tools do.
pub fn put(folder: &Path, name: &str, text: &str) {
    let new = folder.join(format!("{name}.new"));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, folder.join(name)).unwrap();
}

/// Who knows the other side by this authority (PEM), shows this identity (certificate and key, PEM), and offers these protocols.
pub fn client_offering(
    trusts: &str,
    identity: Option<&(String, String)>,
    protocols: &[&[u8]],
) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusts.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    config.alpn_protocols = protocols.iter().map(|of| of.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// The same of an agent that knows of no authority of the collector's own.
pub fn client(trusts: &Authority, identity: Option<(String, String)>) -> TlsConnector {
    client_offering(&trusts.pem, identity.as_ref(), &[b"h2"])
}

/// Connects to a collector that calls itself "collector".
#[derive(Clone)]
pub struct Dial {
    pub address: SocketAddr,
    pub tls: TlsConnector,
    /// From which address of this machine; 0.0.0.0: whichever.
    pub from: [u8; 4],
}

impl Dial {
    pub fn to(address: SocketAddr, tls: TlsConnector) -> Self {
        Self { address, tls, from: [0; 4] }
    }

    pub async fn open(self) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((self.from, 0)))?;
        let stream = socket.connect(self.address).await?;
        self.tls.connect(ServerName::try_from("collector").unwrap(), stream).await
    }
}

impl tonic::codegen::Service<tonic::codegen::http::Uri> for Dial {
    type Response = TokioIo<tokio_rustls::client::TlsStream<TcpStream>>;
    type Error = std::io::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: tonic::codegen::http::Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(TokioIo::new(this.open().await?)) })
    }
}

/// A certificate as a file has it.
pub fn pem(der: &[u8]) -> String {
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in body.as_bytes().chunks(64) {
        text.push_str(std::str::from_utf8(line).unwrap());
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

/// A request for a certificate.
pub fn request(key: &KeyPair) -> Vec<u8> {
    let params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.serialize_request(key).unwrap().der().to_vec()
}

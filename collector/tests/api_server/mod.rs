//! A stand-in for a Kubernetes API server: speaks HTTP/1.1 over TLS, takes TokenReviews, keeps them, and says what the test wants to have said. Shares
//! no code with the collector, and judges no token.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

/// What it says to the next review.
#[derive(Clone)]
pub(crate) enum Says {
    /// This status with this body.
    This(u16, String),
    /// Nothing, and keeps the connection.
    Nothing,
}

/// What it was asked.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) authorization: String,
    pub(crate) body: Value,
}

/// The server; it ends with the test's process.
#[derive(Clone)]
pub(crate) struct ApiServer {
    pub(crate) address: SocketAddr,
    /// Its authority, PEM.
    pub(crate) ca: String,
    says: Arc<Mutex<Says>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A TokenReview that was reviewed.
fn review(status: Value) -> Says {
    let all = json!({
        "kind": "TokenReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": { "creationTimestamp": null },
        "spec": { "token": "…" },
        "status": status,
    });
    Says::This(201, all.to_string())
}

/// The token is this service account's (NAMESPACE:NAME), of a pod on that node, and for these audiences.
pub(crate) fn vouched(account: &str, node: Option<&str>, audiences: &[&str]) -> Says {
    vouched_without("", account, node, audiences)
}

/// The same, but that the server leaves this out: `node-uid` where the pod's spec names a node that is not there, `pod-uid` where the token is bound to
/// no pod.
pub(crate) fn vouched_without(left_out: &str, account: &str, node: Option<&str>, audiences: &[&str]) -> Says {
    let mut extra = json!({
        "authentication.kubernetes.io/credential-id": ["JTI=7ee52be0-9045-4653-aa5e-0da57b8dccdc"],
        "authentication.kubernetes.io/pod-name": ["tailwater-agent-x7k2p"],
        "authentication.kubernetes.io/pod-uid": ["e87dbbd6-3d7e-45db-aafb-72b24627dff5"],
    });
    if let Some(node) = node {
        extra["authentication.kubernetes.io/node-name"] = json!([node]);
        extra["authentication.kubernetes.io/node-uid"] = json!(["0f4a1c6e-2f0b-4c0e-9a53-6f3d2c9f7b11"]);
    }
    if let Some(extra) = extra.as_object_mut() {
        extra.remove(&format!("authentication.kubernetes.io/{left_out}"));
    }
    let user = json!({
        "username": format!("system:serviceaccount:{account}"),
        "uid": "497e9d9a-47aa-4930-b0f6-9f2fb574c8c6",
        "groups": ["system:serviceaccounts", "system:authenticated"],
        "extra": extra,
    });
    review(json!({ "authenticated": true, "user": user, "audiences": audiences }))
}

/// The token is somebody's who is no service account.
pub(crate) fn vouched_user(name: &str) -> Says {
    review(json!({ "authenticated": true, "user": { "username": name }, "audiences": ["tailwater"] }))
}

/// The token is nobody's.
pub(crate) fn refused(error: &str) -> Says {
    review(json!({ "user": {}, "error": error }))
}

impl ApiServer {
    pub(crate) fn start() -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.distinguished_name.push(DnType::CommonName, "of the cluster");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = authority.self_signed(&key).unwrap().pem();
        let (issuer, key) = (Issuer::new(authority, key), KeyPair::generate().unwrap());
        let names = ["kubernetes.default.svc".to_owned(), "127.0.0.1".to_owned()];
        let own = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            ca,
            says: Arc::new(Mutex::new(Says::Nothing)),
            asked: Arc::default(),
        };
        let (config, serves) = (Arc::new(config), server.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, server) = (Arc::clone(&config), serves.clone());
                // A collector that goes away, or does not trust it, is not the server's problem.
                std::thread::spawn(move || {
                    let connection = rustls::ServerConnection::new(config).unwrap();
                    let _ = server.serve(rustls::StreamOwned::new(connection, stream));
                });
            }
        });
        server
    }

    /// From now on it says this.
    pub(crate) fn say(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    /// All that it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    fn serve<S: Read + Write>(&self, stream: S) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
            let (mut authorization, mut length) = (String::new(), 0_usize);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let Some((name, value)) = line.trim_end().split_once(':') else { break };
                match name.to_ascii_lowercase().as_str() {
                    "authorization" => authorization = value.trim().to_owned(),
                    "content-length" => length = value.trim().parse().unwrap(),
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let body = serde_json::from_slice(&body).unwrap();
            self.asked.lock().unwrap().push(Asked { path, authorization, body });
            let says = self.says.lock().unwrap().clone();
            let Says::This(status, text) = says else {
                loop {
                    std::thread::park();
                }
            };
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                text.len()
            );
            let writer = reader.get_mut();
            writer.write_all(head.as_bytes())?;
            writer.write_all(text.as_bytes())?;
            writer.flush()?;
        }
    }
}

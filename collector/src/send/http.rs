//! One POST to a receiver over http or https, and what its answer means. Owns connections, time limits, TLS and the Authorization header;
//! knows no format.

use super::limit;
use super::secret::{SecretError, Watched, line};
use crate::clock::Clock;
use http_body_util::{BodyExt, Limited};
use hyper::Uri;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER, USER_AGENT};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::codegen::Bytes;

/// A connection takes at most this long.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Of an answer, this much is read; a longer one is not worth the connection.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Of a refusal, this much is shown.
const REASON_CHARS_MAX: usize = 200;

/// Why a delivery failed.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// It may work later: no connection, no answer, 408, 425, 429 or 5xx.
    #[error("{why}")]
    Later {
        /// What happened.
        why: String,
        /// What the receiver asked for.
        after: Option<Duration>,
    },
    /// It will not.
    #[error("{0}")]
    Never(String),
}

impl DeliveryError {
    pub(crate) fn later(why: impl Into<String>) -> Self {
        Self::Later { why: why.into(), after: None }
    }
}

/// Why a hook cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// A file of secrets.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The authorities.
    #[error("ca = \"{}\": {why}\n  remedy: give a readable PEM file with at least one authority", file.display())]
    Authorities {
        /// Which file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The address.
    #[error("url: {0}\n  remedy: give it as http://host:port/path or https://host/path")]
    Address(String),
}

/// Reads a receiver's address.
pub fn address(url: &str) -> Result<Uri, String> {
    let bad = |why: &str| format!("\"{url}\" {why}");
    let uri: Uri = url.parse().map_err(|e| bad(&format!("is not a URL: {e}")))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(bad("begins neither with http:// nor with https://"));
    }
    match uri.host() {
        None | Some("") => Err(bad("names no host")),
        Some(_) => Ok(uri),
    }
}

#[derive(Debug)]
enum Target {
    Fixed(Uri),
    File(Watched<Uri>),
}

/// Set by whoever hands a message to a receiver's socket: when that was, Unix ns; 0: not yet.
#[derive(Debug, Clone, Default)]
pub struct Written(Arc<AtomicU64>);

impl Written {
    /// It is being written now.
    pub fn at(&self, unix_ns: u64) {
        self.0.store(unix_ns, Ordering::Relaxed);
    }
    /// When; 0: not yet.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The body of a request, which notes when the connection takes it to write it to its socket.
#[derive(Debug)]
struct Outgoing {
    body: Option<Bytes>,
    written: Written,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.body.take();
        if body.is_some() {
            self.written.at(Clock::default().unix_ns());
        }
        Poll::Ready(body.map(|body| Ok(Frame::data(body))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.body.as_ref().map_or(0, |body| body.len() as u64))
    }
}

/// A way to one receiver.
#[derive(Debug)]
pub struct Http {
    target: Target,
    authorization: Option<Watched<String>>,
    timeout: Duration,
    client: Client<HttpsConnector<HttpConnector>, Outgoing>,
}

/// Where to send, as a table of the configuration says it.
#[derive(Debug, Clone, Default)]
pub struct Address {
    /// http or https.
    pub url: Option<String>,
    /// A file with it, where it is a secret.
    pub url_file: Option<PathBuf>,
    /// A file with the Authorization header.
    pub authorization_file: Option<PathBuf>,
    /// Authorities, PEM; without: the system's.
    pub ca: Option<PathBuf>,
    /// What one delivery may take.
    pub timeout: Duration,
}

impl Http {
    /// As configured; `otherwise` is where to go when no address is.
    pub fn new(to: &Address, otherwise: &str) -> Result<Self, HookError> {
        let target = match &to.url_file {
            Some(file) => Target::File(Watched::load("url_file", file, "put one URL in it", |text| {
                // The URL is a secret: it is in no message.
                address(&line(text)?).map_err(|_| "it is no http:// or https:// URL".to_owned())
            })?),
            None => {
                Target::Fixed(address(to.url.as_deref().unwrap_or(otherwise)).map_err(HookError::Address)?)
            }
        };
        let authorization = to
            .authorization_file
            .as_deref()
            .map(|file| {
                Watched::load("authorization_file", file, "put one line such as \"Bearer abc\" in it", line)
            })
            .transpose()?;
        let encrypted = !matches!(&target, Target::Fixed(uri) if uri.scheme_str() == Some("http"));
        let (tls, connector) = ways(to.ca.as_deref(), encrypted)?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        Ok(Self { target, authorization, timeout: to.timeout, client })
    }

    /// Sends `body` once, with these headers besides the usual ones. `path`: instead of the address's own. `written` hears when it is on
    /// the socket.
    pub async fn post(
        &self,
        headers: &[(&str, String)],
        body: Bytes,
        path: Option<&str>,
        written: &Written,
    ) -> Result<(), DeliveryError> {
        judge(&self.exchange(headers, body, path, written).await?)
    }

    /// The same, for a caller with rules of its own about answers. Fails if there is none.
    pub async fn send(
        &self,
        headers: &[(&str, String)],
        body: Bytes,
        path: Option<&str>,
    ) -> Result<Answer, DeliveryError> {
        self.exchange(headers, body, path, &Written::default()).await
    }

    async fn exchange(
        &self,
        headers: &[(&str, String)],
        body: Bytes,
        path: Option<&str>,
        written: &Written,
    ) -> Result<Answer, DeliveryError> {
        let mut uri = match &self.target {
            Target::Fixed(uri) => uri.clone(),
            Target::File(file) => file.current().as_ref().clone(),
        };
        if let Some(path) = path {
            let own = uri.path().trim_end_matches('/');
            if !own.ends_with(path) {
                let mut parts = uri.clone().into_parts();
                parts.path_and_query = format!("{own}{path}").parse().ok();
                uri = Uri::from_parts(parts).map_err(|e| DeliveryError::Never(format!("url: {e}")))?;
            }
        }
        let mut request =
            hyper::Request::post(uri).header(USER_AGENT, concat!("tailwater/", env!("CARGO_PKG_VERSION")));
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.current().as_str());
        }
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let body = Outgoing { body: Some(body), written: written.clone() };
        let request = request.body(body).map_err(|e| DeliveryError::Never(format!("request: {e}")))?;
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|e| DeliveryError::later(chain(&e)))?;
            let (head, body) = answer.into_parts();
            // Read to the end, so that the connection can be used again.
            let body =
                Limited::new(body, ANSWER_BYTES_MAX).collect().await.map(http_body_util::Collected::to_bytes);
            let (status, headers) = (head.status.as_u16(), head.headers);
            Ok::<_, DeliveryError>(Answer { status, headers, body: body.unwrap_or_default() })
        };
        tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(|_| DeliveryError::later(format!("no answer within {} s", self.timeout.as_secs())))?
    }
}

/// What a receiver answered.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// Status and beginning of the body, for a person.
    #[must_use]
    pub fn said(&self) -> String {
        let status = self.status;
        let said: String = String::from_utf8_lossy(&self.body)
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(REASON_CHARS_MAX)
            .collect();
        if said.trim().is_empty() {
            format!("answered {status}")
        } else {
            format!("answered {status}: {}", said.trim())
        }
    }

    /// The pause that it asks for.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let text = |name| self.headers.get(name).and_then(|v: &hyper::header::HeaderValue| v.to_str().ok());
        text(RETRY_AFTER).and_then(|v| limit::retry_after(v, text(DATE)))
    }
}

fn judge(answer: &Answer) -> Result<(), DeliveryError> {
    let why = answer.said();
    match answer.status {
        200..=299 => Ok(()),
        408 | 425 | 429 | 500..=599 => Err(DeliveryError::Later { why, after: answer.retry_after() }),
        300..=399 => {
            Err(DeliveryError::Never(format!("{why} (redirects are not followed: give the final address)")))
        }
        _ => Err(DeliveryError::Never(why)),
    }
}

/// How to reach a receiver over http and, if `encrypted`, over https: trusting the authorities in `ca`, else the system's. Which version of
/// HTTP is spoken there is up to the caller.
pub(crate) fn ways(
    ca: Option<&Path>,
    encrypted: bool,
) -> Result<(rustls::ClientConfig, HttpConnector), HookError> {
    let roots = if encrypted { authorities(ca)? } else { rustls::RootCertStore::empty() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| HookError::Address(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    connector.set_nodelay(true);
    Ok((tls, connector))
}

/// An error with what is behind it.
pub(crate) fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut source = e.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        source = inner.source();
    }
    text
}

fn authorities(file: Option<&Path>) -> Result<rustls::RootCertStore, HookError> {
    let mut roots = rustls::RootCertStore::empty();
    match file {
        Some(file) => {
            let bad = |why: String| HookError::Authorities { file: file.to_owned(), why };
            for one in CertificateDer::pem_file_iter(file).map_err(|e| bad(e.to_string()))? {
                roots.add(one.map_err(|e| bad(e.to_string()))?).map_err(|e| bad(e.to_string()))?;
            }
            if roots.is_empty() {
                return Err(bad("no certificate in it".into()));
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            // Some that this library does not understand are no harm.
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                tracing::warn!(
                    "no authorities found on this machine, so no https receiver will be trusted; install ca-certificates, or set ca"
                );
            }
        }
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_means() {
        let judge = |status, headers: &HeaderMap, body: &'static [u8]| {
            super::judge(&Answer { status, headers: headers.clone(), body: Bytes::from_static(body) })
        };
        let none = HeaderMap::new();
        let mut asks = HeaderMap::new();
        asks.insert(RETRY_AFTER, hyper::header::HeaderValue::from_static("7"));
        assert!(judge(202, &none, b"").is_ok());
        for status in [408, 425, 429, 500, 503] {
            let Err(DeliveryError::Later { after, .. }) = judge(status, &asks, b"") else {
                panic!("{status}")
            };
            assert_eq!(after, Some(Duration::from_secs(7)));
        }
        for status in [100, 301, 400, 401, 404, 410, 422, 600] {
            assert!(matches!(judge(status, &asks, b""), Err(DeliveryError::Never(_))), "{status}");
        }
        let said = judge(400, &none, b"no\nsuch\x1bkey").unwrap_err().to_string();
        assert_eq!(said, "answered 400: no such key");
    }
}

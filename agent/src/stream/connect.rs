//! From a URL to a gRPC channel: a socket of this machine, or name resolution, TCP, mutual TLS. Owns the rule that plaintext stays on
//! loopback; knows no message.

use super::local::{self, LocalError};
use super::tls::{self, Refusal, TlsError};
use crate::config::TlsFiles;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Time for name resolution, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum ConnectError {
    #[error("collector {url}: not a usable URL: {reason}")]
    Url { url: String, reason: String },
    #[error("collector {url}: name {host} cannot be resolved: {source}")]
    Resolve { url: String, host: String, source: std::io::Error },
    #[error(
        "collector {url}: plaintext to {address} is refused, which is not loopback; use https:// with tls.cert, tls.key and tls.ca"
    )]
    Plaintext { url: String, address: SocketAddr },
    #[error("collector {url}: {address}: {source}{}", elsewhere(address))]
    Tcp { url: String, address: SocketAddr, source: std::io::Error },
    #[error("collector {url}: {source}")]
    Local { url: String, source: LocalError },
    #[error("collector {url}: {source}")]
    Files { url: String, source: TlsError },
    #[error("collector {url}: {}", refusal.reason)]
    Tls { url: String, refusal: Refusal },
    #[error("collector {url}: no answer within {} s", CONNECT_TIMEOUT.as_secs())]
    Timeout { url: String },
    #[error("collector {url}: {reason}")]
    Http { url: String, reason: String },
}

impl ConnectError {
    /// Whether another certificate may help, and asking again with what this machine has does not.
    pub fn is_of_certificate(&self) -> bool {
        match self {
            Self::Tls { refusal, .. } => refusal.of_certificate,
            Self::Files { .. } => true,
            _ => false,
        }
    }
}

/// Where a collector of this machine listens unless it is told another place.
fn elsewhere(address: &SocketAddr) -> &'static str {
    if address.ip().is_loopback() {
        "; a collector of this machine listens at unix:///run/tailwater/agents.sock unless its grpc says otherwise"
    } else {
        ""
    }
}

/// What TLS said on a connection after its handshake: with TLS 1.3 the collector's refusal of a client certificate arrives then.
#[derive(Debug, Clone, Default)]
pub struct LateRefusal(Arc<Mutex<Option<Refusal>>>);

impl LateRefusal {
    /// The refusal, if there was one.
    pub fn take(&self) -> Option<Refusal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, error: &std::io::Error) {
        if let Some(refusal) = tls::refusal(error) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        }
    }
}

/// Whether a collector at this URL proves who it is: by its certificate, or by what the kernel says of who listens. Plaintext is for
/// loopback, where every local user can listen in its place.
pub fn proves_itself(url: &str) -> bool {
    local::path(url).is_some() || is_https(url)
}

fn is_https(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https"))
}

/// How the two ends of a connection over https:// know each other.
#[derive(Debug, Clone)]
pub enum Trust<'a> {
    /// By these files, which are read at each connect.
    Files(Option<&'a TlsFiles>),
    /// As whoever has no files yet knows.
    Config(Arc<ClientConfig>),
}

/// Connects once. TLS files are read now.
pub async fn connect(url: &str, files: Option<&TlsFiles>) -> Result<(Channel, LateRefusal), ConnectError> {
    connect_by(url, Trust::Files(files)).await
}

/// Connects once.
pub async fn connect_by(url: &str, trust: Trust<'_>) -> Result<(Channel, LateRefusal), ConnectError> {
    let late = LateRefusal::default();
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, open(url, trust, late.clone()))
        .await
        .map_err(|_| ConnectError::Timeout { url: url.to_owned() })??;
    // The one connection is open already: the connector hands it over, and has no second one.
    let handed = Arc::new(Mutex::new(Some(TokioIo::new(stream))));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = handed.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move { stream.ok_or_else(|| std::io::Error::other("the connection ended")) }
    });
    // HTTP/2 wants a name of who is spoken to; a socket's path is none.
    let authority = if local::path(url).is_some() { "http://localhost" } else { url };
    let endpoint = Endpoint::from_shared(authority.to_owned())
        .map_err(|e| ConnectError::Url { url: url.to_owned(), reason: e.to_string() })?
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true);
    match endpoint.connect_with_connector(connector).await {
        Ok(channel) => Ok((channel, late)),
        Err(error) => Err(late.take().map_or_else(
            || ConnectError::Http { url: url.to_owned(), reason: causes(&error) },
            |refusal| ConnectError::Tls { url: url.to_owned(), refusal },
        )),
    }
}

async fn open(url: &str, trust: Trust<'_>, late: LateRefusal) -> Result<Box<dyn Stream>, ConnectError> {
    let bad = |reason: &str| ConnectError::Url { url: url.to_owned(), reason: reason.to_owned() };
    if let Some(path) = local::path(url) {
        let stream = local::connect(path).await;
        let told = |source| ConnectError::Local { url: url.to_owned(), source };
        return stream.map(|stream| Box::new(stream) as Box<dyn Stream>).map_err(told);
    }
    let uri: Uri = url.parse().map_err(|e| bad(&format!("{e}")))?;
    let host = uri.host().ok_or_else(|| bad("it has no host"))?.trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().ok_or_else(|| bad("it has no port"))?;
    let resolved = tokio::net::lookup_host((host.as_str(), port)).await;
    let addresses: Vec<SocketAddr> = resolved
        .map_err(|source| ConnectError::Resolve { url: url.to_owned(), host: host.clone(), source })?
        .collect();
    let encrypted = is_https(url);
    if !encrypted && let Some(address) = addresses.iter().find(|a| !a.ip().is_loopback()) {
        return Err(ConnectError::Plaintext { url: url.to_owned(), address: *address });
    }
    let tcp = tcp(url, &addresses).await?;
    if !encrypted {
        return Ok(Box::new(tcp));
    }
    let config = match trust {
        Trust::Config(config) => config,
        Trust::Files(files) => {
            let files = files.ok_or_else(|| bad("https:// needs tls.cert, tls.key and tls.ca"))?;
            let config = tls::client_config(files)
                .map_err(|source| ConnectError::Files { url: url.to_owned(), source })?;
            Arc::new(config)
        }
    };
    let name = ServerName::try_from(host).map_err(|e| bad(&e.to_string()))?;
    let connector = tokio_rustls::TlsConnector::from(config);
    let stream = connector.connect(name, tcp).await.map_err(|e| ConnectError::Tls {
        url: url.to_owned(),
        refusal: tls::refusal(&e).unwrap_or_else(|| Refusal {
            reason: format!("the connection ended during the TLS handshake: {e}"),
            of_certificate: false,
        }),
    })?;
    Ok(Box::new(Watched { inner: stream, late }))
}

async fn tcp(url: &str, addresses: &[SocketAddr]) -> Result<TcpStream, ConnectError> {
    let mut last = ConnectError::Url { url: url.to_owned(), reason: "its name has no address".to_owned() };
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Drop events are small and urgent. Refused only on a socket that is dead already.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(source) => {
                last = ConnectError::Tcp { url: url.to_owned(), address: *address, source };
            }
        }
    }
    Err(last)
}

/// An error with its causes, each once.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// A byte stream, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Notes a TLS refusal that arrives while reading, before HTTP/2 turns it into "broken pipe".
struct Watched<T> {
    inner: T,
    late: LateRefusal,
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &polled {
            self.late.note(error);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

//! The HTTP port: accepts connections, does TLS where configured, and gives each its limits. Owns how long anybody may take with anything,
//! and how many are open; knows no route.

use super::gate::{self, Gate, Peer};
use super::turns::{self, Turns};
use super::{hosts, login};
use crate::access::attempts::plain;
use crate::counters::Metrics;
use crate::pem::{self, Reloaded, TlsError};
use axum::Router;
use axum::middleware;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::Service;

/// Connections at once: two hundred pages have some four each.
pub const CONNECTIONS_MAX: usize = 1024;
/// A TLS handshake is done within this.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// The head of a request is here within this, and nobody keeps a connection for longer without asking.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// Of an answer something is taken within this: else who asked is gone, or reads nothing.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// A request's first line and its headers: one that is not whole by then is refused, so none is longer than twice as much.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The first byte of a TLS handshake (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 22;
/// What is answered to HTTP on a port that speaks TLS.
const SPEAKS_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n\
{\"error\":\"this port speaks TLS: the address begins with https://\"}\n";

/// Where it is configured.
const TABLE: &str = "http_tls";

/// `[http_tls]`: certificate and key of API and page. Read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTls {
    /// PEM: the certificate and its chain.
    pub cert: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
}

/// The same, loaded.
#[derive(Debug)]
pub struct HttpTlsFiles {
    files: HttpTls,
    loaded: Reloaded,
}

impl HttpTlsFiles {
    /// Loads them.
    pub fn load(files: &HttpTls) -> Result<Self, TlsError> {
        let watched = vec![files.cert.clone(), files.key.clone()];
        Ok(Self { files: files.clone(), loaded: Reloaded::new(watched, || server_config(files))? })
    }

    fn current(&self) -> Arc<ServerConfig> {
        self.loaded.current(|| server_config(&self.files))
    }
}

fn server_config(files: &HttpTls) -> Result<ServerConfig, TlsError> {
    let unfit = |e: rustls::Error| TlsError::Unfit { table: TABLE, why: e.to_string() };
    let key = pem::private_key(TABLE, &files.key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .with_no_client_auth()
        .with_single_cert(pem::certificates(TABLE, "cert", &files.cert)?, key)
        .map_err(unfit)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The HTTP side of a server.
#[derive(Debug)]
pub struct Front {
    /// Who may come in.
    pub gate: Arc<Gate>,
    /// Names by which it is called, beside `localhost` and addresses.
    pub names: Vec<String>,
    /// TLS, where it is spoken.
    pub tls: Option<HttpTlsFiles>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl Front {
    /// Answers until `ended`, and then what was asked before.
    pub async fn serve(self, listener: TcpListener, routes: Router, ended: CancellationToken) {
        let turns = Turns::new(Arc::clone(&self.metrics), self.gate.clock);
        // Who is not let in takes no turn, and nobody holds one while a body is on its way.
        let routes = routes
            .merge(login::routes(Arc::clone(&self.gate)))
            .layer(middleware::from_fn_with_state(turns, turns::wait))
            .layer(middleware::from_fn_with_state(Arc::clone(&self.gate), gate::check));
        let routes = hosts::guarded(routes, &self.names);
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (tls, tasks) = (self.tls.map(Arc::new), TaskTracker::new());
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = ended.cancelled() => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(e) => {
                    // Out of descriptors, most likely: the next one may fit when another closes.
                    tracing::warn!("accept on the HTTP port: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                self.metrics.http_refused.inc("too_many");
                continue;
            };
            self.metrics.http_connections.inc();
            let of = Connection {
                peer,
                routes: routes.clone(),
                metrics: Arc::clone(&self.metrics),
                ended: ended.clone(),
            };
            let tls = tls.clone();
            tasks.spawn(async move {
                of.over(stream, tls).await;
                drop(slot);
            });
        }
        tasks.close();
        tasks.wait().await;
    }
}

struct Connection {
    peer: SocketAddr,
    routes: Router,
    metrics: Arc<Metrics>,
    ended: CancellationToken,
}

impl Connection {
    async fn over(self, stream: TcpStream, tls: Option<Arc<HttpTlsFiles>>) {
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!(peer = %self.peer, "TCP_NODELAY: {e}");
        }
        let Some(tls) = tls else { return self.http1(stream).await };
        let ended = self.ended.clone();
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(HANDSHAKE_WITHIN, handshake(stream, &tls)) => shaken,
            () = ended.cancelled() => return,
        };
        match shaken {
            Ok(Ok(Some(stream))) => self.http1(stream).await,
            Ok(Ok(None)) => self.metrics.http_refused.inc("no_tls"),
            Ok(Err(e)) => {
                self.metrics.http_refused.inc("tls");
                tracing::debug!(peer = %self.peer, "TLS handshake: {e}");
            }
            Err(_) => self.metrics.http_refused.inc("silent"),
        }
    }

    async fn http1(self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let (routes, peer) = (self.routes, Peer(SocketAddr::new(plain(self.peer.ip()), self.peer.port())));
        let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(peer);
            // A router is always ready.
            routes.clone().call(request)
        });
        let mut connection = std::pin::pin!(
            hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WITHIN)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(Patient { io, within: TAKEN_WITHIN, since: None }), answer)
        );
        let mut stopping = false;
        let done = loop {
            tokio::select! {
                done = &mut connection => break done,
                () = self.ended.cancelled(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        };
        if let Err(e) = done {
            if e.is_timeout() {
                self.metrics.http_refused.inc("silent");
            }
            tracing::debug!(peer = %peer.0, "HTTP connection: {e}");
        }
    }
}

/// `None`: what came is no TLS; it was told so.
async fn handshake(
    mut stream: TcpStream,
    tls: &HttpTlsFiles,
) -> std::io::Result<Option<tokio_rustls::server::TlsStream<TcpStream>>> {
    let mut first = [0];
    if stream.peek(&mut first).await? > 0 && first[0] != TLS_HANDSHAKE {
        stream.write_all(SPEAKS_TLS).await?;
        stream.shutdown().await?;
        return Ok(None);
    }
    tokio_rustls::TlsAcceptor::from(tls.current()).accept(stream).await.map(Some)
}

/// A connection whose other end has to take something from time to time of what is written.
struct Patient<T> {
    io: T,
    within: Duration,
    since: Option<Pin<Box<Sleep>>>,
}

impl<T> Patient<T> {
    fn watched<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<std::io::Result<R>>,
    ) -> Poll<std::io::Result<R>> {
        if written.is_ready() {
            self.since = None;
            return written;
        }
        let within = self.within;
        let since = self.since.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        match since.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(std::io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, from);
        self.watched(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.watched(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.watched(cx, shut)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, from);
        self.watched(cx, written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_takes_nothing_of_an_answer_is_let_go_and_who_takes_a_little_is_not() {
        use tokio::io::AsyncReadExt;
        let within = Duration::from_secs(1);
        let (here, mut there) = tokio::io::duplex(8);
        let mut patient = Patient { io: here, within, since: None };
        let writing = tokio::spawn(async move { patient.write_all(&[0; 1000]).await });
        // For longer than it waits, a little at a time.
        for _ in 0..30 {
            tokio::time::sleep(within / 20).await;
            there.read_exact(&mut [0; 8]).await.unwrap();
        }
        assert!(!writing.is_finished());
        let ended = tokio::time::timeout(within * 10, writing).await.expect("it is let go").unwrap();
        assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }
}

//! The agents' port: accepts connections, does TLS where configured, and serves HTTP/2 on each. Owns the log lines about
//! connections that are not what they should be, of one place no more than [`Ingest::tells_of`] lets through; nothing of that kind reaches a stream.

use crate::access::attempts::Wrong;
use crate::ingest::joining::Joining;
use crate::ingest::local::Local;
use crate::ingest::rpc::Telemetry;
use crate::ingest::service::{Connection, Ingest, address};
use crate::ingest::tls::{AgentsTls, Speaker, who_refused};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::{RecvFlags, recv};
use rustls::server::Acceptor;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_util::sync::CancellationToken;

/// A peer that opens a connection speaks, and finishes its TLS handshake, within this.
const SPEAK_WITHIN: Duration = Duration::from_secs(10);
/// HTTP/2 pings find a peer that vanished without a word.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Whoever shows no certificate, or one that is nobody's any more, may join, which takes a moment, and has this long for it.
const JOIN_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks whether a host was revoked meanwhile.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);
/// Streams of a host that was revoked are told so; then its connection ends within this.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
/// Connections beyond the agents that are allowed: those that are new, refused or garbage.
const CONNECTIONS_SPARE: usize = 64;

/// Where agents connect, open.
pub enum Listener {
    /// An address.
    Tcp(TcpListener),
    /// A socket of this machine's file system.
    Local(Local),
}

enum Accepted {
    Tcp(TcpStream),
    Local(UnixStream),
}

impl Listener {
    /// The next connection, unless whoever made it may not speak here, and who that is.
    async fn accept(&self) -> std::io::Result<(Option<Accepted>, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Small messages at once: a drop event must not wait for an acknowledgement.
                if let Err(e) = stream.set_nodelay(true) {
                    tracing::debug!(%peer, "TCP_NODELAY: {e}");
                }
                Ok((Some(Accepted::Tcp(stream)), peer.to_string()))
            }
            Self::Local(listener) => {
                let (stream, peer, may) = listener.accept().await?;
                Ok((may.then_some(Accepted::Local(stream)), peer.to_string()))
            }
        }
    }
}

/// Accepts until the shutdown token of `ingest`.
pub async fn serve(listener: Listener, tls: Option<AgentsTls>, ingest: Arc<Ingest>, agents_max: usize) {
    let slots = Arc::new(Semaphore::new(agents_max.saturating_add(CONNECTIONS_SPARE)));
    let joining = Arc::<Joining>::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ingest.shutdown.cancelled() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                // Out of descriptors, most likely: the next one may fit when another closes.
                tracing::warn!("accept on the agents' port: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(stream) = stream else {
            ingest.metrics.connections_refused.inc("stranger");
            if ingest.tells_of(&peer, "stranger", "") {
                tracing::warn!(%peer, "connection refused: neither root, nor this collector's user, nor of the group of its socket");
            }
            continue;
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            ingest.metrics.connections_refused.inc("too_many");
            if ingest.tells_of(&peer, "too_many", "") {
                tracing::warn!(%peer, "connection refused: too many are open; raise agents_max");
            }
            continue;
        };
        ingest.metrics.connections.inc();
        let (tls, ingest, joining) = (tls.clone(), Arc::clone(&ingest), Arc::clone(&joining));
        let tasks = ingest.tasks.clone();
        tasks.spawn(async move {
            match stream {
                Accepted::Tcp(stream) => over_tcp(stream, peer, tls, ingest, &joining).await,
                Accepted::Local(stream) => over_socket(stream, peer, ingest).await,
            }
            drop(slot);
        });
    }
}

/// Whether the other end says anything; `peeked` looks at how many bytes came first, and leaves them.
async fn speaks(peeked: impl Future<Output = std::io::Result<usize>>, peer: &str, ingest: &Ingest) -> bool {
    let spoken = tokio::select! {
        spoken = tokio::time::timeout(SPEAK_WITHIN, peeked) => spoken,
        () = ingest.shutdown.cancelled() => return false,
    };
    match spoken {
        Ok(bytes) => bytes.is_ok_and(|n| n > 0), // else closed without a word: a health check
        Err(_) => {
            ingest.metrics.connections_refused.inc("silent");
            if ingest.tells_of(peer, "silent", "") {
                tracing::warn!(%peer, "connection closed: nothing came within {} s", SPEAK_WITHIN.as_secs());
            }
            false
        }
    }
}

async fn over_socket(stream: UnixStream, peer: String, ingest: Arc<Ingest>) {
    let peeked = stream.async_io(Interest::READABLE, || {
        let (read, _) = recv(&stream, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
        Ok(read)
    });
    if speaks(peeked, &peer, &ingest).await {
        http2(stream, peer, Speaker::default(), ingest).await;
    }
}

async fn over_tcp(
    stream: TcpStream,
    peer: String,
    tls: Option<AgentsTls>,
    ingest: Arc<Ingest>,
    joining: &Arc<Joining>,
) {
    if !speaks(stream.peek(&mut [0; 1]), &peer, &ingest).await {
        return;
    }
    let Some(tls) = tls else {
        return http2(stream, peer, Speaker::default(), ingest).await;
    };
    // Which side of it: known once the other end has spoken.
    let mut side = None;
    let handshake = async {
        let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let asked = tls.side(begun.client_hello().alpn().into_iter().flatten());
        let asked = side.insert(asked.ok_or(std::io::ErrorKind::Unsupported)?);
        begun.into_stream(asked.config()).await
    };
    let shaken = tokio::time::timeout(SPEAK_WITHIN, handshake).await;
    match shaken {
        Ok(Ok(stream)) => {
            let Some(side) = side else { return };
            let speaker = side.speaker(stream.get_ref().1.peer_certificates());
            if !speaker.is_stranger() {
                return http2(stream, peer, speaker, ingest).await;
            }
            let from = address(&peer);
            let _place = match joining.take(from) {
                Ok(place) => place,
                Err(why) => {
                    ingest.metrics.connections_refused.inc("too_many_joining");
                    // Whoever floods does not fill the log as well.
                    if ingest.attempts.wrong(from, ingest.clock.monotonic()) == Wrong::Told {
                        tracing::warn!(%peer, "connection refused: {why}");
                    }
                    return;
                }
            };
            let joins = http2(stream, peer.clone(), speaker, Arc::clone(&ingest));
            if tokio::time::timeout(JOIN_WITHIN, joins).await.is_err() {
                ingest.metrics.connections_refused.inc("silent");
                if ingest.tells_of(&peer, "joining", "") {
                    tracing::warn!(%peer, "connection closed: it showed no certificate that is somebody's, and stayed for {} s", JOIN_WITHIN.as_secs());
                }
            }
        }
        Ok(Err(e)) => {
            let (by, reason, why) = who_refused(&e);
            let (kind, more) = match (by, &side) {
                ("agent", Some(side)) => ("tls_agent", side.if_refused()),
                ("agent", None) => ("tls_agent", ""),
                _ => ("tls_collector", ""),
            };
            ingest.metrics.connections_refused.inc(kind);
            if ingest.tells_of(&peer, reason, &why) {
                tracing::warn!(%peer, "TLS handshake refused by the {by}: {why}{more}");
            }
        }
        Err(_) => {
            ingest.metrics.connections_refused.inc("silent");
            if ingest.tells_of(&peer, "handshake", "") {
                tracing::warn!(%peer, "TLS handshake not finished within {} s", SPEAK_WITHIN.as_secs());
            }
        }
    }
}

async fn http2(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: String,
    speaker: Speaker,
    ingest: Arc<Ingest>,
) {
    let (answered, revoked) = (CancellationToken::new(), CancellationToken::new());
    let revocable = matches!(speaker, Speaker::Enrolled(..)).then(|| speaker.clone());
    let mut look = tokio::time::interval(REVOKED_WITHIN);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first look is at once: a stream that begins now is to hear why it ends.
    look.tick().await;
    let connection = Connection {
        ingest: Arc::clone(&ingest),
        peer: peer.clone(),
        speaker,
        answered: answered.clone(),
        revoked: revoked.clone(),
    };
    let service = Telemetry(Arc::new(connection));
    let mut connection = std::pin::pin!(
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_ANSWER_WITHIN)
            .max_concurrent_streams(4)
            .serve_connection(TokioIo::new(io), TowerToHyperService::new(service))
    );
    let mut stopping = false;
    let ended = loop {
        tokio::select! {
            ended = &mut connection => break ended,
            () = ingest.shutdown.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = look.tick(), if !stopping && revocable.is_some() => {
                if revocable.as_ref().is_some_and(Speaker::is_revoked) {
                    revoked.cancel();
                    connection.as_mut().graceful_shutdown();
                    if let Ok(ended) = tokio::time::timeout(LEAVE_WITHIN, connection.as_mut()).await {
                        break ended;
                    }
                    tracing::warn!(%peer, "connection closed: its host was revoked, and it stayed");
                    return;
                }
            }
            () = answered.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    };
    if let Err(e) = ended {
        // hyper's own text is short; its source says what was wrong with the bytes.
        let source = std::error::Error::source(&e).map_or_else(String::new, |s| format!(": {s}"));
        if e.is_closed()
            || e.is_incomplete_message()
            || source.contains("connection reset")
            || source.contains("broken pipe")
        {
            tracing::debug!(%peer, "connection gone: {e}{source}");
        } else {
            ingest.metrics.connections_refused.inc("not_grpc");
            if ingest.tells_of(&peer, "not_grpc", "") {
                tracing::warn!(%peer, "connection closed, it does not speak gRPC (HTTP/2) as it should: {e}{source}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::attempts::{Attempts, Fruitless};
    use crate::clock::Clock;
    use crate::counters::Metrics;
    use crate::ingest::delivery_log::InMemory;
    use crate::ingest::feed::Feed;
    use crate::ingest::registry::Registry;
    use std::io::Write;
    use std::net::Ipv4Addr;
    use std::sync::Mutex;
    use tokio::io::AsyncWriteExt;
    use tokio_util::task::TaskTracker;

    /// What was logged.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn who_speaks_something_else_without_an_end_is_counted_each_time_and_does_not_fill_the_log() {
        const TIMES: u64 = 40;
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _log = tracing::subscriber::set_default(log);
        let ingest = Arc::new(Ingest {
            registry: Arc::new(Registry::new(8)),
            feed: Feed::over(Arc::new(InMemory::new(8))),
            metrics: Arc::new(Metrics::default()),
            clock: Clock::default(),
            agent_queue: 8,
            agents: Vec::new(),
            shutdown: CancellationToken::new(),
            attempts: Attempts::default(),
            fruitless: Fruitless::default(),
            tasks: TaskTracker::new(),
        });
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = port.local_addr().unwrap();
        let serving = tokio::spawn(serve(Listener::Tcp(port), None, Arc::clone(&ingest), 8));
        let refused = || ingest.metrics.connections_refused.get("not_grpc");
        let speaking = async {
            for n in 1..=TIMES {
                let mut stream = TcpStream::connect(at).await.unwrap();
                stream.write_all(b"GET / HTTP/1.1\r\nHost: collector\r\n\r\n").await.unwrap();
                while refused() < n {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(50), speaking).await.expect("each is counted");
        ingest.shutdown.cancel();
        serving.await.unwrap();
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let told = text.matches("does not speak gRPC").count();
        // Ten at once; one more for each six seconds that this took.
        assert!((10..20).contains(&told), "{told}: {text}");
    }
}

//! A collector in this process, for the stream's tests: takes what an agent sends and answers as the test says. Knows nothing
//! of diagnosis.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tailwater_proto::v1::telemetry_server::{Telemetry, TelemetryServer};
use tailwater_proto::v1::{self, AgentMessage, CollectorMessage, agent_message::Body, collector_message};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};

/// What a test collector answers first.
#[derive(Clone)]
pub enum First {
    Welcome {
        last_sequence: u64,
    },
    Refusal {
        reason: &'static str,
        retry: bool,
    },
    /// Whoever holds the connection answers.
    Nothing,
}

/// One connection, as the collector sees it.
pub struct Connection {
    pub from_agent: mpsc::Receiver<AgentMessage>,
    pub to_agent: mpsc::Sender<Result<CollectorMessage, Status>>,
}

impl Connection {
    /// The next message that `wanted` picks; the others are passed over.
    pub async fn next<T>(&mut self, what: &str, wanted: impl Fn(Body) -> Option<T>) -> T {
        let found = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                let message = self.from_agent.recv().await.expect("the agent still sends");
                if let Some(found) = message.body.and_then(&wanted) {
                    return found;
                }
            }
        });
        found.await.unwrap_or_else(|_| panic!("no {what} within 30 s"))
    }

    pub async fn batch(&mut self) -> v1::WindowBatch {
        self.next("batch", |b| match b {
            Body::Batch(batch) => Some(batch),
            _ => None,
        })
        .await
    }

    pub async fn say(&self, body: collector_message::Body) {
        self.to_agent.send(Ok(CollectorMessage { body: Some(body) })).await.expect("the agent listens");
    }
}

struct Service {
    first: First,
    connections: mpsc::Sender<Connection>,
}

#[tonic::async_trait]
impl Telemetry for Service {
    type StreamStream = ReceiverStream<Result<CollectorMessage, Status>>;

    async fn stream(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let mut incoming = request.into_inner();
        let (to_agent, replies) = mpsc::channel(64);
        let (forward, from_agent) = mpsc::channel(4096);
        let first = match self.first.clone() {
            First::Welcome { last_sequence } => Some(collector_message::Body::Welcome(v1::Welcome {
                protocol: 1,
                collector_version: "test".to_owned(),
                last_sequence,
            })),
            First::Refusal { reason, retry } => Some(collector_message::Body::Refusal(v1::Refusal {
                reason: reason.to_owned(),
                retry,
                join: false,
            })),
            First::Nothing => None,
        };
        if let Some(body) = first {
            let first = CollectorMessage { body: Some(body) };
            to_agent.send(Ok(first)).await.map_err(|_| Status::internal("reply"))?;
        }
        tokio::spawn(async move {
            while let Some(Ok(message)) = incoming.next().await {
                if forward.send(message).await.is_err() {
                    break;
                }
            }
        });
        let connection = Connection { from_agent, to_agent };
        self.connections.send(connection).await.map_err(|_| Status::internal("test is over"))?;
        Ok(Response::new(ReceiverStream::new(replies)))
    }
}

/// A listening collector. Dropping it ends every connection.
pub struct Collector {
    pub address: SocketAddr,
    pub connections: mpsc::Receiver<Connection>,
    server: tokio::task::JoinHandle<()>,
    sockets: Arc<Mutex<Vec<std::net::TcpStream>>>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
        for socket in self.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Collector {
    pub async fn plain(address: &str, first: First) -> Self {
        Self::start(address, first, None).await
    }

    pub async fn start(address: &str, first: First, tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        // A predecessor on the same address may need a moment to let go of it.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(error) => assert!(tokio::time::Instant::now() < deadline, "{address}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let address = listener.local_addr().unwrap();
        let (sender, connections) = mpsc::channel(16);
        let (accepted, incoming) = mpsc::channel::<std::io::Result<Io>>(16);
        let sockets: Arc<Mutex<Vec<std::net::TcpStream>>> = Arc::default();
        let kept = sockets.clone();
        let server = tokio::spawn(async move {
            let accepting = async {
                while let Ok((socket, _)) = listener.accept().await {
                    let socket = socket.into_std().unwrap();
                    kept.lock().unwrap().push(socket.try_clone().unwrap());
                    let socket = TcpStream::from_std(socket).unwrap();
                    let io: Box<dyn Both> = match &tls {
                        None => Box::new(socket),
                        Some(tls) => match tls.accept(socket).await {
                            Ok(stream) => Box::new(stream),
                            Err(_) => continue,
                        },
                    };
                    if accepted.send(Ok(Io(io))).await.is_err() {
                        break;
                    }
                }
            };
            let serving = tonic::transport::Server::builder()
                .add_service(TelemetryServer::new(Service { first, connections: sender }))
                .serve_with_incoming(ReceiverStream::new(incoming));
            let _ = tokio::join!(accepting, serving);
        });
        Self { address, connections, server, sockets }
    }

    pub async fn connection(&mut self) -> Connection {
        let waited = tokio::time::timeout(Duration::from_secs(30), self.connections.recv()).await;
        waited.expect("an agent connects within 30 s").expect("the server runs")
    }
}

trait Both: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Both for T {}

/// One connection, whatever it is made of.
pub struct Io(Box<dyn Both>);

impl Io {
    pub fn of(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self(Box::new(io))
    }
}

impl Connected for Io {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        b: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, b)
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, b: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, b)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

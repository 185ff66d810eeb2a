//! One agent's connection: TCP, mutual TLS, gRPC, with messages that were encoded before. Knows no window and no fleet.

use anyhow::{Context, Result, anyhow};
use hyper_util::rt::TokioIo;
use prost::Message;
use prost::bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tailwater_proto::encoded::{Encoded, STREAM};
use tailwater_proto::v1::{AgentMessage, CollectorMessage, agent_message::Body, collector_message};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Endpoint, Uri};
use tonic::{Request, Streaming};

/// Messages handed over ahead of what fits the wire, as the agent does.
const IN_HAND: usize = 2;
/// As the agent's.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);

/// A message as it goes out.
#[must_use]
pub fn encode(body: Body) -> Bytes {
    AgentMessage { body: Some(body) }.encode_to_vec().into()
}

/// A batch whose tables were encoded before: its number and its first window are put in front. Fields may come in any order.
#[must_use]
pub fn batch(sequence: u64, first_window: u64, rest: &[u8]) -> Bytes {
    let head = key_len(1)
        + encoded_len_varint(sequence)
        + key_len(2)
        + encoded_len_varint(first_window)
        + rest.len();
    let mut out = Vec::with_capacity(head + 12);
    encode_key(3, WireType::LengthDelimited, &mut out);
    encode_varint(head as u64, &mut out);
    encode_key(1, WireType::Varint, &mut out);
    encode_varint(sequence, &mut out);
    encode_key(2, WireType::Varint, &mut out);
    encode_varint(first_window, &mut out);
    out.extend_from_slice(rest);
    out.into()
}

/// An open stream.
#[derive(Debug)]
pub struct Wire {
    /// To the collector.
    pub to: mpsc::Sender<Bytes>,
    /// From it.
    pub from: Streaming<CollectorMessage>,
}

/// Connects, says `hello` and waits for the welcome; returns the highest sequence that the collector has.
pub async fn connect(to: SocketAddr, tls: Arc<ClientConfig>, hello: Bytes) -> Result<(Wire, u64)> {
    let opened = tokio::time::timeout(CONNECT_TIMEOUT, async {
        let tcp = TcpStream::connect(to).await.context("TCP")?;
        tcp.set_nodelay(true)?;
        let name = ServerName::from(to.ip());
        tokio_rustls::TlsConnector::from(tls).connect(name, tcp).await.context("TLS")
    });
    let stream = opened.await.map_err(|_| anyhow!("no connection within {CONNECT_TIMEOUT:?}"))??;
    let handed = Arc::new(Mutex::new(Some(TokioIo::new(stream))));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = handed.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move { stream.ok_or_else(|| std::io::Error::other("the connection ended")) }
    });
    let channel = Endpoint::from_shared(format!("https://{to}"))?.connect_with_connector(connector).await?;
    let (sender, outgoing) = mpsc::channel(IN_HAND);
    sender.try_send(hello).map_err(|e| anyhow!("an empty channel takes the first message: {e}"))?;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await?;
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(STREAM);
    let welcome = async {
        let answer = grpc.streaming(Request::new(ReceiverStream::new(outgoing)), path, Encoded).await?;
        let mut from = answer.into_inner();
        let first = from.message().await?;
        anyhow::Ok((from, first))
    };
    let (from, first) = tokio::time::timeout(WELCOME_TIMEOUT, welcome)
        .await
        .map_err(|_| anyhow!("no welcome within {WELCOME_TIMEOUT:?}"))??;
    match first.and_then(|message| message.body) {
        Some(collector_message::Body::Welcome(welcome)) => {
            Ok((Wire { to: sender, from }, welcome.last_sequence))
        }
        Some(collector_message::Body::Refusal(refusal)) => Err(anyhow!("refused: {}", refusal.reason)),
        other => Err(anyhow!("neither welcome nor refusal: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_proto::v1::WindowBatch;

    #[test]
    fn a_batch_that_is_put_together_is_the_batch_that_it_was() {
        let rest = WindowBatch { window_count: 2, flags: vec![0, 1], ..WindowBatch::default() };
        for (sequence, first_window) in [(1, 2), (300, 34_000_000_000), (u64::MAX, u64::MAX)] {
            let whole = WindowBatch { sequence, first_window, ..rest.clone() };
            let got = AgentMessage::decode(batch(sequence, first_window, &rest.encode_to_vec()));
            assert_eq!(got.unwrap().body, Some(Body::Batch(whole)));
        }
    }
}

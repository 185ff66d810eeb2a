//! `POST /v1/traces`: OTLP over HTTP as protobuf, plain or gzip. Owns what a request may hold, packed and unpacked, how many bytes of them are in memory at
//! once, and what is answered (OTLP 1.x, "OTLP/HTTP Response"). Runs on the readers' threads, below those of agents and alerts; who may send is the gate's.

use super::message::{self, Counts};
use super::slow::{AHEAD_NS, Fate, KEPT_NS};
use super::{Traces, lock};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::read::MultiGzDecoder;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use prost::Message;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tonic::Code;

/// Where spans are sent to.
const PATH: &str = "/v1/traces";
/// A request as sent, bytes: SDKs send 512 spans at a time, a collector of OpenTelemetry some 8,000, of some hundred bytes each with gzip.
const PACKED_MAX: usize = 4 << 20;
/// The same unpacked, bytes.
const UNPACKED_MAX: usize = 16 << 20;
/// Requests as sent that are in memory at once, KiB.
const WAITING_KIB_MAX: usize = 16 << 10;
/// The least that one counts for, KiB, so that there are 256 at once.
const WAITING_KIB_MIN: usize = 64;
/// A body is here within this, as any other that is sent to this server.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// When somebody who was sent away may come again, s.
const AGAIN_AFTER_S: u64 = 5;
/// The one form of the messages that is read.
const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// The route.
pub fn routes(traces: Arc<Traces>) -> axum::Router {
    let receiver = Receiver {
        traces,
        waiting: Arc::new(Semaphore::new(WAITING_KIB_MAX)),
        reading: Arc::new(Semaphore::new(1)),
    };
    axum::Router::new().route(PATH, axum::routing::post(receive)).with_state(receiver)
}

#[derive(Debug, Clone)]
struct Receiver {
    traces: Arc<Traces>,
    /// KiB of requests that may come.
    waiting: Arc<Semaphore>,
    /// One is unpacked at a time: it takes milliseconds.
    reading: Arc<Semaphore>,
}

/// `ExportTraceServiceResponse` of trace_service.proto.
#[derive(Clone, PartialEq, Message)]
struct Exported {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

/// `ExportTracePartialSuccess` of trace_service.proto.
#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(
        "spans are not taken here: add [traces] to the collector's configuration, or send them elsewhere"
    )]
    Off,
    #[error(
        "messages are taken as protobuf only, this one is JSON: let the exporter send http/protobuf (OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf; `encoding: proto` of otlphttp)"
    )]
    Json,
    #[error(
        "messages are taken as {PROTOBUF} only, this one is {0:?}: let the exporter send http/protobuf (OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf)"
    )]
    OtherType(String),
    #[error(
        "messages are taken as they are or with gzip, this one has the Content-Encoding {0:?}: let the exporter compress with gzip or not at all (OTEL_EXPORTER_OTLP_TRACES_COMPRESSION=gzip)"
    )]
    OtherEncoding(String),
    #[error(
        "a message has at most {PACKED_MAX} bytes as sent: send fewer spans at a time (OTEL_BSP_MAX_EXPORT_BATCH_SIZE; `send_batch_max_size` of the batch processor)"
    )]
    TooLarge,
    #[error(
        "a message has at most {UNPACKED_MAX} bytes unpacked: send fewer spans at a time (OTEL_BSP_MAX_EXPORT_BATCH_SIZE; `send_batch_max_size` of the batch processor)"
    )]
    TooLargeUnpacked,
    #[error("too many messages are on their way: send this one again later")]
    TooMany,
    #[error("the message did not come within {} s", BODY_WITHIN.as_secs())]
    Late,
    #[error("the message broke off: {0}")]
    BrokeOff(String),
    #[error("the message says that it is gzip, and is not: {0}")]
    NotGzip(std::io::Error),
    #[error("the message is no ExportTraceServiceRequest: {0}")]
    Malformed(prost::DecodeError),
    #[error("the collector is stopping")]
    Stopping,
}

impl Refused {
    /// The status, which says whether a sender tries again, and that of gRPC that is nearest to it.
    fn status(&self) -> (StatusCode, Code) {
        match self {
            Self::Off => (StatusCode::NOT_FOUND, Code::Unimplemented),
            Self::Json | Self::OtherType(_) | Self::OtherEncoding(_) => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument)
            }
            Self::TooLarge | Self::TooLargeUnpacked => (StatusCode::PAYLOAD_TOO_LARGE, Code::OutOfRange),
            Self::TooMany => (StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted),
            Self::Late => (StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded),
            Self::BrokeOff(_) | Self::NotGzip(_) | Self::Malformed(_) => {
                (StatusCode::BAD_REQUEST, Code::InvalidArgument)
            }
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable),
        }
    }

    /// For counters; `None`: nothing is counted where nothing is taken.
    fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Off | Self::Stopping => None,
            Self::Json | Self::OtherType(_) | Self::OtherEncoding(_) => Some("other_form"),
            Self::TooLarge | Self::TooLargeUnpacked => Some("too_large"),
            Self::TooMany => Some("too_many"),
            Self::Late => Some("late"),
            Self::BrokeOff(_) | Self::NotGzip(_) | Self::Malformed(_) => Some("malformed"),
        }
    }

    /// As `google.rpc.Status`, in the form in which it was asked.
    fn answer(&self, as_json: bool) -> Response {
        let (status, code) = self.status();
        let (code, message) = (code as i32, self.to_string());
        let mut answer = if as_json {
            (status, axum::Json(serde_json::json!({ "code": code, "message": message }))).into_response()
        } else {
            let of = tonic_types::Status { code, message, details: Vec::new() };
            (status, [(header::CONTENT_TYPE, PROTOBUF)], of.encode_to_vec()).into_response()
        };
        if matches!(self, Self::TooMany | Self::Stopping) {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(AGAIN_AFTER_S));
        }
        answer
    }
}

async fn receive(State(to): State<Receiver>, headers: HeaderMap, body: Body) -> Response {
    let stats = &to.traces.stats;
    match to.taken(&headers, body).await {
        Ok(exported) => {
            stats.request("taken");
            ([(header::CONTENT_TYPE, PROTOBUF)], exported.encode_to_vec()).into_response()
        }
        Err(refused) => {
            if let Some(kind) = refused.kind() {
                stats.request(kind);
            }
            tracing::debug!("spans refused: {refused}");
            refused.answer(media_type(&headers) == JSON)
        }
    }
}

/// Without its parameters.
fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether it is gzip.
fn is_gzip(headers: &HeaderMap) -> Result<bool, Refused> {
    let Some(value) = headers.get(header::CONTENT_ENCODING) else { return Ok(false) };
    let text = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
    match text.as_str() {
        "gzip" | "x-gzip" => Ok(true),
        "" | "identity" => Ok(false),
        _ => Err(Refused::OtherEncoding(text)),
    }
}

impl Receiver {
    async fn taken(&self, headers: &HeaderMap, body: Body) -> Result<Exported, Refused> {
        let slower_than_ns = match &self.traces.settings {
            Some(settings) => settings.slower_than_ms.saturating_mul(1_000_000),
            None => return Err(Refused::Off),
        };
        match media_type(headers) {
            of if of == PROTOBUF => {}
            of if of == JSON => return Err(Refused::Json),
            other => return Err(Refused::OtherType(other)),
        }
        let gzip = is_gzip(headers)?;
        let told = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        // One that does not say how long it is may be as long as any.
        let length: usize = told.unwrap_or(PACKED_MAX);
        if length > PACKED_MAX {
            return Err(Refused::TooLarge);
        }
        let kib = u32::try_from(length.div_ceil(1024).max(WAITING_KIB_MIN)).map_err(|_| Refused::TooLarge)?;
        let room = Arc::clone(&self.waiting).try_acquire_many_owned(kib).map_err(|_| Refused::TooMany)?;
        let bytes = tokio::time::timeout(BODY_WITHIN, Limited::new(body, PACKED_MAX).collect()).await;
        let bytes = match bytes.map_err(|_| Refused::Late)? {
            Ok(bytes) => bytes.to_bytes(),
            Err(e) if e.is::<LengthLimitError>() => return Err(Refused::TooLarge),
            Err(e) => return Err(Refused::BrokeOff(e.to_string())),
        };
        let turn = Arc::clone(&self.reading).acquire_owned().await.map_err(|_| Refused::Stopping)?;
        let traces = Arc::clone(&self.traces);
        let read = tokio::task::spawn_blocking(move || {
            let _held = (room, turn);
            if gzip {
                read(&traces, &unpacked(&bytes)?, slower_than_ns)
            } else {
                read(&traces, &bytes, slower_than_ns)
            }
        });
        read.await.map_err(|_| Refused::Stopping)?
    }
}

/// What gzip packed, as far as it is no more than a message may be.
fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, Refused> {
    // All the room at once: what grows by doubling has three times as much while it is copied, and of this only what is written to is taken.
    let mut out = Vec::with_capacity(UNPACKED_MAX + 1);
    MultiGzDecoder::new(bytes)
        .take(UNPACKED_MAX as u64 + 1)
        .read_to_end(&mut out)
        .map_err(Refused::NotGzip)?;
    if out.len() > UNPACKED_MAX { Err(Refused::TooLargeUnpacked) } else { Ok(out) }
}

/// Takes the spans of a message that are slow or failed.
fn read(traces: &Traces, bytes: &[u8], slower_than_ns: u64) -> Result<Exported, Refused> {
    let now = traces.clock.unix_ns();
    let mut untimely = 0;
    let counts = message::read(bytes, slower_than_ns, |slow| {
        let (fate, put_out) = lock(&traces.ring).put(slow, now);
        traces.stats.span(fate);
        traces.stats.evicted.add(put_out as u64);
        untimely += u64::from(fate == Fate::Untimely);
    })
    .map_err(Refused::Malformed)?;
    traces.stats.left(counts);
    Ok(Exported { partial_success: rejected(counts, untimely) })
}

/// What is told of spans that could not be used; `None`: all could, or were fast.
fn rejected(Counts { unusable, .. }: Counts, untimely: u64) -> Option<PartialSuccess> {
    let mut told = Vec::new();
    if unusable > 0 {
        told.push(format!("{unusable} have no usable ids or times, or a resource of more than 64 KiB"));
    }
    if untimely > 0 {
        told.push(format!(
            "{untimely} ended more than {} s ago or more than {} s ahead of this collector's clock: set the clocks of both by NTP",
            KEPT_NS / 1_000_000_000,
            AHEAD_NS / 1_000_000_000
        ));
    }
    (!told.is_empty()).then(|| PartialSuccess {
        rejected_spans: i64::try_from(unusable + untimely).unwrap_or(i64::MAX),
        error_message: format!("spans that were not taken: {}", told.join("; ")),
    })
}

#[cfg(test)]
mod tests {
    use super::super::config::Traces as Settings;
    use super::super::message::tests::sent;
    use super::*;
    use crate::clock::Clock;
    use axum::http::Request;
    use std::io::Write;
    use tokio_stream::wrappers::ReceiverStream;
    use tonic::codegen::Service;

    fn traces() -> Arc<Traces> {
        Traces::new(Some(Settings { slower_than_ms: 200, link: None }), Clock::default())
    }

    fn now(traces: &Traces) -> u64 {
        traces.clock.unix_ns()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    /// Status, headers and body of the answer to a POST with these headers.
    async fn post(
        mut routes: axum::Router,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> (u16, HeaderMap, Vec<u8>) {
        let mut request = Request::post(PATH);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = routes.call(request.body(body.into()).unwrap()).await.unwrap();
        let (head, body) = answer.into_parts();
        (head.status.as_u16(), head.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }

    const PLAIN: (&str, &str) = ("content-type", PROTOBUF);
    const GZIP: [(&str, &str); 2] = [PLAIN, ("content-encoding", "gzip")];

    fn spans(traces: &Traces, fate: &str) -> u64 {
        let mut out = String::new();
        traces.render(&mut out);
        let line = format!("tailwater_traces_spans_total{{fate=\"{fate}\"}} ");
        out.lines().find_map(|text| text.strip_prefix(&line)?.parse().ok()).unwrap()
    }

    #[tokio::test]
    async fn spans_are_taken_plain_and_packed_and_answered_as_otlp_says() {
        let traces = traces();
        let message = sent("shop", now(&traces), &[900, 250, 30]);
        let (status, headers, body) = post(routes(Arc::clone(&traces)), &[PLAIN], message.clone()).await;
        assert_eq!((status, headers["content-type"].to_str().unwrap()), (200, PROTOBUF));
        assert_eq!(Exported::decode(&*body).unwrap(), Exported::default());
        assert_eq!((spans(&traces, "kept"), spans(&traces, "fast")), (2, 1));
        let (status, _, _) = post(routes(Arc::clone(&traces)), &GZIP, gzip(&message)).await;
        assert_eq!((status, spans(&traces, "again")), (200, 2), "an exporter that sends again");
        let with =
            [("content-type", "Application/X-Protobuf; charset=binary"), ("content-encoding", "identity")];
        assert_eq!(post(routes(Arc::clone(&traces)), &with, Body::empty()).await.0, 200);
        assert_eq!(lock(&traces.ring).len(), 2);
    }

    #[tokio::test]
    async fn of_spans_that_cannot_be_used_their_number_and_the_reason_are_told() {
        let traces = traces();
        let message = sent("shop", now(&traces) - KEPT_NS - 1_000_000_000, &[900]);
        let (status, _, body) = post(routes(Arc::clone(&traces)), &[PLAIN], message).await;
        let told = Exported::decode(&*body).unwrap().partial_success.unwrap();
        assert_eq!((status, told.rejected_spans), (200, 1));
        assert!(told.error_message.contains("1 ended more than 300 s ago"), "{}", told.error_message);
        assert_eq!(spans(&traces, "untimely"), 1);
    }

    #[tokio::test]
    async fn what_is_not_taken_is_refused_with_the_reason_and_the_remedy() {
        let traces = traces();
        let large = vec![0; PACKED_MAX + 1];
        let bomb = gzip(&vec![0; UNPACKED_MAX + 1]);
        assert!(bomb.len() < PACKED_MAX / 16);
        let without_length = || {
            let chunks = (0..=PACKED_MAX >> 20).map(|_| Ok::<_, std::io::Error>(vec![0; 1 << 20]));
            Body::from_stream(tokio_stream::iter(chunks))
        };
        let cut = {
            let mut whole = gzip(&sent("shop", now(&traces), &[900]));
            whole.truncate(whole.len() - 9);
            whole
        };
        type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Body, u16, &'a str);
        let cases: Vec<Case<'_>> = vec![
            ("JSON", &[("content-type", JSON)], "{}".into(), 415, "http/protobuf"),
            ("no type", &[], Body::empty(), 415, "http/protobuf"),
            ("gRPC", &[("content-type", "application/grpc")], Body::empty(), 415, "http/protobuf"),
            ("zstd", &[PLAIN, ("content-encoding", "zstd")], Body::empty(), 415, "COMPRESSION=gzip"),
            ("noise", &[PLAIN], "\x7f\x7f\x7f".into(), 400, "no ExportTraceServiceRequest"),
            ("no gzip", &GZIP, "noise".into(), 400, "is gzip, and is not"),
            ("half a gzip", &GZIP, cut.into(), 400, "is gzip, and is not"),
            ("a bomb", &GZIP, bomb.into(), 413, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"),
            (
                "too large",
                &[PLAIN, ("content-length", "4194305")],
                large.into(),
                413,
                "4194304 bytes as sent",
            ),
            ("of unknown length", &[PLAIN], without_length(), 413, "4194304 bytes as sent"),
        ];
        for (what, headers, body, expect, words) in cases {
            let (status, answered, body) = post(routes(Arc::clone(&traces)), headers, body).await;
            assert_eq!(status, expect, "{what}");
            let message = if what == "JSON" {
                let told: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(told["code"], 3);
                told["message"].as_str().unwrap().to_owned()
            } else {
                assert_eq!(answered["content-type"], PROTOBUF, "{what}");
                let told = tonic_types::Status::decode(&*body).unwrap();
                assert_ne!(told.code, 0, "{what}");
                told.message
            };
            assert!(message.contains(words), "{what}: {message}");
        }
        assert_eq!(lock(&traces.ring).len(), 0);
        let (status, _, body) = post(routes(Arc::default()), &[PLAIN], Body::empty()).await;
        let told = tonic_types::Status::decode(&*body).unwrap();
        assert!(status == 404 && told.message.contains("add [traces]"), "{told:?}");
    }

    #[tokio::test]
    async fn too_many_at_once_are_told_to_come_again_and_then_they_are_taken() {
        let traces = traces();
        let routes = routes(Arc::clone(&traces));
        // Bodies that do not come, each of unknown length.
        let (mut senders, mut held) = (Vec::new(), tokio::task::JoinSet::new());
        for _ in 0..WAITING_KIB_MAX * 1024 / PACKED_MAX {
            let (sender, silent) = tokio::sync::mpsc::channel::<std::io::Result<Vec<u8>>>(1);
            senders.push(sender);
            let routes = routes.clone();
            held.spawn(async move {
                post(routes, &[PLAIN], Body::from_stream(ReceiverStream::new(silent))).await
            });
        }
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let message = sent("shop", now(&traces), &[900]);
        let (status, headers, body) =
            post(routes.clone(), &[PLAIN, ("content-length", "99")], message.clone()).await;
        assert_eq!((status, headers["retry-after"].to_str().unwrap()), (429, "5"));
        assert!(tonic_types::Status::decode(&*body).unwrap().message.contains("again later"));
        drop(senders);
        while let Some(answer) = held.join_next().await {
            assert_eq!(answer.unwrap().0, 200);
        }
        assert_eq!(post(routes, &[PLAIN], message).await.0, 200);
        assert_eq!(spans(&traces, "kept"), 1);
    }
}

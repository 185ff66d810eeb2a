//! One request to the receiver over gRPC or HTTP, and what its answer means by the specification of OTLP
//! (<https://opentelemetry.io/docs/specs/otlp/>). Owns headers, time limits and the rules about answers; knows no queue.

use super::config::{Otlp, Protocol, Signal};
use crate::raw::RawDecoder;
use crate::send::http::{self, Address, Answer, DeliveryError, HookError, Http};
use crate::send::secret::Watched;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use prost::bytes::BufMut;
use std::path::Path;
use std::time::Duration;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::codegen::Bytes;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Request, Status};
use tonic_types::StatusExt;

/// HTTP/2 pings find a receiver that vanished without a word, so that the next request opens another connection.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Taken, but for so many data points or log records; and what the receiver said to that.
    Taken { rejected: u64, said: String },
    /// It may be taken later, not before the pause that the receiver asked for.
    Later { why: String, after: Option<Duration> },
    /// It will not be.
    Refused(String),
}

impl Signal {
    fn http_path(self) -> &'static str {
        match self {
            Self::Metrics => "/v1/metrics",
            Self::Logs => "/v1/logs",
        }
    }

    fn grpc_path(self) -> &'static str {
        match self {
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }

    /// What an answer says about a part of the request. One that cannot be read says nothing: the request was taken.
    fn partial(self, answer: &[u8]) -> (u64, String) {
        let rejected = match self {
            Self::Metrics => ExportMetricsServiceResponse::decode(answer)
                .ok()
                .and_then(|answer| answer.partial_success)
                .map(|part| (part.rejected_data_points, part.error_message)),
            Self::Logs => ExportLogsServiceResponse::decode(answer)
                .ok()
                .and_then(|answer| answer.partial_success)
                .map(|part| (part.rejected_log_records, part.error_message)),
        };
        let (count, said) = rejected.unwrap_or_default();
        (u64::try_from(count).unwrap_or(0), said)
    }
}

/// A way to the receiver for one signal.
#[derive(Debug)]
pub(super) struct Transport {
    signal: Signal,
    headers: Option<Watched<HeaderMap>>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Http(Box<Http>),
    Grpc { client: Box<tonic::client::Grpc<Http2>>, timeout: Duration },
}

type Http2 = Client<HttpsConnector<HttpConnector>, tonic::body::Body>;

impl Transport {
    /// As configured.
    pub(super) fn new(table: &Otlp, signal: Signal) -> Result<Self, HookError> {
        let remedy = "put one header a line in it, such as \"authorization: Bearer abc\"";
        let load = |file: &Path| Watched::load("headers_file", file, remedy, headers);
        let headers = table.headers_file.as_deref().map(load).transpose()?;
        let way = match table.protocol {
            Protocol::Http => {
                let to = Address {
                    url: Some(table.endpoint.clone()),
                    ca: table.ca.clone(),
                    timeout: table.timeout(),
                    ..Address::default()
                };
                Way::Http(Box::new(Http::new(&to, "")?))
            }
            Protocol::Grpc => {
                let uri = http::address(&table.endpoint).map_err(HookError::Address)?;
                let (tls, connector) = http::ways(table.ca.as_deref(), uri.scheme_str() == Some("https"))?;
                let connector = HttpsConnectorBuilder::new()
                    .with_tls_config(tls)
                    .https_or_http()
                    .enable_http2()
                    .wrap_connector(connector);
                let client = Client::builder(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .http2_only(true)
                    .http2_keep_alive_interval(PING_EVERY)
                    .http2_keep_alive_timeout(PING_ANSWER_WITHIN)
                    .build(connector);
                let client = Box::new(tonic::client::Grpc::with_origin(client, uri));
                Way::Grpc { client, timeout: table.timeout() }
            }
        };
        Ok(Self { signal, headers, way })
    }

    /// Sends `body`, which is the signal's request, once.
    pub(super) async fn send(&mut self, body: Bytes) -> Outcome {
        let headers = self.headers.as_ref().map(|file| file.current().as_ref().clone()).unwrap_or_default();
        let signal = self.signal;
        match &mut self.way {
            Way::Http(http) => {
                let own = ("content-type", "application/x-protobuf".to_owned());
                let given = headers.iter().map(|(name, value)| {
                    (name.as_str(), value.to_str().map(str::to_owned).unwrap_or_default())
                });
                let all: Vec<(&str, String)> = given.chain([own]).collect();
                match http.send(&all, body, Some(signal.http_path())).await {
                    Ok(answer) => judge_http(signal, &answer),
                    Err(DeliveryError::Later { why, after }) => Outcome::Later { why, after },
                    Err(DeliveryError::Never(why)) => Outcome::Refused(why),
                }
            }
            Way::Grpc { client, timeout } => {
                let mut headers = headers;
                let agent = HeaderValue::from_static(concat!("tailwater/", env!("CARGO_PKG_VERSION")));
                headers.entry(USER_AGENT).or_insert(agent);
                let metadata = MetadataMap::from_headers(headers);
                let request = Request::from_parts(metadata, Extensions::default(), body);
                let path = PathAndQuery::from_static(signal.grpc_path());
                match tokio::time::timeout(*timeout, client.unary(request, path, BytesCodec)).await {
                    Ok(Ok(answer)) => taken(signal, answer.get_ref()),
                    Ok(Err(status)) => judge_grpc(&status),
                    Err(_) => {
                        let why = format!("no answer within {} s", timeout.as_secs());
                        Outcome::Later { why, after: None }
                    }
                }
            }
        }
    }
}

fn taken(signal: Signal, answer: &[u8]) -> Outcome {
    let (rejected, said) = signal.partial(answer);
    Outcome::Taken { rejected, said }
}

/// Only these four statuses are to be tried again.
fn judge_http(signal: Signal, answer: &Answer) -> Outcome {
    match answer.status {
        200..=299 => taken(signal, &answer.body),
        429 | 502 | 503 | 504 => Outcome::Later { why: answer.said(), after: answer.retry_after() },
        _ => Outcome::Refused(answer.said()),
    }
}

/// The specification's table of codes. What has a source is no answer of the receiver but a failure to get one.
fn judge_grpc(status: &Status) -> Outcome {
    use std::error::Error;
    if let Some(source) = status.source() {
        return Outcome::Later { why: http::chain(source), after: None };
    }
    let why = format!("answered {:?}: {}", status.code(), status.message());
    let asked = status.get_details_retry_info();
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Outcome::Later { why, after: asked.and_then(|info| info.retry_delay) },
        // Without the pause to make, it is a quota that no trying changes.
        Code::ResourceExhausted if asked.is_some() => {
            Outcome::Later { why, after: asked.and_then(|info| info.retry_delay) }
        }
        _ => Outcome::Refused(why),
    }
}

/// `name: value`, one a line; `#` begins a comment. Values are secrets: no message shows one.
fn headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if line.trim_start().starts_with('#') {
            continue;
        }
        let bad = |what: &str| format!("line {}: {what}", n + 1);
        let (name, value) = line.split_once(':').ok_or_else(|| bad("is not name: value"))?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| bad("is no header's name"))?;
        // These frame the request, or are gRPC's own.
        let own = ["content-type", "content-length", "transfer-encoding", "connection", "host", "te"];
        if own.contains(&name.as_str())
            || name.as_str().starts_with("grpc-")
            || name.as_str().ends_with("-bin")
        {
            return Err(bad(&format!("{name} is not for this file")));
        }
        let mut value =
            HeaderValue::from_str(value.trim()).map_err(|_| bad("has a value that is no text"))?;
        if value.is_empty() || value.to_str().is_err() {
            return Err(bad("has a value that is no text"));
        }
        value.set_sensitive(true);
        headers.append(name, value);
    }
    if headers.is_empty() { Err("it is empty".into()) } else { Ok(headers) }
}

/// gRPC with messages that are encoded already: what waits and is tried again is bytes, whatever the protocol.
struct BytesCodec;
struct BytesEncoder;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = BytesEncoder;
    type Decoder = RawDecoder;

    fn encoder(&mut self) -> BytesEncoder {
        BytesEncoder
    }
    fn decoder(&mut self) -> RawDecoder {
        RawDecoder
    }
}

impl Encoder for BytesEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;
    use tonic_types::ErrorDetails;

    #[test]
    fn only_four_statuses_of_http_are_tried_again() {
        for status in 200..600 {
            let outcome = judge_http(Signal::Logs, &Answer { status, ..Answer::default() });
            match status {
                200..=299 => assert_eq!(outcome, Outcome::Taken { rejected: 0, said: String::new() }),
                429 | 502 | 503 | 504 => assert!(matches!(outcome, Outcome::Later { .. }), "{status}"),
                _ => assert!(matches!(outcome, Outcome::Refused(_)), "{status}"),
            }
        }
    }

    #[test]
    fn codes_of_grpc_are_judged_as_the_specification_says() {
        use Code::*;
        let again = [Cancelled, DeadlineExceeded, Aborted, OutOfRange, Unavailable, DataLoss];
        let final_ones = [
            Unknown,
            InvalidArgument,
            NotFound,
            AlreadyExists,
            PermissionDenied,
            ResourceExhausted,
            FailedPrecondition,
            Unimplemented,
            Internal,
            Unauthenticated,
        ];
        for code in again {
            assert!(matches!(judge_grpc(&Status::new(code, "x")), Outcome::Later { .. }), "{code:?}");
        }
        for code in final_ones {
            assert!(matches!(judge_grpc(&Status::new(code, "x")), Outcome::Refused(_)), "{code:?}");
        }
        let asks = ErrorDetails::with_retry_info(Some(Duration::from_secs(7)));
        for code in [ResourceExhausted, Unavailable] {
            let status = Status::with_error_details(code, "full", asks.clone());
            let Outcome::Later { after, .. } = judge_grpc(&status) else { panic!("{code:?}") };
            assert_eq!(after, Some(Duration::from_secs(7)));
        }
    }

    #[test]
    fn a_part_that_was_not_wanted_is_counted() {
        let part = ExportMetricsPartialSuccess { rejected_data_points: 3, error_message: "too old".into() };
        let answer = ExportMetricsServiceResponse { partial_success: Some(part) };
        let outcome = taken(Signal::Metrics, &answer.encode_to_vec());
        assert_eq!(outcome, Outcome::Taken { rejected: 3, said: "too old".into() });
        let nothing = Outcome::Taken { rejected: 0, said: String::new() };
        assert_eq!(taken(Signal::Metrics, b""), nothing);
        assert_eq!(taken(Signal::Metrics, b"<html>"), nothing, "an answer that is none of OTLP's");
    }

    #[test]
    fn headers_are_read_and_no_message_shows_a_value() {
        let all = headers("# token of the test\nAuthorization: Bearer abc\n\nx-scope-orgid: 1:2\n").unwrap();
        assert_eq!(
            (all["authorization"].to_str().unwrap(), all["x-scope-orgid"].to_str().unwrap()),
            ("Bearer abc", "1:2")
        );
        assert!(all["authorization"].is_sensitive());
        for bad in [
            "",
            "# only",
            "secret",
            "a b: secret",
            "x: sec\u{1}ret",
            "x: secrét",
            "x:",
            "Host: secret",
            "grpc-x: secret",
            "k-bin: secret",
        ] {
            let why = headers(bad).unwrap_err();
            assert!(!why.contains("sec"), "{why}");
        }
    }
}

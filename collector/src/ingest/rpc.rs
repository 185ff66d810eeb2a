//! The gRPC method as a service that hands over messages undecoded: a message that does not decode must not end its stream, and
//! a recording keeps fields that this build does not know. Otherwise as tonic generates it.

use crate::raw::RawDecoder;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tailwater_proto::MESSAGE_BYTES_MAX;
use tailwater_proto::encoded::STREAM;
use tailwater_proto::v1::CollectorMessage;
use tailwater_proto::v1::enrolment_server::{Enrolment, EnrolmentServer};
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::codegen::{Body, Bytes, Service, StdError, http};
use tonic::{Request, Response, Status, Streaming};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// What the collector says.
pub type Replies = tokio_stream::wrappers::ReceiverStream<Result<CollectorMessage, Status>>;

/// A request to join or to renew is shorter.
const ENROLMENT_BYTES_MAX: usize = 16 * 1024;
/// Where such calls are.
const ENROLMENT: &str = "/tailwater.telemetry.v1.Enrolment/";

/// Answers one stream, and those who want a certificate.
pub trait Answer: Enrolment + Send + Sync + 'static {
    /// Starts to read `messages` and returns what will be said.
    fn answer(self: Arc<Self>, messages: Streaming<Bytes>) -> Replies;
}

/// The service.
#[derive(Debug)]
pub struct Telemetry<A>(pub Arc<A>);

impl<A> Clone for Telemetry<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A, B> Service<http::Request<B>> for Telemetry<A>
where
    A: Answer,
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Boxed<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let method = Method(Arc::clone(&self.0));
        Box::pin(async move {
            if request.uri().path().starts_with(ENROLMENT) {
                let mut enrolment =
                    EnrolmentServer::from_arc(method.0).max_decoding_message_size(ENROLMENT_BYTES_MAX);
                return enrolment.call(request).await;
            }
            if request.uri().path() != STREAM {
                return Ok(Status::unimplemented(format!("no method {}", request.uri().path())).into_http());
            }
            let mut grpc = tonic::server::Grpc::new(RawCodec).max_decoding_message_size(MESSAGE_BYTES_MAX);
            Ok(grpc.streaming(method, request).await)
        })
    }
}

struct Method<A>(Arc<A>);

impl<A: Answer> tonic::server::StreamingService<Bytes> for Method<A> {
    type Response = CollectorMessage;
    type ResponseStream = Replies;
    type Future = Boxed<Result<Response<Replies>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let replies = Arc::clone(&self.0).answer(request.into_inner());
        Box::pin(async move { Ok(Response::new(replies)) })
    }
}

struct RawCodec;
struct ReplyEncoder;

impl Codec for RawCodec {
    type Encode = CollectorMessage;
    type Decode = Bytes;
    type Encoder = ReplyEncoder;
    type Decoder = RawDecoder;

    fn encoder(&mut self) -> ReplyEncoder {
        ReplyEncoder
    }
    fn decoder(&mut self) -> RawDecoder {
        RawDecoder
    }
}

impl Encoder for ReplyEncoder {
    type Item = CollectorMessage;
    type Error = Status;

    fn encode(&mut self, reply: CollectorMessage, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        use prost::Message;
        reply.encode(to).map_err(|e| Status::internal(e.to_string()))
    }
}

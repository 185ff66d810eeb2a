//! Answers that are worked out and not taken yet: they are in this program's memory for as long as whoever asked takes to read them. Owns how many
//! bytes that may be; knows no route.

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Answers of so many bytes are not counted: all connections together hold some dozens of megabytes of them.
const SHORT_BYTES: u64 = 64 << 10;

/// Room for so many bytes.
#[derive(Debug)]
pub(super) struct Untaken {
    room: Arc<Semaphore>,
    bytes_max: u32,
}

impl Untaken {
    pub(super) fn new(bytes_max: u32) -> Self {
        Self { room: Arc::new(Semaphore::new(bytes_max as usize)), bytes_max }
    }

    /// An answer whose bytes are counted until they are taken; `None`: there is no room for them. One that is larger than all there may be has room
    /// by itself; one that is told piece by piece waits for whoever takes it, and needs none.
    pub(super) fn hold(&self, answer: Response) -> Option<Response> {
        let Some(bytes) = answer.body().size_hint().exact().filter(|bytes| *bytes > SHORT_BYTES) else {
            return Some(answer);
        };
        let count = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.bytes_max);
        let room = Arc::new(Arc::clone(&self.room).try_acquire_many_owned(count).ok()?);
        Some(answer.map(|body| Body::new(Counted { body, room })))
    }
}

/// A body with the room that it takes.
struct Counted {
    body: Body,
    room: Arc<OwnedSemaphorePermit>,
}

/// Bytes of it. The server takes them out of the body at once and writes them for as long as that takes, so the room is theirs.
struct Piece {
    bytes: Bytes,
    _room: Arc<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let counted = |bytes| Bytes::from_owner(Piece { bytes, _room: Arc::clone(&self.room) });
        polled.map_ok(|frame| frame.map_data(counted))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::convert::Infallible;

    fn answer(kib: usize) -> Response {
        Response::new(Body::from(vec![0_u8; kib << 10]))
    }

    #[tokio::test]
    async fn an_answer_is_counted_until_its_bytes_are_taken() {
        let untaken = Untaken::new(200 << 10);
        let first = untaken.hold(answer(150)).unwrap();
        assert_eq!(first.body().size_hint().exact(), Some(150 << 10), "its length is still known");
        assert!(untaken.hold(answer(100)).is_none());
        assert!(untaken.hold(answer(64)).is_some(), "short ones are not counted");
        let piece = Ok::<_, Infallible>(vec![0_u8; 300 << 10]);
        let told = Response::new(Body::from_stream(tokio_stream::iter([piece])));
        assert!(untaken.hold(told).is_some(), "nor is what is told piece by piece");

        // As the server does: the body is gone before its bytes are.
        let mut body = first.into_body();
        let bytes = body.frame().await.unwrap().unwrap().into_data().unwrap();
        drop(body);
        assert_eq!(bytes.len(), 150 << 10);
        assert!(untaken.hold(answer(100)).is_none());
        drop(bytes);
        let all = untaken.hold(answer(500)).expect("room by itself");
        assert!(untaken.hold(answer(100)).is_none());
        drop(all);
        assert!(untaken.hold(answer(100)).is_some(), "whoever goes away takes no room");
    }
}

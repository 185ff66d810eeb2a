//! How a stream's messages lie in what is tried: one behind the other, each with its length first.

use prost::bytes::Buf;
use tonic::codegen::Bytes;

/// The next one; the last may be cut.
pub(crate) fn next(messages: &mut &[u8]) -> Option<Bytes> {
    let length = prost::encoding::decode_varint(messages).ok()?;
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(messages.len());
    Some(messages.copy_to_bytes(length))
}

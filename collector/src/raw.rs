//! A gRPC message as its bytes, for those who decode it themselves or not at all.

use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder};
use tonic::codegen::Bytes;

/// Hands over a message as its bytes.
#[derive(Debug)]
pub(crate) struct RawDecoder;

impl Decoder for RawDecoder {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        use prost::bytes::Buf;
        let all = from.remaining();
        Ok(Some(from.copy_to_bytes(all)))
    }
}

//! An agent's side of the stream, with messages that were encoded before: whoever sends the same again, or bytes that are none. Knows no
//! message's meaning.

use crate::v1::CollectorMessage;
use prost::bytes::{BufMut, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::{ProstCodec, ProstDecoder};

/// Of the stream's method, as gRPC names it.
pub const STREAM: &str = "/tailwater.telemetry.v1.Telemetry/Stream";

/// Sends bytes as they are, and reads the collector's messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Encoded;

/// See [`Encoded`].
#[derive(Debug, Clone, Copy, Default)]
pub struct AsTheyAre;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = CollectorMessage;
    type Encoder = AsTheyAre;
    type Decoder = ProstDecoder<CollectorMessage>;

    fn encoder(&mut self) -> AsTheyAre {
        AsTheyAre
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<CollectorMessage, CollectorMessage>::raw_decoder(BufferSettings::default())
    }
}

impl Encoder for AsTheyAre {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, bytes: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&bytes);
        Ok(())
    }
}

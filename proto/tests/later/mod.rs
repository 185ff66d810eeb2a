//! What a later version adds to a message, for the tests of both sides that it is passed over.

use prost::encoding::{WireType, encode_key, encode_varint};

/// A field that this version does not know, at the end of a message.
pub(crate) fn with_unknown(mut message: Vec<u8>) -> Vec<u8> {
    encode_key(1900, WireType::LengthDelimited, &mut message);
    encode_varint(6, &mut message);
    message.extend_from_slice(b"future");
    message
}

//! What all questions by netlink(7) have in common: how one is written, and how an answer of several messages is read. Knows none of them.

use netlink_packet_core::{ErrorMessage, NetlinkDeserializable, NetlinkMessage, NetlinkSerializable};
use std::io::{Error, ErrorKind};

/// Adds a message, from a multiple of four bytes on, as the kernel wants it.
pub(super) fn append<T: NetlinkSerializable>(to: &mut Vec<u8>, message: &NetlinkMessage<T>) {
    let at = to.len();
    to.resize(at + message.buffer_len().next_multiple_of(4), 0);
    message.serialize(&mut to[at..at + message.buffer_len()]);
}

/// Reads the messages of an answer, one after the other.
///
/// # Errors
/// One that cannot be read.
pub(super) fn each<T: NetlinkDeserializable>(
    mut answer: &[u8],
    mut take: impl FnMut(NetlinkMessage<T>),
) -> std::io::Result<()> {
    while !answer.is_empty() {
        let message = NetlinkMessage::<T>::deserialize(answer)
            .map_err(|error| Error::new(ErrorKind::InvalidData, error.to_string()))?;
        let length = (message.header.length as usize).next_multiple_of(4);
        take(message);
        answer = answer.get(length.max(1)..).unwrap_or_default();
    }
    Ok(())
}

/// Why the kernel refuses: a negative errno, or 0 where it does not.
pub(super) fn code(error: &ErrorMessage) -> i32 {
    error.code.map_or(0, std::num::NonZero::get)
}

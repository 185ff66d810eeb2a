//! What queueing disciplines dropped of what was to be sent: packets for which a device's queue had no room, or that a shaper gave up. Stands in no
//! file, and is asked by rtnetlink(7) in the network namespace of the calling thread. Owns asking and reading the answers; knows no window.

use crate::sample::netlink;
use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable, NlaBuffer, NlasIterator, parse_u32,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io::Error;

/// `RTM_GETQDISC` of the kernel's rtnetlink.h.
const GET_QDISC: u16 = 38;
/// `struct tcmsg`, and where in it the parent is.
const HEAD_BYTES: usize = 20;
const PARENT: std::ops::Range<usize> = 12..16;
/// `TC_H_ROOT`: the one of a device that none is above. What those below it drop is in its count.
const ROOT: u32 = u32::MAX;
/// `TCA_STATS2`, in it `TCA_STATS_QUEUE`, and in `struct gnet_stats_queue` the drops.
const STATISTICS: u16 = 7;
const OF_QUEUE: u16 = 3;
const DROPS: std::ops::Range<usize> = 8..12;
/// Room for one answer of the kernel's, which is at most 32 KiB.
const ANSWER_BYTES: usize = 64 << 10;

/// A message about queueing disciplines.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Message {
    /// All of them are asked for.
    Asks,
    /// One of them: what is above it, and how many packets it dropped since it is there.
    Is { parent: u32, drops: u32 },
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        GET_QDISC
    }

    fn buffer_len(&self) -> usize {
        HEAD_BYTES
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.fill(0);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let cut = || DecodeError::from("a queueing discipline whose message is cut");
        let parent = parse_u32(payload.get(PARENT).ok_or_else(cut)?)?;
        let attributes = payload.get(HEAD_BYTES..).ok_or_else(cut)?;
        let of_queue = attribute(attributes, STATISTICS)?
            .map(|statistics| attribute(&statistics, OF_QUEUE))
            .transpose()?
            .flatten();
        // One that counts nothing has dropped nothing.
        let drops = of_queue.map(|of| parse_u32(of.get(DROPS).ok_or_else(cut)?)).transpose()?;
        Ok(Self::Is { parent, drops: drops.unwrap_or(0) })
    }
}

/// The value of the attribute of this kind.
fn attribute(attributes: &[u8], kind: u16) -> Result<Option<Vec<u8>>, DecodeError> {
    for attribute in NlasIterator::new(attributes) {
        let attribute: NlaBuffer<&[u8]> = attribute?;
        if attribute.kind() == kind {
            return Ok(Some(attribute.value().to_vec()));
        }
    }
    Ok(None)
}

/// Packets that all devices' queueing disciplines dropped since they are there. Each counts 32 bits, and may begin again.
///
/// # Errors
/// The kernel refuses to answer, or answers what cannot be read.
pub(super) fn dropped() -> std::io::Result<u64> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut asks = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::InnerMessage(Message::Asks));
    asks.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    asks.finalize();
    let mut request = Vec::new();
    netlink::append(&mut request, &asks);
    socket.send(&request, 0)?;
    let mut answer = Vec::with_capacity(ANSWER_BYTES);
    let mut sum = 0_u64;
    loop {
        answer.clear();
        socket.recv(&mut answer, 0)?;
        match take(&answer, &mut sum)? {
            Told::More => {}
            Told::All => return Ok(sum),
        }
    }
}

/// Whether a dump goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    More,
    All,
}

/// Adds what one answer tells.
fn take(answer: &[u8], sum: &mut u64) -> std::io::Result<Told> {
    let (mut told, mut refused) = (Told::More, None);
    netlink::each(answer, |message: NetlinkMessage<Message>| match message.payload {
        NetlinkPayload::InnerMessage(Message::Is { parent: ROOT, drops }) => {
            *sum = sum.saturating_add(u64::from(drops));
        }
        NetlinkPayload::Done(_) => told = Told::All,
        NetlinkPayload::Error(error) => refused = Some(netlink::code(&error)),
        _ => {}
    })?;
    refused.map_or(Ok(told), |code| Err(Error::from_raw_os_error(-code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute as the kernel writes it.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = (value.len() + 4) as u16;
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() + 16) as u32;
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], payload].concat()
    }

    /// A queueing discipline with these numbers beside its name.
    fn discipline(parent: u32, drops: u32) -> Vec<u8> {
        let mut head = [0; HEAD_BYTES];
        head[PARENT].copy_from_slice(&parent.to_ne_bytes());
        let numbers: Vec<u8> = [1_u32, 2, drops, 4, 5].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let statistics = [attribute(1, &[9; 16]), attribute(OF_QUEUE, &numbers)].concat();
        message(36, &[&head[..], &attribute(1, b"tbf\0"), &attribute(STATISTICS, &statistics)].concat())
    }

    #[test]
    fn what_a_device_dropped_is_counted_once() {
        let answer = [discipline(ROOT, 7), discipline(0x1_0001, 7), discipline(ROOT, 2)].concat();
        let mut sum = 1;
        assert_eq!(take(&answer, &mut sum).unwrap(), Told::More);
        assert_eq!(sum, 10);
        assert_eq!(take(&[answer, message(3, &[0; 4])].concat(), &mut sum).unwrap(), Told::All);
        assert_eq!(sum, 19);
    }

    #[test]
    fn a_refusal_and_a_message_that_is_cut_are_errors() {
        let refused = message(2, &[&(-libc::EPERM).to_ne_bytes()[..], &[0; 16]].concat());
        assert_eq!(take(&refused, &mut 0).unwrap_err().raw_os_error(), Some(libc::EPERM));
        let whole = discipline(ROOT, 7);
        let mut cut = whole[..30].to_vec();
        cut[..4].copy_from_slice(&30_u32.to_ne_bytes());
        assert!(take(&cut, &mut 0).is_err());
        assert!(take(&whole[..whole.len() - 4], &mut 0).is_err());
    }

    #[test]
    fn this_kernel_tells() {
        assert!(dropped().is_ok());
    }
}

//! The kernel's list of TCP sockets by netlink: sock_diag(7). Owns asking and reading the answers; knows no listener by name.

use crate::sample::netlink;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload, Nla as _,
};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr};
use std::io::{Error, ErrorKind};

/// `INET_DIAG_CGROUP_ID` of the kernel's inet_diag.h, since Linux 5.7.
const CGROUP_ID: u16 = 21;
/// Room for one answer of the kernel's, which is at most 32 KiB.
const ANSWER_BYTES: usize = 64 << 10;
/// Questions that are sent at once: their answers fit into a socket's buffer of any size that is usual.
const ASKED_AT_ONCE: usize = 64;

/// One socket.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) family: u8,
    pub(super) id: SocketId,
    /// Of a listener: connections in its accept queue.
    pub(super) depth: u32,
    /// Of a listener: its limit.
    pub(super) limit: u32,
    pub(super) inode: u32,
    /// `sk_drops`; 0 where the kernel does not tell.
    pub(super) drops: u32,
    /// Cgroup of the version 2 tree in which it was made.
    pub(super) cgroup: Option<u64>,
}

/// A way to ask about the sockets of the network namespace in which it was opened.
pub(super) struct Diag {
    socket: Socket,
    answer: Vec<u8>,
}

impl std::fmt::Debug for Diag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Diag").finish_non_exhaustive()
    }
}

impl Diag {
    /// For the network namespace of the calling thread.
    pub(super) fn open() -> std::io::Result<Self> {
        let socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, answer: Vec::with_capacity(ANSWER_BYTES) })
    }

    /// Every TCP socket in these states, of both families.
    pub(super) fn dump(&mut self, states: &StateFlags) -> std::io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for (family, id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
            let mut request = Vec::new();
            netlink::append(&mut request, &message(family, states.clone(), id, NLM_F_DUMP, 0));
            self.socket.send(&request, 0)?;
            let mut refused = None;
            loop {
                let (mut done, mut absent) = (false, false);
                self.receive(0, &mut |_, answered| match answered {
                    Answered::Found(one) => found.push(one),
                    Answered::Done => done = true,
                    Answered::Refused(code) if code == -libc::ENOENT => absent = true,
                    Answered::Refused(code) => refused = Some(-code),
                })?;
                if let Some(code) = refused {
                    return Err(Error::from_raw_os_error(code));
                }
                // A kernel without IPv6 has no sockets of it.
                if absent && family == AF_INET {
                    let what = "this kernel lists no TCP sockets by netlink: load its module tcp_diag";
                    return Err(Error::new(ErrorKind::Unsupported, what));
                }
                done |= absent;
                if done {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Those sockets anew, in their order; `None`: it is gone.
    pub(super) fn ask(&mut self, sockets: &[(u8, SocketId)]) -> std::io::Result<Vec<Option<Found>>> {
        let mut found: Vec<Option<Found>> = Vec::with_capacity(sockets.len());
        for part in sockets.chunks(ASKED_AT_ONCE) {
            let first = found.len();
            found.resize(first + part.len(), None);
            let mut request = Vec::new();
            for (number, (family, id)) in (1_u32..).zip(part) {
                netlink::append(&mut request, &message(*family, StateFlags::LISTEN, id.clone(), 0, number));
            }
            self.socket.send(&request, 0)?;
            // The kernel answers while it takes the questions: everything is there already.
            let mut left = part.len();
            while left > 0 {
                let received = self.receive(libc::MSG_DONTWAIT, &mut |number, answered| {
                    left = left.saturating_sub(1);
                    let place = (number as usize).checked_sub(1).map(|n| first + n);
                    if let (Answered::Found(one), Some(place)) =
                        (answered, place.and_then(|p| found.get_mut(p)))
                    {
                        *place = Some(one);
                    }
                });
                match received {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    other => other?,
                }
            }
        }
        Ok(found)
    }

    fn receive(&mut self, flags: i32, each: &mut dyn FnMut(u32, Answered)) -> std::io::Result<()> {
        self.answer.clear();
        self.socket.recv(&mut self.answer, flags)?;
        netlink::each(&self.answer, |message: NetlinkMessage<SockDiagMessage>| {
            let number = message.header.sequence_number;
            match message.payload {
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                    each(number, Answered::Found(found(*response)));
                }
                NetlinkPayload::Done(_) => each(number, Answered::Done),
                NetlinkPayload::Error(error) => each(number, Answered::Refused(netlink::code(&error))),
                _ => {}
            }
        })
    }
}

enum Answered {
    Found(Found),
    Done,
    /// A negative errno.
    Refused(i32),
}

fn message(
    family: u8,
    states: StateFlags,
    socket_id: SocketId,
    flags: u16,
    number: u32,
) -> NetlinkMessage<SockDiagMessage> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = number;
    let request = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::SKMEMINFO,
        states,
        socket_id,
    };
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    message
}

fn found(response: InetResponse) -> Found {
    let header = response.header;
    let (mut drops, mut cgroup) = (0, None);
    for attribute in &response.nlas {
        match attribute {
            Nla::MemInfo(info) => drops = info.drops,
            Nla::Other(other) if other.kind() == CGROUP_ID && other.value_len() == 8 => {
                let mut value = [0; 8];
                other.emit_value(&mut value);
                cgroup = Some(u64::from_ne_bytes(value));
            }
            _ => {}
        }
    }
    Found {
        family: header.family,
        id: header.socket_id,
        depth: header.recv_queue,
        limit: header.send_queue,
        inode: header.inode,
        drops,
        cgroup,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

    fn at(found: &[Found], port: u16) -> Found {
        found.iter().find(|f| f.id.source_port == port).expect("the listener is in the list").clone()
    }

    #[test]
    fn a_listener_is_found_and_its_queue_is_seen_filling() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut diag = Diag::open().unwrap();
        let first = at(&diag.dump(&StateFlags::LISTEN).unwrap(), address.port());
        assert_eq!(first.id.source_address, IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!((first.depth, first.drops), (0, 0));
        assert!(first.limit > 0 && first.inode > 0);
        let waiting: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        let asked = [(first.family, first.id.clone())];
        let now = diag.ask(&asked).unwrap();
        assert_eq!(now[0].as_ref().map(|f| f.depth), Some(3));
        drop(listener);
        assert!(diag.ask(&asked).unwrap()[0].is_none(), "it is closed");
        drop(waiting);
    }

    #[test]
    fn many_are_asked_in_their_order() {
        let listeners: Vec<TcpListener> = (0..150).map(|_| TcpListener::bind("[::1]:0").unwrap()).collect();
        let mut diag = Diag::open().unwrap();
        let all = diag.dump(&StateFlags::LISTEN).unwrap();
        let asked: Vec<(u8, SocketId)> = listeners
            .iter()
            .map(|l| at(&all, l.local_addr().unwrap().port()))
            .map(|f| (f.family, f.id))
            .collect();
        let answers = diag.ask(&asked).unwrap();
        for (answer, (_, id)) in answers.iter().zip(&asked) {
            assert_eq!(answer.as_ref().map(|f| f.id.source_port), Some(id.source_port));
        }
    }
}

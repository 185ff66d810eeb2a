//! The listening sockets of a network namespace as the kernel's `sock_diag` netlink tells them: queue, limit and the socket's own
//! drop counter. One dump costs some ten microseconds.

use anyhow::{Context, Result, bail};
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    /// Identity of the socket: a restarted server has another.
    pub cookie: u64,
    /// Port.
    pub port: u16,
    /// Connections waiting to be accepted.
    pub queue: u32,
    /// What may wait, as the kernel clipped it.
    pub limit: u32,
    /// `sk_drops`.
    pub drops: u32,
}

/// A socket to ask by.
#[derive(Debug)]
pub struct SockDiag {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const INET_DIAG_SKMEMINFO: u16 = 7;
const SK_MEMINFO_DROPS: usize = 8;
const TCP_LISTEN: u32 = 10;
const HEADER: usize = 16;
const MESSAGE: usize = 72;

impl SockDiag {
    /// Opens a netlink socket in the namespace that this thread is in.
    pub fn open() -> Result<Self> {
        // SAFETY: plain integers; the descriptor is owned from here on.
        let socket = unsafe {
            let fd =
                libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG);
            if fd < 0 {
                return Err(Error::last_os_error()).context("netlink socket for sock_diag");
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self { socket, buffer: vec![0; 64 << 10] })
    }

    /// Every listening TCP socket. Java's are of the IPv6 family also where their address is IPv4.
    pub fn listeners(&mut self) -> Result<Vec<Listener>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.dump(family as u8, &mut found)?;
        }
        Ok(found)
    }

    fn dump(&mut self, family: u8, found: &mut Vec<Listener>) -> Result<()> {
        let mut request = Vec::with_capacity(HEADER + 56);
        request.extend_from_slice(&72_u32.to_ne_bytes());
        request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        request.extend_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
        request.extend_from_slice(&[0; 8]);
        let extensions = 1_u8 << (INET_DIAG_SKMEMINFO - 1);
        request.extend_from_slice(&[family, libc::IPPROTO_TCP as u8, extensions, 0]);
        request.extend_from_slice(&(1_u32 << TCP_LISTEN).to_ne_bytes());
        request.extend_from_slice(&[0; 48]);
        let fd = self.socket.as_raw_fd();
        // SAFETY: pointer and length of a live buffer.
        if unsafe { libc::send(fd, request.as_ptr().cast(), request.len(), 0) } < 0 {
            return Err(Error::last_os_error()).context("ask sock_diag");
        }
        loop {
            // SAFETY: as above.
            let got = unsafe { libc::recv(fd, self.buffer.as_mut_ptr().cast(), self.buffer.len(), 0) };
            let got = usize::try_from(got).map_err(|_| Error::last_os_error()).context("sock_diag")?;
            if parse(&self.buffer[..got], found)? {
                return Ok(());
            }
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Messages of one datagram; true at the end of the dump.
fn parse(mut bytes: &[u8], found: &mut Vec<Listener>) -> Result<bool> {
    while bytes.len() >= HEADER {
        let length = u32_at(bytes, 0).unwrap_or(0) as usize;
        if length < HEADER || length > bytes.len() {
            bail!("sock_diag: a message of {length} bytes in {}", bytes.len());
        }
        match u16_at(bytes, 4) {
            Some(NLMSG_DONE) => return Ok(true),
            Some(NLMSG_ERROR) => {
                let code = u32_at(bytes, HEADER).unwrap_or(0).cast_signed();
                bail!("sock_diag: {}", Error::from_raw_os_error(-code));
            }
            Some(SOCK_DIAG_BY_FAMILY) => {
                found.extend(listener(&bytes[HEADER..length]));
            }
            _ => {}
        }
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    Ok(false)
}

/// `struct inet_diag_msg` and its attributes.
fn listener(message: &[u8]) -> Option<Listener> {
    let port = u16::from_be_bytes(message.get(4..6)?.try_into().ok()?);
    let cookie = u64::from(u32_at(message, 44)?) | (u64::from(u32_at(message, 48)?) << 32);
    let (queue, limit) = (u32_at(message, 56)?, u32_at(message, 60)?);
    let mut attributes = message.get(MESSAGE..)?;
    while let (Some(length), Some(kind)) = (u16_at(attributes, 0), u16_at(attributes, 2)) {
        let length = usize::from(length);
        if kind == INET_DIAG_SKMEMINFO {
            let drops = u32_at(attributes, 4 + 4 * SK_MEMINFO_DROPS)?;
            return Some(Listener { cookie, port, queue, limit, drops });
        }
        attributes = attributes.get(length.next_multiple_of(4).max(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listener_of_this_process_is_found_with_its_queue() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let _client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let all = SockDiag::open().unwrap().listeners().unwrap();
        let mine: Vec<&Listener> = all.iter().filter(|listener| listener.port == port).collect();
        assert_eq!(mine.len(), 1, "{all:?}");
        assert_eq!((mine[0].queue, mine[0].drops), (1, 0));
        assert!(mine[0].limit > 0 && mine[0].cookie > 0);
    }

    #[test]
    fn a_cut_message_is_an_error_and_no_panic() {
        let mut bytes = 72_u32.to_ne_bytes().to_vec();
        bytes.extend([0; 20]);
        assert!(parse(&bytes, &mut Vec::new()).is_err());
        assert!(listener(&[0; 40]).is_none());
    }
}

//! A packet tap: an `AF_PACKET` socket in a tier's namespace that sees every SYN and every pushed segment towards one port, with
//! the kernel's own arrival times. A classic BPF filter in the kernel keeps everything else away.

use crate::truth::flows::Packet;
use anyhow::{Context, Result};
use std::io::Error;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes kept of a packet: IP header with options, TCP header without.
const SNAP: u32 = 80;
/// Packets taken by one system call.
const ROUND: usize = 64;
/// Holds some ten thousand packets, a second of any load here.
const RECEIVE_BYTES: libc::c_int = 32 << 20;
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;

/// An open tap.
#[derive(Debug)]
pub struct Tap {
    socket: OwnedFd,
    packets: Vec<[u8; SNAP as usize]>,
    lost: u64,
}

const fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// TCP towards `port`, not sent by this host itself, not a later fragment, SYN or PSH set. Offsets are from the IP header.
fn filter(port: u16) -> [libc::sock_filter; 13] {
    const LD_W_ABS: u32 = 0x20;
    const LD_H_ABS: u32 = 0x28;
    const LD_B_ABS: u32 = 0x30;
    const LDX_B_MSH: u32 = 0xb1;
    const LD_H_IND: u32 = 0x48;
    const LD_B_IND: u32 = 0x50;
    const JEQ: u32 = 0x15;
    const JSET: u32 = 0x45;
    const RET: u32 = 0x06;
    // SKF_AD_OFF + SKF_AD_PKTTYPE; PACKET_OUTGOING.
    const PACKET_TYPE: u32 = 0xffff_f004;
    [
        step(LD_W_ABS, 0, 0, PACKET_TYPE),
        step(JEQ, 10, 0, 4),
        step(LD_B_ABS, 0, 0, 9),
        step(JEQ, 0, 8, libc::IPPROTO_TCP as u32),
        step(LD_H_ABS, 0, 0, 6),
        step(JSET, 6, 0, 0x1fff),
        step(LDX_B_MSH, 0, 0, 0),
        step(LD_H_IND, 0, 0, 2),
        step(JEQ, 0, 3, port as u32),
        step(LD_B_IND, 0, 0, 13),
        // PSH or SYN.
        step(JSET, 0, 1, 0x0a),
        step(RET, 0, 0, SNAP),
        step(RET, 0, 0, 0),
    ]
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> Result<()> {
    // SAFETY: pointer and size of a live value.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of_val(value) as libc::socklen_t,
        )
    };
    if done != 0 {
        return Err(Error::last_os_error()).with_context(|| format!("packet tap: socket option {name}"));
    }
    Ok(())
}

impl Tap {
    /// Opens a tap for `port` in the namespace that this thread is in.
    pub fn open(port: u16) -> Result<Self> {
        // Protocol 0 receives nothing until bind, so nothing unfiltered comes in between.
        // SAFETY: plain integers; the descriptor is owned from here on.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(Error::last_os_error()).context("packet tap");
            }
            OwnedFd::from_raw_fd(fd)
        };
        let mut steps = filter(port);
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BYTES)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)?;
        // SAFETY: an all-zero sockaddr_ll is valid; it lives through the call.
        let bound = unsafe {
            let mut address: libc::sockaddr_ll = zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_IP as u16).to_be();
            libc::bind(
                socket.as_raw_fd(),
                std::ptr::from_ref(&address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound != 0 {
            return Err(Error::last_os_error()).context("bind packet tap");
        }
        Ok(Self { socket, packets: vec![[0; SNAP as usize]; ROUND], lost: 0 })
    }

    /// Takes what arrived since the last call.
    pub fn drain(&mut self, mut take: impl FnMut(Packet)) -> Result<()> {
        loop {
            let mut controls = [[0_u64; 8]; ROUND];
            let mut buffers: Vec<libc::iovec> = self
                .packets
                .iter_mut()
                .map(|packet| libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() })
                .collect();
            let mut messages: Vec<libc::mmsghdr> = buffers
                .iter_mut()
                .zip(&mut controls)
                .map(|(buffer, control)| {
                    // SAFETY: an all-zero header is valid; its pointers outlive the call below.
                    let mut message: libc::mmsghdr = unsafe { zeroed() };
                    message.msg_hdr.msg_iov = buffer;
                    message.msg_hdr.msg_iovlen = 1;
                    message.msg_hdr.msg_control = control.as_mut_ptr().cast();
                    message.msg_hdr.msg_controllen = size_of_val(control);
                    message
                })
                .collect();
            // SAFETY: as many headers as stated, each with live buffers.
            let got = unsafe {
                libc::recvmmsg(
                    self.socket.as_raw_fd(),
                    messages.as_mut_ptr(),
                    ROUND as libc::c_uint,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                )
            };
            let Ok(got) = usize::try_from(got) else {
                let error = Error::last_os_error();
                return match error.kind() {
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => Ok(()),
                    _ => Err(error).context("packet tap"),
                };
            };
            for (message, packet) in messages[..got].iter().zip(&self.packets) {
                if let Some(at_unix_ns) = arrival(&message.msg_hdr)
                    && let Some(packet) = parse(&packet[..message.msg_len as usize], at_unix_ns)
                {
                    take(packet);
                }
            }
            if got < ROUND {
                return Ok(());
            }
        }
    }

    /// Packets that the tap had no room for, so far.
    pub fn lost(&mut self) -> Result<u64> {
        // SAFETY: an all-zero struct is valid; pointer and size of a live value. Reading resets the kernel's counters.
        let (done, statistics) = unsafe {
            let mut statistics: libc::tpacket_stats = zeroed();
            let mut length = size_of_val(&statistics) as libc::socklen_t;
            let done = libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                std::ptr::from_mut(&mut statistics).cast(),
                &mut length,
            );
            (done, statistics)
        };
        if done != 0 {
            return Err(Error::last_os_error()).context("statistics of the packet tap");
        }
        self.lost += u64::from(statistics.tp_drops);
        Ok(self.lost)
    }
}

/// The kernel's time stamp of a message.
fn arrival(header: &libc::msghdr) -> Option<u64> {
    // SAFETY: the header and its control buffer were filled by the kernel and are alive.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(header);
        if control.is_null()
            || (*control).cmsg_level != libc::SOL_SOCKET
            || (*control).cmsg_type != libc::SCM_TIMESTAMPNS
        {
            return None;
        }
        let stamp: libc::timespec = std::ptr::read_unaligned(libc::CMSG_DATA(control).cast());
        Some(u64::try_from(stamp.tv_sec).ok()? * 1_000_000_000 + u64::try_from(stamp.tv_nsec).ok()?)
    }
}

/// From the IP header on.
fn parse(bytes: &[u8], at_unix_ns: u64) -> Option<Packet> {
    let header = usize::from(bytes.first()? & 0x0f) * 4;
    let tcp = bytes.get(header..header + 14)?;
    let flags = tcp[13];
    Some(Packet {
        at_unix_ns,
        source: bytes.get(12..16)?.try_into().ok()?,
        port: u16::from_be_bytes([tcp[0], tcp[1]]),
        sequence: u32::from_be_bytes(tcp[4..8].try_into().ok()?),
        syn: flags & (TCP_SYN | TCP_ACK) == TCP_SYN,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syn_is_read_and_a_short_packet_is_not() {
        let mut bytes = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        bytes.extend([0x12, 0x34, 0, 80, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, 0x02]);
        let packet = parse(&bytes, 5).unwrap();
        assert_eq!(
            packet,
            Packet { at_unix_ns: 5, source: [10, 0, 0, 1], port: 0x1234, sequence: 7, syn: true }
        );
        assert!(parse(&bytes[..30], 5).is_none());
    }

    #[test]
    fn jumps_of_the_filter_stay_inside_and_end_in_a_return() {
        let steps = filter(80);
        for (at, step) in steps.iter().enumerate().filter(|(_, step)| step.code & 0x07 == 0x05) {
            for jump in [step.jt, step.jf] {
                assert!(at + 1 + usize::from(jump) < steps.len());
            }
        }
        assert_eq!(steps[12].code, 0x06);
    }
}

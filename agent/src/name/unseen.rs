//! What listens here and is in no signal: UDP beside a TCP listener of the same port, which is QUIC (HTTP/3), or DNS. Owns finding it in this
//! process' network namespace; asks no kernel program.

use procfs::net::{TcpState, UdpState};
use std::collections::BTreeSet;

/// Ports at which both TCP listens and an unconnected UDP socket is bound. What cannot be read adds nothing.
#[must_use]
pub fn udp_beside_tcp() -> Vec<u16> {
    let tcp = procfs::net::tcp().into_iter().chain(procfs::net::tcp6()).flatten();
    let udp = procfs::net::udp().into_iter().chain(procfs::net::udp6()).flatten();
    let listening = tcp.filter(|e| e.state == TcpState::Listen).map(|e| e.local_address.port());
    let bound = udp.filter(|e| e.state == UdpState::Close).map(|e| e.local_address.port());
    let bound: BTreeSet<u16> = bound.collect();
    let both: BTreeSet<u16> = listening.filter(|port| bound.contains(port)).collect();
    both.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn a_port_is_named_while_both_are_there() {
        let (tcp, udp) = (0..100)
            .find_map(|_| {
                let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
                let udp = UdpSocket::bind(tcp.local_addr().ok()?).ok()?;
                Some((tcp, udp))
            })
            .expect("a port that is free for both");
        let port = tcp.local_addr().expect("a bound socket has an address").port();
        assert!(udp_beside_tcp().contains(&port));
        drop(udp);
        assert!(!udp_beside_tcp().contains(&port), "a listener alone is seen");
    }
}

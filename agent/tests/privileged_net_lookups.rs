//! Lookups of names, for real: sockets as resolvers have them, in a network namespace of the test's own, and a server of names that says nothing until it is
//! told to.
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]

mod net_probe;

use net_probe::{Probe, namespace};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use tailwater_agent::window::{LookupsKey, WINDOW_NS, WaitingLookups};

const PORT: u16 = 53;
/// What is said where a machine's policy takes no such program, as it is told of the signal too; the guests' kernels take it.
const REFUSED: &str = "this machine lets nobody walk the sockets of a map, which this test is about";

/// A server of names, and what it was asked.
struct Server(UdpSocket);

impl Server {
    fn open(address: IpAddr, port: u16) -> Self {
        Self(UdpSocket::bind((address, port)).unwrap())
    }

    /// A socket of a resolver that asks it and no other.
    fn resolver(&self) -> UdpSocket {
        let at = self.0.local_addr().unwrap();
        let any: IpAddr =
            if at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.connect(at).unwrap();
        socket
    }

    /// Takes the oldest query, and who asked it.
    fn taken(&self) -> SocketAddr {
        self.0.recv_from(&mut [0; 512]).unwrap().1
    }

    fn answers(&self, to: SocketAddr) {
        self.0.send_to(b"answer", to).unwrap();
    }
}

/// What is told of this namespace at the end of the newest window.
fn told(probe: &mut Probe) -> Vec<(LookupsKey, WaitingLookups)> {
    probe.drain_past_now();
    let here = namespace::inode();
    let all = probe.windows.last().unwrap().lookups.iter();
    all.filter(|(key, _)| key.netns == here).copied().collect()
}

/// Lookups that waited at the end of the newest window, and the longest of them in windows; of other namespaces there are none.
fn waiting(probe: &mut Probe) -> (u32, u64) {
    told(probe).into_iter().fold((0, 0), |(sum, longest), (key, of)| {
        assert_eq!((key.pid, key.server), (std::process::id(), Ipv4Addr::LOCALHOST.to_ipv6_mapped()));
        (sum + of.lookups, longest.max(of.longest_ns / WINDOW_NS))
    })
}

fn pass(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[test]
fn privileged_a_lookup_waits_from_its_query_to_its_answer_and_not_while_the_answer_lies_unread() {
    let mut probe = Probe::attach();
    if let Some(why) = probe.lookups_refused() {
        return println!("{REFUSED}: {why}");
    }
    namespace::enter_new();
    let server = Server::open(Ipv4Addr::LOCALHOST.into(), PORT);
    assert_eq!(waiting(&mut probe), (0, 0));
    let one = server.resolver();
    // Both families of addresses, as glibc asks.
    one.send(b"A").unwrap();
    one.send(b"AAAA").unwrap();
    let two = server.resolver();
    two.send(b"A").unwrap();
    pass(300);
    let (lookups, longest) = waiting(&mut probe);
    assert_eq!(lookups, 2);
    assert!((5..=20).contains(&longest), "{longest} windows");
    let (asked, _) = (server.taken(), server.taken());
    server.answers(asked);
    server.answers(asked);
    pass(100);
    assert_eq!(waiting(&mut probe).0, 1, "an answer lies there");
    one.recv(&mut [0; 16]).unwrap();
    one.recv(&mut [0; 16]).unwrap();
    pass(100);
    assert_eq!(waiting(&mut probe).0, 1, "it was answered");
    drop(two);
    assert_eq!(waiting(&mut probe).0, 0, "who asked went away without an answer");
    // What was lost is none of the next one's.
    one.send(b"A").unwrap();
    pass(100);
    assert_eq!(waiting(&mut probe).0, 1);
    server.taken();
    server.answers(server.taken());
    one.recv(&mut [0; 16]).unwrap();
    assert_eq!(waiting(&mut probe).0, 0);
}

#[test]
fn privileged_a_server_that_is_not_there_answers_at_once_and_other_ports_are_no_lookups() {
    let mut probe = Probe::attach();
    namespace::enter_new();
    let gone = Server::open(Ipv4Addr::LOCALHOST.into(), PORT);
    let resolver = gone.resolver();
    drop(gone);
    resolver.send(b"A").unwrap();
    assert!(resolver.recv(&mut [0; 16]).is_err(), "the kernel tells that nobody listens");
    let other = Server::open(Ipv4Addr::LOCALHOST.into(), PORT + 1);
    other.resolver().send(b"A").unwrap();
    let unconnected = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = Server::open(Ipv4Addr::LOCALHOST.into(), PORT);
    unconnected.send_to(b"A", server.0.local_addr().unwrap()).unwrap();
    pass(150);
    assert_eq!(waiting(&mut probe).0, 0);
}

#[test]
fn privileged_a_server_with_an_address_of_version_6_is_seen_too() {
    let mut probe = Probe::attach();
    if let Some(why) = probe.lookups_refused() {
        return println!("{REFUSED}: {why}");
    }
    namespace::enter_new();
    let server = Server::open(Ipv6Addr::LOCALHOST.into(), PORT);
    let resolver = server.resolver();
    resolver.send(b"A").unwrap();
    pass(150);
    let told: Vec<Ipv6Addr> = told(&mut probe).into_iter().map(|(key, _)| key.server).collect();
    assert_eq!(told, [Ipv6Addr::LOCALHOST]);
}

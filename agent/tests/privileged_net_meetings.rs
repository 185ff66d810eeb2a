//! Both ends of a connection are told by one number, whatever stands between them: a virtual address with several servers behind it, a redirection
//! as to a sidecar, and a connection that is older than the agent.
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod net_probe;

use net_probe::{Probe, namespace};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use tailwater_agent::window::{ConnectionEnd, Window};

/// As kube-proxy and the init container of a service mesh set it up.
const RULES: &str = "
table ip translated {
    chain first { ip protocol tcp dnat to 10.0.0.1:8081; }
    chain second { ip protocol tcp dnat to 10.0.0.1:8082; }
    chain output {
        type nat hook output priority -100;
        ip daddr 10.96.0.1 tcp dport 80 numgen inc mod 2 vmap { 0 : goto first, 1 : goto second }
        ip daddr 10.96.0.2 tcp dport 80 redirect to :8083
        ip daddr 10.96.0.3 tcp dport 80 dnat to 10.0.0.1:8084
    }
}
table ip6 translated {
    chain output {
        type nat hook output priority -100;
        ip6 daddr fd00:96::1 tcp dport 80 dnat to [fd00::1]:8085
    }
}
";

/// How those addresses begin.
const VIRTUAL: [&str; 2] = ["10.96.", "[fd00:96:"];

fn run(command: &[&str]) {
    let status = Command::new(command[0]).args(&command[1..]).status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

fn translate() {
    run(&["ip", "address", "add", "10.0.0.1/32", "dev", "lo"]);
    run(&["ip", "route", "add", "10.96.0.0/16", "dev", "lo", "src", "10.0.0.1"]);
    run(&["ip", "address", "add", "fd00::1/128", "dev", "lo"]);
    run(&["ip", "-6", "route", "add", "fd00:96::/64", "dev", "lo", "src", "fd00::1"]);
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(RULES.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "nft: install the Debian package nftables");
}

/// Answers each 100 bytes with 300 until its client goes.
fn serve(listener: TcpListener) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            let mut request = [0; 100];
            while stream.read_exact(&mut request).is_ok() && stream.write_all(&[b'x'; 300]).is_ok() {}
        });
    }
}

fn exchange(stream: &mut TcpStream) {
    stream.write_all(&[b'q'; 100]).unwrap();
    stream.read_exact(&mut [0; 300]).unwrap();
}

fn connect(to: impl Into<IpAddr>) -> TcpStream {
    let mut stream = TcpStream::connect((to.into(), 80)).unwrap();
    exchange(&mut stream);
    stream
}

/// Who was dialled, if that begins so, and at which port it was accepted: of the connections of which both ends were told.
fn met(windows: &[Window], begins: &[&str]) -> BTreeSet<(String, u16)> {
    let mut ends: BTreeMap<u64, (BTreeSet<String>, BTreeSet<u16>)> = BTreeMap::new();
    for meeting in windows.iter().flat_map(|window| &window.meetings) {
        let (dialled, accepted) = ends.entry(meeting.pair).or_default();
        match meeting.end {
            ConnectionEnd::Connected(edge) => {
                let address = edge.remote_address.to_canonical();
                dialled.insert(SocketAddr::new(address, edge.remote_port).to_string());
            }
            ConnectionEnd::Accepted(listener) => _ = accepted.insert(listener.port),
        }
    }
    let is_of = |dialled: &BTreeSet<String>| {
        dialled.iter().any(|to| begins.iter().any(|begin| to.starts_with(begin)))
    };
    let both = ends.into_values().filter(|(dialled, accepted)| is_of(dialled) && !accepted.is_empty());
    both.map(|(dialled, accepted)| {
        assert_eq!((dialled.len(), accepted.len()), (1, 1), "one number is that of one connection");
        (dialled.into_iter().next().unwrap(), accepted.into_iter().next().unwrap())
    })
    .collect()
}

#[test]
fn privileged_both_ends_of_a_connection_have_one_number_whatever_was_dialled() {
    namespace::apart(|| {
        translate();
        for port in 8081..=8085 {
            let any = if port == 8085 { "::" } else { "0.0.0.0" };
            let listener = TcpListener::bind((any, port)).unwrap();
            std::thread::spawn(move || serve(listener));
        }
        let mut before = connect(Ipv4Addr::new(10, 96, 0, 3));
        (0..3).for_each(|_| exchange(&mut before));

        let mut probe = Probe::attach();
        let known = |probe: &mut Probe, port| probe.net.listeners().iter().any(|(key, _)| key.port == port);
        probe.drain_until("the listeners are known", |probe| (8081..=8085).all(|port| known(probe, port)));
        exchange(&mut before);
        let virtual_address = Ipv4Addr::new(10, 96, 0, 1);
        let _open: Vec<TcpStream> = (0..6).map(|_| connect(virtual_address)).collect();
        let _redirected = connect(Ipv4Addr::new(10, 96, 0, 2));
        let _sixth = connect(Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 1));
        let expected = [
            ("10.96.0.1:80", 8081),
            ("10.96.0.1:80", 8082),
            ("10.96.0.2:80", 8083),
            ("10.96.0.3:80", 8084),
            ("[fd00:96::1]:80", 8085),
        ];
        let expected: BTreeSet<(String, u16)> =
            expected.map(|(dialled, port)| (dialled.to_owned(), port)).into();
        probe.drain_until("each is met", |probe| met(&probe.windows, &VIRTUAL).is_superset(&expected));
        assert_eq!(met(&probe.windows, &VIRTUAL), expected);
    });
}

#[test]
fn privileged_each_connection_is_told_again_within_half_a_minute() {
    namespace::apart(|| {
        let listener = TcpListener::bind(("127.0.0.1", 80)).unwrap();
        std::thread::spawn(move || serve(listener));
        let mut probe = Probe::attach();
        let known = |probe: &mut Probe| probe.net.listeners().iter().any(|(key, _)| key.port == 80);
        probe.drain_until("the listener is known", known);
        let _open = connect(Ipv4Addr::LOCALHOST);
        let own = ("127.0.0.1:80".to_owned(), 80);
        let is_met = |probe: &mut Probe| met(&probe.windows, &["127.0.0.1:80"]).contains(&own);
        probe.drain_until("it is met", is_met);
        probe.windows.clear();
        probe.drain_within(34, "it is told again", is_met);
    });
}

//! A thousand listening sockets on one machine, half of them older than the agent: what each got is counted as its own, to the connection and to
//! the request, at the server and at whoever called it.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod net_probe;

use net_probe::{Probe, namespace};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use tailwater_agent::signal::SignalSource;

const FIRST_PORT: u16 = 10_000;
const LISTENERS: u16 = 1_000;
/// Windows are drained after so many, before their logs come round.
const BETWEEN_DRAINS: u16 = 10;
const ASKED: u64 = 2;

/// No two neighbours get the same number.
fn connections(port: u16) -> u64 {
    u64::from(port % 3) + 1
}

/// Connections that came and that were accepted, requests that were received and answered, connections that were opened, calls that were
/// started and answered.
type Counts = [u64; 7];

/// What all windows told of each port of this namespace.
fn counted(probe: &Probe, netns: u32) -> BTreeMap<u16, Counts> {
    let mut all: BTreeMap<u16, Counts> = BTreeMap::new();
    let mut add = |port: u16, first: usize, values: &[u64]| {
        let of = all.entry(port).or_default();
        of.iter_mut().skip(first).zip(values).for_each(|(sum, value)| *sum += value);
    };
    for window in &probe.windows {
        for (key, of) in window.accept_queues.as_deref().unwrap().iter().filter(|(key, _)| key.netns == netns)
        {
            add(key.port, 0, &[of.arrivals, of.accepts]);
        }
        for (key, of) in window.requests.as_deref().unwrap().iter().filter(|(key, _)| key.netns == netns) {
            add(key.port, 2, &[of.received, of.answered]);
        }
        for (key, of) in window.calls.as_deref().unwrap().iter().filter(|(key, _)| key.netns == netns) {
            add(key.remote_port, 4, &[of.established, of.started, of.answered]);
        }
    }
    all
}

/// One connection after the other, each with its requests.
fn ask(listener: &TcpListener) {
    let address = listener.local_addr().unwrap();
    for _ in 0..connections(address.port()) {
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut byte = [0];
        for _ in 0..ASKED {
            client.write_all(b"?").unwrap();
            server.read_exact(&mut byte).unwrap();
            server.write_all(b"!").unwrap();
            client.read_exact(&mut byte).unwrap();
        }
    }
}

#[test]
fn privileged_each_of_a_thousand_listeners_has_its_own_counts() {
    namespace::apart(|| {
        let netns = namespace::inode();
        let listen = |port| TcpListener::bind(("127.0.0.1", port)).unwrap();
        let (middle, last) = (FIRST_PORT + LISTENERS / 2, FIRST_PORT + LISTENERS);
        let mut listeners: Vec<TcpListener> = (FIRST_PORT..middle).map(listen).collect();
        let mut probe = Probe::attach_with_all_room();
        listeners.extend((middle..last).map(listen));
        for some in listeners.chunks(BETWEEN_DRAINS.into()) {
            some.iter().for_each(ask);
            probe.drain();
        }
        let wanted: BTreeMap<u16, Counts> = (FIRST_PORT..last)
            .map(|port| {
                let (opened, asked) = (connections(port), ASKED * connections(port));
                (port, [opened, opened, asked, asked, opened, asked, asked])
            })
            .collect();
        probe.drain_past_now();
        probe.drain_past_now();
        let told = counted(&probe, netns);
        let wrong: Vec<_> = wanted.iter().filter(|(port, counts)| told.get(port) != Some(counts)).collect();
        let first = wrong.first().map(|(port, counts)| (port, counts, told.get(port)));
        assert!(
            wrong.is_empty(),
            "{} are told wrongly; the first: {first:?}; {:?}",
            wrong.len(),
            probe.net.losses()
        );
        // What has no place of its own has a row, too.
        let others: Vec<_> = told.iter().filter(|(port, _)| !wanted.contains_key(port)).collect();
        assert!(others.iter().all(|(_, counts)| **counts == Counts::default()), "{others:?}");
        let losses = probe.net.losses();
        let lost: Vec<_> = losses.iter().filter(|loss| loss.count > 0).collect();
        assert!(lost.is_empty(), "{lost:?}");
    });
}

//! What a starved agent loses: nothing while the ring holds, and levels never.
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod kernel;
mod net_probe;

use net_probe::{Probe, StopAtEnd};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Answers each byte after `takes` until the connection closes.
fn serve(takes: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() {
                    std::thread::sleep(takes);
                    let _ = stream.write_all(&byte);
                }
            });
        }
    });
    port
}

fn load(port: u16, stop: &Arc<AtomicBool>) -> Vec<std::thread::JoinHandle<()>> {
    (1..=6)
        .map(|i| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut byte = [0];
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                    for _ in 0..i * 3 {
                        stream.write_all(&byte).unwrap();
                        stream.read_exact(&mut byte).unwrap();
                    }
                }
            })
        })
        .collect()
}

#[test]
fn privileged_two_seconds_without_a_drain_lose_nothing() {
    // Where a CPU is taken between the two programs' stamps of one event, they are further apart.
    kernel::experiment("no drain for a while", without_a_drain);
}

fn without_a_drain() {
    let mut prompt = Probe::attach();
    let mut starved = Probe::attach();
    let port = serve(Duration::from_millis(2));
    starved.next = prompt.clock.window().0;
    prompt.next = starved.next;
    let stop = Arc::new(AtomicBool::new(false));
    let _end = StopAtEnd(&stop);
    let clients = load(port, &stop);
    // One more than is wanted: the window that is open then is drained below, and no other has to be. The ring holds 64.
    while prompt.clock.window().0 < starved.next + 40 {
        std::thread::sleep(Duration::from_millis(20));
        prompt.drain();
    }
    stop.store(true, Ordering::Relaxed);
    prompt.until_ended(|| clients.iter().all(std::thread::JoinHandle::is_finished));
    for client in clients {
        client.join().unwrap();
    }
    prompt.drain_past_now();
    prompt.drain_until("idle", |p| p.requests(port).open_last == 0);
    assert!(prompt.windows.len() >= 40, "two seconds");
    let until = prompt.next;
    while starved.next < until {
        starved.drain();
    }
    starved.windows.truncate(prompt.windows.len());
    let mut compared = 0;
    for (a, b) in prompt.windows.iter().zip(&starved.windows) {
        assert_eq!(a.index, b.index);
        let requests = |w: &tailwater_agent::window::Window| {
            w.requests
                .as_deref()
                .unwrap()
                .iter()
                .find(|(k, _)| k.port == port)
                .map(|(_, s)| *s)
                .unwrap_or_default()
        };
        let (a, b) = (requests(a), requests(b));
        // Each has hooks of its own, which stamp the same event a few hundred ns apart: at a window's end one may count it in the next.
        assert!(a.received.abs_diff(b.received) <= 2 && a.answered.abs_diff(b.answered) <= 2, "{a:?} {b:?}");
        assert!(a.in_flight_max.abs_diff(b.in_flight_max) <= 1, "{a:?} {b:?}");
        assert!(a.in_flight_ns.abs_diff(b.in_flight_ns) <= 500_000 + a.in_flight_ns / 100, "{a:?} {b:?}");
        compared += a.received;
    }
    assert!(compared > 500, "{compared}");
    let (a, b) = (prompt.requests(port), starved.requests(port));
    assert_eq!((a.received, a.answered, a.aborted), (b.received, b.answered, b.aborted));
    assert_eq!((b.in_flight_last, b.open_last), (0, 0), "{a:?} {b:?}");
    let (a, b) = (prompt.calls(port), starved.calls(port));
    assert_eq!((a.started, a.answered, a.connects), (b.started, b.answered, b.connects));
    assert_eq!(starved.net.lapped(), 0);
}

#[test]
fn privileged_levels_are_right_after_lapped_windows() {
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut held = Vec::new();
    let request = |held: &mut Vec<(TcpStream, TcpStream)>| {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        held.push((client, server));
    };
    for _ in 0..3 {
        request(&mut held);
    }
    probe.drain_past_now();
    assert_eq!(probe.requests(port).in_flight_last, 3);
    // Two more, and one answer, all of which the ring forgets.
    request(&mut held);
    request(&mut held);
    held[0].1.write_all(b"y").unwrap();
    let away_until = probe.clock.window().0 + 75;
    while probe.clock.window().0 < away_until {
        std::thread::sleep(Duration::from_millis(50));
    }
    probe.windows.clear();
    let lost = probe.drain_lapped();
    assert!(lost >= 10, "{lost}");
    for window in &probe.windows {
        let (_, s) = window.requests.as_deref().unwrap().iter().find(|(k, _)| k.port == port).unwrap();
        assert_eq!((s.in_flight_last, s.in_flight_max, s.in_flight_ns, s.open_last), (4, 4, 200_000_000, 5));
        let (_, s) = window.calls.as_deref().unwrap().iter().find(|(k, _)| k.remote_port == port).unwrap();
        // The client did not read the answer yet.
        assert_eq!((s.in_flight_last, s.open_last), (5, 5));
    }
    drop(held);
    probe.drain_until("all gone", |p| p.requests(port).open_last == 0 && p.calls(port).open_last == 0);
    assert_eq!((probe.requests(port).in_flight_last, probe.calls(port).in_flight_last), (0, 0));
    assert_eq!((probe.requests(port).aborted, probe.calls(port).aborted), (4, 5));
}

//! Requests that took long, for real: a server that asks another one for each request, in a network namespace of the test's own, with requests that wait
//! for a call, for somebody to accept them, and for a connection whose SYN was dropped.
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]

mod net_probe;

use net_probe::{Probe, namespace};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use tailwater_agent::window::{SlowCall, SlowRequest};

const MS: u64 = 1_000_000;
/// The stack's stamps are of the segment, up to a moment before its hook.
const MOMENT_NS: u64 = 2 * MS;

fn pass(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

/// Answers each byte with 300 after so many times 10 ms as it says, on a thread for each connection.
fn work(listener: TcpListener) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            let mut tens = [0];
            while stream.read_exact(&mut tens).is_ok() {
                pass(10 * u64::from(tens[0]));
                stream.write_all(&[b'x'; 300]).unwrap();
            }
        });
    }
}

/// Answers each byte when another server has, over a connection of its own for each request.
fn ask_on(listener: TcpListener, to: SocketAddr) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            let mut tens = [0];
            while stream.read_exact(&mut tens).is_ok() {
                exchange(&mut TcpStream::connect(to).unwrap(), tens[0]);
                stream.write_all(&[b'y'; 300]).unwrap();
            }
        });
    }
}

fn exchange(stream: &mut TcpStream, tens: u8) {
    stream.write_all(&[tens]).unwrap();
    stream.read_exact(&mut [0; 300]).unwrap();
}

/// What is told of a server of this namespace.
fn told(probe: &mut Probe, at: SocketAddr) -> Vec<SlowRequest> {
    probe.drain_past_now();
    let here = namespace::inode();
    let all = probe.windows.iter().flat_map(|window| &window.slow_requests);
    all.filter(|r| r.listener.netns == here && r.listener.port == at.port()).cloned().collect()
}

fn calls(request: &SlowRequest) -> &[SlowCall] {
    request.calls.as_deref().unwrap_or_else(|| panic!("whose calls those were is not known: {request:?}"))
}

#[test]
fn privileged_a_request_is_told_with_the_call_that_it_waited_for_and_a_short_one_is_not() {
    let mut probe = Probe::attach();
    namespace::enter_new();
    let ((front, at), (back, behind)) = (listen(), listen());
    std::thread::spawn(move || work(back));
    std::thread::spawn(move || ask_on(front, behind));
    let mut client = TcpStream::connect(at).unwrap();
    exchange(&mut client, 1);
    exchange(&mut client, 30);
    exchange(&mut client, 1);
    let (asked, worked) = (told(&mut probe, at), told(&mut probe, behind));
    assert_eq!((asked.len(), worked.len()), (1, 1), "{asked:#?} {worked:#?}");
    let (asked, worked) = (&asked[0], &worked[0]);
    let [call] = calls(asked) else { panic!("{asked:#?}") };
    assert_eq!((call.edge.remote_port, call.pair), (behind.port(), worked.pair), "{asked:#?} {worked:#?}");
    assert!(worked.pair != 0 && asked.pair != worked.pair);
    assert!(calls(worked).is_empty() && !call.connecting && !call.aborted && !asked.aborted);
    assert!(worked.inside_ns + MOMENT_NS >= 300 * MS, "{worked:#?}");
    assert!(call.took_ns + MOMENT_NS >= worked.inside_ns + worked.unread_ns, "{call:#?} {worked:#?}");
    assert!(asked.inside_ns + MOMENT_NS >= call.after_ns + call.took_ns, "{asked:#?}");
    assert!(!asked.queued && asked.retried_ns == 0);
    let losses = probe.net.kernel_losses();
    assert_eq!(losses.slow_turns, 0, "{losses:?}");
}

#[test]
fn privileged_a_request_waits_unread_until_somebody_accepts_its_connection() {
    let mut probe = Probe::attach();
    namespace::enter_new();
    let (listener, at) = listen();
    let mut client = TcpStream::connect(at).unwrap();
    client.write_all(&[1]).unwrap();
    pass(260);
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.read_exact(&mut [0]).unwrap();
    accepted.write_all(&[b'x'; 300]).unwrap();
    client.read_exact(&mut [0; 300]).unwrap();
    let told = told(&mut probe, at);
    let [request] = &told[..] else { panic!("{told:#?}") };
    assert!(request.queued && request.unread_ns + MOMENT_NS >= 260 * MS, "{request:#?}");
    assert!(request.inside_ns < request.unread_ns && calls(request).is_empty(), "{request:#?}");
}

#[test]
fn privileged_a_connection_whose_syn_is_dropped_is_a_part_of_the_request_that_waits_for_it() {
    let mut probe = Probe::attach();
    namespace::enter_new();
    let ((front, at), (back, behind)) = (listen(), listen());
    // One that waits, and one more.
    rustix::net::listen(&back, 1).unwrap();
    let full = [TcpStream::connect(behind).unwrap(), TcpStream::connect(behind).unwrap()];
    std::thread::spawn(move || ask_on(front, behind));
    let mut client = TcpStream::connect(at).unwrap();
    client.write_all(&[1]).unwrap();
    pass(400);
    probe.drain();
    std::thread::spawn(move || work(back));
    client.read_exact(&mut [0; 300]).unwrap();
    drop(full);
    let told = told(&mut probe, at);
    let [request] = &told[..] else { panic!("{told:#?}") };
    let [call] = calls(request) else { panic!("{request:#?}") };
    assert!(call.connecting && !call.aborted && call.edge.remote_port == behind.port(), "{request:#?}");
    // The first retry of a SYN comes after a second (RFC 6298).
    assert!(call.took_ns >= 900 * MS && request.inside_ns + MOMENT_NS >= call.took_ns, "{request:#?}");
}

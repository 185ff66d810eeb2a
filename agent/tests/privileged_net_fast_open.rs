//! TCP Fast Open: a client whose first words go with its SYN, and that waits for their answer, takes turns like any other, and its first call is told.
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod net_probe;

use net_probe::{Probe, namespace};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Of a network namespace (Documentation/networking/ip-sysctl.rst): clients and servers, neither asks for a cookie, and every listener takes part.
const FAST_OPEN: (&str, &str) = ("/proc/sys/net/ipv4/tcp_fastopen", "1543");

/// In a namespace where everybody opens fast.
fn opening_fast(test: impl FnOnce() + Send) {
    namespace::apart(|| {
        std::fs::write(FAST_OPEN.0, FAST_OPEN.1).unwrap();
        test();
    });
}

/// Connects, and says so many bytes with the SYN.
fn connect_asking(port: u16, bytes: usize, flags: libc::c_int) -> TcpStream {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    let words = vec![b'w'; bytes];
    // SAFETY: plain calls on a descriptor that is made here, and on buffers that live here.
    let stream = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        let sent = libc::sendto(
            fd,
            words.as_ptr().cast(),
            bytes,
            libc::MSG_FASTOPEN | flags,
            (&raw const address).cast(),
            size_of_val(&address) as u32,
        );
        assert_eq!(usize::try_from(sent), Ok(bytes), "{}", std::io::Error::last_os_error());
        TcpStream::from(OwnedFd::from_raw_fd(fd))
    };
    stream.set_nodelay(true).unwrap();
    stream
}

/// Whether what was said with the SYN was taken (`TCPI_OPT_SYN_DATA` of `tcp_info`).
fn was_taken(stream: &TcpStream) -> bool {
    const OPTION: u8 = 32;
    const OPTIONS_AT: usize = 5;
    let mut info = [0_u8; 128];
    let mut length = info.len() as u32;
    // SAFETY: writes no more than `length` bytes.
    let told = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert_eq!(told, 0);
    info[OPTIONS_AT] & OPTION != 0
}

/// What is written waits for more, until that is over.
fn cork(stream: &TcpStream, corked: bool) {
    let value = libc::c_int::from(corked);
    // SAFETY: reads four bytes that live here.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CORK,
            (&raw const value).cast(),
            size_of_val(&value) as u32,
        )
    };
    assert_eq!(set, 0);
}

fn say(stream: &mut TcpStream, bytes: usize) {
    stream.write_all(&vec![b's'; bytes]).unwrap();
}

fn hear(stream: &mut TcpStream, bytes: usize) {
    stream.read_exact(&mut vec![0; bytes]).unwrap();
}

fn assert_turns(probe: &mut Probe, port: u16, calls_each: u64, what: &str) {
    probe.drain_past_now();
    let (requests, calls) = (probe.requests(port), probe.calls(port));
    assert_eq!(
        (requests.multiplexed.connections, calls.multiplexed.connections),
        (0, 0),
        "{what}: {requests:?} {calls:?}"
    );
    assert_eq!(
        (calls.started, calls.answered, calls.in_flight_last),
        (calls_each, calls_each, 0),
        "{what}: {calls:?}"
    );
}

/// The answer may be there before the hook of the send that began with the SYN runs: this server looks for its client all the time.
#[test]
fn privileged_who_asks_with_its_syn_takes_turns() {
    const CONNECTIONS: u64 = 300;
    for (flags, what) in [(0, "waiting for the connection"), (libc::MSG_DONTWAIT, "not waiting for it")] {
        opening_fast(|| {
            let mut probe = Probe::attach();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let port = listener.local_addr().unwrap().port();
            std::thread::scope(|s| {
                s.spawn(|| {
                    for _ in 0..CONNECTIONS {
                        let mut stream = loop {
                            match listener.accept() {
                                Ok((stream, _)) => break stream,
                                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
                            }
                        };
                        stream.set_nonblocking(false).unwrap();
                        stream.set_nodelay(true).unwrap();
                        for _ in 0..3 {
                            hear(&mut stream, 30);
                            say(&mut stream, 40);
                        }
                    }
                });
                for _ in 0..CONNECTIONS {
                    let mut stream = connect_asking(port, 30, flags);
                    hear(&mut stream, 40);
                    assert!(was_taken(&stream), "no Fast Open here");
                    for _ in 0..2 {
                        say(&mut stream, 30);
                        hear(&mut stream, 40);
                    }
                    drop(stream);
                    probe.drain();
                }
            });
            assert_turns(&mut probe, port, 3 * CONNECTIONS, what);
        });
    }
}

/// `Expect: 100-continue`, the header with the SYN, and the body behind a cork until it is asked for.
#[test]
fn privileged_a_body_that_waits_behind_a_header_in_the_syn_is_no_word_that_was_said_first() {
    const CONNECTIONS: u64 = 20;
    opening_fast(|| {
        let mut probe = Probe::attach();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..CONNECTIONS {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.set_nodelay(true).unwrap();
                    hear(&mut stream, 100);
                    std::thread::sleep(Duration::from_millis(5));
                    say(&mut stream, 25);
                    hear(&mut stream, 300);
                    say(&mut stream, 40);
                    hear(&mut stream, 30);
                    say(&mut stream, 40);
                }
            });
            for _ in 0..CONNECTIONS {
                let mut stream = connect_asking(port, 100, 0);
                stream.set_nodelay(false).unwrap();
                cork(&stream, true);
                say(&mut stream, 300);
                hear(&mut stream, 25);
                assert!(was_taken(&stream), "no Fast Open here");
                cork(&stream, false);
                hear(&mut stream, 40);
                say(&mut stream, 30);
                hear(&mut stream, 40);
                drop(stream);
                probe.drain();
            }
        });
        assert_turns(&mut probe, port, 2 * CONNECTIONS, "a corked body");
    });
}

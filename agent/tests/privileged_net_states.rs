//! Time in state on real sockets: how long a server had how many requests in flight, against its own sleep and against the integral
//! that the windows tell by another way.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails where it stands, and asks its own clock"
)]

mod net_probe;

use net_probe::Probe;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A thread per connection; each request takes `takes`.
fn serve(takes: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let mut request = [0; REQUEST.len()];
                while stream.read_exact(&mut request).is_ok() {
                    std::thread::sleep(takes);
                    let _ = stream.write_all(&[b'x'; 40]);
                }
            });
        }
    });
    at
}

/// `clients` at once, each `requests` times over a connection of its own.
fn ask(at: SocketAddr, clients: usize, requests: usize) {
    let client = move || {
        let mut stream = TcpStream::connect(at).unwrap();
        for _ in 0..requests {
            stream.write_all(REQUEST).unwrap();
            stream.read_exact(&mut [0; 40]).unwrap();
        }
    };
    let threads: Vec<_> = (0..clients).map(|_| std::thread::spawn(client)).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Time in ns and answers by bin, of all that was told of a port; and how many windows that was about.
fn states(probe: &Probe, port: u16) -> (BTreeMap<u8, (u64, u64)>, u32) {
    let mut sums: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
    let mut windows = 0;
    for states in probe.windows.iter().filter_map(|window| window.states.as_ref()) {
        windows += states.windows;
        let of_port = states.listeners.iter().filter(|(key, _)| key.port == port);
        for cell in of_port.flat_map(|(_, cells)| cells) {
            let sum = sums.entry(cell.bin).or_default();
            (sum.0, sum.1) = (sum.0 + cell.time_ns, sum.1 + cell.answered);
        }
    }
    (sums, windows)
}

/// With the stretch begun that is told first, so that nothing of what follows is missed.
fn begun() -> Probe {
    let mut probe = Probe::attach();
    probe.drain_until("a window is drained", |p| !p.windows.is_empty());
    probe
}

#[test]
fn privileged_time_in_state_is_that_of_a_server_that_sleeps() {
    let mut probe = begun();
    let at = serve(Duration::from_millis(300));
    let port = at.port();
    // How long all of it took, by this test's own clock: a machine that is busy makes each step longer, never shorter.
    let mut asked = Duration::ZERO;
    for clients in [1, 20, 1, 3] {
        let begun = Instant::now();
        ask(at, clients, 1);
        asked += begun.elapsed();
        probe.drain();
    }
    let told = |p: &Probe| states(p, port).0.values().map(|(_, answered)| answered).sum::<u64>();
    probe.drain_until("all answers are told", |p| told(p) == 25);
    // The sums are read after the window's end, and may hold what came meanwhile: the windows of one stretch more hold that, too.
    let (_, until_answered) = states(&probe, port);
    probe.drain_until("a stretch more is told", |p| states(p, port).1 > until_answered);
    let (sums, windows) = states(&probe, port);
    let time_ms = |bin: u8| sums.get(&bin).map_or(0, |(ns, _)| ns / 1_000_000);
    assert!(time_ms(1) >= 598, "twice 300 ms: {sums:?}");
    // 20 in flight are in the bin of 20 and 21. Of several that end in the same instant the number beside may have it.
    let (of_3, of_20) = (time_ms(2) + time_ms(3), time_ms(16) + time_ms(17) + time_ms(18));
    assert!(of_3 >= 150 && of_20 >= 150, "most of 300 ms each: {sums:?}");
    let total_ns: u64 = sums.values().map(|(ns, _)| ns).sum();
    assert!(total_ns >= 1_199_000_000, "four times 300 ms: {total_ns}, {sums:?}");
    assert!(u128::from(total_ns) <= asked.as_nanos(), "{total_ns} in {asked:?}: {sums:?}");
    assert!(total_ns <= u64::from(windows) * 50_000_000, "{total_ns} in {windows} windows");
    // The request that is answered is among those in flight: the last of 20 is told at 1, and none at 0.
    assert!(!sums.contains_key(&0) && sums[&1].1 >= 2, "{sums:?}");
}

#[test]
fn privileged_a_request_that_lasts_is_told_second_by_second() {
    let mut probe = begun();
    let at = serve(Duration::from_millis(2_400));
    let asking = std::thread::spawn(move || {
        let begun = Instant::now();
        let second = std::thread::spawn(move || {
            // Two that end in the same instant may be booked to the number beside theirs.
            std::thread::sleep(Duration::from_millis(100));
            ask(at, 1, 1);
        });
        ask(at, 1, 1);
        second.join().unwrap();
        begun.elapsed()
    });
    let port = at.port();
    probe.drain_until("it is told before it ends", |p| {
        states(p, port).0.get(&2).is_some_and(|(ns, answered)| *ns > 500_000_000 && *answered == 0)
    });
    assert!(!asking.is_finished(), "the requests are under way");
    let took = asking.join().unwrap();
    probe.drain_until("it is told to its end", |p| states(p, port).0.values().any(|sum| sum.1 > 0));
    let (sums, _) = states(&probe, port);
    assert!(sums[&2].0 >= 2_000_000_000, "{sums:?}");
    let total_ns: u64 = sums.values().map(|(ns, _)| ns).sum();
    assert!(
        total_ns >= 2_399_000_000 && u128::from(total_ns) <= took.as_nanos(),
        "{total_ns} in {took:?}: {sums:?}"
    );
}

#[test]
fn privileged_time_in_state_adds_up_to_the_integral_that_windows_tell() {
    let mut probe = begun();
    let at = serve(Duration::from_millis(2));
    let port = at.port();
    ask(at, 8, 500);
    let told = |p: &Probe| states(p, port).0.values().map(|(_, answered)| answered).sum::<u64>();
    probe.drain_until("all answers are told, both ways", |p| {
        told(p) == 4_000 && p.requests(port).answered == 4_000
    });
    let (sums, _) = states(&probe, port);
    let requests = probe.requests(port);
    // Below 16 each number has its bin: the sum of N T(N) is the integral of N, but for the microseconds between an answer and its hook.
    let summed_ns: u64 = sums.iter().map(|(bin, (ns, _))| u64::from(*bin) * ns).sum();
    let off = summed_ns as f64 / requests.in_flight_ns as f64 - 1.0;
    assert!(off.abs() < 0.02, "{summed_ns} against {}: {off}; {sums:?}", requests.in_flight_ns);
    assert!(sums.len() > 1 && sums.keys().all(|bin| (1..=8).contains(bin)), "{sums:?}");
}

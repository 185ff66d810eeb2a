//! Requests and calls on real sockets: what a server received and answered, by its own count, equals what the windows say.
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod kernel;
mod net_probe;

use net_probe::{Probe, namespace};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tailwater_agent::config::Late;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A thread per connection; each request takes `takes` and is answered in two writes.
fn serve(takes: Duration) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let served = Arc::new(AtomicU64::new(0));
    let count = served.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let count = count.clone();
            std::thread::spawn(move || {
                let mut request = [0; REQUEST.len()];
                while stream.read_exact(&mut request).is_ok() {
                    std::thread::sleep(takes);
                    count.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
                    let _ = stream.write_all(b"ok");
                }
            });
        }
    });
    (at, served)
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(REQUEST).unwrap();
    let mut answer = [0; 40];
    stream.read_exact(&mut answer).unwrap();
}

/// So many clients, until they are through; the probe is drained meanwhile.
fn clients(probe: &mut Probe, n: usize, each: impl Fn() + Send + Clone + 'static) {
    let threads: Vec<JoinHandle<()>> = (0..n)
        .map(|_| {
            let each = each.clone();
            std::thread::spawn(each)
        })
        .collect();
    probe.until_ended(|| threads.iter().all(JoinHandle::is_finished));
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn privileged_keep_alive_and_one_shot_requests_are_counted_exactly() {
    let mut probe = Probe::attach();
    let (at, served) = serve(Duration::ZERO);
    clients(&mut probe, 8, move || {
        let mut stream = TcpStream::connect(at).unwrap();
        for _ in 0..500 {
            ask(&mut stream);
        }
    });
    clients(&mut probe, 8, move || {
        for _ in 0..100 {
            ask(&mut TcpStream::connect(at).unwrap());
        }
    });
    let port = at.port();
    probe.drain_until("all connections closed", |p| {
        let requests = p.requests(port);
        let (calls, queue) = (p.calls(port), p.queue(port));
        requests.answered == 4_800 && requests.open_last == 0 && calls.open_last == 0 && queue.depth_last == 0
    });
    assert_eq!(served.load(Ordering::Relaxed), 4_800);
    let requests = probe.requests(port);
    assert_eq!((requests.received, requests.answered, requests.aborted), (4_800, 4_800, 0), "{requests:?}");
    assert_eq!((requests.in_flight_last, requests.multiplexed.connections), (0, 0));
    assert_eq!(requests.response_hist.iter().sum::<u32>(), 4_800);
    assert!((1..=8).contains(&requests.in_flight_max), "{requests:?}");
    assert_eq!(requests.worker_shared_max, 1);
    assert_eq!(requests.workers_seen, 808);
    let calls = probe.calls(port);
    assert_eq!((calls.started, calls.answered, calls.aborted), (4_800, 4_800, 0), "{calls:?}");
    assert_eq!((calls.connects, calls.established, calls.in_flight_last), (808, 808, 0));
    assert!(calls.open_max >= 8, "{calls:?}");
    let queue = probe.queue(port);
    assert_eq!((queue.arrivals, queue.accepts, queue.drops, queue.depth_last), (808, 808, 0, 0), "{queue:?}");
}

#[test]
fn privileged_workers_that_sleep_at_once_are_busy_at_once() {
    // How long it took has an upper end as well.
    kernel::experiment("workers that sleep", workers_that_sleep_at_once_are_busy_at_once);
}

fn workers_that_sleep_at_once_are_busy_at_once() {
    let mut probe = Probe::attach();
    let (at, _) = serve(Duration::from_millis(300));
    clients(&mut probe, 13, move || ask(&mut TcpStream::connect(at).unwrap()));
    let port = at.port();
    probe.drain_until("all closed", |p| p.requests(port).answered == 13 && p.requests(port).open_last == 0);
    let requests = probe.requests(port);
    assert_eq!(
        (requests.workers_busy_max, requests.in_flight_max, requests.workers_seen),
        (13, 13, 13),
        "{requests:?}"
    );
    let slept_ns = 13 * 300_000_000;
    assert!((slept_ns..slept_ns * 3 / 2).contains(&requests.workers_busy_ns), "{requests:?}");
    assert_eq!(requests.workers_busy_ns, requests.in_flight_ns);
    // Each request ended inside its windows: the time in flight and the response times are the same sum.
    assert!(requests.in_flight_ns.abs_diff(requests.response_ns) <= 13 * 1_000, "{requests:?}");
    assert!((300_000_000..450_000_000).contains(&requests.response_max_ns), "{requests:?}");
    let calls = probe.calls(port);
    assert_eq!((calls.in_flight_max, calls.open_max), (13, 13), "{calls:?}");
    assert!(calls.response_ns >= slept_ns - 13 * 20_000_000, "{calls:?}");
}

#[test]
fn privileged_an_answer_is_late_by_what_its_request_waited_before_it_was_read() {
    // How long it took has an upper end as well.
    kernel::experiment(
        "requests that wait unread",
        an_answer_is_late_by_what_its_request_waited_before_it_was_read,
    );
}

fn an_answer_is_late_by_what_its_request_waited_before_it_was_read() {
    let mut probe = Probe::attach_with_late(Late { late_ms: 450, very_late_ms: 750 });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    // One at a time, 300 ms each: of four at once the first is answered after 300 ms and the last after 1,200.
    let serving = std::thread::spawn(move || {
        for stream in listener.incoming().take(4) {
            let mut stream = stream.unwrap();
            stream.read_exact(&mut [0; REQUEST.len()]).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            stream.write_all(&[b'x'; 40]).unwrap();
        }
    });
    clients(&mut probe, 4, move || ask(&mut TcpStream::connect(at).unwrap()));
    serving.join().unwrap();
    let port = at.port();
    probe.drain_until("all answered", |p| p.requests(port).answered == 4);
    let requests = probe.requests(port);
    assert!(requests.response_max_ns < 450_000_000, "none took long once it was read: {requests:?}");
    assert_eq!((requests.late, requests.very_late), (3, 2), "{requests:?}");
}

#[test]
fn privileged_a_very_long_request_is_told_by_where_it_waited() {
    // What is quick has an upper end.
    kernel::experiment("very long requests", a_very_long_request_is_told_by_where_it_waited);
}

/// One thread: a connection is asked and answered; the next one's request takes it 1.4 s, in which a third one comes, and the first one is asked
/// once more.
fn a_very_long_request_is_told_by_where_it_waited() {
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let serve = |stream: &mut TcpStream, ms| {
            stream.read_exact(&mut [0; REQUEST.len()]).unwrap();
            std::thread::sleep(Duration::from_millis(ms));
            stream.write_all(&[b'x'; 40]).unwrap();
        };
        let mut first = listener.accept().unwrap().0;
        serve(&mut first, 0);
        serve(&mut listener.accept().unwrap().0, 1_400);
        serve(&mut listener.accept().unwrap().0, 0);
        serve(&mut first, 0);
    });
    let mut first = TcpStream::connect(at).unwrap();
    ask(&mut first);
    let second = std::thread::spawn(move || ask(&mut TcpStream::connect(at).unwrap()));
    let port = at.port();
    probe.drain_until("the second is read", |p| p.requests(port).received == 2);
    let third = std::thread::spawn(move || ask(&mut TcpStream::connect(at).unwrap()));
    ask(&mut first);
    [second, third, serving].into_iter().for_each(|thread| thread.join().unwrap());
    probe.drain_until("all answered", |p| p.requests(port).answered == 4);
    assert_eq!(probe.very_long(port), [0, 1, 1, 1], "{:?}", probe.requests(port));
}

/// When each piece of an answer is written, ms after its request was read, and how many bytes it has.
type Plan = &'static [(u64, usize)];
const PLANS: [Plan; 7] = [
    &[(70, 300)],
    &[(600, 300)],
    &[(0, 300), (600, 300), (700, 300), (3_200, 300)],
    &[(3_200, 300)],
    // Asked twice, the second time when the first bound of the first answer is over: that is another turn, and in time.
    &[(0, 300), (400, 300)],
    // As the alert at the end of an idle TLS connection.
    &[(0, 300), (3_200, 31)],
    // A server's farewell before it.
    &[(0, 300), (3_200, 100), (3_201, 31)],
];
const TWICE: u8 = 4;

#[test]
fn privileged_an_answer_is_late_by_its_last_byte_and_passes_each_bound_once() {
    // How long it took has an upper end as well.
    kernel::experiment("late answers", an_answer_is_late_by_its_last_byte_and_passes_each_bound_once);
}

fn an_answer_is_late_by_its_last_byte_and_passes_each_bound_once() {
    let mut probe = Probe::attach_with_late(Late::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let mut request = [0; REQUEST.len() + 1];
                while stream.read_exact(&mut request).is_ok() {
                    let mut slept_ms = 0;
                    for (ms, bytes) in PLANS[usize::from(request[REQUEST.len()])] {
                        std::thread::sleep(Duration::from_millis(ms - slept_ms));
                        slept_ms = *ms;
                        stream.write_all(&vec![b'x'; *bytes]).unwrap();
                    }
                }
            });
        }
    });
    let clients = (0_u8..).zip(PLANS).map(|(n, plan)| {
        std::thread::spawn(move || {
            let mut stream = TcpStream::connect(at).unwrap();
            let bytes: usize = plan.iter().map(|(_, bytes)| bytes).sum();
            for _ in 0..if n == TWICE { 2 } else { 1 } {
                stream.write_all(&[REQUEST, &[n]].concat()).unwrap();
                stream.read_exact(&mut vec![0; bytes]).unwrap();
                std::thread::sleep(Duration::from_millis(300));
            }
        })
    });
    let clients: Vec<JoinHandle<()>> = clients.collect();
    let port = at.port();
    probe
        .drain_until("all are closed", |p| p.requests(port).answered == 8 && p.requests(port).open_last == 0);
    clients.into_iter().for_each(|client| client.join().unwrap());
    let requests = probe.requests(port);
    assert_eq!((requests.late, requests.very_late), (3, 2), "{requests:?}");
    assert_eq!(probe.very_long(port), [0, 0, 0, 2], "{requests:?}");
    // By their first byte; two of them took longer than there were buckets once.
    let of = |bucket: usize| requests.response_hist[bucket];
    assert_eq!(
        (of(16), of(19), of(21)),
        (1, 1, 1),
        "65 ms to 131, 524 to 1,049, 2,097 to 4,194: {requests:?}"
    );
}

#[test]
fn privileged_a_request_that_one_thread_reads_and_another_answers() {
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("[::]:0").unwrap();
    let at = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
    let (hand_over, work) = std::sync::mpsc::sync_channel::<TcpStream>(64);
    let answering = std::thread::spawn(move || {
        let mut waiting = Vec::new();
        for stream in work.iter().take(5) {
            waiting.push(stream);
        }
        for mut stream in waiting {
            stream.write_all(&[b'x'; 40]).unwrap();
        }
    });
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.read_exact(&mut [0; REQUEST.len()]).unwrap();
            hand_over.send(stream).unwrap();
        }
    });
    clients(&mut probe, 5, move || ask(&mut TcpStream::connect(at).unwrap()));
    answering.join().unwrap();
    let port = at.port();
    probe.drain_until("all closed", |p| p.requests(port).answered == 5 && p.requests(port).open_last == 0);
    let requests = probe.requests(port);
    assert_eq!((requests.received, requests.answered, requests.aborted), (5, 5, 0), "{requests:?}");
    assert_eq!(
        (requests.worker_shared_max, requests.workers_seen, requests.workers_busy_max),
        (5, 1, 1),
        "{requests:?}"
    );
    assert_eq!(requests.in_flight_last, 0);
    let last =
        probe.windows.iter().rev().flat_map(|w| w.requests.as_deref().unwrap()).find(|(k, _)| k.port == port);
    assert_eq!(last.map(|(_, s)| s.in_flight_last), Some(0));
}

#[test]
fn privileged_bytes_that_nobody_reads_are_unread_requests() {
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    client.write_all(REQUEST).unwrap();
    // Another sends before it is accepted.
    let mut early = TcpStream::connect(("127.0.0.1", port)).unwrap();
    early.write_all(REQUEST).unwrap();
    let (mut accepted_early, _) = listener.accept().unwrap();
    probe.drain_until("both are unread", |p| p.requests(port).unread_ns > 200_000_000);
    let unread = probe.requests(port);
    assert_eq!((unread.unread_max, unread.received, unread.open_last), (2, 0, 2), "{unread:?}");
    for accepted in [&mut accepted, &mut accepted_early] {
        accepted.read_exact(&mut [0; REQUEST.len()]).unwrap();
    }
    probe.drain_past_now();
    let read = probe.requests(port);
    assert_eq!((read.received, read.in_flight_last), (2, 2), "{read:?}");
    probe.windows.clear();
    std::thread::sleep(Duration::from_millis(60));
    probe.drain_past_now();
    assert_eq!((probe.requests(port).unread_max, probe.requests(port).in_flight_max), (0, 2));
    assert!(probe.queue(port).depth_last == 0);
    // The server hangs up on both without an answer; what the clients sent last was never read.
    client.write_all(b"more").unwrap();
    drop((accepted, accepted_early));
    probe.drain_until("aborted", |p| p.requests(port).aborted == 2);
    let end = probe.requests(port);
    assert_eq!((end.in_flight_last, end.open_last, end.answered), (0, 0, 0), "{end:?}");
}

#[test]
fn privileged_a_client_that_dies_in_its_request() {
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo request >&3; read -r answer <&3");
    let mut client = std::process::Command::new("bash").args(["-c", &script]).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = [0; 8];
    stream.read_exact(&mut request).unwrap();
    probe.drain_until("in flight on both sides", |p| {
        p.requests(port).in_flight_last == 1 && p.calls(port).in_flight_last == 1
    });
    client.kill().unwrap();
    client.wait().unwrap();
    // The end of its stream is read; then this side gives up.
    assert_eq!(stream.read(&mut request).unwrap(), 0);
    drop(stream);
    probe.drain_until("both sides aborted and closed", |p| {
        let (requests, calls) = (p.requests(port), p.calls(port));
        (requests.aborted, calls.aborted) == (1, 1) && (requests.open_last, calls.open_last) == (0, 0)
    });
    let (requests, calls) = (probe.requests(port), probe.calls(port));
    assert_eq!(
        (requests.received, requests.answered, requests.in_flight_last, requests.open_last),
        (1, 0, 0, 0)
    );
    assert_eq!((calls.started, calls.answered, calls.in_flight_last, calls.open_last), (1, 0, 0, 0));
    assert_eq!(requests.workers_busy_max, 1);
}

#[test]
fn privileged_a_half_closed_call_is_still_answered() {
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"all").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = Vec::new();
    stream.read_to_end(&mut request).unwrap();
    stream.write_all(b"one").unwrap();
    client.read_exact(&mut [0; 3]).unwrap();
    stream.write_all(b"two").unwrap();
    client.read_exact(&mut [0; 3]).unwrap();
    drop((stream, client));
    probe.drain_until("closed", |p| {
        (p.requests(port).open_max, p.requests(port).open_last, p.calls(port).open_last) == (1, 0, 0)
    });
    let (requests, calls) = (probe.requests(port), probe.calls(port));
    assert_eq!((requests.received, requests.answered, requests.aborted), (1, 1, 0), "{requests:?}");
    assert_eq!((calls.started, calls.answered, calls.aborted, calls.open_last), (1, 1, 0, 0), "{calls:?}");
}

#[test]
fn privileged_interleaved_directions_are_multiplexed() {
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_nodelay(true).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut writer = stream.try_clone().unwrap();
    let mut reader = stream;
    let writing = std::thread::spawn(move || {
        // The client's window stays full: what is written here is never acknowledged in time.
        while writer.write_all(&[0; 200_000]).is_ok() {}
    });
    let reading = std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while reader.read(&mut bytes).is_ok_and(|n| n > 0) {}
    });
    let mut sink = vec![0; 400_000];
    probe.drain_until("known as multiplexed", |p| {
        client.write_all(b"request").unwrap();
        client.read_exact(&mut sink).unwrap();
        p.requests(port).multiplexed.connections == 1
    });
    drop(client);
    writing.join().unwrap();
    reading.join().unwrap();
    probe.drain_until("closed", |p| p.requests(port).open_last == 0);
    let requests = probe.requests(port);
    assert_eq!(requests.in_flight_last, 0, "{requests:?}");
    assert_eq!(requests.received, requests.answered + requests.aborted);
}

#[test]
fn privileged_servers_and_connections_older_than_the_agent() {
    let (at, _) = serve(Duration::from_millis(1));
    let port = at.port();
    let mut old = TcpStream::connect(at).unwrap();
    ask(&mut old);
    let mut silent = TcpStream::connect(at).unwrap();
    let mut probe = Probe::attach();
    for _ in 0..20 {
        ask(&mut old);
        ask(&mut TcpStream::connect(at).unwrap());
    }
    ask(&mut silent);
    probe.drain_until("the others are closed", |p| {
        let (requests, calls) = (p.requests(port), p.calls(port));
        requests.answered == 41 && (requests.open_last, calls.open_last) == (2, 2)
    });
    let (requests, calls) = (probe.requests(port), probe.calls(port));
    assert_eq!((requests.received, requests.answered), (41, 41), "{requests:?}");
    assert_eq!((calls.started, calls.answered, calls.connects), (41, 41, 20), "{calls:?}");
    assert_eq!((requests.open_last, calls.open_last), (2, 2));
    drop((old, silent));
    probe.drain_until("closed", |p| p.requests(port).open_last == 0 && p.calls(port).open_last == 0);
    assert_eq!(probe.requests(port).aborted, 0);
    let windows = probe.windows.iter().rev();
    let key =
        windows.flat_map(|w| w.requests.as_deref().unwrap()).find(|(k, _)| k.port == port).map(|(k, _)| *k);
    // Nobody saw it call listen(2): its owner is known from a thread that read.
    assert_eq!(key.map(|k| k.pid), Some(std::process::id()));
}

/// Listens at a port that the kernel does not give to connecting sockets.
fn listen_below_the_ephemeral_ports() -> TcpListener {
    (20_000..30_000).find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).unwrap()
}

#[test]
fn privileged_an_old_connection_of_an_unknown_listener_is_no_call_and_joins_its_listener_when_there_is_one() {
    let listeners = [TcpListener::bind("127.0.0.1:0").unwrap(), listen_below_the_ephemeral_ports()];
    // Closed before the agent comes, so that no walk finds them: as in a namespace that the agent may not walk.
    let mut held: Vec<(SocketAddr, TcpStream, TcpStream)> = listeners
        .into_iter()
        .map(|listener| {
            let at = listener.local_addr().unwrap();
            (at, TcpStream::connect(at).unwrap(), listener.accept().unwrap().0)
        })
        .collect();
    let mut probe = Probe::attach();
    let turns = |held: &mut [(SocketAddr, TcpStream, TcpStream)], n| {
        for (_, client, server) in held {
            for _ in 0..n {
                client.write_all(b"?").unwrap();
                server.read_exact(&mut [0]).unwrap();
                server.write_all(b"!").unwrap();
                client.read_exact(&mut [0]).unwrap();
            }
        }
    };
    let mut asked = 7;
    turns(&mut held, asked);
    probe.drain_past_now();
    assert_eq!(probe.net.kernel_losses().connections_unknown, 2, "each once");
    let _again: Vec<TcpListener> = held.iter().map(|(at, ..)| TcpListener::bind(at).unwrap()).collect();
    turns(&mut held, 5);
    asked += 5;
    probe.drain_past_now();
    // The clients' ends are known for what they are, and the servers' ends call nobody.
    for (at, client, _) in &held {
        let (server, client) = (at.port(), client.local_addr().unwrap().port());
        let (requests, calls) = (probe.requests(server), probe.calls(server));
        assert_eq!((requests.received, requests.answered, requests.open_last), (5, 5, 1), "{requests:?}");
        assert_eq!((calls.started, calls.answered, calls.open_last), (asked, asked, 1), "{calls:?}");
        let calls = probe.calls(client);
        assert_eq!((calls.started, calls.open_max), (0, 0), "a server's end calls: {calls:?}");
    }
    assert_eq!(probe.net.kernel_losses().connections_unknown, 2);
}

#[test]
fn privileged_calls_without_a_row_of_their_own_are_in_the_one_of_the_rest() {
    const SERVERS: u8 = 120;
    namespace::apart(|| {
        let mut probe = Probe::attach_with_edges(64);
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().take(2 * usize::from(SERVERS)) {
                let mut stream = stream.unwrap();
                stream.read_exact(&mut [0; REQUEST.len()]).unwrap();
                stream.write_all(&[b'x'; 40]).unwrap();
            }
        });
        // All of 127/8 is this machine. Whoever has a row keeps it.
        for n in (0..SERVERS).chain(0..SERVERS) {
            ask(&mut TcpStream::connect(SocketAddr::from(([127, 8, 1, n], port))).unwrap());
        }
        server.join().unwrap();
        probe.drain_past_now();
        let netns = namespace::inode();
        let mut own: BTreeMap<Ipv6Addr, [u64; 3]> = BTreeMap::new();
        // Of the machine's others, too.
        let mut rest = [0; 3];
        for (key, call) in probe.windows.iter().flat_map(|w| w.calls.as_deref().unwrap()) {
            let sums = match (key.netns, key.remote_port) {
                (0, 0) => &mut rest,
                at if at == (netns, port) => own.entry(key.remote_address).or_default(),
                _ => continue,
            };
            for (sum, n) in sums.iter_mut().zip([call.connects, call.started, call.answered]) {
                *sum += n;
            }
        }
        let folded = probe.net.kernel_losses().edges_folded;
        assert!((1..=64).contains(&own.len()), "{own:?}");
        assert!(own.values().all(|sums| *sums == [2; 3]), "{own:?}");
        let calls = 2 * (u64::from(SERVERS) - own.len() as u64);
        assert!(folded >= calls && rest.iter().all(|sum| *sum >= calls), "{folded} {rest:?}, of {calls}");
    });
}

#[test]
fn privileged_threads_that_the_table_has_no_room_for_cost_no_request_and_the_dead_make_room() {
    let mut probe = Probe::attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    // Each request has a thread of its own, which ends with it.
    let mut turn = || {
        client.write_all(REQUEST).unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                server.read_exact(&mut [0; REQUEST.len()]).unwrap();
                server.write_all(&[b'x'; 40]).unwrap();
            });
        });
        client.read_exact(&mut [0; 40]).unwrap();
    };
    let mut turns = 0;
    while probe.net.kernel_losses().workers_untracked == 0 {
        assert!(turns < 100_000, "the table has 16,384 places");
        turn();
        turns += 1;
        if turns % 100 == 0 {
            probe.drain();
        }
    }
    probe.drain_past_now();
    let requests = probe.requests(port);
    assert_eq!((requests.received, requests.answered, requests.in_flight_last), (turns, turns, 0));
    assert!(requests.workers_seen > 8_000, "{requests:?}");
    probe.drain_within(40, "the dead are taken off", |p| {
        p.windows.drain(..p.windows.len().saturating_sub(2));
        let requests = p.requests(port);
        // Threads' numbers come again, if rarely: some of them are others' by now.
        requests.open_last == 1 && requests.workers_seen < 100
    });
    let untracked = probe.net.kernel_losses().workers_untracked;
    turn();
    probe.drain_past_now();
    assert_eq!(probe.net.kernel_losses().workers_untracked, untracked, "there is room again");
    assert!(probe.requests(port).workers_seen > 0);
}

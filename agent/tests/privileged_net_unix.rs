//! Servers behind Unix sockets, for real: queues that overflow, refusals as the clients count them, requests and calls at both ends, and
//! what ends without anybody saying so. Each test has a network namespace of its own: whatever else listens on this machine is in another.
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]
#![allow(clippy::disallowed_methods, reason = "tests wait for real time to pass")]

mod net_probe;

use net_probe::{At, Probe, namespace};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tailwater_agent::signal::SignalSource;
use tailwater_proto::is_unix;

const BACKLOG: i32 = 4;

/// A namespace, in which nothing but this test has Unix sockets.
fn alone() -> At {
    namespace::enter_new();
    At { netns: Some(namespace::inode()), port: 0 }
}

fn socket_path(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("shop.sock")
}

fn listen(path: &Path, backlog: i32) -> UnixListener {
    let listener = UnixListener::bind(path).unwrap();
    // SAFETY: a plain call on a descriptor that lives here.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), backlog) }, 0);
    listener
}

/// Connects without waiting, as event-driven servers do; the error is the kernel's.
fn connect(path: &Path) -> std::io::Result<OwnedFd> {
    // SAFETY: makes a descriptor; the address is a plain structure, filled within its bounds.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, kind, 0));
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        let bytes = path.as_os_str().as_bytes();
        assert!(bytes.len() < address.sun_path.len());
        for (to, byte) in address.sun_path.iter_mut().zip(bytes) {
            *to = byte.cast_signed();
        }
        let length = size_of::<libc::sockaddr_un>() as u32;
        match libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) {
            0 => Ok(fd),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

fn paths(probe: &Probe) -> Vec<String> {
    let mut all: Vec<String> =
        probe.windows.iter().flat_map(|w| &w.unix_paths).map(|(_, path)| path.to_string()).collect();
    all.sort();
    all.dedup();
    all
}

fn overflow(mut probe: Probe) {
    let at = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = socket_path(&folder);
    let listener = listen(&path, BACKLOG);
    let (mut connected, mut refused) = (Vec::new(), 0);
    for _ in 0..40 {
        match connect(&path) {
            Ok(fd) => connected.push(fd),
            Err(error) if error.kind() == ErrorKind::WouldBlock => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((connected.len(), refused), (BACKLOG as usize + 1, 35), "the kernel holds one more");
    probe.drain_until("all are told", |p| {
        let queue = p.queue(at);
        (queue.drops, queue.depth_last) == (35, 5)
    });
    let queue = probe.queue(at);
    let story = format!("{queue:?}, losses {:?}", probe.net.kernel_losses());
    assert_eq!((queue.limit, queue.depth_max, queue.depth_last), (4, 5, 5), "{story}");
    assert_eq!((queue.arrivals, queue.accepts, queue.drops), (5, 0, 35), "{story}");
    let mut events = Vec::new();
    probe.net.take_drop_events(&mut events);
    events.retain(|e| Some(e.listener.netns) == at.netns);
    assert_eq!(events.iter().map(|e| e.count).sum::<u64>(), 35, "{events:?}");
    assert_eq!(events.iter().map(|e| e.packets).sum::<u64>(), 35);
    assert!(events.iter().all(|e| is_unix(e.listener.address) && e.limit == 4), "{events:?}");
    assert!(paths(&probe).contains(&path.display().to_string()), "{:?}", paths(&probe));
    for _ in 0..connected.len() {
        drop(listener.accept().unwrap());
    }
    probe.drain_until("the queue is empty", |p| p.queue(at).depth_last == 0);
    let queue = probe.queue(at);
    assert_eq!((queue.arrivals, queue.accepts, queue.drops), (5, 5, 35), "{queue:?}");
    // Where there is room again nothing is refused; one that fails for another reason is not a refusal.
    drop(connect(&path).unwrap());
    assert_eq!(connect(&folder.path().join("nobody")).unwrap_err().kind(), ErrorKind::NotFound);
    drop(listener);
    assert_eq!(connect(&path).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    probe.drain_until("the listener is gone", |p| p.queue(at).depth_last == 0 && p.queue(at).arrivals == 6);
    probe.drain_past_now();
    assert_eq!(probe.queue(at).drops, 35);
}

#[test]
fn privileged_a_full_unix_listener_is_told_with_every_connection_that_it_refused() {
    overflow(Probe::attach());
}

#[test]
fn privileged_and_so_it_is_without_a_timer_in_the_kernel() {
    if let Some(why) = Probe::walks_refused() {
        return println!("this machine lets nobody walk a map, which this test is about: {why}");
    }
    overflow(Probe::attach_without_timer());
}

/// Answers one request of each connection after some work, as a worker of php-fpm does.
fn serve(listener: &UnixListener, requests: usize, work: Duration) {
    for _ in 0..requests {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 64];
        // In two parts, as FastCGI's header and body are.
        assert_eq!(stream.read(&mut request[..4]).unwrap(), 4);
        assert!(stream.read(&mut request).unwrap() > 0);
        std::thread::sleep(work);
        stream.write_all(b"answer").unwrap();
        stream.write_all(b", and the end of it").unwrap();
    }
}

fn ask(path: &Path) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"a request").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answer, and the end of it");
}

#[test]
fn privileged_requests_over_unix_sockets_are_told_at_both_ends() {
    const EACH: usize = 20;
    let mut probe = Probe::attach();
    let at = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = socket_path(&folder);
    let listener = listen(&path, 64);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| serve(&listener, 2 * EACH, Duration::from_millis(10)));
        }
        for _ in 0..4 {
            s.spawn(|| (0..EACH).for_each(|_| ask(&path)));
        }
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(100));
            probe.drain();
        }
    });
    probe.drain_past_now();
    let (queue, requests, calls) = (probe.queue(at), probe.requests(at), probe.calls(at));
    let all = 4 * EACH as u64;
    assert_eq!((queue.arrivals, queue.accepts, queue.drops), (all, all, 0), "{queue:?}");
    assert_eq!((requests.received, requests.answered, requests.aborted), (all, all, 0), "{requests:?}");
    assert_eq!((requests.in_flight_last, requests.in_flight_max), (0, 2), "two workers: {requests:?}");
    assert_eq!((requests.workers_busy_max, requests.workers_seen), (2, 2), "{requests:?}");
    assert_eq!(requests.worker_shared_max, 1, "{requests:?}");
    let mean_ns = requests.response_ns / all;
    assert!((10_000_000..30_000_000).contains(&mean_ns), "{mean_ns}");
    // Four callers and two workers: each second request waits in the queue for about as long as another takes.
    assert!(queue.wait_max_ns > 5_000_000, "{queue:?}");
    assert_eq!(
        (calls.connects, calls.started, calls.answered, calls.aborted),
        (all, all, all, 0),
        "{calls:?}"
    );
    assert!(calls.in_flight_max == 4 && calls.in_flight_last == 0, "{calls:?}");
    assert!(calls.response_ns > requests.response_ns * 3 / 2, "with the queue: {calls:?}, {requests:?}");
}

#[test]
fn privileged_what_ends_without_an_answer_does_not_stay_in_flight() {
    if let Some(why) = Probe::walks_refused() {
        return println!("this machine lets nobody walk a map, which this test is about: {why}");
    }
    let mut probe = Probe::attach();
    let at = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = socket_path(&folder);
    let listener = listen(&path, 64);
    let begin = || {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"a request").unwrap();
        let (mut server, _) = listener.accept().unwrap();
        assert!(server.read(&mut [0; 64]).unwrap() > 0);
        (client, server)
    };
    // The server closes: only the walk notices.
    let (_client, server) = begin();
    probe.drain_past_now();
    assert_eq!(probe.requests(at).in_flight_last, 1);
    drop(server);
    let closed = Instant::now();
    probe.drain_until("the request is over", |p| p.requests(at).in_flight_last == 0);
    assert!(closed.elapsed() < Duration::from_secs(3), "{:?}", closed.elapsed());
    assert_eq!((probe.requests(at).aborted, probe.calls(at).aborted), (1, 1));
    // The caller goes: the server still works, until it writes in vain.
    let (client, mut server) = begin();
    drop(client);
    probe.drain_until("the call is over", |p| p.calls(at).aborted == 2);
    assert_eq!((probe.requests(at).in_flight_last, probe.requests(at).aborted), (1, 1));
    assert_eq!(server.write(b"answer").unwrap_err().kind(), ErrorKind::BrokenPipe);
    probe.drain_past_now();
    assert_eq!((probe.requests(at).in_flight_last, probe.requests(at).aborted), (0, 2));
    // It reads the end of a caller that went, and only then.
    let (client, mut server) = begin();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0; 64]).unwrap(), 0);
    probe.drain_past_now();
    assert_eq!(probe.requests(at).in_flight_last, 1, "half closed, and waiting");
    drop(client);
    assert_eq!(server.read(&mut [0; 64]).unwrap(), 0);
    probe.drain_past_now();
    let (requests, calls) = (probe.requests(at), probe.calls(at));
    assert_eq!((requests.in_flight_last, requests.received, requests.aborted), (0, 3, 3), "{requests:?}");
    assert_eq!((calls.in_flight_last, calls.started, calls.aborted), (0, 3, 3), "{calls:?}");
}

#[test]
fn privileged_a_connection_that_is_kept_has_one_request_after_the_other() {
    let mut probe = Probe::attach();
    let at = alone();
    let name = format!("tailwater-shop-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let mut client = UnixStream::connect_addr(&address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    for n in 1..=50_u64 {
        client.write_all(b"request").unwrap();
        assert_eq!(server.read(&mut [0; 64]).unwrap(), 7);
        server.write_all(b"answer").unwrap();
        assert_eq!(client.read(&mut [0; 64]).unwrap(), 6);
        if n == 25 {
            probe.drain_past_now();
            assert_eq!((probe.requests(at).answered, probe.calls(at).answered), (25, 25));
        }
    }
    probe.drain_past_now();
    let (requests, calls) = (probe.requests(at), probe.calls(at));
    assert_eq!((requests.received, requests.answered, requests.in_flight_last), (50, 50, 0), "{requests:?}");
    assert_eq!((calls.connects, calls.started, calls.answered), (1, 50, 50), "{calls:?}");
    assert!(paths(&probe).contains(&format!("@{name}")), "{:?}", paths(&probe));
}

#[test]
fn privileged_the_machines_own_sockets_and_pairs_and_datagrams_are_left_alone() {
    let mut probe = Probe::attach();
    let at = alone();
    let own = format!("/run/tailwater-test-{}.sock", std::process::id());
    let listener = UnixListener::bind(&own).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| serve(&listener, 3, Duration::ZERO));
        (0..3).for_each(|_| ask(Path::new(&own)));
    });
    std::fs::remove_file(&own).unwrap();
    let (mut a, mut b) = UnixStream::pair().unwrap();
    a.write_all(b"x").unwrap();
    b.read_exact(&mut [0]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let datagrams = UnixDatagram::bind(folder.path().join("log")).unwrap();
    UnixDatagram::unbound().unwrap().send_to(b"x", folder.path().join("log")).unwrap();
    datagrams.recv(&mut [0; 8]).unwrap();
    probe.drain_past_now();
    let told = |p: &Probe| p.windows.iter().flat_map(|w| w.accept_queues.clone().unwrap()).count();
    let here = probe.windows.iter().flat_map(|w| w.accept_queues.clone().unwrap());
    assert_eq!(here.filter(|(key, _)| Some(key.netns) == at.netns).count(), 0, "of {}", told(&probe));
    assert_eq!(probe.calls(at).started, 0);
    assert!(!paths(&probe).contains(&own), "{:?}", paths(&probe));
}

//! Accept queues that overflow for real: the windows say what the listening socket's own drop counter says, as `ss` reads it.
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod kernel;
mod net_probe;

use net_probe::{Probe, StopAtEnd, namespace};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tailwater_agent::clock::Clock;
use tailwater_agent::config::Late;
use tailwater_agent::signal::{SignalKind, SignalSource};

const BACKLOG: i32 = 4;

fn socket(nonblocking: bool) -> OwnedFd {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: makes a descriptor.
    let fd = unsafe { libc::socket(libc::AF_INET, kind, 0) };
    assert!(fd >= 0);
    // SAFETY: just made.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn c_address(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    }
}

fn listen(port: u16, reuseport: bool) -> (OwnedFd, u16) {
    let fd = socket(false);
    let on: libc::c_int = 1;
    let mut address = c_address(port);
    let mut length = size_of::<libc::sockaddr_in>() as u32;
    // SAFETY: plain calls on a descriptor and a structure that live here.
    unsafe {
        if reuseport {
            let value = (&raw const on).cast();
            assert_eq!(libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, value, 4), 0);
        }
        assert_eq!(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length), 0);
        assert_eq!(libc::listen(fd.as_raw_fd(), BACKLOG), 0);
        assert_eq!(libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut length), 0);
    }
    (fd, u16::from_be(address.sin_port))
}

/// Begins a connection and does not wait for it.
fn begin_connect(port: u16) -> OwnedFd {
    let fd = socket(true);
    let address = c_address(port);
    // SAFETY: as above.
    unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) };
    fd
}

/// Drops of the listening sockets on `port` in the namespace of this thread, by the kernel's own diagnosis.
fn sk_drops(port: u16) -> u64 {
    let output = Command::new("ss")
        .args(["-H", "-l", "-t", "-n", "-m", "sport", "=", &format!(":{port}")])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let drops: Vec<u64> = text
        .split_once("skmem:")
        .into_iter()
        .flat_map(|_| text.split("skmem:(").skip(1))
        .map(|rest| {
            let inside = rest.split(')').next().unwrap();
            inside.split(',').find_map(|f| f.strip_prefix('d')?.parse().ok()).unwrap()
        })
        .collect();
    assert!(!drops.is_empty(), "ss shows no listener: {text}");
    drops.iter().sum()
}

/// Drops that the windows hold and the counter itself, when neither moves any more.
fn settled(probe: &mut Probe, at: impl Into<net_probe::At> + Copy, port: u16) -> (u64, u64) {
    let mut last = (0, 0);
    probe.drain_until("windows and counter agree", |p| {
        let before = sk_drops(port);
        // What the counter has is believed at the second look, up to 10 ms later: that may be in the next window.
        p.drain_past_now();
        p.drain_past_now();
        last = (p.queue(at).drops, before);
        sk_drops(port) == before
    });
    last
}

fn overflow_and_compare(probe: &mut Probe, netns: u32, port: u16, sockets: u32) {
    let at = (netns, port);
    let mut clients = Vec::new();
    let mut seen = Vec::new();
    let mut first_drop_ns = None;
    for _ in 0..40 * sockets {
        clients.push(begin_connect(port));
        if first_drop_ns.is_none() && sk_drops(port) > 0 {
            first_drop_ns = Some(probe.clock.unix_ns());
            for _ in 0..50 {
                seen.extend(probe.drops(port));
                if !seen.is_empty() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(!seen.is_empty(), "no drop event within 50 ms of the first drop");
        }
    }
    // Retries of the SYNs go on dropping: wait for some.
    probe.drain_until("a SYN was retried", |p| p.retransmits(at).syn > 0);
    let (windows, counter) = settled(probe, at, port);
    assert!(counter >= 20, "{counter}");
    assert_eq!(windows, counter, "drops in the windows and in ss");
    let queue = probe.queue(at);
    assert_eq!(queue.limit, BACKLOG as u32 * sockets, "{queue:?}");
    if sockets == 1 {
        assert_eq!(queue.depth_max, BACKLOG as u32 + 1, "the kernel holds one more: {queue:?}");
    } else {
        assert!(queue.depth_max <= (BACKLOG as u32 + 1) * sockets, "{queue:?}");
    }
    assert_eq!(queue.accepts, 0, "{queue:?}");
    assert_eq!(queue.arrivals, u64::from(queue.depth_last), "{queue:?}");
    seen.extend(probe.drops(port));
    assert_eq!(seen.iter().map(|e| e.count).sum::<u64>(), counter, "drop events");
    assert_eq!(seen.iter().map(|e| e.packets).sum::<u64>(), counter, "a dropped SYN is one packet");
    let first = seen.first().unwrap();
    assert_eq!(first.listener.netns, netns);
    assert_eq!(first.listener.pid, std::process::id());
    assert_eq!(SocketAddr::from((first.listener.address, port)).ip().to_canonical(), Ipv4Addr::LOCALHOST);
    assert_eq!(first.limit, BACKLOG as u32);
    let late_ns = first.unix_ns.saturating_sub(first_drop_ns.unwrap());
    assert!(late_ns < 50_000_000, "{late_ns}");
    // The first SYN of a connection that retries now was sent after the test began, a second before its retry.
    let first_try = probe.retransmits(at).first_try_unix_ns;
    assert!(first_try > 0 && first_try < probe.clock.unix_ns() - 900_000_000, "{first_try}");
    drop(clients);
}

#[test]
fn privileged_overflow_is_counted_as_the_socket_counts_it() {
    // Drops are told within 50 ms of a machine that is there.
    kernel::experiment("an overflow", overflow_is_counted_as_the_socket_counts_it);
}

fn overflow_is_counted_as_the_socket_counts_it() {
    let mut probe = Probe::attach();
    let (listener, port) = listen(0, false);
    overflow_and_compare(&mut probe, namespace::inode(), port, 1);
    // What the last look missed is flushed when the listener closes.
    let before = probe.queue(port).drops;
    for _ in 0..10 {
        drop(begin_connect(port));
    }
    let counter = sk_drops(port);
    drop(listener);
    probe.drain_past_now();
    assert_eq!(probe.queue(port).drops, counter);
    assert!(counter > before);
    assert_eq!(probe.queue(port).depth_last, 0);
}

#[test]
fn privileged_overflow_is_counted_without_a_timer_in_the_kernel() {
    // Drops are told within 50 ms of a machine that is there.
    kernel::experiment("an overflow", overflow_is_counted_without_a_timer_in_the_kernel);
}

fn overflow_is_counted_without_a_timer_in_the_kernel() {
    if let Some(why) = Probe::walks_refused() {
        return println!("this machine lets nobody walk a map, which this test is about: {why}");
    }
    let mut probe = Probe::attach_without_timer();
    let (listener, port) = listen(0, false);
    overflow_and_compare(&mut probe, namespace::inode(), port, 1);
    let counter = sk_drops(port);
    drop(listener);
    probe.drain_past_now();
    assert_eq!((probe.queue(port).drops, probe.queue(port).depth_last), (counter, 0));
    let accept = probe.net.coverage().into_iter().find(|c| c.signal == SignalKind::AcceptQueue).unwrap();
    assert!(
        accept.covered && accept.hook.ends_with("iter/bpf_map_elem on sk_drops every 5 ms"),
        "{accept:?}"
    );
}

#[test]
fn privileged_overflow_in_another_namespace() {
    // Drops are told within 50 ms of a machine that is there.
    kernel::experiment("an overflow", overflow_in_another_namespace);
}

fn overflow_in_another_namespace() {
    let mut probe = Probe::attach();
    std::thread::scope(|s| {
        s.spawn(|| {
            namespace::enter_new();
            let (_listener, port) = listen(0, false);
            overflow_and_compare(&mut probe, namespace::inode(), port, 1);
        });
    });
}

#[test]
fn privileged_listeners_that_share_a_port_are_one() {
    // Drops are told within 50 ms of a machine that is there.
    kernel::experiment("an overflow", listeners_that_share_a_port_are_one);
}

fn listeners_that_share_a_port_are_one() {
    let mut probe = Probe::attach();
    let (_first, port) = listen(0, true);
    let (_second, _) = listen(port, true);
    overflow_and_compare(&mut probe, namespace::inode(), port, 2);
    let known: Vec<u32> =
        probe.net.listeners().iter().filter(|(k, _)| k.port == port).map(|(_, n)| *n).collect();
    assert_eq!(known, [2]);
}

#[test]
fn privileged_a_queue_that_is_full_before_the_agent_comes_is_seen() {
    let (_listener, port) = listen(0, false);
    let _clients: Vec<OwnedFd> = (0..20).map(|_| begin_connect(port)).collect();
    let already = sk_drops(port);
    assert!(already >= 15, "{already}");
    let mut probe = Probe::attach();
    probe.drain_until("the depth is known", |p| p.queue(port).depth_last > 0);
    assert_eq!(probe.queue(port).depth_last, BACKLOG as u32 + 1);
    assert_eq!(probe.queue(port).limit, BACKLOG as u32);
    // Only what is dropped from now on is ours to tell.
    let (windows, counter) = settled(&mut probe, port, port);
    assert!(windows <= counter - already, "{windows} {counter} {already}");
    let late = begin_connect(port);
    probe.drain_until("its drop", |p| p.queue(port).drops > windows);
    drop(late);
}

/// Listens until `enough`: at one port, or for 0 at free ones.
fn listen_until(probe: &Probe, port: u16, enough: impl Fn(&Probe) -> bool) -> Vec<(OwnedFd, u16)> {
    let mut all = Vec::new();
    while !enough(probe) {
        assert!(all.len() < 2_000, "{:?}", probe.net.kernel_losses());
        all.push(listen(port, port != 0));
    }
    all
}

/// Overflows a queue until the windows tell drops at the port itself: who has no room of its own is counted with the rest.
fn is_told_by_its_own_name(probe: &mut Probe, port: u16) {
    // A walk comes every ten seconds, and a drain waits ten at most.
    let mut clients: Vec<OwnedFd> = Vec::new();
    for _ in 0..25 {
        clients.extend((0..BACKLOG + 3).map(|_| begin_connect(port)));
        std::thread::sleep(Duration::from_millis(500));
        probe.drain_past_now();
        if probe.queue((namespace::inode(), port)).drops > 0 {
            return;
        }
    }
    panic!("still not told; {:?}, {:?}", probe.net.kernel_losses(), probe.net.walk_report());
}

// Both in the namespace of this process: the walk sees those that processes live in.
#[test]
fn privileged_a_listener_without_room_comes_in_when_there_is() {
    let mut probe = Probe::attach_with_little_room();
    // More addresses than are told apart: the last is one of the rest.
    let mut all = listen_until(&probe, 0, |p| p.net.kernel_losses().listeners_folded > 0);
    let (last, port) = all.pop().unwrap();
    probe.drain_past_now();
    assert!(!probe.net.listeners().iter().any(|(key, _)| key.port == port), "it has room");
    drop(all);
    is_told_by_its_own_name(&mut probe, port);
    drop(last);
}

/// The listening sockets of a port that the kernel side knows.
fn sockets(probe: &mut Probe, port: u16) -> Option<u32> {
    let known = probe.net.listeners();
    known.iter().find(|(key, _)| key.port == port).map(|(_, sockets)| *sockets)
}

/// The kernel says that a socket listens a moment before it does, and the timer may look in between: one in some thirty thousand was lost.
#[test]
fn privileged_no_listener_is_taken_for_gone_at_its_birth() {
    const AT_ONCE: usize = 900;
    let mut probe = Probe::attach();
    let (first, port) = listen(0, true);
    for round in 0..100 {
        let others: Vec<_> = (1..AT_ONCE).map(|_| listen(port, true)).collect();
        assert_eq!(sockets(&mut probe, port), Some(AT_ONCE as u32), "round {round}");
        drop(others);
    }
    drop(first);
}

#[test]
fn privileged_a_socket_that_the_table_had_no_room_for_comes_in_when_it_has() {
    let mut probe = Probe::attach();
    let (first, port) = listen(0, true);
    // One address, more sockets than the table holds.
    let mut all = listen_until(&probe, port, |p| p.net.kernel_losses().listen_sockets_untracked > 0);
    let (last, _) = all.pop().unwrap();
    assert_eq!(
        sockets(&mut probe, port),
        Some(1 + all.len() as u32),
        "the last is not counted: {:?}",
        probe.net.losses()
    );
    drop((first, all));
    is_told_by_its_own_name(&mut probe, port);
    assert_eq!(sockets(&mut probe, port), Some(1));
    drop(last);
}

/// A counter of this thread's network namespace.
fn netstat(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|l| l.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|n| n == name).unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

fn set(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &[libc::c_int]) {
    // SAFETY: plain call on a descriptor and values that live here.
    let failed = unsafe {
        let length = size_of_val(value) as u32;
        libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length)
    };
    assert_eq!(failed, 0);
}

/// One byte, of which the handshake is told done if it was deferred.
fn request(client: &OwnedFd) {
    // SAFETY: as above.
    unsafe { libc::send(client.as_raw_fd(), c"x".as_ptr().cast(), 1, libc::MSG_NOSIGNAL) };
}

/// Ends a connection with a reset: nothing of it comes again.
fn reset(client: &OwnedFd) {
    set(client, libc::SOL_SOCKET, libc::SO_LINGER, &[1, 0]);
}

fn accept_all(listener: &OwnedFd) -> Vec<OwnedFd> {
    std::iter::from_fn(|| {
        let no = std::ptr::null_mut();
        // SAFETY: nobody asks who came.
        let fd = unsafe { libc::accept4(listener.as_raw_fd(), no, no.cast(), libc::SOCK_NONBLOCK) };
        // SAFETY: just made.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    })
    .collect()
}

/// Flags of a TCP header (RFC 9293, 3.1).
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Sends segments with these flags that belong to no connection; a broken one has a wrong checksum.
fn strays(port: u16, flags: u8, broken: bool, count: u16) {
    // SAFETY: makes a descriptor.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_TCP) };
    assert!(fd >= 0);
    // SAFETY: just made.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let address = c_address(0);
    for from in 1..=count {
        let mut words = [from, port, 0x1234, from, 0, 0, 0x5000 | u16::from(flags), 64_240, 0, 0];
        let local = [0x7f00, 0x0001, 0x7f00, 0x0001, libc::IPPROTO_TCP as u16, 20];
        let sum: u32 = words.iter().chain(&local).map(|word| u32::from(*word)).sum();
        words[8] = !((sum & 0xffff) + (sum >> 16)) as u16 ^ u16::from(broken);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        // SAFETY: pointers and lengths of live values.
        let sent = unsafe {
            let to = (&raw const address).cast();
            libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), 0, to, size_of_val(&address) as u32)
        };
        assert_eq!(sent, 20);
    }
    drop(socket);
}

/// What a scanner sends: some of it the listener counts where it counts drops, some not, and none of it is one.
#[test]
fn privileged_segments_of_no_connection_are_no_drops_and_hide_none() {
    let mut probe = Probe::attach();
    std::thread::scope(|s| {
        s.spawn(|| {
            namespace::enter_new();
            let (_listener, port) = listen(0, false);
            let at = (namespace::inode(), port);
            strays(port, 0, false, 10);
            strays(port, SYN | FIN, false, 10);
            strays(port, RST, false, 10);
            assert_eq!(sk_drops(port), 30, "the kernel counts them");
            strays(port, ACK, false, 10);
            strays(port, SYN, true, 10);
            strays(port, 0, true, 10);
            assert_eq!(sk_drops(port), 30, "the kernel does not count these");
            let clients: Vec<OwnedFd> = (0..20).map(|_| begin_connect(port)).collect();
            let (windows, counter) = settled(&mut probe, at, port);
            let dropped = netstat("ListenDrops");
            assert!(dropped >= 15, "{dropped}");
            assert_eq!((windows, counter), (dropped, dropped + 30), "{}", probe.story(at));
            assert_eq!(probe.drops(port).iter().map(|event| event.packets).sum::<u64>(), dropped);
            drop(clients);
        });
    });
}

/// Packets that nobody read are freed in process context, where an interrupt may meet the hooks that it wants itself.
fn free_packets(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let (unread, full) = std::os::unix::net::UnixDatagram::pair().unwrap();
        full.set_nonblocking(true).unwrap();
        while full.send(b"x").is_ok() {}
        drop((unread, full));
    }
}

#[test]
#[ignore = "in one of some two hundred runs two or four of 37,000 discarded segments are not seen, and read as drops; make waves"]
fn privileged_a_thousand_waves_are_counted_to_the_packet() {
    const DEFERRED: usize = 10;
    const QUEUE: usize = 16;
    let mut probe = Probe::attach();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let stop = &stop;
        s.spawn(|| free_packets(stop));
        s.spawn(|| {
            let _end = StopAtEnd(stop);
            namespace::enter_new();
            let (listener, port) = listen(0, false);
            set(&listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &[30]);
            // SAFETY: plain calls on a descriptor that lives here.
            unsafe {
                assert_eq!(libc::listen(listener.as_raw_fd(), QUEUE as i32), 0);
                assert_eq!(libc::fcntl(listener.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK), 0);
            }
            let at = (namespace::inode(), port);
            let mut told = (0, 0);
            for _ in 0..1_000 {
                let deferred: Vec<OwnedFd> = (0..DEFERRED).map(|_| begin_connect(port)).collect();
                let mut others = Vec::new();
                for _ in 0..=QUEUE {
                    let other = begin_connect(port);
                    request(&other);
                    others.push(other);
                }
                deferred.iter().for_each(request);
                deferred.iter().chain(&others).chain(&accept_all(&listener)).for_each(reset);
                probe.drain();
                for event in probe.drops(port) {
                    told = (told.0 + event.count, told.1 + event.packets);
                }
            }
            // The last look at the counter is in a window of its own.
            probe.drain_past_now();
            probe.drain_past_now();
            for event in probe.drops(port) {
                told = (told.0 + event.count, told.1 + event.packets);
            }
            let (queue, truth) = (probe.queue(at), netstat("ListenDrops"));
            let counted = format!("sk_drops {}, no loss {}", sk_drops(port), netstat("TCPDeferAcceptDrop"));
            let dump = std::process::Command::new("bpftool")
                .args(["map", "dump", "name", "listen_sockets"])
                .output();
            let dump = dump.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
            let what = format!(
                "ListenDrops {truth}, {counted}, told {told:?}, {queue:?}, {dump}: {}",
                probe.story(at)
            );
            assert!(truth >= 5_000 && queue.drops_final_ack >= 5_000, "{what}");
            assert_eq!(queue.drops - queue.drops_final_ack, truth, "{what}");
            assert_eq!(told, (queue.drops, truth), "{what}");
        });
    });
}

#[test]
fn privileged_deferred_handshakes_are_no_drops_until_the_queue_is_full() {
    let mut probe = Probe::attach();
    std::thread::scope(|s| {
        s.spawn(|| {
            namespace::enter_new();
            let (listener, port) = listen(0, false);
            set(&listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &[30]);
            let at = (namespace::inode(), port);
            let deferred: Vec<OwnedFd> = (0..BACKLOG - 1).map(|_| begin_connect(port)).collect();
            probe.drain_past_now();
            assert!(netstat("TCPDeferAcceptDrop") >= 3 && sk_drops(port) >= 3);
            let healthy = probe.queue(at);
            assert_eq!((healthy.drops, healthy.arrivals, healthy.depth_max), (0, 0, 0), "{healthy:?}");
            assert!(probe.drops(port).is_empty());
            // Others fill the queue; then the requests of the first meet a full one at the last step of their handshake.
            let others: Vec<OwnedFd> = (0..12).map(|_| begin_connect(port)).collect();
            others.iter().for_each(request);
            probe.drain_until("the queue is full", |p| p.queue(at).depth_last == BACKLOG as u32 + 1);
            deferred.iter().for_each(request);
            let (mut last, mut told) = (Default::default(), (0, 0));
            probe.drain_until("windows and counters agree", |p| {
                let before = (netstat("ListenDrops"), sk_drops(port), netstat("TCPDeferAcceptDrop"));
                p.drain_past_now();
                p.drain_past_now();
                for event in p.drops(port) {
                    let (count, packets) = told;
                    told = (count + event.count, packets + event.packets);
                }
                last = (p.queue(at), before);
                before == (netstat("ListenDrops"), sk_drops(port), netstat("TCPDeferAcceptDrop"))
                    && p.queue(at).drops_final_ack >= 6
            });
            let (queue, (listen_drops, counter, no_loss)) = last;
            assert_eq!(
                (queue.arrivals, queue.depth_max),
                (BACKLOG as u64 + 1, BACKLOG as u32 + 1),
                "{queue:?}"
            );
            // The kernel counts such a drop twice in the socket, once in the namespace.
            let story = format!(
                "{queue:?}, ListenDrops {listen_drops}, sk_drops {counter}, no loss {no_loss}: {}",
                probe.story(at)
            );
            assert_eq!(queue.drops - queue.drops_final_ack, listen_drops, "{story}");
            assert_eq!(queue.drops, counter - no_loss, "{story}");
            assert_eq!(told, (queue.drops, listen_drops), "drop events tell both: {story}");
            // Their data comes again and again: that is no other connection, and each of them has waited for long once.
            let waiting = deferred.len() as u64;
            probe.drain_until("all that are left wait for long", |p| {
                let queue = p.queue(at);
                queue.drops_slow >= waiting
                    && queue.drops_slow == queue.drops_final_ack - queue.drops_repeated
            });
            drop((deferred, others));
        });
    });
}

/// The queue is full when their requests come, and with these the last ACK of their handshakes: both come again until it is not.
#[test]
fn privileged_an_answer_is_late_by_what_its_connection_waited_at_its_last_ack() {
    const WAITING: usize = BACKLOG as usize - 1;
    let mut probe = Probe::attach_with_late(Late { late_ms: 400, very_late_ms: 60_000 });
    std::thread::scope(|s| {
        s.spawn(|| {
            namespace::enter_new();
            let (listener, port) = listen(0, false);
            set(&listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &[30]);
            let at = (namespace::inode(), port);
            let waiting: Vec<OwnedFd> = (0..WAITING).map(|_| begin_connect(port)).collect();
            probe.drain_past_now();
            let others: Vec<OwnedFd> = (0..12).map(|_| begin_connect(port)).collect();
            others.iter().for_each(request);
            probe.drain_until("the queue is full", |p| p.queue(at).depth_last == BACKLOG as u32 + 1);
            waiting.iter().for_each(request);
            let clock = Clock::new(0);
            let full_ns = clock.unix_ns();
            probe.until_ended(|| clock.unix_ns() - full_ns >= 1_000_000_000);
            others.iter().for_each(reset);
            drop(others);
            // The first in the queue are gone; those that waited are answered as soon as they are there.
            let listener = TcpListener::from(listener);
            listener.set_nonblocking(true).unwrap();
            let mut answered = 0;
            while answered < WAITING {
                assert!(clock.unix_ns() - full_ns < 60_000_000_000, "{answered} of {WAITING} came again");
                let Ok((mut stream, _)) = listener.accept() else {
                    probe.wait();
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                // Of those that are gone some had their request taken before.
                if stream.read_exact(&mut [0]).is_ok() && stream.write_all(b"y").is_ok() {
                    answered += 1;
                }
            }
            probe.drain_until("all are answered", |p| p.requests(at).answered == WAITING as u64);
            let requests = probe.requests(at);
            assert!(requests.response_max_ns < 400_000_000, "none took long once it was read: {requests:?}");
            assert_eq!((requests.late, requests.very_late), (WAITING as u64, 0), "{requests:?}");
            assert_eq!(probe.very_long(at), [WAITING as u64, 0, 0, 0], "{requests:?}");
            drop(waiting);
        });
    });
}

/// Each of these handshakes makes the listener count segments that are no drops, on one CPU while another looks at the counter.
#[test]
fn privileged_healthy_handshakes_are_no_drops_however_many_there_are() {
    /// Six seconds of looks and drains.
    const DRAINS: u32 = 300;
    let mut probe = Probe::attach();
    std::thread::scope(|s| {
        s.spawn(|| {
            namespace::enter_new();
            let (listener, port) = listen(0, false);
            set(&listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &[30]);
            // SAFETY: plain call on a descriptor that lives here.
            assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 4_096) }, 0);
            let at = (namespace::inode(), port);
            let stop = AtomicBool::new(false);
            let made = std::thread::scope(|clients| {
                let _end = StopAtEnd(&stop);
                let handshakes = || {
                    let mut made = 0;
                    while !stop.load(Ordering::Relaxed) {
                        reset(&begin_connect(port));
                        made += 1;
                    }
                    made
                };
                let both = [clients.spawn(handshakes), clients.spawn(handshakes)];
                for _ in 0..DRAINS {
                    std::thread::sleep(Duration::from_millis(20));
                    probe.drain();
                }
                stop.store(true, Ordering::Relaxed);
                both.into_iter().map(|client| client.join().unwrap()).sum::<u64>()
            });
            let (windows, counter) = settled(&mut probe, at, port);
            let (no_loss, dropped) = (netstat("TCPDeferAcceptDrop"), netstat("ListenDrops"));
            eprintln!("{made} handshakes, {no_loss} discarded in good health, sk_drops {counter}, ListenDrops {dropped}");
            assert!(no_loss >= 10_000, "{made} handshakes, {no_loss} discarded");
            assert_eq!(windows, dropped, "sk_drops {counter}, {no_loss} no loss: {}", probe.story(at));
        });
    });
}

//! What an incident says a listener dropped is what the kernel dropped, to the packet: `ListenDrops` of a network namespace with that
//! one listener, with and without SYN cookies, with and without TCP_DEFER_ACCEPT. Real sockets, the real agent and collector.

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use tailwater_proto::v1::Metric;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::programs::daemons::{Collector, http_get, start_agent, wait_for};
use tailwater_tests::programs::trace_sums::TraceSums;
use tailwater_tests::truth::sockdiag::SockDiag;

const HOST: &str = "counted-1";
/// The accept queue holds one more; as many half-open connections, and there are cookies or drops.
const BACKLOG: i32 = 4;
/// Longer than the second retry of a SYN, and than the third of a last ACK with data.
const RETRIED_FOR: Duration = Duration::from_millis(2_500);

/// Pause between the clients of a listener in good health.
const SERVED_EVERY: Duration = Duration::from_millis(100);

struct Case {
    /// Each its own: the name of its listener in the incidents.
    port: u16,
    cookies: bool,
    defer_accept: bool,
}

/// A counter of this thread's network namespace.
fn netstat(name: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat")?;
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let found = names.split(' ').zip(values.split(' ')).find(|(is, _)| *is == name);
    found.and_then(|(_, value)| value.parse().ok()).with_context(|| format!("netstat has no {name}"))
}

fn enter_new_namespace() -> Result<()> {
    // SAFETY: affects the calling thread only; the namespace goes with it.
    let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    ensure!(moved == 0, "unshare: {}", std::io::Error::last_os_error());
    ensure!(Command::new("ip").args(["link", "set", "lo", "up"]).status()?.success());
    Ok(())
}

fn checked(result: libc::c_int, what: &str) -> Result<()> {
    ensure!(result == 0, "{what}: {}", std::io::Error::last_os_error());
    Ok(())
}

fn socket(nonblocking: bool) -> Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: makes a descriptor.
    let fd = unsafe { libc::socket(libc::AF_INET, kind, 0) };
    ensure!(fd >= 0, "socket: {}", std::io::Error::last_os_error());
    // SAFETY: just made.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set<T>(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> Result<()> {
    let (value, length) = ((&raw const *value).cast(), size_of::<T>() as u32);
    // SAFETY: a descriptor and a value that live here, with its length.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, length) }, "setsockopt")
}

fn c_address(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    }
}

fn listen(case: &Case) -> Result<OwnedFd> {
    let fd = socket(false)?;
    let address = c_address(case.port);
    if case.defer_accept {
        set(&fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &30)?;
    }
    // SAFETY: plain calls on a descriptor and a structure that live here.
    unsafe {
        let length = size_of_val(&address) as u32;
        checked(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length), "bind")?;
        checked(libc::listen(fd.as_raw_fd(), BACKLOG), "listen")?;
    }
    Ok(fd)
}

/// The listener takes SYNs only: whoever connects has its handshake answered, and his last ACK is held back.
fn take_syns_only(listener: &OwnedFd) -> Result<()> {
    // Of a listener, a filter sees the TCP header first: its flags are byte 13.
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 13),
        op(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 1, 0, 0x10),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, 0xffff),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set(listener, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Begins a connection and does not wait for it. It ends by a reset.
fn begin_connect(port: u16) -> Result<OwnedFd> {
    let fd = socket(true)?;
    set(&fd, libc::SOL_SOCKET, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    let address = c_address(port);
    // SAFETY: a descriptor and a structure that live here.
    unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) };
    Ok(fd)
}

/// Begins a connection and waits until its handshake is over for the client.
fn connect(port: u16) -> Result<OwnedFd> {
    let fd = begin_connect(port)?;
    let mut ready = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one structure that lives here.
    let found = unsafe { libc::poll(&raw mut ready, 1, 5_000) };
    ensure!(found == 1 && ready.revents == libc::POLLOUT, "not connected in 5 s: {:x}", ready.revents);
    Ok(fd)
}

fn request(client: &OwnedFd) -> Result<()> {
    // SAFETY: a descriptor and bytes that live here.
    let sent = unsafe { libc::send(client.as_raw_fd(), c"GET".as_ptr().cast(), 3, libc::MSG_NOSIGNAL) };
    ensure!(sent == 3, "send: {}", std::io::Error::last_os_error());
    Ok(())
}

/// What the kernel says that happened.
#[derive(Debug)]
struct Happened {
    listen_drops: u64,
    /// The socket's own counter, with what it discards in good health.
    sk_drops: u64,
    cookies_sent: u64,
    cookies_answered: u64,
    deferred: u64,
    /// Clients whose last ACK was held back until the queue was full.
    held: u64,
}

/// Serves one client, as a server in good health does.
fn serve(case: &Case, listener: &OwnedFd) -> Result<()> {
    let client = connect(case.port)?;
    request(&client)?;
    // SAFETY: a descriptor that lives here; no address is asked for.
    let accepted = unsafe { libc::accept(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut()) };
    ensure!(accepted >= 0, "accept: {}", std::io::Error::last_os_error());
    // SAFETY: just made; bytes that live here, with their length.
    unsafe {
        let accepted = OwnedFd::from_raw_fd(accepted);
        let mut bytes = [0_u8; 3];
        let read =
            libc::recv(accepted.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_WAITALL);
        ensure!(read == 3, "recv: {}", std::io::Error::last_os_error());
        let sent = libc::send(accepted.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL);
        ensure!(sent == 3, "send: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

/// Overflows a listener at the first packet of handshakes and at the last one, until nothing is dropped any more.
fn overflow(case: &Case, listener: &OwnedFd) -> Result<Happened> {
    // Without cookies the SYN queue must have room for those that come next; with them it must have none.
    let waiting = if case.cookies { BACKLOG + 3 } else { BACKLOG - 1 };
    // A deferring listener holds the first back itself.
    let mut held: Vec<OwnedFd> = Vec::new();
    if case.defer_accept {
        held.push(connect(case.port)?);
    }
    take_syns_only(listener)?;
    for _ in held.len()..waiting as usize {
        held.push(connect(case.port)?);
    }
    set(listener, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)?;
    // These fill the queue, each as soon as it is connected; then some more, which are dropped at once.
    let mut others: Vec<OwnedFd> = Vec::new();
    for _ in 0..=BACKLOG {
        let client = connect(case.port)?;
        request(&client)?;
        others.push(client);
    }
    let mut sockets = SockDiag::open()?;
    let mut look = || {
        let all = sockets.listeners()?;
        let of_case = all.into_iter().find(|l| l.port == case.port);
        of_case.context("the listener is in sock_diag")
    };
    wait_for("a full queue", Duration::from_secs(30), || {
        let now = look()?;
        Ok((now.limit == BACKLOG as u32 && now.queue == now.limit + 1).then_some(()))
    })?;
    for _ in 0..12 {
        others.push(begin_connect(case.port)?);
    }
    let enough = 12 + held.len() as u64;
    held.iter().try_for_each(request)?;
    wait_for("each SYN and each last ACK to meet the full queue", Duration::from_secs(30), || {
        Ok((netstat("ListenDrops")? >= enough).then_some(()))
    })?;
    std::thread::sleep(RETRIED_FOR);
    let held_back = held.len() as u64;
    drop((held, others));
    let happened = Happened {
        listen_drops: netstat("ListenDrops")?,
        sk_drops: look()?.drops.into(),
        cookies_sent: netstat("SyncookiesSent")?,
        cookies_answered: netstat("SyncookiesRecv")?,
        deferred: netstat("TCPDeferAcceptDrop")?,
        held: held_back,
    };
    Ok(happened)
}

/// Drops of the case's listener in all incidents, when all of them are closed: packets, by the socket's counter, connections.
fn reported(collector: &Collector, port: u16) -> Result<Option<[u64; 3]>> {
    let listener = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).to_string();
    let incidents = collector.incidents()?;
    let of_listener = |incident: &&Value| {
        incident["drops"].as_array().into_iter().flatten().any(|drop| drop["listener"] == listener.as_str())
    };
    let mut sums = [0; 3];
    for incident in incidents.iter().filter(of_listener) {
        if incident["state"] != "closed" {
            return Ok(None);
        }
        for drop in incident["drops"].as_array().into_iter().flatten() {
            if drop["listener"] == listener.as_str() {
                for (sum, key) in sums.iter_mut().zip(["count", "sk_drops", "connections"]) {
                    *sum += drop[key].as_u64().with_context(|| format!("{key} in {drop}"))?;
                }
            }
        }
    }
    Ok((sums[0] > 0).then_some(sums))
}

/// `tailwater_listen_drops_total` of the case's listener by reason: SYNs, last ACKs.
fn exported(collector: &Collector, port: u16) -> Result<[u64; 2]> {
    let (_, text) = http_get(collector.http, "/metrics")?;
    let of = |reason: &str| {
        let (port, reason) = (format!(":{port}\""), format!("reason=\"{reason}\""));
        let line = text.lines().find(|line| {
            line.starts_with("tailwater_listen_drops_total{")
                && line.contains(&port)
                && line.contains(&reason)
        });
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        value.with_context(|| format!("no listen drops with {reason} at {port}")).map(|v| v as u64)
    };
    Ok([of("syn")?, of("final_ack")?])
}

/// What the agent says it could not keep, as the collector tells it: of a count that does not add up it is the first thing to look at.
fn losses(collector: &Collector) -> Result<String> {
    let (_, text) = http_get(collector.http, "/metrics")?;
    let of_agent = |line: &&str| line.starts_with("tailwater_agent_losses_total{") && !line.ends_with(" 0");
    Ok(text.lines().filter(of_agent).collect::<Vec<_>>().join("; "))
}

/// Overflows, and returns what the kernel and what the incident said.
fn count(case: &Case) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("drops.trace");
    let collector = Collector::start(folder.path(), &["--record".into(), trace.display().to_string()])?;
    let agent = start_agent(folder.path(), &collector.grpc_url(), HOST, None, &[])?;
    wait_for("the agent to stream", Duration::from_secs(30), || {
        Ok(http_get(collector.http, "/api/v1/agents")?.1.contains(HOST).then_some(()))
    })?;
    // The collector is asked from outside: its address is another one in there.
    let (happens, heard) = mpsc::sync_channel(1);
    let (told, over) = mpsc::sync_channel::<()>(1);
    let (serves, served) = mpsc::sync_channel(1);
    let (knows, known) = mpsc::sync_channel(1);
    let (happened, [packets, sk_drops, connections]) = std::thread::scope(|scope| {
        let inside = scope.spawn(move || -> Result<_> {
            enter_new_namespace()?;
            std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", if case.cookies { "1" } else { "0" })?;
            let listener = listen(case)?;
            serves.send(())?;
            while let Err(not_yet) = known.recv_timeout(SERVED_EVERY) {
                ensure!(not_yet == RecvTimeoutError::Timeout, "no window told of the listener");
                serve(case, &listener)?;
            }
            let happened = overflow(case, &listener)?;
            let dropped = happened.listen_drops;
            happens.send(happened)?;
            // Ends with a message or without one: the other side is through with it.
            let _ = over.recv();
            ensure!(netstat("ListenDrops")? == dropped, "nothing was dropped after the end");
            Ok(())
        });
        // What a listener does before the agent knows whose it is is not told.
        let waited = served.recv().map_err(|_| anyhow!("there is no listener")).and_then(|()| {
            let name = format!(":{}\"", case.port);
            wait_for("the listener's first window", Duration::from_secs(30), || {
                Ok(http_get(collector.http, "/metrics")?.1.contains(&name).then_some(()))
            })
        });
        if waited.is_ok() {
            let _ = knows.send(());
        }
        drop(knows);
        let outcome = match heard.recv() {
            Ok(happened) => {
                let closed = || reported(&collector, case.port);
                let told = wait_for("the incident to close", Duration::from_secs(30), closed);
                told.with_context(|| agent.output()).map(|told| (happened, told))
            }
            Err(_) => Err(anyhow!("the overflow did not come about")),
        };
        drop(told);
        // What went wrong inside comes first: the rest follows from it.
        inside.join().map_err(|_| anyhow!("the thread in the namespace panicked"))??;
        waited.and(outcome)
    })?;
    let sums = TraceSums::read(&trace)?;
    let listener = sums.listeners.get(&(HOST.to_owned(), case.port.into())).context("its windows")?;
    let [final_ack, by_cookie] =
        [Metric::ListenDropsFinalAck, Metric::ListenDropsCookie].map(|metric| listener.sum(metric));
    let by_reason = wait_for("the counters to have all windows", Duration::from_secs(30), || {
        let by_reason = exported(&collector, case.port)?;
        Ok((by_reason.iter().sum::<u64>() >= packets).then_some(by_reason))
    })?;
    let lost = losses(&collector)?;
    println!(
        "{happened:?}; incident: {packets} packets, {sk_drops} by sk_drops, {connections} connections; \
         last ACKs {final_ack}, of those {by_cookie} by cookie; exported {by_reason:?}; lost: {lost}"
    );
    // It happened.
    ensure!(
        final_ack >= happened.held && happened.listen_drops > final_ack,
        "SYNs and last ACKs were dropped"
    );
    ensure!(case.cookies == (happened.cookies_sent > 0), "cookies sent only where they are on");
    ensure!(case.cookies == (by_cookie > 0), "a held-back last ACK answered a cookie only where they are on");
    ensure!(
        !case.cookies || happened.cookies_answered > by_cookie,
        "and handshakes by cookie were completed"
    );
    ensure!(case.defer_accept == (happened.deferred > 0), "bare ACKs were discarded only where they are");
    ensure!(
        final_ack > by_cookie && happened.sk_drops > happened.listen_drops,
        "the socket counts some twice"
    );
    // And was counted.
    ensure!(packets == happened.listen_drops, "{packets} packets told, {} dropped", happened.listen_drops);
    ensure!(sk_drops == happened.listen_drops + final_ack - by_cookie, "{sk_drops} by sk_drops");
    ensure!(by_reason == [packets - final_ack, final_ack], "exported by reason: {by_reason:?}");
    ensure!(connections <= packets, "{connections} connections");
    Ok(())
}

/// Who is late to drain, or to take a client, by more than all of this bears, finds another overflow.
fn counted(case: &Case) -> Result<()> {
    experiment("an overflow that the kernel counts", || count(case))
}

#[test]
fn privileged_packets_equal_listen_drops() -> Result<()> {
    counted(&Case { port: 7001, cookies: false, defer_accept: false })
}

#[test]
fn privileged_packets_equal_listen_drops_with_deferred_accepts() -> Result<()> {
    counted(&Case { port: 7002, cookies: false, defer_accept: true })
}

#[test]
fn privileged_packets_equal_listen_drops_with_syn_cookies() -> Result<()> {
    counted(&Case { port: 7003, cookies: true, defer_accept: false })
}

#[test]
fn privileged_packets_equal_listen_drops_with_syn_cookies_and_deferred_accepts() -> Result<()> {
    counted(&Case { port: 7004, cookies: true, defer_accept: true })
}

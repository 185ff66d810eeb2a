//! The runtime of threads: so many workers accept, each has one connection at a time and one request at a time, and waits in its calls.
//! Connections beyond the workers wait in the accept queue.

use super::control::{self, Order};
use super::http;
use super::names::SERVER;
use super::work::Work;
use crate::graph::part::{CallPart, Part, Protocol};
use crate::graph::wire;
use crate::lab::Span;
use crate::names;
use crate::os::clock::unix_ns;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A worker lets a connection go that asks nothing for so long; whoever keeps one for longer than the other end loses requests.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// A caller keeps one for so long.
const KEPT_MAX: Duration = Duration::from_secs(4);
/// A thread of these needs little.
const STACK_BYTES: usize = 256 << 10;

#[derive(Debug)]
struct Server {
    work: Work,
    lock: RwLock<()>,
    pools: Vec<Pool>,
}

pub(super) fn serve(part: Part, folder: &Path) -> Result<()> {
    if part.resolves {
        names::ask_only(SERVER, folder)?;
    }
    let listener = TcpListener::bind(part.listen).with_context(|| format!("bind {}", part.listen))?;
    let backlog = i32::try_from(part.backlog).context("a backlog")?;
    // SAFETY: plain integers; the socket is open. Once more on a socket that listens, it sets the queue's length.
    let failed = unsafe { libc::listen(listener.as_raw_fd(), backlog) } != 0;
    ensure!(!failed, "listen on {}: {}", part.listen, std::io::Error::last_os_error());
    let pools = part.calls.iter().map(|call| Pool::new(call.clone())).collect();
    let workers = part.workers;
    let server = Arc::new(Server { work: Work::new(part), lock: RwLock::new(()), pools });
    let listener = Arc::new(listener);
    for _ in 0..workers {
        let (server, listener) = (Arc::clone(&server), Arc::clone(&listener));
        std::thread::Builder::new()
            .name("worker".into())
            .stack_size(STACK_BYTES)
            .spawn(move || server.worker(&listener))
            .context("start a worker")?;
    }
    control::ready();
    control::obey(|order| server.carry_out(order))
}

impl Server {
    fn carry_out(&self, order: Order) -> Result<Span> {
        let lasts = |ms| {
            let start_unix_ns = unix_ns();
            std::thread::sleep(Duration::from_millis(ms));
            Span { start_unix_ns, end_unix_ns: unix_ns() }
        };
        match order {
            Order::Lock { ms } => {
                let _held = self.lock.write().unwrap_or_else(PoisonError::into_inner);
                Ok(lasts(ms))
            }
            Order::Heavier { percent, ms } => {
                self.work.set_percent(percent);
                let span = lasts(ms);
                self.work.set_percent(100);
                Ok(span)
            }
            Order::Exhaust { call, ms } => {
                let pool = self.pools.get(call).with_context(|| format!("there is no call {call}"))?;
                let _exhausted = pool.exhaust()?;
                Ok(lasts(ms))
            }
            Order::Block { .. } => bail!("a server of threads has no event loop"),
        }
    }

    fn worker(&self, listener: &TcpListener) {
        loop {
            match listener.accept() {
                // A connection that breaks is its client's loss.
                Ok((stream, _)) => drop(self.connection(stream)),
                Err(error) => {
                    // Out of descriptors, or a client that is gone again: others wait.
                    eprintln!("graphnode: accept: {error}");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    fn connection(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(IDLE_MAX))?;
        let mut bytes = Vec::with_capacity(1024);
        loop {
            let head = loop {
                if let Some(head) = http::head(&bytes)? {
                    break head;
                }
                let mut piece = [0; 1024];
                let read = stream.read(&mut piece)?;
                if read == 0 {
                    return Ok(());
                }
                bytes.extend_from_slice(&piece[..read]);
            };
            bytes.drain(..head.length);
            let status = self.request();
            stream.write_all(&http::answer(status, head.close))?;
            if head.close {
                return Ok(());
            }
        }
    }

    /// Serves one request and returns the status of its answer.
    fn request(&self) -> u16 {
        let part = &self.work.part;
        if part.locks {
            drop(self.lock.read().unwrap_or_else(PoisonError::into_inner));
        }
        // As code does that keeps no address.
        if part.resolves && ("peer.test", 80).to_socket_addrs().is_err() {
            return 503;
        }
        let number = self.work.request();
        if part.sleep_us > 0 {
            std::thread::sleep(Duration::from_micros(u64::from(part.sleep_us)));
        }
        let all = (0..part.calls.len()).filter(|index| self.work.makes(*index, number)).all(|i| self.call(i));
        if all { 200 } else { 503 }
    }

    /// Whether a call was answered, at once or when it was tried again.
    fn call(&self, index: usize) -> bool {
        self.work.called(index);
        let mut failed = 0;
        while self.work.may_call(index) {
            let is_answered = self.pools[index].call().is_ok_and(|status| status == 200);
            self.work.ended(index, is_answered);
            if is_answered {
                return true;
            }
            failed += 1;
            if !self.work.may_retry(index, failed) {
                break;
            }
        }
        false
    }
}

/// Connections to another service.
#[derive(Debug)]
struct Pool {
    call: CallPart,
    connections: Mutex<Connections>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Connections {
    in_use: u32,
    /// The longest idle first.
    idle: Vec<(TcpStream, Instant)>,
}

impl Pool {
    fn new(call: CallPart) -> Self {
        Self { call, connections: Mutex::default(), freed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call; the status of its answer.
    fn call(&self) -> Result<u16> {
        let deadline = Instant::now() + Duration::from_millis(u64::from(self.call.timeout_ms));
        if self.call.pool == 0 {
            return Ok(self.ask(None, deadline)?.0);
        }
        let kept = self.take(deadline)?;
        let (outcome, stream) = match self.ask(kept, deadline) {
            Ok((status, stream)) => (Ok(status), stream),
            Err(error) => (Err(error), None),
        };
        let mut connections = self.lock();
        connections.in_use -= 1;
        connections.idle.extend(stream.map(|stream| (stream, Instant::now())));
        drop(connections);
        self.freed.notify_one();
        outcome
    }

    /// Takes all connections that there may be, until what it returns is dropped: those that are in use are given to nobody when they come back.
    fn exhaust(&self) -> Result<Exhausted<'_>> {
        ensure!(self.call.pool > 0, "this call has no pool");
        let mut connections = self.lock();
        connections.in_use += self.call.pool;
        let open = std::mem::take(&mut connections.idle);
        drop(connections);
        Ok(Exhausted { pool: self, _open: open })
    }

    /// Waits for its turn; a connection that is idle, if there is one.
    fn take(&self, deadline: Instant) -> Result<Option<TcpStream>> {
        let mut connections = self.lock();
        while connections.in_use >= self.call.pool {
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "no connection was free in time");
            let waited = self.freed.wait_timeout(connections, left);
            connections = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        connections.in_use += 1;
        let now = Instant::now();
        let stays = self.call.protocol.is_of_database();
        connections.idle.retain(|(_, since)| stays || now - *since < KEPT_MAX);
        Ok(connections.idle.pop().map(|(stream, _)| stream))
    }

    /// Asks on this connection, or on a new one; the connection comes back if it may be used again.
    fn ask(&self, kept: Option<TcpStream>, deadline: Instant) -> Result<(u16, Option<TcpStream>)> {
        let (close, protocol) = (self.call.pool == 0, self.call.protocol);
        let request = http::request(protocol, close);
        if let Some(mut stream) = kept {
            let mut answer = Vec::with_capacity(512);
            match exchange(&mut stream, protocol, &request, &mut answer, deadline) {
                Ok(status) => {
                    let ends = http::ends(protocol, &answer);
                    return Ok((status, (!ends).then_some(stream)));
                }
                // The other end closed it while the request was on its way: as every client does, once more on a new one.
                Err(_) if answer.is_empty() && Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "no time was left to connect");
        let mut stream = TcpStream::connect_timeout(&SocketAddr::V4(self.call.to), left)?;
        stream.set_nodelay(true)?;
        for greeting in wire::greetings(protocol) {
            exchange(&mut stream, protocol, &greeting, &mut Vec::with_capacity(512), deadline)?;
        }
        let mut answer = Vec::with_capacity(512);
        let status = exchange(&mut stream, protocol, &request, &mut answer, deadline)?;
        let ends = close || http::ends(protocol, &answer);
        Ok((status, (!ends).then_some(stream)))
    }
}

/// A pool whose connections nobody gives back. They stay open, as code that forgets them leaves them.
#[derive(Debug)]
struct Exhausted<'a> {
    pool: &'a Pool,
    _open: Vec<(TcpStream, Instant)>,
}

impl Drop for Exhausted<'_> {
    fn drop(&mut self) {
        self.pool.lock().in_use -= self.pool.call.pool;
        self.pool.freed.notify_all();
    }
}

/// Says something, and waits until the answer is whole; its status.
fn exchange(
    stream: &mut TcpStream,
    protocol: Protocol,
    request: &[u8],
    answer: &mut Vec<u8>,
    deadline: Instant,
) -> Result<u16> {
    stream.write_all(request)?;
    let mut piece = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "no answer in time");
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut piece)?;
        ensure!(read > 0, "the connection was closed before its answer");
        answer.extend_from_slice(&piece[..read]);
        if let Some(status) = http::status(protocol, answer)? {
            return Ok(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_exhausted_pool_nobody_gets_a_connection_until_it_is_over() {
        let to = "127.0.0.1:1".parse().unwrap();
        let call = CallPart {
            to,
            protocol: Protocol::Http,
            share_percent: 100,
            pool: 2,
            timeout_ms: 1_000,
            retries: 0,
            budget_percent: None,
            breaks: false,
        };
        let pool = Pool::new(call.clone());
        let soon = || Instant::now() + Duration::from_millis(20);
        assert!(pool.take(soon()).is_ok(), "one is in use");
        let exhausted = pool.exhaust().unwrap();
        assert!(pool.take(soon()).is_err());
        pool.lock().in_use -= 1;
        assert!(pool.take(soon()).is_err(), "it came back, and is nobody's");
        drop(exhausted);
        assert!(pool.take(soon()).is_ok() && pool.take(soon()).is_ok() && pool.take(soon()).is_err());
        assert!(Pool::new(CallPart { pool: 0, ..call }).exhaust().is_err());
    }
}

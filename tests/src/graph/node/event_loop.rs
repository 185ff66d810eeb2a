//! The runtime of an event loop: one thread takes every connection and waits for nothing but events, so that requests pile up inside and
//! go on to whoever is called. It opens as many connections as calls need, and keeps some.

use super::control::{self, Order};
use super::http;
use super::work::Work;
use crate::graph::part::{CallPart, Part, Protocol};
use crate::graph::wire;
use crate::lab::Span;
use crate::os::clock::unix_ns;
use anyhow::{Context, Result, bail, ensure};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{RwLock, mpsc};
use tokio::time::timeout;

/// As with threads, a caller lets an idle connection go sooner than the other end does.
const KEPT_MAX: Duration = Duration::from_secs(4);
/// Calls of one sort under way at most; further ones fail at once.
const OPEN_MAX: u32 = 1_000;
/// Orders come one after the other.
const ORDERS_MAX: usize = 1;

type Given = (Order, SyncSender<Result<Span>>);

struct Server {
    work: Work,
    lock: RwLock<()>,
    pools: Vec<Pool>,
}

/// Connections to another service.
struct Pool {
    call: CallPart,
    in_use: Cell<u32>,
    /// The longest idle first.
    idle: RefCell<Vec<(TcpStream, Instant)>>,
}

pub(super) fn serve(part: Part) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, run(part))
}

async fn run(part: Part) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(part.listen.into()).with_context(|| format!("bind {}", part.listen))?;
    let listener = socket.listen(part.backlog).with_context(|| format!("listen on {}", part.listen))?;
    let pools = part.calls.iter().map(|call| Pool {
        call: call.clone(),
        in_use: Cell::new(0),
        idle: RefCell::default(),
    });
    let server = Rc::new(Server { pools: pools.collect(), work: Work::new(part), lock: RwLock::new(()) });
    let (orders, mut inbox) = mpsc::channel::<Given>(ORDERS_MAX);
    // Standard input is waited for on a thread beside the loop, and what it says is done on the loop.
    std::thread::Builder::new().name("orders".into()).spawn(move || {
        control::obey(|order| {
            let (tell, told) = sync_channel(1);
            orders.blocking_send((order, tell)).ok().context("the event loop is gone")?;
            told.recv().context("the event loop is gone")?
        })
    })?;
    let ordered = Rc::clone(&server);
    tokio::task::spawn_local(async move {
        while let Some((order, tell)) = inbox.recv().await {
            // Nobody waits for it any more: the process is about to end.
            let _ = tell.send(ordered.carry_out(order).await);
        }
    });
    control::ready();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, or a client that is gone again: others wait.
                eprintln!("graphnode: accept: {error}");
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
        };
        let server = Rc::clone(&server);
        tokio::task::spawn_local(async move {
            // A connection that breaks is its client's loss.
            let _ = server.connection(stream).await;
        });
    }
}

impl Server {
    async fn carry_out(&self, order: Order) -> Result<Span> {
        match order {
            Order::Lock { ms } => {
                let _held = self.lock.write().await;
                Ok(lasts(ms).await)
            }
            Order::Block { ms } => {
                let start_unix_ns = unix_ns();
                std::thread::sleep(Duration::from_millis(ms));
                Ok(Span { start_unix_ns, end_unix_ns: unix_ns() })
            }
            Order::Heavier { percent, ms } => {
                self.work.set_percent(percent);
                let span = lasts(ms).await;
                self.work.set_percent(100);
                Ok(span)
            }
            Order::Exhaust { .. } => bail!("pools of an event loop have no bound"),
        }
    }

    async fn connection(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut bytes = Vec::with_capacity(1024);
        loop {
            let head = loop {
                if let Some(head) = http::head(&bytes)? {
                    break head;
                }
                if stream.read_buf(&mut bytes).await? == 0 {
                    return Ok(());
                }
            };
            bytes.drain(..head.length);
            let status = self.request().await;
            stream.write_all(&http::answer(status, head.close)).await?;
            if head.close {
                return Ok(());
            }
        }
    }

    /// Serves one request and returns the status of its answer.
    async fn request(&self) -> u16 {
        let part = &self.work.part;
        if part.locks {
            drop(self.lock.read().await);
        }
        let number = self.work.request();
        if part.sleep_us > 0 {
            tokio::time::sleep(Duration::from_micros(u64::from(part.sleep_us))).await;
        }
        for index in 0..part.calls.len() {
            if self.work.makes(index, number) && !self.call(index).await {
                return 503;
            }
        }
        200
    }

    /// Whether a call was answered, at once or when it was tried again.
    async fn call(&self, index: usize) -> bool {
        self.work.called(index);
        let mut failed = 0;
        while self.work.may_call(index) {
            let is_answered = self.pools[index].call().await.is_ok_and(|status| status == 200);
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

/// Waits, while the loop goes on.
async fn lasts(ms: u64) -> Span {
    let start_unix_ns = unix_ns();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Span { start_unix_ns, end_unix_ns: unix_ns() }
}

impl Pool {
    /// One call; the status of its answer.
    async fn call(&self) -> Result<u16> {
        ensure!(self.in_use.get() < OPEN_MAX, "{OPEN_MAX} calls are under way");
        self.in_use.set(self.in_use.get() + 1);
        let limit = Duration::from_millis(u64::from(self.call.timeout_ms));
        let asked = timeout(limit, self.ask()).await;
        self.in_use.set(self.in_use.get() - 1);
        let (status, kept) = asked.context("no answer in time")??;
        self.idle.borrow_mut().extend(kept.map(|stream| (stream, Instant::now())));
        Ok(status)
    }

    /// Asks on a connection that is idle, or on a new one; the connection comes back if it may be used again.
    async fn ask(&self) -> Result<(u16, Option<TcpStream>)> {
        let protocol = self.call.protocol;
        if let Some(mut stream) = self.take() {
            let mut answer = Vec::with_capacity(512);
            match exchange(&mut stream, protocol, &http::request(protocol, false), &mut answer).await {
                Ok(status) => {
                    let ends = http::ends(protocol, &answer);
                    return Ok((status, (!ends).then_some(stream)));
                }
                // The other end closed it while the request was on its way: as every client does, once more on a new one.
                Err(_) if answer.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        // This call is one of those in use.
        let close = self.in_use.get() > self.call.pool;
        let mut stream = TcpStream::connect(self.call.to).await?;
        stream.set_nodelay(true)?;
        for greeting in wire::greetings(protocol) {
            exchange(&mut stream, protocol, &greeting, &mut Vec::with_capacity(512)).await?;
        }
        let request = http::request(protocol, close);
        let mut answer = Vec::with_capacity(512);
        let status = exchange(&mut stream, protocol, &request, &mut answer).await?;
        let ends = close || http::ends(protocol, &answer);
        Ok((status, (!ends).then_some(stream)))
    }

    fn take(&self) -> Option<TcpStream> {
        let mut idle = self.idle.borrow_mut();
        let now = Instant::now();
        idle.retain(|(_, since)| now - *since < KEPT_MAX);
        idle.pop().map(|(stream, _)| stream)
    }
}

async fn exchange(
    stream: &mut TcpStream,
    protocol: Protocol,
    request: &[u8],
    answer: &mut Vec<u8>,
) -> Result<u16> {
    stream.write_all(request).await?;
    loop {
        ensure!(stream.read_buf(answer).await? > 0, "the connection was closed before its answer");
        if let Some(status) = http::status(protocol, answer)? {
            return Ok(status);
        }
    }
}

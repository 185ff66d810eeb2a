//! A server with a thread for each connection, whose requests take one mutex of glibc, as a program in C would: `GET /` takes it and gives it back,
//! `GET /hold?ms=MS` keeps it for so long and answers with the id of the thread that did.

use anyhow::{Context, Result};
use std::cell::UnsafeCell;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;
use tailwater_tests::console::failure;

/// What every request takes.
struct Shared(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: it is used by the functions of pthread_mutex alone, which are for several threads.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

fn main() -> ExitCode {
    ExitCode::from(failure::run("mutexapp", None, work))
}

fn work() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, listen] = &arguments[..] else { anyhow::bail!("usage: mutexapp ADDRESS:PORT") };
    let listen: SocketAddrV4 = listen.parse().context("ADDRESS:PORT")?;
    let listener = TcpListener::bind(listen).with_context(|| format!("listen on {listen}"))?;
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::Builder::new().name("mutex-worker".to_owned()).spawn(move || serve(&stream))?;
    }
    Ok(())
}

/// Until the client goes away.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    loop {
        let request = lines.next()?.ok()?;
        while !lines.next()?.ok()?.is_empty() {}
        let ms = request.split_once("?ms=").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        locked(Duration::from_millis(ms.unwrap_or(0)));
        // SAFETY: it has no arguments.
        let body = unsafe { libc::gettid() }.to_string();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let mut to = stream;
        to.write_all(answer.as_bytes()).ok()?;
    }
}

#[allow(clippy::disallowed_methods, reason = "it is what is to be seen")]
fn locked(held: Duration) {
    // SAFETY: the mutex is initialised, and never moved.
    unsafe { libc::pthread_mutex_lock(SHARED.0.get()) };
    if !held.is_zero() {
        std::thread::sleep(held);
    }
    // SAFETY: this thread has it.
    unsafe { libc::pthread_mutex_unlock(SHARED.0.get()) };
}

//! A server with a thread for each connection, as a program in C would be. `GET /` takes a mutex of glibc and gives it back, `GET /hold?ms=MS` keeps it for so long,
//! and `GET /name` has a name resolved by glibc. Each is answered with the id of the thread that did. With a second argument names are asked of that server alone,
//! for which a file is left in the folder that is the third.

use anyhow::{Context, Result};
use std::cell::UnsafeCell;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tailwater_tests::console::failure;
use tailwater_tests::names;

/// What every request takes.
struct Shared(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: it is used by the functions of pthread_mutex alone, which are for several threads.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

fn main() -> ExitCode {
    ExitCode::from(failure::run("threadapp", None, work))
}

fn work() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let listen = match &arguments[..] {
        [_, listen] => listen,
        [_, listen, server, folder] => {
            names::ask_only(server.parse().context("SERVER")?, Path::new(folder))?;
            listen
        }
        _ => anyhow::bail!("usage: threadapp ADDRESS:PORT [SERVER FOLDER]"),
    };
    let listen: SocketAddrV4 = listen.parse().context("ADDRESS:PORT")?;
    let listener = TcpListener::bind(listen).with_context(|| format!("listen on {listen}"))?;
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::Builder::new().name("worker".to_owned()).spawn(move || serve(&stream))?;
    }
    Ok(())
}

/// Until the client goes away.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    loop {
        let request = lines.next()?.ok()?;
        while !lines.next()?.ok()?.is_empty() {}
        if request.starts_with("GET /name") {
            ("shop.test", 80).to_socket_addrs().ok()?;
        } else {
            let ms = request.split_once("?ms=").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
            locked(Duration::from_millis(ms.unwrap_or(0)));
        }
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

//! A request/response server at saturation on loopback: requests per second, with and without the agent beside it.

use anyhow::Result;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How clients use connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One connection per client for the whole run.
    KeepAlive,
    /// Connect, ask, read, close.
    ConnectionPerRequest,
}

const CLIENTS: usize = 4;
const REQUEST: [u8; 128] = [b'q'; 128];
const RESPONSE: [u8; 1024] = [b'r'; 1024];
/// What a small real handler does with the CPU for one request (parse, look up, format), so that the figure is that of a server
/// and not of two system calls.
const HANDLER_ROUNDS: u32 = 2_000;

fn handle(mut stream: TcpStream) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut request = [0; REQUEST.len()];
    while stream.read_exact(&mut request).is_ok() {
        let mut mixed = 0_u32;
        for round in 0..HANDLER_ROUNDS {
            mixed = mixed.rotate_left(5) ^ std::hint::black_box(round);
        }
        std::hint::black_box(mixed);
        if stream.write_all(&RESPONSE).is_err() {
            return;
        }
    }
}

/// Asks until told to stop; what fails after that is the server going away.
fn client(shape: Shape, server: SocketAddr, stop: &AtomicBool, answered: &AtomicU64) -> std::io::Result<()> {
    let ended = ask(shape, server, stop, answered);
    if stop.load(Ordering::Relaxed) { Ok(()) } else { ended }
}

fn ask(shape: Shape, server: SocketAddr, stop: &AtomicBool, answered: &AtomicU64) -> std::io::Result<()> {
    let mut response = [0; RESPONSE.len()];
    let connect = || -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let mut stream = connect()?;
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&REQUEST)?;
        stream.read_exact(&mut response)?;
        answered.fetch_add(1, Ordering::Relaxed);
        if shape == Shape::ConnectionPerRequest {
            // Closing with a reset keeps the run from exhausting local ports with TIME_WAIT.
            reset_on_close(&stream);
            stream = connect()?;
        }
    }
    Ok(())
}

fn reset_on_close(stream: &TcpStream) {
    use std::os::fd::AsRawFd;
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = libc::socklen_t::try_from(size_of_val(&linger)).unwrap_or(0);
    // SAFETY: the descriptor is open for the borrow of `stream`, and the option points to a whole `linger`.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size,
        );
    }
}

/// Requests answered per second over `length`.
pub fn run(shape: Shape, length: Duration) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = listener.local_addr()?;
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let accepting = Arc::clone(&stop);
    let acceptor = std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if accepting.load(Ordering::Relaxed) {
                return;
            }
            std::thread::spawn(move || handle(stream));
        }
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            std::thread::spawn(move || client(shape, server, &stop, &answered))
        })
        .collect();
    let begun = Instant::now();
    std::thread::sleep(length);
    let count = answered.load(Ordering::Relaxed);
    let took = begun.elapsed();
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().map_err(|_| anyhow::anyhow!("a bench client panicked"))??;
    }
    // Wakes the acceptor so that it sees the flag.
    let _ = TcpStream::connect(server);
    let _ = acceptor.join();
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    Ok(count as f64 / took.as_secs_f64())
}

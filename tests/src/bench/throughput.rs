//! A request/response server at saturation on loopback: requests per second, with and without the agent beside it. Two servers: a
//! real one (Apache httpd, a static page of 1 kB from memory, its access log on), and one whose handler does next to nothing, which
//! is the worst case for a price per event.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
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

/// What is asked and what comes back, byte for byte the same length each time.
#[derive(Debug, Clone)]
struct Exchange {
    request: Vec<u8>,
    response_bytes: usize,
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

/// Asks until told to stop.
fn ask(
    shape: Shape,
    server: SocketAddr,
    exchange: &Exchange,
    stop: &AtomicBool,
    answered: &AtomicU64,
) -> std::io::Result<()> {
    let mut response = vec![0; exchange.response_bytes];
    let connect = || -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let mut stream = connect()?;
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&exchange.request)?;
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

/// Requests answered per second over `length`, by clients that ask one after the other.
fn load(shape: Shape, server: SocketAddr, exchange: &Exchange, length: Duration) -> Result<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (stop, answered, exchange) = (Arc::clone(&stop), Arc::clone(&answered), exchange.clone());
            std::thread::spawn(move || {
                let ended = ask(shape, server, &exchange, &stop, &answered);
                // What fails after the end is the server going away.
                if stop.load(Ordering::Relaxed) { Ok(()) } else { ended }
            })
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
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    Ok(count as f64 / took.as_secs_f64())
}

/// Requests per second of a server that does next to nothing for one.
pub fn smallest(shape: Shape, length: Duration) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = listener.local_addr()?;
    let stop = Arc::new(AtomicBool::new(false));
    let accepting = Arc::clone(&stop);
    let acceptor = std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if accepting.load(Ordering::Relaxed) {
                return;
            }
            std::thread::spawn(move || handle(stream));
        }
    });
    let exchange = Exchange { request: REQUEST.to_vec(), response_bytes: RESPONSE.len() };
    let rate = load(shape, server, &exchange, length);
    stop.store(true, Ordering::Relaxed);
    // Wakes the acceptor so that it sees the flag.
    let _ = TcpStream::connect(server);
    let _ = acceptor.join();
    rate
}

/// An Apache httpd of its own on loopback, with threads for all clients. Ends with this value.
#[derive(Debug)]
pub struct Apache {
    child: Child,
    address: SocketAddr,
}

impl Apache {
    /// `folder` must be readable by the user `www-data`.
    pub fn start(folder: &Path) -> Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let root = folder.display();
        std::fs::create_dir(folder.join("www"))?;
        std::fs::write(folder.join("www/page"), RESPONSE)?;
        let modules = "/usr/lib/apache2/modules";
        let loaded: String = ["mpm_event", "authz_core", "unixd", "log_config", "dir"]
            .iter()
            .filter(|m| Path::new(&format!("{modules}/mod_{m}.so")).exists())
            .map(|m| format!("LoadModule {m}_module {modules}/mod_{m}.so\n"))
            .collect();
        let configuration = format!(
            "{loaded}ServerRoot {root}\nServerName localhost\nPidFile {root}/pid\nErrorLog {root}/error.log\n\
             Listen {address}\nUser www-data\nGroup www-data\nDocumentRoot {root}/www\n\
             StartServers 1\nServerLimit 1\nThreadsPerChild 25\nMaxRequestWorkers 25\n\
             KeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout 30\n\
             LogFormat \"%h %t \\\"%r\\\" %>s %b\" common\nCustomLog {root}/access.log common\n\
             <Directory />\nRequire all granted\n</Directory>\n"
        );
        let file = folder.join("apache.conf");
        std::fs::write(&file, configuration)?;
        let child = Command::new("apache2")
            .arg("-f")
            .arg(&file)
            .arg("-DFOREGROUND")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("apache2 (make lab-deps installs it)")?;
        let server = Self { child, address };
        crate::programs::daemons::wait_for("Apache listens", Duration::from_secs(10), || {
            Ok(TcpStream::connect(address).ok().map(drop))
        })?;
        Ok(server)
    }

    /// Requests per second.
    pub fn rate(&self, shape: Shape, length: Duration) -> Result<f64> {
        let connection = if shape == Shape::KeepAlive { "keep-alive" } else { "close" };
        let request =
            format!("GET /page HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n\r\n").into_bytes();
        let last = String::from_utf8_lossy(&request).replace("keep-alive", "close").into_bytes();
        let whole = |request: &[u8]| -> Result<usize> {
            let mut stream = TcpStream::connect(self.address)?;
            stream.write_all(request)?;
            let mut response = Vec::new();
            stream.read_to_end(&mut response)?;
            anyhow::ensure!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));
            Ok(response.len())
        };
        // A closed answer has an end that can be seen; one that is kept says so in one header more or less.
        let closed = whole(&last)?;
        let response_bytes = if shape == Shape::KeepAlive {
            let mut stream = TcpStream::connect(self.address)?;
            stream.write_all(&request)?;
            stream.write_all(&last)?;
            let mut both = Vec::new();
            stream.read_to_end(&mut both)?;
            both.len() - closed
        } else {
            closed
        };
        load(shape, self.address, &Exchange { request, response_bytes }, length)
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // SAFETY: signals the child that this value owns and has not reaped.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        let _ = self.child.wait();
    }
}

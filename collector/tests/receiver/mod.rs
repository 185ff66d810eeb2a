//! A real HTTP or HTTPS server that takes alerts, keeps them, and answers as the test says: well, badly, late or never. Shares no code with
//! the collector.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(unreachable_pub, reason = "a module of several tests")]
#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]
#![allow(clippy::disallowed_methods, reason = "tests need deadlines")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What came.
#[derive(Debug, Clone)]
pub struct Got {
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub at: Instant,
}

impl Got {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn id(&self) -> String {
        self.header("webhook-id").unwrap().to_owned()
    }

    /// What it tells: its id without the run of the collector that made it.
    pub fn told(&self) -> String {
        without_run(&self.id())
    }

    /// As the standard's own library sees it.
    pub fn verified_by(&self, secret: &str) -> bool {
        let mut headers = hyper::HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            let Some(value) = self.header(name) else { return false };
            headers.insert(name, value.parse().unwrap());
        }
        standardwebhooks::Webhook::new(secret).unwrap().verify(&self.body, &headers).is_ok()
    }
}

/// Of a message's id the incident, its version, and what else tells messages of one run apart.
pub fn without_run(id: &str) -> String {
    let parts = id.split('.').enumerate().filter(|(place, _)| *place != 2);
    parts.map(|(_, part)| part).collect::<Vec<_>>().join(".")
}

/// How to answer.
#[derive(Debug, Clone)]
pub enum Answer {
    Status(u16),
    /// With this header line.
    With(u16, &'static str),
    /// These bytes, whatever they are, and the end.
    Raw(&'static [u8]),
    /// One byte of a good answer at a time, for ever.
    Drip,
    /// The end, without an answer.
    Close,
    /// Nothing.
    Hang,
}

type Script = Arc<dyn Fn(usize) -> Answer + Send + Sync>;

/// The server; it ends with the test's process.
#[derive(Clone)]
pub struct Receiver {
    pub address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    tls: bool,
}

impl Receiver {
    /// Answers the nth request (from 0) as `script` says.
    pub fn start(script: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").unwrap(), None, Arc::new(script))
    }

    /// Answers all with 204.
    pub fn good() -> Self {
        Self::start(|_| Answer::Status(204))
    }

    /// Over TLS, answers all with 204.
    pub fn tls(config: rustls::ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::at(listener, Some(Arc::new(config)), Arc::new(|_| Answer::Status(204)))
    }

    /// On an address that nobody had so far.
    pub fn good_at(address: SocketAddr) -> Self {
        Self::at(TcpListener::bind(address).unwrap(), None, Arc::new(|_| Answer::Status(204)))
    }

    fn at(listener: TcpListener, tls: Option<Arc<rustls::ServerConfig>>, script: Script) -> Self {
        let receiver =
            Self { address: listener.local_addr().unwrap(), got: Arc::default(), tls: tls.is_some() };
        let got = Arc::clone(&receiver.got);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (got, script, tls) = (Arc::clone(&got), Arc::clone(&script), tls.clone());
                // A sender that goes away, or does not trust us, is not the server's problem.
                std::thread::spawn(move || match tls {
                    None => serve(stream, &got, &script),
                    Some(tls) => {
                        let connection = rustls::ServerConnection::new(tls).unwrap();
                        serve(rustls::StreamOwned::new(connection, stream), &got, &script)
                    }
                });
            }
        });
        receiver
    }

    pub fn url(&self) -> String {
        format!("{}://{}/hook", if self.tls { "https" } else { "http" }, self.address)
    }

    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// What came once `enough` of it did.
    pub fn wait(&self, what: &str, enough: impl Fn(&[Got]) -> bool) -> Vec<Got> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let got = self.got();
            if enough(&got) {
                return got;
            }
            assert!(Instant::now() < deadline, "waited 60 s for {what}; came: {:#?}", self.ids());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn ids(&self) -> Vec<String> {
        self.got().iter().filter_map(|g| g.header("webhook-id").map(str::to_owned)).collect()
    }

    pub fn told(&self) -> Vec<String> {
        self.ids().iter().map(|id| without_run(id)).collect()
    }
}

fn serve<S: Read + Write>(stream: S, got: &Mutex<Vec<Got>>, script: &Script) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.trim_end().split_once(':') {
                None => break,
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            }
        }
        let length = headers.iter().find(|(n, _)| n == "content-length").and_then(|(_, v)| v.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let nth = {
            let mut got = got.lock().unwrap();
            got.push(Got { path, headers, body, at: Instant::now() });
            got.len() - 1
        };
        let writer = reader.get_mut();
        match script(nth) {
            Answer::Status(code) => write!(writer, "HTTP/1.1 {code} X\r\nContent-Length: 0\r\n\r\n")?,
            Answer::With(code, header) => {
                write!(writer, "HTTP/1.1 {code} X\r\n{header}\r\nContent-Length: 0\r\n\r\n")?;
            }
            Answer::Raw(bytes) => return writer.write_all(bytes),
            Answer::Drip => {
                writer.write_all(b"HTTP/1.1 200 OK\r\nX: ")?;
                loop {
                    std::thread::sleep(Duration::from_millis(50));
                    writer.write_all(b"x")?;
                    writer.flush()?;
                }
            }
            Answer::Close => return Ok(()),
            Answer::Hang => std::thread::park(),
        }
        writer.flush()?;
    }
}

/// Connects once, so that a test knows that a server took over an address.
pub fn reachable(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

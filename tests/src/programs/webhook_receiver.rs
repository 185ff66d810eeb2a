//! A real HTTP server that takes webhooks and notes when each came. Deliberately shares no code with the collector.

use anyhow::Result;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One webhook as it arrived.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// When its last byte was read, Unix ns.
    pub received_unix_ns: u64,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    /// The JSON body.
    pub body: serde_json::Value,
}

/// Listens on loopback; keeps what came.
#[derive(Debug)]
pub struct WebhookReceiver {
    address: SocketAddr,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
}

/// More than any test sends; beyond it deliveries are refused with 507 so that a loop cannot eat the machine.
const DELIVERIES_MAX: usize = 100_000;

impl WebhookReceiver {
    /// Starts to listen on a free loopback port.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let deliveries = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&deliveries);
        std::thread::Builder::new().name("webhook-receiver".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || {
                    // A sender that goes away mid-request has delivered nothing.
                    let _ = serve(stream, &kept);
                });
            }
        })?;
        Ok(Self { address, deliveries })
    }

    /// What to give to `--webhook`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// What came so far, in order of arrival.
    #[must_use]
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries.lock().map(|kept| kept.clone()).unwrap_or_default()
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn serve(stream: TcpStream, kept: &Mutex<Vec<Delivery>>) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
        let length: usize = headers
            .iter()
            .find(|(name, _)| name == "content-length")
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let received_unix_ns = unix_ns();
        let status = match (serde_json::from_slice(&body), kept.lock()) {
            (Ok(body), Ok(mut kept)) if kept.len() < DELIVERIES_MAX => {
                kept.push(Delivery { received_unix_ns, headers, body });
                "204 No Content"
            }
            (Ok(_), _) => "507 Insufficient Storage",
            (Err(_), _) => "400 Bad Request",
        };
        // One write: in pieces, the second would wait for the acknowledgement of the first.
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        writer.write_all(answer.as_bytes())?;
    }
}

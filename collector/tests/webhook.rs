//! Alerts against real receivers: good, failing, hanging and slow ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::{QUICK, Serve, overflow, wait_for};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use tailwater::webhook::sign;

#[derive(Debug, Clone)]
struct Got {
    id: String,
    timestamp: u64,
    signature: Option<String>,
    body: Vec<u8>,
}

impl Got {
    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Deliveries = Arc<Mutex<Vec<Got>>>;

/// Answers the nth request (from 0) with `status(n)`; 0: never.
fn receiver(status: impl Fn(usize) -> u16 + Send + Sync + 'static) -> (SocketAddr, Deliveries) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let deliveries = Deliveries::default();
    let (kept, status) = (Arc::clone(&deliveries), Arc::new(status));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (kept, status) = (Arc::clone(&kept), Arc::clone(&status));
            std::thread::spawn(move || {
                let mut writer = stream.try_clone().unwrap();
                let mut reader = BufReader::new(stream);
                loop {
                    let mut head = Vec::new();
                    loop {
                        let mut line = String::new();
                        if reader.read_line(&mut line).unwrap_or(0) == 0 {
                            return;
                        }
                        if line == "\r\n" {
                            break;
                        }
                        head.push(line.trim_end().to_owned());
                    }
                    let header = |name: &str| {
                        head.iter().find_map(|l| {
                            l.to_lowercase().starts_with(name).then(|| l[name.len()..].trim().to_owned())
                        })
                    };
                    let mut body = vec![0; header("content-length:").unwrap().parse().unwrap()];
                    reader.read_exact(&mut body).unwrap();
                    let nth = {
                        let mut kept = kept.lock().unwrap();
                        kept.push(Got {
                            id: header("webhook-id:").unwrap(),
                            timestamp: header("webhook-timestamp:").unwrap().parse().unwrap(),
                            signature: header("webhook-signature:"),
                            body,
                        });
                        kept.len() - 1
                    };
                    match status(nth) {
                        0 => std::thread::park(),
                        code => write!(writer, "HTTP/1.1 {code} X\r\nContent-Length: 0\r\n\r\n").unwrap(),
                    }
                }
            });
        }
    });
    (address, deliveries)
}

fn closed(deliveries: &Deliveries) -> Vec<Got> {
    wait_for("the closing message", || {
        let got = deliveries.lock().unwrap().clone();
        got.iter().any(|g| g.json()["type"] == "incident.closed").then_some(got)
    })
}

#[test]
fn the_first_drop_the_cause_and_the_end_are_told_once_each_and_signed() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let (address, deliveries) = receiver(|_| 204);
    let url = format!("http://{address}/hook");
    let serve = Serve::start(
        folder.path(),
        &["--webhook", &url, "--webhook-secret-file", secret.to_str().unwrap(), QUICK[0], QUICK[1]],
    );
    overflow(&serve, "a");
    let got = closed(&deliveries);
    let first = got[0].json();
    assert_eq!(
        (&first["type"], &first["data"]["version"]),
        (&"incident.opened".into(), &0.into()),
        "before any window"
    );
    assert!(first["timestamp"].as_str().unwrap().ends_with('Z'));
    let mut ids: Vec<_> = got.iter().map(|g| g.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), got.len(), "no message twice: {ids:?}");
    assert!(got.len() <= 4, "changes of meaning only: {got:#?}");
    let key = [
        49, 242, 144, 246, 191, 6, 41, 138, 171, 79, 8, 212, 60, 63, 8, 44, 246, 72, 163, 98, 218, 45, 164,
        176,
    ];
    for g in &got {
        let want = sign(&key, &g.id, g.timestamp, &g.body);
        assert_eq!(g.signature.as_deref(), Some(want.as_str()));
    }
}

#[test]
fn a_receiver_that_fails_gets_the_same_message_again_and_a_refusal_is_final() {
    let folder = tempfile::tempdir().unwrap();
    let (address, deliveries) = receiver(|n| [500, 429][..].get(n).copied().unwrap_or(200));
    let (other, refused) = receiver(|_| 410);
    let urls = format!("http://{address}/a,http://{other}/b");
    let serve = Serve::start(folder.path(), &["--webhook", &urls, QUICK[0], QUICK[1]]);
    overflow(&serve, "a");
    let got = closed(&deliveries);
    assert_eq!(got[0].id, got[1].id, "the id tells a retry");
    assert!(serve.metric("tailwater_webhook_deliveries_total{result=\"retried\"}") >= 2);
    let got = closed(&refused);
    let mut ids: Vec<_> = got.iter().map(|g| g.id.clone()).collect();
    ids.dedup();
    assert_eq!(ids.len(), got.len(), "410 is not tried again");
}

#[test]
fn a_receiver_that_hangs_delays_neither_another_receiver_nor_the_incident() {
    let folder = tempfile::tempdir().unwrap();
    let (hangs, stuck) = receiver(|_| 0);
    let (works, deliveries) = receiver(|_| 200);
    let urls = format!("http://{hangs}/a,http://{works}/b");
    let serve = Serve::start(folder.path(), &["--webhook", &urls, QUICK[0], QUICK[1]]);
    overflow(&serve, "a");
    let got = closed(&deliveries);
    assert_eq!(serve.json("/api/v1/incidents?state=closed")["incidents"].as_array().unwrap().len(), 1);
    let received_s = got[0].timestamp;
    let dropped_s = got[0].json()["data"]["start_unix_ns"].as_u64().unwrap() / 1_000_000_000;
    assert!(received_s <= dropped_s + 1, "{received_s} {dropped_s}");
    assert_eq!(stuck.lock().unwrap().len(), 1, "one try hangs; what came later waits behind it");
}

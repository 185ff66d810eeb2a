//! The stream against a collector in this process: what is sent first, sent again, given up, and said when refused.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

mod support;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Collector, Connection, First};
use tailwater_agent::clock::Clock;
use tailwater_agent::config::TlsFiles;
use tailwater_agent::name::workload::{Device, Named};
use tailwater_agent::stream::outbox::Outbox;
use tailwater_agent::stream::{Control, Stream};
use tailwater_proto::v1::{self, agent_message::Body, collector_message::Body as Said};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

const WELCOME: First = First::Welcome { last_sequence: 0 };

#[derive(Default)]
struct Rest {
    configured: Mutex<Vec<v1::Configuration>>,
    /// The operator takes no configuration.
    refuses: bool,
}

impl Control for Rest {
    fn status(&self) -> v1::AgentStatus {
        v1::AgentStatus { resident_bytes: 7, ..v1::AgentStatus::default() }
    }
    fn configure(&self, configuration: &v1::Configuration) {
        self.configured.lock().unwrap().push(configuration.clone());
    }
    fn takes_configuration(&self) -> bool {
        !self.refuses
    }
}

/// What the stream logs on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    async fn says(&self, text: &str) {
        let found = async {
            while !String::from_utf8_lossy(&self.0.lock().unwrap()).contains(text) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(30), found).await.is_err() {
            panic!("the log never says {text:?}:\n{}", String::from_utf8_lossy(&self.0.lock().unwrap()));
        }
    }
}

struct Agent {
    outbox: Arc<Outbox>,
    rest: Arc<Rest>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn agent(url: &str, tls: Option<TlsFiles>, batches_max: usize) -> Agent {
    agent_with(url, tls, batches_max, Rest::default())
}

fn agent_with(url: &str, tls: Option<TlsFiles>, batches_max: usize, rest: Rest) -> Agent {
    let outbox = Arc::new(Outbox::new(batches_max));
    outbox.set_hello(v1::Hello { host: "web-1".to_owned(), ..v1::Hello::default() });
    let rest = Arc::new(rest);
    let stop = CancellationToken::new();
    let stream = Stream {
        url: url.to_owned(),
        tls,
        outbox: outbox.clone(),
        control: rest.clone(),
        clock: Clock::new(0),
    };
    let task = tokio::spawn(stream.run(stop.clone()));
    Agent { outbox, rest, stop, task }
}

impl Agent {
    fn push(&self, batches: u64) {
        for _ in 0..batches {
            self.outbox.push(v1::WindowBatch { window_count: 2, ..v1::WindowBatch::default() }, 0);
        }
    }
}

fn url(collector: &Collector) -> String {
    format!("http://{}", collector.address)
}

fn hello(body: Body) -> Option<v1::Hello> {
    match body {
        Body::Hello(hello) => Some(hello),
        _ => None,
    }
}

#[tokio::test]
async fn introduces_itself_names_entities_and_probes_the_clock() {
    let mut collector = Collector::plain("127.0.0.1:0", WELCOME).await;
    let agent = agent(&url(&collector), None, 10);
    agent.outbox.name(vec![Named::Device(Device { id: 1, name: "sda".to_owned() })]);
    agent.push(1);
    let mut connection = collector.connection().await;
    let first = connection.next("hello", hello).await;
    assert_eq!((first.host.as_str(), first.protocol_min, first.protocol_max), ("web-1", 1, 1));
    let mut order = Vec::new();
    while order.last() != Some(&"batch") {
        let what = connection
            .next("entities or batch", |b| match b {
                Body::Entities(_) => Some("entities"),
                Body::Batch(_) => Some("batch"),
                _ => None,
            })
            .await;
        order.push(what);
    }
    assert_eq!(order, ["entities", "batch"]);
    let probe = |b| match b {
        Body::ClockProbe(p) => Some(p),
        _ => None,
    };
    let probe = connection.next("clock probe", probe).await;
    let reply = v1::ClockReply {
        id: probe.id,
        agent_unix_ns: probe.agent_unix_ns,
        collector_receive_unix_ns: probe.agent_unix_ns + 3_600_000_000_000,
        collector_send_unix_ns: probe.agent_unix_ns + 3_600_000_000_000,
    };
    connection.say(Said::ClockReply(reply)).await;
    let status = |b| match b {
        Body::Status(s) if s.clock_error_ns > 0 => Some(s),
        _ => None,
    };
    let status = connection.next("status with a clock estimate", status).await;
    assert_eq!(status.resident_bytes, 7);
    let hour = 3_600_000_000_000_i64;
    assert!((status.clock_offset_ns - hour).unsigned_abs() <= status.clock_error_ns, "{status:?}");
    connection.say(Said::Ack(v1::Ack { sequence: 1 })).await;
    agent.outbox.close();
    agent.stop.cancel();
    agent.task.await.unwrap();
}

#[tokio::test]
async fn the_collector_of_this_machine_is_met_at_its_socket_and_may_say_what_to_measure() {
    let mut collector = Collector::plain("127.0.0.1:0", WELCOME).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agents.sock");
    let socket = UnixListener::bind(&path).unwrap();
    let to = collector.address;
    let passing = tokio::spawn(async move {
        while let Ok((mut here, _)) = socket.accept().await {
            let mut there = tokio::net::TcpStream::connect(to).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut here, &mut there).await });
        }
    });
    let agent = agent(&format!("unix://{}", path.display()), None, 10);
    let mut connection = collector.connection().await;
    assert_eq!(connection.next("hello", hello).await.host, "web-1");
    switch_off(&connection).await;
    taken(&agent).await;
    agent.stop.cancel();
    passing.abort();
}

#[tokio::test]
async fn a_socket_without_a_collector_is_told_with_the_remedy() {
    let (log, _guard) = Log::start();
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(&format!("unix://{}/agents.sock", folder.path().display()), None, 10);
    log.says("nobody listens there; start `tailwater serve` on this machine").await;
    agent.stop.cancel();
}

/// Everything off, as somebody would say it who listens in the collector's place.
async fn switch_off(connection: &Connection) {
    let disabled = (1..=9).collect();
    let all_off = v1::Configuration { version: 3, windows_per_batch: 64, disabled };
    connection.say(Said::Configuration(all_off)).await;
}

/// Waits until the agent was told what to measure.
async fn taken(agent: &Agent) {
    let taken = async {
        while agent.rest.configured.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), taken).await.expect("it is taken");
}

#[tokio::test]
async fn a_configuration_is_taken_from_a_collector_that_proves_itself_and_from_no_other() {
    let (log, _guard) = Log::start();
    let mut anybody = Collector::plain("127.0.0.1:0", WELCOME).await;
    let deaf = agent(&url(&anybody), None, 1);
    let connection = anybody.connection().await;
    switch_off(&connection).await;
    log.says("sent a configuration, which is not taken").await;
    assert!(deaf.rest.configured.lock().unwrap().is_empty());
    deaf.stop.cancel();
    let pki = Pki::new("ours");
    let (mut collector, url) = pki.collector().await;
    let agent = agent(&url, Some(pki.agent_files(&pki)), 1);
    let connection = collector.connection().await;
    switch_off(&connection).await;
    taken(&agent).await;
    assert_eq!(agent.rest.configured.lock().unwrap()[0].version, 3);
    agent.stop.cancel();
}

/// Fails if what the operator refuses is taken from a collector that proves itself, or if the log is silent of it, warns, or says it at each.
#[tokio::test]
async fn a_configuration_that_the_operator_refuses_is_told_once_and_not_taken() {
    let (log, _guard) = Log::start();
    let pki = Pki::new("ours");
    let (mut collector, url) = pki.collector().await;
    let rest = Rest { refuses: true, ..Rest::default() };
    let agent = agent_with(&url, Some(pki.agent_files(&pki)), 10, rest);
    agent.push(1);
    let mut connection = collector.connection().await;
    assert_eq!(connection.batch().await.sequence, 1);
    switch_off(&connection).await;
    switch_off(&connection).await;
    // Heard after both.
    let reason = "the last word".to_owned();
    connection.say(Said::BatchRefused(v1::BatchRefused { sequence: 1, reason })).await;
    log.says("refused a batch: the last word").await;
    let text = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    let told: Vec<&str> = text.lines().filter(|line| line.contains("take_configuration = false")).collect();
    assert!(told.len() == 1 && told[0].contains("INFO"), "{text}");
    assert!(agent.rest.configured.lock().unwrap().is_empty());
    agent.stop.cancel();
}

#[tokio::test]
async fn sends_again_what_was_not_acknowledged_and_nothing_else() {
    let mut collector = Collector::plain("127.0.0.1:0", WELCOME).await;
    let address = collector.address.to_string();
    let agent = agent(&url(&collector), None, 100);
    agent.push(5);
    let mut connection = collector.connection().await;
    for sequence in 1..=5 {
        assert_eq!(connection.batch().await.sequence, sequence);
    }
    connection.say(Said::Ack(v1::Ack { sequence: 2 })).await;
    // Killed before it acknowledged the rest; its successor has 3 on disk.
    drop(connection);
    drop(collector);
    agent.push(1);
    let mut collector = Collector::plain(&address, First::Welcome { last_sequence: 3 }).await;
    let mut connection = collector.connection().await;
    connection.next("hello", hello).await;
    for sequence in 4..=6 {
        assert_eq!(connection.batch().await.sequence, sequence);
    }
    agent.stop.cancel();
}

#[tokio::test]
async fn keeps_the_newest_while_the_collector_is_away_and_tells_the_rest_as_lost() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (log, _guard) = Log::start();
    let agent = agent(&format!("http://{address}"), None, 4);
    log.says("Connection refused").await;
    agent.push(10);
    let mut collector = Collector::plain(&address, WELCOME).await;
    let mut connection = collector.connection().await;
    let mut received = Vec::new();
    for _ in 0..4 {
        let batch = connection.batch().await;
        received.push((batch.sequence, batch.windows_lost));
    }
    // Batches 1 to 6 were dropped for 5 to 10; what 5 and 6 had told went on to 9 and 10.
    assert_eq!(received, [(7, 2), (8, 2), (9, 4), (10, 4)]);
    let told: u64 = received.iter().map(|(_, lost)| lost).sum();
    assert_eq!(told, 6 * 2);
    assert_eq!(agent.outbox.totals().batches_dropped, 6);
    agent.stop.cancel();
}

#[tokio::test]
async fn a_drop_overtakes_the_batches_that_wait() {
    let mut collector = Collector::plain("127.0.0.1:0", WELCOME).await;
    let agent = agent(&url(&collector), None, 1_000);
    agent.push(500);
    agent.outbox.drops([v1::DropEvent { count: 9, ..v1::DropEvent::default() }].into_iter());
    let mut connection = collector.connection().await;
    let first = connection
        .next("drop or batch", |b| match b {
            Body::Drop(d) => Some(d.count),
            Body::Batch(_) => Some(0),
            _ => None,
        })
        .await;
    assert_eq!(first, 9);
    agent.stop.cancel();
}

#[tokio::test]
async fn a_refused_batch_does_not_end_the_stream() {
    let mut collector = Collector::plain("127.0.0.1:0", WELCOME).await;
    let (log, _guard) = Log::start();
    let agent = agent(&url(&collector), None, 10);
    agent.push(1);
    let mut connection = collector.connection().await;
    assert_eq!(connection.batch().await.sequence, 1);
    let reason = "column 1[0]: malformed at byte 3".to_owned();
    connection.say(Said::BatchRefused(v1::BatchRefused { sequence: 1, reason })).await;
    log.says("refused a batch: column 1[0]: malformed at byte 3").await;
    agent.push(1);
    let batch = connection.batch().await;
    assert_eq!((batch.sequence, batch.windows_lost), (2, 2));
    agent.stop.cancel();
}

#[tokio::test]
async fn a_refusal_is_told_in_the_collectors_words_and_tried_again() {
    let refusal = First::Refusal { reason: "host web-1 is connected already", retry: true };
    let mut collector = Collector::plain("127.0.0.1:0", refusal).await;
    let (log, _guard) = Log::start();
    let agent = agent(&url(&collector), None, 10);
    log.says("refused this agent: host web-1 is connected already").await;
    collector.connection().await;
    collector.connection().await;
    agent.stop.cancel();
    agent.task.await.unwrap();
}

#[tokio::test]
async fn plaintext_stays_on_loopback() {
    let (log, _guard) = Log::start();
    let agent = agent("http://192.0.2.1:4781", None, 10);
    log.says("plaintext to 192.0.2.1:4781 is refused, which is not loopback; use https://").await;
    agent.stop.cancel();
}

#[tokio::test]
async fn stopping_with_the_collector_away_does_not_wait() {
    let agent = agent("http://127.0.0.1:1", None, 10);
    agent.push(1);
    agent.outbox.close();
    agent.stop.cancel();
    tokio::time::timeout(Duration::from_secs(2), agent.task).await.unwrap().unwrap();
}

/// An authority with one certificate below it, written to files.
struct Pki {
    folder: tempfile::TempDir,
    authority: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Pki {
    fn new(name: &str) -> Self {
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
        Self { folder: tempfile::tempdir().unwrap(), authority }
    }

    /// A certificate for loopback, as PEM: certificate and key.
    fn issue(&self) -> (String, String) {
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Files of an agent with a certificate of ours that trusts `trusted`.
    fn agent_files(&self, trusted: &Pki) -> TlsFiles {
        let (cert, key) = self.issue();
        let files =
            TlsFiles { cert: self.path("crt"), key: self.path("key"), ca: self.path("ca"), joined: false };
        std::fs::write(&files.cert, cert).unwrap();
        std::fs::write(&files.key, key).unwrap();
        std::fs::write(&files.ca, trusted.authority.pem()).unwrap();
        files
    }

    /// A server with a certificate of ours that takes clients of ours only.
    fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients =
            rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
                .build()
                .unwrap();
        let (cert, key) = self.issue();
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        tokio_rustls::TlsAcceptor::from(Arc::new(config))
    }

    async fn collector(&self) -> (Collector, String) {
        let collector = Collector::start("127.0.0.1:0", WELCOME, Some(self.acceptor())).await;
        let url = format!("https://{}", collector.address);
        (collector, url)
    }
}

#[tokio::test]
async fn mutual_tls_and_a_certificate_that_is_renewed_without_a_restart() {
    let pki = Pki::new("ours");
    let (mut collector, url) = pki.collector().await;
    let files = pki.agent_files(&pki);
    let agent = agent(&url, Some(files.clone()), 10);
    agent.push(1);
    let mut connection = collector.connection().await;
    assert_eq!(connection.batch().await.sequence, 1);
    let (cert, key) = pki.issue();
    std::fs::write(&files.key, key).unwrap();
    std::fs::write(&files.cert, cert).unwrap();
    let mut connection = collector.connection().await;
    assert_eq!(connection.batch().await.sequence, 1, "not acknowledged on the old connection");
    agent.stop.cancel();
}

#[tokio::test]
async fn a_handshake_that_the_agent_refuses() {
    let (ours, other) = (Pki::new("ours"), Pki::new("other"));
    let (_collector, url) = ours.collector().await;
    let (log, _guard) = Log::start();
    let agent = agent(&url, Some(ours.agent_files(&other)), 10);
    log.says("this agent refused the collector's certificate: it is not signed by the authority in tls.ca")
        .await;
    agent.stop.cancel();
}

#[tokio::test]
async fn a_handshake_that_the_collector_refuses() {
    let (ours, other) = (Pki::new("ours"), Pki::new("other"));
    let (_collector, url) = ours.collector().await;
    let (log, _guard) = Log::start();
    let agent = agent(&url, Some(other.agent_files(&ours)), 10);
    log.says("the collector refused this agent (TLS alert ").await;
    log.says("tls.cert must be signed by the authority that the collector trusts").await;
    agent.stop.cancel();
}

#[tokio::test]
async fn a_collector_that_does_not_speak_tls() {
    let pki = Pki::new("ours");
    let collector = Collector::plain("127.0.0.1:0", WELCOME).await;
    let (log, _guard) = Log::start();
    let agent = agent(&format!("https://{}", collector.address), Some(pki.agent_files(&pki)), 10);
    log.says("the collector's port does not speak TLS").await;
    agent.stop.cancel();
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let pki = Pki::new("ours");
    let (_collector, url) = pki.collector().await;
    let (log, _guard) = Log::start();
    let mut files = pki.agent_files(&pki);
    files.key = Path::new("/nonexistent/agent.key").to_owned();
    let agent = agent(&url, Some(files), 10);
    log.says("tls.key = /nonexistent/agent.key: No such file or directory").await;
    agent.stop.cancel();
}

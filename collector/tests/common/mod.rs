//! A real `tailwater serve` process, and an agent made of nothing but a gRPC client that sends raw bytes.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "tests need the time of day and deadlines")]
#![allow(unreachable_pub, reason = "a module of several tests")]
#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

pub mod application;
pub mod browser;
pub mod certificates;
pub mod shows;

use prost::Message;
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailwater_proto::columnar::TableBuilder;
use tailwater_proto::encoded::{Encoded, STREAM};
use tailwater_proto::v1::{
    self, AgentMessage, CollectorMessage, EntityKind, Hello, Metric, Signal, WindowBatch,
    agent_message::Body, collector_message::Body as Reply,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::Bytes;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

pub const WINDOW_NS: u64 = 50_000_000;

/// What an agent that lost nothing says of that.
pub fn nothing_lost() -> Vec<v1::Loss> {
    vec![v1::Loss { what: "net_connections_untracked".to_owned(), count: 0 }]
}

pub fn unix_ns() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    // A guard against waiting for ever, no measure of speed: the machine may be busy with something else.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited 60 s for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder in memory, where the machine has such a place: for what is promised of a collector whose disk is not busy with something else.
pub fn folder_in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// An address that stays free until the collector takes it, also across its restarts: below the range from which the kernel takes the
/// ports of clients, and another one each time. Another program of tests does not get it as long as this one lasts.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static TAKEN: Mutex<Vec<File>> = Mutex::new(Vec::new());
    // For each user, because nobody may write what another one made.
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    let folder = std::env::temp_dir().join(format!("tailwater-test-ports-{user}"));
    std::fs::create_dir_all(&folder).unwrap();
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(61));
        let port = 10_000 + u16::try_from(n % 20_000).unwrap();
        let mark = File::create(folder.join(port.to_string())).unwrap();
        match mark.try_lock() {
            Err(TryLockError::WouldBlock) => continue,
            locked => locked.unwrap(),
        }
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            TAKEN.lock().unwrap().push(mark);
            return listener.local_addr().unwrap();
        }
    }
}

/// GET: status and body.
pub fn get(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    ask(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"))
}

/// POST of JSON: status and body.
pub fn post(address: SocketAddr, path: &str, json: &str) -> std::io::Result<(u16, String)> {
    let length = json.len();
    ask(
        address,
        &format!(
            "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}"
        ),
    )
}

/// Sends these bytes; status and body of the answer.
pub fn ask(address: SocketAddr, request: &str) -> std::io::Result<(u16, String)> {
    let (head, body) = answer(address, request)?;
    let code = head.split(' ').nth(1).and_then(|c| c.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((code, body))
}

/// Sends these bytes; head and body of the answer.
pub fn answer(address: SocketAddr, request: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((head.to_owned(), body.to_owned()))
}

/// Sends these bytes; the status of the answer.
pub fn exchange(address: SocketAddr, request: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

pub fn tailwater() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailwater"));
    // No configuration of the machine that runs the tests.
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// `tailwater serve`; killed when dropped.
pub struct Serve {
    child: Child,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    log: PathBuf,
}

impl Serve {
    pub fn start(folder: &Path, extra: &[&str]) -> Self {
        Self::start_at(folder, free_address(), free_address(), extra)
    }

    pub fn start_at(folder: &Path, grpc: SocketAddr, http: SocketAddr, extra: &[&str]) -> Self {
        Self::start_with(folder, &grpc.to_string(), grpc, http, extra, &[])
    }

    /// With these variables of environment.
    pub fn start_in(folder: &Path, variables: &[(&str, &str)], extra: &[&str]) -> Self {
        let (grpc, http) = (free_address(), free_address());
        Self::start_with(folder, &grpc.to_string(), grpc, http, extra, variables)
    }

    /// As the collector of one machine: agents meet it at a socket.
    pub fn start_local(folder: &Path, socket: &Path) -> Self {
        let (none, url) = (SocketAddr::from(([0; 4], 0)), format!("unix://{}", socket.display()));
        Self::start_with(folder, &url, none, free_address(), &[], &[])
    }

    fn start_with(
        folder: &Path,
        said: &str,
        grpc: SocketAddr,
        http: SocketAddr,
        extra: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let log = folder.join("log");
        let file = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let child = tailwater()
            .args(["serve", "--grpc", said, "--http", &http.to_string(), "--data"])
            .arg(folder.join("data"))
            .args(extra)
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        let mut serve = Self { child, grpc, http, log };
        wait_for("the collector to be ready", || {
            if let Some(status) = serve.child.try_wait().unwrap() {
                panic!("serve exited: {status}\n{}", serve.log());
            }
            get(http, "/readyz").is_ok_and(|(code, _)| code == 200).then_some(())
        });
        serve
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn wait_log(&self, text: &str) -> String {
        wait_for(&format!("the log line \"{text}\" in\n{}", self.log()), || {
            self.log().lines().find(|line| line.contains(text)).map(str::to_owned)
        })
    }

    pub fn json(&self, path: &str) -> serde_json::Value {
        let (code, body) = get(self.http, path).unwrap();
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub fn metric(&self, line_begin: &str) -> u64 {
        let (_, body) = get(self.http, "/metrics").unwrap();
        body.lines().find_map(|line| line.strip_prefix(line_begin)?.trim().parse().ok()).unwrap_or(0)
    }

    /// The most that it ever had in memory.
    pub fn resident_kib_most(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Names of its threads with their nice values, the first one first.
    pub fn threads(&self) -> Vec<(String, i32)> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.child.id()));
        let mut ids: Vec<u32> = std::fs::read_dir(&tasks)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        ids.sort_unstable();
        // One that has ended meanwhile is none.
        let of = |id: &u32| {
            let text = std::fs::read_to_string(tasks.join(id.to_string()).join("stat")).ok()?;
            let (before, after) = text.rsplit_once(") ")?;
            Some((before.split_once('(')?.1.to_owned(), after.split(' ').nth(16)?.parse().ok()?))
        };
        ids.iter().filter_map(of).collect()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; its exit status and how long it took.
    pub fn terminate(mut self) -> (ExitStatus, Duration) {
        let begun = Instant::now();
        let status =
            Command::new("sh").args(["-c", &format!("kill -TERM {}", self.child.id())]).status().unwrap();
        assert!(status.success());
        let status = wait_for("the collector to end", || self.child.try_wait().unwrap());
        (status, begun.elapsed())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// New versions of incidents as they are told, in their order.
pub struct Live(BufReader<TcpStream>);

impl Live {
    /// Everything that is told after this.
    pub fn open(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "GET /api/v1/live HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
        let mut from = BufReader::new(stream);
        let mut line = String::new();
        // The head is sent once the subscription is made.
        while line != "\r\n" {
            line.clear();
            assert!(from.read_line(&mut line).unwrap() > 0, "no live events");
        }
        Self(from)
    }

    pub fn next(&mut self) -> serde_json::Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "live events ended");
            if let Some(data) = line.strip_prefix("data:") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

/// An agent's stream, by hand.
pub struct Agent {
    to: mpsc::Sender<Bytes>,
    from: Streaming<CollectorMessage>,
    _channel: Channel,
}

impl Agent {
    pub async fn connect(address: SocketAddr, hello: Hello) -> Self {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Self::over(channel, hello).await.unwrap()
    }

    pub async fn over(channel: Channel, hello: Hello) -> Result<Self, Status> {
        let (to, messages) = mpsc::channel(64);
        to.try_send(encode(Body::Hello(hello))).unwrap();
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.map_err(|e| Status::unavailable(format!("{e:?}")))?;
        let path = tonic::codegen::http::uri::PathAndQuery::from_static(STREAM);
        let answer = grpc.streaming(Request::new(ReceiverStream::new(messages)), path, Encoded).await?;
        Ok(Self { to, from: answer.into_inner(), _channel: channel })
    }

    pub async fn say(&self, body: Body) {
        self.raw(encode(body)).await;
    }

    pub async fn raw(&self, bytes: Bytes) {
        self.to.send(bytes).await.unwrap();
    }

    /// False: the stream is gone.
    pub async fn try_say(&self, body: Body) -> bool {
        self.to.send(encode(body)).await.is_ok()
    }

    pub async fn hear(&mut self) -> Reply {
        let message = tokio::time::timeout(Duration::from_secs(60), self.from.message()).await;
        message.expect("an answer within 60 s").unwrap().expect("not the end").body.unwrap()
    }

    pub async fn welcome(&mut self) -> v1::Welcome {
        match self.hear().await {
            Reply::Welcome(welcome) => welcome,
            other => panic!("not a welcome: {other:?}"),
        }
    }

    pub async fn refused(&mut self) -> String {
        match self.hear().await {
            Reply::Refusal(refusal) => refusal.reason,
            Reply::BatchRefused(refused) => refused.reason,
            other => panic!("not a refusal: {other:?}"),
        }
    }

    /// What has come by now, if anything has.
    pub async fn heard(&mut self) -> Option<Reply> {
        tokio::time::timeout(Duration::ZERO, self.hear()).await.ok()
    }

    /// Until all up to this one are acknowledged, be it each or several at once.
    pub async fn acked_up_to(&mut self, sequence: u64) {
        let mut before = 0;
        while before < sequence {
            let acked = self.acked().await;
            assert!(acked > before && acked <= sequence, "{acked} after {before}, of {sequence}");
            before = acked;
        }
    }

    pub async fn acked(&mut self) -> u64 {
        match self.hear().await {
            Reply::Ack(ack) => ack.sequence,
            other => panic!("not an acknowledgement: {other:?}"),
        }
    }
}

pub fn encode(body: Body) -> Bytes {
    AgentMessage { body: Some(body) }.encode_to_vec().into()
}

pub fn hello(host: &str, instance: &str) -> Hello {
    let signals = [Signal::Cpu, Signal::RunQueue, Signal::AcceptQueue, Signal::Requests, Signal::Calls];
    Hello {
        protocol_min: 1,
        protocol_max: 1,
        host: host.into(),
        boot_id: format!("boot of {host}"),
        agent_instance: instance.into(),
        agent_version: "0.0.0".into(),
        cpus: 2,
        coverage: signals
            .iter()
            .map(|s| v1::SignalCoverage { signal: *s as i32, covered: true, ..Default::default() })
            .collect(),
        addresses: vec![vec![10, 0, 0, 1]],
        window_ns: WINDOW_NS,
        ..Hello::default()
    }
}

pub fn names() -> Body {
    let workload =
        v1::Workload { id: 1, name: "apache2.service".into(), comm: "apache2".into(), ..Default::default() };
    let listener = v1::Listener { id: 5, workload: 1, address: vec![0; 4], port: 80, ..Default::default() };
    Body::Entities(v1::Entities {
        workloads: vec![workload],
        listeners: vec![listener],
        ..Default::default()
    })
}

/// One window of listener 5.
pub fn batch(sequence: u64, window: u64, drops: u64) -> WindowBatch {
    let mut host = TableBuilder::new(EntityKind::Host, 1);
    host.set(0, 0, Metric::CpuBusyNs, 0, 20_000_000);
    host.set(0, 0, Metric::CpuCapacityNs, 0, 100_000_000);
    let mut workload = TableBuilder::new(EntityKind::Workload, 1);
    workload.set(1, 0, Metric::CpuBusyNs, 0, 20_000_000);
    workload.set(1, 0, Metric::RunQueueWaitNs, 0, 0);
    let full = drops > 0;
    let mut listener = TableBuilder::new(EntityKind::Listener, 1);
    let values = [
        (Metric::AcceptQueueDepthMax, if full { 129 } else { 1 }),
        (Metric::AcceptQueueDepthLast, if full { 129 } else { 0 }),
        (Metric::AcceptQueueLimit, 128),
        (Metric::AcceptQueueArrivals, 50),
        (Metric::AcceptQueueAccepts, 50),
        (Metric::ListenDrops, drops),
        (Metric::RequestsReceived, 50),
        (Metric::RequestsAnswered, if full { 5 } else { 50 }),
        (Metric::RequestsInFlightMax, if full { 150 } else { 3 }),
        (Metric::RequestsInFlightLast, if full { 150 } else { 1 }),
        (Metric::RequestsInFlightNs, if full { 150 * WINDOW_NS } else { WINDOW_NS }),
        (Metric::WorkersBusyMax, if full { 150 } else { 3 }),
        (Metric::WorkersSeen, 150),
        (Metric::ResponseTimeNs, 50 * 2_000_000),
    ];
    for (metric, value) in values {
        listener.set(5, 0, metric, 0, value);
    }
    // 1 ms to 2 ms; while it is full, half a second or more.
    for (bucket, answers) in [(0, 0), (10, if full { 0 } else { 50 }), (19, if full { 5 } else { 0 })] {
        listener.set(5, 0, Metric::ResponseTimeHist, bucket, answers);
    }
    WindowBatch {
        sequence,
        first_window: window,
        window_count: 1,
        flags: vec![0],
        tables: vec![host.build(), workload.build(), listener.build()],
        ..WindowBatch::default()
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Waits until window `index` has ended, as an agent does before it sends it.
pub async fn until_ended(index: u64) {
    let end = (index + 1) * WINDOW_NS;
    tokio::time::sleep(Duration::from_nanos(end.saturating_sub(unix_ns()))).await;
}

/// Half a second without drops ends an incident, so that tests need not wait for longer.
pub const QUICK: [&str; 2] = ["--set", "analysis.quiet_ns=500000000"];

/// One overflow as it happens: quiet windows, a drop notice, six windows with three drops each, and quiet ones until it is over.
pub fn overflow(serve: &Serve, instance: &str) {
    runtime().block_on(async {
        let mut agent = Agent::connect(serve.grpc, hello("web-1", instance)).await;
        agent.welcome().await;
        agent.say(names()).await;
        let begin = unix_ns() / WINDOW_NS;
        for n in 0..60 {
            let dropping = (20..26).contains(&n);
            if n == 20 {
                let unix_ns = (begin + n) * WINDOW_NS + 10_000_000;
                tokio::time::sleep(Duration::from_nanos(unix_ns.saturating_sub(self::unix_ns()))).await;
                let drop = v1::DropEvent {
                    listener: 5,
                    unix_ns,
                    count: 3,
                    depth: 129,
                    limit: 128,
                    sequence: 1,
                    packets: Some(3),
                    ..v1::DropEvent::default()
                };
                agent.say(Body::Drop(drop)).await;
            }
            until_ended(begin + n).await;
            agent.say(Body::Batch(batch(n + 1, begin + n, if dropping { 3 } else { 0 }))).await;
        }
        agent.acked_up_to(60).await;
    });
}

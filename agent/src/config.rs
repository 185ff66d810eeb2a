//! Configuration: one TOML file, over it environment variables, over them flags; parsed once into checked values. Owns every key,
//! its default and its limits; knows nothing of what is done with them.

pub use crate::identity::TlsFiles;
use crate::identity::{self, DEFAULT_FOLDER, Identity, IdentityError};
use crate::signal::SignalKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Prefix of every environment variable.
pub const ENV_PREFIX: &str = "TAILWATER_AGENT_";

/// Read when no `--config` is given and it exists.
pub const DEFAULT_FILE: &str = "/etc/tailwater/agent.toml";

const DEFAULT_COLLECTOR: &str = "unix:///run/tailwater/agents.sock";

/// A configuration that cannot be used. The text names the file, the line and the remedy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{place}: {problem}; {remedy}")]
pub struct ConfigError {
    /// `FILE:LINE`, or the flag or variable.
    pub place: String,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

/// What one source of configuration says; the rest comes from the next one.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Where the collector listens: unix:///PATH on this machine, https:// (mutual TLS) on others, http:// for loopback [default:
    /// unix:///run/tailwater/agents.sock]
    #[arg(long, value_name = "URL", env = "TAILWATER_AGENT_COLLECTOR")]
    pub collector: Option<String>,
    /// Name that operators know this host or scope by [default: the host name]
    #[arg(long, value_name = "NAME", env = "TAILWATER_AGENT_HOST")]
    pub host: Option<String>,
    /// Observe one cgroup subtree only: its path below the cgroup root, e.g. /lab/web
    #[arg(long, value_name = "PATH", env = "TAILWATER_AGENT_SCOPE_CGROUP")]
    pub scope_cgroup: Option<String>,
    /// Windows of 50 ms in one message, 1 to 64 [default: 2]
    #[arg(long, value_name = "N", env = "TAILWATER_AGENT_WINDOWS_PER_BATCH")]
    pub windows_per_batch: Option<u32>,
    /// Batches kept while the collector is away; beyond it the oldest is dropped and counted [default: 600]
    #[arg(long, value_name = "N", env = "TAILWATER_AGENT_BUFFERED_BATCHES")]
    pub buffered_batches: Option<usize>,
    /// Signals not to measure: cpu, run_queue, block_io, memory, accept_queue, requests, calls, retransmits, throttling
    #[arg(long, value_name = "SIGNAL,…", value_delimiter = ',', env = "TAILWATER_AGENT_DISABLED_SIGNALS")]
    pub disabled_signals: Option<Vec<String>>,
    /// Load no kernel program: poll every 50 ms what files and sockets tell
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        default_missing_value = "true",
        env = "TAILWATER_AGENT_POLL_ONLY"
    )]
    pub poll_only: Option<bool>,
    /// Look at the threads of a server that has answered nothing for 100 ms, and read from its memory who holds the lock that they wait for [default: false]
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        default_missing_value = "true",
        env = "TAILWATER_AGENT_LOCK_HOLDERS"
    )]
    pub lock_holders: Option<bool>,
    /// While something stands or is short of CPU, tell which functions run and which wait: samples each CPU some 50 times a second and reads the stacks of threads [default: false]
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        default_missing_value = "true",
        env = "TAILWATER_AGENT_STACKS"
    )]
    pub stacks: Option<bool>,
    /// Count the streams of HTTP/2 without TLS (h2c, gRPC) as requests, by the nine bytes before each frame: the one thing that is read of what
    /// programs send each other; looks at every packet of the machine, and needs CAP_NET_ADMIN [default: false]
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        default_missing_value = "true",
        env = "TAILWATER_AGENT_FRAME_HEADERS"
    )]
    pub frame_headers: Option<bool>,
    /// Do what a collector that proves who it is asks for: windows to a batch, signals left out; false: nothing of it [default: true]
    #[arg(long, value_name = "true|false", env = "TAILWATER_AGENT_TAKE_CONFIGURATION")]
    pub take_configuration: Option<bool>,
    /// After how long an answer is late, from the first byte of the request to the last of the answer, ms [default: 500]
    #[arg(long, value_name = "MS", env = "TAILWATER_AGENT_LATE_MS")]
    pub late_ms: Option<u32>,
    /// After how long it is very late, ms [default: 3000]
    #[arg(long, value_name = "MS", env = "TAILWATER_AGENT_VERY_LATE_MS")]
    pub very_late_ms: Option<u32>,
    /// CPU above which signals are shed: its own of one core plus its kernel programs' of all CPUs, 0 to 1 [default: 0.05]
    #[arg(long, value_name = "RATIO", env = "TAILWATER_AGENT_CPU_BUDGET_RATIO")]
    pub cpu_budget_ratio: Option<f64>,
    /// What to log: error, warn, info, debug, trace, or a filter such as tailwater_agent::stream=debug [default: info]
    #[arg(long, value_name = "FILTER", env = "TAILWATER_AGENT_LOG")]
    pub log: Option<String>,
    /// Folder of what `tailwater-agent join` got: collector, host and certificate are those, unless they are set, and it is renewed
    /// [default: /var/lib/tailwater-agent/identity, if there is one and neither a collector without https:// nor tls is set]
    #[arg(long, value_name = "DIR", env = "TAILWATER_AGENT_IDENTITY")]
    pub identity: Option<PathBuf>,
    /// Joins first, where this machine has no certificate of its collector: file with a token of `tailwater enroll`, or, with join_ca, of a Kubernetes
    /// service account [default: joins nobody]
    #[arg(long, value_name = "FILE", env = "TAILWATER_AGENT_JOIN_TOKEN_FILE")]
    pub join_token_file: Option<PathBuf>,
    /// The collector's authority (PEM), for tokens that do not say whom to trust: those of service accounts
    #[arg(long, value_name = "FILE", env = "TAILWATER_AGENT_JOIN_CA")]
    pub join_ca: Option<PathBuf>,
    /// Certificate, key and authority for https:// collectors
    #[command(flatten)]
    #[serde(default)]
    pub tls: TlsLayer,
    /// Databases that are asked who holds locks: in the file alone.
    #[arg(skip)]
    #[serde(default)]
    pub database: Vec<Database>,
    /// Shifts this agent's epoch: for tests of clock estimation
    #[arg(long, hide = true, allow_hyphen_values = true, env = "TAILWATER_AGENT_CLOCK_SHIFT_MS")]
    pub clock_shift_ms: Option<i64>,
    /// Makes this agent's clock run fast by this many parts in a million: for tests of clock estimation
    #[arg(long, hide = true, allow_hyphen_values = true, env = "TAILWATER_AGENT_CLOCK_DRIFT_PPM")]
    pub clock_drift_ppm: Option<i64>,
}

/// A database that is asked, when none of its requests is answered, who holds the locks that they wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// It listens on this TCP port, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// … or on the Unix socket of this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// What it is.
    pub kind: DatabaseKind,
    /// Its own client and how that gets to it: a program and its arguments.
    pub client: Vec<String>,
}

impl Database {
    /// Where it listens.
    pub fn place(&self) -> String {
        self.port.map_or_else(|| self.socket.clone().unwrap_or_default(), |port| format!("port {port}"))
    }

    /// What is wrong with it, and the remedy.
    fn fault(&self) -> Option<(String, &'static str)> {
        let of = self.place();
        if self.port.is_some() == self.socket.is_some() || self.port == Some(0) {
            return Some(("[[database]]: needs either port or socket".to_owned(), "set one of the two"));
        }
        if self.socket.as_ref().is_some_and(|path| !path.starts_with('/')) {
            let problem = format!("[[database]]: socket = {of:?} is no whole path");
            return Some((problem, "write it as the server does, e.g. /run/mysqld/mysqld.sock"));
        }
        let bytes: usize = self.client.iter().map(String::len).sum();
        if bytes > CLIENT_BYTES_MAX {
            let problem = format!("[[database]] at {of}: client has {bytes} bytes");
            return Some((problem, "leave it at 1024, and the rest in a file that it reads"));
        }
        let program = self.client.first().map_or("", String::as_str);
        if program.is_empty() {
            let problem = format!("[[database]] at {of}: client is empty");
            return Some((
                problem,
                "write the client and its arguments, e.g. [\"psql\", \"--dbname=postgres\"]",
            ));
        }
        None
    }
}

/// What a database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseKind {
    /// PostgreSQL; its client is psql.
    Postgresql,
    /// MariaDB; its client is mariadb.
    Mariadb,
}

/// Databases of one machine that are asked.
const DATABASES_MAX: usize = 8;
/// Bytes of a client and its arguments.
const CLIENT_BYTES_MAX: usize = 1_024;

/// Files of mutual TLS, by source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct TlsLayer {
    /// This agent's certificate chain (PEM)
    #[arg(long = "tls-cert", value_name = "FILE", env = "TAILWATER_AGENT_TLS_CERT")]
    pub cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long = "tls-key", value_name = "FILE", env = "TAILWATER_AGENT_TLS_KEY")]
    pub key: Option<PathBuf>,
    /// The authority that signed the collector's certificate (PEM)
    #[arg(long = "tls-ca", value_name = "FILE", env = "TAILWATER_AGENT_TLS_CA")]
    pub ca: Option<PathBuf>,
}

/// The effective configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "see Layer")]
pub struct Config {
    pub collector: String,
    pub host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_cgroup: Option<String>,
    pub windows_per_batch: u32,
    pub buffered_batches: usize,
    pub disabled_signals: BTreeSet<SignalName>,
    pub poll_only: bool,
    pub lock_holders: bool,
    pub stacks: bool,
    pub frame_headers: bool,
    pub take_configuration: bool,
    #[serde(flatten)]
    pub late: Late,
    pub cpu_budget_ratio: f64,
    pub log: String,
    #[serde(skip)]
    pub clock_shift_ms: i64,
    #[serde(skip)]
    pub clock_drift_ppm: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<PathBuf>,
    #[serde(flatten)]
    pub join: Option<Join>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    #[serde(rename = "database", skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<Database>,
}

/// By what to join a collector before anything is measured, and again where what it gave is good for nothing any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "see Layer")]
pub struct Join {
    #[serde(rename = "join_token_file")]
    pub token_file: PathBuf,
    #[serde(rename = "join_ca", skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

impl Join {
    /// The same for a process that goes elsewhere.
    pub fn absolute(self) -> std::io::Result<Self> {
        let ca = self.ca.map(std::path::absolute).transpose()?;
        Ok(Self { token_file: std::path::absolute(self.token_file)?, ca })
    }
}

/// After how long an answer is late, and very late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "see Layer")]
pub struct Late {
    pub late_ms: u32,
    pub very_late_ms: u32,
}

impl Default for Late {
    fn default() -> Self {
        Self { late_ms: 500, very_late_ms: 3_000 }
    }
}

/// The longest that is told apart: an hour, so that it fits the kernel program's microseconds.
const VERY_LATE_MAX_MS: u32 = 3_600_000;

/// A signal by its name in configuration and reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignalName(pub SignalKind);

const SIGNAL_NAMES: [(&str, SignalKind); 9] = [
    ("cpu", SignalKind::Cpu),
    ("run_queue", SignalKind::RunQueue),
    ("block_io", SignalKind::BlockIo),
    ("memory", SignalKind::Memory),
    ("accept_queue", SignalKind::AcceptQueue),
    ("requests", SignalKind::Requests),
    ("calls", SignalKind::Calls),
    ("retransmits", SignalKind::Retransmits),
    ("throttling", SignalKind::Throttling),
];

impl SignalName {
    /// Every signal.
    pub fn all() -> impl Iterator<Item = Self> {
        SIGNAL_NAMES.iter().map(|(_, kind)| Self(*kind))
    }

    /// `block_io` and so on.
    pub fn parse(name: &str) -> Option<Self> {
        let found = SIGNAL_NAMES.iter().find(|(n, _)| *n == name)?;
        Some(Self(found.1))
    }
}

impl std::fmt::Display for SignalName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = SIGNAL_NAMES.iter().find(|(_, kind)| *kind == self.0);
        f.pad(name.map_or("?", |(n, _)| n))
    }
}

impl Serialize for SignalName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads the file, if there is one, and puts `over` (flags and environment) on top.
pub fn load(file: Option<&Path>, over: Layer) -> Result<Config, ConfigError> {
    load_beside(Path::new(DEFAULT_FOLDER), file, over)
}

/// The same where what was joined is in `default_identity`, unless something says otherwise.
fn load_beside(default_identity: &Path, file: Option<&Path>, over: Layer) -> Result<Config, ConfigError> {
    let default = Path::new(DEFAULT_FILE);
    let file = file.or_else(|| default.exists().then_some(default));
    let default_identity = default_identity.to_owned();
    match file {
        None => {
            let source = Source { path: String::new(), text: String::new(), default_identity };
            effective(Layer::default(), over, &source)
        }
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| ConfigError {
                place: path.display().to_string(),
                problem: format!("cannot be read: {e}"),
                remedy: "give --config a readable file, or leave it out to run with defaults".to_owned(),
            })?;
            let source = Source { path: path.display().to_string(), text, default_identity };
            effective(source.parse()?, over, &source)
        }
    }
}

/// Variables with the agent's prefix that no key reads: a typing error there must not pass in silence.
pub fn check_environment(
    variables: impl Iterator<Item = String>,
    known: &[String],
) -> Result<(), ConfigError> {
    let unknown = variables.filter(|v| v.starts_with(ENV_PREFIX)).find(|v| !known.contains(v));
    match unknown {
        None => Ok(()),
        Some(variable) => Err(ConfigError {
            problem: "no such setting".to_owned(),
            remedy: format!("unset it, or use one of {}", known.join(", ")),
            place: format!("environment variable {variable}"),
        }),
    }
}

struct Source {
    path: String,
    text: String,
    default_identity: PathBuf,
}

impl Source {
    fn parse(&self) -> Result<Layer, ConfigError> {
        toml::from_str(&self.text).map_err(|e| {
            let message = e.message().replace('\n', " ");
            let line = e
                .span()
                .map_or(1, |span| self.text[..span.start.min(self.text.len())].matches('\n').count() + 1);
            let (problem, remedy) = match message.split_once(", expected") {
                Some((problem, expected)) if problem.starts_with("unknown field") => {
                    let problem = problem.replacen("unknown field", "unknown key", 1);
                    (problem, format!("remove it or use{}", expected.replacen(" one of", " one of:", 1)))
                }
                _ => (message, "see deploy/tailwater-agent.toml for every key".to_owned()),
            };
            ConfigError { place: format!("{}:{line}", self.path), problem, remedy }
        })
    }

    /// Where the n-th database begins: a line of the file.
    fn place_of_database(&self, n: usize) -> String {
        let heads =
            self.text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("[[database]]"));
        let line = heads.map(|(line, _)| line + 1).nth(n);
        line.map_or_else(|| self.path.clone(), |line| format!("{}:{line}", self.path))
    }

    /// Where `key` was set: a line of the file, else its flag.
    fn place(&self, key: &str, over: bool) -> String {
        let last = key.rsplit('.').next().unwrap_or(key);
        let line = self
            .text
            .lines()
            .position(|l| l.split_once('=').is_some_and(|(k, _)| k.trim().trim_matches('"') == last));
        match line {
            Some(line) if !over => format!("{}:{}", self.path, line + 1),
            _ => {
                let flag = key.replace(['.', '_'], "-");
                format!("--{flag} ({ENV_PREFIX}{})", flag.replace('-', "_").to_uppercase())
            }
        }
    }
}

fn effective(file: Layer, over: Layer, source: &Source) -> Result<Config, ConfigError> {
    let fail = |key: &str, over: bool, problem: String, remedy: &str| ConfigError {
        place: source.place(key, over),
        problem,
        remedy: remedy.to_owned(),
    };
    macro_rules! pick {
        ($key:ident) => {
            (over.$key.is_some(), over.$key.clone().or(file.$key.clone()))
        };
    }
    let given = tls_files(&file.tls, &over.tls).map_err(|missing| {
        let problem = format!("mutual TLS needs cert, key and ca; {missing} is missing");
        fail(&format!("tls.{missing}"), false, problem, &format!("set tls.{missing}, or none of the three"))
    })?;
    let (from_over, collector) = pick!(collector);
    let (identity_over, mut identity) = pick!(identity);
    let unfit = |e: IdentityError| fail("identity", identity_over, e.to_string(), "join first, or remove it");
    let (join_over, join_token_file) = pick!(join_token_file);
    let join_ca = pick!(join_ca).1;
    // Who has a certificate that somebody else made joins nobody.
    let join = join_token_file.filter(|_| given.is_none()).map(|token_file| Join { token_file, ca: join_ca });
    if join.is_some() {
        identity = identity.or_else(|| Some(source.default_identity.clone()));
    }
    let joined = match &identity {
        // What cannot be read is made anew.
        Some(folder) if join.is_some() => Identity::load(folder).ok(),
        Some(folder) => Some(Identity::load(folder).map_err(unfit)?),
        // Who says otherwise whom to speak to, and as whom, is not asked whether he has joined.
        None if given.is_none() && collector.as_ref().is_none_or(|url| url.starts_with("https://")) => {
            let held = Identity::load_default(&source.default_identity).map_err(unfit)?;
            identity = held.is_some().then(|| source.default_identity.clone());
            held
        }
        None => None,
    };
    let collector = collector
        .or_else(|| joined.as_ref().map(|of| of.collector.clone()))
        .unwrap_or_else(|| DEFAULT_COLLECTOR.to_owned());
    check_url(&collector).map_err(|problem| {
        fail(
            "collector",
            from_over,
            problem,
            "write unix:///PATH, https://NAME:PORT, or http://ADDRESS:PORT on loopback",
        )
    })?;

    if join.is_some() && !collector.starts_with("https://") {
        let problem = format!("collector {collector} is none to join: whoever joins speaks TLS");
        return Err(fail(
            "join_token_file",
            join_over,
            problem,
            "set collector to https://NAME:PORT, or remove it",
        ));
    }

    let (from_over, windows_per_batch) = pick!(windows_per_batch);
    let windows_per_batch = windows_per_batch.unwrap_or(2);
    if !(1..=64).contains(&windows_per_batch) {
        let problem = format!("windows_per_batch = {windows_per_batch} is out of range");
        return Err(fail("windows_per_batch", from_over, problem, "use 1 to 64"));
    }

    let (from_over, buffered_batches) = pick!(buffered_batches);
    let buffered_batches = buffered_batches.unwrap_or(600);
    if !(1..=100_000).contains(&buffered_batches) {
        let problem = format!("buffered_batches = {buffered_batches} is out of range");
        return Err(fail("buffered_batches", from_over, problem, "use 1 to 100000"));
    }

    let (from_over, names) = pick!(disabled_signals);
    let mut disabled_signals = BTreeSet::new();
    for name in names.unwrap_or_default() {
        let signal = SignalName::parse(&name).ok_or_else(|| {
            let known: Vec<String> = SignalName::all().map(|s| s.to_string()).collect();
            let problem = format!("disabled_signals: there is no signal {name:?}");
            fail("disabled_signals", from_over, problem, &format!("use of {}", known.join(", ")))
        })?;
        disabled_signals.insert(signal);
    }

    let (_, poll_only) = pick!(poll_only);
    let (late_over, late_ms) = pick!(late_ms);
    let (very_over, very_late_ms) = pick!(very_late_ms);
    let (key, from_over) =
        if very_late_ms.is_some() { ("very_late_ms", very_over) } else { ("late_ms", late_over) };
    let late_ms = late_ms.unwrap_or(Late::default().late_ms);
    let very_late_ms = very_late_ms.unwrap_or(Late::default().very_late_ms.max(late_ms.saturating_mul(2)));
    if late_ms == 0 || very_late_ms <= late_ms || very_late_ms > VERY_LATE_MAX_MS {
        let problem =
            format!("late_ms = {late_ms} and very_late_ms = {very_late_ms} are out of order or of range");
        let remedy = "use 1 or more for the first, and more than that, at most 3600000, for the second";
        return Err(fail(key, from_over, problem, remedy));
    }
    let late = Late { late_ms, very_late_ms };
    let (from_over, cpu_budget_ratio) = pick!(cpu_budget_ratio);
    let cpu_budget_ratio = cpu_budget_ratio.unwrap_or(0.05);
    if !(cpu_budget_ratio > 0.0 && cpu_budget_ratio <= 1.0) {
        let problem = format!("cpu_budget_ratio = {cpu_budget_ratio} is out of range");
        return Err(fail(
            "cpu_budget_ratio",
            from_over,
            problem,
            "use a share of one core above 0, at most 1",
        ));
    }

    let (from_over, scope) = pick!(scope_cgroup);
    let scope_cgroup = match scope {
        None => None,
        Some(path) => Some(scope_path(&path).ok_or_else(|| {
            let problem = format!("scope_cgroup = {path:?} is no path below the cgroup root");
            fail("scope_cgroup", from_over, problem, "write it as in /proc/PID/cgroup, e.g. /lab/web")
        })?),
    };

    let (from_over, host) = pick!(host);
    let host = host.or_else(|| joined.map(|of| of.host)).unwrap_or_else(host_name);
    if host.is_empty() || host.len() > 255 || host.chars().any(char::is_control) {
        let problem = format!("host = {host:?} is no name");
        return Err(fail("host", from_over, problem, "use 1 to 255 printable characters"));
    }

    let fault = |(n, database): (usize, &Database)| {
        let many = (n >= DATABASES_MAX)
            .then(|| (format!("[[database]] for the {}th time", n + 1), "leave it at eight"));
        let (problem, remedy) = many.or_else(|| database.fault())?;
        Some(ConfigError { place: source.place_of_database(n), problem, remedy: remedy.to_owned() })
    };
    if let Some(fault) = file.database.iter().enumerate().find_map(fault) {
        return Err(fault);
    }

    let tls = given.or_else(|| identity.as_deref().map(identity::files));
    if collector.starts_with("https://") && tls.is_none() {
        let problem = format!("collector {collector} needs mutual TLS, and there is no certificate");
        let remedy = "join it (`tailwater-agent join`) and set identity, or set tls.cert, tls.key and tls.ca";
        return Err(fail("collector", over.collector.is_some(), problem, remedy));
    }
    Ok(Config {
        collector,
        host,
        scope_cgroup,
        windows_per_batch,
        buffered_batches,
        disabled_signals,
        poll_only: poll_only.unwrap_or(false),
        lock_holders: pick!(lock_holders).1.unwrap_or(false),
        stacks: pick!(stacks).1.unwrap_or(false),
        frame_headers: pick!(frame_headers).1.unwrap_or(false),
        take_configuration: pick!(take_configuration).1.unwrap_or(true),
        late,
        cpu_budget_ratio,
        log: pick!(log).1.unwrap_or_else(|| "info".to_owned()),
        clock_shift_ms: pick!(clock_shift_ms).1.unwrap_or(0),
        clock_drift_ppm: pick!(clock_drift_ppm).1.unwrap_or(0),
        identity,
        join,
        tls,
        databases: file.database,
    })
}

fn tls_files(file: &TlsLayer, over: &TlsLayer) -> Result<Option<TlsFiles>, &'static str> {
    let pick = |a: &Option<PathBuf>, b: &Option<PathBuf>| a.clone().or_else(|| b.clone());
    let cert = pick(&over.cert, &file.cert);
    let key = pick(&over.key, &file.key);
    let ca = pick(&over.ca, &file.ca);
    if cert.is_none() && key.is_none() && ca.is_none() {
        return Ok(None);
    }
    let (cert, key, ca) = (cert.ok_or("cert")?, key.ok_or("key")?, ca.ok_or("ca")?);
    Ok(Some(TlsFiles { cert, key, ca, joined: false }))
}

fn check_url(url: &str) -> Result<(), String> {
    match url.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') && !path.ends_with('/') => return Ok(()),
        Some(_) => return Err(format!("collector = {url:?} has no whole path")),
        None => {}
    }
    let uri: tonic::transport::Uri =
        url.parse().map_err(|e| format!("collector = {url:?} is no URL: {e}"))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some() && uri.port_u16().is_some() => Ok(()),
        Some("http" | "https") => Err(format!("collector = {url:?} has no port")),
        _ => Err(format!("collector = {url:?} is none of unix://, https:// and http://")),
    }
}

/// One leading slash, no trailing one; `/` is no scope.
fn scope_path(path: &str) -> Option<String> {
    let elements: Vec<&str> = path.split('/').filter(|e| !e.is_empty()).collect();
    let plain = !elements.is_empty() && !elements.iter().any(|e| *e == ".." || *e == ".");
    plain.then(|| format!("/{}", elements.join("/")))
}

/// What the kernel calls this machine.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|n| n.trim().to_owned())
        .ok()
        .filter(|n| !n.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests;

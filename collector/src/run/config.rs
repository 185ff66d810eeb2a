//! Settings of the collector: defaults, then the file, then environment variables and flags. Owns parsing, merging and the
//! checks that need no system call; knows nothing of what the settings do.

use crate::access::config::{Access, Proxy};
use crate::access::file::TokenFile;
use crate::alert::{config as alert, rules};
use crate::authority::config::AuthorityConfig;
use crate::export;
use crate::fault;
use crate::ingest::agents::{self, Agents};
use crate::ingest::tls::Tls;
use crate::run::endpoint::Endpoint;
use crate::serve::front::HttpTls;
use crate::serve::hosts;
use crate::sla;
use crate::traces::config::Traces;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tailwater_analysis::TierRule;

/// Where the file is looked for when none is named.
pub const DEFAULT_FILE: &str = "/etc/tailwater/tailwater.toml";

/// Every setting, with its effective value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where agents connect.
    pub grpc: Endpoint,
    /// API, page and metrics.
    pub http: SocketAddr,
    /// Lets `http` be an address that is not loopback also without TLS, and without tokens: something else guards it.
    pub http_remote: bool,
    /// Names by which browsers and scrapers call it, beside `localhost` and addresses.
    pub http_hosts: Vec<String>,
    /// Folder for incidents.
    pub data: PathBuf,
    /// Filter for the log, as of tracing's EnvFilter.
    pub log: String,
    /// Writes every input of the pipeline to this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// Incidents kept; the oldest closed ones go first.
    pub incidents_max: usize,
    /// How long windows stay in memory for `explain` and the series.
    pub series_minutes: u64,
    /// And how much memory they may take, MiB; the oldest go first.
    pub series_mib_max: usize,
    /// How much the last minute of them may take where that is more, MiB; 0: a quarter of the memory that there is.
    pub series_minute_mib_max: usize,
    /// Hours that windows stay on disk at full resolution.
    pub windows_hours: u64,
    /// And how much they may take there, MiB; the oldest go first.
    pub windows_mib_max: u64,
    /// What the windows around incidents, which stay longer, may take, MiB; the oldest go first.
    pub kept_mib_max: u64,
    /// Seconds of windows in one segment: what a crash may lose of them.
    pub segment_seconds: u64,
    /// Agents connected at once.
    pub agents_max: usize,
    /// Messages of one agent that may wait for the pipeline; an agent beyond it is refused.
    pub agent_queue: usize,
    /// What is asked of agents; the first table that names a host holds.
    pub agents: Vec<Agents>,
    /// Mutual TLS for agents; required where `grpc` can be reached from elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// An authority of the collector's own, in place of `tls`, or beside it while hosts join one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<AuthorityConfig>,
    /// TLS of `http`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_tls: Option<HttpTls>,
    /// Who may do what over `http`.
    pub access: Access,
    /// Where alerts go.
    pub hook: Vec<alert::Hook>,
    /// What is not told, and when.
    pub silence: Vec<alert::Silence>,
    /// How much of what was told is kept.
    pub outbox: alert::Outbox,
    /// What `/metrics` and remote write tell apart.
    pub metrics: export::Bounds,
    /// Within how long tiers are to answer; the first that matches holds.
    pub sla: Vec<sla::Sla>,
    /// Where metrics are sent.
    pub remote_write: Vec<export::write::config::RemoteWrite>,
    /// Where OpenTelemetry metrics and logs are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<export::otlp::config::Otlp>,
    /// Whether spans are taken, and which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traces: Option<Traces>,
    /// Names and limits of tiers; the first that matches holds.
    pub tier: Vec<TierRule>,
    /// Times and thresholds of the analysis.
    pub analysis: tailwater_analysis::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            grpc: Endpoint::default(),
            http: SocketAddr::from(([127, 0, 0, 1], 4780)),
            http_remote: false,
            http_hosts: Vec::new(),
            data: PathBuf::from("/var/lib/tailwater"),
            log: "info".to_owned(),
            record: None,
            incidents_max: 1000,
            series_minutes: 10,
            series_mib_max: 256,
            series_minute_mib_max: 0,
            windows_hours: 72,
            windows_mib_max: 8192,
            kept_mib_max: 2048,
            segment_seconds: 60,
            agents_max: 1000,
            agent_queue: 256,
            agents: Vec::new(),
            tls: None,
            authority: None,
            http_tls: None,
            access: Access::default(),
            hook: Vec::new(),
            silence: Vec::new(),
            outbox: alert::Outbox::default(),
            metrics: export::Bounds::default(),
            sla: Vec::new(),
            remote_write: Vec::new(),
            otlp: None,
            traces: None,
            tier: Vec::new(),
            analysis: tailwater_analysis::Config::default(),
        }
    }
}

/// Why a configuration is refused. Ends the process with 64.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}\n  remedy: name a readable file with --config, or none to run on defaults", file.display())]
    Read {
        /// Which file.
        file: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Not TOML, an unknown key, or a value of the wrong type.
    #[error("{}:{line}: {message}\n  remedy: correct line {line}; `tailwater check-config` prints every key with its effective value", file.display())]
    Parse {
        /// Which file.
        file: PathBuf,
        /// Line of the problem, from 1.
        line: usize,
        /// What is wrong, with the keys that exist.
        message: String,
    },
    /// A flag or environment variable does not fit.
    #[error("{name}: {message}\n  remedy: correct the flag or the environment variable")]
    Override {
        /// The key.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// Settings that contradict each other or the rules.
    #[error("{0}")]
    Rule(String),
}

impl Config {
    /// Reads `file` (or the default file, if it exists), then applies `overrides`: keys with dots, values in TOML.
    pub fn load(file: Option<&Path>, overrides: &[(String, toml::Value)]) -> Result<Self, ConfigError> {
        let path = file.map_or_else(|| PathBuf::from(DEFAULT_FILE), Path::to_path_buf);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if file.is_none() && e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(ConfigError::Read { file: path, source }),
        };
        Self::with(&text, &path, overrides)
    }

    /// Defaults, then `overrides`: where no file is to be looked at.
    pub fn of(overrides: &[(String, toml::Value)]) -> Result<Self, ConfigError> {
        Self::with("", Path::new(""), overrides)
    }

    fn with(text: &str, path: &Path, overrides: &[(String, toml::Value)]) -> Result<Self, ConfigError> {
        let mut config = Self::parse(text, path)?;
        if !overrides.is_empty() {
            let mut table = toml::Table::try_from(&config).map_err(|e| ConfigError::Override {
                name: "configuration".into(),
                message: e.to_string(),
            })?;
            for (name, value) in overrides {
                set(&mut table, name, value.clone())?;
                // One at a time, so that an error names the right one.
                config = table.clone().try_into().map_err(|e: toml::de::Error| ConfigError::Override {
                    name: name.clone(),
                    message: e.message().to_owned(),
                })?;
            }
        }
        config.check()?;
        let checked = rules::check(&config.hook, &config.silence);
        let checked = checked.and_then(|()| export::write::config::check(&config.remote_write));
        let checked = checked.and_then(|()| sla::check(&config.sla));
        checked.and_then(|()| agents::check(&config.agents)).map_err(|fault| {
            // Flags and variables have no lines.
            let given = overrides
                .iter()
                .any(|(name, _)| name == fault.table || name.starts_with(&format!("{}.", fault.table)));
            located(&fault, (!given).then_some((text, path)))
        })?;
        Ok(config)
    }

    /// Parses one file's text; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            let line = text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
            ConfigError::Parse { file: path.to_owned(), line, message: e.message().trim_end().to_owned() }
        })
    }

    fn check(&self) -> Result<(), ConfigError> {
        let rule = |text: String| Err(ConfigError::Rule(text));
        if let Some(Err(broken)) = self.authority.as_ref().map(AuthorityConfig::check) {
            return rule(broken);
        }
        if !self.grpc.is_local() && self.tls.is_none() && self.authority.is_none() {
            return rule(format!(
                "grpc = \"{}\": plaintext is for loopback addresses only\n  remedy: add [authority] with names (agents then join), or [tls] with cert, key and ca, or listen on 127.0.0.1",
                self.grpc
            ));
        }
        if let (Endpoint::Unix(_), true) = (&self.grpc, self.tls.is_some() || self.authority.is_some()) {
            return rule(format!(
                "grpc = \"{}\": [tls] is for agents of other machines, which do not reach a socket of this one\n  remedy: set grpc = \"0.0.0.0:4781\", or remove [tls]",
                self.grpc
            ));
        }
        if !self.http.ip().is_loopback() && !self.http_remote && self.http_tls.is_none() {
            return rule(format!(
                "http = \"{}\": without TLS, API and page serve loopback only\n  remedy: add [http_tls] with cert and key, set http_remote = true if a proxy or firewall guards it, or listen on 127.0.0.1",
                self.http
            ));
        }
        if let Some(Err(broken)) = self.access.proxy.as_ref().map(Proxy::check) {
            return rule(broken);
        }
        if let Some(wrong) = self.http_hosts.iter().find(|name| !hosts::is_name(name)) {
            return rule(format!(
                "http_hosts: \"{wrong}\" is not the name of a host\n  remedy: give names as \"tailwater.example.org\", without scheme and port; addresses and localhost need none"
            ));
        }
        if self.agent_queue == 0 || self.agents_max == 0 || self.incidents_max == 0 {
            return rule("agent_queue, agents_max and incidents_max must be at least 1\n  remedy: leave them out for the defaults".into());
        }
        if !(1..=3600).contains(&self.segment_seconds) {
            return rule("segment_seconds: must be 1 to 3600\n  remedy: leave it out for the default".into());
        }
        if let Some(Err(broken)) = self.otlp.as_ref().map(export::otlp::config::Otlp::check) {
            return rule(broken);
        }
        if let Some(Err(broken)) = self.traces.as_ref().map(Traces::check) {
            return rule(broken);
        }
        if !self.analysis.tiers.is_empty() {
            return rule("analysis.tiers: tiers are set by [[tier]]\n  remedy: write [[tier]] instead of [[analysis.tiers]]".into());
        }
        Ok(())
    }

    /// What the store gets.
    #[must_use]
    pub fn store_settings(&self) -> crate::store::Settings {
        crate::store::Settings {
            folder: self.data.clone(),
            incidents_max: self.incidents_max,
            segment_seconds: self.segment_seconds,
            windows_hours: self.windows_hours,
            windows_mib_max: self.windows_mib_max,
            kept_mib_max: self.kept_mib_max,
        }
    }

    /// Where tokens are kept.
    #[must_use]
    pub fn token_file(&self) -> TokenFile {
        TokenFile::at(self.access.tokens.clone().unwrap_or_else(|| self.data.join("tokens.toml")))
    }

    /// Whether everybody needs a token, also before the first one is made: whoever comes from elsewhere may be anybody.
    #[must_use]
    pub fn tokens_always(&self) -> bool {
        !self.http.ip().is_loopback() && !self.http_remote
    }

    /// The page's address begins so.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.http_tls.is_some() { "https" } else { "http" }
    }

    /// What the pipeline gets.
    #[must_use]
    pub fn pipeline(&self) -> tailwater_analysis::Config {
        tailwater_analysis::Config { tiers: self.tier.clone(), ..self.analysis.clone() }
    }

    /// As TOML, every key.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|e| ConfigError::Rule(e.to_string()))
    }
}

/// The line of a broken rule: that of the key, or of its table if a key is missing.
fn located(fault: &fault::Fault, file: Option<(&str, &Path)>) -> ConfigError {
    let table = format!("[[{}]] {}", fault.table, fault.index + 1);
    let key = if fault.key.is_empty() { String::new() } else { format!(" {}", fault.key) };
    let line = file.and_then(|(text, path)| {
        let document = toml::de::DeTable::parse(text).ok()?;
        let tables = document.get_ref().get(fault.table)?.get_ref().as_array()?;
        let one = tables.get(fault.index)?;
        let keys = one.get_ref().as_table()?;
        let span =
            keys.iter().find(|(k, _)| k.get_ref() == fault.key).map_or_else(|| one.span(), |(k, _)| k.span());
        Some(format!("{}:{}: ", path.display(), text.get(..span.start)?.matches('\n').count() + 1))
    });
    let (what, remedy) = (&fault.what, &fault.remedy);
    ConfigError::Rule(format!("{}{table}{key}: {what}\n  remedy: {remedy}", line.unwrap_or_default()))
}

fn set(table: &mut toml::Table, name: &str, value: toml::Value) -> Result<(), ConfigError> {
    let (head, rest) = name.split_once('.').map_or((name, None), |(head, rest)| (head, Some(rest)));
    match rest {
        None => {
            match (table.get_mut(head), value) {
                // What it does not name stays as the file has it.
                (Some(toml::Value::Table(inner)), toml::Value::Table(more)) => inner.extend(more),
                (_, value) => {
                    table.insert(head.to_owned(), value);
                }
            }
            Ok(())
        }
        Some(rest) => match table.entry(head.to_owned()).or_insert_with(|| toml::Table::new().into()) {
            toml::Value::Table(inner) => set(inner, rest, value),
            _ => Err(ConfigError::Override {
                name: name.to_owned(),
                message: format!("{head} is not a table"),
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::tls::HostIdentity;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn files_of_flags_leave_what_else_the_file_says_of_tls() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tailwater.toml");
        let text = "[tls]\ncert='a'\nkey='b'\nca='c'\nhost_identity='certificate'\n";
        std::fs::write(&file, text).unwrap();
        let files = toml::Table::from_iter(["cert", "key", "ca"].map(|key| (key.to_owned(), "new".into())));
        let grpc = ("grpc".to_owned(), toml::Value::from("0.0.0.0:4781"));
        let tls = Config::load(Some(&file), &[grpc, ("tls".to_owned(), files.into())]).unwrap().tls.unwrap();
        assert_eq!((tls.cert.to_str(), tls.host_identity), (Some("new"), HostIdentity::Certificate));
    }

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("/etc/tailwater/tailwater.toml"))
    }

    fn with(overrides: &[(&str, toml::Value)]) -> Result<Config, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("empty.toml");
        std::fs::write(&file, "").unwrap();
        let overrides: Vec<_> = overrides.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        Config::load(Some(&file), &overrides)
    }

    /// The keys of the table at `path` ("" is the top), from what the parser says it knows; none: it is no table, or takes any key.
    fn keys_of(path: &str) -> Vec<String> {
        const UNKNOWN: &str = "a_key_that_nobody_has";
        let heads = if path.is_empty() {
            vec![String::new()]
        } else {
            vec![format!("[{path}]"), format!("[[{path}]]")]
        };
        let expected = heads.iter().find_map(|head| {
            let error = toml::from_str::<Config>(&format!("{head}\n{UNKNOWN} = 1\n")).err()?.to_string();
            let known = error.split_once(&format!("unknown field `{UNKNOWN}`, expected "))?.1;
            Some(known.split('`').skip(1).step_by(2).map(str::to_owned).collect())
        });
        expected.unwrap_or_default()
    }

    /// `path` and all tables in it, with their keys.
    fn tables(path: &str, found: &mut BTreeMap<String, Vec<String>>) {
        let keys = keys_of(path);
        for key in &keys {
            tables(
                &[path, key].iter().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>().join("."),
                found,
            );
        }
        if !keys.is_empty() {
            found.insert(path.to_owned(), keys);
        }
    }

    #[test]
    fn the_example_is_valid_with_all_its_examples_and_shows_every_key() {
        let text = include_str!("../../../deploy/tailwater.toml");
        parse(text).unwrap();
        // Keys without a default are commented out; with the marks removed they must be accepted too.
        let shown: String =
            text.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n").collect();
        parse(&shown).unwrap();
        let mut documented = BTreeSet::new();
        let mut table = String::new();
        for line in shown.lines().filter(|line| !line.starts_with('#')) {
            if line.starts_with('[') {
                table = line.trim_matches(['[', ']']).to_owned();
                documented.insert(table.clone());
            } else if let Some((key, _)) = line.split_once(" = ") {
                documented.insert(if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") });
            }
        }
        let mut known = BTreeMap::new();
        tables("", &mut known);
        // What the derivation must have found, so that an error of it is none of the documentation's.
        for table in [
            "",
            "agents",
            "tls",
            "authority",
            "authority.kubernetes",
            "http_tls",
            "access",
            "access.proxy",
            "hook",
            "silence",
            "outbox",
            "metrics",
            "sla",
            "remote_write",
            "otlp",
            "traces",
            "tier",
            "analysis",
            "analysis.thresholds",
        ] {
            assert!(known.contains_key(table), "{table}: {known:?}");
        }
        let missing: Vec<String> = known
            .iter()
            // The rules of tiers are given as [[tier]].
            .filter(|(table, _)| *table != "analysis.tiers")
            .flat_map(|(table, keys)| {
                keys.iter()
                    .map(move |key| if table.is_empty() { key.clone() } else { format!("{table}.{key}") })
            })
            .filter(|key| key != "analysis.tiers" && !documented.contains(key))
            .collect();
        assert_eq!(missing, Vec::<String>::new(), "not in deploy/tailwater.toml");
    }

    #[test]
    fn an_unknown_key_is_named_with_file_line_and_the_keys_that_exist() {
        let text = parse("log = \"info\"\n\nwebhok = []\n").unwrap_err().to_string();
        assert!(text.starts_with("/etc/tailwater/tailwater.toml:3: unknown field `webhok`"), "{text}");
        assert!(text.contains("`hook`") && text.contains("remedy:"), "{text}");
        let nested = parse("[analysis.thresholds]\ncpu_fool = 1.0\n").unwrap_err().to_string();
        assert!(nested.contains(":2: unknown field `cpu_fool`"), "{nested}");
    }

    #[test]
    fn a_rule_of_a_hook_is_named_with_file_line_and_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        let hook = "[[hook]]\nkind = \"webhook\"\nurl = \"http://h/\"\n";
        let load = |text: &str, overrides: &[(String, toml::Value)]| {
            std::fs::write(&file, text).unwrap();
            Config::load(Some(&file), overrides).unwrap_err().to_string()
        };
        let text = load(&format!("log = \"info\"\n\n{hook}timeout_s = 5\n\n{hook}burst = 0\n"), &[]);
        assert!(text.starts_with(&format!("{}:11: [[hook]] 2 burst: 0 lets", file.display())), "{text}");
        assert!(text.contains("\n  remedy: "), "{text}");
        let text = load("[[hook]]\nkind = \"slack\"\n", &[]);
        assert!(text.starts_with(&format!("{}:1: [[hook]] 1: slack needs url", file.display())), "{text}");
        let text = load("[[sla]]\ntier = \"web\"\nwithin_ms = 0\n", &[]);
        assert!(text.starts_with(&format!("{}:3: [[sla]] 1 within_ms: must be", file.display())), "{text}");
        let text = load("[[agents]]\nhosts = [\"*\"]\ndisabled_signals = [\"cpus\"]\n", &[]);
        let begin = format!("{}:3: [[agents]] 1 disabled_signals: there is no signal", file.display());
        assert!(text.starts_with(&begin) && text.contains("\n  remedy: use of cpu, "), "{text}");
        let text = load("[[hook]]\nkind = \"pager\"\n", &[]);
        assert!(text.contains(":2: unknown variant `pager`"), "{text}");
        let wrong: toml::Table = toml::from_str("kind = \"slack\"").unwrap();
        let text = load(hook, &[("hook".into(), toml::Value::Array(vec![wrong.into()]))]);
        assert!(text.starts_with("[[hook]] 1: slack needs url"), "{text}");
    }

    #[test]
    fn the_effective_configuration_reads_back_as_itself() {
        let config = parse(
            "[[tier]]\nname = \"web\"\nport = 80\nworkers_limit = 150\n[tls]\ncert='a'\nkey='b'\nca='c'\n\
             [otlp]\nendpoint = 'http://h:4317'\nprotocol = 'http/protobuf'\n[otlp.resource]\na = 'b'\n",
        )
        .unwrap();
        assert_eq!(parse(&config.to_toml().unwrap()).unwrap(), config);
        assert_eq!(config.pipeline().tiers[0].workers_limit, Some(150));
    }

    #[test]
    fn any_key_can_be_overridden_and_a_wrong_one_is_named() {
        let config =
            with(&[("analysis.thresholds.cpu_full_ratio", 0.9.into()), ("http", "127.0.0.1:1".into())])
                .unwrap();
        assert!((config.analysis.thresholds.cpu_full_ratio - 0.9).abs() < 1e-9);
        assert_eq!(config.http.port(), 1);
        let otlp = with(&[("otlp.endpoint", "http://h:4317".into()), ("otlp.interval_seconds", 5.into())]);
        assert_eq!(otlp.unwrap().otlp.unwrap().interval_seconds, 5);
        let text = with(&[("otlp.endpoint", "h:4317".into())]).unwrap_err().to_string();
        assert!(text.starts_with("otlp.endpoint: \"h:4317\" "), "{text}");
        let text = with(&[("analysis.nonsense", 1.into())]).unwrap_err().to_string();
        assert!(text.starts_with("analysis.nonsense: unknown field `nonsense`"), "{text}");
    }

    #[test]
    fn plaintext_stays_on_loopback() {
        let text = with(&[("grpc", "0.0.0.0:4781".into())]).unwrap_err().to_string();
        assert!(text.contains("plaintext is for loopback") && text.contains("remedy"), "{text}");
        let text = with(&[("grpc", "4781".into())]).unwrap_err().to_string();
        assert!(text.starts_with("grpc: \"4781\" is no address with a port; write ADDRESS:PORT"), "{text}");
        let files = toml::from_str::<toml::Table>("cert = 'a'\nkey = 'b'\nca = 'c'").unwrap();
        let text = with(&[("tls", files.into())]).unwrap_err().to_string();
        assert!(text.contains("[tls] is for agents of other machines") && text.contains("remedy"), "{text}");
        assert!(with(&[("http", "10.0.0.1:4780".into())]).is_err());
        let guarded = with(&[("http", "10.0.0.1:4780".into()), ("http_remote", true.into())]).unwrap();
        assert!(!guarded.tokens_always());
        let files = toml::from_str::<toml::Table>("cert = 'a'\nkey = 'b'").unwrap();
        let encrypted = with(&[("http_tls", files.into()), ("http", "10.0.0.1:4780".into())]).unwrap();
        assert!(encrypted.tokens_always(), "whoever comes from elsewhere shows a token");
        assert!(!Config::default().tokens_always());
    }
}

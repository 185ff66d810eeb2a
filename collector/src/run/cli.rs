//! The command line: what can be said, and how flags become settings. Does nothing itself.

use crate::access::role::Role;
use crate::client::options::{Api, Wanted, duration};
use crate::run::config::{Config, ConfigError};
use crate::run::endpoint::Endpoint;
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names the millibottleneck behind dropped packets, across tiers.
#[derive(Debug, Parser)]
#[command(name = "tailwater", version, about, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the collector
    #[command(
        after_help = "Examples:\n  tailwater serve\n  tailwater serve --data ./data --webhook http://127.0.0.1:9000/hook\n  tailwater serve --config /etc/tailwater/tailwater.toml --record run.trace"
    )]
    Serve(Box<Settings>),
    /// Run the collector and an agent for this machine
    #[command(after_help = "Examples:\n  sudo tailwater up\n  sudo tailwater up --data ./data")]
    Up(Box<Settings>),
    /// Show all tiers and the last incidents in this terminal, live
    #[command(
        after_help = "Examples:\n  tailwater top\n  ssh -t collector tailwater top\n  NO_COLOR=1 tailwater top --ascii --interval 1s"
    )]
    Top(crate::tui::Options),
    /// List incidents
    #[command(
        after_help = "Examples:\n  tailwater incidents\n  tailwater incidents --json --since 1h\n  tailwater incidents --service tomcat10 --resource io\n  tailwater incidents --follow"
    )]
    Incidents {
        /// The collector
        #[command(flatten)]
        api: Api,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        /// Go on with each new version as it comes
        #[arg(long)]
        follow: bool,
        /// Only incidents that ended within this time, such as 90s, 10m, 2h or 1d
        #[arg(long, value_parser = duration)]
        since: Option<Duration>,
        /// Which
        #[command(flatten)]
        wanted: Wanted,
    },
    /// Show one incident as a timeline
    #[command(
        after_help = "Examples:\n  tailwater explain 01KAJX3S9R7V5S9C8H1Z4T0000\n  tailwater explain 01KAJX3S --plot incident.svg\n  tailwater explain 01KAJX3S --with backlog@web-1=640,workers@web-1=300"
    )]
    Explain {
        /// Its id, or the beginning of it; without: the newest
        id: Option<String>,
        /// Draw it into this file instead: resource, queues and drops on one axis of time, as SVG or PNG by its extension
        #[arg(long, value_name = "FILE", value_parser = plot_file)]
        plot: Option<PathBuf>,
        /// Say what had come of it with these sizes, in place of those that would have prevented it: backlog, workers, pool or servers of a
        /// tier's host
        #[arg(long, value_name = "WHAT@HOST=SIZE", value_delimiter = ',', conflicts_with = "plot")]
        with: Vec<String>,
        /// The collector
        #[command(flatten)]
        api: Api,
    },
    /// Hold two incidents against each other: what they have in common, and what not
    #[command(after_help = "Examples:\n  tailwater diff 01KB4 01KB7")]
    Diff {
        /// The id of one, or the beginning of it
        a: String,
        /// The id of the other
        b: String,
        /// The collector
        #[command(flatten)]
        api: Api,
    },
    /// Say how large each server's pool should be, and what that rests on
    #[command(
        after_help = "Examples:\n  tailwater advise\n  tailwater advise --host app-1 --plot app-1.svg\n  tailwater advise --json | jq .pool\n  tailwater advise --load 1.5"
    )]
    Advise {
        /// The collector
        #[command(flatten)]
        api: Api,
        /// Only listeners of this host
        #[arg(long)]
        host: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        /// Draw the curves into this file, as SVG or PNG by its extension
        #[arg(long, value_name = "FILE", value_parser = plot_file)]
        plot: Option<PathBuf>,
        /// Say what gives way first under so many times the load of now, in place of sizes
        #[arg(long, value_name = "TIMES", value_parser = times, conflicts_with = "json")]
        load: Option<f64>,
    },
    /// List alerts sent and waiting, and send dead letters again
    #[command(
        after_help = "Examples:\n  tailwater alerts\n  tailwater alerts --dead\n  tailwater alerts --resend 01KAJX3S9R7V5S9C8H1Z4T0000\n  tailwater alerts --resend --all"
    )]
    Alerts {
        /// The collector
        #[command(flatten)]
        api: Api,
        /// Only dead letters: refused, or failed for too long
        #[arg(long)]
        dead: bool,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        /// Send a dead letter again, by the beginning of its id
        #[arg(long, value_name = "ID", num_args = 0..=1, conflicts_with_all = ["dead", "json"])]
        resend: Option<Option<String>>,
        /// Send all of them again
        #[arg(long, requires = "resend")]
        all: bool,
    },
    /// Tell no hook of some incidents for a while; whoever looks sees them all the same
    #[command(
        after_help = "Examples:\n  tailwater silence 'deploy of web' --for 30m --host 'web-*'\n  tailwater silence 'load test' --until 2026-11-21T23:00:00Z --hook pagerduty"
    )]
    Silence(Box<crate::client::silences::Wanted>),
    /// List silences, also those of the configuration, and end one
    #[command(after_help = "Examples:\n  tailwater silences\n  tailwater silences --end s7")]
    Silences {
        /// The collector
        #[command(flatten)]
        api: Api,
        /// End this one now
        #[arg(long, value_name = "ID", conflicts_with = "json")]
        end: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Record what a running collector gets, for replay
    #[command(after_help = "Example:\n  tailwater record --out run.trace --duration 60s")]
    Record {
        /// The file to write
        #[arg(long)]
        out: PathBuf,
        /// How long
        #[arg(long, value_parser = duration, default_value = "60s")]
        duration: Duration,
        /// The collector
        #[command(flatten)]
        api: Api,
    },
    /// Print the incidents of a recording, one JSON object per line, the same bytes each time
    #[command(
        after_help = "Examples:\n  tailwater replay run.trace | jq .title\n  tailwater replay run.trace --explain 01KAJX3S --plot incident.png\n  tailwater replay run.trace.zst --serve"
    )]
    Replay {
        /// The recording, plain or compressed by zstd
        file: PathBuf,
        /// Analyse with this configuration instead of the recorded one
        #[arg(long)]
        config: Option<PathBuf>,
        /// Delay arrivals at random within the lateness bound, to show that it changes nothing
        #[arg(long, value_name = "SEED")]
        shuffle: Option<u64>,
        /// Show this incident as a timeline instead: its id, or the beginning of it
        #[arg(long, value_name = "ID")]
        explain: Option<String>,
        /// Draw it into this file, as SVG or PNG by its extension
        #[arg(long, value_name = "FILE", value_parser = plot_file, requires = "explain")]
        plot: Option<PathBuf>,
        /// Print what differs from what another version printed of the same recording, which is in this file
        #[arg(long, value_name = "FILE", conflicts_with_all = ["explain", "serve"])]
        against: Option<PathBuf>,
        /// Show it on the page, with the whole API, until Ctrl-C
        #[arg(long, conflicts_with_all = ["shuffle", "explain"])]
        serve: bool,
        /// Where the page is
        #[command(flatten)]
        at: PageAt,
    },
    /// Say who may do what with this machine's collector
    #[command(
        after_help = "Examples:\n  tailwater token create grafana\n  tailwater token create ann --role operate --expires 90d --out ann.token\n  tailwater token list\n  tailwater token revoke grafana"
    )]
    Token {
        /// What to do
        #[command(subcommand)]
        what: TokenCommand,
        /// Whose
        #[command(flatten)]
        of: CollectorAt,
    },
    /// Let a host join: print the token with which its agent gets a certificate
    #[command(
        after_help = "Examples:\n  tailwater enroll web-1\n  tailwater enroll 'web-*' --count 50 --expires 24h --out web.token\n\nOn the host: tailwater-agent join https://collector.internal:4781 --token-file FILE"
    )]
    Enroll {
        /// The host; or a pattern with one "*" of the hosts that may join with this token
        #[arg(value_name = "HOST")]
        hosts: String,
        /// How many may join with it
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        count: u32,
        /// For how long it is good
        #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
        expires: Duration,
        /// Let hosts of the pattern join again that have a certificate; a token for one host always does
        #[arg(long)]
        replace: bool,
        /// Write it into this file, for its owner alone, instead
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Whose
        #[command(flatten)]
        of: CollectorAt,
    },
    /// List hosts that have a certificate, take one's away, or let it join again
    #[command(
        after_help = "Examples:\n  tailwater enrolled\n  tailwater enrolled --revoke web-1\n  tailwater enrolled --revoked\n  tailwater enrolled --allow web-1"
    )]
    Enrolled {
        /// Take away what this host has: within two seconds its agent is sent away, and does not join again by itself
        #[arg(long, value_name = "HOST")]
        revoke: Option<String>,
        /// Let a host that was revoked join again, by whatever lets it join; a token for it alone does the same
        #[arg(long, value_name = "HOST", conflicts_with = "revoke")]
        allow: Option<String>,
        /// List those that were revoked instead
        #[arg(long, conflicts_with_all = ["revoke", "allow"])]
        revoked: bool,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        /// Whose
        #[command(flatten)]
        of: CollectorAt,
    },
    /// Print the effective configuration
    CheckConfig(Box<Settings>),
    /// Say whether this machine lets the collector work, and what to do if not
    Doctor(Box<Settings>),
    /// Print a completion script
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
}

/// What to do with tokens. The first one that is made is wanted from then on.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token, and print it: it is told once, and kept nowhere
    Create {
        /// Whose it is, for lists and logs
        name: String,
        /// What it lets do: read sees and scrapes, operate also sends alerts again and records, admin also sees tokens and changes
        #[arg(long, value_enum, default_value = "read")]
        role: Role,
        /// For how long, such as 12h or 90d [default: until it is revoked]
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires: Option<Duration>,
        /// Write it into this file, for its owner alone, instead
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// List names, roles and ends of all tokens
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Take a token away: within a second nobody comes in with it any more
    Revoke {
        /// Whose it is
        name: String,
    },
}

/// Which collector of this machine.
#[derive(Debug, Default, Args)]
pub struct CollectorAt {
    /// Its configuration file [default: /etc/tailwater/tailwater.toml, if it exists]
    #[arg(long, env = "TAILWATER_CONFIG", value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Its folder [default: /var/lib/tailwater]
    #[arg(long, env = "TAILWATER_DATA", value_name = "DIR", global = true)]
    pub data: Option<PathBuf>,
}

impl CollectorAt {
    /// What it runs by.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let data = self.data.as_ref().map(|folder| ("data".to_owned(), folder.display().to_string().into()));
        Config::load(self.config.as_deref(), &data.into_iter().collect::<Vec<_>>())
    }
}

/// Where the page of a recording is.
#[derive(Debug, Default, Args)]
pub struct PageAt {
    /// Where API and page are [default: 127.0.0.1:4780]
    #[arg(long, value_name = "ADDR", requires = "serve")]
    pub http: Option<SocketAddr>,
    /// Let --http be an address that is not loopback
    #[arg(long, requires = "serve")]
    pub http_remote: bool,
    /// A name by which browsers call it, beside localhost and addresses; may be given several times
    #[arg(long = "http-host", value_name = "NAME", requires = "serve")]
    pub http_hosts: Vec<String>,
}

impl PageAt {
    /// Over the settings of `file`, or over the defaults: what is configured for the collector of this machine is not asked.
    pub fn load(&self, file: Option<&Path>) -> Result<Config, ConfigError> {
        let mut overrides: Vec<(String, toml::Value)> = Vec::new();
        overrides.extend(self.http.map(|a| ("http".into(), a.to_string().into())));
        overrides.extend(self.http_remote.then(|| ("http_remote".into(), true.into())));
        if !self.http_hosts.is_empty() {
            overrides.push(("http_hosts".into(), self.http_hosts.clone().into()));
        }
        match file {
            Some(file) => Config::load(Some(file), &overrides),
            None => Config::of(&overrides),
        }
    }
}

/// Every setting of the collector, over file and defaults.
#[derive(Debug, Default, Args)]
pub struct Settings {
    /// Configuration file [default: /etc/tailwater/tailwater.toml, if it exists]
    #[arg(long, env = "TAILWATER_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where agents connect, an address or unix:///PATH [default: unix:///run/tailwater/agents.sock]
    #[arg(long, env = "TAILWATER_GRPC", value_name = "ADDR")]
    pub grpc: Option<Endpoint>,
    /// Where API, page and metrics are [default: 127.0.0.1:4780]
    #[arg(long, env = "TAILWATER_HTTP", value_name = "ADDR")]
    pub http: Option<SocketAddr>,
    /// Let --http be an address that is not loopback
    #[arg(long, env = "TAILWATER_HTTP_REMOTE", num_args = 0..=1, default_missing_value = "true")]
    pub http_remote: Option<bool>,
    /// A name by which browsers and scrapers call it, beside localhost and addresses; may be given several times
    #[arg(
        long = "http-host",
        alias = "http-hosts",
        env = "TAILWATER_HTTP_HOSTS",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub http_hosts: Vec<String>,
    /// Folder for incidents and windows [default: /var/lib/tailwater]
    #[arg(long, env = "TAILWATER_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where alerts go, http:// or https://, instead of the hooks in the file; may be given several times
    #[arg(long, env = "TAILWATER_WEBHOOK", value_name = "URL", value_delimiter = ',')]
    pub webhook: Vec<String>,
    /// File with the Standard Webhooks secret for --webhook
    #[arg(long, env = "TAILWATER_WEBHOOK_SECRET_FILE", value_name = "FILE", requires = "webhook")]
    pub webhook_secret_file: Option<PathBuf>,
    /// Write every input of the analysis to this file, for replay
    #[arg(long, env = "TAILWATER_RECORD", value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Log filter, such as info or debug [default: info]
    #[arg(long, env = "TAILWATER_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// Certificate for mutual TLS, PEM
    #[arg(long, env = "TAILWATER_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, env = "TAILWATER_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Authorities of agents' certificates, PEM
    #[arg(long, env = "TAILWATER_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Certificate of API and page, PEM
    #[arg(long, env = "TAILWATER_HTTP_TLS_CERT", value_name = "FILE")]
    pub http_tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, env = "TAILWATER_HTTP_TLS_KEY", value_name = "FILE")]
    pub http_tls_key: Option<PathBuf>,
    /// A tier, as name=web,host=web-1,workload=apache2.service,port=80,workers_limit=150 (any of them); replaces those in the file
    #[arg(long, env = "TAILWATER_TIER", value_name = "RULE", value_delimiter = ';')]
    pub tier: Vec<String>,
    /// Incidents kept [default: 1000]
    #[arg(long, env = "TAILWATER_INCIDENTS_MAX", value_name = "N")]
    pub incidents_max: Option<i64>,
    /// Minutes of windows kept in memory [default: 10]
    #[arg(long, env = "TAILWATER_SERIES_MINUTES", value_name = "N")]
    pub series_minutes: Option<i64>,
    /// Memory they may take, MiB [default: 256]
    #[arg(long, env = "TAILWATER_SERIES_MIB_MAX", value_name = "N")]
    pub series_mib_max: Option<i64>,
    /// Hours of windows kept on disk [default: 72]
    #[arg(long, env = "TAILWATER_WINDOWS_HOURS", value_name = "N")]
    pub windows_hours: Option<i64>,
    /// Disk they may take, MiB [default: 8192]
    #[arg(long, env = "TAILWATER_WINDOWS_MIB_MAX", value_name = "N")]
    pub windows_mib_max: Option<i64>,
    /// Disk that the windows around incidents may take, MiB [default: 2048]
    #[arg(long, env = "TAILWATER_KEPT_MIB_MAX", value_name = "N")]
    pub kept_mib_max: Option<i64>,
    /// Seconds of windows in one segment on disk [default: 60]
    #[arg(long, env = "TAILWATER_SEGMENT_SECONDS", value_name = "N")]
    pub segment_seconds: Option<i64>,
    /// Agents connected at once [default: 1000]
    #[arg(long, env = "TAILWATER_AGENTS_MAX", value_name = "N")]
    pub agents_max: Option<i64>,
    /// Messages of one agent that may wait [default: 256]
    #[arg(long, env = "TAILWATER_AGENT_QUEUE", value_name = "N")]
    pub agent_queue: Option<i64>,
    /// Any other key, such as analysis.thresholds.cpu_full_ratio=0.9; may be given several times
    #[arg(long = "set", env = "TAILWATER_SET", value_name = "KEY=VALUE", value_delimiter = ';')]
    pub set: Vec<String>,
}

fn wrong(name: &str, message: impl Into<String>) -> ConfigError {
    ConfigError::Override { name: name.to_owned(), message: message.into() }
}

/// A TOML value, or else a string.
fn value(text: &str) -> toml::Value {
    toml::from_str::<toml::Table>(&format!("v = {text}"))
        .ok()
        .and_then(|mut table| table.remove("v"))
        .unwrap_or_else(|| text.into())
}

fn tier(text: &str) -> Result<toml::Value, ConfigError> {
    let mut table = toml::Table::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let Some((key, content)) = part.split_once('=') else {
            return Err(wrong("--tier", format!("\"{part}\" is not key=value")));
        };
        table.insert(key.trim().to_owned(), value(content.trim()));
    }
    Ok(table.into())
}

impl Settings {
    /// File, then environment and flags.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let path = |p: &PathBuf| toml::Value::from(p.display().to_string());
        let mut all: Vec<(&str, Option<toml::Value>)> = vec![
            ("grpc", self.grpc.as_ref().map(|a| a.to_string().into())),
            ("http", self.http.map(|a| a.to_string().into())),
            ("http_remote", self.http_remote.map(Into::into)),
            ("data", self.data.as_ref().map(path)),
            ("record", self.record.as_ref().map(path)),
            ("log", self.log.clone().map(Into::into)),
            ("incidents_max", self.incidents_max.map(Into::into)),
            ("series_minutes", self.series_minutes.map(Into::into)),
            ("series_mib_max", self.series_mib_max.map(Into::into)),
            ("windows_hours", self.windows_hours.map(Into::into)),
            ("windows_mib_max", self.windows_mib_max.map(Into::into)),
            ("kept_mib_max", self.kept_mib_max.map(Into::into)),
            ("segment_seconds", self.segment_seconds.map(Into::into)),
            ("agents_max", self.agents_max.map(Into::into)),
            ("agent_queue", self.agent_queue.map(Into::into)),
        ];
        if !self.http_hosts.is_empty() {
            all.push(("http_hosts", Some(self.http_hosts.clone().into())));
        }
        match (&self.tls_cert, &self.tls_key, &self.tls_ca) {
            (None, None, None) => {}
            (Some(cert), Some(key), Some(ca)) => {
                let table = toml::Table::from_iter(
                    [("cert", cert), ("key", key), ("ca", ca)]
                        .map(|(name, file)| (name.to_owned(), path(file))),
                );
                all.push(("tls", Some(table.into())));
            }
            _ => return Err(wrong("--tls-cert, --tls-key, --tls-ca", "all three or none")),
        }
        match (&self.http_tls_cert, &self.http_tls_key) {
            (None, None) => {}
            (Some(cert), Some(key)) => {
                let files = [("cert", cert), ("key", key)].map(|(name, file)| (name.to_owned(), path(file)));
                all.push(("http_tls", Some(toml::Table::from_iter(files).into())));
            }
            _ => return Err(wrong("--http-tls-cert, --http-tls-key", "both or none")),
        }
        if !self.webhook.is_empty() {
            let hook = |url: &String| {
                let mut table = toml::Table::new();
                table.insert("kind".into(), "webhook".into());
                table.insert("url".into(), url.clone().into());
                if let Some(file) = &self.webhook_secret_file {
                    table.insert("secret_files".into(), toml::Value::Array(vec![path(file)]));
                }
                toml::Value::from(table)
            };
            all.push(("hook", Some(toml::Value::Array(self.webhook.iter().map(hook).collect()))));
        }
        if !self.tier.is_empty() {
            let tiers = self.tier.iter().map(|text| tier(text)).collect::<Result<_, _>>()?;
            all.push(("tier", Some(toml::Value::Array(tiers))));
        }
        let mut overrides: Vec<(String, toml::Value)> =
            all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        for text in &self.set {
            let (key, content) =
                text.split_once('=').ok_or_else(|| wrong("--set", format!("\"{text}\" is not KEY=VALUE")))?;
            overrides.push((key.trim().to_owned(), value(content.trim())));
        }
        Config::load(self.config.as_deref(), &overrides)
    }
}

/// So many times a load: above 0, and no more than anybody has.
fn times(text: &str) -> Result<f64, String> {
    const MOST: f64 = 1000.0;
    let times = text.trim_end_matches('×').trim_start_matches('×').parse::<f64>().ok();
    times
        .filter(|times| *times > 0.0 && *times <= MOST)
        .ok_or_else(|| format!("{text:?} is no number of times such as 1.5, above 0 and up to {MOST}"))
}

/// A file that a picture can be written to, by its name.
fn plot_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    crate::draw::plot::Format::of(&path).map(|_| path).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn a_load_is_so_many_times_the_present_one() {
        assert_eq!((times("1.5"), times("×2")), (Ok(1.5), Ok(2.0)));
        for text in ["0", "-1", "nan", "inf", "x", "1001", ""] {
            assert!(times(text).unwrap_err().contains("such as 1.5"), "{text}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_become_settings() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        std::fs::write(&file, "agent_queue = 9\nhttp = \"127.0.0.1:9\"\n").unwrap();
        let file = file.display().to_string();
        let arguments = [
            "tailwater",
            "serve",
            "--config",
            &file,
            "--http",
            "127.0.0.1:1",
            "--webhook",
            "http://h/x",
            "--tier",
            "name=web,port=80,workers_limit=150",
            "--set",
            "analysis.quiet_ns=1000",
        ];
        let Command::Serve(settings) = Cli::parse_from(arguments).command else { panic!() };
        let config = settings.load().unwrap();
        assert_eq!((config.http.port(), config.agent_queue, config.analysis.quiet_ns), (1, 9, 1000));
        assert_eq!(config.hook[0].url.as_deref(), Some("http://h/x"));
        assert_eq!((config.tier[0].name.as_deref(), config.tier[0].port), (Some("web"), Some(80)));
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert!(duration("10").unwrap_err().contains("unit"));
        assert!(duration("x").is_err() && duration("99999999999999999999s").is_err());
    }
}

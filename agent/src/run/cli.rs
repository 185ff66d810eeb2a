//! The command line: commands, flags, help. Owns their names, which scripts hold on to; knows nothing of what they do.

use crate::config::Layer;
use crate::identity::DEFAULT_FOLDER;
use crate::sample::locks::asker;
use crate::sample::net::helper;
use clap::{CommandFactory, Parser, Subcommand};
use std::path::PathBuf;

/// Exit codes, after sysexits(3).
pub mod exit {
    /// The configuration or command line cannot be used: EX_USAGE.
    pub const CONFIGURATION: u8 = 64;
    /// The collector cannot be reached: EX_UNAVAILABLE.
    pub const UNAVAILABLE: u8 = 69;
    /// Anything else that went wrong.
    pub const FAILURE: u8 = 1;
}

/// Measures 50 ms windows of this machine in the kernel and streams them to a Tailwater collector
#[derive(Debug, Parser)]
#[command(name = "tailwater-agent", version, after_help = EXAMPLES, propagate_version = true)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  tailwater-agent doctor                                 what this kernel and these privileges allow
  tailwater-agent doctor --live                          and what gets lost in five seconds of measuring
  tailwater-agent dump --windows 20                      one second of this machine, on the terminal
  tailwater-agent run                                    the daemon
  tailwater-agent run --config /etc/tailwater/agent.toml
  tailwater-agent run --scope-cgroup /lab/web --host web-1
                                                         one cgroup subtree as a host of its own
  tailwater-agent completions bash > /etc/bash_completion.d/tailwater-agent

Every key of the configuration file but [[database]] is also a flag and a variable: windows_per_batch, --windows-per-batch,
TAILWATER_AGENT_WINDOWS_PER_BATCH. Flags win over variables, variables over the file.

Exit codes: 0 done, 64 unusable configuration, 69 collector not reachable (doctor with --collector), 1 other failures.";

/// Where configuration comes from.
#[derive(Debug, clap::Args)]
pub struct Configured {
    /// Configuration file [default: /etc/tailwater/agent.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "TAILWATER_AGENT_CONFIG")]
    pub config: Option<PathBuf>,
    /// Flags and variables, which win over the file.
    #[command(flatten)]
    pub over: Layer,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measures and streams to the collector until SIGTERM or SIGINT
    Run {
        /// Configuration.
        #[command(flatten)]
        configured: Configured,
    },
    /// Tells, signal by signal, what this kernel and these privileges allow, and what to do about each refusal
    ///
    /// With --collector it also tries to reach the collector, and exits 69 if it cannot.
    Doctor {
        /// Machine-readable
        #[arg(long)]
        json: bool,
        /// Also measures for so many seconds, and tells what could not be kept meanwhile [default: 5]
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "5",
              value_parser = clap::value_parser!(u64).range(1..=3600))]
        live: Option<u64>,
        /// Configuration.
        #[command(flatten)]
        configured: Configured,
    },
    /// Writes windows to the terminal; needs no collector
    Dump {
        /// JSON, one object per line, every value
        #[arg(long)]
        json: bool,
        /// Stops after this many windows of 50 ms [default: goes on until interrupted]
        #[arg(long, value_name = "N")]
        windows: Option<u64>,
        /// Configuration.
        #[command(flatten)]
        configured: Configured,
    },
    /// Joins a collector with a token of `tailwater enroll` or of a Kubernetes service account, and keeps key and certificate
    ///
    /// The key is made here and leaves this machine never. `tailwater-agent run`, and the packaged service, then speak as that host and renew
    /// the certificate at two thirds of its life.
    Join {
        /// The collector: https://NAME:PORT
        url: String,
        /// File with the token
        #[arg(long, value_name = "FILE", env = "TAILWATER_AGENT_TOKEN_FILE")]
        token_file: PathBuf,
        /// The collector's authority (PEM), for a token that does not say whom to trust: a service account's
        #[arg(long, value_name = "FILE", env = "TAILWATER_AGENT_CA")]
        ca: Option<PathBuf>,
        /// Name to join by [default: the host name]
        #[arg(long, value_name = "NAME", env = "TAILWATER_AGENT_HOST")]
        host: Option<String>,
        /// Where to keep it
        #[arg(long, value_name = "DIR", env = "TAILWATER_AGENT_IDENTITY", default_value = DEFAULT_FOLDER)]
        identity: PathBuf,
    },
    /// Renews the certificate now, whether it is time or not
    Renew {
        /// Goes on for ever, at two thirds of each certificate's life
        #[arg(long)]
        keep: bool,
        /// Ends when its standard input does, and looks after the certificate at each byte that comes there: so an agent starts it
        #[arg(long, hide = true, requires = "keep")]
        with_input: bool,
        /// Joins anew by the token in this file where the certificate is good for nothing any more
        #[arg(long, value_name = "FILE", requires = "keep")]
        join_token_file: Option<PathBuf>,
        /// The collector's authority (PEM), for a token that does not say whom to trust: a service account's
        #[arg(long, value_name = "FILE", requires = "join_token_file")]
        join_ca: Option<PathBuf>,
        /// Where it is kept
        #[arg(long, value_name = "DIR", env = "TAILWATER_AGENT_IDENTITY", default_value = DEFAULT_FOLDER)]
        identity: PathBuf,
    },
    /// Prints the effective configuration, or what is wrong with it
    CheckConfig {
        /// Configuration.
        #[command(flatten)]
        configured: Configured,
    },
    /// Walks network namespaces for an agent that is running
    #[command(name = helper::COMMAND, hide = true)]
    WalkNamespaces,
    /// Asks databases for an agent that is running
    #[command(name = asker::COMMAND, hide = true)]
    AskDatabases,
    /// Prints a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Every environment variable that some flag reads.
pub fn variables() -> Vec<String> {
    let command = Cli::command();
    let mut found: Vec<String> = command
        .get_subcommands()
        .flat_map(|c| c.get_arguments().filter_map(|a| a.get_env()))
        .map(|v| v.to_string_lossy().into_owned())
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
        assert!(variables().contains(&"TAILWATER_AGENT_SCOPE_CGROUP".to_owned()));
    }

    #[test]
    fn the_flags_that_others_script_against() {
        let arguments = [
            "tailwater-agent",
            "run",
            "--collector",
            "http://127.0.0.1:1",
            "--host",
            "web-1",
            "--scope-cgroup",
            "/lab/web",
            "--clock-shift-ms",
            "-250",
        ];
        let cli = Cli::try_parse_from(arguments).unwrap();
        let Command::Run { configured } = cli.command else { panic!("run") };
        assert_eq!(configured.over.scope_cgroup.as_deref(), Some("/lab/web"));
        assert_eq!(configured.over.clock_shift_ms, Some(-250));
    }

    #[test]
    fn every_key_has_a_flag_and_a_variable_of_its_name() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for argument in run.get_arguments().filter(|a| a.get_env().is_some()) {
            let flag = argument.get_long().unwrap();
            let variable = argument.get_env().unwrap().to_str().unwrap();
            assert_eq!(variable, format!("TAILWATER_AGENT_{}", flag.replace('-', "_").to_uppercase()));
        }
    }
}

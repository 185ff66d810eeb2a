//! The `tailwater-agent` command: wiring and exit codes.

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tailwater_agent::attach::privilege;
use tailwater_agent::config::{Config, ConfigError, Join, check_environment, host_name, load};
use tailwater_agent::enrol::token::JoinToken;
use tailwater_agent::enrol::{self, EnrolError};
use tailwater_agent::identity::{DEFAULT_FOLDER, owner};
use tailwater_agent::run::cli::{Cli, Command, Configured, exit, variables};
use tailwater_agent::run::dump::Form;
use tailwater_agent::run::{self, failure};
use tailwater_agent::sample::locks::asker;
use tailwater_agent::sample::net::helper;
use tokio::sync::Notify;

fn main() -> ExitCode {
    failure::one_sentence_for_panics();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody reads it: then the exit code has to do.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(exit::CONFIGURATION) } else { ExitCode::SUCCESS };
        }
    };
    match execute(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tailwater-agent: {}", failure::sentence(&*error));
            let code = if error.is::<ConfigError>() { exit::CONFIGURATION } else { exit::FAILURE };
            ExitCode::from(code)
        }
    }
}

fn execute(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run { configured } => {
            let config = configure(configured)?;
            if let (Some(join), Some(folder)) = (&config.join, &config.identity) {
                // Before the agent gives up writing files.
                one(enrol::join_first(join, &config.collector, &config.host, folder))?;
            }
            run::daemon(&config)?;
        }
        Command::Dump { json, windows, configured } => {
            let form = if json { Form::Json } else { Form::Text };
            run::dump(&configure(configured)?, form, windows)?;
        }
        Command::Doctor { json, live, configured } => return doctor(json, live, configured),
        Command::Join { url, token_file, ca, host, identity } => {
            let token = JoinToken::read(&token_file, ca.as_deref())?;
            let host = host.unwrap_or_else(host_name);
            let joined = one(enrol::join(&url, &token, &host, &identity))?;
            let usual = identity == Path::new(DEFAULT_FOLDER);
            let own = if usual { String::new() } else { format!(" --identity {}", identity.display()) };
            let service = if usual { "systemctl restart tailwater-agent, or " } else { "" };
            println!("joined as {}; now: {service}tailwater-agent run{own}", joined.host);
        }
        Command::Renew { keep: false, identity, .. } => {
            let renewed = one(enrol::renew(&identity))?;
            println!("renewed for {}", renewed.host);
        }
        Command::Renew { keep: true, with_input, join_token_file, join_ca, identity } => {
            log_to_stderr("info")?;
            let join = join_token_file.map(|token_file| Join { token_file, ca: join_ca });
            // Before it goes to where the identity is.
            let join = join.map(Join::absolute).transpose().context("--join-token-file and --join-ca")?;
            let identity = as_owner(identity)?;
            let dropped = match &join {
                Some(_) => privilege::drop_all_but_reading(),
                None => privilege::drop_all(),
            };
            if let Err(error) = dropped {
                tracing::warn!("what renews certificates keeps its rights: {error}");
            }
            let refused = Arc::new(Notify::new());
            let input = with_input.then(|| input_ended(Arc::clone(&refused)));
            let ended = input.transpose().context("watch the standard input")?;
            one(enrol::keep_good_until(&identity, join.as_ref(), &refused, ended))?;
        }
        Command::CheckConfig { configured } => {
            let config = read(configured)?;
            let text = toml::to_string(&config).context("write the configuration")?;
            std::io::stdout().write_all(text.as_bytes())?;
        }
        Command::WalkNamespaces => helper::serve()?,
        Command::AskDatabases => asker::serve()?,
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "tailwater-agent", &mut std::io::stdout());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where root renews what is another user's, the packaged unit's most of all: goes on as that one. Who that is may not come by the way that the folder is
/// known by (systemd keeps those of such users below one that is root's alone), so this process is in there before.
fn as_owner(identity: PathBuf) -> Result<PathBuf> {
    // Of a folder that is not there the renewal says more.
    let (user, group) = owner(&identity).unwrap_or_default();
    if user == 0 || !rustix::process::geteuid().is_root() {
        return Ok(identity);
    }
    std::env::set_current_dir(&identity).with_context(|| identity.display().to_string())?;
    privilege::become_user(user, group)?;
    Ok(PathBuf::from("."))
}

/// Tells when the other end of the standard input is gone, and `refused` whenever something comes from there: an agent whose certificate is refused.
fn input_ended(refused: Arc<Notify>) -> std::io::Result<tokio::sync::oneshot::Receiver<()>> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let watch = move || {
        let mut heard = [0; 64];
        loop {
            match std::io::stdin().read(&mut heard) {
                Ok(bytes) if bytes > 0 => refused.notify_one(),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Any other error is an end as well.
                Ok(_) | Err(_) => break,
            }
        }
        let _ = tell.send(());
    };
    std::thread::Builder::new().name("input".into()).spawn(watch)?;
    Ok(told)
}

fn one<T>(work: impl Future<Output = Result<T, EnrolError>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("event loop")?;
    Ok(runtime.block_on(work)?)
}

fn doctor(json: bool, live: Option<u64>, configured: Configured) -> Result<ExitCode> {
    let ask_collector = configured.over.collector.is_some();
    let report = run::doctor(&configure_quietly(configured)?, ask_collector, live)?;
    let text = if json { serde_json::to_string_pretty(&report)? + "\n" } else { report.text() };
    std::io::stdout().write_all(text.as_bytes())?;
    let unreachable = report.collector.is_some_and(|c| !c.reachable);
    Ok(if unreachable { ExitCode::from(exit::UNAVAILABLE) } else { ExitCode::SUCCESS })
}

fn read(configured: Configured) -> Result<Config, ConfigError> {
    check_environment(
        std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()),
        &variables(),
    )?;
    load(configured.config.as_deref(), configured.over)
}

/// Reads the configuration and starts logging, to standard error.
fn configure(configured: Configured) -> Result<Config> {
    let config = read(configured)?;
    log_to_stderr(&config.log)?;
    Ok(config)
}

/// For commands whose output says everything already.
fn configure_quietly(configured: Configured) -> Result<Config> {
    let config = read(configured)?;
    log_to_stderr("error")?;
    Ok(config)
}

fn log_to_stderr(filter: &str) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|e| ConfigError {
        place: "--log (TAILWATER_AGENT_LOG)".to_owned(),
        problem: format!("log = {filter:?} is no filter: {e}"),
        remedy: "use error, warn, info, debug, trace, or e.g. info,tailwater_agent::stream=debug".to_owned(),
    })?;
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    Ok(())
}

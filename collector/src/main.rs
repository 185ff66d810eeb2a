//! `tailwater`: wiring and exit codes. 64: bad configuration; 69: the collector cannot be reached; 1: anything else.

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tailwater::client::explain::{one_of, show, show_earlier, show_prevention};
use tailwater::client::{ClientError, advise, alerts, diff, explain, incidents, record, silences};
use tailwater::log::Log;
use tailwater::run::cli::{Cli, Command, Settings};
use tailwater::run::config::ConfigError;
use tailwater::run::{doctor, enrol, replay, server, tokens, up};
use tailwater::{failure, text, tui};
use tailwater_model::Incident;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Windows are made by the threads that read streams and freed by those that analyse and store, at thousands of small pieces a second. The
/// system's allocator took a quarter of a busy collector's CPU for that, and its arenas grew.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXIT_CONFIG: u8 = 64;
const EXIT_UNAVAILABLE: u8 = 69;

fn main() -> ExitCode {
    failure::one_sentence_for_panics();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // To help, version and usage errors as clap prints them; nothing to do if the terminal is gone.
            let _ = e.print();
            return if e.use_stderr() { ExitCode::from(EXIT_CONFIG) } else { ExitCode::SUCCESS };
        }
    };
    match run(cli.command) {
        Ok(code) => code,
        Err(e) => {
            if e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
            {
                return ExitCode::SUCCESS; // `tailwater incidents | head`
            }
            eprintln!("tailwater: {}", text::lines(&failure::told(&*e)));
            if e.downcast_ref::<ConfigError>().is_some() {
                ExitCode::from(EXIT_CONFIG)
            } else if let Some(ClientError::Unreachable { .. }) = e.downcast_ref() {
                ExitCode::from(EXIT_UNAVAILABLE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Serve(settings) => daemon(&settings, false)?,
        Command::Up(settings) => daemon(&settings, true)?,
        Command::Top(options) => tui::run(&options)?,
        Command::Incidents { api, json, follow, since, wanted } => {
            one(incidents::incidents(&api, json, follow, since, wanted.which()))?
        }
        Command::Explain { id, plot, with, api } => {
            one(explain::explained(&api, id.as_deref(), plot.as_deref(), &with))?
        }
        Command::Diff { a, b, api } => one(diff::diff(&api, &a, &b))?,
        Command::Advise { api, host, json, plot, load } => {
            one(advise::advise(&api, host.as_deref(), json, plot.as_deref(), load))?
        }
        Command::Alerts { api, dead, json, resend, all } => {
            one(alerts::alerts(&api, dead, json, resend, all))?
        }
        Command::Silence(wanted) => one(silences::silence(*wanted))?,
        Command::Silences { api, end, json } => one(silences::silences(&api, end.as_deref(), json))?,
        Command::Record { out, duration, api } => one(record::record(&api, &out, duration))?,
        Command::Replay { file, config, serve: true, at, .. } => {
            let options =
                replay::Options { file, reanalyse: config.is_some(), config: at.load(config.as_deref())? };
            until_stopped(|stop| replay::serve(options, stop))?;
        }
        Command::Replay { file, config, shuffle, explain, plot, against, .. } => {
            let said =
                Said { explain: explain.as_deref(), plot: plot.as_deref(), against: against.as_deref() };
            replayed(&file, config.as_deref(), shuffle, &said)?
        }
        Command::Token { what, of } => tokens::run(what, &of.load()?)?,
        Command::Enroll { hosts, count, expires, replace, out, of } => {
            let asked = enrol::Asked { hosts, count, expires, replace };
            enrol::enroll(&asked, out.as_deref(), &of.load()?)?;
        }
        Command::Enrolled { revoke: Some(host), of, .. } => enrol::revoke(&host, &of.load()?)?,
        Command::Enrolled { allow: Some(host), of, .. } => enrol::allow(&host, &of.load()?)?,
        Command::Enrolled { revoked: true, json, of, .. } => enrol::revoked(json, &of.load()?)?,
        Command::Enrolled { json, of, .. } => enrol::enrolled(json, &of.load()?)?,
        Command::CheckConfig(settings) => print!("{}", settings.load()?.to_toml()?),
        Command::Doctor(settings) => return doctor_report(&settings),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "tailwater", &mut std::io::stdout());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn one<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")?.block_on(work)
}

fn daemon(settings: &Settings, with_agent: bool) -> Result<()> {
    let config = settings.load()?;
    let filter = tracing_subscriber::EnvFilter::try_new(&config.log).map_err(|e| ConfigError::Override {
        name: "log".into(),
        message: format!("{e}: such as info, or info,tailwater::ingest=debug"),
    })?;
    let log = Log::start().context("the log's thread")?;
    let lines = log.clone();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || lines.clone())
        .with_ansi(false)
        .init();
    let result = until_stopped(|stop| async move {
        if with_agent { up::run(config, stop).await } else { server::run(config, stop).await }
    });
    log.flush();
    result
}

/// Runs until SIGTERM or Ctrl-C, which `work` hears of.
fn until_stopped<W: Future<Output = Result<()>>>(work: impl FnOnce(CancellationToken) -> W) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("runtime")?;
    let result = runtime.block_on(async {
        let stop = CancellationToken::new();
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stopper = stop.clone();
        tokio::spawn(async move {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            stopper.cancel();
        });
        work(stop).await
    });
    // Whatever did not end within its grace period is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

/// In which way a replay says what it found; nothing: one incident a line.
struct Said<'a> {
    explain: Option<&'a str>,
    plot: Option<&'a Path>,
    against: Option<&'a Path>,
}

/// What `tailwater replay` printed into a file.
fn printed(file: &Path) -> Result<Vec<Incident>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let incident = |(n, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| {
            let remedy = "remedy: give a file that `tailwater replay FILE` printed";
            format!("{}: line {} is no incident\n  {remedy}", file.display(), n + 1)
        })
    };
    text.lines().enumerate().map(incident).collect()
}

fn replayed(file: &Path, config: Option<&Path>, shuffle: Option<u64>, said: &Said<'_>) -> Result<()> {
    let before = said.against.map(printed).transpose()?;
    let input = replay::open(file)?;
    let config = config.map(|path| tailwater::run::config::Config::load(Some(path), &[])).transpose()?;
    let result = replay::replay(input, config.map(|c| c.pipeline()), shuffle, said.explain.is_some())
        .with_context(|| format!("replay {}", file.display()))?;
    match (said.explain, &before) {
        (None, None) => result.write(&mut std::io::stdout().lock())?,
        (None, Some(before)) => {
            let told = replay::differences(before, &result.incidents);
            std::io::stdout().lock().write_all(told.as_bytes())?;
        }
        (Some(id), _) => {
            let incident = one_of(&result.incidents, id, "`tailwater replay` without --explain lists them")?;
            let timeline = result.timelines.get(&incident.id).context("the incident's windows")?;
            show(incident, timeline, said.plot)?;
            if said.plot.is_none() {
                show_earlier(incident, &result.incidents, false, None)?;
            }
            if let Some(view) = result.prevention(incident).filter(|_| said.plot.is_none()) {
                show_prevention(&view)?;
            }
        }
    }
    if let Some(torn) = &result.torn {
        eprintln!("tailwater: {}: {torn}", file.display());
    }
    if result.refused > 0 {
        eprintln!("tailwater: {}: {} messages did not convert", file.display(), result.refused);
    }
    Ok(())
}

fn doctor_report(settings: &Settings) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for check in doctor::run(&settings.load()?) {
        match check.outcome {
            Ok(text) => println!("ok      {}: {text}", check.what),
            Err(text) => {
                println!("FAILED  {}: {text}", check.what);
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

//! `tailwater`: wiring and exit codes. 64: bad configuration; 69: the collector cannot be reached; 1: anything else.

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};
use http_body_util::BodyExt;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tailwater::alert::list;
use tailwater::cli::{Api, Cli, Command, Settings};
use tailwater::client::{ClientError, Collector, Events};
use tailwater::config::ConfigError;
use tailwater::log::Log;
use tailwater::timeline::Timeline;
use tailwater::{doctor, explain, failure, outlet, plot, replay, server, text, top, up};
use tailwater_analysis::Incident;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

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
        Command::Top(options) => top::run(&options)?,
        Command::Incidents { api, json, follow, since } => one(incidents(&api, json, follow, since))?,
        Command::Explain { id, plot, api } => one(explained(&api, id.as_deref(), plot.as_deref()))?,
        Command::Alerts { api, dead, json, resend, all } => one(alerts(&api, dead, json, resend, all))?,
        Command::Record { out, duration, api } => one(record(&api, &out, duration))?,
        Command::Replay { file, config, serve: true, at, .. } => {
            let options =
                replay::Options { file, reanalyse: config.is_some(), config: at.load(config.as_deref())? };
            until_stopped(|stop| replay::serve(options, stop))?;
        }
        Command::Replay { file, config, shuffle, explain, plot, .. } => {
            replayed(&file, config.as_deref(), shuffle, explain.as_deref(), plot.as_deref())?
        }
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

#[derive(Deserialize)]
struct Now {
    now_unix_ns: u64,
}

#[derive(Deserialize)]
struct Incidents {
    incidents: Vec<Incident>,
}

async fn incidents(api: &Api, json: bool, follow: bool, since: Option<Duration>) -> Result<()> {
    let collector = Collector::new(&api.url)?;
    let from = match since {
        None => 0,
        // Before the collector's now: that of a recording is its end.
        Some(since) => {
            let now: Now = collector.get("/api/v1/now?seconds=1").await?;
            now.now_unix_ns.saturating_sub(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        }
    };
    // Subscribe first: what happens between the two requests comes twice rather than never.
    let live = if follow { Some(collector.open("/api/v1/live").await?) } else { None };
    let list: Incidents = collector.get(&format!("/api/v1/incidents?limit=10000&since={from}")).await?;
    let mut shown = Shown { json, told: BTreeMap::new() };
    for incident in list.incidents.iter().rev() {
        shown.print(incident)?;
    }
    let Some(mut live) = live else { return Ok(()) };
    let mut events = Events::default();
    while let Some(frame) = live.frame().await {
        let lost = |why: String| ClientError::Unreachable { url: api.url.clone(), why };
        let frame = frame.map_err(|e| lost(e.to_string()))?;
        let Some(bytes) = frame.data_ref() else { continue };
        for (event, data) in events.feed(bytes) {
            match event.as_str() {
                "incident" => {
                    shown.print(&serde_json::from_str(&data).context("an event of the collector")?)?
                }
                "lagged" => eprintln!("tailwater: {data} versions were skipped: this terminal is too slow"),
                _ => {}
            }
        }
    }
    Err(ClientError::Unreachable { url: api.url.clone(), why: "it closed the stream".into() }.into())
}

/// What was printed of each incident, so that text shows changes of meaning and not of counts.
struct Shown {
    json: bool,
    told: BTreeMap<String, (u64, String)>,
}

impl Shown {
    fn print(&mut self, i: &Incident) -> Result<()> {
        let meaning = format!("{:?} {:?} {:?} {}", i.state, i.kind, i.root.resource, i.root.host);
        let before = self.told.insert(i.id.clone(), (i.version, meaning.clone()));
        let repeated =
            before.is_some_and(|(version, told)| version >= i.version || (!self.json && told == meaning));
        if repeated {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut out, i)?;
            writeln!(out)?;
        } else {
            let severity = format!("{:?}", i.severity).to_lowercase();
            let state = format!("{:?}", i.state).to_lowercase();
            let at = text::Civil::of(i.start_unix_ns);
            let kind = outlet::kind_name(i.kind);
            writeln!(out, "{} {} {severity:<8} {state:<6} {kind} {}", at.date(), at.time_ms(), i.id)?;
            writeln!(out, "    {}", text::line(&i.title))?;
        }
        out.flush()?;
        Ok(())
    }
}

async fn explained(api: &Api, id: Option<&str>, plot: Option<&Path>) -> Result<()> {
    let collector = Collector::new(&api.url)?;
    let list: Incidents = collector.get("/api/v1/incidents?limit=10000").await?;
    let incident = match id {
        Some(id) => one_of(&list.incidents, id, "`tailwater incidents` lists those that are kept")?,
        None => list
            .incidents
            .first()
            .context("no incident yet\n  remedy: `tailwater incidents --follow` waits for one")?,
    };
    let id = &incident.id;
    let incident: Incident = collector.get(&format!("/api/v1/incidents/{id}")).await?;
    let timeline = collector.get(&format!("/api/v1/incidents/{id}/timeline")).await?;
    show(&incident, &timeline, plot)
}

/// As text, or as a picture.
fn show(incident: &Incident, timeline: &Timeline, plot: Option<&Path>) -> Result<()> {
    if let Some(path) = plot {
        plot::to_file(incident, timeline, path)?;
        eprintln!("{} drawn into {}", incident.id, path.display());
        return Ok(());
    }
    std::io::stdout().lock().write_all(explain::text(incident, timeline).as_bytes())?;
    Ok(())
}

/// The incident whose id begins so.
fn one_of<'a>(incidents: &'a [Incident], id: &str, remedy: &str) -> Result<&'a Incident> {
    let begin = id.to_uppercase();
    let mut fits = incidents.iter().filter(|i| i.id.starts_with(&begin));
    match (fits.next(), fits.next()) {
        (Some(incident), None) => Ok(incident),
        (None, _) => anyhow::bail!("no incident {id}\n  remedy: {remedy}"),
        (Some(a), Some(b)) => {
            anyhow::bail!("{id} fits several incidents, such as {} and {}: give more of it", a.id, b.id)
        }
    }
}

async fn alerts(api: &Api, dead: bool, json: bool, resend: Option<Option<String>>, all: bool) -> Result<()> {
    match resend {
        None => list::print(&api.url, dead, json).await,
        Some(Some(id)) if !all => list::resend(&api.url, Some(id)).await,
        Some(None) if all => list::resend(&api.url, None).await,
        Some(_) => {
            anyhow::bail!("--resend needs an id, or --all\n  remedy: `tailwater alerts --dead` lists ids")
        }
    }
}

async fn record(api: &Api, out: &Path, duration: Duration) -> Result<()> {
    let collector = Collector::new(&api.url)?;
    let seconds = duration.as_secs().max(1);
    let mut body = collector.open(&format!("/api/v1/record?seconds={seconds}")).await?;
    let mut file = File::create(out).with_context(|| format!("write {}", out.display()))?;
    let mut bytes = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the collector ended the recording")?;
        if let Some(data) = frame.data_ref() {
            bytes += data.len();
            file.write_all(data).with_context(|| format!("write {}", out.display()))?;
        }
    }
    eprintln!(
        "{} bytes in {}; `tailwater replay {}` prints its incidents",
        bytes,
        out.display(),
        out.display()
    );
    Ok(())
}

fn replayed(
    file: &Path,
    config: Option<&Path>,
    shuffle: Option<u64>,
    explain: Option<&str>,
    plot: Option<&Path>,
) -> Result<()> {
    let input = replay::open(file)?;
    let config = config.map(|path| tailwater::config::Config::load(Some(path), &[])).transpose()?;
    let result = replay::replay(input, config.map(|c| c.pipeline()), shuffle, explain.is_some())
        .with_context(|| format!("replay {}", file.display()))?;
    match explain {
        None => result.write(&mut std::io::stdout().lock())?,
        Some(id) => {
            let incident = one_of(&result.incidents, id, "`tailwater replay` without --explain lists them")?;
            let timeline = result.timelines.get(&incident.id).context("the incident's windows")?;
            show(incident, timeline, plot)?;
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

//! `tailwater replay FILE --serve`: the page and its API on a recording, at the recording's own time. Needs neither root nor a kernel
//! feature, and writes nothing. Owns reading with progress, and the order in which things can fail: the port first.

use super::memory::Memory;
use super::records::{self, Records};
use super::{Player, recorded_config};
use crate::alert;
use crate::clock::Clock;
use crate::run::config::Config;
use crate::run::server;
use crate::serve::front::{Front, HttpTlsFiles};
use crate::serve::gate::{Gate, Rules};
use crate::serve::{App, Recording, Source};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Whoever waits longer than this is told how far it is.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// Records between two looks at the clock.
const LOOK_EVERY: u64 = 256;
/// Answers finish within this.
const ANSWERS_WITHIN: Duration = Duration::from_millis(1000);

/// What to serve, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The recording.
    pub file: PathBuf,
    /// Address, names and bounds of memory.
    pub config: Config,
    /// Analyses with `config` instead of the recorded configuration.
    pub reanalyse: bool,
}

/// Serves until `stop`.
pub async fn serve(options: Options, stop: CancellationToken) -> Result<()> {
    // A recording has no tokens: whoever lets others reach it says so.
    if options.config.tokens_always() {
        bail!(
            "http = \"{}\": whoever reaches it sees the recording\n  remedy: say --http-remote if that is meant, or listen on 127.0.0.1",
            options.config.http
        );
    }
    let tls = options.config.http_tls.as_ref().map(HttpTlsFiles::load).transpose()?;
    let http = server::bind("http", options.config.http).await?;
    let address = http.local_addr().context("the page's address")?;
    let config = options.config.clone();
    let reading = tokio::task::spawn_blocking(move || read(&options));
    let (memory, recording) = tokio::select! {
        read = reading => read.context("the thread that reads")??,
        () = stop.cancelled() => return Ok(()),
    };
    let newest =
        memory.shown.store.lock().ok().and_then(|s| Some(s.list((0, u64::MAX), None, 1).first()?.id.clone()));
    told(&recording, &config)?;
    let shutdown = CancellationToken::new();
    let routes = shown(memory, recording, shutdown.clone());
    let gate = Gate::new(Rules::open(address.port(), tls.is_some()), Arc::default(), Clock::default());
    let front =
        Front { gate: Arc::new(gate), names: config.http_hosts.clone(), tls, metrics: Arc::default() };
    let tasks = TaskTracker::new();
    tasks.spawn(front.serve(http, routes, shutdown.clone()));
    let scheme = config.scheme();
    let mut out = std::io::stdout();
    writeln!(
        out,
        "page: {scheme}://{address}/{}",
        newest.map(|id| format!("incidents/{id}")).unwrap_or_default()
    )?;
    writeln!(
        out,
        "  ends with Ctrl-C; `tailwater incidents`, `explain` and `top` take --collector {scheme}://{address}"
    )?;
    out.flush()?;
    stop.cancelled().await;
    shutdown.cancel();
    tasks.close();
    // Whoever still reads is cut off: nothing is lost with it.
    let _ = tokio::time::timeout(ANSWERS_WITHIN, tasks.wait()).await;
    Ok(())
}

/// All routes on a recording, without a port.
pub fn routes(options: &Options, shutdown: CancellationToken) -> Result<axum::Router> {
    let (memory, recording) = read(options)?;
    Ok(shown(memory, recording, shutdown))
}

fn shown(memory: Memory, recording: Recording, shutdown: CancellationToken) -> axum::Router {
    let clock = Clock::standing(recording.end_unix_ns);
    let source = Source::Recording(Arc::new(recording));
    let alive = Arc::new(AtomicBool::new(true));
    let app = App::new(memory.shown, memory.registry, memory.metrics, source, alive, shutdown);
    app.advising(memory.sizing).at(clock).routes().merge(alert::api::routes(
        alert::Handle::default(),
        |_| String::new(),
        Arc::new(|_: &str| None),
    ))
}

/// The whole recording, through the analysis into memory.
fn read(options: &Options) -> Result<(Memory, Recording)> {
    let file = &options.file;
    let of_file = || format!("replay {}", file.display());
    let (input, progress) = records::watched(file)?;
    let mut records = Records::new(input).with_context(of_file)?;
    let analysis = match options.reanalyse {
        true => options.config.pipeline(),
        false => recorded_config(records.header.as_ref()).with_context(of_file)?,
    };
    let mut player = Player::new(analysis, Memory::new(&options.config));
    let clock = Clock::default();
    let begun = clock.monotonic();
    let mut due = TELL_EVERY;
    while let Some(body) = records.next() {
        player.play(body.with_context(of_file)?);
        let took = clock.monotonic().saturating_duration_since(begun);
        if records.count.is_multiple_of(LOOK_EVERY) && took >= due {
            due = took + TELL_EVERY;
            eprintln!(
                "tailwater: reading {}: {:.0} % of the file, {} s so far",
                file.display(),
                progress.ratio() * 100.0,
                took.as_secs()
            );
        }
    }
    player.finish();
    let settled = player.hears.settle(&player.pipeline);
    let Some(recording) = settled else {
        bail!("replay {}: the recording holds no windows: there is nothing to look at", file.display());
    };
    let recording = Recording {
        file: name(file),
        records: records.count,
        torn: records.torn,
        refused: player.refused,
        ..recording
    };
    Ok((player.hears, recording))
}

/// Without its folders: whoever looks at the page need not know them.
fn name(file: &Path) -> String {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

/// What is not all there, and how many incidents there are.
fn told(recording: &Recording, config: &Config) -> Result<()> {
    let mut err = std::io::stderr().lock();
    if let Some(torn) = &recording.torn {
        writeln!(err, "tailwater: {}: {torn}", recording.file)?;
    }
    if recording.refused > 0 {
        writeln!(err, "tailwater: {}: {} messages did not convert", recording.file, recording.refused)?;
    }
    if recording.windows_from_unix_ns > recording.start_unix_ns {
        let left_out_s = (recording.windows_from_unix_ns - recording.start_unix_ns) / 1_000_000_000;
        let mib = config.series_mib_max;
        writeln!(
            err,
            "tailwater: {}: the first {left_out_s} s of windows do not fit into {mib} MiB and are not in the charts (series_mib_max in a file for --config); incidents keep their timelines",
            recording.file
        )?;
    }
    if recording.incidents_dropped > 0 {
        writeln!(
            err,
            "tailwater: {}: the oldest {} incidents are left out (incidents_max in a file for --config)",
            recording.file, recording.incidents_dropped
        )?;
    }
    let seconds = (recording.end_unix_ns - recording.start_unix_ns) as f64 / 1e9;
    writeln!(err, "{}: {seconds:.1} s, {} incidents", recording.file, recording.incidents)?;
    Ok(())
}

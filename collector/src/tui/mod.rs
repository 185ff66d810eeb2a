//! `tailwater top`: the collector's view of all tiers in a terminal. Owns the loop between keys, news and screen; what is known is
//! in `state`, what is drawn in `view` (both pure), what is asked in `feed`.

mod answers;
mod feed;
mod keys;
mod signals;
mod state;
mod steer;
pub mod terminal;
mod tiers;
mod view;

use crate::client::{ClientError, Collector};
use crate::clock::Clock;
use clap::Args;
use crossterm::event::{Event, EventStream, KeyEventKind};
use state::{Action, State, Wish};
use std::time::Duration;
use terminal::Session;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

/// After a signal, what does not end by itself within this time is ended.
const GRACE: Duration = Duration::from_secs(2);

/// What can be chosen.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The collector
    #[command(flatten)]
    pub api: crate::client::options::Api,
    /// Between two looks at the tiers
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "500ms")]
    pub interval: Duration,
    /// No characters beyond ASCII, as where the locale is not UTF-8
    #[arg(long)]
    pub ascii: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = crate::client::options::duration(text)?;
    let bounds = Duration::from_millis(100)..=Duration::from_secs(60);
    bounds.contains(&interval).then_some(interval).ok_or_else(|| "must be 100ms to 60s".to_owned())
}

/// Why the view ended.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The collector's address is none.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No terminal, or one that went away.
    #[error("terminal: {0}\n  remedy: run it in a terminal, or use `tailwater incidents` in scripts")]
    Terminal(std::io::Error),
    /// No thread, no signal handler.
    #[error("start: {0}")]
    Start(std::io::Error),
}

/// Runs until a key or a signal ends it. The terminal is then as it was.
pub fn run(options: &Options) -> Result<(), TopError> {
    let collector = Collector::new(&options.api)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(TopError::Start)?;
    let look = view::Look::of_environment(options.ascii);
    let result = runtime.block_on(async {
        let stop = signals().map_err(TopError::Start)?;
        let session = Session::start().map_err(TopError::Terminal)?;
        turn(session, collector, options, look, stop).await
    });
    runtime.shutdown_background();
    result
}

/// A token that any of the ending signals cancels. Where the terminal takes no more output, the loop cannot see it: then the process
/// is ended from here.
fn signals() -> std::io::Result<CancellationToken> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = signal(SignalKind::hangup())?;
    let stop = CancellationToken::new();
    let stopper = stop.clone();
    tokio::spawn(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {}, _ = hangup.recv() => {} }
        stopper.cancel();
        tokio::time::sleep(GRACE).await;
        // The modes need no output to be taken, unlike the rest of what `restore` does.
        let _ = crossterm::terminal::disable_raw_mode();
        std::process::exit(1);
    });
    Ok(stop)
}

async fn turn(
    mut session: Session,
    collector: Collector,
    options: &Options,
    look: view::Look,
    stop: CancellationToken,
) -> Result<(), TopError> {
    let clock = Clock::default();
    let begun = clock.monotonic();
    let (out, mut updates) = mpsc::channel(feed::UPDATES_MAX);
    let (wish, wished) = watch::channel(Wish::Nothing);
    let mut feeds = tokio::task::JoinSet::new();
    feeds.spawn(feed::poll(collector.clone(), out.clone(), wished, options.interval));
    feeds.spawn(feed::listen(collector, out));
    let mut continued = signal(SignalKind::from_raw(libc::SIGCONT)).map_err(TopError::Start)?;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let mut events = EventStream::new();
    let mut state = State::new(&options.api.url);
    loop {
        let (mut columns, mut scroll) = (0, 0);
        let now = clock.monotonic() - begun;
        session
            .draw(|frame| {
                columns = view::signal_columns(frame.area());
                scroll = view::draw(frame.buffer_mut(), &state, look, now);
            })
            .map_err(TopError::Terminal)?;
        state.scroll = scroll;
        let wanted = state.wish(columns);
        wish.send_if_modified(|asked| {
            let changed = *asked != wanted;
            *asked = wanted;
            changed
        });
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => match keys::action(&key) {
                    Some(Action::Quit) => return Ok(()),
                    Some(Action::Suspend) => session.suspend().map_err(TopError::Terminal)?,
                    Some(Action::Redraw) => session.take_back().map_err(TopError::Terminal)?,
                    Some(action) => state.act(action),
                    None => {}
                },
                Some(Ok(_)) => {} // Another size: the next frame has it.
                Some(Err(e)) => return Err(TopError::Terminal(e)),
                None => return Ok(()),
            },
            _ = continued.recv() => session.take_back().map_err(TopError::Terminal)?,
            Some(ended) = feeds.join_next() => if let Err(e) = ended {
                // A task's panic is the program's: it would otherwise show old values for ever.
                if let Ok(panic) = e.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            },
            update = updates.recv() => {
                let now = clock.monotonic() - begun;
                let mut next = update;
                while let Some(update) = next {
                    state.apply(update, now);
                    next = updates.try_recv().ok();
                }
            }
            _ = second.tick() => {} // For what says how long ago something was.
        }
    }
}

#[cfg(test)]
mod tests;

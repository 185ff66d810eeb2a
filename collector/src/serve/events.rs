//! `/api/v1/live`: new versions of incidents as server-sent events, each with a cursor. Owns when a listener is too slow: it is ended with an event
//! that says so and where to go on, and takes nobody's memory meanwhile. A listener that comes again with a cursor (`Last-Event-ID`, `?after=`)
//! gets what it missed, or is told exactly what is gone.

use super::{App, Problem};
use crate::counters::Metrics;
use crate::live::events::{BEHIND_MAX, Cursor, Events, Gone};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;

/// Listeners at once: some hundreds of open pages.
pub(super) const LISTENERS_MAX: usize = 512;
/// Events that are written ahead for a listener, which its connection has not taken.
const WRITTEN_MAX: usize = 16;
/// What a listener that was told an event before gives back: the one name for it that browsers know.
const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Deserialize)]
pub(super) struct LiveQuery {
    /// The cursor behind which to go on, of programs that cannot set a header; the header of a browser that comes again is newer.
    after: Option<String>,
}

type Said = Result<Event, Infallible>;

pub(super) async fn live(
    State(app): State<App>,
    Query(q): Query<LiveQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Said>>, Problem> {
    let permit = Arc::clone(&app.subscribers).try_acquire_owned().map_err(|_| {
        Problem(StatusCode::SERVICE_UNAVAILABLE, format!("{LISTENERS_MAX} subscribers, the limit"))
    })?;
    let events = app.shown.live.clone();
    let after = headers.get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default().to_owned()).or(q.after);
    // Before the answer's head is sent: everything that is told after that head comes.
    let (at, gone) = match &after {
        None => (events.end(), None),
        Some(cursor) => events.resume(Cursor::parse(cursor)),
    };
    let (out, body) = mpsc::channel(WRITTEN_MAX);
    let listener = Listener {
        changed: events.watch(),
        behind_max: BEHIND_MAX.max(events.behind(at)),
        events,
        at,
        out,
        metrics: Arc::clone(&app.metrics),
    };
    let shutdown = app.shutdown.clone();
    tokio::spawn(async move {
        let _held = permit;
        let left = listener.out.clone();
        tokio::select! {
            _ = listener.told(gone) => {}
            () = shutdown.cancelled() => {}
            () = left.closed() => {}
        }
    });
    Ok(Sse::new(ReceiverStream::new(body)).keep_alive(KeepAlive::default()))
}

/// One that listens, on its way through the events.
struct Listener {
    events: Events,
    changed: watch::Receiver<u64>,
    /// Everything up to there was written for it.
    at: Cursor,
    /// More than this may not wait for it: the limit, or what waited when it came again.
    behind_max: u64,
    out: mpsc::Sender<Said>,
    metrics: Arc<Metrics>,
}

/// Why nothing more is written.
enum Ended {
    /// Nobody is there.
    Left,
    /// It is too slow.
    Slow,
}

impl Listener {
    async fn told(mut self, gone: Option<Gone>) -> Result<(), Ended> {
        // A browser's own `Last-Event-ID` from the first moment on.
        let begin = Event::default().id(self.at.to_string());
        self.write(begin).await?;
        if let Some(gone) = gone {
            self.metrics.live_lagged.add(match gone {
                Gone::Events { count, .. } => count,
                Gone::Unknown => 0,
            });
            self.write(lagged(gone)).await?;
        }
        loop {
            // What comes after this look wakes; what came before it is read.
            self.changed.borrow_and_update();
            let next = self.events.after(self.at, WRITTEN_MAX);
            if next.is_empty() {
                self.changed.changed().await.map_err(|_| Ended::Left)?;
                continue;
            }
            for (cursor, event) in next {
                let of = match event.json() {
                    Some(json) => Event::default().event("incident").id(cursor.to_string()).data(json),
                    None => Event::default().id(cursor.to_string()).comment("not serialisable"),
                };
                match self.write(of).await {
                    Ok(()) => self.at = cursor,
                    Err(Ended::Slow) => return self.end().await,
                    Err(Ended::Left) => return Err(Ended::Left),
                }
            }
        }
    }

    /// Waits for room, but for no longer than may wait for it.
    async fn write(&mut self, event: Event) -> Result<(), Ended> {
        loop {
            tokio::select! {
                biased;
                room = self.out.reserve() => {
                    room.map_err(|_| Ended::Left)?.send(Ok(event));
                    return Ok(());
                }
                more = self.changed.changed() => {
                    more.map_err(|_| Ended::Left)?;
                    if self.events.behind(self.at) > self.behind_max {
                        return Err(Ended::Slow);
                    }
                }
            }
        }
    }

    /// Says so and where to go on, as soon as it takes anything; a connection that takes nothing for long is closed (`front.rs`), and whoever comes
    /// again then has the cursor of the last event that it got.
    async fn end(self) -> Result<(), Ended> {
        self.metrics.live_ended_slow.inc();
        let (cursor, waiting) = (self.at.to_string(), self.events.behind(self.at));
        let text = format!(
            "{waiting} events wait for this reader, {} is the limit: ask again with Last-Event-ID: {cursor}, or ?after={cursor}",
            self.behind_max
        );
        let told = json!({ "after": cursor, "waiting": waiting, "text": text });
        let last = Event::default().event("slow").id(cursor).data(told.to_string());
        self.out.send(Ok(last)).await.map_err(|_| Ended::Left)
    }
}

/// What is gone, in the words of the API: `missed` is `null` where it is not known.
fn lagged(gone: Gone) -> Event {
    let told = match gone {
        Gone::Events { first, last, count } => json!({
            "missed": count, "first": first.to_string(), "last": last.to_string(),
            "text": format!("{count} events are no longer kept, {first} to {last}: /api/v1/incidents has the newest version of each incident"),
        }),
        Gone::Unknown => json!({
            "missed": null, "first": null, "last": null,
            "text": "this cursor is of no run of this collector that is known: what came between is told by /api/v1/incidents, what this run has told follows",
        }),
    };
    Event::default().event("lagged").data(told.to_string())
}

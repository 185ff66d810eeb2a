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
    let (listener, body) = Listener::new(events, at, Arc::clone(&app.metrics));
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
    /// More than this may not wait for it: the limit, or, until it has caught up, what waited when it came again.
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
    /// With what is written for it.
    fn new(events: Events, at: Cursor, metrics: Arc<Metrics>) -> (Self, mpsc::Receiver<Said>) {
        let (out, body) = mpsc::channel(WRITTEN_MAX);
        let (changed, behind_max) = (events.watch(), BEHIND_MAX.max(events.behind(at)));
        (Self { events, changed, at, behind_max, out, metrics }, body)
    }

    async fn told(mut self, gone: Option<Gone>) -> Result<(), Ended> {
        match gone {
            // A browser's own `Last-Event-ID` from the first moment on.
            None => self.write(Event::default().id(self.at.to_string())).await?,
            // Its new cursor comes with what is gone, not before: with the one it would never hear of the other.
            Some(gone) => self.lagged(gone).await?,
        }
        loop {
            // What comes after this look wakes; what came before it is read.
            self.changed.borrow_and_update();
            let next = self.events.after(self.at, WRITTEN_MAX);
            self.at = next.at;
            if let Some(gone) = next.gone {
                self.lagged(gone).await?;
            }
            if next.events.is_empty() {
                self.changed.changed().await.map_err(|_| Ended::Left)?;
                continue;
            }
            for (cursor, event) in next.events {
                let of = match event.json() {
                    Some(json) => Event::default().event("incident").id(cursor.to_string()).data(json),
                    None => Event::default().id(cursor.to_string()).comment("not serialisable"),
                };
                match self.write(of).await {
                    Ok(()) => self.went_on(cursor),
                    Err(Ended::Slow) => return self.end().await,
                    Err(Ended::Left) => return Err(Ended::Left),
                }
            }
        }
    }

    /// It was told everything up to there. One that came again far behind is held to the limit as it catches up; while it does, as many events may
    /// come as are written ahead, or the next one that came would end whoever reads as fast as it can.
    fn went_on(&mut self, to: Cursor) {
        self.at = to;
        let waiting = self.events.behind(to) + WRITTEN_MAX as u64;
        self.behind_max = BEHIND_MAX.max(self.behind_max.min(waiting));
    }

    /// Says what is gone, up to where it is now. Waits for room however many events come meanwhile: ended in between it would never hear of it.
    async fn lagged(&self, gone: Gone) -> Result<(), Ended> {
        if let Gone::Events { count, .. } = gone {
            self.metrics.live_lagged.add(count);
        }
        self.out.send(Ok(lagged(gone).id(self.at.to_string()))).await.map_err(|_| Ended::Left)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::live::events::KEPT_MAX;
    use axum::response::IntoResponse;
    use std::time::Duration;

    fn tell(events: &Events, count: u64) {
        (0..count).for_each(|n| events.tell(&Arc::new(fixture::incident("01", n))));
    }

    /// The next ones that are written, as they go over the wire.
    async fn heard(body: &mut mpsc::Receiver<Said>, count: usize) -> String {
        let mut said = Vec::new();
        for _ in 0..count {
            let next = tokio::time::timeout(Duration::from_secs(60), body.recv()).await;
            said.push(next.expect("something is written").unwrap());
        }
        let body = Sse::new(tokio_stream::iter(said)).into_response().into_body();
        String::from_utf8(axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap()
    }

    /// An event's number in the run of `of`.
    fn cursor(of: Cursor, number: u64) -> String {
        let text = of.to_string();
        let (run, _) = text.split_once('-').unwrap();
        format!("{run}-{number}")
    }

    #[tokio::test]
    async fn an_event_that_goes_before_a_listener_is_told_anything_is_told_as_gone() {
        let (events, metrics) = (Events::default(), Arc::<Metrics>::default());
        let begin = events.end();
        tell(&events, KEPT_MAX as u64);
        let (at, gone) = events.resume(Some(begin));
        assert_eq!((at, gone), (begin, None));
        let (listener, mut body) = Listener::new(events.clone(), at, Arc::clone(&metrics));
        tell(&events, 1);
        let telling = tokio::spawn(listener.told(gone));
        let text = heard(&mut body, 3).await;
        let told: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(told[0], format!("id: {begin}"));
        let first = cursor(begin, 1);
        assert!(told[1].starts_with("event: lagged\n") && told[1].contains("\"missed\":1,"), "{text}");
        assert!(told[1].ends_with(&format!("\nid: {first}")), "{text}");
        assert!(told[2].contains("event: incident\n"), "{text}");
        assert!(told[2].contains(&format!("id: {}\n", cursor(begin, 2))), "{text}");
        assert_eq!(metrics.live_lagged.get(), 1);
        telling.abort();
    }

    #[tokio::test]
    async fn who_missed_events_has_no_newer_cursor_before_it_hears_of_them() {
        let (events, metrics) = (Events::default(), Arc::<Metrics>::default());
        let begin = events.end();
        tell(&events, KEPT_MAX as u64 + 3);
        let (at, gone) = events.resume(Some(begin));
        let (listener, mut body) = Listener::new(events, at, metrics);
        let telling = tokio::spawn(listener.told(gone));
        let text = heard(&mut body, 1).await;
        assert!(text.starts_with("event: lagged\n") && text.contains("\"missed\":3,"), "{text}");
        assert!(text.ends_with(&format!("\nid: {}\n\n", cursor(begin, 3))), "{text}");
        telling.abort();
    }

    #[tokio::test]
    async fn one_that_came_again_far_behind_is_held_to_the_limit_once_it_has_caught_up() {
        let (events, metrics) = (Events::default(), Arc::<Metrics>::default());
        let begin = events.end();
        tell(&events, KEPT_MAX as u64);
        let (listener, mut body) = Listener::new(events.clone(), begin, Arc::clone(&metrics));
        let telling = tokio::spawn(listener.told(None));
        // It is written what it takes ahead; then some events come that it does not take yet.
        for _ in 0..WRITTEN_MAX / 2 {
            tokio::task::yield_now().await;
            tell(&events, 1);
        }
        tokio::task::yield_now().await;
        assert_eq!(metrics.live_ended_slow.get(), 0, "it may take as long as it took to come");
        heard(&mut body, 1 + KEPT_MAX + WRITTEN_MAX / 2).await;
        // From now on it takes nothing.
        for _ in 0..BEHIND_MAX + 2 * WRITTEN_MAX as u64 {
            tell(&events, 1);
            tokio::task::yield_now().await;
        }
        let ended = async {
            while metrics.live_ended_slow.get() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ended).await.expect("it is ended as any other");
        telling.abort();
    }
}

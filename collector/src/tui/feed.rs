//! What the view knows comes from here: one task that asks the collector again and again, one that listens to its events. Both try
//! again for ever and say while nobody answers. Knows the API and no screen.
//!
//! The queue to the screen holds [`UPDATES_MAX`] updates. When it is full both tasks wait: the asking one asks later, the listening
//! one becomes too slow for the collector, which ends it and says where to go on. What is gone by then is told, and the list asked for anew.

use super::answers::{Agents, Answered, Incidents, NowAnswer, Point, ResponsesAnswer, SeriesAnswer};
use super::signals::{Ask, SIGNALS, Signals, Unit, columns};
use super::state::{INCIDENTS_MAX, Story, Update, Wish};
use crate::client::{ClientError, Collector, Events, live};
use crate::text::encoded;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::fmt::Write;
use std::time::Duration;
use tailwater_model::TopologyView;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

/// Updates that may wait for the screen.
pub(crate) const UPDATES_MAX: usize = 64;
/// Look back of the overview: what an eye takes in.
pub(crate) const SECONDS: u64 = 5;
/// Longest wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
/// Between two tries while nobody answers.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Topology and agents change slowly: asked for once in so many rounds.
const SLOW_ROUNDS: u64 = 4;
/// What agents and the way take before a window is there.
const ARRIVES_WITHIN_NS: u64 = 250_000_000;

/// The way to the screen; an error means that it is closed.
type Out = mpsc::Sender<Update>;
struct Closed;

/// Why an answer did not come.
enum Failure {
    /// Nobody answers, or nobody who could be a collector.
    Away(String),
    /// It answered with an error.
    Refused(String),
}

async fn ask<T: DeserializeOwned>(collector: &Collector, path: &str) -> Result<T, Failure> {
    match timeout(ANSWER_WITHIN, collector.get(path)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(e)) => Err(failure(e)),
        Err(_) => Err(Failure::Away(format!("no answer within {} s", ANSWER_WITHIN.as_secs()))),
    }
}

fn failure(e: ClientError) -> Failure {
    match e {
        ClientError::Unreachable { why, .. } => Failure::Away(why),
        ClientError::Strange { why, .. } => Failure::Away(format!("no collector of this version: {why}")),
        ClientError::Refused { status, text, .. } if status < 500 => Failure::Refused(text),
        ClientError::Refused { status, text, .. } => Failure::Away(format!("{status}: {text}")),
        e => Failure::Away(e.to_string()),
    }
}

async fn send(out: &Out, update: Update) -> Result<(), Closed> {
    out.send(update).await.map_err(|_| Closed)
}

/// Asks every `interval`, and at once when the wish changes. Ends when the screen does.
pub(crate) async fn poll(
    collector: Collector,
    out: Out,
    mut wish: watch::Receiver<Wish>,
    interval: Duration,
) {
    let mut round = 0_u64;
    // What was wished when it was last answered.
    let mut answered = Wish::Nothing;
    loop {
        let wanted = wish.borrow_and_update().clone();
        let changed = wanted != answered;
        let pause = match one_round(&collector, &out, &wanted, changed, round).await {
            Ok(Ok(())) => {
                answered = wanted;
                round += 1;
                interval
            }
            Ok(Err(why)) => {
                // What changed meanwhile is asked for first.
                round = 0;
                if send(&out, Update::Away(why)).await.is_err() {
                    return;
                }
                AGAIN_AFTER
            }
            Err(Closed) => return,
        };
        tokio::select! {
            () = sleep(pause) => {}
            changed = wish.changed() => if changed.is_err() { return },
            () = out.closed() => return,
        }
    }
}

/// Inner error: why nobody answers.
async fn one_round(
    collector: &Collector,
    out: &Out,
    wanted: &Wish,
    changed: bool,
    round: u64,
) -> Result<Result<(), String>, Closed> {
    macro_rules! answer {
        ($asked:expr) => {
            match $asked {
                Ok(answer) => Some(answer),
                Err(Failure::Refused(why)) => {
                    send(out, Update::Refused(why)).await?;
                    None
                }
                Err(Failure::Away(why)) => return Ok(Err(why)),
            }
        };
    }
    if round.is_multiple_of(SLOW_ROUNDS) {
        if let Some(view) = answer!(ask::<TopologyView>(collector, "/api/v1/topology").await) {
            send(out, Update::Topology(view)).await?;
        }
        if let Some(all) = answer!(ask::<Agents>(collector, "/api/v1/agents").await) {
            send(out, Update::Agents(all.agents)).await?;
        }
    }
    let path = format!("/api/v1/now?seconds={SECONDS}");
    let Some(now) = answer!(ask::<NowAnswer>(collector, &path).await) else { return Ok(Ok(())) };
    let now_unix_ns = now.now_unix_ns;
    send(out, Update::Now(now)).await?;
    match wanted {
        Wish::Nothing => {}
        Wish::Signals(wanted) => {
            if let Some(signals) = answer!(signals(collector, wanted, now_unix_ns).await) {
                send(out, Update::Signals(signals)).await?;
            }
        }
        Wish::Story { id, open, .. } => {
            // A closed one hardly changes any more.
            if (changed || *open || round.is_multiple_of(SLOW_ROUNDS))
                && let Some(story) = answer!(story(collector, id).await)
            {
                send(out, Update::Story(Box::new(story))).await?;
            }
        }
    }
    Ok(Ok(()))
}

async fn story(collector: &Collector, id: &str) -> Result<Story, Failure> {
    let incident = ask(collector, &format!("/api/v1/incidents/{id}")).await?;
    let timeline = ask(collector, &format!("/api/v1/incidents/{id}/timeline")).await?;
    Ok(Story { asked: id.to_owned(), incident, timeline })
}

/// All lines of a tier's page, asked for side by side.
async fn signals(collector: &Collector, wanted: &Ask, now_unix_ns: u64) -> Result<Signals, Failure> {
    let column_ns = tailwater_model::window::WINDOW_NS * wanted.step;
    // On whole columns, so that a window stays in its column while time goes on.
    let end = now_unix_ns.saturating_sub(ARRIVES_WITHIN_NS) / column_ns * column_ns;
    let start = end.saturating_sub(column_ns * wanted.columns as u64);
    let mut asked = tokio::task::JoinSet::new();
    for (n, signal) in SIGNALS.iter().enumerate() {
        let (host, quantile) = (encoded(&wanted.tier.host), signal.unit == Unit::Quantile);
        let mut path = if quantile {
            format!("/api/v1/responses?host={host}")
        } else {
            format!("/api/v1/series?host={host}&metric={}", signal.metric)
        };
        if !signal.host {
            let _ = write!(path, "&workload={}", encoded(&wanted.tier.workload));
        }
        // The collector's end is its last window.
        let _ = write!(path, "&start={start}&end={}&max_points={}", end.saturating_sub(1), wanted.columns);
        let collector = collector.clone();
        asked.spawn(async move { (n, points(&collector, &path, quantile).await) });
    }
    let mut values = vec![Default::default(); SIGNALS.len()];
    while let Some(joined) = asked.join_next().await {
        let (n, answer) = match joined {
            Ok(done) => done,
            Err(e) => match e.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => continue,
            },
        };
        values[n] = columns(&answer?, start, column_ns, wanted.columns);
    }
    Ok(Signals { ask: wanted.clone(), start_unix_ns: start, column_ns, values })
}

/// The points of one line.
async fn points(collector: &Collector, path: &str, quantile: bool) -> Result<Vec<Point>, Failure> {
    if !quantile {
        return ask::<SeriesAnswer>(collector, path).await.map(|answer| answer.points);
    }
    match ask::<ResponsesAnswer>(collector, path).await {
        Ok(answer) => Ok(answer.points.iter().filter_map(Answered::p99).collect()),
        // A collector of before does not know the question: the other lines are there all the same.
        Err(Failure::Refused(_)) => Ok(Vec::new()),
        Err(away) => Err(away),
    }
}

/// Listens to new versions of incidents, for ever. That nobody answers is said by [`poll`].
pub(crate) async fn listen(collector: Collector, out: Out) {
    // Up to where events came. Without one all is asked for anew.
    let mut cursor = None;
    while hear(&collector, &out, &mut cursor).await.is_ok() {
        tokio::select! {
            () = sleep(AGAIN_AFTER) => {}
            () = out.closed() => return,
        }
    }
}

/// One stream, until it ends.
async fn hear(collector: &Collector, out: &Out, cursor: &mut Option<String>) -> Result<(), Closed> {
    let path = live(cursor.as_deref());
    let Ok(Ok(mut stream)) = timeout(ANSWER_WITHIN, collector.open(&path)).await else {
        return Ok(());
    };
    // After subscribing: what happens in between comes twice rather than never.
    if cursor.is_none() && !list(collector, out).await? {
        return Ok(());
    }
    let mut events = Events::default();
    loop {
        let frame = tokio::select! {
            frame = stream.frame() => frame,
            () = out.closed() => return Err(Closed),
        };
        let Some(Ok(frame)) = frame else { return Ok(()) };
        let Some(bytes) = frame.data_ref() else { continue };
        for (event, data) in events.feed(bytes) {
            let incident =
                (event == "incident").then(|| serde_json::from_str::<tailwater_model::Incident>(&data));
            let list_is_old = match incident {
                Some(Ok(incident)) => {
                    // Its windows may have replaced an early alert of another id: the list says which are left.
                    let first = incident.version == 1;
                    send(out, Update::Incident(Box::new(incident))).await?;
                    first
                }
                Some(Err(_)) => false,
                None => event == "lagged",
            };
            if list_is_old && !list(collector, out).await? {
                *cursor = None;
                return Ok(());
            }
        }
        *cursor = events.cursor().map(str::to_owned);
    }
}

/// Whether it came.
async fn list(collector: &Collector, out: &Out) -> Result<bool, Closed> {
    match ask::<Incidents>(collector, &format!("/api/v1/incidents?limit={INCIDENTS_MAX}")).await {
        Ok(list) => send(out, Update::Incidents(list.incidents)).await.map(|()| true),
        Err(_) => Ok(false),
    }
}

//! Who is answered when: a few requests are worked on at once, the others wait, and of those that wait each client has its turn after the other.
//! Owns how many, for how long, and what is told to those who get no turn. Layers that there are (tower's limits and load shedding) have one line for
//! all, in which whoever asks most is answered most; here turns go round among clients, as in the API server of Kubernetes, and long answers have a
//! line of their own, so that short ones never wait for them.

use super::Problem;
use super::gate::Peer;
use super::readers::cpus;
use super::rights::{self, Lane};
use crate::access::role::Who;
use crate::clock::Clock;
use crate::counters::Metrics;
use crate::lock::lock;
use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;

/// Longest wait for a turn: whoever asked has given up by then, or is about to.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// Requests that wait in one line.
const WAITING_MAX: usize = 512;
/// And of one client: two hundred pages behind one address are one.
const WAITING_OF_ONE_MAX: usize = 256;
/// When somebody who was not answered may ask again, s.
const AGAIN_AFTER_S: u64 = 2;
/// Short answers that are worked on at once, at least: one that waits for a disk is not all of them.
const SHORT_MIN: usize = 2;
/// A question about more than this is a long one, ns: ten minutes, as much as a chart of the page asks for unasked.
const LONG_NS: u64 = 600_000_000_000;
/// By this name `tailwater_limits_reached_total` and `/readyz` tell of requests that had to be refused.
const LIMIT: &str = "readers";

/// Who asks: the address, and who that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Client {
    from: IpAddr,
    name: String,
}

impl Client {
    fn of(request: &Request) -> Self {
        let from = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
        let name = request.extensions().get::<Who>().map(|who| who.name.clone());
        Self { from: from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), name: name.unwrap_or_default() }
    }
}

/// Why a request gets no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Shed {
    #[error(
        "this collector is asked for more than it can answer: this request waited {} s for its turn; ask again later, or for less", TURN_WITHIN.as_secs()
    )]
    Late,
    #[error(
        "this collector is asked for more than it can answer: {WAITING_MAX} requests wait already; ask again later"
    )]
    TooMany,
    #[error(
        "{WAITING_OF_ONE_MAX} requests of yours wait for their turn already: ask for fewer things at a time, and ask again later"
    )]
    TooManyOfOne,
}

impl Shed {
    fn kind(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::TooMany => "too_many",
            Self::TooManyOfOne => "too_many_of_one",
        }
    }
}

impl IntoResponse for Shed {
    fn into_response(self) -> Response {
        let mut answer = Problem(StatusCode::SERVICE_UNAVAILABLE, self.to_string()).into_response();
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(AGAIN_AFTER_S));
        answer
    }
}

/// One line, and how many of it are worked on at once.
#[derive(Debug)]
struct Line {
    waiting: Mutex<Waiting>,
    within: Duration,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Turns that nobody has.
    free: usize,
    /// Clients of whom something waits, in the order of their turns.
    clients: VecDeque<(Client, VecDeque<oneshot::Sender<Turn>>)>,
    count: usize,
}

impl Waiting {
    /// The next one, whose client stands behind all others from then on.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let (client, mut own) = self.clients.pop_front()?;
        let next = own.pop_front();
        self.count -= usize::from(next.is_some());
        if !own.is_empty() {
            self.clients.push_back((client, own));
        }
        next
    }

    /// Without those who went away.
    fn tidy(&mut self) {
        self.clients.iter_mut().for_each(|(_, own)| own.retain(|waiter| !waiter.is_closed()));
        self.clients.retain(|(_, own)| !own.is_empty());
        self.count = self.clients.iter().map(|(_, own)| own.len()).sum();
    }

    fn of(&self, client: &Client) -> usize {
        self.clients.iter().find(|(of, _)| of == client).map_or(0, |(_, own)| own.len())
    }

    /// A place in the line.
    fn wait(&mut self, client: Client) -> Result<oneshot::Receiver<Turn>, Shed> {
        if self.count >= WAITING_MAX || self.of(&client) >= WAITING_OF_ONE_MAX {
            self.tidy();
        }
        if self.of(&client) >= WAITING_OF_ONE_MAX {
            return Err(Shed::TooManyOfOne);
        }
        if self.count >= WAITING_MAX {
            return Err(Shed::TooMany);
        }
        let (waiter, turn) = oneshot::channel();
        self.count += 1;
        match self.clients.iter_mut().find(|(of, _)| *of == client) {
            Some((_, own)) => own.push_back(waiter),
            None => self.clients.push_back((client, VecDeque::from([waiter]))),
        }
        Ok(turn)
    }
}

/// Somebody's turn; goes to the next one with this value.
#[derive(Debug)]
struct Turn(Option<Arc<Line>>);

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(line) = self.0.take() else { return };
        loop {
            let next = {
                let mut waiting = lock(&line.waiting);
                let next = waiting.next();
                waiting.free += usize::from(next.is_none());
                next
            };
            let Some(next) = next else { return };
            // Whoever is gone gives nothing on: that is done here.
            let Err(mut unwanted) = next.send(Turn(Some(Arc::clone(&line)))) else { return };
            unwanted.0 = None;
        }
    }
}

impl Line {
    fn new(at_once: usize, within: Duration) -> Arc<Self> {
        let waiting = Waiting { free: at_once, ..Waiting::default() };
        Arc::new(Self { waiting: Mutex::new(waiting), within })
    }

    /// Waits for this client's turn.
    async fn turn(self: &Arc<Self>, client: Client) -> Result<Turn, Shed> {
        let turn = {
            let mut waiting = lock(&self.waiting);
            // While a turn is free nobody waits.
            if let Some(rest) = waiting.free.checked_sub(1) {
                waiting.free = rest;
                return Ok(Turn(Some(Arc::clone(self))));
            }
            waiting.wait(client)?
        };
        match tokio::time::timeout(self.within, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            // That nobody gives turns any more does not happen: the line lives as long as those who wait in it.
            Ok(Err(_)) | Err(_) => Err(Shed::Late),
        }
    }
}

/// The lines of a server.
#[derive(Debug)]
pub(super) struct Turns {
    short: Arc<Line>,
    long: Arc<Line>,
    monitoring: Arc<Line>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl Turns {
    pub(super) fn new(metrics: Arc<Metrics>, clock: Clock) -> Arc<Self> {
        [Shed::Late, Shed::TooMany, Shed::TooManyOfOne]
            .iter()
            .for_each(|of| metrics.http_shed.add(of.kind(), 0));
        let line = |at_once| Line::new(at_once, TURN_WITHIN);
        Arc::new(Self {
            short: line(cpus().max(SHORT_MIN)),
            long: line(1),
            monitoring: line(1),
            metrics,
            clock,
        })
    }

    /// The line that a request stands in; `None`: it is answered at once.
    fn of(&self, request: &Request) -> Option<&Arc<Line>> {
        let path = request.extensions().get::<MatchedPath>()?;
        match rights::lane(path.as_str()) {
            Lane::Free => None,
            Lane::Short if is_long(path.as_str(), request.uri(), self.clock.unix_ns()) => Some(&self.long),
            Lane::Short => Some(&self.short),
            Lane::Long => Some(&self.long),
            Lane::Monitoring => Some(&self.monitoring),
        }
    }
}

/// A span of time in a question.
#[derive(Deserialize)]
struct Span {
    start: Option<u64>,
    end: Option<u64>,
    at: Option<u64>,
}

/// Whether a question of a route whose questions are mostly short is a long one. What cannot be read is refused soon.
fn is_long(path: &str, uri: &Uri, now_unix_ns: u64) -> bool {
    let Ok(Query(span)) = Query::<Span>::try_from_uri(uri) else { return false };
    match path {
        // Without a start: everything in memory.
        "/api/v1/series" => {
            span.start.is_none_or(|start| span.end.unwrap_or(now_unix_ns).saturating_sub(start) > LONG_NS)
        }
        "/api/v1/now" => span.at.is_some(),
        _ => false,
    }
}

/// Lets a request wait for its turn, or says why it gets none. Whoever goes away while it waits takes nobody's turn; what was begun is worked off,
/// and its turn is over with the work, not with the connection.
pub(super) async fn wait(State(turns): State<Arc<Turns>>, request: Request, next: Next) -> Response {
    let Some(line) = turns.of(&request) else { return next.run(request).await };
    let begun = turns.clock.monotonic();
    let turn = match line.turn(Client::of(&request)).await {
        Ok(turn) => turn,
        Err(shed) => {
            turns.metrics.http_shed.inc(shed.kind());
            turns.metrics.limits.reached(LIMIT, 1, turns.clock.unix_ns());
            return shed.into_response();
        }
    };
    let waited = turns.clock.monotonic().saturating_duration_since(begun);
    turns.metrics.http_wait.observe(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    let work = tokio::spawn(async move {
        let _turn = turn;
        next.run(request).await
    });
    match work.await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(answer) => answer,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => {
            Problem(StatusCode::SERVICE_UNAVAILABLE, "the collector is stopping".into()).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LONG: Duration = Duration::from_secs(60);

    fn client(name: &str) -> Client {
        Client { from: IpAddr::V4(Ipv4Addr::LOCALHOST), name: name.into() }
    }

    /// Until so many wait.
    async fn until_waiting(line: &Line, count: usize) {
        while lock(&line.waiting).count != count {
            tokio::task::yield_now().await;
        }
    }

    /// Each with its number, in the order in which they had their turns.
    async fn order(line: &Arc<Line>, asked: &[&str]) -> Vec<String> {
        let held = line.turn(client("first")).await.unwrap();
        let (told, mut heard) = tokio::sync::mpsc::channel(100);
        for (n, name) in asked.iter().enumerate() {
            let (line, told, name) = (Arc::clone(line), told.clone(), (*name).to_owned());
            tokio::spawn(async move {
                let _turn = line.turn(client(&name)).await.unwrap();
                told.send(name).await.unwrap();
            });
            until_waiting(held.0.as_ref().unwrap(), n + 1).await;
        }
        drop((told, held));
        let mut out = Vec::new();
        while let Some(name) = heard.recv().await {
            out.push(name);
        }
        out
    }

    #[tokio::test]
    async fn turns_go_round_among_clients_whoever_asks_most() {
        let line = Line::new(1, LONG);
        let asked = ["greedy", "greedy", "greedy", "greedy", "ann", "ann", "bob"];
        let expect = ["greedy", "ann", "bob", "greedy", "ann", "greedy", "greedy"];
        assert_eq!(order(&line, &asked).await, expect);
        assert_eq!(lock(&line.waiting).free, 1, "and then it is free");
    }

    #[tokio::test]
    async fn no_more_are_worked_on_at_once_than_may_be_and_all_are_answered() {
        let line = Line::new(3, LONG);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut all = tokio::task::JoinSet::new();
        for n in 0..50 {
            let (line, now, most) = (Arc::clone(&line), Arc::clone(&now), Arc::clone(&most));
            all.spawn(async move {
                let _turn = line.turn(client(&(n % 5).to_string())).await.unwrap();
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
            });
        }
        assert_eq!(all.join_all().await.len(), 50);
        assert_eq!((most.load(Ordering::SeqCst), lock(&line.waiting).free), (3, 3));
    }

    #[tokio::test]
    async fn who_waits_too_long_is_told_so_and_its_turn_goes_to_the_next() {
        let line = Line::new(1, Duration::from_millis(50));
        let held = line.turn(client("a")).await.unwrap();
        assert_eq!(line.turn(client("b")).await.unwrap_err(), Shed::Late);
        let next = tokio::spawn({
            let line = Arc::clone(&line);
            async move { line.turn(client("c")).await.map(drop) }
        });
        until_waiting(&line, 2).await;
        drop(held);
        assert_eq!(next.await.unwrap(), Ok(()), "b is gone, and takes nothing");
        // One look: two in an expression would wait for each other.
        let line = lock(&line.waiting);
        assert_eq!((line.free, line.count), (1, 0));
    }

    #[tokio::test]
    async fn one_client_fills_no_line_and_those_who_went_away_keep_nobody_out() {
        let line = Line::new(1, LONG);
        let held = line.turn(client("a")).await.unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        let wait = |of: &mut tokio::task::JoinSet<_>, name: &str| {
            let (line, client) = (Arc::clone(&line), client(name));
            of.spawn(async move { line.turn(client).await.map(drop) });
        };
        for n in 0..WAITING_OF_ONE_MAX {
            wait(&mut waiting, "greedy");
            until_waiting(&line, n + 1).await;
        }
        assert_eq!(line.turn(client("greedy")).await.unwrap_err(), Shed::TooManyOfOne);
        for n in WAITING_OF_ONE_MAX..WAITING_MAX {
            wait(&mut waiting, &format!("other {}", n % 5));
            until_waiting(&line, n + 1).await;
        }
        assert_eq!(line.turn(client("ann")).await.unwrap_err(), Shed::TooMany);
        waiting.shutdown().await;
        let mut again = tokio::task::JoinSet::new();
        wait(&mut again, "greedy");
        until_waiting(&line, 1).await;
        drop(held);
        assert_eq!(again.join_next().await.unwrap().unwrap(), Ok(()));
        assert_eq!(lock(&line.waiting).free, 1);
    }

    #[test]
    fn a_long_question_is_known_by_its_span() {
        let now = 10 * LONG_NS;
        let long = |path: &str, query: &str| is_long(path, &format!("{path}?{query}").parse().unwrap(), now);
        let series = "/api/v1/series";
        assert!(long(series, "host=a&metric=drops"), "all that is in memory");
        assert!(long(series, &format!("host=a&start={}", now - LONG_NS - 1)));
        assert!(!long(series, &format!("host=a&start={}", now - LONG_NS)));
        assert!(!long(series, &format!("start=0&end={LONG_NS}&max_points=9")));
        assert!(long("/api/v1/now", "at=5") && !long("/api/v1/now", "seconds=5"));
        assert!(!long("/api/v1/agents", "") && !long(series, "start=x"));
    }
}

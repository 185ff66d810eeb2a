//! Who is answered when: a few requests are worked on at once, the others wait, and of those that wait each client has its turn after the other.
//! Owns how many, for how long, and what is told to those who get no turn. Layers that there are (tower's limits and load shedding) have one line for
//! all, in which whoever asks most is answered most; here turns go round among clients, as in the API server of Kubernetes, and long answers have a
//! line of their own, so that short ones never wait for them.

use super::Problem;
use super::gate::Peer;
use super::readers::cpus;
use super::rights::{self, Lane};
use super::series::points_max;
use super::untaken::Untaken;
use crate::access::attempts::network;
use crate::access::role::Who;
use crate::clock::Clock;
use crate::counters::Metrics;
use crate::live::metric::METRICS;
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
use tailwater_model::window::WINDOW_NS;
use tokio::sync::oneshot;

/// Longest wait for a turn: whoever asked has given up by then, or is about to.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// Requests that wait in one line.
const WAITING_MAX: usize = 512;
/// And of one client: two hundred pages behind one address are one.
const WAITING_OF_ONE_MAX: usize = 256;
/// Answers that wait to be taken, bytes: short ones, long ones (the largest has a hundred megabytes) and those of monitoring. Each line has its own, so
/// that whoever takes no long answer keeps nobody from a short one.
const UNTAKEN_BYTES_MAX: [u32; 3] = [128 << 20, 256 << 20, 32 << 20];
/// When somebody who was not answered may ask again, s.
const AGAIN_AFTER_S: u64 = 2;
/// Short answers that are worked on at once, at least: one that waits for a disk is not all of them.
const SHORT_MIN: usize = 2;
/// A question about more than this is a long one, ns: ten minutes, as much as a chart of the page asks for unasked.
const LONG_NS: u64 = 600_000_000_000;
/// And one whose answer may have more points than this, in all of its metrics: some megabytes. The page asks for 900 of each.
const LONG_POINTS: u64 = 50_000;
/// By this name `tailwater_limits_reached_total` and `/readyz` tell of requests that had to be refused.
const LIMIT: &str = "readers";

/// Who asks: the address, or of IPv6 the network whose addresses one machine has as it likes, and who that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Client {
    from: IpAddr,
    name: String,
}

impl Client {
    fn of(request: &Request) -> Self {
        let from = request.extensions().get::<Peer>().map(|peer| network(peer.0.ip()));
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
    #[error(
        "too many bytes of answers wait for those who asked for them to take them: read what you asked for; ask again later, or for less"
    )]
    Untaken,
}

impl Shed {
    fn kind(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::TooMany => "too_many",
            Self::TooManyOfOne => "too_many_of_one",
            Self::Untaken => "untaken",
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
    untaken: Untaken,
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
    /// The next one that is still there, whose client stands behind all others from then on. Those that went away spend nobody's turn.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        loop {
            let (client, mut own) = self.clients.pop_front()?;
            let mut next = None;
            while let Some(waiter) = own.pop_front() {
                self.count -= 1;
                if !waiter.is_closed() {
                    next = Some(waiter);
                    break;
                }
            }
            if !own.is_empty() {
                self.clients.push_back((client, own));
            }
            if next.is_some() {
                return next;
            }
        }
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

    /// Whoever has most gives up its newest place for a client that has `own`, unless that would then have as many: a few who ask for everything
    /// fill the line for each other, not for the rest. Whether there is room.
    fn make_room(&mut self, own: usize) -> bool {
        let Some((_, most)) = self.clients.iter_mut().max_by_key(|(_, of)| of.len()) else { return false };
        if most.len() <= own + 1 {
            return false;
        }
        // Nobody gives it a turn any more: by that it knows.
        self.count -= usize::from(most.pop_back().is_some());
        true
    }

    /// A place in the line.
    fn wait(&mut self, client: Client) -> Result<oneshot::Receiver<Turn>, Shed> {
        if self.count >= WAITING_MAX || self.of(&client) >= WAITING_OF_ONE_MAX {
            self.tidy();
        }
        let own = self.of(&client);
        if own >= WAITING_OF_ONE_MAX {
            return Err(Shed::TooManyOfOne);
        }
        if self.count >= WAITING_MAX && !self.make_room(own) {
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
    fn new(at_once: usize, within: Duration, untaken: Untaken) -> Arc<Self> {
        let waiting = Waiting { free: at_once, ..Waiting::default() };
        Arc::new(Self { waiting: Mutex::new(waiting), within, untaken })
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
            // The line lives as long as those who wait in it: its place was given to somebody else.
            Ok(Err(_)) => Err(Shed::TooMany),
            Err(_) => Err(Shed::Late),
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
        [Shed::Late, Shed::TooMany, Shed::TooManyOfOne, Shed::Untaken]
            .iter()
            .for_each(|of| metrics.http_shed.add(of.kind(), 0));
        let line = |at_once, untaken_max| Line::new(at_once, TURN_WITHIN, Untaken::new(untaken_max));
        let [short, long, monitoring] = UNTAKEN_BYTES_MAX;
        Arc::new(Self {
            short: line(cpus().max(SHORT_MIN), short),
            long: line(1, long),
            monitoring: line(1, monitoring),
            metrics,
            clock,
        })
    }

    /// Counts it, and says so.
    fn refuse(&self, shed: Shed) -> Response {
        self.metrics.http_shed.inc(shed.kind());
        self.metrics.limits.reached(LIMIT, 1, self.clock.unix_ns());
        shed.into_response()
    }

    /// The line that a request stands in; `None`: it is answered at once.
    fn of(&self, request: &Request) -> Option<&Arc<Line>> {
        let path = request.extensions().get::<MatchedPath>()?;
        match rights::lane(path.as_str()) {
            Lane::Free | Lane::Bounded => None,
            Lane::Short if is_long(path.as_str(), request.uri(), self.clock.unix_ns()) => Some(&self.long),
            Lane::Short => Some(&self.short),
            Lane::Long => Some(&self.long),
            Lane::Monitoring => Some(&self.monitoring),
        }
    }
}

/// A span of time in a question, and how much of it is asked for.
#[derive(Deserialize)]
struct Span {
    start: Option<u64>,
    end: Option<u64>,
    at: Option<u64>,
    metric: Option<String>,
    tier: Option<String>,
    max_points: Option<usize>,
}

impl Span {
    /// Whether windows of this time are many, or the points that are made of them.
    fn is_long(&self, span_ns: u64) -> bool {
        let metrics = self.metric.as_deref().map_or(1, |names| names.split(',').count()).min(METRICS.len());
        // No more than there are windows; a span begins and ends within one.
        let points = (points_max(self.max_points) as u64).min(span_ns / WINDOW_NS + 2);
        span_ns > LONG_NS || points * metrics as u64 > LONG_POINTS
    }
}

/// Whether a question of a route whose questions are mostly short is a long one. What cannot be read is refused soon.
fn is_long(path: &str, uri: &Uri, now_unix_ns: u64) -> bool {
    let Ok(Query(span)) = Query::<Span>::try_from_uri(uri) else { return false };
    match path {
        // Of as many hosts as it has.
        "/api/v1/responses" if span.tier.is_some() => true,
        // Without a start: everything in memory.
        "/api/v1/series" | "/api/v1/responses" => {
            let end = span.end.unwrap_or(now_unix_ns);
            span.start.is_none_or(|start| span.is_long(end.saturating_sub(start)))
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
        Err(shed) => return turns.refuse(shed),
    };
    let waited = turns.clock.monotonic().saturating_duration_since(begun);
    turns.metrics.http_wait.observe(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    let work = tokio::spawn(async move {
        let _turn = turn;
        next.run(request).await
    });
    match work.await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(answer) => line.untaken.hold(answer).unwrap_or_else(|| turns.refuse(Shed::Untaken)),
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

    fn line_of(at_once: usize, within: Duration) -> Arc<Line> {
        Line::new(at_once, within, Untaken::new(1 << 20))
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
        let line = line_of(1, LONG);
        let asked = ["greedy", "greedy", "greedy", "greedy", "ann", "ann", "bob"];
        let expect = ["greedy", "ann", "bob", "greedy", "ann", "greedy", "greedy"];
        assert_eq!(order(&line, &asked).await, expect);
        assert_eq!(lock(&line.waiting).free, 1, "and then it is free");
    }

    #[tokio::test]
    async fn no_more_are_worked_on_at_once_than_may_be_and_all_are_answered() {
        let line = line_of(3, LONG);
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
        let line = line_of(1, Duration::from_millis(50));
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
        let line = line_of(1, LONG);
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
            wait(&mut waiting, &format!("other {n}"));
            until_waiting(&line, n + 1).await;
        }
        // Ann has a place, and who has most gives one up for it.
        wait(&mut waiting, "ann");
        assert_eq!(waiting.join_next().await.unwrap().unwrap(), Err(Shed::TooMany));
        {
            let of = lock(&line.waiting);
            let counts = (of.count, of.of(&client("greedy")), of.of(&client("ann")));
            assert_eq!(counts, (WAITING_MAX, WAITING_OF_ONE_MAX - 1, 1));
        }
        waiting.shutdown().await;
        let mut again = tokio::task::JoinSet::new();
        wait(&mut again, "greedy");
        until_waiting(&line, 1).await;
        drop(held);
        assert_eq!(again.join_next().await.unwrap().unwrap(), Ok(()));
        assert_eq!(lock(&line.waiting).free, 1);
    }

    #[test]
    fn two_that_fill_the_line_make_room_for_a_third_and_equals_do_not_push_each_other_out() {
        let mut line = Waiting::default();
        let mut greedy: Vec<_> = ["a", "b"]
            .iter()
            .flat_map(|name| (0..WAITING_OF_ONE_MAX).map(move |_| client(name)))
            .map(|of| line.wait(of).unwrap())
            .collect();
        assert_eq!(line.count, WAITING_MAX);
        let _third = line.wait(client("c")).unwrap();
        let [a, b] = ["a", "b"].map(|name| line.of(&client(name)));
        assert_eq!((a + b, a.min(b), line.count), (WAITING_MAX - 1, WAITING_OF_ONE_MAX - 1, WAITING_MAX));
        // The newest of one of them, and nobody else, hears that it has no place any more.
        let mut out = Vec::new();
        for (n, turn) in greedy.iter_mut().enumerate() {
            if let Err(oneshot::error::TryRecvError::Closed) = turn.try_recv() {
                out.push(n);
            }
        }
        assert!(out == [WAITING_OF_ONE_MAX - 1] || out == [WAITING_MAX - 1], "{out:?}");

        let mut line = Waiting::default();
        let _all: Vec<_> =
            (0..WAITING_MAX).map(|n| line.wait(client(&(n / 2).to_string())).unwrap()).collect();
        let _first = line.wait(client("new")).unwrap();
        assert_eq!(line.wait(client("new")).unwrap_err(), Shed::TooMany, "it has as many as the others");
        assert_eq!(line.count, WAITING_MAX);
    }

    #[test]
    fn those_who_went_away_spend_no_turn_of_their_client() {
        let mut line = Waiting::default();
        (0..3).for_each(|_| drop(line.wait(client("a")).unwrap()));
        let (mut a, mut b) = (line.wait(client("a")).unwrap(), line.wait(client("b")).unwrap());
        line.next().unwrap().send(Turn(None)).unwrap();
        assert!(a.try_recv().is_ok() && b.try_recv().is_err(), "a came before b");
        assert_eq!(line.count, 1);
        line.next().unwrap().send(Turn(None)).unwrap();
        assert!(b.try_recv().is_ok());
        drop(line.wait(client("a")).unwrap());
        assert!(line.next().is_none() && line.count == 0, "nobody is there any more");
    }

    #[test]
    fn the_addresses_of_one_network_are_one_client() {
        let of = |address: &str| {
            let mut request = Request::new(axum::body::Body::empty());
            let peer = Peer(std::net::SocketAddr::new(address.parse().unwrap(), 1));
            request.extensions_mut().insert(peer);
            Client::of(&request)
        };
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[test]
    fn a_question_for_very_many_points_is_a_long_one_however_short_its_span_is() {
        let now = 10 * LONG_NS;
        let asked = |metrics: usize, span_ns: u64, max_points: usize| {
            let names = vec!["drops"; metrics].join(",");
            let path = format!("/api/v1/series?host=a&metric={names}&start={}", now - span_ns);
            is_long("/api/v1/series", &format!("{path}&max_points={max_points}").parse().unwrap(), now)
        };
        let all = METRICS.len();
        assert!(asked(all, LONG_NS, 20_000), "half a million");
        assert!(asked(all, LONG_NS, usize::MAX));
        assert!(!asked(all, LONG_NS, 900), "what a page asks for");
        assert!(!asked(1, LONG_NS, 20_000), "one metric as it was measured");
        assert!(!asked(all, 10_000_000_000, 20_000), "there are no more than windows");
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
        let responses = "/api/v1/responses";
        assert!(long(responses, "host=a") && !long(responses, &format!("host=a&start={}", now - LONG_NS)));
        assert!(long(responses, &format!("tier=web&start={now}")), "of many hosts");
        assert!(long("/api/v1/now", "at=5") && !long("/api/v1/now", "seconds=5"));
        assert!(!long("/api/v1/agents", "") && !long(series, "start=x"));
    }
}

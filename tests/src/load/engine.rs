//! Sends a plan's requests from one thread and records each. Knows HTTP/1.1 just well enough for the lab's own servers.

use crate::load::{LoadPlan, LoadReport, Mode, Outcome, Random, Request, Summary};
use crate::os::clock::unix_ns;
use crate::os::process;
use anyhow::{Context, Result, bail};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until, timeout};

/// Requests under way at most. Arrivals beyond it are sent late rather than never: their time counts from the plan all the same.
const IN_FLIGHT_MAX: usize = 20_000;
/// Highest story id in the database.
const STORIES: u64 = 2000;
/// Largest answer that is accepted.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An unused connection is closed after this.
const IDLE_MAX: Duration = Duration::from_secs(1);

struct State {
    plan: LoadPlan,
    start: Instant,
    start_unix_ns: u64,
    random: RefCell<Random>,
    // The longest idle first.
    idle: RefCell<VecDeque<(TcpStream, Instant)>>,
    done: RefCell<Vec<Request>>,
    begun: Cell<u64>,
    under_way: Cell<usize>,
    stopping: Cell<bool>,
    in_flight_max: usize,
}

/// Runs a plan to its end, or until SIGTERM and the end of what is under way.
pub async fn run(plan: LoadPlan) -> Result<LoadReport> {
    let in_flight_max = IN_FLIGHT_MAX.min(process::raise_file_limit()?.saturating_sub(100));
    let arrivals = plan.arrivals_ns();
    let random = Random::new(plan.seed ^ 0x5eed);
    let state = Rc::new(State {
        plan,
        start: Instant::now(),
        start_unix_ns: unix_ns(),
        random: RefCell::new(random),
        idle: RefCell::default(),
        done: RefCell::new(Vec::with_capacity(arrivals.len())),
        begun: Cell::new(0),
        under_way: Cell::new(0),
        stopping: Cell::new(false),
        in_flight_max,
    });
    let mut terminate = signal(SignalKind::terminate()).context("handler for SIGTERM")?;
    let stop = Rc::clone(&state);
    tokio::task::spawn_local(async move {
        terminate.recv().await;
        stop.stopping.set(true);
    });

    let mut users = Vec::new();
    if let Mode::Closed { users: count, think_ms } = state.plan.mode {
        for _ in 0..count {
            users.push(tokio::task::spawn_local(user(Rc::clone(&state), think_ms)));
        }
    }
    send_arrivals(&state, &arrivals).await;
    for user in users {
        user.await?;
    }
    while state.under_way.get() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let requests = state.done.take();
    Ok(LoadReport { summary: Summary::of(&requests)?, requests })
}

async fn send_arrivals(state: &Rc<State>, arrivals: &[u64]) {
    for at_ns in arrivals {
        let at = state.start + Duration::from_nanos(*at_ns);
        if at > Instant::now() {
            sleep_until(at).await;
        }
        while state.under_way.get() >= state.in_flight_max {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if state.stopping.get() {
            return;
        }
        state.under_way.set(state.under_way.get() + 1);
        let (state, start_unix_ns) = (Rc::clone(state), state.start_unix_ns + at_ns);
        tokio::task::spawn_local(async move {
            let connection = if state.plan.keep_alive { take_idle(&state) } else { None };
            if let Some(connection) = send(&state, start_unix_ns, connection).await {
                put_idle(&state, connection);
            }
            state.under_way.set(state.under_way.get() - 1);
        });
    }
}

async fn user(state: Rc<State>, think_ms: u64) {
    let end = state.start + Duration::from_millis(state.plan.duration_ms);
    let mut connection = None;
    loop {
        // Thinking first spreads the users out.
        let think = think_ms as f64 * state.random.borrow_mut().exponential();
        if think > 0.0 {
            tokio::time::sleep(Duration::from_micros((think * 1000.0) as u64)).await;
        }
        let enough = state.plan.requests_max.is_some_and(|most| state.begun.get() >= most);
        if enough || state.stopping.get() || Instant::now() >= end {
            return;
        }
        let kept = connection.take().filter(is_open);
        connection = send(&state, unix_ns(), kept).await;
    }
}

/// Keeps a connection for the next request, and drops those that nobody needed for a while: a stall makes many, and clients do not
/// keep them for ever.
fn put_idle(state: &State, connection: TcpStream) {
    let mut idle = state.idle.borrow_mut();
    let now = Instant::now();
    while idle.front().is_some_and(|(_, since)| now - *since > IDLE_MAX) {
        idle.pop_front();
    }
    idle.push_back((connection, now));
}

/// An idle connection that the server has not closed meanwhile.
fn take_idle(state: &State) -> Option<TcpStream> {
    let mut idle = state.idle.borrow_mut();
    while let Some((connection, _)) = idle.pop_back() {
        if is_open(&connection) {
            return Some(connection);
        }
    }
    None
}

fn is_open(connection: &TcpStream) -> bool {
    let would_block = std::io::ErrorKind::WouldBlock;
    matches!(connection.try_read(&mut [0]), Err(error) if error.kind() == would_block)
}

/// Sends one request and records it. Returns the connection if it may be used again.
async fn send(state: &State, start_unix_ns: u64, connection: Option<TcpStream>) -> Option<TcpStream> {
    state.begun.set(state.begun.get() + 1);
    let issued_unix_ns = unix_ns();
    let mut request = Request {
        start_unix_ns,
        issued_unix_ns,
        connected_unix_ns: 0,
        end_unix_ns: 0,
        status: 0,
        bytes: 0,
        outcome: Outcome::TimedOut,
    };
    let limit = Duration::from_millis(state.plan.timeout_ms);
    let connection = match timeout(limit, exchange(state, connection, &mut request)).await {
        Ok(Ok(connection)) => {
            request.outcome = Outcome::Answered;
            connection
        }
        Ok(Err(_)) => {
            request.outcome = Outcome::Broken;
            None
        }
        Err(_) => None,
    };
    if request.outcome != Outcome::Answered {
        request.end_unix_ns = unix_ns();
    }
    state.done.borrow_mut().push(request);
    connection
}

async fn exchange(
    state: &State,
    connection: Option<TcpStream>,
    request: &mut Request,
) -> Result<Option<TcpStream>> {
    let text = request_text(state);
    let mut answer = Vec::with_capacity(4096);
    request.connected_unix_ns = request.issued_unix_ns;
    let mut kept = None;
    if let Some(mut connection) = connection {
        match ask(&mut connection, &text, &mut answer).await {
            Ok(length) => kept = Some((connection, length)),
            Err(error) if !answer.is_empty() => return Err(error),
            // The server closed it while the request was on its way: as every client does, once more on a new one.
            Err(_) => {}
        }
    }
    let (mut connection, length) = match kept {
        Some(answered) => answered,
        None => {
            let mut connection = TcpStream::connect(state.plan.target).await?;
            connection.set_nodelay(true)?;
            if !state.plan.keep_alive {
                request.connected_unix_ns = unix_ns();
            }
            let length = ask(&mut connection, &text, &mut answer).await?;
            (connection, length)
        }
    };
    request.end_unix_ns = unix_ns();
    request.status = std::str::from_utf8(&answer[9..12])?.parse()?;
    request.bytes = u32::try_from(length)?;
    if state.plan.keep_alive {
        return Ok(Some(connection));
    }
    if state.plan.close_after_ms > 0 {
        let pause = Duration::from_millis(state.plan.close_after_ms);
        // Beside the plan: its user or arrival has its answer.
        tokio::task::spawn_local(async move {
            tokio::time::sleep(pause).await;
            drop(connection);
        });
        return Ok(None);
    }
    // The server closes first: the port that waits out TIME_WAIT is then not one of the client's.
    answer.clear();
    while connection.read_buf(&mut answer).await? > 0 && answer.len() < ANSWER_BYTES_MAX {}
    Ok(None)
}

/// Sends a request and reads its whole answer; returns how long that is.
async fn ask(connection: &mut TcpStream, text: &str, answer: &mut Vec<u8>) -> Result<usize> {
    connection.write_all(text.as_bytes()).await?;
    loop {
        if answer.len() > ANSWER_BYTES_MAX || connection.read_buf(answer).await? == 0 {
            bail!("no whole answer");
        }
        if let Some(length) = answer_length(answer)?
            && answer.len() >= length
        {
            return Ok(length);
        }
    }
}

fn request_text(state: &State) -> String {
    let mut random = state.random.borrow_mut();
    let id = 1 + random.bits() % STORIES;
    let comment = if random.ratio() < state.plan.comment_ratio { "&comment=1" } else { "" };
    let is_kept = state.plan.keep_alive || state.plan.close_after_ms > 0;
    let connection = if is_kept { "keep-alive" } else { "close" };
    format!("GET /story?id={id}{comment} HTTP/1.1\r\nHost: lab\r\nConnection: {connection}\r\n\r\n")
}

/// Length of head and body together, once the head is there.
pub(crate) fn answer_length(answer: &[u8]) -> Result<Option<usize>> {
    let Some(head) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&answer[..head])?;
    if !text.starts_with("HTTP/1.1 ") || text.len() < 12 {
        bail!("not an HTTP/1.1 answer");
    }
    let length = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .context("an answer with a Content-Length")?
        .1;
    Ok(Some(head + 4 + length.trim().parse::<usize>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        assert_eq!(answer_length(b"HTTP/1.1 200 OK\r\nContent-Le").unwrap(), None);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(answer_length(answer).unwrap(), Some(answer.len()));
        assert!(answer_length(b"SSH-2.0\r\n\r\n").is_err());
        assert!(answer_length(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}

//! What a request costs in each tier while nothing is wrong, and what each tier's limits are. Owns how that is read from windows around an
//! incident; knows no incident and no replay.

use super::places::Place;
use super::seen::Row;
use tailwater_model::window::{WINDOW_NS, is_pool_used_up};
use tailwater_sizing::evidence::Refusal;

/// Fewer windows (1 s) or answers say nothing of a request's cost.
const WINDOWS_LEAST: usize = 20;
const ANSWERS_LEAST: u64 = 50;
/// Of the calm windows, those with the shortest response times up to this part: what else went on is no cost of a request.
const CALM_PART: f64 = 0.75;
/// Connections for each request from which every request has one of its own, as good as.
const CONNECTS_PART: f64 = 0.5;
/// More requests inside than workers by this, while the accept queue is not full: connections are accepted before a worker is free.
const INSIDE_PART: f64 = 1.2;

/// See above.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Costs {
    pub(super) cpus: f64,
    pub(super) cpu_s: f64,
    /// Response time less CPU and less what calls to the next tier took.
    pub(super) wait_s: f64,
    /// Calls to the next tier for each request.
    pub(super) visits: f64,
    /// Mean number of requests that are in it and not below.
    pub(super) in_service: f64,
}

/// What bounds a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// `None`: requests do not wait in an accept queue.
    pub(super) backlog: Option<u32>,
    pub(super) workers: Option<u32>,
    pub(super) pool: Option<u32>,
    /// Most requests that it had at a time, if how many it takes is not known.
    pub(super) seen_to: Option<u32>,
    /// A worker had several requests at a time.
    pub(super) event_driven: bool,
}

impl Costs {
    /// Of `rows`, those that are `calm`.
    pub(super) fn of(place: &Place, rows: &[Option<Row>], calm: &[bool]) -> Result<Self, Refusal> {
        let mut quiet: Vec<&Row> =
            rows.iter().zip(calm).filter(|(_, calm)| **calm).filter_map(|(r, _)| r.as_ref()).collect();
        let rt = |row: &&Row| row.listen.response_ns as f64 / row.listen.answered.max(1) as f64;
        quiet.sort_by(|a, b| rt(a).total_cmp(&rt(b)));
        quiet.truncate((quiet.len() as f64 * CALM_PART).ceil() as usize);
        let sum = |of: fn(&Row) -> u64| quiet.iter().map(|row| of(row)).fold(0, u64::saturating_add);
        let answered = sum(|row| row.listen.answered);
        if quiet.len() < WINDOWS_LEAST || answered < ANSWERS_LEAST {
            let what = format!(
                "what a request costs {}: {} calm windows with {answered} answers are around the incident, and {WINDOWS_LEAST} with {ANSWERS_LEAST} are needed",
                place.name(),
                quiet.len()
            );
            return Err(Refusal::NotSeen { what });
        }
        let per = |ns: u64, n: u64| ns as f64 / 1e9 / n.max(1) as f64;
        let response_s = per(sum(|row| row.listen.response_ns), answered);
        let calls_s = per(sum(|row| row.calls.response_ns), answered);
        let own_s = (response_s - calls_s).max(0.0);
        // Of that some is not in a response time: accepting, closing, collecting garbage. It takes CPUs from the others all the same.
        let cpu_s = per(sum(|row| row.busy_ns), sum(|row| row.answered_by_all));
        let may_use_ns = quiet.iter().map(|row| row.may_use_ns).max().unwrap_or(0);
        Ok(Self {
            cpus: may_use_ns as f64 / WINDOW_NS as f64,
            cpu_s,
            wait_s: (own_s - cpu_s).max(0.0),
            visits: sum(|row| row.calls.answered) as f64 / answered as f64,
            in_service: own_s * answered as f64 / (quiet.len() as f64 * WINDOW_NS as f64 / 1e9),
        })
    }

    /// Requests a second that it can answer with so many in service.
    pub(super) fn throughput(&self, in_service: f64) -> f64 {
        let by_cpu = if self.cpu_s > 0.0 { self.cpus / self.cpu_s } else { f64::INFINITY };
        let takes_s = self.cpu_s + self.wait_s;
        if takes_s > 0.0 { by_cpu.min(in_service / takes_s) } else { by_cpu }
    }
}

impl Limits {
    /// From what is known of a tier and what it did; `caller`: the rows of whoever calls it in the chain.
    pub(super) fn of(place: &Place, rows: &[Option<Row>], caller: Option<&[Option<Row>]>) -> Self {
        let there = || rows.iter().flatten();
        let most = |of: fn(&Row) -> u32| there().map(of).max().unwrap_or(0);
        let event_driven = place.workers_limit.is_none() && most(|row| row.listen.worker_shared_max) > 1;
        let backlog = place.backlog.or_else(|| Some(most(|row| row.listen.limit)).filter(|limit| *limit > 0));
        // A queue that was full is what workers are too few for: so many as had a request then.
        let full = there().filter(|row| row.listen.limit > 0 && row.listen.depth_max >= row.listen.limit);
        let at_full = full.map(|row| row.listen.in_flight_max).max().filter(|n| *n > 0);
        let workers = place.workers_limit.or(at_full.filter(|_| !event_driven));
        let sum = |of: fn(&Row) -> u64| {
            caller.unwrap_or_default().iter().flatten().map(of).fold(0, u64::saturating_add) as f64
        };
        let own_connections = caller.is_none()
            || sum(|row| row.calls.connects) >= CONNECTS_PART * sum(|row| row.calls.answered);
        // On average over a window: what came and what went in it were not there together.
        let inside = |row: &Row| {
            row.listen.in_flight_ns.saturating_add(row.listen.unread_ns) as f64 / WINDOW_NS as f64
        };
        let dropped = there().any(|row| row.listen.drops > 0);
        let ahead = !dropped
            && workers.zip(backlog).is_some_and(|(workers, backlog)| {
                there().any(|row| {
                    inside(row) > INSIDE_PART * f64::from(workers) && row.listen.depth_max < backlog / 2
                })
            });
        let used_up = there().filter(|row| is_pool_used_up(row.calls.in_flight_max, row.calls.open_max));
        Self {
            seen_to: (workers.is_none() && !event_driven)
                .then(|| most(|row| row.listen.in_flight_max.saturating_add(row.listen.unread_max))),
            backlog: backlog.filter(|_| own_connections && !ahead),
            workers,
            // As many as workers is a connection for each of them, and none too few.
            pool: used_up
                .map(|row| row.calls.open_max)
                .max()
                .filter(|pool| workers.is_none_or(|w| *pool < w)),
            event_driven,
        }
    }
}

//! The replay of a chain: an event after the other, in the order of time. Owns what happens to a request on its way; how a server works is in
//! `server`, what is counted in `outcome`.

use super::chain::{Chain, Entry, WINDOW_S};
use super::outcome::{Outcome, Tally};
use super::server::{Done, Server};
use crate::evidence::Refusal;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Most first attempts of one replay: more do not fit into the second in which all variants have to be answered.
pub const REQUESTS_MAX: u64 = 60_000;
/// Most events of one replay: a chain that is far beyond its capacity goes on for ever otherwise.
pub const EVENTS_MAX: u64 = 3_000_000;

/// A request under way.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    arrived_s: f64,
    /// In the tier that it tries to enter, or is in.
    attempt: u32,
    /// When it made its first attempt there.
    attempted_s: f64,
    /// The server of each tier that has it.
    server: [u32; 8],
}

#[derive(Debug, Clone, Copy)]
enum What {
    Arrives,
    Retries { request: u32, tier: usize },
    Works { server: usize, stamp: u64 },
    Changes { server: usize, window: usize },
}

#[derive(Debug, Clone, Copy)]
struct Event {
    at_s: f64,
    order: u64,
    what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    /// The heap gives the greatest first, which is to be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_s.total_cmp(&self.at_s).then(other.order.cmp(&self.order))
    }
}

/// What is to happen to a request at once. A list of these, not calls of calls: a queue of requests without work of their own would nest
/// as deep as it is long.
#[derive(Debug, Clone, Copy)]
enum Step {
    Enters { request: u32, tier: usize },
    Starts { request: u32, server: usize },
    CpuDone { request: u32, server: usize },
    Calls { request: u32, server: usize },
    Returned { request: u32, server: usize },
    Leaves { request: u32, server: usize },
}

struct Replay<'a> {
    chain: &'a Chain,
    servers: Vec<Server<'a>>,
    /// The first server of each tier, and whose turn it is there.
    tiers: Vec<(usize, usize)>,
    requests: Vec<Request>,
    arrivals: Arrivals<'a>,
    events: BinaryHeap<Event>,
    order: u64,
    now_s: f64,
    steps: Vec<Step>,
    touched: Vec<usize>,
    tally: Tally,
}

/// The moments of first attempts: evenly in each window.
struct Arrivals<'a> {
    windows: &'a [u32],
    window: usize,
    within: u32,
}

impl Iterator for Arrivals<'_> {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        while self.within >= *self.windows.get(self.window)? {
            (self.window, self.within) = (self.window + 1, 0);
        }
        let part = (f64::from(self.within) + 0.5) / f64::from(self.windows[self.window]);
        self.within += 1;
        Some((self.window as f64 + part) * WINDOW_S)
    }
}

/// What comes of `chain`, with goodput within each of these bounds, and how many events that took. At most `events_max`.
pub fn replay(chain: &Chain, within_s: &[f64], events_max: u64) -> Result<(Outcome, u64), Refusal> {
    chain.check()?;
    let requests = chain.requests();
    if requests > REQUESTS_MAX {
        return Err(Refusal::TooManyRequests { requests, most: REQUESTS_MAX });
    }
    let mut replay = Replay::new(chain, requests as usize);
    let mut events = 0;
    while let Some(event) = replay.events.pop() {
        events += 1;
        if events > events_max {
            return Err(Refusal::TooManyEvents { most: events_max });
        }
        replay.happens(event);
    }
    Ok((replay.tally.outcome(chain, within_s), events))
}

impl<'a> Replay<'a> {
    fn new(chain: &'a Chain, requests: usize) -> Self {
        let (mut servers, mut tiers) = (Vec::new(), Vec::new());
        for (n, tier) in chain.tiers.iter().enumerate() {
            tiers.push((servers.len(), 0));
            servers.extend(tier.speed.iter().map(|speed| Server::new(n, tier.cpus, speed)));
        }
        let mut replay = Self {
            chain,
            servers,
            tiers,
            requests: Vec::with_capacity(requests),
            arrivals: Arrivals { windows: &chain.first_attempts, window: 0, within: 0 },
            events: BinaryHeap::new(),
            order: 0,
            now_s: 0.0,
            steps: Vec::new(),
            touched: Vec::new(),
            tally: Tally::new(chain, requests),
        };
        for server in 0..replay.servers.len() {
            for window in replay.servers[server].changes() {
                replay.at(window as f64 * WINDOW_S, What::Changes { server, window });
            }
        }
        replay.next_arrival();
        replay
    }

    fn at(&mut self, at_s: f64, what: What) {
        self.order += 1;
        self.events.push(Event { at_s, order: self.order, what });
    }

    fn next_arrival(&mut self) {
        if let Some(at_s) = self.arrivals.next() {
            self.at(at_s, What::Arrives);
        }
    }

    fn happens(&mut self, event: Event) {
        self.now_s = event.at_s;
        match event.what {
            What::Arrives => {
                let request = self.requests.len() as u32;
                let (arrived_s, attempted_s) = (self.now_s, self.now_s);
                self.requests.push(Request { arrived_s, attempted_s, ..Request::default() });
                self.next_arrival();
                self.steps.push(Step::Enters { request, tier: 0 });
            }
            What::Retries { request, tier } => self.steps.push(Step::Enters { request, tier }),
            What::Works { server, stamp } => {
                if self.servers[server].stamp != stamp {
                    return;
                }
                self.touch(server);
                while let Some((done, request)) = self.servers[server].done() {
                    self.steps.push(match done {
                        Done::Cpu => Step::CpuDone { request, server },
                        Done::Wait => Step::Leaves { request, server },
                    });
                }
                // The first that was done goes on first.
                self.steps.reverse();
            }
            What::Changes { server, window } => {
                self.touch(server);
                self.servers[server].enters(window);
                self.accept(server);
            }
        }
        while let Some(step) = self.steps.pop() {
            self.step(step);
        }
        while let Some(server) = self.touched.pop() {
            let of = &mut self.servers[server];
            of.stamp += 1;
            let (stamp, next) = (of.stamp, of.next_s());
            if let Some(at_s) = next {
                self.at(at_s, What::Works { server, stamp });
            }
        }
    }

    /// Brings a server up to now, and has its next end foreseen anew.
    fn touch(&mut self, server: usize) {
        self.servers[server].advance(self.now_s);
        if !self.touched.contains(&server) {
            self.touched.push(server);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Enters { request, tier } => self.enters(request, tier),
            Step::Starts { request, server } => {
                let tier = &self.chain.tiers[self.servers[server].tier];
                self.serve(Done::Cpu, request, server, tier.cpu_s);
            }
            Step::CpuDone { request, server } => self.cpu_done(request, server),
            Step::Calls { request, server } => {
                let tier = self.servers[server].tier + 1;
                let of = &mut self.requests[request as usize];
                (of.attempt, of.attempted_s) = (0, self.now_s);
                self.steps.push(Step::Enters { request, tier });
            }
            Step::Returned { request, server } => {
                let of = &mut self.servers[server];
                of.calling = of.calling.saturating_sub(1);
                let wait_s = self.chain.tiers[of.tier].wait_s;
                if let Some(next) = of.waits_for_connection.pop_front() {
                    of.calling += 1;
                    self.steps.push(Step::Calls { request: next, server });
                }
                self.serve(Done::Wait, request, server, wait_s);
            }
            Step::Leaves { request, server } => self.leaves(request, server),
        }
    }

    /// Gives a request to a stage of a server, or sends it on if it needs nothing of it.
    fn serve(&mut self, stage: Done, request: u32, server: usize, needs_s: f64) {
        if needs_s > 0.0 {
            self.touch(server);
            self.servers[server].take(stage, request, needs_s);
            return;
        }
        self.steps.push(match stage {
            Done::Cpu => Step::CpuDone { request, server },
            Done::Wait => Step::Leaves { request, server },
        });
    }

    fn enters(&mut self, request: u32, tier: usize) {
        let of = &self.chain.tiers[tier];
        let index = request as usize;
        if self.requests[index].attempt == 0 {
            let (first, turn) = self.tiers[tier];
            self.requests[index].server[tier] = (first + turn) as u32;
            self.tiers[tier].1 = (turn + 1) % of.speed.len();
        }
        let server = self.requests[index].server[tier] as usize;
        let waiting = self.servers[server].queue.len();
        if self.is_free(server) && waiting == 0 {
            self.servers[server].busy += 1;
            self.tally.has(tier, self.servers[server].busy as usize);
            self.steps.push(Step::Starts { request, server });
            return;
        }
        let has_room = match of.entry {
            Entry::AcceptQueue { backlog } => waiting <= backlog as usize,
            Entry::Open => true,
        };
        if has_room {
            self.servers[server].queue.push_back(request);
            self.tally.waits(tier, waiting + 1);
            self.tally.has(tier, self.servers[server].busy as usize + waiting + 1);
            return;
        }
        self.tally.dropped(tier, self.now_s);
        let attempt = self.requests[index].attempt;
        self.requests[index].attempt = attempt + 1;
        match self.chain.retries_s.get(attempt as usize) {
            Some(after_s) => {
                let at_s = self.requests[index].attempted_s + after_s;
                self.at(at_s, What::Retries { request, tier });
            }
            // The caller gets an error, and the client no answer that counts.
            None => self.fails(request, tier),
        }
    }

    fn fails(&mut self, request: u32, tier: usize) {
        self.requests[request as usize].arrived_s = f64::NEG_INFINITY;
        if let Some(caller) = tier.checked_sub(1) {
            let server = self.requests[request as usize].server[caller] as usize;
            self.steps.push(Step::Returned { request, server });
        }
    }

    fn is_free(&self, server: usize) -> bool {
        let of = &self.servers[server];
        let tier = &self.chain.tiers[of.tier];
        let held = tier.accepts_nothing_when_held && of.stands();
        !held && tier.workers.is_none_or(|workers| of.busy < workers)
    }

    /// Takes from the queue what workers are free for.
    fn accept(&mut self, server: usize) {
        let from = self.steps.len();
        while self.is_free(server) {
            let Some(request) = self.servers[server].queue.pop_front() else { break };
            self.servers[server].busy += 1;
            self.steps.push(Step::Starts { request, server });
        }
        self.steps[from..].reverse();
    }

    fn cpu_done(&mut self, request: u32, server: usize) {
        let of = &mut self.servers[server];
        let tier = &self.chain.tiers[of.tier];
        of.owed += tier.calls;
        if of.tier + 1 == self.chain.tiers.len() || of.owed < 1.0 - 1e-9 {
            return self.serve(Done::Wait, request, server, tier.wait_s);
        }
        of.owed -= 1.0;
        if tier.pool.is_none_or(|pool| of.calling < pool) {
            of.calling += 1;
            self.steps.push(Step::Calls { request, server });
        } else {
            of.waits_for_connection.push_back(request);
        }
    }

    fn leaves(&mut self, request: u32, server: usize) {
        let of = &mut self.servers[server];
        of.busy = of.busy.saturating_sub(1);
        let tier = of.tier;
        match tier.checked_sub(1) {
            Some(caller) => {
                let server = self.requests[request as usize].server[caller] as usize;
                self.steps.push(Step::Returned { request, server });
            }
            None => {
                let took_s = self.now_s - self.requests[request as usize].arrived_s;
                if took_s.is_finite() {
                    self.tally.answered(request, took_s);
                }
            }
        }
        self.accept(server);
    }
}

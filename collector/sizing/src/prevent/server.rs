//! One server of a tier in a replay: who waits, who is in service, and when the next of them is done. Owns how its CPUs are had under a speed
//! that changes; knows no chain and no retry.
//!
//! CPUs are had in turn, first come first served. Under processor sharing, requests that all cost the same end all at the same moment: two
//! tiers then work by turns, each idle while the other is busy, and a chain has half of its throughput. What real requests cost differs, and
//! no such convoy forms; with first come first served none does either, and the work that is done in a time is the same.

use super::chain::WINDOW_S;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// Work that is nearer to its end than this (s) is done: what is left is rounding.
const ROUNDING_S: f64 = 1e-9;

/// Something that ends when so much work is done.
#[derive(Debug, Clone, Copy)]
struct Due {
    at_work_s: f64,
    order: u64,
    request: u32,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    /// The heap gives the greatest first, which is to be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_work_s.total_cmp(&self.at_work_s).then(other.order.cmp(&self.order))
    }
}

/// Work of which each request in it gets the same at the same time: what one that was there from the beginning would have got.
#[derive(Debug, Default)]
struct Stage {
    done_s: f64,
    due: BinaryHeap<Due>,
}

impl Stage {
    fn left_s(&self) -> Option<f64> {
        self.due.peek().map(|due| (due.at_work_s - self.done_s).max(0.0))
    }

    fn pop(&mut self) -> Option<u32> {
        self.due.peek().filter(|due| due.at_work_s <= self.done_s + ROUNDING_S)?;
        self.due.pop().map(|due| due.request)
    }
}

/// What a request has behind it when a stage is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// Its CPU time.
    Cpu,
    /// What it waited for beside.
    Wait,
}

/// See above.
#[derive(Debug)]
pub(super) struct Server<'a> {
    pub(super) tier: usize,
    cpus: f64,
    speeds: &'a [f64],
    speed: f64,
    at_s: f64,
    cpu: Stage,
    /// Requests that wait for a CPU, with what they need of it, s.
    waits_for_cpu: VecDeque<(u32, f64)>,
    wait: Stage,
    order: u64,
    /// Rises with each change, so that what was foreseen before it is void.
    pub(super) stamp: u64,
    /// Requests that no worker has yet.
    pub(super) queue: VecDeque<u32>,
    pub(super) busy: u32,
    /// Calls below, and requests that wait for a connection.
    pub(super) calling: u32,
    pub(super) waits_for_connection: VecDeque<u32>,
    /// Parts of a call that requests have not made yet.
    pub(super) owed: f64,
}

impl<'a> Server<'a> {
    pub(super) fn new(tier: usize, cpus: f64, speeds: &'a [f64]) -> Self {
        Self {
            tier,
            cpus,
            speeds,
            speed: speeds.first().copied().unwrap_or(1.0),
            at_s: 0.0,
            cpu: Stage::default(),
            waits_for_cpu: VecDeque::new(),
            wait: Stage::default(),
            order: 0,
            stamp: 0,
            queue: VecDeque::new(),
            busy: 0,
            calling: 0,
            waits_for_connection: VecDeque::new(),
            owed: 0.0,
        }
    }

    /// The windows at whose begin the speed changes.
    pub(super) fn changes(&self) -> impl Iterator<Item = usize> + use<'a> {
        let speeds = self.speeds;
        let of = |window: usize| speeds.get(window).copied().unwrap_or(1.0);
        (1..=speeds.len()).filter(move |window| of(*window) != of(window - 1))
    }

    /// A window begins.
    pub(super) fn enters(&mut self, window: usize) {
        self.advance(window as f64 * WINDOW_S);
        self.speed = self.speeds.get(window).copied().unwrap_or(1.0);
    }

    /// Whether it stands.
    pub(super) fn stands(&self) -> bool {
        self.speed <= 0.0
    }

    /// How many have a CPU at a time; of a part of a CPU each has that part.
    fn cpus_at_a_time(&self) -> f64 {
        self.cpus.ceil()
    }

    fn cpu_rate(&self) -> f64 {
        self.speed * self.cpus / self.cpus_at_a_time()
    }

    /// Works until `at_s`.
    pub(super) fn advance(&mut self, at_s: f64) {
        let passed_s = (at_s - self.at_s).max(0.0);
        self.cpu.done_s += passed_s * self.cpu_rate();
        self.wait.done_s += passed_s * self.speed;
        self.at_s = at_s;
    }

    /// A request that needs so much more of a stage; the server has worked until now.
    pub(super) fn take(&mut self, stage: Done, request: u32, needs_s: f64) {
        if stage == Done::Cpu && self.cpu.due.len() as f64 >= self.cpus_at_a_time() {
            self.waits_for_cpu.push_back((request, needs_s));
            return;
        }
        self.begin(stage, request, needs_s);
    }

    fn begin(&mut self, stage: Done, request: u32, needs_s: f64) {
        self.order += 1;
        let order = self.order;
        let stage = match stage {
            Done::Cpu => &mut self.cpu,
            Done::Wait => &mut self.wait,
        };
        stage.due.push(Due { at_work_s: stage.done_s + needs_s, order, request });
    }

    /// The next request that is done by now.
    pub(super) fn done(&mut self) -> Option<(Done, u32)> {
        if let Some(request) = self.cpu.pop() {
            if let Some((next, needs_s)) = self.waits_for_cpu.pop_front() {
                self.begin(Done::Cpu, next, needs_s);
            }
            return Some((Done::Cpu, request));
        }
        self.wait.pop().map(|request| (Done::Wait, request))
    }

    /// When the next one is done if nothing changes; `None`: nothing is in service, or it stands.
    pub(super) fn next_s(&self) -> Option<f64> {
        if self.stands() {
            return None;
        }
        let cpu = self.cpu.left_s().map(|left| left / self.cpu_rate());
        let wait = self.wait.left_s().map(|left| left / self.speed);
        let soonest = match (cpu, wait) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b)?,
        };
        Some(self.at_s + soonest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_cpus_in_turn_and_wait_side_by_side() {
        let mut server = Server::new(0, 1.0, &[]);
        server.take(Done::Cpu, 1, 0.010);
        server.take(Done::Cpu, 2, 0.010);
        assert!((server.next_s().unwrap() - 0.010).abs() < 1e-12, "one has the CPU");
        server.advance(0.010);
        assert_eq!((server.done(), server.done()), (Some((Done::Cpu, 1)), None));
        server.advance(0.020);
        assert_eq!((server.done(), server.done()), (Some((Done::Cpu, 2)), None));
        server.take(Done::Wait, 1, 0.010);
        server.take(Done::Wait, 2, 0.010);
        assert!((server.next_s().unwrap() - 0.030).abs() < 1e-12, "a wait is nobody's CPU");
        let mut quota = Server::new(0, 1.5, &[]);
        (1..=3).for_each(|request| quota.take(Done::Cpu, request, 0.010));
        assert!((quota.next_s().unwrap() - 0.010 / 0.75).abs() < 1e-12, "two at a time, each three quarters");
    }

    #[test]
    fn nothing_is_done_while_it_stands_and_half_as_much_at_half_its_speed() {
        let speeds = [1.0, 0.0, 0.5];
        let mut server = Server::new(0, 1.0, &speeds);
        assert_eq!(server.changes().collect::<Vec<_>>(), [1, 2, 3]);
        server.take(Done::Cpu, 1, 0.060);
        server.enters(1);
        assert_eq!(server.next_s(), None);
        server.enters(2);
        assert!((server.next_s().unwrap() - 0.120).abs() < 1e-9, "10 ms of work were left at half speed");
    }
}

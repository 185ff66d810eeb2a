//! The chain of an incident as the model takes it: tiers with their costs and limits, first attempts at the front, what held the root up, and
//! what was dropped meanwhile. Owns which windows are which; knows no search and no words but those of what is taken for granted.

use super::attempts::first_attempts;
use super::costs::{Costs, Limits};
use super::places::Place;
use super::seen::Row;
use std::ops::Range;
use tailwater_model::Incident;
use tailwater_model::incident::{DropReason, Drops, Kind, Resource, State};
use tailwater_model::window::{WINDOW_NS, WindowIndex};
use tailwater_sizing::evidence::Refusal;
use tailwater_sizing::prevent::{Chain, Entry, Retries, Tier};

/// Bounds for which goodput is told, s: those of the papers, as the agent counts late answers. Prevention is a p99 within the first.
pub(super) const WITHIN_S: [f64; 2] = [0.5, 3.0];
/// Windows before the first sign in which costs are looked for: 10 s.
const BEFORE: u64 = 200;
/// And after the end: 5 s.
const AFTER: u64 = 100;
/// Of those, windows that are replayed: a second before, in which the chain fills, and two after, in which retries come.
const REPLAYED_BEFORE: u64 = 20;
const REPLAYED_AFTER: u64 = 40;
/// Windows that are replayed at the most: 30 s. Of a longer incident that is how it began.
const REPLAYED_MAX: u64 = 600;
/// Windows around the incident that are not calm.
const MARGIN: u64 = 4;
/// More in service than this many times what is usual, and this many more, is a tier that is behind.
const BEHIND: f64 = 2.0;
/// Part of a pool in use over a whole window that is a pool that callers wait for.
const POOL_FULL: f64 = 0.9;
/// A window without a drop ends a run of drops after so many.
const RUN_GAP: usize = 6;

/// The windows that are read for an incident, and those of them that are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: WindowIndex,
    pub(super) last: WindowIndex,
    begin: u64,
    end: u64,
}

impl Span {
    pub(super) fn of(incident: &Incident) -> Result<Self, Refusal> {
        if incident.drops.iter().all(|d| d.count == 0) {
            return Err(Refusal::NothingDropped);
        }
        if incident.kind == Kind::SynFlood {
            return Err(Refusal::Tainted {
                by: "handshakes that nobody completes fill no accept queue".into(),
            });
        }
        if incident.drops.iter().any(|d| d.reason == DropReason::Refused) {
            return Err(Refusal::Tainted {
                by: "a Unix socket refused connections, which nobody tries again as SYNs are".into(),
            });
        }
        let root = (incident.root.start_unix_ns > 0).then_some(incident.root.start_unix_ns);
        let start = root.map_or(incident.start_unix_ns, |root| root.min(incident.start_unix_ns));
        let begin = WindowIndex::at(start).0;
        let end = WindowIndex::at(incident.end_unix_ns.max(start).saturating_sub(1)).0;
        if incident.state == State::Open && end < begin.saturating_add(REPLAYED_MAX) {
            return Err(Refusal::NotOver);
        }
        let end = end.min(begin.saturating_add(REPLAYED_MAX));
        let (first, last) = (begin.saturating_sub(BEFORE), end.saturating_add(AFTER));
        Ok(Self { first: WindowIndex(first), last: WindowIndex(last), begin, end })
    }

    fn place(&self, window: u64) -> usize {
        usize::try_from(window.saturating_sub(self.first.0)).unwrap_or(usize::MAX)
    }

    /// Places of the rows that are replayed: as far around the incident as rows are there.
    pub(super) fn replayed(&self, front: &[Option<Row>]) -> Result<Range<usize>, Refusal> {
        let (begin, end) = (self.place(self.begin), self.place(self.end).min(front.len().saturating_sub(1)));
        if front.get(begin..=end).is_none_or(|rows| rows.iter().any(Option::is_none)) {
            return Err(Refusal::NotSeen {
                what: "windows of the tier that dropped, which are missing or not measured by hooks".into(),
            });
        }
        let before = (0..begin).rev().take(REPLAYED_BEFORE as usize).take_while(|n| front[*n].is_some());
        let after = (end + 1..front.len()).take(REPLAYED_AFTER as usize).take_while(|n| front[*n].is_some());
        Ok(before.last().unwrap_or(begin)..after.last().unwrap_or(end) + 1)
    }
}

/// See above.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Modelled {
    /// One for each of [`Retries::ALL`]: how clients try again is not known of them.
    pub(super) chains: [Chain; Retries::ALL.len()],
    /// Attempts that each tier dropped in the windows of the chain.
    pub(super) seen: Vec<u64>,
    /// The first of those windows.
    pub(super) first: WindowIndex,
    pub(super) assumed: Vec<String>,
}

/// The chain of `incident`; `rows` of each of `places`, over all of `span`.
pub(super) fn modelled(
    incident: &Incident,
    places: &[Place],
    rows: &[Vec<Option<Row>>],
    span: Span,
) -> Result<Modelled, Refusal> {
    let Some(front) = rows.first() else {
        return Err(Refusal::NotSeen { what: "which tiers the incident is about".into() });
    };
    let range = span.replayed(front)?;
    let calm = calm(front, span);
    let root = places.iter().position(|p| p.is(&incident.root.host, &incident.root.workload));
    if root.is_none() && incident.root.resource != Resource::Burst {
        return Err(Refusal::NotSeen { what: "what the root did, which is not a tier of the chain".into() });
    }
    let mut assumed = Vec::new();
    let mut tiers = Vec::new();
    // How often a request of the front is in the tier; several calls of a request are one that costs as much.
    let mut visits = 1.0_f64;
    for (n, place) in places.iter().enumerate() {
        let costs = Costs::of(place, &rows[n], &calm)?;
        let caller = n.checked_sub(1).map(|caller| rows[caller].as_slice());
        let around = &rows[n][range.clone()];
        let limits = Limits::of(place, around, caller);
        assume(&mut assumed, place, limits, n);
        let own = held(incident, span, range.start);
        let is_root = root == Some(n) && incident.root.resource != Resource::Burst;
        let own = if is_root { own } else { own.start..own.start };
        // The others of its tier are not in the chain: nothing held them up that is known.
        let mut speeds = vec![speed(&costs, limits, around, own)];
        speeds.resize(place.servers, Vec::new());
        let stopped = around.iter().flatten().any(|row| row.stopped);
        let factor = visits.max(1.0);
        let calls = if n + 1 == places.len() { 0.0 } else { costs.visits };
        visits = factor * calls;
        tiers.push(Tier {
            name: place.name(),
            entry: limits.backlog.map_or(Entry::Open, |backlog| Entry::AcceptQueue { backlog }),
            workers: limits.workers,
            seen_to: limits.seen_to,
            pool: limits.pool,
            calls: visits.min(1.0),
            cpus: costs.cpus,
            cpu_s: costs.cpu_s * factor,
            wait_s: costs.wait_s * factor,
            accepts_nothing_when_held: stopped,
            speed: speeds,
        });
    }
    elsewhere(&mut assumed, incident, places);
    let dropped =
        |rows: &Vec<Option<Row>>| rows[range.clone()].iter().flatten().map(|r| r.listen.drops).sum();
    let seen: Vec<u64> = rows.iter().map(dropped).collect();
    if seen.iter().all(|n| *n == 0) {
        return Err(Refusal::NotSeen { what: "in which windows the tiers of the chain dropped".into() });
    }
    let judged = judged(incident, front, span, &range);
    let chain = |retries: Retries| -> Result<Chain, Refusal> {
        let first_attempts = first_attempts(&places[0], front, &range, &calm, retries)?;
        let (tiers, judged, retries_s) = (tiers.clone(), judged.clone(), retries.times_s().to_vec());
        Ok(Chain { tiers, first_attempts, judged, retries_s })
    };
    let [linear, doubling] = Retries::ALL;
    let chains = [chain(linear)?, chain(doubling)?];
    let first = WindowIndex(span.first.0 + range.start as u64);
    Ok(Modelled { chains, seen, first, assumed })
}

/// Windows around the incident in which the front queue was not half full and nothing was dropped.
fn calm(front: &[Option<Row>], span: Span) -> Vec<bool> {
    let incident = span.place(span.begin.saturating_sub(MARGIN))..span.place(span.end + MARGIN);
    let of = |(n, row): (usize, &Option<Row>)| {
        let quiet = |r: &Row| r.listen.drops == 0 && r.listen.depth_max <= r.listen.limit / 2;
        !incident.contains(&n) && row.as_ref().is_some_and(quiet)
    };
    front.iter().enumerate().map(of).collect()
}

/// How fast a server worked in each window, of what it would have with as many requests in service: while the root held it up (`held`; of
/// other tiers empty, at the onset), and after that in windows in which it had much more to do than usual. Elsewhere nobody asked it to do
/// what it can.
fn speed(costs: &Costs, limits: Limits, around: &[Option<Row>], held: Range<usize>) -> Vec<f64> {
    let window_ns = WINDOW_NS as f64;
    let of = |(n, row): (usize, &Option<Row>)| {
        let Some(row) = row.as_ref().filter(|_| n >= held.start) else { return 1.0 };
        // What waits outside is what it should have taken, as far as it has workers.
        let l = &row.listen;
        let inside = l.in_flight_ns.saturating_add(l.unread_ns).saturating_add(l.depth_ns) as f64 / window_ns;
        let taken = limits.workers.map_or(inside, |workers| inside.min(workers.into()));
        let below = row.calls_in_flight_ns as f64 / window_ns;
        let in_service = (taken - below).max(0.0);
        let usual = costs.throughput(in_service) * window_ns / 1e9;
        let behind = in_service >= BEHIND * costs.in_service + BEHIND;
        // Whoever waits for a connection to the next tier is not its own work.
        let waits_below = limits.pool.is_some_and(|pool| below >= POOL_FULL * f64::from(pool));
        if usual < 1.0 || (n >= held.end && (!behind || waits_below)) {
            return 1.0;
        }
        (l.answered as f64 / usual).min(1.0)
    };
    around.iter().enumerate().map(of).collect()
}

/// Places of the windows in which the root lasted, and one on either side: its onset and end are told to the window.
fn held(incident: &Incident, span: Span, from: usize) -> Range<usize> {
    let window = |unix_ns: u64| span.place(WindowIndex::at(unix_ns).0).saturating_sub(from);
    window(incident.root.start_unix_ns).saturating_sub(1)..window(incident.root.end_unix_ns) + 1
}

/// From the first sign to the end of the root, or of the drops that follow it at once: later ones are of clients that came again.
fn judged(incident: &Incident, front: &[Option<Row>], span: Span, range: &Range<usize>) -> Range<usize> {
    let dropped = |n: usize| front.get(n).and_then(Option::as_ref).is_some_and(|row| row.listen.drops > 0);
    let begin = span.place(span.begin);
    let root_end = span.place(WindowIndex::at(incident.root.end_unix_ns.saturating_sub(1)).0);
    let mut end = (begin..range.end).find(|n| dropped(*n)).unwrap_or(begin);
    while let Some(next) = (end + 1..=end + RUN_GAP).find(|n| dropped(*n)) {
        end = next;
    }
    let end = (end.max(root_end) + 1).min(range.end);
    begin - range.start..end - range.start
}

/// Drops of the incident that the chain does not have.
fn elsewhere(assumed: &mut Vec<String>, incident: &Incident, places: &[Place]) {
    let outside = |d: &&Drops| d.count > 0 && !places.iter().any(|p| p.is(&d.host, &d.workload));
    for d in incident.drops.iter().filter(outside) {
        assumed.push(format!(
            "{} dropped {} packets and is not modelled: it is no tier of the chain",
            d.place(),
            d.count
        ));
    }
}

/// What is not known of a tier, and what is modelled in its place.
fn assume(assumed: &mut Vec<String>, place: &Place, limits: Limits, n: usize) {
    let name = place.name();
    match (limits.workers, place.workers_limit) {
        (None, _) if limits.event_driven => {
            assumed.push(format!("{name} is event-driven: no limit of workers is modelled"));
        }
        (None, _) => assumed
            .push(format!("how many requests at a time {name} takes is not known: no limit is modelled")),
        (Some(workers), None) => {
            assumed.push(format!(
                "{name} takes {workers} requests at a time: as many as it had while its accept queue was full"
            ));
        }
        _ => {}
    }
    if place.servers > 1 {
        assumed.push(format!(
            "the {} servers of its tier are as {name} is, and are called by turns",
            place.servers
        ));
    }
    if limits.backlog.is_none() {
        assumed.push(match n {
            0 => format!("{name} accepts connections before a worker is free: they wait inside, without a limit"),
            _ => format!("requests come to {name} on connections that are open or accepted at once: they wait there without a limit"),
        });
    }
}

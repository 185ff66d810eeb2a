//! Three tiers, simulated in steps of one millisecond: workers, accept queues with real limits, SYN retries, a bounded pool of
//! database connections, CPU by quota. Produces the windows that agents would send, from the same definitions: a request is in
//! flight from being read to being answered, a call until its answer is read by the caller.

mod emit;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use tailwater_model::window::{
    Coverage, CulpritResource, CulpritSample, EdgeInfo, EdgeWindow, HostCpu, HostInfo, HostWindow, Input,
    ListenerInfo, ListenerWindow, SignalSet, WINDOW_NS, WindowIndex, WorkloadInfo, WorkloadWindow,
};

pub const FIRST_WINDOW: u64 = 34_000_000_000;
const MS: u64 = 1_000_000;
/// So long after it was sent a lost call is sent again (a probe, and the time-outs of TCP on Linux), and a SYN.
const AGAIN_MS: [u64; 4] = [200, 400, 800, 1_600];
const SYN_AGAIN_MS: u64 = 1_000;
const SERVER: u32 = 1;
const OTHER: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Web,
    App,
    /// The second application server, where there are two.
    App2,
    Db,
}

/// What is done to a tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Do {
    /// A neighbour takes this part of its CPU.
    Neighbour(f64),
    /// The quota shrinks to this part; the agent still says the nominal one.
    Squeeze(f64),
    /// SIGSTOP.
    Pause,
    /// Every request of the tier waits for a lock.
    Lock,
    /// Every request of the tier waits for the disk.
    Disk,
    /// Each request needs this many times the CPU.
    Costly(f64),
    /// At the database: nothing that is sent to it arrives, and is sent again.
    Unreached,
}

#[derive(Debug, Clone)]
pub struct Sim {
    pub seconds: u64,
    pub rate: f64,
    pub bursts: Vec<(Range<u64>, f64)>,
    pub acts: Vec<(At, Range<u64>, Do)>,
    /// `None`: event-driven.
    pub web_workers: Option<usize>,
    pub app_workers: Option<usize>,
    pub backlogs: [u32; 3],
    pub pool: usize,
    /// The database takes a connection per call instead of the pool's.
    pub db_workers: Option<usize>,
    /// Calls that the database reads at a time from the pool's connections; `None`: all.
    pub db_threads: Option<usize>,
    pub observed: [bool; 3],
    pub app_work_ms: f64,
    /// Two application servers; `acts` on App hit the first.
    pub two_apps: bool,
    /// SYNs of a flood per ms at the web tier.
    pub flood: Option<(Range<u64>, u64)>,
    /// Hosts whose windows are lost, in ms.
    pub gaps: Vec<(At, Range<u64>)>,
    pub first_window: u64,
    /// Of web, app and db.
    pub clocks: [SimClock; 3],
    /// The agents poll: no requests, no calls, no arrivals.
    pub polled: bool,
}

/// A host's clock, and what the collector made of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimClock {
    /// How much it is ahead of the true time.
    pub ahead_ms: i64,
    /// By how much the collector's estimate of that is wrong.
    pub wrong_ms: i64,
    /// The bound that the collector states.
    pub bound_ns: u64,
}

impl Default for SimClock {
    fn default() -> Self {
        Self { ahead_ms: 0, wrong_ms: 0, bound_ns: 2_000_000 }
    }
}

impl Default for Sim {
    fn default() -> Self {
        Self {
            seconds: 12,
            rate: 1000.0,
            bursts: Vec::new(),
            acts: Vec::new(),
            web_workers: Some(150),
            app_workers: Some(160),
            backlogs: [128, 128, 128],
            pool: 50,
            db_workers: None,
            db_threads: None,
            observed: [true; 3],
            app_work_ms: 0.1,
            two_apps: false,
            flood: None,
            gaps: Vec::new(),
            first_window: FIRST_WINDOW,
            clocks: [SimClock::default(); 3],
            polled: false,
        }
    }
}

pub struct Trace {
    pub names: Vec<Input>,
    pub windows: Vec<HostWindow>,
    /// Packets that the web and the app listener dropped.
    pub dropped: [u64; 4],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    WebSyn(u64, u32),
    WebQueue,
    WebPre,
    AppSyn(u64, u32),
    AppQueue,
    App,
    Pool,
    DbSyn(u64, u32),
    /// On its way since then, and lost.
    DbLost(u64),
    DbUnread,
    Db,
    DbAnswered,
    AppAnswered,
    Done,
}

#[derive(Debug, Clone)]
struct Job {
    stage: Stage,
    work_ms: f64,
    calls_left: u32,
    app: usize,
    web_since: u64,
    app_since: u64,
    db_since: u64,
}

/// web, app, db, second app.
const HOSTS: [&str; 4] = ["web-1", "app-1", "db-1", "app-2"];
const ADDRESSES: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
const UNITS: [&str; 4] = ["apache2.service", "tomcat10.service", "mariadb.service", "tomcat10.service"];
const COMMS: [&str; 4] = ["apache2", "java", "mariadbd", "java"];
const PORTS: [u16; 4] = [80, 8080, 3306, 8080];
const QUOTA: [f64; 4] = [0.5, 0.6, 0.6, 0.6];

struct Now {
    speed: f64,
    nominal: f64,
    neighbour: f64,
    paused: bool,
    locked: bool,
    disk: bool,
    unreached: bool,
    cost: f64,
    throttled: bool,
}

impl Sim {
    pub fn act(mut self, at: At, ms: Range<u64>, what: Do) -> Self {
        self.acts.push((at, ms, what));
        self
    }

    fn host_of(at: At) -> usize {
        match at {
            At::Web => 0,
            At::App => 1,
            At::App2 => 3,
            At::Db => 2,
        }
    }

    fn now(&self, host: usize, t: u64) -> Now {
        let mut now = Now {
            speed: QUOTA[host],
            nominal: QUOTA[host],
            neighbour: 0.0,
            paused: false,
            locked: false,
            disk: false,
            unreached: false,
            cost: 1.0,
            throttled: false,
        };
        for (at, during, what) in &self.acts {
            if Self::host_of(*at) != host || !during.contains(&t) {
                continue;
            }
            match *what {
                Do::Neighbour(part) => {
                    now.neighbour = part * now.nominal;
                    now.speed = now.nominal - now.neighbour;
                }
                Do::Squeeze(part) => {
                    now.speed = now.nominal * part;
                    now.throttled = true;
                }
                Do::Pause => now.paused = true,
                Do::Lock => now.locked = true,
                Do::Disk => now.disk = true,
                Do::Costly(times) => now.cost = times,
                Do::Unreached => now.unreached = true,
            }
        }
        now
    }

    fn clock(&self, host: usize) -> SimClock {
        self.clocks.get(host).copied().unwrap_or_default()
    }

    fn sees(&self, host: usize) -> bool {
        match host {
            3 => self.two_apps && self.observed[1],
            h => self.observed[h],
        }
    }

    #[allow(
        clippy::needless_range_loop,
        clippy::explicit_counter_loop,
        reason = "slots and counts are what this small world is made of"
    )]
    pub fn run(&self) -> Trace {
        let mut jobs: Vec<Job> = Vec::new();
        let mut queues: [VecDeque<usize>; 4] = Default::default();
        let mut free: Vec<usize> = Vec::new();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut due = 0.0;
        let mut windows = Vec::new();
        let mut dropped = [0u64; 4];
        let mut acc: [HostWindow; 4] = Default::default();
        let mut next_app = 0;
        for t in 0..self.seconds * 1000 {
            // Arrivals: the rate, shaken.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let shake = 0.5 + (random >> 40) as f64 / (1u64 << 24) as f64;
            let burst =
                self.bursts.iter().find(|(during, _)| during.contains(&t)).map_or(1.0, |(_, times)| *times);
            due += self.rate * burst * shake / 1000.0;
            while due >= 1.0 {
                due -= 1.0;
                let job = Job {
                    stage: Stage::WebSyn(t, 0),
                    work_ms: 0.0,
                    calls_left: 2,
                    app: 1,
                    web_since: 0,
                    app_since: 0,
                    db_since: 0,
                };
                match free.pop() {
                    Some(slot) => jobs[slot] = job,
                    None => jobs.push(job),
                }
            }
            if let Some((_, syns)) = self.flood.as_ref().filter(|(during, _)| during.contains(&t)) {
                let l = acc[0].listeners.entry(1).or_default();
                l.drops += syns;
                l.drops_syn += syns;
                l.sk_drops += syns;
                dropped[0] += syns;
            }
            // SYNs, new and again.
            for slot in 0..jobs.len() {
                let (host, tries) = match jobs[slot].stage {
                    Stage::WebSyn(at, tries) if at <= t => (0, tries),
                    Stage::AppSyn(at, tries) if at <= t => (jobs[slot].app, tries),
                    Stage::DbSyn(at, tries) if at <= t => (2, tries),
                    _ => continue,
                };
                let caller = match host {
                    0 => None,
                    2 => Some((jobs[slot].app, 1)),
                    app => Some((0, if app == 3 { 2 } else { 1 })),
                };
                if let Some((caller, edge)) = caller {
                    let edge = acc[caller].edges.entry(edge).or_default();
                    if tries == 0 { edge.connects += 1 } else { edge.syn_retransmits += 1 }
                }
                if host == 2 && self.now(2, t).unreached {
                    jobs[slot].stage = Stage::DbSyn(t + SYN_AGAIN_MS, tries + 1);
                    continue;
                }
                let limit = self.backlogs[if host == 3 { 1 } else { host }];
                if queues[host].len() > limit as usize {
                    let l = acc[host].listeners.entry(1).or_default();
                    (l.drops, l.drops_syn, l.sk_drops) = (l.drops + 1, l.drops_syn + 1, l.sk_drops + 1);
                    dropped[host] += 1;
                    let again = t + 1000 * u64::from(tries.min(4) + 1).min(1);
                    jobs[slot].stage = match host {
                        0 => Stage::WebSyn(again, tries + 1),
                        2 => Stage::DbSyn(again, tries + 1),
                        _ => Stage::AppSyn(again, tries + 1),
                    };
                    continue;
                }
                if let Some((caller, edge)) = caller {
                    acc[caller].edges.entry(edge).or_default().established += 1;
                }
                acc[host].listeners.entry(1).or_default().arrivals += 1;
                queues[host].push_back(slot);
                jobs[slot].stage = match host {
                    0 => Stage::WebQueue,
                    2 => Stage::DbUnread,
                    _ => Stage::AppQueue,
                };
            }
            let in_web = |s: Stage| !matches!(s, Stage::WebSyn(..) | Stage::WebQueue | Stage::Done);
            let in_app = |s: Stage| {
                matches!(
                    s,
                    Stage::App
                        | Stage::Pool
                        | Stage::DbSyn(..)
                        | Stage::DbLost(_)
                        | Stage::DbUnread
                        | Stage::Db
                        | Stage::DbAnswered
                )
            };
            let at_db =
                |s: Stage| matches!(s, Stage::DbLost(_) | Stage::DbUnread | Stage::Db | Stage::DbAnswered);
            // Accepting and reading.
            for host in [0, 1, 3, 2] {
                let now = self.now(host, t);
                if now.paused {
                    continue;
                }
                let workers = match host {
                    0 => self.web_workers,
                    2 => self.db_workers,
                    _ => self.app_workers,
                };
                let mut busy = match host {
                    0 => jobs.iter().filter(|j| in_web(j.stage)).count(),
                    2 => jobs.iter().filter(|j| j.stage == Stage::Db).count(),
                    app => jobs.iter().filter(|j| j.app == app && in_app(j.stage)).count(),
                };
                while workers.is_none_or(|most| busy < most) {
                    let Some(slot) = queues[host].pop_front() else { break };
                    busy += 1;
                    let l = acc[host].listeners.entry(1).or_default();
                    l.accepts += 1;
                    l.received += 1;
                    let job = &mut jobs[slot];
                    match host {
                        0 => (job.stage, job.work_ms, job.web_since) = (Stage::WebPre, 0.1, t),
                        2 => (job.stage, job.work_ms, job.db_since) = (Stage::Db, 0.08, t),
                        _ => (job.stage, job.work_ms, job.app_since) = (Stage::App, self.app_work_ms, t),
                    }
                }
                if host == 2 && self.db_workers.is_none() {
                    let room = self.db_threads.map_or(usize::MAX, |most| most.saturating_sub(busy));
                    for job in jobs.iter_mut().filter(|j| j.stage == Stage::DbUnread).take(room) {
                        (job.stage, job.work_ms, job.db_since) = (Stage::Db, 0.08, t);
                        acc[2].listeners.entry(1).or_default().received += 1;
                    }
                }
            }
            // CPU.
            for host in [2, 1, 3, 0] {
                let now = self.now(host, t);
                let mine = |j: &Job| match host {
                    0 => matches!(j.stage, Stage::WebPre | Stage::AppAnswered),
                    2 => j.stage == Stage::Db,
                    app => j.app == app && matches!(j.stage, Stage::App | Stage::DbAnswered),
                };
                let runnable: Vec<usize> = (0..jobs.len()).filter(|s| mine(&jobs[*s])).collect();
                let mut budget = if now.paused { 0.0 } else { now.speed };
                let blocked = host == 2 && (now.locked || now.disk);
                let mut served = 0usize;
                let mut used = 0.0;
                let turn = if runnable.is_empty() { 0 } else { (t as usize) % runnable.len() };
                for slot in runnable.iter().cycle().skip(turn).take(runnable.len()) {
                    if blocked || budget <= 0.0 {
                        break;
                    }
                    let need = jobs[*slot].work_ms * now.cost;
                    let take = need.min(budget);
                    budget -= take;
                    used += take;
                    jobs[*slot].work_ms -= take / now.cost;
                    if jobs[*slot].work_ms > 1e-9 {
                        continue;
                    }
                    served += 1;
                    self.advance(*slot, t, &mut jobs, &mut acc, &mut free, &mut next_app);
                }
                let own = acc[host].workloads.entry(SERVER).or_default();
                own.busy_ns += (used * MS as f64) as u64;
                let waits = runnable.len().saturating_sub(served) as u64;
                if blocked && now.disk {
                    own.blocked_io_ns += waits * MS;
                    own.blocked_io_max = own.blocked_io_max.max(waits as u32);
                } else if !now.paused && !blocked {
                    own.wait_ns += waits * MS;
                    own.waiting_max = own.waiting_max.max(waits as u32);
                }
                let neighbour = (now.neighbour * MS as f64) as u64;
                if neighbour > 0 {
                    acc[host].workloads.entry(OTHER).or_default().busy_ns += neighbour;
                }
                if now.disk {
                    acc[host].workloads.entry(OTHER).or_default().io_bytes += 64 << 10;
                    let device = acc[host].devices.entry(1).or_default();
                    device.in_flight_ns += 8 * MS;
                }
                let capacity = (now.nominal * MS as f64) as u64;
                let cpu = acc[host].cpu.get_or_insert_with(HostCpu::default);
                cpu.capacity_ns += capacity;
                cpu.busy_ns += (used * MS as f64) as u64 + neighbour;
                cpu.wait_ns += waits * MS;
                if now.throttled && waits > 0 {
                    cpu.throttled_ns = Some(cpu.throttled_ns.unwrap_or(0) + MS);
                }
            }
            // What is lost is sent again, and arrives when packets pass.
            let unreached = self.now(2, t).unreached;
            for job in &mut jobs {
                if let Stage::DbLost(since) = job.stage
                    && AGAIN_MS.contains(&(t - since))
                {
                    acc[job.app].edges.entry(1).or_default().data_retransmits += 1;
                    job.stage = if unreached { job.stage } else { Stage::DbUnread };
                }
            }
            // The pool, first come first served.
            for app in [1, 3] {
                let mut using = jobs.iter().filter(|j| j.app == app && at_db(j.stage)).count();
                for job in jobs.iter_mut().filter(|j| j.app == app && j.stage == Stage::Pool) {
                    if self.db_workers.is_none() && using >= self.pool {
                        break;
                    }
                    using += 1;
                    acc[app].edges.entry(1).or_default().started += 1;
                    job.stage = match self.db_workers {
                        Some(_) => Stage::DbSyn(t, 0),
                        None if unreached => Stage::DbLost(t),
                        None => Stage::DbUnread,
                    };
                }
            }
            self.measure(&jobs, &queues, &mut acc);
            for host in 0..4 {
                // Each host cuts by its own clock.
                let own_ms = t.cast_signed() + self.clock(host).ahead_ms;
                if (own_ms + 1).rem_euclid(50) == 0 {
                    self.cut(host, own_ms.div_euclid(50), t, &mut acc, &mut windows);
                }
            }
        }
        Trace { names: self.names(), windows, dropped }
    }

    /// A job has done its CPU work at a stage.
    fn advance(
        &self,
        slot: usize,
        t: u64,
        jobs: &mut [Job],
        acc: &mut [HostWindow; 4],
        free: &mut Vec<usize>,
        next_app: &mut usize,
    ) {
        let job = &mut jobs[slot];
        match job.stage {
            Stage::WebPre => {
                *next_app += 1;
                job.app = if self.two_apps && next_app.is_multiple_of(2) { 3 } else { 1 };
                job.stage = Stage::AppSyn(t, 0);
                acc[0].edges.entry(if job.app == 3 { 2 } else { 1 }).or_default().started += 1;
            }
            Stage::App | Stage::DbAnswered => {
                if job.stage == Stage::DbAnswered {
                    let e = acc[job.app].edges.entry(1).or_default();
                    e.answered += 1;
                    job.stage = Stage::App;
                    job.work_ms = self.app_work_ms * 0.8;
                } else if job.calls_left > 0 {
                    job.calls_left -= 1;
                    job.stage = Stage::Pool;
                } else {
                    let l = acc[job.app].listeners.entry(1).or_default();
                    l.answered += 1;
                    l.response_ns += (t - job.app_since + 1) * MS;
                    job.stage = Stage::AppAnswered;
                    job.work_ms = 0.05;
                }
            }
            Stage::Db => {
                let l = acc[2].listeners.entry(1).or_default();
                l.answered += 1;
                l.response_ns += (t - job.db_since + 1) * MS;
                job.stage = Stage::DbAnswered;
                job.work_ms = self.app_work_ms * 0.2;
            }
            Stage::AppAnswered => {
                acc[0].edges.entry(if job.app == 3 { 2 } else { 1 }).or_default().answered += 1;
                let l = acc[0].listeners.entry(1).or_default();
                l.answered += 1;
                l.response_ns += (t - job.web_since + 1) * MS;
                job.stage = Stage::Done;
                free.push(slot);
            }
            _ => {}
        }
    }
}

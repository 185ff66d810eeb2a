//! Nothing lost on the way to a receiver, by simulation: one seed is one history of incidents, of receivers that are slow, refuse, or take a
//! message whose answer is lost, of a disk that stalls, of kills at any step, of power cuts, and of a clock that somebody sets. What
//! decides, queues and keeps is what runs: worker, queue, threads, silences, and the outbox with its SQLite on real files. No thread, socket or
//! clock has a say. The analysis and the store before them are played, as `run/outlet.rs` and `store/mod.rs` have them. Owns the history;
//! `held` is what must be true at its end.

mod held;

use super::config::{self, Hook};
use super::message::{self, Content, Message, What};
use super::outbox::{Outbox, Prepared, WRITTEN_WITHIN};
use super::receiver::Manners;
use super::silences::Silences;
use super::stats::Stats;
use super::worker::{Input, Parts, Worker};
use super::{Alerts, INBOX_MAX, before, by_hook, unheard};
use crate::clock::{Clock, Hands};
use crate::fixture::incident as fixture;
use crate::run::provisional::Provisionals;
use crate::send::http::DeliveryError;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailwater_model::Incident;
use tailwater_model::incident::{Kind, Resource, Severity, State};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const BEGIN_UNIX_NS: u64 = 1_794_000_000_000_000_000;
const STEPS: u32 = 250;
/// Seeds that every run repeats. New ones are for whoever looks for faults (`TAILWATER_SIM_SEEDS`).
const FIXED_SEEDS: u64 = 140;
/// Ones that found faults which those do not: an end counted another as open that was then held for a summary, which tells no end.
const FOUND: [u64; 2] = [6_481_492_070_217_944_475, 6_104_008_548_378_664_030];
/// Longer than any pause between tries, than what was open before a restart is waited for, and than what is summed up.
const HEALED: Duration = Duration::from_secs(4_000);

/// A receiver that keeps nothing, one that keeps alerts, and two such that want few messages.
fn hooks() -> [(Hook, Manners); 4] {
    let of = |name: &str, rate, remind_after_s| Hook {
        name: Some(name.into()),
        rate_per_minute: Some(rate),
        burst: 2,
        remind_after_s,
        ..Hook::webhook("http://nowhere.invalid/")
    };
    let manners = |needs_opening| Manners { resend: None, needs_opening, at_once: 4 };
    [
        (of("forgets", 0, 3600), manners(false)),
        (of("keeps", 0, 0), manners(true)),
        (of("limited", 20, 3600), manners(false)),
        (of("keeps few", 20, 0), manners(true)),
    ]
}

/// One hook of a collector that runs.
struct Running {
    worker: Worker,
    inbox: mpsc::Receiver<Input>,
    name: Arc<str>,
}

/// A collector that runs.
struct Collector {
    alerts: Alerts,
    provisionals: Provisionals,
    running: Vec<Running>,
    outbox: Prepared,
    /// Its files go with it.
    _folder: tempfile::TempDir,
    /// Incidents by id: the newest, and what is added to the analysis' versions.
    kept: BTreeMap<String, (Incident, u64)>,
    /// What the store has yet to write, each with when it will have.
    unwritten: VecDeque<(Instant, Incident)>,
}

/// A try that is under way.
struct Try {
    hook: usize,
    number: u64,
    message: Arc<Message>,
    written: Option<CancellationToken>,
    /// It waits for the outbox no longer than until then.
    begins: Instant,
    /// From its beginning until the receiver takes it, if it does, and until the worker hears.
    takes: Option<Duration>,
    lasts: Duration,
    outcome: Result<(), DeliveryError>,
    taken: bool,
}

/// What the analysis makes of one moment.
#[derive(Debug, Clone)]
struct Case {
    id: String,
    n: u32,
    /// Of the analysis, which counts from the start again after a kill.
    version: u64,
    start_unix_ns: u64,
    root: u32,
    over: bool,
    /// Only its early alert is known.
    early: bool,
}

/// A version of an incident that alerting was told of.
struct Said {
    incident: Arc<Incident>,
    replaces: Vec<String>,
    /// Kills before it.
    life: u32,
}

/// A message that a receiver took.
struct Taken {
    message: Arc<Message>,
    /// Kills before it.
    life: u32,
}

struct World {
    seed: u64,
    dice: fastrand::Rng,
    hands: &'static Hands,
    clock: Clock,
    collector: Collector,
    tries: Vec<Try>,
    cases: Vec<Case>,
    cases_made: u32,
    /// Incidents that the store has on its disk.
    disk: BTreeMap<String, Incident>,
    /// The disk writes nothing until then.
    disk_stalls_until: Instant,
    ticked_unix_ns: u64,
    life: u32,
    /// What alerting was told.
    said: Vec<Said>,
    healing: bool,
    taken: Vec<Vec<Taken>>,
    /// A crash may have taken the only thing that knew that it is open at its receiver.
    forgotten: BTreeSet<(usize, String)>,
    /// Ids of messages that were taken, and whose answer was lost.
    unanswered: BTreeSet<(usize, String)>,
    /// Incidents of which a receiver refused a message for good.
    refused: BTreeSet<(usize, String)>,
    /// Threads of which a receiver refused for good the message that resolves them.
    refused_ends: BTreeSet<(usize, String)>,
    /// Receivers that refused a summary for good which counted more incidents than it named.
    refused_unnamed: BTreeSet<usize>,
}

impl Collector {
    /// On the files in `folder`, with what the store has on its disk.
    fn begin(folder: tempfile::TempDir, disk: &mut BTreeMap<String, Incident>, clock: Clock) -> Self {
        let mut open_before = Vec::new();
        let mut kept = BTreeMap::new();
        for incident in disk.values_mut() {
            if incident.state == State::Open {
                open_before.push(Arc::new(incident.clone()));
                incident.state = State::Closed;
                incident.version += 1;
            }
            kept.insert(incident.id.clone(), (incident.clone(), incident.version + 1));
        }
        let stats = Arc::new(Stats::default());
        let mut outbox =
            Outbox::prepare(folder.path(), config::Outbox::default(), Arc::clone(&stats), &open_before);
        assert!(outbox.late.is_none(), "the file of before is read");
        let mut restored = by_hook(std::mem::take(&mut outbox.restored));
        let names = hooks().map(|(hook, _)| hook.name.unwrap_or_default()).to_vec();
        let silences = Arc::new(Silences::open(&[], names, folder.path(), clock).unwrap());
        let before = before(std::mem::take(&mut outbox.newest));
        let mut alerts = Alerts { least: Severity::Warning, before, ..Alerts::nobody(&stats) };
        let life = message::life();
        let mut running = Vec::new();
        for (hook, manners) in hooks() {
            let name = Arc::<str>::from(hook.name.clone().unwrap_or_default());
            let (inbox, inputs) = mpsc::channel(INBOX_MAX);
            alerts.workers.push(inbox);
            let parts = Parts {
                name: Arc::clone(&name),
                stats: stats.hook(&name),
                hook,
                manners,
                silences: Arc::clone(&silences),
                outbox: outbox.outbox.clone(),
                all: Arc::clone(&stats),
                clock,
                life: Arc::clone(&life),
            };
            let rows = restored.remove(name.as_ref()).unwrap_or_default();
            let worker = Worker::new(parts, rows, &unheard(&name, outbox.heard.as_ref(), &open_before));
            running.push(Running { worker, inbox: inputs, name });
        }
        let (provisionals, unwritten) = (Provisionals::default(), VecDeque::new());
        Self { alerts, provisionals, running, outbox, _folder: folder, kept, unwritten }
    }

    /// As `Store::put`.
    fn put(&mut self, mut incident: Incident, written_at: Instant) -> Option<Arc<Incident>> {
        let before = self.kept.get(&incident.id);
        let versions_before = before.map_or(0, |(_, before)| *before);
        incident.version += versions_before;
        if before.is_some_and(|(newest, _)| newest.version >= incident.version) {
            return None;
        }
        if incident.version > 0 {
            self.unwritten.push_back((written_at, incident.clone()));
        }
        self.kept.insert(incident.id.clone(), (incident.clone(), versions_before));
        Some(Arc::new(incident))
    }
}

impl World {
    fn begin(seed: u64) -> Self {
        // Pauses between tries come of it.
        fastrand::seed(seed);
        let hands: &'static Hands = Box::leak(Box::new(Hands::at(BEGIN_UNIX_NS)));
        let clock = Clock::moved(hands);
        let mut disk = BTreeMap::new();
        let collector = Collector::begin(folder(), &mut disk, clock);
        Self {
            seed,
            dice: fastrand::Rng::with_seed(seed),
            hands,
            clock,
            collector,
            tries: Vec::new(),
            cases: Vec::new(),
            cases_made: 0,
            disk,
            disk_stalls_until: clock.monotonic(),
            ticked_unix_ns: 0,
            life: 0,
            said: Vec::new(),
            healing: false,
            taken: hooks().iter().map(|_| Vec::new()).collect(),
            forgotten: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            refused: BTreeSet::new(),
            refused_ends: BTreeSet::new(),
            refused_unnamed: BTreeSet::new(),
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.dice.u32(0..n) == 0
    }

    fn ms(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.dice.u64(0..=most))
    }

    /// What the analysis says of a case now.
    fn version(&self, case: &Case) -> Incident {
        let mut incident = fixture(&case.id, case.version);
        for drop in &mut incident.drops {
            drop.host = format!("web-{}", case.n);
            drop.count = 100 + case.version;
        }
        for hop in &mut incident.hops {
            hop.host = format!("{}-{}", hop.host, case.n);
        }
        incident.root.host = format!("app-{}-{}", case.n, case.root);
        incident.start_unix_ns = case.start_unix_ns;
        incident.end_unix_ns = incident.start_unix_ns + 900_000_000 + case.version * 50_000_000;
        if case.early {
            incident.kind = Kind::LocalOverflow;
            incident.root.resource = Resource::Unexplained;
        }
        if case.over {
            incident.state = State::Closed;
        }
        incident
    }

    /// As `Outlet::output` and `Outlet::incident`.
    fn say(&mut self, incident: Incident, early: bool) {
        let collector = &mut self.collector;
        let replaces = if early {
            collector.provisionals.alert(&incident);
            Vec::new()
        } else {
            collector.provisionals.replaced_by(&incident)
        };
        let lag = if self.dice.u32(0..8) == 0 { self.dice.u64(0..3_000) } else { self.dice.u64(0..20) };
        let written = (self.clock.monotonic() + Duration::from_millis(lag)).max(self.disk_stalls_until);
        let Some(kept) = collector.put(incident, written) else { return };
        collector.alerts.incident(&kept, &replaces, None);
        self.said.push(Said { incident: kept, replaces, life: self.life });
    }

    /// One step of the analysis.
    fn analysis(&mut self) {
        if !self.healing && self.cases.len() < 6 && self.one_in(3) {
            self.cases_made += 1;
            let n = self.cases_made;
            // Some are at the place of the one before, so that they join a thread.
            let place = if self.one_in(3) { n.saturating_sub(1).max(1) } else { n };
            let id = format!("01KAJX3S9R7V5S9C8H1Z{n:06}");
            let early = !self.one_in(4);
            let version = u64::from(!early);
            let start_unix_ns = self.clock.unix_ns();
            let case = Case { id, n: place, version, start_unix_ns, root: 0, over: false, early };
            let said = self.version(&case);
            self.cases.push(case);
            self.say(said, early);
            return;
        }
        if self.cases.is_empty() {
            return;
        }
        let at = self.dice.usize(0..self.cases.len());
        let mut case = self.cases[at].clone();
        if case.early {
            case.early = false;
            if self.one_in(4) {
                // No window confirms it: `Provisionals` ends it.
                self.cases.swap_remove(at);
                return;
            }
            if self.one_in(3) {
                // The windows open it under another id.
                case.id.push('W');
                case.version = 0;
            }
        } else {
            if self.one_in(3) {
                case.root += 1;
            }
            case.over = self.one_in(4);
        }
        case.version += 1;
        let said = self.version(&case);
        if case.over {
            self.cases.swap_remove(at);
        } else {
            self.cases[at] = case;
        }
        self.say(said, false);
    }

    /// What goes out, with what its receiver will make of it.
    fn collect(&mut self, hook: usize) {
        for out in self.collector.running[hook].worker.outgoing() {
            let fate = if self.healing { 0 } else { self.dice.u32(0..20) };
            let quick = self.ms(80);
            let (takes, lasts, outcome) = match fate {
                0..=11 => (Some(quick / 2), quick, Ok(())),
                12 => (None, quick, {
                    self.refused.insert((hook, out.message.incident.clone()));
                    let thread = &out.message.thread;
                    if out.message.what == What::Closed && thread.others_open == 0 {
                        self.refused_ends.insert((hook, thread.id.clone()));
                    }
                    let with_it: Vec<String> = match &out.message.content {
                        Content::Incident { replaces, .. } => replaces.clone(),
                        Content::Summary { held, incidents } => {
                            if *held > incidents.len() as u64 {
                                self.refused_unnamed.insert(hook);
                            }
                            incidents.iter().map(|line| line.id.clone()).collect()
                        }
                    };
                    self.refused.extend(with_it.into_iter().map(|id| (hook, id)));
                    Err(DeliveryError::Never("410".into()))
                }),
                13..=15 => (None, quick, Err(DeliveryError::later("503"))),
                16..=17 => (None, Duration::from_secs(5), Err(DeliveryError::later("no answer"))),
                // Taken, and its answer is lost.
                _ => {
                    self.unanswered.insert((hook, out.message.id.clone()));
                    (Some(quick), Duration::from_secs(5), Err(DeliveryError::later("no answer")))
                }
            };
            self.tries.push(Try {
                hook,
                number: out.number,
                message: out.message,
                begins: self.clock.monotonic() + WRITTEN_WITHIN,
                written: out.written,
                takes,
                lasts,
                outcome,
                taken: false,
            });
        }
    }

    /// All that is due at this moment.
    fn due(&mut self) {
        let now = self.clock.monotonic();
        // The store's writer.
        while let Some((at, _)) = self.collector.unwritten.front()
            && *at <= now
            && self.disk_stalls_until <= now
            && let Some((_, incident)) = self.collector.unwritten.pop_front()
        {
            self.disk.insert(incident.id.clone(), incident);
        }
        // A tick never goes back, whoever sets the clock.
        self.ticked_unix_ns = self.ticked_unix_ns.max(self.clock.unix_ns());
        for unconfirmed in self.collector.provisionals.unconfirmed(self.ticked_unix_ns) {
            self.say(unconfirmed, false);
        }
        for at in (0..self.tries.len()).rev() {
            let one = &mut self.tries[at];
            if one.written.as_ref().is_none_or(CancellationToken::is_cancelled) {
                one.begins = one.begins.min(now);
                one.written = None;
            }
            if one.begins > now {
                continue;
            }
            if !one.taken && one.takes.is_some_and(|takes| one.begins + takes <= now) {
                one.taken = true;
                let message = Arc::clone(&one.message);
                self.taken[one.hook].push(Taken { message, life: self.life });
            }
            if one.begins + one.lasts <= now {
                let done = self.tries.swap_remove(at);
                self.collector.running[done.hook].worker.ended(done.number, done.outcome, true);
                self.collect(done.hook);
            }
        }
        for hook in 0..self.taken.len() {
            while let Ok(input) = self.collector.running[hook].inbox.try_recv() {
                self.collector.running[hook].worker.input(input);
                self.collect(hook);
            }
            if self.collector.running[hook].worker.wake().is_some_and(|at| at <= now) {
                self.collector.running[hook].worker.timers();
            }
            self.collect(hook);
        }
        if self.disk_stalls_until <= now {
            self.collector.outbox.turn();
        }
    }

    /// So much time passes, and all that is due in it happens when it is.
    fn pass(&mut self, duration: Duration) {
        let end = self.clock.monotonic() + duration;
        loop {
            self.due();
            let now = self.clock.monotonic();
            let tries = self.tries.iter().flat_map(|one| {
                let takes = one.takes.filter(|_| !one.taken).map(|takes| one.begins + takes);
                // One whose place was taken by another is looked at in the next round.
                let ends = (one.begins + one.lasts).max(now + Duration::from_millis(1));
                [Some(one.begins), takes, Some(ends)]
            });
            let wakes: Vec<_> = self.collector.running.iter_mut().map(|r| r.worker.wake()).collect();
            let written = self.collector.unwritten.front().map(|(at, _)| *at);
            let other = wakes.into_iter().chain([written, Some(self.disk_stalls_until)]);
            let next = tries.chain(other).flatten().filter(|at| *at > now).min();
            // What has to be confirmed is looked for again and again.
            let next = next.unwrap_or(end).min(now + Duration::from_secs(1)).min(end);
            if next <= now {
                return;
            }
            self.hands.pass(next - now);
        }
    }

    /// SIGKILL, or the machine loses its power; and a start after it.
    fn kill(&mut self) {
        self.life += 1;
        self.ticked_unix_ns = 0;
        let left = folder();
        let power_cut = self.one_in(4);
        let log_bytes_at_most = power_cut.then(|| self.dice.u64(0..200_000));
        self.tries.clear();
        let open: BTreeSet<String> =
            self.disk.values().filter(|i| i.state == State::Open).map(|i| i.id.clone()).collect();
        self.collector.outbox.killed(left.path(), log_bytes_at_most).unwrap();
        self.collector = Collector::begin(left, &mut self.disk, self.clock);
        // Who is to hear of what, as far as anything on a disk says so.
        let ids: BTreeSet<&str> = self.said.iter().map(|said| said.incident.id.as_str()).collect();
        let heard = self.collector.outbox.heard_of(ids.iter().copied());
        let kept = self.collector.outbox.messages();
        for (hook, running) in self.collector.running.iter().enumerate() {
            let known =
                |id: &str| heard.contains(&(running.name.to_string(), id.to_owned())) || open.contains(id);
            let lost = ids.iter().filter(|id| power_cut || !known(id));
            self.forgotten.extend(lost.map(|id| (hook, (*id).to_owned())));
            // Taken while the disk stalled: of a beginning that is in no row, nothing on the disk knows.
            let begun =
                self.taken[hook].iter().map(|taken| &taken.message).filter(|m| m.what == What::Opened);
            let unkept = begun.filter(|m| !kept.contains(&(running.name.to_string(), m.id.clone())));
            self.forgotten.extend(unkept.map(|m| (hook, m.incident.clone())));
        }
        // The agents send again what was not acknowledged: some of what was open is found once more.
        let mut found = Vec::new();
        for mut case in std::mem::take(&mut self.cases) {
            if self.dice.bool() {
                case.version = u64::from(!case.early);
                found.push(case);
            }
        }
        for case in found {
            let (said, early) = (self.version(&case), case.early);
            self.cases.push(case);
            self.say(said, early);
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            match self.dice.u32(0..100) {
                0..=59 => self.analysis(),
                60..=61 => self.kill(),
                62..=63 => {
                    let stalls = self.ms(4_000);
                    self.disk_stalls_until = self.clock.monotonic() + stalls;
                }
                64 => {
                    let now = self.clock.unix_ns();
                    let by = self.dice.u64(0..300_000_000_000);
                    self.hands.set(if self.dice.bool() { now + by } else { now.saturating_sub(by) });
                }
                _ => {}
            }
            let most = if self.one_in(10) { 20_000 } else { 300 };
            let passes = self.ms(most);
            self.pass(passes);
        }
        self.healing = true;
        while !self.cases.is_empty() {
            self.analysis();
            self.pass(Duration::from_millis(50));
        }
        self.pass(HEALED);
        self.hold();
    }
}

/// In memory where that can be: nothing here is to survive this machine.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[test]
fn whatever_happens_each_incident_is_told_and_its_end_once_and_an_id_means_one_thing() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("TAILWATER_SIM_SEED") {
        return World::begin(seed).run();
    }
    let (first, new) = (RandomState::new().hash_one(0) >> 1, number("TAILWATER_SIM_SEEDS").unwrap_or(0));
    let seeds = FOUND.into_iter().chain(0..FIXED_SEEDS).chain(first..first + new);
    seeds.for_each(|seed| World::begin(seed).run());
}

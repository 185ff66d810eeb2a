//! Nothing lost, by simulation: one seed is one history of agents' outboxes, a network that delays, breaks and leaves half-open
//! connections, agents that restart, and a collector that is killed at any step. Outbox, session, registry and the queue to the analysis are
//! those of the programs; no clock, socket or thread has a say. What is kept after that queue is not simulated.

use prost::Message;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tailwater::counters::Metrics;
use tailwater::ingest::delivery_log::{DeliveryLog, InMemory, Offset, Read, Reader};
use tailwater::ingest::feed::{Feed, QUEUE_MAX, Quota};
use tailwater::ingest::registry::Registry;
use tailwater::ingest::service;
use tailwater::ingest::session::Session;
use tailwater::ingest::tls::Speaker;
use tailwater_agent::stream::outbox::Outbox;
use tailwater_proto::v1::{
    AgentMessage, Hello, WindowBatch, agent_message::Body, collector_message::Body as Reply,
};
use tailwater_proto::{PROTOCOL_MAX, PROTOCOL_MIN};
use tonic::codegen::Bytes;

const WINDOW_NS: u64 = 50_000_000;
/// Any moment that is no edge of a day.
const BEGIN_WINDOW: u64 = 35_000_000_000;
const STEPS: u64 = 1_500;
const AGENTS: u64 = 3;
const BATCHES_MAX: usize = 12;
const AGENT_QUEUE: usize = 6;
/// Seeds that every run repeats, and how many new ones it adds.
const FIXED_SEEDS: u64 = 200;
/// Histories in which a bug of the past showed: each fails again where its repair is taken back.
const FOUND: [u64; 2] = [5_177_725_817_387_189_830, 6_972_865_114_078_581_909];
const NEW_SEEDS: u64 = 5_000;

/// `splitmix64`: all that happens by chance comes of it.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// What never waits here: no history fills the queue of all agents.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(work).poll(&mut context) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => panic!("the queue to the analysis is full"),
    }
}

struct Agent {
    host: String,
    instance: u64,
    outbox: Outbox,
    /// Windows of each sequence that was pushed, and windows that the kernel lapped.
    pushed: BTreeMap<u64, u64>,
    lapped: u64,
    link: Option<u64>,
    partitioned: bool,
}

impl Agent {
    fn begin(host: u64, instance: u64) -> Self {
        let outbox = Outbox::new(BATCHES_MAX);
        let host = format!("host-{host}");
        outbox.set_hello(Hello {
            host: host.clone(),
            agent_instance: instance.to_string(),
            boot_id: host.clone(),
            window_ns: WINDOW_NS,
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            ..Hello::default()
        });
        Self { host, instance, outbox, pushed: BTreeMap::new(), lapped: 0, link: None, partitioned: false }
    }

    fn id(&self) -> (String, String) {
        (self.host.clone(), self.instance.to_string())
    }
}

/// A connection: in order within each direction, and of any delay.
struct Link {
    agent: usize,
    up: VecDeque<Bytes>,
    down: VecDeque<Reply>,
    welcomed: bool,
    /// The agent's end is there.
    near: bool,
    session: Option<Session>,
    quota: Quota,
}

struct Collector {
    registry: Registry,
    metrics: Arc<Metrics>,
    feed: Feed,
    log: Reader,
    /// What its analysis got, by host, instance and sequence.
    analysed: BTreeSet<(String, String, u64)>,
}

impl Collector {
    fn begin() -> Self {
        let log: Arc<dyn DeliveryLog> = Arc::new(InMemory::new(QUEUE_MAX));
        let (feed, log) = (Feed::over(Arc::clone(&log)), Reader::new(log, Offset::default()));
        let (registry, metrics) = (Registry::new(AGENTS as usize), Arc::default());
        Self { registry, metrics, feed, log, analysed: BTreeSet::new() }
    }
}

struct World {
    chance: Chance,
    now_window: u64,
    agents: Vec<Agent>,
    links: BTreeMap<u64, Link>,
    links_made: u64,
    collector: Collector,
    /// What some life of the collector queued for its analysis: sequence, with the windows told as lost before it.
    accepted: BTreeMap<(String, String), BTreeMap<u64, u64>>,
}

impl World {
    fn begin(seed: u64) -> Self {
        Self {
            chance: Chance(seed),
            now_window: BEGIN_WINDOW,
            agents: (0..AGENTS).map(|host| Agent::begin(host, 1)).collect(),
            links: BTreeMap::new(),
            links_made: 0,
            collector: Collector::begin(),
            accepted: BTreeMap::new(),
        }
    }

    fn now_unix_ns(&self) -> u64 {
        self.now_window * WINDOW_NS
    }

    fn some_link(&mut self) -> Option<u64> {
        let at = self.chance.below(self.links.len() as u64) as usize;
        self.links.keys().nth(at).copied()
    }

    /// One thing happens.
    fn step(&mut self) -> Result<(), String> {
        let who = self.chance.below(AGENTS) as usize;
        match self.chance.below(1_000) {
            0..160 => self.push(who),
            160..400 => self.send(who),
            400..620 => self.some_link().map_or(Ok(()), |link| self.collector_reads(link)),
            620..800 => self.some_link().map_or(Ok(()), |link| self.agent_hears(link)),
            800..900 => self.analyse(),
            900..950 => self.connect(who),
            950..960 => self.leave(who, true),
            960..975 => self.leave(who, false),
            975..980 => {
                self.agents[who].partitioned = !self.agents[who].partitioned;
                Ok(())
            }
            980..990 => self.restart(who),
            990..996 => self.some_link().map_or(Ok(()), |link| self.collector_closes(link)),
            _ => self.kill(),
        }
    }

    fn push(&mut self, who: usize) -> Result<(), String> {
        let count = 1 + self.chance.below(4);
        let lapped = if self.chance.below(20) == 0 { self.chance.below(9) } else { 0 };
        let first_window = self.now_window + lapped;
        self.now_window = first_window + count;
        let agent = &mut self.agents[who];
        agent.lapped += lapped;
        agent.pushed.insert(agent.pushed.len() as u64 + 1, count);
        let batch = WindowBatch { first_window, window_count: count as u32, ..WindowBatch::default() };
        agent.outbox.push(batch, lapped);
        let waiting = agent.outbox.totals().waiting_batches;
        if waiting > BATCHES_MAX as u64 {
            return Err(format!("{} batches wait at {}, more than {BATCHES_MAX}", waiting, agent.host));
        }
        Ok(())
    }

    fn send(&mut self, who: usize) -> Result<(), String> {
        let agent = &self.agents[who];
        let link = agent.link.and_then(|id| self.links.get_mut(&id));
        if let Some(link) = link
            && link.welcomed
            && !agent.partitioned
            && let Some(body) = agent.outbox.next()
        {
            link.up.push_back(AgentMessage { body: Some(body) }.encode_to_vec().into());
        }
        Ok(())
    }

    fn connect(&mut self, who: usize) -> Result<(), String> {
        let agent = &mut self.agents[who];
        if agent.link.is_some() || agent.partitioned {
            return Ok(());
        }
        let hello = agent.outbox.hello().unwrap_or_default();
        let first = AgentMessage { body: Some(Body::Hello(hello)) }.encode_to_vec().into();
        self.links_made += 1;
        agent.link = Some(self.links_made);
        let link = Link {
            agent: who,
            up: VecDeque::from([first]),
            down: VecDeque::new(),
            welcomed: false,
            near: true,
            session: None,
            quota: Quota::new(AGENT_QUEUE),
        };
        self.links.insert(self.links_made, link);
        Ok(())
    }

    /// The agent's end is gone. What is under way to the collector may still arrive (`half_open`), or is gone, too.
    fn leave(&mut self, who: usize, half_open: bool) -> Result<(), String> {
        let Some(id) = self.agents[who].link.take() else { return Ok(()) };
        if half_open {
            if let Some(link) = self.links.get_mut(&id) {
                link.near = false;
                link.down.clear();
            }
            return Ok(());
        }
        self.collector_closes(id)
    }

    /// The collector's end is gone, and with it the agent's.
    fn collector_closes(&mut self, id: u64) -> Result<(), String> {
        let now = self.now_unix_ns();
        let Some(link) = self.links.remove(&id) else { return Ok(()) };
        if let Some(session) = &link.session {
            session.lease().end(now);
        }
        let agent = &mut self.agents[link.agent];
        if agent.link == Some(id) {
            agent.link = None;
        }
        Ok(())
    }

    /// The agent begins anew on the same boot; its outbox is gone. What its last connection carries may still arrive.
    fn restart(&mut self, who: usize) -> Result<(), String> {
        let half_open = self.chance.below(2) == 0;
        self.leave(who, half_open)?;
        let instance = self.agents[who].instance + 1;
        self.agents[who] = Agent::begin(who as u64, instance);
        Ok(())
    }

    /// SIGKILL: all that it had in memory is gone, and every connection.
    fn kill(&mut self) -> Result<(), String> {
        self.links.clear();
        for agent in &mut self.agents {
            agent.link = None;
        }
        self.collector = Collector::begin();
        Ok(())
    }

    fn collector_reads(&mut self, id: u64) -> Result<(), String> {
        let now = self.now_unix_ns();
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        // A task of the collector that has both a message and the word that its stream is replaced takes either first.
        let replaced = link.session.as_ref().is_some_and(|session| session.lease().replaced.is_cancelled());
        if replaced && (link.up.is_empty() || self.chance.below(2) == 0) {
            return self.collector_closes(id);
        }
        let Some(raw) = link.up.pop_front() else {
            let ended = !link.near;
            return if ended { self.collector_closes(id) } else { Ok(()) };
        };
        let collector = &self.collector;
        let Some(session) = &mut link.session else {
            let who = ("simulated", &Speaker::default());
            let Ok((session, welcome, delivery)) =
                Session::open(&raw, &collector.registry, &collector.metrics, who, now)
            else {
                return self.collector_closes(id);
            };
            let begun = service::begin(&session, delivery, &collector.feed, &link.quota);
            let queued = at_once(begun).is_ok();
            link.session = Some(session);
            link.down.push_back(Reply::Welcome(welcome));
            return if queued { Ok(()) } else { self.collector_closes(id) };
        };
        let before = collector.feed.waiting();
        let stepped = at_once(service::step(session, raw.clone(), now, &collector.feed, &link.quota));
        if collector.feed.waiting() > before
            && let Some((who, batch)) = batch_of(&raw, session)
        {
            self.accepted.entry(who).or_default().insert(batch.sequence, batch.windows_lost);
        }
        if collector.feed.waiting() > QUEUE_MAX {
            return Err(format!("{} messages wait for the analysis", collector.feed.waiting()));
        }
        match stepped {
            Ok(replies) => {
                if link.near {
                    link.down.extend(replies.into_iter().flatten());
                }
                Ok(())
            }
            Err(_) => self.collector_closes(id),
        }
    }

    fn agent_hears(&mut self, id: u64) -> Result<(), String> {
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let who = link.agent;
        let agent = &self.agents[who];
        if agent.link != Some(id) || agent.partitioned {
            return Ok(());
        }
        match link.down.pop_front() {
            Some(Reply::Welcome(welcome)) => {
                link.welcomed = true;
                self.acknowledged(who, welcome.last_sequence)?;
                self.agents[who].outbox.resume(welcome.last_sequence);
            }
            Some(Reply::Ack(ack)) => {
                self.acknowledged(who, ack.sequence)?;
                self.agents[who].outbox.acknowledged(ack.sequence);
            }
            Some(Reply::BatchRefused(refused)) => {
                return Err(format!("an honest batch was refused: {}", refused.reason));
            }
            _ => {}
        }
        Ok(())
    }

    /// What an agent is told to forget was queued for the analysis by some life of the collector, or dropped by the outbox and counted.
    fn acknowledged(&self, who: usize, up_to: u64) -> Result<(), String> {
        let agent = &self.agents[who];
        let accepted = self.accepted.get(&agent.id());
        let kept = |sequence: &u64| accepted.is_some_and(|a| a.contains_key(sequence));
        let missing: Vec<(&u64, &u64)> =
            agent.pushed.iter().filter(|(sequence, _)| **sequence <= up_to && !kept(sequence)).collect();
        let windows: u64 = missing.iter().map(|(_, count)| **count).sum();
        let dropped = agent.outbox.totals().windows_dropped;
        if windows > dropped {
            return Err(format!(
                "{} instance {} was told that all up to {up_to} is taken; {windows} windows of {missing:?} are not, and {dropped} were dropped",
                agent.host, agent.instance
            ));
        }
        Ok(())
    }

    fn analyse(&mut self) -> Result<(), String> {
        let delivery = match self.collector.log.read(Duration::ZERO) {
            Read::One(entry) => entry.delivery,
            Read::Nothing => return Ok(()),
            other => return Err(format!("the analysis reads {other:?}")),
        };
        let Ok(AgentMessage { body: Some(Body::Batch(batch)) }) = AgentMessage::decode(delivery.raw.clone())
        else {
            return Ok(());
        };
        if delivery.inputs.len() != batch.window_count as usize {
            return Err(format!("{} inputs of {} windows", delivery.inputs.len(), batch.window_count));
        }
        let arrival = delivery.arrival;
        let one = (arrival.host, arrival.agent_instance, batch.sequence);
        if !self.collector.analysed.insert(one.clone()) {
            return Err(format!("{one:?} was analysed twice"));
        }
        Ok(())
    }

    /// All heals; what waits is sent, and then the books must agree.
    fn settle(&mut self) -> Result<(), String> {
        for who in 0..self.agents.len() {
            self.agents[who].partitioned = false;
            self.push(who)?;
        }
        for _ in 0..400 {
            for who in 0..self.agents.len() {
                self.connect(who)?;
                self.send(who)?;
            }
            let links: Vec<u64> = self.links.keys().copied().collect();
            for link in links {
                self.collector_reads(link)?;
                self.agent_hears(link)?;
            }
            for _ in 0..6 {
                self.analyse()?;
            }
        }
        for agent in &self.agents {
            let waiting = agent.outbox.totals().waiting_batches;
            if waiting > 0 {
                return Err(format!("{waiting} batches of {} are never taken", agent.host));
            }
            let nothing = BTreeMap::new();
            let accepted = self.accepted.get(&agent.id()).unwrap_or(&nothing);
            let missing: u64 =
                agent.pushed.iter().filter(|(s, _)| !accepted.contains_key(s)).map(|(_, count)| count).sum();
            let told: u64 = accepted.values().sum();
            let dropped = agent.outbox.totals().windows_dropped;
            if told < missing + agent.lapped || (dropped == 0 && told != agent.lapped) {
                return Err(format!(
                    "{}: {missing} windows were never taken and {} lapped, {told} are told as lost, {dropped} were dropped",
                    agent.host, agent.lapped
                ));
            }
        }
        Ok(())
    }
}

fn batch_of(raw: &Bytes, session: &Session) -> Option<((String, String), WindowBatch)> {
    let Ok(AgentMessage { body: Some(Body::Batch(batch)) }) = AgentMessage::decode(raw.clone()) else {
        return None;
    };
    Some(((session.host().to_owned(), session.instance().to_owned()), batch))
}

fn history(seed: u64) -> Result<usize, String> {
    let mut world = World::begin(seed);
    for step in 0..STEPS {
        world.step().map_err(|what| format!("at step {step}: {what}"))?;
    }
    world.settle().map_err(|what| format!("in the end: {what}"))?;
    Ok(world.accepted.values().map(BTreeMap::len).sum())
}

fn check(seed: u64) -> usize {
    history(seed).unwrap_or_else(|what| {
        panic!(
            "seed {seed}, {what}\nagain: TAILWATER_SIM_SEED={seed} cargo test --workspace --locked --test simulation"
        )
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no whole number")))
}

#[test]
fn what_was_acknowledged_was_taken_once_or_is_told_as_lost_whatever_breaks() {
    if let Some(seed) = number("TAILWATER_SIM_SEED") {
        check(seed);
        return;
    }
    let new = number("TAILWATER_SIM_SEEDS").unwrap_or(NEW_SEEDS);
    let first = RandomState::new().hash_one(0) >> 1;
    let taken: usize = FOUND.into_iter().chain(0..FIXED_SEEDS).chain(first..first + new).map(check).sum();
    assert!(taken > 10_000, "hardly anything went through: {taken} batches");
    println!(
        "{} seeds, new ones from {first}: {taken} batches taken",
        FOUND.len() as u64 + FIXED_SEEDS + new
    );
}

#[test]
fn one_seed_is_one_history() {
    for seed in 0..20 {
        assert_eq!(history(seed), history(seed));
    }
}

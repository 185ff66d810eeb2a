//! A run of an agent: what it measures and names is made up; outbox and conversation are those of the program, and here stands what its task does
//! with them (`agent/src/stream.rs`). Keeps books of each batch, by which the outbox is judged at every step.

use super::chance::{Chance, MS, S};
use super::network::Network;
use super::truth::{RunId, Truth};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tailwater_agent::name::workload::{Device, Kind, Named};
use tailwater_agent::stream::conversation::{Conversation, Now};
use tailwater_agent::stream::heard::{Control, Parting};
use tailwater_agent::stream::outbox::Outbox;
use tailwater_agent::stream::{PROBE_PERIOD, STATUS_PERIOD, WELCOME_TIMEOUT};
use tailwater_proto::columnar::TableBuilder;
use tailwater_proto::v1::{
    AgentMessage, AgentStatus, CollectorMessage, Configuration, DropEvent, EntityKind, Hello, Metric,
    WindowBatch, agent_message::Body, collector_message::Body as Reply,
};
use tailwater_proto::{PROTOCOL_MAX, PROTOCOL_MIN, WINDOW_NS};
use tonic::codegen::Bytes;

/// What an outbox keeps: 8 s.
pub(crate) const BATCHES_MAX: usize = 80;
const WINDOWS_PER_BATCH: u64 = 2;
/// A device that is gone is told to be after no batch that waits can hold it.
const GONE_AFTER_NS: u64 = 12 * S;
/// Values of a device are this many times the number of the run, and its id.
pub(crate) const RUN_MARK: u64 = 1_000;

struct Rest;

impl Control for Rest {
    fn status(&self) -> AgentStatus {
        AgentStatus::default()
    }
    fn configure(&self, _: &Configuration) {}
}

static REST: Rest = Rest;

/// A moment, as it is and as this machine's clock says it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Since the history began.
    pub(crate) now_ns: u64,
    pub(crate) clock: Now,
}

/// What became of each batch of a run.
#[derive(Default)]
struct Books {
    /// Windows by sequence, of all that were pushed.
    windows: BTreeMap<u64, u64>,
    /// What the outbox has.
    waiting: BTreeSet<u64>,
    /// What it dropped because it was full.
    dropped: BTreeSet<u64>,
    /// Windows that the kernel lapped, and that were told.
    lapped: u64,
    sent_up_to: u64,
    /// The highest sequence that a life of the collector said to have.
    told: (u64, u64),
}

impl Books {
    fn hears(&mut self, reply: &Reply, life: u64, id: &RunId, truth: &Truth) -> Result<(), String> {
        match reply {
            Reply::Welcome(welcome) => self.is_taken(welcome.last_sequence, life, id, truth),
            Reply::Ack(ack) => self.is_taken(ack.sequence, life, id, truth),
            Reply::BatchRefused(refused) => {
                let sequence = refused.sequence;
                if self.waiting.remove(&sequence) && !truth.is_refused(id, sequence) {
                    return Err(format!("{id:?} hears that batch {sequence} is refused, which it was not"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The collector says to have all up to this: it has, and never said less.
    fn is_taken(&mut self, up_to: u64, life: u64, id: &RunId, truth: &Truth) -> Result<(), String> {
        if up_to > self.sent_up_to {
            return Err(format!("{id:?} is told that {up_to} is taken, and sent {}", self.sent_up_to));
        }
        if self.told.0 == life && up_to < self.told.1 {
            return Err(format!("{id:?} was told {} and then {up_to} by one collector", self.told.1));
        }
        self.told = (life, up_to);
        let later = self.waiting.split_off(&(up_to + 1));
        let taken = std::mem::replace(&mut self.waiting, later);
        let missing: Vec<u64> = taken
            .into_iter()
            .filter(|sequence| !truth.is_accepted(id, *sequence) && !truth.is_refused(id, *sequence))
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{id:?} is told that all up to {up_to} is taken; {missing:?} is not"))
        }
    }

    /// Each window of the run is accounted for; of one that is over, what its outbox held is lost with it.
    fn check(&self, is_over: bool, id: &RunId, truth: &Truth) -> Result<(), String> {
        let known = |sequence: u64| truth.is_accepted(id, sequence) || truth.is_refused(id, sequence);
        let lost_with_it = |sequence: u64| is_over && self.waiting.contains(&sequence);
        let pushed = self.windows.keys().copied();
        let unknown: Vec<u64> =
            pushed.filter(|s| !known(*s) && !self.dropped.contains(s) && !lost_with_it(*s)).collect();
        if !unknown.is_empty() {
            return Err(format!("nobody took, refused or dropped {unknown:?} of {id:?}"));
        }
        if is_over {
            return Ok(());
        }
        if !self.waiting.is_empty() {
            return Err(format!("{:?} of {id:?} are never taken", self.waiting));
        }
        let lost: u64 = self.dropped.iter().filter(|s| !known(**s)).filter_map(|s| self.windows.get(s)).sum();
        let told = truth.told_lost(id);
        // A batch that is refused may take with it what it told of others.
        let short = told < lost + self.lapped && !truth.refused_anything(id);
        // A batch that was taken, and whose acknowledgement never came, may be dropped and told as lost.
        let long = told > self.lapped && self.dropped.is_empty() && !truth.refused_anything(id);
        if short || long {
            let lapped = self.lapped;
            return Err(format!("{id:?}: {lost} windows dropped, {lapped} lapped, {told} told as lost"));
        }
        Ok(())
    }
}

struct Connected<'h> {
    link: u64,
    conversation: Conversation<'h>,
    welcomed: bool,
    since_ns: u64,
    probe_ns: u64,
    status_ns: u64,
}

enum State<'h> {
    Pauses(u64),
    Connected(Box<Connected<'h>>),
}

/// From the start of an agent to its end.
pub(crate) struct Run<'h> {
    pub(crate) id: RunId,
    number: u64,
    outbox: &'h Outbox,
    books: Books,
    /// Of the windows that are measured next, the first; `None`: before the first of all.
    next_window: Option<u64>,
    lapped: u64,
    devices: BTreeSet<u32>,
    devices_made: u32,
    /// Each with the moment at which it is told to be gone.
    retired: VecDeque<(u64, u32)>,
    state: State<'h>,
}

impl<'h> Run<'h> {
    /// The run of this number begins on `host`, with nothing in its outbox.
    pub(crate) fn begin(host: &str, boot: u64, number: u64, outbox: &'h Outbox) -> Self {
        let instance = number.to_string();
        outbox.set_hello(Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            host: host.to_owned(),
            boot_id: format!("boot {boot}"),
            agent_instance: instance.clone(),
            window_ns: WINDOW_NS,
            // Runs are counted in the order in which they begin.
            started_monotonic_ns: number,
            ..Hello::default()
        });
        Self {
            id: (host.to_owned(), instance),
            number,
            outbox,
            books: Books::default(),
            next_window: None,
            lapped: 0,
            devices: BTreeSet::new(),
            devices_made: 0,
            retired: VecDeque::new(),
            state: State::Pauses(0),
        }
    }

    /// Its connection.
    pub(crate) fn link(&self) -> Option<u64> {
        match &self.state {
            State::Connected(connected) => Some(connected.link),
            State::Pauses(_) => None,
        }
    }

    /// All that was pushed is taken.
    pub(crate) fn is_drained(&self) -> bool {
        self.outbox.totals().waiting_batches == 0
    }

    /// Windows that are over are measured.
    pub(crate) fn measure(&mut self, moment: Moment, chance: &mut Chance) -> Result<(), String> {
        let open = moment.clock.unix_ns / WINDOW_NS;
        let mut next = self.next_window.unwrap_or(open);
        // The clock was set: windows go on where it is.
        if next > open + 20 || open > next + 60 {
            next = open;
        }
        self.next_window = Some(next);
        if chance.one_in(4_000) {
            let lapped = chance.between(1, 9);
            self.lapped += lapped;
            self.next_window = Some(next + lapped);
            return Ok(());
        }
        if open < next + WINDOWS_PER_BATCH {
            return Ok(());
        }
        self.push(next, moment, chance)
    }

    /// The windows that were open just now are measured, whatever was before.
    pub(crate) fn measure_last(&mut self, moment: Moment, chance: &mut Chance) -> Result<(), String> {
        self.push(moment.clock.unix_ns / WINDOW_NS - WINDOWS_PER_BATCH, moment, chance)
    }

    fn push(&mut self, first_window: u64, moment: Moment, chance: &mut Chance) -> Result<(), String> {
        self.next_window = Some(first_window + WINDOWS_PER_BATCH);
        self.name(moment.now_ns, chance);
        let mut table = TableBuilder::new(EntityKind::Device, WINDOWS_PER_BATCH as usize);
        for id in &self.devices {
            table.set(*id, 1, Metric::DeviceBytes, 0, self.mark(*id));
        }
        let batch = WindowBatch {
            first_window,
            window_count: WINDOWS_PER_BATCH as u32,
            tables: vec![table.build()],
            ..WindowBatch::default()
        };
        let (before, lost) = (self.outbox.totals(), std::mem::take(&mut self.lapped));
        self.outbox.push(batch, lost);
        let dropped = self.outbox.totals().batches_dropped - before.batches_dropped;
        let books = &mut self.books;
        books.lapped += lost;
        for _ in 0..dropped {
            books.dropped.extend(books.waiting.pop_first());
        }
        let sequence = books.windows.len() as u64 + 1;
        books.windows.insert(sequence, WINDOWS_PER_BATCH);
        books.waiting.insert(sequence);
        if chance.one_in(30) {
            let unix_ns = moment.clock.unix_ns;
            let event = DropEvent { listener: 1, unix_ns, count: 1, ..DropEvent::default() };
            self.outbox.drops([event].into_iter());
        }
        self.agrees()
    }

    /// Devices come and go.
    fn name(&mut self, now_ns: u64, chance: &mut Chance) {
        let mut named = Vec::new();
        if self.devices.is_empty() || (self.devices.len() < 6 && chance.one_in(20)) {
            self.devices_made += 1;
            let id = self.devices_made;
            self.devices.insert(id);
            named.push(Named::Device(Device { id, name: self.mark(id).to_string() }));
        }
        if self.devices.len() > 1
            && chance.one_in(25)
            && let Some(id) = self.devices.pop_first()
        {
            self.retired.push_back((now_ns + GONE_AFTER_NS, id));
        }
        while let Some((at_ns, id)) = self.retired.front().copied()
            && at_ns <= now_ns
        {
            self.retired.pop_front();
            named.push(Named::Gone(Kind::Device, id));
        }
        self.outbox.name(named);
    }

    fn mark(&self, id: u32) -> u64 {
        self.number * RUN_MARK + u64::from(id)
    }

    /// The outbox has what the books say, and no more than it may.
    fn agrees(&self) -> Result<(), String> {
        let (waiting, booked) = (self.outbox.totals().waiting_batches, self.books.waiting.len());
        if waiting != booked as u64 || booked > BATCHES_MAX {
            return Err(format!("{waiting} batches wait at {:?}; by its books {booked}", self.id));
        }
        Ok(())
    }

    /// What its task does at this moment. `reachable`: somebody accepts connections.
    pub(crate) fn turn(
        &mut self,
        moment: Moment,
        reachable: bool,
        network: &mut Network,
        truth: &Truth,
        chance: &mut Chance,
    ) -> Result<(), String> {
        let now_ns = moment.now_ns;
        let pause_ns = match &self.state {
            State::Pauses(until_ns) if now_ns < *until_ns => return Ok(()),
            State::Pauses(_) if !reachable => Some(chance.between(100 * MS, 5 * S)),
            State::Pauses(_) => {
                let first = message(Body::Hello(self.outbox.hello().unwrap_or_default()));
                let link = network.connect(now_ns, first, chance);
                self.state = State::Connected(Box::new(Connected {
                    link,
                    conversation: Conversation::new("unix:///simulated", true, self.outbox, &REST),
                    welcomed: false,
                    since_ns: now_ns,
                    probe_ns: now_ns,
                    status_ns: now_ns,
                }));
                return Ok(());
            }
            State::Connected(_) => self.converse(moment, network, truth, chance)?,
        };
        if let Some(pause_ns) = pause_ns {
            self.state = State::Pauses(now_ns + pause_ns);
        }
        self.agrees()
    }

    /// On a connection; `Some`: it is over, and so long nothing is tried.
    fn converse(
        &mut self,
        moment: Moment,
        network: &mut Network,
        truth: &Truth,
        chance: &mut Chance,
    ) -> Result<Option<u64>, String> {
        let State::Connected(connected) = &mut self.state else { return Ok(None) };
        let now_ns = moment.now_ns;
        let soon_ns = chance.between(100 * MS, 5 * S);
        let Some(link) = network.links.get_mut(&connected.link) else { return Ok(Some(soon_ns)) };
        while let Some(reply) = link.hear(now_ns) {
            self.books.hears(&reply, link.life, &self.id, truth)?;
            let said = CollectorMessage { body: Some(reply) };
            let heard = if connected.welcomed {
                connected.conversation.hear(said, moment.clock)
            } else {
                connected.conversation.welcome(said)
            };
            connected.welcomed = true;
            let Err(parting) = heard else { continue };
            link.leave();
            return match parting {
                Parting::Refused { retry: true, .. } => Ok(Some(soon_ns)),
                // Only one of this boot that began later may send one away for so long, and there is none: this is the run that lives.
                Parting::Refused { retry: false, reason } => Err(format!(
                    "{:?}, the last of {} runs of its host, is sent away for a minute: {reason}",
                    self.id,
                    truth.runs(&self.id.0)
                )),
                Parting::Foreign { reason } => Err(format!("{:?} hears no collector: {reason}", self.id)),
            };
        }
        if link.is_over_for_agent(now_ns) {
            link.leave();
            return Ok(Some(soon_ns));
        }
        if !connected.welcomed {
            let waited_ns = now_ns - connected.since_ns;
            if waited_ns < WELCOME_TIMEOUT.as_nanos() as u64 {
                return Ok(None);
            }
            link.leave();
            return Ok(Some(soon_ns));
        }
        let conversation = &mut connected.conversation;
        conversation.look_at_clock(moment.clock.said_epoch_offset_ns);
        if now_ns >= connected.probe_ns {
            connected.probe_ns = now_ns + PROBE_PERIOD.as_nanos() as u64;
            conversation.probe_is_due();
        }
        if now_ns >= connected.status_ns {
            connected.status_ns = now_ns + STATUS_PERIOD.as_nanos() as u64;
            conversation.status_is_due();
        }
        for _ in 0..4 {
            if !link.has_room() || !conversation.has_next() {
                break;
            }
            let Some(body) = conversation.next(moment.clock) else { break };
            if let Body::Batch(batch) = &body {
                self.books.sent_up_to = self.books.sent_up_to.max(batch.sequence);
            }
            link.say(now_ns, message(body), chance);
        }
        Ok(None)
    }

    /// Its books at the end of the history; `is_over`: it ended before.
    pub(crate) fn check(&self, is_over: bool, truth: &Truth) -> Result<(), String> {
        self.books.check(is_over, &self.id, truth)
    }
}

fn message(body: Body) -> Bytes {
    AgentMessage { body: Some(body) }.encode_to_vec().into()
}

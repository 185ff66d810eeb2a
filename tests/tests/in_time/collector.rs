//! A life of the collector: sessions, registry, feed and log are those of the program, and here stands what a stream's task does with them
//! (`collector/src/ingest/service.rs`) and what the analysis must find in the log: each batch once and in order, and each row under its name.

use super::agent::RUN_MARK;
use super::chance::{Chance, S};
use super::network::{Link, Network};
use super::truth::{RunId, Taken, Truth};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tailwater::counters::Metrics;
use tailwater::ingest::delivery_log::{DeliveryLog, InMemory, Offset, Read, Reader};
use tailwater::ingest::feed::{Feed, QUEUE_MAX, Quota};
use tailwater::ingest::registry::{AgentView, Registry};
use tailwater::ingest::service;
use tailwater::ingest::session::{Delivery, Session};
use tailwater::ingest::tls::Speaker;
use tailwater_model::window::{EntityId, Input};
use tailwater_proto::v1::{AgentMessage, WindowBatch, agent_message::Body, collector_message::Body as Reply};
use tonic::codegen::Bytes;

/// Messages of one agent that may wait for the analysis: few, so that it is reached.
const AGENT_QUEUE: usize = 40;
/// As the program has it.
const HELLO_WITHIN_NS: u64 = 10 * S;
const AGENTS_MAX: usize = 8;

/// What never waits here: no history fills the queue of all agents.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(work).poll(&mut context) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => panic!("the queue to the analysis is full"),
    }
}

/// A stream.
struct Served {
    session: Option<Session>,
    quota: Quota,
    since_ns: u64,
}

/// What the analysis read last of a run.
#[derive(Default)]
struct Newest {
    sequence: u64,
    /// Behind its last window, by the agent's clock.
    end_window: u64,
    drop_sequence: u64,
}

/// From its start to its kill.
pub(crate) struct Collector {
    registry: Registry,
    metrics: Arc<Metrics>,
    feed: Feed,
    log: Reader,
    served: BTreeMap<u64, Served>,
    newest: BTreeMap<RunId, Newest>,
    /// Of devices, as the analysis was told them.
    names: BTreeMap<String, BTreeMap<EntityId, String>>,
}

impl Collector {
    pub(crate) fn begin() -> Self {
        let log: Arc<dyn DeliveryLog> = Arc::new(InMemory::new(QUEUE_MAX));
        Self {
            registry: Registry::new(AGENTS_MAX),
            metrics: Arc::default(),
            feed: Feed::over(Arc::clone(&log)),
            log: Reader::new(log, Offset::default()),
            served: BTreeMap::new(),
            newest: BTreeMap::new(),
            names: BTreeMap::new(),
        }
    }

    /// All that waits is worked off.
    pub(crate) fn is_idle(&self) -> bool {
        self.feed.waiting() == 0
    }

    /// Hosts, as the API shows them.
    pub(crate) fn view(&self) -> Vec<AgentView> {
        self.registry.view()
    }

    /// Some of what has come on a connection is read. `clock`: now since the history began, and as this machine's clock says it.
    pub(crate) fn serve(
        &mut self,
        id: u64,
        clock: (u64, u64),
        network: &mut Network,
        truth: &mut Truth,
        chance: &mut Chance,
    ) -> Result<(), String> {
        for _ in 0..6 {
            let Some(link) = network.links.get_mut(&id) else { break };
            if !link.is_served() || !self.read(id, clock, link, truth, chance)? {
                break;
            }
        }
        // Of each host as many as one agent may have there, over all its streams.
        let waiting = self.feed.waiting();
        if waiting > AGENT_QUEUE && waiting > AGENT_QUEUE * self.registry.view().len() {
            return Err(format!("{waiting} messages wait for the analysis"));
        }
        Ok(())
    }

    /// False: there is nothing more to read for now.
    fn read(
        &mut self,
        id: u64,
        (now_ns, unix_ns): (u64, u64),
        link: &mut Link,
        truth: &mut Truth,
        chance: &mut Chance,
    ) -> Result<bool, String> {
        let nobody = || Served { session: None, quota: Quota::new(AGENT_QUEUE), since_ns: now_ns };
        let served = self.served.entry(id).or_insert_with(nobody);
        // A task that has both a message and the word that its stream is replaced takes either first.
        if let Some(session) = &served.session
            && session.lease().replaced.is_cancelled()
            && (!link.has_arrived(now_ns) || chance.one_in(2))
        {
            link.reply(now_ns, Reply::Refusal(service::replaced(session)), chance);
            self.end(id, link, unix_ns);
            return Ok(false);
        }
        let Some(raw) = link.read(now_ns) else {
            let no_hello = served.session.is_none() && now_ns - served.since_ns > HELLO_WITHIN_NS;
            if link.is_over_for_collector(now_ns) || no_hello {
                self.end(id, link, unix_ns);
            }
            return Ok(false);
        };
        let Some(session) = &mut served.session else {
            let who = ("simulated", &Speaker::default());
            let refusal = match Session::open(&raw, &self.registry, &self.metrics, who, unix_ns) {
                Ok((session, welcome, delivery)) => {
                    served.quota = self.feed.quota(session.host(), AGENT_QUEUE);
                    link.reply(now_ns, Reply::Welcome(welcome), chance);
                    let begun = at_once(service::begin(&session, delivery, &self.feed, &served.quota));
                    served.session = Some(session);
                    begun.err()
                }
                Err(refusal) => Some(refusal),
            };
            let Some(refusal) = refusal else { return Ok(true) };
            link.reply(now_ns, Reply::Refusal(refusal), chance);
            self.end(id, link, unix_ns);
            return Ok(false);
        };
        let run = (session.host().to_owned(), session.instance().to_owned());
        let (batch, before) = (batch_of(&raw), self.feed.waiting());
        let stepped = at_once(service::step(session, raw, unix_ns, &self.feed, &served.quota));
        let queued = self.feed.waiting() > before;
        if let Some(batch) = &batch
            && queued
        {
            truth.accept(&run, batch.sequence, batch.windows_lost);
        }
        let replies = match stepped {
            Ok(replies) => replies,
            Err(refusal) => {
                truth.no_room += 1;
                link.reply(now_ns, Reply::Refusal(refusal), chance);
                self.end(id, link, unix_ns);
                return Ok(false);
            }
        };
        for reply in replies.into_iter().flatten() {
            if let Reply::BatchRefused(refused) = &reply {
                if !truth.clocks_were_set {
                    return Err(format!("{run:?} is honest, and was refused: {}", refused.reason));
                }
                if let Some(batch) = &batch {
                    truth.refuse(&run, batch.sequence, batch.windows_lost);
                }
            }
            link.reply(now_ns, reply, chance);
        }
        Ok(true)
    }

    fn end(&mut self, id: u64, link: &mut Link, unix_ns: u64) {
        link.close();
        if let Some(session) = self.served.remove(&id).and_then(|served| served.session) {
            session.lease().end(unix_ns);
        }
    }

    /// The analysis reads one delivery; false: there is none.
    pub(crate) fn analyse(&mut self, truth: &Truth) -> Result<bool, String> {
        let delivery = match self.log.read(Duration::ZERO) {
            Read::One(entry) => entry.delivery,
            Read::Nothing => return Ok(false),
            other => return Err(format!("the analysis reads {other:?}")),
        };
        let run = (delivery.arrival.host.clone(), delivery.arrival.agent_instance.clone());
        self.rows_are_named(&run, &delivery)?;
        let newest = self.newest.entry(run.clone()).or_default();
        match AgentMessage::decode(delivery.raw.clone()) {
            Ok(AgentMessage { body: Some(Body::Batch(batch)) }) => {
                let (sequence, begin) = (batch.sequence, batch.first_window);
                if sequence <= newest.sequence {
                    return Err(format!("{run:?}: batch {sequence} comes after {}", newest.sequence));
                }
                if begin < newest.end_window && !truth.clocks_were_set {
                    return Err(format!("{run:?}: window {begin} comes after {}", newest.end_window));
                }
                newest.sequence = sequence;
                newest.end_window = begin + u64::from(batch.window_count);
            }
            Ok(AgentMessage { body: Some(Body::Drop(drop)) }) => {
                if drop.sequence <= newest.drop_sequence {
                    let before = newest.drop_sequence;
                    return Err(format!("{run:?}: drop event {} comes after {before}", drop.sequence));
                }
                newest.drop_sequence = drop.sequence;
            }
            _ => {}
        }
        Ok(true)
    }

    /// Each row of a device has the name that its agent gave to it, and is of the run that told it.
    fn rows_are_named(&mut self, run: &RunId, delivery: &Delivery) -> Result<(), String> {
        let names = self.names.entry(run.0.clone()).or_default();
        for input in &delivery.inputs {
            match input {
                Input::Entities { devices, .. } => {
                    names.extend(devices.iter().map(|device| (device.id, device.name.clone())));
                }
                Input::Gone { gone, .. } => gone.devices.iter().for_each(|id| drop(names.remove(id))),
                Input::Window(window) => {
                    for (id, row) in window.devices.iter().filter(|(_, row)| row.bytes > 0) {
                        let (told, name) = (row.bytes.to_string(), names.get(id));
                        if name != Some(&told) || (row.bytes / RUN_MARK).to_string() != run.1 {
                            return Err(format!("{run:?}: the row of device {told} is told as {name:?}"));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What it counts of each host is what it took.
    pub(crate) fn counts(&self, truth: &Truth) -> Result<(), String> {
        for host in self.view() {
            let counted = Taken { batches: host.batches, windows_lost: host.windows_lost };
            let taken = truth.taken(&host.host);
            if counted != taken {
                return Err(format!("{} is shown with {counted:?}; it was {taken:?}", host.host));
            }
        }
        Ok(())
    }
}

fn batch_of(raw: &Bytes) -> Option<WindowBatch> {
    match AgentMessage::decode(raw.clone()) {
        Ok(AgentMessage { body: Some(Body::Batch(batch)) }) => Some(batch),
        _ => None,
    }
}

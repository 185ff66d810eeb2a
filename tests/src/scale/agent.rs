//! One simulated agent: connects, says who it is, sends its windows when they have ended, its drops at once, probes its clock, and connects
//! again when its connection went. What it did not get acknowledged it sends again, as the agent's outbox does.

use super::clock::SimClock;
use super::counted::Counted;
use super::fleet::{Fleet, Host, NAME_EVERY_S};
use super::script::WINDOW_NS;
use super::wire::{Wire, batch, connect, encode};
use anyhow::{Result, bail};
use prost::bytes::Bytes;
use rustls::ClientConfig;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tailwater_proto::v1::{AgentStatus, ClockProbe, Entities, Loss, agent_message::Body, collector_message};
use tokio::sync::watch;

/// Batches that wait to be acknowledged, as the agent's default.
const OUTBOX_MAX: usize = 600;
/// An agent reads its kernel's windows this long after their end, and some more by which it is another than its neighbour.
const DRAINED_NS: u64 = 4_000_000;
const SPREAD_NS: u64 = 8_000_000;
/// Between two probes of the clock, and two statuses.
const PROBE_NS: u64 = 1_000_000_000;
const STATUS_EVERY_PROBES: u64 = 5;
/// Pause after a connection that was not wanted, of the fleet's time.
const PAUSE: Duration = Duration::from_millis(500);
/// One in so many agents connects again each minute.
const RECONNECTS: u64 = 100;

/// What all agents of a run share.
#[derive(Debug)]
pub struct Shared {
    /// Who there is.
    pub fleet: Fleet,
    /// When it is.
    pub clock: SimClock,
    /// Where the collector is.
    pub collector: SocketAddr,
    /// What was seen.
    pub counted: Counted,
    /// Ends all.
    pub stop: watch::Receiver<bool>,
    /// Changes when all lose their connections at once.
    pub storm: watch::Receiver<u64>,
    /// Since when it is looked who is back.
    pub away: Away,
}

/// A moment at which all connections went, and which one of them it was.
#[derive(Debug, Default)]
pub struct Away(std::sync::Mutex<(u64, u64)>);

impl Away {
    /// All connections go now.
    pub fn begin(&self, unix_ns: u64) {
        let mut of = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *of = (of.0 + 1, unix_ns);
    }

    fn now(&self) -> (u64, u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Agent {
    shared: Arc<Shared>,
    number: usize,
    tls: Arc<ClientConfig>,
    /// The first window of the next batch.
    next: u64,
    sequence: u64,
    /// Sent or to be sent, and not acknowledged: number, end of its last window, bytes.
    outbox: VecDeque<(u64, u64, Bytes)>,
    probes: u64,
    newest_reply: (u64, u64),
    names_turn: u64,
    /// The last absence from which it is back.
    back_from: u64,
    storm: watch::Receiver<u64>,
}

/// What an agent does next.
enum Due {
    Batch,
    Drop,
    Probe,
}

/// Lives until the run's end.
pub async fn live(shared: Arc<Shared>, number: usize, tls: Arc<ClientConfig>) {
    let mut stop = shared.stop.clone();
    let (later, per_batch) = (shared.fleet.hosts[number].later, shared.fleet.per_batch);
    let now = shared.clock.unix_ns() / WINDOW_NS + 1;
    let first = shared.fleet.first_window();
    let next = first + later + now.saturating_sub(first + later).div_ceil(per_batch) * per_batch;
    let mut agent = Agent {
        number,
        tls,
        next,
        sequence: 0,
        outbox: VecDeque::new(),
        probes: 0,
        newest_reply: (0, 0),
        names_turn: 0,
        back_from: 0,
        storm: shared.storm.clone(),
        shared: Arc::clone(&shared),
    };
    let forever = async {
        loop {
            match agent.session().await {
                // It goes and comes again by itself.
                Ok(()) => {}
                Err(error) => {
                    shared.counted.refused.fetch_add(1, Relaxed);
                    shared.counted.because(&format!("{error:#}"));
                    tokio::time::sleep(shared.clock.long(PAUSE)).await;
                }
            }
        }
    };
    tokio::select! {
        () = forever => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

impl Agent {
    fn host(&self) -> &Host {
        &self.shared.fleet.hosts[self.number]
    }

    /// A number that is this agent's own at a moment, the same in each run.
    fn chance(&self, moment: u64) -> u64 {
        let mixed = (self.number as u64 ^ moment.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
    }

    fn second(&self, window: u64) -> u64 {
        window.saturating_sub(self.shared.fleet.first_window()) * WINDOW_NS / 1_000_000_000
    }

    /// One connection. `Ok`: the agent itself ended it.
    async fn session(&mut self) -> Result<()> {
        let hello = encode(Body::Hello(self.shared.fleet.hello(self.host())));
        let (mut wire, has) = connect(self.shared.collector, Arc::clone(&self.tls), hello).await?;
        self.shared.counted.connected.fetch_add(1, Relaxed);
        self.acknowledged(has);
        let second = self.second(self.next);
        self.names_turn = second / NAME_EVERY_S;
        self.probe(&wire).await?;
        let names = self.shared.fleet.names(self.host(), second);
        send(&wire, encode(Body::Entities(names))).await?;
        for (_, _, bytes) in self.outbox.clone() {
            send(&wire, bytes).await?;
        }
        self.serve(&mut wire).await
    }

    async fn serve(&mut self, wire: &mut Wire) -> Result<()> {
        let clock = self.shared.clock;
        let mut drops: VecDeque<_> = VecDeque::new();
        let mut looked_at = 0;
        let mut probe_at = clock.unix_ns() + PROBE_NS;
        let drained = DRAINED_NS + self.chance(0) % SPREAD_NS;
        loop {
            // The drops of a batch's time are told while it lasts.
            if looked_at < self.next {
                looked_at = self.next;
                drops.extend(self.shared.fleet.drops(self.host(), self.next));
            }
            let batch_at = (self.next + self.shared.fleet.per_batch) * WINDOW_NS + drained;
            let drop_at = drops
                .front()
                .map_or(u64::MAX, |d: &tailwater_proto::v1::DropEvent| d.sent_unix_ns.max(d.unix_ns));
            let (at, due) = [(drop_at, Due::Drop), (batch_at, Due::Batch), (probe_at, Due::Probe)]
                .into_iter()
                .min_by_key(|(at, _)| *at)
                .unwrap_or((batch_at, Due::Batch));
            tokio::select! {
                _ = self.storm.changed() => return Ok(()),
                heard = wire.from.message() => match heard? {
                    Some(message) => self.hear(message.body)?,
                    None => bail!("the collector closed the stream"),
                },
                () = tokio::time::sleep(clock.until(at)) => match due {
                    Due::Drop => {
                        if let Some(mut drop) = drops.pop_front() {
                            drop.sent_unix_ns = clock.unix_ns();
                            drop.read_unix_ns = drop.read_unix_ns.min(drop.sent_unix_ns);
                            send(wire, encode(Body::Drop(drop))).await?;
                        }
                    }
                    Due::Batch => self.batch(wire, batch_at).await?,
                    Due::Probe => {
                        probe_at = clock.unix_ns() + PROBE_NS;
                        self.probe(wire).await?;
                        if self.probes.is_multiple_of(STATUS_EVERY_PROBES) {
                            self.status(wire).await?;
                        }
                        // One in a hundred each minute: once a second, one in 6,000.
                        if self.chance(self.probes).is_multiple_of(RECONNECTS * 60) {
                            return Ok(());
                        }
                    }
                },
            }
        }
    }

    async fn batch(&mut self, wire: &Wire, due: u64) -> Result<()> {
        let turn = self.second(self.next) / NAME_EVERY_S;
        if turn != self.names_turn {
            self.names_turn = turn;
            let passing = self.shared.fleet.passing(self.host(), turn);
            if passing != Entities::default() {
                send(wire, encode(Body::Entities(passing))).await?;
            }
        }
        self.sequence += 1;
        let rest = self.shared.fleet.batch(self.host(), self.next);
        let bytes = batch(self.sequence, self.next, &rest);
        self.next += self.shared.fleet.per_batch;
        if self.outbox.len() >= OUTBOX_MAX {
            self.outbox.pop_front();
            self.shared.counted.lost.fetch_add(1, Relaxed);
        }
        self.outbox.push_back((self.sequence, self.next * WINDOW_NS, bytes.clone()));
        self.shared.counted.batches.fetch_add(1, Relaxed);
        self.shared.counted.late.add(self.shared.clock.unix_ns().saturating_sub(due));
        send(wire, bytes).await
    }

    async fn probe(&mut self, wire: &Wire) -> Result<()> {
        self.probes += 1;
        let (reply_id, reply_received_unix_ns) = self.newest_reply;
        let agent_unix_ns = self.shared.clock.unix_ns();
        let probe = ClockProbe {
            id: self.probes,
            agent_unix_ns,
            reply_id,
            reply_received_unix_ns,
            epoch_offset_ns: 0,
        };
        send(wire, encode(Body::ClockProbe(probe))).await
    }

    async fn status(&self, wire: &Wire) -> Result<()> {
        let status = AgentStatus {
            cpu_ratio: 0.005,
            kernel_cpu_ratio: Some(0.003),
            resident_bytes: 30 << 20,
            losses: vec![Loss { what: "net_connections_untracked".to_owned(), count: 0 }],
            ..AgentStatus::default()
        };
        send(wire, encode(Body::Status(status))).await
    }

    fn hear(&mut self, body: Option<collector_message::Body>) -> Result<()> {
        use collector_message::Body as Said;
        match body {
            Some(Said::Ack(ack)) => self.acknowledged(ack.sequence),
            Some(Said::ClockReply(reply)) => self.newest_reply = (reply.id, self.shared.clock.unix_ns()),
            Some(Said::BatchRefused(refused)) => {
                self.shared.counted.batches_refused.fetch_add(1, Relaxed);
                self.shared.counted.because(&format!("batch: {}", refused.reason));
                self.outbox.retain(|(sequence, ..)| *sequence != refused.sequence);
            }
            Some(Said::Refusal(refusal)) => bail!("refused: {}", refusal.reason),
            _ => {}
        }
        Ok(())
    }

    fn acknowledged(&mut self, sequence: u64) {
        let now = self.shared.clock.unix_ns();
        while let Some((_, end, _)) = self.outbox.pop_front_if(|(number, ..)| *number <= sequence) {
            self.shared.counted.acknowledged.fetch_add(1, Relaxed);
            self.shared.counted.acknowledgement.add(now.saturating_sub(end));
            let (number, since) = self.shared.away.now();
            // What it measured after its connection went is there: it is back, and what it kept meanwhile came before.
            if number > self.back_from && end > since {
                self.back_from = number;
                self.shared.counted.back(now.saturating_sub(since));
            }
        }
    }
}

async fn send(wire: &Wire, bytes: Bytes) -> Result<()> {
    match wire.to.send(bytes).await {
        Ok(()) => Ok(()),
        Err(_) => bail!("the connection ended"),
    }
}

//! One agent's stream as a state machine: a message in, replies and perhaps a delivery to the pipeline out. Owns negotiation,
//! idempotence by sequence, and the reasons for refusals. Knows no socket and no clock.

use crate::counters::Metrics;
use crate::ingest::convert::{self, ConvertError};
use crate::ingest::limits;
use crate::ingest::offset::{Offset, Probe};
use crate::ingest::registry::{Lease, Occupied, Registry, Slot};
use crate::ingest::sanity;
use crate::ingest::tls::Speaker;
use crate::moments::Moments;
use prost::Message;
use std::sync::Arc;
use tailwater_model::window::{
    DeviceWindow, EdgeWindow, HostWindow, Input, KernelCount, ListenerWindow, Meeting, WINDOW_NS,
    WaitingLookups, WorkloadWindow, blockings_bytes, code_bytes, locked_bytes, slow_bytes,
};
use tailwater_proto::v1::{
    Ack, AgentMessage, Arrival, BatchRefused, ClockReply, Hello, Refusal, Welcome,
    agent_message::Body as Said, collector_message::Body as Reply,
};
use tailwater_proto::{PROTOCOL_MAX, PROTOCOL_MIN};
use tonic::codegen::Bytes;

/// What the pipeline gets of one message, and what a recording keeps of it.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Without its message, which is in `raw`.
    pub arrival: Arrival,
    /// The message as it came.
    pub raw: Bytes,
    /// Hello or Entities: what a recording that begins later must begin with.
    pub names: Option<Said>,
    /// For the pipeline.
    pub inputs: Vec<Input>,
    /// Of a drop event: when it was where so far.
    pub moments: Option<Moments>,
}

impl Delivery {
    /// About what it takes in memory, its rows above all.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.raw.len() + self.inputs.iter().map(weight).sum::<usize>()
    }
}

fn weight(input: &Input) -> usize {
    /// A name with its texts is seldom longer.
    const NAME: usize = 256;
    let Input::Window(window) = input else {
        return match input {
            Input::Entities { workloads, listeners, edges, devices, .. } => {
                (workloads.len() + listeners.len() + edges.len() + devices.len()) * NAME
            }
            Input::States(states) => {
                NAME + states.listeners.iter().map(|of| 32 + of.cells.len() * 24).sum::<usize>()
            }
            Input::Shares(shares) => NAME + shares.neighbours.len() * NAME,
            _ => NAME,
        };
    };
    let rows = window.workloads.len() * size_of::<WorkloadWindow>()
        + window.listeners.len() * size_of::<ListenerWindow>()
        + window.edges.len() * size_of::<EdgeWindow>()
        + window.devices.len() * size_of::<DeviceWindow>();
    size_of::<HostWindow>()
        + rows
        + window.responses.bytes()
        + (window.culprits.len() + window.blocked_loops.len()) * NAME
        + window.meetings.len() * size_of::<Meeting>()
        + window.kernel_counts.len() * size_of::<KernelCount>()
        + blockings_bytes(&window.blockings)
        + locked_bytes(&window.locked_threads)
        + window.waiting_lookups.len() * size_of::<WaitingLookups>()
        + slow_bytes(&window.slow_requests)
        + code_bytes(&window.code_paths)
}

/// What follows from a message.
#[derive(Debug, Default)]
pub struct Reaction {
    /// For the pipeline.
    pub delivery: Option<Delivery>,
    /// To say at once.
    pub reply: Option<Reply>,
    /// The batch to commit and acknowledge once the delivery is queued.
    pub commit: Option<Taken>,
}

/// A batch whose windows are for the pipeline: taken once they are queued. One that finds no room is sent again, and counts then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    sequence: u64,
    /// Windows that it told as lost.
    windows_lost: u64,
    /// When its last window ended, Unix ns on the collector's clock.
    end_unix_ns: u64,
}

/// An accepted stream.
#[derive(Debug)]
pub struct Session {
    lease: Lease,
    host: String,
    instance: String,
    metrics: Arc<Metrics>,
}

/// What is said to a stream whose host another one speaks for.
pub(super) const REPLACED: &str = "a newer stream of this boot speaks for this host now";

impl Drop for Session {
    /// A task ends its lease when its stream ends. Where the task itself ended, by a panic, its host would count as connected for ever, and be
    /// refused to others. Nobody knows since when it is gone: not before its stream began.
    fn drop(&mut self) {
        let since_unix_ns = self.lease.slot().since_unix_ns;
        self.lease.end(since_unix_ns);
    }
}

fn refusal(reason: impl Into<String>, retry: bool) -> Refusal {
    Refusal { reason: reason.into(), retry, join: false }
}

impl Session {
    /// Judges the first message. Refusals go back to the agent word for word.
    pub fn open(
        raw: &Bytes,
        registry: &Registry,
        metrics: &Arc<Metrics>,
        (peer, speaker): (&str, &Speaker),
        now_unix_ns: u64,
    ) -> Result<(Self, Welcome, Delivery), Refusal> {
        let mut hello = match AgentMessage::decode(raw.clone()) {
            Ok(AgentMessage { body: Some(Said::Hello(hello)) }) => hello,
            Ok(_) => return Err(refusal("the first message must be a Hello", false)),
            Err(e) => return Err(refusal(format!("the first message does not decode: {e}"), false)),
        };
        let (min, max) = (hello.protocol_min, hello.protocol_max);
        if min > PROTOCOL_MAX || max < PROTOCOL_MIN || min > max {
            return Err(refusal(
                format!(
                    "this agent speaks protocol {min} to {max}, the collector {PROTOCOL_MIN} to {PROTOCOL_MAX}: upgrade the older of the two"
                ),
                false,
            ));
        }
        let named =
            !hello.host.is_empty() && hello.host.len() <= 253 && !hello.host.contains(char::is_control);
        if !named || hello.agent_instance.is_empty() || hello.agent_instance.len() > 256 {
            return Err(refusal(
                "Hello needs a host name of 1 to 253 characters and an agent instance",
                false,
            ));
        }
        if hello.window_ns != WINDOW_NS {
            let theirs = hello.window_ns;
            return Err(refusal(
                format!("this agent cuts windows of {theirs} ns, the collector works with {WINDOW_NS}"),
                false,
            ));
        }
        if let Err(excess) = limits::hello(&hello) {
            metrics.limits.reached(excess.kind(), 1, now_unix_ns);
            return Err(refusal(format!("Hello: {excess}"), false));
        }
        shorten(&mut hello, metrics, now_unix_ns);
        // Before it takes the place of who speaks for this host now: whoever is refused must not have sent that away.
        convert::addresses(&hello).map_err(|e| refusal(format!("Hello: {e}"), false))?;
        speaker
            .may_speak_for(&hello.host)
            .map_err(|why| Refusal { join: speaker.is_stranger(), ..refusal(why, true) })?;
        let lease = registry.take(&hello, peer, now_unix_ns).map_err(|e| {
            match e {
                Occupied::Agents { .. } => metrics.limits.reached("agents", 1, now_unix_ns),
                Occupied::Hosts => metrics.limits.reached("host_names", 1, now_unix_ns),
                Occupied::Other { .. } | Occupied::Later { .. } => {}
            }
            // A run of before that still lives comes back: the later one may be dead already, as after a snapshot or where a new pod crashed.
            refusal(e.to_string(), true)
        })?;
        let (host, instance) = (hello.host.clone(), hello.agent_instance.clone());
        let session = Self { lease, host, instance, metrics: Arc::clone(metrics) };
        let (last_sequence, converted) = {
            let Some(mut slot) = session.lease.own_slot() else {
                return Err(refusal(REPLACED, true));
            };
            (slot.proof, slot.certificate_unix_s) = (speaker.proof(), speaker.life_unix_s());
            let (last_sequence, offset) = (slot.last_sequence, slot.offset.now());
            let hello = Said::Hello(hello);
            (last_sequence, session.convert_by(&mut slot, hello, raw.clone(), offset, now_unix_ns))
        };
        let delivery = converted.map_err(|e| {
            // Its stream ends here, and not when its task does.
            session.lease.end(now_unix_ns);
            refusal(format!("Hello: {e}"), false)
        })?;
        let welcome = Welcome {
            protocol: max.min(PROTOCOL_MAX),
            collector_version: env!("CARGO_PKG_VERSION").to_owned(),
            last_sequence,
        };
        Ok((session, welcome, delivery))
    }

    /// The host's name.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Which run of its agent speaks.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The right to speak for it.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Takes one message that came at `now_unix_ns`. Never ends the stream: what is wrong is refused by itself.
    pub fn message(&mut self, raw: Bytes, now_unix_ns: u64) -> Reaction {
        self.metrics.messages.inc();
        let said = match AgentMessage::decode(raw.clone()) {
            Ok(AgentMessage { body: Some(said) }) => said,
            // A message of a later version.
            Ok(AgentMessage { body: None }) => return Reaction::default(),
            Err(e) => {
                let sequence = salvage_sequence(&raw).unwrap_or(0);
                return self.refuse(sequence, "undecodable", &format!("the message does not decode: {e}"));
            }
        };
        let (now_offset, offset, answered) = {
            // Here as below: where another stream has taken the host over, what is in its slot is not of this one, nor for this one to change.
            let Some(mut slot) = self.lease.own_slot() else { return Reaction::default() };
            let now_offset = slot.offset.now();
            // For the moment that a message is about: a batch that waited for the connection is older than the newest probe.
            let offset = match &said {
                Said::Batch(batch) => {
                    let end = batch.first_window.saturating_add(batch.window_count.into());
                    slot.offset.at(end.saturating_mul(WINDOW_NS))
                }
                Said::Drop(drop) => slot.offset.at(drop.unix_ns),
                _ => now_offset,
            };
            let answered = !matches!(said, Said::ClockProbe(_)) || slot.probes.take(now_unix_ns);
            (now_offset, offset, answered)
        };
        let agent_now = now_unix_ns.saturating_add_signed(now_offset.offset_ns.saturating_neg());
        match said {
            Said::ClockProbe(_) if !answered => {
                self.metrics.limits.reached("clock_probes", 1, now_unix_ns);
                Reaction::default()
            }
            Said::ClockProbe(probe) => {
                let times = Probe {
                    id: probe.id,
                    agent_unix_ns: probe.agent_unix_ns,
                    reply_id: probe.reply_id,
                    reply_received_unix_ns: probe.reply_received_unix_ns,
                    epoch_offset_ns: probe.epoch_offset_ns,
                };
                if let Some(mut slot) = self.lease.own_slot() {
                    slot.offset.probe(&times, now_unix_ns);
                }
                let reply = ClockReply {
                    id: probe.id,
                    agent_unix_ns: probe.agent_unix_ns,
                    collector_receive_unix_ns: now_unix_ns,
                    collector_send_unix_ns: now_unix_ns,
                };
                Reaction { reply: Some(Reply::ClockReply(reply)), ..Reaction::default() }
            }
            Said::Status(status) => {
                if let Err(excess) = limits::status(&status) {
                    self.metrics.limits.reached(excess.kind(), 1, now_unix_ns);
                    return self.refuse(0, "beyond_limit", &format!("status: {excess}"));
                }
                if let Some(mut slot) = self.lease.own_slot() {
                    slot.offset.report(status.clock_offset_ns, status.clock_error_ns);
                    slot.status = status;
                }
                Reaction::default()
            }
            Said::Batch(batch) => {
                let sequence = batch.sequence;
                // Another run that took the host over counts anew: by its number this batch would be new, or taken.
                let Some(last_sequence) = self.lease.own_slot().map(|slot| slot.last_sequence) else {
                    return Reaction::default();
                };
                if sequence <= last_sequence {
                    self.metrics.duplicates.inc();
                    let ack = Ack { sequence: last_sequence };
                    return Reaction { reply: Some(Reply::Ack(ack)), ..Reaction::default() };
                }
                if let Err(absurd) = sanity::check_time(&batch, agent_now) {
                    return self.refuse(sequence, absurd.kind(), &absurd.to_string());
                }
                let end =
                    batch.first_window.saturating_add(batch.window_count.into()).saturating_mul(WINDOW_NS);
                let windows_lost = batch.windows_lost;
                match self.convert(Said::Batch(batch), raw, offset, now_unix_ns) {
                    Ok(Some(delivery)) => {
                        let end_unix_ns = end.saturating_add_signed(offset.offset_ns);
                        let taken = Taken { sequence, windows_lost, end_unix_ns };
                        Reaction { delivery: Some(delivery), reply: None, commit: Some(taken) }
                    }
                    Ok(None) => Reaction::default(),
                    Err(e) => self.refuse(sequence, e.kind(), &e.to_string()),
                }
            }
            Said::Drop(drop) => {
                if let Err(absurd) = sanity::check_drop(&drop, agent_now) {
                    return self.refuse(0, absurd.kind(), &format!("drop event: {absurd}"));
                }
                self.metrics.drop_events.inc();
                let here = |agent_unix_ns: u64| match agent_unix_ns {
                    0 => 0,
                    at => at.saturating_add_signed(offset.offset_ns),
                };
                let moments = Moments {
                    dropped: here(drop.unix_ns),
                    read: here(drop.read_unix_ns),
                    sent: here(drop.sent_unix_ns),
                    received: now_unix_ns,
                    ..Moments::default()
                };
                let mut reaction = self.deliver(Said::Drop(drop), raw, offset, now_unix_ns);
                if let Some(delivery) = &mut reaction.delivery {
                    delivery.moments = Some(moments);
                }
                reaction
            }
            Said::Hello(hello) if hello.host != self.host || hello.agent_instance != self.instance => self
                .refuse(
                    0,
                    "other_identity",
                    "a Hello with another host or instance inside a stream: open a new stream",
                ),
            Said::Hello(mut hello) => {
                shorten(&mut hello, &self.metrics, now_unix_ns);
                if limits::hello(&hello).is_ok()
                    && let Some(mut slot) = self.lease.own_slot()
                {
                    slot.hello = hello.clone();
                }
                self.deliver(Said::Hello(hello), raw, offset, now_unix_ns)
            }
            Said::Entities(entities) => self.deliver(Said::Entities(entities), raw, offset, now_unix_ns),
        }
    }

    /// The delivery is queued: what it carried will not be taken again.
    pub fn commit(&self, taken: Taken) -> Reply {
        self.commit_to(&mut self.lease.slot(), taken)
    }

    /// The same, by whoever holds the host's slot.
    pub fn commit_to(&self, slot: &mut Slot, taken: Taken) -> Reply {
        self.metrics.batches.inc();
        slot.batches += 1;
        slot.windows_lost = slot.windows_lost.saturating_add(taken.windows_lost);
        slot.newest_window_end_unix_ns = slot.newest_window_end_unix_ns.max(taken.end_unix_ns);
        slot.raise(&self.instance, taken.sequence);
        Reply::Ack(Ack { sequence: slot.last_sequence })
    }

    fn deliver(&mut self, said: Said, raw: Bytes, offset: Offset, now_unix_ns: u64) -> Reaction {
        match self.convert(said, raw, offset, now_unix_ns) {
            Ok(delivery) => Reaction { delivery, ..Reaction::default() },
            Err(e) => self.refuse(0, e.kind(), &e.to_string()),
        }
    }

    /// `None`: another stream speaks for the host, and the converter is that one's.
    fn convert(
        &self,
        said: Said,
        raw: Bytes,
        offset: Offset,
        now_unix_ns: u64,
    ) -> Result<Option<Delivery>, ConvertError> {
        let Some(mut slot) = self.lease.own_slot() else { return Ok(None) };
        self.convert_by(&mut slot, said, raw, offset, now_unix_ns).map(Some)
    }

    /// The same, by whoever holds the host's slot.
    fn convert_by(
        &self,
        slot: &mut Slot,
        said: Said,
        raw: Bytes,
        offset: Offset,
        now_unix_ns: u64,
    ) -> Result<Delivery, ConvertError> {
        let converter = &mut slot.converter;
        let before = converter.rows_refused();
        let inputs = converter.message(&said, offset.offset_ns, offset.error_ns);
        if let Err(ConvertError::Excess(excess)) = &inputs {
            self.metrics.limits.reached(excess.kind(), 1, now_unix_ns);
        }
        let refused = converter.rows_refused().saturating_sub(before);
        self.metrics.limits.reached("entities", refused, now_unix_ns);
        let (inputs, window_shift) = (inputs?, converter.window_shift());
        let arrival = Arrival {
            host: self.host.clone(),
            agent_instance: self.instance.clone(),
            arrival_unix_ns: now_unix_ns,
            clock_offset_ns: offset.offset_ns,
            clock_error_ns: offset.error_ns,
            message: None,
            window_shift: Some(window_shift),
        };
        let names = matches!(said, Said::Hello(_) | Said::Entities(_)).then_some(said);
        Ok(Delivery { arrival, raw, names, inputs, moments: None })
    }

    /// Refuses one batch (or, with sequence 0, another message) and logs the first of each kind.
    fn refuse(&self, sequence: u64, kind: &'static str, reason: &str) -> Reaction {
        // Its agent hears nothing more on this stream, and says it again where it speaks now: there it is judged.
        let Some(mut slot) = self.lease.own_slot() else { return Reaction::default() };
        self.metrics.batches_refused.inc(kind);
        slot.batches_refused += 1;
        // It will never be taken: asking for it again would be in vain.
        slot.raise(&self.instance, sequence);
        if !slot.logged.contains(&kind) {
            slot.logged.push(kind);
            tracing::warn!(
                host = %self.host, instance = %self.instance, sequence, kind,
                "refused: {reason} (further ones of this kind from this agent are counted, not logged)"
            );
        }
        let refused = BatchRefused { sequence, reason: reason.to_owned() };
        Reaction { reply: Some(Reply::BatchRefused(refused)), ..Reaction::default() }
    }
}

/// Leaves out addresses beyond the limit before the Hello is kept anywhere.
fn shorten(hello: &mut Hello, metrics: &Metrics, now_unix_ns: u64) {
    let more = hello.addresses.len().saturating_sub(limits::ADDRESSES_MAX);
    metrics.limits.reached("addresses", more as u64, now_unix_ns);
    hello.addresses.truncate(limits::ADDRESSES_MAX);
}

/// The sequence of a batch whose message does not decode, if its beginning is whole.
fn salvage_sequence(raw: &[u8]) -> Option<u64> {
    use prost::encoding::{WireType, decode_key, decode_varint};
    let mut rest = raw;
    let (tag, wire) = decode_key(&mut rest).ok()?;
    if tag != 3 || wire != WireType::LengthDelimited {
        return None; // not AgentMessage.batch
    }
    decode_varint(&mut rest).ok()?;
    let (tag, wire) = decode_key(&mut rest).ok()?;
    (tag == 1 && wire == WireType::Varint).then(|| decode_varint(&mut rest).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_proto::v1::{AgentStatus, WindowBatch};

    const NOW_UNIX_NS: u64 = 1_794_000_000_000_000_000;

    fn raw(said: Said) -> Bytes {
        AgentMessage { body: Some(said) }.encode_to_vec().into()
    }

    /// What follows of a Hello of web-1 with this boot and address.
    fn open(registry: &Registry, boot: &str, address: &[u8]) -> Result<Session, Refusal> {
        let hello = Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            host: "web-1".into(),
            boot_id: boot.into(),
            agent_instance: boot.into(),
            window_ns: WINDOW_NS,
            addresses: vec![address.to_vec()],
            ..Hello::default()
        };
        let (first, metrics) = (raw(Said::Hello(hello)), Arc::default());
        let opened = Session::open(&first, registry, &metrics, ("p", &Speaker::default()), NOW_UNIX_NS);
        opened.map(|(session, ..)| session)
    }

    #[test]
    fn a_hello_that_is_refused_leaves_its_host_to_whoever_has_it() {
        let registry = Registry::new(1);
        let refused = open(&registry, "boot-1", &[10, 0, 0]).unwrap_err();
        assert!(!refused.retry && refused.reason.contains("an address of 3 bytes"), "{refused:?}");
        assert!(registry.view().is_empty(), "it has no name here");
        let live = open(&registry, "boot-1", &[10, 0, 0, 1]).unwrap();
        let refused = open(&registry, "boot-1", &[10, 0, 0]).unwrap_err();
        assert!(!refused.retry, "{refused:?}");
        assert!(registry.view()[0].connected && !live.lease().replaced.is_cancelled());
    }

    #[test]
    fn a_session_that_is_gone_without_a_word_leaves_its_host_to_others_and_takes_it_from_nobody() {
        let registry = Registry::new(1);
        let first = open(&registry, "boot-1", &[10, 0, 0, 1]).unwrap();
        let second = open(&registry, "boot-1", &[10, 0, 0, 1]).unwrap();
        drop(first);
        assert!(registry.view()[0].connected, "another stream speaks for it");
        drop(second);
        let view = &registry.view()[0];
        assert_eq!((view.connected, view.since_unix_ns), (false, NOW_UNIX_NS));
        let other = open(&registry, "boot-2", &[10, 0, 0, 1]);
        assert!(other.is_ok(), "another machine of that name: {other:?}");
    }

    #[test]
    fn a_session_that_was_ended_keeps_the_moment_at_which_it_was() {
        let registry = Registry::new(1);
        let session = open(&registry, "boot-1", &[10, 0, 0, 1]).unwrap();
        session.lease().end(NOW_UNIX_NS + 5);
        drop(session);
        assert_eq!(registry.view()[0].since_unix_ns, NOW_UNIX_NS + 5);
    }

    #[test]
    fn a_batch_that_finds_no_room_and_is_sent_again_counts_once() {
        let registry = Registry::new(1);
        let mut session = open(&registry, "boot-1", &[10, 0, 0, 1]).unwrap();
        let batch = WindowBatch {
            sequence: 1,
            first_window: NOW_UNIX_NS / WINDOW_NS - 2,
            window_count: 2,
            windows_lost: 5,
            ..WindowBatch::default()
        };
        let said = raw(Said::Batch(batch));
        assert!(session.message(said.clone(), NOW_UNIX_NS).commit.is_some(), "and no room for it");
        let seen = |registry: &Registry| (registry.view()[0].batches, registry.view()[0].windows_lost);
        assert_eq!(seen(&registry), (0, 0), "nothing of it is taken");
        let taken = session.message(said.clone(), NOW_UNIX_NS).commit.unwrap();
        session.commit(taken);
        assert_eq!(seen(&registry), (1, 5));
        assert_eq!(session.message(said, NOW_UNIX_NS).commit, None, "a duplicate");
        assert_eq!((seen(&registry), session.metrics.batches.get()), ((1, 5), 1));
    }

    #[test]
    fn a_stream_that_is_replaced_reads_and_writes_nothing_of_who_replaced_it() {
        let registry = Registry::new(1);
        let mut old = open(&registry, "boot-1", &[10, 0, 0, 1]).unwrap();
        let new = open(&registry, "boot-1", &[10, 0, 0, 1]).unwrap();
        new.lease().slot().last_sequence = 1;
        let batch = |sequence| WindowBatch {
            sequence,
            first_window: NOW_UNIX_NS / WINDOW_NS - 2,
            window_count: 2,
            ..WindowBatch::default()
        };
        let hello =
            Hello { host: "web-1".into(), agent_instance: "boot-1".into(), cpus: 7, ..Hello::default() };
        let status = AgentStatus { cpu_ratio: 0.5, ..AgentStatus::default() };
        let late = [Said::Batch(batch(1)), Said::Batch(batch(2)), Said::Hello(hello), Said::Status(status)];
        for said in late {
            let reaction = old.message(raw(said), NOW_UNIX_NS);
            let nothing =
                reaction.delivery.is_none() && reaction.reply.is_none() && reaction.commit.is_none();
            assert!(nothing, "{reaction:?}");
        }
        let shown = &registry.view()[0];
        assert_eq!((shown.cpus, shown.cpu_ratio, old.metrics.duplicates.get()), (0, 0.0, 0));
        assert!(
            old.message(Bytes::from_static(&[0xff; 4]), NOW_UNIX_NS).reply.is_none(),
            "nor is it refused"
        );
        assert_eq!(registry.view()[0].batches_refused, 0);
    }

    #[test]
    fn the_sequence_of_a_damaged_batch_is_found() {
        let batch = WindowBatch { sequence: 300, first_window: 1, window_count: 1, ..WindowBatch::default() };
        let mut raw = AgentMessage { body: Some(Said::Batch(batch)) }.encode_to_vec();
        raw.pop();
        assert!(AgentMessage::decode(raw.as_slice()).is_err());
        assert_eq!(salvage_sequence(&raw), Some(300));
        assert_eq!(salvage_sequence(&[0xff; 4]), None);
    }
}

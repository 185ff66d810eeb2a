//! Collectors of other versions: what one of an earlier commit answered is understood, nothing is lost by it, and what a later one adds is
//! passed over. The other way, agents of other versions, is the collector's test of the same name.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

#[path = "../../proto/tests/later/mod.rs"]
mod later;
mod support;

use later::with_unknown;
use prost::Message;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{Collector, Connection, First};
use tailwater_agent::clock::Clock;
use tailwater_agent::stream::heard::Heard;
use tailwater_agent::stream::outbox::Outbox;
use tailwater_agent::stream::{Control, Stream};
use tailwater_proto::v1::telemetry_client::TelemetryClient;
use tailwater_proto::v1::{
    self, AgentMessage, CollectorMessage, agent_message::Body, collector_message::Body as Said,
};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// What the collector of 95d7ffc answers, before the schema had time in state, sizes of pools, late answers, Unix sockets, connections with
/// several exchanges, blocked loops and enrolment: two connections, the first of which breaks when three more batches have come than are
/// acknowledged. Encoded field by field by that commit's schema, in the order and with the sequences of its `session.rs`; not recorded of its
/// program, which the ignored test below does. One message after the other with its length.
const EARLIER: &str = "tests/recorded/collector-95d7ffc.answers";
/// What that version has: `AgentMessage`'s bodies.
const KINDS_OF_MESSAGES: [u32; 6] = [1, 2, 3, 4, 5, 6];

struct Rest;

impl Control for Rest {
    fn status(&self) -> v1::AgentStatus {
        v1::AgentStatus::default()
    }
    fn configure(&self, configuration: &v1::Configuration) {
        panic!("an earlier collector never sent one: {configuration:?}");
    }
}

/// The answers of each connection.
fn earlier() -> Vec<Vec<Said>> {
    let bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(EARLIER)).unwrap();
    let mut left = &bytes[..];
    let mut connections: Vec<Vec<Said>> = Vec::new();
    while !left.is_empty() {
        let before = left;
        let message = CollectorMessage::decode_length_delimited(&mut left).unwrap();
        let raw = &before[..before.len() - left.len()];
        assert_eq!(
            message.encode_length_delimited_to_vec(),
            raw,
            "there is nothing in it that is not understood"
        );
        let said = message.body.expect("a kind that is known");
        if matches!(said, Said::Welcome(_)) {
            connections.push(Vec::new());
        }
        connections.last_mut().expect("it begins with a welcome").push(said);
    }
    connections
}

/// What arrived of an agent's messages.
#[derive(Default)]
struct Arrived {
    batches: BTreeSet<u64>,
    probed: bool,
}

impl Arrived {
    fn take(&mut self, message: &AgentMessage) {
        let bytes = message.encode_to_vec();
        let (key, _) = prost::encoding::decode_key(&mut &bytes[..]).unwrap();
        assert!(KINDS_OF_MESSAGES.contains(&key), "an earlier collector knows no message {key}");
        match message.body.as_ref().unwrap() {
            Body::Batch(batch) => assert!(self.batches.insert(batch.sequence), "each once on a connection"),
            Body::ClockProbe(_) => self.probed = true,
            _ => {}
        }
    }

    async fn wait(&mut self, connection: &mut Connection, until: impl Fn(&Self) -> bool) {
        while !until(self) {
            let next = tokio::time::timeout(Duration::from_secs(20), connection.from_agent.recv()).await;
            self.take(&next.expect("a message within 20 s").expect("the agent goes on"));
        }
    }
}

#[tokio::test]
async fn a_collector_of_an_earlier_version_is_understood_and_has_all_in_the_end() {
    let connections = earlier();
    let [first, second] = &connections[..] else { panic!("{} connections", connections.len()) };
    let acks = |said: &[Said]| {
        let ack = |said: &Said| match said {
            Said::Ack(ack) => Some(ack.sequence),
            _ => None,
        };
        said.iter().filter_map(ack).collect::<Vec<_>>()
    };
    let batches = *acks(second).last().unwrap();
    let Said::Welcome(again) = &second[0] else { panic!("{:?}", second[0]) };
    assert!(again.last_sequence > 0 && acks(first).len() > 20 && acks(second).len() > 20, "{again:?}");
    assert!(acks(first).last().unwrap() <= &again.last_sequence, "what it acknowledged it has");

    let outbox = Arc::new(Outbox::new(10_000));
    outbox.set_hello(v1::Hello { host: "web-1".to_owned(), ..v1::Hello::default() });
    for _ in 0..batches {
        outbox.push(v1::WindowBatch { window_count: 2, ..v1::WindowBatch::default() }, 0);
    }
    let stop = CancellationToken::new();
    let mut all = BTreeSet::new();
    let mut task = None;
    let mut at = "127.0.0.1:0".to_owned();
    for said in [first, second] {
        let Said::Welcome(welcome) = &said[0] else { panic!("{:?}", said[0]) };
        // The same port: the agent comes back to it by itself.
        let mut collector = Collector::plain(&at, First::Nothing).await;
        at = collector.address.to_string();
        task.get_or_insert_with(|| {
            let stream = Stream {
                url: format!("http://{at}"),
                tls: None,
                outbox: outbox.clone(),
                control: Arc::new(Rest),
                clock: Clock::new(0),
            };
            tokio::spawn(stream.run(stop.clone()))
        });
        let mut connection = collector.connection().await;
        let mut here = Arrived::default();
        for said in said {
            match said {
                Said::Welcome(_) => {}
                Said::Ack(ack) => here.wait(&mut connection, |a| a.batches.contains(&ack.sequence)).await,
                // Its times are those of the recording.
                Said::ClockReply(_) => here.wait(&mut connection, |a| a.probed).await,
                other => panic!("an earlier collector says {other:?}"),
            }
            connection.say(said.clone()).await;
        }
        // What that collector told afterwards to have, it got before the connection broke.
        if said[0] == first[0] {
            here.wait(&mut connection, |a| a.batches.contains(&again.last_sequence)).await;
        }
        let begin = here.batches.first().copied();
        assert_eq!(begin, Some(welcome.last_sequence + 1), "and from where that collector is");
        all.extend(here.batches);
        if said[0] == second[0] {
            outbox.close();
            stop.cancel();
            tokio::time::timeout(Duration::from_secs(10), task.take().unwrap()).await.unwrap().unwrap();
        }
    }
    let arrived: Vec<u64> = all.into_iter().collect();
    assert_eq!(arrived, (1..=batches).collect::<Vec<_>>(), "all that was measured");
    let totals = outbox.totals();
    assert!(outbox.finished(), "{totals:?}");
    assert_eq!((totals.batches_dropped, totals.batches_refused, totals.waiting_batches), (0, 0, 0));
}

#[test]
fn what_a_later_collector_adds_is_passed_over_and_the_rest_is_taken() {
    let outbox = Outbox::new(10);
    (0..2).for_each(|_| outbox.push(v1::WindowBatch { window_count: 2, ..v1::WindowBatch::default() }, 0));
    let mut heard = Heard::new("unix:///c", true, &outbox, &Rest);
    let mut later = |body: Option<Said>, first: bool| {
        let raw = with_unknown(CollectorMessage { body }.encode_to_vec());
        let message = CollectorMessage::decode(&raw[..]).unwrap();
        if first { heard.first(message) } else { heard.then(message, 0) }
    };
    let welcome = v1::Welcome { protocol: 1, collector_version: "9.0".to_owned(), last_sequence: 0 };
    later(Some(Said::Welcome(welcome)), true).unwrap();
    (0..2).for_each(|_| drop(outbox.next()));
    // A message of a kind that has no name here, and one that has.
    later(None, false).unwrap();
    later(Some(Said::Ack(v1::Ack { sequence: 1 })), false).unwrap();
    assert_eq!(outbox.totals().waiting_batches, 1);
}

/// Stands between an agent at `TAILWATER_RELAY_LISTEN` and a collector of another version at `TAILWATER_RELAY_TO` (both HOST:PORT), and
/// writes what the collector answers to `TAILWATER_RELAY_FILE`: of a first connection, which breaks after 40 acknowledgements, and of a
/// second one, which ends after 60.
#[tokio::test]
#[ignore = "records"]
async fn what_a_collector_answers_is_recorded() {
    let of = |name: &str| std::env::var(format!("TAILWATER_RELAY_{name}")).expect("where");
    let mut file = std::fs::File::create(of("FILE")).unwrap();
    for acks in [40, 60] {
        let mut agents = Collector::plain(&of("LISTEN"), First::Nothing).await;
        let agent = tokio::time::timeout(Duration::from_secs(60), agents.connections.recv()).await;
        let Connection { mut from_agent, to_agent } = agent.expect("an agent").unwrap();
        let (to_collector, outgoing) = mpsc::channel(4);
        tokio::spawn(async move {
            while let Some(message) = from_agent.recv().await {
                if to_collector.send(message).await.is_err() {
                    break;
                }
            }
        });
        let mut client = TelemetryClient::connect(format!("http://{}", of("TO"))).await.unwrap();
        let mut answers = client.stream(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        let mut left = acks;
        while left > 0 {
            let answer = answers.next().await.expect("it goes on").unwrap();
            left -= usize::from(matches!(answer.body, Some(Said::Ack(_))));
            file.write_all(&answer.encode_length_delimited_to_vec()).unwrap();
            to_agent.send(Ok(answer)).await.unwrap();
        }
    }
}

//! Agents of other versions: what one of an earlier commit sent is taken whole and told as it was, and what a later one adds is passed over.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;
#[path = "../../proto/tests/later/mod.rs"]
mod later;

use common::{Agent, Serve, WINDOW_NS, batch, encode, hello, names, runtime, unix_ns, wait_for};
use later::with_unknown;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tailwater_proto::columnar::encode_values;
use tailwater_proto::trace::TraceReader;
use tailwater_proto::v1::{AgentMessage, Column, Hello, Table, agent_message::Body, trace_record};

/// Recorded at 76f97e9, before the schema had time in state, Unix sockets, connections with several exchanges, and blocked loops.
const EARLIER: &str = "../tests/golden/nx0-app-cpu.trace.zst";

/// What each agent sent, and when, in ns since the first.
fn earlier() -> (u64, BTreeMap<String, Vec<(u64, Body)>>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(EARLIER);
    let bytes = zstd::decode_all(std::fs::File::open(file).unwrap()).unwrap();
    let mut streams: BTreeMap<String, Vec<(u64, Body)>> = BTreeMap::new();
    let mut first = 0;
    for record in TraceReader::new(bytes.as_slice()).unwrap() {
        let Some(trace_record::Body::Arrival(arrival)) = record.unwrap().body else { continue };
        if first == 0 {
            first = arrival.arrival_unix_ns;
        }
        let body = arrival.message.unwrap().body.unwrap();
        streams.entry(arrival.host).or_default().push((arrival.arrival_unix_ns.saturating_sub(first), body));
    }
    (first, streams)
}

/// Sends it at the same pace, as if it were now; returns how many batches were taken.
async fn replay(serve: Arc<Serve>, host: String, stream: Vec<(u64, Body)>, begun: u64, windows: u64) -> u64 {
    let mut stream = stream.into_iter();
    let Some((_, Body::Hello(hello))) = stream.next() else { panic!("a stream begins with a Hello") };
    // A recording keeps of a Hello what the analysis is told: the handshake is that of the tests.
    let handshake = common::hello(&host, "earlier");
    let (coverage, addresses, cpus) = (hello.coverage, hello.addresses, hello.cpus);
    let mut agent = Agent::connect(serve.grpc, Hello { coverage, addresses, cpus, ..handshake }).await;
    agent.welcome().await;
    let (mut newest, mut taken) = (0, 0);
    for (after, mut body) in stream {
        tokio::time::sleep(Duration::from_nanos((begun + after).saturating_sub(unix_ns()))).await;
        match &mut body {
            Body::Batch(batch) => batch.first_window += windows,
            Body::Drop(drop) => {
                for at in [&mut drop.unix_ns, &mut drop.read_unix_ns, &mut drop.sent_unix_ns] {
                    *at += if *at > 0 { windows * WINDOW_NS } else { 0 };
                }
            }
            // Its clock was another one.
            Body::ClockProbe(_) | Body::Status(_) => continue,
            _ => {}
        }
        let sequence = match &body {
            Body::Batch(batch) => Some(batch.sequence),
            _ => None,
        };
        agent.say(body).await;
        if let Some(sequence) = sequence {
            (newest, taken) = (sequence, taken + 1);
        }
    }
    agent.acked_up_to(newest).await;
    taken
}

#[test]
fn an_agent_of_an_earlier_version_is_taken_whole_and_its_incident_is_told_as_then() {
    let (first, streams) = earlier();
    assert_eq!(streams.len(), 3, "web, app and db");
    let batches =
        |stream: &Vec<(u64, Body)>| stream.iter().filter(|(_, b)| matches!(b, Body::Batch(_))).count();
    let sent: usize = streams.values().map(batches).sum();
    let folder = tempfile::tempdir().unwrap();
    let serve = Arc::new(Serve::start(folder.path(), &common::QUICK));
    let begun = unix_ns() + 500_000_000;
    let windows = (begun - first) / WINDOW_NS;
    let begun = first + windows * WINDOW_NS;
    let taken: u64 = runtime().block_on(async {
        let mut all = tokio::task::JoinSet::new();
        for (host, stream) in streams {
            all.spawn(replay(Arc::clone(&serve), host, stream, begun, windows));
        }
        all.join_all().await.into_iter().sum()
    });
    assert!(sent > 100, "{sent}");
    assert_eq!(taken, sent as u64);
    let told = wait_for("the incident", || {
        let told = serve.json("/api/v1/incidents");
        let of = |incident: &serde_json::Value| incident["kind"] == "upstream_ctqo";
        told["incidents"].as_array()?.iter().find(|incident| of(incident)).cloned()
    });
    let (root, text) = (&told["root"], told.to_string());
    assert!(root.to_string().contains("app-1") && text.contains("cpu_neighbour"), "{text}");
}

#[test]
fn what_a_later_agent_adds_is_passed_over_and_the_rest_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    runtime().block_on(async {
        let mut later = hello("web-1", "a");
        // A version that also speaks this one's protocol, and measures a signal that has no name here.
        later.protocol_max = 7;
        later.coverage.push(tailwater_proto::v1::SignalCoverage {
            signal: 77,
            covered: true,
            ..Default::default()
        });
        let mut agent = Agent::connect(serve.grpc, later).await;
        assert_eq!(agent.welcome().await.protocol, 1);
        agent.say(names()).await;
        // A message of another kind, which is all that it holds.
        agent.raw(with_unknown(Vec::new()).into()).await;
        let window = unix_ns() / WINDOW_NS - 2;
        agent.raw(with_unknown(encode(Body::Batch(batch(1, window, 0))).to_vec()).into()).await;
        assert_eq!(agent.acked().await, 1);
        // Unknown columns of known rows, rows of an unknown kind, an unknown signal that is not covered, and a field in the batch itself.
        let mut more = batch(2, window + 1, 0);
        more.tables[2].columns.push(Column { metric: 9_000, bucket: 0, values: encode_values(&[7]) });
        let values = encode_values(&[7, 8]);
        more.tables.push(Table {
            kind: 99,
            entities: vec![1, 2],
            columns: vec![Column { metric: 1, bucket: 0, values }],
        });
        more.uncovered.push(77);
        let inner = with_unknown(more.encode_to_vec());
        let mut outer = Vec::new();
        encode_key(3, WireType::LengthDelimited, &mut outer); // AgentMessage.batch
        encode_varint(inner.len() as u64, &mut outer);
        outer.extend(inner);
        assert!(matches!(AgentMessage::decode(outer.as_slice()).unwrap().body, Some(Body::Batch(_))));
        agent.raw(outer.into()).await;
        assert_eq!(agent.acked().await, 2);
        // Nothing but the windows themselves: a version that measures less.
        let mut less = batch(3, window + 2, 0);
        less.tables.clear();
        less.flags.clear();
        agent.say(Body::Batch(less)).await;
        assert_eq!(agent.acked().await, 3);
    });
    assert_eq!(serve.metric("tailwater_windows_received_total"), 3);
    assert!(!serve.log().contains("refused"), "{}", serve.log());
}

//! A recording of the laboratory, played to a real collector as its agents sent it: every message of every agent, each when it came,
//! moved to now by whole windows.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "helpers of tests: a failure is the test's")]

use super::common::{Agent, Serve, WINDOW_NS, nothing_lost, runtime, unix_ns};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tailwater_proto::trace::TraceReader;
use tailwater_proto::v1::{
    self, agent_message::Body, collector_message::Body as Reply, trace_record::Body as Record,
};

/// What an agent said, and when it came, by the collector's clock.
struct Said {
    at_unix_ns: u64,
    /// The collector's clock less the agent's, in windows.
    behind: i64,
    body: Body,
}

/// The run as it goes on, over and over; it ends with this.
pub struct Playing {
    /// Who sends.
    pub hosts: Vec<String>,
    _runtime: tokio::runtime::Runtime,
}

/// Plays it against `serve`, beginning now.
pub fn play(serve: &Serve, file: &Path) -> Playing {
    let text = zstd::decode_all(std::fs::File::open(file).unwrap()).unwrap();
    let mut by_host: BTreeMap<String, Vec<Said>> = BTreeMap::new();
    for record in TraceReader::new(text.as_slice()).unwrap() {
        let Some(Record::Arrival(arrival)) = record.unwrap().body else { continue };
        let Some(body) = arrival.message.and_then(|message| message.body) else { continue };
        let behind = (arrival.clock_offset_ns as f64 / WINDOW_NS as f64).round() as i64;
        let said = Said { at_unix_ns: arrival.arrival_unix_ns, behind, body };
        by_host.entry(arrival.host).or_default().push(said);
    }
    let batches = by_host.values().flatten().filter(|said| matches!(said.body, Body::Batch(_)));
    let times: Vec<u64> = batches.map(|said| said.at_unix_ns).collect();
    let (begin, end) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
    let windows = (end - begin) / WINDOW_NS + 1;
    // The round trips by which the collector learns the clocks come first.
    let moved = (unix_ns() - begin) / WINDOW_NS + 20;
    let runtime = runtime();
    let hosts = by_host.keys().cloned().collect();
    for said in by_host.into_values() {
        let hello = said.iter().find_map(|said| match &said.body {
            Body::Hello(hello) => Some(hello.clone()),
            _ => None,
        });
        // A recording has no protocol: that was agreed on before it begins.
        let hello = v1::Hello { protocol_min: 1, protocol_max: 1, ..hello.unwrap() };
        let mut agent = runtime.block_on(Agent::connect(serve.grpc, hello));
        runtime.block_on(agent.welcome());
        let status =
            v1::AgentStatus { losses: nothing_lost(), kernel_cpu_ratio: Some(0.01), ..Default::default() };
        runtime.block_on(agent.say(Body::Status(status)));
        runtime.spawn(feed(agent, said, moved, windows));
    }
    Playing { hosts, _runtime: runtime }
}

async fn feed(mut agent: Agent, all: Vec<Said>, mut moved: u64, windows: u64) {
    let mut newest = (0, 0);
    for id in 1..=5 {
        let (reply_id, reply_received_unix_ns) = newest;
        let agent_unix_ns = unix_ns();
        let probe =
            v1::ClockProbe { id, agent_unix_ns, reply_id, reply_received_unix_ns, ..Default::default() };
        agent.say(Body::ClockProbe(probe)).await;
        newest = match agent.hear().await {
            Reply::ClockReply(reply) => (reply.id, unix_ns()),
            other => panic!("{other:?}"),
        };
    }
    let mut sequence = 0;
    loop {
        for said in &all {
            let at = said.at_unix_ns + moved * WINDOW_NS;
            tokio::time::sleep(Duration::from_nanos(at.saturating_sub(unix_ns()))).await;
            let index_moved = moved.saturating_add_signed(said.behind);
            match said.body.clone() {
                Body::Batch(mut batch) => {
                    sequence += 1;
                    batch.sequence = sequence;
                    batch.first_window += index_moved;
                    agent.say(Body::Batch(batch)).await;
                    while let Some(reply) = agent.heard().await {
                        match reply {
                            Reply::Ack(ack) if ack.sequence <= sequence => {}
                            other => panic!("batch {sequence}: {other:?}"),
                        }
                    }
                }
                Body::Drop(mut drop) => {
                    drop.unix_ns += index_moved * WINDOW_NS;
                    (drop.read_unix_ns, drop.sent_unix_ns) = (0, 0);
                    agent.say(Body::Drop(drop)).await;
                }
                Body::Status(mut status) => {
                    // The recording is of an agent that did not tell.
                    status.losses = nothing_lost();
                    status.kernel_cpu_ratio = Some(0.01);
                    agent.say(Body::Status(status)).await;
                }
                body @ Body::Entities(_) => agent.say(body).await,
                // Said at the beginning, or about another clock.
                Body::Hello(_) | Body::ClockProbe(_) => {}
            }
        }
        moved += windows;
    }
}

//! Agents' streams against a real collector process: what is taken, what is refused with which words, and that nothing else is
//! disturbed by either.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::{Agent, QUICK, Serve, WINDOW_NS, batch, encode, hello, overflow, runtime, unix_ns, wait_for};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tailwater_proto::v1::{
    ClockProbe, DropEvent, Signal, agent_message::Body, collector_message::Body as Reply,
};

fn now() -> u64 {
    unix_ns() / WINDOW_NS - 2
}

#[test]
fn garbage_on_the_port_is_logged_and_disturbs_no_agent() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    runtime().block_on(async {
        let mut agent = Agent::connect(serve.grpc, hello("web-1", "a")).await;
        agent.welcome().await;
        for garbage in [
            &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            &[0xff; 4096],
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        ] {
            let mut stream = TcpStream::connect(serve.grpc).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            stream.write_all(garbage).unwrap();
            // Closed by the collector, perhaps before this end does: the end, or a reset.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        agent.say(Body::Batch(batch(1, now(), 0))).await;
        assert_eq!(agent.acked().await, 1);
        assert_eq!(serve.json("/api/v1/agents")["agents"][0]["connected"], true);
    });
    let line = serve.wait_log("does not speak gRPC");
    assert!(line.contains("WARN") && line.contains("peer=127.0.0.1:"), "{line}");
}

#[test]
fn absurd_and_undecodable_batches_are_refused_one_by_one_and_logged_once_per_kind() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    runtime().block_on(async {
        let mut agent = Agent::connect(serve.grpc, hello("web-1", "a")).await;
        agent.welcome().await;
        let mut absurd = batch(1, now(), 1_000_000_000_000_000_000);
        agent.say(Body::Batch(absurd.clone())).await;
        let reason = agent.refused().await;
        assert!(reason.contains("METRIC_LISTEN_DROPS = 1000000000000000000 in entity 5"), "{reason}");
        absurd.sequence = 2;
        agent.say(Body::Batch(absurd)).await;
        agent.refused().await;
        agent.say(Body::Batch(batch(3, now() + 200, 0))).await;
        assert!(agent.refused().await.contains("in the future"));
        agent.say(Body::Batch(batch(4, now() - 20 * 3600, 0))).await;
        assert!(agent.refused().await.contains("old"));
        // A message that is not even protobuf, and one that was cut: its sequence is still found.
        agent.raw(vec![0xff_u8; 20].into()).await;
        assert!(agent.refused().await.contains("does not decode"));
        let mut cut = encode(Body::Batch(batch(5, now(), 0))).to_vec();
        cut.pop();
        agent.raw(cut.into()).await;
        match agent.hear().await {
            Reply::BatchRefused(refused) => assert_eq!(refused.sequence, 5),
            other => panic!("{other:?}"),
        }
        let mut columns = batch(6, now(), 0);
        columns.tables[2].columns[0].values.push(7);
        agent.say(Body::Batch(columns)).await;
        assert!(agent.refused().await.contains("left over"));
        agent
            .say(Body::Drop(DropEvent { listener: 5, unix_ns: u64::MAX, count: 1, ..Default::default() }))
            .await;
        assert!(agent.refused().await.contains("drop event: "));
        agent.say(Body::Batch(batch(7, now(), 0))).await;
        assert_eq!(agent.acked().await, 7, "the stream goes on");
    });
    assert_eq!(serve.metric("tailwater_batches_refused_total{reason=\"absurd_value\"}"), 2);
    // The log has a thread of its own.
    let lines = || serve.log().lines().filter(|l| l.contains("beyond the physical bound")).count();
    wait_for("the log to say so", || (lines() > 0).then_some(()));
    assert_eq!(lines(), 1, "{}", serve.log());
}

#[test]
fn a_reconnected_agent_goes_on_where_it_was_and_duplicates_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    runtime().block_on(async {
        let mut agent = Agent::connect(serve.grpc, hello("web-1", "a")).await;
        assert_eq!(agent.welcome().await.last_sequence, 0);
        for sequence in 1..=3 {
            agent.say(Body::Batch(batch(sequence, now(), 0))).await;
            assert_eq!(agent.acked().await, sequence);
        }
        drop(agent);
        let mut agent = Agent::connect(serve.grpc, hello("web-1", "a")).await;
        assert_eq!(agent.welcome().await.last_sequence, 3);
        agent.say(Body::Batch(batch(2, now(), 0))).await;
        assert_eq!(agent.acked().await, 3);
        agent.say(Body::Batch(batch(4, now(), 0))).await;
        assert_eq!(agent.acked().await, 4);
    });
    assert_eq!(serve.metric("tailwater_batches_duplicate_total"), 1);
    assert_eq!(serve.metric("tailwater_batches_received_total"), 4);
}

#[test]
fn a_second_agent_of_another_boot_and_a_stranger_protocol_are_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    runtime().block_on(async {
        let mut first = Agent::connect(serve.grpc, hello("web-1", "a")).await;
        first.welcome().await;
        let mut twin = hello("web-1", "b");
        twin.boot_id = "another machine".into();
        let reason = Agent::connect(serve.grpc, twin.clone()).await.refused().await;
        assert!(reason.contains("already served by agent a") && reason.contains("--host"), "{reason}");
        let (mut newer, mut other) = (hello("db-1", "c"), hello("db-1", "d"));
        (newer.protocol_min, newer.protocol_max) = (7, 9);
        let reason = Agent::connect(serve.grpc, newer).await.refused().await;
        assert!(reason.contains("speaks protocol 7 to 9, the collector 1 to 1"), "{reason}");
        other.window_ns = 1;
        assert!(Agent::connect(serve.grpc, other).await.refused().await.contains("windows of 1 ns"));
        // The first one is none the worse; when it goes, the twin may come.
        first.say(Body::Batch(batch(1, now(), 0))).await;
        assert_eq!(first.acked().await, 1);
        drop(first);
        wait_for("the first to be gone", || {
            (serve.json("/api/v1/agents")["agents"][0]["connected"] == false).then_some(())
        });
        Agent::connect(serve.grpc, twin).await.welcome().await;
    });
}

#[test]
fn an_agent_that_was_replaced_by_itself_comes_back_at_once_and_one_that_was_replaced_by_another_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    runtime().block_on(async {
        let mut live = Agent::connect(serve.grpc, hello("web-1", "a")).await;
        live.welcome().await;
        // As a Hello of the same agent that was on its way for so long that the agent gave it up.
        let mut late = Agent::connect(serve.grpc, hello("web-1", "a")).await;
        late.welcome().await;
        assert!(replaced(&mut live).await, "a minute's pause would cost windows");
        let mut second = Agent::connect(serve.grpc, hello("web-1", "b")).await;
        second.welcome().await;
        assert!(!replaced(&mut late).await, "two agents of one boot must not take turns without a pause");
    });
}

/// Whether it may be back soon.
async fn replaced(agent: &mut Agent) -> bool {
    match agent.hear().await {
        Reply::Refusal(refusal) if refusal.reason.contains("newer stream") => refusal.retry,
        other => panic!("not replaced: {other:?}"),
    }
}

/// Fails if what `[[agents]]` says does not reach its hosts right after the welcome, or if another host is told anything.
#[test]
fn an_agent_of_a_table_is_told_how_to_measure_after_its_welcome_and_another_is_told_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tailwater.toml");
    let table = "[[agents]]\nhosts = [\"web-*\"]\nversion = 7\nwindows_per_batch = 4\ndisabled_signals = [\"block_io\", \"memory\"]\n";
    std::fs::write(&file, table).unwrap();
    let serve = Serve::start(folder.path(), &["--config", file.to_str().unwrap()]);
    serve.wait_log("[[agents]] is sent and not taken");
    runtime().block_on(async {
        let mut web = Agent::connect(serve.grpc, hello("web-1", "a")).await;
        web.welcome().await;
        let Reply::Configuration(told) = web.hear().await else { panic!("not told how to measure") };
        assert_eq!((told.version, told.windows_per_batch), (7, 4));
        assert_eq!(told.disabled, [Signal::BlockIo as i32, Signal::Memory as i32]);
        let mut other = Agent::connect(serve.grpc, hello("db-1", "b")).await;
        other.welcome().await;
        // Whatever else were said would be heard before the acknowledgement.
        for agent in [&mut web, &mut other] {
            agent.say(Body::Batch(batch(1, now(), 0))).await;
            assert_eq!(agent.acked().await, 1);
        }
    });
}

#[test]
fn probes_are_answered_with_the_collectors_time() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &[]);
    runtime().block_on(async {
        let mut agent = Agent::connect(serve.grpc, hello("web-1", "a")).await;
        agent.welcome().await;
        // The quickest of them counts: on a machine that is busy one may take long.
        for id in 1..=20 {
            let before = unix_ns();
            agent
                .say(Body::ClockProbe(ClockProbe { id, agent_unix_ns: before, ..ClockProbe::default() }))
                .await;
            let Reply::ClockReply(reply) = agent.hear().await else { panic!("not a clock reply") };
            assert_eq!((reply.id, reply.agent_unix_ns), (id, before));
            assert!((before..=unix_ns()).contains(&reply.collector_receive_unix_ns));
        }
    });
    let clock = &serve.json("/api/v1/agents")["agents"][0]["clock"];
    assert_eq!(clock["offset_ns"], 0);
    assert!(clock["error_ns"].as_u64().unwrap() < 25_000_000, "{clock}");
}

/// Of 54 windows with 50 answers each, and six with five that took half a second or more.
fn response_times(serve: &Serve, begin: u64) {
    let listener = format!("/api/v1/responses?host=web-1&listener=10.0.0.1:80&start={begin}&within_ms=100");
    let told = wait_for("the last window to be there", || {
        let told = serve.json(&listener);
        (told["whole"]["windows"] == 60).then_some(told)
    });
    let whole = &told["whole"];
    let counts = ["answers", "p99"].map(|key| whole[key].clone());
    assert_eq!(counts, [json!(2730), json!({ "ms": null, "at_least_ms": 524.288 })], "{whole:#}");
    // The agent of these tests is one of before: it has no bucket beyond 524 ms.
    assert_eq!((&whole["counts"][10], &whole["at_least_524_ms"]), (&json!(2700), &json!(30)));
    let p50 = whole["p50"]["ms"].as_f64().unwrap();
    assert!((1.024..2.048).contains(&p50), "{whole:#}");
    assert_eq!(whole["within"]["least"], whole["within"]["most"], "no answer is near 100 ms: {whole:#}");
    assert_eq!(told["points"].as_array().unwrap().len(), 60, "each window is there by itself");
    let tier = serve.json("/api/v1/topology")["nodes"][0]["tier"].as_str().unwrap().to_owned();
    let of_tier = serve.json(&format!("/api/v1/responses?tier={tier}&start={begin}"));
    assert_eq!((&of_tier["whole"]["counts"], &of_tier["within_ms"]), (&whole["counts"], &json!(500)));
    let text = wait_for("the histogram of all tiers to have every answer", || {
        let (_, text) = common::get(serve.http, "/metrics").unwrap();
        let counts = text.lines().filter_map(|line| line.strip_prefix("tailwater_response_seconds_count{"));
        let all: u64 = counts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        (all == 2730).then_some(text)
    });
    // No rule is configured, so it is 500 ms: those of half a second and more took longer, surely.
    let held = ["surely", "perhaps", "not"].map(|within| -> u64 {
        let end = format!("within=\"{within}\"}}");
        let told = text.lines().filter_map(|line| line.strip_prefix("tailwater_sla_answers_total{"));
        let told = told.map(|line| line.rsplit_once(' ').unwrap());
        told.filter(|(labels, _)| labels.ends_with(&end)).map(|(_, n)| n.parse::<u64>().unwrap()).sum()
    });
    assert_eq!(held, [2700, 0, 30], "in {text}");
}

#[test]
fn a_dropped_packet_is_one_incident_with_the_series_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path(), &QUICK);
    let begin = unix_ns();
    let mut live = common::Live::open(serve.http);
    overflow(&serve, "a");
    // The list may be asked at any moment, and then shows what is newest: the order is in what was told live.
    let alert = live.next();
    assert_eq!(alert["version"], 0, "told before the windows");
    let incident = wait_for("the windows' incident to close", || {
        let all = serve.json("/api/v1/incidents");
        let all = all["incidents"].as_array().unwrap();
        assert_eq!(all.len(), 1, "{all:#?}");
        (all[0]["state"] == "closed").then(|| all[0].clone())
    });
    assert_eq!(incident["drops"][0]["count"], 18, "{incident:#}");
    assert_eq!(incident["drops"][0]["listener"].as_str().unwrap().rsplit(':').next(), Some("80"));
    let alert = alert["id"].as_str().unwrap();
    assert_eq!(serve.json(&format!("/api/v1/incidents/{alert}")), incident, "the alert's id leads to it");
    let series =
        serve.json(&format!("/api/v1/series?host=web-1&workload=apache2.service&metric=drops&start={begin}"));
    let sum: f64 = series["points"].as_array().unwrap().iter().map(|p| p["max"].as_f64().unwrap()).sum();
    assert_eq!(sum, 18.0, "{series}");
    response_times(&serve, begin);
    let id = incident["id"].as_str().unwrap();
    let url = format!("http://{}", serve.http);
    let told = common::tailwater().args(["explain", id, "--collector", &url]).output().unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.contains("accept q. 129/128") && text.contains("18 packets dropped"), "{text}");
    assert_eq!(serve.json("/api/v1/topology")["nodes"][0]["workload"], "apache2.service");
}

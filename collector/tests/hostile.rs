//! Nine honest agents beside one that sends the worst it can as fast as it can, all over real sockets to a real collector: the nine lose no window
//! and no alert, memory stays in its bound, and each limit that bit is counted and named.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]

mod common;

use common::{
    Agent, QUICK, Serve, WINDOW_NS, batch, get, hello, names, runtime, unix_ns, until_ended, wait_for,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tailwater_proto::columnar::encode_values;
use tailwater_proto::v1::{
    AgentStatus, Blocking, ClockProbe, CodePath, Column, CpuShares, DropEvent, Entities, EntityKind,
    InFlightStates, KernelCount, LockedThreads, Meeting, SlowRequest, Table, WaitingLookups, WindowBatch,
    Workload, agent_message::Body,
};

/// Windows that each honest agent sends, and the first with drops.
const WINDOWS: u64 = 120;
const DROPS_FROM: u64 = 50;
const HONEST: u8 = 9;
/// What the collector may take at its most: windows in memory (256 MiB), what waits for the analysis (128 MiB of one agent), and itself.
const RESIDENT_KIB_MAX: u64 = 900 << 10;

/// One overflow among quiet windows, each acknowledged before the next: whoever is not heard in time sees it here.
async fn honest(serve: Arc<Serve>, number: u8) {
    let host = format!("web-{number}");
    let mut hello = hello(&host, "honest");
    hello.addresses = vec![vec![10, 0, 1, number]];
    let mut agent = Agent::connect(serve.grpc, hello).await;
    agent.welcome().await;
    agent.say(names()).await;
    let begin = unix_ns() / WINDOW_NS;
    for n in 0..WINDOWS {
        if n == DROPS_FROM {
            let unix_ns = (begin + n) * WINDOW_NS + 10_000_000;
            tokio::time::sleep(Duration::from_nanos(unix_ns.saturating_sub(common::unix_ns()))).await;
            let (listener, count, depth, limit) = (5, 3, 129, 128);
            let drop = DropEvent {
                listener,
                unix_ns,
                count,
                depth,
                limit,
                sequence: 1,
                packets: Some(3),
                ..Default::default()
            };
            agent.say(Body::Drop(drop)).await;
        }
        until_ended(begin + n).await;
        let drops = if (DROPS_FROM..DROPS_FROM + 6).contains(&n) { 3 } else { 0 };
        agent.say(Body::Batch(batch(n + 1, begin + n, drops))).await;
    }
    agent.acked_up_to(WINDOWS).await;
}

/// A table that says much in few bytes: runs of zeros.
fn zeros(kind: i32, entities: u32, windows: u32, columns: i32) -> Table {
    let values = encode_values(&vec![0; (entities * windows) as usize]);
    let columns = (1..=columns).map(|metric| Column { metric, bucket: 0, values: values.clone() });
    Table { kind, entities: (1..=entities).collect(), columns: columns.collect() }
}

fn worst(sequence: u64, turn: u64) -> Vec<Body> {
    let first_window = unix_ns() / WINDOW_NS - 70;
    let batch = |window_count, tables| WindowBatch {
        sequence,
        first_window,
        window_count,
        tables,
        ..WindowBatch::default()
    };
    let of = |window_count, tables| Body::Batch(batch(window_count, tables));
    match turn % 8 {
        // Two hundred kinds that nobody knows, each with two million values: 3 GB, decoded.
        0 => vec![of(64, (100..300).map(|kind| zeros(kind, 512, 64, 64)).collect())],
        // As much as is taken.
        1 => vec![of(64, vec![zeros(EntityKind::Listener as i32, 2048, 64, 14)])],
        // More than that.
        2 => vec![of(64, vec![zeros(EntityKind::Workload as i32, 4096, 64, 8)])],
        3 => vec![of(
            2,
            vec![Table {
                kind: 2,
                entities: vec![1],
                columns: vec![Column { metric: 1, bucket: 0, values: vec![0xff; 1 << 20] }],
            }],
        )],
        4 => (0..2000)
            .map(|id| Body::ClockProbe(ClockProbe { id, agent_unix_ns: u64::MAX, ..ClockProbe::default() }))
            .collect(),
        // Names that together are more than a host may have.
        5 => {
            let some = |from: u32| {
                let names = (from..from + 800).map(|id| Workload {
                    id: id + 1,
                    name: format!("w{id}"),
                    cgroup: "x".repeat(2_000),
                    ..Workload::default()
                });
                Body::Entities(Entities { workloads: names.collect(), ..Entities::default() })
            };
            (0..6).map(|n| some(n * 800)).collect()
        }
        // A million accounts of nothing.
        6 => {
            let in_flight_states = vec![InFlightStates::default(); 1_000_000];
            let cpu_shares = vec![CpuShares::default(); 1_000_000];
            let meetings = vec![Meeting::default(); 1_000_000];
            let kernel_counts = vec![KernelCount::default(); 1_000_000];
            let blockings = vec![Blocking::default(); 1_000_000];
            let locked_threads = vec![LockedThreads::default(); 1_000_000];
            let waiting_lookups = vec![WaitingLookups::default(); 1_000_000];
            let slow_requests = vec![SlowRequest::default(); 1_000_000];
            let code_paths = vec![CodePath::default(); 1_000_000];
            let empty = || batch(64, Vec::new());
            vec![
                Body::Batch(WindowBatch { in_flight_states, ..empty() }),
                Body::Batch(WindowBatch { cpu_shares, ..empty() }),
                Body::Batch(WindowBatch { meetings, ..empty() }),
                Body::Batch(WindowBatch { kernel_counts, ..empty() }),
                Body::Batch(WindowBatch { blockings, ..empty() }),
                Body::Batch(WindowBatch { locked_threads, ..empty() }),
                Body::Batch(WindowBatch { waiting_lookups, ..empty() }),
                Body::Batch(WindowBatch { slow_requests, ..empty() }),
                Body::Batch(WindowBatch { code_paths, ..empty() }),
            ]
        }
        _ => {
            let long = Workload { id: 1, name: "x".repeat(3 << 20), ..Workload::default() };
            let status = AgentStatus { shed_signals: vec![String::new(); 500_000], ..AgentStatus::default() };
            vec![
                Body::Entities(Entities { workloads: vec![long], ..Entities::default() }),
                Body::Status(status),
            ]
        }
    }
}

/// Each kind four times.
const MESSAGES_OF_A_STREAM: u64 = 33;

/// Until the others are done; whenever it is sent away it comes again at once.
async fn hostile(serve: Arc<Serve>, done: Arc<AtomicBool>, said: Arc<AtomicU64>) {
    let mut connects = 0;
    while !done.load(Ordering::Relaxed) {
        connects += 1;
        let mut hello = hello("evil-1", &format!("hostile-{connects}"));
        hello.addresses = vec![vec![10, 0, 0, 1]; 5000];
        let mut agent = Agent::connect(serve.grpc, hello).await;
        agent.welcome().await;
        // It reads no replies. After some messages it leaves for a storm of connections. Each stream begins with another kind, and is short: clock
        // probes make the clock of the rest of it one by which all windows are too old, so that nothing else of these is looked at, and what waits to be
        // sent when it ends is never heard.
        'stream: for sequence in 1..MESSAGES_OF_A_STREAM {
            for body in worst(sequence, connects + sequence) {
                if done.load(Ordering::Relaxed) || !agent.try_say(body).await {
                    break 'stream;
                }
                said.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Goes on until it is dropped, also where the test fails: its thread has a share of the collector, which would outlive it.
struct Attack {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Attack {
    fn on(serve: &Arc<Serve>, said: &Arc<AtomicU64>) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let (serve, said, until) = (Arc::clone(serve), Arc::clone(said), Arc::clone(&done));
        let thread = std::thread::spawn(move || runtime().block_on(hostile(serve, until, said)));
        Self { done, thread: Some(thread) }
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the hostile agent gave up");
    }
}

#[test]
fn nine_honest_agents_beside_a_hostile_one_lose_no_window_and_no_alert() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Arc::new(Serve::start(folder.path(), &QUICK));
    let said = Arc::new(AtomicU64::new(0));
    let attack = Attack::on(&serve, &said);
    wait_for("the hostile agent to be at work", || (said.load(Ordering::Relaxed) > 100).then_some(()));
    runtime().block_on(async {
        let mut all = tokio::task::JoinSet::new();
        for number in 1..=HONEST {
            all.spawn(honest(Arc::clone(&serve), number));
        }
        while let Some(one) = all.join_next().await {
            one.unwrap();
        }
    });
    let meanwhile = said.load(Ordering::Relaxed);
    // While what it said waits for the analysis, the rest of it is refused: on a slow machine not everything was heard by now.
    for limit in ["rows", "text", "status", "clock_probes", "addresses", "entities", "states"] {
        let line = format!("tailwater_limits_reached_total{{limit=\"{limit}\"}}");
        wait_for(&format!("{limit} to bite"), || (serve.metric(&line) > 0).then_some(()));
    }
    drop(attack);

    let agents = serve.json("/api/v1/agents");
    let agents = agents["agents"].as_array().unwrap();
    for number in 1..=HONEST {
        let host = format!("web-{number}");
        let agent = agents.iter().find(|agent| agent["host"] == host.as_str()).unwrap();
        assert_eq!((&agent["batches"], &agent["batches_refused"]), (&WINDOWS.into(), &0.into()), "{host}");
        wait_for(&format!("the incident of {host}"), || {
            let told = serve.json("/api/v1/incidents?limit=100");
            let told =
                told["incidents"].as_array()?.iter().any(|incident| incident.to_string().contains(&host));
            told.then_some(())
        });
    }
    let (_, ready) = get(serve.http, "/readyz").unwrap();
    assert!(ready.contains("limits reached within ten minutes: ") && ready.contains("rows"), "{ready}");
    assert!(serve.metric("tailwater_batches_refused_total{reason=\"undecodable\"}") > 0);
    let resident = serve.resident_kib_most();
    println!(
        "{meanwhile} hostile messages beside {HONEST} honest agents; resident at most {} MiB",
        resident >> 10
    );
    assert!(resident < RESIDENT_KIB_MAX, "{resident} KiB");
}

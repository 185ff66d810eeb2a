//! A service graph on this machine, without agents: it serves its load, what is done to it has the kernel drop packets, and nothing of it
//! is left. What is told of graphs is scored by `make graph-score`.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::graph::benign::{Benign, KINDS};
use tailwater_tests::graph::injections::{Cause, Planned, candidates};
use tailwater_tests::graph::part::Runtime;
use tailwater_tests::graph::plan::Graph;
use tailwater_tests::graph::world::World;
use tailwater_tests::lab::reaper;
use tailwater_tests::os::clock::unix_ns;
use tailwater_tests::truth::Recorder;

/// A small one with a service of nearly every runtime that something can be done to (PHP and Tomcat are in others), as a machine of two CPUs bears it.
const SEED: u64 = 5_526_455;
const CPUS: usize = 2;
/// What is done, and to a service of which runtime.
const DONE: [(Cause, Runtime); 15] = [
    (Cause::Pause, Runtime::Nginx),
    (Cause::Loop, Runtime::Redis),
    (Cause::Heavier, Runtime::Goroutines),
    (Cause::GcPause, Runtime::Node),
    (Cause::Pause, Runtime::Memcached),
    (Cause::Pause, Runtime::Apache),
    (Cause::Lock, Runtime::Postgres),
    (Cause::Lock, Runtime::Mariadb),
    (Cause::Pause, Runtime::Gunicorn),
    (Cause::PoolExhausted, Runtime::Threads),
    (Cause::Squeeze, Runtime::EventLoop),
    (Cause::Neighbour, Runtime::Threads),
    (Cause::Burst, Runtime::Threads),
    (Cause::SlowDns, Runtime::Threads),
    (Cause::Loss, Runtime::Threads),
];
/// What has to have packets dropped: each stalls a whole service for longer than queues take to fill.
const ALWAYS: [Cause; 3] = [Cause::GcPause, Cause::Lock, Cause::PoolExhausted];
/// For queues and retries of the one before to end.
const BETWEEN: Duration = Duration::from_secs(4);

#[test]
fn privileged_a_graph_serves_its_load_and_what_is_done_to_it_has_packets_dropped() -> Result<()> {
    experiment("a service graph", || {
        let folder = tempfile::tempdir()?;
        let graph = Graph::of(SEED, CPUS);
        println!("{}", graph.told());
        let all = candidates(&graph);
        let world = World::start(&graph, folder.path())?;
        let run = world.cgroup_path(0).split('/').nth(2).context("a run's id")?.to_owned();
        let recorder = Recorder::start(&world.places())?;
        world.load(graph.rate_per_second / 2.0, Duration::from_secs(3), 1)?.wait()?;
        let summary = world.load(graph.rate_per_second, Duration::from_secs(5), 2)?.wait()?;
        println!("{summary:?}");
        ensure!(summary.failed == 0, "{} of {} failed", summary.failed, summary.sent);
        let loads = world.load(graph.rate_per_second, Duration::from_secs(120), 3)?;
        std::thread::sleep(Duration::from_secs(2));
        let begun = unix_ns();
        let mut kinds = BTreeSet::new();
        for benign in Benign::all(&graph).take(3 * KINDS) {
            if kinds.insert(benign.name()) {
                world.go_on(benign, Duration::from_secs(1))?;
            } else if kinds.len() == KINDS {
                break;
            }
        }
        ensure!(recorder.last_drop_unix_ns() < begun, "what is no incident had packets dropped");
        let mut spans = Vec::new();
        for (cause, runtime) in DONE {
            let is_it = |planned: &&Planned| {
                planned.cause == cause && graph.services[planned.service].runtime == runtime
            };
            let planned = all.iter().find(is_it);
            let planned = planned.with_context(|| format!("no {} at {}", cause.name(), runtime.name()))?;
            let begun = unix_ns();
            world.inject(planned)?;
            std::thread::sleep(BETWEEN);
            spans.push((planned, begun, unix_ns()));
        }
        println!("{:?}", loads.end()?);
        let log = recorder.stop()?;
        let mut dropped = 0;
        for (planned, from, to) in &spans {
            let packets = log.dropped_between(*from, *to);
            println!("{planned:?}: {packets} packets dropped");
            dropped += usize::from(packets > 0);
            ensure!(packets > 0 || !ALWAYS.contains(&planned.cause), "{planned:?} had no packet dropped");
        }
        drop(world);
        ensure!(!reaper::runs()?.contains(&run), "something of run {run} is left");
        // Where and for how long is calculated, not tuned: not each of them has to.
        ensure!(2 * dropped > spans.len(), "{dropped} of {} had packets dropped", spans.len());
        Ok(())
    })
}

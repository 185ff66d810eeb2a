//! A service graph on this machine, without agents: it serves its load, what is done to it has the kernel drop packets, and nothing of it
//! is left. What is told of graphs is scored by `make graph-score`.

use anyhow::{Context, Result, ensure};
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::graph::injections::{Cause, candidates};
use tailwater_tests::graph::part::Runtime;
use tailwater_tests::graph::plan::Graph;
use tailwater_tests::graph::world::World;
use tailwater_tests::lab::{cpus, reaper};
use tailwater_tests::os::clock::unix_ns;
use tailwater_tests::truth::Recorder;

/// A small one, whose last service is one of goroutines here.
const SEED: u64 = 3;
const CAUSES: [Cause; 6] =
    [Cause::Pause, Cause::Lock, Cause::Squeeze, Cause::Neighbour, Cause::Heavier, Cause::Burst];
/// For queues and retries of the one before to end.
const BETWEEN: Duration = Duration::from_secs(5);

#[test]
fn privileged_a_graph_serves_its_load_and_what_is_done_to_it_has_packets_dropped() -> Result<()> {
    experiment("a service graph", || {
        let folder = tempfile::tempdir()?;
        let mut graph = Graph::of(SEED, cpus());
        let last = graph.services.len() - 1;
        (graph.services[last].runtime, graph.services[last].locks) = (Runtime::Goroutines, true);
        println!("{}", graph.told());
        let all = candidates(&graph);
        let mut world = World::start(&graph, folder.path())?;
        let run = world.cgroup_path(0).split('/').nth(2).context("a run's id")?.to_owned();
        let recorder = Recorder::start(&world.places())?;
        world.load(graph.rate_per_second / 2.0, Duration::from_secs(3), 1)?.wait()?;
        let summary = world.load(graph.rate_per_second, Duration::from_secs(5), 2)?.wait()?;
        println!("{summary:?}");
        ensure!(summary.failed == 0, "{} of {} failed", summary.failed, summary.sent);
        let loads = world.load(graph.rate_per_second, Duration::from_secs(120), 3)?;
        std::thread::sleep(Duration::from_secs(2));
        let mut spans = Vec::new();
        for cause in CAUSES {
            let here = all.iter().filter(|planned| planned.cause == cause);
            // What is done to a service by its own order is done to that of goroutines, too.
            let planned = here.max_by_key(|planned| (planned.service == last, -(planned.service as i64)));
            let planned = planned.with_context(|| format!("no place for {}", cause.name()))?;
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
        }
        drop(world);
        ensure!(!reaper::runs()?.contains(&run), "something of run {run} is left");
        // Where and for how long is calculated, not tuned: not each of them has to.
        ensure!(2 * dropped > spans.len(), "{dropped} of {} had packets dropped", spans.len());
        Ok(())
    })
}

//! Daemons die under load, and the rest goes on: a collector killed and started again gets what the agents kept; an agent
//! killed leaves a gap that is its own; afterwards a millibottleneck is still named.

#![allow(clippy::disallowed_methods, reason = "the test measures with its own clock")]

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::{LabConfig, scenario};
use tailwater_tests::os::clock::unix_ns;
use tailwater_tests::programs::daemons::wait_for;
use tailwater_tests::programs::trace_sums::TraceSums;
use tailwater_tests::stack::Tier;
use tailwater_tests::system::{System, briefly, is_alarming};

const WINDOW_NS: u64 = 50_000_000;
/// What is sent once a second may take this long on a machine that is taken away.
const ARRIVED_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn privileged_the_rest_goes_on_when_a_daemon_is_killed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut system =
        experiment("the system starts", || System::start(LabConfig::default(), folder.path(), &[]))?;
    // Longer than all that follows, and what follows is waited for: ended below.
    let load = system.lab.load(&system.lab.default_load(600_000))?;
    std::thread::sleep(Duration::from_secs(2));

    // The collector dies, stays away for two seconds and comes back with a new trace.
    system.collector.daemon.kill()?;
    let died_unix_ns = unix_ns();
    std::thread::sleep(Duration::from_secs(2));
    let trace = folder.path().join("after.trace");
    system.collector.restart_with(&["--record".into(), trace.display().to_string()])?;
    system.wait_for_agents()?;
    // From a little after the death (what was in flight then was lost with the collector's memory) to now.
    let (first, last) = (died_unix_ns / WINDOW_NS + 4, unix_ns() / WINDOW_NS);
    let mut missing = BTreeMap::new();
    wait_for("every window of every agent", ARRIVED_WITHIN, || {
        let kept = TraceSums::read(&trace)?;
        let of = |windows: &BTreeSet<u64>| (first..last).filter(|w| !windows.contains(w)).collect::<Vec<_>>();
        missing = kept.windows.iter().map(|(host, windows)| (host.clone(), of(windows))).collect();
        Ok((missing.len() == 3 && missing.values().all(Vec::is_empty)).then_some(()))
    })
    .with_context(|| format!("of {} windows each these never came: {missing:?}", last - first))?;

    // An agent dies. The others' streams do not notice.
    let mut dead = system.agents.remove(Tier::App as usize);
    dead.kill()?;
    let now = unix_ns() / WINDOW_NS;
    wait_for("the others' next windows", ARRIVED_WITHIN, || {
        let others = TraceSums::read(&trace)?;
        let newest = |host| others.windows.get(host).and_then(|w| w.last().copied());
        Ok(["web-1", "db-1"].iter().all(|host| newest(*host).is_some_and(|of| of > now)).then_some(()))
    })
    .context("web-1 or db-1 fell behind when another agent died")?;
    let agent = system.start_agent(Tier::App, &[])?;
    system.agents.insert(Tier::App as usize, agent);
    wait_for("the new agent's windows", Duration::from_secs(60), || {
        let newest = TraceSums::read(&trace)?.windows.get("app-1").and_then(|w| w.last().copied());
        Ok(newest.is_some_and(|newest| newest > now + 20).then_some(()))
    })?;
    std::thread::sleep(Duration::from_secs(2));

    // And what it is for still works.
    experiment("app-cpu", || {
        let from = unix_ns();
        let scenario = scenario::find("app-cpu").context("a scenario of the table")?;
        let injected = system.lab.inject(&scenario.injection)?;
        let found =
            system.closed_incidents(from, injected.end_unix_ns + 3_000_000_000, Duration::from_secs(30))?;
        let alarming: Vec<_> = found.iter().filter(|incident| is_alarming(incident)).collect();
        assert_eq!(alarming.len(), 1, "{}", briefly(&found));
        assert_eq!(alarming[0]["root"]["host"], "app-1", "{}", briefly(&found));
        Ok(())
    })?;
    load.stop()?;
    load.wait()?;
    Ok(())
}

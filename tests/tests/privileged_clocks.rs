//! Agents whose clocks are wrong, as real processes: the collector finds out by how much and says how sure it is; the lab's chain
//! stays right with them; a replay says the same again.

#![allow(clippy::disallowed_methods, reason = "the test measures with its own clock")]

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::{Lab, LabConfig};
use tailwater_tests::os::clock::unix_ns;
use tailwater_tests::programs::daemons::{
    Collector, Daemon, ENDS_WITHIN, binary, http_get, start_agent, wait_for,
};
use tailwater_tests::stack::Tier;
use tailwater_tests::system::{Provoked, System, host};

const MS: i64 = 1_000_000;
/// What the clocks of agents on loopback must be known to, ns.
const KNOWN_NS: u64 = 5_000_000;

/// A clock that is wrong on purpose.
#[derive(Debug, Clone, Copy)]
struct Wrong {
    shift_ms: i64,
    drift_ppm: i64,
}

impl Wrong {
    fn arguments(self) -> Vec<String> {
        let shift = format!("--clock-shift-ms={}", self.shift_ms);
        vec![shift, format!("--clock-drift-ppm={}", self.drift_ppm)]
    }

    /// Collector less agent after the agent ran for so long: both read the same system clock.
    fn offset_ns(self, ran_ns: u64) -> i64 {
        -(self.shift_ms * MS) - i64::try_from(ran_ns / 1000).unwrap_or(0) * self.drift_ppm / 1000
    }
}

/// What the collector says of a host's clock: offset, bound, drift in ppb; `None` before it has measured.
fn clock(collector: &Collector, host: &str) -> Result<Option<(i64, u64, i64)>> {
    let (_, body) = http_get(collector.http, "/api/v1/agents")?;
    let all: Value = serde_json::from_str(&body)?;
    let list = all.get("agents").unwrap_or(&all).as_array().context("a list of agents")?.clone();
    let Some(agent) = list.iter().find(|a| a["host"] == host) else { return Ok(None) };
    let clock = &agent["clock"];
    if clock["measured"] != true {
        return Ok(None);
    }
    let (offset, error) = (clock["offset_ns"].as_i64(), clock["error_ns"].as_u64());
    let drift = clock["drift_ppb"].as_i64().context("drift_ppb")?;
    Ok(Some((offset.context("offset_ns")?, error.context("error_ns")?, drift)))
}

/// The truth must lie within the stated bound at every look; the bound must become as small as it is meant to be.
fn check_clock(collector: &Collector, host: &str, wrong: Wrong, started_unix_ns: u64) -> Result<()> {
    // When exactly its drift began is known to a second: it started, and attached its programs.
    let unsure_ns = wrong.drift_ppm.unsigned_abs() * 1_000 + 100_000;
    wait_for(&format!("the bound of {host}'s clock to be small"), Duration::from_secs(40), || {
        let Some((offset, error, drift)) = clock(collector, host)? else { return Ok(None) };
        let truth = wrong.offset_ns(unix_ns().saturating_sub(started_unix_ns));
        let off = offset.abs_diff(truth);
        // The estimate is for the newest probe, a second ago at most.
        ensure!(
            off <= error + 2 * unsure_ns,
            "{host}: the offset is said to be {offset} +- {error} ns, it is {truth}"
        );
        let drift_known = wrong.drift_ppm == 0 || drift.abs_diff(-wrong.drift_ppm * 1000) <= 100_000;
        if error > KNOWN_NS || off > KNOWN_NS || !drift_known {
            return Ok(None);
        }
        println!("{host}: {offset} +- {error} ns, off by {off}, drift {drift} ppb");
        Ok(Some(()))
    })
}

#[test]
fn privileged_the_collector_finds_out_how_wrong_an_agents_clock_is() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let collector = Collector::start(folder.path(), &[])?;
    let wrong = [(-200, 0), (-70, 0), (35, 0), (200, 0), (-120, 200), (0, -200)]
        .map(|(shift_ms, drift_ppm)| Wrong { shift_ms, drift_ppm });
    // One cheap signal each: it is the clocks that are tested.
    let others = "run_queue,block_io,memory,accept_queue,requests,calls,retransmits,throttling";
    let mut agents: Vec<(String, Wrong, u64, Daemon)> = Vec::new();
    for (n, wrong) in wrong.into_iter().enumerate() {
        let mut arguments = wrong.arguments();
        arguments.push(format!("--disabled-signals={others}"));
        let name = format!("clock-{n}");
        let started = unix_ns();
        let agent = start_agent(folder.path(), &collector.grpc_url(), &name, None, &arguments)?;
        agents.push((name, wrong, started, agent));
    }
    for (name, wrong, started, agent) in &mut agents {
        check_clock(&collector, name, *wrong, *started)
            .with_context(|| format!("{name}: {:?}\n{}", agent.exited(), agent.output()))?;
    }
    let (_, metrics) = http_get(collector.http, "/metrics")?;
    for name in ["tailwater_agent_clock_offset_seconds", "tailwater_agent_clock_error_seconds"] {
        ensure!(metrics.contains(&format!("{name}{{host=\"clock-0\"}}")), "{name} in {metrics}");
    }
    Ok(())
}

#[test]
fn privileged_wrong_clocks_change_neither_chain_nor_times() -> Result<()> {
    let wrong = |tier| match tier {
        Tier::Web => Wrong { shift_ms: -200, drift_ppm: 0 },
        Tier::App => Wrong { shift_ms: 35, drift_ppm: 200 },
        _ => Wrong { shift_ms: 200, drift_ppm: 0 },
    };
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("run.trace");
    let lab = experiment("the lab starts", || Lab::start(LabConfig::default()))?;
    let record = ["--record".to_owned(), trace.display().to_string()];
    // Asked for right before an agent is started.
    let started = RefCell::new(BTreeMap::new());
    let arguments = |tier| {
        started.borrow_mut().insert(host(tier), unix_ns());
        Some(wrong(tier).arguments())
    };
    let mut system = System::around_with(lab, folder.path(), &record, arguments)?;
    let started = started.into_inner();

    let incident = experiment("db-io", || {
        // Past the first seconds, in which the clocks are found out.
        let Provoked { injected, truth, incident, told_packets } =
            system.provoke("db-io", 12_000, Duration::from_secs(5))?;

        assert_eq!(incident["kind"], "upstream_ctqo", "{incident:#}");
        assert_eq!(incident["root"]["host"], "db-1", "{incident:#}");
        assert_eq!(incident["root"]["resource"], "io", "{incident:#}");
        assert_eq!(incident["root"]["culprits"][0]["comm"], "logflush", "{incident:#}");
        let hops: Vec<&str> =
            incident["hops"].as_array().into_iter().flatten().filter_map(|h| h["host"].as_str()).collect();
        assert_eq!(hops, ["web-1", "app-1", "db-1"], "{incident:#}");

        // Times: what clocks 400 ms apart would have made impossible.
        let ns = |value: &Value| value.as_u64().context("a time");
        let began = ns(&incident["root"]["start_unix_ns"])?.abs_diff(injected.start_unix_ns) / 1_000_000;
        println!("root onset error {began} ms, clocks agree within {} ns", incident["clock_error_ns"]);
        assert!(began <= 150, "the root began {began} ms away from the injection: {incident:#}");
        for drop in incident["drops"].as_array().into_iter().flatten() {
            let first = ns(&drop["first_unix_ns"])?;
            assert!(first + 50_000_000 >= injected.start_unix_ns, "dropped before its cause: {incident:#}");
        }
        assert!(ns(&incident["clock_error_ns"])? <= 2 * KNOWN_NS, "{incident:#}");
        for hop in incident["hops"].as_array().into_iter().flatten() {
            assert_ne!(hop["order_to_root"], "before", "the clocks contradict the flow: {incident:#}");
        }
        let kernel = truth.web.dropped();
        assert!(
            kernel > 0 && told_packets.abs_diff(kernel) * 50 <= kernel,
            "drops {told_packets}, the kernel counted {kernel}"
        );
        Ok(incident)
    })?;
    for tier in [Tier::Web, Tier::App, Tier::Db] {
        let started = started.get(host(tier)).context("an agent for each tier")?;
        check_clock(&system.collector, host(tier), wrong(tier), *started)?;
    }

    // The estimates that were used are part of what was recorded.
    for agent in &mut system.agents {
        agent.terminate(ENDS_WITHIN)?;
    }
    let id = incident["id"].as_str().context("an id")?;
    // Whole, as it is replayed: whoever lists incidents gets less.
    let (status, body) = http_get(system.collector.http, &format!("/api/v1/incidents/{id}"))?;
    ensure!(status == 200, "{body}");
    let whole: Value = serde_json::from_str(&body)?;
    system.collector.daemon.terminate(ENDS_WITHIN)?;
    let replayed = replay(&trace, &[])?;
    let again = replayed.lines().find(|line| line.contains(id)).context("the replay has the incident")?;
    let again: Value = serde_json::from_str(again)?;
    for part in ["kind", "root", "hops", "drops", "clock_error_ns", "order_unknown"] {
        assert_eq!(again[part], whole[part], "{part} of the replay");
    }
    assert_eq!(replayed, replay(&trace, &["--shuffle", "7"])?, "in another order of arrival");
    Ok(())
}

fn replay(trace: &std::path::Path, extra: &[&str]) -> Result<String> {
    let out = Command::new(binary("tailwater")?).arg("replay").arg(trace).args(extra).output()?;
    ensure!(out.status.success(), "replay: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8(out.stdout)?)
}

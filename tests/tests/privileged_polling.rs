//! Agents that load no kernel program: on the real three tiers they poll, say so, count every dropped packet, and name the root or nobody; and they
//! leave out what they are asked to.

#![allow(clippy::disallowed_methods, reason = "the test measures with its own clock")]

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::{Lab, LabConfig};
use tailwater_tests::programs::daemons::{Daemon, binary, free_port, http_get, start_agent, wait_for};
use tailwater_tests::system::System;

const SAMPLED: [&str; 5] = ["accept_queue", "block_io", "cpu", "memory", "run_queue"];

fn sampled(signals: &Value) -> BTreeSet<String> {
    let signals = signals.as_array().into_iter().flatten();
    let polled = signals.filter(|s| s["sampled"] == true && s["covered"] == true);
    polled.filter_map(|s| s["signal"].as_str().map(ToOwned::to_owned)).collect()
}

/// Whoever may not load programs polls by itself, without being told to.
#[test]
fn privileged_without_the_capability_the_agent_polls() -> Result<()> {
    let all = "-bpf,-perfmon,-sys_admin,-sys_resource,-net_admin,-sys_ptrace,-dac_read_search";
    let output = Command::new("setpriv")
        .args(["--bounding-set", all, "--inh-caps", all])
        .arg(binary("tailwater-agent")?)
        .args(["doctor", "--json"])
        .output()
        .context("setpriv of util-linux")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text)
        .with_context(|| format!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))?;
    assert_eq!(sampled(&report["signals"]), SAMPLED.map(ToOwned::to_owned).into(), "{report:#}");
    let requests = report["signals"].as_array().into_iter().flatten().find(|s| s["signal"] == "requests");
    let requests = requests.context("requests")?;
    assert_eq!(requests["covered"], false, "{requests:#}");
    assert!(requests["remedy"].as_str().is_some_and(|r| r.contains("CAP_BPF")), "{requests:#}");
    Ok(())
}

#[test]
fn privileged_agents_that_poll_name_the_root_or_nobody() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lab = experiment("the lab starts", || Lab::start(LabConfig::default()))?;
    let system = System::around_with(lab, folder.path(), &[], |_| Some(vec!["--poll-only".to_owned()]))?;
    // What is covered follows the first greeting within a second.
    wait_for("all agents to say that they poll", Duration::from_secs(30), || {
        let (_, agents) = http_get(system.collector.http, "/api/v1/agents")?;
        let agents: Value = serde_json::from_str(&agents)?;
        let agents = agents["agents"].as_array().context("agents")?;
        let expected: BTreeSet<String> = SAMPLED.map(ToOwned::to_owned).into();
        let all = agents.len() == 3 && agents.iter().all(|agent| sampled(&agent["coverage"]) == expected);
        Ok(all.then_some(()))
    })?;

    // What was short can be seen by polling; a process that stands, or waits for a lock, cannot.
    let cells = [
        ("app-cpu", "app-1", Some("cpu_neighbour")),
        ("db-io", "db-1", Some("io")),
        ("app-pause", "app-1", None),
        ("web-burst", "web-1", None),
    ];
    for (cell, host, resource) in cells {
        experiment(cell, || {
            let provoked = system.provoke(cell, 10_000, Duration::from_secs(4))?;
            let (incident, root) = (&provoked.incident, &provoked.incident["root"]);
            let named = (root["host"].as_str(), root["resource"].as_str());
            match resource {
                Some(resource) => assert_eq!(named, (Some(host), Some(resource)), "{incident:#}"),
                None => assert!(named.0 == Some(host) || named.1 == Some("unexplained"), "{incident:#}"),
            }
            let true_packets = provoked.truth.web.dropped();
            assert_eq!(
                provoked.told_packets, true_packets,
                "packets, as ListenDrops counts them: {incident:#}"
            );
            assert!(incident["title"].as_str().is_some_and(|t| !t.contains("0 workers")), "{incident:#}");
            Ok(())
        })?;
    }
    Ok(())
}

/// What the agent of `host` covers by now, by the collector's word.
fn covered(http: SocketAddr, host: &str) -> Result<BTreeSet<String>> {
    let agents: Value = serde_json::from_str(&http_get(http, "/api/v1/agents")?.1)?;
    let of_host = agents["agents"].as_array().into_iter().flatten().find(|agent| agent["host"] == host);
    Ok(of_host.map(|agent| sampled(&agent["coverage"])).unwrap_or_default())
}

/// Fails if the collector's `[[agents]]` does not reach a real agent, reaches one of no table or one whose operator refuses it, or takes back what an
/// agent's operator left out.
#[test]
fn privileged_an_agent_leaves_out_what_its_operator_and_its_collector_leave_out() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tailwater.toml");
    std::fs::write(&file, "[[agents]]\nhosts = [\"web-*\"]\ndisabled_signals = [\"block_io\"]\n")?;
    let http = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let url = format!("unix://{}", folder.path().join("agents.sock").display());
    let mut command = Command::new(binary("tailwater")?);
    command.arg("serve").args(["--grpc", &url]).args(["--http", &http.to_string()]);
    command.arg("--config").arg(&file).arg("--data").arg(folder.path().join("data"));
    let _collector = Daemon::spawn("tailwater serve", command, folder.path().join("collector.log"))?;
    wait_for("the collector to be ready", Duration::from_secs(20), || {
        Ok(http_get(http, "/readyz").is_ok_and(|(code, _)| code == 200).then_some(()))
    })?;
    let own = ["--poll-only", "--disabled-signals", "memory"].map(ToOwned::to_owned);
    let mut refuses = own.to_vec();
    refuses.extend(["--take-configuration", "false"].map(ToOwned::to_owned));
    // First, so that it was asked before the one whose answer is waited for.
    let refusing = start_agent(folder.path(), &url, "web-2", None, &refuses)?;
    let _web = start_agent(folder.path(), &url, "web-1", None, &own)?;
    let _other = start_agent(folder.path(), &url, "db-1", None, &own)?;
    let expected = |left_out: &[&str]| -> BTreeSet<String> {
        SAMPLED.into_iter().filter(|signal| !left_out.contains(signal)).map(ToOwned::to_owned).collect()
    };
    // What is covered follows what was asked within a second or two.
    wait_for("all to cover what they are to", Duration::from_secs(20), || {
        let own = expected(&["memory"]);
        let as_asked = covered(http, "web-1")? == expected(&["memory", "block_io"]);
        let as_own = covered(http, "db-1")? == own && covered(http, "web-2")? == own;
        let refused = refusing.output().contains("take_configuration = false");
        Ok((as_asked && as_own && refused).then_some(()))
    })
}

//! `make bench`: measures what the agent costs and prints one table. See `tailwater_tests::bench` for the method of each figure.

use anyhow::{Context, Result};
use clap::Parser;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tailwater_tests::bench::alert_latency::{self, Plan};
use tailwater_tests::bench::tails::{self, Agents};
use tailwater_tests::bench::throughput::{self, Shape};
use tailwater_tests::bench::wrk::Nginx;
use tailwater_tests::bench::{kernel_price, median, user_price, wire_price};
use tailwater_tests::console::failure;
use tailwater_tests::programs::daemons::{Collector, Daemon, http_get, start_agent, wait_for};
use tailwater_tests::supervise::supervise;

/// Measures the agent's price on this machine. Run it with nothing else running.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seconds per measurement.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Pairs of runs without and with the agent.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Only these parts: kernel, user, throughput, wrk, tails, wire, latency.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// Requests a second of a server.
type Rate<'a> = &'a dyn Fn(Shape) -> Result<f64>;

fn agent_ready(folder: &Path, collector: &Collector) -> Result<Daemon> {
    let agent = start_agent(folder, &collector.grpc_url(), "bench", None, &[])?;
    wait_for("the agent's first windows", Duration::from_secs(20), || {
        let (_, body) = http_get(collector.http, "/api/v1/agents")?;
        Ok(body.contains("\"bench\"").then_some(()))
    })?;
    // The first seconds hold the walk over sockets and cgroups that a running agent has behind it.
    std::thread::sleep(Duration::from_secs(3));
    Ok(agent)
}

/// First drops until their webhook, on the machine as it is and beside two spinners.
fn latency() -> Result<()> {
    for spinners in [0, 2] {
        let measured = alert_latency::measure(Plan { listeners: 40, rounds: 6, spinners })?;
        println!(
            "first drop to webhook, {spinners} spinners in a cgroup of equal weight: {}",
            measured.said()
        );
        for slow in measured.episodes.iter().filter(|e| e.latency_ms().is_some_and(|ms| ms > 50.0)) {
            let (version, ms) = (slow.heard.map(|(_, version)| version), slow.latency_ms());
            println!("  slow: {:.1} ms, version {}", ms.unwrap_or(f64::NAN), version.unwrap_or_default());
        }
    }
    Ok(())
}

/// Pairs of runs, for a percentile of a few thousand requests to be worth something.
const TAIL_PAIRS: usize = 10;

/// What a request takes at half of what three tiers can serve, beside agents and the collector on the same CPUs.
fn longer_answers(length: Duration, agents: Agents) -> Result<()> {
    let folder = tempfile::tempdir().context("a folder for logs")?;
    let measured = tails::measure(TAIL_PAIRS, length, agents, folder.path())?;
    let of = |f: &dyn Fn(&tails::Pair) -> f64| median(&mut measured.pairs.iter().map(f).collect::<Vec<_>>());
    println!(
        "a request at {:.0} a second, half of what three tiers can serve, {agents:?}, {TAIL_PAIRS} alternating pairs ({:.2} % stolen, {} of them not answered):",
        measured.rate_per_second,
        100.0 * of(&|p| p.stolen_ratio),
        measured.pairs.iter().map(|p| p.failed).sum::<usize>(),
    );
    for (n, percentile) in tails::PERCENTILES.iter().enumerate() {
        let ratios: Vec<f64> = measured.pairs.iter().map(|p| p.with_ms[n] / p.without_ms[n]).collect();
        let (low, high) = ratios.iter().fold((f64::MAX, f64::MIN), |(l, h), r| (l.min(*r), h.max(*r)));
        println!(
            "  p{:<5} {:.3} of what it is without ({low:.3} to {high:.3}; {:.2} ms without, {:.2} ms with)",
            percentile * 100.0,
            of(&|p| p.with_ms[n] / p.without_ms[n]),
            of(&|p| p.without_ms[n]),
            of(&|p| p.with_ms[n]),
        );
    }
    println!(
        "  meanwhile the collector took {:.3} CPUs, all agents {:.3}",
        of(&|p| p.collector_cores),
        of(&|p| p.agents_cores)
    );
    Ok(())
}

/// What is kept of a rate with the agent beside it, in words.
fn kept(
    rounds: usize,
    folder: &Path,
    collector: &Collector,
    rate: &dyn Fn() -> Result<f64>,
) -> Result<String> {
    let (mut ratios, mut baselines) = (Vec::new(), Vec::new());
    // Alternating, so that a slow drift of the machine falls on both sides alike.
    for _ in 0..rounds {
        let before = rate()?;
        let agent = agent_ready(folder, collector)?;
        let with = rate()?;
        drop(agent);
        let without = f64::midpoint(before, rate()?);
        ratios.push(with / without);
        baselines.push(without);
    }
    let (low, high) = ratios.iter().fold((f64::MAX, f64::MIN), |(l, h), r| (l.min(*r), h.max(*r)));
    Ok(format!(
        "{:.3} of the baseline (median of {rounds}, {low:.3} to {high:.3}; {:.0} requests a second without)",
        median(&mut ratios),
        median(&mut baselines),
    ))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    supervise("bench", || failure::run("bench", None, || bench(&arguments)))
}

fn bench(arguments: &Arguments) -> Result<()> {
    let wanted = |part: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == part);
    if wanted("latency") {
        latency()?;
        if arguments.only.len() == 1 {
            return Ok(());
        }
    }
    let length = Duration::from_secs(arguments.seconds);
    if wanted("tails") {
        longer_answers(length, Agents::One)?;
        longer_answers(length, Agents::OnePerTier)?;
        if arguments.only.len() == 1 {
            return Ok(());
        }
    }
    let folder = tempfile::tempdir().context("a folder for logs")?;
    let trace = folder.path().join("bench.trace");
    let collector = Collector::start(folder.path(), &["--record".into(), trace.display().to_string()])?;

    if wanted("kernel") {
        let agent = agent_ready(folder.path(), &collector)?;
        println!("kernel side, mean ns per run (kernel.bpf_stats_enabled, whose own cost is included):");
        for (name, price) in kernel_price::measure(agent.pid(), length)? {
            if let Some(mean_ns) = price.ns.checked_div(price.runs) {
                println!("  {name:<24} {mean_ns:>6} ns   {:>9} runs", price.runs);
            }
        }
    }
    if wanted("user") {
        let workloads = user_price::Workloads::start(50)?;
        user_price::start_pairs(50)?;
        let agent = agent_ready(folder.path(), &collector)?;
        let usage = user_price::watch(agent.pid(), length * 3)?;
        println!(
            "user side, 20 drains a second, 50 workloads, 50 listeners and 50 edges: {:.2} % of one core, {:.1} MB resident",
            usage.cpu_ratio * 100.0,
            usage.resident_bytes as f64 / 1e6,
        );
        drop(workloads);
    }
    if wanted("throughput") {
        let site = tempfile::tempdir().context("a folder for Apache")?;
        std::fs::set_permissions(site.path(), std::fs::Permissions::from_mode(0o755))?;
        let apache = throughput::Apache::start(site.path())?;
        let servers: [(&str, Rate<'_>); 2] = [
            ("Apache httpd", &|shape| apache.rate(shape, length / 2)),
            ("smallest server", &|shape| throughput::smallest(shape, length / 2)),
        ];
        for (server, rate) in servers {
            for shape in [Shape::KeepAlive, Shape::ConnectionPerRequest] {
                let kept = kept(arguments.rounds, folder.path(), &collector, &|| rate(shape))?;
                println!("throughput at saturation, {server}, {shape:?}: {kept}");
            }
        }
    }
    if wanted("wrk") {
        let site = tempfile::tempdir().context("a folder for nginx")?;
        let nginx = Nginx::start(site.path())?;
        let connections = nginx.most(length / 5)?;
        let rate = || nginx.rate(connections, length / 2);
        let kept = kept(arguments.rounds, folder.path(), &collector, &rate)?;
        println!("the most that wrk gets out of nginx, over {connections} connections: {kept}");
    }
    drop(collector);
    if wanted("wire") {
        let price = wire_price::of_trace(&trace)?;
        println!(
            "on the wire: {:.2} bytes per value ({} values, {} batches); of values that are not zero {:.2}",
            price.bytes_per_value(),
            price.values,
            price.batches,
            price.bytes_per_nonzero_value(),
        );
    }
    Ok(())
}

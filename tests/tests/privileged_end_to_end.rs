//! The whole path on real servers and real drops: lab → agents → collector → incidents, judged against the kernel's own
//! counters, the injectors' own clocks and the load generator's own log.

#![allow(clippy::disallowed_methods, reason = "the test measures with its own clock")]

use anyhow::Result;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::{Lab, LabConfig};
use tailwater_tests::os::clock::unix_ns;
use tailwater_tests::programs::daemons::{ENDS_WITHIN, binary, http_get};
use tailwater_tests::stack::Tier;
use tailwater_tests::system::{Provoked, System, briefly, is_alarming};

/// The usual level is known by then, from the minute before.
const SETTLED: Duration = Duration::from_secs(2);
const LOAD_MS: u64 = 9_000;

fn hop<'a>(incident: &'a Value, host: &str) -> &'a Value {
    incident["hops"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|hop| hop["host"] == host)
        .unwrap_or_else(|| panic!("no hop at {host}: {}", briefly(std::slice::from_ref(incident))))
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// The drops that are told of the web tier's listener against the kernel's own count of the same socket.
fn check_drops(outcome: &Provoked) {
    let counted = outcome.told_packets;
    let truth = outcome.truth.web.dropped();
    println!(
        "  packets dropped: reported {counted}, ListenDrops {truth}, ListenOverflows {}, sk_drops {}",
        outcome.truth.web.listen_overflows, outcome.truth.web.sk_drops
    );
    assert!(truth > 0, "the injection must really overflow the web tier");
    assert!(counted.abs_diff(truth) * 50 <= truth, "drops {counted}, the kernel counted {truth}");
}

fn check_root_window(outcome: &Provoked) {
    let root = &outcome.incident["root"];
    let start = number(root, "start_unix_ns");
    let onset_error_ms = start.abs_diff(outcome.injected.start_unix_ns) / 1_000_000;
    println!("  root onset error: {onset_error_ms} ms");
    assert!(onset_error_ms <= 250, "root began {onset_error_ms} ms away from the injection");
}

/// From the first drop to the first message that names the root.
fn check_verdict_time(system: &System, outcome: &Provoked) {
    let id = &outcome.incident["id"];
    let first_drop = outcome.incident["drops"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|drop| number(drop, "first_unix_ns"))
        .min()
        .expect("drops");
    let deliveries = system.receiver.deliveries();
    let named = deliveries
        .iter()
        .find(|delivery| {
            let incident = delivery.body.get("data").unwrap_or(&delivery.body);
            let incident = incident.get("incident").unwrap_or(incident);
            incident["id"] == *id
                && incident["root"]["host"] == outcome.incident["root"]["host"]
                && incident["root"]["resource"] == outcome.incident["root"]["resource"]
        })
        .unwrap_or_else(|| panic!("no message names the root of {id}: {} came", deliveries.len()));
    let took_ms = named.received_unix_ns.saturating_sub(first_drop) / 1_000_000;
    println!("  root named {took_ms} ms after the first drop");
    assert!(took_ms <= 1_500, "the root was named {took_ms} ms after the first drop");
}

/// The slowest requests of the web tier, and where they were: some of them waited for a call to the application that is told from there, too. Which thread of
/// Apache read a request and called for it is known, as each has one at a time.
fn check_slowest(system: &System, outcome: &Provoked) -> Result<()> {
    let id = outcome.incident["id"].as_str().unwrap_or_default();
    let (status, body) = http_get(system.collector.http, &format!("/api/v1/incidents/{id}"))?;
    anyhow::ensure!(status == 200, "{body}");
    let whole: Value = serde_json::from_str(&body)?;
    let web = hop(&whole, "web-1");
    let slowest = web["slowest"].as_array().map(Vec::as_slice).unwrap_or_default();
    let took: Vec<u64> = slowest.iter().map(|of| number(of, "took_ms")).collect();
    println!("  slowest requests of the web tier: {took:?} ms");
    assert!((1..=20).contains(&took.len()) && took.is_sorted_by(|a, b| a >= b), "{web:#}");
    assert!(took.iter().all(|ms| *ms >= 200), "{took:?}");
    let spent = |of: &Value| number(of, "retried_ms") + number(of, "unread_ms") + number(of, "inside_ms");
    let calls = slowest
        .iter()
        .flat_map(|of| of["calls"].as_array().into_iter().flatten().map(move |call| (of, call)));
    let mut followed = calls.filter(|(_, call)| call["host"] == "app-1" && call["there"].is_object());
    let (of, call) = followed.next().unwrap_or_else(|| panic!("none is told from the application: {web:#}"));
    println!(
        "  of {} ms {} in a call to the application, which had it for {} ms",
        spent(of),
        call["took_ms"],
        spent(&call["there"])
    );
    // Each number is rounded, and the clocks of hooks differ by a moment.
    assert!(spent(&call["there"]) <= number(call, "took_ms") + 5, "{of:#}");
    assert!(number(call, "after_ms") + number(call, "took_ms") <= number(of, "inside_ms") + 5, "{of:#}");
    let listed = hop(&outcome.incident, "web-1")["slowest"].as_array().map_or(0, Vec::len);
    assert_eq!(listed, 1, "whoever lists incidents gets the slowest one");
    Ok(())
}

/// A request that takes so long has waited in a queue that was filled to its limit nearly: it holds 280 ms of arrivals.
const QUEUED_US: u64 = 200_000;

/// A minute of load without injection must be a minute without alarm. Where the kernel really dropped an alarm is right, but then the
/// minute was not quiet and proves nothing.
fn quiet_minute(system: &System) -> Result<()> {
    let from = unix_ns();
    let before = system.lab.truth()?;
    let summary = system.lab.load(&system.lab.default_load(60_000))?.wait()?.summary;
    let dropped = system.lab.truth()?.since(&before).web.dropped();
    let alarms: Vec<Value> =
        system.incidents_between(from, unix_ns())?.into_iter().filter(is_alarming).collect();
    println!("quiet minute: {summary:?}, drops {dropped}");
    anyhow::ensure!(
        dropped == 0,
        "without an injection the kernel dropped {dropped} (a machine that stalls does); told of it: {}",
        briefly(&alarms)
    );
    // Without a drop only a queue that came near its limit may be told, and then requests waited in it.
    anyhow::ensure!(
        alarms.is_empty() || summary.max_us >= QUEUED_US,
        "nothing happened, and this was reported: {}",
        briefly(&alarms)
    );
    Ok(())
}

fn replay(trace: &std::path::Path, extra: &[&str]) -> Result<Vec<u8>> {
    let out = Command::new(binary("tailwater")?).arg("replay").arg(trace).args(extra).output()?;
    anyhow::ensure!(out.status.success(), "replay: {}", String::from_utf8_lossy(&out.stderr));
    Ok(out.stdout)
}

#[test]
fn privileged_two_millibottlenecks_are_named_and_a_quiet_minute_is_quiet() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("run.trace");
    let mut system = experiment("the system starts", || {
        let lab = Lab::start_logging(LabConfig::default(), Some(folder.path().join("servers")))?;
        let record = ["--record".into(), trace.display().to_string()];
        // Where the CPU will be taken an agent tells by which code.
        let arguments = |tier| Some(if tier == Tier::App { vec!["--stacks".to_owned()] } else { Vec::new() });
        System::around_with(lab, folder.path(), &record, arguments)
    })?;

    experiment("a quiet minute", || quiet_minute(&system))?;
    sizes_rest_on_what_was_read_and_seen(&system)?;

    experiment("app-cpu", || cpu_is_taken(&system))?;
    experiment("db-io", || disk_is_busy(&system))?;

    // Everything ends when told to, and what was recorded says the same again.
    for agent in &mut system.agents {
        let status = agent.terminate(ENDS_WITHIN)?;
        assert!(status.success(), "agent: {status}\n{}", agent.output());
    }
    let live: Vec<String> = system.collector.incidents()?.iter().map(|i| i["id"].to_string()).collect();
    let status = system.collector.daemon.terminate(ENDS_WITHIN)?;
    assert!(status.success(), "collector: {status}\n{}", system.collector.daemon.output());
    let first = replay(&trace, &[])?;
    assert!(!first.is_empty());
    assert_eq!(first, replay(&trace, &[])?, "replaying twice");
    for seed in ["1", "2", "3"] {
        assert!(
            first == replay(&trace, &["--shuffle", seed])?,
            "replaying in another order of arrival, seed {seed}"
        );
    }
    let replayed = String::from_utf8(first)?;
    for id in live {
        assert!(replayed.contains(&id), "the replay has the incident {id}");
    }
    Ok(())
}

/// What each server is set up for is read from its own files, and a minute that filled no CPU lets nobody make a pool smaller.
fn sizes_rest_on_what_was_read_and_seen(system: &System) -> Result<()> {
    let (status, body) = http_get(system.collector.http, "/api/v1/advice")?;
    anyhow::ensure!(status == 200, "{body}");
    let advice: Value = serde_json::from_str(&body)?;
    for (tier, key) in
        [(Tier::Web, "MaxRequestWorkers"), (Tier::App, "maxThreads"), (Tier::Db, "max_connections")]
    {
        let port = u64::from(system.lab.stack().listener(tier).port());
        let told = advice["tiers"].as_array().into_iter().flatten();
        let told = told.filter(|of| of["host"] == tier.host() && of["port"] == port).collect::<Vec<_>>();
        anyhow::ensure!(told.len() == 1, "{} lines for {}: {body}", told.len(), tier.name());
        println!("  {}", told[0]["sentence"]);
        assert_eq!(
            number(told[0], "limit"),
            u64::from(system.lab.config().limits(tier).workers),
            "{}",
            told[0]
        );
        let set_by = told[0]["limit_set_by"].as_str().unwrap_or_default();
        assert!(set_by.starts_with(key) && set_by.contains(" in /"), "{set_by}");
        let class = told[0]["pool"]["class"].as_str();
        assert!(matches!(class, None | Some("extrapolated")), "{}", told[0]);
    }
    Ok(())
}

/// Tomcat's CPU is taken.
fn cpu_is_taken(system: &System) -> Result<()> {
    let cpu = system.provoke("app-cpu", LOAD_MS, SETTLED)?;
    let incident = &cpu.incident;
    assert_eq!(incident["kind"], "upstream_ctqo", "{incident:#}");
    assert_eq!(incident["severity"], "critical");
    assert_eq!(incident["root"]["host"], "app-1", "{incident:#}");
    let resource = incident["root"]["resource"].as_str().unwrap_or_default();
    assert!(resource.starts_with("cpu"), "root resource {resource}: {incident:#}");
    assert_eq!(incident["root"]["culprits"][0]["comm"], "burner", "{incident:#}");
    let code = &incident["root"]["code"][0];
    println!("  code: {code}");
    let is_spinning = |frame: &Value| frame.as_str().is_some_and(|of| of.contains("burner::spin"));
    // It may have ended before an agent that had no CPU came to look at it.
    assert!(code["frames"].as_array().is_none_or(|all| all.iter().any(is_spinning)), "{code:#}");
    let app = hop(incident, "app-1");
    // Exhausted: as many requests as there are workers. Not all of them are read, for a thread needs the CPU to read one.
    let (busy, queued) = (number(app, "workers_busy_max"), number(app, "queued_max"));
    let limit = u64::from(system.lab.config().app.workers);
    println!("  app tier: {queued} requests, {busy} read, {limit} workers");
    assert!(queued * 10 >= limit * 9, "app tier: {queued} requests for {limit} workers: {app}");
    assert!(busy * 2 >= limit, "app tier's workers: {busy} of {limit} busy: {app}");
    check_drops(&cpu);
    check_root_window(&cpu);
    check_verdict_time(system, &cpu);
    check_slowest(system, &cpu)
}

/// MariaDB's disk is kept busy.
fn disk_is_busy(system: &System) -> Result<()> {
    let io = system.provoke("db-io", LOAD_MS, SETTLED)?;
    let incident = &io.incident;
    assert_eq!(incident["kind"], "upstream_ctqo", "{incident:#}");
    assert_eq!(incident["root"]["host"], "db-1", "{incident:#}");
    assert_eq!(incident["root"]["resource"], "io", "{incident:#}");
    assert_eq!(incident["root"]["culprits"][0]["comm"], "logflush", "{incident:#}");
    assert_eq!(hop(incident, "app-1")["role"], "pushback", "{incident:#}");
    check_drops(&io);
    check_root_window(&io);
    check_verdict_time(system, &io);
    Ok(())
}

//! The first incident that the documentation lets a stranger make: its own lines, run as they stand there, beside `tailwater up` on
//! this machine, where everything shares a cgroup. What it promises is held against what was reported and what the kernel counted.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab;
use tailwater_tests::programs::daemons::{ENDS_WITHIN, binary};
use tailwater_tests::programs::one_machine::{self, all, get};
use tailwater_tests::truth::netstat::Netstat;

const LISTENER: &str = "127.0.0.1:8099";
/// What the documentation says of it.
const SERVER: &str = "http.server";
/// What the collector got, for the day on which it counts wrongly.
const RECORDING: &str = "run.trace";
/// "for half a second"
const STOPPED_MS: u64 = 500;

/// The block of the page that holds `line`.
fn block(page: &str, line: &str) -> Result<String> {
    let mut blocks = page.split("```").skip(1).step_by(2);
    let found = blocks.find(|b| b.contains(line)).with_context(|| format!("no block with {line}"))?;
    // What follows the opening fence on its line is the language.
    Ok(found.split_once('\n').map_or("", |(_, lines)| lines).to_owned())
}

fn page() -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collector/docs/start.md");
    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} in {value:#}"))
}

#[test]
fn privileged_the_documented_first_incident_is_what_the_page_says() -> Result<()> {
    // Forty programs are to be started within the half second of the stop.
    experiment("the documented first incident", is_what_the_page_says)
}

fn is_what_the_page_says() -> Result<()> {
    let page = page()?;
    let recipe = block(&page, "python3 -m http.server 8099")?;
    let start = block(&page, "tailwater up")?;
    ensure!(start.contains("tailwater up --data ./data"), "the page starts it otherwise: {start}");
    let folder = tempfile::tempdir()?;
    let (mut up, _) = one_machine::up(folder.path(), &["--record", RECORDING])?;
    let mut netstat = Netstat::open()?;
    let before = netstat.read()?;
    let programs = binary("tailwater")?.parent().context("a program is in a folder")?.to_owned();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let shell =
        Command::new("bash").args(["-c", &recipe]).env("PATH", path).current_dir(folder.path()).output()?;
    let (out, err) = (String::from_utf8_lossy(&shell.stdout), String::from_utf8_lossy(&shell.stderr));
    println!("--- the page's commands printed\n{out}{err}---");
    let dropped = netstat.read()?.listen_drops - before.listen_drops;
    let dropped_here = |i: &Value| all(i, "drops").iter().any(|d| d["listener"] == LISTENER);
    let found = one_machine::incidents(0, dropped_here)?;
    for incident in &found {
        println!("{}\n  {}", incident["title"], incident["root"]["evidence"]);
    }
    ensure!(shell.status.success(), "the page's commands ended with {}: {err}", shell.status);
    let [incident] = &found[..] else { panic!("one stop, one incident: {found:#?}") };

    let root = &incident["root"];
    assert_eq!((&root["resource"], &root["workload"]), (&"pause".into(), &SERVER.into()), "{root:#}");
    assert_eq!((&root["unit"], root["peak"].as_f64()), (&"threads".into(), Some(1.0)), "{root:#}");
    let stood_ms = (number(root, "end_unix_ns") - number(root, "start_unix_ns")) / 1_000_000;
    // Forty programs are started meanwhile, and windows are 50 ms.
    assert!((STOPPED_MS..5 * STOPPED_MS).contains(&stood_ms), "it stood for {stood_ms} ms: {root:#}");

    let [drops] = all(incident, "drops") else { panic!("one listener dropped: {incident:#}") };
    assert_eq!((&drops["listener"], &drops["workload"]), (&LISTENER.into(), &SERVER.into()));
    assert!(dropped > 0, "forty clients overflow a queue of five");
    if number(drops, "count") != dropped {
        // Which window told too many, and what the agent knows that it missed.
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/first-incident.trace");
        std::fs::copy(folder.path().join(RECORDING), &kept)?;
        println!("{:#}\nrecorded in {}", get("/api/v1/agents")?, kept.display());
    }
    assert_eq!(number(drops, "count"), dropped, "what the kernel counted: {drops:#}");
    let [hop] = all(incident, "hops") else { panic!("one server: {incident:#}") };
    assert_eq!(
        (&hop["workload"], &hop["listener"], &hop["role"]),
        (&SERVER.into(), &LISTENER.into(), &"root".into())
    );
    // The kernel holds one more than the limit, and one more for each further CPU: whether there is room is asked without a lock
    // (tcp_v4_syn_recv_sock), and the connection is added later (inet_csk_reqsk_queue_add).
    let (most, limit) = (number(hop, "accept_queue_max"), number(hop, "accept_queue_limit"));
    let cpus = lab::cpus() as u64;
    assert_eq!(limit, 5, "{hop:#}");
    assert!((limit + 1..=limit + cpus).contains(&most), "{most} in a queue of {limit}, {cpus} CPUs: {hop:#}");

    let title = incident["title"].as_str().context("a title")?;
    for part in [
        &format!(" {SERVER}@") as &str,
        ":8099 dropped ",
        &format!("accept queue {most}/{limit}"),
        "stood still from ",
        "its thread was stopped by a signal (SIGSTOP)",
    ] {
        assert!(title.contains(part), "{part:?} in {title}");
    }
    for part in ["tailwater", "burst", "times the usual", "python3@", "curl"] {
        assert!(!title.contains(part), "{part:?} in {title}");
    }
    // `tailwater incidents` and `tailwater explain` of the page say it, too, wherever their lines break.
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.matches("stood still from ").count() >= 2, "what the page's commands printed:\n{out}");

    // Tailwater's own listeners are in the same cgroup: another server, another tier.
    let topology = get("/api/v1/topology")?;
    let owner = |listener: &str| {
        let has = |n: &&Value| all(n, "listeners").iter().any(|l| l == listener);
        all(&topology, "nodes").iter().find(has).map(|n| n["workload"].clone())
    };
    assert_eq!(owner(LISTENER), Some(SERVER.into()), "{topology:#}");
    assert_eq!(owner("127.0.0.1:4780"), Some("tailwater".into()), "{topology:#}");

    up.terminate(ENDS_WITHIN)?;
    Ok(())
}

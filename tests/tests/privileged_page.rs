//! The page as an operator has it open: a real browser watches a lab incident arrive, and what it shows is compared with what
//! `tailwater incidents --json` prints. What the browser does is in `tests/page/incident.mjs`; screenshots go to
//! `target/page-screenshots`.

#![allow(clippy::disallowed_methods, reason = "the test measures with its own clock")]

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::{LabConfig, scenario};
use tailwater_tests::programs::daemons::{binary, http_get, wait_for};
use tailwater_tests::system::{System, briefly};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A script that drives a browser, talked to by lines; killed when dropped.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Browser {
    fn start(script: &str, url: &str) -> Result<Self> {
        let install = Command::new(format!("{REPOSITORY}/tests/page/install.sh")).status()?;
        if !install.success() {
            bail!("tests/page/install.sh: {install}");
        }
        let mut child = Command::new("node")
            .arg(format!("{REPOSITORY}/tests/page/{script}"))
            .args([url, &format!("{REPOSITORY}/target/page-screenshots")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start node")?;
        let to = child.stdin.take().context("its standard input")?;
        let from = BufReader::new(child.stdout.take().context("its standard output")?);
        Ok(Self { child, to, from })
    }

    /// Waits for the line that begins with `word`; its rest.
    fn hear(&mut self, word: &str) -> Result<Value> {
        let mut line = String::new();
        while self.from.read_line(&mut line)? > 0 {
            print!("  page: {line}");
            if let Some((said, rest)) = line.trim().split_once(' ')
                && said == word
            {
                return Ok(serde_json::from_str(rest)?);
            }
            line.clear();
        }
        bail!("the browser ended before it said \"{word}\": {}; what it found is above", self.child.wait()?)
    }

    fn tell(&mut self, value: &Value) -> Result<()> {
        writeln!(self.to, "{value}")?;
        Ok(self.to.flush()?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As `tailwater incidents --json` prints it, once it is closed.
fn closed(system: &System, id: &str) -> Result<Value> {
    wait_for("the incident to close", Duration::from_secs(30), || {
        let out = Command::new(binary("tailwater")?)
            .args(["incidents", "--json", "--collector", &system.collector.http_url()])
            .output()?;
        let text = String::from_utf8(out.stdout)?;
        let all = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        Ok(all.into_iter().find(|i| i["id"] == id && i["state"] == "closed"))
    })
}

#[test]
fn privileged_a_browser_sees_an_incident_arrive_and_shows_it_right() -> Result<()> {
    // Where the machine is away for a while the incident has company, and windows come too late for it.
    experiment("an incident in a browser", seen_in_a_browser)
}

fn seen_in_a_browser() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let system = System::start(LabConfig::default(), folder.path(), &[])?;
    let mut browser = Browser::start("incident.mjs", &system.collector.http_url())?;
    browser.hear("ready")?;
    // As long as a segment of windows, so that what a value takes on disk is measured under load: zeros take next to nothing.
    let (_, load) = system.served_load(62_000, Duration::from_secs(2))?;
    let scenario = scenario::find("db-io").context("a scenario of the table")?;
    let (from, injected) = system.hurt(&scenario.injection)?;
    let arrived = browser.hear("arrived")?;
    load.wait()?;
    let found = system.closed_incidents(from, injected.end_unix_ns, Duration::from_secs(30))?;
    // An early alert may have given way to the incident that its windows tell.
    let id = found
        .iter()
        .filter(|i| i["severity"] == "critical")
        .max_by_key(|i| i["drops"][0]["count"].as_u64())
        .and_then(|i| i["id"].as_str())
        .with_context(|| format!("a critical incident after {arrived}, not: {}", briefly(&found)))?;
    browser.tell(&closed(&system, id)?)?;
    browser.hear("done")?;
    assert!(Path::new(REPOSITORY).join("target/page-screenshots/story-dark.png").exists());
    disk_per_value(&system, folder.path())
}

/// What a minute of three real tiers under load takes on disk, keys, names and files' ends included.
fn disk_per_value(system: &System, folder: &Path) -> Result<()> {
    let (bytes, values, nonzero) = wait_for("a segment of windows", Duration::from_secs(120), || {
        let (_, text) = http_get(system.collector.http, "/metrics")?;
        let of = |what: &str| {
            let name = format!("tailwater_store_{what}_written_total");
            text.lines().find_map(|l| l.strip_prefix(&name)?.trim().parse::<f64>().ok())
        };
        // The values are counted last: as long as one is missing the others are of an earlier moment.
        let all = of("bytes").zip(of("values")).zip(of("nonzero_values"));
        Ok(all.map(|((bytes, values), nonzero)| (bytes, values, nonzero)).filter(|all| all.2 > 0.0))
    })?;
    let segments = std::fs::read_dir(folder.join("data/windows"))?;
    let spans: Vec<_> = segments.map(|s| Ok(s?.file_name())).collect::<Result<_>>()?;
    println!(
        "  on disk: {bytes} bytes for {values} values, {:.2} per value; {nonzero} are not zero, {:.2} per one of those; {spans:?}",
        bytes / values,
        bytes / nonzero
    );
    assert!(bytes <= values, "at most a byte per value: {bytes} for {values}");
    Ok(())
}

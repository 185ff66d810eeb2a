//! The laboratory itself: it serves, counts right, drops when told to and only then, and leaves nothing on the machine,
//! however it ends.
#![allow(clippy::disallowed_methods, reason = "a test's clock is the real one")]
#![allow(clippy::unwrap_used, reason = "what breaks here breaks the test, at this line")]

mod traces;

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::scenario::{self, SCENARIOS};
use tailwater_tests::lab::{Injection, Lab, LabConfig};
use tailwater_tests::load::{LoadPlan, Mode};
use tailwater_tests::os::process::{signal, wait_for};
use tailwater_tests::stack::Tier;
use traces::{nothing_left, traces};

fn open(rate_per_second: f64, duration_ms: u64) -> LoadPlan {
    LoadPlan::new(Mode::Open { rate_per_second }, duration_ms)
}

#[test]
fn privileged_lab_serves_counts_right_and_leaves_nothing() -> Result<()> {
    let before = traces();
    let began = Instant::now();
    // It fits its load to the machine, and says so where it cannot.
    let lab = experiment("the lab starts", || {
        Lab::start(LabConfig { db_general_log: true, ..LabConfig::default() })
    })?;
    println!("the lab was there after {:.1} s", began.elapsed().as_secs_f64());
    assert!(traces().difference(&before).count() >= 10, "the search for traces finds what is there");

    // Each server in a network of its own and under its own cgroup.
    let mut networks = BTreeSet::from([fs::metadata("/proc/self/ns/net")?.ino()]);
    for tier in Tier::ALL {
        let handle = lab.tier(tier);
        for pid in handle.server_cgroup().pids() {
            // One that just ended is nowhere.
            let network = fs::metadata(format!("/proc/{pid}/ns/net"));
            let (Ok(network), Ok(groups)) = (network, fs::read_to_string(format!("/proc/{pid}/cgroup")))
            else {
                continue;
            };
            networks.insert(network.ino());
            let inside = format!("{}/{}", handle.cgroup_path(), lab.stack().workload(tier));
            assert!(groups.lines().all(|line| line.ends_with(&inside)), "{groups}");
        }
    }
    assert_eq!(networks.len(), 4);

    experiment("everybody counts the same", || all_count_the_same(&lab))?;
    experiment("a quota holds", || a_quota_holds(&lab))?;

    drop(lab);
    nothing_left(&before);
    Ok(())
}

/// What the client, the proxy's log, the database's log and the kernel counted is the same.
fn all_count_the_same(lab: &Lab) -> Result<()> {
    let lines = |path| fs::read_to_string(path).map(|text| text.lines().count());
    let log_before = lines(lab.web_access_log())?;
    let reads_before = queries(lab, "SELECT title")?;
    let writes_before = queries(lab, "INSERT INTO comments")?;
    let before_load = lab.truth()?;
    for keep_alive in [false, true] {
        let report = lab.load(&LoadPlan { keep_alive, ..open(300.0, 2_000) })?.wait()?;
        assert!(report.summary.sent > 400, "{:?}", report.summary);
        assert_eq!(report.summary.ok, report.summary.sent, "{:?}", report.summary);
    }
    let sent = 2 * open(300.0, 2_000).arrivals_ns().len();
    wait_for("Apache to log the last request", Duration::from_secs(5), || {
        Ok((lines(lab.web_access_log())? >= log_before + sent).then_some(()))
    })?;
    assert_eq!(lines(lab.web_access_log())?, log_before + sent);
    assert_eq!(queries(lab, "SELECT title")?, reads_before + sent);
    let writes = queries(lab, "INSERT INTO comments")? - writes_before;
    assert!(writes.abs_diff(sent / 5) < sent / 20, "{writes} of {sent} requests wrote");
    let truth = lab.truth()?.since(&before_load);
    assert_eq!(truth.web.accept_queue_limit, u64::from(lab.config().web.backlog));
    assert_eq!(truth.app.accept_queue_limit, u64::from(lab.config().app.backlog));
    for tier in Tier::ALL {
        assert_eq!(truth.tier(tier).listen_drops, 0);
        assert_eq!(truth.tier(tier).dropped(), 0);
        assert!(truth.tier(tier).cpu_usage_ns > 10_000_000, "{truth:?}");
    }
    Ok(())
}

/// And a neighbour in the tier's cgroup is inside it.
fn a_quota_holds(lab: &Lab) -> Result<()> {
    let before_burn = lab.truth()?;
    let burn = Injection::CpuBurn { tier: Tier::App, threads: 2, weight: 1.0, duration_ms: 1_000 };
    let injected = lab.inject(&burn)?;
    let burned = lab.truth()?.since(&before_burn);
    let lasted_ns = injected.end_unix_ns - injected.start_unix_ns;
    assert!(lasted_ns >= 1_000_000_000, "{injected:?}");
    let (used, quota) = (burned.app.cpu_usage_ns as f64 / lasted_ns as f64, lab.config().app.cores);
    assert!((0.67..1.17).contains(&(used / quota)), "used {used} cores of a quota of {quota}");
    assert!(burned.app.throttled_ns > 0);
    let noted = fs::read_to_string(lab.injection_log())?;
    let last = noted.lines().last().context("a line for each injection")?;
    assert!(last.contains(&format!("\"pid\":{}", injected.pid)), "{noted}");
    Ok(())
}

fn queries(lab: &Lab, beginning: &str) -> Result<usize> {
    let log = fs::read(lab.db_general_log())?;
    let wanted = format!("Query\t{beginning}");
    Ok(String::from_utf8_lossy(&log).lines().filter(|line| line.contains(&wanted)).count())
}

#[test]
fn privileged_lab_drops_when_told_to_and_only_then() -> Result<()> {
    let lab = experiment("the lab starts", || Lab::start(LabConfig::default()))?;

    // A machine that stalls drops by itself: what must be shown is that the lab does not.
    experiment("load without an injection", || {
        let before = lab.truth()?;
        let quiet = lab.load(&lab.default_load(10_000))?.wait()?;
        let truth = lab.truth()?.since(&before);
        assert_eq!(truth.web.listen_overflows, 0, "without an injection: {truth:?}");
        assert_eq!((quiet.summary.failed, quiet.summary.vlrt), (0, 0), "{:?}", quiet.summary);
        Ok(())
    })?;

    for name in SCENARIOS {
        experiment(name, || drops_when_told_to(&lab, name))?;
    }
    Ok(())
}

/// The queue of a calm load overflows with the injection and not before it, and everybody is answered in the end.
fn drops_when_told_to(lab: &Lab, name: &str) -> Result<()> {
    let cell = scenario::find(name).context("a cell of the table")?;
    let before = lab.truth()?;
    let watch = lab.watch_drops(Tier::Web, Duration::from_millis(5))?;
    let load = lab.load(&lab.default_load(5_000))?;
    std::thread::sleep(Duration::from_millis(1_500)); // The load's steady state before the injection, not a wait for an event.
    let injected = lab.inject(&cell.injection)?;
    let report = load.wait()?;
    let seen = watch.stop()?;
    let truth = lab.truth()?.since(&before);
    assert!(truth.web.listen_overflows > 0, "{name}: {truth:?}");
    assert!(truth.web.dropped() >= truth.web.listen_overflows, "{name}: {truth:?}");
    assert_eq!(truth.app.listen_overflows + truth.db.listen_overflows, 0, "{name}: {truth:?}");
    assert_eq!(seen.iter().map(|drop| drop.count).sum::<u64>(), truth.web.listen_overflows, "{name}");
    let first = seen.first().context("a drop was seen")?.at_unix_ns;
    assert!(
        first > injected.start_unix_ns,
        "{name}: dropped {} ms before {injected:?}; in all {seen:?}",
        injected.start_unix_ns.saturating_sub(first) / 1_000_000
    );
    assert_eq!(report.summary.failed, 0, "{name}: every request is answered in the end");
    // Each resent SYN cost its request a second. The burst's own requests are not in this report.
    if name != "web-burst" {
        assert!(report.summary.vlrt >= truth.client_syn_retransmits / 2, "{name}: {:?}", report.summary);
    }
    wait_for("the queues to be empty", Duration::from_secs(10), || {
        Ok((lab.truth()?.web.accept_queue == 0).then_some(()))
    })?;
    Ok(())
}

/// `lab up` as its own process; asked to end when dropped.
struct Up {
    child: Child,
    run: String,
    // Held open: a closed pipe would be one more reason for it to end.
    _output: BufReader<ChildStdout>,
}

impl Drop for Up {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = signal(self.child.id().cast_signed(), libc::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

impl Up {
    fn start() -> Result<Self> {
        let lab = env!("CARGO_BIN_EXE_lab");
        let mut child = Command::new(lab).arg("up").stdout(Stdio::piped()).spawn().context("lab up")?;
        let mut output = BufReader::new(child.stdout.take().context("its output")?);
        // Steps that take longer than two seconds say so before.
        let mut said = String::new();
        loop {
            let mut line = String::new();
            if output.read_line(&mut line)? == 0 {
                bail!("lab up ended and had said {said:?}");
            }
            if let Some(run) = line.strip_prefix("lab ").and_then(|rest| rest.strip_suffix(" is up\n")) {
                return Ok(Self { child, run: run.to_owned(), _output: output });
            }
            said.push_str(&line);
        }
    }

    fn guard(&self) -> Result<i32> {
        let wanted = format!("lab\0guard\0{}\0", self.run);
        for entry in fs::read_dir("/proc")?.flatten() {
            if fs::read_to_string(entry.path().join("cmdline")).is_ok_and(|line| line.ends_with(&wanted)) {
                return Ok(entry.file_name().to_string_lossy().parse()?);
            }
        }
        bail!("no guard of run {}", self.run)
    }
}

#[test]
fn privileged_lab_is_gone_after_ctrl_c_and_after_a_crash() -> Result<()> {
    // It is started four times, and gives up where the machine bears no load.
    experiment("a lab that ends, and one that crashes", ends_and_crashes)
}

fn ends_and_crashes() -> Result<()> {
    let before = traces();

    let mut up = Up::start()?;
    signal(up.child.id().cast_signed(), libc::SIGINT)?;
    assert!(up.child.wait()?.success());
    nothing_left(&before);

    // Killed: its guard cleans up at once.
    let mut up = Up::start()?;
    up.child.kill()?;
    up.child.wait()?;
    wait_for("the guard to clean up", Duration::from_secs(30), || {
        Ok(traces().is_subset(&before).then_some(()))
    })?;

    // Killed together with its guard: the next `lab down` does, and leaves a living lab alone.
    let mut up = Up::start()?;
    let mut living = Up::start()?;
    signal(up.guard()?, libc::SIGKILL)?;
    up.child.kill()?;
    up.child.wait()?;
    assert!(traces().iter().any(|trace| trace.contains(&up.run)), "a crash leaves something to clean up");
    let down = Command::new(env!("CARGO_BIN_EXE_lab")).arg("down").output()?;
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    assert!(!traces().iter().any(|trace| trace.contains(&up.run)), "{:#?}", traces());
    assert!(traces().contains(&format!("netns tw-web-{}", living.run)));

    let down = Command::new(env!("CARGO_BIN_EXE_lab")).args(["down", "--all"]).output()?;
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    living.child.wait()?;
    nothing_left(&before);
    Ok(())
}

//! The laboratory on machines that bear less than the one that it was tuned on: it finds out before it sends its load, makes itself
//! smaller, and the same injections overflow the same queue.
#![allow(clippy::disallowed_methods, reason = "a test's clock is the real one")]

use anyhow::{Context, Result};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::spawner::Spawner;
use tailwater_tests::lab::{Lab, LabConfig, scenario};
use tailwater_tests::os::cgroup::{self, Cgroup};
use tailwater_tests::os::process::{sibling_binary, wait_for};
use tailwater_tests::stack::{Stack, Tier};

/// The two of the demo.
const CELLS: [&str; 2] = ["app-cpu", "db-io"];

/// Each cell overflows the front, and nobody else; once more where the machine was taken away, as queues run over then by themselves.
fn overflows_the_front(lab: &Lab) -> Result<()> {
    let fit = lab.fit().context("a lab that was fitted")?;
    println!("{fit}");
    CELLS.iter().try_for_each(|name| experiment(name, || overflow(lab, name)))
}

fn overflow(lab: &Lab, name: &str) -> Result<()> {
    let cell = scenario::find(name).context("a cell of the table")?;
    let before = lab.truth()?;
    let load = lab.load(&lab.default_load(5_000))?;
    std::thread::sleep(Duration::from_millis(1_500)); // The load's steady state before the injection, not a wait for an event.
    let steady = lab.truth()?.since(&before);
    lab.inject(&cell.injection)?;
    let summary = load.wait()?.summary;
    let truth = lab.truth()?.since(&before);
    let dropped = Tier::ALL.map(|tier| truth.tier(tier).listen_overflows);
    println!("{name}: dropped by web, app, db {dropped:?}; {summary:?}");
    wait_for("the queues to be empty", Duration::from_secs(10), || {
        Ok((lab.truth()?.web.accept_queue == 0).then_some(()))
    })?;
    assert_eq!(steady.web.listen_overflows, 0, "{name}: dropped before the injection");
    assert!(dropped[0] > 0, "{name}: {truth:?}");
    assert_eq!(dropped[1..], [0, 0], "{name}: {truth:?}");
    assert_eq!(summary.failed, 0, "{name}: every request is answered in the end");
    Ok(())
}

#[test]
fn privileged_lab_at_half_the_speed_overflows_the_same_queue() -> Result<()> {
    let tuned = LabConfig::of(Stack::Nx0);
    let lab = match experiment("the lab starts at half the speed", || Lab::start(tuned.clone().slower(2.0))) {
        // Measured by the laboratory itself, twice: half of a machine that is itself half of the one where it was tuned. It says so and
        // ends, as it must; what is left of the test is held at a little less.
        Err(error) if format!("{error:#}").contains("CPUs are too slow for it") => {
            println!("{error:#}: now at 0.7 of the speed");
            experiment("the lab starts at 0.7 of the speed", || Lab::start(tuned.clone().slower(1.4)))?
        }
        other => other?,
    };
    let fit = lab.fit().context("a lab that was fitted")?;
    let share = fit.rate_per_second / fit.tuned_per_second;
    assert!((0.15..0.9).contains(&share), "{fit}");
    let (held, of) = (lab.config().web, tuned.web);
    let held = f64::from(held.workers + held.backlog) / f64::from(of.workers + of.backlog);
    assert!((held / share - 1.0).abs() < 0.2, "{held} of the queue for {share} of the load");
    overflows_the_front(&lab)
}

/// A program that wants a CPU all the time, in a cgroup of its own beside the lab's.
struct Spinner {
    child: Child,
    cgroup: &'static str,
    _spawner: Spawner,
}

impl Spinner {
    fn start() -> Result<Self> {
        let cgroup = "/tailwater-test-spinner";
        let group = Cgroup::create(&cgroup::hierarchies()?, cgroup)?;
        let mut command = Command::new(sibling_binary("burner")?);
        command.args(["1", "600000"]).stdin(Stdio::null()).stdout(Stdio::null());
        let spawner = Spawner::start()?;
        let child = spawner.spawn(command, &group, None, libc::SIGKILL)?;
        Ok(Self { child, cgroup, _spawner: spawner })
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Err(error) = cgroup::hierarchies().and_then(|all| cgroup::remove(&all, self.cgroup)) {
            eprintln!("{error:#}");
        }
    }
}

#[test]
fn privileged_lab_beside_a_spinner_overflows_the_same_queue() -> Result<()> {
    let _spinner = Spinner::start()?;
    let lab = experiment("the lab starts beside a spinner", || Lab::start(LabConfig::default()))?;
    overflows_the_front(&lab)
}

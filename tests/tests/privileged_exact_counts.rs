//! Requests received and answered, summed over all windows, against the servers' own logs: equal, to the last one.

#![allow(clippy::disallowed_methods, reason = "the test measures with its own clock")]

use anyhow::Result;
use std::path::Path;
use std::time::Duration;
use tailwater_proto::v1::Metric;
use tailwater_tests::disturbed::experiment;
use tailwater_tests::lab::LabConfig;
use tailwater_tests::load::{LoadPlan, Mode};
use tailwater_tests::programs::daemons::wait_for;
use tailwater_tests::programs::trace_sums::TraceSums;
use tailwater_tests::stack::{Stack, Tier};
use tailwater_tests::system::{System, host};

fn lines(path: &Path) -> Result<u64> {
    Ok(std::fs::read_to_string(path)?.lines().count() as u64)
}

/// Commands in MariaDB's general log: each of them is one packet that the server reads, and all but Quit are answered.
fn general_log(path: &Path) -> Result<(u64, u64)> {
    let text = std::fs::read_to_string(path)?;
    let (mut commands, mut quits) = (0, 0);
    for line in text.lines() {
        let mut fields = line.split('\t');
        let Some(command) = fields.find_map(|field| {
            let word = field.split_whitespace().last()?;
            ["Connect", "Query", "Prepare", "Execute", "Ping", "Init", "Quit", "Close", "Statistics"]
                .contains(&word)
                .then_some(word)
        }) else {
            continue;
        };
        commands += 1;
        quits += u64::from(command == "Quit");
    }
    Ok((commands, quits))
}

fn counts(trace: &Path, tier: Tier) -> Result<(u64, u64, u64)> {
    let sums = TraceSums::read(trace)?;
    let key = (host(tier).to_owned(), u32::from(Stack::Nx0.listener(tier).port()));
    let Some(listener) = sums.listeners.get(&key) else { return Ok((0, 0, 0)) };
    Ok((
        listener.sum(Metric::RequestsReceived),
        listener.sum(Metric::RequestsAnswered),
        listener.sum(Metric::RequestsAborted),
    ))
}

/// The last windows are on their way: waits until the counts have stood still for two seconds.
fn at_rest(trace: &Path) -> Result<()> {
    let mut last = (u64::MAX, u64::MAX);
    wait_for("the last windows", Duration::from_secs(60), || {
        std::thread::sleep(Duration::from_secs(2));
        let now = (counts(trace, Tier::Web)?.0, counts(trace, Tier::Db)?.0);
        let still = now == last;
        last = now;
        Ok(still.then_some(()))
    })
}

#[test]
fn privileged_requests_equal_the_servers_own_logs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("counts.trace");
    let config = LabConfig { web_access_log: true, db_general_log: true, ..LabConfig::default() };
    let system = experiment("the system starts", || {
        System::start(config.clone(), folder.path(), &["--record".into(), trace.display().to_string()])
    })?;
    // What was under way when the agents came is in the logs and not in the windows: count from a moment of rest.
    at_rest(&trace)?;
    for (name, keep_alive) in [("connection per request", false), ("keep-alive", true)] {
        let access_before = lines(&system.lab.web_access_log())?;
        let (commands_before, quits_before) = general_log(&system.lab.db_general_log())?;
        let web_before = counts(&trace, Tier::Web)?;
        let db_before = counts(&trace, Tier::Db)?;
        let plan = LoadPlan { keep_alive, ..LoadPlan::new(Mode::Closed { users: 40, think_ms: 100 }, 8_000) };
        let summary = system.lab.load(&plan)?.wait()?.summary;
        assert_eq!(summary.failed, 0);
        at_rest(&trace)?;
        let access = lines(&system.lab.web_access_log())? - access_before;
        let (commands, quits) = general_log(&system.lab.db_general_log())?;
        let (commands, quits) = (commands - commands_before, quits - quits_before);
        let web = counts(&trace, Tier::Web)?;
        let db = counts(&trace, Tier::Db)?;
        let web = (web.0 - web_before.0, web.1 - web_before.1, web.2 - web_before.2);
        let db = (db.0 - db_before.0, db.1 - db_before.1, db.2 - db_before.2);
        println!(
            "{name}: client {} ok, access log {access}, web received/answered/aborted {web:?}; \
             general log {commands} commands ({quits} quits), db {db:?}",
            summary.ok
        );
        assert_eq!(web.0, access, "{name}: requests received by Apache");
        assert_eq!(web.1, access, "{name}: requests answered by Apache");
        assert_eq!(db.0, commands, "{name}: commands received by MariaDB");
        assert_eq!(db.1, commands - quits, "{name}: commands answered by MariaDB");
    }
    Ok(())
}

//! The packages as an administrator meets them: `apt-get install ./….deb` on a clean Debian whose own systemd is process 1. Both
//! services start without root, agent and collector find each other, `tailwater incidents` answers, one that hangs is started
//! again, and a purge stops both cleanly and leaves nothing behind. Then the same programs as RPM packages, as far as a Debian goes:
//! their scripts run under systemd, an upgrade keeps data and configuration, and removal keeps what was changed.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tailwater_tests::guests::clean_system::CleanSystem;
use tailwater_tests::os::process::run;
use tailwater_tests::programs::daemons::{binary, wait_for};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
const UNITS: [&str; 2] = ["tailwater.service", "tailwater-agent.service"];

/// What the agent keeps of its capabilities once it is attached, as in /proc/PID/status: CAP_BPF, CAP_SYS_PTRACE,
/// CAP_DAC_READ_SEARCH.
const AGENT_KEEPS: u64 = (1 << 39) | (1 << 19) | (1 << 2);
/// With CAP_PERFMON, for attaching.
const AGENT_MAY: u64 = AGENT_KEEPS | (1 << 38);

const FIRST: &str = "0.0.1";
const LATER: &str = "0.0.2";

type Check = fn(&CleanSystem) -> Result<()>;

#[test]
fn privileged_packages_install_start_and_leave_nothing_behind() -> Result<()> {
    let system = CleanSystem::boot()?;
    let said = install(&system, Family::Debian, FIRST)?;
    the_end_says_what_and_where(&said)?;
    for unit in UNITS {
        ensure!(show(&system, unit, "ActiveState")? == "active", "{unit}\n{}", system.state());
        ensure!(show(&system, unit, "UnitFileState")? == "enabled", "{unit}");
    }
    let checks: [(&str, Check); 9] = [
        ("recordings", recordings_come_along),
        ("incidents", |system| system.run(&["tailwater", "incidents", "--json"]).map(drop)),
        ("the agent's windows arrive", windows_arrive),
        ("nobody runs as root", privileges_are_few),
        ("both tell that they are alive", both_tell_that_they_are_alive),
        ("a secret and a hang", a_hang_ends_and_a_secret_is_read),
        ("an upgrade", |system| an_upgrade_keeps_what_is_there(system, Family::Debian)),
        ("purge", purge_leaves_nothing),
        ("RPM packages", rpm_packages_install_upgrade_and_go),
    ];
    for (name, check) in checks {
        check(&system).with_context(|| system.state()).context(name)?;
        println!("{name}: ok");
    }
    Ok(())
}

/// Whose packages.
#[derive(Debug, Clone, Copy)]
enum Family {
    Debian,
    Rpm,
}

/// Builds both packages of a family from the binaries of this build, as a version; where they are.
fn build(family: Family, version: &str, out: &Path) -> Result<Vec<PathBuf>> {
    let folder = match family {
        Family::Debian => "debian",
        Family::Rpm => "rpm",
    };
    let binaries = binary("tailwater")?.parent().context("a folder of binaries")?.to_owned();
    binary("tailwater-agent")?;
    let mut build = Command::new(format!("{DEPLOY}/{folder}/build.sh"));
    build.args(["--quick", "--version", version, "--binaries"]).arg(binaries).arg("--out").arg(out);
    let built: Vec<PathBuf> = run(&mut build)?.lines().map(PathBuf::from).collect();
    ensure!(built.len() == 2, "{built:?}");
    Ok(built)
}

/// Builds both packages as a version and installs them, or upgrades to them; what the package manager said.
fn install(system: &CleanSystem, family: Family, version: &str) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let mut arguments = match family {
        Family::Debian => vec!["apt-get", "install", "--yes", "--no-install-recommends"],
        // What a Debian has of glibc and systemd, rpm knows nothing of.
        Family::Rpm => vec!["rpm", "--upgrade", "--nodeps"],
    };
    let mut paths = Vec::new();
    for built in build(family, version, folder.path())? {
        let name = built.file_name().context("a name")?.to_string_lossy().into_owned();
        // apt reads packages as a user of its own, who may look here.
        let path = format!("/var/tmp/{name}");
        std::fs::copy(&built, system.file(&path))?;
        paths.push(path);
    }
    arguments.extend(paths.iter().map(String::as_str));
    // What comes through a terminal has its line ends.
    let said = system.run(&arguments)?.replace('\r', "");
    println!("{said}\ninstalled: {}", paths.join(", "));
    Ok(said)
}

/// An installation ends with what this machine allows and where the page is.
fn the_end_says_what_and_where(said: &str) -> Result<()> {
    let (_, summary) =
        said.split_once("tailwater-agent doctor says of this machine:\n").context("no summary")?;
    for line in ["  kernel ", "  cgroups ", "  capabilities ", "  signals "] {
        ensure!(summary.contains(line), "{line}: {said}");
    }
    ensure!(said.contains("tailwater: the page is http://127.0.0.1:4780\n"), "{said}");
    Ok(())
}

/// What there is to replay is in the package.
fn recordings_come_along(system: &CleanSystem) -> Result<()> {
    let names = |folder: &Path| -> Result<Vec<_>> {
        let mut names = Vec::new();
        if folder.exists() {
            for entry in std::fs::read_dir(folder)? {
                names.push(entry?.file_name());
            }
        }
        names.sort();
        Ok(names)
    };
    let (ours, theirs) =
        (names(&Path::new(DEPLOY).join("recordings"))?, names(&system.file("/usr/share/tailwater"))?);
    ensure!(ours == theirs, "{ours:?} {theirs:?}");
    Ok(())
}

fn show(system: &CleanSystem, unit: &str, property: &str) -> Result<String> {
    let shown = system.run(&["systemctl", "show", "--value", "--property", property, unit])?;
    Ok(shown.trim().to_owned())
}

/// The collector's answer to a GET; a minimal Debian has no program for that but its shell.
fn get(system: &CleanSystem, path: &str) -> Result<String> {
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/4780; printf 'GET {path} HTTP/1.0\\r\\nHost: 127.0.0.1:4780\\r\\n\\r\\n' >&3; cat <&3"
    );
    let answer = system.run(&["bash", "-c", &script])?;
    let (head, body) = answer.split_once("\r\n\r\n").context("head and body")?;
    ensure!(head.contains(" 200 "), "{path}: {head}\n{body}");
    Ok(body.to_owned())
}

/// Its windows come, and its user and sandbox cost no signal that root without a sandbox has here.
fn windows_arrive(system: &CleanSystem) -> Result<()> {
    let agent = wait_for("windows of the agent", Duration::from_secs(20), || {
        // It may not listen yet.
        let Ok(answer) = get(system, "/api/v1/agents") else { return Ok(None) };
        let answer: Value = serde_json::from_str(&answer)?;
        let agent = &answer["agents"][0];
        let there = agent["connected"] == true && agent["batches"].as_u64() > Some(10);
        Ok(there.then(|| agent.clone()))
    })?;
    ensure!(agent["host"] == "clean", "{agent}");
    let covered = |list: &Value| -> BTreeMap<String, bool> {
        let one = |s: &Value| Some((s["signal"].as_str()?.to_owned(), s["covered"].as_bool()?));
        list.as_array().into_iter().flatten().filter_map(one).collect()
    };
    let doctor: Value = serde_json::from_str(&system.run(&["tailwater-agent", "doctor", "--json"])?)?;
    let (service, root) = (covered(&agent["coverage"]), covered(&doctor["signals"]));
    ensure!(root.values().any(|covered| *covered), "{doctor}");
    for (signal, covered) in &root {
        ensure!(service.get(signal) == Some(covered), "{signal}: {agent}\n{doctor}");
    }
    Ok(())
}

/// A minimal Debian has no program for that either.
fn signal(system: &CleanSystem, signal: &str, pid: &str) -> Result<()> {
    system.run(&["sh", "-c", &format!("kill -{signal} {pid}")]).map(drop)
}

/// Fields of the status of each thread of a unit's main process: capabilities are a thread's own.
fn threads(system: &CleanSystem, unit: &str) -> Result<Vec<BTreeMap<String, String>>> {
    let pid = show(system, unit, "MainPID")?;
    // One that ends meanwhile has no status any more.
    let text = system.run(&[
        "sh",
        "-c",
        &format!("for t in /proc/{pid}/task/*; do cat $t/status 2>/dev/null || true; done"),
    ])?;
    let fields = |thread: &str| {
        let lines = thread.lines().filter_map(|line| line.split_once(':'));
        lines.map(|(k, v)| (k.to_owned(), v.trim().to_owned())).collect()
    };
    Ok(text.split("Name:").skip(1).map(|thread| fields(&format!("Name:{thread}"))).collect())
}

fn privileges_are_few(system: &CleanSystem) -> Result<()> {
    for (unit, keeps, may) in [(UNITS[0], 0, 0), (UNITS[1], AGENT_KEEPS, AGENT_MAY)] {
        let threads = threads(system, unit)?;
        ensure!(threads.len() > 1, "{unit}: {threads:?}");
        for status in threads {
            let field = |name: &str| status.get(name).map(String::as_str).context(name.to_owned());
            let capabilities = |name: &str| Ok::<_, anyhow::Error>(u64::from_str_radix(field(name)?, 16)?);
            ensure!(!field("Uid")?.split_whitespace().any(|uid| uid == "0"), "{unit}: {status:?}");
            ensure!(capabilities("CapEff")? == keeps, "{unit}: {status:?}");
            ensure!(capabilities("CapPrm")? == keeps, "{unit}: {status:?}");
            ensure!(capabilities("CapBnd")? == may, "{unit}: {status:?}");
            // 2: a filter of system calls.
            ensure!(field("Seccomp")? == "2" && field("NoNewPrivs")? == "1", "{unit}: {status:?}");
        }
    }
    Ok(())
}

fn both_tell_that_they_are_alive(system: &CleanSystem) -> Result<()> {
    for unit in UNITS {
        let first = show(system, unit, "WatchdogTimestampMonotonic")?;
        wait_for("a sign of life", Duration::from_secs(30), || {
            Ok((show(system, unit, "WatchdogTimestampMonotonic")? != first).then_some(()))
        })
        .context(unit)?;
        ensure!(show(system, unit, "NRestarts")? == "0", "{unit} was started again");
    }
    Ok(())
}

fn a_hang_ends_and_a_secret_is_read(system: &CleanSystem) -> Result<()> {
    // A file that only the group may read, named in the configuration: the collector does not start unless it can read it.
    let configuration = system.file("/etc/tailwater/tailwater.toml");
    let text = std::fs::read_to_string(&configuration)?;
    let hook = "[[hook]]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:9/\"\nsecret_files = [\"/etc/tailwater/secret\"]\n";
    std::fs::write(&configuration, format!("{text}\n{hook}"))?;
    std::fs::write(system.file("/etc/tailwater/secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")?;
    system.run(&["chmod", "640", "/etc/tailwater/secret"])?;
    let closed = system.try_run(&["systemctl", "restart", "tailwater.service"])?;
    ensure!(!closed.status.success(), "the secret must not be for everybody");
    system.run(&["chgrp", "tailwater-secrets", "/etc/tailwater/secret"])?;

    // A shorter patience, so that the test needs less of its own.
    let drop_in = "mkdir -p /run/systemd/system/tailwater.service.d && \
        printf '[Service]\\nWatchdogSec=10s\\nTimeoutAbortSec=1s\\n' >/run/systemd/system/tailwater.service.d/hang.conf";
    system.run(&["sh", "-c", drop_in])?;
    system.run(&["systemctl", "daemon-reload"])?;
    system.run(&["systemctl", "restart", "tailwater.service"])?;
    let (hung, restarts) = (show(system, UNITS[0], "MainPID")?, show(system, UNITS[0], "NRestarts")?);
    signal(system, "STOP", &hung)?;
    wait_for("the hung collector to be started again", Duration::from_secs(90), || {
        let again = show(system, UNITS[0], "MainPID")? != hung
            && show(system, UNITS[0], "NRestarts")? != restarts
            && show(system, UNITS[0], "ActiveState")? == "active";
        Ok(again.then_some(()))
    })?;
    system.run(&["rm", "-r", "/run/systemd/system/tailwater.service.d"])?;
    system.run(&["systemctl", "daemon-reload"])?;
    system.run(&["systemctl", "restart", "tailwater.service"])?;
    wait_for("the agent to come back", Duration::from_secs(30), || {
        // It may not listen yet.
        let Ok(answer) = get(system, "/api/v1/agents") else { return Ok(None) };
        let answer: Value = serde_json::from_str(&answer)?;
        Ok((answer["agents"][0]["connected"] == true).then_some(()))
    })
}

fn an_upgrade_keeps_what_is_there(system: &CleanSystem, family: Family) -> Result<()> {
    // As the check before left it: with a hook in it.
    let configuration = system.run(&["cat", "/etc/tailwater/tailwater.toml"])?;
    let kept =
        |system: &CleanSystem| system.run(&["sh", "-c", "cd /var/lib/private/tailwater && find . | sort"]);
    let version = |name: &str| match family {
        Family::Debian => system.run(&["dpkg-query", "-W", "-f", "${Version}", name]),
        Family::Rpm => system.run(&["rpm", "-q", "--queryformat", "%{VERSION}", name]),
    };
    let before = kept(system)?;
    let old = (version("tailwater")?, show(system, UNITS[0], "MainPID")?, show(system, UNITS[1], "MainPID")?);
    install(system, family, LATER)?;
    let new = (version("tailwater")?, show(system, UNITS[0], "MainPID")?, show(system, UNITS[1], "MainPID")?);
    ensure!(old.0 != new.0 && old.1 != new.1 && old.2 != new.2, "{old:?} {new:?}");
    for unit in UNITS {
        ensure!(show(system, unit, "ActiveState")? == "active", "{unit}");
    }
    ensure!(
        system.run(&["cat", "/etc/tailwater/tailwater.toml"])? == configuration,
        "the configuration changed"
    );
    let after = kept(system)?;
    let lost: Vec<&str> = before.lines().filter(|file| !after.lines().any(|l| l == *file)).collect();
    // Of SQLite's own files, those of an open database go when it closes; what is being written gets another name when it is.
    let passing = |file: &&str| ["-wal", "-shm", ".tmp"].iter().any(|end| file.contains(end));
    ensure!(lost.iter().all(passing), "lost: {lost:?}");
    ensure!(before.lines().count() > 2, "{before}");
    windows_arrive(system)
}

fn purge_leaves_nothing(system: &CleanSystem) -> Result<()> {
    let clean_ends = |unit: &str| -> Result<usize> {
        system.run(&["journalctl", "--sync"])?;
        let journal = system.run(&["journalctl", "--no-pager", "-o", "cat", "_PID=1"])?;
        Ok(journal.matches(&format!("{unit}: Deactivated successfully.")).count())
    };
    let mut before = Vec::new();
    for unit in UNITS {
        before.push((unit, show(system, unit, "MainPID")?, clean_ends(unit)?));
    }
    system.run(&["rm", "/etc/tailwater/secret"])?;
    print!("{}", system.run(&["apt-get", "purge", "--yes", "tailwater", "tailwater-agent"])?);
    for (unit, pid, ends) in before {
        ensure!(signal(system, "0", &pid).is_err(), "{unit} still runs as {pid}");
        ensure!(clean_ends(unit)? == ends + 1, "{unit} did not end cleanly");
        ensure!(show(system, unit, "LoadState")? == "not-found", "{unit} is still known");
    }
    for path in [
        "/etc/tailwater",
        "/var/lib/tailwater",
        "/var/lib/private/tailwater",
        "/var/lib/tailwater-agent",
        "/var/lib/private/tailwater-agent",
        "/usr/bin/tailwater",
        "/usr/bin/tailwater-agent",
        "/usr/share/doc/tailwater",
        "/lib/systemd/system/tailwater.service",
        "/etc/systemd/system/multi-user.target.wants/tailwater.service",
        "/etc/systemd/system/tailwater.service",
    ] {
        ensure!(system.file(path).symlink_metadata().is_err(), "{path} is left behind");
    }
    Ok(())
}

/// On a system that knows no RPM packages they are files, scripts and a database of their own; the scripts find systemd all the same.
fn rpm_packages_install_upgrade_and_go(system: &CleanSystem) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for package in build(Family::Rpm, FIRST, folder.path())? {
        let needs = run(Command::new("rpm").args(["-qp", "--requires"]).arg(&package))?;
        ensure!(needs.lines().any(|line| line.starts_with("glibc >= 2.")), "{needs}");
    }
    the_end_says_what_and_where(&install(system, Family::Rpm, FIRST)?)?;
    // Whether a service is enabled is the system's to say (its presets); that it starts is not left to that.
    system.run(&["systemctl", "start", UNITS[0], UNITS[1]])?;
    windows_arrive(system)?;
    let configuration = system.file("/etc/tailwater/tailwater.toml");
    let text = std::fs::read_to_string(&configuration)?;
    let changed = text.replace("incidents_max = 1000", "incidents_max = 500");
    ensure!(changed != text, "{text}");
    std::fs::write(&configuration, &changed)?;
    an_upgrade_keeps_what_is_there(system, Family::Rpm)?;

    print!("{}", system.run(&["rpm", "--erase", "tailwater", "tailwater-agent"])?);
    for unit in UNITS {
        ensure!(show(system, unit, "ActiveState")? == "inactive", "{unit} still runs");
        ensure!(show(system, unit, "LoadState")? == "not-found", "{unit} is still known");
    }
    for gone in [
        "/usr/bin/tailwater",
        "/usr/bin/tailwater-agent",
        "/usr/share/doc/tailwater",
        "/etc/tailwater/agent.toml",
    ] {
        ensure!(system.file(gone).symlink_metadata().is_err(), "{gone} is left behind");
    }
    let saved = std::fs::read_to_string(system.file("/etc/tailwater/tailwater.toml.rpmsave"))?;
    ensure!(saved == changed, "what was configured is kept:\n{saved}");
    ensure!(system.file("/var/lib/private/tailwater").exists(), "what was measured is kept");
    Ok(())
}

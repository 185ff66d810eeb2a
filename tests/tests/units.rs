//! The systemd units as files: nothing in them that systemd does not know, and as little exposed as `deploy/README.md` says.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use tailwater_agent::identity::DEFAULT_FOLDER;

const UNITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/systemd");
/// Unit, and the exposure that `systemd-analyze security` may find at most, in tenths: what version 252 finds (1.1 and 2.2) and a
/// little more, because newer ones weigh more settings.
const SERVICES: [(&str, u32); 2] = [("tailwater", 15), ("tailwater-agent", 26)];

const VERIFY: &[&str] = &["verify", "--man=no", "--recursive-errors=no"];

/// The units with a program that is there: where these are tested the packages are not installed.
fn copies(folder: &Path) -> Result<()> {
    for (service, _) in SERVICES {
        let file = format!("{service}.service");
        let text = std::fs::read_to_string(Path::new(UNITS).join(&file))?;
        let installed = format!("ExecStart=/usr/bin/{service} ");
        assert_eq!(text.matches(&installed).count(), 1, "{file}");
        std::fs::write(folder.join(&file), text.replace(&installed, "ExecStart=/bin/true "))?;
    }
    Ok(())
}

/// Runs systemd-analyze on a service; whether it is content, and what it said.
fn analyze(folder: &Path, service: &str, arguments: &[&str]) -> Result<(bool, String)> {
    let output = Command::new("systemd-analyze")
        .args(arguments)
        .arg(folder.join(format!("{service}.service")))
        .output()
        .context("systemd-analyze (deploy/install-build-deps.sh installs it)")?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn systemd_has_nothing_to_say_about_the_units() -> Result<()> {
    let folder = tempfile::tempdir()?;
    copies(folder.path())?;
    for (service, _) in SERVICES {
        let (content, said) = analyze(folder.path(), service, VERIFY)?;
        // A machine's own units may deserve a word as well.
        let about: Vec<_> = said.lines().filter(|line| line.contains(service)).collect();
        assert!(content && about.is_empty(), "{service}: {said}");
    }
    // It does say something about a unit that is wrong.
    let file = folder.path().join("tailwater.service");
    std::fs::write(&file, std::fs::read_to_string(&file)?.replace("ProtectSystem=", "ProtectSytem="))?;
    let (_, said) = analyze(folder.path(), "tailwater", VERIFY)?;
    assert!(said.contains("ProtectSytem"), "{said}");
    Ok(())
}

#[test]
fn what_a_host_joined_is_kept_where_the_agents_unit_may_write() -> Result<()> {
    let text = std::fs::read_to_string(Path::new(UNITS).join("tailwater-agent.service"))?;
    let state =
        text.lines().find_map(|line| line.strip_prefix("StateDirectory=")).context("StateDirectory")?;
    assert_eq!(Path::new(DEFAULT_FOLDER).parent(), Some(Path::new("/var/lib").join(state).as_path()));
    Ok(())
}

#[test]
fn the_services_are_exposed_no_more_than_stated() -> Result<()> {
    let folder = tempfile::tempdir()?;
    copies(folder.path())?;
    for (service, tenths) in SERVICES {
        let threshold = format!("--threshold={tenths}");
        let arguments = ["security", "--offline=true", "--no-pager", &threshold];
        let (content, said) = analyze(folder.path(), service, &arguments)?;
        assert!(content, "{service}: {said}");
    }
    Ok(())
}

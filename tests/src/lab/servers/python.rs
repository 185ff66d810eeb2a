//! The servers in Python: gunicorn, whose synchronous workers are processes that serve one request each.

use super::Folders;
use crate::lab::config::LabConfig;
use crate::stack::Tier;
use anyhow::Result;
use std::fs;
use std::process::Command;

/// The bulletin board over PostgreSQL and Redis.
pub(super) fn bulletin(config: &LabConfig, folders: &Folders) -> Result<Command> {
    let mut command =
        gunicorn(Tier::App, config, folders, "bulletin", include_str!("../../../lab/bulletin.py"))?;
    for (name, tier) in [("DB", Tier::Db), ("CACHE", Tier::Cache)] {
        let listener = config.stack.listener(tier);
        command.arg("--env").arg(format!("{name}_HOST={}", listener.ip()));
        command.arg("--env").arg(format!("{name}_PORT={}", listener.port()));
    }
    Ok(command)
}

/// An application of other people, which needs CPU and nothing else.
pub(super) fn reports(config: &LabConfig, folders: &Folders) -> Result<Command> {
    gunicorn(Tier::Guest, config, folders, "reports", include_str!("../../../lab/reports.py"))
}

fn gunicorn(
    tier: Tier,
    config: &LabConfig,
    folders: &Folders,
    module: &str,
    source: &str,
) -> Result<Command> {
    let limits = config.limits(tier);
    fs::write(folders.dir.join(format!("{module}.py")), source)?;
    let mut command = Command::new("/usr/bin/gunicorn");
    command
        .args(["--worker-class", "sync", "--preload", "--timeout", "120", "--workers"])
        .arg(limits.workers.to_string())
        .args(["--backlog", &limits.backlog.to_string()])
        .arg("--bind")
        .arg(config.stack.listener(tier).to_string())
        // Workers touch a file to show that they live; not on a disk.
        .arg("--worker-tmp-dir")
        .arg(&folders.dir)
        .arg("--chdir")
        .arg(&folders.dir)
        .arg(format!("{module}:application"));
    Ok(command)
}

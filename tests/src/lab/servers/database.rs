//! The databases.

use super::{Folders, cached, fill};
use crate::lab::config::LabConfig;
use crate::lab::process::run;
use crate::lab::stack::{Software, Tier};
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SCHEMA: &str = include_str!("../../../lab/schema.sql");

/// One thread for each connection, or its pool of threads.
pub(super) fn mariadb(config: &LabConfig, folders: &Folders) -> Result<Command> {
    let general_log = if config.db_general_log {
        format!("general_log = ON\ngeneral_log_file = {}", general_log(&folders.dir).display())
    } else {
        "general_log = OFF".to_owned()
    };
    let threads = match config.stack.software(Tier::Db) {
        // As many groups as the literature's queue had threads; a thread that waits for a disk or a lock is replaced.
        Software::MariaDbPool => "thread_handling = pool-of-threads\nthread_pool_size = 8",
        _ => "thread_handling = one-thread-per-connection\nthread_cache_size = 100",
    };
    let file = folders.dir.join("my.cnf");
    let text = fill(
        include_str!("../../../lab/my.cnf"),
        Tier::Db,
        config,
        folders,
        &[("GENERAL_LOG", general_log), ("THREADS", threads.to_owned())],
    );
    fs::write(&file, text)?;
    let initial = initial_database()?;
    run(Command::new("cp").arg("-a").arg(initial.join("data")).arg(&folders.data))?;
    let mut command = Command::new("/usr/sbin/mariadbd");
    command.arg(format!("--defaults-file={}", file.display()));
    Ok(command)
}

/// A cache in memory; nothing of it reaches a disk.
pub(super) fn redis(config: &LabConfig, folders: &Folders) -> Result<Command> {
    let file = folders.dir.join("redis.conf");
    fs::write(&file, fill(include_str!("../../../lab/redis.conf"), Tier::Cache, config, folders, &[]))?;
    let mut command = Command::new("/usr/bin/redis-server");
    command.arg(file);
    Ok(command)
}

/// Where MariaDB's general log goes.
pub(crate) fn general_log(dir: &Path) -> PathBuf {
    dir.join("general.log")
}

/// MariaDB's files with the bulletin board in them, made once for each version of MariaDB and of the schema.
fn initial_database() -> Result<PathBuf> {
    let version = run(Command::new("/usr/sbin/mariadbd").args(["--no-defaults", "--version"]))?;
    cached("db", &[SCHEMA, &version], |folder| {
        let data = folder.join("data");
        let log_size = "--innodb-log-file-size=64M";
        run(Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--user=root",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                log_size,
            ])
            .arg(format!("--datadir={}", data.display())))?;
        let mut child = Command::new("/usr/sbin/mariadbd")
            .args([
                "--no-defaults",
                "--bootstrap",
                "--user=root",
                "--innodb-flush-log-at-trx-commit=0",
                log_size,
            ])
            .arg(format!("--datadir={}", data.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start mariadbd")?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(SCHEMA.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("fill the database: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    })
}

//! PostgreSQL, with a data folder of its own. It refuses to run as root: its processes are those of the package's user.

use super::{Folders, cached, fill};
use crate::lab::config::LabConfig;
use crate::lab::process::run;
use crate::lab::stack::Tier;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCHEMA: &str = include_str!("../../../lab/schema-postgres.sql");

/// Which user it runs as.
const USER: &str = "postgres";

/// One process for each connection.
pub(super) fn postgres(config: &LabConfig, folders: &Folders) -> Result<Command> {
    let file = folders.dir.join("postgresql.conf");
    fs::write(&file, fill(include_str!("../../../lab/postgresql.conf"), Tier::Db, config, folders, &[]))?;
    let initial = initial_database()?;
    run(Command::new("cp").arg("-a").arg(initial.join("data")).arg(&folders.data))?;
    own(&folders.dir)?;
    let mut command = Command::new("setpriv");
    // The change of user forgets the signal for the lab's death.
    command.args(as_user()).args(["--pdeathsig", "QUIT", "--"]).arg(program("postgres")?);
    command.arg("-D").arg(&folders.data).arg(format!("--config-file={}", file.display()));
    command.arg(format!("--hba-file={}", folders.data.join("pg_hba.conf").display()));
    Ok(command)
}

/// A program of the newest PostgreSQL that is installed: Debian has a folder for each version.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let folders =
        fs::read_dir("/usr/lib/postgresql").context("PostgreSQL: tests/lab/install.sh installs it")?;
    let paths = folders.flatten().map(|entry| entry.path().join("bin").join(name));
    paths.filter(|path| path.exists()).max().with_context(|| format!("PostgreSQL has no {name}"))
}

fn as_user() -> [String; 3] {
    [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".to_owned()]
}

fn own(folder: &Path) -> Result<()> {
    run(Command::new("chown").arg("-R").arg(format!("{USER}:{USER}")).arg(folder)).map(drop)
}

/// Its files with the bulletin board in them, made once for each version of PostgreSQL and of the schema.
fn initial_database() -> Result<PathBuf> {
    let version = run(Command::new(program("postgres")?).arg("--version"))?;
    cached("postgres", &[SCHEMA, &version], |folder| {
        own(folder)?;
        let data = folder.join("data");
        let user = || {
            let mut command = Command::new("setpriv");
            command.args(as_user()).arg("--").current_dir("/");
            command
        };
        run(user()
            .arg(program("initdb")?)
            .args([
                "--no-sync",
                "--no-locale",
                "--encoding=UTF8",
                "--auth=trust",
                "--username=postgres",
                "-D",
            ])
            .arg(&data))?;
        let hba = "local all all trust\nhost all all 10.77.0.0/24 trust\n";
        fs::write(data.join("pg_hba.conf"), hba)?;
        // A server for the moment, on a socket in this folder only.
        let schema = folder.join("schema.sql");
        fs::write(&schema, SCHEMA)?;
        let socket = folder.display();
        let ctl = || -> Result<Command> {
            let mut command = user();
            command.arg(program("pg_ctl")?).arg("--wait").arg("-D").arg(&data);
            Ok(command)
        };
        run(ctl()?
            .arg("--log")
            .arg(folder.join("log"))
            .args(["-o", &format!("-c listen_addresses= -c unix_socket_directories={socket} -c fsync=off")])
            .arg("start"))?;
        let psql = |database: &str| -> Result<Command> {
            let mut command = Command::new(program("psql")?);
            command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h"]).arg(folder);
            command.args(["-d", database]);
            Ok(command)
        };
        let filled = psql("postgres")
            .and_then(|mut command| run(command.args(["-c", "CREATE DATABASE bulletin"])))
            .and_then(|_| psql("bulletin"))
            .and_then(|mut command| run(command.arg("-f").arg(&schema)));
        let stopped = run(ctl()?.args(["--mode", "fast", "stop"]));
        filled?;
        stopped.map(drop)
    })
}

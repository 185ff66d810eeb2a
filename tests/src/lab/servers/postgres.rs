//! PostgreSQL, with a data folder of its own. It refuses to run as root: its processes are those of the package's user.

use super::plan::Dialect;
use super::proof::{self, Seen};
use super::template::proven;
use super::{Folders, copy_template, fill};
use crate::lab::config::LabConfig;
use crate::os::process::{die_with_parent, run, run_with, signal, wait_for};
use crate::stack::Tier;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SCHEMA: &str = include_str!("../../../lab/schema-postgres.sql");

/// A private server is up in a second; a slow machine may need many.
const START_MAX: Duration = Duration::from_secs(120);

/// Who may come, and is believed: everybody by its socket, and from the laboratory's network.
pub(crate) const ACCESS: &str = "local all all trust\nhost all all 10.77.0.0/24 trust\n";

/// Which user it runs as.
const USER: &str = "postgres";

/// One process for each connection.
pub(super) fn postgres(config: &LabConfig, folders: &Folders) -> Result<Command> {
    let file = folders.dir.join("postgresql.conf");
    fs::write(&file, fill(include_str!("../../../lab/postgresql.conf"), Tier::Db, config, folders, &[]))?;
    copy_template(&initial_database()?, folders)?;
    own(&folders.dir)?;
    let mut command = server(&folders.data)?;
    command.arg(format!("--config-file={}", file.display()));
    command.arg(format!("--hba-file={}", folders.data.join("pg_hba.conf").display()));
    Ok(command)
}

/// What starts a server on these files in the foreground, as the package's user.
pub(crate) fn server(data: &Path) -> Result<Command> {
    // What its processes share by System V's means is in a namespace of its own, and goes with the last of them, however they end.
    let mut command = Command::new("unshare");
    command.args(["--ipc", "--", "setpriv"]).args(as_user()).current_dir("/");
    // The change of user forgets the signal for the lab's death.
    command.args(["--pdeathsig", "QUIT", "--"]).arg(program("postgres")?).arg("-D").arg(data);
    Ok(command)
}

/// What starts another program in the foreground that refuses to run as root, as the package's user.
pub(crate) fn as_its_user(program: &str) -> Command {
    let mut command = user();
    // The change of user forgets the signal for the lab's death.
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// Gives a folder to the package's user, and makes files of a server without a table in it. Whoever comes by a way that its access file names
/// is believed.
pub(crate) fn make_empty(folder: &Path, data: &Path) -> Result<()> {
    own(folder)?;
    run(user()
        .arg("--")
        .arg(program("initdb")?)
        .args(["--no-sync", "--no-locale", "--encoding=UTF8", "--auth=trust", "--username=postgres", "-D"])
        .arg(data))
    .map(drop)
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

/// Whether a server takes statements yet.
pub(super) fn answers(dir: &Path) -> Result<bool> {
    Ok(client(dir, "bulletin")?("SELECT 1").is_ok())
}

/// What is wrong with a running server, if anything is.
pub(super) fn check(dir: &Path) -> Result<Option<String>> {
    Ok(Seen::of(Dialect::Postgres, &client(dir, "bulletin")?)?.fault(Dialect::Postgres))
}

/// Its files with the bulletin board in them, made once for each version of PostgreSQL and of the schema.
fn initial_database() -> Result<PathBuf> {
    let version = run(Command::new(program("postgres")?).arg("--version"))?;
    proven("postgres", Dialect::Postgres, &[SCHEMA, &version], make, |building| {
        let files = proof::fingerprint(&building.join("data"))?;
        // Proved on a copy, as a lab uses it: what a server writes at its start does not belong to the template.
        let copy = tempfile::Builder::new().prefix("proof-").tempdir_in(building)?;
        run(Command::new("cp").arg("-a").arg(building.join("data")).arg(copy.path()))?;
        own(copy.path())?;
        let server = Private::start(copy.path())?;
        let proof = proof::prove(Dialect::Postgres, files, &client(copy.path(), "bulletin")?)?;
        drop(server);
        copy.close()?;
        Ok(proof)
    })
}

fn user() -> Command {
    let mut command = Command::new("setpriv");
    command.args(as_user()).current_dir("/");
    command
}

fn make(folder: &Path) -> Result<()> {
    let data = folder.join("data");
    make_empty(folder, &data)?;
    fs::write(data.join("pg_hba.conf"), ACCESS)?;
    let server = Private::start(folder)?;
    client(folder, "postgres")?("CREATE DATABASE bulletin")?;
    let ask = client(folder, "bulletin")?;
    ask(SCHEMA)?;
    // All of it now, and every row known to be visible: in the lab nothing vacuums or analyses.
    ask("VACUUM (FREEZE, ANALYZE)")?;
    ask("CHECKPOINT")?;
    server.end()
}

/// A server for the moment, on a socket in its folder and nowhere else. Dropping it ends it.
#[derive(Debug)]
struct Private {
    child: Child,
}

impl Private {
    /// On the files in `data` of this folder, which is the user's.
    fn start(folder: &Path) -> Result<Self> {
        let log = folder.join("server.log");
        let output = fs::File::create(&log)?;
        // Its signal for our death is the second of two; the first is for the time before the change of user.
        let mut command = server(&folder.join("data"))?;
        command
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off", "-c"])
            .arg(format!("unix_socket_directories={}", folder.display()))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        die_with_parent(&mut command, libc::SIGKILL);
        let child = command.spawn().context("start postgres (tests/lab/install.sh installs it)")?;
        let mut server = Self { child };
        let ask = client(folder, "postgres")?;
        wait_for("a private postgres", START_MAX, || {
            if let Some(status) = server.child.try_wait()? {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!("postgres: {status}: {}", said.lines().last().unwrap_or("it said nothing"));
            }
            Ok(ask("SELECT 1").ok().map(drop))
        })?;
        Ok(server)
    }

    /// Ends it in order, so that nothing has to be recovered from its files.
    fn end(mut self) -> Result<()> {
        signal(self.child.id().cast_signed(), libc::SIGINT)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("postgres ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // At once, with its children.
            let _ = signal(self.child.id().cast_signed(), libc::SIGQUIT);
            let _ = self.child.wait();
        }
    }
}

/// Runs statements through the socket in a server's folder.
fn client(folder: &Path, database: &'static str) -> Result<impl Fn(&str) -> Result<String> + use<>> {
    let (psql, folder) = (program("psql")?, folder.to_owned());
    Ok(move |statements: &str| {
        // From a file: as an argument, all statements would be one transaction, and older ones print the last answer only.
        let mut script = tempfile::tempfile().context("a file for statements")?;
        script.write_all(statements.as_bytes()).and_then(|()| script.rewind()).context("write statements")?;
        let mut command = Command::new(&psql);
        command.args(["-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-U", "postgres"]);
        run_with(command.args(["-d", database, "-h"]).arg(&folder).args(["-f", "-"]), Some(script))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileged_a_stale_postgres_template_is_found_and_made_anew() -> Result<()> {
        let good = initial_database()?;
        assert_eq!(initial_database()?, good, "a good one is used again");

        let server = Private::start(&good)?;
        client(&good, "bulletin")?(
            "DELETE FROM pg_statistic; UPDATE pg_class SET reltuples = 0 WHERE relname = 'comments'",
        )?;
        let fault = check(&good)?.context("a fault")?;
        assert_eq!(fault, "comments: the statistics say 0 of 20000");
        server.end()?;
        let fault = proof::fault_of(Dialect::Postgres, &good).context("a fault")?;
        assert_eq!(fault, "its files are not those that were proved");

        assert_eq!(initial_database()?, good);
        assert_eq!(proof::fault_of(Dialect::Postgres, &good), None);
        let refused = good
            .with_file_name(format!("refused-{}", good.file_name().unwrap_or_default().to_string_lossy()));
        assert!(refused.join("data").exists(), "the bad one is kept aside");
        fs::remove_dir_all(refused)?;
        Ok(())
    }
}

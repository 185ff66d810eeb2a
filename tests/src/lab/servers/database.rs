//! The databases.

use super::plan::Dialect;
use super::proof::{self, Seen};
use super::template::proven;
use super::{Folders, copy_template, fill};
use crate::lab::config::LabConfig;
use crate::os::process::{die_with_parent, run, wait_for};
use crate::stack::{Software, Tier};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SCHEMA: &str = include_str!("../../../lab/schema.sql");
const LOG_SIZE: &str = "--innodb-log-file-size=64M";
/// In the server's folder; also where `my.cnf` has it.
const SOCKET: &str = "mariadb.sock";
/// A private server is up in a second; a slow machine may need many.
const START_MAX: Duration = Duration::from_secs(120);

/// One thread for each connection, or its pool of threads.
pub(super) fn mariadb(tier: Tier, config: &LabConfig, folders: &Folders) -> Result<Command> {
    let general_log = if config.db_general_log {
        format!("general_log = ON\ngeneral_log_file = {}", general_log(&folders.dir).display())
    } else {
        "general_log = OFF".to_owned()
    };
    let threads = match config.stack.software(tier) {
        // As many groups as the literature's queue had threads; a thread that waits for a disk or a lock is replaced.
        Software::MariaDbPool => "thread_handling = pool-of-threads\nthread_pool_size = 8",
        _ => "thread_handling = one-thread-per-connection\nthread_cache_size = 100",
    };
    let file = folders.dir.join("my.cnf");
    let text = fill(
        include_str!("../../../lab/my.cnf"),
        tier,
        config,
        folders,
        &[("GENERAL_LOG", general_log), ("THREADS", threads.to_owned())],
    );
    fs::write(&file, text)?;
    copy_template(&initial_database()?, folders)?;
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

/// What is wrong with a running server, if anything is.
pub(super) fn check(dir: &Path) -> Result<Option<String>> {
    Ok(Seen::of(Dialect::MariaDb, &client(&dir.join(SOCKET)))?.fault(Dialect::MariaDb))
}

/// MariaDB's files with the bulletin board in them, made once for each version of MariaDB and of the schema.
fn initial_database() -> Result<PathBuf> {
    let version = run(Command::new("/usr/sbin/mariadbd").args(["--no-defaults", "--version"]))?;
    proven("db", Dialect::MariaDb, &[SCHEMA, &version], make, |building| {
        let files = proof::fingerprint(&building.join("data"))?;
        // Proved on a copy, as a lab uses it: what a server writes at its start does not belong to the template.
        let copy = tempfile::Builder::new().prefix("proof-").tempdir_in(building)?;
        run(Command::new("cp").arg("-a").arg(building.join("data")).arg(copy.path()))?;
        let server = Private::start(copy.path())?;
        let proof = proof::prove(Dialect::MariaDb, files, &client(&server.socket))?;
        drop(server);
        copy.close()?;
        Ok(proof)
    })
}

/// Makes files of a server without a table in it, whose log has this size.
pub(crate) fn make_empty(data: &Path, log_size: &str) -> Result<()> {
    run(Command::new("mariadb-install-db")
        .args([
            "--no-defaults",
            "--user=root",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            log_size,
        ])
        .arg(format!("--datadir={}", data.display())))
    .map(drop)
}

fn make(folder: &Path) -> Result<()> {
    make_empty(&folder.join("data"), LOG_SIZE)?;
    let server = Private::start(folder)?;
    let ask = client_of(&server.socket, "");
    ask(SCHEMA)?;
    // InnoDB calculates its own statistics in the background, sooner or later: what is there by then is luck. The server reads its own
    // before those; both are calculated from every row, now.
    ask("ANALYZE TABLE bulletin.users, bulletin.stories, bulletin.comments PERSISTENT FOR ALL")?;
    server.end()
}

/// A server for the moment, on a socket in its folder and nowhere else. Dropping it kills it.
#[derive(Debug)]
struct Private {
    child: Child,
    socket: PathBuf,
}

impl Private {
    /// On the files in `data` of this folder.
    fn start(folder: &Path) -> Result<Self> {
        let log = folder.join("server.log");
        let output = fs::File::create(&log)?;
        let socket = folder.join(SOCKET);
        let mut command = Command::new("/usr/sbin/mariadbd");
        command
            .args([
                "--no-defaults",
                "--user=root",
                "--skip-networking",
                "--skip-grant-tables",
                "--skip-log-bin",
            ])
            .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-stats-auto-recalc=OFF", LOG_SIZE])
            .arg(format!("--datadir={}", folder.join("data").display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", folder.join("server.pid").display()))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        die_with_parent(&mut command, libc::SIGKILL);
        let child = command.spawn().context("start mariadbd (tests/lab/install.sh installs it)")?;
        let mut server = Self { child, socket };
        let ask = client_of(&server.socket, "");
        wait_for("a private mariadbd", START_MAX, || {
            if let Some(status) = server.child.try_wait()? {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!("mariadbd: {status}: {}", said.lines().last().unwrap_or("it said nothing"));
            }
            Ok(ask("SELECT 1").ok().map(drop))
        })?;
        Ok(server)
    }

    /// Ends it in order, so that nothing has to be recovered or cleaned from its files.
    fn end(mut self) -> Result<()> {
        client_of(&self.socket, "")("SET GLOBAL innodb_fast_shutdown = 0; SHUTDOWN")?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("mariadbd ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // Its files are thrown away, or it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs statements on the bulletin board through a server's socket.
fn client(socket: &Path) -> impl Fn(&str) -> Result<String> + use<> {
    client_of(socket, "bulletin")
}

fn client_of(socket: &Path, database: &'static str) -> impl Fn(&str) -> Result<String> + use<> {
    let socket = format!("--socket={}", socket.display());
    move |statements| {
        run(Command::new("mariadb")
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names", &socket])
            .args(["--execute", statements])
            .args(Some(database).filter(|name| !name.is_empty())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was found on two fresh machines: files whose statistics say that a table of 20,000 rows is empty.
    #[test]
    fn privileged_a_stale_mariadb_template_is_found_and_made_anew() -> Result<()> {
        let good = initial_database()?;
        assert_eq!(initial_database()?, good, "a good one is used again");
        assert_eq!(proof::fault_of(Dialect::MariaDb, &good), None);

        let server = Private::start(&good)?;
        let ask = client(&server.socket);
        ask("UPDATE mysql.innodb_table_stats SET n_rows = 0 WHERE table_name = 'comments'; \
             UPDATE mysql.table_stats SET cardinality = 2 WHERE table_name = 'users'")?;
        server.end()?;
        let fault = proof::fault_of(Dialect::MariaDb, &good).context("a fault")?;
        assert_eq!(fault, "its files are not those that were proved");

        // With a forged proof, the running server is still found out.
        let server = Private::start(&good)?;
        let fault = check(&good)?.context("a fault")?;
        assert_eq!(fault, "users: the statistics say 2 of 5000");
        server.end()?;

        let again = initial_database()?;
        assert_eq!(again, good);
        assert_eq!(proof::fault_of(Dialect::MariaDb, &again), None);
        let refused = good
            .with_file_name(format!("refused-{}", good.file_name().unwrap_or_default().to_string_lossy()));
        assert!(refused.join("data").exists(), "the bad one is kept aside");
        fs::remove_dir_all(refused)?;
        Ok(())
    }
}

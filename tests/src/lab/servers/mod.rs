//! The servers: their configuration from the templates in `tests/lab`, their command lines, and when they are ready.
//! Nothing of the system's own services is read or written.

mod application;
pub(crate) mod database;
mod front;
mod plan;
pub(crate) mod postgres;
mod proof;
mod python;
mod template;

use crate::lab::config::LabConfig;
use crate::os::process::{run, wait_for};
use crate::stack::{Software, Tier};
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) use database::general_log;
pub(crate) use postgres::program as postgres_program;

/// A link in a database's folder: the template that its files were copied from.
const TEMPLATE: &str = "template";

/// Folders of one server.
#[derive(Debug)]
pub(crate) struct Folders {
    /// Configuration, sockets, logs: in memory.
    pub(crate) dir: PathBuf,
    /// A database's files: on the slow disk.
    pub(crate) data: PathBuf,
}

/// Writes a tier's configuration and returns the command that starts its server in the foreground.
pub(crate) fn prepare(tier: Tier, config: &LabConfig, folders: &Folders) -> Result<Command> {
    fs::create_dir_all(&folders.dir).with_context(|| format!("create {}", folders.dir.display()))?;
    let mut command = match config.stack.software(tier) {
        Software::Apache => front::apache(config, folders)?,
        Software::Nginx => front::nginx(config, folders)?,
        Software::Haproxy => front::haproxy(config, folders)?,
        Software::Tomcat => application::tomcat(tier, config, folders)?,
        Software::AsyncApp => application::asyncapp(tier, config)?,
        Software::Gunicorn => python::bulletin(config, folders)?,
        Software::Reports => python::reports(config, folders)?,
        Software::MariaDb | Software::MariaDbPool => database::mariadb(tier, config, folders)?,
        Software::Postgres => postgres::postgres(config, folders)?,
        Software::Redis => database::redis(config, folders)?,
    };
    let output = fs::File::create(folders.dir.join("output.log"))?;
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir(&folders.dir);
    Ok(command)
}

/// What a server is to receive when the lab's process dies. Children of these do not die with their parent; on this signal it
/// ends them.
pub(crate) fn death_signal(software: Software) -> libc::c_int {
    match software {
        Software::Apache | Software::Nginx | Software::Gunicorn | Software::Reports => libc::SIGTERM,
        // Ends its children at once.
        Software::Postgres => libc::SIGQUIT,
        _ => libc::SIGKILL,
    }
}

fn fill(
    template: &str,
    tier: Tier,
    config: &LabConfig,
    folders: &Folders,
    more: &[(&str, String)],
) -> String {
    let listener = config.stack.listener(tier);
    let limits = config.limits(tier);
    let mut text = template
        .replace("@DIR@", &folders.dir.display().to_string())
        .replace("@DATA@", &folders.data.display().to_string())
        .replace("@ADDRESS@", &listener.ip().to_string())
        .replace("@PORT@", &listener.port().to_string())
        .replace("@BACKLOG@", &limits.backlog.to_string())
        .replace("@WORKERS@", &limits.workers.to_string())
        .replace("@POOL@", &limits.pool.to_string());
    for (name, value) in more {
        text = text.replace(&format!("@{name}@"), value);
    }
    text
}

/// Looks at a database that has just started: its statistics, and the plan of each statement that the applications will send it. A join
/// without an index would make a slow lab of which nobody could say why.
pub(crate) fn check_database(software: Software, dir: &Path) -> Result<()> {
    let looked = match software {
        Software::MariaDb | Software::MariaDbPool => database::check(dir),
        Software::Postgres => postgres::check(dir),
        _ => return Ok(()),
    };
    let Some(fault) = looked.with_context(|| format!("look at {}'s plans", software.name()))? else {
        return Ok(());
    };
    let template = fs::read_link(dir.join(TEMPLATE)).context("the template's place")?;
    let aside = template::refuse(&template)?;
    bail!(
        "{} would be slow, because its template has gone bad: {fault}; it was moved to {}: start again, and it is made anew",
        software.name(),
        aside.display()
    )
}

/// Copies a database's template to where its server will work on it, and notes which it was.
fn copy_template(template: &Path, folders: &Folders) -> Result<()> {
    run(Command::new("cp").arg("-a").arg(template.join("data")).arg(&folders.data))?;
    let note = folders.dir.join(TEMPLATE);
    match fs::remove_file(&note) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).context("the old template's note");
        }
        _ => {}
    }
    std::os::unix::fs::symlink(template, &note).context("note of the template")
}

/// Waits until a server answers. Call it inside a namespace of the lab.
pub(crate) fn wait_ready(
    software: Software,
    address: SocketAddr,
    dir: &Path,
    mut exited: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let name = software.name();
    let outcome = wait_for(&format!("{name} at {address}"), Duration::from_secs(60), || {
        if exited()? {
            bail!("{name} ended while it was starting");
        }
        Ok(match software {
            Software::MariaDb | Software::MariaDbPool | Software::Redis => {
                TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
            }
            // It listens before it takes statements.
            Software::Postgres => postgres::answers(dir)?,
            _ => get(address, "/story?id=1").is_ok_and(|(status, _)| status == 200),
        }
        .then_some(()))
    });
    outcome.with_context(|| {
        let mut logs = String::new();
        for name in ["output.log", "error.log"] {
            let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(20).collect();
            logs.extend(tail.iter().rev().map(|line| format!("  {line}\n")));
        }
        format!("{name}'s last words:\n{logs}")
    })
}

/// Status and body of a page.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: lab\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").context("an answer of HTTP")?;
    let status = head.split(' ').nth(1).context("a status")?.parse()?;
    Ok((status, body.to_owned()))
}

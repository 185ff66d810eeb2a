//! The three servers: their configuration from the templates in `tests/lab`, their command lines, and when they are ready.
//! Nothing of the system's own services is read or written.

use crate::lab::config::{LabConfig, Tier};
use crate::lab::process::{run, wait_for};
use anyhow::{Context, Result, bail};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What takes seconds to make and does not change: MariaDB's initial files and the compiled servlet.
const CACHE: &str = "/var/cache/tailwater-lab";

const SCHEMA: &str = include_str!("../../lab/schema.sql");
const SERVLET: &str = include_str!("../../lab/Story.java");

/// Folders of one server.
#[derive(Debug)]
pub(crate) struct Folders {
    /// Configuration, sockets, logs: in memory.
    pub(crate) dir: PathBuf,
    /// MariaDB's files: on the slow disk.
    pub(crate) data: PathBuf,
}

/// Writes a tier's configuration and returns the command that starts its server in the foreground.
pub(crate) fn prepare(tier: Tier, config: &LabConfig, folders: &Folders) -> Result<Command> {
    fs::create_dir_all(&folders.dir).with_context(|| format!("create {}", folders.dir.display()))?;
    let mut command = match tier {
        Tier::Web => apache(config, folders)?,
        Tier::App => tomcat(config, folders)?,
        Tier::Db => mariadb(config, folders)?,
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

fn fill(
    template: &str,
    tier: Tier,
    config: &LabConfig,
    folders: &Folders,
    more: &[(&str, String)],
) -> String {
    let mut text = template
        .replace("@DIR@", &folders.dir.display().to_string())
        .replace("@DATA@", &folders.data.display().to_string())
        .replace("@ADDRESS@", &tier.listener().ip().to_string())
        .replace("@PORT@", &tier.listener().port().to_string())
        .replace("@BACKLOG@", &config.backlog(tier).to_string());
    for (name, value) in more {
        text = text.replace(&format!("@{name}@"), value);
    }
    text
}

fn apache(config: &LabConfig, folders: &Folders) -> Result<Command> {
    let access_log = if config.web_access_log {
        format!("CustomLog \"{}\" lab", folders.dir.join("access.log").display())
    } else {
        String::new()
    };
    let app = Tier::App.listener();
    let file = folders.dir.join("apache.conf");
    let text = fill(
        include_str!("../../lab/apache.conf"),
        Tier::Web,
        config,
        folders,
        &[
            ("THREADS", config.web_threads.to_string()),
            ("APP_ADDRESS", app.ip().to_string()),
            ("APP_PORT", app.port().to_string()),
            ("ACCESS_LOG", access_log),
            ("ACCEPT_FILTER", if config.web_defer_accept { "data" } else { "none" }.to_owned()),
        ],
    );
    fs::write(&file, text)?;
    let mut command = Command::new("/usr/sbin/apache2");
    command.arg("-f").arg(file).arg("-DFOREGROUND");
    Ok(command)
}

fn tomcat(config: &LabConfig, folders: &Folders) -> Result<Command> {
    let classes = folders.dir.join("webapps/ROOT/WEB-INF/classes");
    for folder in ["conf", "logs", "temp", "work"] {
        fs::create_dir_all(folders.dir.join(folder))?;
    }
    fs::create_dir_all(&classes)?;
    let db = Tier::Db.listener();
    let text = fill(
        include_str!("../../lab/server.xml"),
        Tier::App,
        config,
        folders,
        &[
            ("THREADS", config.app_threads.to_string()),
            ("POOL", config.jdbc_pool.to_string()),
            ("DB_ADDRESS", db.ip().to_string()),
            ("DB_PORT", db.port().to_string()),
        ],
    );
    fs::write(folders.dir.join("conf/server.xml"), text)?;
    let logging = folders.dir.join("conf/logging.properties");
    fs::write(&logging, include_str!("../../lab/logging.properties"))?;
    // The host-wide defaults add the JSP engine, which would search every library for tag files.
    fs::write(
        folders.dir.join("conf/web.xml"),
        "<web-app xmlns=\"https://jakarta.ee/xml/ns/jakartaee\" version=\"6.0\"/>\n",
    )?;
    fs::write(folders.dir.join("webapps/ROOT/WEB-INF/web.xml"), include_str!("../../lab/web.xml"))?;
    fs::copy(compiled_servlet()?, classes.join("Story.class"))?;

    let home = "/usr/share/tomcat10";
    let mut command = Command::new("java");
    command
        // The client compiler only: warm within seconds, and no compiler threads that take the quota later on.
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms192m", "-Xmx192m", "-Xmn96m", "-Xss256k"])
        .args(["-XX:+AlwaysPreTouch", "-XX:-UsePerfData", "-Xshare:auto"])
        .arg(format!("-Dcatalina.home={home}"))
        .arg(format!("-Dcatalina.base={}", folders.dir.display()))
        .arg(format!("-Djava.io.tmpdir={}", folders.dir.join("temp").display()))
        .arg(format!("-Djava.util.logging.config.file={}", logging.display()))
        .arg("-Djava.util.logging.manager=org.apache.juli.ClassLoaderLogManager")
        .arg("-cp")
        .arg(format!(
            "{home}/bin/bootstrap.jar:{home}/bin/tomcat-juli.jar:/usr/share/java/mariadb-java-client.jar"
        ))
        .args(["org.apache.catalina.startup.Bootstrap", "start"]);
    Ok(command)
}

/// The servlet's class file, compiled once for each version of its source.
fn compiled_servlet() -> Result<PathBuf> {
    cached("servlet", &[SERVLET], |folder| {
        let source = folder.join("Story.java");
        fs::write(&source, SERVLET)?;
        run(Command::new("javac")
            .args(["-cp", "/usr/share/tomcat10/lib/servlet-api.jar", "-d"])
            .arg(folder)
            .arg(&source))?;
        Ok(())
    })
    .map(|folder| folder.join("Story.class"))
}

fn mariadb(config: &LabConfig, folders: &Folders) -> Result<Command> {
    let general_log = if config.db_general_log {
        format!("general_log = ON\ngeneral_log_file = {}", general_log(&folders.dir).display())
    } else {
        "general_log = OFF".to_owned()
    };
    let file = folders.dir.join("my.cnf");
    let text =
        fill(include_str!("../../lab/my.cnf"), Tier::Db, config, folders, &[("GENERAL_LOG", general_log)]);
    fs::write(&file, text)?;
    let initial = initial_database()?;
    run(Command::new("cp").arg("-a").arg(initial.join("data")).arg(&folders.data))?;
    let mut command = Command::new("/usr/sbin/mariadbd");
    command.arg(format!("--defaults-file={}", file.display()));
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

/// A folder of the cache. It appears complete or not at all, also when two labs make it at the same time.
fn cached(name: &str, sources: &[&str], make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    sources.hash(&mut hasher);
    let folder = Path::new(CACHE).join(format!("{name}-{:016x}", hasher.finish()));
    if folder.exists() {
        return Ok(folder);
    }
    fs::create_dir_all(CACHE).with_context(|| format!("create {CACHE}"))?;
    let building = tempfile::Builder::new().prefix("building-").tempdir_in(CACHE)?;
    make(building.path()).with_context(|| format!("prepare the lab's {name}"))?;
    let building = building.keep();
    if fs::rename(&building, &folder).is_err() {
        // Somebody else was faster; theirs is as good.
        fs::remove_dir_all(&building)?;
    }
    Ok(folder)
}

/// Waits until a server answers. Call it inside a namespace of the lab.
pub(crate) fn wait_ready(tier: Tier, dir: &Path, mut exited: impl FnMut() -> Result<bool>) -> Result<()> {
    let address = SocketAddr::V4(tier.listener());
    let outcome = wait_for(&format!("{} at {address}", tier.server()), Duration::from_secs(60), || {
        if exited()? {
            bail!("{} ended while it was starting", tier.server());
        }
        Ok(match tier {
            Tier::Db => TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok(),
            Tier::Web | Tier::App => get(address, "/story?id=1").is_ok_and(|code| code == 200),
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
        format!("{}'s last words:\n{logs}", tier.server())
    })
}

fn get(address: SocketAddr, path: &str) -> Result<u16> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: lab\r\n\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    Ok(std::str::from_utf8(&head[9..])?.parse()?)
}

//! The application servers.

use super::template::cached;
use super::{Folders, fill};
use crate::lab::config::LabConfig;
use crate::os::process::{run, sibling_binary};
use crate::stack::Tier;
use anyhow::Result;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const SERVLET: &str = include_str!("../../../lab/Story.java");

/// Blocking: one worker thread for each request, which waits for one of the pool's connections.
pub(super) fn tomcat(tier: Tier, config: &LabConfig, folders: &Folders) -> Result<Command> {
    let classes = folders.dir.join("webapps/ROOT/WEB-INF/classes");
    for folder in ["conf", "logs", "temp", "work"] {
        fs::create_dir_all(folders.dir.join(folder))?;
    }
    fs::create_dir_all(&classes)?;
    let db = config.stack.listener(config.stack.database_of(tier));
    let text = fill(
        include_str!("../../../lab/server.xml"),
        tier,
        config,
        folders,
        &[
            ("DB_ADDRESS", db.ip().to_string()),
            ("DB_PORT", db.port().to_string()),
            ("CONNECTIONS", config.app_connections.unwrap_or(config.limits(tier).workers).to_string()),
        ],
    );
    fs::write(folders.dir.join("conf/server.xml"), text)?;
    let logging = folders.dir.join("conf/logging.properties");
    fs::write(&logging, include_str!("../../../lab/logging.properties"))?;
    // The host-wide defaults add the JSP engine, which would search every library for tag files.
    fs::write(
        folders.dir.join("conf/web.xml"),
        "<web-app xmlns=\"https://jakarta.ee/xml/ns/jakartaee\" version=\"6.0\"/>\n",
    )?;
    fs::write(folders.dir.join("webapps/ROOT/WEB-INF/web.xml"), include_str!("../../../lab/web.xml"))?;
    fs::copy(compiled_servlet()?, classes.join("Story.class"))?;

    let home = "/usr/share/tomcat10";
    let heap = config.app_heap;
    let mut command = Command::new("java");
    command
        // The client compiler only: warm within seconds, and no compiler threads that take the quota later on.
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss256k"])
        .arg(format!("-Xms{}m", heap.heap_mb))
        .arg(format!("-Xmx{}m", heap.heap_mb))
        .arg(format!("-Xmn{}m", heap.young_mb))
        .arg(format!("-Dlab.kept_kb={}", heap.kept_kb))
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

/// Event-driven: it asks the database for every request that it has.
pub(super) fn asyncapp(tier: Tier, config: &LabConfig) -> Result<Command> {
    let limits = config.limits(tier);
    let mut command = Command::new(sibling_binary("asyncapp")?);
    command
        .arg(config.stack.listener(tier).to_string())
        .arg(config.stack.listener(Tier::Db).to_string())
        .args([limits.backlog.to_string(), limits.pool.to_string()]);
    Ok(command)
}

//! The front tiers: reverse proxies.

use super::{Folders, fill};
use crate::lab::config::LabConfig;
use crate::lab::stack::Tier;
use anyhow::Result;
use std::fs;
use std::process::Command;

/// One worker thread for each request.
pub(super) fn apache(config: &LabConfig, folders: &Folders) -> Result<Command> {
    let access_log = if config.web_access_log {
        format!("CustomLog \"{}\" lab", folders.dir.join("access.log").display())
    } else {
        String::new()
    };
    let app = config.stack.listener(Tier::App);
    let file = folders.dir.join("apache.conf");
    let text = fill(
        include_str!("../../../lab/apache.conf"),
        Tier::Web,
        config,
        folders,
        &[
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

/// Event-driven: what it can hold is bounded by memory.
pub(super) fn nginx(config: &LabConfig, folders: &Folders) -> Result<Command> {
    let access_log = if config.web_access_log {
        format!("{} lab", folders.dir.join("access.log").display())
    } else {
        "off".to_owned()
    };
    let (kept, again) = match config.web.pool {
        0 => (String::new(), "proxy_set_header Connection close;"),
        pool => (format!("keepalive {pool};"), "proxy_set_header Connection \"\";"),
    };
    let file = folders.dir.join("nginx.conf");
    let text = fill(
        include_str!("../../../lab/nginx.conf"),
        Tier::Web,
        config,
        folders,
        &[
            ("APP", config.stack.listener(Tier::App).to_string()),
            ("ACCESS_LOG", access_log),
            ("KEEPALIVE", kept),
            ("CONNECTION", again.to_owned()),
        ],
    );
    fs::write(&file, text)?;
    let mut command = Command::new("/usr/sbin/nginx");
    command.arg("-p").arg(&folders.dir).arg("-e").arg(folders.dir.join("error.log")).arg("-c").arg(file);
    Ok(command)
}

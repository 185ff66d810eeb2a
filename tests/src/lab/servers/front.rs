//! The front tiers: reverse proxies.

use super::{Folders, fill};
use crate::lab::config::LabConfig;
use crate::stack::Tier;
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
    let members = config.stack.applications();
    let limits = format!("connectiontimeout=30 timeout=60 max={} retry=0", config.web.workers);
    let pass = match members {
        [one] => format!("ProxyPass \"/\" \"http://{}/\" {limits}", config.stack.listener(*one)),
        several => {
            let member = |tier: &Tier| {
                format!("    BalancerMember \"http://{}\" {limits}\n", config.stack.listener(*tier))
            };
            let members: String = several.iter().map(member).collect();
            format!("<Proxy \"balancer://app\">\n{members}</Proxy>\nProxyPass \"/\" \"balancer://app/\"")
        }
    };
    let file = folders.dir.join("apache.conf");
    let text = fill(
        include_str!("../../../lab/apache.conf"),
        Tier::Web,
        config,
        folders,
        &[
            ("PROXY_PASS", pass),
            ("ACCESS_LOG", access_log),
            ("MPM", if config.web_thread_per_connection { "worker" } else { "event" }.to_owned()),
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

/// Event-driven, as nginx.
pub(super) fn haproxy(config: &LabConfig, folders: &Folders) -> Result<Command> {
    let server = |tier: &Tier| format!("    server {} {}\n", tier.host(), config.stack.listener(*tier));
    let servers: String = config.stack.applications().iter().map(server).collect();
    let file = folders.dir.join("haproxy.cfg");
    let template = include_str!("../../../lab/haproxy.cfg");
    fs::write(&file, fill(template, Tier::Web, config, folders, &[("SERVERS", servers)]))?;
    let mut command = Command::new("/usr/sbin/haproxy");
    command.arg("-db").arg("-f").arg(file);
    Ok(command)
}

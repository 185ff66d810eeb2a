//! `tailwater up` on this machine, as a newcomer starts it, and its page's API. Knows no server beside it.

use super::daemons::{Daemon, binary, http_get, wait_for};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Where `tailwater up` has its page when nothing is configured.
pub const HTTP: ([u8; 4], u16) = ([127, 0, 0, 1], 4780);

/// An answer of the API.
pub fn get(path: &str) -> Result<Value> {
    let (code, body) = http_get(SocketAddr::from(HTTP), path)?;
    ensure!(code == 200, "GET {path}: {code} {body}");
    Ok(serde_json::from_str(&body)?)
}

/// The elements of a list in an answer; none where there is no such list.
#[must_use]
pub fn all<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// Starts it in `folder`, its data there; returns once its agent has sent windows, with the host that they are of.
pub fn up(folder: &Path, more: &[&str]) -> Result<(Daemon, String)> {
    let mut command = Command::new(binary("tailwater")?);
    command.args(["up", "--data", "./data"]).args(more).current_dir(folder);
    let mut daemon = Daemon::spawn("tailwater up", command, folder.join("up.log"))?;
    let host = wait_for("the agent of `tailwater up` to send windows", Duration::from_secs(60), || {
        if let Some(status) = daemon.exited()? {
            bail!("tailwater up exited: {status}\n{}", daemon.output());
        }
        let agents = get("/api/v1/agents").unwrap_or_default();
        let topology = get("/api/v1/topology").unwrap_or_default();
        let host = all(&topology, "nodes").first().and_then(|n| n["host"].as_str());
        Ok(host.filter(|_| agents.to_string().contains("host")).map(str::to_owned))
    })?;
    Ok((daemon, host))
}

/// Incidents that are `here`, once there are more than so many and all of them are closed. Where they do not come, whatever was told is said.
pub fn incidents(more_than: usize, here: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
    let mut told = Vec::new();
    wait_for("an incident to be told, and to close", Duration::from_secs(60), || {
        let answer = get("/api/v1/incidents")?;
        let list = answer.as_array().map_or_else(|| all(&answer, "incidents"), Vec::as_slice);
        told = list.iter().map(|i| format!("{}: {} (here: {})", i["state"], i["title"], here(i))).collect();
        let found: Vec<Value> = list.iter().filter(|i| here(i)).cloned().collect();
        let over = found.len() > more_than && found.iter().all(|i| i["state"] == "closed");
        Ok(over.then_some(found))
    })
    .with_context(|| format!("more than {more_than} of these: {told:#?}"))
}

//! What Tailwater itself says about a recording.

use super::results::Answer;
use crate::score::session::replay;
use anyhow::Result;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Instant;

/// How Tailwater's own answers are called.
const OURS: &str = "Tailwater";

/// What a replay says: its root and then its alternatives. As the others are told when the injection began, it is the first incident after that
/// in which something was dropped, and where nothing was, the first.
pub fn ours(cell: &str, trace: &[u8], injected_unix_ns: u64) -> Result<Answer> {
    let unpacked = tempfile::NamedTempFile::new()?;
    std::fs::write(unpacked.path(), trace)?;
    let begun = Instant::now();
    let incidents = replay(unpacked.path())?;
    let later = |i: &&Value| i["end_unix_ns"].as_u64().is_some_and(|end| end >= injected_unix_ns);
    let dropped = |i: &&Value| i["drops"].as_array().is_some_and(|drops| !drops.is_empty());
    let first = incidents.iter().filter(later).find(dropped).or_else(|| incidents.iter().find(later));
    let alternatives = first.and_then(|incident| incident["alternatives"].as_array()).into_iter().flatten();
    let roots = first.map(|incident| &incident["root"]).into_iter().chain(alternatives.map(|a| &a["root"]));
    let mut known = BTreeSet::new();
    let hosts: Vec<String> = roots
        .filter_map(|root| root["host"].as_str())
        .filter(|host| known.insert(*host))
        .map(str::to_owned)
        .collect();
    Ok(Answer {
        cell: cell.to_owned(),
        method: OURS.to_owned(),
        signals: "50 ms".to_owned(),
        error: hosts.is_empty().then(|| "no root was told".to_owned()),
        hosts,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

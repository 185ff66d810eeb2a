//! Injections into graphs that were once told wrongly, kept: the seconds around each, cut out of its session's recording, with its truth and what
//! its replay must say. Owns their form and their making; the replaying is the caller's.

use super::judge::Injection;
use super::run::injection_of;
use crate::programs::reported::Reported;
use crate::score::golden::{Golden, cut_out};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Kept before the injection, for the usual levels …
const BEFORE_NS: u64 = 5_000_000_000;
/// … and after its end: retries, and the time after which an incident is over.
const AFTER_NS: u64 = 7_000_000_000;

/// An injection, and those that were made at the same moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    /// It.
    #[serde(flatten)]
    pub injection: Injection,
    /// The others: each of them may be told, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Injection>,
}

/// Keeps the injection `id` of a session in the folder `out`, under the name that is returned.
///
/// # Errors
/// No such injection, a session without its recording, a folder that cannot be written.
pub fn keep(session: &Path, id: &str, out: &Path) -> Result<String> {
    let (injection, beside) = injection_of(session, id)?;
    let name = id.replace(['/', '#'], "-");
    let golden = Golden::of(out, &name);
    let (from, to) = (injection.truth.start_unix_ns, injection.truth.end_unix_ns);
    let (trace, incidents) = cut_out(session, from.saturating_sub(BEFORE_NS), to + AFTER_NS)?;
    fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    golden.write(&trace, &Kept { injection, beside }, &incidents)?;
    Ok(name)
}

/// The injection that a kept recording is of.
///
/// # Errors
/// A truth that is missing or none.
pub fn injection(golden: &Golden) -> Result<Kept> {
    let text = fs::read(&golden.truth).with_context(|| format!("read {}", golden.truth.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no injection", golden.truth.display()))
}

/// What is told wrongly of it; empty: one incident wakes somebody, and names its root.
#[must_use]
pub fn misfits(Kept { injection, beside }: &Kept, incidents: &[Value]) -> Vec<String> {
    let (from, to) =
        (injection.truth.start_unix_ns.saturating_sub(BEFORE_NS / 5), injection.truth.to_unix_ns);
    let reported = incidents.iter().map(Reported::of);
    let alarms: Vec<Reported> = reported
        .filter(|told| told.severity != "info" && (from..to).contains(&told.start_unix_ns))
        .map(|told| told.further().into_iter().find(|further| injection.is_told_by(further)).unwrap_or(told))
        .filter(|told| !beside.iter().any(|other| other.is_told_by(told)))
        .collect();
    let mut wrong = Vec::new();
    if alarms.len() != 1 {
        wrong.push(format!("{} alarms", alarms.len()));
    }
    for told in alarms.iter().filter(|told| !injection.is_told_by(told)) {
        let wanted = injection.resources().join(" or ");
        let (roots, host) = (injection.roots.join(" or "), &injection.host);
        wrong.push(format!(
            "{} of {}@{} instead of {wanted} of {roots}@{host}",
            told.resource, told.workload, told.host
        ));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::injections::Cause;
    use crate::truth::TruthRecord;
    use serde_json::json;

    #[test]
    fn another_root_and_a_second_alarm_are_misfits_and_what_wakes_nobody_is_none() {
        let truth = TruthRecord {
            start_unix_ns: 9_000_000_000,
            end_unix_ns: 9_500_000_000,
            to_unix_ns: 17_000_000_000,
            ..TruthRecord::default()
        };
        let injection = Injection {
            cause: Cause::Lock,
            host: "hostb".into(),
            roots: vec!["users".into()],
            duration_ms: 500,
            truth,
        };
        let mail = Injection { roots: vec!["mail".into()], ..injection.clone() };
        let alone = Kept { injection, beside: Vec::new() };
        let beside = Kept { beside: vec![mail], ..alone.clone() };
        let told = |workload: &str, severity: &str| {
            json!({"severity": severity, "start_unix_ns": 9_200_000_000_u64,
                   "root": {"host": "hostb", "workload": workload, "resource": "lock"}})
        };
        assert!(misfits(&alone, &[told("users", "critical"), told("mail", "info")]).is_empty());
        let both = [told("users", "critical"), told("mail", "warning")];
        assert!(misfits(&beside, &both).is_empty(), "mail was hurt at the same moment");
        let wrong = misfits(&alone, &both);
        assert_eq!(wrong, ["2 alarms", "lock of mail@hostb instead of lock of users@hostb"]);
        assert_eq!(misfits(&alone, &[]), ["0 alarms"]);
        assert_eq!(misfits(&beside, &both[1..]), ["0 alarms"]);
    }
}

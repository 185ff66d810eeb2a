//! Golden traces: a recording of each cell, cut to the seconds around its injection, with what its replay must say. Owns their
//! form and their making; the replaying is the caller's.

use crate::lab::cells::Cell;
use crate::programs::reported::Reported;
use crate::score::cut::cut;
use crate::score::judge::{judge, plan};
use crate::score::model::{Injection, Plan};
use crate::score::session;
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Kept before the injection: the usual level of queues is learned from it, and the one before it is over.
const BEFORE_NS: u64 = 3_300_000_000;
/// Where nothing is dropped, what is usual must be known before anything is felt.
const BEFORE_FELT_NS: u64 = 9_000_000_000;
/// Kept after its end: the first retries, and the time after which an incident is over.
const AFTER_NS: u64 = 4_500_000_000;
/// Retries of what an injection so long before another one dropped may come in that one's time.
const AFTERMATH_NS: u64 = 12_000_000_000;
/// Of zstd: the slowest that is worth it. Made once, read often.
const LEVEL: i32 = 19;
/// A trace unpacked is no larger.
const TRACE_BYTES_MAX: u64 = 64 << 20;

/// File names of a golden trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Golden {
    /// The cell's name; of one injection of it also the number.
    pub cell: String,
    /// `CELL.trace.zst`.
    pub trace: PathBuf,
    /// `CELL.expected`.
    pub expected: PathBuf,
    /// `CELL.truth`: the injection's truth record, JSON.
    pub truth: PathBuf,
}

impl Golden {
    /// Of a cell, in a folder.
    #[must_use]
    pub fn of(folder: &Path, cell: &str) -> Self {
        Self {
            cell: cell.to_owned(),
            trace: folder.join(format!("{cell}.trace.zst")),
            expected: folder.join(format!("{cell}.expected")),
            truth: folder.join(format!("{cell}.truth")),
        }
    }

    /// All of a folder, by name.
    pub fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            all.extend(name.strip_suffix(".trace.zst").map(|cell| Self::of(folder, cell)));
        }
        all.sort_by(|a, b| a.cell.cmp(&b.cell));
        Ok(all)
    }

    /// The trace, unpacked.
    pub fn read(&self) -> Result<Vec<u8>> {
        let file =
            std::fs::File::open(&self.trace).with_context(|| format!("open {}", self.trace.display()))?;
        let mut bytes = Vec::new();
        zstd::Decoder::new(file)?
            .take(TRACE_BYTES_MAX)
            .read_to_end(&mut bytes)
            .with_context(|| format!("unpack {}", self.trace.display()))?;
        Ok(bytes)
    }

    /// The injection that it is of.
    pub fn injection(&self) -> Result<Injection> {
        let text =
            std::fs::read_to_string(&self.truth).with_context(|| format!("read {}", self.truth.display()))?;
        session::of_cell(serde_json::from_str(&text)?)
    }

    /// Writes its three files; `truth` is what its injection is read back from.
    pub(crate) fn write(&self, trace: &[u8], truth: &impl Serialize, incidents: &[Value]) -> Result<()> {
        std::fs::write(&self.truth, serde_json::to_string_pretty(truth)? + "\n")
            .with_context(|| format!("write {}", self.truth.display()))?;
        std::fs::write(&self.trace, zstd::encode_all(trace, LEVEL)?)
            .with_context(|| format!("write {}", self.trace.display()))?;
        std::fs::write(&self.expected, render(incidents)?)
            .with_context(|| format!("write {}", self.expected.display()))
    }
}

/// What must stay the same of incidents, for people to review: everything but the prose. Times are in ms after the first incident's
/// start, so that they can be read.
pub fn render(incidents: &[Value]) -> Result<String> {
    let mut out = String::new();
    let zero = incidents.iter().filter_map(|i| i["start_unix_ns"].as_u64()).min().unwrap_or(0);
    let ms =
        |value: &Value| value.as_u64().map_or(-1, |at| (at.cast_signed() - zero.cast_signed()) / 1_000_000);
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    for incident in incidents {
        let root = &incident["root"];
        writeln!(
            out,
            "{} {} {}..{} ms",
            text(&incident["severity"]),
            text(&incident["kind"]),
            ms(&incident["start_unix_ns"]),
            ms(&incident["end_unix_ns"])
        )?;
        writeln!(
            out,
            "  root {}@{} {} {}..{} ms",
            text(&root["workload"]),
            text(&root["host"]),
            text(&root["resource"]),
            ms(&root["start_unix_ns"]),
            ms(&root["end_unix_ns"])
        )?;
        for culprit in root["culprits"].as_array().into_iter().flatten().take(1) {
            let share = culprit["share"].as_f64().unwrap_or(0.0) * 100.0;
            writeln!(out, "  culprit {} {share:.0} %", text(&culprit["comm"]))?;
        }
        for also in incident["also"].as_array().into_iter().flatten() {
            let (root, share) = (&also["root"], also["share"].as_f64().unwrap_or(0.0) * 100.0);
            let [workload, host, resource] = ["workload", "host", "resource"].map(|key| text(&root[key]));
            writeln!(out, "  also {workload}@{host} {resource}, {share:.0} % of what waited")?;
        }
        for hop in incident["hops"].as_array().into_iter().flatten() {
            writeln!(
                out,
                "  hop {}@{} {} from {} ms, queued {}",
                text(&hop["workload"]),
                text(&hop["host"]),
                text(&hop["role"]),
                ms(&hop["onset_unix_ns"]),
                hop["queued_max"]
            )?;
        }
        for drop in incident["drops"].as_array().into_iter().flatten() {
            writeln!(
                out,
                "  drops {} {} in {} connections, {}, {}..{} ms",
                text(&drop["listener"]),
                drop["count"],
                drop["connections"],
                text(&drop["reason"]),
                ms(&drop["first_unix_ns"]),
                ms(&drop["last_unix_ns"])
            )?;
        }
        writeln!(out, "  vlrt {}", incident["vlrt"]["expected"])?;
        let kept = &incident["sustained"];
        if let Some(share) = kept["retry_share"].as_f64() {
            let (from, to) = (ms(&kept["since_unix_ns"]), ms(&kept["until_unix_ns"]));
            writeln!(
                out,
                "  kept alive by {} {from}..{to} ms, {:.0} % of the attempts",
                text(&kept["by"]),
                share * 100.0
            )?;
        }
    }
    Ok(out)
}

/// What does not fit the cell's expectation; empty: all of it does. Judged as a run of the matrix is.
#[must_use]
pub fn misfits(injection: &Injection, incidents: &[Value]) -> Vec<String> {
    let reported: Vec<Reported> = incidents.iter().map(Reported::of).collect();
    let judged = judge(std::slice::from_ref(injection), &reported, &[]);
    let Some(row) = judged.rows.first() else { return vec!["no injection".to_owned()] };
    let Some(is) = &row.reported else { return vec!["no incident".to_owned()] };
    let wanted = &injection.expected;
    let mut wrong = Vec::new();
    if !row.extra.is_empty() {
        wrong.push(format!("{} more alarms", row.extra.len()));
    }
    if wanted.sustained && !is.sustained {
        wrong.push("not told to be kept alive by retries".to_owned());
    }
    let culprit = is.culprit.as_deref().unwrap_or("nobody");
    for (what, right, is, wanted) in [
        ("kind", is.kind == wanted.kind, &is.kind, &wanted.kind),
        ("root", row.root_right, &is.host, &wanted.host),
        ("resource", row.resource_right, &is.resource, &wanted.resource),
        (
            "culprit",
            row.culprit_right != Some(false),
            &culprit.to_owned(),
            wanted.culprit.as_ref().unwrap_or(&String::new()),
        ),
    ] {
        if !right {
            wrong.push(format!("{what} {is} instead of {wanted}"));
        }
    }
    wrong
}

/// A trace, the injection that it is of, what its replay says, and what of that is wrong.
type Cut<'a> = (Vec<u8>, &'a Injection, Vec<Value>, Vec<String>);

/// What a session recorded between these times, Unix ns, and what the replay of that says.
pub(crate) fn cut_out(session: &Path, from: u64, to: u64) -> Result<(Vec<u8>, Vec<Value>)> {
    let recording = session.join(session::TRACE);
    let file = std::fs::File::open(&recording).with_context(|| format!("open {}", recording.display()))?;
    let mut trace = Vec::new();
    cut(BufReader::new(file), &mut trace, from, to)?;
    let unpacked = tempfile::NamedTempFile::new()?;
    std::fs::write(unpacked.path(), &trace)?;
    let incidents = session::replay(unpacked.path())?;
    Ok((trace, incidents))
}

/// Cuts a golden trace for each cell out of the sessions that a run of the matrix left below `sessions`: of the injections that went as
/// planned the first one whose replay fits the cell, else the first; or `only` these injections, each under its own name. Returns the cells without
/// one, with the reason.
pub fn record(cells: &[&Cell], out: &Path, sessions: &Path, only: &[String]) -> Result<Vec<String>> {
    std::fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    let mut missing = Vec::new();
    for cell in cells {
        let session = sessions.join(cell.stack.name());
        let all = session::kept(&session)?;
        let of_cell = |i: &&Injection| i.cell == cell.name && plan(i) == Plan::AsPlanned;
        let injections = || all.iter().filter(of_cell);
        if !only.is_empty() {
            let is_of = |id: &&String| id.split('#').next() == Some(cell.name);
            let is_there = |id: &&String| injections().any(|i| i.truth.id == **id);
            let absent = only.iter().filter(is_of).filter(|id| !is_there(id));
            missing.extend(absent.map(|id| format!("{id}: not there, or not as planned")));
            for injection in injections().filter(|i| only.contains(&i.truth.id)) {
                // What one that was just before left behind is a part of it.
                let start = injection.truth.start_unix_ns;
                let just_before = start.saturating_sub(AFTERMATH_NS)..start;
                let before = all.iter().map(|i| i.truth.start_unix_ns).find(|at| just_before.contains(at));
                let found = cut_around(cell, &session, injection, before.unwrap_or(start))?;
                keep(out, &injection.truth.id.replace('#', "-"), found)?;
            }
            continue;
        }
        let mut first: Option<Cut<'_>> = None;
        for injection in injections() {
            let found = cut_around(cell, &session, injection, injection.truth.start_unix_ns)?;
            let fits = found.3.is_empty();
            if fits || first.is_none() {
                first = Some(found);
            }
            if fits {
                break;
            }
        }
        match first {
            Some(found) => keep(out, cell.name, found)?,
            None => missing.push(format!("{}: no injection went as planned", cell.name)),
        }
    }
    Ok(missing)
}

/// The seconds around an injection, and all since `begun`.
fn cut_around<'a>(cell: &Cell, session: &Path, injection: &'a Injection, begun: u64) -> Result<Cut<'a>> {
    let truth = &injection.truth;
    let before = if cell.expected.drops.is_some() { BEFORE_NS } else { BEFORE_FELT_NS };
    let from = truth.start_unix_ns.min(begun).saturating_sub(before);
    let last = truth.places.iter().map(|place| place.last_drop_unix_ns).max().unwrap_or(0);
    let end = if cell.expected.sustained { truth.end_unix_ns.max(last) } else { truth.end_unix_ns };
    let (trace, incidents) = cut_out(session, from, truth.to_unix_ns.min(end + AFTER_NS))?;
    let wrong = misfits(injection, &incidents);
    Ok((trace, injection, incidents, wrong))
}

fn keep(out: &Path, name: &str, (trace, injection, incidents, wrong): Cut<'_>) -> Result<()> {
    let golden = Golden::of(out, name);
    golden.write(&trace, &injection.truth, &incidents)?;
    let bytes = std::fs::metadata(&golden.trace)?.len();
    println!("{name}: {} kB {}", bytes / 1000, wrong.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::TruthRecord;
    use serde_json::json;

    fn incident(kind: &str, resource: &str) -> Value {
        json!({
            "severity": "critical", "kind": kind, "start_unix_ns": 5_000_000_000_u64, "end_unix_ns": 6_000_000_000_u64,
            "root": {"host": "app-1", "workload": "tomcat", "resource": resource, "start_unix_ns": 5_000_000_000_u64,
                     "end_unix_ns": 5_800_000_000_u64, "culprits": [{"comm": "burner", "share": 0.914}]},
            "hops": [{"host": "web-1", "workload": "apache2", "role": "drop", "onset_unix_ns": 5_100_000_000_u64, "queued_max": 279}],
            "drops": [{"host": "web-1", "listener": "10.77.0.2:80", "count": 12, "connections": 11, "reason": "accept_queue_full",
                       "first_unix_ns": 5_300_000_000_u64, "last_unix_ns": 5_900_000_000_u64}],
            "vlrt": {"expected": 11}, "title": "prose"
        })
    }

    #[test]
    fn the_expected_text_has_everything_but_the_prose() {
        let text = render(&[incident("upstream_ctqo", "cpu_neighbour")]).unwrap();
        assert_eq!(
            text,
            "critical upstream_ctqo 0..1000 ms\n  root tomcat@app-1 cpu_neighbour 0..800 ms\n  culprit burner 91 %\n  \
             hop apache2@web-1 drop from 100 ms, queued 279\n  \
             drops 10.77.0.2:80 12 in 11 connections, accept_queue_full, 300..900 ms\n  vlrt 11\n"
        );
    }

    #[test]
    fn misfits_name_what_is_wrong() {
        let truth = TruthRecord {
            id: "nx0-app-cpu#1".into(),
            start_unix_ns: 5_000_000_000,
            end_unix_ns: 5_800_000_000,
            from_unix_ns: 4_900_000_000,
            to_unix_ns: 9_000_000_000,
            ..TruthRecord::default()
        };
        let injection = session::of_cell(truth).unwrap();
        assert!(misfits(&injection, &[incident("upstream_ctqo", "cpu_neighbour")]).is_empty());
        let wrong = misfits(&injection, &[incident("local_overflow", "cpu_neighbour")]);
        assert_eq!(wrong, ["kind local_overflow instead of upstream_ctqo"]);
        let mut later = incident("upstream_ctqo", "cpu_neighbour");
        later["id"] = "another".into();
        assert_eq!(
            misfits(&injection, &[incident("upstream_ctqo", "cpu_neighbour"), later]),
            ["1 more alarms"]
        );
        assert_eq!(misfits(&injection, &[]), ["no incident"]);
    }
}

//! Rows as a table and as a file: `scale.json` for programs, `scale.md` for people. Owns what the goals are; knows nothing of how a row came
//! about.

use super::run::Row;
use crate::console::written::written;
use crate::score::totals::nearest_rank;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;

/// From a drop event to the webhook, p99.
const ALERT_GOAL_MS: f64 = 250.0;
/// From a drop to the verdict, p99.
const VERDICT_GOAL_MS: f64 = 1500.0;

/// From the moment at which all connections went until the last agents are back.
const BACK_GOAL_MS: f64 = 10_000.0;
/// Since a collector was told to end until the one after it is ready.
const BLIND_GOAL_MS: f64 = 5000.0;

/// A file of rows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// What was measured: a version or a commit.
    pub version: String,
    /// When, and on what.
    pub machine: String,
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
}

/// A number that misses its goal is bold.
fn against(value: Option<f64>, goal: f64, said: impl Fn(f64) -> String) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value <= goal => said(value),
        Some(value) => format!("**{}**", said(value)),
    }
}

fn ms(value: f64) -> String {
    if value.is_infinite() { "beyond all".to_owned() } else { format!("{value:.0}") }
}

impl Results {
    /// As a table. Latencies are claimed of real time only.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = format!("# `make scale`: {} ({})\n\n", self.version, self.machine);
        out += "CPU is of one core, in each second of the fleet's time; memory is without what an idle collector has. Times in ms. Where time was slowed, no latency is claimed. Bold misses a goal.\n\n";
        out += "| agents | hosts | windows a batch | pages | time | collector, % of a core | per agent | MB | MB per agent | generator, % | steal, % | connected, refused | batches, refused, lost | window end to acknowledgement p50 / p99 | window end to frame p50 / p99, at most | drop to alert p50 / p99 (n) | drop to verdict p50 / p99 (n) | found / episodes, across | `/api/v1/now` p50 / p99, failed | generator late p99 |\n";
        out += "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
        for row in &self.rows {
            let real = row.slower == 1;
            let (cpu_goal, bytes_goal) = row.size.goals();
            let claimed = |value: Option<f64>| value.filter(|_| real).map_or("–".to_owned(), ms);
            let spread = |all: &[f64], goal: f64| {
                let all = if real { all } else { &[] };
                format!(
                    "{} / {} ({})",
                    nearest_rank(all, 0.5).map_or("–".to_owned(), ms),
                    against(nearest_rank(all, 0.99), goal, ms),
                    all.len()
                )
            };
            let heard = &row.heard;
            let found = format!("{} / {}, {}", heard.found, heard.episodes, heard.across);
            let found = if heard.found == heard.episodes && heard.across == 0 {
                found
            } else {
                format!("**{found}**")
            };
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {:.1} | {} | {:.0} | {} | {:.1} | {:.1} | {}, {} | {}, {}, {} | {} / {} | {} / {} | {} | {} | {found} | {} / {}, {} of {} | {} |",
                row.agents,
                row.size,
                row.per_batch,
                row.readers.map_or_else(|| row.pages.to_string(), |readers| readers.to_string()),
                if real { "real".to_owned() } else { format!("1/{}", row.slower) },
                row.collector_cpu_ratio * 100.0,
                against(Some(row.cpu_per_agent()), cpu_goal, |v| format!("{:.3}", v * 100.0)),
                row.resident_bytes as f64 / 1e6,
                against(Some(row.bytes_per_agent()), bytes_goal, |v| format!("{:.1}", v / 1e6)),
                row.generator_cpu_ratio * 100.0,
                row.stolen_ratio * 100.0,
                row.connected,
                if row.refused == 0 { "0".to_owned() } else { format!("**{}**", row.refused) },
                row.batches,
                row.batches_refused,
                row.batches_lost,
                claimed(row.acknowledged_p50_ms),
                claimed(row.acknowledged_p99_ms),
                claimed(row.frame_p50_ms),
                claimed(row.frame_p99_ms),
                spread(&heard.drop_to_alert_ms, ALERT_GOAL_MS),
                spread(&heard.drop_to_verdict_ms, VERDICT_GOAL_MS),
                claimed(row.read_p50_ms),
                claimed(row.read_p99_ms),
                row.read_failed,
                row.read_asked,
                row.late_p99_ms.map_or("–".to_owned(), ms),
            );
        }
        out += "\nAll connections at once: an agent is back when a batch of windows after that is acknowledged; times in ms since then, of a restart since the collector was told to end. A restart is blind from then until the new collector is ready.\n\n";
        out += "| agents | hosts | time | what | back | p50 / p99 | refused meanwhile | batches refused, lost | blind |\n";
        out += "|---|---|---|---|---|---|---|---|---|\n";
        for row in &self.rows {
            for (what, of) in
                [("agents connect again", &row.storm), ("the collector is restarted", &row.restart)]
            {
                let Some(of) = of else { continue };
                let lost = format!("{}, {}", of.batches_refused, of.batches_lost);
                let _ = writeln!(
                    out,
                    "| {} | {} | {} | {what} | {} | {} / {} | {} | {} | {} |",
                    row.agents,
                    row.size,
                    if row.slower == 1 { "real".to_owned() } else { format!("1/{}", row.slower) },
                    if of.back == row.agents as u64 {
                        of.back.to_string()
                    } else {
                        format!("**{}**", of.back)
                    },
                    of.p50_ms.map_or("–".to_owned(), ms),
                    against(of.p99_ms, BACK_GOAL_MS, ms),
                    of.refused,
                    if of.batches_refused + of.batches_lost == 0 { lost } else { format!("**{lost}**") },
                    against(of.ready_ms, BLIND_GOAL_MS, ms),
                );
            }
        }
        out
    }

    /// Writes both files into `folder`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        written(folder, "scale", self, &self.table())
    }
}

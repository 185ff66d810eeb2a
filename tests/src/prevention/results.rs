//! What a prevention score leaves: `prevention-score.json` and `prevention-score.md`. Owns errors and their quantiles; runs nothing.

use crate::console::measured::Measured;
use crate::console::written::written;
use crate::prevention::answer::{Candidate, Change};
use crate::score::totals::nearest_rank;
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// How the figures came about, for whoever reads only the file.
const METHOD: &str = "Each cell is injected into the laboratory as it is; then, into one that was started anew with the smallest change that is said to \
    prevent it, and with half of that change. Packets dropped are the kernel's (`ListenDrops`) from the injection until 9 s after its end, retries included. \
    The error is |predicted − seen| for each packet that was dropped with nothing changed.";

/// One changed trial.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The cell.
    pub cell: String,
    /// Which repeat.
    pub repeat: u32,
    /// Half of the change only.
    pub is_half: bool,
    /// What was changed.
    pub changes: Vec<Change>,
    /// What is said to come of it.
    pub effect: String,
    /// Packets dropped with nothing changed.
    pub unchanged: u64,
    /// The same by the model, if it says so.
    pub unchanged_predicted: Option<u64>,
    /// Packets that the model drops.
    pub predicted: u64,
    /// Packets that the model drops with its margin, if that was worked out.
    pub predicted_with_margin: Option<u64>,
    /// Packets that were dropped.
    pub seen: u64,
    /// 99 % quantile of the first attempts, s, by the model and by the clients.
    pub p99_s: [Option<f64>; 2],
    /// The most that the hypervisor took in either trial.
    pub steal: f64,
}

impl Row {
    /// Of a changed trial.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.predicted.abs_diff(self.seen) as f64 / self.unchanged.max(1) as f64
    }

    /// Whether it was said to leave no drops, in time or not.
    #[must_use]
    pub fn is_promise(&self) -> bool {
        ["prevents", "slow", "holds"].contains(&self.effect.as_str())
    }

    /// Whether it was, and packets were dropped.
    #[must_use]
    pub fn is_broken_promise(&self) -> bool {
        self.is_promise() && self.seen > 0
    }

    /// Whether no more was dropped than was said with the margin; none where that was not said.
    #[must_use]
    pub fn is_within_margin(&self) -> Option<bool> {
        self.predicted_with_margin.map(|most| self.seen <= most.max(self.predicted))
    }
}

/// All of it.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    /// When and where.
    #[serde(flatten)]
    pub measured: Measured,
    /// How the figures came about.
    pub method: String,
    /// Changed trials.
    pub rows: Vec<Row>,
    /// Injections of which nothing was said that could be tried, and why.
    pub without: Vec<String>,
}

impl Results {
    /// Median, 90 % quantile and worst of the errors; none without a row.
    #[must_use]
    pub fn errors(&self) -> Option<[f64; 3]> {
        let mut errors: Vec<f64> = self.rows.iter().map(Row::error).collect();
        errors.sort_by(f64::total_cmp);
        let at = |part| nearest_rank(&errors, part);
        Some([at(0.5)?, at(0.9)?, at(1.0)?])
    }

    /// Writes both files.
    pub fn write(&self, folder: &Path) -> Result<()> {
        written(folder, "prevention-score", self, &self.markdown()?)
    }

    /// For people.
    pub fn markdown(&self) -> Result<String> {
        let mut out = String::new();
        writeln!(out, "# Prevention score\n")?;
        writeln!(out, "{} trials {}\n", self.rows.len(), self.measured)?;
        writeln!(out, "{METHOD}\n")?;
        if let Some([median, p90, worst]) = self.errors() {
            let broken = self.rows.iter().filter(|row| row.is_broken_promise()).count();
            writeln!(
                out,
                "Errors: median {:.0} %, p90 {:.0} %, worst {:.0} %. Said to leave no drops, and dropped all the same: {broken} of {}. No more dropped than was said with the \
                 margin: {} of {}.\n",
                median * 100.0,
                p90 * 100.0,
                worst * 100.0,
                self.rows.iter().filter(|row| row.is_promise()).count(),
                self.rows.iter().filter(|row| row.is_within_margin() == Some(true)).count(),
                self.rows.iter().filter(|row| row.is_within_margin().is_some()).count()
            )?;
        }
        writeln!(
            out,
            "| cell | change | said | unchanged, dropped (model) | then, dropped (model, with its margin) | error | p99, s (model) | steal |\n\
             |---|---|---|---|---|---|---|---|"
        )?;
        for row in &self.rows {
            let error = format!("{:.0} %", row.error() * 100.0);
            let error =
                if row.is_broken_promise() || row.error() > 0.15 { format!("**{error}**") } else { error };
            let p99 = |of: Option<f64>| of.map_or_else(|| "never".to_owned(), |of| format!("{of:.2}"));
            let by_model = |of: Option<u64>| of.map_or_else(|| "not said".to_owned(), |of| of.to_string());
            writeln!(
                out,
                "| {} #{} | {} | {} | {} ({}) | {} ({}, {}) | {error} | {} ({}) | {:.1} % |",
                row.cell,
                row.repeat,
                changes(&row.changes, row.is_half),
                row.effect,
                row.unchanged,
                by_model(row.unchanged_predicted),
                row.seen,
                row.predicted,
                by_model(row.predicted_with_margin),
                p99(row.p99_s[1]),
                if row.effect == "holds" { "not said".to_owned() } else { p99(row.p99_s[0]) },
                row.steal * 100.0
            )?;
        }
        if !self.without.is_empty() {
            writeln!(out, "\nNothing to try:\n")?;
            for why in &self.without {
                writeln!(out, "* {why}")?;
            }
        }
        Ok(out)
    }
}

fn changes(changes: &[Change], is_half: bool) -> String {
    let size = |size: Option<u32>| size.map_or_else(|| "?".to_owned(), |size| size.to_string());
    let one = |of: &Change| format!("{} of {} {} → {}", of.what, of.host, size(of.from), size(of.to));
    let all = changes.iter().map(one).collect::<Vec<_>>().join(", ");
    if is_half { format!("half: {all}") } else { all }
}

impl Row {
    /// What was changed, what was said of it, and what came.
    #[must_use]
    pub fn with(mut self, said: &Candidate) -> Self {
        self.changes.clone_from(&said.changes);
        self.effect.clone_from(&said.effect);
        self.predicted = said.dropped;
        self.predicted_with_margin = said.dropped_with_margin;
        self.p99_s[0] = said.p99_s;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(effect: &str, predicted: u64, seen: u64) -> Row {
        Row {
            cell: "nx0-app-pause".into(),
            repeat: 1,
            is_half: effect != "prevents",
            changes: vec![Change {
                what: "backlog".into(),
                host: "web-1".into(),
                from: Some(128),
                to: Some(640),
            }],
            effect: effect.into(),
            unchanged: 300,
            unchanged_predicted: Some(310),
            predicted,
            predicted_with_margin: Some(predicted),
            seen,
            p99_s: [Some(0.8), None],
            steal: 0.0,
        }
    }

    #[test]
    fn errors_are_of_what_was_dropped_unchanged_and_broken_promises_are_counted() {
        let rows = vec![row("prevents", 0, 0), row("prevents", 0, 3), row("lessens", 150, 120)];
        let results =
            Results { rows, without: vec!["nx2-db-io: nothing was dropped".into()], ..Results::default() };
        let [median, p90, worst] = results.errors().unwrap();
        assert!((median - 0.01).abs() < 1e-9 && (p90 - 0.1).abs() < 1e-9 && (worst - 0.1).abs() < 1e-9);
        let text = results.markdown().unwrap();
        assert!(
            text.contains(
                "dropped all the same: 1 of 2. No more dropped than was said with the margin: 2 of 3."
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "| half: backlog of web-1 128 → 640 | lessens | 300 (310) | 120 (150, 150) | 10 % | never (0.80) |"
            ),
            "{text}"
        );
        assert!(text.contains("| **1 %** |") && text.contains("* nx2-db-io"), "{text}");
        assert_eq!(Results::default().errors(), None);
    }
}

//! The results of a run: the file `lab-score.json` and the Markdown table made from it. Knows no laboratory.

use crate::console::written::written;
use crate::score::model::{FORMAT, Plan, Row, Stray};
use crate::score::totals::{Share, Spread, Totals, connections, found};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Everything that `lab-score.json` holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of the format: [`FORMAT`].
    pub format: u32,
    /// What was measured: a version or commit, as given on the command line.
    pub label: String,
    /// When it began, Unix s.
    pub begun_unix_s: u64,
    /// How long it took, s.
    pub took_s: u64,
    /// Kernel release.
    pub kernel: String,
    /// CPUs of the machine.
    pub cpus: u64,
    /// Sums.
    pub totals: Totals,
    /// Every injection.
    pub rows: Vec<Row>,
    /// Alarms that belong to none.
    pub strays: Vec<Stray>,
    /// The injections after which the load had to be taken away until queues were empty: the machine did not serve it any more.
    #[serde(default)]
    pub relieved: Vec<String>,
}

impl Results {
    /// Of rows and strays; the totals follow from them.
    #[must_use]
    pub fn new(label: String, rows: Vec<Row>, strays: Vec<Stray>) -> Self {
        let totals = Totals::of(&rows, &strays);
        Self { format: FORMAT, label, totals, rows, strays, ..Self::default() }
    }

    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let results: Self =
            serde_json::from_str(&text).with_context(|| format!("{} is no lab score", file.display()))?;
        if results.format != FORMAT {
            bail!(
                "{} has format {}, this build reads {FORMAT}: compare with the build that wrote it",
                file.display(),
                results.format
            );
        }
        Ok(results)
    }

    /// Writes `lab-score.json` and `lab-score.md` into a folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        written(folder, "lab-score", self, &self.markdown()?)
    }

    /// The table: a line for each cell, then the totals, then every failure by name.
    pub fn markdown(&self) -> Result<String> {
        let mut out = String::new();
        writeln!(out, "# Lab score\n")?;
        writeln!(
            out,
            "{} injections in {} min on kernel {}, {} CPUs. {}\n",
            self.rows.len(),
            self.took_s / 60,
            self.kernel,
            self.cpus,
            self.label
        )?;
        self.cells(&mut out)?;
        self.sums(&mut out)?;
        matrix(&mut out, "Kind: expected (row), reported (column)", &self.totals.kinds)?;
        matrix(&mut out, "Resource: expected (row), reported (column)", &self.totals.resources)?;
        self.failures(&mut out)?;
        Ok(out)
    }

    fn cells(&self, out: &mut String) -> Result<()> {
        let mut cells: Vec<(&str, Vec<&Row>)> = Vec::new();
        for row in &self.rows {
            match cells.iter_mut().find(|(cell, _)| *cell == row.cell) {
                Some((_, rows)) => rows.push(row),
                None => cells.push((&row.cell, vec![row])),
            }
        }
        writeln!(
            out,
            "| cell | expected | as planned | found | kind | root | resource | culprit | packets dropped, counted/true | connections, counted/true | VLRT counted/true | onset ms, median | alert ms, median | verdict ms, median |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")?;
        for (cell, all) in cells {
            let rows: Vec<&Row> = all.iter().copied().filter(|row| row.plan == Plan::AsPlanned).collect();
            let count = |is: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| is(row)).count();
            let sum = |pair: &dyn Fn(&Row) -> [u64; 2]| {
                let sum = rows.iter().map(|row| pair(row)).fold([0, 0], |a, b| [a[0] + b[0], a[1] + b[1]]);
                format!("{}/{}", sum[0], sum[1])
            };
            let median = |value: &dyn Fn(&Row) -> Option<f64>| {
                let spread = Spread::of(rows.iter().filter_map(|row| value(row)));
                if spread.count == 0 { "–".to_owned() } else { format!("{:.0}", spread.median) }
            };
            let Some(expected) = all.first().map(|row| &row.expected) else { continue };
            let culprit = match &expected.culprit {
                Some(_) => format!("{}", count(&|row| row.culprit_right == Some(true))),
                None => "–".to_owned(),
            };
            writeln!(
                out,
                "| {cell} | {}, {} at {} | {}/{} | {} | {} | {} | {} | {culprit} | {} | {} | {} | {} | {} | {} |",
                expected.kind,
                expected.resource,
                expected.host,
                rows.len(),
                all.len(),
                count(&found),
                count(&|row| row.kind_right),
                count(&|row| row.root_right),
                count(&|row| row.resource_right),
                sum(&|row| row.dropped),
                sum(&connections),
                sum(&|row| row.vlrt),
                median(&|row| row.onset_error_ms),
                median(&|row| row.alert_ms),
                median(&|row| row.verdict_ms),
            )?;
        }
        Ok(())
    }

    fn sums(&self, out: &mut String) -> Result<()> {
        let totals = &self.totals;
        let share = |share: Share| format!("{:.3} ({}/{})", share.ratio(), share.right, share.of);
        let spread = |s: Spread| {
            format!("median {:.0}, p95 {:.0}, worst {:.0} (n={})", s.median, s.p95, s.max, s.count)
        };
        let percent = |s: Spread| {
            format!(
                "median {:.0}, p95 {:.0}, worst {:.0}; exact in {} of {}",
                100.0 * s.median,
                100.0 * s.p95,
                100.0 * s.max,
                totals.connections_exact.right,
                totals.connections_exact.of
            )
        };
        let pair = |[counted, real]: [u64; 2]| {
            format!("{counted}/{real} ({:+.1} %)", 100.0 * (counted as f64 / real.max(1) as f64 - 1.0))
        };
        writeln!(out, "\n| total | measured | goal |\n|---|---|---|")?;
        for (name, measured, goal) in [
            ("recall", share(totals.recall), "0.98"),
            ("precision", share(totals.precision), "0.98"),
            ("kind and root", share(totals.kind_and_root), "0.97"),
            ("kind", share(totals.kind), ""),
            ("root", share(totals.root), ""),
            ("resource", share(totals.resource), "0.95"),
            ("culprit", share(totals.culprit), "0.95"),
            ("dropping tier", share(totals.drops_at), ""),
            ("packets dropped, counted/true", pair(totals.dropped), "2 %"),
            ("connections dropped, counted/true", pair(totals.connections), ""),
            ("connections dropped, error, %", percent(totals.connections_error), ""),
            ("VLRT, counted/true", pair(totals.vlrt), "5 %"),
            ("onset error, ms", spread(totals.onset_error_ms), "median 50, p95 100"),
            ("first drop to first alert, ms", spread(totals.alert_ms), ""),
            ("first drop to verdict, ms", spread(totals.verdict_ms), "p95 1500"),
        ] {
            writeln!(out, "| {name} | {measured} | {goal} |")?;
        }
        let plans = |plan: Plan| totals.plans.get(&plan).copied().unwrap_or(0);
        writeln!(
            out,
            "\nOf {} injections {} went as planned; {} were not induced (nothing was dropped), {} dropped at another tier than planned, {} dropped though nothing should. {} alarms outside of injections were right: the machine itself stalled and the kernel dropped.",
            totals.injections,
            plans(Plan::AsPlanned),
            plans(Plan::NotInduced),
            plans(Plan::DroppedElsewhere),
            plans(Plan::DroppedUnexpectedly),
            totals.unplanned_real
        )?;
        let causes: Vec<String> =
            totals.causes.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        writeln!(out, "As planned, by cause: {}.\n", causes.join(", "))?;
        if !self.relieved.is_empty() {
            let after = self.relieved.join("`, `");
            writeln!(
                out,
                "The load was not served again, and was taken away until queues were empty, after `{after}`.\n"
            )?;
        }
        Ok(())
    }

    fn failures(&self, out: &mut String) -> Result<()> {
        writeln!(out, "## Failures and what did not go as planned\n")?;
        let mut none = true;
        for row in &self.rows {
            let mut wrong = Vec::new();
            if row.plan == Plan::AsPlanned {
                for (what, right) in [
                    ("not found", found(row)),
                    ("kind", row.kind_right),
                    ("root", row.root_right),
                    ("resource", row.resource_right),
                    ("culprit", row.culprit_right != Some(false)),
                    ("dropping tier", row.drops_right),
                ] {
                    if !right {
                        wrong.push(what.to_owned());
                    }
                }
            } else {
                let plan = serde_json::to_value(row.plan)?;
                wrong.push(plan.as_str().unwrap_or_default().replace('_', " "));
            }
            if !row.extra.is_empty() {
                wrong.push(format!("{} more alarms", row.extra.len()));
            }
            if wrong.is_empty() {
                continue;
            }
            none = false;
            let said = row.reported.as_ref().map_or("nothing was reported", |reported| &reported.title);
            writeln!(out, "* `{}` {}: {said} (kernel: {})", row.id, wrong.join(", "), drops(row))?;
        }
        for stray in &self.strays {
            none = false;
            let real = if stray.dropped > 0 { "unplanned but real" } else { "false alarm" };
            writeln!(
                out,
                "* {} {real}: {} (kernel: {} dropped)",
                stray.stack, stray.reported.title, stray.dropped
            )?;
        }
        if none {
            writeln!(out, "None.")?;
        }
        Ok(())
    }
}

fn drops(row: &Row) -> String {
    let places: Vec<String> = row
        .truth
        .places
        .iter()
        .filter(|place| place.dropped > 0)
        .map(|place| format!("{} dropped {}", place.host, place.listen_drops))
        .collect();
    if places.is_empty() { "no drops".to_owned() } else { places.join(", ") }
}

fn matrix(out: &mut String, title: &str, matrix: &BTreeMap<String, BTreeMap<String, u64>>) -> Result<()> {
    let mut columns: Vec<&String> = matrix.values().flat_map(BTreeMap::keys).collect();
    columns.sort();
    columns.dedup();
    write!(out, "\n| {title} |")?;
    columns.iter().try_for_each(|column| write!(out, " {column} |"))?;
    writeln!(out, "\n|---|{}", "---|".repeat(columns.len()))?;
    for (name, row) in matrix {
        write!(out, "| {name} |")?;
        for column in &columns {
            match row.get(*column) {
                Some(count) => write!(out, " {count} |")?,
                None => write!(out, " |")?,
            }
        }
        writeln!(out)?;
    }
    writeln!(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::reported::Reported;
    use crate::score::model::Injection;
    use crate::score::{compare::compare, judge::judge};
    use crate::truth::{PlaceTruth, TruthRecord};

    fn results(label: &str, kind: &str) -> Results {
        let place = PlaceTruth {
            tier: "web".into(),
            host: "web-1".into(),
            dropped: 40,
            listen_drops: 40,
            ..PlaceTruth::default()
        };
        let mut injection = Injection {
            cell: "nx0-app-cpu".into(),
            stack: "nx0".into(),
            cause: "cpu".into(),
            truth: TruthRecord {
                id: "nx0-app-cpu#1".into(),
                from_unix_ns: 1,
                to_unix_ns: 100,
                places: vec![place],
                ..TruthRecord::default()
            },
            ..Injection::default()
        };
        injection.expected.kind = "upstream_ctqo".into();
        injection.expected.drops_at = Some("web".into());
        let incident = Reported {
            id: "A".into(),
            kind: kind.into(),
            severity: "critical".into(),
            first_drop_unix_ns: Some(50),
            dropped: 40,
            drop_hosts: vec!["web-1".into()],
            title: "it dropped".into(),
            ..Reported::default()
        };
        Results::new(label.into(), judge(&[injection], &[incident], &[]).rows, vec![])
    }

    #[test]
    fn results_survive_their_file_and_another_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let written = results("v1", "upstream_ctqo");
        written.write(folder.path()).unwrap();
        let file = folder.path().join("lab-score.json");
        assert_eq!(Results::read(&file).unwrap(), written);
        let text = std::fs::read_to_string(&file).unwrap().replace("\"format\": 1", "\"format\": 9");
        std::fs::write(&file, text).unwrap();
        assert!(Results::read(&file).unwrap_err().to_string().contains("format 9"));
    }

    #[test]
    fn failures_are_named() {
        let good = results("v1", "upstream_ctqo").markdown().unwrap();
        assert!(good.contains("| nx0-app-cpu |") && good.contains("None."), "{good}");
        assert!(!good.contains("taken away"), "{good}");
        let relieved = Results { relieved: vec!["nx2-app-loop#1".into()], ..results("v1", "upstream_ctqo") };
        let relieved = relieved.markdown().unwrap();
        assert!(relieved.contains("until queues were empty, after `nx2-app-loop#1`."), "{relieved}");
        let bad = results("v1", "local_overflow").markdown().unwrap();
        assert!(bad.contains("`nx0-app-cpu#1` kind: it dropped (kernel: web-1 dropped 40)"), "{bad}");
    }

    #[test]
    fn a_comparison_shows_what_became_worse() {
        let text = compare(&results("old", "upstream_ctqo"), &results("new", "local_overflow")).unwrap();
        assert!(text.contains("| kind | 1.000 | 0.000 | worse |"), "{text}");
        assert!(text.contains("| recall | 1.000 | 1.000 | same |"), "{text}");
        assert!(text.contains("| nx0-app-cpu | 1/1 | 0/1 | worse |"), "{text}");
    }
}

//! What a sizing score leaves: `sizing-score.json` and `sizing-score.md`. Knows shapes and texts; measures and judges nothing.

use crate::console::written::written;
use crate::sizing::advice::{Advice, Pool};
use crate::sizing::dcm::Dcm;
use crate::sizing::goodput::Run;
use crate::sizing::gradient2::Gradient2;
use crate::sizing::judge::{Candidate, Reading, Verdict};
use crate::sizing::sweep::{Capacity, Pace};
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// How the figures came about, for whoever reads only the file.
const METHOD: &str = "Goodput: requests answered with status 200 within the limit of their planned arrival, each second of measured load, from the clients' log. \
    The best pool is chosen on odd repeats, ratios are of even ones; 95 % intervals by a bootstrap of repeats and of the seconds within each. \
    The advice was frozen before the sweep, from a run of its own under the default pool. The load generator keeps to the last CPU; the servers do not. \
    Shares of quotas in the curves are means until the last answer, so less than in the measured seconds.";

/// All cells.
#[derive(Debug, Serialize)]
pub struct Results {
    /// What was measured.
    pub label: String,
    /// When it began, Unix s.
    pub begun_unix_s: u64,
    /// How long it took, s.
    pub took_s: u64,
    /// Kernel.
    pub kernel: String,
    /// CPUs of the machine.
    pub cpus: u64,
    /// How long everything was loaded.
    pub pace: Pace,
    /// How long advice was learnt from, s.
    pub learn_s: u32,
    /// How the figures came about.
    pub method: &'static str,
    /// The cells that were run.
    pub cells: Vec<CellResult>,
    /// Cells that were not, and why.
    pub broken: Vec<String>,
}

/// One cell.
#[derive(Debug, Serialize)]
pub struct CellResult {
    /// Name.
    pub name: String,
    /// In half a sentence.
    pub about: String,
    /// By the table, before anything was measured.
    pub answerable: bool,
    /// The tier that runs out of CPU.
    pub critical: String,
    /// The tier whose pool it is.
    pub advised: String,
    /// Servers that share what is advised.
    pub shared_by: u32,
    /// Under the default pool, or the cell's own for that.
    pub capacity: Capacity,
    /// `cores · (1 + W / D)`, in total.
    pub rule_of_thumb: u32,
    /// What was said.
    pub advice: Advice,
    /// What DCM's law says, trained by the sweep itself.
    pub dcm: Option<Dcm>,
    /// Where Gradient2's limit would be, emulated with the times of the sweep.
    pub gradient2: Option<Gradient2>,
    /// By load and limit of time.
    pub readings: Vec<Reading>,
    /// What becomes of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The cell that this one has capacity and sweep from; none: its own.
    pub swept_as: Option<&'static str>,
    /// Each load on each pool; empty if another cell has them.
    pub runs: Vec<Run>,
}

impl Results {
    /// Begins with no cell.
    #[must_use]
    pub fn new(label: String, pace: Pace, learn_s: u32) -> Self {
        Self {
            label,
            begun_unix_s: 0,
            took_s: 0,
            kernel: String::new(),
            cpus: 0,
            pace,
            learn_s,
            method: METHOD,
            cells: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// Writes both files.
    pub fn write(&self, folder: &Path) -> Result<()> {
        written(folder, "sizing-score", self, &self.markdown()?)
    }

    /// For people.
    pub fn markdown(&self) -> Result<String> {
        let mut out = String::new();
        writeln!(out, "# Sizing score\n")?;
        writeln!(
            out,
            "{} cells, {} repeats of {} s, advice learnt from {} s, in {} min on kernel {}, {} CPUs. {}\n\n{}\n",
            self.cells.len(),
            self.pace.repeats,
            self.pace.measured_s,
            self.learn_s,
            self.took_s / 60,
            self.kernel,
            self.cpus,
            self.label,
            self.method
        )?;
        writeln!(
            out,
            "| cell | answerable | advice, in total | `cores · (1 + W/D)` | verdict |\n|---|---|---|---|---|"
        )?;
        for cell in &self.cells {
            let answerable = if cell.answerable { "yes" } else { "no" };
            writeln!(
                out,
                "| {} | {answerable} | {} | {} | {} |",
                cell.name,
                told(&cell.advice),
                cell.rule_of_thumb,
                cell.verdict.text()
            )?;
        }
        for broken in &self.broken {
            writeln!(out, "\n**Not run:** {broken}")?;
        }
        for cell in &self.cells {
            cell.markdown(&mut out)?;
        }
        Ok(out)
    }
}

impl CellResult {
    fn markdown(&self, out: &mut String) -> Result<()> {
        if let Some(other) = self.swept_as {
            writeln!(
                out,
                "\n## {}\n\n{}. Capacity and sweep are those of {other}: the same servers.\n",
                self.name, self.about
            )?;
            return self.ratios(out);
        }
        let Capacity { per_second, demand_s, light_s, client_cores, critical_ratio, steps } = &self.capacity;
        writeln!(out, "\n## {}\n\n{}.", self.name, self.about)?;
        writeln!(
            out,
            "Capacity: {per_second:.0}/s, {:.2} ms of the {} tier's CPU for each request (it took {:.0} % of its quota), {:.1} ms for the client under light load; the load generator took {client_cores:.2} CPUs.\n",
            demand_s * 1e3,
            self.critical,
            critical_ratio * 100.0,
            light_s * 1e3
        )?;
        if !steps.is_empty() {
            let told: Vec<String> =
                steps.iter().map(|step| format!("{} → {:.0}", step.users, step.per_second)).collect();
            writeln!(
                out,
                "Users who ask one request after the other, and answers a second to all of them: {}.\n",
                told.join(", ")
            )?;
        }
        if self.runs.is_empty() {
            writeln!(out, "Not swept: it cannot be answered, and no size was told.")?;
            return Ok(());
        }
        self.curves(out)?;
        self.ratios(out)?;
        match self.dcm {
            Some(Dcm { in_flight, throughput, nearest, .. }) => writeln!(
                out,
                "\nDCM's law, trained by the odd repeats of this sweep: {in_flight:.1} in flight are best, with {throughput:.0}/s; {nearest} is the nearest that was tried."
            )?,
            None => writeln!(
                out,
                "\nDCM's law, trained by the odd repeats of this sweep, has no best: throughput was not seen to rise and to fall."
            )?,
        }
        if let Some(Gradient2 { limit, hour, nearest }) = self.gradient2 {
            writeln!(
                out,
                "\nGradient2, emulated with the times of the odd repeats: its limit is {limit:.0} after ten minutes of overload, and {hour:.0} after an hour; {nearest} is the nearest to the former that was tried."
            )?;
        }
        let most = |of: &dyn Fn(&Run) -> f64| self.runs.iter().map(of).fold(0.0, f64::max);
        writeln!(
            out,
            "\nAt most in any of the {} loads: load generator {:.2} CPUs, its lateness (p99) {:.1} ms, steal {:.1} %, other programs {:.2} CPUs.",
            self.runs.len(),
            most(&|run| run.client_cores),
            most(&|run| run.lateness_p99_us as f64 / 1e3),
            most(&|run| run.steal_ratio) * 100.0,
            most(&|run| run.other_cores)
        )?;
        Ok(())
    }

    /// Goodput of all repeats by pool, a column for each load and limit; then what was taken.
    fn curves(&self, out: &mut String) -> Result<()> {
        let heads: Vec<String> =
            self.readings.iter().map(|reading| format!("{}×, {} ms", reading.load, reading.sla_ms)).collect();
        writeln!(out, "| pool | {} | critical tier | load generator | steal |", heads.join(" | "))?;
        writeln!(out, "|---|{}---|---|---|", "---|".repeat(heads.len()))?;
        let mut pools: Vec<u32> = self.runs.iter().map(|run| run.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        for pool in pools {
            let cell = |reading: &Reading| {
                let point = reading.curve.iter().find(|point| point.pool == pool);
                let mark = if reading.best == pool { "**" } else { "" };
                point.map_or_else(
                    || "–".to_owned(),
                    |p| format!("{mark}{:.0}{mark}", f64::midpoint(p.odd, p.even)),
                )
            };
            let goodputs: Vec<String> = self.readings.iter().map(cell).collect();
            let runs: Vec<&Run> = self.runs.iter().filter(|run| run.pool == pool).collect();
            let mean = |of: &dyn Fn(&Run) -> f64| {
                runs.iter().map(|run| of(run)).sum::<f64>() / runs.len().max(1) as f64
            };
            writeln!(
                out,
                "| {pool} | {} | {:.0} % of its quota | {:.2} CPUs | {:.1} % |",
                goodputs.join(" | "),
                mean(&|run| run.critical_ratio) * 100.0,
                mean(&|run| run.client_cores),
                mean(&|run| run.steal_ratio) * 100.0
            )?;
        }
        Ok(())
    }

    fn ratios(&self, out: &mut String) -> Result<()> {
        let names: Vec<String> = self
            .readings
            .first()
            .map(|reading| reading.candidates.iter().map(|c| format!("{} ({})", c.name, c.pool)).collect())
            .unwrap_or_default();
        writeln!(out, "\n| of the best | best | informative | {} | its interval |", names.join(" | "))?;
        writeln!(out, "|---|---|---|{}---|", "---|".repeat(names.len()))?;
        for reading in &self.readings {
            let ratios: Vec<String> = reading.candidates.iter().map(ratio).collect();
            let mut interval = match reading.interval_holds_best {
                Some(true) => "holds the best".to_owned(),
                Some(false) => "does not hold the best".to_owned(),
                None => "–".to_owned(),
            };
            if !reading.worse_inside.is_empty() {
                write!(interval, ", worse inside: {:?}", reading.worse_inside)?;
            }
            if !reading.good_below.is_empty() {
                write!(interval, ", as good below: {:?}", reading.good_below)?;
            }
            writeln!(
                out,
                "| {}×, {} ms | {} | {} | {} | {interval} |",
                reading.load,
                reading.sla_ms,
                reading.best,
                if reading.informative { "yes" } else { "no" },
                ratios.join(" | ")
            )?;
        }
        Ok(())
    }
}

fn ratio(candidate: &Candidate) -> String {
    let told = |ratio: crate::sizing::judge::Ratio| {
        format!("{:.3} ({:.3} to {:.3})", ratio.value, ratio.low, ratio.high)
    };
    candidate.ratio.map_or_else(|| "–".to_owned(), told)
}

/// In a line.
#[must_use]
pub fn told(advice: &Advice) -> String {
    match advice {
        Advice::Told(Pool { class, advised, at_least, at_most, seen_to }) => {
            let most = at_most.map_or_else(|| "any".to_owned(), |most| most.to_string());
            let seen = seen_to.map(|seen| format!(", seen to {seen:.0}")).unwrap_or_default();
            format!("{advised} ({at_least} to {most}), {}{seen}", format!("{class:?}").to_lowercase())
        }
        Advice::Refused(why) => format!("refused: {why}"),
        Advice::Absent(why) => format!("none: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizing::advice::Class;
    use crate::sizing::judge::{Point, Ratio};
    use crate::sizing::wang::Step;

    #[test]
    fn the_page_has_the_curve_the_ratio_and_what_the_load_generator_took() {
        let pace = Pace { warm_s: 3, measured_s: 10, repeats: 4 };
        let mut results = Results::new("v1".to_owned(), pace, 60);
        let run = |pool| Run {
            pool,
            load: 1.3,
            repeat: 1,
            blocks: Vec::new(),
            client_cores: 0.31,
            lateness_p99_us: 1_500,
            steal_ratio: 0.02,
            other_cores: 0.1,
            critical_ratio: 0.98,
        };
        let ratio = Ratio { value: 0.985, low: 0.97, high: 1.0 };
        let cell = |name: &str, swept_as, runs| CellResult {
            name: name.to_owned(),
            about: "about nothing".to_owned(),
            answerable: true,
            critical: "app".to_owned(),
            advised: "app".to_owned(),
            shared_by: 1,
            capacity: Capacity {
                per_second: 700.0,
                demand_s: 7e-4,
                light_s: 0.012,
                client_cores: 0.3,
                critical_ratio: 0.99,
                steps: vec![Step { users: 1, per_second: 80.0 }, Step { users: 2, per_second: 160.4 }],
            },
            rule_of_thumb: 9,
            advice: Advice::Told(Pool {
                class: Class::Measured,
                advised: 16,
                at_least: 12,
                at_most: Some(20),
                seen_to: None,
            }),
            dcm: None,
            gradient2: Some(Gradient2 { limit: 28.1, hour: 67.4, nearest: 16 }),
            readings: vec![Reading {
                load: 1.3,
                sla_ms: 500,
                curve: vec![
                    Point { pool: 2, odd: 300.0, even: 310.0 },
                    Point { pool: 16, odd: 690.0, even: 700.0 },
                ],
                best: 16,
                informative: true,
                candidates: vec![
                    Candidate { name: "advice", pool: 16, ratio: Some(ratio) },
                    Candidate { name: "default", pool: 200, ratio: None },
                ],
                interval_holds_best: Some(true),
                worse_inside: Vec::new(),
                good_below: Vec::new(),
            }],
            verdict: Verdict::Right,
            swept_as,
            runs,
        };
        results.cells.push(cell("made-up", None, vec![run(2), run(16)]));
        results.cells.push(cell("twin", Some("made-up"), Vec::new()));
        let text = results.markdown().unwrap();
        for line in [
            "| twin | yes | 16 (12 to 20), measured | 9 | right |",
            "Capacity and sweep are those of made-up",
            "| made-up | yes | 16 (12 to 20), measured | 9 | right |",
            "| 2 | 305 | 98 % of its quota | 0.31 CPUs | 2.0 % |",
            "| 16 | **695** |",
            "| 1.3×, 500 ms | 16 | yes | 0.985 (0.970 to 1.000) | – | holds the best |",
            "its limit is 28 after ten minutes of overload, and 67 after an hour; 16 is",
            "answers a second to all of them: 1 → 80, 2 → 160.",
            "load generator 0.31 CPUs, its lateness (p99) 1.5 ms",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        results.write(folder.path()).unwrap();
        let json: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(folder.path().join("sizing-score.json")).unwrap())
                .unwrap();
        assert_eq!(json["cells"][0]["verdict"], "right");
        assert_eq!(json["cells"][0]["advice"]["told"]["class"], "measured");
    }
}

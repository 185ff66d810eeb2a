//! What the experiment leaves: `stealing-score.json` and `stealing-score.md`. Runs nothing.

use crate::console::measured::Measured;
use crate::console::written::written;
use crate::stealing::experiment::Trial;
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// How the figures came about, for whoever reads only the file.
const METHOD: &str = "Two MariaDB servers on one \"VM\" of a quarter of a CPU, each asked by a Tomcat of its own with so many connections, each of these by 40 users \
    who ask without a pause. Shares are of the CPU that both processes took, as the kernel accounts for them (`/proc/PID/stat`), from 4 s after the load began; answers are the clients'. What \
    was said is `/api/v1/advice` 6 s after the end of the load. All settings of a repeat are seen by the same collector, in this order.";

/// All of it.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    /// When and where.
    #[serde(flatten)]
    pub measured: Measured,
    /// In the order in which they were run.
    pub trials: Vec<Trial>,
}

impl Results {
    /// Writes both files.
    pub fn write(&self, folder: &Path) -> Result<()> {
        written(folder, "stealing-score", self, &self.markdown()?)
    }

    /// For people.
    pub fn markdown(&self) -> Result<String> {
        let mut out = String::new();
        let Self { measured, trials } = self;
        writeln!(out, "# Whose the CPU of a cgroup is\n")?;
        writeln!(out, "{} trials {measured}\n\n{METHOD}\n", trials.len())?;
        writeln!(
            out,
            "| connections | the first has (by threads) | CPUs of both | answers/s of each | said: the first has, of what is due | of the second at most | load generators, CPUs | steal |\n\
             |---|---|---|---|---|---|---|---|"
        )?;
        let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
        for trial in trials {
            let (said, most) = match &trial.said {
                None => ("nothing".to_owned(), "–".to_owned()),
                Some(said) => {
                    let since =
                        said.after.as_ref().map_or_else(String::new, |after| format!("; since then {after}"));
                    let before = if trial.is_from_before { "before: " } else { "" };
                    let has = format!(
                        "{before}{} of {}{since}",
                        percent(said.victim_ratio),
                        percent(said.due_ratio)
                    );
                    (has, said.thief_runnable_max.to_string())
                }
            };
            writeln!(
                out,
                "| {} #{} | {} ({}) | {:.3} | {:.0}, {:.0} | {said} | {most} | {:.2} | {} |",
                trial.setting,
                trial.repeat,
                percent(trial.share()),
                percent(trial.by_threads),
                trial.cores.iter().sum::<f64>(),
                trial.answered[0],
                trial.answered[1],
                trial.client_cores,
                percent(trial.steal_ratio),
            )?;
        }
        Ok(out)
    }
}

//! From what was measured of a cell to what becomes of it: who advises which pool, the readings, the verdict. Pure; and reads what an earlier score
//! measured, to judge it again.

use crate::console::failure::REMEDY;
use crate::sizing::advice::{Advice, Class, Pool};
use crate::sizing::cells::{self, Cell, LOADS};
use crate::sizing::dcm::Dcm;
use crate::sizing::goodput::{Run, SLA_MS};
use crate::sizing::gradient2::Gradient2;
use crate::sizing::judge::{self, ADVICE};
use crate::sizing::results::{CellResult, Results};
use crate::sizing::sweep::{Capacity, Pace};
use crate::sizing::wang::{self, Step};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::Path;

/// Pools that somebody sets or advises, which are tried besides the grid.
#[must_use]
pub fn advised(cell: &Cell, capacity: &Capacity, advice: &Advice) -> Vec<(&'static str, u32)> {
    // A lower bound raises a pool that is smaller, and leaves the others alone: so does whoever follows it.
    let followed = |pool: &Pool| {
        let each = cell.each(pool.advised);
        if pool.class == Class::Extrapolated { each.max(cell.default_pool) } else { each }
    };
    let mut all = vec![("default", cell.default_pool)];
    // It is of the tier that runs out of CPU, and says nothing of another one's pool.
    if cell.advised == cell.critical {
        all.push(("cores · (1 + W/D)", cell.each(rule_of_thumb(cell, capacity))));
    }
    all.extend(wang::min_jobs(&capacity.steps).map(|jobs| ("minJobs of A", cell.each(jobs))));
    all.extend(advice.pool().map(|pool| (ADVICE, followed(pool))));
    all
}

fn rule_of_thumb(cell: &Cell, capacity: &Capacity) -> u32 {
    capacity.rule_of_thumb(cell.advised_cores())
}

/// A cell's result. `swept_as`: the cell whose sweep `runs` are, if it is another.
#[must_use]
pub fn judged(
    cell: &Cell,
    capacity: Capacity,
    advice: Advice,
    runs: &[Run],
    swept_as: Option<&'static str>,
) -> CellResult {
    let mut candidates = advised(cell, &capacity, &advice);
    let dcm = Dcm::trained(runs);
    candidates.extend(dcm.map(|dcm| ("DCM, nearest tried", dcm.nearest)));
    // A limiter stands in each server, and the pools of a sweep are of each.
    let gradient2 = Gradient2::emulated(runs);
    candidates.extend(gradient2.map(|of| ("Gradient2, emulated, nearest tried", of.nearest)));
    let interval =
        advice.pool().map(|pool| (cell.each(pool.at_least), pool.at_most.map(|most| cell.each(most))));
    let readings: Vec<judge::Reading> = LOADS
        .into_iter()
        .flat_map(|load| (0..SLA_MS.len()).map(move |sla| (load, sla)))
        .filter_map(|(load, sla)| judge::read(runs, load, sla, &candidates, interval))
        .collect();
    // Runs carry the pool of each server, advice the total.
    let default_total = cell.default_pool * cell.shared_by;
    let totals = (default_total, cell.shared_by);
    let verdict = judge::verdict(cell.answerable, &advice, capacity.critical_ratio, totals, &readings);
    CellResult {
        name: cell.name.to_owned(),
        about: cell.about.to_owned(),
        answerable: cell.answerable,
        critical: cell.critical.name().to_owned(),
        advised: cell.advised.name().to_owned(),
        shared_by: cell.shared_by,
        rule_of_thumb: rule_of_thumb(cell, &capacity),
        capacity,
        advice,
        dcm,
        gradient2,
        readings,
        verdict,
        swept_as,
        runs: if swept_as.is_some() { Vec::new() } else { runs.to_vec() },
    }
}

/// What a score measured, of its file; what it judged is not read.
#[derive(Deserialize)]
struct Measured {
    label: String,
    begun_unix_s: u64,
    took_s: u64,
    kernel: String,
    cpus: u64,
    pace: Pace,
    learn_s: u32,
    cells: Vec<MeasuredCell>,
    broken: Vec<String>,
}

#[derive(Deserialize)]
struct MeasuredCell {
    name: String,
    capacity: Capacity,
    advice: Advice,
    swept_as: Option<String>,
    runs: Vec<Run>,
}

/// What more and more users got in a run of its own, by cell.
pub type Staircases = BTreeMap<String, Vec<Step>>;

fn read<T: DeserializeOwned>(file: &Path, what: &str) -> Result<T> {
    let text = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not {what}", file.display()))
}

/// Judges what is in `file` once more; `label` says who does. Cells that have no staircase have that of `steps`.
///
/// # Errors
/// A file that is none of a score, or of cells that there are not any more; names them.
pub fn again(file: &Path, steps: Option<&Path>, label: &str) -> Result<Results> {
    let old: Measured = read(file, "what a sizing score measured")?;
    let steps: Staircases =
        steps.map(|of| read(of, "what --steps-only measured")).transpose()?.unwrap_or_default();
    let mut results = Results::new(format!("{}; judged by {label}", old.label), old.pace, old.learn_s);
    (results.begun_unix_s, results.took_s) = (old.begun_unix_s, old.took_s);
    (results.kernel, results.cpus, results.broken) = (old.kernel, old.cpus, old.broken);
    for measured in &old.cells {
        let Some(cell) = cells::find(&measured.name) else {
            bail!(
                "{}: there is no cell {}{REMEDY}read it with the version that measured it",
                file.display(),
                measured.name
            );
        };
        let swept = measured.swept_as.as_deref();
        let of = old.cells.iter().find(|other| other.name == swept.unwrap_or(&measured.name));
        let of = of.context("a cell's sweep is in the file")?;
        let runs = &of.runs;
        let swept_as = cell.swept_as.filter(|_| swept.is_some());
        let mut capacity = measured.capacity.clone();
        if let Some(own) = steps.get(cell.swept_as.unwrap_or(cell.name)).filter(|_| capacity.steps.is_empty())
        {
            capacity.steps.clone_from(own);
        }
        results.cells.push(judged(cell, capacity, measured.advice.clone(), runs, swept_as));
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizing::goodput::Block;

    #[test]
    fn what_was_measured_is_judged_again_to_the_same() {
        let cell = cells::find("tomcat-critical").unwrap();
        let run = |(pool, load, repeat): (u32, f64, u32)| Run {
            pool,
            load,
            repeat,
            blocks: vec![Block { arrived: 900, within: [pool * 10, pool * 11] }; 3],
            client_cores: 0.1,
            lateness_p99_us: 100,
            steal_ratio: 0.0,
            other_cores: 0.0,
            critical_ratio: 0.95,
        };
        let runs: Vec<Run> = [2, 8, 32]
            .into_iter()
            .flat_map(|pool| LOADS.into_iter().flat_map(move |load| (1..=2).map(move |n| (pool, load, n))))
            .map(run)
            .collect();
        let capacity = Capacity {
            per_second: 900.0,
            demand_s: 5e-4,
            light_s: 2e-3,
            client_cores: 0.1,
            critical_ratio: 0.97,
            steps: vec![Step { users: 2, per_second: 500.0 }, Step { users: 8, per_second: 900.0 }],
        };
        let pool = Pool { class: Class::Plateau, advised: 32, at_least: 30, at_most: None, seen_to: None };
        let mut results = Results::new("one".to_owned(), Pace { warm_s: 1, measured_s: 3, repeats: 2 }, 9);
        results.cells.push(judged(cell, capacity.clone(), Advice::Told(pool.clone()), &runs, None));
        let twin = cells::find("unsaturated").unwrap();
        results.cells.push(judged(twin, capacity, Advice::Told(pool), &runs, twin.swept_as));
        let folder = tempfile::tempdir().unwrap();
        results.write(folder.path()).unwrap();
        let back = again(&folder.path().join("sizing-score.json"), None, "two").unwrap();
        assert_eq!(back.label, "one; judged by two");
        let text = |of: &Results| of.markdown().unwrap().replace("; judged by two", "");
        assert_eq!(text(&back), text(&results));
        assert_eq!(back.cells[0].verdict, judge::Verdict::Right);
        let other = folder.path().join("other.json");
        std::fs::write(&other, "{}").unwrap();
        let error = format!("{:#}", again(&other, None, "two").err().unwrap());
        assert!(error.contains("other.json is not what a sizing score measured"), "{error}");
    }
}
